/* What one worker asks the others for: their parts of a document that is too large to be published all the time. Each other worker's
 * publisher makes its part, and publishes it with the number of the ask. Two that ask at once take turns: one whose ask was overwritten asks
 * again, until its time is over.
 *
 * Threads  ks_workers_ask: any that may wait, never a shard's. ks_worker_asked: the publisher. */
#ifndef KS_ASK_H
#define KS_ASK_H
#include "observe/workers/workers.h"

static const int64_t KS_ASK_WAIT_NS = 500000000; /* that a document waits for all parts */

typedef enum ks_part_kind { KS_ASK_NONE, KS_ASK_PLANS, KS_ASK_TRACE } ks_part_kind;

typedef struct ks_part_ask {
    ks_part_kind kind;
    uint16_t number; /* of the trace: milliseconds, 0: all; of plans: how many */
    uint8_t order;   /* of plans */
    bool csv;        /* likewise */
} ks_part_ask;

/* Asks all the others that serve, and waits at most timeout_ns in all. parts: those of the rows whose bits are returned are filled; all are
 * opened here, and the caller's to fini. */
unsigned ks_workers_ask(ks_workers *workers, int self, const ks_part_ask *ask, int64_t timeout_ns,
                        ks_text parts[KS_WORKERS_MAX]);
/* What its row is asked for: its number, with which ks_part_begin opens the part; 0: nothing yet. */
uint64_t ks_worker_asked(const ks_worker_row *row, ks_part_ask *out);
void ks_part_begin(ks_text *part, uint64_t number);
#endif
