/* Branch-free, so that the array forms become vector code for whatever instruction set the compiler is given.
 * FP16's exponent is moved by multiplication and its rounding done by an addition whose ulp is FP16's: the tricks are
 * those of Fabian Giesen's and Marat Dukhan's public conversions. */
#include "cpu/convert.h"
#include "cpu/simd.h"
#include "cpu/wide.h"
#include "ops/numbers/fp8.h"

#include <string.h>

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float fp16_to_float(uint16_t value)
{
    const uint32_t wide = (uint32_t)value << 16, sign = wide & 0x80000000u, twice = wide + wide;
    const float normal = float_of((twice >> 4) + (0xE0u << 23)) * 0x1p-112f;
    /* The mantissa as the low bits of 0.5 .. 1: subtracting 0.5 leaves it normalised. */
    const float subnormal = float_of((twice >> 17) | (126u << 23)) - 0.5f;
    const uint32_t small = -(uint32_t)(twice < (1u << 27)); /* a mask: branches keep loops from being vectorised */
    return float_of(sign | (bits_of(subnormal) & small) | (bits_of(normal) & ~small));
}

static inline uint16_t float_to_fp16(float value)
{
    const uint32_t bits = bits_of(value), twice = bits + bits, sign = bits & 0x80000000u;
    /* Above 65520 the first product is infinite; below 2^-14 the bias stops, so the addition rounds at 2^-24. */
    const float moved = (float_of(bits & 0x7FFFFFFFu) * 0x1p+112f) * 0x1p-110f;
    const uint32_t exponent = twice & 0xFF000000u, bias = exponent < 0x71000000u ? 0x71000000u : exponent;
    const uint32_t rounded = bits_of(float_of((bias >> 1) + 0x07800000u) + moved);
    const uint32_t magnitude = ((rounded >> 13) & 0x7C00u) + (rounded & 0x0FFFu);
    const uint32_t nan = -(uint32_t)(twice > 0xFF000000u);
    return (uint16_t)((sign >> 16) | (magnitude & ~nan) | (0x7E00u & nan));
}

static inline uint16_t float_to_bf16(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

/* By masks, so that arrays become vector code. */
static inline float double_to_odd_float(double value)
{
    const float nearest = (float)value;
    const double got = (double)nearest;
    const uint32_t lost = (uint32_t)(got < value) | (uint32_t)(got > value); /* NaN: nothing */
    /* Towards zero; infinity becomes the largest finite float, which is odd. */
    const uint32_t over = value < 0 ? (uint32_t)(got < value) : (uint32_t)(got > value);
    return float_of((bits_of(nearest) - over) | lost);
}

float ks_fp16_to_float(uint16_t value)
{
    return fp16_to_float(value);
}

float ks_bf16_to_float(uint16_t value)
{
    return float_of((uint32_t)value << 16);
}

uint16_t ks_float_to_fp16(float value)
{
    return float_to_fp16(value);
}

uint16_t ks_float_to_bf16(float value)
{
    return float_to_bf16(value);
}

uint16_t ks_double_to_fp16(double value)
{
    return float_to_fp16(double_to_odd_float(value));
}

uint16_t ks_double_to_bf16(double value)
{
    return float_to_bf16(double_to_odd_float(value));
}

#ifdef KS_WIDE_CONVERSIONS
/* Sixteen elements at a time, masks for the last ones: every element goes the same way, and whole vectors need none. */
#define WIDE_LOOP(name, in_type, out_type)                                                                             \
    KS_WIDE_TARGET static void name(const in_type *in, out_type *out, size_t count)                                    \
    {                                                                                                                  \
        size_t i = 0;                                                                                                  \
        for (; i + 16 <= count; i += 16) name##_16(in + i, out + i, 0xFFFF);                                           \
        if (i < count) name##_16(in + i, out + i, (__mmask16)((1u << (count - i)) - 1));                               \
    }
KS_WIDE_INLINE void wide_fp16_to_floats_16(const uint16_t *in, float *out, __mmask16 lanes)
{
    _mm512_mask_storeu_ps(out, lanes, ks_wide_load_fp16(in, lanes));
}

KS_WIDE_INLINE void wide_bf16_to_floats_16(const uint16_t *in, float *out, __mmask16 lanes)
{
    _mm512_mask_storeu_ps(out, lanes, ks_wide_load_bf16(in, lanes));
}

KS_WIDE_INLINE void wide_floats_to_fp16_16(const float *in, uint16_t *out, __mmask16 lanes)
{
    ks_wide_store_fp16(_mm512_maskz_loadu_ps(lanes, in), out, lanes);
}

KS_WIDE_INLINE void wide_floats_to_bf16_16(const float *in, uint16_t *out, __mmask16 lanes)
{
    ks_wide_store_bf16(_mm512_maskz_loadu_ps(lanes, in), out, lanes);
}

/* double_to_odd_float of eight: cut towards zero, and odd where that lost something; NaN as the conversion makes it. */
KS_WIDE_INLINE __m256 wide_odd(__m512d x)
{
    const __m256 cut = _mm512_cvt_roundpd_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __mmask8 lost = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), x, _CMP_NEQ_OQ);
    const __m256i bits = _mm256_castps_si256(cut);
    return _mm256_castsi256_ps(_mm256_mask_or_epi32(bits, lost, bits, _mm256_set1_epi32(1)));
}

KS_WIDE_INLINE __m512 wide_odd_16(const double *in, __mmask16 lanes)
{
    const __m256 low = wide_odd(_mm512_maskz_loadu_pd((__mmask8)lanes, in)),
                 high = wide_odd(_mm512_maskz_loadu_pd((__mmask8)(lanes >> 8), in + 8));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

KS_WIDE_INLINE void wide_doubles_to_fp16_16(const double *in, uint16_t *out, __mmask16 lanes)
{
    ks_wide_store_fp16(wide_odd_16(in, lanes), out, lanes);
}

KS_WIDE_INLINE void wide_doubles_to_bf16_16(const double *in, uint16_t *out, __mmask16 lanes)
{
    ks_wide_store_bf16(wide_odd_16(in, lanes), out, lanes);
}

KS_WIDE_INLINE void wide_doubles_to_odd_floats_16(const double *in, float *out, __mmask16 lanes)
{
    _mm512_mask_storeu_ps(out, lanes, wide_odd_16(in, lanes));
}

WIDE_LOOP(wide_fp16_to_floats, uint16_t, float)
WIDE_LOOP(wide_bf16_to_floats, uint16_t, float)
WIDE_LOOP(wide_floats_to_fp16, float, uint16_t)
WIDE_LOOP(wide_floats_to_bf16, float, uint16_t)
WIDE_LOOP(wide_doubles_to_fp16, double, uint16_t)
WIDE_LOOP(wide_doubles_to_bf16, double, uint16_t)
WIDE_LOOP(wide_doubles_to_odd_floats, double, float)

KS_WIDE_TARGET static void wide_stream(const char *in, char *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) _mm512_stream_si512((void *)(out + i), _mm512_loadu_si512(in + i));
}
#endif

KS_CLONES static void plain_fp16_to_floats(const uint16_t *restrict in, float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = fp16_to_float(in[i]);
}

KS_CLONES static void plain_bf16_to_floats(const uint16_t *restrict in, float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = float_of((uint32_t)in[i] << 16);
}

KS_CLONES static void plain_floats_to_fp16(const float *restrict in, uint16_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = float_to_fp16(in[i]);
}

KS_CLONES static void plain_floats_to_bf16(const float *restrict in, uint16_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = float_to_bf16(in[i]);
}

KS_CLONES static void plain_doubles_to_fp16(const double *restrict in, uint16_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = float_to_fp16(double_to_odd_float(in[i]));
}

KS_CLONES static void plain_doubles_to_bf16(const double *restrict in, uint16_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = float_to_bf16(double_to_odd_float(in[i]));
}

KS_CLONES static void plain_doubles_to_odd_floats(const double *restrict in, float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = double_to_odd_float(in[i]);
}

/* The processor's own where it has them. */
#ifdef KS_WIDE_CONVERSIONS
#define CHOSEN(name) (ks_has_wide() ? wide_##name : plain_##name)
#else
#define CHOSEN(name) plain_##name
#endif
#define CONVERT(name, in_type, out_type)                                                                               \
    void ks_##name(const in_type *in, out_type *out, size_t count)                                                     \
    {                                                                                                                  \
        CHOSEN(name)(in, out, count);                                                                                  \
    }
CONVERT(fp16_to_floats, uint16_t, float)
CONVERT(bf16_to_floats, uint16_t, float)
CONVERT(floats_to_fp16, float, uint16_t)
CONVERT(floats_to_bf16, float, uint16_t)
CONVERT(doubles_to_fp16, double, uint16_t)
CONVERT(doubles_to_bf16, double, uint16_t)
CONVERT(doubles_to_odd_floats, double, float)

KS_CLONES void ks_fp8e4m3_to_floats(const uint8_t *restrict in, float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = ks_fp8_to_float(ks_fp8_e4m3, in[i]);
}

KS_CLONES void ks_fp8e5m2_to_floats(const uint8_t *restrict in, float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = ks_fp8_to_float(ks_fp8_e5m2, in[i]);
}

KS_CLONES void ks_floats_to_fp8e4m3(const float *restrict in, uint8_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = ks_fp8_of_float(ks_fp8_e4m3, in[i]);
}

KS_CLONES void ks_floats_to_fp8e5m2(const float *restrict in, uint8_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = ks_fp8_of_float(ks_fp8_e5m2, in[i]);
}

/* Whole cache lines: what hangs over at either end is stored as usual. */
void ks_large_request(const void *in, void *out, size_t bytes)
{
#ifdef KS_WIDE_CONVERSIONS
    const char *from = in;
    char *to = out;
    const size_t head = -(uintptr_t)out % 64;
    if (ks_has_wide() && bytes >= head + 64) {
        const size_t lines = (bytes - head) & ~(size_t)63, end = head + lines;
        memcpy(to, from, head);
        wide_stream(from + head, to + head, lines);
        memcpy(to + end, from + end, bytes - end);
        return;
    }
#endif
    memcpy(out, in, bytes);
}

void ks_large_end(void)
{
#ifdef KS_WIDE_CONVERSIONS
    _mm_sfence();
#endif
}
