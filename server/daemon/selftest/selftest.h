/* --self-test: what this host can do at best, and how far the daemon is from it. The daemon is the one of this process,
 * with the configuration that was given; it serves a loopback port of its own. Main's thread. */
#ifndef KS_SELFTEST_H
#define KS_SELFTEST_H
#include "daemon/daemon.h"

/* Changes what would disturb or be disturbed: a port of its own, no second listener, no tokens, a quiet log. */
void ks_selftest_config(ks_config *config);
/* Measures for config->self_test_time and writes to stdout, as a table or as JSON. The daemon serves on 127.0.0.1:port.
 * The exit code: KS_EXIT_INTERNAL with one line on stderr where a request was not answered as it should be. */
int ks_selftest(const ks_daemon *daemon, int port);
#endif
