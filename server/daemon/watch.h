/* What main does while the daemon serves: signals, the device, stuck shards, systemd's watchdog; then the drain. */
#ifndef KS_WATCH_H
#define KS_WATCH_H
#include "daemon/daemon.h"
#include "daemon/listen.h"

typedef struct ks_watched {
    ks_daemon *daemon;
    ks_shard **shards;
    ks_listener **listener; /* closed by the drain */
    int argc;
    char **argv;            /* SIGHUP reads them again */
    const ks_config *given; /* what they said at start, with nothing settled */
    bool tokens_wanted;     /* there were tokens at start */
} ks_watched;

/* Whether SIGTERM or SIGINT is pending: for steps before ks_watch. */
bool ks_watch_stop_asked(void);
/* Writes the tune cache, if there is something new; says so where it cannot. */
void ks_watch_save_tunes(ks_daemon *daemon, int64_t wait_ns);
/* Until a signal asks to stop. Does not come back from a device fault: _exit(70). */
void ks_watch(const ks_watched *watched);
/* Ready 503, the delay, no more connections, running work finishes, shards end. The exit code. A second signal, or shards
 * that do not end in time: _exit(75). */
int ks_watch_drain(const ks_watched *watched);
#endif
