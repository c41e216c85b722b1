/* The launches of topk for one type of element: which instance of a kernel an algorithm means. */
#ifndef KS_TOPK_LAUNCH_CUH
#define KS_TOPK_LAUNCH_CUH

#include "cuda/topk/plan.h"
#include "cuda/topk/row_block.cuh"
#include "cuda/topk/row_warp.cuh"

template <class T>
static cudaError_t topk_go_as(const topk_launch &go)
{
    const dim3 grid((unsigned)go.c.grid, (unsigned)go.bucket);
    const size_t shared = (size_t)go.c.shared_bytes;
    if (go.c.family == TOPK_WARP)
        return ks_launch(topk_row_warp<T>, grid, go.c.threads, shared, false, go.stream, go.site, go.s,
                         (int)go.c.places);
    if (go.c.strided)
        return ks_launch(topk_row_block<T, true>, grid, go.c.threads, shared, false, go.stream, go.site, go.s);
    return ks_launch(topk_row_block<T, false>, grid, go.c.threads, shared, false, go.stream, go.site, go.s);
}

template <class T>
static cudaError_t topk_allow_as(int shared_bytes)
{
    const void *const kernels[] = {(const void *)topk_row_warp<T>, (const void *)topk_row_block<T, true>,
                                   (const void *)topk_row_block<T, false>};
    cudaError_t status = cudaSuccess;
    for (const void *kernel : kernels)
        if (status == cudaSuccess)
            status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    return status;
}

#endif
