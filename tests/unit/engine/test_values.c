/* Values that decide: refused before the launch where the host has few of them, else by the launch, without a word for jobs beside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine_core.h"
#include "ops/gather.h"
#include "kernserve/backends.h"

enum { SIDE_BYTES = 1 << 20, JOBS = 5, ROWS = 100, FEW = 10, MANY = KS_CHECKED_MAX_BYTES / 4 + 1 };
extern const ks_op ks_op_gather;

static struct {
    ks_device *device;
    ks_budget *budget;
    ks_engine *engine;
    int wake_fd;
    ks_job jobs[JOBS];
    ks_error faults[JOBS];
} bed;

static int open_bed(void **state)
{
    (void)state;
    ks_error error;
    memset(&bed, 0, sizeof bed);
    bed.budget = ks_budget_open(SIDE_BYTES);
    bed.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const ks_limits limits = {.device_index = -1, .lanes = 1, .lane_bytes = SIDE_BYTES, .mapped_max = SIZE_MAX};
    assert_int_equal(ks_backend_cpu->open(&limits, &bed.device, &error), KS_OK);
    const ks_engine_options options = {.backend = ks_backend_cpu,
                                       .device = bed.device,
                                       .budget = bed.budget,
                                       .lanes = 1,
                                       .classes = 1,
                                       .size_class = {{.side_bytes = SIDE_BYTES, .count = JOBS}},
                                       .pinned = true,
                                       .plan_bytes = SIDE_BYTES,
                                       .queue_max = JOBS,
                                       .stall_ns = 60000000000,
                                       .wake_fd = bed.wake_fd};
    assert_int_equal(ks_engine_open(&options, &bed.engine, &error), KS_OK);
    return 0;
}

static int close_bed(void **state)
{
    (void)state;
    for (int i = 0; i < JOBS; i++) {
        if (bed.jobs[i].slot) ks_engine_slot_release(bed.engine, &bed.jobs[i].slot);
        if (bed.jobs[i].plan) ks_engine_plan_release(bed.engine, &bed.jobs[i].plan);
    }
    ks_engine_close(&bed.engine);
    ks_backend_cpu->close(&bed.device);
    ks_budget_close(&bed.budget);
    close(bed.wake_fd);
    return 0;
}

/* A job of a table of ROWS numbers and indices 0, 1, 2 ... */
static int32_t *begin_job(int at, int64_t count)
{
    ks_spec spec;
    ks_error error;
    ks_job *job = &bed.jobs[at];
    ks_spec_init(&spec, &ks_op_gather);
    spec.in[KS_GATHER_TABLE] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {ROWS}};
    spec.in[KS_GATHER_INDICES] = (ks_tensor){.dtype = KS_INT32, .rank = 1, .dims = {count}};
    assert_int_equal(ks_op_gather.resolve(&spec, &error), KS_OK);
    ks_spec_layout(&spec);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &job->plan, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, job->plan->in_bytes, job->plan->out_bytes, &job->slot, &error), KS_OK);
    bed.faults[at].status = KS_OK;
    job->fault = &bed.faults[at];
    float *table = (float *)(void *)(job->slot->in + spec.in[KS_GATHER_TABLE].offset);
    int32_t *indices = (int32_t *)(void *)(job->slot->in + spec.in[KS_GATHER_INDICES].offset);
    for (int i = 0; i < ROWS; i++) table[i] = (float)(i + at);
    for (int64_t i = 0; i < count; i++) indices[i] = (int32_t)(i % ROWS);
    return indices;
}

static void run_all(int jobs)
{
    const int64_t until_ns = ks_now_ns() + 10000000000;
    while (jobs > 0) {
        ks_engine_launch(bed.engine);
        for (ks_job *done = ks_engine_collect(bed.engine); done; done = done->next) jobs--;
        assert_true(ks_now_ns() < until_ns);
    }
}

static void few_values_are_refused_before_the_launch(void **state)
{
    (void)state;
    ks_error error = {.status = KS_OK};
    int32_t *indices = begin_job(0, FEW);
    indices[FEW - 1] = ROWS;
    assert_int_equal(ks_engine_submit(bed.engine, &bed.jobs[0], &error), KS_RANGE);
    assert_non_null(strstr(error.text, "has 100 at place 9: it is outside [-100, 100)"));
    assert_int_equal(bed.jobs[0].state, KS_JOB_IDLE);
    assert_false(ks_engine_ready(bed.engine));
    indices[FEW - 1] = -ROWS;
    assert_int_equal(ks_engine_submit(bed.engine, &bed.jobs[0], &error), KS_OK);
    run_all(1);
    assert_int_equal(bed.jobs[0].status, KS_OK);
    assert_true(((float *)(void *)bed.jobs[0].slot->out)[FEW - 1] == 0.0f);
}

static void many_values_are_refused_by_the_launch(void **state)
{
    (void)state;
    ks_error error = {.status = KS_OK};
    for (int i = 0; i < JOBS; i++) {
        int32_t *indices = begin_job(i, MANY);
        if (i % 2) indices[MANY / 2] = -ROWS - i, indices[MANY - 1] = ROWS;
        assert_int_equal(ks_engine_submit(bed.engine, &bed.jobs[i], &error), KS_OK);
    }
    run_all(JOBS);
    for (int i = 0; i < JOBS; i++) {
        const ks_job *job = &bed.jobs[i];
        assert_int_equal(job->status, i % 2 ? KS_RANGE : KS_OK);
        assert_int_equal(bed.faults[i].status, i % 2 ? KS_RANGE : KS_OK);
        const float *out = (const float *)(const void *)job->slot->out;
        for (int at = 0; at < MANY && i % 2 == 0; at++) assert_true(out[at] == (float)(at % ROWS + i));
    }
    assert_non_null(strstr(bed.faults[1].text, "has -101 at place 2048"));
    assert_non_null(strstr(bed.faults[3].text, "has -103 at place 2048"));
    ks_engine_stats stats;
    ks_engine_read_stats(bed.engine, &stats);
    assert_int_equal(stats.errors_device, 0); /* a client's fault */
    assert_false(ks_engine_lost(bed.engine));
}

/* What a client may still write to is looked at by the launch alone, and so is what the host does not see. */
static void only_what_the_host_has_is_looked_at(void **state)
{
    (void)state;
    ks_error error = {.status = KS_OK};
    int32_t *indices = begin_job(0, FEW);
    indices[0] = ROWS;
    assert_int_equal(ks_values_check(&bed.jobs[0], &error), KS_RANGE);
    bed.jobs[0].slot->in_window[KS_GATHER_INDICES] = indices;
    assert_int_equal(ks_values_check(&bed.jobs[0], &error), KS_OK);
    bed.jobs[0].slot->in_window[KS_GATHER_INDICES] = NULL;
    unsigned char *in = bed.jobs[0].slot->in;
    bed.jobs[0].slot->in = NULL;
    assert_int_equal(ks_values_check(&bed.jobs[0], &error), KS_OK);
    bed.jobs[0].slot->in = in;
    bed.jobs[0].plan->spec.in[KS_GATHER_INDICES].fixed = indices;
    assert_int_equal(ks_values_check(&bed.jobs[0], &error), KS_OK);
    bed.jobs[0].plan->spec.in[KS_GATHER_INDICES].fixed = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(few_values_are_refused_before_the_launch, open_bed, close_bed),
        cmocka_unit_test_setup_teardown(many_values_are_refused_by_the_launch, open_bed, close_bed),
        cmocka_unit_test_setup_teardown(only_what_the_host_has_is_looked_at, open_bed, close_bed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
