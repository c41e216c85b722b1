/* scan's sum: instances. */
#include "cuda/scan/launch.cuh"

cudaError_t scan_go_sum(const scan_launch &go)
{
    return ks_dtype_kind(go.dtype) == KS_KIND_FLOAT ? scan_go_floats<scan_sum>(go)
                                                    : scan_go_as<scan_sum<scan_integers>>(go);
}
