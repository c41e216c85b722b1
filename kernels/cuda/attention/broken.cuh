/* Values that are not finite: a key that a row leaves out has a weight of 0, and 0 times such a value would be NaN. They are found, taken for
 * 0, and what they are is added to the rows that take them. */
#ifndef KS_ATTENTION_BROKEN_CUH
#define KS_ATTENTION_BROKEN_CUH

#include "cuda/common/ptx_mma.cuh"

/* Halves whose exponent is all ones, as all ones. */
template <class T>
__device__ __forceinline__ uint32_t attention_broken(uint32_t two);
template <>
__device__ __forceinline__ uint32_t attention_broken<__half>(uint32_t two)
{
    return ((two & 0x7C00u) == 0x7C00u ? 0xFFFFu : 0) | ((two & 0x7C000000u) == 0x7C000000u ? 0xFFFF0000u : 0);
}
template <>
__device__ __forceinline__ uint32_t attention_broken<__nv_bfloat16>(uint32_t two)
{
    return ((two & 0x7F80u) == 0x7F80u ? 0xFFFFu : 0) | ((two & 0x7F800000u) == 0x7F800000u ? 0xFFFF0000u : 0);
}

/* Those that take a value that is not finite, by a product of ones: to each what it adds. kind: 0 NaN, 1 infinity, 2 -infinity. */
template <class T>
__device__ __forceinline__ void attention_taint(const uint32_t (&takes)[4], const uint32_t (&b)[4], float *sums,
                                                int kind)
{
    const uint32_t one = ks_round_two<T>(1.0f, 1.0f), infinite = ks_round_two<T>(INFINITY, INFINITY);
    const float what = kind == 0 ? NAN : kind == 1 ? INFINITY : -INFINITY;
    uint32_t hits[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t broken = attention_broken<T>(b[i]), rest = (b[i] ^ infinite) & broken; /* 0: +inf, sign: -inf */
        uint32_t plus = 0, minus = 0;
#pragma unroll
        for (int shift = 0; shift < 32; shift += 16) {
            const uint32_t half = 0xFFFFu << shift;
            if (!(broken & half)) continue;
            if ((rest & half) == 0) plus |= half;
            if ((rest & half) == 0x8000u << shift) minus |= half;
        }
        hits[i] = one & (kind == 1 ? plus : kind == 2 ? minus : broken & ~plus & ~minus);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float count[4] = {0, 0, 0, 0};
        mm_mma(T(), count, takes, hits[2 * i], hits[2 * i + 1]);
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (count[e] > 0) sums[i * 4 + e] += what;
    }
}

#endif
