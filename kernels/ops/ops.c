#include "kernserve/op.h"
#include "kernserve/backend.h"

#include <string.h>

#define OP(name) extern const ks_op ks_op_##name;
#include "ops.def"
#undef OP

const ks_op *const ks_ops[] = {
#define OP(name) &ks_op_##name,
#include "ops.def"
#undef OP
    NULL};

const ks_op *ks_op_find(const char *name, size_t length)
{
    for (const ks_op *const *op = ks_ops; *op; op++)
        if (strlen((*op)->name) == length && memcmp((*op)->name, name, length) == 0) return *op;
    return NULL;
}

void ks_spec_init(ks_spec *spec, const ks_op *op)
{
    memset(spec, 0, sizeof *spec);
    spec->op = op;
    spec->inputs = op->inputs_least;
    for (int i = 0; i < op->params_count; i++) spec->params[i] = op->params[i].preset;
}

size_t ks_spec_layout(ks_spec *spec)
{
    size_t bytes = 0;
    for (int i = 0; i < spec->inputs; i++) {
        spec->in[i].offset = bytes;
        bytes = ks_align(bytes + spec->in[i].size_bytes);
    }
    return bytes;
}

int ks_bucket(int count)
{
    int bucket = 0;
    while ((1 << bucket) < count) bucket++;
    return bucket;
}
