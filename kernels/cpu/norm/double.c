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

/* Elements that are added before their sum is: so the error grows with the root of the length at most. */
enum { LEAF = 128 };

static int64_t leaf_end(int64_t from, int64_t length)
{
    return length - from < LEAF ? length : from + LEAF;
}

static double mean_of(const ks_norm_task *t, int64_t row)
{
    const double first = sum_at(t, row, 0);
    double sum = 0;
    for (int64_t i = 0; i < t->shape.length;) {
        const int64_t end = leaf_end(i, t->shape.length);
        double leaf = 0;
        for (; i < end; i++) leaf += sum_at(t, row, i) - first;
        sum += leaf;
    }
    return first + sum / (double)t->shape.length;
}

/* 1 / the row's scale; the mean becomes the exact one but for a rounding. */
static double settle(const ks_norm_task *t, int64_t row, double *mean)
{
    const ks_norm_shape *s = &t->shape;
    const double length = (double)s->length;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < s->length;) {
        const int64_t end = leaf_end(i, s->length);
        double leaf = 0, leaf_squares = 0;
        for (; i < end; i++) {
            const double d = sum_at(t, row, i) - *mean;
            leaf += d;
            leaf_squares += d * d;
        }
        sum += leaf;
        squares += leaf_squares;
    }
    if (s->centred) {
        *mean += sum / length;
        squares -= sum * (sum / length);
        if (squares < 0) squares = 0;
    }
    if (s->averaged) return 1 / sqrt(squares / length + s->eps);
    const double norm = sqrt(squares);
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
