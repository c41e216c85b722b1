/* map of FP16 and BF16 through functions of one instruction: elements become floats, numbers of the result and 16 bits again in registers,
 * where ks_map_block would bring each of them to the caches in between. The bits are the same, but for gelu, which is a quicker one here.
 *
 * Threads  any: no memory. */
#include "cpu/map/map.h"
#include "cpu/wide.h"

#ifdef KS_WIDE_CONVERSIONS

typedef struct halves {
    const uint16_t *in[KS_MAP_OPERANDS];
    uint16_t *out;
} halves;

typedef void loop_fn(const halves *h, size_t count);

/* 2^t for t <= 0: 1 ulp. */
KS_WIDE_INLINE __m512 power(__m512 t)
{
    const __m512 bounded = _mm512_max_ps(t, _mm512_set1_ps(-200)), n = _mm512_roundscale_ps(bounded, 0),
                 f = _mm512_sub_ps(bounded, n);
    __m512 p = _mm512_set1_ps(0x1.441390p-13f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.5f0890p-10f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.3b2a54p-7f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.c6af6cp-5f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ebfbe0p-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62e430p-1f));
    return _mm512_scalef_ps(_mm512_fmadd_ps(p, f, _mm512_set1_ps(1)), n);
}

/* gelu = max(x, 0) - |x / 2| erfc(|x| / sqrt 2), erfc within 1.5e-7: as good as 16 bits can show. Of -inf NaN, as elsewhere.
 * Source: Abramowitz and Stegun, 7.1.26. */
KS_WIDE_INLINE __m512 quick_gelu(__m512 x)
{
    const __m512 size = _mm512_abs_ps(x), d = _mm512_fmadd_ps(size, _mm512_set1_ps(0.23164189f), _mm512_set1_ps(1));
    const __m512 guess = _mm512_rcp14_ps(d), t = _mm512_mul_ps(guess, _mm512_fnmadd_ps(d, guess, _mm512_set1_ps(2)));
    __m512 p = _mm512_set1_ps(1.061405429f);
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-1.453152027f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.421413741f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.284496736f));
    p = _mm512_mul_ps(_mm512_fmadd_ps(p, t, _mm512_set1_ps(0.254829592f)), t);
    const __m512 e = power(_mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-0.72134752f)));
    const __m512 half = _mm512_mul_ps(size, _mm512_set1_ps(0.5f)), most = _mm512_max_ps(x, _mm512_setzero_ps());
    const __m512 y = _mm512_fnmadd_ps(half, _mm512_mul_ps(p, e), most);
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, _mm512_set1_ps(__builtin_inff()), _CMP_EQ_OQ), x);
}

/* operands: a constant where it is inlined, as the datatype's load and store are. */
#define LOOP(name, load, store, operands, expression)                                                                  \
    KS_WIDE_INLINE void name##_16(const halves *h, size_t i, __mmask16 lanes)                                          \
    {                                                                                                                  \
        const __m512 x = load(h->in[0] + i, lanes), y = (operands) > 1 ? load(h->in[1] + i, lanes) : x,                \
                     z = (operands) > 2 ? load(h->in[2] + i, lanes) : x;                                               \
        (void)y, (void)z;                                                                                              \
        store(expression, h->out + i, lanes);                                                                          \
    }                                                                                                                  \
    KS_WIDE_TARGET static void name(const halves *h, size_t count)                                                     \
    {                                                                                                                  \
        size_t i = 0;                                                                                                  \
        for (; i + 16 <= count; i += 16) name##_16(h, i, 0xFFFF);                                                      \
        if (i < count) name##_16(h, i, (__mmask16)((1u << (count - i)) - 1));                                          \
    }
#define LOOPS(name, operands, expression)                                                                              \
    LOOP(name##_fp16, ks_wide_load_fp16, ks_wide_store_fp16, operands, expression)                                     \
    LOOP(name##_bf16, ks_wide_load_bf16, ks_wide_store_bf16, operands, expression)
LOOPS(add, 2, _mm512_add_ps(x, y))
LOOPS(sub, 2, _mm512_sub_ps(x, y))
LOOPS(mul, 2, _mm512_mul_ps(x, y))
LOOPS(div, 2, _mm512_div_ps(x, y))
LOOPS(fma, 3, _mm512_fmadd_ps(x, y, z))
LOOPS(gelu, 1, quick_gelu(x))

static loop_fn *loop_of(ks_map_function function, bool bf16)
{
    switch (function) {
    case KS_MAP_ADD:
        return bf16 ? add_bf16 : add_fp16;
    case KS_MAP_SUB:
        return bf16 ? sub_bf16 : sub_fp16;
    case KS_MAP_MUL:
        return bf16 ? mul_bf16 : mul_fp16;
    case KS_MAP_DIV:
        return bf16 ? div_bf16 : div_fp16;
    case KS_MAP_GELU:
        return bf16 ? gelu_bf16 : gelu_fp16;
    case KS_MAP_FMA:
        return bf16 ? fma_bf16 : fma_fp16;
    default:
        return NULL;
    }
}

bool ks_map_halves(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS], void *out, size_t count)
{
    const bool bf16 = work->dtype == KS_BF16;
    if ((!bf16 && work->dtype != KS_FP16) || work->out != work->dtype || !ks_has_wide()) return false;
    loop_fn *const loop = loop_of(work->function, bf16);
    if (!loop) return false;
    halves h = {.out = out};
    for (int k = 0; k < work->operands; k++) {
        if (!in[k]) return false; /* the scalar is a float */
        h.in[k] = in[k];
    }
    loop(&h, count);
    return true;
}

#else

bool ks_map_halves(const ks_map_work *work, const void *const in[KS_MAP_OPERANDS], void *out, size_t count)
{
    (void)work, (void)in, (void)out, (void)count;
    return false;
}

#endif
