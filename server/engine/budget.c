/* Bytes in flight of the whole daemon: one number that never passes its limit, and one of device memory that has no limit here.
 * Any thread, no lock. */
#include "engine/engine.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

struct ks_budget {
    uint64_t limit;
    _Atomic uint64_t used, lent;
};

ks_budget *ks_budget_open(uint64_t limit_bytes)
{
    ks_budget *budget = calloc(1, sizeof *budget);
    if (budget) budget->limit = limit_bytes;
    return budget;
}

void ks_budget_close(ks_budget **budget)
{
    free(*budget);
    *budget = NULL;
}

bool ks_budget_take(ks_budget *budget, uint64_t bytes)
{
    /* Only a number is shared, no memory is handed over by it: relaxed is enough. */
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    do {
        if (bytes > budget->limit - used) return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->used, &used, used + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

void ks_budget_give(ks_budget *budget, uint64_t bytes)
{
    const uint64_t used = atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
    assert(used >= bytes);
}

uint64_t ks_budget_used(const ks_budget *budget)
{
    return atomic_load_explicit(&((ks_budget *)budget)->used, memory_order_relaxed);
}

uint64_t ks_budget_limit(const ks_budget *budget)
{
    return budget->limit;
}

void ks_budget_lend(ks_budget *budget, int64_t bytes)
{
    atomic_fetch_add_explicit(&budget->lent, (uint64_t)bytes, memory_order_relaxed);
}

uint64_t ks_budget_lent(const ks_budget *budget)
{
    return atomic_load_explicit(&((ks_budget *)budget)->lent, memory_order_relaxed);
}
