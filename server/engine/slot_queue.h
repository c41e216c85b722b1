/* The slot queue: requests whose body can be held back, and that found every slot of their size in use, in order of arrival.
 * Their bodies stay in the socket, so that the client's window closes, until a slot comes back or their wait ends; then they
 * go on with an overflow slot.
 *
 * Why      an overflow slot is a mapping of its own, faulted in page by page under the process's one lock, and its bytes go
 *          to a device chunk by chunk: a request in one takes about twice the CPU time.
 * wait_max slots may be in use for long because of slow clients, which must not hold the others up. So the wait begins anew
 *          each time that a request in front is given a slot of that size or more, up to KS_SLOT_QUEUE_WAITS_MAX of it in
 *          all: a long queue that moves is overload, and slots are its fastest way out. The preset of 100 ms: 128
 *          connections with 256 KiB each, on one shard of a quiet machine, have their responses after 40 to 55 ms at the
 *          99th percentile, the wait included.
 * Small    what the smallest class holds never waits: that class has a slot for every connection.
 * Owner    ks_slot_wait lies in its request's record. Threads: the shard's own. */
#ifndef KS_SLOT_QUEUE_H
#define KS_SLOT_QUEUE_H
#include "engine/engine.h"

enum { KS_SLOT_QUEUE_WAITS_MAX = 10 };

typedef struct ks_slot_wait {
    size_t in_bytes, out_bytes;
    int64_t until_ns, last_ns; /* wait ends; at the latest */
    struct ks_slot_wait *next;
    bool waits;
} ks_slot_wait;

/* Holds addresses of its own fields: it must not move after init. */
typedef struct ks_slot_queue {
    const ks_engine *engine;
    size_t small; /* bytes of a side in the smallest class */
    int64_t wait_max_ns;
    ks_slot_wait *first, **end; /* the last link, always NULL */
    ks_slot_wait **at;          /* the link to the next one that this look may let go */
    int64_t now_ns, until_ns;   /* of the last look; no wait ends before */
    size_t given;               /* bytes of the largest side that this look has given a slot to */
    bool changed;               /* since the last look: a slot has come back, or a request has joined */
} ks_slot_queue;

void ks_slot_queue_init(ks_slot_queue *queue, const ks_engine *engine, int64_t wait_max_ns);
/* Whether a request of that size has to wait: there is no slot for it, or others came before. */
bool ks_slot_queue_holds(const ks_slot_queue *queue, size_t in_bytes, size_t out_bytes);
void ks_slot_queue_join(ks_slot_queue *queue, ks_slot_wait *wait, size_t in_bytes, size_t out_bytes);
void ks_slot_queue_leave(ks_slot_queue *queue, ks_slot_wait *wait); /* if it is in it */
/* A slot has come back. */
void ks_slot_queue_freed(ks_slot_queue *queue);
/* Once a turn; then ks_slot_queue_next gives those that may take a slot now, and are out of the slot queue, until NULL. Each must
 * do so before the next call. */
void ks_slot_queue_look(ks_slot_queue *queue, int64_t now_ns);
ks_slot_wait *ks_slot_queue_next(ks_slot_queue *queue);
int64_t ks_slot_queue_wait_ns(const ks_slot_queue *queue); /* until a look may let one go; INT64_MAX: none waits */
#endif
