/* Listeners with their backlogs, clients' sockets, and channels that carry those.
 *
 * Like Linux  a message whose descriptor finds no place loses it; a message keeps what it carries alive.
 * Interface   host.h, objects.h; the calls, as the linker names them. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "sim/supervisor/objects.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the linker's names */

enum { CHANNELS = 2 * HOST_WORKERS, MESSAGES = 300 };

typedef struct channel {
    int count, ends; /* messages; ends that are open: 1 give, 2 take */
    int row;         /* -1: not known yet */
    bool admin;
    int sending; /* threads that are about to add a message, also where they ended with their process */
    int link[MESSAGES];
    uint32_t word[MESSAGES];
} channel;

typedef struct listener {
    bool open;
    int count, link[HOST_LINKS];
} listener;

static channel channels[CHANNELS];
static listener listeners[HOST_LISTENERS];
static int link_object[HOST_LINKS];
static bool link_gone[HOST_LINKS];
static int channels_made;

void host_sockets_begin(void)
{
    memset(listeners, 0, sizeof listeners);
    memset(link_object, 0, sizeof link_object);
    memset(link_gone, 0, sizeof link_gone);
    for (int i = 0; i < CHANNELS; i++) {
        channels[i].count = channels[i].ends = channels[i].sending = 0;
        channels[i].row = -1;
    }
    channels_made = 0;
}

static void empty_channel(channel *one)
{
    for (int i = 0; i < one->count; i++) host_drop(link_object[one->link[i]]);
    one->count = 0;
}

void host_socket_freed(const host_object *was)
{
    if (was->kind == HOST_LINK) {
        link_object[was->index] = 0;
        rules_freed(was->index);
    }
    if (was->kind == HOST_LISTENER) {
        listeners[was->index].open = false;
        listeners[was->index].count = 0;
    }
    if (was->kind != HOST_CHANNEL) return;
    channels[was->index].ends &= was->takes ? 1 : 2;
    if (was->takes) empty_channel(&channels[was->index]);
}

bool host_socket_is_readable(const host_object *one)
{
    if (one->kind == HOST_LISTENER) return listeners[one->index].count > 0;
    return one->takes && (channels[one->index].count > 0 || !(channels[one->index].ends & 1));
}

/* --- listeners ---------------------------------------------------------------------------------------------------- */

int host_give_listener(host_process *process, int index)
{
    listeners[index].open = true;
    return host_place(process, host_make(HOST_LISTENER, index), HOST_FIRST_FREE, false);
}

bool host_listens(int index)
{
    return listeners[index].open;
}

int host_backlog(int index)
{
    return listeners[index].count;
}

bool host_arrive(int index, int link)
{
    listener *one = &listeners[index];
    if (!one->open) return false;
    one->link[one->count++] = link;
    sim_event("connect", link, index);
    rules_arrived(link);
    return true;
}

void host_link_gone(int link)
{
    link_gone[link] = true;
}

bool host_link_is_gone(int link)
{
    return link_gone[link];
}

int __wrap_socket(int domain, int type, int protocol)
{
    (void)type, (void)protocol;
    host_enter(900);
    return host_open(domain == AF_UNIX ? HOST_STREAM : HOST_SOCKET, 0);
}

int __wrap_bind(int fd, const struct sockaddr *to, socklen_t size)
{
    (void)size;
    host_enter(700);
    host_named(fd, HOST_SOCKET)->port = ntohs(((const struct sockaddr_in *)(const void *)to)->sin_port);
    if (host_fault(4 * host.no_room)) {
        rules_open_fault();
        return host_fail(sim_one_in(2) ? EADDRINUSE : EACCES);
    }
    return 0;
}

/* Its place is that of its port: host.h's listeners in their order, then the second one. */
int __wrap_listen(int fd, int backlog)
{
    (void)backlog;
    host_object *one = host_named(fd, HOST_SOCKET);
    one->kind = HOST_LISTENER;
    one->index = one->port - 8000;
    listeners[one->index].open = true;
    return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    (void)fd, (void)level, (void)name, (void)value, (void)size;
    host_enter(300);
    return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *out, socklen_t *size)
{
    (void)host_named(fd, HOST_NONE);
    memset(out, 0, *size);
    out->sa_family = AF_INET;
    return 0;
}

int __wrap_getpeername(int fd, struct sockaddr *out, socklen_t *size)
{
    host_enter(300);
    const int link = host_named(fd, HOST_LINK)->index;
    if (link_gone[link]) return host_fail(ENOTCONN);
    memset(out, 0, *size);
    out->sa_family = AF_INET;
    return 0;
}

static int accept_fault(void)
{
    if (host_fault(sim.eintr)) return EINTR;
    if (host_fault(host.no_files)) return sim_one_in(2) ? EMFILE : ENFILE;
    return host_fault(host.no_room) ? ENOBUFS : 0;
}

int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
    host_enter(1500);
    listener *one = &listeners[host_named(fd, HOST_LISTENER)->index];
    const int fault = accept_fault();
    if (fault) return host_fail(fault);
    if (one->count == 0) return host_fail(EAGAIN);
    const int link = one->link[0];
    memmove(one->link, one->link + 1, (size_t)--one->count * sizeof one->link[0]);
    if (link_gone[link] && sim_one_in(2)) {
        rules_lost(link);
        return host_fail(ECONNABORTED);
    }
    const int at = link_object[link] = host_make(HOST_LINK, link);
    if (from) memset(from, 0, *size);
    sim_check(flags & SOCK_CLOEXEC, "a client's socket goes to the next worker by itself", link, flags);
    const int out = host_place(host_now(), at, HOST_FIRST_FREE, true);
    sim_event("accept", link, host_now()->pid);
    rules_accepted(link, host_now()->pid);
    return out;
}

/* --- channels ----------------------------------------------------------------------------------------------------- */

int __wrap_socketpair(int domain, int type, int protocol, int out[2])
{
    (void)domain, (void)protocol;
    host_enter(SIM_US);
    const bool closes = type & SOCK_CLOEXEC;
    if (host_fault(host.no_files)) {
        rules_open_fault();
        return host_fail(EMFILE);
    }
    const int index = channels_made++;
    if (index == CHANNELS) sim_wrong("more channels than the host has", index, 0);
    channels[index].ends = 3;
    for (int i = 0; i < 2; i++) {
        const int at = host_make(HOST_CHANNEL, index);
        host_objects[at].takes = i == 1;
        out[i] = host_place(host_now(), at, HOST_FIRST_FREE, closes);
    }
    return 0;
}

int host_channels(void)
{
    return channels_made;
}

void host_channel_name(int index, int row, bool admin)
{
    channel *one = &channels[index];
    sim_check(one->row < 0 || (one->row == row && one->admin == admin), "a channel is two workers'", index, row);
    one->row = row;
    one->admin = admin;
}

int host_channel_row(int index)
{
    return channels[index].row;
}

bool host_channel_is_admin(int index)
{
    return channels[index].admin;
}

int host_channel_sending(int row)
{
    int sending = 0;
    for (int i = 0; i < channels_made; i++)
        if (channels[i].row == row && !channels[i].admin) sending += channels[i].sending;
    return sending;
}

int host_channel_held(int index)
{
    return channels[index].count;
}

int host_channel_link(int index, int at)
{
    return channels[index].link[at];
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    int handed;
    (void)flags;
    const host_object *end = host_named(fd, HOST_CHANNEL);
    channel *one = &channels[end->index];
    one->sending++;
    host_enter(1800);
    one->sending--;
    sim_check(!end->takes, "a socket is given to the wrong end", fd, 0);
    memcpy(&handed, CMSG_DATA(CMSG_FIRSTHDR(message)), sizeof handed);
    const int link = host_named(handed, HOST_LINK)->index;
    if (host_fault(sim.eintr)) return host_fail(EINTR);
    if (!(one->ends & 2)) return host_fail(EPIPE);
    if (one->count >= host.messages) return host_fail(EAGAIN);
    if (host_fault(host.no_room)) return host_fail(sim_one_in(2) ? ENOBUFS : ETOOMANYREFS);
    host_objects[link_object[link]].refs++;
    one->link[one->count] = link;
    memcpy(&one->word[one->count++], message->msg_iov->iov_base, sizeof one->word[0]);
    sim_event(one->admin ? "give to second" : "give", link, one->row);
    rules_sent(link, end->index);
    return sizeof one->word[0];
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    host_enter(1500);
    const host_object *end = host_named(fd, HOST_CHANNEL);
    channel *one = &channels[end->index];
    sim_check(end->takes && flags & MSG_CMSG_CLOEXEC, "a socket is taken from the wrong end", fd, flags);
    if (host_fault(sim.eintr)) return host_fail(EINTR);
    if (one->count == 0) return one->ends & 1 ? host_fail(EAGAIN) : 0;
    const int link = one->link[0];
    memcpy(message->msg_iov->iov_base, &one->word[0], sizeof one->word[0]);
    one->count--;
    memmove(one->link, one->link + 1, (size_t)one->count * sizeof one->link[0]);
    memmove(one->word, one->word + 1, (size_t)one->count * sizeof one->word[0]);
    rules_received(link, end->index);
    message->msg_flags = 0;
    if (host_fault(host.no_files)) {
        sim_event("no descriptor for", link, host_now()->pid);
        message->msg_flags = MSG_CTRUNC;
        message->msg_controllen = 0;
        rules_lost(link);
        host_drop(link_object[link]);
        return sizeof one->word[0];
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int out = host_place(host_now(), link_object[link], HOST_FIRST_FREE, true);
    host_drop(link_object[link]); /* the message's */
    memcpy(CMSG_DATA(header), &out, sizeof out);
    sim_event("take", link, host_now()->pid);
    return sizeof one->word[0];
}

int __wrap_ioctl(int fd, unsigned long request, int *out)
{
    host_enter(300);
    sim_check(request == FIONREAD, "another request than for what a channel holds", fd, (int64_t)request);
    *out = channels[host_named(fd, HOST_CHANNEL)->index].count * (int)sizeof channels[0].word[0];
    return 0;
}

ssize_t __wrap_sendto(int fd, const void *bytes, size_t n, int flags, const struct sockaddr *to, socklen_t size)
{
    (void)flags, (void)to, (void)size;
    (void)host_named(fd, HOST_STREAM);
    host_enter(1500);
    if (host_now() == host_processes) rules_notified(bytes, n);
    return (ssize_t)n;
}
