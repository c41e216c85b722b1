/* --supervise: a small parent that keeps every listening socket, starts the daemon by fork + exec, hands it the sockets
 * as systemd would (LISTEN_FDS), and starts it again when it leaves unasked with a code worth a retry. It never touches
 * CUDA, which does not survive a fork. With --devices it starts a worker for each device (workers/fleet.h). One thread. */
#ifndef KS_SUPERVISE_H
#define KS_SUPERVISE_H
#include "base/config/config.h"

/* The exit code of the whole: 0 whenever it was asked to stop, but for what a drain had to cut (75). Signals TERM, INT
 * and HUP must be blocked. */
int ks_supervise(const ks_config *config, int argc, char **argv);
#endif
