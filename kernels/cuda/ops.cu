#include "cuda/op.h"

#define OP(name) extern const ks_cuda_op ks_##name##_cuda;
#include "ops/ops.def"
#undef OP

extern const ks_op ks_op_maps; /* of chains alone */
extern const ks_cuda_op ks_maps_cuda;

thread_local ks_launch_note *ks_noting;

const ks_cuda_op *const ks_cuda_ops[] = {
#define OP(name) &ks_##name##_cuda,
#include "ops/ops.def"
#undef OP
    NULL};

const ks_cuda_op *ks_cuda_op_of(const ks_op *op)
{
    for (int i = 0; ks_cuda_ops[i]; i++)
        if (ks_ops[i] == op) return ks_cuda_ops[i];
    return op == &ks_op_maps ? &ks_maps_cuda : NULL;
}

const ks_spec *ks_cuda_place_fixed(const ks_spec *spec, ks_spec *placed, ks_job_sides *only)
{
    unsigned fixed = ks_spec_fixed(spec);
    if (!fixed) return spec;
    if (spec->given == 1) {
        only->in = (const unsigned char *)spec->in[0].fixed;
        return spec;
    }
    ks_spec_copy(placed, spec);
    for (; fixed; fixed &= fixed - 1) {
        ks_tensor *in = &placed->in[__builtin_ctz(fixed)];
        in->offset = (size_t)((uintptr_t)in->fixed - (uintptr_t)only->in);
    }
    return placed;
}
