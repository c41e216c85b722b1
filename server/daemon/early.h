/* What must be so before the first line of main: SIGTERM, SIGINT and SIGHUP are blocked, so that one that comes
 * early waits; and a library that fails while the
 * daemon starts ends it with one line and KS_EXIT_SYSTEM. Our libraries begin in constructors, some allocate there, and
 * what they do about a failure is to throw through C or to call exit: neither may end the start by a signal. */
#ifndef KS_EARLY_H
#define KS_EARLY_H
#ifdef __cplusplus
extern "C" {
#endif

/* The start is over, well or not: from now on an exception is a fault of the daemon's, and exit means what it says. */
void ks_early_end(void);
/* A command that does not serve may be ended by them. */
void ks_early_release_signals(void);

#ifdef __cplusplus
}
#endif
#endif
