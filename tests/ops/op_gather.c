/* Gather against a naive evaluation: moved bits exactly, bags in long double. The reference by itself, then every backend that this
 * machine has, on all its paths. KS_CASES, KS_SEED: how many random cases, and which. KS_HUGE: also tensors of over 2^31 elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"
#include "cpu/reference.h"
#include "ops/gather.h"

extern const ks_op ks_op_gather;

enum { ARENA_BYTES = 96 << 20 };
#include "ops/op_backends.h"

static const ks_dtype floats[] = {KS_FP32, KS_FP16, KS_BF16, KS_FP64};
static const ks_dtype places[] = {KS_INT32, KS_INT64};

/* --- specs ------------------------------------------------------------------------------------------------------------ */

static void set_input(ks_spec *spec, int input, ks_dtype dtype, int rank, const int64_t *dims)
{
    spec->in[input] = (ks_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) spec->in[input].dims[i] = dims[i];
    spec->given |= (uint16_t)(1u << input);
}

/* A table of [rows, columns], `count` indices. */
static ks_spec plain(ks_dtype dtype, int64_t rows, int64_t columns, int64_t count)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_gather);
    set_input(&spec, KS_GATHER_TABLE, dtype, 2, (const int64_t[]){rows, columns});
    set_input(&spec, KS_GATHER_INDICES, places[values_below(2)], 1, &count);
    return spec;
}

static void add_bags(ks_spec *spec, int64_t bags, bool weights)
{
    set_input(spec, KS_GATHER_OFFSETS, places[values_below(2)], 1, (const int64_t[]){bags + 1});
    if (weights)
        set_input(spec, KS_GATHER_WEIGHTS, values_below(2) ? KS_FP32 : spec->in[0].dtype, 1,
                  spec->in[KS_GATHER_INDICES].dims);
}

static void describe(const ks_spec *spec, const char *who, int64_t at)
{
    char table[128], indices[128];
    ks_dims_text(&spec->in[0], table, sizeof table);
    ks_dims_text(&spec->in[1], indices, sizeof indices);
    print_error("%s: %s [%s] by %s [%s] given %x axis %d kind %d mode %d op %d bags %lld, element %lld\n", who,
                ks_dtype_name(spec->in[0].dtype), table, ks_dtype_name(spec->in[1].dtype), indices, spec->given,
                (int)spec->params[KS_GATHER_AXIS].i, (int)spec->params[KS_GATHER_KIND].i,
                (int)spec->params[KS_GATHER_MODE].i, (int)spec->params[KS_GATHER_OP].i,
                (long long)ks_gather_shape_of(spec).bags, (long long)at);
}

/* --- data ------------------------------------------------------------------------------------------------------------- */

typedef struct data {
    const ks_spec *spec;
    ks_gather_shape shape;
    void *in[KS_GATHER_INPUTS];
} data;

static void put_place(const data *d, int input, int64_t i, int64_t value)
{
    if (d->spec->in[input].dtype == KS_INT32)
        ((int32_t *)d->in[input])[i] = (int32_t)value;
    else
        ((int64_t *)d->in[input])[i] = value;
}

static int64_t get_place(const data *d, int input, int64_t i)
{
    return d->spec->in[input].dtype == KS_INT32 ? ((int32_t *)d->in[input])[i] : ((int64_t *)d->in[input])[i];
}

/* Resolved, with memory for its inputs. */
static data open_data(ks_spec *spec)
{
    ks_error error = {0};
    if (ks_op_gather.resolve(spec, &error) != KS_OK) {
        describe(spec, "resolve", -1);
        fail_msg("%s", error.text);
    }
    ks_spec_layout(spec);
    data d = {.spec = spec, .shape = ks_gather_shape_of(spec)};
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        d.in[i] = malloc(spec->in[i].size_bytes + 1);
        assert_non_null(d.in[i]);
    }
    return d;
}

static void close_data(data *d)
{
    for (int i = 0; i < KS_GATHER_INPUTS; i++) free(d->in[i]);
}

static int64_t below(int64_t bound)
{
    return (int64_t)(values_next() % (uint64_t)bound);
}

static int64_t draw_index(const ks_gather_shape *s)
{
    if (s->mode == KS_GATHER_ERROR) return below(2 * s->extent) - s->extent;
    if (values_below(4) == 0) return values_below(2) ? INT32_MIN + values_below(9) : INT32_MAX - values_below(9);
    return below(8 * s->extent) - 4 * s->extent;
}

/* Bags of random lengths, many of them empty; sometimes one has nearly all. */
static void fill_offsets(const data *d)
{
    const int64_t bags = d->shape.bags, count = d->shape.count;
    const bool one = values_below(4) == 0;
    int64_t at = 0;
    put_place(d, KS_GATHER_OFFSETS, 0, 0);
    for (int64_t b = 1; b < bags; b++) {
        const int64_t left = count - at, step = left / (bags - b + 1) * 2 + 2;
        if (values_below(3)) at += one && b == bags / 2 ? left - left / 8 : below(step < left + 1 ? step : left + 1);
        put_place(d, KS_GATHER_OFFSETS, b, at);
    }
    put_place(d, KS_GATHER_OFFSETS, bags, count);
}

/* Moved tables hold any bits; those of bags numbers. */
static void fill(const data *d, values_kind kind)
{
    const ks_spec *spec = d->spec;
    const int64_t count = ks_tensor_count(&spec->in[KS_GATHER_INDICES]);
    if (d->shape.bags < 0) {
        for (size_t i = 0; i < spec->in[0].size_bytes; i++)
            ((unsigned char *)d->in[0])[i] = (unsigned char)(values_next() >> 9);
    } else {
        values_fill(spec->in[0].dtype, d->in[0], ks_tensor_count(&spec->in[0]), kind, 1);
        if (ks_has_input(spec, KS_GATHER_WEIGHTS))
            values_fill(spec->in[KS_GATHER_WEIGHTS].dtype, d->in[KS_GATHER_WEIGHTS], count, VALUES_NORMAL, 1);
        fill_offsets(d);
    }
    for (int64_t i = 0; i < count; i++) put_place(d, KS_GATHER_INDICES, i, draw_index(&d->shape));
}

/* --- what is right ---------------------------------------------------------------------------------------------------- */

/* By steps, as the rule is told. */
static int64_t slice_of(const data *d, int64_t i)
{
    const int64_t v = d->shape.extent, index = get_place(d, KS_GATHER_INDICES, i);
    switch (d->shape.mode) {
    case KS_GATHER_CLIP:
        return index < 0 ? 0 : index >= v ? v - 1 : index;
    case KS_GATHER_WRAP:
        return index - v * (index / v) + (index < 0 && index % v != 0 ? v : 0);
    default:
        return index < 0 ? index + v : index;
    }
}

/* Which element of the table output element `at` is. */
static int64_t source_of(const data *d, int64_t at)
{
    const ks_gather_shape *s = &d->shape;
    const int64_t j = at % s->inner, i = at / s->inner % s->count, o = at / s->inner / s->count;
    const int64_t slice = slice_of(d, s->kind == KS_GATHER_ELEMENTS ? at : i);
    return (o * s->extent + slice) * s->inner + j;
}

static void check_moved(const data *d, const void *out, const char *who, int64_t at)
{
    const size_t size = ks_dtype_size(d->spec->in[0].dtype);
    const int64_t from = source_of(d, at);
    if (memcmp((const char *)out + (size_t)at * size, (const char *)d->in[0] + (size_t)from * size, size) == 0) return;
    describe(d->spec, who, at);
    fail_msg("it is not element %lld of the table", (long long)from);
}

static bool near_enough(ks_dtype out, long double got, long double want, long double bound)
{
    if (isnan(want)) return isnan(got);
    if (got == want) return true;
    if (isinf(want)) return !isnan(got) && fabsl(got) > 0.99L * values_limit(out) && (got > 0) == (want > 0);
    if (isnan(got)) return false;
    if (isinf(got)) return fabsl(want) + bound >= values_limit(out) && (got > 0) == (want > 0);
    return fabsl(got - want) <= bound;
}

static void check_bag(const data *d, const void *out, const char *who, int64_t at)
{
    const ks_gather_shape *s = &d->shape;
    const ks_dtype dtype = d->spec->in[0].dtype;
    const int64_t bag = at / s->inner, column = at % s->inner, begin = get_place(d, KS_GATHER_OFFSETS, bag);
    const int64_t n = get_place(d, KS_GATHER_OFFSETS, bag + 1) - begin;
    const bool max = s->op == KS_GATHER_MAX;
    long double want = max && n ? -INFINITY : 0, sizes = 0;
    for (int64_t i = begin; i < begin + n; i++) {
        const long double w =
            ks_has_input(d->spec, KS_GATHER_WEIGHTS) ? values_get(d->spec->in[3].dtype, d->in[3], i) : 1;
        const long double x = w * values_get(dtype, d->in[0], slice_of(d, i) * s->inner + column);
        want = !max ? want + x : isnan(x) || x > want ? x : want;
        sizes = max && fabsl(x) > sizes ? fabsl(x) : max ? sizes : sizes + fabsl(x);
    }
    if (s->op == KS_GATHER_MEAN && n) want /= (long double)n, sizes /= (long double)n;
    const long double unit = dtype == KS_FP64 ? 0x1p-53L : 0x1p-24L;
    const long double terms = max ? 2 : (long double)n + 4;
    const long double bound = unit * terms * sizes + 1.01L * values_roundoff(dtype) * fabsl(want) +
                              2 * values_floor(dtype) + (dtype == KS_FP64 ? 1e-300L : 1e-36L);
    const long double got = values_get(dtype, out, at);
    if (near_enough(dtype, got, want, bound)) return;
    describe(d->spec, who, at);
    fail_msg("got %.17Lg, expected %.17Lg within %.3Lg; %lld slices", got, want, bound, (long long)n);
}

/* At most so many elements, the last one among them. */
static void check(const data *d, const void *out, const char *who, int64_t most)
{
    const int64_t count = ks_tensor_count(&d->spec->out[0]);
    for (int64_t i = 0; i < count && i < most; i++) {
        const int64_t at = count <= most ? i : i ? below(count) : count - 1;
        if (d->shape.bags < 0)
            check_moved(d, out, who, at);
        else
            check_bag(d, out, who, at);
    }
}

/* --- runs ------------------------------------------------------------------------------------------------------------- */

static ks_status run_on(int b, const data *d, void *out, ks_error *error)
{
    return op_run(b, d->spec, (const void *const *)d->in, out, op_drawn_inputs(d->spec), error);
}

static void run_well(int b, const data *d, void *out)
{
    ks_error error;
    if (run_on(b, d, out, &error) == KS_OK) return;
    describe(d->spec, b ? "cuda" : "cpu", -1);
    fail_msg("%s", error.text);
}

/* Fills, runs, compares: everywhere and all of it, or on a GPU alone and some elements. */
static void try_on(ks_spec *spec, values_kind kind, bool gpu_only)
{
    enum { SOME = 4000 };
    data d = open_data(spec);
    void *out = malloc(ks_spec_out_bytes(spec) + 1);
    assert_non_null(out);
    fill(&d, kind);
    if (!gpu_only) {
        op_reference(d.spec, (const void *const *)d.in, out);
        check(&d, out, "reference", INT64_MAX);
    }
    for (int b = gpu_only; b < 2; b++) {
        if (!harnesses[b]) continue;
        run_well(b, &d, out);
        check(&d, out, b ? "cuda" : "cpu", gpu_only ? SOME : INT64_MAX);
    }
    free(out);
    close_data(&d);
}

/* --- random cases ----------------------------------------------------------------------------------------------------- */

static void draw_indices(ks_spec *spec)
{
    const ks_tensor *table = &spec->in[0];
    const int axis = (int)spec->params[KS_GATHER_AXIS].i;
    ks_tensor like = *table;
    if (spec->params[KS_GATHER_KIND].i == KS_GATHER_ELEMENTS) {
        if (table->dims[axis] < 1000) like.dims[axis] = values_below(4) ? 1 + values_below(40) : table->dims[axis];
    } else {
        values_shape(&like, 3, 2 + 20000 / (1 + (int64_t)ks_tensor_count(table) / (table->dims[axis] + 1)));
        if (values_below(8) == 0) like.rank = 0;
        if (like.rank + table->rank - 1 > KS_RANK_MAX) like.rank = 1;
    }
    set_input(spec, KS_GATHER_INDICES, places[values_below(2)], like.rank, like.dims);
}

/* false: an index of a table of nothing. */
static bool draw_spec(ks_spec *spec)
{
    ks_tensor table = {0};
    const bool bags = values_below(3) == 0;
    values_shape(&table, bags ? 3 : 5, values_most());
    if (values_below(3) == 0 && table.dims[table.rank - 1] < 100) table.dims[table.rank - 1] *= 16;
    ks_spec_init(spec, &ks_op_gather);
    set_input(spec, KS_GATHER_TABLE, bags ? floats[values_below(4)] : (ks_dtype)values_below(KS_BYTES), table.rank,
              table.dims);
    spec->params[KS_GATHER_MODE].i = values_below(3);
    if (bags) {
        const int64_t count = values_below(4) == 0 ? 0 : values_below(values_below(8) ? 60 : 3000);
        set_input(spec, KS_GATHER_INDICES, places[values_below(2)], 1, &count);
        add_bags(spec, count ? 1 + values_below(30) : values_below(4), values_below(2));
        spec->params[KS_GATHER_OP].i = values_below(3);
    } else {
        spec->params[KS_GATHER_AXIS].i = values_below(table.rank);
        spec->params[KS_GATHER_KIND].i = values_below(3) == 0;
        draw_indices(spec);
        if (values_below(2)) spec->params[KS_GATHER_AXIS].i -= table.rank;
    }
    const int axis = (int)spec->params[KS_GATHER_AXIS].i;
    return table.dims[axis < 0 ? axis + table.rank : axis] > 0 &&
           (!bags || spec->in[2].dims[0] > 1 || spec->in[1].dims[0] == 0);
}

/* Few of some thousand draws have more than a harness holds of one request. */
static bool fits(const ks_spec *drawn)
{
    ks_spec spec = *drawn;
    if (ks_op_gather.resolve(&spec, NULL) != KS_OK) return true; /* the run says why */
    ks_spec_layout(&spec);
    return ks_spec_in_bytes(&spec) + ks_spec_out_bytes(&spec) <= ARENA_BYTES;
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(400);
    for (int i = 0; i < cases;) {
        ks_spec spec;
        if (!draw_spec(&spec) || !fits(&spec)) continue;
        try_on(&spec, (values_kind)values_below(VALUES_KINDS), false);
        i++;
    }
    printf("%d random cases\n", cases);
}

/* Each kernel of the CUDA planner, in as little work as reaches it on a chip of any size: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        int64_t rows, columns, count, bags;
    } table[] = {{KS_FP32, 50, 128, 40, -1},  {KS_FP16, 9, 4096, 70, -1}, {KS_BF16, 30, 264, 100, -1},
                 {KS_FP32, 400, 4, 900, -1},  {KS_FP32, 40, 20, 300, -1}, {KS_UINT8, 300, 1, 5000, -1},
                 {KS_INT8, 20, 3, 4001, -1},  {KS_BF16, 70, 5, 1001, -1}, {KS_FP32, 900, 1, 3000, -1},
                 {KS_FP64, 90, 1, 777, -1},   {KS_FP64, 33, 3, 501, -1},  {KS_FP32, 60, 36, 1000, -1},
                 {KS_BF16, 100, 64, 900, 40}, {KS_FP32, 80, 130, 700, 3}, {KS_FP16, 50, 7, 300, 50},
                 {KS_FP64, 60, 66, 400, 7},   {KS_BF16, 70, 6, 900, 3},   {KS_FP16, 30, 12, 500, 40}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int mode = 0; mode < 3; mode++) {
            ks_spec spec = plain(table[n].dtype, table[n].rows, table[n].columns, table[n].count);
            spec.params[KS_GATHER_MODE].i = mode;
            if (table[n].bags >= 0) {
                add_bags(&spec, table[n].bags, mode == 1);
                spec.params[KS_GATHER_OP].i = (int64_t)((n + (size_t)mode) % 3);
            }
            try_on(&spec, VALUES_NORMAL, false);
        }
    static const ks_dtype sizes[] = {KS_INT8, KS_BF16, KS_FP32, KS_INT64};
    for (int i = 0; i < 4; i++) {
        ks_spec spec;
        ks_spec_init(&spec, &ks_op_gather);
        set_input(&spec, KS_GATHER_TABLE, sizes[i], 3, (const int64_t[]){3, 40, 13});
        set_input(&spec, KS_GATHER_INDICES, places[i & 1], 3, (const int64_t[]){3, 29, 13});
        spec.params[KS_GATHER_KIND].i = KS_GATHER_ELEMENTS;
        spec.params[KS_GATHER_AXIS].i = 1;
        try_on(&spec, VALUES_NORMAL, false);
    }
}

/* What is too much for a quick test of the reference, and needs many CTAs. */
static void slices_of_the_whole_chip(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        int64_t rows, columns, count, bags;
    } table[] = {
        {KS_BF16, 10000, 1024, 8192, -1},     {KS_FP32, 100000, 64, 100000, -1},   {KS_FP32, 1000000, 1, 4000000, -1},
        {KS_BF16, 5000, 2048, 9000, -1},      {KS_UINT8, 1000003, 1, 9000001, -1}, {KS_FP16, 70000, 33, 300000, -1},
        {KS_BF16, 20000, 128, 200000, 16384}, {KS_FP32, 3000, 1024, 60000, 100},   {KS_FP32, 90000, 10, 300000, 9}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) {
        printf("skip: no chip of that size\n");
        skip();
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ks_spec spec = plain(table[i].dtype, table[i].rows, table[i].columns, table[i].count);
        if (table[i].bags >= 0) add_bags(&spec, table[i].bags, values_below(2));
        try_on(&spec, VALUES_NORMAL, true);
    }
}

/* --- values out of bounds --------------------------------------------------------------------------------------------- */

/* Runs on both backends and wants 400 `range` with that place and value. */
static void expect_range(const data *d, int input, int64_t place, int64_t value)
{
    char part[64];
    void *out = malloc(ks_spec_out_bytes(d->spec) + 1);
    ks_bad_value bad = {0};
    assert_non_null(out);
    assert_true(ks_op_gather.check(d->spec, (const void *const *)d->in, &bad));
    if (bad.input != input || bad.place != place || bad.value != value) {
        describe(d->spec, "check", place);
        fail_msg("found input %d place %" PRId64 " value %" PRId64, bad.input, bad.place, bad.value);
    }
    op_reference(d->spec, (const void *const *)d->in, out); /* reads nothing out of bounds: a sanitizer sees it */
    snprintf(part, sizeof part, "has %" PRId64 " at place ", value);
    for (int b = 0; b < 2; b++) {
        ks_error error, wanted;
        if (!harnesses[b] || ks_spec_out_bytes(d->spec) == 0) continue;
        const ks_status status = run_on(b, d, out, &error);
        assert_int_equal(ks_op_gather.refuse(d->spec, &bad, &wanted), KS_RANGE);
        if (status == KS_RANGE && strcmp(error.text, wanted.text) == 0 && strstr(error.text, part)) continue;
        describe(d->spec, b ? "cuda" : "cpu", place);
        fail_msg("status %s, \"%s\", and not \"%s\"", ks_status_name(status), status == KS_OK ? "" : error.text,
                 wanted.text);
    }
    free(out);
}

/* At the first, a middle and the last place; two at once, of which the first counts; just beyond each bound, and far. */
static void spoil_indices(ks_spec *spec)
{
    data d = open_data(spec);
    fill(&d, VALUES_NORMAL);
    const int64_t count = ks_tensor_count(&spec->in[1]), v = d.shape.extent;
    const bool narrow = spec->in[1].dtype == KS_INT32;
    const int64_t values[] = {v, -v - 1, narrow ? INT32_MAX : INT64_MAX, narrow ? INT32_MIN : INT64_MIN};
    const int64_t at[] = {0, count / 2, count - 1};
    for (int i = 0; i < 3; i++) {
        const int64_t good = get_place(&d, 1, at[i]), last = get_place(&d, 1, count - 1), bad = values[values_below(4)];
        put_place(&d, 1, count - 1, v);
        put_place(&d, 1, at[i], bad);
        expect_range(&d, KS_GATHER_INDICES, at[i], bad);
        put_place(&d, 1, count - 1, last);
        put_place(&d, 1, at[i], at[i] == count - 1 ? last : good);
    }
    close_data(&d);
}

static void indices_out_of_bounds(void **state)
{
    (void)state;
    for (int i = 0; i < 40 + values_cases(400) / 10;) {
        ks_spec spec, copy;
        if (!draw_spec(&spec)) continue;
        spec.params[KS_GATHER_MODE].i = KS_GATHER_ERROR;
        copy = spec;
        assert_int_equal(ks_op_gather.resolve(&copy, NULL), KS_OK);
        if (ks_tensor_count(&copy.in[1]) == 0 || ks_tensor_count(&copy.out[0]) == 0 || !fits(&spec)) continue;
        spoil_indices(&spec);
        i++;
    }
}

static void tables_of_nothing(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        ks_spec spec = plain(KS_FP32, 0, 5, 7);
        spec.params[KS_GATHER_MODE].i = mode;
        data d = open_data(&spec);
        for (int64_t i = 0; i < 7; i++) put_place(&d, 1, i, i - 3);
        expect_range(&d, KS_GATHER_INDICES, 0, -3);
        close_data(&d);
        spec = plain(KS_FP32, 0, 5, 0);
        spec.params[KS_GATHER_MODE].i = mode;
        try_on(&spec, VALUES_NORMAL, false);
    }
}

static void offsets_out_of_bounds(void **state)
{
    (void)state;
    static const struct {
        int64_t offsets[5], place;
    } table[] = {{{1, 2, 3, 4, 9}, 0},  {{0, 2, 1, 4, 9}, 2},   {{0, 2, 3, 4, 8}, 4},    {{0, 2, 3, 4, 10}, 4},
                 {{-1, 2, 3, 4, 9}, 0}, {{0, 2, 300, 4, 9}, 2}, {{0, -5, 300, 4, 9}, 1}, {{0, 9, 9, INT32_MAX, 9}, 3}};
    for (size_t n = 0; n < 4 * (sizeof table / sizeof *table); n++) {
        const int64_t *offsets = table[n / 4].offsets, place = table[n / 4].place;
        ks_spec spec = plain(floats[n % 4], 20, 1 + values_below(300), 9);
        add_bags(&spec, 4, values_below(2));
        data d = open_data(&spec);
        fill(&d, VALUES_NORMAL);
        for (int i = 0; i < 5; i++) put_place(&d, KS_GATHER_OFFSETS, i, offsets[i]);
        if (values_below(2)) put_place(&d, KS_GATHER_INDICES, 3, 20); /* offsets count before indices */
        expect_range(&d, KS_GATHER_OFFSETS, place, offsets[place]);
        close_data(&d);
    }
}

/* A launch of 16 jobs, every other one with a bad index: the others have their values, and each time anew. */
static void bad_jobs_among_good_ones(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++)
        for (int round = 0; harnesses[b] && round < 24; round++) {
            const bool bags = round % 4 == 3;
            ks_spec spec = plain(bags ? KS_FP32 : KS_UINT16, 30, 1 + values_below(300), 50);
            if (bags) add_bags(&spec, 6, false);
            data d = open_data(&spec);
            fill(&d, VALUES_NORMAL);
            const void *spoilt[KS_INPUTS_MAX] = {d.in[0], NULL, d.in[2], d.in[3]};
            void *indices = malloc(spec.in[1].size_bytes), *out = malloc(ks_spec_out_bytes(&spec) + 1);
            assert_true(indices && out);
            memcpy(indices, d.in[1], spec.in[1].size_bytes);
            void *good = d.in[1];
            d.in[1] = indices;
            put_place(&d, 1, values_below(50), 30);
            d.in[1] = good;
            spoilt[1] = indices;
            ks_error error = {0};
            if (round % 2) op_harness_spoil(harnesses[b], spoilt);
            const ks_status status = op_harness_run(harnesses[b], &spec, (const void *const *)d.in, out,
                                                    (op_path)values_below(3), 16, values_below(2), &error);
            op_harness_spoil(harnesses[b], NULL);
            if (status != KS_OK) fail_msg("%s: %s", b ? "cuda" : "cpu", error.text);
            check(&d, out, b ? "cuda" : "cpu", INT64_MAX);
            free(indices);
            free(out);
            close_data(&d);
        }
}

/* --- identities ------------------------------------------------------------------------------------------------------- */

/* A bag alone, among others and elsewhere has the same bits; and a bag of one slice is the slice. */
static void bags_depend_on_themselves_alone(void **state)
{
    (void)state;
    enum { COUNT = 500, BAGS = 30 };
    for (int round = 0; round < 24; round++) {
        const ks_dtype dtype = floats[round % 4];
        const int64_t columns = 1 + values_below(200);
        ks_spec all = plain(dtype, 70, columns, COUNT);
        add_bags(&all, BAGS, values_below(2));
        all.params[KS_GATHER_OP].i = values_below(3);
        data d = open_data(&all);
        fill(&d, VALUES_WIDE);
        const int64_t bag = values_below(BAGS), begin = get_place(&d, 2, bag), n = get_place(&d, 2, bag + 1) - begin;
        ks_spec one = all;
        one.in[KS_GATHER_INDICES].dims[0] = one.in[KS_GATHER_WEIGHTS].dims[0] = n;
        one.in[KS_GATHER_OFFSETS].dims[0] = 2;
        data e = open_data(&one);
        memcpy(e.in[0], d.in[0], all.in[0].size_bytes);
        for (int64_t i = 0; i < n; i++) put_place(&e, 1, i, get_place(&d, 1, begin + i));
        if (e.in[3])
            memcpy(e.in[3], (char *)d.in[3] + (size_t)begin * ks_dtype_size(all.in[3].dtype), one.in[3].size_bytes);
        put_place(&e, 2, 0, 0);
        put_place(&e, 2, 1, n);
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            char *left = malloc(ks_spec_out_bytes(&all)), *right = malloc(ks_spec_out_bytes(&one));
            assert_true(left && right);
            run_well(b, &d, left);
            run_well(b, &e, right);
            if (memcmp(left + (size_t)bag * d.shape.slice_bytes, right, d.shape.slice_bytes) != 0)
                fail_msg("%s: a bag of %lld slices of %lld columns has other bits among others", b ? "cuda" : "cpu",
                         (long long)n, (long long)columns);
            free(left);
            free(right);
        }
        close_data(&d);
        close_data(&e);
    }
}

/* Bags around the lengths that a team, a warp and a CTA take, each twice: right, and of equal bits. */
static void bags_of_all_lengths(void **state)
{
    (void)state;
    static const int64_t lengths[] = {513, 0, 1, 64, 15, 17, 65, 130, 256, 257, 512, 1100, 7, 128};
    static const int64_t columns[] = {1, 3, 12, 41, 64, 130, 280, 6};
    enum { BAGS = sizeof lengths / sizeof *lengths };
    int64_t half = 0;
    for (int i = 0; i < BAGS; i++) half += lengths[i];
    for (int round = 0; round < 32; round++) {
        ks_spec spec = plain(floats[round % 4], 90, columns[round / 4], 2 * half);
        add_bags(&spec, 2 * BAGS, values_below(2));
        spec.params[KS_GATHER_OP].i = values_below(3);
        data d = open_data(&spec);
        fill(&d, VALUES_WIDE);
        const size_t weight = ks_has_input(&spec, 3) ? (size_t)half * ks_dtype_size(spec.in[3].dtype) : 0;
        if (weight) memcpy((char *)d.in[3] + weight, d.in[3], weight);
        for (int64_t i = 0; i < half; i++) put_place(&d, 1, half + i, get_place(&d, 1, i));
        for (int64_t b = 0, at = 0; b <= 2 * BAGS; b++) {
            put_place(&d, 2, b, at);
            at += lengths[b % BAGS];
        }
        const size_t bytes = ks_spec_out_bytes(&spec);
        char *out = malloc(bytes);
        assert_non_null(out);
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            run_well(b, &d, out);
            check(&d, out, b ? "cuda" : "cpu", INT64_MAX);
            assert_memory_equal(out, out + BAGS * d.shape.slice_bytes, BAGS * d.shape.slice_bytes);
        }
        free(out);
        close_data(&d);
    }
}

static void bags_of_one_are_slices(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    for (int round = 0; round < 12; round++) {
        ks_spec bags = plain(floats[round % 4], 30, 1 + values_below(90), COUNT), slices = bags;
        add_bags(&bags, COUNT, false);
        bags.params[KS_GATHER_OP].i = round / 4;
        data d = open_data(&bags), e = open_data(&slices);
        fill(&d, VALUES_NORMAL);
        for (int64_t i = 0; i <= COUNT; i++) put_place(&d, 2, i, i);
        memcpy(e.in[0], d.in[0], slices.in[0].size_bytes);
        memcpy(e.in[1], d.in[1], slices.in[1].size_bytes);
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            void *left = malloc(ks_spec_out_bytes(&bags)), *right = malloc(ks_spec_out_bytes(&slices));
            run_well(b, &d, left);
            run_well(b, &e, right);
            assert_memory_equal(left, right, ks_spec_out_bytes(&bags));
            free(left);
            free(right);
        }
        close_data(&d);
        close_data(&e);
    }
}

/* --- rules ------------------------------------------------------------------------------------------------------------ */

static void expect_refused(ks_spec spec, ks_status status, const char *part)
{
    ks_error error = {0};
    const ks_status got = ks_op_gather.resolve(&spec, &error);
    if (got != status || !strstr(error.text, part))
        fail_msg("%s \"%s\", expected %s with \"%s\"", ks_status_name(got), error.text, ks_status_name(status), part);
}

static void refusals(void **state)
{
    (void)state;
    ks_spec spec = plain(KS_FP32, 5, 6, 4);
    spec.in[1].dtype = KS_FP32;
    expect_refused(spec, KS_DATATYPE, "INPUT1 (indices) has datatype FP32, takes INT32 or INT64");
    spec = plain(KS_FP32, 5, 6, 4);
    spec.params[KS_GATHER_AXIS].i = 2;
    expect_refused(spec, KS_AXIS, "axis 2 is outside [-2, 2)");
    spec = plain(KS_FP32, 5, 6, 4);
    spec.params[KS_GATHER_KIND].i = KS_GATHER_ELEMENTS;
    expect_refused(spec, KS_SHAPE, "INPUT1 (indices) has shape [4], INPUT0 [5,6]");
    set_input(&spec, 1, KS_INT32, 2, (const int64_t[]){4, 7});
    expect_refused(spec, KS_SHAPE, "has shape [4,7], INPUT0 [5,6]: elements take equal ones but along axis 0");
    set_input(&spec, 1, KS_INT32, 1, (const int64_t[]){4});
    add_bags(&spec, 2, false);
    expect_refused(spec, KS_PARAMETER, "kind 'elements' takes no INPUT2");
    spec = plain(KS_FP32, 5, 6, 4);
    spec.params[KS_GATHER_OP].i = KS_GATHER_MEAN;
    expect_refused(spec, KS_NAME, "op 'mean' without INPUT2");
    spec = plain(KS_FP32, 5, 6, 4);
    set_input(&spec, 3, KS_FP32, 1, (const int64_t[]){4});
    expect_refused(spec, KS_NAME, "INPUT3 (weights) without INPUT2");
    add_bags(&spec, 2, true);
    spec.in[3] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {3}};
    expect_refused(spec, KS_SHAPE, "INPUT3 (weights) has 3 elements, INPUT1 has 4 indices");
    spec.in[3].dtype = KS_FP16;
    expect_refused(spec, KS_DATATYPE, "INPUT3 (weights) has datatype FP16, INPUT0 FP32");
    spec = plain(KS_INT32, 5, 6, 4);
    add_bags(&spec, 2, false);
    expect_refused(spec, KS_DATATYPE, "INPUT0 has datatype INT32, bags take FP32");
    spec = plain(KS_FP32, 5, 6, 4);
    add_bags(&spec, -1, false);
    expect_refused(spec, KS_SHAPE, "INPUT2 (offsets) has no elements");
    spec = plain(KS_FP32, 5, 6, 4);
    set_input(&spec, 1, KS_INT32, 2, (const int64_t[]){4, 1});
    add_bags(&spec, 2, false);
    expect_refused(spec, KS_SHAPE, "INPUT1 (indices) has rank 2, bags take 1");
    spec = plain(KS_FP32, 5, 6, 4);
    set_input(&spec, 1, KS_INT32, 8, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1});
    expect_refused(spec, KS_SHAPE, "give rank 9, at most 8");
}

static void what_memory_moves(void **state)
{
    (void)state;
    ks_spec spec = plain(KS_FP32, 1000, 1, 10);
    assert_int_equal(ks_op_gather.resolve(&spec, NULL), KS_OK);
    assert_int_equal(ks_spec_read_bytes(&spec), 640 + spec.in[1].size_bytes); /* a slice of 4 bytes costs a segment */
    spec = plain(KS_FP32, 1000, 128, 10);
    assert_int_equal(ks_op_gather.resolve(&spec, NULL), KS_OK);
    assert_int_equal(ks_spec_read_bytes(&spec), 5120 + spec.in[1].size_bytes);
    spec = plain(KS_FP32, 3, 128, 1000); /* no more than the table has */
    assert_int_equal(ks_op_gather.resolve(&spec, NULL), KS_OK);
    assert_int_equal(ks_spec_read_bytes(&spec), 1536 + spec.in[1].size_bytes);
    ks_op_gather.sample(&spec);
    assert_int_equal(ks_op_gather.resolve(&spec, NULL), KS_OK);
    const ks_spec once = spec;
    assert_int_equal(ks_op_gather.resolve(&spec, NULL), KS_OK); /* once more, as row blocks are */
    assert_memory_equal(&spec, &once, sizeof spec);
}

/* Offsets beyond 2^31 elements and bytes: some slices anywhere, the last ones among them. */
static void over_two_to_the_31(void **state)
{
    (void)state;
    if (!getenv("KS_HUGE")) {
        printf("skip: KS_HUGE is not set, no tensor of over 2^31 elements\n");
        skip();
    }
    ks_spec spec = plain(KS_UINT8, ((int64_t)1 << 21) + 3, 1024, ((int64_t)1 << 21) + 5);
    data d = open_data(&spec);
    const size_t bytes = spec.in[0].size_bytes;
    unsigned char *out = malloc(ks_spec_out_bytes(&spec));
    if (!out) fail_msg("no memory for %zu bytes", bytes);
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)d.in[0])[i] = (unsigned char)(i * 2654435761u >> 13);
    for (int64_t i = 0; i < d.shape.count; i++) put_place(&d, 1, i, draw_index(&d.shape));
    for (int b = 0; b < 2; b++) {
        ks_error error = {0};
        if (!op_harness_once(b ? ks_backend_cuda : ks_backend_cpu, 3 * bytes, &spec, (const void *const *)d.in, out,
                             &error))
            continue;
        if (error.status != KS_OK) fail_msg("%s", error.text);
        check(&d, out, b ? "cuda" : "cpu", 100000);
    }
    free(out);
    close_data(&d);
}

int main(void)
{
    values_seed();
    if (getenv("KS_ONLY")) cmocka_set_test_filter(getenv("KS_ONLY")); /* of those names: "each_*" */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(slices_of_the_whole_chip),
        cmocka_unit_test(indices_out_of_bounds),
        cmocka_unit_test(tables_of_nothing),
        cmocka_unit_test(offsets_out_of_bounds),
        cmocka_unit_test(bad_jobs_among_good_ones),
        cmocka_unit_test(bags_depend_on_themselves_alone),
        cmocka_unit_test(bags_of_all_lengths),
        cmocka_unit_test(bags_of_one_are_slices),
        cmocka_unit_test(refusals),
        cmocka_unit_test(what_memory_moves),
        cmocka_unit_test(over_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
