/* Large requests: device buffers of device memory from one pool, and a shard's ring of pinned ring buffers that fills and empties
 * them (ks_large in backend.h).
 *
 * The pool is a reserved range (reserve.cu): its pages are mapped for the first buffers that need them, and go back when no buffer was
 * there for some turns. A ring has a CUDA stream for each direction, so that both are on the link at once. Order between a ring's
 * copies in and the lanes' kernels is kept by the device buffer's own event; copies out are asked for only behind kernels that have ended.
 * Buffer  completion | out, pad | in, pad.     Threads  device buffers any (pool_lock), a ring its shard's. */
#include "cuda/backend/internal.h"

enum { RING_BUFFERS_MAX = 64 };
static const size_t POOL_MOST = (size_t)8 << 30;

struct ks_ring {
    ks_device *device;
    unsigned char *memory;
    bool pinned;
    cudaStream_t in, out;
    int buffers;
    size_t buffer_bytes;
    cudaEvent_t event[RING_BUFFERS_MAX];
};

/* --- the pool ------------------------------------------------------------------------------------------------------- */

/* The preset is a share of what is free, so that processes that come later find memory on a device, too. None at all leaves large
 * requests to the staged way. */
ks_status ks_cuda_pool_open(ks_device *device, ks_error *error)
{
    uint64_t bytes = device->limits.stream_bytes;
    size_t left = 0, whole = 0;
    if (!bytes) {
        KS_TRY_SOFT(error, cudaMemGetInfo(&left, &whole));
        bytes = left / 8 < POOL_MOST ? left / 8 : POOL_MOST;
    }
    const ks_status status = ks_cuda_reserve_open(device, &bytes, KS_RESERVE_PAGE_BYTES, &device->pool, error);
    device->pool_bytes = status ? 0 : (size_t)bytes;
    return status == KS_MEMORY ? KS_OK : status;
}

void ks_cuda_pool_close(ks_device *device)
{
    while (device->device_buffers) { /* of a shard that lost the device */
        ks_device_buffer *device_buffer = device->device_buffers;
        device->device_buffers = device_buffer->next;
        free(device_buffer);
    }
    ks_cuda_reserve_close(&device->pool);
}

/* --- device buffers ---------------------------------------------------------------------------------------------------------- */

static void link_buffer(ks_device *device, ks_device_buffer *device_buffer)
{
    pthread_mutex_lock(&device->pool_lock);
    device_buffer->next = device->device_buffers;
    device->device_buffers = device_buffer;
    pthread_mutex_unlock(&device->pool_lock);
}

static void device_buffer_give(ks_device *device, ks_device_buffer *device_buffer)
{
    pthread_mutex_lock(&device->pool_lock);
    ks_device_buffer **link = &device->device_buffers;
    while (*link != device_buffer) link = &(*link)->next;
    *link = device_buffer->next;
    pthread_mutex_unlock(&device->pool_lock);
    ks_cuda_reserve_give(&device->pool, device_buffer->memory, device_buffer->bytes);
    if (device_buffer->filled && !ks_cuda_failed(device)) cudaEventDestroy(device_buffer->filled);
    free(device_buffer);
}

/* ks_large.buffer_init */
static ks_status buffer_init(ks_device *device, size_t in_bytes, size_t out_bytes, ks_slot *slot, ks_error *error)
{
    const size_t most = device->pool_bytes, out_side = KS_ALIGNMENT + ks_align(out_bytes) + KS_PAD;
    bool fresh;
    if (in_bytes > most || out_bytes > most || out_side + ks_align(in_bytes) + KS_PAD > most)
        return ks_fail(error, KS_WORK,
                       "%zu bytes in and %zu bytes out exceed the %zu bytes of device memory for large requests "
                       "(--stream-bytes)",
                       in_bytes, out_bytes, most);
    KS_TRY(device, error, ks_cuda_use(device));
    ks_device_buffer *device_buffer = (ks_device_buffer *)calloc(1, sizeof *device_buffer);
    if (!device_buffer) return ks_fail(error, KS_MEMORY, "no memory for the record of an area");
    device_buffer->bytes = out_side + ks_align(in_bytes) + KS_PAD;
    device_buffer->memory = ks_cuda_reserve_take(&device->pool, device_buffer->bytes, &fresh);
    if (!device_buffer->memory) {
        free(device_buffer);
        return ks_fail(error, KS_BUDGET, "no device memory free for %zu bytes in and %zu bytes out", in_bytes,
                       out_bytes);
    }
    link_buffer(device, device_buffer);
    const cudaError_t code = cudaEventCreateWithFlags(&device_buffer->filled, cudaEventDisableTiming);
    if (code != cudaSuccess) {
        device_buffer_give(device, device_buffer);
        return ks_cuda_fault(device, code, "cudaEventCreateWithFlags", error);
    }
    memset(slot, 0, sizeof *slot);
    slot->memory = device_buffer;
    slot->out_device = device_buffer->memory + KS_ALIGNMENT;
    slot->in_device = device_buffer->memory + out_side;
    slot->in_cap = in_bytes;
    slot->out_cap = out_bytes;
    slot->size_class = -1;
    return KS_OK;
}

/* ks_large.buffer_fini */
static void buffer_fini(ks_device *device, ks_slot *slot)
{
    device_buffer_give(device, (ks_device_buffer *)slot->memory);
    memset(slot, 0, sizeof *slot);
}

/* Where a launch's stamps go: in front of its device buffer's out side. */
ks_completion *ks_cuda_buffer_completion(const ks_slot *slot)
{
    return (ks_completion *)(void *)(((const ks_device_buffer *)slot->memory)->memory + KS_ALIGNMENT -
                                     KS_COMPLETION_BYTES);
}

/* --- rings ---------------------------------------------------------------------------------------------------------- */

static ks_status ring_memory(ks_ring *ring, ks_error *error)
{
    ks_device *device = ring->device;
    const size_t bytes = (size_t)ring->buffers * ring->buffer_bytes;
    void *memory = NULL;
    const cudaError_t code = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
    ring->pinned = code == cudaSuccess;
    if (!ring->pinned) {
        if (!ks_cuda_recoverable(code) || device->limits.pinned_must)
            return ks_cuda_fault(device, code, "cudaHostAlloc", error);
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
    for (int i = 0; i < ring->buffers; i++)
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
        for (int i = 0; i < ring->buffers; i++)
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
static ks_status ring_open(ks_device *device, int buffers, size_t buffer_bytes, ks_ring **out, unsigned char **memory,
                           ks_error *error)
{
    if (buffers < 1 || buffers > RING_BUFFERS_MAX)
        return ks_fail(error, KS_CONFIG, "a ring of %d pieces, at most %d", buffers, (int)RING_BUFFERS_MAX);
    ks_ring *ring = (ks_ring *)calloc(1, sizeof *ring);
    if (!ring) return ks_fail(error, KS_MEMORY, "no memory for the record of a ring");
    ring->device = device;
    ring->buffers = buffers;
    ring->buffer_bytes = buffer_bytes;
    const ks_status status = ring_open_all(ring, error);
    if (status) {
        ring_close(&ring);
        return status;
    }
    *out = ring;
    *memory = ring->memory;
    return KS_OK;
}

static unsigned char *buffer_at(const ks_ring *ring, int buffer)
{
    return ring->memory + (size_t)buffer * ring->buffer_bytes;
}

/* ks_large.copy_in */
static ks_status copy_in(ks_ring *ring, int buffer, const ks_slot *device_buffer, size_t offset, size_t bytes,
                         ks_error *error)
{
    ks_device *device = ring->device;
    if (ks_cuda_failed(device)) return ks_fail(error, KS_DEVICE, "the device is lost");
    KS_TRY(device, error,
           cudaMemcpyAsync((unsigned char *)device_buffer->in_device + offset, buffer_at(ring, buffer), bytes,
                           cudaMemcpyHostToDevice, ring->in));
    KS_TRY(device, error, cudaEventRecord(ring->event[buffer], ring->in));
    const cudaEvent_t filled = ((const ks_device_buffer *)device_buffer->memory)->filled;
    if (filled) KS_TRY(device, error, cudaEventRecord(filled, ring->in));
    return KS_OK;
}

/* ks_large.copy_out */
static ks_status copy_out(ks_ring *ring, int buffer, const ks_slot *device_buffer, size_t offset, size_t bytes,
                          ks_error *error)
{
    ks_device *device = ring->device;
    if (ks_cuda_failed(device)) return ks_fail(error, KS_DEVICE, "the device is lost");
    KS_TRY(device, error,
           cudaMemcpyAsync(buffer_at(ring, buffer), (const unsigned char *)device_buffer->out_device + offset, bytes,
                           cudaMemcpyDeviceToHost, ring->out));
    KS_TRY(device, error, cudaEventRecord(ring->event[buffer], ring->out));
    return KS_OK;
}

/* ks_large.copy_poll */
static ks_poll copy_poll(ks_ring *ring, int buffer, ks_error *error)
{
    if (ks_cuda_failed(ring->device)) {
        ks_fail(error, KS_DEVICE, "the device is lost");
        return KS_FAILED;
    }
    const cudaError_t code = ks_cuda_quiet(cudaEventQuery(ring->event[buffer]));
    if (code == cudaSuccess) return KS_DONE;
    if (code == cudaErrorNotReady) return KS_RUNNING;
    ks_cuda_fault(ring->device, code, "cudaEventQuery", error);
    return KS_FAILED;
}

const ks_large ks_cuda_large = {
    .buffer_init = buffer_init,
    .buffer_fini = buffer_fini,
    .ring_open = ring_open,
    .ring_close = ring_close,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_poll = copy_poll,
};
