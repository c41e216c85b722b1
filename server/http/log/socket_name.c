#include "http/log/socket_name.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

typedef union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
} address;

/* false: not an address of IP. */
static bool name_ip(const address *at, char out[KS_SOCKET_NAME_MAX])
{
    char text[INET6_ADDRSTRLEN];
    if (at->any.sa_family == AF_INET && inet_ntop(AF_INET, &at->v4.sin_addr, text, sizeof text))
        snprintf(out, KS_SOCKET_NAME_MAX, "%s:%u", text, ntohs(at->v4.sin_port));
    else if (at->any.sa_family == AF_INET6 && inet_ntop(AF_INET6, &at->v6.sin6_addr, text, sizeof text))
        snprintf(out, KS_SOCKET_NAME_MAX, "[%s]:%u", text, ntohs(at->v6.sin6_port));
    else
        return false;
    return true;
}

void ks_socket_name(int fd, char out[KS_SOCKET_NAME_MAX])
{
    address at = {.any.sa_family = AF_UNSPEC};
    socklen_t length = sizeof at;
    out[0] = '\0';
    if (getsockname(fd, &at.any, &length) != 0 || name_ip(&at, out)) return;
    snprintf(out, KS_SOCKET_NAME_MAX, "unix:%.*s", (int)sizeof at.local.sun_path, at.local.sun_path);
}

void ks_socket_peer_name(int fd, char out[KS_SOCKET_NAME_MAX])
{
    address at = {.any.sa_family = AF_UNSPEC};
    struct ucred user;
    socklen_t length = sizeof at, user_length = sizeof user;
    out[0] = '\0';
    if (getpeername(fd, &at.any, &length) != 0 || name_ip(&at, out)) return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &user_length) == 0)
        snprintf(out, KS_SOCKET_NAME_MAX, "unix:%u", (unsigned)user.uid);
}
