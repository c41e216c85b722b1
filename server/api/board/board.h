/* The board of the status: what the second listener's thread counts by the second, for /status, /status.json and some families of
 * /metrics.
 *
 * Owns     the overlap of the device's engines (observe/overlap.h), the history of the counters (history.h), the slowest requests
 *          (slowest.h), and NVML's session.
 * Threads  open and close: while no other thread has the view. All else: the second listener's thread. */
#ifndef KS_BOARD_H
#define KS_BOARD_H
#include "api/view.h"
#include "base/text.h"

typedef struct ks_board ks_board;

bool ks_board_open(ks_api_view *view); /* view->board; false: memory */
void ks_board_close(ks_api_view *view);
/* Counts what is due; returns how long the thread may wait until the next call. */
int64_t ks_board_turn(ks_board *board);

void ks_board_json(ks_board *board, ks_text *out);
/* The same figures as tables, in the document that draws them. */
void ks_board_page(ks_board *board, ks_text *out);
extern const char ks_board_html_policy[]; /* Content-Security-Policy of the page */
#endif
