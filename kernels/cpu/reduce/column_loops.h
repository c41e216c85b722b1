/* Part of folds.c: its loops over columns, four lines at a time. A function gets `lines` lines, `pitch` apart, of
 * `count` elements; the first line is the axis' `at`-th. */
#ifndef KS_REDUCE_COLUMN_LOOPS_H
#define KS_REDUCE_COLUMN_LOOPS_H

#include "cpu/reduce/floats.h"
#include "cpu/simd.h"

#include <float.h>
#include <math.h>

/* How far the maximum may run ahead of logsumexp's reference: the distance of an element from it is rounded to float, so
 * a reference far below costs the result half a unit of that distance. */
static const float REACH = 1;

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
COLUMNS_SUM(columns_magnitude, sum[i] + ((fabs(a) + fabs(b)) + (fabs(c) + fabs(d))), sum[i] + fabs(a))
COLUMNS_SUM(columns_nonzero, sum[i] + ((double)(a != 0) + (double)(b != 0) + (double)(c != 0) + (double)(d != 0)),
            sum[i] + (double)(a != 0))

/* The mean and the squared deviations of four lines join those of the `at` before. Before the first line any mean would do, 0 is there. */
KS_CLONES static void columns_moments(work *restrict w, const float *x, int64_t pitch, int lines, int count, int64_t at)
{
    double *restrict mean = w->sum, *restrict apart = w->apart;
    if (lines == LINES) {
        const double n = (double)at, share = LINES / (n + LINES);
        const float *restrict xa = x, *restrict xb = x + pitch, *restrict xc = xb + pitch, *restrict xd = xc + pitch;
        for (int i = 0; i < count; i++) {
            const double a = (double)xa[i], b = (double)xb[i], c = (double)xc[i], d = (double)xd[i];
            const double own = ((a + b) + (c + d)) / LINES, between = own - mean[i];
            apart[i] +=
                (((a - own) * (a - own) + (b - own) * (b - own)) + ((c - own) * (c - own) + (d - own) * (d - own))) +
                between * between * (n * share);
            mean[i] += between * share;
        }
        return;
    }
    for (int l = 0; l < lines; l++, x += pitch) {
        const double share = 1 / (double)(at + l + 1);
        for (int i = 0; i < count; i++) {
            const double between = (double)x[i] - mean[i], next = mean[i] + between * share;
            apart[i] += between * ((double)x[i] - next); /* of an infinity NaN */
            mean[i] = next;
        }
    }
}

#define COLUMNS_EXTREME(name, compare)                                                                                 \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int lines, int count, int64_t at)      \
    {                                                                                                                  \
        (void)at;                                                                                                      \
        float *restrict best = w->best;                                                                                \
        if (lines == LINES) {                                                                                          \
            const float *restrict xa = x, *restrict xb = x + pitch, *restrict xc = xb + pitch,                         \
                                  *restrict xd = xc + pitch;                                                           \
            for (int i = 0; i < count; i++) {                                                                          \
                float b = best[i];                                                                                     \
                b = ks_choose_inline(((xa[i] compare b) | (xa[i] != xa[i])), xa[i], b);                                \
                b = ks_choose_inline(((xb[i] compare b) | (xb[i] != xb[i])), xb[i], b);                                \
                b = ks_choose_inline(((xc[i] compare b) | (xc[i] != xc[i])), xc[i], b);                                \
                best[i] = ks_choose_inline(((xd[i] compare b) | (xd[i] != xd[i])), xd[i], b);                          \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int l = 0; l < lines; l++, x += pitch)                                                                    \
            for (int i = 0; i < count; i++)                                                                            \
                best[i] = ks_choose_inline(((x[i] compare best[i]) | (x[i] != x[i])), x[i], best[i]);                  \
    }
COLUMNS_EXTREME(columns_max, >)
COLUMNS_EXTREME(columns_min, <)

/* One line's element against the running extreme `b`, which it may replace, and its place `p`. */
#define TAKE_ARG(value, place, compare)                                                                                \
    do {                                                                                                               \
        const float v = (value);                                                                                       \
        const int32_t take = -((v compare b) | ((v != v) & (b == b)));                                                 \
        b = ks_choose_inline(-take, v, b);                                                                             \
        p = ((place)&take) | (p & ~take);                                                                              \
    } while (0)

#define COLUMNS_ARG(name, compare)                                                                                     \
    KS_CLONES static void name(work *restrict w, const float *x, int64_t pitch, int lines, int count, int64_t at)      \
    {                                                                                                                  \
        float *restrict best = w->best;                                                                                \
        int32_t *restrict line = w->line;                                                                              \
        const int32_t here = (int32_t)at;                                                                              \
        if (lines == LINES) {                                                                                          \
            const float *restrict xa = x, *restrict xb = x + pitch, *restrict xc = xb + pitch,                         \
                                  *restrict xd = xc + pitch;                                                           \
            for (int i = 0; i < count; i++) {                                                                          \
                float b = best[i];                                                                                     \
                int32_t p = line[i];                                                                                   \
                TAKE_ARG(xa[i], here, compare);                                                                        \
                TAKE_ARG(xb[i], here + 1, compare);                                                                    \
                TAKE_ARG(xc[i], here + 2, compare);                                                                    \
                TAKE_ARG(xd[i], here + 3, compare);                                                                    \
                best[i] = b;                                                                                           \
                line[i] = p;                                                                                           \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int l = 0; l < lines; l++, x += pitch)                                                                    \
            for (int i = 0; i < count; i++) {                                                                          \
                float b = best[i];                                                                                     \
                int32_t p = line[i];                                                                                   \
                TAKE_ARG(x[i], here + l, compare);                                                                     \
                best[i] = b;                                                                                           \
                line[i] = p;                                                                                           \
            }                                                                                                          \
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

#endif
