/* Who is let in, who waits, who goes next, and what the others are told: the budget at its edge, the line before the slots
 * and the queue against plain models of them, the table of statuses and the answers made of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake/backend_scripted.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "ops/op_tiny.h"
#include "base/model.h"
#include "engine/queue.h"
#include "http/response.h"
#include "engine/slot_queue.h"
#include "kernserve/backends.h"

enum { MS = 1000000, SMALL = 256, SIDE = 65536, LARGE = 2 * SIDE };
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static uint64_t random_state;

/* splitmix64; KS_SEED repeats a run. */
static uint64_t random_below(uint64_t n)
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % n;
}

/* --- the budget ----------------------------------------------------------------------------------------------------- */

static void the_budget_has_its_last_byte(void **state)
{
    (void)state;
    ks_budget *budget = ks_budget_open(100);
    assert_int_equal(ks_budget_limit(budget), 100);
    assert_true(ks_budget_take(budget, 0));
    assert_false(ks_budget_take(budget, 101));
    assert_false(ks_budget_take(budget, UINT64_MAX));
    assert_int_equal(ks_budget_used(budget), 0);
    assert_true(ks_budget_take(budget, 60));
    assert_false(ks_budget_take(budget, 41));
    assert_true(ks_budget_take(budget, 40));
    assert_false(ks_budget_take(budget, 1));
    assert_true(ks_budget_take(budget, 0));
    assert_int_equal(ks_budget_used(budget), 100);
    ks_budget_give(budget, 1);
    assert_true(ks_budget_take(budget, 1));
    ks_budget_give(budget, 100);
    assert_int_equal(ks_budget_used(budget), 0);
    ks_budget_close(&budget);
    assert_null(budget);
}

/* --- an engine on the scripted device -------------------------------------------------------------------------------- */

static struct {
    const ks_backend *backend;
    ks_device *device;
    ks_budget *budget;
    ks_engine *engine;
    int wake_fd;
} bed;

/* slots: of SIDE bytes a side, beside one of SMALL and one of LARGE; 0: no classes at all. */
static void open_bed(int lanes, int slots)
{
    ks_error error;
    memset(&script, 0, sizeof script);
    script.batch_max = 8;
    script.hold = true;
    bed.budget = ks_budget_open(1 << 20);
    bed.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const ks_limits limits = {.lanes = lanes};
    bed.backend = scripted_backend();
    assert_int_equal(bed.backend->open(&limits, &bed.device, &error), KS_OK);
    const ks_engine_options options = {.backend = bed.backend,
                                       .device = bed.device,
                                       .budget = bed.budget,
                                       .lanes = lanes,
                                       .classes = slots > 0 ? 3 : 0,
                                       .size_class = {{SMALL, 4}, {SIDE, slots}, {LARGE, 1}},
                                       .plan_bytes = 1 << 20,
                                       .queue_max = 64,
                                       .stall_ns = 60000 * (int64_t)MS,
                                       .wake_fd = bed.wake_fd};
    assert_int_equal(ks_engine_open(&options, &bed.engine, &error), KS_OK);
}

static void close_bed(void)
{
    assert_int_equal(ks_budget_used(bed.budget), 0);
    ks_engine_close(&bed.engine);
    assert_null(bed.engine);
    bed.backend->close(&bed.device);
    ks_budget_close(&bed.budget);
    close(bed.wake_fd);
}

static void without_classes_all_is_overflow(void **state)
{
    ks_error error;
    ks_slot *slot = NULL;
    (void)state;
    open_bed(1, 0);
    assert_int_equal(ks_engine_small_bytes(bed.engine), 0);
    assert_false(ks_engine_slot_free(bed.engine, 1, 1));
    assert_int_equal(ks_engine_slot(bed.engine, 1, 1, &slot, &error), KS_OK);
    assert_int_equal(slot->size_class, -1);
    ks_engine_slot_release(bed.engine, &slot);
    ks_spec spec = tiny_spec(4, 0, 0);
    ks_plan *plan;
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &plan, &error), KS_OK);
    assert_string_equal(ks_engine_path(bed.engine, plan), "staged");
    ks_engine_plan_release(bed.engine, &plan);
    close_bed();
}

/* A lost device may still write into what it was given: the memory stays, and is not handed out again. */
static void a_lost_device_keeps_its_memory(void **state)
{
    ks_error error;
    ks_slot *one = NULL, *overflow = NULL, *more = NULL, *largest = NULL;
    (void)state;
    open_bed(1, 1);
    assert_int_equal(ks_engine_slot(bed.engine, LARGE, SIDE, &largest, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, SIDE, SIDE, &one, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, SIDE, SIDE, &overflow, &error), KS_OK);
    unsigned char *const in = one->in, *const other = overflow->in;
    const uint64_t used = ks_budget_used(bed.budget);
    ks_engine_fail_all(bed.engine);
    ks_engine_slot_release(bed.engine, &largest);
    assert_true(ks_engine_lost(bed.engine) && ks_engine_fault(bed.engine)[0]);
    ks_engine_slot_release(bed.engine, &one);
    ks_engine_slot_release(bed.engine, &overflow);
    assert_int_equal(ks_budget_used(bed.budget), used);
    in[0] = other[0] = 1; /* a sanitizer would say that it has gone */
    assert_false(ks_engine_slot_free(bed.engine, SIDE, SIDE));
    assert_int_equal(ks_engine_slot(bed.engine, SIDE, SIDE, &more, &error), KS_OK);
    assert_int_equal(more->size_class, -1);
    ks_engine_slot_release(bed.engine, &more);
    ks_engine_close(&bed.engine); /* gives all back */
    assert_int_equal(ks_budget_used(bed.budget), 0);
    bed.backend->close(&bed.device);
    ks_budget_close(&bed.budget);
    close(bed.wake_fd);
}

/* How long a turn may sleep: nothing to wait for, nothing known, less than is known. */
static void expected_ends(void **state)
{
    ks_error error;
    ks_job jobs[2] = {{0}};
    (void)state;
    open_bed(2, 2);
    assert_int_equal(ks_engine_expected_ns(bed.engine), 0);
    assert_false(ks_engine_polls(bed.engine) || ks_engine_running(bed.engine) || ks_engine_ready(bed.engine));
    for (int i = 0; i < 2; i++) {
        const ks_spec spec = tiny_spec(10 + i, 0, 0);
        assert_int_equal(ks_engine_plan(bed.engine, &spec, &jobs[i].plan, &error), KS_OK);
        assert_int_equal(
            ks_engine_slot(bed.engine, jobs[i].plan->in_bytes, jobs[i].plan->out_bytes, &jobs[i].slot, &error), KS_OK);
        memset(jobs[i].slot->in, 0, jobs[i].plan->in_bytes);
        jobs[i].plan->measured_ns = (i ? 50 : 500) * (int64_t)1000 * MS;
        assert_true(ks_engine_cancel(bed.engine, &jobs[i]));
        assert_int_equal(ks_engine_submit(bed.engine, &jobs[i], &error), KS_OK);
        ks_engine_launch(bed.engine);
        assert_false(ks_engine_cancel(bed.engine, &jobs[i]));
        const int64_t ns = ks_engine_expected_ns(bed.engine), most_ns = jobs[i].plan->measured_ns;
        assert_true(ns > most_ns / 2 && ns <= most_ns); /* the second one is done first */
    }
    assert_true(ks_engine_polls(bed.engine) && ks_engine_running(bed.engine));
    jobs[0].plan->measured_ns = jobs[1].plan->measured_ns = 1;
    assert_int_equal(ks_engine_expected_ns(bed.engine), 0);
    script_release(0);
    script_release(1);
    assert_non_null(ks_engine_collect(bed.engine));
    assert_null(ks_engine_collect(bed.engine));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(jobs[i].status, KS_OK);
        ks_engine_slot_release(bed.engine, &jobs[i].slot);
        ks_engine_plan_release(bed.engine, &jobs[i].plan);
    }
    close_bed();
}

/* Another shard may have met the fault, which this one learns when it is asked to work. */
static void a_lost_device_takes_no_work(void **state)
{
    ks_error error = {.status = KS_OK};
    ks_job job = {0};
    (void)state;
    open_bed(1, 1);
    const ks_spec spec = tiny_spec(10, 0, 0);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &job.plan, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, job.plan->in_bytes, job.plan->out_bytes, &job.slot, &error), KS_OK);
    script.lost = true;
    assert_int_equal(ks_engine_submit(bed.engine, &job, &error), KS_DEVICE);
    assert_string_equal(error.text, "the device is lost");
    ks_engine_fail_all(bed.engine);
    script.lost = false;
    assert_int_equal(ks_engine_submit(bed.engine, &job, &error), KS_DEVICE);
    ks_engine_slot_release(bed.engine, &job.slot);
    ks_engine_plan_release(bed.engine, &job.plan);
    close_bed();
}

/* A client's memory, or memory that the device cannot see: first in line or behind others, it shares no launch. */
static void work_that_goes_alone(void **state)
{
    ks_error error;
    (void)state;
    for (int alone = 0; alone < 3; alone++)
        for (int why = 0; why < 2; why++) {
            ks_job jobs[3] = {{0}};
            open_bed(1, 2);
            script.mapped = script.hold = true;
            const ks_spec spec = tiny_spec(10, 0, 0);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(ks_engine_plan(bed.engine, &spec, &jobs[i].plan, &error), KS_OK);
                assert_int_equal(
                    ks_engine_slot(bed.engine, jobs[i].plan->in_bytes, jobs[i].plan->out_bytes, &jobs[i].slot, &error),
                    KS_OK);
                memset(jobs[i].slot->in, 0, jobs[i].plan->in_bytes);
                if (i == alone && why == 0) jobs[i].slot->windows = true;
                if (i == alone && why == 1) jobs[i].slot->out_device = NULL;
                assert_int_equal(ks_engine_submit(bed.engine, &jobs[i], &error), KS_OK);
            }
            for (int done = 0; done < 3;) {
                ks_engine_launch(bed.engine);
                script_release(0);
                for (const ks_job *job = ks_engine_collect(bed.engine); job; job = job->next) done++;
            }
            assert_int_equal(script.launches, 2);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(jobs[i].batch_count, i == alone ? 1 : 2);
                jobs[i].slot->windows = false;
                ks_engine_slot_release(bed.engine, &jobs[i].slot);
                ks_engine_plan_release(bed.engine, &jobs[i].plan);
            }
            close_bed();
        }
}

/* One job on the scripted device, from the submission to what came of it. */
static ks_job ends_as(ks_status wanted)
{
    ks_error error;
    static ks_error fault;
    fault.status = KS_OK;
    ks_job job = {.fault = &fault};
    const ks_spec spec = tiny_spec(10, 0, 0);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &job.plan, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, job.plan->in_bytes, job.plan->out_bytes, &job.slot, &error), KS_OK);
    memset(job.slot->in, 0, job.plan->in_bytes);
    assert_int_equal(ks_engine_submit(bed.engine, &job, &error), KS_OK);
    ks_engine_launch(bed.engine);
    script_release(0);
    assert_ptr_equal(ks_engine_collect(bed.engine), &job);
    assert_int_equal(job.status, wanted);
    assert_true(wanted == KS_OK || fault.text[0]);
    assert_int_equal(job.h2d_ns + job.compute_ns + job.d2h_ns, job.done_ns - job.launched_ns);
    ks_engine_slot_release(bed.engine, &job.slot);
    ks_engine_plan_release(bed.engine, &job.plan);
    return job;
}

/* A device that does not say what failed: a sentence is there all the same, and times that cannot be add up. */
static void a_device_that_says_nothing(void **state)
{
    ks_engine_stats stats;
    (void)state;
    open_bed(1, 1);
    script.slow_ns = 3600 * (int64_t)1000 * MS;
    script.untimed = true;
    assert_true(ends_as(KS_OK).h2d_ns > script.slow_ns);
    script.slow_ns = 0;
    script.fails = true;
    assert_string_equal(ends_as(KS_DEVICE).fault->text, "the device failed and did not say why");
    script.fails = false;
    ends_as(KS_OK);
    assert_false(ks_engine_lost(bed.engine));
    script.loses = true;
    assert_string_equal(ends_as(KS_DEVICE).fault->text, "the device is lost");
    assert_true(ks_engine_lost(bed.engine));
    ks_engine_read_stats(bed.engine, &stats);
    assert_int_equal(stats.errors_device, 2);
    close_bed();
}

/* --- on the CPU: what is over before it would have been waited for ------------------------------------------------------ */

static void run_job(ks_engine *engine, ks_job *job, int64_t count, int64_t spin_us)
{
    ks_error error;
    const ks_spec spec = tiny_spec(count, 1, spin_us);
    assert_int_equal(ks_engine_plan(engine, &spec, &job->plan, &error), KS_OK);
    assert_int_equal(ks_engine_slot(engine, job->plan->in_bytes, job->plan->out_bytes, &job->slot, &error), KS_OK);
    for (int64_t i = 0; i < count; i++) ((float *)job->slot->in)[i] = (float)i;
    assert_int_equal(ks_engine_submit(engine, job, &error), KS_OK);
}

static void end_job(ks_engine *engine, ks_job *job)
{
    ks_engine_slot_release(engine, &job->slot);
    ks_engine_plan_release(engine, &job->plan);
    *job = (ks_job){0};
}

static int collected(ks_engine *engine)
{
    int count = 0;
    for (const ks_job *job = ks_engine_collect(engine); job; job = job->next) count++;
    return count;
}

static void short_work_is_over_at_once(void **state)
{
    ks_error error;
    ks_device *device;
    ks_engine *engine;
    ks_job first = {0}, second = {0}, slow = {0};
    (void)state;
    const ks_limits limits_of = {.device_index = -1, .lanes = 1, .lane_bytes = 1 << 16, .workspace_bytes = 1 << 16};
    assert_int_equal(ks_backend_cpu->open(&limits_of, &device, &error), KS_OK);
    ks_budget *budget = ks_budget_open(1 << 20);
    const ks_engine_options options = {.backend = ks_backend_cpu,
                                       .device = device,
                                       .budget = budget,
                                       .lanes = 1,
                                       .classes = 1,
                                       .size_class = {{SMALL, 4}},
                                       .plan_bytes = 1 << 20,
                                       .queue_max = 64,
                                       .stall_ns = 60000 * (int64_t)MS,
                                       .wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    assert_int_equal(ks_engine_open(&options, &engine, &error), KS_OK);
    run_job(engine, &first, 8, 0);
    assert_true(first.plan->at_once);
    assert_true(ks_engine_run(engine, &first));
    assert_true(first.state == KS_JOB_DONE && first.status == KS_OK && ((float *)first.slot->out)[7] == 15);
    assert_int_equal(collected(engine), 0);
    end_job(engine, &first);

    /* Somebody waits before it, or behind it. */
    run_job(engine, &first, 8, 0);
    run_job(engine, &second, 8, 0);
    assert_false(ks_engine_run(engine, &second));
    assert_false(ks_engine_run(engine, &first));
    ks_engine_launch(engine);
    int done = 0;
    while (done < 2) {
        ks_engine_launch(engine);
        done += collected(engine);
    }
    end_job(engine, &first);
    end_job(engine, &second);

    /* Its time is over; somebody is done and not collected yet. */
    first.deadline_ns = 1;
    run_job(engine, &first, 8, 0);
    assert_false(ks_engine_run(engine, &first));
    ks_engine_launch(engine);
    run_job(engine, &second, 8, 0);
    assert_false(ks_engine_run(engine, &second));
    assert_true(ks_engine_polls(engine));
    assert_int_equal(ks_engine_expected_ns(engine), 0);
    assert_int_equal(collected(engine), 1);
    assert_int_equal(first.status, KS_DEADLINE);
    assert_true(ks_engine_run(engine, &second));
    end_job(engine, &first);
    end_job(engine, &second);

    /* The lane works on something long. */
    run_job(engine, &slow, 8, 20000);
    assert_false(slow.plan->at_once);
    assert_false(ks_engine_run(engine, &slow));
    ks_engine_launch(engine);
    run_job(engine, &first, 8, 0);
    assert_false(ks_engine_run(engine, &first));
    assert_false(ks_engine_polls(engine)); /* its thread wakes the shard */
    done = 0;
    while (done < 2) {
        ks_engine_launch(engine);
        done += collected(engine);
    }
    end_job(engine, &slow);
    end_job(engine, &first);
    ks_engine_close(&engine);
    ks_backend_cpu->close(&device);
    close(options.wake_fd); /* its thread may still be writing */
    ks_budget_close(&budget);
}

/* --- the line before the slots --------------------------------------------------------------------------------------- */

/* Joining, leaving and being served at random, against a list in order of arrival: nobody is forgotten or served twice. */
static void the_line_against_a_list(void **state)
{
    enum { WAITS = 12, TURNS = 20000 };
    ks_error error;
    ks_slot_queue line;
    ks_slot_wait waits[WAITS] = {{0}}, *list[WAITS];
    ks_slot *slot = NULL, *largest = NULL;
    int count = 0;
    int64_t now_ns = ks_now_ns();
    (void)state;
    open_bed(1, 1);
    assert_int_equal(ks_engine_slot(bed.engine, LARGE, SIDE, &largest, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, SIDE, SIDE, &slot, &error), KS_OK);
    ks_slot_queue_init(&line, bed.engine, 100 * (int64_t)MS);
    for (int turn = 0; turn < TURNS; turn++) {
        ks_slot_wait *one = &waits[random_below(WAITS)];
        int served = 0;
        switch (random_below(4)) {
        case 0:
            if (one->waits) break;
            ks_slot_queue_join(&line, one, SIDE, SIDE);
            list[count++] = one;
            break;
        case 1: /* who does not stand in it leaves as well */
            ks_slot_queue_leave(&line, one);
            for (int i = 0; i < count; i++)
                if (list[i] == one) {
                    memmove(&list[i], &list[i + 1], (size_t)(--count - i) * sizeof *list);
                    break;
                }
            break;
        case 2: /* the slot is out: nobody goes before patience ends, and one may leave while the line is looked at */
            ks_slot_queue_look(&line, now_ns);
            assert_null(ks_slot_queue_next(&line));
            assert_true(ks_slot_queue_wait_ns(&line) > 0);
            break;
        default: /* the slot is free for one: the first in line */
            ks_engine_slot_release(bed.engine, &slot);
            ks_slot_queue_freed(&line);
            assert_int_equal(ks_slot_queue_holds(&line, SIDE, SIDE), count > 0);
            ks_slot_queue_look(&line, now_ns);
            while ((one = ks_slot_queue_next(&line))) {
                assert_int_equal(served++, 0);
                assert_ptr_equal(one, list[0]);
                assert_int_equal(ks_engine_slot(bed.engine, SIDE, SIDE, &slot, &error), KS_OK);
                assert_int_equal(slot->size_class, 1);
                memmove(&list[0], &list[1], (size_t)--count * sizeof *list);
            }
            if (!slot) assert_int_equal(ks_engine_slot(bed.engine, SIDE, SIDE, &slot, &error), KS_OK);
        }
        for (int i = 0; i < count; i++) assert_true(list[i]->waits);
        assert_int_equal(ks_slot_queue_wait_ns(&line) == INT64_MAX, count == 0);
    }
    /* Patience ends: all go, in order, though the slot is out. */
    now_ns = ks_now_ns() + 100 * (int64_t)MS * (KS_SLOT_QUEUE_WAITS_MAX + 1);
    ks_slot_queue_look(&line, now_ns);
    for (int i = 0; i < count; i++) assert_ptr_equal(ks_slot_queue_next(&line), list[i]);
    assert_null(ks_slot_queue_next(&line));
    assert_int_equal(ks_slot_queue_wait_ns(&line), INT64_MAX);
    ks_engine_slot_release(bed.engine, &slot);
    ks_engine_slot_release(bed.engine, &largest);
    close_bed();
}

/* One that a look has passed over, because its slot is out, leaves before the look goes on. */
static void leaving_behind_a_look(void **state)
{
    ks_error error;
    ks_slot_queue line;
    ks_slot_wait large = {0}, waits[2] = {{0}};
    ks_slot *slots[2] = {NULL}, *largest = NULL;
    (void)state;
    open_bed(1, 2);
    assert_int_equal(ks_engine_slot(bed.engine, LARGE, SIDE, &largest, &error), KS_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(ks_engine_slot(bed.engine, SIDE, SIDE, &slots[i], &error), KS_OK);
    ks_slot_queue_init(&line, bed.engine, 1000 * (int64_t)MS);
    ks_slot_queue_join(&line, &large, LARGE, SIDE);
    for (int i = 0; i < 2; i++) ks_slot_queue_join(&line, &waits[i], SIDE, SIDE);
    for (int i = 0; i < 2; i++) ks_engine_slot_release(bed.engine, &slots[i]);
    ks_slot_queue_freed(&line);
    ks_slot_queue_look(&line, ks_now_ns());
    assert_ptr_equal(ks_slot_queue_next(&line), &waits[0]);
    assert_int_equal(ks_engine_slot(bed.engine, SIDE, SIDE, &slots[0], &error), KS_OK);
    assert_true(large.waits);
    ks_slot_queue_leave(&line, &large);
    assert_ptr_equal(ks_slot_queue_next(&line), &waits[1]);
    assert_null(ks_slot_queue_next(&line));
    ks_engine_slot_release(bed.engine, &slots[0]);
    ks_engine_slot_release(bed.engine, &largest);
    close_bed();
}

/* One that leaves amid a look, as the next one or the last: the look goes on with those behind. */
static void leaving_amid_a_look(void **state)
{
    ks_error error;
    ks_slot_queue line;
    ks_slot_wait waits[4] = {{0}};
    ks_slot *slot = NULL, *largest = NULL;
    (void)state;
    open_bed(1, 1);
    assert_int_equal(ks_engine_slot(bed.engine, LARGE, SIDE, &largest, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, SIDE, SIDE, &slot, &error), KS_OK);
    for (int leaves = 1; leaves < 4; leaves++) {
        ks_slot_queue_init(&line, bed.engine, 0);
        for (int i = 0; i < 4; i++) ks_slot_queue_join(&line, &waits[i], SIDE, SIDE);
        ks_slot_queue_look(&line, ks_now_ns() + MS);
        assert_ptr_equal(ks_slot_queue_next(&line), &waits[0]);
        ks_slot_queue_leave(&line, &waits[leaves]);
        for (int i = 1; i < 4; i++)
            if (i != leaves) assert_ptr_equal(ks_slot_queue_next(&line), &waits[i]);
        assert_null(ks_slot_queue_next(&line));
        /* And the line is whole behind it. */
        ks_slot_queue_join(&line, &waits[3], SIDE, SIDE);
        ks_slot_queue_look(&line, ks_now_ns() + MS);
        assert_ptr_equal(ks_slot_queue_next(&line), &waits[3]);
    }
    ks_engine_slot_release(bed.engine, &slot);
    ks_engine_slot_release(bed.engine, &largest);
    close_bed();
}

/* --- the queue ------------------------------------------------------------------------------------------------------- */

/* By the words of queue.h: priorities first, 1 before 2; of equal ones those with an asked deadline, the sooner first; then
 * as they came. */
static int compare_jobs(const ks_job *a, const ks_job *b)
{
    const uint64_t first = a->priority ? a->priority : UINT64_MAX, second = b->priority ? b->priority : UINT64_MAX;
    if (first != second) return first < second ? -1 : 1;
    if (a->deadline_asked != b->deadline_asked) return a->deadline_asked ? -1 : 1;
    if (a->deadline_asked && a->deadline_ns != b->deadline_ns) return a->deadline_ns < b->deadline_ns ? -1 : 1;
    return a->submitted_ns < b->submitted_ns ? -1 : 1; /* here: the number of its arrival */
}

static void the_queue_against_a_sorted_list(void **state)
{
    enum { JOBS = 24, TURNS = 40000 };
    ks_job jobs[JOBS] = {{0}};
    ks_queue queue;
    int64_t arrived = 0;
    (void)state;
    ks_queue_init(&queue);
    for (int turn = 0; turn < TURNS; turn++) {
        ks_job *one = &jobs[random_below(JOBS)];
        if (one->state == KS_JOB_IDLE) {
            *one = (ks_job){.state = KS_JOB_READY,
                            .priority = random_below(2) ? random_below(4) : 0,
                            .deadline_asked = random_below(3) == 0,
                            .deadline_ns = (int64_t)random_below(5),
                            .submitted_ns = ++arrived};
            ks_queue_add(&queue, one);
        } else {
            ks_job **link = &queue.first;
            while (*link != one) link = &(*link)->next;
            assert_ptr_equal(ks_queue_take(&queue, link), one);
            assert_null(one->next);
            one->state = KS_JOB_IDLE;
        }
        int count = 0, there = 0;
        for (const ks_job *job = queue.first; job; job = job->next, count++)
            if (job->next && compare_jobs(job, job->next) > 0)
                fail_msg("turn %d: place %d is behind its rank", turn, count);
        for (int i = 0; i < JOBS; i++) there += jobs[i].state == KS_JOB_READY;
        assert_true(count == queue.count && count == there && *queue.end == NULL);
    }
}

static void ranks(void **state)
{
    const ks_job plain = {0}, soon = {.deadline_asked = true, .deadline_ns = 1},
                 later = {.deadline_asked = true, .deadline_ns = 2}, own = {.deadline_ns = 1}, first = {.priority = 1},
                 second = {.priority = 2};
    const ks_job *const order[] = {&first, &second, &soon, &later, &plain};
    (void)state;
    for (size_t i = 0; i < COUNT(order); i++)
        for (size_t j = 0; j < COUNT(order); j++) assert_int_equal(ks_queue_outranks(order[i], order[j]), i < j);
    assert_false(ks_queue_outranks(&own, &plain) ||
                 ks_queue_outranks(&plain, &own)); /* the server's deadline is no rank */
}

/* --- what the others are told ----------------------------------------------------------------------------------------- */

/* Part of the protocol: a client that branches on one of these must find it again after every change of the table. */
static void statuses(void **state)
{
    static const struct {
        ks_status status;
        int http;
        const char *code;
        bool closes;
    } rows[] = {
        {KS_OK, 200, "", false},
        {KS_FRAMING, 400, "framing", true},
        {KS_HEADER, 400, "header", true},
        {KS_CHUNKS, 400, "chunks", true},
        {KS_NO_HOST, 400, "host", true},
        {KS_HOST, 421, "host", false},
        {KS_ORIGIN, 403, "origin", false},
        {KS_EXPECT, 417, "expect", true},
        {KS_URI, 414, "uri", true},
        {KS_HEADERS, 431, "headers", true},
        {KS_PATH, 404, "path", false},
        {KS_METHOD, 405, "method", false},
        {KS_ENCODING, 415, "encoding", false},
        {KS_ENCODED, 400, "encoding", false},
        {KS_UNAUTHORIZED, 401, "auth", false},
        {KS_FORBIDDEN, 403, "auth", false},
        {KS_BODY_SIZE, 413, "body_size", false},
        {KS_SLOW, 408, "slow", true},
        {KS_DEADLINE, 504, "deadline", false},
        {KS_BUDGET, 503, "budget", false},
        {KS_QUEUE_FULL, 503, "queue_full", false},
        {KS_DRAINING, 503, "draining", true},
        {KS_DEVICE, 503, "device", false},
        {KS_MEMORY, 503, "memory", false},
        {KS_UNSUPPORTED, 501, "unsupported", false},
        {KS_UNAVAILABLE, 503, "unavailable", false},
        {KS_JSON, 400, "json", false},
        {KS_JSON_LIMIT, 400, "json_limit", false},
        {KS_FIELD, 400, "field", false},
        {KS_MODEL, 404, "model", false},
        {KS_NAME, 400, "name", false},
        {KS_PARAMETER, 400, "parameter", false},
        {KS_SHAPE, 400, "shape", false},
        {KS_EMPTY, 400, "empty", false},
        {KS_DATATYPE, 400, "datatype", false},
        {KS_AXIS, 400, "axis", false},
        {KS_COUNT, 400, "count", false},
        {KS_RANGE, 400, "range", false},
        {KS_HEADER_LENGTH, 400, "header_length", false},
        {KS_BINARY_SIZE, 400, "binary_size", false},
        {KS_REGION, 404, "shared_memory", false},
        {KS_WINDOW, 400, "shared_memory", false},
        {KS_WORK, 413, "work", false},
        {KS_NON_FINITE, 422, "non_finite", false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(ks_status_http(rows[i].status), rows[i].http);
        assert_string_equal(ks_status_code(rows[i].status), rows[i].code);
        assert_int_equal(ks_status_closes(rows[i].status), rows[i].closes);
        assert_int_equal(ks_status_retries(rows[i].status), rows[i].http == 503);
    }
    assert_string_equal(ks_status_name(KS_QUEUE_FULL), "QUEUE_FULL");
}

static void sentences(void **state)
{
    ks_error error = {0};
    char longer[2 * KS_ERROR_TEXT];
    (void)state;
    assert_int_equal(ks_fail(NULL, KS_SHAPE, "nobody hears"), KS_SHAPE);
    assert_int_equal(ks_fail(&error, KS_SHAPE, "a%cb\x1b[2Jc\x7f\n%s", 1, "d"), KS_SHAPE);
    assert_int_equal(error.status, KS_SHAPE);
    assert_string_equal(error.text, "a?b?[2Jc??d");
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(ks_fail(&error, KS_JSON, "%s", longer), KS_JSON);
    assert_int_equal(strlen(error.text), KS_ERROR_TEXT - 1);
}

static void numbers_of_answers(void **state)
{
    static const struct {
        int64_t value;
        const char *text;
    } rows[] = {{0, "0"}, {1, "1"}, {9, "9"}, {10, "10"}, {100, "100"}, {INT64_MAX, "9223372036854775807"}};
    char out[24];
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) assert_string_equal(ks_response_number(out, rows[i].value), rows[i].text);
}

/* A fault's response: every byte but Date's. */
static void faults_as_text(void **state)
{
    static const struct {
        ks_status status;
        const char *line, *allow;
        bool retries;
    } rows[] = {{KS_SLOW, "HTTP/1.1 408 Request Timeout\r\n", NULL, false},
                {KS_BODY_SIZE, "HTTP/1.1 413 Content Too Large\r\n", NULL, false},
                {KS_METHOD, "HTTP/1.1 405 Method Not Allowed\r\n", "GET, HEAD", false},
                {KS_DRAINING, "HTTP/1.1 503 Service Unavailable\r\n", NULL, true},
                {KS_DEADLINE, "HTTP/1.1 504 Gateway Timeout\r\n", NULL, false},
                {KS_CHUNKS, "HTTP/1.1 400 Bad Request\r\n", NULL, false}};
    static const char body[] = "{\"error\":\"too \\\"slow\\\"\"}";
    ks_date date = {.dated = 0};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char head[KS_RESPONSE_HEAD_MAX + 1], wanted[128];
        ks_response response = {.last = i % 2 == 0};
        assert_true(ks_response_fault(&response, rows[i].status, "too \"slow\"", rows[i].allow));
        head[ks_response_head(&response, &date, head)] = 0;
        assert_memory_equal(head, rows[i].line, strlen(rows[i].line));
        assert_int_equal(response.length, sizeof body - 1);
        assert_memory_equal(response.body, body, sizeof body - 1);
        snprintf(wanted, sizeof wanted, "\r\nKernserve-Error: %s\r\n", ks_status_code(rows[i].status));
        assert_non_null(strstr(head, wanted));
        snprintf(wanted, sizeof wanted, "\r\nContent-Length: %zu\r\n", sizeof body - 1);
        assert_non_null(strstr(head, wanted));
        assert_non_null(strstr(head, "\r\nContent-Type: application/json\r\n"));
        assert_non_null(strstr(head, "\r\nDate: "));
        assert_int_equal(strstr(head, "\r\nRetry-After: 1\r\n") != NULL, rows[i].retries);
        assert_int_equal(strstr(head, "\r\nConnection: close\r\n") != NULL, response.last);
        assert_int_equal(strstr(head, "\r\nAllow: GET, HEAD\r\n") != NULL, rows[i].allow != NULL);
        assert_string_equal(head + strlen(head) - 4, "\r\n\r\n");
        ks_response_fini(&response);
    }
    assert_non_null(strstr(ks_response_sentence(KS_DEVICE), "device"));
    assert_string_equal(ks_response_sentence(KS_DRAINING), "Server not ready");
}

/* The fields that one answer has and another one lacks, and the statuses that say what the client may do. */
static void answers_as_text(void **state)
{
    static const struct {
        ks_response_body response;
        const char *timing, *has[4], *lacks[4];
    } rows[] = {
        {{.content_type = "application/json", .header_length = -1, .length = 2},
         "",
         {"HTTP/1.1 200 OK\r\n", "\r\nContent-Type: application/json\r\n", "\r\nContent-Length: 2\r\n"},
         {"Inference-Header-Content-Length", "Kernserve-Shape", "Content-Encoding", "Server-Timing"}},
        {{.content_type = "application/octet-stream", .header_length = 77, .content_encoding = "gzip", .length = 99},
         "total;dur=1",
         {"\r\nInference-Header-Content-Length: 77\r\n", "\r\nContent-Encoding: gzip\r\n",
          "\r\nServer-Timing: total;dur=1\r\n"},
         {"Kernserve-Shape"}},
        {{.content_type = "application/octet-stream", .header_length = -1, .shape = "2,3", .datatype = "FP32"},
         "",
         {"\r\nKernserve-Shape: 2,3\r\n", "\r\nKernserve-Datatype: FP32\r\n"},
         {"Content-Encoding"}},
    };
    ks_date date = {.dated = 0};
    char head[KS_RESPONSE_HEAD_MAX + 1];
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        ks_response response = {.code = 0};
        ks_response_infer(&response, &rows[i].response, rows[i].timing, NULL);
        head[ks_response_head(&response, &date, head)] = 0;
        for (int k = 0; k < 4 && rows[i].has[k]; k++) assert_non_null(strstr(head, rows[i].has[k]));
        for (int k = 0; k < 4 && rows[i].lacks[k]; k++) assert_null(strstr(head, rows[i].lacks[k]));
        ks_response_fini(&response);
    }
    static const struct {
        ks_status status;
        const char *field;
    } faults[] = {{KS_ENCODING, "\r\nAccept-Encoding: gzip, deflate\r\n"},
                  {KS_UNAUTHORIZED, "\r\nWWW-Authenticate: Bearer realm=\"kernserve\"\r\n"}};
    for (size_t i = 0; i < COUNT(faults); i++) {
        ks_response response = {.code = 0};
        assert_true(ks_response_fault(&response, faults[i].status, "no", NULL));
        head[ks_response_head(&response, &date, head)] = 0;
        assert_non_null(strstr(head, faults[i].field));
        ks_response_fini(&response);
    }
    const ks_response strange = {.code = 299};
    head[ks_response_head(&strange, &date, head)] = 0;
    assert_memory_equal(head, "HTTP/1.1 299 Unknown\r\n", 22);
}

/* A request that never had a record still counts, for its model or for none. */
static void refusals_are_counted(void **state)
{
    ks_model_stats stats;
    (void)state;
    ks_models_init();
    ks_metrics *metrics = ks_metrics_open(1);
    const ks_model *model = ks_model_find("softmax", 7);
    const ks_route known = {.model = model}, unknown = {.model = NULL};
    ks_response_count(ks_metrics_writer(metrics, 0), &known, KS_BUDGET, 1000);
    ks_response_count(ks_metrics_writer(metrics, 0), &unknown, KS_MODEL, 1000);
    ks_metrics_stats(metrics, model->index, &stats);
    assert_int_equal(stats.fail_count, 1);
    assert_int_equal(stats.fail_ns, 1000);
    ks_metrics_close(&metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_budget_has_its_last_byte),
        cmocka_unit_test(without_classes_all_is_overflow),
        cmocka_unit_test(a_lost_device_keeps_its_memory),
        cmocka_unit_test(expected_ends),
        cmocka_unit_test(a_lost_device_takes_no_work),
        cmocka_unit_test(work_that_goes_alone),
        cmocka_unit_test(a_device_that_says_nothing),
        cmocka_unit_test(short_work_is_over_at_once),
        cmocka_unit_test(the_line_against_a_list),
        cmocka_unit_test(leaving_behind_a_look),
        cmocka_unit_test(leaving_amid_a_look),
        cmocka_unit_test(the_queue_against_a_sorted_list),
        cmocka_unit_test(ranks),
        cmocka_unit_test(statuses),
        cmocka_unit_test(sentences),
        cmocka_unit_test(numbers_of_answers),
        cmocka_unit_test(faults_as_text),
        cmocka_unit_test(answers_as_text),
        cmocka_unit_test(refusals_are_counted),
    };
    const char *fixed = getenv("KS_SEED");
    random_state = fixed ? strtoull(fixed, NULL, 0) : (uint64_t)ks_now_ns();
    printf("KS_SEED=%llu\n", (unsigned long long)random_state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
