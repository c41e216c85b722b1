/* A number as the bits of an element of any datatype.
 *
 * Owns     nothing.
 * Threads  any. */
#include "ops/numbers/element.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { WHOLE_BITS = 53 /* of the integers that a double holds */ };

/* A float of 1 + exponent + mantissa bits, which holds v (below): rounded to nearest even. */
static uint64_t float_bits(double v, int exponent, int mantissa)
{
    const int least = 2 - (1 << (exponent - 1));
    const uint64_t sign = signbit(v) ? 1u << (exponent + mantissa) : 0;
    int power = 0;
    if (isinf(v)) return sign | ((uint64_t)((1u << exponent) - 1) << mantissa);
    frexp(v, &power);
    power = v == 0 || power - 1 < least ? least : power - 1;
    return sign | (((uint64_t)(power - least) << mantissa) + (uint64_t)nearbyint(ldexp(fabs(v), mantissa - power)));
}

uint64_t ks_element_bits(ks_dtype dtype, double v)
{
    const float narrow = (float)v;
    uint64_t wide;
    uint32_t bits;
    switch (dtype) {
    case KS_FP64:
        memcpy(&wide, &v, sizeof wide);
        return wide;
    case KS_FP32:
        memcpy(&bits, &narrow, sizeof bits);
        return bits;
    case KS_FP16:
        return float_bits(v, 5, 10);
    case KS_BF16:
        return float_bits(v, 8, 7);
    case KS_FP8E4M3:
        return float_bits(v, 4, 3);
    case KS_FP8E5M2:
        return float_bits(v, 5, 2);
    default:
        return v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
    }
}

bool ks_element_holds(ks_dtype dtype, double v)
{
    static const double largest[KS_DTYPE_COUNT] = {[KS_FP64] = DBL_MAX,    [KS_FP32] = FLT_MAX, [KS_FP16] = 65504,
                                                   [KS_BF16] = 0x1.FEp127, [KS_FP8E4M3] = 448,  [KS_FP8E5M2] = 57344};
    if (ks_dtype_kind(dtype) == KS_KIND_FLOAT) return isinf(v) ? dtype != KS_FP8E4M3 : fabs(v) <= largest[dtype];
    const bool has_sign = ks_dtype_kind(dtype) == KS_KIND_INT;
    const int bits = dtype == KS_BOOL ? 1 : 8 * (int)ks_dtype_size(dtype) - has_sign;
    const double end = ldexp(1, bits > WHOLE_BITS ? WHOLE_BITS : bits);
    return v == floor(v) && v >= (has_sign ? -end : 0) && (bits > WHOLE_BITS ? v <= end : v < end);
}
