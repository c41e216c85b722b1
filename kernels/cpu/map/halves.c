/* map of FP16 and BF16 through functions of one instruction: elements become floats, numbers of the result and 16 bits again in registers,
 * where ks_map_block would bring each of them to the caches in between. The bits are the same.
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
