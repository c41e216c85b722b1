/* FP16 on tensor cores: the tiles. */
#include "cuda/matmul/batched_registers.cuh"
#include "cuda/matmul/tile.cuh"

mm_kernel mm_table_fp16(int index, bool a_k, bool b_k)
{
    return index < MM_BATCH_TILES ? mm_batch_table<__half>(index, a_k, b_k)
                                  : mm_half_table<__half>(index - MM_BATCH_TILES, a_k, b_k);
}
