/* Softmax over one axis: descriptor, rules, and the reference on the CPU.
 *
 *   y = exp(z - max z) / sum exp(z - max z), or its logarithm; z = scale * x
 *
 * Values   a row with NaN, +inf (of z) or nothing but -inf gives NaN; -inf beside finite values gives exactly 0.
 * Numbers  FP32, FP16 and BF16 compute in float and sum in double; FP64 is double throughout. z - max z is taken as
 *          scale * (x - x of the maximum), so that a large scale does not round first and cannot overflow.
 * Threads  any; all memory is the caller's. */
#include "kernserve/op.h"
#include "convert.h"
#include "vectorise.h"

#include <inttypes.h>
#include <math.h>

enum { AXIS, LOG, SCALE };
enum { DTYPES = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64) };
enum {
    CHUNK = 4096,   /* elements of a row worked on at a time: stays in the first-level cache */
    COLUMNS = 512,  /* most columns worked on at a time */
    SHORT_ROW = 24, /* shorter rows are worked on side by side, as columns */
    TILE_BYTES = 1 << 18
};

extern const ks_op ks_op_softmax;

/* The caller's scratch. */
typedef struct work {
    float x[CHUNK], y[CHUNK];
    float half_max[COLUMNS], tail[COLUMNS];
    double sum[COLUMNS];
    uint16_t raw[CHUNK];
} work;

/* One softmax as its inner functions see it. */
typedef struct rule {
    ks_dtype dtype;
    bool log;
    float half;        /* +0.5 or -0.5: half * x never overflows, and its maximum is the one of z */
    float twice_scale; /* 2 * |scale|: what half took away */
    double scale;      /* |scale| */
} rule;

/* ks_resolve_fn */
static ks_status softmax_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    if (!(DTYPES & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "softmax: INPUT0 has datatype %s, takes FP32, FP16, BF16 or FP64",
                       ks_dtype_name(in->dtype));
    if (in->rank < 1 || in->rank > KS_RANK_MAX)
        return ks_fail(error, KS_SHAPE, "softmax: INPUT0 has rank %d, takes 1 to %d", in->rank, KS_RANK_MAX);
    const ks_status status = ks_tensor_measure(in, "INPUT0", error);
    if (status != KS_OK) return status;
    int64_t *axis = &spec->params[AXIS].i;
    if (*axis < -in->rank || *axis >= in->rank)
        return ks_fail(error, KS_AXIS, "softmax: axis %" PRId64 " is outside [%d, %d) of INPUT0's rank", *axis,
                       -in->rank, in->rank);
    if (*axis < 0) *axis += in->rank;
    double *scale = &spec->params[SCALE].d;
    if (!(fabs(*scale) <= 1e38))
        return ks_fail(error, KS_PARAMETER, "softmax: parameter 'scale' is %g, takes -1e38 to 1e38", *scale);
    if (*scale == 0) *scale = 0; /* -0 is the same work */
    spec->out = *in;
    spec->out.offset = 0;
    spec->flops = 10.0 * (double)ks_tensor_count(in);
    return KS_OK;
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

/* `count` elements, `stride` apart, as floats: in place where they lie so already, else in w->x. */
static const float *load(const rule *r, const void *in, int64_t at, int64_t stride, int count, work *w)
{
    if (r->dtype == KS_FP32) {
        const float *x = (const float *)in + at;
        if (stride == 1) return x;
        gather32(x, stride, count, w->x);
        return w->x;
    }
    const uint16_t *x = (const uint16_t *)in + at;
    if (stride != 1) {
        gather16(x, stride, count, w->raw);
        x = w->raw;
    }
    if (r->dtype == KS_FP16)
        ks_fp16_to_floats(x, w->x, (size_t)count);
    else
        ks_bf16_to_floats(x, w->x, (size_t)count);
    return w->x;
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

KS_CLONES static void row_exp(const float *x, float *restrict y, int count, float half, float half_max, float scale)
{
    for (int i = 0; i < count; i++) y[i] = ks_exp_inline((x[i] * half - half_max) * scale);
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
    row_exp(x, y, count, r->half, reference_of(half_max), r->twice_scale);
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
        whole = join(r, whole, row_statistics(r, load(r, in, at + i * stride, stride, count, w), w->y, count));
    }
    const float end = tail(r, whole.half_max, whole.sum), reference = reference_of(whole.half_max);
    for (int64_t i = 0; i < length; i += CHUNK) {
        const int count = chunk_at(i, length);
        const float *x = load(r, in, at + i * stride, stride, count, w);
        float *y = target(r, out, at + i * stride, stride, w);
        if (r->log) {
            row_log(x, y, count, r, reference, end);
        } else {
            row_exp(x, y, count, r->half, reference, r->twice_scale);
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
    const float *x = load(r, in, at, stride, count, w);
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

KS_CLONES static void columns_max(const float *x, float *restrict half_max, int count, float half)
{
    for (int i = 0; i < count; i++) {
        const float value = x[i] * half;
        half_max[i] = value > half_max[i] ? value : half_max[i];
    }
}

KS_CLONES static void columns_sum(const float *x, const float *restrict reference, double *restrict sum, int count,
                                  const rule *r)
{
    const float half = r->half, scale = r->twice_scale;
    for (int i = 0; i < count; i++) sum[i] += (double)ks_exp_inline((x[i] * half - reference[i]) * scale);
}

KS_CLONES static void columns_exp(const float *x, const float *restrict reference, const float *restrict end,
                                  float *restrict y, int count, const rule *r)
{
    const float half = r->half, scale = r->twice_scale;
    for (int i = 0; i < count; i++) y[i] = ks_exp_inline((x[i] * half - reference[i]) * scale) * end[i];
}

KS_CLONES static void columns_log(const float *x, const float *restrict reference, const float *restrict end,
                                  float *restrict y, int count, const rule *r)
{
    const float half = r->half, scale = r->twice_scale;
    for (int i = 0; i < count; i++) y[i] = (x[i] * half - reference[i]) * scale - end[i];
}

/* `count` columns `stride` apart, each `length` elements `step` apart. */
static void columns(const rule *r, const void *in, void *out, int64_t at, int count, int64_t stride, int64_t length,
                    int64_t step, work *w)
{
    for (int i = 0; i < count; i++) {
        w->half_max[i] = -INFINITY;
        w->sum[i] = 0;
    }
    for (int64_t d = 0; d < length; d++)
        columns_max(load(r, in, at + d * step, stride, count, w), w->half_max, count, r->half);
    for (int i = 0; i < count; i++) {
        w->tail[i] = w->half_max[i]; /* tail() still has to see an infinite one */
        w->half_max[i] = reference_of(w->half_max[i]);
    }
    for (int64_t d = 0; d < length; d++)
        columns_sum(load(r, in, at + d * step, stride, count, w), w->half_max, w->sum, count, r);
    for (int i = 0; i < count; i++) w->tail[i] = tail(r, w->tail[i], w->sum[i]);
    for (int64_t d = 0; d < length; d++) {
        const float *x = load(r, in, at + d * step, stride, count, w);
        float *y = target(r, out, at + d * step, stride, w);
        (r->log ? columns_log : columns_exp)(x, w->half_max, w->tail, y, count, r);
        store(r, out, at + d * step, stride, count, w);
    }
}

/* A block of columns is read three times: as many at once as the second-level cache holds, but whole lines. */
static void all_columns(const rule *r, const void *in, void *out, int64_t at, int64_t total, int64_t stride,
                        int64_t length, int64_t step, work *w)
{
    const int64_t fit = TILE_BYTES / (int64_t)sizeof(float) / length;
    const int64_t width = fit < 128 ? 128 : fit > COLUMNS ? COLUMNS : fit;
    for (int64_t c = 0; c < total; c += width)
        columns(r, in, out, at + c * stride, (int)(total - c < width ? total - c : width), stride, length, step, w);
}

/* --- FP64
 * -------------------------------------------------------------------------------------------------------------- */

static void row_double(const rule *r, const double *x, double *y, int64_t stride, int64_t length)
{
    const double half = (double)r->half, scale = 2 * r->scale;
    double half_max = -INFINITY, sum = 0, lost = 0; /* lost: what the sum's rounding left out (Kahan) */
    for (int64_t i = 0; i < length; i++) half_max = x[i * stride] * half > half_max ? x[i * stride] * half : half_max;
    if (!isfinite(half_max)) {
        for (int64_t i = 0; i < length; i++) y[i * stride] = (double)NAN;
        return;
    }
    for (int64_t i = 0; i < length; i++) {
        const double z = (x[i * stride] * half - half_max) * scale, e = exp(z);
        y[i * stride] = r->log ? z : e;
        const double term = e - lost, next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    const double log_sum = log(sum);
    for (int64_t i = 0; i < length; i++) y[i * stride] = r->log ? y[i * stride] - log_sum : y[i * stride] / sum;
}

/* ks_cpu_fn */
static void softmax_reference(const ks_spec *spec, const void *const *in, void *out, void *scratch)
{
    const ks_tensor *x = &spec->in[0];
    const int axis = (int)spec->params[AXIS].i;
    const int64_t outer = ks_dims_product(x->dims, 0, axis), length = x->dims[axis];
    const int64_t inner = ks_dims_product(x->dims, axis + 1, x->rank);
    if (ks_tensor_count(x) == 0) return;
    const double scale = spec->params[SCALE].d;
    const rule r = {.dtype = x->dtype,
                    .log = spec->params[LOG].i != 0,
                    .half = scale < 0 ? -0.5f : 0.5f,
                    .twice_scale = (float)(2 * fabs(scale)),
                    .scale = fabs(scale)};
    if (x->dtype == KS_FP64) {
        for (int64_t i = 0; i < outer * inner; i++) {
            const int64_t at = i / inner * length * inner + i % inner;
            row_double(&r, (const double *)in[0] + at, (double *)out + at, inner, length);
        }
    } else if (inner == 1 && length < SHORT_ROW) {
        all_columns(&r, in[0], out, 0, outer, length, length, 1, scratch);
    } else {
        for (int64_t o = 0; o < outer; o++) {
            const int64_t at = o * length * inner;
            if (inner > SHORT_ROW)
                all_columns(&r, in[0], out, at, inner, 1, length, inner, scratch);
            else
                for (int64_t i = 0; i < inner; i++) row(&r, in[0], out, at + i, inner, length, scratch);
        }
    }
}

static size_t softmax_scratch(const ks_spec *spec)
{
    (void)spec;
    return sizeof(work);
}

/* ks_sample_fn */
static void softmax_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_softmax);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
}

static const ks_preset presets[] = {{.suffix = "vec", .param = -1, .in_rank = 1, .out_rank = 1}};

const ks_op ks_op_softmax = {
    .name = "softmax",
    .inputs = 1,
    .in_rank = 2,
    .out_rank = 2,
    .rank_min = 1,
    .rank_max = KS_RANK_MAX,
    .dtypes = DTYPES,
    .params_count = 3,
    .params = {[AXIS] = {.name = "axis", .kind = KS_PARAM_INT, .preset = {.i = -1}, .status = KS_AXIS},
               [LOG] = {.name = "log", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
               [SCALE] = {.name = "scale", .kind = KS_PARAM_NUMBER, .preset = {.d = 1}, .status = KS_PARAMETER}},
    .presets_count = 1,
    .presets = presets,
    .resolve = softmax_resolve,
    .reference = softmax_reference,
    .scratch_bytes = softmax_scratch,
    .sample = softmax_sample,
};
