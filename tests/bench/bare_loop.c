#include "bare_loop.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEADER_MAX = 4096, NO_SLOT = -1 };

struct connection {
    int fd;   /* -1: the client left while its request was worked on */
    int slot; /* NO_SLOT until its first request */
    bool working;
    size_t got, need;  /* need 0: the header's end is not seen yet */
    const char *bytes; /* of the answer */
    size_t sent;       /* of head and answer; a large one leaves in pieces */
    bool full;         /* the socket's buffer was full: EPOLLOUT is watched */
    char received[];   /* HEADER_MAX + body */
};

struct loop {
    /* fixed after start: */
    int epoll;
    size_t body, answer;
    char head[128];
    size_t head_length;
    const bare_work *work;
    /* its thread only: */
    void *state;
    int free_slots[BARE_SLOTS], free_count;
    struct connection *pending[BARE_SLOTS];
    size_t pending_count;
};

static void drop(struct loop *loop, struct connection *c)
{
    if (c->fd >= 0) close(c->fd);
    if (c->slot != NO_SLOT) loop->free_slots[loop->free_count++] = c->slot;
    free(c);
}

static void wait_for(const struct loop *loop, struct connection *c, unsigned what)
{
    struct epoll_event event = {.events = what, .data.ptr = c};
    epoll_ctl(loop->epoll, EPOLL_CTL_MOD, c->fd, &event);
}

/* Sends what is left of the answer. A full socket buffer is waited for by epoll; a client that has left is dropped. */
static void answer(struct loop *loop, struct connection *c)
{
    const size_t head_left = c->sent < loop->head_length ? loop->head_length - c->sent : 0;
    const size_t done = head_left ? 0 : c->sent - loop->head_length;
    const struct iovec parts[2] = {{(void *)(loop->head + loop->head_length - head_left), head_left},
                                   {(void *)(c->bytes + done), loop->answer - done}};
    const ssize_t n = writev(c->fd, parts, 2);
    if (n < 0 && errno != EAGAIN) {
        drop(loop, c);
        return;
    }
    if (n > 0) c->sent += (size_t)n;
    if (c->sent < loop->head_length + loop->answer) {
        if (!c->full) wait_for(loop, c, EPOLLOUT);
        c->full = true;
        return;
    }
    c->got = c->need = c->sent = 0;
    if (c->full) wait_for(loop, c, EPOLLIN);
    c->full = false;
}

/* True when the body is whole. */
static bool receive(struct loop *loop, struct connection *c)
{
    const ssize_t n = read(c->fd, c->received + c->got, HEADER_MAX + loop->body - c->got);
    if (n <= 0 && c->working) {
        close(c->fd);
        c->fd = -1;
        return false;
    }
    if (n <= 0) {
        drop(loop, c);
        return false;
    }
    c->got += (size_t)n;
    if (!c->need) {
        const char *end = memmem(c->received, c->got, "\r\n\r\n", 4);
        if (!end) return false;
        c->need = (size_t)(end + 4 - c->received) + loop->body;
    }
    return c->got >= c->need;
}

/* Hands a request over. A connection beyond the slots is closed. */
static void take(struct loop *loop, struct connection *c)
{
    if (c->slot == NO_SLOT) {
        if (!loop->free_count) {
            drop(loop, c);
            return;
        }
        c->slot = loop->free_slots[--loop->free_count];
    }
    loop->work->take(loop->state, (unsigned)c->slot, c->received + c->need - loop->body);
    c->working = true;
    loop->pending[loop->pending_count++] = c;
}

static void collect(struct loop *loop)
{
    for (size_t i = 0; i < loop->pending_count;) {
        struct connection *c = loop->pending[i];
        c->bytes = loop->work->done(loop->state, (unsigned)c->slot);
        if (!c->bytes) {
            i++;
            continue;
        }
        loop->pending[i] = loop->pending[--loop->pending_count];
        c->working = false;
        if (c->fd < 0) {
            drop(loop, c);
        } else {
            answer(loop, c);
        }
    }
}

static void *turns(void *argument)
{
    struct loop *loop = argument;
    struct epoll_event events[BARE_BATCH];
    for (;;) {
        const int n = epoll_wait(loop->epoll, events, BARE_BATCH, loop->pending_count ? 0 : -1);
        const size_t before = loop->pending_count;
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) {
                answer(loop, c);
            } else if (receive(loop, c)) {
                if (loop->work) {
                    take(loop, c);
                } else {
                    c->bytes = c->received + c->need - loop->body;
                    answer(loop, c);
                }
            }
        }
        if (loop->pending_count > before) loop->work->go(loop->state);
        if (loop->pending_count) collect(loop);
    }
    return NULL;
}

static int listen_on(unsigned short port)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, (const struct sockaddr *)&address, sizeof address) || listen(fd, 1024)) {
        perror("bare server: listen");
        return -1;
    }
    return fd;
}

static bool start(struct loop *loop, size_t body, size_t answer_bytes, const bare_work *work)
{
    loop->body = body;
    loop->answer = answer_bytes;
    loop->work = work;
    loop->state = work ? work->open(body) : NULL;
    loop->epoll = epoll_create1(0);
    loop->head_length = (size_t)snprintf(
        loop->head, sizeof loop->head,
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n\r\n", answer_bytes);
    while (loop->free_count < BARE_SLOTS) {
        loop->free_slots[loop->free_count] = BARE_SLOTS - 1 - loop->free_count;
        loop->free_count++;
    }
    pthread_t thread;
    return loop->epoll >= 0 && !pthread_create(&thread, NULL, turns, loop) && !pthread_detach(thread);
}

int bare_serve(unsigned short port, unsigned threads, size_t body, size_t answer_bytes, const bare_work *work)
{
    struct loop *loops = calloc(threads, sizeof *loops);
    signal(SIGPIPE, SIG_IGN);
    for (unsigned i = 0; i < threads; i++) {
        if (!loops || !start(&loops[i], body, answer_bytes, work)) return 71;
    }
    const int listener = listen_on(port);
    if (listener < 0) return 71;
    for (unsigned turn = 0;; turn++) {
        int on = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        struct connection *c = fd < 0 ? NULL : malloc(sizeof *c + HEADER_MAX + body);
        if (!c) {
            if (fd >= 0) close(fd);
            continue;
        }
        *c = (struct connection){.fd = fd, .slot = NO_SLOT};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(loops[turn % threads].epoll, EPOLL_CTL_ADD, fd, &event);
    }
}
