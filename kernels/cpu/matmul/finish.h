/* Bias, activation and residual of an FP32 product that has none yet. */
#ifndef KS_CPU_MATMUL_FINISH_H
#define KS_CPU_MATMUL_FINISH_H
#include "ops/matmul.h"

/* bias, residual: NULL where the shape has none. out: all of the product, which changes in its place. */
void ks_matmul_finish(const ks_matmul_shape *shape, const float *bias, const float *residual, float *out);
#endif
