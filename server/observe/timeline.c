#include "observe/timeline.h"
#include "kernserve/chain.h"

#include <assert.h>
#include <stdlib.h>

enum { PLANS = 4096, STEPS = 4096, WORD = sizeof(uint64_t) };
static_assert(STEPS >= (int)KS_CHAIN_STEPS_MAX, "all steps of a launch are kept");
enum {
    LAUNCH_WORDS = sizeof(ks_launch_record) / WORD,
    REQUEST_WORDS = sizeof(ks_request_record) / WORD,
    PLAN_WORDS = sizeof(ks_plan_record) / WORD,
    STEP_WORDS = sizeof(ks_step_record) / WORD
};
static_assert(sizeof(ks_launch_record) % WORD == 0 && sizeof(ks_request_record) % WORD == 0 &&
                  sizeof(ks_plan_record) % WORD == 0 && sizeof(ks_step_record) % WORD == 0,
              "records are whole words");

struct ks_timeline {
    int writers;
    ks_shard_timeline *shard;
};

bool ks_ring_open(ks_ring *ring, uint64_t records, int words)
{
    ring->records = records;
    ring->words = calloc(records, (size_t)(1 + words) * WORD);
    return ring->words != NULL;
}

ks_timeline *ks_timeline_open(int writers, int launches)
{
    ks_timeline *timeline = calloc(1, sizeof *timeline);
    if (!timeline) return NULL;
    timeline->shard = aligned_alloc(_Alignof(ks_shard_timeline), sizeof *timeline->shard * (size_t)writers);
    if (!timeline->shard) {
        free(timeline);
        return NULL;
    }
    memset(timeline->shard, 0, sizeof *timeline->shard * (size_t)writers);
    timeline->writers = writers;
    const uint64_t records = launches < 4 ? 4 : (uint64_t)launches;
    bool all = true;
    for (int i = 0; i < writers && all; i++) {
        ks_shard_timeline *shard = &timeline->shard[i];
        all = ks_ring_open(&shard->launches, records, LAUNCH_WORDS) &&
              ks_ring_open(&shard->requests, records / 4, REQUEST_WORDS) &&
              ks_ring_open(&shard->plans, PLANS, PLAN_WORDS) && ks_ring_open(&shard->steps, STEPS, STEP_WORDS) &&
              ks_ring_open(&shard->slow, KS_SLOW_RECORDS, REQUEST_WORDS);
        shard->slow_ns = INT64_MAX;
    }
    if (!all) ks_timeline_close(&timeline);
    return timeline;
}

void ks_timeline_close(ks_timeline **timeline)
{
    if (!*timeline) return;
    for (int i = 0; i < (*timeline)->writers; i++) {
        free((*timeline)->shard[i].launches.words);
        free((*timeline)->shard[i].requests.words);
        free((*timeline)->shard[i].plans.words);
        free((*timeline)->shard[i].steps.words);
        free((*timeline)->shard[i].slow.words);
    }
    free((*timeline)->shard);
    free(*timeline);
    *timeline = NULL;
}

ks_shard_timeline *ks_timeline_writer(ks_timeline *timeline, int index)
{
    assert(index >= 0 && index < timeline->writers);
    return &timeline->shard[index];
}

bool ks_ring_get(const ks_ring *ring, uint64_t number, void *record, int words)
{
    const _Atomic uint64_t *at = ring->words + number % ring->records * (uint64_t)(1 + words);
    if (number == 0 || atomic_load_explicit(at, memory_order_acquire) != number) return false;
    for (int i = 0; i < words; i++) {
        const uint64_t word = atomic_load_explicit(at + 1 + i, memory_order_acquire);
        memcpy((char *)record + i * WORD, &word, WORD);
    }
    return atomic_load_explicit(at, memory_order_relaxed) == number;
}

void ks_timeline_add_plan(ks_shard_timeline *shard, uint64_t plan, const ks_plan_record *record)
{
    ks_ring_put(&shard->plans, plan, record, PLAN_WORDS);
}

void ks_timeline_add_slow(ks_shard_timeline *shard, const ks_request_record *record)
{
    ks_ring_add(&shard->slow, record, REQUEST_WORDS);
}

void ks_timeline_keep_slow(ks_timeline *timeline, int64_t least_ns)
{
    for (int i = 0; i < timeline->writers; i++)
        atomic_store_explicit(&timeline->shard[i].slow_ns, least_ns, memory_order_relaxed);
}

uint64_t ks_timeline_slow_requests(const ks_timeline *timeline, int shard)
{
    return atomic_load_explicit(&timeline->shard[shard].slow.last, memory_order_acquire);
}

bool ks_timeline_slow(const ks_timeline *timeline, int shard, uint64_t number, ks_request_record *out)
{
    return ks_ring_get(&timeline->shard[shard].slow, number, out, REQUEST_WORDS);
}

uint64_t ks_timeline_launches(const ks_timeline *timeline, int shard)
{
    return atomic_load_explicit(&timeline->shard[shard].launches.last, memory_order_acquire);
}

uint64_t ks_timeline_steps(const ks_timeline *timeline, int shard)
{
    return atomic_load_explicit(&timeline->shard[shard].steps.last, memory_order_acquire);
}

uint64_t ks_timeline_requests(const ks_timeline *timeline, int shard)
{
    return atomic_load_explicit(&timeline->shard[shard].requests.last, memory_order_acquire);
}

bool ks_timeline_launch(const ks_timeline *timeline, int shard, uint64_t number, ks_launch_record *out)
{
    return ks_ring_get(&timeline->shard[shard].launches, number, out, LAUNCH_WORDS);
}

bool ks_timeline_step(const ks_timeline *timeline, int shard, uint64_t number, ks_step_record *out)
{
    return ks_ring_get(&timeline->shard[shard].steps, number, out, STEP_WORDS);
}

bool ks_timeline_request(const ks_timeline *timeline, int shard, uint64_t number, ks_request_record *out)
{
    return ks_ring_get(&timeline->shard[shard].requests, number, out, REQUEST_WORDS);
}

bool ks_timeline_plan(const ks_timeline *timeline, int shard, uint64_t plan, ks_plan_record *out)
{
    return ks_ring_get(&timeline->shard[shard].plans, plan, out, PLAN_WORDS);
}
