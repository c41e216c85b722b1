/* Preloaded into the daemon: now and then a call of those that wait or move bytes is interrupted, in every thread, as a profiler's
 * or a debugger's signal does it. KS_EINTR=N: one call in N gives EINTR, by chance, so that no loop keeps step with it. At the
 * process's end "interrupted COUNT" goes to the file that KS_EINTR_FILE names. KS_EINTR_AT names a file of three 64-bit numbers: calls so
 * far; N, which the test writes: the N-th call; 1: that one is interrupted, 2: it moves one byte, or tells of one event. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the checked forms of a fortified build have none elsewhere */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static _Atomic long interrupted;
static _Thread_local uint64_t chance; /* xorshift; another one in each thread */

typedef enum { WHOLE, INTERRUPTED, SHORT } turn;

/* In the file that KS_EINTR_AT names. */
static struct plan {
    _Atomic uint64_t calls, at, turn;
} nowhere, *plan = &nowhere;

static long read_options(void)
{
    const char *text = getenv("KS_EINTR"), *path = getenv("KS_EINTR_AT");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *memory = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (memory != MAP_FAILED) plan = memory;
        close(fd);
    }
    return text ? strtol(text, NULL, 10) : LONG_MAX;
}

static bool by_chance(void)
{
    static _Atomic long one_in;
    static _Atomic uint64_t threads;
    long n = atomic_load_explicit(&one_in, memory_order_relaxed);
    if (n == 0) {
        n = read_options();
        atomic_store_explicit(&one_in, n, memory_order_relaxed);
    }
    if (chance == 0) chance = (atomic_fetch_add(&threads, 1) + 1) * UINT64_C(0x9e3779b97f4a7c15);
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance % (uint64_t)n == 0;
}

static turn take_turn(void)
{
    const bool chosen = by_chance();
    const uint64_t number = atomic_fetch_add(&plan->calls, 1) + 1, at = atomic_load(&plan->at);
    if (!chosen && (at == 0 || number != at)) return WHOLE;
    atomic_fetch_add_explicit(&interrupted, 1, memory_order_relaxed);
    errno = EINTR;
    return chosen ? INTERRUPTED : (turn)atomic_load(&plan->turn);
}

static size_t cut(turn now, size_t bytes)
{
    return now == SHORT && bytes > 1 ? 1 : bytes;
}

/* A stream's call moves less than it was asked for where nothing more is there, and who waits for edges may rely on it (epoll(7), question
 * 9). So behind a short one the rest comes later: with an edge of its own. */
enum { FDS = 4096 };
static struct {
    _Atomic int epoll; /* 0: none */
    struct epoll_event event;
} waits[FDS];

static int (*real_epoll_ctl)(int, int, int, struct epoll_event *);

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    if (!real_epoll_ctl) *(void **)&real_epoll_ctl = dlsym(RTLD_NEXT, "epoll_ctl");
    const int result = real_epoll_ctl(epoll, operation, fd, event);
    if (result != 0 || fd >= FDS) return result;
    if (event) waits[fd].event = *event;
    atomic_store(&waits[fd].epoll, operation == EPOLL_CTL_DEL ? 0 : epoll);
    return result;
}

static ssize_t edge(turn now, int fd, ssize_t moved)
{
    const int fault = errno, epoll = fd >= 0 && fd < FDS ? atomic_load(&waits[fd].epoll) : 0;
    if (now == SHORT && epoll) real_epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &waits[fd].event);
    errno = fault;
    return moved;
}

#define WRAP(type, name, arguments, passed)                                                                            \
    type name arguments                                                                                                \
    {                                                                                                                  \
        static type(*real) arguments;                                                                                  \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);                                                          \
        const turn now = take_turn();                                                                                  \
        return now == INTERRUPTED ? -1 : real passed;                                                                  \
    }
#define WRAP_MOVES(name, arguments, passed)                                                                            \
    ssize_t name arguments                                                                                             \
    {                                                                                                                  \
        static ssize_t(*real) arguments;                                                                               \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);                                                          \
        const turn now = take_turn();                                                                                  \
        return now == INTERRUPTED ? -1 : edge(now, fd, real passed);                                                   \
    }

WRAP_MOVES(recv, (int fd, void *to, size_t n, int flags), (fd, to, cut(now, n), flags))
WRAP_MOVES(__recv_chk, (int fd, void *to, size_t n, size_t room, int flags), (fd, to, cut(now, n), room, flags))
WRAP_MOVES(send, (int fd, const void *from, size_t n, int flags), (fd, from, cut(now, n), flags))
WRAP_MOVES(read, (int fd, void *to, size_t n), (fd, to, cut(now, n)))
WRAP_MOVES(__read_chk, (int fd, void *to, size_t n, size_t room), (fd, to, cut(now, n), room))
WRAP_MOVES(pread, (int fd, void *to, size_t n, off_t at), (fd, to, cut(now, n), at))
WRAP_MOVES(write, (int fd, const void *from, size_t n), (fd, from, cut(now, n)))
WRAP(int, accept4, (int fd, struct sockaddr *from, socklen_t *length, int flags), (fd, from, length, flags))
WRAP(int, epoll_wait, (int fd, struct epoll_event *events, int most, int ms),
     (fd, events, (int)cut(now, (size_t)most), ms))
WRAP(int, epoll_pwait2,
     (int fd, struct epoll_event *events, int most, const struct timespec *timeout, const sigset_t *signals),
     (fd, events, (int)cut(now, (size_t)most), timeout, signals))
WRAP(int, poll, (struct pollfd * polled, nfds_t n, int ms), (polled, n, ms))
WRAP(int, sem_wait, (sem_t * semaphore), (semaphore))
WRAP(int, usleep, (useconds_t us), (us))

/* Of several parts, the first byte. */
static bool first_byte(turn now, const struct iovec *parts, size_t n, struct iovec *first)
{
    if (now != SHORT || n == 0 || parts[0].iov_len == 0) return false;
    *first = (struct iovec){parts[0].iov_base, 1};
    return true;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    static ssize_t (*real)(int, const struct msghdr *, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sendmsg");
    const turn now = take_turn();
    struct iovec first;
    struct msghdr cut_short = *message;
    if (now == INTERRUPTED) return -1;
    if (!first_byte(now, message->msg_iov, message->msg_iovlen, &first)) return real(fd, message, flags);
    cut_short.msg_iov = &first;
    cut_short.msg_iovlen = 1;
    return edge(now, fd, real(fd, &cut_short, flags));
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "writev");
    const turn now = take_turn();
    struct iovec first;
    if (now == INTERRUPTED) return -1;
    return first_byte(now, parts, (size_t)n, &first) ? edge(now, fd, real(fd, &first, 1)) : real(fd, parts, n);
}

static __attribute__((destructor)) void tell(void)
{
    const char *path = getenv("KS_EINTR_FILE");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file == NULL) return;
    fprintf(file, "interrupted %ld\n", atomic_load(&interrupted));
    fclose(file);
}
