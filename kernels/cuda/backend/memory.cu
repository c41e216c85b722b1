/* Slots: host memory of one request, carved from pinned chunks; overflow slots are mappings of their own.
 *
 * Pinning costs 1.5 ms per MB and a driver call each time, so a thousand slots share chunks. A pinned block only grows fuller;
 * it is given back when its last slot is. Layout of a slot, every part a multiple of KS_ALIGNMENT:
 *     in, in_cap | KS_PAD | KS_HEAD_ROOM | out, out_cap | KS_PAD
 * Threads: any (arena_lock); several shards take their slots at the same time, at start. */
#include "cuda/backend/internal.h"

#include <sys/mman.h>

static const size_t KS_PINNED_BLOCK_BYTES = 16 << 20; /* pinned at a time, then carved into slots */

/* With arena_lock. */
static ks_status pinned_block_open(ks_device *device, size_t least, ks_pinned_block **out, ks_error *error)
{
    ks_pinned_block *pinned_block = (ks_pinned_block *)calloc(1, sizeof *pinned_block);
    if (!pinned_block) return ks_fail(error, KS_MEMORY, "no memory for the record of a pinned chunk");
    pinned_block->size = least > KS_PINNED_BLOCK_BYTES ? least : KS_PINNED_BLOCK_BYTES;
    void *host = NULL, *seen = NULL;
    cudaError_t code = cudaHostAlloc(&host, pinned_block->size, cudaHostAllocMapped | cudaHostAllocPortable);
    if (code == cudaSuccess) code = cudaHostGetDevicePointer(&seen, host, 0);
    if (code != cudaSuccess) {
        const size_t size = pinned_block->size;
        if (host) cudaFreeHost(host);
        free(pinned_block);
        if (!ks_cuda_recoverable(code)) return ks_cuda_fault(device, code, "cudaHostAlloc", error);
        cudaGetLastError();
        return ks_fail(error, KS_MEMORY, "cudaHostAlloc of %zu bytes: %s (CUDA error %d)", size,
                       cudaGetErrorString(code), (int)code);
    }
    pinned_block->host = (unsigned char *)host;
    pinned_block->device = (unsigned char *)seen;
    pinned_block->next = device->pinned_blocks;
    device->pinned_blocks = pinned_block;
    *out = pinned_block;
    return KS_OK;
}

static void pinned_block_close(ks_device *device, ks_pinned_block *pinned_block)
{
    ks_pinned_block **link = &device->pinned_blocks;
    while (*link != pinned_block) link = &(*link)->next;
    *link = pinned_block->next;
    if (!ks_cuda_failed(device)) cudaFreeHost(pinned_block->host);
    free(pinned_block);
}

/* With arena_lock: room for one slot. */
static ks_status pinned_block_take(ks_device *device, size_t bytes, ks_pinned_block **out, size_t *at, ks_error *error)
{
    ks_pinned_block *pinned_block = device->pinned_blocks;
    while (pinned_block && pinned_block->size - pinned_block->used < bytes) pinned_block = pinned_block->next;
    if (!pinned_block) {
        const ks_status status = pinned_block_open(device, bytes, &pinned_block, error);
        if (status) return status;
    }
    *at = pinned_block->used;
    pinned_block->used += bytes;
    pinned_block->slots++;
    *out = pinned_block;
    return KS_OK;
}

/* Pinned memory of that size for a graph's copy nodes to be captured with: the address is replaced before each launch,
 * but it must be memory of the same kind. Any pinned block does; with none large enough one is taken for good. */
ks_status ks_cuda_stand_in(ks_device *device, size_t bytes, void **out, ks_error *error)
{
    ks_status status = KS_OK;
    pthread_mutex_lock(&device->arena_lock);
    ks_pinned_block *pinned_block = device->pinned_blocks;
    while (pinned_block && pinned_block->size < bytes) pinned_block = pinned_block->next;
    if (!pinned_block) {
        status = pinned_block_open(device, bytes, &pinned_block, error);
        if (!status) pinned_block->slots = 1;
    }
    if (!status) *out = pinned_block->host;
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
    ks_pinned_block *pinned_block = NULL;
    size_t at = 0;
    KS_TRY(device, error, ks_cuda_use(device));
    pthread_mutex_lock(&device->arena_lock);
    const ks_status status = pinned_block_take(device, in_cap + out_cap + SLOT_EXTRA, &pinned_block, &at, error);
    pthread_mutex_unlock(&device->arena_lock);
    if (status) return status;
    slot_lay_out(slot, pinned_block->host + at, in_cap, out_cap);
    memset(pinned_block->host + at, 0, in_cap + out_cap + SLOT_EXTRA);
    slot->in_device = pinned_block->device + (slot->in - pinned_block->host);
    slot->out_device = pinned_block->device + (slot->out - pinned_block->host);
    slot->memory = pinned_block;
    slot->pinned = true;
    return KS_OK;
}

/* backend.slot_init. A slot with an empty in side is pinned like any other: its out side is mapped.
 */
ks_status ks_cuda_slot_init(ks_device *device, size_t in_bytes, size_t out_bytes, bool pinned, ks_slot *slot,
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
void ks_cuda_slot_fini(ks_device *device, ks_slot *slot)
{
    if (!slot->memory) return;
    if (!slot->pinned) {
        munmap(slot->memory, slot->in_cap + slot->out_cap + SLOT_EXTRA);
    } else {
        ks_pinned_block *pinned_block = (ks_pinned_block *)slot->memory;
        pthread_mutex_lock(&device->arena_lock);
        if (--pinned_block->slots == 0) pinned_block_close(device, pinned_block);
        pthread_mutex_unlock(&device->arena_lock);
    }
    slot->memory = NULL;
    slot->in = slot->out = NULL;
    slot->in_device = slot->out_device = NULL;
    slot->pinned = false;
}

void ks_cuda_slots_close(ks_device *device)
{
    while (device->pinned_blocks) pinned_block_close(device, device->pinned_blocks);
}

/* --- client memory ------------------------------------------------------------------------------------------------------
 *
 * Pages of a shared mapping, pinned, and other processes' device memory, opened by CUDA IPC. Nothing of it is
 * touched by the host; launches copy from and to it, or client_memory.copy does. Threads: any. */

/* Whatever the code says: if the context is lost, the next launch will tell. */
static ks_status memory_refused(cudaError_t code, const char *call, ks_error *error)
{
    ks_cuda_say(code, call, error);
    if (error) error->status = KS_WINDOW;
    return KS_WINDOW;
}

/* client_memory.pin */
static ks_status memory_pin(ks_device *device, void *memory, size_t bytes, ks_error *error)
{
    KS_TRY(device, error, ks_cuda_use(device));
    const cudaError_t code = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    return code == cudaSuccess ? KS_OK : memory_refused(code, "cudaHostRegister", error);
}

/* client_memory.unpin */
static void memory_unpin(ks_device *device, void *memory)
{
    if (ks_cuda_use(device) == cudaSuccess) cudaHostUnregister(memory);
    cudaGetLastError();
}

/* The size of the allocation that an address lies in: the driver knows it, the runtime does not tell. */
static bool allocation_holds(void *memory, size_t bytes)
{
    typedef int get_range_fn(unsigned long long *base, size_t *size, unsigned long long address);
    void *found = NULL;
    unsigned long long base = 0;
    size_t size = 0;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &found, 3020, cudaEnableDefault, &result) !=
            cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
        return false;
    const unsigned long long address = (unsigned long long)(uintptr_t)memory;
    if (((get_range_fn *)found)(&base, &size, address) != 0) return false;
    return bytes <= size - (address - base);
}

/* client_memory.import. The device is asked for by its index in the client's eyes, which sees the same devices. */
static ks_status memory_import(ks_device *device, const unsigned char *handle, int device_index, size_t bytes,
                               void **out, ks_error *error)
{
    cudaIpcMemHandle_t read;
    static_assert(sizeof read == KS_HANDLE_BYTES, "a handle is what the protocol carries");
    memcpy(&read, handle, sizeof read);
    if (device_index != device->info.index)
        return ks_fail(error, KS_WINDOW, "device %d is not served here, %d is", device_index, device->info.index);
    KS_TRY(device, error, ks_cuda_use(device));
    const cudaError_t code = cudaIpcOpenMemHandle(out, read, cudaIpcMemLazyEnablePeerAccess);
    if (code != cudaSuccess) return memory_refused(code, "cudaIpcOpenMemHandle", error);
    if (allocation_holds(*out, bytes)) return KS_OK;
    cudaIpcCloseMemHandle(*out);
    cudaGetLastError();
    return ks_fail(error, KS_WINDOW, "the allocation has fewer than %zu bytes", bytes);
}

/* client_memory.leave */
static void memory_leave(ks_device *device, void *memory)
{
    if (ks_cuda_use(device) == cudaSuccess) cudaIpcCloseMemHandle(memory);
    cudaGetLastError();
}

/* client_memory.copy. cudaMemcpy alone may return while what came from unpinned host memory is still on its way. */
static ks_status memory_copy(ks_device *device, void *to, const void *from, size_t bytes, ks_error *error)
{
    KS_TRY(device, error, ks_cuda_use(device));
    KS_TRY(device, error, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread));
    KS_TRY(device, error, cudaStreamSynchronize(cudaStreamPerThread));
    return KS_OK;
}

const ks_client_memory ks_cuda_client_memory = {
    .pin = memory_pin, .unpin = memory_unpin, .import = memory_import, .leave = memory_leave, .copy = memory_copy};
