/* histogram on the GPU: the launches of what plan.cu has chosen, and what is set once for a device. */
#include "cuda/histogram/plan.h"

#include <string.h>

/* Of a kernel's shared memory, what the system takes. */
static const int STATIC_BYTES = 1 << 10;

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    (void)chip;
    histogram_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    histogram_launch go = histogram_launch_of(spec, c);
    go.site = site;
    go.bucket = bucket;
    go.stream = stream;
    const cudaError_t status = histogram_count(go);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "histogram: launch failed: %s", cudaGetErrorString(status));
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    const cudaError_t status = histogram_allow((int)chip->shared_optin - STATIC_BYTES);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError();
    return ks_fail(error, KS_DEVICE, "histogram: cannot set its kernels' shared memory: %s",
                   cudaGetErrorString(status));
}

extern const ks_cuda_op ks_histogram_cuda;
const ks_cuda_op ks_histogram_cuda = {.setup = cuda_setup,
                                      .plan = histogram_plan,
                                      .launch = cuda_launch,
                                      .join = NULL,
                                      .candidates = NULL,
                                      .adopt = NULL,
                                      .revision = NULL,
                                      .starts_anywhere = NULL};
