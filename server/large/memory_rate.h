/* How fast the memory for large requests comes free: measured, to tell how long a queue of them will wait.
 *
 * Rate    bytes that were given to waiting requests, by the time in which any waited: while all memory is out, that is what the
 *         service achieves, whatever holds it up (the device, the link, slow clients). Of both sums an eighth is forgotten
 *         with each request that is given some, so that about the last eight count; the time since the last one counts in
 *         full, so that a service that has stopped is soon seen to be slow.
 * Unknown until KS_MEMORY_RATE_LEAST requests have come out of the queue: before that no request is refused by it.
 * Time    as far as the shard's turns went on: a pause of the process is no slow service.
 * Threads the shard's own. */
#ifndef KS_MEMORY_RATE_H
#define KS_MEMORY_RATE_H
#include "base/clock.h"

enum { KS_MEMORY_RATE_LEAST = 4 };

typedef struct ks_memory_rate {
    ks_turn_clock clock;
    double bytes, ns;
    int64_t open_ns; /* of waiting, since the last request was given some */
    int given;       /* requests, up to KS_MEMORY_RATE_LEAST */
} ks_memory_rate;

/* All zero: nothing is known. */
void ks_memory_rate_begin(ks_memory_rate *rate, int64_t now_ns); /* the first request begins to wait */
void ks_memory_rate_turn(ks_memory_rate *rate, int64_t now_ns);  /* a request still waits */
void ks_memory_rate_give(ks_memory_rate *rate, double bytes);    /* to a request that waited */
/* Until so many bytes have come free; 0: not known yet. */
double ks_memory_rate_wait_ns(const ks_memory_rate *rate, double bytes);
#endif
