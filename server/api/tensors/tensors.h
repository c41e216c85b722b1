/* Requests of /v2/tensors: uploads, links, reads, deletions and lists of resident tensors. Like ks_infer it knows no sockets: its caller
 * feeds it the body and asks for the answer.
 *
 * Life     ks_tensors_begin -> ks_tensors_feed* -> ks_tensors_end -> ks_tensors_respond once it is done -> ks_tensors_leave (always).
 * Owner    the call; it owns an upload. A download is the answer's.  Threads  the shard's own. */
#ifndef KS_API_TENSORS_H
#define KS_API_TENSORS_H
#include "api/routes.h"
#include "api/view.h"
#include "base/head.h"
#include "base/text.h"
#include "observe/workers/ballot.h"
#include "request/transfer.h"

typedef struct ks_tensor_call ks_tensor_call;

typedef struct ks_tensor_ask {
    const ks_route *route; /* the caller's, until ks_tensors_leave, as is head */
    ks_method method;
    const ks_head *head;
    ks_infers *infers;
    void *client; /* what ks_infers_woken gives back */
    bool is_peer; /* another worker asks, or this one's thread of changes; */
    ks_vote vote; /* for a change that all of them make */
} ks_tensor_ask;

/* Texts are the call's. */
typedef struct ks_tensor_answer {
    int code;
    ks_text text;          /* the body, to be taken; empty: there is none */
    ks_transfer *download; /* or it: `length` bytes; to be left */
    uint64_t length;
    const char *content_type;                                    /* NULL: no body */
    const char *location, *etag, *generation, *shape, *datatype; /* fields; NULL: not sent */
    bool varies;                                                 /* with Accept */
} ks_tensor_answer;

/* What is wrong with its head, KS_UNSUPPORTED without a store; of an upload also what ks_upload_begin says. */
ks_status ks_tensors_begin(ks_api_view *view, const ks_tensor_ask *ask, ks_tensor_call **out, ks_error *error);
/* The answer needs no body, although one is announced: for a client that waits for leave to send it. */
bool ks_tensors_spares_body(const ks_tensor_call *call);
bool ks_tensors_uploads(const ks_tensor_call *call); /* bytes of a body are wanted */
/* Bytes of the body; returns how many were taken. A fault is remembered. */
size_t ks_tensors_feed(ks_tensor_call *call, const char *bytes, size_t n);
bool ks_tensors_end(ks_tensor_call *call); /* the body is complete; false: again in another turn */
bool ks_tensors_waits(const ks_tensor_call *call);
bool ks_tensors_done(ks_tensor_call *call);
ks_status ks_tensors_fault(const ks_tensor_call *call, ks_error *error); /* so far; error: filled where there is one */
void ks_tensors_abort(ks_tensor_call *call, ks_status status, const char *sentence);
ks_status ks_tensors_respond(ks_tensor_call *call, ks_tensor_answer *out, ks_error *error);
void ks_tensors_leave(ks_tensor_call **call);
#endif
