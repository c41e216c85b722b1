#include "daemon/commands.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "daemon/backends.h"
#include "daemon/listen.h"

static void print_device(const ks_backend *backend, ks_device *device)
{
    ks_device_info info = {0};
    backend->info(device, &info);
    if (info.gpu)
        printf("%s:%d  %s  %s  sm_%d  %zu MiB  driver %s\n", info.backend, info.index, info.name, info.uuid,
               info.capability, info.memory_bytes >> 20, info.driver);
    else
        printf("%s  %s\n", info.backend, info.name);
}

/* A line for each device of a backend: one, but of GPUs as many as there are. */
static ks_status list_devices(const ks_backend_row *row, const ks_config *config, ks_error *error)
{
    ks_limits limits = {
        .device_index = -1, .lanes = 1, .lane_bytes = 1 << 20, .workspace_bytes = config->workspace, .mapped_max = 0};
    const ks_backend *backend = row->backend();
    ks_device *device = NULL;
    if (!backend) printf("%s: not in this build\n", row->name);
    for (int i = 0; backend && i < (row->gpu ? 64 : 1); i++) {
        if (row->gpu) limits.device_index = i;
        const ks_status status = backend->open(&limits, &device, error);
        if (status != KS_OK && !row->gpu) return status;
        if (status != KS_OK && i == 0) printf("%s: none (%s)\n", row->name, error->text);
        if (status != KS_OK) break;
        print_device(backend, device);
        backend->close(&device);
    }
    return KS_OK;
}

int ks_command_list_devices(const ks_config *config)
{
    ks_error error = {0};
    for (const ks_backend_row *row = ks_backends(); row->name; row++) {
        if (list_devices(row, config, &error) == KS_OK) continue;
        fprintf(stderr, "kernserve: %s\n", error.text);
        return KS_EXIT_SYSTEM;
    }
    return KS_EXIT_OK;
}

typedef struct url_parts {
    char host[256], port[8], path[512];
} url_parts;

/* [http://]HOST[:PORT][/PATH] */
static bool cut_url(const char *url, url_parts *out)
{
    *out = (url_parts){.port = "80", .path = "/"};
    if (strncmp(url, "http://", 7) == 0) url += 7;
    const char *host = url[0] == '[' ? url + 1 : url;
    size_t n = strcspn(host, url[0] == '[' ? "]" : ":/");
    if (n == 0 || n >= sizeof out->host) return false;
    memcpy(out->host, host, n);
    const char *rest = host + n + (url[0] == '[' && host[n]);
    if (*rest == ':') {
        n = strspn(++rest, "0123456789");
        if (n == 0 || n >= sizeof out->port) return false;
        memcpy(out->port, rest, n);
        out->port[n] = 0;
        rest += n;
    }
    if (*rest && *rest != '/') return false;
    if (strlen(rest) >= sizeof out->path || strpbrk(rest, " \r\n")) return false;
    if (*rest) strcpy(out->path, rest);
    return true;
}

static int connect_to(const url_parts *parts)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(parts->host, parts->port, &hints, &found) != 0) return -1;
    int fd = -1;
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        const struct timeval limit = {.tv_sec = 2};
        fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* connect keeps to it as well */
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        if (connect(fd, at->ai_addr, at->ai_addrlen) == 0) break;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* true: the answer's status is 2xx. Closes fd. */
static bool ask(int fd, const char *host, const char *path)
{
    char text[1024];
    const int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host);
    size_t got = 0;
    ssize_t more = 0;
    if (TEMP_FAILURE_RETRY(send(fd, text, (size_t)n, MSG_NOSIGNAL)) == n)
        while (got < 12 && (more = TEMP_FAILURE_RETRY(recv(fd, text + got, sizeof text - 1 - got, 0))) > 0)
            got += (size_t)more;
    close(fd);
    text[got] = 0;
    if (got >= 12 && strncmp(text, "HTTP/1.", 7) == 0 && text[9] == '2') return true;
    fprintf(stderr, "kernserve: not ready: %.12s\n", got ? text : "no answer");
    return false;
}

static int ask_url(const char *url)
{
    url_parts parts;
    if (!cut_url(url, &parts)) {
        fprintf(stderr, "kernserve: '%.200s' is not http://HOST:PORT/PATH\n", url);
        return 1;
    }
    const int fd = connect_to(&parts);
    if (fd >= 0) return ask(fd, parts.host, parts.path) ? 0 : 1;
    fprintf(stderr, "kernserve: cannot connect to %s:%s\n", parts.host, parts.port);
    return 1;
}

int ks_command_healthcheck(const ks_config *config)
{
    enum { SECONDS = 2 };
    if (config->url) return ask_url(config->url);
    const char *path = config->health_live ? "/v2/health/live" : "/v2/health/ready", *address = config->admin_listen;
    for (int i = config->admin_tls ? 0 : -1; i < config->listen.count; i++) { /* it speaks no TLS */
        if (i >= 0) address = config->listen.item[i];
        const int fd = *address ? ks_listen_connect(address, SECONDS) : -1;
        if (fd >= 0) return ask(fd, "localhost", path) ? 0 : 1;
    }
    fprintf(stderr, "kernserve: nothing listens on %s\n", address);
    return 1;
}
