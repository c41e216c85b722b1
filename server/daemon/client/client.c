#include "daemon/client/client.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static bool cut(const char *url, const char *path, ks_client_url *out)
{
    *out = (ks_client_url){.port = "80"};
    snprintf(out->path, sizeof out->path, "%s", path);
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

bool ks_client_cut(const char *url, const char *path, ks_client_url *out)
{
    if (cut(url, path, out)) return true;
    fprintf(stderr, "kernserve: '%.200s' is not http://HOST:PORT/PATH\n", url);
    return false;
}

static int connect_to(const ks_client_url *url)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(url->host, url->port, &hints, &found) != 0) return -1;
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

int ks_client_connect(const ks_client_url *url)
{
    const int fd = connect_to(url);
    if (fd < 0) fprintf(stderr, "kernserve: cannot connect to %s:%s\n", url->host, url->port);
    return fd;
}

int ks_client_ask(int fd, const ks_client_request *request, char *text, size_t cap)
{
    char head[2048];
    const int n = snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s%s%s%s%s%s\r\n",
                           request->path, request->host, request->accept ? "Accept: " : "",
                           request->accept ? request->accept : "", request->accept ? "\r\n" : "",
                           request->token ? "Authorization: Bearer " : "", request->token ? request->token : "",
                           request->token ? "\r\n" : "");
    size_t got = 0;
    ssize_t more = 0;
    if (n < (int)sizeof head && TEMP_FAILURE_RETRY(send(fd, head, (size_t)n, MSG_NOSIGNAL)) == n)
        while (got < cap - 1 && (more = TEMP_FAILURE_RETRY(recv(fd, text + got, cap - 1 - got, 0))) > 0)
            got += (size_t)more;
    close(fd);
    text[got] = 0;
    return got >= 12 && strncmp(text, "HTTP/1.", 7) == 0 ? atoi(text + 9) : 0;
}
