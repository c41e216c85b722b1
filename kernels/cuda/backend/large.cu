/* Streamed requests: areas of device memory from one pool, and a shard's ring of pinned pieces that fills and empties
 * them (ks_large in backend.h).
 *
 * The pool is one allocation made at open; areas lie in it in order of address, a new one at the first gap that holds it.
 * A ring has a CUDA stream for each direction, so that both are on the link at once. Order between a ring's copies in and
 * the lanes' kernels is kept by the area's own event; copies out are asked for only behind kernels that have ended.
 * Area  completion | out, pad | in, pad.     Threads  areas any (pool_lock), a ring its shard's. */
#include "cuda/backend/internal.h"

enum { RING_PIECES_MAX = 64 };
static const size_t POOL_MOST = (size_t)8 << 30, POOL_LEAST = 1 << 20;

struct ks_ring {
    ks_device *device;
    unsigned char *memory;
    bool pinned;
    cudaStream_t in, out;
    int pieces;
    size_t piece_bytes;
    cudaEvent_t event[RING_PIECES_MAX];
};

/* --- the pool ------------------------------------------------------------------------------------------------------- */

/* Takes what fits, halving from what is wanted; none at all leaves large requests to the staged way. The preset is a share
 * of what is free, so that processes that come later find memory on a device, too. */
ks_status ks_cuda_pool_open(ks_device *device, ks_error *error)
{
    size_t bytes = device->limits.stream_bytes, left = 0, whole = 0;
    if (!bytes) {
        KS_TRY_SOFT(error, cudaMemGetInfo(&left, &whole));
        bytes = left / 8 < POOL_MOST ? left / 8 : POOL_MOST;
    }
    for (bytes = ks_align(bytes); bytes >= POOL_LEAST; bytes = ks_align(bytes / 2)) {
        void *memory = NULL;
        const cudaError_t code = cudaMalloc(&memory, bytes);
        if (code == cudaSuccess) {
            device->pool = (unsigned char *)memory;
            device->pool_bytes = bytes;
            KS_TRY_SOFT(error, cudaMemset(memory, 0, bytes)); /* pads may be read before anything was written there */
            KS_TRY_SOFT(error, cudaStreamSynchronize(cudaStreamLegacy));
            return KS_OK;
        }
        if (!ks_cuda_recoverable(code)) return ks_cuda_judge(device, code, "cudaMalloc", error);
        cudaGetLastError();
    }
    return KS_OK;
}

void ks_cuda_pool_close(ks_device *device)
{
    while (device->areas) { /* of a shard that lost the device */
        ks_area *area = device->areas;
        device->areas = area->next;
        free(area);
    }
    if (device->pool && !ks_cuda_failed(device)) cudaFree(device->pool);
    device->pool = NULL;
}

/* With pool_lock: links the area in at the first gap. */
static bool pool_take(ks_device *device, ks_area *area)
{
    ks_area **link = &device->areas;
    size_t at = 0;
    while (*link && (*link)->at - at < area->bytes) {
        at = (*link)->at + (*link)->bytes;
        link = &(*link)->next;
    }
    if (!*link && device->pool_bytes - at < area->bytes) return false;
    area->at = at;
    area->next = *link;
    *link = area;
    return true;
}

/* --- areas ---------------------------------------------------------------------------------------------------------- */

static void area_give(ks_device *device, ks_area *area)
{
    pthread_mutex_lock(&device->pool_lock);
    ks_area **link = &device->areas;
    while (*link != area) link = &(*link)->next;
    *link = area->next;
    pthread_mutex_unlock(&device->pool_lock);
    if (area->filled && !ks_cuda_failed(device)) cudaEventDestroy(area->filled);
    free(area);
}

/* ks_large.area_init */
static ks_status area_init(ks_device *device, size_t in_bytes, size_t out_bytes, ks_slot *slot, ks_error *error)
{
    const size_t most = device->pool_bytes, out_side = KS_ALIGNMENT + ks_align(out_bytes) + KS_PAD;
    if (in_bytes > most || out_bytes > most || out_side + ks_align(in_bytes) + KS_PAD > most)
        return ks_fail(error, KS_WORK,
                       "%zu bytes in and %zu bytes out exceed the %zu bytes of device memory for large requests "
                       "(--stream-bytes)",
                       in_bytes, out_bytes, most);
    KS_TRY(device, error, ks_cuda_use(device));
    ks_area *area = (ks_area *)calloc(1, sizeof *area);
    if (!area) return ks_fail(error, KS_MEMORY, "no memory for the record of an area");
    area->bytes = out_side + ks_align(in_bytes) + KS_PAD;
    pthread_mutex_lock(&device->pool_lock);
    const bool taken = pool_take(device, area);
    pthread_mutex_unlock(&device->pool_lock);
    if (!taken) {
        free(area);
        return ks_fail(error, KS_BUDGET, "no device memory free for %zu bytes in and %zu bytes out", in_bytes,
                       out_bytes);
    }
    const cudaError_t code = cudaEventCreateWithFlags(&area->filled, cudaEventDisableTiming);
    if (code != cudaSuccess) {
        area_give(device, area);
        return ks_cuda_judge(device, code, "cudaEventCreateWithFlags", error);
    }
    memset(slot, 0, sizeof *slot);
    slot->memory = area;
    slot->out_device = device->pool + area->at + KS_ALIGNMENT;
    slot->in_device = device->pool + area->at + out_side;
    slot->in_cap = in_bytes;
    slot->out_cap = out_bytes;
    slot->size_class = -1;
    return KS_OK;
}

/* ks_large.area_fini */
static void area_fini(ks_device *device, ks_slot *slot)
{
    area_give(device, (ks_area *)slot->memory);
    memset(slot, 0, sizeof *slot);
}

/* Where a launch's stamps go: in front of its area's out side. */
ks_completion *ks_cuda_area_completion(const ks_device *device, const ks_slot *slot)
{
    return (ks_completion *)(void *)(device->pool + ((const ks_area *)slot->memory)->at + KS_ALIGNMENT - KS_LINE_BYTES);
}

/* --- rings ---------------------------------------------------------------------------------------------------------- */

static ks_status ring_memory(ks_ring *ring, ks_error *error)
{
    ks_device *device = ring->device;
    const size_t bytes = (size_t)ring->pieces * ring->piece_bytes;
    void *memory = NULL;
    const cudaError_t code = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
    ring->pinned = code == cudaSuccess;
    if (!ring->pinned) {
        if (!ks_cuda_recoverable(code) || device->limits.pinned_must)
            return ks_cuda_judge(device, code, "cudaHostAlloc", error);
        cudaGetLastError();
        memory = aligned_alloc(KS_ALIGNMENT, ks_align(bytes));
        if (!memory) return ks_fail(error, KS_MEMORY, "no memory for a ring of %zu bytes", bytes);
    }
    memset(memory, 0, bytes);
    ring->memory = (unsigned char *)memory;
    return KS_OK;
}

static ks_status ring_open_all(ks_ring *ring, ks_error *error)
{
    ks_device *device = ring->device;
    KS_TRY(device, error, ks_cuda_use(device));
    KS_TRY(device, error, cudaStreamCreateWithFlags(&ring->in, cudaStreamNonBlocking));
    KS_TRY(device, error, cudaStreamCreateWithFlags(&ring->out, cudaStreamNonBlocking));
    for (int i = 0; i < ring->pieces; i++)
        KS_TRY(device, error, cudaEventCreateWithFlags(&ring->event[i], cudaEventDisableTiming));
    return ring_memory(ring, error);
}

/* ks_large.ring_close. As with a lane: a lost context's things stay where they are. */
static void ring_close(ks_ring **taken)
{
    ks_ring *ring = *taken;
    *taken = NULL;
    if (!ring) return;
    if (!ks_cuda_failed(ring->device) && ks_cuda_use(ring->device) == cudaSuccess) {
        if (ring->in) cudaStreamSynchronize(ring->in);
        if (ring->out) cudaStreamSynchronize(ring->out);
        for (int i = 0; i < ring->pieces; i++)
            if (ring->event[i]) cudaEventDestroy(ring->event[i]);
        if (ring->in) cudaStreamDestroy(ring->in);
        if (ring->out) cudaStreamDestroy(ring->out);
        if (ring->memory && ring->pinned) cudaFreeHost(ring->memory);
        if (!ring->pinned) free(ring->memory);
        cudaGetLastError();
    }
    free(ring);
}

/* ks_large.ring_open */
static ks_status ring_open(ks_device *device, int pieces, size_t piece_bytes, ks_ring **out, unsigned char **memory,
                           ks_error *error)
{
    if (pieces < 1 || pieces > RING_PIECES_MAX)
        return ks_fail(error, KS_CONFIG, "a ring of %d pieces, at most %d", pieces, (int)RING_PIECES_MAX);
    ks_ring *ring = (ks_ring *)calloc(1, sizeof *ring);
    if (!ring) return ks_fail(error, KS_MEMORY, "no memory for the record of a ring");
    ring->device = device;
    ring->pieces = pieces;
    ring->piece_bytes = piece_bytes;
    const ks_status status = ring_open_all(ring, error);
    if (status) {
        ring_close(&ring);
        return status;
    }
    *out = ring;
    *memory = ring->memory;
    return KS_OK;
}

static unsigned char *piece_at(const ks_ring *ring, int piece)
{
    return ring->memory + (size_t)piece * ring->piece_bytes;
}

/* ks_large.piece_in */
static ks_status piece_in(ks_ring *ring, int piece, const ks_slot *area, size_t offset, size_t bytes, ks_error *error)
{
    ks_device *device = ring->device;
    if (ks_cuda_failed(device)) return ks_fail(error, KS_DEVICE, "the device is lost");
    KS_TRY(device, error,
           cudaMemcpyAsync((unsigned char *)area->in_device + offset, piece_at(ring, piece), bytes,
                           cudaMemcpyHostToDevice, ring->in));
    KS_TRY(device, error, cudaEventRecord(ring->event[piece], ring->in));
    KS_TRY(device, error, cudaEventRecord(((ks_area *)area->memory)->filled, ring->in));
    return KS_OK;
}

/* ks_large.piece_out */
static ks_status piece_out(ks_ring *ring, int piece, const ks_slot *area, size_t offset, size_t bytes, ks_error *error)
{
    ks_device *device = ring->device;
    if (ks_cuda_failed(device)) return ks_fail(error, KS_DEVICE, "the device is lost");
    KS_TRY(device, error,
           cudaMemcpyAsync(piece_at(ring, piece), (const unsigned char *)area->out_device + offset, bytes,
                           cudaMemcpyDeviceToHost, ring->out));
    KS_TRY(device, error, cudaEventRecord(ring->event[piece], ring->out));
    return KS_OK;
}

/* ks_large.piece_poll */
static ks_poll piece_poll(ks_ring *ring, int piece, ks_error *error)
{
    if (ks_cuda_failed(ring->device)) {
        ks_fail(error, KS_DEVICE, "the device is lost");
        return KS_FAILED;
    }
    const cudaError_t code = ks_cuda_quiet(cudaEventQuery(ring->event[piece]));
    if (code == cudaSuccess) return KS_DONE;
    if (code == cudaErrorNotReady) return KS_RUNNING;
    ks_cuda_judge(ring->device, code, "cudaEventQuery", error);
    return KS_FAILED;
}

const ks_large ks_cuda_large = {
    .area_init = area_init,
    .area_fini = area_fini,
    .ring_open = ring_open,
    .ring_close = ring_close,
    .piece_in = piece_in,
    .piece_out = piece_out,
    .piece_poll = piece_poll,
};
