/* /status: status.html with tables in the places that it names, {{place}}. All of a client's text goes through put_text. A number stands
 * as <data value=...> with the figure of /status.json, and its short form for people within it. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/board/board_parts.h"
#include "base/clock.h"
#include "base/model.h"
#include "base/version.h"

static void put_text(ks_text *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            ks_text_puts(out, "&lt;");
        else if (*text == '>')
            ks_text_puts(out, "&gt;");
        else if (*text == '&')
            ks_text_puts(out, "&amp;");
        else
            ks_text_add(out, text, 1);
    }
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static void put_short(ks_text *out, double value, const char *unit)
{
    ks_text_printf(out, value < 10 ? "%.2f %s" : value < 100 ? "%.1f %s" : "%.0f %s", value, unit);
}

static void put_none(ks_text *out)
{
    ks_text_puts(out, "–");
}

static void put_count(ks_text *out, int64_t n)
{
    if (n < 0)
        put_none(out);
    else
        ks_text_printf(out, "<data value=%" PRId64 ">%" PRId64 "</data>", n, n);
}

static void put_short_time(ks_text *out, double ns)
{
    if (ns == 0)
        ks_text_puts(out, "0");
    else if (ns < 1e6)
        put_short(out, ns / 1e3, "µs");
    else if (ns < 1e9)
        put_short(out, ns / 1e6, "ms");
    else
        put_short(out, ns / 1e9, "s");
}

/* Given in ns, written as the JSON has it, in us. */
static void put_time(ks_text *out, double ns)
{
    if (ns < 0) {
        put_none(out);
        return;
    }
    ks_text_printf(out, "<data value=%.3f>", ns / 1e3);
    put_short_time(out, ns);
    ks_text_puts(out, "</data>");
}

static void put_short_bytes(ks_text *out, double bytes, const char *per)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    char unit[16];
    int i = 0;
    for (; bytes >= 1024 && i < 4; i++) bytes /= 1024;
    snprintf(unit, sizeof unit, "%s%s", units[i], per);
    if (i == 0)
        ks_text_printf(out, "%.0f %s", bytes, unit);
    else
        put_short(out, bytes, unit);
}

static void put_bytes(ks_text *out, int64_t bytes)
{
    if (bytes < 0) {
        put_none(out);
        return;
    }
    ks_text_printf(out, "<data value=%" PRId64 ">", bytes);
    put_short_bytes(out, (double)bytes, "");
    ks_text_puts(out, "</data>");
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

/* columns: separated by "|"; one that begins with "." is text. */
static void begin_table(ks_text *out, const char *caption, const char *columns)
{
    ks_text_printf(out, "<table><caption>%s</caption><thead><tr>", caption);
    while (*columns) {
        const char *end = strchrnul(columns, '|');
        const bool text = *columns == '.';
        ks_text_puts(out, text ? "<th scope=col class=t>" : "<th scope=col>");
        ks_text_add(out, columns + text, (size_t)(end - columns) - text);
        columns = *end ? end + 1 : end;
    }
    ks_text_puts(out, "</thead><tbody>");
}

static void end_table(ks_text *out)
{
    ks_text_puts(out, "</tbody></table>");
}

static void put_row(ks_text *out, const char *name)
{
    ks_text_puts(out, "<tr><th scope=row>");
    put_text(out, name);
}

static void put_cell(ks_text *out, const char *text)
{
    ks_text_puts(out, "<td class=t>");
    if (text[0])
        put_text(out, text);
    else
        put_none(out);
}

#define CELL(out, put, value)                                                                                          \
    do {                                                                                                               \
        ks_text_puts(out, "<td>");                                                                                     \
        put(out, value);                                                                                               \
    } while (0)

/* --- places ------------------------------------------------------------------------------------------------------- */

static void write_state(ks_board *board, ks_text *out)
{
    ks_text_printf(out, "<span id=state class=%s>%s</span>", ks_state_names[board->state],
                   ks_state_names[board->state]);
}

static void write_about(ks_board *board, ks_text *out)
{
    char since[32];
    const ks_device_info *device = board->view->device_info;
    ks_board_time(board->since_ms, since);
    ks_text_printf(out, "since <time datetime=%s>%s</time> · ", since, since);
    put_text(out, device->name);
    ks_text_printf(out, " (%s) · kernserve %s (", device->backend, KS_VERSION);
    put_text(out, ks_version_revision());
    ks_text_puts(out, ")");
}

static void put_rate(ks_text *out, uint64_t n, int64_t span_ns, bool bytes)
{
    const double rate = span_ns > 0 ? (double)n * 1e9 / (double)span_ns : -1;
    ks_text_puts(out, "<td>");
    if (rate < 0) {
        put_none(out);
        return;
    }
    ks_text_printf(out, "<data value=%.3f>", rate);
    if (bytes)
        put_short_bytes(out, rate, "/s");
    else
        ks_text_printf(out, rate < 100 ? "%.1f" : "%.0f", rate);
    ks_text_puts(out, "</data>");
}

static void write_load(ks_board *board, ks_text *out)
{
    static const struct {
        const char *name;
        int seconds;
    } spans[] = {{"10 s", KS_BOARD_SHORT_S}, {"5 min", KS_BOARD_LONG_S}};
    begin_table(out, "Infer requests", ".of the last|requests/s|bodies in|responses out|p50|p99|max");
    for (int i = 0; i < 2; i++) {
        ks_load load;
        ks_history_load(board->history, spans[i].seconds, &load);
        put_row(out, spans[i].name);
        put_rate(out, load.requests, load.span_ns, false);
        put_rate(out, load.in_bytes, load.span_ns, true);
        put_rate(out, load.out_bytes, load.span_ns, true);
        CELL(out, put_time, (double)load.p50_ns);
        CELL(out, put_time, (double)load.p99_ns);
        CELL(out, put_time, (double)load.max_ns);
    }
    end_table(out);
}

static void write_limits(ks_board *board, ks_text *out)
{
    begin_table(out, "Now, most of 5 minutes, limit", ".what|now|max 5 min|limit");
    for (int i = 0; i < KS_GAUGES; i++) {
        const bool bytes = strstr(ks_gauge_names[i], "bytes") != NULL;
        const int64_t values[] = {ks_history_now(board->history, (ks_gauge)i),
                                  ks_history_most(board->history, (ks_gauge)i), ks_board_limit(board, (ks_gauge)i)};
        put_row(out, ks_gauge_names[i]);
        for (int v = 0; v < 3; v++)
            if (bytes)
                CELL(out, put_bytes, values[v]);
            else
                CELL(out, put_count, values[v]);
    }
    end_table(out);
}

static void write_refused(ks_board *board, ks_text *out)
{
    int rows = 0;
    begin_table(out, "Refused, and given up by clients, in 5 minutes", ".code|requests");
    for (int s = KS_OK + 1; s < KS_CANCELLED; s++) {
        const char *code = ks_board_code((ks_status)s);
        const uint64_t n = code ? ks_board_refused(board, code) : 0;
        if (n == 0) continue;
        put_row(out, code);
        CELL(out, put_count, (int64_t)n);
        rows++;
    }
    for (int i = 0; i < KS_BOARD_ABORTED; i++) {
        const uint64_t n = ks_history_aborted(board->history, ks_board_aborted[i].count);
        char name[32];
        if (n == 0) continue;
        snprintf(name, sizeof name, "left in %s", ks_board_aborted[i].phase);
        put_row(out, name);
        CELL(out, put_count, (int64_t)n);
        rows++;
    }
    if (rows == 0) ks_text_puts(out, "<tr><td class=t colspan=2>none");
    end_table(out);
}

static void write_memory(ks_board *board, ks_text *out)
{
    const int64_t used = atomic_load(&board->view->device_used_bytes);
    begin_table(out, "Memory of the device", ".state|bytes");
    put_row(out, "used");
    CELL(out, put_bytes, used);
    put_row(out, "free");
    CELL(out, put_bytes, used < 0 ? -1 : atomic_load(&board->view->device_free_bytes));
    end_table(out);
}

static void write_resident(ks_board *board, ks_text *out)
{
    ks_board_row rows[KS_BOARD_RESIDENT];
    const int count = ks_board_resident(board, rows);
    if (count == 0) return;
    begin_table(out, "Resident tensors, since the start", ".resident tensors|count");
    for (int i = 0; i < count; i++) {
        put_row(out, rows[i].name);
        if (strstr(rows[i].name, "bytes"))
            CELL(out, put_bytes, (int64_t)rows[i].count);
        else
            CELL(out, put_count, (int64_t)rows[i].count);
    }
    end_table(out);
}

static void write_engines(ks_board *board, ks_text *out)
{
    ks_overlap_sums s;
    if (!board->overlap) {
        ks_text_puts(out, "<p>The daemon keeps no timeline: --timeline is 0.</p>");
        return;
    }
    ks_history_overlap(board->history, KS_BOARD_TIMELINE_S, &s);
    const double ratio = ks_board_ratio(&s);
    begin_table(out, "Engines of the device, last 2 s", ".busy|time");
#define X(cell, label)                                                                                                 \
    put_row(out, label);                                                                                               \
    CELL(out, put_time, (double)s.cell);
    KS_ENGINE_BUSY_TABLE(X)
    end_table(out);
    begin_table(out, "Engines at the same time, last 2 s", ".both busy|time");
    KS_ENGINE_PAIR_TABLE(X)
#undef X
    put_row(out, "of the busy time");
    ks_text_puts(out, "<td>");
    if (ratio >= 0)
        ks_text_printf(out, "<data value=%.4f>%.1f %%</data>", ratio, 100 * ratio);
    else
        put_none(out);
    end_table(out);
}

static void write_phases(ks_board *board, ks_text *out)
{
    begin_table(out, "Mean time of each phase, last 10 s",
                ".model|requests|receive|decode|queue|h2d|compute|d2h|encode|unaccounted|total");
    for (int i = 0; i < ks_model_count(); i++) {
        ks_model_times times;
        ks_history_model(board->history, i, &times);
        if (times.requests == 0) continue;
        const double requests = (double)times.requests;
        uint64_t sum_ns = 0;
        put_row(out, ks_model_at(i)->label);
        CELL(out, put_count, (int64_t)times.requests);
        for (int p = 0; p < KS_BOARD_PHASES; p++) {
            CELL(out, put_time, (double)times.phase_ns[p] / requests);
            sum_ns += times.phase_ns[p];
        }
        CELL(out, put_time, times.total_ns > sum_ns ? (double)(times.total_ns - sum_ns) / requests : 0);
        CELL(out, put_time, (double)times.total_ns / requests);
    }
    end_table(out);
}

/* below or equal 0: not known */
static void put_known_us(ks_text *out, double us)
{
    if (us > 0) {
        ks_text_printf(out, "<data value=%.6g>", us);
        put_short_time(out, 1e3 * us);
        ks_text_puts(out, "</data>");
    } else {
        put_none(out);
    }
}

static void put_share(ks_text *out, double share)
{
    if (share > 0)
        ks_text_printf(out, "<data value=%.6g>%.1f %%</data>", share, 100 * share);
    else
        put_none(out);
}

static void write_plans(ks_board *board, ks_text *out)
{
    ks_plan_list list;
    const int count = ks_board_plans(board, &list);
    begin_table(out, "Plans by time of their kernels",
                ".plan|.kernel|.path|launches|jobs|graph hits|kernels|a job|.bound|of the roofline");
    for (int i = 0; i < count; i++) {
        const ks_plan_row *row = &list.row[i];
        const ks_plan_figures figures = ks_plans_figures(board->view, row);
        const char *bound = ks_bound_name(figures.roofline.bound);
        char text[KS_SPEC_TEXT_MAX];
        ks_spec_text(&row->facts.spec, text);
        put_row(out, text);
        put_cell(out, row->facts.kernel_info.kernel);
        put_cell(out, row->facts.path);
        CELL(out, put_count, (int64_t)row->counts.launches);
        CELL(out, put_count, (int64_t)row->counts.jobs);
        CELL(out, put_count, (int64_t)row->counts.graph_hits);
        CELL(out, put_time, (double)row->counts.timed_ns);
        CELL(out, put_known_us, figures.us);
        put_cell(out, bound ? bound : "");
        CELL(out, put_share, figures.share);
    }
    end_table(out);
    ks_plans_free(&list);
}

static void put_ceiling(ks_text *out, const char *name, double value, const char *unit)
{
    put_row(out, name);
    ks_text_printf(out, "<td><data value=%.6g>", value);
    put_short(out, value, unit);
    ks_text_puts(out, "</data>");
}

static void write_ceilings(ks_board *board, ks_text *out)
{
    const ks_ceiling_store *ceilings = board->view->ceilings;
    const double copy_gbs = ks_ceilings_copy_gbs(ceilings);
    if (!(copy_gbs > 0)) {
        ks_text_puts(out, "<p>What the device can do at best is not known yet.</p>");
        return;
    }
    begin_table(out, "What the device can do at best", ".ceiling|rate");
    put_ceiling(out, "copy", copy_gbs, "GB/s");
    for (int d = 0; d < KS_DTYPE_COUNT; d++) {
        const double tflops = ks_ceilings_tflops(ceilings, (ks_dtype)d);
        if (tflops > 0) put_ceiling(out, ks_dtype_name((ks_dtype)d), tflops, "TFLOP/s");
    }
    end_table(out);
}

static void put_slow(const ks_slow *slow, ks_text *out)
{
    const ks_request_record *r = &slow->request;
    char time[32], place[32];
    int64_t phase_ns[KS_BOARD_PHASES];
    ks_board_time((ks_wall_ns() - (ks_now_ns() - r->answered_ns)) / 1000000, time);
    ks_board_phases(slow, phase_ns);
    put_row(out, r->request_id);
    put_cell(out, time);
    put_cell(out, slow->plan.text[0] ? slow->plan.text : ks_board_model(slow));
    CELL(out, put_count, ks_status_http((ks_status)r->status));
    CELL(out, put_time, (double)ks_slow_ns(slow));
    for (int p = 0; p < KS_BOARD_PHASES; p++) CELL(out, put_time, (double)phase_ns[p]);
    snprintf(place, sizeof place, slow->lane < 0 ? "%d.–" : "%d.%d", slow->shard, slow->lane);
    ks_text_printf(out, "<td>%s", place);
    CELL(out, put_bytes, r->ran ? (int64_t)r->in_bytes : -1);
    CELL(out, put_bytes, (int64_t)r->out_bytes);
}

static void write_slow(ks_board *board, ks_text *out)
{
    const ks_slow *slow[KS_SLOWEST];
    const int count = board->slowest ? ks_slowest_list(board->slowest, slow) : 0;
    begin_table(out, "The slowest requests of 5 minutes",
                ".request|.time|.plan|status|total|receive|decode|queue|h2d|compute|d2h|encode|lane|in|out");
    for (int i = 0; i < count; i++) put_slow(slow[i], out);
    end_table(out);
}

/* --- the document ------------------------------------------------------------------------------------------------- */

typedef void write_fn(ks_board *board, ks_text *out);

static write_fn *place_of(const char *name, size_t length)
{
    static const struct {
        const char *name;
        write_fn *write;
    } places[] = {{"state", write_state},       {"about", write_about},       {"load", write_load},
                  {"limits", write_limits},     {"refused", write_refused},   {"memory", write_memory},
                  {"resident", write_resident}, {"engines", write_engines},   {"phases", write_phases},
                  {"plans", write_plans},       {"ceilings", write_ceilings}, {"slow", write_slow}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (strlen(places[i].name) == length && memcmp(places[i].name, name, length) == 0) return places[i].write;
    return NULL;
}

void ks_board_page(ks_board *board, ks_text *out)
{
    const char *at = ks_board_html;
    ks_board_look(board);
    for (const char *open; (open = strstr(at, "{{")) != NULL;) {
        const char *close = strstr(open, "}}");
        assert(close);
        ks_text_add(out, at, (size_t)(open - at));
        write_fn *write = place_of(open + 2, (size_t)(close - open) - 2);
        assert(write);
        write(board, out);
        at = close + 2;
    }
    ks_text_add(out, at, (size_t)(ks_board_html + ks_board_html_bytes - at));
}
