/* topk of FP16, BF16 and FP32: its kernels' instances. */
#include "cuda/topk/launch.cuh"

cudaError_t topk_go_floats(const topk_launch &go)
{
    switch (go.dtype) {
    case KS_FP16:
        return topk_go_as<topk_fp16>(go);
    case KS_BF16:
        return topk_go_as<topk_bf16>(go);
    default:
        return topk_go_as<topk_fp32>(go);
    }
}

cudaError_t topk_allow_floats(int shared_bytes)
{
    cudaError_t status = topk_allow_as<topk_fp16>(shared_bytes);
    if (status == cudaSuccess) status = topk_allow_as<topk_bf16>(shared_bytes);
    return status == cudaSuccess ? topk_allow_as<topk_fp32>(shared_bytes) : status;
}
