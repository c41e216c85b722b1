/* The best k of each query's scores by a CTA: what exceeds the query's threshold comes into its places in shared memory; when these are
 * full, all but the best k are dropped, and the worst of them is the new threshold. Of rows in random order some k ln(n / k) come in.
 *
 * Sharing  k of a part are many more than it has of the k best. So each part leaves the key of its own_rank-th best in a counter, where all
 *          read it: shared_rank of them that reach a key are k items, own_rank * shared_rank >= k, and what is below that key is dropped.
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
};

__device__ __forceinline__ void search_open(search_state &state, int queries)
{
    for (int q = threadIdx.x; q < queries; q += blockDim.x) {
        state.threshold[q] = 0;
        state.least[q] = -INFINITY;
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

/* Of the keys, the one that so many reach, by a warp; 0: fewer have a key. */
__device__ __forceinline__ uint32_t search_reached(const uint32_t *keys, int count, int by)
{
    constexpr int EACH = (int)SEARCH_SHARING_PARTS / KS_WARP;
    uint32_t key[EACH], reached = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = i * KS_WARP + (int)threadIdx.x % KS_WARP;
        key[i] = at < count ? *(const volatile uint32_t *)(keys + at) : 0;
    }
#pragma unroll 1
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        int found = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (i * KS_WARP < count) found += __popc(__ballot_sync(0xFFFFFFFFu, key[i] >= (reached | bit)));
        if (found >= by) reached |= bit;
    }
    return reached;
}

/* Leaves what the part knows of each query, and takes what all parts have left. keys: of the group, s.parts of each query. The CTA, which is
 * synchronised before and after. */
__device__ __forceinline__ void search_share(const search_shape &s, search_state &state, uint64_t *items, int queries,
                                             uint32_t *keys, int64_t part)
{
    const int warps = blockDim.x / KS_WARP, lane_id = threadIdx.x % KS_WARP;
    search_drop_all(s, state, items, queries, (uint32_t)s.own_rank);
    for (int q = threadIdx.x / KS_WARP; q < queries; q += warps) {
        uint32_t *const of = keys + (int64_t)q * s.parts;
        if (lane_id == 0 && state.count[q] >= (uint32_t)s.own_rank)
            *(volatile uint32_t *)(of + part) = (uint32_t)(items[(int64_t)q * s.places + s.own_rank - 1] >> 32);
        const uint32_t key = search_reached(of, s.parts, s.shared_rank);
        const uint64_t below = ((uint64_t)key << 32) - 1;
        if (lane_id == 0 && key && below > state.threshold[q]) {
            state.threshold[q] = below;
            state.least[q] = search_score((uint64_t)key << 32);
        }
    }
    __syncthreads();
}

/* A thread's scores of rows by queries, of which it works each one out where it is asked for. */
template <class SUMS>
struct search_scores {
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
    /* Puts those that exceed their query's threshold into its places: those that found none. */
    __device__ __forceinline__ uint64_t put(search_state &into, uint64_t *items, uint64_t waiting) const
    {
        uint64_t left = 0;
#pragma unroll
        for (int c = 0; c < SUMS::COLUMNS; c++)
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
        return left;
    }
};

#endif
