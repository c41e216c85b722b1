/* The start_steps, opening in order and closing in reverse: configuration, log, models, sockets, device, second listener,
 * shards, listener; then main waits (watch.c). What fails says one line and leaves with its exit code. */
#include <assert.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/admin.h"
#include "daemon/backends.h"
#include "base/clock.h"
#include "http/log/socket_name.h"
#include "http/tls/tls.h"
#include "observe/access_log.h"
#include "daemon/commands.h"
#include "daemon/early.h"
#include "daemon/listen.h"
#include "base/log.h"
#include "base/model.h"
#include "base/notify.h"
#include "daemon/selftest/selftest.h"
#include "daemon/defaults.h"
#include "daemon/supervise.h"
#include "daemon/tensors/preload.h"
#include "daemon/tensors/start.h"
#include "base/tokens.h"
#include "base/version.h"
#include "daemon/watch.h"
#include "daemon/workers/changes.h"
#include "daemon/workers/worker.h"

enum { SERVES_MAX = 1024 };

typedef struct ks_server {
    ks_config config;
    ks_config given; /* config, before the machine settled it; owns nothing */
    ks_daemon daemon;
    ks_listen_sockets sockets; /* until the listener takes them */
    char serves[SERVES_MAX];   /* the listeners, for the start line */
    int admin_fd;
    bool admin_loopback;
    ks_admin *admin;
    ks_keeper *keeper; /* of the store */
    ks_shard *shards[KS_SHARDS_MAX];
    ks_listener *listener;
    ks_publisher *publisher; /* of a worker */
    bool tokens_wanted;
    bool clear_text; /* a listener beyond loopback has no TLS */
    bool stopped;    /* asked to, before all was open */
} ks_server;

/* Says the line of a start that failed. */
static int fail(int code, const char *text)
{
    KS_LOG(KS_LOG_ERROR, "cannot start", KS_TEXT("error", text), KS_INT("exit", code));
    return code;
}

/* --- the process ----------------------------------------------------------------------------------------------------
 */

/* false: no memory. The C library loads what takes exceptions through its own functions when the first one comes, and ends
 * the process where it cannot: oneDNN throws through pthread_once when memory is out. So it is loaded now. */
static bool load_unwinder(void)
{
#ifdef __GLIBC__
    void *frame;
    return backtrace(&frame, 1) > 0;
#else
    return true;
#endif
}

static void defaults_process(void)
{
    /* A socket must never become descriptor 0, 1 or 2, where something may print. */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd) _exit(KS_EXIT_SYSTEM);
    signal(SIGPIPE, SIG_IGN);
    /* Memory of a request comes from the heap, not from a mapping of its own that is faulted in page by page each time.
     */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

/* --- sockets --------------------------------------------------------------------------------------------------------
 */

static bool is_loopback(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_storage space;
    } at;
    socklen_t length = sizeof at;
    if (getsockname(fd, &at.any, &length) != 0) return false;
    if (at.any.sa_family == AF_UNIX) return true;
    if (at.any.sa_family == AF_INET) return ntohl(at.v4.sin_addr.s_addr) >> 24 == 127;
    return at.any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&at.v6.sin6_addr);
}

static int port_of(int fd)
{
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    return getsockname(fd, (struct sockaddr *)&at, &length) == 0 && at.sin_family == AF_INET ? ntohs(at.sin_port) : 0;
}

static int open_socket(const char *address, int64_t socket_mode, int *fd, bool *loopback)
{
    ks_error error = {0};
    const int code = ks_listen_socket(address, (mode_t)socket_mode, fd, loopback, &error);
    return code == KS_EXIT_OK ? code : fail(code, error.text);
}

static int take_inherited(ks_server *server)
{
    const int inherited = ks_listen_inherited();
    ks_listen_sockets *sockets = &server->sockets;
    for (int i = 0; i < inherited; i++) {
        const int fd = 3 + i;
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        if (ks_listen_inherited_as(i, KS_LISTEN_ADMIN)) {
            if (server->admin_fd >= 0) return fail(KS_EXIT_CONFIG, "two passed sockets are named " KS_LISTEN_ADMIN);
            server->admin_fd = fd;
            server->admin_loopback = is_loopback(fd);
            continue;
        }
        sockets->fds[sockets->count] = fd;
        sockets->number[sockets->count] = i;
        sockets->tls[sockets->count] = ks_listen_inherited_as(i, KS_LISTEN_TLS);
        sockets->loopback[sockets->count++] = is_loopback(fd);
    }
    return KS_EXIT_OK;
}

static int open_list(ks_server *server, const ks_list *addresses, bool tls)
{
    ks_listen_sockets *sockets = &server->sockets;
    for (int i = 0; i < addresses->count; i++) {
        const int at = sockets->count;
        if (at == KS_LISTENERS_MAX) return fail(KS_EXIT_CONFIG, "listen: more data listeners than there is room for");
        const int code =
            open_socket(addresses->item[i], server->config.socket_mode, &sockets->fds[at], &sockets->loopback[at]);
        if (code != KS_EXIT_OK) return code;
        sockets->tls[at] = tls;
        sockets->count++;
    }
    return KS_EXIT_OK;
}

/* One listener more in the list of the start line. */
static void add_listener(char list[SERVES_MAX], const char *before, int fd, bool tls)
{
    char name[KS_SOCKET_NAME_MAX];
    const size_t n = strlen(list);
    ks_socket_name(fd, name);
    const bool local = strncmp(name, "unix:", 5) == 0;
    snprintf(list + n, SERVES_MAX - n, "%s%s%s%s", n ? ", " : "", before,
             tls     ? "https://"
             : local ? ""
                     : "http://",
             name);
}

/* What follows from the data listeners. */
static void look_at_sockets(ks_server *server)
{
    const ks_listen_sockets *sockets = &server->sockets;
    ks_worker_open_hand_over(&server->daemon, sockets);
    server->daemon.loopback_only = true;
    for (int i = 0; i < sockets->count; i++) {
        server->daemon.loopback_only = server->daemon.loopback_only && sockets->loopback[i];
        server->daemon.tls = server->daemon.tls || sockets->tls[i];
        server->clear_text = server->clear_text || !(sockets->tls[i] || sockets->loopback[i]);
        add_listener(server->serves, "", sockets->fds[i], sockets->tls[i]);
    }
}

/* Before the device is opened, which takes long: a port that is taken ends the start at once. They accept later. */
static int open_sockets(ks_server *server)
{
    const ks_config *config = &server->config;
    int code = take_inherited(server);
    if (code == KS_EXIT_OK && server->sockets.count == 0) {
        code = open_list(server, &config->listen, false);
        if (code == KS_EXIT_OK) code = open_list(server, &config->tls_listen, true);
    }
    if (code == KS_EXIT_OK && server->sockets.count == 0)
        code = fail(KS_EXIT_CONFIG, "listen: no address to listen on");
    if (code != KS_EXIT_OK) return code;
    look_at_sockets(server);
    if (server->admin_fd < 0 && *config->admin_listen)
        code = open_socket(config->admin_listen, config->socket_mode, &server->admin_fd, &server->admin_loopback);
    if (code != KS_EXIT_OK || server->admin_fd < 0) return code;
    server->clear_text = server->clear_text || !(config->admin_tls || server->admin_loopback);
    add_listener(server->serves, "metrics and health ", server->admin_fd, config->admin_tls);
    return KS_EXIT_OK;
}

/* The certificate, where a listener needs one. */
static int read_tls(ks_server *server)
{
    ks_error error = {0};
    ks_tls *tls = NULL;
    if (!server->daemon.tls && !(server->config.admin_tls && server->admin_fd >= 0)) return KS_EXIT_OK;
    const int code = ks_tls_read(&server->config, &tls, &error);
    if (code != KS_EXIT_OK) return fail(code, error.text);
    atomic_store(&server->daemon.tls_expiry_s, ks_tls_expires_s(tls));
    ks_tls_publish_take(tls);
    return KS_EXIT_OK;
}

/* Access: tokens, or this machine alone unless the operator says otherwise. */
static int read_access(ks_server *server)
{
    ks_error error = {0};
    ks_tokens *tokens = NULL;
    server->tokens_wanted = *server->config.token_file != 0;
    if (server->tokens_wanted) {
        const int code = ks_tokens_read(server->config.token_file, &tokens, &error);
        if (code != KS_EXIT_OK) return fail(code, error.text);
    }
    ks_tokens_publish_take(&server->daemon.tokens, tokens);
    if (server->tokens_wanted && server->clear_text)
        KS_LOG(KS_LOG_WARN, "TOKENS CROSS THE NETWORK IN CLEAR TEXT: a listener beyond loopback has no TLS",
               KS_TEXT("serves", server->serves));
    const bool beyond = !server->daemon.loopback_only || (server->admin_fd >= 0 && !server->admin_loopback);
    if (!beyond || server->tokens_wanted || server->config.allow_unauthenticated) return KS_EXIT_OK;
    return fail(KS_EXIT_CONFIG, "listen: an address beyond loopback needs --token-file, or --allow-unauthenticated");
}

/* --- the device -----------------------------------------------------------------------------------------------------
 */

static ks_status try_backend(ks_server *server, const ks_backend_row *row, const ks_config *given, ks_error *error)
{
    ks_limits limits;
    ks_memory memory;
    const ks_backend *backend = row->backend();
    if (!backend) return ks_fail(error, KS_DEVICE, "this build has no %s", row->title);
    server->config = *given;
    ks_defaults_memory(&memory);
    ks_status status = ks_defaults_config(&server->config, &memory, row->gpu, error);
    if (status != KS_OK) return status;
    ks_defaults_files(&server->config);
    ks_defaults_engine(&server->config, &server->daemon.engine);
    status = ks_defaults_limits(&server->config, &server->daemon.engine, &limits, error);
    if (status == KS_OK) status = backend->open(&limits, &server->daemon.device, error);
    if (status == KS_OK) server->daemon.backend = backend;
    return status;
}

/* The one that is asked for, or the first one that works. */
static int open_device(ks_server *server)
{
    const ks_config given = server->config;
    ks_error error;
    for (const ks_backend_row *row = ks_backends();; row++) {
        if (!ks_backend_is_chosen(row, given.backend)) continue;
        const ks_status status = try_backend(server, row, &given, &error);
        if (status == KS_OK) break;
        if (status == KS_CONFIG) return fail(KS_EXIT_CONFIG, error.text);
        const ks_backend_row *next = row + 1;
        if (given.backend != KS_BACKEND_AUTO || !next->name)
            return fail(row->gpu ? KS_EXIT_NO_DEVICE : KS_EXIT_SYSTEM, error.text);
        KS_LOG(KS_LOG_WARN, "NO GPU: kernels run on the CPU", KS_TEXT("reason", error.text),
               KS_TEXT("backend", next->name));
    }
    ks_daemon *daemon = &server->daemon;
    daemon->backend->info(daemon->device, &daemon->device_info);
    if (daemon->workers) daemon->device_info.index = daemon->row->device; /* it sees its own alone */
    daemon->engine.backend = daemon->backend;
    daemon->engine.device = daemon->device;
    daemon->engine.pinned = daemon->device_info.pins_memory;
    daemon->shards = (int)server->config.threads;
    return KS_EXIT_OK;
}

/* What tuning has found and will find: of all shards. */
static int open_tunes(ks_server *server)
{
    ks_daemon *daemon = &server->daemon;
    ks_error error = {0};
    const ks_device_info *info = &daemon->device_info;
    if (*info->library) KS_LOG(KS_LOG_INFO, "matmul library", KS_TEXT("library", info->library));
    if (server->config.autotune == KS_AUTOTUNE_OFF || !daemon->backend->tuning) return KS_EXIT_OK;
    if (ks_command_open_tunes(daemon->backend, daemon->device, server->config.tune_cache, &daemon->engine.tunes,
                              &error) != KS_OK)
        return fail(KS_EXIT_SYSTEM, error.text);
    daemon->engine.tune_live = server->config.autotune == KS_AUTOTUNE_BACKGROUND;
    return KS_EXIT_OK;
}

static void close_tunes(ks_server *server)
{
    if (!server->daemon.engine.tunes) return;
    ks_watch_save_tunes(&server->daemon, KS_S);
    ks_tunes_close(&server->daemon.engine.tunes);
}

/* --- shards ---------------------------------------------------------------------------------------------------------
 */

static int open_counters(ks_server *server)
{
    ks_daemon *daemon = &server->daemon;
    daemon->budget = ks_budget_open(server->config.inflight_bytes);
    daemon->metrics = ks_metrics_open(daemon->shards + 1); /* the last is the second listener's */
    if (server->config.timeline > 0) daemon->timeline = ks_timeline_open(daemon->shards, (int)server->config.timeline);
    ks_memory memory;
    ks_defaults_memory(&memory);
    daemon->catalogs = ks_catalogs_open(daemon->shards);
    daemon->ceilings = ks_ceilings_open(daemon->backend, daemon->device, memory.bytes / 8);
    daemon->engine.budget = daemon->budget;
    daemon->addresses = ks_addresses_open((int)server->config.connections + KS_ARRIVALS_MOST);
    daemon->room_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!daemon->budget || !daemon->metrics || (server->config.timeline > 0 && !daemon->timeline) ||
        !daemon->catalogs || !daemon->ceilings || !daemon->addresses || daemon->room_fd < 0)
        return fail(KS_EXIT_SYSTEM, "out of memory for counters");
    return KS_EXIT_OK;
}

static int open_exporter(ks_server *server)
{
    ks_error error = {0};
    const ks_status status = ks_otlp_open(server->daemon.shards, &server->daemon.otlp, &error);
    return status == KS_OK ? KS_EXIT_OK : fail(status == KS_CONFIG ? KS_EXIT_CONFIG : KS_EXIT_SYSTEM, error.text);
}

static int open_regions(ks_server *server)
{
    ks_daemon *daemon = &server->daemon;
    ks_error error = {0};
    if (!server->config.allow_client_shm) return KS_EXIT_OK;
    if (ks_regions_open(daemon->backend, daemon->device, &daemon->regions, &error) == KS_OK) return KS_EXIT_OK;
    return fail(KS_EXIT_SYSTEM, error.text);
}

static int open_store(ks_server *server)
{
    ks_error error = {0};
    if (ks_tensors_open(&server->daemon, &server->keeper, &error) == KS_OK) return KS_EXIT_OK;
    return fail(error.status == KS_CONFIG ? KS_EXIT_CONFIG : KS_EXIT_SYSTEM, error.text);
}

/* Once the second listener says that the daemon is warming: they may be many. */
static int load_tensors(ks_server *server)
{
    ks_error error = {0};
    if (server->config.tensors.count + server->config.model_repository.count == 0) return KS_EXIT_OK;
    atomic_store(&server->daemon.row->state, KS_STATE_WARMING);
    ks_status status = ks_preload(&server->daemon, &server->config.tensors, &error);
    if (status == KS_OK) status = ks_repository_start(&server->daemon, &error);
    return status == KS_OK ? KS_EXIT_OK : fail(KS_EXIT_CONFIG, error.text);
}

static int open_view(ks_server *server)
{
    ks_daemon_fill_api(&server->daemon);
    return KS_EXIT_OK;
}

static int open_admin(ks_server *server)
{
    ks_error error = {0};
    if (server->admin_fd < 0) return KS_EXIT_OK;
    ks_shard_metrics *metrics = ks_metrics_writer(server->daemon.metrics, server->daemon.shards);
    const int fd = server->admin_fd;
    server->admin_fd = -1;
    if (ks_admin_open(&server->daemon, metrics, fd, server->admin_loopback, &server->admin, &error) != KS_OK)
        return fail(KS_EXIT_SYSTEM, error.text);
    return KS_EXIT_OK;
}

/* Behind the second listener, whose board belongs to what is published. */
static int open_publisher(ks_server *server)
{
    ks_error error = {0};
    if (ks_publisher_open(&server->daemon, &server->publisher, &error) == KS_OK) return KS_EXIT_OK;
    return fail(KS_EXIT_SYSTEM, error.text);
}

static int open_shards(ks_server *server)
{
    ks_daemon *daemon = &server->daemon;
    ks_error error = {0};
    atomic_store(&daemon->row->state, KS_STATE_WARMING);
    for (int i = 0; i < daemon->shards; i++) {
        char text[96];
        snprintf(text, sizeof text, "STATUS=Opening shard %d of %d\nEXTEND_TIMEOUT_USEC=60000000", i + 1,
                 daemon->shards);
        ks_notify(text);
        const ks_status status = ks_shard_open(daemon, i, &server->shards[i], &error);
        if (status == KS_OK) continue;
        server->shards[i] = NULL;
        return fail(status == KS_DEVICE                          ? KS_EXIT_NO_DEVICE
                    : status == KS_MEMORY || status == KS_SYSTEM ? KS_EXIT_SYSTEM
                                                                 : KS_EXIT_CONFIG,
                    error.text);
    }
    return KS_EXIT_OK;
}

static int open_listener(ks_server *server)
{
    ks_error error = {0};
    if (ks_listener_open(&server->daemon, server->shards, &server->sockets, &server->listener, &error) == KS_OK) {
        server->sockets.count = 0;
        return KS_EXIT_OK;
    }
    return fail(KS_EXIT_SYSTEM, error.text);
}

static int prepare_changes(ks_server *server)
{
    ks_error error = {0};
    return ks_changes_prepare(&server->daemon, &error) == KS_OK ? KS_EXIT_OK : fail(KS_EXIT_SYSTEM, error.text);
}

static int open_changes(ks_server *server)
{
    ks_error error = {0};
    if (ks_changes_open(&server->daemon, ks_watch_stop_asked, &error) != KS_OK) return fail(KS_EXIT_SYSTEM, error.text);
    server->stopped =
        !atomic_load(&server->daemon.row->accepts); /* asked to before it had joined: no client has come */
    return KS_EXIT_OK;
}

static void say_ready(const ks_server *server, int64_t begun_ns)
{
    const ks_config *config = &server->config;
    const ks_device_info *info = &server->daemon.device_info;
    uint64_t pinned = 0;
    for (int i = 0; i < server->daemon.engine.classes; i++)
        pinned += 2 * (uint64_t)server->daemon.engine.size_class[i].side_bytes *
                  (uint64_t)server->daemon.engine.size_class[i].count * (uint64_t)server->daemon.shards;
    KS_LOG(KS_LOG_DEBUG, "limits", KS_INT("lanes", config->lanes), KS_INT("slot_bytes", pinned),
           KS_INT("mapped_max", info->mapped_max < INT64_MAX ? info->mapped_max : INT64_MAX),
           KS_INT("max_body", config->max_body), KS_INT("max_output", config->max_output),
           KS_INT("max_json", config->max_json), KS_INT("max_work", config->max_work),
           KS_INT("inflight_bytes", config->inflight_bytes), KS_INT("plan_cache", config->plan_cache),
           KS_INT("connections", config->connections), KS_INT("queue", config->queue),
           KS_INT("request_timeout_ms", config->request_timeout / KS_MS));
    KS_LOG(KS_LOG_INFO, "ready", KS_TEXT("backend", server->daemon.backend->name), KS_TEXT("device", info->name),
           KS_INT("shards", server->daemon.shards), KS_INT("start_ms", (ks_now_ns() - begun_ns) / KS_MS),
           KS_TEXT("serves", server->serves));
}

/* --- the server ------------------------------------------------------------------------------------------------------
 */

static int open_all(ks_server *server)
{
    typedef int open_fn(ks_server *);
    static open_fn *const start_steps[] = {open_sockets,  read_access,    read_tls,     open_device,     open_tunes,
                                           open_counters, open_exporter,  open_regions, open_store,      open_view,
                                           open_admin,    open_publisher, load_tensors, prepare_changes, open_shards,
                                           open_listener, open_changes};
    for (size_t i = 0; i < sizeof start_steps / sizeof start_steps[0]; i++) {
        server->stopped = ks_watch_stop_asked();
        if (server->stopped) return KS_EXIT_OK;
        const int code = start_steps[i](server);
        if (code != KS_EXIT_OK) return code;
    }
    return KS_EXIT_OK;
}

/* What is open, in reverse. Shards are open here only when the start failed. */
static void close_all(ks_server *server)
{
    ks_daemon *daemon = &server->daemon;
    ks_listener_close(&server->listener);
    for (int i = 0; i < KS_SHARDS_MAX; i++) {
        if (!server->shards[i]) continue;
        ks_shard_drain(server->shards[i], ks_now_ns());
        ks_shard_join(&server->shards[i]);
    }
    close_tunes(server);
    ks_changes_close(daemon);
    ks_publisher_close(&server->publisher);
    ks_admin_close(&server->admin);
    ks_tensors_close(daemon, &server->keeper);
    if (server->admin_fd >= 0) ks_listen_close(server->admin_fd);
    for (int i = 0; i < server->sockets.count; i++) ks_listen_close(server->sockets.fds[i]);
    ks_metrics_close(&daemon->metrics);
    ks_otlp_close(&daemon->otlp);
    ks_timeline_close(&daemon->timeline);
    ks_catalogs_close(&daemon->catalogs);
    ks_ceilings_close(&daemon->ceilings);
    ks_addresses_close(&daemon->addresses);
    if (daemon->room_fd >= 0) close(daemon->room_fd);
    ks_regions_close(&daemon->regions);
    ks_tokens_publish_take(&daemon->tokens, NULL);
    ks_tls_publish_take(NULL);
    if (daemon->budget) ks_budget_close(&daemon->budget);
    if (daemon->device) daemon->backend->close(&daemon->device);
    ks_worker_leave(daemon);
}

/* They do nothing, and were meant to. */
static void warn_of_variables(void)
{
    ks_unknown_variable variable;
    for (int at = 0; ks_config_next_unknown(&at, &variable);)
        KS_LOG(KS_LOG_WARN, "no option has this variable", KS_TEXT("variable", variable.name),
               KS_TEXT("nearest", variable.nearest));
}

static int serve(ks_server *server, int argc, char **argv)
{
    const int64_t begun_ns = ks_now_ns();
    warn_of_variables();
    server->given = server->config;
    server->daemon.config = &server->config;
    server->admin_fd = server->daemon.room_fd = -1;
    if (!ks_worker_join(&server->daemon, &server->config))
        return fail(KS_EXIT_SYSTEM, "the supervisor's table of workers cannot be had");
    pthread_mutex_init(&server->daemon.tokens.lock, NULL);
    ks_models_init();
    if (server->config.compat_models) ks_models_add_compat();
    int code = open_all(server);
    ks_early_end();
    if (server->stopped) KS_LOG(KS_LOG_INFO, "stopped while starting", KS_INT("exit", code));
    if (code == KS_EXIT_OK && !server->stopped) {
        const ks_watched watched = {.daemon = &server->daemon,
                                    .shards = server->shards,
                                    .listener = &server->listener,
                                    .argc = argc,
                                    .argv = argv,
                                    .given = &server->given,
                                    .tokens_wanted = server->tokens_wanted};
        int warming = KS_STATE_WARMING; /* a device lost meanwhile stays failed */
        atomic_compare_exchange_strong(&server->daemon.row->state, &warming, KS_STATE_READY);
        if (server->config.self_test) {
            code = ks_selftest(&server->daemon, port_of(server->sockets.fds[0]));
        } else {
            say_ready(server, begun_ns);
            ks_notify("READY=1\nSTATUS=Serving");
            ks_watch(&watched);
        }
        const int drained = ks_watch_drain(&watched);
        if (code == KS_EXIT_OK) code = drained;
    }
    close_all(server);
    ks_access_look(INT64_MAX); /* what its last second has left out */
    return code;
}

int main(int argc, char **argv)
{
    static ks_server server;
    ks_error error = {0};
    ks_command command;
    defaults_process();
    if (!load_unwinder()) {
        fprintf(stderr, "kernserve: out of memory\n");
        ks_early_end();
        return KS_EXIT_SYSTEM;
    }
    int code = ks_config_load(argc, argv, &server.config, &command, &error);
    if (code != KS_EXIT_OK) {
        fprintf(stderr, "kernserve: %s\n", error.text);
        ks_early_end();
        return command == KS_COMMAND_HEALTHCHECK && code != KS_EXIT_USAGE ? 1 : code;
    }
    const bool tests = command == KS_COMMAND_SELF_TEST;
    if (tests) ks_selftest_config(&server.config);
    if (command != KS_COMMAND_SERVE && !tests) {
        ks_early_release_signals();
        code = ks_command_run(command, &server.config);
    } else if ((server.config.supervise || *server.config.devices) && !tests) {
        code = ks_supervise(&server.config, argc, argv);
    } else if (!ks_log_open(server.config.log_level, server.config.log_format)) {
        fprintf(stderr, "kernserve: out of memory for the log\n");
        code = KS_EXIT_SYSTEM;
    } else {
        code = serve(&server, argc, argv);
        ks_log_close();
    }
    ks_config_free(&server.config);
    ks_early_end();
    return code;
}
