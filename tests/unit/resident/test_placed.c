/* The table of names that one worker alone has: whose a name is, what is lost with a process, lists, its bounds, and a process that is killed
 * amid a change. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "observe/workers/ballot.h"
#include "resident/placed.h"

static ks_workers *workers;
static ks_placed self[2];
static ks_error error;

static int open_table(void **state)
{
    (void)state;
    int fd;
    workers = ks_workers_open(2, &fd);
    assert_non_null(workers);
    close(fd);
    for (int i = 0; i < 2; i++) {
        workers->row[i].device = 5 + i;
        atomic_store(&workers->row[i].pid, 1000 + i);
        atomic_store(&workers->row[i].accepts, true);
        atomic_store(&workers->row[i].beat_ns, ks_now_ns());
        self[i] = (ks_placed){workers, i, 1000 + i};
    }
    return 0;
}

static int close_table(void **state)
{
    (void)state;
    ks_workers_close(&workers);
    return 0;
}

static ks_placing find(int worker, const char *tenant, const char *name)
{
    int row;
    return ks_placed_find(&self[worker], tenant, name, strlen(name), &row);
}

static ks_status claim(int worker, const char *tenant, const char *name)
{
    bool made;
    return ks_placed_claim(&self[worker], tenant, name, &made, &error);
}

static ks_status put(int worker, const char *tenant, const char *name)
{
    ks_tensor_entry entry = {
        .tensor = {.dtype = KS_FP32, .rank = 1, .dims = {3}, .size_bytes = 12}, .etag = "e", .ttl_s = 7};
    const ks_status status = claim(worker, tenant, name);
    snprintf(entry.name, sizeof entry.name, "%s", name);
    if (status == KS_OK) ks_placed_fill(&self[worker], tenant, &entry);
    return status;
}

static void a_name_is_one_workers(void **state)
{
    (void)state;
    assert_false(ks_placed_has_any(&self[0]));
    assert_int_equal(find(0, "", "W"), KS_PLACED_NOWHERE);
    assert_int_equal(put(1, "", "W"), KS_OK);
    assert_int_equal(put(1, "", "W"), KS_OK);
    assert_int_equal(find(1, "", "W"), KS_PLACED_HERE);
    assert_int_equal(find(0, "", "W"), KS_PLACED_ELSEWHERE);
    assert_int_equal(find(0, "alice", "W"), KS_PLACED_NOWHERE);
    assert_int_equal(find(0, "", "WW"), KS_PLACED_NOWHERE);
    assert_int_equal(put(0, "", "W"), KS_PLACED);
    assert_non_null(strstr(error.text, "'W' is on device 6"));
    assert_int_equal(ks_placed_explain(&self[0], "", "W", 1, &error), KS_PLACED);
    assert_non_null(strstr(error.text, "device 6 alone, and this is device 5"));
    assert_int_equal(ks_placed_explain(&self[1], "", "W", 1, &error), KS_OK);
    atomic_store(&workers->row[1].accepts, false);
    assert_int_equal(ks_placed_explain(&self[0], "", "W", 1, &error), KS_UNAVAILABLE);
    assert_false(ks_placed_drop(&self[0], "", "W")); /* another one's */
    assert_int_equal(find(0, "", "W"), KS_PLACED_ELSEWHERE);
    assert_false(ks_placed_drop(&self[1], "", "W"));
    assert_int_equal(find(0, "", "W"), KS_PLACED_NOWHERE);
    assert_false(ks_placed_has_any(&self[0]));
}

static void what_is_put_on_all_is_announced(void **state)
{
    (void)state;
    const uint32_t change = ks_ballot_open(workers);
    assert_true(ks_changes_lock(workers, 1000, 0));
    assert_true(ks_placed_announce(&self[0], change, "", "W"));
    assert_int_equal(find(1, "", "W"), KS_PLACED_NOWHERE);
    assert_int_equal(put(1, "", "W"), KS_UNAVAILABLE);
    assert_int_equal(put(1, "", "V"), KS_OK);
    assert_true(ks_placed_announce(&self[0], change, "", "V")); /* which it has already */
    assert_int_equal(put(1, "", "V"), KS_OK);
    ks_changes_unlock(workers, 1000);
    assert_int_equal(put(1, "", "W"), KS_OK);
    assert_true(ks_changes_lock(workers, 1000, 0)); /* the next one: of nothing yet */
    (void)ks_ballot_open(workers);
    ks_placed_drop(&self[1], "", "W");
    assert_int_equal(put(1, "", "W"), KS_OK);
    ks_changes_unlock(workers, 1000);
}

static void it_is_lost_with_its_process(void **state)
{
    (void)state;
    assert_int_equal(put(1, "", "W"), KS_OK);
    assert_int_equal(put(1, "", "V"), KS_OK);
    assert_int_equal(put(1, "", "U"), KS_OK);
    for (int pid = 0; pid <= 1002; pid += 1002) { /* down, and another one */
        atomic_store(&workers->row[1].pid, pid);
        assert_int_equal(find(0, "", "W"), KS_PLACED_GONE);
        assert_int_equal(ks_placed_explain(&self[0], "", "W", 1, &error), KS_LOST);
    }
    self[1].pid = 1002;
    assert_int_equal(ks_placed_explain(&self[1], "", "W", 1, &error), KS_LOST);
    assert_int_equal(put(0, "", "W"), KS_OK); /* healed elsewhere */
    assert_int_equal(find(1, "", "W"), KS_PLACED_ELSEWHERE);
    assert_true(ks_placed_drop(&self[0], "", "V"));
    assert_int_equal(find(0, "", "V"), KS_PLACED_NOWHERE);
    ks_placed_turn(&self[0], 0); /* for ever */
    ks_placed_turn(&self[0], 3600);
    assert_int_equal(find(0, "", "U"), KS_PLACED_GONE);
    usleep(1010000);
    ks_placed_turn(&self[0], 1);
    assert_int_equal(find(0, "", "U"), KS_PLACED_NOWHERE); /* its time is over */
    assert_int_equal(find(1, "", "W"), KS_PLACED_ELSEWHERE);
}

static _Atomic bool watched, missed;

static void *watch(void *unused)
{
    (void)unused;
    while (atomic_load(&watched))
        if (find(0, "", "W") == KS_PLACED_NOWHERE) atomic_store(&missed, true);
    return NULL;
}

static void a_lost_name_is_somewhere_while_it_is_claimed(void **state)
{
    (void)state;
    enum { RESTARTS = 100000 };
    pthread_t thread;
    assert_int_equal(put(1, "", "W"), KS_OK);
    atomic_store(&watched, true);
    assert_int_equal(pthread_create(&thread, NULL, watch, NULL), 0);
    for (int i = 0; i < RESTARTS && !atomic_load(&missed); i++) {
        self[1].pid++;
        atomic_store(&workers->row[1].pid, self[1].pid);
        ks_status status = KS_UNAVAILABLE;
        while (status == KS_UNAVAILABLE) status = claim(1, "", "W");
        assert_int_equal(status, KS_OK);
    }
    atomic_store(&watched, false);
    pthread_join(thread, NULL);
    assert_false(atomic_load(&missed));
}

static int list(int worker, const char *prefix, const char *after, int most, ks_tensor_entry *out, bool *more)
{
    const ks_tenant tenant = {.name = ""};
    const ks_list_part part = {&tenant, prefix, after, most};
    return ks_placed_list(&self[worker], &part, out, more);
}

static void a_list_has_the_others(void **state)
{
    (void)state;
    ks_tensor_entry out[8];
    bool more;
    static const char *const names[] = {"b.3", "b.1", "a", "b.2", "c"};
    for (int i = 0; i < 5; i++) assert_int_equal(put(1, "", names[i]), KS_OK);
    assert_int_equal(put(0, "", "b.0"), KS_OK);
    assert_int_equal(put(1, "alice", "b.9"), KS_OK);
    assert_int_equal(claim(1, "", "b.8"), KS_OK); /* not there yet */
    assert_int_equal(list(0, "b.", "", 2, out, &more), 2);
    assert_true(more);
    assert_string_equal(out[0].name, "b.1");
    assert_string_equal(out[1].name, "b.2");
    assert_true(out[0].is_elsewhere && out[0].is_placed && !out[0].lost);
    assert_int_equal(out[0].device, 6);
    assert_int_equal(out[0].tensor.dims[0], 3);
    assert_int_equal(list(0, "b.", "b.2", 2, out, &more), 1);
    assert_false(more);
    assert_string_equal(out[0].name, "b.3");
    assert_int_equal(list(1, "", "", 8, out, &more), 1);
    assert_string_equal(out[0].name, "b.0");
    atomic_store(&workers->row[0].pid, 0);
    assert_int_equal(list(1, "", "", 8, out, &more), 1);
    assert_true(out[0].lost);
}

static void it_has_a_bound(void **state)
{
    (void)state;
    char name[32];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KS_PLACED_MAX; i++) {
            snprintf(name, sizeof name, "t%d", i);
            assert_int_equal(claim(i & 1, "", name), KS_OK);
        }
        assert_int_equal(claim(0, "", "more"), KS_RESIDENT_FULL);
        for (int i = 0; i < KS_PLACED_MAX; i++) {
            snprintf(name, sizeof name, "t%d", i);
            assert_int_equal(find(i & 1, "", name), KS_PLACED_HERE);
            ks_placed_drop(&self[i & 1], "", name);
        }
        assert_false(ks_placed_has_any(&self[0]));
    }
}

/* Makes and drops names until it is killed; i: whose. */
static void change_for_ever(int i)
{
    const ks_placed own = {workers, i, (int)getpid()};
    char name[32];
    ks_error ignored;
    bool made;
    for (unsigned n = 0;; n++) {
        snprintf(name, sizeof name, "k%u", n % 3000 + (unsigned)i * 3000);
        if (n / 3000 % 2)
            ks_placed_drop(&own, "", name);
        else
            ks_placed_claim(&own, "", name, &made, &ignored);
    }
}

static void a_process_that_is_killed_leaves_it_whole(void **state)
{
    (void)state;
    enum { KILLS = 40 };
    for (int kill_number = 0; kill_number < KILLS; kill_number++) {
        pid_t pids[2];
        for (int i = 0; i < 2; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) change_for_ever(i);
            atomic_store(&workers->row[i].pid, pids[i]);
        }
        usleep(3000 + (useconds_t)kill_number * 97);
        for (int i = 0; i < 2; i++) {
            kill(pids[i], SIGKILL);
            waitpid(pids[i], NULL, 0);
            atomic_store(&workers->row[i].pid, 0);
            ks_workers_let_go(workers, pids[i]);
        }
        /* Every name can be found, taken and dropped again; none is there that was not made. */
        for (int i = 0; i < 2; i++) atomic_store(&workers->row[i].pid, self[i].pid);
        for (unsigned n = 0; n < 6000; n++) {
            char name[32];
            snprintf(name, sizeof name, "k%u", n);
            const ks_placing placing = find(0, "", name);
            assert_true(placing == KS_PLACED_GONE || placing == KS_PLACED_NOWHERE);
            assert_int_equal(claim(0, "", name), KS_OK);
            ks_placed_drop(&self[0], "", name);
            assert_int_equal(find(0, "", name), KS_PLACED_NOWHERE);
        }
        assert_false(ks_placed_has_any(&self[0]));
    }
    it_has_a_bound(state); /* no row was leaked */
}

static void one_that_is_stopped_with_it_is_not_waited_for(void **state)
{
    (void)state;
    assert_int_equal(put(1, "", "W"), KS_OK);
    assert_true(ks_workers_lock(&workers->placer, 77, 0));
    const int64_t begun_ns = ks_now_ns();
    assert_int_equal(find(0, "", "W"), KS_PLACED_UNKNOWN);
    assert_int_equal(ks_placed_explain(&self[0], "", "W", 1, &error), KS_UNAVAILABLE);
    assert_int_equal(claim(0, "", "W"), KS_UNAVAILABLE);
    assert_true(ks_now_ns() - begun_ns < 20 * KS_PLACED_WAIT_NS);
    assert_int_equal(find(0, "", "other"), KS_PLACED_NOWHERE); /* which takes no lock */
    ks_workers_let_go(workers, 76);
    assert_int_equal(find(0, "", "W"), KS_PLACED_UNKNOWN);
    ks_workers_let_go(workers, 77);
    assert_int_equal(find(0, "", "W"), KS_PLACED_ELSEWHERE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_name_is_one_workers, open_table, close_table),
        cmocka_unit_test_setup_teardown(what_is_put_on_all_is_announced, open_table, close_table),
        cmocka_unit_test_setup_teardown(it_is_lost_with_its_process, open_table, close_table),
        cmocka_unit_test_setup_teardown(a_lost_name_is_somewhere_while_it_is_claimed, open_table, close_table),
        cmocka_unit_test_setup_teardown(a_list_has_the_others, open_table, close_table),
        cmocka_unit_test_setup_teardown(it_has_a_bound, open_table, close_table),
        cmocka_unit_test_setup_teardown(a_process_that_is_killed_leaves_it_whole, open_table, close_table),
        cmocka_unit_test_setup_teardown(one_that_is_stopped_with_it_is_not_waited_for, open_table, close_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
