/* Part of floats.c: its loops along columns that lie side by side, a maximum and a sum for each. */
#ifndef KS_SOFTMAX_COLUMN_LOOPS_H
#define KS_SOFTMAX_COLUMN_LOOPS_H

#include "cpu/softmax/softmax.h"
#include "cpu/simd.h"

#include <float.h>
#include <math.h>

typedef ks_softmax_rule rule;

enum { AHEAD = 8 }; /* lines taken together, and asked for ahead */

/* What half of a finite float is at most; how far z may run ahead of what a sum is relative to. */
#define HALF_MOST (FLT_MAX / 2)
#define REACH 1

/* `lines` lines of FP32, `pitch` elements from one's start to the next's, `count` columns of them: a view. */
typedef struct line_view {
    const float *x;
    int64_t pitch;
    int lines, count;
} line_view;

/* Sixteen columns, the first ones of the view. Sums are relative to a reference, the largest so far; it moves, and the sum shrinks,
 * when that has grown by more than what a rounding may cost (REACH, of z). */
KS_INLINE void take_lines(line_view all, float *half_max, float *reference, double *restrict sum, const rule *r)
{
    const int lines = all.lines;
    const float half = r->half, factor = r->factor;
    ks_wide v[AHEAD], most = KS_WIDE_AT(half_max);
    for (int l = 0; l < lines; l++) {
        v[l] = KS_WIDE_AT(all.x + l * all.pitch) * half;
        most = ks_wide_max(v[l], most);
    }
    const ks_wide old = KS_WIDE_AT(reference), least = KS_SPREAD(-HALF_MOST), limit = KS_SPREAD(HALF_MOST);
    const ks_wide top = ks_wide_max(least, ks_wide_choose(most < limit, most, limit));
    const ks_wide reach = KS_SPREAD((float)(REACH * KS_LOG2_E));
    const ks_wide now = ks_wide_choose((top - old) * factor > reach, top, old);
    const ks_wide shrink = ks_wide_exp2((old - now) * factor);
    for (int l = 0; l < lines; l++) v[l] = ks_wide_exp2((v[l] - now) * factor);
    for (int half_lines = lines / 2; half_lines > 0; half_lines /= 2)
        for (int l = 0; l < half_lines; l++) v[l] += v[l + half_lines];
    *(ks_wide *)half_max = most;
    *(ks_wide *)reference = now;
    ks_wide_doubles *sums = (ks_wide_doubles *)sum;
    *sums = *sums * ks_wide_widen(shrink) + ks_wide_widen(v[0]);
}

/* The columns' count is rounded up to sixteen; `ahead`: as many lines follow, and are asked for. */
KS_CLONES static void columns_take(line_view all, float *half_max, float *reference, double *sum, const rule *r,
                                   bool ahead)
{
    if (all.lines == AHEAD) {
        for (int i = 0; i < all.count; i += KS_WIDE) {
            if (ahead)
                for (int l = 0; l < AHEAD; l++) __builtin_prefetch(all.x + (AHEAD + l) * all.pitch + i, 0, 2);
            const line_view some = {all.x + i, all.pitch, AHEAD, KS_WIDE};
            take_lines(some, half_max + i, reference + i, sum + i, r);
        }
        return;
    }
    for (int l = 0; l < all.lines; l++)
        for (int i = 0; i < all.count; i += KS_WIDE) {
            const line_view some = {all.x + l * all.pitch + i, all.pitch, 1, KS_WIDE};
            take_lines(some, half_max + i, reference + i, sum + i, r);
        }
}

KS_CLONES static void columns_exp(const float *x, const float *restrict reference, const float *restrict end,
                                  float *restrict y, int count, const rule *r)
{
    const float half = r->half, factor = r->factor;
    for (int i = 0; i < count; i++) y[i] = ks_exp2_inline((x[i] * half - reference[i]) * factor) * end[i];
}

KS_CLONES static void columns_log(const float *x, const float *restrict reference, const float *restrict end,
                                  float *restrict y, int count, const rule *r)
{
    const float half = r->half, scale = r->twice_scale;
    for (int i = 0; i < count; i++) y[i] = (x[i] * half - reference[i]) * scale - end[i];
}

/* Sums relative to the maximum, and what the columns are finished with. */
KS_CLONES static void columns_settle(float *restrict half_max, const float *restrict reference, double *restrict sum,
                                     float *restrict end, int count, float factor)
{
    for (int i = 0; i < count; i++) {
        const float most = half_max[i];
        const int finite = most - most == 0;
        half_max[i] = ks_choose_inline(finite, most, 0);
        sum[i] *= (double)ks_choose_inline(finite, ks_exp2_inline((reference[i] - half_max[i]) * factor), NAN);
    }
    for (int i = 0; i < count; i++) end[i] = (float)(1 / sum[i]);
}

#endif
