/* Norm of FP64: its kernels' instances. */
#include "cuda/norm/launch.cuh"

cudaError_t norm_go_fp64(const norm_launch &go)
{
    return norm_go_as<double>(go);
}

cudaError_t norm_allow_fp64(int shared_bytes)
{
    const cudaError_t status = norm_allow_as<double, double>(shared_bytes);
    return status == cudaSuccess ? norm_allow_as<double, float>(shared_bytes) : status;
}
