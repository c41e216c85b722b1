/* An op's side of the CUDA backend: ks_NAME_cuda, in cuda/NAME/NAME.cu, and what its functions take. The list of ops is ops.cu's alone, so
 * that a new op compiles no other one again. */
#ifndef KS_CUDA_OP_H
#define KS_CUDA_OP_H

#include "cuda/common/launch.cuh"

#include <cudaTypedefs.h>

/* Of one device, for planners and launchers. */
typedef struct ks_chip {
    int capability; /* 80, 90, 100, 120 */
    int sms;
    int threads_sm;            /* threads that an SM holds */
    int registers_sm, ctas_sm; /* likewise */
    size_t shared_sm;          /* shared memory of an SM */
    size_t shared_reserved;    /* that the system takes of it for each CTA */
    size_t shared_optin;       /* dynamic shared memory per CTA after opt-in */
    size_t l2_bytes;
    size_t
        workspace_bytes; /* a job's most, all jobs of the bucket together: the planner keeps workspace * batch_max within it */
    /* Found by an op's setup, 0 before: */
    int clusters
        [4]; /* of 1 << i CTAs, one CTA to an SM, that run at a time: fewer than the SMs make one think, because a
                        cluster stays within a part of the chip */
    bool launches_early;                            /* a launch may begin before the one in front of it has ended */
    PFN_cuTensorMapEncodeTiled_v12000 encode_tiled; /* NULL: no tensor maps, or no code for them in this build */
} ks_chip;

/* What a planner decides; `choice` is the op's own and goes to its launcher unread. */
typedef struct ks_cuda_plan {
    bool once;              /* each input byte is read from memory at most about once: may work on mapped slots */
    int batch_max;          /* jobs in one launch (1 where the op cannot) */
    size_t workspace_bytes; /* per job, multiple of KS_ALIGNMENT */
    size_t counters;        /* words per job; counters * batch_max <= KS_COUNTERS_MAX */
    bool unstamped;         /* a library's kernels: without ks_enter and ks_leave */
    bool early;             /* as a chain's step it is one launch, whose kernel calls ks_await(); else whole edges */
    uint16_t early_fixed; /* a bit for each input that it reads before it waits, which therefore has to be a constant */
    ks_kernel_info kernel_info;
    unsigned char algorithm[KS_ALGORITHM_BYTES];
} ks_cuda_plan;

/* Choosing only, no device calls but attribute look-ups cached at start. KS_WORK: cannot be done on this chip. */
typedef ks_status ks_cuda_plan_fn(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
/* A job's tensors lie at the spec's offsets from its sides, by unsigned arithmetic; one that is alone on its side lies at the side's start.
 * Enqueues the kernels for `bucket` jobs on the stream; called under capture and outside it; allocates nothing,
 * synchronises nothing. KS_DEVICE: a launch failed (cudaGetLastError checked after each). */
typedef ks_status ks_cuda_launch_fn(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site,
                                    int bucket, cudaStream_t stream, ks_error *error);
/* Once, at open: cudaFuncSetAttribute and the like, and what is found out about the chip. */
typedef ks_status ks_cuda_setup_fn(ks_chip *chip, ks_error *error);

/* Algorithms of a spec, as a plan's choice and a name, the one that the plan function picks among them. Returns how many were
 * written, at most `most`. */
typedef int ks_cuda_candidates_fn(const ks_chip *chip, const ks_spec *spec, ks_algorithm *out, int most);
/* As the plan function, from an algorithm of any origin. KS_CONFIG: it is none of this spec's, on this chip. */
typedef ks_status ks_cuda_adopt_fn(const ks_chip *chip, const ks_spec *spec, const ks_algorithm *algorithm,
                                   ks_cuda_plan *out, ks_error *error);

/* Whether maps of a chain that follow one another are one pass on a GPU (map/maps.cu), and of which datatypes. Off: on a GPU that kernel has
 * not run yet. */
enum { KS_CUDA_FUSES_MAPS = 0 };
static const uint32_t KS_CUDA_MAPS_DTYPES = KS_DTYPE_BIT(KS_BOOL) | KS_DTYPE_BIT(KS_FP8E4M3) |
                                            KS_DTYPE_BIT(KS_FP8E5M2) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) |
                                            KS_DTYPE_BIT(KS_FP32);

typedef struct ks_cuda_op {
    ks_cuda_setup_fn *setup;
    ks_cuda_plan_fn *plan;
    ks_cuda_launch_fn *launch;
    ks_cuda_plan_fn
        *join; /* as plan, for a family (ks_plan.join_rows): launches have any rows up to the spec's; NULL: none */
    /* Choosing by trial; all three NULL: one algorithm for a spec. */
    ks_cuda_candidates_fn *candidates;
    ks_cuda_adopt_fn *adopt;
    uint64_t (*revision)(void); /* changes with the kernels */
    /* Whether a row has the same bits by that algorithm wherever it starts in memory; NULL: where it starts on 16 bytes. */
    bool (*starts_anywhere)(const ks_spec *spec, const void *algorithm);
} ks_cuda_op;

extern const ks_cuda_op *const ks_cuda_ops[]; /* in the order of ks_ops; NULL-terminated */
/* The spec as a launch takes it: fixed inputs lie as all others do, at an offset from the `in` side, which may wrap; the one input of an op
 * lies at the side's start, so then it is the side. placed: memory for it, where something is fixed. */
const ks_spec *ks_cuda_place_fixed(const ks_spec *spec, ks_spec *placed, ks_job_sides *only);
const ks_cuda_op *ks_cuda_op_of(const ks_op *op); /* NULL: an op without kernels */

#endif
