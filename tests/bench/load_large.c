/* Sends one request again and again over several connections, as fast as answers come: for bodies of which a load
 * generator that looks at every byte would be what is measured. Answers are thrown away in the kernel (MSG_TRUNC);
 * their status and length are checked.
 *
 * Usage    load_large PORT REQUEST_FILE CONNECTIONS SECONDS   the file: head and body, as they go out
 * Prints   the line of JSON that the scripts in tests/load print
 * Threads  one for each connection */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 16384, TIMES_MAX = 1 << 18, PIECE = 1 << 20 };

struct client {
    pthread_t thread;
    uint32_t *times_us; /* TIMES_MAX */
    size_t requests, errors;
};

static struct {
    unsigned short port;
    const char *request;
    size_t length;
    int64_t end_ns;
} load;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int dial(void)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(load.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval limit = {.tv_sec = 30};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address)) {
        perror("load_large: connect");
        exit(69);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    return fd;
}

static int send_all(int fd)
{
    for (size_t sent = 0; sent < load.length;) {
        const ssize_t n = send(fd, load.request + sent, load.length - sent, MSG_NOSIGNAL);
        if (n <= 0) return -1;
        sent += (size_t)n;
    }
    return 0;
}

/* Reads an answer to its end; 0 when it is a 200 of the length that it says. */
static int swallow(int fd)
{
    char head[HEAD_MAX + 1];
    size_t got = 0;
    const char *end = NULL;
    while (!end) {
        const ssize_t n = got < HEAD_MAX ? recv(fd, head + got, HEAD_MAX - got, 0) : 0;
        if (n <= 0) return -1;
        got += (size_t)n;
        head[got] = 0;
        end = strstr(head, "\r\n\r\n");
    }
    const char *length = strcasestr(head, "\r\nContent-Length:");
    if (strncmp(head, "HTTP/1.1 200 ", 13) != 0 || !length || length > end) return -1;
    size_t left = strtoul(length + 17, NULL, 10);
    const size_t here = got - (size_t)(end + 4 - head);
    if (here > left) return -1;
    left -= here;
    while (left) {
        const ssize_t n = recv(fd, NULL, left < PIECE ? left : PIECE, MSG_TRUNC);
        if (n <= 0) return -1;
        left -= (size_t)n;
    }
    return 0;
}

static void *run(void *argument)
{
    struct client *client = argument;
    const int fd = dial();
    while (client->requests < TIMES_MAX) {
        const int64_t begun = now_ns();
        if (begun >= load.end_ns) break;
        if (send_all(fd) || swallow(fd)) {
            client->errors++;
            break;
        }
        client->times_us[client->requests++] = (uint32_t)((now_ns() - begun) / 1000);
    }
    close(fd);
    return NULL;
}

static void read_request(const char *path)
{
    struct stat info;
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &info)) {
        perror(path);
        exit(66);
    }
    load.length = (size_t)info.st_size;
    load.request = mmap(NULL, load.length, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (load.request == MAP_FAILED) {
        perror(path);
        exit(66);
    }
    close(fd);
}

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void report(const struct client *clients, unsigned count, double seconds)
{
    size_t requests = 0, errors = 0;
    for (unsigned i = 0; i < count; i++) {
        requests += clients[i].requests;
        errors += clients[i].errors;
    }
    uint32_t *times = calloc(requests + 1, sizeof *times), *at = times;
    if (!times) exit(71);
    for (unsigned i = 0; i < count; i++) {
        memcpy(at, clients[i].times_us, clients[i].requests * sizeof *at);
        at += clients[i].requests;
    }
    qsort(times, requests, sizeof *times, by_value);
    const size_t last = requests ? requests - 1 : 0;
    printf(
        "{\"requests\":%zu,\"seconds\":%.3f,\"rate\":%.2f,\"errors\":%zu,\"p50_us\":%u,\"p99_us\":%u,\"max_us\":%u}\n",
        requests, seconds, (double)requests / seconds, errors, times[last / 2], times[last * 99 / 100], times[last]);
    free(times);
}

int main(int argc, char **argv)
{
    const int count = argc == 5 ? atoi(argv[3]) : 0;
    if (count < 1) {
        fprintf(stderr, "usage: load_large PORT REQUEST_FILE CONNECTIONS SECONDS\n");
        return 64;
    }
    struct client *clients = calloc((size_t)count, sizeof *clients);
    load.port = (unsigned short)atoi(argv[1]);
    read_request(argv[2]);
    const int64_t begun = now_ns();
    load.end_ns = begun + (int64_t)(atof(argv[4]) * 1e9);
    for (int i = 0; i < count; i++) {
        if (!clients || !(clients[i].times_us = calloc(TIMES_MAX, sizeof(uint32_t))) ||
            pthread_create(&clients[i].thread, NULL, run, &clients[i])) {
            fprintf(stderr, "load_large: no memory or no thread\n");
            return 71;
        }
    }
    for (int i = 0; i < count; i++) pthread_join(clients[i].thread, NULL);
    report(clients, (unsigned)count, (double)(now_ns() - begun) / 1e9);
    for (int i = 0; i < count; i++) free(clients[i].times_us);
    free(clients);
    return 0;
}
