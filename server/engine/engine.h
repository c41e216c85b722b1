/* One shard's slots, lanes, plans and ready queue. A turn calls launch, collect, capture in this order.
 *
 * Owns     slots (taken at open), lanes, plans (plan.c); borrows jobs, which their infer owns.
 * Threads  the shard's own; gauges are atomics that anyone may read.
 * Limits   slots per class, lanes, queue length, plan bytes: ks_engine_options. No allocation on the path of a job
 * whose plan exists and whose bytes fit a slot class. */
#ifndef KS_ENGINE_H
#define KS_ENGINE_H
#include "kernserve/backend.h"
#include "observe/metrics.h"
#include "engine/tune/cache.h"

typedef struct ks_engine ks_engine;
typedef struct ks_budget ks_budget;

/* Bytes in flight of the whole daemon (overflow slots, JSON text), and beside them the device memory that its large requests hold, which
 * the backend limits: atomics, any thread. */
ks_budget *ks_budget_open(uint64_t limit_bytes);
void ks_budget_close(ks_budget **budget);
bool ks_budget_take(ks_budget *budget, uint64_t bytes);
void ks_budget_give(ks_budget *budget, uint64_t bytes);
uint64_t ks_budget_used(const ks_budget *budget);
uint64_t ks_budget_limit(const ks_budget *budget);
void ks_budget_lend(ks_budget *budget, int64_t bytes); /* of the device; less than 0: given back */
uint64_t ks_budget_lent(const ks_budget *budget);

enum { KS_SIZE_CLASSES_MAX = 8 };

typedef struct ks_engine_options {
    const ks_backend *backend;
    ks_device *device;
    ks_budget *budget;
    int lanes;
    int model_lanes; /* that chains go on, the first ones; 0: all */
    int classes;     /* slot size classes, ascending */
    struct {
        size_t side_bytes; /* of in, and of out */
        int count;
    } size_class[KS_SIZE_CLASSES_MAX];
    bool pinned;
    size_t plan_bytes; /* budget of the plan cache */
    size_t plans_max;  /* in it; 0: bytes alone limit them */
    int queue_max;     /* ready jobs */
    int64_t stall_ns;  /* device work without progress, in time of this shard's turns: a device fault */
    bool scrub;        /* clear a slot's used bytes when it is not taken again soon */
    int wake_fd;       /* the shard's eventfd */
    struct ks_shard_timeline *timeline; /* this shard is its writer; NULL: none is kept */
    struct ks_plan_catalog *catalog;    /* likewise: its plans, for other threads; NULL: they are not shown */
    ks_tunes *tunes;                    /* what tuning found, of the whole daemon; NULL: plans run as prepare picks */
    bool tune_live;                     /* plans in use are tuned in idle turns */
    int join_rows;  /* jobs of at most so many rows may be joined, and as many rows; 0, 1: none are */
    int chain_rows; /* the engine's own: of a chain's jobs, as the device has it */
} ks_engine_options;

typedef enum ks_job_state { KS_JOB_IDLE, KS_JOB_READY, KS_JOB_RUNNING, KS_JOB_DONE } ks_job_state;

/* One piece of work under way. The infer owns it; from submit until it is handed back by collect the engine keeps a
 * pointer, so it must not move or end. */
typedef struct ks_job {
    ks_plan *plan; /* held: ks_engine_plan .. ks_engine_plan_release */
    ks_slot *slot;
    int rows; /* of INPUT0, where the plan is a family's; else 0: ks_job_rows */
    ks_job_state state;
    uint64_t priority;   /* 0: default (after all others), 1: highest */
    int64_t deadline_ns; /* dropped with KS_DEADLINE if not launched by then; 0: none */
    bool deadline_asked; /* by the client: among jobs of one priority the sooner one goes first */
    /* Its owner's: the job goes alone, and its program's steps are timed (ks_batch). NULL: they are not. */
    int64_t *step_ns;
    ks_error *fault; /* its owner's: why status is not KS_OK is written there, unless one stands there; NULL: nowhere */
    /* set by the engine: */
    ks_status status; /* of a DONE job */
    ks_graph graph;
    int64_t submitted_ns, launched_ns, done_ns; /* ks_now_ns */
    int64_t h2d_ns, compute_ns, d2h_ns;         /* add up to done_ns - launched_ns */
    int64_t kernel_ns;                          /* its batch's: ks_batch */
    int batch_count, batch_rows;                /* jobs in its launch; rows, where they were joined */
    int lane;                                   /* that ran it */
    uint64_t launch;                            /* its launch's number in the timeline; 0: none */
    struct ks_job *next;                        /* ready queue; the list that collect returns */
} ks_job;

/* Takes all slots and opens all lanes. KS_MEMORY, KS_DEVICE. */
ks_status ks_engine_open(const ks_engine_options *options, ks_engine **out, ks_error *error);
/* Nothing may be running. */
void ks_engine_close(ks_engine **engine);

/* A slot whose sides hold at least that much; an overflow slot (ordinary memory, under the budget) above the largest
 * class or where `job` classes are exhausted. KS_BUDGET: none free. */
ks_status ks_engine_slot(ks_engine *engine, size_t in_bytes, size_t out_bytes, ks_slot **out, ks_error *error);
void ks_engine_slot_release(ks_engine *engine, ks_slot **slot);
bool ks_engine_slot_free(const ks_engine *engine, size_t in_bytes, size_t out_bytes); /* a class has one to give */
size_t ks_engine_small_bytes(const ks_engine *engine); /* of a side in the smallest class */

/* Finds the plan of a resolved spec, or makes it; holds it for the job. A spec whose rows may be joined (join.c) gets its family's: the
 * job's rows are then ks_job_rows. KS_MEMORY, KS_WORK. */
ks_status ks_engine_plan(ks_engine *engine, const ks_spec *spec, ks_plan **out, ks_error *error);
static inline int ks_job_rows(const ks_plan *plan, const ks_spec *spec)
{
    return plan->join_rows ? (int)spec->in[0].dims[0] : 0;
}
void ks_engine_plan_release(ks_engine *engine, ks_plan **plan);
/* What the plan of a resolved spec is, or would be, in the caller's memory: for the plan document. The cache stays as it
 * is, and *out is not for a job, but for its program, a copy, which the caller frees. KS_WORK. */
ks_status ks_engine_look(ks_engine *engine, const ks_spec *spec, ks_plan *out, ks_error *error);
/* Plans of the op go, but for those that jobs hold; returns how many do. */
int ks_engine_forget_op(ks_engine *engine, const ks_op *op);
/* A job's path to the device: "mapped" (kernels work on the slot itself), "joined" (likewise, rows of several jobs as one product), "copies", "streamed" (in pieces,
 * because no slot holds it), or "staged" (whole, and then in pieces, because no lane holds it, or its body was JSON or
 * packed). While all slots that hold it are out, a job may be staged as well. */
const char *ks_engine_path(const ks_engine *engine, const ks_plan *plan);

/* READY. KS_RANGE: a value of a small input that decides is out of bounds. KS_QUEUE_FULL: no lane is free, and the job ranks no higher than
 * any that waits; else the last of those is DONE with KS_QUEUE_FULL in its place. Or the work before it takes longer than its deadline
 * allows. KS_DEVICE (device lost). An empty output (0 bytes) is DONE at once, with KS_GRAPH_NONE, and comes back from the next collect
 * like any other. */
ks_status ks_engine_submit(ks_engine *engine, ks_job *job, ks_error *error);
/* A job just submitted, where nothing waits before it and a launch is over when it returns (plan->at_once): launched, and
 * collected here. true: it is DONE and the caller's; else it comes from collect like any other. */
bool ks_engine_run(ks_engine *engine, ks_job *job);
/* true: the job was READY and is the caller's again (IDLE). false: RUNNING, it will come from collect. */
bool ks_engine_cancel(ks_engine *engine, ks_job *job);

void ks_engine_launch(ks_engine *engine);     /* all ready jobs that find a free lane */
ks_job *ks_engine_collect(ks_engine *engine); /* a list of DONE jobs, by ->next; NULL: none */
/* At most one missing graph, on a free lane; call when nothing is left to launch or to answer. true: one was made. */
bool ks_engine_capture(ks_engine *engine);
/* Drops every READY job past its deadline (they come from the next collect), with KS_QUEUE_FULL those that are not launched before it by
 * far, as the work before them goes, and clears slots that were not taken since the last call. Call at most every 50 ms. */
void ks_engine_expire(ks_engine *engine, int64_t now_ns);
/* All READY and RUNNING jobs become DONE with KS_DEVICE: the device is lost. */
void ks_engine_fail_all(ks_engine *engine);

/* A device fault was met (the device lost for good, or work that stalled): every job ends with KS_DEVICE from now on.
 */
bool ks_engine_lost(const ks_engine *engine);
const char *ks_engine_fault(const ks_engine *engine); /* what it was, when lost */

bool ks_engine_running(const ks_engine *engine);        /* a lane is busy: poll without sleeping long */
bool ks_engine_ready(const ks_engine *engine);          /* jobs wait for a lane */
bool ks_engine_dirty(const ks_engine *engine);          /* ks_engine_expire() has slots to clear, now or later */
int64_t ks_engine_expected_ns(const ks_engine *engine); /* until the next lane is likely done; 0: any moment */
bool ks_engine_polls(
    const ks_engine *engine); /* a busy lane needs polling (CUDA); false: wake_fd is written (CPU threads) */

/* The known-answer test: every op's sample, run through a lane and compared with its reference. Blocks; start-up and
 * idle health checks only. KS_DEVICE names the op and the difference. */
ks_status ks_engine_check(ks_engine *engine, ks_error *error);
/* Makes the plan of a resolved spec, runs it once plainly and captures its graphs on every lane. Blocks; start-up only.
 */
ks_status ks_engine_warm(ks_engine *engine, const ks_spec *spec, ks_error *error);

/* The plan of a resolved spec, and its graph of one job on each lane: made here, or asked for, as if launches had missed it. true: they are
 * there, or cannot be. */
bool ks_engine_make_ready(ks_engine *engine, const ks_spec *spec);

/* Tries the candidates of a resolved spec's plan, unless options.tunes knows the response, keeps the fastest there, and uses
 * it. progress, or NULL, is called for each trial: how many of at most how many. Blocks; start-up and --tune only. KS_OK also
 * where there is nothing to choose from. */
typedef void ks_tune_progress_fn(void *context, int trials, int most);
ks_status ks_engine_tune(ks_engine *engine, const ks_spec *spec, ks_tune_progress_fn *progress, void *context,
                         ks_error *error);
/* In a turn that slept as long as it may, and nothing happened: begins a trial, or takes over what tuning has found,
 * here or in another shard. */
void ks_engine_tune_step(ks_engine *engine);
int64_t ks_engine_tune_wait_ns(const ks_engine *engine); /* how long a turn may sleep for that; INT64_MAX: for ever */

/* This shard's part of the timeline; NULL: none is kept. */
struct ks_shard_timeline *ks_engine_timeline(const ks_engine *engine);
/* Gauges and counters of this shard's engine, written by the shard alone. */
void ks_engine_read_stats(const ks_engine *engine, ks_engine_stats *out); /* any thread */
#endif
