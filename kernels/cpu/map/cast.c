/* Casts between any two datatypes: through float where both are floats of at most 32 bits, through 64-bit integers where one begins as an
 * integer, else through double; each rounds once. */
#include "cpu/convert.h"
#include "cpu/map/map.h"
#include "cpu/simd.h"
#include "cpu/wide.h"

#include <math.h>
#include <string.h>

static const float E4M3_MOST = 448, E5M2_MOST = 57344;

static bool is_narrow_float(ks_dtype dtype)
{
    return ks_dtype_kind(dtype) == KS_KIND_FLOAT && dtype != KS_FP64;
}

static bool is_whole(ks_dtype dtype)
{
    return ks_dtype_kind(dtype) != KS_KIND_FLOAT;
}

/* --- floats and floats ----------------------------------------------------------------------------------------------- */

/* NaN stays. */
KS_CLONES static void bound_floats(const float *restrict in, float most, float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float x = in[i] > most ? most : in[i];
        out[i] = x < -most ? -most : x;
    }
}

static const float *to_floats(ks_dtype from, const void *in, float *middle, size_t count)
{
    switch (from) {
    case KS_FP16:
        ks_fp16_to_floats(in, middle, count);
        return middle;
    case KS_BF16:
        ks_bf16_to_floats(in, middle, count);
        return middle;
    case KS_FP8E4M3:
        ks_fp8e4m3_to_floats(in, middle, count);
        return middle;
    case KS_FP8E5M2:
        ks_fp8e5m2_to_floats(in, middle, count);
        return middle;
    default: /* FP32 */
        return in;
    }
}

/* in may be the middle. */
static void from_floats(ks_dtype to, const float *in, void *out, float *middle, size_t count)
{
    switch (to) {
    case KS_FP16:
        ks_floats_to_fp16(in, out, count);
        break;
    case KS_BF16:
        ks_floats_to_bf16(in, out, count);
        break;
    case KS_FP8E4M3:
        bound_floats(in, E4M3_MOST, middle, count);
        ks_floats_to_fp8e4m3(middle, out, count);
        break;
    case KS_FP8E5M2:
        bound_floats(in, E5M2_MOST, middle, count);
        ks_floats_to_fp8e5m2(middle, out, count);
        break;
    default:
        memcpy(out, in, count * sizeof *in);
        break;
    }
}

/* --- doubles --------------------------------------------------------------------------------------------------------- */

KS_CLONES static void widen(const float *restrict in, double *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = in[i];
}

KS_CLONES static void narrow(const double *restrict in, float *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = (float)in[i];
}

/* Toward zero; beyond the datatype its least and largest, NaN 0. */
#define TRUNCATE(name, type, least, most)                                                                              \
    KS_CLONES static void name(const double *restrict in, type *restrict out, size_t count)                            \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            const double x = in[i] == in[i] ? in[i] : 0, y = x < (least) ? (least) : x;                                \
            out[i] = (type)(y > (most) ? (most) : y);                                                                  \
        }                                                                                                              \
    }
TRUNCATE(to_int8, int8_t, -128.0, 127.0)
TRUNCATE(to_int16, int16_t, -32768.0, 32767.0)
TRUNCATE(to_int32, int32_t, -2147483648.0, 2147483647.0)
TRUNCATE(to_uint8, uint8_t, 0.0, 255.0)
TRUNCATE(to_uint16, uint16_t, 0.0, 65535.0)
TRUNCATE(to_uint32, uint32_t, 0.0, 4294967295.0)

/* Of floats, where a float has both ends exactly: what lies between is then never rounded, and no double is made. */
#define TRUNCATE_FLOATS(name, type, least, most)                                                                       \
    KS_CLONES static void name(const float *restrict in, type *restrict out, size_t count)                             \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) {                                                                           \
            const float x = ks_choose_inline(in[i] == in[i], in[i], 0.0f);                                             \
            const float y = ks_choose_inline(x < (least), (least), x), z = ks_choose_inline(y > (most), (most), y);    \
            out[i] = (type)(int32_t)z;                                                                                 \
        }                                                                                                              \
    }
TRUNCATE_FLOATS(floats_to_int8, int8_t, -128.0f, 127.0f)
TRUNCATE_FLOATS(floats_to_int16, int16_t, -32768.0f, 32767.0f)
TRUNCATE_FLOATS(floats_to_uint8, uint8_t, 0.0f, 255.0f)
TRUNCATE_FLOATS(floats_to_uint16, uint16_t, 0.0f, 65535.0f)

KS_CLONES static void floats_to_bool(const float *restrict in, uint8_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = in[i] != 0;
}

#ifdef KS_WIDE_CONVERSIONS
/* What lies within the datatype's ends, NaN 0, cut to 32 bits, of which the low ones are stored. */
KS_WIDE_INLINE __m512i truncated_16(const float *in, __mmask16 lanes, float most, float least)
{
    const __m512 x = _mm512_maskz_loadu_ps(lanes, in);
    const __m512 there = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    return _mm512_cvttps_epi32(_mm512_max_ps(_mm512_min_ps(there, _mm512_set1_ps(most)), _mm512_set1_ps(least)));
}

KS_WIDE_TARGET static void wide_to_bytes(const float *in, uint8_t *out, size_t count, float most, float least)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        _mm_storeu_si128((__m128i *)(void *)(out + i), _mm512_cvtepi32_epi8(truncated_16(in + i, 0xFFFF, most, least)));
    if (i == count) return;
    const __mmask16 lanes = (__mmask16)((1u << (count - i)) - 1);
    _mm_mask_storeu_epi8(out + i, lanes, _mm512_cvtepi32_epi8(truncated_16(in + i, lanes, most, least)));
}

/* false: not one of its datatypes, or the processor has none of this. */
static bool wide_from_floats(ks_dtype to, const float *in, void *out, size_t count)
{
    if ((to != KS_INT8 && to != KS_UINT8) || !ks_has_wide()) return false;
    wide_to_bytes(in, out, count, to == KS_INT8 ? 127 : 255, to == KS_INT8 ? -128 : 0);
    return true;
}
#else
static bool wide_from_floats(ks_dtype to, const float *in, void *out, size_t count)
{
    (void)to, (void)in, (void)out, (void)count;
    return false;
}
#endif

/* false: there is no such loop. */
static bool from_floats_to_few_bits(ks_dtype to, const float *in, void *out, size_t count)
{
    if (wide_from_floats(to, in, out, count)) return true;
    switch (to) {
    case KS_BOOL:
        floats_to_bool(in, out, count);
        return true;
    case KS_INT8:
        floats_to_int8(in, out, count);
        return true;
    case KS_INT16:
        floats_to_int16(in, out, count);
        return true;
    case KS_UINT8:
        floats_to_uint8(in, out, count);
        return true;
    case KS_UINT16:
        floats_to_uint16(in, out, count);
        return true;
    default:
        return false;
    }
}

static void to_int64(const double *in, int64_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = in[i] >= 0x1p63 ? INT64_MAX : in[i] < -0x1p63 ? INT64_MIN : in[i] == in[i] ? (int64_t)in[i] : 0;
}

static void to_uint64(const double *in, uint64_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = in[i] >= 0x1p64 ? UINT64_MAX : in[i] > 0 ? (uint64_t)in[i] : 0;
}

KS_CLONES static void to_bool(const double *restrict in, uint8_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = in[i] != 0;
}

/* To FP8 by way of floats whose last bit says whether they are exact, bounded before the one rounding. */
static void from_doubles_to_fp8(ks_dtype to, const double *in, uint8_t *out, size_t count)
{
    enum { SOME = 64 };
    float odd[SOME], within[SOME];
    for (size_t i = 0; i < count; i += SOME) {
        const size_t n = count - i < SOME ? count - i : SOME;
        ks_doubles_to_odd_floats(in + i, odd, n);
        bound_floats(odd, to == KS_FP8E4M3 ? E4M3_MOST : E5M2_MOST, within, n);
        (to == KS_FP8E4M3 ? ks_floats_to_fp8e4m3 : ks_floats_to_fp8e5m2)(within, out + i, n);
    }
}

static void from_doubles_narrow(ks_dtype to, const double *in, void *out, size_t count)
{
    if (to == KS_FP16)
        ks_doubles_to_fp16(in, out, count);
    else if (to == KS_BF16)
        ks_doubles_to_bf16(in, out, count);
    else
        from_doubles_to_fp8(to, in, out, count);
}

static void from_doubles(ks_dtype to, const double *in, void *out, size_t count)
{
    switch (to) {
    case KS_BOOL:
        to_bool(in, out, count);
        break;
    case KS_INT8:
        to_int8(in, out, count);
        break;
    case KS_INT16:
        to_int16(in, out, count);
        break;
    case KS_INT32:
        to_int32(in, out, count);
        break;
    case KS_INT64:
        to_int64(in, out, count);
        break;
    case KS_UINT8:
        to_uint8(in, out, count);
        break;
    case KS_UINT16:
        to_uint16(in, out, count);
        break;
    case KS_UINT32:
        to_uint32(in, out, count);
        break;
    case KS_UINT64:
        to_uint64(in, out, count);
        break;
    case KS_FP32:
        narrow(in, out, count);
        break;
    case KS_FP64:
        memcpy(out, in, count * sizeof *in);
        break;
    default:
        from_doubles_narrow(to, in, out, count);
        break;
    }
}

/* --- integers, as 64 bits ---------------------------------------------------------------------------------------------- */

#define WIDEN(name, type)                                                                                              \
    KS_CLONES static void name(const type *restrict in, int64_t *restrict out, size_t count)                           \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) out[i] = (int64_t)in[i];                                                    \
    }
WIDEN(of_int8, int8_t)
WIDEN(of_int16, int16_t)
WIDEN(of_int32, int32_t)
WIDEN(of_uint8, uint8_t)
WIDEN(of_uint16, uint16_t)
WIDEN(of_uint32, uint32_t)

KS_CLONES static void of_bool(const uint8_t *restrict in, int64_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = in[i] != 0;
}

static const int64_t *to_integers(ks_dtype from, const void *in, int64_t *middle, size_t count)
{
    switch (from) {
    case KS_BOOL:
        of_bool(in, middle, count);
        break;
    case KS_INT8:
        of_int8(in, middle, count);
        break;
    case KS_INT16:
        of_int16(in, middle, count);
        break;
    case KS_INT32:
        of_int32(in, middle, count);
        break;
    case KS_UINT8:
        of_uint8(in, middle, count);
        break;
    case KS_UINT16:
        of_uint16(in, middle, count);
        break;
    case KS_UINT32:
        of_uint32(in, middle, count);
        break;
    default:
        return in;
    }
    return middle;
}

/* The low bits. */
#define CUT(name, type)                                                                                                \
    KS_CLONES static void name(const int64_t *restrict in, type *restrict out, size_t count)                           \
    {                                                                                                                  \
        for (size_t i = 0; i < count; i++) out[i] = (type)(uint64_t)in[i];                                             \
    }
CUT(cut_8, uint8_t)
CUT(cut_16, uint16_t)
CUT(cut_32, uint32_t)

KS_CLONES static void truths(const int64_t *restrict in, uint8_t *restrict out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = in[i] != 0;
}

/* To a double whose last bit says whether it is exact, so that a coarser rounding goes the right way. */
static double odd_double(int64_t value, bool is_unsigned)
{
    const bool negative = !is_unsigned && value < 0;
    uint64_t magnitude = negative ? -(uint64_t)value : (uint64_t)value;
    double scale = negative ? -1 : 1;
    if (magnitude >> 53) {
        magnitude = magnitude >> 11 | ((magnitude & 0x7FF) != 0);
        scale *= 0x1p11;
    }
    return (double)magnitude * scale;
}

static void from_integers_real(ks_dtype to, const int64_t *in, bool is_unsigned, void *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (to == KS_FP32) {
            ((float *)out)[i] = is_unsigned ? (float)(uint64_t)in[i] : (float)in[i];
        } else if (to == KS_FP64) {
            ((double *)out)[i] = is_unsigned ? (double)(uint64_t)in[i] : (double)in[i];
        } else {
            const double x = odd_double(in[i], is_unsigned);
            from_doubles_narrow(to, &x, (char *)out + i * ks_dtype_size(to), 1);
        }
    }
}

static void from_integers(ks_dtype to, const int64_t *in, bool is_unsigned, void *out, size_t count)
{
    if (ks_dtype_kind(to) == KS_KIND_FLOAT)
        from_integers_real(to, in, is_unsigned, out, count);
    else if (to == KS_BOOL)
        truths(in, out, count);
    else if (ks_dtype_size(to) == 1)
        cut_8(in, out, count);
    else if (ks_dtype_size(to) == 2)
        cut_16(in, out, count);
    else if (ks_dtype_size(to) == 4)
        cut_32(in, out, count);
    else
        memcpy(out, in, count * sizeof *in);
}

/* --- all -------------------------------------------------------------------------------------------------------------- */

void ks_map_cast(ks_dtype from, ks_dtype to, const void *in, void *out, size_t count, ks_map_middle *middle)
{
    if (from == to && from != KS_BOOL) {
        memcpy(out, in, count * ks_dtype_size(from));
    } else if (is_whole(from)) {
        from_integers(to, to_integers(from, in, (int64_t *)(void *)middle, count), from == KS_UINT64, out, count);
    } else if (is_narrow_float(from) && is_narrow_float(to)) {
        float *floats = (float *)(void *)middle;
        from_floats(to, to_floats(from, in, floats, count), out, floats + KS_MAP_BLOCK, count);
    } else if (from == KS_FP64) {
        from_doubles(to, in, out, count);
    } else {
        float room[KS_MAP_BLOCK];
        const float *floats = to_floats(from, in, room, count);
        if (from_floats_to_few_bits(to, floats, out, count)) return;
        widen(floats, middle->number, count);
        from_doubles(to, middle->number, out, count);
    }
}
