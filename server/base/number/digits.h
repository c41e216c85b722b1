/* Digits of printed numbers, eight at a time in one register. Only the files of this folder include it. */
#ifndef KS_NUMBER_DIGITS_H
#define KS_NUMBER_DIGITS_H
#include <string.h>

#include "base/number/parts.h"

static const uint64_t ks_zeros = 0x3030303030303030; /* as text */

/* Eight digits of v < 10^8 as bytes 0 to 9, the first one lowest: halves, quarters, digits, all side by side. x << n less
 * q times (m << n) - 1 is q below and x - m q above it. */
KS_INLINE uint64_t ks_eight_digits(uint32_t v)
{
    const uint64_t fours = ((uint64_t)v << 32) - v / 10000 * (((uint64_t)10000 << 32) - 1);
    const uint64_t pairs = (fours << 16) - (fours * 10486 >> 20 & 0x0000007F0000007F) * ((100 << 16) - 1);
    return (pairs << 8) - (pairs * 103 >> 10 & 0x000F000F000F000F) * ((10 << 8) - 1);
}

KS_INLINE char *ks_put_eight(char *out, uint64_t digits)
{
    digits |= ks_zeros;
    memcpy(out, &digits, 8);
    return out + 8;
}

/* Eight bytes are written whatever the length. */
KS_INLINE char *ks_put_below_1e8(char *out, uint32_t v)
{
    const uint64_t digits = ks_eight_digits(v);
    const int skip = __builtin_ctzll(digits | (uint64_t)1 << 56) / 8;
    ks_put_eight(out, digits >> 8 * skip);
    return out + 8 - skip;
}

KS_INLINE char *ks_put_unsigned(char *out, uint64_t v)
{
    if (v < 100000000) return ks_put_below_1e8(out, (uint32_t)v);
    const uint64_t upper = v / 100000000;
    if (upper < 100000000)
        out = ks_put_below_1e8(out, (uint32_t)upper);
    else
        out = ks_put_eight(ks_put_below_1e8(out, (uint32_t)(upper / 100000000)),
                           ks_eight_digits((uint32_t)(upper % 100000000)));
    return ks_put_eight(out, ks_eight_digits((uint32_t)(v % 100000000)));
}

KS_INLINE char *ks_put_word(char *out, const char *word, size_t length)
{
    memcpy(out, word, length);
    return out + length;
}

/* Of eight bytes 0 to 9: how many there are up to the last one that is not 0. */
KS_INLINE int ks_used_digits(uint64_t digits)
{
    return (70 - __builtin_clzll(2 * digits + 1)) / 8;
}

/* e-05 */
KS_INLINE char *ks_put_exponent(char *out, int exponent)
{
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    const int e = exponent < 0 ? -exponent : exponent;
    if (e >= 100) *out++ = (char)('0' + e / 100);
    *out++ = (char)('0' + e / 10 % 10);
    *out++ = (char)('0' + e % 10);
    return out;
}

#endif
