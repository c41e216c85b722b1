/* Norms of FP32, FP16 and BF16: rows come as floats into a panel that stays in the caches, and are read there once for each of
 * mean, squares and values. A row longer than the panel comes piece by piece, each time.
 *
 * Numbers  sums in double. The distance from the mean is scaled by a power of two where its square root would leave FP32's range;
 *          so no finite row overflows, and a row times a power of two, with eps 0, has the same bits. */
#include "cpu/convert.h"
#include "cpu/norm/norm.h"
#include "cpu/unary.h"

enum {
    CHUNK = 4096,           /* elements that are converted and stored at a time */
    PANEL = 1 << 16,        /* of a row that is kept as floats */
    STREAM_BYTES = 16 << 20 /* a larger result goes past the caches */
};

/* What the elements of a row become: ((s * scale - high) - low) * factor. */
typedef struct row_rule {
    float scale, high, low, factor;
} row_rule;

typedef struct work {
    float y[CHUNK], weight[CHUNK], bias[CHUNK], more[CHUNK];
    uint16_t raw[CHUNK];
    double wide[CHUNK];
    bool stream;
    float s[]; /* the panel: PANEL elements, or a row where that is shorter */
} work;

typedef struct task {
    const ks_norm_task *given;
    const ks_norm_shape *s;
    work *w;
    bool in_place; /* s is x, FP32 */
} task;

/* --- loops ----------------------------------------------------------------------------------------------------------- */

KS_INLINE double lanes_sum(ks_wide_doubles all)
{
    double lane[KS_WIDE], sum = 0;
    memcpy(lane, &all, sizeof lane);
    for (int l = 0; l < KS_WIDE / 2; l++) lane[l] += lane[l + KS_WIDE / 2];
    for (int l = 0; l < KS_WIDE / 2; l++) sum += lane[l];
    return sum;
}

KS_INLINE double sum_of(const float *s, int64_t count)
{
    ks_wide_doubles all = {0};
    int64_t i = 0;
    for (; i + KS_WIDE <= count; i += KS_WIDE) all += ks_wide_widen(KS_WIDE_AT(s + i));
    double sum = lanes_sum(all);
    for (; i < count; i++) sum += (double)s[i];
    return sum;
}

KS_INLINE double squares_of(const float *s, int64_t count, const row_rule *r)
{
    const float scale = r->scale, high = r->high, low = r->low;
    ks_wide_doubles all = {0};
    int64_t i = 0;
    for (; i + KS_WIDE <= count; i += KS_WIDE) {
        const ks_wide_doubles d = ks_wide_widen((KS_WIDE_AT(s + i) * scale - high) - low);
        all += d * d;
    }
    double sum = lanes_sum(all);
    for (; i < count; i++) {
        const double d = (double)((s[i] * scale - high) - low);
        sum += d * d;
    }
    return sum;
}

KS_CLONES static double piece_sum(const float *s, int64_t count)
{
    return sum_of(s, count);
}

KS_CLONES static double piece_squares(const float *s, int64_t count, const row_rule *r)
{
    return squares_of(s, count, r);
}

/* weight, bias: NULL where there is none. */
KS_CLONES static void values(const float *s, int count, const row_rule *r, const float *weight, const float *bias,
                             float *restrict y)
{
    const float scale = r->scale, high = r->high, low = r->low, factor = r->factor;
    int i = 0;
    for (; i + KS_WIDE <= count; i += KS_WIDE) {
        ks_wide n = ((KS_WIDE_AT(s + i) * scale - high) - low) * factor;
        if (weight) n *= KS_WIDE_AT(weight + i);
        if (bias) n += KS_WIDE_AT(bias + i);
        memcpy(y + i, &n, sizeof n);
    }
    for (; i < count; i++) {
        float n = ((s[i] * scale - high) - low) * factor;
        if (weight) n *= weight[i];
        if (bias) n += bias[i];
        y[i] = n;
    }
}

KS_CLONES static void activate(float *y, int count, ks_activation activation)
{
    float rest[KS_WIDE] = {0};
    int i = 0;
    for (; i + KS_WIDE <= count; i += KS_WIDE) {
        const ks_wide z = ks_wide_activate(KS_WIDE_AT(y + i), activation);
        memcpy(y + i, &z, sizeof z);
    }
    if (i == count) return;
    memcpy(rest, y + i, (size_t)(count - i) * sizeof *rest);
    const ks_wide z = ks_wide_activate(KS_WIDE_AT(rest), activation);
    memcpy(rest, &z, sizeof z);
    memcpy(y + i, rest, (size_t)(count - i) * sizeof *rest);
}

KS_CLONES static void add(float *restrict s, const float *x, const float *more, int count)
{
    for (int i = 0; i < count; i++) s[i] = x[i] + more[i];
}

/* --- moving between a datatype and float ----------------------------------------------------------------------------- */

/* In place where they are floats. */
static const float *floats_at(const ks_norm_operand *from, int64_t at, int count, float *to)
{
    if (from->dtype == KS_FP32) return (const float *)from->data + at;
    const uint16_t *x = (const uint16_t *)from->data + at;
    if (from->dtype == KS_FP16)
        ks_fp16_to_floats(x, to, (size_t)count);
    else
        ks_bf16_to_floats(x, to, (size_t)count);
    return to;
}

static float float_at(const ks_norm_operand *from, int64_t at)
{
    if (from->dtype == KS_FP32) return ((const float *)from->data)[at];
    const uint16_t x = ((const uint16_t *)from->data)[at];
    return from->dtype == KS_FP16 ? ks_fp16_to_float(x) : ks_bf16_to_float(x);
}

static void store(const task *t, ks_dtype dtype, void *out, int64_t at, const float *y, int count)
{
    work *w = t->w;
    const void *from = y;
    unsigned char *to = (unsigned char *)out + at * (int64_t)ks_dtype_size(dtype);
    void *packed = w->stream ? (void *)w->raw : (void *)to;
    if (dtype == KS_FP16)
        ks_floats_to_fp16(y, packed, (size_t)count);
    else if (dtype == KS_BF16)
        ks_floats_to_bf16(y, packed, (size_t)count);
    if (dtype == KS_FP64) {
        for (int i = 0; i < count; i++) w->wide[i] = (double)y[i];
        from = w->wide;
    } else if (dtype != KS_FP32) {
        from = packed;
    }
    if (w->stream)
        ks_large_request(from, to, (size_t)count * ks_dtype_size(dtype));
    else if (from != to)
        memcpy(to, from, (size_t)count * ks_dtype_size(dtype));
}

/* pre_bias of `count` elements from a place of x on. */
static void spread_pre_bias(const task *t, int64_t at, int count, float *to)
{
    const ks_norm_operand *from = &t->given->in[KS_NORM_PRE_BIAS];
    for (int done = 0; done < count;) {
        const int64_t first = (at + done) % t->s->last, left = t->s->last - first;
        const int part = left < count - done ? (int)left : count - done;
        const float *some = floats_at(from, first, part, to + done);
        if (some != to + done) memcpy(to + done, some, (size_t)part * sizeof *to);
        done += part;
    }
}

/* weight or bias of `count` elements of a row from its element i on; NULL: there is none. */
static const float *spread(const task *t, int input, int64_t row, int64_t i, int count, float *to)
{
    const ks_norm_operand *from = &t->given->in[input];
    const ks_norm_shape *s = t->s;
    if (!from->data) return NULL;
    if (s->inner == 1) return floats_at(from, ks_norm_weight_at(s, row, i), count, to);
    for (int done = 0; done < count;) {
        const int64_t left = s->inner - (i + done) % s->inner;
        const int end = left < count - done ? done + (int)left : count;
        const float value = float_at(from, ks_norm_weight_at(s, row, i + done));
        for (; done < end; done++) to[done] = value;
    }
    return to;
}

/* s of `count` elements, from a place of x on, in `to` or where x has it. */
static const float *take(const task *t, int64_t at, int count, float *to)
{
    const ks_norm_operand *in = t->given->in;
    const float *s = floats_at(&in[KS_NORM_X], at, count, to);
    if (in[KS_NORM_PRE_BIAS].data) {
        spread_pre_bias(t, at, count, t->w->more);
        add(to, s, t->w->more, count);
        s = to;
    }
    if (in[KS_NORM_RESIDUAL].data) {
        add(to, s, floats_at(&in[KS_NORM_RESIDUAL], at, count, t->w->more), count);
        s = to;
    }
    return s;
}

/* Likewise, for the first time: OUTPUT1 is stored, too. */
static const float *take_first(const task *t, int64_t at, int count, float *to)
{
    const float *s = take(t, at, count, to);
    if (t->given->sum) store(t, t->given->in[KS_NORM_X].dtype, t->given->sum, at, s, count);
    return s;
}

/* --- rows ------------------------------------------------------------------------------------------------------------ */

/* Pieces of a row: of the kept one, or read again. */
static const float *piece(const task *t, const float *kept, int64_t row, int64_t i, int count)
{
    return kept ? kept + i : take(t, row * t->s->length + i, count, t->w->s);
}

static int piece_at(int64_t done, int64_t length)
{
    return (int)(length - done < CHUNK ? length - done : CHUNK);
}

static double row_squares(const task *t, const float *kept, int64_t row, const row_rule *r)
{
    double squares = 0;
    if (kept) return piece_squares(kept, t->s->length, r);
    for (int64_t i = 0; i < t->s->length; i += CHUNK) {
        const int count = piece_at(i, t->s->length);
        squares += piece_squares(piece(t, NULL, row, i, count), count, r);
    }
    return squares;
}

/* With the sum of squares of scaled distances: the square of the row's scale, scaled likewise. */
static double scale_squared(const ks_norm_shape *s, double squares, double scale)
{
    if (s->averaged) return squares / (double)s->length + s->eps * (scale * scale);
    const double least = s->eps * scale * (s->eps * scale);
    return squares < least ? least : squares;
}

/* Squares and their root stay far from FP32's ends: else the row is taken again, scaled. */
static row_rule rule_of(const task *t, const float *kept, int64_t row, double mean)
{
    static const double scales[] = {1, 0x1p70, 0x1p120, 0x1p-70};
    row_rule r = {0};
    for (int at = 0; at < 4;) {
        const double scale = scales[at];
        r.scale = (float)scale;
        r.high = (float)mean * r.scale;
        r.low = (float)((mean - (double)(float)mean) * scale);
        const double squared = scale_squared(t->s, row_squares(t, kept, row, &r), scale);
        const double factor = 1 / sqrt(squared); /* of a constant row and the least eps: any number will do */
        r.factor = (float)(squared > 0 && factor > 0x1p100 ? 0x1p100 : factor);
        /* Squares that small about a mean that large are those of a constant row. */
        const bool small = squared < 0x1p-100 && fabs(mean) < 0x1p-20;
        at = at == 0 && squared > 0x1p100 ? 3 : at < 2 && small ? at + 1 : 4;
    }
    return r;
}

/* Of a row that is kept, or not: then its first reading happens here. */
static double row_sum(const task *t, const float *kept, int64_t row)
{
    double sum = 0;
    if (kept) return t->s->centred ? piece_sum(kept, t->s->length) : 0;
    for (int64_t i = 0; i < t->s->length; i += CHUNK) {
        const int count = piece_at(i, t->s->length);
        sum += piece_sum(take_first(t, row * t->s->length + i, count, t->w->s), count);
    }
    return t->s->centred ? sum : 0;
}

static void row_values(const task *t, const float *kept, int64_t row, const row_rule *r, const float *const affine[2])
{
    work *w = t->w;
    const bool direct = t->given->out_dtype == KS_FP32 && !w->stream;
    for (int64_t i = 0; i < t->s->length; i += CHUNK) {
        const int count = piece_at(i, t->s->length);
        const int64_t at = row * t->s->length + i;
        const float *weight = affine ? affine[0] : spread(t, KS_NORM_WEIGHT, row, i, count, w->weight);
        const float *bias = affine ? affine[1] : spread(t, KS_NORM_BIAS, row, i, count, w->bias);
        float *y = direct ? (float *)t->given->out + at : w->y;
        values(piece(t, kept, row, i, count), count, r, weight, bias, y);
        if (t->s->activation) activate(y, count, t->s->activation);
        if (!direct) store(t, t->given->out_dtype, t->given->out, at, y, count);
    }
}

static void long_rows(const task *t)
{
    const int64_t length = t->s->length;
    for (int64_t row = 0; row < t->s->rows; row++) {
        const float *kept = t->in_place       ? (const float *)t->given->in[KS_NORM_X].data + row * length
                            : length <= PANEL ? t->w->s
                                              : NULL;
        for (int64_t i = 0; i < length && kept && (!t->in_place || t->given->sum); i += CHUNK)
            take_first(t, row * length + i, piece_at(i, length), t->w->s + (t->in_place ? 0 : i));
        const double mean = row_sum(t, kept, row) / (double)length;
        const row_rule r = rule_of(t, kept, row, mean);
        row_values(t, kept, row, &r, NULL);
    }
}

/* Several rows at a time, whose weights are looked at once. */
static void short_rows(const task *t)
{
    work *w = t->w;
    const int length = (int)t->s->length, most = CHUNK / length;
    const bool alike = t->s->groups == 1, direct = t->given->out_dtype == KS_FP32 && !w->stream;
    const float *affine[2] = {NULL, NULL};
    for (int64_t row = 0; row < t->s->rows; row += most) {
        const int rows = (int)(t->s->rows - row < most ? t->s->rows - row : most), count = rows * length;
        const float *s = take_first(t, row * length, count, w->s);
        float *y = direct ? (float *)t->given->out + row * length : w->y;
        for (int n = 0; n < rows; n++) {
            if (!alike || (n == 0 && row == 0)) {
                affine[0] = spread(t, KS_NORM_WEIGHT, row + n, 0, length, w->weight);
                affine[1] = spread(t, KS_NORM_BIAS, row + n, 0, length, w->bias);
            }
            const float *mine = s + n * length;
            const double mean = row_sum(t, mine, row + n) / (double)length;
            const row_rule r = rule_of(t, mine, row + n, mean);
            values(mine, length, &r, affine[0], affine[1], y + n * length);
        }
        if (t->s->activation) activate(y, count, t->s->activation);
        if (!direct) store(t, t->given->out_dtype, t->given->out, row * length, y, count);
    }
}

void ks_norm_floats(const ks_norm_task *given, void *scratch)
{
    const ks_norm_operand *in = given->in;
    const ks_norm_shape *s = &given->shape;
    task t = {.given = given, .s = s, .w = scratch};
    if (s->rows == 0) return;
    t.w->stream = s->rows * s->length >= STREAM_BYTES / (int64_t)ks_dtype_size(given->out_dtype);
    t.in_place = in[KS_NORM_X].dtype == KS_FP32 && !in[KS_NORM_PRE_BIAS].data && !in[KS_NORM_RESIDUAL].data;
    if (s->length <= CHUNK)
        short_rows(&t);
    else
        long_rows(&t);
    if (t.w->stream) ks_large_end();
}

size_t ks_norm_floats_scratch(const ks_norm_shape *shape)
{
    const int64_t kept = shape->length <= CHUNK   ? (int64_t)CHUNK
                         : shape->length <= PANEL ? shape->length
                                                  : (int64_t)CHUNK;
    return sizeof(work) + (size_t)kept * sizeof(float);
}
