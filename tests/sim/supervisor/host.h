/* The supervisor's simulator: supervise.c and workers/ as they are shipped, and of each worker what takes connections (worker.c, listen.c),
 * on a host that is drawn from one seed: processes, descriptors, signals, a clock, NVML. What its parts share.
 *
 * How       Each thread of each process is a fiber (fibers.c); one runs at a time, and gives way in the system's calls, which the
 *           linker puts in the place of the C library's (-Wl,--wrap). A process that is killed is never gone on with.
 * Words     host = the simulated machine; object = what a descriptor stands for; link = a client's connection; life = what a worker
 *           does from its exec to its end, beside the product's code.
 * Same      as in sim.h: a seed and a commit give the same events. */
#ifndef KS_SIM_HOST_H
#define KS_SIM_HOST_H
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

#include "daemon/workers/process.h"
#include "sim/sim.h"

enum {
    HOST_WORKERS = 4,
    HOST_PROCESSES = 8, /* the supervisor's is the first one */
    HOST_FDS = 128,
    HOST_LISTENERS = 3,
    HOST_LINKS = 64,
    HOST_SUPERVISOR_PID = 1000
};

/* What a seed has, beside sim's. */
typedef struct host_seed {
    int workers; /* 0: --supervise without --devices */
    bool gpus, systemd, watchdog;
    int listeners, admin; /* data listeners; one more, or none */
    int messages;         /* that a channel has room for */
    int no_files;         /* one call in so many finds no descriptor free; 0: none */
    int no_room;          /* one call in so many finds no memory of the kernel's */
    int64_t faults_ns;    /* from when on */
    int gives_way;        /* one call in so many lets another thread go on */
    int64_t run_ns;       /* when the operator stops it at the latest */
    int64_t drain_delay_ns, shutdown_timeout_ns;
    int connections;   /* of all workers */
    int links, orders; /* clients; what the operator does */
    int sick;          /* one life in so many is no good one */
} host_seed;
extern host_seed host;

/* --- world.c: the clock, and which thread goes on --- */
enum { HOST_START_S = 1000 };
void host_world_begin(void);
int64_t host_now_ns(void);
void host_pass(int64_t ns);
void host_run(void);     /* until the supervisor has ended */
void host_enter(int ns); /* a call of the system: time passes, and another thread may go on */
bool host_fault(int one_in);
bool host_supervisor_over(void);
void host_supervisor_returned(int code);
int64_t host_resumed_ns(void); /* when the supervisor was last let go on after a stop, or the host after a pause */
void host_supervisor_stops(int64_t until_ns);
void host_world_jumps(void);

/* --- fibers.c: threads --- */
typedef enum host_wait { HOST_READY, HOST_UNTIL, HOST_EPOLL, HOST_SIGNALS, HOST_FIBER, HOST_FOR_EVER } host_wait;
void host_fibers_begin(void);
int host_fiber_make(int process, void *(*main)(void *), void *context);
/* Waits; false: the time is over. what: an epoll's object, a mask, a fiber. */
bool host_fiber_wait(host_wait wait, uint32_t what, int64_t until_ns);
void host_fiber_gives_way(void);
_Noreturn void host_fiber_ends(void);
void host_fibers_kill(int process); /* all but the one that runs */
/* Of those that can go on: lets one do so. false: none can; *next_ns is when the first one may. */
bool host_fibers_turn(int64_t *next_ns);
void host_fiber_join(int fiber);

/* --- processes.c --- */
typedef struct host_life host_life;
typedef struct host_descriptor {
    int object; /* 0: none */
    bool closes;
} host_descriptor;
typedef struct host_variable {
    char name[40], value[128];
} host_variable;
typedef struct host_process {
    enum { HOST_FREE, HOST_RUNS, HOST_ENDED } state;
    int pid, status, row;
    bool has_forked, has_begun; /* its own code runs; its program does */
    int64_t stopped_ns;         /* until when it is stopped */
    uint32_t blocked, pending, refused;
    host_descriptor fd[HOST_FDS];
    host_variable variable[48];
    ks_process start; /* of its supervisor, as it was when it was forked */
    int at_end;       /* the signal that it gets when its parent ends */
    host_life *life;
} host_process;
extern host_process host_processes[HOST_PROCESSES];

void host_processes_begin(void);
void host_processes_end(void);
host_process *host_now(void); /* whose thread runs; NULL: none */
void host_set_now(host_process *process);
host_process *host_find(int pid);   /* that has not been reaped */
host_process *host_of_row(int row); /* that has not been reaped; NULL: it is down */
void host_signal(host_process *to, int signal);
void host_end_process(host_process *process, int status); /* all its threads but the one that runs */
_Noreturn void host_exit(int code);
int host_signalfd_read(uint32_t mask); /* 0: none is there */
bool host_has_signal(const host_process *process, uint32_t mask);
const char *host_variable_of(const host_process *process, const char *name);
int64_t host_number(const host_process *process, const char *name, int64_t otherwise);

/* --- descriptors.c --- */
typedef enum host_kind {
    HOST_NONE,
    HOST_SOCKET,
    HOST_LISTENER,
    HOST_LINK,
    HOST_CHANNEL,
    HOST_EPOLL_OBJECT,
    HOST_SIGNALFD,
    HOST_EVENTFD,
    HOST_MEMORY,
    HOST_STREAM
} host_kind;
void host_descriptors_begin(void);
int host_descriptors_count(const host_process *process);
int host_object_of(const host_process *process, int fd); /* 0: none */
host_kind host_kind_of(int object);
int host_index_of(int object); /* of a listener, a link, or a channel */
void host_close_all(host_process *process);
void host_copy_descriptors(const host_process *from, host_process *to);
void host_close_at_exec(host_process *process);
int host_give_listener(host_process *process, int listener); /* as systemd does */
bool host_epoll_is_ready(int object, const host_process *process);
int host_channel_held(int channel);
int host_channel_link(int channel, int at);
void host_channel_name(int channel, int row, bool admin);
int host_channel_row(int channel);
bool host_channel_is_admin(int channel);
int host_channels(void);
int host_channel_sending(int row);   /* workers that have counted one for that row, and not sent it yet */
struct ks_workers *host_table(void); /* NULL: not yet */
int host_close(int fd);
bool host_listens(int listener);
bool host_arrive(int listener, int link); /* a client connects; false: nothing listens */
int host_backlog(int listener);
void host_link_gone(int link); /* its client has closed it */
bool host_link_is_gone(int link);

/* --- life.c: a worker's, from its exec on --- */
void host_lives_begin(void);
_Noreturn void host_live(host_process *process);
void host_life_ends(host_process *process);
bool host_life_served(const host_process *process); /* it has been ready */
int host_life_holds(const host_process *process);   /* connections of the data listeners */

/* --- devices.c: NVML, nodes --- */
void host_devices_begin(void);
int host_device_needs(int row); /* as it was last said of it */
void host_device_draw(int row); /* what its GPU needs from now on */

/* --- clients.c: links, and the operator --- */
void host_clients_begin(void);
int64_t host_clients_next_ns(void);
void host_clients_turn(void);

/* --- rules.c: what must hold --- */
void rules_begin(void);
void rules_looked(void);               /* no thread can go on: the state of all */
void rules_clock_read(int64_t now_ns); /* by the supervisor */
void rules_waits(void);                /* the supervisor, for events */
void rules_arrived(int link);
void rules_accepted(int link, int process);
void rules_sent(int link, int channel);
void rules_received(int link, int channel);
void rules_taken(int link);
void rules_counts(void);      /* connections of workers, whenever a thread may give way */
void rules_lost(int link);    /* by the kernel: no program can help it */
void rules_freed(int link);   /* its last descriptor, and it is in no channel */
void rules_asked(int signal); /* sent to the supervisor */
void rules_heard(int signal); /* taken by it */
void rules_passed_on(host_process *to, int signal);
void rules_forked(host_process *child);
void rules_refused_fork(int row);
void rules_ended(const host_process *process); /* not reaped yet */
void rules_reaped(const host_process *process);
void rules_begun(const host_process *process); /* its program */
void rules_open_fault(void);
void rules_notified(const char *text, size_t n);
void rules_end(int code); /* of the supervisor */
#endif
