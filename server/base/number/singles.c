/* FP32 to text, sixteen side by side: their digits and powers of ten by vector code, then the text of each in its turn.
 *
 * Digits  as shortest() in floats.c finds them, in 32-bit lanes: a float is s and what is behind, in units of 2^-28 of the power of ten;
 *         whatever rounds to it lies within half a last place. A multiple of ten as near is the shortest; else the nearest whole
 *         number is. What is missing is less than 2 units (the scale's 64 bits, the product's lower half, half of an odd number): closer
 *         to a border than CLOSE, and for powers of two, subnormal values, zeros and non-finite ones, the exact way decides.
 * Speed   no branch on the digits: it would go wrong for every second number. docs/decisions.md has the figures. */
#include "base/number/digits.h"
#include "ops/numbers/clones.h"

enum { BLOCK = 16, CLOSE = 4, FEW = 4 /* less of them cost more side by side than by the exact way */ };

static const uint32_t unit = 1u << 28, middle = 1u << 27;

typedef struct lanes {
    uint32_t bits[BLOCK];
    uint32_t upper[BLOCK], lower[BLOCK]; /* of the scale */
} lanes;

typedef enum form { FIXED, SCIENTIFIC, ANY /* by the exact way */ } form;

/* Texts, ready to be laid out. */
typedef struct texts {
    uint32_t first[BLOCK];    /* the first of nine digits */
    uint32_t fours[2][BLOCK]; /* the others: four bytes 0 to 9, and four behind them */
    int32_t exponent[BLOCK];  /* of the first digit */
    int32_t before[BLOCK];    /* bytes in front of the first digit, "0.00", in the fixed form */
    int32_t whole[BLOCK];     /* digits between the first one and the point, in the fixed form */
    int32_t length[BLOCK];    /* of the digits without zeros behind; in the fixed form of all but the sign */
    uint32_t form[BLOCK];
} texts;

/* Four digits of v < 10^4 as bytes, the first one lowest: ks_eight_digits() of floats.c, half of it. */
KS_INLINE uint32_t four_digits(uint32_t v)
{
    const uint32_t pairs = (v << 16) - (v * 10486 >> 20) * ((100 << 16) - 1);
    return (pairs << 8) - (pairs * 103 >> 10 & 0x000F000F) * ((10 << 8) - 1);
}

/* Of v < 2^28; of v < 10^9, of v < 10^5. */
KS_INLINE uint32_t over_10(uint32_t v)
{
    return (uint32_t)((uint64_t)v * 429496730 >> 32);
}

KS_INLINE uint32_t over_10000(uint32_t v)
{
    return (uint32_t)((uint64_t)v * 3518437209 >> 45);
}

KS_INLINE uint32_t few_over_10000(uint32_t v)
{
    return (uint32_t)((uint64_t)v * 429497 >> 32);
}

/* Of four digits: how many there are up to the last one that is not 0. */
KS_INLINE int32_t used_digits(uint32_t digits)
{
    const int32_t v = (int32_t)digits;
    return (v > 0) + (v > 0xFF) + (v > 0xFFFF) + (v > 0xFFFFFF);
}

/* Which form is shorter, as is_scientific() of floats.c says. A whole number above 10^7 may have more digits than the shortest. */
KS_CLONES static void find_texts(const lanes *restrict in, texts *restrict out)
{
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t fraction = in->bits[i] & 0x7FFFFF, significand = fraction | 0x800000;
        const int32_t field = (int32_t)(in->bits[i] >> 23 & 255);
        const uint64_t product = (uint64_t)in->upper[i] * significand + ((uint64_t)in->lower[i] * significand >> 32);
        const uint32_t s = (uint32_t)(product >> 28), behind = (uint32_t)product & (unit - 1);
        const uint32_t tenth = over_10(s);
        const uint32_t above = (s - 10 * tenth) * unit | behind, below = 10 * unit - above;
        const uint32_t beyond = (above < below ? above : below) - (in->upper[i] >> 1);
        const uint32_t tens = 10 * tenth + (above < below ? 0 : 10), one = s + (behind >= middle);
        const uint32_t v = (int32_t)beyond < 0 ? tens : one;
        const bool unusual = (beyond + CLOSE <= 2 * CLOSE) | (behind - middle + CLOSE <= 2 * CLOSE) | (fraction == 0) |
                             (field == 0) | (field == 255);

        const int32_t below_9 = v < 100000000, below_8 = v < 10000000;
        const uint32_t filled = v * (uint32_t)(1 + 9 * below_9 + 90 * below_8);
        const uint32_t leading = over_10000(filled), first = few_over_10000(leading);
        const uint32_t upper = four_digits(leading - first * 10000), lower = four_digits(filled - leading * 10000);
        out->first[i] = first + '0';
        out->fours[0][i] = upper;
        out->fours[1][i] = lower;

        const int32_t exponent = ks_power_of_ten(field - KS_SINGLE_BIAS) + 8 - below_9 - below_8;
        const int32_t length = 1 + (lower ? 4 + used_digits(lower) : used_digits(upper)), single = length == 1;
        const bool scientific = (exponent < single - 4) | (exponent - length > 4 - single);
        const int32_t with_point = length > exponent + 2 ? length : exponent + 2;
        const int32_t fixed = exponent < 0 ? 1 - exponent + length : 1 + with_point;
        out->exponent[i] = exponent;
        out->before[i] = exponent < 0 ? 1 - exponent : 0;
        out->whole[i] = exponent < 0 ? 0 : exponent;
        out->length[i] = scientific ? length : fixed;
        out->form[i] = unusual | (!scientific & (exponent > 6)) ? ANY : scientific ? SCIENTIFIC : FIXED;
    }
}

/* 0.0012, 1.2 and 120.0 alike. More bytes may be written than the length says, in both forms. */
KS_INLINE char *put_fixed(char *out, const texts *all, size_t i, uint64_t rest)
{
    const int32_t before = all->before[i], whole = all->whole[i];
    memcpy(out, "0.000000", 8);
    out[before] = (char)all->first[i];
    memcpy(out + before + 1, &rest, 8);
    rest >>= 8 * whole;
    memcpy(out + (before ? before + 1 : whole + 2), &rest, 8);
    out[1 + whole] = '.';
    return out + all->length[i];
}

KS_INLINE char *put_scientific(char *out, const texts *all, size_t i, uint64_t rest)
{
    const int32_t length = all->length[i];
    out[0] = (char)all->first[i];
    out[1] = '.';
    memcpy(out + 2, &rest, 8);
    return ks_put_exponent(out + (length > 1 ? length + 1 : 1), all->exponent[i]);
}

KS_INLINE char *put_single(char *out, const lanes *in, const texts *all, size_t i, int *non_finite)
{
    const uint64_t rest = ((uint64_t)all->fours[1][i] << 32 | all->fours[0][i]) | ks_zeros;
    if (all->form[i] == ANY) return ks_single_write_any((const char *)&in->bits[i], out, non_finite);
    *out = '-';
    out += in->bits[i] >> 31;
    return all->form[i] == FIXED ? put_fixed(out, all, i, rest) : put_scientific(out, all, i, rest);
}

/* A comma behind each. */
KS_INLINE char *put_block(char *out, lanes *in, texts *all, size_t count, int *non_finite)
{
    for (size_t i = 0; i < count; i++) {
        const ks_single_scale scale = ks_number_single_scales.of[in->bits[i] >> 23 & 255];
        in->upper[i] = scale.upper;
        in->lower[i] = scale.lower;
    }
    find_texts(in, all);
    for (size_t i = 0; i < count; i++) {
        out = put_single(out, in, all, i, non_finite);
        *out++ = ',';
    }
    return out;
}

/* Builds in which variables start as zeros clear these once a list, not once a block. */
static __attribute__((noinline)) char *put_blocks(char *out, const char *at, size_t n, int *non_finite)
{
    lanes in = {.bits = {0}};
    texts all;
    while (n > 0) {
        const size_t count = n < BLOCK ? n : BLOCK;
        memcpy(in.bits, at, count * sizeof *in.bits);
        out = put_block(out, &in, &all, count, non_finite);
        at += count * sizeof *in.bits;
        n -= count;
    }
    return out;
}

size_t ks_singles_write(const void *elements, size_t n, char *out, int *non_finite)
{
    const size_t few = n % BLOCK < FEW ? n % BLOCK : 0;
    const char *at = elements;
    char *p = put_blocks(out, at, n - few, non_finite);
    for (size_t i = n - few; i < n; i++) {
        p = ks_single_write_any(at + i * sizeof(float), p, non_finite);
        *p++ = ',';
    }
    return (size_t)(p - out) - (n > 0); /* no comma behind the last one */
}
