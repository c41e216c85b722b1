/* One shard's engine: jobs come by submit, wait in the queue, are launched on lanes and handed out by collect.
 *
 * Owns       the lanes; slots and plans through slots.c and plan.c. planning.c finds a job's plan.
 * Interface  engine.h; engine_core.h for this folder and large/.
 * Limits     ks_engine_options: lanes, queue_max, slots, bytes of plans, the time without progress.
 * Threads    the shard's own; any for ks_engine_read_stats. */
#include "engine/engine_core.h"
#include "engine/join.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { STALL_LOOKS = 4 };                    /* at a lane's progress, within the time that may pass without any */
static const int64_t GAP_MAX_NS = 100000000; /* twice what a turn sleeps while work runs */
static const int64_t WAIT_MIN_NS =
    1000000000;                /* a shorter wait in the queue is waited out, however soon the deadline is */
static const double DOUBT = 2; /* so many times too late by that bound, and a job that waits already is refused */

/* --- open and close ----------------------------------------------------------------------------------------------- */

static ks_status open_parts(ks_engine *engine, ks_error *error)
{
    const ks_engine_options *options = &engine->options;
    ks_status status =
        ks_plans_open(options->plan_bytes, options->plans_max, ks_graphs_forget, engine, &engine->plans, error);
    if (status == KS_OK) status = ks_slots_open(options, &engine->slots, error);
    for (int i = 0; status == KS_OK && i < options->lanes; i++) {
        status = engine->backend->lane_open(engine->device, i, options->wake_fd, &engine->lane[i].lane, error);
        if (status == KS_OK) engine->lanes++;
    }
    return status;
}

ks_status ks_engine_open(const ks_engine_options *options, ks_engine **out, ks_error *error)
{
    assert(options->lanes >= 1 && options->lanes <= KS_LANES_MAX);
    assert(options->classes >= 0 && options->classes <= KS_SIZE_CLASSES_MAX);
    ks_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return ks_fail(error, KS_MEMORY, "no memory for an engine");
    engine->options = *options;
    engine->backend = options->backend;
    engine->device = options->device;
    engine->done_end = &engine->done;
    engine->gap_max_ns = options->stall_ns / STALL_LOOKS < GAP_MAX_NS ? options->stall_ns / STALL_LOOKS : GAP_MAX_NS;
    ks_queue_init(&engine->queue);
    ks_device_info info;
    engine->backend->info(engine->device, &info);
    engine->polls = info.polled;
    engine->options.chain_rows = info.chain_rows;
    const ks_status status = open_parts(engine, error);
    if (status != KS_OK) {
        ks_engine_close(&engine);
        return status;
    }
    ks_counter_set(KS_COUNTER(engine, lanes), (uint64_t)engine->lanes);
    ks_counter_set(KS_COUNTER(engine, slot_total_bytes), ks_slots_total_bytes(engine->slots));
    *out = engine;
    return KS_OK;
}

void ks_engine_close(ks_engine **engine)
{
    ks_engine *closing = *engine;
    if (!closing) return;
    *engine = NULL;
    assert(closing->busy == 0 && closing->queue.count == 0);
    ks_tune_drop(closing);
    ks_plans_close(&closing->plans);
    /* Lanes before slots: what a stalled lane still does, it does to a slot. */
    for (int i = 0; i < closing->lanes; i++) closing->backend->lane_close(&closing->lane[i].lane);
    ks_slots_close(&closing->slots);
    free(closing);
}

/* --- slots --------------------------------------------------------------------------------------------------------- */

ks_status ks_engine_slot(ks_engine *engine, size_t in_bytes, size_t out_bytes, ks_slot **out, ks_error *error)
{
    const ks_status status = ks_slots_take(engine->slots, in_bytes, out_bytes, out, error);
    ks_counter_set(KS_COUNTER(engine, slot_used_bytes), ks_slots_used_bytes(engine->slots));
    return status;
}

void ks_engine_slot_release(ks_engine *engine, ks_slot **slot)
{
    ks_slots_give(engine->slots, slot, engine->lost);
    ks_counter_set(KS_COUNTER(engine, slot_used_bytes), ks_slots_used_bytes(engine->slots));
}

bool ks_engine_slot_free(const ks_engine *engine, size_t in_bytes, size_t out_bytes)
{
    return ks_slots_free(engine->slots, in_bytes, out_bytes);
}

size_t ks_engine_small_bytes(const ks_engine *engine)
{
    return engine->options.classes > 0 ? engine->options.size_class[0].side_bytes : 0;
}

/* --- jobs in ------------------------------------------------------------------------------------------------------ */

void ks_engine_finish(ks_engine *engine, ks_job *job, ks_status status)
{
    job->state = KS_JOB_DONE;
    job->status = status;
    job->next = NULL;
    *engine->done_end = job;
    engine->done_end = &job->next;
}

/* One that never reached a lane. */
static void finish_unrun(ks_engine *engine, ks_job *job, ks_status status, int64_t now_ns)
{
    job->launched_ns = job->done_ns = now_ns;
    ks_engine_finish(engine, job, status);
}

static void count_queue(ks_engine *engine)
{
    ks_counter_set(KS_COUNTER(engine, queue_depth), (uint64_t)engine->queue.count);
}

static void look_at_lanes(ks_engine *engine);

/* Where the queue is full: within a turn requests may come faster than the turn's end launches them, so lanes may be free
 * or done. If they are not, the job that ranks last is refused, be it the new one. */
static bool make_room(ks_engine *engine, const ks_job *job)
{
    look_at_lanes(engine);
    ks_engine_launch(engine);
    if (engine->queue.count < engine->options.queue_max) return true;
    ks_job **last = ks_queue_last(&engine->queue);
    if (!ks_queue_outranks(job, *last)) return false;
    ks_job *refused = ks_queue_take(&engine->queue, last);
    ks_error error;
    ks_fail(&error, KS_QUEUE_FULL, "Exceeds maximum queue size: of %d requests this one ranked last",
            engine->options.queue_max + 1);
    ks_job_set_fault(refused, &error);
    finish_unrun(engine, refused, KS_QUEUE_FULL, ks_now_ns());
    return true;
}

static ks_status fail_hopeless(int64_t wait_ns, int64_t left_ns, ks_error *error)
{
    return ks_fail(
        error, KS_QUEUE_FULL,
        "requests wait for a lane, and by the work before it this one would for %.1f s or more; its deadline "
        "is in %.1f s",
        (double)wait_ns / 1e9, (double)left_ns / 1e9);
}

/* A plain job goes behind all others: the bound of the last look holds for it. Others may pass them: the next look is theirs. */
static ks_status check_wait(const ks_engine *engine, const ks_job *job, ks_error *error)
{
    const int64_t left_ns = job->deadline_ns - job->submitted_ns;
    if (engine->queue.count == 0 || !job->deadline_ns || job->priority || job->deadline_asked ||
        engine->wait_ns <= left_ns)
        return KS_OK;
    return fail_hopeless(engine->wait_ns, left_ns, error);
}

ks_status ks_engine_submit(ks_engine *engine, ks_job *job, ks_error *error)
{
    assert(job->plan && job->plan->users > 0);
    assert(job->plan->join_rows ? job->rows >= 1 && job->rows <= job->plan->join_rows : job->rows == 0);
    assert(job->state == KS_JOB_IDLE || job->state == KS_JOB_DONE);
    const ks_status status = ks_values_check(job, error);
    if (status != KS_OK) return status;
    const bool room = engine->queue.count < engine->options.queue_max || make_room(engine, job);
    if (engine->lost) return ks_fail(error, KS_DEVICE, "%s", engine->fault.text);
    if (engine->backend->failed(engine->device)) return ks_fail(error, KS_DEVICE, "the device is lost");
    if (!room)
        return ks_fail(error, KS_QUEUE_FULL, "Exceeds maximum queue size: %d requests wait already, the queue holds %d",
                       engine->queue.count, engine->options.queue_max);
    job->status = KS_OK;
    job->graph = KS_GRAPH_NONE;
    job->h2d_ns = job->compute_ns = job->d2h_ns = 0;
    job->batch_count = 1;
    job->batch_rows = job->rows;
    job->lane = 0;
    job->launch = 0;
    job->submitted_ns = ks_now_ns();
    if (job->plan->out_bytes == 0) {
        finish_unrun(engine, job, KS_OK, job->submitted_ns);
        return KS_OK;
    }
    if (engine->wait_ns > WAIT_MIN_NS && check_wait(engine, job, error) != KS_OK) return KS_QUEUE_FULL;
    /* Windows take the place of parts of the sides. */
    assert(job->slot && (job->slot->windows || (job->slot->in_cap >= ks_plan_job_in(job->plan, job->rows) &&
                                                job->slot->out_cap >= ks_plan_job_out(job->plan, job->rows))));
    job->state = KS_JOB_READY;
    ks_queue_add(&engine->queue, job);
    count_queue(engine);
    return KS_OK;
}

bool ks_engine_cancel(ks_engine *engine, ks_job *job)
{
    if (job->state == KS_JOB_IDLE) return true;
    if (job->state != KS_JOB_READY) return false;
    ks_queue_take(&engine->queue, ks_queue_find(&engine->queue, job));
    job->state = KS_JOB_IDLE;
    count_queue(engine);
    return true;
}

static void drop(ks_engine *engine, ks_job **link, const ks_error *error, int64_t now_ns)
{
    ks_job *job = ks_queue_take(&engine->queue, link);
    ks_job_set_fault(job, error);
    finish_unrun(engine, job, error->status, now_ns);
}

static void drop_late(ks_engine *engine, ks_job **link, int64_t now_ns)
{
    ks_error error;
    ks_fail(&error, KS_DEADLINE, "Request timeout expired after %.3f ms in the queue",
            (double)(now_ns - (*link)->submitted_ns) / 1e6);
    drop(engine, link, &error, now_ns);
}

/* A refusal now is of more use than one at the deadline. The first one always waits. */
static bool is_hopeless(const ks_engine *engine, ks_job **link, int64_t wait_ns, int64_t now_ns)
{
    return link != &engine->queue.first && (*link)->deadline_ns && wait_ns > WAIT_MIN_NS &&
           (double)wait_ns > DOUBT * (double)((*link)->deadline_ns - now_ns);
}

void ks_engine_expire(ks_engine *engine, int64_t now_ns)
{
    ks_queue_wait wait;
    ks_error error;
    ks_queue_wait_begin(&wait, engine, now_ns);
    ks_job **link = &engine->queue.first;
    while (*link) {
        const int64_t wait_ns = ks_queue_wait_ns(&wait);
        if (ks_job_is_late(*link, now_ns)) {
            drop_late(engine, link, now_ns);
        } else if (is_hopeless(engine, link, wait_ns, now_ns)) {
            fail_hopeless(wait_ns, (*link)->deadline_ns - now_ns, &error);
            drop(engine, link, &error, now_ns);
        } else {
            ks_queue_wait_add(&wait, *link);
            link = &(*link)->next;
        }
    }
    engine->wait_ns = ks_queue_wait_ns(&wait);
    count_queue(engine);
    ks_slots_scrub(engine->slots);
}

/* --- lanes -------------------------------------------------------------------------------------------------------- */

/* Called before the number of busy lanes changes. */
static void account(ks_engine *engine, int64_t now_ns)
{
    const uint64_t passed = (uint64_t)(now_ns - engine->accounted_ns);
    if (engine->busy >= 1) ks_counter_add(KS_COUNTER(engine, device_busy_ns), passed);
    if (engine->busy >= 2) ks_counter_add(KS_COUNTER(engine, overlap_ns), passed);
    engine->accounted_ns = now_ns;
}

void ks_engine_set_busy(ks_engine *engine, ks_lane_use *use, bool busy, int64_t now_ns)
{
    account(engine, now_ns);
    use->busy = busy;
    use->asked_ns = 0;
    ks_turn_clock_start(&use->still, now_ns);
    engine->busy += busy ? 1 : -1;
    use->batch.plan->users += busy ? 1 : -1; /* the batch holds its plan, whatever becomes of the jobs */
    ks_counter_set(KS_COUNTER(engine, lanes_busy), (uint64_t)engine->busy);
    ks_counter_add(KS_COUNTER(engine, running), (uint64_t)(busy ? use->batch.count : -use->batch.count));
}

/* -1: none. A lane that has a graph of the plan goes first; then from the highest down, since large plans need lane 0,
 * but where the job brings its own device memory. */
static int free_lane(const ks_engine *engine, const ks_job *job)
{
    const ks_plan *plan = job->plan;
    if (plan->large && job->slot->in) return engine->lane[0].busy ? -1 : 0;
    int best = -1;
    for (int i = ks_engine_plan_lanes(engine, plan) - 1; i >= 0; i--) {
        if (engine->lane[i].busy) continue;
        if (plan->captured[i]) return i;
        if (best < 0) best = i;
    }
    return best;
}

/* A mapped plan's kernel reaches a slot of ordinary memory, the device's own, or a client's, only with the backend's
 * help, and some rows of a large request lie elsewhere than in other slots: such a job goes alone. */
static bool goes_alone(const ks_job *job)
{
    const ks_slot *slot = job->slot;
    return slot->windows || slot->places || job->step_ns ||
           (job->plan->mapped && (!slot->in || !slot->in_device || !slot->out_device));
}

static void begin_batch(ks_batch *batch, ks_plan *plan)
{
    batch->plan = plan;
    batch->count = batch->rows_sum = 0;
    batch->trial = 0;
    batch->graph = KS_GRAPH_NONE;
    batch->refused = false;
    batch->step_ns = NULL;
    batch->h2d_ns = batch->compute_ns = batch->d2h_ns = 0;
}

/* Moves the job at the link, and what may go with it, from the queue to the lane's batch. What does not fit goes with the next
 * launch, as the first one. */
static void gather(ks_engine *engine, ks_job **link, ks_lane_use *use, int64_t now_ns)
{
    ks_batch *batch = &use->batch;
    const int most = goes_alone(*link) ? 1 : (*link)->plan->batch_max;
    begin_batch(batch, (*link)->plan);
    while (*link && batch->count < most) {
        ks_job *job = *link;
        if (job->plan != batch->plan || (batch->count > 0 && goes_alone(job))) {
            link = &job->next;
        } else if (ks_job_is_late(job, now_ns)) {
            drop_late(engine, link, now_ns);
        } else if (ks_join_add(batch, job)) {
            use->jobs[batch->count - 1] = ks_queue_take(&engine->queue, link);
            batch->step_ns = job->step_ns;
        } else {
            link = &job->next;
        }
    }
}

static void finish_job(ks_engine *engine, ks_job *job, const ks_error *fault, int64_t now_ns)
{
    if (fault) ks_job_set_fault(job, fault);
    job->done_ns = now_ns;
    job->compute_ns = now_ns - job->launched_ns - job->h2d_ns - job->d2h_ns;
    ks_engine_finish(engine, job, fault ? fault->status : KS_OK);
}

/* Of a launch that has refused some jobs' values. */
static void finish_refused(ks_engine *engine, const ks_lane_use *use, int64_t now_ns)
{
    ks_error refused;
    for (int i = 0; i < use->batch.count; i++)
        finish_job(engine, use->jobs[i], ks_values_refused(&use->batch, i, &refused) ? &refused : NULL, now_ns);
}

/* error NULL: the work is done, but for jobs whose values the launch refused. */
static void finish_batch(ks_engine *engine, ks_lane_use *use, const ks_error *error, int64_t now_ns)
{
    if (!error && use->batch.refused)
        finish_refused(engine, use, now_ns);
    else
        for (int i = 0; i < use->batch.count; i++) finish_job(engine, use->jobs[i], error, now_ns);
    ks_engine_set_busy(engine, use, false, now_ns);
}

static void launch_lane(ks_engine *engine, int lane, int64_t now_ns)
{
    ks_lane_use *use = &engine->lane[lane];
    ks_batch *batch = &use->batch;
    use->launched_ns = now_ns;
    for (int i = 0; i < batch->count; i++) {
        use->jobs[i]->state = KS_JOB_RUNNING;
        use->jobs[i]->launched_ns = use->launched_ns;
        use->jobs[i]->batch_count = batch->count;
        use->jobs[i]->batch_rows = batch->rows_sum;
        use->jobs[i]->lane = lane;
    }
    ks_engine_set_busy(engine, use, true, use->launched_ns);
    ks_error error = {.status = KS_OK};
    const ks_status status = engine->backend->launch(use->lane, batch, &error);
    if (status == KS_OK) {
        use->issue_ns = ks_now_ns() - use->launched_ns;
        ks_graphs_launched(engine, lane, use->launched_ns);
        for (int i = 0; i < batch->count; i++) use->jobs[i]->graph = batch->graph;
        return;
    }
    error.status = status;
    ks_engine_count_error(engine, status);
    finish_batch(engine, use, &error, ks_now_ns());
    if (engine->backend->failed(engine->device)) ks_engine_lose(engine, &error);
}

void ks_engine_launch(ks_engine *engine)
{
    if (engine->queue.count == 0) return;
    const int64_t now_ns = ks_now_ns();
    ks_job **link = &engine->queue.first;
    while (!engine->lost && *link && engine->busy < engine->lanes) {
        const int lane = ks_job_is_late(*link, now_ns) ? -1 : free_lane(engine, *link);
        if (lane >= 0) {
            gather(engine, link, &engine->lane[lane], now_ns);
            launch_lane(engine, lane, ks_now_ns());
        } else if (ks_job_is_late(*link, now_ns)) {
            drop_late(engine, link, now_ns);
        } else {
            link = &(*link)->next; /* the lanes of its plan are busy */
        }
    }
    count_queue(engine);
}

/* --- jobs out ----------------------------------------------------------------------------------------------------- */

static void collect_trial(ks_engine *engine, ks_lane_use *use, int64_t run_ns)
{
    const int64_t now_ns = ks_now_ns();
    ks_books_trial(engine, use, now_ns - use->launched_ns);
    ks_engine_set_busy(engine, use, false, now_ns);
    ks_tune_done(engine, run_ns);
}

/* The backend's phases end when the work did; what passed until this turn saw it belongs to compute, as the launch
 * does. */
static void collect_done(ks_engine *engine, ks_lane_use *use)
{
    const ks_batch *batch = &use->batch;
    int64_t now_ns = ks_now_ns();
    if (now_ns < use->launched_ns + batch->h2d_ns + batch->d2h_ns) /* two clocks, a little apart */
        now_ns = use->launched_ns + batch->h2d_ns + batch->d2h_ns;
    for (int i = 0; i < batch->count; i++) {
        use->jobs[i]->h2d_ns = batch->h2d_ns;
        use->jobs[i]->d2h_ns = batch->d2h_ns;
        use->jobs[i]->kernel_ns = batch->kernel_ns;
    }
    const int64_t total_ns = now_ns - use->launched_ns;
    ks_plan *plan = batch->plan;
    plan->measured_ns = plan->measured_ns ? plan->measured_ns + (total_ns - plan->measured_ns) / 8 : total_ns;
    if (batch->kernel_ns >= 0) {
        plan->timed_jobs += (uint64_t)batch->count;
        plan->timed_ns += batch->kernel_ns;
    }
    ks_books_launch(engine, use, total_ns);
    finish_batch(engine, use, NULL, now_ns);
}

/* Time counts only while this shard's turns go on, and what the work shows of itself begins it anew. So neither a process
 * that was stopped nor one of many that share a processor loses its device; a lane that does nothing is found after the
 * limit and at most a STALL_LOOKS-th of it, in turns. */
static bool is_stalled(ks_engine *engine, ks_lane_use *use)
{
    const int64_t limit_ns = engine->options.stall_ns;
    const int64_t still_ns = ks_turn_clock_look(&use->still, ks_now_ns(), engine->gap_max_ns);
    const bool stalled = still_ns > limit_ns;
    if (!engine->backend->goes_on || (!stalled && still_ns - use->asked_ns < limit_ns / STALL_LOOKS)) return stalled;
    use->asked_ns = still_ns;
    if (!engine->backend->goes_on(use->lane, limit_ns)) return stalled;
    use->still.counted_ns = use->asked_ns = 0;
    return false;
}

static void collect_lane(ks_engine *engine, ks_lane_use *use)
{
    ks_error error = {.status = KS_OK};
    const ks_poll poll = engine->backend->poll(use->lane, &error);
    if (poll == KS_RUNNING) {
        if (!is_stalled(engine, use)) return;
        ks_fail(&error, KS_DEVICE, "no progress on the device for %.1f s, the limit is %.1f s",
                (double)use->still.counted_ns / 1e9, (double)engine->options.stall_ns / 1e9);
        ks_engine_count_error(engine, KS_DEVICE);
        ks_engine_lose(engine, &error);
        return;
    }
    /* A result counts only if the device is still good after it was seen. */
    if (engine->backend->failed(engine->device)) {
        if (error.status == KS_OK) ks_fail(&error, KS_DEVICE, "the device is lost");
        ks_engine_count_error(engine, KS_DEVICE);
        ks_engine_lose(engine, &error);
    } else if (use->batch.trial) {
        collect_trial(engine, use, poll == KS_DONE ? use->batch.kernel_ns : 0);
    } else if (poll == KS_FAILED) {
        if (error.status == KS_OK) ks_fail(&error, KS_DEVICE, "the device failed and did not say why");
        ks_engine_count_error(engine, error.status);
        finish_batch(engine, use, &error, ks_now_ns());
    } else {
        collect_done(engine, use);
    }
}

static void look_at_lanes(ks_engine *engine)
{
    for (int i = 0; i < engine->lanes && !engine->lost; i++)
        if (engine->lane[i].busy) collect_lane(engine, &engine->lane[i]);
}

ks_job *ks_engine_collect(ks_engine *engine)
{
    /* Another shard may have met the fault; this one's lanes would then never answer. */
    if ((engine->busy || engine->queue.count) && engine->backend->failed(engine->device)) ks_engine_fail_all(engine);
    look_at_lanes(engine);
    ks_job *done = engine->done;
    engine->done = NULL;
    engine->done_end = &engine->done;
    return done;
}

bool ks_engine_run(ks_engine *engine, ks_job *job)
{
    if (!job->plan->at_once || engine->queue.first != job || job->next || engine->done ||
        ks_job_is_late(job, job->submitted_ns))
        return false;
    const int lane = free_lane(engine, job);
    if (lane < 0) return false;
    ks_lane_use *use = &engine->lane[lane];
    gather(engine, &engine->queue.first, use, job->submitted_ns);
    count_queue(engine);
    launch_lane(engine, lane, job->submitted_ns);
    if (use->busy) collect_lane(engine, use);
    if (engine->done != job || job->next)
        return false; /* it took longer; or the device was lost, and others ended too */
    engine->done = NULL;
    engine->done_end = &engine->done;
    return true;
}

void ks_engine_lose(ks_engine *engine, const ks_error *fault)
{
    if (!engine->lost) engine->fault = *fault;
    engine->lost = true;
    const int64_t now_ns = ks_now_ns();
    ks_error error = engine->fault;
    error.status = KS_DEVICE;
    for (ks_job *job = engine->done; job; job = job->next) { /* a full queue may have run them since the last look */
        if (job->status != KS_OK) continue;
        ks_job_set_fault(job, &error);
        job->status = KS_DEVICE;
    }
    for (int i = 0; i < engine->lanes; i++)
        if (engine->lane[i].busy) finish_batch(engine, &engine->lane[i], &error, now_ns);
    while (engine->queue.first) {
        ks_job *job = ks_queue_take(&engine->queue, &engine->queue.first);
        ks_job_set_fault(job, &error);
        finish_unrun(engine, job, KS_DEVICE, now_ns);
    }
    count_queue(engine);
}

void ks_engine_fail_all(ks_engine *engine)
{
    ks_error error;
    ks_fail(&error, KS_DEVICE, "the device is lost");
    ks_engine_lose(engine, &error);
}

/* --- questions ---------------------------------------------------------------------------------------------------- */

bool ks_engine_lost(const ks_engine *engine)
{
    return engine->lost;
}

const char *ks_engine_fault(const ks_engine *engine)
{
    return engine->fault.text;
}

bool ks_engine_running(const ks_engine *engine)
{
    return engine->busy > 0 || engine->done;
}

bool ks_engine_dirty(const ks_engine *engine)
{
    return ks_slots_dirty(engine->slots);
}

bool ks_engine_ready(const ks_engine *engine)
{
    return engine->queue.count > 0;
}

int64_t ks_engine_expected_ns(const ks_engine *engine)
{
    if (engine->done || engine->busy == 0) return 0;
    int64_t soonest_ns = INT64_MAX;
    for (int i = 0; i < engine->lanes; i++) {
        const ks_lane_use *use = &engine->lane[i];
        if (!use->busy) continue;
        const int64_t done_ns = use->launched_ns + use->batch.plan->measured_ns;
        if (done_ns < soonest_ns) soonest_ns = done_ns;
    }
    const int64_t now_ns = ks_now_ns();
    return soonest_ns > now_ns ? soonest_ns - now_ns : 0;
}

bool ks_engine_polls(const ks_engine *engine)
{
    return engine->done || (engine->busy > 0 && engine->polls);
}

void ks_engine_read_stats(const ks_engine *engine, ks_engine_stats *out)
{
    uint64_t values[KS_ENGINE_COUNTERS];
    for (int i = 0; i < KS_ENGINE_COUNTERS; i++)
        values[i] = atomic_load_explicit(&((ks_engine *)engine)->counters[i], memory_order_relaxed);
    memcpy(out, values, sizeof *out);
}
