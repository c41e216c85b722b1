/* Sums of |x|, x^2 and |x|^p, logarithms of sums, the largest and the smallest |x|, and counts: functors as those of ops.cuh. */
#ifndef KS_REDUCE_SUMS_CUH
#define KS_REDUCE_SUMS_CUH

#include "cuda/reduce/ops.cuh"

#include <type_traits>

/* --- norms ----------------------------------------------------------------------------------------------------------- */

/* What is added up. POWER, in FP64: exp2(p log2 |x|); PLAIN: x, and the logarithm of the sum is the result. */
enum reduce_term { REDUCE_MAGNITUDE, REDUCE_SQUARE, REDUCE_POWER, REDUCE_PLAIN };

template <class S, reduce_term TERM>
struct reduce_terms {
    typedef S Source;
    typedef typename S::W W;
    typedef typename S::Trunk Acc, State;
    typedef typename S::Out Out;
    static constexpr bool ORDERS = S::INTEGERS, PLACES = false;
    reduce_rule rule;
    reduce_extra extra;
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
            if constexpr (TERM == REDUCE_SQUARE) {
#pragma unroll
                for (int i = 0; i < N; i++) sum[c] += (State)x[c][i] * (State)x[c][i];
            } else if constexpr (TERM == REDUCE_POWER) {
#pragma unroll
                for (int i = 0; i < N; i++) sum[c] += exp2(extra.power * log2(fabs((double)x[c][i])));
            } else {
                typename S::Leaf leaf[N];
#pragma unroll
                for (int i = 0; i < N; i++) leaf[i] = TERM == REDUCE_MAGNITUDE ? (W)fabs(x[c][i]) : x[c][i];
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
    __device__ __forceinline__ Out result(State sum) const
    {
        if constexpr (TERM == REDUCE_PLAIN)
            return S::result(log(sum));
        else if constexpr (TERM == REDUCE_POWER)
            return S::result(exp2(log2(sum) / extra.power));
        else
            return S::result(sum);
    }
};

template <class S>
constexpr bool reduce_heavy<reduce_terms<S, REDUCE_POWER>> = true;

/* The largest |x|, or the smallest as the largest -|x|. */
template <class S, bool LEAST>
struct reduce_magnitude {
    typedef S Source;
    typedef typename S::W W, Acc, State;
    typedef typename S::Out Out;
    static constexpr bool ORDERS = S::INTEGERS, PLACES = false;
    reduce_rule rule;
    static __device__ __forceinline__ W absent()
    {
        return LEAST ? (W)INFINITY : (W)0;
    }
    static __device__ __forceinline__ Acc start()
    {
        return LEAST ? -(W)INFINITY : (W)0;
    }
    template <int C, int N>
    __device__ __forceinline__ void take(Acc (&most)[C], const W (&x)[C][N], int) const
    {
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int i = 0; i < N; i++) most[c] = ks_max_nan(most[c], (W)(LEAST ? -fabs(x[c][i]) : fabs(x[c][i])));
    }
    template <class At>
    __device__ __forceinline__ State finish(Acc most, bool, At) const
    {
        return most;
    }
    static __device__ __forceinline__ State none()
    {
        return start();
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
        return S::result((double)fabs(most));
    }
};

/* --- how many are not zero ------------------------------------------------------------------------------------------- */

/* As INT64; as BOOL, whether there are any or as many as elements; as a number. */
enum reduce_counted { REDUCE_COUNT, REDUCE_TRUTH, REDUCE_NUMBER };

template <class S, reduce_counted AS>
struct reduce_nonzero {
    typedef S Source;
    typedef typename S::W W;
    typedef uint32_t Acc; /* of a thread's elements, which are fewer than 2^32 */
    typedef uint64_t State;
    typedef std::conditional_t<S::INTEGERS, double, typename S::T> Number;
    typedef std::conditional_t<AS == REDUCE_COUNT, int64_t, std::conditional_t<AS == REDUCE_TRUTH, uint8_t, Number>>
        Out;
    static constexpr bool ORDERS = false, PLACES = false;
    reduce_rule rule;
    reduce_extra extra;
    static __device__ __forceinline__ W absent()
    {
        return 0;
    }
    static __device__ __forceinline__ Acc start()
    {
        return 0;
    }
    template <int C, int N>
    __device__ __forceinline__ void take(Acc (&count)[C], const W (&x)[C][N], int) const
    {
#pragma unroll
        for (int c = 0; c < C; c++)
#pragma unroll
            for (int i = 0; i < N; i++) count[c] += x[c][i] != 0;
    }
    template <class At>
    __device__ __forceinline__ State finish(Acc count, bool, At) const
    {
        return count;
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
    __device__ __forceinline__ Out result(State count) const
    {
        if constexpr (AS == REDUCE_TRUTH)
            return extra.all ? (double)count == rule.count : count > 0;
        else if constexpr (AS == REDUCE_NUMBER && !S::INTEGERS)
            return S::result((double)count);
        else
            return (Out)count;
    }
};

#endif
