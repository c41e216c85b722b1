/* scan's logsumexp: instances. */
#include "cuda/scan/launch.cuh"

cudaError_t scan_go_logsumexp(const scan_launch &go)
{
    switch (go.dtype) {
    case KS_FP16:
        return scan_go_as<scan_logsumexp_floats<scan_floats<__half>>>(go);
    case KS_BF16:
        return scan_go_as<scan_logsumexp_floats<scan_floats<__nv_bfloat16>>>(go);
    case KS_FP32:
        return scan_go_as<scan_logsumexp_floats<scan_floats<float>>>(go);
    case KS_FP64:
        return scan_go_as<scan_logsumexp<scan_floats<double>>>(go);
    default:
        return scan_go_as<scan_logsumexp<scan_numbers>>(go);
    }
}
