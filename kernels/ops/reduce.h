/* What every backend knows of reduce: the places of its parameters, its operations, its datatypes, and the walk, which turns
 * any set of axes into rows of one axis. */
#ifndef KS_REDUCE_PARTS_H
#define KS_REDUCE_PARTS_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_REDUCE_X, KS_REDUCE_SEGMENTS, KS_REDUCE_INPUTS };
enum { OP, AXIS, KEEPDIMS, DDOF, POWER, KS_REDUCE_PARAMS };
/* The values of `op`, and behind them what backends compute for some of its norms. */
enum {
    SUM,
    MEAN,
    MAX,
    MIN,
    PROD,
    ARGMAX,
    ARGMIN,
    L2NORM,
    LOGSUMEXP,
    VAR,
    STD,
    SUMSQ,
    L1NORM,
    LOGSUM,
    NORM,
    ANY,
    ALL,
    COUNT_NONZERO,
    OPS,
    NORM_ZERO = OPS, /* p = 0: how many are not zero, as a number */
    NORM_MOST,       /* p = inf: the largest |x| */
    NORM_LEAST,      /* p = -inf: the smallest */
    FUNCTIONS
};
enum {
    FLOATS = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64),
    INTEGERS = KS_DTYPE_BIT(KS_INT8) | KS_DTYPE_BIT(KS_INT16) | KS_DTYPE_BIT(KS_INT32) | KS_DTYPE_BIT(KS_INT64) |
               KS_DTYPE_BIT(KS_UINT8) | KS_DTYPE_BIT(KS_UINT16) | KS_DTYPE_BIT(KS_UINT32) | KS_DTYPE_BIT(KS_UINT64)
};

/* What a resolved spec asks for: an op, or a norm of a p that has arithmetic of its own. The sum of BOOL is a count. */
int ks_reduce_function(const ks_spec *spec);

/* Whether the op has no value for nothing: max, mean and others. */
bool ks_reduce_needs_elements(const ks_spec *spec);

/* --- segments --- */

/* The one reduced axis is cut at offsets: of each of `outer` parts there are `count` segments of lines of `inner` elements, where segment s is
 * lines offsets[s] to offsets[s + 1] - 1 of `extent`. An empty segment where the op needs elements is a bad value at count + 1 + s. */
typedef struct ks_segments {
    int64_t outer, extent, inner, count;
} ks_segments;

static inline bool ks_reduce_has_segments(const ks_spec *spec)
{
    return ks_has_input(spec, KS_REDUCE_SEGMENTS);
}
/* Of a resolved spec that has them. */
ks_segments ks_reduce_segments_of(const ks_spec *spec);

/* --- the walk --- */

typedef struct ks_dimension {
    int64_t extent, stride;
} ks_dimension;

typedef struct ks_dimensions {
    int count;
    ks_dimension at[KS_RANK_MAX];
} ks_dimensions;

/* A reduction, merged: for every combination of `kept`, and for `lanes` results side by side, `depth` elements at each
 * combination of `rest`. Where the tensor has more than one element, lanes or depth has the stride 1. */
typedef struct ks_walk {
    ks_dimensions kept, rest;
    ks_dimension lanes, depth;
} ks_walk;

/* Bit i: axis i is reduced. The spec is resolved. */
unsigned ks_reduce_axes(const ks_spec *spec);
/* Contiguous lines of `short_row` or more are no lanes: they are worked on one after the other. */
ks_walk ks_walk_plan(const ks_spec *spec, int64_t short_row);
/* How many combinations there are, and the offset of the n-th, in elements. */
int64_t ks_walk_combinations(const ks_dimensions *list);
int64_t ks_walk_offset(const ks_dimensions *list, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
