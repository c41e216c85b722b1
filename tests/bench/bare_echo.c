/* A bare epoll echo for POST bodies of one fixed size: what one HTTP thread can reach on this machine, and so the
 * yardstick of bench_http.sh. It parses nothing but the end of the header and trusts the client.
 *
 * Usage    bare_echo PORT BODY_BYTES
 * Threads  one
 * Limits   a header of 4 KiB; one request at a time for each connection */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEADER_MAX = 4096, EVENTS = 256 };

struct connection {
    int fd;
    size_t got, need; /* need 0: the header's end is not seen yet */
    size_t sent;      /* of the answer; a large one leaves in pieces */
    int full;         /* the socket's buffer was full: EPOLLOUT is watched */
    char bytes[];     /* HEADER_MAX + body */
};

struct echo {
    int listener, epoll;
    size_t body;
    char head[128];
    size_t head_length;
};

static int listen_on(unsigned short port)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, (const struct sockaddr *)&address, sizeof address) || listen(fd, 1024)) {
        perror("bare_echo: listen");
        exit(71);
    }
    return fd;
}

static void take(struct echo *echo)
{
    int on = 1;
    for (int fd; (fd = accept4(echo->listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        struct connection *c = calloc(1, sizeof *c + HEADER_MAX + echo->body);
        if (!c) {
            close(fd);
            continue;
        }
        c->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(echo->epoll, EPOLL_CTL_ADD, fd, &event);
    }
}

static void drop(struct connection *c)
{
    close(c->fd);
    free(c);
}

static void wait_for(const struct echo *echo, struct connection *c, unsigned what)
{
    struct epoll_event event = {.events = what, .data.ptr = c};
    epoll_ctl(echo->epoll, EPOLL_CTL_MOD, c->fd, &event);
}

/* Sends what is left of the answer. A full socket buffer is waited for by epoll. */
static void answer(const struct echo *echo, struct connection *c)
{
    const size_t head_left = c->sent < echo->head_length ? echo->head_length - c->sent : 0;
    const size_t body_done = head_left ? 0 : c->sent - echo->head_length;
    struct iovec parts[2] = {{(void *)(echo->head + echo->head_length - head_left), head_left},
                             {c->bytes + c->need - echo->body + body_done, echo->body - body_done}};
    const ssize_t n = writev(c->fd, parts, 2);
    if (n > 0) c->sent += (size_t)n;
    if (c->sent < echo->head_length + echo->body) {
        if (!c->full) wait_for(echo, c, EPOLLOUT);
        c->full = 1;
        return;
    }
    c->got = c->need = c->sent = 0;
    if (c->full) wait_for(echo, c, EPOLLIN);
    c->full = 0;
}

static void serve(const struct echo *echo, struct connection *c)
{
    const ssize_t n = read(c->fd, c->bytes + c->got, HEADER_MAX + echo->body - c->got);
    if (n <= 0) {
        drop(c);
        return;
    }
    c->got += (size_t)n;
    if (!c->need) {
        const char *end = memmem(c->bytes, c->got, "\r\n\r\n", 4);
        if (!end) return;
        c->need = (size_t)(end + 4 - c->bytes) + echo->body;
    }
    if (c->got >= c->need) answer(echo, c);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bare_echo PORT BODY_BYTES\n");
        return 64;
    }
    struct echo echo = {.body = strtoul(argv[2], NULL, 10)};
    echo.listener = listen_on((unsigned short)atoi(argv[1]));
    echo.epoll = epoll_create1(0);
    echo.head_length = (size_t)snprintf(
        echo.head, sizeof echo.head,
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n\r\n", echo.body);
    struct epoll_event listening = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    epoll_ctl(echo.epoll, EPOLL_CTL_ADD, echo.listener, &listening);
    for (;;) {
        const int n = epoll_wait(echo.epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                take(&echo);
            } else if (events[i].events & EPOLLOUT) {
                answer(&echo, c);
            } else {
                serve(&echo, c);
            }
        }
    }
}
