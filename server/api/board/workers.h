/* /status and /status.json of several workers: a row for each, with links to its own. Reads the table of workers alone. Any thread. */
#ifndef KS_BOARD_WORKERS_H
#define KS_BOARD_WORKERS_H
#include "base/text.h"
#include "observe/workers/workers.h"

void ks_workers_json(const ks_workers *workers, ks_text *out);
void ks_workers_page(const ks_workers *workers, ks_text *out);
#endif
