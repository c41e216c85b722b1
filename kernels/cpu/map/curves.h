/* Functions of a float that cpu/unary.h does not have, in double: an error of some 1e-10 before the one rounding. Without a branch, so that
 * loops over them become vector code; NaN goes through. */
#ifndef KS_MAP_CURVES_H
#define KS_MAP_CURVES_H

#include "cpu/simd.h"

#include <math.h>

KS_INLINE uint64_t curve_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

KS_INLINE double curve_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

KS_INLINE double curve_choose(int which, double first, double second)
{
    const uint64_t mask = -(uint64_t)which;
    return curve_of((curve_bits(first) & mask) | (curve_bits(second) & ~mask));
}

/* Of x whose result, or its inverse, a float has. */
KS_INLINE double curve_exp(double x)
{
    const double high = curve_choose(x > 200, 200, x), bounded = curve_choose(high < -200, -200, high);
    return ks_exp2_double_inline(bounded * KS_LOG2_E);
}

/* Of a normal double, or 0. x = m 2^n with m in [sqrt(1/2), sqrt 2); log m = 2 artanh s, s = (m - 1) / (m + 1). */
KS_INLINE double curve_log(double x)
{
    const uint64_t half_root = 0x3FE6A09E667F3BCDu, bits = curve_bits(x);
    const uint64_t n = (bits - half_root) & 0xFFF0000000000000u;
    const double m = curve_of(bits - n), s = (m - 1) / (m + 1), z = s * s;
    /* The exponent as an integer in the mantissa of a large double. */
    const double whole = curve_of((((n >> 52) + 2048) & 0xFFF) | 0x4330000000000000u) - 0x1p52 - 2048;
    double p = 2.0 / 17;
    p = p * z + 2.0 / 15;
    p = p * z + 2.0 / 13;
    p = p * z + 2.0 / 11;
    p = p * z + 2.0 / 9;
    p = p * z + 2.0 / 7;
    p = p * z + 2.0 / 5;
    p = p * z + 2.0 / 3;
    p = p * z + 2.0;
    double y = whole * 0.69314718055994530942 + p * s;
    y = curve_choose(x == (double)INFINITY, (double)INFINITY, y);
    y = curve_choose(x == 0, -(double)INFINITY, y);
    return curve_choose(!(x >= 0), (double)NAN, y);
}

/* e^x - 1: the difference loses what is small. */
KS_INLINE double curve_expm1(double x)
{
    return curve_choose(fabs(x) < 1e-5, x + x * x * 0.5, curve_exp(x) - 1);
}

/* log(1 + e^x), by e^-|x|, which is at most 1. */
KS_INLINE double curve_softplus(double x)
{
    const double e = curve_exp(-fabs(x));
    const double rest = curve_choose(e < 1e-5, e - e * e * 0.5, curve_log(1 + e));
    return curve_choose(x > 0, x, 0) + rest; /* of NaN the rest is NaN */
}

KS_INLINE double curve_sigmoid(double x)
{
    return 1 / (1 + curve_exp(-x));
}

enum { CURVE_TURNS_MOST = 1 << 19 }; /* quarter turns that are taken away without loss */

/* sin (quarter 0) or cos (1), within CURVE_TURNS_MOST quarter turns. pi / 2 in two parts, of which the first has 33 bits. */
KS_INLINE double curve_sin(double x, uint64_t quarter)
{
    const double magic = 0x1.8p52, shifted = x * 0.63661977236758134308 + magic, n = shifted - magic;
    const double r = (x - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11, z = r * r;
    const uint64_t turn = curve_bits(shifted) + quarter;
    double s = -1.0 / 39916800, c = 1.0 / 479001600;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = s * z * r + r;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1;
    const double y = curve_choose((int)(turn & 1), c, s);
    return curve_of(curve_bits(y) ^ (turn >> 1 & 1) << 63);
}

/* x y + z of floats, rounded once: the product is exact, and the sum, where it is not, gets an odd last bit, which leaves the rounding to
 * float nothing to round twice. */
KS_INLINE float curve_fma(float x, float y, float z)
{
    const double p = (double)x * y, s = p + z, back = s - p, lost = (p - (s - back)) + (z - back);
    const uint64_t bits = curve_bits(s);
    const int odd = (bits & 1) != 0, inexact = (lost != 0) & (lost == lost);
    const int away = (lost > 0) == (s > 0); /* the exact sum is further from zero */
    const uint64_t step = (uint64_t)(inexact & !odd) * (away ? (uint64_t)1 : ~(uint64_t)0);
    return (float)curve_of(bits + step);
}

#endif
