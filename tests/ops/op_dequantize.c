/* dequantize against one element at a time: the reference by itself in buffers of exactly its size, then every backend that this machine
 * has, on all its paths. Each element has one right value. KS_CASES, KS_SEED: how many random cases, and which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { ARENA_BYTES = 96 << 20 };
#include "ops/op_backends.h"
#include "ops/op_quantize.h"

extern const ks_op ks_op_dequantize;

static const ks_dtype dtypes[] = {KS_INT8, KS_FP8E4M3, KS_FP8E5M2};
enum { DTYPES = 3, TO = 3, PER = 3 };

/* --- what is right ---------------------------------------------------------------------------------------------------- */

/* The FP32 nearest to the product, which FP64 holds. */
static void check(const ks_spec *spec, const void *const *in, const void *out, const char *who)
{
    const ks_quantize_shape s = ks_quantize_shape_of(spec);
    const float *scales = in[1];
    for (int64_t i = 0; i < s.rows * s.columns; i++) {
        const long double code = oracle_get(s.from, in[0], i);
        const volatile double wide = (double)code * (double)scales[quantize_scale_at(&s, i)];
        const long double wanted = oracle_round(s.to, (long double)(float)wide), got = values_get(s.to, out, i);
        if (got == wanted || (isnan(got) && isnan(wanted))) continue;
        quantize_describe(spec, who);
        fail_msg("element %lld: %Lg, expected %Lg", (long long)i, got, wanted);
    }
}

/* Bytes are drawn, so that all codes occur. */
static void try_bytes(ks_spec *spec)
{
    quantize_resolve_spec(spec);
    unsigned char *in = quantize_memory(spec->in[0].size_bytes);
    float *scales = quantize_memory(spec->in[1].size_bytes);
    for (size_t i = 0; i < spec->in[0].size_bytes; i++) in[i] = (unsigned char)values_next();
    quantize_fill_scales(scales, ks_tensor_count(&spec->in[1]));
    quantize_try(spec, (const void *const[]){in, scales}, check);
    free(in);
    free(scales);
}

/* --- cases ------------------------------------------------------------------------------------------------------------ */

static void random_shapes_and_parameters(void **state)
{
    (void)state;
    const int cases = values_cases(250);
    for (int i = 0; i < cases; i++) {
        ks_tensor shape = {0};
        values_shape(&shape, 4, values_most());
        ks_spec spec = quantize_spec(&ks_op_dequantize, dtypes[values_below(DTYPES)], shape.rank, shape.dims,
                                     values_below(TO), (ks_scale_per)values_below(PER), true);
        try_bytes(&spec);
    }
    printf("%d random cases\n", cases);
}

/* Each datatype and each way to find an element's scale: for sanitizers. */
static void each_kernel(void **state)
{
    (void)state;
    static const int64_t table[][2] = {{5, 16}, {3, 17}, {40, 512}, {7, 1023}, {2, 40003}};
    for (size_t n = 0; n < sizeof table / sizeof *table; n++)
        for (int d = 0; d < DTYPES; d++)
            for (int per = 0; per < PER; per++)
                for (int to = 0; to < TO; to++) {
                    ks_spec spec =
                        quantize_spec(&ks_op_dequantize, dtypes[d], 2, table[n], to, (ks_scale_per)per, true);
                    try_bytes(&spec);
                }
}

static void bad_scales(void **state)
{
    (void)state;
    static const int64_t dims[][2] = {{3, 40}, {7, 33}, {2, 3000}};
    for (int n = 0; n < 3; n++)
        for (int per = 0; per < PER; per++) {
            ks_spec spec = quantize_spec(&ks_op_dequantize, dtypes[per], 2, dims[n], n, (ks_scale_per)per, true);
            quantize_resolve_spec(&spec);
            unsigned char *in = quantize_memory(spec.in[0].size_bytes);
            for (size_t i = 0; i < spec.in[0].size_bytes; i++) in[i] = (unsigned char)values_next();
            quantize_bad_scales(&spec, in, check);
            free(in);
        }
}

static void refusals(void **state)
{
    (void)state;
    quantize_refuse_scales(&ks_op_dequantize, KS_INT8);
    quantize_refusal(quantize_spec(&ks_op_dequantize, KS_FP32, 1, (const int64_t[]){4}, 0, KS_SCALE_TENSOR, true),
                     KS_DATATYPE, "dequantize: INPUT0 (x) has datatype FP32, takes INT8, FP8E4M3 or FP8E5M2");
}

static void empty_tensors(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{0, 4}, {3, 0}, {0, 0}};
    for (int n = 0; n < 3; n++)
        for (int per = 0; per < PER; per++) {
            ks_spec spec = quantize_spec(&ks_op_dequantize, dtypes[n], 2, shapes[n], per, (ks_scale_per)per, true);
            try_bytes(&spec);
        }
}

static void sample(void **state)
{
    (void)state;
    ks_spec spec;
    ks_op_dequantize.sample(&spec);
    spec.given = 3;
    try_bytes(&spec);
    assert_int_equal(ks_op_dequantize.rows(&spec).dims, 1);
}

int main(void)
{
    values_seed();
    if (getenv("KS_ONLY")) cmocka_set_test_filter(getenv("KS_ONLY")); /* of those names: "each_*" */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes_and_parameters),
        cmocka_unit_test(each_kernel),
        cmocka_unit_test(bad_scales),
        cmocka_unit_test(refusals),
        cmocka_unit_test(empty_tensors),
        cmocka_unit_test(sample),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
