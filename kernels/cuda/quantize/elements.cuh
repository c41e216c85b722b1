/* Elements of quantize and dequantize: magnitudes, scales, quotients, codes of 8 bits, and which scale an element has. */
#ifndef KS_QUANTIZE_ELEMENTS_CUH
#define KS_QUANTIZE_ELEMENTS_CUH

#include "cuda/common/fp8.cuh"
#include "cuda/quantize/plan.h"

/* --- magnitudes and scales ------------------------------------------------------------------------------------------- */

/* 0 for what is not finite. */
__device__ __forceinline__ float quantize_magnitude(float x)
{
    const uint32_t bits = __float_as_uint(x) & 0x7FFFFFFFu;
    return __uint_as_float(bits < 0x7F800000u ? bits : 0);
}

/* Of a vector's elements number from to end - 1. */
template <class T>
__device__ __forceinline__ float quantize_largest(const ks_vector<T> &x, int64_t from, int64_t end, float most)
{
#pragma unroll
    for (int e = 0; e < ks_vector<T>::length; e++)
        if (e >= from && e < end) most = fmaxf(most, quantize_magnitude(ks_math(x.element[e])));
    return most;
}

struct quantize_maximum {
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return fmaxf(a, b);
    }
};

__device__ __forceinline__ float quantize_scale(float largest, float most)
{
    return largest == 0 ? 1.0f : fmaxf(largest / most, KS_QUANTIZE_SCALE_LEAST);
}

/* x / scale as IEEE 754 rounds it, for many x: by the rounded reciprocal and two exact remainders, of which the second one rounds
 * rightly (Markstein 1990), where neither can be subnormal. What is far beyond the largest value, infinite or NaN stays as it is. */
struct quantize_quotient {
    float scale, inverse;
    bool quick;

    __device__ __forceinline__ quantize_quotient(float of)
        : scale(of), inverse(0), quick(of >= 0x1p-60f && of <= 0x1p60f)
    {
        if (quick) inverse = 1.0f / of;
    }
    __device__ __forceinline__ float operator()(float x) const
    {
        if (!quick) return x / scale;
        const float near = x * inverse;
        const float nearer = fmaf(fmaf(-near, scale, x), inverse, near);
        const float exact = fmaf(fmaf(-nearer, scale, x), inverse, nearer);
        return copysignf(fabsf(near) < 0x1p20f ? exact : near, x);
    }
};

/* --- codes ----------------------------------------------------------------------------------------------------------- */

/* To nearest even, saturating; NaN is 0. An addition rounds: the code is its sum's last bits. */
__device__ __forceinline__ uint32_t quantize_to_int8(float x)
{
    const float bounded = fminf(fmaxf(x, -128.0f), 127.0f);
    return __float_as_uint((x == x ? bounded : 0.0f) + 0x1.8p23f) & 0xFF;
}

/* E codes, 4 in a word, the first one low. The datatype is the same for all threads. */
template <int E>
__device__ __forceinline__ void quantize_encode(const float (&x)[E], int to, uint32_t (&words)[E / 4])
{
#pragma unroll
    for (int w = 0; w < E / 4; w++) {
        const float *const of = x + 4 * w;
        if (to == KS_INT8)
            words[w] = quantize_to_int8(of[0]) | quantize_to_int8(of[1]) << 8 | quantize_to_int8(of[2]) << 16 |
                       quantize_to_int8(of[3]) << 24;
        else if (to == KS_FP8E4M3)
            words[w] = ks_to_e4m3_pair(of[0], of[1]) | ks_to_e4m3_pair(of[2], of[3]) << 16;
        else
            words[w] = ks_to_e5m2_pair(of[0], of[1]) | ks_to_e5m2_pair(of[2], of[3]) << 16;
    }
}

template <int E>
__device__ __forceinline__ void quantize_decode(const uint32_t (&words)[E / 4], int from, float (&x)[E])
{
#pragma unroll
    for (int e = 0; e < E; e++) {
        const uint32_t code = words[e / 4] >> 8 * (e % 4) & 0xFF;
        x[e] = from == KS_INT8 ? (float)(int8_t)code : from == KS_FP8E4M3 ? ks_of_e4m3(code) : ks_of_e5m2(code);
    }
}

/* Those codes of a vector that are elements 0 to length - 1; at: the element that code 0 is. out: code 0's place, a multiple of E. */
template <int E>
__device__ __forceinline__ void quantize_store(unsigned char *out, const uint32_t (&words)[E / 4], int64_t at,
                                               int64_t length)
{
    if (at >= 0 && at + E <= length) {
        if constexpr (E == 8)
            *(uint2 *)(void *)out = {words[0], words[1]};
        else
            *(uint32_t *)(void *)out = words[0];
        return;
    }
#pragma unroll
    for (int e = 0; e < E; e++)
        if (at + e >= 0 && at + e < length) out[e] = (unsigned char)(words[e / 4] >> 8 * (e % 4));
}

/* --- which scale ----------------------------------------------------------------------------------------------------- */

/* Of the E elements from `first` on, a multiple of E. INDEX is none of those with one scale for a vector. */
template <int INDEX, int E>
__device__ __forceinline__ void quantize_scales_of(const quantize_shape &s, const float *scales, int64_t first,
                                                   float (&of)[E])
{
    int64_t row = s.by_columns.of(first), column = first - row * s.columns;
    if constexpr (INDEX == QUANTIZE_BY_COLUMN) {
#pragma unroll
        for (int e = 0; e < E; e += 4) {
            const float4 four = *(const float4 *)(const void *)(scales + column + e);
            of[e] = four.x, of[e + 1] = four.y, of[e + 2] = four.z, of[e + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int e = 0; e < E; e++) {
            of[e] = scales[INDEX == QUANTIZE_BY_ANY_ROW ? min(row, s.rows - 1) : column];
            if (++column < s.columns) continue;
            column = 0;
            row++;
        }
    }
}

/* The one scale of a vector. */
template <int INDEX>
__device__ __forceinline__ float quantize_scale_of(const quantize_shape &s, const float *scales, int64_t first)
{
    return scales[INDEX == QUANTIZE_BY_ROW ? s.by_columns.of(first) : 0];
}

/* Scales that were given: finite, above 0. OUTPUT1, where there is one, has them as well. */
__device__ __forceinline__ void quantize_take_scales(ks_site site, const quantize_shape &s, const float *scales,
                                                     float *copy)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < s.scales;
         i += (int64_t)gridDim.x * blockDim.x) {
        const float scale = scales[i];
        if (!(scale > 0 && scale < INFINITY)) ks_refuse(site, KS_QUANTIZE_SCALE, i);
        if (copy) copy[i] = scale;
    }
}

#endif
