/* One shard's plans: found by spec, made on demand, least recently used goes past the limits (never one in use).
 * Owns the plans. The shard's thread only. */
#ifndef KS_PLAN_H
#define KS_PLAN_H
#include "kernserve/backend.h"

typedef struct ks_plans ks_plans;
/* forget is called for an evicted plan on every lane, before it is freed */
typedef void ks_plan_forget_fn(void *context, ks_plan *plan);

/* max_count 0: bytes alone limit them */
ks_status ks_plans_open(size_t max_bytes, size_t max_count, ks_plan_forget_fn *forget, void *context, ks_plans **out,
                        ks_error *error);
void ks_plans_close(ks_plans **plans);
/* NULL: not there. Marks it used. */
ks_plan *ks_plans_find(ks_plans *plans, const ks_spec *spec);
ks_plan *ks_plans_peek(ks_plans *plans, const ks_spec *spec); /* likewise; does not mark it */
/* A new plan for the spec with id and bytes set, everything else zero; in the cache from now on. KS_MEMORY. */
ks_status ks_plans_make(ks_plans *plans, const ks_spec *spec, ks_plan **out, ks_error *error);
void ks_plans_drop(ks_plans *plans, ks_plan **plan); /* prepare failed */
/* Plans of the op go, but for those in use; returns how many are. */
int ks_plans_forget_op(ks_plans *plans, const ks_op *op);
/* The plan takes more memory (or less: negative), as that of a graph: adds the bytes, then evicts while past the budget. */
void ks_plans_charge(ks_plans *plans, ks_plan *plan, int64_t bytes);
ks_plan *ks_plans_newest(ks_plans *plans); /* then ->older */
uint64_t ks_plans_count(const ks_plans *plans);
uint64_t ks_plans_bytes(const ks_plans *plans);
uint64_t ks_plans_evictions(const ks_plans *plans);
#endif
