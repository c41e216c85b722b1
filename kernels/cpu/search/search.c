/* The nearest rows of a matrix on the CPU: the reference. The matrix is read once for up to GROUP queries, ROWS of it at a time.
 *
 * Numbers  FP16 and BF16 are computed as FP32. Sums of FP32 run over DEPTH values at a time (sums.h) and are collected in FP64; what
 *          follows is FP64 and rounded once. A distance is the sum of squared differences, so that of equal vectors it is 0. A
 *          query's bits depend on no other query.
 * Owns     nothing; all is in the caller's scratch.
 * Threads  any; all memory is the caller's. */
#include "cpu/convert.h"
#include "cpu/reference.h"
#include "cpu/search/sums.h"
#include "cpu/topk/heap.h"
#include "ops/search/search.h"

#include <math.h>

extern const ks_cpu_op ks_search_cpu;

enum {
    GROUP = 64,            /* queries that share a pass over the matrix */
    ROWS = 64,             /* of the matrix at a time */
    DEPTH = 512,           /* values that are summed in FP32 */
    QUERY_BYTES = 1 << 20, /* of a group's queries as FP32, where these are more than four */
    ALIGNMENT = 64,
    PASSED = 16 /* scores that are passed over together */
};

/* Of a group of queries. */
typedef struct task {
    ks_search_shape s;
    const unsigned char *matrix;
    const float *bias;
    const uint8_t *mask;
    float *scores;
    int64_t *indices;
    int group;              /* queries of a group */
    int64_t depth;          /* elements of a query as it lies here */
    float *queries;         /* FP32, zeros behind the last element */
    float *rows;            /* a part of ROWS of the matrix, likewise */
    double *sums, *squares; /* of each query with ROWS; of each row with itself */
    double *query_squares;
    ks_heap_place *places; /* of each query, k */
    ks_heap heaps[GROUP];
} task;

static int least(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

static int64_t up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static int group_of(const ks_search_shape *s)
{
    const int64_t held = QUERY_BYTES / (up(s->depth, KS_WIDE) * (int64_t)sizeof(float)) / 4 * 4;
    return least(s->queries, held < 4 ? 4 : held > GROUP ? GROUP : held);
}

/* --- vectors as FP32 ------------------------------------------------------------------------------------------------- */

static void read_floats(ks_dtype dtype, const unsigned char *from, int64_t at, int count, float *to)
{
    if (dtype == KS_FP16)
        ks_fp16_to_floats((const uint16_t *)(const void *)from + at, to, (size_t)count);
    else if (dtype == KS_BF16)
        ks_bf16_to_floats((const uint16_t *)(const void *)from + at, to, (size_t)count);
    else
        memcpy(to, (const float *)(const void *)from + at, (size_t)count * sizeof *to);
    for (int i = count; i % KS_WIDE; i++) to[i] = 0;
}

/* Elements from `first` on of ROWS rows, of which there are `rows`; the last one stands in for those beyond. */
static void find_rows(const task *t, int64_t row, int rows, int64_t first, int count, const float **at)
{
    const ks_search_shape *s = &t->s;
    const bool as_it_lies = s->dtype == KS_FP32 && count % KS_WIDE == 0;
    for (int r = 0; r < ROWS; r++) {
        const int64_t element = (row + r) * s->pitch + first;
        if (r >= rows) {
            at[r] = at[rows - 1];
        } else if (as_it_lies) {
            at[r] = (const float *)(const void *)t->matrix + element;
        } else {
            read_floats(s->dtype, t->matrix, element, count, t->rows + r * DEPTH);
            at[r] = t->rows + r * DEPTH;
        }
    }
}

/* --- sums ------------------------------------------------------------------------------------------------------------ */

static void add_four(const task *t, int query, int queries, const float *const *rows, int64_t first, int count)
{
    const float *mine[4];
    double sums[KS_WIDE];
    ks_search_sums_fn *add = t->s.metric == KS_SEARCH_L2 ? ks_search_distances_4 : ks_search_products_4;
    for (int i = 0; i < 4; i++)
        mine[i] = t->queries + (int64_t)(query + (i < queries ? i : queries - 1)) * t->depth + first;
    for (int r = 0; r < ROWS; r += 4) {
        memset(sums, 0, sizeof sums);
        add(mine, rows + r, count, sums);
        for (int i = 0; i < queries; i++)
            for (int j = 0; j < 4; j++) t->sums[(query + i) * ROWS + r + j] += sums[4 * i + j];
    }
}

static void add_one(const task *t, int query, const float *const *rows, int64_t first, int count)
{
    const float *const mine = t->queries + (int64_t)query * t->depth + first;
    ks_search_sums_fn *add = t->s.metric == KS_SEARCH_L2 ? ks_search_distances_1 : ks_search_products_1;
    for (int r = 0; r < ROWS; r += KS_WIDE) add(&mine, rows + r, count, t->sums + query * ROWS + r);
}

static void add_part(const task *t, int queries, const float *const *rows, int64_t first, int count)
{
    if (t->s.metric == KS_SEARCH_COSINE)
        for (int r = 0; r < ROWS; r += KS_WIDE) ks_search_squares(NULL, rows + r, count, t->squares + r);
    for (int q = 0; q < queries; q += 4)
        if (queries - q == 1)
            add_one(t, q, rows, first, count);
        else
            add_four(t, q, queries - q < 4 ? queries - q : 4, rows, first, count);
}

/* Of all queries of the group with `rows` rows. */
static void add_rows(const task *t, int queries, int64_t row, int rows)
{
    const float *at[ROWS];
    memset(t->sums, 0, (size_t)queries * ROWS * sizeof *t->sums);
    memset(t->squares, 0, ROWS * sizeof *t->squares);
    for (int64_t first = 0; first < t->s.depth; first += DEPTH) {
        const int count = least(DEPTH, t->s.depth - first);
        find_rows(t, row, rows, first, count, at);
        add_part(t, queries, at, first, (int)up(count, KS_WIDE));
    }
}

/* --- scores ---------------------------------------------------------------------------------------------------------- */

/* Of one query with ROWS rows, from its sums, in place; a -0 becomes +0. */
KS_CLONES static void finish(ks_search_metric metric, double query_squares, const double *squares, const float *bias,
                             double *sums)
{
    if (metric == KS_SEARCH_COSINE)
        for (int r = 0; r < ROWS; r++) {
            const double norms = sqrt(query_squares * squares[r]);
            sums[r] = norms == 0 ? sums[r] : sums[r] / norms;
        }
    for (int r = 0; r < ROWS; r++) sums[r] += bias ? (double)bias[r] : 0;
}

/* Scores as unsigned integers that order as the answer does, NaN 0; of each PASSED of them the largest. */
KS_CLONES static void find_keys(const double *scores, bool smallest, uint32_t *keys, uint32_t *most)
{
    const uint32_t flip = -(uint32_t)smallest;
    for (int r = 0; r < ROWS; r++) {
        const float score = (float)scores[r] + 0.0f;
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        const uint32_t key = bits ^ (-(bits >> 31) | 0x80000000u) ^ flip;
        keys[r] = (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0 : key;
    }
    for (int g = 0; g < ROWS / PASSED; g++) {
        uint32_t best = 0;
        for (int i = 0; i < PASSED; i++) best = keys[g * PASSED + i] > best ? keys[g * PASSED + i] : best;
        most[g] = best;
    }
}

static float score_of(uint32_t key, bool smallest)
{
    float score;
    uint32_t bits = key ^ -(uint32_t)smallest;
    if (key == 0) return (float)NAN;
    bits = bits >> 31 ? bits ^ 0x80000000u : ~bits;
    memcpy(&score, &bits, sizeof score);
    return score;
}

static void offer_rows(task *t, int query, int64_t row, int rows)
{
    uint32_t keys[ROWS], most[ROWS / PASSED];
    double *const scores = t->sums + query * ROWS;
    ks_heap *const h = &t->heaps[query];
    float bias[ROWS] = {0};
    if (t->bias) memcpy(bias, t->bias + row, (size_t)rows * sizeof *bias);
    finish(t->s.metric, t->query_squares[query], t->squares, t->bias ? bias : NULL, scores);
    find_keys(scores, t->s.metric == KS_SEARCH_L2, keys, most);
    for (int r = 0; r < rows; r++) {
        if (h->count == h->k && most[r / PASSED] <= h->places[0].key) {
            r |= PASSED - 1;
            continue;
        }
        if (t->mask && !t->mask[row + r]) continue;
        if (h->count < h->k || keys[r] > h->places[0].key) ks_heap_offer(h, keys[r], row + r);
    }
}

static void write_query(const task *t, ks_heap *h, int64_t query)
{
    const bool smallest = t->s.metric == KS_SEARCH_L2;
    ks_heap_sort(h);
    for (int j = 0; j < t->s.k; j++) {
        const bool there = j < h->count;
        t->scores[query * t->s.k + j] = there      ? score_of((uint32_t)h->places[j].key, smallest)
                                        : smallest ? (float)INFINITY
                                                   : -(float)INFINITY;
        t->indices[query * t->s.k + j] = there ? h->places[j].index : -1;
    }
}

/* --- groups of queries ----------------------------------------------------------------------------------------------- */

static void begin_group(task *t, const unsigned char *in, int64_t first, int queries)
{
    for (int q = 0; q < queries; q++) {
        float *const to = t->queries + (int64_t)q * t->depth;
        const float *same[KS_WIDE];
        double squares[KS_WIDE] = {0};
        for (int64_t l = 0; l < t->s.depth; l += DEPTH) {
            const int count = least(DEPTH, t->s.depth - l);
            read_floats(t->s.dtype, in, (first + q) * t->s.query_pitch + l, count, to + l);
            for (int i = 0; i < KS_WIDE; i++) same[i] = to + l;
            if (t->s.metric == KS_SEARCH_COSINE) ks_search_squares(NULL, same, (int)up(count, KS_WIDE), squares);
        }
        t->query_squares[q] = squares[0];
        t->heaps[q] = (ks_heap){.places = t->places + (int64_t)q * t->s.k, .k = t->s.k};
    }
}

static void do_group(task *t, const unsigned char *in, int64_t first, int queries)
{
    begin_group(t, in, first, queries);
    for (int64_t row = 0; row < t->s.rows; row += ROWS) {
        const int rows = least(ROWS, t->s.rows - row);
        add_rows(t, queries, row, rows);
        for (int q = 0; q < queries; q++) offer_rows(t, q, row, rows);
    }
    for (int q = 0; q < queries; q++) write_query(t, &t->heaps[q], first + q);
}

/* Where the parts of the scratch memory begin. */
typedef struct parts {
    size_t squares, query_squares, places, rows, queries, end;
} parts;

static parts parts_of(const task *t)
{
    parts p;
    const size_t group = (size_t)t->group;
    p.squares = group * ROWS * sizeof *t->sums;
    p.query_squares = p.squares + ROWS * sizeof *t->squares;
    p.places = p.query_squares + group * sizeof *t->query_squares;
    p.rows = p.places + group * (size_t)t->s.k * sizeof *t->places;
    p.queries = p.rows + (size_t)ROWS * DEPTH * sizeof *t->rows;
    p.end = p.queries + group * (size_t)t->depth * sizeof *t->queries;
    return p;
}

static void set_shape(task *t, const ks_spec *spec)
{
    t->s = ks_search_shape_of(spec);
    t->group = group_of(&t->s);
    t->depth = up(t->s.depth, KS_WIDE);
}

static void place_parts(task *t, unsigned char *scratch)
{
    const parts p = parts_of(t);
    t->sums = (double *)(void *)scratch;
    t->squares = (double *)(void *)(scratch + p.squares);
    t->query_squares = (double *)(void *)(scratch + p.query_squares);
    t->places = (ks_heap_place *)(void *)(scratch + p.places);
    t->rows = (float *)(void *)(scratch + p.rows);
    t->queries = (float *)(void *)(scratch + p.queries);
}

/* ks_cpu_fn */
static void search_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    task t = {
        .matrix = in[1], .bias = in[KS_SEARCH_BIAS], .mask = in[KS_SEARCH_MASK], .scores = out[0], .indices = out[1]};
    set_shape(&t, spec);
    unsigned char *const aligned = (unsigned char *)scratch + -(uintptr_t)scratch % ALIGNMENT;
    place_parts(&t, aligned);
    for (int64_t first = 0; first < t.s.queries; first += t.group)
        do_group(&t, in[0], first, least(t.group, t.s.queries - first));
}

static size_t search_scratch(const ks_spec *spec)
{
    task t = {.matrix = NULL};
    set_shape(&t, spec);
    return ALIGNMENT + parts_of(&t).end;
}

static int search_join_rows(const ks_spec *spec)
{
    (void)spec;
    return GROUP;
}

const ks_cpu_op ks_search_cpu = {
    .reference = search_reference, .scratch_bytes = search_scratch, .join_rows = search_join_rows};
