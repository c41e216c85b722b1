/* The loop around both transports: which one a connection gets, what a turn waits for, which client has hung up or is late, what
 * finished work resumes. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <time.h>
#include <unistd.h>

#include <sys/socket.h>

#include "base/clock.h"
#include "base/util.h"
#include "http/eviction.h"
#include "http/http_parts.h"
#include "http/response.h"

static const int64_t walk_ns = 50000000, nudge_ns = 20000000;
static const int64_t verdict_ns = 300000; /* between two looks at the verdict about a change of several workers */
/* That a turn goes on for while bytes of large requests move: with them alone, and beside small ones, of which the last was
 * over less than company_ns ago. */
static const int64_t moves_ns = 100000, moves_beside_ns = 25000, company_ns = 20000000;

bool ks_turn_watch(ks_http *http, int fd, uint64_t key)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = key};
    return epoll_ctl(http->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool ks_turn_in_latency_mode(const ks_http *http)
{
    return http->now_ns - http->small_ns < company_ns;
}

/* --- connections --------------------------------------------------------------------------------------------------- */

void ks_http_forget(ks_http *http, ks_conn *conn)
{
    ks_conns_give(&http->conns, conn);
    ks_metrics_add(http->metrics, KS_COUNT_connections, -1);
    if (http->engine) ks_connections_remove(http->connections);
}

/* A new one: its handshake, and all of its requests. */
static void take_tls(ks_http *http, ks_conn *conn)
{
    const int on = 1;
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    conn->transport = &ks_library_transport;
    ks_library_take(http, conn);
}

void ks_http_add(ks_http *http, const ks_arrival *arrival)
{
    ks_conn *conn = ks_conns_take(&http->conns, arrival, ks_now_ns());
    if (conn == NULL) {
        ks_address *address = arrival->address;
        close(arrival->fd);
        ks_address_give(&address);
        if (http->engine) ks_connections_remove(http->connections);
        return;
    }
    conn->http = http;
    if (http->logs_access) ks_socket_peer_name(conn->fd, conn->remote);
    ks_metrics_add(http->metrics, KS_COUNT_connections, 1);
    if (conn->tls)
        take_tls(http, conn);
    else
        ks_plain_take(http, conn);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static int64_t wait_ns(ks_http *http, int64_t most_ns)
{
    if (http->unfinished || http->going_on > 0 || http->plain_waits || http->io_queued > 0) return 0;
    const int64_t library_ns = ks_library_wait_ns(http);
    http->unfinished = library_ns == 0;
    if (library_ns < most_ns) most_ns = library_ns;
    if (http->conns.half_count > 0 && most_ns > nudge_ns) most_ns = nudge_ns;
    if (http->conns.active_count > 0 && most_ns > walk_ns) most_ns = walk_ns;
    const int64_t streams_ns = http->infers ? ks_infers_wait_ns(http->infers) : INT64_MAX;
    if (streams_ns < most_ns) most_ns = streams_ns;
    if (http->voting > 0 && most_ns > verdict_ns) most_ns = verdict_ns;
    return most_ns;
}

/* The finer call only where it is needed: kernels before 5.11, and valgrind, do not have it. */
static int wait_events(ks_http *http, int64_t most_ns)
{
    if (most_ns > 0 && most_ns < 1000000) {
        const struct timespec most = {.tv_nsec = most_ns};
        const int count = epoll_pwait2(http->epoll, http->events, KS_EVENTS, &most, NULL);
        if (count >= 0 || errno != ENOSYS) return count;
        most_ns = 0;
    }
    return epoll_wait(http->epoll, http->events, KS_EVENTS, (int)((most_ns + 999999) / 1000000));
}

static void clear_wake(const ks_http *http)
{
    uint64_t count;
    const ssize_t got = read(http->wake_fd, &count, sizeof count);
    (void)got; /* another thread may have read it */
}

/* --- clients that have gone or are late--------------------------------------------------------------------------------- */

static void on_event(ks_http *http, uint64_t key, uint32_t events)
{
    ks_conn *conn = ks_conns_by_key(&http->conns, key);
    if (conn == NULL) return;
    if (conn->transport) conn->transport->event(http, conn, events);
}

static void end_late(ks_http *http, ks_conn *conn, ks_late late)
{
    if (late == KS_LATE_CLOSE) {
        shutdown(conn->fd, SHUT_RDWR);
        return;
    }
    conn->fault = ks_fail(&conn->error, KS_SLOW, "the request came too slowly");
    conn->transport->cut(http, conn);
}

static bool is_moving(const ks_conn *conn)
{
    return (conn->state == KS_AT_BODY || conn->state == KS_AT_SEND) && !conn->paused_ns;
}

/* What this thread waited for a processor is no client's time: with a fifth of one, under load, a response of 100 MB takes longer than
 * --send-timeout however quickly it is read. Heads and idle connections have no such allowance: they are never much work. */
static void allow_for_waits(ks_http *http)
{
    int moving = 0;
    for (int i = 0; i < http->conns.active_count; i++) moving += is_moving(http->conns.active[i]);
    const int64_t before_ns = http->waited_ns;
    http->waited_ns = moving > 0 ? ks_thread_waited_ns() : 0;
    if (before_ns == 0 || http->waited_ns <= before_ns) return;
    for (int i = 0; i < http->conns.active_count; i++) {
        ks_conn *conn = http->conns.active[i];
        if (is_moving(conn)) conn->since_ns += ks_least(http->waited_ns - before_ns, http->now_ns - conn->since_ns);
    }
}

/* Deadlines: ours, because the library knows inactivity only, which one byte now and then never is. */
static void walk(ks_http *http)
{
    if (http->now_ns - http->walked_ns < walk_ns) return;
    http->walked_ns = http->now_ns;
    ks_eviction_rank(&http->conns, http->now_ns);
    allow_for_waits(http);
    if (http->logs_access) ks_access_look(http->now_ns);
    for (int i = http->conns.active_count - 1; i >= 0; i--) {
        ks_conn *conn = http->conns.active[i];
        ks_conn_probe(conn, http->config, http->now_ns);
        const ks_late late = ks_conn_late(conn, http->config, http->now_ns);
        if (late != KS_IN_TIME) end_late(http, conn, late);
        if (ks_conn_is_plain(conn)) ks_plain_walk(http, conn);
    }
}

/* Large requests that waited for memory, for a chunk of the ring or for the next bytes of their response. */
static void wake_streams(ks_http *http)
{
    ks_conn *conn;
    ks_infers_look(http->infers, http->now_ns);
    while ((conn = ks_infers_woken(http->infers)) != NULL) conn->transport->resume(http, conn);
    if (http->resumed) ks_library_run(http);
}

/* Requests whose model has been loaded, or could not be. */
static void wake_loads(ks_http *http)
{
    http->loading = http->voting = 0;
    for (int i = http->conns.active_count - 1; i >= 0; i--) {
        ks_conn *conn = http->conns.active[i];
        if (!ks_request_is_loading(conn) || conn->state != KS_AT_WAIT) continue;
        if (ks_request_done(conn)) {
            conn->transport->resume(http, conn);
            continue;
        }
        http->loading++;
        http->voting += conn->change != 0;
    }
    if (http->resumed) ks_library_run(http);
}

/* Whose chunk of a body was left over by the last turn's slice. */
static void take_up(ks_http *http)
{
    for (int i = 0; i < http->conns.active_count; i++)
        if (http->conns.active[i]->goes_on) ks_library_resume(http->conns.active[i]);
    http->going_on = 0;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

bool ks_http_turn(ks_http *http, int64_t timeout_ns)
{
    const int64_t most_ns = wait_ns(http, timeout_ns);
    const int count = wait_events(http, most_ns);
    http->now_ns = ks_now_ns();
    http->moves_until_ns = http->now_ns + (ks_turn_in_latency_mode(http) ? moves_beside_ns : moves_ns);
    bool ready = http->unfinished || http->going_on > 0;
    const bool waited = http->plain_waits, moves = http->io_queued > 0;
    if (http->infers) ks_infers_turn(http->infers);
    if (waited) ks_plain_turn(http);
    if (http->going_on > 0) take_up(http);
    for (int i = 0; i < count; i++) {
        ready |= http->events[i].data.u64 == KS_LIBRARY_KEY;
        if (http->events[i].data.u64 == KS_WAKE_KEY) clear_wake(http);
    }
    if (ready) ks_library_run(http);
    for (int i = 0; i < count; i++)
        if (http->events[i].data.u64 != KS_LIBRARY_KEY && http->events[i].data.u64 != KS_WAKE_KEY)
            on_event(http, http->events[i].data.u64, http->events[i].events);
    ks_conns_nudge(&http->conns);
    walk(http);
    if (http->infers) wake_streams(http);
    if (http->loading > 0) wake_loads(http);
    ks_io_queue_turn(http);
    return count > 0 || ready || waited || moves;
}

void ks_http_resume(ks_http *http, ks_job *done)
{
    if (done) http->now_ns = ks_now_ns();
    while (done) {
        ks_job *next = done->next;
        ks_conn *conn = ks_infer_collected(done);
        if (conn) conn->transport->resume(http, conn);
        done = next;
    }
    if (http->resumed) ks_library_run(http);
}

void ks_http_drain(ks_http *http)
{
    http->draining = true;
}

void ks_http_fail(ks_http *http, ks_status status)
{
    http->refusing = status;
    for (int i = 0; i < http->conns.active_count; i++) {
        ks_conn *conn = http->conns.active[i];
        if (conn->state == KS_AT_BODY || conn->state == KS_AT_WAIT)
            ks_request_abort(conn, status, ks_response_sentence(status));
        ks_library_resume(conn);
    }
    ks_plain_fail(http);
    ks_library_run(http);
}

int ks_http_in_flight(const ks_http *http)
{
    return http->in_flight;
}

int ks_http_connections(const ks_http *http)
{
    return atomic_load_explicit(&http->conns.open, memory_order_relaxed);
}
