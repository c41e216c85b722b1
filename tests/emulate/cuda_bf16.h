/* BF16, as cuda_fp16.h. */
#ifndef KS_EMULATE_CUDA_BF16_H
#define KS_EMULATE_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float __bfloat162float(__nv_bfloat16 h)
{
    return __uint_as_float((uint32_t)h.bits << 16);
}
static inline __nv_bfloat16 __double2bfloat16(double x)
{
    if (isnan(x)) return {0x7FFF};
    uint32_t word = __float_as_uint((float)x);
    const double near = (float)x;
    if (near != x && !isinf(near)) word = (fabs(near) > fabs(x) ? word - 1 : word) | 1; /* to odd: rounds once in all */
    return {(uint16_t)((word + 0x7FFF + (word >> 16 & 1)) >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __double2bfloat16(x);
}
static inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __double2bfloat16((double)__bfloat162float(a) + (double)__bfloat162float(b));
}
static inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b)
{
    return __double2bfloat16((double)__bfloat162float(a) * (double)__bfloat162float(b));
}
static inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b)
{
    const float x = __bfloat162float(a), y = __bfloat162float(b);
    if (isnan(x) && isnan(y)) return {0x7FFF};
    return isnan(x) || x < y || (x == y && signbit(x)) ? b : a;
}
static inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}

#endif
