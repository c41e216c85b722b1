#include "daemon/listen.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "observe/metrics.h"
#include "daemon/workers/changes.h"
#include "daemon/workers/channel.h"

enum { BACKLOG = 4096, FIRST_INHERITED = 3, STOP = KS_LISTENERS_MAX, ROOM, PAUSE_FULL_MS = 5, PAUSE_FAULT_MS = 100 };

struct ks_listener {
    ks_daemon *daemon;
    ks_shard **shards;
    ks_listen_sockets sockets;
    pthread_t thread;
    int epoll, stop_fd;
    ks_log_limit failures; /* the thread's */
    int turn;              /* the shard that takes the next connection among equals */
};

/* --- addresses ---------------------------------------------------------------------------------------------------- */

typedef struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
    } u;
    socklen_t length;
    bool loopback;
} address;

static bool read_port(const char *text, uint16_t *port)
{
    unsigned value = 0;
    if (*text == '\0') return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        value = value * 10 + (unsigned)(*text - '0');
        if (value > 65535) return false;
    }
    *port = htons((uint16_t)value);
    return true;
}

static bool parse_local(const char *path, address *out)
{
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof out->u.local.sun_path) return false;
    out->u.local.sun_family = AF_UNIX;
    memcpy(out->u.local.sun_path, path, length + 1);
    out->length = (socklen_t)sizeof out->u.local;
    out->loopback = true;
    return true;
}

/* host: without brackets. */
static bool parse_ip(const char *host, bool v6, uint16_t port, address *out)
{
    if (v6) {
        out->u.v6.sin6_family = AF_INET6;
        out->u.v6.sin6_port = port;
        out->length = sizeof out->u.v6;
        if (inet_pton(AF_INET6, host, &out->u.v6.sin6_addr) != 1) return false;
        out->loopback = IN6_IS_ADDR_LOOPBACK(&out->u.v6.sin6_addr);
        return true;
    }
    out->u.v4.sin_family = AF_INET;
    out->u.v4.sin_port = port;
    out->length = sizeof out->u.v4;
    if (strcmp(host, "localhost") == 0) host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &out->u.v4.sin_addr) != 1) return false;
    out->loopback = (ntohl(out->u.v4.sin_addr.s_addr) >> 24) == 127;
    return true;
}

static bool parse(const char *text, address *out)
{
    char host[INET6_ADDRSTRLEN + 16];
    uint16_t port = 0;
    memset(out, 0, sizeof *out);
    if (strncmp(text, "unix:", 5) == 0) return parse_local(text + 5, out);
    bool v6 = *text == '[';
    const char *start = text + v6;
    const char *end = strchr(start, v6 ? ']' : ':');
    if (end == NULL || (size_t)(end - start) >= sizeof host) return false;
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    const char *colon = end + v6;
    return *colon == ':' && read_port(colon + 1, &port) && parse_ip(host, v6, port, out);
}

ks_status ks_listen_parse(const char *text, bool *loopback, ks_error *error)
{
    address parsed;
    if (!parse(text, &parsed))
        return ks_fail(error, KS_CONFIG, "listen address %s is none of ADDR:PORT, [ADDR6]:PORT, unix:PATH", text);
    *loopback = parsed.loopback;
    return KS_OK;
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

/* A socket file without a listener is what a killed daemon leaves; any other file is not ours to remove. */
static void remove_stale(const address *local)
{
    struct stat info;
    if (lstat(local->u.local.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return;
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (probe < 0) return;
    if (TEMP_FAILURE_RETRY(connect(probe, &local->u.any, local->length)) != 0 && errno == ECONNREFUSED)
        unlink(local->u.local.sun_path);
    close(probe);
}

/* The file appears with its mode: what may happen between a bind and a later change of it cannot. */
static bool bind_to(int fd, const address *parsed, mode_t socket_mode)
{
    if (parsed->u.any.sa_family != AF_UNIX || socket_mode == 0) return bind(fd, &parsed->u.any, parsed->length) == 0;
    const mode_t old = umask(~socket_mode & 0777);
    const bool bound = bind(fd, &parsed->u.any, parsed->length) == 0;
    const int fault = errno;
    umask(old);
    errno = fault;
    return bound;
}

static bool allow_reuse(int fd, const address *parsed)
{
    int on = 1;
    if (parsed->u.any.sa_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) != 0)
        return false;
    /* Reuse of an address in TIME_WAIT, so that a restart is immediate; never of a port that has a listener. */
    return parsed->u.any.sa_family == AF_UNIX || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
}

static bool open_socket(int fd, const address *parsed, mode_t socket_mode)
{
    return allow_reuse(fd, parsed) && bind_to(fd, parsed, socket_mode) && listen(fd, BACKLOG) == 0;
}

/* What a restart heals: a port that is taken, an address that the host has not got yet. */
static int exit_code_of(int fault)
{
    switch (fault) {
    case EACCES:
    case EPERM:
        return KS_EXIT_PERMISSION;
    case EADDRINUSE:
    case EADDRNOTAVAIL:
        return KS_EXIT_AGAIN;
    case ENOENT: /* of a unix socket's path */
    case ENOTDIR:
    case ELOOP:
    case EROFS:
        return KS_EXIT_CONFIG;
    default:
        return KS_EXIT_SYSTEM;
    }
}

static void set_port(address *at, unsigned port)
{
    if (at->u.any.sa_family == AF_INET) at->u.v4.sin_port = htons((uint16_t)port);
    if (at->u.any.sa_family == AF_INET6) at->u.v6.sin6_port = htons((uint16_t)port);
}

static bool is_free(const address *at)
{
    const int fd = socket(at->u.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && allow_reuse(fd, at) && bind(fd, &at->u.any, at->length) == 0;
    if (fd >= 0) close(fd);
    return bound;
}

/* Two ports above one that is in use; at: a copy. */
static void name_free_ports(address at, ks_error *error)
{
    enum { FREE = 2, TRIES = 64 };
    const sa_family_t family = at.u.any.sa_family;
    if (family == AF_UNIX) return;
    const unsigned port = ntohs(family == AF_INET ? at.u.v4.sin_port : at.u.v6.sin6_port);
    int found = 0;
    for (unsigned next = port + 1; next <= port + TRIES && next <= UINT16_MAX && found < FREE; next++) {
        const size_t n = strlen(error->text);
        set_port(&at, next);
        if (!is_free(&at)) continue;
        snprintf(error->text + n, sizeof error->text - n, "%s%u", found++ ? " and " : "; free are the ports ", next);
    }
}

int ks_listen_socket(const char *text, mode_t socket_mode, int *fd, bool *loopback, ks_error *error)
{
    address parsed;
    *fd = -1;
    if (ks_listen_parse(text, loopback, error) != KS_OK) return KS_EXIT_CONFIG;
    (void)parse(text, &parsed);
    if (parsed.u.any.sa_family == AF_UNIX) remove_stale(&parsed);
    int opened = socket(parsed.u.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (opened < 0 || !open_socket(opened, &parsed, socket_mode)) {
        int fault = errno;
        if (opened >= 0) close(opened);
        ks_fail(error, KS_SYSTEM, "cannot listen on %s: %s", text, strerror(fault));
        if (fault == EADDRINUSE) name_free_ports(parsed, error);
        return exit_code_of(fault);
    }
    *fd = opened;
    return KS_EXIT_OK;
}

/* Bound and never listened on: no client gets as far as to be cut off. */
int ks_listen_try(const char *text, bool *in_use, ks_error *error)
{
    address parsed;
    bool loopback;
    *in_use = false;
    if (ks_listen_parse(text, &loopback, error) != KS_OK) return KS_EXIT_CONFIG;
    (void)parse(text, &parsed);
    if (parsed.u.any.sa_family == AF_UNIX) remove_stale(&parsed);
    const int fd = socket(parsed.u.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && allow_reuse(fd, &parsed) && bind(fd, &parsed.u.any, parsed.length) == 0;
    const int fault = errno;
    if (bound && parsed.u.any.sa_family == AF_UNIX) unlink(parsed.u.local.sun_path);
    if (fd >= 0) close(fd);
    *in_use = !bound && fault == EADDRINUSE;
    if (bound || *in_use) return KS_EXIT_OK;
    ks_fail(error, KS_SYSTEM, "cannot listen on %s: %s", text, strerror(fault));
    return exit_code_of(fault);
}

/* From this host all addresses of a listener are its loopback. */
static void aim_at_loopback(address *at)
{
    if (at->u.any.sa_family == AF_INET && at->u.v4.sin_addr.s_addr == htonl(INADDR_ANY))
        at->u.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (at->u.any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&at->u.v6.sin6_addr))
        at->u.v6.sin6_addr = in6addr_loopback;
}

int ks_listen_connect(const char *text, int seconds)
{
    address parsed;
    const struct timeval limit = {.tv_sec = seconds};
    if (!parse(text, &parsed)) return -1;
    aim_at_loopback(&parsed);
    const int fd = socket(parsed.u.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* connect keeps to it as well */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, &parsed.u.any, parsed.length) == 0) return fd;
    close(fd);
    return -1;
}

int ks_listen_inherited(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    if (pid == NULL || count == NULL || strtol(pid, NULL, 10) != (long)getpid()) return 0;
    long n = strtol(count, NULL, 10);
    return n < 0 ? 0 : n > KS_LISTENERS_MAX ? KS_LISTENERS_MAX : (int)n;
}

bool ks_listen_inherited_as(int index, const char *name)
{
    const char *names = getenv("LISTEN_FDNAMES");
    for (int i = 0; names && i < index; i++) {
        names = strchr(names, ':');
        if (names) names++;
    }
    const size_t length = strlen(name);
    return names && strcspn(names, ":") == length && strncmp(names, name, length) == 0;
}

/* --- accepting ---------------------------------------------------------------------------------------------------- */

/* The shard with the fewest connections; equals take turns. */
static ks_shard *choose_fewest(ks_listener *listener)
{
    int shards = listener->daemon->shards;
    int best = -1, fewest = 0;
    for (int i = 0; i < shards; i++) {
        int at = (listener->turn + i) % shards;
        int have = ks_shard_connections(listener->shards[at]);
        if (best < 0 || have < fewest) {
            best = at;
            fewest = have;
        }
    }
    listener->turn = (best + 1) % shards;
    return listener->shards[best];
}

/* The shard whose connection gives way first; NULL: none has one that does. */
static ks_shard *choose_yielding(const ks_listener *listener)
{
    ks_shard *best = NULL;
    int64_t least = INT64_MAX;
    for (int i = 0; i < listener->daemon->shards; i++) {
        const int64_t yields = ks_shard_yields(listener->shards[i]);
        if (yields >= least) continue;
        least = yields;
        best = listener->shards[i];
    }
    return best;
}

/* *replaces: another connection gives way for the next one. */
static bool has_room(const ks_listener *listener, bool *replaces)
{
    if (listener->daemon->workers && atomic_load(&listener->daemon->row->state) == KS_STATE_FAILED)
        return *replaces = false; /* its supervisor gives what waits to another worker */
    const int above =
        ks_connections_count(&listener->daemon->row->connections) - (int)listener->daemon->config->connections;
    *replaces = above >= 0;
    return above < 0 || (above < KS_ARRIVALS_MOST && choose_yielding(listener));
}

static void hand_over(ks_listener *listener, ks_arrival *arrival)
{
    int on = 1;
    ks_connections *connections = &listener->daemon->row->connections;
    ks_shard *shard = arrival->replaces ? choose_yielding(listener) : NULL;
    if (shard == NULL) shard = choose_fewest(listener);
    setsockopt(arrival->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* fails on unix sockets, which need none */
    if (listener->daemon->workers)
        ks_connections_take(connections);
    else
        ks_connections_add(connections);
    if (ks_shard_give(shard, arrival)) return;
    ks_connections_remove(connections);
    ks_address_give(&arrival->address);
    close(arrival->fd);
}

/* Closes what is one too many of its client's. */
static bool admit(ks_listener *listener, ks_arrival *arrival, const struct sockaddr_storage *from)
{
    const int64_t most = listener->daemon->config->address_connections;
    arrival->address = ks_addresses_take(listener->daemon->addresses, from);
    if (most == 0 || ks_address_connections(arrival->address) <= most) return true;
    ks_address_give(&arrival->address);
    close(arrival->fd);
    ks_metrics_address_full(listener->daemon->metrics);
    return false;
}

/* Of a worker: which of its listeners has this number. */
static int find_numbered(const ks_listen_sockets *sockets, uint32_t number)
{
    int at = 0;
    while (at < sockets->count && sockets->number[at] != (int)number) at++;
    assert(at < sockets->count);
    return at;
}

/* What another worker gives, or this one's thread of changes. -1: no connection. */
static int take_of_worker(const ks_listener *listener, ks_arrival *arrival, uint32_t number)
{
    if (number == KS_CHANNEL_KEEP) {
        ks_changes_keep_take(listener->daemon->changes, arrival->fd);
        errno = ECONNABORTED; /* nothing more is to come of it */
        return -1;
    }
    arrival->is_peer = arrival->loopback = true;
    arrival->tls = false;
    arrival->change = number - KS_CHANNEL_PEER;
    return arrival->fd;
}

/* The next connection: a listener's, or of a worker what its supervisor has accepted. */
static int take_next(const ks_listener *listener, int at, ks_arrival *arrival, struct sockaddr_storage *from)
{
    const ks_listen_sockets *sockets = &listener->sockets;
    socklen_t length = sizeof *from;
    uint32_t number;
    if (!listener->daemon->workers) {
        arrival->fd = accept4(sockets->fds[at], (struct sockaddr *)from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } else {
        arrival->fd = ks_channel_take(listener->daemon->data_fd, &number);
        if (arrival->fd < 0) return -1;
        if (getpeername(arrival->fd, (struct sockaddr *)from, &length) != 0)
            from->ss_family = AF_UNSPEC; /* it has left already */
        if (number >= KS_CHANNEL_KEEP) return take_of_worker(listener, arrival, number);
        at = find_numbered(sockets, number);
    }
    arrival->is_peer = false;
    arrival->change = 0;
    arrival->loopback = sockets->loopback[at];
    arrival->tls = sockets->tls[at];
    return arrival->fd;
}

/* Of a worker: it has left the channel, and is not open. */
static void count_lost(const ks_listener *listener)
{
    if (listener->daemon->workers) ks_connections_give_back(&listener->daemon->row->connections);
}

/* Takes what waits, as long as there is room. false: out of descriptors or memory, a pause is due. */
static bool accept_some(ks_listener *listener, int at)
{
    ks_arrival arrival = {.fd = -1};
    while (has_room(listener, &arrival.replaces)) {
        struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
        if (take_next(listener, at, &arrival, &from) >= 0) {
            if (admit(listener, &arrival, &from))
                hand_over(listener, &arrival);
            else
                count_lost(listener);
            continue;
        }
        if (errno == ECONNABORTED) count_lost(listener);
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    }
    return true;
}

/* Where connections come from: a worker's one channel, or the listeners. */
static int source_at(const ks_listener *listener, int at)
{
    return listener->daemon->workers ? listener->daemon->data_fd : listener->sockets.fds[at];
}

static int count_sources(const ks_listener *listener)
{
    return listener->daemon->workers ? 1 : listener->sockets.count;
}

static void watch(ks_listener *listener, bool on)
{
    for (int i = 0; i < count_sources(listener); i++) {
        struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.u32 = (uint32_t)i};
        epoll_ctl(listener->epoll, EPOLL_CTL_MOD, source_at(listener, i), &event);
    }
}

static void clear(int fd)
{
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got; /* that it was written is all that it says */
}

static void *listener_main(void *context)
{
    ks_listener *listener = context;
    int pause_ms = -1;
    pthread_setname_np(pthread_self(), "ks-listen");
    for (;;) {
        struct epoll_event events[KS_LISTENERS_MAX + 2];
        bool good = true;
        int count = epoll_wait(listener->epoll, events, KS_LISTENERS_MAX + 2, pause_ms);
        for (int i = 0; i < count; i++) {
            if (events[i].data.u32 == STOP) return NULL;
            if (events[i].data.u32 == ROOM)
                clear(listener->daemon->room_fd);
            else
                good &= accept_some(listener, (int)events[i].data.u32);
        }
        /* While full, or without descriptors, new connections wait in the backlog, and this thread sleeps. */
        bool replaces;
        int want_ms = !good ? PAUSE_FAULT_MS : has_room(listener, &replaces) ? -1 : PAUSE_FULL_MS;
        uint64_t times;
        if (want_ms == PAUSE_FAULT_MS && ks_log_due(&listener->failures, ks_now_ns(), &times))
            KS_LOG(KS_LOG_WARN, "cannot accept connections", KS_TEXT("error", strerror(errno)), KS_INT("times", times));
        if ((want_ms < 0) != (pause_ms < 0)) watch(listener, want_ms < 0);
        pause_ms = want_ms;
    }
}

static bool add_all(ks_listener *listener)
{
    struct epoll_event stop = {.events = EPOLLIN, .data.u32 = STOP};
    struct epoll_event room = {.events = EPOLLIN, .data.u32 = ROOM};
    if (epoll_ctl(listener->epoll, EPOLL_CTL_ADD, listener->stop_fd, &stop) != 0) return false;
    if (epoll_ctl(listener->epoll, EPOLL_CTL_ADD, listener->daemon->room_fd, &room) != 0) return false;
    for (int i = 0; i < count_sources(listener); i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        if (epoll_ctl(listener->epoll, EPOLL_CTL_ADD, source_at(listener, i), &event) != 0) return false;
    }
    return true;
}

static void free_parts(ks_listener *listener)
{
    if (listener->epoll >= 0) close(listener->epoll);
    if (listener->stop_fd >= 0) close(listener->stop_fd);
    free(listener);
}

ks_status ks_listener_open(ks_daemon *daemon, ks_shard **shards, const ks_listen_sockets *sockets, ks_listener **out,
                           ks_error *error)
{
    ks_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) return ks_fail(error, KS_MEMORY, "no memory for %d listeners", sockets->count);
    listener->daemon = daemon;
    listener->shards = shards;
    listener->sockets = *sockets;
    listener->epoll = epoll_create1(EPOLL_CLOEXEC);
    listener->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (listener->epoll < 0 || listener->stop_fd < 0 || !add_all(listener) ||
        pthread_create(&listener->thread, NULL, listener_main, listener) != 0) {
        int fault = errno;
        free_parts(listener);
        return ks_fail(error, KS_SYSTEM, "cannot start accepting: %s", strerror(fault));
    }
    atomic_store(&daemon->row->beat_ns, ks_now_ns());
    if (ks_changes_are_made(daemon)) {
        atomic_store(&daemon->row->asks, true); /* takes clients once it has what the others have */
    } else {
        atomic_store(&daemon->row->accepts, true);
        atomic_store(&daemon->row->served, true);
    }
    *out = listener;
    return KS_OK;
}

void ks_listen_close(int fd)
{
    struct sockaddr_un local;
    socklen_t length = sizeof local;
    memset(&local, 0, sizeof local);
    bool inherited = fd < FIRST_INHERITED + ks_listen_inherited();
    if (!inherited && getsockname(fd, (struct sockaddr *)&local, &length) == 0 && local.sun_family == AF_UNIX &&
        local.sun_path[0])
        unlink(local.sun_path);
    close(fd);
}

void ks_listener_close(ks_listener **pointer)
{
    ks_listener *listener = *pointer;
    *pointer = NULL;
    if (listener == NULL) return;
    atomic_store(&listener->daemon->row->joined, false);
    atomic_store(&listener->daemon->row->asks, false);
    atomic_store(&listener->daemon->row->accepts,
                 false); /* what is on its way stays in the channel, and is another worker's */
    uint64_t one = 1;
    ssize_t wrote = TEMP_FAILURE_RETRY(write(listener->stop_fd, &one, sizeof one));
    (void)wrote; /* an eventfd that cannot be written is full, and wakes all the same */
    pthread_join(listener->thread, NULL);
    for (int i = 0; i < listener->sockets.count; i++) ks_listen_close(listener->sockets.fds[i]);
    free_parts(listener);
}
