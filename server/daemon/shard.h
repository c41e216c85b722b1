/* A shard: one thread with its own libmicrohttpd daemon in an external epoll loop, the connections handed to it, its
 * engine and its counters. Nothing is shared with other shards on the path of a request.
 *
 * Interface  open (engine, known-answer test, --warm plans: all in the shard's own thread, then it serves), give, drain,
 *            join. Threads: all functions here are for main's thread and the listener's, but where said. */
#ifndef KS_SHARD_H
#define KS_SHARD_H
#include "daemon/daemon.h"
#include "http/http.h"

typedef struct ks_shard ks_shard;

/* Starts the thread and waits until its engine is open, tested and warm. index 0 .. shards-1. */
ks_status ks_shard_open(ks_daemon *daemon, int index, ks_shard **out, ks_error *error);
/* Hands an accepted, non-blocking socket over (through a small queue and the shard's eventfd). false: queue full, caller closes.
 * One that replaces another waits in the queue until that has given way, or the daemon has a place again. */
bool ks_shard_give(ks_shard *shard, const ks_arrival *arrival);
/* Of its connection that would give way, as ks_eviction_rank: the least of all shards goes first. INT64_MAX: none. Any thread. */
int64_t ks_shard_yields(const ks_shard *shard);
int ks_shard_connections(const ks_shard *shard);   /* handed over and not yet closed; any thread */
int64_t ks_shard_turned_ns(const ks_shard *shard); /* when its last turn ended; any thread */
/* From now on responses carry Connection: close and new requests get 503 draining; ends when nothing is in flight (quiet for
 * 300 ms) or at deadline_ns. */
void ks_shard_drain(ks_shard *shard, int64_t deadline_ns);
/* Waits for the thread; true: nothing was cut. Destroys it. */
bool ks_shard_join(ks_shard **shard);
#endif
