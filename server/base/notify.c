#include "base/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void ks_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@')) return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') address.sun_path[0] = 0; /* abstract */
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    (void)!TEMP_FAILURE_RETRY(sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, size));
    close(fd);
}

int64_t ks_notify_watchdog_ns(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && atol(pid) != (long)getpid())) return 0;
    const long long interval = atoll(usec);
    return interval > 0 && interval < INT64_MAX / 1000 ? interval * 1000 / 2 : 0;
}
