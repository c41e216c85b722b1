/* What reduce.cu launches, and what plan.cu chooses. */
#ifndef KS_REDUCE_PLAN_H
#define KS_REDUCE_PLAN_H
#include "cuda/op.h"
#include "cuda/reduce/shape.cuh"

enum { STATE_BYTES = 16 }; /* the largest of all functors */

static inline int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t within(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* The least power of 2 that is not below n. */
static inline int64_t power_up(int64_t n)
{
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

/* The arguments of a kernel, from a choice. */
reduce_shape reduce_shape_of(const ks_spec *spec, const reduce_algorithm *c);
/* ks_cuda_plan_fn */
ks_status reduce_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
/* Of a spec that has segments (reduce.cu). */
ks_status reduce_plan_segments(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
void reduce_describe(const ks_spec *spec, const reduce_algorithm *c, ks_kernel_info *kernel_info);
#endif
