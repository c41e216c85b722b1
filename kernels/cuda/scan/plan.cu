/* Which kernel of this folder does a scan, with what launch parameters (plan.h).
 *
 *   column                  32 and more neighbouring prefixes, so many that threads with one each fill the chip, or short ones
 *   warp                    chains of one tile of a warp, or so many chains that each warp has its own, tile by tile
 *   row                     longer rows of floats; few of them tiles at once
 *   block                   other chains: of one tile of a CTA, or so many chains that each CTA has its own, tile by tile
 *   block, tiles at once    few long chains; a launch has as many tiles of each as the lane's counters and its workspace have room for
 *
 * The bits of floating sums follow from the tile's columns and run, from the grid of few rows, and from which of these it is: from the spec and
 * the chip. */
#include "cuda/scan/plan.h"

#include <stdio.h>
#include <string.h>

enum {
    COLUMNS_MOST = 32, /* of a chain */
    BALANCED = 128, /* neighbouring prefixes, below which bands are of one width rather than of whole lines of memory */
    CHAINS_SM = 4,  /* for each SM, from which on CTAs have chains of their own */
    WARPS_SM =
        32, /* likewise warps: so many that none is left alone at the end; 17 of them took 264 us where CTAs took 201 */
    TILES_SM = 256,     /* of a launch for each SM, which is enough that its beginning and end do not count */
    COLUMNS_LEAST = 32, /* neighbouring prefixes, from which on a warp's step along the axis is one stretch of memory */
    COLUMNS_SM = 256,   /* prefixes for each SM, from which on there are enough threads for any length; */
    COLUMN_STEPS = 2 * SCAN_RUN, /* up to so many steps there always are */
    COLUMN_FEW_THREADS = 64,     /* of a CTA, so that fewer prefixes come to more SMs */
    RUN_LEAST = 3,               /* steps of a thread, below which joins take longer than what the lanes share */
    ROW_THREADS = 256,           /* of a CTA, of rows whose tiles are not more than twice the SMs */
    ROW_STAGE_BYTES =
        23 << 10 /* of a tile, at most: two are in 48 KB, and what is on its way is enough for the memory */
};

static int64_t over(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* As many as there is room for, or fewer that take as many rounds. */
static int64_t groups_for(int64_t items, int64_t room)
{
    return items <= 0 ? 1 : over(items, over(items, most(1, least(items, room))));
}

static int run_for(int64_t steps, int64_t runs, int run_most)
{
    return (int)least(run_most, over(steps, runs) | 1);
}

static int64_t columns_for(int64_t inner)
{
    if (inner <= COLUMNS_MOST) return most(1, inner);
    return inner < BALANCED ? over(inner, over(inner, COLUMNS_MOST)) : (int64_t)COLUMNS_MOST;
}

static int slot_bytes(ks_scan_op op, ks_dtype dtype)
{
    if (ks_dtype_kind(dtype) == KS_KIND_FLOAT || op == KS_SCAN_MAX || op == KS_SCAN_MIN)
        return ks_dtype_size(dtype) == 8 ? 8 : 4;
    return 8;
}

static int state_bytes(ks_scan_op op, ks_dtype dtype)
{
    return op == KS_SCAN_LOGSUMEXP ? 16 : op == KS_SCAN_MAX || op == KS_SCAN_MIN ? slot_bytes(op, dtype) : 8;
}

static size_t shared_bytes_of(const scan_launch &go)
{
    if (go.c.kind == SCAN_COLUMN) return 0;
    if (go.c.kind == SCAN_ROW) return (size_t)2 * 16 * (size_t)go.s.stage_vectors;
    const int slots = go.c.kind == SCAN_BLOCK ? SCAN_THREADS * go.s.run : SCAN_WARPS * scan_warp_slots(go.s);
    return (size_t)slots * (size_t)slot_bytes(go.op, go.dtype);
}

static scan_rule rule_of(const ks_scan_shape &given)
{
    scan_rule rule = {};
    const int bits = 8 * (int)ks_dtype_size(given.dtype);
    rule.bytes = bits / 8;
    rule.negated = given.op == KS_SCAN_MIN;
    rule.flip = given.op == KS_SCAN_MIN ? UINT64_MAX >> (64 - bits) : 0;
    if (ks_dtype_kind(given.dtype) == KS_KIND_INT) rule.sign = (uint64_t)1 << (bits - 1);
    rule.flip ^= rule.sign;
    return rule;
}

/* Of a warp: the runs that a chain needs, and as many chains as there are runs for, if their elements follow each other; of a chain of several
 * tiles it is all runs. */
static void shape_warp(scan_shape *s)
{
    const bool whole = s->tiles == 1;
    s->depth = (int32_t)(whole ? s->length : s->runs * s->run);
    const int64_t elements = (int64_t)s->depth * s->columns;
    s->group = (int32_t)most(1, over(s->depth, s->run));
    s->each = s->bands == 1 && whole ? s->runs / s->group : 1;
    s->padding = s->each > 1 && elements % 2 == 0;
    s->inverse = elements ? (uint32_t)over(1 << 20, elements) : 0;
}

/* Of a CTA, and where the states of its chains lie. */
static void shape_block(scan_launch *go)
{
    scan_shape *s = &go->s;
    s->depth = SCAN_WARPS * s->runs * s->run;
    go->tiles = over(s->length, s->depth);
    const size_t states = (size_t)s->chains * (size_t)s->columns * (size_t)state_bytes(go->op, go->dtype);
    s->from = ks_align(states * (size_t)scan_entries(go->c.tiles));
    s->to = s->from + ks_align(states);
}

/* A tile's elements with those of others in front of them, in whole vectors. */
static void shape_row(scan_launch *go)
{
    scan_shape *s = &go->s;
    const int64_t bytes = (int64_t)ks_dtype_size(go->dtype);
    s->depth = go->c.threads * s->run;
    s->stage_vectors = (int32_t)over(s->depth * bytes + 16 - bytes, 16);
    go->tiles = over(s->length, s->depth);
}

scan_launch scan_launch_of(const ks_spec *spec, const scan_algorithm &c)
{
    const ks_scan_shape given = ks_scan_shape_of(spec);
    scan_launch go = {};
    go.c = c;
    go.op = given.op;
    go.dtype = given.dtype;
    go.s.rule = rule_of(given);
    scan_shape *s = &go.s;
    s->length = given.length;
    s->inner = given.inner;
    s->in = spec->in[0].offset;
    s->out = spec->out[0].offset;
    s->exclusive = given.exclusive;
    s->reverse = given.reverse;
    s->columns = c.columns;
    s->bands = (int32_t)over(given.inner, c.columns);
    s->chains = given.outer * s->bands;
    s->runs = 32 / c.columns;
    s->run = c.run;
    s->carries = c.carries;
    s->tiles = c.tiles;
    if (c.kind == SCAN_BLOCK) shape_block(&go);
    if (c.kind == SCAN_ROW) shape_row(&go);
    if (c.kind == SCAN_WARP) shape_warp(s);
    go.shared_bytes = shared_bytes_of(go);
    return go;
}

static int64_t job_words(int64_t chains, int32_t tiles)
{
    const int64_t words = SCAN_HEAD_WORDS + chains * scan_words(tiles);
    return words + words % 2;
}

static int64_t job_workspace(const scan_launch &go)
{
    return (int64_t)go.s.to + (int64_t)(go.s.to - go.s.from);
}

/* Tiles of a chain in a launch: as many as there are, or as there is room for. */
static bool fit_tiles(const ks_chip *chip, const ks_spec *spec, scan_algorithm *c, scan_launch *go)
{
    const int64_t tiles = go->tiles, enough = most(1, (int64_t)TILES_SM * chip->sms / go->s.chains);
    for (int64_t n = least(least(tiles, SCAN_TILES_MOST), most(2, enough)); n > 1; n /= 2) {
        c->tiles = (int32_t)n;
        *go = scan_launch_of(spec, *c);
        if (job_words(go->s.chains, c->tiles) <= KS_COUNTERS_MAX &&
            job_workspace(*go) <= (int64_t)chip->workspace_bytes)
            return true;
    }
    return false;
}

static void name_kernel(const scan_launch &go, ks_kernel_info *info)
{
    static const char *const ops[] = {"sum", "prod", "max", "min", "logsumexp"};
    static const char *const kinds[] = {
        [SCAN_WARP] = "warp", [SCAN_BLOCK] = "block", [SCAN_ROW] = "row", [SCAN_COLUMN] = "column"};
    snprintf(info->kernel, sizeof info->kernel, "scan_%s<%s, %s, %d x %d%s>", kinds[go.c.kind], ks_dtype_name(go.dtype),
             ops[go.op], go.c.columns, go.c.run, go.c.carries ? ", looks back" : "");
    info->grid = go.c.grid;
    info->threads = go.c.threads;
    info->cluster = 1;
    info->shared_bytes = go.shared_bytes;
}

/* CTAs of the algorithm on an SM. */
static int64_t resident(const ks_chip *chip, const scan_launch &go)
{
    const bool narrow = ks_dtype_kind(go.dtype) == KS_KIND_FLOAT && ks_dtype_size(go.dtype) < 8; /* slots of FP32 */
    const int registers = state_bytes(go.op, go.dtype) == 16 || !narrow ? 2 : 3;
    if (go.c.kind == SCAN_COLUMN)
        return least(chip->threads_sm, (slot_bytes(go.op, go.dtype) == 8 ? 2 : 3) * (int)SCAN_COLUMN_THREADS) /
               go.c.threads;
    const int64_t by_memory = (int64_t)chip->shared_sm / ((int64_t)go.shared_bytes + (6 << 10));
    return most(1, least(by_memory, registers));
}

/* CTAs of rows.cuh that run at a time: as its registers, the SM's threads and its shared memory allow. */
static int64_t row_ctas(const ks_chip *chip, const scan_launch &go)
{
    const bool wide = slot_bytes(go.op, go.dtype) == 8;
    const int64_t registers =
        wide ? (int)SCAN_ROW_WIDE_CTAS * (int)SCAN_ROW_WIDE_THREADS : (int)SCAN_ROW_CTAS * (int)SCAN_ROW_THREADS;
    const int64_t threads = least(chip->threads_sm, registers) / go.c.threads;
    const int64_t memory =
        (int64_t)chip->shared_sm / ((int64_t)go.shared_bytes + (2 << 10)); /* states, and the system's */
    return chip->sms * most(1, least(threads, memory));
}

/* FP64 whose elements are taken one by one, and whose joins take as long as many of them (ops.cuh): neither columns nor rows. */
static bool is_serial(const ks_scan_shape &given)
{
    return given.op == KS_SCAN_LOGSUMEXP && slot_bytes(given.op, given.dtype) == 8;
}

/* Steps of a thread's run, at most, in a warp's tile: longer ones have fewer joins, but each takes longer. */
static int warp_run_most(const ks_scan_shape &given, bool plenty)
{
    return is_serial(given) && plenty ? SCAN_LONG_RUN : SCAN_RUN;
}

/* The shortest runs that do not make more warps than a CTA on each SM has: few short chains take as long as a thread does. */
static int64_t shortest_run(const ks_chip *chip, const ks_scan_shape &given, int64_t chains, int64_t runs)
{
    int64_t run = RUN_LEAST;
    for (; run < SCAN_RUN; run += 2) {
        const int64_t used = most(1, over(given.length, run));
        const int64_t each = given.inner <= COLUMNS_MOST ? runs / used : 1;
        if (used <= runs && over(chains, most(1, each)) <= (int64_t)SCAN_WARPS * chip->sms) break;
    }
    return run;
}

/* Chains of one tile, or so many that warps go along them tile by tile, all tiles of about as many steps. */
static bool choose_warp(const ks_chip *chip, const ks_scan_shape &given, scan_algorithm *c)
{
    const int64_t chains = given.outer * over(given.inner, c->columns), runs = 32 / c->columns;
    const bool plenty = chains >= (int64_t)WARPS_SM * chip->sms;
    int run_most = warp_run_most(given, plenty);
    const int64_t tiles = most(1, over(given.length, runs * run_most));
    if (tiles > 1 && !plenty) return false;
    if (tiles == 1 && run_most == SCAN_RUN) run_most = (int)shortest_run(chip, given, chains, runs);
    const int64_t steps = over(given.length, tiles);
    int64_t used = tiles > 1 ? runs : most(1, over(steps, run_most));
    if (run_most > SCAN_RUN) used = runs / (runs / used); /* no lane is idle that no other chain has */
    c->kind = SCAN_WARP;
    c->threads = SCAN_THREADS;
    c->run = (int8_t)run_for(steps, used, run_most);
    c->tiles = (int32_t)(tiles > 1 ? over(given.length, runs * c->run) : 1);
    return true;
}

/* A thread for each prefix. */
static bool choose_column(const ks_chip *chip, const ks_scan_shape &given, scan_algorithm *c)
{
    const int64_t columns = given.outer * given.inner;
    const bool plenty = columns >= (int64_t)COLUMNS_SM * chip->sms;
    if (is_serial(given) || given.inner < COLUMNS_LEAST || (!plenty && given.length > COLUMN_STEPS)) return false;
    c->kind = SCAN_COLUMN;
    c->threads = plenty ? (int)SCAN_COLUMN_THREADS : (int)COLUMN_FEW_THREADS;
    c->columns = 1;
    c->run = (int8_t)most(1, over(given.length, most(1, over(given.length, SCAN_RUN))));
    c->tiles = 1;
    return true;
}

/* Steps of a thread for rows: a tile of each is one CTA's, or tiles are as small as gives each SM one; longer ones are as large as there is room
 * for. */
static int row_run(const ks_chip *chip, const ks_scan_shape &given, const scan_algorithm &c)
{
    const int64_t fits = ROW_STAGE_BYTES / (c.threads * (int64_t)ks_dtype_size(given.dtype)),
                  run_most = least(SCAN_RUN, fits - !(fits % 2));
    if (!c.carries)
        return run_for(over(given.length, over(given.length, c.threads * run_most)), c.threads, (int)run_most);
    int64_t run = RUN_LEAST;
    while (run < run_most && given.outer * over(given.length, run * c.threads) > chip->sms) run += 2;
    return (int)run;
}

/* A row of one tile is a CTA's alone, which takes less than what CTAs say to each other. */
static bool choose_row(const ks_chip *chip, const ks_spec *spec, scan_algorithm *c, scan_launch *go)
{
    const ks_scan_shape given = ks_scan_shape_of(spec);
    if (is_serial(given) || given.inner != 1 || ks_dtype_kind(given.dtype) != KS_KIND_FLOAT) return false;
    const int64_t tiles = over(given.length, (int64_t)ROW_THREADS * SCAN_RUN);
    const bool few = given.outer * tiles <= 2 * (int64_t)chip->sms, wide = ks_dtype_size(given.dtype) == 8;
    c->kind = SCAN_ROW;
    c->carries = tiles > 1 && given.outer < (int64_t)CHAINS_SM * chip->sms;
    c->threads = few || wide || !c->carries ? (int)ROW_THREADS : (int)SCAN_ROW_THREADS;
    c->run = (int8_t)row_run(chip, given, *c);
    *go = scan_launch_of(spec, *c);
    if (go->tiles > INT32_MAX / most(1, given.outer)) return false; /* tiles have 32 bits of a number */
    c->tiles = (int32_t)go->tiles;
    *go = scan_launch_of(spec, *c);
    return true;
}

static scan_algorithm choose(const ks_chip *chip, const ks_spec *spec, scan_launch *go)
{
    const ks_scan_shape given = ks_scan_shape_of(spec);
    scan_algorithm c = {};
    c.columns = (int8_t)columns_for(given.inner);
    if (choose_column(chip, given, &c) || choose_warp(chip, given, &c)) {
        *go = scan_launch_of(spec, c);
        return c;
    }
    const scan_algorithm none = c;
    if (choose_row(chip, spec, &c, go)) return c;
    c = none;
    c.kind = SCAN_BLOCK;
    c.threads = SCAN_THREADS;
    c.tiles = 1;
    c.run = (int8_t)run_for(given.length, SCAN_WARPS * (32 / c.columns), SCAN_RUN);
    *go = scan_launch_of(spec, c);
    if (go->tiles == 1) return c;
    c.carries = go->s.chains < (int64_t)CHAINS_SM * chip->sms;
    if (c.carries) c.carries = fit_tiles(chip, spec, &c, go);
    if (!c.carries)
        c.tiles = (int32_t)least(go->tiles, INT32_MAX); /* a tile has at least 256 steps of one column, or 120 of 32 */
    *go = scan_launch_of(spec, c);
    return c;
}

/* What of the kernels works on at once: CTAs, where they are free to have any number of these. */
static int64_t items_of(const scan_launch &go)
{
    const scan_shape &s = go.s;
    switch (go.c.kind) {
    case SCAN_WARP:
        return over(over(s.chains, most(1, s.each)), SCAN_WARPS);
    case SCAN_COLUMN:
        return over(s.chains, go.c.threads);
    default:
        return go.c.carries ? s.chains * go.c.tiles : s.chains;
    }
}

/* The grid, and what tiles at once take beside it. A launch of rows has CTAs that wait for each other, of all jobs of its bucket, which is a
 * power of two: five jobs of a fifth of the room each would be eight. */
static void plan_carries(const ks_chip *chip, const scan_launch &go, int64_t room, scan_algorithm *c, ks_cuda_plan *out)
{
    int64_t jobs = KS_BATCH_MAX;
    c->grid = (int32_t)least(items_of(go), room);
    if (c->kind == SCAN_ROW) {
        out->counters = SCAN_MAIL_HEAD + (size_t)SCAN_MAIL_WORDS * SCAN_MAIL_ROUNDS * (size_t)c->grid;
        while (jobs > 1 && jobs * c->grid > room) jobs /= 2;
    } else {
        out->workspace_bytes = (size_t)job_workspace(go);
        out->counters = (size_t)job_words(go.s.chains, c->tiles);
        jobs = least(jobs, (int64_t)(chip->workspace_bytes / out->workspace_bytes));
    }
    out->batch_max = (int)most(1, least(jobs, KS_COUNTERS_MAX / (int64_t)out->counters));
}

/* ks_cuda_plan_fn */
ks_status scan_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    scan_launch go = {};
    scan_algorithm c = choose(chip, spec, &go);
    const int64_t at_once = c.kind == SCAN_ROW ? row_ctas(chip, go) : chip->sms * resident(chip, go);
    const int64_t room = least(KS_GRID_MAX, at_once);
    out->once = true;
    out->workspace_bytes = 0;
    out->counters = 0;
    if (c.carries) {
        plan_carries(chip, go, room, &c, out);
    } else {
        c.grid = (int32_t)groups_for(items_of(go), room);
        out->batch_max = (int)KS_BATCH_MAX;
    }
    go.c = c;
    name_kernel(go, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}
