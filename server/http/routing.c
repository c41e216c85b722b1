/* Where a request's target leads.
 *
 * Owns      nothing: what it finds is the connection's (conn->route).
 * Interface http_parts.h
 * Threads   the connection's shard. */
#include <string.h>

#include "http/http_parts.h"

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
