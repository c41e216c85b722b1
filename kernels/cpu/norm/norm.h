/* What the files of norm share: norm.c finds operands, floats.c computes FP32, FP16 and BF16, double.c FP64. */
#ifndef KS_CPU_NORM_H
#define KS_CPU_NORM_H

#include "ops/norm.h"

/* A vector of the spec and what its numbers are; data NULL: there is none. */
typedef struct ks_norm_operand {
    const void *data;
    ks_dtype dtype;
} ks_norm_operand;

/* One norm as its inner functions see it. Places are counted in elements. */
typedef struct ks_norm_task {
    ks_norm_shape shape;
    ks_norm_operand in[KS_NORM_INPUTS];
    void *out, *sum; /* sum NULL: not asked for */
    ks_dtype out_dtype;
} ks_norm_task;

/* The place of weight and bias, and of pre_bias, of element i of a row. */
static inline int64_t ks_norm_weight_at(const ks_norm_shape *s, int64_t row, int64_t i)
{
    return row % s->groups * s->channels + (s->inner == 1 ? i : i / s->inner);
}

static inline int64_t ks_norm_pre_bias_at(const ks_norm_shape *s, int64_t row, int64_t i)
{
    return (row * s->length + i) % s->last;
}

void ks_norm_floats(const ks_norm_task *task, void *scratch);
void ks_norm_double(const ks_norm_task *task);
size_t ks_norm_floats_scratch(const ks_norm_shape *shape);

#endif
