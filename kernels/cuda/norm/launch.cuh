/* The launches of norm for one datatype: which instance of a kernel an algorithm means. */
#ifndef KS_NORM_LAUNCH_CUH
#define KS_NORM_LAUNCH_CUH

#include "cuda/norm/plan.h"
#include "cuda/norm/row_any.cuh"
#include "cuda/norm/row_block.cuh"
#include "cuda/norm/row_shifted.cuh"
#include "cuda/norm/row_subwarp.cuh"

/* Clusters of go.c.cluster CTAs. */
template <class... Taken, class... Given>
static cudaError_t norm_run(const norm_launch &go, void (*kernel)(ks_site, norm_shape, Taken...), const Given &...given)
{
    const dim3 grid((unsigned)go.grid, (unsigned)go.bucket);
    if (go.c.cluster == 1)
        return ks_launch(kernel, grid, go.c.threads, go.shared_bytes, false, go.stream, go.site, go.s, given...);
    if (ks_noting) {
        *ks_noting = {(const void *)kernel, go.c.threads, go.shared_bytes};
        return cudaSuccess;
    }
    cudaLaunchAttribute attributes[3] = {};
    cudaLaunchConfig_t config = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = (unsigned)go.c.cluster;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)go.c.threads);
    config.dynamicSmemBytes = go.shared_bytes;
    config.stream = go.stream;
    config.attrs = attributes;
    config.numAttrs = ks_launch_attributes(go.site, go.site.steps & KS_STEP_WAITS, attributes, 1);
    return cudaLaunchKernelEx(&config, kernel, go.site, go.s, given...);
}

/* Packs of W that are wider than T's would not fit the registers four at a time. */
template <class T, class W>
constexpr bool norm_four = sizeof(W) <= sizeof(T);

template <class T, class W>
static cudaError_t norm_run_subwarp(const norm_launch &go)
{
    const int shift = go.c.shift;
    if (go.c.packs == 1) return norm_run(go, norm_row_subwarp<T, W, 1, 4>, shift);
    if (go.c.packs == 2) return norm_run(go, norm_row_subwarp<T, W, 2, 2>, shift);
    if constexpr (norm_four<T, W>) return norm_run(go, norm_row_subwarp<T, W, 4, 1>, shift);
    return cudaErrorInvalidValue;
}

template <class T, class W, bool CLUSTER>
static cudaError_t norm_run_block(const norm_launch &go)
{
    const int cluster = go.c.cluster, share = go.c.share;
    if (go.c.packs == 1) return norm_run(go, norm_row_block<T, W, 1, CLUSTER>, cluster, share, go.stages);
    if (go.c.packs == 2) return norm_run(go, norm_row_block<T, W, 2, CLUSTER>, cluster, share, go.stages);
    if constexpr (norm_four<T, W>) return norm_run(go, norm_row_block<T, W, 4, CLUSTER>, cluster, share, go.stages);
    return cudaErrorInvalidValue;
}

template <class T, class W, bool CLUSTER>
static cudaError_t norm_run_shifted(const norm_launch &go)
{
    const int cluster = go.c.cluster, share = go.c.share;
    if (go.c.packs == 1) return norm_run(go, norm_row_shifted<T, W, 1, CLUSTER>, cluster, share);
    if (go.c.packs == 2) return norm_run(go, norm_row_shifted<T, W, 2, CLUSTER>, cluster, share);
    if constexpr (norm_four<T, W>) return norm_run(go, norm_row_shifted<T, W, 4, CLUSTER>, cluster, share);
    return cudaErrorInvalidValue;
}

template <class T, class W>
static cudaError_t norm_run_rows(const norm_launch &go)
{
    if (go.c.family == NORM_ROW_SUBWARP) return norm_run_subwarp<T, W>(go);
    if (go.c.family == NORM_ROW_SHIFTED) {
        if constexpr (sizeof(T) <= 4)
            return go.c.cluster > 1 ? norm_run_shifted<T, W, true>(go) : norm_run_shifted<T, W, false>(go);
        return cudaErrorInvalidValue;
    }
    return go.c.cluster > 1 ? norm_run_block<T, W, true>(go) : norm_run_block<T, W, false>(go);
}

template <class T, int E>
static cudaError_t norm_run_any(const norm_launch &go)
{
    const int pieces = go.c.pieces, width = go.c.width;
    if (go.c.family == NORM_ROW_ANY)
        return go.c.held ? norm_run(go, norm_row_any<T, E, NORM_HELD>, width)
                         : norm_run(go, norm_row_any<T, E, 0>, width);
    const cudaError_t status = norm_run(go, norm_piece_sums<T, E>, pieces, go.c.piece);
    return status == cudaSuccess ? norm_run(go, norm_piece_values<T, E>, pieces, go.c.piece) : status;
}

template <class T>
static cudaError_t norm_go_as(const norm_launch &go)
{
    if (go.c.family == NORM_ROW_ANY || go.c.family == NORM_PIECES)
        return go.c.vector ? norm_run_any<T, norm_vector<T>>(go) : norm_run_any<T, 1>(go);
    if constexpr (sizeof(T) == 4)
        return norm_run_rows<T, T>(go);
    else
        return go.c.mixed ? norm_run_rows<T, float>(go) : norm_run_rows<T, T>(go);
}

static inline cudaError_t norm_allow_kernel(const void *kernel, int bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

template <class T, class W, int V>
static cudaError_t norm_allow_packs(int bytes)
{
    if constexpr (V == 4 && !norm_four<T, W>) return cudaSuccess;
    cudaError_t status = norm_allow_kernel((const void *)norm_row_block<T, W, V, false>, bytes);
    if (status == cudaSuccess) status = norm_allow_kernel((const void *)norm_row_block<T, W, V, true>, bytes);
    if constexpr (sizeof(T) <= 4) {
        if (status == cudaSuccess) status = norm_allow_kernel((const void *)norm_row_shifted<T, W, V, false>, bytes);
        if (status == cudaSuccess) status = norm_allow_kernel((const void *)norm_row_shifted<T, W, V, true>, bytes);
    }
    return status;
}

template <class T, class W>
static cudaError_t norm_allow_as(int bytes)
{
    cudaError_t status = norm_allow_packs<T, W, 1>(bytes);
    if (status == cudaSuccess) status = norm_allow_packs<T, W, 2>(bytes);
    return status == cudaSuccess ? norm_allow_packs<T, W, 4>(bytes) : status;
}

#endif
