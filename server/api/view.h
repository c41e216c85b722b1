/* What the documents and the control routes know of the daemon: its configuration, its device and its counters. One for the
 * daemon; its start fills it, and every reader of HTTP has its address. */
#ifndef KS_API_VIEW_H
#define KS_API_VIEW_H
#include <stdatomic.h>

#include "base/config/config.h"
#include "observe/roofline/ceilings.h"
#include "engine/engine.h"
#include "engine/plan_catalog.h"
#include "engine/regions.h"
#include "observe/metrics.h"
#include "observe/nvml.h"
#include "observe/otlp/otlp.h"
#include "observe/overlap.h"
#include "observe/timeline.h"
#include "observe/workers/workers.h"
#include "models/table.h"
#include "resident/store.h"

enum { KS_SHARDS_MAX = 64 };

/* Of one of several workers: where changes go that all of them make (changes/change.h). It takes one hold of the change. */
struct ks_change;
typedef struct ks_change_door {
    void (*give)(void *context, struct ks_change *change); /* NULL: no changes are made */
    void *context;
} ks_change_door;

typedef struct ks_api_view {
    /* fixed after start: */
    const ks_config *config;
    const ks_device_info *device_info;
    ks_budget *budget;
    ks_regions *regions; /* NULL: client shared memory is off */
    ks_store *store;     /* NULL: no tensors are kept */
    ks_models *models;   /* that clients load; NULL: likewise */
    ks_metrics *metrics;
    ks_timeline *timeline;     /* NULL: none is kept */
    const ks_overlap *overlap; /* NULL: no timeline, or no second listener, whose thread counts it */
    const ks_otlp *otlp;       /* NULL: no spans are exported */
    const ks_plan_catalogs *catalogs;
    ks_ceiling_store *ceilings;
    /* the second listener's thread: */
    struct ks_board *board; /* NULL: there is no such listener */
    ks_nvml *nvml;          /* NULL: nothing to ask */
    int shards;
    /* any thread, atomic; the daemon's: */
    ks_workers *workers;    /* of which this is one; NULL: it is alone */
    int worker;             /* its row */
    ks_hand_over hand_over; /* to other workers */
    ks_change_door change_door;
    const _Atomic int *state; /* ks_state */
    const _Atomic uint64_t *device_faults;
    const ks_connections *connections;
    const _Atomic int64_t *tls_expiry_s; /* of the certificate; 0: there is none */
    /* any thread, atomic: */
    _Atomic int warm_done, warm_total;
    _Atomic int64_t device_used_bytes, device_free_bytes; /* -1: not known */
    _Atomic bool
        log_iso8601; /* the name that /v2/logging gives the times in our lines, which are ISO 8601 either way */
    /* under the lock of view.c: */
    const ks_engine *engines[KS_SHARDS_MAX]; /* one per shard, by ks_view_engine */
} ks_api_view;

/* The device of this worker, where it is one of several; -1: what a document is about needs no name. */
int ks_view_device(const ks_api_view *view);
/* Of a request that names a device, whose connection would have gone to that worker: that it is this one's. data: of a data listener.
 * KS_PARAMETER: no worker has it; KS_UNAVAILABLE; KS_UNSUPPORTED: the connection cannot go there. */
ks_status ks_view_check_device(const ks_api_view *view, int device, bool data, ks_error *error);
/* ,"missing":[1,2]: the devices of workers that have not answered. answered: their rows, as bits. */
void ks_view_missing(const ks_api_view *view, unsigned answered, ks_text *out);

/* A shard's engine, for documents: known from now on, or (NULL) about to end. Waits for a document that reads it. */
void ks_view_engine(ks_api_view *view, int shard, const ks_engine *engine);
/* The counters of the engines that are known; returns how many. Any thread. */
int ks_view_engines(ks_api_view *view, ks_engine_stats out[KS_SHARDS_MAX]);
#endif
