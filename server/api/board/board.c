#include "api/board/board.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "api/board/board_parts.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/model.h"

static const int64_t look_ns = 100000000, second_ns = 1000000000;

#define X(name) #name,
const char *const ks_gauge_names[KS_GAUGES] = {KS_GAUGE_TABLE(X)};
#undef X

bool ks_board_open(ks_api_view *view)
{
    const int64_t now_ns = ks_now_ns();
    ks_board *board = calloc(1, sizeof *board);
    if (!board) return false;
    *board = (ks_board){.view = view,
                        .opened_ns = now_ns,
                        .look_due_ns = now_ns,
                        .second_due_ns = now_ns + second_ns,
                        .since_ms = ks_wall_ms(),
                        .state = (ks_state)atomic_load(view->state)};
    view->board = board;
    board->history = ks_history_open(view->metrics, now_ns);
    if (view->timeline) {
        view->overlap = board->overlap = ks_overlap_open(view->timeline, view->shards, now_ns);
        if (view->config->status) board->slowest = ks_slowest_open(view->timeline, view->shards, now_ns);
    }
    if (board->history && (!view->timeline || (board->overlap && (board->slowest || !view->config->status))))
        return true;
    ks_board_close(view);
    return false;
}

void ks_board_close(ks_api_view *view)
{
    ks_board *board = view->board;
    if (!board) return;
    view->overlap = NULL;
    view->board = NULL;
    ks_overlap_close(&board->overlap);
    ks_slowest_close(&board->slowest);
    ks_history_close(&board->history);
    ks_nvml_close(&view->nvml);
    free(board);
}

/* --- looks -------------------------------------------------------------------------------------------------------- */

/* The library takes its time to open: not at the start. A host that has none to ask serves without its figures. */
static void open_nvml(ks_board *board)
{
    ks_api_view *view = board->view;
    const char *reason;
    board->asked_nvml = true;
    if (!view->device_info->uuid[0]) return;
    view->nvml = ks_nvml_open(view->device_info->uuid, &reason);
    if (!view->nvml) KS_LOG(KS_LOG_INFO, "no figures of the GPU", KS_TEXT("reason", reason));
}

static void read_memory(ks_board *board)
{
    ks_gpu_figures figures;
    if (!board->view->nvml) return;
    ks_nvml_read_memory(board->view->nvml, &figures);
    atomic_store(&board->view->device_used_bytes, figures.memory_used_bytes);
    atomic_store(&board->view->device_free_bytes, figures.memory_free_bytes);
}

static void look_at_gauges(ks_board *board)
{
    ks_engine_stats engines[KS_SHARDS_MAX];
    const ks_api_view *view = board->view;
    const int shards = ks_view_engines(board->view, engines);
    int64_t now[KS_GAUGES] = {[KS_GAUGE_in_flight] = ks_metrics_in_flight_now(view->metrics),
                              [KS_GAUGE_connections] = ks_connections_count(view->connections),
                              [KS_GAUGE_inflight_bytes] = (int64_t)ks_budget_used(view->budget)};
    board->slot_bytes = board->lanes = 0;
    for (int i = 0; i < shards; i++) {
        now[KS_GAUGE_queue] += (int64_t)engines[i].queue_depth;
        now[KS_GAUGE_slot_bytes] += (int64_t)engines[i].slot_used_bytes;
        now[KS_GAUGE_plan_cache_bytes] += (int64_t)engines[i].plan_bytes;
        now[KS_GAUGE_lanes] += (int64_t)engines[i].lanes_busy;
        board->slot_bytes += (int64_t)engines[i].slot_total_bytes;
        board->lanes += (int64_t)engines[i].lanes;
    }
    if (view->store) {
        ks_store_stats stats;
        ks_store_read_stats(view->store, &stats);
        now[KS_GAUGE_tensors] = (int64_t)stats.tensors;
        now[KS_GAUGE_resident_bytes] = (int64_t)stats.bytes;
        board->resident_limit = (int64_t)stats.limit_bytes;
    }
    if (now[KS_GAUGE_in_flight] < 0) now[KS_GAUGE_in_flight] = 0; /* a shard was read before another one's addition */
    ks_history_gauges(board->history, now);
}

static void look_at_state(ks_board *board)
{
    const ks_state state = (ks_state)atomic_load(board->view->state);
    if (state == board->state) return;
    board->state = state;
    board->since_ms = ks_wall_ms();
}

/* Behind a look: what the sums cover ends with it. */
static void count_second(ks_board *board)
{
    ks_overlap_sums sums;
    read_memory(board);
    if (board->overlap) ks_overlap_read(board->overlap, &sums);
    ks_history_second(board->history, board->looked_ns, board->overlap ? &sums : NULL);
}

void ks_board_look(ks_board *board)
{
    look_at_state(board);
    look_at_gauges(board);
    board->looked_ns = ks_now_ns();
    if (board->overlap) ks_overlap_look(board->overlap, board->looked_ns);
    if (board->slowest) ks_slowest_look(board->slowest, board->looked_ns);
}

int64_t ks_board_turn(ks_board *board)
{
    int64_t now_ns = ks_now_ns();
    if (!board->asked_nvml) {
        open_nvml(board);
        read_memory(board);
    }
    if (now_ns >= board->look_due_ns || now_ns >= board->second_due_ns) {
        ks_board_look(board);
        board->look_due_ns = now_ns + look_ns;
    }
    if (now_ns >= board->second_due_ns) {
        count_second(board);
        /* A thread that was held up counts the seconds that follow, not those that it missed. */
        while (board->second_due_ns <= now_ns) board->second_due_ns += second_ns;
    }
    now_ns = ks_now_ns();
    const int64_t due_ns = board->look_due_ns < board->second_due_ns ? board->look_due_ns : board->second_due_ns;
    return due_ns > now_ns ? due_ns - now_ns : 0;
}

/* --- for json.c and page.c ------------------------------------------------------------------------------------------ */

int64_t ks_board_limit(const ks_board *board, ks_gauge gauge)
{
    const ks_config *config = board->view->config;
    switch (gauge) {
    case KS_GAUGE_queue:
        return config->queue * board->view->shards;
    case KS_GAUGE_connections:
        return config->connections;
    case KS_GAUGE_inflight_bytes:
        return (int64_t)ks_budget_limit(board->view->budget);
    case KS_GAUGE_slot_bytes:
        return board->slot_bytes;
    case KS_GAUGE_plan_cache_bytes:
        return (int64_t)config->plan_cache * board->view->shards;
    case KS_GAUGE_lanes:
        return board->lanes;
    case KS_GAUGE_tensors:
        return board->view->store ? KS_TENSORS_MAX : 0;
    case KS_GAUGE_resident_bytes:
        return board->resident_limit;
    default:
        return -1;
    }
}

int ks_board_resident(const ks_board *board, ks_board_row out[KS_BOARD_RESIDENT])
{
    ks_api_view *view = board->view;
    ks_engine_stats engines[KS_SHARDS_MAX];
    ks_store_stats s;
    uint64_t joined = 0;
    if (!view->store) return 0;
    const int shards = ks_view_engines(view, engines);
    for (int i = 0; i < shards; i++) joined += engines[i].joined_requests;
    ks_store_read_stats(view->store, &s);
    const ks_board_row rows[KS_BOARD_RESIDENT] = {
        {"created", s.puts[0]},      {"replaced", s.puts[1]},   {"unchanged", s.puts[2]},
        {"linked", s.puts[3]},       {"refused", s.puts[4]},    {"aborted", s.puts[5]},
        {"evicted", s.gone[2]},      {"hits", s.lookups[0]},    {"unknown", s.lookups[1] + s.lookups[2]},
        {"joined_requests", joined}, {"put_bytes", s.put_bytes}};
    memcpy(out, rows, sizeof rows);
    return KS_BOARD_RESIDENT;
}

const struct ks_board_abort ks_board_aborted[KS_BOARD_ABORTED] = {
    {"receive", KS_COUNT_aborted_receive},
    {"queue", KS_COUNT_aborted_queue},
    {"compute", KS_COUNT_aborted_compute},
    {"send", KS_COUNT_aborted_send},
};

const char *ks_board_code(ks_status status)
{
    const char *code = ks_status_code(status);
    for (int s = KS_OK + 1; s < (int)status; s++)
        if (strcmp(ks_status_code((ks_status)s), code) == 0) return NULL;
    return code;
}

uint64_t ks_board_refused(const ks_board *board, const char *code)
{
    uint64_t sum = 0;
    for (int s = KS_OK + 1; s < KS_CANCELLED; s++)
        if (strcmp(ks_status_code((ks_status)s), code) == 0) sum += ks_history_rejected(board->history, (ks_status)s);
    return sum;
}

int ks_board_plans(const ks_board *board, ks_plan_list *out)
{
    ks_error ignored;
    if (ks_plans_collect(board->view, out, &ignored) != KS_OK) return 0; /* no memory: all else is shown */
    ks_plans_sort(board->view, out, KS_PLANS_BY_TIME);
    return out->count < KS_BOARD_PLANS ? out->count : KS_BOARD_PLANS;
}

double ks_board_ratio(const ks_overlap_sums *sums)
{
    return sums->busy_any ? (double)sums->two / (double)sums->busy_any : -1;
}

void ks_board_phases(const ks_slow *slow, int64_t ns[KS_BOARD_PHASES])
{
    const ks_request_record *r = &slow->request;
    for (int i = 0; i < KS_BOARD_PHASES; i++) ns[i] = -1;
    ns[KS_PHASE_decode] = r->decode_ns;
    if (!r->ran) return;
    ns[KS_PHASE_receive] = r->submitted_ns - r->first_ns - r->decode_ns;
    ns[KS_PHASE_queue] = r->launched_ns - r->submitted_ns;
    ns[KS_PHASE_h2d] = r->h2d_ns;
    ns[KS_PHASE_compute] = r->done_ns - r->launched_ns - r->h2d_ns - r->d2h_ns;
    ns[KS_PHASE_d2h] = r->d2h_ns;
    ns[KS_PHASE_encode] = r->answered_ns - r->done_ns;
}

const char *ks_board_model(const ks_slow *slow)
{
    const int index = (int)slow->request.model;
    return index < ks_model_count() ? ks_model_at(index)->label : "unknown";
}

void ks_board_time(int64_t wall_ms, char out[32])
{
    const time_t seconds = (time_t)(wall_ms / 1000);
    struct tm day;
    gmtime_r(&seconds, &day);
    const size_t length = strftime(out, 24, "%Y-%m-%dT%H:%M:%S", &day);
    snprintf(out + length, 32 - length, ".%03dZ", (int)(wall_ms % 1000));
}
