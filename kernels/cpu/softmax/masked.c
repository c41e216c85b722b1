/* Softmax of selected elements: a mask, causal, lengths, results of another datatype.
 *
 * Rows of up to KEPT elements along a contiguous axis stay in the scratch as floats, where neither datatype is FP64, and are read once. Term i
 * goes to sum i % KS_WIDE, in double, and what is not selected adds 0 there: so a mask, causal and lengths that say the same give the same
 * bits. All else, and a row whose maximum or sum is not finite, is in double throughout:
 *
 * Along a contiguous axis a piece of one row at a time, along another one a piece of neighbouring rows: either lies side by side in x. Three
 * readings: the largest z, the sum, the values. What causal and lengths leave out is not read. */
#include "cpu/convert.h"
#include "cpu/simd.h"
#include "cpu/softmax/softmax.h"
#include "ops/spec/places.h"

#include <math.h>
#include <string.h>

enum { KEPT = 16384, PIECE = 1024, LANES = 8 /* partial sums of a row; elements of the widest vector */ };

/* The caller's scratch, of a piece; most, sum and tail of a row, or of each of several. */
typedef struct work {
    double z[PIECE], y[PIECE], most[PIECE], sum[PIECE], tail[PIECE];
    double lost[PIECE]; /* by the sums' roundings (Kahan): equal terms lose the same each time */
    float single[PIECE];
    uint8_t taken[PIECE]; /* by the mask of BOOL */
    int64_t place[PIECE]; /* of the mask, at index 0 of the axis */
    float kept[KEPT], added[KEPT];
} work;

typedef struct task {
    const ks_softmax_selection *selection; /* GCC 12 loses bytes of one that a caller's initialiser calls for */
    ks_dtype dtype, mask_dtype, out_dtype;
    const void *x, *mask, *lengths; /* mask, lengths NULL: none */
    void *out;
    double scale;
    bool log;
    work *w;
} task;

/* --- pieces ---------------------------------------------------------------------------------------------------------- */

static void load(const task *t, int64_t at, int count)
{
    work *w = t->w;
    switch (t->dtype) {
    case KS_FP64:
        memcpy(w->z, (const double *)t->x + at, (size_t)count * sizeof *w->z);
        return;
    case KS_FP32:
        for (int i = 0; i < count; i++) w->z[i] = (double)((const float *)t->x)[at + i];
        return;
    case KS_FP16:
        ks_fp16_to_floats((const uint16_t *)t->x + at, w->single, (size_t)count);
        break;
    default:
        ks_bf16_to_floats((const uint16_t *)t->x + at, w->single, (size_t)count);
        break;
    }
    for (int i = 0; i < count; i++) w->z[i] = (double)w->single[i];
}

static double mask_at(const task *t, int64_t i)
{
    switch (t->mask_dtype) {
    case KS_FP64:
        return ((const double *)t->mask)[i];
    case KS_FP32:
        return (double)((const float *)t->mask)[i];
    case KS_FP16:
        return (double)ks_fp16_to_float(((const uint16_t *)t->mask)[i]);
    default:
        return (double)ks_bf16_to_float(((const uint16_t *)t->mask)[i]);
    }
}

/* Elements that lie side by side in x from `at` on. along: of one row, from its element `from` on; else of neighbouring rows, each at
 * index `from` of the axis. */
typedef struct piece {
    int64_t at, from;
    int count;
    bool along;
} piece;

static void take_mask(const task *t, piece p)
{
    work *w = t->w;
    const int64_t step = t->selection->along;
    for (int i = 0; i < p.count; i++) {
        const int64_t place = p.along ? w->place[0] + (p.from + i) * step : w->place[i] + p.from * step;
        if (t->mask_dtype != KS_BOOL) {
            w->z[i] += mask_at(t, place);
        } else if (!((const uint8_t *)t->mask)[place]) {
            w->z[i] = -(double)INFINITY;
            w->taken[i] = 0;
        }
    }
}

/* Terms are made of whole vectors: the compiler makes the rest by other instructions, and a row would have other bits where it ends
 * elsewhere. */
static int whole_vectors(int count)
{
    return (count + LANES - 1) / LANES * LANES;
}

static void take_levels(const task *t, piece p)
{
    work *w = t->w;
    load(t, p.at, p.count);
    for (int i = 0; i < p.count; i++) w->z[i] *= t->scale;
    for (int i = 0; i < p.count; i++) w->taken[i] = 1;
    if (t->mask) take_mask(t, p);
    for (int i = p.count; i < whole_vectors(p.count); i++) w->z[i] = 0;
}

static void store(const task *t, int64_t at, int count)
{
    const double *y = t->w->y;
    switch (t->out_dtype) {
    case KS_FP64:
        memcpy((double *)t->out + at, y, (size_t)count * sizeof *y);
        break;
    case KS_FP32:
        for (int i = 0; i < count; i++) ((float *)t->out)[at + i] = (float)y[i];
        break;
    case KS_FP16:
        ks_doubles_to_fp16(y, (uint16_t *)t->out + at, (size_t)count);
        break;
    default:
        ks_doubles_to_bf16(y, (uint16_t *)t->out + at, (size_t)count);
        break;
    }
}

static int64_t mask_offset(const ks_softmax_selection *s, int64_t row)
{
    int64_t offset = 0;
    for (int i = s->steps - 1; i >= 0; i--) {
        offset += row % s->step[i].extent * s->step[i].stride;
        row /= s->step[i].extent;
    }
    return offset;
}

/* Of a row, how many elements its length and causal leave. */
static int64_t limit_of(const task *t, int64_t row, int64_t length)
{
    const ks_softmax_selection *s = t->selection;
    const int64_t own =
        t->lengths ? ks_places_value(s->wide ? KS_INT64 : KS_INT32, t->lengths, row / s->sharing) : length;
    return ks_softmax_limit(s, row, length, own);
}

/* --- rows ------------------------------------------------------------------------------------------------------------ */

/* What is not selected, and what belongs to a row of which nothing is. */
static double value_of_none(const task *t)
{
    return t->log ? -(double)INFINITY : 0;
}

static double value_of_nothing(const task *t)
{
    return t->selection->zero ? value_of_none(t) : (double)NAN;
}

/* A row's greatest z becomes what its terms are relative to: finite, unless it is +inf, which makes NaN. */
static double reference_of(double most)
{
    return most == -(double)INFINITY ? 0 : most;
}

KS_CLONES static void row_terms(const double *z, double *restrict e, int count, double reference)
{
    for (int i = 0; i < count; i++) e[i] = ks_exp2_double_inline((z[i] - reference) * KS_LOG2_E);
}

KS_CLONES static void column_terms(const double *z, double *restrict e, int count, const double *reference)
{
    for (int i = 0; i < count; i++) e[i] = ks_exp2_double_inline((z[i] - reference[i]) * KS_LOG2_E);
}

/* Term i goes to sum i % lanes. */
KS_CLONES static void take_terms(const double *e, int count, double *restrict sum, double *restrict lost, int lanes)
{
    for (int i = 0; i < count; i += lanes) {
        const int here = count - i < lanes ? count - i : lanes;
        for (int l = 0; l < here; l++) {
            const double term = e[i + l] - lost[l], next = sum[l] + term;
            lost[l] = (next - sum[l]) - term;
            sum[l] = next;
        }
    }
}

/* sum: of the row's terms; the sum of a row without any is 0 and not NaN. tail: what its values are made with. */
static double tail_of(const task *t, double most, double sum)
{
    if (most == (double)INFINITY) return (double)NAN;
    return t->log ? log(sum) : sum;
}

static bool is_nothing(double most, double sum)
{
    return most == -(double)INFINITY && sum == 0;
}

static double value_of(const task *t, double z, double reference, double tail)
{
    return t->log ? z - reference - tail : ks_exp2_double_inline((z - reference) * KS_LOG2_E) / tail;
}

/* --- along a contiguous axis ----------------------------------------------------------------------------------------- */

static piece piece_of(int64_t row, int64_t from, int64_t length, int64_t limit)
{
    const int64_t left = limit - from;
    return (piece){row * length + from, from, (int)(left < PIECE ? left : PIECE), true};
}

static double row_most(const task *t, int64_t row, int64_t length, int64_t limit)
{
    double most = -(double)INFINITY;
    for (int64_t from = 0; from < limit; from += PIECE) {
        const piece p = piece_of(row, from, length, limit);
        take_levels(t, p);
        for (int i = 0; i < p.count; i++) most = t->w->z[i] > most ? t->w->z[i] : most;
    }
    return most;
}

static double row_sum(const task *t, int64_t row, int64_t length, int64_t limit, double reference)
{
    work *w = t->w;
    long double sum = 0;
    for (int l = 0; l < LANES; l++) w->sum[l] = w->lost[l] = 0;
    for (int64_t from = 0; from < limit; from += PIECE) {
        const piece p = piece_of(row, from, length, limit);
        take_levels(t, p);
        row_terms(w->z, w->y, whole_vectors(p.count), reference);
        take_terms(w->y, p.count, w->sum, w->lost, LANES);
    }
    for (int l = 0; l < LANES; l++) sum += (long double)w->sum[l] - (long double)w->lost[l];
    return (double)sum;
}

static void fill(const task *t, int64_t at, int64_t count, double value)
{
    for (int64_t from = 0; from < count; from += PIECE) {
        const int here = (int)(count - from < PIECE ? count - from : PIECE);
        for (int i = 0; i < here; i++) t->w->y[i] = value;
        store(t, at + from, here);
    }
}

static void do_row(const task *t, int64_t row, int64_t length)
{
    work *w = t->w;
    const int64_t limit = limit_of(t, row, length);
    w->place[0] = mask_offset(t->selection, row);
    const double most = row_most(t, row, length, limit), reference = reference_of(most);
    const double sum = row_sum(t, row, length, limit, reference);
    if (is_nothing(most, sum)) {
        fill(t, row * length, length, value_of_nothing(t));
        return;
    }
    const double tail = tail_of(t, most, sum);
    for (int64_t from = 0; from < limit; from += PIECE) {
        const piece p = piece_of(row, from, length, limit);
        take_levels(t, p);
        for (int i = 0; i < p.count; i++)
            w->y[i] = w->taken[i] ? value_of(t, w->z[i], reference, tail) : value_of_none(t);
        store(t, p.at, p.count);
    }
    fill(t, row * length + limit, length - limit, value_of_none(t));
}

/* --- rows that are kept as floats ------------------------------------------------------------------------------------ */

static void load_floats(ks_dtype dtype, const void *from, int64_t at, int count, float *to)
{
    if (dtype == KS_FP32)
        memcpy(to, (const float *)from + at, (size_t)count * sizeof *to);
    else
        (dtype == KS_FP16 ? ks_fp16_to_floats : ks_bf16_to_floats)((const uint16_t *)from + at, to, (size_t)count);
}

KS_CLONES static void scale_kept(float *restrict z, int count, float scale)
{
    for (int i = 0; i < count; i++) z[i] *= scale;
}

KS_CLONES static void select_kept(float *restrict z, const uint8_t *restrict taken, int count)
{
    for (int i = 0; i < count; i++) z[i] = ks_choose_inline(taken[i] != 0, z[i], -INFINITY);
}

/* The product is exact in double, so an addition of 0 gives what scale_kept gives. */
KS_CLONES static void add_kept(float *restrict z, const float *restrict added, int step, int count, double scale)
{
    if (step)
        for (int i = 0; i < count; i++) z[i] = (float)((double)z[i] * scale + (double)added[i]);
    else
        for (int i = 0; i < count; i++) z[i] = (float)((double)z[i] * scale + (double)added[0]);
}

/* Levels of a row's first `limit` elements, -inf where one is not selected and behind them to a whole vector; false: the mask has a step
 * that has no loop here. */
static bool keep_levels(const task *t, int64_t row, int64_t length, int limit)
{
    float *z = t->w->kept;
    const float scale = (float)t->scale;
    const int64_t step = t->selection->along, place = t->mask ? mask_offset(t->selection, row) : 0;
    if (t->mask && step != 0 && step != 1) return false;
    load_floats(t->dtype, t->x, row * length, limit, z);
    if (t->mask && t->mask_dtype != KS_BOOL) {
        load_floats(t->mask_dtype, t->mask, place, step ? limit : 1, t->w->added);
        add_kept(z, t->w->added, (int)step, limit, (double)scale);
    } else {
        scale_kept(z, limit, scale);
        if (t->mask && step)
            select_kept(z, (const uint8_t *)t->mask + place, limit);
        else if (t->mask && !((const uint8_t *)t->mask)[place])
            for (int i = 0; i < limit; i++) z[i] = -INFINITY;
    }
    for (int i = limit; i % KS_WIDE; i++) z[i] = -INFINITY;
    return true;
}

/* A NaN may get lost; it reaches the sum. */
KS_CLONES static float kept_most(const float *z, int count)
{
    ks_wide a = KS_SPREAD(-INFINITY);
    for (int i = 0; i < count; i += KS_WIDE) a = ks_wide_max(KS_WIDE_AT(z + i), a);
    a = ks_wide_max(KS_ROTATE(a, 8), a);
    a = ks_wide_max(KS_ROTATE(a, 4), a);
    a = ks_wide_max(KS_ROTATE(a, 2), a);
    return ks_wide_max(KS_ROTATE(a, 1), a)[0];
}

/* keeps: the terms take the levels' places. */
KS_CLONES static double kept_sum(float *z, int count, float most, bool keeps)
{
    ks_wide_doubles all = {0};
    double lane[KS_WIDE], sum = 0;
    for (int i = 0; i < count; i += KS_WIDE) {
        const ks_wide e = ks_wide_exp2((KS_WIDE_AT(z + i) - most) * (float)KS_LOG2_E);
        if (keeps) *(ks_wide *)(z + i) = e;
        all += ks_wide_widen(e);
    }
    memcpy(lane, &all, sizeof lane);
    for (int l = 0; l < KS_WIDE; l++) sum += lane[l];
    return sum;
}

KS_CLONES static void kept_values(float *restrict z, int count, float factor)
{
    for (int i = 0; i < count; i++) z[i] *= factor;
}

KS_CLONES static void kept_logs(float *restrict z, int count, float most, float log_sum)
{
    for (int i = 0; i < count; i++) z[i] = (z[i] - most) - log_sum;
}

/* false: nothing was done, do_row does it. */
static bool do_kept_row(const task *t, int64_t row, int64_t length)
{
    float *z = t->w->kept;
    if (length > KEPT || t->dtype == KS_FP64 || t->out_dtype == KS_FP64) return false;
    const int limit = (int)limit_of(t, row, length), whole = (limit + KS_WIDE - 1) / KS_WIDE * KS_WIDE;
    if (!keep_levels(t, row, length, limit)) return false;
    const float most = kept_most(z, whole);
    if (!isfinite(most)) return false;
    const double sum = kept_sum(z, whole, most, !t->log);
    if (!isfinite(sum)) return false;
    if (t->log)
        kept_logs(z, limit, most, (float)log(sum));
    else
        kept_values(z, limit, (float)(1 / sum));
    for (int64_t i = limit; i < length; i++) z[i] = t->log ? -INFINITY : 0;
    if (t->out_dtype == KS_FP32)
        memcpy((float *)t->out + row * length, z, (size_t)length * sizeof *z);
    else
        (t->out_dtype == KS_FP16 ? ks_floats_to_fp16 : ks_floats_to_bf16)(z, (uint16_t *)t->out + row * length,
                                                                          (size_t)length);
    return true;
}

/* --- along another axis ---------------------------------------------------------------------------------------------- */

/* `count` rows from `row` on, whose elements lie side by side and whose length is one; at: x's first one. */
static void do_columns(const task *t, const ks_softmax_shape *shape, int64_t row, int64_t at, int count)
{
    work *w = t->w;
    const int64_t limit = limit_of(t, row, shape->length);
    for (int i = 0; i < count; i++) {
        w->place[i] = mask_offset(t->selection, row + i);
        w->most[i] = -(double)INFINITY;
        w->sum[i] = w->lost[i] = 0;
    }
    for (int64_t d = 0; d < limit; d++) {
        take_levels(t, (piece){at + d * shape->inner, d, count, false});
        for (int i = 0; i < count; i++) w->most[i] = w->z[i] > w->most[i] ? w->z[i] : w->most[i];
    }
    for (int i = 0; i < whole_vectors(count); i++) w->tail[i] = i < count ? reference_of(w->most[i]) : 0;
    for (int64_t d = 0; d < limit; d++) {
        take_levels(t, (piece){at + d * shape->inner, d, count, false});
        column_terms(w->z, w->y, whole_vectors(count), w->tail);
        take_terms(w->y, count, w->sum, w->lost, count);
    }
    /* Together they are exact: terms of 0 behind, as a mask leaves them, change nothing. */
    for (int i = 0; i < count; i++) {
        w->sum[i] = (double)((long double)w->sum[i] - (long double)w->lost[i]);
        w->tail[i] = tail_of(t, w->most[i], w->sum[i]);
    }
    for (int64_t d = 0; d < shape->length; d++) {
        if (d < limit)
            take_levels(t, (piece){at + d * shape->inner, d, count, false});
        else
            memset(w->taken, 0, sizeof w->taken);
        for (int i = 0; i < count; i++)
            w->y[i] = is_nothing(w->most[i], w->sum[i]) ? value_of_nothing(t)
                      : w->taken[i]                     ? value_of(t, w->z[i], reference_of(w->most[i]), w->tail[i])
                                                        : value_of_none(t);
        store(t, at + d * shape->inner, count);
    }
}

void ks_softmax_masked(const ks_spec *spec, const ks_softmax_shape *shape, const void *const *in, void *out,
                       void *scratch)
{
    const ks_softmax_selection selection = ks_softmax_selection_of(spec);
    const task t = {.selection = &selection,
                    .dtype = spec->in[KS_SOFTMAX_X].dtype,
                    .mask_dtype = ks_has_input(spec, KS_SOFTMAX_MASK) ? spec->in[KS_SOFTMAX_MASK].dtype : KS_BOOL,
                    .out_dtype = spec->out[0].dtype,
                    .x = in[KS_SOFTMAX_X],
                    .mask = ks_has_input(spec, KS_SOFTMAX_MASK) ? in[KS_SOFTMAX_MASK] : NULL,
                    .lengths = selection.sharing ? in[KS_SOFTMAX_LENGTHS] : NULL,
                    .out = out,
                    .scale = spec->params[KS_SOFTMAX_SCALE].d,
                    .log = spec->params[KS_SOFTMAX_LOG].i != 0,
                    .w = scratch};
    for (int64_t o = 0; o < shape->outer; o++) {
        if (shape->inner == 1) {
            if (!do_kept_row(&t, o, shape->length)) do_row(&t, o, shape->length);
            continue;
        }
        for (int64_t c = 0; c < shape->inner; c += PIECE) {
            const int64_t left = shape->inner - c;
            do_columns(&t, shape, o * shape->inner + c, o * shape->length * shape->inner + c,
                       (int)(left < PIECE ? left : PIECE));
        }
    }
}

size_t ks_softmax_masked_scratch(void)
{
    return sizeof(work);
}
