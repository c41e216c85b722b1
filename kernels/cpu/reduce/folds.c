/* The loops of floats.c: rows by vectors, columns four lines at a time.
 *
 * Bits  depend on the shape alone: lanes are fixed in number and join in a fixed order, whatever the processor. */
#include "cpu/reduce/column_loops.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((__always_inline__))
typedef float narrow __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t narrow_masks __attribute__((vector_size(32), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(64), aligned(8)));
enum { HALF = 8 };

/* --- one row --- */

enum { ADD, SQUARE, TIMES, MAGNITUDE };

INLINE doubles fold_doubles(doubles sum, narrow x, int how)
{
    if (how == MAGNITUDE) x = (narrow)((narrow_masks)x & INT32_MAX);
    const doubles d = __builtin_convertvector(x, doubles);
    return how == TIMES ? sum * d : how == SQUARE ? sum + d * d : sum + d;
}

/* The last `rest` of eight elements that end at x + 8, the others neutral: the tail without a loop. */
INLINE narrow last_of(const float *x, int rest, int how)
{
    static const int32_t ones[2 * HALF] = {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1};
    const narrow_masks keep = *(const narrow_masks *)(ones + rest), neutral = {0};
    const narrow one = {1, 1, 1, 1, 1, 1, 1, 1};
    const narrow_masks other = how == TIMES ? (narrow_masks)one : neutral;
    return (narrow)(((narrow_masks)(*(const narrow *)x) & keep) | (other & ~keep));
}

INLINE double sum_of(const float *x, int count, int how)
{
    const double none = how == TIMES;
    const doubles start = {none, none, none, none, none, none, none, none};
    doubles sum[4] = {start, start, start, start};
    int i = 0;
    for (; i + 4 * HALF <= count; i += 4 * HALF)
        for (int v = 0; v < 4; v++) sum[v] = fold_doubles(sum[v], *(const narrow *)(x + i + v * HALF), how);
    for (; i + HALF <= count; i += HALF) sum[0] = fold_doubles(sum[0], *(const narrow *)(x + i), how);
    double last = none;
    if (i < count && count >= HALF)
        sum[1] = fold_doubles(sum[1], last_of(x + count - HALF, count - i, how), how);
    else
        for (; i < count; i++)
            last = how == TIMES       ? last * x[i]
                   : how == SQUARE    ? last + (double)x[i] * x[i]
                   : how == MAGNITUDE ? last + fabs((double)x[i])
                                      : last + x[i];
    const doubles a = how == TIMES ? sum[0] * sum[1] : sum[0] + sum[1];
    const doubles b = how == TIMES ? sum[2] * sum[3] : sum[2] + sum[3], all = how == TIMES ? a * b : a + b;
    if (how == TIMES) return last * (((all[0] * all[4]) * (all[2] * all[6])) * ((all[1] * all[5]) * (all[3] * all[7])));
    return last + (((all[0] + all[4]) + (all[2] + all[6])) + ((all[1] + all[5]) + (all[3] + all[7])));
}

/* As integers that order as the floats do, because the compiler vectorises a maximum of integers. NaN where there is
 * one; with `nan` false it may get lost. */
INLINE float extreme_of(const float *x, int count, bool low, bool nan)
{
    const int32_t flip = low ? INT32_MIN : 0;
    int32_t best = INT32_MIN, seen = 0;
    for (int i = 0; i < count; i++) {
        int32_t key;
        memcpy(&key, &x[i], sizeof key);
        key ^= flip;
        key ^= (key >> 31) & INT32_MAX;
        best = key > best ? key : best;
        if (nan) seen |= x[i] != x[i];
    }
    best ^= (best >> 31) & INT32_MAX;
    best ^= flip;
    float value;
    memcpy(&value, &best, sizeof value);
    return seen ? NAN : value;
}

INLINE int first_nan(const float *x, int count)
{
    int i = 0;
    while (i < count && x[i] == x[i]) i++;
    return i;
}

typedef struct place {
    float value;
    int at;
} place;

/* The extreme and where it is first: the first NaN where there is one. Every lane keeps its own first extreme; `low` is
 * an extreme of the negative. */
INLINE place place_of(const float *x, int count, bool low)
{
    if (count < KS_WIDE) {
        int at = 0;
        for (int i = 1; i < count; i++)
            if (low ? x[i] < x[at] : x[i] > x[at]) at = i;
        const int nan = first_nan(x, count);
        return nan < count ? (place){NAN, nan} : (place){x[at], at};
    }
    const ks_wide_mask lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const float sign = low ? -1 : 1;
    ks_wide best = KS_SPREAD(-INFINITY), seen = {0};
    ks_wide_mask at = lanes;
    for (int i = 0; i < count; i += KS_WIDE) {
        const int from = i + KS_WIDE <= count ? i : count - KS_WIDE;
        const ks_wide v = KS_WIDE_AT(x + from) * sign;
        const ks_wide_mask here = lanes + from;
        const ks_wide old = best;
        best = ks_wide_choose(v > old, v, old);
        at = (ks_wide_mask)ks_wide_choose(v > old, (ks_wide)here, (ks_wide)at);
        seen = ks_wide_choose(v != v, v, seen);
    }
    ks_wide most = ks_wide_max(KS_ROTATE(best, 8), best);
    most = ks_wide_max(KS_ROTATE(most, 4), most);
    most = ks_wide_max(KS_ROTATE(most, 2), most);
    most = ks_wide_max(KS_ROTATE(most, 1), most);
    int32_t where[KS_WIDE], first = INT32_MAX;
    const ks_wide_mask none = lanes - lanes + INT32_MAX;
    at = (ks_wide_mask)ks_wide_choose(best == most, (ks_wide)at, (ks_wide)none);
    memcpy(where, &at, sizeof where);
    for (int l = 0; l < KS_WIDE; l++) first = where[l] < first ? where[l] : first;
    seen += KS_ROTATE(seen, 8);
    seen += KS_ROTATE(seen, 4);
    seen += KS_ROTATE(seen, 2);
    seen += KS_ROTATE(seen, 1);
    if (seen[0] != seen[0]) return (place){NAN, first_nan(x, count)};
    return (place){most[0] * sign, first};
}

/* --- several rows: `count` elements of each, `pitch` apart, whose first has the place `at` --- */

#define ROWS_SUM(name, how, joined)                                                                                    \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)       \
    {                                                                                                                  \
        (void)at;                                                                                                      \
        for (int r = 0; r < rows; r++, x += pitch) w->sum[r] = w->sum[r] joined sum_of(x, count, how);                 \
    }
ROWS_SUM(rows_exact_sum, ADD, +)
ROWS_SUM(rows_square, SQUARE, +)
ROWS_SUM(rows_product, TIMES, *)
ROWS_SUM(rows_magnitude, MAGNITUDE, +)

/* Leaves of eight vectors are added in float, as a tree of three levels, and come to the doubles then: conversions take longer than the
 * memory. What is left of a row goes the exact way, and so does a row whose sum is not finite, as a leaf may be where the sum is not. */
typedef float four __attribute__((vector_size(16), aligned(4)));
typedef double four_doubles __attribute__((vector_size(32), aligned(8)));
enum { LEAF = 8 };

KS_CLONES static double leaves_sum(const float *x, int count)
{
    four_doubles sum[4] = {{0}, {0}, {0}, {0}};
    for (int i = 0; i < count; i += LEAF * KS_WIDE) {
        ks_wide v[LEAF];
        float leaf[KS_WIDE];
        for (int l = 0; l < LEAF; l++) v[l] = KS_WIDE_AT(x + i + l * KS_WIDE);
        v[0] = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
        memcpy(leaf, &v[0], sizeof leaf);
        for (int q = 0; q < 4; q++) sum[q] += __builtin_convertvector(*(const four *)(leaf + 4 * q), four_doubles);
    }
    const four_doubles all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return (all[0] + all[1]) + (all[2] + all[3]);
}

KS_CLONES static double one_sum(const float *x, int count)
{
    return sum_of(x, count, ADD);
}

static void rows_sum(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)
{
    const int whole = count / (LEAF * KS_WIDE) * (LEAF * KS_WIDE);
    if (whole == 0) {
        rows_exact_sum(w, x, pitch, rows, count, at);
        return;
    }
    for (int r = 0; r < rows; r++, x += pitch) {
        const double before = w->sum[r], leaves = leaves_sum(x, whole);
        w->sum[r] = before + (isfinite(leaves) ? leaves + one_sum(x + whole, count - whole) : one_sum(x, count));
    }
}

KS_CLONES static void rows_nonzero(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)
{
    (void)at;
    for (int r = 0; r < rows; r++, x += pitch) {
        int32_t taken = 0;
        for (int i = 0; i < count; i++) taken += x[i] != 0;
        w->sum[r] += taken;
    }
}

INLINE double squared_deviations_of(const float *x, int count, double mean)
{
    const doubles spread = {mean, mean, mean, mean, mean, mean, mean, mean};
    doubles sum[2] = {{0}, {0}};
    double last = 0;
    int i = 0;
    for (; i + 2 * HALF <= count; i += 2 * HALF)
        for (int v = 0; v < 2; v++) {
            const doubles d = __builtin_convertvector(*(const narrow *)(x + i + v * HALF), doubles) - spread;
            sum[v] += d * d;
        }
    for (; i < count; i++) last += ((double)x[i] - mean) * ((double)x[i] - mean);
    const doubles all = sum[0] + sum[1];
    return last + (((all[0] + all[4]) + (all[2] + all[6])) + ((all[1] + all[5]) + (all[3] + all[7])));
}

/* A panel's mean and squared deviations, which are in the first-level cache, join those of the `at` elements before. */
KS_CLONES static void rows_moments(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)
{
    const double n = (double)at, share = count / (n + count);
    for (int r = 0; r < rows; r++, x += pitch) {
        const double mean = sum_of(x, count, ADD) / count, apart = mean - w->sum[r];
        w->apart[r] += squared_deviations_of(x, count, mean) + apart * apart * (n * share);
        w->sum[r] = at ? w->sum[r] + apart * share : mean;
    }
}

#define ROWS_EXTREME(name, low)                                                                                        \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)       \
    {                                                                                                                  \
        (void)at;                                                                                                      \
        for (int r = 0; r < rows; r++, x += pitch) {                                                                   \
            const float best = extreme_of(x, count, low, true), old = w->best[r];                                      \
            w->best[r] = (low ? best < old : best > old) || best != best ? best : old;                                 \
        }                                                                                                              \
    }
ROWS_EXTREME(rows_max, false)
ROWS_EXTREME(rows_min, true)

/* The first NaN stays. */
#define ROWS_ARG(name, low)                                                                                            \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)       \
    {                                                                                                                  \
        for (int r = 0; r < rows; r++, x += pitch) {                                                                   \
            const place p = place_of(x, count, low);                                                                   \
            const float old = w->best[r];                                                                              \
            if (!((low ? p.value < old : p.value > old) || (p.value != p.value && old == old))) continue;              \
            w->best[r] = p.value;                                                                                      \
            w->at[r] = at + p.at;                                                                                      \
        }                                                                                                              \
    }
ROWS_ARG(rows_argmax, false)
ROWS_ARG(rows_argmin, true)

INLINE float largest_of(const float *x, int count)
{
    if (count < KS_WIDE) return extreme_of(x, count, false, false);
    ks_wide a = KS_SPREAD(-INFINITY), b = a;
    int i = 0;
    for (; i + 2 * KS_WIDE <= count; i += 2 * KS_WIDE) {
        a = ks_wide_max(KS_WIDE_AT(x + i), a);
        b = ks_wide_max(KS_WIDE_AT(x + i + KS_WIDE), b);
    }
    if (i + KS_WIDE <= count) a = ks_wide_max(KS_WIDE_AT(x + i), a);
    b = ks_wide_max(KS_WIDE_AT(x + count - KS_WIDE), b);
    a = ks_wide_max(a, b);
    a = ks_wide_max(KS_ROTATE(a, 8), a);
    a = ks_wide_max(KS_ROTATE(a, 4), a);
    a = ks_wide_max(KS_ROTATE(a, 2), a);
    return ks_wide_max(KS_ROTATE(a, 1), a)[0];
}

INLINE ks_wide exp_at(const float *x, float reference)
{
    return ks_wide_exp2((KS_WIDE_AT(x) - reference) * (float)KS_LOG2_E);
}

/* The sum of exp(x - reference) of sixteen elements or more, none of which is +inf. Memory is asked meanwhile for what
 * lies a panel further on, mostly the next rows: the first pass over them would only wait. */
INLINE double exp_sum(const float *x, int count, float reference)
{
    ks_wide_doubles total = {0};
    int i = 0;
    for (; i + 4 * KS_WIDE <= count; i += 4 * KS_WIDE) {
        const uintptr_t next = (uintptr_t)(x + i) + PANEL * sizeof *x;
        for (uintptr_t line = 0; line < 4; line++) __builtin_prefetch((const void *)(next + 64 * line));
        const ks_wide a = exp_at(x + i, reference), b = exp_at(x + i + KS_WIDE, reference);
        const ks_wide c = exp_at(x + i + 2 * KS_WIDE, reference), d = exp_at(x + i + 3 * KS_WIDE, reference);
        total += ks_wide_widen((a + b) + (c + d));
    }
    ks_wide rest = {0};
    const bool more = i < count;
    for (; i + KS_WIDE <= count; i += KS_WIDE) rest += exp_at(x + i, reference);
    if (i < count) {
        const ks_wide last = exp_at(x + count - KS_WIDE, reference);
        rest += (ks_wide)((ks_wide_bits)last & ks_wide_last(count - i));
    }
    if (more) total += ks_wide_widen(rest);
    double lane[KS_WIDE];
    memcpy(lane, &total, sizeof lane);
    for (int l = 0; l < 8; l++) lane[l] += lane[l + 8];
    for (int l = 0; l < 4; l++) lane[l] += lane[l + 4];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

/* All maxima first: each row's end in a chain of steps, which those of other rows fill when they are near. */
KS_CLONES static void rows_logsumexp(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)
{
    (void)at;
    float *restrict tops = w->e, *restrict e = rows > 1 ? w->e + RESULTS : w->e; /* of one row it is read before */
    for (int r = 0; r < rows; r++) tops[r] = largest_of(x + r * pitch, count);
    for (int r = 0; r < rows; r++, x += pitch) {
        const float old = w->best[r], top = tops[r];
        float reference = old;
        if (top > old + REACH || (old == -FLT_MAX && top > old)) reference = top < FLT_MAX ? top : FLT_MAX;
        if (reference != old && w->sum[r] != 0) w->sum[r] *= exp((double)old - (double)reference);
        w->best[r] = reference;
        if (count >= KS_WIDE && top <= FLT_MAX) {
            w->sum[r] += exp_sum(x, count, reference);
            continue;
        }
        for (int i = 0; i < count; i++) e[i] = ks_exp_bounded_inline(x[i] - reference);
        w->sum[r] += sum_of(e, count, ADD);
    }
}

ks_fold_fn *ks_reduce_fold(int op, bool columns)
{
    static ks_fold_fn *const ways[FUNCTIONS][2] = {
        [SUM] = {rows_sum, columns_sum},
        [MEAN] = {rows_sum, columns_sum},
        [MAX] = {rows_max, columns_max},
        [MIN] = {rows_min, columns_min},
        [PROD] = {rows_product, columns_product},
        [ARGMAX] = {rows_argmax, columns_argmax},
        [ARGMIN] = {rows_argmin, columns_argmin},
        [L2NORM] = {rows_square, columns_square},
        [LOGSUMEXP] = {rows_logsumexp, columns_logsumexp},
        [VAR] = {rows_moments, columns_moments},
        [STD] = {rows_moments, columns_moments},
        [SUMSQ] = {rows_square, columns_square},
        [L1NORM] = {rows_magnitude, columns_magnitude},
        [LOGSUM] = {rows_sum, columns_sum},
        [ANY] = {rows_nonzero, columns_nonzero},
        [ALL] = {rows_nonzero, columns_nonzero},
        [COUNT_NONZERO] = {rows_nonzero, columns_nonzero},
        [NORM_ZERO] = {rows_nonzero, columns_nonzero},
    };
    return ways[op][columns];
}
