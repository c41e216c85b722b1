/* Which kernel of this folder does a topk, with what launch parameters (plan.h).
 *
 *   row_warp   short rows, each sorted by a warp
 *   row_block  longer ones by a CTA; where rows are few, by several, of which the last one joins what they found
 *
 * Neither changes a bit: the answer is unique. */
#include "cuda/topk/plan.h"

#include "cuda/topk/counted.cuh"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    STATIC_BYTES = 4 << 10, /* of shared memory, at least what a kernel has besides */
    WARP_ALWAYS = 128,      /* elements of a row that a warp sorts as fast as a CTA would select */
    WARPS = 8,              /* of a CTA of row_warp, at most */
    SLACK_LEAST = 1024,
    PART_LEAST = 2048, /* elements */
    COUNTED_PART_LEAST =
        4096 /* likewise, of counted rows, of four parts and more: a launch more takes as long as these */
};

static const double JOIN_COST = 2; /* of an item's byte, where one of an element costs 1 */

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

static int64_t power_of_two(int64_t value) /* the next one, from 64 on */
{
    int64_t power = 64;
    while (power < value) power *= 2;
    return power;
}

/* As many as there is room for, or fewer that take as many rounds. */
static int64_t groups_for(int64_t items, int64_t room)
{
    return items <= 0 ? 1 : over(items, over(items, most(1, least(items, room))));
}

/* A problem: the shape and what follows from its datatype. */
struct topk_problem {
    const ks_chip *chip;
    ks_topk_shape s;
    int size, item; /* bytes of an element and of an item */
    int each;       /* elements of a thread in a chunk */
};

static topk_problem problem_of(const ks_chip *chip, const ks_spec *spec)
{
    topk_problem p = {};
    p.chip = chip;
    p.s = ks_topk_shape_of(spec);
    p.size = (int)ks_dtype_size(p.s.dtype);
    p.item = p.size == 8 ? 16 : 8;
    p.each = p.size == 8 ? topk_elements<topk_fp64, false>::EACH : topk_elements<topk_fp32, false>::EACH;
    return p;
}

static void plan_row_warp(const topk_problem &p, topk_algorithm *c)
{
    int64_t warps = WARPS;
    while (warps > 1 && p.s.rows < p.chip->sms * warps) warps /= 2;
    c->family = TOPK_WARP;
    c->places = (int32_t)power_of_two(p.s.length);
    c->threads = (int16_t)(warps * KS_WARP);
    c->shared_bytes = (int32_t)(warps * c->places * p.item);
}

static int ctas_sm(const topk_problem &p)
{
    return topk_ctas_sm(p.s.inner > 1, 8 * p.size);
}

/* CTAs of a row: as many as the chip has room for, while joining what they find takes no longer than finding it. */
static int64_t parts_of(const topk_problem &p)
{
    const int64_t room = (int64_t)p.chip->sms * ctas_sm(p) / most(1, p.s.rows);
    const double join = sqrt((double)p.s.length * p.size / (JOIN_COST * p.s.k * p.item));
    const int64_t parts = least(least(room, p.s.length / PART_LEAST), join < 1e6 ? (int64_t)join : 1000000);
    const int64_t held =
        (int64_t)(p.chip->workspace_bytes / ((size_t)most(1, p.s.rows) * (size_t)p.s.k * (size_t)p.item));
    return most(1, least(parts, held));
}

/* Many are looked for: more than a bound by lanes finds (topk_elements), in rows of more than what would come in at once. */
static bool counts(const topk_problem &p)
{
    return p.s.k > (int)TOPK_THREADS_MOST && p.s.length > (int64_t)TOPK_THREADS_MOST * p.each;
}

/* CTAs of a counted row, of which a few items each come together: as many as the chip has room for, and as their counters. */
static int64_t counted_parts(const topk_problem &p)
{
    if (p.s.rows * ((int)TOPK_ROW_WORDS + (int)TOPK_DIGITS) > KS_COUNTERS_MAX) return 1;
    const int64_t rows = most(1, p.s.rows), row_bytes = rows * p.s.k * p.item;
    const int64_t room = (int64_t)p.chip->sms * ctas_sm(p) / rows;
    const int64_t held = ((int64_t)p.chip->workspace_bytes - rows * p.item - KS_ALIGNMENT) / row_bytes;
    const int64_t parts = least(least(room, p.s.length / COUNTED_PART_LEAST), held);
    return parts < 4 ? 1 : parts;
}

static void plan_row_block(const topk_problem &p, topk_algorithm *c)
{
    const bool strided = p.s.inner > 1;
    const int64_t vector = strided ? 1 : 16 / p.size, vectors = over(p.s.length, vector) + (vector > 1);
    c->family = TOPK_BLOCK;
    c->strided = strided;
    c->counted = counts(p);
    c->parts = (int32_t)(c->counted ? counted_parts(p) : parts_of(p));
    c->part = over(vectors, c->parts);
    c->parts = (int32_t)over(vectors, c->part);
    const int64_t elements = c->part * vector;
    c->threads = (int16_t)(elements <= 2048 ? TOPK_THREADS_MOST / 2 : TOPK_THREADS_MOST);
    const int64_t chunk = (int64_t)c->threads * p.each;
    c->slack = (int32_t)most(SLACK_LEAST, p.s.k + p.s.k / 2);
    int64_t items = c->slack + chunk;
    if (c->parts == 1 && over(vectors, chunk / vector) == 1) items = most(chunk, power_of_two(p.s.k)); /* all come in */
    c->shared_bytes = (int32_t)(items * p.item);
}

/* CTAs of the algorithm on an SM. */
static int64_t resident(const topk_problem &p, const topk_algorithm &c)
{
    const int64_t by_memory = (int64_t)p.chip->shared_sm / (c.shared_bytes + STATIC_BYTES);
    const int64_t by_threads =
        c.family == TOPK_WARP ? p.chip->threads_sm / c.threads : (int64_t)TOPK_THREADS_MOST / c.threads * ctas_sm(p);
    return most(1, least(by_memory, by_threads));
}

/* Of what the parts of rows hand in. */
static size_t candidates_bytes(const ks_topk_shape &s, const topk_algorithm &c)
{
    const size_t item = ks_dtype_size(s.dtype) == 8 ? 16 : 8;
    return c.parts > 1 ? (size_t)s.rows * (size_t)c.parts * (size_t)s.k * item : 0;
}

topk_launch topk_launch_of(const ks_spec *spec, const topk_algorithm &c)
{
    const ks_topk_shape given = ks_topk_shape_of(spec);
    topk_launch go = {};
    go.c = c;
    go.dtype = given.dtype;
    go.s.rows = given.rows;
    go.s.length = given.length;
    go.s.inner = given.inner;
    go.s.in = spec->in[0].offset;
    go.s.values = spec->out[0].offset;
    go.s.indices = spec->out[1].offset;
    go.s.flip = given.largest ? 0 : UINT64_MAX >> (64 - 8 * ks_dtype_size(given.dtype));
    if (ks_dtype_kind(given.dtype) == KS_KIND_INT) go.s.flip ^= (uint64_t)1 << (8 * ks_dtype_size(given.dtype) - 1);
    go.s.part = c.part;
    go.s.k = given.k;
    go.s.parts = c.parts;
    go.s.counted = c.counted;
    go.s.thresholds = candidates_bytes(given, c);
    go.s.slack = (uint32_t)c.slack;
    go.s.largest = given.largest;
    go.s.narrow = given.index_dtype == KS_INT32;
    return go;
}

static void name_kernel(const topk_problem &p, const topk_algorithm &c, ks_kernel_info *info)
{
    char more[48] = "";
    if (c.family == TOPK_WARP)
        snprintf(more, sizeof more, ", %d places", c.places);
    else
        snprintf(more, sizeof more, "%s, %d parts%s", c.strided ? ", strided" : "", c.parts,
                 c.counted ? ", counted" : "");
    snprintf(info->kernel, sizeof info->kernel, "topk_%s<%s%s>", c.family == TOPK_WARP ? "row_warp" : "row_block",
             ks_dtype_name(p.s.dtype), more);
    info->grid = c.grid;
    info->threads = c.threads;
    info->cluster = 1;
    info->shared_bytes = (size_t)c.shared_bytes;
}

/* ks_cuda_plan_fn */
ks_status topk_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error)
{
    const topk_problem p = problem_of(chip, spec);
    topk_algorithm c = {};
    if (p.item == 8 && p.s.length > (int64_t)UINT32_MAX) /* an item has 32 bits of an index */
        return ks_fail(error, KS_WORK, "topk: INPUT0 has %lld elements along axis, on this device at most %lld",
                       (long long)p.s.length, (long long)UINT32_MAX);
    c.parts = 1;
    const bool many = p.s.rows > 4 * (int64_t)chip->sms;
    if (p.s.length <= (many ? (int)TOPK_ROW_WARP : (int)WARP_ALWAYS))
        plan_row_warp(p, &c);
    else
        plan_row_block(p, &c);
    const int64_t rows_cta = c.family == TOPK_WARP ? c.threads / KS_WARP : 1;
    c.grid = groups_for(over(p.s.rows * c.parts, rows_cta), least(KS_GRID_MAX, chip->sms * resident(p, c)));
    const bool joins = c.parts > 1;
    const size_t thresholds = c.counted ? (size_t)p.s.rows * (size_t)p.item : 0;
    out->once = p.s.inner == 1 && !c.counted;
    out->workspace_bytes = joins ? ks_align(candidates_bytes(p.s, c) + thresholds) : 0;
    out->counters = joins ? (size_t)p.s.rows * (size_t)(c.counted ? (int)TOPK_ROW_WORDS + (int)TOPK_DIGITS : 1) : 0;
    int64_t jobs = KS_BATCH_MAX;
    if (joins) {
        jobs = least(jobs, KS_COUNTERS_MAX / most(1, (int64_t)out->counters));
        jobs = least(jobs, (int64_t)(chip->workspace_bytes / out->workspace_bytes));
    }
    out->batch_max = (int)most(1, jobs);
    name_kernel(p, c, &out->kernel_info);
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}
