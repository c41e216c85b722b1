/* scan's logsumexp: instances. */
#include "cuda/scan/launch.cuh"

cudaError_t scan_go_logsumexp(const scan_launch &go)
{
    return ks_dtype_kind(go.dtype) == KS_KIND_FLOAT ? scan_go_floats<scan_logsumexp>(go)
                                                    : scan_go_as<scan_logsumexp<scan_numbers>>(go);
}
