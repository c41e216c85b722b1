/* A change of what several workers have (--devices): the request that asks one of them for it, on its way to all of them.
 *
 * The worker that is asked keeps the request's body in a file of memory, and gives it to its thread of changes (daemon/workers/changes.h),
 * which sends the same request to each worker, its own included, and then has the answer. Each of them serves it as any request, up to the
 * moment where something changes: that comes for all of them at once, or for none (observe/workers/ballot.h).
 *
 * Life     ks_change_begin -> ks_change_feed* -> ks_change_end -> ks_change_respond once it is done -> ks_change_leave (always).
 * Limits   the body is in the bytes in flight (--inflight-bytes) until the answer.
 * Owner    the call and the thread share a change: the last one drops it.  Threads  a call: its shard's; a change: as it says. */
#ifndef KS_API_CHANGE_H
#define KS_API_CHANGE_H
#include "api/routes.h"
#include "api/tensors/tensors.h"
#include "api/view.h"

/* The end of such a file: the body, its request's head, and this. */
typedef struct ks_change_tail {
    uint64_t body_bytes, head_bytes;
    bool undoes;                    /* what it is about goes */
    char label[KS_MODEL_LABEL_MAX]; /* of the model that it is about; "": of none */
} ks_change_tail;

typedef struct ks_change {
    /* fixed once it is given: */
    int fd; /* of its file */
    ks_change_tail tail;
    int wake_fd; /* an eventfd, written once it is done: its own copy, since the shard may have ended by then */
    /* the thread's until it is done, then the call's: */
    ks_error fault;
    int code;
    ks_text text;
    char content_type[64], etag[KS_ETAG_MAX + 3], location[KS_ROUTE_NAME_MAX + 16], generation[24];
    /* any thread, atomic: */
    _Atomic bool done;
    _Atomic int holders;
    ks_budget *budget;
    uint64_t taken_bytes; /* of it */
    struct ks_change *next;
} ks_change;

typedef struct ks_change_call ks_change_call;

/* A request that would change what this worker has alone, of that target as it was sent. KS_UNSUPPORTED, KS_BODY_SIZE, KS_BUDGET, KS_MEMORY; what
 * the query has wrong. */
ks_status ks_change_begin(ks_api_view *view, const ks_tensor_ask *ask, const char *target, int wake_fd,
                          ks_change_call **out, ks_error *error);
/* A fault is remembered. */
void ks_change_feed(ks_change_call *call, const char *bytes, size_t n);
void ks_change_end(ks_change_call *call); /* the body is complete */
bool ks_change_done(const ks_change_call *call);
ks_status ks_change_fault(const ks_change_call *call, ks_error *error);
uint64_t ks_change_body_max(const ks_change_call *call);
void ks_change_abort(ks_change_call *call, ks_status status, const char *sentence);
ks_status ks_change_respond(ks_change_call *call, ks_tensor_answer *out, ks_error *error);
void ks_change_leave(ks_change_call **call);

void ks_change_drop(ks_change **change); /* one holder less */
#endif
