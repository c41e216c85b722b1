/* What parts of the matrix have left, by a CTA for each query: a bound for the rows behind the first ones, and the answer, the best k in
 * order. */
#ifndef KS_SEARCH_MERGE_CUH
#define KS_SEARCH_MERGE_CUH

#include "cuda/search/common.cuh"
#include "cuda/topk/select.cuh"

/* Items in memory, in any order, 0 for none. */
struct search_left : topk_candidates<uint64_t> {
    /* A threshold from the first chunk: of each warp's lanes, by the best of each, the one so far down that all warps together have k items
     * that are as good. So a chunk of a thousand items is not pruned to begin with. */
    __device__ __forceinline__ void bound(const chunk &from, int k, topk_state<uint64_t> &state) const
    {
        const int warps = (int)blockDim.x / KS_WARP, lanes = (k + warps - 1) / warps, lane_id = threadIdx.x % KS_WARP;
        if (lanes > KS_WARP) return;
        uint64_t best = 0;
        int rank = 0;
#pragma unroll
        for (int v = 0; v < EACH; v++) best = max(best, from.v[v]);
#pragma unroll
        for (int other = 1; other < KS_WARP; other++) {
            const uint64_t theirs = ks_shuffle(best, other);
            rank += theirs > best || (theirs == best && (lane_id ^ other) < lane_id);
        }
        if (rank == lanes - 1) state.bests[threadIdx.x / KS_WARP] = best;
        __syncthreads();
        uint64_t least = state.bests[0];
        for (int w = 1; w < warps; w++) least = min(least, state.bests[w]);
        if (threadIdx.x == 0) state.threshold = least ? least - 1 : 0;
        __syncthreads();
    }
};

__device__ __forceinline__ void search_clear(topk_state<uint64_t> &state)
{
    for (int i = threadIdx.x; i < TOPK_BINS; i += blockDim.x) state.bins[i] = 0;
}

/* The first rows' items of a query. */
__device__ __forceinline__ search_left search_firsts(const search_shape &s, const unsigned char *workspace,
                                                     int64_t query)
{
    search_left left;
    left.count = s.parts * s.first;
    left.data = (const uint64_t *)(workspace + s.firsts) + query * left.count;
    return left;
}

/* The best k of the first rows are the first ones that are left, and what does not exceed their last one is not among the k best of all. */
__global__ void __launch_bounds__(SEARCH_MERGE_THREADS, 1)
    search_bound(ks_site site, const __grid_constant__ search_shape s, const __grid_constant__ topk_shape best)
{
    __shared__ topk_state<uint64_t> state;
    uint64_t *const items = (uint64_t *)ks_dynamic;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    unsigned char *const workspace = ks_workspace(site);
    search_clear(state);
#pragma unroll 1
    for (int64_t query = blockIdx.x; query < s.queries; query += gridDim.x) {
        const uint32_t count = topk_select(search_firsts(s, workspace, query), best, 64, state, items);
        uint64_t *const to = (uint64_t *)workspace + query * s.left;
        for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = items[i];
        if (threadIdx.x > 0) continue;
        ((uint64_t *)(workspace + s.bounds))[query] = state.threshold;
        ((uint32_t *)(workspace + s.counts))[query] = count;
    }
}

__global__ void __launch_bounds__(SEARCH_MERGE_THREADS, 1)
    search_merge(ks_site site, const __grid_constant__ search_shape s, const __grid_constant__ topk_shape best)
{
    __shared__ topk_state<uint64_t> state;
    uint64_t *const items = (uint64_t *)ks_dynamic;
    const bool smallest = s.metric == KS_SEARCH_L2;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const unsigned char *const workspace = ks_workspace(site);
    search_clear(state);
#pragma unroll 1
    for (int64_t query = blockIdx.x; query < s.queries; query += gridDim.x) {
        search_left left = search_firsts(s, workspace, query);
        if (!s.leaves_all) {
            left.data = (const uint64_t *)workspace + query * s.left;
            left.count = s.bounded ? (int64_t)((const uint32_t *)(workspace + s.counts))[query] : s.left;
        }
        const uint32_t count = topk_select(left, best, 64, state, items);
        for (uint32_t i = count + threadIdx.x; i < (uint32_t)s.k; i += blockDim.x) items[i] = 0;
        __syncthreads();
        topk_order(state, items, (uint32_t)s.k);
        for (int j = threadIdx.x; j < s.k; j += blockDim.x) {
            const uint64_t item = items[j];
            const float score = item ? search_score(item) : -INFINITY;
            ((float *)(job.out + s.scores))[query * s.k + j] = (smallest ? -score : score) + 0.0f;
            ((int64_t *)(job.out + s.indices))[query * s.k + j] = item ? topk_index(item) : -1;
        }
    }
    ks_leave(site);
}

#endif
