#include "large/large.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "large/large_parts.h"

enum { SLOT_EXTRA = 4096 };             /* of an overflow slot, more than its head room and pads */
static const int64_t look_ns = 1000000; /* between two looks at memory that others may have given back */
static const double DOUBT = 2;          /* so many times too late by the estimate, and who waits already is told */

/* --- open and close ------------------------------------------------------------------------------------------------ */

ks_status ks_streams_open(ks_engine *engine, ks_streams **out, ks_error *error)
{
    const ks_engine_options *options = &engine->options;
    ks_streams *streams = calloc(1, sizeof *streams);
    if (!streams) return ks_fail(error, KS_MEMORY, "no memory for large requests");
    streams->engine = engine;
    streams->large = engine->backend->large;
    streams->largest = options->classes > 0 ? options->size_class[options->classes - 1].side_bytes : 0;
    streams->now_ns = ks_now_ns();
    if (streams->large) {
        const ks_status status = streams->large->ring_open(engine->device, KS_RING_PIECES, KS_RING_PIECE_BYTES,
                                                           &streams->ring, &streams->memory, error);
        if (status != KS_OK) {
            free(streams);
            return status;
        }
        ks_counter_set(KS_COUNTER(engine, ring_bytes), (uint64_t)KS_RING_PIECES * KS_RING_PIECE_BYTES);
    }
    *out = streams;
    return KS_OK;
}

static void count(ks_streams *streams)
{
    ks_counter_set(KS_COUNTER(streams->engine, streams_waiting), (uint64_t)streams->waiting);
    ks_counter_set(KS_COUNTER(streams->engine, streams_open), (uint64_t)streams->open);
}

bool ks_streams_takes(const ks_streams *streams, size_t in_bytes, size_t out_bytes)
{
    return in_bytes > streams->largest || out_bytes > streams->largest;
}

/* --- memory -------------------------------------------------------------------------------------------------------- */

/* KS_BUDGET: not now. */
static ks_status take_memory(ks_stream *stream, ks_error *error)
{
    ks_streams *streams = stream->streams;
    ks_engine *engine = streams->engine;
    const ks_status status =
        streams->large
            ? streams->large->area_init(engine->device, stream->in_bytes, stream->out_bytes, &stream->area, error)
            : ks_engine_slot(engine, stream->in_bytes, stream->out_bytes, &stream->slot, error);
    if (status != KS_OK) return status;
    streams->open++;
    stream->state = KS_STREAM_OPEN;
    if (ks_stream_has_area(stream))
        ks_counter_add(KS_COUNTER(engine, stream_bytes), stream->in_bytes + stream->out_bytes);
    return KS_OK;
}

/* A lost device may still write to an area, as to a slot: it is given to nobody any more. */
static void give_memory(ks_stream *stream)
{
    ks_streams *streams = stream->streams;
    ks_engine *engine = streams->engine;
    if (ks_stream_has_area(stream)) {
        ks_counter_add(KS_COUNTER(engine, stream_bytes), -(uint64_t)(stream->in_bytes + stream->out_bytes));
        if (!engine->lost) streams->large->area_fini(engine->device, &stream->area);
        stream->area.memory = NULL;
    }
    if (stream->slot) ks_engine_slot_release(engine, &stream->slot);
}

/* Whether it would fit if it were alone. Areas say so themselves. */
static ks_status check_fits(const ks_streams *streams, const ks_stream *stream, ks_error *error)
{
    const uint64_t limit = ks_budget_limit(streams->engine->options.budget);
    const uint64_t bytes = (uint64_t)stream->in_bytes + stream->out_bytes + SLOT_EXTRA;
    if (streams->large || bytes <= limit) return KS_OK;
    return ks_fail(error, KS_BUDGET, "%zu bytes in and %zu bytes out exceed the %llu bytes in flight that are allowed",
                   stream->in_bytes, stream->out_bytes, (unsigned long long)limit);
}

/* --- events -------------------------------------------------------------------------------------------------------- */

void ks_stream_happen(ks_stream *stream)
{
    if (stream->happened) return;
    stream->happened = true;
    stream->event_next = stream->streams->events;
    stream->streams->events = stream;
}

ks_status ks_stream_fail(ks_stream *stream, const ks_error *error, ks_status status)
{
    if (stream->status == KS_OK) {
        stream->status = status;
        stream->error = *error;
    }
    ks_stream_happen(stream);
    return status;
}

/* --- in ------------------------------------------------------------------------------------------------------------ */

static void link_stream(ks_stream *stream)
{
    ks_streams *streams = stream->streams;
    stream->previous = streams->last;
    *(streams->last ? &streams->last->next : &streams->first) = stream;
    streams->last = stream;
}

static void unlink_stream(ks_stream *stream)
{
    ks_streams *streams = stream->streams;
    *(stream->previous ? &stream->previous->next : &streams->first) = stream->next;
    *(stream->next ? &stream->next->previous : &streams->last) = stream->previous;
    stream->next = stream->previous = NULL;
}

static void release_plans(ks_stream *stream)
{
    ks_engine_plan_release(stream->streams->engine, &stream->plan);
    if (stream->whole) ks_engine_plan_release(stream->streams->engine, &stream->whole);
}

static size_t bytes_of(const ks_stream *stream)
{
    return stream->in_bytes + stream->out_bytes;
}

static void join_line(ks_stream *stream)
{
    ks_streams *streams = stream->streams;
    if (streams->waiting == 0) ks_memory_rate_begin(&streams->rate, streams->now_ns);
    stream->state = KS_STREAM_WAITS;
    streams->waiting++;
    streams->waiting_bytes += bytes_of(stream);
}

static void leave_line(ks_stream *stream)
{
    stream->streams->waiting--;
    stream->streams->waiting_bytes -= bytes_of(stream);
}

/* A line that is longer than the deadline allows is no use to who stands at its end: better now that it be told than then.
 * line_bytes: of who stands before it, and its own. Who would be first always waits, so that there is news of the rate. */
static ks_status check_line(const ks_stream *stream, size_t line_bytes, double doubt, ks_error *error)
{
    const ks_streams *streams = stream->streams;
    const double wait_ns = ks_memory_rate_wait_ns(&streams->rate, (double)line_bytes);
    const int64_t left_ns = stream->deadline_ns - streams->now_ns;
    if (line_bytes == bytes_of(stream) || wait_ns <= doubt * (double)left_ns) return KS_OK;
    return ks_fail(error, KS_BUDGET,
                   "large requests wait for memory, and by the rate of the last ones this one would for %.1f s; its "
                   "deadline is in %.1f s",
                   wait_ns / 1e9, (double)left_ns / 1e9);
}

static ks_status take_or_wait(ks_stream *stream, ks_error *error)
{
    ks_streams *streams = stream->streams;
    const ks_status status = streams->waiting > 0 ? KS_BUDGET : take_memory(stream, error);
    if (status != KS_BUDGET) return status;
    if (streams->waiting >= streams->engine->options.queue_max)
        return ks_fail(error, KS_QUEUE_FULL, "%d large requests wait for memory already", streams->waiting);
    const ks_status hope = check_line(stream, streams->waiting_bytes + bytes_of(stream), 1, error);
    if (hope == KS_OK) join_line(stream);
    return hope;
}

ks_status ks_stream_begin(ks_streams *streams, ks_stream *stream, const ks_spec *spec, int64_t deadline_ns,
                          ks_error *error)
{
    assert(stream->state == KS_STREAM_SHUT && !stream->happened);
    memset(stream, 0, offsetof(ks_stream, head));
    stream->streams = streams;
    stream->deadline_ns = deadline_ns;
    stream->filling = -1;
    ks_status status = ks_stream_plan(stream, spec, error);
    if (status != KS_OK) return status;
    status = check_fits(streams, stream, error);
    if (status == KS_OK) status = take_or_wait(stream, error);
    if (status != KS_OK) {
        release_plans(stream);
        return status;
    }
    link_stream(stream);
    streams->paused[KS_PAUSE_NONE]++;
    count(streams);
    return KS_OK;
}

ks_status ks_stream_write(ks_stream *stream, size_t offset, const char *bytes, size_t n, size_t *taken, ks_error *error)
{
    *taken = 0;
    ks_status status = stream->status;
    if (status == KS_OK && stream->state == KS_STREAM_WAITS) {
        ks_stream_pause_at(stream, KS_PAUSE_MEMORY);
        return KS_OK;
    }
    if (status == KS_OK && ks_stream_has_area(stream)) status = ks_ring_write(stream, offset, bytes, n, taken);
    if (status != KS_OK) {
        *error = stream->error;
        return status;
    }
    if (stream->slot) {
        memcpy(stream->slot->in + offset, bytes, n);
        ks_stream_came(stream, offset, n);
        *taken = n;
    }
    return KS_OK;
}

ks_status ks_stream_finish(ks_stream *stream, ks_error *error)
{
    if (stream->status == KS_OK) ks_ring_finish(stream);
    if (stream->status != KS_OK) *error = stream->error;
    return stream->status;
}

void ks_stream_later(ks_stream *stream)
{
    ks_stream_pause_at(stream, KS_PAUSE_QUEUE);
}

unsigned char *ks_stream_out(ks_stream *stream)
{
    return stream->slot ? stream->slot->out : stream->head + KS_HEAD_ROOM;
}

bool ks_stream_is_remote(const ks_stream *stream)
{
    return stream->state == KS_STREAM_OPEN && ks_stream_has_area(stream);
}

/* --- leaving ------------------------------------------------------------------------------------------------------- */

static void shut(ks_stream *stream)
{
    ks_streams *streams = stream->streams;
    unlink_stream(stream);
    streams->paused[stream->pause]--;
    if (stream->state == KS_STREAM_WAITS) leave_line(stream);
    if (stream->state == KS_STREAM_LEAVES) streams->leaving--;
    if (ks_stream_has_area(stream) || stream->slot) streams->open--;
    give_memory(stream);
    release_plans(stream);
    stream->state = KS_STREAM_SHUT;
    count(streams);
}

/* What happened to a stream that nobody waits for any more is told to nobody. */
static void forget_event(ks_stream *stream)
{
    ks_stream **link = &stream->streams->events;
    if (!stream->happened) return;
    while (*link != stream) link = &(*link)->event_next;
    *link = stream->event_next;
    stream->happened = false;
}

bool ks_stream_leave(ks_stream *stream)
{
    ks_streams *streams = stream->streams;
    if (stream->state == KS_STREAM_SHUT) return true;
    if (stream->state == KS_STREAM_LEAVES) return false;
    ks_stream_pause_at(stream, KS_PAUSE_NONE);
    forget_event(stream);
    ks_ring_leave(stream);
    if (stream->under_way == 0) {
        shut(stream);
        return true;
    }
    stream->state = KS_STREAM_LEAVES;
    streams->leaving++;
    return false;
}

void ks_streams_close(ks_streams **streams)
{
    ks_streams *closing = *streams;
    if (!closing) return;
    *streams = NULL;
    if (closing->ring) closing->large->ring_close(&closing->ring);
    while (closing->first) shut(closing->first);
    ks_counter_set(KS_COUNTER(closing->engine, ring_bytes), 0);
    free(closing);
}

/* --- turns --------------------------------------------------------------------------------------------------------- */

/* Who waits is given its memory, or told that it gets none in time. false: it waits on. line_bytes: of who still waits before
 * it, and its own. */
static bool let_go(ks_stream *stream, bool *full, size_t line_bytes)
{
    ks_streams *streams = stream->streams;
    ks_error error;
    ks_status status = *full ? KS_BUDGET : take_memory(stream, &error);
    const bool none = status == KS_BUDGET;
    *full |= none;
    if (none && stream->deadline_ns <= streams->now_ns)
        status = ks_fail(&error, KS_DEADLINE, "the deadline passed while the request waited for memory");
    else if (none && check_line(stream, line_bytes, DOUBT, &error) == KS_OK)
        return false;
    leave_line(stream);
    stream->state = KS_STREAM_OPEN;
    if (status != KS_OK) {
        ks_stream_fail(stream, &error, status);
        return true;
    }
    ks_memory_rate_give(&streams->rate, (double)bytes_of(stream));
    ks_stream_happen(stream);
    return true;
}

/* In order of arrival: a large request is not passed by small ones for ever. */
static void admit(ks_streams *streams)
{
    bool full = false;
    size_t before = 0;
    for (ks_stream *stream = streams->first; stream && streams->waiting > 0; stream = stream->next) {
        if (stream->state != KS_STREAM_WAITS) continue;
        if (!let_go(stream, &full, before + bytes_of(stream))) before += bytes_of(stream);
    }
    count(streams);
}

static bool can_go_on(ks_stream *stream)
{
    switch (stream->pause) {
    case KS_PAUSE_MEMORY:
        return stream->state == KS_STREAM_OPEN;
    case KS_PAUSE_ROOM:
    case KS_PAUSE_DATA:
        return ks_ring_serves(stream);
    case KS_PAUSE_QUEUE:
        return true;
    case KS_PAUSE_NONE:
    case KS_PAUSES:
        break;
    }
    return false;
}

static bool any_paused(const ks_streams *streams)
{
    int paused = 0;
    for (int i = KS_PAUSE_NONE + 1; i < KS_PAUSES; i++) paused += streams->paused[i];
    return paused > 0;
}

ks_stream *ks_streams_turn(ks_streams *streams, int64_t now_ns)
{
    streams->now_ns = now_ns;
    if (streams->waiting > 0) {
        ks_memory_rate_turn(&streams->rate, now_ns);
        admit(streams);
    }
    if (any_paused(streams) || streams->leaving > 0) {
        ks_ring_look(streams);
        ks_stream *next;
        for (ks_stream *stream = streams->first; stream; stream = next) {
            next = stream->next;
            if (stream->state == KS_STREAM_LEAVES && stream->under_way == 0) {
                shut(stream);
                ks_stream_happen(stream);
            } else if (can_go_on(stream)) {
                ks_stream_happen(stream);
            }
        }
    }
    ks_stream *events = streams->events;
    streams->events = NULL;
    for (ks_stream *stream = events; stream; stream = stream->event_next) {
        stream->happened = false;
        ks_stream_pause_at(stream, KS_PAUSE_NONE);
    }
    return events;
}

int64_t ks_streams_wait_ns(const ks_streams *streams)
{
    const bool copies = streams->paused[KS_PAUSE_ROOM] || streams->paused[KS_PAUSE_DATA];
    if (streams->events || (copies && streams->under_way > 0)) return 0;
    return any_paused(streams) || streams->waiting > 0 || streams->leaving > 0 ? look_ns : INT64_MAX;
}
