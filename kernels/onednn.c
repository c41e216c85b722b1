/* oneDNN's FP32 matmul behind onednn.h: the one file that knows the library.
 *
 * Threads  The library runs an OpenMP team of the calling thread's size, which OpenMP keeps per thread: each thread
 *          that enters here sets its own to 1 first, so a lane never spawns a team. That holds for preparing too,
 *          because the library lays out its scratch memory for the team that it sees then.
 * Limits   oneDNN 2 only: version 3 has another C interface and counts as not supported here, the reference serves.
 *          alpha must be a float exactly, as the library multiplies in FP32, and not 0, where it skips the product and
 *          with it every NaN.
 *          Bias and activation follow as a pass of ours over the output.
 * Owner    scratch is ours (user mode): the library's own would belong to the thread that prepared. */
#include "onednn.h"

#ifdef KS_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl_version.h>
#if DNNL_VERSION_MAJOR == 2
#define KS_ONEDNN_2 1
#endif
#endif

#ifdef KS_ONEDNN_2

#include "matmul_shape.h"

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

extern const ks_op ks_op_matmul;

enum { KS_SCRATCH_ALIGNMENT = 64, KS_ONEDNN_ROWS_MIN = 5 };

/* What one execution writes to; a second one at the same time gets its own. */
typedef struct seat {
    dnnl_stream_t stream;
    dnnl_memory_t a, b, c, scratch;
    void *scratch_bytes;
} seat;

struct ks_onednn {
    dnnl_memory_desc_t a, b, c, scratch;
    dnnl_primitive_t primitive;
    int64_t count, columns; /* of the output */
    bool biased;
    ks_matmul_activation activation;
    seat seat;
    atomic_flag taken; /* any thread: who sets it uses the seat */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine; /* fixed after once; lives as long as the process */
static void (*set_team)(int);

static void open_library(void)
{
    *(void **)&set_team = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

static bool enter(void)
{
    static _Thread_local bool entered;
    (void)pthread_once(&once, open_library);
    if (!entered && set_team) set_team(1);
    entered = true;
    return engine != NULL;
}

/* --- a seat ---------------------------------------------------------------------------------------------------------- */

static void seat_fini(seat *s)
{
    if (s->a) dnnl_memory_destroy(s->a);
    if (s->b) dnnl_memory_destroy(s->b);
    if (s->c) dnnl_memory_destroy(s->c);
    if (s->scratch) dnnl_memory_destroy(s->scratch);
    if (s->stream) dnnl_stream_destroy(s->stream);
    free(s->scratch_bytes);
    *s = (seat){0};
}

static bool seat_init(const ks_onednn *p, seat *s)
{
    *s = (seat){0};
    const size_t bytes = dnnl_memory_desc_get_size(&p->scratch);
    if (bytes > 0) {
        s->scratch_bytes = aligned_alloc(KS_SCRATCH_ALIGNMENT, ks_align(bytes));
        if (!s->scratch_bytes) return false;
    }
    const bool made =
        dnnl_stream_create(&s->stream, engine, dnnl_stream_default_flags) == dnnl_success &&
        dnnl_memory_create(&s->a, &p->a, engine, DNNL_MEMORY_NONE) == dnnl_success &&
        dnnl_memory_create(&s->b, &p->b, engine, DNNL_MEMORY_NONE) == dnnl_success &&
        dnnl_memory_create(&s->c, &p->c, engine, DNNL_MEMORY_NONE) == dnnl_success &&
        (bytes == 0 || dnnl_memory_create(&s->scratch, &p->scratch, engine, s->scratch_bytes) == dnnl_success);
    if (!made) seat_fini(s);
    return made;
}

static bool seat_run(const ks_onednn *p, seat *s, const void *const *in, void *out)
{
    /* The library's handles are not const; it only reads the inputs. */
    if (dnnl_memory_set_data_handle(s->a, (void *)(uintptr_t)in[0]) != dnnl_success ||
        dnnl_memory_set_data_handle(s->b, (void *)(uintptr_t)in[1]) != dnnl_success ||
        dnnl_memory_set_data_handle(s->c, out) != dnnl_success)
        return false;
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, s->a}, {DNNL_ARG_WEIGHTS, s->b}, {DNNL_ARG_DST, s->c}, {DNNL_ARG_SCRATCHPAD, s->scratch}};
    return dnnl_primitive_execute(p->primitive, s->stream, s->scratch ? 4 : 3, arguments) == dnnl_success &&
           dnnl_stream_wait(s->stream) == dnnl_success;
}

static void finish(const ks_onednn *p, const float *bias, float *out)
{
    if (!p->biased && p->activation == KS_MATMUL_NONE) return;
    for (int64_t at = 0; at < p->count; at++) {
        const double sum = (double)out[at] + (p->biased ? (double)bias[at % p->columns] : 0);
        out[at] = (float)ks_matmul_activate(p->activation, sum);
    }
}

/* --- one plan's primitive -------------------------------------------------------------------------------------------- */

static bool supports(const ks_spec *spec, const ks_matmul_shape *s)
{
    return spec->in[0].dtype == KS_FP32 && s->batch > 0 && s->m >= KS_ONEDNN_ROWS_MIN && s->n >= KS_ONEDNN_ROWS_MIN &&
           s->k > 0 && s->alpha != 0 && (double)(float)s->alpha == s->alpha;
}

static bool describe(const ks_matmul_shape *s, ks_onednn *p)
{
    const int rank = s->batch_rank + 2;
    dnnl_dims_t dims[3] = {{0}}, strides[3] = {{0}};
    int64_t step = s->m * s->n;
    for (int d = s->batch_rank - 1; d >= 0; d--) {
        dims[0][d] = s->a_step[d] ? s->batch_dims[d] : 1;
        dims[1][d] = s->b_step[d] ? s->batch_dims[d] : 1;
        dims[2][d] = s->batch_dims[d];
        /* A broadcast dimension is 1 long, its stride is never used, but must not be 0. */
        strides[0][d] = s->a_step[d] ? s->a_step[d] : s->m * s->k;
        strides[1][d] = s->b_step[d] ? s->b_step[d] : s->k * s->n;
        strides[2][d] = step;
        step *= s->batch_dims[d];
    }
    const int64_t last[3][4] = {
        {s->m, s->k, s->a_row, s->a_col}, {s->k, s->n, s->b_row, s->b_col}, {s->m, s->n, s->n, 1}};
    dnnl_memory_desc_t *const out[3] = {&p->a, &p->b, &p->c};
    for (int i = 0; i < 3; i++) {
        dims[i][rank - 2] = last[i][0];
        dims[i][rank - 1] = last[i][1];
        strides[i][rank - 2] = last[i][2];
        strides[i][rank - 1] = last[i][3];
        if (dnnl_memory_desc_init_by_strides(out[i], rank, dims[i], dnnl_f32, strides[i]) != dnnl_success) return false;
    }
    return true;
}

static bool make_primitive(ks_onednn *p, double alpha)
{
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t chosen = NULL;
    dnnl_matmul_desc_t wanted;
    const float scale = (float)alpha;
    bool made = dnnl_matmul_desc_init(&wanted, &p->a, &p->b, NULL, &p->c) == dnnl_success &&
                dnnl_primitive_attr_create(&attributes) == dnnl_success &&
                dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) == dnnl_success &&
                (alpha == 1.0 || dnnl_primitive_attr_set_output_scales(attributes, 1, 0, &scale) == dnnl_success) &&
                dnnl_primitive_desc_create(&chosen, &wanted, attributes, engine, NULL) == dnnl_success;
    if (made) {
        const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
        if (scratch) p->scratch = *scratch;
        made = dnnl_primitive_create(&p->primitive, chosen) == dnnl_success;
    }
    if (chosen) dnnl_primitive_desc_destroy(chosen);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    return made;
}

ks_onednn *ks_onednn_prepare(const ks_spec *spec)
{
    if (spec->op != &ks_op_matmul) return NULL;
    ks_matmul_shape shape;
    ks_matmul_shape_of(spec, &shape);
    if (!supports(spec, &shape) || !enter()) return NULL;
    ks_onednn *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    atomic_flag_clear(&p->taken);
    p->count = ks_tensor_count(&spec->out);
    p->columns = shape.n;
    p->biased = shape.biased;
    p->activation = shape.activation;
    if (!describe(&shape, p) || !make_primitive(p, shape.alpha) || !seat_init(p, &p->seat)) ks_onednn_free(&p);
    return p;
}

bool ks_onednn_run(ks_onednn *prepared, const void *const *in, void *out)
{
    if (!enter()) return false;
    bool done;
    if (!atomic_flag_test_and_set_explicit(&prepared->taken, memory_order_acquire)) {
        done = seat_run(prepared, &prepared->seat, in, out);
        atomic_flag_clear_explicit(&prepared->taken, memory_order_release);
    } else {
        seat extra;
        if (!seat_init(prepared, &extra)) return false;
        done = seat_run(prepared, &extra, in, out);
        seat_fini(&extra);
    }
    if (done) finish(prepared, prepared->biased ? in[2] : NULL, out);
    return done;
}

void ks_onednn_free(ks_onednn **prepared)
{
    ks_onednn *p = *prepared;
    if (!p) return;
    seat_fini(&p->seat);
    if (p->primitive) dnnl_primitive_destroy(p->primitive);
    free(p);
    *prepared = NULL;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *ks_onednn_version(void)
{
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH);
}

#else

const char *ks_onednn_version(void)
{
    return "no oneDNN";
}

ks_onednn *ks_onednn_prepare(const ks_spec *spec)
{
    (void)spec;
    return NULL;
}

bool ks_onednn_run(ks_onednn *prepared, const void *const *in, void *out)
{
    (void)prepared;
    (void)in;
    (void)out;
    return false;
}

void ks_onednn_free(ks_onednn **prepared)
{
    *prepared = NULL;
}

#endif
