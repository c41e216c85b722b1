/* Owns       the threads and the queue of run queues that wait for one of them.
 * Interface  hashers.h
 * Threads    its own; the lock is held but while bytes are hashed.
 * Limits     KS_HASHERS_MAX threads; runs are the callers' to bound. */
#include "resident/hashers.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ks_hashers {
    /* fixed after open: */
    pthread_t thread[KS_HASHERS_MAX];
    int count;
    /* under lock: */
    pthread_mutex_t lock;
    pthread_cond_t work, progress;
    ks_run_queue *first, *last; /* that wait for a hasher */
    int waiting;                /* threads in ks_hashers_wait */
    bool stop;
};

static void wake(ks_hash_waiter *waiter)
{
    const uint64_t one = 1;
    if (!waiter || waiter->wake_fd < 0 || !atomic_load(&waiter->asked) || !atomic_exchange(&waiter->asked, false))
        return;
    const ssize_t wrote = TEMP_FAILURE_RETRY(write(waiter->wake_fd, &one, sizeof one));
    (void)wrote; /* a full counter wakes all the same */
}

/* With the lock; without it while bytes are hashed. */
static void serve(ks_hashers *hashers, ks_run_queue *queue)
{
    while (queue->first) {
        ks_run *run = queue->first;
        pthread_mutex_unlock(&hashers->lock);
        queue->hash(queue, run->bytes, run->n);
        pthread_mutex_lock(&hashers->lock);
        queue->first = run->next;
        if (!queue->first) queue->busy = false;
        ks_hash_waiter *waiter = queue->waiter;
        atomic_fetch_sub(run->readers, 1);
        const bool over = !queue->busy;
        queue->done(queue, run); /* which may be the queue's end */
        wake(waiter);
        if (hashers->waiting > 0) pthread_cond_broadcast(&hashers->progress);
        if (over) return;
    }
}

static void *work(void *context)
{
    ks_hashers *hashers = context;
    pthread_mutex_lock(&hashers->lock);
    for (;;) {
        while (!hashers->first && !hashers->stop) pthread_cond_wait(&hashers->work, &hashers->lock);
        ks_run_queue *queue = hashers->first;
        if (!queue) break;
        hashers->first = queue->next;
        serve(hashers, queue);
    }
    pthread_mutex_unlock(&hashers->lock);
    return NULL;
}

void ks_run_queue_add(ks_hashers *hashers, ks_run_queue *queue, ks_run *run)
{
    atomic_fetch_add(run->readers, 1);
    run->next = NULL;
    *(queue->first ? &queue->last->next : &queue->first) = run;
    queue->last = run;
    if (queue->busy) return;
    queue->busy = true;
    queue->next = NULL;
    *(hashers->first ? &hashers->last->next : &hashers->first) = queue;
    hashers->last = queue;
    pthread_cond_signal(&hashers->work);
}

void ks_hashers_lock(ks_hashers *hashers)
{
    pthread_mutex_lock(&hashers->lock);
}

void ks_hashers_unlock(ks_hashers *hashers)
{
    pthread_mutex_unlock(&hashers->lock);
}

void ks_hashers_wait(ks_hashers *hashers)
{
    hashers->waiting++;
    pthread_cond_wait(&hashers->progress, &hashers->lock);
    hashers->waiting--;
}

ks_status ks_hashers_open(int threads, ks_hashers **out, ks_error *error)
{
    ks_hashers *hashers = calloc(1, sizeof *hashers);
    int failure = 0;
    if (!hashers) return ks_fail(error, KS_MEMORY, "no memory for the threads that hash tensors");
    pthread_mutex_init(&hashers->lock, NULL);
    pthread_cond_init(&hashers->work, NULL);
    pthread_cond_init(&hashers->progress, NULL);
    for (; hashers->count < threads && hashers->count < KS_HASHERS_MAX; hashers->count++) {
        failure = pthread_create(&hashers->thread[hashers->count], NULL, work, hashers);
        if (failure) break;
        pthread_setname_np(hashers->thread[hashers->count], "ks-hasher");
    }
    *out = hashers;
    if (!failure) return KS_OK;
    ks_hashers_close(out);
    return ks_fail(error, KS_SYSTEM, "cannot start a thread that hashes tensors: %s", strerror(failure));
}

void ks_hashers_close(ks_hashers **closed)
{
    ks_hashers *hashers = *closed;
    *closed = NULL;
    if (!hashers) return;
    pthread_mutex_lock(&hashers->lock);
    hashers->stop = true;
    pthread_cond_broadcast(&hashers->work);
    pthread_mutex_unlock(&hashers->lock);
    for (int i = 0; i < hashers->count; i++) pthread_join(hashers->thread[i], NULL);
    pthread_cond_destroy(&hashers->work);
    pthread_cond_destroy(&hashers->progress);
    pthread_mutex_destroy(&hashers->lock);
    free(hashers);
}
