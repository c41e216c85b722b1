/* What the parts of the self-test share: selftest.c (the order of things), limits.c (the host without HTTP),
 * load.c (clients), echo.c (the bare server beside the daemon), print.c (table and JSON). */
#ifndef KS_SELFTEST_PARTS_H
#define KS_SELFTEST_PARTS_H
#include "daemon/selftest/selftest.h"
#include "base/text.h"

enum { KS_TEST_COLS = 1024, KS_TEST_ROW = KS_TEST_COLS * 4, KS_TEST_CELLS = 4 };

/* Rates in GB/s count the bytes of one direction. */
typedef struct ks_test_rate {
    double per_s, gbs, p50_us, p99_us;
} ks_test_rate;

/* The same load on the daemon and on the bare server. */
typedef struct ks_test_cell {
    size_t bytes; /* of the body, and of the response's */
    int connections;
    ks_test_rate daemon, echo;
} ks_test_cell;

typedef struct ks_test_device_limits {
    ks_device_limits device;  /* all 0: the backend has no link and no launches */
    double row_us, large_gbs; /* one row, and a large body, through an engine without HTTP */
    double memcpy_gbs;
    ks_memory_rates memory; /* all 0: not known */
    ks_peak peak;           /* of FP32, likewise */
} ks_test_device_limits;

typedef struct ks_test {
    const ks_daemon *daemon;
    int port, cores, load_threads;
    double load_average; /* of the minute before: what else this host does */
    size_t large_bytes;
    ks_test_device_limits device_limits;
    ks_test_cell cells[KS_TEST_CELLS]; /* the first: one row, one connection; the last: large bodies */
} ks_test;

/* Latencies in microseconds. Zero is an empty one. */
typedef struct ks_test_samples {
    float *us; /* malloc'ed, owned */
    size_t count, cap;
    uint64_t requests; /* also those that found no room in us */
    double seconds;
} ks_test_samples;

bool ks_samples_add(ks_test_samples *samples, const float *us, size_t count);
double ks_samples_quantile(ks_test_samples *samples, double q); /* sorts; 0: none */
void ks_samples_free(ks_test_samples *samples);

/* --- limits.c --- */

/* Takes about for_ns. */
ks_status ks_test_device_limits_measure(ks_test *test, int64_t for_ns, ks_error *error);

/* --- load.c --- */

/* Clients on connections that stay open, each with one request under way: a plain raw softmax of that many bytes. */
typedef struct ks_load ks_load;
ks_status ks_load_open(int port, int threads, int connections, size_t bytes, ks_load **out, ks_error *error);
size_t ks_load_request_bytes(const ks_load *load); /* head and body */
/* Starts requests for for_ns and waits for their responses; adds to samples. KS_DEVICE: a response other than 200, or
 * none. */
ks_status ks_load_run(ks_load *load, int64_t for_ns, ks_test_samples *samples, ks_error *error);
size_t ks_load_response_bytes(const ks_load *load); /* head and body of the last run's responses */
void ks_load_close(ks_load **load);

/* --- echo.c --- */

/* Bare epoll loops that know how long a request is and give its body back: no parser, no library, no engine. */
typedef struct ks_echo ks_echo;
ks_status ks_echo_open(int threads, size_t request_bytes, size_t response_bytes, size_t body_bytes, ks_echo **out,
                       ks_error *error);
int ks_echo_port(const ks_echo *echo);
/* Takes so many connections, which have been made, and spreads them evenly over the loops. */
ks_status ks_echo_accept(ks_echo *echo, int connections, ks_error *error);
void ks_echo_close(ks_echo **echo);

/* --- print.c --- */

void ks_test_print(const ks_test *test, bool json, ks_text *out);
#endif
