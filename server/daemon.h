/* What all shards and the second listener share: fixed after start, but for the atomics. main.c fills it. */
#ifndef KS_DAEMON_H
#define KS_DAEMON_H
#include <stdatomic.h>

#include "config.h"
#include "engine.h"
#include "metrics.h"

typedef struct ks_daemon {
    /* fixed after start: */
    const ks_config *config;
    const ks_backend *backend;
    ks_device *device;
    ks_device_info device_info;
    ks_budget *budget;
    ks_metrics *metrics;            /* writers: shards, then the admin thread */
    int shards;
    const ks_engine *engines[64];   /* one per shard; for pages */
    bool loopback_only;             /* every data listener is loopback or unix: the Host check applies */
    const char *const *tokens;      /* NULL-terminated; NULL: no authentication */
    /* any thread, atomic: */
    _Atomic int state;              /* ks_state */
    _Atomic int warm_done, warm_total;
    _Atomic int connections;        /* open on data listeners */
    _Atomic uint64_t device_faults;
    _Atomic int64_t checked_ns;     /* when the known-answer kernel last passed */
} ks_daemon;
#endif
