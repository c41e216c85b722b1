/* Some rows of a chain's step: its spec with fewer of the batch, and what has to be so that such a step may do the rows of several jobs.
 *
 * Interface ks_step_cut, ks_step_is_cut_well, ks_step_joins, ks_step_keeps_rows of kernserve/chain.h
 * Limits    steps of chains whose rows are apart (models/rows.c). */
#include <string.h>

#include "kernserve/chain.h"

extern const ks_op ks_op_gather, ks_op_map, ks_op_maps;

static void set_rows(ks_tensor *tensor, int rows)
{
    tensor->size_bytes = tensor->size_bytes / (size_t)tensor->dims[0] * (size_t)rows;
    tensor->dims[0] = rows;
}

void ks_step_cut(const ks_step *step, int rows, ks_spec *out)
{
    ks_spec_copy(out, &step->spec);
    for (int i = 0; i < KS_OP_INPUTS_MAX; i++)
        if (step->rows_in >> i & 1) set_rows(&out->in[i], rows);
    for (int i = 0; i < KS_OP_OUTPUTS_MAX; i++)
        if (step->rows_out >> i & 1) set_rows(&out->out[i], rows);
}

static bool is_shaped_alike(const ks_tensor *a, const ks_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->size_bytes == b->size_bytes &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

bool ks_step_is_cut_well(const ks_step *step)
{
    ks_spec one, asked;
    ks_error ignored;
    ks_step_cut(step, 1, &one);
    ks_spec_copy(&asked, &one);
    memset(asked.out, 0, sizeof asked.out);
    if (asked.op->resolve(&asked, &ignored) != KS_OK || asked.outputs != one.outputs || !ks_spec_same(&asked, &one))
        return false;
    for (int i = 0; i < one.outputs; i++)
        if (!is_shaped_alike(&asked.out[i], &one.out[i])) return false;
    return true;
}

bool ks_step_joins(const ks_step *step)
{
    const ks_spec *spec = &step->spec;
    const unsigned rows = 1u | (spec->given & spec->op->joins_with);
    return spec->op->joins && step->rows_in == rows && spec->in[0].rank == 2 && spec->outputs <= KS_JOIN_OUTPUTS &&
           spec->op->joins(spec);
}

/* An element of map's follows from its operands alone, and gather moves them. */
bool ks_step_keeps_rows(const ks_step *step)
{
    const ks_spec *spec = &step->spec;
    const ks_rows rows = spec->op->rows ? spec->op->rows(spec) : (ks_rows){0};
    if (spec->op == &ks_op_map || spec->op == &ks_op_maps || spec->op == &ks_op_gather) return true;
    return rows.dims >= 1 && step->rows_in & 1 && (step->rows_in & ~(rows.cut | 1)) == 0 &&
           (step->rows_out & ~rows.out) == 0;
}
