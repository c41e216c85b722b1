#include "http_bed.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http/http_parts.h"
#include "base/log.h"
#include "kernserve/backends.h"

enum {
    CONNECTIONS = 64,
    SIDE = 65536, /* bytes of a slot's side */
    QUIET = 3,    /* turns in which nothing happens, after which nothing will */
    TURNS = 20000 /* of one exchange, at most: what takes longer is stuck */
};

struct http_bed {
    bool plain;
    ks_config config;
    ks_device *device;
    ks_device_info device_info;
    ks_budget *budget;
    ks_metrics *metrics;
    ks_token_store tokens;
    _Atomic int state;
    ks_connections connections;
    _Atomic uint64_t device_faults;
    _Atomic int64_t tls_expiry_s;
    ks_api_view api;
    ks_engine *engine;
    ks_http *http;
    int wake_fd;
};

static void must(bool right, const char *what)
{
    if (right) return;
    fprintf(stderr, "http_bed: %s\n", what);
    abort();
}

/* The way to reach the library: the one place that knows it (http_switch.c). */
void http_switch_to_library(bool on);

static void open_daemon(http_bed *bed)
{
    char *arguments[] = {(char[]){"kernserve"},       (char[]){"--connections=64"},   (char[]){"--max-body=1M"},
                         (char[]){"--max-json=256k"}, (char[]){"--max-work=1000000"}, (char[]){"--compat-models"}};
    ks_command command;
    ks_error error;
    must(ks_config_load(6, arguments, &bed->config, &command, &error) == 0, "the configuration");
    bed->config.threads = bed->config.lanes = 1;
    const ks_limits limits = {.device_index = -1,
                              .lanes = 1,
                              .lane_bytes = 2 * SIDE,
                              .large_bytes = 4 << 20,
                              .workspace_bytes = 1 << 20,
                              .mapped_max = SIZE_MAX};
    must(ks_backend_cpu->open(&limits, &bed->device, &error) == KS_OK, "the backend");
    ks_backend_cpu->info(bed->device, &bed->device_info);
    bed->budget = ks_budget_open(64 << 20);
    bed->metrics = ks_metrics_open(2);
    must(bed->budget && bed->metrics, "memory");
    atomic_store(&bed->state, KS_STATE_READY);
    bed->api.config = &bed->config;
    bed->api.device_info = &bed->device_info;
    bed->api.budget = bed->budget;
    bed->api.metrics = bed->metrics;
    bed->api.ceilings = ks_ceilings_open(ks_backend_cpu, bed->device, 0);
    must(bed->api.ceilings != NULL, "memory");
    bed->api.shards = 1;
    bed->api.state = &bed->state;
    bed->api.device_faults = &bed->device_faults;
    bed->api.tls_expiry_s = &bed->tls_expiry_s;
}

http_bed *http_bed_open(bool plain)
{
    http_bed *bed = calloc(1, sizeof *bed);
    ks_error error;
    must(bed != NULL, "memory");
    static bool models;
    if (!models) {
        ks_models_init();
        ks_models_add_compat();
        ks_log_set_levels(0);
        models = true;
    }
    open_daemon(bed);
    bed->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const ks_engine_options engine = (ks_engine_options){.backend = ks_backend_cpu,
                                                         .device = bed->device,
                                                         .budget = bed->budget,
                                                         .lanes = 1,
                                                         .classes = 1,
                                                         .size_class = {{.side_bytes = SIDE, .count = CONNECTIONS}},
                                                         .plan_bytes = 1 << 20,
                                                         .queue_max = 128,
                                                         .stall_ns = 60000000000,
                                                         .wake_fd = bed->wake_fd};
    must(ks_engine_open(&engine, &bed->engine, &error) == KS_OK, "the engine");
    bed->api.engines[0] = bed->engine;
    const ks_http_options options = {.request = {.config = &bed->config,
                                                 .engine = bed->engine,
                                                 .metrics = ks_metrics_writer(bed->metrics, 0),
                                                 .budget = bed->budget,
                                                 .state = &bed->state,
                                                 .work_max = bed->device_info.work_max},
                                     .api = &bed->api,
                                     .tokens = &bed->tokens,
                                     .connections = &bed->connections,
                                     .wake_fd = bed->wake_fd};
    must(ks_http_open(&options, &bed->http, &error) == KS_OK, "the HTTP side");
    bed->plain = plain;
    return bed;
}

/* As shard.c has it. Whether anything happened. */
static bool turn(http_bed *bed, int64_t timeout_ns)
{
    bool happened = ks_http_turn(bed->http, timeout_ns);
    ks_engine_launch(bed->engine);
    ks_job *done = ks_engine_collect(bed->engine);
    ks_http_resume(bed->http, done);
    return happened || done != NULL || ks_engine_running(bed->engine) || ks_engine_ready(bed->engine);
}

static size_t drain(int fd, char *out, size_t most, bool *ended)
{
    size_t got = 0;
    char spare[4096];
    for (;;) {
        const size_t room = most - got;
        const ssize_t n = recv(fd, room ? out + got : spare, room ? room : sizeof spare, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            *ended |= n == 0 || errno != EAGAIN;
            return got;
        }
        if (room) got += (size_t)n;
    }
}

/* Until nothing happens any more, or the other side has closed. */
static size_t settle(http_bed *bed, int fd, char *out, size_t most, bool *ended)
{
    size_t got = 0;
    int quiet = 0;
    for (int turns = 0; quiet < QUIET && !*ended; turns++) {
        must(turns < TURNS, "a connection goes on and on");
        quiet = turn(bed, quiet ? 100000 : 0) ? 0 : quiet + 1;
        got += drain(fd, out + got, most - got, ended);
    }
    return got;
}

static void finish(http_bed *bed, int fd)
{
    close(fd);
    for (int turns = 0; ks_http_in_flight(bed->http) > 0; turns++) {
        must(turns < TURNS, "a request stays in flight behind its connection");
        turn(bed, 1000000);
    }
    for (int turns = 0; ks_http_connections(bed->http) > CONNECTIONS / 2; turns++) {
        must(turns < TURNS, "connections stay open behind their ends");
        turn(bed, 1000000);
    }
}

size_t http_bed_exchange(http_bed *bed, const uint8_t *bytes, size_t size, size_t step, char *out, size_t most)
{
    int pair[2];
    bool ended = false;
    size_t got = 0;
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0, "a socket pair");
    http_switch_to_library(!bed->plain);
    ks_connections_add(&bed->connections);
    ks_http_add(bed->http, &(ks_arrival){.fd = pair[1], .loopback = true});
    for (size_t at = 0; at < size && !ended;) {
        const size_t n = step < size - at ? step : size - at;
        const ssize_t sent = send(pair[0], bytes + at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) break;
        if (sent > 0) at += (size_t)sent;
        turn(bed, 0);
        got += drain(pair[0], out + got, most - got, &ended);
    }
    got += settle(bed, pair[0], out + got, most - got, &ended);
    if (!ended) {
        shutdown(pair[0], SHUT_WR);
        got += settle(bed, pair[0], out + got, most - got, &ended);
    }
    finish(bed, pair[0]);
    return got;
}
