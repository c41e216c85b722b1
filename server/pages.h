/* The documents of GET routes: health, metadata, statistics, metrics, index, plans. Any thread, but for plans, which
 * are a shard's; knows no sockets. */
#ifndef KS_PAGES_H
#define KS_PAGES_H
#include "infer.h"
#include "routes.h"
#include "text.h"

/* Writes the body of a GET route; returns the HTTP status. content_type: static. accept: the field's value, or NULL. */
int ks_page_make(ks_daemon *daemon, const ks_route *route, const char *accept, ks_text *out, const char **content_type);
/* The document of KS_ROUTE_PLAN, on the thread of the shard whose infers they are. The errors of ks_infers_plan. */
ks_status ks_page_plan(const ks_daemon *daemon, ks_infers *infers, const ks_route *route, ks_text *out,
                       ks_error *error);
/* A shard's engine, for the metrics page: known from now on, or (NULL) about to end. Waits for a page that reads it. */
void ks_page_engine(ks_daemon *daemon, int shard, const ks_engine *engine);
#endif
