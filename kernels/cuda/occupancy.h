/* How many CTAs of a kernel an SM holds by each of its limits. Pure arithmetic: no CUDA, in every build. */
#ifndef KS_CUDA_OCCUPANCY_H
#define KS_CUDA_OCCUPANCY_H
#include "kernserve/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ks_sm_limits {
    int registers, threads, ctas;
    size_t shared_bytes, shared_reserved; /* of these the system takes so many for each CTA */
} ks_sm_limits;

/* Fills by_registers, by_shared, by_threads, by_ctas and warps_max from registers and static_shared_bytes of *occupancy, and from the
 * launch: threads of a CTA, its dynamic shared memory. Registers are given out by warp, 256 at a time, on four parts of an SM; shared
 * memory 128 bytes at a time. */
void ks_occupancy_limit(const ks_sm_limits *sm, int threads, size_t dynamic_bytes, ks_occupancy *occupancy);

#ifdef __cplusplus
}
#endif
#endif
