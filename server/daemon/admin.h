/* The second listener: metrics, health and status, on a thread of its own, so that they answer whatever the shards do. Between two
 * requests the thread counts what the status shows (api/board/board.h). */
#ifndef KS_ADMIN_H
#define KS_ADMIN_H
#include "daemon/daemon.h"

typedef struct ks_admin ks_admin;
/* Takes the listening socket (also when it fails) and serves at once. */
ks_status ks_admin_open(ks_daemon *daemon, ks_shard_metrics *metrics, int fd, bool loopback, ks_admin **out,
                        ks_error *error);
void ks_admin_close(ks_admin **admin);
#endif
