/* topk of short rows: each is sorted by a warp, in shared memory.
 *
 * Shapes   rows of up to TOPK_ROW_WARP elements, along any axis.
 * Threads  32 to 256; shared memory: `places` items for each warp, a power of two of at least the length and 64. */
#ifndef KS_TOPK_ROW_WARP_CUH
#define KS_TOPK_ROW_WARP_CUH

#include "cuda/topk/common.cuh"

template <class T>
__global__ void __launch_bounds__(256) topk_row_warp(ks_site site, const __grid_constant__ topk_shape s, int places)
{
    typedef topk_item<T> item;
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP, warps = blockDim.x / KS_WARP;
    item *const items = (item *)ks_dynamic + warp * places;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
#pragma unroll 1
    for (int64_t row = (int64_t)blockIdx.x * warps + warp; row < s.rows; row += (int64_t)gridDim.x * warps) {
        const int64_t outer = row / s.inner;
        const typename T::word *const in =
            (const typename T::word *)(job.in + s.in) + outer * s.length * s.inner + (row - outer * s.inner);
        for (int i = lane_id; i < places; i += KS_WARP)
            items[i] =
                i < s.length ? topk_item_of<T>(topk_key_of<T>(in[i * s.inner], (typename T::key)s.flip), i) : (item)0;
        __syncwarp();
        topk_sort(items, (uint32_t)places, (uint32_t)lane_id, (uint32_t)KS_WARP);
        for (int j = lane_id; j < s.k; j += KS_WARP) topk_write<T>(s, job, row, j, items[j]);
        __syncwarp();
    }
    ks_leave(site);
}

#endif
