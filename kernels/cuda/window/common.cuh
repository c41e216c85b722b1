/* What window's kernels share: a launch's numbers. Words are what is moved at once: an element, or several that are neighbours on both sides. */
#ifndef KS_WINDOW_COMMON_CUH
#define KS_WINDOW_COMMON_CUH

#include "cuda/common/divide.cuh"
#include "cuda/common/launch.cuh"
#include "ops/window/window.h"

enum { WINDOW_THREADS = 256 };

struct window_axis {
    ks_divider windows, taps;
    int64_t in, stride, dilation, before;
    int64_t from; /* words from one index of the input to the next */
};

/* By value to each kernel; places are from the job's sides. */
struct window_args {
    size_t in, out;
    window_axis y, x;
    ks_divider inner;  /* words of a tap */
    int64_t word_from; /* from one to the next, in the input */
    int64_t lead_from; /* from one index of the leading axes to the next, in the input */
    int64_t items;     /* words of the output */
    uint4 fill;        /* the element's bits, repeated */
};

__device__ __forceinline__ int64_t window_place(const window_axis &axis, int64_t window, int64_t tap)
{
    return window * axis.stride + tap * axis.dilation - axis.before;
}

__device__ __forceinline__ bool window_inside(const window_axis &axis, int64_t place)
{
    return place >= 0 && place < axis.in;
}

#endif
