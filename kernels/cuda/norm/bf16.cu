/* Norm of BF16: its kernels' instances. */
#include "cuda/norm/launch.cuh"

cudaError_t norm_go_bf16(const norm_launch &go)
{
    return norm_go_as<__nv_bfloat16>(go);
}

cudaError_t norm_allow_bf16(int shared_bytes)
{
    const cudaError_t status = norm_allow_as<__nv_bfloat16, __nv_bfloat16>(shared_bytes);
    return status == cudaSuccess ? norm_allow_as<__nv_bfloat16, float>(shared_bytes) : status;
}
