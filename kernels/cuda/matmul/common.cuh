/* What the matmul kernels share: their arguments, how a CTA finds its unit of work.
 *
 * A unit is one output tile of one matrix over one slice of K, and one CTA. Neighbouring units are the slices of one tile:
 * `cluster` of them are a cluster, `splits` clusters share the tile. Split, tiles and order come from the plan alone. */
#ifndef KS_MATMUL_COMMON_CUH
#define KS_MATMUL_COMMON_CUH

#include "cuda/common/launch.cuh"
#include "cuda/common/ptx_mma.cuh"
#include "ops/matmul.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

typedef long long mm_int; /* sizes and offsets in elements: tensors above 2^31 elements are legal */

enum { KS_MATMUL_CLUSTER_MAX = 8 };

/* The last: INPUT1 was there before; of kernels past shared memory (gemv.cuh), B. */
enum mm_packed { MM_PACKED_NOT, MM_PACKED, MM_PACKED_INPUT0 };

/* How many columns of a tile a box of a TMA copy has where rows lie across K: 128 bytes of them, or half as many where a tile's are not whole
 * such boxes; a narrow tile's in one. */
constexpr int mm_box_columns(int across, int element_bytes)
{
    const int line = 128 / element_bytes;
    return across < line ? across : across % line == 0 ? line : line / 2;
}

/* Stored rows of contiguous elements: along K, or across it. */
typedef struct mm_operand {
    size_t at;    /* bytes from the job's in side; packed, they lead into the workspace */
    mm_int pitch; /* elements from one row to the next */
    mm_int step[KS_MATMUL_BATCH_RANK];
    int shifted; /* not all rows start on 16 bytes */
} mm_operand;

/* What finds a unit comes first and together: a launch reads its arguments from far away, line by line. Reciprocals are times
 * 2^32 and rounded up: right for all units of a grid. */
typedef struct mm_args {
    mm_int k_slice; /* values of K in a slice; the last ones may be shorter, or empty */
    mm_int k;
    unsigned tiles_m, reciprocal; /* of tiles_m up to MM_BAND */
    unsigned splits, splits_reciprocal;
    uint8_t cluster_log2;
    uint8_t batch_rank;
    uint8_t packed; /* mm_packed: a launch before this one writes operands, and has stamped the start */
    uint8_t many;   /* 1: A has a matrix for each of the output's; 2: B has */
    unsigned tiles, tiles_factor, tiles_shift; /* of a matrix; what divides up to 2^31 by them: mm_unit_at() */
    unsigned tiles_n, matrices, cluster;
    int swap_ab;          /* C is stored transposed */
    int plain;            /* alpha is 1, no bias, no activation, no residual */
    mm_int m, n;          /* of the product that is computed: with swap_ab, it is the transposed one */
    int biased, residual; /* whether there is one */
    int activation;       /* ks_matmul_activation */
    size_t c_at, bias_at, residual_at;
    double alpha;
    mm_operand a, b;
    mm_int batch_dims[KS_MATMUL_BATCH_RANK];
} mm_args;

typedef struct mm_unit {
    unsigned batch, row, column, split; /* row, column: of the tile, in tiles */
    unsigned tile;                      /* of all matrices' tiles */
    mm_int a, b;                        /* of the matrix, in elements */
    mm_int k_begin, k_end;
} mm_unit;

/* Where matrix `index` of the output finds its operands, in elements. */
__device__ __forceinline__ void mm_operands_at(const mm_args &args, unsigned index, mm_int *a, mm_int *b)
{
    if (args.batch_rank == 1) { /* without the loop, which reads its arguments one behind the other */
        *a = index * args.a.step[0], *b = index * args.b.step[0];
        return;
    }
    *a = *b = 0;
#pragma unroll 1
    for (int d = args.batch_rank - 1; d >= 0; d--) {
        const unsigned dim = (unsigned)args.batch_dims[d], digit = d > 0 ? index % dim : index;
        if (d > 0) index /= dim;
        *a += digit * args.a.step[d];
        *b += digit * args.b.step[d];
    }
}

/* Tiles go down MM_BAND rows before the next column, so that CTAs running at the same time share operands in the L2
 * cache. BANDS: there may be several. */
enum { MM_BAND = 8 };

template <bool BANDS = true>
__device__ __forceinline__ mm_unit mm_unit_at(const mm_args &args, unsigned index)
{
    mm_unit unit;
    const unsigned part = index >> args.cluster_log2;
    unit.tile = args.splits == 1 ? part : __umulhi(part, args.splits_reciprocal);
    unit.split = part - unit.tile * args.splits;
    const unsigned slice = index - ((unit.tile * args.splits) << args.cluster_log2);
    unit.k_begin = min(args.k, slice * args.k_slice);
    unit.k_end = min(args.k, unit.k_begin + args.k_slice);
    unsigned at = unit.tile;
    unit.batch = 0;
    if (args.batch_rank > 0) {
        unit.batch = (unsigned)((uint64_t)at * args.tiles_factor >> 31 >> args.tiles_shift);
        at -= unit.batch * args.tiles;
    }
    mm_operands_at(args, unit.batch, &unit.a, &unit.b);
    unsigned first = 0, high = args.tiles_m;
    if (BANDS && high > MM_BAND) {
        first = at / (MM_BAND * args.tiles_n) * MM_BAND;
        at -= first * args.tiles_n;
        high = min((unsigned)MM_BAND, args.tiles_m - first);
    }
    if (BANDS && args.tiles_m > MM_BAND)
        unit.column = at / high;
    else
        unit.column = high == 1 ? at : __umulhi(at, args.reciprocal);
    unit.row = first + at - unit.column * high;
    return unit;
}

/* The end stamp on device memory, in place of ks_leave(): by one thread of a CTA, before the CTA's last stores, behind which it
 * would be waited for. */
__device__ __forceinline__ void mm_stamp(const ks_site &site)
{
    if (!site.job_table && blockIdx.x + (uint32_t)KS_STAMPING >= gridDim.x)
        ks_write_relaxed(&site.completion->end_ns, ks_globaltimer());
}

/* The kernel has stamped: what is left is ks_leave() on mapped slots. */
__device__ __forceinline__ void mm_leave(const ks_site &site)
{
    if (site.job_table) ks_leave(site);
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

/* What the launch before this one has packed is there. */
__device__ __forceinline__ void mm_await_packed()
{
    ks_launch_wait();
}

/* The start stamp, or the wait for what stands behind it. */
__device__ __forceinline__ void mm_begin(const ks_site &site, const mm_args &args)
{
    if (args.packed)
        mm_await_packed();
    else
        ks_start(site);
}

#endif
