/* What the daemon knows of its device at best: nothing at start, more as it is measured.
 *
 * Owns     the values, and the texts that say how they were measured: they stay until close.
 * Threads  ks_ceilings_measure, ks_ceilings_due: one thread at a time. The others: any; a value is written once.
 * Units    as ks_ceilings. */
#ifndef KS_ENGINE_CEILINGS_H
#define KS_ENGINE_CEILINGS_H
#include "kernserve/backend.h"
#include "observe/roofline/roofline.h"

typedef struct ks_ceiling_store ks_ceiling_store;

/* memory_max: bytes of host memory that a measurement may use. NULL: memory. */
ks_ceiling_store *ks_ceilings_open(const ks_backend *backend, ks_device *device, size_t memory_max);
void ks_ceilings_close(ks_ceiling_store **store);
/* What is known, for work of that datatype. Asks for what is not: later measurements find it. */
void ks_ceilings_read(ks_ceiling_store *store, ks_dtype dtype, ks_ceilings *out);
/* Without asking for anything. 0: not known. */
double ks_ceilings_tflops(const ks_ceiling_store *store, ks_dtype dtype);
double ks_ceilings_copy_gbs(const ks_ceiling_store *store);
/* Blocks while it measures one thing that is not known: the rates of memory first, then what was asked for.
 * true: something was tried. What fails is not tried again. */
bool ks_ceilings_measure(ks_ceiling_store *store);
bool ks_ceilings_due(const ks_ceiling_store *store); /* it would try something */
#endif
