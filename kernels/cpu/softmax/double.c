/* Softmax of FP64: rows and columns, sums with what their rounding lost. */
#include "cpu/softmax/softmax.h"
#include "cpu/simd.h"

#include <math.h>
#include <string.h>

enum { PIECE = 256, LANES = 16 }; /* elements at a time; partial sums of a row */

typedef ks_softmax_rule rule;

/* The caller's scratch. */
typedef struct work {
    double wide[PIECE], sum[PIECE], lost[PIECE];
} work;

/* The largest half * x, as row_half_max has it. */
KS_CLONES static double double_half_max(const double *x, int64_t count, double half)
{
    int64_t best = INT64_MIN;
    for (int64_t i = 0; i < count; i++) {
        const double value = x[i] * half;
        int64_t key;
        memcpy(&key, &value, sizeof key);
        key ^= (key >> 63) & INT64_MAX;
        best = key > best ? key : best;
    }
    best ^= (best >> 63) & INT64_MAX;
    double value;
    memcpy(&value, &best, sizeof value);
    return value;
}

/* How far an element lies below its row's maximum: (x * half - half_max) * scale, for softmax's log; times log2 of e
 * (`factor`), for a power of 2. */
typedef struct fall {
    double half, half_max, scale, factor;
} fall;

/* exp(z - max z) of a piece of a row. */
KS_CLONES static void double_exp(const double *x, double *restrict e, int count, fall z)
{
    for (int i = 0; i < count; i++) e[i] = ks_exp2_double_inline((x[i] * z.half - z.half_max) * z.factor);
}

/* Adds a piece to the sums in LANES lanes; lost: what their rounding left out (Kahan). */
KS_CLONES static void double_take(work *w, const double *x, int count)
{
    typedef double doubles __attribute__((vector_size(64)));
    doubles sum[2], lost[2];
    memcpy(sum, w->sum, sizeof sum);
    memcpy(lost, w->lost, sizeof lost);
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int v = 0; v < 2; v++) {
            doubles term;
            memcpy(&term, x + i + v * (LANES / 2), sizeof term);
            term -= lost[v];
            const doubles next = sum[v] + term;
            lost[v] = (next - sum[v]) - term;
            sum[v] = next;
        }
    memcpy(w->sum, sum, sizeof sum);
    memcpy(w->lost, lost, sizeof lost);
    for (int l = 0; i < count; i++, l++) {
        const double term = x[i] - w->lost[l], next = w->sum[l] + term;
        w->lost[l] = (next - w->sum[l]) - term;
        w->sum[l] = next;
    }
}

static double double_total(const work *w)
{
    long double total = 0;
    for (int l = 0; l < LANES; l++) total += (long double)w->sum[l] - (long double)w->lost[l];
    return (double)total;
}

KS_CLONES static void double_log(const double *x, double *y, int64_t count, fall z, double log_sum)
{
    for (int64_t i = 0; i < count; i++) y[i] = (x[i] * z.half - z.half_max) * z.scale - log_sum;
}

KS_CLONES static void double_over(double *y, int64_t count, double sum)
{
    for (int64_t i = 0; i < count; i++) y[i] /= sum;
}

static void row_double(const rule *r, const double *x, double *y, int64_t length, work *w)
{
    fall z = {.half = (double)r->half, .scale = 2 * r->scale};
    z.half_max = double_half_max(x, length, z.half);
    z.factor = z.scale * KS_LOG2_E;
    memset(w->sum, 0, LANES * sizeof *w->sum);
    memset(w->lost, 0, LANES * sizeof *w->lost);
    for (int64_t i = 0; i < length; i += PIECE) {
        const int count = (int)(length - i < PIECE ? length - i : PIECE);
        double *e = r->log ? w->wide : y + i;
        double_exp(x + i, e, count, z);
        double_take(w, e, count);
    }
    const double sum = isfinite(z.half_max) ? double_total(w) : (double)NAN;
    if (r->log)
        double_log(x, y, length, z, log(sum));
    else
        double_over(y, length, sum);
}

/* `count` columns of FP64 that lie side by side, PIECE at the most: three readings. */
KS_CLONES static void columns_double(const rule *r, const ks_softmax_shape *shape, const double *x, double *y,
                                     int count, work *w)
{
    const int64_t length = shape->length, step = shape->inner;
    const double half = (double)r->half, scale = 2 * r->scale, factor = scale * KS_LOG2_E;
    double *restrict most = w->wide, *restrict sum = w->sum, *restrict lost = w->lost;
    for (int i = 0; i < count; i++) {
        most[i] = -(double)INFINITY;
        sum[i] = lost[i] = 0;
    }
    for (int64_t d = 0; d < length; d++)
        for (int i = 0; i < count; i++) {
            const double value = x[d * step + i] * half;
            most[i] = value > most[i] ? value : most[i];
        }
    for (int64_t d = 0; d < length; d++)
        for (int i = 0; i < count; i++) {
            const double term = ks_exp2_double_inline((x[d * step + i] * half - most[i]) * factor) - lost[i];
            const double next = sum[i] + term;
            lost[i] = (next - sum[i]) - term;
            sum[i] = next;
        }
    for (int i = 0; i < count; i++) {
        if (!isfinite(most[i])) sum[i] = (double)NAN;
        lost[i] = r->log ? log(sum[i]) : 0;
    }
    for (int64_t d = 0; d < length; d++) {
        double *restrict to = y + d * step;
        const double *from = x + d * step;
        if (r->log)
            for (int i = 0; i < count; i++) to[i] = (from[i] * half - most[i]) * scale - lost[i];
        else
            for (int i = 0; i < count; i++) to[i] = ks_exp2_double_inline((from[i] * half - most[i]) * factor) / sum[i];
    }
}

void ks_softmax_double(const ks_softmax_rule *r, const ks_softmax_shape *shape, const double *x, double *y,
                       void *scratch)
{
    work *w = scratch;
    const int64_t length = shape->length, inner = shape->inner;
    for (int64_t o = 0; o < shape->outer; o++, x += length * inner, y += length * inner) {
        if (inner == 1) {
            row_double(r, x, y, length, w);
            continue;
        }
        for (int64_t c = 0; c < inner; c += PIECE)
            columns_double(r, shape, x + c, y + c, (int)(inner - c < PIECE ? inner - c : PIECE), w);
    }
}

size_t ks_softmax_double_scratch(void)
{
    return sizeof(work);
}
