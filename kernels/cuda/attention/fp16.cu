/* attention of FP16: its kernels' instances. */
#include "cuda/attention/launch.cuh"

cudaError_t attention_go_fp16(const attention_launch &go)
{
    return attention_go_halves<__half>(go);
}

cudaError_t attention_merge_fp16(const attention_launch &go)
{
    return attention_go_merge<__half>(go);
}

cudaError_t attention_allow_fp16(int shared_bytes)
{
    return attention_allow_halves<__half>(shared_bytes);
}
