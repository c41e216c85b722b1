/* What reduce.cu launches, and what plan.cu chooses. */
#ifndef KS_REDUCE_PLAN_H
#define KS_REDUCE_PLAN_H
#include "cuda/op.h"
#include "cuda/reduce/shape.cuh"

/* The arguments of a kernel, from a choice. */
reduce_shape reduce_shape_of(const ks_spec *spec, const reduce_algorithm *c);
/* ks_cuda_plan_fn */
ks_status reduce_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
#endif
