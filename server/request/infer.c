/* The life of an inference request: begin, feed, end, the work, done, leave; and the turns that wake those which wait.
 *
 * Owns       the records, each with its words' memory; from ks_infers_open to ks_infers_close.
 * Interface  infer.h, but for what finish.c and memory.c have of it.
 * Limits     one record per connection of the shard: KS_BUDGET. A turn converts KS_SLICE_NUMBERS numbers.
 * Threads    the shard's own. */
#include "request/infer.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/join.h"
#include "request/infer_parts.h"
#include "request/transfer_parts.h"

enum { UNTIMED_BYTES = 4096 };

static double work_limit(const ks_request_options *options)
{
    return options->config->max_work > 0 ? (double)options->config->max_work : options->work_max;
}

static ks_names names_rule(const ks_config *config)
{
    static const ks_names rules[] = {[KS_STRICT_PARAMETERS_OWN] = KS_NAMES_OWN,
                                     [KS_STRICT_PARAMETERS_ALL] = KS_NAMES_ALL,
                                     [KS_STRICT_PARAMETERS_OFF] = KS_NAMES_ANY};
    return rules[config->strict_parameters];
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
    infers->reader = options->store ? ks_reader_open(options->store) : NULL;
    if (options->store && infers->reader == NULL) {
        ks_infers_close(&infers);
        return ks_fail(error, KS_MEMORY, "no memory for a table of resident tensors");
    }
    const ks_status status = ks_large_requests_open(options->engine, &infers->large_requests, error);
    if (status != KS_OK) {
        ks_infers_close(&infers);
        return status;
    }
    infers->config = config;
    infers->engine = options->engine;
    infers->metrics = options->metrics;
    infers->timeline = ks_engine_timeline(options->engine);
    infers->spans = options->spans;
    infers->budget = options->budget;
    infers->regions = options->regions;
    infers->store = options->store;
    infers->hashers = options->hashers;
    infers->hash_waiter.wake_fd = options->wake_fd;
    infers->asked_tenant = (ks_tenant){.name = "", .is_operator = true};
    infers->state = options->state;
    infers->count = count;
    infers->shard = options->shard;
    ks_slot_queue_init(&infers->slot_queue, options->engine, config->slot_wait);
    infers->limits = (ks_codec_limits){.max_body = config->max_body,
                                       .max_json = config->max_json,
                                       .max_output = config->max_output,
                                       .max_work = work_limit(options),
                                       .max_skeleton = config->max_skeleton,
                                       .unknown_names = names_rule(config),
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
    ks_transfers_settle(*infers);
    ks_large_requests_close(&(*infers)->large_requests);
    ks_transfers_close(*infers);
    if ((*infers)->reader) ks_reader_close(&(*infers)->reader);
    free((*infers)->records);
    free((*infers)->codecs);
    ks_head_cache_close(&(*infers)->head_cache);
    free(*infers);
    *infers = NULL;
}

void ks_infers_turn(ks_infers *infers)
{
    infers->slice = KS_SLICE_NUMBERS;
}

void ks_infers_run(ks_infers *infers)
{
    infers->runs++;
}

int ks_infers_held(const ks_infers *infers)
{
    return infers->held;
}

/* Of a plan that serves the spec: of a family's, whose graphs have powers of two. */
static int bucket_of(const ks_plan *plan, const ks_spec *spec)
{
    return plan->join_rows ? 1 << ks_bucket((int)spec->in[0].dims[0]) : 0;
}

ks_status ks_infers_plan(ks_infers *infers, const ks_model *model, const char *query, ks_plan *out, ks_plan_way *way,
                         ks_error *error)
{
    const ks_codec_head head = {
        .model = model, .query = query, .content_length = -1, .tensor = infers->reader ? ks_infers_hold_asked : NULL};
    const ks_spec *spec = &ks_codec_request(infers->asked)->spec;
    infers->asked_op = model->op;
    ks_status status = ks_codec_begin(infers->asked, &head, &infers->limits, NULL, infers, error);
    if (status == KS_OK) status = ks_engine_look(infers->engine, spec, out, error);
    if (status == KS_OK) *way = (ks_plan_way){ks_engine_path(infers->engine, out), bucket_of(out, spec)};
    ks_codec_fini(infers->asked);
    ks_infers_drop_asked(infers);
    return status;
}

/* A model has been loaded or unloaded: another one may come to lie at the address that a head was read for. */
static void forget_heads(ks_infers *infers)
{
    infers->models_epoch = ks_model_epoch();
    ks_head_cache_forget(infers->head_cache);
}

ks_status ks_infer_begin(ks_infers *infers, const ks_codec_head *head, const ks_infer_source *source, ks_infer **out,
                         ks_error *error)
{
    ks_infer *infer = infers->free;
    if (infer == NULL)
        return ks_fail(error, KS_BUDGET, "all %d request records of this thread are in use", infers->count);
    infers->free = infer->next_free;
    infers->held++;
    memset(&infer->job, 0, sizeof infer->job);
    infer->client = source->client;
    infer->identity = source->identity;
    ks_infer_enter(infer, KS_INFER_BODY);
    infer->response.owned = NULL;
    infer->given_back = 0;
    infer->fault.status = KS_OK;
    infer->fault.text[0] = '\0';
    infer->job.fault = &infer->fault;
    infer->model = head->model;
    ks_model_use(infer->model, infers->shard, 1);
    if (infers->models_epoch != ks_model_epoch()) forget_heads(infers);
    infer->encoding = KS_FORMAT_LABEL_json;
    infer->sending_ns = 0;
    infer->compressed = source->encoding != KS_BODY_PLAIN;
    infer->is_large = false;
    infer->ended_ns = infer->tail_ns = 0;
    infer->times = (ks_times){.first_ns = source->first_ns};
    ks_metrics_add(infers->metrics, KS_COUNT_in_flight, 1);
    infer->codec_open = true;
    ks_codec_head codec_head = *head;
    codec_head.window = infers->regions ? ks_infer_hold_window : NULL;
    codec_head.tensor = infers->reader ? ks_infer_hold_tensor : NULL;
    infer->may_store = source->may_store;
    infer->one_of_several = source->one_of_several;
    if (infers->reader) ks_infer_set_tenant(infer, source->tenant);
    ks_infer_set_fault(
        infer, ks_codec_begin(infer->codec, &codec_head, &infers->limits, ks_infer_place, infer, &infer->fault));
    if (infer->fault.status == KS_OK && infer->compressed)
        ks_infer_set_fault(infer,
                           ks_inflate_begin(infers->limits.max_body, &infers->slice, &infer->inflate, &infer->fault));
    infer->begun_ns = source->now_ns;
    infer->run = infers->runs;
    if (infer->fault.status != KS_OK) infer->times.decode_ns = ks_now_ns() - source->now_ns;
    *out = infer;
    return KS_OK;
}

/* --- blocks of a large request ------------------------------------------------------------------------------------------- */

/* The job is done: its part of its batch's time. */
static void count_kernels(ks_infer *infer)
{
    const ks_job *job = &infer->job;
    if (job->status != KS_OK || job->plan->out_bytes == 0 || job->kernel_ns < 0) return;
    const ks_job_work work = ks_job_work_of(job);
    ks_metrics_kernels(infer->infers->metrics, infer->model->index, work.ns, work.bytes, work.flops);
}

static ks_status submit_job(ks_infer *infer)
{
    ks_job *job = &infer->job;
    /* Another shard may have met a fault that the backend knows nothing of, and answered a client whose next request this is. */
    if (atomic_load_explicit(infer->infers->state, memory_order_acquire) == KS_STATE_FAILED)
        return ks_fail(&infer->fault, KS_DEVICE, "the device is lost");
    job->priority = ks_codec_request(infer->codec)->priority;
    job->deadline_ns = ks_infer_deadline(infer);
    if (ks_codec_request(infer->codec)->profile && job->plan->program && !job->step_ns)
        job->step_ns = calloc(KS_CHAIN_STEPS_MAX, sizeof *job->step_ns);
    if (ks_codec_request(infer->codec)->profile && job->plan->program && !job->step_ns)
        return ks_fail(&infer->fault, KS_MEMORY, "no memory for the times of a model's steps");
    job->deadline_asked = ks_codec_request(infer->codec)->timeout_us > 0;
    const ks_status status = ks_engine_submit(infer->infers->engine, job, &infer->fault);
    infer->in_engine = status == KS_OK;
    return status;
}

/* Rows that are there go to the engine as soon as the block before them is done. A full queue refuses a new request;
 * one that has been let in tries again. */
static void run_block(ks_infer *infer)
{
    ks_large_request *large = &infer->large;
    if (infer->fault.status != KS_OK || infer->in_engine || !ks_large_next(large, &infer->job)) return;
    const ks_status status = submit_job(infer);
    const bool again = status == KS_QUEUE_FULL && (infer->state == KS_INFER_BODY || large->done > 0) &&
                       ks_now_ns() < infer->job.deadline_ns;
    ks_infer_set_fault(infer, again ? KS_OK : status);
    if (status == KS_OK) ks_large_launched(large);
    if (again) ks_large_later(large);
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
    if (infer->fault.status == KS_OK) ks_infer_set_fault(infer, job->status);
    if (infer->fault.status != KS_OK || infer->client == NULL) {
        ks_large_leave(&infer->large);
        return true;
    }
    if (infer->state != KS_INFER_BODY && infer->tail_ns == 0 && job->done_ns > infer->ended_ns)
        infer->tail_ns = job->launched_ns > infer->ended_ns ? job->launched_ns : infer->ended_ns;
    if (!ks_large_done(&infer->large, job)) {
        run_block(infer);
        return infer->fault.status != KS_OK;
    }
    if (infer->state == KS_INFER_BODY) return false;
    finish_times(infer);
    return true;
}

/* The body of a large request is complete. */
static ks_status end_large(ks_infer *infer)
{
    const ks_status status = ks_large_finish(&infer->large);
    if (status != KS_OK) return status;
    infer->encoding = ks_infer_request_label(ks_codec_request(infer->codec));
    ks_infer_enter(infer, KS_INFER_WORK);
    infer->ended_ns = ks_now_ns();
    infer->job.submitted_ns = infer->ended_ns;
    run_block(infer);
    if (ks_large_is_done(&infer->large)) finish_times(infer);
    return infer->fault.status;
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
    if (infer->fault.status != KS_OK) return n;
    size_t taken = n;
    ks_infers_allow_some(infer->infers);
    /* To look at the clock twice takes as long as to copy a small chunk. */
    const bool copies = ks_codec_request(infer->codec)->format == KS_BODY_FORMAT_RAW;
    const bool first = infer->run == infer->infers->runs;
    const bool timed = !first && (infer->inflate || !copies || n > UNTIMED_BYTES);
    const int64_t started = timed ? ks_now_ns() : 0;
    if (infer->inflate)
        ks_infer_set_fault(infer, ks_inflate_feed(infer->inflate, bytes, &taken, feed_codec, infer, &infer->fault));
    else
        ks_infer_set_fault(infer, ks_codec_feed(infer->codec, bytes, &taken, &infer->fault));
    if (timed) infer->times.decode_ns += ks_now_ns() - started;
    if (first && (infer->fault.status != KS_OK || !ks_codec_complete(infer->codec))) {
        infer->times.decode_ns = ks_now_ns() - infer->begun_ns;
        infer->run = UINT64_MAX;
    }
    if (infer->is_large) run_block(infer);
    return infer->fault.status == KS_OK ? taken : n;
}

/* Everything about the request is known: a slot that holds its output, its plan, its deadline; then to the engine. */
static ks_status submit(ks_infer *infer)
{
    ks_infers *infers = infer->infers;
    const ks_infer_request *request = ks_codec_request(infer->codec);
    ks_job *job = &infer->job;
    ks_sides sides;
    const size_t in_bytes = ks_infer_request_in_bytes(request);
    infer->encoding = ks_infer_request_label(request);
    size_t keep = job->slot ? (in_bytes < job->slot->in_cap ? in_bytes : job->slot->in_cap) : 0;
    ks_status status =
        ks_infer_place(infer, in_bytes, ks_infer_request_out_bytes(request), keep, &sides, &infer->fault);
    if (status == KS_OK && request->windows) status = ks_infer_take_windows(infer);
    if (status == KS_OK && request->stored) status = ks_infer_reserve_outputs(infer);
    if (status == KS_OK) status = ks_engine_plan(infers->engine, &request->spec, &job->plan, &infer->fault);
    if (status == KS_OK) job->rows = ks_job_rows(job->plan, &request->spec);
    if (status == KS_OK) ks_infer_enter(infer, KS_INFER_WORK);
    if (status == KS_OK) status = submit_job(infer);
    if (status == KS_OK && ks_engine_run(infers->engine, job)) {
        infer->in_engine = false;
        count_kernels(infer);
    }
    return status;
}

bool ks_infer_end(ks_infer *infer)
{
    if (infer->fault.status != KS_OK) return true;
    ks_infers_allow_some(infer->infers);
    /* A small request is complete in the run that it begins in, and its words need only one look at the clock. */
    const int64_t started = infer->run == infer->infers->runs ? infer->begun_ns : ks_now_ns();
    infer->run = UINT64_MAX;
    if (infer->inflate) ks_infer_set_fault(infer, ks_inflate_end(infer->inflate, &infer->fault));
    if (infer->fault.status == KS_OK) ks_infer_set_fault(infer, ks_codec_end(infer->codec, &infer->fault));
    if (infer->fault.status == KS_OK && ks_codec_busy(infer->codec)) {
        if (infer->state == KS_INFER_BODY) ks_infer_enter(infer, KS_INFER_DECODE);
        infer->times.decode_ns += ks_now_ns() - started;
        return false;
    }
    if (infer->fault.status == KS_OK) ks_infer_set_fault(infer, infer->is_large ? end_large(infer) : submit(infer));
    if (infer->fault.status == KS_OK) infer->times.decode_ns += infer->job.submitted_ns - started;
    return true;
}

bool ks_infer_done(const ks_infer *infer)
{
    if (infer->fault.status != KS_OK) return true;
    return infer->is_large ? infer->state != KS_INFER_BODY && ks_large_is_done(&infer->large)
                           : infer->job.state == KS_JOB_DONE;
}

ks_status ks_infer_fault(const ks_infer *infer)
{
    return infer->fault.status;
}

const char *ks_infer_sentence(const ks_infer *infer)
{
    return infer->fault.text;
}

void *ks_infer_client(const ks_infer *infer)
{
    return infer->client;
}

static void release(ks_infer *infer)
{
    ks_infers *infers = infer->infers;
    if (infer->client || infer->state == KS_INFER_SENDING || infer->in_engine || !ks_infer_release_memory(infer))
        return;
    ks_infer_enter(infer, KS_INFER_FREE);
    if (infer->inflate) ks_inflate_fini(&infer->inflate);
    if (infer->codec_open) ks_codec_fini(infer->codec);
    if (infer->owned || infer->owned_taken) ks_infer_release_text(infer);
    free(infer->job.step_ns);
    infer->job.step_ns = NULL;
    infer->codec_open = false;
    ks_model_use(infer->model, infers->shard, -1);
    infer->next_free = infers->free;
    infers->free = infer;
    infers->held--;
    ks_metrics_add(infers->metrics, KS_COUNT_in_flight, -1);
}

/* Work that waits for a lane is taken back. */
static bool drop_ready(ks_infer *infer)
{
    const bool dropped =
        infer->in_engine && infer->job.state == KS_JOB_READY && ks_engine_cancel(infer->infers->engine, &infer->job);
    if (dropped) infer->in_engine = false;
    return dropped;
}

bool ks_infer_cancel(ks_infer *infer)
{
    if (!drop_ready(infer)) return false;
    if (infer->state != KS_INFER_BODY) ks_metrics_add(infer->infers->metrics, KS_COUNT_aborted_queue, 1);
    ks_infer_abort(infer, KS_CANCELLED, "the client has gone");
    return true;
}

void ks_infer_abort(ks_infer *infer, ks_status status, const char *sentence)
{
    if (infer->fault.status != KS_OK) return;
    drop_ready(infer);
    ks_infer_set_fault(infer, ks_fail(&infer->fault, status, "%s", sentence));
}

void ks_infer_sent(ks_infer *infer)
{
    ks_metrics_send(infer->infers->metrics, infer->model->index, ks_now_ns() - infer->sending_ns);
    ks_infer_enter(infer, KS_INFER_OVER);
    release(infer);
}

void ks_infer_leave(ks_infer **pointer)
{
    ks_infer *infer = *pointer;
    *pointer = NULL;
    if (infer == NULL) return;
    ks_infer_cancel(infer);
    if (infer->state < KS_INFER_SENDING) {
        infer->times.answered_ns = ks_now_ns();
        ks_infer_record(infer, infer->fault.status != KS_OK ? infer->fault.status : KS_CANCELLED);
        ks_infer_enter(infer, KS_INFER_OVER);
    }
    infer->client = NULL;
    release(infer);
}

void *ks_infer_collected(ks_job *job)
{
    ks_infer *infer = (ks_infer *)job;
    void *client = infer->client;
    infer->in_engine = false;
    count_kernels(infer);
    if (infer->is_large && !end_block(infer)) return NULL;
    release(infer);
    return client;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

void ks_infers_look(ks_infers *infers, int64_t now_ns)
{
    ks_transfers_ask(infers);
    infers->events = ks_large_requests_turn(infers->large_requests, now_ns);
    ks_slot_queue_look(&infers->slot_queue, now_ns);
}

/* What its large request has waited for is there, or it has met a fault. Returns the client, or NULL. */
static void *go_on(ks_large_request *large)
{
    ks_infer *infer = (ks_infer *)((char *)large - offsetof(ks_infer, large));
    void *client = infer->client;
    ks_infer_set_fault(infer, infer->fault.status != KS_OK ? infer->fault.status : large->status);
    run_block(infer);
    release(infer);
    return client;
}

void *ks_infers_woken(ks_infers *infers)
{
    while (infers->events) {
        ks_large_request *large = infers->events;
        infers->events = large->event_next;
        void *client = large->transfers ? ks_transfer_woken(large) : go_on(large);
        if (client) return client;
    }
    void *uploads = infers->hash_waits > 0 ? ks_transfers_hashed(infers) : NULL;
    if (uploads) return uploads;
    const ks_slot_wait *wait = ks_slot_queue_next(&infers->slot_queue);
    if (wait == NULL) return NULL;
    ks_infer *infer = (ks_infer *)((char *)(uintptr_t)wait - offsetof(ks_infer, wait));
    ks_infer_set_fault(
        infer, ks_engine_slot(infers->engine, wait->in_bytes, wait->out_bytes, &infer->job.slot, &infer->fault));
    return infer->client;
}

int64_t ks_infers_wait_ns(const ks_infers *infers)
{
    const int64_t large_requests_ns =
        infers->events || infers->looks_again ? 0 : ks_large_requests_wait_ns(infers->large_requests);
    const int64_t slot_queue_ns = ks_slot_queue_wait_ns(&infers->slot_queue);
    return large_requests_ns < slot_queue_ns ? large_requests_ns : slot_queue_ns;
}
