/* Which candidate is tried next, and which one wins: the rules of a tuning, without a device. Pure; one thread.
 *
 * Every candidate runs once. Those far behind the best leave; the fastest of the rest, and the heuristic's candidate in any case, go
 * through the later rounds, forth and back, so that a clock that drifts hurts all alike. The first round decides
 * nothing else, unless one run takes so long that it needs no more. The least median wins, but the heuristic's candidate stays
 * unless it is beaten by 1 %. */
#ifndef KS_TUNE_CONTEST_H
#define KS_TUNE_CONTEST_H
#include <stdbool.h>
#include <stdint.h>

#include "kernserve/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_CONTEST_ROUNDS = 9, KS_CONTEST_KEPT = 8 };

typedef struct ks_contest {
    int candidates; /* the heuristic's is number 0 */
    int round;      /* 0 .. KS_CONTEST_ROUNDS; the last: decided */
    int at;         /* within order */
    int left;       /* of order */
    int order[KS_CANDIDATES_MAX];
    int64_t ns[KS_CANDIDATES_MAX][KS_CONTEST_ROUNDS]; /* of one run */
    bool out[KS_CANDIDATES_MAX];                      /* failed, or far behind */
} ks_contest;

void ks_contest_begin(ks_contest *contest, int candidates);
/* The candidate to be tried now; -1: it is decided. */
int ks_contest_next(const ks_contest *contest);
/* How many runs its trial should have, so that it is neither over at once nor lasts long. guess_ns: of one run, where
 * nothing has been timed; 0: no idea. */
int ks_contest_runs(const ks_contest *contest, int64_t guess_ns);
/* What came of it: the time of one run; 0 or less: it failed, and is out. */
void ks_contest_time(ks_contest *contest, int64_t ns);
/* When decided. -1: all have failed. */
int ks_contest_winner(const ks_contest *contest);
/* The median of the later rounds, or the one time of a candidate that left after the first; 0: it failed. */
int64_t ks_contest_ns(const ks_contest *contest, int algorithm);

#ifdef __cplusplus
}
#endif
#endif
