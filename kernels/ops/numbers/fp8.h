/* FP8 as the host sees it, one element at a time: E4M3 (largest 448, no infinity, NaN is 0x7F) and E5M2 (FP16 without its lower
 * byte; largest 57344), as the Open Compute Project's 8-bit floating point specification 1.0 and the OFP8 types of GPUs have them. To
 * FP8 they round to nearest even; above the largest, E5M2 becomes infinite and E4M3 NaN. Branch-free but for selections. Any thread. */
#ifndef KS_OPS_FP8_H
#define KS_OPS_FP8_H

#include <string.h>

#include "kernserve/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bits: of the mantissa; an exponent field of all ones is NaN or infinite in E5M2 alone. */
typedef struct ks_fp8_layout {
    int bits, bias;
    bool infinite;
    float past_all; /* from here on nothing rounds to a finite value */
} ks_fp8_layout;

static const ks_fp8_layout ks_fp8_e4m3 = {3, 7, false, 480.0f}, ks_fp8_e5m2 = {2, 15, true, 65536.0f};

static inline float ks_fp8_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t ks_fp8_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ks_fp8_to_float(ks_fp8_layout layout, uint8_t code)
{
    const uint32_t magnitude = code & 0x7Fu, sign = (uint32_t)(code & 0x80u) << 24;
    /* The exponent is moved by a multiplication, which leaves subnormals exact. */
    const float moved = ks_fp8_float_of_bits(magnitude << (23 - layout.bits)) *
                        ks_fp8_float_of_bits((uint32_t)(254 - layout.bias) << 23);
    const uint32_t special = layout.infinite ? 0x7Cu : 0x7Fu; /* from here on infinity and NaN */
    const uint32_t none = layout.infinite && magnitude == special ? 0x7F800000u : 0x7FC00000u;
    return ks_fp8_float_of_bits(sign | (magnitude >= special ? none : ks_fp8_bits_of_float(moved)));
}

static inline uint8_t ks_fp8_of_float(ks_fp8_layout layout, float value)
{
    const uint32_t bits = ks_fp8_bits_of_float(value), magnitude = bits & 0x7FFFFFFFu;
    const int dropped = 23 - layout.bits;
    /* Below the normal range an addition leaves the code as the lowest bits of a sum, rounded. */
    const uint32_t beside = (uint32_t)(127 - layout.bias + dropped + 1) << 23;
    const uint32_t small =
        ks_fp8_bits_of_float(ks_fp8_float_of_bits(magnitude) + ks_fp8_float_of_bits(beside)) - beside;
    const uint32_t normal = (magnitude - ((uint32_t)(127 - layout.bias) << 23) + ((1u << (dropped - 1)) - 1) +
                             (magnitude >> dropped & 1)) >>
                            dropped;
    const uint32_t least = (uint32_t)(128 - layout.bias) << 23; /* the least normal one */
    uint32_t code = magnitude < least ? small : normal;
    if (magnitude >= ks_fp8_bits_of_float(layout.past_all)) code = layout.infinite ? 0x7Cu : 0x7Fu;
    if (magnitude > 0x7F800000u) code = layout.infinite ? 0x7Eu : 0x7Fu;
    return (uint8_t)(code | (bits >> 24 & 0x80u));
}

static inline bool ks_is_fp8(ks_dtype dtype)
{
    return dtype == KS_FP8E4M3 || dtype == KS_FP8E5M2;
}

static inline ks_fp8_layout ks_fp8_layout_of(ks_dtype dtype)
{
    return dtype == KS_FP8E4M3 ? ks_fp8_e4m3 : ks_fp8_e5m2;
}

#ifdef __cplusplus
}
#endif
#endif
