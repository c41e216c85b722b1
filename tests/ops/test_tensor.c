/* Shapes at their edges: what is measured, aligned and printed; the rules of softmax and reduce that no body can reach,
 * because its reader refuses first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/convert.h"
#include "kernserve/op.h"
#include "cpu/reference.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static const int64_t most = INT64_MAX, root = (int64_t)1 << 31;

static void measured(void **state)
{
    static const struct {
        ks_dtype dtype;
        int rank;
        int64_t dims[KS_RANK_MAX];
        ks_status status;
        size_t bytes;
    } rows[] = {
        {KS_FP32, 0, {0}, KS_OK, 4},
        {KS_FP64, 2, {3, 5}, KS_OK, 120},
        {KS_INT8, 8, {1, 1, 1, 1, 1, 1, 1, 9}, KS_OK, 9},
        {KS_FP32, 1, {0}, KS_OK, 0},
        {KS_FP32, 3, {4, 0, 5}, KS_OK, 0},
        {KS_FP32, 2, {0, 0}, KS_OK, 0},
        {KS_FP32, 1, {-1}, KS_SHAPE, 0},
        {KS_FP32, 2, {0, -1}, KS_SHAPE, 0},
        {KS_INT8, 1, {INT64_MAX}, KS_OK, INT64_MAX},
        {KS_INT16, 1, {INT64_MAX / 2}, KS_OK, INT64_MAX - 1},
        {KS_INT16, 1, {INT64_MAX / 2 + 1}, KS_SHAPE, 0},
        {KS_FP64, 1, {INT64_MAX}, KS_SHAPE, 0},
        {KS_INT8, 2, {(int64_t)1 << 31, (int64_t)1 << 31}, KS_OK, (size_t)1 << 62},
        {KS_INT8, 2, {(int64_t)1 << 32, (int64_t)1 << 31}, KS_SHAPE, 0},
        {KS_FP32, 2, {(int64_t)1 << 31, (int64_t)1 << 31}, KS_SHAPE, 0},
        /* A zero hides nothing: parts of a shape are multiplied later. */
        {KS_INT8, 3, {0, INT64_MAX, 2}, KS_SHAPE, 0},
        {KS_INT8, 3, {INT64_MAX, 2, 0}, KS_SHAPE, 0},
        {KS_FP64, 2, {0, INT64_MAX}, KS_SHAPE, 0},
        {KS_INT8, 2, {0, INT64_MAX}, KS_OK, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        ks_error error = {.status = KS_OK};
        ks_tensor tensor = {.dtype = rows[i].dtype, .rank = rows[i].rank, .size_bytes = 77};
        memcpy(tensor.dims, rows[i].dims, sizeof tensor.dims);
        const ks_status status = ks_tensor_measure(&tensor, "INPUT0", &error);
        if (status != rows[i].status) fail_msg("row %zu: got %s (%s)", i, ks_status_name(status), error.text);
        if (status == KS_OK)
            assert_int_equal(tensor.size_bytes, rows[i].bytes);
        else
            assert_non_null(strstr(error.text, "INPUT0"));
        assert_int_equal(ks_tensor_measure(&tensor, "INPUT0", NULL), rows[i].status);
    }
    assert_int_equal(ks_dims_product((const int64_t[]){2, 3, 5}, 1, 1), 1);
    assert_int_equal(ks_dims_product((const int64_t[]){2, 3, 5}, 1, 3), 15);
}

static void aligned(void **state)
{
    const size_t last = SIZE_MAX / KS_ALIGNMENT * KS_ALIGNMENT;
    (void)state;
    assert_int_equal(ks_align(0), 0);
    assert_int_equal(ks_align(1), KS_ALIGNMENT);
    assert_int_equal(ks_align(KS_ALIGNMENT - 1), KS_ALIGNMENT);
    assert_int_equal(ks_align(KS_ALIGNMENT), KS_ALIGNMENT);
    assert_int_equal(ks_align(KS_ALIGNMENT + 1), 2 * KS_ALIGNMENT);
    assert_true(ks_align(last) == last && ks_align(last - 1) == last && ks_align(SIZE_MAX) == last);
}

static void printed(void **state)
{
    const ks_tensor tensor = {.rank = 3, .dims = {10, 0, INT64_MAX}}, scalar = {.rank = 0};
    static const char whole[] = "10,0,9223372036854775807";
    char text[64];
    (void)state;
    assert_int_equal(ks_dims_text(&tensor, text, sizeof text), sizeof whole - 1);
    assert_string_equal(text, whole);
    assert_int_equal(ks_dims_text(&scalar, text, sizeof text), 0);
    assert_string_equal(text, "");
    /* Cut to any room, and never a byte behind it. */
    for (size_t cap = 0; cap <= sizeof whole; cap++) {
        memset(text, '#', sizeof text);
        const size_t length = ks_dims_text(&tensor, text, cap);
        assert_int_equal(length, cap > 0 ? cap - 1 : 0);
        assert_memory_equal(text, whole, length);
        assert_true(text[cap] == '#' && (cap == 0 || text[length] == 0));
    }
}

static void datatypes(void **state)
{
    (void)state;
    for (int i = 0; i < KS_DTYPE_COUNT; i++) {
        const char *name = ks_dtype_name((ks_dtype)i);
        ks_dtype found = KS_DTYPE_COUNT;
        assert_true(ks_dtype_find(name, strlen(name), &found) && (int)found == i);
        assert_false(ks_dtype_find(name, strlen(name) - 1, &found) && (int)found == i);
    }
    ks_dtype found;
    assert_false(ks_dtype_find("fp32", 4, &found));
    assert_false(ks_dtype_find("", 0, &found));
    assert_true(ks_dtype_find("FP32 and more", 4, &found) && found == KS_FP32);
}

/* --- rules ---------------------------------------------------------------------------------------------------------- */

static const ks_op *op_named(const char *name)
{
    for (const ks_op *const *op = ks_ops; *op; op++)
        if (strcmp((*op)->name, name) == 0) return *op;
    fail_msg("no op %s", name);
    return NULL;
}

static ks_value *param(ks_spec *spec, const char *name)
{
    for (int i = 0; i < spec->op->params_count; i++)
        if (strcmp(spec->op->params[i].name, name) == 0) return &spec->params[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static ks_spec spec_of(const char *name, ks_dtype dtype, int rank, const int64_t *dims)
{
    ks_spec spec;
    ks_spec_init(&spec, op_named(name));
    spec.in[0].dtype = dtype;
    spec.in[0].rank = rank;
    memcpy(spec.in[0].dims, dims, sizeof spec.in[0].dims);
    return spec;
}

static ks_status resolved(ks_spec *spec)
{
    ks_error error = {.status = KS_OK};
    const ks_status status = spec->op->resolve(spec, &error);
    assert_true(status == KS_OK || (error.status == status && error.text[0]));
    return status;
}

/* A list that two parameters share, or that a spec has no place for, would be found by no other test. */
static void lists_of_ops(void **state)
{
    (void)state;
    for (const ks_op *const *op = ks_ops; *op; op++) {
        int lists = 0;
        for (int i = 0; i < (*op)->params_count; i++) {
            if ((*op)->params[i].kind != KS_PARAM_LIST) continue;
            assert_int_equal((*op)->params[i].preset.list, lists++);
        }
        assert_int_equal((*op)->lists_count, lists);
        assert_in_range(lists, 0, KS_LISTS_MAX);
    }
}

/* Lists are compared and copied as far as they go. */
static void specs_with_lists(void **state)
{
    const int64_t dims[KS_RANK_MAX] = {2, 3, 4};
    ks_spec a = spec_of("layout", KS_FP32, 3, dims), b, c;
    (void)state;
    assert_int_equal(resolved(&a), KS_OK);
    memset(&b, 0x5a, sizeof b);
    ks_spec_copy(&b, &a);
    assert_true(ks_spec_same(&a, &b));
    for (int i = 0; i < a.op->lists_count; i++) {
        ks_spec_copy(&c, &a);
        c.lists[i].count = a.lists[i].count < 0 ? 0 : 2;
        assert_false(ks_spec_same(&a, &c));
        ks_spec_copy(&c, &a);
        c.lists[i].value[2] = 77; /* of the axes alone: the others hold none */
        assert_true(ks_spec_same(&a, &c) == (a.lists[i].count < 3));
    }
}

static void softmax_rules(void **state)
{
    const int64_t dims[KS_RANK_MAX] = {2, 3, 4}, wild[KS_RANK_MAX] = {root, root, root};
    (void)state;
    static const struct {
        int64_t axis;
        ks_status status;
        int64_t becomes;
    } axes[] = {{0, KS_OK, 0},   {2, KS_OK, 2},    {-1, KS_OK, 2},          {-3, KS_OK, 0},
                {3, KS_AXIS, 0}, {-4, KS_AXIS, 0}, {INT64_MAX, KS_AXIS, 0}, {INT64_MIN, KS_AXIS, 0}};
    for (size_t i = 0; i < COUNT(axes); i++) {
        ks_spec spec = spec_of("softmax", KS_FP32, 3, dims);
        param(&spec, "axis")->i = axes[i].axis;
        assert_int_equal(resolved(&spec), axes[i].status);
        if (axes[i].status == KS_OK) assert_int_equal(param(&spec, "axis")->i, axes[i].becomes);
    }
    static const double scales[] = {1e38, -1e38, 0, 1e39, -1e39, (double)NAN, (double)INFINITY, (double)-INFINITY};
    for (size_t i = 0; i < COUNT(scales); i++) {
        ks_spec spec = spec_of("softmax", KS_FP32, 3, dims);
        param(&spec, "scale")->d = scales[i];
        assert_int_equal(resolved(&spec), i < 3 ? KS_OK : KS_PARAMETER);
    }
    ks_spec spec = spec_of("softmax", KS_FP32, 3, dims);
    param(&spec, "scale")->d = -0.0;
    assert_int_equal(resolved(&spec), KS_OK);
    assert_false(signbit(param(&spec, "scale")->d)); /* one plan for both zeros */
    for (int rank = 0; rank <= KS_RANK_MAX + 1; rank++) {
        spec = spec_of("softmax", KS_FP32, rank, (const int64_t[KS_RANK_MAX]){1, 1, 1, 1, 1, 1, 1, 1});
        param(&spec, "axis")->i = 0;
        assert_int_equal(resolved(&spec), rank >= 1 && rank <= KS_RANK_MAX ? KS_OK : KS_SHAPE);
    }
    spec = spec_of("softmax", KS_FP32, 3, wild);
    assert_int_equal(resolved(&spec), KS_SHAPE);
    spec = spec_of("softmax", KS_INT32, 3, dims);
    assert_int_equal(resolved(&spec), KS_DATATYPE);
}

static void reduce_axes(void **state)
{
    static const struct {
        const char *op;
        ks_axes axes;
        ks_status status;
        ks_axes becomes;
    } rows[] = {
        {"sum", {.count = 1, .axis = {-1}}, KS_OK, {.count = 1, .axis = {2}}},
        {"sum", {.count = 3, .axis = {2, 0, -2}}, KS_OK, {.count = 3, .axis = {0, 1, 2}}},
        {"sum", {.count = -1}, KS_OK, {.count = 3, .axis = {0, 1, 2}}},
        {"argmax", {.count = -1}, KS_OK, {.count = -1}},
        {"argmin", {.count = 1, .axis = {1}}, KS_OK, {.count = 1, .axis = {1}}},
        {"sum", {.count = 2, .axis = {0, 0}}, KS_AXIS, {0}},
        {"sum", {.count = 2, .axis = {2, -1}}, KS_AXIS, {0}},
        {"sum", {.count = 1, .axis = {3}}, KS_AXIS, {0}},
        {"sum", {.count = 1, .axis = {-4}}, KS_AXIS, {0}},
        {"sum", {.count = 0}, KS_AXIS, {0}},
        {"sum", {.count = -2}, KS_AXIS, {0}},
        {"sum", {.count = KS_RANK_MAX + 1}, KS_AXIS, {0}},
        {"argmax", {.count = 2, .axis = {0, 1}}, KS_AXIS, {0}},
        {"argmin", {.count = 2, .axis = {0, 1}}, KS_AXIS, {0}},
    };
    const int64_t dims[KS_RANK_MAX] = {2, 3, 4};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        ks_spec spec = spec_of("reduce", KS_FP32, 3, dims);
        const char *const *algorithm = op_named("reduce")->params[0].choices;
        while (strcmp(*algorithm, rows[i].op) != 0) algorithm++;
        param(&spec, "op")->i = algorithm - op_named("reduce")->params[0].choices;
        param(&spec, "axis")->axes = rows[i].axes;
        const ks_status status = resolved(&spec);
        if (status != rows[i].status) fail_msg("row %zu: got %s", i, ks_status_name(status));
        if (status != KS_OK) continue;
        assert_int_equal(param(&spec, "axis")->axes.count, rows[i].becomes.count);
        assert_memory_equal(param(&spec, "axis")->axes.axis, rows[i].becomes.axis, sizeof rows[i].becomes.axis);
    }
}

static void reduce_rules(void **state)
{
    const int64_t dims[KS_RANK_MAX] = {2, 0}, wild[KS_RANK_MAX] = {root, root, root};
    const int choices = 18;
    (void)state;
    /* Of nothing: sums, a product, norms, logarithms of sums and counts have a value, the others have none. */
    for (int op = -1; op <= choices; op++) {
        ks_spec spec = spec_of("reduce", KS_FP32, 2, dims);
        param(&spec, "op")->i = op;
        const char *name = op >= 0 && op < choices ? op_named("reduce")->params[0].choices[op] : "";
        static const char *const none[] = {"mean", "max", "min", "argmax", "argmin", "var", "std"};
        bool has_value = true;
        for (int i = 0; i < 7; i++) has_value = has_value && strcmp(name, none[i]) != 0;
        assert_int_equal(resolved(&spec), !*name ? KS_PARAMETER : has_value ? KS_OK : KS_EMPTY);
    }
    assert_null(op_named("reduce")->params[0].choices[choices]);
    for (int rank = 0; rank <= KS_RANK_MAX + 1; rank++) {
        ks_spec spec = spec_of("reduce", KS_FP32, rank, (const int64_t[KS_RANK_MAX]){1, 1, 1, 1, 1, 1, 1, 1});
        assert_int_equal(resolved(&spec), rank >= 1 && rank <= KS_RANK_MAX ? KS_OK : KS_SHAPE);
    }
    ks_spec spec = spec_of("reduce", KS_INT8, 3, wild);
    assert_int_equal(resolved(&spec), KS_SHAPE);
    spec = spec_of("reduce", KS_BOOL, 2, dims);
    assert_int_equal(resolved(&spec), KS_OK); /* a sum, which counts */
    param(&spec, "op")->i = 1;
    assert_int_equal(resolved(&spec), KS_DATATYPE);
    /* The answer may be larger than what was asked about: INT8 in, INT64 out. */
    spec = spec_of("reduce", KS_INT8, 2, (const int64_t[KS_RANK_MAX]){most, 1});
    assert_int_equal(resolved(&spec), KS_SHAPE);
}

/* Nothing in, nothing out, whichever dimension is 0; reduced to one, what a sum of nothing is. */
static void references_of_nothing(void **state)
{
    static const int64_t shapes[][KS_RANK_MAX] = {{0, 4}, {4, 0}, {0, 0}};
    (void)state;
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (int axis = 0; axis < 2; axis++)
            for (int wide = 0; wide < 2; wide++) {
                ks_spec spec = spec_of("softmax", wide ? KS_FP64 : KS_FP32, 2, shapes[i]);
                param(&spec, "axis")->i = axis;
                assert_int_equal(resolved(&spec), KS_OK);
                assert_int_equal(spec.out[0].size_bytes, 0);
                unsigned char byte = 7;
                const void *in[KS_INPUTS_MAX] = {&byte};
                void *scratch = malloc(ks_cpu_scratch_bytes(&spec) + 1);
                ks_cpu_reference(&spec, in, (void *const[]){&byte}, scratch);
                assert_int_equal(byte, 7);
                free(scratch);
            }
    ks_spec spec = spec_of("reduce", KS_FP32, 2, shapes[1]);
    assert_int_equal(resolved(&spec), KS_OK);
    float out[5] = {9, 9, 9, 9, 9};
    const void *in[KS_INPUTS_MAX] = {out};
    void *scratch = malloc(ks_cpu_scratch_bytes(&spec) + 1);
    ks_cpu_reference(&spec, in, (void *const[]){out}, scratch);
    for (int i = 0; i < 5; i++) assert_true(out[i] == (i < 4 ? 0 : 9));
    free(scratch);
}

/* FP64 beside the middle between two narrow floats: by way of FP32 it would be the middle itself, and go to the even one. */
static void doubles_are_rounded_once(void **state)
{
    static const struct {
        double value;
        uint16_t fp16, bf16;
    } rows[] = {{1 + 0x1p-11 + 0x1p-40, 0x3C01, 0x3F80},
                {1 + 0x1p-11 - 0x1p-40, 0x3C00, 0x3F80},
                {1 + 0x1p-11, 0x3C00, 0x3F80},
                {1 + 3 * 0x1p-11 + 0x1p-40, 0x3C02, 0x3F80},
                {1 + 3 * 0x1p-11 - 0x1p-40, 0x3C01, 0x3F80},
                {1 + 3 * 0x1p-11, 0x3C02, 0x3F80},
                {1 + 0x1p-8 + 0x1p-40, 0x3C04, 0x3F81},
                {1 + 0x1p-8 - 0x1p-40, 0x3C04, 0x3F80},
                {1 + 3 * 0x1p-8 - 0x1p-40, 0x3C0C, 0x3F81},
                {1 + 3 * 0x1p-8 + 0x1p-40, 0x3C0C, 0x3F82},
                {65520 - 0x1p-30, 0x7BFF, 0x4780},
                {65520, 0x7C00, 0x4780},
                {0x1p-25 + 0x1p-60, 0x0001, 0x3300},
                {0x1p-25, 0x0000, 0x3300}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int sign = 0; sign < 2; sign++) {
            const double value = sign ? -rows[i].value : rows[i].value;
            assert_int_equal(ks_double_to_fp16(value), rows[i].fp16 | sign << 15);
            assert_int_equal(ks_double_to_bf16(value), rows[i].bf16 | sign << 15);
        }
}

static void matmul_shapes(void **state)
{
    static const struct {
        int ranks[3]; /* the third one 0: no bias */
        int64_t a[4], b[4], bias;
        bool ta, tb;
        ks_status status;
        int64_t out[4];
    } rows[] = {
        {{2, 2, 0}, {2, 3}, {3, 4}, 0, false, false, KS_OK, {2, 4}},
        {{2, 2, 0}, {2, 3}, {4, 3}, 0, false, true, KS_OK, {2, 4}},
        {{2, 2, 0}, {3, 2}, {3, 4}, 0, true, false, KS_OK, {2, 4}},
        {{2, 2, 0}, {3, 2}, {4, 3}, 0, true, true, KS_OK, {2, 4}},
        {{2, 2, 0}, {2, 3}, {2, 4}, 0, false, false, KS_SHAPE, {0}},
        {{2, 2, 0}, {2, 3}, {4, 4}, 0, false, false, KS_SHAPE, {0}},
        {{2, 2, 0}, {2, 3}, {3, 4}, 0, true, false, KS_SHAPE, {0}},
        {{2, 2, 0}, {2, 3}, {3, 4}, 0, false, true, KS_SHAPE, {0}},
        {{2, 2, 1}, {2, 3}, {3, 4}, 4, false, false, KS_OK, {2, 4}},
        {{2, 2, 1}, {2, 3}, {3, 4}, 3, false, false, KS_SHAPE, {0}},
        {{2, 2, 1}, {2, 3}, {3, 4}, 5, false, false, KS_SHAPE, {0}},
        {{2, 2, 2}, {2, 3}, {3, 4}, 4, false, false, KS_SHAPE, {0}},
        {{3, 2, 0}, {5, 2, 3}, {3, 4}, 0, false, false, KS_OK, {5, 2, 4}},
        {{2, 3, 0}, {2, 3}, {5, 3, 4}, 0, false, false, KS_OK, {5, 2, 4}},
        {{3, 3, 0}, {1, 2, 3}, {5, 3, 4}, 0, false, false, KS_OK, {5, 2, 4}},
        {{3, 3, 0}, {5, 2, 3}, {1, 3, 4}, 0, false, false, KS_OK, {5, 2, 4}},
        {{3, 3, 0}, {0, 2, 3}, {1, 3, 4}, 0, false, false, KS_OK, {0, 2, 4}},
        {{4, 3, 0}, {2, 1, 2, 3}, {5, 3, 4}, 0, false, false, KS_OK, {2, 5, 2, 4}},
        {{3, 3, 0}, {5, 2, 3}, {4, 3, 4}, 0, false, false, KS_SHAPE, {0}},
        {{3, 3, 0}, {4, 2, 3}, {5, 3, 4}, 0, false, false, KS_SHAPE, {0}},
        {{3, 3, 0}, {0, 2, 3}, {5, 3, 4}, 0, false, false, KS_SHAPE, {0}},
        {{1, 2, 0}, {3}, {3, 4}, 0, false, false, KS_SHAPE, {0}},
        {{2, 1, 0}, {2, 3}, {3}, 0, false, false, KS_SHAPE, {0}},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        ks_spec spec;
        ks_spec_init(&spec, op_named("matmul"));
        spec.given = rows[i].ranks[2] ? 7 : 3;
        for (int t = ks_next_input(&spec, -1); t >= 0; t = ks_next_input(&spec, t)) {
            spec.in[t].dtype = KS_FP32;
            spec.in[t].rank = rows[i].ranks[t];
        }
        memcpy(spec.in[0].dims, rows[i].a, sizeof rows[i].a);
        memcpy(spec.in[1].dims, rows[i].b, sizeof rows[i].b);
        spec.in[2].dims[0] = rows[i].bias;
        spec.in[2].dims[1] = rows[i].ranks[2] == 2 ? 1 : 0;
        param(&spec, "transpose_a")->i = rows[i].ta;
        param(&spec, "transpose_b")->i = rows[i].tb;
        const ks_status status = resolved(&spec);
        if (status != rows[i].status) fail_msg("row %zu: got %s", i, ks_status_name(status));
        if (status == KS_OK) assert_memory_equal(spec.out[0].dims, rows[i].out, sizeof rows[i].out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured),
        cmocka_unit_test(aligned),
        cmocka_unit_test(printed),
        cmocka_unit_test(datatypes),
        cmocka_unit_test(lists_of_ops),
        cmocka_unit_test(specs_with_lists),
        cmocka_unit_test(softmax_rules),
        cmocka_unit_test(reduce_axes),
        cmocka_unit_test(reduce_rules),
        cmocka_unit_test(matmul_shapes),
        cmocka_unit_test(references_of_nothing),
        cmocka_unit_test(doubles_are_rounded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
