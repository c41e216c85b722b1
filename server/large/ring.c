/* The ring: pieces of pinned memory between the sockets and the areas. */
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "large/large_parts.h"

enum { AHEAD = 2 };                        /* pieces of an answer asked for before they are wanted */
static const int64_t unused_ns = 50000000; /* a piece that its owner has not begun to use is not taken before */

void ks_stream_pause_at(ks_stream *stream, ks_stream_pause pause)
{
    stream->streams->paused[stream->pause]--;
    stream->streams->paused[pause]++;
    stream->pause = pause;
}

static void free_piece(ks_piece *of)
{
    memset(of, 0, sizeof *of);
}

static int index_of(const ks_streams *streams, const ks_piece *of)
{
    return (int)(of - streams->pieces);
}

static unsigned char *bytes_of(const ks_streams *streams, const ks_piece *of)
{
    return streams->memory + (size_t)index_of(streams, of) * KS_RING_PIECE_BYTES;
}

static void go(ks_streams *streams, ks_piece *of, ks_piece_state state)
{
    of->state = state;
    of->touched_ns = streams->now_ns;
    ks_turn_clock_start(&of->still, streams->now_ns);
    of->owner->under_way++;
    streams->under_way++;
}

/* A filling piece goes to the device. */
static ks_status send_piece(ks_streams *streams, ks_piece *of)
{
    ks_stream *owner = of->owner;
    ks_error error;
    owner->filling = -1;
    if (of->bytes == 0) {
        free_piece(of);
        return KS_OK;
    }
    const ks_status status =
        streams->large->piece_in(streams->ring, index_of(streams, of), &owner->area, of->offset, of->bytes, &error);
    if (status != KS_OK) {
        free_piece(of);
        return ks_stream_fail(owner, &error, status);
    }
    ks_stream_came(owner, of->offset, of->bytes);
    go(streams, of, KS_PIECE_GOING);
    return KS_OK;
}

/* A copy that has ended. A lost device's copies count as ended: nobody reads what they brought. */
static void look_at_piece(ks_streams *streams, ks_piece *of)
{
    ks_error error;
    ks_stream *owner = of->owner;
    if (of->state != KS_PIECE_GOING && of->state != KS_PIECE_COMING) return;
    const ks_poll poll = streams->large->piece_poll(streams->ring, index_of(streams, of), &error);
    const int64_t passed_ns = ks_turn_clock_look(&of->still, streams->now_ns, streams->engine->gap_max_ns);
    const int64_t most_ns = streams->engine->options.stall_ns;
    if (poll == KS_RUNNING && passed_ns > most_ns) {
        ks_fail(&error, KS_DEVICE, "a copy has not ended within %.1f s, the limit is %.1f s", (double)passed_ns / 1e9,
                (double)most_ns / 1e9);
        ks_engine_count_error(streams->engine, KS_DEVICE);
        ks_engine_lose(streams->engine, &error);
    }
    if (poll == KS_RUNNING) return;
    owner->under_way--;
    streams->under_way--;
    if (poll == KS_FAILED) ks_stream_fail(owner, &error, KS_DEVICE);
    if (poll == KS_DONE && of->state == KS_PIECE_COMING && owner->state == KS_STREAM_OPEN) {
        of->state = KS_PIECE_READY;
        of->touched_ns = streams->now_ns;
    } else {
        free_piece(of);
    }
}

void ks_ring_look(ks_streams *streams)
{
    for (int i = 0; i < KS_RING_PIECES && streams->under_way > 0; i++) look_at_piece(streams, &streams->pieces[i]);
}

/* A piece that its owner waited for is kept until it has been used once, so that everybody comes on; one that was fetched
 * ahead is not. */
static bool may_lose(const ks_streams *streams, const ks_piece *of)
{
    if (of->state != KS_PIECE_FILLING && of->state != KS_PIECE_READY) return false;
    if (streams->now_ns - of->touched_ns > unused_ns) return true;
    return of->state == KS_PIECE_FILLING ? of->bytes > 0 : of->read || of->offset > of->owner->reading;
}

/* A free piece. NULL: none yet. must: then the one that was least recently touched is taken from its owner. */
static ks_piece *take_piece(ks_streams *streams, ks_stream *taker, bool must)
{
    ks_piece *oldest = NULL;
    bool soon = false;
    for (int i = 0; i < KS_RING_PIECES; i++) {
        ks_piece *one = &streams->pieces[i];
        if (one->state == KS_PIECE_FREE) {
            one->owner = taker;
            one->touched_ns = streams->now_ns;
            return one;
        }
        soon |= one->state == KS_PIECE_GOING;
        if (one->owner != taker && may_lose(streams, one) && (!oldest || one->touched_ns < oldest->touched_ns))
            oldest = one;
    }
    if (!must || soon || !oldest) return NULL;
    if (oldest->state == KS_PIECE_FILLING) send_piece(streams, oldest);
    if (oldest->state == KS_PIECE_READY) free_piece(oldest);
    if (oldest->state != KS_PIECE_FREE) return NULL;
    oldest->owner = taker;
    oldest->touched_ns = streams->now_ns;
    return oldest;
}

static bool take_filling(ks_stream *stream)
{
    ks_streams *streams = stream->streams;
    ks_piece *of = take_piece(streams, stream, true);
    if (!of) return false;
    of->state = KS_PIECE_FILLING;
    stream->filling = index_of(streams, of);
    return true;
}

/* --- in ------------------------------------------------------------------------------------------------------------ */

/* The device reads a piece from memory and this core never does: stores past the caches fetch nothing of what they
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
        const __m128i *const line = (const __m128i *)(const void *)from;
        const __m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
        const __m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
        __m128i *const out = (__m128i *)(void *)to;
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    _mm_sfence(); /* before the device is told */
#endif
    memcpy(to, from, n);
}

ks_status ks_ring_write(ks_stream *stream, size_t offset, const char *bytes, size_t n, size_t *taken)
{
    ks_streams *streams = stream->streams;
    while (*taken < n) {
        if (stream->filling < 0 && !take_filling(stream)) {
            ks_stream_pause_at(stream, KS_PAUSE_ROOM);
            return stream->status;
        }
        ks_piece *of = &streams->pieces[stream->filling];
        if (of->bytes == 0) of->offset = offset + *taken;
        if (of->offset + of->bytes == offset + *taken) {
            const size_t left = KS_RING_PIECE_BYTES - of->bytes, size = n - *taken < left ? n - *taken : left;
            copy_past_caches(bytes_of(streams, of) + of->bytes, bytes + *taken, size);
            of->bytes += size;
            of->touched_ns = streams->now_ns;
            *taken += size;
            if (size < left) continue;
        }
        /* It is full, or the bytes do not follow its own: those of another input. */
        const ks_status status = send_piece(streams, of);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

void ks_ring_finish(ks_stream *stream)
{
    if (stream->filling >= 0) send_piece(stream->streams, &stream->streams->pieces[stream->filling]);
}

/* --- out ----------------------------------------------------------------------------------------------------------- */

/* The stream's piece that holds the byte, or will. */
static ks_piece *find_piece(ks_stream *stream, size_t offset)
{
    for (int i = 0; i < KS_RING_PIECES; i++) {
        ks_piece *one = &stream->streams->pieces[i];
        if (one->owner == stream && (one->state == KS_PIECE_COMING || one->state == KS_PIECE_READY) &&
            one->offset <= offset && offset < one->offset + one->bytes)
            return one;
    }
    return NULL;
}

/* Asks for what is wanted next and, as far as pieces are free, for some more. */
static void ask_pieces(ks_stream *stream)
{
    ks_streams *streams = stream->streams;
    size_t at = stream->reading;
    for (int i = 0; i < AHEAD && at < stream->out_bytes && stream->status == KS_OK; i++) {
        ks_piece *one = find_piece(stream, at);
        if (!one) {
            one = take_piece(streams, stream, i == 0);
            if (!one) return;
            ks_error error;
            const size_t left = stream->out_bytes - at;
            one->offset = at;
            one->bytes = left < KS_RING_PIECE_BYTES ? left : KS_RING_PIECE_BYTES;
            const ks_status status = streams->large->piece_out(streams->ring, index_of(streams, one), &stream->area,
                                                               one->offset, one->bytes, &error);
            if (status != KS_OK) {
                free_piece(one);
                ks_stream_fail(stream, &error, status);
                return;
            }
            go(streams, one, KS_PIECE_COMING);
        }
        at = one->offset + one->bytes;
    }
}

size_t ks_stream_view(ks_stream *stream, size_t offset, const char **bytes)
{
    ks_streams *streams = stream->streams;
    stream->reading = offset;
    ks_piece *one = find_piece(stream, offset);
    if (one) look_at_piece(streams, one);
    if (stream->status != KS_OK) return 0;
    if (!one || one->state != KS_PIECE_READY) {
        ask_pieces(stream);
        ks_stream_pause_at(stream, KS_PAUSE_DATA);
        return 0;
    }
    const size_t at = offset - one->offset;
    *bytes = (const char *)bytes_of(streams, one) + at;
    return one->bytes - at;
}

void ks_stream_used(ks_stream *stream, size_t n)
{
    ks_streams *streams = stream->streams;
    ks_piece *one = find_piece(stream, stream->reading);
    one->read = true;
    one->touched_ns = streams->now_ns;
    stream->reading += n;
    if (stream->reading < one->offset + one->bytes) return;
    free_piece(one);
    ask_pieces(stream);
}

/* --- for a turn ---------------------------------------------------------------------------------------------------- */

bool ks_ring_serves(ks_stream *stream)
{
    if (stream->pause == KS_PAUSE_ROOM) return stream->filling >= 0 || take_filling(stream);
    const ks_piece *one = find_piece(stream, stream->reading);
    if (!one) ask_pieces(stream);
    return one && one->state == KS_PIECE_READY;
}

void ks_ring_leave(ks_stream *stream)
{
    for (int i = 0; i < KS_RING_PIECES; i++) {
        ks_piece *one = &stream->streams->pieces[i];
        if (one->owner == stream && one->state != KS_PIECE_GOING && one->state != KS_PIECE_COMING) free_piece(one);
    }
    stream->filling = -1;
}
