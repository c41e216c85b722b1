/* What the matmul kernels share: their arguments, how a CTA finds its unit of work, element conversions, asynchronous
 * copies.
 *
 * A unit is one output tile of one matrix over one slice of K. Units are numbered in blockIdx.x; above KS_GRID_MAX a
 * CTA takes several, in steps of gridDim.x. The number of slices, and so every sum's order, comes from the plan alone.
 */
#ifndef KS_MATMUL_COMMON_CUH
#define KS_MATMUL_COMMON_CUH

#include "launch.cuh"
#include "matmul_shape.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef long long mm_int; /* sizes and offsets in elements: tensors above 2^31 elements are legal */

typedef struct mm_args {
    size_t a_at, b_at, c_at; /* bytes from the job's sides */
    mm_int m, n, k;
    mm_int a_row, a_col, b_row, b_col, c_row, c_col;
    mm_int batch;
    int batch_rank;
    mm_int batch_dims[KS_MATMUL_BATCH_RANK], a_step[KS_MATMUL_BATCH_RANK], b_step[KS_MATMUL_BATCH_RANK];
    mm_int tiles_m, tiles_n;
    mm_int units;   /* batch * tiles_m * tiles_n * slices */
    mm_int k_slice; /* values of K in a slice; the last one may be shorter */
    int slices;     /* > 1: partial sums go to the workspace, and mm_combine follows */
    int a_vector,
        b_vector; /* bytes that every row start of the operand is a multiple of: 16, 4 or the element's size */
    double alpha;
} mm_args;

typedef struct mm_unit {
    mm_int batch, row, column, slice; /* row, column: of the tile, in tiles */
    mm_int a, b;                      /* of the matrix, in elements */
    mm_int k_begin, k_end;
} mm_unit;

/* Slices of a tile are neighbours, and tiles go down MM_BAND rows before the next column, so that CTAs running at the
 * same time share operands in the L2 cache. */
enum { MM_BAND = 8 };

__device__ __forceinline__ mm_unit mm_unit_at(const mm_args &args, mm_int index)
{
    mm_unit unit;
    unit.slice = index % args.slices;
    index /= args.slices;
    const mm_int tiles = args.tiles_m * args.tiles_n;
    unit.batch = index / tiles;
    index %= tiles;
    const mm_int band = index / (MM_BAND * args.tiles_n), first = band * MM_BAND;
    const mm_int high = min((mm_int)MM_BAND, args.tiles_m - first);
    index -= first * args.tiles_n;
    unit.row = first + index % high;
    unit.column = index / high;
    unit.a = unit.b = 0;
    mm_int rest = unit.batch;
    for (int d = args.batch_rank - 1; d >= 0; d--) {
        const mm_int at = rest % args.batch_dims[d];
        rest /= args.batch_dims[d];
        unit.a += at * args.a_step[d];
        unit.b += at * args.b_step[d];
    }
    unit.k_begin = unit.slice * args.k_slice;
    unit.k_end = min(args.k, unit.k_begin + args.k_slice);
    return unit;
}

/* What an element is summed in. */
template <typename T>
struct mm_sum {
    typedef float type;
};
template <>
struct mm_sum<double> {
    typedef double type;
};

__device__ __forceinline__ float mm_widen(__half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float mm_widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__device__ __forceinline__ float mm_widen(float x)
{
    return x;
}
__device__ __forceinline__ double mm_widen(double x)
{
    return x;
}

template <typename T>
__device__ __forceinline__ T mm_narrow(double x);
template <>
__device__ __forceinline__ __half mm_narrow<__half>(double x)
{
    return __float2half_rn((float)x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 mm_narrow<__nv_bfloat16>(double x)
{
    return __float2bfloat16_rn((float)x);
}
template <>
__device__ __forceinline__ float mm_narrow<float>(double x)
{
    return (float)x;
}
template <>
__device__ __forceinline__ double mm_narrow<double>(double x)
{
    return x;
}

/* alpha in FP64: it is one multiplication per output, and a factor beyond FP32's range stays right. */
template <typename T>
__device__ __forceinline__ T mm_finish(typename mm_sum<T>::type sum, double alpha)
{
    return mm_narrow<T>(alpha == 1.0 ? (double)sum : alpha * (double)sum);
}

/* The unit's partial sums: one plane of all outputs per slice. */
template <typename S>
__device__ __forceinline__ S *mm_plane(const ks_site &site, const mm_args &args, const mm_unit &unit)
{
    return (S *)(site.workspace + blockIdx.y * site.workspace_stride) +
           (unit.slice * args.batch + unit.batch) * args.m * args.n;
}

/* Copies of BYTES (4, 8, 16) past the registers; beyond `valid` bytes the destination gets zeros and nothing is read.
 */
template <int BYTES>
__device__ __forceinline__ void mm_copy_async(void *to, const void *from, int valid)
{
    const unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(valid) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(BYTES), "r"(valid)
                     : "memory");
}

__device__ __forceinline__ void mm_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void mm_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#endif
