/* What each plan's launches took of the device, as far as their records were read: the shards' plans of one text, kernel and path are
 * one row.
 *
 * Limits   PLANS rows; when all are taken, the half that was used least lately is forgotten.
 * Threads  one at a time. */
#ifndef KS_PLAN_USE_H
#define KS_PLAN_USE_H
#include "observe/timeline.h"

typedef struct ks_plan_use {
    ks_plan_record plan;
    uint64_t launches, jobs, graph_hits;
    int64_t h2d_ns, compute_ns, d2h_ns;
    int64_t used_ns; /* when its last launch began */
} ks_plan_use;

typedef struct ks_plan_uses ks_plan_uses;

ks_plan_uses *ks_plan_uses_open(void); /* NULL: memory */
void ks_plan_uses_close(ks_plan_uses **uses);
/* Trials of tuning are left out. */
void ks_plan_uses_add(ks_plan_uses *uses, const ks_timeline *timeline, int shard, const ks_launch_record *launch);
/* The rows that took most time of the device, the first one most; returns how many. */
int ks_plan_uses_top(const ks_plan_uses *uses, const ks_plan_use **out, int most);
static inline int64_t ks_plan_use_ns(const ks_plan_use *use)
{
    return use->h2d_ns + use->compute_ns + use->d2h_ns;
}
#endif
