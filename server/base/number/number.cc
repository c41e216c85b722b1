/* Number text by <charconv>: one token of any kind, and what the fast ways leave. The JSON grammar is checked before
 * from_chars sees a token, because from_chars takes more ("inf", "1.", "01") and less (a range error for tiny numbers)
 * than the protocol does. */
#include "base/number/parts.h"
#include "ops/numbers/fp8.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace
{
enum class token { none, integer, real };

bool digit(char c)
{
    return static_cast<unsigned char>(c - '0') < 10;
}

const char *digits(const char *p, const char *end)
{
    while (p != end && digit(*p)) p++;
    return p;
}

token json_number(const char *p, const char *end)
{
    token kind = token::integer;
    if (p != end && *p == '-') p++;
    if (p == end || !digit(*p)) return token::none;
    p = *p == '0' ? p + 1 : digits(p, end);
    if (p != end && *p == '.') {
        kind = token::real;
        const char *const fraction = ++p;
        p = digits(p, end);
        if (p == fraction) return token::none;
    }
    if (p != end && (*p == 'e' || *p == 'E')) {
        kind = token::real;
        p++;
        if (p != end && (*p == '+' || *p == '-')) p++;
        const char *const exponent = p;
        p = digits(p, end);
        if (p == exponent) return token::none;
    }
    return p == end ? kind : token::none;
}

bool same(const char *text, size_t length, const char *word)
{
    return length == std::strlen(word) && std::memcmp(text, word, length) == 0;
}

/* from_chars reports numbers too large and numbers too small alike; only the former are outside the type, the latter
 * round to zero. Which one it was follows from where the first digit that is not 0 stands. */
bool below_one(const char *p, const char *end)
{
    long place = 0; /* decimal exponent of the first digit that is not 0, plus one */
    bool found = false, point = false;
    for (; p != end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        if (*p == '-') continue;
        if (*p != '0') found = true;
        if (!point && found) place++;
        if (point && !found) place--;
    }
    if (!found) return true;
    if (p == end) return place <= 0;
    p++;
    const bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    long exponent = 0;
    for (; p != end; p++)
        if (exponent < 1000000000) exponent = exponent * 10 + (*p - '0');
    return place + (negative ? -exponent : exponent) <= 0;
}

template <typename T>
ks_number_result read_word(const char *text, size_t length, void *out)
{
    const bool negative = length > 0 && *text == '-';
    const char *const word = text + negative;
    const size_t rest = length - negative;
    T value;
    if (same(word, rest, "Infinity") || same(word, rest, "Inf"))
        value = negative ? -INFINITY : INFINITY;
    else if (!negative && same(word, rest, "NaN"))
        value = NAN;
    else
        return KS_NUMBER_SYNTAX;
    std::memcpy(out, &value, sizeof value);
    return KS_NUMBER_OK;
}

template <typename T>
ks_number_result read_float(const char *text, size_t length, void *out)
{
    const char *const end = text + length;
    if (json_number(text, end) == token::none) return read_word<T>(text, length, out);
    T value = 0;
    const auto result = std::from_chars(text, end, value);
    if (result.ec == std::errc::result_out_of_range) {
        if (!below_one(text, end)) return KS_NUMBER_RANGE;
        value = *text == '-' ? -T(0) : T(0);
    } else if (std::isinf(value)) {
        return KS_NUMBER_RANGE;
    }
    std::memcpy(out, &value, sizeof value);
    return KS_NUMBER_OK;
}

template <typename T>
ks_number_result read_integer(const char *text, size_t length, void *out)
{
    const char *const end = text + length;
    T value = 0;
    if (int64_t digits; ks_digits_read(text, length, &digits)) {
        value = static_cast<T>(digits);
        if (static_cast<int64_t>(value) != digits) return KS_NUMBER_RANGE;
        std::memcpy(out, &value, sizeof value);
        return KS_NUMBER_OK;
    }
    switch (json_number(text, end)) {
    case token::none:
        return KS_NUMBER_SYNTAX;
    case token::real:
        return KS_NUMBER_RANGE;
    case token::integer:
        break;
    }
    if (std::is_unsigned_v<T> && *text == '-') {
        if (!same(text, length, "-0")) return KS_NUMBER_RANGE;
    } else if (std::from_chars(text, end, value).ec != std::errc()) {
        return KS_NUMBER_RANGE;
    }
    std::memcpy(out, &value, sizeof value);
    return KS_NUMBER_OK;
}

/* The digits of a JSON number, without point, sign, or zeros around them, and the power of ten of the first. */
struct digits_of {
    const char *at, *end;
    long first;

    digits_of(const char *text, const char *stop) : at(text), end(text), first(0)
    {
        while (end != stop && *end != 'e' && *end != 'E') end++;
        if (at != end && *at == '-') at++;
        long point = 0;
        while (at + point != end && at[point] != '.') point++;
        first = point - 1;
        const char *const start = at;
        while (at != end && (*at == '0' || *at == '.')) at++;
        if (at != end) first = at - start < point ? point - 1 - (at - start) : point - (at - start);
        if (end != stop) {
            long exponent = 0;
            const char *from = end + 1 + (end[1] == '+');
            if (std::from_chars(from, stop, exponent).ec == std::errc()) first += exponent;
        }
    }
    char next() /* '0' behind the last one */
    {
        if (at != end && *at == '.') at++;
        return at != end ? *at++ : '0';
    }
    bool over() const
    {
        return at == end;
    }
};

/* Of two positive numbers of about the same size: whether the first one is above (1), below (-1) or equal (0). */
int compare_digits(digits_of a, digits_of b)
{
    if (a.first != b.first) return a.first > b.first ? 1 : -1;
    while (!a.over() || !b.over()) {
        const char x = a.next(), y = b.next();
        if (x != y) return x > y ? 1 : -1;
    }
    return 0;
}

/* The FP32 that rounds to FP8 as the number itself does. Where the FP64 nearest to it lies in the middle between two FP8, the
 * digits say on which side the number lies; what FP32 cuts off leaves a last bit. */
float towards(double value, ks_fp8_layout form, const char *text, const char *end)
{
    float near = (float)value;
    if ((double)near == value) {
        const double magnitude = std::fabs(value);
        if (std::fabs((double)ks_fp8_to_float(form, ks_fp8_of_float(form, near))) == magnitude) return near;
        char exact[KS_NUMBER_TEXT_MAX]; /* all of a middle: it has 14 digits at most */
        char *const stop = std::to_chars(exact, exact + sizeof exact, magnitude).ptr;
        const int side = compare_digits(digits_of(text, end), digits_of(exact, stop));
        if (side == 0) return near;
        value = std::nextafter(value, side > 0 ? std::copysign(INFINITY, value) : 0.0);
    }
    uint32_t bits = ks_fp8_bits_of_float(near);
    if (std::fabs((double)near) > std::fabs(value)) bits--;
    return ks_fp8_float_of_bits(bits | 1u);
}

ks_number_result read_fp8(const char *text, size_t length, ks_dtype dtype, void *out)
{
    const ks_fp8_layout form = ks_fp8_layout_of(dtype);
    const char *const end = text + length;
    double value = 0;
    const ks_number_result result = read_float<double>(text, length, &value);
    if (result != KS_NUMBER_OK) return result;
    const bool word = json_number(text, end) == token::none;
    if (std::isinf(value) && !(word && form.infinite)) return KS_NUMBER_RANGE;
    if (!word && std::fabs(value) > (form.infinite ? 57344 : 448)) return KS_NUMBER_RANGE;
    const uint8_t code = ks_fp8_of_float(form, word ? (float)value : towards(value, form, text, end));
    std::memcpy(out, &code, 1);
    return KS_NUMBER_OK;
}

ks_number_result read_bool(const char *text, size_t length, void *out)
{
    unsigned char value;
    if (same(text, length, "true") || same(text, length, "1"))
        value = 1;
    else if (same(text, length, "false") || same(text, length, "0"))
        value = 0;
    else
        return json_number(text, text + length) == token::none ? KS_NUMBER_SYNTAX : KS_NUMBER_RANGE;
    std::memcpy(out, &value, 1);
    return KS_NUMBER_OK;
}
} // namespace

extern "C" {

ks_number_result ks_number_read(const char *text, size_t length, ks_dtype dtype, void *out)
{
    switch (dtype) {
    case KS_BOOL:
        return read_bool(text, length, out);
    case KS_UINT8:
        return read_integer<uint8_t>(text, length, out);
    case KS_UINT16:
        return read_integer<uint16_t>(text, length, out);
    case KS_UINT32:
        return read_integer<uint32_t>(text, length, out);
    case KS_UINT64:
        return read_integer<uint64_t>(text, length, out);
    case KS_INT8:
        return read_integer<int8_t>(text, length, out);
    case KS_INT16:
        return read_integer<int16_t>(text, length, out);
    case KS_INT32:
        return read_integer<int32_t>(text, length, out);
    case KS_INT64:
        return read_integer<int64_t>(text, length, out);
    case KS_FP8E4M3:
    case KS_FP8E5M2:
        return read_fp8(text, length, dtype, out);
    case KS_FP32:
        return read_float<float>(text, length, out);
    case KS_FP64:
        return read_float<double>(text, length, out);
    default:
        return KS_NUMBER_KIND;
    }
}

size_t ks_number_write_any(double value, char *out)
{
    char *const end = std::to_chars(out, out + KS_NUMBER_TEXT_MAX, value).ptr;
    for (const char *p = out; p != end; p++)
        if (*p == '.' || *p == 'e') return static_cast<size_t>(end - out);
    /* Typed readers tell a float by its point. */
    end[0] = '.';
    end[1] = '0';
    return static_cast<size_t>(end + 2 - out);
}
}
