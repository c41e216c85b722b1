/* Floats to text by the exact way: the shortest that reads back exactly, of those the closest. All FP64, and what singles.c leaves of
 * FP32.
 *
 * Source  R. Giulietti, The Schubfach way to render doubles, 2020; which of the usual forms a float takes is C++'s
 *         to_chars without a format: the shorter one of fixed and scientific, fixed where they are equally long. */
#include <string.h>

#include "base/number/digits.h"

/* --- the shortest decimal ----------------------------------------------------------------------------------------- */

/* 9 digits of an FP32, 17 of an FP64: as many as tell any two apart. */
typedef struct decimal {
    uint64_t digits;
    int exponent; /* of the first */
} decimal;

typedef struct format {
    int fraction_bits, bias; /* the value is significand * 2^(exponent field - bias) */
    int digits;
    uint64_t least; /* with as many digits */
} format;

static const format fp32 = {23, 127 + 23, 9, 100000000}, fp64 = {52, 1023 + 52, 17, 10000000000000000};

/* An element's bits apart. */
typedef struct parts {
    uint64_t fraction;
    int field; /* of the exponent */
    bool negative;
} parts;

KS_INLINE int infinite(const format *f)
{
    return f->digits == 9 ? 255 : 2047;
}

KS_INLINE parts apart(const format *f, const char *at)
{
    uint64_t bits = 0;
    memcpy(&bits, at, f->digits == 9 ? 4 : 8);
    const uint64_t upper = bits >> f->fraction_bits;
    return (parts){bits & (((uint64_t)1 << f->fraction_bits) - 1), (int)upper & infinite(f),
                   upper > (uint64_t)infinite(f)};
}

/* power * v in units of 2^-64; less than 2 of them are missing. */
KS_INLINE unsigned __int128 scale(const ks_power *power, uint64_t v)
{
    return (unsigned __int128)power->high * v + (uint64_t)((unsigned __int128)power->low * v >> 64);
}

/* Its whole part, and 1 in the last bit if anything but nearly nothing lies below. */
KS_INLINE uint64_t scale_to_odd(const ks_power *power, uint64_t v)
{
    const unsigned __int128 product = scale(power, v);
    return (uint64_t)(product >> 64) | ((uint64_t)product > 1);
}

/* Four times the value and the ends of what rounds to it, in units of 10^ten: the multiple of ten within, else the whole
 * number within, else the closer one of two, which is even if both are as close. */
static uint64_t schubfach(uint64_t significand, int two, bool closer, int ten)
{
    const int shift = two + (-ten * 1741647 >> 19) + 1;
    const ks_power *power = &ks_number_powers.of[-ten - KS_POWER_MIN];
    const uint64_t odd = significand & 1; /* an even one owns its ends */
    const uint64_t lower = scale_to_odd(power, (4 * significand - 2 + closer) << shift) + odd;
    const uint64_t value = scale_to_odd(power, 4 * significand << shift);
    const uint64_t upper = scale_to_odd(power, (4 * significand + 2) << shift) - odd;
    const uint64_t s = value / 4, tens = s / 10, middle = 4 * s + 2;
    bool down = lower <= 40 * tens, up = 40 * tens + 40 <= upper;
    if (s >= 10 && down != up) return 10 * (tens + up);
    down = lower <= 4 * s;
    up = 4 * s + 4 <= upper;
    if (down != up) return s + up;
    return s + (value > middle || (value == middle && (s & 1)));
}

static __attribute__((noinline)) decimal any_decimal(const format *f, uint64_t fraction, int field)
{
    if (field == infinite(f) || (fraction == 0 && field == 0)) return (decimal){0, 0};
    const uint64_t significand = field ? fraction | (uint64_t)1 << f->fraction_bits : fraction;
    const int two = (field ? field : 1) - f->bias;
    /* The float below a power of two is only half as far away. */
    const bool closer = fraction == 0 && field > 1;
    const int ten = (two * 1262611 - (closer ? 524031 : 0)) >> 22;
    decimal d = {schubfach(significand, two, closer, ten), ten + f->digits - 1};
    for (; d.digits < f->least; d.exponent--) d.digits *= 10;
    return d;
}

/* Of an FP64 the same with one product, wherever that is not close to a border: the value in units of 10^ten is s and what is
 * behind; whatever rounds to it lies within half a last place, which is 0.5 or more and less than 5. A multiple of ten as
 * near is the shortest; else the nearest whole number is. Distances are in units of 2^-60. No branch on the digits: it
 * would go wrong for every second number. */
KS_INLINE decimal shortest(uint64_t fraction, int field)
{
    const format *f = &fp64;
    if (fraction == 0 || field == 0 || field == infinite(f)) return any_decimal(f, fraction, field);
    const int two = field - f->bias, ten = ks_power_of_ten(two), shift = two + (-ten * 1741647 >> 19) + 1;
    const ks_power *power = &ks_number_powers.of[-ten - KS_POWER_MIN];
    const unsigned __int128 product = scale(power, (fraction | (uint64_t)1 << f->fraction_bits) << shift);
    const uint64_t close = 4, middle = (uint64_t)1 << 59;
    const uint64_t s = (uint64_t)(product >> 64), behind = (uint64_t)product >> 4, last = s % 10;
    const uint64_t above = last << 60 | behind, below = ((uint64_t)10 << 60) - above;
    const uint64_t beyond = (above < below ? above : below) - (power->high >> (5 - shift));
    if (beyond + close <= 2 * close || behind - middle + close <= 2 * close) return any_decimal(f, fraction, field);
    const uint64_t tens = s - last + (above < below ? 0 : 10), one = s + (behind >= middle);
    const uint64_t v = one ^ ((one ^ tens) & -(beyond >> 63));
    const bool missing = v < f->least;
    return (decimal){v * (1 + 9 * (uint64_t)missing), ten + f->digits - 1 - missing};
}

/* --- a decimal's form --------------------------------------------------------------------------------------------- */

/* Digits ready to be laid out: the first, then sixteen (of an FP32 eight) more, the first of them lowest. */
typedef struct digits {
    char first;
    unsigned __int128 rest;
    int length; /* without zeros behind */
} digits;

KS_INLINE digits spread(const format *f, uint64_t v)
{
    digits all;
    const uint64_t upper = v / 100000000, last = ks_eight_digits((uint32_t)(v - upper * 100000000));
    all.first = (char)('0' + upper);
    all.rest = last | ks_zeros;
    all.length = 1 + ks_used_digits(last);
    if (f->digits == 9) return all;
    const uint64_t first = upper / 100000000, middle = ks_eight_digits((uint32_t)(upper - first * 100000000));
    all.first = (char)('0' + first);
    all.rest = all.rest << 64 | middle | ks_zeros;
    all.length = last ? 8 + all.length : 1 + ks_used_digits(middle);
    return all;
}

KS_INLINE void put_rest(char *out, const format *f, unsigned __int128 rest)
{
    memcpy(out, &rest, f->digits == 17 ? 16 : 8);
}

/* Whether that form is shorter. */
KS_INLINE bool is_scientific(const digits *d, int exponent)
{
    const int single = d->length == 1;
    return (exponent < single - 4) | (exponent - d->length + 1 > 5 - single);
}

KS_INLINE char *put_scientific(char *out, const format *f, const digits *d, int exponent)
{
    out[0] = d->first;
    out[1] = '.';
    put_rest(out + 2, f, d->rest);
    out += d->length > 1 ? d->length + 1 : 1;
    return ks_put_exponent(out, exponent);
}

/* A whole number as it is, not as the shortest digits and zeros. */
KS_INLINE char *put_whole(char *out, const format *f, parts p)
{
    const uint64_t significand = p.fraction | (uint64_t)1 << f->fraction_bits;
    const int two = p.field - f->bias;
    out = ks_put_unsigned(out, two < 0 ? significand >> -two : significand << two);
    memcpy(out, ".0", 2); /* typed readers tell a float by its point */
    return out + 2;
}

/* More bytes may be written than the length says. d: its shortest decimal. */
KS_INLINE char *put_float(char *out, const format *f, const char *at, decimal d, int *non_finite)
{
    const parts p = apart(f, at);
    char *const start = out;
    *out = '-';
    out += p.negative;
    if (d.digits == 0) {
        if (p.field == 0) return ks_put_word(out, "0.0", 3);
        *non_finite = 1;
        return p.fraction ? ks_put_word(start, "NaN", 3) : ks_put_word(out, "Infinity", 8);
    }
    const digits all = spread(f, d.digits);
    const int last = d.exponent - all.length + 1; /* the power of ten of the last digit */
    if ((d.exponent < -3 || d.exponent > 4) && is_scientific(&all, d.exponent))
        return put_scientific(out, f, &all, d.exponent);
    if (d.exponent < 0) {
        memcpy(out, "0.0000", 6);
        out += 1 - d.exponent;
        out[0] = all.first;
        put_rest(out + 1, f, all.rest);
        return out + all.length;
    }
    if (last < 0) {
        out[0] = all.first;
        put_rest(out + 1, f, all.rest);
        out[1 + d.exponent] = '.';
        put_rest(out + 2 + d.exponent, f, all.rest >> 8 * d.exponent);
        return out + all.length + 1;
    }
    if (d.exponent < 18) return put_whole(out, f, p);
    double value; /* so large a whole number is no FP32 that is written without an exponent */
    memcpy(&value, at, sizeof value);
    return start + ks_number_write_any(value, start);
}

char *ks_single_write_any(const char *element, char *out, int *non_finite)
{
    const parts one = apart(&fp32, element);
    return put_float(out, &fp32, element, any_decimal(&fp32, one.fraction, one.field), non_finite);
}

/* First the decimals of some, then their text: one after the other they would wait, each for its own digits. */
size_t ks_doubles_write(const void *elements, size_t n, char *out, int *non_finite)
{
    enum { BLOCK = 16 };
    const char *at = elements;
    decimal block[BLOCK];
    char *p = out;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t count = n - i < BLOCK ? n - i : BLOCK;
        for (size_t j = 0; j < count; j++) {
            const parts one = apart(&fp64, at + (i + j) * 8);
            block[j] = shortest(one.fraction, one.field);
        }
        for (size_t j = 0; j < count; j++) {
            *p = ',';
            p = put_float(p + (i + j > 0), &fp64, at + (i + j) * 8, block[j], non_finite);
        }
    }
    return (size_t)(p - out);
}
