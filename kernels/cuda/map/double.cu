/* map of FP64 on the GPU. */
#include "cuda/map/vectors.cuh"

cudaError_t map_launch_double(const map_launch &l)
{
    return map_start_vectors<map_real<double>>(l);
}
