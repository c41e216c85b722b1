/* Names of tensors that one of several workers has alone (--devices): a table in memory that all of them map, where each finds whose a name
 * is. It outlives a worker: the names of one whose process has ended are lost, until they are put again, deleted, or their time is over.
 * The tensors themselves are in that worker's store (store.h), which keeps its part of the table; a name is in no other one's then.
 *
 * Limits   KS_PLACED_MAX names of all workers.
 * Threads  any, of any process: a lock of all workers, for some microseconds. A process that ends with it: its supervisor lets go of it, and
 *          the next one puts the table in order. One that is stopped with it holds up the others for KS_PLACED_WAIT_NS: KS_UNAVAILABLE. */
#ifndef KS_RESIDENT_PLACED_H
#define KS_RESIDENT_PLACED_H
#include "observe/workers/workers.h"
#include "resident/store.h"

enum { KS_PLACED_MAX = 16384 };
static const int64_t KS_PLACED_WAIT_NS = 100000000;

typedef enum ks_placing {
    KS_PLACED_NOWHERE,   /* no worker has it alone */
    KS_PLACED_HERE,      /* this one does */
    KS_PLACED_ELSEWHERE, /* another one */
    KS_PLACED_GONE,      /* one whose process has ended */
    KS_PLACED_UNKNOWN    /* the table cannot be had now */
} ks_placing;

/* Whether one worker may have tensors alone here. */
static inline bool ks_placed_is(const ks_placed *self)
{
    return self->workers && self->workers->count > 1;
}
bool ks_placed_has_any(const ks_placed *self); /* names, of any worker; no lock */
/* *row: of its worker, also where that has ended. name need not be terminated. A name that is nowhere takes no lock, in general. */
ks_placing ks_placed_find(const ks_placed *self, const char *tenant, const char *name, size_t length, int *row);
/* Why a look-up of a name that this worker's store has not fails, where the table knows; KS_OK: it does not. KS_LOST, KS_PLACED,
 * KS_UNAVAILABLE. */
ks_status ks_placed_explain(const ks_placed *self, const char *tenant, const char *name, size_t length,
                            ks_error *error);
/* A change of all workers is about to put the name on all: until that is over, or dropped, none claims it. false: not now. */
bool ks_placed_announce(const ks_placed *self, uint32_t change, const char *tenant, const char *name);
/* The name is this worker's. *made: it was not before. KS_PLACED: it is another one's; KS_RESIDENT_FULL; KS_UNAVAILABLE, also where it is
 * announced, or another one that looks like it (1 of 65,536). */
ks_status ks_placed_claim(const ks_placed *self, const char *tenant, const char *name, bool *made, ks_error *error);
/* What documents say of it: claimed before. */
void ks_placed_fill(const ks_placed *self, const char *tenant, const ks_tensor_entry *entry);
/* It has no worker, where it was this worker's or is lost. true: it was lost. */
bool ks_placed_drop(const ks_placed *self, const char *tenant, const char *name);
/* Entries of the others' and of lost ones, by name; returns how many. */
int ks_placed_list(const ks_placed *self, const ks_list_part *part, ks_tensor_entry *out, bool *more);
/* Once a second, in each worker: lost names go once they are that for ttl_s seconds; 0: for ever. */
void ks_placed_turn(const ks_placed *self, int64_t ttl_s);
#endif
