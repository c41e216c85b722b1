/* A worker's side of --devices: the table that its supervisor has made, its channels, and the thread that publishes its metrics. */
#ifndef KS_WORKER_H
#define KS_WORKER_H
#include "daemon/listen.h"

typedef struct ks_publisher ks_publisher;

/* Where a supervisor of workers has started this process: its row and its channels; and its share of what is the whole's (config's connections,
 * the presets of ks_defaults). Else the daemon is alone. false: the table cannot be had. */
bool ks_worker_join(ks_daemon *daemon, ks_config *config);
/* How it gives connections to others, once it knows its listeners. */
void ks_worker_open_hand_over(ks_daemon *daemon, const ks_listen_sockets *sockets);
void ks_worker_leave(ks_daemon *daemon);
/* Publishes the metrics once a second, and when another worker wants them; nothing where the daemon is alone. KS_SYSTEM. */
ks_status ks_publisher_open(ks_daemon *daemon, ks_publisher **out, ks_error *error);
void ks_publisher_close(ks_publisher **publisher);
#endif
