/* Part of floats.c: its loops along rows. One maximum and one sum for each `period`-th element, in sixteen lanes.
 *
 * A row has `count` elements in all, a multiple of period, which is a power of two. The tail of a long one
 * is its last sixteen elements, most of which have been seen. */
#ifndef KS_SOFTMAX_ROW_LOOPS_H
#define KS_SOFTMAX_ROW_LOOPS_H

#include "cpu/softmax/softmax.h"
#include "cpu/simd.h"

#include <math.h>

typedef ks_softmax_rule rule;

/* `rows` rows of FP32 that follow each other, of `count` elements each: a view. */
typedef struct row_view {
    const float *x;
    int rows, count, period;
} row_view;

/* Fewer than sixteen elements, and the first ones again. */
KS_INLINE ks_wide few(const float *x, int count, int period)
{
    float all[KS_WIDE];
    for (int i = 0; i < KS_WIDE; i++) all[i] = x[i < count ? i : i % period];
    return KS_WIDE_AT(all);
}

KS_INLINE ks_wide row_max(const float *x, int count, int period, float half)
{
    if (count < KS_WIDE) return few(x, count, period) * half;
    ks_wide a = KS_SPREAD(-INFINITY), b = a;
    int i = 0;
    for (; i + 2 * KS_WIDE <= count; i += 2 * KS_WIDE) {
        a = ks_wide_max(KS_WIDE_AT(x + i) * half, a);
        b = ks_wide_max(KS_WIDE_AT(x + i + KS_WIDE) * half, b);
    }
    if (i + KS_WIDE <= count) a = ks_wide_max(KS_WIDE_AT(x + i) * half, a);
    b = ks_wide_max(KS_WIDE_AT(x + count - KS_WIDE) * half, b);
    return ks_wide_max(a, b);
}

/* The largest half * x, in each lane the one of its place in the period. A NaN may get lost; it reaches the sum. */
KS_CLONES static void rows_max(row_view all, float *restrict half_max, float half)
{
    const int count = all.count, period = all.period;
    const float *x = all.x;
    for (int r = 0; r < all.rows; r++, x += count) {
        ks_wide best = row_max(x, count, period, half);
        if (period < 16) best = ks_wide_max(KS_ROTATE(best, 8), best);
        if (period < 8) best = ks_wide_max(KS_ROTATE(best, 4), best);
        if (period < 4) best = ks_wide_max(KS_ROTATE(best, 2), best);
        if (period < 2) best = ks_wide_max(KS_ROTATE(best, 1), best);
        memcpy(half_max + r * KS_WIDE, &best, sizeof best);
    }
}

/* An infinite maximum stands for "no reference": 0 keeps inf - inf out, and the row ends as NaN by tail(). */
KS_INLINE ks_wide references(const float *half_max)
{
    const ks_wide best = KS_WIDE_AT(half_max), zero = {0};
    return ks_wide_choose((best - best == zero), best, zero);
}

KS_INLINE ks_wide keep_exp(const float *x, float *y, ks_wide reference, const rule *r)
{
    const ks_wide e = ks_wide_exp2((KS_WIDE_AT(x) * r->half - reference) * r->factor);
    memcpy(y, &e, sizeof e);
    return e;
}

/* exp(z - reference) of each element to y, and their sums; meanwhile `ahead` comes closer, a byte of it for every byte
 * of x that `size` leaves. */
KS_CLONES static void rows_exp(row_view all, float *restrict y, const float *half_max, double *restrict sum,
                               const rule *r, const char *ahead)
{
    const int count = all.count, period = all.period;
    const float *x = all.x;
    const int64_t size = (int64_t)(r->dtype == KS_FP32 ? sizeof(float) : sizeof(uint16_t));
    for (int n = 0; n < all.rows; n++, x += count, y += count) {
        const ks_wide reference = references(half_max + n * KS_WIDE);
        ks_wide_doubles total = {0};
        int i = 0;
        for (; i + 4 * KS_WIDE <= count; i += 4 * KS_WIDE) {
            if (ahead)
                for (int64_t b = 0; b < 4 * KS_WIDE * size; b += 64) __builtin_prefetch(ahead + b);
            if (ahead) ahead += 4 * KS_WIDE * size;
            const ks_wide a = keep_exp(x + i, y + i, reference, r);
            const ks_wide b = keep_exp(x + i + KS_WIDE, y + i + KS_WIDE, reference, r);
            const ks_wide c = keep_exp(x + i + 2 * KS_WIDE, y + i + 2 * KS_WIDE, reference, r);
            const ks_wide d = keep_exp(x + i + 3 * KS_WIDE, y + i + 3 * KS_WIDE, reference, r);
            total += ks_wide_widen((a + b) + (c + d));
        }
        for (; i + KS_WIDE <= count; i += KS_WIDE) total += ks_wide_widen(keep_exp(x + i, y + i, reference, r));
        if (i < count && count >= KS_WIDE) {
            const int last = count - KS_WIDE;
            const ks_wide_bits e = (ks_wide_bits)keep_exp(x + last, y + last, reference, r);
            const ks_wide mine = (ks_wide)(e & ks_wide_last(count - i));
            /* Which lane of the period these begin in is the same, because both counts are multiples of it. */
            total += ks_wide_widen(mine);
        } else if (i < count) {
            const ks_wide filled = few(x, count, period);
            float e[KS_WIDE];
            keep_exp((const float *)&filled, e, reference, r);
            for (int l = count; l < KS_WIDE; l++) e[l] = 0;
            memcpy(y, e, (size_t)count * sizeof *e);
            total += ks_wide_widen(KS_WIDE_AT(e));
        }
        double lane[KS_WIDE];
        memcpy(lane, &total, sizeof lane);
        if (period < 16)
            for (int l = 0; l < 8; l++) lane[l] += lane[l + 8];
        if (period < 8)
            for (int l = 0; l < 4; l++) lane[l] += lane[l + 4];
        if (period < 4)
            for (int l = 0; l < 2; l++) lane[l] += lane[l + 2];
        if (period < 2) lane[0] += lane[1];
        memcpy(sum + n * period, lane, (size_t)period * sizeof *lane);
    }
}

/* What a row is finished with: y holds the exponentials, or x what they are made of. */
KS_CLONES static void rows_times(float *y, const float *tail, int rows, int count)
{
    for (int n = 0; n < rows; n++, y += count) {
        const ks_wide times = KS_WIDE_AT(tail + n * KS_WIDE);
        int i = 0;
        for (; i + KS_WIDE <= count; i += KS_WIDE) *(ks_wide *)(y + i) *= times;
        for (; i < count; i++) y[i] *= tail[n * KS_WIDE + i % KS_WIDE];
    }
}

KS_CLONES static void rows_log(row_view all, float *y, const float *half_max, const float *tail, const rule *r)
{
    const int count = all.count;
    const float *x = all.x;
    const float half = r->half, scale = r->twice_scale;
    for (int n = 0; n < all.rows; n++, x += count, y += count) {
        float reference[KS_WIDE];
        const ks_wide first = references(half_max + n * KS_WIDE), less = KS_WIDE_AT(tail + n * KS_WIDE);
        memcpy(reference, &first, sizeof first);
        int i = 0;
        for (; i + KS_WIDE <= count; i += KS_WIDE)
            *(ks_wide *)(y + i) = (KS_WIDE_AT(x + i) * half - first) * scale - less;
        for (; i < count; i++) y[i] = (x[i] * half - reference[i % KS_WIDE]) * scale - tail[n * KS_WIDE + i % KS_WIDE];
    }
}

#endif
