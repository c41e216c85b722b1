/* scan's prod: instances. */
#include "cuda/scan/launch.cuh"

cudaError_t scan_go_prod(const scan_launch &go)
{
    return ks_dtype_kind(go.dtype) == KS_KIND_FLOAT ? scan_go_floats<scan_prod>(go)
                                                    : scan_go_as<scan_prod<scan_integers>>(go);
}
