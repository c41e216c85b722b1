/* The document /metrics: a row of metrics.def is written by its owner's loop, a row PAGE by the function write_ID of this file, from
 * the counters of metrics_cells.h and the values that other layers handed in. */
#include <stdio.h>
#include <string.h>

#include "base/log_line.h"
#include "observe/access_log.h"
#include "observe/metrics_cells.h"
#include "observe/metrics_sheet.h"
#include "observe/overlap.h"
#include "base/text.h"
#include "base/version.h"
#include "observe/workers/workers.h"

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

typedef struct page {
    ks_sheet sheet;
    const ks_metrics *metrics;
    const ks_document *values;
    ks_engine_stats sum; /* of all shards */
    char device[16];     /* label of its families */
    char of_worker[16];  /* the same, of a row of the table of workers */
    const char *label;   /* of the row under way, for each of its lines; NULL: none */
    int place;           /* of that label */
    int models;          /* with the unknown one, the last */
    bool used[KS_MODELS_MAX + 1], listed[KS_MODELS_MAX + 1]; /* of each of them */
} page;

/* Sums of cells that lie side by side in ks_shard_metrics, from offset on: a writer's are read in their order. */
static void sum_cells(const ks_metrics *metrics, size_t offset, int count, uint64_t *sums)
{
    memset(sums, 0, sizeof *sums * (size_t)count);
    for (int w = 0; w < metrics->writers; w++) {
        const ks_cell *cells = (const ks_cell *)((const char *)&metrics->shard[w] + offset);
        for (int i = 0; i < count; i++) sums[i] += relaxed(&cells[i]);
    }
}

/* exemplars: of the buckets; NULL: it has none. */
static void histogram(ks_sheet *sheet, const ks_metrics *metrics, size_t offset, const ks_exemplar *exemplars)
{
    uint64_t bucket[KS_BOUNDS + 1], count = 0, sum_ns;
    sum_cells(metrics, offset + offsetof(ks_histogram, bucket), KS_BOUNDS + 1, bucket);
    sum_cells(metrics, offset + offsetof(ks_histogram, sum_ns), 1, &sum_ns);
    for (int b = 0; b <= KS_BOUNDS; b++) {
        ks_sheet_bucket(sheet, ks_bound_text[b], count += bucket[b]);
        uint64_t trace[2], total_ns, wall_ms;
        if (exemplars && sheet->openmetrics && ks_metrics_exemplar_read(&exemplars[b], trace, &total_ns, &wall_ms))
            ks_sheet_exemplar(sheet, trace, total_ns, wall_ms);
    }
    ks_sheet_sum(sheet, count, sum_ns);
}

static bool is_unknown(const page *p, int model)
{
    return model + 1 == p->models;
}

static const char *model_name(const page *p, int model)
{
    return is_unknown(p, model) ? "unknown" : ks_model_at(model)->series;
}

/* A model's place in the cells, the last one for unknown models. */
static int model_place(const page *p, int model)
{
    return is_unknown(p, model) ? KS_MODELS_MAX : model;
}

/* A model's counters and histograms are a series of each format and outcome and
 * of each phase: of all 27 models at 0 they were 1,500 lines, and of a fleet's series most were never other than 0. So the
 * operations themselves are there at 0 from the start, with their counters and their duration: no first event of
 * them is missed by a reader of rates. The phases, and all of a variant (softmax_fp16, reduce_sum), come with the
 * model's first request and stay. */
static void list_models(page *p)
{
    for (int m = 0; m < p->models; m++) {
        const int place = model_place(p, m);
        p->used[m] = SUM(p->metrics, model[place].stats.success) || SUM(p->metrics, model[place].stats.fail);
        p->listed[m] = p->used[m] || is_unknown(p, m) || strcmp(ks_model_at(m)->name, ks_model_at(m)->op->name) == 0;
    }
}

static void write_build(page *p)
{
    ks_sheet *sheet = &p->sheet;
    ks_sheet_label(sheet, 0, "version", KS_VERSION);
    ks_sheet_label(sheet, 1, "revision", KS_REVISION);
    ks_sheet_label(sheet, 2, "compiler", "gcc " __VERSION__);
    ks_sheet_label(sheet, 3, "cuda_version", KS_CUDA_VERSION);
    ks_sheet_sample(sheet, 1);
}

static void write_state(page *p)
{
    ks_sheet_states(&p->sheet, ks_state_names, KS_STATES, (int)p->values->state);
}

/* --- workers --------------------------------------------------------------------------------------------------------
 */

/* The sheet keeps the address. */
static void label_worker(page *p, const ks_worker_row *row)
{
    snprintf(p->of_worker, sizeof p->of_worker, "%d", row->device);
    ks_sheet_label(&p->sheet, 0, "device", p->of_worker);
}

static int workers_of(const page *p)
{
    return p->values->of_all && p->values->workers ? p->values->workers->count : 0;
}

static void write_worker_up(page *p)
{
    for (int i = 0; i < workers_of(p); i++) {
        label_worker(p, &p->values->workers->row[i]);
        ks_sheet_sample(&p->sheet, ks_worker_is_up(&p->values->workers->row[i]));
    }
}

static void write_worker_starts(page *p)
{
    for (int i = 0; i < workers_of(p); i++) {
        label_worker(p, &p->values->workers->row[i]);
        ks_sheet_sample(&p->sheet, atomic_load(&p->values->workers->row[i].starts));
    }
}

static void write_worker_connections(page *p)
{
    for (int i = 0; i < workers_of(p); i++) {
        label_worker(p, &p->values->workers->row[i]);
        ks_sheet_sample(&p->sheet, (uint64_t)ks_connections_count(&p->values->workers->row[i].connections));
    }
}

/* --- HTTP ------------------------------------------------------------------------------------------------------------
 */

static void write_http_requests(page *p)
{
    static const char *const methods[KS_METHODS] = {"GET", "POST", "HEAD", "PUT", "DELETE", "other"};
    ks_sheet *sheet = &p->sheet;
    for (int h = 0; h < KS_HANDLERS; h++)
        for (int m = 0; m < KS_METHODS; m++) {
            uint64_t counts[KS_CODES];
            sum_cells(p->metrics, offsetof(ks_shard_metrics, http[h][m]), KS_CODES, counts);
            for (int c = 0; c < KS_CODES; c++) {
                const uint64_t count = counts[c];
                /* Known beforehand: each handler's own method, answered well. */
                const bool known = c == 0 && m == (h == KS_HANDLER_infer ? KS_METHOD_POST : KS_METHOD_GET);
                if (!count && !known) continue;
                char code[8];
                snprintf(code, sizeof code, ks_http_codes[c] ? "%d" : "other", ks_http_codes[c]);
                ks_sheet_label(sheet, 0, "handler", ks_handler_name((ks_handler)h));
                ks_sheet_label(sheet, 1, "method", methods[m]);
                ks_sheet_label(sheet, 2, "code", code);
                ks_sheet_sample(sheet, count);
            }
        }
}

static void write_http_in(page *p)
{
    for (int h = 0; h < KS_HANDLERS; h++) {
        ks_sheet_label(&p->sheet, 0, "handler", ks_handler_name((ks_handler)h));
        ks_sheet_sample(&p->sheet, SUM(p->metrics, http_in[h]));
    }
}

static void write_http_out(page *p)
{
    for (int h = 0; h < KS_HANDLERS; h++) {
        ks_sheet_label(&p->sheet, 0, "handler", ks_handler_name((ks_handler)h));
        ks_sheet_sample(&p->sheet, SUM(p->metrics, http_out[h]));
    }
}

static void write_reason(page *p, const char *reason, uint64_t count)
{
    ks_sheet_label(&p->sheet, 0, "reason", reason);
    ks_sheet_sample(&p->sheet, count);
}

static void write_http_handover(page *p)
{
    write_reason(p, "http10", ks_metrics_sum(p->metrics, KS_COUNT_handover_http10));
    const uint64_t tests = ks_metrics_sum(p->metrics, KS_COUNT_handover_test);
    if (tests) write_reason(p, "test", tests); /* only in a build for tests */
}

static void write_evicted(page *p)
{
    write_reason(p, "no_request", ks_metrics_sum(p->metrics, KS_COUNT_evicted_fresh));
    write_reason(p, "idle", ks_metrics_sum(p->metrics, KS_COUNT_evicted_idle));
    write_reason(p, "address", relaxed(&p->metrics->address_full));
}

static void write_rejected(page *p)
{
    for (int s = KS_OK + 1; s < KS_CANCELLED; s++) {
        /* Two statuses may share a code: summed where the first one stands. */
        const char *code = ks_status_code((ks_status)s);
        uint64_t count = 0;
        bool first = true;
        for (int other = KS_OK + 1; other < KS_CANCELLED; other++) {
            if (strcmp(ks_status_code((ks_status)other), code) != 0) continue;
            if (other < s) first = false;
            count += SUM(p->metrics, rejected[other]);
        }
        if (!first) continue;
        ks_sheet_label(&p->sheet, 0, "code", code);
        ks_sheet_sample(&p->sheet, count);
    }
}

/* --- inference -------------------------------------------------------------------------------------------------------
 */

static void write_requests(page *p)
{
    static const char *const outcomes[KS_OUTCOMES] = {
#define X(name) #name,
        KS_OUTCOME_TABLE(X)
#undef X
    };
    for (int m = 0; m < p->models; m++) {
        uint64_t counts[KS_FORMAT_LABELS][KS_OUTCOMES];
        if (!p->listed[m]) continue;
        sum_cells(p->metrics, offsetof(ks_shard_metrics, model[model_place(p, m)].requests),
                  KS_FORMAT_LABELS * KS_OUTCOMES, counts[0]);
        for (int e = 0; e < KS_FORMAT_LABELS; e++)
            for (int o = 0; o < KS_OUTCOMES; o++) {
                ks_sheet_label(&p->sheet, 0, "model", model_name(p, m));
                ks_sheet_label(&p->sheet, 1, "encoding", ks_format_label_name((ks_format_label)e));
                ks_sheet_label(&p->sheet, 2, "outcome", outcomes[o]);
                ks_sheet_sample(&p->sheet, counts[e][o]);
            }
    }
}

/* A line for each model that has had work; cell: offset of its counter in ks_model_cells. */
static void write_of_models(page *p, size_t cell)
{
    for (int m = 0; m + 1 < p->models; m++) {
        if (!p->listed[m]) continue;
        uint64_t sum;
        sum_cells(p->metrics, offsetof(ks_shard_metrics, model[m]) + cell, 1, &sum);
        ks_sheet_label(&p->sheet, 0, "model", model_name(p, m));
        ks_sheet_amount(&p->sheet, sum);
    }
}

static void write_kernel_busy(page *p)
{
    write_of_models(p, offsetof(ks_model_cells, kernel_ns));
}

static void write_kernel_bytes(page *p)
{
    write_of_models(p, offsetof(ks_model_cells, kernel_bytes));
}

static void write_kernel_flops(page *p)
{
    write_of_models(p, offsetof(ks_model_cells, kernel_flops));
}

static void write_ceiling_copy(page *p)
{
    if (p->values->copy_gbs > 0) ks_sheet_real(&p->sheet, p->values->copy_gbs * 1e9);
}

static void write_ceiling_flops(page *p)
{
    for (int dtype = 0; dtype < KS_DTYPE_COUNT; dtype++) {
        if (p->values->tflops[dtype] <= 0) continue;
        ks_sheet_label(&p->sheet, 0, "datatype", ks_dtype_name((ks_dtype)dtype));
        ks_sheet_real(&p->sheet, p->values->tflops[dtype] * 1e12);
    }
}

/* Nothing of an unknown model is ever answered 200: no histograms for it. */
static void write_duration(page *p)
{
    for (int m = 0; m + 1 < p->models; m++) {
        if (!p->listed[m]) continue;
        ks_sheet_label(&p->sheet, 0, "model", model_name(p, m));
        histogram(&p->sheet, p->metrics, offsetof(ks_shard_metrics, model[m].duration), p->metrics->exemplars[m]);
    }
}

static void write_phase(page *p)
{
    for (int m = 0; m + 1 < p->models; m++)
        for (int phase = 0; phase < KS_PHASES && p->used[m]; phase++) {
            ks_sheet_label(&p->sheet, 0, "model", model_name(p, m));
            ks_sheet_label(&p->sheet, 1, "phase", ks_phase_name((ks_phase)phase));
            histogram(&p->sheet, p->metrics, offsetof(ks_shard_metrics, model[m].phase[phase]), NULL);
        }
}

/* --- configuration and log -------------------------------------------------------------------------------------------
 */

static void write_reload_ok(page *p)
{
    ks_sheet_sample(&p->sheet, (uint64_t)atomic_load(&p->metrics->reload_successful));
}

static void write_reload_time(page *p)
{
    ks_sheet_seconds(&p->sheet, (uint64_t)atomic_load(&p->metrics->reload_success_ns));
}

static void write_tls_expiry(page *p)
{
    if (p->values->tls_expiry_s > 0) ks_sheet_sample(&p->sheet, (uint64_t)p->values->tls_expiry_s);
}

static void write_log_messages(page *p)
{
    for (int l = 0; l < KS_LEVELS; l++) {
        ks_sheet_label(&p->sheet, 0, "level", ks_level_name((ks_level)l));
        ks_sheet_sample(&p->sheet, ks_log_lines((ks_level)l));
    }
}

static void write_log_dropped(page *p)
{
    ks_sheet_sample(&p->sheet, ks_log_dropped());
}

/* --- engines and device ----------------------------------------------------------------------------------------------
 */

static ks_engine_stats engines_sum(const ks_document *values)
{
    ks_engine_stats sum = {0};
    for (int i = 0; i < values->shards; i++) {
        /* Every member is a uint64_t to be added. */
        const uint64_t *one = (const uint64_t *)&values->engines[i];
        for (size_t k = 0; k < sizeof sum / sizeof(uint64_t); k++) ((uint64_t *)&sum)[k] += one[k];
    }
    return sum;
}

static void write_of_state(page *p, int place, const char *state, uint64_t amount)
{
    ks_sheet_label(&p->sheet, place, "state", state);
    ks_sheet_sample(&p->sheet, amount);
}

static void write_graph_capture(page *p)
{
    uint64_t captures = 0;
    for (int b = 0; b <= KS_BOUNDS; b++)
        ks_sheet_bucket(&p->sheet, ks_bound_text[b], captures += p->sum.capture_bucket[b]);
    ks_sheet_sum(&p->sheet, captures, p->sum.capture_ns);
}

/* From the first PUT on: most daemons of a fleet store none. */
static void write_resident_put_duration(page *p)
{
    uint64_t puts = 0;
    if (p->values->put_ns == 0) return;
    for (int b = 0; b <= KS_BOUNDS; b++) ks_sheet_bucket(&p->sheet, ks_bound_text[b], puts += p->values->put_bucket[b]);
    ks_sheet_sum(&p->sheet, puts, p->values->put_ns);
}

static void write_launch_rows(page *p)
{
    uint64_t launches = 0;
    for (int b = 0; b < KS_BUCKETS; b++) {
        char bound[8];
        snprintf(bound, sizeof bound, "%d.0", 1 << b);
        ks_sheet_bucket(&p->sheet, bound, launches += p->sum.rows_bucket[b]);
    }
    ks_sheet_bucket(&p->sheet, "+Inf", launches);
    ks_sheet_total(&p->sheet, launches, (double)p->sum.rows_sum);
}

static void write_pinned(page *p)
{
    write_of_state(p, 0, "used", p->sum.slot_used_bytes);
    write_of_state(p, 0, "free", p->sum.slot_total_bytes - p->sum.slot_used_bytes);
    write_of_state(p, 0, "ring", p->sum.ring_bytes);
}

static void label_device(page *p)
{
    ks_sheet_label(&p->sheet, 0, "device", p->device);
}

static void write_lanes(page *p)
{
    label_device(p);
    write_of_state(p, 1, "busy", p->sum.lanes_busy);
    write_of_state(p, 1, "idle", p->sum.lanes - p->sum.lanes_busy);
}

static void write_device(page *p)
{
    const ks_device_info *device = &p->values->device;
    char capability[16] = "";
    const int sm = device->capability;
    if (sm) snprintf(capability, sizeof capability, "%d.%d", sm / 10, sm % 10);
    label_device(p);
    ks_sheet_label(&p->sheet, 1, "uuid", device->uuid);
    ks_sheet_label(&p->sheet, 2, "model_name", device->name);
    ks_sheet_label(&p->sheet, 3, "compute_capability", capability);
    ks_sheet_label(&p->sheet, 4, "driver_version", device->driver);
    ks_sheet_sample(&p->sheet, 1);
}

static void write_device_state(page *p)
{
    static const char *const names[] = {"good", "failed"};
    label_device(p);
    ks_sheet_states(&p->sheet, names, 2, p->values->state == KS_STATE_FAILED);
}

static void write_device_faults(page *p)
{
    label_device(p);
    ks_sheet_sample(&p->sheet, p->values->device_faults);
}

/* What is not known has no line: a 0 would be a reading. */
static void write_device_memory(page *p)
{
    if (p->values->device_used_bytes < 0) return;
    label_device(p);
    write_of_state(p, 1, "used", (uint64_t)p->values->device_used_bytes);
    write_of_state(p, 1, "free", (uint64_t)p->values->device_free_bytes);
}

static void write_time(page *p, const char *label, const char *value, uint64_t ns)
{
    label_device(p);
    if (label) ks_sheet_label(&p->sheet, 1, label, value);
    ks_sheet_seconds(&p->sheet, ns);
}

static void write_engine_busy(page *p)
{
    const ks_overlap_sums *sums = p->values->overlap;
    if (!sums) return;
#define X(cell, value) write_time(p, "engine", value, sums->cell);
    KS_ENGINE_BUSY_TABLE(X)
#undef X
}

static void write_engine_overlap(page *p)
{
    const ks_overlap_sums *sums = p->values->overlap;
    if (!sums) return;
#define X(cell, value) write_time(p, "pair", value, sums->cell);
    KS_ENGINE_PAIR_TABLE(X)
#undef X
}

static void write_engine_observed(page *p)
{
    if (p->values->overlap) write_time(p, NULL, NULL, p->values->overlap->observed);
}

static void write_timeline_overruns(page *p)
{
    if (p->values->overlap) ks_sheet_sample(&p->sheet, p->values->overlap->overruns);
}

/* --- rows ------------------------------------------------------------------------------------------------------------
 */

/* label: of the row; NULL: it has none, and one line. */
static void begin_row(page *p, int family, bool of_device, const char *label)
{
    ks_sheet_begin(&p->sheet, family);
    if (of_device) label_device(p);
    p->label = label;
    p->place = of_device;
}

static void write_line(page *p, const char *value, uint64_t amount)
{
    if (p->label) ks_sheet_label(&p->sheet, p->place, p->label, value);
    ks_sheet_amount(&p->sheet, amount);
}

#define ROW(id, of_device, amount)                                                                                     \
    begin_row(p, F_##id, of_device, NULL);                                                                             \
    write_line(p, NULL, amount);
#define ROW_BY(id, of_device, label, lines)                                                                            \
    begin_row(p, F_##id, of_device, label);                                                                            \
    lines

static void write_shards(page *p)
{
#define SHARD(id, ...) ROW(id, false, ks_metrics_sum(p->metrics, KS_COUNT_##id))
#define SHARD_BY(id, kind, name, unit, label, values, help) ROW_BY(id, false, label, values)
#define V(cell, value) write_line(p, value, ks_metrics_sum(p->metrics, KS_COUNT_##cell));
#include "observe/metrics.def"
}

static void write_engines(page *p)
{
#define ENGINE(id, ...) ROW(id, false, p->sum.id)
#define ENGINE_BY(id, kind, name, unit, label, values, help) ROW_BY(id, false, label, values)
#define DEVICE(id, ...) ROW(id, true, p->sum.id)
#define DEVICE_BY(id, kind, name, unit, label, values, help) ROW_BY(id, true, label, values)
#define V(cell, value) write_line(p, value, p->sum.cell);
#include "observe/metrics.def"
}

static void write_values(page *p)
{
#define VALUE(id, ...) ROW(id, false, p->values->id)
#define VALUE_BY(id, kind, name, unit, label, values, help) ROW_BY(id, false, label, values)
#define V(cell, value) write_line(p, value, p->values->cell);
#include "observe/metrics.def"
}

static void write_functions(page *p)
{
#define PAGE(id, ...)                                                                                                  \
    ks_sheet_begin(&p->sheet, F_##id);                                                                                 \
    write_##id(p);
#include "observe/metrics.def"
}

void ks_metrics_text(const ks_metrics *metrics, const ks_document *values, ks_text *out)
{
    page p = {.sheet = {.out = out, .openmetrics = values->openmetrics},
              .metrics = metrics,
              .values = values,
              .sum = engines_sum(values),
              .models = ks_model_count() + 1};
    list_models(&p);
    if (values->workers)
        snprintf(p.device, sizeof p.device, "%d", values->workers->row[values->worker].device);
    else if (values->device.gpu)
        snprintf(p.device, sizeof p.device, "%d", values->device.index);
    else
        snprintf(p.device, sizeof p.device, "%s", values->device.backend ? values->device.backend : "cpu");
    write_functions(&p);
    write_shards(&p);
    write_engines(&p);
    write_values(&p);
    ks_sheet_process(&p.sheet);
    if (values->triton) ks_sheet_triton(&p.sheet, metrics, values);
    if (values->openmetrics) ks_text_puts(out, "# EOF\n");
}
