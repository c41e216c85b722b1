/* BF16 on tensor cores: the tiles. */
#include "matmul_batch_straight.cuh"
#include "matmul_tile.cuh"

mm_kernel mm_table_bf16(int index, bool a_k, bool b_k)
{
    return index < MM_BATCH_TILES ? mm_batch_table<__nv_bfloat16>(index, a_k, b_k)
                                  : mm_half_table<__nv_bfloat16>(index - MM_BATCH_TILES, a_k, b_k);
}
