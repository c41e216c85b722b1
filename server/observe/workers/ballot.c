/* Owns       the form of the word: a change's number, its verdict, and a bit for each worker that is ready.
 * Interface  ballot.h
 * Limits     a verdict is known for KS_VERDICTS_KEPT changes more. */
#include "observe/workers/ballot.h"

enum { VERDICT_AT = 16, NUMBER_AT = 32, ROWS = (1 << 16) - 1, NUMBER_MAX = (1 << KS_CHANGE_BITS) - 1 };

static uint32_t number_of(uint64_t word)
{
    return (uint32_t)(word >> NUMBER_AT);
}

static ks_verdict verdict_of(uint64_t word)
{
    return (ks_verdict)(word >> VERDICT_AT & 3);
}

static uint64_t with_verdict(uint64_t word, ks_verdict verdict)
{
    return word | (uint64_t)verdict << VERDICT_AT;
}

/* --- the lock ----------------------------------------------------------------------------------------------------- */

bool ks_changes_lock(ks_workers *workers, int pid, int64_t timeout_ns)
{
    return ks_workers_lock(&workers->changer, pid, timeout_ns);
}

void ks_changes_unlock(ks_workers *workers, int pid)
{
    ks_workers_unlock(&workers->changer, pid);
}

/* --- the ballot --------------------------------------------------------------------------------------------------- */

/* A worker that had no turn since may ask for an earlier one's verdict yet. */
static void keep_verdict(ks_workers *workers, uint64_t word)
{
    const uint32_t number = number_of(word);
    if (verdict_of(word) == KS_VERDICT_DONE) atomic_store(&workers->done[number % KS_VERDICTS_KEPT], number);
}

static ks_verdict verdict_about(ks_workers *workers, uint32_t change)
{
    const uint64_t word = atomic_load(&workers->ballot);
    if (number_of(word) == change) return verdict_of(word);
    return atomic_load(&workers->done[change % KS_VERDICTS_KEPT]) == change ? KS_VERDICT_DONE : KS_VERDICT_DROPPED;
}

/* Of a change that has no verdict: this one, and these rows are ready, too. Whatever comes of it, the verdict then. */
static ks_verdict change_word(ks_workers *workers, uint32_t change, uint64_t rows, ks_verdict verdict)
{
    uint64_t word = atomic_load(&workers->ballot);
    while (number_of(word) == change && verdict_of(word) == KS_VERDICT_OPEN)
        if (atomic_compare_exchange_weak(&workers->ballot, &word, with_verdict(word | rows, verdict))) return verdict;
    return verdict_about(workers, change);
}

uint32_t ks_ballot_open(ks_workers *workers)
{
    uint64_t word = atomic_load(&workers->ballot);
    uint32_t number;
    do {
        if (verdict_of(word) == KS_VERDICT_OPEN) { /* of a process that was killed amid it */
            change_word(workers, number_of(word), 0, KS_VERDICT_DROPPED);
            word = atomic_load(&workers->ballot);
        }
        keep_verdict(workers, word);
        number = number_of(word) % NUMBER_MAX + 1;
    } while (!atomic_compare_exchange_strong(&workers->ballot, &word, (uint64_t)number << NUMBER_AT));
    return number;
}

uint32_t ks_ballot_number(const ks_workers *workers)
{
    return number_of(atomic_load(&workers->ballot));
}

unsigned ks_ballot_votes(ks_workers *workers, uint32_t change)
{
    const uint64_t word = atomic_load(&workers->ballot);
    return number_of(word) == change ? (unsigned)(word & ROWS) : 0;
}

ks_verdict ks_ballot_decide(ks_workers *workers, uint32_t change, unsigned rows)
{
    const bool ready = (ks_ballot_votes(workers, change) & rows) == rows;
    return change_word(workers, change, 0, ready ? KS_VERDICT_DONE : KS_VERDICT_DROPPED);
}

/* --- a worker's part ---------------------------------------------------------------------------------------------- */

ks_verdict ks_vote_look(ks_vote *vote)
{
    if (!ks_vote_is(vote)) return KS_VERDICT_DONE;
    if (vote->given) return verdict_about(vote->workers, vote->change);
    vote->given = true;
    return change_word(vote->workers, vote->change, UINT64_C(1) << vote->row, KS_VERDICT_OPEN);
}

ks_verdict ks_vote_leave(ks_vote *vote)
{
    if (!ks_vote_is(vote) || !vote->given) return KS_VERDICT_DROPPED;
    return change_word(vote->workers, vote->change, 0, KS_VERDICT_DROPPED);
}
