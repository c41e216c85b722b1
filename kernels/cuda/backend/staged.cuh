/* Waiting for a launch, and the staged way of a batch: slots in ordinary memory, one job after the other.
 *
 * The in side goes out in pieces of KS_PIECE_BYTES through lane 0's pinned ring, one piece a poll; then the kernels;
 * then the out side comes back the same way, KS_STAGES pieces asked for ahead. A piece's place in the ring is free once
 * the event behind its copy is done; between the two directions the stream's order keeps them apart. A lane without a
 * ring copies from and to ordinary memory, piece by piece, and leaves the staging to the driver. */
#ifndef KS_BACKEND_CUDA_STAGED_CUH
#define KS_BACKEND_CUDA_STAGED_CUH

#include "backend_cuda_stream.cuh"

static void next_sequence(ks_lane *lane)
{
    if (++lane->sequence == 0) lane->sequence = 1;
}

/* A copied job's line arrives in front of its slot's out side, an area's in the lane's own memory. */
static ks_line *line_of(const ks_lane *lane, const ks_slot *slot)
{
    return slot->out ? (ks_line *)(void *)(slot->out - KS_LINE_BYTES) : &lane->shared->area_line;
}

static void line_clear(const ks_lane *lane, const ks_slot *slot)
{
    __atomic_store_n(&line_of(lane, slot)->start_ns, 0, __ATOMIC_RELEASE);
}

/* Mapped: the launch is done. Copies, areas: its kernels are, and the copy out has begun. */
static bool line_shows(const ks_lane *lane)
{
    if (lane->path == KS_PATH_MAPPED)
        return __atomic_load_n(&lane->shared->line.sequence, __ATOMIC_ACQUIRE) == lane->sequence;
    return __atomic_load_n(&line_of(lane, lane->batch->slots[0])->start_ns, __ATOMIC_ACQUIRE) != 0;
}

/* While the line does not show the launch. The stream is asked only when it is late: asking costs the driver's lock. */
static ks_poll wait_line(ks_lane *lane, ks_error *error)
{
    const int64_t now = now_ns();
    if (now - lane->launch_ns < KS_LATE_NS || now - lane->asked_ns < KS_LATE_STEP_NS) return KS_RUNNING;
    lane->asked_ns = now;
    const cudaError_t code = quiet(cudaStreamQuery(lane->stream));
    if (code == cudaErrorNotReady) return KS_RUNNING;
    if (code != cudaSuccess) {
        judge(lane->device, code, "cudaStreamQuery", error);
        return KS_FAILED;
    }
    if (line_shows(lane)) return KS_RUNNING; /* came just now: the next poll reads it */
    ks_fail(error, KS_DEVICE, "%s: the kernels ended without their mark", lane->batch->plan->spec.op->name);
    return KS_FAILED;
}

static ks_poll wait_event(ks_lane *lane, cudaEvent_t event, ks_error *error)
{
    const cudaError_t code = quiet(cudaEventQuery(event));
    if (code == cudaSuccess) return KS_DONE;
    if (code == cudaErrorNotReady) return KS_RUNNING;
    judge(lane->device, code, "cudaEventQuery", error);
    return KS_FAILED;
}

static ks_status event_record(ks_lane *lane, ks_error *error)
{
    KS_TRY(lane->device, error, cudaEventRecord(lane->event, lane->stream));
    return KS_OK;
}

static size_t piece(size_t bytes, size_t at)
{
    return bytes - at < KS_PIECE_BYTES ? bytes - at : KS_PIECE_BYTES;
}

static int ring_index(size_t at)
{
    return (int)(at / KS_PIECE_BYTES % KS_STAGES);
}

/* One piece of the in side goes out. */
static ks_status staged_in(ks_lane *lane, const ks_plan *plan, ks_slot *slot, size_t bytes, ks_error *error)
{
    ks_device *device = lane->device;
    const size_t at = lane->moved_in, size = piece(bytes, at);
    const void *source = slot->in + at;
    if (lane->ring) {
        void *stage = lane->ring + (size_t)ring_index(at) * KS_PIECE_BYTES;
        memcpy(stage, source, size);
        source = stage;
    }
    KS_TRY(device, error,
           cudaMemcpyAsync(place_of(lane, plan).in + at, source, size, cudaMemcpyHostToDevice, lane->stream));
    if (lane->ring) KS_TRY(device, error, cudaEventRecord(lane->ring_event[ring_index(at)], lane->stream));
    lane->moved_in += size;
    return KS_OK;
}

/* Asks for as many pieces of the out side as the ring holds; they arrive in order. */
static ks_status staged_ask(ks_lane *lane, const ks_plan *plan, ks_error *error)
{
    ks_device *device = lane->device;
    const size_t bytes = KS_LINE_BYTES + plan->out_bytes;
    while (lane->asked < bytes && lane->asked - lane->moved_out < (size_t)KS_STAGES * KS_PIECE_BYTES) {
        const size_t at = lane->asked, size = piece(bytes, at);
        KS_TRY(device, error,
               cudaMemcpyAsync(lane->ring + (size_t)ring_index(at) * KS_PIECE_BYTES, place_of(lane, plan).line + at,
                               size, cudaMemcpyDeviceToHost, lane->stream));
        KS_TRY(device, error, cudaEventRecord(lane->ring_event[ring_index(at)], lane->stream));
        lane->asked += size;
    }
    return KS_OK;
}

/* One piece of the out side arrives in the slot. KS_DONE: the piece is there. */
static ks_poll staged_out(ks_lane *lane, const ks_plan *plan, ks_slot *slot, ks_error *error)
{
    const size_t at = lane->moved_out, size = piece(KS_LINE_BYTES + plan->out_bytes, at);
    unsigned char *line = (unsigned char *)line_of(lane, slot);
    if (lane->ring) {
        const ks_poll poll = wait_event(lane, lane->ring_event[ring_index(at)], error);
        if (poll != KS_DONE) return poll;
        memcpy(line + at, lane->ring + (size_t)ring_index(at) * KS_PIECE_BYTES, size);
        lane->moved_out += size;
        return staged_ask(lane, plan, error) ? KS_FAILED : KS_DONE;
    }
    const ks_poll kernels = wait_event(lane, lane->event, error); /* such a copy blocks until they ended */
    if (kernels != KS_DONE) return kernels;
    const cudaError_t code =
        cudaMemcpyAsync(line + at, place_of(lane, plan).line + at, size, cudaMemcpyDeviceToHost, lane->stream);
    if (code != cudaSuccess) {
        judge(lane->device, code, "cudaMemcpyAsync", error);
        return KS_FAILED;
    }
    lane->moved_out += size;
    return KS_DONE;
}

/* Sends the next piece; behind the last one the kernels and the way back. */
static ks_poll staged_send(ks_lane *lane, const ks_plan *plan, ks_slot *slot, ks_error *error)
{
    const size_t bytes = plan->in_bytes;
    if (lane->ring) {
        const ks_poll poll = wait_event(lane, lane->ring_event[ring_index(lane->moved_in)], error);
        if (poll != KS_DONE) return poll;
    }
    if (staged_in(lane, plan, slot, bytes, error)) return KS_FAILED;
    if (lane->moved_in < bytes) return KS_RUNNING;
    if (record_kernels(lane, plan, KS_PATH_STAGED, 1, error)) {
        ask_stream(lane);
        return KS_FAILED;
    }
    if (lane->ring ? staged_ask(lane, plan, error) != KS_OK : event_record(lane, error) != KS_OK) return KS_FAILED;
    lane->stage = KS_STAGE_OUT;
    return KS_RUNNING;
}

/* One step of the staged batch; KS_DONE: all its jobs are done. */
static ks_poll staged_step(ks_lane *lane, ks_error *error)
{
    ks_batch *batch = lane->batch;
    ks_slot *slot = batch->slots[lane->job];
    if (lane->stage == KS_STAGE_IN) return staged_send(lane, batch->plan, slot, error);
    if (lane->stage == KS_STAGE_OUT) {
        const ks_poll poll = staged_out(lane, batch->plan, slot, error);
        if (poll != KS_DONE || lane->moved_out < KS_LINE_BYTES + batch->plan->out_bytes)
            return poll == KS_FAILED ? poll : KS_RUNNING;
        if (event_record(lane, error)) return KS_FAILED;
        lane->stage = KS_STAGE_LAST;
    }
    const ks_poll poll = wait_event(lane, lane->event, error);
    if (poll != KS_DONE || lane->job + 1 == batch->count) return poll;
    lane->job++;
    lane->stage = KS_STAGE_IN;
    lane->moved_in = lane->asked = lane->moved_out = 0;
    next_sequence(lane);
    return KS_RUNNING;
}

#endif
