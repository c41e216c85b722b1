/* FP16 and BF16 on tensor cores: the rows. Batches of small matrices first; then mma.sync's tiles, of which the low ones stream a
 * wide operand past few rows, 32 x 32 is for latency, one warp for batches; then wgmma's and the skinny ones. Narrow tiles of
 * wgmma give the whole chip work where there is little; those of two CTAs halve what is read of one operand; 96 and 192 columns are for
 * outputs that are just one wave of it. 2x: a tile of two CTAs; x2: two CTAs to an SM; odd: A's rows start anywhere. */
#ifndef KS_MATMUL_HALF_CUH
#define KS_MATMUL_HALF_CUH

#include "cuda/matmul/batched_registers.cuh"
#include "cuda/matmul/tile.cuh"

template <typename T>
static constexpr mm_row mm_half_rows[] = {
    mm_batch<mm_batch_mma<T, 16, 16, 16, 1, 1, 4, 1, 12>>("16x16 batch", {1.0f, 0.05f}),
    mm_batch<mm_batch_mma<T, 32, 32, 32, 1, 1, 4, 1, 6>>("32x32 batch", {1.6f, 0.2f}),
    mm_batch<mm_batch_mma<T, 64, 64, 64, 2, 2, 1, 1, 6>>("64x64 batch", {1.4f, 0.2f}),
    mm_batch<mm_batch_mma<T, 128, 128, 64, 2, 4, 1, 2, 2>>("128x128 batch", {3.0f, 0.5f}),
    mm_straight<mm_straight_tile<T, 16, 4, 8>>("16x16 straight", {0.4f, 0.05f}),
    mm_straight<mm_straight_tile<T, 32, 4, 9>>("32x32 straight", {0.4f, 0.1f}),
    mm_tile<mm_mma_tile<T, 16, 128, 1, 2, 4, 5, 2>>("16x128", {0.559f, 0.145f}),
    mm_tile<mm_mma_tile<T, 32, 32, 1, 1, 4, 4, 3>>("32x32", {0.0885f, 0.158f}),
    mm_tile<mm_mma_tile<T, 64, 64, 2, 2, 1, 5, 2>>("64x64", {1.18f, 0.275f}),
    mm_tile<mm_mma_tile<T, 64, 128, 2, 4, 1, 4, 2>>("64x128", {3.27f, 0.221f}),
    mm_tile<mm_mma_tile<T, 128, 128, 2, 4, 1, 3, 2>>("128x128", {7.75f, 0.197f}),
    mm_tile<mm_mma_tile<T, 32, 32, 1, 1, 1, 2, 12>>("32x32 warp", {1.04f, 0.18f}),
    mm_wgmma<mm_wgmma_tile<T, 2, 256, 4, 1>>("wgmma 128x256", {6.39f, 0.298f}),
    mm_wgmma<mm_wgmma_tile<T, 2, 256, 4, 1, 2, 1>>("wgmma 2x 128x256", {1.03f, 0.634f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 256, 4, 1, 1, 2>>("wgmma 2x 64x256", {1.94f, 0.42f}),
    mm_wgmma<mm_wgmma_tile<T, 2, 128, 5, 1>>("wgmma 128x128", {2.93f, 0.237f}),
    mm_wgmma<mm_wgmma_tile<T, 2, 64, 8, 1>>("wgmma 128x64", {2.1f, 0.213f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 128, 8, 1>>("wgmma 64x128", {3.07f, 0.152f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 64, 10, 1>>("wgmma 64x64", {2.49f, 0.125f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 64, 5, 2>>("wgmma 64x64 x2", {2.91f, 0.193f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 32, 14, 1>>("wgmma 64x32", {2.39f, 0.129f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 16, 14, 1>>("wgmma 64x16", {2.56f, 0.137f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 16, 6, 3>>("wgmma 64x16 x3", {2.1f, 0.157f}),
    mm_skinny<mm_skinny_mma<T, 8, 16, 1, 1, false>, mm_skinny_mma<T, 8, 16, 1, 1, true>>("skinny 8x64", {2.89f, 1.35f}),
    mm_skinny<mm_skinny_fma<T, 1, 8, 16, 1, 2, false>, mm_skinny_fma<T, 1, 4, 16, 1, 2, true>>("skinny 1x64",
                                                                                               {3.6f, 0.6f}),
    mm_skinny<mm_skinny_fma<T, 1, 4, 8, 1, 2, false>, mm_skinny_fma<T, 1, 4, 8, 1, 2, true>>("skinny 1x32",
                                                                                             {2.8f, 0.6f}),
    mm_skinny_singles<mm_skinny_fma<T, 1, 32, 8, 8, 4, false, 1>>("skinny 1x32 odd", {3.6f, 0.09f}),
    mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 64, 12, 1>>("wgmma 64x64 odd", {1.62f, 0.337f}),
    mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 32, 6, 2>>("wgmma 64x32 odd x2", {3.05f, 0.245f}),
    mm_strip<mm_strip_tile<T, true, 8, 2, 8, 2>>("strip 8x32", {2.11f, 0.0343f}),
    mm_strip<mm_strip_tile<T, true, 8, 2, 4, 4>>("strip 8x32 low", {1.85f, 0.142f}),
    mm_strip<mm_strip_tile<T, true, 16, 2, 8, 2>>("strip 16x32", {3.79f, 0.0528f}),
    mm_strip<mm_strip_tile<T, true, 16, 3, 8, 1>>("strip 16x32 deep", {2.94f, 0.0453f}),
    mm_skinny_odd<mm_skinny_odd_tile<T, 32, 8, 8, 2>>("skinny 1x248 odd", {3.0f, 0.06f}),
    mm_wgmma<mm_wgmma_tile<T, 3, 192, 4, 1>>("wgmma 192x192", {2.72f, 0.615f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 128, 2, 3, 1, 1, true>>("wgmma 64x128 x3", {1.54f, 0.521f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 128, 8, 1, 2, 1>>("wgmma 2x 64x128", {1.86f, 0.214f}),
    mm_wgmma<mm_wgmma_tile<T, 2, 128, 6, 1, 2, 1>>("wgmma 2x 128x128", {1.69f, 0.278f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 64, 12, 1, 2, 1>>("wgmma 2x 64x64", {1.82f, 0.162f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 32, 14, 1, 1, 2>>("wgmma 2x 64x32", {1.36f, 0.162f}),
    mm_wgmma<mm_wgmma_tile<T, 2, 192, 5, 1>>("wgmma 128x192", {3.21f, 0.343f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 192, 6, 1, 2, 1>>("wgmma 2x 64x192", {2.68f, 0.244f}),
    mm_wgmma<mm_wgmma_tile<T, 1, 96, 8, 1, 1, 1, true>>("wgmma 64x96", {1.87f, 0.135f}),
};

#endif
