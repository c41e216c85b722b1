/* A resolved matmul as plain sizes and strides, in elements, for the versions that compute it: C[i][j] of matrix x is
 * activation(alpha * sum over l of A[a(x) + i * a_row + l * a_col] * B[b(x) + l * b_row + j * b_col] + bias[j]) + R[i][j];
 * C is packed, row major, and so is R, the residual. */
#ifndef KS_MATMUL_SHAPE_H
#define KS_MATMUL_SHAPE_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_MATMUL_BATCH_RANK = KS_RANK_MAX - 2 };
enum {
    KS_MATMUL_TRANSPOSE_A,
    KS_MATMUL_TRANSPOSE_B,
    KS_MATMUL_ALPHA,
    KS_MATMUL_ACTIVATION,
    KS_MATMUL_PRECISION,
    KS_MATMUL_OUT_DATATYPE,
    KS_MATMUL_PARAMS
};
enum {
    KS_MATMUL_A,
    KS_MATMUL_B,
    KS_MATMUL_BIAS,
    KS_MATMUL_SCALE_A,
    KS_MATMUL_SCALE_B,
    KS_MATMUL_RESIDUAL,
    KS_MATMUL_INPUTS
};
enum { KS_MATMUL_INT8_DEPTH = 131071 }; /* K, at most: no sum of INT8 products is beyond INT32 */

typedef enum ks_matmul_activation {
    KS_MATMUL_NONE,
    KS_MATMUL_RELU,
    KS_MATMUL_GELU,
    KS_MATMUL_SILU
} ks_matmul_activation;

typedef struct ks_matmul_shape {
    int64_t m, n, k;
    int64_t batch;                            /* matrices of the output */
    int batch_rank;                           /* dimensions of 1 dropped, neighbours merged where the strides allow */
    int64_t batch_dims[KS_MATMUL_BATCH_RANK]; /* outermost first */
    int64_t a_step[KS_MATMUL_BATCH_RANK], b_step[KS_MATMUL_BATCH_RANK]; /* 0 where broadcast */
    int64_t a_row, a_col, b_row, b_col;
    bool transpose_a, transpose_b;
    bool biased;   /* INPUT2: a value for each column of C */
    bool residual; /* INPUT5: a value for each element of C, added behind the activation */
    bool tf32;     /* FP32 products may be rounded to TF32 */
    ks_matmul_activation activation;
    double alpha;
    /* Of 8 bits: datatypes of the operands, which may differ, and the elements from one of their matrices to the next. */
    bool narrow;
    bool fast; /* FP8: by its own instruction, sums of 128 products with some 14 bits */
    ks_dtype a_dtype, b_dtype;
    int64_t a_matrix, b_matrix;
    bool a_scales,
        b_scales; /* INPUT3 has one for each row of all matrices of A, INPUT4 for each column of B; else one, or none */
} ks_matmul_shape;

/* spec must be resolved. A batch that only INPUT0 has, untransposed, is folded into m: one matrix, and INPUT1 is read
 * once. */
void ks_matmul_shape_of(const ks_spec *spec, ks_matmul_shape *out);

/* ks_op.pitch of every op that multiplies by rows that stay. */
int64_t ks_matmul_pitch(const ks_tensor *tensor);

/* Where the scales of a matrix begin whose operand lies at that offset. */
static inline int64_t ks_matmul_scales_at(bool each, int64_t offset, int64_t matrix, int64_t scales)
{
    return each && matrix > 0 ? offset / matrix * scales : 0;
}

/* NaN stays NaN. */
double ks_matmul_activate(ks_matmul_activation activation, double x);

/* Where matrix `index` of the output finds its operands, in elements. */
void ks_matmul_offsets(const ks_matmul_shape *shape, int64_t index, int64_t *a, int64_t *b);

#ifdef __cplusplus
}
#endif
#endif
