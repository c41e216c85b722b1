#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "listen.h"
#include "log.h"

enum { STARTS_MAX = 5, FIRST_FD = 3 };
static const int64_t window_ns = 60 * KS_S, pause_ns = KS_S;

typedef struct supervisor {
    const ks_config *config;
    char **argv; /* of the daemon: ours, and --no-supervise */
    int fds[KS_LIST_MAX];
    int count;
    pid_t child;
    bool asked_to_stop;
    int64_t started_ns[STARTS_MAX]; /* a ring */
    int starts;
} supervisor;

/* In the child, after fork: sockets to 3, 4, ..., the environment as systemd sets it. Only comes back when it failed.
 */
static void become_daemon(const supervisor *self)
{
    int moved[KS_LIST_MAX];
    char text[16];
    sigset_t none;
    /* Out of the way first: a socket may sit on a number that another one is to get. */
    for (int i = 0; i < self->count; i++) moved[i] = fcntl(self->fds[i], F_DUPFD_CLOEXEC, FIRST_FD + self->count);
    for (int i = 0; i < self->count; i++)
        if (moved[i] < 0 || dup2(moved[i], FIRST_FD + i) < 0) return;
    snprintf(text, sizeof text, "%d", self->count);
    setenv("LISTEN_FDS", text, 1);
    snprintf(text, sizeof text, "%ld", (long)getpid());
    setenv("LISTEN_PID", text, 1);
    unsetenv("LISTEN_FDNAMES");
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a killed supervisor leaves no daemon behind */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/proc/self/exe", self->argv);
}

static bool start_daemon(supervisor *self)
{
    self->started_ns[self->starts++ % STARTS_MAX] = ks_now_ns();
    self->child = fork();
    if (self->child == 0) {
        become_daemon(self);
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
    return code != KS_EXIT_OK && code != KS_EXIT_USAGE && code != KS_EXIT_NO_FILE && code != KS_EXIT_PERMISSION &&
           code != KS_EXIT_CONFIG;
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
        if (!start_daemon(self)) {
            KS_LOG(KS_LOG_ERROR, "cannot start the daemon", KS_TEXT("error", strerror(errno)));
            return KS_EXIT_SYSTEM;
        }
        const int code = wait_for_daemon(self);
        if (self->asked_to_stop || !is_worth_a_retry(code)) return code;
        if (!may_start(self)) {
            KS_LOG(KS_LOG_ERROR, "the daemon ends again and again; giving up", KS_INT("exit", code),
                   KS_INT("starts", STARTS_MAX), KS_INT("seconds", window_ns / KS_S));
            return code;
        }
        KS_LOG(KS_LOG_WARN, "the daemon has ended and is started again", KS_INT("exit", code));
        pause_before_start(self);
        if (self->asked_to_stop) return KS_EXIT_OK;
    }
}

static void remove_paths(const ks_config *config)
{
    for (int i = 0; i < config->listen.count; i++)
        if (strncmp(config->listen.item[i], "unix:", 5) == 0) unlink(config->listen.item[i] + 5);
}

int ks_supervise(const ks_config *config, int argc, char **argv)
{
    supervisor self = {.config = config};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    self.argv = calloc((size_t)argc + 2, sizeof *self.argv);
    if (!self.argv) return KS_EXIT_SYSTEM;
    memcpy(self.argv, argv, (size_t)argc * sizeof *argv);
    self.argv[argc] = "--no-supervise";
    int code = KS_EXIT_OK;
    for (int i = 0; i < config->listen.count && code == KS_EXIT_OK; i++) {
        bool loopback;
        ks_error error = {0};
        const ks_status status = ks_listen_socket(config->listen.item[i], &self.fds[i], &loopback, &error);
        if (status == KS_OK) {
            self.count++;
            continue;
        }
        fprintf(stderr, "kernserve: %s\n", error.text);
        code = status == KS_CONFIG ? KS_EXIT_CONFIG : KS_EXIT_AGAIN;
    }
    if (code == KS_EXIT_OK) code = run(&self);
    for (int i = 0; i < self.count; i++) close(self.fds[i]);
    remove_paths(config);
    free(self.argv);
    return code;
}
