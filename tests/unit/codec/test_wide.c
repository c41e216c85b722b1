/* Requests to an operation that uses every border (op_wide.h), from the body's bytes through the codec, the engine and the CPU
 * backend to the answer's bytes: gaps between inputs, datatypes of their own, sixteen parameters, two outputs. */
#include "unit/codec/words_test.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "codec/decode.h"
#include "engine/engine.h"
#include "ops/op_wide.h"
#include "kernserve/backends.h"

enum { SIDE = 65536 };

static struct {
    ks_device *device;
    ks_budget *budget;
    ks_engine *engine;
    ks_codec *codec;
    ks_head_cache *head_cache;
    ks_job job;
    int wake_fd;
    /* of the next request */
    const ks_format *body, *accept;
    bool accept_json;
    const char *model;
    size_t chunk;
} bed;

/* ks_codec_place_fn */
static ks_status place(void *context, size_t in_bytes, size_t out_bytes, size_t keep, ks_sides *sides, ks_error *error)
{
    (void)context;
    ks_slot *old = bed.job.slot;
    const ks_status status = ks_engine_slot(bed.engine, in_bytes, out_bytes, &bed.job.slot, error);
    if (status != KS_OK) return status;
    memset(bed.job.slot->in, 0xA5, bed.job.slot->in_cap);
    if (old) {
        memcpy(bed.job.slot->in, old->in, keep);
        ks_engine_slot_release(bed.engine, &old);
    }
    *sides = (ks_sides){bed.job.slot->in, bed.job.slot->out};
    return KS_OK;
}

static ks_status read_request(const char *query, const char *header_length, const char *body, size_t length,
                              ks_error *error)
{
    static const ks_codec_limits limits = {
        .max_body = 1 << 20, .max_json = 1 << 19, .max_output = 1 << 20, .max_work = 1e9, .max_skeleton = 65536};
    ks_codec_limits mine = limits;
    mine.head_cache = bed.head_cache;
    const ks_codec_head head = {.model = ks_model_find(bed.model, strlen(bed.model)),
                                .query = query,
                                .header_length = header_length,
                                .content_length = (int64_t)length,
                                .body = bed.body,
                                .response = bed.accept,
                                .accept_json = bed.accept_json};
    memset(&bed.job, 0, sizeof bed.job);
    ks_status status = ks_codec_begin(bed.codec, &head, &mine, place, NULL, error);
    for (size_t at = 0; at < length && status == KS_OK;) {
        size_t n = bed.chunk && bed.chunk < length - at ? bed.chunk : length - at;
        status = ks_codec_feed(bed.codec, body + at, &n, error);
        at += n;
    }
    return status == KS_OK ? ks_codec_end(bed.codec, error) : status;
}

static void run_job(void)
{
    ks_error error;
    const ks_infer_request *ask = ks_codec_request(bed.codec);
    ks_sides sides;
    if (!bed.job.slot)
        assert_int_equal(
            place(NULL, ks_infer_request_in_bytes(ask), ks_infer_request_out_bytes(ask), 0, &sides, &error), 0);
    memset(bed.job.slot->out, 0xA5, bed.job.slot->out_cap);
    assert_int_equal(ks_engine_plan(bed.engine, &ask->spec, &bed.job.plan, &error), KS_OK);
    bed.job.deadline_ns = ks_now_ns() + 60000000000;
    assert_int_equal(ks_engine_submit(bed.engine, &bed.job, &error), KS_OK);
    ks_job *done = NULL;
    while (!done) {
        ks_engine_launch(bed.engine);
        done = ks_engine_collect(bed.engine);
    }
    assert_int_equal(bed.job.status, KS_OK);
}

static void end_request(void)
{
    ks_codec_fini(bed.codec);
    if (bed.job.plan) ks_engine_plan_release(bed.engine, &bed.job.plan);
    if (bed.job.slot) ks_engine_slot_release(bed.engine, &bed.job.slot);
}

/* The answer is these bytes, however the body is cut; header: of its JSON head, -1: there is none. */
static void check(const char *query, const char *header_length, const char *body, size_t length, const char *expected,
                  size_t expected_length, int64_t header)
{
    static const size_t chunks[] = {0, 1, 7};
    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        ks_error error = {0};
        ks_response_body response;
        bed.chunk = chunks[i];
        const ks_status status = read_request(query, header_length, body, length, &error);
        if (status != KS_OK) fail_msg("%s: %s", query, error.text);
        run_job();
        assert_int_equal(ks_codec_encode(bed.codec, bed.job.slot->out, &response, &error), KS_OK);
        if (response.length != expected_length || memcmp(response.body, expected, expected_length) != 0)
            fail_msg("got %.*s\nexpected %.*s", (int)response.length, response.body, (int)expected_length, expected);
        assert_int_equal(response.header_length, header);
        assert_true(response.owned == NULL || response.length <= ks_codec_encode_bound(bed.codec));
        free(response.owned);
        end_request();
    }
}

static void refuse(const char *query, const char *header_length, const char *body, size_t length, ks_status expected,
                   const char *sentence)
{
    ks_error error = {0};
    bed.chunk = 0;
    const ks_status status = read_request(query, header_length, body, length, &error);
    end_request();
    if (status != expected || !strstr(error.text, sentence))
        fail_msg("%s: %s '%s', and not %s '%s'", query, ks_status_name(status), error.text, ks_status_name(expected),
                 sentence);
}

#define TEXT(text) text, sizeof text - 1
#define NAMES "\"model_name\":\"wide\",\"model_version\":\"1\",\"outputs\":["
#define X "{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[1,2,3,4]}"
#define MASK "{\"name\":\"INPUT3\",\"datatype\":\"BOOL\",\"shape\":[2,2],\"data\":[true,false,1,0]}"
#define LIMIT "{\"name\":\"INPUT4\",\"datatype\":\"INT32\",\"shape\":[1],\"data\":[2]}"
#define OUT0(values) "{\"name\":\"OUTPUT0\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[" values "]}"
#define OUT1(values) "{\"name\":\"OUTPUT1\",\"datatype\":\"INT64\",\"shape\":[2],\"data\":[" values "]}"

static void json_has_gaps_datatypes_and_two_outputs(void **state)
{
    (void)state;
    static const char body[] = "{\"inputs\":[" LIMIT "," X "]}";
    static const char response[] = "{" NAMES OUT0("1.0,2.0,3.0,4.0") "," OUT1("0,2") "]}";
    check("", NULL, TEXT(body), TEXT(response), -1);
    static const char masked[] = "{\"inputs\":[" X "," MASK "," LIMIT "],\"parameters\":{\"p0\":1,\"p14\":2}}";
    static const char masked_response[] = "{" NAMES OUT0("32.0,0.0,34.0,0.0") "," OUT1("1,1") "]}";
    check("", NULL, TEXT(masked), TEXT(masked_response), -1);
    static const char all[] = "{\"inputs\":[{\"name\":\"INPUT2\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[0.5]}," X
                              "," MASK "," LIMIT ",{\"name\":\"INPUT1\",\"datatype\":\"FP32\",\"shape\":[2],\"data\":["
                              "10,20]}],\"outputs\":[{\"name\":\"OUTPUT1\"},"
                              "{\"name\":\"OUTPUT0\",\"parameters\":{\"classification\":2}}]}";
    static const char all_response[] = "{" NAMES "{\"name\":\"OUTPUT0\",\"datatype\":\"BYTES\",\"shape\":[2],\"data\":["
                                       "\"30.500000:2\",\"10.500000:0\"]}," OUT1("1,1") "]}";
    check("", NULL, TEXT(all), TEXT(all_response), -1);
    static const char one[] = "{\"inputs\":[" X "," LIMIT "],\"outputs\":[{\"name\":\"OUTPUT1\"}]}";
    static const char one_response[] = "{" NAMES OUT1("0,2") "]}";
    check("", NULL, TEXT(one), TEXT(one_response), -1);
}

#define BINARY(name, datatype, shape, size)                                                                            \
    "{\"name\":\"" name "\",\"datatype\":\"" datatype "\",\"shape\":" shape                                            \
    ",\"parameters\":{\"binary_data_size\":" size "}}"
#define ONE "\0\0\x80\x3f"
#define TWO "\0\0\0\x40"
#define THREE "\0\0\x40\x40"
#define FOUR "\0\0\x80\x40"
#define COUNTS "\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"

static size_t json_bytes(const char *body, size_t length)
{
    size_t n = length;
    while (body[n - 1] != '}' || body[n - 2] != ']') n--;
    return n;
}

/* A body whose JSON ends in "]}". */
static void check_binary(const char *body, size_t length, const char *response, size_t response_length)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", json_bytes(body, length));
    for (int again = 0; again < 2; again++) /* the second time the head is known */
        check("", text, body, length, response, response_length, (int64_t)json_bytes(response, response_length));
}

static void blobs_follow_each_other_without_gaps(void **state)
{
    (void)state;
    static const char both[] = "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[" BINARY(
        "INPUT0", "FP32", "[2,2]", "16") "," BINARY("INPUT4", "INT32", "[1]", "4") "]}" ONE TWO THREE FOUR "\2\0\0\0";
    static const char both_response[] = "{" NAMES BINARY("OUTPUT0", "FP32", "[2,2]", "16") "," BINARY(
        "OUTPUT1", "INT64", "[2]", "16") "]}" ONE TWO THREE FOUR COUNTS;
    check_binary(TEXT(both), TEXT(both_response));
    static const char second[] =
        "{\"outputs\":[{\"name\":\"OUTPUT1\",\"parameters\":{\"binary_data\":true}}],\"inputs\":[" BINARY(
            "INPUT4", "INT32", "[1]", "4") "," BINARY("INPUT3", "BOOL", "[2,2]", "4") "," X "]}\2\0\0\0\1\1\1\0";
    static const char second_response[] =
        "{" NAMES BINARY("OUTPUT1", "INT64", "[2]", "16") "]}\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0";
    check_binary(TEXT(second), TEXT(second_response));
    static const char mixed[] = "{\"outputs\":[{\"name\":\"OUTPUT1\",\"parameters\":{\"binary_data\":true}},{\"name\":"
                                "\"OUTPUT0\"}],\"inputs\":[" X "," BINARY("INPUT4", "INT32", "[1]", "4") "]}\2\0\0\0";
    static const char mixed_response[] =
        "{" NAMES OUT0("1.0,2.0,3.0,4.0") "," BINARY("OUTPUT1", "INT64", "[2]", "16") "]}" COUNTS;
    check_binary(TEXT(mixed), TEXT(mixed_response));
}

static void raw_bodies_name_inputs_in_any_order(void **state)
{
    (void)state;
    static const char straight[] = "input=INPUT0&input=INPUT4&shape=2,2&shape=1&datatype=FP32&datatype=INT32";
    check(straight, NULL, TEXT(ONE TWO THREE FOUR "\2\0\0\0"), TEXT(ONE TWO THREE FOUR), -1);
    static const char turned[] = "shape=1&input=INPUT4&datatype=INT32&datatype=BOOL&shape=2,2&input=INPUT3&input=INPUT0"
                                 "&shape=2,2&datatype=FP32&output=OUTPUT1&p1=1";
    check(turned, NULL, TEXT("\2\0\0\0\1\0\1\1" ONE TWO THREE FOUR), TEXT("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"), -1);
    assert_int_equal(ks_codec_request(bed.codec)->spec.in[WIDE_LIMIT].offset, 0); /* small ones lie in front */
    assert_int_equal(ks_codec_request(bed.codec)->spec.in[WIDE_X].offset, KS_ALIGNMENT);
    /* None named: what the metadata declares. */
    check("input=INPUT4&input=INPUT0&shape=1&shape=2,2", NULL, TEXT("\2\0\0\0" ONE TWO THREE FOUR),
          TEXT(ONE TWO THREE FOUR), -1);
    bed.accept_json = true;
    static const char response[] = "{" NAMES OUT0("1.0,2.0,3.0,4.0") "," OUT1("0,2") "]}";
    check(straight, NULL, TEXT(ONE TWO THREE FOUR "\2\0\0\0"), TEXT(response), -1);
    bed.accept_json = false;
}

#define TENSOR(name, dtype, shape, from, to)                                                                           \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void safetensors_hold_all_and_npy_one(void **state)
{
    (void)state;
    static const char head[] =
        "{" TENSOR("INPUT4", "I32", "[1]", "16", "20") "," TENSOR("INPUT0", "F32", "[2,2]", "0", "16") "}";
    static const char response_head[] =
        "{" TENSOR("OUTPUT0", "F32", "[2,2]", "0", "16") "," TENSOR("OUTPUT1", "I64", "[2]", "16", "32") "}";
    char body[512] = "", response[512] = "";
    const size_t padded = (sizeof response_head - 1 + 7) / 8 * 8;
    body[0] = sizeof head - 1;
    memcpy(body + 8, head, sizeof head - 1);
    memcpy(body + 8 + sizeof head - 1, ONE TWO THREE FOUR "\2\0\0\0", 20);
    memset(response + 8, ' ', padded);
    response[0] = (char)padded;
    memcpy(response + 8, response_head, sizeof response_head - 1);
    memcpy(response + 8 + padded, ONE TWO THREE FOUR COUNTS, 32);
    bed.body = &ks_format_safetensors;
    check("", NULL, body, 8 + sizeof head - 1 + 20, response, 8 + padded + 32, -1);
    bed.accept = &ks_format_npy;
    char array[128 + 16];
    memset(array, ' ', sizeof array);
    static const char npy[] = "\x93NUMPY\1\0\x76\0{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }";
    memcpy(array, npy, sizeof npy - 1);
    array[127] = '\n';
    memcpy(array + 128, COUNTS, 16);
    check("output=OUTPUT1", NULL, body, 8 + sizeof head - 1 + 20, array, sizeof array, -1);
    refuse("output=OUTPUT1&output=OUTPUT0", NULL, body, 8 + sizeof head - 1 + 20, KS_NAME, "holds 1 output");
    bed.body = bed.accept = NULL;
}

#define ONE_OUTPUT "\"parameters\":{\"p15\":1}"

/* Of these datatypes OUTPUT0 is INPUT0, so that reading and printing are what is seen. */
static void fp8_and_bool_travel_in_every_format(void **state)
{
    (void)state;
    static const char e4m3[] =
        "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP8E4M3\",\"shape\":[1,6],\"data\":[448,-0.1,1e-9,NaN,"
        "1.0625,0.001953125]}," LIMIT "]," ONE_OUTPUT "}";
    static const char e4m3_response[] =
        "{" NAMES "{\"name\":\"OUTPUT0\",\"datatype\":\"FP8E4M3\",\"shape\":[1,6],\"data\":["
        "448.0,-0.1015625,0.0,NaN,1.0,0.001953125]}]}";
    check("", NULL, TEXT(e4m3), TEXT(e4m3_response), -1);
    static const char e5m2[] =
        "{\"inputs\":[{\"data\":[57344,-Infinity,0.3],\"name\":\"INPUT0\",\"shape\":[1,3],\"datatype\":"
        "\"FP8E5M2\"}," LIMIT "]," ONE_OUTPUT "}";
    static const char e5m2_response[] =
        "{" NAMES "{\"name\":\"OUTPUT0\",\"datatype\":\"FP8E5M2\",\"shape\":[1,3],\"data\":["
        "57344.0,-Infinity,0.3125]}]}";
    check("", NULL, TEXT(e5m2), TEXT(e5m2_response), -1);
    static const char truth[] =
        "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"BOOL\",\"shape\":[1,3],\"data\":[true,0,1]}," LIMIT
        "]," ONE_OUTPUT "}";
    static const char truth_response[] =
        "{" NAMES "{\"name\":\"OUTPUT0\",\"datatype\":\"BOOL\",\"shape\":[1,3],\"data\":[true,false,true]}]}";
    check("", NULL, TEXT(truth), TEXT(truth_response), -1);
    static const char largest[] =
        "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP8E4M3\",\"shape\":[1,3],\"data\":[1,NaN,2]}," LIMIT
        "],\"outputs\":[{\"name\":\"OUTPUT0\",\"parameters\":{\"classification\":2}}]}";
    static const char largest_response[] =
        "{" NAMES "{\"name\":\"OUTPUT0\",\"datatype\":\"BYTES\",\"shape\":[2],\"data\":[\"2.000000:2\","
        "\"1.000000:0\"]}]}";
    check("", NULL, TEXT(largest), TEXT(largest_response), -1);
    check("input=INPUT0&input=INPUT4&shape=1,3&shape=1&datatype=FP8E5M2&datatype=INT32", NULL,
          TEXT("\x7b\xff\1\2\0\0\0"), TEXT("\x7b\xff\1"), -1);
    static const char *const types[] = {"F8_E4M3", "F8_E5M2", "BOOL"};
    bed.body = &ks_format_safetensors;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        char body[256] = "", response[256] = "";
        const int head = snprintf(
            body + 8, 200,
            "{" TENSOR("INPUT0", "%s", "[1,3]", "0", "3") "," TENSOR("INPUT4", "I32", "[1]", "3", "7") "}", types[i]);
        const int wanted = snprintf(response + 8, 200, "{" TENSOR("OUTPUT0", "%s", "[1,3]", "0", "3") "}", types[i]);
        const int padded = (wanted + 7) / 8 * 8;
        memset(response + 8 + wanted, ' ', (size_t)(padded - wanted));
        body[0] = (char)head, response[0] = (char)padded;
        memcpy(body + 8 + head, "\1\0\1\2\0\0\0", 7);
        memcpy(response + 8 + padded, "\1\0\1", 3);
        check("p15=1", NULL, body, (size_t)(8 + head + 7), response, (size_t)(8 + padded + 3), -1);
        body[8 + head + 1] = 2;
        if (i == 2)
            refuse("p15=1", NULL, body, (size_t)(8 + head + 7), KS_RANGE, "'INPUT0' has datatype BOOL and a byte");
        bed.accept = &ks_format_npy;
        body[8 + head + 1] = 0;
        if (i < 2) refuse("", NULL, body, (size_t)(8 + head + 7), KS_DATATYPE, "npy has no type for FP8");
        bed.accept = NULL;
    }
    bed.body = NULL;
}

static void fp8_and_bool_have_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *query, *header_length, *body;
        size_t length;
        ks_status status;
        const char *sentence;
    } rows[] = {
#define JSON(datatype, value)                                                                                          \
    "", NULL,                                                                                                          \
        TEXT("{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"" datatype "\",\"shape\":[1,1],\"data\":[" value        \
             "]}]}")
        {JSON("FP8E4M3", "449"), KS_RANGE, "449 is outside the range of FP8E4M3"},
        {JSON("FP8E4M3", "Infinity"), KS_RANGE, "Infinity is outside the range of FP8E4M3"},
        {JSON("FP8E5M2", "-57345"), KS_RANGE, "-57345 is outside the range of FP8E5M2"},
        {JSON("FP8E5M2", "true"), KS_FIELD, "attempt to access JSON non-number"},
        {JSON("BOOL", "2"), KS_RANGE, "2 is outside the range of BOOL"},
        {"input=INPUT0&input=INPUT4&shape=1,2&shape=1&datatype=BOOL&datatype=INT32", NULL, TEXT("\1\2\0\0\0\0"),
         KS_RANGE, "input 'INPUT0' has datatype BOOL and a byte that is neither 0 nor 1"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        refuse(rows[i].query, rows[i].header_length, rows[i].body, rows[i].length, rows[i].status, rows[i].sentence);
    static const char mask[] = "{\"inputs\":[" X "," LIMIT "," BINARY("INPUT3", "BOOL", "[2,2]", "4") "]}\1\0\xff\0";
    char length[24];
    snprintf(length, sizeof length, "%zu", json_bytes(mask, sizeof mask - 1));
    refuse("", length, TEXT(mask), KS_RANGE, "input 'INPUT3' has datatype BOOL and a byte that is neither 0 nor 1");
    static const char *const models[] = {"softmax", "reduce", "norm"};
    static const char *const datatypes[] = {"FP8E4M3", "FP8E5M2", "BOOL"};
    for (size_t i = 0; i < 9; i++) {
        char query[64];
        if (i == 5) continue; /* reduce takes BOOL */
        bed.model = models[i / 3];
        snprintf(query, sizeof query, "shape=2,2&datatype=%s", datatypes[i % 3]);
        refuse(query, NULL, "", 0, KS_DATATYPE, "inference input 'INPUT0' data-type is '");
    }
    bed.model = "wide";
}

/* OUTPUT1 is there with some parameters only. */
static void outputs_are_as_many_as_the_work_has(void **state)
{
    (void)state;
    static const char body[] = "{\"inputs\":[" LIMIT "," X "],\"parameters\":{\"p15\":1}}";
    static const char response[] = "{" NAMES OUT0("17.0,18.0,19.0,20.0") "]}";
    check("", NULL, TEXT(body), TEXT(response), -1);
    static const char wanted[] =
        "{\"inputs\":[" LIMIT "," X "],\"parameters\":{\"p15\":1},\"outputs\":[{\"name\":\"OUTPUT1\"}]}";
    refuse("", NULL, TEXT(wanted), KS_NAME, "unexpected inference output 'OUTPUT1' for model 'wide'");
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *query, *body;
        ks_status status;
        const char *sentence;
    } rows[] = {
        {"", "{\"inputs\":[" X "," MASK "]}", KS_NAME,
         "expected 3 inputs but got 2 inputs for model 'wide'. Got input(s) ['INPUT0','INPUT3'], but missing required "
         "input(s) ['INPUT4']"},
        {"", "{\"inputs\":[" X "," LIMIT "],\"outputs\":[{\"name\":\"OUTPUT2\"}]}", KS_NAME,
         "unexpected inference output"},
        {"", "{\"inputs\":[" X "," LIMIT "],\"outputs\":[{\"name\":\"OUTPUT1\"},{\"name\":\"OUTPUT1\"}]}", KS_NAME,
         "output 'OUTPUT1' already exists"},
        {"", "{\"inputs\":[" X ",{\"name\":\"INPUT4\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[2]}]}", KS_DATATYPE,
         "inference input 'INPUT4' data-type is 'FP32', but model 'wide' expects 'INT32'"},
        {"", "{\"inputs\":[{\"name\":\"INPUT5\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[2]}]}", KS_NAME,
         "unexpected inference input 'INPUT5'"},
        {"input=INPUT0&shape=2,2&shape=1", "", KS_NAME, "names 1 inputs and 2 shapes"},
        {"shape=2,2&shape=2", "", KS_NAME, "no shape for input 'INPUT4'"},
        {"input=INPUT9&shape=2,2", "", KS_NAME, "unexpected inference input 'INPUT9'"},
        {"input=INPUT0&input=INPUT0&shape=2,2&shape=1", "", KS_NAME, "input 'INPUT0' already exists"},
        {"input=INPUT0&input=INPUT4&shape=2,2&shape=1&datatype=FP32", "", KS_DATATYPE, "expects 'INT32'"},
        {"input=INPUT0&input=INPUT4&shape=2,2&shape=1&datatype=FP32&datatype=INT32&datatype=INT32", "", KS_DATATYPE,
         "names 3 datatypes and 2 shapes"},
        {"shape=2,2&datatype=FP32&datatype=FP32", "", KS_NAME, "expected 2 inputs but the query has 1 shapes"},
        {"shape=2,2&output=OUTPUT7", "", KS_NAME, "unexpected inference output 'OUTPUT7'"},
        {"input=INPUT0&input=INPUT4&shape=2,2&shape=1&output=OUTPUT0&output=OUTPUT1&datatype=FP32&datatype=INT32",
         "aaaaaaaaaaaaaaaaaaaa", KS_NAME, "a raw answer holds 1 output"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        refuse(rows[i].query, NULL, rows[i].body, strlen(rows[i].body), rows[i].status, rows[i].sentence);
    bed.model = "softmax";
    refuse("shape=1&datatype=FP32&datatype=FP32", NULL, "", 0, KS_DATATYPE, "the query names 'datatype' twice");
    refuse("shape=1&output=OUTPUT1", NULL, "", 0, KS_NAME, "unexpected inference output 'OUTPUT1'");
    bed.model = "wide";
}

static int open_bed(void **state)
{
    (void)state;
    ks_error error;
    ks_models_init();
    ks_models_add(&op_wide);
    ks_cpu_add_op(&op_wide, &wide_cpu);
    bed.model = "wide";
    bed.codec = calloc(1, ks_codec_size());
    bed.head_cache = ks_head_cache_open();
    bed.budget = ks_budget_open(64 << 20);
    bed.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const ks_limits limits = {.device_index = -1, .lanes = 1, .lane_bytes = SIDE, .workspace_bytes = SIDE};
    assert_int_equal(ks_backend_cpu->open(&limits, &bed.device, &error), KS_OK);
    const ks_engine_options options = {.backend = ks_backend_cpu,
                                       .device = bed.device,
                                       .budget = bed.budget,
                                       .lanes = 1,
                                       .classes = 1,
                                       .size_class = {{.side_bytes = SIDE, .count = 4}},
                                       .plan_bytes = 1 << 20,
                                       .queue_max = 8,
                                       .stall_ns = 60000000000,
                                       .scrub = true,
                                       .wake_fd = bed.wake_fd};
    assert_int_equal(ks_engine_open(&options, &bed.engine, &error), KS_OK);
    return 0;
}

static int close_bed(void **state)
{
    (void)state;
    ks_engine_stats stats;
    ks_engine_read_stats(bed.engine, &stats);
    assert_int_equal(stats.slot_used_bytes, 0);
    ks_engine_close(&bed.engine);
    ks_backend_cpu->close(&bed.device);
    assert_int_equal(ks_budget_used(bed.budget), 0);
    ks_budget_close(&bed.budget);
    ks_head_cache_close(&bed.head_cache);
    free(bed.codec);
    close(bed.wake_fd);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_gaps_datatypes_and_two_outputs),
        cmocka_unit_test(blobs_follow_each_other_without_gaps),
        cmocka_unit_test(raw_bodies_name_inputs_in_any_order),
        cmocka_unit_test(safetensors_hold_all_and_npy_one),
        cmocka_unit_test(fp8_and_bool_travel_in_every_format),
        cmocka_unit_test(fp8_and_bool_have_bounds),
        cmocka_unit_test(outputs_are_as_many_as_the_work_has),
        cmocka_unit_test(wrong_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, open_bed, close_bed);
}
