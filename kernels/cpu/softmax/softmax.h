/* What the files of softmax share: softmax.c holds the rules, floats.c computes FP32, FP16 and BF16,
 * double.c FP64, masked.c selected elements of each. */
#ifndef KS_SOFTMAX_PARTS_H
#define KS_SOFTMAX_PARTS_H

#include "ops/softmax.h"

/* One softmax as its inner functions see it. */
typedef struct ks_softmax_rule {
    ks_dtype dtype;
    bool log;
    float half;        /* +0.5 or -0.5: half * x never overflows, and its maximum is the one of z */
    float twice_scale; /* 2 * |scale|: what half took away */
    float factor;      /* the same for a power of 2 */
    double scale;      /* |scale| */
} ks_softmax_rule;

/* in and out as `outer` times `length` times `inner` elements, row major, none of which is 0; the axis is `length`. */
typedef struct ks_softmax_shape {
    int64_t outer, length, inner;
} ks_softmax_shape;

void ks_softmax_floats(const ks_softmax_rule *rule, const ks_softmax_shape *shape, const void *in, void *out,
                       void *scratch);
void ks_softmax_double(const ks_softmax_rule *rule, const ks_softmax_shape *shape, const double *in, double *out,
                       void *scratch);
/* Of a spec that selects, or whose result has another datatype. */
void ks_softmax_masked(const ks_spec *spec, const ks_softmax_shape *shape, const void *const *in, void *out,
                       void *scratch);
size_t ks_softmax_floats_scratch(void);
size_t ks_softmax_double_scratch(void);
size_t ks_softmax_masked_scratch(void);

#endif
