/* Reductions on the GPU: the launch of the kernel that plan.cu has chosen. */
#include "cuda/reduce/plan.h"

#include <string.h>

/* ks_cuda_setup_fn: no kernel here needs more shared memory than every CTA has. */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    (void)chip, (void)error;
    return KS_OK;
}

static reduce_rule rule_of(const ks_spec *spec, int64_t depth)
{
    const ks_dtype dtype = spec->in[0].dtype;
    const int op = ks_reduce_function(spec), bits = 8 * (int)ks_dtype_size(dtype);
    const uint64_t top = (uint64_t)1 << (bits - 1), all = top | (top - 1);
    const bool lowest = op == MIN || op == ARGMIN, real = ks_dtype_kind(dtype) == KS_KIND_FLOAT;
    uint64_t flip = ks_dtype_kind(dtype) == KS_KIND_INT ? top : 0;
    reduce_rule rule = {};
    if (!real) rule.bias = (double)flip;
    rule.excess = flip * (uint64_t)depth;
    if (lowest) flip ^= real ? top : all;
    for (int filled = bits; filled < 64; filled *= 2) flip |= flip << filled;
    rule.flip = reduce_words{(uint32_t)flip, (uint32_t)(flip >> 32)};
    rule.count = (double)depth;
    rule.mean = op == MEAN;
    return rule;
}

static reduce_extra extra_of(const ks_spec *spec)
{
    const int op = ks_reduce_function(spec);
    reduce_extra extra = {};
    extra.ddof = spec->params[DDOF].d;
    extra.power = spec->params[POWER].d;
    extra.root = op == STD;
    extra.all = op == ALL;
    return extra;
}

static cudaError_t launch_by_datatype(const reduce_launch &l)
{
    switch (l.dtype) {
    case KS_FP16:
        return reduce_launch_half(l);
    case KS_BF16:
        return reduce_launch_bfloat16(l);
    case KS_FP32:
        return reduce_launch_float(l);
    case KS_FP64:
        return reduce_launch_double(l);
    default:
        return reduce_launch_integer(l, ks_dtype_size(l.dtype));
    }
}

static cudaError_t launch(const reduce_launch &l)
{
    switch (l.op) {
    case VAR:
    case STD:
        return reduce_launch_moments(l);
    case SUMSQ:
    case L1NORM:
    case LOGSUM:
    case NORM:
    case NORM_MOST:
    case NORM_LEAST:
        return reduce_launch_norms(l);
    case ANY:
    case ALL:
    case COUNT_NONZERO:
    case NORM_ZERO:
        return reduce_launch_counts(l);
    default:
        return launch_by_datatype(l);
    }
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    reduce_launch l = {};
    memcpy(&l.algorithm, algorithm, sizeof l.algorithm);
    l.shape = reduce_shape_of(spec, &l.algorithm);
    l.rule = rule_of(spec, l.shape.depth);
    l.extra = extra_of(spec);
    l.op = ks_reduce_function(spec);
    l.dtype = spec->in[0].dtype;
    l.site = site;
    l.bucket = bucket;
    l.stream = stream;
    const cudaError_t status = launch(l);
    if (status == cudaSuccess) return KS_OK;
    return ks_fail(error, KS_DEVICE, "reduce: launch failed: %s", cudaGetErrorString(status));
}

extern const ks_cuda_op ks_reduce_cuda;
const ks_cuda_op ks_reduce_cuda = {.setup = cuda_setup,
                                   .plan = reduce_plan,
                                   .launch = cuda_launch,
                                   .join = NULL,
                                   .candidates = NULL,
                                   .adopt = NULL,
                                   .revision = NULL};
