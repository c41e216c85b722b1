/* What the CUDA backend and an op's .cu file agree on: how a kernel finds its jobs, and how it says that it is done.
 *
 * Two ways of one kernel. On device memory there is one job at fixed addresses, which come by value, and nothing has to
 * be made visible to the host: the stream orders the copy behind the kernel. On mapped slots a launch serves a bucket of
 * jobs whose addresses stand in the lane's job table, because a captured graph's arguments are frozen; blockIdx.y
 * is the job, blockIdx.x the op's own, and CTAs of jobs at or beyond job_table->turn.count are surplus: they return at once,
 * before any barrier.
 *
 *   __global__ void k(ks_site site, ...) {
 *       ks_job_sides job;
 *       if (!ks_enter(site, &job)) return;      every kernel of the op; the first one's CTA 0 stamps the start
 *       ... every thread of the CTA reaches the end ...
 *       ks_leave(site);                         last kernel of the op only: end stamp; on mapped slots ticket and flag
 *   }
 *
 * An op whose values decide calls ks_refuse(site, input, place) for one that is out of bounds, and ends by ks_leave<true>(site).
 *
 * Grids: gridDim.y == site bucket, gridDim.z == 1; gridDim.x as the op likes, but on mapped slots a CTA costs a ticket,
 * so below KS_MAPPED_MOST bytes keep gridDim.x <= KS_GRID_MAX. An op of several kernels, or CTAs that finish each other's
 * work, use site.workspace (workspace_bytes per job, of any content) and site.counters (counters words per job, zero when
 * the launch starts, and set back to zero by the launch). */
#ifndef KS_LAUNCH_CUH
#define KS_LAUNCH_CUH

#include <cuda_runtime.h>

#include "kernserve/backend.h"
#include "cuda/common/ptx.cuh"

/* 1: while a chain's steps overlap, SMs share out all their memory, since to divide it anew an SM has to be empty. */
#ifndef KS_CUDA_STEPS_SHARED
#define KS_CUDA_STEPS_SHARED 1
#endif

enum {
    KS_GRID_MAX = 4096,
    KS_MAPPED_MOST = 4 << 20,  /* bytes, in + out: beyond it nothing works on mapped slots */
    KS_COUNTERS_MAX = 1 << 18, /* words of a lane, for all jobs of a launch together */
    KS_STAMPING = 256          /* CTAs, the last ones of a grid, that stamp the end on device memory */
};
static const uint32_t KS_TICKET_REFUSED = 1u << 31; /* in the ticket, above all CTAs: a status word was written */

typedef struct ks_job_sides {
    const unsigned char *in; /* side of the slot, or the lane's device copy of it: add the tensor's offset */
    unsigned char *out;
} ks_job_sides;

typedef struct alignas(8) ks_turn {
    uint32_t sequence; /* what the completion must show when this launch is done; never 0 */
    uint32_t count;    /* jobs, <= bucket */
} ks_turn;

/* In mapped memory; written by the host before each launch. Each read of it by a kernel crosses the link: a kernel makes them at once. */
typedef struct ks_job_table {
    ks_turn turn;
    ks_job_sides job[KS_BATCH_MAX];
    uint32_t
        first_row[KS_BATCH_MAX + 1]; /* of each joined job, among all rows of the launch; and behind the last one */
} ks_job_table;

/* On mapped slots: host memory that the shard polls, one cache line of a lane. On device memory: in front of the out
 * side, and copied out with it. */
typedef struct ks_completion {
    uint64_t start_ns; /* %globaltimer, as end_ns */
    uint64_t word;     /* the job's status word; on mapped slots 1 where some job's is not 0. The host clears it */
    uint64_t end_ns;   /* on mapped slots the last store of all, with what follows: release at system scope */
    uint64_t sequence; /* on mapped slots: the turn's */
} ks_completion;
/* Completions in front of an out side: the launch's; of a chain its first step's, then one that the steps behind it write in turn. */
enum { KS_COMPLETION_LINE = 2 };

/* By value as each kernel's first argument: fixed for a lane. What each launch on device memory looks at comes first: it lies in one line of
 * constants, which come from far away. */
typedef struct ks_site {
    const ks_job_table *job_table; /* mapped slots; NULL: device memory, one job, `only` */
    ks_job_sides only;
    ks_completion *completion;
    uint32_t steps;   /* ks_site_steps, of a chain's step whose plan says `early` */
    uint32_t node;    /* of a chain, whose step the launch is; 0: of none */
    uint32_t *ticket; /* device memory, 0 between launches */
    uint64_t *words;  /* mapped slots: the jobs' status words in device memory, 0 between launches, */
    uint64_t *shown;  /* and where the launch leaves them for the host, if one is not 0 */
    uint32_t *counters;
    unsigned char *workspace;
    size_t workspace_stride; /* bytes from one job's to the next */
    size_t counters_stride;  /* words, likewise */
    /* On device memory a launch in front of the op's, which lets it begin early, writes the operands, and has stamped the start. */
    bool behind;
} ks_site;

/* WAITS: the launch begins while the one in front ends, and its kernel waits for that. LETS: so does the launch behind. Both: ks_await(). */
enum ks_site_steps { KS_STEP_WAITS = 1, KS_STEP_LETS = 2 };

/* What a launch function would launch last: the kernel that does the work. */
typedef struct ks_launch_note {
    const void *kernel;
    int threads;
    size_t shared_bytes; /* dynamic */
} ks_launch_note;
extern thread_local ks_launch_note *ks_noting; /* while it is set, this thread's launches are noted, not made */

#ifdef __CUDACC__

/* A kernel's dynamic shared memory. */
extern __shared__ uint4 ks_dynamic[];

/* Adds to the attributes of a launch: early, it may begin while the one in front ends. Returns how many there are. */
static inline unsigned ks_launch_attributes(const ks_site &site, bool early, cudaLaunchAttribute *attributes,
                                            unsigned count)
{
    if (early) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (KS_CUDA_STEPS_SHARED && site.steps) {
        attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
        attributes[count++].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    }
    return count;
}

/* Launches a kernel. together: its CTAs wait for each other, and all are there at once. */
template <class... Taken, class... Given>
static cudaError_t ks_launch(void (*kernel)(ks_site, Taken...), dim3 grid, int threads, size_t shared_bytes,
                             bool together, cudaStream_t stream, const ks_site &site, const Given &...given)
{
    cudaLaunchAttribute attributes[3] = {};
    cudaLaunchConfig_t config = {};
    if (ks_noting) {
        *ks_noting = {(const void *)kernel, threads, shared_bytes};
        return cudaSuccess;
    }
    if (together) {
        attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attributes[config.numAttrs++].val.cooperative = 1;
    }
    config.numAttrs = ks_launch_attributes(site, site.steps & KS_STEP_WAITS, attributes, config.numAttrs);
    config.gridDim = grid;
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    return cudaLaunchKernelEx(&config, kernel, site, given...);
}

/* A step that begins early: the steps in front have ended, and what they wrote is seen. Each thread that reads what one of them may write, or
 * writes what one may read or write (operands, results, workspace, counters, status words), calls it first; and each launch calls it, so that
 * its end is the end of all in front of it. The step behind begins when all CTAs have come here, and takes what room is left. The start stamp of
 * a step that waits is of no use, and may stand in front. */
__device__ __forceinline__ void ks_await(const ks_site &site)
{
    if (site.steps & KS_STEP_WAITS) ks_launch_wait();
    if (site.steps & KS_STEP_LETS) ks_launch_next();
}

/* Where the job lies, for the kernels of an op behind its first one. false: a surplus CTA of the bucket, which returns. */
__device__ __forceinline__ bool ks_enter_again(const ks_site &site, ks_job_sides *job)
{
    *job = site.only;
    if (!site.job_table) return true;
    const uint32_t count = site.job_table->turn.count;
    *job = site.job_table->job[blockIdx.y]; /* of a surplus CTA in vain */
    return blockIdx.y < count;
}

/* The start stamp. A kernel for which each 100 ns counts calls it behind ks_enter_again() and its first loads. */
__device__ __forceinline__ void ks_start(const ks_site &site)
{
    if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) site.completion->start_ns = ks_globaltimer();
}

__device__ __forceinline__ bool ks_enter(const ks_site &site, ks_job_sides *job)
{
    if (!ks_enter_again(site, job)) return false;
    ks_start(site);
    return true;
}

__device__ __forceinline__ unsigned char *ks_workspace(const ks_site &site)
{
    return site.workspace + blockIdx.y * site.workspace_stride;
}

__device__ __forceinline__ uint32_t *ks_counters(const ks_site &site)
{
    return site.counters + blockIdx.y * site.counters_stride;
}

/* A value that decides is out of bounds. Any thread, before ks_leave<true>; rare, so what it costs does not count. */
__device__ __forceinline__ void ks_refuse(const ks_site &site, int input, int64_t place)
{
    uint64_t *word = site.job_table ? &site.words[blockIdx.y] : &site.completion->word;
    atomicMax((unsigned long long *)word, (unsigned long long)KS_BAD_WORD(site.node, input, place));
    if (site.job_table) atomicOr(site.ticket, KS_TICKET_REFUSED);
}

/* The last CTA's: the status words of all jobs go to the host, and are 0 again. */
__device__ __forceinline__ void ks_show_words(const ks_site &site)
{
    for (uint32_t i = 0; i < site.job_table->turn.count; i++) {
        site.shown[i] = *(volatile uint64_t *)&site.words[i];
        site.words[i] = 0;
    }
    site.completion->word = 1;
}

/* Mapped slots: the CTA's stores become visible to the host, then it takes a ticket; of turn.count times `ctas` the last one writes the flag
 * and re-arms the ticket (replays start clean). A CTA that is alone needs none. The turn has just been read, and is not looked at before the
 * fence: both take as long as the link. CHECKED: of an op that may refuse values. */
template <bool CHECKED = false>
__device__ __forceinline__ void ks_raise(const ks_site &site, uint32_t ctas, ks_turn turn)
{
    const bool alone = !CHECKED && gridDim.x == 1 && gridDim.y == 1;
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (!alone) {
        ks_fence_system(); /* of all that the barrier has made visible to this thread */
        const uint32_t before = atomicAdd(site.ticket, 1u);
        if ((CHECKED ? before & ~KS_TICKET_REFUSED : before) != ctas * turn.count - 1) return;
        if (CHECKED && (before & KS_TICKET_REFUSED)) ks_show_words(site);
    }
    ks_write_release(&site.completion->end_ns, {ks_globaltimer(), turn.sequence});
    if (!alone) *site.ticket = 0;
}

/* Device memory: of the last CTAs, the one whose store lands last leaves the end stamp; an atomic would be waited for, since
 * it answers. Mapped slots: the flag, when all live CTAs are here. threadIdx must be one-dimensional. */
template <bool CHECKED = false>
__device__ __forceinline__ void ks_leave(const ks_site &site)
{
    if (!site.job_table) {
        if (threadIdx.x == 0 && blockIdx.x + (uint32_t)KS_STAMPING >= gridDim.x)
            ks_write_relaxed(&site.completion->end_ns, ks_globaltimer());
        return;
    }
    ks_raise<CHECKED>(site, gridDim.x, site.job_table->turn);
}

#endif
#endif
