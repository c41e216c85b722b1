/* The unary functions of ops/numbers/unary.h on the CPU, and what they are made of: of sixteen floats at once, and of a double.
 *
 * Numbers  exp, tanh, erf: 2 ulp. FP16 and BF16 take the same functions, but for gelu in map/halves.c.
 * Threads  any: no memory. */
#ifndef KS_CPU_UNARY_H
#define KS_CPU_UNARY_H

#include "cpu/simd.h"
#include "ops/numbers/unary.h"

#include <math.h>

KS_INLINE ks_wide ks_wide_abs(ks_wide x)
{
    return (ks_wide)((ks_wide_bits)x & 0x7FFFFFFFu);
}

/* The sign of `sign` in place of x's. */
KS_INLINE ks_wide ks_wide_copysign(ks_wide x, ks_wide sign)
{
    return (ks_wide)(((ks_wide_bits)x & 0x7FFFFFFFu) | ((ks_wide_bits)sign & 0x80000000u));
}

/* 2^n for integers -127 <= n <= 128: 0 and infinity at the ends. */
KS_INLINE ks_wide ks_wide_power_of_two(ks_wide_mask n)
{
    return (ks_wide)((n + 127) << 23);
}

/* e^x, subnormal results too. ln 2 in two parts, the first of which has few bits, so that n times it is exact.
 * Source: Cephes, expf. */
KS_INLINE ks_wide ks_wide_exp(ks_wide x)
{
    const float magic = 0x1.8p23f;
    const ks_wide most = KS_SPREAD(89.0f), least = KS_SPREAD(-104.0f);
    ks_wide bounded = ks_wide_choose(x > most, most, x);
    bounded = ks_wide_choose(x < least, least, bounded);
    const ks_wide shifted = bounded * (float)KS_LOG2_E + magic, n = shifted - magic;
    const ks_wide f = (bounded - n * 0x1.63p-1f) + n * 2.12194440e-4f;
    ks_wide p = f * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * (f * f) + f + 1.0f;
    /* In two steps: 2^n alone may be none of FP32's normal numbers. A NaN's n is of no meaning, p is NaN. */
    const ks_wide_mask whole = (ks_wide_mask)((ks_wide_bits)shifted << 9) >> 9, half = whole >> 1;
    return p * ks_wide_power_of_two(half) * ks_wide_power_of_two(whole - half);
}

/* Source: Cephes, tanhf. */
KS_INLINE ks_wide ks_wide_tanh(ks_wide x)
{
    const ks_wide z = x * x, size = ks_wide_abs(x);
    ks_wide p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z + -5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z + -3.33332819422e-1f;
    const ks_wide near = p * z * x + x, far = 1.0f - 2.0f / (ks_wide_exp(size + size) + 1.0f);
    return ks_wide_choose(size < 0.625f, near, ks_wide_copysign(far, x));
}

/* Source: N. Juffa's erff, a polynomial for small x, and 1 - exp of one beyond. */
KS_INLINE ks_wide ks_wide_erf(ks_wide x)
{
    const ks_wide t = ks_wide_abs(x), s = x * x;
    ks_wide near = s * -5.96761703e-4f + 4.99119423e-3f;
    near = near * s + -2.67681349e-2f;
    near = near * s + 1.12819925e-1f;
    near = near * s + -3.76125336e-1f;
    near = near * s + 1.28379166e-1f;
    near = near * x + x;
    const ks_wide most = KS_SPREAD(4.0f), b = ks_wide_choose(t > most, most, t), q = b * b; /* erf is 1 there */
    ks_wide r = (b * -1.72853470e-5f + 3.83197126e-4f) * q + (b * -3.88396438e-3f + 2.42546219e-2f);
    r = r * b + -1.06777877e-1f;
    r = r * b + -6.34846687e-1f;
    r = r * b + -1.28717512e-1f;
    r = r * b - b;
    const ks_wide far = ks_wide_copysign(1.0f - ks_wide_exp(r), x);
    return ks_wide_choose(t > 0.927734375f, far, near); /* NaN: near */
}

KS_INLINE ks_wide ks_wide_sigmoid(ks_wide x)
{
    return 1.0f / (1.0f + ks_wide_exp(-x));
}

KS_INLINE ks_wide ks_wide_relu(ks_wide x)
{
    return ks_wide_choose(x < 0.0f, KS_SPREAD(0.0f), x);
}

KS_INLINE ks_wide ks_wide_gelu(ks_wide x)
{
    return x * 0.5f * (1.0f + ks_wide_erf(x * 0x1.6a09e6p-1f));
}

KS_INLINE ks_wide ks_wide_gelu_tanh(ks_wide x)
{
    return x * 0.5f * (1.0f + ks_wide_tanh((x * x * x * 0.044715f + x) * 0x1.988454p-1f));
}

KS_INLINE ks_wide ks_wide_silu(ks_wide x)
{
    return x / (1.0f + ks_wide_exp(-x));
}

KS_INLINE ks_wide ks_wide_activate(ks_wide x, ks_activation activation)
{
    switch (activation) {
    case KS_ACTIVATION_RELU:
        return ks_wide_relu(x);
    case KS_ACTIVATION_GELU:
        return ks_wide_gelu(x);
    case KS_ACTIVATION_GELU_TANH:
        return ks_wide_gelu_tanh(x);
    case KS_ACTIVATION_SILU:
        return ks_wide_silu(x);
    default:
        return x;
    }
}

static inline double ks_double_activate(double x, ks_activation activation)
{
    switch (activation) {
    case KS_ACTIVATION_RELU:
        return x < 0 ? 0 : x;
    case KS_ACTIVATION_GELU:
        return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case KS_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case KS_ACTIVATION_SILU:
        return x / (1 + exp(-x));
    default:
        return x;
    }
}

#endif
