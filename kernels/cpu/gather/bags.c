/* Bags of slices on the CPU: a block of columns at a time, whose results stay in the caches in double.
 *
 * Numbers  products and sums in double, one rounding at the end. The maximum of values with a NaN among them is NaN.
 * Limits   offsets that are out of bounds make an empty bag, and an index that is adds nothing: see gather.c.
 * Threads  any. */
#include <string.h>

#include "cpu/convert.h"
#include "cpu/gather/gather.h"
#include "ops/spec/places.h"

enum { COLUMNS = 256 };

/* Columns [first, first + n) of a slice. */
static void read_slice(const ks_gather_task *t, int64_t slice, int64_t first, int n, double *x)
{
    const int64_t at = slice * t->shape.inner + first;
    float narrow[COLUMNS];
    switch (t->dtype) {
    case KS_FP64:
        memcpy(x, (const double *)(const void *)t->table + at, (size_t)n * sizeof *x);
        return;
    case KS_FP32:
        memcpy(narrow, (const float *)(const void *)t->table + at, (size_t)n * sizeof *narrow);
        break;
    case KS_FP16:
        ks_fp16_to_floats((const uint16_t *)(const void *)t->table + at, narrow, (size_t)n);
        break;
    default:
        ks_bf16_to_floats((const uint16_t *)(const void *)t->table + at, narrow, (size_t)n);
        break;
    }
    for (int j = 0; j < n; j++) x[j] = (double)narrow[j];
}

static void write_slice(const ks_gather_task *t, int64_t bag, int64_t first, int n, const double *y)
{
    const int64_t at = bag * t->shape.inner + first;
    uint16_t *halves = (uint16_t *)(void *)t->out + at;
    for (int j = 0; j < n; j++) switch (t->dtype) {
        case KS_FP64:
            ((double *)(void *)t->out)[at + j] = y[j];
            break;
        case KS_FP32:
            ((float *)(void *)t->out)[at + j] = (float)y[j];
            break;
        case KS_FP16:
            halves[j] = ks_double_to_fp16(y[j]);
            break;
        default:
            halves[j] = ks_double_to_bf16(y[j]);
            break;
        }
}

static double weight_at(const ks_gather_task *t, int64_t i)
{
    if (!t->weights) return 1;
    switch (t->weight_dtype) {
    case KS_FP64:
        return ((const double *)t->weights)[i];
    case KS_FP32:
        return (double)((const float *)t->weights)[i];
    case KS_FP16:
        return (double)ks_fp16_to_float(((const uint16_t *)t->weights)[i]);
    default:
        return (double)ks_bf16_to_float(((const uint16_t *)t->weights)[i]);
    }
}

static void join(ks_gather_op op, double weight, const double *x, int n, double *y)
{
    if (op != KS_GATHER_MAX) {
        for (int j = 0; j < n; j++) y[j] += weight * x[j];
        return;
    }
    for (int j = 0; j < n; j++) {
        const double value = weight * x[j];
        y[j] = value > y[j] || value != value ? value : y[j];
    }
}

static void make_bag(const ks_gather_task *t, int64_t bag, int64_t begin, int64_t end, int64_t first, int n)
{
    double x[COLUMNS], y[COLUMNS];
    const bool max = t->shape.op == KS_GATHER_MAX && begin < end;
    for (int j = 0; j < n; j++) y[j] = max ? -(double)__builtin_inf() : 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t slice =
            ks_gather_slice(ks_places_value(t->index_dtype, t->indices, i), t->shape.extent, t->shape.mode);
        if (slice < 0) continue;
        read_slice(t, slice, first, n, x);
        join(t->shape.op, weight_at(t, i), x, n, y);
    }
    if (t->shape.op == KS_GATHER_MEAN && begin < end)
        for (int j = 0; j < n; j++) y[j] /= (double)(end - begin);
    write_slice(t, bag, first, n, y);
}

void ks_gather_bags(const ks_gather_task *t)
{
    const ks_gather_shape *s = &t->shape;
    for (int64_t bag = 0; bag < s->bags; bag++) {
        int64_t begin = ks_places_value(t->offset_dtype, t->offsets, bag);
        int64_t end = ks_places_value(t->offset_dtype, t->offsets, bag + 1);
        if (begin < 0 || end < begin || end > s->count) begin = end = 0;
        for (int64_t first = 0; first < s->inner; first += COLUMNS)
            make_bag(t, bag, begin, end, first, s->inner - first < COLUMNS ? (int)(s->inner - first) : COLUMNS);
    }
}
