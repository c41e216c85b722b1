/* The table of workers (--devices): memory that the supervisor and all its workers map, a row for each worker. A row has what
 * the supervisor says of its worker, what the worker says of itself, and the worker's metrics and statistics as texts, so that one worker
 * answers for all of them without asking another one, which may be dead or stopped.
 *
 * Interface  supervisor: open, close, end. Worker: join, leave, publish. Documents: is_up, state, read.
 * Threads    each field has one writer at a time, as it says; all are atomic. The text has a sequence number: a reader copies it and
 *            looks whether it changed meanwhile.
 * Limits     KS_WORKERS_MAX; a text above KS_WORKER_TEXT_MAX, a part above KS_WORKER_PART_MAX, is not published. */
#ifndef KS_WORKERS_H
#define KS_WORKERS_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "observe/workers/connections.h"

#define KS_WORKER_STUCK_NS 2000000000LL
enum { KS_WORKERS_MAX = 16, KS_VERDICTS_KEPT = 64, KS_WORKER_UUID_MAX = 64 };
enum { KS_WORKER_TEXT_MAX = 4 << 20, KS_WORKER_PART_MAX = 8 << 20 };
enum { KS_PLACED_BYTES = 8 << 20 }; /* of names that one worker alone has (resident/placed.h) */

/* What it publishes: bytes that documents know. A part is what another worker has asked for (ask.h). */
typedef enum ks_worker_text { KS_WORKER_METRICS, KS_WORKER_STATS, KS_WORKER_PART, KS_WORKER_TEXTS } ks_worker_text;

/* As NVML counts its recovery actions; what a restart of the process heals or needs not heal is KS_RECOVERY_NONE. */
typedef enum ks_recovery {
    KS_RECOVERY_NONE,
    KS_RECOVERY_RESET,
    KS_RECOVERY_REBOOT,
    KS_RECOVERY_DRAIN_P2P,
    KS_RECOVERY_DRAIN_AND_RESET,
    KS_RECOVERIES
} ks_recovery;
extern const char *const ks_recovery_words[KS_RECOVERIES]; /* NULL: none is needed */

typedef struct ks_worker_row {
    /* the supervisor's, fixed before the first worker starts: */
    int device;                    /* its index, as --devices names it */
    int sharing;                   /* workers that have its processors, itself included */
    char uuid[KS_WORKER_UUID_MAX]; /* of its GPU; "": it has none */
    /* the supervisor's: */
    _Atomic int pid;       /* 0: it is down */
    _Atomic int exit_code; /* of the last one that ended; -1: none has */
    _Atomic int needs;     /* ks_recovery: of its GPU, before it can be started again */
    _Atomic uint64_t starts;
    /* the worker's, while it is up: */
    _Atomic int state;          /* ks_state */
    _Atomic int64_t beat_ns;    /* when its main thread had its last turn; 0: it has none yet */
    _Atomic bool accepts;       /* takes connections of the data listeners */
    _Atomic bool admits;        /* of the second one */
    _Atomic bool served;        /* has taken some since its start, which clears it */
    _Atomic bool asks;          /* takes connections of other workers, and wants what they have */
    _Atomic bool joined;        /* has what the others have, and takes part in their changes; the supervisor ends it */
    ks_connections connections; /* those on their way are the givers' to count */
    /* futexes: documents that want a new text; texts made */
    _Atomic uint32_t wanted, made;
    _Atomic uint64_t ask; /* of other workers, for a part (ask.h); 0: none yet */
    struct {
        _Atomic uint64_t sequence; /* odd: it is being written */
        _Atomic size_t bytes;
        size_t at; /* from the table's begin */
    } text[KS_WORKER_TEXTS];
} ks_worker_row;

typedef struct ks_workers {
    size_t bytes;
    int count;
    _Atomic uint32_t asks; /* of all workers (ask.h) */
    /* of changes that all workers make (ballot.h): */
    _Atomic uint32_t changer; /* the process that makes one; 0: none does. A futex */
    _Atomic uint64_t ballot;
    _Atomic uint32_t done[KS_VERDICTS_KEPT]; /* numbers of earlier ones that were done */
    /* of tensors that one of them has (resident/placed.h): */
    _Atomic uint32_t placer; /* a lock, as changer */
    size_t placed_at;        /* their table, from this one's begin */
    ks_worker_row row[];
} ks_workers;

/* Of one of several workers: gives a connection, whose next request is unread, to the worker of that row, which then owns it. */
typedef struct ks_hand_over {
    bool (*give)(void *context, int row, int fd, bool second, bool loopback); /* false: it stays the caller's */
    void *context;
} ks_hand_over;

/* The memory of a table of count workers, whose descriptor workers inherit; NULL: there is none (errno). */
ks_workers *ks_workers_open(int count, int *fd);
/* In a worker: the table of its supervisor. NULL: the descriptor is not one. */
ks_workers *ks_workers_join(int fd);
void ks_workers_close(ks_workers **workers); /* unmaps it */

/* A lock of all workers: a word that has the process whose thread holds it. false: another one had it until timeout_ns was over. */
bool ks_workers_lock(_Atomic uint32_t *lock, int pid, int64_t timeout_ns);
void ks_workers_unlock(_Atomic uint32_t *lock, int pid); /* pid: whose lock it is, or nothing happens */
void ks_workers_let_go(ks_workers *workers, int pid); /* the supervisor, of a process that has ended: all its locks */

int ks_workers_find(const ks_workers *workers, int device); /* its row; -1: there is none */
/* It is up, takes connections of the data listeners, and is not stuck. */
bool ks_worker_serves(const ks_worker_row *row, int64_t now_ns);
bool ks_worker_is_up(const ks_worker_row *row);
/* It serves, and then its main thread had no turn for KS_WORKER_STUCK_NS: its process is stopped, or gets no processor. */
bool ks_worker_is_stuck(const ks_worker_row *row, int64_t now_ns);
/* down, stuck, or the word of its state; ready is one that takes connections, too. Static text. states: those of ks_state. */
const char *ks_worker_word(const ks_worker_row *row, const char *const *states);
/* The worker's publisher alone: each text, then ks_worker_published, which wakes the documents that wait for them. */
void ks_worker_publish(ks_workers *workers, int index, ks_worker_text which, const char *text, size_t bytes);
void ks_worker_published(ks_worker_row *row);
/* Waits at most timeout_ns until a document wants a text, or (stop) the worker ends. */
void ks_worker_wait_wanted(ks_worker_row *row, uint32_t seen, int64_t timeout_ns);
void ks_worker_want(ks_worker_row *row); /* wakes its publisher */
/* Waits at most timeout_ns until it has published since made was seen. */
void ks_worker_wait_made(const ks_worker_row *row, uint32_t seen, int64_t timeout_ns);
/* Asks all the others that are up for new texts, and waits at most timeout_ns in all for them. */
void ks_workers_refresh(ks_workers *workers, int self, int64_t timeout_ns);
/* Appends the newest text. false: it is down, has none, or does not stop writing. */
bool ks_worker_read(ks_workers *workers, int index, ks_worker_text which, ks_text *out);
#endif
