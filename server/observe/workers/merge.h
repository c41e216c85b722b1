/* One document of metrics of several workers' (Prometheus 0.0.4): each family once, with the samples of all, each with the label device.
 * Pure; any thread. */
#ifndef KS_MERGE_H
#define KS_MERGE_H
#include "observe/workers/workers.h"

typedef struct ks_merge_part {
    const char *text;
    size_t bytes; /* 0: it has none */
    int device;   /* of its samples, but those that name one */
} ks_merge_part;

/* Families in the order of the first part that has them. Lines in front of a part's first family are left out. */
void ks_merge(const ks_merge_part *parts, int count, ks_text *out);
#endif
