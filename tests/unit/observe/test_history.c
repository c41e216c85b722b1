/* Figures of the last seconds and minutes: quantiles from requests whose times are known, maxima, and the slowest requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "observe/history.h"
#include "observe/latency.h"
#include "observe/slowest.h"
#include "base/model.h"

#define SECOND INT64_C(1000000000)

static ks_metrics *metrics;
static ks_history *history;
static ks_timeline *timeline;
static ks_slowest *slowest;

static int open_all(void **state)
{
    (void)state;
    ks_models_init();
    metrics = ks_metrics_open(2);
    timeline = ks_timeline_open(2, 64);
    if (!metrics || !timeline) return 1;
    history = ks_history_open(metrics, SECOND);
    slowest = ks_slowest_open(timeline, 2, 0);
    return !history || !slowest;
}

static int close_all(void **state)
{
    (void)state;
    ks_slowest_close(&slowest);
    ks_history_close(&history);
    ks_timeline_close(&timeline);
    ks_metrics_close(&metrics);
    return 0;
}

static long page_faults(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

/* A process whose seconds are all counted is as large as one that has just started: what grows is a leak. The first test, so that
 * the history is in pages that nothing has used before. */
static void no_second_takes_memory(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) ||                                                                                   \
    defined(__SANITIZE_THREAD__) /* which have pages of their own for each that is written */
    skip();
#endif
    ks_history_second(history, 2 * SECOND, NULL);
    const long before = page_faults();
    for (int second = 3; second < 3 + KS_HISTORY_S; second++) ks_history_second(history, second * SECOND, NULL);
    assert_in_range(page_faults(), before, before + 100); /* the seconds fill 200 pages */
}

static void a_step_is_a_sixteenth(void **state)
{
    (void)state;
    for (int64_t ns = 128; ns < INT64_C(1) << 39; ns += 1 + ns / 37) {
        const int step = ks_latency_step(ns);
        assert_in_range(step, 0, KS_LATENCY_STEPS - 1);
        assert_true(ns < ks_latency_bound(step));
        assert_true(step == 0 || ns >= ks_latency_bound(step - 1));
        assert_true(ks_latency_bound(step) <= ns + ns / 16 + 1);
    }
    assert_int_equal(ks_latency_step(-5), 0);
    assert_int_equal(ks_latency_step(INT64_MAX), KS_LATENCY_STEPS - 1);
}

static void end_one(int writer, ks_status status, int64_t total_ns)
{
    const ks_record record = {.model = 0,
                              .status = status,
                              .executed = status == KS_OK,
                              .batch_count = 1,
                              .phase_ns = {total_ns / 2, -1, -1, -1, total_ns - total_ns / 2, -1, -1, -1},
                              .total_ns = total_ns};
    ks_metrics_inference(ks_metrics_writer(metrics, writer), &record);
}

static void quantiles_are_of_the_span(void **state)
{
    (void)state;
    ks_load load;
    ks_history_load(history, 10, &load);
    assert_int_equal(load.span_ns, 0);
    assert_int_equal(load.p50_ns, -1);
    for (int i = 0; i < 1000; i++) end_one(i % 2, KS_OK, i < 980 ? 10000 : 1000000);
    for (int i = 0; i < 5; i++) end_one(0, KS_QUEUE_FULL, 77);
    ks_history_second(history, 2 * SECOND, NULL);
    for (int i = 0; i < 20; i++) ks_history_second(history, (3 + i) * SECOND, NULL);
    ks_history_load(history, 10, &load);
    assert_int_equal(load.requests, 0);
    assert_int_equal(load.span_ns, 10 * SECOND);
    assert_int_equal(load.max_ns, -1);
    ks_history_load(history, KS_HISTORY_S, &load);
    assert_int_equal(load.requests, 1005);
    assert_int_equal(load.span_ns, 21 * SECOND);
    assert_in_range(load.p50_ns, 10000, 10625);
    assert_in_range(load.p99_ns, 1000000, 1062500);
    assert_in_range(load.max_ns, 1000000, 1062500);
}

static void models_have_ten_seconds(void **state)
{
    (void)state;
    ks_model_times times;
    end_one(0, KS_OK, 1000);
    end_one(1, KS_OK, 3000);
    end_one(1, KS_DEADLINE, 9000);
    ks_history_second(history, 2 * SECOND, NULL);
    ks_history_model(history, 0, &times);
    assert_int_equal(times.requests, 2);
    assert_int_equal(times.total_ns, 4000);
    assert_int_equal(times.phase_ns[KS_PHASE_receive], 2000);
    assert_int_equal(times.phase_ns[KS_PHASE_compute], 2000);
    for (int i = 0; i < KS_HISTORY_SHORT_S; i++) ks_history_second(history, (3 + i) * SECOND, NULL);
    ks_history_model(history, 0, &times);
    assert_int_equal(times.requests, 0);
}

static void maxima_last_five_minutes(void **state)
{
    (void)state;
    int64_t now[KS_GAUGES] = {[KS_GAUGE_queue] = 17};
    ks_history_gauges(history, now);
    now[KS_GAUGE_queue] = 3;
    ks_history_gauges(history, now);
    assert_int_equal(ks_history_now(history, KS_GAUGE_queue), 3);
    ks_metrics_rejected(ks_metrics_writer(metrics, 1), KS_QUEUE_FULL);
    for (int i = 0; i < KS_HISTORY_S; i++) {
        ks_history_second(history, (2 + i) * SECOND, NULL);
        assert_int_equal(ks_history_most(history, KS_GAUGE_queue), 17);
        assert_int_equal(ks_history_rejected(history, KS_QUEUE_FULL), 1);
    }
    for (int i = 0; i < 2; i++) ks_history_second(history, (302 + i) * SECOND, NULL);
    assert_int_equal(ks_history_most(history, KS_GAUGE_queue), 3);
    assert_int_equal(ks_history_rejected(history, KS_QUEUE_FULL), 0);
}

static void end_request(int shard, int64_t at_ns, int64_t total_ns)
{
    ks_request_record r = {.first_ns = at_ns - total_ns, .answered_ns = at_ns, .status = KS_OK, .ran = 1, .launch = 1};
    snprintf(r.request_id, sizeof r.request_id, "%d", (int)total_ns);
    ks_timeline_add_request(ks_timeline_writer(timeline, shard), &r);
}

/* Twenty of many, of both shards, with the plans of those whose launch is known. */
static void the_slowest_are_listed(void **state)
{
    (void)state;
    const ks_slow *list[KS_SLOWEST];
    const ks_plan_record plan = {.text = "softmax FP32 [2,3]"};
    const ks_launch_record launch = {.plan = 9, .lane = 5, .jobs = 1};
    ks_timeline_add_plan(ks_timeline_writer(timeline, 0), 9, &plan);
    ks_timeline_add_launch(ks_timeline_writer(timeline, 0), &launch);
    for (int i = 1; i <= 300; i++) {
        end_request(i % 2, SECOND + i, 1000 + i * 7 % 300);
        if (i % 50 == 0) ks_slowest_look(slowest, SECOND);
    }
    assert_int_equal(ks_slowest_list(slowest, list), KS_SLOWEST);
    for (int i = 0; i < KS_SLOWEST; i++) {
        assert_int_equal(ks_slow_ns(list[i]), 1299 - i);
        assert_int_equal(list[i]->lane, list[i]->shard == 0 ? 5 : -1);
        assert_string_equal(list[i]->plan.text, list[i]->shard == 0 ? plan.text : "");
    }
    /* what is faster than these is not kept aside; what is slower is */
    const uint64_t kept = ks_timeline_slow_requests(timeline, 0);
    end_request(0, 2 * SECOND, 1200);
    assert_int_equal(ks_timeline_slow_requests(timeline, 0), kept);
    end_request(0, 2 * SECOND, 5000);
    assert_int_equal(ks_timeline_slow_requests(timeline, 0), kept + 1);
}

static void the_slowest_are_forgotten_after_five_minutes(void **state)
{
    (void)state;
    const ks_slow *list[KS_SLOWEST];
    end_request(0, SECOND, 9000);
    ks_slowest_look(slowest, SECOND);
    for (int s = 11; s < 300; s += 10) {
        end_request(1, s * SECOND, 100 + s);
        ks_slowest_look(slowest, s * SECOND);
        assert_int_equal(ks_slowest_list(slowest, list), s / 10 + 1 < KS_SLOWEST ? s / 10 + 1 : KS_SLOWEST);
        assert_int_equal(ks_slow_ns(list[0]), 9000);
    }
    ks_slowest_look(slowest, 301 * SECOND);
    assert_int_equal(ks_slowest_list(slowest, list), KS_SLOWEST);
    assert_int_equal(ks_slow_ns(list[0]), 391);
    ks_slowest_look(slowest, 5000 * SECOND);
    assert_int_equal(ks_slowest_list(slowest, list), 0);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_all, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(no_second_takes_memory),
                                       TEST(a_step_is_a_sixteenth),
                                       TEST(quantiles_are_of_the_span),
                                       TEST(models_have_ten_seconds),
                                       TEST(maxima_last_five_minutes),
                                       TEST(the_slowest_are_listed),
                                       TEST(the_slowest_are_forgotten_after_five_minutes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
