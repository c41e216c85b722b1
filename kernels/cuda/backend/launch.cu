/* A batch on a lane: launch and poll, by one of these paths.
 *
 *   mapped  kernels work on the pinned slots themselves, all jobs in one launch; done when the lane's completion shows the
 *           launch's sequence number.
 *   joined  likewise, rows of all jobs as one product, or one run of a chain's steps (join.cu).
 *   moved   one job of a chain, small: its steps, and copies that are kernels, which raise the lane's completion.
 *   copies  one pinned slot: copy in, kernels, copy out; done when the event behind them is. The event is asked only
 *           after the completion, the first that is copied out, has arrived: each question takes the driver's lock.
 *           A job with windows (client memory), and one of a family alone whose slot is not seen, goes the same way without a graph,
 *           each tensor copied by itself.
 *   device buffer    a slot of the device's own memory, filled and emptied by others (large.cu): kernels, then the
 *           completion alone is copied out.
 *   trial   no job at all: a plan's kernels, timed (trial.cu).
 *   staged  slots in ordinary memory. Also the path of an overflow slot whose plan is small
 *           enough for any lane.
 *
 * A flag never reports an error: a launch that is late is asked for its stream's state. */
#include "cuda/backend/chain.h"
#include "cuda/backend/internal.h"
#include "cuda/backend/join.h"
#include "cuda/common/nvtx.h"

/* --- waiting for a launch ------------------------------------------------------------------------------------------- */

static void next_sequence(ks_lane *lane)
{
    if (++lane->sequence == 0) lane->sequence = 1;
}

static bool on_slots(const ks_lane *lane)
{
    return lane->path == KS_PATH_MAPPED || lane->path == KS_PATH_JOINED || lane->path == KS_PATH_MOVED;
}

/* A copied job's completion arrives in front of its slot's out side; a device buffer's, and the stamps of moved sides, in the lane's own memory. */
static ks_completion *completion_of(const ks_lane *lane, const ks_slot *slot)
{
    return slot->out && lane->path != KS_PATH_MOVED ? (ks_completion *)(void *)(slot->out - KS_COMPLETION_BYTES)
                                                    : lane->shared->device_buffer_completion;
}

static void line_clear(const ks_lane *lane, const ks_slot *slot)
{
    __atomic_store_n(&completion_of(lane, slot)->start_ns, 0, __ATOMIC_RELEASE);
}

/* Mapped: the launch is done. Copies, device buffers: its kernels are, and the copy out has begun. */
static bool line_shows(const ks_lane *lane)
{
    if (on_slots(lane)) return __atomic_load_n(&lane->shared->completion.sequence, __ATOMIC_ACQUIRE) == lane->sequence;
    return __atomic_load_n(&completion_of(lane, lane->batch->slots[0])->start_ns, __ATOMIC_ACQUIRE) != 0;
}

/* While the completion does not show the launch. The stream is asked only when it is late: asking costs the driver's lock. */
static ks_poll wait_line(ks_lane *lane, ks_error *error)
{
    const int64_t now = ks_cuda_now_ns();
    if (now - lane->launch_ns < KS_LATE_NS || now - lane->asked_ns < KS_LATE_STEP_NS) return KS_RUNNING;
    lane->asked_ns = now;
    const cudaError_t code = ks_cuda_quiet(cudaStreamQuery(lane->stream));
    if (code == cudaErrorNotReady) return KS_RUNNING;
    if (code != cudaSuccess) {
        ks_cuda_fault(lane->device, code, "cudaStreamQuery", error);
        return KS_FAILED;
    }
    if (line_shows(lane)) return KS_RUNNING; /* came just now: the next poll reads it */
    ks_fail(error, KS_DEVICE, "%s: the kernels ended without their mark", lane->batch->plan->spec.op->name);
    return KS_FAILED;
}

static ks_poll wait_event(ks_lane *lane, cudaEvent_t event, ks_error *error)
{
    const cudaError_t code = ks_cuda_quiet(cudaEventQuery(event));
    if (code == cudaSuccess) return KS_DONE;
    if (code == cudaErrorNotReady) return KS_RUNNING;
    ks_cuda_fault(lane->device, code, "cudaEventQuery", error);
    return KS_FAILED;
}

static ks_status event_record(ks_lane *lane, ks_error *error)
{
    KS_TRY(lane->device, error, cudaEventRecord(lane->event, lane->stream));
    return KS_OK;
}

/* --- staged: slots in ordinary memory, one job after the other --------------------------------------------------------
 *
 * The in side goes out in ring buffers of KS_COPY_CHUNK_BYTES through lane 0's pinned ring, one ring buffer a poll; then the kernels;
 * then the out side comes back the same way, KS_COPY_CHUNKS ring buffers asked for ahead. A ring buffer's place in the ring is free once
 * the event behind its copy is done; between the two directions the stream's order keeps them apart. A lane without a
 * ring copies from and to ordinary memory, piece by piece, and leaves the staging to the driver. */

/* Bytes of the completion and the out side of the job that is staged. */
static size_t staged_out_bytes(const ks_lane *lane, const ks_plan *plan)
{
    return KS_COMPLETION_BYTES + ks_plan_job_out(plan, lane->batch->rows[lane->job]);
}

static size_t buffer(size_t bytes, size_t at)
{
    return bytes - at < KS_COPY_CHUNK_BYTES ? bytes - at : KS_COPY_CHUNK_BYTES;
}

static int ring_index(size_t at)
{
    return (int)(at / KS_COPY_CHUNK_BYTES % KS_COPY_CHUNKS);
}

/* One ring buffer of the in side goes out. */
static ks_status staged_in(ks_lane *lane, const ks_plan *plan, ks_slot *slot, size_t bytes, ks_error *error)
{
    ks_device *device = lane->device;
    const size_t at = lane->moved_in, size = buffer(bytes, at);
    const void *source = slot->in + at;
    if (lane->ring) {
        void *staged = lane->ring + (size_t)ring_index(at) * KS_COPY_CHUNK_BYTES;
        memcpy(staged, source, size);
        source = staged;
    }
    KS_TRY(device, error,
           cudaMemcpyAsync(ks_cuda_place_of(lane, plan).in + at, source, size, cudaMemcpyHostToDevice, lane->stream));
    if (lane->ring) KS_TRY(device, error, cudaEventRecord(lane->ring_event[ring_index(at)], lane->stream));
    lane->moved_in += size;
    return KS_OK;
}

/* Asks for as many ring buffers of the out side as the ring holds; they arrive in order. */
static ks_status staged_ask(ks_lane *lane, const ks_plan *plan, ks_error *error)
{
    ks_device *device = lane->device;
    const size_t bytes = staged_out_bytes(lane, plan);
    while (lane->asked < bytes && lane->asked - lane->moved_out < (size_t)KS_COPY_CHUNKS * KS_COPY_CHUNK_BYTES) {
        const size_t at = lane->asked, size = buffer(bytes, at);
        KS_TRY(device, error,
               cudaMemcpyAsync(lane->ring + (size_t)ring_index(at) * KS_COPY_CHUNK_BYTES,
                               ks_cuda_place_of(lane, plan).completion + at, size, cudaMemcpyDeviceToHost,
                               lane->stream));
        KS_TRY(device, error, cudaEventRecord(lane->ring_event[ring_index(at)], lane->stream));
        lane->asked += size;
    }
    return KS_OK;
}

/* One ring buffer of the out side arrives in the slot. KS_DONE: the ring buffer is there. */
static ks_poll staged_out(ks_lane *lane, const ks_plan *plan, ks_slot *slot, ks_error *error)
{
    const size_t at = lane->moved_out, size = buffer(staged_out_bytes(lane, plan), at);
    unsigned char *completion = (unsigned char *)completion_of(lane, slot);
    if (lane->ring) {
        const ks_poll poll = wait_event(lane, lane->ring_event[ring_index(at)], error);
        if (poll != KS_DONE) return poll;
        memcpy(completion + at, lane->ring + (size_t)ring_index(at) * KS_COPY_CHUNK_BYTES, size);
        lane->moved_out += size;
        return staged_ask(lane, plan, error) ? KS_FAILED : KS_DONE;
    }
    const ks_poll kernels = wait_event(lane, lane->event, error); /* such a copy blocks until they ended */
    if (kernels != KS_DONE) return kernels;
    const cudaError_t code = cudaMemcpyAsync(completion + at, ks_cuda_place_of(lane, plan).completion + at, size,
                                             cudaMemcpyDeviceToHost, lane->stream);
    if (code != cudaSuccess) {
        ks_cuda_fault(lane->device, code, "cudaMemcpyAsync", error);
        return KS_FAILED;
    }
    lane->moved_out += size;
    return KS_DONE;
}

/* Sends the next ring buffer; behind the last one the kernels and the way back. */
static ks_poll staged_send(ks_lane *lane, const ks_plan *plan, ks_slot *slot, ks_error *error)
{
    const int rows = lane->batch->rows[lane->job];
    const size_t bytes = ks_plan_job_in(plan, rows);
    if (lane->ring) {
        const ks_poll poll = wait_event(lane, lane->ring_event[ring_index(lane->moved_in)], error);
        if (poll != KS_DONE) return poll;
    }
    if (staged_in(lane, plan, slot, bytes, error)) return KS_FAILED;
    if (lane->moved_in < bytes) return KS_RUNNING;
    if (ks_cuda_record_kernels(lane, plan, KS_PATH_STAGED, plan->join_rows ? rows : 1, error)) {
        ks_cuda_ask_stream(lane);
        return KS_FAILED;
    }
    if (lane->ring ? staged_ask(lane, plan, error) != KS_OK : event_record(lane, error) != KS_OK) return KS_FAILED;
    lane->staged = KS_STAGED_OUT;
    return KS_RUNNING;
}

/* One step of the staged batch; KS_DONE: all its jobs are done. */
static ks_poll staged_step(ks_lane *lane, ks_error *error)
{
    ks_batch *batch = lane->batch;
    ks_slot *slot = batch->slots[lane->job];
    if (lane->staged == KS_STAGED_IN) return staged_send(lane, batch->plan, slot, error);
    if (lane->staged == KS_STAGED_OUT) {
        const ks_poll poll = staged_out(lane, batch->plan, slot, error);
        if (poll != KS_DONE || lane->moved_out < staged_out_bytes(lane, batch->plan))
            return poll == KS_FAILED ? poll : KS_RUNNING;
        if (ks_cuda_read_word(lane, lane->job, completion_of(lane, slot), error)) return KS_FAILED;
        if (event_record(lane, error)) return KS_FAILED;
        lane->staged = KS_STAGED_LAST;
    }
    const ks_poll poll = wait_event(lane, lane->event, error);
    if (poll != KS_DONE || lane->job + 1 == batch->count) return poll;
    lane->job++;
    lane->staged = KS_STAGED_IN;
    lane->moved_in = lane->asked = lane->moved_out = 0;
    next_sequence(lane);
    return KS_RUNNING;
}

/* --- a device buffer -------------------------------------------------------------------------------------------------------- */

/* The plan's spec with its tensors where the slot has them. A tensor that is alone on its side lies at the side's start: then
 * the side moves. */
static void place_tensors(const ks_plan *plan, const ks_places *places, ks_spec *out, ks_job_sides *sides)
{
    ks_spec_copy(out, &plan->spec);
    if (out->given == 1)
        sides->in += places->in[0];
    else
        for (int i = ks_next_input(out, -1); i >= 0; i = ks_next_input(out, i)) out->in[i].offset = places->in[i];
    if (out->outputs == 1)
        sides->out += places->out[0];
    else
        for (int i = 0; i < out->outputs; i++) out->out[i].offset = places->out[i];
}

/* Behind the device buffer's copies in: fresh stamps, the kernels, the stamps to the lane. */
static ks_status device_buffer_launch(ks_lane *lane, const ks_plan *plan, const ks_slot *slot, ks_error *error)
{
    ks_device *device = lane->device;
    ks_completion *completion = ks_cuda_buffer_completion(slot);
    ks_site site = ks_cuda_site_of(lane, plan, KS_PATH_DEVICE_BUFFER);
    site.only = (ks_job_sides){.in = (const unsigned char *)slot->in_device, .out = (unsigned char *)slot->out_device};
    site.completion = completion;
    KS_TRY(device, error, cudaStreamWaitEvent(lane->stream, ((const ks_device_buffer *)slot->memory)->filled, 0));
    KS_TRY(device, error, cudaMemsetAsync(completion, 0, KS_COMPLETION_BYTES, lane->stream));
    if (plan->unstamped) /* not 0: it shows */
        KS_TRY(device, error, cudaMemsetAsync(completion, 1, sizeof completion->start_ns, lane->stream));
    ks_spec placed;
    if (slot->places) place_tensors(plan, slot->places, &placed, &site.only);
    const ks_status status = ks_cuda_record_on(lane, plan, slot->places ? &placed : &plan->spec, &site, 1, error);
    if (status) return status;
    KS_TRY(device, error,
           cudaMemcpyAsync(lane->shared->device_buffer_completion, completion, KS_COMPLETION_BYTES,
                           cudaMemcpyDeviceToHost, lane->stream));
    KS_TRY(device, error, cudaEventRecord(lane->event, lane->stream));
    return KS_OK;
}

/* --- launch and poll -------------------------------------------------------------------------------------------------- */

/* A family's launch whose tensors lie elsewhere in device memory than in a slot: a job that goes alone is copied tensor by tensor, and waits
 * for it where the slot is ordinary memory, which is rare, and small. */
static bool lies_apart(const ks_plan *plan)
{
    return plan->join_rows && (plan->program || plan->spec.outputs > 1);
}

static ks_path path_of(const ks_batch *batch)
{
    if (batch->trial) return KS_PATH_TRIAL;
    if (!batch->slots[0]->out) return KS_PATH_DEVICE_BUFFER;
    bool mapped = batch->plan->mapped, pinned = true;
    if (batch->slots[0]->windows) return KS_PATH_COPIES; /* it goes alone */
    for (int i = 0; i < batch->count; i++) {
        mapped = mapped && batch->slots[i]->in_device && batch->slots[i]->out_device;
        pinned = pinned && batch->slots[i]->pinned;
    }
    if (mapped) return ks_cuda_path_on_slots(batch->plan);
    if (lies_apart(batch->plan)) return KS_PATH_COPIES;
    return pinned && batch->count == 1 ? KS_PATH_COPIES : KS_PATH_STAGED;
}

/* A failed launch may have left copies and kernels under way that touch the slots: they end before the slots are the
 * caller's again. Rare, and bounded by the work of one batch. */
static ks_status launch_failed(ks_lane *lane, ks_status status)
{
    if (!ks_cuda_failed(lane->device)) ks_cuda_ask_stream(lane);
    if (!ks_cuda_failed(lane->device)) {
        cudaStreamSynchronize(lane->stream);
        cudaMemsetAsync(lane->memory, 0, CONTROL_BYTES, lane->stream); /* tickets and counters may be half drawn */
        if (lane->batch) ks_cuda_clear_word(lane);
        ks_cuda_trial_drop(lane);
        cudaGetLastError();
    }
    ks_cuda_large_give(lane);
    ks_cuda_workspace_give(lane);
    lane->batch = NULL;
    return status;
}

static ks_status enqueue(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    ks_plan *plan = batch->plan;
    ks_slot *slot = batch->slots[0];
    const int bucket = ks_batch_bucket(batch);
    const bool graphs =
        plan->graphs && !plan->large && !slot->windows && !batch->step_ns && plan->mapped == on_slots(lane);
    ks_status status = KS_DEVICE;
    batch->graph = KS_GRAPH_NONE;
    if (graphs && plan->captured[lane->index] >> bucket & 1) {
        ks_cuda_graphs *state = (ks_cuda_graphs *)plan->lane_state[lane->index];
        batch->graph = KS_GRAPH_HIT;
        status = ks_cuda_graph_launch(lane, plan, &state->bucket[bucket], slot, error);
        if (status && ks_cuda_failed(lane->device)) return status;
        if (status) { /* a graph that cannot be launched is no reason to refuse the work */
            ks_cuda_graph_drop(&state->bucket[bucket]);
            plan->captured[lane->index] &= ~(1u << bucket);
        }
    }
    if (status) {
        batch->graph = graphs ? KS_GRAPH_MISS : KS_GRAPH_NONE;
        const int size = plan->join_rows ? batch->rows_sum : batch->count;
        status = slot->windows || (!on_slots(lane) && lies_apart(plan))
                     ? ks_cuda_record_windows(lane, plan, slot, size, error)
                     : ks_cuda_record(lane, plan, lane->path, size, {slot->in, slot->out}, error);
    }
    if (!status && lane->path == KS_PATH_COPIES)
        KS_TRY(lane->device, error, cudaEventRecord(lane->event, lane->stream));
    return status;
}

static ks_status launch_batch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    assert(!lane->batch && (batch->trial > 0 || (batch->count >= 1 && batch->count <= KS_BATCH_MAX)));
    if (ks_cuda_failed(lane->device)) return ks_fail(error, KS_DEVICE, "the device is lost");
    KS_TRY(lane->device, error, ks_cuda_use(lane->device));
    const ks_plan *plan = batch->plan;
    const ks_path path = path_of(batch);
    const bool arena = path != KS_PATH_DEVICE_BUFFER && plan->large;
    if (arena && lane->large_bytes < plan->in_bytes + plan->out_bytes)
        return ks_fail(error, KS_WORK, "the request needs %zu bytes of device memory at once, lane %d has %zu",
                       plan->in_bytes + plan->out_bytes, lane->index, lane->large_bytes);
    ks_status taken = arena ? ks_cuda_large_take(lane, plan, error) : KS_OK;
    if (!taken) taken = ks_cuda_workspace_take(lane, plan, batch->count < 1 ? 1 : batch->count, error);
    if (taken) return launch_failed(lane, taken);
    ks_cuda_clock_probe_read(lane);
    lane->launch_ns = lane->asked_ns = ks_cuda_now_ns();
    lane->path = path;
    lane->batch = batch;
    next_sequence(lane);
    batch->graph = KS_GRAPH_NONE;
    if (lane->path == KS_PATH_TRIAL) {
        const ks_status tried = ks_cuda_trial_launch(lane, batch, error);
        return tried ? launch_failed(lane, tried) : KS_OK;
    }
    if (lane->path == KS_PATH_STAGED) { /* poll does all of it */
        lane->staged = KS_STAGED_IN;
        lane->job = 0;
        lane->moved_in = lane->asked = lane->moved_out = 0;
        return KS_OK;
    }
    if (on_slots(lane))
        ks_cuda_write_table(lane, batch, 0, batch->count);
    else
        line_clear(lane, batch->slots[0]);
    const ks_status status = lane->path == KS_PATH_DEVICE_BUFFER
                                 ? device_buffer_launch(lane, batch->plan, batch->slots[0], error)
                                 : enqueue(lane, batch, error);
    return status ? launch_failed(lane, status) : KS_OK;
}

/* backend.launch */
ks_status ks_cuda_launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    ks_nvtx_push(batch->trial > 0 ? KS_NVTX_TRIAL : KS_NVTX_LAUNCH);
    const ks_status status = launch_batch(lane, batch, error);
    ks_nvtx_pop();
    return status;
}

static void finish_times(ks_lane *lane, ks_batch *batch)
{
    const int64_t done = ks_cuda_now_ns();
    batch->h2d_ns = batch->d2h_ns = 0;
    batch->compute_ns = done - lane->launch_ns;
    batch->kernel_ns = -1;
    if (batch->step_ns) ks_cuda_chain_times(lane, batch);
    if (batch->plan->unstamped || batch->step_ns) return;
    if (on_slots(lane) && lane->path != KS_PATH_MOVED) {
        const ks_completion *completion = &lane->shared->completion;
        batch->kernel_ns = (int64_t)(completion->end_ns - completion->start_ns);
        ks_cuda_clock_sample(&lane->clock, done, lane->launch_ns - (int64_t)completion->start_ns,
                             done - (int64_t)completion->end_ns);
        lane->clock.tight_ns = done;
    } else if (batch->count == 1) {
        ks_completion *completion = completion_of(lane, batch->slots[0]);
        if (batch->plan->program && batch->plan->program->count > 1) completion->end_ns = completion[1].end_ns;
        batch->kernel_ns = (int64_t)(completion->end_ns - completion->start_ns);
        ks_cuda_clock_phases(lane, completion, done, batch);
        ks_cuda_clock_probe_later(lane, done);
    }
}

/* What the kernels of a batch that is done said of its values; a staged one's were read job by job. */
static ks_status read_words(ks_lane *lane, ks_error *error)
{
    if (lane->path == KS_PATH_TRIAL || lane->path == KS_PATH_STAGED) return KS_OK;
    if (on_slots(lane)) return ks_cuda_read_words(lane, error);
    return ks_cuda_read_word(lane, 0, completion_of(lane, lane->batch->slots[0]), error);
}

/* backend.poll */
ks_poll ks_cuda_poll(ks_lane *lane, ks_error *error)
{
    assert(lane->batch);
    ks_poll poll;
    if (ks_cuda_failed(lane->device)) {
        ks_fail(error, KS_DEVICE, "the device is lost");
        poll = KS_FAILED;
    } else if (lane->path == KS_PATH_TRIAL) {
        poll = wait_event(lane, lane->trial_event[1], error);
    } else if (lane->path == KS_PATH_STAGED) {
        poll = staged_step(lane, error);
    } else if (!line_shows(lane)) {
        poll = wait_line(lane, error);
    } else {
        poll = on_slots(lane) ? KS_DONE : wait_event(lane, lane->event, error);
    }
    if (poll == KS_DONE && read_words(lane, error)) poll = KS_FAILED;
    if (poll == KS_DONE) {
        ks_nvtx_push(KS_NVTX_COLLECT);
        if (lane->path == KS_PATH_TRIAL)
            ks_cuda_trial_finish(lane, lane->batch);
        else
            finish_times(lane, lane->batch);
        ks_cuda_large_give(lane);
        ks_cuda_workspace_give(lane);
        lane->batch = NULL;
        ks_nvtx_pop();
    } else if (poll == KS_FAILED) {
        launch_failed(lane, KS_DEVICE);
    }
    return poll;
}
