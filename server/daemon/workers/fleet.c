/* Owns       the workers' processes, their channels and the table of workers.
 * Interface  fleet.h
 * Threads    one
 * Limits     PENDING_MAX connections that a worker has been given and has not taken; past it, and while no worker takes any, they wait
 *            in the backlog. */
#include "daemon/workers/fleet.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "daemon/workers/channel.h"
#include "observe/metrics.h"

enum {
    PENDING_MAX = 16,
    ACCEPTS = 16, /* of a listener, in a turn */
    FAILURES_MAX = 3,
    SIGNALS = KS_LISTENERS_MAX, /* in an event's data, behind the listeners */
    PAUSE_MS = 5,
    LONG_MS = 1000
};
static const int64_t fault_pause_ns = 100 * KS_MS, start_extended_ns = 60 * KS_S, second_ns = 2 * KS_S,
                     full_pause_ns = 20 * KS_MS;

typedef struct member {
    ks_process process;
    ks_channel data, admin;
    ks_worker_row *row;
    int64_t due_ns;  /* when it is started; 0: it runs */
    int failures;    /* times in a row that it ended before it was ready */
    bool has_served; /* since the supervisor began */
    bool is_stuck;   /* at the last look */
    int64_t full_ns; /* until then it is given none: a channel of it was full */
} member;

typedef struct fleet {
    const ks_sockets *sockets;
    ks_workers *workers;
    ks_place places[KS_WORKERS_MAX];
    member member[KS_WORKERS_MAX];
    int count, table_fd, epoll, signal_fd;
    bool watched[KS_LISTENERS_MAX]; /* listeners that epoll looks at */
    int turn;                       /* the worker that takes the next connection among equals */
    int64_t accepts_ns;             /* not before: descriptors were out */
    int kept_fd;                    /* accepted, and no channel has taken it yet; -1: none */
    uint32_t kept_listener;
    ks_log_limit faults;
    uint32_t data_listener;  /* one of them */
    int serving;             /* workers, as systemd knows it; -1: none yet */
    int64_t extended_ns;     /* when systemd was asked for more time to start */
    int64_t fed_ns, feed_ns; /* systemd's watchdog */
    bool stopping;
    int64_t leave_ns; /* how long those may take that are asked to stop */
    ks_turn_clock asked;
    int code; /* of the whole */
} fleet;

/* --- connections -------------------------------------------------------------------------------------------------- */

static bool is_admin(const fleet *self, uint32_t listener)
{
    return strcmp(self->sockets->names[listener], KS_LISTEN_ADMIN) == 0;
}

/* Whether it takes connections of the data listeners. ready: and is no one that drains. A lost device's worker answers 503 at once, so that it has
 * always the fewest. */
static bool takes(const ks_worker_row *row, bool ready, int64_t now_ns)
{
    const int state = atomic_load(&row->state);
    return atomic_load(&row->accepts) && state != KS_STATE_FAILED && (!ready || state == KS_STATE_READY) &&
           ks_connections_pending(&row->connections) < PENDING_MAX && !ks_worker_is_stuck(row, now_ns);
}

/* The one with the fewest connections, those on their way included; equals take turns. NULL: none takes any. */
static member *choose_fewest(fleet *self, bool ready)
{
    int best = -1, fewest = 0;
    const int64_t now_ns = ks_now_ns();
    for (int i = 0; i < self->count; i++) {
        const int at = (self->turn + i) % self->count;
        const ks_worker_row *row = self->member[at].row;
        const int have = ks_connections_sum(&row->connections);
        if (!takes(row, ready, now_ns) || self->member[at].full_ns > now_ns || (best >= 0 && have >= fewest)) continue;
        best = at;
        fewest = have;
    }
    if (best < 0) return NULL;
    self->turn = (best + 1) % self->count;
    return &self->member[best];
}

static member *choose_data(fleet *self)
{
    member *ready = choose_fewest(self, true);
    return ready ? ready : choose_fewest(self, false);
}

static member *choose_first(fleet *self)
{
    member *stuck = NULL;
    for (int i = 0; i < self->count; i++) {
        member *one = &self->member[i];
        if (!atomic_load(&one->row->admits) || one->full_ns > ks_now_ns()) continue;
        if (!ks_worker_is_stuck(one->row, ks_now_ns())) return one;
        stuck = one; /* which may go on */
    }
    return stuck;
}

static member *choose(fleet *self, uint32_t listener)
{
    return is_admin(self, listener) ? choose_first(self) : choose_data(self);
}

static bool has_taker(fleet *self, uint32_t listener)
{
    const int turn = self->turn;
    const bool has = choose(self, listener) != NULL;
    self->turn = turn;
    return has;
}

static bool give(fleet *self, member *to, int fd, uint32_t listener)
{
    uint64_t times;
    const bool admin = is_admin(self, listener);
    if (admin ? ks_channel_give(to->admin.give, fd, listener)
              : ks_channel_give_counted(to->data.give, fd, listener, &to->row->connections))
        return true;
    to->full_ns = ks_now_ns() + full_pause_ns;
    if (ks_log_due(&self->faults, ks_now_ns(), &times))
        KS_LOG(KS_LOG_WARN, "a connection cannot be handed over; it waits", KS_TEXT("error", strerror(errno)),
               KS_INT("times", times));
    return false;
}

/* Takes fd, which is kept where its taker has just gone, the channel is full, or memory is out: then no other one is accepted before
 * it has gone. */
static void give_take(fleet *self, int fd, uint32_t listener)
{
    member *to = choose(self, listener);
    const bool given = to && give(self, to, fd, listener);
    self->kept_fd = given ? -1 : fd;
    self->kept_listener = listener;
    if (given) close(fd);
}

static void accept_some(fleet *self, uint32_t listener)
{
    for (int i = 0; i < ACCEPTS; i++) {
        uint64_t times;
        if (self->kept_fd >= 0 || !has_taker(self, listener)) return;
        const int fd = accept4(self->sockets->fds[listener], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            give_take(self, fd, listener);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN) return;
        self->accepts_ns = ks_now_ns() + fault_pause_ns; /* out of descriptors or memory: it stays readable */
        if (ks_log_due(&self->faults, ks_now_ns(), &times))
            KS_LOG(KS_LOG_WARN, "cannot accept connections", KS_TEXT("error", strerror(errno)), KS_INT("times", times));
        return;
    }
}

/* Of one that is down: it may have ended between taking one and counting it, and another worker may just have given it one. */
static void count_given(member *one)
{
    ks_connections_set_down(&one->row->connections, ks_channel_holds(one->data.take));
}

/* Of a worker that has ended, or is stuck: what its channel still holds goes to others, or waits there until one takes some. */
static void give_again(fleet *self, member *one, bool admin)
{
    const int end = admin ? one->admin.take : one->data.take;
    while (self->kept_fd < 0) {
        uint32_t listener;
        member *to = admin ? choose_first(self) : choose_data(self);
        if (!to || to == one) break;
        const int fd = ks_channel_take(end, &listener);
        if (fd < 0 && errno != ECONNABORTED) break;
        if (!admin)
            ks_connections_give_back(&one->row->connections); /* also one that descriptors were out for: it is gone */
        if (fd >= 0 && listener < (uint32_t)self->sockets->count)
            give_take(self, fd, listener);
        else if (fd >= 0)
            close(fd); /* of a worker, which sees that */
    }
    if (!admin && !ks_worker_is_up(one->row)) count_given(one);
}

/* Listeners without a taker are left alone: new connections wait in the backlog. true: some do. */
static bool watch_listeners(fleet *self)
{
    bool some = false;
    const bool paused = ks_now_ns() < self->accepts_ns || self->kept_fd >= 0;
    for (int i = 0; i < self->sockets->count; i++) {
        const bool wanted = !paused && has_taker(self, (uint32_t)i);
        struct epoll_event event = {.events = wanted ? EPOLLIN : 0, .data.u32 = (uint32_t)i};
        some = some || !wanted;
        if (wanted == self->watched[i]) continue;
        self->watched[i] = wanted;
        epoll_ctl(self->epoll, EPOLL_CTL_MOD, self->sockets->fds[i], &event);
    }
    return some;
}

/* --- workers ------------------------------------------------------------------------------------------------------ */

static int count_running(const fleet *self)
{
    int running = 0;
    for (int i = 0; i < self->count; i++) running += self->member[i].process.pid > 0;
    return running;
}

static void pass_on(const fleet *self, int signal)
{
    for (int i = 0; i < self->count; i++)
        if (self->member[i].process.pid > 0) kill(self->member[i].process.pid, signal);
}

/* Since they were asked to stop, as far as this process had its turns. */
static int64_t asked_for_ns(fleet *self)
{
    return ks_turn_clock_look(&self->asked, ks_now_ns(), LONG_MS * KS_MS);
}

/* code: of the whole, where all do. */
static void stop(fleet *self, int code)
{
    self->stopping = true;
    self->code = code;
    ks_turn_clock_start(&self->asked, ks_now_ns());
    ks_notify("STOPPING=1");
}

/* Ends the whole, with this code. */
static void end(fleet *self, int code)
{
    if (self->stopping) return;
    stop(self, code);
    pass_on(self, SIGTERM);
}

/* One that hangs as it starts, or is stopped, takes no other signal. */
static void kill_late(fleet *self)
{
    if (!self->stopping || asked_for_ns(self) < self->leave_ns || count_running(self) == 0) return;
    self->leave_ns = INT64_MAX;
    if (self->code == KS_EXIT_OK) self->code = KS_EXIT_AGAIN;
    for (int i = 0; i < self->count; i++)
        if (self->member[i].process.pid > 0)
            KS_LOG(KS_LOG_ERROR, "a worker does not stop; killed", KS_INT("worker", self->member[i].row->device),
                   KS_INT("exit", self->code));
    pass_on(self, SIGKILL);
}

static bool another_serves(const fleet *self, const member *one)
{
    for (int i = 0; i < self->count; i++)
        if (&self->member[i] != one && atomic_load(&self->member[i].row->accepts)) return true;
    return false;
}

static void start(fleet *self, member *one)
{
    one->due_ns = 0;
    count_given(one);
    atomic_store(&one->row->state, KS_STATE_STARTING); /* before it may say more */
    atomic_store(&one->row->served, false);
    atomic_store(&one->row->asks, false);
    atomic_store(&one->row->joined, false); /* its giver may have set it behind its end */
    if (!ks_process_start(&one->process)) {
        KS_LOG(KS_LOG_ERROR, "cannot start a worker", KS_INT("worker", one->row->device),
               KS_TEXT("error", strerror(errno)));
        one->due_ns = ks_process_next_start_ns(&one->process);
        if (!another_serves(self, one)) end(self, KS_EXIT_SYSTEM);
        return;
    }
    atomic_store(&one->row->starts, (uint64_t)one->process.starts);
    atomic_store(&one->row->pid, (int)one->process.pid);
}

/* Of one that was not asked to: is it started again, when, or is it the end of the whole? */
static void plan_start(fleet *self, member *one, bool served, int code)
{
    const int64_t now_ns = ks_now_ns();
    one->failures = served ? 0 : one->failures + 1;
    if (!one->has_served && code != KS_EXIT_OK && !ks_process_is_worth_a_retry(code)) {
        end(self, code);
        return;
    }
    if (one->failures >= FAILURES_MAX && !(one->has_served && another_serves(self, one))) {
        KS_LOG(KS_LOG_ERROR, "a worker ends before it is ready, again and again; giving up",
               KS_INT("worker", one->row->device), KS_INT("worker_exit", code), KS_INT("starts", one->failures),
               KS_INT("exit", KS_EXIT_INTERNAL));
        end(self, KS_EXIT_INTERNAL);
        return;
    }
    one->due_ns = ks_process_next_start_ns(&one->process);
    const int needs = atomic_load(&one->row->needs);
    const bool waits = one->failures >= FAILURES_MAX || (one->has_served && needs != KS_RECOVERY_NONE);
    if (waits) one->due_ns = now_ns + KS_STARTS_WINDOW_S * KS_S;
    if (needs != KS_RECOVERY_NONE)
        KS_LOG(KS_LOG_ERROR, "a worker stays down: NVML says what its GPU needs", KS_INT("worker", one->row->device),
               KS_TEXT("needs", ks_recovery_words[needs]), KS_TEXT("uuid", one->row->uuid));
    KS_LOG(KS_LOG_WARN, "a worker has ended and is started again; the others serve on",
           KS_INT("worker", one->row->device), KS_INT("exit", code), KS_INT("in_ms", (one->due_ns - now_ns) / KS_MS));
}

static void ended(fleet *self, member *one, int status)
{
    const int code = ks_process_code(status);
    ks_worker_row *row = one->row;
    const bool served = atomic_load(&row->served); /* also where it has drained meanwhile */
    atomic_store(&row->accepts, false);
    one->process.pid = 0;
    one->has_served = one->has_served || served;
    atomic_store(&row->admits, false);
    atomic_store(&row->asks, false);
    atomic_store(&row->joined, false);
    const int pid = atomic_exchange(&row->pid, 0);
    ks_workers_let_go(self->workers, pid);
    atomic_store(&row->exit_code, code);
    count_given(one);
    give_again(self, one, false);
    give_again(self, one, true);
    if (!self->stopping) {
        plan_start(self, one, served, code);
        return;
    }
    /* One that is killed before it has begun our code has stopped as it was asked to. */
    const bool asked = code == KS_EXIT_OK || code == 128 + SIGTERM || code == 128 + SIGINT;
    if (!asked && self->code == KS_EXIT_OK) self->code = code;
}

static void reap(fleet *self)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int i = 0; i < self->count; i++)
            if (self->member[i].process.pid == pid) ended(self, &self->member[i], status);
}

/* Connections do not wait for one that is stopped, is down, or has lost its device, while another worker serves. */
static void look_at_stuck(fleet *self)
{
    for (int i = 0; i < self->count; i++) {
        member *one = &self->member[i];
        const bool stuck = ks_worker_is_stuck(one->row, ks_now_ns());
        if (stuck && !one->is_stuck)
            KS_LOG(KS_LOG_WARN, "a worker is stuck; it gets no connections", KS_INT("worker", one->row->device),
                   KS_INT("pid", one->process.pid));
        one->is_stuck = stuck;
        if (one->process.pid == 0) count_given(one);
        const bool out = stuck || one->process.pid == 0 || atomic_load(&one->row->state) == KS_STATE_FAILED;
        if (out && ks_connections_pending(&one->row->connections) > 0 && has_taker(self, self->data_listener))
            give_again(self, one, false);
        if (stuck || one->process.pid == 0) give_again(self, one, true);
    }
}

static void start_due(fleet *self)
{
    const int64_t now_ns = ks_now_ns();
    for (int i = 0; i < self->count && !self->stopping; i++)
        if (self->member[i].process.pid == 0 && now_ns >= self->member[i].due_ns) start(self, &self->member[i]);
}

/* --- systemd ------------------------------------------------------------------------------------------------------ */

static bool all_have_served(const fleet *self)
{
    bool all = true;
    for (int i = 0; i < self->count; i++) all = all && self->member[i].has_served;
    return all;
}

static void tell_systemd(fleet *self)
{
    const int64_t now_ns = ks_now_ns();
    const bool all = all_have_served(self);
    int serving = 0;
    for (int i = 0; i < self->count; i++) serving += atomic_load(&self->member[i].row->accepts);
    if (serving != self->serving && !self->stopping) {
        char text[80];
        self->serving = serving;
        snprintf(text, sizeof text, "%sSTATUS=%d of %d workers serve", all ? "READY=1\n" : "", serving, self->count);
        ks_notify(text);
    }
    if (!all && now_ns - self->extended_ns > start_extended_ns / 4) {
        self->extended_ns = now_ns;
        ks_notify("EXTEND_TIMEOUT_USEC=60000000");
    }
    if (self->feed_ns == 0 || now_ns - self->fed_ns < self->feed_ns) return;
    self->fed_ns = now_ns;
    ks_notify("WATCHDOG=1");
}

/* READY ends a reload, and would end a start too. */
static void hang_up(const fleet *self)
{
    char text[64];
    const bool tells = all_have_served(self) && !self->stopping;
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%" PRId64, ks_now_ns() / 1000);
    if (tells) ks_notify(text);
    pass_on(self, SIGHUP);
    if (tells) ks_notify("READY=1");
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

/* Asked again: one that takes it ends at once. */
static void hurry(fleet *self)
{
    const int64_t leave_ns = asked_for_ns(self) + second_ns;
    if (leave_ns < self->leave_ns) self->leave_ns = leave_ns;
}

static void take_signals(fleet *self)
{
    struct signalfd_siginfo info;
    while (read(self->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        const int signal = (int)info.ssi_signo;
        if (signal == SIGHUP) hang_up(self);
        if (signal != SIGTERM && signal != SIGINT) continue;
        if (!self->stopping)
            stop(self, KS_EXIT_OK);
        else
            hurry(self);
        pass_on(self, signal);
    }
    reap(self);
}

/* Workers say in the table that they serve; so while something waits for that, the table is looked at. */
static int wait_ms(fleet *self)
{
    int64_t wait_ns = LONG_MS * KS_MS;
    const int64_t now_ns = ks_now_ns();
    if (self->feed_ns > 0 && self->feed_ns < wait_ns) wait_ns = self->feed_ns;
    if (watch_listeners(self)) wait_ns = PAUSE_MS * KS_MS;
    for (int i = 0; i < self->count && !self->stopping; i++) {
        member *one = &self->member[i];
        const int64_t left_ns = one->process.pid == 0 ? one->due_ns - now_ns : wait_ns;
        if (atomic_load(&one->row->accepts)) {
            one->has_served = true;
            one->failures = 0;
        } else if (one->process.pid > 0 && wait_ns > 10 * PAUSE_MS * KS_MS) {
            wait_ns = 10 * PAUSE_MS * KS_MS;
        }
        if (left_ns < wait_ns) wait_ns = left_ns;
    }
    return wait_ns > 0 ? (int)((wait_ns + KS_MS - 1) / KS_MS) : 0;
}

static int run(fleet *self)
{
    for (;;) {
        struct epoll_event events[KS_LISTENERS_MAX + 1];
        take_signals(self);
        start_due(self);
        look_at_stuck(self);
        if (self->kept_fd >= 0) give_take(self, self->kept_fd, self->kept_listener);
        kill_late(self);
        if (self->stopping && count_running(self) == 0) return self->code;
        const int count = epoll_wait(self->epoll, events, KS_LISTENERS_MAX + 1, wait_ms(self));
        for (int i = 0; i < count; i++)
            if (events[i].data.u32 != SIGNALS) accept_some(self, events[i].data.u32);
        tell_systemd(self);
    }
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static bool open_member(fleet *self, const ks_config *config, char **argv, int index)
{
    member *one = &self->member[index];
    const ks_place *place = &self->places[index];
    one->row = &self->workers->row[index];
    one->row->device = place->device;
    one->row->sharing = place->sharing;
    memcpy(one->row->uuid, place->uuid, sizeof one->row->uuid);
    if (!ks_channel_open(&one->data) || !ks_channel_open(&one->admin)) return false;
    one->process = (ks_process){.sockets = self->sockets,
                                .argv = argv,
                                .place = place,
                                .row = index,
                                .needs = &one->row->needs,
                                .others = 4,
                                .other = {{KS_SUPERVISOR_TABLE, self->table_fd},
                                          {KS_SUPERVISOR_DATA, one->data.take},
                                          {KS_SUPERVISOR_ADMIN, one->admin.take},
                                          {KS_SUPERVISOR_RECORD, config->resident ? ks_process_record() : -1}}};
    return true;
}

/* Once all have their channels: each worker gives to each. */
static void share_channels(fleet *self)
{
    for (int i = 0; i < self->count; i++)
        for (int j = 0; j < self->count; j++) {
            ks_process *process = &self->member[i].process;
            process->other[process->others].variable = j == 0 ? KS_SUPERVISOR_GIVE : NULL;
            process->other[process->others++].fd = self->member[j].data.give;
            process->other[process->others++].fd = self->member[j].admin.give;
        }
}

static bool open_loop(fleet *self)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = SIGNALS};
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (self->epoll < 0 || self->signal_fd < 0) return false;
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->signal_fd, &event) != 0) return false;
    for (int i = 0; i < self->sockets->count; i++) {
        if (!is_admin(self, (uint32_t)i)) self->data_listener = (uint32_t)i;
        const int fd = self->sockets->fds[i];
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); /* one that systemd has made may not be */
        event = (struct epoll_event){.events = 0, .data.u32 = (uint32_t)i};
        if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) != 0) return false;
    }
    return true;
}

static bool open_all(fleet *self, const ks_config *config, char **argv)
{
    self->workers = ks_workers_open(self->count, &self->table_fd);
    if (!self->workers) return false;
    for (int i = 0; i < self->count; i++) self->member[i].data = self->member[i].admin = (ks_channel){-1, -1};
    for (int i = 0; i < self->count; i++)
        if (!open_member(self, config, argv, i)) return false;
    share_channels(self);
    return open_loop(self);
}

static void close_all(fleet *self)
{
    for (int i = 0; i < self->count && self->workers; i++) {
        member *one = &self->member[i];
        ks_channel_close(&one->data);
        ks_channel_close(&one->admin);
        if (one->process.other[3].fd > 0) close(one->process.other[3].fd);
    }
    if (self->kept_fd >= 0) close(self->kept_fd);
    if (self->workers) close(self->table_fd);
    ks_workers_close(&self->workers);
    if (self->epoll >= 0) close(self->epoll);
    if (self->signal_fd >= 0) close(self->signal_fd);
}

int ks_fleet_run(const ks_config *config, const ks_sockets *sockets, char **argv)
{
    fleet self = {.sockets = sockets,
                  .table_fd = -1,
                  .epoll = -1,
                  .signal_fd = -1,
                  .kept_fd = -1,
                  .serving = -1,
                  .leave_ns = ks_process_leaves_ns(config)};
    ks_error error = {0};
    const ks_status status = ks_places_find(config, self.places, &self.count, &error);
    if (status != KS_OK) {
        fprintf(stderr, "kernserve: %s\n", error.text);
        return status == KS_DEVICE ? KS_EXIT_NO_DEVICE : KS_EXIT_CONFIG;
    }
    self.feed_ns = ks_notify_watchdog_ns();
    int code = KS_EXIT_SYSTEM;
    if (open_all(&self, config, argv))
        code = run(&self);
    else
        fprintf(stderr, "kernserve: cannot start workers: %s\n", strerror(errno));
    close_all(&self);
    return code;
}
