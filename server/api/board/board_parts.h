/* The inside of the board, for board.c and the files that write it. */
#ifndef KS_BOARD_PARTS_H
#define KS_BOARD_PARTS_H
#include "api/board/board.h"
#include "api/plans.h"
#include "observe/history.h"
#include "observe/slowest.h"

enum { KS_BOARD_PLANS = 50, KS_BOARD_SHORT_S = 10, KS_BOARD_LONG_S = 300, KS_BOARD_TIMELINE_S = 2 };

struct ks_board {
    ks_api_view *view;
    ks_history *history;
    ks_overlap *overlap; /* NULL: there is no timeline; slowest: or --no-status */
    ks_slowest *slowest;
    int64_t opened_ns, looked_ns, look_due_ns, second_due_ns;
    int64_t since_ms; /* wall time when the state became what it is */
    ks_state state;
    int64_t slot_bytes, lanes, resident_limit; /* that there are */
    bool asked_nvml;                           /* whether there is one */
};

extern const char ks_board_html[]; /* status.html, ks_board_html_bytes of it */
extern const size_t ks_board_html_bytes;
void ks_board_look(ks_board *board); /* at what has changed since the last look */
/* The plans that have run, by time; how many of them are shown. The list is the caller's to free. */
int ks_board_plans(const ks_board *board, ks_plan_list *out);
extern const char *const ks_gauge_names[KS_GAUGES];
int64_t ks_board_limit(const ks_board *board, ks_gauge gauge); /* -1: none */
/* The phases' names that a table has, in their order: all but send, which follows the total. */
enum { KS_BOARD_PHASES = KS_PHASE_send };
/* A slow request's phases; of one that did not run all but decode are -1. */
void ks_board_phases(const ks_slow *slow, int64_t ns[KS_BOARD_PHASES]);
const char *ks_board_model(const ks_slow *slow);
/* What has become of resident tensors since the start. Returns how many rows; 0: none are kept. */
typedef struct ks_board_row {
    const char *name;
    uint64_t count;
} ks_board_row;
enum { KS_BOARD_RESIDENT = 11 };
int ks_board_resident(const ks_board *board, ks_board_row out[KS_BOARD_RESIDENT]);
/* A status's code where it stands first in the table of them; NULL: another one has it. Refusals of the last five minutes, by it. */
const char *ks_board_code(ks_status status);
uint64_t ks_board_refused(const ks_board *board, const char *code);
enum { KS_BOARD_ABORTED = 4 };
extern const struct ks_board_abort {
    const char *phase;
    ks_count count;
} ks_board_aborted[KS_BOARD_ABORTED];
double
ks_board_ratio(const ks_overlap_sums *sums); /* of the busy time that with two engines and more; -1: nothing was busy */
void ks_board_time(int64_t wall_ms, char out[32]); /* 2026-11-24T03:04:05.678Z */
#endif
