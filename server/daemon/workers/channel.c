/* Owns       the form of a message: four bytes, and one descriptor beside them.
 * Interface  channel.h */
#include "daemon/workers/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

typedef union one_descriptor {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
} one_descriptor;

bool ks_channel_open(ks_channel *out)
{
    int ends[2];
    *out = (ks_channel){-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return false;
    *out = (ks_channel){.give = ends[0], .take = ends[1]};
    return true;
}

void ks_channel_close(ks_channel *channel)
{
    if (channel->give >= 0) close(channel->give);
    if (channel->take >= 0) close(channel->take);
    *channel = (ks_channel){-1, -1};
}

bool ks_channel_give(int end, int fd, uint32_t listener)
{
    one_descriptor control = {.bytes = {0}};
    struct iovec bytes = {.iov_base = &listener, .iov_len = sizeof listener};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return TEMP_FAILURE_RETRY(sendmsg(end, &message, MSG_NOSIGNAL | MSG_DONTWAIT)) == (ssize_t)sizeof listener;
}

bool ks_channel_give_counted(int end, int fd, uint32_t listener, ks_connections *of)
{
    ks_connections_give(of); /* before it may be taken */
    if (ks_channel_give(end, fd, listener)) return true;
    ks_connections_give_back(of);
    return false;
}

int ks_channel_take(int end, uint32_t *listener)
{
    one_descriptor control;
    struct iovec bytes = {.iov_base = listener, .iov_len = sizeof *listener};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    const ssize_t got = TEMP_FAILURE_RETRY(recvmsg(end, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
    if (got < 0) return -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int fd = -1;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    if (fd >= 0 && got == (ssize_t)sizeof *listener) return fd;
    if (fd >= 0) close(fd);
    errno = ECONNABORTED; /* a message without its socket: out of descriptors, the kernel drops it */
    return -1;
}

int ks_channel_holds(int end)
{
    int bytes = 0;
    return ioctl(end, FIONREAD, &bytes) == 0 ? bytes / (int)sizeof(uint32_t) : 0; /* of all messages */
}
