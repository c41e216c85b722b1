#include "engine/slots.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A slot, what its holder asked for, and how much may hold what some request left, from each side's beginning; the out
 * side's begins with the head room. The public part comes first, so that either address is the other. */
typedef struct entry {
    ks_slot slot;
    size_t in_used, out_used;
    size_t in_dirty, out_dirty;
    bool out;                    /* in use */
    bool listed;                 /* in `dirty` */
    unsigned given;              /* ks_slots.pass, when it was given back */
    struct entry *dirtier;       /* next in `dirty` */
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
    entry *dirty; /* given back and not cleared since; some may be out again */
    unsigned pass;
    uint64_t total_bytes, used_bytes;
    size_t count;
    entry entries[];
};

enum {
    OVERFLOW = -1,
    SCRUB_BYTES = 8 << 20 /* of a pass: about a millisecond; a shard of the usual pool needs a second at most */
};

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
                       "no buffer free for %zu bytes in and %zu bytes out: %llu of %llu bytes in flight are taken "
                       "(--pinned-bytes, --inflight-bytes)",
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

/* --- take --------------------------------------------------------------------------------------------------------- */

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
    entry_of(slot)->out = true;
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

/* --- scrub -------------------------------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* What the request put into the slot, what came out, and the head of its response; pads are never written. */
static void mark(entry *given)
{
    given->in_dirty = larger(given->in_dirty, given->in_used);
    given->out_dirty = larger(given->out_dirty, KS_HEAD_ROOM + given->out_used);
}

static void list(ks_slots *slots, entry *given)
{
    given->given = slots->pass;
    if (given->listed) return;
    given->listed = true;
    given->dirtier = slots->dirty;
    slots->dirty = given;
}

static void clear_end(unsigned char *side, size_t *dirty, int byte, size_t *most)
{
    const size_t n = *dirty < *most ? *dirty : *most;
    *dirty -= n;
    *most -= n;
    memset(side + *dirty, byte, n);
}

/* At most that many bytes, from the end; whether it is clean. */
static bool clear(entry *dirty, int byte, size_t most)
{
    clear_end(dirty->slot.in, &dirty->in_dirty, byte, &most);
    clear_end(dirty->slot.out - KS_HEAD_ROOM, &dirty->out_dirty, byte, &most);
    return dirty->in_dirty + dirty->out_dirty == 0;
}

void ks_slots_scrub(ks_slots *slots)
{
    size_t left = SCRUB_BYTES;
    entry **link = &slots->dirty;
    while (*link && left > 0) {
        entry *const one = *link;
        const size_t bytes = one->in_dirty + one->out_dirty;
        const bool rests = !one->out && one->given != slots->pass;
        if (one->out || (rests && clear(one, 0, left))) {
            one->listed = false; /* its user leaves it dirty again */
            *link = one->dirtier;
        } else {
            link = &one->dirtier;
        }
        if (rests) left -= bytes < left ? bytes : left;
    }
    slots->pass++;
}

bool ks_slots_dirty(const ks_slots *slots)
{
    return slots->dirty != NULL;
}

/* --- give --------------------------------------------------------------------------------------------------------- */

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
    given->out = false;
    mark(given);
#ifdef KS_POISON
    clear(given, 0xA5, SIZE_MAX); /* a stale reader, or an output byte that was not written, shows in the tests */
#endif
    if (slots->scrub) list(slots, given);
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
