/* TF32 on tensor cores: the tiles. wgmma's take B along K: the product of two operands that are not transposed is computed
 * turned, and what is transposed on the left alone is left to the others. x2, x3: CTAs to an SM; 2x: a tile of two CTAs;
 * odd: A's rows start anywhere. 192 x 192 pays although the compiler, short of registers where A comes from them, lets each
 * product wait for the one before. */
#include "cuda/matmul/batched_registers.cuh"
#include "cuda/matmul/tile.cuh"

mm_kernel mm_table_tf32(int index, bool a_k, bool b_k)
{
    typedef float T;
    if (index < MM_BATCH_TILES) return mm_batch_table<T>(index, a_k, b_k);
    switch (index - MM_BATCH_TILES) {
    case 6:
        return mm_wgmma<mm_wgmma_tile<T, 2, 256, 4, 1>>("wgmma 128x256", {8.3f, 0.522f}, a_k, b_k);
    case 7:
        return mm_wgmma<mm_wgmma_tile<T, 2, 256, 4, 1, 2, 1>>("wgmma 2x 128x256", {10.5f, 0.55f}, a_k, b_k);
    case 8:
        return mm_wgmma<mm_wgmma_tile<T, 1, 128, 8, 1>>("wgmma 64x128", {5.6f, 0.194f}, a_k, b_k);
    case 9:
        return mm_wgmma<mm_wgmma_tile<T, 1, 64, 10, 1>>("wgmma 64x64", {3.9f, 0.163f}, a_k, b_k);
    case 10:
        return mm_wgmma<mm_wgmma_tile<T, 1, 64, 5, 2>>("wgmma 64x64 x2", {3.9f, 0.2f}, a_k, b_k);
    case 11:
        return mm_wgmma<mm_wgmma_tile<T, 1, 32, 14, 1>>("wgmma 64x32", {3.3f, 0.147f}, a_k, b_k);
    case 12:
        return mm_wgmma<mm_wgmma_tile<T, 1, 16, 6, 3>>("wgmma 64x16 x3", {2.75f, 0.148f}, a_k, b_k);
    case 13:
        return mm_skinny<mm_skinny_mma<T, 8, 8, 2, 2, false>, mm_skinny_mma<T, 8, 8, 2, 2, true>>(
            "skinny 8x32", {3.1f, 0.31f}, a_k, b_k);
    case 14:
        return mm_skinny<mm_skinny_mma<T, 16, 8, 2, 2, false>, mm_skinny_mma<T, 16, 8, 2, 2, true>>(
            "skinny 16x32", {3.9f, 0.41f}, a_k, b_k);
    case 15:
        return mm_skinny<mm_skinny_mma<T, 16, 16, 2, 1, false>, mm_skinny_mma<T, 16, 16, 2, 1, true>>(
            "skinny 16x32 high", {4.4f, 0.47f}, a_k, b_k);
    case 16:
        return mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 128, 7, 1>>("wgmma 64x128 odd", {6.5f, 0.33f}, a_k, b_k);
    case 17:
        return mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 64, 12, 1>>("wgmma 64x64 odd", {4.5f, 0.31f}, a_k, b_k);
    case 18:
        return mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 32, 6, 2>>("wgmma 64x32 odd x2", {3.4f, 0.28f}, a_k, b_k);
    case 19:
        return mm_wgmma<mm_wgmma_tile<T, 3, 192, 4, 1>>("wgmma 192x192", {5.5f, 0.775f}, a_k, b_k);
    case 20:
        return mm_strip<mm_strip_tile<T, true, 16, 4, 8, 1>>("strip 16x32", {3.3f, 0.05f}, a_k, b_k);
    case 21:
        return mm_wgmma<mm_wgmma_tile<T, 1, 128, 4, 2, 1, 1, true>>("wgmma 64x128 x2", {5.0f, 0.25f}, a_k, b_k);
    default:
        return mm_mma_table<T>(index - MM_BATCH_TILES, a_k, b_k);
    }
}
