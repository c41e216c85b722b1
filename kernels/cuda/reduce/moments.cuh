/* Variances: a functor as those of ops.cuh, which shifts.
 *
 * The sums of d and d^2 in FP64, d = x - the first element of the result: that one is as near to the mean as the deviations are large, so
 * nothing is lost where the mean is far above them, and a result's bits are those of its own elements. An infinity or a NaN makes NaN. */
#ifndef KS_REDUCE_MOMENTS_CUH
#define KS_REDUCE_MOMENTS_CUH

#include "cuda/reduce/ops.cuh"

struct reduce_sums {
    double sum, squares; /* in this order: the second half of a message is never negative */
};

__device__ __forceinline__ reduce_sums ks_shuffle(reduce_sums a, int distance)
{
    reduce_sums b;
    b.sum = ks_shuffle(a.sum, distance);
    b.squares = ks_shuffle(a.squares, distance);
    return b;
}

template <class S>
struct reduce_moments {
    typedef S Source;
    typedef typename S::W W;
    typedef reduce_sums State;
    typedef typename S::Out Out;
    struct Acc {
        W first;
        reduce_sums sums;
    };
    static constexpr bool ORDERS = S::INTEGERS, PLACES = false;
    reduce_rule rule;
    reduce_extra extra;
    static __device__ __forceinline__ Acc start_at(W first)
    {
        return {first, {0, 0}};
    }
    static __device__ __forceinline__ W element(const Acc &acc)
    {
        return acc.first;
    }
    template <int C, int N>
    __device__ __forceinline__ void take(Acc (&acc)[C], const W (&x)[C][N], int) const
    {
#pragma unroll
        for (int c = 0; c < C; c++) {
            const double first = (double)acc[c].first;
#pragma unroll
            for (int i = 0; i < N; i++) {
                const double d = (double)x[c][i] - first;
                acc[c].sums.sum += d;
                acc[c].sums.squares = fma(d, d, acc[c].sums.squares);
            }
        }
    }
    template <class At>
    __device__ __forceinline__ State finish(const Acc &acc, bool, At) const
    {
        return acc.sums;
    }
    static __device__ __forceinline__ State none()
    {
        return {0, 0};
    }
    static __device__ __forceinline__ State join(State a, State b)
    {
        return {a.sum + b.sum, a.squares + b.squares};
    }
    __device__ __forceinline__ State across(State mine, int lanes) const
    {
        return reduce_across_lanes(*this, mine, lanes);
    }
    __device__ __forceinline__ Out result(State s) const
    {
        const double apart = s.squares - s.sum * (s.sum / rule.count), freedom = rule.count - extra.ddof;
        const double var = freedom > 0 ? (apart < 0 ? 0 : apart) / freedom : (double)NAN;
        return S::result(extra.root ? sqrt(var) : var);
    }
};

template <class S>
constexpr bool reduce_shifts<reduce_moments<S>> = true;

#endif
