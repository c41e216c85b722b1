/* Elements of quantize and dequantize: magnitudes, scales, codes of 8 bits, and which scale an element has. */
#ifndef KS_QUANTIZE_ELEMENTS_CUH
#define KS_QUANTIZE_ELEMENTS_CUH

#include "cuda/common/fp8.cuh"
#include "cuda/quantize/plan.h"
#include "ops/spec/places.h"

/* --- magnitudes and scales ------------------------------------------------------------------------------------------- */

/* 0 for what is not finite. */
__device__ __forceinline__ float quantize_magnitude(float x)
{
    const uint32_t bits = __float_as_uint(x) & 0x7FFFFFFFu;
    return __uint_as_float(bits < 0x7F800000u ? bits : 0);
}

/* The largest magnitude of a vector, as its bits in the lower half of a word or in all of it: infinity and NaN are the largest of all. */
__device__ __forceinline__ uint32_t quantize_top(const ks_vector<float> &x)
{
    uint32_t most = 0;
#pragma unroll
    for (int e = 0; e < 4; e++) most = max(most, __float_as_uint(x.element[e]) & 0x7FFFFFFFu);
    return most;
}

template <class T>
__device__ __forceinline__ uint32_t quantize_top(const ks_vector<T> &x)
{
    const uint32_t first = __vmaxu2(x.raw.x & 0x7FFF7FFFu, x.raw.y & 0x7FFF7FFFu);
    const uint32_t second = __vmaxu2(x.raw.z & 0x7FFF7FFFu, x.raw.w & 0x7FFF7FFFu), both = __vmaxu2(first, second);
    return max(both & 0xFFFFu, both >> 16);
}

__device__ __forceinline__ float quantize_of_top(uint32_t bits, float)
{
    return __uint_as_float(bits);
}
template <class T>
__device__ __forceinline__ float quantize_of_top(uint32_t bits, T)
{
    return ks_math_of<T>(bits, 0);
}

/* Of a vector's elements number from to end - 1; whole vectors of finite numbers by their bits. */
template <class T>
__device__ __forceinline__ float quantize_largest(const ks_vector<T> &x, int64_t from, int64_t end, float most)
{
    if (from <= 0 && end >= ks_vector<T>::length) {
        const float top = quantize_of_top(quantize_top(x), T());
        if (top < INFINITY) return fmaxf(most, top);
    }
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
    return largest == 0 ? 1.0f : fmaxf(largest / most, KS_SCALE_LEAST);
}

/* --- codes ----------------------------------------------------------------------------------------------------------- */

/* E codes, 4 in a word, the first one low. The datatype is the same for all threads. */
template <int E>
__device__ __forceinline__ void quantize_encode(const float (&x)[E], int to, uint32_t (&words)[E / 4])
{
#pragma unroll
    for (int w = 0; w < E / 4; w++) {
        const float *const of = x + 4 * w;
        if (to == KS_INT8)
            words[w] = ks_to_int8(of[0]) | ks_to_int8(of[1]) << 8 | ks_to_int8(of[2]) << 16 | ks_to_int8(of[3]) << 24;
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

/* Scales that were given. OUTPUT1, where there is one, has them as well. */
__device__ __forceinline__ void quantize_take_scales(ks_site site, const quantize_shape &s, const float *scales,
                                                     float *copy)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < s.scales;
         i += (int64_t)gridDim.x * blockDim.x) {
        const float scale = scales[i];
        if (!(scale >= KS_SCALE_LEAST && scale < INFINITY)) ks_refuse(site, KS_QUANTIZE_SCALE, i);
        if (copy) copy[i] = scale;
    }
}

#endif
