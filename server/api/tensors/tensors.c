/* The calls of /v2/tensors: what a request asks of the store, and the answer.
 *
 * Owns       a call and its upload, until ks_tensors_leave.
 * Interface  tensors.h
 * Limits     a list has KS_TENSOR_LIST_MAX entries; a file as many tensors as codec/format.h says.
 * Threads    the shard's own; the store has its lock. */
#include "api/tensors/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/tensors/entry.h"
#include "api/tensors/words.h"
#include "base/clock.h"
#include "codec/decode.h"

struct ks_tensor_call {
    const ks_api_view *view;
    ks_store *store;
    ks_tensor_ask ask;
    ks_tensor_words words;
    ks_error fault;
    ks_tenant tenant;
    char tenant_name[KS_TENANT_NAME_MAX + 1], name[KS_TENSOR_NAME_MAX + 1];
    ks_put put;
    bool links;          /* no bytes: the content of words.etag */
    ks_content *linked;  /* held while other workers vote; NULL: none is */
    bool spares;         /* and the body that is announced is not wanted */
    bool answered;       /* a PUT was done */
    bool responded;      /* what was asked for has been tried */
    ks_transfer *upload; /* NULL: no bytes are wanted */
    int64_t begun_ns;
    ks_tensor_entry entry;
    /* fields of the answer: */
    char etag[KS_ETAG_MAX + 3], location[KS_TENSOR_NAME_MAX + 16], generation[24], shape[KS_RANK_MAX * 21 + 1];
};

enum { LIST_TEXT_MAX = 64 << 20 };

/* --- begin -------------------------------------------------------------------------------------------------------- */

/* ".." is a step in a path, and no name's beginning alone. */
static bool is_step(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static ks_status read_name(ks_tensor_call *call)
{
    char name[KS_ROUTE_NAME_MAX + 1];
    if (!call->ask.route->name) return KS_OK;
    ks_status status = ks_route_name(call->ask.route, name, &call->fault);
    if (status == KS_OK && is_step(name)) return ks_fail(&call->fault, KS_PATH, "Not Found");
    if (status == KS_OK) status = ks_tensor_name_check(name, strlen(name), &call->fault);
    if (status == KS_OK) memcpy(call->name, name, strlen(name) + 1);
    return status;
}

/* The token's, or the one that an operator asks about. */
static ks_status read_tenant(ks_tensor_call *call)
{
    const ks_token *token = call->ask.head->bearer;
    const bool is_operator = (call->ask.head->rights & KS_RIGHT_OPERATOR) != 0;
    const char *const asked = call->words.tenant;
    call->tenant.is_operator = is_operator;
    if (token && !is_operator) {
        call->tenant.bytes = token->bytes;
        call->tenant.tensors = token->tensors;
    }
    snprintf(call->tenant_name, sizeof call->tenant_name, "%s", asked[0] ? asked : token ? token->tenant : "");
    call->tenant.name = call->tenant_name;
    if (asked[0] && !is_operator) return ks_fail(&call->fault, KS_FORBIDDEN, "tenant= is for operators' tokens");
    return KS_OK;
}

static ks_status begin_link(ks_tensor_call *call)
{
    call->links = true;
    if (call->words.form_op)
        return ks_fail(&call->fault, KS_PARAMETER, "for= is for a PUT with the bytes: a link has the content's form");
    if (call->ask.head->content_length <= 0) return KS_OK;
    return ks_fail(&call->fault, KS_BINARY_SIZE, "a PUT with etag= has no body, got %" PRId64 " bytes",
                   call->ask.head->content_length);
}

static ks_status check_raw(ks_tensor_call *call)
{
    if (!call->words.has_shape || !call->words.has_datatype)
        return ks_fail(
            &call->fault, KS_FIELD,
            "a body of bytes needs ?shape= and datatype=; files are application/x-npy, application/x-safetensors");
    if (call->words.key[0]) return ks_fail(&call->fault, KS_PARAMETER, "key= is for safetensors files");
    if (ks_dtype_size(call->words.tensor.dtype) == 0)
        return ks_fail(&call->fault, KS_DATATYPE, "a tensor of %s cannot be stored",
                       ks_dtype_name(call->words.tensor.dtype));
    return ks_tensor_measure(&call->words.tensor, call->name, &call->fault);
}

static ks_status check_file(ks_tensor_call *call, const ks_format *format)
{
    if (!format->tensors) return ks_fail(&call->fault, KS_FIELD, "%s file cannot be stored", format->called);
    if (call->words.has_shape || call->words.has_datatype)
        return ks_fail(&call->fault, KS_PARAMETER, "the query names shape or datatype, which the body itself says");
    if (call->words.key[0] && format->inputs_max == 1)
        return ks_fail(&call->fault, KS_PARAMETER, "key= is for safetensors files");
    return KS_OK;
}

static ks_status check_all(ks_tensor_call *call, const ks_format *format)
{
    if (format && format->tensors && format->inputs_max > 1) return KS_OK;
    return ks_fail(&call->fault, KS_FIELD,
                   "PUT /v2/tensors takes a file of tensors: Content-Type: application/x-safetensors");
}

/* The client waits for leave to send what the tenant has already. */
static bool can_spare(ks_tensor_call *call, const ks_format *format)
{
    const ks_tensor_words *words = &call->words;
    return !format && call->ask.head->expects && words->has_digest &&
           ks_store_has_body(call->store, &call->tenant, words->digest, &words->tensor, call->words.etag);
}

static ks_status begin_upload(ks_tensor_call *call)
{
    const ks_head *head = call->ask.head;
    const ks_tensor_words *words = &call->words;
    const ks_format *const format = ks_file_of(head->known[KS_KNOWN_CONTENT_TYPE]);
    const bool all = call->ask.route->id == KS_ROUTE_TENSORS;
    ks_status status = all ? check_all(call, format) : format ? check_file(call, format) : check_raw(call);
    if (status != KS_OK) return status;
    call->links = call->spares = can_spare(call, format);
    if (call->spares) return KS_OK;
    const ks_upload_source source = {.store = call->store,
                                     .tenant = &call->tenant,
                                     .format = format,
                                     .tensor = &words->tensor,
                                     .name = all ? NULL : call->name,
                                     .prefix = words->prefix,
                                     .key = words->key,
                                     .content_length = head->chunked              ? -1
                                                       : head->content_length < 0 ? 0
                                                                                  : head->content_length,
                                     .op = words->form_op,
                                     .digest = words->has_digest ? words->digest : NULL,
                                     .client = call->ask.client};
    return ks_upload_begin(call->ask.infers, &source, &call->upload, &call->fault);
}

/* Of several workers: whether this one is to have it alone, which it is asked for, or what may go by itself, which all of them could not
 * do as one. */
static ks_status check_place(ks_tensor_call *call, bool *is_placed)
{
    const ks_api_view *view = call->view;
    const int64_t device = call->words.device;
    *is_placed = view->workers && view->workers->count > 1 && (device >= 0 || call->words.evictable);
    if (device < 0) return KS_OK;
    if (!view->workers)
        return ks_fail(&call->fault, KS_PARAMETER,
                       "device= is for several workers (--devices), and this is one daemon");
    return ks_view_check_device(view, (int)device, true, &call->fault);
}

static ks_status begin_put(ks_tensor_call *call)
{
    const ks_tensor_words *words = &call->words;
    bool is_placed;
    if (check_place(call, &is_placed) != KS_OK) return call->fault.status;
    if (call->ask.head->encoding != KS_BODY_PLAIN)
        return ks_fail(&call->fault, KS_ENCODING, "Unsupported compression type: a tensor's bytes come as they are");
    if (words->ttl_s == 0 && !call->tenant.is_operator)
        return ks_fail(&call->fault, KS_PARAMETER, "ttl=0, for ever, is for operators' tokens");
    call->put = (ks_put){.tenant = &call->tenant,
                         .name = call->name,
                         .ttl_s = words->ttl_s,
                         .evictable = words->evictable,
                         .is_placed = is_placed,
                         .change = call->ask.vote.change,
                         .only_new = words->only_new,
                         .if_match = words->has_if_match ? words->if_match : NULL};
    if (call->name[0]) {
        const ks_status status = ks_store_check(call->store, &call->put, &call->fault);
        if (status != KS_OK) return status;
    }
    return words->has_etag ? begin_link(call) : begin_upload(call);
}

static ks_status begin(ks_tensor_call *call)
{
    ks_status status = read_name(call);
    if (status == KS_OK) status = ks_tensor_words_read(&call->ask, &call->words, &call->fault);
    if (status == KS_OK) status = read_tenant(call);
    return status == KS_OK && call->ask.method == KS_METHOD_PUT ? begin_put(call) : status;
}

ks_status ks_tensors_begin(ks_api_view *view, const ks_tensor_ask *ask, ks_tensor_call **out, ks_error *error)
{
    if (!view->store)
        return ks_fail(error, KS_UNSUPPORTED, "tensors are not kept here: --no-resident, or a backend that keeps none");
    ks_tensor_call *call = calloc(1, sizeof *call);
    if (!call) return ks_fail(error, KS_MEMORY, "no memory for a request of tensors");
    call->view = view;
    call->store = view->store;
    call->ask = *ask;
    call->begun_ns = ks_now_ns();
    const ks_status status = begin(call);
    if (status != KS_OK) {
        *error = call->fault;
        ks_tensors_leave(&call);
    }
    *out = call;
    return status;
}

bool ks_tensors_spares_body(const ks_tensor_call *call)
{
    return call->spares;
}

bool ks_tensors_uploads(const ks_tensor_call *call)
{
    return call->upload != NULL;
}

/* --- the body ----------------------------------------------------------------------------------------------------- */

/* Whether the change could be, as things are. */
static ks_status may_put_all(ks_tensor_call *call)
{
    const int count = ks_upload_count(call->upload);
    ks_put *puts = calloc((size_t)count + 1, sizeof *puts);
    if (!puts) return ks_fail(&call->fault, KS_MEMORY, "no memory for %d tensors", count);
    for (int i = 0; i < count; i++) {
        puts[i] = call->put;
        puts[i].name = ks_upload_name(call->upload, i);
    }
    const ks_status status = ks_store_may_publish(call->store, puts, count, &call->fault);
    free(puts);
    return status;
}

static ks_status may_delete(ks_tensor_call *call)
{
    if (call->words.only_new) return ks_fail(&call->fault, KS_FIELD, "If-None-Match says nothing of a DELETE");
    return ks_store_may_delete(call->store, &call->tenant, call->name,
                               call->words.has_if_match ? call->words.if_match : NULL, &call->fault);
}

static ks_status may_change(ks_tensor_call *call)
{
    if (call->ask.method == KS_METHOD_DELETE) return may_delete(call);
    if (call->links) return ks_store_may_link(call->store, &call->put, call->words.etag, &call->linked, &call->fault);
    if (call->ask.route->id == KS_ROUTE_TENSORS) return may_put_all(call);
    return ks_store_may_publish(call->store, &call->put, 1, &call->fault);
}

/* Of a change that all workers make: whether this one has its answer, or is ready and may go on. */
static bool passes(ks_tensor_call *call)
{
    ks_vote *vote = &call->ask.vote;
    if (call->fault.status != KS_OK || (!vote->given && may_change(call) != KS_OK)) return true;
    const ks_verdict verdict = ks_vote_look(vote);
    if (verdict == KS_VERDICT_DROPPED)
        ks_fail(&call->fault, KS_UNAVAILABLE, "not all workers can: nothing has changed");
    return verdict != KS_VERDICT_OPEN;
}

static void take_fault(ks_tensor_call *call)
{
    const ks_error *fault = ks_transfer_fault(call->upload);
    if (call->fault.status == KS_OK && fault->status != KS_OK) call->fault = *fault;
}

size_t ks_tensors_feed(ks_tensor_call *call, const char *bytes, size_t n)
{
    if (call->links && !call->spares) ks_tensors_abort(call, KS_BINARY_SIZE, "a PUT with etag= has no body");
    if (!call->upload || call->fault.status != KS_OK) return n;
    const size_t taken = ks_upload_feed(call->upload, bytes, n);
    take_fault(call);
    return taken;
}

bool ks_tensors_end(ks_tensor_call *call)
{
    if (!call->upload || call->fault.status != KS_OK) return true;
    const bool over = ks_upload_end(call->upload);
    take_fault(call);
    return over;
}

bool ks_tensors_waits(const ks_tensor_call *call)
{
    return call->upload && call->fault.status == KS_OK && ks_transfer_waits(call->upload);
}

bool ks_tensors_done(ks_tensor_call *call)
{
    if (call->upload && call->fault.status == KS_OK) {
        const bool done = ks_upload_done(call->upload);
        take_fault(call);
        if (!done) return false;
    }
    return !ks_vote_is(&call->ask.vote) || passes(call);
}

ks_status ks_tensors_fault(const ks_tensor_call *call, ks_error *error)
{
    if (call->fault.status != KS_OK) *error = call->fault;
    return call->fault.status;
}

void ks_tensors_abort(ks_tensor_call *call, ks_status status, const char *sentence)
{
    if (call->ask.vote.given && ks_vote_leave(&call->ask.vote) == KS_VERDICT_DONE) return; /* the others do it, too */
    if (call->fault.status == KS_OK) ks_fail(&call->fault, status, "%s", sentence);
}

/* --- answers of a PUT ----------------------------------------------------------------------------------------------- */

static const char *quote_tag(ks_tensor_call *call, const char *etag)
{
    snprintf(call->etag, sizeof call->etag, "\"%s\"", etag);
    return call->etag;
}

static void answer_entry(ks_tensor_call *call, ks_tensor_answer *out)
{
    out->content_type = "application/json";
    ks_tensor_entry_write(&out->text, &call->entry);
    out->etag = quote_tag(call, call->entry.etag);
}

static void answer_put(ks_tensor_call *call, ks_put_outcome outcome, ks_tensor_answer *out)
{
    call->answered = true;
    out->code = outcome == KS_PUT_CREATED ? 201 : 200;
    answer_entry(call, out);
    snprintf(call->location, sizeof call->location, "/v2/tensors/%s", call->name);
    snprintf(call->generation, sizeof call->generation, "%" PRIu64, ks_store_generation(call->store));
    out->location = outcome == KS_PUT_CREATED ? call->location : NULL;
    out->generation = call->generation;
}

static ks_status respond_link(ks_tensor_call *call, ks_tensor_answer *out)
{
    ks_put_outcome outcome;
    const ks_status status =
        ks_store_link(call->store, &call->put, call->words.etag, &outcome, &call->entry, &call->fault);
    if (status == KS_OK) answer_put(call, outcome, out);
    return status;
}

static ks_status respond_put(ks_tensor_call *call, ks_tensor_answer *out)
{
    ks_put_outcome outcome;
    ks_content *content = ks_upload_content_take(call->upload, 0);
    const ks_status status =
        ks_store_publish_take(call->store, &call->put, &content, 1, &outcome, &call->entry, &call->fault);
    if (status != KS_OK) return status;
    ks_store_time_put(call->store, ks_now_ns() - call->begun_ns);
    answer_put(call, outcome, out);
    return KS_OK;
}

/* What one change of many names takes. */
typedef struct many {
    ks_put *puts;
    ks_content **contents;
    ks_put_outcome *outcomes;
    ks_tensor_entry *entries;
} many;

static void free_many(many *all)
{
    free(all->puts);
    free(all->contents);
    free(all->outcomes);
    free(all->entries);
}

static bool make_many(many *all, size_t count)
{
    *all = (many){.puts = calloc(count, sizeof *all->puts),
                  .contents = calloc(count, sizeof(ks_content *)),
                  .outcomes = calloc(count, sizeof *all->outcomes),
                  .entries = calloc(count, sizeof *all->entries)};
    return all->puts && all->contents && all->outcomes && all->entries;
}

static ks_status publish_many(ks_tensor_call *call, many *all, int count, ks_tensor_answer *out)
{
    for (int i = 0; i < count; i++) {
        all->puts[i] = call->put;
        all->puts[i].name = ks_upload_name(call->upload, i);
        all->contents[i] = ks_upload_content_take(call->upload, i);
    }
    const ks_status status = count > 0 ? ks_store_publish_take(call->store, all->puts, all->contents, count,
                                                               all->outcomes, all->entries, &call->fault)
                                       : KS_OK;
    if (status != KS_OK) return status;
    if (count > 0) ks_store_time_put(call->store, ks_now_ns() - call->begun_ns);
    call->answered = true;
    out->code = 200;
    for (int i = 0; i < count; i++)
        if (all->outcomes[i] == KS_PUT_CREATED) out->code = 201;
    snprintf(call->generation, sizeof call->generation, "%" PRIu64, ks_store_generation(call->store));
    out->generation = call->generation;
    out->content_type = "application/json";
    ks_tensor_entries_write(&out->text, call->store, all->entries, count);
    ks_text_puts(&out->text, "}");
    return KS_OK;
}

static ks_status respond_put_all(ks_tensor_call *call, ks_tensor_answer *out)
{
    const int count = ks_upload_count(call->upload);
    many all;
    const ks_status status = make_many(&all, (size_t)count + 1)
                                 ? publish_many(call, &all, count, out)
                                 : ks_fail(&call->fault, KS_MEMORY, "no memory for %d tensors", count);
    free_many(&all);
    return status;
}

/* --- answers of the others ------------------------------------------------------------------------------------------ */

static ks_status respond_list(ks_tensor_call *call, ks_tensor_answer *out)
{
    const ks_tensor_words *words = &call->words;
    bool more = false;
    ks_store_stats stats;
    ks_tensor_entry *entries = malloc((size_t)words->limit * sizeof *entries);
    if (!entries) return ks_fail(&call->fault, KS_MEMORY, "no memory for a list of %" PRId64 " tensors", words->limit);
    const ks_list_part part = {&call->tenant, words->prefix, words->after, (int)words->limit};
    const int count = call->ask.is_peer /* which asks what this worker has */
                          ? ks_store_list(call->store, part.tenant, part.prefix, part.after, part.most, entries, &more)
                          : ks_store_list_all(call->store, &part, entries, &more);
    ks_store_read_stats(call->store, &stats);
    out->content_type = "application/json";
    ks_tensor_entries_write(&out->text, call->store, entries, count);
    if (more && count > 0)
        ks_text_printf(&out->text, ",\"next\":\"%s\"", entries[count - 1].name);
    else
        ks_text_puts(&out->text, ",\"next\":null");
    ks_text_printf(&out->text, ",\"bytes\":%" PRIu64 ",\"limit\":%" PRIu64 "}", stats.bytes, stats.limit_bytes);
    free(entries);
    return KS_OK;
}

static ks_status respond_delete(ks_tensor_call *call, ks_tensor_answer *out)
{
    const char *const match = call->words.has_if_match ? call->words.if_match : NULL;
    out->code = 204;
    if (call->words.only_new) return ks_fail(&call->fault, KS_FIELD, "If-None-Match says nothing of a DELETE");
    const bool is_alone = call->view->workers && call->view->workers->count > 1 && !call->ask.is_peer;
    const ks_status status = (is_alone ? ks_store_delete_placed : ks_store_delete)(call->store, &call->tenant,
                                                                                   call->name, match, &call->fault);
    const bool is_gone = status == KS_TENSOR || status == KS_PLACED || status == KS_LOST;
    if (!call->ask.vote.given || !is_gone) return status;
    call->fault.status = KS_OK; /* all have agreed that it goes */
    return KS_OK;
}

/* A file's head in front of the bytes, or the fields that say what they are. *bytes: of the head. */
static ks_status name_bytes(ks_tensor_call *call, const ks_format *format, char head[KS_FILE_HEAD_MAX], size_t *bytes,
                            ks_tensor_answer *out)
{
    const ks_tensor *tensor = &call->entry.tensor;
    *bytes = 0;
    out->content_type = format ? format->content_type : "application/octet-stream";
    if (!format) {
        ks_dims_text(tensor, call->shape, sizeof call->shape);
        out->shape = call->shape[0] ? call->shape : "scalar";
        out->datatype = ks_dtype_name(tensor->dtype);
        return KS_OK;
    }
    if (!format->tensor_head || !(format->dtypes & KS_DTYPE_BIT(tensor->dtype)))
        return ks_fail(&call->fault, KS_DATATYPE, "%s file has no type for %s", format->called,
                       ks_dtype_name(tensor->dtype));
    *bytes = format->tensor_head(call->name, tensor, head);
    return KS_OK;
}

static ks_status answer_bytes(ks_tensor_call *call, ks_content **content, ks_tensor_answer *out)
{
    const ks_format *const format = ks_file_of(call->ask.head->known[KS_KNOWN_ACCEPT]);
    char head[KS_FILE_HEAD_MAX];
    size_t head_bytes;
    ks_status status = name_bytes(call, format, head, &head_bytes, out);
    if (status != KS_OK) return status;
    out->etag = quote_tag(call, (*content)->etag);
    out->length = head_bytes + (*content)->tensor.size_bytes;
    if (call->ask.method == KS_METHOD_HEAD || out->length == 0) return KS_OK;
    return ks_download_begin_take(call->ask.infers, content, head, head_bytes, call->ask.client, &out->download,
                                  &call->fault);
}

/* GET and HEAD. */
static ks_status respond_read(ks_tensor_call *call, ks_tensor_answer *out)
{
    const ks_head *head = call->ask.head;
    const char *const none = head->known[KS_KNOWN_IF_NONE_MATCH], *const accept = head->known[KS_KNOWN_ACCEPT];
    ks_content *content = NULL;
    const bool uses = call->ask.method == KS_METHOD_GET && !call->ask.is_peer;
    ks_status status =
        ks_store_hold(call->store, &call->tenant, call->name, uses, &content, &call->entry, &call->fault);
    if (status != KS_OK) return status;
    out->varies = true;
    if (none && ks_tensor_tag_is_in(none, content->etag)) {
        out->code = 304;
        out->etag = quote_tag(call, content->etag);
    } else if (accept && strstr(accept, "application/json") && !ks_file_of(accept)) {
        answer_entry(call, out);
    } else {
        status = answer_bytes(call, &content, out);
    }
    if (content) ks_content_release(&content);
    return status;
}

static ks_status respond(ks_tensor_call *call, ks_tensor_answer *out)
{
    const bool all = call->ask.route->id == KS_ROUTE_TENSORS;
    switch (call->ask.method) {
    case KS_METHOD_PUT:
        return call->links ? respond_link(call, out) : all ? respond_put_all(call, out) : respond_put(call, out);
    case KS_METHOD_DELETE:
        return respond_delete(call, out);
    default:
        return all ? respond_list(call, out) : respond_read(call, out);
    }
}

ks_status ks_tensors_respond(ks_tensor_call *call, ks_tensor_answer *out, ks_error *error)
{
    *out = (ks_tensor_answer){.code = 200};
    ks_text_init(&out->text, LIST_TEXT_MAX);
    call->responded = true;
    if (call->fault.status == KS_OK) respond(call, out);
    if (call->fault.status == KS_OK) return KS_OK;
    ks_text_fini(&out->text);
    *error = call->fault;
    return error->status;
}

/* The connection has gone. What all have agreed on is done all the same. */
static void leave_vote(ks_tensor_call *call)
{
    ks_tensor_answer answer;
    ks_error ignored;
    if (ks_vote_leave(&call->ask.vote) == KS_VERDICT_DONE && ks_tensors_respond(call, &answer, &ignored) == KS_OK)
        ks_text_fini(&answer.text);
}

void ks_tensors_leave(ks_tensor_call **pointer)
{
    ks_tensor_call *call = *pointer;
    *pointer = NULL;
    if (!call) return;
    if (call->ask.vote.given && !call->responded) leave_vote(call);
    const bool refused = call->fault.status != KS_OK && call->fault.status != KS_CANCELLED;
    if (call->ask.method == KS_METHOD_PUT && !call->answered) ks_store_count_put(call->store, !refused);
    ks_transfer_leave(&call->upload);
    ks_content_release(&call->linked);
    free(call);
}
