/* Chains go on the first lanes alone where that is asked for, other work on all; and their graphs are made there. The device is scripted. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "fake/backend_scripted.h"
#include "kernserve/chain.h"

extern const ks_op ks_op_map;

enum { LANES = 4, JOBS = 8, SIDE = 4096, COUNT = 8 };

static ks_chain_node node = {
    .name = "only", .op = &ks_op_map, .in = {0, -1, -1, -1, -1, -1, -1, -1}, .out = {1, -1, -1, -1}, .outputs = 1};
static ks_chain chain = {.op = {.name = "chained", .inputs_count = 1, .resolve = ks_chain_resolve, .chain = &chain},
                         .nodes = 1,
                         .made = 1,
                         .outputs = 1,
                         .output = {1},
                         .words = 1,
                         .node = &node};

static struct {
    ks_device *device;
    ks_budget *budget;
    ks_engine *engine;
    ks_job jobs[JOBS];
    ks_error faults[JOBS];
} bed;

static void open_bed(int model_lanes)
{
    static const char *const outputs[] = {"y"};
    ks_error error;
    memset(&bed, 0, sizeof bed);
    memset(&script, 0, sizeof script);
    script.batch_max = 1;
    script.hold = script.mapped = true;
    chain.in[0] = (ks_chain_tensor){.name = "x", .dtype = KS_FP32, .rank = 1, .dims = {-1}};
    chain.out[0] = (ks_chain_tensor){.name = "y", .rank = -1};
    chain.op.inputs[0] = (ks_input){.name = "x", .role = "x", .dtypes = KS_DTYPE_BIT(KS_FP32)};
    chain.op.outputs = outputs;
    for (int i = 0; i < node.op->params_count; i++) node.params[i] = node.op->params[i].preset;
    bed.budget = ks_budget_open(1 << 20);
    const ks_limits limits = {.lanes = LANES};
    assert_int_equal(scripted_backend()->open(&limits, &bed.device, &error), KS_OK);
    const ks_engine_options options = {.backend = scripted_backend(),
                                       .device = bed.device,
                                       .budget = bed.budget,
                                       .lanes = LANES,
                                       .model_lanes = model_lanes,
                                       .classes = 1,
                                       .size_class = {{.side_bytes = SIDE, .count = JOBS}},
                                       .pinned = true,
                                       .plan_bytes = 1 << 20,
                                       .queue_max = JOBS,
                                       .stall_ns = INT64_C(60000000000),
                                       .wake_fd = -1};
    assert_int_equal(ks_engine_open(&options, &bed.engine, &error), KS_OK);
}

static ks_spec spec_of(const ks_op *op)
{
    ks_error error = {0};
    ks_spec spec;
    ks_spec_init(&spec, op);
    spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {COUNT}};
    if (op->resolve(&spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(&spec);
    return spec;
}

static void submit(int i, const ks_op *op)
{
    ks_error error;
    ks_job *job = &bed.jobs[i];
    const ks_spec spec = spec_of(op);
    job->fault = &bed.faults[i];
    assert_int_equal(ks_engine_plan(bed.engine, &spec, &job->plan, &error), KS_OK);
    assert_int_equal(ks_engine_slot(bed.engine, job->plan->in_bytes, job->plan->out_bytes, &job->slot, &error), KS_OK);
    memset(job->slot->in, 0, job->plan->in_bytes);
    assert_int_equal(ks_engine_submit(bed.engine, job, &error), KS_OK);
}

static unsigned lanes_of(const ks_op *op)
{
    unsigned lanes = 0;
    for (int i = 0; i < script.launches; i++)
        if (script.log[i].plan->spec.op == op) lanes |= 1u << script.log[i].lane;
    return lanes;
}

/* The lanes that chains have gone on. What runs has no reference that the script could do it by. */
static unsigned end_all(int jobs)
{
    int done = 0;
    script.fails = true;
    for (int turn = 0; turn < JOBS && done < jobs; turn++) {
        for (int lane = 0; lane < LANES; lane++) script_release(lane);
        for (ks_job *job = ks_engine_collect(bed.engine); job; job = job->next) done++;
        ks_engine_launch(bed.engine);
    }
    assert_int_equal(done, jobs);
    const unsigned lanes = lanes_of(&chain.op);
    for (int i = 0; i < jobs; i++) {
        ks_engine_slot_release(bed.engine, &bed.jobs[i].slot);
        ks_engine_plan_release(bed.engine, &bed.jobs[i].plan);
    }
    ks_engine_close(&bed.engine);
    scripted_backend()->close(&bed.device);
    ks_budget_close(&bed.budget);
    return lanes;
}

static void chains_go_on_the_first_lanes(void **state)
{
    (void)state;
    open_bed(2);
    for (int i = 0; i < 3; i++) submit(i, &chain.op);
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 2);
    assert_int_equal(lanes_of(&chain.op), 3);
    for (int i = 3; i < 5; i++) submit(i, &ks_op_map); /* past the chain that waits */
    ks_engine_launch(bed.engine);
    assert_int_equal(script.launches, 4);
    assert_int_equal(lanes_of(&ks_op_map), 12);
    assert_int_equal(bed.jobs[2].state, KS_JOB_READY);
    assert_int_equal(end_all(5), 3);
}

static void without_a_number_they_go_on_all(void **state)
{
    (void)state;
    static const int numbers[] = {0, LANES, KS_LANES_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        open_bed(numbers[i]);
        for (int job = 0; job < LANES; job++) submit(job, &chain.op);
        ks_engine_launch(bed.engine);
        assert_int_equal(lanes_of(&chain.op), (1 << LANES) - 1);
        end_all(LANES);
    }
}

static void graphs_are_made_where_chains_go(void **state)
{
    (void)state;
    open_bed(2);
    const ks_spec spec = spec_of(&chain.op);
    assert_false(ks_engine_make_ready(bed.engine, &spec));
    while (ks_engine_capture(bed.engine)) {
    }
    assert_int_equal(script.captures, 2);
    assert_true(ks_engine_make_ready(bed.engine, &spec));
    end_all(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chains_go_on_the_first_lanes),
                                       cmocka_unit_test(without_a_number_they_go_on_all),
                                       cmocka_unit_test(graphs_are_made_where_chains_go)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
