/* The thread that looks once a second after what stays: tensors that have outlived their ttl go, and device memory that is not in
 * use goes back to the system. On a thread of its own, because the driver may take its time, and for ever on a device that is lost. */
#ifndef KS_KEEPER_H
#define KS_KEEPER_H
#include "resident/store.h"

typedef struct ks_keeper ks_keeper;

/* The backend has `resident`. store: NULL where no tensors are kept. KS_SYSTEM, KS_MEMORY. */
ks_status ks_keeper_open(const ks_backend *backend, ks_device *device, ks_store *store, ks_keeper **out,
                         ks_error *error);
void ks_keeper_close(ks_keeper **keeper);
#endif
