/* Softmax against a naive evaluation in long double: the reference by itself in buffers of exactly its size, then every
 * backend that this machine has, on all its paths. KS_CASES, KS_SEED: how many random cases, and which. KS_HUGE: also tensors
 * of over 2^31 elements. KS_ONLY: the one test of that name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_regimes.h"
#include "ops/op_values.h"
#include "cpu/reference.h"

extern const ks_op ks_op_softmax;

enum { AXIS, LOG, SCALE, CAUSAL, MASKED_ROWS, OUT_DATATYPE };
enum { ARENA_BYTES = 64 << 20 };
#include "ops/op_backends.h"

static const ks_dtype dtypes[] = {KS_FP32, KS_FP16, KS_BF16, KS_FP64};

static ks_spec spec_of(ks_dtype dtype, int rank, const int64_t *dims)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_softmax);
    spec.in[0].dtype = dtype;
    spec.in[0].rank = rank;
    for (int i = 0; i < rank; i++) spec.in[0].dims[i] = dims[i];
    return spec;
}

static void describe(const ks_spec *spec, const char *who, int64_t at)
{
    char dims[128];
    ks_dims_text(&spec->in[0], dims, sizeof dims);
    print_error("%s: %s [%s] axis %d log %d scale %g, element %lld\n", who, ks_dtype_name(spec->in[0].dtype), dims,
                (int)spec->params[AXIS].i, (int)spec->params[LOG].i, spec->params[SCALE].d, (long long)at);
}

/* What the elements of a row are told by. */
typedef struct oracle {
    long double scale, max, sum, log_sum;
    long double top; /* the row's element that scales to max */
    bool log, nan;   /* nan: all of them are */
} oracle;

/* How far an element scales to below its row's maximum. The difference of two elements is exact where that of their products is not:
 * in 0.3 * 467043.6 a long double loses units of a double of 10. */
static long double fallen(const oracle *o, long double element)
{
    return o->scale * (element - o->top);
}

/* Of the last row that oracle_row() has seen, as long as it is not NaN: the terms of its sum, which its elements are told by again. */
static long double *terms_now;

/* Of the row that starts at `at`. */
static oracle oracle_row(const ks_spec *spec, const void *in, int64_t at, int64_t stride, int64_t length)
{
    const ks_dtype dtype = spec->in[0].dtype;
    const double given = spec->params[SCALE].d;
    oracle o = {.scale = dtype == KS_FP64 ? (long double)given : (long double)(float)given,
                .max = -INFINITY,
                .log = spec->params[LOG].i != 0};
    for (int64_t i = 0; i < length; i++) {
        const long double z = o.scale * values_get(dtype, in, at + i * stride);
        o.nan |= isnan(z);
        if (!(z > o.max)) continue;
        o.max = z;
        o.top = values_get(dtype, in, at + i * stride);
    }
    o.nan |= isinf(o.max);
    terms_now = realloc(terms_now, (size_t)(length + 1) * sizeof *terms_now);
    assert_non_null(terms_now);
    long double lost = 0; /* by the sum so far: equal terms lose the same each time, in a long row units of a double */
    for (int64_t i = 0; i < length && !o.nan; i++) {
        terms_now[i] = expl(fallen(&o, values_get(dtype, in, at + i * stride)));
        const long double term = terms_now[i] - lost;
        const long double sum = o.sum + term;
        lost = sum - o.sum - term;
        o.sum = sum;
    }
    o.log_sum = logl(o.sum);
    return o;
}

/* The kernels add in trees: where a row's largest element is nearly all of its sum, each level of the tree may lose half
 * a unit of the others, and the logarithm shows it. */
static bool near_enough(const ks_spec *spec, long double got, long double ref, long double distance,
                        long double log_sum)
{
    const ks_dtype dtype = spec->in[0].dtype;
    if (isnan(ref)) return isnan(got);
    if (got == ref) return true;
    if (isinf(ref) || isnan(got)) return false;
    const long double u = values_roundoff(dtype), unit = dtype == KS_FP64 ? 0x1p-52L : 0x1p-23L;
    const long double grown = spec->params[SCALE].d == 1 ? 1 : 1.5L; /* one more rounding */
    const long double d = isinf(distance) ? 0 : fabsl(distance);
    const long double levels = values_levels(spec->in[0].dims[spec->params[AXIS].i]);
    long double bound =
        spec->params[LOG].i ? unit * (2 * (d + fabsl(log_sum) + 1) + levels / 2) : (grown * d + 8) * unit * fabsl(ref);
    bound += (dtype == KS_FP32 || dtype == KS_FP64 ? 0 : 1.01L * u * fabsl(ref)) + 2 * values_floor(dtype);
    if (!spec->params[LOG].i && dtype != KS_FP64) bound += 1e-37L;
    if (!spec->params[LOG].i && dtype == KS_FP64) bound += 1e-307L;
    if (isinf(got)) return fabsl(ref) + bound >= values_limit(dtype) && (got > 0) == (ref > 0);
    return fabsl(got - ref) <= bound;
}

static void check_row(const ks_spec *spec, const void *in, const void *out, const char *who, int64_t r)
{
    const ks_tensor *x = &spec->in[0];
    const int axis = (int)spec->params[AXIS].i;
    const int64_t length = x->dims[axis], inner = ks_dims_product(x->dims, axis + 1, x->rank);
    const int64_t at = r / inner * length * inner + r % inner;
    const oracle o = oracle_row(spec, in, at, inner, length);
    long double sum = 0;
    for (int64_t i = 0; i < length; i++) {
        const long double distance = fallen(&o, values_get(x->dtype, in, at + i * inner));
        const long double want = o.nan ? (long double)NAN : o.log ? distance - o.log_sum : terms_now[i] / o.sum;
        const long double got = values_get(x->dtype, out, at + i * inner);
        sum += got;
        if (near_enough(spec, got, want, distance, o.log_sum)) continue;
        describe(spec, who, at + i * inner);
        fail_msg("got %.17Lg, expected %.17Lg", got, want);
    }
    if (x->dtype == KS_FP32 && !o.log && !o.nan) assert_true(fabsl(sum - 1) < 1e-5L);
}

static int64_t rows_of(const ks_spec *spec)
{
    const int64_t count = ks_tensor_count(&spec->in[0]);
    return count ? count / spec->in[0].dims[spec->params[AXIS].i] : 0;
}

/* At most so many rows, the last one among them. */
static void check(const ks_spec *spec, const void *in, const void *out, const char *who, int64_t most)
{
    const int64_t rows = rows_of(spec);
    for (int64_t i = 0; i < rows && i < most; i++)
        check_row(spec, in, out, who, rows <= most ? i : i ? (int64_t)(values_next() % (uint64_t)rows) : rows - 1);
}

static void run_backends(const ks_spec *spec, const void *in, void *out, int first, int64_t most)
{
    for (int b = first; b < 2; b++) {
        if (!harnesses[b]) continue;
        ks_error error = {0};
        const op_path path = (op_path)values_below(3);
        const int copies = values_below(3) ? 1 : 1 + values_below(9);
        op_harness_fix(harnesses[b], values_below(4) == 0);
        const ks_status status = op_harness_run(harnesses[b], spec, &in, out, path, copies, values_below(2), &error);
        op_harness_fix(harnesses[b], 0);
        if (status != KS_OK) describe(spec, b ? "cuda" : "cpu", -1);
        if (status != KS_OK) fail_msg("%s", error.text);
        check(spec, in, out, b ? "cuda" : "cpu", most);
    }
}

/* Resolves, fills, runs, compares: everywhere and all of it, or on a GPU alone and some rows. */
static void try_on(ks_spec *spec, values_kind kind, bool gpu_only)
{
    enum { SOME = 40 };
    ks_error error = {0};
    if (ks_op_softmax.resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
    const ks_tensor *x = &spec->in[0];
    assert_int_equal(spec->out[0].size_bytes, x->size_bytes);
    const int64_t last = x->dims[x->rank - 1];
    void *in = malloc(x->size_bytes ? x->size_bytes : 1), *out = malloc(x->size_bytes ? x->size_bytes : 1);
    void *scratch = malloc(ks_cpu_scratch_bytes(spec));
    assert_true(in && out && scratch);
    values_fill(x->dtype, in, ks_tensor_count(x), kind, last ? last : 1);
    if (!gpu_only) {
        memset(out, 0xFF, x->size_bytes);
        const void *inputs[] = {in};
        ks_cpu_reference(spec, inputs, (void *const[]){out}, scratch);
        check(spec, in, out, "reference", INT64_MAX);
    }
    run_backends(spec, in, out, gpu_only, gpu_only ? SOME : INT64_MAX);
    free(scratch);
    free(out);
    free(in);
}

static void try_spec(ks_spec *spec, values_kind kind)
{
    try_on(spec, kind, false);
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    static const double scales[] = {1, 1, 1, 0.125, -1, 0.3, 7.5, -2.25, 0, 1e-3};
    const int cases = values_cases(400);
    for (int i = 0; i < cases; i++) {
        ks_tensor shape = {0};
        int axis = -1;
        if (values_below(4) == 0)
            axis = regimes_softmax(&shape);
        else
            values_shape(&shape, 5, values_most());
        ks_spec spec = spec_of(dtypes[values_below(4)], shape.rank, shape.dims);
        spec.params[AXIS].i = axis > 0 ? axis : values_below(2 * shape.rank) - shape.rank;
        spec.params[LOG].i = values_below(3) == 0;
        spec.params[SCALE].d = scales[values_below(sizeof scales / sizeof *scales)];
        try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
    }
    printf("%d random cases\n", cases);
}

/* As random cases draw them, and no other ones. */
static void regimes(void **state)
{
    (void)state;
    const int cases = values_cases(400) / 8 + 1;
    for (int i = 0; i < cases; i++) {
        ks_tensor shape = {0};
        const int axis = regimes_softmax(&shape);
        ks_spec spec = spec_of(dtypes[values_below(4)], shape.rank, shape.dims);
        spec.params[AXIS].i = axis;
        spec.params[LOG].i = values_below(3) == 0;
        try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
    }
}

static const int64_t boundaries[] = {1,    2,    3,    4,    5,     6,     7,     8,     9,     15,    16,   17,   23,
                                     24,   25,   31,   32,   33,    40,    63,    64,    65,    127,   128,  129,  191,
                                     255,  256,  257,  511,  512,   513,   1023,  1024,  1025,  2047,  2048, 2049, 4095,
                                     4096, 4097, 8191, 8193, 16383, 16384, 16385, 32767, 32769, 65535, 65537};

static void lengths_around_powers_of_two(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof boundaries / sizeof *boundaries; n++) {
        const int64_t length = boundaries[n], rows = length < 5000 ? 3 : 1;
        for (int d = 0; d < 4; d++) {
            ks_spec spec = spec_of(dtypes[d], 2, (const int64_t[]){rows, length});
            spec.params[LOG].i = values_below(2);
            try_spec(&spec, (values_kind)values_below(VALUES_FINITE));
        }
    }
    for (size_t n = 0; n < sizeof boundaries / sizeof *boundaries && boundaries[n] <= 4097; n++) {
        static const int64_t inners[] = {2, 3, 31, 33, 130};
        ks_spec spec = spec_of(dtypes[n % 4], 2, (const int64_t[]){boundaries[n], inners[n % 5]});
        spec.params[AXIS].i = 0;
        try_spec(&spec, (values_kind)values_below(VALUES_FINITE));
    }
}

static void long_rows(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{2, 70001}, {1, 300000}, {40, 9000}};
    for (int i = 0; i < 3; i++) {
        ks_spec spec = spec_of(dtypes[values_below(4)], 2, shapes[i]);
        spec.params[LOG].i = i & 1;
        try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
        spec = spec_of(dtypes[values_below(4)], 2, (const int64_t[]){shapes[i][1], shapes[i][0] == 1 ? 2 : 3});
        spec.params[AXIS].i = 0;
        try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
    }
}

/* CTAs that wait for each other's part of a line get one that is NaN. */
static void long_lines_with_a_nan(void **state)
{
    (void)state;
    for (int d = 0; d < 4; d++)
        for (int axis = 0; axis < 2; axis++) {
            ks_spec spec = spec_of(dtypes[d], 2, axis ? (const int64_t[]){2, 40001} : (const int64_t[]){40001, 2});
            spec.params[AXIS].i = axis;
            spec.params[LOG].i = values_below(2);
            try_spec(&spec, VALUES_NAN);
        }
}

/* Where the CUDA planner goes over from one kernel to another, in vectors of a row or rows of a tile; each with a row that
 * is whole vectors and some that are not, with few rows and with enough for a chip. */
static void borders_of_rows(void **state)
{
    (void)state;
    static const int64_t vectors[] = {1,   2,   31,  32,  33,  63,   64,   65,   127,
                                      128, 129, 511, 512, 513, 1024, 2047, 2048, 2049};
    for (size_t n = 0; n < sizeof vectors / sizeof *vectors; n++) {
        const ks_dtype dtype = dtypes[values_below(4)];
        const int64_t in_vector = 16 / (int64_t)ks_dtype_size(dtype);
        for (int odd = 0; odd < 2; odd++) {
            const int64_t length = vectors[n] * in_vector + (odd ? 1 + values_below((int)in_vector) : 0);
            const int64_t rows = values_below(2) ? 1 + values_below(4) : 1 + 60000 / length;
            ks_spec spec = spec_of(dtype, 2, (const int64_t[]){rows, length});
            spec.params[LOG].i = values_below(2);
            if (values_below(4) == 0) spec.params[SCALE].d = values_below(2) ? -0.5 : 0;
            try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
        }
    }
}

/* Where short rows that are not whole vectors get more lanes, or other kernels; with rows for more than one round. */
static void borders_of_short_rows(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1,  2,  3,  4,   5,   7,   13,  14,  15,  17,  18,  29,  30,  31,  59,
                                      61, 62, 90, 119, 121, 122, 191, 193, 241, 257, 383, 481, 501, 1017};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int d = 0; d < 4; d++) {
            const int64_t rows = 1 + values_below(1 + 12000 / (int)lengths[n]);
            ks_spec spec = spec_of(dtypes[d], 2, (const int64_t[]){rows, lengths[n]});
            spec.params[LOG].i = values_below(2);
            if (values_below(4) == 0) spec.params[SCALE].d = values_below(2) ? -0.5 : 0;
            try_spec(&spec, (values_kind)values_below(VALUES_KINDS));
        }
}

/* Neighbours whose maxima lie on both sides of the one up to which a row's terms are told by its level: about 256 / log2 e. */
static void levels_of_short_rows(void **state)
{
    (void)state;
    static const int64_t lengths[] = {121, 257, 390, 511};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int d = 0; d < 4; d++) {
            ks_spec spec = spec_of(dtypes[d], 2, (const int64_t[]){40, lengths[n]});
            spec.params[SCALE].d = 63; /* the greatest of so many normals is 2.8 or so */
            try_spec(&spec, VALUES_NORMAL);
        }
}

typedef struct lines {
    ks_dtype dtype;
    int64_t outer, length, inner;
} lines;

static void try_lines(const lines *l, bool gpu_only)
{
    ks_spec spec = spec_of(l->dtype, 3, (const int64_t[]){l->outer, l->length, l->inner});
    spec.params[AXIS].i = 1;
    spec.params[LOG].i = values_below(2);
    if (values_below(4) == 0) spec.params[SCALE].d = values_below(2) ? -0.5 : 0;
    try_on(&spec, (values_kind)values_below(gpu_only ? VALUES_FINITE : VALUES_KINDS), gpu_only);
}

static void borders_of_columns(void **state)
{
    (void)state;
    static const lines table[] = {
        {KS_FP32, 500, 2, 5},   {KS_BF16, 90, 16, 3},    {KS_FP64, 64, 17, 3},    {KS_FP32, 30, 480, 3},
        {KS_FP16, 50, 481, 2},  {KS_FP32, 300, 10, 3},   {KS_FP16, 40, 100, 7},   {KS_BF16, 3, 300, 5},
        {KS_FP64, 5, 33, 9}, /* small lines */
        {KS_FP32, 1, 1, 5000},  {KS_BF16, 2, 3, 1000},   {KS_FP32, 100, 16, 24},  {KS_FP16, 20, 17, 64},
        {KS_FP64, 9, 64, 10},   {KS_FP32, 2, 65, 100},   {KS_BF16, 3, 127, 40},   {KS_FP32, 1, 512, 32},
        {KS_FP16, 1, 513, 128}, {KS_FP32, 2, 2000, 36},  {KS_FP64, 1, 5000, 6},   {KS_BF16, 1, 9000, 8},
        {KS_FP32, 3, 256, 131}, {KS_BF16, 2, 1000, 49},  {KS_FP32, 1, 20000, 3},  {KS_FP64, 1, 700, 33},
        {KS_FP32, 40, 700, 4},  {KS_FP16, 1, 3000, 31},  {KS_FP32, 1, 1025, 64},  {KS_BF16, 1, 60000, 1},
        {KS_FP32, 1, 40000, 8}, {KS_BF16, 1, 70000, 8},  {KS_FP32, 1, 1500, 200}, {KS_BF16, 1, 1100, 392},
        {KS_FP16, 3, 1030, 72}, {KS_BF16, 1, 3000, 136}, {KS_FP32, 1, 4500, 68},  {KS_FP16, 2, 2050, 64},
        {KS_FP32, 2, 900, 40},  {KS_BF16, 1, 700, 128},  {KS_FP32, 1, 3900, 200}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) try_lines(&table[i], false);
}

/* What is too much for a quick test of the reference, and needs many CTAs. */
static void rows_and_columns_of_the_whole_chip(void **state)
{
    (void)state;
    static const lines table[] = {
        {KS_FP32, 300, 1000, 1},  {KS_BF16, 20000, 33, 1},  {KS_FP16, 9000, 64, 1},   {KS_FP32, 900, 1023, 1},
        {KS_BF16, 150, 9000, 1},  {KS_FP32, 3, 32768, 1},   {KS_FP32, 70, 32769, 1},  {KS_FP16, 150, 16380, 1},
        {KS_FP64, 140, 8193, 1},  {KS_FP32, 7, 131072, 1},  {KS_BF16, 3, 1000003, 1}, {KS_FP64, 2, 300001, 1},
        {KS_FP32, 1, 4500001, 1}, {KS_FP32, 1, 7500001, 1}, {KS_FP64, 1, 2500003, 1}, {KS_FP32, 1, 8192, 512},
        {KS_BF16, 1, 8200, 1000}, {KS_FP32, 2, 4097, 804},  {KS_FP32, 130, 40000, 1}, {KS_BF16, 12, 300000, 1},
        {KS_BF16, 3, 4000001, 1}, {KS_FP32, 2, 3000003, 1}, {KS_BF16, 2, 6900000, 1}, {KS_FP32, 3, 1100001, 1},
        {KS_BF16, 1, 5000, 2004}, {KS_FP32, 1, 3001, 1300}, {KS_FP16, 2, 8192, 648},  {KS_FP32, 1, 12000, 300},
        {KS_FP32, 3, 1500000, 1}, {KS_BF16, 4, 1500, 256},  {KS_FP16, 1, 100000, 8},  {KS_FP32, 1, 1000000, 3},
        {KS_FP32, 1, 1700000, 4}, {KS_FP64, 1, 1100000, 3}, {KS_BF16, 1, 600000, 3},  {KS_FP32, 4096, 3, 128},
        {KS_FP32, 8, 21, 8192},   {KS_BF16, 2000, 300, 3},  {KS_BF16, 500000, 2, 1},  {KS_FP32, 300000, 7, 1},
        {KS_BF16, 50000, 100, 1}, {KS_FP32, 20000, 257, 1}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) {
        printf("skip: no chip of that size\n");
        skip();
    }
    const size_t count = sizeof table / sizeof *table;
    for (size_t i = 0; i < count; i++)
        if (values_cases(400) >= 10 || i % 4 == (size_t)values_below(4)) try_lines(&table[i], true);
}

static void special_values(void **state)
{
    (void)state;
    enum { ROWS = 7 };
    const float inf = INFINITY, nan = NAN, most = 3.4e38f;
    static const int64_t dims[] = {ROWS, 3};
    const float x[ROWS][3] = {{-inf, -inf, -inf},  {1, inf, 2},   {1, nan, 2},          {-inf, 1, 1},
                              {most, -most, most}, {0, -0.0f, 0}, {-most, -most, -most}};
    const float softmax[ROWS][3] = {{nan, nan, nan},
                                    {nan, nan, nan},
                                    {nan, nan, nan},
                                    {0, 0.5f, 0.5f},
                                    {0.5f, 0, 0.5f},
                                    {1 / 3.f, 1 / 3.f, 1 / 3.f},
                                    {1 / 3.f, 1 / 3.f, 1 / 3.f}};
    const float half = -0.693147181f, third = -1.09861229f;
    const float logs[ROWS][3] = {{nan, nan, nan},    {nan, nan, nan},       {nan, nan, nan},      {-inf, half, half},
                                 {half, -inf, half}, {third, third, third}, {third, third, third}};
    for (int log = 0; log < 2; log++)
        for (int b = -1; b < 2; b++) {
            if (b >= 0 && !harnesses[b]) continue;
            ks_spec spec = spec_of(KS_FP32, 2, dims);
            spec.params[LOG].i = log;
            assert_int_equal(ks_op_softmax.resolve(&spec, NULL), KS_OK);
            ks_spec_layout(&spec);
            float out[ROWS][3];
            void *scratch = malloc(ks_cpu_scratch_bytes(&spec));
            const void *in[] = {x};
            ks_error error = {0};
            if (b < 0)
                ks_cpu_reference(&spec, in, (void *const[]){out}, scratch);
            else if (op_harness_run(harnesses[b], &spec, in, out, OP_PATH_PLANNED, 1, false, &error) != KS_OK)
                fail_msg("%s", error.text);
            free(scratch);
            for (int i = 0; i < ROWS * 3; i++) {
                const float got = out[i / 3][i % 3], want = (log ? logs : softmax)[i / 3][i % 3];
                if (isnan(want) ? !isnan(got)
                                : got != want && !(fabsf(got - want) < 2e-7f || (log && i / 3 == 4 && got < -1e38f)))
                    fail_msg("%d: log %d element %d: got %g, expected %g", b, log, i, (double)got, (double)want);
            }
        }
}

static void expect_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(ks_op_softmax.resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void refusals(void **state)
{
    (void)state;
    static const int64_t dims[9] = {2, 3, 1, 1, 1, 1, 1, 1, 1};
    expect_refusal(spec_of(KS_INT32, 2, dims), KS_DATATYPE, "INT32");
    expect_refusal(spec_of(KS_BYTES, 2, dims), KS_DATATYPE, "BYTES");
    expect_refusal(spec_of(KS_FP32, 0, dims), KS_SHAPE, "rank 0");
    ks_spec spec = spec_of(KS_FP32, 2, dims);
    spec.params[AXIS].i = 2;
    expect_refusal(spec, KS_AXIS, "axis 2 is outside [-2, 2)");
    spec.params[AXIS].i = INT64_MIN;
    expect_refusal(spec, KS_AXIS, "axis -9223372036854775808");
    spec = spec_of(KS_FP32, 2, dims);
    spec.params[SCALE].d = 2e38;
    expect_refusal(spec, KS_PARAMETER, "scale");
    spec.params[SCALE].d = (double)NAN;
    expect_refusal(spec, KS_PARAMETER, "scale");
    expect_refusal(spec_of(KS_FP32, 2, (const int64_t[]){2, -3}), KS_SHAPE, "-3");
    expect_refusal(spec_of(KS_FP32, 2, (const int64_t[]){INT64_MAX, 4}), KS_SHAPE, "INPUT0");
}

static void equal_work_has_equal_keys(void **state)
{
    (void)state;
    ks_spec a = spec_of(KS_FP32, 2, (const int64_t[]){2, 3}), b = a;
    a.params[AXIS].i = 1;
    a.params[SCALE].d = 0.0;
    b.params[SCALE].d = -0.0;
    assert_int_equal(ks_op_softmax.resolve(&a, NULL), KS_OK);
    assert_int_equal(ks_op_softmax.resolve(&b, NULL), KS_OK);
    assert_memory_equal(&a, &b, sizeof a);
    ks_op_softmax.sample(&a);
    assert_int_equal(ks_op_softmax.resolve(&a, NULL), KS_OK);
}

/* Offsets beyond 2^31 elements and 2^32 bytes: some rows anywhere, the last ones among them. */
static void huge(const op_harness *cpu, int axis, int64_t rows, int64_t columns)
{
    enum { PERIOD = 65521 };
    static uint16_t pattern[PERIOD];
    ks_spec spec = spec_of(KS_FP16, 2, (const int64_t[]){rows, columns});
    spec.params[AXIS].i = axis;
    assert_int_equal(ks_op_softmax.resolve(&spec, NULL), KS_OK);
    const size_t bytes = spec.in[0].size_bytes;
    unsigned char *in = malloc(bytes), *out = malloc(bytes);
    if (!in || !out) fail_msg("no memory for two times %zu bytes", bytes);
    values_fill(KS_FP16, pattern, PERIOD, VALUES_NORMAL, 1);
    for (size_t at = 0; at < bytes; at += sizeof pattern)
        memcpy(in + at, pattern, bytes - at < sizeof pattern ? bytes - at : sizeof pattern);
    for (int b = 0; b < 2; b++) {
        if (b ? !ks_backend_cuda : !cpu) continue;
        op_harness *harness = op_harness_open(b ? ks_backend_cuda : ks_backend_cpu, 2 * bytes + (64 << 20));
        if (!harness) continue;
        ks_error error = {0};
        const void *inputs[] = {in};
        if (op_harness_run(harness, &spec, inputs, out, OP_PATH_PLANNED, 1, false, &error) != KS_OK)
            fail_msg("%s", error.text);
        op_harness_close(&harness);
        const int64_t all = rows_of(&spec);
        for (int64_t i = 0; i < 64; i++)
            check_row(&spec, in, out, b ? "cuda" : "cpu",
                      i < 8 ? all - 1 - i : (int64_t)(values_next() % (uint64_t)all));
    }
    free(out);
    free(in);
}

static void over_two_to_the_31(void **state)
{
    (void)state;
    if (!getenv("KS_HUGE")) {
        printf("skip: KS_HUGE is not set, no tensor of over 2^31 elements\n");
        skip();
    }
    huge(harnesses[0], 1, ((int64_t)1 << 21) + 3, 1024);
    huge(harnesses[0], 0, 1024, ((int64_t)1 << 21) + 3);
}

/* --- selected elements ----------------------------------------------------------------------------------------------- */

enum { NONE, TOP_LEFT, BOTTOM_RIGHT };

/* The place of x's element i in a tensor that broadcasts to it, by coordinates. */
static int64_t broadcast_place(const ks_tensor *x, const ks_tensor *small, int64_t i)
{
    int64_t place = 0, stride = 1;
    for (int axis = x->rank - 1, own = small->rank - 1; own >= 0; axis--, own--) {
        const int64_t at = i % x->dims[axis];
        i /= x->dims[axis];
        place += (small->dims[own] == 1 ? 0 : at) * stride;
        stride *= small->dims[own];
    }
    return place;
}

static bool is_masked(const ks_spec *spec)
{
    return (spec->given & 2) != 0;
}

static bool has_lengths(const ks_spec *spec)
{
    return (spec->given & 4) != 0;
}

/* Of x's element i: the place of its length, whose extents are x's first ones. */
static int64_t length_place(const ks_spec *spec, int64_t i)
{
    const ks_tensor *x = &spec->in[0];
    return i / ks_dims_product(x->dims, spec->in[2].rank, x->rank);
}

static void put_length(const ks_spec *spec, void *lengths, int64_t place, int64_t value)
{
    if (spec->in[2].dtype == KS_INT32)
        ((int32_t *)lengths)[place] = (int32_t)value;
    else
        ((int64_t *)lengths)[place] = value;
}

static bool is_selected(const ks_spec *spec, const void *const *in, int64_t i)
{
    const ks_tensor *x = &spec->in[0];
    const int axis = (int)spec->params[AXIS].i;
    if (is_masked(spec) && spec->in[1].dtype == KS_BOOL &&
        ((const uint8_t *)in[1])[broadcast_place(x, &spec->in[1], i)] == 0)
        return false;
    if (has_lengths(spec) && (long double)(i / ks_dims_product(x->dims, axis + 1, x->rank) % x->dims[axis]) >=
                                 values_get(spec->in[2].dtype, in[2], length_place(spec, i)))
        return false;
    if (spec->params[CAUSAL].i == NONE) return true;
    const int64_t columns = x->dims[x->rank - 1], rows = x->dims[x->rank - 2];
    const int64_t column = i % columns, row = i / columns % rows;
    return column <= row + (spec->params[CAUSAL].i == TOP_LEFT ? 0 : columns - rows);
}

static long double level_of(const ks_spec *spec, const void *const *in, int64_t i)
{
    const double scale = spec->params[SCALE].d;
    const long double z = (spec->in[0].dtype == KS_FP64 ? (long double)scale : (long double)(float)scale) *
                          values_get(spec->in[0].dtype, in[0], i);
    if (!is_masked(spec) || spec->in[1].dtype == KS_BOOL) return z;
    return z + values_get(spec->in[1].dtype, in[1], broadcast_place(&spec->in[0], &spec->in[1], i));
}

/* A row's greatest z of what is selected, and its sum. */
static oracle oracle_selected(const ks_spec *spec, const void *const *in, int64_t at, int64_t stride)
{
    const int64_t length = spec->in[0].dims[spec->params[AXIS].i];
    oracle o = {.max = -INFINITY, .log = spec->params[LOG].i != 0};
    for (int64_t i = at; i < at + length * stride; i += stride) {
        if (!is_selected(spec, in, i)) continue;
        const long double z = level_of(spec, in, i);
        o.nan |= isnan(z);
        if (z > o.max) o.max = z;
    }
    for (int64_t i = at; i < at + length * stride && isfinite(o.max); i += stride)
        if (is_selected(spec, in, i)) o.sum += expl(level_of(spec, in, i) - o.max);
    o.log_sum = logl(o.sum);
    return o;
}

static bool selected_right(const ks_spec *spec, const oracle *o, long double z, long double got)
{
    const ks_dtype dtype = spec->in[0].dtype, out = spec->out[0].dtype;
    const long double distance = z - o->max, want = o->log ? distance - o->log_sum : expl(distance) / o->sum;
    if (isnan(want) || o->nan || o->max == INFINITY) return isnan(got);
    if (got == want) return true;
    if (isnan(got) || isinf(want)) return false;
    const long double unit = dtype == KS_FP64 ? 0x1p-52L : 0x1p-23L;
    const long double reach = isinf(z) ? 0 : fabsl(z) + fabsl(o->max) + fabsl(distance);
    const long double levels = values_levels(spec->in[0].dims[spec->params[AXIS].i]);
    long double bound = o->log ? unit * (2 * (reach + fabsl(o->log_sum) + 1) + levels / 2)
                               : (reach + 8 + levels / 4) * unit * fabsl(want) + (dtype == KS_FP64 ? 1e-307L : 1e-37L);
    bound += 1.01L * values_roundoff(out) * fabsl(want) + 2 * values_floor(out);
    if (isinf(got)) return fabsl(want) + bound >= values_limit(out) && (got > 0) == (want > 0);
    return fabsl(got - want) <= bound;
}

static void check_selected_row(const ks_spec *spec, const void *const *in, const void *out, const char *who, int64_t r)
{
    const ks_tensor *x = &spec->in[0];
    const int axis = (int)spec->params[AXIS].i;
    const int64_t length = x->dims[axis], inner = ks_dims_product(x->dims, axis + 1, x->rank);
    const int64_t at = r / inner * length * inner + r % inner;
    const oracle o = oracle_selected(spec, in, at, inner);
    const bool nothing = o.max == -INFINITY && !o.nan, zero = spec->params[MASKED_ROWS].i != 0;
    const long double none = o.log ? -(long double)INFINITY : 0;
    for (int64_t i = at; i < at + length * inner; i += inner) {
        const long double got = values_get(spec->out[0].dtype, out, i);
        const bool right = nothing                    ? (zero ? got == none : isnan(got))
                           : is_selected(spec, in, i) ? selected_right(spec, &o, level_of(spec, in, i), got)
                                                      : got == none;
        if (right) continue;
        describe(spec, who, i);
        fail_msg(
            "causal %d, masked_rows %d, mask %s, lengths of rank %d, out %s: got %.17Lg; z %.17Lg of at most %.17Lg, "
            "sum %.17Lg",
            (int)spec->params[CAUSAL].i, (int)spec->params[MASKED_ROWS].i,
            is_masked(spec) ? ks_dtype_name(spec->in[1].dtype) : "none", has_lengths(spec) ? spec->in[2].rank : -1,
            ks_dtype_name(spec->out[0].dtype), got, level_of(spec, in, i), o.max, o.sum);
    }
}

static void check_selected(const ks_spec *spec, const void *const *in, const void *out, const char *who)
{
    for (int64_t r = 0; r < rows_of(spec); r++) check_selected_row(spec, in, out, who, r);
}

/* Each extent is x's or 1, and leading ones may be missing. */
static void draw_mask(ks_spec *spec)
{
    static const ks_dtype kinds[] = {KS_BOOL, KS_BOOL, KS_FP32};
    const ks_tensor *x = &spec->in[0];
    const int kind = values_below(5);
    if (kind == 4) return;
    ks_tensor *mask = &spec->in[1];
    *mask = (ks_tensor){.dtype = kind < 3 ? kinds[kind] : x->dtype, .rank = values_below(x->rank + 1)};
    if (values_below(2)) mask->rank = x->rank;
    for (int i = 0; i < mask->rank; i++) mask->dims[i] = values_below(3) ? x->dims[x->rank - mask->rank + i] : 1;
    spec->given |= 2;
}

static void fill_mask(const ks_spec *spec, void *mask)
{
    const ks_tensor *m = &spec->in[1];
    const int64_t count = ks_tensor_count(m);
    const int rate = 1 + values_below(6); /* 1: nothing is left */
    for (int64_t i = 0; i < count; i++) {
        if (m->dtype == KS_BOOL)
            ((uint8_t *)mask)[i] = values_below(rate) > 0;
        else
            values_put(m->dtype, mask, i, values_below(rate) ? 4 * values_normal() : (double)-INFINITY);
    }
    if (m->dtype != KS_BOOL && count && values_below(8) == 0)
        values_put(m->dtype, mask, (int64_t)(values_next() % (uint64_t)count), (double)NAN);
}

/* x's first extents in front of the axis, or fewer of them. */
static void draw_lengths(ks_spec *spec)
{
    const ks_tensor *x = &spec->in[0];
    const int64_t axis = spec->params[AXIS].i < 0 ? spec->params[AXIS].i + x->rank : spec->params[AXIS].i;
    ks_tensor *lengths = &spec->in[2];
    *lengths = (ks_tensor){.dtype = values_below(2) ? KS_INT32 : KS_INT64, .rank = (int)axis};
    if (values_below(2)) lengths->rank = values_below((int)axis + 1);
    memcpy(lengths->dims, x->dims, (size_t)lengths->rank * sizeof *lengths->dims);
    spec->given |= 4;
}

static void fill_lengths(const ks_spec *spec, void *lengths)
{
    const int64_t most = spec->in[0].dims[spec->params[AXIS].i];
    for (int64_t i = 0; i < ks_tensor_count(&spec->in[2]); i++)
        put_length(spec, lengths, i,
                   values_below(4)   ? (int64_t)(values_next() % (uint64_t)(most + 1))
                   : values_below(2) ? most
                                     : 0);
}

/* What is not selected is NaN, infinite or huge now and then. */
static void spoil(const ks_spec *spec, const void *const *in, void *x)
{
    static const double what[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 6e4};
    for (int64_t i = 0; i < ks_tensor_count(&spec->in[0]); i++)
        if (!is_selected(spec, in, i) && values_below(2)) values_put(spec->in[0].dtype, x, i, what[values_below(4)]);
}

static void try_selected(ks_spec *spec, values_kind kind)
{
    ks_error error = {0};
    if (ks_op_softmax.resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
    const ks_tensor *x = &spec->in[0];
    const int64_t last = x->dims[x->rank - 1];
    const size_t out_bytes = spec->out[0].size_bytes;
    void *in = malloc(x->size_bytes + 1), *out = malloc(out_bytes + 1), *first = malloc(out_bytes + 1);
    void *mask = malloc(is_masked(spec) ? spec->in[1].size_bytes + 1 : 1),
         *lengths = malloc(has_lengths(spec) ? spec->in[2].size_bytes + 1 : 1),
         *scratch = malloc(ks_cpu_scratch_bytes(spec));
    const void *inputs[] = {in, mask, lengths};
    assert_true(in && out && first && mask && lengths && scratch);
    values_fill(x->dtype, in, ks_tensor_count(x), kind, last ? last : 1);
    if (is_masked(spec)) fill_mask(spec, mask);
    if (has_lengths(spec)) fill_lengths(spec, lengths);
    if (values_below(2)) spoil(spec, inputs, in);
    memset(out, 0xFF, out_bytes);
    ks_cpu_reference(spec, inputs, (void *const[]){out}, scratch);
    check_selected(spec, inputs, out, "reference");
    for (int b = 0; b < 2; b++)
        for (int again = 0; again < 2 && harnesses[b]; again++) {
            op_harness_fix(harnesses[b], (unsigned)values_below(8) & spec->given);
            const ks_status status =
                op_harness_run(harnesses[b], spec, inputs, again ? out : first, (op_path)values_below(3),
                               1 + values_below(4), values_below(2), &error);
            op_harness_fix(harnesses[b], 0);
            if (status != KS_OK) describe(spec, b ? "cuda" : "cpu", -1);
            if (status != KS_OK) fail_msg("%s", error.text);
            if (again && out_bytes) assert_memory_equal(out, first, out_bytes);
            check_selected(spec, inputs, first, b ? "cuda" : "cpu");
        }
    free(scratch);
    free(lengths);
    free(mask);
    free(first);
    free(out);
    free(in);
}

static void draw_selection(ks_spec *spec)
{
    const bool last = spec->params[AXIS].i == -1 || spec->params[AXIS].i == spec->in[0].rank - 1;
    draw_mask(spec);
    if (values_below(3) == 0) draw_lengths(spec);
    if (last && spec->in[0].rank > 1) spec->params[CAUSAL].i = values_below(3);
    spec->params[MASKED_ROWS].i = values_below(2);
    spec->params[OUT_DATATYPE].i = values_below(3) ? 0 : values_below(5);
    spec->params[LOG].i = values_below(3) == 0;
    spec->params[SCALE].d = values_below(2) ? 1 : values_below(2) ? 0.3 : -2.25;
}

static void random_selections(void **state)
{
    (void)state;
    const int cases = values_cases(400);
    for (int i = 0; i < cases; i++) {
        ks_tensor shape = {0};
        values_shape(&shape, 5, values_most() / 4);
        ks_spec spec = spec_of(dtypes[values_below(4)], shape.rank, shape.dims);
        spec.params[AXIS].i = values_below(2) ? -1 : values_below(2 * shape.rank) - shape.rank;
        draw_selection(&spec);
        try_selected(&spec, (values_kind)values_below(VALUES_KINDS));
    }
    printf("%d random selections\n", cases);
}

/* Where rows of whole vectors get more threads, or another kernel; with a mask for each batch, heads sharing it. */
static void borders_of_selected_rows(void **state)
{
    (void)state;
    static const int64_t vectors[] = {1,   2,   31,  32,  33,  63,   64,   65,   127,  128, 129,
                                      255, 256, 257, 511, 513, 1023, 1025, 2047, 2048, 2049};
    for (size_t n = 0; n < sizeof vectors / sizeof *vectors; n++) {
        const ks_dtype dtype = dtypes[values_below(4)];
        const int64_t length = vectors[n] * 16 / (int64_t)ks_dtype_size(dtype) + (values_below(4) == 0);
        const int64_t rows = 1 + values_below(length < 2000 ? 7 : 2);
        ks_spec spec = spec_of(dtype, 4, (const int64_t[]){2, 2, rows, length});
        draw_selection(&spec);
        if (values_below(2)) {
            spec.given |= 2;
            spec.in[1] =
                (ks_tensor){.dtype = values_below(2) ? KS_BOOL : dtype, .rank = 4, .dims = {2, 1, rows, length}};
        }
        try_selected(&spec, (values_kind)values_below(VALUES_FINITE));
    }
}

/* A mask of BOOL and lengths that say what causal says give the same bytes, NaN where nothing is selected too; and so does a mask of 0
 * and -inf, as far as z is x there. */
static void masks_that_say_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        const ks_dtype dtype = dtypes[i % 4];
        const int64_t dims[] = {2, 1 + values_below(40), 1 + values_below(i < 12 ? 70 : 400)};
        ks_spec causal = spec_of(dtype, 3, dims);
        causal.params[CAUSAL].i = TOP_LEFT + i % 2;
        causal.params[LOG].i = values_below(2);
        assert_int_equal(ks_op_softmax.resolve(&causal, NULL), KS_OK);
        ks_spec truths = causal, added = causal, shorter = causal;
        truths.params[CAUSAL].i = added.params[CAUSAL].i = shorter.params[CAUSAL].i = NONE;
        shorter.given = 5;
        shorter.in[2] = (ks_tensor){.dtype = i % 3 ? KS_INT32 : KS_INT64, .rank = 2, .dims = {dims[0], dims[1]}};
        truths.given = added.given = 3;
        truths.in[1] = (ks_tensor){.dtype = KS_BOOL, .rank = 2, .dims = {dims[1], dims[2]}};
        added.in[1] = (ks_tensor){.dtype = dtype, .rank = 2, .dims = {dims[1], dims[2]}};
        ks_spec *const specs[] = {&causal, &truths, &added, &shorter};
        static const char *const names[] = {"causal", "a mask of BOOL", "an added mask", "lengths"};
        void *in = malloc(causal.in[0].size_bytes), *mask = malloc((size_t)(dims[1] * dims[2])),
             *numbers = malloc((size_t)(dims[1] * dims[2] * 8)), *lengths = calloc((size_t)(dims[0] * dims[1]), 8),
             *out[4];
        values_fill(dtype, in, ks_tensor_count(&causal.in[0]), VALUES_NORMAL, dims[2]);
        for (int64_t k = 0; k < dims[1] * dims[2]; k++) {
            ((uint8_t *)mask)[k] = is_selected(&causal, NULL, k);
            values_put(dtype, numbers, k, ((uint8_t *)mask)[k] ? 0 : (double)-INFINITY);
            for (int64_t n = k / dims[2]; ((uint8_t *)mask)[k] && n < dims[0] * dims[1]; n += dims[1])
                put_length(&shorter, lengths, n, k % dims[2] + 1);
        }
        for (int b = 0; b < 2; b++) {
            for (int k = 0; k < 4 && harnesses[b]; k++) {
                ks_error error = {0};
                if (ks_op_softmax.resolve(specs[k], &error) != KS_OK) fail_msg("%s", error.text);
                ks_spec_layout(specs[k]);
                out[k] = malloc(specs[k]->out[0].size_bytes);
                const void *inputs[] = {in, k == 1 ? mask : numbers, lengths};
                if (op_harness_run(harnesses[b], specs[k], inputs, out[k], (op_path)values_below(3), 1, false,
                                   &error) != KS_OK)
                    fail_msg("%s", error.text);
            }
            if (!harnesses[b]) continue;
            for (int k = 1; k < 4; k++) {
                if (memcmp(out[0], out[k], causal.out[0].size_bytes) != 0)
                    fail_msg("%s on the %s: %s has other bits than causal", ks_dtype_name(dtype), b ? "GPU" : "CPU",
                             names[k]);
            }
            for (int k = 0; k < 4; k++) free(out[k]);
        }
        free(lengths);
        free(numbers);
        free(mask);
        free(in);
    }
}

/* Resolved, laid out, with memory that is full: x, no mask, lengths; and the output. */
static void open_lengths(ks_spec *spec, void *memory[4])
{
    ks_error error = {0};
    if (ks_op_softmax.resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
    for (int i = 0; i < 3; i++) memory[i] = malloc(ks_has_input(spec, i) ? spec->in[i].size_bytes + 1 : 1);
    memory[3] = malloc(spec->out[0].size_bytes + 1);
    assert_true(memory[0] && memory[1] && memory[2] && memory[3]);
    values_fill(spec->in[0].dtype, memory[0], ks_tensor_count(&spec->in[0]), VALUES_NORMAL, 1);
    if (is_masked(spec)) fill_mask(spec, memory[1]);
    fill_lengths(spec, memory[2]);
}

/* Along any axis: a mask of BOOL of x's whole shape, and NaN behind each length. */
static void lengths_are_a_mask(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        ks_tensor shape = {0};
        do values_shape(&shape, 4, i < 20 ? 3000 : 100000);
        while (ks_tensor_count(&shape) == 0);
        ks_spec spec = spec_of(dtypes[i % 4], shape.rank, shape.dims), masked = spec;
        spec.params[AXIS].i = masked.params[AXIS].i = values_below(shape.rank);
        spec.params[LOG].i = masked.params[LOG].i = values_below(2);
        draw_lengths(&spec);
        masked.given = 3;
        masked.in[1] = shape;
        masked.in[1].dtype = KS_BOOL;
        void *memory[4], *truths = malloc((size_t)ks_tensor_count(&shape)),
                         *out = malloc(8 * (size_t)ks_tensor_count(&shape));
        open_lengths(&spec, memory);
        assert_int_equal(ks_op_softmax.resolve(&masked, NULL), KS_OK);
        ks_spec_layout(&masked);
        const void *const in[] = {memory[0], NULL, memory[2]}, *const as_mask[] = {memory[0], truths};
        for (int64_t k = 0; k < ks_tensor_count(&shape); k++)
            if (!(((uint8_t *)truths)[k] = is_selected(&spec, in, k)))
                values_put(spec.in[0].dtype, memory[0], k, (double)NAN);
        for (int b = 0; b < 2; b++) {
            ks_error error = {0};
            if (!harnesses[b]) continue;
            if (op_harness_run(harnesses[b], &spec, in, memory[3], (op_path)values_below(3), 1, false, &error) ||
                op_harness_run(harnesses[b], &masked, as_mask, out, (op_path)values_below(3), 1, false, &error))
                fail_msg("%s", error.text);
            if (memcmp(out, memory[3], spec.out[0].size_bytes) == 0) continue;
            describe(&spec, b ? "cuda" : "cpu", -1);
            fail_msg("lengths of rank %d and a mask that says the same have other bits", spec.in[2].rank);
        }
        free(out);
        free(truths);
        for (int k = 0; k < 4; k++) free(memory[k]);
    }
}

/* 400 `range` with that place and value on every backend, and neither reads out of bounds. */
static void expect_range(const ks_spec *spec, const void *const *in, void *out, int64_t place, int64_t value)
{
    ks_bad_value bad = {0};
    assert_true(ks_op_softmax.check(spec, in, &bad));
    if (bad.input != 2 || bad.place != place || bad.value != value)
        fail_msg("found input %d place %lld value %lld, not %lld and %lld", bad.input, (long long)bad.place,
                 (long long)bad.value, (long long)place, (long long)value);
    for (int b = 0; b < 2; b++) {
        ks_error error = {0}, wanted;
        if (!harnesses[b]) continue;
        op_harness_fix(harnesses[b], (unsigned)values_below(8) & spec->given);
        const ks_status status = op_harness_run(harnesses[b], spec, in, out, (op_path)values_below(3),
                                                1 + values_below(9), values_below(2), &error);
        op_harness_fix(harnesses[b], 0);
        assert_int_equal(ks_op_softmax.refuse(spec, &bad, &wanted), KS_RANGE);
        if (status == KS_RANGE && strcmp(error.text, wanted.text) == 0) continue;
        describe(spec, b ? "cuda" : "cpu", place);
        fail_msg("status %s, \"%s\", and not \"%s\"", ks_status_name(status), status ? error.text : "", wanted.text);
    }
}

/* At the first, a middle and the last place, just beyond each bound and far, with a worse one behind. */
static void lengths_out_of_bounds(void **state)
{
    (void)state;
    for (int i = 0; i < 40 + values_cases(400) / 10;) {
        ks_tensor shape = {0};
        values_shape(&shape, 4, 5000);
        ks_spec spec = spec_of(dtypes[i % 4], shape.rank, shape.dims);
        spec.params[AXIS].i = values_below(2) ? -1 : values_below(shape.rank);
        draw_selection(&spec);
        if (!has_lengths(&spec)) draw_lengths(&spec);
        if (ks_tensor_count(&shape) == 0) continue;
        void *memory[4];
        open_lengths(&spec, memory);
        const int64_t count = ks_tensor_count(&spec.in[2]), most = spec.in[0].dims[spec.params[AXIS].i];
        const bool narrow = spec.in[2].dtype == KS_INT32;
        const int64_t values[] = {-1, most + 1, narrow ? INT32_MIN : INT64_MIN, narrow ? INT32_MAX : INT64_MAX};
        const int64_t at[] = {0, count / 2, count - 1}, place = at[i % 3], value = values[values_below(4)];
        put_length(&spec, memory[2], count - 1, -1);
        put_length(&spec, memory[2], place, value);
        expect_range(&spec, (const void *const *)memory, memory[3], place, value);
        for (int k = 0; k < 4; k++) free(memory[k]);
        i++;
    }
}

/* A launch of 16 jobs, every other one with a bad length: the others have their values, and each time anew. */
static void bad_lengths_among_good_ones(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++)
        for (int round = 0; harnesses[b] && round < 16; round++) {
            ks_spec spec =
                spec_of(dtypes[round % 4], 3, (const int64_t[]){3, 5, 1 + values_below(round < 8 ? 100 : 3000)});
            if (round % 3 == 0) spec.params[AXIS].i = 1;
            draw_lengths(&spec);
            void *memory[4], *lengths = malloc(1000);
            open_lengths(&spec, memory);
            const int64_t count = ks_tensor_count(&spec.in[2]);
            memcpy(lengths, memory[2], spec.in[2].size_bytes);
            put_length(&spec, lengths, values_below((int)count), -1 - values_below(3));
            const void *const in[] = {memory[0], NULL, memory[2]}, *const spoilt[KS_INPUTS_MAX] = {memory[0], NULL,
                                                                                                   lengths};
            ks_error error = {0};
            if (round % 2) op_harness_spoil(harnesses[b], spoilt);
            const ks_status status = op_harness_run(harnesses[b], &spec, in, memory[3], (op_path)values_below(3), 16,
                                                    values_below(2), &error);
            op_harness_spoil(harnesses[b], NULL);
            if (status != KS_OK) fail_msg("%s: %s", b ? "cuda" : "cpu", error.text);
            check_selected(&spec, in, memory[3], b ? "cuda" : "cpu");
            free(lengths);
            for (int k = 0; k < 4; k++) free(memory[k]);
        }
}

static void refusals_of_lengths(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3, 4};
    const struct {
        ks_dtype dtype;
        int axis, rank;
        int64_t dims[8];
        ks_status status;
        const char *words;
    } rows[] = {{KS_FP32, -1, 1, {2}, KS_DATATYPE, "INPUT2 has datatype FP32, takes INT32 or INT64"},
                {KS_UINT32, -1, 1, {2}, KS_DATATYPE, "INPUT2 has datatype UINT32"},
                {KS_INT32,
                 -1,
                 1,
                 {3},
                 KS_SHAPE,
                 "INPUT2 (lengths) has shape [3], takes first extents of INPUT0's [2,3,4] in front of axis 2"},
                {KS_INT64, -1, 2, {2, 1}, KS_SHAPE, "INPUT2 (lengths) has shape [2,1]"},
                {KS_INT64, -1, 3, {2, 3, 4}, KS_SHAPE, "INPUT2 (lengths) has shape [2,3,4]"},
                {KS_INT64, 0, 1, {2}, KS_SHAPE, "in front of axis 0"},
                {KS_INT64, -1, 8, {2, 3, 1, 1, 1, 1, 1, 1}, KS_SHAPE, "INPUT2 has rank 8, takes 0 to 7"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ks_spec spec = spec_of(KS_FP16, 3, dims);
        spec.given = 5;
        spec.params[AXIS].i = rows[i].axis;
        spec.in[2] = (ks_tensor){.dtype = rows[i].dtype, .rank = rows[i].rank};
        memcpy(spec.in[2].dims, rows[i].dims, sizeof rows[i].dims);
        expect_refusal(spec, rows[i].status, rows[i].words);
    }
}

/* Rows may be cut only where each keeps its own lengths. */
static void rows_of_lengths(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++)
        for (int causal = 0; causal < 2; causal++) {
            ks_spec spec = spec_of(KS_FP32, 4, (const int64_t[]){2, 3, 4, 5});
            spec.given = 5;
            spec.params[CAUSAL].i = causal;
            spec.in[2] = (ks_tensor){.dtype = KS_INT32, .rank = rank, .dims = {2, 3, 4}};
            assert_int_equal(ks_op_softmax.resolve(&spec, NULL), KS_OK);
            const ks_rows rows = ks_op_softmax.rows(&spec);
            const int most = 3 - causal;
            assert_int_equal(rows.dims, rank == 0 || rank > most ? most : rank);
            assert_int_equal(rows.cut, rank ? 5 : 1);
        }
}

static void refusals_of_selections(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3, 4};
    const struct {
        ks_dtype dtype;
        int rank;
        int64_t dims[4];
        ks_status status;
        const char *words;
    } rows[] = {{KS_BOOL, 2, {3, 3}, KS_SHAPE, "has shape [3,3], which does not broadcast to INPUT0's [2,3,4]"},
                {KS_BOOL, 4, {1, 2, 3, 4}, KS_SHAPE, "does not broadcast"},
                {KS_INT32, 1, {4}, KS_DATATYPE, "INPUT1 has datatype INT32, takes BOOL, FP32 or INPUT0's, FP16"},
                {KS_BF16, 1, {4}, KS_DATATYPE, "INPUT1 has datatype BF16"},
                {KS_FP64, 1, {4}, KS_DATATYPE, "INPUT1 has datatype FP64"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ks_spec spec = spec_of(KS_FP16, 3, dims);
        spec.given = 3;
        spec.in[1] = (ks_tensor){.dtype = rows[i].dtype, .rank = rows[i].rank};
        memcpy(spec.in[1].dims, rows[i].dims, sizeof rows[i].dims);
        ks_error error = {0};
        assert_int_equal(ks_op_softmax.resolve(&spec, &error), rows[i].status);
        if (!strstr(error.text, rows[i].words)) fail_msg("\"%s\" does not say \"%s\"", error.text, rows[i].words);
    }
    for (int rank = 1; rank < 3; rank++) {
        ks_spec spec = spec_of(KS_FP16, rank, dims);
        spec.params[CAUSAL].i = TOP_LEFT;
        if (rank == 2) spec.params[AXIS].i = 0;
        ks_error error = {0};
        assert_int_equal(ks_op_softmax.resolve(&spec, &error), KS_AXIS);
        assert_non_null(strstr(error.text, "causal takes the last axis"));
    }
    ks_spec plain = spec_of(KS_FP16, 3, dims), named = plain; /* the datatype that it would have anyway */
    named.params[OUT_DATATYPE].i = 1;
    assert_int_equal(ks_op_softmax.resolve(&plain, NULL), KS_OK);
    assert_int_equal(ks_op_softmax.resolve(&named, NULL), KS_OK);
    assert_memory_equal(&plain, &named, sizeof plain);
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(regimes),
        cmocka_unit_test(lengths_around_powers_of_two),
        cmocka_unit_test(long_rows),
        cmocka_unit_test(long_lines_with_a_nan),
        cmocka_unit_test(borders_of_rows),
        cmocka_unit_test(borders_of_short_rows),
        cmocka_unit_test(levels_of_short_rows),
        cmocka_unit_test(borders_of_columns),
        cmocka_unit_test(rows_and_columns_of_the_whole_chip),
        cmocka_unit_test(special_values),
        cmocka_unit_test(refusals),
        cmocka_unit_test(equal_work_has_equal_keys),
        cmocka_unit_test(random_selections),
        cmocka_unit_test(borders_of_selected_rows),
        cmocka_unit_test(masks_that_say_the_same),
        cmocka_unit_test(refusals_of_selections),
        cmocka_unit_test(lengths_are_a_mask),
        cmocka_unit_test(lengths_out_of_bounds),
        cmocka_unit_test(bad_lengths_among_good_ones),
        cmocka_unit_test(refusals_of_lengths),
        cmocka_unit_test(rows_of_lengths),
        cmocka_unit_test(over_two_to_the_31),
    };
    cmocka_set_test_filter(getenv("KS_ONLY"));
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
