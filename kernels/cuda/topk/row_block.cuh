/* topk of rows by CTAs: a row by one, or, where rows are few and long, a part of it by each of several; the last of them that is done joins
 * what they have left in the workspace. Elements are read once.
 *
 * Shapes   any.
 * Threads  128 or 256; shared memory: s.slack items and a chunk of elements, at least k's next power of two.
 * Order    which CTA comes last, and in what order items lie, changes no answer: items differ, and are sorted at the end. */
#ifndef KS_TOPK_ROW_BLOCK_CUH
#define KS_TOPK_ROW_BLOCK_CUH

#include "cuda/topk/counted.cuh"

/* What the parts of a row hand in. Each has k places, or, where the row has been counted and parts have few items, they follow one another. */
template <class Item>
struct topk_row_items {
    Item *items;
    uint32_t *ticket, *count; /* count: counted */

    __device__ __forceinline__ topk_row_items(const topk_shape &s, const ks_site &site, int64_t row)
        : items((Item *)(void *)ks_workspace(site) + row * s.parts * s.k), ticket(ks_counters(site) + row),
          count(ks_counters(site) + 2 * s.rows + row)
    {
    }
    /* The CTA's best `mine` of a part. How many the row's are, in the CTA that is the last one of the row; 0 in others. */
    __device__ __forceinline__ uint32_t hand_in(const topk_shape &s, int64_t part, topk_state<Item> &state,
                                                const Item *best, uint32_t mine) const
    {
        const uint32_t k = (uint32_t)s.k, places = s.counted ? mine : k;
        if (threadIdx.x == 0) state.place = s.counted ? atomicAdd(count, mine) : (uint32_t)part * k;
        __syncthreads();
        Item *const to = items + state.place;
        for (uint32_t i = threadIdx.x; i < places; i += blockDim.x) topk_leave(to + i, i < mine ? best[i] : (Item)0);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            const bool last = atomicAdd(ticket, 1u) == (uint32_t)s.parts - 1;
            state.place = !last ? 0 : s.counted ? __ldcg(count) : (uint32_t)s.parts * k;
            if (last) *ticket = 0;
            if (last && s.counted) *count = 0;
        }
        __syncthreads();
        __threadfence();
        return state.place;
    }
};

/* What a row's best k exceed, where it is counted: by another launch, or by this CTA, which has all of the row. bins: memory that is free. */
template <class T, bool STRIDED>
__device__ __forceinline__ topk_item<T> topk_start(const topk_shape &s, const ks_site &site,
                                                   const topk_elements<T, STRIDED> &source, int64_t row,
                                                   topk_state<topk_item<T>> &state, uint32_t *bins)
{
    if (!s.counted) return 0;
    if (s.parts > 1) return topk_thresholds<T>(s, site)[row];
    topk_count<2>(source, bins); /* more vectors spill */
    return topk_counted<T>(state, bins, (uint32_t)s.k);
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
    if (!(s.counted && s.parts > 1 ? ks_enter_again(site, &job) : ks_enter(site, &job))) return;
    for (int i = threadIdx.x; i < TOPK_BINS; i += blockDim.x) state.bins[i] = 0;
#pragma unroll 1
    for (int64_t at = blockIdx.x; at < s.rows * s.parts; at += gridDim.x) {
        const int64_t row = at / s.parts, part = at - row * s.parts;
        const topk_elements<T, STRIDED> source(s, job, row, part);
        const item start = topk_start<T, STRIDED>(s, site, source, row, state, (uint32_t *)(void *)ks_dynamic);
        const uint32_t count = topk_select(source, s, top, state, items, start);
        if (s.parts > 1) {
            const topk_row_items<item> all(s, site, row);
            const uint32_t handed_in = all.hand_in(s, part, state, items, count);
            if (!handed_in) continue;
            topk_select(topk_candidates<item>{all.items, (int64_t)handed_in}, s, top, state, items);
        }
        topk_order(state, items, (uint32_t)s.k);
        for (int j = threadIdx.x; j < s.k; j += blockDim.x) topk_write<T>(s, job, row, j, items[j]);
        __syncthreads();
    }
    ks_leave(site);
}

#endif
