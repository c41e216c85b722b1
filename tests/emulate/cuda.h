/* Tensor maps: what the driver's header has of them, and what a bulk copy does with one. */
#ifndef KS_EMULATE_CUDA_H
#define KS_EMULATE_CUDA_H

#include "cuda_runtime.h"

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

enum CUresult { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE };
enum CUtensorMapDataType {
    CU_TENSOR_MAP_DATA_TYPE_UINT8,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle {
    CU_TENSOR_MAP_SWIZZLE_NONE,
    CU_TENSOR_MAP_SWIZZLE_32B,
    CU_TENSOR_MAP_SWIZZLE_64B,
    CU_TENSOR_MAP_SWIZZLE_128B
};
enum CUtensorMapL2promotion {
    CU_TENSOR_MAP_L2_PROMOTION_NONE,
    CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B
};
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };

struct alignas(64) CUtensorMap {
    const unsigned char *base;
    cuuint64_t dims[4], strides[3]; /* strides: bytes */
    cuuint32_t box[4];
    int element_bytes;
    CUtensorMapDataType type;
    CUtensorMapSwizzle swizzle;
};

/* Where 16-byte chunks of shared memory lie: the bits above a row of 128 bytes go into those of the chunk. */
static inline uint32_t emulate_swizzled(uint32_t address, CUtensorMapSwizzle swizzle)
{
    const uint32_t mask = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 7
                          : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 3
                          : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 1
                                                                 : 0;
    return address ^ (address >> 7 & mask) << 4;
}

#endif
