#include "http/eviction.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LOOKS = 32,      /* at connections that have rested longest, for one of an address with more than its share */
    FRESH_SHARE = 4, /* a part of the table that connections without a request may hold before they lose their moment */
    MS = 1000000
};
/* In which a new connection's request may come; in which what was read behind a request is looked at; that a part of a head
 * protects its connection for. */
static const int64_t fresh_ns = 100 * MS, kept_ns = 10 * MS, begun_ns = 1000 * MS;
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

static bool has_bytes(int fd)
{
    char byte;
    return TEMP_FAILURE_RETRY(recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)) > 0;
}

/* Between requests; or behind a last response, where it lingers for bytes that will be dropped. */
static bool rests(const ks_conn *conn)
{
    return conn->state == KS_AT_IDLE || conn->state == KS_AT_HEAD || conn->state == KS_AT_CUT;
}

/* A part of its next request is there. Of a fresh connection that counts only until it has been looked at once. */
static bool has_begun(ks_conn *conn, int64_t now_ns)
{
    if (conn->state == KS_AT_CUT) return false;
    if (conn->requests == 0) return conn->state == KS_AT_IDLE && has_bytes(conn->fd);
    if (conn->begun_ns == 0 && conn->state == KS_AT_IDLE && !has_bytes(conn->fd)) return false;
    if (conn->begun_ns == 0) conn->begun_ns = now_ns;
    return now_ns - conn->begun_ns < begun_ns;
}

/* The head of the list, without the ones whose request is under way. */
static ks_conn *first_of(ks_rest *rest)
{
    while (rest->first && !rests(rest->first)) ks_eviction_leave(rest->first);
    return rest->first;
}

static bool is_ripe(const ks_conns *conns, const ks_conn *conn, int64_t now_ns)
{
    if (conn->state == KS_AT_CUT) return true;
    if (conn->rest == &conns->kept) return now_ns - conn->rests_ns >= kept_ns;
    return now_ns - conn->rests_ns >= fresh_ns || conns->fresh.count >= conns->capacity / FRESH_SHARE;
}

static ks_conn *pick(const ks_conns *conns, ks_rest *rest, int64_t now_ns)
{
    ks_conn *best = NULL;
    ks_conn *one = first_of(rest);
    for (int i = 0; i < LOOKS && one; i++, one = one->newer) {
        const bool above = ks_address_connections(one->address) > conns->address_share;
        if (!rests(one) || !is_ripe(conns, one, now_ns) || (best && !above) || has_begun(one, now_ns)) continue;
        if (above) return one;
        best = one;
    }
    return best;
}

ks_conn *ks_eviction_choose(ks_conns *conns, int64_t now_ns, ks_count *reason)
{
    ks_conn *conn = pick(conns, &conns->fresh, now_ns);
    *reason = conn ? KS_COUNT_evicted_fresh : KS_COUNT_evicted_idle;
    /* New ones that have not been read yet, or have their moment: afterwards they serve a request or go before a kept one does. */
    if (conn == NULL && first_of(&conns->fresh)) return NULL;
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
