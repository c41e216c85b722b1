/* map against map_oracle.h: the reference by itself in buffers of exactly its size, then every backend that this machine has, on all its
 * paths. KS_CASES, KS_SEED: how many random cases, and which. KS_HUGE: also a tensor of over 2^31 elements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops/map_oracle.h"
#include "ops/op_harness.h"
#include "cpu/reference.h"

extern const ks_op ks_op_map;

enum { ARENA_BYTES = 96 << 20 };
#include "ops/op_backends.h"

static const ks_dtype dtypes[] = {KS_FP32,  KS_FP16,   KS_BF16,   KS_FP64,   KS_INT8, KS_INT16,   KS_INT32,  KS_INT64,
                                  KS_UINT8, KS_UINT16, KS_UINT32, KS_UINT64, KS_BOOL, KS_FP8E4M3, KS_FP8E5M2};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct row_of_function {
    const char *name;
    int operands;
} row_of_function;

static const row_of_function functions[] = {
#define X(name, text, operands, kind, flops) {text, operands},
    KS_MAP_TABLE(X)
#undef X
};

/* --- one piece of work ------------------------------------------------------------------------------------------------ */

static ks_spec spec_of(ks_map_function function, ks_dtype dtype, int inputs)
{
    ks_spec spec;
    ks_spec_init(&spec, &ks_op_map);
    spec.params[KS_MAP_OP].i = function;
    spec.given = (uint16_t)((1u << inputs) - 1);
    for (int i = 0; i < inputs; i++) spec.in[i].dtype = function == KS_MAP_WHERE && i == 0 ? KS_BOOL : dtype;
    return spec;
}

static void set_shape(ks_tensor *in, int rank, const int64_t *dims)
{
    in->rank = rank;
    for (int i = 0; i < rank; i++) in->dims[i] = dims[i];
}

static void describe(const ks_spec *spec, const char *who, int64_t at)
{
    char text[KS_SPEC_TEXT_MAX];
    ks_spec_text(spec, text);
    print_error("%s: %s, %s, a %.17g b %.17g, to %s, element %lld\n", who, text,
                functions[spec->params[KS_MAP_OP].i].name, spec->params[KS_MAP_A].d, spec->params[KS_MAP_B].d,
                ks_dtype_name(spec->out[0].dtype), (long long)at);
}

/* Where an input has what the output's element `at` is made of. */
static int64_t element_of(const ks_tensor *in, const ks_tensor *out, int64_t at)
{
    int64_t index = 0, step = 1;
    for (int axis = out->rank - 1, own = in->rank - 1; axis >= 0; axis--, own--) {
        const int64_t place = at % out->dims[axis];
        at /= out->dims[axis];
        if (own < 0) continue;
        if (in->dims[own] > 1) index += place * step;
        step *= in->dims[own];
    }
    return index;
}

static void check_element(const ks_spec *spec, const ks_map_work *work, const void *const *in, const void *out,
                          const char *who, int64_t at)
{
    const ks_map_function function = (ks_map_function)spec->params[KS_MAP_OP].i;
    const ks_tensor *to = &spec->out[0];
    long double v[KS_MAP_OPERANDS] = {0, work->a, 0};
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        v[i] = oracle_get(spec->in[i].dtype, in[i], element_of(&spec->in[i], to, at));
    if (!ks_has_input(spec, 1) && work->math == KS_MAP_FLOAT) v[1] = (float)work->a;
    const oracle_value want = oracle_apply(work, function, to->dtype, v);
    const long double got = oracle_get(to->dtype, out, at);
    const ks_dtype middle = work->math == KS_MAP_DOUBLE ? KS_FP64 : KS_FP32;
    const bool raw_bool = to->dtype == KS_BOOL && ((const uint8_t *)out)[at] > 1;
    if (!raw_bool && oracle_accepts(&want, middle, to->dtype, got)) return;
    describe(spec, who, at);
    fail_msg("of %.21Lg, %.21Lg, %.21Lg: got %.21Lg, expected %.21Lg (off by %.3Lg, allowed %.3Lg)%s", v[0], v[1], v[2],
             got, want.real, fabsl(got - want.real), want.error, raw_bool ? "; a byte beyond 1" : "");
}

/* All elements, or of many some thousands. */
static void check(const ks_spec *spec, const void *const *in, const void *out, const char *who)
{
    const ks_map_work work = ks_map_work_of(spec);
    const int64_t count = ks_tensor_count(&spec->out[0]), most = 70000;
    if (count <= most) {
        for (int64_t i = 0; i < count; i++) check_element(spec, &work, in, out, who, i);
        return;
    }
    for (int64_t i = 0; i < 2000; i++) check_element(spec, &work, in, out, who, i < 64 ? count - 1 - i : i);
    for (int64_t i = 0; i < 4000; i++)
        check_element(spec, &work, in, out, who, (int64_t)(values_next() % (uint64_t)count));
}

static void run_one(int b, ks_spec *spec, const void *const *in, void *out, op_path path)
{
    ks_error error = {0};
    const int copies = values_below(8) == 0 ? 1 + values_below(9) : 1;
    op_harness_fix(harnesses[b], values_below(4) == 0 ? (unsigned)values_next() & spec->given : 0);
    if (op_harness_run(harnesses[b], spec, in, out, path, copies, values_below(2), &error) != KS_OK) {
        describe(spec, b ? "cuda" : "cpu", -1);
        fail_msg("%s", error.text);
    }
    op_harness_fix(harnesses[b], 0);
    check(spec, in, out, b ? "cuda" : "cpu");
}

/* By the reference, and by each backend on one path, or on all. */
static void run_all(ks_spec *spec, const void *const *in, bool everywhere)
{
    const size_t bytes = spec->out[0].size_bytes;
    void *out = malloc(bytes ? bytes : 1), *scratch = malloc(ks_cpu_scratch_bytes(spec));
    assert_true(out && scratch);
    memset(out, 0xFF, bytes);
    ks_cpu_reference(spec, in, (void *const[]){out}, scratch);
    check(spec, in, out, "reference");
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b] || bytes == 0) continue;
        for (int path = 0; path < 3; path++)
            if (everywhere || path == values_below(3)) run_one(b, spec, in, out, (op_path)path);
    }
    free(scratch);
    free(out);
}

static void resolve(ks_spec *spec)
{
    ks_error error = {0};
    if (ks_op_map.resolve(spec, &error) != KS_OK) {
        describe(spec, "resolve", -1);
        fail_msg("%s", error.text);
    }
    ks_spec_layout(spec);
}

/* --- values ------------------------------------------------------------------------------------------------------------ */

/* Any bits, but quiet NaN: what the C library makes of 1 to the power of a signalling one is its own. */
static void fill_bits(ks_dtype dtype, void *data, int64_t count)
{
    for (int64_t i = 0; i < count * (int64_t)ks_dtype_size(dtype); i++) ((uint8_t *)data)[i] = (uint8_t)values_next();
    for (int64_t i = 0; i < count && ks_dtype_size(dtype) > 1; i++)
        if (isnan(oracle_get(dtype, data, i))) values_put(dtype, data, i, (double)NAN);
}

static void fill(ks_dtype dtype, void *data, int64_t count, values_kind kind)
{
    if (dtype == KS_BOOL)
        for (int64_t i = 0; i < count; i++) ((uint8_t *)data)[i] = (uint8_t)values_below(2);
    else if (ks_dtype_kind(dtype) == KS_KIND_FLOAT && (ks_dtype_size(dtype) == 1 || values_below(6) == 0))
        fill_bits(dtype, data, count);
    else
        values_fill(dtype, data, count, kind, 1);
}

/* Fills the inputs of a resolved spec, runs it, gives their memory back. */
static void try_spec(ks_spec *spec, bool everywhere)
{
    void *in[KS_INPUTS_MAX] = {NULL};
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        const size_t bytes = spec->in[i].size_bytes;
        in[i] = malloc(bytes ? bytes : 1);
        assert_non_null(in[i]);
        fill(spec->in[i].dtype, in[i], ks_tensor_count(&spec->in[i]), (values_kind)values_below(VALUES_KINDS));
    }
    run_all(spec, (const void *const *)in, everywhere);
    for (int i = 0; i < KS_INPUTS_MAX; i++) free(in[i]);
}

static double random_number(ks_dtype dtype, ks_map_math math)
{
    if (dtype == KS_BOOL) return values_below(2);
    if (math == KS_MAP_INTEGER)
        return ks_dtype_kind(dtype) == KS_KIND_UINT ? values_below(128) : values_below(256) - 128;
    return values_below(4) == 0 ? values_below(5) - 2 : values_draw(VALUES_WIDE, 0);
}

/* Some of a and b, where the function takes them. */
static void draw_numbers(ks_spec *spec)
{
    ks_spec copy = *spec;
    const ks_map_function function = (ks_map_function)spec->params[KS_MAP_OP].i;
    resolve(&copy);
    const ks_map_work work = ks_map_work_of(&copy);
    for (int param = KS_MAP_A; param <= KS_MAP_B; param++)
        if (!isnan(copy.params[param].d) && values_below(4))
            spec->params[param].d = random_number(work.dtype, work.math);
    double *a = &spec->params[KS_MAP_A].d, *b = &spec->params[KS_MAP_B].d;
    if (function == KS_MAP_CLAMP && *a > *b) {
        const double old = *a;
        *a = *b;
        *b = old;
    }
}

static bool takes(ks_map_function function, ks_dtype dtype)
{
    ks_error ignored;
    ks_spec spec = spec_of(function, dtype, functions[function].operands);
    return ks_op_map.resolve(&spec, &ignored) == KS_OK;
}

/* Each input has the shape, but for axes of which it has one index, or which it lacks in front. */
static void draw_shapes(ks_spec *spec, int64_t most)
{
    ks_tensor shape = {0};
    values_shape(&shape, KS_RANK_MAX, most);
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        ks_tensor *in = &spec->in[i];
        const int lacks = values_below(3) ? 0 : values_below(shape.rank + 1);
        set_shape(in, shape.rank - lacks, shape.dims + lacks);
        const bool broadcasts = values_below(2);
        for (int axis = 0; axis < in->rank && broadcasts; axis++)
            if (values_below(3) == 0) in->dims[axis] = 1;
    }
}

/* --- tests ------------------------------------------------------------------------------------------------------------- */

static void random_work(void **state)
{
    (void)state;
    const int cases = values_cases(600);
    for (int i = 0; i < cases;) {
        const ks_map_function function = (ks_map_function)values_below(KS_MAP_FUNCTIONS);
        const ks_dtype dtype = dtypes[values_below(3) ? values_below(4) : values_below(DTYPES)];
        if (!takes(function, dtype)) continue;
        const bool scalar = functions[function].operands == 2 && function != KS_MAP_AXPY && values_below(5) == 0;
        ks_spec spec = spec_of(function, dtype, functions[function].operands - scalar);
        draw_shapes(&spec, values_most());
        draw_numbers(&spec);
        if (values_below(4) == 0) spec.params[KS_MAP_OUT].i = 1 + (int64_t)dtypes[values_below(DTYPES)];
        resolve(&spec);
        try_spec(&spec, false);
        i++;
    }
    printf("%d random cases\n", cases);
}

/* Every function of one operand, of every number that a narrow datatype has. */
static void every_narrow_value(void **state)
{
    (void)state;
    static const ks_dtype narrow[] = {KS_FP16, KS_BF16, KS_INT8, KS_UINT8, KS_INT16, KS_FP8E4M3, KS_FP8E5M2};
    enum { ALL = 1 << 16 };
    uint16_t *in = malloc(ALL * sizeof *in);
    assert_non_null(in);
    for (size_t d = 0; d < sizeof narrow / sizeof *narrow; d++) {
        const int64_t size = (int64_t)ks_dtype_size(narrow[d]), count = size == 1 ? 256 : ALL;
        for (int i = 0; i < count; i++) {
            if (size == 1)
                ((uint8_t *)in)[i] = (uint8_t)i;
            else
                in[i] = (uint16_t)i;
        }
        for (int f = 0; f < KS_MAP_FUNCTIONS; f++) {
            if (functions[f].operands > 1 || !takes((ks_map_function)f, narrow[d])) continue;
            if (values_cases(600) < 600 && values_below(8)) continue; /* where each takes long */
            ks_spec spec = spec_of((ks_map_function)f, narrow[d], 1);
            set_shape(&spec.in[0], 1, &count);
            resolve(&spec);
            run_all(&spec, (const void *const[]){in}, false);
        }
    }
    free(in);
}

/* Numbers at which casts turn. */
static void fill_turns(ks_dtype dtype, void *data, int64_t count)
{
    static const double turns[] = {0.5,      -0.5,     1,       -1,      1.5,     2.5,    127.5,    128,
                                   -128.5,   -129,     255.5,   256,     32767.5, 32768,  -32768.5, 65504,
                                   65519.9,  65520,    65535.5, 448,     464,     480,    57344,    61440,
                                   0x1p31,   -0x1p31,  0x1p32,  0x1p63,  -0x1p63, 0x1p64, 1e300,    -1e30,
                                   16777217, 16777219, 0x1p-9,  0x1p-10, 0x1p-17, -0.0};
    enum { TURNS = sizeof turns / sizeof *turns };
    for (int64_t i = 0; i < count; i++) {
        const double x = turns[values_below(TURNS)];
        const uint64_t bits = values_next();
        if (dtype == KS_BOOL)
            ((uint8_t *)data)[i] = (uint8_t)(bits & 1);
        else if (ks_dtype_kind(dtype) == KS_KIND_FLOAT && ks_dtype_size(dtype) > 1 && values_below(2))
            values_put(dtype, data, i, values_below(4) ? x : x * (1 + 0x1p-20 * values_normal()));
        else if (values_below(3) == 0 && oracle_is_whole(dtype)) /* a bit beside a power of two */
            memcpy((char *)data + (size_t)i * ks_dtype_size(dtype),
                   &(uint64_t){((uint64_t)1 << (bits & 63)) + (bits >> 8) % 5 - 2}, ks_dtype_size(dtype));
        else
            memcpy((char *)data + (size_t)i * ks_dtype_size(dtype), &bits, ks_dtype_size(dtype));
    }
}

static void casts_of_every_pair(void **state)
{
    (void)state;
    static char in[4099 * 8];
    for (int from = 0; from < DTYPES; from++)
        for (int to = 0; to < DTYPES; to++) {
            const int64_t count = 1 + values_below(4099);
            ks_spec spec = spec_of(KS_MAP_CAST, dtypes[from], 1);
            spec.params[KS_MAP_OUT].i = 1 + (int64_t)dtypes[to];
            set_shape(&spec.in[0], 1, &count);
            resolve(&spec);
            fill_turns(dtypes[from], in, count);
            run_all(&spec, (const void *const[]){in}, false);
        }
}

/* Where one datatype holds what the other has, the way there and back changes no bit but a NaN's. */
static void casts_there_and_back(void **state)
{
    (void)state;
    static const ks_dtype pairs[][2] = {{KS_FP8E4M3, KS_FP16}, {KS_FP8E5M2, KS_BF16}, {KS_FP8E4M3, KS_FP64},
                                        {KS_INT8, KS_FP16},    {KS_UINT8, KS_BF16},   {KS_INT8, KS_INT64},
                                        {KS_UINT8, KS_FP32},   {KS_BOOL, KS_FP8E4M3}};
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
        for (int b = 0; b < 2; b++) {
            uint8_t first[256], back[256];
            uint64_t middle[256];
            const int64_t count = pairs[p][0] == KS_BOOL ? 2 : 256;
            if (!harnesses[b]) continue;
            for (int i = 0; i < 256; i++) first[i] = (uint8_t)i;
            for (int way = 0; way < 2; way++) {
                ks_error error = {0};
                ks_spec spec = spec_of(KS_MAP_CAST, pairs[p][way], 1);
                spec.params[KS_MAP_OUT].i = 1 + (int64_t)pairs[p][!way];
                set_shape(&spec.in[0], 1, &count);
                resolve(&spec);
                const void *in = way ? (const void *)middle : first;
                if (op_harness_run(harnesses[b], &spec, &in, way ? (void *)back : middle, OP_PATH_PLANNED, 1, false,
                                   &error) != KS_OK)
                    fail_msg("%s", error.text);
            }
            for (int i = 0; i < count; i++) {
                const long double x = oracle_get(pairs[p][0], first, i);
                if (isnan(x) || isinf(x)) continue; /* FP8 has no infinity again: it saturates */
                if (first[i] != back[i])
                    fail_msg("%s by %s: %d came back as %d", ks_dtype_name(pairs[p][0]), ks_dtype_name(pairs[p][1]),
                             first[i], back[i]);
            }
        }
}

/* How operands can lie: rows, columns, single elements; whole vectors and not; several axes. -1: no such input. */
static const struct {
    int64_t dims[3][4]; /* 0: no such axis */
} layouts[] = {
    {{{64, 256}, {256}, {1}}},
    {{{64, 256}, {64, 1}, {64, 256}}},
    {{{7, 33}, {33}, {7, 1}}},
    {{{7, 33}, {7, 1}, {33}}},
    {{{1003}, {1}, {1003}}},
    {{{1}, {1000}, {1}}},
    {{{5, 1, 64}, {1, 9, 64}, {5, 9, 1}}},
    {{{5, 1, 13}, {1, 9, 13}, {5, 9, 1}}},
    {{{3, 1, 5, 32}, {1, 4, 1, 32}, {3, 4, 5, 1}}},
    {{{3, 4, 5, 3}, {4, 1, 3}, {3, 1, 1, 1}}},
    {{{300, 1}, {1, 300}, {300, 300}}},
    {{{2, 40000}, {40000}, {2, 1}}},
    {{{40000, 16}, {16}, {40000, 1}}},
    {{{262147}, {262147}, {262147}}},
    {{{4, 32768}, {1, 32768}, {4, 1}}},
};

static void every_layout(void **state)
{
    (void)state;
    static const ks_map_function of[] = {KS_MAP_ADD, KS_MAP_LE, KS_MAP_WHERE, KS_MAP_FMA, KS_MAP_MAX};
    for (size_t n = 0; n < sizeof layouts / sizeof *layouts; n++)
        for (size_t f = 0; f < sizeof of / sizeof *of; f++)
            for (int d = 0; d < DTYPES; d++) {
                if (!takes(of[f], dtypes[d]) || (values_cases(600) < 600 && values_below(12))) continue;
                ks_spec spec = spec_of(of[f], dtypes[d], functions[of[f]].operands);
                for (int i = 0; i < functions[of[f]].operands; i++) {
                    int rank = 0;
                    while (rank < 4 && layouts[n].dims[i][rank]) rank++;
                    set_shape(&spec.in[i], rank, layouts[n].dims[i]);
                }
                if (values_below(6) == 0) spec.params[KS_MAP_OUT].i = 1 + (int64_t)dtypes[values_below(DTYPES)];
                resolve(&spec);
                try_spec(&spec, values_below(4) == 0);
            }
}

static void expect_refusal(ks_spec spec, ks_status want, const char *words)
{
    ks_error error = {0};
    assert_int_equal(ks_op_map.resolve(&spec, &error), want);
    if (!strstr(error.text, words)) fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

static ks_spec with(ks_spec spec, int param, double value)
{
    spec.params[param].d = value;
    return spec;
}

static void refusals(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3}, other[] = {4, 3};
    ks_spec pair = spec_of(KS_MAP_ADD, KS_FP32, 2), unlike = pair, without = pair;
    set_shape(&pair.in[0], 2, dims);
    set_shape(&pair.in[1], 2, other);
    expect_refusal(pair, KS_SHAPE, "INPUT0 has shape [2,3] and INPUT1 [4,3]");
    unlike.in[1].dtype = KS_FP16;
    expect_refusal(unlike, KS_DATATYPE, "INPUT0 has datatype FP32, INPUT1 FP16");
    without.given = 5;
    expect_refusal(without, KS_NAME, "add takes 2 inputs, and INPUT2 is given");
    expect_refusal(spec_of(KS_MAP_WHERE, KS_FP32, 2), KS_NAME, "INPUT2 is missing");
    expect_refusal(spec_of(KS_MAP_AXPY, KS_FP32, 1), KS_NAME, "INPUT1 is missing");
    expect_refusal(spec_of(KS_MAP_EXP, KS_FP32, 2), KS_NAME, "exp takes 1 input, and INPUT1 is given");
    expect_refusal(spec_of(KS_MAP_ABS, KS_BOOL, 1), KS_DATATYPE, "abs takes numbers");
    expect_refusal(spec_of(KS_MAP_ADD, KS_BYTES, 1), KS_DATATYPE, "BYTES");
    expect_refusal(spec_of(KS_MAP_AND, KS_FP32, 2), KS_DATATYPE, "and takes integers or BOOL");
    ks_spec where = spec_of(KS_MAP_WHERE, KS_FP32, 3);
    where.in[0].dtype = KS_FP32;
    expect_refusal(where, KS_DATATYPE, "where takes BOOL");
    expect_refusal(spec_of((ks_map_function)KS_MAP_FUNCTIONS, KS_FP32, 1), KS_PARAMETER, "op");
    const ks_spec clamp = spec_of(KS_MAP_CLAMP, KS_FP32, 1), int8 = spec_of(KS_MAP_ADD, KS_INT8, 1);
    expect_refusal(with(with(clamp, KS_MAP_A, 2), KS_MAP_B, 1), KS_PARAMETER, "from a = 2 to b = 1");
    expect_refusal(with(int8, KS_MAP_A, 1.5), KS_PARAMETER, "a whole number");
    expect_refusal(with(int8, KS_MAP_A, 128), KS_PARAMETER, "-128 to 127");
    expect_refusal(with(spec_of(KS_MAP_ADD, KS_INT64, 1), KS_MAP_A, 0x1p60), KS_PARAMETER, "9007199254740992");
    expect_refusal(with(spec_of(KS_MAP_MUL, KS_FP16, 1), KS_MAP_A, 1e39), KS_PARAMETER, "parameter 'a'");
    expect_refusal(with(spec_of(KS_MAP_EXP, KS_FP32, 1), KS_MAP_A, 1), KS_PARAMETER, "exp does not take it");
    expect_refusal(with(spec_of(KS_MAP_ADD, KS_FP32, 2), KS_MAP_A, 1), KS_PARAMETER, "add with INPUT1 does not");
    ks_spec deep = spec_of(KS_MAP_NEG, KS_FP32, 1);
    deep.in[0].rank = 9;
    expect_refusal(deep, KS_SHAPE, "rank 9");
}

static void shapes_datatypes_and_rows(void **state)
{
    (void)state;
    ks_spec spec = spec_of(KS_MAP_LT, KS_INT16, 2), again;
    set_shape(&spec.in[0], 3, (const int64_t[]){5, 1, 4});
    set_shape(&spec.in[1], 2, (const int64_t[]){3, 1});
    resolve(&spec);
    assert_int_equal(spec.out[0].dtype, KS_BOOL);
    assert_int_equal(spec.out[0].rank, 3);
    assert_int_equal(spec.out[0].size_bytes, 60);
    ks_rows rows = ks_op_map.rows(&spec);
    assert_int_equal(rows.dims, 1);
    assert_int_equal(rows.cut, 1);
    again = spec;
    resolve(&again);
    assert_memory_equal(&again, &spec, sizeof spec);

    spec = spec_of(KS_MAP_DIV, KS_UINT8, 1);
    set_shape(&spec.in[0], 0, NULL);
    resolve(&spec);
    assert_int_equal(spec.out[0].dtype, KS_FP64);
    assert_int_equal(spec.out[0].rank, 0);
    assert_true(spec.params[KS_MAP_A].d == 1);
    try_spec(&spec, true);

    spec = spec_of(KS_MAP_ADD, KS_FP32, 2);
    set_shape(&spec.in[0], 2, (const int64_t[]){6, 4});
    set_shape(&spec.in[1], 2, (const int64_t[]){6, 4});
    resolve(&spec);
    rows = ks_op_map.rows(&spec);
    assert_int_equal(rows.dims, 2);
    assert_int_equal(rows.cut, 3);
    ks_op_map.sample(&spec);
    assert_int_equal(ks_op_map.resolve(&spec, NULL), KS_OK);

    spec = spec_of(KS_MAP_MUL, KS_FP32, 2);
    set_shape(&spec.in[0], 2, (const int64_t[]){0, 4});
    set_shape(&spec.in[1], 1, (const int64_t[]){4});
    resolve(&spec);
    assert_int_equal(spec.out[0].size_bytes, 0);
    try_spec(&spec, false);
}

/* Indices beyond 2^31: the last elements, and some anywhere. */
static void over_two_to_the_31(void **state)
{
    (void)state;
    if (!getenv("KS_HUGE")) skip();
    const int64_t dims[] = {((int64_t)1 << 21) + 3, 1024}, row[] = {1024};
    ks_spec spec = spec_of(KS_MAP_XOR, KS_UINT8, 2);
    set_shape(&spec.in[0], 2, dims);
    set_shape(&spec.in[1], 1, row);
    resolve(&spec);
    unsigned char *in = malloc(spec.in[0].size_bytes), *out = malloc(spec.out[0].size_bytes), line[1024];
    assert_true(in && out);
    for (size_t i = 0; i < spec.in[0].size_bytes; i++) in[i] = (unsigned char)(i * 2654435761u >> 13);
    fill(KS_UINT8, line, 1024, VALUES_UNIFORM);
    for (int b = 0; b < 2; b++) {
        const void *inputs[] = {in, line};
        ks_error error = {0};
        if (!op_harness_once(b ? ks_backend_cuda : ks_backend_cpu,
                             spec.in[0].size_bytes + spec.out[0].size_bytes + (64 << 20), &spec, inputs, out, &error))
            continue;
        if (error.status != KS_OK) fail_msg("%s", error.text);
        check(&spec, inputs, out, b ? "cuda" : "cpu");
    }
    free(out);
    free(in);
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_work),
        cmocka_unit_test(every_narrow_value),
        cmocka_unit_test(casts_of_every_pair),
        cmocka_unit_test(casts_there_and_back),
        cmocka_unit_test(every_layout),
        cmocka_unit_test(refusals),
        cmocka_unit_test(shapes_datatypes_and_rows),
        cmocka_unit_test(over_two_to_the_31),
    };
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
