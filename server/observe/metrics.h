/* Counters of each shard (one writer each, C11 atomics, no lock, no allocation on the path), summed when the document is made.
 * Families in metrics.def. Leaf service: knows models, statuses and phases, no other room; what other rooms own
 * (engine, log, state) is handed in as values when a document is written. */
#ifndef KS_METRICS_H
#define KS_METRICS_H
#include <stdbool.h>
#include <stdint.h>

#include "base/formats.h"
#include "kernserve/backend.h"

struct ks_text;

#define KS_PHASE_TABLE(X) X(receive) X(decode) X(queue) X(h2d) X(compute) X(d2h) X(encode) X(send)
typedef enum ks_phase {
#define X(name) KS_PHASE_##name,
    KS_PHASE_TABLE(X)
#undef X
        KS_PHASES
} ks_phase;
const char *ks_phase_name(ks_phase phase);

const char *ks_format_label_name(ks_format_label encoding);

#define KS_OUTCOME_TABLE(X) X(ok) X(client_error) X(rejected) X(timeout) X(cancelled) X(device_error)
typedef enum ks_outcome {
#define X(name) KS_OUTCOME_##name,
    KS_OUTCOME_TABLE(X)
#undef X
        KS_OUTCOMES
} ks_outcome;
ks_outcome ks_outcome_of(ks_status status);

/* handler label: the route's name, from a closed list */
#define KS_HANDLER_TABLE(X)                                                                                            \
    X(infer)                                                                                                           \
    X(live)                                                                                                            \
    X(ready)                                                                                                           \
    X(server_metadata)                                                                                                 \
    X(model_metadata)                                                                                                  \
    X(model_config)                                                                                                    \
    X(model_ready)                                                                                                     \
    X(model_stats)                                                                                                     \
    X(model_plan)                                                                                                      \
    X(models)                                                                                                          \
    X(metrics) X(status) X(index) X(repository) X(logging) X(trace) X(plans) X(shared_memory) X(tensors) X(other)
typedef enum ks_handler {
#define X(name) KS_HANDLER_##name,
    KS_HANDLER_TABLE(X)
#undef X
        KS_HANDLERS
} ks_handler;

typedef enum ks_method {
    KS_METHOD_GET,
    KS_METHOD_POST,
    KS_METHOD_HEAD,
    KS_METHOD_PUT,
    KS_METHOD_DELETE,
    KS_METHOD_OTHER,
    KS_METHODS
} ks_method;

/* A shard's counters and gauges: the cells of the rows SHARD, SHARD_BY and CELL of metrics.def. */
typedef enum ks_count {
#define SHARD(id, ...) KS_COUNT_##id,
#define SHARD_BY(id, kind, name, unit, label, values, help) values
#define CELL(cell) KS_COUNT_##cell,
#define V(cell, value) KS_COUNT_##cell,
#include "observe/metrics.def"
    KS_COUNTS
} ks_count;

/* One finished inference request. model NULL: unknown model. */
typedef struct ks_record {
    int model; /* index, -1: unknown */
    ks_format_label encoding;
    ks_status status;
    bool executed; /* it ran: phases are valid */
    int batch_count;
    int64_t phase_ns[KS_PHASES]; /* -1: did not happen */
    int64_t total_ns;
} ks_record;

typedef struct ks_metrics ks_metrics;             /* of the daemon */
typedef struct ks_shard_metrics ks_shard_metrics; /* of one writer: a shard, or the admin thread */

ks_metrics *ks_metrics_open(int writers); /* NULL: memory */
void ks_metrics_close(ks_metrics **metrics);
ks_shard_metrics *ks_metrics_writer(ks_metrics *metrics, int index);

/* The writer's own thread: */
void ks_metrics_inference(ks_shard_metrics *m, const ks_record *record);
/* A job's kernels were timed: its part of that time, what they had to move and to compute. */
void ks_metrics_kernels(ks_shard_metrics *m, int model, int64_t ns, uint64_t bytes, uint64_t flops);
/* A request answered 200 whose client samples its trace: the exemplar of its bucket of the duration. */
void ks_metrics_exemplar(ks_shard_metrics *m, int model, int64_t total_ns, const uint64_t trace[2]);
void ks_metrics_send(ks_shard_metrics *m, int model, int64_t ns); /* the answer's sending ended */
void ks_metrics_http(ks_shard_metrics *m, ks_handler handler, ks_method method, int code, uint64_t in_bytes,
                     uint64_t out_bytes);
void ks_metrics_rejected(ks_shard_metrics *m, ks_status status);
void ks_metrics_add(ks_shard_metrics *m, ks_count count, int64_t n); /* n below 0: of a gauge */

int64_t ks_metrics_in_flight_now(const ks_metrics *metrics); /* sum of all writers; any thread */

/* A connection was closed as one above --connections-per-address. Any thread. */
void ks_metrics_address_full(ks_metrics *metrics);

/* A reading of the configuration ended (SIGHUP). Any thread. */
void ks_metrics_reloaded(ks_metrics *metrics, bool accepted);

/* Statistics of a model: one consistent snapshot per shard (a sequence number that is odd
 * while the shard writes), summed. Any thread. */
typedef struct ks_model_stats {
    int64_t last_inference_ms;
    uint64_t inference_count, execution_count;
    uint64_t success_count, success_ns, fail_count, fail_ns, queue_ns;
    uint64_t compute_input_ns, compute_infer_ns, compute_output_ns; /* counts equal success_count */
} ks_model_stats;
void ks_metrics_stats(const ks_metrics *metrics, int model, ks_model_stats *out);

/* Bounds of every histogram's buckets; the bucket that a time falls into, KS_BOUNDS for +Inf. */
enum { KS_BOUNDS = 24 };
int ks_metrics_bucket(int64_t ns);

/* What one shard's engine counts (engine.c writes, a document sums): the cells of the rows ENGINE and DEVICE of metrics.def,
 * and what functions of a document read. Every member is a uint64_t. */
typedef struct ks_engine_stats {
#define ENGINE(id, ...) uint64_t id;
#define ENGINE_BY(id, kind, name, unit, label, values, help) values
#define V(cell, value) uint64_t cell;
#include "observe/metrics.def"
    uint64_t running, lanes_busy, lanes;
    uint64_t slot_used_bytes, slot_total_bytes; /* pinned pool of this shard */
    uint64_t ring_bytes;
    uint64_t captures, capture_ns;
    uint64_t capture_bucket[KS_BOUNDS + 1];
    uint64_t rows_sum, rows_bucket[KS_BUCKETS]; /* of launches whose rows may be joined */
} ks_engine_stats;

/* Values owned by other rooms, for a document. */
#define KS_STATE_TABLE(X)                                                                                              \
    X(KS_STATE_STARTING, "starting")                                                                                   \
    X(KS_STATE_WARMING, "warming")                                                                                     \
    X(KS_STATE_READY, "ready") X(KS_STATE_DRAINING, "draining") X(KS_STATE_FAILED, "failed")
#define X(constant, word) constant,
typedef enum ks_state { KS_STATE_TABLE(X) KS_STATES } ks_state;
#undef X
extern const char *const ks_state_names[KS_STATES];

typedef struct ks_document {
    ks_state state;
    ks_device_info device;
    const ks_engine_stats *engines; /* one per shard */
    int shards;
    uint64_t device_faults;
    double copy_gbs, tflops[KS_DTYPE_COUNT]; /* the device at best; 0: not known */
    int64_t tls_expiry_s;                    /* 0: no certificate */
#define VALUE(id, ...) uint64_t id;
#define VALUE_BY(id, kind, name, unit, label, values, help) values
#define V(cell, value) uint64_t cell;
#include "observe/metrics.def"
    uint64_t put_bucket[KS_BOUNDS + 1], put_ns;   /* of resident tensors */
    bool openmetrics, triton;                     /* not both */
    const struct ks_gpu_figures *gpu;             /* with triton; NULL: not known here */
    const struct ks_overlap_sums *overlap;        /* NULL: none is kept */
    const struct ks_workers *workers;             /* of which this is one: NULL: it is alone */
    int worker;                                   /* its row */
    bool of_all;                                  /* with the families about all workers */
    int64_t device_used_bytes, device_free_bytes; /* of a GPU's memory; -1: not known */
} ks_document;
/* The whole text of /metrics, Prometheus 0.0.4 or OpenMetrics 1.0.0. Any thread; allocates. */
void ks_metrics_text(const ks_metrics *metrics, const ks_document *page, struct ks_text *out);
#endif
