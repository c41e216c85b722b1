/* Where a request's target leads.
 *
 * Owns      nothing: what it finds is the connection's (conn->route).
 * Interface http_parts.h
 * Threads   the connection's shard. */
#include <string.h>

#include "http/http_parts.h"

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

int ks_find_worker(const ks_http *http, ks_conn *conn)
{
    int device;
    const char *const query = strchr(conn->target, '?');
    if (!http->api->hand_over.give || !ks_is_one_of_several(http) || !query) return -1;
    ks_query_device(query + 1, &device);
    if (device < 0 || ks_find_route(http, conn) != KS_OK || !ks_route_is_of_device(conn->route.id)) return -1;
    const int row = ks_workers_find(http->api->workers, device);
    const ks_worker_row *to = row < 0 ? NULL : &http->api->workers->row[row];
    const bool there = to && ks_worker_is_up(to) && (http->engine == NULL || atomic_load(&to->accepts));
    return there && row != http->api->worker ? row : -1;
}

bool ks_is_change_of_all(const ks_http *http, const ks_conn *conn)
{
    const ks_handler handler = conn->route.handler;
    return conn->route.right != 0 && !conn->is_peer && ks_is_one_of_several(http) &&
           (handler == KS_HANDLER_tensors || handler == KS_HANDLER_models);
}

ks_status ks_check_worker(const ks_http *http, ks_conn *conn)
{
    if (conn->is_peer || ks_is_change_of_all(http, conn)) return KS_OK;
    if (conn->route.right == 0 || conn->route.id == KS_ROUTE_INFER || !ks_is_one_of_several(http)) return KS_OK;
    return ks_fail(&conn->error, KS_UNSUPPORTED, "this would change one of several workers (--devices) alone");
}
