/* Preloaded into the daemon: now and then a call of those that wait or move bytes is interrupted, in every thread, as a profiler's
 * or a debugger's signal does it. KS_EINTR=N: one call in N gives EINTR, by chance, so that no loop keeps step with it. At the
 * process's end "interrupted COUNT" goes to the file that KS_EINTR_FILE names. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the checked forms of a fortified build have none elsewhere */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static _Atomic long interrupted;
static _Thread_local uint64_t chance; /* xorshift; another one in each thread */

static bool interrupts(void)
{
    static _Atomic long one_in;
    static _Atomic uint64_t threads;
    long n = atomic_load_explicit(&one_in, memory_order_relaxed);
    if (n == 0) {
        const char *text = getenv("KS_EINTR");
        n = text ? strtol(text, NULL, 10) : LONG_MAX;
        atomic_store_explicit(&one_in, n, memory_order_relaxed);
    }
    if (chance == 0) chance = (atomic_fetch_add(&threads, 1) + 1) * UINT64_C(0x9e3779b97f4a7c15);
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    if (chance % (uint64_t)n != 0) return false;
    atomic_fetch_add_explicit(&interrupted, 1, memory_order_relaxed);
    errno = EINTR;
    return true;
}

#define WRAP(type, name, arguments, passed)                                                                            \
    type name arguments                                                                                                \
    {                                                                                                                  \
        static type(*real) arguments;                                                                                  \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);                                                          \
        return interrupts() ? -1 : real passed;                                                                        \
    }

WRAP(ssize_t, recv, (int fd, void *to, size_t n, int flags), (fd, to, n, flags))
WRAP(ssize_t, __recv_chk, (int fd, void *to, size_t n, size_t room, int flags), (fd, to, n, room, flags))
WRAP(ssize_t, send, (int fd, const void *from, size_t n, int flags), (fd, from, n, flags))
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n))
WRAP(ssize_t, __read_chk, (int fd, void *to, size_t n, size_t room), (fd, to, n, room))
WRAP(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n))
WRAP(ssize_t, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
WRAP(int, accept4, (int fd, struct sockaddr *from, socklen_t *length, int flags), (fd, from, length, flags))
WRAP(int, epoll_wait, (int fd, struct epoll_event *events, int most, int ms), (fd, events, most, ms))
WRAP(int, epoll_pwait2,
     (int fd, struct epoll_event *events, int most, const struct timespec *timeout, const sigset_t *signals),
     (fd, events, most, timeout, signals))
WRAP(int, poll, (struct pollfd * polled, nfds_t n, int ms), (polled, n, ms))
WRAP(int, sem_wait, (sem_t * semaphore), (semaphore))
WRAP(int, usleep, (useconds_t us), (us))

static __attribute__((destructor)) void tell(void)
{
    const char *path = getenv("KS_EINTR_FILE");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file == NULL) return;
    fprintf(file, "interrupted %ld\n", atomic_load(&interrupted));
    fclose(file);
}
