/* topk on the GPU: the launch of the kernel that plan.cu has chosen, and what is set once for a device. */
#include "cuda/topk/plan.h"

#include <string.h>

/* Of a kernel of rows, with what the system takes of each CTA. */
static const int STATIC_BYTES = 4 << 10;

static cudaError_t go_by_datatype(const topk_launch &go)
{
    if (ks_dtype_size(go.dtype) == 8) return topk_go_wide(go);
    return ks_dtype_kind(go.dtype) == KS_KIND_FLOAT ? topk_go_floats(go) : topk_go_integers(go);
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    (void)chip;
    topk_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    topk_launch go = topk_launch_of(spec, c);
    go.site = site;
    go.bucket = bucket;
    go.stream = stream;
    const cudaError_t status = go_by_datatype(go);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "topk: launch failed: %s", cudaGetErrorString(status));
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    const int bytes = (int)chip->shared_optin - STATIC_BYTES;
    cudaError_t status = topk_allow_integers(bytes);
    if (status == cudaSuccess) status = topk_allow_floats(bytes);
    if (status == cudaSuccess) status = topk_allow_wide(bytes);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError();
    return ks_fail(error, KS_DEVICE, "topk: cannot set its kernels' shared memory: %s", cudaGetErrorString(status));
}

extern const ks_cuda_op ks_topk_cuda;
const ks_cuda_op ks_topk_cuda = {.setup = cuda_setup,
                                 .plan = topk_plan,
                                 .launch = cuda_launch,
                                 .join = NULL,
                                 .candidates = NULL,
                                 .adopt = NULL,
                                 .revision = NULL,
                                 .starts_anywhere = NULL};
