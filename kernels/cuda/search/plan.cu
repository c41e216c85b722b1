/* How a search is spread over the chip (plan.h): queries that share a pass over the matrix, parts of its rows, the shared memory of a
 * CTA. Nothing of it changes a bit: the answer follows from the scores, and each of them from its query and row alone. */
#include "cuda/search/plan.h"

#include "cuda/search/select.cuh"
#include "cuda/topk/common.cuh"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PLACES_LEAST = 32, /* items of a query */
    PLACES_SPARE = 16, /* beyond k, at least */
    PLACES_GOOD = 128, /* where there is room: fewer rounds of the first rows */
    WHOLE_ROWS =
        256, /* of the matrix for each SM: so few leave all items, which a merge reads sooner than two launches more begin */
    FIRST_ITEMS = 64, /* of a group, at least, for a threshold in front of all: its launches take some us */
    WARPS_LEAST = 4,  /* of a CTA with several queries */
    ROUND_ROWS = 256, /* that an SM could take while it begins with another part */
    PARTS_TRIED = 8,
    PASSING = 50
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

static int64_t power_of_two(int64_t value) /* the next one */
{
    int64_t power = PLACES_LEAST;
    while (power < value) power *= 2;
    return power;
}

struct search_problem {
    const ks_chip *chip;
    ks_search_shape s;
    int64_t chunks;      /* of a row */
    bool aligned, whole; /* whole: all rows are first rows */
};

static int64_t room_of(const search_problem &p)
{
    return (int64_t)p.chip->shared_optin - SEARCH_STATIC_BYTES;
}

/* Queries that instances are made for, the smallest first. */
static const int16_t floats_queries[] = {1, 4, 8, 32}, halves_queries[] = {8, 16, 32, 64};
enum { INSTANCES = 4 };

/* What a CTA of so many warps takes for a group. */
static int64_t shared_bytes(const search_problem &p, const search_algorithm &c)
{
    const int64_t stages = search_stages(p.s.dtype == KS_FP32, c.queries);
    const int64_t rings = c.threads / KS_WARP * stages * search_stage_bytes(p.aligned);
    return rings + c.group * (c.places * (int64_t)sizeof(uint64_t) + search_query_bytes(p.chunks));
}

/* As many places as there is room for, none where all items are left; false: too few. */
static bool fit_places(const search_problem &p, search_algorithm *c)
{
    if (p.whole) return shared_bytes(p, *c) <= room_of(p);
    const int64_t enough = power_of_two(p.s.k + PLACES_SPARE);
    for (int64_t places = most(power_of_two(2 * p.s.k), PLACES_GOOD); places >= enough; places /= 2) {
        c->places = (int32_t)places;
        if (shared_bytes(p, *c) <= room_of(p)) return true;
    }
    return false;
}

/* The instance for as many queries as there are, or as fit; false: not one query fits. */
static bool choose_group(const search_problem &p, search_algorithm *c)
{
    const int16_t *const instances = p.s.dtype == KS_FP32 ? floats_queries : halves_queries;
    int at = 0;
    while (at + 1 < INSTANCES && instances[at] < p.s.queries) at++;
    for (; at >= 0; at--) {
        c->queries = instances[at];
        for (int warps = (int)SEARCH_THREADS_MOST / KS_WARP; warps >= (at ? (int)WARPS_LEAST : 1); warps--) {
            const int64_t queries = most(1, p.s.queries);
            c->threads = (int16_t)(warps * KS_WARP);
            c->group = (int32_t)over(queries, over(queries, instances[at])); /* groups of one size */
            if (fit_places(p, c)) return true;
        }
    }
    for (; c->group > 1; c->group = (c->group + 1) / 2)
        if (fit_places(p, c)) return true;
    return fit_places(p, c);
}

/* Items of a query that the workspace holds, beside its bound and its count. */
static int64_t held(const search_problem &p)
{
    const int64_t bytes = (int64_t)p.chip->workspace_bytes - 4 * KS_ALIGNMENT;
    return bytes / ((int64_t)sizeof(uint64_t) * most(1, p.s.queries)) - 2;
}

/* Parts for each group, so that the SMs end together: CTAs are alone on theirs, since each has most of its shared memory. */
static int64_t parts_of(const search_problem &p, int64_t groups, int64_t parts_most)
{
    const int64_t sms = p.chip->sms, least_parts = most(1, sms / groups);
    int64_t best = 1, best_cost = INT64_MAX;
    for (int64_t parts = least(least_parts, parts_most); parts <= least(least_parts + PARTS_TRIED, parts_most);
         parts++) {
        const int64_t cost = over(groups * parts, sms) * (over(p.s.rows, parts) + ROUND_ROWS);
        if (cost >= best_cost) continue;
        best = parts;
        best_cost = cost;
    }
    return best;
}

/* First rows of each part, so that what they leave takes about as long as what passes behind them: S rows leave S items of a query, and of N
 * rows k N / S pass by the threshold that these give. An item that passes takes a warp of its CTA as long as PASSING items that are left. */
static int64_t first_rows(const search_problem &p, const search_algorithm &c)
{
    const int64_t left = (int64_t)(c.parts + 1) * p.s.k;
    const double balance = (double)p.s.k * (double)p.s.rows * (1 + (double)PASSING * c.group / p.chip->sms);
    const int64_t wanted = over((int64_t)sqrt(balance), c.parts);
    const int64_t room = least((held(p) - left) / c.parts, c.part / 2), tile = c.threads / KS_WARP * SEARCH_ROWS;
    const int64_t step = wanted > tile ? tile : (int64_t)SEARCH_ROWS; /* no warp goes on alone */
    const int64_t first = least(most(1, (wanted + step / 2) / step) * step, room / SEARCH_ROWS * SEARCH_ROWS);
    const bool pays = (int64_t)c.group * p.s.k >= FIRST_ITEMS && first * c.parts >= 2 * (int64_t)p.s.k;
    return pays ? first : 0;
}

/* Groups that run side by side read the same rows. */
static void choose_parts(const search_problem &p, search_algorithm *c)
{
    const int64_t groups = over(most(1, p.s.queries), c->group), room = p.whole ? p.s.rows : held(p) / p.s.k;
    const int64_t parts = parts_of(p, groups, most(1, least(over(p.s.rows, SEARCH_ROWS), room)));
    c->part = over(p.s.rows, parts);
    c->parts = (int32_t)over(p.s.rows, c->part);
    c->grid = most(1, least(groups * c->parts, p.chip->sms));
    c->first = p.whole ? c->part : first_rows(p, *c);
}

/* Where the workspace has what: its bytes. leave, left: see search_shape. */
static size_t lay_out(const ks_search_shape &s, const search_algorithm &c, search_shape *to)
{
    const bool whole = c.first == c.part;
    const size_t queries = (size_t)s.queries, item = sizeof(uint64_t);
    to->leave = (int32_t)least(s.k, c.part);
    to->left = whole ? 0 : (int64_t)c.parts * to->leave + (c.first ? s.k : 0);
    to->firsts = ks_align(queries * (size_t)to->left * item);
    to->bounds = to->firsts + ks_align(queries * (size_t)(c.parts * c.first) * item);
    to->counts = to->bounds + (c.first && !whole ? ks_align(queries * item) : 0);
    return (size_t)to->counts + (c.first && !whole ? ks_align(queries * sizeof(uint32_t)) : 0);
}

static bool is_aligned(const ks_search_shape &s)
{
    const int64_t vector = 16 / (int64_t)ks_dtype_size(s.dtype);
    return s.pitch % vector == 0 && (s.depth % vector == 0 || s.pitch > s.depth);
}

search_launch search_launch_of(const ks_spec *spec, const search_algorithm &c)
{
    const ks_search_shape given = ks_search_shape_of(spec);
    const int64_t size = (int64_t)ks_dtype_size(given.dtype);
    search_launch go = {};
    go.c = c;
    go.dtype = given.dtype;
    go.s.queries = given.queries;
    go.s.rows = given.rows;
    go.s.depth = given.depth;
    go.s.query_pitch = given.query_pitch;
    go.s.pitch = given.pitch;
    go.s.query = spec->in[0].offset;
    go.s.matrix = spec->in[1].offset;
    go.s.bias = spec->in[KS_SEARCH_BIAS].offset;
    go.s.mask = spec->in[KS_SEARCH_MASK].offset;
    go.s.scores = spec->out[0].offset;
    go.s.indices = spec->out[1].offset;
    go.s.part = c.part;
    go.s.first = c.first;
    go.s.parts = c.parts;
    go.s.group = c.group;
    go.s.chunks = (int32_t)over(given.depth * size, SEARCH_CHUNK);
    go.s.places = c.places;
    go.s.k = given.k;
    go.s.metric = given.metric;
    lay_out(given, c, &go.s);
    go.s.biased = given.biased;
    go.s.masked = given.masked;
    go.s.aligned = is_aligned(given);
    return go;
}

static void name_kernel(const search_problem &p, const search_algorithm &c, ks_kernel_info *info)
{
    snprintf(info->kernel, sizeof info->kernel, "search_stream<%s, %d of %d queries, %d parts>",
             ks_dtype_name(p.s.dtype), c.group, c.queries, c.parts);
    info->grid = c.grid;
    info->threads = c.threads;
    info->cluster = 1;
    info->shared_bytes = (size_t)c.shared_bytes;
}

static size_t workspace_of(const search_problem &p, const search_algorithm &c)
{
    search_shape where;
    return lay_out(p.s, c, &where);
}

/* Of so many queries. false: no query fits. */
static bool choose(const ks_chip *chip, const ks_search_shape &shape, search_problem *p, search_algorithm *c)
{
    *c = {};
    *p = {};
    p->chip = chip;
    p->s = shape;
    p->chunks = over(shape.depth * (int64_t)ks_dtype_size(shape.dtype), SEARCH_CHUNK);
    p->aligned = is_aligned(shape);
    p->whole = shape.rows * over(most(1, shape.queries), chip->sms) <= (int64_t)chip->sms * WHOLE_ROWS &&
               2 * shape.rows <= held(*p);
    if (p->chunks * SEARCH_CHUNK > room_of(*p) || !choose_group(*p, c)) return false;
    choose_parts(*p, c);
    c->shared_bytes = (int32_t)shared_bytes(*p, *c);
    c->merge_shared_bytes =
        (int32_t)((search_merge_slack(p->s.k) + TOPK_CANDIDATES * (int)SEARCH_MERGE_THREADS) * (int)sizeof(uint64_t));
    return true;
}

/* ks_cuda_plan_fn */
ks_status search_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    search_problem p;
    search_algorithm c;
    const ks_search_shape shape = ks_search_shape_of(spec);
    if (shape.rows >= (int64_t)UINT32_MAX) /* an item has 32 bits of an index, and one that is no item */
        return ks_fail(error, KS_WORK, "search: INPUT1 has %lld rows, on this device at most %lld",
                       (long long)shape.rows, (long long)UINT32_MAX - 1);
    if (!choose(chip, shape, &p, &c))
        return ks_fail(error, KS_WORK,
                       "search: a query of %lld values and %d places of 8 bytes do not fit on this device",
                       (long long)shape.depth, shape.k);
    out->once = false;
    out->workspace_bytes = workspace_of(p, c);
    out->counters = 0;
    out->batch_max = 1;
    name_kernel(p, c, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}

/* ks_cuda_op.join: each bucket of queries has an algorithm of its own, chosen again at its launch. */
ks_status search_join(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    const ks_status status = search_plan(chip, spec, out, error);
    ks_search_shape shape = ks_search_shape_of(spec);
    const int64_t queries = shape.queries;
    for (shape.queries = 1; status == KS_OK && shape.queries < queries; shape.queries *= 2) {
        search_problem p;
        search_algorithm c;
        if (!choose(chip, shape, &p, &c)) continue;
        if (workspace_of(p, c) > out->workspace_bytes) out->workspace_bytes = workspace_of(p, c);
    }
    return status;
}

search_algorithm search_algorithm_of(const ks_chip *chip, const ks_spec *spec)
{
    search_problem p;
    search_algorithm c;
    choose(chip, ks_search_shape_of(spec), &p, &c);
    return c;
}
