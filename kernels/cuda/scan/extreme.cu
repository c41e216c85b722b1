/* scan's max and min: instances. */
#include "cuda/scan/launch.cuh"

cudaError_t scan_go_extreme(const scan_launch &go)
{
    if (ks_dtype_kind(go.dtype) == KS_KIND_FLOAT) return scan_go_floats<scan_extreme>(go);
    return go.s.rule.bytes == 8 ? scan_go_as<scan_extreme<scan_ordered<true>>>(go)
                                : scan_go_as<scan_extreme<scan_ordered<false>>>(go);
}
