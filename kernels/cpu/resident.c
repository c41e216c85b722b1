/* Contents of resident tensors in ordinary memory: one range of addresses, of which pages are usable while something lies there.
 *
 * Owns      the mapping: reserved without access (PROT_NONE), a page made readable and writable when it is taken, and its memory given
 *           back with its access when it goes.
 * Interface ks_resident (include/kernserve/backend.h)
 * Threads   any: a lock around the range. What another owner left is cleared outside it: the area is the caller's by then.
 * Limits    a sixteenth and a page above the limit: of contents each takes KS_PAD and up to KS_ALIGNMENT more. */
#include "cpu/resident.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static const uint64_t LIMIT_MOST = (uint64_t)8 << 30; /* of the preset */

/* ks_range_map_fn. Large pages where there are some: 4 KiB ones cost a fault each. */
static bool map(void *context, size_t first_page, size_t pages)
{
    ks_cpu_memory *memory = context;
    unsigned char *at = memory->base + first_page * KS_RANGE_PAGE_BYTES;
    const size_t bytes = pages * KS_RANGE_PAGE_BYTES;
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return false;
    madvise(at, bytes, MADV_HUGEPAGE);
    return true;
}

/* ks_range_unmap_fn */
static void unmap(void *context, size_t first_page, size_t pages)
{
    ks_cpu_memory *memory = context;
    unsigned char *at = memory->base + first_page * KS_RANGE_PAGE_BYTES;
    madvise(at, pages * KS_RANGE_PAGE_BYTES, MADV_DONTNEED);
    mprotect(at, pages * KS_RANGE_PAGE_BYTES, PROT_NONE);
}

/* ks_resident.reserve */
static ks_status reserve(ks_device *device, uint64_t bytes, uint64_t *limit, ks_error *error)
{
    ks_cpu_memory *memory = &device->resident;
    if (bytes == 0) {
        bytes = device->info.memory_bytes / 8;
        if (bytes > LIMIT_MOST) bytes = LIMIT_MOST;
    }
    const uint64_t held = bytes + bytes / 16 + KS_RANGE_PAGE_BYTES;
    memory->addresses = ks_range_addresses(held, KS_RANGE_PAGE_BYTES);
    void *base = mmap(NULL, memory->addresses + KS_RANGE_PAGE_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory->range = ks_range_open(memory->addresses, held, KS_RANGE_PAGE_BYTES, map, unmap, memory);
    if (base == MAP_FAILED || !memory->range) {
        if (base != MAP_FAILED) munmap(base, memory->addresses + KS_RANGE_PAGE_BYTES);
        ks_range_close(&memory->range);
        return ks_fail(error, KS_MEMORY, "no %llu bytes of addresses for resident tensors (--resident-bytes): %s",
                       (unsigned long long)memory->addresses, strerror(errno));
    }
    /* On a page: what is left over in front and behind stays reserved, and costs nothing. */
    const uintptr_t start = ((uintptr_t)base + KS_RANGE_PAGE_BYTES - 1) / KS_RANGE_PAGE_BYTES * KS_RANGE_PAGE_BYTES;
    memory->reserved = base;
    memory->base = (unsigned char *)base + (start - (uintptr_t)base);
    pthread_mutex_init(&memory->lock, NULL);
    *limit = memory->limit = bytes;
    return KS_OK;
}

void ks_cpu_resident_close(ks_device *device)
{
    ks_cpu_memory *memory = &device->resident;
    if (!memory->range) return;
    ks_range_close(&memory->range);
    munmap(memory->reserved, memory->addresses + KS_RANGE_PAGE_BYTES);
    pthread_mutex_destroy(&memory->lock);
}

/* ks_resident.take */
static ks_status take(ks_device *device, size_t bytes, ks_slot *out, ks_error *error)
{
    ks_cpu_memory *memory = &device->resident;
    uint64_t at = 0;
    bool fresh = false;
    pthread_mutex_lock(&memory->lock);
    memory->quiet_turns = 0;
    const bool taken = bytes <= memory->limit && ks_range_take(memory->range, bytes + KS_PAD, &at, &fresh);
    pthread_mutex_unlock(&memory->lock);
    if (!taken) return ks_fail(error, KS_RESIDENT_FULL, "no memory is free for %zu bytes that stay", bytes);
    memset(out, 0, sizeof *out);
    out->in = out->out = memory->base + at;
    out->in_device = out->out_device = out->in;
    out->in_cap = out->out_cap = bytes;
    out->size_class = -1;
    if (!fresh) memset(out->in, 0, bytes + KS_PAD);
    return KS_OK;
}

/* ks_resident.give */
static void give(ks_device *device, ks_slot *slot)
{
    ks_cpu_memory *memory = &device->resident;
    pthread_mutex_lock(&memory->lock);
    ks_range_give(memory->range, (uint64_t)(slot->in - memory->base), slot->in_cap + KS_PAD);
    pthread_mutex_unlock(&memory->lock);
    memset(slot, 0, sizeof *slot);
}

/* ks_resident.pack */
static ks_status pack(ks_device *device, const ks_slot *from, const ks_slot *to, const ks_row_copy *rows,
                      ks_error *error)
{
    (void)device, (void)error;
    for (int64_t i = rows->first; i < rows->first + rows->count; i++)
        memcpy(to->in + (size_t)i * rows->pitch_bytes, from->in + (size_t)i * rows->row_bytes, rows->row_bytes);
    return KS_OK;
}

/* ks_resident.trim. Some pages at a time: takes of requests wait for the lock. */
static void trim(ks_device *device)
{
    ks_cpu_memory *memory = &device->resident;
    ks_cpu_arenas_rest(&device->arenas);
    if (!memory->range) return;
    pthread_mutex_lock(&memory->lock);
    const bool quiet = ++memory->quiet_turns >= KS_RANGE_QUIET_TURNS;
    pthread_mutex_unlock(&memory->lock);
    const size_t kept = quiet ? 0 : (size_t)(memory->limit / 16 / KS_RANGE_PAGE_BYTES);
    for (bool more = true; more;) {
        pthread_mutex_lock(&memory->lock);
        more = ks_range_trim(memory->range, kept, 16);
        pthread_mutex_unlock(&memory->lock);
    }
}

/* ks_resident.held */
static uint64_t held(ks_device *device)
{
    ks_cpu_memory *memory = &device->resident;
    pthread_mutex_lock(&memory->lock);
    const uint64_t bytes = ks_range_mapped_bytes(memory->range);
    pthread_mutex_unlock(&memory->lock);
    return bytes;
}

const ks_resident ks_cpu_resident = {
    .reserve = reserve, .take = take, .give = give, .pack = pack, .trim = trim, .held = held};
