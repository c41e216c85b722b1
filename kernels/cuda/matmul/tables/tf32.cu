/* TF32 on tensor cores: the rows. wgmma's take B along K: the product of two operands that are not transposed is computed
 * with swap_ab, and what is transposed on the left alone is left to the others. x2, x3: CTAs to an SM; 2x: a tile of two CTAs;
 * odd: A's rows start anywhere. 192 x 192 pays although the compiler, short of registers where A comes from them, lets each
 * product wait for the one before. */
#include "cuda/matmul/batched_registers.cuh"
#include "cuda/matmul/tile.cuh"

typedef float T;

static constexpr mm_row rows[] = {
    mm_batch<mm_batch_mma<T, 16, 16, 16, 1, 1, 4, 1, 12>>("16x16 batch", {1.0f, 0.05f}),
    mm_batch<mm_batch_mma<T, 32, 32, 32, 1, 1, 4, 1, 6>>("32x32 batch", {1.0f, 0.2f}),
    mm_batch<mm_batch_mma<T, 64, 64, 32, 2, 2, 1, 2, 5>>("64x64 batch", {1.4f, 0.2f}),
    mm_batch<mm_batch_mma<T, 128, 128, 32, 2, 4, 1, 2, 2>>("128x128 batch", {2.5f, 0.5f}),
    mm_straight<mm_straight_tile<T, 16, 4, 8>>("16x16 straight", {0.4f, 0.05f}),
    mm_straight<mm_straight_tile<T, 32, 4, 4>>("32x32 straight", {0.4f, 0.1f}),
    mm_tile<mm_mma_tile<T, 16, 128, 1, 2, 4, 5, 2>>("16x128", {1.9f, 0.18f}),
    mm_tile<mm_mma_tile<T, 32, 32, 1, 1, 4, 4, 3>>("32x32", {0.5f, 0.23f}),
    mm_tile<mm_mma_tile<T, 64, 64, 2, 2, 1, 5, 2>>("64x64", {2.7f, 0.27f}),
    mm_tile<mm_mma_tile<T, 64, 128, 2, 4, 1, 4, 2>>("64x128", {4.2f, 0.36f}),
    mm_tile<mm_mma_tile<T, 128, 128, 2, 4, 1, 3, 2>>("128x128", {4.5f, 0.63f}),
    mm_tile<mm_mma_tile<T, 32, 32, 1, 1, 1, 2, 12>>("32x32 warp", {1.9f, 0.20f}),
    mm_wgmma<mm_wgmma_tile<T, 2, 256, 4, 1>>("wgmma 128x256", {8.3f, 0.522f}),
    mm_wgmma<mm_wgmma_tile<T, 2, 256, 4, 1, 2, 1>>("wgmma 2x 128x256", {10.5f, 0.55f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 128, 8, 1>>("wgmma 64x128", {5.6f, 0.194f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 64, 10, 1>>("wgmma 64x64", {3.9f, 0.163f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 64, 5, 2>>("wgmma 64x64 x2", {3.9f, 0.2f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 32, 14, 1>>("wgmma 64x32", {3.3f, 0.147f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 16, 6, 3>>("wgmma 64x16 x3", {2.75f, 0.148f}),
    mm_skinny<mm_skinny_mma<T, 8, 8, 2, 2, false>, mm_skinny_mma<T, 8, 8, 2, 2, true>>("skinny 8x32", {3.1f, 0.31f}),
    mm_skinny<mm_skinny_mma<T, 16, 8, 2, 2, false>, mm_skinny_mma<T, 16, 8, 2, 2, true>>("skinny 16x32", {3.9f, 0.41f}),
    mm_skinny<mm_skinny_mma<T, 16, 16, 2, 1, false>, mm_skinny_mma<T, 16, 16, 2, 1, true>>("skinny 16x32 high",
                                                                                           {4.4f, 0.47f}),
    mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 128, 7, 1>>("wgmma 64x128 odd", {6.5f, 0.33f}),
    mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 64, 12, 1>>("wgmma 64x64 odd", {4.5f, 0.31f}),
    mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 32, 6, 2>>("wgmma 64x32 odd x2", {3.4f, 0.28f}),
    mm_wgmma<mm_wgmma_tile<T, 3, 192, 4, 1>>("wgmma 192x192", {5.5f, 0.775f}),
    mm_strip<mm_strip_tile<T, true, 16, 4, 8, 1>>("strip 16x32", {3.3f, 0.05f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 128, 4, 2, 1, 1, true>>("wgmma 64x128 x2", {5.0f, 0.25f}),
};

const mm_table mm_table_tf32 = mm_table_of("TF32", rows);
