#include "kernserve/op.h"

#include <string.h>

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
