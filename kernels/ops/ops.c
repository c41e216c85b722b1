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
