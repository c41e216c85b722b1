/* Which kernel of this folder does a scan, with what launch parameters (plan.h).
 *
 *   warp                    chains of one tile of a warp, or so many chains that each warp has its own, tile by tile
 *   block                   chains of one tile of a CTA, or so many chains that each CTA has its own, tile by tile
 *   block, tiles at once    few long chains; a launch has as many tiles of each as the lane's counters and its workspace have room for
 *
 * The bits of floating sums follow from the tile's columns and run, and from which of these it is: from the spec and the chip. */
#include "cuda/scan/plan.h"

#include <stdio.h>
#include <string.h>

enum {
    COLUMNS_MOST = 32, /* of a chain */
    BALANCED = 128, /* neighbouring prefixes, below which bands are of one width rather than of whole lines of memory */
    CHAINS_SM = 4,  /* for each SM, from which on CTAs have chains of their own */
    WARPS_SM =
        32, /* likewise warps: so many that none is left alone at the end; 17 of them took 264 us where CTAs took 201 */
    TILES_SM = 256 /* of a launch for each SM, which is enough that its beginning and end do not count */
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
    const int slots = go.c.block ? SCAN_THREADS * go.s.run : SCAN_WARPS * scan_warp_slots(go.s);
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
    if (c.block) {
        s->depth = SCAN_WARPS * s->runs * s->run;
        go.tiles = over(given.length, s->depth);
        const size_t states = (size_t)s->chains * (size_t)s->columns * (size_t)state_bytes(go.op, go.dtype);
        s->from = ks_align(states * (size_t)scan_entries(c.tiles));
        s->to = s->from + ks_align(states);
    } else {
        shape_warp(s);
    }
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
    snprintf(info->kernel, sizeof info->kernel, "scan_%s<%s, %s, %d x %d%s>", go.c.block ? "block" : "warp",
             ks_dtype_name(go.dtype), ops[go.op], go.c.columns, go.c.run, go.c.carries ? ", looks back" : "");
    info->grid = go.c.grid;
    info->threads = SCAN_THREADS;
    info->cluster = 1;
    info->shared_bytes = go.shared_bytes;
}

/* CTAs of the algorithm on an SM. */
static int64_t resident(const ks_chip *chip, const scan_launch &go)
{
    const bool narrow = ks_dtype_kind(go.dtype) == KS_KIND_FLOAT && ks_dtype_size(go.dtype) < 8; /* slots of FP32 */
    const int registers = state_bytes(go.op, go.dtype) == 16 || !narrow ? 2 : 3;
    const int64_t by_memory = (int64_t)chip->shared_sm / ((int64_t)go.shared_bytes + (6 << 10));
    return most(1, least(by_memory, registers));
}

/* Steps of a thread's run, at most, in a warp's tile: longer ones have fewer joins, but each takes longer. */
static int warp_run_most(const ks_scan_shape &given, bool plenty)
{
    if (given.op != KS_SCAN_LOGSUMEXP || !plenty) return SCAN_RUN;
    return slot_bytes(given.op, given.dtype) == 8 ? SCAN_LONG_RUN_WIDE : SCAN_LONG_RUN;
}

/* Chains of one tile, or so many that warps go along them tile by tile, all tiles of about as many steps. */
static bool choose_warp(const ks_chip *chip, const ks_scan_shape &given, scan_algorithm *c)
{
    const int64_t chains = given.outer * over(given.inner, c->columns), runs = 32 / c->columns;
    const bool plenty = chains >= (int64_t)WARPS_SM * chip->sms;
    const int run_most = warp_run_most(given, plenty);
    const int64_t tiles = most(1, over(given.length, runs * run_most));
    if (tiles > 1 && !plenty) return false;
    const int64_t steps = over(given.length, tiles);
    int64_t used = tiles > 1 ? runs : most(1, over(steps, run_most));
    if (run_most > SCAN_RUN) used = runs / (runs / used); /* no lane is idle that no other chain has */
    c->run = (int8_t)run_for(steps, used, run_most);
    c->tiles = (int32_t)(tiles > 1 ? over(given.length, runs * c->run) : 1);
    return true;
}

static scan_algorithm choose(const ks_chip *chip, const ks_spec *spec, scan_launch *go)
{
    const ks_scan_shape given = ks_scan_shape_of(spec);
    scan_algorithm c = {};
    c.columns = (int8_t)columns_for(given.inner);
    c.block = !choose_warp(chip, given, &c);
    if (c.block) {
        c.tiles = 1;
        c.run = (int8_t)run_for(given.length, SCAN_WARPS * (32 / c.columns), SCAN_RUN);
    }
    *go = scan_launch_of(spec, c);
    if (!c.block || go->tiles == 1) return c;
    c.carries = go->s.chains < (int64_t)CHAINS_SM * chip->sms;
    if (c.carries) c.carries = fit_tiles(chip, spec, &c, go);
    if (!c.carries)
        c.tiles = (int32_t)least(go->tiles, INT32_MAX); /* a tile has at least 256 steps of one column, or 120 of 32 */
    *go = scan_launch_of(spec, c);
    return c;
}

/* ks_cuda_plan_fn */
ks_status scan_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    (void)error;
    scan_launch go = {};
    scan_algorithm c = choose(chip, spec, &go);
    const int64_t items = !c.block    ? over(over(go.s.chains, most(1, go.s.each)), SCAN_WARPS)
                          : c.carries ? go.s.chains * c.tiles
                                      : go.s.chains;
    const int64_t room = least(KS_GRID_MAX, chip->sms * resident(chip, go));
    c.grid = (int32_t)(c.carries ? least(items, room) : groups_for(items, room));
    out->once = true;
    out->workspace_bytes = c.carries ? (size_t)job_workspace(go) : 0;
    out->counters = c.carries ? (size_t)job_words(go.s.chains, c.tiles) : 0;
    int64_t jobs = KS_BATCH_MAX;
    if (c.carries) {
        jobs = least(jobs, KS_COUNTERS_MAX / (int64_t)out->counters);
        jobs = least(jobs, (int64_t)(chip->workspace_bytes / out->workspace_bytes));
    }
    out->batch_max = (int)most(1, jobs);
    go.c = c;
    name_kernel(go, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}
