/* Which plan a job gets: its spec's, or its family's where rows are joined; made where there is none.
 *
 * Interface  engine.h: ks_engine_plan, _look, _plan_release, _make_ready, _tune.
 * Threads    the shard's own. */
#include "engine/engine_core.h"
#include "engine/join.h"
#include "kernserve/chain.h"

#include <assert.h>
#include <string.h>

/* plan has its spec, and all else zero. */
static ks_status prepare(ks_engine *engine, ks_plan *plan, ks_error *error)
{
    const ks_spec *spec = &plan->spec;
    plan->in_bytes = ks_spec_in_bytes(spec);
    plan->out_bytes = ks_spec_out_bytes(spec);
    plan->batch_max = 1;
    ks_status status = spec->op->chain ? ks_program_make(spec, engine->backend->chains, &plan->program, error) : KS_OK;
    if (status == KS_OK) status = engine->backend->prepare(engine->device, plan, error);
    if (status != KS_OK) return status;
    if (plan->join_rows || plan->program) /* another algorithm would be another one's bits; steps are not tried apart */
        plan->untunable = true;
    else
        ks_tune_new_plan(engine, plan);
    assert(plan->batch_max >= 1 && plan->batch_max <= KS_BATCH_MAX);
    return KS_OK;
}

static ks_status make_plan(ks_engine *engine, const ks_spec *spec, int join_rows, ks_plan **out, ks_error *error)
{
    ks_plan *plan;
    ks_status status = ks_plans_make(engine->plans, spec, &plan, error);
    if (status != KS_OK) return status;
    plan->join_rows = join_rows;
    status = prepare(engine, plan, error);
    if (status != KS_OK)
        ks_plans_drop(engine->plans, &plan);
    else
        ks_books_plan(engine, plan, ks_engine_path(engine, plan));
    if (status == KS_OK && plan->program)
        ks_plans_charge(engine->plans, plan, (int64_t)ks_program_bytes(plan->program));
    ks_engine_count_plans(engine);
    *out = plan;
    return status;
}

/* NULL: the spec's rows are not joined, or the device does not join them. */
static ks_plan *family_plan(ks_engine *engine, const ks_spec *spec)
{
    ks_spec family;
    ks_error ignored;
    if (!ks_join_family(&engine->options, spec, &family)) return NULL;
    ks_plan *plan = ks_plans_find(engine->plans, &family);
    if (!plan && make_plan(engine, &family, (int)family.in[0].dims[0], &plan, &ignored) != KS_OK) return NULL;
    return plan->join_rows ? plan : NULL;
}

ks_status ks_engine_plan(ks_engine *engine, const ks_spec *spec, ks_plan **out, ks_error *error)
{
    ks_plan *plan = ks_join_may(&engine->options, spec) ? family_plan(engine, spec) : NULL;
    if (!plan) plan = ks_plans_find(engine->plans, spec);
    if (!plan) {
        const ks_status status = make_plan(engine, spec, 0, &plan, error);
        if (status != KS_OK) return status;
    }
    plan->users++;
    *out = plan;
    return KS_OK;
}

/* The plan of a spec as it is, or would be. join_rows: of a family's; 0: of none. */
static ks_status look(ks_engine *engine, const ks_spec *spec, int join_rows, ks_plan *out, ks_error *error)
{
    const ks_plan *plan = ks_plans_peek(engine->plans, spec);
    if (plan) {
        ks_plan_copy(out, plan);
        return plan->program ? ks_program_copy(plan->program, &out->program, error) : KS_OK;
    }
    memset(out, 0, sizeof *out);
    ks_spec_copy(&out->spec, spec);
    out->join_rows = join_rows;
    const ks_status status = prepare(engine, out, error);
    if (status != KS_OK) ks_program_free(&out->program);
    return status;
}

ks_status ks_engine_look(ks_engine *engine, const ks_spec *spec, ks_plan *out, ks_error *error)
{
    ks_spec family;
    if (ks_join_may(&engine->options, spec) && ks_join_family(&engine->options, spec, &family) &&
        look(engine, &family, (int)family.in[0].dims[0], out, error) == KS_OK) {
        if (out->join_rows) return KS_OK;
        ks_program_free(&out->program);
    }
    return look(engine, spec, 0, out, error);
}

int ks_engine_forget_op(ks_engine *engine, const ks_op *op)
{
    const int left = ks_plans_forget_op(engine->plans, op);
    ks_engine_count_plans(engine);
    return left;
}

void ks_engine_plan_release(ks_engine *engine, ks_plan **plan)
{
    (void)engine; /* what is past the budget goes when the next plan is made */
    assert((*plan)->users > 0);
    (*plan)->users--;
    *plan = NULL;
}

bool ks_engine_make_ready(ks_engine *engine, const ks_spec *spec)
{
    ks_plan *plan = NULL;
    ks_error ignored;
    bool ready = true;
    if (engine->lost || ks_engine_plan(engine, spec, &plan, &ignored) != KS_OK) return true;
    for (int i = 0; i < ks_engine_plan_lanes(engine, plan) && plan->graphs && !plan->large && !plan->uncapturable;
         i++) {
        if (plan->captured[i] & 1) continue;
        ready = false;
        engine->wants += !(plan->wanted[i] & 1);
        plan->wanted[i] |= 1;
    }
    ks_engine_plan_release(engine, &plan);
    return ready;
}

ks_status ks_engine_tune(ks_engine *engine, const ks_spec *spec, ks_tune_progress_fn *progress, void *context,
                         ks_error *error)
{
    ks_plan *plan;
    const ks_status status = ks_engine_plan(engine, spec, &plan, error);
    if (status != KS_OK) return status;
    ks_tune_plan(engine, plan, progress, context);
    if (--plan->users == 0 && plan->trials.candidates == 0 && !plan->join_rows && !engine->lost)
        ks_tune_take_over(engine, plan);
    return engine->lost ? ks_fail(error, KS_DEVICE, "%s", engine->fault.text) : KS_OK;
}
