/* map of BF16 on the GPU. */
#include "cuda/map/vectors.cuh"

cudaError_t map_launch_bfloat16(const map_launch &l)
{
    return map_start_vectors<map_real<__nv_bfloat16>>(l);
}
