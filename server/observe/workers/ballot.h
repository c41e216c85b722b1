/* How several workers change what each of them has, all or none: one change at a time, which each worker prepares and says so, and
 * which is done in all of them, or in none, by one atomic word that all of them map.
 *
 * Life     ks_changes_lock -> ks_ballot_open -> each worker that takes part: ks_vote_look until the verdict is there -> ks_ballot_decide ->
 *          the workers do it -> ks_changes_unlock.
 * Vote     one worker's part in one change. A worker that leaves before the verdict makes it "dropped"; one that leaves behind it does
 *          what was decided.
 * Threads  any, of any process. A process that ends with the lock: its supervisor lets go of it. */
#ifndef KS_BALLOT_H
#define KS_BALLOT_H
#include "observe/workers/workers.h"

typedef enum ks_verdict { KS_VERDICT_OPEN, KS_VERDICT_DONE, KS_VERDICT_DROPPED } ks_verdict;

enum { KS_CHANGE_BITS = 24 }; /* of a change's number, which is not 0 */

/* false: another process had it until timeout_ns was over. */
bool ks_changes_lock(ks_workers *workers, int pid, int64_t timeout_ns);
/* pid: whose lock it is, or nothing happens. */
void ks_changes_unlock(ks_workers *workers, int pid);

/* With the lock: the next change, whose number it returns. */
uint32_t ks_ballot_open(ks_workers *workers);
uint32_t ks_ballot_number(const ks_workers *workers);           /* of the last one */
unsigned ks_ballot_votes(ks_workers *workers, uint32_t change); /* rows that are ready for it, as bits */
/* Once: done where these rows are ready, else dropped. */
ks_verdict ks_ballot_decide(ks_workers *workers, uint32_t change, unsigned rows);

typedef struct ks_vote {
    ks_workers *workers; /* NULL: there is none, and its change is the worker's own */
    uint32_t change;     /* 0: likewise */
    int row;
    bool given;
} ks_vote;

static inline bool ks_vote_is(const ks_vote *vote)
{
    return vote->workers && vote->change;
}
/* The worker is ready; the verdict, if there is one. */
ks_verdict ks_vote_look(ks_vote *vote);
/* It has voted, and gives up or goes: the verdict is there from then on, and is returned. */
ks_verdict ks_vote_leave(ks_vote *vote);
#endif
