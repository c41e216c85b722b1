/* One inference request: begin, feed, end, done, write, response, sent, leave; on top of the codec (codec) and the engine. Knows
 * no sockets: request.c, mhd.c and plain.c feed it bytes and ask for the response.
 *
 * Owns     a fixed array of records, one per connection that the shard can have, each with the words' memory; a record
 *          holds at most one slot and one plan.
 * Large    a request above the slots goes through a large request (large/large.h): its blocks are the record's job, one after the
 *          other, the first ones while the body still arrives. Feeding and reading may then pause.
 * Life     a record ends when none of these holds it: the connection (begin .. leave), the response (response .. sent), the engine
 *          (submit .. collect), the large request's copies. A client that goes away leaves a RUNNING record behind until collect.
 * Threads  the shard's own. */
#ifndef KS_INFER_H
#define KS_INFER_H
#include <stdatomic.h>

#include "base/config/config.h"
#include "base/head.h"
#include "base/request_id.h"
#include "codec/decode.h"
#include "engine/engine.h"
#include "engine/regions.h"
#include "observe/metrics.h"
#include "observe/otlp/spans.h"
#include "resident/hashers.h"
#include "resident/store.h"

typedef struct ks_infer ks_infer;
typedef struct ks_infers ks_infers;
struct ks_access;

enum { KS_TIMING_MAX = 384, KS_LONG_TEXT = 1 << 20 };

/* What a shard's requests need. All that it points to outlives them. */
typedef struct ks_request_options {
    const ks_config *config;
    ks_engine *engine;
    ks_shard_metrics *metrics; /* this thread is their writer */
    ks_budget *budget;
    ks_regions *regions;      /* NULL: client shared memory is off */
    ks_store *store;          /* NULL: no tensors stay */
    ks_hashers *hashers;      /* of uploads; NULL: this thread hashes */
    int wake_fd;              /* that hashers wake this thread by */
    ks_span_ring *spans;      /* this thread is their writer; NULL: none are exported */
    const _Atomic int *state; /* ks_state of the daemon, which any thread may change */
    double work_max;          /* of the device, where --max-work is automatic */
    int count;                /* of records */
    int shard;                /* whose they are */
} ks_request_options;

ks_status ks_infers_open(const ks_request_options *options, ks_infers **out, ks_error *error);
void ks_infers_close(ks_infers **infers); /* no record held */
/* A new turn: what its numbers may take is whole again. */
void ks_infers_turn(ks_infers *infers);
/* A transport looks at connections once more: what it gives of one until the next run came without a pause. */
void ks_infers_run(ks_infers *infers);

/* Where a request comes from. */
typedef struct ks_infer_source {
    ks_body_encoding encoding;
    const ks_identity *identity; /* the caller's, until ks_infer_leave */
    const ks_tenant *tenant;     /* whose resident tensors it names, copied; NULL: an operator's */
    bool may_store;              /* its outputs may become some */
    bool one_of_several;         /* workers: what it stores, it has alone */
    int64_t first_ns;            /* when the request's first byte was read */
    int64_t now_ns;              /* the clock, a moment ago */
    void *client;                /* what ks_infer_collected gives back */
} ks_infer_source;

/* A fault of the head is remembered like one of the body. KS_BUDGET: no record free. */
ks_status ks_infer_begin(ks_infers *infers, const ks_codec_head *head, const ks_infer_source *source, ks_infer **out,
                         ks_error *error);
/* Never fails: a fault is remembered, and what follows is dropped. Returns how much of bytes it took: the rest comes again
 * in another turn. */
size_t ks_infer_feed(ks_infer *infer, const char *bytes, size_t n);
/* The body is complete: READY, or the fault. false: numbers are still to be converted, in another turn. */
bool ks_infer_end(ks_infer *infer);
/* Of bytes that feed did not take: not before ks_infers_woken names the client. */
bool ks_infer_waits(const ks_infer *infer);
bool ks_infer_done(const ks_infer *infer);            /* the response, or the fault, can be sent */
ks_status ks_infer_fault(const ks_infer *infer);      /* KS_OK: none so far */
const char *ks_infer_sentence(const ks_infer *infer); /* of the fault */
/* The device's error or the reason of the server's end takes the result's place. READY work is dropped, RUNNING work
 * left. */
void ks_infer_abort(ks_infer *infer, ks_status status, const char *sentence);

/* A slice of the response of a done record. true: it is complete; false: the rest in another turn. */
bool ks_infer_write(ks_infer *infer);
/* Of a written record, once: the response (then ks_infer_sent must follow, when its bytes are no longer needed), or the
 * fault. accept_encoding: the header's value, or NULL. timing: the value of Server-Timing, at least KS_TIMING_MAX bytes;
 * "" where there is none. */
ks_status ks_infer_response(ks_infer *infer, const char *accept_encoding, ks_response_body *response, char *timing,
                            ks_error *error);
/* The same value with the times of a model's steps behind it, in memory that the caller frees. NULL: they were not asked for, or
 * there is no memory. */
char *ks_infer_profile(const ks_infer *infer, const char *timing);
/* How many of the response's bytes from `at` on, which never goes back, lie at *bytes until the next call; 0: none now,
 * ks_infers_woken will name the client; -1: there will be none. */
int64_t ks_infer_view(ks_infer *infer, uint64_t at, const char **bytes);
/* So many of those just viewed are no longer needed. A text's memory goes back to the system behind them. n >= 1. */
void ks_infer_used(ks_infer *infer, uint64_t at, size_t n);
/* Both at once: at most `most` bytes to out. Returns as ks_infer_view, how many. */
int64_t ks_infer_read(ks_infer *infer, uint64_t at, char *out, size_t most);
void ks_infer_sent(ks_infer *infer);
bool ks_infer_is_remote(const ks_infer *infer); /* the response's bytes come by ks_infer_view alone */

/* The connection lets go: after the response was sent, or because the client is gone. */
void ks_infer_leave(ks_infer **infer);
/* A job from ks_engine_collect: DONE. Returns the client, NULL: it has left, and the record is gone. */
void *ks_infer_collected(ks_job *job);
void *ks_infer_client(const ks_infer *infer); /* NULL: it has left */
/* The client vanished while its request waited: true if it was still READY and is dropped now. */
bool ks_infer_cancel(ks_infer *infer);
/* Once a turn: looks at what large requests wait for; then the clients that can go on, or whose request has met a fault, one
 * after the other, until NULL. */
void ks_infers_look(ks_infers *infers, int64_t now_ns);
void *ks_infers_woken(ks_infers *infers);
int64_t ks_infers_wait_ns(const ks_infers *infers); /* until a turn may bring something; INT64_MAX: nothing to come */

/* How a request would take its plan. */
typedef struct ks_plan_way {
    const char *path; /* ks_engine_path's */
    int bucket;       /* of a family: joined rows of the graph that serves it alone; 0: of none */
} ks_plan_way;

/* The plan of the work that a query names, as a plain raw request does, and its way: as it is, or as it would
 * be, for the plan document. Keeps nothing. The errors of a request with that query. */
ks_status ks_infers_plan(ks_infers *infers, const ks_model *model, const char *query, ks_plan *out, ks_plan_way *way,
                         ks_error *error);
int ks_infers_held(const ks_infers *infers);
/* What the access log says of a request that is over and has not been left: model, format, phases, launch. */
void ks_infer_access(const ks_infer *infer, int64_t now_ns, struct ks_access *access);
/* A line for each step that it took, all at once when it is over: Kernserve-Debug. */
void ks_infer_log_steps(const ks_infer *infer);
#endif
