/* Softmax of FP32, FP16 and BF16: rows along a contiguous axis, blocks of columns along another. Computes in float, sums
 * in double, but for up to eight terms that are added in float first.
 *
 * Memory and arithmetic overlap only where the next elements are asked for while these are worked on, because the first
 * pass over a panel waits for memory and the others do not need it. */
#include "cpu/convert.h"
#include "cpu/softmax/column_loops.h"
#include "cpu/softmax/row_loops.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    CHUNK = 4096,   /* elements of a row worked on at a time: stays in the first-level cache */
    ROWS = 64,      /* most rows worked on at a time */
    COLUMNS = 1024, /* most columns worked on at a time */
    GATHERED = 512, /* the same where they are brought to a panel: CHUNK / AHEAD */
    SHORT_ROW = 24, /* shorter rows are worked on side by side, as columns */
    TILE_BYTES = 1 << 19,
    STREAM_BYTES = 16 << 20 /* a larger result goes past the caches */
};

/* The caller's scratch. `tail` is what each row or column is finished with. */
typedef struct work {
    float x[CHUNK], y[CHUNK];
    float half_max[COLUMNS], reference[COLUMNS], tail[COLUMNS];
    double sum[COLUMNS];
    uint16_t raw[CHUNK];
    float rest[AHEAD * KS_WIDE];
    bool stream;
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
    return r->dtype == KS_FP32 && stride == 1 && !w->stream ? (float *)out + at : w->y;
}

static void store(const rule *r, void *out, int64_t at, int64_t stride, int count, work *w)
{
    if (r->dtype == KS_FP32) {
        float *y = (float *)out + at;
        if (stride != 1)
            for (int i = 0; i < count; i++) y[i * stride] = w->y[i];
        else if (w->stream)
            ks_large_request(w->y, y, (size_t)count * sizeof *y);
        return;
    }
    uint16_t *y = (uint16_t *)out + at, *packed = stride == 1 && !w->stream ? y : w->raw;
    if (r->dtype == KS_FP16)
        ks_floats_to_fp16(w->y, packed, (size_t)count);
    else
        ks_floats_to_bf16(w->y, packed, (size_t)count);
    if (stride != 1)
        for (int i = 0; i < count; i++) y[i * stride] = packed[i];
    else if (w->stream)
        ks_large_request(packed, y, (size_t)count * sizeof *y);
}

/* --- rows ------------------------------------------------------------------------------------------------------------ */

/* What a part of a row knows: half of the largest z / scale, and the sum of exp relative to it. */
typedef struct normaliser {
    float half_max;
    double sum;
} normaliser;

static double weight(const rule *r, float part, float whole)
{
    if (part == whole) return 1;
    return part == -INFINITY ? 0
                             : exp(((double)part - (double)whole) * 2 * r->scale); /* a scale of 0 makes NaN of -inf */
}

static normaliser join(const rule *r, normaliser a, normaliser b)
{
    if (isnan(a.sum) || isnan(b.sum)) return (normaliser){0, (double)NAN};
    const float whole = a.half_max > b.half_max ? a.half_max : b.half_max;
    return (normaliser){whole, a.sum * weight(r, a.half_max, whole) + b.sum * weight(r, b.half_max, whole)};
}

/* What each element is finished with: 1 / sum, or log sum. */
static float tail(const rule *r, float half_max, double sum)
{
    if (!isfinite(half_max)) return NAN;
    return (float)(r->log ? log(sum) : 1 / sum);
}

static void tails(const rule *r, work *w, int rows, int period)
{
    for (int n = 0; n < rows; n++)
        for (int p = 0; p < period; p++) {
            const float end = tail(r, w->half_max[n * KS_WIDE + p], w->sum[n * period + p]);
            for (int l = p; l < KS_WIDE; l += period) w->tail[n * KS_WIDE + l] = end;
        }
}

/* The elements after these, where they follow in memory. */
static const char *next_of(const rule *r, const void *in, int64_t at, int64_t stride, int64_t left)
{
    return stride == 1 && left > 0 ? (const char *)in + at * (int64_t)ks_dtype_size(r->dtype) : NULL;
}

/* `rows` rows at once; `left`: how many elements of the tensor follow them. */
static void panel(const rule *r, const void *in, void *out, int64_t at, int64_t stride, int rows, int count, int period,
                  int64_t left, work *w)
{
    const int all = rows * count;
    const float *x = load(r, in, at, stride, all, w->x, w);
    float *y = target(r, out, at, stride, w);
    rows_max(x, w->half_max, rows, count, period, r->half);
    rows_exp(x, y, w->half_max, w->sum, rows, count, period, r, next_of(r, in, at + all, stride, left - all));
    tails(r, w, rows, period);
    if (r->log)
        rows_log(x, y, w->half_max, w->tail, rows, count, r);
    else
        rows_times(y, w->tail, rows, count);
    store(r, out, at, stride, all, w);
}

/* The last piece has sixteen elements at least, too. */
static int piece_at(int64_t done, int64_t count)
{
    const int64_t left = count - done;
    return (int)(left <= CHUNK ? left : left < CHUNK + KS_WIDE ? CHUNK / 2 : CHUNK);
}

/* Two readings: statistics piece by piece, merged; then the values, whose exponentials are cheaper than a third pass. */
static void long_row(const rule *r, const void *in, void *out, int64_t at, int64_t stride, int64_t count, int period,
                     work *w)
{
    normaliser whole[KS_WIDE];
    assert(period >= 1 && period <= KS_WIDE);
    for (int p = 0; p < period; p++) whole[p] = (normaliser){-INFINITY, 0};
    for (int64_t i = 0, part; i < count; i += part) {
        part = piece_at(i, count);
        const float *x = load(r, in, at + i * stride, stride, (int)part, w->x, w);
        rows_max(x, w->half_max, 1, (int)part, period, r->half);
        rows_exp(x, w->y, w->half_max, w->sum, 1, (int)part, period, r,
                 next_of(r, in, at + (i + part) * stride, stride, count - i - 2 * part));
        for (int p = 0; p < period; p++) whole[p] = join(r, whole[p], (normaliser){w->half_max[p], w->sum[p]});
    }
    for (int l = 0; l < KS_WIDE; l++) w->half_max[l] = whole[l % period].half_max;
    for (int p = 0; p < period; p++) w->sum[p] = whole[p].sum;
    tails(r, w, 1, period);
    for (int64_t i = 0, part; i < count; i += part) {
        part = piece_at(i, count);
        const float *x = load(r, in, at + i * stride, stride, (int)part, w->x, w);
        float *y = target(r, out, at + i * stride, stride, w);
        if (r->log) {
            rows_log(x, y, w->half_max, w->tail, 1, (int)part, r);
        } else {
            rows_exp(x, y, w->half_max, w->sum, 1, (int)part, period, r,
                     next_of(r, in, at + (i + part) * stride, stride, count - i - 2 * part));
            rows_times(y, w->tail, 1, (int)part);
        }
        store(r, out, at + i * stride, stride, (int)part, w);
    }
}

/* `outer` rows that follow each other. */
static void all_rows(const rule *r, const void *in, void *out, int64_t outer, int64_t count, int period, work *w)
{
    if (count > CHUNK) {
        for (int64_t o = 0; o < outer; o++) long_row(r, in, out, o * count, 1, count, period, w);
        return;
    }
    const int64_t most = CHUNK / count < ROWS ? CHUNK / count : ROWS;
    for (int64_t o = 0; o < outer; o += most) {
        const int64_t rows = outer - o < most ? outer - o : most, left = (outer - o) * count;
        panel(r, in, out, o * count, 1, (int)rows, (int)count, period, left < 2 * most * count ? 0 : left, w);
    }
}

/* --- columns: a maximum and a sum for each of `count` neighbours -----------------------------------------------------
 */

/* A line to come, because the hardware does not look beyond a page and a line is shorter. */
static void prefetch(const rule *r, const void *in, int64_t at, int count)
{
    const int64_t size = (int64_t)ks_dtype_size(r->dtype), step = 64 / size;
    for (int64_t i = 0; i < count; i += step) __builtin_prefetch((const char *)in + (at + i) * size, 0, 2);
}

/* `lines` lines into the sums: where they lie, and what is less than sixteen columns by way of a panel. */
static void take_direct(const rule *r, const float *x, int64_t step, int lines, int count, bool ahead, work *w)
{
    const int whole = count - count % KS_WIDE, rest = count - whole;
    columns_take(x, step, lines, whole, w->half_max, w->reference, w->sum, r, ahead);
    if (!rest) return;
    for (int l = 0; l < lines; l++) {
        memcpy(w->rest + l * KS_WIDE, x + l * step + whole, (size_t)rest * sizeof *x);
        memset(w->rest + l * KS_WIDE + rest, 0, (size_t)(KS_WIDE - rest) * sizeof *x);
    }
    columns_take(w->rest, KS_WIDE, lines, KS_WIDE, w->half_max + whole, w->reference + whole, w->sum + whole, r, false);
}

static void columns_finish(const rule *r, int count, work *w)
{
    columns_settle(w->half_max, w->reference, w->sum, w->tail, count, r->factor);
    if (r->log)
        for (int i = 0; i < count; i++) w->tail[i] = (float)log(w->sum[i]);
}

/* `count` columns `stride` apart, each `length` elements `step` apart. */
static void columns(const rule *r, const void *in, void *out, int64_t at, int count, int64_t stride, int64_t length,
                    int64_t step, work *w)
{
    const bool direct = r->dtype == KS_FP32 && stride == 1;
    const int wide = (count + KS_WIDE - 1) / KS_WIDE * KS_WIDE;
    for (int i = 0; i < wide; i++) {
        w->half_max[i] = -INFINITY;
        w->reference[i] = -HALF_MOST;
        w->sum[i] = 0;
    }
    /* The last vector's spare lanes are computed and dropped; they hold no earlier request's bytes. */
    for (int l = 0; l < AHEAD && !direct; l++)
        for (int i = count; i < wide; i++) w->x[l * GATHERED + i] = 0;
    for (int64_t d = 0; d < length; d += AHEAD) {
        const int lines = (int)(length - d < AHEAD ? length - d : AHEAD);
        const bool ahead = stride == 1 && d + 2 * AHEAD <= length;
        if (direct) {
            take_direct(r, (const float *)in + at + d * step, step, lines, count, ahead, w);
            continue;
        }
        for (int l = 0; l < lines; l++) {
            if (ahead) prefetch(r, in, at + (d + l + AHEAD) * step, count);
            load(r, in, at + (d + l) * step, stride, count, w->x + l * GATHERED, w);
        }
        columns_take(w->x, GATHERED, lines, count, w->half_max, w->reference, w->sum, r, false);
    }
    columns_finish(r, count, w);
    for (int64_t d = 0; d < length; d++) {
        if (stride == 1 && d + 2 < length) prefetch(r, in, at + (d + 2) * step, count);
        const float *x = load(r, in, at + d * step, stride, count, w->x, w);
        float *y = target(r, out, at + d * step, stride, w);
        (r->log ? columns_log : columns_exp)(x, w->half_max, w->tail, y, count, r);
        store(r, out, at + d * step, stride, count, w);
    }
}

/* A block of columns is read twice: as many at once as the second-level cache holds, but where those would be few, long
 * lines instead, which memory brings faster than it brings pieces of lines. */
static void all_columns(const rule *r, const void *in, void *out, int64_t at, int64_t total, int64_t stride,
                        int64_t length, int64_t step, work *w)
{
    const int64_t most = r->dtype == KS_FP32 && stride == 1 ? COLUMNS : GATHERED;
    const int64_t fit = TILE_BYTES / (int64_t)sizeof(float) / length / KS_WIDE * KS_WIDE;
    const int64_t width = fit < GATHERED || fit > most ? most : fit;
    for (int64_t c = 0; c < total; c += width)
        columns(r, in, out, at + c * stride, (int)(total - c < width ? total - c : width), stride, length, step, w);
}

/* --- the axis -------------------------------------------------------------------------------------------------------- */

static bool has_period(int64_t inner)
{
    return inner <= KS_WIDE && (inner & (inner - 1)) == 0;
}

void ks_softmax_floats(const ks_softmax_rule *r, const void *in, void *out, int64_t outer, int64_t length,
                       int64_t inner, void *scratch)
{
    work *w = scratch;
    w->stream = outer * length * inner >= STREAM_BYTES / (int64_t)ks_dtype_size(r->dtype);
    if (inner == 1 && length < SHORT_ROW) {
        all_columns(r, in, out, 0, outer, length, length, 1, w);
    } else if (has_period(inner)) {
        all_rows(r, in, out, outer, length * inner, (int)inner, w);
    } else {
        for (int64_t o = 0; o < outer; o++) {
            const int64_t at = o * length * inner;
            if (inner > SHORT_ROW)
                all_columns(r, in, out, at, inner, 1, length, inner, w);
            else
                for (int64_t i = 0; i < inner; i++)
                    if (length > CHUNK)
                        long_row(r, in, out, at + i, inner, length, 1, w);
                    else
                        panel(r, in, out, at + i, inner, 1, (int)length, 1, 0, w);
        }
    }
    if (w->stream) ks_large_end();
}

size_t ks_softmax_floats_scratch(void)
{
    return sizeof(work);
}
