/* The log: form, escapes, and that a caller never waits for the reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_line.h"

static const int64_t wall_ns = 1767225600123456789; /* 2026-01-01T00:00:00.123456789Z */

static const char *line_of(ks_log_format format, const char *msg, const ks_field *fields, int count)
{
    static char line[KS_LINE_MAX + 1];
    const ks_line says = {wall_ns, KS_LOG_WARN, msg, fields, count};
    const size_t n = ks_line_write(line, (ks_line_style){.format = format}, &says);
    line[n] = 0;
    return line;
}

static void lines_have_their_format(void **state)
{
    (void)state;
    const ks_field fields[] = {KS_TEXT("address", "127.0.0.1:80"), KS_TEXT("why", "a \"b\"=c"), KS_INT("n", -5),
                               KS_NUMBER("rate", 2.5), KS_TEXT("none", "")};
    assert_string_equal(line_of(KS_LOG_TEXT, "it is so", fields, 5),
                        "ts=2026-01-01T00:00:00.123456Z level=warn msg=\"it is so\" address=127.0.0.1:80 "
                        "why=\"a \\\"b\\\"=c\" n=-5 rate=2.5 none=\"\"\n");
    assert_string_equal(
        line_of(KS_LOG_JSON, "it is so", fields, 5),
        "{\"ts\":\"2026-01-01T00:00:00.123456Z\",\"level\":\"warn\",\"msg\":\"it is so\","
        "\"address\":\"127.0.0.1:80\",\"why\":\"a \\\"b\\\"=c\",\"n\":-5,\"rate\":2.5,\"none\":\"\"}\n");
    char line[KS_LINE_MAX];
    const ks_line says = {.wall_ns = wall_ns, .level = KS_LOG_ERROR, .msg = "x"};
    ks_line_write(line, (ks_line_style){.format = KS_LOG_TEXT, .journal = true}, &says);
    assert_memory_equal(line, "<3>ts=", 6);
}

static void nothing_acts_on_a_terminal(void **state)
{
    (void)state;
    /* C0, DEL, C1, broken and overlong UTF-8, a surrogate; then letters that may pass */
    const char *evil = "\x1b[2J\n\x7f\xc2\x9b\xff\xc0\xaf\xed\xa0\x80|\xc3\xa9\xf0\x9f\x98\x80";
    const ks_field field = KS_TEXT("v", evil);
    for (int format = KS_LOG_TEXT; format <= KS_LOG_JSON; format++) {
        const char *line = line_of((ks_log_format)format, "m", &field, 1);
        const size_t n = strlen(line);
        for (size_t i = 0; i + 1 < n; i++) assert_true((unsigned char)line[i] >= 0x20 && line[i] != 0x7f);
        assert_null(strstr(line, "\xc2\x9b"));
        assert_null(strchr(line, 0xff));
        assert_null(strstr(line, "\xed\xa0\x80"));
        assert_non_null(strstr(line, "|\xc3\xa9\xf0\x9f\x98\x80\""));
        assert_non_null(strstr(line, format == KS_LOG_JSON ? "\\u001b[2J\\n\\u007f" : "\\x1b[2J\\n\\x7f"));
    }
}

/* logfmt leaves the quotes away for nothing that a reader would take apart, or that would act on it. */
static void only_plain_words_go_without_quotes(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        const char text[] = {'a', (char)c, 'b', 0};
        const ks_field field = KS_TEXT("v", text);
        const char *line = line_of(KS_LOG_TEXT, "m", &field, 1);
        const char *value = strstr(line, " v=") + 3;
        const bool plain = c > 0x20 && c < 0x7f && c != '"' && c != '=' && c != '\\';
        assert_int_equal(*value == '"', !plain);
        assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    }
}

static void a_long_line_is_cut_and_says_so(void **state)
{
    (void)state;
    static char big[4000];
    memset(big, '"', sizeof big - 1);
    const ks_field fields[] = {KS_INT("before", 1), KS_TEXT("big", big), KS_INT("after", 2)};
    const char *json = line_of(KS_LOG_JSON, "m", fields, 3);
    assert_non_null(strstr(json, "\"before\":1,\"after\":2,\"cut\":true}\n"));
    const char *text = line_of(KS_LOG_TEXT, big, fields, 3);
    assert_non_null(strstr(text, " before=1 after=2 cut=true\n"));
}

/* --- the ring, with stderr on a pipe --------------------------------------------------------------------------------
 */

static int kept_stderr, reading;

static int stderr_to_pipe(void **state)
{
    (void)state;
    int ends[2];
    if (pipe(ends) != 0) return 1;
    kept_stderr = dup(2);
    dup2(ends[1], 2);
    close(ends[1]);
    reading = ends[0];
    return 0;
}

static int stderr_back(void **state)
{
    (void)state;
    ks_log_close();
    dup2(kept_stderr, 2);
    close(kept_stderr);
    if (reading >= 0) close(reading);
    return 0;
}

enum { THREADS = 4, LINES = 3000 };

static void *log_many(void *argument)
{
    const int id = *(const int *)argument;
    for (int i = 0; i < LINES; i++) KS_LOG(KS_LOG_INFO, "line", KS_INT("thread", id), KS_INT("i", i));
    return NULL;
}

static uint64_t run_threads(void)
{
    pthread_t threads[THREADS];
    int ids[THREADS];
    const uint64_t before = ks_log_lines(KS_LOG_INFO);
    for (int t = 0; t < THREADS; t++) {
        ids[t] = t;
        assert_int_equal(pthread_create(&threads[t], NULL, log_many, &ids[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    return ks_log_lines(KS_LOG_INFO) - before;
}

static void a_stalled_reader_stalls_nobody(void **state)
{
    (void)state;
    const uint64_t dropped = ks_log_dropped();
    assert_true(ks_log_open(KS_LOG_INFO, KS_LOG_TEXT));
    int64_t begun = ks_now_ns();
    assert_int_equal(run_threads(), THREADS * LINES);
    assert_true(ks_now_ns() - begun < 5000000000); /* nobody waited; generous, for slow sanitizers */
    assert_true(ks_log_dropped() - dropped > 0);
    begun = ks_now_ns();
    ks_log_close();
    const int64_t closing_ns = ks_now_ns() - begun;
    assert_true(closing_ns > 500000000 && closing_ns < 3000000000); /* tries for a second, then gives up */
}

typedef struct line_reader {
    int next[THREADS]; /* lines of one thread come in its order */
    uint64_t lines, disorder, broken;
} line_reader;

static void *read_all(void *argument)
{
    line_reader *reader = argument;
    FILE *file = fdopen(reading, "r");
    char line[2048];
    while (fgets(line, sizeof line, file)) {
        int thread, i;
        const char *at = strstr(line, "thread=");
        if (!at || sscanf(at, "thread=%d i=%d", &thread, &i) != 2 || thread < 0 || thread >= THREADS) {
            reader->broken++;
            continue;
        }
        if (i < reader->next[thread]) reader->disorder++;
        reader->next[thread] = i + 1;
        reader->lines++;
    }
    fclose(file);
    reading = -1;
    return NULL;
}

static void every_line_is_written_or_counted_as_dropped(void **state)
{
    (void)state;
    line_reader reader = {0};
    pthread_t thread;
    const uint64_t dropped = ks_log_dropped();
    assert_true(ks_log_open(KS_LOG_INFO, KS_LOG_TEXT));
    assert_int_equal(pthread_create(&thread, NULL, read_all, &reader), 0);
    assert_int_equal(run_threads(), THREADS * LINES);
    ks_log_close();
    dup2(kept_stderr, 2); /* ends the pipe */
    pthread_join(thread, NULL);
    assert_int_equal(reader.broken, 0);
    assert_int_equal(reader.disorder, 0);
    assert_int_equal(reader.lines + (ks_log_dropped() - dropped), THREADS * LINES);
    assert_true(reader.lines > 0);
}

static void levels_decide(void **state)
{
    (void)state;
    const uint64_t debug = ks_log_lines(KS_LOG_DEBUG), warn = ks_log_lines(KS_LOG_WARN);
    assert_true(ks_log_open(KS_LOG_WARN, KS_LOG_JSON));
    assert_false(ks_log_enabled(KS_LOG_INFO));
    KS_LOG(KS_LOG_DEBUG, "unseen", KS_INT("n", 1));
    KS_LOG(KS_LOG_WARN, "seen", KS_INT("n", 2));
    ks_log_close();
    assert_int_equal(ks_log_lines(KS_LOG_DEBUG), debug);
    assert_int_equal(ks_log_lines(KS_LOG_WARN), warn + 1);
    char text[512];
    const ssize_t n = read(reading, text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = 0;
    assert_non_null(strstr(text, "\"msg\":\"seen\",\"n\":2}\n"));
    assert_null(strstr(text, "unseen"));
}

static void a_closed_stderr_loses_lines_only(void **state)
{
    (void)state;
    const uint64_t dropped = ks_log_dropped();
    close(2);
    assert_true(ks_log_open(KS_LOG_INFO, KS_LOG_TEXT));
    KS_LOG(KS_LOG_INFO, "nowhere", KS_INT("n", 1));
    ks_log_close();
    assert_int_equal(ks_log_dropped(), dropped + 1);
}

int main(void)
{
#define PIPED(name) cmocka_unit_test_setup_teardown(name, stderr_to_pipe, stderr_back)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_their_format),
        cmocka_unit_test(nothing_acts_on_a_terminal),
        cmocka_unit_test(only_plain_words_go_without_quotes),
        cmocka_unit_test(a_long_line_is_cut_and_says_so),
        PIPED(a_stalled_reader_stalls_nobody),
        PIPED(every_line_is_written_or_counted_as_dropped),
        PIPED(levels_decide),
        PIPED(a_closed_stderr_loses_lines_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
