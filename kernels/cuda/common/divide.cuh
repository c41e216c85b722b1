/* Division by multiplication, of numbers below 2^63 by one that a launch fixes. */
#ifndef KS_DIVIDE_CUH
#define KS_DIVIDE_CUH

#include <stdint.h>

#include <cuda_runtime.h>

/* n / by of any n below 2^63. */
struct ks_divider {
    typedef int64_t index;
    int64_t by;
    uint64_t
        factor; /* 2^(63 + s) / by, rounded up, where 2^(s - 1) < by <= 2^s: the error stays below one of by's parts */
    int shift;  /* s - 1 */

    __device__ __forceinline__ int64_t of(int64_t n) const
    {
        return by == 1 ? n : (int64_t)(__umul64hi((uint64_t)n, factor) >> shift);
    }
};

/* Of 0 as of 1. */
static inline ks_divider ks_divider_of(int64_t by)
{
    __extension__ typedef unsigned __int128 wide;
    ks_divider d = {};
    d.by = by < 1 ? 1 : by;
    while (((int64_t)1 << (d.shift + 1)) < d.by) d.shift++;
    if (d.by > 1) d.factor = (uint64_t)((((wide)1 << (64 + d.shift)) + (wide)d.by - 1) / (wide)d.by);
    return d;
}

/* n / by of any n below 2^31, in a third of the instructions. */
struct ks_divider32 {
    typedef int32_t index;
    int32_t by;
    uint32_t factor; /* 2^(32 + shift) / by, rounded up, where 2^shift < by <= 2^(shift + 1) */
    int32_t shift;

    __device__ __forceinline__ int32_t of(int32_t n) const
    {
        return by == 1 ? n : (int32_t)(__umulhi((uint32_t)n, factor) >> shift);
    }
};

/* Of 0 as of 1. by: below 2^31. */
static inline ks_divider32 ks_divider32_of(int64_t by)
{
    ks_divider32 d = {};
    d.by = by < 1 ? 1 : (int32_t)by;
    while (((int64_t)1 << (d.shift + 1)) < d.by) d.shift++;
    if (d.by > 1) d.factor = (uint32_t)((((uint64_t)1 << (32 + d.shift)) + (uint64_t)d.by - 1) / (uint64_t)d.by);
    return d;
}

#endif
