/* What the daemon did last: a ring of launches and one of requests for each shard, always written, read when it is asked for
 * (/v2/trace).
 *
 * Owns     all records; nothing is allocated after open. A new record takes the place of the oldest.
 * Threads  a shard's rings have one writer, that shard. Any thread reads: a record that is written over meanwhile is not
 *          given out.
 * Units    times are ks_now_ns's (CLOCK_MONOTONIC, ns), durations ns. */
#ifndef KS_TIMELINE_H
#define KS_TIMELINE_H
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "kernserve/backend.h"

typedef struct ks_timeline ks_timeline;             /* of the daemon */
typedef struct ks_shard_timeline ks_shard_timeline; /* of one writer */

enum { KS_TRACED_ID_MAX = 40, KS_TRACED_STEP_MAX = 64 };

/* A launch that ended well. h2d, compute and d2h follow each other from launched_ns on. */
typedef struct ks_launch_record {
    int64_t launched_ns, h2d_ns, compute_ns, d2h_ns;
    int64_t issue_ns;                          /* that the shard took for the launch */
    uint64_t plan;                             /* its id in the shard */
    uint64_t lane : 16, jobs : 16, graph : 32; /* jobs 0: a trial of tuning; graph: a ks_graph */
} ks_launch_record;

/* A step of a launch whose steps were timed. Steps of a launch have numbers one behind the other. */
typedef struct ks_step_record {
    int64_t begun_ns, ns;
    uint64_t launch;               /* its number */
    uint64_t lane : 16, step : 48; /* step: its place in the program */
    char name[KS_TRACED_STEP_MAX]; /* terminated; a longer one is cut */
} ks_step_record;

/* A request that ended, whatever its status. Of one that did not run only first, answered, decode and the response hold. */
typedef struct ks_request_record {
    int64_t first_ns, submitted_ns, launched_ns, done_ns, answered_ns; /* points in time */
    int64_t decode_ns, h2d_ns, d2h_ns;
    uint64_t in_bytes, out_bytes;               /* of its tensors; of the response's body */
    uint64_t launch;                            /* number of its launch in the shard's ring; 0: none */
    uint64_t trace[2];                          /* the trace id, most significant half first; 0: none */
    uint64_t model : 32, status : 16, ran : 16; /* index; ks_status */
    char request_id[KS_TRACED_ID_MAX];          /* terminated; a longer one is cut */
} ks_request_record;

/* What a plan's launches do. */
typedef struct ks_plan_record {
    char text[KS_SPEC_TEXT_MAX]; /* ks_spec_text's */
} ks_plan_record;

/* A record in its ring is its number and then its words; number 0 while it is being written. */
typedef struct ks_ring {
    _Atomic uint64_t *words;
    uint64_t records;
    _Atomic uint64_t last; /* number of the newest */
} ks_ring;

struct ks_shard_timeline {
    _Alignas(64) ks_ring launches;
    ks_ring requests, plans, steps;
    ks_ring slow;            /* requests that took slow_ns and more */
    _Atomic int64_t slow_ns; /* ks_timeline_keep_slow's */
};

/* Each word is stored with release: a reader that sees a new one also sees that the number had gone before it. Here, so that
 * a record's fields go straight to the ring. */
static inline void ks_ring_put(ks_ring *ring, uint64_t number, const void *record, int words)
{
    _Atomic uint64_t *at = ring->words + number % ring->records * (uint64_t)(1 + words);
    atomic_store_explicit(at, 0, memory_order_relaxed);
#pragma GCC unroll 32
    for (int i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const char *)record + (size_t)i * sizeof word, sizeof word);
        atomic_store_explicit(at + 1 + i, word, memory_order_release);
    }
    atomic_store_explicit(at, number, memory_order_release);
}

static inline uint64_t ks_ring_add(ks_ring *ring, const void *record, int words)
{
    const uint64_t number = atomic_load_explicit(&ring->last, memory_order_relaxed) + 1;
    ks_ring_put(ring, number, record, words);
    atomic_store_explicit(&ring->last, number, memory_order_release);
    return number;
}

/* The ring's memory, all 0: records of so many words. */
bool ks_ring_open(ks_ring *ring, uint64_t records, int words);
/* Any thread. false: it is gone, or not there yet. */
bool ks_ring_get(const ks_ring *ring, uint64_t number, void *record, int words);

/* launches: that each writer keeps, and a fourth as many requests; at least 4. NULL: memory. */
ks_timeline *ks_timeline_open(int writers, int launches);
void ks_timeline_close(ks_timeline **timeline);
ks_shard_timeline *ks_timeline_writer(ks_timeline *timeline, int index);

/* The writer's own thread. Numbers count from 1. */
void ks_timeline_add_slow(ks_shard_timeline *shard, const ks_request_record *record);
static inline uint64_t ks_timeline_add_launch(ks_shard_timeline *shard, const ks_launch_record *record) /* its number */
{
    return ks_ring_add(&shard->launches, record, sizeof *record / sizeof(uint64_t));
}

static inline void ks_timeline_add_request(ks_shard_timeline *shard, const ks_request_record *record)
{
    ks_ring_add(&shard->requests, record, sizeof *record / sizeof(uint64_t));
    if (record->answered_ns - record->first_ns >= atomic_load_explicit(&shard->slow_ns, memory_order_relaxed))
        ks_timeline_add_slow(shard, record);
}
static inline void ks_timeline_add_step(ks_shard_timeline *shard, const ks_step_record *record)
{
    ks_ring_add(&shard->steps, record, sizeof *record / sizeof(uint64_t));
}
/* A plan was made. */
void ks_timeline_add_plan(ks_shard_timeline *shard, uint64_t plan, const ks_plan_record *record);

/* Any thread. The number of the last one; 0: none yet. */
uint64_t ks_timeline_launches(const ks_timeline *timeline, int shard);
uint64_t ks_timeline_steps(const ks_timeline *timeline, int shard);
uint64_t ks_timeline_requests(const ks_timeline *timeline, int shard);
/* false: it is gone, or not there yet. */
bool ks_timeline_launch(const ks_timeline *timeline, int shard, uint64_t number, ks_launch_record *out);
bool ks_timeline_step(const ks_timeline *timeline, int shard, uint64_t number, ks_step_record *out);
bool ks_timeline_request(const ks_timeline *timeline, int shard, uint64_t number, ks_request_record *out);
/* Requests that take so long, or longer, are kept beside the others, KS_SLOW_RECORDS of each shard; INT64_MAX, the preset: none. */
enum { KS_SLOW_RECORDS = 256 };
void ks_timeline_keep_slow(ks_timeline *timeline, int64_t least_ns);
uint64_t ks_timeline_slow_requests(const ks_timeline *timeline, int shard);
bool ks_timeline_slow(const ks_timeline *timeline, int shard, uint64_t number, ks_request_record *out);
bool ks_timeline_plan(const ks_timeline *timeline, int shard, uint64_t plan, ks_plan_record *out);
#endif
