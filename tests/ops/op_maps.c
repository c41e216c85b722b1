/* Several maps as one piece of work against the same maps one by one on the same backend, bit for bit, and against themselves in FP64.
 * KS_CASES, KS_SEED: how many random cases, and which. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/reference.h"
#include "ops/map/maps.h"
#include "ops/map_oracle.h"
#include "ops/op_harness.h"

extern const ks_op ks_op_map;

enum { ARENA_BYTES = 96 << 20, VALUES_MAX = KS_MAPS_INPUTS + KS_MAPS_MAX };
#include "ops/op_backends.h"

/* Inputs, then the functions' results. */
typedef struct maps_case {
    int inputs, functions;
    ks_maps_function function[KS_MAPS_MAX]; /* by values */
    ks_tensor tensor[VALUES_MAX];
    void *memory[VALUES_MAX];
    ks_spec one[KS_MAPS_MAX]; /* each as map has it */
    int operand[KS_MAPS_MAX][KS_MAP_OPERANDS];
} maps_case;

/* --- drawing ----------------------------------------------------------------------------------------------------------- */

static const ks_dtype narrow[] = {KS_FP32, KS_FP16, KS_BF16, KS_FP8E4M3, KS_FP8E5M2, KS_BOOL};
static const ks_dtype all[] = {KS_FP32,  KS_FP16,   KS_BF16,   KS_FP64,   KS_INT8, KS_INT16,   KS_INT32,  KS_INT64,
                               KS_UINT8, KS_UINT16, KS_UINT32, KS_UINT64, KS_BOOL, KS_FP8E4M3, KS_FP8E5M2};

typedef struct drawing {
    const ks_dtype *dtypes; /* that values may have; the first three more often */
    int dtypes_count;
    bool tame; /* functions that take a small error for a small one, of FP32 */
    int rank;
    int64_t dims[KS_RANK_MAX];
} drawing;

static ks_dtype draw_dtype(const drawing *d)
{
    return d->dtypes[values_below(2) ? values_below(d->dtypes_count < 3 ? d->dtypes_count : 3)
                                     : values_below(d->dtypes_count)];
}

static void draw_shape(drawing *d)
{
    static const int64_t lengths[] = {1, 2, 3, 5, 8, 16, 24, 33, 64, 100};
    d->rank = values_below(4);
    for (int i = 0; i < d->rank; i++) d->dims[i] = lengths[values_below(10)];
    if (values_below(6) == 0) d->rank = 1, d->dims[0] = 1 + values_below(9000);
}

/* A tensor that broadcasts to the shape; full: one of it. */
static int add_input(maps_case *c, const drawing *d, ks_dtype dtype, bool full)
{
    ks_tensor *t = &c->tensor[c->inputs];
    ks_error error;
    const int cut = full || values_below(2) ? 0 : values_below(d->rank + 1);
    *t = (ks_tensor){.dtype = dtype, .rank = d->rank - cut};
    for (int i = 0; i < t->rank; i++) t->dims[i] = full || values_below(4) ? d->dims[cut + i] : 1;
    assert_int_equal(ks_tensor_measure(t, "drawn", &error), KS_OK);
    c->memory[c->inputs] = calloc(1, t->size_bytes + 1);
    assert_non_null(c->memory[c->inputs]);
    for (int64_t i = 0; i < ks_tensor_count(t); i++) {
        const double value = (double)(int64_t)(values_next() >> 32) / (1ll << 31) * (values_below(3) ? 2 : 9);
        if (dtype == KS_BOOL)
            ((uint8_t *)c->memory[c->inputs])[i] = (uint8_t)values_below(3);
        else if (ks_dtype_kind(dtype) == KS_KIND_FLOAT && ks_dtype_size(dtype) > 1)
            values_put(dtype, c->memory[c->inputs], i, value);
        else
            memset((char *)c->memory[c->inputs] + (size_t)i * ks_dtype_size(dtype), values_below(200),
                   ks_dtype_size(dtype));
    }
    return c->inputs++;
}

/* A value of that datatype: a result, mostly the last one, or an input; -1: there is no room for one. */
static int draw_value(maps_case *c, const drawing *d, ks_dtype dtype, bool again)
{
    for (int try = 0; try < 6 && c->functions > 0; try++) {
        const int value = KS_MAPS_INPUTS + (again && values_below(3) ? c->functions - 1 : values_below(c->functions));
        if (c->tensor[value].dtype == dtype) return value;
    }
    for (int i = 0; i < c->inputs; i++)
        if (c->tensor[i].dtype == dtype && values_below(2)) return i;
    return c->inputs < KS_MAPS_INPUTS ? add_input(c, d, dtype, c->functions == 0) : -1;
}

static bool is_tame(ks_map_function function)
{
    static const ks_map_function tame[] = {KS_MAP_ADD,  KS_MAP_SUB,  KS_MAP_TANH,     KS_MAP_SIGMOID, KS_MAP_RELU,
                                           KS_MAP_GELU, KS_MAP_SILU, KS_MAP_CLAMP,    KS_MAP_ABS,     KS_MAP_NEG,
                                           KS_MAP_ERF,  KS_MAP_SIN,  KS_MAP_SOFTPLUS, KS_MAP_MIN};
    for (size_t i = 0; i < sizeof tame / sizeof tame[0]; i++)
        if (tame[i] == function) return true;
    return false;
}

/* false: that function was none for these. */
static bool add_function(maps_case *c, const drawing *d)
{
    static const int operands[] = {
#define X(name, text, operands, kind, flops) operands,
        KS_MAP_TABLE(X)
#undef X
    };
    const ks_map_function function = (ks_map_function)values_below(KS_MAP_FUNCTIONS);
    const int inputs = c->inputs, last = KS_MAPS_INPUTS + c->functions - 1;
    const ks_dtype dtype = c->functions > 0 && values_below(4) ? c->tensor[last].dtype : draw_dtype(d);
    ks_spec *spec = &c->one[c->functions];
    int *operand = c->operand[c->functions];
    ks_error error;
    if (d->tame && !is_tame(function)) return false;
    ks_spec_init(spec, &ks_op_map);
    spec->params[KS_MAP_OP].i = function;
    spec->given = 0;
    for (int k = 0; k < operands[function]; k++) {
        operand[k] = -1;
        if (k == 1 && operands[function] == 2 && values_below(4) == 0) continue; /* the scalar */
        operand[k] = draw_value(c, d, function == KS_MAP_WHERE && k == 0 ? KS_BOOL : dtype, k == 0);
        if (operand[k] < 0) break;
        spec->in[k] = c->tensor[operand[k]];
        spec->given |= (uint16_t)(1u << k);
    }
    if (function == KS_MAP_CAST || (!d->tame && values_below(5) == 0))
        spec->params[KS_MAP_OUT].i = d->tame ? 0 : (int64_t)draw_dtype(d) + 1;
    if (values_below(2) && function != KS_MAP_CLAMP) spec->params[KS_MAP_A].d = values_below(5) - 1;
    for (int k = operands[function]; k < KS_MAP_OPERANDS; k++) operand[k] = -1;
    const bool resolves = spec->given && ks_op_map.resolve(spec, &error) == KS_OK;
    const ks_tensor shape = {.rank = d->rank};
    int64_t count = 1;
    for (int i = 0; i < shape.rank; i++) count *= d->dims[i];
    bool taken = false;
    for (int i = 0; i < d->dtypes_count && resolves; i++) taken = taken || d->dtypes[i] == spec->out[0].dtype;
    if (!taken || ks_tensor_count(&spec->out[0]) != count) {
        while (c->inputs > inputs) {
            free(c->memory[--c->inputs]);
            c->memory[c->inputs] = NULL;
        }
        return false;
    }
    ks_maps_function *f = &c->function[c->functions];
    f->work = ks_map_work_of(spec);
    for (int k = 0; k < KS_MAP_OPERANDS; k++)
        f->from[k] = k < f->work.operands && f->work.input[k] >= 0 ? operand[f->work.input[k]] : -1;
    c->tensor[KS_MAPS_INPUTS + c->functions++] = spec->out[0];
    return true;
}

/* Each result that nobody reads is but the last one left there: a pass may compute it in vain. */
static maps_case draw_case(drawing *d, int functions)
{
    maps_case c = {0};
    draw_shape(d);
    for (int tries = 0; c.functions < functions && tries < 3000; tries++) (void)add_function(&c, d);
    return c;
}

static void drop_case(maps_case *c)
{
    for (int i = 0; i < VALUES_MAX; i++) free(c->memory[i]);
}

/* --- running ------------------------------------------------------------------------------------------------------------ */

/* b -1: the reference by itself. */
static void run_spec(int b, ks_spec *spec, const void *const *in, void *out)
{
    ks_error error = {0};
    if (b < 0) {
        void *scratch = malloc(ks_cpu_scratch_bytes(spec));
        assert_non_null(scratch);
        ks_cpu_reference(spec, in, (void *const[]){out}, scratch);
        free(scratch);
        return;
    }
    if (op_harness_run(harnesses[b], spec, in, out, OP_PATH_COPIES, 1, values_below(2), &error) != KS_OK)
        fail_msg("%s: %s", spec->op->name, error.text);
}

/* NULL: it has more values at a time than registers. */
static ks_spec *whole_of(const maps_case *c)
{
    ks_maps_function functions[KS_MAPS_MAX];
    ks_spec *spec = calloc(1, sizeof *spec);
    ks_error error = {0};
    assert_non_null(spec);
    memcpy(functions, c->function, sizeof functions);
    for (int i = 0; i < c->functions; i++)
        for (int k = 0; k < KS_MAP_OPERANDS; k++)
            if (functions[i].from[k] >= KS_MAPS_INPUTS) functions[i].from[k] += c->inputs - KS_MAPS_INPUTS;
    if (!ks_maps_assign(functions, c->functions, c->inputs)) {
        free(spec);
        return NULL;
    }
    ks_spec_init(spec, &ks_op_maps);
    ks_maps_write(functions, c->functions, spec->params);
    spec->given = (uint16_t)((1u << c->inputs) - 1);
    for (int i = 0; i < c->inputs; i++) spec->in[i] = c->tensor[i];
    if (ks_op_maps.resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
    return spec;
}

/* One by one. */
static void run_each(int b, maps_case *c)
{
    for (int i = 0; i < c->functions; i++) {
        const void *in[KS_INPUTS_MAX] = {NULL};
        ks_spec *spec = &c->one[i];
        void **to = &c->memory[KS_MAPS_INPUTS + i];
        for (int k = 0; k < KS_MAP_OPERANDS; k++)
            if (c->operand[i][k] >= 0) in[k] = c->memory[c->operand[i][k]];
        free(*to);
        *to = calloc(1, spec->out[0].size_bytes + 1);
        assert_non_null(*to);
        ks_spec_layout(spec);
        run_spec(b, spec, in, *to);
    }
}

static void say(const maps_case *c)
{
    static const char *const names[] = {
#define X(name, text, operands, kind, flops) text,
        KS_MAP_TABLE(X)
#undef X
    };
    for (int i = 0; i < c->functions; i++) {
        const ks_maps_function *f = &c->function[i];
        print_error("%d: %s %s of %d %d %d a %g to %s\n", KS_MAPS_INPUTS + i, names[f->work.function],
                    ks_dtype_name(f->work.dtype), f->from[0], f->from[1], f->from[2], f->work.a,
                    ks_dtype_name(f->work.out));
    }
}

static bool is_nan(ks_dtype dtype, const void *data, int64_t i)
{
    return ks_dtype_kind(dtype) == KS_KIND_FLOAT && isnan(oracle_get(dtype, data, i));
}

/* Bit for bit; on a GPU any NaN is one. */
static void check_same(int b, const maps_case *c, const void *got, const void *wanted)
{
    const ks_tensor *out = &c->tensor[KS_MAPS_INPUTS + c->functions - 1];
    const size_t size = ks_dtype_size(out->dtype);
    for (int64_t i = 0; i < ks_tensor_count(out); i++) {
        if (memcmp((const char *)got + (size_t)i * size, (const char *)wanted + (size_t)i * size, size) == 0) continue;
        if (b == 1 && is_nan(out->dtype, got, i) && is_nan(out->dtype, wanted, i)) continue;
        say(c);
        fail_msg("backend %d: element %lld of %lld: %.9Lg, one by one %.9Lg", b, (long long)i,
                 (long long)ks_tensor_count(out), oracle_get(out->dtype, got, i), oracle_get(out->dtype, wanted, i));
    }
}

static void try_case(int b, maps_case *c)
{
    const void *in[KS_INPUTS_MAX] = {NULL};
    ks_spec *spec = whole_of(c);
    if (!spec) return;
    void *got = malloc(spec->out[0].size_bytes + 1);
    assert_non_null(got);
    memset(got, 0xA5, spec->out[0].size_bytes + 1);
    for (int i = 0; i < c->inputs; i++) in[i] = c->memory[i];
    run_each(b, c);
    run_spec(b, spec, in, got);
    check_same(b, c, got, c->memory[KS_MAPS_INPUTS + c->functions - 1]);
    free(got);
    free(spec);
}

static int cases(int preset)
{
    const char *asked = getenv("KS_CASES");
    return asked ? atoi(asked) * 2 : preset;
}

static void random_chains_have_the_bits_of_their_functions(void **state)
{
    (void)state;
    for (int round = 0; round < cases(1500); round++) {
        const bool wide = values_below(3) == 0; /* which no GPU's pass takes */
        drawing d = {.dtypes = wide ? all : narrow, .dtypes_count = wide ? 15 : 6};
        maps_case c = draw_case(&d, 2 + values_below(KS_MAPS_MAX - 1));
        if (c.functions > 0) {
            try_case(-1, &c);
            for (int b = 0; b < 2; b++)
                if (harnesses[b] && !(b == 1 && wide)) try_case(b, &c);
        }
        drop_case(&c);
    }
}

/* The same functions of the same numbers in FP64. */
static void double_case(const maps_case *c, maps_case *out)
{
    ks_error error;
    *out = *c;
    memset(out->memory, 0, sizeof out->memory);
    for (int i = 0; i < c->inputs; i++) {
        const int64_t count = ks_tensor_count(&c->tensor[i]);
        out->tensor[i].dtype = KS_FP64;
        (void)ks_tensor_measure(&out->tensor[i], "drawn", &error);
        double *to = out->memory[i] = calloc((size_t)count + 1, sizeof *to);
        assert_non_null(to);
        for (int64_t e = 0; e < count; e++) to[e] = ((const float *)c->memory[i])[e];
    }
    for (int i = 0; i < c->functions; i++) {
        ks_spec *spec = &out->one[i];
        for (int k = 0; k < KS_MAP_OPERANDS; k++)
            if (c->operand[i][k] >= 0) spec->in[k] = out->tensor[c->operand[i][k]];
        spec->params[KS_MAP_OUT].i = 0;
        if (ks_op_map.resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
        out->tensor[KS_MAPS_INPUTS + i] = spec->out[0];
    }
}

static void random_chains_are_near_float64(void **state)
{
    (void)state;
    static const ks_dtype floats[] = {KS_FP32};
    for (int round = 0; round < cases(600); round++) {
        drawing d = {.dtypes = floats, .dtypes_count = 1, .tame = true};
        maps_case c = draw_case(&d, 2 + values_below(KS_MAPS_MAX - 1)), exact;
        const void *in[KS_INPUTS_MAX] = {NULL};
        ks_spec *spec = c.functions ? whole_of(&c) : NULL;
        if (spec) {
            const int64_t count = ks_tensor_count(&spec->out[0]);
            float *got = malloc(spec->out[0].size_bytes + 1);
            assert_non_null(got);
            double_case(&c, &exact);
            run_each(-1, &exact);
            const double *wanted = exact.memory[KS_MAPS_INPUTS + c.functions - 1];
            for (int i = 0; i < c.inputs; i++) in[i] = c.memory[i];
            for (int b = 0; b < 2; b++) {
                if (!harnesses[b]) continue;
                run_spec(b, spec, in, got);
                for (int64_t i = 0; i < count; i++)
                    if (!(fabs(got[i] - wanted[i]) <= 3e-5 * (1 + fabs(wanted[i])))) {
                        say(&c);
                        fail_msg("backend %d: element %lld: %.9g, in FP64 %.9g", b, (long long)i, (double)got[i],
                                 wanted[i]);
                    }
            }
            free(got);
            drop_case(&exact);
        }
        free(spec);
        drop_case(&c);
    }
}

/* All of FP8E5M2's numbers, infinities among them, twice to their own datatype: a cast that rounds would end the infinities. */
static void casts_to_their_own_datatype_hand_on(void **state)
{
    (void)state;
    enum { COUNT = 256, INFINITE = 0x7C };
    ks_error error;
    maps_case c = {.inputs = 1, .tensor = {{.dtype = KS_FP8E5M2, .rank = 1, .dims = {COUNT}}}};
    assert_int_equal(ks_tensor_measure(c.tensor, "drawn", &error), KS_OK);
    uint8_t *values = c.memory[0] = malloc(COUNT);
    assert_non_null(values);
    for (int i = 0; i < COUNT; i++) values[i] = (uint8_t)((i & 0x7F) > INFINITE ? (i & 0x80) | INFINITE : i);
    for (; c.functions < 2; c.functions++) {
        ks_spec *spec = &c.one[c.functions];
        const int from = c.functions ? KS_MAPS_INPUTS : 0;
        ks_spec_init(spec, &ks_op_map);
        spec->params[KS_MAP_OP].i = KS_MAP_CAST;
        spec->params[KS_MAP_OUT].i = KS_FP8E5M2 + 1;
        spec->given = 1;
        spec->in[0] = c.tensor[from];
        assert_int_equal(ks_op_map.resolve(spec, &error), KS_OK);
        for (int k = 0; k < KS_MAP_OPERANDS; k++) c.operand[c.functions][k] = k ? -1 : from;
        c.function[c.functions] = (ks_maps_function){.work = ks_map_work_of(spec), .from = {(int8_t)from, -1, -1}};
        c.tensor[KS_MAPS_INPUTS + c.functions] = spec->out[0];
    }
    try_case(-1, &c);
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        try_case(b, &c);
        assert_memory_equal(c.memory[KS_MAPS_INPUTS + 1], values, COUNT);
    }
    drop_case(&c);
}

/* What is written is what is read, and registers of values that are still read are not given away. */
static void functions_are_kept(void **state)
{
    (void)state;
    ks_spec spec = {.op = &ks_op_maps};
    ks_maps_function f[3] = {
        {.work = {.function = KS_MAP_MUL, .operands = 2, .dtype = KS_FP16, .out = KS_FP16}, .from = {0, 1, -1}},
        {.work = {.function = KS_MAP_LT, .operands = 2, .truth = true, .a = -0.5, .dtype = KS_FP16, .out = KS_BOOL},
         .from = {2, -1, -1}},
        {.work =
             {.function = KS_MAP_WHERE, .math = KS_MAP_FLOAT, .operands = 3, .b = 3, .dtype = KS_FP16, .out = KS_FP16},
         .from = {3, 2, 0}}};
    assert_true(ks_maps_assign(f, 3, 2));
    assert_int_equal(f[0].to, 2);
    assert_int_equal(f[1].to, 1); /* of INPUT1, which nobody reads any more */
    assert_int_equal(f[1].from[0], 2);
    assert_int_equal(f[2].from[2], 0);
    assert_int_equal(f[2].to, 3);
    ks_maps_write(f, 3, spec.params);
    assert_int_equal(ks_maps_count(&spec), 3);
    for (int i = 0; i < 3; i++) {
        const ks_maps_function got = ks_maps_read(&spec, i);
        assert_int_equal(got.work.function, f[i].work.function);
        assert_int_equal(got.work.operands, f[i].work.operands);
        assert_int_equal(got.work.truth, f[i].work.truth);
        assert_int_equal(got.work.dtype, f[i].work.dtype);
        assert_int_equal(got.work.out, f[i].work.out);
        assert_true(got.work.a == f[i].work.a && got.work.b == f[i].work.b);
        assert_memory_equal(got.from, f[i].from, sizeof got.from);
        assert_int_equal(got.to, f[i].to);
    }
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(functions_are_kept),
                                       cmocka_unit_test(casts_to_their_own_datatype_hand_on),
                                       cmocka_unit_test(random_chains_have_the_bits_of_their_functions),
                                       cmocka_unit_test(random_chains_are_near_float64)};
    const char *only = getenv("KS_ONLY");
    if (only) cmocka_set_test_filter(only);
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
