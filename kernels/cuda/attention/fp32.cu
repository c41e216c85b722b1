/* attention of FP32: its kernels' instances. */
#include "cuda/attention/floats.cuh"
#include "cuda/attention/launch.cuh"

static attention_kernel *kernel_of(int columns)
{
    return columns <= 64 ? attention_floats<64> : columns <= 128 ? attention_floats<128> : attention_floats<256>;
}

cudaError_t attention_go_fp32(const attention_launch &go)
{
    return attention_go_kernel(go, kernel_of(go.c.columns));
}

cudaError_t attention_merge_fp32(const attention_launch &go)
{
    return attention_go_merge<float>(go);
}

cudaError_t attention_allow_fp32(int shared_bytes)
{
    cudaError_t status = cudaSuccess;
    for (int columns = 64; columns <= 256 && status == cudaSuccess; columns *= 2)
        status = attention_allow_kernel(kernel_of(columns), shared_bytes);
    return status;
}
