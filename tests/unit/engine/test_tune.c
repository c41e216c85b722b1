/* Tuning: the contest with a scripted timer, the file that keeps what was found, and the engine on a backend whose
 * ways take the times that a test says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/engine_core.h"
#include "fake/fake_backend.h"
#include "base/log.h"
#include "ops/op_tiny.h"
#include "engine/tune/contest.h"
#include "kernserve/backends.h"

enum { MS = 1000000, SIDE = 4096 };

/* --- the contest ---------------------------------------------------------------------------------------------------- */

/* The time of a way's trial number `trial` of the whole contest; 0: it fails. */
typedef int64_t timer_fn(int algorithm, int trial);

static int play(ks_contest *contest, int candidates, timer_fn *timer)
{
    int trials = 0, algorithm;
    ks_contest_begin(contest, candidates);
    while ((algorithm = ks_contest_next(contest)) >= 0) {
        assert_in_range(algorithm, 0, candidates - 1);
        ks_contest_time(contest, timer(algorithm, trials++));
    }
    return trials;
}

static int64_t third_is_fastest(int algorithm, int trial)
{
    (void)trial;
    return algorithm == 3 ? 8000 : 10000 + algorithm;
}

static int64_t half_a_percent_better(int algorithm, int trial)
{
    (void)trial;
    return algorithm == 1 ? 9950 : 10000;
}

static int64_t two_percent_better(int algorithm, int trial)
{
    (void)trial;
    return algorithm == 1 ? 9800 : 10000;
}

static int64_t planned_fails(int algorithm, int trial)
{
    (void)trial;
    return algorithm == 0 ? 0 : 5000 + algorithm;
}

static int64_t all_fail(int algorithm, int trial)
{
    (void)algorithm, (void)trial;
    return 0;
}

/* Lucky once: the first round is not what decides. */
static int64_t lucky_in_the_first_round(int algorithm, int trial)
{
    if (algorithm == 2) return trial < 5 ? 1000 : 20000;
    return trial < 5 ? 1400 : 10000;
}

/* Everything slows down by 1 % a trial. Way 1 is 3 % faster than the planned one, but always comes behind it. */
static int64_t clock_drifts(int algorithm, int trial)
{
    return (int64_t)((algorithm == 1 ? 9700.0 : 10000.0) * (1 + 0.01 * trial));
}

/* A third of a way's trials are disturbed. */
static int64_t outliers(int algorithm, int trial)
{
    return trial % 3 == 0 && algorithm == 1 ? 90000 : algorithm == 1 ? 9000 : 10000;
}

static int64_t fails_late(int algorithm, int trial)
{
    return algorithm == 1 ? (trial < 10 ? 5000 : 0) : 10000;
}

static int64_t descending(int algorithm, int trial)
{
    (void)trial;
    return 10000 - algorithm * 10;
}

static void the_fastest_algorithm_wins(void **state)
{
    (void)state;
    ks_contest contest;
    play(&contest, 5, third_is_fastest);
    assert_int_equal(ks_contest_winner(&contest), 3);
    assert_int_equal(ks_contest_ns(&contest, 3), 8000);
    assert_int_equal(ks_contest_ns(&contest, 0), 10000);
    play(&contest, 1, third_is_fastest);
    assert_int_equal(ks_contest_winner(&contest), 0);
}

static void the_planned_algorithm_stays_unless_it_is_beaten(void **state)
{
    (void)state;
    ks_contest contest;
    play(&contest, 2, half_a_percent_better);
    assert_int_equal(ks_contest_winner(&contest), 0);
    play(&contest, 2, two_percent_better);
    assert_int_equal(ks_contest_winner(&contest), 1);
}

static void candidates_that_fail_are_out(void **state)
{
    (void)state;
    ks_contest contest;
    play(&contest, 4, planned_fails);
    assert_int_equal(ks_contest_winner(&contest), 1);
    assert_int_equal(ks_contest_ns(&contest, 0), 0);
    assert_int_equal(play(&contest, 4, all_fail), 4);
    assert_int_equal(ks_contest_winner(&contest), -1);
    play(&contest, 3, fails_late);
    assert_int_equal(ks_contest_winner(&contest), 0);
}

static void neither_luck_nor_drift_nor_disturbance_decides(void **state)
{
    (void)state;
    ks_contest contest;
    play(&contest, 5, lucky_in_the_first_round);
    assert_int_equal(ks_contest_winner(&contest), 0);
    play(&contest, 2, clock_drifts);
    assert_int_equal(ks_contest_winner(&contest), 1);
    play(&contest, 2, outliers);
    assert_int_equal(ks_contest_winner(&contest), 1);
}

static void later_rounds_are_for_the_fastest_and_the_planned(void **state)
{
    (void)state;
    ks_contest contest;
    assert_int_equal(play(&contest, KS_CANDIDATES_MAX, descending),
                     KS_CANDIDATES_MAX + (KS_CONTEST_ROUNDS - 1) * (KS_CONTEST_KEPT + 1));
    assert_int_equal(ks_contest_winner(&contest), KS_CANDIDATES_MAX - 1);
}

static int64_t slow(int algorithm, int trial)
{
    (void)trial;
    return algorithm == 1 ? 900000000 : 1000000000;
}

static void work_of_a_second_runs_once(void **state)
{
    (void)state;
    ks_contest contest;
    assert_int_equal(play(&contest, 3, slow), 3);
    assert_int_equal(ks_contest_winner(&contest), 1);
}

static void a_trial_is_neither_over_at_once_nor_long(void **state)
{
    (void)state;
    ks_contest contest;
    ks_contest_begin(&contest, 2);
    assert_int_equal(ks_contest_runs(&contest, 0), 1); /* it might be slow */
    assert_int_equal(ks_contest_runs(&contest, 1000), 32);
    assert_int_equal(ks_contest_runs(&contest, 50000000), 1);
    ks_contest_time(&contest, 1000);
    assert_int_equal(ks_contest_runs(&contest, 0), 32); /* the other way's time is a guess */
    ks_contest_time(&contest, 100000);
    assert_int_equal(contest.round, 1);
    assert_int_equal(ks_contest_next(&contest), 0);
    assert_int_equal(ks_contest_runs(&contest, 0), 32); /* its own time counts from now on */
}

/* --- the file ------------------------------------------------------------------------------------------------------- */

static char folder[64], path[96];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_tune.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tuned", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    chmod(folder, 0700);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static ks_tunes *open_tunes(const char *context)
{
    ks_tunes *tunes;
    ks_error error;
    assert_int_equal(ks_tunes_open(path, context, &tunes, &error), KS_OK);
    return tunes;
}

static ks_tuned tuned_of(int i)
{
    ks_tuned tuned;
    memset(&tuned, 0, sizeof tuned);
    tuned.trials = (ks_trials){.candidates = 1 + i, .us = 1.5 + i, .heuristic_us = 2.25 + i};
    snprintf(tuned.trials.heuristic, sizeof tuned.trials.heuristic, "planned\t%d", i);
    snprintf(tuned.algorithm.kernel, sizeof tuned.algorithm.kernel, "kernel %d", i);
    for (int k = 0; k < KS_ALGORITHM_BYTES; k++) tuned.algorithm.algorithm[k] = (unsigned char)(i * 7 + k * 13);
    return tuned;
}

static void keep(ks_tunes *tunes, int count, int which)
{
    ks_error error;
    const ks_spec spec = tiny_spec(count, 3, 0);
    const ks_tuned tuned = tuned_of(which);
    assert_int_equal(ks_tunes_keep(tunes, &spec, &tuned, &error), KS_OK);
}

static ks_status save(ks_tunes *tunes)
{
    ks_error error;
    return ks_tunes_save(tunes, 10000 * (int64_t)MS, &error);
}

/* -1: nothing is known of it. */
static int found(ks_tunes *tunes, int count)
{
    ks_tuned tuned, wanted;
    const ks_spec spec = tiny_spec(count, 3, 0);
    if (!ks_tunes_find(tunes, &spec, &tuned)) return -1;
    const int which = tuned.trials.candidates - 1;
    wanted = tuned_of(which);
    assert_memory_equal(tuned.algorithm.algorithm, wanted.algorithm.algorithm, KS_ALGORITHM_BYTES);
    assert_string_equal(tuned.algorithm.kernel, wanted.algorithm.kernel);
    assert_true(tuned.trials.us == wanted.trials.us && tuned.trials.heuristic_us == wanted.trials.heuristic_us);
    return which;
}

static int found_in_file(const char *context, int count)
{
    ks_tunes *tunes = open_tunes(context);
    const int which = found(tunes, count);
    ks_tunes_close(&tunes);
    return which;
}

static size_t read_file(char *text, size_t cap)
{
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    const size_t length = fread(text, 1, cap - 1, file);
    text[length] = 0;
    fclose(file);
    return length;
}

static void write_file(const char *text, size_t length)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    fclose(file);
}

/* Only the file itself may be left. */
static void check_no_litter(void)
{
    char command[128];
    snprintf(command, sizeof command, "test \"$(ls -A %s)\" = tuned", folder);
    assert_int_equal(system(command), 0);
}

static void what_was_kept_is_found_again(void **state)
{
    (void)state;
    ks_tunes *tunes = open_tunes("device 1; driver 2");
    assert_int_equal(found(tunes, 8), -1);
    assert_int_equal(ks_tunes_generation(tunes), 0);
    assert_int_equal(save(tunes), KS_OK); /* nothing new: no file */
    assert_int_not_equal(access(path, F_OK), 0);
    keep(tunes, 8, 1);
    keep(tunes, 9, 2);
    keep(tunes, 8, 4);
    assert_int_equal(ks_tunes_generation(tunes), 3);
    assert_int_equal(found(tunes, 8), 4);
    assert_int_equal(save(tunes), KS_OK);
    ks_tunes_close(&tunes);
    assert_int_equal(found_in_file("device 1; driver 2", 8), 4);
    assert_int_equal(found_in_file("device 1; driver 2", 9), 2);
    assert_int_equal(found_in_file("device 1; driver 2", 10), -1);
    check_no_litter();
}

static void other_parameters_are_other_plans(void **state)
{
    (void)state;
    ks_tuned tuned;
    ks_tunes *tunes = open_tunes("x");
    keep(tunes, 8, 1);
    const ks_spec other = tiny_spec(8, 4, 0);
    assert_false(ks_tunes_find(tunes, &other, &tuned));
    ks_tunes_close(&tunes);
}

static void what_depends_on_another_device_is_kept_and_not_used(void **state)
{
    (void)state;
    ks_tunes *first = open_tunes("device 1"), *second;
    keep(first, 8, 1);
    assert_int_equal(save(first), KS_OK);
    second = open_tunes("device 2");
    assert_int_equal(found(second, 8), -1);
    keep(second, 8, 2);
    assert_int_equal(save(second), KS_OK);
    ks_tunes_close(&first);
    ks_tunes_close(&second);
    assert_int_equal(found_in_file("device 1", 8), 1);
    assert_int_equal(found_in_file("device 2", 8), 2);
}

/* One byte is changed, at each place in turn: nothing of the file is believed, and nothing breaks. */
static void a_damaged_file_counts_as_empty_and_is_replaced(void **state)
{
    (void)state;
    static char good[4096], bad[4096];
    ks_tunes *tunes = open_tunes("a");
    keep(tunes, 8, 1);
    keep(tunes, 9, 2);
    assert_int_equal(save(tunes), KS_OK);
    ks_tunes_close(&tunes);
    const size_t length = read_file(good, sizeof good);
    const size_t head = strcspn(good, "\n") + 1;
    assert_in_range(length, 400, sizeof good - 2);
    const uint64_t warned = ks_log_lines(KS_LOG_WARN);
    size_t tries = 0;
    for (size_t at = head; at < length; at++, tries++) {
        memcpy(bad, good, length);
        bad[at] = (char)(bad[at] ^ (at % 3 == 0 ? 0x80 : at % 3 == 1 ? 1 : bad[at]));
        write_file(bad, length);
        tunes = open_tunes("a");
        assert_int_equal(found(tunes, 8), -1);
        assert_int_equal(found(tunes, 9), -1);
        ks_tunes_close(&tunes);
    }
    for (size_t cut = head + 1; cut < length; cut++, tries++) {
        write_file(good, cut);
        if (good[cut - 1] == '\n') { /* a whole line is a whole file */
            tries--;
            continue;
        }
        assert_int_equal(found_in_file("a", 8), -1);
    }
    assert_int_equal(ks_log_lines(KS_LOG_WARN) - warned, tries); /* one line each */
    tunes = open_tunes("a");
    keep(tunes, 10, 3);
    assert_int_equal(save(tunes), KS_OK);
    ks_tunes_close(&tunes);
    assert_int_equal(found_in_file("a", 10), 3);
    check_no_litter();
}

static void a_foreign_file_is_left_alone(void **state)
{
    (void)state;
    static const char *const texts[] = {"#!/bin/sh\n", "kernserve tuned choices 2\n", "k", "\0\0\0"};
    char after[256];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const size_t length = i == 3 ? 3 : strlen(texts[i]);
        write_file(texts[i], length);
        const uint64_t warned = ks_log_lines(KS_LOG_WARN);
        ks_tunes *tunes = open_tunes("a");
        assert_int_equal(ks_log_lines(KS_LOG_WARN), warned + 1);
        keep(tunes, 8, 1);
        assert_int_equal(save(tunes), KS_SYSTEM);
        assert_int_equal(save(tunes), KS_OK); /* said once */
        assert_int_equal(found(tunes, 8), 1); /* and used all the same */
        ks_tunes_close(&tunes);
        assert_int_equal(read_file(after, sizeof after), length);
        assert_memory_equal(after, texts[i], length);
    }
    write_file("", 0); /* as mktemp makes one: ours */
    ks_tunes *tunes = open_tunes("a");
    keep(tunes, 8, 1);
    assert_int_equal(save(tunes), KS_OK);
    ks_tunes_close(&tunes);
    assert_int_equal(found_in_file("a", 8), 1);
}

static void a_folder_that_cannot_be_written_is_an_error_and_no_more(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "%s/none/tuned", folder);
    ks_tunes *tunes = open_tunes("a");
    keep(tunes, 8, 1);
    assert_int_equal(save(tunes), KS_SYSTEM);
    assert_int_equal(found(tunes, 8), 1);
    ks_tunes_close(&tunes);
    snprintf(path, sizeof path, "%s", folder); /* a folder is no file */
    tunes = open_tunes("a");
    keep(tunes, 8, 1);
    assert_int_equal(save(tunes), KS_SYSTEM);
    ks_tunes_close(&tunes);
}

/* Several daemons at one file: each keeps plan after plan and saves, while another reads. No line is lost, and at no
 * moment is the file anything but whole. */
static void writers_at_one_file_lose_nothing(void **state)
{
    (void)state;
    enum { WRITERS = 4, PLANS = 12 };
    pid_t children[WRITERS];
    fflush(NULL);
    for (int w = 0; w < WRITERS; w++) {
        children[w] = fork();
        if (children[w] != 0) continue;
        ks_tunes *mine;
        ks_error error;
        bool good = ks_tunes_open(path, w < 2 ? "a" : "b", &mine, &error) == KS_OK;
        for (int i = 0; i < PLANS && good; i++) {
            const ks_spec spec = tiny_spec(1 + w * PLANS + i, 3, 0);
            const ks_tuned tuned = tuned_of(w * PLANS + i);
            good = ks_tunes_keep(mine, &spec, &tuned, &error) == KS_OK &&
                   ks_tunes_save(mine, 10000 * (int64_t)MS, &error) == KS_OK;
        }
        _exit(good ? 0 : 1);
    }
    const uint64_t warned = ks_log_lines(KS_LOG_WARN);
    for (int w = 0; w < WRITERS; w++) {
        int status;
        while (waitpid(children[w], &status, WNOHANG) == 0) (void)found_in_file("a", 1);
        assert_int_equal(status, 0);
    }
    assert_int_equal(ks_log_lines(KS_LOG_WARN), warned);
    for (int i = 0; i < WRITERS * PLANS; i++) assert_int_equal(found_in_file(i < 2 * PLANS ? "a" : "b", 1 + i), i);
    check_no_litter();
}

/* --- the engine ----------------------------------------------------------------------------------------------------- */

/* The CPU, with ways of the tiny operation that take the times of the script. The way in use is the plan's grid. */
enum { WAYS = 5 };
static struct {
    int64_t algorithm_ns[WAYS]; /* 0: its trial fails; -1: it cannot even be adopted */
    int candidates, trials, adoptions, lists;
    bool hold, lost;
    const ks_backend *backend;
    ks_tunes *tunes;
    ks_budget *budget;
    ks_device *device;
    ks_engine *engine;
    int wake_fd;
    ks_batch *trial; /* under way */
} bed;

static void fake_revision(const ks_device *device, char *out, size_t cap)
{
    (void)device;
    snprintf(out, cap, "ways 1");
}

static int fake_list(ks_device *device, const ks_plan *plan, ks_algorithm *out, int most)
{
    (void)device, (void)plan;
    bed.lists++;
    for (int i = 0; i < bed.candidates && i < most; i++) {
        memset(&out[i], 0, sizeof out[i]);
        snprintf(out[i].kernel, sizeof out[i].kernel, "way %d", i);
        out[i].algorithm[0] = (unsigned char)i;
    }
    return bed.candidates;
}

static ks_status fake_adopt(ks_device *device, ks_plan *plan, const ks_algorithm *algorithm, ks_error *error)
{
    (void)device;
    const int which = algorithm->algorithm[0];
    bed.adoptions++;
    for (int i = 0; i < KS_LANES_MAX; i++) assert_int_equal(plan->captured[i], 0);
    if (which >= bed.candidates || bed.algorithm_ns[which] < 0) return ks_fail(error, KS_CONFIG, "no way %d", which);
    plan->kernel_info.grid = which;
    snprintf(plan->kernel_info.kernel, sizeof plan->kernel_info.kernel, "way %d", which);
    return KS_OK;
}

static ks_status fake_launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    if (!batch->trial) return fake_base->launch(lane, batch, error);
    assert_null(bed.trial);
    assert_int_equal(batch->count, 0);
    bed.trials++;
    bed.trial = batch;
    return KS_OK;
}

static ks_poll fake_poll(ks_lane *lane, ks_error *error)
{
    if (!bed.trial) return fake_base->poll(lane, error);
    if (bed.hold) return KS_RUNNING;
    bed.trial->kernel_ns = bed.algorithm_ns[bed.trial->plan->kernel_info.grid];
    const bool failed = bed.trial->kernel_ns == 0;
    bed.trial = NULL;
    return failed ? KS_FAILED : KS_DONE;
}

static bool fake_failed(const ks_device *device)
{
    (void)device;
    return bed.lost;
}

static void open_bed(bool live, const char *context)
{
    static const ks_tuning tuning = {.revision = fake_revision, .list = fake_list, .adopt = fake_adopt};
    static const fake_overrides overrides = {
        .calls = {.launch = fake_launch, .poll = fake_poll, .failed = fake_failed, .tuning = &tuning}};
    ks_error error;
    const ks_limits limits = {.device_index = -1, .lanes = 1, .lane_bytes = 1 << 20, .mapped_max = SIZE_MAX};
    memset(&bed, 0, sizeof bed);
    bed.candidates = 3;
    bed.algorithm_ns[0] = 10000;
    bed.algorithm_ns[1] = 9000;
    bed.algorithm_ns[2] = 7000;
    bed.backend = fake_backend(ks_backend_cpu, &overrides);
    bed.tunes = open_tunes(context);
    bed.budget = ks_budget_open(1 << 20);
    bed.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_int_equal(bed.backend->open(&limits, &bed.device, &error), KS_OK);
    const ks_engine_options options = {.backend = bed.backend,
                                       .device = bed.device,
                                       .budget = bed.budget,
                                       .lanes = 1,
                                       .classes = 1,
                                       .size_class = {{.side_bytes = SIDE, .count = 8}},
                                       .plan_bytes = 1 << 20,
                                       .queue_max = 8,
                                       .stall_ns = 60000 * (int64_t)MS,
                                       .wake_fd = bed.wake_fd,
                                       .tunes = bed.tunes,
                                       .tune_live = live};
    assert_int_equal(ks_engine_open(&options, &bed.engine, &error), KS_OK);
}

static void close_bed(void)
{
    ks_engine_close(&bed.engine);
    bed.backend->close(&bed.device);
    ks_budget_close(&bed.budget);
    ks_tunes_close(&bed.tunes);
    close(bed.wake_fd);
}

static ks_plan *plan_of(int64_t count)
{
    ks_error error;
    ks_plan *plan;
    const ks_spec spec = tiny_spec(count, 3, 0);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &plan, &error), KS_OK);
    ks_plan *released = plan;
    ks_engine_plan_release(bed.engine, &plan);
    return released;
}

static void begin_job(ks_job *job, int64_t count)
{
    ks_error error;
    const ks_spec spec = tiny_spec(count, 3, 0);
    memset(job, 0, sizeof *job);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &job->plan, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, job->plan->in_bytes, job->plan->out_bytes, &job->slot, &error), KS_OK);
    for (int64_t i = 0; i < count; i++) ((float *)job->slot->in)[i] = (float)i;
    assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_OK);
}

static void end_job(ks_job *job, int64_t count)
{
    while (job->state != KS_JOB_DONE) {
        ks_engine_launch(bed.engine);
        (void)ks_engine_collect(bed.engine);
    }
    assert_int_equal(job->status, KS_OK);
    for (int64_t i = 0; i < count; i++) assert_true(((float *)job->slot->out)[i] == (float)(2 * i + 3));
    ks_engine_slot_release(bed.engine, &job->slot);
    ks_engine_plan_release(bed.engine, &job->plan);
}

static void run_jobs(int64_t count, int jobs)
{
    ks_job job;
    for (int i = 0; i < jobs; i++) {
        begin_job(&job, count);
        end_job(&job, count);
    }
}

static ks_status tune_now(int64_t count)
{
    ks_error error;
    const ks_spec spec = tiny_spec(count, 3, 0);
    return ks_engine_tune(bed.engine, &spec, NULL, NULL, &error);
}

static void at_start_the_fastest_algorithm_is_found_used_and_kept(void **state)
{
    (void)state;
    open_bed(false, "a");
    assert_int_equal(tune_now(8), KS_OK);
    const ks_plan *plan = plan_of(8);
    assert_string_equal(plan->kernel_info.kernel, "way 2");
    assert_int_equal(plan->trials.candidates, 3);
    assert_true(plan->trials.us == 7 && plan->trials.heuristic_us == 10);
    assert_string_equal(plan->trials.heuristic, "way 0");
    const int trials = bed.trials;
    assert_int_equal(trials, 3 + 8 * 3);
    assert_int_equal(tune_now(8), KS_OK); /* known */
    assert_int_equal(bed.trials, trials);
    run_jobs(8, 2);
    assert_int_equal(save(bed.tunes), KS_OK);
    close_bed();
    open_bed(false, "a"); /* a restart */
    assert_string_equal(plan_of(8)->kernel_info.kernel, "way 2");
    assert_string_equal(plan_of(9)->kernel_info.kernel, "reference");
    assert_int_equal(bed.trials, 0);
    close_bed();
    open_bed(false, "another driver");
    assert_string_equal(plan_of(8)->kernel_info.kernel, "reference");
    close_bed();
}

static void a_kept_algorithm_that_no_longer_exists_is_refused(void **state)
{
    (void)state;
    open_bed(false, "a");
    assert_int_equal(tune_now(8), KS_OK);
    assert_int_equal(save(bed.tunes), KS_OK);
    close_bed();
    open_bed(false, "a");
    bed.candidates = 2;
    assert_string_equal(plan_of(8)->kernel_info.kernel, "reference");
    run_jobs(8, 2);
    close_bed();
}

static void failing_candidates_leave_the_others(void **state)
{
    (void)state;
    open_bed(false, "a");
    bed.algorithm_ns[2] = 0;
    bed.algorithm_ns[1] = -1;
    assert_int_equal(tune_now(8), KS_OK);
    assert_string_equal(plan_of(8)->kernel_info.kernel, "way 0");
    bed.algorithm_ns[0] = 0;
    assert_int_equal(tune_now(9), KS_OK); /* none is left */
    assert_string_equal(plan_of(9)->kernel_info.kernel, "reference");
    assert_int_equal(plan_of(9)->trials.candidates, 0);
    bed.candidates = 1;
    assert_int_equal(tune_now(10), KS_OK);
    assert_string_equal(plan_of(10)->kernel_info.kernel, "reference");
    close_bed();
}

/* Idle turns, until nothing more comes of them. */
static int idle_turns(int most)
{
    int turns = 0;
    for (; turns < most && (plan_of(8)->trials.candidates == 0); turns++) {
        bed.engine->tune_after_ns = 0; /* time flies */
        ks_engine_tune_step(bed.engine);
        (void)ks_engine_collect(bed.engine);
    }
    return turns;
}

static void plans_in_use_are_tuned_in_idle_turns(void **state)
{
    (void)state;
    open_bed(true, "a");
    run_jobs(8, 10);
    for (int i = 0; i < 10; i++) ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, 0); /* hardly used */
    assert_int_equal(ks_engine_tune_wait_ns(bed.engine), INT64_MAX);
    run_jobs(8, 10);
    assert_int_equal(ks_engine_tune_wait_ns(bed.engine), MS);
    assert_in_range(idle_turns(100), 10, 99);
    assert_string_equal(plan_of(8)->kernel_info.kernel, "way 2");
    assert_null(bed.engine->tuner);
    run_jobs(8, 30);
    assert_int_equal(ks_engine_tune_wait_ns(bed.engine), INT64_MAX);
    const int trials = bed.trials;
    for (int i = 0; i < 10; i++) ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, trials);
    close_bed();
}

static void without_the_option_nothing_is_tried_live(void **state)
{
    (void)state;
    open_bed(false, "a");
    run_jobs(8, 40);
    for (int i = 0; i < 10; i++) ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.lists, 0);
    close_bed();
}

/* Jobs come before trials, one that comes during a trial is done behind it, and trials keep to their share of the
 * time. */
static void requests_go_first(void **state)
{
    (void)state;
    ks_job job, other;
    open_bed(true, "a");
    run_jobs(8, 20);
    begin_job(&job, 8);
    ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, 0);
    end_job(&job, 8);
    bed.hold = true;
    ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, 1);
    begin_job(&job, 8);
    begin_job(&other, 9);
    ks_engine_launch(bed.engine);
    (void)ks_engine_collect(bed.engine);
    assert_int_equal(job.state, KS_JOB_READY);
    ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, 1);
    usleep(2000); /* the trial lasts */
    bed.hold = false;
    end_job(&job, 8);
    end_job(&other, 9);
    assert_in_range(ks_engine_tune_wait_ns(bed.engine), 1, 10000 * (int64_t)MS);
    ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, 1); /* too early */
    idle_turns(100);
    assert_string_equal(plan_of(8)->kernel_info.kernel, "way 2");
    close_bed();
}

static void a_plan_in_use_keeps_its_algorithm(void **state)
{
    (void)state;
    ks_plan *held;
    ks_error error;
    const ks_spec spec = tiny_spec(8, 3, 0);
    open_bed(true, "a");
    run_jobs(8, 20);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &held, &error), KS_OK);
    idle_turns(100);
    assert_non_null(strstr(held->kernel_info.kernel, "reference"));
    ks_engine_plan_release(bed.engine, &held);
    assert_in_range(idle_turns(100), 1, 2);
    assert_string_equal(plan_of(8)->kernel_info.kernel, "way 2");
    close_bed();
}

/* What another shard found is taken over as well. */
static void findings_are_shared(void **state)
{
    (void)state;
    ks_error error;
    open_bed(true, "a");
    run_jobs(8, 3);
    ks_tuned tuned = {.trials = {.candidates = 3, .us = 7, .heuristic_us = 10}};
    tuned.algorithm.algorithm[0] = 1;
    const ks_spec spec = tiny_spec(8, 3, 0);
    assert_int_equal(ks_tunes_keep(bed.tunes, &spec, &tuned, &error), KS_OK);
    ks_engine_tune_step(bed.engine);
    assert_string_equal(plan_of(8)->kernel_info.kernel, "way 1");
    assert_int_equal(bed.trials, 0);
    run_jobs(8, 1);
    close_bed();
}

static void one_tunes_at_a_time(void **state)
{
    (void)state;
    open_bed(true, "a");
    run_jobs(8, 20);
    assert_true(ks_tunes_claim(bed.tunes));
    for (int i = 0; i < 5; i++) ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, 0);
    ks_tunes_release(bed.tunes);
    ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, 1);
    (void)ks_engine_collect(bed.engine);
    close_bed(); /* in the middle of it: what is held is given back */
}

static void a_lost_device_ends_it(void **state)
{
    (void)state;
    open_bed(true, "a");
    run_jobs(8, 20);
    bed.hold = true;
    ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, 1);
    bed.lost = true;
    (void)ks_engine_collect(bed.engine);
    assert_true(ks_engine_lost(bed.engine));
    assert_false(ks_engine_running(bed.engine));
    ks_engine_tune_step(bed.engine);
    assert_int_equal(bed.trials, 1);
    close_bed();
}

int main(void)
{
#define FILED(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_algorithm_wins),
        cmocka_unit_test(the_planned_algorithm_stays_unless_it_is_beaten),
        cmocka_unit_test(candidates_that_fail_are_out),
        cmocka_unit_test(neither_luck_nor_drift_nor_disturbance_decides),
        cmocka_unit_test(later_rounds_are_for_the_fastest_and_the_planned),
        cmocka_unit_test(work_of_a_second_runs_once),
        cmocka_unit_test(a_trial_is_neither_over_at_once_nor_long),
        FILED(what_was_kept_is_found_again),
        FILED(other_parameters_are_other_plans),
        FILED(what_depends_on_another_device_is_kept_and_not_used),
        FILED(a_damaged_file_counts_as_empty_and_is_replaced),
        FILED(a_foreign_file_is_left_alone),
        FILED(a_folder_that_cannot_be_written_is_an_error_and_no_more),
        FILED(writers_at_one_file_lose_nothing),
        FILED(at_start_the_fastest_algorithm_is_found_used_and_kept),
        FILED(a_kept_algorithm_that_no_longer_exists_is_refused),
        FILED(failing_candidates_leave_the_others),
        FILED(plans_in_use_are_tuned_in_idle_turns),
        FILED(without_the_option_nothing_is_tried_live),
        FILED(requests_go_first),
        FILED(a_plan_in_use_keeps_its_algorithm),
        FILED(findings_are_shared),
        FILED(one_tunes_at_a_time),
        FILED(a_lost_device_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
