/* Matmul on CUDA: which kernels can do it, which of them should, and the launch.
 *
 * Kernels  tiles (matmul_tile.cuh) of tensor cores for FP16, BF16 and, on request, TF32, of fused multiply-adds for FP32 and
 *          FP64. Few rows are low tiles that a wide operand streams past, or, where it goes straight into registers, strips
 *          (matmul_skinny.cuh); few columns are few rows of the transposed product. Tiles too few for the chip share K:
 *          within a cluster, and across clusters through the workspace. Batches of small matrices are computed by a warp or
 *          a CTA each (matmul_batch.cuh, matmul_batch_straight.cuh). Rows that do not start on 16 bytes are shifted in shared
 *          memory, or copied into the workspace by a launch of their own (matmul_pack.cuh), or read where they lie
 *          (matmul_wgmma_odd.cuh).
 * Bits     depend on the candidate alone: no atomics on values, every sum's order is fixed.
 * Threads  any; everything here is constant after setup. */
#include "cuda/op.h"
#include "cuda/matmul/cublaslt.cuh"
#include "cuda/matmul/pack.cuh"
#include "cuda/matmul/plan.h"
#include "cuda/matmul/table.cuh"

#include <cudaTypedefs.h>
#include <math.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum mm_table { MM_FP16, MM_BF16, MM_TF32, MM_FP32, MM_FP64, MM_TABLES };

enum {
    MM_GROUPS_MAX = 64,
    MM_GRID_MOST = 1 << 30,
    MM_BATCH_K = 128,
    MM_SLICE_MOST = 1 << 27 /* kernels count a slice's bytes in 32 bits */
};

static mm_table_fn *const tables[MM_TABLES] = {[MM_FP16] = mm_table_fp16,
                                               [MM_BF16] = mm_table_bf16,
                                               [MM_TF32] = mm_table_tf32,
                                               [MM_FP32] = mm_table_fp32,
                                               [MM_FP64] = mm_table_fp64};
static const char *const table_names[MM_TABLES] = {"FP16", "BF16", "TF32", "FP32", "FP64"};

static mm_table table_of(const ks_spec *spec, const ks_matmul_shape *s)
{
    switch (spec->out.dtype) {
    case KS_FP16:
        return MM_FP16;
    case KS_BF16:
        return MM_BF16;
    case KS_FP32:
        return s->tf32 ? MM_TF32 : MM_FP32;
    default:
        return MM_FP64;
    }
}

/* The driver's, where the chip has bulk tensor copies; fixed after setup. */
static PFN_cuTensorMapEncodeTiled_v12000 encode_map;

/* Clusters of 1 << i CTAs, one CTA to an SM, that run at a time: fewer than the SMs make one think, because a cluster stays
 * within a part of the chip. Fixed after setup. */
static int clusters_fit[4];

/* A launch may begin before the one in front of it has ended. Fixed after setup. */
static bool early;

static mm_int tiles_of(mm_int size, mm_int tile)
{
    return (size + tile - 1) / tile;
}

/* --- arguments ------------------------------------------------------------------------------------------------------- */

/* across, along: the strides across K and along it, one of them 1; wide: the extent across. *along_k: rows lie along K.
 * A single row has no pitch. */
static mm_operand operand_of(size_t at, mm_int across, mm_int along, mm_int wide, mm_int k, const int64_t *steps,
                             int rank, int element_bytes, bool *along_k)
{
    mm_operand o = {};
    o.at = at;
    *along_k = along == 1 && (wide == 1 || k > 1 || across != 1);
    o.pitch = *along_k ? (wide == 1 ? 0 : across) : k == 1 ? 0 : along;
    mm_int together = o.pitch;
    for (int d = 0; d < rank; d++) {
        o.step[d] = steps[d];
        together |= steps[d];
    }
    /* A single row may end within 16 bytes. */
    if (wide == 1) together |= k;
    if (k == 1) together |= wide;
    o.shifted = together * element_bytes % 16 != 0;
    return o;
}

typedef struct mm_layout {
    bool a_k, b_k; /* rows of the operand lie along K */
    mm_pack pack;
    size_t packed_bytes; /* of the workspace, behind the partial sums */
} mm_layout;

static mm_args arguments(const ks_spec *spec, const ks_matmul_shape *s, bool turned, mm_layout *layout)
{
    const int element_bytes = (int)ks_dtype_size(spec->out.dtype);
    mm_args args = {};
    args.c_at = spec->out.offset;
    args.biased = s->biased;
    args.bias_at = spec->in[2].offset;
    args.activation = s->activation;
    args.alpha = s->alpha;
    args.plain = s->alpha == 1.0 && !s->biased && s->activation == KS_MATMUL_NONE;
    args.k = s->k;
    args.batch_rank = (uint8_t)s->batch_rank;
    for (int d = 0; d < s->batch_rank; d++) args.batch_dims[d] = s->batch_dims[d];
    bool a_k, b_k;
    const mm_operand a =
        operand_of(spec->in[0].offset, s->a_row, s->a_col, s->m, s->k, s->a_step, s->batch_rank, element_bytes, &a_k);
    const mm_operand b =
        operand_of(spec->in[1].offset, s->b_col, s->b_row, s->n, s->k, s->b_step, s->batch_rank, element_bytes, &b_k);
    args.turned = turned;
    args.m = turned ? s->n : s->m;
    args.n = turned ? s->m : s->n;
    args.a = turned ? b : a;
    args.b = turned ? a : b;
    *layout = {};
    layout->a_k = turned ? b_k : a_k;
    layout->b_k = turned ? a_k : b_k;
    return args;
}

static bool packs(const mm_operand *o)
{
    return o->shifted && o->pitch > 0;
}

/* Input `in` as it lies once it is packed, where it has to be. */
static void pack_operand(const ks_tensor *in, mm_operand *o, mm_pack_part *part, size_t *packed_bytes)
{
    if (!packs(o)) return;
    const mm_int size = (mm_int)ks_dtype_size(in->dtype), rows = ks_tensor_count(in) / o->pitch;
    const mm_int pitch = tiles_of(o->pitch * size, MM_PACK_PITCH) * MM_PACK_PITCH;
    part->at = o->at;
    part->to = *packed_bytes;
    part->row_chunks = (unsigned)tiles_of(o->pitch * size, 16);
    part->chunks = (unsigned)rows * part->row_chunks;
    part->row_bytes = (unsigned)(o->pitch * size);
    part->pitch = (unsigned)pitch;
    *packed_bytes += ks_align((size_t)rows * (size_t)pitch);
    for (int d = 0; d < KS_MATMUL_BATCH_RANK; d++) o->step[d] = o->step[d] / o->pitch * (pitch / size);
    o->pitch = pitch / size;
    o->shifted = false;
}

/* Shared memory of a kernel that holds A's slice: the outputs' slots, then A or, later, the sums. */
static int held_bytes(const mm_kernel *kernel, mm_int slice_bytes)
{
    const mm_int most = MM_SLICE_MOST, slots = (mm_int)kernel->m * kernel->n * (mm_int)sizeof(float);
    const mm_int held = slots + kernel->m * (mm_int)mm_held_pitch((int)(slice_bytes < most ? slice_bytes : most));
    return held < kernel->shared_bytes ? kernel->shared_bytes : (int)(held < most ? held : most);
}

/* The candidate's kernel, and the arguments that follow from its tile. */
static mm_kernel fit(const ks_spec *spec, const ks_matmul_shape *s, const ks_matmul_candidate *c, mm_args *args,
                     mm_layout *layout)
{
    *args = arguments(spec, s, c->turned, layout);
    mm_kernel kernel = tables[c->table](c->kernel, layout->a_k, layout->b_k);
    args->packed = c->packed;
    for (int i = 0; i < 2 && c->packed; i++)
        if (!kernel.odd || i != c->turned)
            pack_operand(&spec->in[i], i == c->turned ? &args->a : &args->b, &layout->pack.part[i],
                         &layout->packed_bytes);
    args->tiles_m = (unsigned)tiles_of(args->m, kernel.m);
    args->tiles_n = (unsigned)tiles_of(args->n, kernel.n);
    if (args->tiles_m > 1) args->reciprocal = (unsigned)(((1ull << 32) + args->tiles_m - 1) / args->tiles_m);
    args->cluster = c->cluster;
    args->groups = (unsigned)c->groups;
    if (args->groups > 1) args->groups_reciprocal = (unsigned)(((1ull << 32) + args->groups - 1) / args->groups);
    for (args->cluster_log2 = 0; 1u << args->cluster_log2 < args->cluster; args->cluster_log2++) continue;
    args->matrices = (unsigned)s->batch;
    args->many = (uint8_t)((args->a.step[0] != 0) | (args->b.step[0] != 0) << 1);
    args->tiles = args->tiles_m * args->tiles_n;
    while (1ull << args->tiles_shift < args->tiles) args->tiles_shift++;
    if (args->tiles > 0)
        args->tiles_factor = (unsigned)(((1ull << 31 << args->tiles_shift) + args->tiles - 1) / args->tiles);
    args->k_slice = c->k_slice;
    if (kernel.skinny == MM_SKINNY_HELD || kernel.skinny == MM_SKINNY_ODD)
        kernel.shared_bytes = held_bytes(&kernel, c->k_slice * (mm_int)ks_dtype_size(spec->out.dtype));
    return kernel;
}

/* CTAs that a unit is divided among. */
static unsigned peers_of(const mm_kernel *kernel)
{
    return kernel->bulk ? (unsigned)(kernel->by_m * kernel->by_n) : 1;
}

/* Clusters of so many CTAs, a power of two, that run at a time. */
static int clusters_of(unsigned size)
{
    int log2 = 0;
    while (1u << log2 < size) log2++;
    return clusters_fit[log2];
}

/* A unit is a CTA, or a cluster, but for kernels that walk over whole tiles, or take several matrices at a time. */
static mm_int grid_of(const mm_args *args, const mm_kernel *kernel)
{
    if (kernel->matrices) return tiles_of(args->matrices, kernel->matrices);
    const mm_int units = (mm_int)args->matrices * args->tiles_m * args->tiles_n * args->cluster * args->groups;
    const unsigned peers = peers_of(kernel);
    const mm_int most = (mm_int)clusters_of(peers) * kernel->ctas;
    const bool walks = kernel->bulk && !kernel->skinny && args->cluster * args->groups == 1;
    return (walks && units > most ? most : units) * peers;
}

/* --- the model ------------------------------------------------------------------------------------------------------- */

/* How the chip carries the tiles of a family of kernels, whose own paces stand in their tables. All of them rank
 * candidates, so that other chips need only their proportions. */
typedef struct mm_family {
    double launch_us;             /* of each */
    double cluster_us, groups_us; /* where CTAs share K so */
    double dram_us, l2_us;        /* bytes */
    double shared_pace;           /* of a CTA's pace alone, what each neighbour on its SM adds */
    double idle_power;            /* how few CTAs draw less than all of the memory's bandwidth */
    double enough;                /* to an SM, of CTAs that share K: fewer draw as much less */
    double overlap;               /* of the shorter one of work and memory, what stays visible */
    double beyond; /* what a stage's rows cost that lie beyond the operand, as a part of its time for memory */
    double turned; /* what a turned tile's beginning and end take, times the others' */
} mm_family;

/* Fitted to 2,500 readings of candidates over 111 shapes on one H200, large tiles' paces to 4,700 before. */
static const mm_family copied = {2.6, 0.68, 1.8, 3.8e6, 5.3e6, 0.88, 0.33, 0, 0.35, 0, 1.45},
                       bulk = {2.0, 0.3, 0.8, 3.9e6, 10.8e6, 0.63, 0.41, 0.45, 0.34, 0.5, 1};
static const double group_us = 0.086;
/* Bytes that wgmma's kernels read where CTAs share K: few others ask for the same at about the same time. */
static const double slices_l2_us = 7e6;
/* Of the skinny kernels; their fixed_us has the launch in it. */
static const double skinny_dram_us = 4.7e6, skinny_shared_pace = 0.3, skinny_idle_power = 0.29, skinny_overlap = 0.3,
                    skinny_cluster_us = 0.27, strip_cluster_us = 1.0, skinny_wave = 0.79;
/* Of TF32's by wgmma, to 823 readings over 27 shapes. A kernel that walks over tiles has begun the next one's copies; CTAs
 * that share K come in waves, each of which takes as long as a launch; rows shorter than a tile are read as slowly as whole
 * ones. Their fixed_us has the launch in it. */
static const double wide_dram_us = 4.4e6, wide_l2_us = 25e6, wide_shared_pace = 0.28, wide_overlap = 0.51,
                    wide_slices_overlap = 0.25, wide_cluster_us = 0.3, wide_groups_us = 0.3, wide_walk = 0.19;

/* Before a product of packed operands. */
static const double pack_us = 2.4, pack_bytes_us = 2.4e6;

/* Fitted to batches of 1 to 4096 matrices: the CTAs of an SM have all their copies under way at once. */
static const double batch_launch_us = 1.4, batch_dram_us = 4.15e6;

static double predict_batch(const ks_chip *chip, const ks_matmul_shape *s, const mm_args *args, const mm_kernel *kernel,
                            int element_bytes)
{
    const double ctas = (double)tiles_of(args->matrices, kernel->matrices);
    const double work = ceil(ctas / chip->sms) * (double)tiles_of(args->k, kernel->depth) * kernel->pace.stage_us;
    const double unique = ((double)s->m * s->k + (double)s->k * s->n + (double)s->m * s->n) * (double)s->batch;
    return batch_launch_us + kernel->pace.fixed_us + fmax(work, unique * element_bytes / batch_dram_us);
}

static double predict(const ks_chip *chip, const ks_matmul_shape *s, const mm_args *args, const mm_kernel *kernel,
                      int element_bytes)
{
    if (kernel->matrices) return predict_batch(chip, s, args, kernel, element_bytes);
    const double slices = (double)args->cluster * args->groups;
    const double units = (double)s->batch * args->tiles_m * args->tiles_n * slices;
    const unsigned together = args->cluster * peers_of(kernel);
    const double ctas = units * peers_of(kernel);
    const int by_shared = (int)(chip->shared_sm / ((size_t)kernel->shared_bytes + 1024));
    const int by_threads = chip->threads_sm / kernel->threads;
    int resident = by_shared < by_threads ? by_shared : by_threads;
    if (resident > kernel->ctas) resident = kernel->ctas;
    if (resident < 1) resident = 1;
    const double slots = (double)clusters_of(together) * together * resident;
    const double waves = ceil(ctas / slots), stages = ceil((double)tiles_of(args->k, kernel->depth) / slices);
    const double running = ctas < slots ? ctas : slots;
    /* On the busiest SM: clusters that have no part of the chip for themselves share one. */
    const double neighbours = ceil(running / together / clusters_of(together));
    const double pace = kernel->pace.stage_us * (args->a.shifted || args->b.shifted ? kernel->pace.shifted : 1);
    const double rows = (double)(args->m < kernel->m ? args->m : kernel->m);
    const double columns = (double)(args->n < kernel->n ? args->n : kernel->n);
    const double unique = ((double)s->m * s->k + (double)s->k * s->n + (double)s->m * s->n) * (double)s->batch;
    if (kernel->skinny) {
        const double paced = waves * stages * kernel->pace.stage_us * (1 + skinny_shared_pace * (neighbours - 1));
        const double read =
            unique * element_bytes / skinny_dram_us * pow(chip->sms / fmin(running, chip->sms), skinny_idle_power);
        const double met = (kernel->bulk ? strip_cluster_us : skinny_cluster_us) * args->cluster_log2;
        return kernel->pace.fixed_us * (1 + skinny_wave * (waves - 1)) + met + fmax(paced, read) +
               skinny_overlap * fmin(paced, read);
    }
    if (kernel->bulk && element_bytes == 4) {
        const double paced = waves * stages * kernel->pace.stage_us * (1 + wide_shared_pace * (neighbours - 1)) *
                             (slices > 1 ? 1 : (double)kernel->m / rows);
        const double read = fmax(unique / wide_dram_us, units * (rows + columns) * ceil((double)s->k / slices) /
                                                            (slices > 1 ? slices_l2_us : wide_l2_us)) *
                            element_bytes;
        const double met = (args->cluster > 1 ? wide_cluster_us : 0) +
                           (args->groups > 1 ? wide_groups_us + group_us * args->groups : 0);
        return kernel->pace.fixed_us * (1 + (slices > 1 ? 1 : wide_walk) * (waves - 1)) + met + fmax(paced, read) +
               (slices > 1 ? wide_slices_overlap : wide_overlap) * fmin(paced, read);
    }
    const mm_family *f = kernel->bulk ? &bulk : &copied;
    const double work = waves * stages * pace * (1 + f->shared_pace * (neighbours - 1));
    double memory = fmax(unique * element_bytes / f->dram_us,
                         units * (rows + columns) * ceil((double)s->k / slices) * element_bytes /
                             (slices > 1 && kernel->bulk ? slices_l2_us : f->l2_us));
    memory *= 1 + f->beyond * (1 - (rows + columns) / (kernel->m + kernel->n));
    if (slices > 1 && f->enough > 0)
        memory *= fmax(1, f->enough * chip->sms / running);
    else if (running < chip->sms)
        memory *= pow(chip->sms / running, f->idle_power);
    const double fixed = waves * kernel->pace.fixed_us * (args->turned ? f->turned : 1);
    const double meeting =
        (args->cluster > 1 ? f->cluster_us : 0) + (args->groups > 1 ? f->groups_us + group_us * args->groups : 0);
    return f->launch_us + fixed + meeting + fmax(work, memory) + f->overlap * fmin(work, memory);
}

/* --- candidates ------------------------------------------------------------------------------------------------------ */

static size_t sum_bytes(const ks_spec *spec)
{
    return spec->out.dtype == KS_FP64 ? sizeof(double) : sizeof(float);
}

static size_t partial_bytes(const ks_spec *spec, const ks_matmul_shape *s, const mm_args *args, const mm_kernel *kernel)
{
    if (args->groups == 1) return 0;
    return ks_align((size_t)s->batch * args->tiles_m * args->tiles_n * args->groups * (size_t)kernel->m *
                    (size_t)kernel->n * sum_bytes(spec));
}

static size_t workspace_of(const ks_spec *spec, const ks_matmul_shape *s, const mm_args *args, const mm_layout *layout,
                           const mm_kernel *kernel)
{
    return partial_bytes(spec, s, args, kernel) + layout->packed_bytes;
}

/* Of a kernel by wgmma one for each warp, else one for each CTA of a group. */
static size_t counters_of(const ks_matmul_shape *s, const mm_args *args, const mm_kernel *kernel)
{
    if (args->groups == 1) return 0;
    return (size_t)s->batch * args->tiles_m * args->tiles_n * args->cluster *
           (size_t)(kernel->bulk ? kernel->threads / 32 : 1);
}

static bool fits(const ks_chip *chip, const ks_spec *spec, const ks_matmul_shape *s, const mm_args *args,
                 const mm_layout *layout, const mm_kernel *kernel)
{
    const double units = (double)s->batch * args->tiles_m * args->tiles_n * args->cluster * args->groups;
    return (size_t)kernel->shared_bytes <= chip->shared_optin && units <= (double)MM_GRID_MOST &&
           args->k_slice <= MM_SLICE_MOST && workspace_of(spec, s, args, layout, kernel) <= chip->workspace_bytes &&
           counters_of(s, args, kernel) <= KS_COUNTERS_MAX;
}

/* A candidate's place in a list that is kept sorted and as long as `most`. */
static int insert(ks_matmul_candidate *list, int count, int most, const ks_matmul_candidate *candidate)
{
    int at = count < most ? count : most - 1;
    if (count == most && list[at].predicted_us <= candidate->predicted_us) return count;
    for (; at > 0 && list[at - 1].predicted_us > candidate->predicted_us; at--) list[at] = list[at - 1];
    list[at] = *candidate;
    return count < most ? count + 1 : most;
}

/* Tensor maps need something to map, rows that start on 16 bytes and at most one dimension of the batch. */
static bool bulk_can(const ks_chip *chip, const ks_matmul_shape *s, const mm_args *args, const mm_kernel *kernel)
{
    return chip->capability == 90 && encode_map && s->m > 0 && s->n > 0 && s->k > 0 && s->batch > 0 &&
           s->batch_rank <= 1 && args->a.shifted == kernel->odd && !args->b.shifted;
}

static bool skinny_can(const mm_kernel *kernel, const ks_matmul_candidate *c, const mm_args *args,
                       const mm_layout *layout, int element_bytes)
{
    const bool whole_k = args->k * element_bytes % 16 == 0;
    if (args->tiles_m > 1 || c->groups > 1 || kernel->m * kernel->n % c->cluster != 0) return false;
    if (kernel->skinny == MM_SKINNY_ODD) return !layout->b_k;
    if (kernel->skinny == MM_SKINNY_BULK) return true; /* bulk_can() */
    if (kernel->skinny == MM_SKINNY_STRAIGHT && (!layout->a_k || args->a.shifted || !whole_k)) return false;
    return !args->b.shifted && (layout->b_k ? whole_k : args->n * element_bytes % 16 == 0);
}

/* Kernels of several matrices have no tile but the first, copy whole vectors only, and have few stages in flight. */
static bool batch_can(const mm_args *args, const mm_kernel *kernel)
{
    if (kernel->exact &&
        (args->matrices == 0 || args->m != kernel->m || args->n != kernel->n || args->k != kernel->depth))
        return false;
    return args->tiles_m == 1 && args->tiles_n == 1 && args->k <= MM_BATCH_K && !args->a.shifted && !args->b.shifted;
}

/* One way to share K; returns false where there is no more than this to share. */
static bool add_split(const ks_chip *chip, const ks_spec *spec, const ks_matmul_shape *s, ks_matmul_candidate c,
                      int cluster, int groups, ks_matmul_candidate *list, int *count, int most)
{
    const mm_int slices = (mm_int)cluster * groups;
    const int element_bytes = (int)ks_dtype_size(spec->out.dtype);
    mm_args args;
    mm_layout layout;
    c.cluster = (uint8_t)cluster;
    c.groups = (int16_t)groups;
    c.k_slice = s->k;
    mm_kernel kernel = fit(spec, s, &c, &args, &layout);
    const mm_int stages = tiles_of(s->k, kernel.depth);
    const double tiles = (double)s->batch * args.tiles_m * args.tiles_n;
    if (!kernel.function || (kernel.bulk && !bulk_can(chip, s, &args, &kernel))) return false;
    if (kernel.matrices && !batch_can(&args, &kernel)) return false;
    if (c.packed && (layout.packed_bytes == 0 || kernel.matrices || kernel.skinny)) return false;
    if (kernel.bulk && cluster * 8 > kernel.n) return false; /* a CTA finishes whole blocks of 8 columns */
    if (slices > 1 && (!kernel.splits || slices > stages || tiles * (double)slices > 8.0 * chip->sms)) return false;
    if (kernel.skinny && !skinny_can(&kernel, &c, &args, &layout, element_bytes)) return false;
    if (slices > 1) {
        c.k_slice = tiles_of(stages, slices) * kernel.depth;
        kernel = fit(spec, s, &c, &args, &layout);
    }
    if (!fits(chip, spec, s, &args, &layout, &kernel)) return true;
    c.grid = grid_of(&args, &kernel);
    c.predicted_us = predict(chip, s, &args, &kernel, element_bytes) +
                     (c.packed ? pack_us + (double)layout.packed_bytes / pack_bytes_us : 0);
    *count = insert(list, *count, most, &c);
    return true;
}

/* One kernel, one orientation: clusters of all sizes, alone, in powers of two, and as many as the chip runs at a time. */
static int add_splits(const ks_chip *chip, const ks_spec *spec, const ks_matmul_shape *s, ks_matmul_candidate c,
                      ks_matmul_candidate *list, int count, int most)
{
    const int cluster_most = chip->capability >= 90 ? KS_MATMUL_CLUSTER_MAX : 1;
    mm_args args;
    mm_layout layout;
    c.cluster = 1;
    c.groups = 1;
    (void)fit(spec, s, &c, &args, &layout);
    const double tiles = (double)s->batch * args.tiles_m * args.tiles_n;
    for (int cluster = 1, log2 = 0; cluster <= cluster_most; cluster *= 2, log2++) {
        for (int groups = 1; groups <= MM_GROUPS_MAX; groups *= 2) {
            if (groups > 1 && cluster == 1 && cluster_most > 1) break; /* a cluster is the cheaper way to meet */
            if (!add_split(chip, spec, s, c, cluster, groups, list, &count, most)) break;
        }
        for (int each = 1; each <= 2; each++) { /* CTAs to an SM */
            const int full = (int)(clusters_fit[log2] * each / tiles);
            if (full > 2 && full <= MM_GROUPS_MAX && (full & (full - 1)) && (cluster > 1 || cluster_most == 1))
                (void)add_split(chip, spec, s, c, cluster, full, list, &count, most);
        }
    }
    return count;
}

static int add_table(const ks_chip *chip, const ks_spec *spec, const ks_matmul_shape *s, ks_matmul_candidate c,
                     ks_matmul_candidate *list, int count, int most)
{
    const mm_int rows = c.turned ? s->n : s->m;
    for (int kernel = 0;; kernel++) {
        c.kernel = (uint8_t)kernel;
        const mm_kernel tile = tables[c.table](kernel, true, true);
        if (!tile.name) return count;
        /* Turned is for low tiles, and for those of few columns; a tile of one row has no layout for more. */
        if ((!c.turned || tile.skinny || tile.m < tile.n || tile.bulk) && (tile.m > 1 || rows == 1))
            count = add_splits(chip, spec, s, c, list, count, most);
    }
}

int ks_matmul_candidates(const ks_chip *chip, const ks_spec *spec, ks_matmul_candidate *out, int most)
{
    ks_matmul_shape shape;
    ks_matmul_shape_of(spec, &shape);
    ks_matmul_candidate c;
    memset(&c, 0, sizeof c);
    int count = 0;
    for (int turned = 0; turned < 2; turned++) {
        c.turned = (uint8_t)turned;
        c.table = (uint8_t)table_of(spec, &shape);
        for (c.packed = 0; c.packed < 2; c.packed++) count = add_table(chip, spec, &shape, c, out, count, most);
        c.packed = 0;
        c.table = MM_FP32; /* more exact than asked for, and faster for few rows */
        if (shape.tf32) count = add_table(chip, spec, &shape, c, out, count, most);
    }
    return count;
}

/* One tile per matrix, and no matrix shared: every input byte is then read once. */
static bool reads_once(const ks_matmul_shape *s, const mm_args *args)
{
    if (args->tiles_m * args->tiles_n > 1) return false;
    for (int d = 0; d < s->batch_rank; d++)
        if (s->a_step[d] == 0 || s->b_step[d] == 0) return false;
    return true;
}

void ks_matmul_candidate_plan(const ks_chip *chip, const ks_spec *spec, const ks_matmul_candidate *candidate,
                              ks_cuda_plan *out)
{
    ks_matmul_shape shape;
    ks_matmul_shape_of(spec, &shape);
    mm_args args;
    mm_layout layout;
    const mm_kernel kernel = fit(spec, &shape, candidate, &args, &layout);
    const mm_int grid = grid_of(&args, &kernel);
    memset(out, 0, sizeof *out);
    out->once = reads_once(&shape, &args) && grid <= KS_GRID_MAX && !kernel.bulk && !candidate->packed;
    out->batch_max = out->once ? KS_BATCH_MAX : 1;
    out->workspace_bytes = workspace_of(spec, &shape, &args, &layout, &kernel);
    out->counters = counters_of(&shape, &args, &kernel);
    out->pick.grid = grid;
    out->pick.threads = kernel.threads;
    out->pick.cluster = (int)args.cluster;
    out->pick.shared_bytes = (size_t)kernel.shared_bytes;
    snprintf(out->pick.kernel, sizeof out->pick.kernel, "matmul<%s, %s%s%s>, %u x %u slices",
             table_names[candidate->table], kernel.name, candidate->turned ? " turned" : "",
             candidate->packed ? " packed" : "", args.groups, args.cluster);
    static_assert(sizeof *candidate <= sizeof out->choice, "a plan has no room for the candidate");
    memcpy(out->choice, candidate, sizeof *candidate);
}

/* Bytes, in and out together, up to which a plan rather shares its launches: a kernel that reads each byte once works on
 * mapped slots, all requests of a turn in one launch, which gains more than any kernel can. */
enum { MM_SHARED_MOST = 64 << 10 };

/* The candidates in the order in which they are tried: the model's, but where launches may be shared the first that can. */
static int order_candidates(const ks_chip *chip, const ks_spec *spec, ks_matmul_candidate *out, int most)
{
    ks_matmul_candidate all[KS_MATMUL_CANDIDATES], first;
    ks_cuda_plan plan;
    size_t bytes = spec->out.size_bytes;
    for (int i = 0; i < spec->inputs; i++) bytes += spec->in[i].size_bytes;
    const bool shares = bytes <= MM_SHARED_MOST;
    const int count = ks_matmul_candidates(chip, spec, all, shares ? (int)KS_MATMUL_CANDIDATES : most);
    for (int i = 0; i < count && shares; i++) {
        ks_matmul_candidate_plan(chip, spec, &all[i], &plan);
        if (!plan.once) continue;
        first = all[i];
        memmove(all + 1, all, (size_t)i * sizeof first);
        all[0] = first;
        break;
    }
    const int found = count < most ? count : most;
    memcpy(out, all, (size_t)found * sizeof *all);
    return found;
}

/* ks_cuda_plan_fn */
static ks_status cuda_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    ks_matmul_candidate best;
    if (order_candidates(chip, spec, &best, 1) == 0)
        return ks_fail(error, KS_WORK, "matmul: more than %d tiles, or than %d values of K to a slice",
                       (int)MM_GRID_MOST, (int)MM_SLICE_MOST);
    ks_matmul_candidate_plan(chip, spec, &best, out);
    return KS_OK;
}

/* --- ways ------------------------------------------------------------------------------------------------------------ */

/* A plan's choice where cuBLASLt does it. */
typedef struct mm_library {
    ks_matmul_candidate mark;
    ks_cublaslt_way way;
} mm_library;
static_assert(sizeof(mm_library) <= KS_CHOICE_BYTES, "a plan has no room for cuBLASLt's choice");

enum { MM_OWN_WAYS = 16 }; /* that are tried: the rest of the 256 is further back in the model's order */

static void library_plan(const ks_cublaslt_way *way, ks_cuda_plan *out)
{
    mm_library library;
    memset(&library, 0, sizeof library);
    library.mark.table = KS_MATMUL_LIBRARY;
    library.way = *way;
    memset(out, 0, sizeof *out);
    out->batch_max = 1; /* a graph's addresses are frozen, and the library reads no block */
    out->workspace_bytes = (size_t)way->workspace_bytes;
    out->unstamped = true;
    ks_cublaslt_name(way, out->pick.kernel, sizeof out->pick.kernel);
    memcpy(out->choice, &library, sizeof library);
}

static void way_of(const ks_cuda_plan *plan, ks_way *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->kernel, plan->pick.kernel, sizeof out->kernel);
    memcpy(out->choice, plan->choice, sizeof out->choice);
}

static int cuda_candidates(const ks_chip *chip, const ks_spec *spec, ks_way *out, int most)
{
    ks_matmul_candidate own[MM_OWN_WAYS];
    ks_cublaslt_way library[KS_WAYS_MAX];
    ks_cuda_plan plan;
    ks_matmul_shape shape;
    int count = 0;
    ks_matmul_shape_of(spec, &shape);
    const int owns = order_candidates(chip, spec, own, most < (int)MM_OWN_WAYS ? most : (int)MM_OWN_WAYS);
    for (; count < owns; count++) {
        ks_matmul_candidate_plan(chip, spec, &own[count], &plan);
        way_of(&plan, &out[count]);
    }
    const int room = most - owns < (int)KS_WAYS_MAX ? most - owns : (int)KS_WAYS_MAX;
    const int found = ks_cublaslt_list(spec, &shape, chip->workspace_bytes, library, room);
    for (int i = 0; i < found; i++) {
        library_plan(&library[i], &plan);
        way_of(&plan, &out[count++]);
    }
    return count;
}

static ks_status cuda_adopt(const ks_chip *chip, const ks_spec *spec, const ks_way *way, ks_cuda_plan *out,
                            ks_error *error)
{
    ks_matmul_candidate own[KS_MATMUL_CANDIDATES];
    ks_matmul_shape shape;
    mm_library library;
    ks_matmul_shape_of(spec, &shape);
    memcpy(&library, way->choice, sizeof library);
    if (library.mark.table == KS_MATMUL_LIBRARY) {
        if (!ks_cublaslt_check(spec, &shape, chip->workspace_bytes, &library.way))
            return ks_fail(error, KS_CONFIG, "matmul: no such algorithm of cuBLASLt for these shapes");
        library_plan(&library.way, out);
        return KS_OK;
    }
    const int owns = ks_matmul_candidates(chip, spec, own, KS_MATMUL_CANDIDATES);
    for (int i = 0; i < owns; i++) {
        if (memcmp(&own[i], way->choice, sizeof own[i]) != 0) continue;
        ks_matmul_candidate_plan(chip, spec, &own[i], out);
        return KS_OK;
    }
    return ks_fail(error, KS_CONFIG, "matmul: no such kernel for these shapes");
}

/* FNV-1a over what the tables say of their kernels. */
static uint64_t cuda_revision(void)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (int table = 0; table < MM_TABLES; table++)
        for (int index = 0;; index++) {
            char text[128];
            const mm_kernel kernel = tables[table](index, true, true);
            if (!kernel.name) break;
            snprintf(text, sizeof text, "%d %s %d %d %d %d %d %d", table, kernel.name, kernel.m, kernel.n, kernel.depth,
                     kernel.threads, kernel.ctas, kernel.shared_bytes);
            for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001B3u;
        }
    return hash;
}

/* --- launching ------------------------------------------------------------------------------------------------------- */

/* The operand as rows of 128 bytes of a stage, or fewer of a narrow tile: a box of `tile` rows along K, or of `depth` rows
 * of K across it, and of either the part that one of `parts` CTAs copies. A copy for TF32 rounds to the nearest, ties to
 * even, at no cost; the products themselves would cut. */
static bool make_map(CUtensorMap *map, mm_table table, int size, const unsigned char *in, const mm_operand *o,
                     bool along_k, mm_int across, mm_int k, mm_int matrices, int tile, int depth, int parts)
{
    const int width = along_k || tile * size > 128 ? 128 / size : tile;
    const CUtensorMapSwizzle swizzle = width * size == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                       : width * size == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                       : width * size == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                            : CU_TENSOR_MAP_SWIZZLE_NONE;
    const CUtensorMapDataType type = table == MM_FP16   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                     : table == MM_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                     : table == MM_TF32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                                        : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    const cuuint64_t inner = (cuuint64_t)(along_k ? k : across);
    const cuuint64_t rows = (cuuint64_t)(along_k ? across : k), row_bytes = ks_align(inner * size);
    /* A single row or matrix has no distance to the next. */
    const cuuint64_t pitch = o->pitch ? (cuuint64_t)o->pitch * size : row_bytes;
    const cuuint64_t dims[3] = {inner, rows, o->step[0] ? (cuuint64_t)matrices : 1};
    const cuuint64_t strides[2] = {pitch, o->step[0] ? (cuuint64_t)o->step[0] * size : pitch};
    const cuuint32_t box[3] = {(cuuint32_t)width, (cuuint32_t)((along_k ? tile : depth) / parts), 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    return encode_map(map, type, 3, (void *)(uintptr_t)(in + o->at), dims, strides, box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* The launch that packs; behind it the operands are found in the workspace. */
static cudaError_t launch_pack(mm_layout *layout, mm_args *args, int turned, size_t first, const ks_site &site,
                               cudaStream_t stream)
{
    unsigned chunks = 0;
    for (int i = 0; i < 2; i++) {
        mm_pack_part *part = &layout->pack.part[i];
        if (part->chunks == 0) continue;
        part->to += first;
        (i == turned ? args->a : args->b).at = (size_t)((uintptr_t)site.workspace + part->to - (uintptr_t)site.only.in);
        chunks += part->chunks;
    }
    const unsigned each = MM_PACK_THREADS * MM_PACK_EACH;
    return ks_launch(mm_pack_kernel, dim3((chunks + each - 1) / each), MM_PACK_THREADS, 0, false, stream, site,
                     layout->pack);
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_spec *spec, const void *choice, ks_site site, int bucket, cudaStream_t stream,
                             ks_error *error)
{
    mm_library library;
    memcpy(&library, choice, sizeof library);
    const ks_matmul_candidate candidate = library.mark;
    ks_matmul_shape shape;
    ks_matmul_shape_of(spec, &shape);
    if (candidate.table == KS_MATMUL_LIBRARY)
        return ks_cublaslt_launch(spec, &shape, &library.way, site.only.in, site.only.out, site.workspace, stream,
                                  error);
    mm_args args;
    mm_layout layout;
    const mm_kernel kernel = fit(spec, &shape, &candidate, &args, &layout);
    mm_maps maps = {};
    const mm_table table = (mm_table)candidate.table;
    const int size = (int)ks_dtype_size(spec->out.dtype);
    cudaError_t code = cudaSuccess;
    if (candidate.packed)
        code = launch_pack(&layout, &args, candidate.turned, partial_bytes(spec, &shape, &args, &kernel), site, stream);
    if (kernel.bulk &&
        ((!kernel.odd && !make_map(&maps.a, table, size, site.only.in, &args.a, layout.a_k, args.m, args.k, shape.batch,
                                   kernel.m / kernel.by_m, kernel.depth, kernel.by_n)) ||
         !make_map(&maps.b, table, size, site.only.in, &args.b, layout.b_k, args.n, args.k, shape.batch,
                   kernel.n / kernel.by_n, kernel.depth, kernel.by_m)))
        return ks_fail(error, KS_DEVICE, "matmul: the driver makes no tensor map");
    void *arguments[] = {&site, &args, &maps};
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    const unsigned together = args.cluster * peers_of(&kernel);
    if (together > 1) {
        cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributeClusterDimension;
        attribute->val.clusterDim.x = together;
        attribute->val.clusterDim.y = attribute->val.clusterDim.z = 1;
    }
    if (candidate.packed && early) {
        cudaLaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute->val.programmaticStreamSerializationAllowed = 1;
    }
    const mm_int grid = candidate.grid;
    config.gridDim = dim3(grid < 1 ? 1 : (unsigned)grid, (unsigned)bucket, 1); /* an empty output raises the flag too */
    config.blockDim = dim3((unsigned)kernel.threads, 1, 1);
    config.dynamicSmemBytes = (size_t)kernel.shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (code == cudaSuccess) code = cudaLaunchKernelExC(&config, kernel.function, arguments);
    const cudaError_t last = cudaGetLastError();
    if (code == cudaSuccess) code = last;
    if (code == cudaSuccess) return KS_OK;
    return ks_fail(error, KS_DEVICE, "matmul: launch failed: %s (%d)", cudaGetErrorString(code), (int)code);
}

/* The first wgmma kernel of the tables has code only where the build made it for sm_90a: its barriers tell. */
static cudaError_t find_bulk(const ks_chip *chip)
{
    encode_map = NULL;
    if (chip->capability != 90) return cudaSuccess;
    for (int index = 0;; index++) {
        const mm_kernel kernel = tables[MM_FP16](index, true, true);
        if (!kernel.name) return cudaSuccess;
        if (!kernel.bulk) continue;
        cudaFuncAttributes attributes;
        const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel.function);
        if (code != cudaSuccess || attributes.sharedSizeBytes == 0) return code;
        cudaDriverEntryPointQueryResult found;
        return cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode_map, 12000,
                                                cudaEnableDefault, &found);
    }
}

/* Asked of the kernel that leaves the least of an SM's shared memory to a second CTA. */
static cudaError_t count_clusters(const ks_chip *chip)
{
    clusters_fit[0] = chip->sms;
    if (chip->capability < 90) return cudaSuccess;
    mm_kernel kernel = {};
    for (int index = 0;; index++) {
        const mm_kernel other = tables[MM_FP32](index, true, true);
        if (!other.name) break;
        if (other.function && other.splits && other.shared_bytes > kernel.shared_bytes &&
            (size_t)other.shared_bytes <= chip->shared_optin)
            kernel = other;
    }
    for (int i = 1; i < 4; i++) {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = 1u << i;
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(1024, 1, 1);
        config.blockDim = dim3((unsigned)kernel.threads, 1, 1);
        config.dynamicSmemBytes = (size_t)kernel.shared_bytes;
        config.attrs = &attribute;
        config.numAttrs = 1;
        const cudaError_t code = cudaOccupancyMaxActiveClusters(&clusters_fit[i], kernel.function, &config);
        if (code != cudaSuccess) return code;
        if (clusters_fit[i] < 1) clusters_fit[i] = 1;
    }
    return cudaSuccess;
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(const ks_chip *chip, ks_error *error)
{
    const cudaError_t found = find_bulk(chip);
    if (found != cudaSuccess)
        return ks_fail(error, KS_DEVICE, "matmul: tensor maps: %s (%d)", cudaGetErrorString(found), (int)found);
    for (int table = 0; table < MM_TABLES; table++)
        for (int layout = 0; layout < 4; layout++)
            for (int index = 0;; index++) {
                const mm_kernel kernel = tables[table](index, layout & 1, layout & 2);
                if (!kernel.name) break;
                if (!kernel.function) continue;                                 /* not for this layout */
                if ((size_t)kernel.shared_bytes > chip->shared_optin) continue; /* never a candidate on this chip */
                const cudaError_t code =
                    cudaFuncSetAttribute((const void *)kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         kernel.skinny ? (int)chip->shared_optin : kernel.shared_bytes);
                if (code != cudaSuccess)
                    return ks_fail(error, KS_DEVICE, "matmul: shared memory: %s (%d)", cudaGetErrorString(code),
                                   (int)code);
            }
    cudaFuncAttributes packs_with;
    const cudaError_t asked = cudaFuncGetAttributes(&packs_with, (const void *)mm_pack_kernel);
    if (asked != cudaSuccess)
        return ks_fail(error, KS_DEVICE, "matmul: attributes: %s (%d)", cudaGetErrorString(asked), (int)asked);
    early = chip->capability >= 90 && packs_with.ptxVersion >= 90;
    const cudaError_t counted = count_clusters(chip);
    if (counted != cudaSuccess)
        return ks_fail(error, KS_DEVICE, "matmul: clusters: %s (%d)", cudaGetErrorString(counted), (int)counted);
    return KS_OK;
}

const ks_cuda_op ks_matmul_cuda = {.setup = cuda_setup,
                                   .plan = cuda_plan,
                                   .launch = cuda_launch,
                                   .candidates = cuda_candidates,
                                   .adopt = cuda_adopt,
                                   .revision = cuda_revision};
