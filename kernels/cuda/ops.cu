#include "cuda/op.h"

#define OP(name) extern const ks_cuda_op ks_##name##_cuda;
#include "ops/ops.def"
#undef OP

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
    return NULL;
}
