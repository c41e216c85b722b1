/* One engine's slots: size classes with free lists, and overflow slots in ordinary memory under the daemon's budget.
 * Owns the slots. The shard's thread only. No allocation but for an overflow slot. */
#ifndef KS_SLOTS_H
#define KS_SLOTS_H
#include "engine/engine.h"

typedef struct ks_slots ks_slots;

/* Takes every slot of every class. KS_MEMORY. */
ks_status ks_slots_open(const ks_engine_options *options, ks_slots **out, ks_error *error);
/* Also what is still out: nothing may use it any more. */
void ks_slots_close(ks_slots **slots);

/* The smallest class whose sides hold that much and that has a free slot; else overflow. KS_BUDGET, KS_MEMORY. */
ks_status ks_slots_take(ks_slots *slots, size_t in_bytes, size_t out_bytes, ks_slot **out, ks_error *error);
/* keep_memory: a lost device may still write to the slot, so its memory stays mapped and is not handed out again. */
void ks_slots_give(ks_slots *slots, ks_slot **slot, bool keep_memory);

/* Clears what requests left in slots that were not taken since the last pass; a long one takes several passes. Slots in use
 * are never cleared: their next bytes take the place of the last ones, and a memset for each request was up to a fifth of
 * what a shard does for one of 1 MiB. */
void ks_slots_scrub(ks_slots *slots);
/* Whether a pass has something to do, now or later. */
bool ks_slots_dirty(const ks_slots *slots);

/* Whether some class has slots of that size, free or not. */
bool ks_slots_hold(const ks_slots *slots, size_t in_bytes, size_t out_bytes);
/* Whether a class has one to give. */
bool ks_slots_free(const ks_slots *slots, size_t in_bytes, size_t out_bytes);

uint64_t ks_slots_total_bytes(const ks_slots *slots); /* of the classes, without pads */
uint64_t ks_slots_used_bytes(const ks_slots *slots);  /* of the classes' slots that are out */
#endif
