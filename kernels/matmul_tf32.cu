/* TF32 on tensor cores: the tiles. */
#include "matmul_tile.cuh"

mm_kernel mm_table_tf32(int index, bool a_k, bool b_k)
{
    return mm_mma_table<float>(index, a_k, b_k);
}
