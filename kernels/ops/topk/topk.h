/* What every backend knows of topk: the places of its parameters, and a resolved one as rows. */
#ifndef KS_OPS_TOPK_H
#define KS_OPS_TOPK_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_TOPK_K, KS_TOPK_AXIS, KS_TOPK_LARGEST, KS_TOPK_SORTED, KS_TOPK_INDEX_DATATYPE, KS_TOPK_PARAMS };
enum { KS_TOPK_MOST = 2048 }; /* k */

/* `rows` runs of `length` elements. Element i of row r lies at place (r / inner * length + i) * inner + r % inner of INPUT0, and its
 * place number j at the same place of the outputs, with k for length. */
typedef struct ks_topk_shape {
    int64_t rows, length, inner;
    int k;
    bool largest;
    ks_dtype dtype, index_dtype;
} ks_topk_shape;

/* The spec is resolved. */
ks_topk_shape ks_topk_shape_of(const ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
