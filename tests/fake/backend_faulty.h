/* Overrides of fake_backend.h by which any backend fails, or does not come to an end, on demand. One at a time, and open may fail as well,
 * so the fault is a static of this file. Threads: as the base; arming is for a time in which no lane works. */
#ifndef KS_BACKEND_FAULTY_H
#define KS_BACKEND_FAULTY_H
#include "kernserve/backend.h"

typedef enum ks_fault_kind {
    KS_FAULT_NONE,
    KS_FAULT_OOM,    /* this call fails with KS_MEMORY; the next one works */
    KS_FAULT_STICKY, /* this call and all after it fail with KS_DEVICE; failed() is true */
    KS_FAULT_HANG,   /* launch or poll: the lane's work never ends */
    KS_FAULT_GARBAGE /* launch or poll: the work ends well, with wrong bytes in every output */
} ks_fault_kind;

typedef enum ks_fault_call {
    KS_FAULT_OPEN,
    KS_FAULT_SLOT_INIT,
    KS_FAULT_LANE_OPEN,
    KS_FAULT_PREPARE,
    KS_FAULT_CAPTURE,
    KS_FAULT_LAUNCH,
    KS_FAULT_POLL,
    KS_FAULT_CALLS
} ks_fault_call;

/* With nothing armed. */
const ks_backend *ks_faulty_backend(const ks_backend *inner);
/* From now on the n-th call (1: the next) fails; polls that say KS_RUNNING do not count. */
void ks_faulty_arm(ks_fault_call call, int n, ks_fault_kind kind);
int ks_faulty_calls(ks_fault_call call); /* since the last arm or wrap */
/* As on a GPU: the engine looks at busy lanes, which wake nobody. Behind the wrap. */
void ks_faulty_polled(bool polled);
/* While there is a file of that name no work ends; that is no stall. The name stays the caller's. Behind the wrap. */
void ks_faulty_hold(const char *path);
/* The first launch, of whatever process, that finds a file of that name takes it away and loses its device: by trap(), which sends a kernel that
 * traps; NULL: as KS_FAULT_STICKY does. Behind the wrap. */
void ks_faulty_trap(const char *path, void (*trap)(void));
#endif
