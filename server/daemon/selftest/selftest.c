#include "daemon/selftest/selftest.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/selftest/parts.h"
#include "daemon/defaults.h"

enum { SLICES = 4, LARGE_MOST = 16 << 20, TEXT_MAX = 1 << 16 };

void ks_selftest_config(ks_config *config)
{
    config->listen = (ks_list){.count = 1, .item = {"127.0.0.1:0"}};
    config->tls_listen.count = 0;
    config->admin_listen = "";
    config->token_file = "";
    if (config->log_level > KS_LOG_WARN) config->log_level = KS_LOG_WARN;
    config->access_log = KS_ACCESS_LOG_OFF;
}

/* The waiting caller may end it: nothing has to be finished. */
static void let_signals_end_it(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* What is compared, from alone to crowded; never more connections than the daemon takes. */
static void choose_cells(ks_test *test)
{
    static const int connections[KS_TEST_CELLS] = {1, 16, 128, 4};
    const ks_config *config = test->daemon->config;
    const uint64_t least = config->max_body < config->max_output ? config->max_body : config->max_output;
    const size_t most = least < LARGE_MOST ? (size_t)least : LARGE_MOST;
    test->large_bytes = most > KS_TEST_ROW ? most / KS_TEST_ROW * KS_TEST_ROW : KS_TEST_ROW;
    for (int i = 0; i < KS_TEST_CELLS; i++) {
        test->cells[i].bytes = i == KS_TEST_CELLS - 1 ? test->large_bytes : KS_TEST_ROW;
        test->cells[i].connections = connections[i] < config->connections ? connections[i] : (int)config->connections;
    }
}

static ks_test_rate rate_of(ks_test_samples *samples, size_t bytes)
{
    const double per_s = samples->seconds > 0 ? (double)samples->requests / samples->seconds : 0;
    const ks_test_rate rate = {.per_s = per_s,
                               .gbs = per_s * (double)bytes / 1e9,
                               .p50_us = ks_samples_quantile(samples, 0.5),
                               .p99_us = ks_samples_quantile(samples, 0.99)};
    ks_samples_free(samples);
    return rate;
}

/* In turn, so that what else the host does falls on both. What the first requests find out (plans, graphs, pages) is not
 * measured. */
static ks_status take_turns(ks_test_cell *cell, ks_load *daemon, ks_load *echo, int64_t for_ns, ks_error *error)
{
    ks_test_samples daemon_samples = {0}, echo_samples = {0}, first = {0};
    ks_status status = ks_load_run(echo, for_ns / 20, &first, error);
    for (int i = 0; i < SLICES && status == KS_OK; i++) {
        status = ks_load_run(daemon, for_ns / 2 / SLICES, &daemon_samples, error);
        if (status == KS_OK) status = ks_load_run(echo, for_ns / 2 / SLICES, &echo_samples, error);
    }
    ks_samples_free(&first);
    cell->daemon = rate_of(&daemon_samples, cell->bytes);
    cell->echo = rate_of(&echo_samples, cell->bytes);
    return status;
}

static ks_status measure_cell(ks_test *test, ks_test_cell *cell, int64_t for_ns, ks_error *error)
{
    ks_load *daemon = NULL, *beside = NULL;
    ks_echo *echo = NULL;
    ks_test_samples first = {0};
    ks_status status = ks_load_open(test->port, test->load_threads, cell->connections, cell->bytes, &daemon, error);
    if (status == KS_OK) status = ks_load_run(daemon, for_ns / 20, &first, error);
    if (status == KS_OK)
        status = ks_echo_open(test->daemon->shards, ks_load_request_bytes(daemon), ks_load_response_bytes(daemon),
                              cell->bytes, &echo, error);
    if (status == KS_OK)
        status = ks_load_open(ks_echo_port(echo), test->load_threads, cell->connections, cell->bytes, &beside, error);
    if (status == KS_OK) status = ks_echo_accept(echo, cell->connections, error);
    if (status == KS_OK) status = take_turns(cell, daemon, beside, for_ns * 9 / 10, error);
    ks_samples_free(&first);
    ks_load_close(&beside);
    ks_load_close(&daemon);
    ks_echo_close(&echo);
    return status;
}

/* cell NULL: the first part. On a terminal one line that changes, else a line for each. */
static void say_part(int done, const ks_test_cell *cell, int64_t part_ns)
{
    enum { PARTS = KS_TEST_CELLS + 1 };
    const bool terminal = isatty(STDERR_FILENO);
    char what[64] = "limits of this host";
    if (cell) snprintf(what, sizeof what, "%d connections, bodies of %zu bytes", cell->connections, cell->bytes);
    fprintf(stderr, "%sself-test: %d of %d, %.1f s left: %s%s", terminal ? "\r\033[K" : "", done + 1, PARTS,
            (double)(PARTS - done) * (double)part_ns / 1e9, what, terminal ? "" : "\n");
}

static ks_status measure(ks_test *test, ks_error *error)
{
    const int64_t part_ns = test->daemon->config->self_test_time / (KS_TEST_CELLS + 1);
    say_part(0, NULL, part_ns);
    ks_status status = ks_test_device_limits_measure(test, part_ns, error);
    for (int i = 0; i < KS_TEST_CELLS && status == KS_OK; i++) {
        say_part(i + 1, &test->cells[i], part_ns);
        status = measure_cell(test, &test->cells[i], part_ns, error);
    }
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    return status;
}

int ks_selftest(const ks_daemon *daemon, int port)
{
    ks_test test = {.daemon = daemon, .port = port, .cores = ks_cores()};
    const int left = test.cores - daemon->shards;
    test.load_threads = left < 1 ? 1 : left < daemon->shards ? left : daemon->shards;
    if (getloadavg(&test.load_average, 1) != 1) test.load_average = -1; /* not known */
    let_signals_end_it();
    choose_cells(&test);
    ks_error error = {0};
    ks_status status = measure(&test, &error);
    ks_text text;
    ks_text_init(&text, TEXT_MAX);
    if (status == KS_OK) ks_test_print(&test, strcmp(daemon->config->self_test, "json") == 0, &text);
    if (status == KS_OK && (text.broken || fwrite(text.bytes, 1, text.length, stdout) != text.length || fflush(stdout)))
        status = ks_fail(&error, KS_SYSTEM, "the self-test's result could not be written");
    ks_text_fini(&text);
    if (status == KS_OK) return KS_EXIT_OK;
    fprintf(stderr, "kernserve: self-test: %s\n", error.text);
    return status == KS_DEVICE ? KS_EXIT_INTERNAL : KS_EXIT_SYSTEM;
}
