/* Norm against a naive evaluation in long double: the reference by itself in buffers of exactly its size, then every backend that this
 * machine has, on all its paths. KS_CASES, KS_SEED: how many random cases, and which. KS_HUGE: also tensors of over 2^31 elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"
#include "cpu/reference.h"
#include "ops/norm.h"

extern const ks_op ks_op_norm;

enum { ARENA_BYTES = 96 << 20 };
#include "ops/op_backends.h"

static const ks_dtype dtypes[] = {KS_FP32, KS_FP16, KS_BF16, KS_FP64};

/* --- specs ------------------------------------------------------------------------------------------------------------ */

static ks_spec spec_of(ks_dtype dtype, int rank, const int64_t *dims)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_norm);
    spec.in[KS_NORM_X] = (ks_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) spec.in[KS_NORM_X].dims[i] = dims[i];
    return spec;
}

/* The input with the shape that the other parameters ask for; wide: FP32. */
static void give(ks_spec *spec, int input, bool wide)
{
    const ks_tensor *x = &spec->in[KS_NORM_X];
    ks_tensor *in = &spec->in[input];
    *in = (ks_tensor){.dtype = wide ? KS_FP32 : x->dtype};
    const ks_axes *axes = &spec->params[KS_NORM_AXIS].axes;
    const bool group = spec->params[KS_NORM_KIND].i == KS_NORM_GROUP, affine = input < KS_NORM_RESIDUAL;
    const int first = input == KS_NORM_RESIDUAL   ? 0
                      : input == KS_NORM_PRE_BIAS ? x->rank - 1
                      : group                     ? 1
                      : axes->count < 0           ? 0
                                                  : x->rank - axes->count;
    for (int i = first; i < (affine && group ? 2 : x->rank); i++) in->dims[in->rank++] = x->dims[i];
    spec->given |= (uint16_t)(1u << input);
}

static void last_axes(ks_spec *spec, int count)
{
    ks_axes *axes = &spec->params[KS_NORM_AXIS].axes;
    memset(axes, 0, sizeof *axes);
    for (int i = 0; i < count; i++) axes->axis[axes->count++] = (int8_t)(i - count);
}

static void describe(const ks_spec *spec, const char *who, int64_t at)
{
    char dims[128];
    ks_dims_text(&spec->in[0], dims, sizeof dims);
    print_error("%s: %s [%s] kind %d axes %d groups %d eps %g activation %d given %x sum_out %d out_datatype %d, "
                "element %lld\n",
                who, ks_dtype_name(spec->in[0].dtype), dims, (int)spec->params[KS_NORM_KIND].i,
                spec->params[KS_NORM_AXIS].axes.count, (int)spec->params[KS_NORM_GROUPS].i, spec->params[KS_NORM_EPS].d,
                (int)spec->params[KS_NORM_ACTIVATION].i, spec->given, (int)spec->params[KS_NORM_SUM_OUT].i,
                (int)spec->params[KS_NORM_OUT_DATATYPE].i, (long long)at);
}

/* --- what is right ---------------------------------------------------------------------------------------------------- */

typedef struct data {
    const ks_spec *spec;
    ks_norm_shape shape;
    void *in[KS_NORM_INPUTS];
} data;

/* As the sums are made: in FP32, or FP64 of FP64. */
static long double sum_at(const data *d, int64_t at)
{
    const ks_spec *spec = d->spec;
    const bool wide = spec->in[0].dtype == KS_FP64;
    long double s = values_get(spec->in[0].dtype, d->in[0], at);
    for (int i = KS_NORM_PRE_BIAS; i >= KS_NORM_RESIDUAL; i--) {
        if (!ks_has_input(spec, i)) continue;
        const int64_t place = i == KS_NORM_RESIDUAL ? at : at % d->shape.last;
        const long double more = values_get(spec->in[i].dtype, d->in[i], place);
        s = wide ? (long double)((double)s + (double)more) : (long double)((float)s + (float)more);
    }
    return s;
}

typedef struct row_oracle {
    long double mean, divisor;
} row_oracle;

static row_oracle oracle_row(const data *d, int64_t row)
{
    const ks_norm_shape *s = &d->shape;
    long double sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
    for (int64_t i = 0; i < s->length; i++) {
        const long double x = sum_at(d, row * s->length + i);
        sum += x;
        if (x < least) least = x;
        if (x > most) most = x;
    }
    row_oracle o = {.mean = s->centred ? sum / (long double)s->length : 0};
    if (s->centred && least == most) o.mean = isnan(sum) ? sum : least;
    for (int64_t i = 0; i < s->length; i++) {
        const long double away = sum_at(d, row * s->length + i) - o.mean;
        squares += away * away;
    }
    const long double eps = s->eps;
    o.divisor = s->averaged            ? sqrtl(squares / (long double)s->length + eps)
                : sqrtl(squares) < eps ? eps
                                       : sqrtl(squares);
    return o;
}

static long double activated(ks_activation activation, long double z)
{
    switch (activation) {
    case KS_ACTIVATION_RELU:
        return z < 0 ? 0 : z;
    case KS_ACTIVATION_GELU:
        return 0.5L * z * (isinf(z) ? 1 + (z > 0 ? 1 : -1) : 1 + erfl(z * 0.70710678118654752440084L));
    case KS_ACTIVATION_GELU_TANH:
        return 0.5L * z * (1 + tanhl(0.79788456080286535587989L * (z + 0.044715L * z * z * z)));
    case KS_ACTIVATION_SILU:
        return z / (1 + expl(-z));
    default:
        return z;
    }
}

/* What the brief allows, and what a leaf of FP16 and BF16 or a tree of FP64 adds to the mean. */
static long double allowed(const data *d, const row_oracle *o, long double n, long double w, long double b,
                           long double z, long double y)
{
    const ks_dtype dtype = d->spec->in[0].dtype, out = d->spec->out[0].dtype;
    const bool wide = dtype == KS_FP64;
    const long double unit = wide ? 0x1p-53L : 0x1p-24L, mean = fabsl(o->mean) / o->divisor;
    const long double leaf = wide ? values_levels(d->shape.length) + 4 : dtype == KS_FP32 ? 0 : 3;
    long double bound = unit * (8 * fabsl(n * w) + 4 * fabsl(w) * mean + 2 * fabsl(b));
    if (d->shape.centred) bound += unit * leaf * fabsl(w) * (1 + mean);
    if (wide) bound += unit * values_levels(d->shape.length) * fabsl(n * w);
    if (!wide) bound += 0x1p-149L / o->divisor * fabsl(w); /* the mean of subnormal elements is one */
    if (d->shape.activation > KS_ACTIVATION_RELU) {
        bound = 1.2L * bound + (wide ? 0x1p-50L : 0x1p-22L) * fabsl(z);
        if (ks_dtype_size(out) == 2 && out == dtype) bound += 0x1p-12L * fabsl(y);
    }
    return bound + 1.01L * values_roundoff(out) * fabsl(y) + 2 * values_floor(out) + (wide ? 1e-300L : 1e-36L);
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

static void check_sum(const data *d, const void *out, const char *who, int64_t at)
{
    const ks_tensor *sum = &d->spec->out[1];
    union {
        uint16_t half;
        float single;
        double wide;
    } rounded;
    const long double s = sum_at(d, at);
    values_put(sum->dtype, &rounded, 0, (double)s);
    const long double want = values_get(sum->dtype, &rounded, 0),
                      got = values_get(sum->dtype, (const unsigned char *)out + sum->offset, at);
    if (got == want || (isnan(want) && isnan(got))) return;
    describe(d->spec, who, at);
    fail_msg("the sum is %.17Lg, expected %.17Lg", got, want);
}

static void check_row(const data *d, const void *out, const char *who, int64_t row)
{
    const ks_norm_shape *s = &d->shape;
    const ks_spec *spec = d->spec;
    const row_oracle o = oracle_row(d, row);
    for (int64_t i = 0; i < s->length; i++) {
        const int64_t at = row * s->length + i, place = row % s->groups * s->channels + i / s->inner;
        const long double w = ks_has_input(spec, 1) ? values_get(spec->in[1].dtype, d->in[1], place) : 1;
        const long double b = ks_has_input(spec, 2) ? values_get(spec->in[2].dtype, d->in[2], place) : 0;
        const long double n = (sum_at(d, at) - o.mean) / o.divisor, z = n * w + b, want = activated(s->activation, z);
        const long double got = values_get(spec->out[0].dtype, (const unsigned char *)out + spec->out[0].offset, at);
        if (spec->outputs > 1) check_sum(d, out, who, at);
        if (near_enough(spec->out[0].dtype, got, want, allowed(d, &o, n, w, b, z, want))) continue;
        describe(spec, who, at);
        fail_msg("got %.17Lg, expected %.17Lg within %.3Lg; mean %Lg divisor %Lg", got, want,
                 allowed(d, &o, n, w, b, z, want), o.mean, o.divisor);
    }
}

/* At most so many rows, the last one among them. */
static void check(const data *d, const void *out, const char *who, int64_t most)
{
    const int64_t rows = ks_tensor_count(&d->spec->in[0]) ? d->shape.rows : 0;
    for (int64_t i = 0; i < rows && i < most; i++)
        check_row(d, out, who, rows <= most ? i : i ? (int64_t)(values_next() % (uint64_t)rows) : rows - 1);
}

/* --- runs ------------------------------------------------------------------------------------------------------------- */

static void run_backend(int b, const data *d, void *out)
{
    ks_error error;
    if (op_run(b, d->spec, (const void *const *)d->in, out, op_drawn_inputs(d->spec), &error) == KS_OK) return;
    describe(d->spec, b ? "cuda" : "cpu", -1);
    fail_msg("%s", error.text);
}

/* Resolved, with memory for its inputs, which are the caller's to fill. */
static data open_data(ks_spec *spec)
{
    ks_error error = {0};
    if (ks_op_norm.resolve(spec, &error) != KS_OK) {
        describe(spec, "resolve", -1);
        fail_msg("%s", error.text);
    }
    ks_spec_layout(spec);
    data d = {.spec = spec, .shape = ks_norm_shape_of(spec)};
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        d.in[i] = malloc(spec->in[i].size_bytes + 1);
        assert_non_null(d.in[i]);
    }
    return d;
}

static void close_data(data *d)
{
    for (int i = 0; i < KS_NORM_INPUTS; i++) free(d->in[i]);
}

static void fill(const data *d, values_kind kind)
{
    const ks_tensor *x = &d->spec->in[0];
    for (int i = ks_next_input(d->spec, -1); i >= 0; i = ks_next_input(d->spec, i))
        values_fill(d->spec->in[i].dtype, d->in[i], ks_tensor_count(&d->spec->in[i]), i == 0 ? kind : VALUES_NORMAL,
                    x->rank && x->dims[x->rank - 1] ? x->dims[x->rank - 1] : 1);
}

/* Fills, runs, compares: everywhere and all of it, or on a GPU alone and some rows. */
static void try_on(ks_spec *spec, values_kind kind, bool gpu_only)
{
    enum { SOME = 40 };
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
        run_backend(b, &d, out);
        check(&d, out, b ? "cuda" : "cpu", gpu_only ? SOME : INT64_MAX);
    }
    free(out);
    close_data(&d);
}

/* --- random cases ----------------------------------------------------------------------------------------------------- */

static int divisor_of(int64_t channels)
{
    static const int groups[] = {32, 16, 8, 7, 5, 4, 3, 2};
    for (size_t i = (size_t)values_below(8); i < 8; i++)
        if (channels % groups[i] == 0) return groups[i];
    return 1;
}

static void draw_parameters(ks_spec *spec)
{
    static const double eps[] = {1e-5, 1e-5, 1e-3, 1e-12, 10, 1e-30, 0};
    const ks_tensor *x = &spec->in[0];
    int kind = values_below(4);
    if (kind == KS_NORM_GROUP && x->rank < 2) kind = KS_NORM_LAYER;
    spec->params[KS_NORM_KIND].i = kind;
    if (kind == KS_NORM_GROUP)
        spec->params[KS_NORM_GROUPS].i = values_below(4) ? divisor_of(x->dims[1]) : x->dims[1] ? x->dims[1] : 1;
    else if (values_below(3) == 0)
        last_axes(spec, 1 + values_below(x->rank));
    if (values_below(2)) spec->params[KS_NORM_EPS].d = eps[values_below(sizeof eps / sizeof *eps)];
    spec->params[KS_NORM_ACTIVATION].i = values_below(2) ? values_below(KS_ACTIVATION_COUNT) : 0;
    spec->params[KS_NORM_SUM_OUT].i = values_below(3) == 0;
    if (values_below(8) == 0) spec->params[KS_NORM_OUT_DATATYPE].i = values_below(5);
}

static void draw_inputs(ks_spec *spec)
{
    const bool wide = values_below(4) == 0;
    for (int i = KS_NORM_WEIGHT; i < KS_NORM_INPUTS; i++)
        if (values_below(2)) give(spec, i, i != KS_NORM_RESIDUAL && (wide || values_below(16) == 0));
}

/* Normalised extents that are 0 are refused; FP64's constant rows are one to a rounding, which without eps shows. */
static bool can_be(const ks_spec *spec, values_kind kind)
{
    ks_spec copy = *spec;
    ks_error error = {0};
    const ks_status status = ks_op_norm.resolve(&copy, &error);
    if (status == KS_EMPTY) return false;
    const bool equal = kind == VALUES_EQUAL || kind == VALUES_BOTH || kind == VALUES_OFFSET;
    return !(spec->in[0].dtype == KS_FP64 && equal && copy.params[KS_NORM_EPS].d < 1e-20);
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(400);
    for (int i = 0; i < cases;) {
        ks_tensor shape = {0};
        values_shape(&shape, 5, values_most());
        ks_spec spec = spec_of(dtypes[values_below(4)], shape.rank, shape.dims);
        const values_kind kind = (values_kind)values_below(VALUES_KINDS);
        draw_parameters(&spec);
        draw_inputs(&spec);
        if (!can_be(&spec, kind)) continue;
        try_on(&spec, kind, false);
        i++;
    }
    printf("%d random cases\n", cases);
}

/* Where the CUDA planner goes over from one kernel to another, in vectors of a row; each with rows that are whole vectors and some that
 * are not, with few rows and with enough for a chip. */
static void borders_of_rows(void **state)
{
    (void)state;
    static const int64_t vectors[] = {1,    2,    3,    4,    5,    8,    16,   31,   32,   33,   63,  64,
                                      65,   127,  128,  129,  160,  255,  257,  511,  512,  513,  640, 1023,
                                      1024, 1025, 1536, 2047, 2048, 2049, 3000, 4096, 4100, 8192, 8200};
    for (size_t n = 0; n < sizeof vectors / sizeof *vectors; n++)
        for (int odd = 0; odd < 3; odd++) {
            const ks_dtype dtype = dtypes[values_below(4)];
            const int64_t in_vector = 16 / (int64_t)ks_dtype_size(dtype);
            const int64_t length = vectors[n] * in_vector + (odd == 2 ? 1 + values_below((int)in_vector) : 0);
            const int64_t rows = values_below(2) ? 1 + values_below(4) : 1 + 60000 / length;
            ks_spec spec = spec_of(dtype, 2, (const int64_t[]){rows, length});
            spec.params[KS_NORM_KIND].i = values_below(3);
            spec.params[KS_NORM_ACTIVATION].i = values_below(KS_ACTIVATION_COUNT);
            spec.params[KS_NORM_SUM_OUT].i = values_below(2);
            draw_inputs(&spec);
            try_on(&spec, (values_kind)values_below(VALUES_FINITE), false);
        }
}

typedef struct sizes {
    ks_dtype dtype;
    int64_t rows, length;
} sizes;

/* Each kernel of the CUDA planner, in as little work as reaches it on a chip of any size: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const struct {
        sizes of;
        int kind, more; /* inputs beside x, as bits */
    } table[] = {{{KS_BF16, 300, 24}, KS_NORM_LAYER, 6},   {{KS_FP16, 100, 512}, KS_NORM_RMS, 10},
                 {{KS_FP32, 40, 512}, KS_NORM_LAYER, 22},  {{KS_BF16, 3000, 1040}, KS_NORM_LAYER, 14},
                 {{KS_FP32, 3, 1024}, KS_NORM_L2, 0},      {{KS_BF16, 2, 40000}, KS_NORM_LAYER, 6},
                 {{KS_FP32, 150, 9000}, KS_NORM_LAYER, 8}, {{KS_FP64, 9, 2050}, KS_NORM_RMS, 30},
                 {{KS_BF16, 60, 257}, KS_NORM_LAYER, 6},   {{KS_FP32, 5, 4099}, KS_NORM_RMS, 8},
                 {{KS_FP16, 2, 70001}, KS_NORM_LAYER, 6},  {{KS_FP32, 200, 18001}, KS_NORM_LAYER, 0},
                 {{KS_BF16, 70, 1023}, KS_NORM_RMS, 30},   {{KS_FP16, 3, 150001}, KS_NORM_LAYER, 6},
                 {{KS_FP64, 60, 257}, KS_NORM_LAYER, 6},   {{KS_FP64, 200, 9001}, KS_NORM_LAYER, 0},
                 {{KS_FP64, 2, 40001}, KS_NORM_RMS, 8}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        ks_spec spec = spec_of(table[n].of.dtype, 2, (const int64_t[]){table[n].of.rows, table[n].of.length});
        spec.params[KS_NORM_KIND].i = table[n].kind;
        spec.params[KS_NORM_SUM_OUT].i = table[n].more >> KS_NORM_RESIDUAL & 1;
        spec.params[KS_NORM_ACTIVATION].i = (int64_t)(n % KS_ACTIVATION_COUNT);
        for (int i = KS_NORM_WEIGHT; i < KS_NORM_INPUTS; i++)
            if (table[n].more >> i & 1) give(&spec, i, false);
        try_on(&spec, VALUES_NORMAL, false);
    }
}

/* What is too much for a quick test of the reference, and needs many CTAs. */
static void rows_of_the_whole_chip(void **state)
{
    (void)state;
    static const sizes table[] = {
        {KS_BF16, 90000, 128}, {KS_BF16, 11000, 1024}, {KS_BF16, 2800, 4096}, {KS_FP32, 2800, 2048},
        {KS_FP16, 2048, 5120}, {KS_BF16, 950, 12288},  {KS_FP32, 700, 8192},  {KS_FP32, 350, 16384},
        {KS_BF16, 300, 32768}, {KS_FP16, 40, 131072},  {KS_FP64, 700, 4096},  {KS_FP64, 20, 50000},
        {KS_FP32, 3, 1000000}, {KS_BF16, 5, 1000003},  {KS_FP32, 20000, 100}, {KS_BF16, 5000, 1023},
        {KS_FP32, 700, 4097},  {KS_FP16, 100, 30001},  {KS_BF16, 1, 4194304}, {KS_FP32, 9000, 257}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) {
        printf("skip: no chip of that size\n");
        skip();
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (values_cases(400) < 10 && i % 4 != (size_t)values_below(4)) continue;
        ks_spec spec = spec_of(table[i].dtype, 2, (const int64_t[]){table[i].rows, table[i].length});
        spec.params[KS_NORM_KIND].i = values_below(3);
        spec.params[KS_NORM_ACTIVATION].i = values_below(KS_ACTIVATION_COUNT);
        spec.params[KS_NORM_SUM_OUT].i = values_below(2);
        draw_inputs(&spec);
        try_on(&spec, (values_kind)values_below(VALUES_FINITE), true);
    }
}

static void groups_of_channels(void **state)
{
    (void)state;
    static const struct {
        int rank;
        int64_t dims[4], groups;
    } table[] = {{4, {2, 32, 8, 8}, 8},    {4, {3, 6, 5, 7}, 3},   {2, {5, 64}, 4},
                 {3, {2, 12, 100}, 12},    {4, {1, 4, 64, 64}, 1}, {2, {7, 30}, 1},
                 {4, {2, 4, 130, 130}, 2}, {3, {1, 3, 1}, 3},      {3, {2, 16, 4096}, 2}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int d = 0; d < 4; d++) {
            ks_spec spec = spec_of(dtypes[d], table[n].rank, table[n].dims);
            spec.params[KS_NORM_KIND].i = KS_NORM_GROUP;
            spec.params[KS_NORM_GROUPS].i = table[n].groups;
            spec.params[KS_NORM_ACTIVATION].i = values_below(KS_ACTIVATION_COUNT);
            draw_inputs(&spec);
            try_on(&spec, (values_kind)values_below(VALUES_FINITE), false);
        }
}

/* --- identities ------------------------------------------------------------------------------------------------------- */

/* Both backends, or those that there are; out[b] is to be freed by the caller. */
static void run_both(const data *d, void *out[2])
{
    for (int b = 0; b < 2; b++) {
        out[b] = harnesses[b] ? malloc(ks_spec_out_bytes(d->spec) + 1) : NULL;
        if (out[b]) run_backend(b, d, out[b]);
    }
}

static void expect_same(void *left[2], void *right[2], size_t at, size_t bytes, const char *what)
{
    for (int b = 0; b < 2; b++) {
        if (left[b] && memcmp(left[b], (char *)right[b] + at, bytes) != 0) fail_msg("%s: %s", b ? "cuda" : "cpu", what);
        free(left[b]);
        free(right[b]);
    }
}

static ks_spec drawn_rows(ks_dtype dtype, int64_t rows, int64_t length)
{
    ks_spec spec = spec_of(dtype, 2, (const int64_t[]){rows, length});
    spec.params[KS_NORM_KIND].i = values_below(3);
    spec.params[KS_NORM_ACTIVATION].i = values_below(KS_ACTIVATION_COUNT);
    return spec;
}

static const int64_t lengths[] = {8, 24, 100, 128, 1000, 1024, 1027, 4096, 12288, 20000, 40000};

/* Each row times 2^k, with eps 0: the same bits, far beyond where squares leave FP32's range. */
static void scaling_changes_no_bit(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int t = 0; t < 3; t++) {
            const ks_dtype dtype = t == 0 ? KS_FP32 : t == 1 ? KS_BF16 : KS_FP64;
            ks_spec spec = drawn_rows(dtype, 3, lengths[n]), same = spec;
            spec.params[KS_NORM_EPS].d = same.params[KS_NORM_EPS].d = 0;
            data one = open_data(&spec), other = open_data(&same);
            void *left[2], *right[2];
            for (int64_t i = 0; i < ks_tensor_count(&spec.in[0]); i++) {
                static const int powers[] = {90, -75, 30}; /* of each row */
                const double x = values_round(values_draw(VALUES_UNIFORM, 0), 8, -126);
                values_put(dtype, one.in[0], i, x);
                values_put(dtype, other.in[0], i, ldexp(x, powers[i / lengths[n]]));
            }
            run_both(&one, left);
            run_both(&other, right);
            expect_same(left, right, 0, ks_spec_out_bytes(&spec), "a row times a power of two has other bits");
            close_data(&one);
            close_data(&other);
        }
}

/* A zero residual is none, a zero pre_bias too; and OUTPUT1 takes nothing from OUTPUT0. */
static void nothing_added_is_nothing(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        const ks_dtype dtype = dtypes[values_below(4)];
        ks_spec spec = drawn_rows(dtype, 5, lengths[n]), more = spec;
        give(&more, KS_NORM_RESIDUAL, false);
        give(&more, KS_NORM_PRE_BIAS, false);
        more.params[KS_NORM_SUM_OUT].i = 1;
        data one = open_data(&spec), other = open_data(&more);
        void *left[2], *right[2];
        fill(&one, VALUES_NORMAL);
        memcpy(other.in[0], one.in[0], spec.in[0].size_bytes);
        memset(other.in[KS_NORM_RESIDUAL], 0, more.in[KS_NORM_RESIDUAL].size_bytes);
        memset(other.in[KS_NORM_PRE_BIAS], 0, more.in[KS_NORM_PRE_BIAS].size_bytes);
        run_both(&one, left);
        run_both(&other, right);
        for (int b = 0; b < 2; b++)
            if (right[b]) assert_memory_equal((char *)right[b] + more.out[1].offset, one.in[0], spec.in[0].size_bytes);
        expect_same(left, right, 0, spec.out[0].size_bytes, "a residual of zeros changes bits");
        close_data(&one);
        close_data(&other);
    }
}

/* Rows the other way round: their bits go with them. A row of NaN stays by itself. */
static void rows_depend_on_themselves_alone(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        enum { ROWS = 37 };
        const ks_dtype dtype = dtypes[values_below(4)];
        ks_spec spec = drawn_rows(dtype, ROWS, lengths[n]);
        give(&spec, KS_NORM_WEIGHT, false);
        give(&spec, KS_NORM_BIAS, false);
        ks_spec same = spec;
        data one = open_data(&spec), other = open_data(&same);
        const size_t row = spec.in[0].size_bytes / ROWS;
        void *left[2], *right[2];
        fill(&one, VALUES_NORMAL);
        values_put(dtype, one.in[0], 3 * lengths[n], (double)NAN);
        memcpy(other.in[1], one.in[1], spec.in[1].size_bytes);
        memcpy(other.in[2], one.in[2], spec.in[2].size_bytes);
        for (int r = 0; r < ROWS; r++)
            memcpy((char *)other.in[0] + r * row, (char *)one.in[0] + (ROWS - 1 - r) * row, row);
        run_both(&one, left);
        run_both(&other, right);
        for (int b = 0; b < 2; b++) {
            for (int r = 0; r < ROWS && left[b]; r++) {
                const char *mine = (char *)left[b] + r * row, *there = (char *)right[b] + (ROWS - 1 - r) * row;
                if (r == 3) assert_true(isnan(values_get(dtype, mine, lengths[n] - 1)));
                if (r != 3 && memcmp(mine, there, row) != 0)
                    fail_msg("row %d of %lld elements depends on its index", r, (long long)lengths[n]);
            }
            free(left[b]);
            free(right[b]);
        }
        close_data(&one);
        close_data(&other);
    }
}

/* One group is the layer norm of everything behind the first dimension. */
static void one_group_is_a_layer(void **state)
{
    (void)state;
    for (int d = 0; d < 4; d++) {
        ks_spec spec = spec_of(dtypes[d], 4, (const int64_t[]){3, 5, 8, 16}), same = spec;
        spec.params[KS_NORM_KIND].i = KS_NORM_GROUP;
        last_axes(&same, 3);
        data one = open_data(&spec), other = open_data(&same);
        fill(&one, VALUES_NORMAL);
        memcpy(other.in[0], one.in[0], spec.in[0].size_bytes);
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            void *left = malloc(spec.out[0].size_bytes), *right = malloc(spec.out[0].size_bytes);
            run_backend(b, &one, left);
            run_backend(b, &other, right);
            check(&other, left, b ? "cuda" : "cpu", INT64_MAX);
            check(&other, right, b ? "cuda" : "cpu", INT64_MAX);
            free(left);
            free(right);
        }
        close_data(&one);
        close_data(&other);
    }
}

/* x + c for c that x keeps exactly. */
static void a_shift_stays_within_bounds(void **state)
{
    (void)state;
    static const double shifts[] = {1, 64, 1e3, 1e4};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int k = 0; k < 4; k++) {
            ks_spec spec = spec_of(KS_FP32, 2, (const int64_t[]){2, lengths[n]});
            data d = open_data(&spec);
            void *out[2];
            for (int64_t i = 0; i < ks_tensor_count(&spec.in[0]); i++)
                values_put(KS_FP32, d.in[0], i, shifts[k] + (values_below(2049) - 1024) / 1024.0);
            run_both(&d, out);
            for (int b = 0; b < 2; b++) {
                if (out[b]) check(&d, out[b], b ? "cuda" : "cpu", INT64_MAX);
                free(out[b]);
            }
            close_data(&d);
        }
}

/* --- edges ------------------------------------------------------------------------------------------------------------ */

/* Rows of FP32's and BF16's largest and smallest numbers: no finite row overflows, and none is lost. */
static void rows_of_extreme_size(void **state)
{
    (void)state;
    static const double sizes_of[] = {3e38, 1e30, 2e19, 1e-18, 1e-25, 1e-37, 1e-40};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (size_t k = 0; k < sizeof sizes_of / sizeof *sizes_of; k++) {
            ks_spec spec = spec_of(values_below(2) ? KS_BF16 : KS_FP32, 2, (const int64_t[]){2, lengths[n]});
            spec.params[KS_NORM_KIND].i = values_below(3);
            if (values_below(2)) spec.params[KS_NORM_EPS].d = 0;
            data d = open_data(&spec);
            void *out[2];
            for (int64_t i = 0; i < ks_tensor_count(&spec.in[0]); i++)
                values_put(spec.in[0].dtype, d.in[0], i,
                           sizes_of[k] * (2 * values_unit() - 1) * (values_below(8) ? 1 : 1e-3));
            run_both(&d, out);
            for (int b = 0; b < 2; b++) {
                if (out[b]) check(&d, out[b], b ? "cuda" : "cpu", INT64_MAX);
                free(out[b]);
            }
            close_data(&d);
        }
}

static void constant_rows_give_the_bias(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int d = 0; d < 3; d++) {
            ks_spec spec = spec_of(dtypes[d], 2, (const int64_t[]){3, lengths[n]});
            give(&spec, KS_NORM_WEIGHT, false);
            give(&spec, KS_NORM_BIAS, false);
            data one = open_data(&spec);
            void *out[2];
            fill(&one, VALUES_NORMAL);
            for (int64_t i = 0; i < ks_tensor_count(&spec.in[0]); i++)
                values_put(dtypes[d], one.in[0], i, i < lengths[n] ? 3.0 : -1e4);
            run_both(&one, out);
            for (int b = 0; b < 2; b++) {
                for (int64_t i = 0; i < ks_tensor_count(&spec.in[0]) && out[b]; i++)
                    assert_true(values_get(dtypes[d], out[b], i) == values_get(dtypes[d], one.in[2], i % lengths[n]));
                free(out[b]);
            }
            close_data(&one);
        }
}

static void expect_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(ks_op_norm.resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static ks_spec with(ks_spec spec, int input, ks_dtype dtype, int rank, const int64_t *dims)
{
    spec.in[input] = (ks_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) spec.in[input].dims[i] = dims[i];
    spec.given |= (uint16_t)(1u << input);
    return spec;
}

/* FP64 whose additions round to the same side each time: sums that are not split into shorter ones are off by the length. */
static void long_rows_of_equal_doubles(void **state)
{
    (void)state;
    for (int n = 0; n < 24; n++) {
        ks_spec spec = spec_of(KS_FP64, 2, (const int64_t[]){2, n % 2 ? 16384 : 10000 + values_below(40000)});
        spec.params[KS_NORM_KIND].i = n % 4 < 2 ? KS_NORM_L2 : KS_NORM_RMS;
        try_on(&spec, n % 3 ? VALUES_EQUAL : VALUES_OFFSET, false);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const int64_t dims[9] = {2, 6, 4, 1, 1, 1, 1, 1, 1}, row[] = {4}, other[] = {6}, empty[] = {2, 0};
    const ks_spec good = spec_of(KS_BF16, 3, dims);
    expect_refusal(spec_of(KS_INT32, 2, dims), KS_DATATYPE, "INPUT0 has datatype INT32");
    expect_refusal(spec_of(KS_FP32, 0, dims), KS_SHAPE, "INPUT0 has rank 0");
    expect_refusal(with(good, 1, KS_FP16, 1, row), KS_DATATYPE,
                   "INPUT1 (weight) has datatype FP16, INPUT0 BF16; it must be equal or FP32");
    expect_refusal(with(good, 3, KS_FP32, 3, dims), KS_DATATYPE,
                   "INPUT3 (residual) has datatype FP32, INPUT0 BF16; it must be equal");
    expect_refusal(with(good, 1, KS_FP32, 1, other), KS_SHAPE, "INPUT1 (weight) has shape [6], needs [4]");
    expect_refusal(with(good, 2, KS_BF16, 2, dims), KS_SHAPE, "INPUT2 (bias) has shape [2,6], needs [4]");
    expect_refusal(with(good, 3, KS_BF16, 2, dims), KS_SHAPE, "INPUT3 (residual) has shape [2,6], needs [2,6,4]");
    expect_refusal(with(good, 4, KS_BF16, 1, other), KS_SHAPE, "INPUT4 (pre_bias) has shape [6], needs [4]");
    expect_refusal(with(good, 4, KS_BF16, 2, dims), KS_SHAPE, "INPUT4 has rank 2");
    ks_spec spec = good;
    spec.params[KS_NORM_AXIS].axes = (ks_axes){.count = 1, .axis = {1}};
    expect_refusal(spec, KS_AXIS, "axis lists 1 axes from 1 on, needs the last ones of INPUT0's rank 3");
    spec.params[KS_NORM_AXIS].axes = (ks_axes){.count = 1, .axis = {3}};
    expect_refusal(spec, KS_AXIS, "axis 3 is outside [-3, 3)");
    spec.params[KS_NORM_AXIS].axes = (ks_axes){.count = 2, .axis = {2, -1}};
    expect_refusal(spec, KS_AXIS, "axis -1 is listed twice");
    spec = good;
    spec.params[KS_NORM_GROUPS].i = 2;
    expect_refusal(spec, KS_PARAMETER, "groups is 2, and kind 'layer' has 1");
    spec.params[KS_NORM_KIND].i = KS_NORM_GROUP;
    spec.params[KS_NORM_GROUPS].i = 4;
    expect_refusal(spec, KS_PARAMETER, "groups is 4, which does not divide the 6 channels");
    spec.params[KS_NORM_GROUPS].i = 0;
    expect_refusal(spec, KS_PARAMETER, "groups is 0");
    spec.params[KS_NORM_GROUPS].i = 2;
    spec.params[KS_NORM_AXIS].axes = (ks_axes){.count = 1, .axis = {2}};
    expect_refusal(spec, KS_AXIS, "group takes no axis");
    spec = spec_of(KS_FP32, 1, dims);
    spec.params[KS_NORM_KIND].i = KS_NORM_GROUP;
    expect_refusal(spec, KS_SHAPE, "group needs 2 to 8");
    spec = good;
    spec.params[KS_NORM_EPS].d = -1e-5;
    expect_refusal(spec, KS_PARAMETER, "eps");
    expect_refusal(spec_of(KS_FP32, 2, empty), KS_EMPTY, "layer of nothing");
}

static void equal_work_has_equal_keys(void **state)
{
    (void)state;
    ks_spec a = spec_of(KS_FP32, 3, (const int64_t[]){2, 3, 4}), b = a;
    last_axes(&a, 2);
    b.params[KS_NORM_AXIS].axes = (ks_axes){.count = 2, .axis = {2, 1}};
    a.params[KS_NORM_EPS].d = 1e-5;
    assert_int_equal(ks_op_norm.resolve(&a, NULL), KS_OK);
    assert_int_equal(ks_op_norm.resolve(&b, NULL), KS_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(ks_op_norm.resolve(&b, NULL), KS_OK); /* once more, as row blocks are */
    assert_memory_equal(&a, &b, sizeof a);
    ks_op_norm.sample(&a);
    assert_int_equal(ks_op_norm.resolve(&a, NULL), KS_OK);
    assert_int_equal(a.outputs, 2);
}

/* Offsets beyond 2^31 elements and 2^32 bytes: some rows anywhere, the last ones among them. */
static void over_two_to_the_31(void **state)
{
    (void)state;
    enum { PERIOD = 65521 };
    static uint16_t pattern[PERIOD];
    if (!getenv("KS_HUGE")) {
        printf("skip: KS_HUGE is not set, no tensor of over 2^31 elements\n");
        skip();
    }
    ks_spec spec = spec_of(KS_FP16, 2, (const int64_t[]){((int64_t)1 << 21) + 3, 1024});
    data d = open_data(&spec);
    const size_t bytes = spec.in[0].size_bytes;
    unsigned char *out = malloc(bytes);
    if (!out) fail_msg("no memory for two times %zu bytes", bytes);
    values_fill(KS_FP16, pattern, PERIOD, VALUES_NORMAL, 1);
    for (size_t at = 0; at < bytes; at += sizeof pattern)
        memcpy((unsigned char *)d.in[0] + at, pattern, bytes - at < sizeof pattern ? bytes - at : sizeof pattern);
    for (int b = 0; b < 2; b++) {
        ks_error error = {0};
        if (!op_harness_once(b ? ks_backend_cuda : ks_backend_cpu, 2 * bytes + (64 << 20), &spec,
                             (const void *const *)d.in, out, &error))
            continue;
        if (error.status != KS_OK) fail_msg("%s", error.text);
        check(&d, out, b ? "cuda" : "cpu", 64);
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
        cmocka_unit_test(borders_of_rows),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(rows_of_the_whole_chip),
        cmocka_unit_test(groups_of_channels),
        cmocka_unit_test(scaling_changes_no_bit),
        cmocka_unit_test(nothing_added_is_nothing),
        cmocka_unit_test(rows_depend_on_themselves_alone),
        cmocka_unit_test(one_group_is_a_layer),
        cmocka_unit_test(a_shift_stays_within_bounds),
        cmocka_unit_test(rows_of_extreme_size),
        cmocka_unit_test(constant_rows_give_the_bias),
        cmocka_unit_test(long_rows_of_equal_doubles),
        cmocka_unit_test(refusals),
        cmocka_unit_test(equal_work_has_equal_keys),
        cmocka_unit_test(over_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
