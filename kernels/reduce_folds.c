/* The loops of reduce_floats.c: rows by vectors, columns four lines at a time.
 *
 * Bits  depend on the shape alone: lanes are fixed in number and join in a fixed order, whatever the processor. */
#include "reduce_floats.h"
#include "vectorise.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Vectors appear in functions that are always inlined, so no calling convention ever passes one. */
#pragma GCC diagnostic ignored "-Wpsabi"

/* How far the maximum may run ahead of logsumexp's reference. */
static const float REACH = 16;

#define INLINE static inline __attribute__((always_inline))
typedef float narrow __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t narrow_masks __attribute__((vector_size(32), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(64)));
enum { HALF = 8 };

/* --- one row --- */

enum { ADD, SQUARE, TIMES };

INLINE doubles fold_doubles(doubles sum, narrow x, int how)
{
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
            last = how == TIMES ? last * x[i] : how == SQUARE ? last + (double)x[i] * x[i] : last + x[i];
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

/* The first element that equals `value`, or the first NaN where that is one. There is one. */
INLINE int find(const float *x, int count, float value)
{
    enum { AT_ONCE = 256 };
    const int32_t any_nan = -(value != value);
    for (int i = 0; i < count; i += AT_ONCE) {
        const int part = count - i < AT_ONCE ? count - i : AT_ONCE;
        int32_t first = INT32_MAX;
        for (int32_t j = 0; j < part; j++) {
            const int32_t hit = -(x[i + j] == value) | (any_nan & -(x[i + j] != x[i + j]));
            const int32_t at = (j & hit) | (INT32_MAX & ~hit);
            first = at < first ? at : first;
        }
        if (first != INT32_MAX) return i + first;
    }
    return 0;
}

/* --- several rows: `count` elements of each, `pitch` apart, whose first has the place `at` --- */

#define ROWS_SUM(name, how, joined)                                                                                    \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)       \
    {                                                                                                                  \
        (void)at;                                                                                                      \
        for (int r = 0; r < rows; r++, x += pitch) w->sum[r] = w->sum[r] joined sum_of(x, count, how);                 \
    }
ROWS_SUM(rows_sum, ADD, +)
ROWS_SUM(rows_square, SQUARE, +)
ROWS_SUM(rows_product, TIMES, *)

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

/* The extreme first, then where it is: searched for only where it is a new one. The first NaN stays. */
#define ROWS_ARG(name, low)                                                                                            \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)       \
    {                                                                                                                  \
        for (int r = 0; r < rows; r++, x += pitch) {                                                                   \
            const float best = extreme_of(x, count, low, true), old = w->best[r];                                      \
            if (!((low ? best < old : best > old) || (best != best && old == old))) continue;                          \
            w->best[r] = best;                                                                                         \
            w->at[r] = at + find(x, count, best);                                                                      \
        }                                                                                                              \
    }
ROWS_ARG(rows_argmax, false)
ROWS_ARG(rows_argmin, true)

KS_CLONES static void rows_logsumexp(work *restrict w, const float *x, int64_t pitch, int rows, int count, int64_t at)
{
    (void)at;
    for (int r = 0; r < rows; r++, x += pitch) {
        const float old = w->best[r], top = extreme_of(x, count, false, false);
        float reference = old;
        if (top > old + REACH || (old == -FLT_MAX && top > old)) reference = top < FLT_MAX ? top : FLT_MAX;
        for (int i = 0; i < count; i++) w->e[i] = ks_exp_bounded_inline(x[i] - reference);
        if (reference != old && w->sum[r] != 0) w->sum[r] *= exp((double)old - (double)reference);
        w->sum[r] += sum_of(w->e, count, ADD);
        w->best[r] = reference;
    }
}

/* --- columns: `lines` lines, `pitch` apart, of `count` elements; the first line is the axis' `at`-th --- */

#define COLUMNS_SUM(name, four, one)                                                                                   \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int lines, int count, int64_t at)      \
    {                                                                                                                  \
        (void)at;                                                                                                      \
        double *restrict sum = w->sum;                                                                                 \
        if (lines == LINES) {                                                                                          \
            const float *restrict xa = x, *restrict xb = x + pitch, *restrict xc = xb + pitch,                         \
                                  *restrict xd = xc + pitch;                                                           \
            for (int i = 0; i < count; i++) {                                                                          \
                const double a = (double)xa[i], b = (double)xb[i], c = (double)xc[i], d = (double)xd[i];               \
                sum[i] = four;                                                                                         \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int l = 0; l < lines; l++, x += pitch)                                                                    \
            for (int i = 0; i < count; i++) {                                                                          \
                const double a = (double)x[i];                                                                         \
                sum[i] = one;                                                                                          \
            }                                                                                                          \
    }
COLUMNS_SUM(columns_sum, sum[i] + ((a + b) + (c + d)), sum[i] + a)
COLUMNS_SUM(columns_square, sum[i] + ((a * a + b * b) + (c * c + d * d)), sum[i] + a * a)
COLUMNS_SUM(columns_product, sum[i] * ((a * b) * (c * d)), sum[i] * a)

#define COLUMNS_EXTREME(name, compare)                                                                                 \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int lines, int count, int64_t at)      \
    {                                                                                                                  \
        (void)at;                                                                                                      \
        float *restrict best = w->best;                                                                                \
        for (int l = 0; l < lines; l++, x += pitch)                                                                    \
            for (int i = 0; i < count; i++)                                                                            \
                best[i] = ks_choose_inline((x[i] compare best[i]) | (x[i] != x[i]), x[i], best[i]);                    \
    }
COLUMNS_EXTREME(columns_max, >)
COLUMNS_EXTREME(columns_min, <)

#define COLUMNS_ARG(name, compare)                                                                                     \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int lines, int count, int64_t at)      \
    {                                                                                                                  \
        float *restrict best = w->best;                                                                                \
        int32_t *restrict line = w->line;                                                                              \
        for (int l = 0; l < lines; l++, x += pitch) {                                                                  \
            const int32_t here = (int32_t)(at + l);                                                                    \
            for (int i = 0; i < count; i++) {                                                                          \
                const int32_t take = -((x[i] compare best[i]) | ((x[i] != x[i]) & (best[i] == best[i])));              \
                best[i] = ks_choose_inline(-take, x[i], best[i]);                                                      \
                line[i] = (here & take) | (line[i] & ~take);                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }
COLUMNS_ARG(columns_argmax, >)
COLUMNS_ARG(columns_argmin, <)

/* A missing line counts as -inf, whose exponential is nothing beside the 1 that a sum has in it. */
KS_CLONES static void columns_logsumexp(work *restrict w, const float *x, int64_t pitch, int lines, int count,
                                        int64_t at)
{
    (void)at;
    static const float nothing[RESULTS] = {0};
    const float gone = -INFINITY;
    const bool b = lines > 1, c = lines > 2, d = lines > 3;
    const float *restrict xa = x, *restrict xb = b ? x + pitch : nothing, *restrict xc = c ? x + 2 * pitch : nothing,
                          *restrict xd = d ? x + 3 * pitch : nothing;
    const float bias_b = b ? 0 : gone, bias_c = c ? 0 : gone, bias_d = d ? 0 : gone;
    float *restrict best = w->best, *restrict e = w->e, *restrict shrink = w->e + RESULTS;
    for (int i = 0; i < count; i++) {
        const float p = xa[i], q = xb[i] + bias_b, r = xc[i] + bias_c, s = xd[i] + bias_d, old = best[i];
        const float pq = ks_choose_inline(p > q, p, q), rs = ks_choose_inline(r > s, r, s);
        const float most = ks_choose_inline(pq > rs, pq, rs), top = ks_choose_inline(most < FLT_MAX, most, FLT_MAX);
        const int leave = (top > old + REACH) | ((old == -FLT_MAX) & (top > old));
        const float reference = ks_choose_inline(leave, top, old);
        shrink[i] = ks_exp_bounded_inline(old - reference);
        e[i] = (ks_exp_bounded_inline(p - reference) + ks_exp_bounded_inline(q - reference)) +
               (ks_exp_bounded_inline(r - reference) + ks_exp_bounded_inline(s - reference));
        best[i] = reference;
    }
    for (int i = 0; i < count; i++) w->sum[i] = w->sum[i] * (double)shrink[i] + (double)e[i];
}

ks_fold_fn *ks_reduce_fold(int op, bool columns)
{
    static ks_fold_fn *const ways[OPS][2] = {
        [SUM] = {rows_sum, columns_sum},
        [MEAN] = {rows_sum, columns_sum},
        [MAX] = {rows_max, columns_max},
        [MIN] = {rows_min, columns_min},
        [PROD] = {rows_product, columns_product},
        [ARGMAX] = {rows_argmax, columns_argmax},
        [ARGMIN] = {rows_argmin, columns_argmin},
        [L2NORM] = {rows_square, columns_square},
        [LOGSUMEXP] = {rows_logsumexp, columns_logsumexp},
    };
    return ways[op][columns];
}
