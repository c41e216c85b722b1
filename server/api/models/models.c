/* The calls of models: what a request asks of the table, and the answer.
 *
 * Owns       a call, its text, and its hold of a load, until ks_models_leave.
 * Interface  models.h
 * Limits     a definition has KS_DEFINITION_BYTES_MAX bytes.
 * Threads    the shard's own; the table has its lock. */
#include "api/models/models.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/tensors/words.h"
#include "base/text.h"
#include "codec/decode.h"

struct ks_model_call {
    ks_models *models;
    ks_tensor_ask ask;
    int wake_fd;
    ks_error fault;
    ks_tensor_words words; /* its conditions */
    ks_tenant tenant;
    char tenant_name[KS_TENANT_NAME_MAX + 1], name[KS_ROUTE_NAME_MAX + 1];
    ks_text text;        /* of the definition */
    ks_model_load *load; /* NULL: none yet */
    /* fields of the answer: */
    char etag[KS_ETAG_MAX + 3], location[KS_ROUTE_NAME_MAX + 16];
};

enum { ANSWER_MAX = 2 * KS_DEFINITION_BYTES_MAX };

/* --- begin ------------------------------------------------------------------------------------------------------------ */

/* Initializers are resident tensors of the token's. */
static void read_tenant(ks_model_call *call)
{
    const ks_token *token = call->ask.head->bearer;
    snprintf(call->tenant_name, sizeof call->tenant_name, "%s", token ? token->tenant : "");
    call->tenant =
        (ks_tenant){.name = call->tenant_name, .is_operator = (call->ask.head->rights & KS_RIGHT_OPERATOR) != 0};
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

static ks_status begin_put(ks_model_call *call)
{
    const ks_head *head = call->ask.head;
    const ks_format *const format = ks_file_of(head->known[KS_KNOWN_CONTENT_TYPE]);
    if (head->encoding != KS_BODY_PLAIN)
        return ks_fail(&call->fault, KS_ENCODING, "Unsupported compression type: a definition comes as it is");
    if (format)
        return ks_fail(&call->fault, KS_DEFINITION, "a definition is JSON, and this body %s file", format->called);
    if (head->content_length > KS_DEFINITION_BYTES_MAX)
        return ks_fail(&call->fault, KS_BODY_SIZE,
                       "a definition of %" PRId64 " bytes exceeds the maximum allowed size of %d bytes",
                       head->content_length, KS_DEFINITION_BYTES_MAX);
    return KS_OK;
}

static ks_status begin(ks_model_call *call)
{
    if (call->ask.route->id == KS_ROUTE_DEFINITION) return check_query(call);
    ks_status status = ks_route_name(call->ask.route, call->name, &call->fault);
    if (status == KS_OK) status = ks_model_name_check(call->name, strlen(call->name), &call->fault);
    if (status == KS_OK) status = check_query(call);
    if (status == KS_OK) status = ks_conditions_read(call->ask.head, &call->words, &call->fault);
    if (status != KS_OK) return status;
    read_tenant(call);
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
    return call->ask.method == KS_METHOD_PUT;
}

/* --- the body --------------------------------------------------------------------------------------------------------- */

void ks_models_feed(ks_model_call *call, const char *bytes, size_t n)
{
    if (!ks_models_loads(call) || call->fault.status != KS_OK) return;
    if (n > KS_DEFINITION_BYTES_MAX - call->text.length)
        ks_fail(&call->fault, KS_BODY_SIZE, "the definition exceeds the maximum allowed size of %d bytes",
                KS_DEFINITION_BYTES_MAX);
    else
        ks_text_add(&call->text, bytes, n);
    if (call->fault.status == KS_OK && call->text.broken)
        ks_fail(&call->fault, KS_MEMORY, "no memory for a definition");
}

void ks_models_end(ks_model_call *call)
{
    if (!ks_models_loads(call) || call->fault.status != KS_OK || call->load) return;
    const ks_load_source source = {.tenant = &call->tenant,
                                   .name = call->name,
                                   .text = call->text.bytes ? call->text.bytes : "",
                                   .length = call->text.length,
                                   .only_new = call->words.only_new,
                                   .if_match = call->words.has_if_match ? call->words.if_match : NULL,
                                   .wake_fd = call->wake_fd};
    ks_models_load(call->models, &source, &call->load, &call->fault);
    ks_text_fini(&call->text);
}

bool ks_models_done(const ks_model_call *call)
{
    return call->fault.status != KS_OK || !call->load || ks_model_load_result(call->load);
}

ks_status ks_models_fault(const ks_model_call *call, ks_error *error)
{
    if (call->fault.status != KS_OK) *error = call->fault;
    return call->fault.status;
}

void ks_models_abort(ks_model_call *call, ks_status status, const char *sentence)
{
    if (call->fault.status == KS_OK) ks_fail(&call->fault, status, "%s", sentence);
}

/* --- answers ---------------------------------------------------------------------------------------------------------- */

static const char *quote_tag(ks_model_call *call, const char *etag)
{
    snprintf(call->etag, sizeof call->etag, "\"%s\"", etag);
    return call->etag;
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
                   ",\"max_batch\":%d,\"etag\":\"%s\",\"warnings\":[]}",
                   call->name, result->nodes, result->steps, result->bytes, result->max_batch, result->etag);
    return KS_OK;
}

static ks_status respond_delete(ks_model_call *call, ks_tensor_answer *out)
{
    out->code = 204;
    if (call->words.only_new) return ks_fail(&call->fault, KS_FIELD, "If-None-Match says nothing of a DELETE");
    return ks_models_unload(call->models, call->name, call->words.has_if_match ? call->words.if_match : NULL,
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
    ks_status status = call->fault.status;
    if (status == KS_OK)
        status = call->ask.route->id == KS_ROUTE_DEFINITION ? respond_definition(call, out)
                 : ks_models_loads(call)                    ? respond_put(call, out)
                                                            : respond_delete(call, out);
    if (status == KS_OK) return KS_OK;
    ks_text_fini(&out->text);
    *error = call->fault;
    return status;
}

void ks_models_leave(ks_model_call **pointer)
{
    ks_model_call *call = *pointer;
    *pointer = NULL;
    if (!call) return;
    ks_model_load_leave(call->models, &call->load);
    ks_text_fini(&call->text);
    free(call);
}
