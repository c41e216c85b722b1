#include "kernserve/op.h"

#include <stdio.h>
#include <string.h>

const char *ks_output_name(int output)
{
    static const char *const names[KS_OP_OUTPUTS_MAX] = {"OUTPUT0", "OUTPUT1", "OUTPUT2", "OUTPUT3"};
    return names[output];
}

const char *ks_op_output(const ks_op *op, int output)
{
    return op->outputs ? op->outputs[output] : ks_output_name(output);
}

uint16_t ks_op_required(const ks_op *op)
{
    unsigned required = 0;
    for (int i = 0; i < op->inputs_count; i++) required |= (unsigned)!op->inputs[i].optional << i;
    return (uint16_t)required;
}

int ks_op_input(const ks_op *op, const char *name, size_t length)
{
    for (int i = 0; i < op->inputs_count; i++)
        if (strlen(op->inputs[i].name) == length && memcmp(op->inputs[i].name, name, length) == 0) return i;
    return -1;
}

uint32_t ks_op_dtypes(const ks_op *op, int input)
{
    return op->inputs[input].dtypes ? op->inputs[input].dtypes : op->inputs[0].dtypes;
}

void ks_params_init(const ks_op *op, ks_value *params, ks_integers *lists)
{
    for (int i = 0; i < op->params_count; i++) params[i] = op->params[i].preset;
    for (int i = 0; i < op->lists_count; i++) lists[i].count = -1;
}

void ks_params_copy(const ks_op *op, ks_value *params, ks_integers *lists, const ks_value *from,
                    const ks_integers *from_lists)
{
    memcpy(params, from, (size_t)op->params_count * sizeof *params);
    if (op->lists_count) memcpy(lists, from_lists, (size_t)op->lists_count * sizeof *lists);
}

void ks_spec_init(ks_spec *spec, const ks_op *op)
{
    memset(spec, 0, offsetof(ks_spec, params));
    memset(spec->in, 0, (size_t)op->inputs_count * sizeof *spec->in);
    spec->op = op;
    spec->given = ks_op_required(op);
    ks_params_init(op, spec->params, spec->lists);
}

/* Returns where the next one goes. */
static size_t lay_out(ks_tensor *tensors, unsigned set, size_t at)
{
    for (; set; set &= set - 1) {
        ks_tensor *tensor = &tensors[__builtin_ctz(set)];
        tensor->offset = at;
        at = ks_align(at + tensor->size_bytes);
    }
    return at;
}

unsigned ks_spec_fixed(const ks_spec *spec)
{
    unsigned fixed = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        fixed |= (unsigned)(spec->in[i].fixed != NULL) << i;
    return fixed;
}

size_t ks_spec_layout(ks_spec *spec)
{
    unsigned small = 0;
    if (spec->given == 1 && spec->outputs == 1) { /* most requests */
        spec->in[0].offset = spec->out[0].offset = 0;
        return spec->in[0].fixed ? 0 : ks_align(spec->in[0].size_bytes);
    }
    const unsigned fixed = ks_spec_fixed(spec);
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        small |= (unsigned)spec->op->inputs[i].small << i;
    lay_out(spec->out, (1u << spec->outputs) - 1, 0);
    return lay_out(spec->in, spec->given & ~small & ~fixed, lay_out(spec->in, small & ~fixed, 0));
}

size_t ks_spec_unfix(ks_spec *spec)
{
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        spec->in[i].fixed = NULL;
        spec->in[i].pitch = 0;
    }
    return ks_spec_layout(spec);
}

static size_t end_of(const ks_tensor *tensor, size_t bytes)
{
    const size_t end = tensor->offset + tensor->size_bytes;
    return end > bytes ? end : bytes;
}

size_t ks_spec_in_bytes(const ks_spec *spec)
{
    size_t bytes = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        if (!spec->in[i].fixed) bytes = end_of(&spec->in[i], bytes);
    return bytes;
}

size_t ks_spec_out_bytes(const ks_spec *spec)
{
    size_t bytes = 0;
    for (int i = 0; i < spec->outputs; i++) bytes = end_of(&spec->out[i], bytes);
    return bytes;
}

size_t ks_spec_read_bytes(const ks_spec *spec)
{
    size_t bytes = 0;
    if (spec->op->read_bytes) return spec->op->read_bytes(spec);
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) bytes += spec->in[i].size_bytes;
    return bytes;
}

size_t ks_spec_written_bytes(const ks_spec *spec)
{
    size_t bytes = 0;
    for (int i = 0; i < spec->outputs; i++) bytes += spec->out[i].size_bytes;
    return bytes;
}

/* Bytes, not assignment: equal work must have equal bytes, padding too. */
void ks_spec_copy(ks_spec *to, const ks_spec *from)
{
    memcpy(to, from, offsetof(ks_spec, params));
    ks_params_copy(from->op, to->params, to->lists, from->params, from->lists);
    for (int i = ks_next_input(from, -1); i >= 0; i = ks_next_input(from, i))
        memcpy(&to->in[i], &from->in[i], sizeof to->in[i]);
    memcpy(to->out, from->out, from->outputs * sizeof *to->out);
}

/* Field by field: to call memcmp for so few bytes takes longer. */
static bool same_input(const ks_tensor *a, const ks_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank || a->offset != b->offset || a->fixed != b->fixed ||
        a->pitch != b->pitch)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

static bool same_lists(const ks_spec *a, const ks_spec *b)
{
    for (int i = 0; i < a->op->lists_count; i++) {
        const ks_integers *x = &a->lists[i], *y = &b->lists[i];
        if (x->count != y->count) return false;
        for (int at = 0; at < x->count; at++)
            if (x->value[at] != y->value[at]) return false;
    }
    return true;
}

bool ks_spec_same(const ks_spec *a, const ks_spec *b)
{
    if (a->op != b->op || a->given != b->given || a->outputs != b->outputs) return false;
    for (int i = 0; i < a->op->params_count; i++) {
        const uint64_t *x = a->params[i].bits, *y = b->params[i].bits;
        if (x[0] != y[0] || x[1] != y[1]) return false;
    }
    if (!same_lists(a, b)) return false;
    for (int i = ks_next_input(a, -1); i >= 0; i = ks_next_input(a, i))
        if (!same_input(&a->in[i], &b->in[i])) return false;
    for (int i = 0; i < a->outputs; i++)
        if (a->out[i].offset != b->out[i].offset) return false;
    return true;
}

void ks_spec_text(const ks_spec *spec, char out[KS_SPEC_TEXT_MAX])
{
    char dims[KS_RANK_MAX * 21];
    const size_t most = KS_SPEC_TEXT_MAX;
    size_t length = (size_t)snprintf(out, most, "%s %s", spec->op->name, ks_dtype_name(spec->in[0].dtype));
    for (int i = ks_next_input(spec, -1); i >= 0 && length < most; i = ks_next_input(spec, i)) {
        ks_dims_text(&spec->in[i], dims, sizeof dims);
        length += (size_t)snprintf(out + length, most - length, " [%s]", dims);
    }
}
