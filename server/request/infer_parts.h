/* What infer.c (a request's life), memory.c (where its tensors lie), resident.c (tensors that stay) and finish.c (its response and its record) share. Nothing
 * outside of these includes it. infer.c calls the other two, finish.c calls memory.c; neither of the two calls infer.c. */
#ifndef KS_INFER_PARTS_H
#define KS_INFER_PARTS_H
#include <assert.h>

#include "codec/inflate.h"
#include "engine/slot_queue.h"
#include "large/large.h"
#include "request/infer.h"
#include "request/timing.h"

/* Numbers that are converted or printed in one turn, of all requests. A number takes 10 to 60 ns, the rare ones that go
 * through <charconv> included: a turn is kept for 0.25 ms at most. When they are used up each request still gets a few, so
 * that a small one never waits for a large one's end. */
enum { KS_SLICE_NUMBERS = 4096, KS_SLICE_LEAST = 1024 };

/* A request's state; docs/architecture.md has the table. A fault leads to ENCODE from each state before it. */
typedef enum ks_infer_state {
    KS_INFER_FREE,
    KS_INFER_BODY,    /* bytes are taken; blocks of a large request run already */
    KS_INFER_DECODE,  /* the body is complete, numbers are left for later turns */
    KS_INFER_WORK,    /* with the engine, or done there */
    KS_INFER_ENCODE,  /* the response is made, by slices */
    KS_INFER_ENCODED, /* made */
    KS_INFER_SENDING, /* its transport has it */
    KS_INFER_OVER     /* in the metrics and the log; the engine or copies may still hold it */
} ks_infer_state;

struct ks_infer {
    ks_job job; /* first: a job is its record */
    ks_infers *infers;
    ks_infer *next_free;
    ks_codec *codec;
    void *client;
    const ks_identity *identity; /* the client's */
    ks_infer_state state;
    bool in_engine;                /* from submit to ks_infer_collected */
    bool codec_open;               /* codec wants its fini */
    ks_window windows[KS_WINDOWS]; /* of shared memory, held */
    bool may_store;
    bool one_of_several;
    ks_tenant tenant;
    char tenant_name[KS_TENANT_NAME_MAX + 1];
    unsigned holds;                     /* bit i: held[i] is something */
    ks_content *held[KS_INPUTS_MAX];    /* resident tensors that are its inputs */
    ks_content *stored[KS_OUTPUTS_MAX]; /* memory of those that its outputs become; NULL: not yet, or published */
    ks_error fault;                     /* the first one; job and large request have its address */
    const ks_model *model;
    ks_inflate *inflate;
    ks_format_label encoding;
    ks_times times;
    int64_t begun_ns;   /* there has been nothing but words since then, */
    uint64_t run;       /* in this run (ks_infers_run); UINT64_MAX: decode_ns is up to date */
    bool compressed;    /* the body is compressed */
    bool is_large;      /* above the slots: job's plan and slot are the large request's */
    int64_t ended_ns;   /* large: the body is complete; 0: not yet */
    int64_t tail_ns;    /* large: when the first block that ended after that was launched */
    int64_t sending_ns; /* response handed over */
    ks_response_body response;
    uint64_t given_back;  /* of the response's text, from its start */
    char *owned;          /* the response's text */
    uint64_t owned_taken; /* of the budget */
    ks_slot_wait wait;    /* in the slot queue */
    ks_large_request large;
};

struct ks_infers {
    const ks_config *config;
    ks_engine *engine;
    ks_shard_metrics *metrics;
    struct ks_shard_timeline *timeline; /* NULL: none is kept */
    ks_span_ring *spans;                /* NULL: none are exported */
    ks_budget *budget;
    ks_regions *regions; /* NULL: client shared memory is off */
    ks_store *store;     /* NULL: no tensors stay, and there is no reader */
    ks_reader *reader;
    const _Atomic int *state; /* ks_state */
    ks_large_requests *large_requests;
    ks_large_request *events; /* of the last turn */
    struct ks_transfer *transfers;
    ks_hashers *hashers; /* NULL: uploads are hashed by this thread */
    ks_hash_waiter hash_waiter;
    int hash_waits;   /* transfers that wait for hashers */
    bool looks_again; /* one has begun to wait since the last look */
    ks_slot_queue slot_queue;
    ks_head_cache *head_cache;
    ks_codec_limits limits;
    ks_infer *free;
    int count, held, shard;
    uint64_t models_epoch; /* of the models that the head cache knows */
    size_t slice;          /* numbers left of this turn */
    uint64_t runs;         /* looks at connections, by whichever transport */
    ks_infer *records;
    unsigned char *codecs; /* of every record, and one more, for plans that are asked for */
    ks_codec *asked;
    const ks_op *asked_op;
    ks_tenant asked_tenant;
    ks_content *asked_held[KS_INPUTS_MAX];
};

static inline void ks_infers_allow_some(ks_infers *infers)
{
    if (infers->slice < KS_SLICE_LEAST) infers->slice = KS_SLICE_LEAST;
}

/* The one place where a state changes. */
static inline void ks_infer_enter(ks_infer *infer, ks_infer_state next)
{
    static const unsigned faulty = 1u << KS_INFER_ENCODE | 1u << KS_INFER_OVER;
    static const unsigned nexts[] = {[KS_INFER_FREE] = 1u << KS_INFER_BODY,
                                     [KS_INFER_BODY] = 1u << KS_INFER_DECODE | 1u << KS_INFER_WORK | faulty,
                                     [KS_INFER_DECODE] = 1u << KS_INFER_WORK | faulty,
                                     [KS_INFER_WORK] = faulty,
                                     [KS_INFER_ENCODE] = 1u << KS_INFER_ENCODED | 1u << KS_INFER_OVER,
                                     [KS_INFER_ENCODED] = 1u << KS_INFER_SENDING | 1u << KS_INFER_OVER,
                                     [KS_INFER_SENDING] = 1u << KS_INFER_OVER,
                                     [KS_INFER_OVER] = 1u << KS_INFER_FREE};
    assert(nexts[infer->state] >> next & 1);
    infer->state = next;
}

static inline int64_t ks_infer_deadline(const ks_infer *infer)
{
    return ks_times_deadline(&infer->times, ks_codec_request(infer->codec)->timeout_us,
                             infer->infers->config->request_timeout);
}

/* resident.c */

void ks_infer_set_tenant(ks_infer *infer, const ks_tenant *tenant);
ks_codec_tensor_fn ks_infer_hold_tensor, ks_infers_hold_asked;
void ks_infers_drop_asked(ks_infers *infers);
/* Memory for each output that becomes a resident tensor, where the launch puts it. Behind ks_infer_take_windows. KS_NAME,
 * KS_READ_ONLY, KS_QUOTA, KS_RESIDENT_FULL, KS_MEMORY. */
ks_status ks_infer_reserve_outputs(ks_infer *infer);
/* The job is done: they have their names. KS_READ_ONLY, KS_QUOTA. */
ks_status ks_infer_publish_outputs(ks_infer *infer);
void ks_infer_drop_tensors(ks_infer *infer);

/* memory.c */

/* ks_codec_place_fn: a larger slot takes the place of a smaller one, with the bytes that have come; what is above the slots
 * becomes a large request, and what finds no slot waits for one, where its words allow it. A compressed body does not: what comes of it
 * cannot be held back. */
ks_codec_place_fn ks_infer_place;
ks_codec_window_fn ks_infer_hold_window;
/* Of a request that names windows: inputs from shared memory come into the slot, or the slot says where they lie. KS_WINDOW,
 * KS_DEVICE, KS_RANGE. */
ks_status ks_infer_take_windows(ks_infer *infer);
/* Likewise: outputs that go to shared memory, and that the device has not moved there. KS_WINDOW, KS_DEVICE. */
ks_status ks_infer_write_windows(ks_infer *infer);
/* Of a request with a fault: its place in the slot queue, and at once what its large request holds, but for what the engine or the link
 * are busy with. */
void ks_infer_stop_waiting(ks_infer *infer);
/* Of a record that is not held: slot, plan, windows, large request. false: the large request's copies are under way, and it comes back
 * from a turn. */
bool ks_infer_release_memory(ks_infer *infer);

/* What a step of a request without a fault has come to; its sentence is in infer->fault. Inline: each step of a request ends with it, and nearly always with KS_OK. */
static inline ks_status ks_infer_set_fault(ks_infer *infer, ks_status status)
{
    infer->fault.status = status;
    if (status != KS_OK) ks_infer_stop_waiting(infer);
    return status;
}

/* finish.c */

/* Once per request: metrics, and its record in the timeline. times.answered_ns is set. */
void ks_infer_record(ks_infer *infer, ks_status status);
/* The response's text, and its part of the budget. */
void ks_infer_release_text(ks_infer *infer);
#endif
