#include "cpu/reference.h"

#include <assert.h>

enum { ADDED_MAX = 8 };

#define OP(name) extern const ks_cpu_op ks_##name##_cpu;
#include "ops/ops.def"
#undef OP

extern const ks_op ks_op_maps; /* of chains alone */
extern const ks_cpu_op ks_maps_cpu;

static const ks_cpu_op *const references[] = {
#define OP(name) &ks_##name##_cpu,
#include "ops/ops.def"
#undef OP
};

static struct {
    const ks_op *op;
    const ks_cpu_op *cpu;
} added[ADDED_MAX];

void ks_cpu_add_op(const ks_op *op, const ks_cpu_op *cpu)
{
    int i = 0;
    while (i < ADDED_MAX && added[i].op && added[i].op != op) i++;
    assert(i < ADDED_MAX);
    if (added[i].op == op && added[i].cpu == cpu) return; /* lanes may be reading it */
    added[i].op = op;
    added[i].cpu = cpu;
}

const ks_cpu_op *ks_cpu_op_of(const ks_op *op)
{
    for (size_t i = 0; i < sizeof references / sizeof references[0]; i++)
        if (ks_ops[i] == op) return references[i];
    if (op == &ks_op_maps) return &ks_maps_cpu;
    int i = 0;
    while (i < ADDED_MAX && added[i].op != op) i++;
    assert(i < ADDED_MAX);
    return added[i].cpu;
}

size_t ks_cpu_scratch_bytes(const ks_spec *spec)
{
    const ks_cpu_op *op = ks_cpu_op_of(spec->op);
    return op->scratch_bytes ? op->scratch_bytes(spec) : 0;
}

void ks_cpu_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    ks_cpu_op_of(spec->op)->reference(spec, in, out, scratch);
}
