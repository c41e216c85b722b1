/* Number text both ways: a table of tokens by datatype, and a million random bit patterns that must come back exactly.
 */
#include "unit/codec/words_test.h"

#include <math.h>

#include "base/number/number.h"

typedef struct token_case {
    const char *text;
    ks_dtype dtype;
    ks_number_result result;
    double value;
} token_case;

static const token_case tokens[] = {
    /* text, datatype, result, value */
    {"0", KS_FP32, KS_NUMBER_OK, 0},
    {"-0", KS_FP32, KS_NUMBER_OK, -0.0},
    {"12", KS_FP32, KS_NUMBER_OK, 12},
    {"1.5e3", KS_FP32, KS_NUMBER_OK, 1500},
    {"1E+2", KS_FP64, KS_NUMBER_OK, 100},
    {"0.10000000149011612", KS_FP32, KS_NUMBER_OK, 0.1f},
    {"3.4028234663852886e38", KS_FP32, KS_NUMBER_OK, 3.4028234663852886e38},
    {"3.4028235677973367e38", KS_FP32, KS_NUMBER_RANGE, 0}, /* half way to the next: rounds to infinity */
    {"1e39", KS_FP32, KS_NUMBER_RANGE, 0},
    {"-1e39", KS_FP32, KS_NUMBER_RANGE, 0},
    {"1e39", KS_FP64, KS_NUMBER_OK, 1e39},
    {"1e309", KS_FP64, KS_NUMBER_RANGE, 0},
    {"1e99999999999999999999", KS_FP64, KS_NUMBER_RANGE, 0},
    {"1e-99999999999999999999", KS_FP64, KS_NUMBER_OK, 0},
    {"0e99999999999999999999", KS_FP64, KS_NUMBER_OK, 0},
    {"1e-46", KS_FP32, KS_NUMBER_OK, 0}, /* rounds to zero: no fault */
    {"1e-45", KS_FP32, KS_NUMBER_OK, 1.4012984643248171e-45},
    {"123456789012345678901234567890123456789e-400", KS_FP64, KS_NUMBER_OK, 0},
    {"NaN", KS_FP32, KS_NUMBER_OK, NAN},
    {"Infinity", KS_FP32, KS_NUMBER_OK, INFINITY},
    {"-Infinity", KS_FP64, KS_NUMBER_OK, -INFINITY},
    {"Inf", KS_FP32, KS_NUMBER_OK, INFINITY},
    {"-Inf", KS_FP32, KS_NUMBER_OK, -INFINITY},
    {"-NaN", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"nan", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"inf", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"infinity", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"NaN", KS_INT32, KS_NUMBER_SYNTAX, 0},
    {"", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"-", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"+1", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"01", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"-01", KS_INT32, KS_NUMBER_SYNTAX, 0},
    {"1.", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {".5", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"1e", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"1e+", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"0x10", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"1_000", KS_INT32, KS_NUMBER_SYNTAX, 0},
    {"true", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"1 ", KS_FP32, KS_NUMBER_SYNTAX, 0},
    {"2147483647", KS_INT32, KS_NUMBER_OK, 2147483647},
    {"3000000000", KS_INT32, KS_NUMBER_RANGE, 0},
    {"3e9", KS_INT32, KS_NUMBER_RANGE, 0},
    {"1.5", KS_INT64, KS_NUMBER_RANGE, 0},
    {"2.0", KS_INT64, KS_NUMBER_RANGE, 0},
    {"-1", KS_UINT8, KS_NUMBER_RANGE, 0},
    {"-0", KS_UINT8, KS_NUMBER_OK, 0},
    {"255", KS_UINT8, KS_NUMBER_OK, 255},
    {"256", KS_UINT8, KS_NUMBER_RANGE, 0},
    {"-128", KS_INT8, KS_NUMBER_OK, -128},
    {"-129", KS_INT8, KS_NUMBER_RANGE, 0},
    {"65535", KS_UINT16, KS_NUMBER_OK, 65535},
    {"-32769", KS_INT16, KS_NUMBER_RANGE, 0},
    {"4294967296", KS_UINT32, KS_NUMBER_RANGE, 0},
    {"9223372036854775808", KS_INT64, KS_NUMBER_RANGE, 0},
    {"18446744073709551616", KS_UINT64, KS_NUMBER_RANGE, 0},
    {"true", KS_BOOL, KS_NUMBER_OK, 1},
    {"false", KS_BOOL, KS_NUMBER_OK, 0},
    {"1", KS_BOOL, KS_NUMBER_OK, 1},
    {"0", KS_BOOL, KS_NUMBER_OK, 0},
    {"2", KS_BOOL, KS_NUMBER_RANGE, 0},
    {"True", KS_BOOL, KS_NUMBER_SYNTAX, 0},
    {"1", KS_FP16, KS_NUMBER_KIND, 0},
    {"1", KS_BF16, KS_NUMBER_KIND, 0},
    {"1", KS_BYTES, KS_NUMBER_KIND, 0},
};

static double as_double(const void *element, ks_dtype dtype)
{
    union {
        int8_t i8;
        uint8_t u8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        float f;
        double d;
    } v;
    memcpy(&v, element, ks_dtype_size(dtype));
    switch (dtype) {
    case KS_INT8:
        return v.i8;
    case KS_BOOL:
    case KS_UINT8:
        return v.u8;
    case KS_INT16:
        return v.i16;
    case KS_UINT16:
        return v.u16;
    case KS_INT32:
        return v.i32;
    case KS_UINT32:
        return v.u32;
    case KS_INT64:
        return (double)v.i64;
    case KS_UINT64:
        return (double)v.u64;
    case KS_FP32:
        return (double)v.f;
    default:
        return v.d;
    }
}

static void tokens_are_read_as_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(tokens); i++) {
        const token_case *t = &tokens[i];
        unsigned char element[9]; /* unaligned on purpose */
        const ks_number_result result = ks_number_read(t->text, strlen(t->text), t->dtype, element + 1);
        if (result != t->result) fail_msg("'%s' as %s: result %d", t->text, ks_dtype_name(t->dtype), result);
        if (result != KS_NUMBER_OK) continue;
        const double value = as_double(element + 1, t->dtype);
        const bool same = isnan(t->value) ? isnan(value) : value == t->value && signbit(value) == signbit(t->value);
        if (!same) fail_msg("'%s' as %s: %.17g", t->text, ks_dtype_name(t->dtype), value);
    }
}

static void integers_are_exact_over_64_bits(void **state)
{
    (void)state;
    int64_t i;
    uint64_t u;
    assert_int_equal(ks_number_read("9007199254740993", 16, KS_INT64, &i), KS_NUMBER_OK);
    assert_true(i == 9007199254740993);
    assert_int_equal(ks_number_read("-9223372036854775808", 20, KS_INT64, &i), KS_NUMBER_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(ks_number_read("18446744073709551615", 20, KS_UINT64, &u), KS_NUMBER_OK);
    assert_true(u == UINT64_MAX);
}

/* Tokens of up to 20 digits, with a sign, a zero in front or another byte now and then, against the reader of any token. */
static void digits_are_read_as_the_general_reader_reads_them(void **state)
{
    (void)state;
    int read = 0;
    for (int round = 0; round < 100000; round++) {
        char text[24];
        const size_t length = words_below(21);
        for (size_t i = 0; i < length; i++) text[i] = (char)('0' + words_below(10));
        if (length > 0 && words_below(4) == 0) text[words_below((int)length)] = "-0.e/: "[words_below(7)];
        int64_t value = -1, expected = -1;
        const bool number = length > 0 && length < 19 && *text != '-' &&
                            ks_number_read(text, length, KS_INT64, &expected) == KS_NUMBER_OK;
        assert_int_equal(ks_digits_read(text, length, &value), number);
        assert_true(value == (number ? expected : -1));
        read += number;
    }
    assert_in_range(read, 50000, 80000);
}

static void floats_come_out_short_and_with_a_point(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *text;
    } cases[] = {{2, "2.0"},
                 {-0.0f, "-0.0"},
                 {0.1f, "0.1"},
                 {1e-5f, "1e-05"},
                 {1e30f, "1e+30"},
                 {NAN, "NaN"},
                 {INFINITY, "Infinity"},
                 {-INFINITY, "-Infinity"},
                 {-NAN, "NaN"},
                 {1.5f, "1.5"},
                 {16777216.0f, "16777216.0"}};
    char text[KS_NUMBER_TEXT_MAX + 1];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        text[ks_number_write(&cases[i].value, KS_FP32, text)] = 0;
        assert_string_equal(text, cases[i].text);
    }
    text[ks_double_write(1.0, text)] = 0;
    assert_string_equal(text, "1.0");
    text[ks_double_write(0.1, text)] = 0;
    assert_string_equal(text, "0.1");
}

static void a_list_is_separated_by_commas_and_tells_of_non_finite(void **state)
{
    (void)state;
    const float finite[] = {1, 2.5f, -3}, odd[] = {1, NAN};
    const int64_t big[] = {INT64_MIN, 9007199254740993};
    const unsigned char truth[] = {1, 0};
    char text[3 * KS_NUMBER_TEXT_MAX + 1];
    int non_finite = 0;
    text[ks_numbers_write(finite, 3, KS_FP32, text, &non_finite)] = 0;
    assert_string_equal(text, "1.0,2.5,-3.0");
    assert_int_equal(non_finite, 0);
    text[ks_numbers_write(big, 2, KS_INT64, text, &non_finite)] = 0;
    assert_string_equal(text, "-9223372036854775808,9007199254740993");
    text[ks_numbers_write(truth, 2, KS_BOOL, text, &non_finite)] = 0;
    assert_string_equal(text, "true,false");
    assert_int_equal(non_finite, 0);
    text[ks_numbers_write(odd, 2, KS_FP32, text, &non_finite)] = 0;
    assert_string_equal(text, "1.0,NaN");
    assert_int_equal(non_finite, 1);
}

static void random_elements_come_back_bit_by_bit(void **state)
{
    (void)state;
    static const ks_dtype kinds[] = {KS_FP32, KS_FP64, KS_INT64, KS_UINT64, KS_INT8, KS_UINT16};
    char text[KS_NUMBER_TEXT_MAX + 1];
    for (int round = 0; round < 1000000; round++) {
        const ks_dtype dtype = round % 2 ? KS_FP32 : kinds[words_below(COUNT_OF(kinds))];
        const uint64_t bits = words_random();
        uint64_t back = 0;
        const size_t size = ks_dtype_size(dtype), length = ks_number_write(&bits, dtype, text);
        assert_true(length < KS_NUMBER_TEXT_MAX);
        assert_int_equal(ks_number_read(text, length, dtype, &back), KS_NUMBER_OK);
        const bool nan = ks_dtype_kind(dtype) == KS_KIND_FLOAT && isnan(as_double(&bits, dtype));
        if (nan ? !isnan(as_double(&back, dtype)) : memcmp(&bits, &back, size) != 0)
            fail_msg("%s %.*s", ks_dtype_name(dtype), (int)length, text);
    }
}

/* Reading against the C library, on texts longer than shortest: many digits, exponents. */
static void random_texts_read_as_strtof_reads_them(void **state)
{
    (void)state;
    for (int round = 0; round < 200000; round++) {
        char text[64];
        const int length = snprintf(text, sizeof text, "%s%llu.%0*lluE%d", words_below(2) ? "-" : "",
                                    (unsigned long long)words_below(100000), 1 + (int)words_below(17),
                                    (unsigned long long)words_below(1000000000), (int)words_below(90) - 50);
        float value;
        const float expected = strtof(text, NULL);
        const ks_number_result result = ks_number_read(text, (size_t)length, KS_FP32, &value);
        if (isinf(expected))
            assert_int_equal(result, KS_NUMBER_RANGE);
        else if (result != KS_NUMBER_OK || memcmp(&value, &expected, sizeof value) != 0)
            fail_msg("%s: %a, strtof %a", text, (double)value, (double)expected);
    }
}

/* Lists that end anywhere, amid a number too: nothing is read behind the end (a sanitizer sees it), and what was read is
 * what stands there. */
static void a_list_is_read_no_further_than_its_end(void **state)
{
    (void)state;
    static const struct {
        const char *head, repeated;
    } texts[] = {{"1,2,3.5,", '0'}, {"1,", '9'}, {"-7,0.", '0'}, {"1e", '0'}, {"1,2,", ' '}, {"0.", '3'}, {"", '-'}};
    static const ks_dtype kinds[] = {KS_FP32, KS_FP64, KS_INT8, KS_UINT64, KS_BOOL};
    for (size_t t = 0; t < COUNT_OF(texts); t++) {
        for (size_t length = 0; length < 300; length++) {
            char *const text = malloc(length + 1);
            for (size_t i = 0; i < length; i++) {
                const size_t head = strlen(texts[t].head);
                text[i] = i < head ? texts[t].head[i] : i % 90 == 89 ? ',' : texts[t].repeated;
            }
            char *const exact = realloc(text, length > 0 ? length : 1);
            for (size_t k = 0; k < COUNT_OF(kinds); k++) {
                unsigned char elements[300 * 8], one[8];
                const char *p = exact;
                const size_t n = ks_numbers_read(&p, exact + length, kinds[k], 300, elements);
                assert_true(p >= exact && p <= exact + length && (n > 0 || p == exact));
                const char *from = exact;
                for (size_t i = 0; i < n; i++) {
                    while (*from == ',' || *from == ' ') from++;
                    const char *to = from;
                    while (to < p && *to != ',') to++;
                    const size_t size = ks_dtype_size(kinds[k]);
                    assert_int_equal(ks_number_read(from, (size_t)(to - from), kinds[k], one), KS_NUMBER_OK);
                    assert_memory_equal(one, elements + i * size, size);
                    from = to;
                }
                assert_true(from == p);
            }
            free(exact);
        }
    }
}

/* --- the fast way against the exact one ------------------------------------------------------------------------------ */

static const ks_dtype readable[] = {KS_FP32,  KS_FP64,  KS_INT8,   KS_INT16,  KS_INT32,
                                    KS_INT64, KS_UINT8, KS_UINT16, KS_UINT32, KS_UINT64};

/* What the reader of lists takes of a text is what the reader of one element says of it: it may leave it, but never read
 * something else. Far enough from the list's end that it tries. */
static bool list_reads_as_token(const char *token, ks_dtype dtype)
{
    enum { BEHIND = 80 };
    static const char ends[] = {',', ']', ' ', '\n', '\r', '\t'};
    const size_t length = strlen(token);
    char text[512];
    unsigned char list[8] = {0}, one[8] = {0};
    assert_true(length + BEHIND < sizeof text);
    if (strpbrk(token, ", ]")) return false; /* more than one */
    memcpy(text, token, length);
    memset(text + length, '7', BEHIND);
    text[length] = ends[words_below(sizeof ends)];
    const char *p = text;
    if (ks_numbers_read(&p, text + length + BEHIND, dtype, 1, list) == 0) return false;
    const ks_number_result result = ks_number_read(token, length, dtype, one);
    if (result != KS_NUMBER_OK || memcmp(list, one, ks_dtype_size(dtype)) != 0 || p != text + length)
        fail_msg("'%s' as %s: %.17g in a list, %.17g alone (result %d)", token, ks_dtype_name(dtype),
                 as_double(list, dtype), as_double(one, dtype), result);
    return true;
}

static void every_token_in_a_list(void **state)
{
    static const char *const more[] = {"0",    "00",  "-00", "1x",     "1,",      "--1",  "1.5.5",   "1e5e5",
                                       "1e",   "1e+", "-",   "0.",     ".0",      "0.00", "-0.0",    "1e-0",
                                       "1E05", "1/2", "1:2", "12e",    "e5",      "1+1",  "-e",      "00.1",
                                       "01.5", "1\"", "1}",  "1e0005", "1e00005", "1;",   "0e99999", "1e-9999"};
    (void)state;
    for (size_t k = 0; k < COUNT_OF(readable); k++) {
        for (size_t i = 0; i < COUNT_OF(tokens); i++)
            if (tokens[i].text[0]) list_reads_as_token(tokens[i].text, readable[k]);
        for (size_t i = 0; i < COUNT_OF(more); i++) list_reads_as_token(more[i], readable[k]);
    }
    assert_true(list_reads_as_token("0", KS_INT8) && list_reads_as_token("-0.5", KS_FP32) &&
                list_reads_as_token("1e5", KS_FP64));
}

/* Whole numbers of 1 to 22 digits, and the ends of every datatype, one beyond them and ten times as much. */
static void whole_numbers_in_a_list(void **state)
{
    char text[64];
    (void)state;
    for (int round = 0; round < 100000; round++) {
        const int digits = 1 + (int)words_below(22);
        size_t n = 0;
        if (words_below(3) == 0) text[n++] = '-';
        for (int i = 0; i < digits; i++)
            text[n++] = (char)('0' + words_below(i == 0 ? 2 : 10) + (i == 0 ? words_below(9) : 0));
        text[n] = 0;
        list_reads_as_token(text, readable[words_below(COUNT_OF(readable))]);
    }
    int taken = 0;
    for (int bits = 7; bits <= 64; bits++)
        for (int more = -2; more <= 2; more++)
            for (int sign = 0; sign < 2; sign++) {
                const unsigned __int128 value = ((unsigned __int128)1 << bits) + (unsigned __int128)(__int128)more;
                const uint64_t high = (uint64_t)(value / 10000000000), low = (uint64_t)(value % 10000000000);
                snprintf(text, sizeof text, high ? "%s%llu%010llu" : "%s%.0llu%llu", sign ? "-" : "",
                         (unsigned long long)high, (unsigned long long)low);
                for (size_t k = 0; k < COUNT_OF(readable); k++) taken += list_reads_as_token(text, readable[k]);
            }
    assert_true(taken > 1000);
}

/* Decimals as near as can be to the middle between two floats: there the last bit is decided, and a value that is rounded
 * twice goes the wrong way. */
static void middles_in_a_list(void **state)
{
    int taken = 0;
    (void)state;
    for (int round = 0; round < 100000; round++) {
        char text[64];
        const bool narrow = words_below(2);
        const uint64_t random = words_random();
        if (narrow) {
            const uint32_t bits = (uint32_t)((100 + words_below(60)) << 23 | (random & 0x7FFFFF));
            float one;
            memcpy(&one, &bits, sizeof one);
            const double middle = ((double)one + (double)nextafterf(one, INFINITY)) / 2;
            snprintf(text, sizeof text, "%.*e", 14 + (int)words_below(5), middle);
        } else {
            const uint64_t bits = (1000 + words_below(60)) << 52 | (random & 0xFFFFFFFFFFFFF);
            double one;
            memcpy(&one, &bits, sizeof one);
            const long double middle = ((long double)one + (long double)nextafter(one, (double)INFINITY)) / 2;
            snprintf(text, sizeof text, "%.*Le", 14 + (int)words_below(5), middle);
        }
        taken += list_reads_as_token(text, KS_FP32) + list_reads_as_token(text, KS_FP64);
    }
    assert_true(taken > 10000);
}

/* --- writing -------------------------------------------------------------------------------------------------------- */

static void integers_at_their_ends(void **state)
{
    static const struct {
        ks_dtype dtype;
        uint64_t bits;
        const char *text;
    } rows[] = {{KS_INT8, 0, "0"},
                {KS_INT8, 0x7F, "127"},
                {KS_INT8, 0x80, "-128"},
                {KS_INT8, 0xFF, "-1"},
                {KS_INT16, 0, "0"},
                {KS_INT16, 0x8000, "-32768"},
                {KS_INT32, 0, "0"},
                {KS_INT32, 0x80000000, "-2147483648"},
                {KS_INT32, 0x7FFFFFFF, "2147483647"},
                {KS_INT64, 0, "0"},
                {KS_INT64, (uint64_t)1 << 63, "-9223372036854775808"},
                {KS_UINT8, 0, "0"},
                {KS_UINT8, 255, "255"},
                {KS_UINT16, 65535, "65535"},
                {KS_UINT32, 10, "10"},
                {KS_UINT32, 99999999, "99999999"},
                {KS_UINT32, 100000000, "100000000"},
                {KS_UINT64, UINT64_MAX, "18446744073709551615"},
                {KS_UINT64, 9999999999999999u, "9999999999999999"},
                {KS_UINT64, 10000000000000000u, "10000000000000000"},
                {KS_BOOL, 0, "false"},
                {KS_BOOL, 1, "true"},
                {KS_BOOL, 2, "true"},
                {KS_BOOL, 0x80, "true"}};
    char text[KS_NUMBER_TEXT_MAX + 1];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        text[ks_number_write(&rows[i].bits, rows[i].dtype, text)] = 0;
        assert_string_equal(text, rows[i].text);
    }
    static const struct {
        double value;
        const char *text;
    } doubles[] = {{1e100, "1e+100"},        {1e99, "1e+99"},    {1e-100, "1e-100"}, {-1.5e300, "-1.5e+300"},
                   {5e-324, "5e-324"},       {1e-9, "1e-09"},    {1e10, "1e+10"},    {0.0001, "1e-04"},
                   {123456.75, "123456.75"}, {9.5e-7, "9.5e-07"}};
    for (size_t i = 0; i < COUNT_OF(doubles); i++) {
        text[ks_double_write(doubles[i].value, text)] = 0;
        assert_string_equal(text, doubles[i].text);
    }
}

/* A list is its elements one by one, with a comma between each two, however many are made at a time. */
static void a_list_is_its_elements(void **state)
{
    enum { MOST = 70 };
    static uint64_t elements[MOST];
    static char list[MOST * (KS_NUMBER_TEXT_MAX + 1)], joined[sizeof list];
    (void)state;
    for (size_t k = 0; k < COUNT_OF(readable); k++)
        for (size_t count = 1; count <= MOST; count++) {
            int non_finite = 0;
            const size_t size = ks_dtype_size(readable[k]);
            for (size_t i = 0; i < MOST; i++) elements[i] = words_random();
            size_t n = 0;
            for (size_t i = 0; i < count; i++) {
                if (i > 0) joined[n++] = ',';
                n += ks_number_write((const char *)elements + i * size, readable[k], joined + n);
            }
            assert_int_equal(ks_numbers_write(elements, count, readable[k], list, &non_finite), n);
            assert_memory_equal(list, joined, n);
        }
}

int main(void)
{
    words_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_read_as_the_table_says),
        cmocka_unit_test(integers_are_exact_over_64_bits),
        cmocka_unit_test(digits_are_read_as_the_general_reader_reads_them),
        cmocka_unit_test(floats_come_out_short_and_with_a_point),
        cmocka_unit_test(a_list_is_separated_by_commas_and_tells_of_non_finite),
        cmocka_unit_test(a_list_is_read_no_further_than_its_end),
        cmocka_unit_test(random_elements_come_back_bit_by_bit),
        cmocka_unit_test(random_texts_read_as_strtof_reads_them),
        cmocka_unit_test(every_token_in_a_list),
        cmocka_unit_test(whole_numbers_in_a_list),
        cmocka_unit_test(middles_in_a_list),
        cmocka_unit_test(integers_at_their_ends),
        cmocka_unit_test(a_list_is_its_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
