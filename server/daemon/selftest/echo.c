/* The yardstick: what one epoll loop for each shard does with messages of the same lengths, over the same loopback. A
 * message is known by its length alone. Connections are accepted by the thread that made them, and handed over by adding them
 * to a loop's epoll. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "daemon/selftest/parts.h"

enum { EVENTS = 128, HEAD_LEAST = 128, LOOPS_MAX = 64 };

typedef struct peer {
    struct peer *next;
    int fd;
    size_t got, sent;
    unsigned char bytes[]; /* a request */
} peer;

typedef struct loop {
    ks_echo *echo;
    pthread_t thread;
    bool started;
    int epoll;
} loop;

struct ks_echo {
    int listener, port, stop_fd;
    size_t request_bytes, body_bytes, head_bytes;
    char *head; /* of a response, as long as the daemon's */
    peer *peers;
    int threads, turn;
    loop loops[LOOPS_MAX];
};

/* --- a loop ------------------------------------------------------------------------------------------------------- */

/* What is left of the response. Where the socket is full, an event comes when it is not. */
static void response(const ks_echo *echo, peer *p)
{
    while (p->sent < echo->head_bytes + echo->body_bytes) {
        const size_t head_done = p->sent < echo->head_bytes ? p->sent : echo->head_bytes;
        const size_t body_done = p->sent - head_done;
        struct iovec parts[2] = {
            {echo->head + head_done, echo->head_bytes - head_done},
            {p->bytes + echo->request_bytes - echo->body_bytes + body_done, echo->body_bytes - body_done}};
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        const ssize_t n = sendmsg(p->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0) return;
        p->sent += (size_t)n;
    }
    p->got = p->sent = 0;
}

/* One event: a socket may be read until it is empty or the request is whole, and nothing comes behind that. */
static void serve(const ks_echo *echo, peer *p)
{
    while (p->got < echo->request_bytes) {
        const size_t left = echo->request_bytes - p->got;
        const ssize_t n = recv(p->fd, p->bytes + p->got, left, MSG_DONTWAIT);
        if (n <= 0) return;
        p->got += (size_t)n;
    }
    response(echo, p);
}

static void *loop_main(void *context)
{
    const loop *self = context;
    struct epoll_event events[EVENTS];
    for (;;) {
        const int count = epoll_wait(self->epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == NULL) return NULL;
            serve(self->echo, events[i].data.ptr);
        }
    }
}

/* --- open and close ----------------------------------------------------------------------------------------------- */

/* Everything that a response of the daemon has in length, and of its meaning as much as the client reads. */
static ks_status make_head(ks_echo *echo, ks_error *error)
{
    echo->head = malloc(echo->head_bytes + 1);
    if (echo->head == NULL) return ks_fail(error, KS_MEMORY, "no memory for the head of an echo");
    const int n =
        snprintf(echo->head, echo->head_bytes, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nX-Fill: ", echo->body_bytes);
    memset(echo->head + n, 'x', echo->head_bytes - (size_t)n);
    memcpy(echo->head + echo->head_bytes - 4, "\r\n\r\n", 4);
    return KS_OK;
}

static ks_status open_listener(ks_echo *echo, ks_error *error)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    echo->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    echo->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (echo->listener < 0 || echo->stop_fd < 0 ||
        bind(echo->listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(echo->listener, 1024) != 0 || getsockname(echo->listener, (struct sockaddr *)&address, &length) != 0)
        return ks_fail(error, KS_SYSTEM, "cannot listen for the echo: %s", strerror(errno));
    echo->port = ntohs(address.sin_port);
    return KS_OK;
}

static ks_status start_loop(ks_echo *echo, loop *self, ks_error *error)
{
    struct epoll_event stop = {.events = EPOLLIN};
    self->echo = echo;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->started = self->epoll >= 0 && epoll_ctl(self->epoll, EPOLL_CTL_ADD, echo->stop_fd, &stop) == 0 &&
                    pthread_create(&self->thread, NULL, loop_main, self) == 0;
    return self->started ? KS_OK : ks_fail(error, KS_SYSTEM, "cannot start a thread of the echo");
}

ks_status ks_echo_open(int threads, size_t request_bytes, size_t response_bytes, size_t body_bytes, ks_echo **out,
                       ks_error *error)
{
    ks_echo *echo = calloc(1, sizeof *echo);
    if (echo == NULL) return ks_fail(error, KS_MEMORY, "no memory for an echo");
    echo->request_bytes = request_bytes;
    echo->body_bytes = body_bytes;
    echo->head_bytes = response_bytes - body_bytes > HEAD_LEAST ? response_bytes - body_bytes : HEAD_LEAST;
    echo->listener = echo->stop_fd = -1;
    ks_status status = make_head(echo, error);
    if (status == KS_OK) status = open_listener(echo, error);
    for (; status == KS_OK && echo->threads < threads; echo->threads++)
        status = start_loop(echo, &echo->loops[echo->threads], error);
    if (status != KS_OK) ks_echo_close(&echo);
    *out = echo;
    return status;
}

int ks_echo_port(const ks_echo *echo)
{
    return echo->port;
}

ks_status ks_echo_accept(ks_echo *echo, int connections, ks_error *error)
{
    const int on = 1;
    for (int i = 0; i < connections; i++) {
        peer *p = malloc(sizeof *p + echo->request_bytes);
        if (p == NULL) return ks_fail(error, KS_MEMORY, "no memory for an echo's connection");
        *p = (peer){.next = echo->peers, .fd = accept4(echo->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)};
        echo->peers = p;
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = p};
        if (p->fd < 0 || setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
            epoll_ctl(echo->loops[echo->turn++ % echo->threads].epoll, EPOLL_CTL_ADD, p->fd, &event) != 0)
            return ks_fail(error, KS_SYSTEM, "cannot take a connection of the echo: %s", strerror(errno));
    }
    return KS_OK;
}

void ks_echo_close(ks_echo **pointer)
{
    ks_echo *echo = *pointer;
    const uint64_t one = 1;
    *pointer = NULL;
    if (echo == NULL) return;
    if (echo->stop_fd >= 0 && write(echo->stop_fd, &one, sizeof one) < 0) abort(); /* its first write cannot fail */
    for (int i = 0; i < LOOPS_MAX && echo->loops[i].echo; i++) {
        if (echo->loops[i].started) pthread_join(echo->loops[i].thread, NULL);
        if (echo->loops[i].epoll >= 0) close(echo->loops[i].epoll);
    }
    for (peer *p = echo->peers, *next; p; p = next) {
        next = p->next;
        if (p->fd >= 0) close(p->fd);
        free(p);
    }
    if (echo->listener >= 0) close(echo->listener);
    if (echo->stop_fd >= 0) close(echo->stop_fd);
    free(echo->head);
    free(echo);
}
