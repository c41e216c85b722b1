/* Reductions against a naive evaluation in long double and 128-bit integers, element by element through coordinates:
 * the reference by itself in buffers of exactly its size, then every backend that this machine has, on all its paths.
 * KS_CASES, KS_SEED: how many random cases, and which. KS_HUGE: also a tensor of over 2^31 elements. KS_ONLY: the one test of
 * that name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_regimes.h"
#include "ops/op_values.h"
#include "cpu/reference.h"

extern const ks_op ks_op_reduce;

enum { OP, AXIS, KEEPDIMS };
enum { SUM, MEAN, MAX, MIN, PROD, ARGMAX, ARGMIN, L2NORM, LOGSUMEXP, OPS };
enum { ARENA_BYTES = 64 << 20 };
static const ks_dtype dtypes[] = {KS_FP32,  KS_FP16,  KS_BF16,  KS_FP64,   KS_INT8,   KS_INT16,
                                  KS_INT32, KS_INT64, KS_UINT8, KS_UINT16, KS_UINT32, KS_UINT64};

static op_harness *harnesses[2];

/* What one result is made of. */
typedef struct tally {
    long double sum, magnitude, squares, product, extreme, exponentials;
    uint64_t wrapped_sum, wrapped_product;
    int64_t count, at;
    bool nan, plus, minus, wild; /* wild: a partial product left double's range */
} tally;

static ks_spec spec_of(ks_dtype dtype, int op, int rank, const int64_t *dims, ks_axes axes)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_reduce);
    spec.params[OP].i = op;
    spec.params[AXIS].axes = axes;
    spec.in[0].dtype = dtype;
    spec.in[0].rank = rank;
    for (int i = 0; i < rank; i++) spec.in[0].dims[i] = dims[i];
    return spec;
}

static ks_axes one_axis(int axis)
{
    return (ks_axes){.count = 1, .axis = {(int8_t)axis}};
}

static bool is_reduced(const ks_spec *spec, int axis)
{
    const ks_axes *axes = &spec->params[AXIS].axes;
    for (int i = 0; i < axes->count; i++)
        if (axes->axis[i] == axis) return true;
    return axes->count == -1;
}

/* Which result an element belongs to, and its place along the reduced axes. */
static int64_t result_of(const ks_spec *spec, int64_t i, int64_t *place)
{
    const ks_tensor *in = &spec->in[0];
    int64_t result = 0, scale = 1, depth = 1;
    *place = 0;
    for (int axis = in->rank - 1; axis >= 0; axis--) {
        const int64_t at = i % in->dims[axis];
        i /= in->dims[axis];
        if (is_reduced(spec, axis)) {
            *place += at * depth;
            depth *= in->dims[axis];
        } else {
            result += at * scale;
            scale *= in->dims[axis];
        }
    }
    return result;
}

static uint64_t bits_of(ks_dtype dtype, const void *in, int64_t i)
{
    switch (dtype) {
    case KS_INT8:
        return (uint64_t)(int64_t)((const int8_t *)in)[i];
    case KS_INT16:
        return (uint64_t)(int64_t)((const int16_t *)in)[i];
    case KS_INT32:
        return (uint64_t)(int64_t)((const int32_t *)in)[i];
    case KS_UINT8:
        return ((const uint8_t *)in)[i];
    case KS_UINT16:
        return ((const uint16_t *)in)[i];
    case KS_UINT32:
        return ((const uint32_t *)in)[i];
    default:
        return ((const uint64_t *)in)[i];
    }
}

static void take(tally *t, const ks_spec *spec, const void *in, int64_t i, int64_t place)
{
    const ks_dtype dtype = spec->in[0].dtype;
    const int op = (int)spec->params[OP].i;
    const bool low = op == MIN || op == ARGMIN;
    const long double x = values_get(dtype, in, i);
    if (isnan(x)) {
        if (!t->nan) t->at = place;
        t->nan = true;
    } else if (!t->nan && (t->count == 0 || (low ? x < t->extreme : x > t->extreme))) {
        t->at = place;
        t->extreme = x;
    }
    t->plus |= x == INFINITY;
    t->minus |= x == -INFINITY;
    t->sum += x;
    t->magnitude += fabsl(x);
    t->squares += x * x;
    t->product *= x;
    t->wild |= fabsl(t->product) > 1e280L || (t->product != 0 && fabsl(t->product) < 1e-280L);
    if (ks_dtype_kind(dtype) != KS_KIND_FLOAT) {
        t->wrapped_sum += bits_of(dtype, in, i);
        t->wrapped_product *= bits_of(dtype, in, i);
    }
    t->count++;
}

static tally *tally_all(const ks_spec *spec, const void *in)
{
    const int64_t results = ks_tensor_count(&spec->out[0]), count = ks_tensor_count(&spec->in[0]);
    tally *all = calloc((size_t)results + 1, sizeof *all);
    assert_non_null(all);
    for (int64_t r = 0; r < results; r++) {
        all[r].product = 1;
        all[r].wrapped_product = 1;
    }
    int64_t place;
    for (int64_t i = 0; i < count; i++) {
        tally *t = &all[result_of(spec, i, &place)];
        take(t, spec, in, i, place);
    }
    if (spec->params[OP].i != LOGSUMEXP) return all;
    for (int64_t i = 0; i < count; i++) { /* op is no minimum: extreme is the largest */
        tally *t = &all[result_of(spec, i, &place)];
        const long double x = values_get(spec->in[0].dtype, in, i);
        t->exponentials += x == t->extreme ? 1 : expl(x - t->extreme);
    }
    return all;
}

/* The floating-point answer and how far from it a result may lie, before its own rounding. */
static long double expected(const ks_spec *spec, const tally *t, long double *bound)
{
    const bool wide = spec->in[0].dtype == KS_FP64 || ks_dtype_kind(spec->in[0].dtype) != KS_KIND_FLOAT;
    const long double unit = wide ? 0x1p-53L : 0x1p-24L, n = (long double)t->count;
    const long double growth = wide ? n + 8 : 6;
    *bound = 0;
    switch ((int)spec->params[OP].i) {
    case SUM:
        *bound = growth * unit * t->magnitude;
        return t->sum;
    case MEAN:
        *bound = growth * unit * t->magnitude / n;
        return t->sum / n;
    case PROD:
        *bound = (n + 2) * unit * fabsl(t->product);
        return t->product;
    case L2NORM:
        *bound = growth * unit * sqrtl(t->squares);
        return sqrtl(t->squares);
    case LOGSUMEXP: {
        const long double ref = t->count == 0       ? -(long double)INFINITY
                                : t->nan            ? (long double)NAN
                                : isinf(t->extreme) ? t->extreme
                                                    : t->extreme + logl(t->exponentials);
        *bound = 4 * unit * fmaxl(1, fabsl(ref)) + (wide ? (n + 8) * unit : 0x1p-22L);
        return ref;
    }
    default:
        return t->nan ? (long double)NAN : t->extreme;
    }
}

static bool result_right(const ks_spec *spec, const tally *t, const void *out, int64_t r)
{
    const int op = (int)spec->params[OP].i;
    const bool integer = ks_dtype_kind(spec->in[0].dtype) != KS_KIND_FLOAT;
    if (op == ARGMAX || op == ARGMIN) return ((const int64_t *)out)[r] == t->at;
    if (integer && op == SUM) return ((const uint64_t *)out)[r] == t->wrapped_sum;
    if (integer && op == PROD) return ((const uint64_t *)out)[r] == t->wrapped_product;
    long double bound;
    const ks_dtype dtype = spec->out[0].dtype;
    const long double got = values_get(dtype, out, r), ref = expected(spec, t, &bound);
    if (op == PROD && t->wild) return true;
    if (isnan(ref)) return isnan(got);
    if (got == ref) return true;
    if (op == MAX || op == MIN || isnan(got) || isinf(ref)) return false;
    bound += 1.01L * values_roundoff(dtype) * fabsl(ref) + values_floor(dtype);
    if (isinf(got)) return fabsl(ref) + bound >= values_limit(dtype) && (got > 0) == (ref > 0);
    return fabsl(got - ref) <= bound;
}

static void describe(const ks_spec *spec, const char *who)
{
    char dims[128], axes[64] = "all";
    const ks_axes *list = &spec->params[AXIS].axes;
    ks_dims_text(&spec->in[0], dims, sizeof dims);
    for (int i = 0, at = 0; i < list->count; i++)
        at += snprintf(axes + at, sizeof axes - (size_t)at, "%d ", list->axis[i]);
    print_error("%s: %s of %s [%s] axes %s\n", who, ks_op_reduce.params[OP].choices[spec->params[OP].i],
                ks_dtype_name(spec->in[0].dtype), dims, axes);
}

static void check(const ks_spec *spec, const tally *all, const void *out, const char *who)
{
    const int64_t results = ks_tensor_count(&spec->out[0]);
    for (int64_t r = 0; r < results; r++) {
        if (result_right(spec, &all[r], out, r)) continue;
        long double bound;
        describe(spec, who);
        const long double ref = expected(spec, &all[r], &bound);
        fail_msg("result %lld: got %.17Lg, expected %.17Lg or index %lld", (long long)r,
                 values_get(spec->out[0].dtype, out, r), ref, (long long)all[r].at);
    }
}

static void run_one(int b, const ks_spec *spec, const void *const *inputs, void *out, const tally *all, op_path path)
{
    const char *who = b ? "cuda" : "cpu";
    const int copies = values_below(3) ? 1 : 1 + values_below(9);
    ks_error error = {0};
    op_harness_fix(harnesses[b], values_below(4) == 0);
    const ks_status status = op_harness_run(harnesses[b], spec, inputs, out, path, copies, values_below(2), &error);
    op_harness_fix(harnesses[b], 0);
    if (status != KS_OK) describe(spec, who);
    if (status != KS_OK) fail_msg("%s", error.text);
    check(spec, all, out, who);
}

/* A plan gives the same bits on mapped slots and on copies, alone and among others, captured or not, and once more. */
static void run_paths(int b, const ks_spec *spec, const void *const *inputs, void *out, const tally *all)
{
    void *first = malloc(spec->out[0].size_bytes);
    assert_non_null(first);
    run_one(b, spec, inputs, first, all, OP_PATH_COPIES);
    for (int i = 0; i < 3; i++) {
        run_one(b, spec, inputs, out, all, i ? OP_PATH_MAPPED : OP_PATH_COPIES);
        if (memcmp(out, first, spec->out[0].size_bytes) == 0) continue;
        describe(spec, b ? "cuda" : "cpu");
        fail_msg("run %d gives other bytes than the first one", i);
    }
    free(first);
}

/* everywhere: by each path, not by one of them. */
static void try_paths(ks_spec *spec, values_kind kind, bool everywhere)
{
    ks_error error = {0};
    if (ks_op_reduce.resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
    const ks_tensor *x = &spec->in[0];
    const int64_t last = x->dims[x->rank - 1];
    void *in = malloc(x->size_bytes ? x->size_bytes : 1),
         *out = malloc(spec->out[0].size_bytes ? spec->out[0].size_bytes : 1);
    void *scratch = malloc(ks_cpu_scratch_bytes(spec));
    assert_true(in && out && scratch);
    values_fill(x->dtype, in, ks_tensor_count(x), kind, last ? last : 1);
    memset(out, 0xFF, spec->out[0].size_bytes);
    const void *inputs[] = {in};
    tally *all = tally_all(spec, in);
    ks_cpu_reference(spec, inputs, (void *const[]){out}, scratch);
    check(spec, all, out, "reference");
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        if (everywhere && spec->out[0].size_bytes)
            run_paths(b, spec, inputs, out, all);
        else
            run_one(b, spec, inputs, out, all, (op_path)values_below(3));
    }
    free(all);
    free(scratch);
    free(out);
    free(in);
}

static void try_spec(ks_spec *spec, values_kind kind)
{
    try_paths(spec, kind, false);
}

static ks_axes random_axes(int rank, int op)
{
    ks_axes axes = {0};
    const bool arg = op == ARGMAX || op == ARGMIN;
    if (values_below(5) == 0) return (ks_axes){.count = -1};
    if (arg || values_below(2)) return one_axis(values_below(2 * rank) - rank);
    for (int i = rank - 1; i >= 0; i--) /* in no order, from either end */
        if (values_below(2)) axes.axis[axes.count++] = (int8_t)(values_below(2) ? i : i - rank);
    return axes.count ? axes : one_axis(-1);
}

static bool of_nothing(const ks_spec *spec)
{
    ks_error error;
    ks_spec copy = *spec;
    return ks_op_reduce.resolve(&copy, &error) == KS_EMPTY;
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(500);
    for (int i = 0; i < cases;) {
        ks_tensor shape = {0};
        const bool regime = values_below(4) == 0;
        ks_axes axes = {0};
        if (regime)
            axes = regimes_reduce(&shape);
        else
            values_shape(&shape, 6, values_most());
        const int op = values_below(OPS);
        if (!regime || ((op == ARGMAX || op == ARGMIN) && axes.count > 1)) axes = random_axes(shape.rank, op);
        const ks_dtype dtype = dtypes[values_below(3) ? values_below(4) : values_below(12)];
        ks_spec spec = spec_of(dtype, op, shape.rank, shape.dims, axes);
        spec.params[KEEPDIMS].i = values_below(2);
        if (of_nothing(&spec)) continue;
        try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
        i++;
    }
    printf("%d random cases\n", cases);
}

/* As random cases draw them, and no other ones; on every path with the same bits. */
static void regimes(void **state)
{
    (void)state;
    const int cases = values_cases(400) / 8 + 1;
    for (int i = 0; i < cases; i++) {
        ks_tensor shape = {0};
        const ks_axes axes = regimes_reduce(&shape);
        int op = values_below(OPS);
        while ((op == ARGMAX || op == ARGMIN) && axes.count > 1) op = values_below(OPS);
        const ks_dtype dtype = dtypes[values_below(3) ? values_below(4) : values_below(12)];
        ks_spec spec = spec_of(dtype, op, shape.rank, shape.dims, axes);
        try_paths(&spec, (values_kind)values_below(VALUES_KINDS), true);
    }
}

static const int64_t boundaries[] = {1,    2,    3,    4,    7,     8,     9,     15,    16,    17,    31,
                                     32,   33,   63,   64,   65,    127,   128,   129,   191,   192,   193,
                                     255,  256,  257,  511,  513,   1023,  1024,  1025,  2047,  2049,  4095,
                                     4096, 4097, 8191, 8193, 16383, 16385, 32769, 65535, 65537, 300001};

static void lengths_around_powers_of_two(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof boundaries / sizeof *boundaries; n++) {
        const int64_t length = boundaries[n], rows = length < 5000 ? 5 : 1;
        for (int op = 0; op < OPS; op++) {
            ks_spec spec = spec_of(dtypes[values_below(12)], op, 2, (const int64_t[]){rows, length}, one_axis(1));
            try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
            if (length > 5000) continue;
            spec =
                spec_of(dtypes[values_below(12)], op, 2, (const int64_t[]){length, 1 + values_below(70)}, one_axis(0));
            try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
        }
    }
}

static void many_short_rows(void **state)
{
    (void)state;
    for (int op = 0; op < OPS; op++) {
        ks_spec spec =
            spec_of(dtypes[values_below(12)], op, 2, (const int64_t[]){20011, 1 + values_below(12)}, one_axis(1));
        try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
        spec = spec_of(dtypes[values_below(4)], op, 3, (const int64_t[]){7, 1 + values_below(9), 3001}, one_axis(1));
        try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
    }
}

/* What the ways of the CUDA planner divide: rows short, long and cut, off the vectors by every number of elements; lists
 * of runs; slabs; columns deep, shallow and cut, off the vectors; lists of those. dims[0] == 0: unused. */
static const struct {
    int64_t dims[4];
    ks_axes axes;
} borders[] = {
    {{701, 8}, {1, {1}}},
    {{701, 16}, {1, {1}}},
    {{701, 31}, {1, {1}}},
    {{701, 32}, {1, {1}}},
    {{701, 33}, {1, {1}}},
    {{301, 64}, {1, {1}}},
    {{301, 65}, {1, {1}}},
    {{301, 128}, {1, {1}}},
    {{301, 129}, {1, {1}}},
    {{101, 257}, {1, {1}}},
    {{3, 16384}, {1, {1}}},
    {{3, 16383}, {1, {1}}},
    {{1, 65536}, {1, {1}}},
    {{1, 65543}, {1, {1}}},
    {{2, 70001}, {1, {1}}},
    {{300001}, {1, {0}}},
    {{17, 3, 49}, {2, {0, 2}}},
    {{9, 5, 64}, {2, {0, 2}}},
    {{5, 3, 1027}, {2, {0, 2}}},
    {{40, 2, 2049}, {2, {0, 2}}},
    {{5, 4, 3, 33}, {2, {1, 3}}},
    {{3, 5, 7, 9}, {2, {0, 2}}},
    {{2003, 3}, {1, {0}}},
    {{5003, 16}, {1, {0}}},
    {{5003, 33}, {1, {0}}},
    {{257, 515}, {1, {0}}},
    {{129, 1024}, {1, {0}}},
    {{2, 40000}, {1, {0}}},
    {{33, 4096}, {1, {0}}},
    {{9, 131, 21}, {1, {1}}},
    {{61, 16, 20}, {1, {1}}},
    {{301, 5, 3}, {1, {1}}},
    {{7, 200, 64}, {1, {1}}},
    {{7, 300, 1, 63}, {1, {1}}},
    {{6, 8, 1024}, {1, {1}}},
    {{5, 3, 40, 64}, {2, {0, 2}}},
    {{5, 3, 40, 37}, {2, {0, 2}}},
    {{1, 1, 4099, 5}, {1, {2}}},
    {{65, 1, 65}, {1, {1}}},
    {{2, 20007}, {1, {1}}},
    {{9, 4097}, {1, {1}}},
    {{5, 40, 6, 48}, {2, {1, 3}}},
    {{200, 37, 32}, {2, {0, 2}}},
    {{3, 11, 5, 2048}, {2, {1, 3}}},
    {{5003, 4}, {1, {1}}},
    {{4099, 2}, {1, {1}}},
    {{4100, 16}, {1, {1}}},
    {{4097, 8}, {1, {1}}},
    {{30, 5, 30, 20}, {2, {0, 2}}},
    {{17, 3, 19, 23}, {2, {0, 2}}},
    {{40, 2, 33, 100}, {2, {0, 2}}},
    {{5, 3, 4, 7}, {2, {0, 2}}},
    {{3001, 100}, {1, {0}}},
    {{5, 1000, 33}, {1, {1}}},
    {{600, 1032}, {1, {0}}},
    {{300, 4104}, {1, {0}}},
    {{2, 3000, 72}, {1, {1}}},
    {{50, 5}, {1, {1}}},
    {{60}, {1, {0}}},
    {{9001, 25}, {1, {0}}},
};

static void every_algorithm_on_every_path(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof borders / sizeof *borders; n++) {
        int rank = 0;
        while (rank < 4 && borders[n].dims[rank]) rank++;
        const int only = harnesses[1] ? -1 : values_below(OPS); /* without a device: few, for their time */
        for (int op = 0; op < OPS; op++) {
            const bool arg = op == ARGMAX || op == ARGMIN;
            if ((only >= 0 && op != only) || (arg && borders[n].axes.count > 1)) continue;
            const ks_dtype each[] = {dtypes[values_below(4)], dtypes[4 + values_below(8)]};
            for (int d = 0; d < 2; d++) {
                ks_spec spec = spec_of(each[d], op, rank, borders[n].dims, borders[n].axes);
                try_paths(&spec, (values_kind)values_below(VALUES_KINDS), true);
            }
        }
    }
}

/* A maximum that moves at each step scales the old sum down each time: those roundings must not add up. */
static void long_rising_lines(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{100003, 1}, {60013, 8}, {20011, 40}};
    for (int i = 0; i < 3; i++) {
        ks_spec spec = spec_of(KS_FP32, LOGSUMEXP, 2, shapes[i], one_axis(0));
        try_spec(&spec, VALUES_RISING);
    }
}

/* One row of each sort through each op, by hand. */
static void special_values(void **state)
{
    (void)state;
    const float inf = INFINITY, nan = NAN;
    const float x[7][4] = {{-inf, -inf, -inf, -inf}, {1, inf, 2, inf}, {1, nan, inf, nan},  {inf, -inf, 0, 1},
                           {0, -0.0f, 0, -0.0f},     {-1, 3, 3, -1},   {1e30f, 1e30f, 0, 0}};
    const float max[] = {-inf, inf, nan, inf, 0, 3, 1e30f}, min[] = {-inf, 1, nan, -inf, 0, -1, 0};
    const float sum[] = {-inf, inf, nan, nan, 0, 4, 2e30f},
                norm[] = {inf, inf, nan, inf, 0, 4.47213595f, 1.41421356e30f};
    const float lse[] = {-inf, inf, nan, inf, 1.38629436f, 3.71129668f, 1e30f};
    const int64_t argmax[] = {0, 1, 1, 0, 0, 1, 0}, argmin[] = {0, 0, 1, 1, 0, 0, 2};
    const struct {
        int op;
        const float *want;
    } rows[] = {{MAX, max}, {MIN, min}, {SUM, sum}, {L2NORM, norm}, {LOGSUMEXP, lse}, {ARGMAX, NULL}, {ARGMIN, NULL}};
    for (size_t o = 0; o < sizeof rows / sizeof *rows; o++) {
        ks_spec spec = spec_of(KS_FP32, rows[o].op, 2, (const int64_t[]){7, 4}, one_axis(-1));
        assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
        int64_t index[7];
        float *value = (float *)index;
        void *scratch = malloc(ks_cpu_scratch_bytes(&spec));
        const void *in[] = {x};
        ks_cpu_reference(&spec, in, (void *const[]){index}, scratch);
        free(scratch);
        for (int i = 0; i < 7; i++) {
            if (!rows[o].want) {
                assert_int_equal(index[i], (rows[o].op == ARGMAX ? argmax : argmin)[i]);
                continue;
            }
            const float want = rows[o].want[i], got = value[i];
            if (isnan(want) ? !isnan(got) : got != want && !(fabsf(got - want) <= 1e-6f * fabsf(want)))
                fail_msg("op %d row %d: got %g, expected %g", rows[o].op, i, (double)got, (double)want);
        }
    }
}

static void shapes_and_datatypes_of_results(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3, 4};
    ks_spec spec = spec_of(KS_INT8, SUM, 3, dims, (ks_axes){.count = 2, .axis = {-1, 0}});
    assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
    assert_int_equal(spec.out[0].dtype, KS_INT64);
    assert_int_equal(spec.out[0].rank, 1);
    assert_int_equal(spec.out[0].dims[0], 3);
    assert_int_equal(spec.params[AXIS].axes.axis[0], 0);
    assert_int_equal(spec.params[AXIS].axes.axis[1], 2);
    spec = spec_of(KS_UINT16, MEAN, 3, dims, (ks_axes){.count = -1});
    assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
    assert_int_equal(spec.out[0].dtype, KS_FP64);
    assert_int_equal(spec.out[0].rank, 0);
    assert_int_equal(spec.out[0].size_bytes, 8);
    ks_spec listed = spec_of(KS_UINT16, MEAN, 3, dims, (ks_axes){.count = 3, .axis = {2, 0, -2}});
    assert_int_equal(ks_op_reduce.resolve(&listed, NULL), KS_OK);
    assert_memory_equal(&spec, &listed, sizeof spec);
    spec = spec_of(KS_BF16, ARGMIN, 3, dims, one_axis(1));
    spec.params[KEEPDIMS].i = 1;
    assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
    assert_int_equal(spec.out[0].dtype, KS_INT64);
    assert_int_equal(spec.out[0].rank, 3);
    assert_int_equal(spec.out[0].dims[1], 1);
    ks_op_reduce.sample(&spec);
    assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
}

static void expect_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(ks_op_reduce.resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void refusals(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3}, none[] = {2, 0};
    expect_refusal(spec_of(KS_BOOL, SUM, 2, dims, one_axis(0)), KS_DATATYPE, "BOOL");
    expect_refusal(spec_of(KS_FP32, SUM, 0, dims, one_axis(0)), KS_SHAPE, "rank 0");
    expect_refusal(spec_of(KS_FP32, SUM, 2, dims, one_axis(2)), KS_AXIS, "axis 2 is outside [-2, 2)");
    expect_refusal(spec_of(KS_FP32, SUM, 2, dims, one_axis(-3)), KS_AXIS, "axis -3 is outside [-2, 2)");
    expect_refusal(spec_of(KS_FP32, SUM, 2, dims, (ks_axes){.count = 2, .axis = {1, -1}}), KS_AXIS, "twice");
    expect_refusal(spec_of(KS_FP32, SUM, 2, dims, (ks_axes){0}), KS_AXIS, "0 axes");
    expect_refusal(spec_of(KS_FP32, ARGMAX, 2, dims, (ks_axes){.count = 2, .axis = {0, 1}}), KS_AXIS, "argmax");
    expect_refusal(spec_of(KS_FP32, OPS, 2, dims, one_axis(0)), KS_PARAMETER, "op");
    static const int empty[] = {MEAN, MAX, MIN, ARGMAX, ARGMIN};
    for (int i = 0; i < 5; i++) expect_refusal(spec_of(KS_FP32, empty[i], 2, none, one_axis(1)), KS_EMPTY, "nothing");
}

static void sums_of_nothing(void **state)
{
    (void)state;
    static const int ops[] = {SUM, PROD, L2NORM, LOGSUMEXP};
    for (int i = 0; i < 4; i++)
        for (int d = 0; d < 12; d++) {
            ks_spec spec = spec_of(dtypes[d], ops[i], 3, (const int64_t[]){3, 0, 2}, one_axis(1));
            try_spec(&spec, VALUES_NORMAL);
            spec = spec_of(dtypes[d], ops[i], 2, (const int64_t[]){0, 5}, (ks_axes){.count = -1});
            try_spec(&spec, VALUES_NORMAL);
        }
}

/* Indices beyond 2^31: the largest element stands last. */
static void over_two_to_the_31(void **state)
{
    (void)state;
    if (!getenv("KS_HUGE")) skip();
    const int64_t count = ((int64_t)1 << 31) + 4097;
    ks_spec spec = spec_of(KS_INT8, ARGMAX, 1, &count, one_axis(0));
    assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
    int8_t *in = calloc((size_t)count, 1);
    void *scratch = malloc(ks_cpu_scratch_bytes(&spec));
    assert_true(in && scratch);
    in[count - 1] = 1;
    int64_t out = 0;
    const void *inputs[] = {in};
    ks_cpu_reference(&spec, inputs, (void *const[]){&out}, scratch);
    assert_int_equal(out, count - 1);
    for (int b = 0; b < 2; b++) {
        op_harness *harness = b == 0 || ks_backend_cuda
                                  ? op_harness_open(b ? ks_backend_cuda : ks_backend_cpu, (size_t)count + (64 << 20))
                                  : NULL;
        if (!harness) continue;
        ks_error error;
        out = 0;
        if (op_harness_run(harness, &spec, inputs, &out, OP_PATH_PLANNED, 1, false, &error) != KS_OK)
            fail_msg("%s", error.text);
        assert_int_equal(out, count - 1);
        op_harness_close(&harness);
    }
    free(scratch);
    free(in);
}

static int open_harnesses(void **state)
{
    (void)state;
    harnesses[0] = op_harness_open(ks_backend_cpu, ARENA_BYTES);
    harnesses[1] = ks_backend_cuda ? op_harness_open(ks_backend_cuda, ARENA_BYTES) : NULL;
    if (!harnesses[1]) printf("skip: no CUDA device, the CUDA kernels are not run\n");
    return harnesses[0] ? 0 : -1;
}

static int close_harnesses(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++)
        if (harnesses[b]) op_harness_close(&harnesses[b]);
    return 0;
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(regimes),
        cmocka_unit_test(lengths_around_powers_of_two),
        cmocka_unit_test(many_short_rows),
        cmocka_unit_test(every_algorithm_on_every_path),
        cmocka_unit_test(long_rising_lines),
        cmocka_unit_test(special_values),
        cmocka_unit_test(shapes_and_datatypes_of_results),
        cmocka_unit_test(refusals),
        cmocka_unit_test(sums_of_nothing),
        cmocka_unit_test(over_two_to_the_31),
    };
    cmocka_set_test_filter(getenv("KS_ONLY"));
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
