#include "engine/tune/contest.h"

#include <assert.h>
#include <string.h>

enum { RUNS_LEAST = 1, RUNS_MOST = 32 };
static const int64_t TRIAL_NS = 400000;
static const int64_t SLOW_NS = 20000000; /* of one run: such work is decided by the first round */
static const double BEHIND = 1.5, BEATEN = 0.99;

void ks_contest_begin(ks_contest *contest, int candidates)
{
    assert(candidates >= 1 && candidates <= KS_CANDIDATES_MAX);
    memset(contest, 0, sizeof *contest);
    contest->candidates = contest->left = candidates;
    for (int i = 0; i < candidates; i++) contest->order[i] = i;
}

int ks_contest_next(const ks_contest *contest)
{
    return contest->round < KS_CONTEST_ROUNDS && contest->left > 0 ? contest->order[contest->at] : -1;
}

int ks_contest_runs(const ks_contest *contest, int64_t guess_ns)
{
    int64_t ns = guess_ns;
    if (contest->round > 0)
        ns = contest->ns[ks_contest_next(contest)][0];
    else if (contest->at > 0)
        ns = contest->ns[contest->order[contest->at - 1]][0];
    if (ns <= 0) return RUNS_LEAST; /* it might take seconds */
    const int64_t runs = TRIAL_NS / ns;
    return runs < RUNS_LEAST ? RUNS_LEAST : runs > RUNS_MOST ? RUNS_MOST : (int)runs;
}

static int64_t time_of(const ks_contest *contest, int place)
{
    return contest->ns[contest->order[place]][0];
}

/* After the first round: sorted, the heuristic's candidate first, and cut. */
static void keep_fastest(ks_contest *contest)
{
    int *order = contest->order;
    int left = 0;
    for (int i = 0; i < contest->candidates; i++)
        if (!contest->out[i]) order[left++] = i;
    for (int i = 1; i < left; i++)
        for (int at = i; at > 0 && time_of(contest, at) < time_of(contest, at - 1); at--) {
            const int slower = order[at - 1];
            order[at - 1] = order[at];
            order[at] = slower;
        }
    contest->left = 0;
    for (int i = 0, kept = 0; i < left; i++) {
        const int algorithm = order[i];
        const bool near = (double)contest->ns[algorithm][0] <= BEHIND * (double)contest->ns[order[0]][0];
        if (algorithm == 0 || (near && kept < KS_CONTEST_KEPT))
            order[contest->left++] = algorithm; /* never ahead of i: nothing unread is overwritten */
        else
            contest->out[algorithm] = true;
        kept += algorithm != 0;
    }
}

static void turn_round(ks_contest *contest)
{
    for (int i = 0, j = contest->left - 1; i < j; i++, j--) {
        const int algorithm = contest->order[i];
        contest->order[i] = contest->order[j];
        contest->order[j] = algorithm;
    }
}

void ks_contest_time(ks_contest *contest, int64_t ns)
{
    const int algorithm = ks_contest_next(contest);
    assert(algorithm >= 0);
    if (ns > 0) {
        contest->ns[algorithm][contest->round] = ns;
        contest->at++;
    } else {
        contest->out[algorithm] = true;
        contest->ns[algorithm][0] = 0;
        contest->left--;
        memmove(contest->order + contest->at, contest->order + contest->at + 1,
                (size_t)(contest->left - contest->at) * sizeof *contest->order);
    }
    if (contest->at < contest->left) return;
    contest->at = 0;
    if (contest->round == 0) {
        keep_fastest(contest);
        contest->round = contest->left > 0 && time_of(contest, 0) > SLOW_NS ? (int)KS_CONTEST_ROUNDS : 1;
    } else {
        turn_round(contest);
        contest->round++;
    }
}

int64_t ks_contest_ns(const ks_contest *contest, int algorithm)
{
    int64_t sorted[KS_CONTEST_ROUNDS];
    int count = 0;
    if (contest->ns[algorithm][0] == 0 || contest->ns[algorithm][1] == 0) return contest->ns[algorithm][0];
    for (int round = 1; round < KS_CONTEST_ROUNDS && contest->ns[algorithm][round]; round++) {
        int at = count++;
        for (; at > 0 && sorted[at - 1] > contest->ns[algorithm][round]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = contest->ns[algorithm][round];
    }
    return sorted[count / 2];
}

int ks_contest_winner(const ks_contest *contest)
{
    int best = -1;
    for (int i = 0; i < contest->candidates; i++)
        if (!contest->out[i] && (best < 0 || ks_contest_ns(contest, i) < ks_contest_ns(contest, best))) best = i;
    if (best > 0 && !contest->out[0] &&
        (double)ks_contest_ns(contest, best) > BEATEN * (double)ks_contest_ns(contest, 0))
        return 0;
    return best;
}
