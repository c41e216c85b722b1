/* The table of workers: texts that one writes and others read, and one document made of several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "observe/metrics.h"
#include "observe/workers/ask.h"
#include "observe/workers/merge.h"

static ks_merge_part part(int device, const char *text)
{
    return (ks_merge_part){text, strlen(text), device};
}

static void merges_to(const ks_merge_part *parts, int count, const char *expected)
{
    ks_text out;
    ks_text_init(&out, 1 << 16);
    ks_merge(parts, count, &out);
    ks_text_puts(&out, "");
    ks_text_add(&out, "\0", 1);
    assert_false(out.broken);
    assert_string_equal(out.bytes, expected);
    ks_text_fini(&out);
}

#define HEAD(name) "# HELP " name " what.\n# TYPE " name " gauge\n"

static void each_family_comes_once_with_the_samples_of_all(void **state)
{
    (void)state;
    const ks_merge_part parts[] = {part(3, HEAD("a") "a 1\n" HEAD("b") "b{x=\"1\"} 2\nb{x=\"}\"} 3\n"),
                                   part(0, HEAD("a") "a 4\n" HEAD("b") "b{x=\"1\"} 5\n")};
    merges_to(parts, 2,
              HEAD("a") "a{device=\"3\"} 1\na{device=\"0\"} 4\n" HEAD(
                  "b") "b{device=\"3\",x=\"1\"} 2\nb{device=\"3\",x=\"}\"} 3\n"
                       "b{device=\"0\",x=\"1\"} 5\n");
}

static void a_sample_that_names_a_device_keeps_it(void **state)
{
    (void)state;
    const ks_merge_part parts[] = {part(7, HEAD("a") "a{device=\"2\"} 1\na{y=\"z\",device=\"4\"} 1\n")};
    merges_to(parts, 1, HEAD("a") "a{device=\"2\"} 1\na{y=\"z\",device=\"4\"} 1\n");
}

static void families_of_one_part_alone_follow(void **state)
{
    (void)state;
    const ks_merge_part parts[] = {part(0, HEAD("a") "a 1\n"), part(1, ""),
                                   part(2, HEAD("aa") "aa 2\n" HEAD("a") "a 3\n" HEAD("c"))};
    merges_to(parts, 3, HEAD("a") "a{device=\"0\"} 1\na{device=\"2\"} 3\n" HEAD("aa") "aa{device=\"2\"} 2\n" HEAD("c"));
}

static void what_is_no_family_is_left_out(void **state)
{
    (void)state;
    const ks_merge_part parts[] = {part(0, "stray 1\n# note\n" HEAD("a") "a 1"), part(1, "no newline")};
    merges_to(parts, 2, HEAD("a") "a{device=\"0\"} 1");
    merges_to(parts + 1, 1, "");
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static ks_workers *workers;

static int open_table(void **state)
{
    (void)state;
    int fd;
    ks_workers *made = ks_workers_open(2, &fd);
    if (!made) return 1;
    workers = ks_workers_join(fd); /* as another process would */
    close(fd);
    const bool same = workers && workers->count == 2 && workers != made;
    ks_workers_close(&made);
    return !same;
}

static int close_table(void **state)
{
    (void)state;
    ks_workers_close(&workers);
    return 0;
}

static bool reads(int index, const char *expected)
{
    ks_text out;
    ks_text_init(&out, KS_WORKER_TEXT_MAX);
    const bool there = ks_worker_read(workers, index, KS_WORKER_METRICS, &out);
    const bool equal = there && out.length == strlen(expected) && memcmp(out.bytes, expected, out.length) == 0;
    ks_text_fini(&out);
    return equal;
}

static void a_text_is_there_while_its_worker_is(void **state)
{
    (void)state;
    assert_false(reads(1, ""));
    ks_worker_publish(workers, 1, KS_WORKER_METRICS, "first", 5);
    assert_false(reads(1, "first"));
    atomic_store(&workers->row[1].pid, 1);
    assert_true(reads(1, "first"));
    ks_worker_publish(workers, 1, KS_WORKER_METRICS, "2nd", 3);
    assert_true(reads(1, "2nd"));
    atomic_fetch_add(&workers->row[1].text[KS_WORKER_METRICS].sequence, 1); /* killed amid its writing */
    assert_false(reads(1, "2nd"));
    ks_worker_publish(workers, 1, KS_WORKER_METRICS, "again", 5);
    assert_true(reads(1, "again"));
    assert_int_equal(atomic_load(&workers->row[1].text[KS_WORKER_METRICS].sequence) % 2, 0);
}

static void one_without_a_turn_is_stuck(void **state)
{
    (void)state;
    static const char *const states[] = {"starting", "warming", "ready", "draining", "failed"};
    ks_worker_row *row = &workers->row[0];
    assert_string_equal(ks_worker_word(row, states), "down");
    atomic_store(&row->pid, 1);
    atomic_store(&row->state, KS_STATE_READY);
    assert_string_equal(ks_worker_word(row, states), "starting"); /* its shards take no connections yet */
    atomic_store(&row->accepts, true);                            /* and no turn yet */
    assert_string_equal(ks_worker_word(row, states), "stuck");
    atomic_store(&row->beat_ns, ks_now_ns());
    assert_string_equal(ks_worker_word(row, states), "ready");
    assert_true(ks_worker_is_stuck(row, ks_now_ns() + 2 * KS_WORKER_STUCK_NS));
}

/* --- its connections ---------------------------------------------------------------------------------------------- */

static void has(const ks_connections *of, int open, int pending)
{
    assert_int_equal(ks_connections_count(of), open);
    assert_int_equal(ks_connections_pending(of), pending);
    assert_int_equal(ks_connections_sum(of), open + pending);
}

static void connections_are_open_or_on_their_way(void **state)
{
    (void)state;
    ks_connections *of = &workers->row[0].connections;
    has(of, 0, 0);
    for (int i = 0; i < 3; i++) ks_connections_give(of);
    has(of, 0, 3);
    ks_connections_take(of);
    has(of, 1, 2);
    ks_connections_give_back(of);
    has(of, 1, 1);
    ks_connections_add(of);
    has(of, 2, 1);
    ks_connections_remove(of);
    has(of, 1, 1);
    ks_connections_set_down(of, 5);
    has(of, 0, 5);
}

/* Given, then taken or given back, then closed; one at a time. */
static _Noreturn void serve_one_by_one(void)
{
    for (unsigned i = 0;; i++) {
        ks_connections *of = &workers->row[1].connections;
        ks_connections_give(of);
        if (i % 3 == 2) {
            ks_connections_give_back(of);
        } else {
            ks_connections_take(of);
            ks_connections_remove(of);
        }
    }
}

static void a_connection_is_counted_once(void **state)
{
    (void)state;
    enum { LOOKS = 300000 };
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) serve_one_by_one();
    for (int i = 0; i < LOOKS; i++) {
        const int sum = ks_connections_sum(&workers->row[1].connections);
        assert_true(sum == 0 || sum == 1);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* --- two processes, as workers are -------------------------------------------------------------------------------- */

static _Noreturn void publish(void)
{
    char text[4096];
    for (unsigned i = 0;; i++) {
        const uint32_t seen = atomic_load(&workers->row[1].wanted);
        memset(text, 'a' + (int)(i % 26), sizeof text);
        ks_worker_publish(workers, 1, KS_WORKER_STATS, text, 1 + i * 37 % sizeof text);
        ks_worker_published(&workers->row[1]);
        ks_worker_wait_wanted(&workers->row[1], seen, 1000000000);
    }
}

/* A fresh text each time that it is asked for, and never a mixture of two. */
static void a_text_that_is_asked_for_is_new(void **state)
{
    (void)state;
    enum { TIMES = 200 };
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) publish();
    atomic_store(&workers->row[1].pid, (int)child);
    for (int i = 0; i < TIMES; i++) {
        ks_text out;
        ks_text_init(&out, KS_WORKER_TEXT_MAX);
        const uint32_t made = atomic_load(&workers->row[1].made);
        ks_workers_refresh(workers, 0, 10000000000);
        assert_true(atomic_load(&workers->row[1].made) != made);
        if (ks_worker_read(workers, 1, KS_WORKER_STATS, &out))
            for (size_t at = 1; at < out.length; at++) assert_int_equal(out.bytes[at], out.bytes[0]);
        ks_text_fini(&out);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Publishes parts that say what they were asked for; every third one for an ask that is long over. */
static _Noreturn void answer(void)
{
    ks_worker_row *row = &workers->row[1];
    uint64_t answered = 0;
    for (unsigned i = 0;; i++) {
        ks_part_ask ask;
        ks_text part;
        const uint32_t seen = atomic_load(&row->wanted);
        const uint64_t number = ks_worker_asked(row, &ask);
        ks_text_init(&part, KS_WORKER_PART_MAX);
        ks_part_begin(&part, i % 3 == 2 ? answered : number);
        ks_text_printf(&part, "%d %d %d %d", (int)ask.kind, (int)ask.number, (int)ask.order, (int)ask.csv);
        ks_worker_publish(workers, 1, KS_WORKER_PART, part.bytes, part.length);
        ks_worker_published(row);
        ks_text_fini(&part);
        answered = number;
        ks_worker_wait_wanted(row, seen, 1000000);
    }
}

static void a_part_is_what_was_asked_for(void **state)
{
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) answer();
    atomic_store(&workers->row[1].pid, (int)child);
    for (int i = 0; i < 200; i++) {
        char expected[64];
        ks_text parts[KS_WORKERS_MAX];
        const ks_part_ask ask = {.kind = i % 2 ? KS_ASK_TRACE : KS_ASK_PLANS,
                                 .number = (uint16_t)(65535 - i),
                                 .order = (uint8_t)(i % 3),
                                 .csv = i % 5 == 0};
        assert_int_equal(ks_workers_ask(workers, 0, &ask, 10000000000, parts), 1u << 1);
        const int n = snprintf(expected, sizeof expected, "%d %d %d %d", (int)ask.kind, (int)ask.number, (int)ask.order,
                               (int)ask.csv);
        assert_int_equal(parts[1].length, n);
        assert_memory_equal(parts[1].bytes, expected, (size_t)n);
        for (int w = 0; w < workers->count; w++) ks_text_fini(&parts[w]);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void one_that_has_no_part_is_missing(void **state)
{
    (void)state;
    ks_text parts[KS_WORKERS_MAX];
    const ks_part_ask ask = {.kind = KS_ASK_PLANS};
    const int64_t begun_ns = ks_now_ns();
    assert_int_equal(ks_workers_ask(workers, 0, &ask, INT64_C(3600000000000), parts), 0); /* it is down: no wait */
    atomic_store(&workers->row[1].pid, 1);
    assert_int_equal(ks_workers_ask(workers, 0, &ask, 20000000, parts), 0);
    assert_true(ks_now_ns() - begun_ns >= 20000000);
    atomic_store(&workers->row[1].accepts, true); /* and no turn: stuck */
    assert_int_equal(ks_workers_ask(workers, 0, &ask, INT64_C(3600000000000), parts), 0);
}

static void one_that_does_not_answer_is_waited_for_as_long_as_said(void **state)
{
    (void)state;
    const int64_t begun_ns = ks_now_ns();
    ks_workers_refresh(workers, 0, INT64_C(3600000000000)); /* it is down: no wait */
    atomic_store(&workers->row[1].pid, 1);
    ks_workers_refresh(workers, 0, 20000000);
    assert_true(ks_now_ns() - begun_ns >= 20000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family_comes_once_with_the_samples_of_all),
        cmocka_unit_test(a_sample_that_names_a_device_keeps_it),
        cmocka_unit_test(families_of_one_part_alone_follow),
        cmocka_unit_test(what_is_no_family_is_left_out),
        cmocka_unit_test_setup_teardown(a_text_is_there_while_its_worker_is, open_table, close_table),
        cmocka_unit_test_setup_teardown(one_without_a_turn_is_stuck, open_table, close_table),
        cmocka_unit_test_setup_teardown(connections_are_open_or_on_their_way, open_table, close_table),
        cmocka_unit_test_setup_teardown(a_connection_is_counted_once, open_table, close_table),
        cmocka_unit_test_setup_teardown(a_text_that_is_asked_for_is_new, open_table, close_table),
        cmocka_unit_test_setup_teardown(a_part_is_what_was_asked_for, open_table, close_table),
        cmocka_unit_test_setup_teardown(one_that_has_no_part_is_missing, open_table, close_table),
        cmocka_unit_test_setup_teardown(one_that_does_not_answer_is_waited_for_as_long_as_said, open_table,
                                        close_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
