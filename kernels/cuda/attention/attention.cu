/* attention on the GPU: the launches that plan.cu has chosen, and what is set once for a device. */
#include "cuda/attention/plan.h"

#include <string.h>

static cudaError_t go_by_datatype(const attention_launch &go)
{
    switch (go.a.s.dtype) {
    case KS_FP16:
        return attention_go_fp16(go);
    case KS_BF16:
        return attention_go_bf16(go);
    default:
        return attention_go_fp32(go);
    }
}

static cudaError_t merge_by_datatype(const attention_launch &go)
{
    switch (go.a.s.dtype) {
    case KS_FP16:
        return attention_merge_fp16(go);
    case KS_BF16:
        return attention_merge_bf16(go);
    default:
        return attention_merge_fp32(go);
    }
}

/* Some units: one kernel, or where keys are split two. */
static cudaError_t go_units(attention_launch &go, int64_t first, int64_t all)
{
    attention_shape &a = go.a;
    const bool split = a.splits > 1;
    a.unit = first;
    a.units = first + go.c.units < all ? go.c.units : all - first;
    a.starts = first == 0;
    const bool last = first + go.c.units >= all;
    a.ends = last && !split;
    const cudaError_t status = go_by_datatype(go);
    if (status != cudaSuccess || !split || ks_noting) return status;
    a.starts = false;
    a.ends = last;
    return merge_by_datatype(go);
}

/* ks_cuda_launch_fn. As many units at a time as the workspace has room for. */
static ks_status cuda_launch(const ks_chip *, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    attention_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    attention_launch go = attention_launch_of(spec, c);
    go.site = site;
    go.bucket = bucket;
    go.stream = stream;
    const int64_t all = go.a.s.batches * go.a.s.kv_heads;
    cudaError_t status = cudaSuccess;
    int64_t first = 0;
    do {
        status = go_units(go, first, all);
        first += c.units;
    } while (status == cudaSuccess && first < all && !ks_noting);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "attention: launch failed: %s", cudaGetErrorString(status));
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    const int bytes = (int)chip->shared_optin;
    cudaError_t status = attention_allow_fp32(bytes);
    if (status == cudaSuccess) status = attention_allow_fp16(bytes);
    if (status == cudaSuccess) status = attention_allow_bf16(bytes);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError();
    return ks_fail(error, KS_DEVICE, "attention: cannot set its kernels' shared memory: %s",
                   cudaGetErrorString(status));
}

extern const ks_cuda_op ks_attention_cuda;
const ks_cuda_op ks_attention_cuda = {.setup = cuda_setup,
                                      .plan = attention_plan,
                                      .launch = cuda_launch,
                                      .join = NULL,
                                      .candidates = NULL,
                                      .adopt = NULL,
                                      .revision = NULL};
