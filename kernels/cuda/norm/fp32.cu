/* Norm of FP32: its kernels' instances. */
#include "cuda/norm/launch.cuh"

cudaError_t norm_go_fp32(const norm_launch &go)
{
    return norm_go_as<float>(go);
}

cudaError_t norm_allow_fp32(int shared_bytes)
{
    return norm_allow_as<float, float>(shared_bytes);
}
