/* --supervise: a small parent that keeps every listening socket, starts the daemon by fork + exec, hands it the sockets
 * as systemd would (LISTEN_FDS), and starts it again when it leaves unasked with a code worth a retry. It never touches
 * CUDA, which does not survive a fork. One thread. */
#ifndef KS_SUPERVISE_H
#define KS_SUPERVISE_H
#include "base/config/config.h"

/* In the daemon's environment: the process that passes signals on to it. */
#define KS_SUPERVISOR_PID "KERNSERVE_SUPERVISOR_PID"
/* How often it has started the daemon, and the descriptor of the memory that keeps the names of tensors from one to the next. */
#define KS_SUPERVISOR_STARTS "KERNSERVE_SUPERVISOR_STARTS"
#define KS_SUPERVISOR_RECORD "KERNSERVE_SUPERVISOR_RECORD"

/* The exit code of the whole: 0 whenever it was asked to stop, but for what a drain had to cut (75). Signals TERM, INT
 * and HUP must be blocked. */
int ks_supervise(const ks_config *config, int argc, char **argv);
#endif
