/* What map must give, for its tests: one element at a time, in long double and 128-bit integers, which hold what every datatype has. What one
 * IEEE 754 operation gives is asked of the host's own. One thread. */
#ifndef KS_MAP_ORACLE_H
#define KS_MAP_ORACLE_H
#include <float.h>

#include "ops/map.h"
#include "ops/op_values.h"

typedef __int128 whole;

static inline bool oracle_is_whole(ks_dtype dtype)
{
    return ks_dtype_kind(dtype) != KS_KIND_FLOAT;
}

static inline int oracle_bits(ks_dtype dtype)
{
    return dtype == KS_BOOL ? 1 : 8 * (int)ks_dtype_size(dtype);
}

static inline whole oracle_least(ks_dtype dtype)
{
    return ks_dtype_kind(dtype) == KS_KIND_INT ? -((whole)1 << (oracle_bits(dtype) - 1)) : 0;
}

static inline whole oracle_most(ks_dtype dtype)
{
    return ((whole)1 << (oracle_bits(dtype) - (ks_dtype_kind(dtype) == KS_KIND_INT))) - 1;
}

/* The datatype's number with those low bits. */
static inline whole oracle_wrap(ks_dtype dtype, whole value)
{
    const int bits = oracle_bits(dtype);
    const whole low = value & (((whole)1 << bits) - 1);
    return low > oracle_most(dtype) ? low - ((whole)1 << bits) : low;
}

/* Precision, least normal exponent, largest number of a float. */
static inline void oracle_format(ks_dtype dtype, int *precision, int *least, long double *most)
{
    *precision = dtype == KS_FP8E4M3   ? 4
                 : dtype == KS_FP8E5M2 ? 3
                 : dtype == KS_FP16    ? 11
                 : dtype == KS_BF16    ? 8
                 : dtype == KS_FP32    ? 24
                                       : 53;
    *least = dtype == KS_FP8E4M3                       ? -6
             : dtype == KS_FP8E5M2 || dtype == KS_FP16 ? -14
             : dtype == KS_BF16 || dtype == KS_FP32    ? -126
                                                       : -1022;
    *most = dtype == KS_FP8E4M3   ? 448
            : dtype == KS_FP8E5M2 ? 57344
            : dtype == KS_FP16    ? 65504
            : dtype == KS_BF16    ? 0x1.FEp127L
            : dtype == KS_FP32    ? (long double)FLT_MAX
                                  : (long double)DBL_MAX;
}

static inline long double oracle_get(ks_dtype dtype, const void *data, int64_t i)
{
    const uint8_t byte = ks_dtype_size(dtype) == 1 ? ((const uint8_t *)data)[i] : 0;
    switch (dtype) {
    case KS_BOOL:
        return byte != 0;
    case KS_FP8E5M2: /* FP16's upper byte */
        return values_unpack((uint16_t)(byte << 8), 10, 15);
    case KS_FP8E4M3: {
        const int exponent = byte >> 3 & 15, fraction = byte & 7;
        const long double magnitude = exponent ? values_scale(8 + fraction, exponent - 10) : values_scale(fraction, -9);
        return (byte & 0x7F) == 0x7F ? (long double)NAN : byte & 0x80 ? -magnitude : magnitude;
    }
    default:
        return values_get(dtype, data, i);
    }
}

/* Rounded to nearest even, as a number of the datatype; FP8 saturates. */
static inline long double oracle_round(ks_dtype dtype, long double x)
{
    int precision, least, exponent;
    long double most;
    oracle_format(dtype, &precision, &least, &most);
    const bool is_fp8 = ks_dtype_size(dtype) == 1;
    if (isnan(x) || x == 0) return x;
    if (isinf(x)) return is_fp8 ? copysignl(most, x) : x;
    (void)frexpl(x, &exponent);
    const int ulp = (exponent - 1 < least ? least : exponent - 1) - precision + 1;
    const long double rounded = values_scale_long(rintl(values_scale_long(x, -ulp)), ulp);
    if (fabsl(rounded) <= most) return rounded;
    return copysignl(is_fp8 ? most : (long double)INFINITY, x);
}

/* Toward zero, saturating; NaN is 0. */
static inline whole oracle_truncate(ks_dtype dtype, long double x)
{
    if (dtype == KS_BOOL) return x != 0;
    if (isnan(x)) return 0;
    if (x >= (long double)oracle_most(dtype)) return oracle_most(dtype);
    return x <= (long double)oracle_least(dtype) ? oracle_least(dtype) : (whole)x;
}

/* What a function must give before it is cast: an integer, or a real number that may be off by so much. */
typedef struct oracle_value {
    bool is_whole, copied; /* copied: not even FP8's infinity becomes another number */
    whole integer;
    long double real, error;
} oracle_value;

static inline oracle_value oracle_of_whole(whole integer)
{
    return (oracle_value){.is_whole = true, .integer = integer, .real = (long double)integer};
}

/* Exactly that. */
static inline oracle_value oracle_of_real(long double real)
{
    return (oracle_value){.real = real};
}

static inline whole oracle_power(ks_dtype dtype, whole base, whole exponent)
{
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    uint64_t result = 1, square = (uint64_t)base;
    for (; exponent; exponent >>= 1, square *= square)
        if (exponent & 1) result *= square;
    return oracle_wrap(dtype, (whole)result);
}

static inline bool oracle_truth(ks_map_function function, long double x, long double y)
{
    switch (function) {
    case KS_MAP_EQ:
        return x == y;
    case KS_MAP_NE:
        return x != y;
    case KS_MAP_LT:
        return x < y;
    case KS_MAP_LE:
        return x <= y;
    case KS_MAP_GT:
        return x > y;
    default:
        return x >= y;
    }
}

/* a and b as the request gives them: of clamp they may be infinite. */
static inline whole oracle_whole_of(ks_map_function f, ks_dtype dtype, whole x, whole y, whole z, double a, double b)
{
    const whole ia = isfinite(a) ? (whole)a : 0, ib = isfinite(b) ? (whole)b : 0;
    switch (f) {
    case KS_MAP_ABS:
        return x < 0 ? -x : x;
    case KS_MAP_NEG:
        return -x;
    case KS_MAP_SIGN:
        return (x > 0) - (x < 0);
    case KS_MAP_SQUARE:
        return x * x;
    case KS_MAP_RELU:
        return x < 0 ? 0 : x;
    case KS_MAP_CLAMP:
        return isfinite(a) && x < ia ? ia : isfinite(b) && x > ib ? ib : x;
    case KS_MAP_LINEAR:
        return ia * x + ib;
    case KS_MAP_NOT:
        return dtype == KS_BOOL ? !x : ~x;
    case KS_MAP_ADD:
        return x + y;
    case KS_MAP_SUB:
        return x - y;
    case KS_MAP_MUL:
        return x * y;
    case KS_MAP_MIN:
        return x < y ? x : y;
    case KS_MAP_MAX:
        return x > y ? x : y;
    case KS_MAP_POW:
        return oracle_power(dtype, x, y);
    case KS_MAP_AND:
        return x & y;
    case KS_MAP_OR:
        return x | y;
    case KS_MAP_XOR:
        return x ^ y;
    case KS_MAP_AXPY:
        return ia * x + y;
    case KS_MAP_FMA:
        return x * y + z;
    default:
        return x;
    }
}

/* The exact number, rounded by nothing but long double. */
static inline long double oracle_curve(ks_map_function f, long double x, long double y, long double a)
{
    switch (f) {
    case KS_MAP_EXP:
        return expl(x);
    case KS_MAP_LOG:
        return logl(x);
    case KS_MAP_RSQRT:
        return 1 / sqrtl(x);
    case KS_MAP_SIN:
        return sinl(x);
    case KS_MAP_COS:
        return cosl(x);
    case KS_MAP_TANH:
        return tanhl(x);
    case KS_MAP_ERF:
        return erfl(x);
    case KS_MAP_SIGMOID:
        return 1 / (1 + expl(-x));
    case KS_MAP_GELU: /* below 0 by erfc, which loses nothing */
        return isinf(x) && x < 0 ? (long double)NAN : x * erfcl(-x * 0.70710678118654752440L) / 2;
    case KS_MAP_GELU_TANH:
        return isinf(x) && x < 0 ? (long double)NAN
                                 : x / (1 + expl(-1.59576912160573071176L * (x + 0.044715L * x * x * x)));
    case KS_MAP_SILU:
        return isinf(x) && x < 0 ? (long double)NAN : x / (1 + expl(-x));
    case KS_MAP_SOFTPLUS:
        return isnan(x) ? x : fmaxl(x, 0) + log1pl(expl(-fabsl(x)));
    case KS_MAP_ELU:
        return x > 0 ? x : a * expm1l(x);
    default:
        return powl(x, y);
    }
}

/* One operation of the datatype that is computed in, R: as the host does it. */
#define ORACLE_EXACT(name, R, sqrt_, floor_, ceil_, rint_, fma_)                                                       \
    static inline R name(ks_map_function f, R x, R y, R z, R a, R b)                                                   \
    {                                                                                                                  \
        switch (f) {                                                                                                   \
        case KS_MAP_ABS:                                                                                               \
            return x < 0 ? -x : x;                                                                                     \
        case KS_MAP_NEG:                                                                                               \
            return -x;                                                                                                 \
        case KS_MAP_SIGN:                                                                                              \
            return isnan(x) ? x : (R)((x > 0) - (x < 0));                                                              \
        case KS_MAP_SQRT:                                                                                              \
            return sqrt_(x);                                                                                           \
        case KS_MAP_RECIPROCAL:                                                                                        \
            return 1 / x;                                                                                              \
        case KS_MAP_SQUARE:                                                                                            \
            return x * x;                                                                                              \
        case KS_MAP_FLOOR:                                                                                             \
            return floor_(x);                                                                                          \
        case KS_MAP_CEIL:                                                                                              \
            return ceil_(x);                                                                                           \
        case KS_MAP_ROUND:                                                                                             \
            return rint_(x);                                                                                           \
        case KS_MAP_RELU:                                                                                              \
            return x < 0 ? 0 : x;                                                                                      \
        case KS_MAP_LEAKY_RELU:                                                                                        \
            return x < 0 ? a * x : x;                                                                                  \
        case KS_MAP_CLAMP:                                                                                             \
            return x < a ? a : x > b ? b : x;                                                                          \
        case KS_MAP_LINEAR:                                                                                            \
            return fma_(a, x, b);                                                                                      \
        case KS_MAP_ADD:                                                                                               \
            return x + y;                                                                                              \
        case KS_MAP_SUB:                                                                                               \
            return x - y;                                                                                              \
        case KS_MAP_MUL:                                                                                               \
            return x * y;                                                                                              \
        case KS_MAP_DIV:                                                                                               \
            return x / y;                                                                                              \
        case KS_MAP_MIN:                                                                                               \
            return isnan(x) || isnan(y) ? (R)NAN : x < y ? x : y;                                                      \
        case KS_MAP_MAX:                                                                                               \
            return isnan(x) || isnan(y) ? (R)NAN : x > y ? x : y;                                                      \
        case KS_MAP_AXPY:                                                                                              \
            return fma_(a, x, y);                                                                                      \
        case KS_MAP_FMA:                                                                                               \
            return fma_(x, y, z);                                                                                      \
        default:                                                                                                       \
            return x;                                                                                                  \
        }                                                                                                              \
    }
ORACLE_EXACT(oracle_float, float, sqrtf, floorf, ceilf, rintf, fmaf)
ORACLE_EXACT(oracle_double, double, sqrt, floor, ceil, rint, fma)

/* Units in the last place that a function may be off, where it is not exact; 0: exact. */
static inline int oracle_ulps(ks_map_function f)
{
    switch (f) {
    case KS_MAP_EXP:
    case KS_MAP_LOG:
    case KS_MAP_RSQRT:
    case KS_MAP_SIN:
    case KS_MAP_COS:
    case KS_MAP_TANH:
    case KS_MAP_ERF:
    case KS_MAP_SIGMOID:
    case KS_MAP_GELU:
    case KS_MAP_GELU_TANH:
    case KS_MAP_SILU:
        return 2;
    case KS_MAP_SOFTPLUS:
    case KS_MAP_ELU:
    case KS_MAP_POW:
        return 4;
    default:
        return 0;
    }
}

/* Of a function that is not exact. narrow: the result is rounded to 16 bits, and may be computed to some more. */
static inline long double oracle_error(ks_map_function f, bool is_double, bool narrow, long double x, long double y)
{
    const bool activation = f == KS_MAP_GELU || f == KS_MAP_GELU_TANH || f == KS_MAP_SILU;
    const int precision = is_double ? 53 : 24, least = is_double ? -1022 : -126;
    int exponent = least;
    if (y != 0 && isfinite(y)) (void)frexpl(y, &exponent);
    const long double ulp = values_scale_long(1, (exponent - 1 < least ? least : exponent - 1) - precision + 1);
    long double error = oracle_ulps(f) * ulp;
    if (f == KS_MAP_SIGMOID) error += values_scale_long(1, least); /* its inverse may be too large */
    if (activation) error = fabsl(x) * values_scale_long(1, 2 - precision) + ulp;
    return narrow ? error + 0x1p-12L * fabsl(y) + 0x1p-126L : error;
}

/* x, y, z: what the operands hold; dtype: theirs. */
static inline oracle_value oracle_apply(const ks_map_work *w, ks_map_function asked, ks_dtype out,
                                        const long double v[3])
{
    const long double x = v[0], y = v[1], z = v[2];
    if (asked == KS_MAP_WHERE || asked == KS_MAP_CAST) {
        const long double one = asked == KS_MAP_CAST ? x : x != 0 ? y : z;
        if (oracle_is_whole(w->dtype)) return oracle_of_whole((whole)one);
        return (oracle_value){.real = one, .copied = out == w->dtype};
    }
    if (asked == KS_MAP_ISNAN) return oracle_of_whole(isnan(x));
    if (w->truth) return oracle_of_whole(oracle_truth(asked, x, y));
    if (w->math == KS_MAP_INTEGER)
        return oracle_of_whole(
            oracle_wrap(w->dtype, oracle_whole_of(asked, w->dtype, (whole)x, (whole)y, (whole)z, w->a, w->b)));
    const bool is_double = w->math == KS_MAP_DOUBLE;
    if (oracle_ulps(asked) == 0)
        return oracle_of_real(
            is_double ? (long double)oracle_double(asked, (double)x, (double)y, (double)z, w->a, w->b)
                      : (long double)oracle_float(asked, (float)x, (float)y, (float)z, (float)w->a, (float)w->b));
    const long double dx = is_double ? (long double)(double)x : x, dy = is_double ? (long double)(double)y : y;
    oracle_value value = oracle_of_real(oracle_curve(asked, dx, dy, is_double ? w->a : (long double)(float)w->a));
    const bool narrow = ks_dtype_size(w->dtype) == 2 && out == w->dtype;
    value.error = oracle_error(asked, is_double, narrow, dx, value.real);
    return value;
}

static inline bool oracle_same(long double got, long double want)
{
    return isnan(want) ? isnan(got) : got == want;
}

/* Whether an element of the output may have that value. The middle: what a function's result is rounded to before it is cast. */
static inline bool oracle_accepts(const oracle_value *value, ks_dtype middle, ks_dtype out, long double got)
{
    if (value->is_whole && oracle_is_whole(out))
        return (whole)got == (out == KS_BOOL ? value->integer != 0 : oracle_wrap(out, value->integer));
    if (out == KS_BOOL && value->error >= fabsl(value->real)) return true;
    if (oracle_is_whole(out)) {
        const whole low = oracle_truncate(out, value->real - value->error);
        const whole high = oracle_truncate(out, value->real + value->error);
        return (whole)got >= low && (whole)got <= high;
    }
    if (value->copied) return oracle_same(got, value->real);
    if (value->is_whole || value->error == 0 || !isfinite(value->real))
        return oracle_same(got, oracle_round(out, value->real));
    /* Between the two ends, each rounded as the function's datatype and then as the output's. */
    const long double low = oracle_round(out, oracle_round(middle, value->real - value->error));
    const long double high = oracle_round(out, oracle_round(middle, value->real + value->error));
    return got >= low && got <= high;
}
#endif
