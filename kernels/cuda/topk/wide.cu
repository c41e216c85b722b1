/* topk of FP64, INT64 and UINT64: its kernels' instances. */
#include "cuda/topk/launch.cuh"

cudaError_t topk_go_wide(const topk_launch &go)
{
    return go.dtype == KS_FP64 ? topk_go_as<topk_fp64>(go) : topk_go_as<topk_int64>(go);
}

cudaError_t topk_allow_wide(int shared_bytes)
{
    const cudaError_t status = topk_allow_as<topk_fp64>(shared_bytes);
    return status == cudaSuccess ? topk_allow_as<topk_int64>(shared_bytes) : status;
}
