/* The best k of keys that come one after the other, as a heap whose root is the worst of them.
 *
 * Owns     nothing: places are the caller's, k of them.
 * Threads  one for each heap. */
#ifndef KS_CPU_HEAP_H
#define KS_CPU_HEAP_H

#include <stdint.h>

typedef struct ks_heap_place {
    uint64_t key;
    int64_t index;
} ks_heap_place;

typedef struct ks_heap {
    ks_heap_place *places;
    int count, k;
} ks_heap;

/* Indices rise from call to call, so that of equal keys the one in the heap stays. */
void ks_heap_offer(ks_heap *h, uint64_t key, int64_t index);
/* The best one first; behind it nothing is offered. */
void ks_heap_sort(ks_heap *h);

#endif
