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
#include "ops/reduce.h"

extern const ks_op ks_op_reduce;

enum { ARENA_BYTES = 64 << 20, DTYPES = 12, QUICK_CASES = 100 };
#include "ops/op_backends.h"

static const ks_dtype dtypes[DTYPES + 1] = {KS_FP32,  KS_FP16,  KS_BF16,   KS_FP64,   KS_INT8,   KS_INT16, KS_INT32,
                                            KS_INT64, KS_UINT8, KS_UINT16, KS_UINT32, KS_UINT64, KS_BOOL};

/* What one result is made of. */
typedef struct tally {
    long double sum, magnitude, squares, product, extreme, exponentials;
    long double first, mean, deviations;    /* deviations: of var, squared */
    long double powers, most, least, steep; /* of norm; steep: the largest |log2 |x|| */
    uint64_t wrapped_sum, wrapped_product, wrapped_squares;
    int64_t count, at, nonzero;
    long double small,
        large; /* products of the magnitudes below 1, and of those above: the ends of what any order meets */
    bool nan, plus, minus, wild; /* wild: a partial product may leave double's range */
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

/* Of the spec in hand: to which segment each place along the axis belongs. */
static int64_t *segment_at;

static bool has_segments(const ks_spec *spec)
{
    return (spec->given & 2) != 0;
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
        if (has_segments(spec) && is_reduced(spec, axis)) {
            *place = at;
            result += segment_at[at] * scale;
            scale *= spec->in[1].dims[0] - 1;
        } else if (is_reduced(spec, axis)) {
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
    case KS_BOOL:
        return ((const uint8_t *)in)[i];
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

static void take_norms(tally *t, double p, long double x)
{
    const long double magnitude = fabsl(x);
    if (magnitude > t->most || isnan(magnitude)) t->most = magnitude;
    if (t->count == 0 || magnitude < t->least || isnan(magnitude)) t->least = magnitude;
    t->nonzero += x != 0;
    if (isnan(p) || isinf(p)) return;
    if (x != 0 && isfinite(x)) t->steep = fmaxl(t->steep, fabsl(log2l(magnitude)));
    t->powers += powl(magnitude, p);
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
    if (fabsl(x) > 1) t->large *= fabsl(x);
    if (fabsl(x) < 1 && x != 0) t->small *= fabsl(x);
    t->wild |= t->large > 1e280L || t->small < 1e-280L;
    take_norms(t, spec->params[POWER].d, x);
    if (t->count == 0) t->first = x;
    if (ks_dtype_kind(dtype) != KS_KIND_FLOAT) {
        t->wrapped_sum += bits_of(dtype, in, i);
        t->wrapped_product *= bits_of(dtype, in, i);
        t->wrapped_squares += bits_of(dtype, in, i) * bits_of(dtype, in, i);
    }
    t->count++;
}

static tally *tally_all(const ks_spec *spec, const void *in)
{
    const int64_t results = ks_tensor_count(&spec->out[0]), count = ks_tensor_count(&spec->in[0]);
    tally *all = calloc((size_t)results + 1, sizeof *all);
    assert_non_null(all);
    for (int64_t r = 0; r < results; r++) {
        all[r].product = all[r].small = all[r].large = 1;
        all[r].wrapped_product = 1;
    }
    int64_t place;
    for (int64_t i = 0; i < count; i++) {
        tally *t = &all[result_of(spec, i, &place)];
        take(t, spec, in, i, place);
    }
    const int op = (int)spec->params[OP].i;
    for (int64_t r = 0; r < results; r++) all[r].mean = all[r].sum / (long double)all[r].count;
    for (int64_t i = 0; i < count && (op == VAR || op == STD); i++) {
        tally *t = &all[result_of(spec, i, &place)];
        const long double apart = values_get(spec->in[0].dtype, in, i) - t->mean;
        t->deviations += apart * apart;
    }
    if (op != LOGSUMEXP) return all;
    for (int64_t i = 0; i < count; i++) { /* op is no minimum: extreme is the largest */
        tally *t = &all[result_of(spec, i, &place)];
        const long double x = values_get(spec->in[0].dtype, in, i);
        t->exponentials += x == t->extreme ? 1 : expl(x - t->extreme);
    }
    return all;
}

/* In FP64 the roundings of the sums, of which the shift is a part where the mean is far from the first element, and those of a
 * mean that is far from 0. */
static long double expected_var(const ks_spec *spec, const tally *t, long double *bound)
{
    const long double n = (long double)t->count, freedom = n - spec->params[DDOF].d;
    const long double off = (t->first - t->mean) * (t->first - t->mean), ref = t->deviations / freedom;
    const bool narrow = ks_dtype_size(spec->in[0].dtype) < 8 && ks_dtype_kind(spec->in[0].dtype) == KS_KIND_FLOAT;
    *bound = (narrow ? 0x1p-21L * ref : 0) +
             4 * (n + 8) * 0x1p-53L * (ref + off * (n / freedom) + sqrtl(ref * t->squares / n * (n / freedom)));
    if (spec->params[OP].i == VAR) return freedom > 0 ? ref : (long double)NAN;
    *bound = sqrtl(ref + *bound) - sqrtl(fmaxl(ref - *bound, 0));
    return freedom > 0 ? sqrtl(ref) : (long double)NAN;
}

static long double expected_norm(const ks_spec *spec, const tally *t, long double *bound)
{
    const double p = spec->params[POWER].d;
    const long double n = (long double)t->count;
    if (p == 0) return (long double)t->nonzero;
    if (isinf(p)) return p > 0 ? t->most : t->least;
    const long double ref = powl(t->powers, 1 / (long double)p), level = t->powers > 0 ? fabsl(log2l(t->powers)) : 0;
    *bound = ref * 0x1p-53L * ((n + 8) / p + 16 * (t->steep + level / p + 1));
    return ref;
}

/* The logarithm of a sum that may come out on either side of 0 is any. */
static long double expected_logsum(const tally *t, long double unit, long double growth, long double *bound)
{
    const long double apart = growth * unit * t->magnitude, ref = logl(t->sum);
    *bound = 4 * unit * fmaxl(1, fabsl(ref)) + apart / fabsl(t->sum) * 2;
    if (apart >= fabsl(t->sum) && t->magnitude > 0 && isfinite(t->magnitude)) *bound = INFINITY;
    return ref;
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
    case SUMSQ:
        *bound = growth * unit * t->squares;
        return t->squares;
    case L1NORM:
        *bound = growth * unit * t->magnitude;
        return t->magnitude;
    case LOGSUM:
        return expected_logsum(t, unit, growth, bound);
    case NORM:
        return expected_norm(spec, t, bound);
    case VAR:
    case STD:
        return expected_var(spec, t, bound);
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
    if (op == COUNT_NONZERO || (op == SUM && spec->in[0].dtype == KS_BOOL))
        return ((const int64_t *)out)[r] == t->nonzero;
    if (op == ANY || op == ALL)
        return ((const uint8_t *)out)[r] == (op == ANY ? t->nonzero > 0 : t->nonzero == t->count);
    if (op == ARGMAX || op == ARGMIN) return ((const int64_t *)out)[r] == t->at;
    if (integer && op == SUM) return ((const uint64_t *)out)[r] == t->wrapped_sum;
    if (integer && op == PROD) return ((const uint64_t *)out)[r] == t->wrapped_product;
    if (integer && op == SUMSQ) return ((const uint64_t *)out)[r] == t->wrapped_squares;
    long double bound;
    const ks_dtype dtype = spec->out[0].dtype;
    const long double got = values_get(dtype, out, r), ref = expected(spec, t, &bound);
    if (op == PROD && t->wild) return true;
    if (isinf(bound) && op == LOGSUM) return true;
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
    if (has_segments(spec)) print_error("%lld segments: ", (long long)spec->in[1].dims[0] - 1);
    const ks_axes *list = &spec->params[AXIS].axes;
    ks_dims_text(&spec->in[0], dims, sizeof dims);
    for (int i = 0, at = 0; i < list->count; i++)
        at += snprintf(axes + at, sizeof axes - (size_t)at, "%d ", list->axis[i]);
    print_error("%s: %s of %s [%s] axes %s ddof %g p %g\n", who, ks_op_reduce.params[OP].choices[spec->params[OP].i],
                ks_dtype_name(spec->in[0].dtype), dims, axes, spec->params[DDOF].d, spec->params[POWER].d);
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

/* Parameters that only some ops have. */
static void draw_parameters(ks_spec *spec)
{
    static const double powers[] = {0, 1, 2, 3, 0.5, 1.5, 4, (double)INFINITY, -(double)INFINITY, (double)NAN};
    const int op = (int)spec->params[OP].i;
    if (op == NORM && isnan(spec->params[POWER].d)) spec->params[POWER].d = powers[values_below(10)];
    if (op == VAR || op == STD) spec->params[DDOF].d = values_below(3) ? values_below(3) : 1.5;
}

/* Few elements that are not zero, one or none: what random ones seldom are. */
static void clear_most(const ks_tensor *x, void *in)
{
    const size_t size = ks_dtype_size(x->dtype);
    const int64_t count = ks_tensor_count(x);
    const int rate = values_below(4) ? 1 + values_below(40) : INT32_MAX;
    for (int64_t i = 0; i < count; i++)
        if (values_below(rate)) memset((char *)in + (size_t)i * size, 0, size);
}

static bool is_counted(const ks_spec *spec)
{
    const int64_t op = spec->params[OP].i;
    return op == ANY || op == ALL || op == COUNT_NONZERO || (op == NORM && spec->params[POWER].d == 0);
}

/* everywhere: by each path, not by one of them. */
static void try_paths(ks_spec *spec, values_kind kind, bool everywhere)
{
    ks_error error = {0};
    draw_parameters(spec);
    if (ks_op_reduce.resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
    const ks_tensor *x = &spec->in[0];
    const int64_t last = x->dims[x->rank - 1];
    void *in = malloc(x->size_bytes ? x->size_bytes : 1),
         *out = malloc(spec->out[0].size_bytes ? spec->out[0].size_bytes : 1);
    void *scratch = malloc(ks_cpu_scratch_bytes(spec));
    assert_true(in && out && scratch);
    values_fill(x->dtype, in, ks_tensor_count(x), kind, last ? last : 1);
    if (is_counted(spec) && values_below(2)) clear_most(x, in);
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

static bool takes_bool(int op)
{
    return op == SUM || op == ANY || op == ALL || op == COUNT_NONZERO;
}

/* Mostly floats; BOOL where the op takes it. */
static ks_dtype draw_dtype(int op)
{
    if (takes_bool(op) && values_below(8) == 0) return KS_BOOL;
    return dtypes[values_below(3) ? values_below(4) : values_below(DTYPES)];
}

/* Whatever p is: of an infinite one nothing is refused, too. */
static bool of_nothing(const ks_spec *spec)
{
    ks_error error;
    ks_spec copy = *spec;
    if (copy.params[OP].i == NORM) copy.params[POWER].d = (double)INFINITY;
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
        const ks_dtype dtype = draw_dtype(op);
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
        const ks_dtype dtype = draw_dtype(op);
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
            ks_spec spec = spec_of(dtypes[values_below(DTYPES + takes_bool(op))], op, 2,
                                   (const int64_t[]){rows, length}, one_axis(1));
            try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
            if (length > 5000) continue;
            spec = spec_of(dtypes[values_below(DTYPES + takes_bool(op))], op, 2,
                           (const int64_t[]){length, 1 + values_below(70)}, one_axis(0));
            try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
        }
    }
}

static void many_short_rows(void **state)
{
    (void)state;
    for (int op = 0; op < OPS; op++) {
        ks_spec spec = spec_of(dtypes[values_below(DTYPES + takes_bool(op))], op, 2,
                               (const int64_t[]){20011, 1 + values_below(12)}, one_axis(1));
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
    {{10507, 25}, {1, {0}}}, /* of 4 SMs a plane, where elements have 4 bytes */
};

/* With QUICK_CASES, which the emulated GPU has, one in ten of those that a device would do; fewer with fewer. */
static void every_algorithm_on_every_path(void **state)
{
    (void)state;
    const int count = values_cases(QUICK_CASES + 1);
    const bool quick = count <= QUICK_CASES;
    for (size_t n = 0; n < sizeof borders / sizeof *borders; n++) {
        int rank = 0;
        while (rank < 4 && borders[n].dims[rank]) rank++;
        const int only = harnesses[1] ? -1 : values_below(OPS); /* without a device: few, for their time */
        for (int op = 0; op < OPS; op++) {
            const bool arg = op == ARGMAX || op == ARGMIN;
            if ((only >= 0 && op != only) || (arg && borders[n].axes.count > 1)) continue;
            if (quick && only < 0 && values_below(10 * QUICK_CASES) >= count) continue;
            const ks_dtype each[] = {dtypes[values_below(4)], dtypes[4 + values_below(8 + takes_bool(op))]};
            for (int d = 0; d < 2; d++) {
                ks_spec spec = spec_of(each[d], op, rank, borders[n].dims, borders[n].axes);
                try_paths(&spec, (values_kind)values_below(VALUES_KINDS), true);
            }
        }
    }
}

/* A maximum that moves at each step scales the old sum down each time: those roundings must not add up. */
/* One plane that is large enough for any chip; only a device is worth the reference's time. */
static void large_planes(void **state)
{
    (void)state;
    static const struct {
        int op;
        ks_dtype dtype;
        int64_t dims[2];
    } table[] = {{SUM, KS_FP32, {1300003, 7}}, {ARGMAX, KS_BF16, {800001, 33}}, {LOGSUMEXP, KS_FP16, {300007, 101}}};
    if (!harnesses[1] || values_cases(QUICK_CASES + 1) <= QUICK_CASES) skip();
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        ks_spec spec = spec_of(table[n].dtype, table[n].op, 2, table[n].dims, one_axis(0));
        try_paths(&spec, VALUES_NORMAL, false);
    }
}

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
    const float l1[] = {inf, inf, nan, inf, 0, 8, 2e30f}, squares[] = {inf, inf, nan, inf, 0, 20, inf},
                logs[] = {nan, inf, nan, nan, -inf, 1.38629436f, 69.7706986f};
    const int64_t argmax[] = {0, 1, 1, 0, 0, 1, 0}, argmin[] = {0, 0, 1, 1, 0, 0, 2};
    const struct {
        int op;
        const float *want;
    } rows[] = {{MAX, max},   {MIN, min},       {SUM, sum},     {L2NORM, norm}, {LOGSUMEXP, lse},
                {L1NORM, l1}, {SUMSQ, squares}, {LOGSUM, logs}, {ARGMAX, NULL}, {ARGMIN, NULL}};
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
            if (!rows[o].want) { /* places */
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

static void expect_parameter(int op, int param, double value, const char *words)
{
    ks_spec spec = spec_of(KS_FP32, op, 2, (const int64_t[]){2, 3}, one_axis(1));
    spec.params[param].d = value;
    expect_refusal(spec, KS_PARAMETER, words);
}

static void refusals(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3}, none[] = {2, 0};
    expect_refusal(spec_of(KS_BOOL, MEAN, 2, dims, one_axis(0)), KS_DATATYPE, "mean takes");
    expect_refusal(spec_of(KS_BOOL, COUNT_NONZERO + 1, 2, dims, one_axis(0)), KS_PARAMETER, "op");
    expect_refusal(spec_of(KS_BYTES, ANY, 2, dims, one_axis(0)), KS_DATATYPE, "or BOOL");
    expect_parameter(VAR, DDOF, -1, "'ddof' is -1");
    expect_parameter(STD, DDOF, (double)NAN, "'ddof' is ");
    expect_parameter(SUM, DDOF, 1, "sum has none");
    expect_parameter(NORM, POWER, -0.5, "'p' is -0.5");
    expect_parameter(MAX, POWER, 2, "max has none");
    expect_refusal(spec_of(KS_FP32, SUM, 0, dims, one_axis(0)), KS_SHAPE, "rank 0");
    expect_refusal(spec_of(KS_FP32, SUM, 2, dims, one_axis(2)), KS_AXIS, "axis 2 is outside [-2, 2)");
    expect_refusal(spec_of(KS_FP32, SUM, 2, dims, one_axis(-3)), KS_AXIS, "axis -3 is outside [-2, 2)");
    expect_refusal(spec_of(KS_FP32, SUM, 2, dims, (ks_axes){.count = 2, .axis = {1, -1}}), KS_AXIS, "twice");
    expect_refusal(spec_of(KS_FP32, SUM, 2, dims, (ks_axes){0}), KS_AXIS, "0 axes");
    expect_refusal(spec_of(KS_FP32, ARGMAX, 2, dims, (ks_axes){.count = 2, .axis = {0, 1}}), KS_AXIS, "argmax");
    expect_refusal(spec_of(KS_FP32, OPS, 2, dims, one_axis(0)), KS_PARAMETER, "op");
    static const int empty[] = {MEAN, MAX, MIN, ARGMAX, ARGMIN, VAR, STD};
    for (int i = 0; i < 7; i++) expect_refusal(spec_of(KS_FP32, empty[i], 2, none, one_axis(1)), KS_EMPTY, "nothing");
    ks_spec spec = spec_of(KS_FP32, NORM, 2, none, one_axis(1));
    spec.params[POWER].d = -(double)INFINITY;
    expect_refusal(spec, KS_EMPTY, "norm of nothing");
}

static void sums_of_nothing(void **state)
{
    (void)state;
    static const int ops[] = {SUM, PROD, L2NORM, LOGSUMEXP, SUMSQ, L1NORM, LOGSUM, ANY, ALL, COUNT_NONZERO};
    for (int i = 0; i < 10; i++)
        for (int d = 0; d < DTYPES + takes_bool(ops[i]); d++) {
            ks_spec spec = spec_of(dtypes[d], ops[i], 3, (const int64_t[]){3, 0, 2}, one_axis(1));
            try_spec(&spec, VALUES_NORMAL);
            spec = spec_of(dtypes[d], ops[i], 2, (const int64_t[]){0, 5}, (ks_axes){.count = -1});
            try_spec(&spec, VALUES_NORMAL);
        }
    for (int d = 0; d < DTYPES; d++) {
        ks_spec spec = spec_of(dtypes[d], NORM, 3, (const int64_t[]){3, 0, 2}, one_axis(1));
        spec.params[POWER].d = d % 3 * 1.5;
        try_spec(&spec, VALUES_NORMAL);
    }
}

/* The shapes of most ways, each with a mean a million deviations away from 0: the bound is of the deviations, so an algorithm that
 * subtracts sums of squares fails. var(x) and var(x + c) are equal bits where x + c is exact. */
static void variances_far_from_zero(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof borders / sizeof *borders; n++) {
        if (!harnesses[1] && values_below(4)) continue;
        int rank = 0;
        while (rank < 4 && borders[n].dims[rank]) rank++;
        ks_spec spec = spec_of(values_below(2) ? KS_FP64 : KS_FP32, VAR, rank, borders[n].dims, borders[n].axes);
        assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
        ks_spec_layout(&spec);
        const int64_t count = ks_tensor_count(&spec.in[0]);
        void *in = malloc(spec.in[0].size_bytes), *moved = malloc(spec.in[0].size_bytes);
        void *out = malloc(spec.out[0].size_bytes), *again = malloc(spec.out[0].size_bytes);
        assert_true(in && moved && out && again);
        for (int64_t i = 0; i < count; i++) { /* eighths, and up to 2^20 of them: FP32 holds their sums with 2^20 */
            const double x = (values_below(17) - 8) / 8.0;
            values_put(spec.in[0].dtype, in, i, x);
            values_put(spec.in[0].dtype, moved, i, x + 0x1p20);
        }
        tally *all = tally_all(&spec, in), *far = tally_all(&spec, moved);
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            const void *near_input[] = {in}, *far_input[] = {moved};
            run_one(b, &spec, near_input, out, all, OP_PATH_COPIES);
            run_one(b, &spec, far_input, again, far, OP_PATH_COPIES);
            if (b) assert_memory_equal(out, again, spec.out[0].size_bytes); /* what is subtracted first is exact */
        }
        free(far);
        free(all);
        free(again);
        free(out);
        free(moved);
        free(in);
    }
}

/* An infinity or a NaN is a NaN of its own row; as few elements as ddof takes away are, too; equal ones have none. */
static void edges_of_variances(void **state)
{
    (void)state;
    const float inf = INFINITY, nan = NAN;
    const float x[6][4] = {{1, 2, 3, 4},         {inf, 1, 2, 3},      {1, nan, 2, 3}, {0.1f, 0.1f, 0.1f, 0.1f},
                           {inf, inf, inf, inf}, {-0.0f, 0, -0.0f, 0}};
    const double want[6] = {1.25, (double)NAN, (double)NAN, 0, (double)NAN, 0};
    for (int b = 0; b < 2; b++)
        for (int ddof = 0; ddof < 6 && harnesses[b]; ddof++) {
            ks_spec spec = spec_of(KS_FP32, VAR, 2, (const int64_t[]){6, 4}, one_axis(1));
            spec.params[DDOF].d = ddof;
            assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
            ks_spec_layout(&spec);
            float out[6];
            const void *in[] = {x};
            ks_error error;
            assert_int_equal(op_harness_run(harnesses[b], &spec, in, out, OP_PATH_PLANNED, 1, false, &error), KS_OK);
            for (int i = 0; i < 6; i++) {
                const float right = ddof < 4 ? (float)(want[i] * 4 / (4 - ddof)) : nan;
                if (isnan(right) ? !isnan(out[i]) : out[i] != right)
                    fail_msg("row %d, ddof %d: got %g, expected %g", i, ddof, (double)out[i], (double)right);
            }
        }
}

/* A norm that has a name of its own is that op. */
static void norms_with_names(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3};
    for (int p = 1; p < 3; p++) {
        ks_spec spec = spec_of(KS_FP32, NORM, 2, dims, one_axis(1)),
                named = spec_of(KS_FP32, p == 1 ? L1NORM : L2NORM, 2, dims, one_axis(1));
        spec.params[POWER].d = p;
        assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
        assert_int_equal(ks_op_reduce.resolve(&named, NULL), KS_OK);
        assert_memory_equal(&spec, &named, sizeof spec);
        assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
    }
}

/* --- segments -------------------------------------------------------------------------------------------------------- */

static void put_offset(const ks_spec *spec, void *offsets, int64_t i, int64_t value)
{
    if (spec->in[1].dtype == KS_INT32)
        ((int32_t *)offsets)[i] = (int32_t)value;
    else
        ((int64_t *)offsets)[i] = value;
}

static int64_t get_offset(const ks_spec *spec, const void *offsets, int64_t i)
{
    return spec->in[1].dtype == KS_INT32 ? ((const int32_t *)offsets)[i] : ((const int64_t *)offsets)[i];
}

static int64_t below(int64_t bound)
{
    return (int64_t)(values_next() % (uint64_t)bound);
}

/* x of [outer, extent, inner], cut along axis 1. */
static ks_spec segmented(ks_dtype dtype, int op, const int64_t *dims, int64_t count)
{
    ks_spec spec = spec_of(dtype, op, 3, dims, one_axis(1));
    spec.given = 3;
    spec.in[1] = (ks_tensor){.dtype = values_below(2) ? KS_INT32 : KS_INT64, .rank = 1, .dims = {count + 1}};
    return spec;
}

static int compare_places(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Lengths around those up to which one thread, some, a warp and a CTA take a piece. */
static int64_t draw_length(void)
{
    static const int64_t lengths[] = {0,  1,  2,  3,   4,   5,   16,  17,  32,   33,
                                      64, 65, 66, 128, 129, 256, 512, 513, 2048, 2049};
    return lengths[values_below(sizeof lengths / sizeof *lengths)];
}

/* Of one length, of random ones, many short ones in front of one that is long, or of lengths at which kernels change; none is empty where the
 * op has no value for that. */
static void fill_offsets(const ks_spec *spec, void *offsets)
{
    const int64_t count = spec->in[1].dims[0] - 1, extent = spec->in[0].dims[1];
    const int64_t least = ks_reduce_needs_elements(spec);
    const int style = values_below(4);
    int64_t *at = malloc((size_t)(count + 1) * sizeof *at);
    for (int64_t i = 0; i <= count; i++)
        at[i] = style == 0 ? (count ? i * extent / count : 0) : below(style == 1 ? extent + 1 : extent / 8 + 1);
    at[0] = 0;
    for (int64_t i = 1; style == 3 && i <= count; i++) {
        const int64_t next = at[i - 1] + draw_length();
        at[i] = next < extent ? next : extent;
    }
    at[count] = extent;
    qsort(at, (size_t)count + 1, sizeof *at, compare_places);
    for (int64_t i = 1; i < count; i++) {
        if (at[i] < at[i - 1] + least) at[i] = at[i - 1] + least;
        if (at[i] > extent - least * (count - i)) at[i] = extent - least * (count - i);
    }
    for (int64_t i = 0; i <= count; i++) put_offset(spec, offsets, i, at[i]);
    free(at);
}

/* Resolved and laid out, with x, offsets and an output, and segment_at of them. */
static void open_segments(ks_spec *spec, values_kind kind, void *memory[3])
{
    ks_error error = {0};
    draw_parameters(spec);
    if (ks_op_reduce.resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
    const ks_tensor *x = &spec->in[0];
    memory[0] = malloc(x->size_bytes + 1);
    memory[1] = malloc(spec->in[1].size_bytes);
    memory[2] = malloc(spec->out[0].size_bytes + 1);
    segment_at = calloc((size_t)x->dims[1] + 1, sizeof *segment_at);
    assert_true(memory[0] && memory[1] && memory[2] && segment_at);
    values_fill(x->dtype, memory[0], ks_tensor_count(x), kind, x->dims[1] ? x->dims[1] : 1);
    if (x->dtype == KS_BOOL || (is_counted(spec) && values_below(2))) clear_most(x, memory[0]);
    fill_offsets(spec, memory[1]);
    for (int64_t s = 0; s + 1 < spec->in[1].dims[0]; s++)
        for (int64_t i = get_offset(spec, memory[1], s); i < get_offset(spec, memory[1], s + 1); i++) segment_at[i] = s;
}

static void close_segments(void *memory[3])
{
    for (int i = 0; i < 3; i++) free(memory[i]);
    free(segment_at);
}

static void run_segments(int b, const ks_spec *spec, void *const memory[3], const tally *all)
{
    const int copies = values_below(3) ? 1 : 1 + values_below(9);
    ks_error error = {0};
    op_harness_fix(harnesses[b], (unsigned)values_below(4));
    const ks_status status = op_harness_run(harnesses[b], spec, (const void *const *)memory, memory[2],
                                            (op_path)values_below(3), copies, values_below(2), &error);
    op_harness_fix(harnesses[b], 0);
    if (status != KS_OK) describe(spec, b ? "cuda" : "cpu");
    if (status != KS_OK) fail_msg("%s", error.text);
    check(spec, all, memory[2], b ? "cuda" : "cpu");
}

/* One segment of all parts as a request of its own has the same bits. */
static void run_alone(int b, const ks_spec *spec, void *const memory[3])
{
    const int64_t segment = below(spec->in[1].dims[0] - 1), begin = get_offset(spec, memory[1], segment);
    const int64_t length = get_offset(spec, memory[1], segment + 1) - begin, inner = spec->in[0].dims[2];
    const size_t element = ks_dtype_size(spec->in[0].dtype), result = ks_dtype_size(spec->out[0].dtype);
    const size_t line = (size_t)inner * element, results = (size_t)inner * result;
    ks_spec one = *spec;
    ks_error error = {0};
    one.in[0].dims[1] = length;
    one.in[1].dims[0] = 2;
    if (ks_op_reduce.resolve(&one, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(&one);
    char *x = malloc(one.in[0].size_bytes + 1), *out = malloc(one.out[0].size_bytes + 1);
    int64_t offsets[2] = {0};
    put_offset(&one, offsets, 1, length);
    for (int64_t o = 0; o < one.in[0].dims[0]; o++)
        memcpy(x + (size_t)(o * length) * line, (char *)memory[0] + (size_t)(o * spec->in[0].dims[1] + begin) * line,
               (size_t)length * line);
    const void *in[] = {x, offsets};
    if (op_harness_run(harnesses[b], &one, in, out, (op_path)values_below(3), 1, values_below(2), &error) != KS_OK)
        fail_msg("%s", error.text);
    const int64_t op = spec->params[OP].i;
    for (size_t i = 0; (op == ARGMAX || op == ARGMIN) && i < one.out[0].size_bytes / sizeof(int64_t); i++)
        ((int64_t *)(void *)out)[i] += begin;
    for (int64_t o = 0; o < one.in[0].dims[0]; o++)
        if (memcmp(out + (size_t)o * results,
                   (char *)memory[2] + (size_t)(o * (spec->in[1].dims[0] - 1) + segment) * results, results) != 0) {
            describe(spec, b ? "cuda" : "cpu");
            fail_msg("segment %lld of %lld elements has other bits among others", (long long)segment,
                     (long long)length);
        }
    free(out);
    free(x);
}

static void try_segments(ks_spec *spec, values_kind kind)
{
    void *memory[3];
    open_segments(spec, kind, memory);
    void *scratch = malloc(ks_cpu_scratch_bytes(spec));
    tally *all = tally_all(spec, memory[0]);
    memset(memory[2], 0xFF, spec->out[0].size_bytes);
    ks_cpu_reference(spec, (const void *const *)memory, (void *const[]){memory[2]}, scratch);
    check(spec, all, memory[2], "reference");
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        run_segments(b, spec, memory, all);
        if (ks_tensor_count(&spec->out[0])) run_alone(b, spec, memory);
    }
    free(all);
    free(scratch);
    close_segments(memory);
}

/* Extents around those of pieces of 8,192 elements and 512 lines, and what warps and CTAs take. */
static void draw_segments(ks_spec *spec, int op)
{
    static const int64_t extents[] = {0, 1, 5, 16, 17, 100, 511, 513, 1024, 1025, 3000, 8192, 8193, 20000, 70001};
    static const int64_t inners[] = {1, 1, 1, 2, 3, 7, 32, 33, 70, 300}, counts[] = {1, 1, 2, 3, 7, 31, 64, 400, 3000};
    int64_t dims[3] = {1 + values_below(values_below(2) ? 1 : 3), extents[values_below(15)], inners[values_below(10)]};
    int64_t count = counts[values_below(9)];
    if (dims[1] * dims[2] > 140000) dims[2] = 1;
    *spec = segmented(draw_dtype(op), op, dims, 0);
    draw_parameters(spec); /* p may make it an op that needs elements */
    if (op == NORM && isnan(spec->params[POWER].d)) spec->params[POWER].d = 2;
    if (ks_reduce_needs_elements(spec) && count > dims[1]) count = dims[1];
    if (values_below(30) == 0 && dims[1] == 0) count = 0;
    if (count == 0 && dims[1]) count = 1;
    spec->in[1].dims[0] = count + 1;
}

static void random_segments(void **state)
{
    (void)state;
    const int cases = values_cases(500);
    for (int i = 0; i < cases; i++) {
        ks_spec spec;
        draw_segments(&spec, i % OPS);
        try_segments(&spec, (values_kind)values_below(VALUES_KINDS));
    }
    printf("%d random cases of segments\n", cases);
}

/* Segments of equal lengths are a reduction of a tensor of one more axis, within the bounds of either. */
static void each_op_and_datatype_of_segments(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{2, 5000, 1}, {1, 30000, 1}, {2, 1300, 9}, {1, 40, 300}};
    for (int op = 0; op < OPS; op++)
        for (int d = 0; d < DTYPES + takes_bool(op); d++) {
            ks_spec spec = segmented(dtypes[d], op, shapes[(op + d) % 4], 1 + values_below(20));
            try_segments(&spec, (values_kind)values_below(VALUES_KINDS));
        }
}

/* On every backend the status and the sentence that check finds; nothing is read out of bounds. */
static void expect_bad_segments(const ks_spec *spec, void *const memory[3], ks_status wanted, int64_t place,
                                const char *words)
{
    ks_bad_value bad = {0};
    ks_error text = {0};
    assert_true(ks_op_reduce.check(spec, (const void *const *)memory, &bad));
    assert_int_equal(bad.place, place);
    assert_int_equal(ks_op_reduce.refuse(spec, &bad, &text), wanted);
    if (!strstr(text.text, words)) fail_msg("\"%s\" does not say \"%s\"", text.text, words);
    for (int b = 0; b < 2; b++)
        for (int again = 0; again < 2 && harnesses[b]; again++) {
            ks_error error = {0};
            op_harness_fix(harnesses[b], (unsigned)values_below(4));
            const ks_status status =
                op_harness_run(harnesses[b], spec, (const void *const *)memory, memory[2], (op_path)values_below(3),
                               1 + values_below(9), values_below(2), &error);
            op_harness_fix(harnesses[b], 0);
            if (status == wanted && strcmp(error.text, text.text) == 0) continue;
            describe(spec, b ? "cuda" : "cpu");
            fail_msg("status %s, \"%s\", and not \"%s\"", ks_status_name(status), status ? error.text : "", text.text);
        }
}

static void segments_out_of_bounds(void **state)
{
    (void)state;
    static const struct {
        int64_t offsets[5], place;
        const char *words;
    } rows[] = {
        {{1, 200, 300, 400, 20000}, 0, "has 1 at place 0: they begin at 0, do not fall, and end at place 4 with 20000"},
        {{-1, 200, 300, 400, 20000}, 0, "has -1 at place 0"},
        {{0, 200, 199, 400, 20000}, 2, "has 199 at place 2"},
        {{0, 20001, 300, 400, 20000}, 1, "has 20001 at place 1"},
        {{0, INT32_MAX, 300, 400, 20000}, 1, "has 2147483647 at place 1"},
        {{0, INT32_MIN, 300, 400, 20000}, 1, "has -2147483648 at place 1"},
        {{0, 200, 300, 400, 19999}, 4, "has 19999 at place 4"},
        {{0, 200, 300, 400, 20001}, 4, "has 20001 at place 4"},
        {{0, 9000, 0, 9000, 20000}, 2, "has 0 at place 2"},
        {{5, 4, 3, 2, 1}, 0, "has 5 at place 0"},
        {{0, 0, 20000, 20000, 5}, 4, "has 5 at place 4"}};
    for (size_t i = 0; i < 2 * (sizeof rows / sizeof *rows); i++) {
        const int64_t dims[] = {1 + values_below(2), 20000, i % 2 ? 1 : 2};
        ks_spec spec = segmented(dtypes[values_below(DTYPES)], values_below(2) ? SUM : MAX, dims, 4);
        void *memory[3];
        open_segments(&spec, VALUES_NORMAL, memory);
        for (int k = 0; k < 5; k++) put_offset(&spec, memory[1], k, rows[i / 2].offsets[k]);
        expect_bad_segments(&spec, memory, KS_RANGE, rows[i / 2].place, rows[i / 2].words);
        close_segments(memory);
    }
}

/* A sum of nothing is 0, a maximum is refused with the first such segment; a bad offset behind it counts before it. */
static void segments_of_nothing(void **state)
{
    (void)state;
    static const int ops[] = {MEAN, MAX, MIN, ARGMAX, ARGMIN, VAR, STD, NORM};
    for (int i = 0; i < 16; i++) {
        ks_spec spec =
            segmented(dtypes[values_below(DTYPES)], ops[i % 8], (const int64_t[]){2, 100, i < 8 ? 1 : 40}, 4);
        if (ops[i % 8] == NORM) spec.params[POWER].d = (double)INFINITY;
        void *memory[3];
        open_segments(&spec, VALUES_NORMAL, memory);
        const int64_t offsets[] = {0, 30, 30, 100, 100};
        for (int k = 0; k < 5; k++) put_offset(&spec, memory[1], k, offsets[k]);
        expect_bad_segments(&spec, memory, KS_EMPTY, 6,
                            "of nothing: segment 1 of INPUT1 (segments) begins and ends at 30");
        put_offset(&spec, memory[1], 3, 101);
        expect_bad_segments(&spec, memory, KS_RANGE, 3, "has 101 at place 3");
        close_segments(memory);
    }
}

/* A launch of 16 jobs, every other one with bad offsets: the others have their values, and each time anew. */
static void bad_segments_among_good_ones(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++)
        for (int round = 0; harnesses[b] && round < 12; round++) {
            const int64_t dims[] = {2, round % 3 ? 300 : 10000, round % 2 ? 1 : 3};
            ks_spec spec = segmented(dtypes[values_below(DTYPES)], SUM, dims, 5);
            void *memory[3], *offsets;
            open_segments(&spec, VALUES_NORMAL, memory);
            offsets = malloc(spec.in[1].size_bytes);
            memcpy(offsets, memory[1], spec.in[1].size_bytes);
            put_offset(&spec, offsets, 1 + values_below(5), -1 - values_below(3));
            const void *const spoilt[KS_INPUTS_MAX] = {memory[0], offsets};
            ks_error error = {0};
            tally *all = tally_all(&spec, memory[0]);
            if (round % 4) op_harness_spoil(harnesses[b], spoilt);
            const ks_status status = op_harness_run(harnesses[b], &spec, (const void *const *)memory, memory[2],
                                                    (op_path)values_below(3), 16, values_below(2), &error);
            op_harness_spoil(harnesses[b], NULL);
            if (status != KS_OK) fail_msg("%s: %s", b ? "cuda" : "cpu", error.text);
            check(&spec, all, memory[2], b ? "cuda" : "cpu");
            free(all);
            free(offsets);
            close_segments(memory);
        }
}

static void refusals_of_segments(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3, 4};
    ks_spec spec = segmented(KS_FP32, SUM, dims, 2), bad = spec;
    bad.in[1].dtype = KS_FP32;
    expect_refusal(bad, KS_DATATYPE, "INPUT1 (segments) has datatype FP32, takes INT32 or INT64");
    bad = spec;
    bad.in[1].rank = 2;
    expect_refusal(bad, KS_SHAPE, "INPUT1 (segments) has rank 2, takes 1");
    bad = spec;
    bad.in[1].dims[0] = 0;
    expect_refusal(bad, KS_SHAPE, "has no elements");
    bad = spec;
    bad.params[AXIS].axes = (ks_axes){.count = 2, .axis = {0, 1}};
    expect_refusal(bad, KS_AXIS, "axis lists 2 axes, segments take one");
    bad.params[AXIS].axes = (ks_axes){.count = -1};
    expect_refusal(bad, KS_AXIS, "axis lists 3 axes, segments take one");
    bad.params[OP].i = ARGMAX;
    expect_refusal(bad, KS_AXIS, "segments take one");
    bad = segmented(KS_FP32, MAX, (const int64_t[]){2, 0, 4}, 2);
    expect_refusal(bad, KS_EMPTY, "max of nothing");
    assert_int_equal(ks_op_reduce.resolve(&spec, NULL), KS_OK);
    assert_int_equal(spec.out[0].rank, 3);
    assert_int_equal(spec.out[0].dims[1], 2);
    const ks_rows rows = ks_op_reduce.rows(&spec);
    assert_true(rows.dims == 1 && rows.cut == 1 && rows.out == 1);
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

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(regimes),
        cmocka_unit_test(lengths_around_powers_of_two),
        cmocka_unit_test(many_short_rows),
        cmocka_unit_test(every_algorithm_on_every_path),
        cmocka_unit_test(large_planes),
        cmocka_unit_test(long_rising_lines),
        cmocka_unit_test(special_values),
        cmocka_unit_test(shapes_and_datatypes_of_results),
        cmocka_unit_test(refusals),
        cmocka_unit_test(sums_of_nothing),
        cmocka_unit_test(variances_far_from_zero),
        cmocka_unit_test(edges_of_variances),
        cmocka_unit_test(norms_with_names),
        cmocka_unit_test(random_segments),
        cmocka_unit_test(each_op_and_datatype_of_segments),
        cmocka_unit_test(segments_out_of_bounds),
        cmocka_unit_test(segments_of_nothing),
        cmocka_unit_test(bad_segments_among_good_ones),
        cmocka_unit_test(refusals_of_segments),
        cmocka_unit_test(over_two_to_the_31),
    };
    cmocka_set_test_filter(getenv("KS_ONLY"));
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
