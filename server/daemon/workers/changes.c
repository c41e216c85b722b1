/* Owns       the thread, and the changes that wait for it.
 * Interface  changes.h
 * Threads    its own; one lock for what waits.
 * Limits     KS_CHANGES_WAIT_MAX changes wait. */
#include "daemon/workers/changes.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/workers/changes_parts.h"

enum { TRIES = 3 };
static const int64_t idle_ns = 20 * KS_MS, lock_ns = 30 * KS_S, turn_ns = KS_S;

/* --- what waits --------------------------------------------------------------------------------------------------- */

static void wake(int fd)
{
    const uint64_t one = 1;
    if (fd >= 0 && TEMP_FAILURE_RETRY(write(fd, &one, sizeof one)) < 0) {
        /* The counter is full: the shard has wake-ups enough. */
    }
}

static void finish(ks_change *change)
{
    atomic_store(&change->done, true);
    wake(change->wake_fd);
    ks_change_drop(&change);
}

/* ks_change_door.give */
static void give(void *context, ks_change *change)
{
    ks_changes *self = context;
    pthread_mutex_lock(&self->lock);
    const bool room = !self->stop && self->waiting < KS_CHANGES_WAIT_MAX;
    if (room) {
        change->next = NULL;
        *self->last = change;
        self->last = &change->next;
        self->waiting++;
        pthread_cond_signal(&self->given);
    }
    pthread_mutex_unlock(&self->lock);
    if (room) return;
    ks_fail(&change->fault, KS_BUDGET, "%d changes of all workers wait already", KS_CHANGES_WAIT_MAX);
    finish(change);
}

/* NULL: none has come for a while, or the thread is to stop, and none is left. */
static ks_change *next_change(ks_changes *self, bool *stop)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += idle_ns;
    until.tv_sec += until.tv_nsec / KS_S;
    until.tv_nsec %= KS_S;
    pthread_mutex_lock(&self->lock);
    if (!self->first && !self->stop) pthread_cond_timedwait(&self->given, &self->lock, &until);
    ks_change *change = self->first;
    if (change) {
        self->first = change->next;
        if (!self->first) self->last = &self->first;
        self->waiting--;
    }
    *stop = self->stop;
    pthread_mutex_unlock(&self->lock);
    return change;
}

/* --- their turn --------------------------------------------------------------------------------------------------- */

/* A worker that ends amid it is out of the next try. */
static void make_for(ks_changes *self, ks_change *change)
{
    for (int tries = 0; tries < TRIES; tries++) {
        if (!ks_changes_begin(self, lock_ns)) {
            ks_fail(&change->fault, KS_UNAVAILABLE, "another change of all workers is under way, and takes long");
            return;
        }
        change->fault = (ks_error){.status = KS_OK};
        const unsigned before = ks_changes_joined(self);
        const ks_status status = ks_changes_make(self, change->fd, change, &change->fault);
        ks_changes_end(self);
        if (status != KS_UNAVAILABLE) return;
        const int64_t until_ns = ks_now_ns() + KS_S;
        while (ks_changes_joined(self) == before && ks_now_ns() < until_ns) usleep(1000);
        if (ks_changes_joined(self) == before) return;
    }
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void *work(void *context)
{
    ks_changes *self = context;
    bool stop = false;
    int64_t turned_ns = 0;
    pthread_setname_np(pthread_self(), "ks-changes");
    while (!stop) {
        ks_change *change = next_change(self, &stop);
        if (!stop) ks_changes_join(self);
        if (change) {
            stop = false; /* until all that wait are made */
            make_for(self, change);
            finish(change);
        }
        if (ks_now_ns() - turned_ns < turn_ns) continue;
        turned_ns = ks_now_ns();
        ks_changes_expire(self);
    }
    return NULL;
}

static void open_lock(ks_changes *self)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->given, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&self->lock, NULL);
}

static void wait_joined(ks_daemon *daemon, bool (*stops)(void))
{
    ks_worker_row *row = daemon->row;
    while (!atomic_load(&row->joined) && !stops()) {
        atomic_store(&row->beat_ns, ks_now_ns());
        usleep(2000);
    }
    atomic_store(&row->beat_ns, ks_now_ns());
    if (!atomic_load(&row->joined))
        return; /* it is to stop: it has asked no other one for lost names, and takes no client */
    if (!atomic_load(&daemon->changes->founds)) ks_changes_forget(daemon->changes);
    atomic_store(&row->accepts, true);
    atomic_store(&row->served, true);
}

bool ks_changes_are_made(const ks_daemon *daemon)
{
    return daemon->workers && daemon->workers->count > 1 && daemon->store;
}

ks_status ks_changes_open(ks_daemon *daemon, bool (*stops)(void), ks_error *error)
{
    if (!ks_changes_are_made(daemon)) return KS_OK;
    ks_changes *self = daemon->changes;
    if (pthread_create(&self->thread, NULL, work, self) != 0)
        return ks_fail(error, KS_SYSTEM, "cannot start the thread of changes");
    self->started = true;
    wait_joined(daemon, stops);
    return KS_OK;
}

ks_status ks_changes_prepare(ks_daemon *daemon, ks_error *error)
{
    if (!ks_changes_are_made(daemon)) return KS_OK;
    ks_changes *self = calloc(1, sizeof *self);
    if (!self) return ks_fail(error, KS_SYSTEM, "no memory for changes of all workers");
    self->daemon = daemon;
    self->last = &self->first;
    self->pid = getpid();
    open_lock(self);
    daemon->changes = self;
    daemon->api.change_door = (ks_change_door){.give = give, .context = self};
    return KS_OK;
}

void ks_changes_close(ks_daemon *daemon)
{
    ks_changes *self = daemon->changes;
    daemon->changes = NULL;
    if (!self) return;
    pthread_mutex_lock(&self->lock);
    self->stop = true;
    pthread_cond_signal(&self->given);
    pthread_mutex_unlock(&self->lock);
    if (self->started) pthread_join(self->thread, NULL);
    ks_changes_drop_kept(self);
    pthread_cond_destroy(&self->given);
    pthread_mutex_destroy(&self->lock);
    free(self);
}
