/* Lists of numbers, read eight digits at a time. A number that is not plain (a word, a fault, more than 19 digits, an end
 * of the float's range, a value that these means cannot tell from the middle between two floats) is left where it stands,
 * for ks_number_read.
 *
 * Source  up to 2^53 and 10^22: W. D. Clinger, How to read floating point numbers accurately, 1990. Beyond: D. Lemire,
 *         Number parsing at a gigabyte per second, 2021, arXiv:2101.11408, its first product only. */
#include <string.h>

#include "base/number/parts.h"

/* Every byte that reading one element may look at: sign, 24 digits, point, 24 digits, exponent, end. */
enum { AHEAD = 64, EXPONENT_DIGITS = 4 };

/* As many fit into 64 bits; a 0 in front of the point is none of them. */
enum { DIGITS = 19 };

static const uint64_t ten_to[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
static const double exact_power[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* --- text to a whole number and a power of ten -------------------------------------------------------------------- */

/* Of bytes 0 to 9, the first digit lowest: pairs, fours, all. */
KS_INLINE uint64_t value_of_eight(uint64_t v)
{
    v = v * 10 + (v >> 8);
    return ((v & 0x000000FF000000FF) * 0x000F424000000064 + (v >> 16 & 0x000000FF000000FF) * 0x0000271000000001) >> 32;
}

/* Appends the digits at p, eight at most, to *digits and returns how many. */
KS_INLINE unsigned take_digits(const char *p, uint64_t *digits)
{
    const uint64_t zeros = 0x3030303030303030, top_bits = 0x8080808080808080;
    uint64_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    /* A byte's top bit is set where it is below '0' or above '9'; true of the first such byte, which is what counts. */
    const uint64_t other = ((bytes + 0x4646464646464646) | (bytes - zeros)) & top_bits;
    if (other == 0) {
        *digits = *digits * 100000000 + value_of_eight(bytes - zeros);
        return 8;
    }
    const unsigned n = (unsigned)__builtin_ctzll(other) / 8;
    /* Zeros in front of n digits make them eight. */
    *digits = *digits * ten_to[n] + value_of_eight((bytes - zeros) << 8 << (56 - 8 * n));
    return n;
}

typedef struct decimal {
    uint64_t digits;
    int exponent;
    bool negative;
} decimal;

/* Behind the integer part, whose digits are added. NULL: none, too many, or a zero in front. */
KS_INLINE const char *whole_part(const char *p, uint64_t *digits)
{
    const char *const start = p;
    unsigned n;
    for (; (n = take_digits(p, digits)) == 8; p += 8)
        if (p - start == 16) return NULL;
    p += n;
    if (p == start || p - start > DIGITS || (*start == '0' && p - start > 1)) return NULL;
    return p;
}

KS_INLINE const char *exponent_part(const char *p, int *exponent)
{
    const bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    const char *const start = p;
    int value = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (p - start == EXPONENT_DIGITS) return NULL;
        value = value * 10 + (*p - '0');
    }
    *exponent += negative ? -value : value;
    return p == start ? NULL : p;
}

KS_INLINE const char *scan(const char *p, decimal *d)
{
    d->digits = 0;
    d->exponent = 0;
    d->negative = *p == '-';
    p += d->negative;
    const char *const first = p;
    if (p[1] == '.' && *p >= '0' && *p <= '9') /* the usual case, for less than an eighth of the price */
        d->digits = (uint64_t)(*p++ - '0');
    else if (!(p = whole_part(p, &d->digits)))
        return NULL;
    if (*p == '.') {
        const char *const start = p + 1, *const counted = *first == '0' ? start : first + 1;
        unsigned n;
        for (p++; (n = take_digits(p, &d->digits)) == 8; p += 8)
            if (p - start == 16) return NULL;
        p += n;
        if (p == start || p - counted > DIGITS) return NULL;
        d->exponent = (int)(start - p);
    }
    return (*p | 0x20) == 'e' ? exponent_part(p + 1, &d->exponent) : p;
}

/* --- to the nearest float ----------------------------------------------------------------------------------------- */

typedef struct format {
    int fraction_bits, bias, infinite; /* the exponent field of infinity */
} format;

static const format fp32 = {23, 127, 255}, fp64 = {52, 1023, 2047};

/* digits > 0. false: close to the middle between two floats, or not within the normal range. */
KS_INLINE bool nearest(const decimal *d, const format *f, uint64_t *out)
{
    const int q = d->exponent;
    if (q < KS_POWER_MIN || q > 308) return false;
    const int shift = __builtin_clzll(d->digits);
    /* The power is rounded down, so the true product begins with these 64 bits or with one more than them. */
    const uint64_t high =
        (uint64_t)((unsigned __int128)(d->digits << shift) * ks_number_powers.of[q - KS_POWER_MIN].high >> 64);
    const int top = (int)(high >> 63), dropped = 63 - f->fraction_bits - 1 + top;
    const uint64_t half = (uint64_t)1 << (dropped - 1), rest = high & (2 * half - 1);
    if ((rest & (half - 1)) == half - 1 || rest == half) return false;
    const int exponent = (((152170 + 65536) * q) >> 16) + 63 + top - shift + f->bias; /* floor of q log2(10) */
    if (exponent < 1 || exponent >= f->infinite) return false;
    /* The leading 1 adds one to the exponent, and so does a fraction that rounds up to the next power of two. */
    const uint64_t bits = ((uint64_t)(exponent - 1) << f->fraction_bits) + (high >> dropped) + (rest > half);
    if (bits >> f->fraction_bits == (uint64_t)f->infinite) return false;
    *out = bits;
    return true;
}

/* Whether digits and power are exact as FP64, so that one operation rounds once. */
KS_INLINE bool is_exact(const decimal *d)
{
    return d->digits <= (uint64_t)1 << 53 && d->exponent >= -22 && d->exponent <= 22;
}

KS_INLINE double exact(const decimal *d)
{
    const double digits = (double)(int64_t)d->digits;
    return d->exponent < 0 ? digits / exact_power[-d->exponent] : digits * exact_power[d->exponent];
}

KS_INLINE bool to_double(const decimal *d, unsigned char *out)
{
    uint64_t bits;
    if (is_exact(d)) {
        const double value = exact(d);
        memcpy(&bits, &value, sizeof bits);
    } else if (d->digits == 0 || !nearest(d, &fp64, &bits)) {
        return false;
    }
    bits |= (uint64_t)d->negative << 63;
    memcpy(out, &bits, sizeof bits);
    return true;
}

KS_INLINE bool to_float(const decimal *d, unsigned char *out)
{
    uint64_t bits;
    if (is_exact(d)) {
        const double value = exact(d);
        const float rounded = (float)value;
        uint32_t narrow;
        memcpy(&bits, &value, sizeof bits);
        /* Rounded twice it is the same, unless the first time put it right between two FP32. */
        if ((bits & 0x1FFFFFFF) == 0x10000000) return false;
        memcpy(&narrow, &rounded, sizeof narrow);
        bits = narrow;
    } else if (d->digits == 0 || !nearest(d, &fp32, &bits)) {
        return false;
    }
    const uint32_t element = (uint32_t)bits | (uint32_t)d->negative << 31;
    memcpy(out, &element, sizeof element);
    return true;
}

/* --- one element, one list ---------------------------------------------------------------------------------------- */

KS_INLINE const char *integer(const char *p, size_t size, bool is_signed, unsigned char *out)
{
    const bool negative = *p == '-';
    const uint64_t most = UINT64_MAX >> (64 - 8 * size + is_signed);
    uint64_t digits = 0;
    p = whole_part(p + negative, &digits);
    if (!p || digits > (negative ? (is_signed ? most + 1 : 0) : most)) return NULL;
    if (negative) digits = -digits;
    memcpy(out, &digits, size);
    return p;
}

/* Reads the element at p to out. Returns the place behind it, NULL: it is not plain. */
KS_INLINE const char *element(const char *p, size_t size, ks_kind kind, unsigned char *out)
{
    decimal d;
    if (kind != KS_KIND_FLOAT) return integer(p, size, kind == KS_KIND_INT, out);
    if (!(p = scan(p, &d))) return NULL;
    return (size == 4 ? to_float(&d, out) : to_double(&d, out)) ? p : NULL;
}

KS_INLINE bool ends_element(char c)
{
    return c == ',' || c == ']' || c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* size and kind are constants where it is called, so that each datatype has a loop of its own. */
KS_INLINE size_t list(const char **text, const char *end, size_t size, ks_kind kind, size_t most, unsigned char *out)
{
    const char *p = *text;
    size_t n = 0;
    while (n < most && end - p >= AHEAD) {
        p = element(p, size, kind, out);
        if (!p || !ends_element(*p)) break;
        *text = p;
        n++;
        if (*p != ',') break;
        for (p++; p < end && *p == ' '; p++) continue;
        out += size;
    }
    return n;
}

size_t ks_numbers_read(const char **text, const char *end, ks_dtype dtype, size_t most, void *out)
{
    switch (dtype) {
#define X(name, size, kind)                                                                                            \
    case KS_##name:                                                                                                    \
        if (kind == KS_KIND_BOOL || kind == KS_KIND_BYTES || (kind == KS_KIND_FLOAT && size < 4)) break;               \
        return list(text, end, size, kind, most, out);
        KS_DTYPE_TABLE(X)
#undef X
    default:
        break;
    }
    return 0;
}

bool ks_digits_read(const char *text, size_t length, int64_t *value)
{
    if (length == 0 || length > 18 || (*text == '0' && length > 1)) return false;
    int64_t digits = 0;
    for (size_t i = 0; i < length; i++) {
        const unsigned digit = (unsigned char)text[i] - (unsigned)'0';
        if (digit > 9) return false;
        digits = digits * 10 + digit;
    }
    *value = digits;
    return true;
}
