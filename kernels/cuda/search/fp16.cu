/* search of FP16: its stream's instances. */
#include "cuda/search/launch.cuh"

cudaError_t search_go_fp16(const search_launch &go)
{
    return search_go_halves<__half>(go);
}

cudaError_t search_allow_fp16(int shared_bytes)
{
    return search_allow_halves<__half>(shared_bytes);
}
