/* The books of launches that ended well: counters for the metrics, records for the timeline; and of plans. */
#include <stdio.h>

#include "engine/engine_core.h"
#include "engine/plan_catalog.h"
#include "kernserve/chain.h"
#include "observe/timeline.h"

static uint64_t add_record(const ks_engine *engine, const ks_lane_use *use, int64_t total_ns)
{
    const ks_batch *batch = &use->batch;
    if (!engine->options.timeline) return 0;
    const ks_launch_record record = {.launched_ns = use->launched_ns,
                                     .h2d_ns = batch->h2d_ns,
                                     .compute_ns = total_ns - batch->h2d_ns - batch->d2h_ns,
                                     .d2h_ns = batch->d2h_ns,
                                     .issue_ns = use->issue_ns < total_ns ? use->issue_ns : total_ns,
                                     .plan = batch->plan->id,
                                     .lane = (uint64_t)(use - engine->lane) & 0xffff,
                                     .jobs = (uint64_t)batch->count & 0xffff,
                                     .graph = (uint64_t)batch->graph & 0xffffffff};
    return ks_timeline_add_launch(engine->options.timeline, &record);
}

static void add_step(const ks_engine *engine, const ks_lane_use *use, uint64_t launch, int step, int64_t begun_ns)
{
    const ks_plan *plan = use->batch.plan;
    ks_step_record record = {.begun_ns = begun_ns,
                             .ns = use->batch.step_ns[step],
                             .launch = launch,
                             .lane = (uint64_t)(use - engine->lane) & 0xffff,
                             .step = (uint64_t)step & 0xffff};
    snprintf(record.name, sizeof record.name, "%s", ks_step_name(plan->spec.op->chain, &plan->program->step[step]));
    ks_timeline_add_step(engine->options.timeline, &record);
}

/* Steps of a launch that has timed them. Their order and lengths are known; the last one ends when the kernels do. */
static void count_steps(const ks_engine *engine, const ks_lane_use *use, uint64_t launch, int64_t total_ns)
{
    ks_program *program = use->batch.plan->program;
    const int64_t *step_ns = use->batch.step_ns;
    int64_t sum_ns = 0;
    for (int i = 0; i < program->count; i++) {
        if (step_ns[i] < 0) return;
        sum_ns += step_ns[i];
    }
    int64_t at_ns = use->launched_ns + total_ns - use->batch.d2h_ns - sum_ns;
    for (int i = 0; i < program->count; at_ns += step_ns[i], i++) {
        program->step[i].timed_runs++;
        program->step[i].timed_ns += step_ns[i];
        if (engine->options.timeline && at_ns >= use->launched_ns) add_step(engine, use, launch, i, at_ns);
    }
}

static void count_rows(ks_engine *engine, const ks_batch *batch)
{
    ks_counter_add(KS_COUNTER(engine, rows_sum), (uint64_t)batch->rows_sum);
    ks_counter_add(KS_COUNTER(engine, rows_bucket) + ks_batch_bucket(batch), 1);
    if (batch->count > 1) ks_counter_add(KS_COUNTER(engine, joined_requests), (uint64_t)batch->count);
}

void ks_books_launch(ks_engine *engine, const ks_lane_use *use, int64_t total_ns)
{
    const ks_batch *batch = &use->batch;
    const ks_plan *plan = batch->plan;
    const uint64_t number = add_record(engine, use, total_ns);
    ks_catalog_count(plan, batch);
    if (batch->step_ns && plan->program) count_steps(engine, use, number, total_ns);
    if (plan->join_rows) count_rows(engine, batch);
    for (int i = 0; i < batch->count; i++) use->jobs[i]->launch = number;
    if (!plan->mapped || plan->moved) {
        ks_counter_add(KS_COUNTER(engine, h2d_bytes), (uint64_t)batch->count * plan->in_bytes);
        ks_counter_add(KS_COUNTER(engine, d2h_bytes), (uint64_t)batch->count * plan->out_bytes);
    }
    ks_counter_add(KS_COUNTER(engine, h2d_ns), (uint64_t)batch->h2d_ns);
    ks_counter_add(KS_COUNTER(engine, compute_ns), (uint64_t)(total_ns - batch->h2d_ns - batch->d2h_ns));
    ks_counter_add(KS_COUNTER(engine, d2h_ns), (uint64_t)batch->d2h_ns);
}

void ks_books_trial(ks_engine *engine, const ks_lane_use *use, int64_t total_ns)
{
    add_record(engine, use, total_ns);
}

void ks_books_plan(const ks_engine *engine, ks_plan *plan, const char *path)
{
    if (engine->options.timeline) {
        ks_plan_record record = {.text = ""};
        ks_spec_text(&plan->spec, record.text);
        ks_timeline_add_plan(engine->options.timeline, plan->id, &record);
    }
    if (!engine->options.catalog) return;
    const bool had = plan->place != NULL;
    ks_catalog_put(engine->options.catalog, plan, path);
    if (!had && plan->place) ks_plans_charge(engine->plans, plan, sizeof *plan->place);
}

ks_shard_timeline *ks_engine_timeline(const ks_engine *engine)
{
    return engine->options.timeline;
}

void ks_engine_count_plans(ks_engine *engine)
{
    ks_counter_set(KS_COUNTER(engine, plans), ks_plans_count(engine->plans));
    ks_counter_set(KS_COUNTER(engine, plan_bytes), ks_plans_bytes(engine->plans));
    ks_counter_set(KS_COUNTER(engine, plan_evictions), ks_plans_evictions(engine->plans));
}

const char *ks_engine_path(const ks_engine *engine, const ks_plan *plan)
{
    /* Ordinary memory is as good as a slot where the device is the CPU. */
    const bool slot = !engine->polls || ks_slots_hold(engine->slots, plan->in_bytes, plan->out_bytes);
    if (!slot && engine->backend->large) return "streamed";
    if (slot && plan->mapped && plan->join_rows) return "joined";
    return slot && plan->mapped && !plan->moved ? "mapped" : slot && !plan->large ? "copies" : "staged";
}
