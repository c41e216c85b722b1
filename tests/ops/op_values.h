/* Random tensors for the op tests, and their elements as numbers. Decodes FP16 and BF16 by arithmetic of its own, so
 * that a mistake in the project's conversions shows. One thread. */
#ifndef KS_OP_VALUES_H
#define KS_OP_VALUES_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernserve/op.h"

typedef enum values_kind {
    VALUES_UNIFORM, /* [-1, 1] */
    VALUES_NORMAL,
    VALUES_WIDE,   /* exponents from -20 to 20 */
    VALUES_OFFSET, /* around 1e4 */
    VALUES_EQUAL,
    VALUES_HOT, /* one huge among small */
    VALUES_SUBNORMAL,
    VALUES_FINITE,                 /* how many kinds have finite values only */
    VALUES_MASKED = VALUES_FINITE, /* half of them -inf, whole rows too */
    VALUES_INFINITE,               /* one +inf */
    VALUES_NAN,                    /* one NaN */
    VALUES_BOTH,                   /* one +inf, one -inf, ties and signed zeros */
    VALUES_KINDS,                  /* random tests draw from those above */
    VALUES_RISING                  /* steadily up or down through the whole tensor, by at most 20 normals */
} values_kind;

static uint64_t values_state;

static inline uint64_t values_next(void)
{
    uint64_t z = values_state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* From KS_SEED, else from the clock; printed, so that a failure can be had again. */
static inline void values_seed(void)
{
    const char *text = getenv("KS_SEED");
    values_state = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) * 1000003u ^ (uint64_t)clock();
    printf("KS_SEED=%llu\n", (unsigned long long)values_state);
}

static inline int values_cases(int otherwise)
{
    const char *text = getenv("KS_CASES");
    return text ? atoi(text) : otherwise;
}

static inline int values_below(int bound)
{
    return (int)(values_next() % (uint64_t)bound);
}

static inline double values_unit(void)
{
    return (double)(values_next() >> 11) * 0x1p-53;
}

static inline double values_normal(void)
{
    return sqrt(-2 * log(1 - values_unit())) * cos(6.283185307179586 * values_unit());
}

/* x * 2^n as ldexp gives it, for all x and n; a multiplication, because the library's function was a tenth of some tests' time. */
static inline double values_scale(double x, int n)
{
    if (n < -1022 || n > 1023) return ldexp(x, n);
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return x * power;
}

/* Likewise, as ldexpl. */
static inline long double values_scale_long(long double x, int n)
{
    return n < -1022 || n > 1023 ? ldexpl(x, n) : x * (long double)values_scale(1, n);
}

/* log2l of a length; all elements of a tensor ask for the same one. */
static inline long double values_levels(int64_t length)
{
    static int64_t last = 1;
    static long double levels;
    if (length != last) levels = log2l((long double)(last = length));
    return levels;
}

/* The nearest of p-bit floats with exponents from least on, ties to even; for FP16 (11, -14) and BF16 (8, -126). */
static inline double values_round(double x, int precision, int least)
{
    if (x == 0 || !isfinite(x)) return x;
    int exponent;
    (void)frexp(x, &exponent);
    const int ulp = (exponent - 1 < least ? least : exponent - 1) - precision + 1;
    return values_scale(rint(values_scale(x, -ulp)), ulp);
}

static inline uint16_t values_pack(double x, int mantissa, int bias)
{
    const int top = 2 * bias + 1;
    const uint16_t sign = signbit(x) ? 0x8000u : 0;
    if (isnan(x)) return (uint16_t)(sign | top << mantissa | 1 << (mantissa - 1));
    const double magnitude = fabs(values_round(x, mantissa + 1, 1 - bias));
    if (magnitude >= values_scale(1, bias + 1)) return (uint16_t)(sign | top << mantissa);
    if (magnitude < values_scale(1, 1 - bias))
        return (uint16_t)(sign | (uint16_t)values_scale(magnitude, bias - 1 + mantissa));
    const int exponent = ilogb(magnitude),
              fraction = (int)values_scale(magnitude, mantissa - exponent) - (1 << mantissa);
    return (uint16_t)(sign | (((exponent + bias) << mantissa) + fraction));
}

static inline double values_unpack(uint16_t bits, int mantissa, int bias)
{
    const int exponent = (bits & 0x7FFF) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    const double magnitude = exponent == 2 * bias + 1 ? (fraction ? (double)NAN : (double)INFINITY)
                             : exponent == 0          ? values_scale(fraction, 1 - bias - mantissa)
                                             : values_scale(fraction + (1 << mantissa), exponent - bias - mantissa);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static inline void values_put(ks_dtype dtype, void *data, int64_t i, double x)
{
    switch (dtype) {
    case KS_FP16:
        ((uint16_t *)data)[i] = values_pack(x, 10, 15);
        break;
    case KS_BF16:
        ((uint16_t *)data)[i] = values_pack(x, 7, 127);
        break;
    case KS_FP32:
        ((float *)data)[i] = (float)x;
        break;
    default:
        ((double *)data)[i] = x;
        break;
    }
}

/* Exact for every datatype: long double holds 64 bits. */
static inline long double values_get(ks_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case KS_FP16:
        return values_unpack(((const uint16_t *)data)[i], 10, 15);
    case KS_BF16:
        return values_unpack(((const uint16_t *)data)[i], 7, 127);
    case KS_FP32:
        return ((const float *)data)[i];
    case KS_FP64:
        return ((const double *)data)[i];
    case KS_INT8:
        return ((const int8_t *)data)[i];
    case KS_INT16:
        return ((const int16_t *)data)[i];
    case KS_INT32:
        return ((const int32_t *)data)[i];
    case KS_INT64:
        return ((const int64_t *)data)[i];
    case KS_BOOL:
    case KS_UINT8:
        return ((const uint8_t *)data)[i];
    case KS_UINT16:
        return ((const uint16_t *)data)[i];
    case KS_UINT32:
        return ((const uint32_t *)data)[i];
    default:
        return ((const uint64_t *)data)[i];
    }
}

/* Half an ulp, relative; the smallest error that a subnormal has; where rounding gives infinity. */
static inline long double values_roundoff(ks_dtype dtype)
{
    return dtype == KS_FP16 ? 0x1p-11L : dtype == KS_BF16 ? 0x1p-8L : dtype == KS_FP32 ? 0x1p-24L : 0x1p-53L;
}

static inline long double values_floor(ks_dtype dtype)
{
    return dtype == KS_FP16 ? 0x1p-25L : dtype == KS_FP64 ? 0x1p-1074L : dtype == KS_BF16 ? 0x1p-134L : 0x1p-149L;
}

static inline long double values_limit(ks_dtype dtype)
{
    return dtype == KS_FP16 ? 65504.0L : dtype == KS_FP64 ? (long double)1.7e308 : 3.38e38L;
}

static inline double values_draw(values_kind kind, double common)
{
    switch (kind) {
    case VALUES_UNIFORM:
        return 2 * values_unit() - 1;
    case VALUES_WIDE:
        return ldexp(values_normal(), values_below(41) - 20);
    case VALUES_OFFSET:
        return 1e4 + values_normal();
    case VALUES_EQUAL:
        return common;
    case VALUES_HOT:
        return values_normal() * 1e-3;
    case VALUES_SUBNORMAL:
        return ldexp(values_normal(), values_below(2) ? -140 : -20);
    case VALUES_MASKED:
        return values_below(2) ? (double)-INFINITY : values_normal();
    case VALUES_BOTH:
        return values_below(3) - 1.0;
    default:
        return values_normal();
    }
}

static inline void values_fill_float(ks_dtype dtype, void *data, int64_t count, values_kind kind, int64_t row)
{
    const double common = values_normal();
    for (int64_t i = 0; i < count; i++)
        values_put(dtype, data, i,
                   kind == VALUES_RISING ? 20 * common * (double)i / (double)count : values_draw(kind, common));
    if (count == 0) return;
    const int64_t at = (int64_t)(values_next() % (uint64_t)count), other = (int64_t)(values_next() % (uint64_t)count);
    if (kind == VALUES_HOT) values_put(dtype, data, at, values_below(2) ? 6e4 : -6e4);
    if (kind == VALUES_INFINITE || kind == VALUES_BOTH) values_put(dtype, data, at, (double)INFINITY);
    if (kind == VALUES_BOTH) values_put(dtype, data, other, values_below(2) ? -0.0 : (double)-INFINITY);
    if (kind == VALUES_NAN) values_put(dtype, data, at, (double)(values_below(2) ? NAN : -NAN));
    if (kind == VALUES_NAN && values_below(2)) values_put(dtype, data, other, (double)NAN);
    if (kind == VALUES_MASKED) /* one whole line of the last axis, from where it starts */
        for (int64_t i = at / row * row; i < at / row * row + row; i++) values_put(dtype, data, i, (double)-INFINITY);
}

/* row: the extent of the last axis, at least 1. Integers get random bytes, small values or few different ones. */
static inline void values_fill(ks_dtype dtype, void *data, int64_t count, values_kind kind, int64_t row)
{
    if (ks_dtype_kind(dtype) == KS_KIND_FLOAT) {
        values_fill_float(dtype, data, count, kind, row);
        return;
    }
    const size_t size = ks_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t bits = kind % 3 == 0 ? values_next() : kind % 3 == 1 ? values_next() % 5 : values_next() % 100;
        memcpy((char *)data + (size_t)i * size, &bits, size);
    }
}

/* The most elements of a random case: mostly few, so that there can be many cases, now and then enough for a row that
 * no CTA holds, or for all of a chip. */
static inline int64_t values_most(void)
{
    const int kernel_info = values_below(64);
    return kernel_info == 0 ? 1 << 20 : kernel_info < 8 ? 50000 : 5000;
}

/* 1 to rank_max dimensions of at most `most` elements together; now and then a zero. */
static inline void values_shape(ks_tensor *tensor, int rank_max, int64_t most)
{
    static const int extents[] = {1,  1,   2,   3,   4,   5,   7,   8,    16,   17,   31,    32,    33,     63,
                                  64, 100, 127, 200, 255, 257, 513, 1000, 1023, 4097, 16385, 50257, 131072, 1000003};
    tensor->rank = 1 + values_below(rank_max);
    int64_t left = most;
    for (int i = 0; i < tensor->rank; i++) {
        const int kernel_info = extents[values_below(sizeof extents / sizeof *extents)];
        tensor->dims[i] = kernel_info <= left ? kernel_info : 1 + values_below((int)(left < 40 ? left : 40));
        left /= tensor->dims[i];
    }
    if (tensor->rank > 1 && values_below(2)) { /* long axes come at every place */
        const int a = values_below(tensor->rank), b = values_below(tensor->rank);
        const int64_t dim = tensor->dims[a];
        tensor->dims[a] = tensor->dims[b];
        tensor->dims[b] = dim;
    }
    if (values_below(40) == 0) tensor->dims[values_below(tensor->rank)] = 0;
}
#endif
