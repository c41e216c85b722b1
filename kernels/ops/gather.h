/* What every backend knows of gather: the places of its inputs and parameters, and a resolved one as slices. */
#ifndef KS_OPS_GATHER_H
#define KS_OPS_GATHER_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_GATHER_TABLE, KS_GATHER_INDICES, KS_GATHER_OFFSETS, KS_GATHER_WEIGHTS, KS_GATHER_INPUTS };
enum { KS_GATHER_AXIS, KS_GATHER_KIND, KS_GATHER_MODE, KS_GATHER_OP, KS_GATHER_PARAMS };
typedef enum ks_gather_kind { KS_GATHER_SLICES, KS_GATHER_ELEMENTS } ks_gather_kind;
typedef enum ks_gather_mode { KS_GATHER_ERROR, KS_GATHER_WRAP, KS_GATHER_CLIP } ks_gather_mode;
typedef enum ks_gather_op { KS_GATHER_SUM, KS_GATHER_MEAN, KS_GATHER_MAX } ks_gather_op;

/* The table is `outer` parts of `extent` slices of `inner` elements.
 *   slices    part o, slice i of OUTPUT0 is the table's part o, slice indices[i]; there are `count` indices
 *   elements  part o, slice i, element j is the table's part o, slice indices[o][i][j], element j; a part has `count` slices
 *   bags      slice b is what `op` makes of slices indices[offsets[b]] .. indices[offsets[b + 1] - 1], each times its weight */
typedef struct ks_gather_shape {
    int64_t outer, extent, inner, count;
    int64_t bags; /* -1: there are no offsets */
    size_t slice_bytes;
    ks_gather_kind kind;
    ks_gather_mode mode;
    ks_gather_op op;
} ks_gather_shape;

/* The spec is resolved. */
ks_gather_shape ks_gather_shape_of(const ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
