/* One wgmma instruction: where its operands lie in shared memory, and which rows a thread has.
 *
 * TF32     has no descriptor for an operand that is stored across K. A comes from registers there, which read it from
 *          shared memory as it lies; B is always stored along K.
 * Source   descriptors PTX ISA 8.0, 9.7.15. */
#ifndef KS_MATMUL_WGMMA_STEP_CUH
#define KS_MATMUL_WGMMA_STEP_CUH

#include "cuda/matmul/common.cuh"
#include "cuda/common/ptx_sm90.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Shared-memory matrix descriptor: rows of 128 bytes, or across K of as many values as a box has, that are swizzled as wide as they are.
 * Along K: groups of 8 rows are 1024 bytes apart. Across: groups of 8 values of K are 8 rows apart, and boxes of 64 rows stand behind each
 * other. Rows of 16 bytes have no swizzle, and there the first distance is K's. */
template <int ACROSS, bool K_CONTIGUOUS>
__device__ __forceinline__ uint64_t mm_descriptor(unsigned at)
{
    constexpr uint64_t ROW = K_CONTIGUOUS ? 128 : mm_box_columns(ACROSS, 2) * 2, SWIZZLE = ROW == 128  ? 1
                                                                                           : ROW == 64 ? 2
                                                                                           : ROW == 32 ? 3
                                                                                                       : 0;
    constexpr uint64_t LEADING = K_CONTIGUOUS ? 1 : (ROW == 16 ? 8 : 64) * ROW >> 4, STRIDE = 8 * ROW >> 4;
    return (uint64_t)((at & 0x3FFFF) >> 4) | LEADING << 16 | STRIDE << 32 | SWIZZLE << 62;
}

/* From one instruction's 32 bytes of K to the next. */
template <int ACROSS, bool K_CONTIGUOUS>
constexpr unsigned mm_descriptor_step = K_CONTIGUOUS ? 32 : 32 * mm_box_columns(ACROSS, 2);

/* The first of the two rows of a warpgroup's 64 whose sums a thread has; the second is 8 further. From registers A's rows
 * may come in any order: there the second is the next one, and a thread reads both at once; the four pairs of half a warp,
 * at four values of K, come from 32 banks. */
template <bool FED>
__device__ __forceinline__ int mm_wgmma_row()
{
    const int warp = threadIdx.x / 32 % 4, lane_id = threadIdx.x % 32;
    if constexpr (FED)
        return warp / 2 * 32 + warp % 2 * 8 + lane_id / 16 * 4 + lane_id / 8 % 2 * 16 + lane_id / 4 % 2 * 2;
    else
        return warp * 16 + lane_id / 4;
}

/* A stage of 64 columns at `a`, stored across K in rows of 128 bytes, for the four instructions that multiply them. */
__device__ __forceinline__ void mm_wgmma_feed(uint32_t (&to)[4][4], unsigned a)
{
    const int row = mm_wgmma_row<true>(), k = threadIdx.x % 4;
    const unsigned first = a + row / 32 * 4096 + k * 128 + ((row % 32 / 4) ^ k) * 16 + row % 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const unsigned from = (first ^ half * 64) + half * 512 + i * 1024;
            mm_shared_read(to[i][half * 2], to[i][half * 2 + 1], from);
        }
}

#endif
#endif
