/* Owns       the environment of a supervised daemon.
 * Interface  process.h
 * Limits     KS_STARTS_MAX starts in KS_STARTS_WINDOW_S. */
#include "daemon/workers/process.h"

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
#include "base/log.h"
#include "resident/store.h"

enum { FIRST_FD = 3, NAME_MAX_BYTES = 8, FDS_MAX = KS_LISTENERS_MAX + KS_OTHER_FDS };

static bool set_number(const char *variable, long value)
{
    char number[24];
    snprintf(number, sizeof number, "%ld", value);
    return setenv(variable, number, 1) == 0;
}

/* The supervisor alone speaks to systemd for its workers: one that ends does not mean that the service does. */
static bool set_worker(const ks_process *process)
{
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    if (!set_number(KS_SUPERVISOR_WORKER, process->row)) return false;
    if (!*process->place->uuid) return true;
    return setenv("CUDA_VISIBLE_DEVICES", process->place->uuid, 1) == 0 &&
           setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1) == 0;
}

/* As systemd sets it. */
static bool set_environment(const ks_process *process, pid_t parent)
{
    char names[KS_LISTENERS_MAX * NAME_MAX_BYTES] = "";
    const ks_sockets *sockets = process->sockets;
    for (int i = 0; i < sockets->count; i++) {
        strcat(names, i ? ":" : "");
        strcat(names, sockets->names[i]);
    }
    bool good = setenv("LISTEN_FDNAMES", names, 1) == 0 && set_number("LISTEN_FDS", sockets->count) &&
                set_number("LISTEN_PID", (long)getpid()) && set_number(KS_SUPERVISOR_STARTS, process->starts) &&
                set_number(KS_SUPERVISOR_PID, (long)parent);
    int fd = FIRST_FD + sockets->count;
    for (int i = 0; good && i < process->others; i++) {
        const int number = process->other[i].fd < 0 ? -1 : fd++;
        good = !process->other[i].variable || set_number(process->other[i].variable, number);
    }
    return good && (!process->place || set_worker(process));
}

/* To 3, 4, ...: sockets, then the others. */
static bool move_descriptors(const ks_process *process)
{
    int from[FDS_MAX], fds = 0;
    for (int i = 0; i < process->sockets->count; i++) from[fds++] = process->sockets->fds[i];
    for (int i = 0; i < process->others; i++)
        if (process->other[i].fd >= 0) from[fds++] = process->other[i].fd;
    /* Out of the way first: a socket may sit on a number that another one is to get. */
    for (int i = 0; i < fds; i++) from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, FIRST_FD + fds);
    for (int i = 0; i < fds; i++)
        if (from[i] < 0 || dup2(from[i], FIRST_FD + i) < 0) return false;
    return true;
}

/* In the child, after fork. Only comes back when it failed. Signals stay blocked, as they are here: one that comes before the
 * daemon waits for it waits too. */
static void become_daemon(const ks_process *process, pid_t parent)
{
    const char *refused = "";
    if (process->place && process->starts > 1) {
        const int needs = ks_place_recovery(process->place);
        atomic_store(process->needs, needs);
        if (needs != KS_RECOVERY_NONE) _exit(KS_EXIT_NO_DEVICE);
    }
    if (process->place) ks_place_take(process->place, &refused);
    if (*refused)
        KS_LOG(KS_LOG_WARN, "a worker does not have its node's own", KS_INT("worker", process->place->device),
               KS_TEXT("refused", refused), KS_TEXT("error", strerror(errno)));
    if (!move_descriptors(process) || !set_environment(process, parent)) return;
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a killed supervisor leaves no daemon behind */
    if (getppid() != parent) _exit(KS_EXIT_OK);
    execv("/proc/self/exe", process->argv);
}

bool ks_process_start(ks_process *process)
{
    const pid_t parent = getpid();
    process->started_ns[process->starts++ % KS_STARTS_MAX] = ks_now_ns();
    process->pid = fork();
    if (process->pid == 0) {
        become_daemon(process, parent);
        fprintf(stderr, "kernserve: cannot start the daemon: %s\n", strerror(errno));
        _exit(KS_EXIT_SYSTEM);
    }
    if (process->pid > 0) return true;
    process->pid = 0;
    return false;
}

int64_t ks_process_may_start_ns(const ks_process *process)
{
    if (process->starts < KS_STARTS_MAX) return 0;
    return process->started_ns[process->starts % KS_STARTS_MAX] + KS_STARTS_WINDOW_S * KS_S;
}

int64_t ks_process_next_start_ns(const ks_process *process)
{
    const int64_t in_ns = ks_now_ns() + KS_START_PAUSE_NS, may_ns = ks_process_may_start_ns(process);
    return in_ns > may_ns ? in_ns : may_ns;
}

int ks_process_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ks_process_is_worth_a_retry(int code)
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

/* Its own guard (watch.c) ends it before. */
int64_t ks_process_leaves_ns(const ks_config *config)
{
    static const int64_t own_guard_ns = 5 * KS_S;
    return config->drain_delay + config->shutdown_timeout + own_guard_ns;
}

/* Without it a daemon that is started again does not know what was lost, and serves all the same. */
int ks_process_record(void)
{
    const int fd = memfd_create("kernserve-tensors", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, KS_RECORD_BYTES) == 0) return fd;
    close(fd);
    return -1;
}

int64_t ks_process_said(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable), *supervisor = getenv(KS_SUPERVISOR_PID);
    return text && supervisor && atol(supervisor) == (long)getppid() ? strtoll(text, NULL, 10) : otherwise;
}
