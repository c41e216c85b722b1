/* Lanes: a stream, its device memory and its mapped lines; opening and closing them.
 * Device memory of a lane, one allocation:  ticket | counters | status words | arena (completion, out, pad, in, pad). The workspace, the arena
 * of models, and the large arena that lane 0 of a shard has beside, are ranges whose memory is mapped when a launch needs it, and goes back
 * when none did for some turns. Lane 0 also has the pinned ring of staged requests. */
#include "cuda/backend/chain.h"
#include "cuda/backend/internal.h"
#include "cuda/common/nvtx.h"

/* The arena's own share: the completion, both pads, and what aligning two sides costs. */
static const size_t ARENA_EXTRA = 3 * SLOT_ALIGNMENT + 2 * SLOT_PAD;
/* Most plans with a workspace need less. A page takes some 0.1 ms to map and to clear. */
static const size_t WORKSPACE_PAGE_BYTES = 8 << 20;

static ks_status device_memory(ks_lane *lane, size_t bytes, unsigned char **out, ks_error *error)
{
    void *memory = NULL;
    const cudaError_t code = cudaMalloc(&memory, bytes);
    if (code != cudaSuccess) {
        if (!ks_cuda_recoverable(code)) return ks_cuda_fault(lane->device, code, "cudaMalloc", error);
        cudaGetLastError();
        return ks_fail(error, KS_MEMORY, "cudaMalloc of %zu bytes for a lane: %s (CUDA error %d)", bytes,
                       cudaGetErrorString(code), (int)code);
    }
    *out = (unsigned char *)memory;
    /* Pads may be read before anything was written there, and ticket, counters and stamps start at 0. */
    KS_TRY(lane->device, error, cudaMemsetAsync(memory, 0, bytes, lane->stream));
    return KS_OK;
}

/* A copied job is seen by its completion, whose start stamp is not 0: a library's kernels leave what the last ones wrote. */
static ks_status line_open(ks_lane *lane, unsigned char *arena, ks_error *error)
{
    KS_TRY(lane->device, error,
           cudaMemsetAsync(arena + KS_ALIGNMENT - KS_COMPLETION_BYTES, 1, sizeof(uint64_t), lane->stream));
    return KS_OK;
}

static ks_status lane_open_memory(ks_lane *lane, ks_error *error)
{
    const ks_limits *limits = &lane->device->limits;
    const size_t bytes = CONTROL_BYTES + ks_align(limits->lane_bytes) + ARENA_EXTRA;
    const ks_status status = device_memory(lane, bytes, &lane->memory, error);
    if (status) return status;
    lane->counters = (uint32_t *)(void *)(lane->memory + KS_ALIGNMENT);
    lane->words = (uint64_t *)(void *)(lane->memory + KS_ALIGNMENT + COUNTERS_BYTES);
    lane->arena = lane->memory + CONTROL_BYTES;
    return line_open(lane, lane->arena, error);
}

/* --- what is mapped when a launch needs it ------------------------------------------------------------------------------ */

/* In whole pages: an area of them is taken and given without a bit for each of its units. */
static size_t workspace_pages(size_t bytes)
{
    return (bytes + KS_PAD + WORKSPACE_PAGE_BYTES - 1) / WORKSPACE_PAGE_BYTES * WORKSPACE_PAGE_BYTES;
}

static ks_status lane_open_workspace(ks_lane *lane, ks_error *error)
{
    const uint64_t wanted = workspace_pages(ks_align(lane->device->limits.workspace_bytes));
    uint64_t bytes = wanted;
    const ks_status status =
        ks_cuda_reserve_open(lane->device, &bytes, WORKSPACE_PAGE_BYTES, &lane->workspace_reserve, error);
    if (status) return status;
    lane->workspace = lane->workspace_reserve.base;
    if (bytes < wanted)
        return ks_fail(error, KS_MEMORY, "no device memory for a workspace of %zu bytes",
                       lane->device->limits.workspace_bytes);
    return KS_OK;
}

/* What all lanes have of something is what the one that has least has. */
static void lower_to(size_t *fits, size_t bytes)
{
    size_t least = __atomic_load_n(fits, __ATOMIC_ACQUIRE);
    while (bytes < least &&
           !__atomic_compare_exchange_n(fits, &least, bytes, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    }
}

/* Addresses; or, of a driver that maps no pages, as much memory as the workspace has, at once: most daemons have no models. */
static ks_status lane_open_model(ks_lane *lane, ks_error *error)
{
    const ks_limits *limits = &lane->device->limits;
    const bool at_once = lane->workspace_reserve.whole && limits->workspace_bytes < limits->model_bytes;
    const uint64_t wanted = workspace_pages(ks_align(at_once ? limits->workspace_bytes : limits->model_bytes));
    uint64_t bytes = wanted;
    if (limits->model_bytes == 0) return KS_OK;
    const ks_status status =
        ks_cuda_reserve_open(lane->device, &bytes, WORKSPACE_PAGE_BYTES, &lane->model_reserve, error);
    if (status && status != KS_MEMORY) return status;
    lane->model = lane->model_reserve.base;
    if (status) bytes = 0;
    if (at_once || bytes < wanted) lower_to(&lane->device->model_fits, bytes < KS_PAD ? 0 : (size_t)bytes - KS_PAD);
    return KS_OK;
}

/* Of so many jobs. A library's plan may be done by our kernels instead, which need as much as a lane has at most. */
static size_t workspace_need(const ks_lane *lane, const ks_plan *plan, int jobs)
{
    if (plan->unstamped && !plan->program) return lane->device->limits.workspace_bytes;
    return plan->workspace_bytes << (plan->join_rows ? 0 : ks_bucket(jobs));
}

/* The only area of its range: it lies at the start. */
static bool take_start(ks_reserve *reserve, size_t bytes, size_t *taken)
{
    bool fresh = false;
    if (bytes == 0) return true;
    if (!ks_cuda_reserve_take(reserve, workspace_pages(bytes), &fresh)) return false;
    *taken = workspace_pages(bytes);
    return true;
}

static void give_start(ks_reserve *reserve, size_t *taken)
{
    if (*taken) ks_cuda_reserve_give(reserve, reserve->base, *taken);
    *taken = 0;
}

ks_status ks_cuda_workspace_take(ks_lane *lane, const ks_plan *plan, int jobs, ks_error *error)
{
    const size_t need = workspace_need(lane, plan, jobs),
                 between = plan->program ? ks_cuda_chain_arena_bytes(plan->program) : 0;
    if (!take_start(&lane->workspace_reserve, need, &lane->workspace_taken))
        return ks_fail(error, KS_MEMORY, "no device memory is free for %zu bytes of partial results", need);
    if (!take_start(&lane->model_reserve, between, &lane->model_taken))
        return ks_fail(error, KS_MEMORY, "no device memory is free for %zu bytes of values between a model's nodes",
                       between);
    return KS_OK;
}

void ks_cuda_workspace_give(ks_lane *lane)
{
    give_start(&lane->workspace_reserve, &lane->workspace_taken);
    give_start(&lane->model_reserve, &lane->model_taken);
}

static void list_lane(ks_lane *lane)
{
    ks_device *device = lane->device;
    pthread_mutex_lock(&device->pool_lock);
    lane->next = device->lanes;
    device->lanes = lane;
    lane->listed = true;
    pthread_mutex_unlock(&device->pool_lock);
}

static void unlist_lane(ks_lane *lane)
{
    ks_device *device = lane->device;
    if (!lane->listed) return;
    pthread_mutex_lock(&device->pool_lock);
    ks_lane **link = &device->lanes;
    while (*link != lane) link = &(*link)->next;
    *link = lane->next;
    pthread_mutex_unlock(&device->pool_lock);
}

void ks_cuda_lanes_rest(ks_device *device)
{
    pthread_mutex_lock(&device->pool_lock);
    for (ks_lane *lane = device->lanes; lane; lane = lane->next) {
        ks_cuda_reserve_rest(&lane->workspace_reserve);
        ks_cuda_reserve_rest(&lane->model_reserve);
        ks_cuda_reserve_narrow(&lane->model_reserve);
        ks_cuda_reserve_rest(&lane->large_reserve);
    }
    pthread_mutex_unlock(&device->pool_lock);
}

/* Addresses; or, of a driver that maps no pages, the memory that fits: prepare refuses what exceeds it. */
static ks_status lane_open_large(ks_lane *lane, ks_error *error)
{
    ks_device *device = lane->device;
    if (device->limits.large_bytes <= device->limits.lane_bytes) return KS_OK;
    uint64_t bytes = ks_align(device->limits.large_bytes) + ARENA_EXTRA;
    const ks_status status = ks_cuda_reserve_open(device, &bytes, KS_RESERVE_PAGE_BYTES, &lane->large_reserve, error);
    if (status && status != KS_MEMORY) return status;
    if (!status) {
        lane->large = lane->large_reserve.base;
        lane->large_bytes = (size_t)bytes - ARENA_EXTRA;
    }
    lower_to(&device->large_fits, lane->large_bytes);
    return KS_OK;
}

/* The only area of its range: it lies at the start. */
ks_status ks_cuda_large_take(ks_lane *lane, const ks_plan *plan, ks_error *error)
{
    const size_t bytes = plan->in_bytes + plan->out_bytes + ARENA_EXTRA;
    bool fresh = false;
    if (!ks_cuda_reserve_take(&lane->large_reserve, bytes, &fresh))
        return ks_fail(error, KS_MEMORY, "no device memory is free for %zu bytes of a request at once", bytes);
    lane->large_taken = bytes;
    return fresh ? line_open(lane, lane->large, error) : KS_OK;
}

void ks_cuda_large_give(ks_lane *lane)
{
    if (lane->large_taken) ks_cuda_reserve_give(&lane->large_reserve, lane->large, lane->large_taken);
    lane->large_taken = 0;
}

/* The ranges of a lane that is closed; what runs there has ended. */
static void lane_close_ranges(ks_lane *lane)
{
    unlist_lane(lane);
    ks_cuda_reserve_close(&lane->workspace_reserve);
    ks_cuda_reserve_close(&lane->model_reserve);
    ks_cuda_reserve_close(&lane->large_reserve);
}

/* Without the ring staged requests still work, by the driver's own staging; so a refusal is no error here. */
static ks_status lane_open_ring(ks_lane *lane, ks_error *error)
{
    void *memory = NULL;
    const cudaError_t code =
        cudaHostAlloc(&memory, (size_t)KS_COPY_CHUNKS * KS_COPY_CHUNK_BYTES, cudaHostAllocPortable);
    if (code != cudaSuccess) {
        if (!ks_cuda_recoverable(code) || lane->device->limits.pinned_must)
            return ks_cuda_fault(lane->device, code, "cudaHostAlloc", error);
        cudaGetLastError();
        return KS_OK;
    }
    lane->ring = (unsigned char *)memory;
    for (int i = 0; i < KS_COPY_CHUNKS; i++)
        KS_TRY(lane->device, error, cudaEventCreateWithFlags(&lane->ring_event[i], cudaEventDisableTiming));
    return KS_OK;
}

static ks_status lane_open_all(ks_lane *lane, ks_error *error)
{
    ks_device *device = lane->device;
    KS_TRY(device, error, ks_cuda_use(device));
    KS_TRY(device, error, cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
    ks_nvtx_name_lane(lane->stream, lane->index);
    KS_TRY(device, error, cudaEventCreateWithFlags(&lane->event, cudaEventDisableTiming));
    void *shared = NULL, *seen = NULL;
    KS_TRY(device, error, cudaHostAlloc(&shared, sizeof(ks_lane_shared), cudaHostAllocMapped | cudaHostAllocPortable));
    lane->shared = (ks_lane_shared *)shared;
    memset(shared, 0, sizeof(ks_lane_shared));
    KS_TRY(device, error, cudaHostGetDevicePointer(&seen, shared, 0));
    lane->shared_device = (ks_lane_shared *)seen;
    ks_status status = lane_open_memory(lane, error);
    if (!status) status = lane_open_workspace(lane, error);
    if (!status) status = lane_open_model(lane, error);
    if (!status && lane->index == 0) status = lane_open_large(lane, error);
    if (!status && lane->index == 0) status = lane_open_ring(lane, error);
    if (status) return status;
    list_lane(lane);
    KS_TRY(device, error, cudaStreamSynchronize(lane->stream));
    return KS_OK;
}

/* backend.lane_close. A lost context may block for ever in any call: its things stay where they are. */
void ks_cuda_lane_close(ks_lane **taken)
{
    ks_lane *lane = *taken;
    *taken = NULL;
    if (!lane) return;
    const bool alive = !ks_cuda_failed(lane->device) && ks_cuda_use(lane->device) == cudaSuccess;
    if (alive && lane->stream) cudaStreamSynchronize(lane->stream);
    lane_close_ranges(lane);
    if (alive) {
        for (int i = 0; i < KS_COPY_CHUNKS; i++)
            if (lane->ring_event[i]) cudaEventDestroy(lane->ring_event[i]);
        if (lane->ring) cudaFreeHost(lane->ring);
        if (lane->memory) cudaFree(lane->memory);
        if (lane->shared) cudaFreeHost(lane->shared);
        if (lane->event) cudaEventDestroy(lane->event);
        for (int i = 0; i < 2; i++)
            if (lane->trial_event[i]) cudaEventDestroy(lane->trial_event[i]);
        for (int i = 0; i < lane->step_events; i++) cudaEventDestroy(lane->step_event[i]);
        if (lane->stream) cudaStreamDestroy(lane->stream);
        cudaGetLastError();
    }
    free(lane->step_event);
    free(lane);
}

/* backend.lane_open. wake_fd: nothing here finishes on another host thread, the shard polls. */
ks_status ks_cuda_lane_open(ks_device *device, int index, int wake_fd, ks_lane **out, ks_error *error)
{
    (void)wake_fd;
    if (index < 0 || index >= KS_LANES_MAX)
        return ks_fail(error, KS_CONFIG, "lane %d, a shard has at most %d", index, (int)KS_LANES_MAX);
    ks_lane *lane = (ks_lane *)calloc(1, sizeof *lane);
    if (!lane) return ks_fail(error, KS_MEMORY, "no memory for the record of a lane");
    lane->device = device;
    lane->index = index;
    lane->clock = device->clock;
    const ks_status status = lane_open_all(lane, error);
    if (status) {
        ks_cuda_lane_close(&lane);
        return status;
    }
    *out = lane;
    return KS_OK;
}
