/* OUTPUT0 = alpha * op(INPUT0) op(INPUT1) over the last two dimensions: the descriptor and the reference on the CPU.
 *
 * Shapes   INPUT0: [..., M, K], INPUT1: [..., K, N], each [.., columns, rows] where its transpose parameter is set; the
 * leading dimensions broadcast as NumPy's. OUTPUT0: [..., M, N]. Values   FP16 and BF16 are computed as FP32 and
 * rounded once. FP32 sums run over KS_MATMUL_DEPTH values at a time and are collected in FP64, so the error does not
 * grow with K beyond that. Nothing is skipped: NaN and infinity meet zeros as IEEE 754 says. K = 0 gives zeros. Source
 * the blocking follows Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication". */
#include "matmul_shape.h"

#include "convert.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { PARAM_TRANSPOSE_A, PARAM_TRANSPOSE_B, PARAM_ALPHA, PARAM_COUNT };

/* --- what is accepted ------------------------------------------------------------------------------------------------ */

static ks_status check_inputs(ks_spec *spec, ks_error *error)
{
    static const char *const names[] = {"INPUT0", "INPUT1"};
    for (int i = 0; i < 2; i++) {
        const ks_tensor *in = &spec->in[i];
        if ((spec->op->dtypes & KS_DTYPE_BIT(in->dtype)) == 0)
            return ks_fail(error, KS_DATATYPE, "matmul: %s has datatype %s, takes FP16, BF16, FP32 or FP64", names[i],
                           ks_dtype_name(in->dtype));
    }
    if (spec->in[0].dtype != spec->in[1].dtype)
        return ks_fail(error, KS_DATATYPE, "matmul: INPUT0 has datatype %s, INPUT1 %s; they must be equal",
                       ks_dtype_name(spec->in[0].dtype), ks_dtype_name(spec->in[1].dtype));
    for (int i = 0; i < 2; i++) {
        const ks_tensor *in = &spec->in[i];
        if (in->rank < spec->op->rank_min || in->rank > spec->op->rank_max)
            return ks_fail(error, KS_SHAPE, "matmul: %s has rank %d, takes %d to %d (INPUT0 %d, INPUT1 %d)", names[i],
                           in->rank, spec->op->rank_min, spec->op->rank_max, spec->in[0].rank, spec->in[1].rank);
        const ks_status status = ks_tensor_measure(&spec->in[i], names[i], error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* Dimension d of the batch, counted from the innermost; 1 where the tensor has none. */
static int64_t batch_dim(const ks_tensor *in, int d)
{
    return d < in->rank - 2 ? in->dims[in->rank - 3 - d] : 1;
}

static ks_status broadcast_batch(ks_spec *spec, ks_error *error)
{
    const int rank = spec->out.rank;
    for (int d = 0; d < rank - 2; d++) {
        const int64_t a = batch_dim(&spec->in[0], d), b = batch_dim(&spec->in[1], d);
        if (a != b && a != 1 && b != 1)
            return ks_fail(error, KS_SHAPE,
                           "matmul: INPUT0 has %" PRId64 " and INPUT1 %" PRId64
                           " in batch dimension %d of %d; they must be equal or 1",
                           a, b, rank - 3 - d, rank - 2);
        spec->out.dims[rank - 3 - d] = a == 1 ? b : a;
    }
    return KS_OK;
}

/* ks_resolve_fn */
static ks_status matmul_resolve(ks_spec *spec, ks_error *error)
{
    ks_status status = check_inputs(spec, error);
    if (status != KS_OK) return status;
    if (!isfinite(spec->params[PARAM_ALPHA].d))
        return ks_fail(error, KS_PARAMETER, "matmul: parameter 'alpha' is %g, must be finite",
                       spec->params[PARAM_ALPHA].d);

    const ks_tensor *a = &spec->in[0], *b = &spec->in[1];
    const int ta = spec->params[PARAM_TRANSPOSE_A].i != 0, tb = spec->params[PARAM_TRANSPOSE_B].i != 0;
    const int64_t m = a->dims[a->rank - 2 + ta], k = a->dims[a->rank - 1 - ta];
    const int64_t inner = b->dims[b->rank - 2 + tb], n = b->dims[b->rank - 1 - tb];
    if (k != inner)
        return ks_fail(error, KS_SHAPE,
                       "matmul: inner sizes differ: INPUT0%s has %" PRId64 " columns, INPUT1%s has %" PRId64 " rows",
                       ta ? " (transposed)" : "", k, tb ? " (transposed)" : "", inner);

    spec->out = (ks_tensor){.dtype = a->dtype, .rank = a->rank > b->rank ? a->rank : b->rank};
    status = broadcast_batch(spec, error);
    if (status != KS_OK) return status;
    spec->out.dims[spec->out.rank - 2] = m;
    spec->out.dims[spec->out.rank - 1] = n;
    status = ks_tensor_measure(&spec->out, "OUTPUT0", error);
    if (status != KS_OK) return status;
    spec->flops = 2.0 * (double)ks_tensor_count(&spec->out) * (double)k;
    return KS_OK;
}

/* ks_sample_fn: ragged in every size, so that edges are met too. */
static void matmul_sample(ks_spec *spec)
{
    for (int i = 0; i < 2; i++) {
        spec->in[i].dtype = KS_FP32;
        spec->in[i].rank = 2;
    }
    spec->in[0].dims[0] = 33;
    spec->in[0].dims[1] = spec->in[1].dims[0] = 70;
    spec->in[1].dims[1] = 41;
    for (int i = 0; i < 2; i++) (void)ks_tensor_measure(&spec->in[i], "sample", NULL);
}

/* --- sizes and strides ----------------------------------------------------------------------------------------------- */

/* Appends one batch dimension outside those present, or merges it into the outermost where that one continues it. */
static void batch_push(ks_matmul_shape *s, int64_t dim, int64_t a_step, int64_t b_step)
{
    if (dim == 1) return;
    const int last = s->batch_rank - 1;
    if (last >= 0 && a_step == s->a_step[last] * s->batch_dims[last] &&
        b_step == s->b_step[last] * s->batch_dims[last]) {
        s->batch_dims[last] *= dim;
        return;
    }
    s->batch_dims[s->batch_rank] = dim;
    s->a_step[s->batch_rank] = a_step;
    s->b_step[s->batch_rank] = b_step;
    s->batch_rank++;
}

static void swap(int64_t *x, int64_t *y)
{
    const int64_t old = *x;
    *x = *y;
    *y = old;
}

static void batch_reverse(ks_matmul_shape *s)
{
    for (int i = 0, j = s->batch_rank - 1; i < j; i++, j--) {
        swap(&s->batch_dims[i], &s->batch_dims[j]);
        swap(&s->a_step[i], &s->a_step[j]);
        swap(&s->b_step[i], &s->b_step[j]);
    }
}

void ks_matmul_shape_of(const ks_spec *spec, ks_matmul_shape *out)
{
    const ks_tensor *a = &spec->in[0], *b = &spec->in[1];
    const int ta = spec->params[PARAM_TRANSPOSE_A].i != 0, tb = spec->params[PARAM_TRANSPOSE_B].i != 0;
    ks_matmul_shape s = {
        .m = a->dims[a->rank - 2 + ta], .n = b->dims[b->rank - 1 - tb], .k = a->dims[a->rank - 1 - ta]};
    s.transpose_a = ta;
    s.transpose_b = tb;
    s.alpha = spec->params[PARAM_ALPHA].d;
    s.a_row = ta ? 1 : s.k;
    s.a_col = ta ? s.m : 1;
    s.b_row = tb ? 1 : s.n;
    s.b_col = tb ? s.k : 1;
    s.batch = ks_dims_product(spec->out.dims, 0, spec->out.rank - 2);
    int64_t a_step = s.m * s.k, b_step = s.k * s.n;
    for (int d = 0; d < spec->out.rank - 2 && s.batch > 0; d++) {
        const int64_t a_dim = batch_dim(a, d), b_dim = batch_dim(b, d);
        batch_push(&s, a_dim > b_dim ? a_dim : b_dim, a_dim == 1 ? 0 : a_step, b_dim == 1 ? 0 : b_step);
        a_step *= a_dim;
        b_step *= b_dim;
    }
    batch_reverse(&s);
    if (s.batch_rank == 1 && !ta && s.b_step[0] == 0 && s.a_step[0] == s.m * s.k) {
        s.m *= s.batch;
        s.batch = 1;
        s.batch_rank = 0;
    }
    *out = s;
}

void ks_matmul_offsets(const ks_matmul_shape *shape, int64_t index, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int d = shape->batch_rank - 1; d >= 0; d--) {
        const int64_t at = index % shape->batch_dims[d];
        index /= shape->batch_dims[d];
        *a += at * shape->a_step[d];
        *b += at * shape->b_step[d];
    }
}

/* --- the reference --------------------------------------------------------------------------------------------------- */

enum {
    KS_MATMUL_ROWS = 240,    /* of a block: a multiple of every tile's rows below */
    KS_MATMUL_COLUMNS = 512, /* of a block: a multiple of every tile's columns */
    KS_MATMUL_DEPTH = 128,   /* values summed in the element's own precision before they go to FP64 */
    KS_MATMUL_SKINNY = 4,    /* up to so many rows, packing INPUT1 costs more than it saves */
    KS_MATMUL_NARROW = 16,   /* up to so few columns, the transposed product wastes less of a tile */
    KS_MATMUL_STRIP = 1024,  /* columns of a skinny product done at once */
    KS_MATMUL_SCRATCH_ALIGNMENT = 64
};

/* One matrix: C may be swapped with its transpose, so it has strides too. */
typedef struct product {
    const unsigned char *a, *b;
    unsigned char *c;
    ks_dtype dtype;
    int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, c_col;
    double alpha;
} product;

static int64_t least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static int64_t up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static void read_run_float(ks_dtype dtype, const unsigned char *from, int64_t at, int64_t count, float *to)
{
    if (dtype == KS_FP16)
        ks_fp16_to_floats((const uint16_t *)from + at, to, (size_t)count);
    else if (dtype == KS_BF16)
        ks_bf16_to_floats((const uint16_t *)from + at, to, (size_t)count);
    else
        memcpy(to, (const float *)from + at, (size_t)count * sizeof *to);
}

static void read_run_double(ks_dtype dtype, const unsigned char *from, int64_t at, int64_t count, double *to)
{
    (void)dtype;
    memcpy(to, (const double *)from + at, (size_t)count * sizeof *to);
}

/* The only rounding to the output's datatype. */
static void store_run(const product *p, int64_t row, int64_t column, const double *sum, int64_t count)
{
    const int64_t at = row * p->c_row + column * p->c_col, step = p->c_col;
    switch (p->dtype) {
    case KS_FP16:
        for (int64_t j = 0; j < count; j++) ((uint16_t *)p->c)[at + j * step] = ks_double_to_fp16(p->alpha * sum[j]);
        break;
    case KS_BF16:
        for (int64_t j = 0; j < count; j++) ((uint16_t *)p->c)[at + j * step] = ks_double_to_bf16(p->alpha * sum[j]);
        break;
    case KS_FP32:
        for (int64_t j = 0; j < count; j++) ((float *)p->c)[at + j * step] = (float)(p->alpha * sum[j]);
        break;
    default:
        for (int64_t j = 0; j < count; j++) ((double *)p->c)[at + j * step] = p->alpha * sum[j];
        break;
    }
}

#define JOIN3_(a, b, c) a##_##b##_##c
#define JOIN3(a, b, c) JOIN3_(a, b, c)

/* The same code for each width of vectors; run picks the widest that this processor has. */
#define ISA plain
#define ISA_TARGET
#if defined(__x86_64__)
#define TILE_ROWS 2
#else
#define TILE_ROWS 6
#endif
#define TILE_VECTORS 1
#define REAL float
#include "matmul_tiles.h"
#undef REAL
#define REAL double
#include "matmul_tiles.h"
#undef REAL
#undef ISA
#undef ISA_TARGET
#undef TILE_ROWS
#undef TILE_VECTORS

#if defined(__x86_64__)
#define ISA avx2
#define ISA_TARGET __attribute__((target("avx2,fma")))
#define TILE_ROWS 6
#define TILE_VECTORS 1
#define REAL float
#include "matmul_tiles.h"
#undef REAL
#define REAL double
#include "matmul_tiles.h"
#undef REAL
#undef ISA
#undef ISA_TARGET
#undef TILE_ROWS
#undef TILE_VECTORS

#define ISA avx512
#define ISA_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma")))
#define TILE_ROWS 8
#define TILE_VECTORS 2
#define REAL float
#include "matmul_tiles.h"
#undef REAL
#define REAL double
#include "matmul_tiles.h"
#undef REAL
#undef ISA
#undef ISA_TARGET
#undef TILE_ROWS
#undef TILE_VECTORS
#endif

typedef void run_fn(const product *p, unsigned char *scratch);

static run_fn *pick(ks_dtype dtype)
{
    const bool wide = dtype == KS_FP64;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        return wide ? run_double_avx512 : run_float_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return wide ? run_double_avx2 : run_float_avx2;
#endif
    return wide ? run_double_plain : run_float_plain;
}

/* Few columns are few rows of the transposed product. */
static bool turns(int64_t m, int64_t n)
{
    return n <= KS_MATMUL_NARROW && m > n;
}

static size_t matmul_scratch_bytes(const ks_spec *spec)
{
    ks_matmul_shape s;
    ks_matmul_shape_of(spec, &s);
    if (turns(s.m, s.n)) swap(&s.m, &s.n);
    const size_t real = spec->in[0].dtype == KS_FP64 ? sizeof(double) : sizeof(float);
    if (s.m <= KS_MATMUL_SKINNY)
        return KS_MATMUL_SCRATCH_ALIGNMENT + (size_t)KS_MATMUL_SKINNY * KS_MATMUL_STRIP * (sizeof(double) + real) +
               (size_t)(KS_MATMUL_SKINNY * KS_MATMUL_DEPTH + 4 * KS_MATMUL_STRIP) * real;
    /* Tiles are padded: rounding up to the least common multiple of their sizes holds for each of them. */
    const size_t rows = (size_t)up(least(s.m, KS_MATMUL_ROWS), 24),
                 columns = (size_t)up(least(s.n, KS_MATMUL_COLUMNS), 32);
    return KS_MATMUL_SCRATCH_ALIGNMENT + rows * columns * sizeof(double) +
           (rows + columns + 1) * KS_MATMUL_DEPTH * real;
}

static void turn(product *p)
{
    const product old = *p;
    p->a = old.b;
    p->b = old.a;
    p->m = old.n;
    p->n = old.m;
    p->a_row = old.b_col;
    p->a_col = old.b_row;
    p->b_row = old.a_col;
    p->b_col = old.a_row;
    p->c_row = old.c_col;
    p->c_col = old.c_row;
}

/* ks_cpu_fn */
static void matmul_reference(const ks_spec *spec, const void *const *in, void *out, void *scratch)
{
    ks_matmul_shape s;
    ks_matmul_shape_of(spec, &s);
    if (spec->out.size_bytes == 0) return;
    if (s.k == 0) {
        memset(out, 0, spec->out.size_bytes);
        return;
    }
    unsigned char *aligned = scratch;
    aligned += -(uintptr_t)scratch % KS_MATMUL_SCRATCH_ALIGNMENT;
    const size_t size = ks_dtype_size(spec->out.dtype);
    run_fn *run = pick(spec->out.dtype);
    for (int64_t x = 0; x < s.batch; x++) {
        int64_t a, b;
        ks_matmul_offsets(&s, x, &a, &b);
        product p = {.a = (const unsigned char *)in[0] + (size_t)a * size,
                     .b = (const unsigned char *)in[1] + (size_t)b * size,
                     .c = (unsigned char *)out + (size_t)x * (size_t)s.m * (size_t)s.n * size,
                     .dtype = spec->out.dtype,
                     .m = s.m,
                     .n = s.n,
                     .k = s.k,
                     .a_row = s.a_row,
                     .a_col = s.a_col,
                     .b_row = s.b_row,
                     .b_col = s.b_col,
                     .c_row = s.n,
                     .c_col = 1,
                     .alpha = s.alpha};
        if (turns(p.m, p.n)) turn(&p);
        run(&p, aligned);
    }
}

static const ks_preset presets[] = {{.suffix = "tb", .param = PARAM_TRANSPOSE_B, .value = {.i = 1}}};

const ks_op ks_op_matmul = {
    .name = "matmul",
    .inputs = 2,
    .inputs_least = 2,
    .in_rank = 2,
    .out_rank = 2,
    .rank_min = 2,
    .rank_max = KS_RANK_MAX,
    .dtypes = KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP64),
    .params_count = PARAM_COUNT,
    .params =
        {[PARAM_TRANSPOSE_A] = {.name = "transpose_a", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
         [PARAM_TRANSPOSE_B] = {.name = "transpose_b", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
         [PARAM_ALPHA] = {.name = "alpha", .kind = KS_PARAM_NUMBER, .preset = {.d = 1.0}, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = matmul_resolve,
    .reference = matmul_reference,
    .scratch_bytes = matmul_scratch_bytes,
    .sample = matmul_sample,
};
