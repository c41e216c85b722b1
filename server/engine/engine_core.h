/* The inside of an engine, for engine.c, graphs.c, tune.c, self_check.c and the files of server/large. */
#ifndef KS_ENGINE_CORE_H
#define KS_ENGINE_CORE_H
#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/queue.h"
#include "engine/slots.h"

typedef struct ks_lane_use {
    ks_lane *lane;
    bool busy;
    int64_t launched_ns;
    int64_t issue_ns;    /* that the launch took of this shard; at most until the work was done */
    ks_turn_clock still; /* without progress, as far as is known */
    int64_t asked_ns;    /* what it said when the backend was last asked for progress */
    ks_batch batch;
    ks_job *jobs[KS_BATCH_MAX];
} ks_lane_use;

enum { KS_ENGINE_COUNTERS = sizeof(ks_engine_stats) / sizeof(uint64_t) };

struct ks_engine {
    /* fixed after open: */
    ks_engine_options options;
    const ks_backend *backend;
    ks_device *device;
    bool polls;
    int lanes;
    int64_t gap_max_ns; /* between two turns: what of it counts as time without progress */
    /* this shard only: */
    ks_slots *slots;
    ks_plans *plans;
    ks_queue queue;
    ks_job *done, **done_end; /* what the next collect returns */
    int busy;                 /* lanes */
    int wants;                /* bits set in all plans' wanted */
    int64_t accounted_ns;     /* up to here busy and overlap time are in the counters */
    bool lost;
    ks_error fault;         /* when lost */
    int64_t wait_ns;        /* of the job behind all that waited at the last ks_engine_expire, at least */
    struct ks_tuner *tuner; /* NULL: no plan is being tuned */
    uint64_t tunes_seen;    /* what was found up to here is in use */
    int64_t tune_after_ns;  /* no trial before */
    /* written by this shard, read by any thread: the fields of ks_engine_stats in their order. */
    _Atomic uint64_t counters[KS_ENGINE_COUNTERS];
    ks_lane_use lane[KS_LANES_MAX];
};

#define KS_COUNTER(engine, field) (&(engine)->counters[offsetof(ks_engine_stats, field) / sizeof(uint64_t)])

/* One writer: a load and a store are enough, and cheaper than an atomic addition. */
static inline void ks_counter_set(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

static inline void ks_counter_add(_Atomic uint64_t *counter, uint64_t value)
{
    ks_counter_set(counter, atomic_load_explicit(counter, memory_order_relaxed) + value);
}

/* The first so many lanes, which a plan's jobs go on: each lane that a chain goes on may come to hold its arena. */
static inline int ks_engine_plan_lanes(const ks_engine *engine, const ks_plan *plan)
{
    const int most = engine->options.model_lanes;
    return plan->program && most > 0 && most < engine->lanes ? most : engine->lanes;
}

/* What the backend said of a batch or a capture that it did not do. */
static inline void ks_engine_count_error(ks_engine *engine, ks_status status)
{
    ks_counter_add(status == KS_MEMORY ? KS_COUNTER(engine, errors_memory) : KS_COUNTER(engine, errors_device), 1);
}

/* DONE; comes back from the next collect. */
void ks_engine_finish(ks_engine *engine, ks_job *job, ks_status status);
/* The device is lost: fails everything, now and later. */
void ks_engine_lose(ks_engine *engine, const ks_error *fault);

/* queue_wait.c: how long the jobs of the queue keep the lanes, at least; they are added in their order. */
typedef struct ks_queue_wait {
    const ks_engine *engine;
    int64_t now_ns;
    double work_ns; /* of all lanes */
} ks_queue_wait;
void ks_queue_wait_begin(ks_queue_wait *wait, const ks_engine *engine, int64_t now_ns);
void ks_queue_wait_add(ks_queue_wait *wait, const ks_job *job);
int64_t ks_queue_wait_ns(const ks_queue_wait *wait); /* until a lane takes the next one */

/* books.c */
void ks_engine_count_plans(ks_engine *engine);
void ks_books_launch(ks_engine *engine, const ks_lane_use *use,
                     int64_t total_ns); /* a batch that took so long is done */
void ks_books_trial(ks_engine *engine, const ks_lane_use *use, int64_t total_ns); /* likewise, of a trial */
/* A plan was made, or its algorithm has changed. path: ks_engine_path's. */
void ks_books_plan(const ks_engine *engine, ks_plan *plan, const char *path);

/* values.c: values that decide (ks_op.check) */
enum {
    KS_CHECKED_MAX_BYTES = 16 << 10
}; /* of all inputs that decide: about a microsecond; kernels look at more of them */
/* Before the launch: KS_RANGE: one is out of bounds. Inputs that the host does not have in the job's slot are passed over. */
ks_status ks_values_check(const ks_job *job, ks_error *error);
/* Of a batch that has refused values: whether they are job i's, and the sentence. */
bool ks_values_refused(const ks_batch *batch, int i, ks_error *error);

/* graphs.c */
void ks_graphs_launched(ks_engine *engine, int lane, int64_t now_ns); /* books the batch's hit or miss */
void ks_graphs_forget(void *engine, ks_plan *plan); /* ks_plan_forget_fn: the plan's place in the catalog goes, too */
void ks_graphs_drop(ks_engine *engine, ks_plan *plan); /* all of them; the plan stays */
/* Captures one bucket on a free lane. false: it cannot be now; the plan is marked. */
bool ks_graphs_make(ks_engine *engine, ks_plan *plan, int lane, int bucket);

/* engine.c's, for tune.c */
void ks_engine_set_busy(ks_engine *engine, ks_lane_use *use, bool busy, int64_t now_ns);

/* tune.c */
void ks_tune_take_over(ks_engine *engine, ks_plan *plan); /* a plan without users: what was found for it, if anything */
void ks_tune_plan(ks_engine *engine, ks_plan *plan, ks_tune_progress_fn *progress,
                  void *context);                        /* ks_engine_tune's trials */
void ks_tune_new_plan(ks_engine *engine, ks_plan *plan); /* likewise; it has no graphs yet, and may be in no cache */
void ks_tune_done(ks_engine *engine, int64_t run_ns);    /* the trial under way ended; 0: it failed */
void ks_tune_drop(ks_engine *engine);                    /* whatever is under way is given up */
#endif
