/* Norms of FP64: two passes for the statistics, whose second one mends the mean of the first, and one for the values. */
#include "cpu/convert.h"
#include "cpu/norm/norm.h"
#include "cpu/unary.h"

static double value_of(const ks_norm_operand *operand, int64_t i, double absent)
{
    if (!operand->data) return absent;
    return operand->dtype == KS_FP64 ? ((const double *)operand->data)[i] : (double)((const float *)operand->data)[i];
}

static double sum_at(const ks_norm_task *t, int64_t row, int64_t i)
{
    const int64_t at = row * t->shape.length + i;
    double s = ((const double *)t->in[KS_NORM_X].data)[at];
    if (t->in[KS_NORM_PRE_BIAS].data)
        s += value_of(&t->in[KS_NORM_PRE_BIAS], ks_norm_pre_bias_at(&t->shape, row, i), 0);
    if (t->in[KS_NORM_RESIDUAL].data) s += ((const double *)t->in[KS_NORM_RESIDUAL].data)[at];
    return s;
}

static void put(ks_dtype dtype, void *out, int64_t i, double y)
{
    switch (dtype) {
    case KS_FP64:
        ((double *)out)[i] = y;
        break;
    case KS_FP32:
        ((float *)out)[i] = (float)y;
        break;
    case KS_FP16:
        ((uint16_t *)out)[i] = ks_double_to_fp16(y);
        break;
    default:
        ((uint16_t *)out)[i] = ks_double_to_bf16(y);
        break;
    }
}

/* Elements of a leaf, and how many sums it has side by side: no addition is behind more than LEAF / LANES others and a tree of these. */
enum { LEAF = 128, LANES = 8 };

static int64_t leaf_end(int64_t from, int64_t length)
{
    return length - from < LEAF ? length : from + LEAF;
}

static double tree(const double lane[LANES])
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Of leaves, with what their additions have rounded off: a long row of equal elements rounds each time to the same side. Source: A. Neumaier
 * 1974, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen". */
typedef struct total {
    double sum, rest;
} total;

static void add(total *t, double x)
{
    const double next = t->sum + x;
    if (isfinite(next)) t->rest += fabs(t->sum) >= fabs(x) ? (t->sum - next) + x : (x - next) + t->sum;
    t->sum = next;
}

static double mean_of(const ks_norm_task *t, int64_t row)
{
    const double first = sum_at(t, row, 0);
    total sum = {0};
    for (int64_t from = 0; from < t->shape.length; from += LEAF) {
        const int64_t end = leaf_end(from, t->shape.length);
        double lane[LANES] = {0};
        for (int64_t i = from; i < end; i++) lane[i % LANES] += sum_at(t, row, i) - first;
        add(&sum, tree(lane));
    }
    return first + (sum.sum + sum.rest) / (double)t->shape.length;
}

/* 1 / the row's scale; the mean becomes the exact one but for a rounding. */
static double settle(const ks_norm_task *t, int64_t row, double *mean)
{
    const ks_norm_shape *s = &t->shape;
    const double length = (double)s->length;
    total sum = {0}, squares = {0};
    for (int64_t from = 0; from < s->length; from += LEAF) {
        const int64_t end = leaf_end(from, s->length);
        double lane[LANES] = {0}, lane_squares[LANES] = {0};
        for (int64_t i = from; i < end; i++) {
            const double d = sum_at(t, row, i) - *mean;
            lane[i % LANES] += d;
            lane_squares[i % LANES] += d * d;
        }
        add(&sum, tree(lane));
        add(&squares, tree(lane_squares));
    }
    double all = squares.sum + squares.rest;
    if (s->centred) {
        const double away = sum.sum + sum.rest;
        *mean += away / length;
        all -= away * (away / length);
        if (all < 0) all = 0;
    }
    if (s->averaged) return 1 / sqrt(all / length + s->eps);
    const double norm = sqrt(all);
    return 1 / (norm < s->eps ? s->eps : norm);
}

void ks_norm_double(const ks_norm_task *t)
{
    const ks_norm_shape *s = &t->shape;
    for (int64_t row = 0; row < s->rows; row++) {
        double mean = s->centred ? mean_of(t, row) : 0;
        const double scale = settle(t, row, &mean);
        for (int64_t i = 0; i < s->length; i++) {
            const int64_t at = row * s->length + i, w = ks_norm_weight_at(s, row, i);
            const double x = sum_at(t, row, i);
            double y = (x - mean) * scale;
            if (t->in[KS_NORM_WEIGHT].data) y *= value_of(&t->in[KS_NORM_WEIGHT], w, 1);
            if (t->in[KS_NORM_BIAS].data) y += value_of(&t->in[KS_NORM_BIAS], w, 0);
            if (t->sum) ((double *)t->sum)[at] = x;
            put(t->out_dtype, t->out, at, ks_double_activate(y, s->activation));
        }
    }
}
