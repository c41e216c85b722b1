/* The tables of kernels that candidates are made from: a row is a kernel's tile in all layouts of its operands, with the flags
 * that say what it can do and the times that the cost model needs. Each table is compiled in a file of its own, and a
 * candidate's `kernel` is a row's number: a new row goes behind the others, or tune caches end. */
#ifndef KS_MATMUL_TABLE_CUH
#define KS_MATMUL_TABLE_CUH

#include "cuda/matmul/common.cuh"

#include <cuda.h>

/* Of the kernels that copy by tensor maps; built for each launch, as they hold addresses. */
typedef struct mm_maps {
    CUtensorMap a, b;
} mm_maps;

/* What a CTA takes that has an H200's SM for itself: all but the stages; one stage, and how many times as long it takes where
 * rows of an operand do not start on 16 bytes. */
typedef struct mm_cost {
    float fixed_us, us_per_stage, shifted_times = 3;
} mm_cost;

/* gemv.cuh, strip.cuh: one tile of rows, and K is shared within a cluster only. */
enum mm_skinny_kind {
    MM_NOT_SKINNY,
    MM_SKINNY_HELD,     /* B in whole vectors; A's slice, whatever its rows, is held in shared memory */
    MM_SKINNY_ODD,      /* as that, but B's rows lie across K and start anywhere */
    MM_SKINNY_STRAIGHT, /* A too comes straight into registers: both in whole vectors, A's along K */
    MM_SKINNY_TMA,      /* strip.cuh: `tma`, but a CTA has one unit */
};

/* The order in which an output's products are added, whatever the tile: what multiplies, and the parts of a stage's K, each of
 * which has a sum of its own that the others are added to in turn. Stages have 128 bytes of K, but those of fused multiply-adds. */
enum mm_engine { MM_BY_FMA = 1, MM_BY_MMA, MM_BY_WGMMA, MM_BY_WGMMA_ODD };

static constexpr int mm_order_of(mm_engine engine, int planes, int depth)
{
    return (int)engine << 16 | planes << 8 | depth;
}

/* One layout of a row. Neither entry: the row's kernel cannot do this layout. */
typedef struct mm_kernel {
    const char *name = NULL;
    void (*entry)(ks_site, mm_args) = NULL;
    void (*tma_entry)(ks_site, mm_args, mm_maps) = NULL; /* in the place of `entry` where `tma` */
    int m = 0, n = 0, depth = 0;                         /* of the tile; of a stage */
    int threads = 0, ctas = 0;                           /* ctas: of an SM, that its registers are for */
    int shared_bytes = 0;                                /* dynamic; a slice of A that is held is not counted yet */
    mm_cost cost = {};
    bool tma = false;       /* sm_90a, device memory, operands that are not shifted but for `odd`; walks over units */
    bool split_k = false;   /* K may be shared */
    bool odd = false;       /* of `tma`: A's rows start anywhere, and B alone may be packed */
    bool exact = false;     /* of `matrices`: they are m x n x depth, and there are some */
    int by_m = 0, by_n = 0; /* of `tma`: the CTAs, a cluster, among which rows and columns of a tile are divided */
    int order =
        0; /* mm_order_of(): kernels of one order, and of equal slices of K, give equal bits; 0: like no other */
    mm_skinny_kind skinny = MM_NOT_SKINNY;
    int matrices = 0; /* whole ones, of operands that are not shifted, that a CTA computes at a time; 0: a tile */
} mm_kernel;

/* By layout: [A's rows lie along K][B's do]. The one with both is the row's own: its name and tile stand for the row. */
typedef struct mm_row {
    mm_kernel layout[2][2];
} mm_row;

typedef struct mm_table {
    const char *name; /* of the datatype */
    const mm_row *rows;
    int count;
} mm_table;

/* Candidates say which by number. */
enum { MM_FP16, MM_BF16, MM_TF32, MM_FP32, MM_FP64, MM_TABLES };
extern const mm_table mm_table_fp16, mm_table_bf16, mm_table_tf32, mm_table_fp32, mm_table_fp64;

template <int COUNT>
static constexpr mm_table mm_table_of(const char *name, const mm_row (&rows)[COUNT])
{
    return {name, rows, COUNT};
}

/* Kernels that differ by layout in nothing but code and shared memory: ENTRY<A_K, B_K>() makes each. */
#define MM_LAYOUTS(ENTRY)                                                                                              \
    {                                                                                                                  \
        {                                                                                                              \
            {ENTRY(false, false), ENTRY(false, true)},                                                                 \
            {                                                                                                          \
                ENTRY(true, false), ENTRY(true, true)                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }

/* A kernel with no code for this layout. */
static constexpr mm_kernel mm_without_entry(mm_kernel kernel)
{
    kernel.entry = NULL;
    kernel.tma_entry = NULL;
    return kernel;
}

enum { MM_HELD_UNIT = 256 };

/* Of a row of A that is held: room for a warp's whole share. */
static __host__ __device__ __forceinline__ int mm_held_pitch(int bytes)
{
    return (bytes + MM_HELD_UNIT - 1) / MM_HELD_UNIT * MM_HELD_UNIT;
}

#endif
