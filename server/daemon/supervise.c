#include "daemon/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/early.h"
#include "daemon/listen.h"
#include "base/log.h"
#include "resident/store.h"

enum { STARTS_MAX = 5, FIRST_FD = 3, NAME_MAX_BYTES = 8 };
static const int64_t window_ns = 60 * KS_S, pause_ns = KS_S;

typedef struct supervisor {
    const ks_config *config;
    char **argv; /* of the daemon: ours, and --no-supervise */
    int fds[KS_LISTENERS_MAX];
    const char *names[KS_LISTENERS_MAX]; /* under which the daemon gets them */
    int count;
    int record_fd; /* memory of the tensors' names, which outlives a daemon; -1: there is none */
    pid_t child;
    bool asked_to_stop;
    int64_t started_ns[STARTS_MAX]; /* a ring */
    int starts;
} supervisor;

/* --- the sockets -------------------------------------------------------------------------------------------------- */

static int open_one(supervisor *self, const char *address, const char *name)
{
    bool loopback;
    ks_error error = {0};
    if (self->count == KS_LISTENERS_MAX) {
        fprintf(stderr, "kernserve: listen: more than %d sockets\n", KS_LISTENERS_MAX);
        return KS_EXIT_CONFIG;
    }
    const mode_t mode = (mode_t)self->config->socket_mode;
    const int code = ks_listen_socket(address, mode, &self->fds[self->count], &loopback, &error);
    if (code == KS_EXIT_OK)
        self->names[self->count++] = name;
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
    self->count = ks_listen_inherited();
    for (int i = 0; i < self->count; i++) {
        self->fds[i] = FIRST_FD + i;
        self->names[i] = ks_listen_inherited_as(i, KS_LISTEN_ADMIN) ? KS_LISTEN_ADMIN
                         : ks_listen_inherited_as(i, KS_LISTEN_TLS) ? KS_LISTEN_TLS
                                                                    : KS_LISTEN_DATA;
        fcntl(self->fds[i], F_SETFD, FD_CLOEXEC);
        admin = admin || strcmp(self->names[i], KS_LISTEN_ADMIN) == 0;
        data = data || strcmp(self->names[i], KS_LISTEN_ADMIN) != 0;
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
    for (int i = 0; i < self->count; i++) ks_listen_close(self->fds[i]);
}

/* Without it a daemon that is started again does not know what was lost, and serves all the same. */
static int open_record(void)
{
    const int fd = memfd_create("kernserve-tensors", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, KS_RECORD_BYTES) == 0) return fd;
    close(fd);
    return -1;
}

/* --- the daemon --------------------------------------------------------------------------------------------------- */

/* As systemd sets it. */
static bool set_environment(const supervisor *self, pid_t parent)
{
    char names[KS_LISTENERS_MAX * NAME_MAX_BYTES] = "", number[16];
    for (int i = 0; i < self->count; i++) {
        strcat(names, i ? ":" : "");
        strcat(names, self->names[i]);
    }
    snprintf(number, sizeof number, "%d", self->count);
    if (setenv("LISTEN_FDNAMES", names, 1) != 0 || setenv("LISTEN_FDS", number, 1) != 0) return false;
    snprintf(number, sizeof number, "%ld", (long)getpid());
    if (setenv("LISTEN_PID", number, 1) != 0) return false;
    snprintf(number, sizeof number, "%d", self->starts);
    if (setenv(KS_SUPERVISOR_STARTS, number, 1) != 0) return false;
    snprintf(number, sizeof number, "%d", self->record_fd < 0 ? -1 : FIRST_FD + self->count);
    if (setenv(KS_SUPERVISOR_RECORD, number, 1) != 0) return false;
    snprintf(number, sizeof number, "%ld", (long)parent);
    return setenv(KS_SUPERVISOR_PID, number, 1) == 0;
}

/* In the child, after fork: sockets to 3, 4, ... Only comes back when it failed. Signals stay blocked, as they are here:
 * one that comes before the daemon waits for it waits too. */
static void become_daemon(const supervisor *self, pid_t parent)
{
    int moved[KS_LISTENERS_MAX + 1];
    const int last = self->count,
              fds = self->record_fd < 0 ? last : last + 1; /* the record's comes behind the sockets' */
    /* Out of the way first: a socket may sit on a number that another one is to get. */
    for (int i = 0; i < fds; i++)
        moved[i] = fcntl(i < last ? self->fds[i] : self->record_fd, F_DUPFD_CLOEXEC, FIRST_FD + fds);
    for (int i = 0; i < fds; i++)
        if (moved[i] < 0 || dup2(moved[i], FIRST_FD + i) < 0) return;
    if (!set_environment(self, parent)) return;
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a killed supervisor leaves no daemon behind */
    if (getppid() != parent) _exit(KS_EXIT_OK);
    execv("/proc/self/exe", self->argv);
}

static bool start_daemon(supervisor *self)
{
    const pid_t parent = getpid();
    self->started_ns[self->starts++ % STARTS_MAX] = ks_now_ns();
    self->child = fork();
    if (self->child == 0) {
        become_daemon(self, parent);
        fprintf(stderr, "kernserve: cannot start the daemon: %s\n", strerror(errno));
        _exit(KS_EXIT_SYSTEM);
    }
    return self->child > 0;
}

/* Too many of them in too short a time: what a restart does not heal is the operator's. */
static bool may_start(const supervisor *self)
{
    return self->starts < STARTS_MAX || ks_now_ns() - self->started_ns[self->starts % STARTS_MAX] > window_ns;
}

static bool is_worth_a_retry(int code)
{
    switch (code) {
#define X(name, number, helps, ...)                                                                                    \
    case number:                                                                                                       \
        return helps;
        KS_EXIT_TABLE(X)
#undef X
    default: /* a signal */
        return true;
    }
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
    if (signal == SIGTERM || signal == SIGINT) self->asked_to_stop = true;
    if (signal > 0 && signal != SIGCHLD && self->child > 0) kill(self->child, signal);
}

/* The daemon's exit code; 128 + N for a signal, as shells say it. */
static int wait_for_daemon(supervisor *self)
{
    int status;
    for (;;) {
        const pid_t ended = waitpid(self->child, &status, WNOHANG);
        if (ended == self->child || (ended < 0 && errno != EINTR)) break;
        pass_signal(self, KS_S);
    }
    self->child = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void pause_before_start(supervisor *self)
{
    const int64_t until = ks_now_ns() + pause_ns;
    for (int64_t now; !self->asked_to_stop && (now = ks_now_ns()) < until;) pass_signal(self, until - now);
}

static int run(supervisor *self)
{
    for (;;) {
        pass_signal(self, 0); /* what came before there was a daemon */
        if (self->asked_to_stop) return KS_EXIT_OK;
        if (!start_daemon(self)) {
            KS_LOG(KS_LOG_ERROR, "cannot start the daemon", KS_TEXT("error", strerror(errno)));
            return KS_EXIT_SYSTEM;
        }
        const int code = wait_for_daemon(self);
        /* A loader that is killed before it has begun our code has stopped as it was asked to. */
        if (self->asked_to_stop) return code == 128 + SIGTERM || code == 128 + SIGINT ? KS_EXIT_OK : code;
        if (!is_worth_a_retry(code)) return code;
        if (!may_start(self)) {
            KS_LOG(KS_LOG_ERROR, "the daemon ends again and again; giving up", KS_INT("exit", code),
                   KS_INT("starts", STARTS_MAX), KS_INT("seconds", window_ns / KS_S));
            return code;
        }
        KS_LOG(KS_LOG_WARN, "the daemon has ended and is started again", KS_INT("exit", code));
        pause_before_start(self);
    }
}

int ks_supervise(const ks_config *config, int argc, char **argv)
{
    supervisor self = {.config = config};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL); /* the others are since before main (early.cc) */
    self.argv = calloc((size_t)argc + 2, sizeof *self.argv);
    if (!self.argv) {
        fprintf(stderr, "kernserve: out of memory for the daemon's arguments\n");
        return KS_EXIT_SYSTEM;
    }
    memcpy(self.argv, argv, (size_t)argc * sizeof *argv);
    self.argv[argc] = "--no-supervise";
    int code = open_sockets(&self);
    self.record_fd = config->resident ? open_record() : -1;
    ks_early_end();
    if (code == KS_EXIT_OK) code = run(&self);
    close_sockets(&self);
    if (self.record_fd >= 0) close(self.record_fd);
    free(self.argv);
    return code;
}
