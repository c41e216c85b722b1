/* Slots: host memory of one request, carved from pinned chunks; overflow slots are mappings of their own.
 *
 * Pinning costs 1.5 ms per MB and a driver call each time, so a thousand slots share chunks. A chunk only grows fuller;
 * it is given back when its last slot is. Layout of a slot, every part a multiple of KS_ALIGNMENT:
 *     in, in_cap | KS_PAD | KS_HEAD_ROOM | out, out_cap | KS_PAD
 * Threads: any (arena_lock); several shards take their slots at the same time, at start. */
#ifndef KS_BACKEND_CUDA_SLOTS_CUH
#define KS_BACKEND_CUDA_SLOTS_CUH

#include "backend_cuda_device.cuh"

#include <sys/mman.h>

static const size_t SLOT_PAD = KS_PAD, SLOT_HEAD_ROOM = KS_HEAD_ROOM, SLOT_ALIGNMENT = KS_ALIGNMENT;
static const size_t SLOT_EXTRA = SLOT_PAD + SLOT_HEAD_ROOM + SLOT_PAD;
static_assert(SLOT_PAD % SLOT_ALIGNMENT == 0 && SLOT_HEAD_ROOM % SLOT_ALIGNMENT == 0, "the sides stay aligned");

/* With arena_lock. */
static ks_status chunk_open(ks_device *device, size_t least, ks_chunk **out, ks_error *error)
{
    ks_chunk *chunk = (ks_chunk *)calloc(1, sizeof *chunk);
    if (!chunk) return ks_fail(error, KS_MEMORY, "no memory for the record of a pinned chunk");
    chunk->size = least > KS_CHUNK_BYTES ? least : KS_CHUNK_BYTES;
    void *host = NULL, *seen = NULL;
    cudaError_t code = cudaHostAlloc(&host, chunk->size, cudaHostAllocMapped | cudaHostAllocPortable);
    if (code == cudaSuccess) code = cudaHostGetDevicePointer(&seen, host, 0);
    if (code != cudaSuccess) {
        const size_t size = chunk->size;
        if (host) cudaFreeHost(host);
        free(chunk);
        if (!is_recoverable(code)) return judge(device, code, "cudaHostAlloc", error);
        cudaGetLastError();
        return ks_fail(error, KS_MEMORY, "cudaHostAlloc of %zu bytes: %s (CUDA error %d)", size,
                       cudaGetErrorString(code), (int)code);
    }
    chunk->host = (unsigned char *)host;
    chunk->device = (unsigned char *)seen;
    chunk->next = device->chunks;
    device->chunks = chunk;
    *out = chunk;
    return KS_OK;
}

static void chunk_close(ks_device *device, ks_chunk *chunk)
{
    ks_chunk **link = &device->chunks;
    while (*link != chunk) link = &(*link)->next;
    *link = chunk->next;
    if (!device_failed(device)) cudaFreeHost(chunk->host);
    free(chunk);
}

/* With arena_lock: room for one slot. */
static ks_status chunk_take(ks_device *device, size_t bytes, ks_chunk **out, size_t *at, ks_error *error)
{
    ks_chunk *chunk = device->chunks;
    while (chunk && chunk->size - chunk->used < bytes) chunk = chunk->next;
    if (!chunk) {
        const ks_status status = chunk_open(device, bytes, &chunk, error);
        if (status) return status;
    }
    *at = chunk->used;
    chunk->used += bytes;
    chunk->slots++;
    *out = chunk;
    return KS_OK;
}

/* Pinned memory of that size for a graph's copy nodes to be captured with: the address is replaced before each launch,
 * but it must be memory of the same kind. Any chunk does; with none large enough one is taken for good. */
static ks_status stand_in(ks_device *device, size_t bytes, void **out, ks_error *error)
{
    ks_status status = KS_OK;
    pthread_mutex_lock(&device->arena_lock);
    ks_chunk *chunk = device->chunks;
    while (chunk && chunk->size < bytes) chunk = chunk->next;
    if (!chunk) {
        status = chunk_open(device, bytes, &chunk, error);
        if (!status) chunk->slots = 1;
    }
    if (!status) *out = chunk->host;
    pthread_mutex_unlock(&device->arena_lock);
    return status;
}

static void slot_lay_out(ks_slot *slot, unsigned char *memory, size_t in_cap, size_t out_cap)
{
    slot->in = memory;
    slot->out = slot->in + in_cap + SLOT_PAD + SLOT_HEAD_ROOM;
    slot->in_cap = in_cap;
    slot->out_cap = out_cap;
    slot->in_device = slot->out_device = NULL;
    slot->pinned = false;
}

static ks_status slot_init_pinned(ks_device *device, size_t in_cap, size_t out_cap, ks_slot *slot, ks_error *error)
{
    ks_chunk *chunk = NULL;
    size_t at = 0;
    KS_TRY(device, error, use_device(device));
    pthread_mutex_lock(&device->arena_lock);
    const ks_status status = chunk_take(device, in_cap + out_cap + SLOT_EXTRA, &chunk, &at, error);
    pthread_mutex_unlock(&device->arena_lock);
    if (status) return status;
    slot_lay_out(slot, chunk->host + at, in_cap, out_cap);
    memset(chunk->host + at, 0, in_cap + out_cap + SLOT_EXTRA);
    slot->in_device = chunk->device + (slot->in - chunk->host);
    slot->out_device = chunk->device + (slot->out - chunk->host);
    slot->memory = chunk;
    slot->pinned = true;
    return KS_OK;
}

/* backend.slot_init. A slot with an empty in side is pinned like any other: its out side is mapped.
 */
static ks_status slot_init(ks_device *device, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
                           ks_error *error)
{
    const size_t in_cap = ks_align(in_bytes), out_cap = ks_align(out_bytes);
    if (in_cap < in_bytes || out_cap < out_bytes || in_cap > SIZE_MAX / 4 || out_cap > SIZE_MAX / 4)
        return ks_fail(error, KS_MEMORY, "a slot of %zu + %zu bytes exceeds the address space", in_bytes, out_bytes);
    if (pinned) {
        const ks_status status = slot_init_pinned(device, in_cap, out_cap, slot, error);
        if (status != KS_MEMORY || device->limits.pinned_must) return status;
        __atomic_store_n(&device->pageable, true, __ATOMIC_RELEASE);
    }
    const size_t bytes = in_cap + out_cap + SLOT_EXTRA;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return ks_fail(error, KS_MEMORY, "no memory for a slot of %zu bytes", bytes);
    if (pinned) /* stands for a pinned one: its pages come now; an overflow slot's come with its bytes */
        memset(memory, 0, bytes);
    else /* to give back 40 MiB in small pages keeps the shard for a millisecond and more */
        madvise(memory, bytes, MADV_HUGEPAGE);
    slot_lay_out(slot, (unsigned char *)memory, in_cap, out_cap);
    slot->memory = memory;
    return KS_OK;
}

/* backend.slot_fini */
static void slot_fini(ks_device *device, ks_slot *slot)
{
    if (!slot->memory) return;
    if (!slot->pinned) {
        munmap(slot->memory, slot->in_cap + slot->out_cap + SLOT_EXTRA);
    } else {
        ks_chunk *chunk = (ks_chunk *)slot->memory;
        pthread_mutex_lock(&device->arena_lock);
        if (--chunk->slots == 0) chunk_close(device, chunk);
        pthread_mutex_unlock(&device->arena_lock);
    }
    slot->memory = NULL;
    slot->in = slot->out = NULL;
    slot->in_device = slot->out_device = NULL;
    slot->pinned = false;
}

static void slots_close(ks_device *device)
{
    while (device->chunks) chunk_close(device, device->chunks);
}

#endif
