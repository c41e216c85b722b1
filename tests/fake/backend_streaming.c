#include "fake/backend_streaming.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake/fake_backend.h"
#include "kernserve/backends.h"

enum { PIECES_MAX = 64, RINGS_MAX = 64 };

typedef struct copy {
    bool in, early; /* early: a launch needed it, so it must still bring the same */
    int looks;      /* still to come; 0: none under way */
    unsigned char *device_buffer;
    unsigned char *buffer;
    size_t bytes;
} copy;

struct ks_ring {
    unsigned char *memory;
    size_t buffer_bytes;
    int buffers;
    bool failed[PIECES_MAX];
    copy copies[PIECES_MAX];
};

static struct {
    pthread_mutex_t lock; /* guards all of it, and the copies of all rings */
    size_t pool;
    int looks, fail_at, copies;
    bool hold;
    _Atomic bool lost;
    streaming_counts counts;
    ks_ring *rings[RINGS_MAX];
} bed = {.lock = PTHREAD_MUTEX_INITIALIZER, .pool = STREAMING_POOL, .looks = 3};

void streaming_reset(void)
{
    pthread_mutex_lock(&bed.lock);
    bed.looks = 3;
    bed.fail_at = bed.copies = 0;
    bed.hold = bed.lost = false;
    memset(&bed.counts, 0, sizeof bed.counts);
    pthread_mutex_unlock(&bed.lock);
}

void streaming_fail_copy(int n)
{
    bed.copies = 0;
    bed.fail_at = n;
}

void streaming_hold(bool hold)
{
    bed.hold = hold;
}

void streaming_looks(int looks)
{
    bed.looks = looks;
}

streaming_counts streaming_read(void)
{
    pthread_mutex_lock(&bed.lock);
    const streaming_counts counts = bed.counts;
    pthread_mutex_unlock(&bed.lock);
    return counts;
}

/* --- device buffers -----------------------------------------------------------------------------------------------------------
 */

/* in_device .. : in, pad, out, pad in one ring buffer of memory. */
static ks_status buffer_init(ks_device *device, size_t in_bytes, size_t out_bytes, ks_slot *device_buffer,
                             ks_error *error)
{
    (void)device;
    const size_t in_side = ks_align(in_bytes) + KS_PAD, out_side = ks_align(out_bytes) + KS_PAD;
    if (in_side + out_side > bed.pool)
        return ks_fail(error, KS_WORK, "%zu bytes exceed the %zu of the pool", in_side + out_side, bed.pool);
    pthread_mutex_lock(&bed.lock);
    const bool fits = bed.counts.bytes + in_side + out_side <= bed.pool;
    if (fits) {
        bed.counts.bytes += in_side + out_side;
        bed.counts.device_buffers++;
        if (bed.counts.device_buffers > bed.counts.device_buffers_most)
            bed.counts.device_buffers_most = bed.counts.device_buffers;
        if (bed.counts.bytes > bed.counts.bytes_most) bed.counts.bytes_most = bed.counts.bytes;
    }
    pthread_mutex_unlock(&bed.lock);
    if (!fits) return ks_fail(error, KS_BUDGET, "the pool is taken");
    memset(device_buffer, 0, sizeof *device_buffer);
    device_buffer->memory = aligned_alloc(KS_ALIGNMENT, in_side + out_side);
    assert(device_buffer->memory);
    memset(device_buffer->memory, 0xA5, in_side + out_side);
    device_buffer->in_device = device_buffer->memory;
    device_buffer->out_device = (unsigned char *)device_buffer->memory + in_side;
    device_buffer->in_cap = in_bytes;
    device_buffer->out_cap = out_bytes;
    return KS_OK;
}

static bool touches(const copy *one, const ks_slot *device_buffer)
{
    const unsigned char *end = (unsigned char *)device_buffer->out_device + ks_align(device_buffer->out_cap) + KS_PAD;
    return one->looks > 0 && one->device_buffer >= (unsigned char *)device_buffer->memory && one->device_buffer < end;
}

static void buffer_fini(ks_device *device, ks_slot *device_buffer)
{
    (void)device;
    pthread_mutex_lock(&bed.lock);
    for (int r = 0; r < RINGS_MAX; r++)
        for (int i = 0; bed.rings[r] && i < PIECES_MAX; i++)
            assert(bed.lost || !touches(&bed.rings[r]->copies[i], device_buffer));
    bed.counts.bytes -= ks_align(device_buffer->in_cap) + ks_align(device_buffer->out_cap) + 2 * KS_PAD;
    bed.counts.device_buffers--;
    pthread_mutex_unlock(&bed.lock);
    free(device_buffer->memory);
    memset(device_buffer, 0, sizeof *device_buffer);
}

/* --- rings -----------------------------------------------------------------------------------------------------------
 */

static ks_status ring_open(ks_device *device, int buffers, size_t buffer_bytes, ks_ring **out, unsigned char **memory,
                           ks_error *error)
{
    (void)device, (void)error;
    assert(buffers <= PIECES_MAX);
    ks_ring *ring = calloc(1, sizeof *ring);
    ring->memory = *memory = malloc((size_t)buffers * buffer_bytes);
    ring->buffer_bytes = buffer_bytes;
    ring->buffers = buffers;
    pthread_mutex_lock(&bed.lock);
    int r = 0;
    while (bed.rings[r]) r++;
    assert(r < RINGS_MAX);
    bed.rings[r] = ring;
    pthread_mutex_unlock(&bed.lock);
    *out = ring;
    return KS_OK;
}

/* With the lock. What a lost device still had to do it never does. */
static void finish(copy *one)
{
    if (!bed.lost && one->early)
        assert(memcmp(one->device_buffer, one->buffer, one->bytes) == 0);
    else if (!bed.lost)
        memcpy(one->in ? one->device_buffer : one->buffer, one->in ? one->buffer : one->device_buffer, one->bytes);
    memset(one, 0, sizeof *one);
    bed.counts.under_way--;
}

static void ring_close(ks_ring **ring)
{
    pthread_mutex_lock(&bed.lock);
    for (int i = 0; i < (*ring)->buffers; i++)
        if ((*ring)->copies[i].looks > 0) finish(&(*ring)->copies[i]);
    for (int r = 0; r < RINGS_MAX; r++)
        if (bed.rings[r] == *ring) bed.rings[r] = NULL;
    pthread_mutex_unlock(&bed.lock);
    free((*ring)->memory);
    free(*ring);
    *ring = NULL;
}

static ks_status begin_copy(ks_ring *ring, int buffer, copy made, ks_error *error)
{
    ks_status status = KS_OK;
    pthread_mutex_lock(&bed.lock);
    assert(ring->copies[buffer].looks == 0 && made.bytes > 0 && made.bytes <= ring->buffer_bytes);
    if (++bed.copies == bed.fail_at) bed.lost = true;
    if (bed.lost) {
        status = ks_fail(error, KS_DEVICE, "injected: the device is lost");
    } else {
        made.looks = bed.looks;
        made.buffer = ring->memory + (size_t)buffer * ring->buffer_bytes;
        ring->copies[buffer] = made;
        bed.counts.under_way++;
        *(made.in ? &bed.counts.copies_in : &bed.counts.copies_out) += 1;
        if (!made.in) memset(made.buffer, 0x5A, made.bytes);
    }
    pthread_mutex_unlock(&bed.lock);
    return status;
}

static ks_status copy_in(ks_ring *ring, int buffer, const ks_slot *device_buffer, size_t offset, size_t bytes,
                         ks_error *error)
{
    assert(offset + bytes <= device_buffer->in_cap);
    return begin_copy(
        ring, buffer,
        (copy){.in = true, .device_buffer = (unsigned char *)device_buffer->in_device + offset, .bytes = bytes}, error);
}

static ks_status copy_out(ks_ring *ring, int buffer, const ks_slot *device_buffer, size_t offset, size_t bytes,
                          ks_error *error)
{
    assert(offset + bytes <= device_buffer->out_cap);
    return begin_copy(ring, buffer,
                      (copy){.device_buffer = (unsigned char *)device_buffer->out_device + offset, .bytes = bytes},
                      error);
}

static ks_poll copy_poll(ks_ring *ring, int buffer, ks_error *error)
{
    ks_poll poll = KS_DONE;
    pthread_mutex_lock(&bed.lock);
    copy *one = &ring->copies[buffer];
    if (bed.lost) {
        ks_fail(error, KS_DEVICE, "injected: the device is lost");
        poll = KS_FAILED;
        if (one->looks > 0) finish(one);
    } else if (one->looks > 1 || (one->looks == 1 && bed.hold)) {
        if (one->looks > 1) one->looks--;
        poll = KS_RUNNING;
    } else if (one->looks == 1) {
        finish(one);
    }
    pthread_mutex_unlock(&bed.lock);
    return poll;
}

static const ks_large streaming = {.buffer_init = buffer_init,
                                   .buffer_fini = buffer_fini,
                                   .ring_open = ring_open,
                                   .ring_close = ring_close,
                                   .copy_in = copy_in,
                                   .copy_out = copy_out,
                                   .copy_poll = copy_poll};

/* --- the rest is the CPU's -------------------------------------------------------------------------------------------
 */

static ks_status open_device(const ks_limits *limits, ks_device **out, ks_error *error)
{
    bed.pool = limits->stream_bytes ? limits->stream_bytes : STREAMING_POOL;
    return fake_base->open(limits, out, error);
}

static void close_device(ks_device **device)
{
    assert(bed.counts.device_buffers == 0 || bed.lost);
    fake_base->close(device);
}

static void info(const ks_device *device, ks_device_info *out)
{
    fake_base->info(device, out);
    memcpy(out->uuid, STREAMING_UUID, sizeof STREAMING_UUID);
}

/* Copies in that were begun before come first, as on a GPU. The CPU's lane needs host addresses: they are the same, and
 * a launch's slot is not used for another one. */
static ks_status launch(ks_lane *lane, ks_batch *batch, ks_error *error)
{
    ks_slot *slot = batch->slots[0];
    assert(!slot->windows);
    if (slot->in) return fake_base->launch(lane, batch, error);
    assert(batch->count == 1);
    assert((uintptr_t)slot->in_device % KS_ALIGNMENT == 0 && (uintptr_t)slot->out_device % KS_ALIGNMENT == 0);
    pthread_mutex_lock(&bed.lock);
    const bool lost = bed.lost;
    for (int r = 0; !lost && r < RINGS_MAX; r++)
        for (int i = 0; bed.rings[r] && i < PIECES_MAX; i++) {
            copy *one = &bed.rings[r]->copies[i];
            const unsigned char *in = slot->in_device;
            if (one->looks > 0 && one->in && one->device_buffer < in + slot->in_cap &&
                in < one->device_buffer + one->bytes && !one->early) {
                memcpy(one->device_buffer, one->buffer, one->bytes);
                one->early = true;
            }
        }
    pthread_mutex_unlock(&bed.lock);
    if (lost) return ks_fail(error, KS_DEVICE, "injected: the device is lost");
    slot->in = slot->in_device;
    slot->out = slot->out_device;
    return fake_base->launch(lane, batch, error);
}

static bool failed(const ks_device *device)
{
    (void)device;
    return bed.lost;
}

/* --- client memory: a handle is the name of an object below /dev/shm ------------------------------------------------- */

static struct {
    void *memory;
    size_t bytes;
} imported[8]; /* under the lock */

static ks_status memory_import(ks_device *device, const unsigned char *handle, int device_index, size_t bytes,
                               void **out, ks_error *error)
{
    (void)device;
    char name[KS_HANDLE_BYTES + 1] = "";
    memcpy(name, handle, KS_HANDLE_BYTES);
    const int fd = device_index == 0 ? shm_open(name, O_RDWR, 0) : -1;
    struct stat object;
    const bool holds = fd >= 0 && fstat(fd, &object) == 0 && (size_t)object.st_size >= bytes;
    void *memory = holds ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0) close(fd);
    pthread_mutex_lock(&bed.lock);
    size_t i = 0;
    while (i < sizeof imported / sizeof imported[0] && imported[i].memory) i++;
    if (memory != MAP_FAILED) {
        assert(i < sizeof imported / sizeof imported[0]);
        imported[i].memory = *out = memory;
        imported[i].bytes = bytes;
    }
    pthread_mutex_unlock(&bed.lock);
    return memory != MAP_FAILED ? KS_OK : ks_fail(error, KS_WINDOW, "no such memory");
}

static void memory_leave(ks_device *device, void *memory)
{
    (void)device;
    pthread_mutex_lock(&bed.lock);
    size_t i = 0;
    while (imported[i].memory != memory) i++;
    munmap(memory, imported[i].bytes);
    imported[i].memory = NULL;
    pthread_mutex_unlock(&bed.lock);
}

static ks_status memory_copy(ks_device *device, void *to, const void *from, size_t bytes, ks_error *error)
{
    (void)device, (void)error;
    memcpy(to, from, bytes);
    return KS_OK;
}

static const ks_client_memory client_memory = {.import = memory_import, .leave = memory_leave, .copy = memory_copy};

/* --- memory that stays --------------------------------------------------------------------------------------------- */

/* Which only a ring reaches: to the host it is as hidden as a GPU's. */
static struct {
    uint64_t limit;
    _Atomic uint64_t used;
} kept;

static ks_status resident_reserve(ks_device *device, uint64_t bytes, uint64_t *limit, ks_error *error)
{
    (void)device, (void)error;
    *limit = kept.limit = bytes ? bytes : (uint64_t)1 << 30;
    return KS_OK;
}

static ks_status resident_take(ks_device *device, size_t bytes, ks_slot *out, ks_error *error)
{
    (void)device;
    const size_t held = ks_align(bytes) + KS_PAD;
    void *memory = kept.used + bytes <= kept.limit ? aligned_alloc(KS_ALIGNMENT, ks_align(held)) : NULL;
    if (!memory) return ks_fail(error, KS_RESIDENT_FULL, "no piece of %zu bytes is free", bytes);
    memset(memory, 0x6B, held);
    kept.used += bytes;
    *out = (ks_slot){.memory = memory, .in_device = memory, .out_device = memory, .in_cap = bytes, .out_cap = bytes};
    return KS_OK;
}

static void resident_give(ks_device *device, ks_slot *memory)
{
    (void)device;
    pthread_mutex_lock(&bed.lock);
    for (int r = 0; r < RINGS_MAX; r++)
        for (int i = 0; bed.rings[r] && i < PIECES_MAX; i++)
            assert(bed.lost || !touches(&bed.rings[r]->copies[i], memory));
    pthread_mutex_unlock(&bed.lock);
    kept.used -= memory->in_cap;
    free(memory->memory);
    memset(memory, 0, sizeof *memory);
}

static ks_status resident_pack(ks_device *device, const ks_slot *from, const ks_slot *to, const ks_row_copy *rows,
                               ks_error *error)
{
    (void)device, (void)error;
    for (int64_t i = rows->first; i < rows->first + rows->count; i++)
        memcpy((unsigned char *)to->in_device + (size_t)i * rows->pitch_bytes,
               (const unsigned char *)from->in_device + (size_t)i * rows->row_bytes, rows->row_bytes);
    return KS_OK;
}

static void resident_trim(ks_device *device)
{
    (void)device;
}

static uint64_t resident_held(ks_device *device)
{
    (void)device;
    return kept.used;
}

static const ks_resident resident = {.reserve = resident_reserve,
                                     .take = resident_take,
                                     .give = resident_give,
                                     .pack = resident_pack,
                                     .trim = resident_trim,
                                     .held = resident_held};

const ks_backend *streaming_backend(void)
{
    static const fake_overrides overrides = {.calls = {.open = open_device,
                                                       .close = close_device,
                                                       .info = info,
                                                       .launch = launch,
                                                       .failed = failed,
                                                       .large = &streaming,
                                                       .client_memory = &client_memory,
                                                       .resident = &resident}};
    return fake_backend(ks_backend_cpu, &overrides);
}
