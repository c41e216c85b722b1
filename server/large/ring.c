/* The ring: buffers of pinned memory between the sockets and the device buffers. What a transfer writes may be read here by other
 * threads, too, while it is copied: a ring buffer is free when both have ended. */
#include <assert.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "large/large_parts.h"

enum { AHEAD = 2 };                        /* ring buffers of an answer asked for before they are wanted */
static const int64_t unused_ns = 50000000; /* a ring buffer that its owner has not begun to use is not taken before */

void ks_large_pause_at(ks_large_request *request, ks_large_pause pause)
{
    request->requests->paused[request->pause]--;
    request->requests->paused[pause]++;
    request->pause = pause;
}

static void free_ring_buffer(ks_ring_buffer *of)
{
    assert(atomic_load(&of->readers) == 0);
    memset(of, 0, sizeof *of);
}

static int index_of(const ks_large_requests *requests, const ks_ring_buffer *of)
{
    return (int)(of - requests->ring_buffers);
}

static unsigned char *bytes_of(const ks_large_requests *requests, const ks_ring_buffer *of)
{
    return requests->memory + (size_t)index_of(requests, of) * KS_RING_BUFFER_BYTES;
}

/* The transfer's reader is given what has been written since: whole steps, or all. */
static void tell(const ks_large_requests *requests, ks_ring_buffer *of, bool all)
{
    ks_large_request *owner = of->owner;
    const size_t end = of->offset + of->bytes, step = end - (all ? 0 : end % KS_RING_STEP);
    if (!owner->reader || step <= of->offset + of->told) return;
    const size_t from = of->told;
    of->told = step - of->offset;
    owner->reader(owner, bytes_of(requests, of) + from, of->told - from, &of->readers);
}

static void go(ks_large_requests *requests, ks_ring_buffer *of, ks_ring_buffer_state state)
{
    of->state = state;
    of->touched_ns = requests->now_ns;
    ks_turn_clock_start(&of->still, requests->now_ns);
    of->owner->under_way++;
    requests->under_way++;
    requests->copies++;
}

/* No copy of it is under way. It is free once no reader is left. */
static void leave_to_readers(ks_large_requests *requests, ks_ring_buffer *of)
{
    if (atomic_load(&of->readers) == 0) {
        free_ring_buffer(of);
        return;
    }
    of->state = KS_RING_BUFFER_READ;
    of->owner->under_way++;
    requests->under_way++;
}

/* A filling ring buffer goes to the device. */
static ks_status send_ring_buffer(ks_large_requests *requests, ks_ring_buffer *of)
{
    ks_large_request *owner = of->owner;
    ks_error error;
    owner->filling = -1;
    if (of->bytes == 0) {
        free_ring_buffer(of);
        return KS_OK;
    }
    tell(requests, of, true);
    const ks_status status = requests->large->copy_in(requests->ring, index_of(requests, of), &owner->device_buffer,
                                                      of->offset, of->bytes, &error);
    if (status != KS_OK) {
        leave_to_readers(requests, of);
        return ks_large_fail(owner, &error, status);
    }
    if (!owner->transfers) ks_large_came(owner, of->offset, of->bytes);
    go(requests, of, KS_RING_BUFFER_GOING);
    return KS_OK;
}

static void look_at_readers(ks_large_requests *requests, ks_ring_buffer *of)
{
    if (atomic_load(&of->readers) > 0) return;
    of->owner->under_way--;
    requests->under_way--;
    free_ring_buffer(of);
}

/* A copy that has ended. A lost device's copies count as ended: what they brought is not read. */
static void look_at_ring_buffer(ks_large_requests *requests, ks_ring_buffer *of)
{
    ks_error error;
    ks_large_request *owner = of->owner;
    if (of->state == KS_RING_BUFFER_READ) look_at_readers(requests, of);
    if (of->state != KS_RING_BUFFER_GOING && of->state != KS_RING_BUFFER_COMING) return;
    const ks_poll poll = requests->large->copy_poll(requests->ring, index_of(requests, of), &error);
    const int64_t passed_ns = ks_turn_clock_look(&of->still, requests->now_ns, requests->engine->gap_max_ns);
    const int64_t most_ns = requests->engine->options.stall_ns;
    if (poll == KS_RUNNING && passed_ns > most_ns) {
        ks_fail(&error, KS_DEVICE, "a copy has not ended within %.1f s, the limit is %.1f s", (double)passed_ns / 1e9,
                (double)most_ns / 1e9);
        ks_engine_count_error(requests->engine, KS_DEVICE);
        ks_engine_lose(requests->engine, &error);
    }
    if (poll == KS_RUNNING) return;
    owner->under_way--;
    requests->under_way--;
    requests->copies--;
    if (poll == KS_FAILED) ks_large_fail(owner, &error, KS_DEVICE);
    if (poll == KS_DONE && of->state == KS_RING_BUFFER_COMING && owner->state == KS_LARGE_OPEN) {
        of->state = KS_RING_BUFFER_READY;
        of->touched_ns = requests->now_ns;
    } else {
        leave_to_readers(requests, of);
    }
}

void ks_ring_look(ks_large_requests *requests)
{
    for (int i = 0; i < KS_RING_BUFFERS && requests->under_way > 0; i++)
        look_at_ring_buffer(requests, &requests->ring_buffers[i]);
}

/* A ring buffer that its owner waited for is kept until it has been used once, so that every request comes on; one that was fetched
 * ahead is not. */
static bool may_lose(const ks_large_requests *requests, const ks_ring_buffer *of)
{
    if (of->state != KS_RING_BUFFER_FILLING && of->state != KS_RING_BUFFER_READY) return false;
    if (requests->now_ns - of->touched_ns > unused_ns) return true;
    return of->state == KS_RING_BUFFER_FILLING ? of->bytes > 0 : of->read || of->offset > of->owner->reading;
}

static int held_by_transfers(const ks_large_requests *requests)
{
    int held = 0;
    for (int i = 0; i < KS_RING_BUFFERS; i++) {
        const ks_ring_buffer *one = &requests->ring_buffers[i];
        held += one->state != KS_RING_BUFFER_FREE && one->owner->transfers;
    }
    return held;
}

/* A free ring buffer. NULL: none yet. must: then the one that was least recently touched is taken from its owner. */
static ks_ring_buffer *take_ring_buffer(ks_large_requests *requests, ks_large_request *taker, bool must)
{
    ks_ring_buffer *oldest = NULL;
    bool soon = false;
    const bool shares = taker->transfers && requests->open > 0 && held_by_transfers(requests) >= KS_RING_TRANSFERS_MAX;
    for (int i = 0; i < KS_RING_BUFFERS; i++) {
        ks_ring_buffer *one = &requests->ring_buffers[i];
        if (one->state == KS_RING_BUFFER_FREE && shares) continue;
        if (one->state == KS_RING_BUFFER_FREE) {
            one->owner = taker;
            one->touched_ns = requests->now_ns;
            return one;
        }
        if (shares && !one->owner->transfers) continue;
        soon |= one->state == KS_RING_BUFFER_GOING || one->state == KS_RING_BUFFER_READ;
        if (one->owner != taker && may_lose(requests, one) && (!oldest || one->touched_ns < oldest->touched_ns))
            oldest = one;
    }
    if (!must || soon || !oldest) return NULL;
    if (oldest->state == KS_RING_BUFFER_FILLING) send_ring_buffer(requests, oldest);
    if (oldest->state == KS_RING_BUFFER_READY) free_ring_buffer(oldest);
    if (oldest->state != KS_RING_BUFFER_FREE) return NULL;
    oldest->owner = taker;
    oldest->touched_ns = requests->now_ns;
    return oldest;
}

static bool take_filling(ks_large_request *request)
{
    ks_large_requests *requests = request->requests;
    ks_ring_buffer *of = take_ring_buffer(requests, request, true);
    if (!of) return false;
    of->state = KS_RING_BUFFER_FILLING;
    request->filling = index_of(requests, of);
    return true;
}

/* --- in ------------------------------------------------------------------------------------------------------------ */

/* The device reads a ring buffer from memory and this core never does: stores past the caches fetch nothing of what they
 * overwrite, and leave the caches to what the kernel copies. */
static void copy_past_caches(unsigned char *to, const char *from, size_t n)
{
#ifdef __SSE2__
    const size_t before = -(uintptr_t)to % 64, head = before < n ? before : n;
    memcpy(to, from, head);
    to += head;
    from += head;
    n -= head;
    for (; n >= 64; n -= 64, to += 64, from += 64) {
        const __m128i *const queue = (const __m128i *)(const void *)from;
        const __m128i a = _mm_loadu_si128(queue), b = _mm_loadu_si128(queue + 1);
        const __m128i c = _mm_loadu_si128(queue + 2), d = _mm_loadu_si128(queue + 3);
        __m128i *const out = (__m128i *)(void *)to;
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    _mm_sfence(); /* before the copy begins */
#endif
    memcpy(to, from, n);
}

ks_status ks_ring_write(ks_large_request *request, size_t offset, const char *bytes, size_t n, size_t *taken)
{
    ks_large_requests *requests = request->requests;
    while (*taken < n) {
        if (request->filling < 0 && !take_filling(request)) {
            ks_large_pause_at(request, KS_PAUSE_ROOM);
            return request->status;
        }
        ks_ring_buffer *of = &requests->ring_buffers[request->filling];
        if (of->bytes == 0) of->offset = offset + *taken;
        if (of->offset + of->bytes == offset + *taken) {
            const size_t left = KS_RING_BUFFER_BYTES - of->bytes, size = n - *taken < left ? n - *taken : left;
            copy_past_caches(bytes_of(requests, of) + of->bytes, bytes + *taken, size);
            of->bytes += size;
            of->touched_ns = requests->now_ns;
            *taken += size;
            tell(requests, of, false);
            if (size < left) continue;
        }
        /* It is full, or the bytes do not follow its own: those of another input. */
        const ks_status status = send_ring_buffer(requests, of);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

void ks_ring_finish(ks_large_request *request)
{
    if (request->filling >= 0) send_ring_buffer(request->requests, &request->requests->ring_buffers[request->filling]);
}

/* --- out ----------------------------------------------------------------------------------------------------------- */

/* The large request's ring buffer that holds the byte, or will. */
static ks_ring_buffer *find_ring_buffer(ks_large_request *request, size_t offset)
{
    for (int i = 0; i < KS_RING_BUFFERS; i++) {
        ks_ring_buffer *one = &request->requests->ring_buffers[i];
        if (one->owner == request && (one->state == KS_RING_BUFFER_COMING || one->state == KS_RING_BUFFER_READY) &&
            one->offset <= offset && offset < one->offset + one->bytes)
            return one;
    }
    return NULL;
}

/* Asks for what is wanted next and, as far as ring buffers are free, for some more. */
static void ask_ring_buffers(ks_large_request *request)
{
    ks_large_requests *requests = request->requests;
    size_t at = request->reading;
    for (int i = 0; i < AHEAD && at < request->out_bytes && request->status == KS_OK; i++) {
        ks_ring_buffer *one = find_ring_buffer(request, at);
        if (!one) {
            one = take_ring_buffer(requests, request, i == 0);
            if (!one) return;
            ks_error error;
            const size_t left = request->out_bytes - at;
            one->offset = at;
            one->bytes = left < KS_RING_BUFFER_BYTES ? left : KS_RING_BUFFER_BYTES;
            const ks_status status = requests->large->copy_out(
                requests->ring, index_of(requests, one), &request->device_buffer, one->offset, one->bytes, &error);
            if (status != KS_OK) {
                free_ring_buffer(one);
                ks_large_fail(request, &error, status);
                return;
            }
            go(requests, one, KS_RING_BUFFER_COMING);
        }
        at = one->offset + one->bytes;
    }
}

size_t ks_large_view(ks_large_request *request, size_t offset, const char **bytes)
{
    ks_large_requests *requests = request->requests;
    request->reading = offset;
    ks_ring_buffer *one = find_ring_buffer(request, offset);
    if (one) look_at_ring_buffer(requests, one);
    if (request->status != KS_OK) return 0;
    if (!one || one->state != KS_RING_BUFFER_READY) {
        ask_ring_buffers(request);
        ks_large_pause_at(request, KS_PAUSE_DATA);
        return 0;
    }
    const size_t at = offset - one->offset;
    *bytes = (const char *)bytes_of(requests, one) + at;
    return one->bytes - at;
}

void ks_large_used(ks_large_request *request, size_t n)
{
    ks_large_requests *requests = request->requests;
    ks_ring_buffer *one = find_ring_buffer(request, request->reading);
    one->read = true;
    one->touched_ns = requests->now_ns;
    request->reading += n;
    if (request->reading < one->offset + one->bytes) return;
    free_ring_buffer(one);
    ask_ring_buffers(request);
}

/* --- for a turn ---------------------------------------------------------------------------------------------------- */

bool ks_ring_serves(ks_large_request *request)
{
    if (request->pause == KS_PAUSE_ROOM) return request->filling >= 0 || take_filling(request);
    const ks_ring_buffer *one = find_ring_buffer(request, request->reading);
    if (!one) ask_ring_buffers(request);
    return one && one->state == KS_RING_BUFFER_READY;
}

void ks_ring_leave(ks_large_request *request)
{
    for (int i = 0; i < KS_RING_BUFFERS; i++) {
        ks_ring_buffer *one = &request->requests->ring_buffers[i];
        if (one->owner == request && (one->state == KS_RING_BUFFER_FILLING || one->state == KS_RING_BUFFER_READY))
            leave_to_readers(request->requests, one);
    }
    request->filling = -1;
}
