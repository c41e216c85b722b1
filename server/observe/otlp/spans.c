#include "observe/otlp/spans.h"

#include <assert.h>
#include <stdlib.h>

enum { WORDS = sizeof(ks_span) / sizeof(uint64_t) };
static_assert(sizeof(ks_span) % sizeof(uint64_t) == 0, "a record is whole words");

struct ks_spans {
    int writers;
    struct one {
        _Alignas(64) ks_span_ring ring;
        uint64_t taken; /* the taker's: number of the last one */
    } * shard;
};

ks_spans *ks_spans_open(int writers)
{
    ks_spans *spans = calloc(1, sizeof *spans);
    if (!spans) return NULL;
    spans->shard = aligned_alloc(_Alignof(struct one), (size_t)writers * sizeof *spans->shard);
    bool all = spans->shard != NULL;
    if (all) memset(spans->shard, 0, (size_t)writers * sizeof *spans->shard);
    for (; all && spans->writers < writers; spans->writers++)
        all = ks_ring_open(&spans->shard[spans->writers].ring, KS_SPANS_KEPT, WORDS);
    if (!all) ks_spans_close(&spans);
    return spans;
}

void ks_spans_close(ks_spans **spans)
{
    if (!*spans) return;
    for (int i = 0; i < (*spans)->writers; i++) free((*spans)->shard[i].ring.words);
    free((*spans)->shard);
    free(*spans);
    *spans = NULL;
}

ks_span_ring *ks_spans_writer(ks_spans *spans, int index)
{
    assert(index >= 0 && index < spans->writers);
    return &spans->shard[index].ring;
}

void ks_spans_add(ks_span_ring *ring, const ks_span *span)
{
    ks_ring_add(ring, span, WORDS);
}

static int take(struct one *shard, ks_span *out, int most, uint64_t *lost)
{
    const uint64_t last = atomic_load_explicit(&shard->ring.last, memory_order_acquire);
    int count = 0;
    if (last - shard->taken > KS_SPANS_KEPT) {
        *lost += last - KS_SPANS_KEPT - shard->taken;
        shard->taken = last - KS_SPANS_KEPT;
    }
    while (shard->taken < last && count < most) {
        if (ks_ring_get(&shard->ring, ++shard->taken, &out[count], WORDS))
            count++;
        else
            (*lost)++;
    }
    return count;
}

int ks_spans_take(ks_spans *spans, ks_span *out, int most, uint64_t *lost)
{
    int count = 0;
    for (int i = 0; i < spans->writers; i++) count += take(&spans->shard[i], out + count, most - count, lost);
    return count;
}
