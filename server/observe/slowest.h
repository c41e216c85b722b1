/* The slowest requests of the last five minutes, with what their plans were.
 *
 * Kept     the KS_SLOWEST slowest of each KS_SLOWEST_NS, of KS_SLOWEST_PARTS such parts: a part is forgotten as a whole. The shards keep
 *          aside what is slower than the last of the newest part (ks_timeline_keep_slow). While a part has fewer, that is every request,
 *          so that more than KS_SLOW_RECORDS of a shard between two looks lose the older ones.
 * Threads  one at a time. */
#ifndef KS_SLOWEST_H
#define KS_SLOWEST_H
#include "observe/timeline.h"

enum { KS_SLOWEST = 20, KS_SLOWEST_PARTS = 30 };

typedef struct ks_slow {
    ks_request_record request;
    ks_plan_record plan; /* "": its launch is not known any more, or it had none */
    int shard, lane;     /* lane -1: likewise */
} ks_slow;

typedef struct ks_slowest ks_slowest;

ks_slowest *ks_slowest_open(ks_timeline *timeline, int shards, int64_t now_ns); /* NULL: memory */
void ks_slowest_close(ks_slowest **slowest);
void ks_slowest_look(ks_slowest *slowest, int64_t now_ns);
/* The slowest first; returns how many. */
int ks_slowest_list(const ks_slowest *slowest, const ks_slow *out[KS_SLOWEST]);
static inline int64_t ks_slow_ns(const ks_slow *slow)
{
    return slow->request.answered_ns - slow->request.first_ns;
}
#endif
