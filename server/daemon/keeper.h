/* The thread that looks after the store of tensors, once a second: what has outlived its ttl goes, and memory that is not in use goes back
 * to the system. On a thread of its own, because the driver may take its time, and for ever on a device that is lost. */
#ifndef KS_KEEPER_H
#define KS_KEEPER_H
#include "resident/store.h"

typedef struct ks_keeper ks_keeper;

/* KS_SYSTEM, KS_MEMORY */
ks_status ks_keeper_open(ks_store *store, ks_keeper **out, ks_error *error);
void ks_keeper_close(ks_keeper **keeper);
#endif
