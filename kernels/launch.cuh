/* What backend_cuda.cu and an op's .cu file agree on: how a kernel finds its jobs, and how it says that it is done.
 *
 * One launch serves a bucket of jobs: blockIdx.y is the job, blockIdx.x the op's own. A kernel reads the addresses of its
 * job from the lane's parameter block, because a captured graph's arguments are frozen. Jobs at or beyond block->count
 * are surplus CTAs of the bucket: they return at once, before any barrier.
 *
 *   __global__ void k(ks_site site, ...) {
 *       if (blockIdx.y >= site.block->count) return;
 *       ks_enter(site);                                    first kernel of the op only: stamps the start
 *       const ks_entry job = site.block->entry[blockIdx.y];
 *       ... every thread of the CTA reaches the end ...
 *       ks_leave(site);                                    last kernel of the op only: ticket, end stamp, flag
 *   }
 *
 * Grids: gridDim.x <= KS_GRID_MAX (loop over the rest), gridDim.y == site bucket, gridDim.z == 1. So a ticket per CTA stays
 * cheap. An op of several kernels uses site.workspace (workspace_bytes per job, job j at j * workspace_stride) between them. */
#ifndef KS_LAUNCH_CUH
#define KS_LAUNCH_CUH

#include <cuda_runtime.h>

#include "kernserve/backend.h"

enum { KS_GRID_MAX = 4096 };

typedef struct ks_entry {
    const unsigned char *in; /* side of the slot, or the lane's device copy of it: add the tensor's offset */
    unsigned char *out;
} ks_entry;

/* In memory that the device reads quickly or that is mapped; written by the host before each launch. */
typedef struct ks_block {
    uint32_t sequence; /* what the line must show when this launch is done; never 0 */
    uint32_t count;    /* jobs, <= bucket */
    ks_entry entry[KS_BATCH_MAX];
} ks_block;

/* Mapped host memory that the shard polls: one cache line of a lane. */
typedef struct ks_line {
    uint64_t start_ns, end_ns; /* %globaltimer */
    uint32_t sequence;         /* written last, release at system scope */
} ks_line;

/* By value as each kernel's first argument: fixed for a lane. */
typedef struct ks_site {
    const ks_block *block;
    ks_line *line;
    uint32_t *ticket; /* device memory, 0 between launches */
    unsigned char *workspace;
    size_t workspace_stride;
} ks_site;

/* Of the device, for planners. */
typedef struct ks_chip {
    int capability; /* 80, 90, 100, 120 */
    int sms;
    size_t shared_optin; /* dynamic shared memory per CTA after opt-in */
    size_t l2_bytes;
    size_t
        workspace_bytes; /* a job's most, all jobs of the bucket together: the planner keeps workspace * batch_max within it */
} ks_chip;

/* What a planner decides; `choice` is the op's own and goes to its launcher unread. */
typedef struct ks_cuda_plan {
    bool once;              /* each input byte is read from memory at most about once: may work on mapped slots */
    int batch_max;          /* jobs in one launch (1 where the op cannot) */
    size_t workspace_bytes; /* per job, multiple of KS_ALIGNMENT */
    unsigned char choice[KS_CHOICE_BYTES];
} ks_cuda_plan;

/* Choosing only, no device calls but attribute look-ups cached at start. KS_WORK: cannot be done on this chip. */
typedef ks_status ks_cuda_plan_fn(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
/* Enqueues the kernels for `bucket` jobs on the stream; called under capture and outside it; allocates nothing,
 * synchronises nothing. KS_DEVICE: a launch failed (cudaGetLastError checked after each). */
typedef ks_status ks_cuda_launch_fn(const ks_spec *spec, const void *choice, ks_site site, int bucket,
                                    cudaStream_t stream, ks_error *error);
/* Once, at open: cudaFuncSetAttribute and the like. */
typedef ks_status ks_cuda_setup_fn(const ks_chip *chip, ks_error *error);

#define OP(name)                                                                                                       \
    extern "C" ks_cuda_setup_fn ks_##name##_cuda_setup;                                                                \
    extern "C" ks_cuda_plan_fn ks_##name##_cuda_plan;                                                                  \
    extern "C" ks_cuda_launch_fn ks_##name##_cuda_launch;
#include "ops.def"
#undef OP

#ifdef __CUDACC__

__device__ __forceinline__ uint64_t ks_globaltimer()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ __forceinline__ void ks_enter(const ks_site &site)
{
    if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) {
        site.line->start_ns = ks_globaltimer();
        __threadfence_system();
    }
}

/* Each thread's stores become visible to the host, then the CTA takes a ticket; the last one of the live CTAs re-arms the
 * ticket (replays start clean) and writes the flag. threadIdx must be one-dimensional. */
__device__ __forceinline__ void ks_leave(const ks_site &site)
{
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t live = gridDim.x * site.block->count;
        if (atomicAdd(site.ticket, 1u) == live - 1) {
            *site.ticket = 0;
            site.line->end_ns = ks_globaltimer();
            __threadfence_system();
            *(volatile uint32_t *)&site.line->sequence = site.block->sequence;
        }
    }
}

#endif
#endif
