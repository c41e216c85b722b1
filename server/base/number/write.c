/* Elements to text: the shortest that reads back exactly, of those the closest; digits eight at a time.
 *
 * Source  R. Giulietti, The Schubfach way to render doubles, 2020; which of the usual forms a float takes is C++'s
 *         to_chars without a format: the shorter one of fixed and scientific, fixed where they are equally long. */
#include <assert.h>
#include <string.h>

#include "base/number/parts.h"
#include "ops/numbers/fp8.h"

/* --- digits ------------------------------------------------------------------------------------------------------- */

static const uint64_t zeros = 0x3030303030303030;

/* Eight digits of v < 10^8 as bytes 0 to 9, the first one lowest: halves, quarters, digits, all side by side. x << n less
 * q times (m << n) - 1 is q below and x - m q above it. */
KS_INLINE uint64_t eight_digits(uint32_t v)
{
    const uint64_t fours = ((uint64_t)v << 32) - v / 10000 * (((uint64_t)10000 << 32) - 1);
    const uint64_t pairs = (fours << 16) - (fours * 10486 >> 20 & 0x0000007F0000007F) * ((100 << 16) - 1);
    return (pairs << 8) - (pairs * 103 >> 10 & 0x000F000F000F000F) * ((10 << 8) - 1);
}

/* How many of them there are up to the last one that is not 0. */
KS_INLINE int used_digits(uint64_t digits)
{
    return (70 - __builtin_clzll(2 * digits + 1)) / 8;
}

KS_INLINE char *put_eight(char *out, uint64_t digits)
{
    digits |= zeros;
    memcpy(out, &digits, 8);
    return out + 8;
}

/* Eight bytes are written whatever the length. */
KS_INLINE char *put_below_1e8(char *out, uint32_t v)
{
    const uint64_t digits = eight_digits(v);
    const int skip = __builtin_ctzll(digits | (uint64_t)1 << 56) / 8;
    put_eight(out, digits >> 8 * skip);
    return out + 8 - skip;
}

KS_INLINE char *put_unsigned(char *out, uint64_t v)
{
    if (v < 100000000) return put_below_1e8(out, (uint32_t)v);
    const uint64_t upper = v / 100000000;
    if (upper < 100000000)
        out = put_below_1e8(out, (uint32_t)upper);
    else
        out = put_eight(put_below_1e8(out, (uint32_t)(upper / 100000000)), eight_digits((uint32_t)(upper % 100000000)));
    return put_eight(out, eight_digits((uint32_t)(v % 100000000)));
}

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

/* The same with one product, wherever that is not close to a border: the value in units of 10^ten is s and what is
 * behind; whatever rounds to it lies within half a last place, which is 0.5 or more and less than 5. A multiple of ten as
 * near is the shortest; else the nearest whole number is. Distances are in units of 2^-60. No branch on the digits: it
 * would go wrong for every second number. */
KS_INLINE decimal shortest(const format *f, uint64_t fraction, int field)
{
    if (fraction == 0 || field == 0 || field == infinite(f)) return any_decimal(f, fraction, field);
    const int two = field - f->bias, ten = two * 1262611 >> 22, shift = two + (-ten * 1741647 >> 19) + 1;
    const ks_power *power = &ks_number_powers.of[-ten - KS_POWER_MIN];
    const uint64_t significand = (fraction | (uint64_t)1 << f->fraction_bits) << shift;
    /* Of an FP32 the upper half of the power is enough: 2^-36 is missing at most. */
    const unsigned __int128 product =
        f->digits == 9 ? (unsigned __int128)power->high * significand : scale(power, significand);
    const uint64_t close = f->digits == 9 ? 1 << 25 : 4, middle = (uint64_t)1 << 59;
    const uint64_t s = (uint64_t)(product >> 64), behind = (uint64_t)product >> 4, last = s % 10;
    const uint64_t above = last << 60 | behind, below = ((uint64_t)10 << 60) - above;
    const uint64_t beyond = (above < below ? above : below) - (power->high >> (5 - shift));
    if (beyond + close <= 2 * close || behind - middle + close <= 2 * close) return any_decimal(f, fraction, field);
    const uint64_t tens = s - last + (above < below ? 0 : 10), one = s + (behind >= middle);
    const uint64_t v = one ^ ((one ^ tens) & -(beyond >> 63));
    static const uint64_t filled[3] = {1, 10, 100};
    const int missing = (v < f->least) + (f->digits == 9 && v < f->least / 10);
    return (decimal){v * filled[missing], ten + f->digits - 1 - missing};
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
    const uint64_t upper = v / 100000000, last = eight_digits((uint32_t)(v - upper * 100000000));
    all.first = (char)('0' + upper);
    all.rest = last | zeros;
    all.length = 1 + used_digits(last);
    if (f->digits == 9) return all;
    const uint64_t first = upper / 100000000, middle = eight_digits((uint32_t)(upper - first * 100000000));
    all.first = (char)('0' + first);
    all.rest = all.rest << 64 | middle | zeros;
    all.length = last ? 8 + all.length : 1 + used_digits(middle);
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
    *out++ = 'e';
    *out++ = exponent < 0 ? '-' : '+';
    const int e = exponent < 0 ? -exponent : exponent;
    if (e >= 100) *out++ = (char)('0' + e / 100);
    *out++ = (char)('0' + e / 10 % 10);
    *out++ = (char)('0' + e % 10);
    return out;
}

/* A whole number as it is, not as the shortest digits and zeros. */
KS_INLINE char *put_whole(char *out, const format *f, parts p)
{
    const uint64_t significand = p.fraction | (uint64_t)1 << f->fraction_bits;
    const int two = p.field - f->bias;
    out = put_unsigned(out, two < 0 ? significand >> -two : significand << two);
    memcpy(out, ".0", 2); /* typed readers tell a float by its point */
    return out + 2;
}

KS_INLINE char *put_word(char *out, const char *word, size_t length)
{
    memcpy(out, word, length);
    return out + length;
}

/* More bytes may be written than the length says. d: its shortest decimal. */
KS_INLINE char *put_float(char *out, const format *f, const char *at, decimal d, int *non_finite)
{
    const parts p = apart(f, at);
    char *const start = out;
    *out = '-';
    out += p.negative;
    if (d.digits == 0) {
        if (p.field == 0) return put_word(out, "0.0", 3);
        *non_finite = 1;
        return p.fraction ? put_word(start, "NaN", 3) : put_word(out, "Infinity", 8);
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

/* --- elements ----------------------------------------------------------------------------------------------------- */

/* First the decimals of some, then their text: one after the other they would wait, each for its own digits. */
KS_INLINE size_t floats(const char *at, size_t n, const format *f, char *out, int *non_finite)
{
    enum { BLOCK = 16 };
    const size_t size = f->digits == 9 ? 4 : 8;
    decimal block[BLOCK];
    char *p = out;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t count = n - i < BLOCK ? n - i : BLOCK;
        for (size_t j = 0; j < count; j++) {
            const parts one = apart(f, at + (i + j) * size);
            block[j] = shortest(f, one.fraction, one.field);
        }
        for (size_t j = 0; j < count; j++) {
            *p = ',';
            p = put_float(p + (i + j > 0), f, at + (i + j) * size, block[j], non_finite);
        }
    }
    return (size_t)(p - out);
}

KS_INLINE char *whole_element(char *out, const char *at, size_t size, ks_kind kind)
{
    if (kind == KS_KIND_BOOL) return *at ? put_word(out, "true", 4) : put_word(out, "false", 5);
    uint64_t bits = 0;
    memcpy(&bits, at, size);
    if (kind == KS_KIND_UINT) return put_unsigned(out, bits);
    const size_t unused = 64 - 8 * size;
    const int64_t value = (int64_t)(bits << unused) >> unused;
    *out = '-';
    return put_unsigned(out + (value < 0), value < 0 ? -(uint64_t)value : (uint64_t)value);
}

/* size and kind are constants where it is called, so that each datatype has a loop of its own. */
KS_INLINE size_t wholes(const char *at, size_t n, size_t size, ks_kind kind, char *out)
{
    char *p = out;
    for (size_t i = 0; i < n; i++, at += size) {
        *p = ',';
        p = whole_element(p + (i > 0), at, size, kind);
    }
    return (size_t)(p - out);
}

/* Functions of their own: in one with all the others its constants do not stay in registers, 8 instructions a number. */
static __attribute__((noinline)) size_t singles(const void *elements, size_t n, char *out, int *non_finite)
{
    return floats(elements, n, &fp32, out, non_finite);
}

static __attribute__((noinline)) size_t doubles(const void *elements, size_t n, char *out, int *non_finite)
{
    return floats(elements, n, &fp64, out, non_finite);
}

/* FP8, as the FP32 of the same value. */
static size_t bytes(const unsigned char *at, size_t n, ks_fp8_layout form, char *out, int *non_finite)
{
    enum { BLOCK = 64 };
    float block[BLOCK];
    char *p = out;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t count = n - i < BLOCK ? n - i : BLOCK;
        for (size_t j = 0; j < count; j++) block[j] = ks_fp8_to_float(form, at[i + j]);
        *p = ',';
        p += i > 0;
        p += singles(block, count, p, non_finite);
    }
    return (size_t)(p - out);
}

size_t ks_numbers_write(const void *elements, size_t n, ks_dtype dtype, char *out, int *non_finite)
{
    switch (dtype) {
#define X(name, size, kind)                                                                                            \
    case KS_##name:                                                                                                    \
        if (kind == KS_KIND_FLOAT || kind == KS_KIND_BYTES) break;                                                     \
        return wholes(elements, n, size, kind, out);
        KS_DTYPE_TABLE(X)
#undef X
    default:
        break;
    }
    if (dtype == KS_FP32) return singles(elements, n, out, non_finite);
    if (ks_is_fp8(dtype)) return bytes(elements, n, ks_fp8_layout_of(dtype), out, non_finite);
    assert(dtype == KS_FP64 && "FP16, BF16 and BYTES are refused before anything is printed");
    return doubles(elements, n, out, non_finite);
}

size_t ks_number_write(const void *element, ks_dtype dtype, char *out)
{
    int ignored = 0;
    return ks_numbers_write(element, 1, dtype, out, &ignored);
}

size_t ks_double_write(double value, char *out)
{
    return ks_number_write(&value, KS_FP64, out);
}
