/* What layout's kernels share: a launch's numbers. Words are what is moved at once: an element, or several that are neighbours on both sides.
 * D: ks_divider32 where all items and places are below 2^31, ks_divider. */
#ifndef KS_LAYOUT_COMMON_CUH
#define KS_LAYOUT_COMMON_CUH

#include "cuda/common/divide.cuh"
#include "cuda/common/launch.cuh"
#include "ops/layout.h"

enum { LAYOUT_THREADS = 256 };

template <class D>
struct layout_axis {
    D per;                      /* its extent in the output */
    typename D::index from, to; /* words to the next index */
    typename D::index before;   /* padding: indices in front of the input's */
    typename D::index extent;   /* padding: of the input */
};

/* By value to each kernel; places are from the job's sides. */
template <class D>
struct layout_args {
    size_t in, out;
    int rank;
    layout_axis<D> axis[KS_LAYOUT_AXES_MAX];
    int64_t from_start, to_start;
    typename D::index items; /* words of the box */
    int mode;                /* ks_layout_mode */
    uint4 fill;              /* the element's bits, repeated */
    bool first, last;        /* launch of the operation */
};

/* The first launch stamps the start. */
template <class A>
__device__ __forceinline__ bool layout_enter(const ks_site &site, const A &a, ks_job_sides *job)
{
    return a.first ? ks_enter(site, job) : ks_enter_again(site, job);
}

/* Of an index of a padded axis that of the input; -1: the value's. */
template <class I>
__device__ __forceinline__ I layout_inside(I before, I extent, int mode, I i)
{
    i -= before;
    if (i >= 0 && i < extent) return i;
    if (mode == KS_LAYOUT_CONSTANT) return -1;
    if (mode == KS_LAYOUT_EDGE) return i < 0 ? 0 : extent - 1;
    return i < 0 ? -i : 2 * (extent - 1) - i;
}

#endif
