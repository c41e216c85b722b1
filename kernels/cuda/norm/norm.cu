/* Norm on the GPU: the launch of the kernel that plan.cu has chosen, and what is set once for a device. */
#include "cuda/norm/plan.h"

#include <string.h>

/* Of a kernel of rows, with what the system takes of each CTA. */
static const int STATIC_BYTES = 2 << 10;

cudaError_t norm_go(const norm_launch &go)
{
    switch (go.dtype) {
    case KS_FP16:
        return norm_go_fp16(go);
    case KS_BF16:
        return norm_go_bf16(go);
    case KS_FP32:
        return norm_go_fp32(go);
    default:
        return norm_go_fp64(go);
    }
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    norm_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    norm_launch go = norm_launch_of(chip, spec, c);
    go.site = site;
    go.bucket = bucket;
    go.stream = stream;
    const cudaError_t status = norm_go(go);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "norm: launch failed: %s", cudaGetErrorString(status));
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    const int bytes = (int)chip->shared_optin - STATIC_BYTES;
    cudaError_t status = norm_allow_fp16(bytes);
    if (status == cudaSuccess) status = norm_allow_bf16(bytes);
    if (status == cudaSuccess) status = norm_allow_fp32(bytes);
    if (status == cudaSuccess) status = norm_allow_fp64(bytes);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError();
    return ks_fail(error, KS_DEVICE, "norm: cannot set its kernels' shared memory: %s", cudaGetErrorString(status));
}

/* Kernels whose threads count from the row's first element on. */
static bool starts_anywhere(const ks_spec *, const void *algorithm)
{
    norm_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    return c.family == NORM_ROW_SHIFTED || c.family == NORM_ROW_ANY || c.family == NORM_PIECES;
}

extern const ks_cuda_op ks_norm_cuda;
const ks_cuda_op ks_norm_cuda = {.setup = cuda_setup,
                                 .plan = norm_plan,
                                 .launch = cuda_launch,
                                 .join = NULL,
                                 .candidates = NULL,
                                 .adopt = NULL,
                                 .revision = NULL,
                                 .starts_anywhere = starts_anywhere};
