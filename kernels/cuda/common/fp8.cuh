/* FP8 on the GPU: E4M3 and E5M2 (ops/numbers/fp8.h) to and from FP32. To FP8 it is rounded to nearest even; what is larger than the largest
 * value, infinity too, becomes that, and NaN stays NaN. */
#ifndef KS_FP8_CUH
#define KS_FP8_CUH

#include "cuda/common/warp.cuh"

/* FP8's bits are FP16's but for some of the mantissa's and, with E4M3, one of the exponent's, whose bias is 8 less. */
__device__ __forceinline__ float ks_of_e4m3(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7F;
    const float moved = __half2float(__ushort_as_half((unsigned short)((bits & 0x80) << 8 | magnitude << 7)));
    return magnitude == 0x7F ? __uint_as_float(0x7FC00000u) : moved * 256.0f;
}

__device__ __forceinline__ float ks_of_e5m2(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)(bits << 8)));
}

/* MANTISSA bits; saturates at MOST. Below the normal numbers an addition rounds: its sum's last bits are the code. */
template <int MANTISSA, int BIAS>
__device__ __forceinline__ uint32_t ks_to_fp8(float x, float most)
{
    const uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80, dropped = 23 - MANTISSA;
    const float size = __uint_as_float(bits & 0x7FFFFFFFu), magnitude = size > most ? most : size;
    const uint32_t code = __float_as_uint(magnitude);
    const float unit = __uint_as_float((uint32_t)(127 + 23 + 1 - BIAS - MANTISSA) << 23);
    const uint32_t small = __float_as_uint(magnitude + unit) - __float_as_uint(unit);
    const uint32_t rounded = code + ((1u << (dropped - 1)) - 1) + (code >> dropped & 1);
    const uint32_t normal = (rounded >> dropped) - ((uint32_t)(127 - BIAS) << MANTISSA);
    const uint32_t either = code < (uint32_t)(128 - BIAS) << 23 ? small : normal;
    return sign | (x != x ? (MANTISSA == 3 ? 0x7Fu : 0x7Eu) : either);
}

/* Two of the low 16 bits as FP16, the first one low; exact. */
__device__ __forceinline__ uint32_t ks_of_e4m3_pair(uint32_t two)
{
#if __CUDA_ARCH__ >= 890
    return ks_unpack_e4m3(two);
#else
    const __half low = __float2half_rn(ks_of_e4m3(two & 0xFF)), high = __float2half_rn(ks_of_e4m3(two >> 8 & 0xFF));
    return (uint32_t)__half_as_ushort(high) << 16 | __half_as_ushort(low);
#endif
}

/* Two at once, the first one low. Chips from 8.9 on have an instruction, whose NaN has no sign. */
__device__ __forceinline__ uint32_t ks_to_e4m3_pair(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    return ks_pack_e4m3(low, high);
#else
    return ks_to_fp8<3, 7>(low, 448.0f) | ks_to_fp8<3, 7>(high, 448.0f) << 8;
#endif
}

__device__ __forceinline__ uint32_t ks_to_e5m2_pair(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    return ks_pack_e5m2(low, high);
#else
    return ks_to_fp8<2, 15>(low, 57344.0f) | ks_to_fp8<2, 15>(high, 57344.0f) << 8;
#endif
}

#endif
