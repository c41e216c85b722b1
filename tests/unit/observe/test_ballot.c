/* Changes of several workers: each of them does what was decided, or none, however they leave, and one that was killed holds up nobody. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "observe/workers/ballot.h"

enum { WORKERS = 3, CHANGES = 300 };

static ks_workers *workers;
static _Atomic int finished[CHANGES]; /* of the workers, that are over with it */
static _Atomic uint32_t numbers[CHANGES];
static unsigned char did[WORKERS][CHANGES];

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Takes part in each change: is ready, late, leaves before the verdict, or behind it without having looked. */
static void *take_part(void *argument)
{
    const int row = (int)(size_t)argument;
    unsigned state = (unsigned)row + 1;
    for (int i = 0; i < CHANGES; i++) {
        while (atomic_load(&numbers[i]) == 0) usleep(50);
        ks_vote vote = {.workers = workers, .change = atomic_load(&numbers[i]), .row = row};
        const unsigned way = next_random(&state) % 16;
        ks_verdict verdict = ks_vote_look(&vote);
        for (int looks = 0; verdict == KS_VERDICT_OPEN && (way != 0 || looks < 3); looks++) {
            usleep(20);
            verdict = ks_vote_look(&vote);
        }
        if (verdict == KS_VERDICT_OPEN || way == 1) verdict = ks_vote_leave(&vote);
        did[row][i] = verdict == KS_VERDICT_DONE;
        atomic_fetch_add(&finished[i], 1);
    }
    return NULL;
}

static void all_do_it_or_none_does(void **state)
{
    (void)state;
    enum { ALL = (1 << WORKERS) - 1 };
    pthread_t thread[WORKERS];
    int done = 0, dropped = 0;
    for (int i = 0; i < WORKERS; i++) pthread_create(&thread[i], NULL, take_part, (void *)(size_t)i);
    for (int i = 0; i < CHANGES; i++) {
        assert_true(ks_changes_lock(workers, 7, 1000000000));
        const uint32_t number = ks_ballot_open(workers);
        atomic_store(&numbers[i], number);
        ks_verdict verdict = KS_VERDICT_OPEN;
        for (int looks = 0; looks < 2000 && (ks_ballot_votes(workers, number) & ALL) != ALL; looks++) {
            if (atomic_load(&finished[i]) > 0) break; /* one has left */
            usleep(50);
        }
        if (i % 11 != 5) { /* else it was killed, and the next one is opened at once */
            verdict = ks_ballot_decide(workers, number, ALL);
            assert_true(verdict != KS_VERDICT_OPEN);
            while (atomic_load(&finished[i]) < WORKERS && i % 7) usleep(50); /* else they look for it later */
        }
        ks_changes_unlock(workers, 7);
    }
    for (int i = 0; i < WORKERS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < CHANGES; i++) {
        for (int row = 1; row < WORKERS; row++) assert_true(did[row][i] == did[0][i]);
        done += did[0][i];
        dropped += !did[0][i];
    }
    assert_true(done > CHANGES / 20 && dropped > CHANGES / 20);
}

static void the_lock_is_one_process_s(void **state)
{
    (void)state;
    assert_true(ks_changes_lock(workers, 7, 0));
    assert_true(!ks_changes_lock(workers, 8, 1000000));
    ks_changes_unlock(workers, 8); /* not its own */
    assert_true(!ks_changes_lock(workers, 8, 0));
    ks_changes_unlock(workers, 7);
    assert_true(ks_changes_lock(workers, 8, 0));
    ks_changes_unlock(workers, 8);
}

static void one_that_is_late_learns_what_was_decided(void **state)
{
    (void)state;
    const uint32_t number = ks_ballot_open(workers);
    ks_vote vote = {.workers = workers, .change = number, .row = 1};
    assert_true(ks_vote_look(&vote) == KS_VERDICT_OPEN && ks_ballot_votes(workers, number) == 2);
    assert_true(ks_ballot_decide(workers, number, 3) == KS_VERDICT_DROPPED); /* 0 is not ready */
    assert_true(ks_ballot_decide(workers, number, 2) == KS_VERDICT_DROPPED); /* once */
    const uint32_t next = ks_ballot_open(workers);
    ks_vote stale = {.workers = workers, .change = number, .row = 0},
            own = {.workers = workers, .change = next, .row = 0};
    assert_true(ks_vote_look(&stale) == KS_VERDICT_DROPPED && ks_ballot_votes(workers, next) == 0);
    assert_true(ks_vote_look(&own) == KS_VERDICT_OPEN && ks_ballot_decide(workers, next, 1) == KS_VERDICT_DONE);
    for (int i = 1; i < KS_VERDICTS_KEPT; i++) ks_ballot_open(workers);
    assert_true(ks_vote_look(&own) == KS_VERDICT_DONE && ks_vote_leave(&own) == KS_VERDICT_DONE);
    ks_vote none = {.workers = workers};
    assert_true(!ks_vote_is(&none) && ks_vote_look(&none) == KS_VERDICT_DONE);
}

static int open_table(void **state)
{
    (void)state;
    int fd;
    workers = ks_workers_open(WORKERS, &fd);
    if (workers) close(fd);
    return workers ? 0 : -1;
}

static int close_table(void **state)
{
    (void)state;
    ks_workers_close(&workers);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lock_is_one_process_s),
        cmocka_unit_test(one_that_is_late_learns_what_was_decided),
        cmocka_unit_test(all_do_it_or_none_does),
    };
    return cmocka_run_group_tests(tests, open_table, close_table);
}
