/* FP16 on tensor cores: the tiles. */
#include "matmul_tile.cuh"

mm_kernel mm_table_fp16(int index, bool a_k, bool b_k)
{
    return mm_half_table<__half>(index, a_k, b_k);
}
