/* Items in falling order by a CTA, in registers: bitonic, a thread has EACH neighbouring places. Strides below EACH are a thread's own, the next ones
 * a warp's by shuffles, and only the longest pass through shared memory; there every one would take a reading and a writing of all items.
 *
 * Threads  the CTA, a power of two of whole warps; all of it calls each function here. */
#ifndef KS_TOPK_SORT_CUH
#define KS_TOPK_SORT_CUH

#include "cuda/topk/common.cuh"

__device__ __forceinline__ topk_wide ks_shuffle(topk_wide x, int distance)
{
    return (topk_wide)ks_shuffle((uint64_t)(x >> 64), distance) << 64 | ks_shuffle((uint64_t)x, distance);
}

/* The strides of a size that stay in a thread. first: the place of its first item. */
template <class Item, int EACH>
__device__ __forceinline__ void topk_sort_own(Item (&x)[EACH], uint32_t first, uint32_t size)
{
#pragma unroll
    for (int stride = EACH / 2; stride > 0; stride /= 2) {
        if (2 * (uint32_t)stride > size) continue;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            if (e & stride) continue;
            const Item a = x[e], b = x[e + stride];
            const bool falls = ((first + (uint32_t)e) & size) == 0;
            if ((a < b) == falls) {
                x[e] = b;
                x[e + stride] = a;
            }
        }
    }
}

/* One stride between threads; through shared memory where they are of several warps. Item e of a thread lies beside those of its neighbours. */
template <class Item, int EACH>
__device__ __forceinline__ void topk_sort_across(Item (&x)[EACH], Item *items, uint32_t first, uint32_t size,
                                                 uint32_t stride)
{
    const uint32_t distance = stride / EACH;
    const bool greater = ((first & size) == 0) == ((first & stride) == 0);
    if (distance >= KS_WARP) {
#pragma unroll
        for (int e = 0; e < EACH; e++) items[e * blockDim.x + threadIdx.x] = x[e];
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const Item other =
            distance >= KS_WARP ? items[e * blockDim.x + (threadIdx.x ^ distance)] : ks_shuffle(x[e], (int)distance);
        x[e] = (other > x[e]) == greater ? other : x[e];
    }
    if (distance >= KS_WARP) __syncthreads();
}

/* EACH items for each thread of the CTA, in shared memory. */
template <int EACH, class Item>
__device__ __forceinline__ void topk_sort_held(Item *items)
{
    const uint32_t places = EACH * blockDim.x, first = EACH * threadIdx.x;
    Item x[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) x[e] = items[e * blockDim.x + threadIdx.x]; /* in any order */
    __syncthreads();
#pragma unroll 1
    for (uint32_t size = 2; size <= places; size *= 2) {
#pragma unroll 1
        for (uint32_t stride = size / 2; stride >= EACH; stride /= 2) topk_sort_across(x, items, first, size, stride);
        topk_sort_own(x, first, size);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) items[first + e] = x[e];
    __syncthreads();
}

#endif
