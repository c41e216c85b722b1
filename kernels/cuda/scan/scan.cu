/* scan on the GPU: the launch of the kernel that plan.cu has chosen. */
#include "cuda/scan/plan.h"

#include <string.h>

static cudaError_t go_by_op(const scan_launch &go)
{
    switch (go.op) {
    case KS_SCAN_SUM:
        return scan_go_sum(go);
    case KS_SCAN_PROD:
        return scan_go_prod(go);
    case KS_SCAN_LOGSUMEXP:
        return scan_go_logsumexp(go);
    default:
        return scan_go_extreme(go);
    }
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    (void)chip;
    scan_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    scan_launch go = scan_launch_of(spec, c);
    go.site = site;
    go.bucket = bucket;
    go.stream = stream;
    const cudaError_t status = go_by_op(go);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "scan: launch failed: %s", cudaGetErrorString(status));
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    (void)chip;
    (void)error;
    return KS_OK;
}

extern const ks_cuda_op ks_scan_cuda;
const ks_cuda_op ks_scan_cuda = {.setup = cuda_setup,
                                 .plan = scan_plan,
                                 .launch = cuda_launch,
                                 .join = NULL,
                                 .candidates = NULL,
                                 .adopt = NULL,
                                 .revision = NULL,
                                 .starts_anywhere = NULL};
