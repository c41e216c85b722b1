/* map of integers and of BOOL on the GPU: kernels by the element's size, those with a sign and those without by the same. */
#include "cuda/map/vectors.cuh"

cudaError_t map_launch_integer(const map_launch &l, size_t element_bytes)
{
    switch (element_bytes) {
    case 1:
        return map_start_vectors<map_whole<uint8_t, uint32_t>>(l);
    case 2:
        return map_start_vectors<map_whole<uint16_t, uint32_t>>(l);
    case 4:
        return map_start_vectors<map_whole<uint32_t, uint32_t>>(l);
    default:
        return map_start_vectors<map_whole<uint64_t, uint64_t>>(l);
    }
}
