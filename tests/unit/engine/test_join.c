/* Joined rows in the engine: jobs of one family share launches, whatever their rows, and everything else is as it was. The device is
 * scripted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake/backend_scripted.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "kernserve/chain.h"
#include "ops/matmul.h"

extern const ks_op ks_op_matmul;

enum { JOBS = 64, K = 8, N = 5, SIDE = 65536, ALL_ROWS = 256 };

static struct {
    const ks_backend *backend;
    ks_device *device;
    ks_budget *budget;
    ks_engine *engine;
    ks_job jobs[JOBS];
    ks_error faults[JOBS];
    int rows[JOBS];
    float weights[2][K * N], bias[2][N];
} bed;

static int chain_rows_next; /* of the device of the next bed */

static void open_bed(int lanes, int join_rows)
{
    ks_error error;
    memset(&bed, 0, sizeof bed);
    memset(&script, 0, sizeof script);
    script.chain_rows = chain_rows_next;
    script.batch_max = KS_BATCH_MAX;
    script.hold = script.joins = script.mapped = true;
    bed.budget = ks_budget_open(1 << 20);
    for (int i = 0; i < 2 * K * N; i++) bed.weights[i / (K * N)][i % (K * N)] = (float)(i % 7 - 3);
    for (int i = 0; i < 2 * N; i++) bed.bias[i / N][i % N] = (float)i;
    const ks_limits limits = {.lanes = lanes};
    bed.backend = scripted_backend();
    assert_int_equal(bed.backend->open(&limits, &bed.device, &error), KS_OK);
    const ks_engine_options options = {.backend = bed.backend,
                                       .device = bed.device,
                                       .budget = bed.budget,
                                       .lanes = lanes,
                                       .classes = 1,
                                       .size_class = {{.side_bytes = SIDE, .count = JOBS}},
                                       .pinned = true,
                                       .plan_bytes = 1 << 20,
                                       .queue_max = JOBS,
                                       .stall_ns = INT64_C(60000000000),
                                       .join_rows = join_rows,
                                       .wake_fd = -1};
    assert_int_equal(ks_engine_open(&options, &bed.engine, &error), KS_OK);
}

static void close_bed(void)
{
    for (int i = 0; i < JOBS; i++) {
        if (bed.jobs[i].slot) ks_engine_slot_release(bed.engine, &bed.jobs[i].slot);
        if (bed.jobs[i].plan) ks_engine_plan_release(bed.engine, &bed.jobs[i].plan);
    }
    ks_engine_close(&bed.engine);
    bed.backend->close(&bed.device);
    assert_int_equal(ks_budget_used(bed.budget), 0);
    ks_budget_close(&bed.budget);
}

static ks_engine_stats stats(void)
{
    ks_engine_stats read;
    ks_engine_read_stats(bed.engine, &read);
    return read;
}

/* rows x K times a weight that is fixed; bias: 0 none, 1 fixed, 2 in the slot. */
static ks_spec spec_of(int rows, const float *weight, int bias)
{
    ks_error error;
    ks_spec spec;
    memset(&spec, 0, sizeof spec);
    ks_spec_init(&spec, &ks_op_matmul);
    spec.given = bias ? 7 : 3;
    spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {rows, K}};
    spec.in[1] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {K, N}, .fixed = weight};
    spec.in[2] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {N}, .fixed = bias == 1 ? bed.bias[0] : NULL};
    assert_int_equal(spec.op->resolve(&spec, &error), KS_OK);
    ks_spec_layout(&spec);
    return spec;
}

static ks_job *submit_spec(int i, const ks_spec *spec)
{
    ks_error error;
    ks_job *job = &bed.jobs[i];
    job->fault = &bed.faults[i];
    job->fault->status = KS_OK;
    bed.rows[i] = (int)spec->in[0].dims[0];
    assert_int_equal(ks_engine_plan(bed.engine, spec, &job->plan, &error), KS_OK);
    job->rows = ks_job_rows(job->plan, spec);
    assert_int_equal(ks_engine_slot(bed.engine, ks_spec_in_bytes(spec), ks_spec_out_bytes(spec), &job->slot, &error),
                     KS_OK);
    for (int k = 0; k < bed.rows[i] * K; k++) ((float *)job->slot->in)[k] = (float)(i + k % 5);
    assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_OK);
    return job;
}

static ks_job *submit(int i, int rows)
{
    const ks_spec spec = spec_of(rows, bed.weights[0], 0);
    return submit_spec(i, &spec);
}

static void check_response(int i)
{
    const ks_job *job = &bed.jobs[i];
    assert_int_equal(job->state, KS_JOB_DONE);
    assert_int_equal(job->status, KS_OK);
    for (int at = 0; at < bed.rows[i] * N; at++) {
        float sum = 0;
        for (int k = 0; k < K; k++) sum += (float)(i + (at / N * K + k) % 5) * bed.weights[0][k * N + at % N];
        assert_true(((const float *)job->slot->out)[at] == sum);
    }
}

static int collect(void)
{
    int count = 0;
    for (ks_job *job = ks_engine_collect(bed.engine); job; job = job->next) count++;
    return count;
}

/* --- who joins -------------------------------------------------------------------------------------------------------- */

static void jobs_of_any_rows_go_out_together(void **state)
{
    (void)state;
    open_bed(2, ALL_ROWS);
    const int rows[] = {1, 7, 16, 1, 30};
    for (int i = 0; i < 5; i++) submit(i, rows[i]);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 1);
    assert_int_equal(script.log[0].count, 5);
    assert_int_equal(script.log[0].rows, 55);
    script_release(script.log[0].lane);
    assert_int_equal(collect(), 5);
    for (int i = 0; i < 5; i++) {
        check_response(i);
        assert_ptr_equal(bed.jobs[i].plan, bed.jobs[0].plan);
        assert_int_equal(bed.jobs[i].batch_count, 5);
        assert_int_equal(bed.jobs[i].batch_rows, 55);
    }
    assert_int_equal(stats().joined_requests, 5);
    assert_int_equal(stats().rows_sum, 55);
    assert_int_equal(stats().rows_bucket[6], 1); /* 33 to 64 */
    assert_int_equal(stats().plans, 1);
    close_bed();
}

static void one_alone_has_the_familys_plan(void **state)
{
    (void)state;
    open_bed(1, ALL_ROWS);
    submit(0, 3);
    ks_engine_launch(bed.engine);
    script_release(0);
    assert_int_equal(collect(), 1);
    check_response(0);
    assert_int_equal(bed.jobs[0].plan->join_rows, ALL_ROWS);
    assert_int_equal(bed.jobs[0].plan->spec.in[0].dims[0], ALL_ROWS);
    assert_true(bed.jobs[0].plan->untunable);
    assert_int_equal(stats().joined_requests, 0);
    assert_int_equal(stats().rows_bucket[2], 1);
    assert_string_equal(ks_engine_path(bed.engine, bed.jobs[0].plan), "joined");
    close_bed();
}

static void what_does_not_fit_goes_first_in_the_next_launch(void **state)
{
    (void)state;
    open_bed(2, 64);
    submit(0, 60);
    submit(1, 8); /* does not fit */
    submit(2, 4);
    submit(3, 1);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 2);
    assert_int_equal(script.log[0].rows, 64);
    assert_int_equal(script.log[0].count, 2);
    assert_int_equal(script.log[1].rows, 9);
    assert_int_equal(script.log[1].count, 2);
    script_release(0), script_release(1);
    assert_int_equal(collect(), 4);
    for (int i = 0; i < 4; i++) check_response(i);
    close_bed();
}

static void jobs_without_a_common_operand_do_not_join(void **state)
{
    (void)state;
    open_bed(8, ALL_ROWS);
    ks_spec specs[] = {spec_of(2, bed.weights[0], 0),
                       spec_of(2, bed.weights[1], 0),
                       spec_of(2, bed.weights[0], 1),
                       spec_of(2, bed.weights[0], 2),
                       spec_of(ALL_ROWS + 1, bed.weights[0], 0),
                       spec_of(2, NULL, 0),
                       spec_of(2, bed.weights[0], 0)};
    enum { SPECS = sizeof specs / sizeof *specs };
    specs[6].given |= 1u << KS_MATMUL_RESIDUAL; /* which has a row for each of INPUT0's */
    specs[6].in[KS_MATMUL_RESIDUAL] = specs[6].out[0];
    specs[6].in[KS_MATMUL_RESIDUAL].fixed = bed.bias;
    assert_int_equal(specs[6].op->resolve(&specs[6], &(ks_error){.text = ""}), KS_OK);
    ks_spec_layout(&specs[6]);
    for (int i = 0; i < SPECS; i++) submit_spec(i, &specs[i]);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, SPECS);
    for (int i = 0; i < SPECS; i++) assert_int_equal(bed.jobs[i].plan->join_rows > 0, i < 3);
    for (int i = 0; i < SPECS; i++) script_release(script.log[i].lane);
    assert_int_equal(collect(), SPECS);
    check_response(0);
    check_response(4);
    close_bed();
}

static void other_parameters_are_another_family(void **state)
{
    (void)state;
    open_bed(4, ALL_ROWS);
    ks_error error;
    ks_spec scaled = spec_of(2, bed.weights[0], 0), turned = scaled;
    scaled.params[2].d = 2;
    turned.params[0].i = 1; /* INPUT0's first dimension is K then */
    turned.in[0].dims[0] = K, turned.in[0].dims[1] = 2;
    assert_int_equal(turned.op->resolve(&turned, &error), KS_OK);
    submit(0, 2);
    submit_spec(1, &scaled);
    submit_spec(2, &turned);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 3);
    assert_true(bed.jobs[1].plan->join_rows > 0);
    assert_int_equal(bed.jobs[2].plan->join_rows, 0);
    for (int i = 0; i < 3; i++) script_release(script.log[i].lane);
    assert_int_equal(collect(), 3);
    close_bed();
}

static void with_one_row_nothing_is_joined(void **state)
{
    (void)state;
    open_bed(2, 1);
    submit(0, 1);
    submit(1, 2);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 2);
    assert_int_equal(bed.jobs[0].plan->join_rows, 0);
    script_release(0), script_release(1);
    assert_int_equal(collect(), 2);
    check_response(0);
    check_response(1);
    close_bed();
}

static void a_device_that_does_not_join_runs_specs_as_they_are(void **state)
{
    (void)state;
    open_bed(2, ALL_ROWS);
    script.joins = false;
    submit(0, 3);
    submit(1, 3);
    submit(2, 5);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 2);
    assert_int_equal(script.log[0].count, 2);
    assert_int_equal(bed.jobs[0].plan->spec.in[0].dims[0], 3);
    script_release(0), script_release(1);
    assert_int_equal(collect(), 3);
    for (int i = 0; i < 3; i++) check_response(i);
    close_bed();
}

/* Slots hold the family's rows, or it has fewer. */
static void wide_rows_make_a_lower_family(void **state)
{
    (void)state;
    open_bed(1, ALL_ROWS);
    ks_error error;
    ks_plan *plan;
    float *weight = calloc(1024 * 2, sizeof *weight);
    ks_spec spec;
    memset(&spec, 0, sizeof spec);
    ks_spec_init(&spec, &ks_op_matmul);
    spec.given = 3;
    spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {2, 1024}};
    spec.in[1] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {1024, 2}, .fixed = weight};
    assert_int_equal(spec.op->resolve(&spec, &error), KS_OK);
    ks_spec_layout(&spec);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &plan, &error), KS_OK);
    assert_int_equal(plan->join_rows, SIDE / 4096);
    ks_engine_plan_release(bed.engine, &plan);
    close_bed();
    free(weight);
}

/* --- chains ----------------------------------------------------------------------------------------------------------- */

/* y = softmax(x), of rows that are apart. */
static ks_chain_node only;
static ks_chain chain;

static void make_chain(int64_t max_batch)
{
    only = (ks_chain_node){.name = "only", .op = ks_op_find("softmax", 7), .inputs = 1, .outputs = 1};
    memset(only.in, -1, sizeof only.in);
    memset(only.out, -1, sizeof only.out);
    only.in[0] = 0;
    only.out[0] = 1;
    ks_params_init(only.op, only.params, only.lists);
    chain = (ks_chain){.op = {.name = "chain",
                              .inputs_count = 1,
                              .inputs = {{.name = "x", .role = "x", .dtypes = KS_DTYPE_BIT(KS_FP32)}},
                              .resolve = ks_chain_resolve,
                              .joins = ks_chain_joins,
                              .chain = &chain},
                       .nodes = 1,
                       .made = 1,
                       .in = {{.name = "x", .dtype = KS_FP32, .rank = 3, .dims = {KS_DIM_WORD, 2, K}}},
                       .out = {{.name = "y", .rank = -1}},
                       .outputs = 1,
                       .output = {1},
                       .max_batch = max_batch,
                       .batched = {true, true},
                       .words = 1,
                       .node = &only};
}

/* Rows of its plan's family; 0: it has a plan of its own. */
static int family_of(int rows, const float *fixed)
{
    ks_error error;
    ks_spec spec;
    ks_plan *plan;
    memset(&spec, 0, sizeof spec);
    ks_spec_init(&spec, &chain.op);
    spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 3, .dims = {rows, 2, K}, .fixed = fixed};
    assert_int_equal(ks_chain_resolve(&spec, &error), KS_OK);
    ks_spec_layout(&spec);
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &plan, &error), KS_OK);
    const int most = plan->join_rows;
    assert_int_equal(plan->spec.in[0].dims[0], most ? most : rows);
    assert_int_equal(plan->spec.out[0].dims[0], most ? most : rows);
    assert_int_equal(ks_job_rows(plan, &spec), most ? rows : 0);
    ks_engine_plan_release(bed.engine, &plan);
    return most;
}

static void jobs_of_a_chain_of_few_rows_have_a_family(void **state)
{
    (void)state;
    const float resident[2 * K] = {0};
    open_bed(1, ALL_ROWS);
    make_chain(48);
    assert_int_equal(family_of(1, NULL), 0); /* the device joins none */
    close_bed();
    chain_rows_next = 4;
    open_bed(1, ALL_ROWS);
    assert_int_equal(family_of(1, NULL), 48);
    assert_int_equal(family_of(4, NULL), 48);
    assert_int_equal(family_of(5, NULL), 0);
    assert_int_equal(family_of(1, resident), 0);
    make_chain(2);
    chain.in[0].dims[2] = KS_DIM_ANY; /* another free length */
    assert_int_equal(family_of(1, NULL), 0);
    ks_engine_forget_op(bed.engine, &chain.op);
    make_chain(0);
    assert_int_equal(family_of(1, NULL), 0);
    ks_engine_forget_op(bed.engine, &chain.op);
    make_chain(1);
    assert_int_equal(family_of(1, NULL), 0);
    ks_engine_forget_op(bed.engine, &chain.op);
    make_chain(2);
    assert_int_equal(family_of(2, NULL), 2);
    ks_engine_forget_op(bed.engine, &chain.op);
    close_bed();
    chain_rows_next = 0;
}

/* --- as any job ------------------------------------------------------------------------------------------------------- */

static void cancelled_and_late_jobs_are_left_out(void **state)
{
    (void)state;
    open_bed(1, ALL_ROWS);
    submit(0, 4);
    ks_job *gone = submit(1, 100);
    ks_job *late = submit(2, 9);
    submit(3, 2);
    late->deadline_ns = 1;
    assert_true(ks_engine_cancel(bed.engine, gone));
    ks_engine_launch(bed.engine);
    assert_int_equal(script.log[0].count, 2);
    assert_int_equal(script.log[0].rows, 6);
    assert_false(ks_engine_cancel(bed.engine, &bed.jobs[0]));
    script_release(0);
    assert_int_equal(collect(), 3);
    assert_int_equal(late->status, KS_DEADLINE);
    check_response(0);
    check_response(3);
    close_bed();
}

static void priority_and_deadline_order_the_launches(void **state)
{
    (void)state;
    open_bed(1, 16);
    submit(0, 16);
    ks_engine_launch(bed.engine);
    submit(1, 10);
    submit(2, 10);
    ks_job *first = &bed.jobs[3];
    const ks_spec spec = spec_of(8, bed.weights[0], 0);
    first->priority = 1;
    submit_spec(3, &spec);
    assert_ptr_equal(first->fault, &bed.faults[3]);
    script_release(0);
    assert_int_equal(collect(), 1);
    ks_engine_launch(bed.engine); /* 8 rows, and neither of 10 has room */
    assert_int_equal(script.log[1].rows, 8);
    assert_int_equal(first->state, KS_JOB_RUNNING);
    script_release(0);
    assert_int_equal(collect(), 1);
    ks_engine_launch(bed.engine);
    assert_int_equal(bed.jobs[1].state, KS_JOB_RUNNING);
    assert_int_equal(bed.jobs[2].state, KS_JOB_READY);
    script_release(0);
    assert_int_equal(collect(), 1);
    ks_engine_launch(bed.engine);
    script_release(0);
    assert_int_equal(collect(), 1);
    for (int i = 0; i < 4; i++) check_response(i);
    close_bed();
}

static void slots_that_the_device_does_not_see_go_alone(void **state)
{
    (void)state;
    open_bed(3, ALL_ROWS);
    submit(0, 2);
    ks_job *unseen = submit(1, 3);
    void *seen = unseen->slot->in_device;
    unseen->slot->in_device = NULL;
    submit(2, 4);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 2);
    assert_int_equal(script.log[0].rows, 6);
    assert_int_equal(script.log[1].rows, 3);
    unseen->slot->in_device = seen;
    script_release(script.log[0].lane), script_release(script.log[1].lane);
    assert_int_equal(collect(), 3);
    for (int i = 0; i < 3; i++) check_response(i);
    close_bed();
}

static void a_failed_launch_fails_all_its_jobs_and_no_other(void **state)
{
    (void)state;
    open_bed(1, 8);
    for (int i = 0; i < 3; i++) submit(i, 4);
    ks_engine_launch(bed.engine);
    script.fails = true;
    script_release(0);
    assert_int_equal(collect(), 2);
    script.fails = false;
    assert_int_equal(bed.jobs[0].status, KS_DEVICE);
    assert_int_equal(bed.jobs[1].status, KS_DEVICE);
    ks_engine_launch(bed.engine);
    script_release(0);
    assert_int_equal(collect(), 1);
    check_response(2);
    close_bed();
}

/* A graph serves a bucket of rows, whatever jobs they come from. */
static void graphs_are_those_of_rows(void **state)
{
    (void)state;
    open_bed(1, ALL_ROWS);
    script.hold = false;
    for (int i = 0; i < 3; i++) submit(i, 20);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.log[0].graph, KS_GRAPH_MISS);
    assert_int_equal(collect(), 3);
    assert_true(ks_engine_capture(bed.engine));
    assert_int_equal(bed.jobs[0].plan->captured[0], 1u << 6);
    submit(3, 33);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.log[1].graph, KS_GRAPH_HIT);
    assert_int_equal(collect(), 1);
    close_bed();
}

static void more_jobs_than_a_launch_holds_take_two(void **state)
{
    (void)state;
    open_bed(1, ALL_ROWS);
    script.batch_max = 48;
    for (int i = 0; i < JOBS; i++) submit(i, 1);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.log[0].count, 48);
    script_release(0);
    assert_int_equal(collect(), 48);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.log[1].count, JOBS - 48);
    script_release(0);
    assert_int_equal(collect(), JOBS - 48);
    for (int i = 0; i < JOBS; i++) check_response(i);
    close_bed();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_of_any_rows_go_out_together),
        cmocka_unit_test(one_alone_has_the_familys_plan),
        cmocka_unit_test(what_does_not_fit_goes_first_in_the_next_launch),
        cmocka_unit_test(jobs_without_a_common_operand_do_not_join),
        cmocka_unit_test(other_parameters_are_another_family),
        cmocka_unit_test(with_one_row_nothing_is_joined),
        cmocka_unit_test(a_device_that_does_not_join_runs_specs_as_they_are),
        cmocka_unit_test(wide_rows_make_a_lower_family),
        cmocka_unit_test(jobs_of_a_chain_of_few_rows_have_a_family),
        cmocka_unit_test(cancelled_and_late_jobs_are_left_out),
        cmocka_unit_test(priority_and_deadline_order_the_launches),
        cmocka_unit_test(slots_that_the_device_does_not_see_go_alone),
        cmocka_unit_test(a_failed_launch_fails_all_its_jobs_and_no_other),
        cmocka_unit_test(graphs_are_those_of_rows),
        cmocka_unit_test(more_jobs_than_a_launch_holds_take_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
