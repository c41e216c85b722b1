/* What a worker does, from its exec to its end: its table and its channels by worker.c, its listener by listen.c; in the place of main.c
 * and of its shards, which hold connections for a while, this file. Some lives are no good ones.
 *
 * Interface  host.h; threads and shards, as the linker names them. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/workers/channel.h"
#include "daemon/workers/worker.h"
#include "observe/metrics.h"
#include "sim/supervisor/host.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the linker's names */

enum { STOPS = 1u << SIGTERM | 1u << SIGINT, HANG_UP = 1u << SIGHUP, TICK_MS = 50 };

typedef enum fate { GOOD, DIES_EARLY, HANGS_EARLY, DIES_LATE, HANGS_LATE, LOSES_DEVICE, FATES } fate;

typedef struct held {
    int fd; /* -1: none */
    bool data;
    int64_t ends_ns, goes_ns; /* closed; handed over */
} held;

struct host_life {
    ks_daemon daemon;
    ks_config config;
    ks_listen_sockets sockets;
    ks_listener *listener;
    ks_shard *shard;
    host_process *process;
    fate fate;
    int64_t at_ns; /* of what its fate is */
    int code, admin_fd, admin_stop, stops, count;
    bool served, leaves;
    pthread_t admin;
    held held[HOST_LINKS];
};

static host_life lives[HOST_PROCESSES];

void host_lives_begin(void)
{
    for (int i = 0; i < HOST_PROCESSES; i++) lives[i].process = NULL;
}

static host_life *mine(void)
{
    return host_now()->life;
}

bool host_life_served(const host_process *process)
{
    return process->life && process->life->served;
}

int host_life_holds(const host_process *process)
{
    return process->life ? process->life->count : 0;
}

void host_life_ends(host_process *process)
{
    if (host.gpus && process->row >= 0 && sim_one_in(2)) host_device_draw(process->row);
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static void hold(host_life *self, int fd, bool data)
{
    int at = 0;
    while (at < HOST_LINKS && self->held[at].fd >= 0) at++;
    sim_check(at < HOST_LINKS, "a worker holds more than there is", at, 0);
    const int64_t now_ns = host_now_ns();
    self->held[at] = (held){.fd = fd, .data = data, .ends_ns = now_ns + sim_skewed(0, data ? 20 * SIM_S : SIM_S)};
    self->held[at].goes_ns = self->daemon.workers && sim_one_in(6) ? now_ns : SIM_NEVER;
    if (data) self->count++;
    rules_taken(host_index_of(host_object_of(self->process, fd)));
}

static void let_go(host_life *self, held *one)
{
    host_close(one->fd);
    if (one->data) ks_connections_remove(&self->daemon.row->connections);
    if (one->data) self->count--;
    one->fd = -1;
}

/* A request that names a device: its connection goes to that worker, if it is up. */
static void hand_over(host_life *self, held *one)
{
    ks_daemon *daemon = &self->daemon;
    const int row = (int)sim_draw((uint64_t)daemon->workers->count);
    one->goes_ns = SIM_NEVER;
    if (row == daemon->worker || !ks_worker_is_up(&daemon->workers->row[row])) return;
    host_enter(SIM_US);
    if (daemon->hand_over.give(daemon, row, one->fd, !one->data, true)) let_go(self, one);
}

static void look_at_held(host_life *self)
{
    const int64_t now_ns = host_now_ns();
    for (int i = 0; i < HOST_LINKS; i++) {
        held *one = &self->held[i];
        if (one->fd >= 0 && now_ns >= one->goes_ns) hand_over(self, one);
        if (one->fd >= 0 &&
            (now_ns >= one->ends_ns || host_link_is_gone(host_index_of(host_object_of(self->process, one->fd)))))
            let_go(self, one);
    }
}

bool __wrap_ks_shard_give(ks_shard *shard, const ks_arrival *arrival)
{
    (void)shard;
    if (mine()->daemon.workers) rules_counts();
    host_enter(SIM_US);
    hold(mine(), arrival->fd, true);
    return true;
}

int __wrap_ks_shard_connections(const ks_shard *shard)
{
    (void)shard;
    return mine()->count;
}

int64_t __wrap_ks_shard_yields(const ks_shard *shard)
{
    (void)shard;
    return INT64_MAX;
}

void *__wrap_ks_addresses_take(void *addresses, const void *from)
{
    (void)addresses, (void)from;
    return NULL;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *context)
{
    (void)attributes;
    *thread = (pthread_t)host_fiber_make((int)(host_now() - host_processes), main, context);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    (void)result;
    host_fiber_join((int)thread);
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    (void)thread, (void)name;
    return 0;
}

/* --- the second listener's thread --------------------------------------------------------------------------------- */

static int take_admin(host_life *self)
{
    uint32_t listener;
    if (self->daemon.workers) return ks_channel_take(self->daemon.admin_fd, &listener);
    return accept4(self->admin_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* As admin.c. */
static void *serve_admin(void *context)
{
    host_life *self = context;
    struct epoll_event event = {.events = EPOLLIN};
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    const int source = self->daemon.workers ? self->daemon.admin_fd : self->admin_fd;
    if (epoll < 0) host_exit(KS_EXIT_SYSTEM);
    epoll_ctl(epoll, EPOLL_CTL_ADD, source, &event);
    epoll_ctl(epoll, EPOLL_CTL_ADD, self->admin_stop, &event);
    atomic_store(&self->daemon.row->admits, true);
    while (!self->leaves) {
        (void)epoll_wait(epoll, &event, 1, -1);
        for (int fd; !self->leaves && ((fd = take_admin(self)) >= 0 || errno != EAGAIN);) {
            if (fd >= 0)
                hold(self, fd, false);
            else if (errno != EINTR && errno != ECONNABORTED)
                host_fiber_wait(HOST_UNTIL, 0, host_now_ns() + 100 * SIM_MS);
        }
    }
    host_close(epoll);
    return NULL;
}

static void open_admin(host_life *self)
{
    if (!host.admin) return;
    self->admin_stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->admin_stop < 0) host_exit(KS_EXIT_SYSTEM);
    (void)pthread_create(&self->admin, NULL, serve_admin, self);
}

static void close_admin(host_life *self)
{
    const uint64_t one = 1;
    if (!host.admin) return;
    atomic_store(&self->daemon.row->admits, false);
    self->leaves = true;
    (void)!TEMP_FAILURE_RETRY(write(self->admin_stop, &one, sizeof one));
    (void)pthread_join(self->admin, NULL);
    host_close(self->admin_stop);
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

static _Noreturn void leave_lost(host_life *self)
{
    atomic_store(&self->daemon.row->state, KS_STATE_FAILED);
    host_fiber_wait(HOST_UNTIL, 0, host_now_ns() + sim_between(250 * SIM_MS, 1250 * SIM_MS));
    host_exit(KS_EXIT_INTERNAL);
}

static _Noreturn void meet_fate(host_life *self)
{
    sim_event("fate", self->process->pid, self->fate);
    if (self->fate == HANGS_EARLY || self->fate == HANGS_LATE) host_fiber_wait(HOST_FOR_EVER, 0, SIM_NEVER);
    if (self->fate == LOSES_DEVICE) leave_lost(self);
    if (self->code < 128) host_exit(self->code);
    host_end_process(self->process, self->code - 128);
    host_fiber_ends();
}

/* The main thread rests, unless it has met its fate; a signal that was sent. */
static int rest(host_life *self, int64_t ns)
{
    const uint32_t mask = STOPS | HANG_UP;
    const int64_t until_ns = host_now_ns() + ns;
    if (host_now_ns() >= self->at_ns) meet_fate(self);
    if (!host_has_signal(self->process, mask)) host_fiber_wait(HOST_SIGNALS, mask, until_ns);
    const int signal = host_signalfd_read(mask);
    if (signal == SIGTERM || signal == SIGINT) self->stops++;
    return signal;
}

static void tick(host_life *self)
{
    (void)rest(self, TICK_MS * SIM_MS);
    atomic_store(&self->daemon.row->beat_ns, ks_now_ns());
    look_at_held(self);
}

static _Noreturn void drain(host_life *self)
{
    ks_worker_row *row = self->daemon.row;
    const int stops = self->stops;
    int64_t until_ns = host_now_ns() + host.drain_delay_ns;
    atomic_store(&row->state, KS_STATE_DRAINING);
    sim_event("drains", self->process->pid, 0);
    while (host_now_ns() < until_ns) {
        tick(self);
        if (self->stops > stops) host_exit(KS_EXIT_AGAIN);
    }
    ks_listener_close(&self->listener);
    until_ns = host_now_ns() + (sim_one_in(4) ? host.shutdown_timeout_ns : sim_skewed(0, SIM_S));
    while (self->count > 0 && host_now_ns() < until_ns) {
        tick(self);
        if (self->stops > stops) host_exit(KS_EXIT_AGAIN);
    }
    const bool cut = self->count > 0 && sim_one_in(2);
    close_admin(self);
    ks_worker_leave(&self->daemon);
    host_exit(cut ? KS_EXIT_AGAIN : KS_EXIT_OK);
}

/* --- its beginning ------------------------------------------------------------------------------------------------ */

static int draw_code(void)
{
    static const int codes[] = {69, 70, 71, 75, 128 + SIGKILL, 128 + SIGSEGV, 128 + SIGABRT, 1, 64, 66, 77, 78};
    enum { CODES = sizeof codes / sizeof codes[0], WORTH_MORE = 8 };
    return codes[sim_draw(sim_one_in(6) ? CODES : WORTH_MORE)];
}

static void draw_fate(host_life *self)
{
    const int64_t now_ns = host_now_ns();
    self->at_ns = SIM_NEVER;
    if (!sim_one_in(host.sick)) return;
    self->fate = (fate)sim_between(DIES_EARLY, LOSES_DEVICE);
    if (self->fate == HANGS_EARLY && !sim_one_in(3)) self->fate = DIES_EARLY;
    self->code = draw_code();
    self->at_ns = now_ns + (self->fate <= HANGS_EARLY ? 0 : sim_skewed(SIM_S, 60 * SIM_S));
}

/* As main.c's take_inherited. */
static void take_listeners(host_life *self)
{
    ks_listen_sockets *sockets = &self->sockets;
    self->admin_fd = -1;
    for (int i = 0; i < ks_listen_inherited(); i++) {
        fcntl(3 + i, F_SETFD, FD_CLOEXEC);
        if (ks_listen_inherited_as(i, KS_LISTEN_ADMIN)) {
            self->admin_fd = 3 + i;
            continue;
        }
        sockets->fds[sockets->count] = 3 + i;
        sockets->loopback[sockets->count] = true;
        sockets->number[sockets->count++] = i;
    }
    if (self->daemon.workers) ks_worker_open_hand_over(&self->daemon, sockets);
}

/* A part of the start: a stop that came ends it. */
static void start_step(host_life *self, int64_t most_ns)
{
    if (host_has_signal(self->process, STOPS)) host_exit(KS_EXIT_OK);
    host_fiber_wait(HOST_UNTIL, 0, host_now_ns() + sim_skewed(SIM_MS, most_ns));
    if (self->fate == DIES_EARLY || self->fate == HANGS_EARLY)
        if (sim_one_in(3)) meet_fate(self);
}

static void open_all(host_life *self)
{
    ks_error error;
    ks_daemon *daemon = &self->daemon;
    const int64_t most_ns = sim_one_in(8) ? 20 * SIM_S : SIM_S;
    daemon->config = &self->config;
    if (!ks_worker_join(daemon, &self->config)) host_exit(KS_EXIT_SYSTEM);
    take_listeners(self);
    daemon->room_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (daemon->room_fd < 0) host_exit(KS_EXIT_SYSTEM);
    daemon->shards = 1;
    start_step(self, most_ns);
    open_admin(self);
    start_step(self, most_ns);
    atomic_store(&daemon->row->state, KS_STATE_WARMING);
    start_step(self, most_ns);
    if (self->fate == DIES_EARLY || self->fate == HANGS_EARLY) meet_fate(self);
    if (ks_listener_open(daemon, &self->shard, &self->sockets, &self->listener, &error) != KS_OK)
        host_exit(KS_EXIT_SYSTEM);
    self->served = true;
    sim_event("serves", self->process->pid, self->process->row);
    int warming = KS_STATE_WARMING;
    atomic_compare_exchange_strong(&daemon->row->state, &warming, KS_STATE_READY);
}

_Noreturn void host_live(host_process *process)
{
    host_life *self = &lives[process - host_processes];
    *self = (host_life){.process = process, .config = {.connections = host.connections}};
    process->life = self;
    for (int i = 0; i < HOST_LINKS; i++) self->held[i].fd = -1;
    draw_fate(self);
    open_all(self);
    while (self->stops == 0) tick(self);
    drain(self);
}
