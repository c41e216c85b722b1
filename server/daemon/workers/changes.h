/* A worker's thread of changes (--devices): it sends what clients ask this worker to change to each worker, its own included, as the same
 * request, so that all of them do it or none (api/changes/change.h, observe/workers/ballot.h). One change at a time, of all workers.
 *
 * Joining  a worker that is started takes part, and takes clients, once it has what the others have: the one with the lowest row that has
 *          joined gives it each tensor, as its own store has it, and each model, as the request that loaded it: its file of memory is kept, once
 *          for all workers. Where no other worker is left it has what its own start gave it, and what was lost is 410.
 * TTL      that same worker asks the others for their last uses before a tensor goes, and then it goes in all of them.
 * Limits   a worker whose main thread stands for KS_WORKER_STUCK_NS, or that moves no byte for 10 s and --load-timeout, ends a change that
 *          has no verdict, and is killed behind one.
 * Threads  open and close: main's; give, keep: any. */
#ifndef KS_CHANGES_H
#define KS_CHANGES_H
#include "api/changes/change.h"
#include "daemon/daemon.h"

enum { KS_CHANGES_WAIT_MAX = 256 }; /* at a worker; their clients hold connections meanwhile */

typedef struct ks_changes ks_changes;

bool ks_changes_are_made(const ks_daemon *daemon);
/* Before shards are open: changes wait. KS_SYSTEM. */
ks_status ks_changes_prepare(ks_daemon *daemon, ks_error *error);
/* Behind the listener; waits until the worker has joined. stops: asked meanwhile, ends the wait. Nothing where there are none. KS_SYSTEM. */
ks_status ks_changes_open(ks_daemon *daemon, bool (*stops)(void), ks_error *error);
void ks_changes_close(ks_daemon *daemon);
/* The file of a model's last change, from another worker. changes NULL: closed. */
void ks_changes_keep_take(ks_changes *changes, int fd);
#endif
