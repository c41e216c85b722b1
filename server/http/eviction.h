/* Which connection gives way when all places are taken and another client comes.
 *
 * First the ones that never completed a request, then the ones that rest between two requests; of each kind the one that has
 * rested longest, but among the longest ones first one whose client address has more than its share. A connection with a
 * request under way never does: one whose head is complete, or a part of whose head has been there for less than a second.
 * A new connection has a moment to send its request in, unless connections like it hold a quarter of the table.
 *
 * Threads  the loop's own, but for conns->yields, which the listener reads. */
#ifndef KS_EVICTION_H
#define KS_EVICTION_H
#include "http/conns.h"

/* The connection has come. */
void ks_eviction_enter(ks_conns *conns, ks_conn *conn, int64_t now_ns);
/* A request of it is over. */
void ks_eviction_rest(ks_conns *conns, ks_conn *conn, int64_t now_ns);
void ks_eviction_leave(ks_conn *conn);
/* The next one to give way, to be closed by the caller; NULL: none does now. */
ks_conn *ks_eviction_choose(ks_conns *conns, int64_t now_ns, ks_count *reason);
/* Puts into conns->yields since when the next one to give way has rested, earlier times for the kind that goes first; INT64_MAX:
 * none does. So the least of several tables goes first. */
void ks_eviction_rank(ks_conns *conns, int64_t now_ns);
#endif
