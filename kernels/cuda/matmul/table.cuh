/* The kernels by number: what matmul.cu chooses from. Each table is compiled in a file of its own. */
#ifndef KS_MATMUL_TABLE_CUH
#define KS_MATMUL_TABLE_CUH

#include "cuda/matmul/common.cuh"

#include <cuda.h>

/* Of the kernels that copy by tensor maps; built for each launch, as they hold addresses. */
typedef struct mm_maps {
    CUtensorMap a, b;
} mm_maps;

/* A CTA's pace alone on an H200's SM: all but the stages; one stage, and how many times as long it takes where rows of an
 * operand do not start on 16 bytes. */
typedef struct mm_pace {
    float fixed_us, stage_us, shifted = 3;
} mm_pace;

/* matmul_skinny.cuh: one tile of rows and no groups. */
enum mm_skinny_kind {
    MM_NOT_SKINNY,
    MM_SKINNY_HELD,     /* B in whole vectors; A's slice, whatever its rows, is held in shared memory */
    MM_SKINNY_ODD,      /* as that, but B's rows lie across K and start anywhere */
    MM_SKINNY_STRAIGHT, /* A too comes straight into registers: both in whole vectors, A's along K */
    MM_SKINNY_BULK,     /* matmul_strip.cuh: `bulk`, but a CTA has one unit */
};

typedef struct mm_kernel {
    const char *name;       /* NULL: behind the table's end */
    const void *function;   /* of (ks_site, mm_args), and mm_maps where `bulk` */
    int m, n, depth;        /* of the tile; of a stage */
    int threads, ctas;      /* ctas: of an SM, that its registers are for */
    int shared_bytes;       /* dynamic; a slice of A that is held is not counted yet */
    mm_pace pace;           /* for the model */
    bool bulk;              /* sm_90a, device memory, operands that are not shifted but for `odd`; walks over units */
    bool splits;            /* K may be shared */
    int by_m = 0, by_n = 0; /* of `bulk`: the CTAs, a cluster, among which rows and columns of a tile are divided */
    mm_skinny_kind skinny = MM_NOT_SKINNY;
    int matrices = 0;   /* whole ones, of operands that are not shifted, that a CTA computes at a time; 0: a tile */
    bool odd = false;   /* of `bulk`: A's rows start anywhere, and B alone may be packed */
    bool exact = false; /* of `matrices`: they are m x n x depth, and there are some */
} mm_kernel;

enum { MM_HELD_UNIT = 256 };

/* Of a row of A that is held: room for a warp's whole share. */
static __host__ __device__ __forceinline__ int mm_held_pitch(int bytes)
{
    return (bytes + MM_HELD_UNIT - 1) / MM_HELD_UNIT * MM_HELD_UNIT;
}

/* Kernel `index` of a table for operands whose rows lie along K or not. */
typedef mm_kernel mm_table_fn(int index, bool a_k, bool b_k);

mm_table_fn mm_table_fp16, mm_table_bf16, mm_table_tf32, mm_table_fp32, mm_table_fp64;

#endif
