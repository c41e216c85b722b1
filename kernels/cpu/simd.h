/* What the references need to become vector code: several compilations of a loop (clones.h), and an exponential without a call.
 * The one header with a function body, because a call per element is exactly what it is there to avoid. */
#ifndef KS_VECTORISE_H
#define KS_VECTORISE_H

#include <stdint.h>
#include <string.h>

#include "ops/numbers/clones.h"

/* first where `which`, else second: by masks, because the compiler pulls what follows into a branch and then does not
 * vectorise it. */
static inline __attribute__((always_inline)) float ks_choose_inline(int which, float first, float second)
{
    uint32_t a, b;
    memcpy(&a, &first, sizeof a);
    memcpy(&b, &second, sizeof b);
    const uint32_t mask = -(uint32_t)which;
    a = (a & mask) | (b & ~mask);
    memcpy(&first, &a, sizeof first);
    return first;
}

/* 2^t for t < 128: good to 1 ulp, 0 exactly where that is below 2^-127, NaN stays. A polynomial on [-1/2, 1/2] that is
 * exact at 0; adding magic rounds t to an integer, which then lies in the low bits with a float's bias. */
static inline __attribute__((always_inline)) float ks_exp2_inline(float t)
{
    const float magic = 0x1.8p23f + 127, bounded = ks_choose_inline(t < -127.0f, -127.0f, t);
    const float shifted = bounded + magic, f = bounded - (shifted - magic);
    float p = 0x1.441390p-13f;
    p = p * f + 0x1.5f0890p-10f;
    p = p * f + 0x1.3b2a54p-7f;
    p = p * f + 0x1.c6af6cp-5f;
    p = p * f + 0x1.ebfbe0p-3f;
    p = p * f + 0x1.62e430p-1f;
    p = p * f + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* The same in double: 0 below 2^-1023, for t < 1024. */
static inline __attribute__((always_inline)) double ks_exp2_double_inline(double t)
{
    const double magic = 0x1.8p52 + 1023, least = -1023;
    uint64_t bits, least_bits;
    memcpy(&bits, &t, sizeof bits);
    memcpy(&least_bits, &least, sizeof least_bits);
    const uint64_t mask = -(uint64_t)(t < least);
    bits = (bits & ~mask) | (least_bits & mask);
    memcpy(&t, &bits, sizeof t);
    const double shifted = t + magic, f = t - (shifted - magic);
    double p = 0x1.c4a29324a1038p-36;
    p = p * f + 0x1.e9ec1fcb69a7fp-32;
    p = p * f + 0x1.e4cf10dec0f59p-28;
    p = p * f + 0x1.b524ebd13a55fp-24;
    p = p * f + 0x1.62c02242b879cp-20;
    p = p * f + 0x1.ffcbfc6da6ed1p-17;
    p = p * f + 0x1.430912f86b7dbp-13;
    p = p * f + 0x1.5d87fe78a3f9cp-10;
    p = p * f + 0x1.3b2ab6fba4e79p-7;
    p = p * f + 0x1.c6b08d704a0c6p-5;
    p = p * f + 0x1.ebfbdff82c58fp-3;
    p = p * f + 0x1.62e42fefa39efp-1;
    p = p * f + 1.0;
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

#define KS_LOG2_E 1.4426950408889634

/* exp(x) as a term of a sum that holds a term of 1: at most e^88, so that infinity stands apart. */
static inline __attribute__((always_inline)) float ks_exp_bounded_inline(float x)
{
    return ks_exp2_inline(ks_choose_inline(x > 88.0f, 88.0f, x) * (float)KS_LOG2_E);
}

/* --- sixteen floats at once, in as many registers as the processor needs ---------------------------------------------
 * For loops that the compiler does not vectorise by itself. They lie anywhere, so a cast is a load. */

/* Vectors appear in functions that are always inlined, so no calling convention ever passes one: the clones of a loop would not agree on it.
 * Spelt so that it holds in tests/coverage.py's build, too, which defines always_inline away. */
#pragma GCC diagnostic ignored "-Wpsabi"

#define KS_INLINE static inline __attribute__((__always_inline__))
typedef float ks_wide __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ks_wide_mask __attribute__((vector_size(64), aligned(4), may_alias));
typedef double ks_wide_doubles __attribute__((vector_size(128), aligned(8), may_alias));
typedef uint32_t ks_wide_bits __attribute__((vector_size(64), aligned(4), may_alias));
enum { KS_WIDE = 16 };

#define KS_WIDE_AT(x) (*(const ks_wide *)(x))
#define KS_SPREAD(value) ((ks_wide){0} + (value))
/* Every lane gets the one `n` further on. */
#define KS_ROTATE(v, n)                                                                                                \
    __builtin_shufflevector(v, v, (n)&15, ((n) + 1) & 15, ((n) + 2) & 15, ((n) + 3) & 15, ((n) + 4) & 15,              \
                            ((n) + 5) & 15, ((n) + 6) & 15, ((n) + 7) & 15, ((n) + 8) & 15, ((n) + 9) & 15,            \
                            ((n) + 10) & 15, ((n) + 11) & 15, ((n) + 12) & 15, ((n) + 13) & 15, ((n) + 14) & 15,       \
                            ((n) + 15) & 15)

KS_INLINE ks_wide ks_wide_choose(ks_wide_mask which, ks_wide first, ks_wide second)
{
    return (ks_wide)((which & (ks_wide_mask)first) | (~which & (ks_wide_mask)second));
}

/* A NaN in `candidate` is passed over. */
KS_INLINE ks_wide ks_wide_max(ks_wide candidate, ks_wide best)
{
    return ks_wide_choose(candidate > best, candidate, best);
}

/* ks_exp2_inline of each, bit by bit. */
KS_INLINE ks_wide ks_wide_exp2(ks_wide t)
{
    const ks_wide least = KS_SPREAD(-127.0f), bounded = ks_wide_choose(t < least, least, t);
    const float magic = 0x1.8p23f + 127;
    const ks_wide shifted = bounded + magic, f = bounded - (shifted - magic);
    ks_wide p = f * 0x1.441390p-13f + 0x1.5f0890p-10f;
    p = p * f + 0x1.3b2a54p-7f;
    p = p * f + 0x1.c6af6cp-5f;
    p = p * f + 0x1.ebfbe0p-3f;
    p = p * f + 0x1.62e430p-1f;
    p = p * f + 1.0f;
    return p * (ks_wide)((ks_wide_bits)shifted << 23);
}

/* As one vector of doubles, because the compiler converts its halves with one instruction each. */
KS_INLINE ks_wide_doubles ks_wide_widen(ks_wide x)
{
    return __builtin_convertvector(x, ks_wide_doubles);
}

/* All bits in the last `count` lanes. */
KS_INLINE ks_wide_bits ks_wide_last(int count)
{
    static const uint32_t ones[2 * KS_WIDE] = {0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,
                                               0,   0,   0,   0,   0,   ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
                                               ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
    return *(const ks_wide_bits *)(ones + count);
}

#endif
