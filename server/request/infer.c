#include "request/infer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "codec/deflate.h"
#include "codec/inflate.h"
#include "base/log.h"
#include "engine/slot_queue.h"
#include "large/large.h"
#include "base/text.h"
#include "request/timing.h"

enum { HELD_BY_CLIENT = 1, HELD_BY_ANSWER = 2, HELD_BY_ENGINE = 4 };
enum { UNTIMED_BYTES = 4096 };

/* Numbers that are converted or printed in one turn, of all requests. A number takes 10 to 60 ns, the rare ones that go
 * through <charconv> included: a turn is kept for 0.25 ms at most. When they are used up each request still gets a few, so
 * that a small one never waits for a large one's end. */
enum { SLICE_NUMBERS = 4096, SLICE_LEAST = 1024 };

typedef enum ks_encode_state { KS_ENCODE_NOT_BEGUN, KS_ENCODE_BEGUN, KS_ENCODE_DONE } ks_encode_state;

struct ks_infer {
    ks_job job; /* first: a job is its record */
    ks_infers *infers;
    ks_infer *next_free;
    ks_codec *codec;
    void *client;
    const ks_identity *identity; /* the client's */
    int held;
    bool codec_open;               /* codec wants its fini */
    ks_window windows[KS_WINDOWS]; /* of shared memory, held */
    bool recorded;
    ks_status fault;
    ks_error error;
    const ks_model *model;
    ks_inflate *inflate;
    ks_format_label encoding;
    ks_times times;
    int64_t begun_ns;             /* there has been nothing but words since then, */
    uint64_t run;                 /* in this run (ks_infers_run); UINT64_MAX: decode_ns is up to date */
    bool compressed;              /* the body is compressed */
    bool is_large;                /* above the slots: job's plan and slot are the large request's */
    int64_t ended_ns;             /* large: the body is complete; 0: not yet */
    int64_t tail_ns;              /* large: when the first block that ended after that was launched */
    int64_t sending_ns;           /* response handed over */
    ks_encode_state encode_state; /* of the response, written so far */
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
    ks_budget *budget;
    ks_regions *regions;      /* NULL: client shared memory is off */
    const _Atomic int *state; /* ks_state */
    ks_large_requests *large_requests;
    ks_large_request *events; /* of the last turn */
    ks_slot_queue slot_queue;
    ks_head_cache *head_cache;
    ks_codec_limits limits;
    ks_infer *free;
    int count, held;
    uint64_t logged; /* for one line in N */
    size_t slice;    /* numbers left of this turn */
    uint64_t runs;   /* looks at connections, by whichever transport */
    ks_infer *records;
    unsigned char *codecs; /* of every record, and one more, for plans that are asked for */
    ks_codec *asked;
};

static double work_limit(const ks_request_options *options)
{
    return options->config->max_work > 0 ? (double)options->config->max_work : options->work_max;
}

ks_status ks_infers_open(const ks_request_options *options, ks_infers **out, ks_error *error)
{
    const ks_config *config = options->config;
    const int count = options->count;
    size_t codec_bytes = (ks_codec_size() + 63) / 64 * 64;
    ks_infers *infers = calloc(1, sizeof *infers);
    if (infers) {
        infers->records = calloc((size_t)count, sizeof *infers->records);
        infers->codecs = calloc((size_t)count + 1, codec_bytes);
        infers->head_cache = ks_head_cache_open();
    }
    if (infers == NULL || infers->records == NULL || infers->codecs == NULL || infers->head_cache == NULL) {
        ks_infers_close(&infers);
        return ks_fail(error, KS_MEMORY, "no memory for %d request records", count);
    }
    const ks_status status = ks_large_requests_open(options->engine, &infers->large_requests, error);
    if (status != KS_OK) {
        ks_infers_close(&infers);
        return status;
    }
    infers->config = config;
    infers->engine = options->engine;
    infers->metrics = options->metrics;
    infers->budget = options->budget;
    infers->regions = options->regions;
    infers->state = options->state;
    infers->count = count;
    ks_slot_queue_init(&infers->slot_queue, options->engine, config->slot_wait);
    infers->limits = (ks_codec_limits){.max_body = config->max_body,
                                       .max_json = config->max_json,
                                       .max_output = config->max_output,
                                       .max_work = work_limit(options),
                                       .max_skeleton = config->max_skeleton,
                                       .strict_parameters = config->strict_parameters,
                                       .json_non_finite_error = config->json_non_finite == KS_JSON_NON_FINITE_ERROR,
                                       .slice = &infers->slice,
                                       .head_cache = infers->head_cache};
    infers->asked = (ks_codec *)(void *)(infers->codecs + (size_t)count * codec_bytes);
    for (int i = count - 1; i >= 0; i--) {
        ks_infer *infer = &infers->records[i];
        infer->infers = infers;
        infer->codec = (ks_codec *)(void *)(infers->codecs + (size_t)i * codec_bytes);
        infer->next_free = infers->free;
        infers->free = infer;
    }
    *out = infers;
    return KS_OK;
}

void ks_infers_close(ks_infers **infers)
{
    if (*infers == NULL) return;
    ks_large_requests_close(&(*infers)->large_requests);
    free((*infers)->records);
    free((*infers)->codecs);
    ks_head_cache_close(&(*infers)->head_cache);
    free(*infers);
    *infers = NULL;
}

void ks_infers_turn(ks_infers *infers)
{
    infers->slice = SLICE_NUMBERS;
}

void ks_infers_run(ks_infers *infers)
{
    infers->runs++;
}

static void allow_some(ks_infers *infers)
{
    if (infers->slice < SLICE_LEAST) infers->slice = SLICE_LEAST;
}

int ks_infers_held(const ks_infers *infers)
{
    return infers->held;
}

ks_status ks_infers_plan(ks_infers *infers, const ks_model *model, const char *query, ks_plan *out, const char **path,
                         ks_error *error)
{
    const ks_codec_head head = {.model = model, .query = query, .content_length = -1};
    ks_status status = ks_codec_begin(infers->asked, &head, &infers->limits, NULL, NULL, error);
    if (status == KS_OK) status = ks_engine_look(infers->engine, &ks_codec_request(infers->asked)->spec, out, error);
    ks_codec_fini(infers->asked);
    if (status == KS_OK) *path = ks_engine_path(infers->engine, out);
    return status;
}

/* A fault gives back at once what a large request holds, but for what the engine or the link are busy with. */
static ks_status set_fault(ks_infer *infer, ks_status status)
{
    if (infer->fault == KS_OK) infer->fault = status;
    if (infer->fault != KS_OK) ks_slot_queue_leave(&infer->infers->slot_queue, &infer->wait);
    if (infer->fault != KS_OK && !(infer->held & HELD_BY_ENGINE)) ks_large_leave(&infer->large);
    return status;
}

static void give_slot(ks_infers *infers, ks_slot **slot)
{
    ks_engine_slot_release(infers->engine, slot);
    ks_slot_queue_freed(&infers->slot_queue);
}

static int64_t deadline_of(const ks_infer *infer)
{
    const ks_infer_request *request = ks_codec_request(infer->codec);
    int64_t wait_ns = infer->infers->config->request_timeout;
    if (request->timeout_us > 0 && request->timeout_us < wait_ns / 1000) wait_ns = request->timeout_us * 1000;
    return infer->times.first_ns + wait_ns;
}

/* ks_codec_write_fn */
static ks_status write_large(void *context, size_t offset, const char *bytes, size_t n, size_t *taken, ks_error *error)
{
    ks_infer *infer = context;
    return ks_large_write(&infer->large, offset, bytes, n, taken, error);
}

/* ks_codec_write_fn: nothing is taken while there is no slot. */
static ks_status write_slot(void *context, size_t offset, const char *bytes, size_t n, size_t *taken, ks_error *error)
{
    ks_infer *infer = context;
    (void)error;
    *taken = infer->job.slot ? n : 0;
    if (infer->job.slot) memcpy(infer->job.slot->in + offset, bytes, n);
    return KS_OK;
}

/* ks_codec_place_fn: a larger slot takes the place of a smaller one, with the bytes that have come; what is above the slots
 * becomes a large request, and what finds no slot waits for one, where its words allow it. A compressed body does not: what comes of it
 * cannot be held back. */
static ks_status place(void *context, size_t in_bytes, size_t out_bytes, size_t keep, unsigned char **in,
                       unsigned char **out, ks_error *error)
{
    ks_infer *infer = context;
    ks_slot *old = infer->job.slot;
    const bool held_back = old == NULL && !infer->compressed && ks_codec_may_write_through(infer->codec);
    const ks_spec *spec = &ks_codec_request(infer->codec)->spec;
    if (held_back && spec->outputs == 1 &&
        ks_large_requests_takes(infer->infers->large_requests, in_bytes, out_bytes)) {
        *in = *out = NULL;
        ks_codec_write_through(infer->codec, write_large);
        infer->is_large = true;
        return ks_large_begin(infer->infers->large_requests, &infer->large, spec, deadline_of(infer), error);
    }
    if (held_back && in_bytes > 0 && ks_slot_queue_holds(&infer->infers->slot_queue, in_bytes, out_bytes)) {
        *in = *out = NULL;
        ks_codec_write_through(infer->codec, write_slot);
        ks_slot_queue_join(&infer->infers->slot_queue, &infer->wait, in_bytes, out_bytes);
        return KS_OK;
    }
    if (old == NULL || old->in_cap < in_bytes || old->out_cap < out_bytes) {
        ks_slot *slot = NULL;
        ks_status status = ks_engine_slot(infer->infers->engine, in_bytes, out_bytes, &slot, error);
        if (status != KS_OK) return status;
        if (old) {
            memcpy(slot->in, old->in, keep);
            give_slot(infer->infers, &old);
        }
        infer->job.slot = slot;
    }
    *in = infer->job.slot->in;
    *out = infer->job.slot->out;
    return KS_OK;
}

/* ks_codec_window_fn */
static ks_status hold_window(void *context, int which, const char *region, uint64_t offset, uint64_t bytes,
                             bool *device_copies, ks_error *error)
{
    ks_infer *infer = context;
    ks_window *window = &infer->windows[which];
    const ks_status status = ks_window_hold(infer->infers->regions, region, offset, bytes, window, error);
    *device_copies = status == KS_OK && ks_window_device(window);
    return status;
}

ks_status ks_infer_begin(ks_infers *infers, const ks_codec_head *head, ks_body_encoding encoding,
                         const ks_identity *identity, int64_t first_ns, int64_t now_ns, void *client, ks_infer **out,
                         ks_error *error)
{
    ks_infer *infer = infers->free;
    if (infer == NULL)
        return ks_fail(error, KS_BUDGET, "all %d request records of this thread are in use", infers->count);
    infers->free = infer->next_free;
    infers->held++;
    memset(&infer->job, 0, sizeof infer->job);
    infer->client = client;
    infer->identity = identity;
    infer->held = HELD_BY_CLIENT;
    infer->recorded = false;
    infer->encode_state = KS_ENCODE_NOT_BEGUN;
    infer->response.owned = NULL;
    infer->given_back = 0;
    infer->fault = KS_OK;
    infer->error.text[0] = '\0';
    infer->model = head->model;
    infer->encoding = KS_FORMAT_LABEL_json;
    infer->sending_ns = 0;
    infer->compressed = encoding != KS_BODY_PLAIN;
    infer->is_large = false;
    infer->ended_ns = infer->tail_ns = 0;
    infer->times = (ks_times){.first_ns = first_ns};
    ks_metrics_add(infers->metrics, KS_COUNT_in_flight, 1);
    infer->codec_open = true;
    ks_codec_head codec_head = *head;
    codec_head.window = infers->regions ? hold_window : NULL;
    set_fault(infer, ks_codec_begin(infer->codec, &codec_head, &infers->limits, place, infer, &infer->error));
    if (infer->fault == KS_OK && infer->compressed)
        set_fault(infer, ks_inflate_begin(infers->limits.max_body, &infers->slice, &infer->inflate, &infer->error));
    infer->begun_ns = now_ns;
    infer->run = infers->runs;
    if (infer->fault != KS_OK) infer->times.decode_ns = ks_now_ns() - now_ns;
    *out = infer;
    return KS_OK;
}

/* --- blocks of a large request ------------------------------------------------------------------------------------------- */

static ks_status submit_job(ks_infer *infer)
{
    ks_job *job = &infer->job;
    /* Another shard may have met a fault that the backend knows nothing of, and answered a client whose next request this is. */
    if (atomic_load_explicit(infer->infers->state, memory_order_acquire) == KS_STATE_FAILED)
        return ks_fail(&infer->error, KS_DEVICE, "the device is lost");
    job->priority = ks_codec_request(infer->codec)->priority;
    job->deadline_ns = deadline_of(infer);
    job->deadline_asked = ks_codec_request(infer->codec)->timeout_us > 0;
    infer->held |= HELD_BY_ENGINE;
    const ks_status status = ks_engine_submit(infer->infers->engine, job, &infer->error);
    if (status != KS_OK) infer->held &= ~HELD_BY_ENGINE;
    return status;
}

/* Rows that are there go to the engine as soon as the block before them is done. A full queue refuses a new request;
 * one that has been let in tries again. */
static void run_block(ks_infer *infer)
{
    ks_large_request *large = &infer->large;
    if (infer->fault != KS_OK || infer->held & HELD_BY_ENGINE || !ks_large_next(large, &infer->job)) return;
    const ks_status status = submit_job(infer);
    if (status == KS_OK)
        ks_large_launched(large);
    else if (status == KS_QUEUE_FULL && (infer->ended_ns == 0 || large->done > 0) &&
             ks_now_ns() < infer->job.deadline_ns)
        ks_large_later(large);
    else
        set_fault(infer, status);
}

/* The phases behind the body's end; what was computed before it is part of receiving. */
static void finish_times(ks_infer *infer)
{
    ks_job *job = &infer->job;
    job->submitted_ns = infer->ended_ns;
    if (job->done_ns < infer->ended_ns) job->done_ns = infer->ended_ns;
    job->launched_ns = infer->tail_ns ? infer->tail_ns : job->done_ns;
    const int64_t ran_ns = job->done_ns - job->launched_ns;
    if (job->h2d_ns > ran_ns) job->h2d_ns = ran_ns;
    if (job->d2h_ns > ran_ns - job->h2d_ns) job->d2h_ns = ran_ns - job->h2d_ns;
    job->compute_ns = ran_ns - job->h2d_ns - job->d2h_ns;
}

/* A block has ended. true: nothing more will run, and the body has ended or does not matter any more. */
static bool end_block(ks_infer *infer)
{
    ks_job *job = &infer->job;
    if (job->status != KS_OK && infer->fault == KS_OK) {
        infer->error = job->error;
        set_fault(infer, job->status);
    }
    if (infer->fault != KS_OK || infer->client == NULL) {
        ks_large_leave(&infer->large);
        return true;
    }
    if (infer->ended_ns && infer->tail_ns == 0 && job->done_ns > infer->ended_ns)
        infer->tail_ns = job->launched_ns > infer->ended_ns ? job->launched_ns : infer->ended_ns;
    if (!ks_large_done(&infer->large, job)) {
        run_block(infer);
        return infer->fault != KS_OK;
    }
    if (infer->ended_ns) finish_times(infer);
    return infer->ended_ns != 0;
}

/* The body of a large request is complete. */
static ks_status end_large(ks_infer *infer)
{
    const ks_status status = ks_large_finish(&infer->large, &infer->error);
    if (status != KS_OK) return status;
    infer->encoding = ks_infer_request_label(ks_codec_request(infer->codec));
    infer->ended_ns = ks_now_ns();
    infer->job.submitted_ns = infer->ended_ns;
    run_block(infer);
    if (ks_large_is_done(&infer->large)) finish_times(infer);
    return infer->fault;
}

/* --- the body ----------------------------------------------------------------------------------------------------- */

/* ks_inflate_fn */
static ks_status feed_codec(void *context, const char *bytes, size_t *n, ks_error *error)
{
    ks_infer *infer = context;
    return ks_codec_feed(infer->codec, bytes, n, error);
}

size_t ks_infer_feed(ks_infer *infer, const char *bytes, size_t n)
{
    if (infer->fault != KS_OK) return n;
    size_t taken = n;
    allow_some(infer->infers);
    /* To look at the clock twice takes as long as to copy a small chunk. */
    const bool copies = ks_codec_request(infer->codec)->format == KS_BODY_FORMAT_RAW;
    const bool first = infer->run == infer->infers->runs;
    const bool timed = !first && (infer->inflate || !copies || n > UNTIMED_BYTES);
    const int64_t started = timed ? ks_now_ns() : 0;
    if (infer->inflate)
        set_fault(infer, ks_inflate_feed(infer->inflate, bytes, &taken, feed_codec, infer, &infer->error));
    else
        set_fault(infer, ks_codec_feed(infer->codec, bytes, &taken, &infer->error));
    if (timed) infer->times.decode_ns += ks_now_ns() - started;
    if (first && (infer->fault != KS_OK || !ks_codec_complete(infer->codec))) {
        infer->times.decode_ns = ks_now_ns() - infer->begun_ns;
        infer->run = UINT64_MAX;
    }
    if (infer->is_large) run_block(infer);
    return infer->fault == KS_OK ? taken : n;
}

/* Inputs from shared memory come into the slot, or the slot says where they lie. */
static ks_status take_windows(ks_infer *infer)
{
    const ks_infer_request *request = ks_codec_request(infer->codec);
    ks_slot *slot = infer->job.slot;
    if (!request->windows) return KS_OK;
    for (int i = ks_next_input(&request->spec, -1); i >= 0; i = ks_next_input(&request->spec, i)) {
        const ks_tensor *in = &request->spec.in[i];
        ks_status status = KS_OK;
        if (ks_in(request->device_copies, i))
            slot->in_window[i] = ks_window_device(&infer->windows[i]);
        else if (ks_in(request->windows, i))
            status = ks_window_read(&infer->windows[i], slot->in + in->offset, in->size_bytes, &infer->error);
        if (status == KS_OK && ks_in(request->windows & ~(unsigned)request->device_copies, i))
            status = ks_infer_request_check_bytes(request, i, slot->in + in->offset, in->size_bytes, &infer->error);
        if (status != KS_OK) return status;
    }
    for (int i = 0; i < request->spec.outputs; i++)
        if (ks_in(request->device_copies, KS_WINDOW_OUT + i))
            slot->out_window[i] = ks_window_device(&infer->windows[KS_WINDOW_OUT + i]);
    slot->windows |= request->device_copies != 0;
    return KS_OK;
}

static void drop_windows(ks_infer *infer)
{
    ks_slot *slot = infer->job.slot;
    if (slot && slot->windows) {
        memset(slot->in_window, 0, sizeof slot->in_window);
        memset(slot->out_window, 0, sizeof slot->out_window);
        slot->windows = false;
    }
    if (!ks_codec_request(infer->codec)->windows) return;
    for (int i = 0; i < KS_WINDOWS; i++)
        if (infer->windows[i].region) ks_window_release(infer->infers->regions, &infer->windows[i]);
}

/* Everything about the request is known: a slot that holds its output, its plan, its deadline; then to the engine. */
static ks_status submit(ks_infer *infer)
{
    ks_infers *infers = infer->infers;
    const ks_infer_request *request = ks_codec_request(infer->codec);
    ks_job *job = &infer->job;
    unsigned char *in = NULL, *out = NULL;
    const size_t in_bytes = ks_infer_request_in_bytes(request);
    infer->encoding = ks_infer_request_label(request);
    size_t keep = job->slot ? (in_bytes < job->slot->in_cap ? in_bytes : job->slot->in_cap) : 0;
    ks_status status = place(infer, in_bytes, ks_infer_request_out_bytes(request), keep, &in, &out, &infer->error);
    if (status == KS_OK) status = take_windows(infer);
    if (status == KS_OK) status = ks_engine_plan(infers->engine, &request->spec, &job->plan, &infer->error);
    if (status == KS_OK) status = submit_job(infer);
    if (status == KS_OK && ks_engine_run(infers->engine, job)) infer->held &= ~HELD_BY_ENGINE;
    return status;
}

bool ks_infer_end(ks_infer *infer)
{
    if (infer->fault != KS_OK) return true;
    allow_some(infer->infers);
    /* A small request is complete in the run that it begins in, and its words need only one look at the clock. */
    const int64_t started = infer->run == infer->infers->runs ? infer->begun_ns : ks_now_ns();
    infer->run = UINT64_MAX;
    if (infer->inflate) set_fault(infer, ks_inflate_end(infer->inflate, &infer->error));
    if (infer->fault == KS_OK) set_fault(infer, ks_codec_end(infer->codec, &infer->error));
    if (infer->fault == KS_OK && ks_codec_busy(infer->codec)) {
        infer->times.decode_ns += ks_now_ns() - started;
        return false;
    }
    if (infer->fault == KS_OK) set_fault(infer, infer->is_large ? end_large(infer) : submit(infer));
    if (infer->fault == KS_OK) infer->times.decode_ns += infer->job.submitted_ns - started;
    return true;
}

bool ks_infer_done(const ks_infer *infer)
{
    if (infer->fault != KS_OK) return true;
    return infer->is_large ? infer->ended_ns && ks_large_is_done(&infer->large) : infer->job.state == KS_JOB_DONE;
}

ks_status ks_infer_fault(const ks_infer *infer)
{
    return infer->fault;
}

const char *ks_infer_sentence(const ks_infer *infer)
{
    return infer->error.text;
}

void *ks_infer_client(const ks_infer *infer)
{
    return infer->client;
}

static void release(ks_infer *infer)
{
    ks_infers *infers = infer->infers;
    if (infer->held) return;
    ks_slot_queue_leave(&infers->slot_queue, &infer->wait);
    if (!ks_large_leave(&infer->large)) return; /* comes back from a turn */
    if (infer->is_large) {
        infer->job.plan = NULL;
        infer->job.slot = NULL;
    }
    if (infer->job.plan) ks_engine_plan_release(infers->engine, &infer->job.plan);
    drop_windows(infer);
    if (infer->job.slot) give_slot(infers, &infer->job.slot);
    if (infer->inflate) ks_inflate_fini(&infer->inflate);
    if (infer->codec_open) ks_codec_fini(infer->codec);
    if (infer->owned_taken) ks_budget_give(infers->budget, infer->owned_taken);
    free(infer->owned);
    infer->owned = NULL;
    infer->owned_taken = 0;
    infer->codec_open = false;
    infer->next_free = infers->free;
    infers->free = infer;
    infers->held--;
    ks_metrics_add(infers->metrics, KS_COUNT_in_flight, -1);
}

bool ks_infer_cancel(ks_infer *infer)
{
    if (!(infer->held & HELD_BY_ENGINE) || infer->job.state != KS_JOB_READY ||
        !ks_engine_cancel(infer->infers->engine, &infer->job))
        return false;
    infer->held &= ~HELD_BY_ENGINE;
    set_fault(infer, ks_fail(&infer->error, KS_CANCELLED, "the client has gone"));
    if (!infer->is_large || infer->ended_ns) ks_metrics_add(infer->infers->metrics, KS_COUNT_aborted_queue, 1);
    return true;
}

void ks_infer_abort(ks_infer *infer, ks_status status, const char *sentence)
{
    if (infer->fault != KS_OK) return;
    if (infer->job.state == KS_JOB_READY && ks_engine_cancel(infer->infers->engine, &infer->job))
        infer->held &= ~HELD_BY_ENGINE;
    set_fault(infer, ks_fail(&infer->error, status, "%s", sentence));
}

static bool wants_slot_queue(ks_infers *infers)
{
    const ks_config *config = infers->config;
    return config->access_log == KS_ACCESS_LOG_ON && infers->logged++ % (uint64_t)config->access_log_sample == 0;
}

/* Microseconds of a phase; one that did not happen took none. */
static int64_t phase_us(const ks_record *r, ks_phase phase)
{
    return r->phase_ns[phase] > 0 ? (r->phase_ns[phase] + 500) / 1000 : 0;
}

static void log_slot_queue(const ks_infer *infer, const ks_record *r)
{
    const ks_identity *identity = infer->identity;
    KS_LOG(KS_LOG_INFO, "request", KS_TEXT("request_id", identity->request_id), KS_TEXT("trace_id", identity->trace_id),
           KS_TEXT("span_id", identity->span_id), KS_TEXT("model", infer->model->name),
           KS_TEXT("encoding", ks_format_label_name(r->encoding)), KS_INT("status", ks_status_http(r->status)),
           KS_TEXT("code", ks_status_code(r->status)), KS_INT("receive_us", phase_us(r, KS_PHASE_receive)),
           KS_INT("decode_us", phase_us(r, KS_PHASE_decode)), KS_INT("queue_us", phase_us(r, KS_PHASE_queue)),
           KS_INT("h2d_us", phase_us(r, KS_PHASE_h2d)), KS_INT("compute_us", phase_us(r, KS_PHASE_compute)),
           KS_INT("d2h_us", phase_us(r, KS_PHASE_d2h)), KS_INT("encode_us", phase_us(r, KS_PHASE_encode)),
           KS_INT("total_us", r->total_ns / 1000), KS_INT("batch", r->batch_count), KS_INT("lane", infer->job.lane),
           KS_TEXT("graph", ks_graph_name(infer->job.graph)));
}

void ks_infers_log_other(ks_infers *infers, const ks_model *model, const ks_identity *identity, ks_status status,
                         int64_t total_ns)
{
    if (!wants_slot_queue(infers)) return;
    KS_LOG(KS_LOG_INFO, "request", KS_TEXT("request_id", identity->request_id), KS_TEXT("trace_id", identity->trace_id),
           KS_TEXT("span_id", identity->span_id), KS_TEXT("model", model ? model->name : "unknown"),
           KS_INT("status", ks_status_http(status)), KS_TEXT("code", ks_status_code(status)),
           KS_INT("total_us", total_ns / 1000));
}

/* Once per request: metrics, and the line in the access log. */
static void record(ks_infer *infer, ks_status status)
{
    ks_infers *infers = infer->infers;
    if (infer->recorded) return;
    infer->recorded = true;
    ks_record r = {.model = infer->model->index,
                   .encoding = infer->encoding,
                   .status = status,
                   .executed = status == KS_OK,
                   .batch_count = infer->job.batch_count,
                   .total_ns = infer->times.answered_ns - infer->times.first_ns};
    ks_times_phases(&infer->times, &infer->job, r.executed, r.phase_ns);
    ks_metrics_inference(infers->metrics, &r);
    if (wants_slot_queue(infers)) log_slot_queue(infer, &r);
}

/* Outputs that go to shared memory, and that the device has not moved there. */
static ks_status write_windows(ks_infer *infer)
{
    const ks_infer_request *request = ks_codec_request(infer->codec);
    const unsigned ours = (unsigned)(request->windows & ~request->device_copies) >> KS_WINDOW_OUT;
    for (int i = 0; ours >> i; i++) {
        if (!ks_in(ours, i)) continue;
        const ks_tensor *out = &request->spec.out[i];
        const ks_status status = ks_window_write(&infer->windows[KS_WINDOW_OUT + i], infer->job.slot->out + out->offset,
                                                 out->size_bytes, &infer->error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* A finished job, or its fault. Text beyond the slot counts against the bytes in flight: its bound from before the first
 * byte is written, then what it came to, until it is sent. */
static ks_status begin_encode(ks_infer *infer)
{
    if (infer->fault != KS_OK) return infer->fault;
    if (infer->job.status != KS_OK) {
        infer->error = infer->job.error;
        return infer->job.status;
    }
    const ks_status wrote = write_windows(infer);
    if (wrote != KS_OK) return wrote;
    const uint64_t bound = ks_codec_encode_bound(infer->codec);
    if (bound > 0 && !ks_budget_take(infer->infers->budget, bound))
        return ks_fail(&infer->error, KS_BUDGET, "no memory for an answer of up to %llu bytes",
                       (unsigned long long)bound);
    infer->owned_taken = bound;
    return KS_OK;
}

static unsigned char *out_of(ks_infer *infer)
{
    return infer->is_large ? ks_large_out(&infer->large) : infer->job.slot->out;
}

bool ks_infer_write(ks_infer *infer)
{
    if (infer->encode_state == KS_ENCODE_NOT_BEGUN) {
        set_fault(infer, begin_encode(infer));
        infer->encode_state = KS_ENCODE_BEGUN;
    }
    if (infer->encode_state == KS_ENCODE_DONE) return true;
    allow_some(infer->infers);
    if (infer->fault == KS_OK)
        set_fault(infer, ks_codec_encode(infer->codec, out_of(infer), &infer->response, &infer->error));
    if (infer->fault == KS_OK && ks_codec_busy(infer->codec)) return false;
    const uint64_t used = infer->fault == KS_OK && infer->response.owned ? infer->response.length : 0;
    assert(used <= infer->owned_taken);
    if (infer->owned_taken > used) ks_budget_give(infer->infers->budget, infer->owned_taken - used);
    infer->owned = infer->response.owned;
    infer->owned_taken = used;
    infer->encode_state = KS_ENCODE_DONE;
    return true;
}

/* The same response, compressed as the client accepts it, where that makes it smaller. Past PACK_MOST it would hold the shard up
 * for longer than sending it takes; a large request's response lies with the device. */
static void compress(ks_infer *infer, ks_compression compression)
{
    enum { COMPRESS_MIN = 1024, COMPRESS_MAX = 1 << 20 };
    ks_response_body *const response = &infer->response;
    ks_budget *budget = infer->infers->budget;
    if (compression == KS_COMPRESSION_NONE || response->length < COMPRESS_MIN || response->length > COMPRESS_MAX ||
        infer->is_large)
        return;
    const uint64_t bound = ks_compression_bound(response->length);
    if (!ks_budget_take(budget, bound)) return;
    char *compressed = malloc(bound);
    const size_t length = compressed ? ks_compress(compression, response->body, response->length, compressed) : 0;
    if (length == 0) {
        free(compressed);
        ks_budget_give(budget, bound);
        return;
    }
    ks_budget_give(budget, bound - length + infer->owned_taken);
    free(infer->owned);
    infer->owned = compressed;
    infer->owned_taken = length;
    response->owned = compressed;
    response->body = compressed;
    response->length = length;
    response->content_encoding = ks_compression_name(compression);
}

ks_status ks_infer_response(ks_infer *infer, const char *accept_encoding, ks_response_body *response, char *timing,
                            ks_error *error)
{
    assert(infer->encode_state == KS_ENCODE_DONE);
    timing[0] = '\0';
    if (infer->fault == KS_OK && infer->infers->config->response_compression)
        compress(infer, ks_compression_accepted(accept_encoding));
    infer->times.answered_ns = ks_now_ns();
    record(infer, infer->fault);
    if (infer->fault != KS_OK) {
        *error = infer->error;
        error->status = infer->fault;
        return infer->fault;
    }
    *response = infer->response;
    if (infer->infers->config->server_timing) ks_times_text(&infer->times, &infer->job, infer->identity, timing);
    infer->sending_ns = infer->times.answered_ns;
    infer->held |= HELD_BY_ANSWER;
    return KS_OK;
}

bool ks_infer_is_remote(const ks_infer *infer)
{
    return infer->is_large && ks_large_is_remote(&infer->large);
}

bool ks_infer_waits(const ks_infer *infer)
{
    return infer->wait.waits || (infer->is_large && infer->large.pause != KS_PAUSE_NONE);
}

/* Of a large response: what lies in front of the tensor. */
static size_t head_bytes(const ks_infer *infer)
{
    return infer->response.length - ks_codec_request(infer->codec)->spec.out[0].size_bytes;
}

int64_t ks_infer_view(ks_infer *infer, uint64_t at, const char **bytes)
{
    if (infer->fault != KS_OK) return -1; /* a large request has given its memory back */
    if (!ks_infer_is_remote(infer)) {
        *bytes = infer->response.body + at;
        return (int64_t)(infer->response.length - at);
    }
    const size_t head = head_bytes(infer);
    if (at < head) {
        *bytes = (const char *)ks_large_out(&infer->large) - (head - at);
        return (int64_t)(head - at);
    }
    const size_t size = ks_large_view(&infer->large, (size_t)at - head, bytes);
    return size == 0 && infer->large.status != KS_OK ? -1 : (int64_t)size;
}

void ks_infer_used(ks_infer *infer, uint64_t at, size_t n)
{
    if (infer->owned) ks_text_give_back(infer->owned, at + n, &infer->given_back);
    if (ks_infer_is_remote(infer) && at >= head_bytes(infer)) ks_large_used(&infer->large, n);
}

int64_t ks_infer_read(ks_infer *infer, uint64_t at, char *out, size_t most)
{
    const char *bytes = NULL;
    const int64_t size = ks_infer_view(infer, at, &bytes);
    if (size <= 0) return size;
    const size_t n = (uint64_t)size < most ? (size_t)size : most;
    memcpy(out, bytes, n);
    ks_infer_used(infer, at, n);
    return (int64_t)n;
}

void ks_infer_sent(ks_infer *infer)
{
    ks_metrics_send(infer->infers->metrics, infer->model->index, ks_now_ns() - infer->sending_ns);
    infer->held &= ~HELD_BY_ANSWER;
    release(infer);
}

void ks_infer_leave(ks_infer **pointer)
{
    ks_infer *infer = *pointer;
    *pointer = NULL;
    if (infer == NULL) return;
    ks_infer_cancel(infer);
    if (!infer->recorded) {
        infer->times.answered_ns = ks_now_ns();
        record(infer, infer->fault != KS_OK ? infer->fault : KS_CANCELLED);
    }
    infer->client = NULL;
    infer->held &= ~HELD_BY_CLIENT;
    release(infer);
}

void *ks_infer_collected(ks_job *job)
{
    ks_infer *infer = (ks_infer *)job;
    void *client = infer->client;
    infer->held &= ~HELD_BY_ENGINE;
    if (infer->is_large && !end_block(infer)) return NULL;
    release(infer);
    return client;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

void ks_infers_look(ks_infers *infers, int64_t now_ns)
{
    infers->events = ks_large_requests_turn(infers->large_requests, now_ns);
    ks_slot_queue_look(&infers->slot_queue, now_ns);
}

void *ks_infers_woken(ks_infers *infers)
{
    while (infers->events) {
        ks_large_request *large = infers->events;
        ks_infer *infer = (ks_infer *)((char *)large - offsetof(ks_infer, large));
        void *client = infer->client;
        infers->events = large->event_next;
        if (large->status != KS_OK && infer->fault == KS_OK) {
            infer->error = large->error;
            set_fault(infer, large->status);
        }
        run_block(infer);
        release(infer);
        if (client) return client;
    }
    const ks_slot_wait *wait = ks_slot_queue_next(&infers->slot_queue);
    if (wait == NULL) return NULL;
    ks_infer *infer = (ks_infer *)((char *)(uintptr_t)wait - offsetof(ks_infer, wait));
    set_fault(infer, ks_engine_slot(infers->engine, wait->in_bytes, wait->out_bytes, &infer->job.slot, &infer->error));
    return infer->client;
}

int64_t ks_infers_wait_ns(const ks_infers *infers)
{
    const int64_t large_requests_ns = infers->events ? 0 : ks_large_requests_wait_ns(infers->large_requests);
    const int64_t slot_queue_ns = ks_slot_queue_wait_ns(&infers->slot_queue);
    return large_requests_ns < slot_queue_ns ? large_requests_ns : slot_queue_ns;
}
