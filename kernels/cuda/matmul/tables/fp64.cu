/* FP64 by fused multiply-adds: the tiles. */
#include "cuda/matmul/tile.cuh"

mm_kernel mm_table_fp64(int index, bool a_k, bool b_k)
{
    switch (index) {
    case 0:
        return mm_tile<mm_fma_tile<double, 4, 64, 4, 2, 8, 32, 4, 2>>("4x64", {2.0f, 0.5f}, a_k, b_k);
    case 1:
        return mm_tile<mm_fma_tile<double, 64, 64, 4, 4, 1, 16, 4, 1>>("64x64", {3.0f, 2.0f}, a_k, b_k);
    default:
        return {};
    }
}
