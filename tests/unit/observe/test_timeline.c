/* The timeline: what was written last is there, what was written over is not, and no record that is being written is given out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "observe/timeline.h"

enum { LAUNCHES = 40 };

static ks_timeline *timeline;

static int open_timeline(void **state)
{
    (void)state;
    timeline = ks_timeline_open(2, LAUNCHES);
    return timeline == NULL;
}

static int close_timeline(void **state)
{
    (void)state;
    ks_timeline_close(&timeline);
    return timeline != NULL;
}

/* Every field follows from the number. */
static ks_launch_record launch_of(uint64_t number)
{
    const int64_t n = (int64_t)number;
    return (ks_launch_record){.launched_ns = n * 7,
                              .h2d_ns = n * 11,
                              .compute_ns = n * 13,
                              .d2h_ns = n * 17,
                              .issue_ns = n * 19,
                              .plan = number * 23,
                              .lane = number & 15,
                              .jobs = number & 0xffff,
                              .graph = number & 1};
}

static void the_last_ones_are_kept(void **state)
{
    (void)state;
    ks_launch_record got;
    assert_int_equal(ks_timeline_launches(timeline, 0), 0);
    assert_false(ks_timeline_launch(timeline, 0, 0, &got));
    assert_false(ks_timeline_launch(timeline, 0, 1, &got));
    for (uint64_t n = 1; n <= 3 * LAUNCHES + 5; n++) {
        const ks_launch_record record = launch_of(n);
        assert_int_equal(ks_timeline_add_launch(ks_timeline_writer(timeline, 0), &record), n);
    }
    assert_int_equal(ks_timeline_launches(timeline, 0), 3 * LAUNCHES + 5);
    for (uint64_t n = 1; n <= 3 * LAUNCHES + 6; n++) {
        const bool kept = n > 2 * LAUNCHES + 5 && n <= 3 * LAUNCHES + 5;
        const ks_launch_record want = launch_of(n);
        assert_int_equal(ks_timeline_launch(timeline, 0, n, &got), kept);
        if (kept) assert_memory_equal(&got, &want, sizeof got);
    }
    assert_int_equal(ks_timeline_launches(timeline, 1), 0);
}

static void requests_keep_their_id(void **state)
{
    (void)state;
    ks_shard_timeline *shard = ks_timeline_writer(timeline, 1);
    ks_request_record record = {.first_ns = 5, .trace = {1, 2}, .model = 3, .status = 40, .ran = 1}, got;
    for (int n = 0; n < LAUNCHES / 4 + 2; n++) {
        snprintf(record.request_id, sizeof record.request_id, "request-%d", n);
        ks_timeline_add_request(shard, &record);
    }
    assert_false(ks_timeline_request(timeline, 1, 2, &got));
    assert_true(ks_timeline_request(timeline, 1, 3, &got));
    assert_string_equal(got.request_id, "request-2");
    assert_int_equal(got.model, 3);
    assert_int_equal(got.status, 40);
    assert_int_equal(got.trace[1], 2);
}

static void plans_have_words(void **state)
{
    (void)state;
    ks_shard_timeline *shard = ks_timeline_writer(timeline, 0);
    const ks_plan_record plan = {.text = "softmax FP32 [2,3]"};
    ks_plan_record got;
    ks_timeline_add_plan(shard, 9, &plan);
    assert_true(ks_timeline_plan(timeline, 0, 9, &got));
    assert_memory_equal(&got, &plan, sizeof got);
    assert_false(ks_timeline_plan(timeline, 0, 11, &got));
    ks_timeline_add_plan(shard, 9 + 4096, &plan);
    assert_false(ks_timeline_plan(timeline, 0, 9, &got));
}

/* So many that a reader is overtaken amid a record: half a second, and half a minute where each access is watched. */
#ifdef __SANITIZE_THREAD__
enum { WRITTEN = 300000 };
#else
enum { WRITTEN = 15000000 };
#endif

static void *write_many(void *argument)
{
    (void)argument;
    for (uint64_t n = 1; n <= WRITTEN; n++) {
        const ks_launch_record record = launch_of(n);
        ks_timeline_add_launch(ks_timeline_writer(timeline, 0), &record);
    }
    return NULL;
}

static void a_reader_sees_whole_records(void **state)
{
    (void)state;
    pthread_t writer;
    uint64_t last = 0, seen = 0, torn = 0;
    assert_int_equal(pthread_create(&writer, NULL, write_many, NULL), 0);
    while (last < WRITTEN) {
        last = ks_timeline_launches(timeline, 0);
        for (uint64_t n = last > LAUNCHES ? last - LAUNCHES : 1; n <= last; n++) {
            ks_launch_record got;
            const ks_launch_record want = launch_of(n);
            if (!ks_timeline_launch(timeline, 0, n, &got)) continue;
            torn += memcmp(&got, &want, sizeof got) != 0;
            seen++;
        }
    }
    pthread_join(writer, NULL);
    assert_int_equal(torn, 0);
    assert_true(seen > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_timeline, close_timeline)
    const struct CMUnitTest tests[] = {TEST(the_last_ones_are_kept), TEST(requests_keep_their_id),
                                       TEST(plans_have_words), TEST(a_reader_sees_whole_records)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
