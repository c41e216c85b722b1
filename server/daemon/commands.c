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
#include "daemon/defaults.h"
#include "base/tokens.h"

static int refuse(int code, const ks_error *error)
{
    fprintf(stderr, "kernserve: %s\n", error->text);
    return code;
}

static void warn_of_variables(void)
{
    ks_unknown_variable variable;
    for (int at = 0; ks_config_next_unknown(&at, &variable);)
        fprintf(stderr, "kernserve: warning: no option has the variable %s%s%s\n", variable.name,
                *variable.nearest ? "; the nearest is " : "", variable.nearest);
}

int ks_command_check(const ks_config *config)
{
    ks_error error = {0};
    warn_of_variables();
    bool loopback, beyond = false;
    for (int i = 0; i <= config->listen.count; i++) {
        const char *address = i < config->listen.count ? config->listen.item[i] : config->admin_listen;
        if (!*address) continue;
        if (ks_listen_parse(address, &loopback, &error) != KS_OK) return refuse(KS_EXIT_CONFIG, &error);
        beyond = beyond || !loopback;
    }
    if (beyond && !*config->token_file && !config->allow_unauthenticated) {
        ks_fail(&error, KS_CONFIG, "listen: an address beyond loopback needs --token-file, or --allow-unauthenticated");
        return refuse(KS_EXIT_CONFIG, &error);
    }
    if (*config->token_file) {
        ks_tokens *tokens;
        const int code = ks_tokens_read(config->token_file, &tokens, &error);
        ks_tokens_release(&tokens);
        if (code != KS_EXIT_OK) return refuse(code, &error);
    }
    ks_config settled = *config;
    ks_engine_options engine;
    ks_limits limits;
    ks_memory memory;
    ks_defaults_memory(&memory);
    if (ks_defaults_config(&settled, &memory, false, &error) != KS_OK) return refuse(KS_EXIT_CONFIG, &error);
    ks_defaults_engine(&settled, &engine);
    if (ks_defaults_limits(&settled, &engine, &limits, &error) != KS_OK) return refuse(KS_EXIT_CONFIG, &error);
    puts("configuration accepted");
    return KS_EXIT_OK;
}

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

int ks_command_healthcheck(const char *url)
{
    url_parts parts;
    if (!cut_url(url ? url : "127.0.0.1:8000/v2/health/ready", &parts)) {
        fprintf(stderr, "kernserve: '%.200s' is not http://HOST:PORT/PATH\n", url);
        return 1;
    }
    const int fd = connect_to(&parts);
    if (fd < 0) {
        fprintf(stderr, "kernserve: cannot connect to %s:%s\n", parts.host, parts.port);
        return 1;
    }
    char text[1024];
    const int n =
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", parts.path, parts.host);
    size_t got = 0;
    ssize_t more = 0;
    if (TEMP_FAILURE_RETRY(send(fd, text, (size_t)n, MSG_NOSIGNAL)) == n)
        while (got < 12 && (more = TEMP_FAILURE_RETRY(recv(fd, text + got, sizeof text - 1 - got, 0))) > 0)
            got += (size_t)more;
    close(fd);
    text[got] = 0;
    if (got >= 12 && strncmp(text, "HTTP/1.", 7) == 0 && text[9] == '2') return 0;
    fprintf(stderr, "kernserve: not ready: %.12s\n", got ? text : "no answer");
    return 1;
}
