/* Affine against long double, through every backend that this program has: the CPU, a GPU or the emulated one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/op_harness.h"
#include "ops/op_values.h"

extern const ks_op ks_op_affine;

/* Rounded once: half a unit of the last place. */
static bool is_near(float got, long double want)
{
    return fabsl((long double)got - want) <= 0x1.001p-24L * fabsl(want) + 0x1p-149L;
}

static void check(op_harness *harness, int64_t rows, int64_t cols)
{
    ks_spec spec;
    ks_error error = {0};
    ks_spec_init(&spec, &ks_op_affine);
    spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {rows, cols}};
    spec.params[0].d = (float)values_normal();
    spec.params[1].d = (float)values_normal();
    assert_int_equal(spec.op->resolve(&spec, &error), KS_OK);
    ks_spec_layout(&spec);
    const int64_t count = rows * cols;
    float *in = malloc((size_t)count * sizeof *in), *out = malloc((size_t)count * sizeof *out);
    assert_true(in && out);
    for (int64_t i = 0; i < count; i++) in[i] = (float)values_normal();
    const void *const inputs[] = {in};
    for (int captured = 0; captured < 2; captured++) {
        if (op_harness_run(harness, &spec, inputs, out, OP_PATH_PLANNED, captured ? 3 : 1, captured, &error) != KS_OK)
            fail_msg("%s", error.text);
        for (int64_t i = 0; i < count; i++)
            assert_true(is_near(out[i], spec.params[0].d * in[i] + (long double)spec.params[1].d));
    }
    free(in);
    free(out);
}

static void values_of_each_backend(void **state)
{
    (void)state;
    const ks_backend *const backends[] = {ks_backend_cpu, ks_backend_cuda};
    for (int b = 0; b < 2; b++) {
        op_harness *harness = backends[b] ? op_harness_open(backends[b], 64 << 20) : NULL;
        if (!harness) continue;
        check(harness, 1, 1);
        check(harness, 3, 1000);
        check(harness, 257, 1023);
        printf("backend %s: right\n", backends[b]->name);
        op_harness_close(&harness);
    }
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_of_each_backend)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
