/* /status.json. What is not known is null; tests/operate/status.schema.json says what stands where. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/board/board_parts.h"
#include "base/clock.h"
#include "base/model.h"
#include "base/version.h"

enum { LAUNCHES_MOST = 4000, PLANS_NAMED = 1024 };

static void put_text(ks_text *out, const char *text)
{
    if (text[0])
        ks_text_json(out, text, strlen(text));
    else
        ks_text_puts(out, "null");
}

/* Microseconds with three decimals; below 0: not known. */
static void put_us(ks_text *out, const char *name, int64_t ns)
{
    if (ns < 0)
        ks_text_printf(out, "\"%s\":null", name);
    else
        ks_text_printf(out, "\"%s\":%" PRId64 ".%03d", name, ns / 1000, (int)(ns % 1000));
}

/* --- the head ----------------------------------------------------------------------------------------------------- */

/* Those of datatypes that are known; nothing is asked for. */
static void put_ceilings(const ks_ceiling_store *ceilings, ks_text *out)
{
    const double copy_gbs = ks_ceilings_copy_gbs(ceilings);
    const char *comma = "";
    ks_text_printf(out, copy_gbs > 0 ? ",\"ceilings\":{\"copy_gbs\":%.6g" : ",\"ceilings\":{\"copy_gbs\":null",
                   copy_gbs);
    ks_text_puts(out, ",\"tflops\":{");
    for (int d = 0; d < KS_DTYPE_COUNT; d++) {
        const double tflops = ks_ceilings_tflops(ceilings, (ks_dtype)d);
        if (!(tflops > 0)) continue;
        ks_text_printf(out, "%s\"%s\":%.6g", comma, ks_dtype_name((ks_dtype)d), tflops);
        comma = ",";
    }
    ks_text_puts(out, "}}}");
}

static void put_device(const ks_board *board, ks_text *out)
{
    const ks_device_info *device = board->view->device_info;
    const int64_t used = atomic_load(&board->view->device_used_bytes),
                  left = atomic_load(&board->view->device_free_bytes);
    ks_text_printf(out, ",\n\"device\":{\"backend\":\"%s\",\"name\":", device->backend);
    put_text(out, device->name);
    ks_text_puts(out, ",\"uuid\":");
    put_text(out, device->uuid);
    ks_text_puts(out, ",\"driver\":");
    put_text(out, device->driver);
    if (used >= 0)
        ks_text_printf(out, ",\"memory\":{\"used\":%" PRId64 ",\"free\":%" PRId64 "}", used, left);
    else
        ks_text_puts(out, ",\"memory\":null");
    put_ceilings(board->view->ceilings, out);
}

static void put_head(const ks_board *board, ks_text *out)
{
    char now[32], since[32];
    const int64_t now_ns = ks_now_ns();
    ks_board_time(ks_wall_ns() / 1000000, now);
    ks_board_time(board->since_ms, since);
    ks_text_printf(out, "{\"schema\":1,\"time\":\"%s\",\"clock_ns\":%" PRId64 ",\"version\":\"%s\",\"revision\":\"%s\"",
                   now, now_ns, KS_VERSION, ks_version_revision());
    ks_text_printf(out, ",\"state\":\"%s\",\"since\":\"%s\",\"uptime_s\":%" PRId64 ",\"pid\":%d",
                   ks_state_names[board->state], since, (now_ns - board->opened_ns) / 1000000000, (int)getpid());
}

/* --- load and limits ---------------------------------------------------------------------------------------------- */

static void put_rate(ks_text *out, const char *name, uint64_t n, int64_t span_ns)
{
    if (span_ns > 0)
        ks_text_printf(out, "\"%s\":%.3f,", name, (double)n * 1e9 / (double)span_ns);
    else
        ks_text_printf(out, "\"%s\":null,", name);
}

static void put_load(const ks_board *board, const char *name, int seconds, ks_text *out)
{
    ks_load load;
    ks_history_load(board->history, seconds, &load);
    ks_text_printf(out, "\"%s\":{\"span_s\":%.3f,\"requests\":%" PRIu64 ",", name, (double)load.span_ns / 1e9,
                   load.requests);
    put_rate(out, "requests_per_s", load.requests, load.span_ns);
    put_rate(out, "in_bytes_per_s", load.in_bytes, load.span_ns);
    put_rate(out, "out_bytes_per_s", load.out_bytes, load.span_ns);
    put_us(out, "p50_us", load.p50_ns);
    ks_text_puts(out, ",");
    put_us(out, "p99_us", load.p99_ns);
    ks_text_puts(out, ",");
    put_us(out, "max_us", load.max_ns);
    ks_text_puts(out, "}");
}

static void put_counts(const ks_board *board, ks_text *out)
{
    ks_text_puts(out, ",\n\"refused_5m\":{");
    const char *comma = "";
    for (int s = KS_OK + 1; s < KS_CANCELLED; s++) {
        const char *code = ks_board_code((ks_status)s);
        const uint64_t n = code ? ks_board_refused(board, code) : 0;
        if (n == 0) continue;
        ks_text_printf(out, "%s\"%s\":%" PRIu64, comma, code, n);
        comma = ",";
    }
    ks_text_puts(out, "},\"aborted_5m\":{");
    for (int i = 0; i < KS_BOARD_ABORTED; i++)
        ks_text_printf(out, "%s\"%s\":%" PRIu64, i ? "," : "", ks_board_aborted[i].phase,
                       ks_history_aborted(board->history, ks_board_aborted[i].count));
    ks_text_puts(out, "}");
}

static void put_limits(const ks_board *board, ks_text *out)
{
    ks_text_puts(out, ",\n\"limits\":[");
    for (int i = 0; i < KS_GAUGES; i++) {
        const int64_t limit = ks_board_limit(board, (ks_gauge)i);
        ks_text_printf(out, "%s\n{\"name\":\"%s\",\"now\":%" PRId64 ",\"max_5m\":%" PRId64 ",\"limit\":", i ? "," : "",
                       ks_gauge_names[i], ks_history_now(board->history, (ks_gauge)i),
                       ks_history_most(board->history, (ks_gauge)i));
        if (limit >= 0)
            ks_text_printf(out, "%" PRId64 "}", limit);
        else
            ks_text_puts(out, "null}");
    }
    ks_text_puts(out, "]");
}

static void put_resident(const ks_board *board, ks_text *out)
{
    ks_board_row rows[KS_BOARD_RESIDENT];
    const int count = ks_board_resident(board, rows);
    ks_text_puts(out, count ? ",\n\"resident\":{" : ",\n\"resident\":null");
    for (int i = 0; i < count; i++) ks_text_printf(out, "%s\"%s\":%" PRIu64, i ? "," : "", rows[i].name, rows[i].count);
    if (count) ks_text_puts(out, "}");
}

/* --- phases and plans --------------------------------------------------------------------------------------------- */

static void put_model(const ks_model *model, const ks_model_times *times, ks_text *out)
{
    const double requests = (double)times->requests;
    uint64_t sum_ns = 0;
    ks_text_printf(out, "\n{\"model\":\"%s\",\"requests_10s\":%" PRIu64 ",\"mean_us\":{", model->label,
                   times->requests);
    for (int p = 0; p < KS_BOARD_PHASES; p++) {
        ks_text_printf(out, "\"%s\":%.3f,", ks_phase_name((ks_phase)p), (double)times->phase_ns[p] / requests / 1e3);
        sum_ns += times->phase_ns[p];
    }
    const double rest = times->total_ns > sum_ns ? (double)(times->total_ns - sum_ns) : 0;
    ks_text_printf(out, "\"unaccounted\":%.3f,\"total\":%.3f}}", rest / requests / 1e3,
                   (double)times->total_ns / requests / 1e3);
}

static void put_phases(const ks_board *board, ks_text *out)
{
    const char *comma = "";
    ks_text_puts(out, ",\n\"phases\":[");
    for (int i = 0; i < ks_model_count(); i++) {
        ks_model_times times;
        ks_history_model(board->history, i, &times);
        if (times.requests == 0) continue;
        ks_text_puts(out, comma);
        put_model(ks_model_at(i), &times, out);
        comma = ",";
    }
    ks_text_puts(out, "]");
}

static void put_plans(const ks_board *board, ks_text *out)
{
    ks_plan_list list;
    const int count = ks_board_plans(board, &list);
    ks_text_puts(out, ",\n\"plans\":[");
    for (int i = 0; i < count; i++) {
        char text[KS_SPEC_TEXT_MAX];
        ks_spec_text(&list.row[i].facts.spec, text);
        ks_text_puts(out, i ? ",\n" : "\n");
        ks_plans_open_row(board->view, &list.row[i], out);
        ks_text_puts(out, ",\"plan\":");
        put_text(out, text);
        ks_text_puts(out, "}");
    }
    ks_text_puts(out, "]");
    ks_plans_free(&list);
}

/* --- the timeline ------------------------------------------------------------------------------------------------- */

/* Launches name their lane and their plan by a place in a list. */
typedef struct timeline {
    const ks_timeline *records;
    int shards;
    int64_t since_ns, from_ns; /* launches that ended since then are looked for; since from_ns all of them are here */
    uint64_t every;            /* of the records one is written */
    bool written;              /* one was */
    int lanes, plans;
    short lane_at[KS_SHARDS_MAX][KS_LANES_MAX]; /* 1 + its place */
    struct {
        int shard, lane;
    } lane[KS_SHARDS_MAX * KS_LANES_MAX];
    struct {
        int shard;
        uint64_t id;
    } plan[PLANS_NAMED];
} timeline;

static int lane_of(timeline *t, int shard, int lane)
{
    short *at = &t->lane_at[shard][lane];
    if (*at == 0) {
        t->lane[t->lanes].shard = shard;
        t->lane[t->lanes].lane = lane;
        *at = (short)++t->lanes;
    }
    return *at - 1;
}

/* -1: there are too many of them. */
static int plan_of(timeline *t, int shard, uint64_t id)
{
    for (int i = 0; i < t->plans; i++)
        if (t->plan[i].id == id && t->plan[i].shard == shard) return i;
    if (t->plans == PLANS_NAMED) return -1;
    t->plan[t->plans].shard = shard;
    t->plan[t->plans].id = id;
    return t->plans++;
}

typedef void visit_fn(timeline *t, int shard, uint64_t number, const ks_launch_record *r, ks_text *out);

static int64_t end_of(const ks_launch_record *r)
{
    return r->launched_ns + r->h2d_ns + r->compute_ns + r->d2h_ns;
}

/* Newest first, until the time or the records end; what has ended before the oldest record of any shard is not all here. */
static void visit(timeline *t, ks_text *out, visit_fn *each)
{
    for (int shard = 0; shard < t->shards; shard++) {
        int64_t oldest_ns = t->since_ns;
        for (uint64_t n = ks_timeline_launches(t->records, shard); n > 0; n--) {
            ks_launch_record r;
            if (!ks_timeline_launch(t->records, shard, n, &r)) {
                if (oldest_ns > t->from_ns) t->from_ns = oldest_ns;
                break;
            }
            oldest_ns = end_of(&r);
            if (oldest_ns < t->since_ns) break;
            each(t, shard, n, &r, out);
        }
    }
}

/* visit_fn */
static void count_launch(timeline *t, int shard, uint64_t number, const ks_launch_record *r, ks_text *out)
{
    (void)shard;
    (void)number;
    (void)r;
    (void)out;
    t->every++;
}

/* visit_fn */
static void put_launch(timeline *t, int shard, uint64_t number, const ks_launch_record *r, ks_text *out)
{
    if (number % t->every != 0) return;
    ks_text_printf(out, "%s[%d,%d,%d,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%d]", t->written ? ",\n" : "\n",
                   lane_of(t, shard, r->lane), plan_of(t, shard, r->plan), r->jobs, r->launched_ns, r->h2d_ns,
                   r->compute_ns, r->d2h_ns, r->graph);
    t->written = true;
}

static void put_names(const timeline *t, ks_text *out)
{
    ks_text_puts(out, "],\n\"lanes\":[");
    for (int i = 0; i < t->lanes; i++)
        ks_text_printf(out, "%s{\"shard\":%d,\"lane\":%d}", i ? "," : "", t->lane[i].shard, t->lane[i].lane);
    ks_text_puts(out, "],\n\"plans\":[");
    for (int i = 0; i < t->plans; i++) {
        ks_plan_record plan;
        if (i) ks_text_puts(out, ",");
        put_text(out, ks_timeline_plan(t->records, t->plan[i].shard, t->plan[i].id, &plan) ? plan.text : "");
    }
    ks_text_puts(out, "]}");
}

static void put_overlap(const ks_board *board, ks_text *out)
{
    ks_overlap_sums s;
    ks_history_overlap(board->history, KS_BOARD_TIMELINE_S, &s);
    int64_t from_ns, to_ns;
    ks_history_window(board->history, KS_BOARD_TIMELINE_S, &from_ns, &to_ns);
    ks_text_printf(out,
                   "\"observed_from_ns\":%" PRId64 ",\"observed_to_ns\":%" PRId64 ",\"observed_ns\":%" PRIu64
                   ",\"busy_ns\":{",
                   from_ns, to_ns, s.observed);
#define X(cell, label) ks_text_printf(out, "%s\"" label "\":%" PRIu64, comma, s.cell), comma = ",";
    const char *comma = "";
    KS_ENGINE_BUSY_TABLE(X)
    comma = "";
    ks_text_puts(out, "},\"overlap_ns\":{");
    KS_ENGINE_PAIR_TABLE(X)
#undef X
    const double ratio = ks_board_ratio(&s);
    if (ratio >= 0)
        ks_text_printf(out, "},\"overlap_ratio\":%.4f", ratio);
    else
        ks_text_puts(out, "},\"overlap_ratio\":null");
    ks_overlap_read(board->overlap, &s);
    ks_text_printf(out, ",\"overruns\":%" PRIu64, s.overruns);
}

static void put_timeline(const ks_board *board, ks_text *out)
{
    if (!board->overlap) {
        ks_text_puts(out, ",\n\"timeline\":null");
        return;
    }
    const int64_t now_ns = ks_now_ns(), since_ns = now_ns - KS_BOARD_TIMELINE_S * INT64_C(1000000000);
    timeline t = {.records = board->view->timeline,
                  .shards = board->view->shards,
                  .since_ns = since_ns,
                  .from_ns = since_ns > board->opened_ns ? since_ns : board->opened_ns};
    visit(&t, out, count_launch);
    ks_text_printf(out, ",\n\"timeline\":{\"from_ns\":%" PRId64 ",\"to_ns\":%" PRId64 ",\"kept\":%" PRIu64 ",",
                   t.from_ns, now_ns, t.every);
    put_overlap(board, out);
    ks_text_puts(out, ",\"launches\":[");
    t.every = t.every / LAUNCHES_MOST + 1;
    visit(&t, out, put_launch);
    put_names(&t, out);
}

/* --- slow requests ------------------------------------------------------------------------------------------------ */

static void put_slow(const ks_slow *slow, ks_text *out)
{
    const ks_request_record *r = &slow->request;
    char time[32];
    int64_t phase_ns[KS_BOARD_PHASES];
    ks_board_time((ks_wall_ns() - (ks_now_ns() - r->answered_ns)) / 1000000, time);
    ks_board_phases(slow, phase_ns);
    ks_text_printf(out, "\n{\"time\":\"%s\",\"request_id\":", time);
    put_text(out, r->request_id);
    ks_text_printf(out, ",\"model\":\"%s\",\"plan\":", ks_board_model(slow));
    put_text(out, slow->plan.text);
    ks_text_printf(out, ",\"status\":%d,", ks_status_http((ks_status)r->status));
    put_us(out, "total_us", ks_slow_ns(slow));
    ks_text_puts(out, ",\"phases_us\":{");
    for (int p = 0; p < KS_BOARD_PHASES; p++) {
        if (p) ks_text_puts(out, ",");
        put_us(out, ks_phase_name((ks_phase)p), phase_ns[p]);
    }
    ks_text_printf(out, "},\"shard\":%d,\"lane\":", slow->shard);
    ks_text_printf(out, slow->lane >= 0 ? "%d" : "null", slow->lane);
    if (r->ran)
        ks_text_printf(out, ",\"in_bytes\":%" PRIu64, r->in_bytes);
    else
        ks_text_puts(out, ",\"in_bytes\":null");
    ks_text_printf(out, ",\"out_bytes\":%" PRIu64 "}", r->out_bytes);
}

void ks_board_json(ks_board *board, ks_text *out)
{
    const ks_slow *slow[KS_SLOWEST];
    ks_board_look(board);
    const int count = board->slowest ? ks_slowest_list(board->slowest, slow) : 0;
    put_head(board, out);
    put_device(board, out);
    ks_text_puts(out, ",\n\"load\":{");
    put_load(board, "10s", KS_BOARD_SHORT_S, out);
    ks_text_puts(out, ",\n");
    put_load(board, "5m", KS_BOARD_LONG_S, out);
    ks_text_puts(out, "}");
    put_counts(board, out);
    put_limits(board, out);
    put_resident(board, out);
    put_phases(board, out);
    put_plans(board, out);
    put_timeline(board, out);
    ks_text_puts(out, ",\n\"slow\":[");
    for (int i = 0; i < count; i++) {
        if (i) ks_text_puts(out, ",");
        put_slow(slow[i], out);
    }
    ks_text_puts(out, "]}\n");
}
