#include "observe/history.h"

#include <stdlib.h>
#include <string.h>

#include "observe/metrics_cells.h"

enum {
    SECONDS = KS_HISTORY_S + 1,
    SHORT = KS_HISTORY_SHORT_S + 1,
    OVERLAPS = sizeof(ks_overlap_sums) / sizeof(uint64_t)
};

/* Counters since the start, and the maxima of the second that ended then. */
typedef struct second {
    int64_t at_ns;
    uint32_t latency[KS_LATENCY_STEPS]; /* modulo 2^32: differences hold */
    uint64_t requests, in_bytes, out_bytes;
    uint64_t rejected[KS_STATUS_COUNT], count[KS_COUNTS]; /* of gauges: nothing */
    int64_t most[KS_GAUGES];
    ks_overlap_sums overlap;
} second;

struct ks_history {
    const ks_metrics *metrics;
    int count;                               /* seconds that are known, the newest one included */
    int newest;                              /* its place */
    int newest_short;                        /* its place in models */
    int64_t now[KS_GAUGES], most[KS_GAUGES]; /* most: since the newest second */
    second seconds[SECONDS];
    ks_model_times models[SHORT][KS_MODELS_MAX];
};

static uint64_t relaxed(const ks_cell *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* --- a second ----------------------------------------------------------------------------------------------------- */

static uint64_t requests_of(const ks_model_cells *model)
{
    uint64_t sum = 0;
    for (int format = 0; format < KS_FORMAT_LABELS; format++)
        for (int outcome = 0; outcome < KS_OUTCOMES; outcome++) sum += relaxed(&model->requests[format][outcome]);
    return sum;
}

static void add_writer(const ks_shard_metrics *m, second *s, ks_model_times *models)
{
    for (int i = 0; i < KS_LATENCY_STEPS; i++) s->latency[i] += (uint32_t)relaxed(&m->latency[i]);
    for (int i = 0; i < KS_STATUS_COUNT; i++) s->rejected[i] += relaxed(&m->rejected[i]);
    for (int i = 0; i < KS_COUNTS; i++) s->count[i] += relaxed(&m->count[i]);
    s->in_bytes += relaxed(&m->http_in[KS_HANDLER_infer]);
    s->out_bytes += relaxed(&m->http_out[KS_HANDLER_infer]);
    s->requests += requests_of(&m->model[KS_MODELS_MAX]);
    for (int i = 0; i < ks_model_count(); i++) {
        const ks_histogram *total = &m->model[i].duration;
        const uint64_t requests = requests_of(&m->model[i]);
        s->requests += requests;
        if (requests == 0) continue;
        for (int b = 0; b <= KS_BOUNDS; b++) models[i].requests += relaxed(&total->bucket[b]);
        models[i].total_ns += relaxed(&total->sum_ns);
        for (int p = 0; p < KS_PHASES; p++) models[i].phase_ns[p] += relaxed(&m->model[i].phase[p].sum_ns);
    }
}

static void take(ks_history *h, int64_t now_ns, const ks_overlap_sums *overlap)
{
    second *s = &h->seconds[h->newest];
    memset(s, 0, sizeof *s);
    memset(h->models[h->newest_short], 0, sizeof h->models[0]);
    s->at_ns = now_ns;
    for (int i = 0; i < h->metrics->writers; i++) add_writer(&h->metrics->shard[i], s, h->models[h->newest_short]);
    if (overlap) s->overlap = *overlap;
    memcpy(s->most, h->most, sizeof s->most);
    memcpy(h->most, h->now, sizeof h->most);
    if (h->count < SECONDS) h->count++;
}

ks_history *ks_history_open(const ks_metrics *metrics, int64_t now_ns)
{
    ks_history *h = malloc(sizeof *h);
    if (!h) return NULL;
    /* Each page is written now. Memory of calloc would become resident a second at a time, and the process would seem
     * to leak 2.8 KB/s for five minutes. */
    explicit_bzero(h, sizeof *h);
    h->metrics = metrics;
    take(h, now_ns, NULL);
    return h;
}

void ks_history_close(ks_history **history)
{
    free(*history);
    *history = NULL;
}

void ks_history_gauges(ks_history *h, const int64_t now[KS_GAUGES])
{
    for (int i = 0; i < KS_GAUGES; i++) {
        h->now[i] = now[i];
        if (now[i] > h->most[i]) h->most[i] = now[i];
    }
}

void ks_history_second(ks_history *h, int64_t now_ns, const ks_overlap_sums *overlap)
{
    h->newest = (h->newest + 1) % SECONDS;
    h->newest_short = (h->newest_short + 1) % SHORT;
    take(h, now_ns, overlap);
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

/* As it was so many seconds before the newest, or when the first was taken. */
static const second *before(const ks_history *h, int seconds)
{
    const int back = seconds < h->count - 1 ? seconds : h->count - 1;
    return &h->seconds[(h->newest + SECONDS - back) % SECONDS];
}

/* The bound of the step in which the n-th lies. */
static int64_t nth(const uint32_t *counts, uint64_t n)
{
    uint64_t sum = 0;
    for (int i = 0; i < KS_LATENCY_STEPS; i++)
        if ((sum += counts[i]) >= n) return ks_latency_bound(i);
    return -1;
}

void ks_history_load(const ks_history *h, int seconds, ks_load *out)
{
    const second *now = &h->seconds[h->newest], *was = before(h, seconds);
    uint32_t counts[KS_LATENCY_STEPS];
    uint64_t n = 0;
    for (int i = 0; i < KS_LATENCY_STEPS; i++) n += counts[i] = now->latency[i] - was->latency[i];
    *out = (ks_load){.span_ns = now->at_ns - was->at_ns,
                     .requests = now->requests - was->requests,
                     .in_bytes = now->in_bytes - was->in_bytes,
                     .out_bytes = now->out_bytes - was->out_bytes,
                     .p50_ns = n ? nth(counts, (n + 1) / 2) : -1,
                     .p99_ns = n ? nth(counts, n - n / 100) : -1,
                     .max_ns = n ? nth(counts, n) : -1};
}

void ks_history_overlap(const ks_history *h, int seconds, ks_overlap_sums *out)
{
    const uint64_t *now = (const uint64_t *)&h->seconds[h->newest].overlap;
    const uint64_t *was = (const uint64_t *)&before(h, seconds)->overlap;
    for (int i = 0; i < OVERLAPS; i++) ((uint64_t *)out)[i] = now[i] - was[i];
}

void ks_history_window(const ks_history *h, int seconds, int64_t *from_ns, int64_t *to_ns)
{
    *from_ns = before(h, seconds)->at_ns;
    *to_ns = h->seconds[h->newest].at_ns;
}

int64_t ks_history_now(const ks_history *h, ks_gauge gauge)
{
    return h->now[gauge];
}

int64_t ks_history_most(const ks_history *h, ks_gauge gauge)
{
    int64_t most = h->most[gauge];
    for (int i = 0; i < h->count; i++) {
        const int64_t one = h->seconds[(h->newest + SECONDS - i) % SECONDS].most[gauge];
        if (one > most) most = one;
    }
    return most;
}

uint64_t ks_history_rejected(const ks_history *h, ks_status status)
{
    return h->seconds[h->newest].rejected[status] - before(h, KS_HISTORY_S)->rejected[status];
}

uint64_t ks_history_aborted(const ks_history *h, ks_count count)
{
    return h->seconds[h->newest].count[count] - before(h, KS_HISTORY_S)->count[count];
}

void ks_history_model(const ks_history *h, int model, ks_model_times *out)
{
    const int back = h->count - 1 < SHORT - 1 ? h->count - 1 : SHORT - 1;
    const ks_model_times *now = &h->models[h->newest_short][model];
    const ks_model_times *was = &h->models[(h->newest_short + SHORT - back) % SHORT][model];
    *out = (ks_model_times){.requests = now->requests - was->requests, .total_ns = now->total_ns - was->total_ns};
    for (int p = 0; p < KS_PHASES; p++) out->phase_ns[p] = now->phase_ns[p] - was->phase_ns[p];
}
