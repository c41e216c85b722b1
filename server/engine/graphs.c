/* Graphs of plans: which are missing, and making them when nothing else is to be done.
 *
 * A launch that found no graph sets a bit in plan->wanted for its lane and bucket; a turn's end makes at most one of
 * them. A plan that cannot be captured goes on as plain launches and is tried again after RETRY_NS. */
#include "engine/engine_core.h"
#include "engine/plan_catalog.h"
#include "kernserve/chain.h"

#include <assert.h>

/* What a graph costs the plan cache. The driver does not tell; one to three nodes with their parameters, instantiated
 * and uploaded, are some kilobytes on either side. */
enum { GRAPH_BYTES = 16384, STEP_BYTES = 8192 }; /* of a graph, and of each step of a chain's */

/* How many plans one search looks at. What was missed lately is among the newest; an older one is found again when it
 * is used. */
enum { SEARCH_MAX = 64 };

static const int64_t RETRY_NS = 60 * (int64_t)1000000000;

static int64_t graph_bytes(const ks_plan *plan)
{
    return GRAPH_BYTES + (plan->program ? (int64_t)STEP_BYTES * plan->program->count : 0);
}

static void unwant(ks_engine *engine, ks_plan *plan, int lane, uint32_t bits)
{
    engine->wants -= __builtin_popcount(plan->wanted[lane] & bits);
    plan->wanted[lane] &= ~bits;
}

void ks_graphs_launched(ks_engine *engine, int lane, int64_t now_ns)
{
    const ks_batch *batch = &engine->lane[lane].batch;
    ks_counter_add(KS_COUNTER(engine, launches), 1);
    if (batch->graph == KS_GRAPH_HIT) {
        ks_counter_add(KS_COUNTER(engine, graph_hits), 1);
        ks_counter_add(KS_COUNTER(engine, graph_launches), 1);
        return;
    }
    if (batch->graph != KS_GRAPH_MISS) return;
    ks_counter_add(KS_COUNTER(engine, graph_misses), 1);
    ks_plan *plan = batch->plan;
    if (plan->uncapturable && now_ns >= plan->uncapturable_until_ns) plan->uncapturable = false;
    const uint32_t bit = 1u << ks_batch_bucket(batch);
    if (!plan->graphs || plan->uncapturable || (plan->wanted[lane] & bit)) return;
    plan->wanted[lane] |= bit;
    engine->wants++;
}

static void forget(ks_engine *engine, ks_plan *plan)
{
    for (int i = 0; i < engine->lanes; i++) {
        unwant(engine, plan, i, UINT32_MAX);
        engine->backend->forget(engine->lane[i].lane, plan);
    }
}

void ks_graphs_forget(void *context, ks_plan *plan)
{
    ks_engine *engine = context;
    forget(engine, plan);
    if (engine->options.catalog) ks_catalog_take(engine->options.catalog, plan);
}

void ks_graphs_drop(ks_engine *engine, ks_plan *plan)
{
    int graphs = 0;
    for (int i = 0; i < engine->lanes; i++) graphs += __builtin_popcount(plan->captured[i]);
    forget(engine, plan);
    ks_plans_charge(engine->plans, plan, -graph_bytes(plan) * graphs);
    ks_engine_count_plans(engine);
}

static void give_up(ks_engine *engine, ks_plan *plan, const ks_error *error)
{
    plan->uncapturable = true;
    plan->uncapturable_until_ns = ks_now_ns() + RETRY_NS;
    for (int i = 0; i < engine->lanes; i++) unwant(engine, plan, i, UINT32_MAX);
    ks_counter_add(KS_COUNTER(engine, graph_fallbacks), 1);
    if (engine->backend->failed(engine->device)) ks_engine_lose(engine, error);
}

bool ks_graphs_make(ks_engine *engine, ks_plan *plan, int lane, int bucket)
{
    assert(!engine->lane[lane].busy);
    unwant(engine, plan, lane, 1u << bucket);
    if (plan->captured[lane] & (1u << bucket)) return true;
    ks_error error = {.status = KS_OK};
    const int64_t start_ns = ks_now_ns();
    const ks_status status = engine->backend->capture(engine->lane[lane].lane, plan, bucket, &error);
    if (status != KS_OK) {
        error.status = status;
        ks_engine_count_error(engine, status);
        give_up(engine, plan, &error);
        return false;
    }
    const int64_t took_ns = ks_now_ns() - start_ns;
    ks_counter_add(KS_COUNTER(engine, captures), 1);
    ks_counter_add(KS_COUNTER(engine, capture_ns), (uint64_t)took_ns);
    ks_counter_add(KS_COUNTER(engine, capture_bucket) + ks_metrics_bucket(took_ns), 1);
    ks_plans_charge(engine->plans, plan, graph_bytes(plan));
    ks_engine_count_plans(engine);
    return true;
}

bool ks_engine_capture(ks_engine *engine)
{
    if (engine->wants == 0 || engine->lost || engine->queue.count || engine->done) return false;
    ks_plan *plan = ks_plans_newest(engine->plans);
    for (int seen = 0; plan && seen < SEARCH_MAX; seen++, plan = plan->older) {
        for (int i = 0; i < engine->lanes; i++) {
            if (engine->lane[i].busy || !plan->wanted[i]) continue;
            return ks_graphs_make(engine, plan, i, __builtin_ctz(plan->wanted[i]));
        }
    }
    return false;
}
