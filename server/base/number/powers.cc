/* The powers of ten, worked out by the compiler in whole numbers: 10^q and 5^q have the same leading bits. Positive ones
 * by multiplying by 5; negative ones by dividing 2^1023 by 5 again and again, which rounds down as one division does. */
#include "base/number/parts.h"

#include <bit>

namespace
{
struct whole { /* 1024 bits, the lowest limb first */
    uint32_t limb[32];
};

constexpr void times_5(whole &x)
{
    uint64_t carry = 0;
    for (uint32_t &limb : x.limb) {
        carry += uint64_t(limb) * 5;
        limb = uint32_t(carry);
        carry >>= 32;
    }
}

constexpr void over_5(whole &x)
{
    uint64_t rest = 0;
    for (int i = 31; i >= 0; i--) {
        rest = rest << 32 | x.limb[i];
        x.limb[i] = uint32_t(rest / 5);
        rest %= 5;
    }
}

/* The first 128 bits, one more than them where the number goes on. */
constexpr ks_power leading(const whole &x, bool more)
{
    int top = 31;
    while (x.limb[top] == 0) top--;
    const int shift = std::countl_zero(x.limb[top]);
    uint64_t part[4] = {};
    for (int i = 0; i < 4; i++) {
        const uint64_t upper = top >= i ? x.limb[top - i] : 0, lower = top > i ? x.limb[top - i - 1] : 0;
        part[i] = (upper << 32 | lower) << shift >> 32;
    }
    for (int i = top - 4; i >= 0; i--) more |= (i == top - 4 ? x.limb[i] << shift : x.limb[i]) != 0;
    return {part[0] << 32 | part[1], (part[2] << 32 | part[3]) + more};
}

constexpr ks_powers make()
{
    ks_powers powers = {};
    whole x = {{1}};
    for (int q = 0; q <= KS_POWER_MAX; q++, times_5(x)) powers.of[q - KS_POWER_MIN] = leading(x, false);
    x = {};
    x.limb[31] = 1u << 31;
    for (int q = -1; q >= KS_POWER_MIN; q--) {
        over_5(x);
        powers.of[q - KS_POWER_MIN] = leading(x, true);
    }
    return powers;
}

constexpr ks_powers made = make();

/* high is rounded down, as the reader needs it, because rounding up never carried into it. */
constexpr bool none_carried()
{
    for (int q = KS_POWER_MIN; q <= KS_POWER_MAX; q++)
        if (made.of[q - KS_POWER_MIN].low == 0 && (q < 0 || q > 27)) return false;
    return true;
}
static_assert(none_carried());
static_assert(made.of[1 - KS_POWER_MIN].high == 0xA000000000000000 &&
              made.of[-1 - KS_POWER_MIN].high == 0xCCCCCCCCCCCCCCCC);

/* 0 and 255 are no ordinary floats: what stands there is used for nothing. */
constexpr ks_single_scales make_scales()
{
    ks_single_scales all = {};
    for (int field = 1; field < KS_SINGLE_FIELDS - 1; field++) {
        const int two = field - KS_SINGLE_BIAS, ten = ks_power_of_ten(two), shift = two + (-ten * 1741647 >> 19) + 1;
        const uint64_t scale = made.of[-ten - KS_POWER_MIN].high >> (4 - shift);
        all.of[field] = {uint32_t(scale), uint32_t(scale >> 32)};
    }
    return all;
}
} // namespace

const ks_powers ks_number_powers = made;
const ks_single_scales ks_number_single_scales = make_scales();
