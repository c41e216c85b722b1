/* How long the queue takes: the least time that a job waits for a lane, however little is known of the work before it.
 *
 * Bound      what is left of the launches under way, and the work of the jobs in front, shared by all lanes. A launch takes as long as
 *            those of its plan did. It takes no less than work of its kind (op and datatype) on a lane now has taken, which after T
 *            without an end takes T or more; where it has fewer operations, their share of it. Jobs that may go together count as one.
 * Interface  engine_core.h.
 * Threads    the shard's own. */
#include "engine/engine_core.h"

static bool runs_like(const ks_lane_use *use, const ks_spec *spec)
{
    const ks_batch *batch = &use->batch;
    return use->busy && !batch->trial && !batch->plan->join_rows && batch->plan->spec.op == spec->op &&
           batch->plan->spec.in[0].dtype == spec->in[0].dtype;
}

/* By the age of what is on the lanes, their mean; 0: nothing like it. */
static double aged_ns(const ks_engine *engine, const ks_spec *spec, int64_t now_ns)
{
    double ns = 0;
    int lanes = 0;
    for (int i = 0; i < engine->lanes; i++) {
        const ks_lane_use *use = &engine->lane[i];
        if (!runs_like(use, spec)) continue;
        const double flops = use->batch.count * use->batch.plan->spec.flops;
        ns += (double)(now_ns - use->launched_ns) * (spec->flops < flops ? spec->flops / flops : 1);
        lanes++;
    }
    return lanes > 0 ? ns / lanes : 0;
}

void ks_queue_wait_begin(ks_queue_wait *wait, const ks_engine *engine, int64_t now_ns)
{
    *wait = (ks_queue_wait){.engine = engine, .now_ns = now_ns};
    for (int i = 0; i < engine->lanes; i++) {
        const ks_lane_use *use = &engine->lane[i];
        if (!use->busy) continue;
        const int64_t left_ns = use->launched_ns + use->batch.plan->measured_ns - now_ns;
        if (left_ns > 0) wait->work_ns += (double)left_ns;
    }
}

void ks_queue_wait_add(ks_queue_wait *wait, const ks_job *job)
{
    const ks_plan *plan = job->plan;
    const double before_ns = (double)plan->measured_ns;
    const double now_ns = plan->join_rows ? 0 : aged_ns(wait->engine, &plan->spec, wait->now_ns);
    wait->work_ns += (before_ns > now_ns ? before_ns : now_ns) / plan->batch_max;
}

int64_t ks_queue_wait_ns(const ks_queue_wait *wait)
{
    return (int64_t)(wait->work_ns / wait->engine->lanes);
}
