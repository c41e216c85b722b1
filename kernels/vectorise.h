/* What the references need to become vector code: several compilations of a loop, and an exponential without a call.
 * The one header with a function body, because a call per element is exactly what it is there to avoid. */
#ifndef KS_VECTORISE_H
#define KS_VECTORISE_H

#include <stdint.h>
#include <string.h>

/* The function is compiled for several vector widths and the loader picks one. Sanitizers run their own code in the
 * loader's choice before they are ready, so under them there is the baseline only. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) &&                       \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KS_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define KS_CLONES
#endif

/* exp(x) for x <= 88 (also -inf, NaN), good to 1.1 ulp, subnormal results included. Cephes' polynomial on
 * [-ln2/2, ln2/2]; the power of two is applied in two halves, because 2^-150 is no float. */
static inline __attribute__((always_inline)) float ks_exp_inline(float x)
{
    const float magic = 0x1.8p23f,
                least = -110.0f; /* adding magic rounds to an integer, which then lies in the low bits */
    uint32_t bits, magic_bits, least_bits;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&magic_bits, &magic, sizeof magic_bits);
    memcpy(&least_bits, &least, sizeof least_bits);
    /* max(x, least) by masks: it keeps NaN, and leaves no branch that the compiler would pull the rest into. */
    const uint32_t below = -(uint32_t)(x < least);
    bits = (bits & ~below) | (least_bits & below);
    float bounded;
    memcpy(&bounded, &bits, sizeof bounded);
    const float shifted = bounded * 1.44269504f + magic, power = shifted - magic;
    const float r = (bounded - power * 0.693359375f) + power * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    memcpy(&bits, &shifted, sizeof bits);
    const uint32_t n = bits - magic_bits, half = (uint32_t)((int32_t)n >> 1);
    const uint32_t first_bits = (half + 127u) << 23, second_bits = (n - half + 127u) << 23;
    float first, second;
    memcpy(&first, &first_bits, sizeof first);
    memcpy(&second, &second_bits, sizeof second);
    return p * first * second;
}

#endif
