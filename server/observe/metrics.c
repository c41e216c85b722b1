#include "observe/metrics.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "observe/metrics_cells.h"

/* The first ones are those of a small request's phases: decode, queue and encode lie below 10 us. */
const int64_t ks_bound_ns[KS_BOUNDS] = {250,       500,       1000,       2500,       5000,       10000,
                                        25000,     50000,     100000,     250000,     500000,     1000000,
                                        2500000,   5000000,   10000000,   25000000,   50000000,   100000000,
                                        250000000, 500000000, 1000000000, 2500000000, 5000000000, 10000000000};
const char *const ks_bound_text[KS_BOUNDS + 1] = {
    "2.5e-07", "5e-07",  "1e-06", "2.5e-06", "5e-06", "1e-05", "2.5e-05", "5e-05", "0.0001",
    "0.00025", "0.0005", "0.001", "0.0025",  "0.005", "0.01",  "0.025",   "0.05",  "0.1",
    "0.25",    "0.5",    "1.0",   "2.5",     "5.0",   "10.0",  "+Inf"};
const int ks_http_codes[KS_CODES] = {200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 409, 410, 411, 412,
                                     413, 414, 415, 417, 421, 422, 431, 500, 501, 503, 504, 505, 507, 0};

static const char *const phase_names[KS_PHASES] = {
#define X(name) #name,
    KS_PHASE_TABLE(X)
#undef X
};

#define X(constant, word) word,
const char *const ks_state_names[KS_STATES] = {KS_STATE_TABLE(X)};
#undef X

const char *ks_phase_name(ks_phase phase)
{
    return phase_names[phase];
}

const char *ks_format_label_name(ks_format_label encoding)
{
    static const char *const names[KS_FORMAT_LABELS] = {
#define FORMAT(name) #name,
#include "base/formats.def"
    };
    return names[encoding];
}

ks_outcome ks_outcome_of(ks_status status)
{
    switch (status) {
    case KS_OK:
        return KS_OUTCOME_ok;
    case KS_DEVICE:
        return KS_OUTCOME_device_error;
    case KS_CANCELLED:
        return KS_OUTCOME_cancelled;
    case KS_DEADLINE:
    case KS_SLOW:
        return KS_OUTCOME_timeout;
    default:
        return ks_status_http(status) >= 500 ? KS_OUTCOME_rejected : KS_OUTCOME_client_error;
    }
}

ks_metrics *ks_metrics_open(int writers)
{
    ks_metrics *metrics = calloc(1, sizeof *metrics);
    if (!metrics) return NULL;
    metrics->writers = writers;
    const size_t bytes = sizeof *metrics->shard * (size_t)writers;
    metrics->shard = aligned_alloc(_Alignof(ks_shard_metrics), bytes);
    if (!metrics->shard) {
        free(metrics);
        return NULL;
    }
    memset(metrics->shard, 0, bytes);
    metrics->exemplars = calloc(KS_MODELS_MAX, sizeof *metrics->exemplars);
    if (!metrics->exemplars) {
        ks_metrics_close(&metrics);
        return NULL;
    }
    for (int i = 0; i < writers; i++) metrics->shard[i].exemplars = metrics->exemplars;
    metrics->reload_successful = 1; /* the daemon runs, so its configuration was accepted at start */
    metrics->reload_success_ns = ks_wall_ns();
    return metrics;
}

void ks_metrics_close(ks_metrics **metrics)
{
    if (!*metrics) return;
    free((*metrics)->exemplars);
    free((*metrics)->shard);
    free(*metrics);
    *metrics = NULL;
}

ks_shard_metrics *ks_metrics_writer(ks_metrics *metrics, int index)
{
    assert(index >= 0 && index < metrics->writers);
    return &metrics->shard[index];
}

static void add(ks_cell *cell, uint64_t n)
{
    atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + n, memory_order_relaxed);
}

/* The same, inside a sequence: a reader that sees the new value also sees that the sequence was odd before it. */
static void add_released(ks_cell *cell, uint64_t n)
{
    atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + n, memory_order_release);
}

static uint64_t positive(int64_t ns)
{
    return ns > 0 ? (uint64_t)ns : 0;
}

static inline int bucket_of(int64_t ns)
{
    /* By the bits of the time: where its octave begins. An octave has two bounds at most. */
    static const unsigned char first[64] = {0,  0,  0,  0,  0,  0,  0,  0,  0,  1,  2,  3,  3,  4,  5,  6,
                                            7,  8,  9,  10, 11, 12, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                            21, 22, 23, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24,
                                            24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24};
    if (ns <= 0) return 0;
    int bucket = first[64 - __builtin_clzll((unsigned long long)ns)];
    while (bucket < KS_BOUNDS && ns > ks_bound_ns[bucket]) bucket++;
    return bucket;
}

int ks_metrics_bucket(int64_t ns)
{
    return bucket_of(ns);
}

static void observe(ks_histogram *histogram, int64_t ns)
{
    add(&histogram->bucket[bucket_of(ns)], 1);
    add(&histogram->sum_ns, positive(ns));
}

/* A launch of n jobs is one execution, but each of the n comes by alone: each adds the n-th part, rounded up so that
 * the n-th one completes it. */
static void count_execution(ks_stats_cells *stats, int batch_count)
{
    const uint64_t whole = 1u << 24;
    const uint64_t n = batch_count > 0 ? (uint64_t)batch_count : 1;
    const uint64_t part = atomic_load_explicit(&stats->execution_part, memory_order_relaxed) + (whole + n - 1) / n;
    add_released(&stats->executions, part >> 24);
    atomic_store_explicit(&stats->execution_part, part & (whole - 1), memory_order_release);
}

static void count_stats(ks_stats_cells *stats, const ks_record *record)
{
    const uint64_t sequence = atomic_load_explicit(&stats->sequence, memory_order_relaxed);
    atomic_store_explicit(&stats->sequence, sequence + 1, memory_order_relaxed);
    const uint64_t total_ns = positive(record->total_ns);
    const int64_t *ns = record->phase_ns;
    if (record->status == KS_OK) {
        add_released(&stats->success, 1);
        add_released(&stats->success_ns, total_ns);
        add_released(&stats->queue_ns, positive(ns[KS_PHASE_queue]));
        add_released(&stats->compute_input_ns, positive(ns[KS_PHASE_decode]) + positive(ns[KS_PHASE_h2d]));
        add_released(&stats->compute_infer_ns, positive(ns[KS_PHASE_compute]));
        add_released(&stats->compute_output_ns, positive(ns[KS_PHASE_d2h]) + positive(ns[KS_PHASE_encode]));
        count_execution(stats, record->batch_count);
        atomic_store_explicit(&stats->last_inference_ms, (uint64_t)ks_wall_ms(), memory_order_release);
    } else {
        add_released(&stats->fail, 1);
        add_released(&stats->fail_ns, total_ns);
    }
    atomic_store_explicit(&stats->sequence, sequence + 2, memory_order_release);
}

static ks_model_cells *cells_of(ks_shard_metrics *m, int model)
{
    return &m->model[model >= 0 && model < KS_MODELS_MAX ? model : KS_MODELS_MAX];
}

void ks_metrics_inference(ks_shard_metrics *m, const ks_record *record)
{
    ks_model_cells *cells = cells_of(m, record->model);
    add(&cells->requests[record->encoding][ks_outcome_of(record->status)], 1);
    count_stats(&cells->stats, record);
    if (record->status != KS_OK) return;
    observe(&cells->duration, record->total_ns);
    add(&m->latency[ks_latency_step(record->total_ns)], 1);
    if (!record->executed) return;
    for (int phase = 0; phase < KS_PHASES; phase++)
        if (record->phase_ns[phase] >= 0 && phase != KS_PHASE_send)
            observe(&cells->phase[phase], record->phase_ns[phase]);
}

void ks_metrics_kernels(ks_shard_metrics *m, int model, int64_t ns, uint64_t bytes, uint64_t flops)
{
    ks_model_cells *cells = cells_of(m, model);
    add(&cells->kernel_ns, (uint64_t)ns);
    add(&cells->kernel_bytes, bytes);
    add(&cells->kernel_flops, flops);
}

void ks_metrics_exemplar(ks_shard_metrics *m, int model, int64_t total_ns, const uint64_t trace[2])
{
    ks_exemplar *e = &m->exemplars[model][bucket_of(total_ns)];
    uint64_t sequence = atomic_load_explicit(&e->sequence, memory_order_relaxed);
    if (sequence & 1 || !atomic_compare_exchange_strong_explicit(&e->sequence, &sequence, sequence + 1,
                                                                 memory_order_acquire, memory_order_relaxed))
        return;
    atomic_store_explicit(&e->trace[0], trace[0], memory_order_release);
    atomic_store_explicit(&e->trace[1], trace[1], memory_order_release);
    atomic_store_explicit(&e->total_ns, positive(total_ns), memory_order_release);
    atomic_store_explicit(&e->wall_ms, (uint64_t)ks_wall_ms(), memory_order_release);
    atomic_store_explicit(&e->sequence, sequence + 2, memory_order_release);
}

static uint64_t acquire(const ks_cell *cell)
{
    return atomic_load_explicit(cell, memory_order_acquire);
}

bool ks_metrics_exemplar_read(const ks_exemplar *e, uint64_t trace[2], uint64_t *total_ns, uint64_t *wall_ms)
{
    uint64_t before, after;
    do {
        before = acquire(&e->sequence);
        trace[0] = acquire(&e->trace[0]);
        trace[1] = acquire(&e->trace[1]);
        *total_ns = acquire(&e->total_ns);
        *wall_ms = acquire(&e->wall_ms);
        after = atomic_load_explicit(&e->sequence, memory_order_relaxed);
    } while (before != after || before & 1);
    return before != 0;
}

void ks_metrics_send(ks_shard_metrics *m, int model, int64_t ns)
{
    observe(&cells_of(m, model)->phase[KS_PHASE_send], ns);
}

static int code_index(int code)
{
    for (int i = 0; i < KS_CODES - 1; i++)
        if (ks_http_codes[i] == code) return i;
    return KS_CODES - 1;
}

void ks_metrics_http(ks_shard_metrics *m, ks_handler handler, ks_method method, int code, uint64_t in_bytes,
                     uint64_t out_bytes)
{
    add(&m->http[handler][method][code_index(code)], 1);
    add(&m->http_in[handler], in_bytes);
    add(&m->http_out[handler], out_bytes);
}

void ks_metrics_rejected(ks_shard_metrics *m, ks_status status)
{
    add(&m->rejected[status], 1);
}

void ks_metrics_add(ks_shard_metrics *m, ks_count count, int64_t n)
{
    add(&m->count[count], (uint64_t)n);
}

void ks_metrics_address_full(ks_metrics *metrics)
{
    atomic_fetch_add_explicit(&metrics->address_full, 1, memory_order_relaxed);
}

uint64_t ks_metrics_sum(const ks_metrics *metrics, ks_count count)
{
    uint64_t sum = 0;
    for (int i = 0; i < metrics->writers; i++)
        sum += atomic_load_explicit(&metrics->shard[i].count[count], memory_order_relaxed);
    return sum;
}

int64_t ks_metrics_in_flight_now(const ks_metrics *metrics)
{
    return (int64_t)ks_metrics_sum(metrics, KS_COUNT_in_flight);
}

void ks_metrics_reloaded(ks_metrics *metrics, bool accepted)
{
    atomic_store(&metrics->reload_successful, accepted);
    if (accepted) atomic_store(&metrics->reload_success_ns, ks_wall_ns());
}

/* All counters of each request or none: tries again while the writer was inside. */
static void snapshot(const ks_stats_cells *cells, ks_model_stats *out)
{
    uint64_t before, after;
    do {
        before = acquire(&cells->sequence);
        *out = (ks_model_stats){.last_inference_ms = (int64_t)acquire(&cells->last_inference_ms),
                                .inference_count = acquire(&cells->success),
                                .execution_count = acquire(&cells->executions),
                                .success_count = acquire(&cells->success),
                                .success_ns = acquire(&cells->success_ns),
                                .fail_count = acquire(&cells->fail),
                                .fail_ns = acquire(&cells->fail_ns),
                                .queue_ns = acquire(&cells->queue_ns),
                                .compute_input_ns = acquire(&cells->compute_input_ns),
                                .compute_infer_ns = acquire(&cells->compute_infer_ns),
                                .compute_output_ns = acquire(&cells->compute_output_ns)};
        /* A batch that is half answered stands as one execution already; less than any batch's part is what rounding up
         * has left. */
        if (acquire(&cells->execution_part) >= 1u << 16) out->execution_count++;
        after = atomic_load_explicit(&cells->sequence, memory_order_relaxed);
    } while (before != after || (before & 1));
}

void ks_metrics_stats(const ks_metrics *metrics, int model, ks_model_stats *out)
{
    memset(out, 0, sizeof *out);
    assert(model >= 0 && model < KS_MODELS_MAX);
    for (int i = 0; i < metrics->writers; i++) {
        ks_model_stats one;
        snapshot(&metrics->shard[i].model[model].stats, &one);
        if (one.last_inference_ms > out->last_inference_ms) out->last_inference_ms = one.last_inference_ms;
        out->inference_count += one.inference_count;
        out->execution_count += one.execution_count;
        out->success_count += one.success_count;
        out->success_ns += one.success_ns;
        out->fail_count += one.fail_count;
        out->fail_ns += one.fail_ns;
        out->queue_ns += one.queue_ns;
        out->compute_input_ns += one.compute_input_ns;
        out->compute_infer_ns += one.compute_infer_ns;
        out->compute_output_ns += one.compute_output_ns;
    }
}
