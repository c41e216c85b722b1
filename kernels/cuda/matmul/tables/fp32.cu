/* FP32 by fused multiply-adds: the rows. Behind those of batches, the first three stream a wide operand past few rows; one warp
 * is for batches of small matrices whose rows do not start on 16 bytes. Of the others a stage is 32 values of K, so that few
 * instructions of a stage are not multiply-adds. Some are for few outputs of a long K: 16 x 64, and eight planes, whose threads
 * read 12 values for 32 products, where those of four read 8 for 16; 48 x 64 leaves out fewer rows than 64. */
#include "cuda/matmul/batched.cuh"
#include "cuda/matmul/tile.cuh"

static constexpr mm_row rows[] = {
    mm_batch<mm_batch_fma<float, 16, 16, 16, 2, 4, 4, 4, 1, 12>>("16x16 batch", {1.1f, 0.05f}),
    mm_batch<mm_batch_fma<float, 32, 32, 16, 8, 4, 8, 4, 1, 6>>("32x32 batch", {2.5f, 0.5f}),
    mm_batch<mm_batch_fma<float, 64, 64, 8, 8, 8, 8, 1, 2, 8>>("64x64 batch", {4.5f, 0.16f}),
    mm_batch<mm_batch_fma<float, 128, 128, 32, 8, 8, 8, 1, 2, 2>>("128x128 batch", {1.6f, 3.5f}),
    mm_tile<mm_fma_tile<float, 1, 128, 1, 4, 8, 32, 5, 2>>("1x128", {0.2f, 0.15f}),
    mm_tile<mm_fma_tile<float, 4, 128, 4, 4, 8, 32, 5, 2>>("4x128", {1.4f, 0.16f}),
    mm_tile<mm_fma_tile<float, 8, 128, 8, 4, 8, 32, 5, 2>>("8x128", {1.7f, 0.23f}),
    mm_tile<mm_fma_tile<float, 32, 32, 4, 4, 4, 32, 4, 3>>("32x32", {0.9f, 0.31f, 1.2f}),
    mm_tile<mm_fma_tile<float, 32, 32, 8, 4, 1, 32, 2, 12>>("32x32 warp", {4.0f, 0.29f, 1.4f}),
    mm_tile<mm_fma_tile<float, 32, 128, 8, 8, 4, 32, 4, 2>>("32x128", {2.9f, 0.59f, 1.1f}),
    mm_tile<mm_fma_tile<float, 64, 64, 8, 8, 4, 32, 3, 2>>("64x64", {2.4f, 0.65f, 1.03f}),
    mm_tile<mm_fma_tile<float, 64, 128, 8, 8, 2, 32, 3, 2>>("64x128", {3.5f, 1.16f, 1.08f}),
    mm_tile<mm_fma_tile<float, 128, 256, 8, 16, 1, 32, 3, 1>>("128x256", {10.3f, 5.30f, 1.2f}),
    mm_skinny<mm_skinny_fma<float, 1, 8, 16, 2, 2, false>, mm_skinny_fma<float, 1, 4, 16, 2, 2, true>>("skinny 1x32",
                                                                                                       {2.9f, 0.019f}),
    mm_skinny<mm_skinny_fma<float, 2, 8, 8, 2, 3, false>, mm_skinny_fma<float, 2, 4, 8, 2, 3, true>>("skinny 2x32",
                                                                                                     {3.2f, 0.13f}),
    mm_skinny<mm_skinny_fma<float, 4, 16, 8, 2, 3, false>, mm_skinny_fma<float, 4, 4, 8, 2, 3, true>>("skinny 4x64",
                                                                                                      {3.1f, 0.33f}),
    mm_skinny<mm_skinny_fma<float, 8, 8, 8, 2, 2, false>, mm_skinny_fma<float, 8, 4, 8, 2, 2, true>>("skinny 8x32",
                                                                                                     {3.5f, 0.50f}),
    mm_skinny<mm_skinny_fma<float, 16, 16, 16, 2, 1, false>, mm_skinny_fma<float, 16, 4, 8, 1, 2, true>>("skinny 16x64",
                                                                                                         {5.8f, 0.94f}),
    mm_skinny_singles<mm_skinny_fma<float, 1, 32, 8, 8, 4, false, 1>>("skinny 1x32 odd", {3.6f, 0.15f}),
    mm_strip<mm_strip_tile<float, false, 4, 2, 8, 2>>("strip 4x32", {3.0f, 0.055f}),
    mm_strip<mm_strip_tile<float, false, 8, 2, 8, 1>>("strip 8x32", {2.8f, 0.065f}),
    mm_strip<mm_strip_tile<float, false, 12, 2, 8, 1>>("strip 12x32", {2.9f, 0.08f}),
    mm_strip<mm_strip_tile<float, false, 16, 2, 8, 1>>("strip 16x32", {3.2f, 0.1f}),
    mm_skinny_odd<mm_skinny_odd_tile<float, 16, 8, 8, 3>>("skinny 1x60 odd", {2.5f, 0.045f}),
    mm_skinny_narrow<mm_skinny_fma<float, 1, 4, 16, 2, 2, false>>("skinny 1x16", {2.4f, 0.6f}),
    mm_tile<mm_fma_tile<float, 16, 64, 4, 8, 4, 32, 5, 4>>("16x64", {0.6f, 0.265f, 1.4f}),
    mm_tile<mm_fma_tile<float, 32, 32, 8, 4, 8, 64, 3, 2>>("32x32 8 planes", {0.85f, 0.376f, 1.3f}),
    mm_tile<mm_fma_tile<float, 32, 64, 8, 8, 8, 32, 4, 2>>("32x64", {1.5f, 0.324f, 1.16f}),
    mm_tile<mm_fma_tile<float, 48, 64, 12, 8, 8, 32, 5, 1>>("48x64", {2.6f, 0.476f, 1.2f}),
};

const mm_table mm_table_fp32 = mm_table_of("FP32", rows);
