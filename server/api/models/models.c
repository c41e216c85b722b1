/* The calls of models: what a request asks of the table, and the answer.
 *
 * Owns       a call, its text, its upload, and its hold of a load, until ks_models_leave.
 * Interface  models.h
 * Limits     a definition has KS_DEFINITION_BYTES_MAX bytes; a file's tensors are bounded by the store's memory.
 * Threads    the shard's own; the table has its lock. */
#include "api/models/models.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/models/load_body.h"
#include "api/tensors/words.h"
#include "base/clock.h"
#include "base/text.h"
#include "codec/decode.h"

struct ks_model_call {
    ks_models *models;
    ks_store *store;
    ks_tensor_ask ask;
    int wake_fd;
    ks_error fault;
    ks_tensor_words words; /* its conditions */
    ks_tenant tenant;
    char tenant_name[KS_TENANT_NAME_MAX + 1], name[KS_ROUTE_NAME_MAX + 1], label[KS_MODEL_LABEL_MAX];
    uint64_t models_max;
    uint64_t json_max;
    bool has_repository, loads_none; /* the modes of --model-control-mode in which the protocol loads nothing */
    ks_budget *budget;
    ks_text text;              /* of the definition */
    ks_load_body *body;        /* of the repository's load or unload */
    ks_load_words wanted;      /* what it asks for */
    ks_transfer *upload;       /* of a file that has it; NULL: the body is the definition */
    bool ended;                /* the body has */
    bool responded;            /* what was asked for has been tried */
    ks_model_load *load;       /* NULL: none yet */
    int64_t wait_ns, until_ns; /* for the load; 0: it has not been asked for */
    /* fields of the answer: */
    char etag[KS_ETAG_MAX + 3], location[KS_ROUTE_NAME_MAX + 16];
};

enum { ANSWER_MAX = 2 * KS_DEFINITION_BYTES_MAX };

/* --- begin ------------------------------------------------------------------------------------------------------------ */

/* The model is the token's, as are resident tensors that it names. */
static ks_status read_tenant(ks_model_call *call)
{
    const ks_token *token = call->ask.head->bearer;
    snprintf(call->tenant_name, sizeof call->tenant_name, "%s", token ? token->tenant : "");
    call->tenant =
        (ks_tenant){.name = call->tenant_name, .is_operator = (call->ask.head->rights & KS_RIGHT_OPERATOR) != 0};
    ks_model_label(call->tenant_name, call->name, call->label);
    if (!token || call->tenant.is_operator) return KS_OK;
    call->tenant.bytes = token->bytes;
    call->tenant.tensors = token->tensors;
    call->models_max = token->models;
    if (token->tenant[0]) return KS_OK;
    return ks_fail(&call->fault, KS_FORBIDDEN,
                   "models of a token without a tenant are all tenants': it needs the right operator");
}

static ks_status check_query(ks_model_call *call)
{
    const char *query = call->ask.route->query;
    ks_query_pair pair;
    while (ks_query_next(&query, &pair))
        if (pair.name[0])
            return ks_fail(&call->fault, KS_PARAMETER, "the query names '%s', which this request does not have",
                           ks_quoted(pair.name, strlen(pair.name)).text);
    return KS_OK;
}

static ks_load_source source_of(const ks_model_call *call)
{
    return (ks_load_source){.tenant = &call->tenant,
                            .models_max = call->models_max,
                            .name = call->name,
                            .only_new = call->words.only_new,
                            .if_match = call->words.has_if_match ? call->words.if_match : NULL,
                            .wake_fd = call->wake_fd,
                            .waits = ks_vote_is(&call->ask.vote)};
}

/* A file that has the definition and its tensors: these go where they are to stay as they come. */
static ks_status begin_file(ks_model_call *call, const ks_format *format)
{
    const ks_head *head = call->ask.head;
    const ks_load_source load = source_of(call);
    const ks_upload_source source = {.store = call->store,
                                     .tenant = &call->tenant,
                                     .format = format,
                                     .prefix = "",
                                     .key = "",
                                     .definition_max = KS_DEFINITION_BYTES_MAX,
                                     .content_length = head->chunked              ? -1
                                                       : head->content_length < 0 ? 0
                                                                                  : head->content_length,
                                     .client = call->ask.client};
    if (!(format->inputs_max > 1 && format->tensors))
        return ks_fail(&call->fault, KS_DEFINITION,
                       "a definition is JSON, or in a safetensors file, and this body %s file", format->called);
    const ks_status status = ks_models_may_load(call->models, &load, &call->fault);
    return status == KS_OK ? ks_upload_begin(call->ask.infers, &source, &call->upload, &call->fault) : status;
}

static ks_status begin_put(ks_model_call *call)
{
    const ks_head *head = call->ask.head;
    const ks_format *const format = ks_file_of(head->known[KS_KNOWN_CONTENT_TYPE]);
    if (head->encoding != KS_BODY_PLAIN)
        return ks_fail(&call->fault, KS_ENCODING, "Unsupported compression type: a definition comes as it is");
    if (format) return begin_file(call, format);
    if (head->content_length > KS_DEFINITION_BYTES_MAX)
        return ks_fail(&call->fault, KS_BODY_SIZE,
                       "a definition of %" PRId64 " bytes exceeds the maximum allowed size of %d bytes",
                       head->content_length, KS_DEFINITION_BYTES_MAX);
    return KS_OK;
}

static bool is_of_repository(const ks_model_call *call)
{
    return call->ask.route->id == KS_ROUTE_LOAD || call->ask.route->id == KS_ROUTE_UNLOAD;
}

/* Any query is ignored, as the protocol has it. */
static ks_status begin_repository(ks_model_call *call)
{
    const ks_head *head = call->ask.head;
    ks_status status = ks_route_name(call->ask.route, call->name, &call->fault);
    if (status == KS_OK) status = ks_model_name_check(call->name, strlen(call->name), &call->fault);
    if (status == KS_OK) status = read_tenant(call);
    if (status != KS_OK) return status;
    if (call->loads_none)
        return ks_fail(&call->fault, KS_UNAVAILABLE,
                       "explicit model load / unload is not allowed if polling is enabled");
    if (head->encoding != KS_BODY_PLAIN) return ks_fail(&call->fault, KS_ENCODING, "Unsupported compression type");
    if (head->content_length > 0 && (uint64_t)head->content_length > call->json_max)
        return ks_fail(&call->fault, KS_BODY_SIZE,
                       "a request of %" PRId64 " bytes of JSON exceeds the maximum allowed size of %" PRIu64
                       " bytes: raise --max-json, or PUT a file of the model",
                       head->content_length, call->json_max);
    return ks_load_body_begin(call->budget, call->json_max, &call->body, &call->fault);
}

/* Of a change that is kept for workers that are started: they held when it was made, of what was there before it. */
static void drop_conditions(ks_tensor_words *words)
{
    words->only_new = words->has_if_match = false;
}

static ks_status begin(ks_model_call *call)
{
    if (is_of_repository(call)) return begin_repository(call);
    if (call->ask.route->id == KS_ROUTE_DEFINITION) return check_query(call);
    ks_status status = ks_route_name(call->ask.route, call->name, &call->fault);
    if (status == KS_OK) status = ks_model_name_check(call->name, strlen(call->name), &call->fault);
    if (status == KS_OK) status = check_query(call);
    if (status == KS_OK) status = ks_conditions_read(call->ask.head, &call->words, &call->fault);
    if (call->ask.is_peer && !ks_vote_is(&call->ask.vote)) drop_conditions(&call->words);
    if (status == KS_OK) status = read_tenant(call);
    if (status != KS_OK) return status;
    return call->ask.method == KS_METHOD_PUT ? begin_put(call) : KS_OK;
}

ks_status ks_models_begin(ks_api_view *view, const ks_tensor_ask *ask, int wake_fd, ks_model_call **out,
                          ks_error *error)
{
    if (!view->models)
        return ks_fail(error, KS_UNSUPPORTED, "no models are loaded here: --no-resident, or a backend that keeps none");
    ks_model_call *call = calloc(1, sizeof *call);
    if (!call) return ks_fail(error, KS_MEMORY, "no memory for a request of models");
    call->models = view->models;
    call->store = view->store;
    call->budget = view->budget;
    call->json_max = (uint64_t)view->config->max_json;
    call->wait_ns = view->config->load_timeout;
    call->has_repository = view->config->model_repository.count > 0;
    call->loads_none = view->config->model_control_mode != KS_MODEL_CONTROL_EXPLICIT;
    call->ask = *ask;
    call->wake_fd = wake_fd;
    ks_text_init(&call->text, KS_DEFINITION_BYTES_MAX);
    const ks_status status = begin(call);
    if (status != KS_OK) {
        *error = call->fault;
        ks_models_leave(&call);
    }
    *out = call;
    return status;
}

bool ks_models_loads(const ks_model_call *call)
{
    return call->ask.method == KS_METHOD_PUT || is_of_repository(call);
}

uint64_t ks_models_body_max(const ks_model_call *call)
{
    return is_of_repository(call) ? call->json_max : KS_DEFINITION_BYTES_MAX;
}

/* --- the body --------------------------------------------------------------------------------------------------------- */

bool ks_models_uploads(const ks_model_call *call)
{
    return call->upload != NULL;
}

static void take_fault(ks_model_call *call)
{
    const ks_error *fault = ks_transfer_fault(call->upload);
    if (call->fault.status == KS_OK && fault->status != KS_OK) call->fault = *fault;
}

static size_t feed_file(ks_model_call *call, const char *bytes, size_t n)
{
    const size_t taken = ks_upload_feed(call->upload, bytes, n);
    take_fault(call);
    return taken;
}

size_t ks_models_feed(ks_model_call *call, const char *bytes, size_t n)
{
    if (!ks_models_loads(call) || call->fault.status != KS_OK) return n;
    if (call->upload) return feed_file(call, bytes, n);
    if (call->body) {
        ks_load_body_feed(call->body, bytes, n, &call->fault);
        return n;
    }
    if (n > KS_DEFINITION_BYTES_MAX - call->text.length)
        ks_fail(&call->fault, KS_BODY_SIZE, "the definition exceeds the maximum allowed size of %d bytes",
                KS_DEFINITION_BYTES_MAX);
    else
        ks_text_add(&call->text, bytes, n);
    if (call->fault.status == KS_OK && call->text.broken)
        ks_fail(&call->fault, KS_MEMORY, "no memory for a definition");
    return n;
}

static ks_status no_only_new(ks_model_call *call)
{
    return ks_fail(&call->fault, KS_FIELD, "If-None-Match says nothing of a DELETE");
}

static void load_text(ks_model_call *call)
{
    ks_load_source source = source_of(call);
    source.text = call->text.bytes ? call->text.bytes : "";
    source.length = call->text.length;
    ks_models_load(call->models, &source, &call->load, &call->fault);
    ks_text_fini(&call->text);
}

/* The file's tensors are the load's from now on. */
static void load_file(ks_model_call *call)
{
    ks_load_source source = source_of(call);
    const int count = ks_upload_count(call->upload);
    ks_load_part *part = calloc((size_t)count + 1, sizeof *part);
    if (!part) {
        ks_fail(&call->fault, KS_MEMORY, "no memory for the tensors of a model");
        return;
    }
    for (int i = 0; i < count; i++)
        part[i] =
            (ks_load_part){.key = ks_upload_name(call->upload, i), .content = ks_upload_content_take(call->upload, i)};
    source.text = ks_upload_definition(call->upload);
    source.length = strlen(source.text);
    source.has_file = true;
    source.parts = count;
    source.part = part;
    ks_models_load(call->models, &source, &call->load, &call->fault);
    free(part);
}

/* From the repository; else what is there already is loaded. */
static void load_again(ks_model_call *call, ks_load_source *source)
{
    ks_error ignored;
    if (ks_models_may_load(call->models, source, &ignored) == KS_RESERVED) return; /* an operation */
    source->from_repository = call->has_repository;
    if (source->from_repository) {
        ks_models_load(call->models, source, &call->load, &call->fault);
        return;
    }
    if (ks_model_find(call->label, strlen(call->label))) return;
    ks_fail(&call->fault, KS_MODEL, "failed to load '%s', failed to poll from model repository", call->name);
}

static void load_body(ks_model_call *call)
{
    ks_load_source source = source_of(call);
    if (ks_load_body_end(call->body, call->name, &call->wanted, &call->fault) != KS_OK) return;
    if (call->ask.route->id == KS_ROUTE_UNLOAD) return;
    if (!call->wanted.has_config) {
        load_again(call, &source);
        return;
    }
    source.text = call->wanted.text;
    source.length = source.text ? strlen(source.text) : 0;
    source.max_batch = call->wanted.max_batch;
    source.files = call->wanted.files;
    source.file = call->wanted.file;
    source.owner = call->body;
    source.release = ks_load_body_drop;
    call->body = NULL;
    ks_models_load(call->models, &source, &call->load, &call->fault);
}

bool ks_models_end(ks_model_call *call)
{
    if (!ks_models_loads(call) || call->fault.status != KS_OK || call->load) return true;
    if (call->body) {
        load_body(call);
        return true;
    }
    if (is_of_repository(call)) return true;
    if (call->upload) {
        call->ended = ks_upload_end(call->upload);
        take_fault(call);
        return call->ended;
    }
    load_text(call);
    return true;
}

/* Whether there is no more to be done for the file's bytes. */
static bool is_file_done(ks_model_call *call)
{
    const bool done = ks_upload_done(call->upload);
    take_fault(call);
    if (done && call->fault.status == KS_OK) load_file(call);
    return done;
}

/* One whose time is up goes on by itself, but of a change of all workers it is given up. */
static bool is_load_over(ks_model_call *call)
{
    if (ks_model_load_result(call->load)) return true;
    const int64_t now_ns = ks_now_ns();
    if (!call->until_ns) call->until_ns = now_ns + call->wait_ns;
    if (now_ns < call->until_ns) return false;
    ks_fail(&call->fault, KS_DEADLINE, "model '%s' is not loaded after %.3f s (--load-timeout); %s", call->name,
            (double)call->wait_ns / 1e9, ks_vote_is(&call->ask.vote) ? "it is given up" : "the load goes on");
    return true;
}

/* Whether the change could be, as things are; a load says that itself. */
static ks_status may_change(ks_model_call *call)
{
    const char *const match = call->words.has_if_match ? call->words.if_match : NULL;
    const bool deletes = call->ask.method == KS_METHOD_DELETE;
    if (deletes && call->words.only_new) return no_only_new(call);
    if (!deletes && call->ask.route->id != KS_ROUTE_UNLOAD) return KS_OK;
    return ks_models_may_unload(call->models, call->label, match, &call->fault);
}

/* Not ready for the verdict: true where there will be an answer without one. */
static bool is_refused(ks_model_call *call)
{
    if (!call->load) return may_change(call) != KS_OK;
    const ks_load_result *result = ks_model_load_result(call->load);
    if (result) return result->fault.status != KS_OK;
    return !ks_model_load_is_ready(call->load) && is_load_over(call);
}

/* Of a change that all workers make: whether this one has its answer, or is ready and may go on. */
static bool passes(ks_model_call *call)
{
    ks_vote *vote = &call->ask.vote;
    if (!vote->given && is_refused(call)) return true;
    if (!vote->given && call->load && !ks_model_load_is_ready(call->load)) return false;
    const ks_verdict verdict = ks_vote_look(vote);
    if (verdict == KS_VERDICT_OPEN) return false;
    if (call->load) ks_model_load_decide(call->models, call->load, verdict == KS_VERDICT_DONE);
    if (verdict == KS_VERDICT_DROPPED)
        ks_fail(&call->fault, KS_UNAVAILABLE, "not all workers can: nothing has changed");
    return true;
}

bool ks_models_done(ks_model_call *call)
{
    if (call->fault.status != KS_OK) return true;
    if (call->ended && !call->load && (!is_file_done(call) || call->fault.status != KS_OK))
        return call->fault.status != KS_OK;
    const bool of_all = ks_vote_is(&call->ask.vote);
    if (of_all && !passes(call)) return false;
    if (call->fault.status != KS_OK || !call->load) return true;
    return of_all ? ks_model_load_result(call->load) != NULL : is_load_over(call); /* agreed on, and so waited for */
}

bool ks_models_waits(const ks_model_call *call)
{
    return call->upload && !call->load && call->fault.status == KS_OK && ks_transfer_waits(call->upload);
}

ks_status ks_models_fault(const ks_model_call *call, ks_error *error)
{
    if (call->fault.status != KS_OK) *error = call->fault;
    return call->fault.status;
}

void ks_models_abort(ks_model_call *call, ks_status status, const char *sentence)
{
    if (call->ask.vote.given && ks_vote_leave(&call->ask.vote) == KS_VERDICT_DONE) return; /* the others do it, too */
    if (call->fault.status == KS_OK) ks_fail(&call->fault, status, "%s", sentence);
}

/* --- answers ---------------------------------------------------------------------------------------------------------- */

static const char *quote_tag(ks_model_call *call, const char *etag)
{
    snprintf(call->etag, sizeof call->etag, "\"%s\"", etag);
    return call->etag;
}

static void put_warnings(const ks_load_result *result, ks_text *out)
{
    char text[KS_ERROR_TEXT + 64];
    if (result->unused > 0) ks_text_printf(out, "\"%d of the file's tensors are no initializers\"", result->unused);
    if (result->cut.status == KS_OK) return;
    if (result->unused > 0) ks_text_puts(out, ",");
    const int length = snprintf(text, sizeof text, "max_batch is %d: %s", result->max_batch, result->cut.text);
    ks_text_json(out, text, (size_t)length);
}

static ks_status respond_put(ks_model_call *call, ks_tensor_answer *out)
{
    const ks_load_result *result = ks_model_load_result(call->load);
    if (result->fault.status != KS_OK) {
        call->fault = result->fault;
        return call->fault.status;
    }
    out->code = result->created ? 201 : 200;
    out->content_type = "application/json";
    out->etag = quote_tag(call, result->etag);
    snprintf(call->location, sizeof call->location, "/v2/models/%s", call->name);
    out->location = result->created ? call->location : NULL;
    ks_text_printf(&out->text,
                   "{\"name\":\"%s\",\"version\":\"1\",\"state\":\"READY\",\"nodes\":%d,\"steps\":%d,\"bytes\":%" PRIu64
                   ",\"max_batch\":%d,\"etag\":\"%s\",\"warnings\":[",
                   call->name, result->nodes, result->steps, result->bytes, result->max_batch, result->etag);
    put_warnings(result, &out->text);
    ks_text_puts(&out->text, "]}");
    return KS_OK;
}

/* Empty, as the protocol has it. An ETag says that something was loaded: what was there already has none. */
static ks_status respond_repository(ks_model_call *call, ks_tensor_answer *out)
{
    if (call->ask.route->id == KS_ROUTE_UNLOAD) return ks_models_unload(call->models, call->label, NULL, &call->fault);
    const ks_load_result *result = call->load ? ks_model_load_result(call->load) : NULL;
    if (result) call->fault = result->fault;
    if (result && result->etag[0]) out->etag = quote_tag(call, result->etag);
    return call->fault.status;
}

static ks_status respond_delete(ks_model_call *call, ks_tensor_answer *out)
{
    out->code = 204;
    if (call->words.only_new) return no_only_new(call);
    return ks_models_unload(call->models, call->label, call->words.has_if_match ? call->words.if_match : NULL,
                            &call->fault);
}

/* The document as it was sent. */
static ks_status respond_definition(ks_model_call *call, ks_tensor_answer *out)
{
    const ks_model *model = call->ask.route->model;
    const char *const none = call->ask.head->known[KS_KNOWN_IF_NONE_MATCH];
    if (!model->definition)
        return ks_fail(&call->fault, KS_MODEL, "'%s' is an operation, and has no definition", model->name);
    out->etag = quote_tag(call, model->etag);
    if (none && ks_tensor_tag_is_in(none, model->etag)) {
        out->code = 304;
        return KS_OK;
    }
    out->content_type = "application/json";
    ks_text_add(&out->text, model->definition, model->definition_length);
    return KS_OK;
}

ks_status ks_models_respond(ks_model_call *call, ks_tensor_answer *out, ks_error *error)
{
    *out = (ks_tensor_answer){.code = 200};
    ks_text_init(&out->text, ANSWER_MAX);
    call->responded = true;
    ks_status status = call->fault.status;
    if (status == KS_OK)
        status = is_of_repository(call)                       ? respond_repository(call, out)
                 : call->ask.route->id == KS_ROUTE_DEFINITION ? respond_definition(call, out)
                 : ks_models_loads(call)                      ? respond_put(call, out)
                                                              : respond_delete(call, out);
    if (status == KS_OK) return KS_OK;
    ks_text_fini(&out->text);
    *error = call->fault;
    return status;
}

/* The connection has gone. What all have agreed on is done all the same. */
static void leave_vote(ks_model_call *call)
{
    ks_tensor_answer answer;
    ks_error ignored;
    if (ks_vote_leave(&call->ask.vote) != KS_VERDICT_DONE) return;
    if (call->load)
        ks_model_load_decide(call->models, call->load, true);
    else if (ks_models_respond(call, &answer, &ignored) == KS_OK)
        ks_text_fini(&answer.text);
}

void ks_models_leave(ks_model_call **pointer)
{
    ks_model_call *call = *pointer;
    *pointer = NULL;
    if (!call) return;
    if (call->ask.vote.given && !call->responded) leave_vote(call);
    ks_model_load_leave(call->models, &call->load);
    ks_transfer_leave(&call->upload);
    ks_load_body_fini(&call->body);
    ks_text_fini(&call->text);
    free(call);
}
