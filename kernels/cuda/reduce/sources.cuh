/* Sources of elements: T in memory, W in registers.
 *
 * order: of a word of memory, before elements are got from it. */
#ifndef KS_REDUCE_SOURCES_CUH
#define KS_REDUCE_SOURCES_CUH

#include "cuda/reduce/shape.cuh"
#include "cuda/common/warp.cuh"

#include <float.h>

template <class T_>
struct reduce_floats {
    typedef T_ T, Out;
    typedef typename ks_element<T>::math W, Leaf;
    typedef double Trunk;
    static constexpr bool INTEGERS = false, VECTORS = true;
    static __device__ __forceinline__ uint32_t order(uint32_t word, uint32_t flip)
    {
        return word ^ flip;
    }
    static __device__ __forceinline__ W get(T x, const reduce_rule &)
    {
        return ks_math(x);
    }
    static __device__ __forceinline__ T put(W x)
    {
        return ks_round<T, W>(x);
    }
    static __device__ __forceinline__ Out result(double value)
    {
        return ks_round<T, double>(value);
    }
};

/* Integers as unsigned ones, by a flip of their sign bits: their order is the same, their sum has an excess that is known.
 * A Leaf holds the sum of 64. */
template <class T_, class W_, class Leaf_>
struct reduce_unsigned {
    typedef T_ T;
    typedef W_ W;
    typedef Leaf_ Leaf;
    typedef uint64_t Trunk;
    typedef int64_t Out; /* a mean's: the bits of its FP64 */
    static constexpr bool INTEGERS = true, VECTORS = true;
    static __device__ __forceinline__ uint32_t order(uint32_t word, uint32_t flip)
    {
        return word ^ flip;
    }
    static __device__ __forceinline__ W get(T x, const reduce_rule &)
    {
        return x;
    }
    static __device__ __forceinline__ T put(W x)
    {
        return (T)x;
    }
};

/* The same integers as numbers: FP64, or 64 bits that wrap. */
template <class T_, class Number>
struct reduce_numbers {
    typedef T_ T;
    typedef Number W, Leaf, Trunk, Out;
    static constexpr bool INTEGERS = true, VECTORS = false; /* taken one by one */
    static __device__ __forceinline__ uint32_t order(uint32_t word, uint32_t flip)
    {
        return word ^ flip;
    }
    static __device__ __forceinline__ double number(T x, double bias)
    {
        if (sizeof(T) < 8) return (double)x - bias;
        return fma((double)(uint32_t)((uint64_t)x >> 32) - bias * 0x1p-32, 0x1p32, (double)(uint32_t)x);
    }
    static __device__ __forceinline__ uint64_t number(T x, uint64_t bias)
    {
        return (uint64_t)x - bias;
    }
    static __device__ __forceinline__ W get(T x, const reduce_rule &rule)
    {
        return number(x, (W)rule.bias);
    }
    static __device__ __forceinline__ Out result(Number value)
    {
        return value;
    }
};

/* 16-bit floats as 16-bit unsigned integers of the same order: NaN above everything, -0 is +0. Two at a time. */
template <class Pair, uint16_t LOWEST>
struct reduce_ordered : reduce_unsigned<uint16_t, uint32_t, uint32_t> {
    static __device__ __forceinline__ uint32_t order(uint32_t word, uint32_t flip)
    {
        union {
            uint32_t word;
            Pair pair;
        } u, zero;
        zero.word = 0;
        u.word = word ^ flip;
        u.pair = __hadd2(u.pair, zero.pair); /* makes -0 +0, and every NaN the positive one */
        return u.word ^ (ks_signs(u.word) | 0x80008000u);
    }
    static __device__ __forceinline__ uint16_t put(uint32_t)
    {
        return LOWEST; /* the only one that is put: what is absent */
    }
};

/* By shuffles, over groups of `lanes` lanes. */
template <class Op>
__device__ __forceinline__ typename Op::State reduce_across_lanes(const Op &op, typename Op::State mine, int lanes)
{
#pragma unroll
    for (int distance = KS_WARP / 2; distance > 0; distance /= 2)
        if (distance < lanes) mine = op.join(mine, ks_shuffle(mine, distance));
    return mine;
}
#endif
