/* histogram's kernels: instances and launches, by datatype. */
#include "cuda/histogram/count.cuh"
#include "cuda/histogram/plan.h"

/* CTAs for all counts, of which each takes so many at a time. */
static dim3 spread(const histogram_launch &go, int each)
{
    const int64_t groups = (go.s.rows * go.s.bins + each - 1) / each;
    return dim3((unsigned)(groups < 1 ? 1 : groups > 1024 ? 1024 : groups), (unsigned)go.bucket);
}

/* A cluster for each row. */
template <class T>
static cudaError_t count_together(const histogram_launch &go)
{
    cudaLaunchAttribute attributes[3] = {};
    cudaLaunchConfig_t config = {};
    if (ks_noting) {
        *ks_noting = {(const void *)histogram_shared<T>, go.c.threads, go.shared_bytes};
        return cudaSuccess;
    }
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = (unsigned)go.c.parts;
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)go.c.grid, (unsigned)go.bucket);
    config.blockDim = dim3((unsigned)go.c.threads);
    config.dynamicSmemBytes = go.shared_bytes;
    config.stream = go.stream;
    config.attrs = attributes;
    config.numAttrs = ks_launch_attributes(go.site, false, attributes, 1);
    return cudaLaunchKernelEx(&config, histogram_shared<T>, go.site, go.s);
}

template <class T>
static cudaError_t count_as(const histogram_launch &go)
{
    const dim3 grid((unsigned)go.c.grid, (unsigned)go.bucket);
    cudaError_t status = cudaSuccess;
    if (!go.c.shared)
        status = ks_launch(histogram_clear, spread(go, HISTOGRAM_SUM_THREADS), HISTOGRAM_SUM_THREADS, 0, false,
                           go.stream, go.site, go.s);
    if (status != cudaSuccess) return status;
    if (!go.c.shared)
        return ks_launch(histogram_global<T>, grid, go.c.threads, go.shared_bytes, false, go.stream, go.site, go.s);
    if (go.s.meets) return count_together<T>(go);
    if (go.s.parts > 1 && !ks_noting) {
        status = ks_launch(histogram_shared<T>, grid, go.c.threads, go.shared_bytes, false, go.stream, go.site, go.s);
        if (status != cudaSuccess) return status;
        return ks_launch(histogram_sum, spread(go, KS_WARP), HISTOGRAM_SUM_THREADS, 0, false, go.stream, go.site, go.s);
    }
    return ks_launch(histogram_shared<T>, grid, go.c.threads, go.shared_bytes, false, go.stream, go.site, go.s);
}

cudaError_t histogram_count(const histogram_launch &go)
{
    switch (go.dtype) {
    case KS_FP16:
        return count_as<__half>(go);
    case KS_BF16:
        return count_as<__nv_bfloat16>(go);
    case KS_FP32:
        return count_as<float>(go);
    case KS_FP64:
        return count_as<double>(go);
    case KS_INT8:
    case KS_UINT8:
        return count_as<uint8_t>(go);
    case KS_INT16:
    case KS_UINT16:
        return count_as<uint16_t>(go);
    case KS_INT32:
    case KS_UINT32:
        return count_as<uint32_t>(go);
    default:
        return count_as<uint64_t>(go);
    }
}

cudaError_t histogram_allow(int shared_bytes)
{
    const void *const kernels[] = {
        (const void *)histogram_shared<__half>,   (const void *)histogram_shared<__nv_bfloat16>,
        (const void *)histogram_shared<float>,    (const void *)histogram_shared<double>,
        (const void *)histogram_shared<uint8_t>,  (const void *)histogram_shared<uint16_t>,
        (const void *)histogram_shared<uint32_t>, (const void *)histogram_shared<uint64_t>};
    cudaError_t status = cudaSuccess;
    for (const void *kernel : kernels)
        if (status == cudaSuccess)
            status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    return status;
}
