/* A threshold for many of a row's elements before the first of them is kept: how many there are of each first digit of their keys says from which
 * digit on the best k have theirs. So few more than k come into shared memory, where without it some k ln(n / k) would, and be dropped again
 * by parts of 1.5 k. The row is read twice, mostly from the L2.
 *
 * Threads  the CTA, whole warps; all of it calls each function here. */
#ifndef KS_TOPK_COUNTED_CUH
#define KS_TOPK_COUNTED_CUH

#include "cuda/topk/select.cuh"

/* Words of a job's counters for each row of several CTAs: tickets of row_block and of row_count, and items handed in; then the digits. */
enum { TOPK_ROW_WORDS = 3 };

template <class T>
constexpr int topk_digit_shift = T::bits > (int)TOPK_DIGIT_BITS ? T::bits - (int)TOPK_DIGIT_BITS : 0;

/* Counts a vector's elements, those of the row. */
template <class T, bool STRIDED>
__device__ __forceinline__ void topk_count_vector(const topk_elements<T, STRIDED> &source,
                                                  const typename topk_elements<T, STRIDED>::vector &v, int64_t at,
                                                  uint32_t *bins)
{
    constexpr int LENGTH = topk_elements<T, STRIDED>::LENGTH;
    if (at >= source.end) return;
    const int64_t index = at * LENGTH - source.skip;
    const int least = index < 0 ? (int)-index : 0, end = (int)min(source.s.length - index, (int64_t)LENGTH);
#pragma unroll
    for (int e = 0; e < LENGTH; e++) {
        const typename T::key key = topk_key_of<T>(v.element[e], (typename T::key)source.s.flip);
        if (e >= least && e < end) atomicAdd(&bins[(uint32_t)(key >> topk_digit_shift<T>)], 1u);
    }
}

/* Counts a part of a row in bins in shared memory. VECTORS: of a thread in flight. */
template <int VECTORS, class T, bool STRIDED>
__device__ __forceinline__ void topk_count(const topk_elements<T, STRIDED> &source, uint32_t *bins)
{
    constexpr int AHEAD = STRIDED ? 4 * VECTORS : VECTORS;
    for (int i = threadIdx.x; i < TOPK_DIGITS; i += blockDim.x) bins[i] = 0;
    __syncthreads();
#pragma unroll 1
    for (int64_t at = source.begin + threadIdx.x; at < source.end; at += AHEAD * (int)blockDim.x) {
        typename topk_elements<T, STRIDED>::vector v[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (at + i * (int)blockDim.x < source.end) source.load_vector(v[i], at + i * (int)blockDim.x);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) topk_count_vector<T, STRIDED>(source, v[i], at + i * (int)blockDim.x, bins);
    }
    __syncthreads();
}

/* What all items with the digit in which the k-th best lies exceed, and none with a lower one; all threads' bins hold k or more. */
template <class T>
__device__ __forceinline__ topk_item<T> topk_counted(topk_state<topk_item<T>> &state, const uint32_t *bins, uint32_t k)
{
    const int each = TOPK_DIGITS / (int)blockDim.x, first = TOPK_DIGITS - 1 - (int)threadIdx.x * each;
    const uint32_t lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    uint32_t mine = 0, before = 0;
    for (int i = 0; i < each; i++) mine += bins[first - i];
    uint32_t all = mine;
#pragma unroll
    for (int distance = 1; distance < KS_WARP; distance *= 2) {
        const uint32_t other = ks_shuffle(all, distance);
        before += lane_id & (uint32_t)distance ? other : 0;
        all += other;
    }
    if (lane_id == 0) state.bests[warp] = all;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++) before += (uint32_t)state.bests[w];
    if (before < k && before + mine >= k) {
        int digit = first;
        for (; before + bins[digit] < k; digit--) before += bins[digit];
        state.threshold = (topk_item<T>)((typename T::key)digit << topk_digit_shift<T>) << topk_shift<topk_item<T>>;
    }
    __syncthreads();
    return state.threshold;
}

__device__ __forceinline__ uint32_t *topk_row_bins(const topk_shape &s, const ks_site &site, int64_t row)
{
    return ks_counters(site) + s.rows * TOPK_ROW_WORDS + row * TOPK_DIGITS;
}

template <class T>
__device__ __forceinline__ topk_item<T> *topk_thresholds(const topk_shape &s, const ks_site &site)
{
    return (topk_item<T> *)(void *)(ks_workspace(site) + s.thresholds);
}

/* A part's counts, to those of its row. True in the CTA that is the last one of the row, which takes all of them, and leaves zeros. */
template <class Item>
__device__ __forceinline__ bool topk_add_counts(const topk_shape &s, const ks_site &site, int64_t row,
                                                topk_state<Item> &state, uint32_t *bins)
{
    uint32_t *const all = topk_row_bins(s, site, row), *const ticket = ks_counters(site) + s.rows + row;
    for (int i = threadIdx.x; i < TOPK_DIGITS; i += blockDim.x)
        if (bins[i]) atomicAdd(all + i, bins[i]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        state.last = atomicAdd(ticket, 1u) == (uint32_t)s.parts - 1;
        if (state.last) *ticket = 0;
    }
    __syncthreads();
    __threadfence();
    if (!state.last) return false;
    for (int i = threadIdx.x; i < TOPK_DIGITS; i += blockDim.x) {
        bins[i] = __ldcg(all + i);
        all[i] = 0;
    }
    __syncthreads();
    return true;
}

/* The threshold of each row that several CTAs select from: in front of row_block, with as many parts. */
template <class T, bool STRIDED>
__global__ void __launch_bounds__(TOPK_THREADS_MOST, topk_ctas_sm(STRIDED, T::bits))
    topk_row_count(ks_site site, const __grid_constant__ topk_shape s)
{
    __shared__ topk_state<topk_item<T>> state;
    __shared__ uint32_t bins[TOPK_DIGITS];
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
#pragma unroll 1
    for (int64_t at = blockIdx.x; at < s.rows * s.parts; at += gridDim.x) {
        const int64_t row = at / s.parts;
        topk_count<4>(topk_elements<T, STRIDED>(s, job, row, at - row * s.parts), bins);
        if (topk_add_counts(s, site, row, state, bins)) {
            const topk_item<T> threshold = topk_counted<T>(state, bins, (uint32_t)s.k);
            if (threadIdx.x == 0) topk_thresholds<T>(s, site)[row] = threshold;
        }
        __syncthreads();
    }
}

#endif
