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

size_t ks_plan_job_in(const ks_plan *plan, int rows)
{
    return plan->join_rows ? plan->in_bytes / (size_t)plan->join_rows * (size_t)rows : plan->in_bytes;
}

size_t ks_plan_job_out(const ks_plan *plan, int rows)
{
    return plan->join_rows ? plan->out_bytes / (size_t)plan->join_rows * (size_t)rows : plan->out_bytes;
}
