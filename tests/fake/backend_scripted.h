/* A device that does what a test says: lanes hold their batch until it is released, graphs can be made or refused, and
 * every launch is written down. Slots are the CPU's; released work is done by the op's reference. One thread. */
#ifndef KS_BACKEND_SCRIPTED_H
#define KS_BACKEND_SCRIPTED_H
#include <stdlib.h>

#include "kernserve/backend.h"
#include "cpu/reference.h"

enum { SCRIPT_LOG = 256 };

struct ks_lane {
    int index;
    ks_batch *batch;
    bool released;
};

static struct {
    int batch_max;
    bool hold;         /* lanes wait for script_release; else work is done by the next poll */
    size_t large_from; /* in_bytes at which a plan is large */
    bool refuse_capture;
    bool mapped, joins; /* joins: families' plans stay such */
    bool blind;         /* blind: the device does not see the slots */
    bool lost;
    bool fails, loses; /* the next poll says that the work failed, or finds the device lost; neither says why */
    int64_t slow_ns;   /* of the copies' times: a clock that runs ahead */
    bool untimed;      /* the kernels' time is not known */
    int captures, forgets, launches;
    struct {
        const ks_plan *plan;
        int lane, count, rows;
        ks_graph graph;
    } log[SCRIPT_LOG];
    ks_lane *lanes[KS_LANES_MAX];
} script;

static ks_status script_open(const ks_limits *limits, ks_device **out, ks_error *error)
{
    (void)limits, (void)error;
    *out = (ks_device *)&script;
    return KS_OK;
}

static void script_close(ks_device **device)
{
    *device = NULL;
}

static void script_info(const ks_device *device, ks_device_info *out)
{
    (void)device;
    *out = (ks_device_info){.backend = "scripted", .polled = true};
}

static ks_status script_slot_init(ks_device *device, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
                                  ks_error *error)
{
    const ks_status status = ks_backend_cpu->slot_init(device, in_bytes, out_bytes, pinned, slot, error);
    if (script.blind) slot->in_device = slot->out_device = NULL;
    return status;
}

static void script_slot_fini(ks_device *device, ks_slot *slot)
{
    ks_backend_cpu->slot_fini(device, slot);
}

static ks_status script_lane_open(ks_device *device, int index, int wake_fd, ks_lane **out, ks_error *error)
{
    (void)device, (void)wake_fd, (void)error;
    *out = script.lanes[index] = calloc(1, sizeof **out);
    (*out)->index = index;
    return KS_OK;
}

static void script_lane_close(ks_lane **lane)
{
    script.lanes[(*lane)->index] = NULL;
    free(*lane);
    *lane = NULL;
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
    plan->captured[lane->index] |= 1u << bucket;
    return KS_OK;
}

static void script_forget(ks_lane *lane, ks_plan *plan)
{
    script.forgets++;
    plan->captured[lane->index] = 0;
}

static ks_status script_launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    (void)error;
    lane->batch = batch;
    lane->released = !script.hold;
    batch->graph = batch->plan->captured[lane->index] >> ks_batch_bucket(batch) & 1 ? KS_GRAPH_HIT : KS_GRAPH_MISS;
    if (script.launches < SCRIPT_LOG) {
        script.log[script.launches].plan = batch->plan;
        script.log[script.launches].lane = lane->index;
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
    ks_spec spec = batch->plan->spec;
    const void *in[KS_INPUTS_MAX] = {NULL};
    if (batch->plan->join_rows) {
        spec.in[0].dims[0] = spec.out[0].dims[0] = batch->rows[job];
        spec.out[0].size_bytes = ks_plan_job_out(batch->plan, batch->rows[job]);
    }
    for (int k = ks_next_input(&spec, -1); k >= 0; k = ks_next_input(&spec, k))
        in[k] = spec.in[k].fixed ? spec.in[k].fixed : batch->slots[job]->in + spec.in[k].offset;
    void *scratch = malloc(ks_cpu_scratch_bytes(&spec) + 1);
    ks_cpu_reference(&spec, in, (void *const[]){batch->slots[job]->out}, scratch);
    free(scratch);
}

static ks_poll script_poll(ks_lane *lane, ks_error *error)
{
    (void)error;
    if (!lane->released) return KS_RUNNING;
    script.lost = script.lost || script.loses;
    if (script.fails || script.loses) return KS_FAILED;
    ks_batch *batch = lane->batch;
    for (int i = 0; i < batch->count; i++) script_work(batch, i);
    batch->h2d_ns = 40 + script.slow_ns;
    batch->compute_ns = 20;
    batch->d2h_ns = 30;
    batch->kernel_ns = script.untimed ? -1 : 12;
    lane->batch = NULL;
    return KS_DONE;
}

static bool script_failed(const ks_device *device)
{
    (void)device;
    return script.lost;
}

static inline void script_release(int lane)
{
    script.lanes[lane]->released = true;
}

static const ks_backend backend_scripted = {
    .name = "scripted",
    .open = script_open,
    .close = script_close,
    .info = script_info,
    .slot_init = script_slot_init,
    .slot_fini = script_slot_fini,
    .lane_open = script_lane_open,
    .lane_close = script_lane_close,
    .prepare = script_prepare,
    .capture = script_capture,
    .forget = script_forget,
    .launch = script_launch,
    .poll = script_poll,
    .failed = script_failed,
};
#endif
