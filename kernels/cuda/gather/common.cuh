/* What gather's kernels share: a launch's numbers, and where an index leads. */
#ifndef KS_GATHER_COMMON_CUH
#define KS_GATHER_COMMON_CUH

#include "cuda/common/divide.cuh"
#include "cuda/common/launch.cuh"
#include "cuda/common/warp.cuh"
#include "ops/gather.h"

enum { GATHER_THREADS = 256, GATHER_FLIGHT = 4 }; /* of a CTA; loads of a thread that are under way at once */

/* By value to each kernel; places are from the job's sides. */
struct gather_args {
    size_t table, indices, offsets, weights, out;
    int64_t outer, extent, count, inner; /* ks_gather_shape */
    int64_t bags;
    int64_t items;   /* that the grid goes through: the kernel's own */
    int64_t pieces;  /* likewise, of a slice */
    ks_divider per;  /* items of a slice; of elements: inner */
    ks_divider part; /* slices of a part: count */
    int mode, op;
    bool wide_indices, wide_offsets; /* INT64 */
    bool weighted, narrow_weights;   /* narrow: of the table's datatype, else FP32 */
};

__device__ __forceinline__ int64_t gather_number(const unsigned char *values, bool wide, int64_t i)
{
    return wide ? __ldg((const long long *)values + i) : (int64_t)__ldg((const int *)values + i);
}

/* The slice that an index means; -1: none, and the job's status word says so. */
__device__ __forceinline__ int64_t gather_resolve(const ks_site &site, const gather_args &a, int64_t index,
                                                  int64_t place)
{
    if (index >= 0 && index < a.extent) return index;
    if (a.extent > 0) {
        if (a.mode == KS_GATHER_CLIP) return index < 0 ? 0 : a.extent - 1;
        if (a.mode == KS_GATHER_WRAP) return (index % a.extent + a.extent) % a.extent;
        if (index < 0 && index >= -a.extent) return index + a.extent;
    }
    ks_refuse(site, KS_GATHER_INDICES, place);
    return -1;
}

/* Of slice s of the output the slice of the whole table; -1. */
__device__ __forceinline__ int64_t gather_source(const ks_site &site, const gather_args &a, const ks_job_sides &job,
                                                 int64_t s)
{
    const int64_t part = a.outer == 1 ? 0 : a.part.of(s), i = s - part * a.count;
    const int64_t slice = gather_resolve(site, a, gather_number(job.in + a.indices, a.wide_indices, i), i);
    return slice < 0 ? -1 : part * a.extent + slice;
}

#endif
