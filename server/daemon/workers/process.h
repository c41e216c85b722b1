/* A daemon that the supervisor starts: fork, descriptors and environment as systemd sets them, exec; and what its end says.
 * One thread. */
#ifndef KS_PROCESS_H
#define KS_PROCESS_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/listen.h"
#include "daemon/workers/places.h"

/* In the daemon's environment: the process that passes signals on to it. */
#define KS_SUPERVISOR_PID "KERNSERVE_SUPERVISOR_PID"
/* How often it has started the daemon, and the descriptor of the memory that keeps the names of tensors from one to the next. */
#define KS_SUPERVISOR_STARTS "KERNSERVE_SUPERVISOR_STARTS"
#define KS_SUPERVISOR_RECORD "KERNSERVE_SUPERVISOR_RECORD"
/* Of a worker: the descriptors of the table and of its ends of the channels, and its row. */
#define KS_SUPERVISOR_TABLE "KERNSERVE_SUPERVISOR_TABLE"
#define KS_SUPERVISOR_DATA "KERNSERVE_SUPERVISOR_DATA"
#define KS_SUPERVISOR_ADMIN "KERNSERVE_SUPERVISOR_ADMIN"
/* And the first one of the ends by which it gives: a row's data channel, its other one, the next row's ... */
#define KS_SUPERVISOR_GIVE "KERNSERVE_SUPERVISOR_GIVE"
#define KS_SUPERVISOR_WORKER "KERNSERVE_SUPERVISOR_WORKER"

enum { KS_STARTS_MAX = 5, KS_STARTS_WINDOW_S = 60, KS_OTHER_FDS = 4 + 2 * KS_WORKERS_MAX };
static const int64_t KS_START_PAUSE_NS = 1000000000; /* behind an end */

typedef struct ks_sockets {
    int fds[KS_LISTENERS_MAX];
    const char *names[KS_LISTENERS_MAX]; /* under which the daemon gets them */
    int count;
} ks_sockets;

typedef struct ks_process {
    /* fixed before the first start: */
    const ks_sockets *sockets;
    char **argv;
    struct {
        const char *variable; /* that says which descriptor it has become; NULL: none does, it follows the one before */
        int fd;               /* -1: there is none */
    } other[KS_OTHER_FDS];
    int others;
    const ks_place *place; /* of a worker; NULL: it is no worker */
    int row;               /* its, in the table */
    _Atomic int *needs;    /* of its row: what its GPU needs before it can be started again */
    /* its starts: */
    pid_t pid;                         /* 0: none runs */
    int64_t started_ns[KS_STARTS_MAX]; /* a ring */
    int starts;
} ks_process;

bool ks_process_start(ks_process *process); /* errno */
/* When it may be started again at the earliest: too many starts in too short a time heal nothing. */
int64_t ks_process_may_start_ns(const ks_process *process);
/* The same, and not before KS_START_PAUSE_NS are over. */
int64_t ks_process_next_start_ns(const ks_process *process);
/* The exit code; 128 + N for a signal, as shells say it. */
int ks_process_code(int status);
bool ks_process_is_worth_a_retry(int code);
/* How long one may take that is asked to stop; longer, it takes no signal, and is killed. */
int64_t ks_process_leaves_ns(const ks_config *config);
/* Memory that keeps the names of tensors from one daemon to the next; -1: there is none. */
int ks_process_record(void);
/* In a daemon: what its supervisor says in the environment, if one has started this process. */
int64_t ks_process_said(const char *variable, int64_t otherwise);
#endif
