/* What the files of this folder share: where an index leads, and bags. */
#ifndef KS_CPU_GATHER_H
#define KS_CPU_GATHER_H

#include "ops/gather.h"

typedef struct ks_gather_task {
    ks_gather_shape shape;
    ks_dtype dtype, index_dtype;
    const unsigned char *table;
    const void *indices;
    unsigned char *out;
    /* bags: */
    const void *offsets, *weights; /* weights NULL: each is 1 */
    ks_dtype offset_dtype, weight_dtype;
} ks_gather_task;

/* The slice that an index means; -1: none, it is out of bounds. */
static inline int64_t ks_gather_slice(int64_t index, int64_t extent, ks_gather_mode mode)
{
    if (index >= 0 && index < extent) return index;
    if (extent == 0) return -1;
    if (mode == KS_GATHER_CLIP) return index < 0 ? 0 : extent - 1;
    if (mode == KS_GATHER_WRAP) return (index % extent + extent) % extent;
    return index < 0 && index >= -extent ? index + extent : -1;
}

/* bags.c */
void ks_gather_bags(const ks_gather_task *task);

#endif
