/* The two implementations of reduce on the CPU: floats.c for FP32, FP16 and BF16 (loops: folds.c), elements.c for everything
 * else (loads: load.c). */
#ifndef KS_CPU_REDUCE_H
#define KS_CPU_REDUCE_H

#include "ops/reduce.h"

/* in, out, scratch: as ks_cpu_fn has them; the output is not empty. */
void ks_reduce_lanes(const ks_spec *spec, const void *in, void *out, void *scratch);
/* false: not one of its datatypes or shapes, nothing was done. */
bool ks_reduce_floats(const ks_spec *spec, const void *in, void *out, void *scratch);
size_t ks_reduce_lanes_scratch(void);
size_t ks_reduce_floats_scratch(void);

/* One rounding from double to a floating-point datatype. */
void ks_reduce_store_reals(ks_dtype dtype, void *out, int64_t at, const double *values, int count);

#endif
