/* The launches of attention's kernels: which instance an algorithm means. */
#ifndef KS_ATTENTION_LAUNCH_CUH
#define KS_ATTENTION_LAUNCH_CUH

#include "cuda/attention/apart.cuh"
#include "cuda/attention/halves.cuh"
#include "cuda/attention/merge.cuh"
#include "cuda/attention/plan.h"
#include "cuda/attention/wgmma.cuh"

typedef void attention_kernel(ks_site, attention_shape);

static inline cudaError_t attention_go_kernel(const attention_launch &go, attention_kernel *kernel)
{
    const dim3 grid((unsigned)go.c.grid, (unsigned)go.bucket);
    return ks_launch(kernel, grid, ATTENTION_MMA_THREADS, (size_t)go.c.shared_bytes, false, go.stream, go.site, go.a);
}

static inline cudaError_t attention_allow_kernel(attention_kernel *kernel, int shared_bytes)
{
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
}

template <class T>
static cudaError_t attention_go_merge(const attention_launch &go)
{
    const int64_t warps = (int)ATTENTION_MERGE_THREADS / (int)KS_WARP,
                  wanted = (go.a.units * go.a.rows + warps - 1) / warps;
    const dim3 grid((unsigned)(wanted < KS_GRID_MAX ? wanted : (int64_t)KS_GRID_MAX), (unsigned)go.bucket);
    return ks_launch(attention_merge<T>, grid, ATTENTION_MERGE_THREADS, 0, false, go.stream, go.site, go.a);
}

template <class T>
static attention_kernel *attention_halves_of(bool apart, int columns, bool full)
{
    if (apart) {
        if (columns <= 64) return full ? attention_apart<T, 64, true> : attention_apart<T, 64, false>;
        if (columns <= 128) return full ? attention_apart<T, 128, true> : attention_apart<T, 128, false>;
        return full ? attention_apart<T, 256, true> : attention_apart<T, 256, false>;
    }
    if (columns <= 64) return full ? attention_halves<T, 64, true> : attention_halves<T, 64, false>;
    if (columns <= 128) return full ? attention_halves<T, 128, true> : attention_halves<T, 128, false>;
    return attention_halves<T, 256, false>;
}

typedef void attention_mapped_kernel(ks_site, attention_shape, attention_maps);

template <class T>
static attention_mapped_kernel *attention_wgmma_of(int columns)
{
    return columns == 64 ? attention_wgmma<T, 64> : columns == 128 ? attention_wgmma<T, 128> : attention_wgmma<T, 256>;
}

template <class T>
static cudaError_t attention_go_halves(const attention_launch &go)
{
    if (go.c.wgmma)
        return ks_launch(attention_wgmma_of<T>(go.c.columns), dim3((unsigned)go.c.grid, (unsigned)go.bucket),
                         ATTENTION_WGMMA_THREADS, (size_t)go.c.shared_bytes, false, go.stream, go.site, go.a, go.maps);
    const bool full = go.a.vectors && go.a.s.depth == go.c.columns && go.a.s.value_depth == go.c.columns;
    return attention_go_kernel(go, attention_halves_of<T>(go.c.apart, go.c.columns, full));
}

template <class T>
static cudaError_t attention_allow_halves(int shared_bytes)
{
    cudaError_t status = cudaSuccess;
    for (int columns = 64; columns <= 256 && status == cudaSuccess; columns *= 2)
        status = cudaFuncSetAttribute((const void *)attention_wgmma_of<T>(columns),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    for (int i = 0; i < 6 && status == cudaSuccess; i++) {
        const int columns = 64 << i / 2;
        status = attention_allow_kernel(attention_halves_of<T>(true, columns, i % 2), shared_bytes);
        if (status == cudaSuccess)
            status = attention_allow_kernel(attention_halves_of<T>(false, columns, i % 2), shared_bytes);
    }
    return status;
}

#endif
