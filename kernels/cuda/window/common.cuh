/* What window's kernels share: a launch's numbers. Words are what is moved at once: an element, or several that are neighbours on both sides. */
#ifndef KS_WINDOW_COMMON_CUH
#define KS_WINDOW_COMMON_CUH

#include "cuda/common/divide.cuh"
#include "cuda/common/launch.cuh"
#include "ops/window/window.h"

enum { WINDOW_THREADS = 256 };

/* n / by of any n below 2^31, by one product of 32 bits. */
struct window_divider32 {
    int32_t by;
    uint32_t
        factor; /* 2^(31 + shift) / by, rounded up, where 2^(shift - 1) < by <= 2^shift: 2^31 at least, below 2^32 */
    int shift;

    __device__ __forceinline__ int32_t of(int32_t n) const
    {
        return (int32_t)(__umulhi(2u * (uint32_t)n, factor) >> shift);
    }
};

static inline window_divider32 window_divider32_of(int32_t by)
{
    window_divider32 d = {by, 0, 0};
    while (((int64_t)1 << d.shift) < by) d.shift++;
    d.factor = (uint32_t)((((uint64_t)1 << (31 + d.shift)) + (uint64_t)by - 1) / (uint64_t)by);
    return d;
}

/* I: int64_t, or int32_t where all places and numbers of words stay below WINDOW_NARROW_MOST. */
template <class I>
struct window_index {
    typedef ks_divider divider;
    typedef uint64_t bits;
};
template <>
struct window_index<int32_t> {
    typedef window_divider32 divider;
    typedef uint32_t bits;
};
static const int64_t WINDOW_NARROW_MOST = (int64_t)1 << 30;

template <class I>
struct window_axis {
    typename window_index<I>::divider windows, taps;
    I in, stride, dilation, before;
    I from; /* words from one index of the input to the next */
};

/* By value to each kernel; places are from the job's sides. */
template <class I>
struct window_args {
    size_t in, out;
    window_axis<I> y, x;
    typename window_index<I>::divider inner; /* words of a tap */
    I word_from;                             /* from one to the next, in the input */
    I lead_from;                             /* from one index of the leading axes to the next, in the input */
    I items;                                 /* words of the output */
    I cta, step; /* packs from one CTA's first to the next one's; between those that a thread has under way */
    uint4 fill;  /* the element's bits, repeated */
};

template <class I>
__device__ __forceinline__ I window_place(const window_axis<I> &axis, I window, I tap)
{
    return window * axis.stride + tap * axis.dilation - axis.before;
}

template <class I>
__device__ __forceinline__ bool window_inside(const window_axis<I> &axis, I place)
{
    return place >= 0 && place < axis.in;
}

#endif
