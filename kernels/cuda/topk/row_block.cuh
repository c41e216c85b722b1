/* topk of rows by CTAs: a row by one, or, where rows are few and long, a part of it by each of several; the last of them that is done joins
 * what they have left in the workspace. Elements are read once.
 *
 * Shapes   any.
 * Threads  128 or 256; shared memory: s.slack items and a chunk of elements, at least k's next power of two.
 * Order    which CTA comes last, and in what order items lie, changes no answer: items differ, and are sorted at the end. */
#ifndef KS_TOPK_ROW_BLOCK_CUH
#define KS_TOPK_ROW_BLOCK_CUH

#include "cuda/topk/select.cuh"

/* The CTA's best k of a part, to its place in the workspace. True in the CTA that is the last one of the row. */
template <class Item>
__device__ __forceinline__ bool topk_hand_in(const topk_shape &s, Item *to, uint32_t *counter, topk_state<Item> &state,
                                             const Item *items, uint32_t count)
{
    for (uint32_t i = threadIdx.x; i < (uint32_t)s.k; i += blockDim.x)
        topk_leave(to + i, i < count ? items[i] : (Item)0);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        state.last = atomicAdd(counter, 1u) == (uint32_t)s.parts - 1;
        if (state.last) *counter = 0;
    }
    __syncthreads();
    __threadfence();
    return state.last;
}

template <class T, bool STRIDED>
__global__ void __launch_bounds__(TOPK_THREADS_MOST, topk_ctas_sm(STRIDED, T::bits))
    topk_row_block(ks_site site, const __grid_constant__ topk_shape s)
{
    typedef topk_item<T> item;
    __shared__ topk_state<item> state;
    item *const items = (item *)ks_dynamic;
    const int top = topk_shift<item> + T::bits;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    for (int i = threadIdx.x; i < TOPK_BINS; i += blockDim.x) state.bins[i] = 0;
#pragma unroll 1
    for (int64_t at = blockIdx.x; at < s.rows * s.parts; at += gridDim.x) {
        const int64_t row = at / s.parts, part = at - row * s.parts;
        const uint32_t count = topk_select(topk_elements<T, STRIDED>(s, job, row, part), s, top, state, items);
        if (s.parts > 1) {
            item *const candidates = (item *)ks_workspace(site) + row * s.parts * s.k;
            if (!topk_hand_in(s, candidates + part * s.k, ks_counters(site) + row, state, items, count)) continue;
            topk_select(topk_candidates<item>{candidates, (int64_t)s.parts * s.k}, s, top, state, items);
        }
        topk_order(state, items, (uint32_t)s.k);
        for (int j = threadIdx.x; j < s.k; j += blockDim.x) topk_write<T>(s, job, row, j, items[j]);
    }
    ks_leave(site);
}

#endif
