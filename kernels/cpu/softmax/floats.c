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

/* One softmax: the caller's rule, operands and scratch. Places in `in` and `out` are counted in elements. */
typedef struct task {
    const rule *r;
    const void *in;
    void *out;
    work *w;
} task;

/* `count` elements, `stride` apart, from `at` on. */
typedef struct run {
    int64_t at, stride, count;
} run;

/* The part of a run from its element `first` on. */
static run part_of(run whole, int64_t first, int64_t count)
{
    return (run){whole.at + first * whole.stride, whole.stride, count};
}

/* --- moving between a datatype and float -------------------------------------------------------------------------- */

KS_CLONES static void gather32(const float *in, int64_t stride, int count, float *restrict out)
{
    for (int i = 0; i < count; i++) out[i] = in[i * stride];
}

KS_CLONES static void gather16(const uint16_t *in, int64_t stride, int count, uint16_t *restrict out)
{
    for (int i = 0; i < count; i++) out[i] = in[i * stride];
}

/* A run as floats: in place where they lie so already, else in `to`. */
static const float *load(const task *t, run from, float *to)
{
    const int count = (int)from.count;
    if (t->r->dtype == KS_FP32) {
        const float *x = (const float *)t->in + from.at;
        if (from.stride == 1) return x;
        gather32(x, from.stride, count, to);
        return to;
    }
    const uint16_t *x = (const uint16_t *)t->in + from.at;
    if (from.stride != 1) {
        gather16(x, from.stride, count, t->w->raw);
        x = t->w->raw;
    }
    if (t->r->dtype == KS_FP16)
        ks_fp16_to_floats(x, to, (size_t)count);
    else
        ks_bf16_to_floats(x, to, (size_t)count);
    return to;
}

/* Where results are to be computed, so that store() has the least to do. */
static float *target(const task *t, run to)
{
    return t->r->dtype == KS_FP32 && to.stride == 1 && !t->w->stream ? (float *)t->out + to.at : t->w->y;
}

static void store(const task *t, run to)
{
    work *w = t->w;
    const int count = (int)to.count;
    if (t->r->dtype == KS_FP32) {
        float *y = (float *)t->out + to.at;
        if (to.stride != 1)
            for (int i = 0; i < count; i++) y[i * to.stride] = w->y[i];
        else if (w->stream)
            ks_large_request(w->y, y, (size_t)count * sizeof *y);
        return;
    }
    uint16_t *y = (uint16_t *)t->out + to.at, *packed = to.stride == 1 && !w->stream ? y : w->raw;
    if (t->r->dtype == KS_FP16)
        ks_floats_to_fp16(w->y, packed, (size_t)count);
    else
        ks_floats_to_bf16(w->y, packed, (size_t)count);
    if (to.stride != 1)
        for (int i = 0; i < count; i++) y[i * to.stride] = packed[i];
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
static const char *next_of(const task *t, run these, int64_t left)
{
    const int64_t at = these.at + these.count * these.stride;
    return these.stride == 1 && left > 0 ? (const char *)t->in + at * (int64_t)ks_dtype_size(t->r->dtype) : NULL;
}

/* `rows` rows at once, from `row` on; `left`: how many elements of the tensor follow them. */
static void panel(const task *t, run row, int rows, int period, int64_t left)
{
    work *w = t->w;
    const run all = {row.at, row.stride, rows * row.count};
    const row_view x = {load(t, all, w->x), rows, (int)row.count, period};
    float *y = target(t, all);
    rows_max(x, w->half_max, t->r->half);
    rows_exp(x, y, w->half_max, w->sum, t->r, next_of(t, all, left));
    tails(t->r, w, rows, period);
    if (t->r->log)
        rows_log(x, y, w->half_max, w->tail, t->r);
    else
        rows_times(y, w->tail, rows, x.count);
    store(t, all);
}

/* The last piece has sixteen elements at least, too. */
static int piece_at(int64_t done, int64_t count)
{
    const int64_t left = count - done;
    return (int)(left <= CHUNK ? left : left < CHUNK + KS_WIDE ? CHUNK / 2 : CHUNK);
}

/* Two readings: statistics piece by piece, merged; then the values, whose exponentials are cheaper than a third pass. */
static void long_row(const task *t, run row, int period)
{
    const rule *r = t->r;
    work *w = t->w;
    normaliser whole[KS_WIDE];
    assert(period >= 1 && period <= KS_WIDE);
    for (int p = 0; p < period; p++) whole[p] = (normaliser){-INFINITY, 0};
    for (int64_t i = 0, part; i < row.count; i += part) {
        part = piece_at(i, row.count);
        const run piece = part_of(row, i, part);
        const row_view x = {load(t, piece, w->x), 1, (int)part, period};
        rows_max(x, w->half_max, r->half);
        rows_exp(x, w->y, w->half_max, w->sum, r, next_of(t, piece, row.count - i - 2 * part));
        for (int p = 0; p < period; p++) whole[p] = join(r, whole[p], (normaliser){w->half_max[p], w->sum[p]});
    }
    for (int l = 0; l < KS_WIDE; l++) w->half_max[l] = whole[l % period].half_max;
    for (int p = 0; p < period; p++) w->sum[p] = whole[p].sum;
    tails(r, w, 1, period);
    for (int64_t i = 0, part; i < row.count; i += part) {
        part = piece_at(i, row.count);
        const run piece = part_of(row, i, part);
        const row_view x = {load(t, piece, w->x), 1, (int)part, period};
        float *y = target(t, piece);
        if (r->log) {
            rows_log(x, y, w->half_max, w->tail, r);
        } else {
            rows_exp(x, y, w->half_max, w->sum, r, next_of(t, piece, row.count - i - 2 * part));
            rows_times(y, w->tail, 1, (int)part);
        }
        store(t, piece);
    }
}

/* `outer` rows of `count` that follow each other. */
static void all_rows(const task *t, int64_t outer, int64_t count, int period)
{
    if (count > CHUNK) {
        for (int64_t o = 0; o < outer; o++) long_row(t, (run){o * count, 1, count}, period);
        return;
    }
    const int64_t most = CHUNK / count < ROWS ? CHUNK / count : ROWS;
    for (int64_t o = 0; o < outer; o += most) {
        const int64_t rows = outer - o < most ? outer - o : most, left = (outer - o - rows) * count;
        panel(t, (run){o * count, 1, count}, (int)rows, period, left < most * count ? 0 : left);
    }
}

/* --- columns: a maximum and a sum for each of `count` neighbours -----------------------------------------------------
 */

/* A line to come, because the hardware does not look beyond a page and a line is shorter. */
static void prefetch(const task *t, run line)
{
    const int64_t size = (int64_t)ks_dtype_size(t->r->dtype), step = 64 / size;
    for (int64_t i = 0; i < line.count; i += step) __builtin_prefetch((const char *)t->in + (line.at + i) * size, 0, 2);
}

/* Some lines into the sums: where they lie, and what is less than sixteen columns by way of a panel. */
static void take_direct(const task *t, line_view all, bool ahead)
{
    work *w = t->w;
    const int rest = all.count % KS_WIDE, whole = all.count - rest;
    const line_view most = {all.x, all.pitch, all.lines, whole}, last = {w->rest, KS_WIDE, all.lines, KS_WIDE};
    columns_take(most, w->half_max, w->reference, w->sum, t->r, ahead);
    if (!rest) return;
    for (int l = 0; l < all.lines; l++) {
        memcpy(w->rest + l * KS_WIDE, all.x + l * all.pitch + whole, (size_t)rest * sizeof *all.x);
        memset(w->rest + l * KS_WIDE + rest, 0, (size_t)(KS_WIDE - rest) * sizeof *all.x);
    }
    columns_take(last, w->half_max + whole, w->reference + whole, w->sum + whole, t->r, false);
}

static void columns_finish(const rule *r, int count, work *w)
{
    columns_settle(w->half_max, w->reference, w->sum, w->tail, count, r->factor);
    if (r->log)
        for (int i = 0; i < count; i++) w->tail[i] = (float)log(w->sum[i]);
}

/* The line `down` steps below the first one. */
static run line_at(run first, int64_t down, int64_t step)
{
    return (run){first.at + down * step, first.stride, first.count};
}

/* The columns whose first elements are `first`, each `length` elements `step` apart. */
static void columns(const task *t, run first, int64_t length, int64_t step)
{
    work *w = t->w;
    const int count = (int)first.count, wide = (count + KS_WIDE - 1) / KS_WIDE * KS_WIDE;
    const bool direct = t->r->dtype == KS_FP32 && first.stride == 1;
    /* Short rows side by side are whole vectors: what is left of one has other code, and a row's bits would follow from their number. */
    const int done = first.stride == 1 ? count : wide;
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
        const bool ahead = first.stride == 1 && d + 2 * AHEAD <= length;
        if (direct) {
            take_direct(t, (line_view){(const float *)t->in + first.at + d * step, step, lines, count}, ahead);
            continue;
        }
        for (int l = 0; l < lines; l++) {
            if (ahead) prefetch(t, line_at(first, d + l + AHEAD, step));
            load(t, line_at(first, d + l, step), w->x + l * GATHERED);
        }
        const line_view gathered = {w->x, GATHERED, lines, count};
        columns_take(gathered, w->half_max, w->reference, w->sum, t->r, false);
    }
    columns_finish(t->r, done, w);
    for (int64_t d = 0; d < length; d++) {
        const run line = line_at(first, d, step);
        if (first.stride == 1 && d + 2 < length) prefetch(t, line_at(first, d + 2, step));
        const float *x = load(t, line, w->x);
        float *y = target(t, line);
        (t->r->log ? columns_log : columns_exp)(x, w->half_max, w->tail, y, done, t->r);
        store(t, line);
    }
}

/* A block of columns is read twice: as many at once as the second-level cache holds, but where those would be few, long
 * lines instead, which memory brings faster than it brings pieces of lines. */
static void all_columns(const task *t, run first, int64_t length, int64_t step)
{
    const int64_t total = first.count, most = t->r->dtype == KS_FP32 && first.stride == 1 ? COLUMNS : GATHERED;
    const int64_t fit = TILE_BYTES / (int64_t)sizeof(float) / length / KS_WIDE * KS_WIDE;
    const int64_t width = fit < GATHERED || fit > most ? most : fit;
    for (int64_t c = 0; c < total; c += width)
        columns(t, part_of(first, c, total - c < width ? total - c : width), length, step);
}

/* --- the axis -------------------------------------------------------------------------------------------------------- */

static bool has_period(int64_t inner)
{
    return inner <= KS_WIDE && (inner & (inner - 1)) == 0;
}

void ks_softmax_floats(const ks_softmax_rule *r, const ks_softmax_shape *shape, const void *in, void *out,
                       void *scratch)
{
    work *w = scratch;
    const task t = {r, in, out, w};
    const int64_t outer = shape->outer, length = shape->length, inner = shape->inner;
    w->stream = outer * length * inner >= STREAM_BYTES / (int64_t)ks_dtype_size(r->dtype);
    if (inner == 1 && length < SHORT_ROW) {
        all_columns(&t, (run){0, length, outer}, length, 1);
    } else if (has_period(inner)) {
        all_rows(&t, outer, length * inner, (int)inner);
    } else {
        for (int64_t o = 0; o < outer; o++) {
            const int64_t at = o * length * inner;
            if (inner > SHORT_ROW)
                all_columns(&t, (run){at, 1, inner}, length, inner);
            else
                for (int64_t i = 0; i < inner; i++)
                    if (length > CHUNK)
                        long_row(&t, (run){at + i, inner, length}, 1);
                    else
                        panel(&t, (run){at + i, inner, length}, 1, 1, 0);
        }
    }
    if (w->stream) ks_large_end();
}

size_t ks_softmax_floats_scratch(void)
{
    return sizeof(work);
}
