/* To 8 bits by scales, and back, on the CPU: the references of quantize and dequantize.
 *
 * Owns     nothing; a block of elements and the magnitudes of columns lie in the caller's scratch.
 * Threads  any; all memory is the caller's.
 *
 * A block of BLOCK elements of a row becomes FP32, is looked at for its largest magnitude or divided, and is rounded. */
#include "ops/quantize/quantize.h"
#include "ops/spec/places.h"
#include "cpu/convert.h"
#include "cpu/reference.h"
#include "cpu/simd.h"
#include "cpu/wide.h"

extern const ks_cpu_op ks_quantize_cpu, ks_dequantize_cpu;

enum { BLOCK = 2048 };

typedef struct task {
    ks_quantize_shape s;
    const unsigned char *in;
    unsigned char *out;
    const float *scales; /* of a row or of the tensor one, else the columns' */
    float *block;
} task;

/* --- loops ----------------------------------------------------------------------------------------------------------- */

/* The largest finite magnitude, as bits, which are in the order of their numbers. */
KS_CLONES static uint32_t largest(const uint32_t *x, int count, uint32_t most)
{
    enum { SIDE_BY_SIDE = 4 };
    const ks_wide_mask beyond = (ks_wide_mask){0} + 0x7F800000;
    ks_wide_mask best[SIDE_BY_SIDE] = {{0}, {0}, {0}, {0}};
    int i = 0;
    for (; i + SIDE_BY_SIDE * KS_WIDE <= count; i += SIDE_BY_SIDE * KS_WIDE)
        for (int v = 0; v < SIDE_BY_SIDE; v++) {
            const ks_wide_mask magnitude = *(const ks_wide_mask *)(const void *)(x + i + v * KS_WIDE) & INT32_MAX;
            const ks_wide_mask finite = magnitude & (magnitude < beyond), more = finite > best[v];
            best[v] = (finite & more) | (best[v] & ~more);
        }
    for (int v = 0; v < SIDE_BY_SIDE; v++)
        for (int l = 0; l < KS_WIDE; l++) most = (uint32_t)best[v][l] > most ? (uint32_t)best[v][l] : most;
    for (; i < count; i++) {
        const uint32_t magnitude = x[i] & 0x7FFFFFFFu, finite = magnitude < 0x7F800000u ? magnitude : 0;
        most = finite > most ? finite : most;
    }
    return most;
}

/* Likewise of each column. */
KS_CLONES static void largest_each(const uint32_t *restrict x, int count, uint32_t *restrict most)
{
    for (int i = 0; i < count; i++) {
        const uint32_t magnitude = x[i] & 0x7FFFFFFFu, finite = magnitude < 0x7F800000u ? magnitude : 0;
        most[i] = finite > most[i] ? finite : most[i];
    }
}

/* step: 0 where one scale is for all. */
KS_CLONES static void divide(float *restrict x, const float *restrict scales, int step, int count)
{
    const float one = 1.0f / scales[0];
    if (step)
        for (int i = 0; i < count; i++) {
            const float inverse = 1.0f / scales[i];
            x[i] *= inverse;
        }
    else
        for (int i = 0; i < count; i++) x[i] *= one;
}

KS_CLONES static void multiply(float *restrict x, const float *restrict scales, int step, int count)
{
    const float one = scales[0];
    if (step)
        for (int i = 0; i < count; i++) x[i] *= scales[i];
    else
        for (int i = 0; i < count; i++) x[i] *= one;
}

/* An addition rounds to an integer, which is then the sum's last bits. */
KS_CLONES static void plain_to_int8(const float *restrict x, int8_t *restrict out, int count)
{
    for (int i = 0; i < count; i++) {
        const float low = ks_choose_inline(x[i] > -128.0f, x[i], -128.0f);
        const float bounded = ks_choose_inline(low < 127.0f, low, 127.0f);
        const float sum = ks_choose_inline(x[i] == x[i], bounded, 0.0f) + 0x1.8p23f;
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        out[i] = (int8_t)bits;
    }
}

#ifdef KS_WIDE_CONVERSIONS
KS_WIDE_INLINE __m128i int8_16(const float *in, __mmask16 lanes)
{
    const __m512 x = _mm512_maskz_loadu_ps(lanes, in);
    const __m512 there = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    const __m512 bounded = _mm512_max_ps(_mm512_min_ps(there, _mm512_set1_ps(127)), _mm512_set1_ps(-128));
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(bounded)); /* to nearest even */
}

KS_WIDE_TARGET static void wide_to_int8(const float *x, int8_t *out, int count)
{
    int i = 0;
    for (; i + 16 <= count; i += 16) _mm_storeu_si128((__m128i *)(void *)(out + i), int8_16(x + i, 0xFFFF));
    if (i == count) return;
    const __mmask16 lanes = (__mmask16)((1u << (count - i)) - 1);
    _mm_mask_storeu_epi8(out + i, lanes, int8_16(x + i, lanes));
}
#endif

static void to_int8(const float *x, int8_t *out, int count)
{
#ifdef KS_WIDE_CONVERSIONS
    if (ks_has_wide()) {
        wide_to_int8(x, out, count);
        return;
    }
#endif
    plain_to_int8(x, out, count);
}

KS_CLONES static void of_int8(const int8_t *restrict in, float *restrict out, int count)
{
    for (int i = 0; i < count; i++) out[i] = in[i];
}

/* NaN stays. */
KS_CLONES static void bound(float *x, int count, float most)
{
    for (int i = 0; i < count; i++) {
        const float low = ks_choose_inline(x[i] < -most, -most, x[i]);
        x[i] = ks_choose_inline(low > most, most, low);
    }
}

/* --- elements -------------------------------------------------------------------------------------------------------- */

static void load(ks_dtype dtype, const unsigned char *in, float *out, int count)
{
    const size_t n = (size_t)count;
    switch (dtype) {
    case KS_FP16:
        ks_fp16_to_floats((const uint16_t *)(const void *)in, out, n);
        break;
    case KS_BF16:
        ks_bf16_to_floats((const uint16_t *)(const void *)in, out, n);
        break;
    case KS_INT8:
        of_int8((const int8_t *)in, out, count);
        break;
    case KS_FP8E4M3:
        ks_fp8e4m3_to_floats(in, out, n);
        break;
    case KS_FP8E5M2:
        ks_fp8e5m2_to_floats(in, out, n);
        break;
    default:
        memcpy(out, in, n * sizeof *out);
    }
}

static void store(ks_dtype dtype, float *in, unsigned char *out, int count)
{
    const size_t n = (size_t)count;
    switch (dtype) {
    case KS_FP16:
        ks_floats_to_fp16(in, (uint16_t *)(void *)out, n);
        break;
    case KS_BF16:
        ks_floats_to_bf16(in, (uint16_t *)(void *)out, n);
        break;
    case KS_INT8:
        to_int8(in, (int8_t *)out, count);
        break;
    case KS_FP8E4M3:
        bound(in, count, ks_quantize_most(dtype));
        ks_floats_to_fp8e4m3(in, out, n);
        break;
    case KS_FP8E5M2:
        bound(in, count, ks_quantize_most(dtype));
        ks_floats_to_fp8e5m2(in, out, n);
        break;
    default:
        memcpy(out, in, n * sizeof *in);
    }
}

/* --- rows ------------------------------------------------------------------------------------------------------------ */

static int block_at(const task *t, int64_t row, int64_t at)
{
    const int count = t->s.columns - at < BLOCK ? (int)(t->s.columns - at) : BLOCK;
    load(t->s.from, t->in + (row * t->s.columns + at) * (int64_t)ks_dtype_size(t->s.from), t->block, count);
    return count;
}

typedef void apply_fn(float *x, const float *scales, int step, int count);

/* A row by its scale, or by the columns'. */
static void apply_row(const task *t, int64_t row, apply_fn *apply, const float *scales)
{
    const int step = t->s.per == KS_SCALE_COLUMN;
    for (int64_t at = 0; at < t->s.columns; at += BLOCK) {
        const int count = block_at(t, row, at);
        apply(t->block, scales + (step ? at : 0), step, count);
        store(t->s.to, t->block, t->out + (row * t->s.columns + at) * (int64_t)ks_dtype_size(t->s.to), count);
    }
}

static void apply_rows(const task *t, apply_fn *apply)
{
    const bool own = t->s.per == KS_SCALE_ROW;
    for (int64_t row = 0; row < t->s.rows; row++) apply_row(t, row, apply, t->scales + (own ? row : 0));
}

static float scale_of(uint32_t bits, ks_dtype to)
{
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    const float scale = magnitude / ks_quantize_most(to);
    return bits == 0 ? 1.0f : scale < KS_SCALE_LEAST ? KS_SCALE_LEAST : scale;
}

static uint32_t largest_of_row(const task *t, int64_t row, uint32_t most)
{
    if (t->s.from == KS_FP32) {
        const uint32_t *x = (const uint32_t *)(const void *)t->in + row * t->s.columns;
        for (int64_t at = 0; at < t->s.columns; at += BLOCK)
            most = largest(x + at, t->s.columns - at < BLOCK ? (int)(t->s.columns - at) : BLOCK, most);
        return most;
    }
    for (int64_t at = 0; at < t->s.columns; at += BLOCK) {
        const int count = block_at(t, row, at);
        most = largest((const uint32_t *)(const void *)t->block, count, most);
    }
    return most;
}

/* Magnitudes lie where the scales will. */
static void scale_columns(const task *t, float *scales)
{
    uint32_t *const most = (uint32_t *)(void *)scales;
    memset(most, 0, (size_t)t->s.columns * sizeof *most);
    for (int64_t row = 0; row < t->s.rows; row++)
        for (int64_t at = 0; at < t->s.columns; at += BLOCK) {
            const int count = block_at(t, row, at);
            largest_each((const uint32_t *)(const void *)t->block, count, most + at);
        }
    for (int64_t i = 0; i < t->s.columns; i++) {
        uint32_t bits;
        memcpy(&bits, &scales[i], sizeof bits);
        scales[i] = scale_of(bits, t->s.to);
    }
}

static void make_scales(const task *t, float *scales)
{
    uint32_t most = 0;
    switch (t->s.per) {
    case KS_SCALE_ROW:
        for (int64_t row = 0; row < t->s.rows; row++) scales[row] = scale_of(largest_of_row(t, row, 0), t->s.to);
        break;
    case KS_SCALE_COLUMN:
        scale_columns(t, scales);
        break;
    default:
        for (int64_t row = 0; row < t->s.rows; row++) most = largest_of_row(t, row, most);
        scales[0] = scale_of(most, t->s.to);
    }
}

/* ks_cpu_fn */
static void quantize_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    const task t = {.s = ks_quantize_shape_of(spec), .in = in[0], .out = out[0], .scales = out[1], .block = scratch};
    if (t.s.scales == 0) return;
    if (t.s.given)
        memcpy(out[1], in[KS_QUANTIZE_SCALE], (size_t)t.s.scales * sizeof *t.scales);
    else
        make_scales(&t, out[1]);
    apply_rows(&t, divide);
}

/* ks_cpu_fn */
static void dequantize_reference(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    const task t = {
        .s = ks_quantize_shape_of(spec), .in = in[0], .out = out[0], .scales = in[KS_QUANTIZE_SCALE], .block = scratch};
    apply_rows(&t, multiply);
}

static size_t quantize_scratch(const ks_spec *spec)
{
    (void)spec;
    return BLOCK * sizeof(float);
}

const ks_cpu_op ks_quantize_cpu = {.reference = quantize_reference, .scratch_bytes = quantize_scratch};
const ks_cpu_op ks_dequantize_cpu = {.reference = dequantize_reference, .scratch_bytes = quantize_scratch};
