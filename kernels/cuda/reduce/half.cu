/* Reductions of FP16 and BF16 on the GPU. */
#include "cuda/reduce/launch.cuh"

cudaError_t reduce_launch_half(const reduce_launch &l)
{
    return reduce_start_floats<__half, reduce_arg_small<reduce_ordered<__half2, 0xFC00>>>(l);
}

cudaError_t reduce_launch_bfloat16(const reduce_launch &l)
{
    return reduce_start_floats<__nv_bfloat16, reduce_arg_small<reduce_ordered<__nv_bfloat162, 0xFF80>>>(l);
}
