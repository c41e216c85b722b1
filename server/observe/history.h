/* The counters as they stood at each of the last 300 seconds, for figures of the last ten seconds and five minutes.
 *
 * Limits   KS_HISTORY_S seconds; of models the last KS_HISTORY_SHORT_S. Before so much time has passed a figure is of what there is.
 * Threads  one at a time.
 * Units    ns, bytes. Counters are differences of the daemon's metrics, so that both say the same. */
#ifndef KS_HISTORY_H
#define KS_HISTORY_H
#include "observe/metrics.h"
#include "observe/overlap.h"

enum { KS_HISTORY_S = 300, KS_HISTORY_SHORT_S = 10 };

/* X(name): what has a value at each time, and a limit */
#define KS_GAUGE_TABLE(X)                                                                                              \
    X(queue)                                                                                                           \
    X(in_flight)                                                                                                       \
    X(connections) X(inflight_bytes) X(slot_bytes) X(plan_cache_bytes) X(lanes) X(tensors) X(resident_bytes)
typedef enum ks_gauge {
#define X(name) KS_GAUGE_##name,
    KS_GAUGE_TABLE(X)
#undef X
        KS_GAUGES
} ks_gauge;

typedef struct ks_load {
    int64_t span_ns;                        /* that the figures are of; 0: nothing is known yet */
    uint64_t requests, in_bytes, out_bytes; /* infer requests that ended; their bodies, as sent */
    int64_t p50_ns, p99_ns, max_ns;         /* at most, of those answered 200, to a sixteenth; -1: there was none */
} ks_load;

/* Of requests answered 200. */
typedef struct ks_model_times {
    uint64_t requests, total_ns, phase_ns[KS_PHASES];
} ks_model_times;

typedef struct ks_history ks_history;

ks_history *ks_history_open(const ks_metrics *metrics, int64_t now_ns); /* NULL: memory */
void ks_history_close(ks_history **history);
void ks_history_gauges(ks_history *history, const int64_t now[KS_GAUGES]); /* at any time: the maxima are of these */
/* A second has passed. overlap: sums since the start, or NULL. */
void ks_history_second(ks_history *history, int64_t now_ns, const ks_overlap_sums *overlap);

/* Of the last seconds, 1 to KS_HISTORY_S. */
void ks_history_load(const ks_history *history, int seconds, ks_load *out);
void ks_history_overlap(const ks_history *history, int seconds, ks_overlap_sums *out);
void ks_history_window(const ks_history *history, int seconds, int64_t *from_ns,
                       int64_t *to_ns);                             /* what overlap covers */
int64_t ks_history_now(const ks_history *history, ks_gauge gauge);  /* the last that was given */
int64_t ks_history_most(const ks_history *history, ks_gauge gauge); /* of KS_HISTORY_S */
uint64_t ks_history_rejected(const ks_history *history, ks_status status);
uint64_t ks_history_aborted(const ks_history *history, ks_count count); /* KS_COUNT_aborted_... */
/* Of the last KS_HISTORY_SHORT_S. */
void ks_history_model(const ks_history *history, int model, ks_model_times *out);
#endif
