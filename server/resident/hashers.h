/* Threads that hash bytes where they lie, while shards receive others. One pool for the daemon.
 *
 * Words    run = bytes that follow each other; queue = runs that are hashed one behind the other, by one hasher at a time. Run queues
 *          have no order among each other.
 * Readers  a run counts in *readers from ks_run_queue_add until it is hashed: its bytes stay where they are until then.
 * Owner    run queues and runs are the caller's, and do not move while a queue has runs.
 * Threads  any; a queue is one caller's. The lock is for all run queues: what a queue's functions change is under it. */
#ifndef KS_HASHERS_H
#define KS_HASHERS_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "kernserve/status.h"

enum { KS_HASHERS_MAX = 64 };

typedef struct ks_hashers ks_hashers;
typedef struct ks_run_queue ks_run_queue;

typedef struct ks_run {
    const unsigned char *bytes;
    size_t n;
    _Atomic int *readers;
    struct ks_run *next;
} ks_run;

/* A shard that may sleep until a run is hashed. It sets `asked`, looks whether it can go on, and sleeps. */
typedef struct ks_hash_waiter {
    int wake_fd;        /* an eventfd; written once a run is hashed and `asked` is set, which ends that; -1: none */
    _Atomic bool asked; /* any thread */
} ks_hash_waiter;

struct ks_run_queue {
    /* fixed while there are runs: */
    void (*hash)(ks_run_queue *queue, const unsigned char *bytes, size_t n); /* without the lock */
    void (*done)(ks_run_queue *queue, ks_run *run); /* with the lock: the run is hashed, and has left the queue */
    ks_hash_waiter *waiter;
    /* under lock: */
    ks_run *first, *last;
    ks_run_queue *next; /* of those that wait for a hasher */
    bool busy;          /* it waits for one, or has one */
};

/* KS_SYSTEM, KS_MEMORY. */
ks_status ks_hashers_open(int threads, ks_hashers **out, ks_error *error);
void ks_hashers_close(ks_hashers **hashers); /* no queue has runs */

void ks_hashers_lock(ks_hashers *hashers);
void ks_hashers_unlock(ks_hashers *hashers);
void ks_run_queue_add(ks_hashers *hashers, ks_run_queue *queue, ks_run *run); /* with the lock */
void ks_hashers_wait(ks_hashers *hashers);                                    /* with the lock, until a run is hashed */
#endif
