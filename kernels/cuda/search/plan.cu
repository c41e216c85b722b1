/* How a search is spread over the chip (plan.h): queries that share a pass over the matrix, parts of its rows, the shared memory of a
 * CTA. Nothing of it changes a bit: the answer follows from the scores, and each of them from its query and row alone. */
#include "cuda/search/plan.h"

#include "cuda/search/select.cuh"
#include "cuda/topk/common.cuh"

#include <stdio.h>
#include <string.h>

enum {
    PLACES_LEAST = 32, /* items of a query */
    PLACES_SPARE = 16, /* beyond k, at least */
    PLACES_GOOD = 128, /* where there is room: fewer rounds of the first rows */
    SHARING_LEAST = 4, /* parts */
    SHARING_ITEMS = 64 /* of a group, at least: each time parts share, their copies stand still for some us */
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
    int64_t chunks; /* of a row */
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
    const int64_t rings =
        (int64_t)(c.threads / KS_WARP) * search_stages(p.s.dtype == KS_FP32, c.queries) * SEARCH_STAGE;
    return rings + c.group * (c.places * (int64_t)sizeof(uint64_t) + search_query_bytes(p.chunks));
}

/* As many places as there is room for; false: too few. */
static bool fit_places(const search_problem &p, search_algorithm *c)
{
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
        for (int warps = (int)SEARCH_THREADS_MOST / KS_WARP; warps >= (at ? 4 : 1); warps /= 2) {
            c->threads = (int16_t)(warps * KS_WARP);
            c->group = (int32_t)most(1, least(instances[at], p.s.queries));
            if (fit_places(p, c)) return true;
        }
    }
    for (; c->group > 1; c->group = (c->group + 1) / 2)
        if (fit_places(p, c)) return true;
    return fit_places(p, c);
}

/* CTAs are alone on their SM: each has most of its shared memory. Groups that run side by side read the same rows. */
static void choose_parts(const search_problem &p, search_algorithm *c)
{
    const int64_t tile = c->threads / KS_WARP * SEARCH_ROWS, groups = over(most(1, p.s.queries), c->group);
    const int64_t held = (int64_t)(p.chip->workspace_bytes / ((size_t)most(1, p.s.queries) * (size_t)p.s.k * 8));
    const int64_t parts = least(over(p.s.rows, tile), least(over(p.chip->sms, groups), held));
    c->part = over(p.s.rows, most(1, parts));
    c->parts = (int32_t)over(p.s.rows, c->part);
    c->grid = most(1, least(groups * c->parts, p.chip->sms));
}

/* Words in which parts leave keys; 0: they share nothing. */
static int64_t sharing_words(const ks_search_shape &s, const search_algorithm &c)
{
    const int64_t words = s.queries * c.parts;
    const bool wanted = c.parts >= SHARING_LEAST && (int64_t)c.group * s.k >= SHARING_ITEMS;
    return wanted && c.parts <= SEARCH_SHARING_PARTS && words <= KS_COUNTERS_MAX ? words : 0;
}

/* Three of four parts decide: some come late. */
static void choose_ranks(const ks_search_shape &s, const search_algorithm &c, search_shape *to)
{
    if (sharing_words(s, c) == 0) return;
    to->own_rank = (int32_t)over(4 * (int64_t)s.k, 3 * (int64_t)c.parts);
    to->shared_rank = (int32_t)over(s.k, to->own_rank);
}

search_launch search_launch_of(const ks_spec *spec, const search_algorithm &c)
{
    const ks_search_shape given = ks_search_shape_of(spec);
    const int64_t size = (int64_t)ks_dtype_size(given.dtype), vector = 16 / size;
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
    go.s.parts = c.parts;
    go.s.group = c.group;
    go.s.chunks = (int32_t)over(given.depth * size, SEARCH_CHUNK);
    go.s.places = c.places;
    go.s.k = given.k;
    go.s.metric = given.metric;
    choose_ranks(given, c, &go.s);
    go.s.biased = given.biased;
    go.s.masked = given.masked;
    go.s.aligned = given.pitch % vector == 0 && (given.depth % vector == 0 || given.pitch > given.depth);
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
    return ks_align((size_t)p.s.queries * (size_t)c.parts * (size_t)p.s.k * sizeof(uint64_t));
}

/* Of so many queries. false: no query fits. */
static bool choose(const ks_chip *chip, const ks_search_shape &shape, search_problem *p, search_algorithm *c)
{
    *c = {};
    *p = {chip, shape, over(shape.depth * (int64_t)ks_dtype_size(shape.dtype), SEARCH_CHUNK)};
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
    out->counters = (size_t)sharing_words(p.s, c);
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
        if ((size_t)sharing_words(shape, c) > out->counters) out->counters = (size_t)sharing_words(shape, c);
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
