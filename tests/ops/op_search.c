/* search against float64 scores of all rows: the reference by itself in buffers of exactly its size, then every backend that this machine
 * has, on all its paths. Each score lies within its row's bound, the order is the rule's, and no row that is left out beats the last one by more
 * than two bounds. KS_CASES, KS_SEED: how many random cases, and which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"
#include "cpu/reference.h"
#include "ops/search/search.h"

extern const ks_op ks_op_search;

enum { ARENA_BYTES = 96 << 20 };
#include "ops/op_backends.h"

static const ks_dtype dtypes[] = {KS_FP32, KS_FP16, KS_BF16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, METRICS = 3 };

/* --- specs ------------------------------------------------------------------------------------------------------------ */

/* A spec and its inputs' values. */
typedef struct work {
    ks_spec spec;
    void *in[KS_INPUTS_MAX];
} work;

static ks_spec spec_of(ks_dtype dtype, int64_t queries, int64_t rows, int64_t depth, int k)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_search);
    spec.in[0] = (ks_tensor){.dtype = dtype, .rank = 2, .dims = {queries, depth}};
    spec.in[1] = (ks_tensor){.dtype = dtype, .rank = 2, .dims = {rows, depth}};
    spec.params[KS_SEARCH_K].i = k;
    return spec;
}

static void give(ks_spec *spec, int input)
{
    spec->given |= (uint16_t)(1 << input);
    spec->in[input] =
        (ks_tensor){.dtype = input == KS_SEARCH_BIAS ? KS_FP32 : KS_BOOL, .rank = 1, .dims = {spec->in[1].dims[0]}};
}

static void describe(const ks_spec *spec, const char *who)
{
    const ks_search_shape s = ks_search_shape_of(spec);
    print_error("%s: %s %lld queries, %lld rows of %lld, k %d metric %d bias %d mask %d\n", who, ks_dtype_name(s.dtype),
                (long long)s.queries, (long long)s.rows, (long long)s.depth, s.k, s.metric, s.biased, s.masked);
}

/* --- what is right ---------------------------------------------------------------------------------------------------- */

typedef struct score {
    double value, bound; /* bound: what it may differ by */
} score;

/* One row's score; products of squares are what cosine and distances of 16 bits may be made of. cuts: tensor cores, which cut what does
 * not fit into a sum, 16 terms at a time: of terms with one sign that adds up, as in op_matmul. */
static score score_of(const work *w, int64_t query, int64_t row, bool cuts)
{
    const ks_search_shape s = ks_search_shape_of(&w->spec);
    long double products = 0, absolute = 0, distance = 0, x2 = 0, y2 = 0;
    for (int64_t l = 0; l < s.depth; l++) {
        const long double x = values_get(s.dtype, w->in[0], query * s.depth + l),
                          y = values_get(s.dtype, w->in[1], row * s.depth + l);
        products += x * y;
        absolute += fabsl(x * y);
        distance += (x - y) * (x - y);
        x2 += x * x;
        y2 += y * y;
    }
    const double bias = s.biased ? (double)((const float *)w->in[KS_SEARCH_BIAS])[row] : 0;
    const double unit = 0x1p-24, depth = (double)s.depth, norms = (double)sqrtl(x2 * y2);
    const double growth = 8 + (cuts ? 4 * sqrt(depth) + depth / 8 : 2 * sqrt(depth));
    score r = {.value = (double)products, .bound = growth * unit * (double)absolute + 0x1p-126};
    if (s.metric == KS_SEARCH_L2)
        r = (score){(double)distance, growth * unit * (double)(x2 + y2 + 2 * absolute) + 0x1p-126};
    if (s.metric == KS_SEARCH_COSINE)
        r = norms == 0 ? (score){(double)products, 0} : (score){(double)products / norms, growth * unit};
    r.value += bias;
    r.bound += 2 * unit * fabs(r.value) + unit * fabs(bias);
    return r;
}

/* Above 0: a comes before b, as the order has it; both are scores of the answer. */
static bool comes_before(double a, double b, bool smallest)
{
    if (isnan(a) || isnan(b)) return !isnan(a) && isnan(b);
    return smallest ? a < b : a > b;
}

static bool is_near(double got, const score *want)
{
    if (isnan(want->value) || isnan(got)) return isnan(want->value) && isnan(got);
    return got == want->value || fabs(got - want->value) <= want->bound || fabs(want->value) > 3.4e38;
}

static void check_query(const work *w, const unsigned char *out, const char *who, int64_t query)
{
    const ks_spec *spec = &w->spec;
    const ks_search_shape s = ks_search_shape_of(spec);
    const float *scores = (const float *)(const void *)(out + spec->out[0].offset) + query * s.k;
    const int64_t *indices = (const int64_t *)(const void *)(out + spec->out[1].offset) + query * s.k;
    const bool smallest = s.metric == KS_SEARCH_L2, cuts = s.dtype != KS_FP32 && strcmp(who, "cuda") == 0;
    const uint8_t *mask = w->in[KS_SEARCH_MASK];
    uint8_t *taken = calloc((size_t)s.rows, 1);
    int64_t part = 0;
    assert_non_null(taken);
    for (int64_t r = 0; r < s.rows; r++) part += !mask || mask[r];
    const int there = part < s.k ? (int)part : s.k;
    for (int j = 0; j < s.k; j++) {
        bool right;
        if (j >= there) {
            right = indices[j] == -1 && (double)scores[j] == (smallest ? (double)INFINITY : -(double)INFINITY);
        } else {
            right = indices[j] >= 0 && indices[j] < s.rows && !taken[indices[j]] && (!mask || mask[indices[j]]);
            const score want = right ? score_of(w, query, indices[j], cuts) : (score){0, 0};
            right = right && is_near((double)scores[j], &want) && !(scores[j] == 0 && signbit(scores[j]));
            if (right && j > 0)
                right =
                    comes_before((double)scores[j - 1], (double)scores[j], smallest) ||
                    (!comes_before((double)scores[j], (double)scores[j - 1], smallest) && indices[j - 1] < indices[j]);
        }
        if (!right) {
            describe(spec, who);
            fail_msg("query %lld place %d: row %lld of score %.9g", (long long)query, j, (long long)indices[j],
                     (double)scores[j]);
        }
        if (j < there) taken[indices[j]] = 1;
    }
    for (int64_t r = 0; r < s.rows; r++) { /* none left out that is better than the last one */
        if (taken[r] || (mask && !mask[r])) continue;
        const score other = score_of(w, query, r, cuts);
        const double last = (double)scores[s.k - 1], gap = smallest ? last - other.value : other.value - last;
        if (isnan(other.value) || (!isnan(last) && !(gap > 2 * other.bound + 0x1p-22 * fabs(last)))) continue;
        describe(spec, who);
        fail_msg("query %lld: row %lld of score %.9g is left out, the last one has %.9g", (long long)query,
                 (long long)r, other.value, last);
    }
    free(taken);
}

static void check(const work *w, const void *out, const char *who, int64_t most)
{
    const int64_t queries = w->spec.in[0].dims[0];
    for (int64_t i = 0; i < queries && i < most; i++)
        check_query(w, out, who, queries <= most ? i : i ? (int64_t)(values_next() % (uint64_t)queries) : queries - 1);
}

/* --- runs ------------------------------------------------------------------------------------------------------------- */

static void run_backend(int b, const work *w, void *out)
{
    ks_error error;
    const unsigned fix = values_below(2) ? 0 : (unsigned)w->spec.given & (values_below(2) ? 14 : 2);
    const unsigned fixed = fix ? fix | (values_below(2) ? OP_HARNESS_PITCHED : 0) : 0;
    if (op_run(b, &w->spec, (const void *const *)w->in, out, fixed, &error) == KS_OK) return;
    describe(&w->spec, b ? "cuda" : "cpu");
    fail_msg("%s", error.text);
}

/* Of the resolved spec of s, values of a kind. */
static work make(const ks_spec *spec, values_kind kind)
{
    work w = {.spec = *spec};
    ks_error error = {0};
    if (ks_op_search.resolve(&w.spec, &error) != KS_OK) {
        describe(&w.spec, "resolve");
        fail_msg("%s", error.text);
    }
    ks_spec_layout(&w.spec);
    for (int i = ks_next_input(&w.spec, -1); i >= 0; i = ks_next_input(&w.spec, i)) {
        const ks_tensor *x = &w.spec.in[i];
        w.in[i] = malloc(x->size_bytes + 1);
        assert_non_null(w.in[i]);
        if (i < KS_SEARCH_MASK)
            values_fill(x->dtype, w.in[i], ks_tensor_count(x), i < 2 ? kind : VALUES_NORMAL, x->dims[x->rank - 1]);
        else
            for (int64_t r = 0; r < x->dims[0]; r++) ((uint8_t *)w.in[i])[r] = (uint8_t)values_below(2);
    }
    return w;
}

static void drop(work *w)
{
    for (int i = 0; i < KS_INPUTS_MAX; i++) free(w->in[i]);
}

/* Runs and compares everywhere. */
static void try_work(const work *w, int64_t most)
{
    void *out = malloc(ks_spec_out_bytes(&w->spec) + 1);
    assert_non_null(out);
    op_reference(&w->spec, (const void *const *)w->in, out);
    check(w, out, "reference", most);
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        run_backend(b, w, out);
        check(w, out, b ? "cuda" : "cpu", most);
    }
    free(out);
}

static void try_kind(const ks_spec *spec, values_kind kind, int64_t most)
{
    work w = make(spec, kind);
    try_work(&w, most);
    drop(&w);
}

/* --- random cases ----------------------------------------------------------------------------------------------------- */

static int drawn_k(int64_t rows)
{
    const int64_t most = rows < KS_SEARCH_MOST ? rows : KS_SEARCH_MOST;
    return 1 + values_below((int)(values_below(3) && most > 16 ? 16 : most));
}

/* What a metric and sums of FP32 are defined for: cosine squares no subnormals, and nothing overflows. */
static values_kind drawn_kind(void)
{
    static const values_kind kinds[] = {VALUES_UNIFORM, VALUES_NORMAL, VALUES_EQUAL, VALUES_OFFSET, VALUES_NAN};
    return kinds[values_below(sizeof kinds / sizeof *kinds)];
}

static ks_spec drawn(int64_t rows, int64_t depth)
{
    static const int queries[] = {1, 1, 1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 100};
    const int64_t room = 3000000 / (rows * depth) + 1, wanted = queries[values_below(14)];
    ks_spec spec = spec_of(dtypes[values_below(DTYPES)], wanted < room ? wanted : room, rows, depth, drawn_k(rows));
    spec.params[KS_SEARCH_METRIC].i = values_below(METRICS);
    if (values_below(4) == 0) give(&spec, KS_SEARCH_BIAS);
    if (values_below(4) == 0) give(&spec, KS_SEARCH_MASK);
    return spec;
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(120);
    for (int i = 0; i < cases; i++) {
        const bool large = values_below(12) == 0; /* of more rows than those that all leave items, on an H200 */
        const int64_t rows = large ? 34000 + values_below(9000) : 1 + values_below(values_below(8) ? 400 : 9000);
        const int64_t depth = 1 + values_below(large ? 30 : values_below(4) ? 100 : rows > 1000 ? 300 : 1500);
        const ks_spec spec = drawn(rows, depth);
        try_kind(&spec, drawn_kind(), 5);
    }
    printf("%d random cases\n", cases);
}

/* Where tiles, vectors and parts end. */
static void borders(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 2, 15, 63, 64, 65, 127, 128, 129, 131, 133, 255, 257, 1025},
                         depths[] = {1, 2, 8, 15, 16, 17, 31, 32, 64, 96, 128, 129, 511, 513, 768};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
        for (int t = 0; t < 4; t++) {
            const ks_spec spec = drawn(rows[n], depths[values_below(sizeof depths / sizeof *depths)]);
            try_kind(&spec, drawn_kind(), 4);
        }
}

/* Each kernel of the CUDA planner, in as little work as reaches it on a chip of any size: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        int64_t queries, rows, depth;
        int k;
        ks_search_metric metric;
    } table[] = {{KS_FP32, 1, 700, 128, 10, KS_SEARCH_DOT},    {KS_FP32, 3, 300, 33, 5, KS_SEARCH_COSINE},
                 {KS_FP32, 9, 200, 64, 200, KS_SEARCH_L2},     {KS_FP16, 1, 700, 64, 10, KS_SEARCH_L2},
                 {KS_FP16, 17, 300, 96, 20, KS_SEARCH_DOT},    {KS_BF16, 9, 333, 200, 7, KS_SEARCH_COSINE},
                 {KS_BF16, 40, 200, 32, 100, KS_SEARCH_L2},    {KS_FP16, 5, 150, 77, 3, KS_SEARCH_DOT},
                 {KS_FP16, 65, 140, 64, 10, KS_SEARCH_COSINE}, {KS_FP32, 6, 333, 45, 12, KS_SEARCH_DOT},
                 {KS_FP32, 40, 150, 77, 30, KS_SEARCH_COSINE}, {KS_FP16, 133, 17000, 9, 20, KS_SEARCH_DOT},
                 {KS_FP32, 133, 17000, 7, 4, KS_SEARCH_L2}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        ks_spec spec = spec_of(table[n].dtype, table[n].queries, table[n].rows, table[n].depth, table[n].k);
        spec.params[KS_SEARCH_METRIC].i = table[n].metric;
        if (n % 2) give(&spec, KS_SEARCH_MASK);
        if (n % 3) give(&spec, KS_SEARCH_BIAS);
        try_kind(&spec, VALUES_NORMAL, INT64_MAX);
    }
}

/* Parts whose first rows bound those behind them. The bias decides: all but one of the best rows come first, `heap` of them in a part of the
 * emulated chip's SMS, and the last one far behind, where a threshold that promises too much would pass over it. */
static void first_rows_that_bound(void **state)
{
    (void)state;
    enum { SMS = 6, PART = 1501, FIRST = 256 };
    static const int ks[] = {1, 2, 3, 10, 40, 100};
    for (size_t n = 0; n < sizeof ks / sizeof *ks; n++) {
        const int k = ks[n], heap = (4 * k + 3 * SMS - 1) / (3 * SMS);
        const int64_t queries = k < 64 ? (63 + k) / k : 1 + values_below(9); /* enough that it pays */
        ks_spec spec = spec_of(n % 2 ? KS_FP32 : KS_FP16, queries, SMS * PART, 8, k);
        give(&spec, KS_SEARCH_BIAS);
        work w = make(&spec, VALUES_UNIFORM);
        float *const bias = w.in[KS_SEARCH_BIAS];
        for (int r = 0; r < SMS * PART; r++) bias[r] = r % PART < FIRST ? 0 : 100 + (float)values_below(100);
        for (int i = 0; i + 1 < k; i++) bias[i / heap * PART + i % heap] = 1000 + (float)i;
        try_work(&w, INT64_MAX);
        drop(&w);
    }
}

/* Matrices of the whole chip, on a GPU alone. */
static void the_whole_chip(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        int64_t queries, rows, depth;
        int k;
    } table[] = {{KS_FP32, 1, 150000, 128, 10},  {KS_FP32, 30, 100001, 64, 100},  {KS_FP16, 1, 50000, 768, 10},
                 {KS_FP16, 64, 50003, 768, 10},  {KS_BF16, 10, 1000000, 32, 128}, {KS_FP16, 200, 60000, 256, 1024},
                 {KS_FP16, 64, 94904, 123, 128}, {KS_FP32, 51, 27245, 751, 128},  {KS_FP32, 7, 30864, 669, 128}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) skip();
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        ks_spec spec = spec_of(table[n].dtype, table[n].queries, table[n].rows, table[n].depth, table[n].k);
        spec.params[KS_SEARCH_METRIC].i = (int64_t)n % METRICS;
        try_kind(&spec, VALUES_NORMAL, 3);
    }
}

/* --- ties and masks --------------------------------------------------------------------------------------------------- */

/* Rows that are equal, near ones and far ones, all over the matrix: each as good, so the lowest come first. Of l2 a query that is among
 * them has the distance 0 in FP32, and in 16 bits what the rounding of the squares leaves. */
static void planted_duplicates(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPES; d++)
        for (int metric = 0; metric < METRICS; metric++)
            for (int turn = 0; turn < 3; turn++) {
                const int64_t rows = 500 + values_below(3000), depth = 1 + values_below(140);
                ks_spec spec = spec_of(dtypes[d], 5, rows, depth, 40);
                spec.params[KS_SEARCH_METRIC].i = metric;
                if (turn == 2) give(&spec, KS_SEARCH_MASK);
                work w = make(&spec, VALUES_NORMAL);
                const size_t row_bytes = (size_t)depth * ks_dtype_size(dtypes[d]);
                for (int64_t r = 0; r < rows; r++) /* a fifth of the rows are as the first query, the rest as a few */
                    memcpy((char *)w.in[1] + (size_t)r * row_bytes,
                           values_below(5) ? (char *)w.in[1] + (size_t)values_below(turn ? 9 : 1) * row_bytes
                                           : (char *)w.in[0],
                           row_bytes);
                try_work(&w, INT64_MAX);
                drop(&w);
            }
}

/* All rows masked, one left, fewer than k left; all scores NaN; infinities of both signs; zero vectors. */
static void few_and_broken_rows(void **state)
{
    (void)state;
    for (int part = 0; part < 6; part++)
        for (int metric = 0; metric < METRICS; metric++)
            for (int d = 0; d < DTYPES; d++) {
                const int64_t rows = 150, depth = 20;
                ks_spec spec = spec_of(dtypes[d], 3, rows, depth, 30);
                spec.params[KS_SEARCH_METRIC].i = metric;
                if (part < 3) give(&spec, KS_SEARCH_MASK);
                give(&spec, KS_SEARCH_BIAS);
                work w = make(&spec, VALUES_NORMAL);
                for (int64_t r = 0; r < rows && part < 3; r++)
                    ((uint8_t *)w.in[KS_SEARCH_MASK])[r] = part == 1 ? r == 77 : part == 2 && r % 13 == 5;
                for (int64_t r = 0; r < rows; r++) {
                    float *bias = (float *)w.in[KS_SEARCH_BIAS] + r;
                    if (part == 3) *bias = NAN;
                    if (part == 4) *bias = values_below(3) ? (float)INFINITY : values_below(2) ? NAN : -INFINITY;
                    if (part == 5 && values_below(3) == 0)
                        memset((char *)w.in[1] + (size_t)(r * depth) * ks_dtype_size(dtypes[d]), 0,
                               (size_t)depth * ks_dtype_size(dtypes[d]));
                }
                if (part == 5) memset(w.in[0], 0, (size_t)depth * ks_dtype_size(dtypes[d]));
                try_work(&w, INT64_MAX);
                drop(&w);
            }
}

/* --- identities ------------------------------------------------------------------------------------------------------- */

/* A query's bits are those that it has alone: among 2, 17, 63 others; whatever number of the best is asked for. */
static void a_query_alone_and_among_others(void **state)
{
    (void)state;
    static const int64_t companies[] = {2, 3, 8, 9, 18, 33, 64, 65};
    for (int d = 0; d < DTYPES; d++)
        for (int metric = 0; metric < METRICS; metric++) {
            const int64_t rows = 131 + values_below(300), depth = 1 + values_below(d ? 150 : 900);
            ks_spec all = spec_of(dtypes[d], 65, rows, depth, 20), one = spec_of(dtypes[d], 1, rows, depth, 7);
            all.params[KS_SEARCH_METRIC].i = one.params[KS_SEARCH_METRIC].i = metric;
            work w = make(&all, VALUES_NORMAL), alone = make(&one, VALUES_NORMAL);
            void *const query = alone.in[0], *const matrix = alone.in[1];
            alone.in[1] = w.in[1];
            for (int b = 0; b < 2; b++)
                for (size_t c = 0; c < sizeof companies / sizeof *companies && harnesses[b]; c++) {
                    all.in[0].dims[0] = companies[c];
                    w.spec = all;
                    assert_int_equal(ks_op_search.resolve(&w.spec, NULL), KS_OK);
                    ks_spec_layout(&w.spec);
                    const int64_t at = values_below((int)companies[c]);
                    const size_t row_bytes = (size_t)depth * ks_dtype_size(dtypes[d]);
                    alone.in[0] = (char *)w.in[0] + (size_t)at * row_bytes;
                    unsigned char *left = malloc(ks_spec_out_bytes(&w.spec)),
                                  *right = malloc(ks_spec_out_bytes(&alone.spec));
                    run_backend(b, &w, left);
                    run_backend(b, &alone, right);
                    assert_memory_equal(left + w.spec.out[0].offset + (size_t)(at * 20) * sizeof(float), right,
                                        7 * sizeof(float));
                    assert_memory_equal(left + w.spec.out[1].offset + (size_t)(at * 20) * sizeof(int64_t),
                                        right + alone.spec.out[1].offset, 7 * sizeof(int64_t));
                    free(left);
                    free(right);
                }
            alone.in[0] = query;
            alone.in[1] = matrix;
            drop(&w);
            drop(&alone);
        }
}

/* --- edges ------------------------------------------------------------------------------------------------------------ */

static void expect_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(ks_op_search.resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void refusals(void **state)
{
    (void)state;
    ks_spec spec = spec_of(KS_FP64, 2, 6, 4, 1);
    expect_refusal(spec, KS_DATATYPE, "INPUT0 has datatype FP64, takes FP32, FP16 or BF16");
    spec = spec_of(KS_FP32, 2, 6, 4, 1);
    spec.in[1].dtype = KS_FP16;
    expect_refusal(spec, KS_DATATYPE, "INPUT0 has datatype FP32, INPUT1 FP16");
    spec = spec_of(KS_FP32, 2, 6, 4, 1);
    spec.in[1].rank = 1;
    expect_refusal(spec, KS_SHAPE, "INPUT1 has rank 1, needs 2");
    spec = spec_of(KS_FP32, 2, 6, 4, 1);
    spec.in[0].dims[1] = 5;
    expect_refusal(spec, KS_SHAPE, "INPUT0 has 5 columns, INPUT1 has 4");
    expect_refusal(spec_of(KS_FP32, 2, 0, 4, 1), KS_EMPTY, "INPUT1 has 0 rows of 4");
    expect_refusal(spec_of(KS_FP32, 2, 6, 0, 1), KS_EMPTY, "INPUT1 has 6 rows of 0");
    expect_refusal(spec_of(KS_FP32, 2, 6, 4, 0), KS_PARAMETER, "parameter 'k' is 0, takes 1 to 1024");
    expect_refusal(spec_of(KS_FP32, 2, 6000, 4, 1025), KS_PARAMETER, "parameter 'k' is 1025, takes 1 to 1024");
    expect_refusal(spec_of(KS_FP32, 2, 6, 4, 7), KS_PARAMETER, "parameter 'k' is 7, INPUT1 has 6 rows");
    for (int i = KS_SEARCH_BIAS; i <= KS_SEARCH_MASK; i++) {
        spec = spec_of(KS_FP32, 2, 6, 4, 1);
        give(&spec, i);
        spec.in[i].dims[0] = 5;
        expect_refusal(spec, KS_SHAPE, "has 5 values, INPUT1 has 6 rows");
        spec.in[i].dtype = KS_FP16;
        expect_refusal(spec, KS_DATATYPE, "has datatype FP16, takes");
    }
    spec = spec_of(KS_FP32, 0, 6, 4, 1); /* no queries: an empty answer */
    assert_int_equal(ks_op_search.resolve(&spec, NULL), KS_OK);
    assert_int_equal(spec.out[0].size_bytes, 0);
    try_kind(&spec, VALUES_NORMAL, 1);
}

static void the_sample(void **state)
{
    (void)state;
    ks_spec spec;
    ks_op_search.sample(&spec);
    assert_int_equal(ks_op_search.resolve(&spec, NULL), KS_OK);
    assert_int_equal(spec.outputs, 2);
    assert_int_equal(spec.out[0].dtype, KS_FP32);
    assert_int_equal(spec.out[1].dtype, KS_INT64);
    assert_true(ks_op_search.joins(&spec));
}

int main(void)
{
    values_seed();
    if (getenv("KS_ONLY")) cmocka_set_test_filter(getenv("KS_ONLY")); /* of those names: "each_*" */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(borders),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(first_rows_that_bound),
        cmocka_unit_test(the_whole_chip),
        cmocka_unit_test(planted_duplicates),
        cmocka_unit_test(few_and_broken_rows),
        cmocka_unit_test(a_query_alone_and_among_others),
        cmocka_unit_test(refusals),
        cmocka_unit_test(the_sample),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
