/* Clients, as cheap as they can be made, because they share the host with what they measure: a request is one send, one
 * wait and one receive; bytes beyond a response's first kilobytes are dropped in the kernel (MSG_TRUNC). Events are
 * edge-triggered and never changed. A thread owns its connections while ks_load_run runs. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/selftest/parts.h"

enum { EVENTS = 128, HEAD_MAX = 8192, DROP_BYTES = 1 << 20, SAMPLES_MAX = 1 << 18, GRACE_NS = 1000000000 };

typedef struct client {
    int fd;
    bool busy;
    size_t sent, got, need; /* need 0: the response's head is not complete */
    int64_t begun_ns;
    char head[HEAD_MAX + 1];
} client;

typedef struct worker {
    ks_load *load;
    pthread_t thread;
    int epoll, first, count; /* of the load's clients */
    int64_t until_ns, ended_ns;
    int busy;
    uint64_t requests;
    float *us;
    size_t samples;
    unsigned char *dropped;
    ks_error error;
} worker;

struct ks_load {
    int threads, connections;
    unsigned char *request;
    size_t request_bytes;
    _Atomic size_t response_bytes;
    client *clients;
    worker *workers;
};

/* --- samples ------------------------------------------------------------------------------------------------------ */

bool ks_samples_add(ks_test_samples *samples, const float *us, size_t count)
{
    if (samples->count + count > samples->cap) {
        const size_t cap = 2 * (samples->count + count);
        float *grown = realloc(samples->us, cap * sizeof *grown);
        if (grown == NULL) return false;
        samples->us = grown;
        samples->cap = cap;
    }
    if (count) memcpy(samples->us + samples->count, us, count * sizeof *us);
    samples->count += count;
    return true;
}

static int compare(const void *left, const void *right)
{
    const float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

double ks_samples_quantile(ks_test_samples *samples, double q)
{
    if (samples->count == 0) return 0;
    qsort(samples->us, samples->count, sizeof *samples->us, compare);
    return (double)samples->us[(size_t)(q * (double)(samples->count - 1))];
}

void ks_samples_free(ks_test_samples *samples)
{
    free(samples->us);
    memset(samples, 0, sizeof *samples);
}

/* --- one request -------------------------------------------------------------------------------------------------- */

static bool wrong(worker *w, const char *what)
{
    ks_fail(&w->error, KS_DEVICE, "a request of the self-test: %s", what);
    return false;
}

/* false: the peer broke off. What does not fit the socket waits for an event. */
static bool push(worker *w, client *c)
{
    const ks_load *load = w->load;
    while (c->sent < load->request_bytes) {
        const ssize_t n =
            send(c->fd, load->request + c->sent, load->request_bytes - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) return errno == EAGAIN || errno == EINTR || wrong(w, strerror(errno));
        c->sent += (size_t)n;
    }
    return true;
}

/* The response's status and length, once its head is complete. */
static bool read_head(worker *w, client *c)
{
    c->head[c->got] = 0;
    const char *end = strstr(c->head, "\r\n\r\n");
    if (end == NULL) return c->got < HEAD_MAX || wrong(w, "an answer's head is too long");
    if (strncmp(c->head, "HTTP/1.1 200 ", 13) != 0) {
        c->head[strcspn(c->head, "\r\n")] = 0;
        ks_fail(&w->error, KS_DEVICE, "a request of the self-test was answered '%.80s'", c->head);
        return false;
    }
    const char *length = strcasestr(c->head, "\r\nContent-Length: ");
    if (length == NULL || length > end) return wrong(w, "an answer without a length");
    c->need = (size_t)(end + 4 - c->head) + strtoul(length + 18, NULL, 10);
    return true;
}

/* One piece of the response. */
static ssize_t pull_piece(worker *w, client *c)
{
    if (c->need == 0) return recv(c->fd, c->head + c->got, HEAD_MAX - c->got, MSG_DONTWAIT);
    const size_t left = c->need - c->got;
    return recv(c->fd, w->dropped, left < DROP_BYTES ? left : DROP_BYTES, MSG_DONTWAIT | MSG_TRUNC);
}

static bool pull(worker *w, client *c)
{
    while (c->need == 0 || c->got < c->need) {
        const ssize_t n = pull_piece(w, c);
        if (n < 0) return errno == EAGAIN || errno == EINTR || wrong(w, strerror(errno));
        if (n == 0) return wrong(w, "the connection was closed");
        c->got += (size_t)n;
        if (c->need == 0 && !read_head(w, c)) return false;
    }
    return true;
}

static bool begin(worker *w, client *c, int64_t now_ns)
{
    c->busy = true;
    c->sent = c->got = c->need = 0;
    c->begun_ns = now_ns;
    return push(w, c);
}

/* Something happened at the socket. */
static bool step(worker *w, client *c)
{
    if (!c->busy) return true;
    if (c->sent < w->load->request_bytes && !push(w, c)) return false;
    if (!pull(w, c)) return false;
    if (c->need == 0 || c->got < c->need) return true;
    if (c->sent < w->load->request_bytes) return wrong(w, "an answer came before its request had ended");
    const int64_t now_ns = ks_now_ns();
    if (w->samples < SAMPLES_MAX) w->us[w->samples++] = (float)(now_ns - c->begun_ns) / 1e3f;
    w->requests++;
    w->ended_ns = now_ns;
    atomic_store_explicit(&w->load->response_bytes, c->need, memory_order_relaxed);
    if (now_ns < w->until_ns) return begin(w, c, now_ns);
    c->busy = false;
    w->busy--;
    return true;
}

static void *work(void *context)
{
    worker *w = context;
    client *clients = w->load->clients + w->first;
    struct epoll_event events[EVENTS];
    w->busy = w->count;
    for (int i = 0; i < w->count; i++)
        if (!begin(w, &clients[i], ks_now_ns())) return NULL;
    while (w->busy > 0) {
        const int count = epoll_wait(w->epoll, events, EVENTS, 100);
        for (int i = 0; i < count; i++)
            if (!step(w, events[i].data.ptr)) return NULL;
        if (count <= 0 && ks_now_ns() - w->until_ns > 10 * (int64_t)GRACE_NS) {
            wrong(w, "no answer for 10 s");
            return NULL;
        }
    }
    return NULL;
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

ks_status ks_load_run(ks_load *load, int64_t for_ns, ks_test_samples *samples, ks_error *error)
{
    const int64_t begun_ns = ks_now_ns();
    int64_t ended_ns = begun_ns;
    ks_status status = KS_OK;
    int started = 0;
    for (; started < load->threads && status == KS_OK; started++) {
        worker *w = &load->workers[started];
        w->until_ns = begun_ns + for_ns;
        w->requests = 0;
        w->samples = 0;
        if (pthread_create(&w->thread, NULL, work, w) == 0) continue;
        status = ks_fail(error, KS_SYSTEM, "cannot start a thread of the load");
        break;
    }
    for (int i = 0; i < started; i++) {
        worker *w = &load->workers[i];
        pthread_join(w->thread, NULL);
        if (status == KS_OK && w->error.status != KS_OK) status = ks_fail(error, w->error.status, "%s", w->error.text);
        if (status == KS_OK && !ks_samples_add(samples, w->us, w->samples))
            status = ks_fail(error, KS_MEMORY, "no memory for the latencies");
        samples->requests += w->requests;
        if (w->ended_ns > ended_ns) ended_ns = w->ended_ns;
    }
    samples->seconds += (double)(ended_ns - begun_ns) / 1e9;
    return status;
}

size_t ks_load_request_bytes(const ks_load *load)
{
    return load->request_bytes;
}

size_t ks_load_response_bytes(const ks_load *load)
{
    return atomic_load(&((ks_load *)load)->response_bytes);
}

/* --- open and close ----------------------------------------------------------------------------------------------- */

/* Rows of KS_TEST_COLS numbers, uneven on purpose. */
static ks_status make_request(ks_load *load, size_t bytes, ks_error *error)
{
    char head[256];
    const int n = snprintf(head, sizeof head,
                           "POST /v2/models/softmax/infer?shape=%zu,%d&datatype=FP32 HTTP/1.1\r\nHost: localhost\r\n"
                           "Content-Length: %zu\r\n\r\n",
                           bytes / KS_TEST_ROW, (int)KS_TEST_COLS, bytes);
    load->request_bytes = (size_t)n + bytes;
    load->request = malloc(load->request_bytes);
    if (load->request == NULL) return ks_fail(error, KS_MEMORY, "no memory for a request of %zu bytes", bytes);
    memcpy(load->request, head, (size_t)n);
    for (size_t i = 0; i < bytes / 4; i++) {
        const float value = (float)(i * 7919 % 2003) / 200;
        memcpy(load->request + n + i * 4, &value, 4);
    }
    return KS_OK;
}

static ks_status dial(ks_load *load, int i, int port, ks_error *error)
{
    const int on = 1;
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    client *c = &load->clients[i];
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        return ks_fail(error, KS_SYSTEM, "cannot connect to the port of the self-test: %s", strerror(errno));
    worker *w = &load->workers[i * load->threads / load->connections];
    if (w->count++ == 0) w->first = i;
    return epoll_ctl(w->epoll, EPOLL_CTL_ADD, c->fd, &event) == 0
               ? KS_OK
               : ks_fail(error, KS_SYSTEM, "cannot watch a connection of the self-test: %s", strerror(errno));
}

static ks_status open_worker(ks_load *load, worker *w, ks_error *error)
{
    w->load = load;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->us = malloc(SAMPLES_MAX * sizeof *w->us);
    w->dropped = malloc(DROP_BYTES);
    if (w->epoll < 0 || w->us == NULL || w->dropped == NULL)
        return ks_fail(error, KS_MEMORY, "no memory for a thread of the load");
    return KS_OK;
}

ks_status ks_load_open(int port, int threads, int connections, size_t bytes, ks_load **out, ks_error *error)
{
    ks_load *load = calloc(1, sizeof *load);
    if (load == NULL) return ks_fail(error, KS_MEMORY, "no memory for a load");
    load->connections = connections;
    load->threads = threads < connections ? threads : connections;
    load->clients = calloc((size_t)connections, sizeof *load->clients);
    load->workers = calloc((size_t)load->threads, sizeof *load->workers);
    ks_status status = load->clients && load->workers ? make_request(load, bytes, error)
                                                      : ks_fail(error, KS_MEMORY, "no memory for a load's clients");
    for (int i = 0; load->clients && i < connections; i++) load->clients[i].fd = -1;
    for (int i = 0; load->workers && i < load->threads; i++) load->workers[i].epoll = -1;
    for (int i = 0; status == KS_OK && i < load->threads; i++) status = open_worker(load, &load->workers[i], error);
    for (int i = 0; status == KS_OK && i < connections; i++) status = dial(load, i, port, error);
    if (status != KS_OK) ks_load_close(&load);
    *out = load;
    return status;
}

void ks_load_close(ks_load **pointer)
{
    ks_load *load = *pointer;
    *pointer = NULL;
    if (load == NULL) return;
    for (int i = 0; load->clients && i < load->connections; i++)
        if (load->clients[i].fd >= 0) close(load->clients[i].fd);
    for (int i = 0; load->workers && i < load->threads; i++) {
        if (load->workers[i].epoll >= 0) close(load->workers[i].epoll);
        free(load->workers[i].us);
        free(load->workers[i].dropped);
    }
    free(load->clients);
    free(load->workers);
    free(load->request);
    free(load);
}
