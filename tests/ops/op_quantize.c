/* quantize against one element at a time: the reference by itself in buffers of exactly its size, then every backend that this machine
 * has, on all its paths. Scales and codes have one right value each. KS_CASES, KS_SEED: how many random cases, and which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { ARENA_BYTES = 96 << 20 };
#include "ops/op_backends.h"
#include "ops/op_quantize.h"

extern const ks_op ks_op_quantize;

static const ks_dtype dtypes[] = {KS_FP32, KS_FP16, KS_BF16};
enum { DTYPES = 3, TO = 3, PER = 3 };

/* --- what is right ---------------------------------------------------------------------------------------------------- */

/* The reciprocal and the product are rounded to FP32; FP64's have bits enough for a second rounding. */
static long double code_of(ks_dtype to, float x, float scale)
{
    const volatile double wide = 1 / (double)scale;
    const float inverse = (float)wide;
    const volatile double product = (double)x * (double)inverse;
    const float quotient = (float)product;
    if (to != KS_INT8) return oracle_round(to, (long double)quotient);
    if (isnan(quotient)) return 0;
    return nearbyintl(fminl(fmaxl((long double)quotient, -128), 127));
}

/* Of the finite ones. */
static float scale_for(ks_dtype to, float largest)
{
    const volatile double wide = (double)largest / (double)ks_quantize_most(to);
    const float scale = (float)wide;
    return largest == 0 ? 1 : scale < FLT_MIN ? FLT_MIN : scale;
}

static void check_scales(const ks_spec *spec, const void *const *in, const float *scales, const char *who)
{
    const ks_quantize_shape s = ks_quantize_shape_of(spec);
    float *largest = calloc((size_t)s.scales + 1, sizeof *largest);
    assert_non_null(largest);
    for (int64_t i = 0; i < s.rows * s.columns; i++) {
        const float x = fabsf((float)values_get(s.from, in[0], i));
        float *most = &largest[quantize_scale_at(&s, i)];
        if (isfinite(x) && x > *most) *most = x;
    }
    for (int64_t i = 0; i < s.scales; i++) {
        const float wanted = s.given ? ((const float *)in[1])[i] : scale_for(s.to, largest[i]);
        if (scales[i] == wanted) continue;
        quantize_describe(spec, who);
        fail_msg("scale %lld: %a, expected %a", (long long)i, (double)scales[i], (double)wanted);
    }
    free(largest);
}

static void check(const ks_spec *spec, const void *const *in, const void *out, const char *who)
{
    const ks_quantize_shape s = ks_quantize_shape_of(spec);
    const unsigned char *codes = (const unsigned char *)out + spec->out[0].offset;
    const float *scales = (const float *)(const void *)((const char *)out + spec->out[1].offset);
    check_scales(spec, in, scales, who);
    for (int64_t i = 0; i < s.rows * s.columns; i++) {
        const float x = (float)values_get(s.from, in[0], i), scale = scales[quantize_scale_at(&s, i)];
        const long double wanted = code_of(s.to, x, scale), got = oracle_get(s.to, codes, i);
        const bool same_sign = s.to == KS_INT8 || isnan(wanted) || signbit(wanted) == signbit(got);
        if ((got == wanted || (isnan(got) && isnan(wanted))) && same_sign) continue;
        quantize_describe(spec, who);
        fail_msg("element %lld: %a by %a is %Lg, expected %Lg", (long long)i, (double)x, (double)scale, got, wanted);
    }
}

static void try_kind(ks_spec *spec, values_kind kind)
{
    quantize_resolve_spec(spec);
    const ks_tensor *x = &spec->in[0];
    const int64_t last = x->dims[x->rank - 1];
    void *in = quantize_memory(x->size_bytes);
    float *scales = quantize_memory(spec->in[1].size_bytes);
    values_fill(x->dtype, in, ks_tensor_count(x), kind, last ? last : 1);
    if (spec->given == 3) quantize_fill_scales(scales, ks_tensor_count(&spec->in[1]));
    quantize_try(spec, (const void *const[]){in, scales}, check);
    free(in);
    free(scales);
}

/* --- random cases ----------------------------------------------------------------------------------------------------- */

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(250);
    for (int i = 0; i < cases; i++) {
        ks_tensor shape = {0};
        values_shape(&shape, 4, values_most());
        ks_spec spec = quantize_spec(&ks_op_quantize, dtypes[values_below(DTYPES)], shape.rank, shape.dims,
                                     values_below(TO), (ks_scale_per)values_below(PER), values_below(3) == 0);
        try_kind(&spec, (values_kind)values_below(VALUES_KINDS));
    }
    printf("%d random cases\n", cases);
}

/* Each kernel and each way to find an element's scale, in as little work as reaches it: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const int64_t table[][2] = {{5, 16},    {3, 17},    {40, 512},  {7, 1023}, {3, 5000},
                                       {2, 40003}, {600, 160}, {3000, 33}, {300, 264}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int d = 0; d < DTYPES; d++)
            for (int per = 0; per < PER; per++)
                for (int given = 0; given < 2; given++) {
                    ks_spec spec = quantize_spec(&ks_op_quantize, dtypes[d], 2, table[n], (int)(n + (size_t)per) % TO,
                                                 (ks_scale_per)per, given);
                    try_kind(&spec, VALUES_NORMAL);
                }
}

/* The shapes of the benches, on a GPU alone. */
static void tensors_of_the_whole_chip(void **state)
{
    (void)state;
    static const int64_t table[][2] = {{4096, 4096}, {16, 1 << 20}, {1 << 20, 16}, {4097, 4095}};
    if (!harnesses[1] || strcmp(ks_backend_cuda->name, "cuda") != 0) skip();
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int per = 0; per < PER; per++) {
            ks_spec spec =
                quantize_spec(&ks_op_quantize, dtypes[n % 2 * 2], 2, table[n], (int)n % TO, (ks_scale_per)per, false);
            try_kind(&spec, VALUES_NORMAL);
        }
}

/* --- values ----------------------------------------------------------------------------------------------------------- */

/* All of FP16's and of BF16's bit patterns, by scales of every size. */
static void all_values_of_16_bits(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    uint16_t *in = quantize_memory(COUNT * sizeof *in);
    for (int i = 0; i < COUNT; i++) in[i] = (uint16_t)i;
    static const float scales[] = {1, 0x1.fffffep-3f, 0x1p-126f, 0x1p-61f, 3, 0x1p127f, 0.1f};
    for (int d = 1; d < DTYPES; d++)
        for (int to = 0; to < TO; to++)
            for (int n = 0; n < 7; n++) {
                ks_spec spec =
                    quantize_spec(&ks_op_quantize, dtypes[d], 1, (const int64_t[]){COUNT}, to, KS_SCALE_TENSOR, true);
                quantize_resolve_spec(&spec);
                quantize_try(&spec, (const void *const[]){in, &scales[n]}, check);
            }
    free(in);
}

/* Numbers in the middle between two codes, and those beside them. */
static void ties(void **state)
{
    (void)state;
    enum { COUNT = 3 * 256 };
    float *in = quantize_memory(COUNT * sizeof *in);
    for (int to = 0; to < TO; to++)
        for (int n = 0; n < 20; n++) {
            const ks_dtype dtype = to == 0 ? KS_INT8 : to == 1 ? KS_FP8E4M3 : KS_FP8E5M2;
            const float scale = n % 2 ? ldexpf(1, values_below(40) - 20) : (float)exp(values_normal());
            for (int i = 0; i < COUNT; i++) {
                const unsigned char two[16] = {(unsigned char)(i / 3),
                                               (unsigned char)(i / 3 + 1)}; /* room for any datatype */
                const long double middle = (oracle_get(dtype, two, 0) + oracle_get(dtype, two, 1)) / 2;
                in[i] = (float)middle * scale;
                if (i % 3) in[i] = nextafterf(in[i], i % 3 == 1 ? -INFINITY : INFINITY);
            }
            ks_spec spec =
                quantize_spec(&ks_op_quantize, KS_FP32, 1, (const int64_t[]){COUNT}, to, KS_SCALE_TENSOR, true);
            quantize_resolve_spec(&spec);
            quantize_try(&spec, (const void *const[]){in, &scale}, check);
        }
    free(in);
}

/* Half a step at most between a value and what comes back, of scales that were computed; of FP8 half a step of that size. */
static void round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        const int64_t dims[] = {1 + values_below(9), 1 + values_below(3000)};
        ks_spec spec = quantize_spec(&ks_op_quantize, dtypes[i % DTYPES], 2, dims, values_below(TO),
                                     (ks_scale_per)values_below(PER), false);
        quantize_resolve_spec(&spec);
        const ks_quantize_shape s = ks_quantize_shape_of(&spec);
        void *in = quantize_memory(spec.in[0].size_bytes);
        unsigned char *out = quantize_memory(ks_spec_out_bytes(&spec));
        values_fill(s.from, in, dims[0] * dims[1], (values_kind)values_below(VALUES_FINITE), dims[1]);
        for (int b = 0; b < 2; b++) {
            ks_error error = {0};
            if (!harnesses[b]) continue;
            if (quantize_run_backend(b, &spec, (const void *const[]){in}, out, &error) != KS_OK)
                fail_msg("%s", error.text);
            const float *scales = (const float *)(const void *)(out + spec.out[1].offset);
            for (int64_t k = 0; k < dims[0] * dims[1]; k++) {
                const long double scale = (long double)scales[quantize_scale_at(&s, k)], x = values_get(s.from, in, k);
                const long double back = oracle_get(s.to, out, k) * scale;
                const long double relative = s.to == KS_INT8 ? 0 : s.to == KS_FP8E4M3 ? 0x1p-4L : 0x1p-3L;
                const long double least = s.to == KS_INT8 ? 0.5L : s.to == KS_FP8E4M3 ? 0x1p-10L : 0x1p-17L;
                const long double allowed = fmaxl(relative * fabsl(x), least * scale) + 0x1p-22L * fabsl(x);
                if (fabsl(back - x) <= allowed) continue;
                quantize_describe(&spec, b ? "cuda" : "cpu");
                fail_msg("element %lld: %Lg came back as %Lg", (long long)k, x, back);
            }
        }
        free(in);
        free(out);
    }
}

/* --- edges ------------------------------------------------------------------------------------------------------------ */

static void bad_scales(void **state)
{
    (void)state;
    static const int64_t dims[][2] = {{3, 40}, {7, 33}, {2, 3000}};
    for (int n = 0; n < 3; n++)
        for (int per = 0; per < PER; per++) {
            ks_spec spec = quantize_spec(&ks_op_quantize, dtypes[per], 2, dims[n], n, (ks_scale_per)per, true);
            quantize_resolve_spec(&spec);
            void *in = quantize_memory(spec.in[0].size_bytes);
            values_fill(spec.in[0].dtype, in, ks_tensor_count(&spec.in[0]), VALUES_NORMAL, dims[n][1]);
            quantize_bad_scales(&spec, in, check);
            free(in);
        }
}

static void refusals(void **state)
{
    (void)state;
    quantize_refuse_scales(&ks_op_quantize, KS_FP32);
    quantize_refusal(quantize_spec(&ks_op_quantize, KS_INT8, 1, (const int64_t[]){4}, 0, KS_SCALE_ROW, false),
                     KS_DATATYPE, "quantize: INPUT0 (x) has datatype INT8, takes FP32, FP16 or BF16");
}

static void empty_tensors(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{0, 4}, {3, 0}, {0, 0}};
    for (int n = 0; n < 3; n++)
        for (int per = 0; per < PER; per++)
            for (int given = 0; given < 2; given++) {
                ks_spec spec = quantize_spec(&ks_op_quantize, KS_FP16, 2, shapes[n], per, (ks_scale_per)per, given);
                try_kind(&spec, VALUES_NORMAL);
            }
}

static void sample(void **state)
{
    (void)state;
    ks_spec spec;
    ks_op_quantize.sample(&spec);
    try_kind(&spec, VALUES_UNIFORM);
    assert_int_equal(ks_op_quantize.rows(&spec).dims, 1);
}

int main(void)
{
    values_seed();
    if (getenv("KS_ONLY")) cmocka_set_test_filter(getenv("KS_ONLY")); /* of those names: "each_*" */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(tensors_of_the_whole_chip),
        cmocka_unit_test(all_values_of_16_bits),
        cmocka_unit_test(ties),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(bad_scales),
        cmocka_unit_test(refusals),
        cmocka_unit_test(empty_tensors),
        cmocka_unit_test(sample),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
