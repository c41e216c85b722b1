/* attention of FP32: its kernels' instances. */
#include "cuda/attention/floats.cuh"
#include "cuda/attention/launch.cuh"

template <int EACH>
static attention_kernel *of_columns(int columns)
{
    if (columns <= 64) return columns <= 32 ? attention_floats<EACH, 32> : attention_floats<EACH, 64>;
    if (columns <= 128) return columns <= 96 ? attention_floats<EACH, 96> : attention_floats<EACH, 128>;
    return columns <= 192 ? attention_floats<EACH, 192> : attention_floats<EACH, 256>;
}

static attention_kernel *kernel_of(int tile, int columns)
{
    const int each = tile / (int)ATTENTION_ROWS;
    return each == 1 ? of_columns<1>(columns) : each == 2 ? of_columns<2>(columns) : of_columns<4>(columns);
}

cudaError_t attention_go_fp32(const attention_launch &go)
{
    return attention_go_kernel(go, kernel_of(go.c.tile, go.c.columns));
}

cudaError_t attention_merge_fp32(const attention_launch &go)
{
    return attention_go_merge<float>(go);
}

cudaError_t attention_allow_fp32(int shared_bytes)
{
    cudaError_t status = cudaSuccess;
    for (int tile = ATTENTION_ROWS; tile <= ATTENTION_FLOATS_MOST; tile *= 2)
        for (int columns = 32; columns <= KS_ATTENTION_DEPTH_MOST && status == cudaSuccess; columns += 32)
            status = attention_allow_kernel(kernel_of(tile, columns), shared_bytes);
    return status;
}
