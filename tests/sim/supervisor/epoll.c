/* What threads wait for: epoll, signalfd, eventfd. Level-triggered alone.
 *
 * Interface   host.h, objects.h; the calls, as the linker names them. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include "sim/supervisor/objects.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the linker's names */

enum { ENTRIES = 16, EPOLLS = 12 };

typedef struct epoll {
    bool used;
    int most; /* behind the last place that is taken */
    struct {
        int object;
        uint32_t events;
        uint64_t key;
    } entry[ENTRIES];
} epoll;

static epoll epolls[EPOLLS];

void host_epoll_begin(void)
{
    memset(epolls, 0, sizeof epolls);
}

void host_epoll_freed(const host_object *was)
{
    if (was->kind == HOST_EPOLL_OBJECT) epolls[was->index].used = false;
}

void host_epoll_forget(int at)
{
    for (int i = 0; i < EPOLLS; i++)
        for (int e = 0; e < epolls[i].most; e++)
            if (epolls[i].entry[e].object == at) epolls[i].entry[e].object = 0;
}

static bool is_readable(int at, const host_process *process)
{
    const host_object *one = &host_objects[at];
    switch (one->kind) {
    case HOST_LISTENER:
    case HOST_CHANNEL:
        return host_socket_is_readable(one);
    case HOST_SIGNALFD:
        return host_has_signal(process, one->mask);
    case HOST_EVENTFD:
        return one->count > 0;
    default:
        return false;
    }
}

bool host_epoll_is_ready(int at, const host_process *process)
{
    const epoll *one = &epolls[host_objects[at].index];
    for (int i = 0; i < one->most; i++)
        if (one->entry[i].object && one->entry[i].events & EPOLLIN && is_readable(one->entry[i].object, process))
            return true;
    return false;
}

int __wrap_epoll_create1(int flags)
{
    int index = 0;
    (void)flags;
    host_enter(900);
    while (index < EPOLLS && epolls[index].used) index++;
    if (index == EPOLLS) sim_wrong("more epolls than the host has", index, 0);
    const int fd = host_open(HOST_EPOLL_OBJECT, index);
    if (fd < 0) return fd;
    memset(&epolls[index], 0, sizeof epolls[index]);
    epolls[index].used = true;
    return fd;
}

int __wrap_epoll_ctl(int fd, int op, int what, struct epoll_event *event)
{
    host_enter(600);
    epoll *one = &epolls[host_named(fd, HOST_EPOLL_OBJECT)->index];
    (void)host_named(what, HOST_NONE);
    const int at = host_object_of(host_now(), what);
    int i = 0;
    while (i < ENTRIES && one->entry[i].object != (op == EPOLL_CTL_ADD ? 0 : at)) i++;
    if (i == ENTRIES) sim_wrong("an epoll has no such place", op, what);
    one->entry[i].object = op == EPOLL_CTL_DEL ? 0 : at;
    if (i >= one->most) one->most = i + 1;
    if (event) one->entry[i].events = event->events;
    if (event) one->entry[i].key = event->data.u64;
    return 0;
}

int __wrap_epoll_wait(int fd, struct epoll_event *out, int most, int timeout_ms)
{
    host_enter(700);
    const host_object *self = host_named(fd, HOST_EPOLL_OBJECT);
    const epoll *one = &epolls[self->index];
    const int at = (int)(self - host_objects);
    if (host_now() == host_processes) rules_waits();
    if (host_fault(sim.eintr)) return host_fail(EINTR);
    const int64_t until_ns = timeout_ms < 0 ? SIM_NEVER : host_now_ns() + (int64_t)timeout_ms * SIM_MS;
    if (!host_epoll_is_ready(at, host_now())) host_fiber_wait(HOST_EPOLL, (uint32_t)at, until_ns);
    int count = 0;
    for (int i = 0; i < one->most && count < most; i++)
        if (one->entry[i].object && one->entry[i].events & EPOLLIN && is_readable(one->entry[i].object, host_now()))
            out[count++] = (struct epoll_event){.events = EPOLLIN, .data.u64 = one->entry[i].key};
    return count;
}

int __wrap_signalfd(int fd, const sigset_t *set, int flags)
{
    (void)fd, (void)flags;
    host_enter(900);
    const int made = host_open(HOST_SIGNALFD, 0);
    for (int i = 1; made >= 0 && i < 32; i++)
        if (sigismember(set, i) == 1) host_named(made, HOST_SIGNALFD)->mask |= 1u << i;
    return made;
}

int __wrap_eventfd(unsigned count, int flags)
{
    (void)count, (void)flags;
    host_enter(900);
    return host_open(HOST_EVENTFD, 0);
}

ssize_t __wrap_read(int fd, void *out, size_t most)
{
    host_enter(500);
    host_object *one = host_named(fd, HOST_NONE);
    if (one->kind == HOST_SIGNALFD) {
        const int signal = host_signalfd_read(one->mask);
        if (!signal) return host_fail(EAGAIN);
        memset(out, 0, most);
        ((struct signalfd_siginfo *)out)->ssi_signo = (uint32_t)signal;
        return sizeof(struct signalfd_siginfo);
    }
    if (host_fault(sim.eintr)) return host_fail(EINTR);
    if (one->count == 0) return host_fail(EAGAIN);
    memcpy(out, &one->count, sizeof one->count);
    one->count = 0;
    return sizeof one->count;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    uint64_t count = 0;
    host_enter(500);
    if (host_fault(sim.eintr)) return host_fail(EINTR);
    memcpy(&count, bytes, sizeof count);
    host_named(fd, HOST_EVENTFD)->count += count;
    return (ssize_t)n;
}
