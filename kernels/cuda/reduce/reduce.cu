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
    const int op = (int)spec->params[OP].i, bits = 8 * (int)ks_dtype_size(dtype);
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

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    reduce_launch l = {};
    memcpy(&l.algorithm, algorithm, sizeof l.algorithm);
    l.shape = reduce_shape_of(spec, &l.algorithm);
    l.rule = rule_of(spec, l.shape.depth);
    l.op = (int)spec->params[OP].i;
    l.site = site;
    l.bucket = bucket;
    l.stream = stream;
    cudaError_t status;
    switch (spec->in[0].dtype) {
    case KS_FP16:
        status = reduce_launch_half(l);
        break;
    case KS_BF16:
        status = reduce_launch_bfloat16(l);
        break;
    case KS_FP32:
        status = reduce_launch_float(l);
        break;
    case KS_FP64:
        status = reduce_launch_double(l);
        break;
    default:
        status = reduce_launch_integer(l, ks_dtype_size(spec->in[0].dtype));
        break;
    }
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
