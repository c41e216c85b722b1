/* What the files number*.c share: powers of ten, and the way by <charconv> for what the fast ways leave. Nothing outside
 * of these includes it. */
#ifndef KS_NUMBER_PARTS_H
#define KS_NUMBER_PARTS_H
#include "base/number/number.h"

#define KS_INLINE static inline __attribute__((always_inline))

enum { KS_POWER_MIN = -342, KS_POWER_MAX = 324 };

/* 128 bits of 10^q, the first of them 1, rounded up. high alone is rounded down: no low is 0 unless it is exact. */
typedef struct ks_power {
    uint64_t high, low;
} ks_power;

typedef struct ks_powers {
    ks_power of[KS_POWER_MAX - KS_POWER_MIN + 1];
} ks_powers;

#ifdef __cplusplus
extern "C" {
#endif

extern const ks_powers ks_number_powers;

/* Any finite value, as ks_number_write. */
size_t ks_number_write_any(double value, char *out);

#ifdef __cplusplus
}
#endif
#endif
