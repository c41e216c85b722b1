/* The engine on a scripted device (order, batches, graphs), on the CPU (real threads), and on a device that fails.
 * Every test ends with all slots back and no byte left in the budget. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake/backend_faulty.h"
#include "fake/backend_scripted.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "ops/op_tiny.h"
#include "engine/slot_queue.h"
#include "kernserve/backends.h"

enum { JOBS = 64, MS = 1000000, SMALL_SIDE = 4096, LARGE_SIDE = 65536, BUDGET = 1 << 20 };

static struct {
    const ks_backend *backend;
    ks_device *device;
    ks_budget *budget;
    ks_engine *engine;
    int wake_fd;
    ks_job jobs[JOBS];
    ks_error faults[JOBS];
    uint64_t random;
} bed;

static uint64_t random_next(void)
{
    bed.random ^= bed.random << 13, bed.random ^= bed.random >> 7, bed.random ^= bed.random << 17;
    return bed.random;
}

/* --- the bed --------------------------------------------------------------------------------------------------------
 */

static ks_engine_options usual_options(int lanes)
{
    return (ks_engine_options){
        .lanes = lanes,
        .classes = 2,
        .size_class = {{.side_bytes = SMALL_SIDE, .count = JOBS}, {.side_bytes = LARGE_SIDE, .count = 2}},
        .pinned = true,
        .plan_bytes = 1 << 20,
        .queue_max = JOBS,
        .stall_ns = 60000 * (int64_t)MS,
        .scrub = true};
}

static ks_status try_open(const ks_backend *backend, ks_engine_options options, ks_error *error)
{
    memset(bed.jobs, 0, sizeof bed.jobs);
    bed.backend = backend;
    bed.budget = ks_budget_open(BUDGET);
    bed.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const ks_limits limits = {.device_index = -1,
                              .lanes = options.lanes,
                              .lane_bytes = 1 << 20,
                              .large_bytes = 1 << 20,
                              .workspace_bytes = 1 << 20,
                              .mapped_max = SIZE_MAX};
    assert_int_equal(backend->open(&limits, &bed.device, error), KS_OK);
    options.backend = backend;
    options.device = bed.device;
    options.budget = bed.budget;
    options.wake_fd = bed.wake_fd;
    return ks_engine_open(&options, &bed.engine, error);
}

static void open_with(const ks_backend *backend, ks_engine_options options)
{
    ks_error error = {.status = KS_OK};
    assert_int_equal(try_open(backend, options, &error), KS_OK);
}

static void open_scripted(int lanes, int batch_max)
{
    memset(&script, 0, sizeof script);
    script.batch_max = batch_max;
    script.hold = true;
    open_with(scripted_backend(), usual_options(lanes));
}

static ks_engine_stats stats(void)
{
    ks_engine_stats read;
    ks_engine_read_stats(bed.engine, &read);
    return read;
}

static void close_bed(void)
{
    if (bed.engine) {
        for (int i = 0; i < JOBS; i++) {
            if (bed.jobs[i].slot) ks_engine_slot_release(bed.engine, &bed.jobs[i].slot);
            if (bed.jobs[i].plan) ks_engine_plan_release(bed.engine, &bed.jobs[i].plan);
        }
        assert_int_equal(stats().slot_used_bytes, 0);
        assert_int_equal(stats().running, 0);
        assert_int_equal(stats().lanes_busy, 0);
        assert_int_equal(stats().queue_depth, 0);
    }
    assert_int_equal(ks_budget_used(bed.budget), 0);
    ks_engine_close(&bed.engine);
    bed.backend->close(&bed.device);
    ks_budget_close(&bed.budget);
    close(bed.wake_fd);
}

static float input(int job, size_t i)
{
    return (float)((size_t)job * 1000 + i);
}

/* Job i: `count` numbers, plus `add`; plans differ where one of the numbers does. */
static ks_job *make_job(int i, int64_t count, int64_t add, int64_t spin_us)
{
    ks_error error;
    ks_job *job = &bed.jobs[i];
    job->fault = &bed.faults[i];
    job->fault->status = KS_OK;
    const ks_spec spec = tiny_spec(count, add, spin_us);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &job->plan, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, job->plan->in_bytes, job->plan->out_bytes, &job->slot, &error), KS_OK);
    for (size_t k = 0; k < (size_t)count; k++) ((float *)job->slot->in)[k] = input(i, k);
    return job;
}

static ks_job *submit(int i, int64_t count, int64_t add, int64_t spin_us)
{
    ks_error error;
    ks_job *job = make_job(i, count, add, spin_us);
    assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_OK);
    return job;
}

static void check_response(int i)
{
    const ks_job *job = &bed.jobs[i];
    assert_int_equal(job->state, KS_JOB_DONE);
    assert_int_equal(job->status, KS_OK);
    assert_true(job->submitted_ns <= job->launched_ns && job->launched_ns <= job->done_ns);
    assert_true(job->h2d_ns >= 0 && job->compute_ns >= 0 && job->d2h_ns >= 0);
    assert_int_equal(job->h2d_ns + job->compute_ns + job->d2h_ns, job->done_ns - job->launched_ns);
    const ks_spec *spec = &job->plan->spec;
    for (size_t k = 0; k < spec->out[0].size_bytes / sizeof(float); k++)
        assert_true(((float *)job->slot->out)[k] == input(i, k) * 2 + (float)spec->params[TINY_ADD].i);
}

static int count_done(ks_job *list)
{
    int count = 0;
    for (; list; list = list->next) count++;
    return count;
}

/* Turns until that many jobs are back. */
static void turn_until(int wanted)
{
    const int64_t give_up_ns = ks_now_ns() + 20000 * (int64_t)MS;
    while (wanted > 0) {
        assert_true(ks_now_ns() < give_up_ns);
        ks_engine_launch(bed.engine);
        wanted -= count_done(ks_engine_collect(bed.engine));
    }
    assert_int_equal(wanted, 0);
}

/* --- order and batches ----------------------------------------------------------------------------------------------- */

static void jobs_of_one_plan_go_out_together(void **state)
{
    (void)state;
    open_scripted(2, 4);
    for (int i = 0; i < 6; i++) submit(i, 10, 3, 0);
    assert_true(ks_engine_ready(bed.engine));
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 2);
    assert_int_equal(script.log[0].count, 4);
    assert_int_equal(script.log[1].count, 2);
    assert_int_not_equal(script.log[0].lane, script.log[1].lane);
    assert_int_equal(stats().running, 6);
    assert_int_equal(stats().lanes_busy, 2);
    assert_false(ks_engine_ready(bed.engine));
    assert_true(ks_engine_running(bed.engine));
    assert_true(ks_engine_polls(bed.engine));
    assert_null(ks_engine_collect(bed.engine));
    script_release(script.log[0].lane);
    assert_int_equal(count_done(ks_engine_collect(bed.engine)), 4);
    for (int i = 0; i < 4; i++) {
        check_response(i);
        assert_int_equal(bed.jobs[i].batch_count, 4);
        assert_int_equal(bed.jobs[i].lane, script.log[0].lane);
        assert_int_equal(bed.jobs[i].h2d_ns, 40);
        assert_int_equal(bed.jobs[i].graph, KS_GRAPH_MISS);
    }
    assert_int_equal(bed.jobs[4].state, KS_JOB_RUNNING);
    script_release(script.log[1].lane);
    assert_int_equal(count_done(ks_engine_collect(bed.engine)), 2);
    check_response(5);
    assert_int_equal(bed.jobs[0].plan->timed_jobs, 6);
    assert_int_equal(bed.jobs[0].plan->timed_ns, 2 * 12);
    assert_true(stats().overlap_ns > 0);
    assert_true(stats().device_busy_ns >= stats().overlap_ns);
    assert_int_equal(stats().launches, 2);
    close_bed();
}

static void plans_of_one_turn_go_to_different_lanes(void **state)
{
    (void)state;
    open_scripted(2, 8);
    submit(0, 10, 0, 0);
    submit(1, 20, 0, 0);
    submit(2, 30, 0, 0);
    submit(3, 10, 0, 0); /* joins job 0 past the jobs of other plans */
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 2);
    assert_ptr_equal(script.log[0].plan, bed.jobs[0].plan);
    assert_int_equal(script.log[0].count, 2);
    assert_ptr_equal(script.log[1].plan, bed.jobs[1].plan);
    assert_int_equal(bed.jobs[2].state, KS_JOB_READY);
    assert_int_equal(stats().queue_depth, 1);
    script.hold = false;
    script_release(0);
    script_release(1);
    turn_until(4);
    for (int i = 0; i < 4; i++) check_response(i);
    close_bed();
}

static void priority_comes_before_arrival(void **state)
{
    (void)state;
    open_scripted(1, 1);
    const uint64_t priorities[] = {0, 5, 1, 0, 1, 5};
    const int expected[] = {2, 4, 1, 5, 0, 3};
    for (int i = 0; i < 6; i++) {
        ks_error error;
        ks_job *job = make_job(i, 10 + i, 0, 0);
        job->priority = priorities[i];
        assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_OK);
    }
    script.hold = false;
    turn_until(6);
    for (int i = 0; i < 6; i++) assert_ptr_equal(script.log[i].plan, bed.jobs[expected[i]].plan);
    close_bed();
}

static void a_large_plan_waits_for_lane_0_and_others_pass(void **state)
{
    (void)state;
    open_scripted(2, 1);
    script.large_from = 1000 * sizeof(float);
    submit(0, 1000, 0, 0);
    submit(1, 1001, 0, 0);
    submit(2, 10, 0, 0);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 2);
    assert_int_equal(script.log[0].lane, 0);
    assert_ptr_equal(script.log[0].plan, bed.jobs[0].plan);
    assert_int_equal(script.log[1].lane, 1);
    assert_ptr_equal(script.log[1].plan, bed.jobs[2].plan);
    script_release(1);
    assert_int_equal(count_done(ks_engine_collect(bed.engine)), 1);
    ks_engine_launch(bed.engine);
    assert_int_equal(bed.jobs[1].state, KS_JOB_READY); /* lane 1 is free, and not for it */
    script.hold = false;
    script_release(0);
    turn_until(2);
    assert_int_equal(script.log[2].lane, 0);
    close_bed();
}

static void a_slot_that_the_device_cannot_see_goes_alone(void **state)
{
    (void)state;
    open_scripted(1, 8);
    script.mapped = true;
    submit(0, 10, 0, 0);
    submit(1, 10, 0, 0);
    bed.jobs[1].slot->in_device = NULL;
    submit(2, 10, 0, 0);
    script.hold = false;
    turn_until(3);
    assert_int_equal(script.launches, 2);
    assert_int_equal(script.log[0].count, 2);
    assert_int_equal(script.log[1].count, 1);
    for (int i = 0; i < 3; i++) check_response(i);
    close_bed();
}

static void a_job_whose_steps_are_timed_goes_alone(void **state)
{
    (void)state;
    int64_t step_ns[1] = {0};
    open_scripted(1, 8);
    script.mapped = true;
    for (int i = 0; i < 3; i++) submit(i, 10, 0, 0);
    bed.jobs[0].step_ns = step_ns;
    script.hold = false;
    turn_until(3);
    assert_int_equal(script.launches, 2);
    assert_int_equal(script.log[0].count, 1);
    assert_int_equal(script.log[1].count, 2);
    for (int i = 0; i < 3; i++) check_response(i);
    close_bed();
}

static void an_asked_deadline_orders_equal_priorities(void **state)
{
    (void)state;
    open_scripted(1, 1);
    const int64_t now_ns = ks_now_ns();
    static const struct {
        uint64_t priority;
        int64_t in_ms;
        bool asked;
    } given[] = {{0, 9000, false}, {0, 9000, true},  {3, 9000, false}, {0, 5000, true},
                 {3, 8000, true},  {0, 1000, false}, {3, 7000, true},  {0, 5000, true}};
    const int expected[] = {6, 4, 2, 3, 7, 1, 0, 5};
    for (int i = 0; i < 8; i++) {
        ks_error error;
        ks_job *job = make_job(i, 10 + i, 0, 0);
        job->priority = given[i].priority;
        job->deadline_ns = now_ns + given[i].in_ms * MS;
        job->deadline_asked = given[i].asked;
        assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_OK);
    }
    script.hold = false;
    turn_until(8);
    for (int i = 0; i < 8; i++) assert_ptr_equal(script.log[i].plan, bed.jobs[expected[i]].plan);
    close_bed();
}

static void open_short_queue(int queue_max)
{
    memset(&script, 0, sizeof script);
    script.batch_max = 1;
    script.hold = true;
    ks_engine_options options = usual_options(1);
    options.queue_max = queue_max;
    open_with(scripted_backend(), options);
}

static void a_full_queue_refuses(void **state)
{
    (void)state;
    open_short_queue(3);
    submit(0, 10, 0, 0);
    ks_engine_launch(bed.engine);
    for (int i = 1; i < 4; i++) submit(i, 10, 0, 0);
    ks_error error;
    ks_job *job = make_job(4, 10, 0, 0);
    assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_QUEUE_FULL);
    assert_int_equal(job->state, KS_JOB_IDLE);
    script.hold = false;
    script_release(0);
    assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_OK);
    turn_until(5);
    for (int i = 0; i < 5; i++) check_response(i);
    close_bed();
}

/* All that a turn reads is submitted before anything is launched: free lanes take what the queue does not hold. */
static void a_full_queue_is_launched_before_it_refuses(void **state)
{
    (void)state;
    open_short_queue(3);
    script.hold = false;
    for (int i = 0; i < JOBS; i++) submit(i, 10, 0, 0);
    assert_int_equal(script.launches, JOBS - 3);
    turn_until(JOBS);
    for (int i = 0; i < JOBS; i++) check_response(i);
    close_bed();
}

/* Nobody has looked at the device between their launch and its loss. */
static void what_a_full_queue_ran_does_not_outlive_the_device(void **state)
{
    (void)state;
    open_short_queue(3);
    script.hold = false;
    for (int i = 0; i < 10; i++) submit(i, 10, 0, 0);
    ks_engine_fail_all(bed.engine);
    assert_int_equal(count_done(ks_engine_collect(bed.engine)), 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(bed.jobs[i].status, KS_DEVICE);
        assert_int_equal(bed.jobs[i].fault->status, KS_DEVICE);
    }
    close_bed();
}

static void a_full_queue_refuses_who_ranks_last(void **state)
{
    (void)state;
    open_short_queue(3);
    submit(0, 10, 0, 0);
    ks_engine_launch(bed.engine);
    const uint64_t priorities[] = {0, 7, 0, 0, 9, 9, 9, 7};
    const ks_status expected[] = {KS_OK, KS_OK, KS_OK, KS_OK, KS_OK, KS_OK, KS_QUEUE_FULL, KS_OK};
    for (int i = 1; i < 8; i++) {
        ks_error error;
        ks_job *job = make_job(i, 10, 0, 0);
        job->priority = priorities[i];
        assert_int_equal(ks_engine_submit(bed.engine, job, &error), expected[i]);
    }
    /* 4, 5 and 7 took the places of 3, 2 and 5, each of which was the last one then. */
    assert_int_equal(stats().queue_depth, 3);
    const ks_job *refused = ks_engine_collect(bed.engine);
    const int who[] = {3, 2, 5};
    for (int i = 0; i < 3; i++, refused = refused->next) {
        assert_ptr_equal(refused, &bed.jobs[who[i]]);
        assert_int_equal(refused->status, KS_QUEUE_FULL);
        assert_int_equal(refused->fault->status, KS_QUEUE_FULL);
        assert_int_equal(refused->state, KS_JOB_DONE);
    }
    assert_null(refused);
    script.hold = false;
    script_release(0);
    turn_until(4);
    check_response(0);
    check_response(1);
    check_response(4);
    check_response(7);
    close_bed();
}

static void an_empty_output_is_done_at_once(void **state)
{
    (void)state;
    open_scripted(1, 1);
    ks_job *job = submit(0, 0, 0, 0);
    assert_int_equal(job->state, KS_JOB_DONE);
    assert_true(ks_engine_running(bed.engine)); /* so that the shard collects soon */
    assert_ptr_equal(ks_engine_collect(bed.engine), job);
    assert_null(job->next);
    assert_int_equal(job->status, KS_OK);
    assert_int_equal(job->graph, KS_GRAPH_NONE);
    assert_int_equal(script.launches, 0);
    assert_null(ks_engine_collect(bed.engine));
    close_bed();
}

/* --- deadlines, cancelling, faults ----------------------------------------------------------------------------------- */

static void late_jobs_are_dropped_and_running_ones_are_not(void **state)
{
    (void)state;
    open_scripted(1, 1);
    submit(0, 10, 0, 0);
    ks_engine_launch(bed.engine); /* in time, however late this thread gets a processor: its deadline comes behind */
    const int64_t now_ns = ks_now_ns(), soon_ns = now_ns + 5 * MS;
    bed.jobs[0].deadline_ns = soon_ns;
    submit(1, 11, 0, 0)->deadline_ns = soon_ns;
    submit(2, 12, 0, 0)->deadline_ns = now_ns + 100000 * (int64_t)MS;
    submit(3, 13, 0, 0);
    ks_engine_expire(bed.engine, now_ns);
    assert_null(ks_engine_collect(bed.engine));
    ks_engine_expire(bed.engine, soon_ns);
    ks_job *late = ks_engine_collect(bed.engine);
    assert_ptr_equal(late, &bed.jobs[1]);
    assert_null(late->next);
    assert_int_equal(late->status, KS_DEADLINE);
    assert_int_equal(late->fault->status, KS_DEADLINE);
    assert_non_null(strstr(late->fault->text, "expired"));
    assert_int_equal(stats().queue_depth, 2);
    while (ks_now_ns() <= soon_ns) {
    }
    script_release(0);
    assert_int_equal(count_done(ks_engine_collect(bed.engine)), 1);
    check_response(0);
    bed.jobs[2].deadline_ns = soon_ns; /* nobody expired it: launch does not send it either */
    script.hold = false;
    turn_until(2);
    assert_int_equal(bed.jobs[2].status, KS_DEADLINE);
    assert_int_equal(script.launches, 2);
    check_response(3);
    close_bed();
}

static void a_late_mate_does_not_join_a_batch(void **state)
{
    (void)state;
    open_scripted(1, 8);
    script.hold = false;
    for (int i = 0; i < 3; i++) submit(i, 10, 0, 0);
    bed.jobs[1].deadline_ns = ks_now_ns() - 1;
    turn_until(3);
    assert_int_equal(script.launches, 1);
    assert_int_equal(script.log[0].count, 2);
    assert_int_equal(bed.jobs[1].status, KS_DEADLINE);
    check_response(0);
    check_response(2);
    close_bed();
}

static void expect_refused(ks_job *done, int job)
{
    assert_ptr_equal(done, &bed.jobs[job]);
    assert_int_equal(done->status, KS_QUEUE_FULL);
    assert_non_null(strstr(done->fault->text, "wait for a lane"));
}

/* A lane at work for 14 s, on a plan that nobody has measured: each job behind it takes as long, at least. */
static void a_queue_beyond_the_deadline_is_refused(void **state)
{
    (void)state;
    const int64_t second_ns = 1000 * (int64_t)MS;
    ks_error error;
    open_scripted(1, 1);
    submit(0, 10, 0, 0);
    ks_engine_launch(bed.engine);
    const int64_t now_ns = ks_now_ns();
    for (int i = 1; i < 6; i++) submit(i, 10, i, 0)->deadline_ns = now_ns + 30 * second_ns;
    submit(6, 10, 6, 0);
    ks_engine_expire(bed.engine, now_ns);
    ks_engine_expire(bed.engine,
                     now_ns + 9 * second_ns); /* 36 s for the fifth, whose deadline is in 21 s: not twice too late */
    assert_null(ks_engine_collect(bed.engine));
    ks_engine_expire(bed.engine, now_ns + 14 * second_ns);
    ks_job *done = ks_engine_collect(bed.engine);
    expect_refused(done, 4);
    expect_refused(done->next, 5);
    assert_null(done->next->next);
    assert_int_equal(stats().queue_depth, 4);
    /* Whoever comes behind four of 14 s is refused at once; a job that may pass them is not, nor one without a deadline. */
    ks_job *job = make_job(7, 10, 7, 0);
    job->deadline_ns = now_ns + 50 * second_ns;
    assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_QUEUE_FULL);
    assert_non_null(strstr(error.text, "wait for a lane"));
    job->deadline_ns = now_ns + 70 * second_ns;
    assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_OK);
    make_job(8, 10, 8, 0)->deadline_ns = now_ns + second_ns;
    bed.jobs[8].priority = 1;
    assert_int_equal(ks_engine_submit(bed.engine, &bed.jobs[8], &error), KS_OK);
    /* The first one waits, whatever its deadline. */
    ks_engine_expire(bed.engine, now_ns + second_ns - 1);
    assert_null(ks_engine_collect(bed.engine));
    bed.jobs[8].deadline_ns = 0;
    script.hold = false;
    script_release(0);
    turn_until(7);
    for (int i = 0; i < 4; i++) check_response(i);
    for (int i = 6; i < 9; i++) check_response(i);
    close_bed();
}

/* What a plan's launches took is known, and shared by the lanes; jobs that go together take the time of one. */
static void launches_before_tell_how_long_the_queue_is(void **state)
{
    (void)state;
    const int64_t second_ns = 1000 * (int64_t)MS;
    open_scripted(2, 2);
    for (int i = 0; i < 2; i++) submit(i, 10, i, 0);
    ks_engine_launch(bed.engine);
    for (int i = 0; i < 2; i++) bed.jobs[i].plan->measured_ns = 8 * second_ns;
    const int64_t now_ns = ks_now_ns();
    for (int i = 2; i < 8; i++) submit(i, 10, i % 2, 0)->deadline_ns = now_ns + 5 * second_ns;
    /* Before the k-th: two launches of 8 s, k of 8 s in pairs; on two lanes. */
    ks_engine_expire(bed.engine, now_ns);
    ks_job *done = ks_engine_collect(bed.engine);
    for (int i = 4; i < 8; i++, done = done->next) expect_refused(done, i);
    assert_null(done);
    script.hold = false;
    for (int i = 0; i < 2; i++) script_release(i);
    turn_until(4);
    for (int i = 0; i < 4; i++) check_response(i);
    close_bed();
}

static void cancel_takes_back_only_what_waits(void **state)
{
    (void)state;
    open_scripted(1, 1);
    submit(0, 10, 0, 0);
    ks_engine_launch(bed.engine);
    for (int i = 1; i < 5; i++) submit(i, 10 + i, 0, 0);
    bed.jobs[2].priority = 0;
    assert_false(ks_engine_cancel(bed.engine, &bed.jobs[0]));
    assert_true(ks_engine_cancel(bed.engine, &bed.jobs[4])); /* the last one: the queue's end moves */
    assert_true(ks_engine_cancel(bed.engine, &bed.jobs[2]));
    assert_int_equal(bed.jobs[2].state, KS_JOB_IDLE);
    assert_int_equal(stats().queue_depth, 2);
    ks_error error;
    assert_int_equal(ks_engine_submit(bed.engine, &bed.jobs[4], &error), KS_OK);
    bed.jobs[2].priority = 1;
    assert_int_equal(ks_engine_submit(bed.engine, &bed.jobs[2], &error), KS_OK);
    assert_true(ks_engine_cancel(bed.engine, &bed.jobs[2])); /* the last one with a priority */
    assert_int_equal(ks_engine_submit(bed.engine, &bed.jobs[2], &error), KS_OK);
    script.hold = false;
    script_release(0);
    turn_until(5);
    const int expected[] = {0, 2, 1, 3, 4};
    for (int i = 0; i < 5; i++) assert_ptr_equal(script.log[i].plan, bed.jobs[expected[i]].plan);
    for (int i = 0; i < 5; i++) check_response(i);
    close_bed();
}

static void expect_lost_among(ks_job *done, int jobs)
{
    assert_int_equal(count_done(done), jobs);
    for (int i = 0; i < jobs; i++) {
        assert_int_equal(bed.jobs[i].state, KS_JOB_DONE);
        assert_int_equal(bed.jobs[i].status, KS_DEVICE);
        assert_int_equal(bed.jobs[i].fault->status, KS_DEVICE);
    }
    assert_true(ks_engine_lost(bed.engine));
    assert_false(ks_engine_ready(bed.engine));
    ks_error error;
    bed.jobs[0].state = KS_JOB_IDLE;
    assert_int_equal(ks_engine_submit(bed.engine, &bed.jobs[0], &error), KS_DEVICE);
}

static void expect_lost(int jobs)
{
    expect_lost_among(ks_engine_collect(bed.engine), jobs);
}

/* Turns of a millisecond until a job is back. */
static ks_job *turn_until_any(void)
{
    const int64_t give_up_ns = ks_now_ns() + 20000 * (int64_t)MS;
    for (;;) {
        ks_job *done = ks_engine_collect(bed.engine);
        if (done) return done;
        assert_true(ks_now_ns() < give_up_ns);
        usleep(1000);
    }
}

static void work_that_stalls_is_a_device_fault(void **state)
{
    (void)state;
    memset(&script, 0, sizeof script);
    script.batch_max = 1;
    script.hold = true;
    ks_engine_options options = usual_options(1);
    options.stall_ns = 8 * MS;
    open_with(scripted_backend(), options);
    submit(0, 10, 0, 0);
    submit(1, 20, 0, 0);
    const int64_t begun_ns = ks_now_ns();
    ks_engine_launch(bed.engine);
    expect_lost_among(turn_until_any(), 2);
    assert_true(ks_now_ns() - begun_ns > options.stall_ns);
    assert_non_null(strstr(bed.jobs[1].fault->text, "no progress"));
    close_bed();
}

/* As after SIGSTOP and SIGCONT, on a device that tells nothing of its progress. */
static void turns_that_do_not_come_are_no_stall(void **state)
{
    (void)state;
    memset(&script, 0, sizeof script);
    script.batch_max = 1;
    script.hold = true;
    ks_engine_options options = usual_options(1);
    options.stall_ns = 20 * MS;
    open_with(scripted_backend(), options);
    submit(0, 10, 0, 0);
    ks_engine_launch(bed.engine);
    for (int i = 0; i < 3; i++) {
        assert_null(ks_engine_collect(bed.engine));
        usleep(60000);
    }
    assert_null(ks_engine_collect(bed.engine));
    assert_false(ks_engine_lost(bed.engine));
    script_release(0);
    turn_until(1);
    check_response(0);
    close_bed();
}

/* Two lanes of the CPU share a processor or have one each; either way each works for many times the limit. */
static void work_that_goes_on_is_no_stall(void **state)
{
    (void)state;
    ks_engine_options options = usual_options(2);
    options.stall_ns = 20 * MS;
    open_with(ks_backend_cpu, options);
    submit(0, 10, 0, 300000);
    submit(1, 20, 0, 300000);
    ks_engine_launch(bed.engine);
    for (int left = 2; left > 0;) {
        left -= count_done(turn_until_any());
        assert_false(ks_engine_lost(bed.engine));
    }
    check_response(0);
    check_response(1);
    close_bed();
}

static void fail_all_ends_everything(void **state)
{
    (void)state;
    open_scripted(1, 1);
    for (int i = 0; i < 3; i++) submit(i, 10, 0, 0);
    ks_engine_launch(bed.engine);
    ks_engine_fail_all(bed.engine);
    expect_lost(3);
    close_bed();
}

static void a_fault_met_by_another_shard_ends_this_ones_jobs(void **state)
{
    (void)state;
    open_scripted(1, 1);
    submit(0, 10, 0, 0);
    submit(1, 10, 0, 0);
    ks_engine_launch(bed.engine);
    script.lost = true;
    script_release(0); /* done, but it does not count any more */
    expect_lost(2);
    close_bed();
}

/* --- graphs ---------------------------------------------------------------------------------------------------------
 */

static void a_missed_graph_is_made_once_and_then_hit(void **state)
{
    (void)state;
    open_scripted(1, 8);
    script.hold = false;
    submit(0, 10, 0, 0);
    assert_false(ks_engine_capture(bed.engine)); /* work waits */
    ks_engine_launch(bed.engine);
    assert_false(ks_engine_capture(bed.engine)); /* the lane is busy */
    assert_int_equal(script.captures, 0);
    turn_until(1);
    const uint64_t bytes = stats().plan_bytes;
    assert_true(ks_engine_capture(bed.engine));
    assert_false(ks_engine_capture(bed.engine));
    assert_true(stats().plan_bytes > bytes);
    for (int i = 0; i < 5; i++) {
        bed.jobs[0].state = KS_JOB_IDLE;
        ks_error error;
        assert_int_equal(ks_engine_submit(bed.engine, &bed.jobs[0], &error), KS_OK);
        turn_until(1);
        assert_int_equal(bed.jobs[0].graph, KS_GRAPH_HIT);
    }
    for (int i = 1; i < 4; i++) submit(i, 10, 0, 0); /* three: another bucket */
    turn_until(3);
    assert_int_equal(bed.jobs[1].graph, KS_GRAPH_MISS);
    assert_true(ks_engine_capture(bed.engine));
    assert_int_equal(script.captures, 2);
    const ks_engine_stats read = stats();
    assert_int_equal(read.captures, 2);
    assert_int_equal(read.graph_hits, 5);
    assert_int_equal(read.graph_launches, 5);
    assert_int_equal(read.graph_misses, 2);
    assert_int_equal(read.launches, 7);
    close_bed();
}

static void a_lane_that_has_the_graph_is_preferred(void **state)
{
    (void)state;
    open_scripted(3, 1);
    script.hold = false;
    for (int i = 0; i < 4; i++) {
        submit(i, 10, 0, 0);
        turn_until(1);
        (void)ks_engine_capture(bed.engine);
    }
    assert_int_equal(script.captures, 1);
    for (int i = 1; i < 4; i++) assert_int_equal(script.log[i].graph, KS_GRAPH_HIT);
    close_bed();
}

static void a_plan_that_cannot_be_captured_still_answers(void **state)
{
    (void)state;
    open_scripted(1, 1);
    script.hold = false;
    script.refuse_capture = true;
    for (int i = 0; i < 3; i++) {
        submit(i, 10, 0, 0);
        turn_until(1);
        check_response(i);
        assert_int_equal(bed.jobs[i].graph, KS_GRAPH_MISS);
        assert_false(ks_engine_capture(bed.engine));
    }
    assert_int_equal(script.captures, 1); /* not tried again so soon */
    assert_int_equal(stats().graph_fallbacks, 1);
    assert_int_equal(stats().captures, 0);
    assert_true(bed.jobs[0].plan->uncapturable);
    script.refuse_capture = false;
    bed.jobs[0].plan->uncapturable_until_ns = ks_now_ns() - 1; /* a minute later */
    submit(3, 10, 0, 0);
    turn_until(1);
    assert_true(ks_engine_capture(bed.engine));
    submit(4, 10, 0, 0);
    turn_until(1);
    assert_int_equal(bed.jobs[4].graph, KS_GRAPH_HIT);
    close_bed();
}

static void evicted_plans_lose_their_graphs_on_every_lane(void **state)
{
    (void)state;
    memset(&script, 0, sizeof script);
    script.batch_max = 1;
    ks_engine_options options = usual_options(2);
    options.plan_bytes = 1; /* nothing stays that is not in use */
    open_with(scripted_backend(), options);
    submit(0, 10, 0, 0);
    turn_until(1);
    ks_engine_slot_release(bed.engine, &bed.jobs[0].slot);
    ks_engine_plan_release(bed.engine, &bed.jobs[0].plan);
    submit(1, 20, 0, 0);
    assert_int_equal(script.forgets, 2);
    assert_int_equal(stats().plan_evictions, 1);
    turn_until(1);
    assert_true(ks_engine_capture(bed.engine)); /* the evicted one's wish is gone, job 1's is there */
    assert_false(ks_engine_capture(bed.engine));
    close_bed();
}

static void a_plan_that_a_lane_works_on_is_not_evicted(void **state)
{
    (void)state;
    memset(&script, 0, sizeof script);
    script.batch_max = 1;
    script.hold = true;
    ks_engine_options options = usual_options(1);
    options.plan_bytes = 1;
    open_with(scripted_backend(), options);
    submit(0, 10, 0, 0);
    ks_engine_launch(bed.engine);
    ks_engine_plan_release(bed.engine, &bed.jobs[0].plan); /* its request needs the plan no more; the lane does */
    make_job(1, 20, 0, 0);
    assert_int_equal(script.forgets, 0);
    script_release(0);
    assert_int_equal(count_done(ks_engine_collect(bed.engine)), 1);
    make_job(2, 30, 0, 0);
    assert_int_equal(script.forgets, 1);
    close_bed();
}

static void warm_makes_every_graph(void **state)
{
    (void)state;
    open_scripted(3, 8);
    script.hold = false;
    const ks_spec spec = tiny_spec(10, 0, 0);
    ks_error error;
    assert_int_equal(ks_engine_warm(bed.engine, &spec, &error), KS_OK);
    assert_int_equal(stats().captures, 3 * 4); /* lanes times buckets 1, 2, 4, 8 */
    for (int i = 0; i < 5; i++) submit(i, 10, 0, 0);
    turn_until(5);
    assert_int_equal(bed.jobs[4].graph, KS_GRAPH_HIT);
    close_bed();
}

/* --- slots ----------------------------------------------------------------------------------------------------------
 */

static void slots_come_from_the_smallest_class_then_overflow(void **state)
{
    (void)state;
    ks_error error;
    open_scripted(1, 1);
    ks_slot *slots[JOBS + 8] = {NULL};
    int taken = 0;
    for (; taken < JOBS; taken++) {
        assert_int_equal(ks_engine_slot(bed.engine, 10, SMALL_SIDE, &slots[taken], &error), KS_OK);
        assert_int_equal(slots[taken]->size_class, 0);
    }
    for (; taken < JOBS + 2; taken++) {
        assert_int_equal(ks_engine_slot(bed.engine, 10, 10, &slots[taken], &error), KS_OK);
        assert_int_equal(slots[taken]->size_class, 1);
    }
    assert_int_equal(stats().slot_used_bytes, stats().slot_total_bytes);
    assert_int_equal(ks_budget_used(bed.budget), 0);
    assert_int_equal(ks_engine_slot(bed.engine, 10, 10, &slots[taken], &error), KS_OK);
    assert_int_equal(slots[taken]->size_class, -1);
    const uint64_t used = ks_budget_used(bed.budget);
    assert_true(used >= 20);
    assert_int_equal(ks_engine_slot(bed.engine, BUDGET, 10, &slots[taken + 1], &error), KS_BUDGET);
    assert_int_equal(ks_budget_used(bed.budget), used);
    assert_int_equal(ks_engine_slot(bed.engine, SIZE_MAX - 8, SIZE_MAX - 8, &slots[taken + 1], &error), KS_BUDGET);
    ks_engine_slot_release(bed.engine, &slots[0]);
    assert_null(slots[0]);
    assert_int_equal(ks_engine_slot(bed.engine, 10, 10, &slots[0], &error), KS_OK);
    assert_int_equal(slots[0]->size_class, 0);
    for (int i = 0; i <= taken; i++) ks_engine_slot_release(bed.engine, &slots[i]);
    close_bed();
}

static void who_finds_no_slot_stands_in_line(void **state)
{
    (void)state;
    const int64_t now_ns = ks_now_ns();
    ks_error error;
    ks_slot_queue line;
    ks_slot_wait large = {0}, largest = {0}, third = {0};
    ks_slot *slots[3] = {NULL};
    open_scripted(1, 1);
    ks_slot_queue_init(&line, bed.engine, 100 * MS);
    assert_false(ks_slot_queue_holds(&line, LARGE_SIDE, 10));
    assert_int_equal(ks_slot_queue_wait_ns(&line), INT64_MAX);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ks_engine_slot(bed.engine, LARGE_SIDE, LARGE_SIDE, &slots[i], &error), KS_OK);
    assert_false(ks_slot_queue_holds(&line, SMALL_SIDE, SMALL_SIDE));
    assert_true(ks_slot_queue_holds(&line, SMALL_SIDE + 1, 10));
    assert_true(ks_slot_queue_holds(&line, 10, SMALL_SIDE + 1));
    ks_slot_queue_join(&line, &large, SMALL_SIDE + 1, 10);
    ks_slot_queue_join(&line, &largest, LARGE_SIDE, LARGE_SIDE);
    ks_slot_queue_join(&line, &third, LARGE_SIDE, LARGE_SIDE);
    ks_slot_queue_look(&line, now_ns);
    assert_null(ks_slot_queue_next(&line));
    assert_in_range(ks_slot_queue_wait_ns(&line), MS, 1000 * MS);

    /* One slot comes back: the first has it, and who comes now does not pass those who wait. */
    ks_engine_slot_release(bed.engine, &slots[0]);
    ks_slot_queue_freed(&line);
    assert_int_equal(ks_slot_queue_wait_ns(&line), 0);
    assert_true(ks_slot_queue_holds(&line, LARGE_SIDE, 10));
    ks_slot_queue_look(&line, now_ns);
    assert_ptr_equal(ks_slot_queue_next(&line), &large);
    assert_false(large.waits);
    assert_int_equal(ks_engine_slot(bed.engine, large.in_bytes, large.out_bytes, &slots[0], &error), KS_OK);
    assert_int_equal(slots[0]->size_class, 1);
    assert_null(ks_slot_queue_next(&line));

    /* Who leaves is passed over; patience ends without a slot. */
    ks_slot_queue_leave(&line, &largest);
    ks_slot_queue_leave(&line, &largest);
    ks_slot_queue_look(&line, now_ns + 1000 * MS);
    assert_ptr_equal(ks_slot_queue_next(&line), &third);
    assert_int_equal(ks_engine_slot(bed.engine, third.in_bytes, third.out_bytes, &slots[2], &error), KS_OK);
    assert_int_equal(slots[2]->size_class, -1);
    assert_null(ks_slot_queue_next(&line));
    assert_int_equal(ks_slot_queue_wait_ns(&line), INT64_MAX);
    for (int i = 0; i < 3; i++) ks_engine_slot_release(bed.engine, &slots[i]);
    assert_false(ks_slot_queue_holds(&line, LARGE_SIDE, LARGE_SIDE));
    close_bed();
}

/* Of one slot, four times as large. */
static void open_with_a_third_class(void)
{
    ks_engine_options options = usual_options(1);
    options.classes = 3;
    options.size_class[2].side_bytes = 4 * LARGE_SIDE;
    options.size_class[2].count = 1;
    open_with(ks_backend_cpu, options);
}

static void in_line_a_slot_too_small_for_the_first_goes_to_the_next(void **state)
{
    (void)state;
    const int64_t now_ns = ks_now_ns();
    ks_error error;
    ks_slot_queue line;
    ks_slot_wait first = {0}, second = {0};
    ks_slot *slot = NULL;
    open_with_a_third_class();
    ks_slot_queue_init(&line, bed.engine, 100 * MS);
    assert_int_equal(ks_engine_slot(bed.engine, 4 * LARGE_SIDE, 10, &slot, &error), KS_OK);
    ks_slot_queue_join(&line, &first, 4 * LARGE_SIDE, 10);
    ks_slot_queue_look(&line, now_ns);
    assert_null(ks_slot_queue_next(&line));
    assert_true(ks_slot_queue_holds(&line, LARGE_SIDE, 10));
    ks_slot_queue_join(&line, &second, LARGE_SIDE, 10);
    assert_int_equal(ks_slot_queue_wait_ns(&line), 0);
    ks_slot_queue_look(&line, now_ns);
    assert_ptr_equal(ks_slot_queue_next(&line), &second);
    assert_null(ks_slot_queue_next(&line));
    assert_true(first.waits);
    ks_engine_slot_release(bed.engine, &slot);
    close_bed();
}

/* Patience begins anew for those behind somebody who was given a slot that they could have taken, not for larger ones, and
 * not for ever. */
static void in_a_line_that_moves_patience_lasts(void **state)
{
    (void)state;
    enum { WAITING = 20, STEP = 70, LAST = 100 * KS_SLOT_QUEUE_WAITS_MAX / STEP + 1 };
    ks_error error;
    ks_slot_queue line;
    ks_slot_wait largest = {0}, waiting[WAITING] = {{0}};
    ks_slot *slots[3] = {NULL};
    open_with_a_third_class();
    ks_slot_queue_init(&line, bed.engine, 100 * MS);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ks_engine_slot(bed.engine, (i < 2 ? 1 : 4) * LARGE_SIDE, 10, &slots[i], &error), KS_OK);
    assert_int_equal(slots[2]->size_class, 2);
    const int64_t now_ns = ks_now_ns();
    ks_slot_queue_join(&line, &largest, 4 * LARGE_SIDE, 10);
    for (int i = 0; i < WAITING; i++) ks_slot_queue_join(&line, &waiting[i], LARGE_SIDE, 10);
    for (int i = 1; i <= LAST; i++) {
        ks_engine_slot_release(bed.engine, &slots[0]);
        ks_slot_queue_freed(&line);
        ks_slot_queue_look(&line, now_ns + i * STEP * MS);
        if (i == 2) assert_ptr_equal(ks_slot_queue_next(&line), &largest);
        assert_ptr_equal(ks_slot_queue_next(&line), &waiting[i - 1]);
        assert_int_equal(ks_engine_slot(bed.engine, LARGE_SIDE, 10, &slots[0], &error), KS_OK);
        assert_int_equal(slots[0]->size_class, 1);
        if (i == LAST) break;
        assert_null(ks_slot_queue_next(&line));
        assert_in_range(ks_slot_queue_wait_ns(&line), 1, 100 * MS);
    }
    for (int i = LAST; i < WAITING; i++) assert_ptr_equal(ks_slot_queue_next(&line), &waiting[i]);
    assert_null(ks_slot_queue_next(&line));
    assert_int_equal(ks_slot_queue_wait_ns(&line), INT64_MAX);
    for (int i = 0; i < 3; i++) ks_engine_slot_release(bed.engine, &slots[i]);
    close_bed();
}

static void above_the_largest_class_is_overflow_and_computes(void **state)
{
    (void)state;
    open_with(ks_backend_cpu, usual_options(1));
    submit(0, LARGE_SIDE / 4 + 1, 9, 0);
    assert_int_equal(bed.jobs[0].slot->size_class, -1);
    assert_true(ks_budget_used(bed.budget) >= 2 * LARGE_SIDE);
    turn_until(1);
    check_response(0);
    close_bed();
}

static const char *path_of(int64_t count)
{
    ks_error error;
    ks_plan *plan = NULL;
    const ks_spec spec = tiny_spec(count, 0, 0);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &plan, &error), KS_OK);
    const char *path = ks_engine_path(bed.engine, plan);
    ks_engine_plan_release(bed.engine, &plan);
    return path;
}

static void a_plan_has_a_path_to_the_device(void **state)
{
    (void)state;
    open_scripted(1, 1);
    script.mapped = true;
    assert_string_equal(path_of(10), "mapped");
    assert_string_equal(path_of(LARGE_SIDE / 4 + 1), "staged"); /* no slot that the device could see */
    script.mapped = false;
    assert_string_equal(path_of(LARGE_SIDE / 4), "copies");
    assert_string_equal(path_of(LARGE_SIDE / 4 + 2), "staged");
    script.large_from = 4000;
    assert_string_equal(path_of(1001), "staged");
    close_bed();
    open_with(ks_backend_cpu, usual_options(1));
    assert_string_equal(path_of(LARGE_SIDE / 4 + 1), "mapped");
    close_bed();
}

/* A slot is cleared in the second pass that finds it at rest: all that any request left, whoever had it last. */
static void a_released_slot_keeps_nothing(void **state)
{
    (void)state;
    ks_error error;
    ks_slot *again = NULL;
    open_with(ks_backend_cpu, usual_options(1));
    submit(0, 100, 1, 0);
    turn_until(1);
    ks_slot *slot = bed.jobs[0].slot;
    memset(slot->out - KS_HEAD_ROOM, 'h', KS_HEAD_ROOM);
    ks_engine_slot_release(bed.engine, &bed.jobs[0].slot);
    ks_engine_expire(bed.engine, ks_now_ns());
    assert_int_equal(ks_engine_slot(bed.engine, 16, 16, &again, &error), KS_OK);
    assert_ptr_equal(again, slot);
    memset(slot->in, 'i', 16);
    ks_engine_expire(bed.engine, ks_now_ns());
    assert_int_equal(slot->in[0], 'i'); /* in use */
    ks_engine_slot_release(bed.engine, &again);
    assert_true(slot->in[0] == 0xA5 || ks_engine_dirty(bed.engine)); /* poisoned at once in a test build */
    ks_engine_expire(bed.engine, ks_now_ns());
    ks_engine_expire(bed.engine, ks_now_ns());
    assert_false(ks_engine_dirty(bed.engine));
    const unsigned char wiped = slot->in[0];
    assert_true(wiped == 0 || wiped == 0xA5);
    for (size_t i = 0; i < 400; i++) assert_int_equal(slot->in[i], wiped);
    for (size_t i = 0; i < 400; i++) assert_int_equal(slot->out[i], wiped);
    for (int i = 1; i <= KS_HEAD_ROOM; i++) assert_int_equal(slot->out[-i], wiped);
    close_bed();
}

/* More than a pass clears. */
static void a_long_slot_is_cleared_in_passes(void **state)
{
    (void)state;
    ks_error error;
    ks_slot *slot = NULL;
    const size_t side = 12 << 20;
    ks_engine_options options = usual_options(1);
    options.size_class[options.classes - 1].side_bytes = side;
    open_with(ks_backend_cpu, options);
    assert_int_equal(ks_engine_slot(bed.engine, side, side, &slot, &error), KS_OK);
    unsigned char *const in = slot->in, *const out = slot->out;
    memset(in, 'i', side);
    memset(out, 'o', side);
    ks_engine_slot_release(bed.engine, &slot);
    int passes = 0;
    for (ks_engine_expire(bed.engine, ks_now_ns()); ks_engine_dirty(bed.engine); passes++)
        ks_engine_expire(bed.engine, ks_now_ns());
    assert_true(in[0] == 0xA5 || passes == 4); /* 24 MiB and the head room */
    for (size_t i = 0; i < side; i++) assert_true(in[i] == in[0] && out[i] == in[0] && in[0] != 'i');
    close_bed();
}

static void *take_and_give(void *context)
{
    ks_budget *budget = context;
    uint64_t taken = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        const uint64_t bytes = i % 7 * 100;
        if (!ks_budget_take(budget, bytes)) continue;
        assert(ks_budget_used(budget) <= ks_budget_limit(budget));
        taken++;
        ks_budget_give(budget, bytes);
    }
    return (void *)(uintptr_t)taken;
}

static void the_budget_never_passes_its_limit(void **state)
{
    (void)state;
    ks_budget *budget = ks_budget_open(1000);
    assert_true(ks_budget_take(budget, 400));
    assert_false(ks_budget_take(budget, 601));
    assert_false(ks_budget_take(budget, UINT64_MAX));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, budget), 0);
    for (int i = 0; i < 4; i++) {
        void *taken;
        pthread_join(threads[i], &taken);
        assert_true((uintptr_t)taken > 0);
    }
    assert_int_equal(ks_budget_used(budget), 400);
    ks_budget_give(budget, 400);
    assert_int_equal(ks_budget_used(budget), 0);
    ks_budget_close(&budget);
    assert_null(budget);
}

/* --- the CPU --------------------------------------------------------------------------------------------------------
 */

static void long_work_runs_on_the_lane_and_wakes_the_shard(void **state)
{
    (void)state;
    open_with(ks_backend_cpu, usual_options(2));
    for (int round = 0; round < 2; round++) {
        submit(0, 10, 1, 20000);
        tiny_held = true; /* until all has been looked at, however late this thread gets a processor */
        const int64_t begun_ns = ks_now_ns();
        ks_engine_launch(bed.engine);
        assert_null(ks_engine_collect(bed.engine));
        assert_int_equal(bed.jobs[0].state, KS_JOB_RUNNING);
        assert_false(ks_engine_polls(bed.engine));
        const int64_t expected_ns = ks_engine_expected_ns(bed.engine);
        if (round == 1) assert_true(expected_ns + ks_now_ns() - begun_ns > MS);
        tiny_held = false;
        struct pollfd wake = {.fd = bed.wake_fd, .events = POLLIN};
        assert_int_equal(poll(&wake, 1, 10000), 1);
        uint64_t count;
        assert_int_equal(read(bed.wake_fd, &count, sizeof count), sizeof count);
        assert_int_equal(count_done(ks_engine_collect(bed.engine)), 1);
        check_response(0);
        assert_true(bed.jobs[0].compute_ns >= 20 * (int64_t)MS);
        ks_engine_slot_release(bed.engine, &bed.jobs[0].slot);
        ks_engine_plan_release(bed.engine, &bed.jobs[0].plan);
    }
    close_bed();
}

static void short_work_is_done_in_its_turn(void **state)
{
    (void)state;
    open_with(ks_backend_cpu, usual_options(1));
    submit(0, 16, 1, 0);
    ks_engine_launch(bed.engine);
    assert_int_equal(count_done(ks_engine_collect(bed.engine)), 1);
    check_response(0);
    close_bed();
}

static void known_answers_pass_on_the_cpu(void **state)
{
    (void)state;
    ks_engine_options options = usual_options(2);
    options.size_class[1].side_bytes = 1 << 22;
    open_with(ks_backend_cpu, options);
    ks_error error = {.status = KS_OK, .text = ""};
    if (ks_engine_check(bed.engine, &error) != KS_OK) fail_msg("%s", error.text);
    close_bed();
}

/* Sizes, durations, priorities, cancellations and deadlines at random, on real threads. On a busy host jobs wait for long: those that
 * are cancelled are counted, so that enough are answered. */
static void a_storm_of_jobs_comes_back_right(void **state)
{
    (void)state;
    open_with(ks_backend_cpu, usual_options(3));
    int under_way = 0, submitted = 0, answered = 0, cancelled = 0;
    while (submitted < 2000 || under_way) {
        const int i = (int)(random_next() % 32);
        ks_job *job = &bed.jobs[i];
        if (job->state == KS_JOB_IDLE && !job->plan && submitted < 2000) {
            make_job(i, 1 + (int64_t)(random_next() % 3000), (int64_t)(random_next() % 3), random_next() % 4 ? 0 : 50);
            job->priority = random_next() % 4;
            job->deadline_ns = random_next() % 8 ? 0 : ks_now_ns() + (int64_t)(random_next() % 100000);
            ks_error error;
            assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_OK);
            under_way++;
            submitted++;
        } else if (random_next() % 16 == 0 && job->state == KS_JOB_READY && cancelled < 1000) {
            assert_true(ks_engine_cancel(bed.engine, job));
            cancelled++;
            ks_engine_slot_release(bed.engine, &job->slot);
            ks_engine_plan_release(bed.engine, &job->plan);
            under_way--;
        }
        if (random_next() % 3 == 0) ks_engine_launch(bed.engine);
        if (random_next() % 64 == 0) ks_engine_expire(bed.engine, ks_now_ns());
        for (ks_job *done = ks_engine_collect(bed.engine), *next; done; done = next) {
            next = done->next;
            if (done->status == KS_OK)
                check_response((int)(done - bed.jobs));
            else
                assert_int_equal(done->status, KS_DEADLINE);
            answered += done->status == KS_OK;
            ks_engine_slot_release(bed.engine, &done->slot);
            ks_engine_plan_release(bed.engine, &done->plan);
            memset(done, 0, sizeof *done);
            under_way--;
        }
    }
    assert_true(answered > 500);
    close_bed();
}

/* --- a device that fails --------------------------------------------------------------------------------------------- */

static void open_faulty(int lanes)
{
    open_with(ks_faulty_backend(ks_backend_cpu), usual_options(lanes));
}

static void a_recoverable_fault_costs_its_batch_only(void **state)
{
    (void)state;
    const ks_fault_call calls[] = {KS_FAULT_LAUNCH, KS_FAULT_POLL};
    for (int i = 0; i < 2; i++) {
        open_faulty(1);
        ks_faulty_arm(calls[i], 2, KS_FAULT_OOM);
        for (int k = 0; k < 3; k++) {
            submit(k, 10 + k, 0, k * 100);
            turn_until(1);
        }
        check_response(0);
        assert_int_equal(bed.jobs[1].status, KS_MEMORY);
        assert_string_equal(bed.jobs[1].fault->text, "injected: out of memory");
        check_response(2);
        assert_false(ks_engine_lost(bed.engine));
        close_bed();
    }
}

static void a_sticky_fault_ends_everything(void **state)
{
    (void)state;
    const ks_fault_call calls[] = {KS_FAULT_LAUNCH, KS_FAULT_POLL};
    for (int i = 0; i < 2; i++) {
        open_faulty(1);
        ks_faulty_arm(calls[i], 1, KS_FAULT_STICKY);
        for (int k = 0; k < 3; k++) submit(k, 10 + k, 0, 0);
        ks_engine_launch(bed.engine);
        expect_lost(3);
        close_bed();
    }
}

static void a_hanging_lane_is_a_device_fault(void **state)
{
    (void)state;
    const ks_fault_call calls[] = {KS_FAULT_LAUNCH, KS_FAULT_POLL};
    for (int i = 0; i < 2; i++) {
        ks_engine_options options = usual_options(2);
        options.stall_ns = 3 * MS;
        open_with(ks_faulty_backend(ks_backend_cpu), options);
        ks_faulty_arm(calls[i], 1, KS_FAULT_HANG);
        submit(0, 10, 0, 0);
        ks_engine_launch(bed.engine);
        expect_lost_among(turn_until_any(), 1);
        close_bed();
    }
}

static void garbage_fails_the_known_response_test(void **state)
{
    (void)state;
    ks_engine_options options = usual_options(1);
    options.size_class[1].side_bytes = 1 << 22;
    for (int op = 0; ks_ops[op]; op++) {
        open_with(ks_faulty_backend(ks_backend_cpu), options);
        ks_faulty_arm(KS_FAULT_POLL, op + 1, KS_FAULT_GARBAGE);
        ks_error error = {.status = KS_OK, .text = ""};
        assert_int_equal(ks_engine_check(bed.engine, &error), KS_DEVICE);
        assert_int_equal(error.status, KS_DEVICE);
        assert_non_null(strstr(error.text, ks_ops[op]->name));
        assert_non_null(strstr(error.text, "difference"));
        close_bed();
    }
}

static void opening_gives_back_what_it_took(void **state)
{
    (void)state;
    const ks_fault_call calls[] = {KS_FAULT_SLOT_INIT, KS_FAULT_LANE_OPEN};
    for (int i = 0; i < 2; i++) {
        const ks_backend *backend = ks_faulty_backend(ks_backend_cpu);
        ks_faulty_arm(calls[i], 2, KS_FAULT_OOM);
        ks_error error = {.status = KS_OK};
        assert_int_equal(try_open(backend, usual_options(3), &error), KS_MEMORY);
        assert_int_equal(error.status, KS_MEMORY);
        assert_null(bed.engine);
        close_bed(); /* the leak checker sees the rest */
    }
}

static void a_failed_overflow_slot_returns_its_budget(void **state)
{
    (void)state;
    open_faulty(1);
    ks_faulty_arm(KS_FAULT_SLOT_INIT, 1, KS_FAULT_OOM);
    ks_slot *slot = NULL;
    ks_error error;
    assert_int_equal(ks_engine_slot(bed.engine, 2 * LARGE_SIDE, 10, &slot, &error), KS_MEMORY);
    assert_int_equal(ks_budget_used(bed.budget), 0);
    assert_int_equal(ks_engine_slot(bed.engine, 2 * LARGE_SIDE, 10, &slot, &error), KS_OK);
    ks_engine_slot_release(bed.engine, &slot);
    close_bed();
}

static void a_plan_that_cannot_be_prepared_is_not_kept(void **state)
{
    (void)state;
    open_faulty(1);
    ks_faulty_arm(KS_FAULT_PREPARE, 1, KS_FAULT_OOM);
    const ks_spec spec = tiny_spec(10, 0, 0);
    ks_plan *plan = NULL;
    ks_error error;
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &plan, &error), KS_MEMORY);
    assert_null(plan);
    assert_int_equal(stats().plans, 0);
    submit(0, 10, 0, 0);
    assert_int_equal(stats().plans, 1);
    turn_until(1);
    check_response(0);
    close_bed();
}

static void a_question_for_a_plan_keeps_none(void **state)
{
    (void)state;
    open_faulty(1);
    submit(0, 10, 0, 0);
    turn_until(1);
    check_response(0);
    const ks_engine_stats before = stats();
    ks_plan seen;
    ks_error error;
    for (int64_t count = 1; count <= 2000; count++) { /* more than the cache holds */
        const ks_spec spec = tiny_spec(count, 0, 0);
        assert_int_equal(ks_engine_look(bed.engine, &spec, &seen, &error), KS_OK);
        assert_int_equal(seen.out_bytes, spec.out[0].offset + spec.out[0].size_bytes);
        assert_true(seen.batch_max >= 1);
        assert_int_equal(seen.timed_jobs > 0, count == 10); /* the one that is there is told as it is */
    }
    assert_int_equal(stats().plans, 1);
    assert_int_equal(stats().plan_bytes, before.plan_bytes);
    assert_int_equal(stats().plan_evictions, 0);
    ks_faulty_arm(KS_FAULT_PREPARE, 1, KS_FAULT_OOM);
    const ks_spec other = tiny_spec(3000, 0, 0);
    assert_int_equal(ks_engine_look(bed.engine, &other, &seen, &error), KS_MEMORY);
    assert_int_equal(stats().plans, 1);
    close_bed();
}

int main(void)
{
    const char *seed = getenv("KS_SEED");
    const uint64_t chosen = seed ? strtoull(seed, NULL, 10) : (uint64_t)ks_wall_ns();
    bed.random = chosen | 1;
    printf("KS_SEED=%llu\n", (unsigned long long)chosen);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_one_plan_go_out_together),
        cmocka_unit_test(plans_of_one_turn_go_to_different_lanes),
        cmocka_unit_test(priority_comes_before_arrival),
        cmocka_unit_test(a_large_plan_waits_for_lane_0_and_others_pass),
        cmocka_unit_test(a_slot_that_the_device_cannot_see_goes_alone),
        cmocka_unit_test(a_job_whose_steps_are_timed_goes_alone),
        cmocka_unit_test(an_asked_deadline_orders_equal_priorities),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(a_full_queue_is_launched_before_it_refuses),
        cmocka_unit_test(what_a_full_queue_ran_does_not_outlive_the_device),
        cmocka_unit_test(a_full_queue_refuses_who_ranks_last),
        cmocka_unit_test(an_empty_output_is_done_at_once),
        cmocka_unit_test(late_jobs_are_dropped_and_running_ones_are_not),
        cmocka_unit_test(a_late_mate_does_not_join_a_batch),
        cmocka_unit_test(a_queue_beyond_the_deadline_is_refused),
        cmocka_unit_test(launches_before_tell_how_long_the_queue_is),
        cmocka_unit_test(cancel_takes_back_only_what_waits),
        cmocka_unit_test(work_that_stalls_is_a_device_fault),
        cmocka_unit_test(turns_that_do_not_come_are_no_stall),
        cmocka_unit_test(work_that_goes_on_is_no_stall),
        cmocka_unit_test(fail_all_ends_everything),
        cmocka_unit_test(a_fault_met_by_another_shard_ends_this_ones_jobs),
        cmocka_unit_test(a_missed_graph_is_made_once_and_then_hit),
        cmocka_unit_test(a_lane_that_has_the_graph_is_preferred),
        cmocka_unit_test(a_plan_that_cannot_be_captured_still_answers),
        cmocka_unit_test(evicted_plans_lose_their_graphs_on_every_lane),
        cmocka_unit_test(a_plan_that_a_lane_works_on_is_not_evicted),
        cmocka_unit_test(warm_makes_every_graph),
        cmocka_unit_test(slots_come_from_the_smallest_class_then_overflow),
        cmocka_unit_test(who_finds_no_slot_stands_in_line),
        cmocka_unit_test(in_line_a_slot_too_small_for_the_first_goes_to_the_next),
        cmocka_unit_test(in_a_line_that_moves_patience_lasts),
        cmocka_unit_test(above_the_largest_class_is_overflow_and_computes),
        cmocka_unit_test(a_plan_has_a_path_to_the_device),
        cmocka_unit_test(a_released_slot_keeps_nothing),
        cmocka_unit_test(a_long_slot_is_cleared_in_passes),
        cmocka_unit_test(the_budget_never_passes_its_limit),
        cmocka_unit_test(long_work_runs_on_the_lane_and_wakes_the_shard),
        cmocka_unit_test(short_work_is_done_in_its_turn),
        cmocka_unit_test(known_answers_pass_on_the_cpu),
        cmocka_unit_test(a_storm_of_jobs_comes_back_right),
        cmocka_unit_test(a_recoverable_fault_costs_its_batch_only),
        cmocka_unit_test(a_sticky_fault_ends_everything),
        cmocka_unit_test(a_hanging_lane_is_a_device_fault),
        cmocka_unit_test(garbage_fails_the_known_response_test),
        cmocka_unit_test(opening_gives_back_what_it_took),
        cmocka_unit_test(a_failed_overflow_slot_returns_its_budget),
        cmocka_unit_test(a_plan_that_cannot_be_prepared_is_not_kept),
        cmocka_unit_test(a_question_for_a_plan_keeps_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
