/* The end of an inference request: its response is encoded, compressed and given out piece by piece; metrics and the access
 * log get its record.
 *
 * Owns       the response's text beyond the slot, and its part of the budget, from the first ks_infer_write on until
 *            ks_infer_release_text.
 * Interface  infer.h: ks_infer_write, _response, _large_requests, _view, _used, _read, _access, _log_steps; infer_parts.h.
 * Limits     a text's bound is taken of the bytes in flight before its first byte is written: KS_BUDGET. A turn prints as
 *            many numbers as ks_infers.slice has left.
 * Threads    the shard's own. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "codec/deflate.h"
#include "observe/access_log.h"
#include "observe/timeline.h"
#include "request/infer_parts.h"

/* --- the record --------------------------------------------------------------------------------------------------- */

/* A request whose work was done, and whose response was made. */
static bool has_run(const ks_infer *infer)
{
    return infer->fault.status == KS_OK && infer->sending_ns > 0;
}

void ks_infer_access(const ks_infer *infer, int64_t now_ns, ks_access *access)
{
    const bool ran = has_run(infer);
    access->model = infer->model->name;
    access->fault = infer->fault.status;
    ks_times_phases(&infer->times, &infer->job, ran, access->phase_ns);
    if (!ran) return;
    access->format = ks_format_label_name(infer->encoding);
    access->phase_ns[KS_PHASE_send] = now_ns - infer->sending_ns;
    access->batch = infer->job.batch_count;
    access->rows = infer->job.batch_rows;
    access->tensors = __builtin_popcount(ks_codec_request(infer->codec)->resident);
    access->lane = infer->job.batch_count > 0 ? infer->job.lane : -1;
    access->graph = ks_graph_name(infer->job.graph);
}

static const char *slot_kind(const ks_infer *infer)
{
    if (infer->is_large) return "device buffer";
    if (infer->job.slot == NULL) return "none";
    return infer->job.slot->size_class < 0 ? "unpinned memory" : "slot";
}

/* What it has named, in the place of data and for outputs. */
static void log_tensors(const ks_infer *infer)
{
    const ks_infer_request *request = ks_codec_request(infer->codec);
    for (unsigned left = request->resident | (unsigned)request->stored << KS_WINDOW_OUT; left; left &= left - 1) {
        const int which = __builtin_ctz(left);
        KS_LOG(KS_LOG_INFO, "request step", KS_TEXT("request_id", infer->identity->request_id),
               KS_TEXT("step", "tensor"),
               KS_TEXT("of", which < KS_WINDOW_OUT ? request->spec.op->inputs[which].name
                                                   : ks_op_output(request->spec.op, which - KS_WINDOW_OUT)),
               KS_TEXT("tensor", request->tensor[which]));
    }
}

void ks_infer_log_steps(const ks_infer *infer)
{
    const char *const id = infer->identity->request_id;
    const ks_job *job = &infer->job;
    const ks_slot *slot = infer->is_large ? NULL : job->slot;
    KS_LOG(KS_LOG_INFO, "request step", KS_TEXT("request_id", id), KS_TEXT("step", "format"),
           KS_TEXT("model", infer->model->name), KS_TEXT("format", ks_format_label_name(infer->encoding)),
           KS_TEXT("compressed", infer->compressed ? "yes" : "no"), KS_INT("decode_us", infer->times.decode_ns / 1000));
    log_tensors(infer);
    KS_LOG(KS_LOG_INFO, "request step", KS_TEXT("request_id", id), KS_TEXT("step", "slot"),
           KS_TEXT("memory", slot_kind(infer)), KS_INT("in_bytes", slot ? slot->in_cap : 0),
           KS_INT("out_bytes", slot ? slot->out_cap : 0));
    if (job->plan)
        KS_LOG(KS_LOG_INFO, "request step", KS_TEXT("request_id", id), KS_TEXT("step", "plan"),
               KS_TEXT("plan", job->plan->made_ns >= infer->times.first_ns ? "made" : "found"),
               KS_INT("plan_id", job->plan->id), KS_TEXT("kernel", job->plan->kernel_info.kernel),
               KS_TEXT("path", ks_engine_path(infer->infers->engine, job->plan)));
    if (has_run(infer) && job->batch_count > 0)
        KS_LOG(KS_LOG_INFO, "request step", KS_TEXT("request_id", id), KS_TEXT("step", "launch"),
               KS_INT("lane", job->lane), KS_INT("batch", job->batch_count),
               KS_TEXT("graph", ks_graph_name(job->graph)),
               KS_INT("queue_us", (job->launched_ns - job->submitted_ns) / 1000),
               KS_INT("device_us", (job->done_ns - job->launched_ns) / 1000));
}

/* The 16 hexadecimal digits at text. */
static uint64_t half_of_trace(const char *text)
{
    char digits[17];
    memcpy(digits, text, 16);
    digits[16] = '\0';
    return strtoull(digits, NULL, 16);
}

/* Most significant half first. */
static void read_trace(const ks_identity *identity, uint64_t trace[2])
{
    trace[0] = half_of_trace(identity->trace_id);
    trace[1] = half_of_trace(identity->trace_id + 16);
}

/* Of its tensors. With a fault a large request has given its plans back, and its plan is a block's: only of one that ran. */
static uint64_t in_bytes_of(const ks_infer *infer)
{
    return infer->is_large ? ks_spec_in_bytes(&ks_codec_request(infer->codec)->spec)
                           : ks_plan_job_in(infer->job.plan, infer->job.rows);
}

static void add_to_timeline(const ks_infer *infer, ks_status status)
{
    const ks_job *job = &infer->job;
    const ks_identity *identity = infer->identity;
    ks_request_record record = {.first_ns = infer->times.first_ns,
                                .decode_ns = infer->times.decode_ns,
                                .answered_ns = infer->times.answered_ns,
                                .out_bytes = infer->response.length,
                                .model = (uint64_t)infer->model->index & 0xffffffff,
                                .status = (uint64_t)status & 0xffff,
                                .ran = status == KS_OK};
    if (status == KS_OK) {
        record.in_bytes = in_bytes_of(infer);
        record.submitted_ns = job->submitted_ns;
        record.launched_ns = job->launched_ns >= job->submitted_ns ? job->launched_ns : job->done_ns;
        record.done_ns = job->done_ns;
        record.h2d_ns = job->h2d_ns;
        record.d2h_ns = job->d2h_ns;
        record.launch = job->launch;
    }
    if (identity->trace_id[0]) read_trace(identity, record.trace);
    if (identity->request_id == identity->made)
        memcpy(record.request_id, identity->made, sizeof identity->made);
    else
        memcpy(record.request_id, identity->request_id, strnlen(identity->request_id, sizeof record.request_id - 1));
    ks_timeline_add_request(infer->infers->timeline, &record);
}

/* What happened, for the collector of the caller's trace. */
static void add_span(const ks_infer *infer, const ks_record *r)
{
    const ks_identity *identity = infer->identity;
    ks_span span = {.first_ns = infer->times.first_ns,
                    .answered_ns = infer->times.answered_ns,
                    .in_bytes = r->executed ? in_bytes_of(infer) : 0,
                    .out_bytes = infer->response.length,
                    .model = (uint64_t)infer->model->index & 0xffffffff,
                    .status = (uint64_t)r->status & 0xffff,
                    .ran = r->executed};
    memcpy(span.phase_ns, r->phase_ns, sizeof span.phase_ns);
    memcpy(span.trace_id, identity->trace_id, sizeof span.trace_id);
    memcpy(span.parent_id, identity->parent_id, sizeof span.parent_id);
    memcpy(span.id, identity->span_id, sizeof span.id);
    memcpy(span.request_id, identity->request_id, strnlen(identity->request_id, sizeof span.request_id - 1));
    ks_spans_add(infer->infers->spans, &span);
}

/* A request whose client samples its trace: an exemplar of the metrics, a span for the collector. */
static void tell_trace(const ks_infer *infer, const ks_record *r)
{
    uint64_t trace[2];
    read_trace(infer->identity, trace);
    if (r->status == KS_OK) ks_metrics_exemplar(infer->infers->metrics, r->model, r->total_ns, trace);
    if (infer->infers->spans) add_span(infer, r);
}

void ks_infer_record(ks_infer *infer, ks_status status)
{
    ks_infers *infers = infer->infers;
    ks_record r = {.model = infer->model->index,
                   .encoding = infer->encoding,
                   .status = status,
                   .executed = status == KS_OK,
                   .batch_count = infer->job.batch_count,
                   .total_ns = infer->times.answered_ns - infer->times.first_ns};
    ks_times_phases(&infer->times, &infer->job, r.executed, r.phase_ns);
    ks_metrics_inference(infers->metrics, &r);
    if (infers->timeline) add_to_timeline(infer, status);
    if (infer->identity->trace_id[0] && infer->identity->sampled) tell_trace(infer, &r);
}

/* --- the words ---------------------------------------------------------------------------------------------------- */

/* A finished job, or its fault. Text beyond the slot counts against the bytes in flight: its bound from before the first
 * byte is written, then what it came to, until it is sent. */
static ks_status begin_encode(ks_infer *infer)
{
    if (infer->fault.status != KS_OK) return infer->fault.status;
    if (infer->job.status != KS_OK) return infer->job.status;
    const ks_status wrote = ks_codec_request(infer->codec)->windows ? ks_infer_write_windows(infer) : KS_OK;
    if (wrote != KS_OK) return wrote;
    const ks_status published = ks_codec_request(infer->codec)->stored ? ks_infer_publish_outputs(infer) : KS_OK;
    if (published != KS_OK) return published;
    const uint64_t bound = ks_codec_encode_bound(infer->codec);
    if (bound > 0 && !ks_budget_take(infer->infers->budget, bound))
        return ks_fail(&infer->fault, KS_BUDGET, "no memory for an answer of up to %llu bytes",
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
    if (infer->state < KS_INFER_ENCODE) {
        ks_infer_set_fault(infer, begin_encode(infer));
        ks_infer_enter(infer, KS_INFER_ENCODE);
    }
    if (infer->state == KS_INFER_ENCODED) return true;
    ks_infers_allow_some(infer->infers);
    if (infer->fault.status == KS_OK)
        ks_infer_set_fault(infer, ks_codec_encode(infer->codec, out_of(infer), &infer->response, &infer->fault));
    if (infer->fault.status == KS_OK && ks_codec_busy(infer->codec)) return false;
    const uint64_t used = infer->fault.status == KS_OK && infer->response.owned ? infer->response.length : 0;
    assert(used <= infer->owned_taken);
    if (infer->owned_taken > used) ks_budget_give(infer->infers->budget, infer->owned_taken - used);
    infer->owned = infer->response.owned;
    infer->owned_taken = used;
    ks_infer_enter(infer, KS_INFER_ENCODED);
    return true;
}

/* The same response, compressed as the client accepts it, where that makes it smaller. Past COMPRESS_MAX it would hold the shard up
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
    timing[0] = '\0';
    if (infer->fault.status == KS_OK && infer->infers->config->response_compression)
        compress(infer, ks_compression_accepted(accept_encoding));
    infer->times.answered_ns = ks_now_ns();
    ks_infer_record(infer, infer->fault.status);
    ks_infer_enter(infer, infer->fault.status == KS_OK ? KS_INFER_SENDING : KS_INFER_OVER);
    if (infer->fault.status != KS_OK) {
        *error = infer->fault;
        return error->status;
    }
    const ks_infer_request *request = ks_codec_request(infer->codec);
    *response = infer->response;
    response->warning = request->warned ? request->warning : NULL;
    if (request->warned) ks_metrics_add(infer->infers->metrics, KS_COUNT_warned_parameter, 1);
    if (infer->infers->config->server_timing) ks_times_text(&infer->times, &infer->job, infer->identity, timing);
    infer->sending_ns = infer->times.answered_ns;
    return KS_OK;
}

char *ks_infer_profile(const ks_infer *infer, const char *timing)
{
    const size_t length = strlen(timing);
    if (!infer->job.step_ns || length == 0) return NULL;
    char *text = malloc(length + KS_TIMING_STEPS_MAX);
    if (!text) return NULL;
    memcpy(text, timing, length);
    ks_times_steps(&infer->job, text + length);
    return text;
}

/* --- the bytes ---------------------------------------------------------------------------------------------------- */

bool ks_infer_is_remote(const ks_infer *infer)
{
    return infer->is_large && ks_large_is_remote(&infer->large);
}

/* Of a large response: what lies in front of the tensor. */
static size_t head_bytes(const ks_infer *infer)
{
    return infer->response.length - ks_codec_request(infer->codec)->spec.out[0].size_bytes;
}

int64_t ks_infer_view(ks_infer *infer, uint64_t at, const char **bytes)
{
    if (infer->fault.status != KS_OK) return -1; /* a large request has given its memory back */
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
    return size == 0 && infer->fault.status != KS_OK ? -1 : (int64_t)size;
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

void ks_infer_release_text(ks_infer *infer)
{
    if (infer->owned_taken) ks_budget_give(infer->infers->budget, infer->owned_taken);
    free(infer->owned);
    infer->owned = NULL;
    infer->owned_taken = 0;
}
