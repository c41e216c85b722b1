/* Owns      the mapping; free slots are a stack, so that a slot given back is the next one taken.
 * Interface record.h
 * Threads   one at a time: the store's lock
 * Limits    one slot a name, some 12,000: a name without one is unknown after a restart, not lost. A slot counts once its last byte
 *           is written: a process that dies amid it leaves it free. */
#include "resident/record.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "resident/store.h"

typedef struct name_slot {
    uint64_t generation;
    char tenant[KS_TENANT_NAME_MAX + 1], name[KS_TENSOR_NAME_MAX + 1], etag[KS_ETAG_MAX + 1];
    _Atomic unsigned char used;
} name_slot;

enum { SLOTS = KS_RECORD_BYTES / sizeof(name_slot) };

struct ks_name_record {
    name_slot *slots;
    int free_count, free[SLOTS];
};

ks_status ks_name_record_open(int fd, ks_name_record **out, ks_error *error)
{
    ks_name_record *record = malloc(sizeof *record);
    if (!record) return ks_fail(error, KS_MEMORY, "no memory for the record of tensors' names");
    record->slots = mmap(NULL, KS_RECORD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (record->slots == MAP_FAILED) {
        free(record);
        return ks_fail(error, KS_SYSTEM, "the supervisor's record of tensors' names: %s", strerror(errno));
    }
    record->free_count = 0;
    for (int i = SLOTS - 1; i >= 0; i--)
        if (!record->slots[i].used) record->free[record->free_count++] = i;
    *out = record;
    return KS_OK;
}

void ks_name_record_close(ks_name_record **record)
{
    if (*record) munmap((*record)->slots, KS_RECORD_BYTES);
    free(*record);
    *record = NULL;
}

int ks_name_record_slots(const ks_name_record *record)
{
    return record ? SLOTS : 0;
}

int ks_name_record_add(ks_name_record *record, const ks_recorded *name)
{
    if (!record || record->free_count == 0) return -1;
    const int at = record->free[--record->free_count];
    name_slot *slot = &record->slots[at];
    slot->generation = name->generation;
    snprintf(slot->tenant, sizeof slot->tenant, "%s", name->tenant);
    snprintf(slot->name, sizeof slot->name, "%s", name->name);
    snprintf(slot->etag, sizeof slot->etag, "%s", name->etag);
    atomic_store_explicit(&slot->used, 1, memory_order_release);
    return at;
}

void ks_name_record_remove(ks_name_record *record, int slot)
{
    if (!record || slot < 0) return;
    atomic_store_explicit(&record->slots[slot].used, 0, memory_order_release);
    record->free[record->free_count++] = slot;
}

bool ks_name_record_read(const ks_name_record *record, int at, ks_recorded *out)
{
    name_slot *slot = &record->slots[at];
    if (!atomic_load_explicit(&slot->used, memory_order_acquire)) return false;
    slot->tenant[KS_TENANT_NAME_MAX] = slot->name[KS_TENSOR_NAME_MAX] = slot->etag[KS_ETAG_MAX] = 0;
    *out = (ks_recorded){slot->tenant, slot->name, slot->etag, slot->generation};
    return true;
}
