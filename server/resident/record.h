/* The names of tensors, in memory that outlives the process: a supervisor's file of memory, which it hands to each worker that it starts.
 * A worker finds there which names were lost with the one before. */
#ifndef KS_RESIDENT_RECORD_H
#define KS_RESIDENT_RECORD_H
#include <stdbool.h>
#include <stdint.h>

#include "kernserve/status.h"

typedef struct ks_name_record ks_name_record;

/* A name that was there. */
typedef struct ks_recorded {
    const char *tenant, *name, *etag;
    uint64_t generation; /* of the process that wrote it */
} ks_recorded;

/* fd: KS_RECORD_BYTES, which stays the caller's. KS_SYSTEM. */
ks_status ks_name_record_open(int fd, ks_name_record **out, ks_error *error);
void ks_name_record_close(ks_name_record **record);
/* Returns the slot; -1: there is no room, or record is NULL. */
int ks_name_record_add(ks_name_record *record, const ks_recorded *name);
void ks_name_record_remove(ks_name_record *record, int slot); /* slot -1: nothing */
/* false: the slot is free. At most ks_name_record_slots. */
bool ks_name_record_read(const ks_name_record *record, int slot, ks_recorded *out);
int ks_name_record_slots(const ks_name_record *record);
#endif
