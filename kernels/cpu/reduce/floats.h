/* What floats.c walks with and folds.c folds. */
#ifndef KS_REDUCE_FLOATS_H
#define KS_REDUCE_FLOATS_H

#include "cpu/reduce/reduce.h"

enum {
    PANEL = 4096,   /* elements worked on at a time: stays in the first-level cache */
    RESULTS = 1024, /* most running results */
    LINES = 4       /* of columns at once: a running result is then loaded and stored for every fourth element */
};

/* The caller's scratch: the running results and a panel of elements. */
typedef struct work {
    double sum[RESULTS];   /* of var the mean so far, */
    double apart[RESULTS]; /* and the sum of squared deviations from it */
    float best[RESULTS];   /* the extreme, or logsumexp's reference */
    int64_t at[RESULTS];   /* where a row has its extreme */
    int32_t line[RESULTS]; /* where a column has it */
    float panel[PANEL], e[PANEL];
} work;

/* Folds `count` elements of each of `lines` lines, `pitch` apart. Of rows each line is one result, and its first element
 * the `at`-th of the result; of columns each element is one, and the first line the `at`-th. */
typedef void ks_fold_fn(work *restrict w, const float *x, int64_t pitch, int lines, int count, int64_t at);

/* NULL: elements.c does that one. */
ks_fold_fn *ks_reduce_fold(int op, bool columns);

#endif
