#include "fake/backend_scripted.h"

#include <stdlib.h>

#include "cpu/reference.h"
#include "fake/fake_backend.h"
#include "kernserve/backends.h"

typedef struct lane_script {
    ks_batch *batch;
    bool released;
} lane_script;

script_state script;

static void script_info(const ks_device *device, ks_device_info *out)
{
    (void)device;
    *out = (ks_device_info){.backend = "scripted", .polled = true, .chain_rows = script.chain_rows};
}

static ks_status script_slot_init(ks_device *device, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
                                  ks_error *error)
{
    const ks_status status = fake_base->slot_init(device, in_bytes, out_bytes, pinned, slot, error);
    if (script.blind) slot->in_device = slot->out_device = NULL;
    return status;
}

static ks_status script_lane_open(ks_device *device, int index, int wake_fd, ks_lane **out, ks_error *error)
{
    const ks_status status = fake_base->lane_open(device, index, wake_fd, out, error);
    if (status == KS_OK) script.lanes[index] = *out;
    return status;
}

static void script_lane_close(ks_lane **lane)
{
    script.lanes[fake_lane_index(*lane)] = NULL;
    fake_base->lane_close(lane);
}

static ks_status script_prepare(ks_device *device, ks_plan *plan, ks_error *error)
{
    (void)device, (void)error;
    plan->mapped = script.mapped;
    plan->graphs = true;
    plan->large = script.large_from && plan->in_bytes >= script.large_from;
    plan->batch_max = script.batch_max;
    if (!script.joins) plan->join_rows = 0;
    return KS_OK;
}

static ks_status script_capture(ks_lane *lane, ks_plan *plan, int bucket, ks_error *error)
{
    script.captures++;
    if (script.refuse_capture) return ks_fail(error, KS_MEMORY, "the script refuses to capture");
    plan->captured[fake_lane_index(lane)] |= 1u << bucket;
    return KS_OK;
}

static void script_forget(ks_lane *lane, ks_plan *plan)
{
    script.forgets++;
    plan->captured[fake_lane_index(lane)] = 0;
}

static ks_status script_launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    (void)error;
    const int index = fake_lane_index(lane);
    *(lane_script *)fake_lane_state(lane) = (lane_script){.batch = batch, .released = !script.hold};
    batch->graph = batch->plan->captured[index] >> ks_batch_bucket(batch) & 1 ? KS_GRAPH_HIT : KS_GRAPH_MISS;
    if (script.launches < SCRIPT_LOG) {
        script.log[script.launches].plan = batch->plan;
        script.log[script.launches].lane = index;
        script.log[script.launches].count = batch->count;
        script.log[script.launches].rows = batch->rows_sum;
        script.log[script.launches].graph = batch->graph;
    }
    script.launches++;
    return KS_OK;
}

/* Of a family's plan with the job's rows. */
static void script_work(const ks_batch *batch, int job)
{
    ks_spec spec;
    const void *in[KS_INPUTS_MAX] = {NULL};
    if (batch->plan->join_rows)
        ks_plan_spec_of(batch->plan, batch->rows[job], &spec);
    else
        ks_spec_copy(&spec, &batch->plan->spec);
    for (int k = ks_next_input(&spec, -1); k >= 0; k = ks_next_input(&spec, k))
        in[k] = spec.in[k].fixed ? spec.in[k].fixed : batch->slots[job]->in + spec.in[k].offset;
    void *scratch = malloc(ks_cpu_scratch_bytes(&spec) + 1);
    ks_cpu_reference(&spec, in, (void *const[]){batch->slots[job]->out}, scratch);
    free(scratch);
}

static ks_poll script_poll(ks_lane *lane, ks_error *error)
{
    (void)error;
    const lane_script *state = fake_lane_state(lane);
    if (!state->released) return KS_RUNNING;
    script.lost = script.lost || script.loses;
    if (script.fails || script.loses) return KS_FAILED;
    ks_batch *batch = state->batch;
    for (int i = 0; i < batch->count; i++) script_work(batch, i);
    batch->h2d_ns = 40 + script.slow_ns;
    batch->compute_ns = 20;
    batch->d2h_ns = 30;
    batch->kernel_ns = script.untimed ? -1 : 12;
    return KS_DONE;
}

static bool script_failed(const ks_device *device)
{
    (void)device;
    return script.lost;
}

void script_release(int lane)
{
    ((lane_script *)fake_lane_state(script.lanes[lane]))->released = true;
}

const ks_backend *scripted_backend(void)
{
    static const fake_overrides overrides = {.calls = {.name = "scripted",
                                                       .info = script_info,
                                                       .slot_init = script_slot_init,
                                                       .lane_open = script_lane_open,
                                                       .lane_close = script_lane_close,
                                                       .prepare = script_prepare,
                                                       .capture = script_capture,
                                                       .forget = script_forget,
                                                       .launch = script_launch,
                                                       .poll = script_poll,
                                                       .failed = script_failed},
                                             .lane_bytes = sizeof(lane_script)};
    return fake_backend(ks_backend_cpu, &overrides);
}
