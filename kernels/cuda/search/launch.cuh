/* The launches of search's streams of 16-bit elements: which instance of the kernel an algorithm means. */
#ifndef KS_SEARCH_LAUNCH_CUH
#define KS_SEARCH_LAUNCH_CUH

#include "cuda/search/halves.cuh"
#include "cuda/search/plan.h"
#include "cuda/search/stream.cuh"

template <class SUMS>
static cudaError_t search_go(const search_launch &go)
{
    const dim3 grid((unsigned)go.c.grid, (unsigned)go.bucket);
    return ks_launch(search_stream<SUMS>, grid, go.c.threads, (size_t)go.c.shared_bytes, false, go.stream, go.site,
                     go.s);
}

template <class SUMS>
static cudaError_t search_allow(int shared_bytes)
{
    return cudaFuncSetAttribute((const void *)search_stream<SUMS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                shared_bytes);
}

template <class T, bool NORMS>
static cudaError_t search_go_tiles(const search_launch &go)
{
    switch (go.c.queries) {
    case 8:
        return search_go<search_halves<T, 1, NORMS>>(go);
    case 16:
        return search_go<search_halves<T, 2, NORMS>>(go);
    case 32:
        return search_go<search_halves<T, 4, NORMS>>(go);
    default:
        return search_go<search_halves<T, 8, NORMS>>(go);
    }
}

template <class T>
static cudaError_t search_go_halves(const search_launch &go)
{
    return go.s.metric == KS_SEARCH_DOT ? search_go_tiles<T, false>(go) : search_go_tiles<T, true>(go);
}

template <class T, bool NORMS>
static cudaError_t search_allow_tiles(int shared_bytes)
{
    cudaError_t status = search_allow<search_halves<T, 1, NORMS>>(shared_bytes);
    if (status == cudaSuccess) status = search_allow<search_halves<T, 2, NORMS>>(shared_bytes);
    if (status == cudaSuccess) status = search_allow<search_halves<T, 4, NORMS>>(shared_bytes);
    return status == cudaSuccess ? search_allow<search_halves<T, 8, NORMS>>(shared_bytes) : status;
}

template <class T>
static cudaError_t search_allow_halves(int shared_bytes)
{
    const cudaError_t status = search_allow_tiles<T, false>(shared_bytes);
    return status == cudaSuccess ? search_allow_tiles<T, true>(shared_bytes) : status;
}

#endif
