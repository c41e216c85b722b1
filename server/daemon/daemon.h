/* What all shards and the second listener share: fixed after start, but for the atomics. main.c fills it; what was
 * automatic in the configuration (threads, lanes, max_work, inflight_bytes) is settled before a shard sees it. */
#ifndef KS_DAEMON_H
#define KS_DAEMON_H
#include <stdatomic.h>

#include "api/view.h"
#include "http/http.h"
#include "base/config/config.h"
#include "engine/engine.h"
#include "observe/metrics.h"
#include "observe/otlp/otlp.h"
#include "observe/timeline.h"
#include "observe/workers/workers.h"
#include "engine/regions.h"
#include "models/repository.h"
#include "models/table.h"
#include "resident/hashers.h"
#include "resident/store.h"
#include "base/tokens.h"

typedef struct ks_daemon {
    /* fixed after start: */
    const ks_config *config;
    const ks_backend *backend;
    ks_device *device;
    ks_device_info device_info;
    ks_budget *budget;
    ks_regions *regions;        /* NULL: client shared memory is off */
    ks_store *store;            /* of resident tensors; NULL: none stay */
    ks_hashers *hashers;        /* of their uploads; NULL: likewise */
    ks_models *models;          /* that clients load; NULL: likewise */
    ks_repository *repository;  /* of models on disk; NULL: there is none */
    ks_metrics *metrics;        /* writers: shards, then the admin thread */
    ks_timeline *timeline;      /* writers: shards; NULL: none is kept */
    ks_plan_catalogs *catalogs; /* writers: shards */
    ks_ceiling_store *ceilings; /* measured by the admin thread */
    ks_otlp *otlp;              /* writers: shards; NULL: no spans are exported */
    ks_engine_options engine;   /* of each shard, all but wake_fd: slot classes, lanes, queue, plan cache */
    int shards;
    ks_addresses *addresses;          /* of the data listeners' clients */
    int room_fd;                      /* eventfd of the listener: connections that gave way have been replaced */
    bool tls;                         /* there is a data listener with TLS */
    ks_workers *workers;              /* of which this is one (--devices); NULL: it is alone */
    int worker;                       /* its row */
    ks_hand_over hand_over;           /* to other workers; give NULL: there is none */
    struct ks_changes *changes;       /* that all workers make; NULL: there are no others, or nothing stays */
    int give_fds[2 * KS_WORKERS_MAX]; /* a row's data channel, its other one, the next row's ... */
    int second_number,
        data_number
            [2]; /* the numbers of a listener that such a connection may have come from, by whether it is loopback; -1: none */
    int data_fd, admin_fd; /* of a worker: from where its connections come, in place of listeners */
    ks_worker_row *row;    /* its own, or that of one that is alone: states, connections */
    bool loopback_only;    /* every data listener is loopback or unix: the Host check applies */
    /* any thread, atomic: */
    ks_token_store tokens; /* SIGHUP may replace them: followed for each request */
    ks_worker_row alone;
    _Atomic uint64_t device_faults;
    _Atomic bool fault_told;      /* a shard has logged why */
    _Atomic int64_t tls_expiry_s; /* of the certificate; 0: there is none */
    _Atomic int64_t checked_ns;   /* when the known-answer kernel last passed */
    /* its atomics by any thread: */
    ks_api_view api; /* for the documents; owns nothing */
} ks_daemon;

/* For a reader of HTTP on the caller's thread: a shard's, or with engine NULL the second listener's. */
ks_http_options ks_daemon_http(ks_daemon *daemon, ks_engine *engine, ks_shard_metrics *metrics, int wake_fd);
/* What the documents read, once budget, metrics and regions are open. */
void ks_daemon_fill_api(ks_daemon *daemon);
#endif
