/* How fast the memory for large requests comes free: measured, to tell how long a queue of them will wait.
 *
 * Rate    bytes that were given to waiting requests, by the time in which any waited: while all memory is out, that is what the
 *         service achieves, whatever holds it up (the device, the link, slow clients). Of both sums an eighth is forgotten
 *         with each request that is given some, so that about the last eight count; the time since the last one counts in
 *         full, so that a service that has stopped is soon seen to be slow.
 * Known   when KS_MEMORY_RATE_LEAST requests have come out of the queue. Until then there is a bound, by the age of what is under
 *         way: memory that has been held for so long comes free now at the soonest, and its next holder has it as long.
 * Time    as far as the shard's turns went on: a pause of the process is no slow service.
 * Threads the shard's own. */
#ifndef KS_MEMORY_RATE_H
#define KS_MEMORY_RATE_H
#include <stdbool.h>

#include "base/clock.h"

enum { KS_MEMORY_RATE_LEAST = 4 };

typedef struct ks_memory_rate {
    ks_turn_clock clock; /* of turns in which requests hold memory or wait */
    double bytes, ns;
    int64_t open_ns;        /* of waiting, since the last request was given some */
    int given;              /* requests, up to KS_MEMORY_RATE_LEAST */
    double held, held_from; /* bytes that requests hold; sum of each one's bytes times the clock when it got them */
} ks_memory_rate;

void ks_memory_rate_init(ks_memory_rate *rate, int64_t now_ns); /* nothing is known */
void ks_memory_rate_turn(ks_memory_rate *rate, int64_t now_ns,
                         bool waited);                        /* waited: a request did, since the last turn */
void ks_memory_rate_give(ks_memory_rate *rate, double bytes); /* to a request that waited */
/* A request has so many bytes from now on, until ks_memory_rate_free, whose from_ns is what this returns: the clock. */
int64_t ks_memory_rate_hold(ks_memory_rate *rate, double bytes);
void ks_memory_rate_free(ks_memory_rate *rate, double bytes, int64_t from_ns);
bool ks_memory_rate_is_known(const ks_memory_rate *rate);
/* Until so many bytes have come free; while the rate is not known, at least. all: bytes that are held now, by other shards' requests
 * as well. */
double ks_memory_rate_wait_ns(const ks_memory_rate *rate, double bytes, double all);
#endif
