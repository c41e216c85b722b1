/* What is accumulated: one functor per sort of reduction, over W, the element in registers (float, double, int64_t).
 *
 *   State none()                            of no elements
 *   take(state, x[N], mask, at, step)       N elements, of which the mask says which there are; element i is at + i *
 * step operator()(a, b)                        joins two, in any order store(state, out, index)                finishes
 * and rounds once */
#ifndef KS_REDUCE_OPS_CUH
#define KS_REDUCE_OPS_CUH

#include "kernserve/tensor.h"
#include "warp.cuh"

/* What all of them are told. */
struct reduce_rule {
    double divisor; /* of a mean; else 1 */
    int out_dtype;
    int in_dtype;
    int lowest; /* min, argmin */
};

__device__ __forceinline__ void reduce_store(int dtype, void *out, int64_t i, double value)
{
    switch (dtype) {
    case KS_FP16:
        ((__half *)out)[i] = ks_round<__half, double>(value);
        break;
    case KS_BF16:
        ((__nv_bfloat16 *)out)[i] = ks_round<__nv_bfloat16, double>(value);
        break;
    case KS_FP32:
        ((float *)out)[i] = (float)value;
        break;
    default:
        ((double *)out)[i] = value;
        break;
    }
}

__device__ __forceinline__ void reduce_store_bits(int dtype, void *out, int64_t i, uint64_t value)
{
    switch (dtype) {
    case KS_INT8:
    case KS_UINT8:
        ((uint8_t *)out)[i] = (uint8_t)value;
        break;
    case KS_INT16:
    case KS_UINT16:
        ((uint16_t *)out)[i] = (uint16_t)value;
        break;
    case KS_INT32:
    case KS_UINT32:
        ((uint32_t *)out)[i] = (uint32_t)value;
        break;
    default:
        ((uint64_t *)out)[i] = value;
        break;
    }
}

/* --- sum, mean, l2norm --- */

/* Floats: a leaf of N elements in W, added to a double. Sums of float32 overflow only where a leaf does. */
template <class W>
struct reduce_sum {
    typedef double State;
    reduce_rule rule;
    __device__ __forceinline__ State none() const
    {
        return 0;
    }
    template <int N>
    __device__ __forceinline__ void take(State &s, const W (&x)[N], unsigned mask, int64_t, int64_t) const
    {
        W leaf = 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (mask >> i & 1) leaf += x[i];
        s += (double)leaf;
    }
    __device__ __forceinline__ State operator()(State a, State b) const
    {
        return a + b;
    }
    __device__ __forceinline__ void store(State s, void *out, int64_t i) const
    {
        reduce_store(rule.out_dtype, out, i, s / rule.divisor);
    }
};

template <>
struct reduce_sum<int64_t> {
    typedef uint64_t State;
    reduce_rule rule;
    __device__ __forceinline__ State none() const
    {
        return 0;
    }
    template <int N>
    __device__ __forceinline__ void take(State &s, const int64_t (&x)[N], unsigned mask, int64_t, int64_t) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (mask >> i & 1) s += (uint64_t)x[i];
    }
    __device__ __forceinline__ State operator()(State a, State b) const
    {
        return a + b;
    }
    __device__ __forceinline__ void store(State s, void *out, int64_t i) const
    {
        ((uint64_t *)out)[i] = s;
    }
};

/* Squares in double: no finite float overflows. */
template <class W>
struct reduce_squares {
    typedef double State;
    reduce_rule rule;
    __device__ __forceinline__ State none() const
    {
        return 0;
    }
    template <int N>
    __device__ __forceinline__ void take(State &s, const W (&x)[N], unsigned mask, int64_t, int64_t) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (mask >> i & 1) s += (double)x[i] * (double)x[i];
    }
    __device__ __forceinline__ State operator()(State a, State b) const
    {
        return a + b;
    }
    __device__ __forceinline__ void store(State s, void *out, int64_t i) const
    {
        reduce_store(rule.out_dtype, out, i, sqrt(s));
    }
};

/* --- prod --- */

template <class W>
struct reduce_prod {
    typedef double State;
    reduce_rule rule;
    __device__ __forceinline__ State none() const
    {
        return 1;
    }
    template <int N>
    __device__ __forceinline__ void take(State &s, const W (&x)[N], unsigned mask, int64_t, int64_t) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (mask >> i & 1) s *= (double)x[i];
    }
    __device__ __forceinline__ State operator()(State a, State b) const
    {
        return a * b;
    }
    __device__ __forceinline__ void store(State s, void *out, int64_t i) const
    {
        reduce_store(rule.out_dtype, out, i, s);
    }
};

template <>
struct reduce_prod<int64_t> {
    typedef uint64_t State;
    reduce_rule rule;
    __device__ __forceinline__ State none() const
    {
        return 1;
    }
    template <int N>
    __device__ __forceinline__ void take(State &s, const int64_t (&x)[N], unsigned mask, int64_t, int64_t) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (mask >> i & 1) s *= (uint64_t)x[i];
    }
    __device__ __forceinline__ State operator()(State a, State b) const
    {
        return a * b;
    }
    __device__ __forceinline__ void store(State s, void *out, int64_t i) const
    {
        ((uint64_t *)out)[i] = s;
    }
};

/* --- max, min, argmax, argmin --- */

/* Keys: unsigned integers that order as the elements do, turned round for min and argmin; NaN is above everything, and
 * -0 is +0. No float has the key 0, which stands for "none". */
template <class W>
struct reduce_key;

template <>
struct reduce_key<float> {
    typedef uint32_t Key;
    static __device__ __forceinline__ Key of(float x, const reduce_rule &rule)
    {
        const uint32_t bits = __float_as_uint(x + 0.0f), key = bits >> 31 ? ~bits : bits | 0x80000000u;
        return isnan(x) ? 0xFFFFFFFFu : rule.lowest ? ~key : key;
    }
    static __device__ __forceinline__ void store(Key key, const reduce_rule &rule, void *out, int64_t i)
    {
        const uint32_t turned = rule.lowest ? ~key : key;
        const float value = __uint_as_float(turned >> 31 ? turned & 0x7FFFFFFFu : ~turned);
        reduce_store(rule.out_dtype, out, i, key == 0xFFFFFFFFu ? (double)NAN : (double)value);
    }
};

template <>
struct reduce_key<double> {
    typedef uint64_t Key;
    static __device__ __forceinline__ Key of(double x, const reduce_rule &rule)
    {
        const uint64_t bits = (uint64_t)__double_as_longlong(x + 0.0),
                       key = bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
        return isnan(x) ? ~(uint64_t)0 : rule.lowest ? ~key : key;
    }
    static __device__ __forceinline__ void store(Key key, const reduce_rule &rule, void *out, int64_t i)
    {
        const uint64_t turned = rule.lowest ? ~key : key;
        const uint64_t bits = turned >> 63 ? turned & ~((uint64_t)1 << 63) : ~turned;
        ((double *)out)[i] = key == ~(uint64_t)0 ? (double)NAN : __longlong_as_double((long long)bits);
    }
};

template <>
struct reduce_key<int64_t> {
    typedef uint64_t Key;
    static __device__ __forceinline__ uint64_t sign(const reduce_rule &rule)
    {
        return rule.in_dtype == KS_UINT64 ? 0 : (uint64_t)1 << 63;
    }
    static __device__ __forceinline__ Key of(int64_t x, const reduce_rule &rule)
    {
        const uint64_t key = (uint64_t)x ^ sign(rule);
        return rule.lowest ? ~key : key;
    }
    static __device__ __forceinline__ void store(Key key, const reduce_rule &rule, void *out, int64_t i)
    {
        reduce_store_bits(rule.out_dtype, out, i, (rule.lowest ? ~key : key) ^ sign(rule));
    }
};

template <class W>
struct reduce_extreme {
    typedef typename reduce_key<W>::Key State;
    reduce_rule rule;
    __device__ __forceinline__ State none() const
    {
        return 0;
    }
    template <int N>
    __device__ __forceinline__ void take(State &s, const W (&x)[N], unsigned mask, int64_t, int64_t) const
    {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (mask >> i & 1) s = max(s, reduce_key<W>::of(x[i], rule));
    }
    __device__ __forceinline__ State operator()(State a, State b) const
    {
        return max(a, b);
    }
    __device__ __forceinline__ void store(State s, void *out, int64_t i) const
    {
        reduce_key<W>::store(s, rule, out, i);
    }
};

template <class K>
struct reduce_found {
    K key;
    int64_t at;
};

template <class K>
__device__ __forceinline__ reduce_found<K> ks_shuffle(reduce_found<K> a, int distance)
{
    reduce_found<K> b;
    b.key = ks_shuffle(a.key, distance);
    b.at = ks_shuffle(a.at, distance);
    return b;
}

template <class W>
struct reduce_arg {
    typedef reduce_found<typename reduce_key<W>::Key> State;
    reduce_rule rule;
    __device__ __forceinline__ State none() const
    {
        State s;
        s.key = 0;
        s.at = INT64_MAX;
        return s;
    }
    __device__ __forceinline__ State operator()(State a, State b) const
    {
        return b.key > a.key || (b.key == a.key && b.at < a.at) ? b : a;
    }
    template <int N>
    __device__ __forceinline__ void take(State &s, const W (&x)[N], unsigned mask, int64_t at, int64_t step) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            State one;
            one.key = reduce_key<W>::of(x[i], rule);
            one.at = at + i * step;
            if (mask >> i & 1) s = (*this)(s, one);
        }
    }
    __device__ __forceinline__ void store(State s, void *out, int64_t i) const
    {
        ((int64_t *)out)[i] = s.at;
    }
};

/* --- logsumexp --- */

template <class M>
struct reduce_logsumexp {
    typedef ks_normaliser<M> State;
    reduce_rule rule;
    static constexpr double factor = 2 * 1.4426950408889634074; /* the normaliser works on halves */
    __device__ __forceinline__ State none() const
    {
        return ks_nothing<M>();
    }
    template <int N>
    __device__ __forceinline__ void take(State &s, const M (&x)[N], unsigned mask, int64_t, int64_t) const
    {
        M h[N];
#pragma unroll
        for (int i = 0; i < N; i++) h[i] = x[i] * (M)0.5;
        ks_normaliser_take<N>(s, h, mask, (M)factor);
    }
    __device__ __forceinline__ State operator()(State a, State b) const
    {
        const ks_joins<M> joins = {(M)factor};
        return joins(a, b);
    }
    __device__ __forceinline__ void store(State s, void *out, int64_t i) const
    {
        /* An infinite maximum was replaced by 0: the sum is then 0, infinite or NaN, and its logarithm the answer. */
        reduce_store(rule.out_dtype, out, i, 2 * (double)ks_reference(s.h) + log(s.sum));
    }
};

#endif
