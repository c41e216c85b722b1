/* The cost model: how long a candidate takes, in us. It only ranks candidates; a tuner's trials may choose another one.
 *
 * A CTA's own times stand in its row (mm_cost): fixed_us, and us_per_stage. How the chip carries CTAs of a family of kernels
 * stands here, in one struct a chip: what each costs beside others on its SM, how fast memory and L2 cache feed them, what
 * it takes to share K. A time is that of the work plus the part of the shorter one of work and memory that stays visible. */
#include "cuda/matmul/candidates.h"

#include <math.h>

/* Of the tiles, whose launch is not in their fixed_us. */
typedef struct mm_tile_costs {
    double launch_us;
    double cluster_us, workspace_us; /* where CTAs share K so */
    double dram_bytes_us, l2_bytes_us;
    double neighbour;  /* of a CTA's us_per_stage alone, what each neighbour on its SM adds */
    double idle_power; /* how few CTAs draw less than all of the memory's bandwidth */
    double enough;     /* to an SM, of CTAs that share K: fewer draw as much less; 0: as idle_power says */
    double overlap;    /* of the shorter one of work and memory, what stays visible */
    double beyond;     /* what a stage's rows cost that lie beyond the operand, as a part of its time for memory */
    double swap_ab;    /* what a tile with swap_ab takes to begin and to end, times the others' */
} mm_tile_costs;

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
    double cluster_us, workspace_us;
    double walk; /* of fixed_us, each tile behind a CTA's first */
} mm_wide_costs;

typedef struct mm_chip_costs {
    mm_tile_costs copied, tma; /* stages that threads copy, or the TMA unit */
    double split_us;           /* each of the splits of a tile */
    double slices_l2_bytes_us; /* bytes that wgmma's kernels read where CTAs share K: few others ask for the same */
    mm_skinny_costs skinny;
    mm_wide_costs wide;
    double pack_us, pack_bytes_us;               /* before a product of packed operands */
    double batch_launch_us, batch_dram_bytes_us; /* a CTA for several matrices, all copies under way at once */
} mm_chip_costs;

/* Fitted on one H200: 2,500 readings of candidates over 111 shapes, large tiles' stages to 4,700 before; `wide` to 823 over 27
 * shapes; batches of 1 to 4096 matrices. The heuristic's time over the best trial's, 111 shapes: geometric mean 1.041. */
static const mm_chip_costs h200 = {.copied = {.launch_us = 2.6,
                                              .cluster_us = 0.68,
                                              .workspace_us = 1.8,
                                              .dram_bytes_us = 3.8e6,
                                              .l2_bytes_us = 5.3e6,
                                              .neighbour = 0.88,
                                              .idle_power = 0.33,
                                              .enough = 0,
                                              .overlap = 0.35,
                                              .beyond = 0,
                                              .swap_ab = 1.45},
                                   .tma = {.launch_us = 2.0,
                                           .cluster_us = 0.3,
                                           .workspace_us = 0.8,
                                           .dram_bytes_us = 3.9e6,
                                           .l2_bytes_us = 10.8e6,
                                           .neighbour = 0.63,
                                           .idle_power = 0.41,
                                           .enough = 0.45,
                                           .overlap = 0.34,
                                           .beyond = 0.5,
                                           .swap_ab = 1},
                                   .split_us = 0.086,
                                   .slices_l2_bytes_us = 7e6,
                                   .skinny = {.dram_bytes_us = 4.7e6,
                                              .neighbour = 0.3,
                                              .idle_power = 0.29,
                                              .overlap = 0.3,
                                              .cluster_us = 0.27,
                                              .strip_cluster_us = 1.0,
                                              .wave = 0.79},
                                   .wide = {.dram_bytes_us = 4.4e6,
                                            .l2_bytes_us = 25e6,
                                            .neighbour = 0.28,
                                            .overlap = 0.51,
                                            .slices_overlap = 0.25,
                                            .cluster_us = 0.3,
                                            .workspace_us = 0.3,
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
    const mm_skinny_costs *c = &costs->skinny;
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
                                              (split ? costs->slices_l2_bytes_us : c->l2_bytes_us)) *
        p->element_bytes;
    const double reduce = (fit->args.cluster > 1 ? c->cluster_us : 0) +
                          (fit->args.splits > 1 ? c->workspace_us + costs->split_us * fit->args.splits : 0);
    return kernel->cost.fixed_us * (1 + (split ? 1 : c->walk) * (w.waves - 1)) + reduce + fmax(work, memory) +
           (split ? c->slices_overlap : c->overlap) * fmin(work, memory);
}

static double predict_tile(const mm_problem *p, const mm_fit *fit, const mm_chip_costs *costs)
{
    const mm_args *args = &fit->args;
    const mm_kernel *kernel = &fit->kernel;
    const mm_tile_costs *c = kernel->tma ? &costs->tma : &costs->copied;
    const mm_waves w = waves_of(p, fit);
    const double stage =
        kernel->cost.us_per_stage * (args->a.shifted || args->b.shifted ? kernel->cost.shifted_times : 1);
    const double work = w.waves * w.stages * stage * (1 + c->neighbour * (w.neighbours - 1));
    double memory = fmax(w.unique * p->element_bytes / c->dram_bytes_us,
                         w.units * (w.rows + w.columns) * ceil((double)p->shape.k / w.slices) * p->element_bytes /
                             (w.slices > 1 && kernel->tma ? costs->slices_l2_bytes_us : c->l2_bytes_us));
    memory *= 1 + c->beyond * (1 - (w.rows + w.columns) / (kernel->m + kernel->n));
    if (w.slices > 1 && c->enough > 0)
        memory *= fmax(1, c->enough * p->chip->sms / w.running);
    else if (w.running < p->chip->sms)
        memory *= pow(p->chip->sms / w.running, c->idle_power);
    const double fixed = w.waves * kernel->cost.fixed_us * (args->swap_ab ? c->swap_ab : 1);
    const double reduce = (args->cluster > 1 ? c->cluster_us : 0) +
                          (args->splits > 1 ? c->workspace_us + costs->split_us * args->splits : 0);
    return c->launch_us + fixed + reduce + fmax(work, memory) + c->overlap * fmin(work, memory);
}

double mm_predict_us(const mm_problem *p, const mm_fit *fit)
{
    const mm_kernel *kernel = &fit->kernel;
    const mm_chip_costs *costs = costs_of(p->chip);
    const double us = kernel->matrices                       ? predict_batch(p, fit, costs)
                      : kernel->skinny                       ? predict_skinny(p, fit, costs)
                      : kernel->tma && p->element_bytes == 4 ? predict_wide(p, fit, costs)
                                                             : predict_tile(p, fit, costs);
    return us + (fit->args.packed ? costs->pack_us + (double)fit->layout.packed_bytes / costs->pack_bytes_us : 0);
}
