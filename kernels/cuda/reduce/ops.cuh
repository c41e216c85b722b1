/* What is accumulated: a functor per sort of reduction, over a source of elements.
 *
 *   start()                        a thread's accumulator, before its elements
 *   take(acc[C], x[C][N], n)       N elements for each of C results; they are the thread's n-th and following ones.
 *                                  A missing one is absent(), and changes nothing
 *   finish(acc, any, at)           a State: what goes between threads. any: it had an element; at(n): the place of its
 *                                  n-th one along the axis
 *   none(), join(a, b)             of States, in any order
 *   across(mine, lanes)            joins those of a warp, of which the first `lanes` have one and the others none(); the
 *                                  first gets the result
 *   result(state)                  finishes, and rounds once
 *
 * An op that shifts (reduce_shifts) has start_at(x) in the place of start(): x is the first element of the result, wherever the thread
 * is along the axis, and stands for a missing element, too. element(acc) gives it back.
 *
 * Floats are added in leaves of FP32, by a tree, and the leaves in FP64: the error does not grow with the length. */
#ifndef KS_REDUCE_OPS_CUH
#define KS_REDUCE_OPS_CUH

#include "cuda/reduce/sources.cuh"

template <class Op>
constexpr bool reduce_shifts = false;

/* An op whose arithmetic of an element takes as many registers as FP64 elements do. */
template <class Op>
constexpr bool reduce_heavy = false;

/* --- sum, mean, l2norm ----------------------------------------------------------------------------------------------- */

/* SQUARES: of squares, which are FP64 from the start, so that no finite float overflows; and its root. */
template <class S, bool SQUARES>
struct reduce_sum {
    typedef S Source;
    typedef typename S::W W;
    typedef typename S::Trunk Acc, State;
    typedef typename S::Out Out;
    static constexpr bool ORDERS = S::INTEGERS, PLACES = false;
    reduce_rule rule;
    static __device__ __forceinline__ W absent()
    {
        return 0;
    }
    static __device__ __forceinline__ Acc start()
    {
        return 0;
    }
    template <int C, int N>
    __device__ __forceinline__ void take(Acc (&sum)[C], const W (&x)[C][N], int) const
    {
#pragma unroll
        for (int c = 0; c < C; c++) {
            if constexpr (SQUARES) {
#pragma unroll
                for (int i = 0; i < N; i++) sum[c] += (double)x[c][i] * (double)x[c][i];
            } else {
                typename S::Leaf leaf[N];
#pragma unroll
                for (int i = 0; i < N; i++) leaf[i] = x[c][i];
                sum[c] += (State)ks_tree(leaf);
            }
        }
    }
    template <class At>
    __device__ __forceinline__ State finish(Acc sum, bool, At) const
    {
        return sum;
    }
    static __device__ __forceinline__ State none()
    {
        return 0;
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        return a + b;
    }
    __device__ __forceinline__ State across(State mine, int lanes) const
    {
        return reduce_across_lanes(*this, mine, lanes);
    }
    __device__ __forceinline__ Out result(double sum) const
    {
        if (SQUARES) sum = sqrt(sum);
        return S::result(rule.mean ? sum / rule.count : sum);
    }
    __device__ __forceinline__ Out result(uint64_t sum) const
    {
        const int64_t total = (int64_t)(sum - rule.excess);
        return rule.mean ? (Out)__double_as_longlong((double)total / rule.count) : (Out)total;
    }
};

/* --- prod ------------------------------------------------------------------------------------------------------------ */

template <class S>
struct reduce_prod {
    typedef S Source;
    typedef typename S::W W;
    typedef typename S::Trunk Acc, State;
    typedef typename S::Out Out;
    static constexpr bool ORDERS = S::INTEGERS, PLACES = false;
    reduce_rule rule;
    static __device__ __forceinline__ W absent()
    {
        return 1;
    }
    static __device__ __forceinline__ Acc start()
    {
        return 1;
    }
    template <int C, int N>
    __device__ __forceinline__ void take(Acc (&product)[C], const W (&x)[C][N], int) const
    {
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int i = 0; i < N; i++) product[c] *= (State)x[c][i];
    }
    template <class At>
    __device__ __forceinline__ State finish(Acc product, bool, At) const
    {
        return product;
    }
    static __device__ __forceinline__ State none()
    {
        return 1;
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        return a * b;
    }
    __device__ __forceinline__ State across(State mine, int lanes) const
    {
        return reduce_across_lanes(*this, mine, lanes);
    }
    __device__ __forceinline__ Out result(State product) const
    {
        return S::result(product);
    }
};

/* --- max, min, argmax, argmin: the flip turns the order round for the minima ------------------------------------------ */

template <class W>
struct reduce_order;

template <>
struct reduce_order<float> {
    typedef uint32_t Key;
    static constexpr float LOWEST = -INFINITY;
    static __device__ __forceinline__ Key key(float x)
    {
        const uint32_t bits = __float_as_uint(x + 0.0f); /* -0 is +0 */
        return isnan(x) ? 0xFFFFFFFFu : bits >> 31 ? ~bits : bits | 0x80000000u;
    }
    static __device__ __forceinline__ float value(Key key) /* NaN again of NaN's */
    {
        return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key);
    }
};

template <>
struct reduce_order<double> {
    typedef uint64_t Key;
    static constexpr double LOWEST = -INFINITY;
    static __device__ __forceinline__ Key key(double x)
    {
        const uint64_t bits = (uint64_t)__double_as_longlong(x + 0.0), sign = (uint64_t)1 << 63;
        return isnan(x) ? ~(uint64_t)0 : bits & sign ? ~bits : bits | sign;
    }
};

template <>
struct reduce_order<uint32_t> {
    typedef uint32_t Key;
    static constexpr uint32_t LOWEST = 0;
    static __device__ __forceinline__ Key key(uint32_t x)
    {
        return x;
    }
    static __device__ __forceinline__ uint32_t value(Key key)
    {
        return key;
    }
};

template <>
struct reduce_order<uint64_t> {
    typedef uint64_t Key;
    static constexpr uint64_t LOWEST = 0;
    static __device__ __forceinline__ Key key(uint64_t x)
    {
        return x;
    }
};

template <class S>
struct reduce_extreme {
    typedef S Source;
    typedef typename S::W W, Acc, State;
    typedef typename S::T Out;
    static constexpr bool ORDERS = true, PLACES = false;
    reduce_rule rule;
    static __device__ __forceinline__ W absent()
    {
        return reduce_order<W>::LOWEST;
    }
    static __device__ __forceinline__ Acc start()
    {
        return absent();
    }
    template <int C, int N>
    __device__ __forceinline__ void take(Acc (&most)[C], const W (&x)[C][N], int) const
    {
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int i = 0; i < N; i++) most[c] = ks_max_nan(most[c], x[c][i]);
    }
    template <class At>
    __device__ __forceinline__ State finish(Acc most, bool, At) const
    {
        return most;
    }
    static __device__ __forceinline__ State none()
    {
        return absent();
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        return ks_max_nan(a, b);
    }
    __device__ __forceinline__ State across(State mine, int lanes) const
    {
        if constexpr (sizeof(State) == 4)
            return reduce_order<W>::value(ks_warp_max(reduce_order<W>::key(mine)));
        else
            return reduce_across_lanes(*this, mine, lanes);
    }
    __device__ __forceinline__ Out result(State most) const
    {
        union {
            Out element;
            uint64_t bits;
        } u;
        u.bits = 0;
        u.element = S::put(most);
        u.bits ^= (uint64_t)rule.flip.odd << 32 | rule.flip.even;
        return u.element;
    }
};

template <class Key>
struct reduce_found {
    Key key;
    int64_t at;
};

template <class Key>
__device__ __forceinline__ reduce_found<Key> ks_shuffle(reduce_found<Key> a, int distance)
{
    reduce_found<Key> b;
    b.key = ks_shuffle(a.key, distance);
    b.at = ks_shuffle(a.at, distance);
    return b;
}

/* Goes before what was found so far: NaN before everything, equals after. */
__device__ __forceinline__ bool reduce_beats(float x, float best)
{
    return !(x <= best) && best == best;
}
__device__ __forceinline__ bool reduce_beats(double x, double best)
{
    return !(x <= best) && best == best;
}
__device__ __forceinline__ bool reduce_beats(uint32_t x, uint32_t best)
{
    return x > best;
}
__device__ __forceinline__ bool reduce_beats(uint64_t x, uint64_t best)
{
    return x > best;
}

/* What both ways of arg share. */
template <class S_, class Key>
struct reduce_search {
    typedef S_ Source;
    typedef typename S_::W W;
    typedef reduce_found<Key> State;
    typedef int64_t Out;
    static constexpr bool ORDERS = true, PLACES = true;
    reduce_rule rule;
    static __device__ __forceinline__ W absent()
    {
        return reduce_order<W>::LOWEST;
    }
    static __device__ __forceinline__ State none()
    {
        return {0, INT64_MAX};
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        return b.key > a.key || (b.key == a.key && b.at < a.at) ? b : a;
    }
    __device__ __forceinline__ State across(State mine, int lanes) const
    {
        if constexpr (sizeof(Key) == 4) {
            const Key most = ks_warp_max(mine.key);
            const uint64_t at = mine.key == most ? (uint64_t)mine.at : UINT64_MAX;
            const uint32_t high = ks_warp_min((uint32_t)(at >> 32));
            const uint32_t low = ks_warp_min((uint32_t)(at >> 32) == high ? (uint32_t)at : UINT32_MAX);
            return {most, (int64_t)((uint64_t)high << 32 | low)};
        } else {
            return reduce_across_lanes(*this, mine, lanes);
        }
    }
    __device__ __forceinline__ Out result(State found) const
    {
        return found.at;
    }
};

template <class S>
struct reduce_arg : reduce_search<S, typename reduce_order<typename S::W>::Key> {
    typedef reduce_order<typename S::W> Order;
    typedef reduce_search<S, typename Order::Key> Search;
    using typename Search::State;
    using typename Search::W;
    struct Acc {
        W best;
        int n;
    };
    /* As if the first element were the lowest: all elements may be. */
    static __device__ __forceinline__ Acc start()
    {
        return {Search::absent(), 0};
    }
    template <int C, int N>
    __device__ __forceinline__ void take(Acc (&acc)[C], const W (&x)[C][N], int n) const
    {
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (reduce_beats(x[c][i], acc[c].best)) acc[c] = {x[c][i], n + i};
    }
    template <class At>
    __device__ __forceinline__ State finish(Acc acc, bool any, At at) const
    {
        const State found = {Order::key(acc.best), at(acc.n)};
        return any ? found : Search::none();
    }
};

/* Of 8 or 16 bits: value and number in one word, the number from above, so that the first one wins. Up to 65536 elements
 * of a thread (REDUCE_NUMBERED). */
template <class S>
struct reduce_arg_small : reduce_search<S, uint32_t> {
    typedef reduce_search<S, uint32_t> Search;
    using typename Search::State;
    using typename Search::W;
    typedef uint32_t Acc;
    static __device__ __forceinline__ Acc start()
    {
        return 0xFFFF;
    }
    template <int C, int N>
    __device__ __forceinline__ void take(Acc (&acc)[C], const W (&x)[C][N], int n) const
    {
#pragma unroll
        for (int i = 0; i < N; i++) {
            const uint32_t number = 0xFFFF - (n + i);
#pragma unroll
            for (int c = 0; c < C; c++) acc[c] = max(acc[c], x[c][i] << 16 | number);
        }
    }
    template <class At>
    __device__ __forceinline__ State finish(Acc acc, bool any, At at) const
    {
        const State found = {acc >> 16, at((int)(0xFFFF - (acc & 0xFFFF)))};
        return any ? found : Search::none();
    }
};

/* --- logsumexp ------------------------------------------------------------------------------------------------------- */

/* e^x for x up to 4, each element's: of floats by one instruction. reduce_weight: more exact, for whole sums. */
__device__ __forceinline__ float reduce_exp(float x)
{
    return ks_exp2_quick(x * 1.44269504f);
}
__device__ __forceinline__ double reduce_exp(double x)
{
    return exp(x);
}
__device__ __forceinline__ float reduce_weight(float x)
{
    return expf(x);
}
__device__ __forceinline__ double reduce_weight(double x)
{
    return exp(x);
}

/* A logarithm as exact as FP64 where the sum is FP32: whole powers of 2, and the rest in FP32. */
__device__ __forceinline__ double reduce_log(double sum, float)
{
    const float x = (float)sum;
    if (!(x >= FLT_MIN && x <= FLT_MAX)) return logf(x);
    const int power = (int)(__float_as_uint(x) >> 23) - 127;
    return power * 0.69314718055994531 + (double)logf(__uint_as_float(__float_as_uint(x) - ((uint32_t)power << 23)));
}
__device__ __forceinline__ double reduce_log(double sum, double)
{
    return log(sum);
}

template <class W>
struct reduce_exponentials {
    W reference; /* finite: inf - inf never happens */
    double sum;  /* of e^(x - reference) */
};

template <class W>
__device__ __forceinline__ reduce_exponentials<W> ks_shuffle(reduce_exponentials<W> a, int distance)
{
    reduce_exponentials<W> b;
    b.reference = ks_shuffle(a.reference, distance);
    b.sum = ks_shuffle(a.sum, distance);
    return b;
}

/* A sum of leaves. FP32: beside what its roundings have left out (Kahan), which makes it as exact as one in FP64, without
 * conversions: the unit that does them does the exponentials. */
template <class W>
struct reduce_running {
    W sum, rest;
    __device__ __forceinline__ void add(W leaf)
    {
        const W more = leaf - rest, next = sum + more;
        rest = (next - sum) - more;
        sum = next;
    }
    __device__ __forceinline__ void scale(W weight)
    {
        sum *= weight;
        rest *= weight;
    }
    __device__ __forceinline__ double value() const
    {
        return (double)sum - (double)rest;
    }
};
template <>
struct reduce_running<double> {
    double sum;
    __device__ __forceinline__ void add(double leaf)
    {
        sum += leaf;
    }
    __device__ __forceinline__ void scale(double weight)
    {
        sum *= weight;
    }
    __device__ __forceinline__ double value() const
    {
        return sum;
    }
};

/* The reference follows the maximum only where that is ahead of it by more than AHEAD: so that most warps never have to
 * follow one of their many sums again, and what is scaled down is so small that a quick exponential does. FP32 has the
 * bits to show for it that e^AHEAD is less exact than e^0. A sum is infinite only where its reference is the largest of
 * all, so it is never scaled; a thread's own stays finite, for the rest of an infinite one would be NaN. */
template <class S>
struct reduce_logsumexp {
    typedef S Source;
    typedef typename S::W W;
    typedef reduce_exponentials<W> State;
    typedef typename S::Out Out;
    struct Acc {
        W reference;
        reduce_running<W> sum; /* of e^(x - reference) */
    };
    static constexpr bool ORDERS = S::INTEGERS, PLACES = false;
    static constexpr W LARGEST = sizeof(W) == 4 ? (W)FLT_MAX : (W)DBL_MAX, AHEAD = sizeof(typename S::T) == 2 ? 4 : 2;
    static constexpr W ENDLESS = (W)0x1p100; /* stands for infinity in a leaf: no other leaf is as large */
    reduce_rule rule;
    static __device__ __forceinline__ W absent()
    {
        return -(W)INFINITY;
    }
    static __device__ __forceinline__ Acc start()
    {
        return {-LARGEST, {}};
    }
    template <int C, int N>
    __device__ __forceinline__ void take(Acc (&acc)[C], const W (&x)[C][N], int) const
    {
        W most[C];
        bool ahead = false;
#pragma unroll
        for (int c = 0; c < C; c++) {
            most[c] = x[c][0];
#pragma unroll
            for (int i = 1; i < N; i++) most[c] = ks_max(most[c], x[c][i]);
            ahead |= most[c] > acc[c].reference + AHEAD;
        }
        if (ahead) {
#pragma unroll
            for (int c = 0; c < C; c++) {
                const W next = most[c] > acc[c].reference + AHEAD ? min(most[c], LARGEST) : acc[c].reference;
                acc[c].sum.scale(reduce_exp(acc[c].reference - next));
                acc[c].reference = next;
            }
        }
#pragma unroll
        for (int c = 0; c < C; c++) {
            W leaf[N];
#pragma unroll
            for (int i = 0; i < N; i++) leaf[i] = reduce_exp(x[c][i] - acc[c].reference);
            const W sum = ks_tree(leaf);
            acc[c].sum.add(sum > ENDLESS ? ENDLESS : sum);
        }
    }
    template <class At>
    __device__ __forceinline__ State finish(Acc acc, bool, At) const
    {
        const double sum = acc.sum.value();
        return {acc.reference, sum >= (double)ENDLESS ? (double)INFINITY : sum};
    }
    static __device__ __forceinline__ State none()
    {
        return {-LARGEST, 0};
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        const W gap = a.reference - b.reference;
        const double weight = (double)reduce_weight(gap >= 0 ? -gap : gap);
        return {max(a.reference, b.reference), gap >= 0 ? b.sum * weight + a.sum : a.sum * weight + b.sum};
    }
    /* Scaled once, to the largest reference of all. */
    __device__ __forceinline__ State across(State mine, int lanes) const
    {
        if constexpr (sizeof(W) == 4) {
            typedef reduce_order<float> Order;
            const float largest = Order::value(ks_warp_max(Order::key(mine.reference)));
            double sum = mine.sum * (double)reduce_weight(mine.reference - largest);
#pragma unroll
            for (int distance = KS_WARP / 2; distance > 0; distance /= 2)
                if (distance < lanes) sum += ks_shuffle(sum, distance);
            return {largest, sum};
        } else {
            return reduce_across_lanes(*this, mine, lanes);
        }
    }
    __device__ __forceinline__ Out result(State s) const
    {
        if constexpr (sizeof(typename S::T) == 2 && sizeof(W) == 4)
            return S::put(s.reference + logf((float)s.sum)); /* FP32 is exact enough for 16 bits */
        else
            return S::result((double)s.reference + reduce_log(s.sum, (W)0));
    }
};

#endif
