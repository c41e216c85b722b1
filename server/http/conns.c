#include "http/conns.h"

#include <errno.h>
#include <netinet/in.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/eviction.h"
#include "base/util.h"

enum {
    LINGER_NS = 1000000000,
    CLOSE_WAIT = 8 /* TCP_CLOSE_WAIT, which a header has that does not go with linux/tcp.h */
};
static const int64_t rate_from_ns = 5000000000;

ks_status ks_conns_open(ks_conns *conns, int capacity, size_t max_uri, int epoll, ks_error *error)
{
    size_t stride = max_uri + 1;
    memset(conns, 0, sizeof *conns);
    conns->capacity = capacity;
    conns->epoll = epoll;
    atomic_store(&conns->yields, INT64_MAX);
    conns->all = calloc((size_t)capacity, sizeof *conns->all);
    conns->active = calloc((size_t)capacity, sizeof *conns->active);
    conns->half = calloc((size_t)capacity, sizeof *conns->half);
    conns->targets = calloc((size_t)capacity, stride);
    if (!conns->all || !conns->active || !conns->half || !conns->targets) {
        ks_conns_close(conns);
        return ks_fail(error, KS_MEMORY, "no memory for a table of %d connections", capacity);
    }
    for (int i = capacity - 1; i >= 0; i--) {
        ks_conn *conn = &conns->all[i];
        conn->index = (uint32_t)i;
        conn->target = conns->targets + (size_t)i * stride;
        conn->next_free = conns->free;
        conns->free = conn;
    }
    return KS_OK;
}

void ks_conns_close(ks_conns *conns)
{
    free(conns->all);
    free(conns->active);
    free(conns->half);
    free(conns->targets);
    memset(conns, 0, sizeof *conns);
}

uint64_t ks_conns_key(const ks_conn *conn)
{
    return (uint64_t)conn->generation << 32 | conn->index;
}

ks_conn *ks_conns_by_key(ks_conns *conns, uint64_t key)
{
    uint32_t index = (uint32_t)key;
    if (index >= (uint32_t)conns->capacity) return NULL;
    ks_conn *conn = &conns->all[index];
    return conn->magic == KS_CONN_MAGIC && conn->generation == (uint32_t)(key >> 32) ? conn : NULL;
}

ks_conn *ks_conns_take(ks_conns *conns, const ks_arrival *arrival, int64_t now_ns)
{
    const int fd = arrival->fd;
    ks_conn *conn = conns->free;
    if (conn == NULL) return NULL;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = ks_conns_key(conn)};
    if (epoll_ctl(conns->epoll, EPOLL_CTL_ADD, fd, &event) != 0) return NULL;
    conns->free = conn->next_free;
    conn->magic = KS_CONN_MAGIC;
    conn->fd = fd;
    conn->loopback = arrival->loopback;
    conn->tls = arrival->tls;
    conn->is_peer = arrival->is_peer;
    conn->change = arrival->change;
    conn->tls_version = NULL;
    conn->address = arrival->address;
    conn->mhd = NULL;
    conn->half_closed = conn->gone = conn->suspended = conn->counted = conn->more = conn->cut = conn->lingers = false;
    conn->transport = NULL;
    conn->state = KS_AT_IDLE;
    conn->since_ns = now_ns;
    conn->fin_ns = conn->probed_ns = 0;
    conn->requests = 0;
    ks_eviction_enter(conns, conn, now_ns);
    conn->active_at = conns->active_count;
    conns->active[conns->active_count++] = conn;
    atomic_store_explicit(&conns->open, conns->active_count, memory_order_relaxed);
    return conn;
}

void ks_conns_give(ks_conns *conns, ks_conn *conn)
{
    ks_conn *last = conns->active[--conns->active_count];
    conns->active[conn->active_at] = last;
    last->active_at = conn->active_at;
    ks_eviction_leave(conn);
    ks_address_give(&conn->address);
    conn->magic = 0;
    conn->generation++;
    for (int i = 0; conn->half_closed && i < conns->half_count; i++)
        if (conns->half[i] == conn) conns->half[i--] = conns->half[--conns->half_count];
    conn->next_free = conns->free;
    conns->free = conn;
    atomic_store_explicit(&conns->open, conns->active_count, memory_order_relaxed);
}

static bool set_watch(const ks_conns *conns, const ks_conn *conn, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = ks_conns_key(conn)};
    return epoll_ctl(conns->epoll, operation, conn->fd, &event) == 0;
}

bool ks_conns_watch(const ks_conns *conns, const ks_conn *conn, uint32_t events)
{
    return set_watch(conns, conn, EPOLL_CTL_MOD, events);
}

bool ks_conns_move(const ks_conns *conns, ks_conn *conn, int fd, uint32_t events)
{
    epoll_ctl(conns->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
    conn->fd = fd;
    return set_watch(conns, conn, EPOLL_CTL_ADD, events);
}

ks_conn *ks_conns_by_fd(ks_conns *conns, int fd)
{
    for (int i = conns->active_count - 1; i >= 0; i--)
        if (conns->active[i]->fd == fd) return conns->active[i];
    return NULL;
}

void ks_conns_hang_up(ks_conns *conns, ks_conn *conn, bool gone)
{
    conn->gone |= gone;
    if (conn->half_closed) return;
    conn->half_closed = true;
    conns->half[conns->half_count++] = conn;
}

void ks_conns_nudge(ks_conns *conns)
{
    for (int i = 0; i < conns->half_count; i++)
        if (!conns->half[i]->suspended) shutdown(conns->half[i]->fd, SHUT_RD);
}

void ks_conn_fin(ks_conn *conn, int64_t now_ns)
{
    if (conn->fin_ns == 0) conn->fin_ns = now_ns;
}

static bool waits_for_us(const ks_conn *conn)
{
    return conn->state == KS_AT_WAIT || (conn->state == KS_AT_BODY && conn->paused_ns);
}

/* A UNIX socket reports a closed peer by itself. And what lies unsent, or unacknowledged, asks the same question already; it
 * could also leave room for a part of the interim response only. */
static bool may_probe(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    int unsent = 0;
    memset(&info, 0, sizeof info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_state == CLOSE_WAIT &&
           ioctl(fd, SIOCOUTQ, &unsent) == 0 && unsent == 0;
}

/* To this end a closed socket and one that has only ended its sending side look the same: the state is CLOSE_WAIT, the window
 * open, EPOLLRDHUP set and nothing else; keepalive probes are acknowledged for both (tried on Linux 6: four of them, a
 * second apart). Only bytes tell: a closed socket answers them with RST, within 0.1 ms on loopback. The bytes that HTTP has for
 * that are an interim response, which a client of HTTP/1.1 reads and drops (RFC 9110, 15.2). It is sent once a request, and
 * only where the response has been waited for for --half-close-wait since the end was seen: quick responses are never preceded
 * by one. */
void ks_conn_probe(ks_conn *conn, const ks_config *config, int64_t now_ns)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const int64_t from_ns = conn->fin_ns > conn->first_ns ? conn->fin_ns : conn->first_ns;
    if (conn->fin_ns == 0 || !waits_for_us(conn) || conn->tls || conn->head.http10 || conn->probed_ns > conn->first_ns)
        return;
    if (config->half_close_wait == 0 || now_ns - from_ns < config->half_close_wait || !may_probe(conn->fd)) return;
    conn->probed_ns = now_ns;
    const ssize_t sent = TEMP_FAILURE_RETRY(send(conn->fd, interim, sizeof interim - 1, MSG_DONTWAIT | MSG_NOSIGNAL));
    (void)sent; /* a failure is followed by an event */
}

/* Whether the peer has sent anything at all; on a socket that cannot tell: no. */
static bool has_spoken(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    memset(&info, 0, sizeof info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_bytes_received > 0;
}

/* How long so many bytes may take: at the least rate, but never less than the grace. */
static int64_t rate_ns(uint64_t bytes, uint64_t rate)
{
    int64_t ns = (int64_t)((double)bytes / (double)rate * 1e9);
    return ns > rate_from_ns ? ns : rate_from_ns;
}

bool ks_conn_uploads(const ks_conn *conn)
{
    return (conn->tensors && ks_tensors_uploads(conn->tensors)) || (conn->models && ks_models_uploads(conn->models)) ||
           (conn->changes && ks_change_body_max(conn->changes) == INT64_MAX);
}

ks_late ks_conn_late(const ks_conn *conn, const ks_config *config, int64_t now_ns)
{
    int64_t past_ns = now_ns - conn->since_ns;
    if (conn->paused_ns) return KS_IN_TIME;
    switch (conn->state) {
    case KS_AT_IDLE:
        if (conn->requests == 0 && past_ns > config->header_timeout)
            return has_spoken(conn->fd) ? KS_LATE_RESPOND : KS_LATE_CLOSE;
        /* The library ends a silent connection itself; this is for one that sends a header byte by byte. */
        return conn->requests > 0 && past_ns > config->idle_timeout + config->header_timeout ? KS_LATE_CLOSE
                                                                                             : KS_IN_TIME;
    case KS_AT_HEAD:
        return past_ns > config->header_timeout ? KS_LATE_RESPOND : KS_IN_TIME;
    case KS_AT_BODY:
        if ((past_ns > config->body_timeout && !ks_conn_uploads(conn)) ||
            past_ns > rate_ns(conn->received, config->min_rate))
            return KS_LATE_RESPOND;
        return KS_IN_TIME;
    case KS_AT_WAIT:
        return KS_IN_TIME;
    case KS_AT_SEND:
        return past_ns > ks_least(config->send_timeout, rate_ns(conn->response_bytes, config->min_rate)) ? KS_LATE_CLOSE
                                                                                                         : KS_IN_TIME;
    case KS_AT_CUT:
        return past_ns > LINGER_NS ? KS_LATE_CLOSE : KS_IN_TIME;
    }
    return KS_IN_TIME;
}
