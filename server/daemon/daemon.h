/* What all shards and the second listener share: fixed after start, but for the atomics. main.c fills it; what was
 * automatic in the configuration (threads, lanes, max_work, inflight_bytes) is settled before a shard sees it. */
#ifndef KS_DAEMON_H
#define KS_DAEMON_H
#include <stdatomic.h>

#include "http/addresses.h"
#include "base/config/config.h"
#include "engine/engine.h"
#include "observe/metrics.h"
#include "observe/nvml.h"
#include "engine/regions.h"
#include "base/tokens.h"

typedef struct ks_daemon {
    /* fixed after start: */
    const ks_config *config;
    const ks_backend *backend;
    ks_device *device;
    ks_device_info device_info;
    ks_budget *budget;
    ks_regions *regions;      /* NULL: client shared memory is off */
    ks_metrics *metrics;      /* writers: shards, then the admin thread */
    ks_engine_options engine; /* of each shard, all but wake_fd: slot classes, lanes, queue, plan cache */
    ks_nvml *nvml;            /* the second listener's thread; NULL: nothing to ask */
    int shards;
    const ks_engine *engines[64]; /* one per shard; for pages */
    ks_addresses *addresses;      /* of the data listeners' clients */
    int room_fd;                  /* eventfd of the listener: connections that gave way have been replaced */
    bool loopback_only;           /* every data listener is loopback or unix: the Host check applies */
    /* any thread, atomic: */
    ks_token_store tokens; /* SIGHUP may replace them: followed for each request */
    _Atomic int state;     /* ks_state */
    _Atomic bool
        log_iso8601; /* the name that /v2/logging gives the times in our lines, which are ISO 8601 either way */
    _Atomic int warm_done, warm_total;
    _Atomic int connections; /* open on data listeners */
    _Atomic uint64_t device_faults;
    _Atomic bool fault_told;    /* a shard has logged why */
    _Atomic int64_t checked_ns; /* when the known-answer kernel last passed */
} ks_daemon;
#endif
