/* attention against long double: the reference by itself in buffers of exactly its size, then every backend that this machine has, on all its
 * paths. Each random case also holds what must change no bit: another layout, a batch alone, a mask that says what lengths say, and NaN behind
 * a key that a row does not select. KS_CASES, KS_SEED: how many random cases, and which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"
#include "cpu/reference.h"
#include "ops/attention/attention.h"

extern const ks_op ks_op_attention;

enum { ARENA_BYTES = 64 << 20 };
#include "ops/op_backends.h"

static const ks_dtype dtypes[] = {KS_FP32, KS_FP16, KS_BF16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, B, H, S, D };

typedef struct work {
    ks_spec spec;
    ks_attention_shape s;
    void *in[KS_INPUTS_MAX];
} work;

/* --- specs ------------------------------------------------------------------------------------------------------------ */

static ks_spec spec_of(ks_dtype dtype, const int64_t *query, int64_t kv_heads, int64_t keys, int64_t value_depth)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_attention);
    for (int i = 0; i < 3; i++) {
        spec.in[i] = (ks_tensor){.dtype = dtype, .rank = 4};
        memcpy(spec.in[i].dims, query, 4 * sizeof *query);
        if (i) spec.in[i].dims[H - B] = kv_heads;
        if (i) spec.in[i].dims[S - B] = keys;
    }
    spec.in[2].dims[D - B] = value_depth;
    return spec;
}

static void give(ks_spec *spec, int input, ks_dtype dtype, int rank, const int64_t *dims)
{
    spec->given |= (uint16_t)(1 << input);
    spec->in[input] = (ks_tensor){.dtype = dtype, .rank = rank};
    memcpy(spec->in[input].dims, dims, (size_t)rank * sizeof *dims);
}

static void describe(const work *w, const char *who)
{
    const ks_attention_shape *s = &w->s;
    print_error("%s: %s batches %lld heads %lld/%lld queries %lld keys %lld depth %d/%d causal %d window %lld softcap "
                "%g scale %g "
                "layout %d mask %s lengths %d\n",
                who, ks_dtype_name(s->dtype), (long long)s->batches, (long long)s->heads, (long long)s->kv_heads,
                (long long)s->queries, (long long)s->keys, s->depth, s->value_depth, s->causal, (long long)s->window,
                s->softcap, s->scale, (int)w->spec.params[KS_ATTENTION_LAYOUT].i,
                s->masked ? ks_dtype_name(s->mask_dtype) : "none", s->limited);
}

static void settle(work *w)
{
    ks_error error = {0};
    if (ks_op_attention.resolve(&w->spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(&w->spec);
    w->s = ks_attention_shape_of(&w->spec);
}

static int64_t length_of(const work *w, int64_t batch)
{
    if (!w->s.limited) return w->s.keys;
    return w->s.wide ? ((const int64_t *)w->in[KS_ATTENTION_LENGTHS])[batch]
                     : ((const int32_t *)w->in[KS_ATTENTION_LENGTHS])[batch];
}

static void fill(work *w, int input, values_kind kind)
{
    const ks_tensor *x = &w->spec.in[input];
    const int64_t count = ks_tensor_count(x);
    void *to = w->in[input] = malloc(x->size_bytes + 1);
    assert_non_null(to);
    if (input < KS_ATTENTION_MASK) values_fill(x->dtype, to, count, kind, x->dims[x->rank - 1]);
    for (int64_t i = 0; i < count && input == KS_ATTENTION_MASK; i++)
        if (x->dtype == KS_BOOL)
            ((uint8_t *)to)[i] = values_below(4) != 0;
        else
            values_put(x->dtype, to, i, values_below(9) ? values_normal() : (double)-INFINITY);
    for (int64_t i = 0; i < count && input == KS_ATTENTION_LENGTHS; i++) {
        const int64_t length = values_below((int)w->s.keys + 1);
        if (x->dtype == KS_INT32)
            ((int32_t *)to)[i] = (int32_t)length;
        else
            ((int64_t *)to)[i] = length;
    }
}

static work make(const ks_spec *spec, values_kind kind)
{
    work w = {.spec = *spec};
    settle(&w);
    for (int i = ks_next_input(&w.spec, -1); i >= 0; i = ks_next_input(&w.spec, i)) fill(&w, i, kind);
    return w;
}

static void drop(work *w)
{
    for (int i = 0; i < KS_INPUTS_MAX; i++) free(w->in[i]);
}

/* --- what is right ---------------------------------------------------------------------------------------------------- */

typedef struct place {
    int64_t batch, head, row;
} place;

static bool selects(const work *w, place p, int64_t j)
{
    const ks_attention_shape *s = &w->s;
    const int64_t length = length_of(w, p.batch),
                  corner = s->causal == KS_ATTENTION_BOTTOM_RIGHT ? length - s->queries : 0;
    if (j >= length) return false;
    if (s->causal != KS_ATTENTION_ALL && j > p.row + corner) return false;
    if (s->window >= 0 && j < p.row + corner - s->window) return false;
    if (!s->masked || s->mask_dtype != KS_BOOL) return true;
    return ((const uint8_t *)
                w->in[KS_ATTENTION_MASK])[p.batch * s->mask.batch + p.head * s->mask.head + p.row * s->mask.row + j];
}

/* Of one row: keys' weights relative to the largest, and by how much of each they may differ. */
typedef struct oracle {
    long double *weight, *error, most, sum, error_sum;
    bool nothing;
} oracle;

static int64_t key_at(const work *w, const ks_attention_strides *of, place p, int64_t j)
{
    return p.batch * of->batch + p.head / w->s.group * of->head + j * of->row;
}

static void weigh(const work *w, place p, oracle *o, bool cuts)
{
    const ks_attention_shape *s = &w->s;
    const long double unit = 0x1p-24L,
                      growth = 4 + (cuts ? 4 * sqrtl(s->depth) + s->depth / 8.0L : 2 * sqrtl(s->depth));
    const int64_t query = p.batch * s->query.batch + p.head * s->query.head + p.row * s->query.row;
    const int64_t mask = p.batch * s->mask.batch + p.head * s->mask.head + p.row * s->mask.row;
    o->most = -INFINITY;
    o->sum = o->error_sum = 0;
    for (int64_t j = 0; j < s->keys; j++) {
        long double z = 0, absolute = 0;
        o->weight[j] = -INFINITY;
        if (!selects(w, p, j)) continue;
        for (int d = 0; d < s->depth; d++) {
            const long double term = values_get(s->dtype, w->in[0], query + d) *
                                     values_get(s->dtype, w->in[1], key_at(w, &s->key, p, j) + d) *
                                     (long double)(float)s->scale;
            z += term;
            absolute += fabsl(term);
        }
        o->error[j] = growth * unit * absolute;
        if (s->softcap > 0) {
            z = (long double)s->softcap * tanhl(z / (long double)s->softcap);
            o->error[j] += 8 * unit * fabsl(z);
        }
        if (s->masked && s->mask_dtype != KS_BOOL) z += values_get(s->mask_dtype, w->in[KS_ATTENTION_MASK], mask + j);
        o->error[j] += isfinite(z) ? 2 * unit * fabsl(z) : 0;
        o->weight[j] = z;
        if (z > o->most) o->most = z;
    }
    const long double reference = isinf(o->most) && o->most < 0 ? 0 : o->most;
    for (int64_t j = 0; j < s->keys; j++) {
        const long double t = o->weight[j] - reference;
        if (!selects(w, p, j)) continue;
        o->weight[j] = expl(t);
        if (t > -1000) o->error[j] += (6 + 3 * fabsl(t)) * unit;
        o->sum += o->weight[j];
        if (o->weight[j] > 0) o->error_sum += o->weight[j] * o->error[j];
    }
    o->nothing = isinf(o->most) && o->most < 0 && o->sum == 0;
}

static bool is_near(long double got, long double want, long double bound, bool saturates)
{
    if (!isfinite(want)) return !isfinite(got);
    return fabsl(got - want) <= bound || saturates;
}

static void check_row(const work *w, const unsigned char *out, const char *who, place p, oracle *o)
{
    const ks_attention_shape *s = &w->s;
    const bool cuda = strcmp(who, "cuda") == 0, halves = s->dtype != KS_FP32;
    const long double unit = values_roundoff(s->dtype), rounded = cuda && halves ? 2 * unit : 0;
    weigh(w, p, o, cuda && halves);
    for (int c = 0; c < s->value_depth; c++) {
        const int64_t at = p.batch * s->out.batch + p.head * s->out.head + p.row * s->out.row + c;
        const long double got = values_get(s->dtype, out + w->spec.out[0].offset, at);
        long double sum = 0, absolute = 0, errors = 0, few = 0;
        for (int64_t j = 0; j < s->keys; j++) {
            if (!selects(w, p, j)) continue;
            const long double v = values_get(s->dtype, w->in[2], key_at(w, &s->value, p, j) + c);
            sum += o->weight[j] * v;
            absolute += o->weight[j] * fabsl(v);
            if (o->weight[j] > 0) errors += o->weight[j] * o->error[j] * fabsl(v);
            few += fabsl(v);
        }
        const long double want = o->nothing ? (s->nan_rows ? (long double)NAN : 0) : sum / o->sum;
        long double bound = 1.5L * (errors + fabsl(want) * o->error_sum) / o->sum + values_floor(s->dtype) + 0x1p-120L;
        bound += (rounded + 24 * 0x1p-24L + sqrtl(s->keys) * 0x1p-24L * (cuda ? 4 : 1)) * absolute / o->sum +
                 unit * fabsl(want);
        if (cuda && s->dtype == KS_FP16) bound += few / o->sum * 0x1p-24L;
        if (o->nothing) bound = 0;
        if (is_near(got, want, bound, fabsl(want) > 0.99L * values_limit(s->dtype))) continue;
        describe(w, who);
        fail_msg("batch %lld head %lld row %lld value %d: got %.9Lg, want %.9Lg within %.3Lg", (long long)p.batch,
                 (long long)p.head, (long long)p.row, c, got, want, bound);
    }
    if (!s->lse) return;
    const long double got = ((
        const float *)(const void *)(out + w->spec.out[1].offset))[(p.batch * s->heads + p.head) * s->queries + p.row];
    const long double want =
        o->nothing ? (s->nan_rows ? (long double)NAN : (long double)-INFINITY) : o->most + logl(o->sum);
    const bool right =
        isinf(want) && want < 0
            ? isinf(got) && got < 0
            : is_near(got, want,
                      1.5L * o->error_sum / o->sum + 64 * 0x1p-24L * (1 + fabsl(want)) + (rounded > 0 ? rounded : 0),
                      false);
    if (right) return;
    describe(w, who);
    fail_msg("batch %lld head %lld row %lld: lse %.9Lg, want %.9Lg", (long long)p.batch, (long long)p.head,
             (long long)p.row, got, want);
}

/* Some rows, the first and the last among them. */
static void check(const work *w, const unsigned char *out, const char *who, int64_t most)
{
    const ks_attention_shape *s = &w->s;
    const int64_t rows = s->batches * s->heads * s->queries;
    oracle o = {.weight = malloc((size_t)(s->keys + 1) * sizeof *o.weight),
                .error = malloc((size_t)(s->keys + 1) * sizeof *o.error)};
    assert_true(o.weight && o.error);
    for (int64_t i = 0; i < rows && i < most; i++) {
        const int64_t at = rows <= most ? i : i == 0 ? rows - 1 : (int64_t)(values_next() % (uint64_t)rows);
        const place p = {at / s->queries / s->heads, at / s->queries % s->heads, at % s->queries};
        check_row(w, out, who, p, &o);
    }
    free(o.weight);
    free(o.error);
}

/* --- runs ------------------------------------------------------------------------------------------------------------- */

static const char *const names[] = {"cpu", "cuda"};

static void run_backend(int b, const work *w, unsigned char *out)
{
    ks_error error = {0};
    const unsigned fix = values_below(3) ? 0 : (unsigned)w->spec.given & 6;
    op_harness_fix(harnesses[b], fix);
    const ks_status status =
        op_harness_run(harnesses[b], &w->spec, (const void *const *)w->in, out, (op_path)values_below(3),
                       values_below(3) ? 1 : 1 + values_below(5), values_below(2), &error);
    op_harness_fix(harnesses[b], 0);
    if (status == KS_OK) return;
    describe(w, names[b]);
    fail_msg("%s", error.text);
}

static unsigned char *room_for(const work *w)
{
    unsigned char *out = malloc(ks_spec_out_bytes(&w->spec) + 1);
    assert_non_null(out);
    return out;
}

/* Equal bits of one row of two pieces of work whose rows are as long. */
static bool same_row(const work *a, const unsigned char *left, place p, const work *b, const unsigned char *right,
                     place q)
{
    const size_t size = ks_dtype_size(a->s.dtype);
    const ks_attention_strides *x = &a->s.out, *y = &b->s.out;
    return memcmp(
               left + a->spec.out[0].offset + (size_t)(p.batch * x->batch + p.head * x->head + p.row * x->row) * size,
               right + b->spec.out[0].offset + (size_t)(q.batch * y->batch + q.head * y->head + q.row * y->row) * size,
               (size_t)a->s.value_depth * size) == 0;
}

#define FOR_EACH_ROW(s, p)                                                                                             \
    for (place p = {0}; p.batch < (s)->batches; p.batch++)                                                             \
        for (p.head = 0; p.head < (s)->heads; p.head++)                                                                \
            for (p.row = 0; p.row < (s)->queries; p.row++)

/* A key and its value, of one head, become NaN or infinite: rows that do not select it keep their bits. */
static void break_a_key(work *w, int b, const unsigned char *before)
{
    const ks_attention_shape *s = &w->s;
    unsigned char *after = room_for(w);
    const int64_t j = values_below((int)s->keys), kv_head = values_below((int)s->kv_heads),
                  batch = values_below((int)s->batches);
    const double what = values_below(2) ? (double)NAN : (double)INFINITY;
    for (int d = 0; d < s->value_depth; d++)
        if (values_below(2))
            values_put(s->dtype, w->in[2], batch * s->value.batch + kv_head * s->value.head + j * s->value.row + d,
                       what);
    if (values_below(2))
        values_put(s->dtype, w->in[1], batch * s->key.batch + kv_head * s->key.head + j * s->key.row, (double)NAN);
    run_backend(b, w, after);
    FOR_EACH_ROW(s, p)
    {
        if (p.batch == batch && p.head / s->group == kv_head && selects(w, p, j)) continue;
        if (same_row(w, before, p, w, after, p)) continue;
        describe(w, names[b]);
        fail_msg("row %lld of head %lld has other bits where key %lld, which it does not select, is broken",
                 (long long)p.row, (long long)p.head, (long long)j);
    }
    check(w, after, names[b], 4);
    free(after);
}

/* One batch by itself has the bits that it has among the others. */
static void one_batch_alone(const work *w, int b, const unsigned char *among)
{
    work alone = *w;
    const int64_t batch = values_below((int)w->s.batches);
    for (int i = 0; i < KS_INPUTS_MAX; i++) {
        ks_tensor *x = &alone.spec.in[i];
        if (!ks_has_input(&w->spec, i) || (i == KS_ATTENTION_MASK && (x->rank < 4 || x->dims[0] == 1))) continue;
        alone.in[i] = (unsigned char *)w->in[i] + x->size_bytes / (size_t)w->s.batches * (size_t)batch;
        x->dims[0] = 1;
    }
    settle(&alone);
    unsigned char *out = room_for(&alone);
    run_backend(b, &alone, out);
    FOR_EACH_ROW(&alone.s, p)
    {
        if (same_row(w, among, (place){batch, p.head, p.row}, &alone, out, p)) continue;
        describe(w, names[b]);
        fail_msg("batch %lld has other bits alone", (long long)batch);
    }
    free(out);
}

/* A mask of BOOL that says what the lengths say. */
static void lengths_as_a_mask(const work *w, int b, const unsigned char *by_lengths)
{
    work masked = *w;
    const int64_t dims[] = {w->s.batches, 1, 1, w->s.keys};
    masked.spec.given &= (uint16_t) ~(1u << KS_ATTENTION_LENGTHS);
    give(&masked.spec, KS_ATTENTION_MASK, KS_BOOL, 4, dims);
    uint8_t *mask = masked.in[KS_ATTENTION_MASK] = malloc((size_t)(w->s.batches * w->s.keys) + 1);
    assert_non_null(mask);
    for (int64_t i = 0; i < w->s.batches * w->s.keys; i++) mask[i] = i % w->s.keys < length_of(w, i / w->s.keys);
    settle(&masked);
    unsigned char *out = room_for(&masked);
    run_backend(b, &masked, out);
    FOR_EACH_ROW(&w->s, p)
    {
        if (same_row(w, by_lengths, p, &masked, out, p)) continue;
        describe(w, names[b]);
        fail_msg("lengths and a mask of them differ at row %lld", (long long)p.row);
    }
    free(out);
    free(mask);
}

static void try_work(work *w, int64_t most)
{
    unsigned char *out = room_for(w);
    op_reference(&w->spec, (const void *const *)w->in, out);
    check(w, out, "reference", most);
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        run_backend(b, w, out);
        check(w, out, names[b], most);
        if (w->s.batches > 1 && w->spec.in[0].rank == 4) one_batch_alone(w, b, out);
        if (w->s.limited && !w->s.masked && w->s.causal == KS_ATTENTION_ALL && w->spec.in[0].rank == 4 &&
            w->s.batches > 0)
            lengths_as_a_mask(w, b, out);
        if (w->s.keys > 0 && w->s.kv_heads > 0 && w->s.batches > 0) break_a_key(w, b, out);
    }
    free(out);
}

static void try_spec(const ks_spec *spec, values_kind kind, int64_t most)
{
    work w = make(spec, kind);
    try_work(&w, most);
    drop(&w);
}

/* --- random cases ----------------------------------------------------------------------------------------------------- */

static void swap_layout(ks_spec *spec)
{
    spec->params[KS_ATTENTION_LAYOUT].i = 1;
    for (int i = 0; i < 3; i++) {
        const int64_t heads = spec->in[i].dims[1];
        spec->in[i].dims[1] = spec->in[i].dims[2];
        spec->in[i].dims[2] = heads;
    }
}

static void draw_mask(ks_spec *spec, int64_t batches, int64_t heads, int64_t queries, int64_t keys)
{
    const int rank = 1 + values_below(4);
    const int64_t all[] = {batches, heads, queries, keys};
    int64_t dims[4];
    for (int i = 0; i < rank; i++) dims[i] = i + 1 < rank && values_below(2) ? 1 : all[4 - rank + i];
    const ks_dtype kinds[] = {KS_BOOL, KS_FP32, spec->in[0].dtype};
    give(spec, KS_ATTENTION_MASK, kinds[values_below(3)], rank, dims);
}

static ks_spec drawn(int64_t budget)
{
    static const int depths[] = {1, 7, 16, 32, 40, 64, 64, 72, 80, 96, 128, 128, 129, 200, 256};
    const int64_t depth = depths[values_below(15)], value_depth = values_below(3) ? depth : depths[values_below(15)];
    const int64_t queries = values_below(3) ? 1 + values_below(values_below(2) ? 4 : 150) : 1;
    const int64_t room = budget / (queries * depth) + 2, kv_heads = 1 + values_below(3),
                  group = values_below(2) ? 1 : 1 + values_below(8);
    const int64_t keys = 1 + values_below((int)(room < 700 ? room : 700)), batches = 1 + values_below(3);
    ks_spec spec = spec_of(dtypes[values_below(DTYPES)], (const int64_t[]){batches, kv_heads * group, queries, depth},
                           kv_heads, keys, value_depth);
    ks_value *params = spec.params;
    params[KS_ATTENTION_CAUSAL].i = values_below(3);
    if (params[KS_ATTENTION_CAUSAL].i && values_below(3) == 0)
        params[KS_ATTENTION_WINDOW].i = 1 + values_below((int)keys);
    if (values_below(4) == 0) params[KS_ATTENTION_SOFTCAP].d = 0.5 + values_unit() * 20;
    if (values_below(4) == 0) params[KS_ATTENTION_SCALE].d = values_normal() / sqrt((double)depth);
    params[KS_ATTENTION_LSE].i = values_below(2);
    params[KS_ATTENTION_MASKED_ROWS].i = values_below(4) == 0;
    if (values_below(3) == 0) draw_mask(&spec, batches, kv_heads * group, queries, keys);
    if (values_below(3) == 0) give(&spec, KS_ATTENTION_LENGTHS, values_below(2) ? KS_INT32 : KS_INT64, 1, &batches);
    if (values_below(3) == 0) swap_layout(&spec);
    return spec;
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    static const values_kind kinds[] = {VALUES_UNIFORM, VALUES_NORMAL, VALUES_NORMAL,
                                        VALUES_EQUAL,   VALUES_NAN,    VALUES_INFINITE};
    const int cases = values_cases(100);
    for (int i = 0; i < cases; i++) {
        const ks_spec spec = drawn(values_below(20) ? 100000 : 1000000);
        try_spec(&spec, kinds[values_below(6)], 4);
    }
    printf("%d random cases\n", cases);
}

/* Each kernel of the CUDA planner, in as little work as reaches it: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const struct {
        int64_t heads, kv_heads, queries, keys, depth;
        int causal;
    } table[] = {{4, 2, 1, 300, 64, 0},  {2, 2, 70, 130, 64, 2},  {2, 1, 40, 65, 128, 1}, {1, 1, 130, 200, 40, 2},
                 {8, 1, 3, 300, 256, 2}, {1, 1, 100, 70, 256, 0}, {2, 1, 30, 290, 64, 2}, {1, 1, 70, 65, 127, 1},
                 {8, 1, 1, 200, 128, 0}, {9, 1, 1, 1100, 256, 0}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int d = 0; d < DTYPES; d++) {
            ks_spec spec = spec_of(dtypes[d], (const int64_t[]){1, table[n].heads, table[n].queries, table[n].depth},
                                   table[n].kv_heads, table[n].keys, table[n].depth);
            spec.params[KS_ATTENTION_CAUSAL].i = table[n].causal;
            spec.params[KS_ATTENTION_LSE].i = 1;
            try_spec(&spec, VALUES_NORMAL, 40);
        }
}

/* Tiles of rows that heads share, blocks of keys that all, some or none of their rows take. */
static void several_tiles_and_blocks(void **state)
{
    (void)state;
    static const int depths[] = {64, 64, 128, 128, 40, 80, 256, 200, 33, 20, 96, 192};
    static const values_kind kinds[] = {VALUES_NORMAL, VALUES_NORMAL, VALUES_NAN, VALUES_INFINITE};
    const int cases = (values_cases(100) + 24) / 25;
    for (int i = 0; i < cases; i++) {
        const int64_t depth = depths[values_below(12)], group = 1 + values_below(3), batches = 1 + values_below(2);
        const int64_t query[] = {batches, group, 65 + values_below(140) / group, depth};
        ks_spec spec = spec_of(dtypes[values_below(DTYPES)], query, 1, 1 + values_below(400),
                               values_below(3) ? depth : depths[values_below(12)]);
        spec.params[KS_ATTENTION_CAUSAL].i = values_below(3);
        if (spec.params[KS_ATTENTION_CAUSAL].i && values_below(3) == 0)
            spec.params[KS_ATTENTION_WINDOW].i = 1 + values_below((int)spec.in[1].dims[2]);
        if (values_below(5) == 0) spec.params[KS_ATTENTION_SOFTCAP].d = 2;
        if (values_below(5) == 0) spec.params[KS_ATTENTION_SCALE].d = values_normal() / 8;
        spec.params[KS_ATTENTION_LSE].i = values_below(2);
        if (values_below(4) == 0) draw_mask(&spec, batches, group, query[2], spec.in[1].dims[2]);
        if (values_below(3) == 0) give(&spec, KS_ATTENTION_LENGTHS, KS_INT32, 1, &batches);
        if (values_below(3) == 0) swap_layout(&spec);
        try_spec(&spec, kinds[values_below(4)], 4);
    }
}

/* More tiles than CTAs walk over, so that these have several each: 150 cases' are more than a large GPU has SMs. Heads have so many that tiles of
 * several heads are mixed. */
static void tiles_in_rounds(void **state)
{
    (void)state;
    const int64_t kv_heads = values_cases(100) / 15 + 1;
    if (!harnesses[1]) skip();
    ks_spec spec =
        spec_of(values_below(2) ? KS_FP16 : KS_BF16, (const int64_t[]){1, 2 * kv_heads, 1100, 40}, kv_heads, 1100, 40);
    spec.params[KS_ATTENTION_CAUSAL].i = 1 + values_below(2);
    spec.params[KS_ATTENTION_LSE].i = 1;
    try_spec(&spec, VALUES_NORMAL, 60);
}

/* Decode of more parts than CTAs run at a time: a CTA has several parts of a key head, and several key heads, some without a key. Random
 * cases have fewer parts than a large GPU has CTAs. */
static void many_parts(void **state)
{
    (void)state;
    static const struct {
        int64_t batches, heads, kv_heads, queries, keys, depth;
        int causal;
    } table[] = {{17, 4, 1, 1, 2048, 64, 0}, /* parts of one block */
                 {20, 60, 30, 1, 150, 16, 0}, {9, 8, 2, 2, 1500, 128, 2},
                 {3, 12, 1, 1, 4500, 128, 0}, /* of three, the last one short */
                 {40, 40, 40, 1, 40, 64, 0},  /* one part */
                 {40, 40, 40, 1, 128, 64, 0}, {5, 5, 5, 3, 1300, 72, 1},
                 {2100, 1, 1, 1, 130, 8, 0}}; /* key heads that are merged by a launch of its own */
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        const int64_t batches = table[n].batches;
        ks_spec spec = spec_of(n % 2 ? KS_FP16 : KS_BF16,
                               (const int64_t[]){batches, table[n].heads, table[n].queries, table[n].depth},
                               table[n].kv_heads, table[n].keys, table[n].depth);
        spec.params[KS_ATTENTION_CAUSAL].i = table[n].causal;
        spec.params[KS_ATTENTION_LSE].i = 1;
        if (values_below(2)) give(&spec, KS_ATTENTION_LENGTHS, KS_INT32, 1, &batches);
        try_spec(&spec, VALUES_NORMAL, 4);
    }
}

/* Tiles of FP32 have 16, 32 or 64 rows, by how many SMs these leave idle: many batches have other tiles than one alone, and its bits. */
static void tiles_of_floats(void **state)
{
    (void)state;
    enum { MANY = 140 }; /* key heads: more than a large GPU has SMs */
    static const int depths[] = {20, 64, 77, 128, 192, 256};
    static const struct {
        int64_t batches, queries;
    } tiles[] = {{1, 35}, {MANY, 17}, {MANY, 35}};
    for (size_t n = 0; n < sizeof depths / sizeof *depths; n++)
        for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
            ks_spec spec =
                spec_of(KS_FP32, (const int64_t[]){tiles[t].batches, 1, tiles[t].queries, depths[n]}, 1, 37, depths[n]);
            spec.params[KS_ATTENTION_CAUSAL].i = KS_ATTENTION_BOTTOM_RIGHT;
            spec.params[KS_ATTENTION_LSE].i = 1;
            try_spec(&spec, VALUES_NORMAL, 40);
        }
}

/* --- edges ------------------------------------------------------------------------------------------------------------ */

/* Both layouts have the same bits; ranks without leading axes are those of one batch and one head. */
static void layouts_and_ranks(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPES; d++) {
        const int64_t query[] = {1, 3, 9, 24};
        ks_spec spec = spec_of(dtypes[d], query, 3, 70, 24), other = spec;
        swap_layout(&other);
        work w = make(&spec, VALUES_NORMAL), turned = make(&other, VALUES_NORMAL);
        for (int i = 0; i < 3; i++)
            for (int64_t h = 0; h < 3; h++)
                for (int64_t s = 0; s < spec.in[i].dims[2]; s++)
                    for (int64_t e = 0; e < 24; e++)
                        values_put(dtypes[d], turned.in[i], (s * 3 + h) * 24 + e,
                                   (double)values_get(dtypes[d], w.in[i], (h * spec.in[i].dims[2] + s) * 24 + e));
        unsigned char *left = room_for(&w), *right = room_for(&turned);
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            run_backend(b, &w, left);
            run_backend(b, &turned, right);
            FOR_EACH_ROW(&w.s, p) assert_true(same_row(&w, left, p, &turned, right, p));
        }
        for (int rank = 3; rank >= 2; rank--) {
            for (int i = 0; i < 3; i++) {
                memmove(spec.in[i].dims, spec.in[i].dims + 1, (size_t)rank * sizeof *query);
                spec.in[i].rank = rank;
            }
            try_spec(&spec, VALUES_NORMAL, 20);
        }
        free(left);
        free(right);
        drop(&w);
        drop(&turned);
    }
}

static void nothing_at_all(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPES; d++) {
        ks_spec spec = spec_of(dtypes[d], (const int64_t[]){2, 2, 5, 16}, 1, 0, 16); /* no keys: zeros */
        spec.params[KS_ATTENTION_LSE].i = 1;
        try_spec(&spec, VALUES_NORMAL, 20);
        spec = spec_of(dtypes[d], (const int64_t[]){1, 2, 1100, 16}, 1, 0, 16); /* no keys, and rows of many tiles */
        spec.params[KS_ATTENTION_CAUSAL].i = 1;
        try_spec(&spec, VALUES_NORMAL, 40);
        spec = spec_of(dtypes[d], (const int64_t[]){2, 2, 0, 16}, 1, 7, 16); /* no queries: nothing */
        try_spec(&spec, VALUES_NORMAL, 20);
        spec = spec_of(dtypes[d], (const int64_t[]){1, 0, 3, 16}, 0, 7, 16);
        try_spec(&spec, VALUES_NORMAL, 20);
        spec = spec_of(dtypes[d], (const int64_t[]){2, 1, 9, 16}, 1, 4, 16); /* the first rows have no key */
        spec.params[KS_ATTENTION_CAUSAL].i = KS_ATTENTION_BOTTOM_RIGHT;
        spec.params[KS_ATTENTION_LSE].i = 1;
        try_spec(&spec, VALUES_NORMAL, 20);
    }
}

static void lengths_that_are_refused(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        ks_error error = {0};
        const int64_t batches = 3;
        ks_spec spec = spec_of(KS_FP16, (const int64_t[]){batches, 2, 2, 16}, 1, 40, 16);
        give(&spec, KS_ATTENTION_LENGTHS, KS_INT32, 1, &batches);
        work w = make(&spec, VALUES_NORMAL);
        ((int32_t *)w.in[KS_ATTENTION_LENGTHS])[2] = 41;
        unsigned char *out = room_for(&w);
        assert_int_equal(
            op_harness_run(harnesses[b], &w.spec, (const void *const *)w.in, out, OP_PATH_PLANNED, 1, false, &error),
            KS_RANGE);
        ks_bad_value bad;
        assert_true(ks_op_attention.check(&w.spec, (const void *const *)w.in, &bad));
        ks_op_attention.refuse(&w.spec, &bad, &error);
        assert_string_equal(error.text,
                            "attention: INPUT4 (lengths) has 41 at place 2: it is outside [0, 40], INPUT1's keys");
        free(out);
        drop(&w);
    }
}

static void expect_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(ks_op_attention.resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void refusals(void **state)
{
    (void)state;
    const int64_t query[] = {2, 6, 5, 8}, five[] = {5}, mask[] = {3, 9};
    const ks_spec good = spec_of(KS_FP32, query, 3, 9, 8);
    ks_spec spec = good;
    spec.in[0].dtype = KS_FP64;
    expect_refusal(spec, KS_DATATYPE, "INPUT0 has datatype FP64, takes FP32, FP16 or BF16");
    spec = good;
    spec.in[2].dtype = KS_BF16;
    expect_refusal(spec, KS_DATATYPE, "INPUT0 has datatype FP32, INPUT2 BF16");
    spec = good;
    spec.in[1].rank = 3;
    expect_refusal(spec, KS_SHAPE, "INPUT0 has rank 4, INPUT1 3");
    spec = good;
    spec.in[0].rank = 1;
    expect_refusal(spec, KS_SHAPE, "INPUT0 has rank 1, takes 2 to 4");
    static const char *const words[] = {"2 batches, INPUT1 has 7", "6 heads, which is no multiple of INPUT1's 7",
                                        "9 keys, INPUT2 has 7", "8 elements in a head, INPUT1 has 7"};
    for (int i = 0; i < 4; i++) {
        spec = good;
        spec.in[1].dims[i] = i == 2 ? 9 : 7;
        if (i == 1) spec.in[2].dims[i] = 7;
        if (i == 2) spec.in[2].dims[i] = 7;
        expect_refusal(spec, KS_SHAPE, words[i]);
    }
    spec = good;
    spec.in[0].dims[3] = spec.in[1].dims[3] = 257;
    expect_refusal(spec, KS_SHAPE, "INPUT0 has heads of 257 elements, takes 1 to 256");
    spec = good;
    give(&spec, KS_ATTENTION_MASK, KS_BOOL, 2, mask);
    expect_refusal(spec, KS_SHAPE, "INPUT3 (mask) has shape [3,9], which does not broadcast to the scores' [2,6,5,9]");
    spec.in[KS_ATTENTION_MASK].dtype = KS_FP16;
    expect_refusal(spec, KS_DATATYPE, "takes BOOL, FP32 or INPUT0's, FP32");
    spec = good;
    give(&spec, KS_ATTENTION_LENGTHS, KS_INT32, 1, five);
    expect_refusal(spec, KS_SHAPE, "INPUT4 (lengths) has 5 values, INPUT0 has 2 batches");
    spec = good;
    spec.params[KS_ATTENTION_SCALE].d = (double)INFINITY;
    expect_refusal(spec, KS_PARAMETER, "'scale' is inf");
    spec = good;
    spec.params[KS_ATTENTION_SOFTCAP].d = -1;
    expect_refusal(spec, KS_PARAMETER, "'softcap' is -1");
    spec = good;
    spec.params[KS_ATTENTION_WINDOW].i = 4;
    expect_refusal(spec, KS_PARAMETER, "'window' is 4, which takes a causal");
}

static void the_sample(void **state)
{
    (void)state;
    ks_spec spec;
    ks_op_attention.sample(&spec);
    try_spec(&spec, VALUES_NORMAL, 20);
}

int main(void)
{
    values_seed();
    if (getenv("KS_ONLY")) cmocka_set_test_filter(getenv("KS_ONLY")); /* of those names: "each_*" */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(several_tiles_and_blocks),
        cmocka_unit_test(tiles_in_rounds),
        cmocka_unit_test(many_parts),
        cmocka_unit_test(tiles_of_floats),
        cmocka_unit_test(layouts_and_ranks),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(lengths_that_are_refused),
        cmocka_unit_test(refusals),
        cmocka_unit_test(the_sample),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
