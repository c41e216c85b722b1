/* The best k of each query's scores by a CTA: what exceeds the query's threshold comes into its places in shared memory; when these are
 * full, all but the best k are dropped, and the worst of them is the new threshold. Of rows in random order some k ln(n / k) come in.
 *
 * Bounds   of random rows, all that a part has of first ones would pass. So what the first rows of all parts have left bounds those behind
 *          them from the beginning (search_bound), and few of these pass.
 * Order    which thread comes first, and what others have left when, changes no answer: items differ, and what is dropped is behind k
 *          others. */
#ifndef KS_SEARCH_SELECT_CUH
#define KS_SEARCH_SELECT_CUH

#include "cuda/search/common.cuh"
#include "cuda/topk/common.cuh"

enum { SEARCH_GROUP_MOST = 64, SEARCH_WARP_SORTS = 256 /* places that a warp sorts by itself, at most */ };

/* Of each query of a group. */
struct search_state {
    uint64_t threshold[SEARCH_GROUP_MOST]; /* items that do not exceed it are not among the first k */
    float least[SEARCH_GROUP_MOST];        /* its score: what is below it needs no closer look */
    float norm[SEARCH_GROUP_MOST];         /* of the query: its square, or 1 over its root for cosine */
    uint32_t count[SEARCH_GROUP_MOST];     /* items, and those that found no place */
    uint32_t raised;                       /* a warp has a score that found no place */
};

/* bounds: of the queries, or NULL. */
__device__ __forceinline__ void search_open(search_state &state, int queries, const uint64_t *bounds)
{
    if (threadIdx.x == 0) state.raised = 0;
    for (int q = threadIdx.x; q < queries; q += blockDim.x) {
        const uint64_t bound = bounds ? bounds[q] : 0;
        state.threshold[q] = bound;
        state.least[q] = bound ? search_score(bound) : -INFINITY;
        state.count[q] = 0;
    }
}

/* Keeps the best k of a query's items, in order. threads: a warp, or the CTA. */
__device__ __forceinline__ void search_drop(const search_shape &s, search_state &state, uint64_t *items, int query,
                                            uint32_t thread, uint32_t threads)
{
    const uint32_t count = min(state.count[query], (uint32_t)s.places);
    for (uint32_t i = count + thread; i < (uint32_t)s.places; i += threads) items[i] = 0;
    if (threads == KS_WARP)
        __syncwarp();
    else
        __syncthreads();
    topk_sort(items, (uint32_t)s.places, thread, threads);
    if (thread == 0) {
        state.count[query] = min(count, (uint32_t)s.k);
        if (count >= (uint32_t)s.k) {
            state.threshold[query] = items[s.k - 1];
            state.least[query] = search_score(items[s.k - 1]);
        }
    }
}

/* All queries that have at least so many items; the CTA, which is synchronised before and after. */
__device__ __forceinline__ void search_drop_all(const search_shape &s, search_state &state, uint64_t *items,
                                                int queries, uint32_t least)
{
    const int warp = threadIdx.x / KS_WARP, warps = blockDim.x / KS_WARP;
    if (s.places <= SEARCH_WARP_SORTS) {
        for (int q = warp; q < queries; q += warps)
            if (state.count[q] >= least)
                search_drop(s, state, items + (int64_t)q * s.places, q, threadIdx.x % KS_WARP, KS_WARP);
    } else {
        for (int q = 0; q < queries; q++) {
            const bool full = state.count[q] >= least;
            __syncthreads();
            if (full) search_drop(s, state, items + (int64_t)q * s.places, q, threadIdx.x, blockDim.x);
        }
    }
    __syncthreads();
}

/* A thread's scores of rows by queries, of which it works each one out where it is asked for. */
template <class SUMS>
struct search_scores {
    static constexpr uint64_t ROW_BITS = ((uint64_t)1 << SUMS::ROWS) - 1;

    const SUMS &sums;
    const search_shape &s;
    const search_state &state;
    int64_t row;            /* the warp's first */
    float bias[SUMS::ROWS]; /* what is added to a score, the larger the better */
    uint32_t there;         /* rows that take part, one bit each */

    __device__ __forceinline__ search_scores(const SUMS &of, const search_shape &shape, const search_state &all,
                                             const ks_job_sides &job, int64_t first, int64_t end)
        : sums(of), s(shape), state(all), row(first), there(0)
    {
#pragma unroll
        for (int r = 0; r < SUMS::ROWS; r++) {
            const int64_t at = row + SUMS::row_of(r);
            bias[r] = 0;
            if (at >= end || (s.masked && !job.in[s.mask + at])) continue;
            there |= 1u << r;
            if (s.biased) bias[r] = ((const float *)(job.in + s.bias))[at];
            if (s.metric == KS_SEARCH_L2) bias[r] = -bias[r];
        }
    }
    /* Never -0. */
    __device__ __forceinline__ float score(int r, int c, int query) const
    {
        return SUMS::score(s.metric, sums.sum_of(r, c), sums.square_of(r), state.norm[query]) + bias[r] + 0.0f;
    }
    /* Those that may be above their query's threshold, one bit each. */
    __device__ __forceinline__ uint64_t look(int queries) const
    {
        uint64_t waiting = 0;
#pragma unroll
        for (int c = 0; c < SUMS::COLUMNS; c++) {
            const int query = SUMS::query_of(c);
            if (query >= queries) continue;
            const float least = state.least[query];
#pragma unroll
            for (int r = 0; r < SUMS::ROWS; r++)
                if (there >> r & 1 && !(score(r, c, query) < least)) waiting |= (uint64_t)1 << (c * SUMS::ROWS + r);
        }
        return waiting;
    }
    /* Leaves an item of each of a part's first rows, 0 of one that takes no part. to: of the group's first query and the part; at: where the
     * warp's first row lies among them. */
    __device__ __forceinline__ void leave(uint64_t *to, int queries, int64_t at) const
    {
#pragma unroll
        for (int r = 0; r < SUMS::ROWS; r++) {
            const int64_t place = at + SUMS::row_of(r);
            if (place >= s.first) continue;
#pragma unroll
            for (int c = 0; c < SUMS::COLUMNS; c++) {
                const int query = SUMS::query_of(c);
                if (query >= queries) continue;
                const bool takes_part = there >> r & 1;
                to[query * s.parts * s.first + place] =
                    takes_part ? search_item(score(r, c, query), row + SUMS::row_of(r)) : 0;
            }
        }
    }
    /* Puts those that exceed their query's threshold into its places: those that found none. Of most columns no lane has any. */
    __device__ __forceinline__ uint64_t put(search_state &into, uint64_t *items, uint64_t waiting) const
    {
        uint64_t left = 0;
#pragma unroll
        for (int c = 0; c < SUMS::COLUMNS; c++) {
            if (SUMS::COLUMNS > 1 && !__any_sync(0xFFFFFFFFu, (waiting >> c * SUMS::ROWS & ROW_BITS) != 0)) continue;
#pragma unroll
            for (int r = 0; r < SUMS::ROWS; r++) {
                const uint64_t bit = (uint64_t)1 << (c * SUMS::ROWS + r);
                if (!(waiting & bit)) continue;
                const int query = SUMS::query_of(c);
                const uint64_t item = search_item(score(r, c, query), row + SUMS::row_of(r));
                if (item <= state.threshold[query]) continue;
                const uint32_t at = atomicAdd(&into.count[query], 1u);
                if (at < (uint32_t)s.places)
                    items[(int64_t)query * s.places + at] = item;
                else
                    left |= bit;
            }
        }
        return left;
    }
};

/* Puts a warp's scores into places. Where some warp's have found none the CTA is synchronised, so that a query's items are dropped while no warp
 * puts any: until then warps go on by themselves. more: the warp had rows; one that has none left waits for the others. Returns
 * whether all are through. */
template <class SUMS>
__device__ __forceinline__ bool search_keep(const search_scores<SUMS> &scores, search_state &state, uint64_t *items,
                                            int queries, bool more)
{
    uint64_t waiting = scores.look(queries);
    for (;;) {
        if (__any_sync(0xFFFFFFFFu, waiting != 0)) waiting = scores.put(state, items, waiting);
        const bool stuck = __any_sync(0xFFFFFFFFu, waiting != 0);
        uint32_t raised = 0;
        if (threadIdx.x % KS_WARP == 0) raised = atomicOr(&state.raised, stuck ? 1u : 0u);
        if (more && !stuck && !__any_sync(0xFFFFFFFFu, raised != 0)) return false;
        if (!__syncthreads_or(stuck || more)) return true;
        if (threadIdx.x == 0) state.raised = 0;
        search_drop_all(scores.s, state, items, queries, (uint32_t)scores.s.places);
        if (more && !stuck) return false;
    }
}

#endif
