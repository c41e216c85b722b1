/* Random shapes of the regimes for which softmax and reduce have kernels of their own on a GPU. One thread. */
#ifndef KS_OP_REGIMES_H
#define KS_OP_REGIMES_H
#include "ops/op_values.h"

static inline int regimes_between(int least, int most)
{
    return least + values_below(most - least + 1);
}

/* Regimes with kernels of their own that random extents seldom meet: few short rows; rows of 2 and 4 elements; long columns, of
 * lines of whole vectors that are not whole lines of memory, and of others; long rows. Returns the axis. */
static inline int regimes_softmax(ks_tensor *shape)
{
    const bool large = values_below(8) == 0;
    const int regime = values_below(5);
    shape->rank = regime < 2 ? 2 : 3;
    if (regime == 0) {
        shape->dims[0] = regimes_between(1, large ? 3000 : 300);
        shape->dims[1] = regimes_between(2, 33);
    } else if (regime == 1) {
        shape->dims[0] = regimes_between(1, large ? 20000 : 3000);
        shape->dims[1] = values_below(2) ? 2 : 4;
    } else if (regime == 2) {
        shape->dims[0] = regimes_between(1, 2);
        shape->dims[1] = regimes_between(1025, large ? 9000 : 2500);
        shape->dims[2] = values_below(4) ? 8 * regimes_between(1, large ? 40 : 8) : regimes_between(2, 40);
    } else if (regime == 3) {
        shape->dims[0] = regimes_between(1, 3);
        shape->dims[1] = regimes_between(100, 1100);
        shape->dims[2] = 8 * regimes_between(1, large ? 60 : 12);
    } else {
        shape->dims[0] = regimes_between(2, 4);
        shape->dims[1] = regimes_between(20000, large ? 250000 : 40000);
        shape->dims[2] = 1;
    }
    return 1;
}

/* Regimes with kernels of their own that random extents seldom meet: lists that leave interleaved axes; few short rows; columns of
 * some hundred rows; deep columns, of lines of whole vectors that are not whole lines of memory, and of others; rows of a vector
 * or of a part of one. */
static inline ks_axes regimes_reduce(ks_tensor *shape)
{
    const bool large = values_below(8) == 0;
    const int regime = values_below(5);
    int64_t *d = shape->dims;
    if (regime == 0) {
        const int about = regimes_between(2, large ? 24 : 13);
        shape->rank = 4;
        for (int i = 0; i < 4; i++) d[i] = values_below(3) ? about : regimes_between(1, 2 * about);
        return (ks_axes){.count = 2, .axis = {0, 2}};
    }
    shape->rank = regime == 3 ? 3 : 2;
    if (regime == 1) {
        d[0] = regimes_between(1, large ? 3000 : 300);
        d[1] = regimes_between(1, 70);
    } else if (regime == 2) {
        d[0] = regimes_between(60, 500);
        d[1] = large ? regimes_between(1000, 4000) : regimes_between(20, 300);
    } else if (regime == 3) {
        d[0] = regimes_between(1, 3);
        d[1] = regimes_between(200, large ? 9000 : 900);
        d[2] = values_below(3) ? 8 * regimes_between(1, 20) : regimes_between(2, 90);
    } else {
        d[0] = regimes_between(4000, large ? 70000 : 6000);
        d[1] = 1 << regimes_between(1, 4);
    }
    const int axis = regime == 1 || regime == 4 ? values_below(2) : regime == 3;
    return (ks_axes){.count = 1, .axis = {(int8_t)axis}};
}

#endif
