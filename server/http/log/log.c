/* Interface  log.h. Owns nothing. Threads  the loop's own.
 * Limits     a line, and the steps of a request that asks for them, when it is over; never amid it. */
#include "http/log/log.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"

void ks_conn_keep_token(ks_conn *conn)
{
    const char *const name = conn->head.bearer ? conn->head.bearer->name : "";
    conn->head.bearer = NULL;
    memcpy(conn->bearer, name, strlen(name) + 1);
}

/* The last of the addresses that proxies have added, each behind those before it. */
static void name_forwarded(const ks_head *head, ks_access *access)
{
    const char *const value = head->known[KS_KNOWN_FORWARDED_FOR];
    if (value == NULL) return;
    const char *const comma = strrchr(value, ',');
    access->forwarded = comma ? comma + 1 : value;
    access->forwarded += strspn(access->forwarded, " \t");
    access->forwarded_length = strlen(access->forwarded);
}

static const char *aborted(const ks_conn *conn, bool delivered)
{
    if (conn->state == KS_AT_BODY) return "receive";
    if (conn->state == KS_AT_WAIT) return "compute";
    return conn->state == KS_AT_SEND && !delivered ? "send" : NULL;
}

static void write_line(ks_http *http, const ks_conn *conn, bool delivered)
{
    const int64_t now_ns = ks_now_ns();
    ks_access access = {.identity = &conn->identity,
                        .remote = conn->remote,
                        .token = conn->bearer,
                        .method = conn->head.method,
                        .model = conn->route.model ? conn->route.model->name : NULL,
                        .reader = conn->transport->reader == KS_COUNT_reader_plain ? "plain" : "libmicrohttpd",
                        .tls = conn->tls_version,
                        .aborted = aborted(conn, delivered),
                        .route = conn->route.handler,
                        .status = conn->code,
                        .in_bytes = conn->received,
                        .out_bytes = conn->code ? conn->response_bytes : 0,
                        .total_ns = now_ns - conn->first_ns,
                        .shard = http->shard,
                        .lane = -1};
    memset(access.phase_ns, -1, sizeof access.phase_ns);
    name_forwarded(&conn->head, &access);
    if (conn->route.id == KS_ROUTE_NONE) {
        access.path = conn->head.target;
        access.path_length = strcspn(conn->head.target, "?");
    }
    if (conn->infer) ks_infer_access(conn->infer, now_ns, &access);
    if (conn->fault != KS_OK) access.fault = conn->fault;
    ks_access_write(&http->access, &access, now_ns);
}

/* A client learns nothing from it, but the log grows: an operator's token, or where there are none, this host's users. */
static bool may_debug(const ks_http *http, const ks_conn *conn)
{
    if (http->tokens == NULL) return conn->loopback;
    return !conn->route.authorized && (conn->head.rights & KS_RIGHT_OPERATOR) != 0;
}

static void write_steps(const ks_conn *conn)
{
    const char *const id = conn->identity.request_id;
    KS_LOG(KS_LOG_INFO, "request step", KS_TEXT("request_id", id), KS_TEXT("step", "head"),
           KS_TEXT("route", ks_handler_name(conn->route.handler)), KS_INT("in_bytes", conn->received),
           KS_INT("chunks", conn->chunks));
    if (conn->infer) ks_infer_log_steps(conn->infer);
    KS_LOG(KS_LOG_INFO, "request step", KS_TEXT("request_id", id), KS_TEXT("step", "response"),
           KS_INT("status", conn->code), KS_TEXT("code", conn->fault != KS_OK ? ks_status_code(conn->fault) : "ok"),
           KS_TEXT("error", conn->fault != KS_OK ? conn->error.text : ""), KS_INT("out_bytes", conn->response_bytes),
           KS_INT("total_us", (ks_now_ns() - conn->first_ns) / 1000));
}

void ks_conn_log(ks_http *http, const ks_conn *conn, bool delivered)
{
    const char *const debug = conn->head.known[KS_KNOWN_DEBUG];
    if (debug && strcmp(debug, "1") == 0 && may_debug(http, conn)) write_steps(conn);
    if (http->logs_access) write_line(http, conn, delivered);
}
