/* The page /metrics: which families, which labels, from the counters of metrics_cells.h and the values that other rooms
 * handed in. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "observe/metrics_cells.h"
#include "observe/metrics_sheet.h"
#include "base/text.h"
#include "base/version.h"

static uint64_t relaxed(const ks_cell *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* Sum of one counter over all writers; the member is written as in the struct. */
#define SUM(metrics, member)                                                                                           \
    ({                                                                                                                 \
        uint64_t sum_ = 0;                                                                                             \
        for (int w_ = 0; w_ < (metrics)->writers; w_++) sum_ += relaxed(&(metrics)->shard[w_].member);                 \
        sum_;                                                                                                          \
    })

static void histogram(ks_sheet *sheet, const ks_metrics *metrics, size_t offset)
{
    uint64_t count = 0, sum_ns = 0;
    for (int b = 0; b <= KS_BOUNDS; b++) {
        for (int w = 0; w < metrics->writers; w++) {
            const ks_histogram *h = (const ks_histogram *)((const char *)&metrics->shard[w] + offset);
            count += relaxed(&h->bucket[b]);
            if (b == 0) sum_ns += relaxed(&h->sum_ns);
        }
        ks_sheet_bucket(sheet, ks_bound_text[b], count);
    }
    ks_sheet_sum(sheet, count, sum_ns);
}

static const char *model_name(int model)
{
    return model < ks_model_count() ? ks_model_at(model)->name : "unknown";
}

/* model = 0 .. ks_model_count(): its place in the cells, the last one for unknown models */
static int model_place(int model)
{
    return model < ks_model_count() ? model : KS_MODELS_MAX;
}

/* Whose histograms are on the page. A model has nine of them, 198 lines: all 27 models at 0 were 506 kB and stood a shard
 * still for 2 ms at each scrape of the data port. So the operations themselves are there at 0
 * from the start; a variant's (softmax_fp16, reduce_sum) come with its first request and stay, as a reader of rates
 * needs them to. Counters all exist at 0 from the start: no first event is missed, whichever model it is of. */
static bool has_histograms(const ks_metrics *metrics, int model)
{
    if (strcmp(ks_model_at(model)->name, ks_model_at(model)->op->name) == 0) return true;
    for (int e = 0; e < KS_ENCODINGS; e++)
        for (int o = 0; o < KS_OUTCOMES; o++)
            if (SUM(metrics, model[model].requests[e][o])) return true;
    return false;
}

static void write_identity(ks_sheet *sheet, const ks_page *values)
{
    ks_sheet_begin(sheet, F_build);
    ks_sheet_label(sheet, 0, "version", KS_VERSION);
    ks_sheet_label(sheet, 1, "revision", KS_REVISION);
    ks_sheet_label(sheet, 2, "compiler", "gcc " __VERSION__);
    ks_sheet_label(sheet, 3, "cuda_version", KS_CUDA_VERSION);
    ks_sheet_sample(sheet, 1);

    static const char *const state_names[KS_STATES] = {"starting", "warming", "ready", "draining", "failed"};
    ks_sheet_begin(sheet, F_state);
    ks_sheet_states(sheet, state_names, KS_STATES, (int)values->state);
}

static void write_http(ks_sheet *sheet, const ks_metrics *metrics)
{
    static const char *const handlers[KS_HANDLERS] = {
#define X(name) #name,
        KS_HANDLER_TABLE(X)
#undef X
    };
    static const char *const methods[KS_METHODS] = {"GET", "POST", "HEAD", "other"};
    ks_sheet_begin(sheet, F_http_requests);
    for (int h = 0; h < KS_HANDLERS; h++)
        for (int m = 0; m < KS_METHODS; m++)
            for (int c = 0; c < KS_CODES; c++) {
                const uint64_t count = SUM(metrics, http[h][m][c]);
                /* Known beforehand: each handler's own method, answered well. */
                const bool known = c == 0 && m == (h == KS_HANDLER_infer ? KS_METHOD_POST : KS_METHOD_GET);
                if (!count && !known) continue;
                char code[8];
                snprintf(code, sizeof code, ks_http_codes[c] ? "%d" : "other", ks_http_codes[c]);
                ks_sheet_label(sheet, 0, "handler", handlers[h]);
                ks_sheet_label(sheet, 1, "method", methods[m]);
                ks_sheet_label(sheet, 2, "code", code);
                ks_sheet_sample(sheet, count);
            }
    ks_sheet_begin(sheet, F_http_in);
    for (int h = 0; h < KS_HANDLERS; h++) {
        ks_sheet_label(sheet, 0, "handler", handlers[h]);
        ks_sheet_sample(sheet, SUM(metrics, http_in[h]));
    }
    ks_sheet_begin(sheet, F_http_out);
    for (int h = 0; h < KS_HANDLERS; h++) {
        ks_sheet_label(sheet, 0, "handler", handlers[h]);
        ks_sheet_sample(sheet, SUM(metrics, http_out[h]));
    }
}

static void write_readers(ks_sheet *sheet, const ks_metrics *metrics)
{
    static const char *const readers[KS_READERS] = {"plain", "libmicrohttpd"};
    static const char *const reasons[KS_HANDOVERS] = {"http10", "test"};
    ks_sheet_begin(sheet, F_http_reader);
    for (int r = 0; r < KS_READERS; r++) {
        ks_sheet_label(sheet, 0, "reader", readers[r]);
        ks_sheet_sample(sheet, SUM(metrics, reader[r]));
    }
    ks_sheet_begin(sheet, F_http_handover);
    for (int r = 0; r < KS_HANDOVERS; r++) {
        const uint64_t count = SUM(metrics, handover[r]);
        if (!count && r == KS_HANDOVER_TEST) continue; /* only in a build for tests */
        ks_sheet_label(sheet, 0, "reason", reasons[r]);
        ks_sheet_sample(sheet, count);
    }
}

static void write_gauges(ks_sheet *sheet, const ks_metrics *metrics)
{
    int64_t connections = 0, in_flight = 0;
    for (int w = 0; w < metrics->writers; w++) {
        connections += atomic_load_explicit(&metrics->shard[w].connections, memory_order_relaxed);
        in_flight += atomic_load_explicit(&metrics->shard[w].in_flight, memory_order_relaxed);
    }
    ks_sheet_single(sheet, F_connections, connections > 0 ? (uint64_t)connections : 0);
    ks_sheet_single(sheet, F_in_flight, in_flight > 0 ? (uint64_t)in_flight : 0);
}

static void write_inference(ks_sheet *sheet, const ks_metrics *metrics)
{
    static const char *const outcomes[KS_OUTCOMES] = {
#define X(name) #name,
        KS_OUTCOME_TABLE(X)
#undef X
    };
    const int models = ks_model_count() + 1;
    ks_sheet_begin(sheet, F_requests);
    for (int m = 0; m < models; m++)
        for (int e = 0; e < KS_ENCODINGS; e++)
            for (int o = 0; o < KS_OUTCOMES; o++) {
                ks_sheet_label(sheet, 0, "model", model_name(m));
                ks_sheet_label(sheet, 1, "encoding", ks_encoding_name((ks_encoding)e));
                ks_sheet_label(sheet, 2, "outcome", outcomes[o]);
                ks_sheet_sample(sheet, SUM(metrics, model[model_place(m)].requests[e][o]));
            }
    /* Nothing of an unknown model is ever answered 200: no histograms for it. */
    ks_sheet_begin(sheet, F_duration);
    for (int m = 0; m + 1 < models; m++) {
        if (!has_histograms(metrics, m)) continue;
        ks_sheet_label(sheet, 0, "model", model_name(m));
        histogram(sheet, metrics, offsetof(ks_shard_metrics, model[m].duration));
    }
    ks_sheet_begin(sheet, F_phase);
    for (int m = 0; m + 1 < models; m++)
        for (int p = 0; p < KS_PHASES && has_histograms(metrics, m); p++) {
            ks_sheet_label(sheet, 0, "model", model_name(m));
            ks_sheet_label(sheet, 1, "phase", ks_phase_name((ks_phase)p));
            histogram(sheet, metrics, offsetof(ks_shard_metrics, model[m].phase[p]));
        }
}

static void write_refusals(ks_sheet *sheet, const ks_metrics *metrics)
{
    ks_sheet_begin(sheet, F_rejected);
    for (int s = KS_OK + 1; s < KS_CANCELLED; s++) {
        /* Two statuses may share a code: summed where the first one stands. */
        const char *code = ks_status_code((ks_status)s);
        uint64_t count = 0;
        bool first = true;
        for (int other = KS_OK + 1; other < KS_CANCELLED; other++) {
            if (strcmp(ks_status_code((ks_status)other), code) != 0) continue;
            if (other < s) first = false;
            count += SUM(metrics, rejected[other]);
        }
        if (!first) continue;
        ks_sheet_label(sheet, 0, "code", code);
        ks_sheet_sample(sheet, count);
    }
    static const char *const aborts[KS_ABORTS] = {"receive", "queue", "compute", "send"};
    ks_sheet_begin(sheet, F_aborted);
    for (int a = 0; a < KS_ABORTS; a++) {
        ks_sheet_label(sheet, 0, "phase", aborts[a]);
        ks_sheet_sample(sheet, SUM(metrics, aborted[a]));
    }
    static const char *const evicted[KS_EVICTED_REASONS] = {"no_request", "idle"};
    ks_sheet_begin(sheet, F_evicted);
    for (int e = 0; e < KS_EVICTED_REASONS; e++) {
        ks_sheet_label(sheet, 0, "reason", evicted[e]);
        ks_sheet_sample(sheet, SUM(metrics, evicted[e]));
    }
    ks_sheet_label(sheet, 0, "reason", "address");
    ks_sheet_sample(sheet, relaxed(&metrics->address_full));
}

static void write_reload_and_log(ks_sheet *sheet, const ks_metrics *metrics)
{
    ks_sheet_single(sheet, F_reload_ok, (uint64_t)atomic_load(&metrics->reload_successful));
    ks_sheet_begin(sheet, F_reload_time);
    ks_sheet_seconds(sheet, (uint64_t)atomic_load(&metrics->reload_success_ns));
    static const char *const levels[KS_LEVELS] = {"error", "warn", "info", "debug"};
    ks_sheet_begin(sheet, F_log_messages);
    for (int l = 0; l < KS_LEVELS; l++) {
        ks_sheet_label(sheet, 0, "level", levels[l]);
        ks_sheet_sample(sheet, ks_log_lines((ks_level)l));
    }
    ks_sheet_single(sheet, F_log_dropped, ks_log_dropped());
}

static ks_engine_stats engines_sum(const ks_page *values)
{
    ks_engine_stats sum = {0};
    for (int i = 0; i < values->shards; i++) {
        /* Every member is a uint64_t to be added. */
        const uint64_t *one = (const uint64_t *)&values->engines[i];
        for (size_t k = 0; k < sizeof sum / sizeof(uint64_t); k++) ((uint64_t *)&sum)[k] += one[k];
    }
    return sum;
}

static void write_engine(ks_sheet *sheet, const ks_page *values, const ks_engine_stats *sum)
{
    ks_sheet_single(sheet, F_queue_depth, sum->queue_depth);
    ks_sheet_single(sheet, F_queue_capacity, values->queue_capacity);
    ks_sheet_single(sheet, F_inflight_bytes, values->inflight_bytes);
    ks_sheet_single(sheet, F_inflight_limit, values->inflight_limit);
    ks_sheet_single(sheet, F_launches, sum->launches);
    ks_sheet_single(sheet, F_graph_launches, sum->graph_launches);
    ks_sheet_begin(sheet, F_graph_lookups);
    ks_sheet_label(sheet, 0, "result", "hit");
    ks_sheet_sample(sheet, sum->graph_hits);
    ks_sheet_label(sheet, 0, "result", "miss");
    ks_sheet_sample(sheet, sum->graph_misses);
    ks_sheet_single(sheet, F_graph_evictions, sum->plan_evictions);
    ks_sheet_single(sheet, F_graph_entries, sum->plans);
    ks_sheet_single(sheet, F_graph_bytes, sum->plan_bytes);
    ks_sheet_begin(sheet, F_graph_capture);
    uint64_t captures = 0;
    for (int b = 0; b <= KS_BOUNDS; b++) ks_sheet_bucket(sheet, ks_bound_text[b], captures += sum->capture_bucket[b]);
    ks_sheet_sum(sheet, captures, sum->capture_ns);
    ks_sheet_single(sheet, F_graph_fallbacks, sum->graph_fallbacks);
    ks_sheet_begin(sheet, F_pinned);
    ks_sheet_label(sheet, 0, "state", "used");
    ks_sheet_sample(sheet, sum->slot_used_bytes);
    ks_sheet_label(sheet, 0, "state", "free");
    ks_sheet_sample(sheet, sum->slot_total_bytes - sum->slot_used_bytes);
    ks_sheet_label(sheet, 0, "state", "ring");
    ks_sheet_sample(sheet, sum->ring_bytes);
    ks_sheet_begin(sheet, F_streams);
    ks_sheet_label(sheet, 0, "state", "waiting");
    ks_sheet_sample(sheet, sum->streams_waiting);
    ks_sheet_label(sheet, 0, "state", "open");
    ks_sheet_sample(sheet, sum->streams_open);
    ks_sheet_single(sheet, F_stream_memory, sum->stream_bytes);
}

static void write_device(ks_sheet *sheet, const ks_page *values, const ks_engine_stats *sum, const char *device)
{
    char capability[16] = "";
    const int sm = values->device.capability;
    if (sm) snprintf(capability, sizeof capability, "%d.%d", sm / 10, sm % 10);
    ks_sheet_begin(sheet, F_device);
    ks_sheet_label(sheet, 0, "device", device);
    ks_sheet_label(sheet, 1, "uuid", values->device.uuid);
    ks_sheet_label(sheet, 2, "model_name", values->device.name);
    ks_sheet_label(sheet, 3, "compute_capability", capability);
    ks_sheet_label(sheet, 4, "driver_version", values->device.driver);
    ks_sheet_sample(sheet, 1);

    static const char *const state_names[] = {"good", "failed"};
    ks_sheet_begin(sheet, F_device_state);
    ks_sheet_label(sheet, 0, "device", device);
    ks_sheet_states(sheet, state_names, 2, values->state == KS_STATE_FAILED);
    ks_sheet_begin(sheet, F_device_faults);
    ks_sheet_label(sheet, 0, "device", device);
    ks_sheet_sample(sheet, values->device_faults);
    ks_sheet_begin(sheet, F_device_errors);
    ks_sheet_label(sheet, 0, "device", device);
    ks_sheet_label(sheet, 1, "error", "memory");
    ks_sheet_sample(sheet, sum->errors_memory);
    ks_sheet_label(sheet, 1, "error", "device");
    ks_sheet_sample(sheet, sum->errors_device);
    if (values->device.gpu) {
        ks_sheet_begin(sheet, F_device_memory);
        ks_sheet_label(sheet, 0, "device", device);
        ks_sheet_sample(sheet, values->device.memory_bytes);
    }

    const struct {
        int family;
        const char *label, *value;
        uint64_t amount;
        bool seconds;
    } lines[] = {{F_lanes, "state", "busy", sum->lanes_busy, false},
                 {F_lanes, "state", "idle", sum->lanes - sum->lanes_busy, false},
                 {F_engine_busy, "engine", "h2d", sum->h2d_ns, true},
                 {F_engine_busy, "engine", "compute", sum->compute_ns, true},
                 {F_engine_busy, "engine", "d2h", sum->d2h_ns, true},
                 {F_device_busy, NULL, NULL, sum->device_busy_ns, true},
                 {F_device_overlap, NULL, NULL, sum->overlap_ns, true},
                 {F_transfer, "direction", "h2d", sum->h2d_bytes, false},
                 {F_transfer, "direction", "d2h", sum->d2h_bytes, false}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (i == 0 || lines[i].family != lines[i - 1].family) ks_sheet_begin(sheet, lines[i].family);
        ks_sheet_label(sheet, 0, "device", device);
        if (lines[i].label) ks_sheet_label(sheet, 1, lines[i].label, lines[i].value);
        if (lines[i].seconds)
            ks_sheet_seconds(sheet, lines[i].amount);
        else
            ks_sheet_sample(sheet, lines[i].amount);
    }
}

void ks_metrics_text(const ks_metrics *metrics, const ks_page *values, ks_text *out)
{
    ks_sheet sheet = {.out = out, .openmetrics = values->openmetrics};
    const ks_engine_stats sum = engines_sum(values);
    char device[16];
    if (values->device.gpu)
        snprintf(device, sizeof device, "%d", values->device.index);
    else
        snprintf(device, sizeof device, "%s", values->device.backend ? values->device.backend : "cpu");
    write_identity(&sheet, values);
    write_http(&sheet, metrics);
    write_readers(&sheet, metrics);
    write_gauges(&sheet, metrics);
    write_inference(&sheet, metrics);
    write_refusals(&sheet, metrics);
    write_engine(&sheet, values, &sum);
    write_device(&sheet, values, &sum, device);
    write_reload_and_log(&sheet, metrics);
    ks_sheet_process(&sheet);
    if (values->triton) ks_sheet_triton(&sheet, metrics, values);
    if (values->openmetrics) ks_text_puts(out, "# EOF\n");
}
