/* Connections between clients and the daemon: two buffers each, and the edges that epoll reports.
 *
 * Like Linux  a peek or a read gives what has arrived; a write takes what finds room; closed with bytes unread, a socket is reset,
 *             and what the client has not got is lost; the lowest free number is the next descriptor's; an edge is reported once, with
 *             all that is so by then.
 * Interface   sockets.h. */
#include "sim/sockets.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "sim/clients.h"
#include "sim/device.h"
#include "sim/sim.h"

enum { FIRST = 20000, EVENTFDS = 8, EVENTFD = FIRST + SIM_LINKS, EPOLL = EVENTFD + EVENTFDS, ROOM_MAX = 1 << 20 };

typedef struct link {
    int fd;         /* 0: closed by the daemon, or none yet */
    char *in, *out; /* to the daemon, from it */
    size_t in_n, in_cap, out_n, out_cap;
    uint64_t received;
    bool fin, reset, told; /* the client's end: no more comes; told: the daemon has had its error */
    bool shut_in, shut_out, closed, lost;
    bool full;  /* a write found no room */
    bool tried; /* and was of a response that was made while the device was good */
    bool watched, edge;
    uint32_t interest;
    uint64_t key;
} link_t;

typedef struct event_fd {
    bool open, watched;
    uint64_t count, key;
} event_fd;

static link_t links[SIM_LINKS];
static link_t *by_fd[SIM_LINKS];
static event_fd eventfds[EVENTFDS];

void sim_sockets_begin(void)
{
    sim_sockets_end();
    memset(by_fd, 0, sizeof by_fd);
    memset(eventfds, 0, sizeof eventfds);
}

void sim_sockets_end(void)
{
    for (int i = 0; i < SIM_LINKS; i++) {
        sim_give(links[i].in);
        sim_give(links[i].out);
    }
    memset(links, 0, sizeof links);
}

bool sim_is_ours(int fd)
{
    return fd >= FIRST && fd <= EPOLL;
}

static int index_of(const link_t *link)
{
    return (int)(link - links);
}

/* A descriptor that is closed already is a mistake of the daemon's: it could be another's by then. */
static link_t *link_of(int fd)
{
    link_t *link = fd >= FIRST && fd < FIRST + SIM_LINKS ? by_fd[fd - FIRST] : NULL;
    if (!link) sim_wrong("a call names a descriptor that is not open", fd, 0);
    return link;
}

static int fail(int code)
{
    errno = code;
    return -1;
}

/* --- the daemon's end --------------------------------------------------------------------------------------------- */

/* false: there is nothing to take; *result is what the call returns then. */
static bool may_read(link_t *link, ssize_t *result)
{
    if (link->reset) {
        *result = link->told ? 0 : fail(ECONNRESET);
        link->told = true;
        return false;
    }
    if (link->in_n > 0) return true;
    *result = link->fin || link->shut_in ? 0 : fail(EAGAIN);
    return false;
}

ssize_t sim_recv(int fd, void *out, size_t most, int flags)
{
    link_t *link = link_of(fd);
    ssize_t result = 0;
    if (most == 0) return 0;
    if (sim_one_in(sim.eintr)) return fail(EINTR);
    if (!may_read(link, &result)) return result;
    const size_t n = link->in_n < most ? link->in_n : most;
    if (!(flags & MSG_TRUNC)) memcpy(out, link->in, n);
    if (!(flags & MSG_PEEK)) {
        memmove(link->in, link->in + n, link->in_n - n);
        link->in_n -= n;
        sim_client_look(index_of(link));
    }
    sim_event(flags & MSG_PEEK ? "peek" : "recv", index_of(link), (int64_t)n);
    return (ssize_t)n;
}

static size_t take_bytes(link_t *link, const struct iovec *parts, size_t count, size_t most)
{
    size_t taken = 0;
    for (size_t i = 0; i < count && taken < most; i++) {
        const size_t n = parts[i].iov_len < most - taken ? parts[i].iov_len : most - taken;
        if (n) memcpy(link->out + link->out_n, parts[i].iov_base, n);
        link->out_n += n;
        taken += n;
    }
    return taken;
}

/* A response of the device's work that begins. One that found no room before the fault was made before it. */
static void check_fault(const link_t *link, const struct iovec *first)
{
    static const char good[] = "HTTP/1.1 200", work[] = "Server-Timing";
    if (!sim_device_is_lost() || link->tried || first->iov_len < sizeof good) return;
    const bool is_work = memcmp(first->iov_base, good, sizeof good - 1) == 0 &&
                         memmem(first->iov_base, first->iov_len, work, sizeof work - 1) != NULL;
    if (is_work) sim_wrong("200 for work of a device that is lost", index_of(link), 0);
}

ssize_t sim_sendv(int fd, const struct iovec *parts, size_t count)
{
    link_t *link = link_of(fd);
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++) wanted += parts[i].iov_len;
    if (sim_one_in(sim.eintr)) return fail(EINTR);
    if (link->reset || link->shut_out) return fail(link->reset && !link->told ? ECONNRESET : EPIPE);
    check_fault(link, parts);
    size_t room = link->out_cap - link->out_n;
    if (wanted > 0 && room == 0) {
        link->full = true;
        link->tried |= !sim_device_is_lost();
        return fail(EAGAIN);
    }
    /* Short, for want of memory; but what finds out whether a half-closed client still reads is asked for with an empty buffer. */
    if (wanted > 1 && (link->out_n > 0 || wanted > 64 || !link->fin) && sim_one_in(sim.short_writes)) {
        const size_t least = room < wanted ? room : wanted;
        room = 1 + sim_draw(least);
        link->full = true; /* the kernel had no memory for more, and reports when it has */
    }
    const size_t taken = take_bytes(link, parts, count, wanted < room ? wanted : room);
    if (taken < wanted) link->full = true;
    link->tried = false;
    sim_event("send", index_of(link), (int64_t)taken);
    sim_client_look(index_of(link));
    return (ssize_t)taken;
}

int sim_shutdown(int fd, int how)
{
    link_t *link = link_of(fd);
    link->shut_in |= how != SHUT_WR;
    link->shut_out |= how != SHUT_RD;
    link->edge = true;
    sim_event("shutdown", index_of(link), how);
    sim_client_look(index_of(link));
    return link->reset ? fail(ENOTCONN) : 0;
}

int sim_close(int fd)
{
    if (fd >= EVENTFD) {
        if (fd < EPOLL) eventfds[fd - EVENTFD].open = false;
        return 0;
    }
    link_t *link = link_of(fd);
    by_fd[fd - FIRST] = NULL;
    link->closed = true;
    link->fd = 0;
    if (link->in_n > 0 && !link->reset) {
        link->lost = true;
        link->out_n = 0;
    }
    sim_event(link->lost ? "close with bytes unread" : "close", index_of(link), (int64_t)link->in_n);
    sim_client_look(index_of(link));
    return 0;
}

bool sim_tcp_close_wait(int fd, uint64_t *received)
{
    const link_t *link = link_of(fd);
    *received = link->received;
    return link->fin && !link->reset && !link->shut_out;
}

int sim_unsent(int fd)
{
    return (int)link_of(fd)->out_n;
}

int sim_sockets_open(void)
{
    int open = 0;
    for (int i = 0; i < SIM_LINKS; i++) open += by_fd[i] != NULL;
    return open;
}

/* --- eventfds ----------------------------------------------------------------------------------------------------- */

int sim_eventfd(void)
{
    for (int i = 0; i < EVENTFDS; i++)
        if (!eventfds[i].open) {
            eventfds[i] = (event_fd){.open = true};
            return EVENTFD + i;
        }
    return fail(EMFILE);
}

ssize_t sim_eventfd_read(int fd, void *out)
{
    event_fd *one = &eventfds[fd - EVENTFD];
    if (one->count == 0) return fail(EAGAIN);
    if (sim_one_in(sim.eintr)) return fail(EINTR);
    memcpy(out, &one->count, sizeof one->count);
    one->count = 0;
    return sizeof one->count;
}

ssize_t sim_eventfd_write(int fd, uint64_t n)
{
    if (sim_one_in(sim.eintr)) return fail(EINTR);
    eventfds[fd - EVENTFD].count += n;
    return sizeof n;
}

/* --- epoll -------------------------------------------------------------------------------------------------------- */

int sim_epoll_create(void)
{
    return EPOLL;
}

int sim_epoll_control(int op, int fd, const struct epoll_event *event)
{
    if (fd >= EVENTFD && fd < EPOLL) {
        eventfds[fd - EVENTFD].watched = op != EPOLL_CTL_DEL;
        if (event) eventfds[fd - EVENTFD].key = event->data.u64;
        return 0;
    }
    if (!sim_is_ours(fd)) return 0; /* libmicrohttpd's, of which nothing comes */
    link_t *link = link_of(fd);
    link->watched = op != EPOLL_CTL_DEL;
    link->interest = event ? event->events : 0;
    link->key = event ? event->data.u64 : 0;
    link->edge = true;
    return 0;
}

static uint32_t state_of(const link_t *link)
{
    uint32_t state = 0;
    const bool in_over = link->fin || link->shut_in || link->reset;
    if (link->in_n > 0 || in_over) state |= EPOLLIN;
    if (in_over) state |= EPOLLRDHUP;
    if (link->out_n < link->out_cap || link->shut_out || link->reset) state |= EPOLLOUT;
    if (link->reset) state |= EPOLLERR;
    if (link->reset || (in_over && link->shut_out)) state |= EPOLLHUP;
    return state;
}

int sim_epoll_collect(struct epoll_event *out, int most)
{
    int count = 0;
    for (int i = 0; i < EVENTFDS && count < most; i++)
        if (eventfds[i].open && eventfds[i].watched && eventfds[i].count > 0)
            out[count++] = (struct epoll_event){.events = EPOLLIN, .data.u64 = eventfds[i].key};
    const int first = (int)sim_draw(SIM_LINKS);
    for (int i = 0; i < SIM_LINKS && count < most; i++) {
        link_t *link = by_fd[(first + i) % SIM_LINKS];
        if (!link || !link->watched || !link->edge) continue;
        const uint32_t state = state_of(link) & (link->interest | EPOLLERR | EPOLLHUP);
        link->edge = false;
        if (!state) continue;
        sim_event("edge", index_of(link), state);
        out[count++] = (struct epoll_event){.events = state, .data.u64 = link->key};
    }
    return count;
}

/* --- the client's end --------------------------------------------------------------------------------------------- */

int sim_connect(int client, size_t receive_bytes, size_t send_bytes)
{
    link_t *link = &links[client];
    int at = 0;
    while (by_fd[at]) at++;
    by_fd[at] = link;
    link->fd = FIRST + at;
    link->in_cap = receive_bytes < ROOM_MAX ? receive_bytes : ROOM_MAX;
    link->out_cap = send_bytes < ROOM_MAX ? send_bytes : ROOM_MAX;
    link->in = sim_take(link->in_cap);
    link->out = sim_take(link->out_cap);
    sim_event("connect", client, link->fd);
    return link->fd;
}

size_t sim_peer_put(int client, const char *bytes, size_t n)
{
    link_t *link = &links[client];
    if (link->closed || link->reset || link->shut_in) return link->closed ? 0 : n;
    const size_t room = link->in_cap - link->in_n, went = n < room ? n : room;
    if (went == 0) return 0;
    memcpy(link->in + link->in_n, bytes, went);
    link->in_n += went;
    link->received += went;
    link->edge = true;
    sim_event("put", client, (int64_t)went);
    return went;
}

size_t sim_peer_get(int client, char *out, size_t most)
{
    link_t *link = &links[client];
    const size_t n = link->out_n < most ? link->out_n : most;
    if (n == 0) return 0;
    memcpy(out, link->out, n);
    memmove(link->out, link->out + n, link->out_n - n);
    link->out_n -= n;
    if (link->full && !link->closed) {
        link->full = false;
        link->edge = true;
    }
    sim_event("get", client, (int64_t)n);
    return n;
}

void sim_peer_fin(int client)
{
    link_t *link = &links[client];
    if (link->closed || link->fin) return;
    link->fin = link->edge = true;
    sim_event("fin", client, 0);
}

void sim_peer_reset(int client)
{
    link_t *link = &links[client];
    link->out_n = 0;
    if (link->closed || link->reset) return;
    link->reset = link->edge = true;
    link->in_n = 0;
    sim_event("reset", client, 0);
}

bool sim_peer_over(int client)
{
    const link_t *link = &links[client];
    return link->out_n == 0 && (link->closed || link->shut_out);
}

bool sim_peer_was_reset(int client)
{
    return links[client].lost;
}
