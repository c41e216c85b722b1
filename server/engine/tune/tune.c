/* Tuning: the candidates of a plan tried on a lane, one trial after the other, and the fastest one taken over.
 *
 * Trials     run a copy of the plan, alone on the lane, through launch and poll like any batch. In a live shard one
 *            begins only after IDLE_NS in which nothing happened, with no lane busy, and takes at most a fifth of the
 *            time; a request that comes meanwhile finds the other lanes, or waits for what is left of the trial.
 * Takeover   a plan changes its algorithm while no job holds it: within one response nothing changes, from one response to the
 *            next the last bits may. That is why plans in use are tuned on demand only (--autotune background).
 * Threads    the shard's own; what was found is shared through ks_tunes. */
#include "engine/engine_core.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "engine/tune/contest.h"

enum {
    SEARCH_MAX = 64, /* plans that one search looks at; the newest first */
    USED_LEAST = 16, /* jobs that make a plan worth it */
    SHARE = 5        /* of the time: one part is trials */
};
static const int64_t IDLE_NS = 1000000;                   /* without a request, before a trial */
static const int64_t SLOW_NS = 20000000;                  /* a job's time beyond which a live shard tries nothing */
static const int64_t CLAIM_NS = 30 * (int64_t)1000000000; /* for another shard to end its tuning, at start */

typedef struct ks_tuner {
    ks_plan *plan; /* held */
    ks_plan trial; /* the copy that trials run */
    ks_contest contest;
    int trials;
    int64_t begun_ns; /* of the trial under way */
    ks_algorithm candidates[KS_CANDIDATES_MAX];
} ks_tuner;

static const ks_tuning *tuning_of(const ks_engine *engine)
{
    return engine->options.tunes ? engine->backend->tuning : NULL;
}

/* --- taking over ---------------------------------------------------------------------------------------------------- */

static void adopt(ks_engine *engine, ks_plan *plan, const ks_tuned *tuned)
{
    ks_error ignored;
    if (tuning_of(engine)->adopt(engine->device, plan, &tuned->algorithm, &ignored) == KS_OK) {
        plan->trials = tuned->trials;
    } else { /* found under other limits, or by a library that is not open now */
        (void)engine->backend->prepare(engine->device, plan, &ignored);
        plan->untunable = true;
    }
    plan->measured_ns = plan->timed_ns = 0;
    plan->timed_jobs = 0;
}

static bool find_tuned(const ks_engine *engine, const ks_plan *plan, ks_tuned *tuned)
{
    assert(plan->users == 0);
    return tuning_of(engine) && ks_tunes_find(engine->options.tunes, &plan->spec, tuned);
}

void ks_tune_new_plan(ks_engine *engine, ks_plan *plan)
{
    ks_tuned tuned;
    if (find_tuned(engine, plan, &tuned)) adopt(engine, plan, &tuned);
}

void ks_tune_take_over(ks_engine *engine, ks_plan *plan)
{
    ks_tuned tuned;
    if (!find_tuned(engine, plan, &tuned)) return;
    ks_graphs_drop(engine, plan);
    adopt(engine, plan, &tuned);
    ks_books_plan(engine, plan, ks_engine_path(engine, plan));
}

/* What any shard has found since the last time. A plan that a job holds is left for the next time. */
static void take_over_all(ks_engine *engine)
{
    const uint64_t generation = ks_tunes_generation(engine->options.tunes);
    bool all = true;
    if (generation == engine->tunes_seen) return;
    for (ks_plan *plan = ks_plans_newest(engine->plans); plan; plan = plan->older) {
        if (plan->trials.candidates || plan->untunable) continue;
        if (plan->users == 0)
            ks_tune_take_over(engine, plan);
        else
            all = false;
    }
    if (all) engine->tunes_seen = generation;
}

/* --- one plan's tuning ---------------------------------------------------------------------------------------------- */

/* The plan is held from here on. false: there is nothing to choose from. */
static bool begin(ks_engine *engine, ks_plan *plan)
{
    ks_error ignored;
    plan->untunable = true;
    ks_tuner *tuner = calloc(1, sizeof *tuner);
    if (!tuner) return false;
    const int candidates = tuning_of(engine)->list(engine->device, plan, tuner->candidates, KS_CANDIDATES_MAX);
    ks_spec_copy(&tuner->trial.spec, &plan->spec);
    /* No one holds a fixed input's content while trials run: they have all operands in memory of their own. */
    tuner->trial.in_bytes = ks_spec_fixed(&plan->spec) ? ks_spec_unfix(&tuner->trial.spec) : plan->in_bytes;
    tuner->trial.out_bytes = plan->out_bytes;
    if (candidates < 2 || engine->backend->prepare(engine->device, &tuner->trial, &ignored) != KS_OK) {
        free(tuner);
        return false;
    }
    tuner->trial.mapped &= plan->mapped;
    ks_contest_begin(&tuner->contest, candidates);
    tuner->plan = plan;
    plan->users++;
    plan->untunable = false;
    engine->tuner = tuner;
    return true;
}

/* The next candidate on a free lane. A candidate that cannot even begin is out. */
static void try_next(ks_engine *engine, int lane)
{
    ks_tuner *tuner = engine->tuner;
    ks_lane_use *use = &engine->lane[lane];
    ks_error error = {.status = KS_OK};
    const ks_algorithm *algorithm = &tuner->candidates[ks_contest_next(&tuner->contest)];
    const ks_plan *plan = tuner->plan;
    tuner->trials++;
    tuner->begun_ns = ks_now_ns();
    if (tuning_of(engine)->adopt(engine->device, &tuner->trial, algorithm, &error) != KS_OK) {
        ks_contest_time(&tuner->contest, 0);
        return;
    }
    const int64_t guess_ns = plan->timed_jobs ? plan->timed_ns / (int64_t)plan->timed_jobs : 0;
    use->batch = (ks_batch){.plan = &tuner->trial, .trial = ks_contest_runs(&tuner->contest, guess_ns)};
    use->launched_ns = tuner->begun_ns;
    use->issue_ns = 0; /* it is the device's time that counts */
    ks_engine_set_busy(engine, use, true, tuner->begun_ns);
    if (engine->backend->launch(use->lane, &use->batch, &error) == KS_OK) return;
    ks_engine_set_busy(engine, use, false, ks_now_ns());
    ks_contest_time(&tuner->contest, 0);
    if (engine->backend->failed(engine->device)) ks_engine_lose(engine, &error);
}

void ks_tune_done(ks_engine *engine, int64_t run_ns)
{
    ks_tuner *tuner = engine->tuner;
    const int64_t now_ns = ks_now_ns();
    ks_contest_time(&tuner->contest, run_ns);
    engine->tune_after_ns = now_ns + (SHARE - 1) * (now_ns - tuner->begun_ns);
}

/* The trial plan's things and the hold on the tuned one are given back. */
static void leave(ks_engine *engine)
{
    ks_tuner *tuner = engine->tuner;
    engine->tuner = NULL;
    if (!engine->lost) engine->backend->forget(engine->lane[0].lane, &tuner->trial);
    tuner->plan->users--;
    free(tuner);
    ks_tunes_release(engine->options.tunes);
}

void ks_tune_drop(ks_engine *engine)
{
    if (engine->tuner) leave(engine);
}

static double us_of(const ks_contest *contest, int algorithm)
{
    return (double)ks_contest_ns(contest, algorithm) / 1e3;
}

/* It is decided: what was found goes to all shards. */
static void conclude(ks_engine *engine)
{
    ks_tuner *tuner = engine->tuner;
    ks_plan *plan = tuner->plan;
    const int winner = ks_contest_winner(&tuner->contest);
    ks_tuned tuned;
    ks_error error = {.status = KS_OK};
    memset(&tuned, 0, sizeof tuned);
    plan->untunable = winner < 0;
    if (winner >= 0) {
        tuned.algorithm = tuner->candidates[winner];
        tuned.trials.candidates = tuner->contest.candidates;
        tuned.trials.us = us_of(&tuner->contest, winner);
        tuned.trials.heuristic_us = us_of(&tuner->contest, 0);
        memcpy(tuned.trials.heuristic, tuner->candidates[0].kernel, sizeof tuned.trials.heuristic);
        plan->untunable = ks_tunes_keep(engine->options.tunes, &plan->spec, &tuned, &error) != KS_OK;
    }
    KS_LOG(KS_LOG_INFO, "plan tuned", KS_TEXT("op", plan->spec.op->name),
           KS_INT("candidates", tuner->contest.candidates), KS_TEXT("kernel", tuned.algorithm.kernel),
           KS_NUMBER("us", tuned.trials.us), KS_TEXT("heuristic", tuned.trials.heuristic),
           KS_NUMBER("heuristic_us", tuned.trials.heuristic_us));
    leave(engine);
}

/* --- in idle turns -------------------------------------------------------------------------------------------------- */

static bool worth_it(const ks_plan *plan)
{
    return plan->trials.candidates == 0 && !plan->untunable && plan->timed_jobs >= USED_LEAST &&
           plan->timed_ns / (int64_t)plan->timed_jobs <= SLOW_NS;
}

static void find_plan(ks_engine *engine)
{
    ks_plan *plan = ks_plans_newest(engine->plans);
    ks_tuned known; /* and not yet taken over, because a job holds the plan */
    for (int seen = 0; plan && seen < SEARCH_MAX; seen++, plan = plan->older) {
        if (!worth_it(plan) || ks_tunes_find(engine->options.tunes, &plan->spec, &known)) continue;
        if (!ks_tunes_claim(engine->options.tunes)) return;
        if (!begin(engine, plan)) ks_tunes_release(engine->options.tunes);
        return;
    }
}

void ks_engine_tune_step(ks_engine *engine)
{
    if (!engine->options.tune_live || !tuning_of(engine)) return;
    if (engine->lost || engine->busy || engine->queue.count || engine->done) return;
    take_over_all(engine);
    if (!engine->tuner) find_plan(engine);
    if (!engine->tuner || ks_now_ns() < engine->tune_after_ns) return;
    if (ks_contest_next(&engine->tuner->contest) >= 0)
        try_next(engine, 0);
    else
        conclude(engine);
}

int64_t ks_engine_tune_wait_ns(const ks_engine *engine)
{
    if (!engine->options.tune_live || engine->lost) return INT64_MAX;
    const ks_plan *newest = ks_plans_newest(engine->plans);
    if (!engine->tuner && !(newest && worth_it(newest))) return INT64_MAX;
    const int64_t wait_ns = engine->tune_after_ns - ks_now_ns();
    return wait_ns > IDLE_NS ? wait_ns : IDLE_NS;
}

/* --- at start ------------------------------------------------------------------------------------------------------- */

static bool claim(ks_engine *engine)
{
    const int64_t until_ns = ks_now_ns() + CLAIM_NS;
    while (!ks_tunes_claim(engine->options.tunes)) {
        if (ks_now_ns() > until_ns) return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

static void run_contest(ks_engine *engine, ks_tune_progress_fn *progress, void *context)
{
    const ks_contest *contest = &engine->tuner->contest;
    while (!engine->lost && ks_contest_next(contest) >= 0) {
        try_next(engine, 0);
        while (!engine->lost && engine->lane[0].busy) {
            (void)ks_engine_collect(engine); /* no jobs at start */
            if (engine->lane[0].busy) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        }
        const int most =
            contest->candidates + (KS_CONTEST_ROUNDS - 1) * (contest->round ? contest->left : KS_CONTEST_KEPT + 1);
        if (progress) progress(context, engine->tuner->trials, most);
    }
}

void ks_tune_plan(ks_engine *engine, ks_plan *plan, ks_tune_progress_fn *progress, void *context)
{
    if (!tuning_of(engine)) return;
    if (plan->trials.candidates == 0 && !plan->join_rows && claim(engine)) {
        if (begin(engine, plan)) {
            run_contest(engine, progress, context);
            if (engine->lost)
                leave(engine);
            else
                conclude(engine);
        } else {
            ks_tunes_release(engine->options.tunes);
        }
    }
}
