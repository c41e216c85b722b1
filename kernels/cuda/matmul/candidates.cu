/* Which kernels can do a product, in which orientation, with which slices of K: by rising predicted time.
 *
 * Kernels  tiles (tile.cuh) of tensor cores for FP16, BF16 and, on request, TF32, of fused multiply-adds for FP32 and FP64.
 *          Few rows are low tiles that a wide operand streams past, or, where it goes straight into registers, strips
 *          (gemv.cuh, strip.cuh); few columns are few rows of the transposed product. Tiles too few for the chip share K:
 *          within a cluster, and across clusters through the workspace. Batches of small matrices are computed by a warp or
 *          a CTA each (batched.cuh, batched_registers.cuh). Rows that do not start on 16 bytes are shifted in shared memory,
 *          or copied into the workspace by a launch of their own (pack.cuh), or read where they lie (wgmma/odd.cuh). */
#include "cuda/matmul/candidates.h"

#include <string.h>

enum { MM_SPLITS_MAX = 64, MM_BATCH_K = 128 };

/* Those found so far, sorted, at most `most`. */
typedef struct mm_list {
    ks_matmul_candidate *candidates;
    int count, most;
} mm_list;

static void insert(mm_list *list, const ks_matmul_candidate *candidate)
{
    ks_matmul_candidate *all = list->candidates;
    int at = list->count < list->most ? list->count : list->most - 1;
    if (list->count == list->most && all[at].predicted_us <= candidate->predicted_us) return;
    for (; at > 0 && all[at - 1].predicted_us > candidate->predicted_us; at--) all[at] = all[at - 1];
    all[at] = *candidate;
    if (list->count < list->most) list->count++;
}

/* --- what a kernel can do -------------------------------------------------------------------------------------------- */

static bool fits(const mm_problem *p, const mm_fit *fit)
{
    const mm_args *args = &fit->args;
    const double units = (double)p->shape.batch * args->tiles_m * args->tiles_n * args->cluster * args->splits;
    return (size_t)fit->kernel.shared_bytes <= p->chip->shared_optin && units <= (double)MM_GRID_MOST &&
           args->k_slice <= MM_SLICE_MOST && mm_workspace_bytes(p, fit) <= p->chip->workspace_bytes &&
           mm_counters(p, fit) <= KS_COUNTERS_MAX;
}

/* Tensor maps need something to map, rows that start on 16 bytes and at most one dimension of the batch. */
static bool tma_can(const mm_problem *p, const mm_fit *fit)
{
    const ks_matmul_shape *s = &p->shape;
    return p->chip->capability == 90 && p->chip->encode_tiled && s->m > 0 && s->n > 0 && s->k > 0 && s->batch > 0 &&
           s->batch_rank <= 1 && fit->args.a.shifted == fit->kernel.odd && !fit->args.b.shifted;
}

static bool skinny_can(const mm_problem *p, const mm_fit *fit)
{
    const mm_kernel *kernel = &fit->kernel;
    const mm_args *args = &fit->args;
    const bool whole_k = args->k * p->element_bytes % 16 == 0;
    if (args->tiles_m > 1 || args->splits > 1 || kernel->m * kernel->n % args->cluster != 0) return false;
    if (kernel->skinny == MM_SKINNY_ODD) return !fit->layout.b_k;
    if (kernel->skinny == MM_SKINNY_TMA) return true; /* tma_can() */
    if (kernel->skinny == MM_SKINNY_STRAIGHT && (!fit->layout.a_k || args->a.shifted || !whole_k)) return false;
    return !args->b.shifted && (fit->layout.b_k ? whole_k : args->n * p->element_bytes % 16 == 0);
}

/* Kernels of several matrices have no tile but the first, copy whole vectors only, and have few stages in flight. */
static bool batch_can(const mm_fit *fit)
{
    const mm_kernel *kernel = &fit->kernel;
    const mm_args *args = &fit->args;
    if (kernel->exact &&
        (args->matrices == 0 || args->m != kernel->m || args->n != kernel->n || args->k != kernel->depth))
        return false;
    return args->tiles_m == 1 && args->tiles_n == 1 && args->k <= MM_BATCH_K && !args->a.shifted && !args->b.shifted;
}

/* Whether the kernel can do the product in so many slices of K, whatever memory that needs. */
static bool can(const mm_problem *p, const mm_fit *fit, mm_int slices)
{
    const mm_kernel *kernel = &fit->kernel;
    const mm_args *args = &fit->args;
    const double tiles = (double)p->shape.batch * args->tiles_m * args->tiles_n;
    if (!mm_function(kernel) || (kernel->tma && !tma_can(p, fit))) return false;
    if (kernel->m == 1 && args->m > 1) return false; /* it has no layout for more */
    if (kernel->matrices && !batch_can(fit)) return false;
    if (args->packed && (fit->layout.packed_bytes == 0 || kernel->matrices || kernel->skinny)) return false;
    if (kernel->tma && (int)args->cluster * 8 > kernel->n) return false; /* a CTA finishes whole blocks of 8 columns */
    if (mm_peers(kernel) > 1 && args->cluster > 1) return false;         /* CTAs that share copies share no sums */
    if (slices > 1 && (!kernel->split_k || slices > mm_tiles(p->shape.k, kernel->depth) ||
                       tiles * (double)slices > 8.0 * p->chip->sms))
        return false;
    return !kernel->skinny || skinny_can(p, fit);
}

bool mm_can(const mm_problem *p, const mm_fit *fit)
{
    return can(p, fit, (mm_int)fit->args.cluster * fit->args.splits) && fits(p, fit);
}

/* --- the list -------------------------------------------------------------------------------------------------------- */

/* One way to share K; returns false where there is no more than this to share. */
static bool add_split(const mm_problem *p, ks_matmul_candidate c, int cluster, int splits, mm_list *list)
{
    const mm_int slices = (mm_int)cluster * splits;
    c.cluster = (uint8_t)cluster;
    c.splits = (int16_t)splits;
    c.k_slice = p->shape.k;
    mm_fit fit = mm_fit_to(p, &c);
    if (!can(p, &fit, slices)) return false;
    if (slices > 1) {
        c.k_slice = mm_tiles(mm_tiles(p->shape.k, fit.kernel.depth), slices) * fit.kernel.depth;
        fit = mm_fit_to(p, &c);
    }
    if (!fits(p, &fit)) return true;
    c.grid = mm_grid(p, &fit);
    c.predicted_us = mm_predict_us(p, &fit);
    insert(list, &c);
    return true;
}

/* One kernel, one orientation: clusters of all sizes, alone, in powers of two, and as many as the chip runs at a time. */
static void add_splits(const mm_problem *p, ks_matmul_candidate c, mm_list *list)
{
    c.cluster = 1;
    c.splits = 1;
    const mm_fit alone = mm_fit_to(p, &c);
    const unsigned peers = mm_peers(&alone.kernel);
    const int cluster_most = p->chip->capability >= 90 && peers == 1 ? KS_MATMUL_CLUSTER_MAX : 1;
    const double tiles = (double)p->shape.batch * alone.args.tiles_m * alone.args.tiles_n;
    for (int cluster = 1; cluster <= cluster_most; cluster *= 2) {
        for (int splits = 1; splits <= MM_SPLITS_MAX; splits *= 2) {
            if (splits > 1 && cluster == 1 && cluster_most > 1) break; /* a cluster is the cheaper way to reduce */
            if (!add_split(p, c, cluster, splits, list)) break;
        }
        for (int each = 1; each <= 2; each++) { /* CTAs to an SM */
            const int full = (int)(mm_clusters(p->chip, (unsigned)cluster * peers) * each / tiles);
            if (full > 2 && full <= MM_SPLITS_MAX && (full & (full - 1)) && (cluster > 1 || cluster_most == 1))
                (void)add_split(p, c, cluster, full, list);
        }
    }
}

static void add_table(const mm_problem *p, ks_matmul_candidate c, mm_list *list)
{
    const mm_table *table = mm_tables[c.table];
    const mm_int rows = c.swap_ab ? p->shape.n : p->shape.m;
    for (int row = 0; row < table->count; row++) {
        const mm_kernel *tile = &table->rows[row].layout[1][1];
        c.kernel = (uint8_t)row;
        /* swap_ab is for low tiles, and for those of few columns; a tile of one row has no layout for more. */
        if ((!c.swap_ab || tile->skinny || tile->m < tile->n || tile->tma) && (tile->m > 1 || rows == 1))
            add_splits(p, c, list);
    }
}

static int table_of(const mm_problem *p)
{
    switch (p->spec->out[0].dtype) {
    case KS_FP16:
        return MM_FP16;
    case KS_BF16:
        return MM_BF16;
    case KS_FP32:
        return p->shape.tf32 ? MM_TF32 : MM_FP32;
    default:
        return MM_FP64;
    }
}

int ks_matmul_candidates(const ks_chip *chip, const ks_spec *spec, ks_matmul_candidate *out, int most)
{
    const mm_problem p = mm_problem_of(chip, spec);
    mm_list list = {out, 0, most};
    ks_matmul_candidate c;
    memset(&c, 0, sizeof c);
    for (int swap_ab = 0; swap_ab < 2; swap_ab++) {
        c.swap_ab = (uint8_t)swap_ab;
        c.table = (uint8_t)table_of(&p);
        for (c.packed = 0; c.packed < 2; c.packed++) add_table(&p, c, &list);
        c.packed = 0;
        c.table = MM_FP32; /* more exact than asked for, and faster for few rows */
        if (p.shape.tf32) add_table(&p, c, &list);
    }
    return list.count;
}
