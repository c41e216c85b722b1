/* Products of 8 bits against sums in FP64, one element at a time: the reference by itself in buffers of exactly its size, then every backend
 * that this machine has, on all its paths. INT8 is exact. KS_CASES, KS_SEED: how many random cases, and which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { ARENA_BYTES = 96 << 20 };
#include "ops/op_backends.h"
#include "cpu/reference.h"
#include "ops/map_oracle.h"
#include "ops/matmul.h"

extern const ks_op ks_op_matmul;

enum { AUTO, INT32, FP32, FP16, BF16, OUTS };
enum { FAST = 2 }; /* of precision */

/* --- specs ------------------------------------------------------------------------------------------------------------ */

/* A product of matrices: batches in front of A, of B; 0: none. */
typedef struct form {
    ks_dtype a, b;
    int64_t m, n, k, a_batch, b_batch;
    int out, a_scales, b_scales; /* scales: 0 none, 1 one, 2 one for each row or column */
    bool transpose_a, transpose_b, biased, fast;
    ks_matmul_activation activation;
    double alpha;
} form;

static ks_tensor operand(ks_dtype dtype, int64_t batch, int64_t rows, int64_t columns, bool transposed)
{
    ks_tensor t = {.dtype = dtype};
    if (batch) t.dims[t.rank++] = batch;
    t.dims[t.rank++] = transposed ? columns : rows;
    t.dims[t.rank++] = transposed ? rows : columns;
    return t;
}

static ks_tensor scales_of(int how, int64_t batch, int64_t each)
{
    ks_tensor t = {.dtype = KS_FP32, .rank = 1, .dims = {1}};
    if (how < 2) return t;
    t.rank = 0;
    if (batch) t.dims[t.rank++] = batch;
    t.dims[t.rank++] = each;
    return t;
}

static ks_spec spec_of(const form *f)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_matmul);
    spec.in[0] = operand(f->a, f->a_batch, f->m, f->k, f->transpose_a);
    spec.in[1] = operand(f->b, f->b_batch, f->k, f->n, f->transpose_b);
    spec.in[2] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {f->n}};
    spec.in[3] = scales_of(f->a_scales, f->a_batch, f->m);
    spec.in[4] = scales_of(f->b_scales, f->b_batch, f->n);
    spec.given = (uint16_t)(3 | f->biased << 2 | (f->a_scales > 0) << 3 | (f->b_scales > 0) << 4);
    for (int i = 2; i < KS_MATMUL_INPUTS; i++)
        if (!ks_has_input(&spec, i)) spec.in[i] = (ks_tensor){.rank = 0};
    spec.params[KS_MATMUL_TRANSPOSE_A].i = f->transpose_a;
    spec.params[KS_MATMUL_TRANSPOSE_B].i = f->transpose_b;
    spec.params[KS_MATMUL_ALPHA].d = f->alpha;
    spec.params[KS_MATMUL_ACTIVATION].i = f->activation;
    spec.params[KS_MATMUL_PRECISION].i = f->fast ? FAST : 0;
    spec.params[KS_MATMUL_OUT_DATATYPE].i = f->out;
    return spec;
}

static void describe(const form *f, const char *who)
{
    print_error("%s: %s %lldx%lldx%lld %s by %s %s, batches %lld %lld, out %d, scales %d %d, bias %d, activation %d, "
                "alpha %g%s\n",
                who, ks_dtype_name(f->a), (long long)f->m, (long long)f->n, (long long)f->k, f->transpose_a ? "T" : "N",
                ks_dtype_name(f->b), f->transpose_b ? "T" : "N", (long long)f->a_batch, (long long)f->b_batch, f->out,
                f->a_scales, f->b_scales, f->biased, f->activation, f->alpha, f->fast ? ", fast" : "");
}

/* --- what is right ---------------------------------------------------------------------------------------------------- */

static double value_at(const form *f, const void *const *in, bool b, int64_t matrix, int64_t row, int64_t column)
{
    const int64_t batch = b ? f->b_batch : f->a_batch, rows = b ? f->k : f->m, columns = b ? f->n : f->k;
    const int64_t of = batch > 1 ? matrix : 0;
    const int64_t at = (b ? f->transpose_b : f->transpose_a) ? column * rows + row : row * columns + column;
    return (double)oracle_get(b ? f->b : f->a, in[b], of * rows * columns + at);
}

static double scale_at(const form *f, const void *const *in, bool b, int64_t matrix, int64_t at)
{
    const int how = b ? f->b_scales : f->a_scales;
    const int64_t batch = b ? f->b_batch : f->a_batch, each = b ? f->n : f->m;
    const float *scales = in[b ? 4 : 3];
    return how == 0 ? 1 : (double)scales[how == 1 ? 0 : (batch > 1 ? matrix : 0) * each + at];
}

/* Of the sum of magnitudes: 32 products and a sum, cut where the largest of them has its 14th bit. */
static const double FAST_PART = 0x1p-8;

static double roundoff(ks_dtype dtype)
{
    return dtype == KS_FP16 ? 0x1p-11 : dtype == KS_BF16 ? 0x1p-8 : 0x1p-24;
}

static void check_one(const form *f, const ks_spec *spec, const void *const *in, const void *out, int64_t at,
                      const char *who)
{
    const int64_t matrix = at / (f->m * f->n), i = at / f->n % f->m, j = at % f->n;
    const ks_dtype to = spec->out[0].dtype;
    const double scale = scale_at(f, in, false, matrix, i) * scale_at(f, in, true, matrix, j) * (f->k ? f->alpha : 1);
    double sum = 0, size = 0;
    for (int64_t k = 0; k < f->k; k++) {
        const double product = value_at(f, in, false, matrix, i, k) * value_at(f, in, true, matrix, k, j);
        sum += product;
        size += fabs(product);
    }
    const double got = (double)values_get(to, out, at);
    if (to == KS_INT32) {
        if (got == sum) return;
        describe(f, who);
        fail_msg("element %lld: %.17g, expected %.17g", (long long)at, got, sum);
    }
    const double bias = f->biased ? (double)((const float *)in[2])[j] : 0;
    const double x = sum * scale + bias, wanted = ks_matmul_activate(f->activation, x);
    /* FP8: a sum of 16 products is rounded once; INT8 is rounded when it becomes FP32 */
    const double growth = f->a == KS_INT8 ? 6 : (double)f->k / 8 + 8 + (f->fast ? 0x1p24 * FAST_PART : 0);
    const double allowed = growth * 0x1p-24 * (size * fabs(scale) + fabs(bias)) * 1.2 +
                           0x1p-21 * fabs(x) * (f->activation > KS_MATMUL_RELU) + 1.01 * roundoff(to) * fabs(wanted) +
                           (to == KS_FP16 ? 0x1p-25 : 0x1p-126);
    if (isnan(wanted) ? isnan(got) : got == wanted || fabs(got - wanted) <= allowed) return;
    if (to == KS_FP16 && isinf(got) && fabs(wanted) + allowed >= 65520 && got * wanted > 0) return;
    describe(f, who);
    fail_msg("element %lld: %.17g, expected %.17g, allowed %.3g", (long long)at, got, wanted, allowed);
}

/* All of few elements, else drawn ones and the last one. */
static void check(const form *f, const ks_spec *spec, const void *const *in, const void *out, const char *who)
{
    enum { MOST = 600 };
    const int64_t count = ks_tensor_count(&spec->out[0]);
    for (int64_t i = 0; i < count && i < MOST; i++)
        check_one(f, spec, in, out,
                  count <= MOST ? i
                  : i           ? (int64_t)(values_next() % (uint64_t)count)
                                : count - 1,
                  who);
}

/* --- runs ------------------------------------------------------------------------------------------------------------- */

/* FP8 without NaN and, of E5M2, infinity: sums of them say nothing. */
static void fill_bytes(ks_dtype dtype, unsigned char *bytes, size_t count)
{
    const unsigned end = dtype == KS_FP8E4M3 ? 0x7F : 0x7C;
    for (size_t i = 0; i < count; i++) {
        const unsigned drawn = (unsigned)values_next();
        bytes[i] = (unsigned char)(dtype == KS_INT8 ? drawn : (drawn & 0x80) | (drawn & 0x7F) % end);
    }
}

static void fill(const ks_spec *spec, void **in)
{
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        in[i] = malloc(spec->in[i].size_bytes + 1);
        assert_non_null(in[i]);
        if (i < 2) {
            fill_bytes(spec->in[i].dtype, in[i], spec->in[i].size_bytes);
            continue;
        }
        for (int64_t k = 0; k < ks_tensor_count(&spec->in[i]); k++)
            ((float *)in[i])[k] = (float)(i == 2 ? 100 * values_normal() : exp(values_normal()) * 0.01);
    }
}

static void run_reference(const ks_spec *spec, const void *const *in, void *out)
{
    void *scratch = malloc(ks_cpu_scratch_bytes(spec) + 1);
    assert_non_null(scratch);
    memset(out, 0xFF, spec->out[0].size_bytes);
    ks_cpu_reference(spec, in, &out, scratch);
    free(scratch);
}

/* The candidate that is tried, by its place in the list of slots that are copied; mapped slots list only some. -1: what the planner picks. */
static int way_now = -1;

static ks_status run_backend(int b, const ks_spec *spec, const void *const *in, void *out, ks_error *error)
{
    const unsigned fixed = values_below(3) ? 0 : (unsigned)values_below(32) & spec->given;
    op_path path = (op_path)values_below(3);
    if (b && way_now > 0 && op_harness_candidates(harnesses[b], spec, path) <= way_now) path = OP_PATH_COPIES;
    op_harness_fix(harnesses[b], fixed && values_below(2) ? fixed | OP_HARNESS_PITCHED : fixed);
    const ks_status status = op_harness_run(harnesses[b], spec, in, out, path,
                                            values_below(3) ? 1 : 1 + values_below(9), values_below(2), error);
    op_harness_fix(harnesses[b], 0);
    return status;
}

static void try_form(const form *f)
{
    ks_error error = {0};
    ks_spec spec = spec_of(f);
    void *in[KS_INPUTS_MAX] = {NULL};
    if (ks_op_matmul.resolve(&spec, &error) != KS_OK) {
        describe(f, "resolve");
        fail_msg("%s", error.text);
    }
    ks_spec_layout(&spec);
    fill(&spec, in);
    void *out = malloc(spec.out[0].size_bytes + 1);
    assert_non_null(out);
    run_reference(&spec, (const void *const *)in, out);
    check(f, &spec, (const void *const *)in, out, "reference");
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        if (run_backend(b, &spec, (const void *const *)in, out, &error) != KS_OK) {
            describe(f, b ? "cuda" : "cpu");
            fail_msg("%s", error.text);
        }
        check(f, &spec, (const void *const *)in, out, b ? "cuda" : "cpu");
    }
    for (int i = 0; i < KS_INPUTS_MAX; i++) free(in[i]);
    free(out);
}

/* --- cases ------------------------------------------------------------------------------------------------------------ */

static int64_t one_of(const int *list, int count)
{
    return list[values_below(count)];
}

static form drawn(void)
{
    static const ks_dtype pairs[][2] = {{KS_INT8, KS_INT8},
                                        {KS_INT8, KS_INT8},
                                        {KS_FP8E4M3, KS_FP8E4M3},
                                        {KS_FP8E4M3, KS_FP8E5M2},
                                        {KS_FP8E5M2, KS_FP8E4M3}};
    static const int sizes[] = {1, 1, 2, 3, 4, 5, 8, 12, 16, 17, 33, 64, 65, 100, 128, 130};
    static const int depths[] = {0, 1, 3, 4, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100, 128, 200, 513, 1040, 2100};
    const int pair = values_below(5), shape = values_below(6);
    form f = {.a = pairs[pair][0],
              .b = pairs[pair][1],
              .m = one_of(sizes, 16),
              .n = one_of(sizes, 16),
              .k = one_of(depths, 19),
              .transpose_a = values_below(2),
              .transpose_b = values_below(2),
              .alpha = 1};
    const int64_t batch = 1 + values_below(4);
    if (shape == 1 || shape == 3) f.a_batch = batch;
    if (shape == 2 || shape == 3) f.b_batch = batch;
    if (shape == 4) f.a_batch = 1, f.b_batch = batch;
    const bool is_exact = f.a == KS_INT8 && values_below(2);
    if (is_exact) {
        f.out = values_below(2) ? AUTO : INT32;
        return f;
    }
    f.out = FP32 + values_below(3);
    f.a_scales = values_below(3);
    f.b_scales = values_below(3);
    f.biased = values_below(2);
    f.activation = (ks_matmul_activation)(values_below(2) ? 0 : values_below(4));
    if (values_below(3) == 0) f.alpha = 0.75;
    f.fast = f.a != KS_INT8 && values_below(2);
    return f;
}

static void random_products(void **state)
{
    (void)state;
    const int cases = values_cases(250);
    for (int i = 0; i < cases; i++) {
        const form f = drawn();
        try_form(&f);
    }
    printf("%d random cases\n", cases);
}

/* Each kernel, each layout of both operands, slices of K, in as little work as reaches them: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 64}, {20, 72, 1100}, {33, 65, 100}, {1, 300, 2064}};
    for (int n = 0; n < 4; n++)
        for (int t = 0; t < 4; t++)
            for (int dtype = 0; dtype < 2; dtype++) {
                const form f = {.a = dtype ? KS_FP8E4M3 : KS_INT8,
                                .b = dtype ? KS_FP8E5M2 : KS_INT8,
                                .m = sizes[n][0],
                                .n = sizes[n][1],
                                .k = sizes[n][2],
                                .out = dtype ? BF16 : INT32,
                                .a_scales = dtype * 2,
                                .b_scales = dtype,
                                .transpose_a = t % 2,
                                .transpose_b = t / 2,
                                .alpha = 1};
                try_form(&f);
            }
}

/* Of each way that a product may be done, of which a plan takes the one that is fastest by its model. Returns how many. */
static int try_ways(const form *f)
{
    op_harness *const harness = harnesses[1];
    ks_spec spec = spec_of(f);
    ks_error error = {0};
    if (ks_op_matmul.resolve(&spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(&spec);
    const int ways = op_harness_candidates(harness, &spec, OP_PATH_COPIES);
    for (way_now = 0; way_now < ways; way_now++) {
        op_harness_choose(harness, way_now);
        try_form(f);
    }
    way_now = -1;
    op_harness_choose(harness, way_now);
    return ways;
}

/* Combination `at` of datatypes, layouts, scales and outputs. */
static form combined(const int64_t *size, int at)
{
    static const ks_dtype pairs[][2] = {
        {KS_INT8, KS_INT8}, {KS_FP8E4M3, KS_FP8E4M3}, {KS_FP8E4M3, KS_FP8E5M2}, {KS_FP8E5M2, KS_FP8E4M3}};
    const int kind = at % 4, layout = at / 4 % 4;
    return (form){.a = pairs[kind][0],
                  .b = pairs[kind][1],
                  .m = size[0],
                  .n = size[1],
                  .k = size[2],
                  .a_batch = size[3],
                  .b_batch = values_below(2) ? size[3] : 0,
                  .out = kind || values_below(2) ? FP32 + values_below(3) : INT32,
                  .a_scales = kind ? values_below(3) : 0,
                  .b_scales = kind ? values_below(3) : 0,
                  .biased = kind && values_below(2),
                  .transpose_a = layout % 2,
                  .transpose_b = layout / 2,
                  .fast = kind && values_below(2),
                  .activation = kind && values_below(3) == 0 ? KS_MATMUL_SILU : KS_MATMUL_NONE,
                  .alpha = 1};
}

/* Sizes that the tiles do not divide, a batch, few rows. */
static void each_way(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{130, 258, 400, 0}, {65, 60, 272, 3},  {40, 141, 333, 2}, {256, 512, 64, 0},
                                       {16, 208, 576, 0},  {5, 144, 1088, 0}, {43, 144, 576, 0}};
    enum { ALL = 7 * 16, STEP = 37 };
    const int most = values_cases(ALL), cases = most < ALL ? most : ALL, first = values_below(ALL);
    int ran = 0;
    if (!harnesses[1]) skip();
    for (int i = 0; i < cases; i++) {
        const int at = (first + i * STEP) % ALL;
        const form f = combined(sizes[at / 16], at);
        ran += try_ways(&f);
    }
    printf("%d products, %d ways\n", cases, ran);
}

/* On a backend with less memory than the packed operands take, if the machine has one. */
static void products_in_blocks(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{520, 300, 272, 0}, {300, 700, 270, 0}};
    const int cases = values_cases(16);
    if (!harnesses[1]) skip();
    for (int i = 0; i < cases && i < 16; i++) {
        const form f = combined(sizes[i / 4 % 2], i * 5 + values_below(4));
        try_ways(&f);
    }
}

/* As large as the chip; the tiles of 128. */
static void products_of_the_whole_chip(void **state)
{
    (void)state;
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) skip();
    for (int t = 0; t < 8; t++) {
        const form f = {.a = t / 4 ? KS_FP8E4M3 : KS_INT8,
                        .b = t / 4 ? KS_FP8E4M3 : KS_INT8,
                        .m = 2000 + t,
                        .n = 2100 - t,
                        .k = 1024 + t,
                        .out = t / 4 ? FP32 : INT32,
                        .transpose_a = t % 2,
                        .transpose_b = t / 2 % 2,
                        .alpha = 1};
        try_form(&f);
    }
}

/* The largest sums that INT32 holds, and one value more of K. */
static void sums_at_the_end(void **state)
{
    (void)state;
    ks_error error = {0};
    form f = {.a = KS_INT8, .b = KS_INT8, .m = 3, .n = 4, .k = KS_MATMUL_INT8_DEPTH, .alpha = 1};
    for (int skinny = 0; skinny < 2; skinny++) {
        f.m = skinny ? 3 : 6;
        ks_spec spec = spec_of(&f);
        assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_OK);
        ks_spec_layout(&spec);
        void *a = malloc(spec.in[0].size_bytes), *b = malloc(spec.in[1].size_bytes);
        int32_t out[24];
        assert_true(a && b);
        memset(a, 0x80, spec.in[0].size_bytes);
        memset(b, 0x80, spec.in[1].size_bytes);
        run_reference(&spec, (const void *const[]){a, b}, out);
        for (int i = 0; i < f.m * f.n; i++) assert_int_equal(out[i], KS_MATMUL_INT8_DEPTH * 16384);
        for (int h = 0; h < 2; h++) {
            if (!harnesses[h]) continue;
            assert_int_equal(run_backend(h, &spec, (const void *const[]){a, b}, out, &error), KS_OK);
            for (int i = 0; i < f.m * f.n; i++) assert_int_equal(out[i], KS_MATMUL_INT8_DEPTH * 16384);
        }
        free(a);
        free(b);
    }
    f.k++;
    ks_spec spec = spec_of(&f);
    assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_SHAPE);
    assert_non_null(strstr(error.text, "INPUT0 has 131072 values to a sum, of INT8 takes 131071 at most"));
}

/* Each of two FP8 values by each, NaN and infinity too, as products of one value. */
static void all_products_of_fp8(void **state)
{
    (void)state;
    static const ks_dtype pairs[][2] = {{KS_FP8E4M3, KS_FP8E4M3}, {KS_FP8E4M3, KS_FP8E5M2}, {KS_FP8E5M2, KS_FP8E4M3}};
    unsigned char bytes[256];
    for (int i = 0; i < 256; i++) bytes[i] = (unsigned char)i;
    float *out = malloc(256 * 256 * sizeof *out);
    assert_non_null(out);
    for (int p = 0; p < 3; p++) {
        const form f = {.a = pairs[p][0], .b = pairs[p][1], .m = 256, .n = 256, .k = 1, .out = FP32, .alpha = 1};
        ks_spec spec = spec_of(&f);
        ks_error error = {0};
        assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_OK);
        ks_spec_layout(&spec);
        for (int h = -1; h < 2; h++) {
            if (h >= 0 && !harnesses[h]) continue;
            if (h < 0)
                run_reference(&spec, (const void *const[]){bytes, bytes}, out);
            else
                assert_int_equal(run_backend(h, &spec, (const void *const[]){bytes, bytes}, out, &error), KS_OK);
            for (int i = 0; i < 65536; i++) {
                const float wanted = (float)(oracle_get(f.a, bytes, i / 256) * oracle_get(f.b, bytes, i % 256));
                if (isnan(wanted) ? !isnan(out[i]) : out[i] != wanted)
                    fail_msg("%s %02x by %02x: %a, expected %a",
                             h < 0 ? "reference"
                             : h   ? "cuda"
                                   : "cpu",
                             i / 256, i % 256, (double)out[i], (double)wanted);
            }
        }
    }
    free(out);
}

/* Scales of powers of two shift a product, bit by bit. */
static void scales_shift(void **state)
{
    (void)state;
    for (int n = 0; n < 8; n++) {
        form f = {
            .a = KS_FP8E4M3, .b = KS_FP8E5M2, .m = 5, .n = 7, .k = 300, .out = FP32, .transpose_b = n % 2, .alpha = 1};
        ks_error error = {0};
        void *in[KS_INPUTS_MAX] = {NULL};
        float out[2][35], scales[2] = {0x1p-7f, 0x1p3f};
        for (int h = 0; h < 2; h++) {
            if (!harnesses[h]) continue;
            for (int with = 0; with < 2; with++) {
                f.a_scales = f.b_scales = with;
                ks_spec spec = spec_of(&f);
                assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_OK);
                ks_spec_layout(&spec);
                if (!in[0]) fill(&spec, in);
                const void *const inputs[KS_INPUTS_MAX] = {in[0], in[1], NULL, &scales[0], &scales[1]};
                assert_int_equal(run_backend(h, &spec, inputs, out[with], &error), KS_OK);
            }
            for (int i = 0; i < 35; i++) assert_true(out[1][i] == out[0][i] * 0x1p-4f);
        }
        free(in[0]);
        free(in[1]);
    }
}

/* --- edges ------------------------------------------------------------------------------------------------------------ */

static void bad_scales(void **state)
{
    (void)state;
    static const float bad[] = {0x1.fffffcp-127f, -1.5f, INFINITY, NAN};
    for (int n = 0; n < 12; n++) {
        const form f = {.a = n % 2 ? KS_INT8 : KS_FP8E4M3,
                        .b = n % 2 ? KS_INT8 : KS_FP8E4M3,
                        .m = 9,
                        .n = 70,
                        .k = n % 3 ? 40 : 1200,
                        .out = FP32,
                        .a_scales = 2,
                        .b_scales = 2,
                        .alpha = 1};
        ks_spec spec = spec_of(&f);
        ks_error error = {0}, text = {0};
        void *in[KS_INPUTS_MAX] = {NULL}, *out = malloc(9 * 70 * 4);
        assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_OK);
        ks_spec_layout(&spec);
        fill(&spec, in);
        const int input = 3 + n % 2;
        ((float *)in[input])[n % 5] = bad[n % 4];
        ((float *)in[input])[8] = -3;
        if (n % 2) ((float *)in[3])[0] = 0; /* of the last input that has one the first is named */
        ks_bad_value found;
        assert_true(ks_op_matmul.check(&spec, (const void *const *)in, &found));
        assert_int_equal(found.input, input);
        assert_int_equal(found.place, n % 5);
        assert_int_equal(ks_op_matmul.refuse(&spec, &found, &text), KS_RANGE);
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            assert_int_equal(run_backend(b, &spec, (const void *const *)in, out, &error), KS_RANGE);
            assert_string_equal(error.text, text.text);
        }
        for (int i = 0; i < KS_INPUTS_MAX; i++) free(in[i]);
        free(out);
    }
}

static void refuse(form f, ks_status status, const char *words)
{
    ks_error error = {0};
    ks_spec spec = spec_of(&f);
    assert_int_equal(ks_op_matmul.resolve(&spec, &error), status);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static void refusals(void **state)
{
    (void)state;
    const form f = {.a = KS_INT8, .b = KS_INT8, .m = 2, .n = 3, .k = 4, .alpha = 1};
    form g = f;
    g.b = KS_FP8E4M3;
    refuse(g, KS_DATATYPE, "INPUT0 has datatype INT8, INPUT1 FP8E4M3; takes INT8 by INT8");
    g.a = g.b = KS_FP8E5M2;
    refuse(g, KS_DATATYPE, "INPUT0 has datatype FP8E5M2, INPUT1 FP8E5M2; takes");
    g.a = KS_FP8E4M3;
    g.out = INT32;
    refuse(g, KS_PARAMETER, "'out_datatype' is INT32, INPUT0 has datatype FP8E4M3");
    g = f;
    g.fast = true;
    refuse(g, KS_PARAMETER, "'precision' is fast, INPUT0 has datatype INT8, needs FP8");
    g = f;
    g.a = g.b = KS_UINT8;
    refuse(g, KS_DATATYPE, "INPUT0 has datatype UINT8, takes FP16, BF16, FP32, FP64, INT8 or FP8");
    g.a = g.b = KS_FP16;
    g.out = FP32;
    refuse(g, KS_PARAMETER, "'out_datatype' is FP32, INPUT0 has datatype FP16, which gives FP16");
    g.out = AUTO;
    g.a_scales = 1;
    refuse(g, KS_DATATYPE, "INPUT3 (scale_a) goes with operands of 8 bits, INPUT0 has datatype FP16");
    g = f;
    g.out = INT32;
    g.biased = true;
    refuse(g, KS_PARAMETER, "an output of INT32 takes no bias, scales, alpha or activation");
    g.biased = false;
    g.alpha = 2;
    refuse(g, KS_PARAMETER, "an output of INT32 takes no bias");
    g = f;
    g.a_scales = g.b_scales = 2;
    ks_spec spec = spec_of(&g);
    ks_error error = {0};
    spec.in[4].dims[0] = 2;
    assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_SHAPE);
    assert_non_null(strstr(error.text, "INPUT4 (scale_b) has shape [2], takes [1] or [3]"));
    spec.in[4].dims[0] = 3;
    spec.in[3].dtype = KS_FP16;
    assert_int_equal(ks_op_matmul.resolve(&spec, &error), KS_DATATYPE);
}

static void equal_work_has_equal_keys(void **state)
{
    (void)state;
    form f = {.a = KS_INT8, .b = KS_INT8, .m = 2, .n = 3, .k = 4, .alpha = 1};
    ks_spec a = spec_of(&f), b;
    f.out = INT32;
    b = spec_of(&f);
    assert_int_equal(ks_op_matmul.resolve(&a, NULL), KS_OK);
    assert_int_equal(ks_op_matmul.resolve(&b, NULL), KS_OK);
    assert_true(ks_spec_same(&a, &b));
    assert_int_equal(ks_op_matmul.resolve(&b, NULL), KS_OK); /* once more, as row blocks are */
    assert_true(ks_spec_same(&a, &b));
    assert_int_equal(a.out[0].dtype, KS_INT32);
    assert_false(ks_op_matmul.joins(&a));
}

/* Steps of 0 do not say whose the batch is: its scales are those of each matrix all the same. */
static void sums_of_nothing(void **state)
{
    (void)state;
    for (int of = 0; of < 2; of++) {
        form f = {.a = KS_INT8,
                  .b = KS_INT8,
                  .m = 16,
                  .n = 5,
                  .out = FP32,
                  .a_scales = 2,
                  .b_scales = 2,
                  .biased = true,
                  .alpha = 1};
        if (of)
            f.a_batch = 2;
        else
            f.b_batch = 2;
        ks_spec spec = spec_of(&f);
        ks_matmul_shape s;
        assert_int_equal(ks_op_matmul.resolve(&spec, NULL), KS_OK);
        ks_matmul_shape_of(&spec, &s);
        assert_int_equal(s.m, 16);
        assert_int_equal(s.batch, 2);
        try_form(&f);
    }
}

int main(void)
{
    values_seed();
    if (getenv("KS_ONLY")) cmocka_set_test_filter(getenv("KS_ONLY")); /* of those names: "each_*" */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_products),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(each_way),
        cmocka_unit_test(products_in_blocks),
        cmocka_unit_test(products_of_the_whole_chip),
        cmocka_unit_test(sums_at_the_end),
        cmocka_unit_test(all_products_of_fp8),
        cmocka_unit_test(scales_shift),
        cmocka_unit_test(sums_of_nothing),
        cmocka_unit_test(bad_scales),
        cmocka_unit_test(refusals),
        cmocka_unit_test(equal_work_has_equal_keys),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
