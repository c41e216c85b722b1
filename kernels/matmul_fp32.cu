/* FP32 by fused multiply-adds: the tiles. The first three stream a wide operand past few rows; one warp is for batches of
 * small matrices. Of the others a stage is 32 values of K, so that few instructions of a stage are not multiply-adds. */
#include "matmul_tile.cuh"

mm_kernel mm_table_fp32(int index, bool a_k, bool b_k)
{
    switch (index) {
    case 0:
        return mm_tile<mm_fma_tile<float, 1, 128, 1, 4, 8, 32, 5, 2>>("1x128", {0.2f, 0.15f}, a_k, b_k);
    case 1:
        return mm_tile<mm_fma_tile<float, 4, 128, 4, 4, 8, 32, 5, 2>>("4x128", {1.4f, 0.16f}, a_k, b_k);
    case 2:
        return mm_tile<mm_fma_tile<float, 8, 128, 8, 4, 8, 32, 5, 2>>("8x128", {1.5f, 0.21f}, a_k, b_k);
    case 3:
        return mm_tile<mm_fma_tile<float, 32, 32, 4, 4, 4, 32, 4, 3>>("32x32", {0.2f, 0.46f, 1.1f}, a_k, b_k);
    case 4:
        return mm_tile<mm_fma_tile<float, 32, 32, 8, 4, 1, 32, 2, 12>>("32x32 warp", {4.0f, 0.29f, 1.4f}, a_k, b_k);
    case 5:
        return mm_tile<mm_fma_tile<float, 32, 128, 8, 8, 4, 32, 3, 2>>("32x128", {3.6f, 0.75f, 1.3f}, a_k, b_k);
    case 6:
        return mm_tile<mm_fma_tile<float, 64, 64, 8, 8, 4, 32, 3, 2>>("64x64", {4.0f, 0.79f, 1.2f}, a_k, b_k);
    case 7:
        return mm_tile<mm_fma_tile<float, 64, 128, 8, 8, 2, 32, 3, 2>>("64x128", {5.8f, 1.45f, 1.1f}, a_k, b_k);
    case 8:
        return mm_tile<mm_fma_tile<float, 128, 256, 8, 16, 1, 32, 3, 1>>("128x256", {10.3f, 5.37f, 1.2f}, a_k, b_k);
    default:
        return {};
    }
}
