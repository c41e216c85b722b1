/* Where other threads read a shard's plans: what each one is, and what it has run.
 *
 * Owns     the places. A plan gets a free one when it is made and gives it back when it is evicted; a plan that finds none runs
 *          unseen.
 * Threads  a shard's catalog has one writer, that shard. Any thread reads: a place that is written over meanwhile is not given out.
 * Limits   KS_CATALOG_PLACES a shard. Their memory is touched as they are used, and charged to the plan. */
#ifndef KS_PLAN_CATALOG_H
#define KS_PLAN_CATALOG_H
#include <stdatomic.h>
#include <stddef.h>

#include "kernserve/backend.h"

enum { KS_CATALOG_PLACES = 4096, KS_CATALOG_NAME_MAX = 64 };

/* What a plan is. */
typedef struct ks_plan_facts {
    ks_spec spec;
    ks_kernel_info kernel_info;
    ks_trials trials;
    const char *path;                /* ks_engine_path's: static */
    double read_bytes;               /* ks_spec_read_bytes's */
    char model[KS_CATALOG_NAME_MAX]; /* of a chain, whose spec has an op here that stays; "": an operation's plan */
    int64_t batch_max, join_rows;
} ks_plan_facts;

/* What has run since the plan was made; of kernels, since its algorithm was chosen. */
typedef struct ks_plan_counts {
    uint64_t launches, jobs, graph_hits;
    uint64_t timed_jobs, timed_ns; /* jobs whose kernels were timed, and that time in all */
} ks_plan_counts;

typedef struct ks_plan_row {
    ks_plan_facts facts;
    ks_plan_counts counts;
    int bucket; /* of a family's plan that one request is asked about: rows of its graph; 0: of none, or of all */
} ks_plan_row;

enum {
    KS_FACTS_WORDS = sizeof(ks_plan_facts) / sizeof(uint64_t),
    KS_COUNTS_WORDS = sizeof(ks_plan_counts) / sizeof(uint64_t)
};

typedef struct ks_plan_place {
    _Atomic uint64_t number; /* of what stands here; 0: nothing, or it is being written */
    _Atomic uint64_t facts[KS_FACTS_WORDS];
    _Atomic uint64_t counts[KS_COUNTS_WORDS];
    struct ks_plan_place *next_free; /* the shard's */
} ks_plan_place;

typedef struct ks_plan_catalog ks_plan_catalog;   /* of one writer */
typedef struct ks_plan_catalogs ks_plan_catalogs; /* of the daemon */

ks_plan_catalogs *ks_catalogs_open(int writers); /* NULL: memory */
void ks_catalogs_close(ks_plan_catalogs **catalogs);
ks_plan_catalog *ks_catalogs_writer(ks_plan_catalogs *catalogs, int index);

/* The writer's own thread. A plan was made: it gets a place; or its algorithm has changed. */
void ks_catalog_put(ks_plan_catalog *catalog, ks_plan *plan, const char *path);
void ks_catalog_take(ks_plan_catalog *catalog, ks_plan *plan); /* the plan is about to go */

#define KS_PLACE_COUNT(place, field) (&(place)->counts[offsetof(ks_plan_counts, field) / sizeof(uint64_t)])

static inline void ks_place_add(_Atomic uint64_t *count, uint64_t more)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + more, memory_order_relaxed);
}

/* A batch of the plan is done: plain stores. */
static inline void ks_catalog_count(const ks_plan *plan, const ks_batch *batch)
{
    ks_plan_place *place = plan->place;
    if (!place) return;
    ks_place_add(KS_PLACE_COUNT(place, launches), 1);
    ks_place_add(KS_PLACE_COUNT(place, jobs), (uint64_t)batch->count);
    if (batch->graph == KS_GRAPH_HIT) ks_place_add(KS_PLACE_COUNT(place, graph_hits), 1);
    if (batch->kernel_ns < 0) return;
    ks_place_add(KS_PLACE_COUNT(place, timed_jobs), (uint64_t)batch->count);
    ks_place_add(KS_PLACE_COUNT(place, timed_ns), (uint64_t)batch->kernel_ns);
}

/* Any thread. How many places of a catalog have been in use; what stands in one: false: nothing. */
int ks_catalogs_writers(const ks_plan_catalogs *catalogs);
int ks_catalog_used(const ks_plan_catalogs *catalogs, int writer);
bool ks_catalog_read(const ks_plan_catalogs *catalogs, int writer, int place, ks_plan_row *out);
/* What the plan is of: an operation, or a model. */
const char *ks_plan_row_name(const ks_plan_row *row);
/* The row of a plan that is in no catalog, with its own op. */
void ks_plan_row_of(const ks_plan *plan, const char *path, ks_plan_row *out);
#endif
