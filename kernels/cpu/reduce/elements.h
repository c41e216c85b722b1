/* What elements.c folds, and load.c brings: elements as double or int64_t. */
#ifndef KS_REDUCE_LANES_H
#define KS_REDUCE_LANES_H

#include "cpu/reduce/reduce.h"

enum { LANES = 1024 }; /* most running results side by side */

typedef union number {
    double d;
    int64_t i;
} number;

/* The caller's scratch: the running results (and where arg found them, logsumexp's sums, or var's sums of squared deviations), and a
 * line of elements. */
typedef struct work {
    union {
        double d[LANES];
        int64_t i[LANES];
    } best, more, x;
    double e[LANES]; /* logsumexp: exponentials; var: how many elements a lane has taken */
    double power;    /* of norm */
    float single[LANES];
    uint16_t raw[LANES];
} work;

#define ORDERED(value) ((value) ^ ((uint64_t)1 << 63)) /* UINT64 in the order of INT64 */

/* `count` elements, `stride` apart, the first the `at`-th of `in`, into w->x. */
typedef void load_fn(const void *in, int64_t at, int64_t stride, int count, work *restrict w);

/* As double (real) where that is what the result is made of, else as int64_t; `ordered`: UINT64 in INT64's order. */
load_fn *ks_reduce_loader(ks_dtype dtype, bool real, bool ordered);

#endif
