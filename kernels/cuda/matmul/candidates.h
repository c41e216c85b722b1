/* What the host's files of matmul share: a product, a kernel that fits it, and what the cost model says of both.
 *
 * arguments.cu   mm_fit_to: a candidate's kernel and arguments
 * model.cu       mm_predict_us: how long a candidate takes
 * candidates.cu  ks_matmul_candidates (plan.h): which kernels can do a product, by rising time
 * join.cu        ks_matmul_join (plan.h): which kernels serve any number of rows with equal bits
 * launch.cu      mm_launch
 * matmul.cu      setup, plans, algorithms: ks_matmul_cuda */
#ifndef KS_MATMUL_CANDIDATES_H
#define KS_MATMUL_CANDIDATES_H

#include "cuda/matmul/plan.h"
#include "cuda/matmul/table.cuh"
#include "cuda/op.h"

enum {
    MM_GRID_MOST = 1 << 30,
    MM_PACK_PITCH = 128,    /* bytes: packed rows start on so many */
    MM_SLICE_MOST = 1 << 27 /* kernels count a slice's bytes in 32 bits */
};

extern const mm_table *const mm_tables[MM_TABLES];

typedef struct mm_problem {
    const ks_chip *chip;
    const ks_spec *spec;
    ks_matmul_shape shape;
    int element_bytes;
} mm_problem;

mm_problem mm_problem_of(const ks_chip *chip, const ks_spec *spec);

/* One operand; no chunks: it is not packed. */
typedef struct mm_pack_part {
    size_t at, to; /* bytes from the in side, and from the workspace */
    unsigned chunks, row_chunks;
    unsigned row_bytes, pitch; /* bytes of a row, and from a packed row to the next */
} mm_pack_part;

typedef struct mm_pack {
    mm_pack_part part[2];
} mm_pack;

typedef struct mm_layout {
    bool a_k, b_k; /* rows of the operand lie along K */
    mm_pack pack;
    size_t packed_bytes; /* of the workspace, behind the partial sums */
} mm_layout;

/* A candidate's kernel, and the arguments that follow from its tile. */
typedef struct mm_fit {
    mm_kernel kernel; /* shared_bytes: all of it */
    mm_args args;
    mm_layout layout;
} mm_fit;

/* Of m and n by the kernel's tile, and what finds one by its number. */
void mm_count_tiles(const mm_kernel *kernel, mm_args *args);
mm_fit mm_fit_to(const mm_problem *p, const ks_matmul_candidate *candidate);
bool mm_can(const mm_problem *p, const mm_fit *fit);
size_t mm_partial_bytes(const mm_problem *p, const mm_fit *fit);
size_t mm_workspace_bytes(const mm_problem *p, const mm_fit *fit);
/* Of a kernel by wgmma one for each warp, else one for each CTA of a cluster. */
size_t mm_counters(const mm_problem *p, const mm_fit *fit);
mm_int mm_grid(const mm_problem *p, const mm_fit *fit);

/* A lane's workspace and counters are for whichever number of rows needs most. */
void mm_join_needs(const ks_chip *chip, const ks_spec *spec, const ks_matmul_family *family, size_t *workspace_bytes,
                   size_t *counters);

/* The chip's costs, fitted or taken over, are model.cu's alone. */
double mm_predict_us(const mm_problem *p, const mm_fit *fit);

/* chip->launches_early */
cudaError_t mm_find_early(ks_chip *chip);
ks_status mm_launch(const mm_problem *p, const ks_matmul_candidate *candidate, const ks_site *site, int bucket,
                    cudaStream_t stream, ks_error *error);

static inline mm_int mm_tiles(mm_int size, mm_int tile)
{
    return (size + tile - 1) / tile;
}

static inline const void *mm_function(const mm_kernel *kernel)
{
    return kernel->tma ? (const void *)kernel->tma_entry : (const void *)kernel->entry;
}

/* CTAs that a unit is divided among. */
static inline unsigned mm_peers(const mm_kernel *kernel)
{
    return kernel->tma ? (unsigned)(kernel->by_m * kernel->by_n) : 1;
}

/* B goes from memory to registers (gemv.cuh). */
static inline bool mm_is_past_shared(const mm_kernel *kernel)
{
    return kernel->skinny && kernel->skinny != MM_SKINNY_TMA;
}

/* The input that, if it is a constant, is read before the launch in front has ended: INPUT1, but past shared memory B, which swap_ab may make
 * INPUT0. */
static inline int mm_fixed_input(const mm_kernel *kernel, const ks_matmul_candidate *candidate)
{
    return mm_is_past_shared(kernel) && candidate->swap_ab ? 0 : 1;
}

/* Clusters of so many CTAs, a power of two, that run at a time. */
static inline int mm_clusters(const ks_chip *chip, unsigned size)
{
    int log2 = 0;
    while (1u << log2 < size) log2++;
    return chip->clusters[log2];
}

#endif
