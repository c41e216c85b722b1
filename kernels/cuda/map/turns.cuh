/* sin and cos of floats on the GPU: CUDA's own keep the bits of 2 / pi in a local array for large arguments, and so give every kernel that
 * calls them a stack frame. Within 1.6 ulp; of infinity NaN.
 *
 * Source   the polynomials and the three parts of pi / 2 are N. Juffa's; the reduction of large arguments is Payne's and Hanek's, 1983. */
#ifndef KS_MAP_TURNS_CUH
#define KS_MAP_TURNS_CUH

#include "cuda/common/warp.cuh"

/* 2 / pi, behind 64 bits of its integer part. */
static __device__ const uint32_t map_two_over_pi[] = {0,           0,           0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u,
                                                      0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu};

/* Quarter turns, modulo 4, and what is left, between -pi / 4 and pi / 4. */
struct map_turn {
    uint32_t quarters;
    float rest;
};

/* Of a finite x of at least 2^16: its mantissa times the bits of 2 / pi that are below 4 quarter turns, in 2^-62 of one. */
__device__ __forceinline__ map_turn map_turn_large(float x)
{
    const uint32_t bits = __float_as_uint(x), mantissa = (bits & 0x7FFFFFu) | 0x800000u;
    const uint32_t first = (bits >> 23 & 0xFF) - 88, word = first / 32, shift = first % 32;
    const uint32_t *const at = map_two_over_pi + word;
    const uint32_t high = __funnelshift_l(at[1], at[0], shift), middle = __funnelshift_l(at[2], at[1], shift),
                   low = __funnelshift_l(at[3], at[2], shift);
    const uint64_t window = (uint64_t)high << 32 | middle;
    const uint64_t turns = mantissa * window + ((uint64_t)mantissa * low >> 32);
    const uint64_t quarters = (turns + ((uint64_t)1 << 61)) >> 62;
    const double rest = (double)(int64_t)(turns - (quarters << 62)) * 3.4061215800865546e-19; /* pi / 2 * 2^-62 */
    const bool negative = bits >> 31;
    return map_turn{(uint32_t)(negative ? 0 - quarters : quarters), (float)(negative ? -rest : rest)};
}

__device__ __forceinline__ map_turn map_turn_of(float x)
{
    const float magic = 12582912.0f, shifted = fmaf(x, 0.636619747f, magic), n = shifted - magic;
    map_turn turn = {__float_as_uint(shifted), fmaf(n, -1.57079601e+00f, x)};
    turn.rest = fmaf(n, -3.13916473e-07f, turn.rest);
    turn.rest = fmaf(n, -5.39030253e-15f, turn.rest);
    const uint32_t size = __float_as_uint(x) & 0x7FFFFFFFu;
    if (size >= 0x47800000u) turn = size < 0x7F800000u ? map_turn_large(x) : map_turn{0, x - x};
    return turn;
}

/* quarters: 0 sin, 1 cos. */
__device__ __forceinline__ float map_wave(float x, uint32_t quarters)
{
    const map_turn turn = map_turn_of(x);
    const uint32_t q = turn.quarters + quarters;
    const float r = turn.rest, s = r * r;
    float even = fmaf(2.44677067e-5f, s, -1.38877297e-3f);
    even = fmaf(even, s, 4.16666567e-2f);
    even = fmaf(even, s, -0.5f);
    even = fmaf(even, s, 1.0f);
    float odd = fmaf(2.86567956e-6f, s, -1.98559923e-4f);
    odd = fmaf(odd, s, 8.33338592e-3f);
    odd = fmaf(odd, s, -1.66666672e-1f);
    odd = fmaf(odd, s * r, r);
    return __uint_as_float(__float_as_uint(q & 1 ? even : odd) ^ (q & 2) << 30);
}

__device__ __forceinline__ float map_sin(float x)
{
    return map_wave(x, 0);
}
__device__ __forceinline__ float map_cos(float x)
{
    return map_wave(x, 1);
}
__device__ __forceinline__ double map_sin(double x)
{
    return sin(x);
}
__device__ __forceinline__ double map_cos(double x)
{
    return cos(x);
}

#endif
