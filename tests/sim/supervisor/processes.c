/* Processes: fork, exec, signals, environments, ends.
 *
 * Fork       The parent gets a number, and what the child has of the parent is kept: descriptors, environment, the ks_process by which it is
 *            started. The child's first thread enters ks_process_start with that copy, where fork then returns 0: so its code up to
 *            exec is the product's own.
 * Interface  host.h; the calls, as the linker names them. */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/supervisor/host.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the linker's names */

enum { NAMES = sizeof host_processes[0].variable / sizeof host_processes[0].variable[0] };

bool __real_ks_process_start(ks_process *process);
char *__real_getenv(const char *name);

host_process host_processes[HOST_PROCESSES];
static host_process *running;
static int last_pid;
static ks_process to_start; /* as the supervisor has it before it forks */

void host_processes_begin(void)
{
    memset(host_processes, 0, sizeof host_processes);
    last_pid = HOST_SUPERVISOR_PID;
    running = NULL;
    host_processes[0] = (host_process){.state = HOST_RUNS, .pid = HOST_SUPERVISOR_PID, .row = -1, .has_begun = true};
    host_processes[0].blocked = 1u << SIGTERM | 1u << SIGINT | 1u << SIGHUP; /* early.cc */
}

void host_processes_end(void)
{
    for (int i = 1; i < HOST_PROCESSES; i++)
        if (host_processes[i].state == HOST_RUNS) host_end_process(&host_processes[i], SIGKILL);
    host_close_all(&host_processes[0]);
    host_fibers_kill(0);
}

host_process *host_now(void)
{
    return running;
}

void host_set_now(host_process *process)
{
    running = process;
    sim_memory_owner(process ? (int)(process - host_processes) : 0);
    sim_memory_fails(process && host_now_ns() >= host.faults_ns);
}

host_process *host_find(int pid)
{
    for (int i = 0; i < HOST_PROCESSES; i++)
        if (host_processes[i].state != HOST_FREE && host_processes[i].pid == pid) return &host_processes[i];
    return NULL;
}

host_process *host_of_row(int row)
{
    for (int i = 1; i < HOST_PROCESSES; i++)
        if (host_processes[i].state != HOST_FREE && host_processes[i].row == row) return &host_processes[i];
    return NULL;
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

bool host_has_signal(const host_process *process, uint32_t mask)
{
    return process->pending & mask;
}

void host_signal(host_process *to, int signal)
{
    if (to->state != HOST_RUNS) return;
    sim_event("signal", to->pid, signal);
    if (signal == SIGKILL || (signal != SIGCHLD && !(to->blocked & 1u << signal))) {
        host_end_process(to, signal);
        return;
    }
    if (to->blocked & 1u << signal) to->pending |= 1u << signal;
}

int __wrap_kill(pid_t pid, int signal)
{
    host_enter(400);
    host_process *to = host_find(pid);
    if (!to) sim_wrong("a signal for a process that is no more", pid, signal);
    if (running == host_processes) rules_passed_on(to, signal);
    host_signal(to, signal);
    return 0;
}

static uint32_t mask_of(const sigset_t *set)
{
    uint32_t mask = 0;
    for (int i = 1; i < 32; i++)
        if (sigismember(set, i) == 1) mask |= 1u << i;
    return mask;
}

int __wrap_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    (void)old;
    if (how == SIG_BLOCK) running->blocked |= mask_of(set);
    if (how == SIG_UNBLOCK) running->blocked &= ~mask_of(set);
    return 0;
}

/* The lowest number first; 0: none. */
static int take_signal(uint32_t mask)
{
    const uint32_t has = running->pending & mask;
    if (!has) return 0;
    const int signal = __builtin_ctz(has);
    running->pending &= ~(1u << signal);
    if (running == host_processes) rules_heard(signal);
    return signal;
}

int __wrap_sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
    const uint32_t mask = mask_of(set);
    host_enter(600);
    if (running == host_processes) rules_waits();
    if (host_fault(sim.eintr)) {
        errno = EINTR;
        return -1;
    }
    const int64_t until_ns = host_now_ns() + (int64_t)timeout->tv_sec * SIM_S + timeout->tv_nsec;
    if (!host_has_signal(running, mask)) host_fiber_wait(HOST_SIGNALS, mask, until_ns);
    const int signal = take_signal(mask);
    if (info) memset(info, 0, sizeof *info);
    if (signal == 0) errno = EAGAIN;
    return signal ? signal : -1;
}

int host_signalfd_read(uint32_t mask)
{
    return take_signal(mask);
}

/* --- ends --------------------------------------------------------------------------------------------------------- */

void host_end_process(host_process *process, int status)
{
    if (process->state != HOST_RUNS) return;
    sim_event("ends", process->pid, status);
    process->state = HOST_ENDED;
    process->status = status;
    process->pending = 0;
    host_fibers_kill((int)(process - host_processes));
    rules_ended(process);
    host_life_ends(process);
    host_close_all(process);
    sim_memory_reap_of((int)(process - host_processes));
    host_signal(&host_processes[0], SIGCHLD);
}

_Noreturn void host_exit(int code)
{
    host_end_process(running, (code & 255) << 8);
    host_fiber_ends();
}

_Noreturn void __wrap__exit(int code)
{
    if (!running) sim_wrong("the simulator itself is ended", code, 0);
    if (running == host_processes) sim_wrong("the supervisor ends by itself", code, 0);
    host_exit(code);
}

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
    host_enter(500);
    bool some = false;
    sim_check(options == WNOHANG, "the supervisor waits for a process alone", options, 0);
    for (int i = 1; i < HOST_PROCESSES; i++) {
        host_process *one = &host_processes[i];
        if (one->state == HOST_FREE || (pid > 0 && one->pid != pid)) continue;
        some = true;
        if (one->state != HOST_ENDED) continue;
        const int reaped = one->pid;
        *status = one->status;
        sim_event("reaped", reaped, one->status);
        rules_reaped(one);
        one->state = HOST_FREE;
        return reaped;
    }
    if (!some) errno = ECHILD;
    return some ? 0 : -1;
}

/* --- beginnings --------------------------------------------------------------------------------------------------- */

static void *child_main(void *context)
{
    host_process *self = context;
    (void)__real_ks_process_start(&self->start);
    sim_wrong("a child comes back from its start", self->pid, 0);
}

bool __wrap_ks_process_start(ks_process *process)
{
    to_start = *process;
    return __real_ks_process_start(process);
}

pid_t __wrap_fork(void)
{
    if (running != host_processes) {
        running->has_forked = true;
        return 0;
    }
    host_enter(80 * SIM_US);
    if (host_fault(4 * host.no_room)) {
        rules_refused_fork(to_start.place ? to_start.row : 0);
        errno = EAGAIN;
        return -1;
    }
    int at = 1;
    while (at < HOST_PROCESSES && host_processes[at].state != HOST_FREE) at++;
    if (at == HOST_PROCESSES) sim_wrong("more processes than there are workers", at, 0);
    host_process *child = &host_processes[at];
    *child = (host_process){
        .state = HOST_RUNS, .pid = ++last_pid, .row = to_start.place ? to_start.row : 0, .start = to_start};
    child->blocked = host_processes[0].blocked;
    memcpy(child->variable, host_processes[0].variable, sizeof child->variable);
    host_copy_descriptors(&host_processes[0], child);
    sim_event("fork", child->pid, child->row);
    rules_forked(child);
    const int fiber = host_fiber_make(at, child_main, child);
    (void)fiber;
    return child->pid;
}

int __wrap_execv(const char *path, char *const *argv)
{
    (void)argv;
    host_enter(200 * SIM_US);
    sim_check(strcmp(path, "/proc/self/exe") == 0, "another program is started", 0, 0);
    if (host_fault(8 * host.no_room)) {
        errno = ENOMEM;
        return -1;
    }
    running->has_begun = true;
    host_close_at_exec(running);
    sim_event("exec", running->pid, running->row);
    rules_begun(running);
    host_fiber_wait(HOST_UNTIL, 0, host_now_ns() + sim_skewed(SIM_MS, 400 * SIM_MS)); /* the loader's */
    host_live(running);
}

pid_t __wrap_getpid(void)
{
    if (!running) return HOST_SUPERVISOR_PID;
    return running == host_processes || running->has_forked ? running->pid : HOST_SUPERVISOR_PID;
}

pid_t __wrap_getppid(void)
{
    return HOST_SUPERVISOR_PID;
}

int __wrap_prctl(int option, unsigned long value)
{
    if (option == PR_SET_PDEATHSIG) running->at_end = (int)value;
    return 0;
}

/* --- environments ------------------------------------------------------------------------------------------------- */

const char *host_variable_of(const host_process *process, const char *name)
{
    for (int i = 0; i < (int)NAMES; i++)
        if (strcmp(process->variable[i].name, name) == 0) return process->variable[i].value;
    return NULL;
}

int64_t host_number(const host_process *process, const char *name, int64_t otherwise)
{
    const char *text = host_variable_of(process, name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

char *__wrap_getenv(const char *name)
{
    return running ? (char *)(uintptr_t)host_variable_of(running, name) : __real_getenv(name);
}

int __wrap_unsetenv(const char *name)
{
    for (int i = 0; i < (int)NAMES; i++)
        if (strcmp(running->variable[i].name, name) == 0) running->variable[i].name[0] = 0;
    return 0;
}

int __wrap_setenv(const char *name, const char *value, int replace)
{
    (void)replace;
    if (host_fault(16 * host.no_room)) {
        errno = ENOMEM;
        return -1;
    }
    __wrap_unsetenv(name);
    int at = 0;
    while (at < (int)NAMES && running->variable[at].name[0]) at++;
    if (at == (int)NAMES || strlen(name) >= sizeof running->variable[0].name ||
        strlen(value) >= sizeof running->variable[0].value)
        sim_wrong("an environment has no room", at, (int64_t)strlen(value));
    strcpy(running->variable[at].name, name);
    strcpy(running->variable[at].value, value);
    return 0;
}
