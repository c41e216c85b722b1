/* map of FP32 on the GPU. */
#include "cuda/map/vectors.cuh"

cudaError_t map_launch_float(const map_launch &l)
{
    return map_start_vectors<map_real<float>>(l);
}
