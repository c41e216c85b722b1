/* Owns      the thread.
 * Interface keeper.h
 * Threads   open and close: main's.
 * Limits    a turn each second. */
#include "daemon/tensors/keeper.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

struct ks_keeper {
    const ks_backend *backend;
    ks_device *device;
    ks_store *store;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop; /* under lock */
};

/* false: asked to stop. */
static bool wait_a_second(ks_keeper *keeper)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&keeper->lock);
    while (!keeper->stop && pthread_cond_timedwait(&keeper->changed, &keeper->lock, &until) == 0) {
    }
    const bool go_on = !keeper->stop;
    pthread_mutex_unlock(&keeper->lock);
    return go_on;
}

static void *work(void *context)
{
    ks_keeper *keeper = context;
    while (wait_a_second(keeper)) {
        if (keeper->store) ks_store_turn(keeper->store, ks_now_ns());
        keeper->backend->resident->trim(keeper->device);
    }
    return NULL;
}

static void open_lock(ks_keeper *keeper)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&keeper->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&keeper->lock, NULL);
}

static void close_lock(ks_keeper *keeper)
{
    pthread_cond_destroy(&keeper->changed);
    pthread_mutex_destroy(&keeper->lock);
}

ks_status ks_keeper_open(const ks_backend *backend, ks_device *device, ks_store *store, ks_keeper **out,
                         ks_error *error)
{
    ks_keeper *keeper = calloc(1, sizeof *keeper);
    if (!keeper) return ks_fail(error, KS_MEMORY, "no memory for the thread that looks after memory");
    keeper->backend = backend;
    keeper->device = device;
    keeper->store = store;
    open_lock(keeper);
    const int failure = pthread_create(&keeper->thread, NULL, work, keeper);
    if (failure) {
        close_lock(keeper);
        free(keeper);
        return ks_fail(error, KS_SYSTEM, "cannot start the thread that looks after memory: %s", strerror(failure));
    }
    pthread_setname_np(keeper->thread, "ks-keeper");
    *out = keeper;
    return KS_OK;
}

void ks_keeper_close(ks_keeper **closed)
{
    ks_keeper *keeper = *closed;
    *closed = NULL;
    if (!keeper) return;
    pthread_mutex_lock(&keeper->lock);
    keeper->stop = true;
    pthread_cond_signal(&keeper->changed);
    pthread_mutex_unlock(&keeper->lock);
    pthread_join(keeper->thread, NULL);
    close_lock(keeper);
    free(keeper);
}
