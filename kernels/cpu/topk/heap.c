#include "cpu/topk/heap.h"

#include <stdbool.h>

static bool ranks_behind(const ks_heap_place *a, const ks_heap_place *b)
{
    return a->key != b->key ? a->key < b->key : a->index > b->index;
}

static void sink(ks_heap_place *places, int count, int at)
{
    const ks_heap_place moved = places[at];
    for (int child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && ranks_behind(&places[child + 1], &places[child])) child++;
        if (!ranks_behind(&places[child], &moved)) break;
        places[at] = places[child];
        at = child;
    }
    places[at] = moved;
}

static void order(ks_heap *h)
{
    for (int i = h->count / 2; i-- > 0;) sink(h->places, h->count, i);
}

void ks_heap_offer(ks_heap *h, uint64_t key, int64_t index)
{
    if (h->count == h->k) {
        if (key <= h->places[0].key) return;
        h->places[0] = (ks_heap_place){key, index};
        sink(h->places, h->k, 0);
        return;
    }
    h->places[h->count++] = (ks_heap_place){key, index};
    if (h->count == h->k) order(h);
}

void ks_heap_sort(ks_heap *h)
{
    if (h->count < h->k) order(h);
    for (int left = h->count; left-- > 1;) {
        const ks_heap_place worst = h->places[0];
        h->places[0] = h->places[left];
        h->places[left] = worst;
        sink(h->places, left, 0);
    }
}
