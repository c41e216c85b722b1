/* What the documents and the control routes know of the daemon: its configuration, its device and its counters. One for the
 * daemon; its start fills it, and every reader of HTTP has its address. */
#ifndef KS_API_VIEW_H
#define KS_API_VIEW_H
#include <stdatomic.h>

#include "base/config/config.h"
#include "engine/engine.h"
#include "engine/regions.h"
#include "observe/metrics.h"
#include "observe/nvml.h"
#include "observe/timeline.h"

enum { KS_SHARDS_MAX = 64 };

typedef struct ks_api_view {
    /* fixed after start: */
    const ks_config *config;
    const ks_device_info *device_info;
    const ks_budget *budget;
    ks_regions *regions; /* NULL: client shared memory is off */
    ks_metrics *metrics;
    ks_timeline *timeline; /* NULL: none is kept */
    ks_nvml *nvml;         /* the second listener's thread; NULL: nothing to ask */
    int shards;
    /* any thread, atomic; the daemon's: */
    const _Atomic int *state; /* ks_state */
    const _Atomic uint64_t *device_faults;
    const _Atomic int64_t *tls_expiry_s; /* of the certificate; 0: there is none */
    /* any thread, atomic: */
    _Atomic int warm_done, warm_total;
    _Atomic bool
        log_iso8601; /* the name that /v2/logging gives the times in our lines, which are ISO 8601 either way */
    /* under the lock of documents.c: */
    const ks_engine *engines[KS_SHARDS_MAX]; /* one per shard, by ks_document_engine */
} ks_api_view;
#endif
