/* What every backend knows of norm: the places of its inputs and parameters, and a resolved one as rows. */
#ifndef KS_OPS_NORM_H
#define KS_OPS_NORM_H

#include "kernserve/op.h"
#include "ops/numbers/unary.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_NORM_X, KS_NORM_WEIGHT, KS_NORM_BIAS, KS_NORM_RESIDUAL, KS_NORM_PRE_BIAS, KS_NORM_INPUTS };
enum {
    KS_NORM_KIND,
    KS_NORM_AXIS,
    KS_NORM_GROUPS,
    KS_NORM_EPS,
    KS_NORM_ACTIVATION,
    KS_NORM_SUM_OUT,
    KS_NORM_OUT_DATATYPE,
    KS_NORM_PARAMS
};
typedef enum ks_norm_kind { KS_NORM_LAYER, KS_NORM_RMS, KS_NORM_L2, KS_NORM_GROUP } ks_norm_kind;

/* `rows` runs of `length` elements, each normalised by itself. Element i of row r has weight and bias number
 * r % groups * channels + i / inner, and pre_bias number (r * length + i) % last. */
typedef struct ks_norm_shape {
    int64_t rows, length;
    int64_t groups, channels, inner; /* but for group: 1, length, 1 */
    int64_t last;
    bool centred;  /* layer, group: the mean is taken off */
    bool averaged; /* all but l2: the sum of squares is divided by length, and eps added; l2: eps is the least norm */
    double eps;
    ks_activation activation;
} ks_norm_shape;

/* The spec is resolved. */
ks_norm_shape ks_norm_shape_of(const ks_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
