/* A batch on a lane: launch and poll, by one of these paths.
 *
 *   mapped  kernels work on the pinned slots themselves, all jobs in one launch; done when the lane's line shows the
 *           launch's sequence number.
 *   copies  one pinned slot: copy in, kernels, copy out; done when the event behind them is. The event is asked only
 *           after the line, the first that is copied out, has arrived: each question takes the driver's lock.
 *           A job with windows (client memory) goes the same way without a graph, each tensor copied by itself.
 *   area    a slot of the device's own memory, filled and emptied by others (backend_cuda_stream.cuh): kernels, then the
 *           line alone is copied out.
 *   trial   no job at all: a plan's kernels, timed (backend_cuda_trial.cuh).
 *   staged  slots in ordinary memory (backend_cuda_staged.cuh). Also the way of an overflow slot whose plan is small
 *           enough for any lane.
 *
 * A flag never tells of an error: a launch that is late is asked for its stream's state. */
#ifndef KS_BACKEND_CUDA_LAUNCH_CUH
#define KS_BACKEND_CUDA_LAUNCH_CUH

#include "backend_cuda_clock.cuh"
#include "backend_cuda_trial.cuh"

static void write_block(ks_lane *lane, const ks_batch *batch)
{
    ks_block *block = &lane->shared->block;
    block->sequence = lane->sequence;
    block->count = (uint32_t)batch->count;
    for (int i = 0; i < batch->count; i++)
        block->entry[i] = (ks_entry){.in = (const unsigned char *)batch->slots[i]->in_device,
                                     .out = (unsigned char *)batch->slots[i]->out_device};
}

static ks_path path_of(const ks_batch *batch)
{
    if (batch->trial) return KS_PATH_TRIAL;
    if (!batch->slots[0]->out) return KS_PATH_AREA;
    bool mapped = batch->plan->mapped, pinned = true;
    if (batch->slots[0]->windows) return KS_PATH_COPIES; /* it goes alone */
    for (int i = 0; i < batch->count; i++) {
        mapped = mapped && batch->slots[i]->in_device && batch->slots[i]->out_device;
        pinned = pinned && batch->slots[i]->pinned;
    }
    return mapped ? KS_PATH_MAPPED : pinned && batch->count == 1 ? KS_PATH_COPIES : KS_PATH_STAGED;
}

/* A failed launch may have left copies and kernels under way that touch the slots: they end before the slots are the
 * caller's again. Rare, and bounded by the work of one batch. */
static ks_status launch_failed(ks_lane *lane, ks_status status)
{
    if (!device_failed(lane->device)) ask_stream(lane);
    if (!device_failed(lane->device)) {
        cudaStreamSynchronize(lane->stream);
        cudaMemsetAsync(lane->memory, 0, CONTROL_BYTES, lane->stream); /* tickets and counters may be half drawn */
        trial_drop(lane);
        cudaGetLastError();
    }
    lane->batch = NULL;
    return status;
}

static ks_status enqueue(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    ks_plan *plan = batch->plan;
    ks_slot *slot = batch->slots[0];
    const int bucket = ks_bucket(batch->count);
    const bool graphs =
        plan->graphs && !plan->large && !slot->windows && plan->mapped == (lane->path == KS_PATH_MAPPED);
    ks_status status = KS_DEVICE;
    batch->graph = KS_GRAPH_NONE;
    if (graphs && plan->captured[lane->index] >> bucket & 1) {
        ks_cuda_graphs *state = (ks_cuda_graphs *)plan->lane_state[lane->index];
        batch->graph = KS_GRAPH_HIT;
        status = graph_launch(lane, plan, &state->bucket[bucket], slot, error);
        if (status && device_failed(lane->device)) return status;
        if (status) { /* a graph that cannot be launched is no reason to refuse the work */
            graph_drop(&state->bucket[bucket]);
            plan->captured[lane->index] &= ~(1u << bucket);
        }
    }
    if (status) {
        batch->graph = graphs ? KS_GRAPH_MISS : KS_GRAPH_NONE;
        status = slot->windows ? record_windows(lane, plan, slot, error)
                               : record(lane, plan, lane->path, batch->count, slot->in, slot->out, error);
    }
    if (!status && lane->path == KS_PATH_COPIES)
        KS_TRY(lane->device, error, cudaEventRecord(lane->event, lane->stream));
    return status;
}

/* backend.launch */
static ks_status launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    assert(!lane->batch && (batch->trial > 0 || (batch->count >= 1 && batch->count <= KS_BATCH_MAX)));
    if (device_failed(lane->device)) return ks_fail(error, KS_DEVICE, "the device is lost");
    KS_TRY(lane->device, error, use_device(lane->device));
    const ks_plan *plan = batch->plan;
    const ks_path path = path_of(batch);
    if (path != KS_PATH_AREA && plan->large && lane->large_bytes < plan->in_bytes + plan->out_bytes)
        return ks_fail(error, KS_WORK, "the request needs %zu bytes of device memory at once, lane %d has %zu",
                       plan->in_bytes + plan->out_bytes, lane->index, lane->large_bytes);
    clock_probe_read(lane);
    lane->launch_ns = lane->asked_ns = now_ns();
    lane->path = path;
    lane->batch = batch;
    next_sequence(lane);
    batch->graph = KS_GRAPH_NONE;
    if (lane->path == KS_PATH_TRIAL) {
        const ks_status tried = trial_launch(lane, batch, error);
        return tried ? launch_failed(lane, tried) : KS_OK;
    }
    if (lane->path == KS_PATH_STAGED) { /* poll does all of it */
        lane->stage = KS_STAGE_IN;
        lane->job = 0;
        lane->moved_in = lane->asked = lane->moved_out = 0;
        return KS_OK;
    }
    if (lane->path == KS_PATH_MAPPED)
        write_block(lane, batch);
    else
        line_clear(lane, batch->slots[0]);
    const ks_status status = lane->path == KS_PATH_AREA ? area_launch(lane, batch->plan, batch->slots[0], error)
                                                        : enqueue(lane, batch, error);
    return status ? launch_failed(lane, status) : KS_OK;
}

static void finish_times(ks_lane *lane, ks_batch *batch)
{
    const int64_t done = now_ns();
    batch->h2d_ns = batch->d2h_ns = 0;
    batch->compute_ns = done - lane->launch_ns;
    batch->kernel_ns = -1;
    if (batch->plan->unstamped) return;
    if (lane->path == KS_PATH_MAPPED) {
        const ks_line *line = &lane->shared->line;
        batch->kernel_ns = (int64_t)(line->end_ns - line->start_ns);
        clock_sample(&lane->clock, done, lane->launch_ns - (int64_t)line->start_ns, done - (int64_t)line->end_ns);
        lane->clock.tight_ns = done;
    } else if (batch->count == 1) {
        const ks_line *line = line_of(lane, batch->slots[0]);
        batch->kernel_ns = (int64_t)(line->end_ns - line->start_ns);
        clock_phases(lane, line, done, batch);
        clock_probe_later(lane, done);
    }
}

/* backend.poll */
static ks_poll poll_lane(ks_lane *lane, ks_error *error)
{
    assert(lane->batch);
    ks_poll poll;
    if (device_failed(lane->device)) {
        ks_fail(error, KS_DEVICE, "the device is lost");
        poll = KS_FAILED;
    } else if (lane->path == KS_PATH_TRIAL) {
        poll = wait_event(lane, lane->trial_event[1], error);
    } else if (lane->path == KS_PATH_STAGED) {
        poll = staged_step(lane, error);
    } else if (!line_shows(lane)) {
        poll = wait_line(lane, error);
    } else {
        poll = lane->path == KS_PATH_MAPPED ? KS_DONE : wait_event(lane, lane->event, error);
    }
    if (poll == KS_DONE) {
        if (lane->path == KS_PATH_TRIAL)
            trial_finish(lane, lane->batch);
        else
            finish_times(lane, lane->batch);
        lane->batch = NULL;
    } else if (poll == KS_FAILED) {
        launch_failed(lane, KS_DEVICE);
    }
    return poll;
}

#endif
