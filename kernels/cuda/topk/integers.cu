/* topk of integers of 8, 16 and 32 bits: its kernels' instances. */
#include "cuda/topk/launch.cuh"

cudaError_t topk_go_integers(const topk_launch &go)
{
    switch (ks_dtype_size(go.dtype)) {
    case 1:
        return topk_go_as<topk_int8>(go);
    case 2:
        return topk_go_as<topk_int16>(go);
    default:
        return topk_go_as<topk_int32>(go);
    }
}

cudaError_t topk_allow_integers(int shared_bytes)
{
    cudaError_t status = topk_allow_as<topk_int8>(shared_bytes);
    if (status == cudaSuccess) status = topk_allow_as<topk_int16>(shared_bytes);
    return status == cudaSuccess ? topk_allow_as<topk_int32>(shared_bytes) : status;
}
