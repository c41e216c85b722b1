/* Softmax and sums of our own beside oneDNN's, FP32, on one thread and on all cores.
 *
 *   bench_cpu_library
 *
 * Ours on all cores: each thread has its part of the rows, as lanes have. `make` is what oneDNN takes to make a primitive, which holds for
 * one shape; `error` the largest relative one of a sum, or of a softmax's element, against FP64. Best times of many. Exit code 77: no
 * oneDNN 2 in this build. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpu/reference.h"
#include "kernserve/op.h"

#ifdef KS_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

#if defined(KS_HAVE_ONEDNN) && DNNL_VERSION_MAJOR == 2

enum { REPEATS_LEAST = 5, REPEATS_MOST = 2000, THREADS_MAX = 64 };
static const int64_t ENOUGH_NS = 100000000;

typedef struct shape {
    bool sum;
    int64_t rows, cols;
} shape;

static const shape shapes[] = {{false, 1, 1024},    {false, 4, 1024},    {false, 64, 1024},  {false, 512, 1024},
                               {false, 4096, 4096}, {false, 262144, 64}, {true, 1, 1024},    {true, 4, 1024},
                               {true, 64, 1024},    {true, 512, 1024},   {true, 4096, 4096}, {true, 262144, 64}};

/* Of one shape; out: of the library, own: of ours. */
typedef struct work {
    shape of;
    ks_spec spec;
    float *in, *out, *own;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t from, to;
    int threads;
} work;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "bench_cpu_library: %s\n", what);
    exit(1);
}

/* --- ours --------------------------------------------------------------------------------------------------------- */

static ks_spec spec_of(const shape *of, int64_t rows)
{
    ks_spec spec;
    ks_error error;
    ks_spec_init(&spec, of->sum ? ks_op_find("reduce", 6) : ks_op_find("softmax", 7));
    spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {rows, of->cols}};
    spec.given = 1;
    must(spec.op->resolve(&spec, &error) == KS_OK, "a shape");
    return spec;
}

/* A thread's part. */
typedef struct part {
    const work *w;
    int64_t from, rows;
} part;

static void *run_part(void *argument)
{
    const part *p = argument;
    const shape *of = &p->w->of;
    const ks_spec spec = spec_of(of, p->rows);
    const void *in = p->w->in + p->from * of->cols;
    void *out = p->w->own + p->from * (of->sum ? 1 : of->cols), *scratch = malloc(ks_cpu_scratch_bytes(&spec) + 1);
    ks_cpu_reference(&spec, &in, &out, scratch);
    free(scratch);
    return NULL;
}

static void run_own(const work *w)
{
    pthread_t thread[THREADS_MAX];
    part parts[THREADS_MAX];
    const int threads = w->threads < w->of.rows ? w->threads : (int)w->of.rows;
    for (int i = 0; i < threads; i++) {
        const int64_t from = w->of.rows * i / threads, to = w->of.rows * (i + 1) / threads;
        parts[i] = (part){w, from, to - from};
        if (i > 0) must(pthread_create(&thread[i], NULL, run_part, &parts[i]) == 0, "a thread");
    }
    run_part(&parts[0]);
    for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
}

/* --- oneDNN's ------------------------------------------------------------------------------------------------------- */

static void make_primitive(work *w)
{
    const dnnl_dims_t in_dims = {w->of.rows, w->of.cols}, out_dims = {w->of.rows, w->of.sum ? 1 : w->of.cols};
    dnnl_memory_desc_t in, out;
    dnnl_primitive_desc_t desc;
    dnnl_softmax_v2_desc_t softmax;
    dnnl_reduction_desc_t sum;
    const void *op = w->of.sum ? (const void *)&sum : &softmax;
    must(!dnnl_memory_desc_init_by_tag(&in, 2, in_dims, dnnl_f32, dnnl_ab), "an input");
    must(!dnnl_memory_desc_init_by_tag(&out, 2, out_dims, dnnl_f32, dnnl_ab), "an output");
    must(!(w->of.sum ? dnnl_reduction_desc_init(&sum, dnnl_reduction_sum, &in, &out, 0, 0)
                     : dnnl_softmax_v2_forward_desc_init(&softmax, dnnl_forward_inference, dnnl_softmax_accurate, &in,
                                                         &out, 1)),
         "an operation");
    must(!dnnl_primitive_desc_create(&desc, op, NULL, w->engine, NULL), "a descriptor");
    must(!dnnl_primitive_create(&w->primitive, desc), "a primitive");
    dnnl_primitive_desc_destroy(desc);
    must(!dnnl_memory_create(&w->from, &in, w->engine, w->in), "memory");
    must(!dnnl_memory_create(&w->to, &out, w->engine, w->out), "memory");
}

static void run_library(const work *w)
{
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, w->from}, {DNNL_ARG_DST, w->to}};
    must(!dnnl_primitive_execute(w->primitive, w->stream, 2, arguments), "an execution");
    must(!dnnl_stream_wait(w->stream), "a wait");
}

/* Of Debian's oneDNN, which takes OpenMP's threads. */
static void set_threads(int threads)
{
    void (*set)(int) = NULL;
    *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    must(set != NULL, "oneDNN without OpenMP");
    set(threads);
}

/* --- rows ----------------------------------------------------------------------------------------------------------- */

static double best_us(void (*run)(const work *), work *w, int threads)
{
    int64_t best = INT64_MAX, spent = 0;
    w->threads = threads;
    set_threads(threads);
    for (int i = 0; i < REPEATS_MOST && (i < REPEATS_LEAST || spent < ENOUGH_NS); i++) {
        const int64_t begin = now_ns();
        run(w);
        const int64_t took = now_ns() - begin;
        spent += took;
        if (took < best) best = took;
    }
    return (double)best / 1e3;
}

static double error_of(const work *w, const float *got)
{
    double worst = 0;
    for (int64_t r = 0; r < w->of.rows; r++) {
        const float *x = w->in + r * w->of.cols;
        double sum = 0;
        for (int64_t c = 0; c < w->of.cols; c++) sum += w->of.sum ? (double)x[c] : exp((double)x[c]);
        for (int64_t c = 0; c < (w->of.sum ? 1 : w->of.cols); c++) {
            const double exact = w->of.sum ? sum : exp((double)x[c]) / sum;
            const double is = (double)got[w->of.sum ? r : r * w->of.cols + c];
            worst = fmax(worst, fabs(is - exact) / fabs(exact));
        }
    }
    return worst;
}

static void measure(work *w, int cores)
{
    const size_t count = (size_t)(w->of.rows * w->of.cols);
    w->in = malloc(count * sizeof(float));
    w->out = malloc(count * sizeof(float));
    w->own = malloc(count * sizeof(float));
    must(w->in && w->out && w->own, "memory");
    for (size_t i = 0; i < count; i++) w->in[i] = (float)(i * 7919 % 2003) / 400;
    const int64_t begin = now_ns();
    make_primitive(w);
    const double make_us = (double)(now_ns() - begin) / 1e3;
    const double own = best_us(run_own, w, 1), library = best_us(run_library, w, 1);
    const double own_all = best_us(run_own, w, cores), library_all = best_us(run_library, w, cores);
    printf("%-8s %7lld x %-5lld %9.1f %9.1f %6.2f %9.1f %9.1f %6.2f %9.0f %9.1e %9.1e\n", w->of.sum ? "sum" : "softmax",
           (long long)w->of.rows, (long long)w->of.cols, own, library, library / own, own_all, library_all,
           library_all / own_all, make_us, error_of(w, w->own), error_of(w, w->out));
    dnnl_primitive_destroy(w->primitive);
    dnnl_memory_destroy(w->from);
    dnnl_memory_destroy(w->to);
    free(w->in);
    free(w->out);
    free(w->own);
}

int main(void)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const int cores = online > THREADS_MAX ? (int)THREADS_MAX : (int)online;
    work w = {.threads = 1};
    must(!dnnl_engine_create(&w.engine, dnnl_cpu, 0), "an engine");
    must(!dnnl_stream_create(&w.stream, w.engine, dnnl_stream_default_flags), "a stream");
    printf("oneDNN %d.%d.%d, %d cores; us, ratio: oneDNN's time over ours\n", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
           DNNL_VERSION_PATCH, cores);
    printf("%-24s %9s %9s %6s %9s %9s %6s %9s %9s %9s\n", "FP32", "own 1", "oneDNN 1", "ratio", "own all", "oneDNN",
           "ratio", "make", "error own", "oneDNN");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        w.of = shapes[i];
        measure(&w, cores);
    }
    dnnl_stream_destroy(w.stream);
    dnnl_engine_destroy(w.engine);
    return 0;
}

#else

int main(void)
{
    printf("no oneDNN 2 in this build\n");
    return 77;
}

#endif
