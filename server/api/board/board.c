#include "api/board/board.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

static const int64_t look_ns = 100000000, second_ns = 1000000000;

struct ks_board {
    ks_api_view *view;
    ks_overlap *overlap; /* NULL: there is no timeline */
    int64_t look_due_ns, second_due_ns;
    bool asked_nvml; /* whether there is one */
};

bool ks_board_open(ks_api_view *view)
{
    ks_board *board = calloc(1, sizeof *board);
    if (!board) return false;
    *board = (ks_board){.view = view, .look_due_ns = ks_now_ns(), .second_due_ns = ks_now_ns()};
    view->board = board;
    if (!view->timeline) return true;
    view->overlap = board->overlap = ks_overlap_open(view->timeline, view->shards, ks_now_ns());
    if (!board->overlap) ks_board_close(view);
    return board->overlap != NULL;
}

void ks_board_close(ks_api_view *view)
{
    if (!view->board) return;
    view->overlap = NULL;
    ks_overlap_close(&view->board->overlap);
    ks_nvml_close(&view->nvml);
    free(view->board);
    view->board = NULL;
}

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
    if (!board->asked_nvml) open_nvml(board);
    if (!board->view->nvml) return;
    ks_nvml_read_memory(board->view->nvml, &figures);
    atomic_store(&board->view->device_used_bytes, figures.memory_used_bytes);
    atomic_store(&board->view->device_free_bytes, figures.memory_free_bytes);
}

static void count_second(ks_board *board)
{
    read_memory(board);
}

int64_t ks_board_turn(ks_board *board)
{
    int64_t now_ns = ks_now_ns();
    if (now_ns >= board->look_due_ns) {
        if (board->overlap) ks_overlap_look(board->overlap, now_ns);
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
