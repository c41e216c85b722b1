/* What a connection and its request say in the access log, and what a client may have logged of its own request. The loop's
 * thread. */
#ifndef KS_HTTP_LOG_H
#define KS_HTTP_LOG_H
#include "http/http_parts.h"

/* The token's name outlives its table, which SIGHUP may replace while the request runs. */
void ks_conn_keep_token(ks_conn *conn);
/* The request is over, and what it held is still there. */
void ks_conn_log(ks_http *http, const ks_conn *conn, bool delivered);
#endif
