/* What the files of this folder share: powers of ten, and the way by <charconv> for what the fast ways leave. Nothing outside
 * of these includes it. */
#ifndef KS_NUMBER_PARTS_H
#define KS_NUMBER_PARTS_H
#include "base/number/number.h"

#ifdef __cplusplus
#define KS_INLINE constexpr
#else
#define KS_INLINE static inline __attribute__((always_inline))
#endif

enum { KS_POWER_MIN = -342, KS_POWER_MAX = 324 };

/* 128 bits of 10^q, the first of them 1, rounded up. high alone is rounded down: no low is 0 unless it is exact. */
typedef struct ks_power {
    uint64_t high, low;
} ks_power;

typedef struct ks_powers {
    ks_power of[KS_POWER_MAX - KS_POWER_MIN + 1];
} ks_powers;

/* For a field of an FP32's exponent: the float is its significand times these 64 bits over 2^60, in units of 10^ks_power_of_ten. Rounded
 * down. */
typedef struct ks_single_scale {
    uint32_t lower, upper;
} ks_single_scale;

enum { KS_SINGLE_FIELDS = 256, KS_SINGLE_BIAS = 127 + 23 }; /* 2^(field - bias) is the last place */

typedef struct ks_single_scales {
    ks_single_scale of[KS_SINGLE_FIELDS];
} ks_single_scales;

/* floor(two log10 2): the greatest power of ten whose multiples tell all floats of last place 2^two apart. */
KS_INLINE int ks_power_of_ten(int two)
{
    return two * 1262611 >> 22;
}

#ifdef __cplusplus
extern "C" {
#endif

extern const ks_powers ks_number_powers;
extern const ks_single_scales ks_number_single_scales;

/* singles.c, floats.c: FP32 and FP64, as ks_numbers_write. */
size_t ks_singles_write(const void *elements, size_t n, char *out, int *non_finite);
size_t ks_doubles_write(const void *elements, size_t n, char *out, int *non_finite);

/* floats.c: any FP32, by the exact way. Returns where its text ends. */
char *ks_single_write_any(const char *element, char *out, int *non_finite);

/* Any finite value, as ks_number_write. */
size_t ks_number_write_any(double value, char *out);

#ifdef __cplusplus
}
#endif
#endif
