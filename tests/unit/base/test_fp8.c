/* FP8: all 256 codes both ways, floats against a search over all values, arrays against single elements, and its numbers as text. */
#include "unit/codec/words_test.h"

#include <math.h>

#include "base/number/number.h"
#include "cpu/convert.h"
#include "ops/numbers/fp8.h"

typedef struct format {
    ks_dtype dtype;
    int mantissa, bias;
    int largest; /* the code of the largest finite one */
    void (*to_floats)(const uint8_t *in, float *out, size_t count);
    void (*of_floats)(const float *in, uint8_t *out, size_t count);
} format;

static const format formats[] = {{KS_FP8E4M3, 3, 7, 0x7E, ks_fp8e4m3_to_floats, ks_floats_to_fp8e4m3},
                                 {KS_FP8E5M2, 2, 15, 0x7B, ks_fp8e5m2_to_floats, ks_floats_to_fp8e5m2}};

/* By the definition. NaN beyond the finite ones. */
static double value_of(const format *f, int code)
{
    const int magnitude = code & 0x7F, exponent = magnitude >> f->mantissa, low = magnitude & ((1 << f->mantissa) - 1);
    const double sign = code & 0x80 ? -1 : 1;
    if (magnitude > f->largest) return f->dtype == KS_FP8E5M2 && magnitude == 0x7C ? sign * INFINITY : NAN;
    if (exponent == 0) return sign * ldexp(low, 1 - f->bias - f->mantissa);
    return sign * ldexp((1 << f->mantissa) + low, exponent - f->bias - f->mantissa);
}

/* The nearest of all; of two as near the even one, where one above the largest would be what is a power of two more. */
static int search(const format *f, double value)
{
    const int sign = signbit(value) ? 0x80 : 0;
    const double magnitude = fabs(value);
    if (isnan(value)) return f->dtype == KS_FP8E5M2 ? sign | 0x7E : sign | 0x7F;
    const double step = value_of(f, f->largest) - value_of(f, f->largest - 1);
    int best = f->largest + 1; /* infinite, or NaN */
    double distance = fabs(value_of(f, f->largest) + step - magnitude);
    if (magnitude > value_of(f, f->largest) + step) return sign | best;
    for (int code = f->largest; code >= 0; code--) {
        const double away = fabs(value_of(f, code) - magnitude);
        if (away < distance || (away == distance && code % 2 == 0)) {
            best = code;
            distance = away;
        }
    }
    return sign | best;
}

static void every_code_is_what_the_definition_says(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(formats); k++) {
        const format *f = &formats[k];
        uint8_t codes[256], back[256];
        float values[256];
        for (int i = 0; i < 256; i++) codes[i] = (uint8_t)i;
        f->to_floats(codes, values, 256);
        f->of_floats(values, back, 256);
        for (int i = 0; i < 256; i++) {
            const double wanted = value_of(f, i);
            assert_true(isnan(wanted) ? isnan(values[i]) : (double)values[i] == wanted);
            assert_true(isnan(wanted) || !signbit(values[i]) == !signbit(wanted));
            assert_int_equal(back[i], isnan(wanted) ? search(f, (double)values[i]) : i);
            assert_true(ks_fp8_to_float(ks_fp8_layout_of(f->dtype), (uint8_t)i) == values[i] || isnan(values[i]));
        }
    }
    assert_true(value_of(&formats[0], 0x7E) == 448 && value_of(&formats[1], 0x7B) == 57344);
}

static void check_float(const format *f, float value)
{
    const uint8_t got = ks_fp8_of_float(ks_fp8_layout_of(f->dtype), value);
    if (got != search(f, (double)value))
        fail_msg("%s of %a: %02x and not %02x", ks_dtype_name(f->dtype), (double)value, got, search(f, (double)value));
}

static void floats_go_to_the_nearest(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(formats); k++) {
        const format *f = &formats[k];
        for (int code = 0; code <= f->largest; code++) {
            const double next =
                code < f->largest ? value_of(f, code + 1) : 2 * value_of(f, code) - value_of(f, code - 1);
            const float middle = (float)((value_of(f, code) + next) / 2);
            const float near[] = {middle, nextafterf(middle, 0), nextafterf(middle, INFINITY), (float)next};
            for (size_t i = 0; i < COUNT_OF(near); i++) {
                check_float(f, near[i]);
                check_float(f, -near[i]);
            }
        }
        for (int round = 0; round < 300000; round++) {
            const uint32_t bits = (uint32_t)words_random();
            const uint32_t exponent = (uint32_t)(90 + words_below(60)); /* where most of its range lies */
            check_float(f, ks_fp8_float_of_bits(round % 2 ? bits : (bits & 0x807FFFFFu) | exponent << 23));
        }
        const float rest[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, 3e38f, 1e-45f};
        for (size_t i = 0; i < COUNT_OF(rest); i++) check_float(f, rest[i]);
    }
}

static void arrays_are_their_elements(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    float values[COUNT];
    uint8_t codes[COUNT];
    for (size_t k = 0; k < COUNT_OF(formats); k++) {
        for (size_t i = 0; i < COUNT; i++) values[i] = ks_fp8_float_of_bits((uint32_t)words_random());
        for (size_t n = 0; n < 70; n++) {
            memset(codes, 0x55, sizeof codes);
            formats[k].of_floats(values + n, codes, n);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(codes[i], ks_fp8_of_float(ks_fp8_layout_of(formats[k].dtype), values[n + i]));
            assert_int_equal(codes[n], 0x55);
        }
    }
}

static void check_text(const format *f, const char *text, ks_number_result wanted, int code)
{
    uint8_t got = 0x55;
    const ks_number_result result = ks_number_read(text, strlen(text), f->dtype, &got);
    if (result != wanted || (result == KS_NUMBER_OK && got != code))
        fail_msg("%s '%s': %d %02x and not %d %02x", ks_dtype_name(f->dtype), text, result, got, wanted, code);
}

static void text_comes_back_and_rounds_once(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(formats); k++) {
        const format *f = &formats[k];
        for (int code = 0; code < 256; code++) {
            const uint8_t element = (uint8_t)code;
            char text[KS_NUMBER_TEXT_MAX + 1];
            text[ks_number_write(&element, f->dtype, text)] = 0;
            check_text(f, text, KS_NUMBER_OK, isnan(value_of(f, code)) ? (k ? 0x7E : 0x7F) : code);
        }
        for (int code = 0; code < f->largest; code++) {
            char middle[64], text[128];
            snprintf(middle, sizeof middle, "%.30f", (value_of(f, code) + value_of(f, code + 1)) / 2);
            check_text(f, middle, KS_NUMBER_OK, code % 2 ? code + 1 : code);
            snprintf(text, sizeof text, "-%s0000000000000000000001", middle); /* FP64 cannot tell it from the middle */
            check_text(f, text, KS_NUMBER_OK, 0x80 | (code + 1));
            snprintf(text, sizeof text, "%.25e", (value_of(f, code) + value_of(f, code + 1)) / 2);
            check_text(f, text, KS_NUMBER_OK, code % 2 ? code + 1 : code);
        }
    }
    static const struct {
        const char *text;
        ks_number_result e4m3, e5m2;
        int code4, code5;
    } rows[] = {{"448", KS_NUMBER_OK, KS_NUMBER_OK, 0x7E, 0x5F},
                {"448.5", KS_NUMBER_RANGE, KS_NUMBER_OK, 0, 0x5F},
                {"-57344", KS_NUMBER_RANGE, KS_NUMBER_OK, 0, 0xFB},
                {"57345", KS_NUMBER_RANGE, KS_NUMBER_RANGE, 0, 0},
                {"1e400", KS_NUMBER_RANGE, KS_NUMBER_RANGE, 0, 0},
                {"1e-400", KS_NUMBER_OK, KS_NUMBER_OK, 0, 0},
                {"-0.0", KS_NUMBER_OK, KS_NUMBER_OK, 0x80, 0x80},
                {"NaN", KS_NUMBER_OK, KS_NUMBER_OK, 0x7F, 0x7E},
                {"-Infinity", KS_NUMBER_RANGE, KS_NUMBER_OK, 0, 0xFC},
                {"1.06249999999999999999999999", KS_NUMBER_OK, KS_NUMBER_OK, 0x38, 0x3C},
                {"1.0625", KS_NUMBER_OK, KS_NUMBER_OK, 0x38, 0x3C},
                {"1062.50000000000000000000001e-3", KS_NUMBER_OK, KS_NUMBER_OK, 0x39, 0x3C},
                {"true", KS_NUMBER_SYNTAX, KS_NUMBER_SYNTAX, 0, 0},
                {"1.", KS_NUMBER_SYNTAX, KS_NUMBER_SYNTAX, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_text(&formats[0], rows[i].text, rows[i].e4m3, rows[i].code4);
        check_text(&formats[1], rows[i].text, rows[i].e5m2, rows[i].code5);
    }
}

static void lists_are_printed_with_commas(void **state)
{
    (void)state;
    uint8_t codes[200];
    char text[200 * KS_NUMBER_TEXT_MAX];
    int non_finite = 0;
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)(0x38 + i % 2 * 8); /* 1 and 2 */
    const size_t length = ks_numbers_write(codes, sizeof codes, KS_FP8E4M3, text, &non_finite);
    assert_int_equal(length, sizeof codes * 4 - 1);
    for (size_t i = 0; i < sizeof codes; i++)
        assert_memory_equal(text + 4 * i, i % 2 ? "2.0," : "1.0,", i < 199 ? 4 : 3);
    assert_int_equal(non_finite, 0);
    codes[130] = 0x7F;
    ks_numbers_write(codes, sizeof codes, KS_FP8E4M3, text, &non_finite);
    assert_int_equal(non_finite, 1);
}

int main(void)
{
    words_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_is_what_the_definition_says),
        cmocka_unit_test(floats_go_to_the_nearest),
        cmocka_unit_test(arrays_are_their_elements),
        cmocka_unit_test(text_comes_back_and_rounds_once),
        cmocka_unit_test(lists_are_printed_with_commas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
