/* Elements of any datatype as bits in 64-bit words, to and from what is computed in: float (FP8 to FP32), double (FP64), uint64_t (integers
 * and BOOL, zero-extended). To the output's datatype each value is rounded once; ops/map.c says how. The datatype is the same for all
 * threads. */
#ifndef KS_MAP_CONVERT_CUH
#define KS_MAP_CONVERT_CUH

#include "cuda/common/fp8.cuh"
#include "cuda/map/functions.cuh"

/* --- one element ---------------------------------------------------------------------------------------------------------- */

/* Of FP16 and BF16. */
template <class T>
__device__ __forceinline__ uint32_t map_bits_of(T x)
{
    uint16_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

__device__ __forceinline__ float map_odd_float(float x)
{
    return x;
}

/* A float whose last bit says whether it is exact, so that a coarser rounding goes the right way. */
__device__ __forceinline__ float map_odd_float(double x)
{
    const float near = (float)x;
    const double back = (double)near;
    uint32_t bits = __float_as_uint(near);
    if (back == x || x != x) return near;
    const double size = x < 0 ? -x : x, got = back < 0 ? -back : back;
    return __uint_as_float((got > size ? bits - 1 : bits) | 1u);
}

/* Likewise, of an integer. */
__device__ __forceinline__ float map_odd_float(uint64_t value, bool negative)
{
    const uint64_t size = negative ? 0 - value : value;
    const int shift = max(40 - __clzll((long long)(size | 1)), 0);
    const uint64_t kept = size >> shift, lost = size - (kept << shift);
    const float odd = (float)(uint32_t)(kept | (lost != 0)) * __uint_as_float((uint32_t)(127 + shift) << 23);
    return negative ? -odd : odd;
}

/* --- from memory to what is computed ----------------------------------------------------------------------------------------- */

template <int N>
__device__ __forceinline__ void map_widen(const uint64_t (&bits)[N], int dtype, float (&x)[N])
{
#define MAP_EACH(expression)                                                                                           \
    _Pragma("unroll") for (int i = 0; i < N; i++) x[i] = (expression);                                                 \
    break
    switch (dtype) {
    case KS_FP8E4M3:
        MAP_EACH(ks_of_e4m3((uint32_t)bits[i]));
    case KS_FP8E5M2:
        MAP_EACH(ks_of_e5m2((uint32_t)bits[i]));
    case KS_FP16:
        MAP_EACH(ks_math_of<__half>((uint32_t)bits[i], 0));
    case KS_BF16:
        MAP_EACH(ks_math_of<__nv_bfloat16>((uint32_t)bits[i], 0));
    default:
        MAP_EACH(__uint_as_float((uint32_t)bits[i]));
    }
}

/* An integer's value, sign-extended. */
__device__ __forceinline__ uint64_t map_extend(uint64_t bits, uint64_t flip)
{
    return (bits ^ flip) - flip;
}

/* Integers, too, for functions of real numbers. */
template <int N>
__device__ __forceinline__ void map_widen(const uint64_t (&bits)[N], int dtype, double (&x)[N])
{
    switch (dtype) {
    case KS_FP64:
        MAP_EACH(__longlong_as_double((long long)bits[i]));
    case KS_INT8:
        MAP_EACH((double)(int8_t)bits[i]);
    case KS_INT16:
        MAP_EACH((double)(int16_t)bits[i]);
    case KS_INT32:
        MAP_EACH((double)(int32_t)bits[i]);
    case KS_INT64:
        MAP_EACH((double)(int64_t)bits[i]);
    default:
        MAP_EACH((double)bits[i]);
    }
}

template <int N>
__device__ __forceinline__ void map_widen(const uint64_t (&bits)[N], int dtype, uint64_t (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = dtype == KS_BOOL ? bits[i] != 0 : bits[i];
}
#undef MAP_EACH

/* --- and back ---------------------------------------------------------------------------------------------------------------- */

#define MAP_EACH(expression)                                                                                           \
    _Pragma("unroll") for (int i = 0; i < N; i++)                                                                      \
    {                                                                                                                  \
        const auto v = x[i];                                                                                           \
        bits[i] = (expression);                                                                                        \
    }                                                                                                                  \
    break

/* Toward zero, saturating: to integers below 2^value_bits. */
template <class M>
__device__ __forceinline__ uint64_t map_truncate(M x, int value_bits, bool has_sign)
{
    const M size = map_abs(x), end = (M)(value_bits == 64 ? 0x1p64 : (double)((uint64_t)1 << value_bits));
    const uint64_t most = ((uint64_t)1 << (value_bits - 1)) * 2 - 1; /* 64 bits: all ones */
    if (x != x) return 0;
    if (x < (M)0) return !has_sign ? 0 : size >= end ? 0 - most - 1 : 0 - (uint64_t)size;
    return size >= end ? most : (uint64_t)size;
}

/* Of a float or a double. */
template <int N, class M>
__device__ __forceinline__ void map_narrow_real(const M (&x)[N], int dtype, uint64_t (&bits)[N])
{
    switch (dtype) {
    case KS_BOOL:
        MAP_EACH(v != (M)0);
    case KS_FP16:
        MAP_EACH(map_bits_of(ks_round<__half>(v)));
    case KS_BF16:
        MAP_EACH(map_bits_of(ks_round<__nv_bfloat16>(v)));
    case KS_FP32:
        MAP_EACH(__float_as_uint((float)v));
    case KS_FP64:
        MAP_EACH((uint64_t)__double_as_longlong((double)v));
    case KS_FP8E4M3:
        MAP_EACH((ks_to_fp8<3, 7>(map_odd_float(v), 448.0f)));
    case KS_FP8E5M2:
        MAP_EACH((ks_to_fp8<2, 15>(map_odd_float(v), 57344.0f)));
    default: {
        const bool has_sign = dtype >= KS_INT8;
        const int width = 8 << (dtype - (has_sign ? KS_INT8 : KS_UINT8));
#pragma unroll
        for (int i = 0; i < N; i++) bits[i] = map_truncate(x[i], width - has_sign, has_sign);
    }
    }
}

template <int N>
__device__ __forceinline__ void map_narrow(const float (&x)[N], int, uint64_t, int to, uint64_t (&bits)[N])
{
    map_narrow_real(x, to, bits);
}
template <int N>
__device__ __forceinline__ void map_narrow(const double (&x)[N], int, uint64_t, int to, uint64_t (&bits)[N])
{
    map_narrow_real(x, to, bits);
}

/* Of integers of the datatype `from`, whose flip is given; what goes beyond that is cut off. */
template <int N>
__device__ __forceinline__ void map_narrow(const uint64_t (&whole)[N], int from, uint64_t flip, int to,
                                           uint64_t (&bits)[N])
{
    const int unused = from == KS_BOOL ? 0 : 64 - (8 << (from - (from >= KS_INT8 ? KS_INT8 : KS_UINT8)));
    uint64_t x[N];
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = map_extend(whole[i] << unused >> unused, flip);
    const bool has_sign = flip != 0;
    switch (to) {
    case KS_BOOL:
        MAP_EACH(v != 0);
    case KS_FP32:
        MAP_EACH(__float_as_uint(has_sign ? (float)(int64_t)v : (float)v));
    case KS_FP64:
        MAP_EACH((uint64_t)__double_as_longlong(has_sign ? (double)(int64_t)v : (double)v));
    case KS_FP16:
        MAP_EACH(map_bits_of(ks_round<__half>(map_odd_float(v, has_sign && (int64_t)v < 0))));
    case KS_BF16:
        MAP_EACH(map_bits_of(ks_round<__nv_bfloat16>(map_odd_float(v, has_sign && (int64_t)v < 0))));
    case KS_FP8E4M3:
        MAP_EACH((ks_to_fp8<3, 7>(map_odd_float(v, has_sign && (int64_t)v < 0), 448.0f)));
    case KS_FP8E5M2:
        MAP_EACH((ks_to_fp8<2, 15>(map_odd_float(v, has_sign && (int64_t)v < 0), 57344.0f)));
    default:
        MAP_EACH(v);
    }
}

#undef MAP_EACH

#endif
