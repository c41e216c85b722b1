/* Forms of a body at their edges: the heads of npy and safetensors files, queries, what outputs may be asked for, windows of
 * shared memory, and bodies that pass a limit without an end. Each row is fed whole and in single bytes, with its length
 * told and not; memory is as large as what was asked for, so that a sanitizer sees one byte too many. */
#include "unit/codec/words_test.h"

#include <float.h>
#include <math.h>

#include "codec/deflate.h"
#include "kernserve/backend.h"
#include "observe/metrics.h"
#include "codec/decode.h"
#include "codec/format.h"
#include "api/control_body.h"
#include "base/text.h"

enum { MAX_BODY = 4096, CLASSED_MAX = 1000000 };

typedef struct memory {
    unsigned char *in, *room;
    size_t in_cap;
    bool may_stream, streams; /* what the words said of it; whether it is to be done */
    size_t streamed;
    int windows; /* that were asked for */
    char region[64];
    uint64_t offset, bytes;
} memory;

static ks_codec *codec;

/* ks_codec_write_fn: three bytes at a time, and at the end of what there is a fault. */
static ks_status write_some(void *context, size_t offset, const char *bytes, size_t n, size_t *taken, ks_error *error)
{
    memory *m = context;
    if (offset + n > m->in_cap) return ks_fail(error, KS_BUDGET, "no room");
    *taken = n < 3 ? n : 3;
    memcpy(m->in + offset, bytes, *taken);
    m->streamed += *taken;
    return KS_OK;
}

/* ks_codec_place_fn */
static ks_status place(void *context, size_t in_bytes, size_t out_bytes, size_t keep, ks_sides *sides, ks_error *error)
{
    memory *m = context;
    (void)error;
    assert_true(keep <= m->in_cap && keep <= in_bytes);
    m->may_stream = ks_codec_may_write_through(codec);
    if (m->streams) ks_codec_write_through(codec, write_some);
    unsigned char *const moved = malloc(in_bytes + (in_bytes == 0));
    if (keep > 0) memcpy(moved, m->in, keep);
    free(m->in);
    free(m->room);
    m->in = moved;
    m->in_cap = in_bytes;
    m->room = malloc(KS_HEAD_ROOM + out_bytes);
    *sides = (ks_sides){moved, m->room + KS_HEAD_ROOM};
    return KS_OK;
}

/* ks_codec_window_fn: a region whose name begins with 'd' is the device's to move, one with 'x' is not there. */
static ks_status window(void *context, int which, const ks_window_name *name, bool *device_copies, ks_error *error)
{
    memory *m = context;
    assert_in_range(which, 0, KS_WINDOW_OUT);
    m->windows++;
    snprintf(m->region, sizeof m->region, "%s", name->region);
    m->offset = name->offset;
    m->bytes = name->bytes;
    *device_copies = name->region[0] == 'd';
    return name->region[0] == 'x' ? ks_fail(error, KS_REGION, "no such region") : KS_OK;
}

static void memory_free(memory *m)
{
    free(m->in);
    free(m->room);
    *m = (memory){.in = NULL};
}

static ks_codec_limits limits = {
    .max_body = MAX_BODY, .max_json = MAX_BODY, .max_output = 1 << 16, .max_work = 1e9, .max_skeleton = 2048};

typedef struct talk {
    const char *model, *query, *header_length;
    const ks_format *file, *response;
    bool known, whole, windows, accept_json;
    const char *body;
    size_t length;
} talk;

/* *fed: how many bytes it took until a fault was found. */
static ks_status hold(const talk *t, memory *m, size_t *fed, ks_error *error)
{
    const ks_codec_head head = {.model = ks_model_find(t->model, strlen(t->model)),
                                .query = t->query ? t->query : "",
                                .header_length = t->header_length,
                                .content_length = t->known ? (int64_t)t->length : -1,
                                .body = t->file,
                                .response = t->response,
                                .accept_json = t->accept_json,
                                .window = t->windows ? window : NULL};
    *fed = 0;
    ks_status status = ks_codec_begin(codec, &head, &limits, place, m, error);
    while (status == KS_OK && *fed < t->length) {
        const size_t n = t->whole ? t->length : 1;
        char *const chunk = malloc(n);
        memcpy(chunk, t->body + *fed, n);
        size_t taken = n;
        status = ks_codec_feed(codec, chunk, &taken, error);
        assert_true(taken == n || (m->streams && taken < n));
        free(chunk);
        *fed += status == KS_OK ? taken : n;
        if (status == KS_OK) assert_int_equal(ks_codec_complete(codec), t->known && *fed == t->length);
    }
    return status == KS_OK ? ks_codec_end(codec, error) : status;
}

/* Told or not, whole or in bytes: all four end alike. part: of the sentence where the length is told; NULL: any. */
static void check_talk(talk t, ks_status expected, const char *part)
{
    for (int algorithm = 0; algorithm < 4; algorithm++) {
        memory m = {.in = NULL};
        ks_error error = {0};
        size_t fed;
        t.known = algorithm & 1;
        t.whole = algorithm & 2;
        const ks_status status = hold(&t, &m, &fed, &error);
        if (status != expected)
            fail_msg("%s?%s %s, way %d: %s (%s)", t.model, t.query ? t.query : "", t.body, algorithm,
                     ks_status_name(status), error.text);
        if (part && t.known && !strstr(error.text, part)) fail_msg("'%s' lacks '%s'", error.text, part);
        ks_codec_fini(codec);
        memory_free(&m);
    }
}

/* --- npy ------------------------------------------------------------------------------------------------------------- */

static size_t npy_body(char *out, const char *text, int version, size_t data)
{
    const size_t first = version == 1 ? 10 : 12, length = strlen(text);
    memcpy(out, "\x93NUMPY", 6);
    memset(out + 6, 0, 6);
    out[6] = (char)version;
    out[8] = (char)(length & 255);
    out[9] = (char)(length >> 8);
    memcpy(out + first, text, length);
    memset(out + first + length, 0, data);
    return first + length + data;
}

#define NPY(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"

static const struct {
    const char *text;
    size_t data;
    ks_status status;
} npy_rows[] = {
    {NPY("'<f4'", "False", "(1, 4)"), 16, KS_OK},
    {NPY("\"<f4\"", "True", "(1, 4)"), 16, KS_OK},
    {NPY("'<f4'", "False", "(4,)"), 16, KS_OK},
    {NPY("'<f4'", "False", "(4, 1,)"), 16, KS_OK},
    {NPY("'<f4'", "False", "()"), 4, KS_SHAPE}, /* a scalar has no axis */
    {NPY("'=f4'", "False", "(4,)"), 16, KS_OK},
    {NPY("'|i1'", "False", "(4,)"), 4, KS_OK},
    {NPY("'>i1'", "False", "(4,)"), 4, KS_OK}, /* one byte has no order */
    {NPY("'<f8'", "False", "(1,1,1,1,1,1,1,1)"), 8, KS_OK},
    {"{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}", 8, KS_OK},
    {"  {\t'shape':(2,),'fortran_order':False,'descr':'<f4',}\n", 8, KS_OK},
    {NPY("'<f4'", "False", "(0, 4)"), 0, KS_OK},
    {NPY("'>f4'", "False", "(4,)"), 16, KS_DATATYPE},
    {NPY("'>f2'", "False", "(4,)"), 8, KS_DATATYPE},
    {NPY("'>i8'", "False", "(4,)"), 32, KS_DATATYPE},
    {NPY("'f4'", "False", "(4,)"), 16, KS_DATATYPE},
    {NPY("''", "False", "(4,)"), 16, KS_DATATYPE},
    {NPY("'<'", "False", "(4,)"), 16, KS_DATATYPE},
    {NPY("'O'", "False", "(4,)"), 16, KS_DATATYPE},
    {NPY("'|O8'", "False", "(4,)"), 32, KS_DATATYPE},
    {NPY("'xO'", "False", "(4,)"), 32, KS_DATATYPE},
    {NPY("'<f16'", "False", "(4,)"), 64, KS_DATATYPE},
    {NPY("'<f3'", "False", "(4,)"), 12, KS_DATATYPE},
    {NPY("'!f4'", "False", "(4,)"), 16, KS_DATATYPE},
    {NPY("'<b2'", "False", "(4,)"), 8, KS_DATATYPE},
    {NPY("4", "False", "(4,)"), 16, KS_DATATYPE},
    {NPY("'<f4", "False", "(4,)"), 16, KS_DATATYPE},
    {NPY("'<f\\x34'", "False", "(4,)"), 16, KS_DATATYPE},
    {NPY("'<f4'", "false", "(4,)"), 16, KS_FIELD},
    {NPY("'<f4'", "'False'", "(4,)"), 16, KS_FIELD},
    {NPY("'<f4'", "0", "(4,)"), 16, KS_FIELD},
    {NPY("'<f4'", "False", "(4)"), 16, KS_FIELD},
    {NPY("'<f4'", "False", "(4 4)"), 64, KS_FIELD},
    {NPY("'<f4'", "False", "(4, 4"), 64, KS_SHAPE},
    {NPY("'<f4'", "False", "[4]"), 16, KS_FIELD},
    {NPY("'<f4'", "False", "4"), 16, KS_FIELD},
    {NPY("'<f4'", "False", "(,)"), 4, KS_SHAPE},
    {NPY("'<f4'", "False", "(-4,)"), 16, KS_SHAPE},
    {NPY("'<f4'", "False", "(4.0,)"), 16, KS_FIELD},
    {NPY("'<f4'", "False", "(x,)"), 16, KS_SHAPE},
    {NPY("'<f4'", "False", "(04,)"), 16, KS_SHAPE},
    {NPY("'<f4'", "False", "(99999999999999999999,)"), 16, KS_SHAPE},
    {NPY("'<f4'", "False", "(9223372036854775807,)"), 16, KS_SHAPE},
    {NPY("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), 4, KS_SHAPE},
    {NPY("'<f4'", "False", "(4,)") "x", 16, KS_FIELD},
    {NPY("'<f4'", "False", "(4,)") "}", 16, KS_FIELD},
    {"", 16, KS_FIELD},
    {" ", 16, KS_FIELD},
    {"{", 16, KS_FIELD},
    {"{}", 16, KS_FIELD},
    {"{'descr'", 16, KS_FIELD},
    {"{'descr' '<f4'}", 16, KS_FIELD},
    {"{descr: '<f4'}", 16, KS_FIELD},
    {"{'descr': '<f4' 'shape': (4,)}", 16, KS_FIELD},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,)", 16, KS_FIELD},
    {"{'descr': '<f4', 'fortran_order': False}", 16, KS_FIELD},
    {"{'fortran_order': False, 'shape': (4,)}", 16, KS_FIELD},
    {"{'descr': '<f4', 'shape': (4,)}", 16, KS_FIELD},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", 16, KS_FIELD},
    {"{'shape': (4,), 'fortran_order': False, 'descr': '<f4', 'shape': (4,)}", 16, KS_FIELD},
    {"{'other': 1, 'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", 16, KS_FIELD},
    {"{'fortran_ordex': False, 'descr': '<f4', 'shape': (4,)}", 16, KS_FIELD},
    {"{'shapE': (4,), 'descr': '<f4', 'fortran_order': False}", 16, KS_FIELD},
    {NPY("'<f4'", "False", "(4,)"), 15, KS_BINARY_SIZE},
    {NPY("'<f4'", "False", "(4,)"), 17, KS_BINARY_SIZE},
    {NPY("'<f4'", "False", "(0,)"), 1, KS_BINARY_SIZE},
};

static void npy_heads(void **state)
{
    char body[2048];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(npy_rows); i++)
        for (int version = 1; version <= 3; version++) {
            const size_t length = npy_body(body, npy_rows[i].text, version, npy_rows[i].data);
            check_talk((talk){.model = "reduce", .file = &ks_format_npy, .body = body, .length = length},
                       npy_rows[i].status, NULL);
        }
    static const int versions[] = {0, 4, 255};
    for (size_t i = 0; i < COUNT_OF(versions); i++) {
        const size_t length = npy_body(body, npy_rows[0].text, versions[i], 16);
        check_talk((talk){.model = "reduce", .file = &ks_format_npy, .body = body, .length = length}, KS_FIELD,
                   "version");
    }
    const size_t length = npy_body(body, npy_rows[0].text, 1, 16);
    for (size_t cut = 0; cut < length; cut++)
        check_talk((talk){.model = "reduce", .file = &ks_format_npy, .body = body, .length = cut}, KS_BINARY_SIZE,
                   NULL);
    body[3] ^= 1;
    check_talk((talk){.model = "reduce", .file = &ks_format_npy, .body = body, .length = length}, KS_FIELD, "NUMPY");
    check_talk((talk){.model = "matmul", .file = &ks_format_npy, .body = body, .length = length}, KS_NAME, "1 input");
    check_talk((talk){.model = "reduce", .query = "shape=4", .file = &ks_format_npy, .body = body, .length = length},
               KS_PARAMETER, NULL);
    check_talk(
        (talk){.model = "reduce", .query = "datatype=FP32", .file = &ks_format_npy, .body = body, .length = length},
        KS_PARAMETER, NULL);
}

/* Heads of any length that their first bytes can say, and sums that do not fit. */
static void heads_beyond_their_limit(void **state)
{
    char body[64];
    (void)state;
    memcpy(body, "\x93NUMPY\x02\0\xff\xff\xff\xff", 12);
    check_talk((talk){.model = "reduce", .file = &ks_format_npy, .body = body, .length = 12}, KS_BODY_SIZE, "header");
    memcpy(body, "\x93NUMPY\x01\0\x01\0 ", 11);
    check_talk((talk){.model = "reduce", .file = &ks_format_npy, .body = body, .length = 11}, KS_BINARY_SIZE, NULL);
    body[11] = ' ';
    check_talk((talk){.model = "reduce", .file = &ks_format_npy, .body = body, .length = 12}, KS_FIELD, "too short");
    for (int top = 0; top < 2; top++) { /* 2^64 - 1 and 2^56 - 1: with its eight bytes the first one wraps */
        memset(body, 0xff, 8);
        if (top) body[7] = 0;
        check_talk((talk){.model = "reduce", .file = &ks_format_safetensors, .body = body, .length = 8}, KS_BODY_SIZE,
                   "header");
    }
    char npy[2048];
    const size_t length = npy_body(npy, NPY("'|i1'", "False", "(4000,)"), 1, 0); /* the sum is what counts */
    limits.max_body = 4000 + length - 1;
    for (int whole = 0; whole < 2; whole++) {
        memory m = {.in = NULL};
        ks_error error = {0};
        size_t fed;
        const talk t = {.model = "reduce", .file = &ks_format_npy, .whole = whole, .body = npy, .length = length};
        assert_int_equal(hold(&t, &m, &fed, &error), KS_BODY_SIZE);
        assert_non_null(strstr(error.text, "--max-body"));
        ks_codec_fini(codec);
        memory_free(&m);
    }
    limits.max_body = MAX_BODY;
}

/* A matrix by columns becomes one by rows, however it is cut. */
static void fortran_order_is_turned(void **state)
{
    (void)state;
    for (int cut = 0; cut < 60; cut++) {
        char body[2048];
        const double columns[6] = {1, 4, 2, 5, 3, 6};
        const size_t head = npy_body(body, NPY("'<f8'", "True", "(2, 3)"), 1, 0), length = head + sizeof columns;
        memcpy(body + head, columns, sizeof columns);
        memory m = {.in = NULL};
        ks_error error = {0};
        const ks_codec_head what = {.model = ks_model_find("softmax", 7),
                                    .query = "",
                                    .content_length = (int64_t)length,
                                    .body = &ks_format_npy};
        assert_int_equal(ks_codec_begin(codec, &what, &limits, place, &m, &error), KS_OK);
        size_t first = (size_t)cut < sizeof columns ? head + (size_t)cut : length / 2, rest = length - first;
        const size_t some = rest < 3 ? rest : 3;
        size_t last = rest - some, n = some;
        assert_int_equal(ks_codec_feed(codec, body, &first, &error), KS_OK);
        assert_int_equal(ks_codec_feed(codec, body + first, &n, &error), KS_OK);
        assert_int_equal(ks_codec_feed(codec, body + first + some, &last, &error), KS_OK);
        assert_int_equal(ks_codec_end(codec, &error), KS_OK);
        for (int i = 0; i < 6; i++) {
            double value;
            memcpy(&value, m.in + ks_codec_request(codec)->spec.in[0].offset + 8 * (size_t)i, sizeof value);
            assert_true(value == i + 1);
        }
        ks_codec_fini(codec);
        memory_free(&m);
    }
}

/* --- safetensors ----------------------------------------------------------------------------------------------------- */

static size_t safetensors_body(char *out, const char *text, size_t data)
{
    const size_t length = strlen(text);
    for (int i = 0; i < 8; i++) out[i] = (char)(length >> 8 * i & 255);
    memcpy(out + 8, text, length);
    memset(out + 8 + length, 0, data);
    return 8 + length + data;
}

#define T(name, dtype, shape, from, to)                                                                                \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static const struct {
    const char *model, *text;
    size_t data;
    ks_status status;
} safetensors_rows[] = {
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "0", "16") "}", 16, KS_OK},
    {"reduce", "{" T("any name", "F32", "[1,4]", "0", "16") "}", 16, KS_OK},
    {"reduce", "{\"__metadata__\":{\"a\":\"b\"}," T("INPUT0", "BF16", "[2]", "0", "4") "}", 4, KS_OK},
    {"reduce", "{" T("INPUT0", "I8", "[0]", "0", "0") "}", 0, KS_OK},
    {"reduce", "{" T("INPUT0", "F32", "[1,1,1,1,1,1,1,4]", "0", "16") "}  ", 16, KS_OK},
    {"matmul", "{" T("INPUT0", "F32", "[2,2]", "0", "16") "," T("INPUT1", "F32", "[2,2]", "16", "32") "}", 32, KS_OK},
    {"matmul", "{" T("INPUT0", "F32", "[2,2]", "16", "32") "," T("INPUT1", "F32", "[2,2]", "0", "16") "}", 32, KS_OK},
    {"matmul", "{" T("INPUT1", "F32", "[0,2]", "0", "0") "," T("INPUT0", "F32", "[2,0]", "0", "0") "}", 0, KS_OK},
    {"matmul", "{" T("INPUT1", "F32", "[2,0]", "0", "0") "," T("INPUT0", "F32", "[2,2]", "0", "16") "}", 16, KS_OK},
    {"matmul", "{" T("INPUT1", "F32", "[2,2]", "0", "16") "," T("INPUT0", "F32", "[0,2]", "16", "16") "}", 16, KS_OK},
    /* the same bytes twice, with as many behind them as two tensors have */
    {"matmul", "{" T("INPUT0", "F32", "[2,2]", "0", "16") "," T("INPUT1", "F32", "[2,2]", "0", "16") "}", 32,
     KS_BINARY_SIZE},
    {"matmul", "{" T("INPUT0", "F32", "[2,2]", "0", "16") "," T("INPUT1", "F32", "[2,2]", "8", "24") "}", 32,
     KS_BINARY_SIZE},
    {"matmul", "{" T("INPUT0", "F32", "[2,2]", "0", "16") "," T("INPUT1", "F32", "[2,2]", "20", "36") "}", 32,
     KS_BINARY_SIZE},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "4", "20") "}", 16, KS_BINARY_SIZE},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "0", "20") "}", 16, KS_BINARY_SIZE},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "0", "12") "}", 16, KS_BINARY_SIZE},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "16", "0") "}", 16, KS_BINARY_SIZE},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "0", "16") "}", 15, KS_BINARY_SIZE},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "0", "16") "}", 17, KS_BINARY_SIZE},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "0", "16.0") "}", 16, KS_FIELD},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "-0", "16") "}", 16, KS_OK},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "0", "16,17") "}", 16, KS_FIELD},
    {"reduce", "{\"INPUT0\":{\"dtype\":\"F32\",\"shape\":[1,4],\"data_offsets\":[16]}}", 16, KS_FIELD},
    {"reduce", "{\"INPUT0\":{\"dtype\":\"F32\",\"shape\":[1,4],\"data_offsets\":\"0,16\"}}", 16, KS_FIELD},
    {"reduce", "{\"INPUT0\":{\"dtype\":\"F32\",\"shape\":[1,4]}}", 16, KS_FIELD},
    {"reduce", "{\"INPUT0\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", 16, KS_SHAPE},
    {"reduce", "{\"INPUT0\":{\"shape\":[1,4],\"data_offsets\":[0,16]}}", 16, KS_DATATYPE},
    {"reduce", "{\"INPUT0\":7}", 16, KS_DATATYPE},
    {"reduce", "{\"INPUT0\":{\"dtype\":32,\"shape\":[1,4],\"data_offsets\":[0,16]}}", 16, KS_DATATYPE},
    {"reduce", "{" T("INPUT0", "FP32", "[1,4]", "0", "16") "}", 16, KS_DATATYPE},
    {"softmax", "{" T("INPUT0", "I32", "[1,4]", "0", "16") "}", 16, KS_DATATYPE},
    {"reduce", "{" T("INPUT0", "F32", "[-4]", "0", "16") "}", 16, KS_SHAPE},
    {"reduce", "{" T("INPUT0", "F32", "[4.0]", "0", "16") "}", 16, KS_SHAPE},
    {"reduce", "{" T("INPUT0", "F32", "[\"4\"]", "0", "16") "}", 16, KS_SHAPE},
    {"reduce", "{" T("INPUT0", "F32", "[[4]]", "0", "16") "}", 16, KS_SHAPE},
    {"reduce", "{" T("INPUT0", "F32", "4", "0", "16") "}", 16, KS_SHAPE},
    {"reduce", "{" T("INPUT0", "F32", "[1,1,1,1,1,1,1,1,4]", "0", "16") "}", 16, KS_SHAPE},
    {"reduce", "{" T("INPUT0", "F32", "[18446744073709551615]", "0", "16") "}", 16, KS_SHAPE},
    {"reduce", "{" T("INPUT0", "F32", "[9223372036854775808]", "0", "16") "}", 16, KS_SHAPE},
    {"reduce", "{" T("INPUT0", "F32", "[9223372036854775807]", "0", "16") "}", 16, KS_SHAPE},
    {"reduce", "{}", 0, KS_NAME},
    {"reduce", "{\"__metadata__\":{}}", 0, KS_NAME},
    {"reduce", "{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "4", "8") "}", 8, KS_NAME},
    {"matmul", "{" T("any name", "F32", "[2,2]", "0", "16") "}", 16, KS_NAME},
    {"matmul", "{" T("INPUT0", "F32", "[2,2]", "0", "16") "}", 16, KS_NAME},
    {"matmul", "{" T("INPUT1", "F32", "[2,2]", "0", "16") "}", 16, KS_NAME},
    {"matmul", "{" T("INPUT0", "F32", "[2,2]", "0", "16") "," T("INPUT2", "F32", "[2]", "16", "24") "}", 24, KS_NAME},
    {"matmul",
     "{" T("INPUT0", "F32", "[2,2]", "0", "16") "," T("INPUT1", "F32", "[2,2]", "16",
                                                      "32") "," T("INPUT2", "F32", "[2]", "32", "40") "}",
     40, KS_OK},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "0", "16") "}x", 16, KS_JSON},
    {"reduce", "{" T("INPUT0", "F32", "[1,4]", "0", "16") "," T("INPUT0", "F32", "[1,4]", "0", "16") "}", 16, KS_JSON},
    {"reduce", "", 16, KS_JSON},
    {"reduce", "[]", 16, KS_FIELD},
    {"reduce", "{\"inputs\":[{\"data\":[1]}]}", 16, KS_DATATYPE}, /* a header has no data that would be converted */
    {"reduce", "{\"inputs\":[{\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}]}", 16, KS_FIELD},
};

static void safetensors_heads(void **state)
{
    char body[2048];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(safetensors_rows); i++) {
        const size_t length = safetensors_body(body, safetensors_rows[i].text, safetensors_rows[i].data);
        check_talk(
            (talk){.model = safetensors_rows[i].model, .file = &ks_format_safetensors, .body = body, .length = length},
            safetensors_rows[i].status, NULL);
    }
    const size_t length = safetensors_body(body, safetensors_rows[0].text, 16);
    for (size_t cut = 0; cut < length; cut++)
        check_talk((talk){.model = "reduce", .file = &ks_format_safetensors, .body = body, .length = cut},
                   KS_BINARY_SIZE, NULL);
}

/* --- JSON, queries --------------------------------------------------------------------------------------------------- */

#define ONE "{\"name\":\"INPUT0\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}"
#define ASK(more) "{\"inputs\":[" ONE "]" more "}"
#define OUT(parameters) ASK(",\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":" parameters "}]")
#define WINDOW(parameters)                                                                                             \
    "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[1],\"datatype\":\"FP32\",\"parameters\":" parameters "}]}"

static const struct {
    const char *model, *body;
    ks_status status;
    const char *part;
} json_rows[] = {
    {"reduce", ASK(",\"outputs\":[1]"), KS_FIELD, "'outputs'"},
    {"reduce", ASK(",\"outputs\":[{\"name\":7}]"), KS_FIELD, "'name'"},
    {"reduce", ASK(",\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":[]}]"), KS_FIELD, "'parameters'"},
    {"reduce", ASK(",\"outputs\":[{\"name\":\"OUTPUT0\"}]"), KS_OK, NULL},
    {"reduce", ASK(",\"outputs\":[]"), KS_OK, NULL},
    {"reduce", OUT("{\"classification\":1}"), KS_OK, NULL},
    {"reduce", OUT("{\"classification\":0}"), KS_OK, NULL},
    {"reduce", OUT("{\"classification\":1.5}"), KS_FIELD, "'classification'"},
    {"reduce", OUT("{\"classification\":18446744073709551616}"), KS_FIELD, "'classification'"},
    {"reduce", OUT("{\"binary_data\":\"true\"}"), KS_FIELD, "'binary_data'"},
    {"reduce", OUT("{\"shared_memory_region\":\"d\",\"binary_data\":true}"), KS_PARAMETER, "'binary_data'"},
    {"reduce", OUT("{\"shared_memory_region\":\"d\",\"classification\":1}"), KS_PARAMETER, "'classification'"},
    {"reduce", OUT("{\"shared_memory_region\":\"d\"}"), KS_FIELD, "'shared_memory_byte_size'"},
    {"reduce", OUT("{\"shared_memory_region\":\"d\",\"shared_memory_byte_size\":3}"), KS_WINDOW, "at least 4 bytes"},
    {"reduce", OUT("{\"shared_memory_region\":\"d\",\"shared_memory_byte_size\":4}"), KS_OK, NULL},
    {"reduce", OUT("{\"shared_memory_region\":\"x\",\"shared_memory_byte_size\":4}"), KS_REGION, NULL},
    {"reduce", OUT("{\"shared_memory_region\":\"d\",\"shared_memory_byte_size\":\"4\"}"), KS_FIELD,
     "'shared_memory_byte_size'"},
    {"reduce", OUT("{\"shared_memory_region\":7,\"shared_memory_byte_size\":4}"), KS_FIELD, "'shared_memory_region'"},
    {"reduce", WINDOW("{\"shared_memory_region\":\"d\",\"shared_memory_byte_size\":4}"), KS_OK, NULL},
    {"reduce", WINDOW("{\"shared_memory_region\":\"s\",\"shared_memory_byte_size\":4,\"shared_memory_offset\":64}"),
     KS_OK, NULL},
    {"reduce", WINDOW("{\"shared_memory_region\":\"s\",\"shared_memory_byte_size\":8}"), KS_BINARY_SIZE,
     "Expected 4, got 8"},
    {"reduce", WINDOW("{\"shared_memory_region\":\"s\",\"shared_memory_byte_size\":4,\"shared_memory_offset\":-1}"),
     KS_FIELD, "offset"},
    {"reduce", WINDOW("{\"shared_memory_region\":\"x\",\"shared_memory_byte_size\":4}"), KS_REGION, NULL},
    {"reduce", WINDOW("{\"shared_memory_region\":\"s\",\"binary_data_size\":4}"), KS_COUNT, "only one"},
    {"reduce", WINDOW("[]"), KS_FIELD, "'parameters'"},
    {"reduce", WINDOW("7"), KS_FIELD, "'parameters'"},
    {"reduce", WINDOW("null"), KS_FIELD, "'parameters'"},
    {"reduce", WINDOW("{}"), KS_COUNT, "none of them is"},
    /* parameters */
    {"reduce", ASK(",\"parameters\":{\"axis\":\"0,0\"}"), KS_AXIS, NULL},
    {"reduce", ASK(",\"parameters\":{\"axis\":\"\"}"), KS_AXIS, "'axis'"},
    {"reduce", ASK(",\"parameters\":{\"axis\":\",\"}"), KS_AXIS, "'axis'"},
    {"reduce", ASK(",\"parameters\":{\"axis\":\"0,0,0,0,0,0,0,0\"}"), KS_AXIS, "twice"},
    {"reduce", ASK(",\"parameters\":{\"axis\":\"0,0,0,0,0,0,0,0,0\"}"), KS_AXIS, "'axis'"},
    {"reduce", ASK(",\"parameters\":{\"axis\":128}"), KS_AXIS, "'axis'"},
    {"reduce", ASK(",\"parameters\":{\"axis\":true}"), KS_AXIS, "'axis'"},
    {"reduce", ASK(",\"parameters\":{\"axis\":\"ALL\"}"), KS_AXIS, "'axis'"},
    {"reduce", ASK(",\"parameters\":{\"axis\":{}}"), KS_AXIS, "invalid type"},
    {"reduce", ASK(",\"parameters\":{\"keepdims\":\"true\"}"), KS_PARAMETER, "'keepdims'"},
    {"reduce", ASK(",\"parameters\":{\"keepdims\":1}"), KS_PARAMETER, "'keepdims'"},
    {"reduce", ASK(",\"parameters\":{\"op\":1}"), KS_PARAMETER, "'op'"},
    {"reduce", ASK(",\"parameters\":{\"op\":\"summ\"}"), KS_PARAMETER, "'op'"},
    {"reduce_max", ASK(",\"parameters\":{\"op\":\"max\"}"), KS_OK, NULL},
    {"reduce_max", ASK(",\"parameters\":{\"op\":\"sum\"}"), KS_PARAMETER, "fixed"},
    {"reduce_sum", ASK(",\"parameters\":{\"op\":\"sum\"}"), KS_OK, NULL},
    {"reduce_sum", ASK(",\"parameters\":{\"op\":\"max\"}"), KS_PARAMETER, "fixed"},
    {"softmax", ASK(",\"parameters\":{\"scale\":true}"), KS_PARAMETER, "'scale'"},
    {"softmax", ASK(",\"parameters\":{\"scale\":\"\"}"), KS_PARAMETER, "'scale'"},
    {"softmax", ASK(",\"parameters\":{\"log\":\"true\"}"), KS_PARAMETER, "'log'"},
    {"softmax", ASK(",\"parameters\":{\"log\":false,\"scale\":2.5}"), KS_OK, NULL},
    {"reduce", ASK(",\"parameters\":{\"binary_data_output\":1}"), KS_PARAMETER, "'binary_data_output'"},
    {"reduce", ASK(",\"parameters\":{\"binary_data_output\":\"true\"}"), KS_PARAMETER, "'binary_data_output'"},
    {"reduce", ASK(",\"parameters\":{\"priority\":\"1\"}"), KS_PARAMETER, "'priority'"},
    {"reduce", ASK(",\"parameters\":{\"timeout\":-1}"), KS_PARAMETER, "'timeout'"},
    {"reduce", ASK(",\"parameters\":{\"timeout\":18446744073709551615}"), KS_OK, NULL},
    {"reduce", ASK(",\"parameters\":{\"sequence_id\":7}"), KS_OK, NULL},
    {"reduce", ASK(",\"parameters\":{\"sequence_id\":1.5}"), KS_PARAMETER, "'sequence_id'"},
    {"reduce", ASK(",\"parameters\":{\"sequence_end\":true,\"sequence_start\":false}"), KS_OK, NULL},
    {"reduce", ASK(",\"parameters\":{\"sequence_end\":0}"), KS_PARAMETER, "'sequence_end'"},
    {"reduce", ASK(",\"parameters\":{\"headers\":{}}"), KS_OK, NULL},
    {"reduce", ASK(",\"parameters\":{\"triton\":1}"), KS_OK, NULL},
    {"reduce", ASK(",\"parameters\":7"), KS_FIELD, "'parameters'"},
    /* inputs beyond the model's */
    {"scan", "{\"inputs\":[" ONE ",{\"name\":\"OTHER\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}]}", KS_NAME,
     "'OTHER'"},
    {"scan", "{\"inputs\":[" ONE ",{\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}]}", KS_NAME, NULL},
    {"reduce", "{\"inputs\":[" ONE "," ONE "]}", KS_NAME, "already exists"},
    {"scan", "{\"inputs\":[{\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1],\"name\":\"INPUT1\"}]}", KS_NAME,
     "'INPUT1'"},
    {"reduce", "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[\"\\u0001\"],\"datatype\":\"FP32\",\"data\":[1]}]}",
     KS_SHAPE, "no number"},
    {"reduce",
     "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1],\"parameters\":{}}],\"x\":[[],"
     "{}]}",
     KS_OK, NULL},
};

static void json_requests(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(json_rows); i++)
        check_talk((talk){.model = json_rows[i].model,
                          .windows = true,
                          .body = json_rows[i].body,
                          .length = strlen(json_rows[i].body)},
                   json_rows[i].status, json_rows[i].part);
    char many[2048];
    for (int count = 16; count <= 17; count++) {
        size_t n = (size_t)sprintf(many, "{\"inputs\":[" ONE "],\"outputs\":[");
        for (int i = 0; i < count; i++) n += (size_t)sprintf(many + n, "%s{\"name\":\"OUTPUT0\"}", i ? "," : "");
        sprintf(many + n, "]}");
        check_talk((talk){.model = "reduce", .body = many, .length = strlen(many)}, KS_NAME, "already exists");
        n = (size_t)sprintf(many, "{\"id\":\"");
        memset(many + n, 'i', KS_ID_MAX);
        sprintf(many + n + KS_ID_MAX, "\",\"inputs\":[" ONE "]}");
        check_talk((talk){.model = "reduce", .body = many, .length = strlen(many)}, KS_OK, NULL);
    }
}

/* Windows are held anew for each request, whatever was remembered of its head. */
static void windows_are_never_remembered(void **state)
{
    static const char body[] = "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[1],\"datatype\":\"FP32\",\"parameters\":{"
                               "\"shared_memory_region\":"
                               "\"d1\",\"shared_memory_byte_size\":4,\"shared_memory_offset\":64}}]}";
    static const char out[] = "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[1],\"datatype\":\"FP32\",\"parameters\":{"
                              "\"binary_data_size\":4}}],"
                              "\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"shared_memory_region\":\"s2\","
                              "\"shared_memory_byte_size\":8}}]}abcd";
    const char *const bodies[] = {body, out};
    (void)state;
    limits.head_cache = ks_head_cache_open();
    for (int round = 0; round < 6; round++) {
        const char *text = bodies[round % 2];
        char length[24];
        memory m = {.in = NULL};
        ks_error error = {0};
        size_t fed;
        snprintf(length, sizeof length, "%zu", (size_t)(strrchr(text, '}') + 1 - text));
        const talk t = {.model = "reduce",
                        .header_length = length,
                        .known = true,
                        .whole = true,
                        .windows = true,
                        .body = text,
                        .length = strlen(text)};
        assert_int_equal(hold(&t, &m, &fed, &error), KS_OK);
        assert_int_equal(m.windows, 1);
        assert_string_equal(m.region, round % 2 ? "s2" : "d1");
        assert_true(m.offset == (round % 2 ? 0 : 64) && m.bytes == (round % 2 ? 8 : 4));
        const ks_infer_request *ask = ks_codec_request(codec);
        assert_int_equal(ks_in(ask->windows, 0), round % 2 == 0);
        assert_int_equal(ks_in(ask->device_copies, 0), round % 2 == 0);
        assert_int_equal(ks_in(ask->windows, KS_WINDOW_OUT), round % 2 == 1);
        assert_false(ks_codec_may_write_through(codec));
        ks_codec_fini(codec);
        memory_free(&m);
    }
    ks_head_cache_close(&limits.head_cache);
}

/* A remembered head says another thing to a client that accepts a file. */
static void a_remembered_head_and_accept(void **state)
{
    static const char body[] = "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[1],\"datatype\":\"FP32\",\"parameters\":{"
                               "\"binary_data_size\":4}}]}abcd";
    char length[24];
    (void)state;
    snprintf(length, sizeof length, "%zu", sizeof body - 1 - 4);
    limits.head_cache = ks_head_cache_open();
    for (int round = 0; round < 8; round++) {
        const ks_format *file = round % 3 == 0 ? NULL : round % 3 == 1 ? &ks_format_npy : &ks_format_safetensors;
        memory m = {.in = NULL};
        ks_error error = {0};
        size_t fed;
        const talk t = {.model = "softmax",
                        .header_length = length,
                        .response = file,
                        .known = true,
                        .whole = true,
                        .body = body,
                        .length = sizeof body - 1};
        assert_int_equal(hold(&t, &m, &fed, &error), KS_OK);
        assert_int_equal(ks_codec_request(codec)->response, file);
        assert_int_equal(ks_codec_request(codec)->binary != 0, file != NULL);
        ks_codec_fini(codec);
        memory_free(&m);
    }
    ks_head_cache_close(&limits.head_cache);
}

static void queries(void **state)
{
    static const struct {
        const char *query;
        ks_status status;
    } rows[] = {
        {"shape=4", KS_OK},
        {"shape=%34", KS_OK},
        {"shape=4&", KS_OK},
        {"&&shape=4", KS_OK},
        {"shape=4&x", KS_OK},
        {"shape=4&%zz=1", KS_OK}, /* a name that cannot be read is none of ours */
        {"shape=4&%00axis=9", KS_OK},
        {"shape=4&axis=%2d1", KS_OK},
        {"shape=4&axis=%2D1", KS_OK},
        {"shape=4&keepdims=0", KS_OK},
        {"shape=4&keepdims=false", KS_OK},
        {"shape=4&op=max", KS_OK},
        {"shape=4&op=m%61x&op=min", KS_OK},
        {"shape=04", KS_SHAPE},
        {"shape=-0", KS_SHAPE},
        {"shape=+4", KS_SHAPE},
        {"shape=4.0", KS_SHAPE},
        {"shape=4,", KS_SHAPE},
        {"shape=,4", KS_SHAPE},
        {"shape=1,1,1,1,1,1,1,4", KS_OK},
        {"shape=1,1,1,1,1,1,1,1,4", KS_SHAPE},
        {"shape=9223372036854775807", KS_SHAPE},
        {"shape=99999999999999999999", KS_SHAPE},
        {"shape=4%00", KS_PARAMETER},
        {"shape=4%", KS_PARAMETER},
        {"shape=4%3", KS_PARAMETER},
        {"shape=4%g0", KS_PARAMETER},
        {"shape=4%0g", KS_PARAMETER},
        {"shape=4%/0", KS_PARAMETER},
        {"shape=4%:0", KS_PARAMETER},
        {"shape=4%@0", KS_PARAMETER},
        {"shape=4%G0", KS_PARAMETER},
        {"shape=4%`0", KS_PARAMETER},
        {"shape=4&axis=", KS_AXIS},
        {"shape=4&axis", KS_AXIS},
        {"shape=4&datatype=FP32&datatype=FP32", KS_DATATYPE},
        {"shape=4&datatype=", KS_DATATYPE},
        {"shape=4&datatype=FP32%20", KS_DATATYPE},
        {"shape=4&keepdims=yes", KS_PARAMETER},
        {"shape=4&keepdims=2", KS_PARAMETER},
        {"shape=4&op=", KS_PARAMETER},
        {"shape=4&timeout=x", KS_PARAMETER},
        {"shape=4&priority=18446744073709551615&timeout=5", KS_OK},
    };
    char text[1024];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        check_talk((talk){.model = "reduce", .query = rows[i].query, .body = "0123456789abcdef", .length = 16},
                   rows[i].status, NULL);
    /* Names of 63 bytes and values of 255 have room, plain and encoded. */
    for (int more = 0; more < 2; more++)
        for (int encoded = 0; encoded < 2; encoded++) {
            size_t n = (size_t)sprintf(text, "shape=4&x=%s", encoded ? "%31" : "");
            memset(text + n, '1', 255u + (size_t)more - (size_t)encoded);
            text[n + 255u + (size_t)more - (size_t)encoded] = 0;
            check_talk((talk){.model = "reduce", .query = text, .body = "0123456789abcdef", .length = 16},
                       more ? KS_PARAMETER : KS_OK, NULL);
            n = (size_t)sprintf(text, "shape=4&%s", encoded ? "%78" : "");
            memset(text + n, 'x', 63u + (size_t)more - (size_t)encoded);
            sprintf(text + n + 63u + (size_t)more - (size_t)encoded, "=%%zz");
            /* A name without room is no name, so that nobody looks at its value. */
            check_talk((talk){.model = "reduce", .query = text, .body = "0123456789abcdef", .length = 16},
                       more ? KS_OK : KS_PARAMETER, NULL);
        }
    for (size_t less = 0; less < 4; less++)
        check_talk((talk){.model = "reduce", .query = "shape=4", .body = "0123456789abcdef", .length = 12 + less},
                   KS_BINARY_SIZE, NULL);
    /* A body that is no whole number of elements, and one whose shapes add up to more than any body. */
    for (size_t length = 0; length < 9; length++)
        check_talk((talk){.model = "reduce_vec", .header_length = "0", .body = "01234567", .length = length},
                   length % 4 ? KS_BINARY_SIZE : KS_OK, NULL);
    /* The second tensor is missing as a whole. */
    check_talk((talk){.model = "matmul", .query = "shape=2,2&shape=2,2", .body = "0123456789abcdef", .length = 16},
               KS_BINARY_SIZE, NULL);
    /* Shapes that add up to more than 2^64. */
    memory m = {.in = NULL};
    ks_error error = {0};
    size_t fed;
    const talk t = {.model = "matmul",
                    .query = "shape=5,461168601842738790&shape=461168601842738790,5&shape=5",
                    .body = "",
                    .length = 0};
    assert_int_equal(hold(&t, &m, &fed, &error), KS_BODY_SIZE);
    ks_codec_fini(codec);
    memory_free(&m);
}

/* --- bodies without an end ------------------------------------------------------------------------------------------- */

/* Refused at the byte that passes the limit, not at an end that may never come. */
static void no_end_in_sight(void **state)
{
    static const struct {
        const char *model, *query, *header_length;
    } rows[] = {{"reduce_vec", "datatype=INT8", "0"}, {"reduce", NULL, NULL}, {"reduce", NULL, "20"}};
    static char spaces[2 * MAX_BODY];
    (void)state;
    memset(spaces, ' ', sizeof spaces);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (size_t most = 0; most < 2; most++) {
            memory m = {.in = NULL};
            ks_error error = {0};
            size_t fed;
            talk t = {.model = rows[i].model,
                      .query = rows[i].query,
                      .header_length = rows[i].header_length,
                      .body = spaces,
                      .length = sizeof spaces};
            if (rows[i].header_length && rows[i].header_length[0] != '0')
                t.body = spaces;                              /* its JSON is incomplete before */
            limits.max_json = most ? MAX_BODY : 2 * MAX_BODY; /* whichever limit is the smaller one */
            const ks_status status = hold(&t, &m, &fed, &error);
            if (i == 2)
                assert_int_equal(status, KS_JSON);
            else
                assert_int_equal(status, KS_BODY_SIZE);
            if (i < 2) assert_int_equal(fed, MAX_BODY + 1);
            ks_codec_fini(codec);
            memory_free(&m);
        }
    limits.max_json = MAX_BODY;
    /* Exactly the limit is no fault. */
    check_talk(
        (talk){
            .model = "reduce_vec", .query = "datatype=INT8", .header_length = "0", .body = spaces, .length = MAX_BODY},
        KS_OK, NULL);
}

/* Sizes whose sum passes 2^64 and looks small: 2^63 - 8, 2^63 - 8 and 20 bytes. */
static void sums_do_not_wrap(void **state)
{
    static const char body[] = "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[5,461168601842738790],\"datatype\":"
                               "\"FP32\",\"parameters\":{\"binary_data_size\":"
                               "9223372036854775800}},{\"name\":\"INPUT1\",\"shape\":[461168601842738790,5],"
                               "\"datatype\":\"FP32\",\"parameters\":{"
                               "\"binary_data_size\":9223372036854775800}},{\"name\":\"INPUT2\",\"shape\":[5],"
                               "\"datatype\":\"FP32\",\"parameters\":{"
                               "\"binary_data_size\":20}}]}0123";
    char length[24];
    (void)state;
    snprintf(length, sizeof length, "%zu", sizeof body - 1 - 4);
    check_talk((talk){.model = "matmul", .header_length = length, .body = body, .length = sizeof body - 1},
               KS_BODY_SIZE, "--max-body");
}

/* --- control requests ------------------------------------------------------------------------------------------------- */

/* What each reader says of a member, by its text. */
static void control_members(void **state)
{
    static const struct {
        const char *value;
        ks_status as_bool, as_unsigned, as_text;
        bool present;
    } rows[] = {{"true", KS_OK, KS_FIELD, KS_FIELD, true},
                {"false", KS_OK, KS_FIELD, KS_FIELD, true},
                {"null", KS_OK, KS_OK, KS_OK, false},
                {"0", KS_FIELD, KS_OK, KS_FIELD, true},
                {"18446744073709551615", KS_FIELD, KS_OK, KS_FIELD, true},
                {"18446744073709551616", KS_FIELD, KS_FIELD, KS_FIELD, true},
                {"-1", KS_FIELD, KS_FIELD, KS_FIELD, true},
                {"1.5", KS_FIELD, KS_FIELD, KS_FIELD, true},
                {"1.0", KS_FIELD, KS_FIELD, KS_FIELD, true},
                {"\"\"", KS_FIELD, KS_FIELD, KS_OK, true},
                {"\"7\"", KS_FIELD, KS_FIELD, KS_OK, true},
                {"[]", KS_FIELD, KS_FIELD, KS_FIELD, true},
                {"{}", KS_FIELD, KS_FIELD, KS_FIELD, true}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char body[128];
        ks_control *control = NULL;
        ks_error error = {0};
        bool present = false, truth;
        uint64_t number;
        const char *text;
        const size_t n =
            (size_t)snprintf(body, sizeof body, "{\"a\":%s,\"o\":{\"a\":%s},\"x\":7}", rows[i].value, rows[i].value);
        assert_int_equal(ks_control_begin(&control, &error), KS_OK);
        for (size_t at = 0; at < n; at++) assert_int_equal(ks_control_feed(control, body + at, 1, &error), KS_OK);
        assert_int_equal(ks_control_end(control, &error), KS_OK);
        assert_int_equal(ks_control_bool(control, "a", &present, &truth, &error), rows[i].as_bool);
        assert_int_equal(present, rows[i].present);
        assert_int_equal(ks_control_unsigned(control, "a", &present, &number, &error), rows[i].as_unsigned);
        assert_int_equal(ks_control_text(control, NULL, "a", &text, &error), rows[i].as_text);
        assert_int_equal(text != NULL, rows[i].as_text == KS_OK && rows[i].present);
        assert_int_equal(ks_control_text(control, "o", "a", &text, &error), rows[i].as_text);
        assert_int_equal(ks_control_text(control, "x", "a", &text, &error), KS_FIELD);
        assert_int_equal(ks_control_text(control, "none", "a", &text, &error), KS_OK);
        assert_null(text);
        assert_int_equal(ks_control_bool(control, "A", &present, &truth, &error), KS_OK);
        assert_false(present);
        ks_control_fini(&control);
        assert_null(control);
        ks_control_fini(&control);
    }
    /* Without a body: nothing is there. */
    bool present = true, truth;
    uint64_t number;
    const char *text = "";
    ks_error error = {0};
    assert_true(ks_control_bool(NULL, "a", &present, &truth, &error) == KS_OK && !present);
    assert_true(ks_control_unsigned(NULL, "a", &present, &number, &error) == KS_OK && !present);
    assert_true(ks_control_text(NULL, "o", "a", &text, &error) == KS_OK && !text);
    static const char *const bad[] = {"", "{", "[]",
                                      "{\"inputs\":[{\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1]}]}"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        ks_control *control = NULL;
        assert_int_equal(ks_control_begin(&control, &error), KS_OK);
        ks_status status = ks_control_feed(control, bad[i], strlen(bad[i]), &error);
        if (status == KS_OK) status = ks_control_end(control, &error);
        assert_true(status == KS_JSON || status == KS_FIELD);
        ks_control_fini(&control);
    }
}

/* --- memory that is not there yet ------------------------------------------------------------------------------------ */

/* Only where every byte comes from the body's binary part and the answer is binary may the bytes go elsewhere. */
static void what_may_be_streamed(void **state)
{
#define BINARY(id, out)                                                                                                \
    "{" id "\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[2],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_"       \
    "size\":8}}]" out "}"
#define OUT_BINARY ",\"parameters\":{\"binary_data_output\":true}"
#define LONG "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
    static const struct {
        const char *model, *query, *text;
        const ks_format *file, *response;
        bool accept_json, expected;
    } rows[] = {
        {"softmax", "shape=2", NULL, NULL, NULL, false, true},
        {"softmax", "shape=2", NULL, NULL, NULL, true, false},
        {"softmax", "shape=2", NULL, NULL, &ks_format_npy, false, false},
        {"softmax", "shape=2", NULL, NULL, &ks_format_npy, true, false},
        {"softmax", "", BINARY("", OUT_BINARY), NULL, NULL, false, true},
        {"softmax", "", BINARY("\"id\":\"a\",", OUT_BINARY), NULL, NULL, false, true},
        {"softmax", "", BINARY("\"id\":\"" LONG LONG LONG LONG LONG LONG "\",", OUT_BINARY), NULL, NULL, false, false},
        {"softmax", "", BINARY("", ""), NULL, NULL, false, false},
        {"softmax", "", BINARY("", ""), NULL, &ks_format_safetensors, false, false}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (int streams = 0; streams < 2; streams++) {
            char body[2048], length[24];
            const size_t head = (size_t)snprintf(body, sizeof body, "%s", rows[i].text ? rows[i].text : "");
            memcpy(body + head, "\0\0\x80\x3f\0\0\0\x40", 8);
            snprintf(length, sizeof length, "%zu", head);
            memory m = {.streams = streams && rows[i].expected};
            ks_error error = {0};
            size_t fed;
            const talk t = {.model = rows[i].model,
                            .query = rows[i].query,
                            .header_length = rows[i].text ? length : NULL,
                            .file = rows[i].file,
                            .response = rows[i].response,
                            .known = i % 2,
                            .whole = false,
                            .accept_json = rows[i].accept_json,
                            .body = body,
                            .length = head + 8};
            assert_int_equal(hold(&t, &m, &fed, &error), KS_OK);
            assert_int_equal(m.may_stream, rows[i].expected);
            assert_int_equal(m.streamed, m.streams ? 8 : 0);
            assert_memory_equal(m.in + ks_codec_request(codec)->spec.in[0].offset, body + head, 8);
            ks_codec_fini(codec);
            memory_free(&m);
        }
    /* Several at a time: what was not taken comes again. */
    for (size_t more = 0; more < 2; more++) {
        const float values[6] = {1, 2, 3, 4, 5, 6};
        const ks_codec_head head = {
            .model = ks_model_find("softmax", 7), .query = "shape=2,3", .content_length = sizeof values};
        memory m = {.streams = true};
        ks_error error = {0};
        assert_int_equal(ks_codec_begin(codec, &head, &limits, place, &m, &error), KS_OK);
        if (more) m.in_cap = 12;
        ks_status status = KS_OK;
        for (size_t at = 0; at < sizeof values && status == KS_OK;) {
            size_t n = sizeof values - at;
            status = ks_codec_feed(codec, (const char *)values + at, &n, &error);
            if (status == KS_OK) assert_true(n <= 3);
            at += n;
        }
        assert_int_equal(status, more ? KS_BUDGET : KS_OK);
        if (!more) assert_int_equal(ks_codec_end(codec, &error), KS_OK);
        if (!more) assert_memory_equal(m.in, values, sizeof values);
        ks_codec_fini(codec);
        memory_free(&m);
    }
}

/* Media types of files, with parameters and in any case. */
static void media_types(void **state)
{
    (void)state;
    assert_int_equal(ks_file_of(NULL), NULL);
    assert_int_equal(ks_file_of(""), NULL);
    assert_int_equal(ks_file_of("application/x-npy"), &ks_format_npy);
    assert_int_equal(ks_file_of("Application/X-NPY; a=b"), &ks_format_npy);
    assert_int_equal(ks_file_of("application/x-safetensors\t;"), &ks_format_safetensors);
    assert_int_equal(ks_file_of("application/x-npyy"), NULL);
    assert_int_equal(ks_file_of("application/x-np"), NULL);
    assert_int_equal(ks_file_of(" application/x-npy"), NULL);
}

/* Accept-Encoding: the highest weight, the first on a tie, and nothing of weight 0. */
static void packings_that_are_accepted(void **state)
{
    static const struct {
        const char *text;
        ks_compression packing;
    } rows[] = {{NULL, KS_COMPRESSION_NONE},
                {"", KS_COMPRESSION_NONE},
                {"gzip", KS_COMPRESSION_GZIP},
                {"GZip", KS_COMPRESSION_GZIP},
                {"deflate", KS_COMPRESSION_DEFLATE},
                {"br, zstd", KS_COMPRESSION_NONE},
                {"br, gzip", KS_COMPRESSION_GZIP},
                {"gzip, deflate", KS_COMPRESSION_GZIP},
                {"deflate, gzip", KS_COMPRESSION_DEFLATE},
                {"gzip;q=0.5, deflate;q=0.8", KS_COMPRESSION_DEFLATE},
                {"gzip;q=0.8,deflate;q=0.5", KS_COMPRESSION_GZIP},
                {"gzip;q=0.5, deflate; q=0.501", KS_COMPRESSION_DEFLATE},
                {"gzip;Q=1, deflate;q=1.000", KS_COMPRESSION_GZIP},
                {"gzip;q=0", KS_COMPRESSION_NONE},
                {"gzip;q=0.000", KS_COMPRESSION_NONE},
                {"gzip;q=0.001", KS_COMPRESSION_GZIP},
                {"gzip;q=0, deflate;q=0", KS_COMPRESSION_NONE},
                {"gzip;q=x", KS_COMPRESSION_NONE},
                {"gzip;x=1", KS_COMPRESSION_NONE},
                {"gzip;q=9, deflate;q=1", KS_COMPRESSION_GZIP},
                {"identity, gzip;q=0.9", KS_COMPRESSION_NONE},
                {"identity;q=0.5, gzip", KS_COMPRESSION_GZIP},
                {"\t gzip\t;\tq=0.5 ,", KS_COMPRESSION_GZIP},
                {"gzipp, xgzip", KS_COMPRESSION_NONE},
                {"*", KS_COMPRESSION_NONE}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (ks_compression_accepted(rows[i].text) != rows[i].packing)
            fail_msg("%s: %s", rows[i].text, ks_compression_name(ks_compression_accepted(rows[i].text)));
}

/* What output may not be, whatever is asked of it. */
static void outputs_that_cannot_be(void **state)
{
    static const struct {
        const char *query;
        const ks_format *response;
        bool accept_json;
        uint64_t max_output;
        double max_work;
        ks_status status;
    } rows[] = {{"shape=4&datatype=FP32", &ks_format_npy, false, 16, 40, KS_OK},
                {"shape=4&datatype=FP32", &ks_format_npy, false, 15, 40, KS_WORK},
                {"shape=4&datatype=FP32", &ks_format_npy, false, 16, 39, KS_WORK},
                {"shape=4&datatype=FP32", &ks_format_npy, false, 16, 0, KS_OK}, /* 0: no limit */
                {"shape=4&datatype=BF16", &ks_format_npy, false, 16, 40, KS_DATATYPE},
                {"shape=4&datatype=BF16", &ks_format_safetensors, false, 16, 40, KS_OK},
                {"shape=4&datatype=FP16", &ks_format_npy, false, 16, 40, KS_OK},
                {"shape=4&datatype=FP16", NULL, true, 16, 40, KS_DATATYPE},
                {"shape=4&datatype=BF16", NULL, true, 16, 40, KS_DATATYPE},
                {"shape=4&datatype=BF16", NULL, false, 16, 40, KS_OK},
                {"shape=0&datatype=FP32", NULL, false, 0, 40, KS_OK}};
    const ks_codec_limits usual = limits;
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const bool half = strstr(rows[i].query, "16") != NULL, empty = strstr(rows[i].query, "=0") != NULL;
        limits.max_output = rows[i].max_output;
        limits.max_work = rows[i].max_work;
        check_talk((talk){.model = "softmax",
                          .query = rows[i].query,
                          .response = rows[i].response,
                          .accept_json = rows[i].accept_json,
                          .body = "0123456789abcdef",
                          .length = empty  ? 0
                                    : half ? 8
                                           : 16},
                   rows[i].status, NULL);
        limits = usual;
    }
    /* Classes of a type that has no text, and of more elements than are looked at. */
    static const char half[] =
        "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[2],\"datatype\":\"BF16\",\"parameters\":{\"binary_data_size\":4}}"
        "],"
        "\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"classification\":1,\"binary_data\":true}}]}abcd";
    char length[24], many[512];
    snprintf(length, sizeof length, "%zu", sizeof half - 1 - 4);
    check_talk((talk){.model = "softmax", .header_length = length, .body = half, .length = sizeof half - 1},
               KS_DATATYPE, "class result");
    limits.max_body = limits.max_output = 8 << 20;
    for (int more = 0; more < 2; more++) {
        memory m = {.in = NULL};
        ks_error error = {0};
        size_t fed;
        const int head = snprintf(many, sizeof many,
                                  "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[%d],\"datatype\":\"FP32\","
                                  "\"parameters\":{\"binary_data_size\":%d}}],"
                                  "\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"classification\":1}}]}",
                                  CLASSED_MAX + more, 4 * (CLASSED_MAX + more));
        snprintf(length, sizeof length, "%d", head);
        const talk t = {
            .model = "softmax", .header_length = length, .whole = true, .body = many, .length = (size_t)head};
        assert_int_equal(hold(&t, &m, &fed, &error), more ? KS_SHAPE : KS_BINARY_SIZE);
        ks_codec_fini(codec);
        memory_free(&m);
    }
    limits = usual;
}

/* --- answers --------------------------------------------------------------------------------------------------------- */

/* The answer's text is never longer than what was set aside for it, whatever the numbers are. */
static void answers_keep_their_bound(void **state)
{
    static const struct {
        const char *dtype;
        size_t size;
        uint64_t bits; /* of an element with a long text */
    } rows[] = {{"FP32", 4, 0x80800001},   {"FP64", 8, 0x8010000000000001}, {"INT8", 1, 0x80},
                {"INT16", 2, 0x8000},      {"INT32", 4, 0x80000000},        {"INT64", 8, 0x8000000000000000},
                {"UINT8", 1, 0xFF},        {"UINT16", 2, 0xFFFF},           {"UINT32", 4, 0xFFFFFFFF},
                {"UINT64", 8, UINT64_MAX}, {"FP32", 4, 0xFF7FFFFF},         {"FP64", 8, 0xFFEFFFFFFFFFFFFF}};
    enum { COUNT = 300 };
    (void)state;
    limits.max_output = 1 << 20;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (int classes = 0; classes < 2; classes++) {
            char body[COUNT * 8 + 512], length[24];
            const int head = snprintf(body, sizeof body,
                                      "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[%d,1],\"datatype\":\"%s\","
                                      "\"parameters\":{\"binary_data_size\":%zu}}],"
                                      "\"parameters\":{\"op\":\"max\"},\"outputs\":[{\"name\":\"OUTPUT0\","
                                      "\"parameters\":{\"classification\":%d}}]}",
                                      COUNT, rows[i].dtype, COUNT * rows[i].size, classes ? COUNT : 0);
            for (size_t e = 0; e < COUNT; e++) memcpy(body + head + e * rows[i].size, &rows[i].bits, rows[i].size);
            snprintf(length, sizeof length, "%d", head);
            memory m = {.in = NULL};
            ks_error error = {0};
            ks_response_body response;
            size_t fed;
            const talk t = {.model = "reduce",
                            .header_length = length,
                            .known = true,
                            .whole = true,
                            .body = body,
                            .length = (size_t)head + COUNT * rows[i].size};
            assert_int_equal(hold(&t, &m, &fed, &error), KS_OK);
            unsigned char *const out = m.room + KS_HEAD_ROOM;
            memcpy(out, body + head, COUNT * rows[i].size);
            assert_int_equal(ks_codec_encode(codec, out, &response, &error), KS_OK);
            assert_true(response.length <= ks_codec_encode_bound(codec));
            free(response.owned);
            ks_codec_fini(codec);
            memory_free(&m);
        }
    limits.max_output = 1 << 16;
}

/* The largest first, of equal ones the first, NaN last; -0 below 0 as its bits are. */
static void classes_in_their_order(void **state)
{
    static const struct {
        int classes;
        float values[6];
        const char *data;
    } rows[] = {{3, {1, 3, 2, 3, 0, -1}, "[\"3.000000:1\",\"3.000000:3\",\"2.000000:2\"]"},
                {2, {5, 5, 5, 5, 5, 5}, "[\"5.000000:0\",\"5.000000:1\"]"},
                {6,
                 {NAN, -1, INFINITY, -INFINITY, NAN, 0},
                 "[\"inf:2\",\"0.000000:5\",\"-1.000000:1\",\"-inf:3\",\"nan:0\",\"nan:4\"]"},
                {9,
                 {-0.0f, 0, 1, 2, 3, 4},
                 "[\"4.000000:5\",\"3.000000:4\",\"2.000000:3\",\"1.000000:2\",\"0.000000:1\",\"-0.000000:0\"]"}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char body[512], length[24];
        const int head = snprintf(body, sizeof body,
                                  "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[6],\"datatype\":\"FP32\","
                                  "\"parameters\":{\"binary_data_size\":24}}],"
                                  "\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"classification\":%d}}]}",
                                  rows[i].classes);
        memcpy(body + head, rows[i].values, 24);
        snprintf(length, sizeof length, "%d", head);
        memory m = {.in = NULL};
        ks_error error = {0};
        ks_response_body response;
        size_t fed;
        const talk t = {.model = "softmax",
                        .header_length = length,
                        .known = true,
                        .whole = true,
                        .body = body,
                        .length = (size_t)head + 24};
        assert_int_equal(hold(&t, &m, &fed, &error), KS_OK);
        unsigned char *const out = m.room + KS_HEAD_ROOM;
        memcpy(out, rows[i].values, 24);
        assert_int_equal(ks_codec_encode(codec, out, &response, &error), KS_OK);
        const size_t n = strlen(rows[i].data);
        char whole[1024];
        snprintf(whole, sizeof whole, "%.*s", (int)response.length, response.body);
        const char *data = strstr(whole, "\"data\":");
        if (!data || strncmp(data + 7, rows[i].data, n) != 0) fail_msg("%s instead of %s", whole, rows[i].data);
        free(response.owned);
        ks_codec_fini(codec);
        memory_free(&m);
    }
}

int main(void)
{
    words_seed();
    ks_models_init();
    codec = calloc(1, ks_codec_size());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy_heads),
        cmocka_unit_test(heads_beyond_their_limit),
        cmocka_unit_test(fortran_order_is_turned),
        cmocka_unit_test(safetensors_heads),
        cmocka_unit_test(json_requests),
        cmocka_unit_test(windows_are_never_remembered),
        cmocka_unit_test(a_remembered_head_and_accept),
        cmocka_unit_test(queries),
        cmocka_unit_test(no_end_in_sight),
        cmocka_unit_test(sums_do_not_wrap),
        cmocka_unit_test(control_members),
        cmocka_unit_test(what_may_be_streamed),
        cmocka_unit_test(media_types),
        cmocka_unit_test(packings_that_are_accepted),
        cmocka_unit_test(outputs_that_cannot_be),
        cmocka_unit_test(answers_keep_their_bound),
        cmocka_unit_test(classes_in_their_order),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(codec);
    return failed;
}
