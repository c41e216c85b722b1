/* Norm of FP16: its kernels' instances. */
#include "cuda/norm/launch.cuh"

cudaError_t norm_go_fp16(const norm_launch &go)
{
    return norm_go_as<__half>(go);
}

cudaError_t norm_allow_fp16(int shared_bytes)
{
    const cudaError_t status = norm_allow_as<__half, __half>(shared_bytes);
    return status == cudaSuccess ? norm_allow_as<__half, float>(shared_bytes) : status;
}
