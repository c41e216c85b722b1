/* --supervise: a small parent that keeps the listening sockets, starts the daemon by fork + exec, hands it the sockets
 * as systemd would (LISTEN_FDS), and starts it again when it leaves unasked with a code worth a retry. It never touches
 * CUDA, which does not survive a fork. One thread. */
#ifndef KS_SUPERVISE_H
#define KS_SUPERVISE_H
#include "config.h"

/* The exit code of the whole. Signals TERM, INT and HUP must be blocked. */
int ks_supervise(const ks_config *config, int argc, char **argv);
#endif
