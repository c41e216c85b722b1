/* The answer of each query, by a CTA: the best k of what the parts of the matrix have left, in order. */
#ifndef KS_SEARCH_MERGE_CUH
#define KS_SEARCH_MERGE_CUH

#include "cuda/search/common.cuh"
#include "cuda/topk/select.cuh"

__global__ void __launch_bounds__(SEARCH_MERGE_THREADS, 2)
    search_merge(ks_site site, const __grid_constant__ search_shape s, const __grid_constant__ topk_shape best)
{
    __shared__ topk_state<uint64_t> state;
    uint64_t *const items = (uint64_t *)ks_dynamic;
    const bool smallest = s.metric == KS_SEARCH_L2;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    for (int i = threadIdx.x; i < TOPK_BINS; i += blockDim.x) state.bins[i] = 0;
#pragma unroll 1
    for (int64_t query = blockIdx.x; query < s.queries; query += gridDim.x) {
        const int64_t left = (int64_t)s.parts * s.k;
        const uint64_t *const from = (const uint64_t *)ks_workspace(site) + query * left;
        const uint32_t count = topk_select(topk_candidates<uint64_t>{from, left}, best, 64, state, items);
        for (uint32_t i = count + threadIdx.x; i < (uint32_t)s.k; i += blockDim.x) items[i] = 0;
        __syncthreads();
        topk_order(state, items, (uint32_t)s.k);
        if (s.shared_rank)
            for (int i = threadIdx.x; i < s.parts; i += blockDim.x) ks_counters(site)[query * s.parts + i] = 0;
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
