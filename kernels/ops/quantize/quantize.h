/* What every backend knows of quantize and dequantize: the places of their parameters and inputs, a resolved one as a matrix, and the ends
 * of the datatypes of 8 bits. */
#ifndef KS_OPS_QUANTIZE_H
#define KS_OPS_QUANTIZE_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of both: what is read is INPUT0, the scales INPUT1. */
enum { KS_QUANTIZE_OUT_DATATYPE, KS_QUANTIZE_SCALE_PER, KS_QUANTIZE_PARAMS };
enum { KS_QUANTIZE_X, KS_QUANTIZE_SCALE, KS_QUANTIZE_INPUTS };

typedef enum ks_scale_per { KS_SCALE_TENSOR, KS_SCALE_ROW, KS_SCALE_COLUMN } ks_scale_per;

/* Element i of row r lies at r * columns + i; the scales are one, one for each row, or one for each column. */
typedef struct ks_quantize_shape {
    int64_t rows, columns, scales;
    ks_scale_per per;
    bool given; /* the scales are INPUT1 */
    ks_dtype from, to;
} ks_quantize_shape;

/* The spec is resolved. */
ks_quantize_shape ks_quantize_shape_of(const ks_spec *spec);

/* The largest value: 127, 448, 57344. */
static inline float ks_quantize_most(ks_dtype dtype)
{
    return dtype == KS_INT8 ? 127.0f : dtype == KS_FP8E4M3 ? 448.0f : 57344.0f;
}

#ifdef __cplusplus
}
#endif
#endif
