/* Sums of 16 pairs of vectors, a register of lanes each, and the lanes of all 16 added together at the end.
 *
 * Owns     nothing.
 * Interface sums.h.
 * Threads  any.
 * Limits   sums are FP32: as many values as a caller lets one have. */
#include "cpu/search/sums.h"

/* Halves of a and b side by side, where those of `distance` lanes that were apart come together. */
#define HALVES_8(a, b, x, y)                                                                                           \
    __builtin_shufflevector(a, b, x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7, y, y + 1, y + 2, y + 3, y + 4,   \
                            y + 5, y + 6, y + 7)
#define HALVES_4(a, b, x, y)                                                                                           \
    __builtin_shufflevector(a, b, x, x + 1, x + 2, x + 3, y, y + 1, y + 2, y + 3, x + 8, x + 9, x + 10, x + 11, y + 8, \
                            y + 9, y + 10, y + 11)
#define HALVES_2(a, b, x, y)                                                                                           \
    __builtin_shufflevector(a, b, x, x + 1, y, y + 1, x + 4, x + 5, y + 4, y + 5, x + 8, x + 9, y + 8, y + 9, x + 12,  \
                            x + 13, y + 12, y + 13)
#define HALVES_1(a, b, x, y)                                                                                           \
    __builtin_shufflevector(a, b, x, y, x + 2, y + 2, x + 4, y + 4, x + 6, y + 6, x + 8, y + 8, x + 10, y + 10,        \
                            x + 12, y + 12, x + 14, y + 14)
#define FOLD(distance, a, b) (HALVES_##distance(a, b, 0, 16) + HALVES_##distance(a, b, distance, 16 + distance))

/* Lane i of the result is the sum of v[i]'s lanes. */
KS_INLINE ks_wide fold(ks_wide *v)
{
    for (int i = 0; i < 8; i++) v[i] = FOLD(8, v[i], v[i + 8]);
    for (int i = 0; i < 4; i++) v[i] = FOLD(4, v[i], v[i + 4]);
    for (int i = 0; i < 2; i++) v[i] = FOLD(2, v[i], v[i + 2]);
    return FOLD(1, v[0], v[1]);
}

KS_INLINE void add(const ks_wide sums, double *to)
{
    for (int i = 0; i < KS_WIDE; i++) to[i] += (double)sums[i];
}

#define PRODUCT(x, y) ((x) * (y))
#define DISTANCE(x, y) (((x) - (y)) * ((x) - (y)))

/* ks_search_sums_fn: XS by 16 / XS pairs */
#define SUMS(name, XS, TERM)                                                                                           \
    KS_CLONES void ks_search_##name(const float *const *x, const float *const *y, int count, double *to)               \
    {                                                                                                                  \
        enum { YS = KS_WIDE / (XS) };                                                                                  \
        ks_wide v[KS_WIDE];                                                                                            \
        for (int i = 0; i < KS_WIDE; i++) v[i] = (ks_wide){0};                                                         \
        for (int l = 0; l < count; l += KS_WIDE) {                                                                     \
            ks_wide mine[XS];                                                                                          \
            for (int i = 0; i < (XS); i++) mine[i] = KS_WIDE_AT(x[i] + l);                                             \
            for (int j = 0; j < YS; j++) {                                                                             \
                const ks_wide other = KS_WIDE_AT(y[j] + l);                                                            \
                for (int i = 0; i < (XS); i++) v[i * YS + j] += TERM(mine[i], other);                                  \
            }                                                                                                          \
        }                                                                                                              \
        add(fold(v), to);                                                                                              \
    }

SUMS(products_4, 4, PRODUCT)
SUMS(products_1, 1, PRODUCT)
SUMS(distances_4, 4, DISTANCE)
SUMS(distances_1, 1, DISTANCE)

KS_CLONES void ks_search_squares(const float *const *x, const float *const *y, int count, double *to)
{
    (void)x;
    ks_wide v[KS_WIDE];
    for (int i = 0; i < KS_WIDE; i++) v[i] = (ks_wide){0};
    for (int l = 0; l < count; l += KS_WIDE)
        for (int j = 0; j < KS_WIDE; j++) {
            const ks_wide other = KS_WIDE_AT(y[j] + l);
            v[j] += other * other;
        }
    add(fold(v), to);
}
