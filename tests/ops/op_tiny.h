/* An operation for tests of what stands above the operations: out = in * 2 + add, after spinning for spin_us, so that a
 * test chooses how long work lasts and whether a CPU lane runs it inline; and while tiny_held, for as long. */
#ifndef KS_OP_TINY_H
#define KS_OP_TINY_H
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "cpu/reference.h"

enum { TINY_ADD, TINY_SPIN_US };

static _Atomic bool tiny_held;

static ks_status tiny_resolve(ks_spec *spec, ks_error *error)
{
    if (spec->in[0].dtype != KS_FP32) return ks_fail(error, KS_DATATYPE, "INPUT0 must be FP32");
    const ks_status status = ks_tensor_measure(&spec->in[0], "INPUT0", error);
    spec->out[0] = spec->in[0];
    spec->out[0].offset = 0;
    spec->outputs = 1;
    spec->flops = 2.0 * (double)ks_tensor_count(&spec->in[0]) + 2000.0 * (double)spec->params[TINY_SPIN_US].i;
    return status;
}

static inline int64_t tiny_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void tiny_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    const int64_t until_ns = tiny_now_ns() + 1000 * spec->params[TINY_SPIN_US].i;
    while (spec->params[TINY_SPIN_US].i && (tiny_now_ns() < until_ns || tiny_held)) {
    }
    const float *x = in[0];
    float *y = scratch; /* through the scratch, so that a backend that gives none is found out */
    const int64_t count = ks_tensor_count(&spec->in[0]);
    for (int64_t i = 0; i < count; i++) y[i] = x[i] * 2 + (float)spec->params[TINY_ADD].i;
    memcpy(out[0], y, spec->out[0].size_bytes);
}

static size_t tiny_scratch(const ks_spec *spec)
{
    return spec->out[0].size_bytes;
}

static const ks_cpu_op tiny_cpu = {.reference = tiny_reference, .scratch_bytes = tiny_scratch};

static void tiny_sample(ks_spec *spec)
{
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 5}};
}

static const ks_op op_tiny = {
    .name = "tiny",
    .inputs_count = 1,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = KS_DTYPE_BIT(KS_FP32), .rank_max = KS_RANK_MAX}},
    .in_rank = 1,
    .out_rank = 1,
    .params_count = 2,
    .params = {{.name = "add", .kind = KS_PARAM_INT}, {.name = "spin_us", .kind = KS_PARAM_INT}},
    .resolve = tiny_resolve,
    .sample = tiny_sample,
};

/* A resolved spec of `count` numbers. */
static ks_spec tiny_spec(int64_t count, int64_t add, int64_t spin_us)
{
    ks_spec spec;
    ks_cpu_add_op(&op_tiny, &tiny_cpu);
    ks_spec_init(&spec, &op_tiny);
    spec.params[TINY_ADD].i = add;
    spec.params[TINY_SPIN_US].i = spin_us;
    spec.in[0].dtype = KS_FP32;
    spec.in[0].rank = 1;
    spec.in[0].dims[0] = count;
    ks_error error;
    (void)op_tiny.resolve(&spec, &error);
    ks_spec_layout(&spec);
    return spec;
}
#endif
