/* Owns       a call; a change with its file, until its last holder drops it.
 * Interface  change.h */
#include "api/changes/change.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/tensors/words.h"

struct ks_change_call {
    ks_change *change;
    ks_change_door door;
    ks_store *store;
    ks_error fault;
    ks_text head; /* all but Content-Length */
    uint64_t body_max;
    bool given;
};

enum { TEXT_MAX = 64 << 20, HEAD_MAX = 256 << 10 };

/* --- begin -------------------------------------------------------------------------------------------------------- */

static ks_status take_bytes(ks_change_call *call, uint64_t bytes)
{
    ks_change *change = call->change;
    const uint64_t limit = ks_budget_limit(change->budget);
    if (change->taken_bytes + bytes > limit)
        return ks_fail(&call->fault, KS_BODY_SIZE,
                       "several workers (--devices) take a body by memory for requests, and this one has more than its "
                       "%" PRIu64 " bytes: raise --inflight-bytes, or name the file at start",
                       limit);
    if (!ks_budget_take(change->budget, bytes))
        return ks_fail(&call->fault, KS_BUDGET, "no memory for a request of %" PRIu64 " bytes now (--inflight-bytes)",
                       change->taken_bytes + bytes);
    change->taken_bytes += bytes;
    return KS_OK;
}

static ks_status check_tensors(ks_change_call *call, const ks_tensor_ask *ask)
{
    ks_tensor_words words;
    ks_store_stats stats;
    const ks_status status = ks_tensor_words_read(ask, &words, &call->fault);
    if (status != KS_OK) return status;
    ks_store_read_stats(call->store, &stats);
    if (ask->head->content_length > 0 && (uint64_t)ask->head->content_length > stats.limit_bytes)
        return ks_fail(&call->fault, KS_RESIDENT_FULL,
                       "a body of %" PRId64 " bytes is more than all tensors may have, %" PRIu64
                       ": raise --resident-bytes",
                       ask->head->content_length, stats.limit_bytes);
    return KS_OK;
}

/* The model that it is about, as its tenant names it. */
static ks_status find_label(ks_change_call *call, const ks_tensor_ask *ask)
{
    char name[KS_ROUTE_NAME_MAX + 1];
    const ks_token *token = ask->head->bearer;
    const ks_status status = ks_route_name(ask->route, name, &call->fault);
    if (status == KS_OK) ks_model_label(token ? token->tenant : "", name, call->change->tail.label);
    return status;
}

static void write_head(ks_change_call *call, const ks_tensor_ask *ask, const char *target)
{
    static const struct {
        ks_known known;
        const char *name;
    } fields[] = {{KS_KNOWN_AUTHORIZATION, "Authorization"},       {KS_KNOWN_CONTENT_TYPE, "Content-Type"},
                  {KS_KNOWN_CONTENT_ENCODING, "Content-Encoding"}, {KS_KNOWN_IF_MATCH, "If-Match"},
                  {KS_KNOWN_IF_NONE_MATCH, "If-None-Match"},       {KS_KNOWN_REPR_DIGEST, "Repr-Digest"}};
    ks_text_printf(&call->head, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", ask->head->method,
                   target);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (ask->head->known[fields[i].known])
            ks_text_printf(&call->head, "%s: %s\r\n", fields[i].name, ask->head->known[fields[i].known]);
}

static ks_status begin(ks_change_call *call, const ks_tensor_ask *ask, const char *target)
{
    const int64_t length = ask->head->content_length;
    const bool of_models = ask->route->handler == KS_HANDLER_models;
    ks_change *change = call->change;
    ks_status status = of_models ? find_label(call, ask) : check_tensors(call, ask);
    if (status == KS_OK && length > 0) status = take_bytes(call, (uint64_t)length);
    if (status != KS_OK) return status;
    change->tail.undoes = ask->method == KS_METHOD_DELETE || ask->route->id == KS_ROUTE_UNLOAD;
    write_head(call, ask, target);
    change->fd = memfd_create("kernserve-change", MFD_CLOEXEC);
    return change->fd >= 0 ? KS_OK : ks_fail(&call->fault, KS_MEMORY, "no memory for the body of a request");
}

static ks_change_call *new_call(ks_api_view *view)
{
    ks_change_call *call = calloc(1, sizeof *call);
    ks_change *change = calloc(1, sizeof *change);
    if (!call || !change) {
        free(call);
        free(change);
        return NULL;
    }
    atomic_init(&change->holders, 1);
    change->fd = change->wake_fd = -1;
    change->budget = view->budget;
    ks_text_init(&change->text, TEXT_MAX);
    ks_text_init(&call->head, HEAD_MAX);
    call->change = change;
    call->door = view->change_door;
    call->store = view->store;
    return call;
}

ks_status ks_change_begin(ks_api_view *view, const ks_tensor_ask *ask, const char *target, int wake_fd,
                          ks_change_call **out, ks_error *error)
{
    if (!view->change_door.give)
        return ks_fail(error, KS_UNSUPPORTED, "nothing is kept here: --no-resident, or a backend that keeps none");
    ks_change_call *call = new_call(view);
    if (!call) return ks_fail(error, KS_MEMORY, "no memory for a change");
    const bool puts = ask->method == KS_METHOD_PUT;
    call->body_max = puts ? INT64_MAX : ask->method == KS_METHOD_POST ? (uint64_t)view->config->max_json : 0;
    call->change->wake_fd = fcntl(wake_fd, F_DUPFD_CLOEXEC, 0);
    const ks_status status = call->change->wake_fd >= 0
                                 ? begin(call, ask, target)
                                 : ks_fail(&call->fault, KS_MEMORY, "no descriptor is left for a change");
    if (status != KS_OK) {
        *error = call->fault;
        ks_change_leave(&call);
    }
    *out = call;
    return status;
}

/* --- the body ----------------------------------------------------------------------------------------------------- */

static ks_status write_all(ks_change_call *call, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t wrote = TEMP_FAILURE_RETRY(write(call->change->fd, bytes + at, n - at));
        if (wrote <= 0) return ks_fail(&call->fault, KS_MEMORY, "no memory for the body of a request");
        at += (size_t)wrote;
    }
    return KS_OK;
}

/* Of a body without a length, whose bytes are taken a step at a time. */
static ks_status make_room(ks_change_call *call, uint64_t bytes)
{
    enum { STEP = 1 << 20 };
    const uint64_t taken = call->change->taken_bytes;
    if (bytes <= taken) return KS_OK;
    return take_bytes(call, bytes - taken > STEP ? bytes - taken : STEP);
}

void ks_change_feed(ks_change_call *call, const char *bytes, size_t n)
{
    ks_change_tail *tail = &call->change->tail;
    if (call->fault.status != KS_OK || make_room(call, tail->body_bytes + n) != KS_OK) return;
    if (write_all(call, bytes, n) == KS_OK) tail->body_bytes += n;
}

void ks_change_end(ks_change_call *call)
{
    ks_change *change = call->change;
    if (call->fault.status != KS_OK || call->given) return;
    ks_text_printf(&call->head, "Content-Length: %" PRIu64 "\r\n\r\n", change->tail.body_bytes);
    change->tail.head_bytes = call->head.length;
    if (call->head.broken)
        ks_fail(&call->fault, KS_MEMORY, "no memory for a request");
    else if (write_all(call, call->head.bytes, call->head.length) == KS_OK)
        write_all(call, (const char *)&change->tail, sizeof change->tail);
    ks_text_fini(&call->head);
    if (call->fault.status != KS_OK) return;
    atomic_fetch_add(&change->holders, 1);
    call->given = true;
    call->door.give(call->door.context, change);
}

bool ks_change_done(const ks_change_call *call)
{
    return call->fault.status != KS_OK || (call->given && atomic_load(&call->change->done));
}

ks_status ks_change_fault(const ks_change_call *call, ks_error *error)
{
    if (call->fault.status != KS_OK) *error = call->fault;
    return call->fault.status;
}

uint64_t ks_change_body_max(const ks_change_call *call)
{
    return call->body_max;
}

/* One that is on its way goes on. */
void ks_change_abort(ks_change_call *call, ks_status status, const char *sentence)
{
    if (call->fault.status == KS_OK) ks_fail(&call->fault, status, "%s", sentence);
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

static const char *unless_empty(const char *text)
{
    return text[0] ? text : NULL;
}

ks_status ks_change_respond(ks_change_call *call, ks_tensor_answer *out, ks_error *error)
{
    ks_change *change = call->change;
    if (call->fault.status == KS_OK) call->fault = change->fault;
    *out = (ks_tensor_answer){.code = change->code,
                              .content_type = unless_empty(change->content_type),
                              .etag = unless_empty(change->etag),
                              .location = unless_empty(change->location),
                              .generation = unless_empty(change->generation)};
    ks_text_init(&out->text, TEXT_MAX);
    if (call->fault.status != KS_OK) {
        *error = call->fault;
        return error->status;
    }
    out->text = change->text;
    ks_text_init(&change->text, TEXT_MAX);
    return KS_OK;
}

void ks_change_drop(ks_change **pointer)
{
    ks_change *change = *pointer;
    *pointer = NULL;
    if (!change || atomic_fetch_sub(&change->holders, 1) != 1) return;
    if (change->fd >= 0) close(change->fd);
    if (change->wake_fd >= 0) close(change->wake_fd);
    ks_budget_give(change->budget, change->taken_bytes);
    ks_text_fini(&change->text);
    free(change);
}

void ks_change_leave(ks_change_call **pointer)
{
    ks_change_call *call = *pointer;
    *pointer = NULL;
    if (!call) return;
    ks_change_drop(&call->change);
    ks_text_fini(&call->head);
    free(call);
}
