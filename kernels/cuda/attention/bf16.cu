/* attention of BF16: its kernels' instances. */
#include "cuda/attention/launch.cuh"

cudaError_t attention_go_bf16(const attention_launch &go)
{
    return attention_go_halves<__nv_bfloat16>(go);
}

cudaError_t attention_merge_bf16(const attention_launch &go)
{
    return attention_go_merge<__nv_bfloat16>(go);
}

cudaError_t attention_allow_bf16(int shared_bytes)
{
    return attention_allow_halves<__nv_bfloat16>(shared_bytes);
}
