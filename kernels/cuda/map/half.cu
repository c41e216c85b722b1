/* map of FP16 on the GPU. */
#include "cuda/map/vectors.cuh"

cudaError_t map_launch_half(const map_launch &l)
{
    return map_start_vectors<map_real<__half>>(l);
}
