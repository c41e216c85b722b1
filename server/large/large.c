#include "large/large.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "large/large_parts.h"

enum { SLOT_EXTRA = 4096 };             /* of an overflow slot, more than its head room and pads */
static const int64_t look_ns = 1000000; /* between two looks at memory that others may have given back */
static const double DOUBT = 2; /* so many times too late by the estimate, and a request that waits already is refused */

/* --- open and close ------------------------------------------------------------------------------------------------ */

ks_status ks_large_requests_open(ks_engine *engine, ks_large_requests **out, ks_error *error)
{
    const ks_engine_options *options = &engine->options;
    ks_large_requests *requests = calloc(1, sizeof *requests);
    if (!requests) return ks_fail(error, KS_MEMORY, "no memory for large requests");
    requests->engine = engine;
    requests->large = engine->backend->large;
    requests->largest = options->classes > 0 ? options->size_class[options->classes - 1].side_bytes : 0;
    requests->now_ns = ks_now_ns();
    ks_memory_rate_init(&requests->rate, requests->now_ns);
    if (requests->large) {
        const ks_status status = requests->large->ring_open(engine->device, KS_RING_BUFFERS, KS_RING_BUFFER_BYTES,
                                                            &requests->ring, &requests->memory, error);
        if (status != KS_OK) {
            free(requests);
            return status;
        }
        ks_counter_set(KS_COUNTER(engine, ring_bytes), (uint64_t)KS_RING_BUFFERS * KS_RING_BUFFER_BYTES);
    }
    *out = requests;
    return KS_OK;
}

static void count(ks_large_requests *requests)
{
    ks_counter_set(KS_COUNTER(requests->engine, streams_waiting), (uint64_t)requests->waiting);
    ks_counter_set(KS_COUNTER(requests->engine, streams_open), (uint64_t)requests->open);
}

bool ks_large_requests_takes(const ks_large_requests *requests, size_t in_bytes, size_t out_bytes)
{
    return in_bytes > requests->largest || out_bytes > requests->largest;
}

/* --- memory -------------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const ks_large_request *request)
{
    return request->in_bytes + request->out_bytes;
}

/* KS_BUDGET: not now. */
static ks_status take_memory(ks_large_request *request, ks_error *error)
{
    ks_large_requests *requests = request->requests;
    ks_engine *engine = requests->engine;
    const ks_status status = requests->large
                                 ? requests->large->buffer_init(engine->device, request->in_bytes, request->out_bytes,
                                                                &request->device_buffer, error)
                                 : ks_engine_slot(engine, request->in_bytes, request->out_bytes, &request->slot, error);
    if (status != KS_OK) return status;
    requests->open++;
    request->state = KS_LARGE_OPEN;
    request->held_from_ns = ks_memory_rate_hold(&requests->rate, (double)bytes_of(request));
    if (ks_large_has_buffer(request)) {
        ks_counter_add(KS_COUNTER(engine, stream_bytes), bytes_of(request));
        ks_budget_lend(engine->options.budget, (int64_t)bytes_of(request));
    }
    return KS_OK;
}

/* A lost device may still write to a device buffer, as to a slot: it is not given to another request. */
static void give_memory(ks_large_request *request)
{
    ks_large_requests *requests = request->requests;
    ks_engine *engine = requests->engine;
    if (request->transfers) return; /* the content's */
    if (ks_large_has_buffer(request) || request->slot)
        ks_memory_rate_free(&requests->rate, (double)bytes_of(request), request->held_from_ns);
    if (ks_large_has_buffer(request)) {
        ks_counter_add(KS_COUNTER(engine, stream_bytes), -(uint64_t)bytes_of(request));
        ks_budget_lend(engine->options.budget, -(int64_t)bytes_of(request));
        if (!engine->lost) requests->large->buffer_fini(engine->device, &request->device_buffer);
        request->device_buffer.memory = NULL;
    }
    if (request->slot) ks_engine_slot_release(engine, &request->slot);
}

/* Whether it would fit if it were alone. Device buffers say so themselves. */
static ks_status check_fits(const ks_large_requests *requests, const ks_large_request *request, ks_error *error)
{
    const uint64_t limit = ks_budget_limit(requests->engine->options.budget);
    const uint64_t bytes = (uint64_t)request->in_bytes + request->out_bytes + SLOT_EXTRA;
    if (requests->large || bytes <= limit) return KS_OK;
    return ks_fail(error, KS_BUDGET, "%zu bytes in and %zu bytes out exceed the %llu bytes in flight that are allowed",
                   request->in_bytes, request->out_bytes, (unsigned long long)limit);
}

/* --- in ------------------------------------------------------------------------------------------------------------ */

static void link_request(ks_large_request *request)
{
    ks_large_requests *requests = request->requests;
    request->previous = requests->last;
    *(requests->last ? &requests->last->next : &requests->first) = request;
    requests->last = request;
}

static void unlink_request(ks_large_request *request)
{
    ks_large_requests *requests = request->requests;
    *(request->previous ? &request->previous->next : &requests->first) = request->next;
    *(request->next ? &request->next->previous : &requests->last) = request->previous;
    request->next = request->previous = NULL;
}

static void release_plans(ks_large_request *request)
{
    if (!request->plan) return;
    ks_engine_plan_release(request->requests->engine, &request->plan);
    if (request->whole) ks_engine_plan_release(request->requests->engine, &request->whole);
}

static void join_queue(ks_large_request *request)
{
    ks_large_requests *requests = request->requests;
    request->state = KS_LARGE_WAITS;
    requests->waiting++;
    requests->waiting_bytes += bytes_of(request);
}

static void leave_queue(ks_large_request *request)
{
    request->requests->waiting--;
    request->requests->waiting_bytes -= bytes_of(request);
}

/* A queue that is longer than the deadline allows is no use to the request at its end: better refused now than then.
 * ahead_bytes: of the requests before it, and its own. A request that would be first always waits, so that there is news of the rate. */
static ks_status check_queue(const ks_large_request *request, size_t ahead_bytes, double doubt, ks_error *error)
{
    const ks_large_requests *requests = request->requests;
    const ks_budget *budget = requests->engine->options.budget;
    const uint64_t all = requests->large ? ks_budget_lent(budget) : ks_budget_used(budget);
    const double wait_ns = ks_memory_rate_wait_ns(&requests->rate, (double)ahead_bytes, (double)all);
    const int64_t left_ns = request->deadline_ns - requests->now_ns;
    if (ahead_bytes == bytes_of(request) || wait_ns <= doubt * (double)left_ns) return KS_OK;
    return ks_fail(error, KS_BUDGET,
                   "large requests wait for memory, and by the %s this one would for %.1f s; its deadline is in %.1f s",
                   ks_memory_rate_is_known(&requests->rate) ? "rate of the last ones" : "age of those that have it",
                   wait_ns / 1e9, (double)left_ns / 1e9);
}

static ks_status take_or_wait(ks_large_request *request, ks_error *error)
{
    ks_large_requests *requests = request->requests;
    const ks_status status = requests->waiting > 0 ? KS_BUDGET : take_memory(request, error);
    if (status != KS_BUDGET) return status;
    if (requests->waiting >= requests->engine->options.queue_max)
        return ks_fail(error, KS_QUEUE_FULL, "%d large requests wait for memory already", requests->waiting);
    const ks_status hope = check_queue(request, requests->waiting_bytes + bytes_of(request), 1, error);
    if (hope == KS_OK) join_queue(request);
    return hope;
}

static void init(ks_large_requests *requests, ks_large_request *request, ks_error *fault)
{
    assert(request->state == KS_LARGE_SHUT && !request->happened);
    memset(request, 0, offsetof(ks_large_request, head));
    request->requests = requests;
    request->fault = fault;
    request->filling = -1;
}

ks_status ks_large_begin(ks_large_requests *requests, ks_large_request *request, const ks_spec *spec,
                         int64_t deadline_ns, ks_error *fault)
{
    init(requests, request, fault);
    request->deadline_ns = deadline_ns;
    ks_status status = ks_large_plan(request, spec, fault);
    if (status != KS_OK) return status;
    status = check_fits(requests, request, fault);
    if (status == KS_OK) status = take_or_wait(request, fault);
    if (status != KS_OK) {
        release_plans(request);
        return status;
    }
    link_request(request);
    requests->paused[KS_PAUSE_NONE]++;
    count(requests);
    return KS_OK;
}

/* --- transfers ----------------------------------------------------------------------------------------------------- */

void ks_large_turn_to(ks_large_request *request, const ks_slot *memory, ks_large_reader_fn *reader)
{
    request->device_buffer = *memory;
    request->reader = reader;
}

void ks_large_begin_transfer(ks_large_requests *requests, ks_large_request *request, const ks_slot *memory,
                             size_t out_bytes, ks_error *fault)
{
    init(requests, request, fault);
    request->transfers = true;
    request->out_bytes = out_bytes;
    request->state = KS_LARGE_OPEN;
    ks_large_turn_to(request, memory, NULL);
    requests->transfers++;
    link_request(request);
    requests->paused[KS_PAUSE_NONE]++;
}

bool ks_large_settled(ks_large_request *request)
{
    if (request->under_way == 0) return true;
    ks_large_pause_at(request, KS_PAUSE_COPIES);
    return false;
}

/* --- the sides ----------------------------------------------------------------------------------------------------- */

ks_status ks_large_write(ks_large_request *request, size_t offset, const char *bytes, size_t n, size_t *taken)
{
    *taken = 0;
    ks_status status = request->status;
    if (status == KS_OK && request->state == KS_LARGE_WAITS) {
        ks_large_pause_at(request, KS_PAUSE_MEMORY);
        return KS_OK;
    }
    if (status == KS_OK && ks_large_has_buffer(request)) status = ks_ring_write(request, offset, bytes, n, taken);
    if (status != KS_OK) return status;
    if (request->slot) {
        memcpy(request->slot->in + offset, bytes, n);
        ks_large_came(request, offset, n);
        *taken = n;
    }
    return KS_OK;
}

ks_status ks_large_finish(ks_large_request *request)
{
    if (request->status == KS_OK) ks_ring_finish(request);
    return request->status;
}

void ks_large_later(ks_large_request *request)
{
    ks_large_pause_at(request, KS_PAUSE_QUEUE);
}

unsigned char *ks_large_out(ks_large_request *request)
{
    return request->slot ? request->slot->out : request->head + KS_HEAD_ROOM;
}

bool ks_large_is_remote(const ks_large_request *request)
{
    return request->state == KS_LARGE_OPEN && ks_large_has_buffer(request);
}

/* --- leaving ------------------------------------------------------------------------------------------------------- */

static void shut(ks_large_request *request)
{
    ks_large_requests *requests = request->requests;
    unlink_request(request);
    requests->paused[request->pause]--;
    if (request->state == KS_LARGE_WAITS) leave_queue(request);
    if (request->state == KS_LARGE_LEAVES) requests->leaving--;
    if (request->transfers)
        requests->transfers--;
    else if (ks_large_has_buffer(request) || request->slot)
        requests->open--;
    give_memory(request);
    release_plans(request);
    request->state = KS_LARGE_SHUT;
    count(requests);
}

/* An event of a large request without a client is dropped. */
static void forget_event(ks_large_request *request)
{
    ks_large_request **link = &request->requests->events;
    if (!request->happened) return;
    while (*link != request) link = &(*link)->event_next;
    *link = request->event_next;
    request->happened = false;
}

bool ks_large_leave(ks_large_request *request)
{
    ks_large_requests *requests = request->requests;
    if (request->state == KS_LARGE_SHUT) return true;
    if (request->state == KS_LARGE_LEAVES) return false;
    ks_large_pause_at(request, KS_PAUSE_NONE);
    forget_event(request);
    ks_ring_leave(request);
    if (request->under_way == 0) {
        shut(request);
        return true;
    }
    request->state = KS_LARGE_LEAVES;
    requests->leaving++;
    return false;
}

void ks_large_requests_close(ks_large_requests **requests)
{
    ks_large_requests *closing = *requests;
    if (!closing) return;
    *requests = NULL;
    if (closing->ring) closing->large->ring_close(&closing->ring);
    while (closing->first) shut(closing->first);
    ks_counter_set(KS_COUNTER(closing->engine, ring_bytes), 0);
    free(closing);
}

/* --- turns --------------------------------------------------------------------------------------------------------- */

/* A waiting request is given its memory, or refused because it gets none in time. false: it waits on. ahead_bytes: of the requests that still wait before
 * it, and its own. */
static bool let_go(ks_large_request *request, bool *full, size_t ahead_bytes)
{
    ks_large_requests *requests = request->requests;
    ks_error error;
    ks_status status = *full ? KS_BUDGET : take_memory(request, &error);
    const bool none = status == KS_BUDGET;
    *full |= none;
    if (none && request->deadline_ns <= requests->now_ns)
        status = ks_fail(&error, KS_DEADLINE, "the deadline passed while the request waited for memory");
    else if (none && check_queue(request, ahead_bytes, DOUBT, &error) == KS_OK)
        return false;
    leave_queue(request);
    request->state = KS_LARGE_OPEN;
    if (status != KS_OK) {
        ks_large_fail(request, &error, status);
        return true;
    }
    ks_memory_rate_give(&requests->rate, (double)bytes_of(request));
    ks_large_happen(request);
    return true;
}

/* In order of arrival: a large request is not passed by small ones for ever. */
static void admit(ks_large_requests *requests)
{
    bool full = false;
    size_t before = 0;
    for (ks_large_request *request = requests->first; request && requests->waiting > 0; request = request->next) {
        if (request->state != KS_LARGE_WAITS) continue;
        if (!let_go(request, &full, before + bytes_of(request))) before += bytes_of(request);
    }
    count(requests);
}

static bool can_go_on(ks_large_request *request)
{
    switch (request->pause) {
    case KS_PAUSE_MEMORY:
        return request->state == KS_LARGE_OPEN;
    case KS_PAUSE_ROOM:
    case KS_PAUSE_DATA:
        return ks_ring_serves(request);
    case KS_PAUSE_COPIES:
        return request->under_way == 0;
    case KS_PAUSE_QUEUE:
        return true;
    case KS_PAUSE_NONE:
    case KS_PAUSES:
        break;
    }
    return false;
}

static bool any_paused(const ks_large_requests *requests)
{
    int paused = 0;
    for (int i = KS_PAUSE_NONE + 1; i < KS_PAUSES; i++) paused += requests->paused[i];
    return paused > 0;
}

ks_large_request *ks_large_requests_turn(ks_large_requests *requests, int64_t now_ns)
{
    requests->now_ns = now_ns;
    if (requests->waiting > 0 || requests->open > 0)
        ks_memory_rate_turn(&requests->rate, now_ns, requests->waiting > 0);
    if (requests->waiting > 0) admit(requests);
    if (any_paused(requests) || requests->leaving > 0) {
        ks_ring_look(requests);
        ks_large_request *next;
        for (ks_large_request *request = requests->first; request; request = next) {
            next = request->next;
            if (request->state == KS_LARGE_LEAVES && request->under_way == 0) {
                shut(request);
                ks_large_happen(request);
            } else if (can_go_on(request)) {
                ks_large_happen(request);
            }
        }
    }
    ks_large_request *events = requests->events;
    requests->events = NULL;
    for (ks_large_request *request = events; request; request = request->event_next) {
        request->happened = false;
        ks_large_pause_at(request, KS_PAUSE_NONE);
    }
    return events;
}

int64_t ks_large_requests_wait_ns(const ks_large_requests *requests)
{
    const int *const paused = requests->paused;
    const bool copies = paused[KS_PAUSE_ROOM] || paused[KS_PAUSE_DATA] || paused[KS_PAUSE_COPIES];
    if (requests->events || (copies && requests->copies > 0)) return 0;
    return any_paused(requests) || requests->waiting > 0 || requests->leaving > 0 ? look_ns : INT64_MAX;
}
