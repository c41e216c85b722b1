#include "infer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "inflate.h"
#include "log.h"
#include "timing.h"

enum { HELD_BY_CLIENT = 1, HELD_BY_ANSWER = 2, HELD_BY_ENGINE = 4 };
enum { UNTIMED_BYTES = 4096 };

struct ks_infer {
    ks_job job; /* first: a job is its record */
    ks_infers *infers;
    ks_infer *next_free;
    ks_oip *oip;
    void *client;
    int held;
    bool words_open; /* oip wants its fini */
    bool recorded;
    ks_status fault;
    ks_error error;
    const ks_model *model;
    ks_inflate *inflate;
    ks_encoding encoding;
    ks_times times;
    int64_t sending_ns;   /* answer handed over */
    char *owned;          /* the answer's text */
    uint64_t owned_taken; /* of the budget */
};

struct ks_infers {
    ks_daemon *daemon;
    ks_engine *engine;
    ks_shard_metrics *metrics;
    ks_word_limits limits;
    ks_infer *free;
    int count, held;
    uint64_t logged; /* for one line in N */
    ks_infer *records;
    unsigned char *words;
};

static double work_limit(const ks_daemon *daemon)
{
    if (daemon->config->max_work > 0) return (double)daemon->config->max_work;
    return strcmp(daemon->backend->name, "cuda") == 0 ? 1e13 : 1e11;
}

ks_status ks_infers_open(ks_daemon *daemon, ks_engine *engine, ks_shard_metrics *metrics, int count, ks_infers **out,
                         ks_error *error)
{
    const ks_config *config = daemon->config;
    size_t words = (ks_oip_size() + 63) / 64 * 64;
    ks_infers *infers = calloc(1, sizeof *infers);
    if (infers) {
        infers->records = calloc((size_t)count, sizeof *infers->records);
        infers->words = calloc((size_t)count, words);
    }
    if (infers == NULL || infers->records == NULL || infers->words == NULL) {
        ks_infers_close(&infers);
        return ks_fail(error, KS_MEMORY, "no memory for %d request records", count);
    }
    infers->daemon = daemon;
    infers->engine = engine;
    infers->metrics = metrics;
    infers->count = count;
    infers->limits = (ks_word_limits){.max_body = config->max_body,
                                      .max_json = config->max_json,
                                      .max_output = config->max_output,
                                      .max_work = work_limit(daemon),
                                      .max_skeleton = config->max_skeleton,
                                      .strict_parameters = config->strict_parameters,
                                      .json_non_finite_error = config->json_non_finite == 1};
    for (int i = count - 1; i >= 0; i--) {
        ks_infer *infer = &infers->records[i];
        infer->infers = infers;
        infer->oip = (ks_oip *)(void *)(infers->words + (size_t)i * words);
        infer->next_free = infers->free;
        infers->free = infer;
    }
    *out = infers;
    return KS_OK;
}

void ks_infers_close(ks_infers **infers)
{
    if (*infers == NULL) return;
    free((*infers)->records);
    free((*infers)->words);
    free(*infers);
    *infers = NULL;
}

int ks_infers_held(const ks_infers *infers)
{
    return infers->held;
}

static ks_status set_fault(ks_infer *infer, ks_status status)
{
    if (infer->fault == KS_OK) infer->fault = status;
    return status;
}

/* ks_oip_place_fn: a larger slot takes the place of a smaller one, with the bytes that have come. */
static ks_status place(void *context, size_t in_bytes, size_t out_bytes, size_t keep, unsigned char **in,
                       unsigned char **out, ks_error *error)
{
    ks_infer *infer = context;
    ks_slot *old = infer->job.slot;
    if (old == NULL || old->in_cap < in_bytes || old->out_cap < out_bytes) {
        ks_slot *slot = NULL;
        ks_status status = ks_engine_slot(infer->infers->engine, in_bytes, out_bytes, &slot, error);
        if (status != KS_OK) return status;
        if (old) {
            memcpy(slot->in, old->in, keep);
            ks_engine_slot_release(infer->infers->engine, &old);
        }
        infer->job.slot = slot;
    }
    *in = infer->job.slot->in;
    *out = infer->job.slot->out;
    return KS_OK;
}

ks_status ks_infer_begin(ks_infers *infers, const ks_oip_head *head, ks_body_encoding encoding, int64_t first_ns,
                         int64_t now_ns, void *client, ks_infer **out, ks_error *error)
{
    ks_infer *infer = infers->free;
    if (infer == NULL)
        return ks_fail(error, KS_BUDGET, "all %d request records of this thread are in use", infers->count);
    infers->free = infer->next_free;
    infers->held++;
    memset(&infer->job, 0, sizeof infer->job);
    infer->client = client;
    infer->held = HELD_BY_CLIENT;
    infer->recorded = false;
    infer->fault = KS_OK;
    infer->error.text[0] = '\0';
    infer->model = head->model;
    infer->encoding = KS_ENCODING_json;
    infer->sending_ns = 0;
    infer->times = (ks_times){.first_ns = first_ns};
    ks_metrics_in_flight(infers->metrics, 1);
    infer->words_open = true;
    set_fault(infer, ks_oip_begin(infer->oip, head, &infers->limits, place, infer, &infer->error));
    if (infer->fault == KS_OK && encoding != KS_BODY_PLAIN)
        set_fault(infer, ks_inflate_begin(infers->limits.max_body, &infer->inflate, &infer->error));
    infer->times.decode_ns = ks_now_ns() - now_ns;
    *out = infer;
    return KS_OK;
}

/* ks_inflate_fn */
static ks_status feed_words(void *context, const char *bytes, size_t n, ks_error *error)
{
    ks_infer *infer = context;
    return ks_oip_feed(infer->oip, bytes, n, error);
}

void ks_infer_feed(ks_infer *infer, const char *bytes, size_t n)
{
    if (infer->fault != KS_OK) return;
    /* To look at the clock twice takes as long as to copy a small piece. */
    const bool copies = ks_oip_ask(infer->oip)->form == KS_FORM_PLAIN_RAW;
    const bool timed = infer->inflate || !copies || n > UNTIMED_BYTES;
    const int64_t started = timed ? ks_now_ns() : 0;
    if (infer->inflate)
        set_fault(infer, ks_inflate_feed(infer->inflate, bytes, n, feed_words, infer, &infer->error));
    else
        set_fault(infer, ks_oip_feed(infer->oip, bytes, n, &infer->error));
    if (timed) infer->times.decode_ns += ks_now_ns() - started;
}

static ks_encoding encoding_of(ks_form form)
{
    if (form == KS_FORM_JSON) return KS_ENCODING_json;
    return form == KS_FORM_BINARY ? KS_ENCODING_binary : KS_ENCODING_raw;
}

/* Everything about the request is known: a slot that holds its output, its plan, its deadline; then to the engine. */
static ks_status submit(ks_infer *infer)
{
    ks_infers *infers = infer->infers;
    const ks_ask *ask = ks_oip_ask(infer->oip);
    ks_job *job = &infer->job;
    unsigned char *in = NULL, *out = NULL;
    size_t in_bytes = 0;
    for (int i = 0; i < ask->spec.inputs; i++) {
        size_t end = ask->spec.in[i].offset + ask->spec.in[i].size_bytes;
        in_bytes = end > in_bytes ? end : in_bytes;
    }
    infer->encoding = encoding_of(ask->form);
    size_t keep = job->slot ? (in_bytes < job->slot->in_cap ? in_bytes : job->slot->in_cap) : 0;
    ks_status status = place(infer, in_bytes, ask->spec.out.size_bytes, keep, &in, &out, &infer->error);
    if (status == KS_OK) status = ks_engine_plan(infers->engine, &ask->spec, &job->plan, &infer->error);
    if (status != KS_OK) return status;
    int64_t wait_ns = infers->daemon->config->request_timeout;
    if (ask->timeout_us > 0 && ask->timeout_us < wait_ns / 1000) wait_ns = ask->timeout_us * 1000;
    job->priority = ask->priority;
    job->deadline_ns = infer->times.first_ns + wait_ns;
    infer->held |= HELD_BY_ENGINE;
    status = ks_engine_submit(infers->engine, job, &infer->error);
    if (status != KS_OK) infer->held &= ~HELD_BY_ENGINE;
    return status;
}

void ks_infer_end(ks_infer *infer)
{
    if (infer->fault != KS_OK) return;
    int64_t started = ks_now_ns();
    if (infer->inflate) set_fault(infer, ks_inflate_end(infer->inflate, &infer->error));
    if (infer->fault == KS_OK) set_fault(infer, ks_oip_end(infer->oip, &infer->error));
    if (infer->fault == KS_OK) set_fault(infer, submit(infer));
    if (infer->fault == KS_OK) infer->times.decode_ns += infer->job.submitted_ns - started;
}

bool ks_infer_done(const ks_infer *infer)
{
    return infer->fault != KS_OK || infer->job.state == KS_JOB_DONE;
}

ks_status ks_infer_fault(const ks_infer *infer)
{
    return infer->fault;
}

static void release(ks_infer *infer)
{
    ks_infers *infers = infer->infers;
    if (infer->held) return;
    if (infer->job.plan) ks_engine_plan_release(infers->engine, &infer->job.plan);
    if (infer->job.slot) ks_engine_slot_release(infers->engine, &infer->job.slot);
    if (infer->inflate) ks_inflate_fini(&infer->inflate);
    if (infer->words_open) ks_oip_fini(infer->oip);
    if (infer->owned_taken) ks_budget_give(infers->daemon->budget, infer->owned_taken);
    free(infer->owned);
    infer->owned = NULL;
    infer->owned_taken = 0;
    infer->words_open = false;
    infer->next_free = infers->free;
    infers->free = infer;
    infers->held--;
    ks_metrics_in_flight(infers->metrics, -1);
}

bool ks_infer_cancel(ks_infer *infer)
{
    if (!(infer->held & HELD_BY_ENGINE) || infer->job.state != KS_JOB_READY ||
        !ks_engine_cancel(infer->infers->engine, &infer->job))
        return false;
    infer->held &= ~HELD_BY_ENGINE;
    set_fault(infer, ks_fail(&infer->error, KS_CANCELLED, "the client has gone"));
    ks_metrics_aborted(infer->infers->metrics, KS_ABORT_QUEUE);
    return true;
}

void ks_infer_abort(ks_infer *infer, ks_status status, const char *sentence)
{
    if (infer->fault != KS_OK) return;
    if (infer->job.state == KS_JOB_READY && ks_engine_cancel(infer->infers->engine, &infer->job))
        infer->held &= ~HELD_BY_ENGINE;
    set_fault(infer, ks_fail(&infer->error, status, "%s", sentence));
}

/* Once per request: metrics, and the line in the access log. */
static void record(ks_infer *infer, ks_status status)
{
    ks_infers *infers = infer->infers;
    const ks_config *config = infers->daemon->config;
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
    if (!config->access_log || infers->logged++ % (uint64_t)config->access_log_sample != 0) return;
    KS_LOG(KS_LOG_INFO, "request", KS_TEXT("model", infer->model->name),
           KS_INT("status", status == KS_OK ? 200 : ks_status_http(status)), KS_TEXT("code", ks_status_code(status)),
           KS_NUMBER("total_ms", (double)r.total_ns / 1e6), KS_INT("batch", r.batch_count));
}

/* The most bytes that one element takes as JSON text, with its comma. */
static size_t text_bytes(ks_dtype dtype)
{
    switch (ks_dtype_size(dtype)) {
    case 1:
        return 6;
    case 2:
        return 7;
    case 4:
        return 17;
    default:
        return 28;
    }
}

/* The most memory that the answer takes beyond the slot. 0: its head fits into the slot's head room. */
static uint64_t answer_bound(const ks_ask *ask)
{
    const uint64_t head = KS_HEAD_ROOM + 6 * (uint64_t)ask->id_length;
    const ks_tensor *out = &ask->spec.out;
    if (!ask->out_binary) return head + out->size_bytes / ks_dtype_size(out->dtype) * text_bytes(out->dtype);
    return ask->form != KS_FORM_PLAIN_RAW && 6 * ask->id_length > KS_HEAD_ROOM / 4 ? head + out->size_bytes : 0;
}

/* The words of a finished job. Text beyond the slot counts against the bytes in flight: its bound from before the first
 * byte is written, then what it came to, until it is sent. */
static ks_status build(ks_infer *infer, ks_answer *answer)
{
    ks_job *job = &infer->job;
    ks_budget *budget = infer->infers->daemon->budget;
    if (infer->fault != KS_OK) return infer->fault;
    if (job->status != KS_OK) {
        infer->error = job->error;
        return job->status;
    }
    const uint64_t bound = answer_bound(ks_oip_ask(infer->oip));
    if (bound > 0 && !ks_budget_take(budget, bound))
        return ks_fail(&infer->error, KS_BUDGET, "no memory for an answer of up to %llu bytes",
                       (unsigned long long)bound);
    infer->owned_taken = bound;
    const ks_status status = ks_oip_answer(infer->oip, job->slot->out, answer, &infer->error);
    const uint64_t used = status == KS_OK && answer->owned ? answer->length : 0;
    assert(used <= bound);
    infer->owned = answer->owned;
    infer->owned_taken = used;
    if (bound > used) ks_budget_give(budget, bound - used);
    return status;
}

ks_status ks_infer_answer(ks_infer *infer, ks_answer *answer, char *timing, ks_error *error)
{
    timing[0] = '\0';
    ks_status status = build(infer, answer);
    infer->times.answered_ns = ks_now_ns();
    record(infer, status);
    if (status != KS_OK) {
        *error = infer->error;
        error->status = status;
        set_fault(infer, status);
        return status;
    }
    if (infer->infers->daemon->config->server_timing) ks_times_text(&infer->times, &infer->job, timing);
    infer->sending_ns = infer->times.answered_ns;
    infer->held |= HELD_BY_ANSWER;
    return KS_OK;
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
        record(infer, KS_CANCELLED);
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
    release(infer);
    return client;
}
