/* Sixteen elements of 16 bits as floats, and back, by the processor's own instructions where it has them: the numbers of convert.c, several
 * times faster. `lanes` says which are there; the others are neither read nor written.
 *
 * Threads  any: no memory. */
#ifndef KS_CPU_WIDE_H
#define KS_CPU_WIDE_H

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <stdint.h>

#define KS_WIDE_CONVERSIONS 1
#define KS_WIDE_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define KS_WIDE_INLINE KS_WIDE_TARGET static inline __attribute__((__always_inline__, unused))

static inline int ks_has_wide(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

KS_WIDE_INLINE __m512 ks_wide_load_fp16(const uint16_t *in, __mmask16 lanes)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, in));
}

KS_WIDE_INLINE __m512 ks_wide_load_bf16(const uint16_t *in, __mmask16 lanes)
{
    const __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, in));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

/* A NaN becomes 0x7E00 with its sign, as convert.c has it: the instruction alone would keep some of its bits. */
KS_WIDE_INLINE void ks_wide_store_fp16(__m512 x, uint16_t *out, __mmask16 lanes)
{
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i sign = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN));
    const __m512 quiet = _mm512_castsi512_ps(_mm512_or_si512(sign, _mm512_set1_epi32(0x7FC00000)));
    const __m256i halves =
        _mm512_cvtps_ph(_mm512_mask_mov_ps(x, nan, quiet), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(out, lanes, halves);
}

/* In integers, as convert.c has it: the processor's instruction would make zeros of subnormals. */
KS_WIDE_INLINE void ks_wide_store_bf16(__m512 x, uint16_t *out, __mmask16 lanes)
{
    const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i result = _mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16), nan, quiet);
    _mm256_mask_storeu_epi16(out, lanes, _mm512_cvtepi32_epi16(result));
}
#endif

#endif
