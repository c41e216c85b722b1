/* What the softmax kernels share: the shape they get, the packs of elements that threads hold, and how an element
 * becomes a result.
 *
 * Everything is computed from x' = x * sign, h = x'/2 and the distance d = h - max h, which is finite for finite x; the term
 * of an element is exp2(d * factor). Elements that are not the row's are -inf, whose term is 0. */
#ifndef KS_SOFTMAX_COMMON_CUH
#define KS_SOFTMAX_COMMON_CUH

#include "cuda/common/launch.cuh"
#include "cuda/common/warp.cuh"

#include <math.h>

struct softmax_shape {
    int64_t outer, length, inner; /* dimensions in front of the axis, along it, behind it */
    size_t offset;                /* of the input in its side, bytes */
    double factor, twice_scale;   /* 2 |scale| log2 e, where the scale is 0: 1; 2 |scale| */
    float sign;                   /* of the scale: 1, -1, 0 */
    int log;
};

/* --- packs: E elements that are loaded together, a vector or fewer --------------------------------------------------- */

template <int BYTES>
struct softmax_word;
template <>
struct softmax_word<16> {
    typedef uint4 type;
};
template <>
struct softmax_word<8> {
    typedef uint2 type;
};
template <>
struct softmax_word<4> {
    typedef uint32_t type;
};
template <>
struct softmax_word<2> {
    typedef uint16_t type;
};

template <class T, int E>
struct softmax_pack {
    typedef typename softmax_word<E *(int)sizeof(T)>::type Word;
    static constexpr int STEP = sizeof(T) == 2 && E > 1 ? 2 : 1; /* elements that put() takes */
    union {
        Word word;
        T element[E];
        typename softmax_word<E *(int)sizeof(T) < 4 ? 2 : 4>::type part[E * sizeof(T) < 4 ? 1 : E * sizeof(T) / 4];
    };
    __device__ __forceinline__ softmax_pack()
    {
    }
    __device__ __forceinline__ typename ks_element<T>::math get(int e) const
    {
        if constexpr (STEP == 2)
            return ks_math_of<T>(part[e / 2], e % 2);
        else
            return ks_math(element[e]);
    }
    template <class M>
    __device__ __forceinline__ void put(int e, const M (&y)[STEP])
    {
        if constexpr (STEP == 2)
            part[e / 2] = ks_round_two<T>(y[0], y[1]);
        else
            element[e] = ks_round<T, M>(y[0]);
    }
};

template <class T, int E>
__device__ __forceinline__ void softmax_load(softmax_pack<T, E> &x, const void *data, int64_t index)
{
    x.word = __ldg((const typename softmax_pack<T, E>::Word *)data + index);
}

/* Leaves those elements alone whose bit is set. */
template <class T, int E>
__device__ __forceinline__ void softmax_blank(softmax_pack<T, E> &x, unsigned mask)
{
    typedef typename ks_element<T>::math M;
#pragma unroll
    for (int e = 0; e < E; e++)
        if (!(mask >> e & 1)) x.element[e] = ks_round<T, M>(-(M)INFINITY);
}

/* Times the scale's sign, exactly; a scale of 0 makes 0 of finite values and NaN of the others. Packs that are not live
 * stay blank. */
template <class T, int E, int V, class Live>
__device__ __forceinline__ void softmax_apply_sign(softmax_pack<T, E> (&x)[V], float sign, Live live)
{
    if (sign == 1) return;
#pragma unroll
    for (int v = 0; v < V; v++) {
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (int w = 0; w < (E + 1) / 2; w++)
                x[v].part[w] = (decltype(x[v].part[w] + 0u))ks_times_two<T>(x[v].part[w], ks_round_two<T>(sign, sign));
        } else {
#pragma unroll
            for (int e = 0; e < E; e++) x[v].element[e] *= (T)sign;
        }
        if (!live(v)) softmax_blank(x[v], 0);
    }
}

template <class T, int E, int V>
__device__ __forceinline__ void softmax_apply_sign(softmax_pack<T, E> (&x)[V], float sign)
{
    softmax_apply_sign(x, sign, [](int) { return true; });
}

/* Stores those elements whose bit is set. */
template <class T, int E>
__device__ __forceinline__ void softmax_store(void *data, int64_t index, const softmax_pack<T, E> &x, unsigned mask)
{
    if (mask == (1u << E) - 1) {
        ((typename softmax_pack<T, E>::Word *)data)[index] = x.word;
        return;
    }
#pragma unroll
    for (int e = 0; e < E; e++)
        if (mask >> e & 1) ((T *)data)[index * E + e] = x.element[e];
}

/* The greater of each element; NaN is dropped. */
template <class T, int E>
__device__ __forceinline__ softmax_pack<T, E> softmax_greater(const softmax_pack<T, E> &a, const softmax_pack<T, E> &b)
{
    softmax_pack<T, E> most;
    if constexpr (sizeof(T) == 2 && E > 1) {
#pragma unroll
        for (int e = 0; e < E / 2; e++) most.part[e] = ks_max_two<T>(a.part[e], b.part[e]);
    } else {
#pragma unroll
        for (int e = 0; e < E; e++) most.element[e] = ks_max(a.element[e], b.element[e]);
    }
    return most;
}

/* The greatest h of a pack. */
template <class T, int E, class M = typename ks_element<T>::math>
__device__ __forceinline__ M softmax_half(const softmax_pack<T, E> &x)
{
    M h = x.get(0);
#pragma unroll
    for (int e = 1; e < E; e++) h = ks_max(h, x.get(e));
    return h * (M)0.5;
}

/* --- elements -------------------------------------------------------------------------------------------------------- */

/* A level is h * factor. In a row that has one for all of its terms they may be exp2(x * factor / 2 - level), which is one
 * operation less: what the rounding of the level changes goes out of the results. Up to so much it is nearly nothing. */
static constexpr int SOFTMAX_LEVEL = 256;

template <class M>
struct softmax_rule {
    M factor, twice_scale;
    bool log;
    __device__ __forceinline__ softmax_rule(const softmax_shape &s)
        : factor((M)s.factor), twice_scale((M)s.twice_scale), log(s.log)
    {
    }
    __device__ __forceinline__ M distance(M x, M reference) const
    {
        return fma(x, (M)0.5, -reference);
    }
    __device__ __forceinline__ M term(M d) const
    {
        return ks_exp2_quick(d * factor);
    }
    __device__ __forceinline__ bool level_will_do(M level) const /* not for distances, which logarithms are made of */
    {
        return sizeof(M) == 4 && !log && fabs(level) < SOFTMAX_LEVEL;
    }
    __device__ __forceinline__ M term_at(M x, M level) const
    {
        return ks_exp2_quick(fma(x, factor * (M)0.5, -level));
    }
};

/* (max h, sum of terms) of a part of a row. The sum of a part without finite values is 0 or NaN. */
template <class M>
struct alignas(2 * sizeof(M)) softmax_pair {
    M h, sum;
};

template <class M>
__device__ __forceinline__ softmax_pair<M> softmax_none()
{
    return {-(M)INFINITY, 0};
}

template <class M>
__device__ __forceinline__ M softmax_weight(M h, M whole, const softmax_rule<M> &rule)
{
    return h == whole ? (M)1 : isinf(h) ? (M)0 : rule.term(h - whole);
}

template <class M>
__device__ __forceinline__ softmax_pair<M> softmax_both(softmax_pair<M> a, softmax_pair<M> b,
                                                        const softmax_rule<M> &rule)
{
    const M most = ks_max(a.h, b.h);
    return {most, ks_sum_of_products(a.sum, softmax_weight(a.h, most, rule), b.sum, softmax_weight(b.h, most, rule))};
}

/* Over subwarps of `width` threads, a power of two; each thread gets the whole. */
template <class M>
__device__ __forceinline__ softmax_pair<M> softmax_join(softmax_pair<M> mine, int width, const softmax_rule<M> &rule)
{
    softmax_pair<M> whole = mine;
    for (int distance = width / 2; distance > 0; distance /= 2)
        whole.h = ks_max(whole.h, ks_shuffle(whole.h, distance));
    whole.sum *= softmax_weight(mine.h, whole.h, rule);
    for (int distance = width / 2; distance > 0; distance /= 2) whole.sum += ks_shuffle(whole.sum, distance);
    return whole;
}

/* What a row's pair comes to: its reference, and 1 / sum or the negative logarithm of the sum. */
template <class M>
__device__ __forceinline__ softmax_pair<M> softmax_settle(softmax_pair<M> n, const softmax_rule<M> &rule)
{
    const M tail = rule.log ? -::log(n.sum) : ks_reciprocal(n.sum);
    return {ks_reference(n.h), isinf(n.h) ? (M)NAN : tail}; /* an infinite maximum: no probabilities */
}

/* A distance d, or its term, becomes a result: keep * a + b. */
template <class M>
struct softmax_epilogue {
    M reference, a, b;
    /* From the row's settled pair. */
    __device__ __forceinline__ softmax_epilogue(softmax_pair<M> settled, const softmax_rule<M> &rule)
        : reference(settled.h), a(rule.log ? rule.twice_scale : settled.sum), b(rule.log ? settled.sum : 0)
    {
    }
    /* For what was kept of a part of the row, with the part's greatest h. */
    __device__ __forceinline__ softmax_epilogue(softmax_pair<M> settled, M part, const softmax_rule<M> &rule)
        : softmax_epilogue(settled, rule)
    {
        if (rule.log)
            b += (ks_reference(part) - reference) * rule.twice_scale;
        else
            a *= softmax_weight(part, reference, rule);
        reference = ks_reference(part);
    }
    __device__ __forceinline__ M operator()(M d, const softmax_rule<M> &rule) const
    {
        return fma(rule.log ? d : rule.term(d), a, b);
    }
};

/* Elements as wide as what is computed take the place of x with what the values need again: the term, or for the
 * logarithm the distance. With 16-bit elements both are computed again. */
template <class T>
constexpr bool softmax_keeps = sizeof(T) == sizeof(typename ks_element<T>::math);

/* The sum of a pack's terms. */
template <bool KEEP, class T, int E, class M>
__device__ __forceinline__ M softmax_sum(softmax_pack<T, E> &x, M reference, const softmax_rule<M> &rule)
{
    M term[E];
#pragma unroll
    for (int e = 0; e < E; e++) {
        const M d = rule.distance(x.get(e), reference);
        term[e] = rule.term(d);
        if constexpr (KEEP) x.element[e] = rule.log ? d : term[e];
    }
    return ks_tree(term);
}

/* A pack's results take its place. */
template <bool KEPT, class T, int E, class M>
__device__ __forceinline__ void softmax_values(softmax_pack<T, E> &x, const softmax_epilogue<M> &epilogue,
                                               const softmax_rule<M> &rule)
{
    constexpr int STEP = softmax_pack<T, E>::STEP;
#pragma unroll
    for (int e = 0; e < E; e += STEP) {
        M y[STEP];
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            if constexpr (KEPT)
                y[i] = fma(x.get(e + i), epilogue.a, epilogue.b);
            else
                y[i] = epilogue(rule.distance(x.get(e + i), epilogue.reference), rule);
        }
        x.put(e, y);
    }
}

#endif
