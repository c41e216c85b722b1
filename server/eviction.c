#include "eviction.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LOOKS = 32,      /* at connections that have rested longest, for one of an address with more than its share */
    FRESH_SHARE = 4, /* a part of the table that connections without a request may hold before they lose their moment */
    MS = 1000000
};
/* In which a new connection's request may come; in which what was read behind a request is looked at; that a part of a head
 * protects its connection for. The kernel tells when bytes came last with the grain of its clock. */
static const int64_t fresh_ns = 100 * MS, kept_ns = 10 * MS, begun_ns = 1000 * MS, grain_ns = 10 * MS;
static const int64_t fresh_first_ns = INT64_C(1) << 62;

static void append(ks_rest *rest, ks_conn *conn, int64_t now_ns)
{
    conn->rest = rest;
    conn->rests_ns = now_ns;
    conn->begun_ns = 0;
    conn->newer = NULL;
    conn->older = rest->last;
    *(rest->last ? &rest->last->newer : &rest->first) = conn;
    rest->last = conn;
    rest->count++;
}

void ks_eviction_leave(ks_conn *conn)
{
    ks_rest *rest = conn->rest;
    if (rest == NULL) return;
    *(conn->older ? &conn->older->newer : &rest->first) = conn->newer;
    *(conn->newer ? &conn->newer->older : &rest->last) = conn->older;
    conn->rest = NULL;
    rest->count--;
}

void ks_eviction_enter(ks_conns *conns, ks_conn *conn, int64_t now_ns)
{
    append(&conns->fresh, conn, now_ns);
}

void ks_eviction_rest(ks_conns *conns, ks_conn *conn, int64_t now_ns)
{
    if (conn->requests == 0) return; /* its head never came to an end */
    ks_eviction_leave(conn);
    append(&conns->kept, conn, now_ns);
}

/* The library reads what has come of a head as soon as it comes; only the kernel knows then that it has. */
static bool has_read_since(const ks_conn *conn, int64_t now_ns)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    if (conn->direct || getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
    return now_ns - (int64_t)info.tcpi_last_data_recv * MS > conn->rests_ns + grain_ns;
}

static bool has_bytes(int fd)
{
    char byte;
    return TEMP_FAILURE_RETRY(recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)) > 0;
}

/* A part of its next request is there. Of a fresh connection that counts only until it has been looked at once. */
static bool has_begun(ks_conn *conn, int64_t now_ns)
{
    if (conn->requests == 0) return conn->direct && conn->stage == KS_AT_IDLE && has_bytes(conn->fd);
    if (conn->begun_ns == 0 && conn->stage == KS_AT_IDLE && !has_bytes(conn->fd) && !has_read_since(conn, now_ns))
        return false;
    if (conn->begun_ns == 0) conn->begun_ns = now_ns;
    return now_ns - conn->begun_ns < begun_ns;
}

/* The head of the list, without the ones whose request is under way. */
static ks_conn *first_of(ks_rest *rest)
{
    while (rest->first && rest->first->stage != KS_AT_IDLE && rest->first->stage != KS_AT_HEAD)
        ks_eviction_leave(rest->first);
    return rest->first;
}

static bool is_ripe(const ks_conns *conns, const ks_conn *conn, int64_t now_ns)
{
    if (conn->rest == &conns->kept) return now_ns - conn->rests_ns >= kept_ns;
    return now_ns - conn->rests_ns >= fresh_ns || conns->fresh.count >= conns->capacity / FRESH_SHARE;
}

static ks_conn *pick(const ks_conns *conns, ks_rest *rest, int64_t now_ns)
{
    ks_conn *best = NULL;
    ks_conn *one = first_of(rest);
    for (int i = 0; i < LOOKS && one && is_ripe(conns, one, now_ns); i++, one = one->newer) {
        const bool rests = one->stage == KS_AT_IDLE || one->stage == KS_AT_HEAD;
        const bool above = ks_address_connections(one->address) > conns->address_share;
        if (!rests || (best && !above) || has_begun(one, now_ns)) continue;
        if (above) return one;
        best = one;
    }
    return best;
}

ks_conn *ks_eviction_pick(ks_conns *conns, int64_t now_ns, ks_evicted *reason)
{
    ks_conn *conn = pick(conns, &conns->fresh, now_ns);
    *reason = conn ? KS_EVICTED_FRESH : KS_EVICTED_IDLE;
    if (conn == NULL) conn = pick(conns, &conns->kept, now_ns);
    if (conn) ks_eviction_leave(conn);
    return conn;
}

void ks_eviction_rank(ks_conns *conns, int64_t now_ns)
{
    const ks_conn *fresh = first_of(&conns->fresh), *kept = first_of(&conns->kept);
    int64_t rank = INT64_MAX;
    if (fresh && is_ripe(conns, fresh, now_ns))
        rank = fresh->rests_ns - fresh_first_ns;
    else if (kept && is_ripe(conns, kept, now_ns))
        rank = kept->rests_ns;
    atomic_store_explicit(&conns->yields, rank, memory_order_relaxed);
}
