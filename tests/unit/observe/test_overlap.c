/* Busy times of the engines and their overlaps, from launches whose intervals are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "observe/overlap.h"

enum { LAUNCHES = 64, SECOND = 1000000000 };

static ks_timeline *timeline;
static ks_overlap *overlap;

static int open_overlap(void **state)
{
    (void)state;
    timeline = ks_timeline_open(2, LAUNCHES);
    overlap = timeline ? ks_overlap_open(timeline, 2, 1000) : NULL;
    return overlap == NULL;
}

static int close_overlap(void **state)
{
    (void)state;
    ks_overlap_close(&overlap);
    ks_timeline_close(&timeline);
    return 0;
}

static void launch(int shard, int64_t at, int64_t h2d, int64_t compute, int64_t d2h)
{
    const ks_launch_record r = {
        .launched_ns = at, .h2d_ns = h2d, .compute_ns = compute, .d2h_ns = d2h, .jobs = 2, .plan = 1};
    ks_timeline_add_launch(ks_timeline_writer(timeline, shard), &r);
}

static ks_overlap_sums look(int64_t now)
{
    ks_overlap_sums sums;
    ks_overlap_look(overlap, now);
    ks_overlap_read(overlap, &sums);
    return sums;
}

static void two_launches_overlap_by_what_they_share(void **state)
{
    (void)state;
    /* h2d 2000-2100, compute 2100-2400, d2h 2400-2500; and of another shard 2050-2350, 2350-2450, 2450-2480 */
    launch(0, 2000, 100, 300, 100);
    launch(1, 2050, 300, 100, 30);
    const ks_overlap_sums s = look(3000);
    assert_int_equal(s.busy_h2d, 350);     /* 2000-2350: a union, not a sum */
    assert_int_equal(s.busy_compute, 350); /* 2100-2450 */
    assert_int_equal(s.busy_d2h, 100);
    assert_int_equal(s.busy_any, 500);
    assert_int_equal(s.h2d_compute, 250); /* 2100-2350 */
    assert_int_equal(s.compute_d2h, 50);  /* 2400-2450 */
    assert_int_equal(s.h2d_d2h, 0);
    assert_int_equal(s.all, 0);
    assert_int_equal(s.two, 300);
    assert_int_equal(s.observed, 2000);
    assert_int_equal(s.overruns, 0);
}

static void all_three_at_once(void **state)
{
    (void)state;
    launch(0, 2000, 100, 0, 0);
    launch(0, 2020, 0, 100, 0);
    launch(1, 2040, 0, 0, 100);
    const ks_overlap_sums s = look(3000);
    assert_int_equal(s.h2d_compute, 80);
    assert_int_equal(s.h2d_d2h, 60);
    assert_int_equal(s.compute_d2h, 80);
    assert_int_equal(s.all, 60);
    assert_int_equal(s.two, 100); /* 2020-2120 */
    assert_int_equal(s.busy_any, 140);
}

/* A launch that lasts over several looks is known at its end alone, and then fills what was idle before. */
static void a_long_launch_counts_where_it_began(void **state)
{
    (void)state;
    launch(1, 2000, 50, 0, 50);
    ks_overlap_sums s = look(3000);
    assert_int_equal(s.busy_any, 100);
    launch(1, 4000, 50, 0, 0);
    s = look(5000);
    launch(0, 1500, 0, 4000, 0);
    s = look(6000);
    assert_int_equal(s.busy_compute, 4000);
    assert_int_equal(s.busy_any, 4000);
    assert_int_equal(s.h2d_compute, 100);
    assert_int_equal(s.compute_d2h, 50);
    assert_int_equal(s.two, 150);
    assert_int_equal(s.observed, 5000);
}

static void what_was_before_the_start_is_left_out(void **state)
{
    (void)state;
    launch(0, 500, 0, 1000, 0);
    assert_int_equal(look(2000).busy_compute, 500);
}

/* 64 are kept of 100: time before the end of the first one that is here counts for nothing. */
static void lost_records_are_counted_and_their_time_is_not(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) launch(0, 2000 + i * 10, 0, 5, 0);
    launch(1, 2000, 1000, 0, 0);
    ks_overlap_sums s = look(3000);
    const int first = 2000 + 36 * 10 + 5;
    assert_int_equal(s.overruns, 36);
    assert_int_equal(s.observed, 3000 - first);
    assert_int_equal(s.busy_compute, 63 * 5);
    assert_int_equal(s.busy_h2d, 3000 - first);
    assert_int_equal(s.h2d_compute, 63 * 5);
    /* what ends later reaches back over the gap, and fills none of it */
    launch(1, 1000, 0, 0, 2500);
    s = look(4000);
    assert_int_equal(s.busy_d2h, 3500 - first);
    assert_true(s.busy_any <= s.observed);
}

/* Uneven intervals against a bitmap of each nanosecond. */
static void drawn_intervals_equal_a_bitmap(void **state)
{
    (void)state;
    enum { LONG = 20000, MANY = 600 };
    static unsigned char busy[LONG];
    uint64_t want[9] = {0};
    unsigned seed = 7;
    memset(busy, 0, sizeof busy);
    for (int i = 0; i < MANY; i++) {
        int64_t at = 1000 + (int64_t)(rand_r(&seed) % 15000), ns[3];
        for (int e = 0; e < 3; e++) ns[e] = rand_r(&seed) % 3 ? 0 : rand_r(&seed) % 120;
        launch(i % 2, at, ns[0], ns[1], ns[2]);
        for (int e = 0; e < 3; at += ns[e], e++)
            for (int64_t t = at; t < at + ns[e]; t++) busy[t] |= (unsigned char)(1 << e);
        if (i % 16 == 15) look(LONG + i);
    }
    for (int t = 0; t < LONG; t++) {
        const int h = busy[t] & 1, c = busy[t] >> 1 & 1, d = busy[t] >> 2 & 1;
        const int each[9] = {h, c, d, busy[t] != 0, h & c, h & d, c & d, h & c & d, h + c + d >= 2};
        for (int i = 0; i < 9; i++) want[i] += (uint64_t)each[i];
    }
    const ks_overlap_sums s = look(2 * LONG);
    assert_int_equal(s.overruns, 0);
    assert_memory_equal(&s, want, sizeof want);
}

/* More changes than the axis holds: what is old is forgotten, and what is new still counts. */
static void an_axis_that_is_full_forgets_the_oldest(void **state)
{
    (void)state;
    ks_overlap_sums s = {0};
    for (int i = 0; i < 40000; i++) {
        launch(0, 2000 + i * 10L, 0, 5, 0);
        if (i % 32 == 31) s = look(2000 + i * 10L + 9);
    }
    assert_int_equal(s.busy_compute, 40000 * 5);
    assert_int_equal(s.overruns, 0);
    launch(1, 2000, 3 * 400000, 0, 0); /* its beginning is forgotten */
    s = look(2 * SECOND);
    assert_true(s.busy_h2d > 3 * 400000 - 400000 && s.busy_h2d < 3 * 400000);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_overlap, close_overlap)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(two_launches_overlap_by_what_they_share),
                                       TEST(all_three_at_once),
                                       TEST(a_long_launch_counts_where_it_began),
                                       TEST(what_was_before_the_start_is_left_out),
                                       TEST(lost_records_are_counted_and_their_time_is_not),
                                       TEST(drawn_intervals_equal_a_bitmap),
                                       TEST(an_axis_that_is_full_forgets_the_oldest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
