/* TF32 on tensor cores: the tiles. */
#include "matmul_batch.cuh"
#include "matmul_tile.cuh"

mm_kernel mm_table_tf32(int index, bool a_k, bool b_k)
{
    if (index < MM_BATCH_TILES) return mm_batch_table<float>(index, a_k, b_k);
    switch (index - MM_BATCH_TILES) {
    case 6:
        return mm_skinny<mm_skinny_mma<float, 8, 8, 2, 2, false>, mm_skinny_mma<float, 8, 8, 2, 2, true>>(
            "skinny 8x32", {3.1f, 0.31f}, a_k, b_k);
    case 7:
        return mm_skinny<mm_skinny_mma<float, 16, 8, 2, 2, false>, mm_skinny_mma<float, 16, 8, 2, 2, true>>(
            "skinny 16x32", {3.9f, 0.41f}, a_k, b_k);
    case 8:
        return mm_skinny<mm_skinny_mma<float, 16, 16, 2, 1, false>, mm_skinny_mma<float, 16, 16, 2, 1, true>>(
            "skinny 16x32 high", {4.3f, 0.47f}, a_k, b_k);
    default:
        return mm_mma_table<float>(index - MM_BATCH_TILES, a_k, b_k);
    }
}
