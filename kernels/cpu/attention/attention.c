/* Attention on the CPU: the reference. Blocks of KS_ATTENTION_KEYS keys go past up to ROWS query rows of the heads that share them, whose
 * largest score, sum and output go along (online softmax): no score is kept.
 *
 * Numbers  FP16 and BF16 are computed as FP32, weights are not rounded. A block's products are summed in FP32, blocks in FP64, which is
 *          rounded once. A row's bits depend on no other row: blocks begin at key 0, and one that gives it nothing changes nothing.
 * Owns     nothing; all is in the caller's scratch.
 * Threads  any; all memory is the caller's. */
#include "cpu/attention/loops.h"
#include "cpu/convert.h"
#include "cpu/reference.h"
#include "cpu/simd.h"
#include "ops/attention/attention.h"
#include "ops/spec/places.h"

#include <math.h>

extern const ks_cpu_op ks_attention_cpu;

enum { ROWS = 64, KEYS = KS_ATTENTION_KEYS, ALIGNMENT = 64 };

typedef struct row {
    ks_attention_range range;
    const unsigned char *mask; /* NULL: none */
    int64_t out, lse;          /* elements */
    double sum;
    float most;
} row;

/* Rows that share a key head, of one batch. */
typedef struct task {
    ks_attention_shape s;
    const void *const *in;
    void *const *out;
    int columns; /* of an output row here: the next multiple of KS_WIDE */
    row rows[ROWS];
    float *query;         /* rows of s.depth */
    float *lines;         /* a block's keys as they lie, then its values with what is not finite in them */
    float *keys;          /* a block's, transposed */
    float *values;        /* rows of `columns`, zeros behind the last key and the last value */
    float *scores;        /* rows of KEYS */
    float *part;          /* rows of `columns`: a block's sums */
    double *sums;         /* likewise, of all blocks so far */
    unsigned char *taken; /* rows of KEYS */
} task;

static int least(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

static void read_floats(ks_dtype dtype, const void *from, int64_t at, int count, float *to)
{
    if (dtype == KS_FP16)
        ks_fp16_to_floats((const uint16_t *)from + at, to, (size_t)count);
    else if (dtype == KS_BF16)
        ks_bf16_to_floats((const uint16_t *)from + at, to, (size_t)count);
    else
        memcpy(to, (const float *)from + at, (size_t)count * sizeof *to);
}

/* --- a block of keys -------------------------------------------------------------------------------------------------- */

static void load_keys(const task *t, int64_t at, int count)
{
    const ks_attention_shape *s = &t->s;
    for (int j = 0; j < count; j++)
        read_floats(s->dtype, t->in[KS_ATTENTION_KEY], at + j * s->key.row, s->depth, t->lines + j * s->depth);
    for (int i = count * s->depth; i < KEYS * s->depth; i++) t->lines[i] = 0;
    ks_attention_transpose(t->lines, s->depth, t->keys);
}

/* Whether there are values that are not finite: then `lines` has them, and `values` has 0 for each. */
static bool load_values(const task *t, int64_t at, int count)
{
    const ks_attention_shape *s = &t->s;
    for (int j = 0; j < KEYS; j++) {
        float *const to = t->values + j * t->columns;
        if (j < count) read_floats(s->dtype, t->in[KS_ATTENTION_VALUE], at + j * s->value.row, s->value_depth, to);
        for (int c = j < count ? s->value_depth : 0; c < t->columns; c++) to[c] = 0;
    }
    memcpy(t->lines, t->values, (size_t)(count * t->columns) * sizeof *t->lines);
    return ks_attention_cleanse(t->values, count * t->columns);
}

/* Which of the block's keys the row takes; false: none. */
static bool take_keys(const task *t, const row *r, int64_t first, unsigned char *taken)
{
    const int64_t begin = r->range.first - first, end = r->range.end - first;
    const bool selects = r->mask && t->s.mask_dtype == KS_BOOL;
    if (begin >= KEYS || end <= 0 || begin >= end) {
        memset(taken, 0, KEYS);
        return false;
    }
    if (begin <= 0 && end >= KEYS && !selects) {
        memset(taken, 1, KEYS);
        return true;
    }
    for (int j = 0; j < KEYS; j++)
        taken[j] = (unsigned char)(j >= begin && j < end && (!selects || r->mask[first + j]));
    return true;
}

static ks_attention_rule rule_of(const task *t, const row *r, int64_t first, float *added)
{
    ks_attention_rule rule = {.scale = (float)t->s.scale, .softcap = (float)t->s.softcap};
    if (!r->mask || t->s.mask_dtype == KS_BOOL) return rule;
    memset(added, 0, KEYS * sizeof *added);
    read_floats(t->s.mask_dtype, r->mask, first, least(KEYS, t->s.keys - first), added);
    rule.added = added;
    return rule;
}

/* Scores become weights; what came before is put in relation to the new largest one. */
static void weigh(const task *t, int at, row *r, int64_t first)
{
    float added[KEYS], *const scores = t->scores + at * KEYS;
    const ks_attention_rule rule = rule_of(t, r, first, added);
    const float here = ks_attention_scores(&rule, t->taken + at * KEYS, scores), most = here > r->most ? here : r->most;
    if (most > r->most) {
        const double weight = exp((double)r->most - (double)most);
        double *const sums = t->sums + at * t->columns;
        r->sum *= weight;
        for (int c = 0; c < t->columns; c++) sums[c] *= weight;
        r->most = most;
    }
    r->sum += ks_attention_weights(most == -(float)INFINITY ? 0 : most, scores);
}

/* Values that are not finite reach the rows that take their keys, and no others. */
static void add_broken(const task *t, int rows, int count)
{
    for (int j = 0; j < count; j++)
        for (int c = 0; c < t->s.value_depth; c++) {
            const float value = t->lines[j * t->columns + c];
            if (isfinite(value)) continue;
            for (int r = 0; r < rows; r++)
                if (t->taken[r * KEYS + j]) t->part[r * t->columns + c] += t->scores[r * KEYS + j] * value;
        }
}

static void do_block(task *t, int rows, int64_t key, int64_t value, int64_t first)
{
    const int count = least(KEYS, t->s.keys - first);
    bool any = false;
    for (int r = 0; r < rows; r++) any |= take_keys(t, &t->rows[r], first, t->taken + r * KEYS);
    if (!any) return;
    load_keys(t, key + first * t->s.key.row, count);
    const ks_attention_product of_keys = {.a = t->query,
                                          .b = t->keys,
                                          .c = t->scores,
                                          .a_pitch = t->s.depth,
                                          .rows = rows,
                                          .columns = KEYS,
                                          .depth = t->s.depth};
    const ks_attention_product of_values = {.a = t->scores,
                                            .b = t->values,
                                            .c = t->part,
                                            .a_pitch = KEYS,
                                            .rows = rows,
                                            .columns = t->columns,
                                            .depth = KEYS};
    ks_attention_multiply(&of_keys);
    for (int r = 0; r < rows; r++) weigh(t, r, &t->rows[r], first);
    const bool broken = load_values(t, value + first * t->s.value.row, count);
    ks_attention_multiply(&of_values);
    if (broken) add_broken(t, rows, count);
    ks_attention_add(t->part, rows * t->columns, t->sums);
}

/* --- rows ------------------------------------------------------------------------------------------------------------- */

static void write_values(const task *t, int64_t at, const double *values)
{
    const int count = t->s.value_depth;
    switch (t->s.dtype) {
    case KS_FP16:
        ks_doubles_to_fp16(values, (uint16_t *)t->out[0] + at, (size_t)count);
        break;
    case KS_BF16:
        ks_doubles_to_bf16(values, (uint16_t *)t->out[0] + at, (size_t)count);
        break;
    default:
        ks_attention_round(values, count, (float *)t->out[0] + at);
        break;
    }
}

static void write_row(const task *t, int at)
{
    const row *r = &t->rows[at];
    double *const sums = t->sums + at * t->columns;
    const bool nothing = r->most == -(float)INFINITY && r->sum == 0;
    const double of_nothing = t->s.nan_rows ? (double)NAN : 0;
    if (nothing)
        for (int c = 0; c < t->s.value_depth; c++) sums[c] = of_nothing;
    else
        ks_attention_divide(sums, r->sum, t->s.value_depth, sums);
    write_values(t, r->out, sums);
    if (!t->s.lse) return;
    const double lse = nothing ? -(double)INFINITY : (double)r->most + log(r->sum);
    ((float *)t->out[1])[r->lse] = (float)(nothing && t->s.nan_rows ? (double)NAN : lse);
}

static int64_t keys_of(const task *t, int64_t batch)
{
    if (!t->s.limited) return t->s.keys;
    const int64_t own = ks_places_value(t->s.wide ? KS_INT64 : KS_INT32, t->in[KS_ATTENTION_LENGTHS], batch);
    return own < 0 ? 0 : least(own, t->s.keys);
}

/* Row `number` of a key head's, heads one after the other, as row `at` of the task. */
static void open_row(task *t, int at, int64_t batch, int64_t kv_head, int64_t number, int64_t keys)
{
    const ks_attention_shape *s = &t->s;
    const int64_t head = kv_head * s->group + number / s->queries, i = number % s->queries;
    row *r = &t->rows[at];
    *r = (row){.range = ks_attention_range_of(s, i, keys),
               .out = batch * s->out.batch + head * s->out.head + i * s->out.row,
               .lse = (batch * s->heads + head) * s->queries + i,
               .most = -(float)INFINITY};
    if (s->masked)
        r->mask =
            (const unsigned char *)t->in[KS_ATTENTION_MASK] +
            (size_t)(batch * s->mask.batch + head * s->mask.head + i * s->mask.row) * ks_dtype_size(s->mask_dtype);
    read_floats(s->dtype, t->in[KS_ATTENTION_QUERY], batch * s->query.batch + head * s->query.head + i * s->query.row,
                s->depth, t->query + at * s->depth);
}

static void do_rows(task *t, int64_t batch, int64_t kv_head, int64_t number, int rows)
{
    const ks_attention_shape *s = &t->s;
    const int64_t keys = keys_of(t, batch);
    int64_t first = keys, end = 0;
    for (int r = 0; r < rows; r++) {
        open_row(t, r, batch, kv_head, number + r, keys);
        if (t->rows[r].range.first < first) first = t->rows[r].range.first;
        if (t->rows[r].range.end > end) end = t->rows[r].range.end;
    }
    memset(t->sums, 0, (size_t)(rows * t->columns) * sizeof *t->sums);
    for (int64_t block = first / KEYS * KEYS; block < end; block += KEYS)
        do_block(t, rows, batch * s->key.batch + kv_head * s->key.head,
                 batch * s->value.batch + kv_head * s->value.head, block);
    for (int r = 0; r < rows; r++) write_row(t, r);
}

/* --- memory ----------------------------------------------------------------------------------------------------------- */

/* Places the parts one after the other; the bytes that they take. */
static size_t place_parts(task *t, unsigned char *at)
{
    const size_t widest = (size_t)(t->columns > t->s.depth ? t->columns : t->s.depth), columns = (size_t)t->columns;
    const struct {
        void **to;
        size_t bytes;
    } parts[] = {{(void **)&t->sums, ROWS * columns * sizeof(double)},
                 {(void **)&t->query, ROWS * (size_t)t->s.depth * sizeof(float)},
                 {(void **)&t->lines, KEYS * widest * sizeof(float)},
                 {(void **)&t->keys, KEYS * (size_t)t->s.depth * sizeof(float)},
                 {(void **)&t->values, KEYS * columns * sizeof(float)},
                 {(void **)&t->scores, ROWS * KEYS * sizeof(float)},
                 {(void **)&t->part, ROWS * columns * sizeof(float)},
                 {(void **)&t->taken, ROWS * KEYS}};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (at) *parts[i].to = at + bytes;
        bytes += (parts[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return bytes;
}

static void set_shape(task *t, const ks_spec *spec)
{
    t->s = ks_attention_shape_of(spec);
    t->columns = (t->s.value_depth + KS_WIDE - 1) / KS_WIDE * KS_WIDE;
}

/* ks_cpu_fn */
static void attention_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    task t = {.in = in, .out = out};
    set_shape(&t, spec);
    place_parts(&t, (unsigned char *)scratch + -(uintptr_t)scratch % ALIGNMENT);
    const int64_t rows = t.s.group * t.s.queries;
    for (int64_t batch = 0; batch < t.s.batches; batch++)
        for (int64_t head = 0; head < t.s.kv_heads; head++)
            for (int64_t number = 0; number < rows; number += ROWS)
                do_rows(&t, batch, head, number, least(ROWS, rows - number));
}

static size_t attention_scratch(const ks_spec *spec)
{
    task t = {.in = NULL};
    set_shape(&t, spec);
    return ALIGNMENT + place_parts(&t, NULL);
}

const ks_cpu_op ks_attention_cpu = {.reference = attention_reference, .scratch_bytes = attention_scratch};
