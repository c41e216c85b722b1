/* The sequence of a request, whatever moves its bytes (transport.h):
 *
 *   ks_request_open     its first byte has come
 *   ks_request_target   its target
 *   ks_request_head     its head is complete: checked, routed, begun
 *   ks_request_body     bytes of its body
 *   ks_request_end      the body is complete: the work goes to the engine
 *   ks_request_respond  the response is made, and sent by the transport
 *   ks_request_sent     it is over: the books, and what it held goes back */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http/eviction.h"
#include "http/http_parts.h"
#include "codec/deflate.h"
#include "api/board/board.h"
#include "api/documents.h"
#include "api/metadata.h"
#include "http/log/log.h"
#include "http/plain_head.h"

enum {
    CHUNKS_MAX = 65536, /* chunks of a body that may come without being worth CHUNK_BYTES each */
    CHUNK_BYTES = 4096
};
static const uint64_t swallow_bytes = 1 << 20; /* of a refused body: read and dropped, so that the connection stays */
static const uint64_t small_bytes = 64 << 10; /* of body and response: a request that is over in a fraction of a turn */

void ks_request_open(ks_http *http, ks_conn *conn)
{
    conn->first_ns = conn->since_ns = http->now_ns = ks_now_ns();
    ks_conn_enter(conn, KS_AT_HEAD);
    conn->fault = KS_OK;
    conn->received = conn->chunks = conn->response_bytes = 0;
    conn->code = 0;
    conn->goes_on = conn->cut = false;
}

/* --- target ------------------------------------------------------------------------------------------------------- */

/* The path of an absolute target, with the slash that it may lack, and behind it the authority. Both fit: "http://" goes. */
static void keep_absolute(ks_conn *conn, const char *authority, size_t length, const char *path)
{
    const size_t slash = *path != '/', path_length = strlen(path);
    conn->target[0] = '/';
    memcpy(conn->target + slash, path, path_length + 1);
    char *const behind = conn->target + slash + path_length + 1;
    memcpy(behind, authority, length);
    behind[length] = '\0';
    conn->authority = behind;
    conn->routed = false;
}

void ks_request_target(const ks_http *http, ks_conn *conn, const char *target)
{
    const char *authority, *path;
    size_t authority_length;
    const size_t length = strnlen(target, http->rules.max_uri + 1);
    const size_t kept = length <= http->rules.max_uri ? length : http->rules.max_uri;
    conn->authority = NULL;
    if (length != conn->target_length || memcmp(conn->target, target, kept) != 0) conn->routed = false;
    conn->target_length = length;
    if (kept == length && ks_plain_absolute(target, &authority, &authority_length, &path)) {
        keep_absolute(conn, authority, authority_length, path);
        return;
    }
    memcpy(conn->target, target, kept);
    conn->target[kept] = '\0';
}

/* --- head --------------------------------------------------------------------------------------------------------- */

static ks_status refuse_wire(ks_conn *conn, ks_status status)
{
    conn->method = ks_method_of(conn->head.method);
    conn->route = (ks_route){.handler = KS_HANDLER_other, .query = ""};
    conn->routed = false;
    return status;
}

/* The second listener keeps places for health: while it has more requests than this under way, no other one is begun, and none
 * waits for its body, so that connections are left that end at once or may be closed for others. */
static bool is_crowded(const ks_http *http)
{
    enum { REQUESTS_MOST = KS_ADMIN_CONNECTIONS * 3 / 4 };
    return http->engine == NULL && http->in_flight > REQUESTS_MOST;
}

static bool is_health(const ks_conn *conn)
{
    const bool body = conn->head.chunked || conn->head.content_length > 0;
    return !body && (conn->route.handler == KS_HANDLER_live || conn->route.handler == KS_HANDLER_ready);
}

/* A request about what stays: tensors, models. */
static bool stays(const ks_conn *conn)
{
    return conn->route.handler == KS_HANDLER_tensors || conn->route.handler == KS_HANDLER_models;
}

/* An upload is bounded by the memory for tensors, not by that for requests. */
static uint64_t max_body(const ks_http *http, const ks_conn *conn)
{
    return stays(conn) && conn->method == KS_METHOD_PUT ? INT64_MAX : http->rules.max_body;
}

/* The route, or why the request is refused; read: what is wrong with the form of its head. */
static ks_status check(ks_http *http, ks_conn *conn, ks_status read)
{
    ks_status status = read;
    if (status == KS_OK) status = ks_check_head(&http->rules, &conn->head, &conn->error);
    if (status == KS_OK) status = ks_take_authority(conn);
    conn->cut = status != KS_OK; /* where its body ends is not known */
    if (status != KS_OK) return refuse_wire(conn, status);
    ks_status found = ks_find_route(http, conn);
    if (found == KS_UNSUPPORTED && ks_is_connect(conn)) return found; /* its Host is the other end's */
    /* A client without the right does not learn which paths there are. */
    ks_error refused;
    http->rules.tokens = ks_tokens_follow(http->token_store, &http->tokens);
    const bool trusted = conn->is_peer && !conn->head.known[KS_KNOWN_AUTHORIZATION];
    status = ks_check_access(&http->rules, &conn->head, conn->loopback, conn->route.open,
                             conn->route.authorized || trusted, &refused);
    if (status != KS_OK) {
        conn->error = refused;
        return status;
    }
    found = ks_find_own_route(http, conn, found);
    if (found != KS_OK) return found;
    status = ks_check_right(&conn->head, conn->route.right, &conn->error);
    if (status == KS_OK) status = ks_check_worker(http, conn);
    if (status != KS_OK) return status;
    status = ks_check_body(max_body(http, conn), &conn->head, &conn->error);
    if (status == KS_OK && is_crowded(http) && !is_health(conn))
        status = ks_fail(&conn->error, KS_QUEUE_FULL, "too many requests at once on the second listener");
    if (status == KS_OK && http->draining)
        status = ks_fail(&conn->error, KS_DRAINING, "%s", ks_response_sentence(KS_DRAINING));
    return status;
}

/* What this host has no room or no time for, as opposed to what the request has wrong: reported before the body's end. */
static ks_status busy_fault(ks_conn *conn)
{
    const ks_status fault = ks_infer_fault(conn->infer);
    if (!ks_status_retries(fault) && fault != KS_DEADLINE) return KS_OK;
    return ks_fail(&conn->error, fault, "%s", ks_infer_sentence(conn->infer));
}

static ks_status begin_infer(ks_http *http, ks_conn *conn)
{
    const ks_head *head = &conn->head;
    if (http->refusing != KS_OK)
        return ks_fail(&conn->error, http->refusing, "%s", ks_response_sentence(http->refusing));
    if (conn->route.model->compat && conn->route.raw)
        return ks_fail(&conn->error, KS_PATH, "Not Found; this model takes JSON: /infer");
    if (conn->route.model->compat)
        return ks_compat_begin(conn->route.model, head->known[KS_KNOWN_HEADER_LENGTH], head->encoding,
                               http->config->json_non_finite == KS_JSON_NON_FINITE_ERROR, &conn->compat, &conn->error);
    if (conn->route.raw && head->known[KS_KNOWN_HEADER_LENGTH])
        return ks_fail(&conn->error, KS_HEADER_LENGTH,
                       "a body of this path holds no JSON: Inference-Header-Content-Length");
    const char *accept = head->known[KS_KNOWN_ACCEPT];
    const bool known = head->encoding == KS_BODY_PLAIN && !head->chunked;
    const ks_codec_head strings = {.model = conn->route.model,
                                   .query = conn->route.query,
                                   .header_length = head->known[KS_KNOWN_HEADER_LENGTH],
                                   .content_length = !known                     ? -1
                                                     : head->content_length < 0 ? 0
                                                                                : head->content_length,
                                   .body = ks_file_of(head->known[KS_KNOWN_CONTENT_TYPE]),
                                   .response = ks_file_of(accept),
                                   .accept_json = !conn->route.raw && accept && strstr(accept, "application/json"),
                                   .raw = conn->route.raw};
    const ks_token *token = head->bearer;
    const bool operators = token && (token->rights & KS_RIGHT_OPERATOR) != 0;
    const ks_tenant tenant = {.name = token ? token->tenant : "",
                              .bytes = token && !operators ? token->bytes : 0,
                              .tensors = token && !operators ? token->tensors : 0,
                              .is_operator = operators};
    const ks_infer_source source = {.encoding = head->encoding,
                                    .identity = &conn->identity,
                                    .tenant = token ? &tenant : NULL,
                                    .may_store = (head->rights & KS_RIGHT_TENSORS) != 0,
                                    .one_of_several = ks_is_one_of_several(http),
                                    .first_ns = conn->first_ns,
                                    .now_ns = http->now_ns,
                                    .client = conn};
    const ks_status status = ks_infer_begin(http->infers, &strings, &source, &conn->infer, &conn->error);
    return status == KS_OK ? busy_fault(conn) : status;
}

static ks_status begin_stays(ks_http *http, ks_conn *conn)
{
    const ks_tensor_ask ask = {
        .route = &conn->route,
        .method = conn->method,
        .head = &conn->head,
        .infers = http->infers,
        .client = conn,
        .is_peer = conn->is_peer,
        .vote = {.workers = http->api->workers, .change = conn->change, .row = http->api->worker}};
    if (http->refusing != KS_OK)
        return ks_fail(&conn->error, http->refusing, "%s", ks_response_sentence(http->refusing));
    if (ks_is_change_of_all(http, conn))
        return ks_change_begin(http->api, &ask, conn->target, http->wake_fd, &conn->changes, &conn->error);
    if (conn->route.handler == KS_HANDLER_models)
        return ks_models_begin(http->api, &ask, http->wake_fd, &conn->models, &conn->error);
    return ks_tensors_begin(http->api, &ask, &conn->tensors, &conn->error);
}

/* A model that was loaded stays while a request uses it. */
static void use_model(const ks_http *http, ks_conn *conn, const ks_model *model)
{
    if (conn->used_model) ks_model_use(conn->used_model, http->shard, -1);
    conn->used_model = model && model->uses ? model : NULL;
    if (conn->used_model) ks_model_use(conn->used_model, http->shard, 1);
}

/* Makes ready for the body of an inference or a control request. */
static ks_status begin(ks_http *http, ks_conn *conn)
{
    if (conn->route.id == KS_ROUTE_INFER) return begin_infer(http, conn);
    if (stays(conn)) return begin_stays(http, conn);
    if (conn->method != KS_METHOD_POST || !ks_route_has_json_body(&conn->route)) return KS_OK;
    if (conn->head.encoding != KS_BODY_PLAIN) return ks_fail(&conn->error, KS_ENCODING, "Unsupported compression type");
    return ks_control_begin(&conn->control, &conn->error);
}

/* Where the client waits for leave to send, where the connection ends anyway, or where the body is too long to be
 * dropped. Else the refusal follows the body. */
static bool refuses_early(const ks_http *http, const ks_conn *conn)
{
    const ks_head *head = &conn->head;
    if (head->expects || ks_status_closes(conn->fault) || ks_is_connect(conn) || is_crowded(http)) return true;
    const uint64_t limit = swallow_bytes + (conn->fault == KS_BODY_SIZE ? http->rules.max_body : 0);
    return head->content_length > 0 && (uint64_t)head->content_length > limit;
}

/* A length is announced that will not come. */
static bool spares_body(const ks_conn *conn)
{
    return conn->tensors && ks_tensors_spares_body(conn->tensors);
}

ks_next ks_request_head(ks_http *http, ks_conn *conn, ks_status read)
{
    ks_conn_enter(conn, KS_AT_BODY);
    conn->counted = true;
    conn->requests++;
    http->in_flight++;
    ks_metrics_add(http->metrics, conn->transport->reader, 1);
    ks_identity_read(&conn->identity, &conn->head, &http->numbers);
    conn->fault = check(http, conn, read);
    if (http->logs_access) ks_conn_keep_token(conn);
    use_model(http, conn, conn->route.model); /* the books name it, whatever becomes of the request */
    if (conn->fault == KS_OK) conn->fault = begin(http, conn);
    if (conn->fault == KS_OK) return spares_body(conn) ? KS_NEXT_RESPOND : KS_NEXT_BODY;
    return conn->cut || refuses_early(http, conn) ? KS_NEXT_RESPOND : KS_NEXT_DROP;
}

/* Whether its response is the last one of the connection. The library is given a connection for one request, and
 * where it is preferred each connection has one, so that no request behind it is read otherwise. */
static bool is_last(const ks_http *http, const ks_conn *conn)
{
    const int64_t most = http->config->max_requests;
    return http->draining || conn->head.closes || conn->head.http10 ||
           (conn->transport->reader != KS_COUNT_reader_plain && !conn->tls) || ks_status_closes(conn->fault) ||
           ks_is_connect(conn) || spares_body(conn) || (conn->fault != KS_OK && is_crowded(http)) ||
           (most > 0 && conn->requests >= most) || ks_http_prefers_library || ks_is_leaving(http, conn->fault);
}

/* --- body --------------------------------------------------------------------------------------------------------- */

static ks_status stays_fault(const ks_conn *conn, ks_error *error)
{
    if (conn->models) return ks_models_fault(conn->models, error);
    if (conn->changes) return ks_change_fault(conn->changes, error);
    return conn->tensors ? ks_tensors_fault(conn->tensors, error) : KS_OK;
}

void ks_request_check(ks_conn *conn)
{
    if (conn->fault != KS_OK || conn->head.content_length < (int64_t)(conn->received + swallow_bytes)) return;
    if (conn->infer) conn->fault = busy_fault(conn);
    if (conn->tensors || conn->models || conn->changes) conn->fault = stays_fault(conn, &conn->error);
    conn->cut = conn->fault != KS_OK;
}

/* Chunks that are worth little each: a bound for what their framing costs. Larger ones buy more of them. */
static bool too_many_chunks(const ks_conn *conn)
{
    const uint64_t worth = conn->received > CHUNKS_MAX ? (conn->received - CHUNKS_MAX) / CHUNK_BYTES : 0;
    return conn->chunks > CHUNKS_MAX + worth;
}

static uint64_t body_most(const ks_http *http, const ks_conn *conn)
{
    ks_error ignored;
    if (ks_conn_uploads(conn) && stays_fault(conn, &ignored) == KS_OK) return INT64_MAX;
    if (conn->models && ks_models_loads(conn->models)) return ks_models_body_max(conn->models);
    if (conn->changes) return ks_change_body_max(conn->changes);
    return conn->infer || conn->compat ? http->rules.max_body : 0;
}

static ks_status too_large(const ks_http *http, ks_conn *conn)
{
    if (stays_fault(conn, &conn->error) != KS_OK) return conn->error.status;
    const uint64_t most = body_most(http, conn);
    return ks_fail(&conn->error, KS_BODY_SIZE,
                   "request body exceeds the maximum allowed input size of %llu bytes. Use --max-body to increase the "
                   "limit.",
                   (unsigned long long)(most ? most : swallow_bytes));
}

/* n more bytes have come: what is wrong with so many of them, or in so many chunks. */
static ks_status check_amount(const ks_http *http, ks_conn *conn)
{
    const uint64_t most = body_most(http, conn);
    if (conn->fault == KS_OK && too_many_chunks(conn)) {
        conn->cut = true;
        return ks_fail(&conn->error, KS_CHUNKS, "request body comes in more than %d tiny chunks", CHUNKS_MAX);
    }
    conn->cut |= conn->received > most + swallow_bytes && conn->head.content_length < 0;
    if (conn->fault != KS_OK || !(conn->cut || ((conn->infer || conn->compat) && conn->received > most)))
        return conn->fault;
    return too_large(http, conn);
}

void ks_request_announce(const ks_http *http, ks_conn *conn, uint64_t n)
{
    if (conn->received + n <= body_most(http, conn) + swallow_bytes) return;
    conn->cut = true;
    if (conn->fault == KS_OK) conn->fault = too_large(http, conn);
}

size_t ks_request_body(ks_http *http, ks_conn *conn, const char *bytes, size_t n)
{
    conn->received += n;
    conn->fault = check_amount(http, conn);
    if (conn->fault != KS_OK) {
        ks_request_abort(conn, conn->fault, conn->error.text);
        return n;
    }
    if (conn->compat) conn->fault = ks_compat_feed(conn->compat, bytes, n, &conn->error);
    if (conn->control) conn->fault = ks_control_feed(conn->control, bytes, n, &conn->error);
    size_t taken = n;
    if (conn->infer) taken = ks_infer_feed(conn->infer, bytes, n);
    if (conn->tensors) taken = ks_tensors_feed(conn->tensors, bytes, n);
    if (conn->models) taken = ks_models_feed(conn->models, bytes, n);
    if (conn->changes) ks_change_feed(conn->changes, bytes, n);
    conn->received -= n - taken;
    ks_request_check(conn);
    return taken;
}

bool ks_request_end(ks_http *http, ks_conn *conn)
{
    if (conn->fault == KS_OK && conn->infer && !ks_infer_end(conn->infer)) return false;
    if (conn->fault == KS_OK && conn->tensors && !ks_tensors_end(conn->tensors)) return false;
    if (conn->fault == KS_OK && conn->models && !ks_models_end(conn->models)) return false;
    if (conn->fault == KS_OK && conn->changes) ks_change_end(conn->changes);
    http->loading += ks_request_is_loading(conn) && !ks_request_done(conn);
    ks_conn_enter(conn, KS_AT_WAIT);
    conn->since_ns = http->now_ns;
    return true;
}

/* --- response ----------------------------------------------------------------------------------------------------- */

bool ks_request_is_loading(const ks_conn *conn)
{
    return conn->models || conn->changes || (conn->tensors && conn->change);
}

bool ks_request_done(const ks_conn *conn)
{
    if (conn->fault == KS_OK && conn->changes) return ks_change_done(conn->changes);
    if (conn->fault == KS_OK && conn->tensors) return ks_tensors_done(conn->tensors);
    if (conn->fault == KS_OK && conn->models) return ks_models_done(conn->models);
    return conn->fault != KS_OK || conn->infer == NULL || ks_infer_done(conn->infer);
}

bool ks_request_waits(const ks_conn *conn)
{
    if (conn->tensors) return ks_tensors_waits(conn->tensors);
    if (conn->models) return ks_models_waits(conn->models);
    return conn->infer && ks_infer_waits(conn->infer);
}

void ks_request_abort(ks_conn *conn, ks_status status, const char *sentence)
{
    if (conn->infer) ks_infer_abort(conn->infer, status, sentence);
    if (conn->tensors) ks_tensors_abort(conn->tensors, status, sentence);
    if (conn->models) ks_models_abort(conn->models, status, sentence);
    if (conn->changes) ks_change_abort(conn->changes, status, sentence);
}

/* A text that was written to be the response's body. KS_MEMORY. */
static ks_status take_text(ks_response *response, ks_text *text, ks_error *error)
{
    size_t length = 0;
    response->body = response->owned = ks_text_take(text, &length);
    response->length = length;
    return response->owned ? KS_OK : ks_fail(error, KS_MEMORY, "no memory for the answer");
}

/* A document of our own that the client takes in fewer bytes: a scrape is a tenth. What a cache keeps depends on the field either way.
 * The protocol's documents stay as they are: tritonclient.http.aio unpacks what aiohttp has unpacked already. */
static void pack_document(const ks_conn *conn, ks_response *response)
{
    enum { PACK_MIN = 1024 };
    const ks_route_id id = conn->route.id;
    const bool own = id == KS_ROUTE_METRICS || id == KS_ROUTE_OPENAPI || id == KS_ROUTE_TIMELINE ||
                     id == KS_ROUTE_STATUS || id == KS_ROUTE_STATUS_PAGE;
    if (response->length < PACK_MIN || !own) return;
    ks_fields_add(&response->fields, "Vary", "Accept-Encoding");
    const ks_compression compression = ks_compression_accepted(conn->head.known[KS_KNOWN_ACCEPT_ENCODING]);
    if (compression == KS_COMPRESSION_NONE) return;
    char *packed = malloc(ks_compression_bound(response->length));
    const size_t length = packed ? ks_compress(compression, response->body, response->length, packed) : 0;
    if (length == 0) {
        free(packed);
        return;
    }
    free(response->owned);
    response->body = response->owned = packed;
    response->length = length;
    ks_fields_add(&response->fields, "Content-Encoding", ks_compression_name(compression));
}

static ks_status make_page(ks_http *http, ks_conn *conn, ks_response *response)
{
    enum { PAGE_MAX = 16 << 20 };
    const char *type = "";
    ks_text text;
    ks_text_init(&text, PAGE_MAX);
    const ks_document_request ask = {
        .route = &conn->route,
        .accept = conn->head.known[KS_KNOWN_ACCEPT],
        .infers = http->infers,
        .control = conn->received > 0 ? conn->control : NULL,
        .listing = {.tenant = conn->head.bearer ? conn->head.bearer->tenant : "",
                    .sees_all = !conn->head.bearer || conn->head.rights & KS_RIGHT_OPERATOR}};
    ks_status status = ask.control ? ks_control_end(conn->control, &conn->error) : KS_OK;
    if (status == KS_OK) status = ks_document_make(http->api, &ask, &text, &response->code, &type, &conn->error);
    if (status == KS_OK) status = take_text(response, &text, &conn->error);
    ks_text_fini(&text);
    if (status != KS_OK) return status;
    if (response->length > 0) ks_fields_add(&response->fields, "Content-Type", type);
    pack_document(conn, response);
    if (conn->route.handler == KS_HANDLER_status) ks_fields_add(&response->fields, "Cache-Control", "no-store");
    if (conn->route.id == KS_ROUTE_STATUS_PAGE)
        ks_fields_add(&response->fields, "Content-Security-Policy", ks_board_html_policy);
    if (response->code == 503) ks_fields_add(&response->fields, "Retry-After", "1");
    if (conn->route.allow) ks_fields_add(&response->fields, "Allow", conn->route.allow);
    return KS_OK;
}

/* A compatibility model: its work is done right here. */
static ks_status make_compat(ks_http *http, ks_conn *conn, ks_response *response)
{
    enum { ANSWER_MAX = 64 << 20 };
    ks_response_body encoded = {.header_length = -1};
    ks_text text;
    ks_text_init(&text, ANSWER_MAX);
    ks_status status = ks_compat_respond(conn->compat, http->api->regions, &text, &encoded.header_length, &conn->error);
    if (status == KS_OK) status = take_text(response, &text, &conn->error);
    ks_text_fini(&text);
    if (status != KS_OK) return status;
    encoded.length = response->length;
    encoded.content_type = encoded.header_length >= 0 ? "application/octet-stream" : "application/json";
    ks_response_infer(response, &encoded, "", NULL);
    return KS_OK;
}

static ks_status make_tensors(ks_conn *conn, ks_response *response)
{
    ks_tensor_answer answer;
    ks_status status = conn->models    ? ks_models_respond(conn->models, &answer, &conn->error)
                       : conn->changes ? ks_change_respond(conn->changes, &answer, &conn->error)
                                       : ks_tensors_respond(conn->tensors, &answer, &conn->error);
    if (status != KS_OK) return status;
    if (answer.text.length > 0 || answer.text.broken) status = take_text(response, &answer.text, &conn->error);
    ks_text_fini(&answer.text);
    response->source.download = answer.download;
    if (answer.length > 0) response->length = answer.length;
    if (status == KS_OK)
        ks_response_tensors(response, &answer);
    else
        ks_source_end(&response->source);
    return status;
}

static void send_response(ks_http *http, ks_conn *conn, ks_response *response)
{
    ks_fields_add(&response->fields, "X-Request-Id", conn->identity.request_id);
    response->last = is_last(http, conn);
    response->bodiless = conn->method == KS_METHOD_HEAD;
    ks_conn_enter(conn, KS_AT_SEND);
    conn->since_ns = http->now_ns;
    conn->response_bytes = response->bodiless ? 0 : response->length;
    conn->code = response->code;
    conn->transport->send(http, conn, response);
}

bool ks_request_make_fault(ks_http *http, const ks_conn *conn, ks_response *response)
{
    ks_metrics_rejected(http->metrics, conn->fault);
    return conn->fault != KS_CANCELLED && ks_response_fault(response, conn->fault, conn->error.text, conn->route.allow);
}

static void respond_fault(ks_http *http, ks_conn *conn)
{
    ks_response response = {.code = 0};
    ks_check_place(conn);
    if (ks_request_make_fault(http, conn, &response))
        send_response(http, conn, &response);
    else
        conn->transport->drop(http, conn);
}

/* The response of an inference; texts of the response lie here until it has been sent, or kept. */
static void respond_inference(ks_http *http, ks_conn *conn)
{
    ks_response response = {.source.infer = conn->infer};
    ks_response_body encoded;
    char timing[KS_TIMING_MAX];
    conn->fault =
        ks_infer_response(conn->infer, conn->head.known[KS_KNOWN_ACCEPT_ENCODING], &encoded, timing, &conn->error);
    if (conn->fault != KS_OK) {
        respond_fault(http, conn);
        return;
    }
    char *const profile = ks_infer_profile(conn->infer, timing);
    ks_response_infer(&response, &encoded, timing, profile);
    send_response(http, conn, &response);
    free(profile);
}

bool ks_request_respond(ks_http *http, ks_conn *conn)
{
    if (conn->fault == KS_OK && conn->infer) {
        if (!ks_infer_write(conn->infer)) return false;
        respond_inference(http, conn);
        return true;
    }
    ks_response response = {.code = 0};
    if (conn->fault == KS_OK)
        conn->fault = conn->tensors || conn->models || conn->changes ? make_tensors(conn, &response)
                      : conn->compat                                 ? make_compat(http, conn, &response)
                                                                     : make_page(http, conn, &response);
    if (conn->fault == KS_OK)
        send_response(http, conn, &response);
    else
        respond_fault(http, conn);
    return true;
}

/* --- books -------------------------------------------------------------------------------------------------------- */

static void count(ks_http *http, ks_conn *conn, bool delivered)
{
    if (!conn->counted) return;
    http->in_flight--;
    conn->counted = false;
    if (conn->is_peer) return; /* the client's request is counted where it came in */
    if (http->logs_access || conn->head.known[KS_KNOWN_DEBUG]) ks_conn_log(http, conn, delivered);
    if (conn->state == KS_AT_BODY)
        ks_metrics_add(http->metrics, KS_COUNT_aborted_receive, 1);
    else if (conn->state == KS_AT_WAIT)
        ks_metrics_add(http->metrics, KS_COUNT_aborted_compute, 1);
    else if (conn->state == KS_AT_SEND && !delivered)
        ks_metrics_add(http->metrics, KS_COUNT_aborted_send, 1);
    if (conn->code)
        ks_metrics_http(http->metrics, conn->route.handler, conn->method, conn->code, conn->received,
                        conn->response_bytes);
    if (conn->route.id != KS_ROUTE_INFER || conn->infer || (conn->fault == KS_OK && !(conn->compat && conn->code)))
        return;
    ks_response_count(http->metrics, &conn->route, conn->fault, http->now_ns - conn->first_ns);
}

void ks_request_sent(ks_http *http, ks_conn *conn, bool delivered)
{
    count(http, conn, delivered);
    if (conn->received + conn->response_bytes <= small_bytes) http->small_ns = http->now_ns;
    ks_infer_leave(&conn->infer);
    ks_tensors_leave(&conn->tensors);
    ks_models_leave(&conn->models);
    ks_change_leave(&conn->changes);
    use_model(http, conn, NULL);
    ks_control_fini(&conn->control);
    ks_compat_fini(&conn->compat);
    ks_conn_enter(conn, KS_AT_IDLE);
    conn->since_ns = http->now_ns;
    ks_eviction_rest(&http->conns, conn, http->now_ns);
}
