/* The counters behind metrics.h: metrics.c counts, metrics_text.c writes pages, history.c keeps what a second has counted. */
#ifndef KS_METRICS_CELLS_H
#define KS_METRICS_CELLS_H
#include <stdatomic.h>

#include "observe/latency.h"
#include "observe/metrics.h"
#include "base/model.h"

/* One writer: its own thread adds by load and store, without a locked instruction. Anyone may read. */
typedef _Atomic uint64_t ks_cell;

enum { KS_CODES = 28 };

/* Buckets are not cumulative here; the last one is +Inf. */
typedef struct ks_histogram {
    ks_cell bucket[KS_BOUNDS + 1];
    ks_cell sum_ns;
} ks_histogram;

typedef struct ks_stats_cells {
    _Atomic uint64_t sequence; /* odd while the writer is inside */
    ks_cell last_inference_ms;
    ks_cell success, success_ns, fail, fail_ns, queue_ns, compute_input_ns, compute_infer_ns, compute_output_ns;
    ks_cell executions;
    ks_cell execution_part; /* of one execution, in 1/2^24: batches whose members have not all been counted */
} ks_stats_cells;

typedef struct ks_model_cells {
    _Alignas(64) ks_stats_cells stats;
    ks_cell requests[KS_FORMAT_LABELS][KS_OUTCOMES];
    ks_histogram duration;
    ks_histogram phase[KS_PHASES];
    ks_cell kernel_ns, kernel_bytes, kernel_flops; /* of timed kernels */
} ks_model_cells;

/* A request of a bucket of a model's duration. Any shard writes: the sequence is odd while one does, and another one that comes then
 * leaves it. 0: there was none. */
typedef struct ks_exemplar {
    _Atomic uint64_t sequence;
    ks_cell trace[2], total_ns, wall_ms;
} ks_exemplar;

struct ks_shard_metrics {
    _Alignas(64) ks_model_cells model[KS_MODELS_MAX + 1]; /* the last: unknown models */
    ks_cell count[KS_COUNTS];
    ks_cell http[KS_HANDLERS][KS_METHODS][KS_CODES];
    ks_cell http_in[KS_HANDLERS], http_out[KS_HANDLERS];
    ks_cell rejected[KS_STATUS_COUNT];
    ks_exemplar (*exemplars)[KS_BOUNDS + 1]; /* the daemon's, by model */
    ks_cell latency[KS_LATENCY_STEPS];       /* requests answered 200, of all models, by ks_latency_step */
};

struct ks_metrics {
    int writers;
    ks_shard_metrics *shard;
    ks_exemplar (*exemplars)[KS_BOUNDS + 1]; /* KS_MODELS_MAX; memory of models without any is never touched */
    _Atomic uint64_t address_full;
    _Atomic int reload_successful;
    _Atomic int64_t reload_success_ns; /* wall time */
};

/* false: there is none. */
bool ks_metrics_exemplar_read(const ks_exemplar *exemplar, uint64_t trace[2], uint64_t *total_ns, uint64_t *wall_ms);
uint64_t ks_metrics_sum(const ks_metrics *metrics, ks_count count); /* of all writers */

extern const int64_t ks_bound_ns[KS_BOUNDS];
extern const char *const ks_bound_text[KS_BOUNDS + 1];
extern const int ks_http_codes[KS_CODES]; /* the last is 0: any other */
#endif
