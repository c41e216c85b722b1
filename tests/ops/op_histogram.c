/* histogram against a search of each element among the edges: the reference by itself in buffers of exactly its size, then every backend that
 * this machine has, on all its paths. Counts are exact. KS_CASES, KS_SEED: how many random cases, and which. KS_HUGE: also a tensor of over
 * 2^31 elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"
#include "cpu/reference.h"
#include "ops/histogram/histogram.h"

extern const ks_op ks_op_histogram;

enum { ARENA_BYTES = 96 << 20 };
#include "ops/op_backends.h"

static const ks_dtype dtypes[] = {KS_FP32,  KS_FP16,  KS_BF16, KS_FP64,   KS_INT32,  KS_UINT8,
                                  KS_INT64, KS_INT16, KS_INT8, KS_UINT16, KS_UINT32, KS_UINT64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* --- specs ------------------------------------------------------------------------------------------------------------ */

/* min above max: without a range. axes: how many of the last ones are counted over; 0: all. */
static ks_spec spec_of(ks_dtype dtype, int rank, const int64_t *dims, int bins, double min, double max, int axes)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_histogram);
    spec.in[0] = (ks_tensor){.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) spec.in[0].dims[i] = dims[i];
    spec.params[KS_HISTOGRAM_BINS].i = bins;
    if (min < max) {
        spec.params[KS_HISTOGRAM_MIN].d = min;
        spec.params[KS_HISTOGRAM_MAX].d = max;
    }
    ks_axes *list = &spec.params[KS_HISTOGRAM_AXIS].axes;
    if (axes) *list = (ks_axes){.count = (int8_t)axes};
    for (int i = 0; i < axes; i++) list->axis[i] = (int8_t)(-1 - i);
    return spec;
}

static void describe(const ks_spec *spec, const char *who)
{
    char dims[KS_RANK_MAX * 21];
    ks_dims_text(&spec->in[0], dims, sizeof dims);
    print_error("%s: %s [%s] bins %d from %.17g to %.17g, %d axes, edges %d\n", who, ks_dtype_name(spec->in[0].dtype),
                dims, (int)spec->params[KS_HISTOGRAM_BINS].i, spec->params[KS_HISTOGRAM_MIN].d,
                spec->params[KS_HISTOGRAM_MAX].d, spec->params[KS_HISTOGRAM_AXIS].axes.count,
                (int)spec->params[KS_HISTOGRAM_EDGES].i);
}

/* --- what is right ---------------------------------------------------------------------------------------------------- */

/* Each operation by itself: what is stored is not contracted. */
static double edge_of(const ks_histogram_shape *s, int bin)
{
    if (!s->ranged) return bin;
    if (bin == s->bins) return s->max;
    const volatile double range = s->max - s->min, width = range / s->bins, product = bin * width;
    return s->min + product;
}

static int bin_of(const ks_histogram_shape *s, long double value)
{
    if (!s->ranged) return value >= 0 && value < s->bins ? (int)value : -1;
    const double x = (double)value;
    if (!(x >= s->min && x <= s->max)) return -1;
    int low = 0, high = s->bins; /* edge(low) <= x, and x < edge(high) or there is no such bin */
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (edge_of(s, middle) <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void check(const ks_spec *spec, const void *in, const void *out, const char *who)
{
    const ks_histogram_shape s = ks_histogram_shape_of(spec);
    const int64_t *counts = (const int64_t *)(const void *)((const char *)out + spec->out[0].offset);
    int64_t *wanted = calloc((size_t)(s.rows * s.bins) + 1, sizeof *wanted);
    assert_non_null(wanted);
    for (int64_t i = 0; i < s.rows * s.length; i++) {
        const int bin = bin_of(&s, values_get(s.dtype, in, i));
        if (bin >= 0) wanted[i / s.length * s.bins + bin]++;
    }
    for (int64_t i = 0; i < s.rows * s.bins; i++)
        if (counts[i] != wanted[i]) {
            describe(spec, who);
            fail_msg("row %lld bin %lld: %lld, expected %lld", (long long)(i / s.bins), (long long)(i % s.bins),
                     (long long)counts[i], (long long)wanted[i]);
        }
    free(wanted);
    const double *edges = (const double *)(const void *)((const char *)out + spec->out[1].offset);
    for (int b = 0; b <= s.bins && s.edges; b++)
        if (edges[b] != edge_of(&s, b)) {
            describe(spec, who);
            fail_msg("edge %d: %.17g, expected %.17g", b, edges[b], edge_of(&s, b));
        }
}

/* --- runs ------------------------------------------------------------------------------------------------------------- */

static void run_backend(int b, const ks_spec *spec, const void *in, void *out)
{
    ks_error error;
    if (op_run(b, spec, &in, out, values_below(4) == 0, &error) == KS_OK) return;
    describe(spec, b ? "cuda" : "cpu");
    fail_msg("%s", error.text);
}

static void resolve(ks_spec *spec)
{
    ks_error error = {0};
    if (ks_op_histogram.resolve(spec, &error) != KS_OK) {
        describe(spec, "resolve");
        fail_msg("%s", error.text);
    }
    ks_spec_layout(spec);
}

/* Runs and compares everywhere. */
static void try_values(const ks_spec *spec, const void *in)
{
    void *out = malloc(ks_spec_out_bytes(spec) + 1);
    assert_non_null(out);
    op_reference(spec, &in, out);
    check(spec, in, out, "reference");
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        run_backend(b, spec, in, out);
        check(spec, in, out, b ? "cuda" : "cpu");
    }
    free(out);
}

static void *filled(const ks_spec *spec, values_kind kind)
{
    const ks_tensor *x = &spec->in[0];
    void *in = malloc(x->size_bytes + 1);
    assert_non_null(in);
    values_fill(x->dtype, in, ks_tensor_count(x), kind, x->dims[x->rank - 1] ? x->dims[x->rank - 1] : 1);
    return in;
}

static void try_kind(ks_spec *spec, values_kind kind)
{
    resolve(spec);
    void *in = filled(spec, kind);
    try_values(spec, in);
    free(in);
}

/* --- random cases ----------------------------------------------------------------------------------------------------- */

static int drawn_bins(void)
{
    static const int often[] = {1,   2,   3,   10,   31,   100,  255,  256,  257,
                                511, 512, 513, 1000, 4096, 4097, 8192, 8193, 20000};
    return values_below(30) ? often[values_below(sizeof often / sizeof *often)] : 1 + values_below(60000);
}

static bool is_float(ks_dtype dtype)
{
    return ks_dtype_kind(dtype) == KS_KIND_FLOAT;
}

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(400);
    for (int i = 0; i < cases; i++) {
        ks_tensor shape = {0};
        values_shape(&shape, 4, values_most());
        const ks_dtype dtype = dtypes[values_below(DTYPES)];
        const double middle = values_below(3) ? 0 : 10 * values_normal(), half = exp(2 * values_normal());
        const bool ranged = is_float(dtype) || values_below(2);
        const int bins = drawn_bins(), kept = values_below(shape.rank + 1);
        int64_t rows = 1;
        for (int d = 0; d < kept; d++) rows *= shape.dims[d];
        if (kept == shape.rank || rows * bins > 2000000) shape.dims[0] = shape.dims[0] > 3 ? 3 : shape.dims[0];
        ks_spec spec =
            spec_of(dtype, shape.rank, shape.dims, bins, ranged ? middle - half : 0, ranged ? middle + half : 0,
                    kept == shape.rank || rows * bins > 2000000 ? 0 : shape.rank - kept);
        if (!is_float(dtype) && ranged && values_below(2)) {
            spec.params[KS_HISTOGRAM_MIN].d = -1 - values_below(100);
            spec.params[KS_HISTOGRAM_MAX].d = 1 + values_below(100);
        }
        spec.params[KS_HISTOGRAM_EDGES].i = values_below(3) == 0;
        try_kind(&spec, (values_kind)values_below(VALUES_KINDS));
    }
    printf("%d random cases\n", cases);
}

/* Each kernel of the CUDA planner, each datatype, in as little work as reaches it on a chip of any size: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const struct {
        int64_t dims[2];
        int bins, axes;
    } table[] = {
        {{3, 300}, 100, 1}, {{1, 40001}, 256, 1}, {{2, 20000}, 700, 1}, {{1, 60000}, 9000, 0}, {{2, 3000}, 50000, 1}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int d = 0; d < DTYPES; d++) {
            const bool ranged = is_float(dtypes[d]) || values_below(2);
            ks_spec spec =
                spec_of(dtypes[d], 2, table[n].dims, table[n].bins, ranged ? -2 : 0, ranged ? 3 : 0, table[n].axes);
            spec.params[KS_HISTOGRAM_EDGES].i = d % 2;
            try_kind(&spec, VALUES_NORMAL);
        }
}

/* The shapes of the benches, on a GPU alone. */
static void tensors_of_the_whole_chip(void **state)
{
    (void)state;
    static const struct {
        ks_dtype dtype;
        int64_t rows, length;
        int bins;
    } table[] = {{KS_FP32, 1, 8 << 20, 256},      {KS_FP32, 1, 4 << 20, 40000}, {KS_UINT8, 1, 16 << 20, 256},
                 {KS_INT32, 1, 4 << 20, 1 << 20}, {KS_BF16, 1024, 4096, 64},    {KS_FP32, 300, 10007, 512}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) skip();
    for (size_t n = 0; n < sizeof table / sizeof *table; n++) {
        const bool ranged = is_float(table[n].dtype);
        ks_spec spec = spec_of(table[n].dtype, 2, (const int64_t[]){table[n].rows, table[n].length}, table[n].bins,
                               ranged ? -4 : 0, ranged ? 4 : 0, 1);
        try_kind(&spec, VALUES_NORMAL);
    }
}

/* --- values ----------------------------------------------------------------------------------------------------------- */

/* Edges, and the numbers right below and above them: ranges of all sorts, whose edges FP32 has or has not. */
static void values_on_edges(void **state)
{
    (void)state;
    static const double ranges[][2] = {{0, 1},         {-1, 1},        {0, 256},
                                       {0.1, 0.7},     {1e6, 1e6 + 1}, {-3.3, 1e-3},
                                       {1e-30, 2e-30}, {-1e30, 1e30},  {16777216, 16777300},
                                       {-6e4, 6e4},    {1 - 1e-9, 1}};
    static const int numbers[] = {1, 3, 10, 100, 256, 1000, 9999};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++)
        for (int d = 0; d < 4; d++) {
            const int bins = numbers[values_below(sizeof numbers / sizeof *numbers)];
            enum { COUNT = 9000 };
            ks_spec spec = spec_of(dtypes[d], 1, (const int64_t[]){COUNT}, bins, ranges[r][0], ranges[r][1], 0);
            spec.params[KS_HISTOGRAM_EDGES].i = values_below(2);
            resolve(&spec);
            const ks_histogram_shape s = ks_histogram_shape_of(&spec);
            void *in = filled(&spec, VALUES_NORMAL);
            for (int i = 0; i < COUNT; i++) {
                double edge = edge_of(&s, values_below(bins + 1));
                const int side = values_below(3) - 1;
                if (dtypes[d] == KS_FP64)
                    edge = side ? nextafter(edge, side * (double)INFINITY) : edge;
                else
                    edge = side ? (double)nextafterf((float)edge, (float)side * INFINITY) : edge;
                values_put(dtypes[d], in, i, edge);
            }
            try_values(&spec, in);
            free(in);
        }
}

static void special_values(void **state)
{
    (void)state;
    static const double values[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0, -0.0, 6e4, -6e4, 1e-40, 1, -1};
    for (int d = 0; d < 4; d++)
        for (int t = 0; t < 4; t++) {
            const int64_t count = t % 2 ? 300 : 40000;
            ks_spec spec = spec_of(dtypes[d], 1, &count, t < 2 ? 17 : 10000, t < 2 ? -1 : 0, 1, 0);
            resolve(&spec);
            void *in = filled(&spec, VALUES_NORMAL);
            for (int64_t i = 0; i < count; i++)
                if (values_below(2)) values_put(dtypes[d], in, i, values[values_below(11)]);
            try_values(&spec, in);
            free(in);
        }
}

/* All equal, two values, runs of equal ones: where atomics meet. */
static void equal_values(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPES; d++)
        for (int order = 0; order < 3; order++) {
            const int64_t count = 50021;
            ks_spec spec = spec_of(dtypes[d], 1, &count, d % 2 ? 200 : 9000, 0, 100, 0);
            resolve(&spec);
            void *in = filled(&spec, VALUES_NORMAL);
            const size_t size = ks_dtype_size(dtypes[d]);
            for (int64_t i = 0; i < count; i++) {
                const int64_t value = order == 0 ? 7 : order == 1 ? 3 + values_below(2) : i / 1000;
                if (is_float(dtypes[d]))
                    values_put(dtypes[d], in, i, (double)value);
                else
                    memcpy((char *)in + (size_t)i * size, &value, size);
            }
            try_values(&spec, in);
            free(in);
        }
}

/* Integers at the ends of their datatypes, with and without a range. */
static void ends_of_integers(void **state)
{
    (void)state;
    for (int d = 4; d < DTYPES; d++)
        for (int t = 0; t < 3; t++) {
            const int64_t count = 3001;
            ks_spec spec = spec_of(dtypes[d], 1, &count, 300,
                                   t == 0   ? 0
                                   : t == 1 ? -0x1p63
                                            : -200,
                                   t == 0   ? 0
                                   : t == 1 ? 0x1p64
                                            : 0x1p62,
                                   0);
            resolve(&spec);
            const size_t size = ks_dtype_size(dtypes[d]);
            unsigned char *in = filled(&spec, VALUES_UNIFORM);
            for (int64_t i = 0; i < count; i++) {
                const uint64_t end = (uint64_t)1 << (8 * size - 1), bits = end - 300 + (uint64_t)values_below(600);
                const uint64_t value = values_below(2) ? bits : (uint64_t)values_below(600) - 300;
                memcpy(in + (size_t)i * size, &value, size);
            }
            try_values(&spec, in);
            free(in);
        }
}

/* Whatever the range holds is counted once: the sums of counts. */
static void counts_add_up(void **state)
{
    (void)state;
    for (int t = 0; t < 8; t++) {
        const int64_t dims[] = {1 + values_below(5), 1 + values_below(20000)};
        const int bins = drawn_bins();
        ks_spec spec = spec_of(KS_FP32, 2, dims, bins, -1, 1, 1);
        resolve(&spec);
        void *in = filled(&spec, VALUES_UNIFORM);
        int64_t *out = malloc(ks_spec_out_bytes(&spec));
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            run_backend(b, &spec, in, out);
            for (int64_t r = 0; r < dims[0]; r++) {
                int64_t sum = 0;
                for (int k = 0; k < bins; k++) sum += out[r * bins + k];
                assert_int_equal(sum, dims[1]);
            }
        }
        free(in);
        free(out);
    }
}

/* --- edges ------------------------------------------------------------------------------------------------------------ */

static void expect_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(ks_op_histogram.resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void refusals(void **state)
{
    (void)state;
    static const int64_t dims[9] = {2, 6, 4, 1, 1, 1, 1, 1, 1};
    expect_refusal(spec_of(KS_BOOL, 2, dims, 4, 0, 1, 0), KS_DATATYPE, "INPUT0 has datatype BOOL");
    expect_refusal(spec_of(KS_FP32, 0, dims, 4, 0, 1, 0), KS_SHAPE, "INPUT0 has rank 0, takes 1 to 8");
    expect_refusal(spec_of(KS_FP32, 2, dims, 0, 0, 1, 0), KS_PARAMETER, "parameter 'bins' is 0, takes 1 to 1048576");
    expect_refusal(spec_of(KS_FP32, 2, dims, (1 << 20) + 1, 0, 1, 0), KS_PARAMETER, "parameter 'bins' is 1048577");
    expect_refusal(spec_of(KS_FP32, 2, dims, 4, 0, 0, 0), KS_PARAMETER, "FP32, which needs parameters 'min' and 'max'");
    ks_spec spec = spec_of(KS_INT32, 2, dims, 4, 0, 0, 0);
    spec.params[KS_HISTOGRAM_MAX].d = 3;
    expect_refusal(spec, KS_PARAMETER, "'max' is given without 'min'");
    spec.params[KS_HISTOGRAM_MIN].d = 3;
    expect_refusal(spec, KS_PARAMETER, "'min' is 3, not below 'max', which is 3");
    spec.params[KS_HISTOGRAM_MIN].d = -1.7e308;
    spec.params[KS_HISTOGRAM_MAX].d = 1.7e308;
    expect_refusal(spec, KS_PARAMETER, "is more than FP64 holds");
    spec.params[KS_HISTOGRAM_MIN].d = 0;
    spec.params[KS_HISTOGRAM_MAX].d = 1e-320;
    expect_refusal(spec, KS_PARAMETER, "is too little for its bins");
    spec = spec_of(KS_FP32, 3, dims, 4, 0, 1, 1);
    spec.params[KS_HISTOGRAM_AXIS].axes.axis[0] = 3;
    expect_refusal(spec, KS_AXIS, "axis 3 is outside [-3, 3) of INPUT0's rank");
    spec.params[KS_HISTOGRAM_AXIS].axes.axis[0] = 1;
    expect_refusal(spec, KS_AXIS, "axis does not list the last axes of INPUT0, whose rank is 3");
    spec.params[KS_HISTOGRAM_AXIS].axes = (ks_axes){.count = 2, .axis = {2, -1}};
    expect_refusal(spec, KS_AXIS, "axis -1 is listed twice");
}

static void empty_tensors(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{0, 4}, {3, 0}};
    for (int n = 0; n < 2; n++)
        for (int axes = 0; axes < 2; axes++)
            for (int bins = 10; bins < 100000; bins += 60000) {
                ks_spec spec = spec_of(KS_FP32, 2, shapes[n], bins, 0, 1, axes);
                try_kind(&spec, VALUES_NORMAL);
            }
}

static void equal_work_has_equal_keys(void **state)
{
    (void)state;
    ks_spec a = spec_of(KS_INT32, 3, (const int64_t[]){2, 3, 4}, 5, 0, 0, 2), b = a;
    b.params[KS_HISTOGRAM_AXIS].axes = (ks_axes){.count = 2, .axis = {1, 2}};
    assert_int_equal(ks_op_histogram.resolve(&a, NULL), KS_OK);
    assert_int_equal(ks_op_histogram.resolve(&b, NULL), KS_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(ks_op_histogram.resolve(&b, NULL), KS_OK); /* once more, as row blocks are */
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(a.out[0].rank, 2);
    ks_op_histogram.sample(&a);
    assert_int_equal(ks_op_histogram.resolve(&a, NULL), KS_OK);
    assert_int_equal(a.outputs, 1);
}

static void over_two_to_the_31(void **state)
{
    (void)state;
    if (!getenv("KS_HUGE")) {
        printf("skip: KS_HUGE is not set, no tensor of over 2^31 elements\n");
        skip();
    }
    const int64_t count = ((int64_t)1 << 31) + 1001;
    ks_spec spec = spec_of(KS_UINT8, 1, &count, 256, 0, 0, 0);
    resolve(&spec);
    unsigned char *in = malloc((size_t)count);
    int64_t *out = malloc(ks_spec_out_bytes(&spec));
    if (!in || !out) fail_msg("no memory for %lld bytes", (long long)count);
    for (int64_t i = 0; i < count; i++) in[i] = (unsigned char)(i % 251);
    in[count - 1] = 255;
    for (int b = 0; b < 2; b++) {
        ks_error error = {0};
        if (!op_harness_once(b ? ks_backend_cuda : ks_backend_cpu, (size_t)count + (64 << 20), &spec,
                             (const void *const[]){in}, out, &error))
            continue;
        if (error.status != KS_OK) fail_msg("%s", error.text);
        for (int k = 0; k < 256; k++)
            assert_int_equal(out[k], k == 255 ? 1 : k > 250 ? 0 : (count - k + 250) / 251 - ((count - 1) % 251 == k));
    }
    free(in);
    free(out);
}

int main(void)
{
    values_seed();
    if (getenv("KS_ONLY")) cmocka_set_test_filter(getenv("KS_ONLY")); /* of those names: "each_*" */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(tensors_of_the_whole_chip),
        cmocka_unit_test(values_on_edges),
        cmocka_unit_test(special_values),
        cmocka_unit_test(equal_values),
        cmocka_unit_test(ends_of_integers),
        cmocka_unit_test(counts_add_up),
        cmocka_unit_test(refusals),
        cmocka_unit_test(empty_tensors),
        cmocka_unit_test(equal_work_has_equal_keys),
        cmocka_unit_test(over_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
