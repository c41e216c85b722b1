/* A shard's plans: a hash table over the bytes of specs and a list from the newest to the least recently used.
 *
 * Limits   a byte budget over plans and the graphs charged to them, and a number of plans. A plan in use is never evicted,
 *          so the cache can be past its limits by what is in use, and comes back with the next plan made or charged.
 * Threads  the shard's own. */
#include "engine/plan.h"
#include "base/clock.h"
#include "kernserve/chain.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* What the cache knows of a plan beyond its public part, which comes last, as its length differs. */
typedef struct node {
    uint64_t hash;
    uint64_t bytes; /* its own size and what was charged */
    ks_plan plan;
} node;

enum { MALLOC_BYTES = 16 }; /* that the allocator takes for one piece of memory, with what it rounds up, in the mean */

struct ks_plans {
    uint64_t seed;
    uint64_t max_bytes, max_count, bytes, count, evictions, last_id;
    ks_plan_forget_fn *forget;
    void *context;
    ks_plan *newest, *oldest;
    size_t mask;
    ks_plan *chains[];
};

static node *node_of(ks_plan *plan)
{
    return (node *)((char *)plan - offsetof(node, plan));
}

/* Of a plan's memory: its spec has room for 32 tensors, most have two or three. */
static size_t size_of(const ks_spec *spec)
{
    return offsetof(node, plan.spec.out) + spec->outputs * sizeof *spec->out;
}

/* That a plan is charged from the start. */
static uint64_t own_bytes(const ks_spec *spec)
{
    return size_of(spec) + MALLOC_BYTES;
}

static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    const unsigned __int128 product = (unsigned __int128)(hash ^ word) * 0x9E3779B97F4A7C15u;
    return (uint64_t)product ^ (uint64_t)(product >> 64) ^ 0xD6E8FEB86659FD93u;
}

/* Multiply and fold, eight bytes at a time, what is in use. Clients choose the bytes: the seed keeps them from filling one
 * chain on purpose. */
static uint64_t hash_spec(const ks_plans *plans, const ks_spec *spec)
{
    uint64_t hash = hash_word(plans->seed, (uint64_t)(uintptr_t)spec->op ^ (uint64_t)spec->given << 48);
    for (int i = 0; i < spec->op->params_count; i++) {
        const ks_value *value = &spec->params[i];
        hash = hash_word(hash_word(hash, value->bits[0]), value->bits[1]);
    }
    for (int i = 0; i < spec->op->lists_count; i++) {
        const ks_integers *list = &spec->lists[i];
        hash = hash_word(hash, (uint64_t)list->count);
        for (int at = 0; at < list->count; at++) hash = hash_word(hash, (uint64_t)list->value[at]);
    }
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        const ks_tensor *in = &spec->in[i];
        hash = hash_word(hash_word(hash, (uint64_t)in->dtype << 32 | (uint64_t)in->rank),
                         in->fixed ? (uint64_t)(uintptr_t)in->fixed : in->offset);
        for (int d = 0; d < in->rank; d++) hash = hash_word(hash, (uint64_t)in->dims[d]);
    }
    return hash;
}

ks_status ks_plans_open(size_t max_bytes, size_t max_count, ks_plan_forget_fn *forget, void *context, ks_plans **out,
                        ks_error *error)
{
    size_t chains = 64;
    while (chains < 65536 && chains < max_bytes / offsetof(node, plan.spec.out) && (!max_count || chains < max_count))
        chains *= 2;
    ks_plans *plans = calloc(1, sizeof *plans + chains * sizeof *plans->chains);
    if (!plans) return ks_fail(error, KS_MEMORY, "no memory for a plan cache of %zu chains", chains);
    if (getrandom(&plans->seed, sizeof plans->seed, GRND_NONBLOCK) < 0) plans->seed = (uintptr_t)plans;
    plans->max_bytes = max_bytes;
    plans->max_count = max_count ? max_count : SIZE_MAX;
    plans->forget = forget;
    plans->context = context;
    plans->mask = chains - 1;
    *out = plans;
    return KS_OK;
}

static void list_remove(ks_plans *plans, ks_plan *plan)
{
    *(plan->newer ? &plan->newer->older : &plans->newest) = plan->older;
    *(plan->older ? &plan->older->newer : &plans->oldest) = plan->newer;
    plan->newer = plan->older = NULL;
}

static void list_push(ks_plans *plans, ks_plan *plan)
{
    plan->newer = NULL;
    plan->older = plans->newest;
    *(plans->newest ? &plans->newest->newer : &plans->oldest) = plan;
    plans->newest = plan;
}

/* Takes the plan out of everything and frees it; its graphs are gone already. */
static void destroy(ks_plans *plans, ks_plan *plan)
{
    ks_plan **link = &plans->chains[node_of(plan)->hash & plans->mask];
    while (*link != plan) link = &(*link)->chain;
    *link = plan->chain;
    list_remove(plans, plan);
    plans->bytes -= node_of(plan)->bytes;
    plans->count--;
    ks_program_free(&plan->program);
    free(node_of(plan));
}

static bool is_past_limits(const ks_plans *plans)
{
    return plans->bytes > plans->max_bytes || plans->count > plans->max_count;
}

static void evict(ks_plans *plans, const ks_plan *keep)
{
    ks_plan *plan = plans->oldest;
    while (plan && is_past_limits(plans)) {
        ks_plan *newer = plan->newer;
        if (plan->users == 0 && plan != keep) {
            plans->forget(plans->context, plan);
            plans->evictions++;
            destroy(plans, plan);
        }
        plan = newer;
    }
}

int ks_plans_forget_op(ks_plans *plans, const ks_op *op)
{
    int left = 0;
    for (ks_plan *plan = plans->oldest, *newer; plan; plan = newer) {
        newer = plan->newer;
        if (plan->spec.op != op) continue;
        left += plan->users > 0;
        if (plan->users > 0) continue;
        plans->forget(plans->context, plan);
        destroy(plans, plan);
    }
    return left;
}

void ks_plans_close(ks_plans **plans)
{
    ks_plans *closing = *plans;
    if (!closing) return;
    *plans = NULL;
    while (closing->oldest) {
        closing->forget(closing->context, closing->oldest);
        destroy(closing, closing->oldest);
    }
    free(closing);
}

ks_plan *ks_plans_peek(ks_plans *plans, const ks_spec *spec)
{
    /* The same work again, most likely: to compare is a tenth of hashing. */
    if (plans->newest && ks_spec_same(&plans->newest->spec, spec)) return plans->newest;
    const uint64_t hash = hash_spec(plans, spec);
    for (ks_plan *plan = plans->chains[hash & plans->mask]; plan; plan = plan->chain)
        if (node_of(plan)->hash == hash && ks_spec_same(&plan->spec, spec)) return plan;
    return NULL;
}

ks_plan *ks_plans_find(ks_plans *plans, const ks_spec *spec)
{
    ks_plan *plan = ks_plans_peek(plans, spec);
    if (plan && plan != plans->newest) {
        list_remove(plans, plan);
        list_push(plans, plan);
    }
    return plan;
}

ks_status ks_plans_make(ks_plans *plans, const ks_spec *spec, ks_plan **out, ks_error *error)
{
    node *made = calloc(1, size_of(spec));
    if (!made) return ks_fail(error, KS_MEMORY, "no memory for a plan of %s", spec->op->name);
    ks_plan *plan = &made->plan;
    ks_spec_copy(&plan->spec, spec);
    plan->id = ++plans->last_id;
    plan->bytes = ks_spec_read_bytes(spec) + ks_spec_written_bytes(spec);
    plan->made_ns = ks_now_ns();
    made->hash = hash_spec(plans, spec);
    made->bytes = own_bytes(spec);
    ks_plan **chain = &plans->chains[made->hash & plans->mask];
    plan->chain = *chain;
    *chain = plan;
    list_push(plans, plan);
    plans->count++;
    plans->bytes += made->bytes;
    evict(plans, plan);
    *out = plan;
    return KS_OK;
}

void ks_plans_drop(ks_plans *plans, ks_plan **plan)
{
    ks_plan *dropped = *plan;
    *plan = NULL;
    assert(dropped->users == 0);
    destroy(plans, dropped);
}

void ks_plans_charge(ks_plans *plans, ks_plan *plan, int64_t bytes)
{
    node *charged = node_of(plan);
    assert(bytes >= 0 || charged->bytes - own_bytes(&plan->spec) >= (uint64_t)-bytes);
    charged->bytes += (uint64_t)bytes;
    plans->bytes += (uint64_t)bytes;
    evict(plans, plan);
}

ks_plan *ks_plans_newest(ks_plans *plans)
{
    return plans->newest;
}

uint64_t ks_plans_count(const ks_plans *plans)
{
    return plans->count;
}

uint64_t ks_plans_bytes(const ks_plans *plans)
{
    return plans->bytes;
}

uint64_t ks_plans_evictions(const ks_plans *plans)
{
    return plans->evictions;
}
