/* search of BF16: its stream's instances. */
#include "cuda/search/launch.cuh"

cudaError_t search_go_bf16(const search_launch &go)
{
    return search_go_halves<__nv_bfloat16>(go);
}

cudaError_t search_allow_bf16(int shared_bytes)
{
    return search_allow_halves<__nv_bfloat16>(shared_bytes);
}
