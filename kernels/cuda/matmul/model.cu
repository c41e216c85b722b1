/* The cost model: how long a candidate takes, in us. It only ranks candidates; a tuner's trials may choose another one.
 *
 * A CTA's own times stand in its row (mm_cost): fixed_us, and us_per_stage. How the chip carries CTAs of a family of kernels
 * stands here, in one struct a chip: what each costs beside others on its SM, how fast memory and L2 cache feed them, what
 * it takes to share K. A time is that of the work plus the part of the shorter one of work and memory that stays visible. */
#include "cuda/matmul/candidates.h"

#include <math.h>

/* Of the tiles that threads copy, whose launch is not in their fixed_us. */
typedef struct mm_tile_costs {
    double launch_us;
    double cluster_us, workspace_us, split_us; /* where CTAs share K so; each of the splits of a tile */
    double dram_bytes_us, l2_bytes_us;
    double neighbour;  /* of a CTA's us_per_stage alone, what each neighbour on its SM adds */
    double idle_power; /* how few CTAs draw less than all of the memory's bandwidth */
    double overlap;    /* of the shorter one of work and memory, what stays visible */
    double swap_ab;    /* what a tile with swap_ab takes to begin and to end, times the others' */
} mm_tile_costs;

/* Of FP16's and BF16's by wgmma, whose launch is in their fixed_us. Three things go on at a time: products, bytes from memory, and
 * bytes from the L2 cache; the time is their norm of `power`, 1: one behind the other, many: the longest alone. */
typedef struct mm_half_costs {
    double dram_bytes_us, l2_bytes_us;
    double power;
    double neighbour;
    double unaligned;              /* of bytes whose rows do not start on a line, what is read more */
    double narrow;                 /* of bytes whose boxes are half a line, likewise; of a quarter, three times that */
    double peers_us;               /* where CTAs share copies */
    double send_bytes_us;          /* where a cluster shares K: the sums of a CTA */
    double workspace_us, split_us; /* where clusters do: once; each of a tile's splits */
    double partial_bytes_us, collect_bytes_us; /* their sums: all that are written; what the last CTA of a tile reads */
    double beyond_us, beyond_across_us;        /* a stage's rows beyond the operand, each; where rows lie across K */
    double swap_ab;                            /* of the time to store, with swap_ab */
    double walk;                               /* of fixed_us, each tile behind a CTA's first */
    double store_bytes_us, words; /* an SM's part of the output; times so many where its rows start anywhere */
} mm_half_costs;

/* Of gemv.cuh's and strip.cuh's, whose launch is in their fixed_us. */
typedef struct mm_skinny_costs {
    double dram_bytes_us, neighbour, idle_power, overlap;
    double cluster_us, strip_cluster_us; /* each doubling of a cluster */
    double wave;                         /* of fixed_us, each wave behind the first */
} mm_skinny_costs;

/* Of TF32's by wgmma, whose launch is in their fixed_us. A kernel that walks over tiles has begun the next one's copies; CTAs
 * that share K come in waves, each of which takes as long as a launch; rows shorter than a tile are read as slowly as whole
 * ones. */
typedef struct mm_wide_costs {
    double dram_bytes_us, l2_bytes_us, neighbour;
    double overlap, slices_overlap; /* the second where CTAs share K */
    double slices_l2_bytes_us;      /* there few others ask for the same bytes */
    double cluster_us, workspace_us, split_us;
    double walk; /* of fixed_us, each tile behind a CTA's first */
} mm_wide_costs;

typedef struct mm_chip_costs {
    mm_tile_costs tile;
    mm_half_costs half;
    mm_skinny_costs skinny, skinny_half;
    mm_wide_costs wide;
    double pack_us, pack_bytes_us;               /* before a product of packed operands */
    double batch_launch_us, batch_dram_bytes_us; /* a CTA for several matrices, all copies under way at once */
} mm_chip_costs;

/* Fitted on one H200: `tile`, and FP32's and TF32's rows, to 2,500 readings of candidates over 111 shapes; `wide` to 823 over 27;
 * batches of 1 to 4096 matrices; `half`, `skinny_half` and the rows of 16 bits to 13,262 over 147 shapes of sweep_matmul (those
 * within 1.7 of the best). The heuristic's time over the best one's, of 73 shapes that were kept out: geometric mean 1.050. */
static const mm_chip_costs h200 = {.tile = {.launch_us = 2.6,
                                            .cluster_us = 0.68,
                                            .workspace_us = 1.8,
                                            .split_us = 0.086,
                                            .dram_bytes_us = 3.8e6,
                                            .l2_bytes_us = 5.3e6,
                                            .neighbour = 0.88,
                                            .idle_power = 0.33,
                                            .overlap = 0.35,
                                            .swap_ab = 1.45},
                                   .half = {.dram_bytes_us = 4.913e+06,
                                            .l2_bytes_us = 2.699e+07,
                                            .power = 2.017,
                                            .neighbour = 0.4927,
                                            .unaligned = 1.532,
                                            .narrow = 3.159,
                                            .peers_us = 1.173,
                                            .send_bytes_us = 1.448e+04,
                                            .workspace_us = 0.68,
                                            .split_us = 0.06424,
                                            .partial_bytes_us = 8.872e+05,
                                            .collect_bytes_us = 1.335e+06,
                                            .beyond_us = 0.0005042,
                                            .beyond_across_us = 0.0002561,
                                            .swap_ab = 4.381,
                                            .walk = 0.5221,
                                            .store_bytes_us = 9.127e+04,
                                            .words = 3.413},
                                   .skinny = {.dram_bytes_us = 4.7e6,
                                              .neighbour = 0.3,
                                              .idle_power = 0.29,
                                              .overlap = 0.3,
                                              .cluster_us = 0.27,
                                              .strip_cluster_us = 1.0,
                                              .wave = 0.79},
                                   .skinny_half = {.dram_bytes_us = 4.638e+06,
                                                   .neighbour = 0,
                                                   .idle_power = 0,
                                                   .overlap = 0,
                                                   .cluster_us = 0,
                                                   .strip_cluster_us = 1,
                                                   .wave = 1.136},
                                   .wide = {.dram_bytes_us = 4.4e6,
                                            .l2_bytes_us = 25e6,
                                            .neighbour = 0.28,
                                            .overlap = 0.51,
                                            .slices_overlap = 0.25,
                                            .slices_l2_bytes_us = 7e6,
                                            .cluster_us = 0.3,
                                            .workspace_us = 0.3,
                                            .split_us = 0.086,
                                            .walk = 0.19},
                                   .pack_us = 2.4,
                                   .pack_bytes_us = 2.4e6,
                                   .batch_launch_us = 1.4,
                                   .batch_dram_bytes_us = 4.15e6};

/* An H100 is ranked by the H200's: geometric mean 1.039 over the same shapes. So is every chip without readings of its own:
 * an order needs proportions only, and SMs, clusters and shared memory are the chip's own already. Another chip's struct
 * stands here with its readings (tests/bench/compare_cublaslt), and is found by its capability and its SMs. */
static const mm_chip_costs *costs_of(const ks_chip *chip)
{
    (void)chip;
    return &h200;
}

/* --- how a launch lies on the chip ----------------------------------------------------------------------------------- */

typedef struct mm_waves {
    double slices;        /* of K */
    double units, waves;  /* a unit: a tile's slice; a wave: as many CTAs as run at a time */
    double stages;        /* of a slice */
    double running;       /* CTAs of the first wave */
    double neighbours;    /* of them on the busiest SM */
    double rows, columns; /* of a tile, where the operand has fewer */
    double unique;        /* elements of operands and output */
} mm_waves;

static double unique_elements(const ks_matmul_shape *s)
{
    return ((double)s->m * s->k + (double)s->k * s->n + (double)s->m * s->n) * (double)s->batch;
}

static int resident_ctas(const ks_chip *chip, const mm_kernel *kernel)
{
    const int by_shared = (int)(chip->shared_sm / ((size_t)kernel->shared_bytes + 1024));
    const int by_threads = chip->threads_sm / kernel->threads;
    int resident = by_shared < by_threads ? by_shared : by_threads;
    if (resident > kernel->ctas) resident = kernel->ctas;
    return resident < 1 ? 1 : resident;
}

static mm_waves waves_of(const mm_problem *p, const mm_fit *fit)
{
    const mm_args *args = &fit->args;
    const mm_kernel *kernel = &fit->kernel;
    mm_waves w;
    w.slices = (double)args->cluster * args->splits;
    w.units = (double)p->shape.batch * args->tiles_m * args->tiles_n * w.slices;
    const unsigned together = args->cluster * mm_peers(kernel);
    const double ctas = w.units * mm_peers(kernel);
    const double slots = (double)mm_clusters(p->chip, together) * together * resident_ctas(p->chip, kernel);
    w.waves = ceil(ctas / slots);
    w.stages = ceil((double)mm_tiles(args->k, kernel->depth) / w.slices);
    w.running = ctas < slots ? ctas : slots;
    /* Clusters that have no part of the chip for themselves share one. */
    w.neighbours = ceil(w.running / together / mm_clusters(p->chip, together));
    w.rows = (double)(args->m < kernel->m ? args->m : kernel->m);
    w.columns = (double)(args->n < kernel->n ? args->n : kernel->n);
    w.unique = unique_elements(&p->shape);
    return w;
}

/* --- families of kernels --------------------------------------------------------------------------------------------- */

static double predict_batch(const mm_problem *p, const mm_fit *fit, const mm_chip_costs *costs)
{
    const double ctas = (double)mm_tiles(fit->args.matrices, fit->kernel.matrices);
    const double work =
        ceil(ctas / p->chip->sms) * (double)mm_tiles(fit->args.k, fit->kernel.depth) * fit->kernel.cost.us_per_stage;
    return costs->batch_launch_us + fit->kernel.cost.fixed_us +
           fmax(work, unique_elements(&p->shape) * p->element_bytes / costs->batch_dram_bytes_us);
}

static double predict_skinny(const mm_problem *p, const mm_fit *fit, const mm_chip_costs *costs)
{
    const mm_kernel *kernel = &fit->kernel;
    const mm_skinny_costs *c = p->element_bytes == 2 ? &costs->skinny_half : &costs->skinny;
    const mm_waves w = waves_of(p, fit);
    const double work = w.waves * w.stages * kernel->cost.us_per_stage * (1 + c->neighbour * (w.neighbours - 1));
    const double memory = w.unique * p->element_bytes / c->dram_bytes_us *
                          pow(p->chip->sms / fmin(w.running, p->chip->sms), c->idle_power);
    const double reduce = (kernel->tma ? c->strip_cluster_us : c->cluster_us) * fit->args.cluster_log2;
    return kernel->cost.fixed_us * (1 + c->wave * (w.waves - 1)) + reduce + fmax(work, memory) +
           c->overlap * fmin(work, memory);
}

static double predict_wide(const mm_problem *p, const mm_fit *fit, const mm_chip_costs *costs)
{
    const mm_kernel *kernel = &fit->kernel;
    const mm_wide_costs *c = &costs->wide;
    const mm_waves w = waves_of(p, fit);
    const bool split = w.slices > 1;
    const double work = w.waves * w.stages * kernel->cost.us_per_stage * (1 + c->neighbour * (w.neighbours - 1)) *
                        (split ? 1 : (double)kernel->m / w.rows);
    const double memory =
        fmax(w.unique / c->dram_bytes_us, w.units * (w.rows + w.columns) * ceil((double)p->shape.k / w.slices) /
                                              (split ? c->slices_l2_bytes_us : c->l2_bytes_us)) *
        p->element_bytes;
    const double reduce = (fit->args.cluster > 1 ? c->cluster_us : 0) +
                          (fit->args.splits > 1 ? c->workspace_us + c->split_us * fit->args.splits : 0);
    return kernel->cost.fixed_us * (1 + (split ? 1 : c->walk) * (w.waves - 1)) + reduce + fmax(work, memory) +
           (split ? c->slices_overlap : c->overlap) * fmin(work, memory);
}

static double predict_tile(const mm_problem *p, const mm_fit *fit, const mm_chip_costs *costs)
{
    const mm_args *args = &fit->args;
    const mm_kernel *kernel = &fit->kernel;
    const mm_tile_costs *c = &costs->tile;
    const mm_waves w = waves_of(p, fit);
    const double stage =
        kernel->cost.us_per_stage * (args->a.shifted || args->b.shifted ? kernel->cost.shifted_times : 1);
    const double work = w.waves * w.stages * stage * (1 + c->neighbour * (w.neighbours - 1));
    double memory = fmax(w.unique / c->dram_bytes_us,
                         w.units * (w.rows + w.columns) * ceil((double)p->shape.k / w.slices) / c->l2_bytes_us) *
                    p->element_bytes;
    if (w.running < p->chip->sms) memory *= pow(p->chip->sms / w.running, c->idle_power);
    const double fixed = w.waves * kernel->cost.fixed_us * (args->swap_ab ? c->swap_ab : 1);
    const double reduce =
        (args->cluster > 1 ? c->cluster_us : 0) + (args->splits > 1 ? c->workspace_us + c->split_us * args->splits : 0);
    return c->launch_us + fixed + reduce + fmax(work, memory) + c->overlap * fmin(work, memory);
}

/* What one of an operand's bytes counts for: a row that does not start on a line is read with parts of others, and a box that is
 * narrower than a line asks for it as often as a wide one. tile: across K, of one CTA. */
static double bytes_times(const mm_operand *o, bool along_k, int tile, const mm_half_costs *c)
{
    const bool unaligned = o->pitch % 64 != 0;
    const double narrow = along_k ? 0 : 64.0 / mm_box_columns(tile, 2) - 1;
    return (1 + (unaligned ? c->unaligned : 0)) * (1 + c->narrow * narrow);
}

/* Of a unit's operands, from the L2 cache. */
static double unit_bytes(const mm_problem *p, const mm_fit *fit, const mm_waves *w, const mm_half_costs *c)
{
    const mm_kernel *kernel = &fit->kernel;
    const int m = kernel->m / kernel->by_m, n = kernel->n / kernel->by_n;
    return (w->rows * bytes_times(&fit->args.a, fit->layout.a_k, m, c) +
            w->columns * bytes_times(&fit->args.b, fit->layout.b_k, n, c)) *
           ceil((double)p->shape.k / w->slices) * p->element_bytes;
}

/* Rows of a stage, across K, that lie beyond the operand in the CTA that has most of them. */
static double rows_beyond(mm_int across, int tile)
{
    return (double)(mm_tiles(across, tile) * tile - across);
}

static double reduce_half(const mm_fit *fit, const mm_waves *w, const mm_half_costs *c)
{
    const mm_args *args = &fit->args;
    const double sums = (double)fit->kernel.m * fit->kernel.n / mm_peers(&fit->kernel) * sizeof(float);
    double us = 0;
    if (args->cluster > 1) us += sums / c->send_bytes_us;
    if (args->splits > 1)
        us += c->workspace_us + c->split_us * args->splits +
              w->units / args->cluster * sums * mm_peers(&fit->kernel) / c->partial_bytes_us +
              sums / args->cluster * args->splits / c->collect_bytes_us;
    return us;
}

static double predict_half(const mm_problem *p, const mm_fit *fit, const mm_chip_costs *costs)
{
    const mm_kernel *kernel = &fit->kernel;
    const mm_half_costs *c = &costs->half;
    const mm_waves w = waves_of(p, fit);
    const double goes_on[3] = {w.waves * w.stages * kernel->cost.us_per_stage * (1 + c->neighbour * (w.neighbours - 1)),
                               w.unique * p->element_bytes / c->dram_bytes_us,
                               w.units * unit_bytes(p, fit, &w, c) / c->l2_bytes_us};
    double sum = 0;
    for (int i = 0; i < 3; i++) sum += pow(goes_on[i], c->power);
    const bool words = (fit->args.swap_ab ? fit->args.m : fit->args.n) % 8 != 0;
    const double stored = fmin(w.rows, (double)kernel->m / kernel->by_m) *
                          fmin(w.columns, (double)kernel->n / kernel->by_n) * p->element_bytes * w.neighbours /
                          w.slices;
    const double beyond =
        rows_beyond(fit->args.m, kernel->m / kernel->by_m) * (fit->layout.a_k ? c->beyond_us : c->beyond_across_us) +
        rows_beyond(fit->args.n, kernel->n / kernel->by_n) * (fit->layout.b_k ? c->beyond_us : c->beyond_across_us);
    return w.stages * beyond + (mm_peers(kernel) > 1 ? c->peers_us : 0) + reduce_half(fit, &w, c) +
           kernel->cost.fixed_us * (1 + (w.slices > 1 ? 1 : c->walk) * (w.waves - 1)) +
           stored / c->store_bytes_us * (words ? c->words : 1) * (fit->args.swap_ab ? c->swap_ab : 1) +
           pow(sum, 1 / c->power);
}

double mm_predict_us(const mm_problem *p, const mm_fit *fit)
{
    const mm_kernel *kernel = &fit->kernel;
    const mm_chip_costs *costs = costs_of(p->chip);
    const double us = kernel->matrices        ? predict_batch(p, fit, costs)
                      : kernel->skinny        ? predict_skinny(p, fit, costs)
                      : !kernel->tma          ? predict_tile(p, fit, costs)
                      : p->element_bytes == 4 ? predict_wide(p, fit, costs)
                                              : predict_half(p, fit, costs);
    return us + (fit->args.packed ? costs->pack_us + (double)fit->layout.packed_bytes / costs->pack_bytes_us : 0);
}
