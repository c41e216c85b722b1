/* Vectors of rows that start anywhere, cut out of those that memory is read by. */
#ifndef KS_CUDA_CUT_CUH
#define KS_CUDA_CUT_CUH

#include <stdint.h>

/* The 16 bytes that begin `by` bytes behind the first of two neighbours. by: below 16, a multiple of ELEMENT, 2 or 4 bytes. */
template <int ELEMENT>
__device__ __forceinline__ uint4 ks_cut(uint4 low, uint4 high, unsigned by)
{
    uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; i++) w[i] = by & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++) w[i] = by & 4 ? w[i + 1] : w[i];
    if (ELEMENT == 2) {
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = __funnelshift_r(w[i], w[i + 1], (by & 2) * 8);
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

#endif
