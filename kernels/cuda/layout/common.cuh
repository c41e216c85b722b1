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

/* By value to each kernel; places are from the job's sides. What every launch looks at, and the first axes, lie in one line of constants: what
 * is read of others is fetched line by line. */
template <class D>
struct layout_args {
    size_t in, out;
    int64_t from_start, to_start;
    typename D::index items; /* words of the box */
    int rank, mode;          /* mode: ks_layout_mode */
    bool first, last;        /* launch of the operation */
    layout_axis<D> axis[KS_LAYOUT_AXES_MAX];
    uint4 fill; /* the element's bits, repeated */
};

/* The first launch stamps the start. layout_begin: behind the first loads of thread 0, whose item is 0; at once where there are none. */
template <class A>
__device__ __forceinline__ bool layout_enter(const ks_site &site, const A &a, ks_job_sides *job)
{
    return a.first ? ks_enter(site, job) : ks_enter_again(site, job);
}

template <class A>
__device__ __forceinline__ void layout_begin(const ks_site &site, const A &a, int64_t item)
{
    if (a.first && item == 0) ks_start(site);
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
