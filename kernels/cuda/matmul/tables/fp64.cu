/* FP64 by fused multiply-adds: the rows. */
#include "cuda/matmul/tile.cuh"

static constexpr mm_row rows[] = {
    mm_tile<mm_fma_tile<double, 4, 64, 4, 2, 8, 32, 4, 2>>("4x64", {2.0f, 0.5f}),
    mm_tile<mm_fma_tile<double, 64, 64, 4, 4, 1, 16, 4, 1>>("64x64", {3.0f, 2.0f}),
};

const mm_table mm_table_fp64 = mm_table_of("FP64", rows);
