/* The scanner alone: what it accepts and refuses, cut at every byte; what it leaves in the JSON head; where the numbers
 * go. To add a case, add a line to a table. */
#include "unit/codec/words_test.h"

#include <math.h>

#include "codec/scan/scan.h"

static const ks_scan_limits usual = {
    .json_head_max = 65536, .string_max = 1024, .members_max = 64, .json_max = 1 << 24};

typedef struct placed {
    unsigned char *memory[KS_SCAN_INPUTS_MAX];
    size_t size[KS_SCAN_INPUTS_MAX];
    size_t size_max;
} placed;

/* ks_scan_place_fn: exactly as much as the shape says, so that a sanitizer sees one byte too many. */
static ks_status place(void *context, int index, const ks_scan_input *input, unsigned char **out, ks_error *error)
{
    placed *p = context;
    ks_tensor tensor = {.dtype = input->dtype, .rank = input->rank};
    memcpy(tensor.dims, input->dims, sizeof tensor.dims);
    assert_int_equal(ks_tensor_measure(&tensor, "input", error), KS_OK);
    assert_null(p->memory[index]);
    if (tensor.size_bytes > p->size_max) return ks_fail(error, KS_BUDGET, "too large for the test");
    p->size[index] = tensor.size_bytes;
    p->memory[index] = *out = malloc(tensor.size_bytes + (tensor.size_bytes == 0));
    return KS_OK;
}

static void placed_free(placed *p)
{
    for (int i = 0; i < KS_SCAN_INPUTS_MAX; i++) free(p->memory[i]);
    memset(p, 0, sizeof *p);
}

static ks_status feed(ks_scan *scan, const char *bytes, size_t n, ks_error *error)
{
    char *const chunk = malloc(n + (n == 0)); /* exact, so that a sanitizer sees reads beyond it */
    memcpy(chunk, bytes, n);
    const ks_status status = ks_scan_feed(scan, chunk, n, error);
    free(chunk);
    return status;
}

/* Cut at one place; at == SIZE_MAX: at every byte. */
static ks_status scan_cut(const char *text, size_t n, size_t at, ks_scan **scan, placed *p, ks_error *error)
{
    p->size_max = 1 << 26;
    assert_int_equal(ks_scan_begin(&usual, place, p, scan, error), KS_OK);
    ks_status status = KS_OK;
    if (at <= n) {
        status = feed(*scan, text, at, error);
        if (status == KS_OK) status = feed(*scan, text + at, n - at, error);
    } else {
        for (size_t i = 0; i < n && status == KS_OK; i++) status = feed(*scan, text + i, 1, error);
    }
    return status == KS_OK ? ks_scan_end(*scan, error) : status;
}

#define S(text) text, sizeof(text) - 1
#define D(dtype, shape, data) S("{\"inputs\":[{\"datatype\":\"" dtype "\",\"shape\":" shape ",\"data\":" data "}]}")

static const struct {
    const char *text;
    size_t length;
    ks_status status;
} cases[] = {
    /* whole documents */
    {S("{}"), KS_OK},
    {S(" \t\r\n{ } "), KS_OK},
    {S(""), KS_JSON},
    {S(" "), KS_JSON},
    {S("{"), KS_JSON},
    {S("}"), KS_JSON},
    {S("{}{}"), KS_JSON},
    {S("{},"), KS_JSON},
    {S("{}\0"), KS_JSON},
    {S("\xEF\xBB\xBF{}"), KS_JSON},
    {S("[]"), KS_FIELD},
    {S("1"), KS_FIELD},
    {S("\"x\""), KS_FIELD},
    {S("null"), KS_FIELD},
    {S("/**/{}"), KS_JSON},
    {S("{}//"), KS_JSON},
    /* structure */
    {S("{\"a\":1,}"), KS_JSON},
    {S("{,}"), KS_JSON},
    {S("{\"a\"}"), KS_JSON},
    {S("{\"a\":}"), KS_JSON},
    {S("{\"a\" 1}"), KS_JSON},
    {S("{\"a\":1 \"b\":2}"), KS_JSON},
    {S("{\"a\":1,\"b\":2}"), KS_OK},
    {S("{a:1}"), KS_JSON},
    {S("{'a':1}"), KS_JSON},
    {S("{1:1}"), KS_JSON},
    {S("{\"a\":[1,2,[],{}]}"), KS_OK},
    {S("{\"a\":[1,]}"), KS_JSON},
    {S("{\"a\":[,1]}"), KS_JSON},
    {S("{\"a\":[1 2]}"), KS_JSON},
    {S("{\"a\":[1}"), KS_JSON},
    {S("{\"a\":{]}"), KS_JSON},
    {S("{\"a\":[1]]}"), KS_JSON},
    {S("{\"\":1}"), KS_OK},
    {S("{\"a\":1,\"a\":1}"), KS_JSON},
    {S("{\"a\":1,\"\\u0061\":1}"), KS_JSON},
    {S("{\"a\":{\"a\":1},\"b\":{\"a\":1}}"), KS_OK},
    {S("{\"a\":1,\"A\":1}"), KS_OK},
    /* literals and numbers */
    {S("{\"a\":true,\"b\":false,\"c\":null}"), KS_OK},
    {S("{\"a\":True}"), KS_JSON},
    {S("{\"a\":tru}"), KS_JSON},
    {S("{\"a\":nulll}"), KS_JSON},
    {S("{\"a\":NaN}"), KS_JSON},
    {S("{\"a\":-Infinity}"), KS_JSON},
    {S("{\"a\":Inf}"), KS_JSON},
    {S("{\"a\":-0}"), KS_OK},
    {S("{\"a\":-0.0e-00}"), KS_OK},
    {S("{\"a\":1E400}"), KS_OK},
    {S("{\"a\":01}"), KS_JSON},
    {S("{\"a\":1.}"), KS_JSON},
    {S("{\"a\":.1}"), KS_JSON},
    {S("{\"a\":+1}"), KS_JSON},
    {S("{\"a\":-}"), KS_JSON},
    {S("{\"a\":1e}"), KS_JSON},
    {S("{\"a\":0x1}"), KS_JSON},
    {S("{\"a\":1-2}"), KS_JSON},
    /* strings */
    {S("{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"}"), KS_OK},
    {S("{\"a\":\"\\x\"}"), KS_JSON},
    {S("{\"a\":\"\\u12g4\"}"), KS_JSON},
    {S("{\"a\":\"\\u123\"}"), KS_JSON},
    {S("{\"a\":\"\\ud83d\\ude00\"}"), KS_OK},
    {S("{\"a\":\"\\ud83d\"}"), KS_JSON},
    {S("{\"a\":\"\\ud83dx\"}"), KS_JSON},
    {S("{\"a\":\"\\ud83d\\n\"}"), KS_JSON},
    {S("{\"a\":\"\\ud83d\\u0041\"}"), KS_JSON},
    {S("{\"a\":\"\\ud83d\\ud83d\"}"), KS_JSON},
    {S("{\"a\":\"\\ude00\"}"), KS_JSON},
    {S("{\"a\":\"\\u0000\"}"), KS_OK},
    {S("{\"a\":\"\0\"}"), KS_JSON},
    {S("{\"a\":\"\t\"}"), KS_JSON},
    {S("{\"a\":\"\x7F\"}"), KS_OK},
    {S("{\"a\":\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF\"}"), KS_OK},
    {S("{\"a\":\"\x80\"}"), KS_JSON},
    {S("{\"a\":\"\xC0\x80\"}"), KS_JSON},
    {S("{\"a\":\"\xC1\xBF\"}"), KS_JSON},
    {S("{\"a\":\"\xC3\"}"), KS_JSON},
    {S("{\"a\":\"\xE0\x9F\xBF\"}"), KS_JSON},
    {S("{\"a\":\"\xED\xA0\x80\"}"), KS_JSON},
    {S("{\"a\":\"\xED\x9F\xBF\"}"), KS_OK},
    {S("{\"a\":\"\xF0\x8F\xBF\xBF\"}"), KS_JSON},
    {S("{\"a\":\"\xF4\x90\x80\x80\"}"), KS_JSON},
    {S("{\"a\":\"\xF5\x80\x80\x80\"}"), KS_JSON},
    {S("{\"a\":\"\xFF\"}"), KS_JSON},
    {S("{\"a\":\"x"), KS_JSON},
    {S("{\"a\":\xC2\xA0"
       "1}"),
     KS_JSON},
    /* depth: 16 outside of data */
    {S("{\"a\":[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]}"), KS_OK},
    {S("{\"a\":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}"), KS_JSON_LIMIT},
    /* data */
    {D("FP32", "[2]", "[1,2]"), KS_OK},
    {D("FP32", "[2]", " [ 1 ,\n2\t] "), KS_OK},
    {D("FP32", "[2,2]", "[[1,2],[3,4]]"), KS_OK},
    {D("FP32", "[4]", "[[1,2],[3,4]]"), KS_OK},
    {D("FP32", "[2,2]", "[1,2,3,4]"), KS_OK},
    {D("FP32", "[]", "[1]"), KS_OK},
    {D("FP32", "[0]", "[]"), KS_OK},
    {D("FP32", "[0,2]", "[[],[]]"), KS_OK},
    {D("FP32", "[2]", "[NaN,-Infinity]"), KS_OK},
    {D("FP32", "[2]", "[nan,1]"), KS_JSON},
    {D("INT32", "[1]", "[NaN]"), KS_JSON},
    {D("BOOL", "[4]", "[true,false,1,0]"), KS_OK},
    {D("FP32", "[1]", "[true]"), KS_FIELD},
    {D("FP32", "[1]", "[null]"), KS_FIELD},
    {D("FP32", "[1]", "[\"1\"]"), KS_FIELD},
    {D("FP32", "[1]", "[{}]"), KS_FIELD},
    {D("FP32", "[1]", "7"), KS_FIELD},
    {D("FP32", "[1]", "null"), KS_OK},
    {D("FP32", "[2]", "[1,]"), KS_JSON},
    {D("FP32", "[2]", "[,1]"), KS_JSON},
    {D("FP32", "[2]", "[1 2]"), KS_JSON},
    {D("FP32", "[2]", "[1,,2]"), KS_JSON},
    {D("FP32", "[1]", "[1][2]"), KS_JSON},
    {D("FP32", "[2]", "[[1][2]]"), KS_JSON},
    {D("FP32", "[2]", "[[1]2]"), KS_JSON},
    {D("FP32", "[2]", "[1[2]]"), KS_JSON},
    {D("FP32", "[2]", "[1,2}"), KS_JSON},
    {D("FP32", "[2]", "[1:2]"), KS_JSON},
    {D("FP32", "[2]", "[1,\x80]"), KS_JSON},
    {D("FP32", "[2]", "[1,02]"), KS_JSON},
    {D("FP32", "[2]", "[1.5.5,2]"), KS_JSON},
    {D("FP32", "[2]", "[1,2,3]"), KS_COUNT},
    {D("FP32", "[2]", "[1]"), KS_COUNT},
    {D("FP32", "[3]", "[[1,2],[3]]"), KS_COUNT},
    {D("FP32", "[2]", "[[1],[[2]]]"), KS_COUNT},
    {D("FP32", "[2]", "[[1],2]"), KS_COUNT},
    {D("FP32", "[1]", "[[],[1]]"), KS_COUNT},
    {D("FP32", "[4]", "[[[1],[2]],[[3,4]]]"), KS_COUNT},
    {D("FP32", "[5]", "[[1,2],[3,4],[5]]"), KS_COUNT},
    {D("FP32", "[5]", "[[1],[2,3],[4,5]]"), KS_COUNT},
    {D("FP32", "[1,1,1,1,1,1,1,1]", "[1]"), KS_OK},
    {D("FP32", "[1,1,1,1,1,1,1,1,1]", "[1]"), KS_OK}, /* no shape of ours: the reader of the JSON head says so */
    {D("FP32", "[[1]]", "[1]"), KS_OK},
    {D("FP32", "[\"1\"]", "[1]"), KS_OK},
    {D("FP32", "[true]", "[1]"), KS_OK},
    {D("FP32", "[{}]", "[1]"), KS_OK},
    {D("FP32", "[1]", "[nulL]"), KS_JSON},
    {D("FP32", "[1]", "[fals]"), KS_JSON},
    {D("FP32", "[1]", "[1}"), KS_JSON},
    {D("FP32", "[1]", "[1 \"x\"]"), KS_JSON},
    {D("FP32", "[1]", "[1 {}]"), KS_JSON},
    {D("FP32", "[1]", "[1e39]"), KS_RANGE},
    {D("INT8", "[1]", "[128]"), KS_RANGE},
    {D("FP16", "[1]", "[1]"), KS_DATATYPE},
    {D("BF16", "[1]", "[1]"), KS_DATATYPE},
    {D("BYTES", "[1]", "[\"x\"]"), KS_DATATYPE},
    {D("FP32", "[4294967296,4294967296]", "[1]"), KS_SHAPE},
    {D("FP32", "[100000000]", "[1]"), KS_BUDGET},
    /* shape or datatype behind the data, or none that can be read: the reader of the JSON head says so */
    {S("{\"inputs\":[{\"data\":[[1,2],[3,4]],\"shape\":[2,2],\"datatype\":\"INT8\"}]}"), KS_OK},
    {S("{\"inputs\":[{\"data\":[1.5],\"shape\":[1],\"datatype\":\"INT8\"}]}"), KS_RANGE},
    {S("{\"inputs\":[{\"data\":[true],\"shape\":[1],\"datatype\":\"FP32\"}]}"), KS_FIELD},
    {S("{\"inputs\":[{\"data\":[true],\"shape\":[1],\"datatype\":\"BOOL\"}]}"), KS_OK},
    {S("{\"inputs\":[{\"data\":[NaN],\"shape\":[1],\"datatype\":\"INT8\"}]}"), KS_JSON},
    {S("{\"inputs\":[{\"data\":[nul],\"shape\":[1],\"datatype\":\"INT8\"}]}"), KS_JSON},
    {S("{\"inputs\":[{\"data\":[1],\"shape\":[2],\"datatype\":\"FP32\"}]}"), KS_COUNT},
    {S("{\"inputs\":[{\"data\":[1,2],\"shape\":[1],\"datatype\":\"FP32\"}]}"), KS_COUNT},
    {S("{\"inputs\":[{\"data\":[],\"shape\":[1],\"datatype\":\"FP32\"}]}"), KS_COUNT},
    {S("{\"inputs\":[{\"data\":[],\"shape\":[0],\"datatype\":\"FP32\"}]}"), KS_OK},
    {S("{\"inputs\":[{\"data\":[true,false],\"shape\":[2],\"datatype\":\"BOOL\"}]}"), KS_OK},
    {S("{\"inputs\":[{\"data\":[null],\"shape\":[1],\"datatype\":\"FP32\"}]}"), KS_FIELD},
    {S("{\"inputs\":[{\"data\":[1e999],\"shape\":[1],\"datatype\":\"FP64\"}]}"), KS_RANGE},
    {S("{\"inputs\":[{\"data\":[1],\"shape\":[1],\"datatype\":\"FP16\"}]}"), KS_DATATYPE},
    {S("{\"inputs\":[{\"data\":[\"x\"],\"shape\":[1],\"datatype\":\"BYTES\"}]}"), KS_DATATYPE},
    {S("{\"inputs\":[{\"data\":[1],\"shape\":[-1],\"datatype\":\"FP32\"}]}"), KS_OK},
    {S("{\"inputs\":[{\"data\":[1],\"shape\":[-0],\"datatype\":\"FP32\"}]}"), KS_OK}, /* no 0: judged as -1 is */
    {S("{\"inputs\":[{\"data\":[1],\"shape\":[1.0],\"datatype\":\"fp32\"}]}"), KS_OK},
    {S("{\"inputs\":[{\"data\":[1]}]}"), KS_OK},
    /* data elsewhere is like any other member */
    {S("{\"data\":[01]}"), KS_JSON},
    {S("{\"data\":[{}],\"inputs\":[{\"x\":{\"data\":[\"y\",{}]}}]}"), KS_OK},
    {S("{\"outputs\":[{\"data\":[[1],2]}]}"), KS_OK},
    {S("{\"inputs\":[[{\"data\":[[1],2]}]]}"), KS_OK},
};

static void cases_end_alike_cut_at_every_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char first[KS_ERROR_TEXT] = "";
        for (size_t at = 0; at <= cases[i].length + 1; at++) {
            placed p = {0};
            ks_error error = {0};
            ks_scan *scan = NULL;
            const size_t cut = at <= cases[i].length ? at : SIZE_MAX;
            const ks_status status = scan_cut(cases[i].text, cases[i].length, cut, &scan, &p, &error);
            if (status != cases[i].status)
                fail_msg("%s cut at %zu: %s (%s)", cases[i].text, at, ks_status_name(status), error.text);
            if (at == 0) memcpy(first, error.text, sizeof first);
            assert_string_equal(error.text, first); /* offsets included */
            ks_scan_fini(&scan);
            assert_null(scan);
            placed_free(&p);
        }
    }
}

static void the_json_head_keeps_all_but_data(void **state)
{
    (void)state;
    static const char text[] =
        "{ \"id\" : \"a\\u0000\\\"\\n\\u20ac\" , \"n\":[1,-2.50,9007199254740993,true,null],"
        "\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[2],\"data\":[[1],[2]]}]}";
    static const char expected[] =
        "{\"id\":\"a\xC0\x80\\\"\\u000a\xE2\x82\xAC\",\"n\":[\"\xFF"
        "1\",\"\xFF-2.50\",\"\xFF"
        "9007199254740993\",true,null],\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\","
        "\"shape\":[\"\xFF"
        "2\"],\"data\":[]}]}";
    placed p = {0};
    ks_error error = {0};
    ks_scan *scan = NULL;
    assert_int_equal(scan_cut(S(text), SIZE_MAX, &scan, &p, &error), KS_OK);
    size_t length;
    const char *const json_head = ks_scan_json_head(scan, &length);
    assert_int_equal(length, sizeof expected - 1);
    assert_memory_equal(json_head, expected, length);
    const ks_scan_input *input = ks_scan_input_at(scan, 0);
    assert_int_equal(ks_scan_inputs(scan), 1);
    assert_string_equal(input->name, "INPUT0");
    assert_true(input->has_dtype && input->has_shape && input->has_data && !input->null_data);
    assert_int_equal(input->elements, 2);
    assert_memory_equal(p.memory[0], "\0\0\x80\x3f\0\0\0\x40", 8);
    ks_scan_fini(&scan);
    placed_free(&p);
}

/* Without a place: elements stay where they were, and words are numbers there and nowhere else. */
static void elements_that_nobody_places_stay(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected; /* NULL: KS_JSON */
    } rows[] = {
        {"{\"inputs\":[{\"data\":[[1.50, NaN],[-Infinity,\"\\u0000\"],true]}]}",
         "{\"inputs\":[{\"data\":[[\"\xFF"
         "1.50\",\"\xFF"
         "NaN\"],[\"\xFF-Infinity\",\"\xC0\x80\"],true]}]}"},
        {"{\"inputs\":[{\"data\":[]}]}", "{\"inputs\":[{\"data\":[]}]}"},
        {"{\"inputs\":[{\"data\":[{\"a\":NaN}]}]}", NULL},
        {"{\"inputs\":[{\"data\":[1],\"x\":[NaN]}]}", NULL},
        {"{\"inputs\":[{\"data\":[NaNs]}]}", NULL},
        {"{\"data\":[NaN]}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ks_error error = {0};
        ks_scan *scan = NULL;
        size_t length;
        assert_int_equal(ks_scan_begin(&usual, NULL, NULL, &scan, &error), KS_OK);
        ks_status status = feed(scan, rows[i].text, strlen(rows[i].text), &error);
        if (status == KS_OK) status = ks_scan_end(scan, &error);
        assert_int_equal(status, rows[i].expected ? KS_OK : KS_JSON);
        const char *const json_head = ks_scan_json_head(scan, &length);
        if (rows[i].expected) {
            assert_int_equal(length, strlen(rows[i].expected));
            assert_memory_equal(json_head, rows[i].expected, length);
        }
        ks_scan_fini(&scan);
    }
}

/* A large list in random nesting, chunks and white space, datatype before or behind it. */
static char *random_list(size_t rows, size_t cols, const float *values, size_t *length)
{
    const size_t cap = rows * cols * 32 + rows * 4 + 16;
    char *text = malloc(cap);
    size_t n = 0;
    const bool nested = words_below(2), spaced = words_below(2);
    text[n++] = '[';
    for (size_t r = 0; r < rows; r++) {
        if (nested) text[n++] = '[';
        for (size_t c = 0; c < cols; c++) {
            n += (size_t)snprintf(text + n, cap - n, words_below(2) ? "%.9g" : "%.17g", (double)values[r * cols + c]);
            if (c + 1 < cols) text[n++] = ',';
            if (spaced && c + 1 < cols) text[n++] = ' ';
        }
        if (nested) text[n++] = ']';
        if (r + 1 < rows) text[n++] = ',';
    }
    text[n++] = ']';
    *length = n;
    return text;
}

static void large_lists_arrive_whatever_the_chunks(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        const size_t rows = 1 + words_below(50), cols = 1 + words_below(200), count = rows * cols;
        float *values = malloc(count * sizeof *values);
        for (size_t i = 0; i < count; i++) {
            do {
                const uint32_t bits = (uint32_t)words_random();
                memcpy(&values[i], &bits, sizeof bits);
            } while (!isfinite(values[i]));
        }
        size_t length;
        char *const list = random_list(rows, cols, values, &length), *const text = malloc(length + 256);
        const bool late = words_below(2);
        size_t n = (size_t)sprintf(text, "{\"inputs\":[{%s%zu,%zu],\"data\":",
                                   late ? "\"shape\":[" : "\"datatype\":\"FP32\",\"shape\":[", rows, cols);
        memcpy(text + n, list, length);
        n += length;
        n += (size_t)sprintf(text + n, "%s}]}", late ? ",\"datatype\":\"FP32\"" : "");
        placed p = {.size_max = 1 << 26};
        ks_error error = {0};
        ks_scan *scan = NULL;
        assert_int_equal(ks_scan_begin(&usual, place, &p, &scan, &error), KS_OK);
        const size_t most = 1 + words_below(2000);
        for (size_t at = 0, taken; at < n; at += taken) {
            taken = 1 + words_below(most);
            if (taken > n - at) taken = n - at;
            if (feed(scan, text + at, taken, &error) != KS_OK) fail_msg("%s", error.text);
        }
        assert_int_equal(ks_scan_end(scan, &error), KS_OK);
        assert_int_equal(p.size[0], count * sizeof *values);
        assert_memory_equal(p.memory[0], values, p.size[0]);
        ks_scan_fini(&scan);
        placed_free(&p);
        free(values);
        free(list);
        free(text);
    }
}

static void depth_inside_data_is_100(void **state)
{
    (void)state;
    for (int depth = 100; depth <= 101; depth++) {
        char text[512];
        size_t n = (size_t)sprintf(text, "{\"inputs\":[{\"datatype\":\"FP32\",\"shape\":[1],\"data\":");
        memset(text + n, '[', (size_t)depth);
        n += (size_t)depth;
        text[n++] = '1';
        memset(text + n, ']', (size_t)depth);
        n += (size_t)depth;
        n += (size_t)sprintf(text + n, "}]}");
        placed p = {0};
        ks_error error = {0};
        ks_scan *scan = NULL;
        assert_int_equal(scan_cut(text, n, SIZE_MAX, &scan, &p, &error), depth == 100 ? KS_OK : KS_JSON_LIMIT);
        ks_scan_fini(&scan);
        placed_free(&p);
    }
}

/* Each end of a UTF-8 length, written as an escape in either case of its digits: the JSON head has the bytes. */
static void code_points_become_utf8(void **state)
{
    static const struct {
        const char *escape, *utf8;
    } rows[] = {{"\\u0001", "\\u0001"},
                {"\\u0020", " "},
                {"\\u007f", "\x7F"},
                {"\\u007F", "\x7F"},
                {"\\u0080", "\xC2\x80"},
                {"\\u07FF", "\xDF\xBF"},
                {"\\u0800", "\xE0\xA0\x80"},
                {"\\uabcd", "\xEA\xAF\x8D"},
                {"\\uABCD", "\xEA\xAF\x8D"},
                {"\\ud7ff", "\xED\x9F\xBF"},
                {"\\uE000", "\xEE\x80\x80"},
                {"\\uFFFF", "\xEF\xBF\xBF"},
                {"\\uD800\\uDC00", "\xF0\x90\x80\x80"},
                {"\\udbff\\udfff", "\xF4\x8F\xBF\xBF"},
                {"\\ud83d\\ude00", "\xF0\x9F\x98\x80"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[64], expected[64];
        const size_t n = (size_t)snprintf(text, sizeof text, "{\"a\":\"%s\"}", rows[i].escape);
        snprintf(expected, sizeof expected, "{\"a\":\"%s\"}", rows[i].utf8);
        placed p = {0};
        ks_error error = {0};
        ks_scan *scan = NULL;
        size_t length;
        assert_int_equal(scan_cut(text, n, SIZE_MAX, &scan, &p, &error), KS_OK);
        const char *const json_head = ks_scan_json_head(scan, &length);
        assert_int_equal(length, strlen(expected));
        assert_memory_equal(json_head, expected, length);
        ks_scan_fini(&scan);
    }
    for (int lead = 0x80; lead <= 0xFF; lead++) { /* and no other byte begins a sequence */
        char text[16];
        const size_t n = (size_t)snprintf(text, sizeof text, "{\"a\":\"%c\x90\x80\x80\x80", lead);
        placed p = {0};
        ks_error error = {0};
        ks_scan *scan = NULL;
        const bool begins =
            (lead >= 0xC2 && lead <= 0xDF) || (lead >= 0xE1 && lead <= 0xEF) || (lead >= 0xF0 && lead <= 0xF3);
        const size_t whole = n - 4 + (lead >= 0xF0 ? 3u : lead >= 0xE0 ? 2u : 1u);
        assert_int_equal(ks_scan_begin(&usual, place, &p, &scan, &error), KS_OK);
        assert_int_equal(feed(scan, text, whole, &error), begins ? KS_OK : KS_JSON);
        ks_scan_fini(&scan);
    }
}

/* Each limit to its last byte, and one beyond. */
static ks_status scan_within(ks_scan_limits limits, const char *text, size_t n)
{
    placed p = {.size_max = 1 << 26};
    ks_error error = {0};
    ks_scan *scan = NULL;
    assert_int_equal(ks_scan_begin(&limits, place, &p, &scan, &error), KS_OK);
    ks_status status = KS_OK;
    const size_t cut = words_below(n);
    status = feed(scan, text, cut, &error);
    if (status == KS_OK) status = feed(scan, text + cut, n - cut, &error);
    if (status == KS_OK) status = ks_scan_end(scan, &error);
    ks_scan_fini(&scan);
    placed_free(&p);
    return status;
}

static void limits_hold_to_the_last_byte(void **state)
{
    static const char text[] = "{\"abc\":[1,\"xyz\"]}", json_head[] = "{\"abc\":[\"\xFF"
                                                                      "1\",\"xyz\"]}";
    static const char list[] = "{\"inputs\":[{\"datatype\":\"FP32\",\"shape\":[3],\"data\":[1,2,3]}]}";
    (void)state;
    ks_scan_limits limits = usual;
    for (size_t less = 0; less < 2; less++) {
        limits = usual;
        limits.json_max = sizeof text - 1 - less;
        assert_int_equal(scan_within(limits, S(text)), less ? KS_BODY_SIZE : KS_OK);
        limits.json_max = sizeof list - 1 - less;
        assert_int_equal(scan_within(limits, S(list)), less ? KS_BODY_SIZE : KS_OK);
        limits = usual;
        limits.json_head_max = sizeof json_head - 1 - less;
        assert_int_equal(scan_within(limits, S(text)), less ? KS_BODY_SIZE : KS_OK);
    }
    for (int more = 0; more < 2; more++) {
        char members[4096] = "{\"b\":{", inputs[4096] = "{\"inputs\":[", name[256];
        size_t n = strlen(members);
        for (int i = 0; i < usual.members_max + more; i++)
            n += (size_t)sprintf(members + n, "%s\"%d\":1", i ? "," : "", i);
        n += (size_t)sprintf(members + n, "}}");
        assert_int_equal(scan_within(usual, members, n), more ? KS_JSON_LIMIT : KS_OK);
        n = strlen(inputs);
        for (int i = 0; i < KS_SCAN_INPUTS_MAX + more; i++)
            n += (size_t)sprintf(inputs + n, "%s{\"name\":\"I%d\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[7]}",
                                 i ? "," : "", i);
        n += (size_t)sprintf(inputs + n, "]}");
        assert_int_equal(scan_within(usual, inputs, n), more ? KS_JSON_LIMIT : KS_OK);
        /* A name that is no name of ours is no reason to refuse, here. */
        memset(name, 'n', sizeof name);
        n = (size_t)sprintf(inputs,
                            "{\"inputs\":[{\"name\":\"%.*s\"},{\"name\":\"a\\u0001\"},{\"name\":\"\xC3\xA4\"}]}",
                            KS_SCAN_NAME_MAX + more, name);
        assert_int_equal(scan_within(usual, inputs, n), KS_OK);
    }
}

/* The sentence names the input: by its name, or by its place. */
static void sentences_name_the_input(void **state)
{
    (void)state;
    for (int at = 0; at < KS_SCAN_INPUTS_MAX; at++) {
        char text[1024] = "{\"inputs\":[", expected[32];
        size_t n = strlen(text);
        for (int i = 0; i < at; i++) n += (size_t)sprintf(text + n, "{},");
        n += (size_t)sprintf(text + n, "{\"datatype\":\"FP16\",\"shape\":[1],\"data\":[1]}]}");
        placed p = {0};
        ks_error error = {0};
        ks_scan *scan = NULL;
        assert_int_equal(scan_cut(text, n, 0, &scan, &p, &error), KS_DATATYPE);
        snprintf(expected, sizeof expected, "inputs[%d]", at);
        assert_non_null(strstr(error.text, expected));
        ks_scan_fini(&scan);
    }
}

/* 250,000 brackets: refused at the 17th, without touching the rest. */
static void deep_nesting_is_refused_early(void **state)
{
    (void)state;
    static char text[250000];
    memset(text, '[', sizeof text);
    memcpy(text, "{\"a\":", 5);
    placed p = {0};
    ks_error error = {0};
    ks_scan *scan = NULL;
    assert_int_equal(scan_cut(text, sizeof text, 0, &scan, &p, &error), KS_JSON_LIMIT);
    ks_scan_fini(&scan);
}

static void long_numbers_and_strings_are_refused(void **state)
{
    (void)state;
    static const char *const heads[] = {"{\"a\":", "{\"a\":\"",
                                        "{\"inputs\":[{\"datatype\":\"FP32\",\"shape\":[1],\"data\":["};
    for (size_t h = 0; h < COUNT_OF(heads); h++) {
        for (size_t more = 0; more < 2; more++) {
            char text[2048];
            size_t n = (size_t)sprintf(text, "%s", heads[h]);
            memset(text + n, '1', 1024 + more);
            n += 1024 + more;
            n += (size_t)sprintf(text + n, "%s", h == 0 ? "}" : h == 1 ? "\"}" : "]}]}");
            for (int whole = 0; whole < 2; whole++) {
                placed p = {0};
                ks_error error = {0};
                ks_scan *scan = NULL;
                const ks_status status = scan_cut(text, n, whole ? 0 : SIZE_MAX, &scan, &p, &error);
                /* 1024 ones are a number, though none that FP32 holds. */
                assert_int_equal(status, more ? KS_JSON_LIMIT : h == 2 ? KS_RANGE : KS_OK);
                ks_scan_fini(&scan);
                placed_free(&p);
            }
        }
    }
}

int main(void)
{
    words_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_end_alike_cut_at_every_byte),
        cmocka_unit_test(the_json_head_keeps_all_but_data),
        cmocka_unit_test(elements_that_nobody_places_stay),
        cmocka_unit_test(large_lists_arrive_whatever_the_chunks),
        cmocka_unit_test(depth_inside_data_is_100),
        cmocka_unit_test(deep_nesting_is_refused_early),
        cmocka_unit_test(long_numbers_and_strings_are_refused),
        cmocka_unit_test(code_points_become_utf8),
        cmocka_unit_test(limits_hold_to_the_last_byte),
        cmocka_unit_test(sentences_name_the_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
