/* What the thread of changes (changes.c) consists of, from the lowest up: kept.c which take part and what is kept, agree.c one change,
 * joining.c what a worker that is started is given, and what goes by its time. */
#ifndef KS_CHANGES_PARTS_H
#define KS_CHANGES_PARTS_H
#include <pthread.h>

#include "daemon/workers/changes.h"

/* A model's last change. */
typedef struct ks_kept_change {
    int fd;
    ks_change_tail tail;
    struct ks_kept_change *next;
} ks_kept_change;

struct ks_changes {
    ks_daemon *daemon;
    pthread_t thread;
    bool started;
    int pid;
    _Atomic bool founds; /* it has joined where no other one was */
    int64_t join_due_ns; /* its thread's: none is given anything before */
    pthread_mutex_t lock;
    pthread_cond_t given;
    /* under lock: */
    ks_change *first, **last;
    int waiting;
    bool stop;
    ks_kept_change *kept; /* in the order of their changes */
};

/* --- kept.c --- */

unsigned ks_changes_joined(const ks_changes *self); /* rows, as bits */
/* A copy of the descriptor is kept, here and in the other workers; nothing, where what it is about is gone for good. */
void ks_changes_keep(ks_changes *self, int fd, const ks_change_tail *tail);
void ks_changes_give_kept(const ks_changes *self, int row, int fd);
void ks_changes_drop_kept(ks_changes *self);

/* --- agree.c --- */

/* The lock of all workers; false: not now. */
bool ks_changes_begin(ks_changes *self, int64_t wait_ns);
void ks_changes_end(ks_changes *self);
/* With it: what a file asks for, in all of them or in none. change: has the answer then; NULL: it is not wanted. */
ks_status ks_changes_make(ks_changes *self, int fd, ks_change *change, ks_error *error);

/* --- joining.c --- */

/* This worker joins, where there is no other one; others that ask are given what this one has, where that is its task. */
void ks_changes_join(ks_changes *self);
/* Of one that has joined others: names that its former process has lost, and that they do not know. */
void ks_changes_forget(ks_changes *self);
/* Tensors whose time is over. */
void ks_changes_expire(ks_changes *self);
#endif
