/* What every backend knows of scan: the places of its parameters, its operations, and a resolved one as chains. */
#ifndef KS_OPS_SCAN_H
#define KS_OPS_SCAN_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_SCAN_OP, KS_SCAN_AXIS, KS_SCAN_EXCLUSIVE, KS_SCAN_REVERSE, KS_SCAN_PARAMS };
typedef enum ks_scan_op {
    KS_SCAN_SUM,
    KS_SCAN_PROD,
    KS_SCAN_MAX,
    KS_SCAN_MIN,
    KS_SCAN_LOGSUMEXP,
    KS_SCAN_OPS
} ks_scan_op;

/* `outer` times `inner` chains of `length` elements: element i of chain (o, c) lies at place (o * length + i) * inner + c, of INPUT0 and of
 * OUTPUT0. */
typedef struct ks_scan_shape {
    int64_t outer, length, inner;
    ks_scan_op op;
    bool exclusive, reverse;
    ks_dtype dtype, out_dtype;
} ks_scan_shape;

/* The spec is resolved. */
ks_scan_shape ks_scan_shape_of(const ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
