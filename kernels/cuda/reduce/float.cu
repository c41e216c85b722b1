/* Reductions of FP32 and FP64 on the GPU. */
#include "cuda/reduce/launch.cuh"

cudaError_t reduce_launch_float(const reduce_launch &l)
{
    return reduce_start_floats<float, reduce_arg<reduce_floats<float>>>(l);
}

cudaError_t reduce_launch_double(const reduce_launch &l)
{
    return reduce_start_floats<double, reduce_arg<reduce_floats<double>>>(l);
}
