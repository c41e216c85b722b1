/* The gate, the routes, plain heads, the warm specs and the times of a request: tables of heads and what each gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/head.h"
#include "request/infer.h"
#include "base/request_id.h"
#include "api/openapi.h"
#include "http/chunked.h"
#include "http/plain_head.h"
#include "http/response.h"
#include "api/routes.h"
#include "request/timing.h"
#include "engine/tune/warm.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static const char *const hosts[] = {"gpu.example"};
static const ks_check_rules plain = {
    .max_uri = 100, .max_header = 1024, .max_fields = 8, .max_body = 1000, .hosts = hosts, .hosts_count = 1};

/* fields: "Name: value" lines, each ended by '\n'. The text must outlive the head. */
static void read_head(ks_head *head, char *fields, const char *target, const char *version)
{
    ks_head_init(head, target, strlen(target), version);
    for (char *line = fields; *line;) {
        char *end = strchr(line, '\n'), *colon = strchr(line, ':');
        char *value = colon + 2;
        *end = *colon = '\0';
        ks_head_add(head, line, (size_t)(colon - line), value, (size_t)(end - value));
        line = end + 1;
    }
}

static ks_status judge(const char *text, const char *version, ks_head *head, ks_error *error)
{
    static char fields[8192];
    assert_true(strlen(text) < sizeof fields);
    strcpy(fields, text);
    read_head(head, fields, "/v2", version);
    return ks_check_head(&plain, head, error);
}

#define H "Host: localhost\n"
static const struct {
    const char *fields;
    ks_status status;
} wire_rows[] = {
    {H, KS_OK},
    {H "Content-Length: 4\n", KS_OK},
    {H "Content-Length: 0\n", KS_OK},
    {H "Transfer-Encoding: chunked\n", KS_OK},
    {H "transfer-encoding: Chunked\n", KS_OK},
    {H "Expect: 100-continue\n", KS_OK},
    {H "Accept: a\nAccept: b\n", KS_OK},
    {H "X-A: tab\there\n", KS_OK},
    {H "Content-Length: 4\nContent-Length: 4\n", KS_FRAMING},
    {H "Content-Length: 4\ncontent-length: 5\n", KS_FRAMING},
    {H "Content-Length: 4\nContent-Length: 14\n", KS_FRAMING},
    {H "Content-Length: 4\nContent-Length: \n", KS_FRAMING},
    {H "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n", KS_FRAMING},
    {H "Transfer-Encoding: chunked\nContent-Length: 4\n", KS_FRAMING},
    {H "Transfer-Encoding: gzip, chunked\n", KS_FRAMING},
    {H "Transfer-Encoding: identity\n", KS_FRAMING},
    {H "Transfer-Encoding: \n", KS_FRAMING},
    {H "Content-Length: \n", KS_FRAMING},
    {H "Content-Length: -1\n", KS_FRAMING},
    {H "Content-Length: 4 \n", KS_FRAMING},
    {H "Content-Length: 0x4\n", KS_FRAMING},
    {H "Content-Length: 9223372036854775808\n", KS_BODY_SIZE},
    {H H, KS_FRAMING},
    {H "Content-Type: a\nContent-Type: a\n", KS_FRAMING},
    {H "Content-Encoding: gzip\nContent-Encoding: gzip\n", KS_FRAMING},
    {H "Authorization: a\nAuthorization: b\n", KS_FRAMING},
    {H "Expect: 100-continue\nExpect: 100-continue\n", KS_FRAMING},
    {H "Inference-Header-Content-Length: 1\nInference-Header-Content-Length: 1\n", KS_FRAMING},
    {H "Expect: 200-ok\n", KS_EXPECT},
    {H "X A: b\n", KS_HEADER},
    {H ": b\n", KS_HEADER},
    {H "Content-Length : 4\n", KS_HEADER},
    {H "X(A): b\n", KS_HEADER},
    {H "X-\xc3\xa4: b\n", KS_HEADER},
    {H "X-A: b\x01\n", KS_HEADER},
    {H "X-A: b\x7f\n", KS_HEADER},
    {H "X-A: \r\n", KS_HEADER},
    {H "A: 1\nB: 2\nC: 3\nD: 4\nE: 5\nF: 6\nG: 7\n", KS_OK},
    {H "A: 1\nB: 2\nC: 3\nD: 4\nE: 5\nF: 6\nG: 7\nI: 8\n", KS_HEADERS},
    {"X-A: b\n", KS_NO_HOST},
};

static void wire_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(wire_rows); i++) {
        ks_error error = {0};
        ks_head head;
        ks_status status = judge(wire_rows[i].fields, "HTTP/1.1", &head, &error);
        if (status != wire_rows[i].status)
            fail_msg("row %zu, %s: got %s (%s)", i, wire_rows[i].fields, ks_status_name(status), error.text);
        assert_true(status == KS_OK || (error.status == status && error.text[0]));
    }
}

static void wire_values(void **state)
{
    ks_error error;
    ks_head head;
    (void)state;
    assert_int_equal(judge(H "Content-Length: 9223372036854775807\n", "HTTP/1.1", &head, &error), KS_OK);
    assert_true(head.content_length == INT64_MAX && !head.chunked && !head.expects);
    assert_int_equal(judge(H "Transfer-Encoding: chunked\nExpect: 100-Continue\n", "HTTP/1.1", &head, &error), KS_OK);
    assert_true(head.content_length == -1 && head.chunked && head.expects);
    assert_int_equal(judge("X-A: b\n", "HTTP/1.0", &head, &error), KS_OK);
    assert_int_equal(judge("Transfer-Encoding: chunked\n", "HTTP/1.0", &head, &error), KS_FRAMING);
}

static void wire_sizes(void **state)
{
    char target[103] = "/", fields[1200] = H;
    ks_error error;
    ks_head head;
    (void)state;
    memset(target + 1, 'a', sizeof target - 2);
    ks_head_init(&head, target, 101, "HTTP/1.0");
    assert_int_equal(ks_check_head(&plain, &head, &error), KS_URI);
    ks_head_init(&head, target, 100, "HTTP/1.0");
    assert_int_equal(ks_check_head(&plain, &head, &error), KS_OK);
    /* 1024 bytes in all: Host and its punctuation 17, the other field's name and punctuation 5. */
    for (size_t value = 1002; value <= 1003; value++) {
        snprintf(fields, sizeof fields, H "A: %0*d\n", (int)value, 0);
        assert_int_equal(judge(fields, "HTTP/1.1", &head, &error), value == 1002 ? KS_OK : KS_HEADERS);
    }
}

/* What a reader hands over that has no value, and a field of one that comes again. */
static void fields_without_a_value(void **state)
{
    ks_error error;
    ks_head head;
    (void)state;
    ks_head_init(&head, "/v2", 3, "HTTP/1.1");
    ks_head_add(&head, "Host", 4, NULL, 77);
    ks_head_add(&head, "X-A", 3, NULL, 77);
    assert_int_equal(head.bytes, 4 + 3 + 2 * 4);
    assert_int_equal(ks_check_head(&plain, &head, &error), KS_NO_HOST);
    ks_head_add(&head, "Host", 4, "localhost", 9);
    ks_head_add(&head, "Authorization", 13, "a", 1);
    ks_head_add(&head, "Authorization", 13, "b", 1);
    assert_int_equal(ks_check_head(&plain, &head, &error), KS_FRAMING);
    assert_non_null(strstr(error.text, "Host")); /* the first one is told */
}

static const struct {
    const char *fields;
    bool loopback, open;
    ks_status status;
} access_rows[] = {
    {"Host: localhost\n", 1, 0, KS_OK},
    {"Host: LocalHost:8000\n", 1, 0, KS_OK},
    {"Host: 127.0.0.1:1\n", 1, 0, KS_OK},
    {"Host: [::1]\n", 1, 0, KS_OK},
    {"Host: [::1]:8000\n", 1, 0, KS_OK},
    {"Host: gpu.example:8000\n", 1, 0, KS_OK},
    {"Host: evil.example\n", 1, 0, KS_HOST},
    {"Host: localhost.evil.example\n", 1, 0, KS_HOST},
    {"Host: 127.0.0.1.evil.example\n", 1, 0, KS_HOST},
    {"Host: localhost:\n", 1, 0, KS_OK},
    {"Host: 10.0.0.7:8000\n", 1, 1, KS_OK},
    {"Host: evil.example\n", 0, 0, KS_OK},
    {"Host: localhost\nOrigin: http://localhost:3000\n", 1, 0, KS_OK},
    {"Host: localhost\nOrigin: https://gpu.example\n", 0, 0, KS_OK},
    {"Host: localhost\nOrigin: http://evil.example\n", 1, 0, KS_ORIGIN},
    {"Host: localhost\nOrigin: http://localhost.evil\n", 0, 1, KS_ORIGIN},
    {"Host: localhost\nOrigin: null\n", 1, 0, KS_ORIGIN},
    {"Host: localhost\nOrigin: \n", 1, 0, KS_ORIGIN},
};

static const struct {
    const char *host;
    bool good;
} host_rows[] = {
    {"a", 1},          {"gpu-1.example_x~:8000", 1},
    {"a%20b", 1},      {"[fe80::1%25eth0]:1", 1},
    {"localhost:", 1}, {"", 0},
    {":80", 0},        {"a:80x", 0},
    {"a:8/0", 0},      {"a@b", 0},
    {"a/b", 0},        {"a, b", 0},
    {"a,b", 0},        {"a b", 0},
    {"[::1", 0},       {"[::1]x", 0},
    {"[::1@a]", 0},    {"a\"b", 0},
    {"a\xc3\xa9", 0},  {"a#b", 0},
};

static void hosts_are_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(host_rows); i++) {
        ks_error error = {0};
        ks_head head;
        ks_head_init(&head, "/v2", 3, "HTTP/1.1");
        ks_head_add(&head, "Host", 4, host_rows[i].host, strlen(host_rows[i].host));
        const ks_status status = ks_check_head(&plain, &head, &error);
        if (status != (host_rows[i].good ? KS_OK : KS_NO_HOST))
            fail_msg("%s: %s", host_rows[i].host, ks_status_name(status));
    }
}

static const struct {
    const char *method, *target;
    bool good;
} target_rows[] = {
    {"GET", "/", 1},
    {"GET", "/v2/models/%ff%00/a?b=c:d@e~!$'()*+,;", 1},
    {"GET", "http://localhost/v2", 1},
    {"OPTIONS", "*", 1},
    {"CONNECT", "a:443", 1},
    {"GET", "*", 0},
    {"GET", "a:443", 0},
    {"GET", "v2", 0},
    {"GET", "/v2#a", 0},
    {"GET", "/v2/models/\xc3\xa9", 0},
    {"GET", "/1234567\x80", 0},
    {"GET", "/\xff", 0},
    {"OPTIONS", "**", 0},
    {"GET", "/123456\x80", 0},
    {"GET", "/12345678901234#", 0},
};

static void targets_are_paths(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(target_rows); i++) {
        ks_error error = {0};
        ks_head head;
        ks_head_init(&head, target_rows[i].target, strlen(target_rows[i].target), "HTTP/1.1");
        head.method = target_rows[i].method;
        ks_head_add(&head, "Host", 4, "a", 1);
        const ks_status status = ks_check_head(&plain, &head, &error);
        if (status != (target_rows[i].good ? KS_OK : KS_REQUEST_LINE))
            fail_msg("%s %s: %s", target_rows[i].method, target_rows[i].target, ks_status_name(status));
    }
}

static void access_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(access_rows); i++) {
        ks_error error = {0};
        ks_head head;
        assert_int_equal(judge(access_rows[i].fields, "HTTP/1.1", &head, &error), KS_OK);
        ks_status status = ks_check_access(&plain, &head, access_rows[i].loopback, access_rows[i].open, false, &error);
        if (status != access_rows[i].status) fail_msg("%s: got %s", access_rows[i].fields, ks_status_name(status));
    }
}

static void token_table(void **state)
{
    static const struct {
        const char *fields;
        bool good;
    } rows[] = {
        {H "Authorization: Bearer first-secret\n", 1},
        {H "Authorization: bearer second\n", 1},
        {H "Authorization: Bearer second \n", 0},
        {H "Authorization: Bearer secon\n", 0},
        {H "Authorization: Bearer secondsecond\n", 0},
        {H "Authorization: Bearer \n", 0},
        {H "Authorization: Basic second\n", 0},
        {H "Authorization: second\n", 0},
        {H "Authorization: \n", 0},
        {H, 0},
    };
    ks_tokens *tokens = calloc(1, sizeof *tokens + 2 * sizeof tokens->item[0]);
    ks_check_rules rules = plain;
    (void)state;
    tokens->count = 2;
    tokens->item[0] = (ks_token){.text = "first-secret", .length = 12, .rights = KS_RIGHTS_ALL};
    tokens->item[1] = (ks_token){.text = "second", .length = 6, .rights = KS_RIGHT_INFER};
    rules.tokens = tokens;
    for (size_t i = 0; i < COUNT(rows); i++) {
        ks_error error;
        ks_head head;
        assert_int_equal(judge(rows[i].fields, "HTTP/1.1", &head, &error), KS_OK);
        ks_status status = ks_check_access(&rules, &head, true, false, false, &error);
        if (status != (rows[i].good ? KS_OK : KS_UNAUTHORIZED)) fail_msg("%s", rows[i].fields);
        /* The right that is asked for is that of the token that came. */
        const bool operator= status == KS_OK && head.rights == KS_RIGHTS_ALL;
        assert_int_equal(operator, i == 0);
        if (status == KS_OK) {
            assert_int_equal(ks_check_right(&head, 0, &error), KS_OK);
            assert_int_equal(ks_check_right(&head, KS_RIGHT_INFER, &error), KS_OK);
            assert_int_equal(ks_check_right(&head, KS_RIGHT_OPERATOR, &error), operator? KS_OK : KS_FORBIDDEN);
        }
        assert_int_equal(ks_check_access(&rules, &head, true, true, true, &error), KS_OK);
    }
    free(tokens);
}

/* Without a token file there is nobody to tell apart. */
static void rights_without_tokens(void **state)
{
    ks_error error;
    ks_head head;
    (void)state;
    assert_int_equal(judge(H, "HTTP/1.1", &head, &error), KS_OK);
    assert_int_equal(ks_check_access(&plain, &head, true, false, false, &error), KS_OK);
    assert_int_equal(ks_check_right(&head, KS_RIGHT_OPERATOR, &error), KS_OK);
}

/* A POST that is not named here needs the operator's right: whoever adds a route decides. */
static void rights_of_routes(void **state)
{
    (void)state;
    ks_route_row row;
    for (int i = 0; ks_route_at(i, &row); i++) {
        const bool infers = row.id == KS_ROUTE_INFER, lists = row.id == KS_ROUTE_REPOSITORY;
        const bool loads = row.id == KS_ROUTE_LOAD || row.id == KS_ROUTE_UNLOAD;
        const unsigned right = infers ? KS_RIGHT_INFER : lists ? 0u : loads ? KS_RIGHT_MODELS : KS_RIGHT_OPERATOR;
        if (row.works && row.right != right) fail_msg("%s", row.path);
    }
    ks_route route;
    ks_error error;
    assert_int_equal(ks_route_find("GET", "/v2/logging", false, "", &route, &error), KS_OK);
    assert_int_equal(route.right, 0);
    assert_int_equal(ks_route_find("POST", "/v2/logging", false, "", &route, &error), KS_OK);
    assert_int_equal(route.right, KS_RIGHT_OPERATOR);
}

static void body_table(void **state)
{
    static const struct {
        const char *fields;
        ks_status status;
        ks_body_encoding encoding;
    } rows[] = {
        {H, KS_OK, KS_BODY_PLAIN},
        {H "Content-Encoding: identity\n", KS_OK, KS_BODY_PLAIN},
        {H "Content-Encoding: gzip\n", KS_OK, KS_BODY_GZIP},
        {H "Content-Encoding: deflate\n", KS_OK, KS_BODY_DEFLATE},
        {H "Content-Encoding: br\n", KS_ENCODING, KS_BODY_PLAIN},
        {H "Content-Encoding: gzip, gzip\n", KS_ENCODING, KS_BODY_PLAIN},
        {H "Content-Encoding: \n", KS_ENCODING, KS_BODY_PLAIN},
        {H "Content-Length: 1000\n", KS_OK, KS_BODY_PLAIN},
        {H "Content-Length: 1001\n", KS_BODY_SIZE, KS_BODY_PLAIN},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        ks_error error;
        ks_head head;
        assert_int_equal(judge(rows[i].fields, "HTTP/1.1", &head, &error), KS_OK);
        assert_int_equal(ks_check_body(plain.max_body, &head, &error), rows[i].status);
        assert_int_equal(head.encoding, rows[i].encoding);
    }
}

static const struct {
    const char *method, *target;
    ks_status status;
    ks_route_id id;
    const char *said; /* allowed methods, or the sentence */
} route_rows[] = {
    {"GET", "/", KS_OK, KS_ROUTE_INDEX, ""},
    {"GET", "/v2", KS_OK, KS_ROUTE_SERVER, ""},
    {"GET", "/v2/", KS_OK, KS_ROUTE_SERVER, ""},
    {"HEAD", "/v2?test_1=1&test_2=2", KS_OK, KS_ROUTE_SERVER, ""},
    {"GET", "/v2//", KS_PATH, KS_ROUTE_NONE, "Not Found"},
    {"GET", "//v2", KS_PATH, KS_ROUTE_NONE, "Not Found; GET / lists the routes"},
    {"GET", "/v2/../v2", KS_PATH, KS_ROUTE_NONE, "Not Found"},
    {"GET", "/V2", KS_PATH, KS_ROUTE_NONE, "Not Found; GET / lists the routes"},
    {"GET", "/%76%32", KS_PATH, KS_ROUTE_NONE, "Not Found; GET / lists the routes"},
    {"GET", "v2", KS_PATH, KS_ROUTE_NONE, "Not Found; GET / lists the routes"},
    {"OPTIONS", "*", KS_OK, KS_ROUTE_OPTIONS, ""},
    {"TRACE", "*", KS_PATH, KS_ROUTE_NONE, "Not Found; GET / lists the routes"},
    {"OPTIONS", "/v2", KS_METHOD, KS_ROUTE_SERVER, "GET, HEAD"},
    {"GET", "http://localhost/v2", KS_PATH, KS_ROUTE_NONE, "Not Found; GET / lists the routes"},
    {"GET", "/v2/health/live", KS_OK, KS_ROUTE_LIVE, ""},
    {"GET", "/v2/health/ready", KS_OK, KS_ROUTE_READY, ""},
    {"HEAD", "/livez", KS_OK, KS_ROUTE_LIVE, ""},
    {"GET", "/readyz", KS_OK, KS_ROUTE_READY, ""},
    {"GET", "/healthz", KS_OK, KS_ROUTE_READY, ""},
    {"GET", "/healthz/", KS_PATH, KS_ROUTE_NONE, "Not Found; GET / lists the routes"},
    {"GET", "/metrics", KS_OK, KS_ROUTE_METRICS, ""},
    {"POST", "/metrics", KS_METHOD, KS_ROUTE_METRICS, "GET, HEAD"},
    {"GET", "/v2/models/softmax", KS_OK, KS_ROUTE_MODEL, ""},
    {"GET", "/v2/models/soft%6Dax", KS_OK, KS_ROUTE_MODEL, ""},
    {"GET", "/v2/models/softmax%2F", KS_PATH, KS_ROUTE_MODEL, "Not Found"},
    {"GET", "/v2/models/softmax%00", KS_PATH, KS_ROUTE_MODEL, "Not Found"},
    {"GET", "/v2/models/softmax%0", KS_PATH, KS_ROUTE_MODEL, "Not Found"},
    {"GET", "/v2/models/softmax%zz", KS_PATH, KS_ROUTE_MODEL, "Not Found"},
    {"GET", "/v2/models//ready", KS_PATH, KS_ROUTE_NONE, "Not Found"},
    {"GET", "/v2/models/stats", KS_OK, KS_ROUTE_ALL_STATS, ""},
    {"GET", "/v2/models/softmax/stats", KS_OK, KS_ROUTE_MODEL_STATS, ""},
    {"GET", "/v2/models/nope/stats", KS_MODEL, KS_ROUTE_MODEL_STATS, "requested model 'nope' is not available"},
    {"GET", "/v2/models/softmax/versions/1", KS_OK, KS_ROUTE_MODEL, ""},
    {"GET", "/v2/models/softmax/versions/1/ready", KS_OK, KS_ROUTE_MODEL_READY, ""},
    {"GET", "/v2/models/softmax/versions/1/config", KS_OK, KS_ROUTE_MODEL_CONFIG, ""},
    {"GET", "/v2/models/softmax/versions/001", KS_OK, KS_ROUTE_MODEL, ""},
    {"GET", "/v2/models/softmax/versions/0", KS_MODEL, KS_ROUTE_MODEL,
     "Request for unknown model: 'softmax' version 0 is not found"},
    {"GET", "/v2/models/softmax/versions/11", KS_MODEL, KS_ROUTE_MODEL,
     "Request for unknown model: 'softmax' version 11 is not found"},
    {"GET", "/v2/models/softmax/versions/v1", KS_PATH, KS_ROUTE_NONE, "Not Found"},
    {"GET", "/v2/models/softmax/versions/", KS_PATH, KS_ROUTE_NONE, "Not Found"},
    {"GET", "/v2/models/softmax/versions/2", KS_MODEL, KS_ROUTE_MODEL,
     "Request for unknown model: 'softmax' version 2 is not found"},
    {"POST", "/v2/models/softmax/versions/99999999999999999999999/infer", KS_MODEL, KS_ROUTE_INFER,
     "Request for unknown model: 'softmax' version 99999999999999999999 is not found"},
    {"POST", "/v2/models/softmax/infer", KS_OK, KS_ROUTE_INFER, ""},
    {"POST", "/v2/models/matmul/versions/1/infer?shape=1", KS_OK, KS_ROUTE_INFER, ""},
    {"POST", "/v2/models/nope/infer", KS_MODEL, KS_ROUTE_INFER, "Request for unknown model: 'nope' is not found"},
    {"GET", "/v2/models/nope/infer", KS_METHOD, KS_ROUTE_INFER, "POST"},
    {"GET", "/v2/models/softmax/plan?shape=4", KS_OK, KS_ROUTE_PLAN, ""},
    {"HEAD", "/v2/models/softmax/versions/1/plan", KS_OK, KS_ROUTE_PLAN, ""},
    {"POST", "/v2/models/softmax/plan", KS_METHOD, KS_ROUTE_PLAN, "GET, HEAD"},
    {"GET", "/v2/models/nope/plan", KS_MODEL, KS_ROUTE_PLAN, "Request for unknown model: 'nope' is not found"},
    {"POST", "/v2/models/softmax", KS_METHOD, KS_ROUTE_MODEL, "GET, HEAD, PUT, DELETE"},
    {"PUT", "/v2/models/mine", KS_OK, KS_ROUTE_MODEL, ""},
    {"DELETE", "/v2/models/mine", KS_OK, KS_ROUTE_MODEL, ""},
    {"DELETE", "/v2/models/softmax/versions/1", KS_METHOD, KS_ROUTE_MODEL, "GET, HEAD"},
    {"GET", "/v2/models/softmax/definition", KS_OK, KS_ROUTE_DEFINITION, ""},
    {"PUT", "/v2/models/softmax/definition", KS_METHOD, KS_ROUTE_DEFINITION, "GET, HEAD"},
    {"HEAD", "/v2/models/softmax/infer", KS_METHOD, KS_ROUTE_INFER, "POST"},
    {"POST", "/v2/models/softmax/infer/", KS_PATH, KS_ROUTE_NONE, "Not Found"},
    {"POST", "/v2/models/softmax/generate", KS_PATH, KS_ROUTE_NONE, "Not Found"},
};

static void route_table(void **state)
{
    (void)state;
    ks_models_init();
    for (size_t i = 0; i < COUNT(route_rows); i++) {
        ks_error error = {0};
        ks_route route;
        ks_status status = ks_route_find(route_rows[i].method, route_rows[i].target, false, "", &route, &error);
        const char *said = status == KS_METHOD ? route.allow : error.text;
        if (status != route_rows[i].status || route.id != route_rows[i].id || strcmp(said, route_rows[i].said) != 0)
            fail_msg("%s %s: got %s, route %d, %s", route_rows[i].method, route_rows[i].target, ks_status_name(status),
                     (int)route.id, said);
    }
}

static void admin_routes(void **state)
{
    static const char *const there[] = {"/", "/metrics", "/livez", "/v2/health/ready"};
    static const char *const elsewhere[] = {"/v2", "/v2/models/softmax", "/v2/models/stats",
                                            "/v2/models/softmax/plan?shape=4"};
    ks_error error;
    ks_route route;
    (void)state;
    for (size_t i = 0; i < COUNT(there); i++)
        assert_int_equal(ks_route_find("GET", there[i], true, "", &route, &error), KS_OK);
    for (size_t i = 0; i < COUNT(elsewhere); i++)
        assert_int_equal(ks_route_find("GET", elsewhere[i], true, "", &route, &error), KS_PATH);
    assert_int_equal(ks_route_find("POST", "/v2/models/softmax/infer", true, "", &route, &error), KS_PATH);
}

static void route_query(void **state)
{
    ks_error error;
    ks_route route;
    (void)state;
    assert_int_equal(ks_route_find("POST", "/v2/models/softmax/infer?shape=1,2&x=%20?", false, "", &route, &error),
                     KS_OK);
    assert_string_equal(route.query, "shape=1,2&x=%20?");
    assert_string_equal(route.model->name, "softmax");
    assert_int_equal(ks_route_find("GET", "/v2/health/live", false, "", &route, &error), KS_OK);
    assert_string_equal(route.query, "");
    assert_true(route.open && route.authorized);
    assert_int_equal(ks_route_find("GET", "/metrics", false, "", &route, &error), KS_OK);
    assert_true(route.open && !route.authorized);
}

static void warm_table(void **state)
{
    static const struct {
        const char *text;
        ks_status status;
    } rows[] = {
        {"softmax:64,1024:FP32", KS_OK},
        {"softmax:64,1024", KS_OK},
        {"matmul:64,128:128,256:FP16", KS_OK},
        {"reduce_mean:4,5,6:FP64", KS_OK},
        {"matmul:64,128:128,256:256:FP16", KS_OK},
        {"matmul:64,128:128,256:FP32?precision=tf32&alpha=-0.5", KS_OK},
        {"matmul:128,64:128,256?transpose_a=1&activation=gelu", KS_OK},
        {"gather:1000,64:5", KS_OK},
        {"gather:1000,64:5:FP16,INT64?mode=wrap", KS_OK},
        {"gather_bag:1000,64:5:3:5:BF16,INT64,INT32,FP32?op=mean", KS_OK},
        {"map_where:4,5:4,5:5", KS_OK},
        {"gather:1000,64:5:FP32", KS_CONFIG},
        {"gather:1000,64:5:FP32,INT64,INT64", KS_CONFIG},
        {"gather_bag:1000,64:5:3:FP32,INT64", KS_CONFIG},
        {"gather:1000,64:5:FP32,", KS_CONFIG},
        {"matmul:64,128:128,256:255:FP16", KS_CONFIG},
        {"matmul:64,128:128,256:FP32?precision=tf16", KS_CONFIG},
        {"matmul:64,128:128,256:FP32?alpha=", KS_CONFIG},
        {"matmul:64,128:128,256:FP32?alpha=1x", KS_CONFIG},
        {"matmul:64,128:128,256:FP32?beta=1", KS_CONFIG},
        {"matmul:64,128:128,256:FP32?alpha", KS_CONFIG},
        {"matmul:64,128?alpha=1", KS_CONFIG},
        {"nope:1:FP32", KS_CONFIG},
        {"softmax", KS_CONFIG},
        {"softmax:", KS_CONFIG},
        {"softmax:1,:FP32", KS_CONFIG},
        {"softmax:,1:FP32", KS_CONFIG},
        {"softmax:-1:FP32", KS_CONFIG},
        {"softmax:1:fp32", KS_CONFIG},
        {"softmax:1:FP32:FP32", KS_CONFIG},
        {"matmul:64,128:FP16", KS_CONFIG},
        {"matmul:64,128:127,256:FP16", KS_CONFIG},
        {"softmax:1:INT8", KS_CONFIG},
        {"softmax:1,1,1,1,1,1,1,1,1:FP32", KS_CONFIG},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        ks_error error = {0};
        ks_spec spec;
        ks_status status = ks_warm_spec("--warm", rows[i].text, &spec, &error);
        if (status != rows[i].status) fail_msg("%s: got %s (%s)", rows[i].text, ks_status_name(status), error.text);
        assert_true(status != KS_OK || spec.out[0].size_bytes > 0);
    }
}

/* The text's figures: those before total add up to it exactly, whatever the times were. */
static const ks_identity nobody;

static void times_add_up(void **state)
{
    const char *given = getenv("KS_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    (void)state;
    print_message("KS_SEED=%u\n", seed);
    srand(seed);
    for (int i = 0; i < 2000; i++) {
        ks_job job = {.graph = (ks_graph)(rand() % 3)};
        int64_t scale = 1 + rand() % 100000;
        ks_times times = {.first_ns = 1000000 + rand(), .decode_ns = rand() % scale};
        job.submitted_ns = times.first_ns + times.decode_ns + rand() % scale;
        job.launched_ns = job.submitted_ns + rand() % scale;
        job.h2d_ns = rand() % 2 ? rand() % scale : 0;
        job.d2h_ns = rand() % 2 ? rand() % scale : 0;
        job.done_ns = job.launched_ns + job.h2d_ns + job.d2h_ns + 1 + rand() % scale;
        job.compute_ns = job.done_ns - job.launched_ns - job.h2d_ns - job.d2h_ns;
        times.answered_ns = job.done_ns + rand() % scale;
        char text[KS_TIMING_MAX];
        ks_times_text(&times, &job, &nobody, text);
        assert_true(strlen(text) < sizeof text);
        int64_t sum_us = 0, total_us = -1;
        for (char *at = text; (at = strstr(at, ";dur=")) != NULL; at += 5) {
            int64_t us = llround(strtod(at + 5, NULL) * 1000);
            bool total = at - text >= 5 && strncmp(at - 5, "total", 5) == 0;
            total_us = total ? us : total_us;
            sum_us += total ? 0 : us;
        }
        if (sum_us != total_us) fail_msg("%s", text);
        assert_true(llabs(total_us * 1000 - (times.answered_ns - times.first_ns)) <= 500);
        assert_true((strstr(text, "h2d;") != NULL) == (job.h2d_ns > 0));
    }
}

static void times_longest(void **state)
{
    char text[KS_TIMING_MAX];
    const int64_t hour = 3600ll * 1000000000;
    ks_job job = {.submitted_ns = 2 * hour,
                  .launched_ns = 3 * hour,
                  .h2d_ns = hour,
                  .d2h_ns = hour,
                  .compute_ns = hour,
                  .done_ns = 6 * hour};
    ks_times times = {.first_ns = 1, .decode_ns = hour, .answered_ns = 7 * hour};
    (void)state;
    ks_times_text(&times, &job, &nobody, text);
    assert_true(strlen(text) < sizeof text);
    assert_non_null(strstr(text, "total;dur=25200000.000, graph;desc=none"));
}

static const ks_identity *identify(const char *id, size_t length, const char *parent)
{
    static ks_identity identity;
    static uint64_t numbers = 1;
    ks_head head = {0};
    head.known[KS_KNOWN_REQUEST_ID] = id;
    head.known_length[KS_KNOWN_REQUEST_ID] = length;
    head.known[KS_KNOWN_TRACEPARENT] = parent;
    head.known_length[KS_KNOWN_TRACEPARENT] = parent ? strlen(parent) : 0;
    ks_identity_read(&identity, &head, &numbers);
    return &identity;
}

static void request_ids(void **state)
{
    char id[140], made[17];
    (void)state;
    memset(id, 'x', sizeof id);
    id[129] = '\0';
    assert_ptr_equal(identify(id, 128, NULL)->request_id, id);
    strcpy(made, identify(id, 129, NULL)->request_id);
    assert_int_equal(strspn(made, "0123456789abcdef"), 16);
    assert_string_not_equal(identify(NULL, 0, NULL)->request_id, made);
    id[5] = ' ';
    assert_ptr_not_equal(identify(id, 128, NULL)->request_id, id);
    char number[24];
    assert_string_equal(ks_response_number(number, 0), "0");
    assert_string_equal(ks_response_number(number, INT64_MAX), "9223372036854775807");
}

#define TRACE "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"
static const struct {
    const char *parent;
    bool valid, sampled;
} trace_rows[] = {
    {"00-" TRACE "-" PARENT "-01", true, true},
    {"00-" TRACE "-" PARENT "-00", true, false},
    {"00-" TRACE "-" PARENT "-ff", true, true},
    {"00-" TRACE "-" PARENT "-02", true, false},
    {"cc-" TRACE "-" PARENT "-01", true, true},
    {"cc-" TRACE "-" PARENT "-01-what-comes-later", true, true},
    {"cc-" TRACE "-" PARENT "-01x", false, false},
    {"00-" TRACE "-" PARENT "-01-more", false, false},
    {"ff-" TRACE "-" PARENT "-01", false, false},
    {"00-" TRACE "-" PARENT, false, false},
    {"00-00000000000000000000000000000000-" PARENT "-01", false, false},
    {"00-" TRACE "-0000000000000000-01", false, false},
    {"00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01", false, false},
    {"00-" TRACE "-" PARENT "-0G", false, false},
    {"00_" TRACE "-" PARENT "-01", false, false},
    {"", false, false},
};

static void trace_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(trace_rows); i++) {
        const ks_identity *identity = identify(NULL, 0, trace_rows[i].parent);
        if (!trace_rows[i].valid) {
            if (identity->trace_id[0] || identity->span_id[0]) fail_msg("%s is taken", trace_rows[i].parent);
            continue;
        }
        assert_string_equal(identity->trace_id, TRACE);
        assert_int_equal(strspn(identity->span_id, "0123456789abcdef"), 16);
        assert_string_not_equal(identity->span_id, PARENT);
        assert_int_equal(identity->sampled, trace_rows[i].sampled);
        ks_job job = {0};
        ks_times times = {0};
        char text[KS_TIMING_MAX], expected[96];
        ks_times_text(&times, &job, identity, text);
        snprintf(expected, sizeof expected, ", trace;desc=00-" TRACE "-%s-%s", identity->span_id,
                 identity->sampled ? "01" : "00");
        assert_non_null(strstr(text, expected));
    }
}

#define P "POST /v2?a=b HTTP/1.1\r\n"
static const struct {
    const char *text;
    ks_status status;
    int fields;
} plain_rows[] = {
    {P "\r\n", KS_OK, 0},
    {P "Host: localhost\r\n\r\n", KS_OK, 1},
    {P "Host: localhost\r\nContent-Length: 4\r\nX: a:b c\r\n\r\n", KS_OK, 3},
    {P "Host:localhost\r\n\r\n", KS_OK, 1},
    {P "Host:  localhost\r\n\r\n", KS_OK, 1},
    {P "Host: localhost \t \r\n\r\n", KS_OK, 1},
    {P "Host: \r\n\r\n", KS_OK, 1},
    {P "Host:\r\n\r\n", KS_OK, 1},
    {P "Host: a\tb\r\n\r\n", KS_OK, 1},
    {P "Host: \xff\r\n\r\n", KS_OK, 1},
    {"POST /v2?a=b HTTP/1.0\r\n\r\n", KS_OK, 0},
    {"POST /v2?a=b HTTP/1.2\r\n\r\n", KS_OK, 0},
    {"post /v2?a=b HTTP/1.1\r\n\r\n", KS_OK, 0},
    {P ": localhost\r\n\r\n", KS_HEADER, 0},
    {P "localhost\r\n\r\n", KS_HEADER, 0},
    {P "Host : localhost\r\n\r\n", KS_HEADER, 0},
    {P "Host: local\r\n host\r\n\r\n", KS_HEADER, 0},
    {P "\tHost: local\r\n\r\n", KS_HEADER, 0},
    {P "Host: a\nb: c\r\n\r\n", KS_HEADER, 0},
    {P "Host: a\rb: c\r\n\r\n", KS_HEADER, 0},
    {P "Host: a\x7f\r\n\r\n", KS_HEADER, 0},
    {"POST /v2?a=b HTTP/2.0\r\n\r\n", KS_HTTP_VERSION, 0},
    {"POST /v2?a=b HTTP/0.9\r\n\r\n", KS_HTTP_VERSION, 0},
    {"POST /v2?a=b http/1.1\r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST /v2?a=b HTTP/1.10\r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST /v2?a=b HTTP/1\r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST /v2  HTTP/1.1\r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST /v2 b HTTP/1.1\r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST  HTTP/1.1\r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST /v2 HTTP/1.1 \r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST /v2\tb HTTP/1.1\r\n\r\n", KS_REQUEST_LINE, 0},
    {" POST /v2 HTTP/1.1\r\n\r\n", KS_REQUEST_LINE, 0},
    {"(POST) /v2 HTTP/1.1\r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST /v2\n HTTP/1.1\r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST /v2\r\n\r\n", KS_REQUEST_LINE, 0},
    {"P\r\n\r\n", KS_REQUEST_LINE, 0},
    /* two faults: the first one is told */
    {"POST/v2\r\nX: \001\r\n\r\n", KS_REQUEST_LINE, 0},
    {"POST /v2 HTTP/2.0\r\nX: \001\r\n\r\n", KS_HTTP_VERSION, 0},
    {"POST /v2 HTTP/2.0\r\n a\r\n\r\n", KS_HTTP_VERSION, 0},
};
#undef P

/* Byte by byte: what is refused before its end is refused with the code that it has as a whole. */
static void check_cuts(const char *text, ks_status whole)
{
    const size_t length = strlen(text);
    for (size_t n = 0; n < length; n++) {
        ks_status status;
        ks_error error;
        char *memory = malloc(n + !n);
        assert_non_null(memory);
        memcpy(memory, text, n);
        assert_int_equal(ks_plain_head_length(memory, n, &status, &error), 0);
        if (status != KS_OK && status != whole) fail_msg("%s: %zu bytes are %s", text, n, ks_status_name(status));
        free(memory);
    }
}

/* In memory of its own, so that a sanitizer sees what is read behind it. */
static ks_status read_plain(const char *text, size_t length, ks_head *head, char **memory)
{
    ks_error error;
    *memory = malloc(length + !length);
    assert_non_null(*memory);
    memcpy(*memory, text, length);
    return ks_plain_head(*memory, length, head, &error);
}

static void plain_heads(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(plain_rows); i++) {
        char *memory;
        ks_head head;
        const ks_status status = read_plain(plain_rows[i].text, strlen(plain_rows[i].text), &head, &memory);
        if (status != plain_rows[i].status || (status == KS_OK && head.fields != plain_rows[i].fields))
            fail_msg("%s: %s", plain_rows[i].text, ks_status_name(status));
        if (status == KS_OK) assert_string_equal(head.target, "/v2?a=b");
        check_cuts(plain_rows[i].text, plain_rows[i].status);
        free(memory);
    }
    static const char text[] = "POST /v2 HTTP/1.1\r\nhost: localhost:1 \t\r\nX-A: b\r\nContent-Length:4  \r\n"
                               "connection: a,Close ,b\r\n\r\n";
    char *memory;
    ks_head head;
    ks_error error;
    assert_int_equal(read_plain(text, sizeof text - 1, &head, &memory), KS_OK);
    assert_string_equal(head.known[KS_KNOWN_HOST], "localhost:1");
    assert_string_equal(head.method, "POST");
    assert_true(head.closes);
    assert_int_equal(ks_check_head(&plain, &head, &error), KS_OK);
    assert_int_equal(head.content_length, 4);
    free(memory);
}

/* Every byte at every place of texts of several words, with another control byte behind it and none. */
static void control_bytes(void **state)
{
    char text[40];
    (void)state;
    for (int c = 0; c < 256; c++)
        for (size_t length = 1; length < sizeof text; length++)
            for (size_t at = 0; at < length; at++) {
                memset(text, (int)(at % 3 == 0 ? 0xff : at % 3 == 1 ? ' ' : '~'), sizeof text);
                text[at] = (char)c;
                const bool control = (c < ' ' && c != '\t') || c == 0x7f;
                assert_ptr_equal(ks_head_text_end(text, text + length), text + (control ? at : length));
                text[length - 1] = '\n';
                const size_t first = control && at < length ? at : length - 1;
                assert_ptr_equal(ks_head_text_end(text, text + length), text + (at == length - 1 ? at : first));
            }
}

/* What has come of a head: its length once it is complete; a byte that no head holds is known as soon as it is there. */
static void plain_lengths(void **state)
{
    static const char whole[] = "GET /v2 HTTP/1.1\r\nHost: a\r\n\r\nmore";
    ks_status status;
    ks_error error;
    (void)state;
    for (size_t n = 0; n < sizeof whole; n++) {
        char *memory = malloc(n + !n);
        assert_non_null(memory);
        memcpy(memory, whole, n);
        assert_int_equal(ks_plain_head_length(memory, n, &status, &error), n < 29 ? 0 : 29);
        assert_int_equal(status, KS_OK);
        free(memory);
    }
    for (int c = 0; c < 256; c++) {
        char early[] = "GET /?", late[] = "GET / HTTP/1.1\r\nHost?";
        const bool bad = (c < ' ' && c != '\t' && c != '\r') || c == 0x7f;
        early[5] = late[20] = (char)c;
        assert_int_equal(ks_plain_head_length(early, 6, &status, &error), 0);
        assert_int_equal(status, bad ? KS_REQUEST_LINE : KS_OK);
        assert_int_equal(ks_plain_head_length(late, 21, &status, &error), 0);
        assert_int_equal(status, bad ? KS_HEADER : KS_OK);
    }
}

/* The method is told as soon as the request line is complete and has its three words. */
static void plain_methods(void **state)
{
    static const char whole[] = "HEAD /v2 HTTP/1.1\r\nHo";
    static const char *const none[] = {"HEAD/v2 HTTP/1.1\r\n", "HEAD /v2\r\n", "HE\001D /v2 HTTP/1.1\r\n",
                                       "H(D /v2 HTTP/1.1\r\n", "HEAD /v2 HTTP/1.1\n"};
    (void)state;
    for (size_t n = 0; n < sizeof whole; n++) {
        char *memory = malloc(n + !n);
        assert_non_null(memory);
        memcpy(memory, whole, n);
        assert_int_equal(ks_plain_method(memory, n), n < 19 ? 0 : 4);
        free(memory);
    }
    for (size_t i = 0; i < COUNT(none); i++) assert_int_equal(ks_plain_method(none[i], strlen(none[i])), 0);
    assert_int_equal(ks_plain_method("HEAD /v2 HTTP/2.0\r\n", 19), 4);
}

/* Which heads have white space beside the blank behind the colon. */
static void plain_spaces(void **state)
{
    static const struct {
        const char *text;
        bool spaced;
    } rows[] = {
        {"GET / HTTP/1.0\r\nA: b\r\nC: d e\tf\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nA:b\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nA:\tb\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nA:  b\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nA: b \r\nC: d\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nA: b\t\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nA:\r\n\r\n", true},
        {"GET / HTTP/1.0\r\nA: \r\n\r\n", false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *memory;
        ks_head head;
        assert_int_equal(read_plain(rows[i].text, strlen(rows[i].text), &head, &memory), KS_OK);
        if (head.spaced != rows[i].spaced) fail_msg("%s", rows[i].text);
        free(memory);
    }
}

static const struct {
    const char *target, *authority, *path; /* authority NULL: another form */
} absolute_rows[] = {
    {"http://a/v2", "a", "/v2"},
    {"HTTP://a:1?b", "a:1", "?b"},
    {"http://a", "a", ""},
    {"http:///v2", "", "/v2"},
    {"http://[::1]:1/", "[::1]:1", "/"},
    {"https://a/", NULL, ""},
    {"/http://a", NULL, ""},
    {"*", NULL, ""},
};

static void absolute_targets(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(absolute_rows); i++) {
        const char *authority, *path;
        size_t length;
        const bool absolute = ks_plain_absolute(absolute_rows[i].target, &authority, &length, &path);
        assert_int_equal(absolute, absolute_rows[i].authority != NULL);
        if (!absolute) continue;
        assert_int_equal(length, strlen(absolute_rows[i].authority));
        assert_memory_equal(authority, absolute_rows[i].authority, length);
        assert_string_equal(path, absolute_rows[i].path);
    }
}

static const struct {
    const char *text;
    ks_status status;
    const char *data; /* of good ones; what lies behind "|" in the text is not read */
} chunk_rows[] = {
    {"0\r\n\r\n|", KS_OK, ""},
    {"3\r\nabc\r\n0\r\n\r\n|GET", KS_OK, "abc"},
    {"3\r\nabc\r\n00a\r\n0123456789\r\n000\r\n\r\n|", KS_OK, "abc0123456789"},
    {"0000000000000003;a\r\nabc\r\n0;b=c\r\nX: y\r\nZ:\r\n\r\n|", KS_OK, "abc"},
    {"3 ; a = b\t;c=\"d;\\\"\" ; e\r\nabc\r\n0\r\n\r\n|", KS_OK, "abc"},
    {"3\r\n\r\n\r\r\n0\r\n\r\n|", KS_OK, "\r\n\r"},
    {"00000000000000003\r\n", KS_CHUNKS, NULL},
    {"8000000000000000\r\n", KS_CHUNKS, NULL},
    {"ffffffffffffffff\r\n", KS_CHUNKS, NULL},
    {"3 \r\n", KS_CHUNKS, NULL},
    {"3;\r\n", KS_CHUNKS, NULL},
    {"3;a \r\n", KS_CHUNKS, NULL},
    {"3;a=\r\n", KS_CHUNKS, NULL},
    {"3;a=\"b\r\n", KS_CHUNKS, NULL},
    {"3;a=\"b\\\r\n", KS_CHUNKS, NULL},
    {"3;a=\"b\"c\r\n", KS_CHUNKS, NULL},
    {"3,a\r\n", KS_CHUNKS, NULL},
    {"3\n", KS_CHUNKS, NULL},
    {"3\rx", KS_CHUNKS, NULL},
    {"g\r\n", KS_CHUNKS, NULL},
    {"\r\n", KS_CHUNKS, NULL},
    {"3\r\nabcd", KS_CHUNKS, NULL},
    {"3\r\nabc\n", KS_CHUNKS, NULL},
    {"3\r\nabc\r0", KS_CHUNKS, NULL},
    {"0\r\n\n", KS_HEADER, NULL},
    {"0\r\n: a\r\n", KS_HEADER, NULL},
    {"0\r\na\r\n", KS_HEADER, NULL},
    {"0\r\na: b\n", KS_HEADER, NULL},
    {"0\r\na: b\rc", KS_HEADER, NULL},
    {"0\r\na: \x01", KS_HEADER, NULL},
    {"0\r\na: b\r\n c", KS_HEADER, NULL},
    {"0\r\na: b\r\na: b\r\na: b\r\na", KS_HEADERS, NULL},
    {"0\r\na: 12345678901234567890123456789\r\n", KS_HEADERS, NULL},
};

/* Feeds text, step bytes at a time, each in memory of its own; *used: what was read of it. */
static ks_status read_chunks(const char *text, size_t length, size_t step, ks_chunked *chunks, char *data, size_t *used)
{
    ks_status status = KS_OK;
    ks_error error;
    *used = 0;
    while (*used < length && status == KS_OK && !ks_chunked_over(chunks)) {
        const size_t n = step < length - *used ? step : length - *used;
        char *piece = malloc(n);
        assert_non_null(piece);
        memcpy(piece, text + *used, n);
        size_t at = 0;
        while (at < n && status == KS_OK && !ks_chunked_over(chunks)) {
            size_t read = 0;
            status = ks_chunked_read(chunks, piece + at, n - at, &read, &error);
            at += read;
            size_t there = ks_chunked_data(chunks) < n - at ? (size_t)ks_chunked_data(chunks) : n - at;
            strncat(data, piece + at, there);
            ks_chunked_took(chunks, there);
            at += there;
        }
        free(piece);
        *used += at;
    }
    return status;
}

static void chunked_bodies(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(chunk_rows); i++)
        for (size_t step = 1; step < 40; step++) {
            ks_chunked chunks;
            char data[64] = "";
            size_t used;
            ks_chunked_init(&chunks, 32, 3);
            const ks_status status =
                read_chunks(chunk_rows[i].text, strlen(chunk_rows[i].text), step, &chunks, data, &used);
            if (status != chunk_rows[i].status || ks_chunked_over(&chunks) != (status == KS_OK))
                fail_msg("%s: %s", chunk_rows[i].text, ks_status_name(status));
            if (status != KS_OK) continue;
            assert_string_equal(data, chunk_rows[i].data);
            assert_int_equal(used, strchr(chunk_rows[i].text, '|') - chunk_rows[i].text);
        }
}

/* A size's line has a bound, whatever it is made of. */
static void chunk_lines(void **state)
{
    static const char *const starts[] = {"3;a=", "3;", "3;a=\"", "3 ", "3;a "};
    (void)state;
    for (size_t i = 0; i < COUNT(starts); i++)
        for (int over = 0; over < 2; over++) {
            char text[KS_CHUNKED_LINE + 16];
            ks_chunked chunks;
            char data[1] = "";
            size_t used;
            const size_t length = KS_CHUNKED_LINE + (size_t)over, from = strlen(starts[i]);
            memcpy(text, starts[i], from);
            memset(text + from, starts[i][from - 1] == ' ' ? ' ' : 'b', length - from);
            ks_chunked_init(&chunks, 32, 3);
            assert_int_equal(read_chunks(text, length, 100, &chunks, data, &used), over ? KS_CHUNKS : KS_OK);
        }
}

/* Every byte in every place of a size's line: taken or refused, and never anything else. */
static void chunk_bytes(void **state)
{
    static const char line[] = "1f ; a = b ; c=\"d\\\"\"\r\n";
    (void)state;
    for (size_t at = 0; at + 1 < sizeof line; at++)
        for (int c = 0; c < 256; c++) {
            ks_chunked chunks;
            char text[sizeof line], data[64] = "";
            size_t used;
            memcpy(text, line, sizeof line);
            text[at] = (char)c;
            ks_chunked_init(&chunks, 32, 3);
            const ks_status status = read_chunks(text, sizeof line - 1, 64, &chunks, data, &used);
            const bool control = (c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 0x7f;
            if (status != KS_OK && status != KS_CHUNKS) fail_msg("byte %d at %zu: %s", c, at, ks_status_name(status));
            if (control && status == KS_OK) fail_msg("control byte %d at %zu is taken", c, at);
        }
}

/* Whoever adds a route also says what it is. */
static void every_route_is_in_the_document(void **state)
{
    (void)state;
    ks_text text;
    ks_route_row row;
    int operations = 0, routes = 0, found = 0;
    ks_models_init();
    ks_text_init(&text, 1 << 20);
    ks_openapi_write(&text, "1.2.3");
    ks_text_add(&text, "", 1);
    assert_false(text.broken);
    for (; ks_route_at(routes, &row); routes++)
        operations += row.data ? row.reads + row.works + row.puts + row.deletes : 0;
    assert_true(routes > 30);
    for (const char *at = text.bytes; (at = strstr(at, "\"operationId\":\"")); at++) found++;
    assert_int_equal(found, operations);
    assert_null(strstr(text.bytes, "(null)"));
    assert_non_null(strstr(text.bytes, "\"/v2/models/{model}/versions/{version}/infer\":{\"parameters\":[{\"$ref\":"));
    assert_non_null(strstr(text.bytes, "\"/\":{"));
    ks_text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_table),
        cmocka_unit_test(wire_values),
        cmocka_unit_test(wire_sizes),
        cmocka_unit_test(access_table),
        cmocka_unit_test(fields_without_a_value),
        cmocka_unit_test(hosts_are_names),
        cmocka_unit_test(targets_are_paths),
        cmocka_unit_test(token_table),
        cmocka_unit_test(body_table),
        cmocka_unit_test(route_table),
        cmocka_unit_test(admin_routes),
        cmocka_unit_test(route_query),
        cmocka_unit_test(warm_table),
        cmocka_unit_test(times_add_up),
        cmocka_unit_test(times_longest),
        cmocka_unit_test(request_ids),
        cmocka_unit_test(trace_table),
        cmocka_unit_test(plain_heads),
        cmocka_unit_test(every_route_is_in_the_document),
        cmocka_unit_test(rights_without_tokens),
        cmocka_unit_test(rights_of_routes),
        cmocka_unit_test(plain_lengths),
        cmocka_unit_test(plain_methods),
        cmocka_unit_test(plain_spaces),
        cmocka_unit_test(control_bytes),
        cmocka_unit_test(absolute_targets),
        cmocka_unit_test(chunked_bodies),
        cmocka_unit_test(chunk_lines),
        cmocka_unit_test(chunk_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
