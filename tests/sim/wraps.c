/* The system's calls, as the linker puts them in the place of the C library's: simulated where they are about a descriptor, a clock or a
 * thread of the simulation, else passed on.
 *
 * Interface  -Wl,--wrap=NAME for each (tests/CMakeLists.txt).
 * Library    libmicrohttpd is not there: it is given no connection, and its daemon has nothing to do. */
#include <errno.h>
#include <linux/tcp.h>
#include <microhttpd.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "sim/bed.h"
#include "sim/sim.h"
#include "sim/sockets.h"
#include "sim/world.h"

/* The linker's names: no header has them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

int __real_close(int fd);
ssize_t __real_read(int fd, void *out, size_t most);
ssize_t __real_write(int fd, const void *bytes, size_t n);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *context);
int __real_pthread_join(pthread_t thread, void **result);

/* --- bytes -------------------------------------------------------------------------------------------------------- */

ssize_t __wrap_recv(int fd, void *out, size_t most, int flags)
{
    sim_world_pass(500);
    return sim_recv(fd, out, most, flags);
}

ssize_t __wrap___recv_chk(int fd, void *out, size_t most, size_t room, int flags)
{
    if (!(flags & MSG_TRUNC)) sim_check(most <= room, "a read is longer than its buffer", (int64_t)most, (int64_t)room);
    return __wrap_recv(fd, out, most, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    (void)flags;
    sim_world_pass(800);
    return sim_sendv(fd, message->msg_iov, message->msg_iovlen);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
    const struct iovec part = {(void *)(uintptr_t)bytes, n};
    return __wrap_sendmsg(fd, &(struct msghdr){.msg_iov = (struct iovec *)(uintptr_t)&part, .msg_iovlen = 1}, flags);
}

ssize_t __wrap_read(int fd, void *out, size_t most)
{
    return sim_is_ours(fd) ? sim_eventfd_read(fd, out) : __real_read(fd, out, most);
}

ssize_t __wrap___read_chk(int fd, void *out, size_t most, size_t room)
{
    sim_check(most <= room, "a read is longer than its buffer", (int64_t)most, (int64_t)room);
    return __wrap_read(fd, out, most);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    if (!sim_is_ours(fd)) return __real_write(fd, bytes, n);
    uint64_t count = 0;
    memcpy(&count, bytes, sizeof count);
    return sim_eventfd_write(fd, count);
}

/* --- descriptors -------------------------------------------------------------------------------------------------- */

int __wrap_close(int fd)
{
    return sim_is_ours(fd) ? sim_close(fd) : __real_close(fd);
}

int __wrap_shutdown(int fd, int how)
{
    return sim_shutdown(fd, how);
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    (void)fd, (void)level, (void)name, (void)value, (void)size;
    return 0;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    enum { ESTABLISHED = 1, CLOSE_WAIT = 8 };
    struct tcp_info info;
    uint64_t received = 0;
    (void)level, (void)name;
    memset(&info, 0, sizeof info);
    info.tcpi_state = sim_tcp_close_wait(fd, &received) ? CLOSE_WAIT : ESTABLISHED;
    info.tcpi_bytes_received = received;
    memcpy(value, &info, *size < sizeof info ? *size : sizeof info);
    return 0;
}

int __wrap_ioctl(int fd, unsigned long request, int *out)
{
    (void)request; /* SIOCOUTQ alone is asked for */
    *out = sim_unsent(fd);
    return 0;
}

int __wrap_eventfd(unsigned count, int flags)
{
    (void)count, (void)flags;
    return sim_eventfd();
}

int __wrap_epoll_create1(int flags)
{
    (void)flags;
    return sim_epoll_create();
}

int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    (void)epoll;
    return sim_epoll_control(op, fd, event);
}

int __wrap_epoll_wait(int epoll, struct epoll_event *out, int most, int timeout_ms)
{
    (void)epoll;
    return sim_world_wait(out, most, (int64_t)timeout_ms * SIM_MS);
}

int __wrap_epoll_pwait2(int epoll, struct epoll_event *out, int most, const struct timespec *timeout, const void *mask)
{
    (void)epoll, (void)mask;
    return sim_world_wait(out, most, (int64_t)timeout->tv_sec * SIM_S + timeout->tv_nsec);
}

/* --- time, chance, threads ---------------------------------------------------------------------------------------- */

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    const int64_t ns = sim_world_read_ns(id != CLOCK_MONOTONIC);
    *out = (struct timespec){.tv_sec = ns / SIM_S, .tv_nsec = ns % SIM_S};
    return 0;
}

time_t __wrap_time(time_t *out)
{
    const time_t now = sim_world_read_ns(true) / SIM_S;
    if (out) *out = now;
    return now;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    sim_world_idle_at(sim_world_now_ns() + (int64_t)time->tv_sec * SIM_S + time->tv_nsec);
    return 0;
}

int64_t __wrap_ks_thread_waited_ns(void)
{
    return 0;
}

ssize_t __wrap_getrandom(void *out, size_t n, unsigned flags)
{
    (void)flags;
    for (size_t i = 0; i < n; i++) ((unsigned char *)out)[i] = (unsigned char)sim_draw(256);
    return (ssize_t)n;
}

/* A shard's thread is a call: it ends before the shard's opener goes on. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *context)
{
    if (!sim_bed_is_open()) return __real_pthread_create(thread, attributes, main, context);
    memset(thread, 0, sizeof *thread);
    sim_bed_shard(main, context);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    return sim_bed_is_open() ? 0 : __real_pthread_join(thread, result);
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    (void)thread, (void)name;
    return 0;
}

/* --- libmicrohttpd ------------------------------------------------------------------------------------------------ */

struct MHD_Daemon *__wrap_MHD_start_daemon(void)
{
    static char none;
    return (struct MHD_Daemon *)(void *)&none;
}

void __wrap_MHD_stop_daemon(struct MHD_Daemon *daemon)
{
    (void)daemon;
}

const union MHD_DaemonInfo *__wrap_MHD_get_daemon_info(struct MHD_Daemon *daemon, enum MHD_DaemonInfoType type)
{
    static const union MHD_DaemonInfo info = {.epoll_fd = 0};
    (void)daemon, (void)type;
    return &info;
}

enum MHD_Result __wrap_MHD_run_wait(struct MHD_Daemon *daemon, int32_t ms)
{
    (void)daemon, (void)ms;
    return MHD_YES;
}

enum MHD_Result __wrap_MHD_get_timeout(struct MHD_Daemon *daemon, MHD_UNSIGNED_LONG_LONG *ms)
{
    (void)daemon, (void)ms;
    return MHD_NO;
}

/* As it does where it cannot take one. */
enum MHD_Result __wrap_MHD_add_connection(struct MHD_Daemon *daemon, int fd, const struct sockaddr *at, socklen_t size)
{
    (void)daemon, (void)at, (void)size;
    sim_close(fd);
    return MHD_NO;
}
