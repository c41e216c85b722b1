/* The arena: the largest life is placed first, at the lowest offset that is free as long as it lasts; of several of one size the one that
 * is made first.
 *
 * Cost     each life is set against all that are placed, which are looked through in one array by their offsets: the square of their
 *          number, but a nanosecond a pair (docs/models.md has the times). */
#include <stdlib.h>
#include <string.h>

#include "ops/chain/lives.h"

/* What is placed. */
typedef struct place {
    int first, last;
    size_t at, end;
} place;

typedef struct rank {
    size_t bytes;
    int number;
} rank;

/* A whole lives as long as its parts, which have lower numbers. */
static void join_lives(ks_life *life, int lives)
{
    for (int i = 0; i < lives; i++) {
        if (life[i].whole < 0) continue;
        ks_life *whole = &life[life[i].whole];
        if (life[i].first < whole->first) whole->first = life[i].first;
        if (life[i].last > whole->last) whole->last = life[i].last;
    }
}

static int by_size(const void *a, const void *b)
{
    const rank *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static int rank_lives(const ks_life *life, int lives, rank *out)
{
    int count = 0;
    for (int i = 0; i < lives; i++)
        if (life[i].output < 0 && life[i].whole < 0 && life[i].bytes > 0)
            out[count++] = (rank){.bytes = life[i].bytes, .number = i};
    qsort(out, (size_t)count, sizeof *out, by_size);
    return count;
}

/* The lowest offset beside those that are in use at some step of its life. */
static size_t find_offset(const place *placed, int count, const ks_life *own)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const place *other = &placed[i];
        if (own->first > other->last || other->first > own->last) continue;
        if (other->at >= at && other->at - at >= own->bytes) break;
        if (other->end > at) at = other->end;
    }
    return at;
}

static void insert(place *placed, int count, const ks_life *own)
{
    int low = 0, high = count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (placed[middle].at <= own->offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(&placed[low + 1], &placed[low], (size_t)(count - low) * sizeof *placed);
    placed[low] = (place){own->first, own->last, own->offset, own->offset + ks_align(own->bytes)};
}

ks_status ks_lives_place(ks_life *life, int lives, size_t *arena_bytes, ks_error *error)
{
    rank *order = malloc(((size_t)lives + 1) * sizeof *order);
    place *placed = malloc(((size_t)lives + 1) * sizeof *placed);
    const int count = order && placed ? (join_lives(life, lives), rank_lives(life, lives, order)) : 0;
    *arena_bytes = 0;
    for (int i = 0; i < count; i++) {
        ks_life *own = &life[order[i].number];
        own->offset = find_offset(placed, i, own);
        insert(placed, i, own);
        const size_t end = own->offset + ks_align(own->bytes);
        if (end > *arena_bytes) *arena_bytes = end;
    }
    const bool had_memory = order && placed;
    free(order);
    free(placed);
    return had_memory ? KS_OK : ks_fail(error, KS_MEMORY, "no memory to place %d values", lives);
}
