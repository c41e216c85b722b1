/* The launches of topk for one type of element: which instance of a kernel an algorithm means. */
#ifndef KS_TOPK_LAUNCH_CUH
#define KS_TOPK_LAUNCH_CUH

#include "cuda/topk/plan.h"
#include "cuda/topk/row_block.cuh"
#include "cuda/topk/row_warp.cuh"

/* A row's threshold, and then its parts. */
template <class T, bool STRIDED>
static cudaError_t topk_go_block(const topk_launch &go)
{
    const dim3 grid((unsigned)go.c.grid, (unsigned)go.bucket);
    cudaError_t status = cudaSuccess;
    if (go.s.counted && go.s.parts > 1)
        status = ks_launch(topk_row_count<T, STRIDED>, grid, go.c.threads, 0, false, go.stream, go.site, go.s);
    if (status != cudaSuccess) return status;
    return ks_launch(topk_row_block<T, STRIDED>, grid, go.c.threads, (size_t)go.c.shared_bytes, false, go.stream,
                     go.site, go.s);
}

template <class T>
static cudaError_t topk_go_as(const topk_launch &go)
{
    const dim3 grid((unsigned)go.c.grid, (unsigned)go.bucket);
    if (go.c.family == TOPK_WARP)
        return ks_launch(topk_row_warp<T>, grid, go.c.threads, (size_t)go.c.shared_bytes, false, go.stream, go.site,
                         go.s, (int)go.c.places);
    return go.c.strided ? topk_go_block<T, true>(go) : topk_go_block<T, false>(go);
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
