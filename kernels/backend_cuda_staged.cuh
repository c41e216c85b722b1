/* Waiting for a launch, and the staged way of a batch: slots in ordinary memory, one job after the other.
 *
 * The in side goes out in pieces of KS_PIECE_BYTES through lane 0's pinned ring, one piece a poll; then the kernels;
 * then the out side comes back the same way, KS_STAGES pieces asked for ahead. A piece's place in the ring is free once
 * the event behind its copy is done; between the two directions the stream's order keeps them apart. A lane without a
 * ring copies from and to ordinary memory, piece by piece, and leaves the staging to the driver. */
#ifndef KS_BACKEND_CUDA_STAGED_CUH
#define KS_BACKEND_CUDA_STAGED_CUH

#include "backend_cuda_lanes.cuh"

static void next_sequence(ks_lane *lane)
{
    if (++lane->sequence == 0) lane->sequence = 1;
}

/* A copied job's block, in front of its slot's in side. */
static void write_header(ks_lane *lane, const ks_plan *plan, ks_slot *slot)
{
    const ks_place place = place_of(lane, plan);
    ks_block *block = (ks_block *)(void *)(slot->in - KS_JOB_HEADER);
    block->sequence = lane->sequence;
    block->count = 1;
    block->entry[0] = (ks_entry){.in = place.in, .out = place.out};
}

static bool line_shows(const ks_lane *lane)
{
    return __atomic_load_n(&lane->shared->line.sequence, __ATOMIC_ACQUIRE) == lane->sequence;
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

static size_t piece(size_t bytes, size_t at)
{
    return bytes - at < KS_PIECE_BYTES ? bytes - at : KS_PIECE_BYTES;
}

static int ring_index(size_t at)
{
    return (int)(at / KS_PIECE_BYTES % KS_STAGES);
}

/* One piece of the in side (its header included) goes out. */
static ks_status staged_in(ks_lane *lane, const ks_plan *plan, ks_slot *slot, size_t bytes, ks_error *error)
{
    ks_device *device = lane->device;
    const size_t at = lane->moved_in, size = piece(bytes, at);
    const void *source = slot->in - KS_JOB_HEADER + at;
    if (lane->ring) {
        void *stage = lane->ring + (size_t)ring_index(at) * KS_PIECE_BYTES;
        memcpy(stage, source, size);
        source = stage;
    }
    KS_TRY(device, error,
           cudaMemcpyAsync(place_of(lane, plan).base + at, source, size, cudaMemcpyHostToDevice, lane->stream));
    if (lane->ring) KS_TRY(device, error, cudaEventRecord(lane->ring_event[ring_index(at)], lane->stream));
    lane->moved_in += size;
    return KS_OK;
}

/* Asks for as many pieces of the out side as the ring holds; they arrive in order. */
static ks_status staged_ask(ks_lane *lane, const ks_plan *plan, ks_error *error)
{
    ks_device *device = lane->device;
    while (lane->asked < plan->out_bytes && lane->asked - lane->moved_out < (size_t)KS_STAGES * KS_PIECE_BYTES) {
        const size_t at = lane->asked, size = piece(plan->out_bytes, at);
        KS_TRY(device, error,
               cudaMemcpyAsync(lane->ring + (size_t)ring_index(at) * KS_PIECE_BYTES, place_of(lane, plan).out + at,
                               size, cudaMemcpyDeviceToHost, lane->stream));
        KS_TRY(device, error, cudaEventRecord(lane->ring_event[ring_index(at)], lane->stream));
        lane->asked += size;
    }
    return KS_OK;
}

/* One piece of the out side arrives in the slot. KS_DONE: the piece is there. */
static ks_poll staged_out(ks_lane *lane, const ks_plan *plan, ks_slot *slot, ks_error *error)
{
    const size_t at = lane->moved_out, size = piece(plan->out_bytes, at);
    if (lane->ring) {
        const ks_poll poll = wait_event(lane, lane->ring_event[ring_index(at)], error);
        if (poll != KS_DONE) return poll;
        memcpy(slot->out + at, lane->ring + (size_t)ring_index(at) * KS_PIECE_BYTES, size);
        lane->moved_out += size;
        return staged_ask(lane, plan, error) ? KS_FAILED : KS_DONE;
    }
    if (!line_shows(lane)) return wait_line(lane, error); /* such a copy blocks until the kernels before it ended */
    const cudaError_t code =
        cudaMemcpyAsync(slot->out + at, place_of(lane, plan).out + at, size, cudaMemcpyDeviceToHost, lane->stream);
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
    const size_t bytes = KS_JOB_HEADER + plan->in_bytes;
    if (lane->ring) {
        const ks_poll poll = wait_event(lane, lane->ring_event[ring_index(lane->moved_in)], error);
        if (poll != KS_DONE) return poll;
    }
    if (lane->moved_in == 0) write_header(lane, plan, slot);
    if (staged_in(lane, plan, slot, bytes, error)) return KS_FAILED;
    if (lane->moved_in < bytes) return KS_RUNNING;
    if (record_kernels(lane, plan, KS_PATH_STAGED, 1, error)) {
        ask_stream(lane);
        return KS_FAILED;
    }
    if (lane->ring && staged_ask(lane, plan, error)) return KS_FAILED;
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
        if (lane->moved_out < batch->plan->out_bytes) {
            const ks_poll poll = staged_out(lane, batch->plan, slot, error);
            if (poll != KS_DONE || lane->moved_out < batch->plan->out_bytes)
                return poll == KS_FAILED ? poll : KS_RUNNING;
        }
        const cudaError_t code = cudaEventRecord(lane->event, lane->stream);
        if (code != cudaSuccess) {
            judge(lane->device, code, "cudaEventRecord", error);
            return KS_FAILED;
        }
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
