/* Rings of spans: what is taken, in which order, and what counts as lost; lists of OpenTelemetry's variables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "observe/otlp/text.h"

static void add(ks_span_ring *ring, int from, int count)
{
    for (int i = from; i < from + count; i++) ks_spans_add(ring, &(ks_span){.first_ns = i, .id = "1"});
}

static void each_is_taken_once(void **state)
{
    (void)state;
    static ks_span out[64];
    uint64_t lost = 0;
    ks_spans *spans = ks_spans_open(2);
    assert_non_null(spans);
    assert_int_equal(ks_spans_take(spans, out, 64, &lost), 0);
    add(ks_spans_writer(spans, 0), 100, 40);
    add(ks_spans_writer(spans, 1), 200, 40);
    assert_int_equal(ks_spans_take(spans, out, 64, &lost), 64);
    for (int i = 0; i < 40; i++) assert_int_equal(out[i].first_ns, 100 + i);
    for (int i = 40; i < 64; i++) assert_int_equal(out[i].first_ns, 200 + i - 40);
    assert_int_equal(ks_spans_take(spans, out, 64, &lost), 16);
    assert_int_equal(out[15].first_ns, 239);
    assert_int_equal(ks_spans_take(spans, out, 64, &lost), 0);
    assert_int_equal(lost, 0);
    ks_spans_close(&spans);
}

static void what_was_written_over_is_lost(void **state)
{
    (void)state;
    static ks_span out[KS_SPANS_KEPT + 1];
    uint64_t lost = 0;
    ks_spans *spans = ks_spans_open(1);
    assert_non_null(spans);
    add(ks_spans_writer(spans, 0), 0, KS_SPANS_KEPT + 1000);
    assert_int_equal(ks_spans_take(spans, out, KS_SPANS_KEPT + 1, &lost), KS_SPANS_KEPT);
    assert_int_equal(lost, 1000);
    assert_int_equal(out[0].first_ns, 1000);
    assert_int_equal(out[KS_SPANS_KEPT - 1].first_ns, KS_SPANS_KEPT + 999);
    ks_spans_close(&spans);
}

static void lists_are_read_as_opentelemetry_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        const char *expected; /* "key=value;" of each pair */
    } rows[] = {{"", ""},
                {"a=b", "a=b;"},
                {" a = b , c=d ", "a=b;c=d;"},
                {"a=b%20c%2Cd,e=%zz%4", "a=b c,d;e=%zz%4;"},
                {"a,=b,c=", "c=;"},
                {"a=b=c", "a=b=c;"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char copy[64], found[128] = "", *list = copy, *key, *value;
        strcpy(copy, rows[i].list);
        while (ks_otlp_next_pair(&list, &key, &value)) {
            strcat(found, key);
            strcat(strcat(found, "="), value);
            strcat(found, ";");
        }
        assert_string_equal(found, rows[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_is_taken_once),
                                       cmocka_unit_test(what_was_written_over_is_lost),
                                       cmocka_unit_test(lists_are_read_as_opentelemetry_writes_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
