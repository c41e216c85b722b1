/* When the device's engines were busy, and which of them at the same time: the launch records of all lanes of the daemon, merged
 * on one axis of time.
 *
 * Owns     the axis, OVERLAP_MARKS changes of it.
 * Limits   a ring that is written over between two looks has lost records: they are counted, and the time that they may have covered
 *          is not observed; nothing is counted in it. A look reads at most LOOK_MOST records.
 * Threads  ks_overlap_look, one; ks_overlap_read, any.
 * Units    ns of CLOCK_MONOTONIC. A library's kernels leave no stamps: all of their time is compute. */
#ifndef KS_OVERLAP_H
#define KS_OVERLAP_H
#include "observe/timeline.h"

/* X(cell, label): times that were busy, on any lane; on some engine; */
#define KS_ENGINE_BUSY_TABLE(X) X(busy_h2d, "h2d") X(busy_compute, "compute") X(busy_d2h, "d2h") X(busy_any, "any")
/* and at the same time: each two engines, all three, at least two */
#define KS_ENGINE_PAIR_TABLE(X)                                                                                        \
    X(h2d_compute, "h2d_compute")                                                                                      \
    X(h2d_d2h, "h2d_d2h") X(compute_d2h, "compute_d2h") X(all, "all") X(two, "any")

/* Since the start. Every member is a uint64_t. */
typedef struct ks_overlap_sums {
#define X(cell, label) uint64_t cell;
    KS_ENGINE_BUSY_TABLE(X)
    KS_ENGINE_PAIR_TABLE(X)
#undef X
    uint64_t observed; /* that the records cover */
    uint64_t overruns; /* records that were lost */
} ks_overlap_sums;

typedef struct ks_overlap ks_overlap;

ks_overlap *ks_overlap_open(const ks_timeline *timeline, int shards, int64_t now_ns); /* NULL: memory */
void ks_overlap_close(ks_overlap **overlap);
/* Counts the launches that ended since the last look. */
void ks_overlap_look(ks_overlap *overlap, int64_t now_ns);
void ks_overlap_read(const ks_overlap *overlap, ks_overlap_sums *out);
#endif
