/* Owns       the form of an ask: one word, the number of the ask above its parameters, so that a part says for certain whose it is.
 * Interface  ask.h */
#include "observe/workers/ask.h"

#include <string.h>

#include "base/clock.h"

enum { KIND_SHIFT = 0, CSV_SHIFT = 4, ORDER_SHIFT = 8, NUMBER_SHIFT = 16, COUNT_SHIFT = 32 };

static uint64_t pack(ks_workers *workers, const ks_part_ask *ask)
{
    const uint64_t count = atomic_fetch_add(&workers->asks, 1) + 1;
    return count << COUNT_SHIFT | (uint64_t)ask->number << NUMBER_SHIFT | (uint64_t)ask->order << ORDER_SHIFT |
           (uint64_t)ask->csv << CSV_SHIFT | (uint64_t)ask->kind << KIND_SHIFT;
}

uint64_t ks_worker_asked(const ks_worker_row *row, ks_part_ask *out)
{
    const uint64_t word = atomic_load(&row->ask);
    *out = (ks_part_ask){.kind = (ks_part_kind)(word >> KIND_SHIFT & 15),
                         .csv = (word >> CSV_SHIFT & 1) != 0,
                         .order = (uint8_t)(word >> ORDER_SHIFT),
                         .number = (uint16_t)(word >> NUMBER_SHIFT)};
    return word;
}

void ks_part_begin(ks_text *part, uint64_t number)
{
    ks_text_add(part, (const char *)&number, sizeof number);
}

static void put(ks_worker_row *row, uint64_t word)
{
    atomic_store(&row->ask, word);
    ks_worker_want(row);
}

/* Whether what the worker has published is for this ask: then without its number. */
static bool read_part(ks_workers *workers, int index, uint64_t word, ks_text *out)
{
    uint64_t number = 0;
    out->length = 0;
    const bool there = ks_worker_read(workers, index, KS_WORKER_PART, out) && out->length >= sizeof number;
    if (there) memcpy(&number, out->bytes, sizeof number);
    if (number != word) return false;
    out->length -= sizeof number;
    memmove(out->bytes, out->bytes + sizeof number, out->length);
    return true;
}

static bool wait_for(ks_workers *workers, int index, uint64_t word, int64_t until_ns, ks_text *out)
{
    ks_worker_row *row = &workers->row[index];
    for (;;) {
        const uint32_t made = atomic_load(&row->made);
        if (read_part(workers, index, word, out)) return true;
        const int64_t now_ns = ks_now_ns();
        if (now_ns >= until_ns || !ks_worker_is_up(row)) return false;
        if (atomic_load(&row->ask) != word) put(row, word);
        ks_worker_wait_made(row, made, until_ns - now_ns);
    }
}

unsigned ks_workers_ask(ks_workers *workers, int self, const ks_part_ask *ask, int64_t timeout_ns,
                        ks_text parts[KS_WORKERS_MAX])
{
    const uint64_t word = pack(workers, ask);
    const int64_t now_ns = ks_now_ns();
    unsigned asked = 0, answered = 0;
    for (int i = 0; i < workers->count; i++) {
        ks_worker_row *row = &workers->row[i];
        ks_text_init(&parts[i], KS_WORKER_PART_MAX);
        if (i == self || !ks_worker_is_up(row) || ks_worker_is_stuck(row, now_ns)) continue;
        put(row, word);
        asked |= 1u << i;
    }
    for (int i = 0; i < workers->count; i++)
        if (asked >> i & 1 && wait_for(workers, i, word, now_ns + timeout_ns, &parts[i])) answered |= 1u << i;
    return answered;
}
