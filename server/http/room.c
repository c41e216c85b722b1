/* Makes room in a full table of connections: which ones give way is eviction.c's to say. */
#include <sys/socket.h>

#include "base/clock.h"
#include "http/eviction.h"
#include "http/plain.h"

/* A plain close: a client that sends its next request at this moment sees the end before any response, as every client that keeps
 * connections must expect. The library closes its own ones, when it has seen the end. */
static void evict(ks_http *http, ks_conn *conn, ks_count reason)
{
    ks_metrics_add(http->metrics, reason, 1);
    if (ks_conn_is_plain(conn)) {
        ks_plain_hang_up(http, conn);
        return;
    }
    shutdown(conn->fd, SHUT_RDWR);
    http->unfinished = true;
}

/* A part of the table: connections that come in one turn take places of former ones, never each other's. */
int ks_http_room_most(const ks_http *http)
{
    enum { PART = 4 };
    return http->conns.capacity / PART;
}

int ks_http_make_room(ks_http *http, int n)
{
    int made = 0;
    ks_count reason;
    ks_conn *conn;
    http->now_ns = ks_now_ns();
    while (made < n && (conn = ks_eviction_choose(&http->conns, http->now_ns, &reason)) != NULL) {
        evict(http, conn, reason);
        made++;
    }
    if (made > 0 && http->unfinished) ks_library_run(http);
    ks_eviction_rank(&http->conns, http->now_ns);
    return made;
}

bool ks_http_has_place(const ks_http *http)
{
    return http->conns.free != NULL;
}

int64_t ks_http_yields(const ks_http *http)
{
    return atomic_load_explicit(&http->conns.yields, memory_order_relaxed);
}
