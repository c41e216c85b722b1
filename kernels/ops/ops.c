#include "kernserve/op.h"
#include "kernserve/backend.h"

#include <string.h>

#define OP(name) extern const ks_op ks_op_##name;
#include "ops/ops.def"
#undef OP

const ks_op *const ks_ops[] = {
#define OP(name) &ks_op_##name,
#include "ops/ops.def"
#undef OP
    NULL};

const ks_op *ks_op_find(const char *name, size_t length)
{
    for (const ks_op *const *op = ks_ops; *op; op++)
        if (strlen((*op)->name) == length && memcmp((*op)->name, name, length) == 0) return *op;
    return NULL;
}

int ks_bucket(int count)
{
    int bucket = 0;
    while ((1 << bucket) < count) bucket++;
    return bucket;
}

int ks_batch_bucket(const ks_batch *batch)
{
    return ks_bucket(batch->plan->join_rows ? batch->rows_sum : batch->count);
}

static size_t rows_bytes(const ks_tensor *tensor, int rows)
{
    return tensor->size_bytes / (size_t)tensor->dims[0] * (size_t)rows;
}

size_t ks_plan_job_in_at(const ks_plan *plan, int input, int rows)
{
    const ks_spec *spec = &plan->spec;
    size_t at = 0;
    for (int i = ks_next_input(spec, -1); i >= 0 && i < input; i = ks_next_input(spec, i))
        if (!spec->in[i].fixed) at = ks_align(at + rows_bytes(&spec->in[i], rows));
    return at;
}

size_t ks_plan_job_in(const ks_plan *plan, int rows)
{
    int last = 0;
    if (!plan->join_rows) return plan->in_bytes;
    for (int i = ks_next_input(&plan->spec, 0); i >= 0; i = ks_next_input(&plan->spec, i))
        if (!plan->spec.in[i].fixed) last = i;
    return ks_plan_job_in_at(plan, last, rows) + rows_bytes(&plan->spec.in[last], rows);
}

size_t ks_plan_job_out_at(const ks_plan *plan, int output, int rows)
{
    size_t at = 0;
    for (int i = 0; i < output; i++) at = ks_align(at + rows_bytes(&plan->spec.out[i], rows));
    return at;
}

size_t ks_plan_job_out(const ks_plan *plan, int rows)
{
    const int last = plan->spec.outputs - 1;
    if (!plan->join_rows) return plan->out_bytes;
    return ks_plan_job_out_at(plan, last, rows) + rows_bytes(&plan->spec.out[last], rows);
}

void ks_plan_copy(ks_plan *to, const ks_plan *from)
{
    memcpy(to, from, offsetof(ks_plan, spec));
    ks_spec_copy(&to->spec, &from->spec);
}

void ks_plan_spec_of(const ks_plan *plan, int rows, ks_spec *out)
{
    ks_spec_copy(out, &plan->spec);
    for (int i = ks_next_input(out, -1); i >= 0; i = ks_next_input(out, i)) {
        if (out->in[i].fixed) continue;
        out->in[i].size_bytes = rows_bytes(&plan->spec.in[i], rows);
        out->in[i].dims[0] = rows;
        out->in[i].offset = ks_plan_job_in_at(plan, i, rows);
    }
    for (int i = 0; i < out->outputs; i++) {
        out->out[i].size_bytes = rows_bytes(&plan->spec.out[i], rows);
        out->out[i].dims[0] = rows;
        out->out[i].offset = ks_plan_job_out_at(plan, i, rows);
    }
}
