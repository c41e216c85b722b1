/* One request as far as it needs no library: its head judged, its body counted and passed on, its books. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "eviction.h"
#include "http_parts.h"
#include "reply.h"

enum {
    CHUNK_CALLS = 65536, /* pieces of a chunked body that may come without being worth 4 KiB each */
    CHUNK_BYTES = 4096
};
static const uint64_t swallow_bytes = 1 << 20; /* of a refused body: read and dropped, so that the connection stays */
static const uint64_t small_bytes = 64 << 10;  /* of body and answer: a request that is over in a fraction of a turn */

void ks_request_open(ks_http *http, ks_conn *conn)
{
    conn->first_ns = conn->since_ns = http->now_ns = ks_now_ns();
    conn->stage = KS_AT_HEAD;
    conn->fault = KS_OK;
    conn->received = conn->callbacks = conn->answer_bytes = 0;
    conn->code = 0;
    conn->goes_on = false;
}

void ks_request_target(const ks_http *http, ks_conn *conn, const char *target)
{
    const size_t length = strnlen(target, http->rules.max_uri + 1);
    const size_t kept = length <= http->rules.max_uri ? length : http->rules.max_uri;
    if (length != conn->target_length || memcmp(conn->target, target, kept) != 0) conn->routed = false;
    conn->target_length = length;
    memcpy(conn->target, target, kept);
    conn->target[kept] = '\0';
}

/* --- head --------------------------------------------------------------------------------------------------------- */

/* A route follows from method and target alone, and most clients ask for the same again and again. */
static ks_status find_route(const ks_http *http, ks_conn *conn, const char *method)
{
    const ks_method asked = ks_method_of(method);
    if (conn->routed && conn->method == asked) return KS_OK;
    conn->method = asked;
    const ks_status status = ks_route_find(method, conn->target, http->engine == NULL, &conn->route, &conn->error);
    conn->routed = status == KS_OK;
    return status;
}

static ks_status refuse_wire(ks_conn *conn, const char *method, ks_status status)
{
    conn->method = ks_method_of(method);
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

ks_status ks_request_judge(ks_http *http, ks_conn *conn, const char *method)
{
    ks_status status = ks_gate_wire(&http->rules, &conn->head, &conn->error);
    if (status != KS_OK) return refuse_wire(conn, method, status);
    const ks_status found = find_route(http, conn, method);
    /* Who may not ask does not learn which paths there are. */
    ks_error refused;
    http->rules.tokens = ks_tokens_follow(&http->daemon->tokens, &http->tokens);
    status =
        ks_gate_access(&http->rules, &conn->head, conn->loopback, conn->route.open, conn->route.authorized, &refused);
    if (status != KS_OK) {
        conn->error = refused;
        return status;
    }
    if (found != KS_OK) return found;
    status = ks_gate_right(&conn->head, conn->route.right, &conn->error);
    if (status != KS_OK) return status;
    status = ks_gate_body(&http->rules, &conn->head, &conn->error);
    if (status == KS_OK && is_crowded(http) && !is_health(conn))
        status = ks_fail(&conn->error, KS_QUEUE_FULL, "too many requests at once on the second listener");
    if (status == KS_OK && http->draining)
        status = ks_fail(&conn->error, KS_DRAINING, "%s", ks_reply_sentence(KS_DRAINING));
    return status;
}

/* What this host has no room or no time for, as opposed to what the request has wrong: told before the body's end. */
static ks_status busy_fault(ks_conn *conn)
{
    const ks_status fault = ks_infer_fault(conn->infer);
    if (!ks_status_retries(fault) && fault != KS_DEADLINE) return KS_OK;
    return ks_fail(&conn->error, fault, "%s", ks_infer_sentence(conn->infer));
}

static ks_status begin_infer(ks_http *http, ks_conn *conn)
{
    const ks_head *head = &conn->head;
    if (http->refusing != KS_OK) return ks_fail(&conn->error, http->refusing, "%s", ks_reply_sentence(http->refusing));
    if (conn->route.model->compat)
        return ks_compat_begin(conn->route.model, head->known[KS_KNOWN_HEADER_LENGTH], head->encoding,
                               http->daemon->config->json_non_finite == 1, &conn->compat, &conn->error);
    const char *accept = head->known[KS_KNOWN_ACCEPT];
    const bool known = head->encoding == KS_BODY_PLAIN && !head->chunked;
    const ks_oip_head words = {.model = conn->route.model,
                               .query = conn->route.query,
                               .header_length = head->known[KS_KNOWN_HEADER_LENGTH],
                               .content_length = !known                     ? -1
                                                 : head->content_length < 0 ? 0
                                                                            : head->content_length,
                               .body = ks_file_of(head->known[KS_KNOWN_CONTENT_TYPE]),
                               .answer = ks_file_of(accept),
                               .accept_json = accept && strstr(accept, "application/json")};
    const ks_status status = ks_infer_begin(http->infers, &words, head->encoding, &conn->identity, conn->first_ns,
                                            http->now_ns, conn, &conn->infer, &conn->error);
    return status == KS_OK ? busy_fault(conn) : status;
}

ks_status ks_request_begin(ks_http *http, ks_conn *conn)
{
    if (conn->route.id == KS_ROUTE_INFER) return begin_infer(http, conn);
    if (conn->method != KS_METHOD_POST || !ks_route_has_words(&conn->route)) return KS_OK;
    if (conn->head.encoding != KS_BODY_PLAIN) return ks_fail(&conn->error, KS_ENCODING, "Unsupported compression type");
    return ks_control_begin(&conn->control, &conn->error);
}

/* Where the client waits for leave to send, where the connection ends anyway, or where the body is too long to be
 * dropped. Else the refusal follows the body. */
bool ks_request_refuses_early(const ks_http *http, const ks_conn *conn)
{
    const ks_head *head = &conn->head;
    if (head->expects || ks_status_closes(conn->fault) || is_crowded(http)) return true;
    const uint64_t limit = swallow_bytes + (conn->fault == KS_BODY_SIZE ? http->rules.max_body : 0);
    return head->content_length > 0 && (uint64_t)head->content_length > limit;
}

bool ks_request_is_last(const ks_http *http, const ks_conn *conn)
{
    const int64_t most = http->daemon->config->max_requests;
    return http->draining || ks_status_closes(conn->fault) || (most > 0 && conn->requests >= most) ||
           (http->engine && atomic_load_explicit(&http->daemon->state, memory_order_relaxed) == KS_STATE_DRAINING);
}

/* --- body --------------------------------------------------------------------------------------------------------- */

void ks_request_check(ks_http *http, ks_conn *conn)
{
    if (conn->infer == NULL || conn->fault != KS_OK ||
        conn->head.content_length < (int64_t)(conn->received + swallow_bytes))
        return;
    conn->fault = busy_fault(conn);
    if (conn->fault != KS_OK) ks_request_cut(http, conn);
}

size_t ks_request_take(ks_http *http, ks_conn *conn, const char *bytes, size_t n)
{
    const uint64_t most = conn->infer || conn->compat ? http->rules.max_body : 0;
    const bool anew = !conn->goes_on;
    conn->received += n;
    conn->callbacks += anew;
    conn->goes_on = false;
    /* Of a body with a length a piece is what one read happened to find: its client is held to --min-rate alone. */
    if (conn->fault == KS_OK && conn->head.chunked && conn->callbacks > CHUNK_CALLS + conn->received / CHUNK_BYTES) {
        conn->fault = ks_fail(&conn->error, KS_CHUNKS, "request body comes in more than %d tiny chunks", CHUNK_CALLS);
        ks_request_cut(http, conn);
        return n;
    }
    if (conn->infer && conn->fault == KS_OK && conn->received > most)
        conn->fault = ks_fail(&conn->error, KS_BODY_SIZE, "request body has more than %llu bytes (--max-body)",
                              (unsigned long long)most);
    if (conn->received > most + swallow_bytes && conn->head.content_length < 0) {
        if (conn->fault == KS_OK)
            conn->fault = ks_fail(&conn->error, KS_BODY_SIZE, "request body is too large for this path");
        ks_request_cut(http, conn);
        return n;
    }
    if (conn->fault != KS_OK) {
        if (conn->infer) ks_infer_abort(conn->infer, conn->fault, conn->error.text);
        return n;
    }
    if (conn->compat) conn->fault = ks_compat_feed(conn->compat, bytes, n, &conn->error);
    if (conn->control) conn->fault = ks_control_feed(conn->control, bytes, n, &conn->error);
    const size_t taken = conn->infer ? ks_infer_feed(conn->infer, bytes, n) : n;
    conn->received -= n - taken;
    if (taken == 0) conn->callbacks -= anew;
    ks_request_check(http, conn);
    return taken;
}

/* Straight to the socket: nothing else has been sent of this request. What still comes is read and dropped for a while,
 * so that the client sees the answer and no reset. */
void ks_request_cut(ks_http *http, ks_conn *conn)
{
    ks_text text;
    size_t length = 0;
    ks_metrics_rejected(http->metrics, conn->fault);
    ks_text_init(&text, KS_ERROR_TEXT * 8);
    ks_reply_raw(&text, conn->fault, conn->error.text);
    char *bytes = ks_text_take(&text, &length);
    const ssize_t sent = bytes ? TEMP_FAILURE_RETRY(send(conn->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL)) : -1;
    if (sent == (ssize_t)length) conn->code = ks_status_http(conn->fault);
    free(bytes);
    shutdown(conn->fd, SHUT_WR);
    conn->stage = KS_AT_CUT;
    conn->since_ns = http->now_ns;
    if (conn->infer) ks_infer_abort(conn->infer, conn->fault, conn->error.text);
}

/* --- answer ------------------------------------------------------------------------------------------------------- */

static void add(ks_fields *fields, const char *name, const char *value)
{
    fields->at[fields->count].name = name;
    fields->at[fields->count++].value = value;
}

void ks_request_answer_fields(const ks_answer *answer, const char *timing, ks_fields *fields)
{
    fields->count = 0;
    add(fields, "Content-Type", answer->content_type);
    if (answer->header_length >= 0)
        add(fields, "Inference-Header-Content-Length", ks_reply_number(fields->number, answer->header_length));
    if (answer->datatype) {
        add(fields, "Kernserve-Shape", answer->shape);
        add(fields, "Kernserve-Datatype", answer->datatype);
    }
    if (answer->content_encoding) add(fields, "Content-Encoding", answer->content_encoding);
    if (timing[0]) add(fields, "Server-Timing", timing);
}

void ks_request_fault_fields(const ks_conn *conn, ks_fields *fields)
{
    fields->count = 0;
    add(fields, "Content-Type", "application/json");
    add(fields, "Kernserve-Error", ks_status_code(conn->fault));
    if (ks_status_retries(conn->fault)) add(fields, "Retry-After", "1");
    if (conn->route.allow) add(fields, "Allow", conn->route.allow);
    if (conn->fault == KS_ENCODING) add(fields, "Accept-Encoding", "gzip, deflate");
    if (conn->fault == KS_UNAUTHORIZED) add(fields, "WWW-Authenticate", "Bearer realm=\"kernserve\"");
}

void ks_request_common_fields(const ks_conn *conn, bool last, ks_fields *fields)
{
    add(fields, "X-Request-Id", conn->identity.request_id);
    if (last) add(fields, "Connection", "close");
}

/* --- books -------------------------------------------------------------------------------------------------------- */

static void count(ks_http *http, ks_conn *conn, bool delivered)
{
    if (!conn->counted) return;
    http->in_flight--;
    conn->counted = false;
    if (conn->stage == KS_AT_BODY)
        ks_metrics_aborted(http->metrics, KS_ABORT_RECEIVE);
    else if (conn->stage == KS_AT_WAIT)
        ks_metrics_aborted(http->metrics, KS_ABORT_COMPUTE);
    else if (conn->stage == KS_AT_SEND && !delivered)
        ks_metrics_aborted(http->metrics, KS_ABORT_SEND);
    if (conn->code)
        ks_metrics_http(http->metrics, conn->route.handler, conn->method, conn->code, conn->received,
                        conn->answer_bytes);
    if (conn->route.id != KS_ROUTE_INFER || conn->infer || (conn->fault == KS_OK && !(conn->compat && conn->code)))
        return;
    const int64_t total_ns = http->now_ns - conn->first_ns;
    ks_reply_count(http->metrics, &conn->route, conn->fault, total_ns);
    ks_infers_log_other(http->infers, conn->route.model, &conn->identity, conn->fault, total_ns);
}

void ks_request_end(ks_http *http, ks_conn *conn, bool delivered)
{
    count(http, conn, delivered);
    if (conn->received + conn->answer_bytes <= small_bytes) http->small_ns = http->now_ns;
    ks_infer_leave(&conn->infer);
    ks_control_fini(&conn->control);
    ks_compat_fini(&conn->compat);
    conn->stage = KS_AT_IDLE;
    conn->since_ns = http->now_ns;
    ks_eviction_rest(&http->conns, conn, http->now_ns);
}
