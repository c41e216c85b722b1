#include "slots.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A slot and what its holder asked for: only that much can be dirty. The public part comes first, so that either
 * address is the other. */
typedef struct entry {
    ks_slot slot;
    size_t in_used, out_used;
    struct entry *newer, *older; /* overflow slots that are out, or kept */
} entry;

struct ks_slots {
    const ks_backend *backend;
    ks_device *device;
    ks_budget *budget;
    bool scrub;
    int classes;
    size_t side_bytes[KS_SIZE_CLASSES_MAX];
    ks_slot *free[KS_SIZE_CLASSES_MAX];
    entry *overflow;
    uint64_t total_bytes, used_bytes;
    size_t count;
    entry entries[];
};

enum { OVERFLOW = -1 };

static entry *entry_of(ks_slot *slot)
{
    return (entry *)slot;
}

static ks_status open_class(ks_slots *slots, int size_class, int count, bool pinned, ks_error *error)
{
    const size_t side = slots->side_bytes[size_class];
    for (int i = 0; i < count; i++) {
        ks_slot *slot = &slots->entries[slots->count].slot;
        const ks_status status = slots->backend->slot_init(slots->device, side, side, pinned, slot, error);
        if (status != KS_OK) return status;
        slot->size_class = size_class;
        slot->next = slots->free[size_class];
        slots->free[size_class] = slot;
        slots->count++;
        slots->total_bytes += 2 * (uint64_t)side;
    }
    return KS_OK;
}

ks_status ks_slots_open(const ks_engine_options *options, ks_slots **out, ks_error *error)
{
    size_t count = 0;
    for (int i = 0; i < options->classes; i++) count += (size_t)options->size_class[i].count;
    ks_slots *slots = calloc(1, sizeof *slots + count * sizeof *slots->entries);
    if (!slots) return ks_fail(error, KS_MEMORY, "no memory for the table of %zu slots", count);
    slots->backend = options->backend;
    slots->device = options->device;
    slots->budget = options->budget;
    slots->scrub = options->scrub;
    slots->classes = options->classes;
    for (int i = 0; i < options->classes; i++) {
        assert(i == 0 || options->size_class[i].side_bytes > options->size_class[i - 1].side_bytes);
        slots->side_bytes[i] = options->size_class[i].side_bytes;
        const ks_status status = open_class(slots, i, options->size_class[i].count, options->pinned, error);
        if (status != KS_OK) {
            ks_slots_close(&slots);
            return status;
        }
    }
    *out = slots;
    return KS_OK;
}

/* --- overflow ----------------------------------------------------------------------------------------------------- */

static uint64_t overflow_bytes(size_t in_bytes, size_t out_bytes)
{
    return (uint64_t)in_bytes + out_bytes + KS_HEAD_ROOM + 2 * (KS_PAD + KS_ALIGNMENT);
}

static ks_status take_overflow(ks_slots *slots, size_t in_bytes, size_t out_bytes, ks_slot **out, ks_error *error)
{
    const uint64_t bytes = overflow_bytes(in_bytes, out_bytes);
    if (in_bytes > SIZE_MAX / 4 || out_bytes > SIZE_MAX / 4 || !ks_budget_take(slots->budget, bytes))
        return ks_fail(error, KS_BUDGET,
                       "no buffer free for %zu bytes in and %zu bytes out: %llu of %llu bytes in flight are taken",
                       in_bytes, out_bytes, (unsigned long long)ks_budget_used(slots->budget),
                       (unsigned long long)ks_budget_limit(slots->budget));
    entry *made = calloc(1, sizeof *made);
    const ks_status status =
        made ? slots->backend->slot_init(slots->device, in_bytes, out_bytes, false, &made->slot, error)
             : ks_fail(error, KS_MEMORY, "no memory for an overflow slot");
    if (status != KS_OK) {
        free(made);
        ks_budget_give(slots->budget, bytes);
        return status;
    }
    made->slot.size_class = OVERFLOW;
    made->in_used = in_bytes;
    made->out_used = out_bytes;
    made->older = slots->overflow;
    if (made->older) made->older->newer = made;
    slots->overflow = made;
    *out = &made->slot;
    return KS_OK;
}

static void give_overflow(ks_slots *slots, entry *given)
{
    ks_budget_give(slots->budget, overflow_bytes(given->in_used, given->out_used));
    *(given->newer ? &given->newer->older : &slots->overflow) = given->older;
    if (given->older) given->older->newer = given->newer;
    slots->backend->slot_fini(slots->device, &given->slot);
    free(given);
}

/* --- take and give ------------------------------------------------------------------------------------------------ */

/* The smallest class that has a slot of that size to give; slots->classes: none. */
static int find_class(const ks_slots *slots, size_t in_bytes, size_t out_bytes)
{
    const size_t side = in_bytes > out_bytes ? in_bytes : out_bytes;
    int i = 0;
    while (i < slots->classes && (side > slots->side_bytes[i] || !slots->free[i])) i++;
    return i;
}

ks_status ks_slots_take(ks_slots *slots, size_t in_bytes, size_t out_bytes, ks_slot **out, ks_error *error)
{
    const int i = find_class(slots, in_bytes, out_bytes);
    if (i == slots->classes) return take_overflow(slots, in_bytes, out_bytes, out, error);
    ks_slot *slot = slots->free[i];
    slots->free[i] = slot->next;
    slot->next = NULL;
    entry_of(slot)->in_used = in_bytes;
    entry_of(slot)->out_used = out_bytes;
    slots->used_bytes += 2 * (uint64_t)slots->side_bytes[i];
    *out = slot;
    return KS_OK;
}

bool ks_slots_free(const ks_slots *slots, size_t in_bytes, size_t out_bytes)
{
    return find_class(slots, in_bytes, out_bytes) < slots->classes;
}

/* What the request put into the slot, what came out, and the head of its answer; pads are never written. The time is
 * that of one memset over bytes that were just in use; 16 MiB take a few milliseconds of the shard. */
static void clear(const entry *given, int byte)
{
    memset(given->slot.in, byte, given->in_used);
    memset(given->slot.out - KS_HEAD_ROOM, byte, KS_HEAD_ROOM + given->out_used);
}

void ks_slots_give(ks_slots *slots, ks_slot **slot, bool keep_memory)
{
    entry *given = entry_of(*slot);
    *slot = NULL;
    const int size_class = given->slot.size_class;
    if (size_class != OVERFLOW) slots->used_bytes -= 2 * (uint64_t)slots->side_bytes[size_class];
    if (keep_memory) return; /* overflow: stays in the list, and in the budget, until close */
    if (size_class == OVERFLOW) {
        give_overflow(slots, given);
        return;
    }
#ifdef KS_POISON
    clear(given, 0xA5); /* a stale reader, or an output byte that nobody wrote, shows in the tests */
#else
    if (slots->scrub) clear(given, 0);
#endif
    given->slot.next = slots->free[size_class];
    slots->free[size_class] = &given->slot;
}

void ks_slots_close(ks_slots **slots)
{
    ks_slots *closing = *slots;
    if (!closing) return;
    *slots = NULL;
    while (closing->overflow) give_overflow(closing, closing->overflow);
    for (size_t i = 0; i < closing->count; i++) closing->backend->slot_fini(closing->device, &closing->entries[i].slot);
    free(closing);
}

bool ks_slots_hold(const ks_slots *slots, size_t in_bytes, size_t out_bytes)
{
    const size_t side = in_bytes > out_bytes ? in_bytes : out_bytes;
    return slots->classes > 0 && side <= slots->side_bytes[slots->classes - 1];
}

uint64_t ks_slots_total_bytes(const ks_slots *slots)
{
    return slots->total_bytes;
}

uint64_t ks_slots_used_bytes(const ks_slots *slots)
{
    return slots->used_bytes;
}
