/* Softmax on the GPU: the launch of the kernel that plan.cu has chosen, and what is set once for a device. */
#include "cuda/softmax/plan.h"

#include "cuda/softmax/columns.cuh"
#include "cuda/softmax/column_cluster.cuh"
#include "cuda/softmax/column_multiblock_pipelined.cuh"
#include "cuda/softmax/masked.cuh"
#include "cuda/softmax/row_block_registers.cuh"
#include "cuda/softmax/row_multiblock_pipelined.cuh"
#include "cuda/softmax/row_multiblock_registers.cuh"
#include "cuda/softmax/short_rows.cuh"

#include <string.h>

/* --- launching ------------------------------------------------------------------------------------------------------- */

struct softmax_launch {
    const softmax_algorithm &c;
    const softmax_shape &s;
    ks_site site;
    int bucket;
    cudaStream_t stream;

    template <class... Given>
    cudaError_t operator()(void (*kernel)(ks_site, softmax_shape, Given...), Given... given) const
    {
        if (c.kind == COLUMN_CLUSTER) return cluster(kernel, given...);
        return ks_launch(kernel, dim3((unsigned)c.grid, (unsigned)bucket), c.threads, (size_t)c.shared, c.parts > 1,
                         stream, site, s, given...);
    }

    template <class... Given>
    cudaError_t cluster(void (*kernel)(ks_site, softmax_shape, Given...), Given... given) const
    {
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t config = {};
        if (ks_noting) {
            *ks_noting = {(const void *)kernel, c.threads, (size_t)c.shared};
            return cudaSuccess;
        }
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = (unsigned)c.parts;
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        config.gridDim = dim3((unsigned)c.grid, (unsigned)bucket);
        config.blockDim = dim3((unsigned)c.threads);
        config.dynamicSmemBytes = (size_t)c.shared;
        config.stream = stream;
        config.attrs = &attribute;
        config.numAttrs = c.parts > 1;
        return cudaLaunchKernelEx(&config, kernel, site, s, given...);
    }
};

template <class T>
static cudaError_t launch_row_in_vector(const softmax_launch &go)
{
    if constexpr (sizeof(T) == 8)
        return cudaErrorInvalidValue; /* two elements are a whole vector */
    else if constexpr (sizeof(T) == 4)
        return go(softmax_row_in_vector<T, 2, IN_VECTOR_VECTORS>);
    else
        return go.c.packs == 2 ? go(softmax_row_in_vector<T, 2, IN_VECTOR_VECTORS>)
                               : go(softmax_row_in_vector<T, 4, IN_VECTOR_VECTORS>);
}

template <class T>
static cudaError_t launch_row_elements(const softmax_launch &go)
{
    switch (go.c.shift) {
    case 0:
        return go(softmax_row_elements<T, 0>);
    case 1:
        return go(softmax_row_elements<T, 1>);
    case 2:
        return go(softmax_row_elements<T, 2>);
    case 3:
        return go(softmax_row_elements<T, 3>);
    case 4:
        return go(softmax_row_elements<T, 4>);
    default:
        return go(softmax_row_elements<T, 5>);
    }
}

template <class T, class P>
static cudaError_t go_pipelined(const softmax_launch &go)
{
    return go(softmax_row_multiblock_pipelined<T, P>, (int)go.c.parts, go.c.share);
}

/* NULL: FP64 would spill. */
template <class T>
static const void *whole_row_kernel()
{
    if constexpr (sizeof(T) == 8)
        return NULL;
    else
        return (const void *)softmax_row_multiblock_pipelined<T, row_pipeline_whole>;
}

template <class T>
static cudaError_t launch_pipelined(const softmax_launch &go)
{
    if (go.c.packs == row_pipeline_short::PACKS) return go_pipelined<T, row_pipeline_short>(go);
    if constexpr (sizeof(T) < 8)
        if (go.c.packs == row_pipeline_whole::PACKS) return go_pipelined<T, row_pipeline_whole>(go);
    return go_pipelined<T, row_pipeline_long>(go);
}

template <class T>
static cudaError_t launch_rows(const softmax_launch &go)
{
    const softmax_algorithm &c = go.c;
    switch (c.kind) {
    case ROW_ELEMENTS:
        return launch_row_elements<T>(go);
    case ROW_SUBWARP:
        return c.packs == 1 ? go(softmax_row_subwarp<T, 1, 4>, (int)c.shift)
                            : go(softmax_row_subwarp<T, 2, 2>, (int)c.shift);
    case ROW_IN_VECTOR:
        return launch_row_in_vector<T>(go);
    case ROW_WARP_UNALIGNED:
        return c.packs == 1   ? go(softmax_row_warp_unaligned<T, 1, 2>, (int)c.shift)
               : c.packs == 2 ? go(softmax_row_warp_unaligned<T, 2, 1>, (int)c.shift)
               : c.packs == 3 ? go(softmax_row_warp_unaligned<T, 3, 1>, (int)c.shift)
                              : go(softmax_row_warp_unaligned<T, 4, 1>, (int)c.shift);
    case ROW_BLOCK_REGISTERS:
        return c.packs == 1   ? go(softmax_row_block_registers<T, 1>)
               : c.packs == 2 ? go(softmax_row_block_registers<T, 2>)
               : c.packs == 4 ? go(softmax_row_block_registers<T, 4>)
                              : go(softmax_row_block_registers<T, 8>);
    case ROW_MULTIBLOCK_PIPELINED:
        return launch_pipelined<T>(go);
    case ROW_MULTIBLOCK_REGISTERS:
        return go(softmax_row_multiblock_registers<T>, (int)c.parts, c.share);
    default:
        return go(softmax_row_grid<T>, c.share, (int)c.kept);
    }
}

template <class T, int E, int V>
static cudaError_t launch_column_multiblock_smem(const softmax_launch &go)
{
    const softmax_algorithm &c = go.c;
    return c.beyond
               ? go(softmax_column_multiblock_smem<T, E, V, true>, (int)c.lanes, (int)c.parts, c.share, (int)c.kept)
               : go(softmax_column_multiblock_smem<T, E, V, false>, (int)c.lanes, (int)c.parts, c.share, (int)c.kept);
}

/* FP32 alone. */
template <class T>
static cudaError_t launch_column_cluster(const softmax_launch &go)
{
    if constexpr (sizeof(T) == 4)
        return go(softmax_column_cluster<T>, (int)go.c.lanes, (int)go.c.parts, go.c.share, (int)go.c.kept);
    else
        return cudaErrorInvalidValue;
}

/* Tiles of many packs in a thread: not with FP64. */
template <class T>
static cudaError_t launch_many(const softmax_launch &go)
{
    if constexpr (sizeof(T) == 8)
        return cudaErrorInvalidValue;
    else
        return go.c.kind == COLUMN_BLOCK_REGISTERS
                   ? go(softmax_column_block_registers<T, ks_vector<T>::length, MANY_PACKS>, (int)go.c.lanes)
                   : go(softmax_column_multiblock_pipelined<T>, (int)go.c.lanes, (int)go.c.parts, go.c.share);
}

template <class T>
static cudaError_t launch_as(const softmax_launch &go)
{
    constexpr int E = ks_vector<T>::length, V = sizeof(T) == 8 ? 2 : 4;
    const softmax_algorithm &c = go.c;
    switch (c.kind) {
    case ROWS_SMEM:
        return go.s.inner == 1 ? go(softmax_rows_smem<T, false>, (int)c.blocks, (int)c.shift, (int)c.packs)
                               : go(softmax_rows_smem<T, true>, (int)c.blocks, (int)c.shift, (int)c.packs);
    case COLUMN_BLOCK_REGISTERS:
        return c.pack == 1    ? go(softmax_column_block_registers<T, 1, 16>, (int)c.lanes)
               : c.packs == 4 ? go(softmax_column_block_registers<T, E, 4>, (int)c.lanes)
               : c.packs == 8 ? go(softmax_column_block_registers<T, E, 8>, (int)c.lanes)
                              : launch_many<T>(go);
    case COLUMN_CLUSTER:
        return launch_column_cluster<T>(go);
    case COLUMN_MULTIBLOCK_PIPELINED:
        return launch_many<T>(go);
    case COLUMN_MULTIBLOCK_SMEM:
        return c.pack == 1 ? launch_column_multiblock_smem<T, 1, 8>(go) : launch_column_multiblock_smem<T, E, V>(go);
    default:
        return launch_rows<T>(go);
    }
}

static cudaError_t launch_algorithm(ks_dtype dtype, const softmax_algorithm &c, const softmax_shape &s, ks_site site,
                                    int bucket, cudaStream_t stream)
{
    const softmax_launch go = {c, s, site, bucket, stream};
    switch (dtype) {
    case KS_FP16:
        return launch_as<__half>(go);
    case KS_BF16:
        return launch_as<__nv_bfloat16>(go);
    case KS_FP32:
        return launch_as<float>(go);
    default:
        return launch_as<double>(go);
    }
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    softmax_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    const cudaError_t status =
        ks_softmax_selects(spec) ? softmax_masked_launch(spec, algorithm, site, bucket, stream)
                                 : launch_algorithm(spec->in[0].dtype, c, softmax_shape_of(spec), site, bucket, stream);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "softmax: launch failed: %s", cudaGetErrorString(status));
}

/* --- once ------------------------------------------------------------------------------------------------------------ */

/* An SM holds two CTAs of clusters, which may be as large as a chip allows. */
static cudaError_t allow_cluster(const ks_chip *chip)
{
    const void *const kernel = (const void *)softmax_column_cluster<float>;
    cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)(chip->shared_sm / 2 - STATIC_BYTES));
    if (status == cudaSuccess && chip->capability >= 90)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return status;
}

/* NULL: there is none. */
template <class T>
static const void *column_pipelined_kernel()
{
    if constexpr (sizeof(T) == 8)
        return NULL;
    else
        return (const void *)softmax_column_multiblock_pipelined<T>;
}

/* Kernels of CTA groups take as much shared memory as a CTA can have. */
template <class T>
static cudaError_t allow(const ks_chip *chip)
{
    constexpr int E = ks_vector<T>::length, V = sizeof(T) == 8 ? 2 : 4;
    const void *const kernels[] = {(const void *)softmax_row_multiblock_registers<T>,
                                   (const void *)softmax_row_grid<T>,
                                   column_pipelined_kernel<T>(),
                                   (const void *)softmax_column_multiblock_smem<T, E, V, false>,
                                   (const void *)softmax_column_multiblock_smem<T, E, V, true>,
                                   (const void *)softmax_column_multiblock_smem<T, 1, 8, false>,
                                   (const void *)softmax_column_multiblock_smem<T, 1, 8, true>};
    const void *const pipelined[] = {(const void *)softmax_row_multiblock_pipelined<T, row_pipeline_short>,
                                     (const void *)softmax_row_multiblock_pipelined<T, row_pipeline_long>,
                                     whole_row_kernel<T>()};
    cudaError_t status = cudaSuccess;
    for (const void *kernel : pipelined)
        if (kernel && status == cudaSuccess)
            status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          (int)chip->shared_optin - ROW_PIPELINE_STATIC);
    for (const void *kernel : kernels)
        if (kernel && status == cudaSuccess)
            status = cudaFuncSetAttribute(
                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                (int)chip->shared_optin - (kernel == column_pipelined_kernel<T>() ? STATIC_BYTES / 4 : STATIC_BYTES));
    return status;
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    cudaError_t status = allow<float>(chip);
    if (status == cudaSuccess) status = allow<__half>(chip);
    if (status == cudaSuccess) status = allow<__nv_bfloat16>(chip);
    if (status == cudaSuccess) status = allow<double>(chip);
    if (status == cudaSuccess) status = allow_cluster(chip);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError();
    return ks_fail(error, KS_DEVICE, "softmax: cannot set its kernels' shared memory: %s", cudaGetErrorString(status));
}

/* Kernels that take a row from its first element on, not from vectors of memory. */
static bool starts_anywhere(const ks_spec *spec, const void *algorithm)
{
    softmax_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    return !ks_softmax_selects(spec) && (c.kind == ROW_ELEMENTS || c.kind == ROW_IN_VECTOR || c.kind == ROWS_SMEM);
}

extern const ks_cuda_op ks_softmax_cuda;
const ks_cuda_op ks_softmax_cuda = {.setup = cuda_setup,
                                    .plan = softmax_plan,
                                    .launch = cuda_launch,
                                    .join = NULL,
                                    .candidates = NULL,
                                    .adopt = NULL,
                                    .revision = NULL,
                                    .starts_anywhere = starts_anywhere};
