#include "daemon/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/early.h"
#include "daemon/workers/fleet.h"
#include "daemon/workers/process.h"
#include "base/log.h"
#include "resident/store.h"

enum { FIRST_FD = 3 };
static const int64_t second_ns = 2 * KS_S, look_ns = KS_S;

typedef struct supervisor {
    const ks_config *config;
    ks_sockets sockets;
    ks_process process;
    bool asked_to_stop, was_killed;
    int64_t leave_ns; /* how long it may take once it is asked to stop */
    ks_turn_clock asked;
} supervisor;

/* --- the sockets -------------------------------------------------------------------------------------------------- */

static int open_one(supervisor *self, const char *address, const char *name)
{
    bool loopback;
    ks_error error = {0};
    if (self->sockets.count == KS_LISTENERS_MAX) {
        fprintf(stderr, "kernserve: listen: more than %d sockets\n", KS_LISTENERS_MAX);
        return KS_EXIT_CONFIG;
    }
    const mode_t mode = (mode_t)self->config->socket_mode;
    const int code = ks_listen_socket(address, mode, &self->sockets.fds[self->sockets.count], &loopback, &error);
    if (code == KS_EXIT_OK)
        self->sockets.names[self->sockets.count++] = name;
    else
        fprintf(stderr, "kernserve: %s\n", error.text);
    return code;
}

/* systemd's, where there are any; of each side that they leave without one, those of the configuration. */
static int open_sockets(supervisor *self)
{
    const ks_config *config = self->config;
    bool data = false, admin = false;
    int code = KS_EXIT_OK;
    self->sockets.count = ks_listen_inherited();
    for (int i = 0; i < self->sockets.count; i++) {
        self->sockets.fds[i] = FIRST_FD + i;
        self->sockets.names[i] = ks_listen_inherited_as(i, KS_LISTEN_ADMIN) ? KS_LISTEN_ADMIN
                                 : ks_listen_inherited_as(i, KS_LISTEN_TLS) ? KS_LISTEN_TLS
                                                                            : KS_LISTEN_DATA;
        fcntl(self->sockets.fds[i], F_SETFD, FD_CLOEXEC);
        admin = admin || strcmp(self->sockets.names[i], KS_LISTEN_ADMIN) == 0;
        data = data || strcmp(self->sockets.names[i], KS_LISTEN_ADMIN) != 0;
    }
    for (int i = 0; i < config->listen.count && code == KS_EXIT_OK && !data; i++)
        code = open_one(self, config->listen.item[i], KS_LISTEN_DATA);
    for (int i = 0; i < config->tls_listen.count && code == KS_EXIT_OK && !data; i++)
        code = open_one(self, config->tls_listen.item[i], KS_LISTEN_TLS);
    if (code == KS_EXIT_OK && !admin && *config->admin_listen)
        code = open_one(self, config->admin_listen, KS_LISTEN_ADMIN);
    return code;
}

static void close_sockets(supervisor *self)
{
    for (int i = 0; i < self->sockets.count; i++) ks_listen_close(self->sockets.fds[i]);
}

/* --- the daemon --------------------------------------------------------------------------------------------------- */

/* Since it was asked to stop, as far as this process had its turns. */
static int64_t asked_for_ns(supervisor *self)
{
    return ks_turn_clock_look(&self->asked, ks_now_ns(), look_ns);
}

/* Asked again, one that takes it ends at once. */
static void ask_to_stop(supervisor *self)
{
    const int64_t leave_ns = self->asked_to_stop ? asked_for_ns(self) + second_ns : INT64_MAX;
    if (!self->asked_to_stop) ks_turn_clock_start(&self->asked, ks_now_ns());
    if (leave_ns < self->leave_ns) self->leave_ns = leave_ns;
    self->asked_to_stop = true;
}

/* Waits at most timeout_ns for a signal; passes those for the daemon on. */
static void pass_signal(supervisor *self, int64_t timeout_ns)
{
    sigset_t set;
    const struct timespec timeout = {.tv_sec = timeout_ns / KS_S, .tv_nsec = timeout_ns % KS_S};
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    const int signal = sigtimedwait(&set, NULL, &timeout);
    if (signal == SIGTERM || signal == SIGINT) ask_to_stop(self);
    if (signal > 0 && signal != SIGCHLD && self->process.pid > 0) kill(self->process.pid, signal);
}

/* One that hangs as it starts, or is stopped, takes no other signal. */
static void kill_late(supervisor *self)
{
    if (!self->asked_to_stop || asked_for_ns(self) < self->leave_ns) return;
    self->leave_ns = INT64_MAX;
    self->was_killed = true;
    KS_LOG(KS_LOG_ERROR, "the daemon does not stop; killed", KS_INT("exit", KS_EXIT_AGAIN));
    kill(self->process.pid, SIGKILL);
}

/* The daemon's exit code. */
static int wait_for_daemon(supervisor *self)
{
    int status;
    for (;;) {
        const pid_t ended = waitpid(self->process.pid, &status, WNOHANG);
        if (ended == self->process.pid || (ended < 0 && errno != EINTR)) break;
        kill_late(self);
        pass_signal(self, look_ns);
    }
    self->process.pid = 0;
    return self->was_killed ? KS_EXIT_AGAIN : ks_process_code(status);
}

static void pause_before_start(supervisor *self)
{
    const int64_t until = ks_now_ns() + KS_START_PAUSE_NS;
    for (int64_t now; !self->asked_to_stop && (now = ks_now_ns()) < until;) pass_signal(self, until - now);
}

static int run(supervisor *self)
{
    for (;;) {
        pass_signal(self, 0); /* what came before there was a daemon */
        if (self->asked_to_stop) return KS_EXIT_OK;
        if (!ks_process_start(&self->process)) {
            KS_LOG(KS_LOG_ERROR, "cannot start the daemon", KS_TEXT("error", strerror(errno)));
            return KS_EXIT_SYSTEM;
        }
        const int code = wait_for_daemon(self);
        /* A loader that is killed before it has begun our code has stopped as it was asked to. */
        if (self->asked_to_stop) return code == 128 + SIGTERM || code == 128 + SIGINT ? KS_EXIT_OK : code;
        if (!ks_process_is_worth_a_retry(code)) return code;
        if (ks_process_may_start_ns(&self->process) > ks_now_ns()) {
            KS_LOG(KS_LOG_ERROR, "the daemon ends again and again; giving up", KS_INT("exit", code),
                   KS_INT("starts", KS_STARTS_MAX), KS_INT("seconds", KS_STARTS_WINDOW_S));
            return code;
        }
        KS_LOG(KS_LOG_WARN, "the daemon has ended and is started again", KS_INT("exit", code));
        pause_before_start(self);
    }
}

/* --- the supervisor ----------------------------------------------------------------------------------------------- */

/* Of a daemon: ours, and the options that make it one. NULL: out of memory. */
static char **make_argv(const ks_config *config, int argc, char **argv)
{
    enum { MORE = 4 };
    char **made = calloc((size_t)argc + MORE, sizeof *made);
    if (!made) return NULL;
    memcpy(made, argv, (size_t)argc * sizeof *argv);
    made[argc++] = "--no-supervise";
    if (!*config->devices) return made;
    made[argc++] = "--devices=";
    if (config->backend == KS_BACKEND_AUTO) made[argc++] = "--backend=cuda"; /* a worker is its device's, or ends */
    return made;
}

static int run_one(supervisor *self)
{
    const int record_fd = self->config->resident ? ks_process_record() : -1;
    self->process.other[0].variable = KS_SUPERVISOR_RECORD;
    self->process.other[0].fd = record_fd;
    self->process.others = 1;
    const int code = run(self);
    if (record_fd >= 0) close(record_fd);
    return code;
}

int ks_supervise(const ks_config *config, int argc, char **argv)
{
    supervisor self = {.config = config, .leave_ns = ks_process_leaves_ns(config)};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL); /* the others are since before main (early.cc) */
    self.process.sockets = &self.sockets;
    self.process.argv = make_argv(config, argc, argv);
    if (!self.process.argv) {
        fprintf(stderr, "kernserve: out of memory for the daemon's arguments\n");
        return KS_EXIT_SYSTEM;
    }
    int code = open_sockets(&self);
    ks_early_end();
    if (code == KS_EXIT_OK)
        code = *config->devices ? ks_fleet_run(config, &self.sockets, self.process.argv) : run_one(&self);
    close_sockets(&self);
    free(self.process.argv);
    return code;
}
