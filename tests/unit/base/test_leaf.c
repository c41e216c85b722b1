/* Leaf services: texts and models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/model.h"
#include "base/text.h"

static void assert_text(ks_text *text, const char *expected)
{
    assert_false(text->broken);
    assert_int_equal(text->length, strlen(expected));
    assert_memory_equal(text->bytes, expected, text->length);
}

static void text_grows_and_prints(void **state)
{
    (void)state;
    ks_text text;
    ks_text_init(&text, 1 << 20);
    for (int i = 0; i < 1000; i++) ks_text_printf(&text, "%d,", i);
    assert_false(text.broken);
    const char *at = text.bytes;
    for (int i = 0; i < 1000; i++) {
        char expected[16];
        const size_t n = (size_t)snprintf(expected, sizeof expected, "%d,", i);
        assert_memory_equal(at, expected, n);
        at += n;
    }
    assert_ptr_equal(at, text.bytes + text.length);
    ks_text_fini(&text);
    assert_null(text.bytes);
}

static void text_breaks_at_its_limit_and_stays_broken(void **state)
{
    (void)state;
    ks_text text;
    size_t length;
    ks_text_init(&text, 10);
    ks_text_puts(&text, "0123456789");
    assert_text(&text, "0123456789");
    ks_text_puts(&text, "x");
    assert_true(text.broken);
    ks_text_puts(&text, "");
    assert_true(text.broken);
    assert_null(ks_text_take(&text, &length));
    assert_int_equal(length, 0);
    ks_text_init(&text, 10);
    assert_null(ks_text_room(&text, SIZE_MAX));
    assert_true(text.broken);
    ks_text_fini(&text);
}

static void text_is_taken_once(void **state)
{
    (void)state;
    ks_text text;
    size_t length;
    ks_text_init(&text, 100);
    ks_text_puts(&text, "abc");
    char *bytes = ks_text_take(&text, &length);
    assert_int_equal(length, 3);
    assert_memory_equal(bytes, "abc", 3);
    free(bytes);
    assert_int_equal(text.length, 0);
    bytes = ks_text_take(&text, &length);
    assert_non_null(bytes); /* an empty text is no failure */
    assert_int_equal(length, 0);
    free(bytes);
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    ks_text text;
    ks_text_init(&text, 1000);
    const char raw[] = "a\"b\\c\n\t\r\b\f\x01\x1f\x7f/\xc3\xa9\0z";
    ks_text_json(&text, raw, sizeof raw - 1);
    assert_text(&text, "\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001\\u001f\\u007f/\xc3\xa9\\u0000z\"");
    ks_text_fini(&text);
}

static const ks_model *model(const char *name)
{
    const ks_model *found = ks_model_find(name, strlen(name));
    if (!found) fail_msg("no model %s", name);
    assert_string_equal(found->name, name);
    assert_ptr_equal(ks_model_at(found->index), found);
    return found;
}

static void models_declare_what_the_protocol_lists(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ks_dtype in, out;
        int in_rank, out_rank;
    } expected[] = {{"softmax", KS_FP32, KS_FP32, 2, 2},        {"softmax_fp16", KS_FP16, KS_FP16, 2, 2},
                    {"softmax_bf16", KS_BF16, KS_BF16, 2, 2},   {"softmax_fp64", KS_FP64, KS_FP64, 2, 2},
                    {"softmax_vec", KS_FP32, KS_FP32, 1, 1},    {"reduce", KS_FP32, KS_FP32, 2, 1},
                    {"reduce_fp16", KS_FP16, KS_FP16, 2, 1},    {"reduce_sum", KS_FP32, KS_FP32, 2, 1},
                    {"reduce_mean", KS_FP32, KS_FP32, 2, 1},    {"reduce_argmax", KS_FP32, KS_INT64, 2, 1},
                    {"reduce_argmin", KS_FP32, KS_INT64, 2, 1}, {"reduce_vec", KS_FP32, KS_FP32, 1, 0},
                    {"matmul", KS_FP32, KS_FP32, 2, 2},         {"matmul_bf16", KS_BF16, KS_BF16, 2, 2},
                    {"matmul_tb", KS_FP32, KS_FP32, 2, 2}};
    ks_models_init();
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const ks_model *found = model(expected[i].name);
        assert_int_equal(found->dtype, expected[i].in);
        assert_int_equal(found->out_dtype[0], expected[i].out);
        assert_int_equal(found->in_rank[0], expected[i].in_rank);
        assert_int_equal(found->out_rank[0], expected[i].out_rank);
    }
    assert_int_equal(model("reduce")->fixed_count, 0);
    const ks_model *mean = model("reduce_mean");
    assert_int_equal(mean->fixed_count, 1);
    assert_in_range(mean->fixed[0].param, 0, mean->op->params_count - 1);
    const char *algorithm = mean->op->params[mean->fixed[0].param].choices[mean->fixed[0].value.i];
    assert_string_equal(algorithm, "mean");
    assert_ptr_equal(ks_model_fixed(mean, mean->fixed[0].param), &mean->fixed[0]);
    assert_null(ks_model_fixed(mean, mean->fixed[0].param + 1));
}

static void model_names_are_exact_and_unique(void **state)
{
    (void)state;
    ks_models_init();
    const int count = ks_model_count();
    ks_models_init(); /* again: nothing is added */
    assert_int_equal(ks_model_count(), count);
    assert_null(ks_model_find("Softmax", 7));
    assert_null(ks_model_find("softmax\0", 8));
    assert_null(ks_model_find("", 0));
    assert_null(ks_model_find("softma", 6));
    for (int i = 0; i < count; i++) {
        assert_int_equal(ks_model_at(i)->index, i);
        for (int j = 0; j < i; j++) assert_string_not_equal(ks_model_at(i)->name, ks_model_at(j)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows_and_prints),
        cmocka_unit_test(text_breaks_at_its_limit_and_stays_broken),
        cmocka_unit_test(text_is_taken_once),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(models_declare_what_the_protocol_lists),
        cmocka_unit_test(model_names_are_exact_and_unique),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
