/* Bags of slices on the CPU: where the slices lie first, up to SLICES of them, then a tile of columns at a time goes past them all, whose
 * results stay in registers.
 *
 * Numbers  products and sums in float, of FP64 in double, in the order of the indices; one rounding at the end. The maximum of values with a
 *          NaN among them is NaN.
 * Limits   offsets that are out of bounds make an empty bag, and an index that is adds nothing: see gather.c.
 * Threads  any. */
#include <string.h>

#include "cpu/convert.h"
#include "cpu/gather/gather.h"
#include "cpu/simd.h"
#include "ops/spec/places.h"

enum { SLICES = 256, VECTORS = 4, TILE = VECTORS * KS_WIDE, AHEAD = 4 /* slices that are asked for ahead */ };

/* Slices of a bag: where each begins, in elements, and its weight. */
typedef struct slices {
    const ks_gather_task *t;
    int64_t at[SLICES + AHEAD];
    float weight[SLICES];
    double wide_weight[SLICES];
    int count;
    bool first; /* there are none before */
} slices;

typedef union work {
    float f[TILE];
    double d[TILE];
} work;

/* --- floats ---------------------------------------------------------------------------------------------------------- */

typedef uint16_t halves __attribute__((vector_size(2 * KS_WIDE), aligned(2), may_alias));

/* Sixteen elements, of which `count` are there; the others are zeros. */
KS_INLINE ks_wide elements_at(const void *table, ks_dtype dtype, int64_t at, int count)
{
    float some[KS_WIDE] = {0};
    uint16_t raw[KS_WIDE] = {0};
    if (dtype == KS_FP32) {
        if (count >= KS_WIDE) return KS_WIDE_AT((const float *)table + at);
        memcpy(some, (const float *)table + at, (size_t)count * sizeof *some);
        return KS_WIDE_AT(some);
    }
    const uint16_t *from = (const uint16_t *)table + at;
    if (count < KS_WIDE) {
        memcpy(raw, from, (size_t)count * sizeof *raw);
        from = raw;
    }
    if (dtype == KS_BF16) return (ks_wide)(__builtin_convertvector(*(const halves *)from, ks_wide_bits) << 16);
    ks_fp16_to_floats(from, some, KS_WIDE);
    return KS_WIDE_AT(some);
}

typedef struct tile {
    int64_t column; /* the first */
    int count, vectors;
} tile;

/* A tile of all the slices joins y; constants where it is inlined: vectors, dtype, max. */
KS_INLINE void join_tile(const slices *s, tile here, ks_dtype dtype, bool max, float *y)
{
    const int64_t column = here.column;
    const int count = here.count, vectors = here.vectors;
    const unsigned char *const table = s->t->table;
    const size_t size = dtype == KS_FP32 ? sizeof(float) : sizeof(uint16_t);
    const int all = s->count;
    ks_wide best[VECTORS];
    for (int v = 0; v < vectors; v++) best[v] = KS_WIDE_AT(y + v * KS_WIDE);
    for (int i = 0; i < all; i++) {
        const int64_t at = s->at[i] + column;
        const ks_wide weight = KS_SPREAD(s->weight[i]);
        __builtin_prefetch(table + (size_t)(s->at[i + AHEAD] + column) * size);
        for (int v = 0; v < vectors; v++) {
            const ks_wide x = elements_at(table, dtype, at + v * KS_WIDE, count - v * KS_WIDE), value = x * weight;
            if (max)
                best[v] = ks_wide_choose((value > best[v]) | (value != value), value, best[v]);
            else
                best[v] += value;
        }
    }
    for (int v = 0; v < vectors; v++) *(ks_wide *)(y + v * KS_WIDE) = best[v];
}

KS_INLINE void join_columns(const slices *s, int64_t column, int count, ks_dtype dtype, bool max, float *y)
{
    int c = 0;
    if (count == TILE) {
        join_tile(s, (tile){column, TILE, VECTORS}, dtype, max, y);
        return;
    }
    for (; c + KS_WIDE <= count; c += KS_WIDE) join_tile(s, (tile){column + c, KS_WIDE, 1}, dtype, max, y + c);
    if (c < count) join_tile(s, (tile){column + c, count - c, 1}, dtype, max, y + c);
}

#define JOIN(name, dtype)                                                                                              \
    KS_CLONES static void name(const slices *s, int64_t column, int count, float *y)                                   \
    {                                                                                                                  \
        if (s->t->shape.op == KS_GATHER_MAX)                                                                           \
            join_columns(s, column, count, dtype, true, y);                                                            \
        else                                                                                                           \
            join_columns(s, column, count, dtype, false, y);                                                           \
    }
JOIN(join_fp32, KS_FP32)
JOIN(join_fp16, KS_FP16)
JOIN(join_bf16, KS_BF16)

static void join_floats(const slices *s, int64_t column, int count, float *y)
{
    (s->t->dtype == KS_FP32 ? join_fp32 : s->t->dtype == KS_FP16 ? join_fp16 : join_bf16)(s, column, count, y);
}

/* --- doubles --------------------------------------------------------------------------------------------------------- */

KS_CLONES static void join_doubles(const slices *s, int64_t column, int count, double *y)
{
    const bool max = s->t->shape.op == KS_GATHER_MAX;
    for (int i = 0; i < s->count; i++) {
        const double *x = (const double *)(const void *)s->t->table + s->at[i] + column, weight = s->wide_weight[i];
        for (int j = 0; j < count; j++) {
            const double value = weight * x[j];
            y[j] = max ? (value > y[j] || value != value ? value : y[j]) : y[j] + value;
        }
    }
}

/* --- bags ------------------------------------------------------------------------------------------------------------ */

static double weight_at(const ks_gather_task *t, int64_t i)
{
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

/* From index i on, up to `end`; returns where it ended. dtype: of the indices, a constant where it is inlined. */
KS_INLINE int64_t find_some(slices *s, int64_t i, int64_t end, ks_dtype dtype)
{
    const ks_gather_task *t = s->t;
    const int64_t extent = t->shape.extent, inner = t->shape.inner;
    int count = 0;
    for (; i < end && count < SLICES; i++) {
        const int64_t slice = ks_gather_slice(ks_places_value(dtype, t->indices, i), extent, t->shape.mode);
        if (slice < 0) continue;
        s->at[count] = slice * inner;
        if (t->weights) {
            s->wide_weight[count] = weight_at(t, i);
            s->weight[count] = (float)s->wide_weight[count];
        }
        count++;
    }
    for (int k = 0; k < AHEAD; k++) s->at[count + k] = count ? s->at[count - 1] : 0;
    s->count = count;
    return i;
}

static int64_t find_slices(slices *s, int64_t i, int64_t end)
{
    return s->t->index_dtype == KS_INT32 ? find_some(s, i, end, KS_INT32) : find_some(s, i, end, KS_INT64);
}

/* Of a bag; begins, joins and ends elements of y. */
static void begin_columns(const ks_gather_task *t, bool empty, int count, work *y)
{
    const bool max = t->shape.op == KS_GATHER_MAX && !empty;
    const ks_wide none = KS_SPREAD(max ? -__builtin_inff() : 0);
    if (t->dtype == KS_FP64)
        for (int j = 0; j < count; j++) y->d[j] = max ? -(double)__builtin_inf() : 0;
    else
        for (int j = 0; j < count; j += KS_WIDE) *(ks_wide *)(y->f + j) = none;
}

static void end_columns(const ks_gather_task *t, double divisor, int count, work *y)
{
    for (int j = 0; j < count && divisor != 1; j++)
        if (t->dtype == KS_FP64)
            y->d[j] /= divisor;
        else
            y->f[j] = (float)((double)y->f[j] / divisor);
}

static void store_columns(const ks_gather_task *t, int64_t at, int count, const work *y)
{
    if (t->dtype == KS_FP64)
        memcpy((double *)(void *)t->out + at, y->d, (size_t)count * sizeof *y->d);
    else if (t->dtype == KS_FP32)
        memcpy((float *)(void *)t->out + at, y->f, (size_t)count * sizeof *y->f);
    else
        (t->dtype == KS_FP16 ? ks_floats_to_fp16 : ks_floats_to_bf16)(y->f, (uint16_t *)(void *)t->out + at,
                                                                      (size_t)count);
}

/* Of at most SLICES indices the slices are there. */
static void make_columns(slices *s, int64_t begin, int64_t end, int64_t column, int count, work *y)
{
    const ks_gather_task *t = s->t;
    begin_columns(t, begin == end, count, y);
    for (int64_t i = begin; i < end;) {
        i = end - begin <= SLICES ? end : find_slices(s, i, end);
        if (t->dtype == KS_FP64)
            join_doubles(s, column, count, y->d);
        else
            join_floats(s, column, count, y->f);
    }
    end_columns(t, t->shape.op == KS_GATHER_MEAN && begin < end ? (double)(end - begin) : 1, count, y);
}

void ks_gather_bags(const ks_gather_task *t)
{
    const ks_gather_shape *g = &t->shape;
    slices s;
    work y;
    s.t = t;
    for (int i = 0; i < SLICES; i++) s.weight[i] = 1, s.wide_weight[i] = 1; /* where there are none */
    for (int64_t bag = 0; bag < g->bags; bag++) {
        int64_t begin = ks_places_value(t->offset_dtype, t->offsets, bag);
        int64_t end = ks_places_value(t->offset_dtype, t->offsets, bag + 1);
        if (begin < 0 || end < begin || end > g->count) begin = end = 0;
        if (end - begin <= SLICES) find_slices(&s, begin, end);
        for (int64_t c = 0; c < g->inner; c += TILE) {
            const int count = g->inner - c < TILE ? (int)(g->inner - c) : TILE;
            make_columns(&s, begin, end, c, count, &y);
            store_columns(t, bag * g->inner + c, count, &y);
        }
    }
}
