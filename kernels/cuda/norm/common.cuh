/* What the kernels of norm share: the shape they get, packs of elements, and how the sums of a row become its rule.
 *
 * A row's elements s are sums in M, float or double. Their distance from the mean is d = (s * scale - high) - low: the mean in two parts,
 * and a power of two that keeps squares and their root within FP32's range; it is 1 but for rows of very large or very small numbers.
 * The normalised value is d * factor.
 *
 * Numbers  sums over a row in double: of FP16 and BF16 the sums in float of a vector, of FP32 each element. */
#ifndef KS_NORM_COMMON_CUH
#define KS_NORM_COMMON_CUH

#include "cuda/common/launch.cuh"
#include "cuda/common/unary.cuh"
#include "cuda/common/warp.cuh"

#include <math.h>

/* By value as a kernel's second argument; ops/norm.h says what the numbers mean. Offsets in bytes, from the start of a side. */
struct norm_shape {
    int64_t rows, length, groups, channels, inner, last;
    uint64_t inner_multiplier; /* i / inner == (i * inner_multiplier >> 64) >> inner_shift, of inner > 1 */
    int inner_shift;
    size_t in[5], out, sum;
    double eps, count, over_count; /* elements of a row, and 1 / that */
    int activation;
    int dtype[5], out_dtype; /* of the inputs, where they are looked at one by one */
    bool centred, averaged;
    bool weight, bias, residual, pre_bias, keeps_sum; /* are there */
};

/* --- packs: E elements that are loaded together ----------------------------------------------------------------------- */

template <class T, int E>
struct norm_pack {
    static constexpr int WORDS = E * (int)sizeof(T) / 4;
    uint32_t word[WORDS];

    __device__ __forceinline__ typename ks_element<T>::math get(int e) const
    {
        if constexpr (sizeof(T) == 2)
            return ks_math_of<T>(word[e / 2], e % 2);
        else if constexpr (sizeof(T) == 4)
            return __uint_as_float(word[e]);
        else
            return __longlong_as_double((long long)((uint64_t)word[2 * e + 1] << 32 | word[2 * e]));
    }
    template <class M>
    __device__ __forceinline__ void put(const M (&y)[E])
    {
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int e = 0; e < E; e += 2) word[e / 2] = ks_round_two<T>((float)y[e], (float)y[e + 1]);
        } else if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int e = 0; e < E; e++) word[e] = __float_as_uint((float)y[e]);
        } else {
#pragma unroll
            for (int e = 0; e < E; e++) {
                const uint64_t bits = (uint64_t)__double_as_longlong((double)y[e]);
                word[2 * e] = (uint32_t)bits;
                word[2 * e + 1] = (uint32_t)(bits >> 32);
            }
        }
    }
    __device__ __forceinline__ void fill(float value)
    {
        typename ks_element<T>::math y[E];
#pragma unroll
        for (int e = 0; e < E; e++) y[e] = value;
        put(y);
    }
    /* Pack number `index` of memory that no CTA writes, or of shared memory. */
    __device__ __forceinline__ void load(const void *data, int64_t index)
    {
        const uint32_t *at = (const uint32_t *)data + index * WORDS;
        if constexpr (WORDS == 2) {
            const uint2 two = __ldg((const uint2 *)at);
            word[0] = two.x, word[1] = two.y;
        } else {
#pragma unroll
            for (int w = 0; w < WORDS; w += 4) four(__ldg((const uint4 *)(at + w)), w);
        }
    }
    /* Likewise, a vector of memory that the launch in front may write. */
    __device__ __forceinline__ void take(const void *data, int64_t index)
    {
        static_assert(WORDS == 4, "packs of rows are vectors");
        four(ks_load_made((const uint4 *)data + index), 0);
    }
    __device__ __forceinline__ void four(const uint4 &words, int w)
    {
        word[w] = words.x, word[w + 1] = words.y, word[w + 2] = words.z, word[w + 3] = words.w;
    }
    __device__ __forceinline__ uint4 vector() const
    {
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
    __device__ __forceinline__ void store(void *data, int64_t index) const
    {
        ((uint4 *)data)[index] = vector();
    }
};

/* Elements of a vector of 16 bytes. */
template <class T>
constexpr int norm_vector = 16 / (int)sizeof(T);

template <class T, int E, class M>
__device__ __forceinline__ void norm_widen(M (&s)[E], const norm_pack<T, E> &x)
{
#pragma unroll
    for (int e = 0; e < E; e++) s[e] = (M)x.get(e);
}

template <class T, int E, class M>
__device__ __forceinline__ void norm_add(M (&s)[E], const norm_pack<T, E> &more)
{
#pragma unroll
    for (int e = 0; e < E; e++) s[e] += (M)more.get(e);
}

/* --- weight and bias of a thread's packs, kept for all of its rows ---------------------------------------------------- */

template <class W, int E, int V>
struct norm_affine {
    norm_pack<W, E> weight[V], bias[V];

    /* of packs first, first + step ... below count */
    __device__ __forceinline__ norm_affine(const norm_shape &s, const unsigned char *in, int64_t origin, int first,
                                           int step, int count)
    {
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int i = first + v * step;
            weight[v].fill(1);
            bias[v].fill(0);
            if (s.weight && i < count) weight[v].load(in + s.in[1], origin + i);
            if (s.bias && i < count) bias[v].load(in + s.in[2], origin + i);
        }
    }
};

/* --- a row's rule ----------------------------------------------------------------------------------------------------- */

/* What is kept of a row's mean in a kernel's loops: of FP16 and BF16 a float, which takes half the registers of a double. */
template <class T>
struct norm_kept_mean {
    typedef double type;
};
template <>
struct norm_kept_mean<__half> {
    typedef float type;
};
template <>
struct norm_kept_mean<__nv_bfloat16> {
    typedef float type;
};

template <class M>
struct norm_rule {
    M scale, high, low, factor;

    norm_rule() = default;
    __device__ __forceinline__ norm_rule(double mean, M by)
        : scale(by), high((M)(mean * (double)by)), low((M)(mean * (double)by - (double)high))
    {
    }
    /* low: whether it counts beside the rounding of s. */
    template <bool LOW>
    __device__ __forceinline__ M distance(M s) const
    {
        const M d = fma(s, scale, -high);
        return LOW ? d - low : d;
    }
};

/* FP32 is looked at to its last bit, FP16 and BF16 are not, and a double's mean has no second part. */
template <class T>
constexpr bool norm_low = sizeof(T) == 4;

template <class T, int E, class M>
__device__ __forceinline__ double norm_sum(const M (&s)[E])
{
    if constexpr (sizeof(T) == 4) {
        double wide[E];
#pragma unroll
        for (int e = 0; e < E; e++) wide[e] = (double)s[e];
        return ks_tree(wide);
    } else {
        return (double)ks_tree(s);
    }
}

/* No partial sum of a finite row's FP16 or BF16 overflows here. */
template <int E, class M>
__device__ __forceinline__ double norm_wide_sum(const M (&s)[E])
{
    double sum = 0;
#pragma unroll
    for (int e = 0; e < E; e++) sum += (double)s[e];
    return sum;
}

/* Of the first `count` elements. */
template <class T, int E, class M>
__device__ __forceinline__ double norm_squares(const M (&s)[E], const norm_rule<M> &rule, int count = E)
{
    M d[E];
#pragma unroll
    for (int e = 0; e < E; e++) d[e] = rule.template distance<norm_low<T>>(s[e]);
    if (count < E) {
#pragma unroll
        for (int e = 0; e < E; e++) d[e] = e < count ? d[e] : 0;
    }
    if constexpr (sizeof(T) == 4) {
        double sum = 0;
#pragma unroll
        for (int e = 0; e < E; e++) sum = fma((double)d[e], (double)d[e], sum);
        return sum;
    } else {
        M square[E / 2];
#pragma unroll
        for (int e = 0; e < E / 2; e++) square[e] = fma(d[e], d[e], d[e + E / 2] * d[e + E / 2]);
        return (double)ks_tree(square);
    }
}

/* sum / count, exact where the quotient is a double. */
__device__ __forceinline__ double norm_mean(const norm_shape &s, double sum)
{
    const double mean = sum * s.over_count;
    return fma(fma(-mean, s.count, sum), s.over_count, mean);
}

/* The square of what a row is divided by, scaled as its squares are. */
__device__ __forceinline__ double norm_divisor_squared(const norm_shape &s, double squares, double scale)
{
    if (s.averaged) return fma(squares, s.over_count, s.eps * (scale * scale));
    const double least = s.eps * scale * (s.eps * scale);
    return squares < least ? least : squares;
}

__device__ __forceinline__ float norm_factor(double squared, float)
{
    const float narrow = (float)squared;
    return ks_rsqrt_quick(squared > 0 ? fmaxf(narrow, 0x1p-126f) : narrow);
}
__device__ __forceinline__ double norm_factor(double squared, double)
{
    return 1 / sqrt(squared);
}

/* The power of two with which the row is taken again, behind one that was taken with `scale`; 0: it stands. Squares that small about a
 * mean that large are those of a constant row. */
template <class T, class M>
__device__ __forceinline__ M norm_next_scale(double squared, M mean, M scale)
{
    if constexpr (sizeof(T) == 8) return 0; /* as far as FP64 goes */
    if (squared > 0x1p100 && scale == 1) return (M)0x1p-70;
    if (squared > 0x1p126 && scale == (M)0x1p-70) return (M)0x1p-100; /* l2 of a long row: a sum, not a mean */
    if (!(squared < 0x1p-100 && fabs(mean) < (M)0x1p-20)) return 0;
    return scale == 1 ? (M)0x1p70 : scale == (M)0x1p70 ? (M)0x1p120 : 0;
}

/* --- values ----------------------------------------------------------------------------------------------------------- */

/* weight, bias: packs, which are there if `affine`. They stay as packed as they are: widened they would take twice the registers. */
template <class T, class W, int E, class M>
__device__ __forceinline__ void norm_values(const norm_shape &s, M (&y)[E], const norm_rule<M> &rule, bool affine,
                                            norm_pack<W, E> weight, norm_pack<W, E> bias)
{
    if constexpr (sizeof(W) == 2) {
#pragma unroll
        for (int w = 0; w < norm_pack<W, E>::WORDS; w++) {
            ks_anew_each_round(weight.word[w]);
            ks_anew_each_round(bias.word[w]);
        }
    }
#pragma unroll
    for (int e = 0; e < E; e++) y[e] = rule.template distance<norm_low<T>>(y[e]) * rule.factor;
    if (affine) {
#pragma unroll
        for (int e = 0; e < E; e++) y[e] = fma(y[e], (M)weight.get(e), (M)bias.get(e));
    }
    ks_activate<T>(y, s.activation);
}

#endif
