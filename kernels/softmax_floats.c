/* Softmax of FP32, FP16 and BF16: rows along a contiguous axis, blocks of columns along another. Computes in float, sums
 * in double. */
#include "softmax_parts.h"
#include "convert.h"
#include "vectorise.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    CHUNK = 4096,   /* elements of a row worked on at a time: stays in the first-level cache */
    COLUMNS = 512,  /* most columns worked on at a time */
    SHORT_ROW = 24, /* shorter rows are worked on side by side, as columns */
    AHEAD = 8,      /* lines taken together, and asked for ahead: CHUNK / COLUMNS */
    TILE_BYTES = 1 << 19
};

/* What half of a finite float is at most; how far z may run ahead of what a sum is relative to. */
#define HALF_MOST (FLT_MAX / 2)
#define REACH 1

typedef ks_softmax_rule rule;

/* The caller's scratch. */
typedef struct work {
    float x[CHUNK], y[CHUNK];
    float half_max[COLUMNS], reference[COLUMNS], tail[COLUMNS];
    double sum[COLUMNS];
    uint16_t raw[CHUNK];
} work;

/* --- moving between a datatype and float -------------------------------------------------------------------------- */

KS_CLONES static void gather32(const float *in, int64_t stride, int count, float *restrict out)
{
    for (int i = 0; i < count; i++) out[i] = in[i * stride];
}

KS_CLONES static void gather16(const uint16_t *in, int64_t stride, int count, uint16_t *restrict out)
{
    for (int i = 0; i < count; i++) out[i] = in[i * stride];
}

/* `count` elements, `stride` apart, as floats: in place where they lie so already, else in `to`. */
static const float *load(const rule *r, const void *in, int64_t at, int64_t stride, int count, float *to, work *w)
{
    if (r->dtype == KS_FP32) {
        const float *x = (const float *)in + at;
        if (stride == 1) return x;
        gather32(x, stride, count, to);
        return to;
    }
    const uint16_t *x = (const uint16_t *)in + at;
    if (stride != 1) {
        gather16(x, stride, count, w->raw);
        x = w->raw;
    }
    if (r->dtype == KS_FP16)
        ks_fp16_to_floats(x, to, (size_t)count);
    else
        ks_bf16_to_floats(x, to, (size_t)count);
    return to;
}

/* Where results are to be computed, so that store() has the least to do. */
static float *target(const rule *r, void *out, int64_t at, int64_t stride, work *w)
{
    return r->dtype == KS_FP32 && stride == 1 ? (float *)out + at : w->y;
}

static void store(const rule *r, void *out, int64_t at, int64_t stride, int count, work *w)
{
    if (r->dtype == KS_FP32) {
        float *y = (float *)out + at;
        if (stride != 1)
            for (int i = 0; i < count; i++) y[i * stride] = w->y[i];
        return;
    }
    uint16_t *y = (uint16_t *)out + at, *packed = stride == 1 ? y : w->raw;
    if (r->dtype == KS_FP16)
        ks_floats_to_fp16(w->y, packed, (size_t)count);
    else
        ks_floats_to_bf16(w->y, packed, (size_t)count);
    if (stride != 1)
        for (int i = 0; i < count; i++) y[i * stride] = packed[i];
}

/* --- rows: one maximum and one sum for all elements ------------------------------------------------------------------
 */

/* The largest half * x. Integers that order as the floats do, because the compiler vectorises a maximum of integers; a
 * NaN comes out on either side, and reaches the sum in any case. */
KS_CLONES static float row_half_max(const float *x, int count, float half)
{
    int32_t best = INT32_MIN;
    for (int i = 0; i < count; i++) {
        const float value = x[i] * half;
        int32_t key;
        memcpy(&key, &value, sizeof key);
        key ^= (key >> 31) & INT32_MAX;
        best = key > best ? key : best;
    }
    best ^= (best >> 31) & INT32_MAX;
    float value;
    memcpy(&value, &best, sizeof value);
    return value;
}

KS_CLONES static void row_exp(const float *x, float *restrict y, int count, float half, float half_max, float factor)
{
    for (int i = 0; i < count; i++) y[i] = ks_exp2_inline((x[i] * half - half_max) * factor);
}

KS_CLONES static void row_log(const float *x, float *restrict y, int count, const rule *r, float half_max,
                              float log_sum)
{
    const float half = r->half, scale = r->twice_scale;
    for (int i = 0; i < count; i++) y[i] = (x[i] * half - half_max) * scale - log_sum;
}

KS_CLONES static void row_times(float *y, int count, float factor)
{
    for (int i = 0; i < count; i++) y[i] *= factor;
}

/* In sixteen lanes, because a sum in one may not be reordered by the compiler. */
KS_CLONES static double row_sum(const float *x, int count)
{
    typedef float floats __attribute__((vector_size(32)));
    typedef double doubles __attribute__((vector_size(64)));
    doubles low = {0}, high = {0};
    int i = 0;
    for (; i + 16 <= count; i += 16) {
        floats a, b;
        memcpy(&a, x + i, sizeof a);
        memcpy(&b, x + i + 8, sizeof b);
        low += __builtin_convertvector(a, doubles);
        high += __builtin_convertvector(b, doubles);
    }
    double sum = 0;
    for (; i < count; i++) sum += (double)x[i];
    low += high;
    return sum + ((low[0] + low[4]) + (low[2] + low[6])) + ((low[1] + low[5]) + (low[3] + low[7]));
}

/* What a part of a row knows: half of the largest z / scale, and the sum of exp relative to it. */
typedef struct normaliser {
    float half_max;
    double sum;
} normaliser;

/* An infinite maximum stands for "no reference": 0 keeps inf - inf out, and the row ends as NaN by tail(). */
static float reference_of(float half_max)
{
    return isfinite(half_max) ? half_max : 0;
}

static double weight(const rule *r, float part, float whole)
{
    if (part == whole) return 1;
    return part == -INFINITY ? 0
                             : exp(((double)part - (double)whole) * 2 * r->scale); /* a scale of 0 makes NaN of -inf */
}

static normaliser join(const rule *r, normaliser a, normaliser b)
{
    if (isnan(a.half_max) || isnan(b.half_max)) return (normaliser){0, (double)NAN};
    const float whole = a.half_max > b.half_max ? a.half_max : b.half_max;
    return (normaliser){whole, a.sum * weight(r, a.half_max, whole) + b.sum * weight(r, b.half_max, whole)};
}

/* What each element is finished with: 1 / sum, or log sum. */
static float tail(const rule *r, float half_max, double sum)
{
    if (!isfinite(half_max)) return NAN;
    return (float)(r->log ? log(sum) : 1 / sum);
}

/* y: room for the exponentials, which softmax keeps and log-softmax does not. */
static normaliser row_statistics(const rule *r, const float *x, float *y, int count)
{
    const float half_max = row_half_max(x, count, r->half);
    row_exp(x, y, count, r->half, reference_of(half_max), r->factor);
    return (normaliser){half_max, row_sum(y, count)};
}

static int chunk_at(int64_t done, int64_t length)
{
    return (int)(length - done < CHUNK ? length - done : CHUNK);
}

/* Two readings: statistics chunk by chunk, merged; then the values, whose exponentials are cheaper than a third pass.
 */
static void long_row(const rule *r, const void *in, void *out, int64_t at, int64_t stride, int64_t length, work *w)
{
    normaliser whole = {-INFINITY, 0};
    for (int64_t i = 0; i < length; i += CHUNK) {
        const int count = chunk_at(i, length);
        whole = join(r, whole, row_statistics(r, load(r, in, at + i * stride, stride, count, w->x, w), w->y, count));
    }
    const float end = tail(r, whole.half_max, whole.sum), reference = reference_of(whole.half_max);
    for (int64_t i = 0; i < length; i += CHUNK) {
        const int count = chunk_at(i, length);
        const float *x = load(r, in, at + i * stride, stride, count, w->x, w);
        float *y = target(r, out, at + i * stride, stride, w);
        if (r->log) {
            row_log(x, y, count, r, reference, end);
        } else {
            row_exp(x, y, count, r->half, reference, r->factor);
            row_times(y, count, end);
        }
        store(r, out, at + i * stride, stride, count, w);
    }
}

static void row(const rule *r, const void *in, void *out, int64_t at, int64_t stride, int64_t length, work *w)
{
    if (length > CHUNK) {
        long_row(r, in, out, at, stride, length, w);
        return;
    }
    const int count = (int)length;
    const float *x = load(r, in, at, stride, count, w->x, w);
    float *y = target(r, out, at, stride, w);
    const normaliser whole = row_statistics(r, x, y, count);
    const float end = tail(r, whole.half_max, whole.sum);
    if (r->log)
        row_log(x, y, count, r, reference_of(whole.half_max), end);
    else
        row_times(y, count, end);
    store(r, out, at, stride, count, w);
}

/* --- columns: a maximum and a sum for each of `count` neighbours -----------------------------------------------------
 */

KS_CLONES static void columns_max(const float *restrict x, float *restrict half_max, int count, float half)
{
    for (int i = 0; i < count; i++) {
        const float value = x[i] * half;
        half_max[i] = ks_choose_inline(value > half_max[i], value, half_max[i]);
    }
}

/* Sums are relative to a reference, the largest so far; it moves, and the sum shrinks, when that has grown by more than
 * what a rounding may cost (REACH, of z). */
KS_CLONES static void columns_follow(const float *restrict half_max, float *restrict reference, double *restrict sum,
                                     float *restrict shrink, int count, float factor)
{
    const float reach = (float)(REACH * KS_LOG2_E);
    for (int i = 0; i < count; i++) {
        const float old = reference[i], top = ks_choose_inline(half_max[i] < HALF_MOST, half_max[i], HALF_MOST);
        const int leave = ((top - old) * factor > reach) | ((old == -HALF_MOST) & (top > old));
        reference[i] = ks_choose_inline(leave, top, old);
        shrink[i] = ks_exp2_inline((old - reference[i]) * factor);
    }
    for (int i = 0; i < count; i++) sum[i] *= (double)shrink[i];
}

KS_CLONES static void columns_sum(const float *restrict x, const float *restrict reference, double *restrict sum,
                                  float *restrict e, int count, const rule *r)
{
    const float half = r->half, factor = r->factor;
    for (int i = 0; i < count; i++) e[i] = ks_exp2_inline((x[i] * half - reference[i]) * factor);
    for (int i = 0; i < count; i++) sum[i] += (double)e[i];
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

/* The line after next ones, because the hardware does not look beyond a page and a line is shorter. */
static void prefetch(const rule *r, const void *in, int64_t at, int count)
{
    const int64_t size = (int64_t)ks_dtype_size(r->dtype), step = 64 / size;
    for (int64_t i = 0; i < count; i += step) __builtin_prefetch((const char *)in + (at + i) * size);
}

/* `count` columns `stride` apart, each `length` elements `step` apart. */
static void columns(const rule *r, const void *in, void *out, int64_t at, int count, int64_t stride, int64_t length,
                    int64_t step, work *w)
{
    for (int i = 0; i < count; i++) {
        w->half_max[i] = -INFINITY;
        w->reference[i] = -HALF_MOST;
        w->sum[i] = 0;
    }
    for (int64_t d = 0; d < length; d += AHEAD) {
        const float *x[AHEAD];
        const int lines = (int)(length - d < AHEAD ? length - d : AHEAD);
        for (int l = 0; l < lines; l++) {
            const int64_t next = d + l + AHEAD;
            if (stride == 1 && next < length) prefetch(r, in, at + next * step, count);
            x[l] = load(r, in, at + (d + l) * step, stride, count, w->x + l * COLUMNS, w);
            columns_max(x[l], w->half_max, count, r->half);
        }
        columns_follow(w->half_max, w->reference, w->sum, w->y, count, r->factor);
        for (int l = 0; l < lines; l++) columns_sum(x[l], w->reference, w->sum, w->y, count, r);
    }
    for (int i = 0; i < count; i++) {
        const float half_max = w->half_max[i];
        w->half_max[i] = reference_of(half_max);
        if (w->reference[i] != half_max && isfinite(half_max))
            w->sum[i] *= exp(((double)w->reference[i] - (double)half_max) * 2 * r->scale);
        w->tail[i] = tail(r, half_max, w->sum[i]);
    }
    for (int64_t d = 0; d < length; d++) {
        if (stride == 1 && d + AHEAD < length) prefetch(r, in, at + (d + AHEAD) * step, count);
        const float *x = load(r, in, at + d * step, stride, count, w->x, w);
        float *y = target(r, out, at + d * step, stride, w);
        (r->log ? columns_log : columns_exp)(x, w->half_max, w->tail, y, count, r);
        store(r, out, at + d * step, stride, count, w);
    }
}

/* A block of columns is read twice: as many at once as the second-level cache holds, but whole lines. */
static void all_columns(const rule *r, const void *in, void *out, int64_t at, int64_t total, int64_t stride,
                        int64_t length, int64_t step, work *w)
{
    const int64_t fit = TILE_BYTES / (int64_t)sizeof(float) / length;
    const int64_t width = fit < 128 ? 128 : fit > COLUMNS ? COLUMNS : fit;
    for (int64_t c = 0; c < total; c += width)
        columns(r, in, out, at + c * stride, (int)(total - c < width ? total - c : width), stride, length, step, w);
}

void ks_softmax_floats(const ks_softmax_rule *r, const void *in, void *out, int64_t outer, int64_t length,
                       int64_t inner, void *scratch)
{
    if (inner == 1 && length < SHORT_ROW) {
        all_columns(r, in, out, 0, outer, length, length, 1, scratch);
        return;
    }
    for (int64_t o = 0; o < outer; o++) {
        const int64_t at = o * length * inner;
        if (inner > SHORT_ROW)
            all_columns(r, in, out, at, inner, 1, length, inner, scratch);
        else
            for (int64_t i = 0; i < inner; i++) row(r, in, out, at + i, inner, length, scratch);
    }
}

size_t ks_softmax_floats_scratch(void)
{
    return sizeof(work);
}
