/* Where a request's target leads.
 *
 * Owns      nothing: what it finds is the connection's (conn->route).
 * Interface http_parts.h
 * Threads   the connection's shard. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "codec/decode.h"
#include "codec/format.h"
#include "http/http_parts.h"
#include "http/plain.h"
#include "resident/placed.h"

ks_status ks_request_absolute(ks_conn *conn)
{
    if (conn->authority == NULL) return KS_OK;
    if (!ks_is_host(conn->authority, strlen(conn->authority)))
        return ks_fail(&conn->error, KS_REQUEST_LINE, "the target's authority is no name or address");
    return ks_check_target(conn->target, strlen(conn->target), &conn->error);
}

/* RFC 9112 3.2.2: the authority of an absolute target takes Host's place. */
ks_status ks_take_authority(ks_conn *conn)
{
    const ks_status status = ks_request_absolute(conn);
    if (status != KS_OK || conn->authority == NULL) return status;
    conn->head.known[KS_KNOWN_HOST] = conn->authority;
    conn->head.known_length[KS_KNOWN_HOST] = strlen(conn->authority);
    return KS_OK;
}

/* What follows the head of a CONNECT is a tunnel's, not a body: it is not sent before the response, and nothing may be read as the next
 * request. */
bool ks_is_connect(const ks_conn *conn)
{
    return conn->method == KS_METHOD_OTHER && strcmp(conn->head.method, "CONNECT") == 0;
}

/* A route follows from method and target alone, and most clients ask for the same again and again. */
ks_status ks_find_route(const ks_http *http, ks_conn *conn)
{
    const char *method = conn->head.method;
    const ks_method asked = ks_method_of(method);
    const uint64_t epoch = ks_model_epoch();
    if (conn->routed && conn->method == asked && conn->models_epoch == epoch) return KS_OK;
    conn->method = asked;
    conn->models_epoch = epoch;
    const ks_status status = ks_route_find(method, conn->target, http->engine == NULL, "", &conn->route, &conn->error);
    conn->routed = status == KS_OK && asked != KS_METHOD_OTHER;
    if (status == KS_PATH && ks_is_connect(conn))
        return ks_fail(&conn->error, KS_UNSUPPORTED, "this server is no proxy");
    return status;
}

/* A tenant's own models come before those that all see. The route is then not that of method and target alone. */
ks_status ks_find_own_route(const ks_http *http, ks_conn *conn, ks_status found)
{
    const ks_token *token = conn->head.bearer;
    const bool of_model = found == KS_OK ? conn->route.model != NULL : found == KS_MODEL || found == KS_LOADING;
    if (!token || !token->tenant[0] || !of_model) return found;
    conn->routed = false;
    conn->error = (ks_error){.status = KS_OK};
    return ks_route_find(conn->head.method, conn->target, http->engine == NULL, token->tenant, &conn->route,
                         &conn->error);
}

/* --- several workers ---------------------------------------------------------------------------------------------- */

bool ks_is_one_of_several(const ks_http *http)
{
    return http->api->workers && http->api->workers->count > 1;
}

bool ks_is_leaving(const ks_http *http, ks_status fault)
{
    const int state = atomic_load_explicit(http->api->state, memory_order_relaxed);
    const bool lost = state == KS_STATE_FAILED || fault == KS_DEVICE;
    return http->engine && (state == KS_STATE_DRAINING || (lost && ks_is_one_of_several(http)));
}

/* The row where it may go; -1: it stays, and its look-up says why. */
static int row_that_serves(const ks_http *http, int row)
{
    if (row < 0 || row == http->api->worker) return -1;
    const ks_worker_row *to = &http->api->workers->row[row];
    const bool serves = http->engine ? ks_worker_serves(to, ks_now_ns()) : ks_worker_is_up(to);
    return serves ? row : -1;
}

static bool is_infer(const ks_conn *conn)
{
    return conn->route.id == KS_ROUTE_INFER;
}

static bool is_put(const ks_conn *conn)
{
    return conn->route.handler == KS_HANDLER_tensors && conn->method == KS_METHOD_PUT;
}

/* A member of the query, which need not be the first one; false: it has none. */
static bool query_has(const char *query, const char *name, ks_query_pair *pair)
{
    while (ks_query_next(&query, pair))
        if (strcmp(pair->name, name) == 0 && pair->value_length >= 0) return true;
    return false;
}

/* device=N, in front of any query that has it, and anywhere in a PUT's. -1: none, or it is no index. */
static int device_of(const ks_conn *conn)
{
    int device;
    ks_query_pair pair;
    ks_query_device(conn->route.query, &device);
    if (device >= 0 || !is_put(conn) || !query_has(conn->route.query, "device", &pair)) return device;
    return ks_device_read(pair.value, (size_t)pair.value_length);
}

/* --- the names of a request, unread ------------------------------------------------------------------------------- */

/* Rows of workers that have a tensor alone which the request names. */
typedef struct ks_naming {
    const ks_store *store;
    const char *tenant;
    unsigned rows; /* as bits */
    bool stores;   /* or may: names of outputs are among them */
} ks_naming;

static void add_name(ks_naming *naming, const char *name, size_t length)
{
    int row = 0;
    const ks_placing placing = ks_store_placing(naming->store, naming->tenant, name, length, &row);
    if (placing == KS_PLACED_HERE || placing == KS_PLACED_ELSEWHERE) naming->rows |= 1u << row;
}

/* The token's tenant, or in a request of /v2/tensors the one that an operator asks about. */
static const char *tenant_of(const ks_conn *conn, ks_query_pair *pair)
{
    const bool asks = conn->route.handler == KS_HANDLER_tensors && conn->head.rights & KS_RIGHT_OPERATOR;
    if (asks && query_has(conn->route.query, "tenant", pair)) return pair->value;
    return conn->head.bearer ? conn->head.bearer->tenant : "";
}

/* INPUT1=@W, OUTPUT0=@h. */
static bool add_query(ks_naming *naming, const char *query)
{
    ks_query_pair pair;
    bool is_raw = false;
    while (ks_query_next(&query, &pair)) {
        const bool names = pair.value_length > 1 && pair.value[0] == '@';
        if (names) add_name(naming, pair.value + 1, (size_t)pair.value_length - 1);
        naming->stores = naming->stores || (names && strncmp(pair.name, "INPUT", strlen("INPUT")) != 0);
        is_raw = is_raw || names || strcmp(pair.name, "shape") == 0;
    }
    return is_raw;
}

/* "tensor":"W", and regions "tensor:W". What looks like one and is none does no harm: any worker serves it. */
static void add_json(ks_naming *naming, const char *json, size_t n)
{
    static const char word[] = "\"tensor";
    const char *const end = json + n, *const outputs = memmem(json, n, "\"outputs\"", strlen("\"outputs\""));
    for (const char *at = json; (at = memmem(at, (size_t)(end - at), word, sizeof word - 1)) != NULL;) {
        at += sizeof word - 1;
        const bool region = at < end && *at == ':';
        if (!region && (at == end || *at++ != '"')) continue;
        while (!region && at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')) at++;
        if (at == end || *at++ != ':') continue;
        while (!region && at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')) at++;
        if (!region && (at == end || *at++ != '"')) continue;
        const char *const behind = memchr(at, '"', (size_t)(end - at));
        if (behind) add_name(naming, at, (size_t)(behind - at));
        naming->stores = naming->stores || (outputs && at > outputs);
    }
}

enum { LOOK = 16 << 10 }; /* of JSON, at most */

/* How much of the body is JSON, and is looked at for names; 0: it has none. */
static size_t json_of(const ks_conn *conn)
{
    const ks_head *head = &conn->head;
    const char *const length = head->known[KS_KNOWN_HEADER_LENGTH];
    if (conn->route.raw || head->chunked || head->content_length <= 0 || head->known[KS_KNOWN_CONTENT_ENCODING])
        return 0;
    if (!length && ks_file_of(head->known[KS_KNOWN_CONTENT_TYPE])) return 0;
    int64_t bytes = head->content_length;
    if (length) bytes = ks_least(bytes, strtoll(length, NULL, 10));
    return bytes < 0 ? 0 : bytes < LOOK ? (size_t)bytes : LOOK;
}

/* The head is whole; n bytes of the body lie in the socket. */
static int find_by_tensor(ks_http *http, ks_conn *conn, const char *body, size_t n)
{
    ks_error ignored;
    ks_query_pair pair;
    char name[KS_ROUTE_NAME_MAX + 1];
    http->rules.tokens = ks_tokens_follow(http->token_store, &http->tokens);
    if (ks_check_head(&http->rules, &conn->head, &ignored) != KS_OK || ks_take_authority(conn) != KS_OK ||
        ks_check_access(&http->rules, &conn->head, conn->loopback, false, false, &ignored) != KS_OK)
        return -1;
    ks_naming naming = {.store = http->api->store, .tenant = tenant_of(conn, &pair)};
    bool whole = !is_put(conn) && conn->method != KS_METHOD_DELETE;
    if (conn->route.handler == KS_HANDLER_tensors) {
        if (conn->route.name && ks_route_name(&conn->route, name, &ignored) == KS_OK)
            add_name(&naming, name, strlen(name));
    } else if (!add_query(&naming, conn->route.query) && is_infer(conn)) {
        const size_t json = json_of(conn), there = n < json ? n : json;
        if (there < json && !conn->head.expects && !conn->fin_ns) return KS_WORKER_LATER;
        add_json(&naming, body, there);
        whole = there == json && json > 0 && json < LOOK;
    }
    const bool two = (naming.rows & (naming.rows - 1)) != 0, one = naming.rows != 0 && !two;
    conn->places_seen = whole && !two && !naming.stores;
    return one ? row_that_serves(http, __builtin_ctz(naming.rows)) : -1;
}

/* Its look-up has found a name with another worker that was not there, or did not serve, when its names were looked at: put again meanwhile. */
void ks_check_place(ks_conn *conn)
{
    if (conn->fault == KS_PLACED && conn->places_seen)
        conn->fault = ks_fail(&conn->error, KS_UNAVAILABLE,
                              "a tensor that it names has come to another device just now: ask again");
}

int ks_find_worker(ks_http *http, ks_conn *conn, const char *body, size_t n)
{
    if (!http->api->hand_over.give || !ks_is_one_of_several(http) || conn->is_peer) return -1;
    const bool has_query = strchr(conn->target, '?') != NULL;
    const bool any = http->engine && http->api->store && ks_store_has_placed(http->api->store);
    if (!has_query && !any) return -1;
    const ks_status found = ks_find_route(http, conn);
    if (found != KS_OK && found != KS_MODEL) return -1; /* a model may be a tenant's own */
    const bool of_tensors = conn->route.handler == KS_HANDLER_tensors, infers = is_infer(conn);
    const int device =
        has_query && (ks_route_is_of_device(conn->route.id) || infers || is_put(conn)) ? device_of(conn) : -1;
    if (device >= 0) return row_that_serves(http, ks_workers_find(http->api->workers, device));
    return any && (of_tensors || infers || conn->route.id == KS_ROUTE_PLAN) ? find_by_tensor(http, conn, body, n) : -1;
}

/* A request about a tensor that one worker has alone, or is to have. */
static bool is_of_one(const ks_http *http, const ks_conn *conn)
{
    ks_query_pair pair;
    ks_error ignored;
    char name[KS_ROUTE_NAME_MAX + 1];
    int row;
    if (is_put(conn)) {
        if (query_has(conn->route.query, "device", &pair)) return true;
        if (query_has(conn->route.query, "evictable", &pair) && strcmp(pair.value, "1") == 0) return true;
    }
    if (conn->method != KS_METHOD_DELETE || !conn->route.name || ks_route_name(&conn->route, name, &ignored) != KS_OK)
        return false;
    return http->api->store &&
           ks_store_placing(http->api->store, tenant_of(conn, &pair), name, strlen(name), &row) != KS_PLACED_NOWHERE;
}

bool ks_is_change_of_all(const ks_http *http, const ks_conn *conn)
{
    const ks_handler handler = conn->route.handler;
    return conn->route.right != 0 && !conn->is_peer && ks_is_one_of_several(http) &&
           (handler == KS_HANDLER_models || (handler == KS_HANDLER_tensors && !is_of_one(http, conn)));
}

static __attribute__((noinline)) ks_status check_worker(const ks_http *http, ks_conn *conn)
{
    int device;
    if (is_infer(conn)) {
        const char *const query = ks_query_device(conn->route.query, &device);
        if (device < 0) return KS_OK;
        conn->route.query = query;
        conn->routed = false;
        return ks_view_check_device(http->api, device, true, &conn->error);
    }
    const bool stays = conn->route.handler == KS_HANDLER_tensors || conn->route.handler == KS_HANDLER_models;
    if (conn->route.right == 0 || stays || !ks_is_one_of_several(http)) return KS_OK;
    return ks_fail(&conn->error, KS_UNSUPPORTED, "this would change one of several workers (--devices) alone");
}

ks_status ks_check_worker(const ks_http *http, ks_conn *conn)
{
    return !http->api->workers || conn->is_peer ? KS_OK : check_worker(http, conn);
}
