/* The reference of each op on the CPU: what the CPU backend runs, and what every other backend's values are checked with. */
#ifndef KS_CPU_REFERENCE_H
#define KS_CPU_REFERENCE_H

#include "kernserve/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Exact enough to test against (FP64 accumulators), vectorisable, one thread, no allocation beyond scratch_bytes. in[i],
 * out[i]: addresses of the tensors themselves, NULL where one is not there. Never fails on a resolved spec. */
typedef void ks_cpu_fn(const ks_spec *spec, const void *const *in, void *const *out, void *scratch);

/* ks_NAME_cpu, in cpu/NAME/NAME.c */
typedef struct ks_cpu_op {
    ks_cpu_fn *reference;
    size_t (*scratch_bytes)(const ks_spec *spec); /* NULL: none */
    /* Of a spec that joins: of at most so many rows a call, each has the bits that it has alone. NULL, 0: of none. */
    int (*join_rows)(const ks_spec *spec);
} ks_cpu_op;

const ks_cpu_op *ks_cpu_op_of(const ks_op *op);
/* Tests have ops of their own, which ops.def does not name: from now on, or in the place of an earlier one, cpu is op's. Both stay
 * valid; no work runs meanwhile. */
void ks_cpu_add_op(const ks_op *op, const ks_cpu_op *cpu);
size_t ks_cpu_scratch_bytes(const ks_spec *spec);
/* scratch: of ks_cpu_scratch_bytes, aligned to KS_ALIGNMENT or not */
void ks_cpu_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
