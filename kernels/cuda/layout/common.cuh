/* What layout's kernels share: a launch's numbers. Words are what is moved at once: an element, or several that are neighbours on both sides. */
#ifndef KS_LAYOUT_COMMON_CUH
#define KS_LAYOUT_COMMON_CUH

#include "cuda/common/divide.cuh"
#include "cuda/common/launch.cuh"
#include "ops/layout.h"

enum { LAYOUT_THREADS = 256 };

struct layout_axis {
    ks_divider per;   /* its extent in the output */
    int64_t from, to; /* words to the next index */
    int64_t before;   /* padding: indices in front of the input's */
    int64_t extent;   /* padding: of the input */
};

/* By value to each kernel; places are from the job's sides. */
struct layout_args {
    size_t in, out;
    int rank;
    layout_axis axis[KS_LAYOUT_AXES_MAX];
    int64_t from_start, to_start;
    int64_t items;    /* words of the box */
    int mode;         /* ks_layout_mode */
    uint4 fill;       /* the element's bits, repeated */
    bool first, last; /* launch of the operation */
};

/* The first launch stamps the start. */
__device__ __forceinline__ bool layout_enter(const ks_site &site, const layout_args &a, ks_job_sides *job)
{
    return a.first ? ks_enter(site, job) : ks_enter_again(site, job);
}

#endif
