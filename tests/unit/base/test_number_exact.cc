/* Number text against <charconv>, byte for byte and bit for bit: every value that is printed and every text that is read.
 *
 *   test_number_exact [COUNT]          about COUNT numbers each way, default 2,000,000
 *   test_number_exact --every-float    each FP32 without a sign: its text, and the value read back from it
 *
 * Random bit patterns, and what goes wrong first: powers of two and of ten and their neighbours, subnormal values, whole
 * numbers around the ends of their datatypes, texts half way between two floats and a last digit beside it, long digit
 * strings, zeros in front and behind. That the fast way was taken, and not <charconv> compared with itself, is counted. */
#include "base/number/number.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace
{
std::mt19937_64 random_bits;
uint64_t printed, read, plain;

[[noreturn]] void wrong(const char *what, const std::string &ours, const std::string &expected)
{
    std::printf("%s: %s, <charconv> %s\n", what, ours.c_str(), expected.c_str());
    std::exit(1);
}

template <typename T>
constexpr ks_dtype dtype_of()
{
    if constexpr (std::is_same_v<T, float>)
        return KS_FP32;
    else if constexpr (std::is_same_v<T, double>)
        return KS_FP64;
    else if constexpr (std::is_signed_v<T>)
        return sizeof(T) == 1 ? KS_INT8 : sizeof(T) == 2 ? KS_INT16 : sizeof(T) == 4 ? KS_INT32 : KS_INT64;
    else
        return sizeof(T) == 1 ? KS_UINT8 : sizeof(T) == 2 ? KS_UINT16 : sizeof(T) == 4 ? KS_UINT32 : KS_UINT64;
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

/* A list of texts as a body would hold it. */
template <typename T>
class reader
{
  public:
    void add(const std::string &token)
    {
        ends.push_back(text.size() + token.size());
        text += token + (random_bits() % 2 ? "," : ", ");
        if (ends.size() == 1000) check();
    }

    void check()
    {
        const size_t count = ends.size();
        if (count == 0) return;
        std::vector<T> values(count);
        const std::string body = text.substr(0, ends.back()) + "]" + std::string(64, ' ');
        const char *p = body.data();
        for (size_t n = 0; n < count;) {
            const size_t from = n;
            const size_t got = ks_numbers_read(&p, body.data() + body.size(), dtype_of<T>(), count - n, &values[n]);
            n += got;
            plain += got;
            if (got > 0 && p != body.data() + ends[n - 1]) wrong("the place behind", p, body.substr(ends[n - 1]));
            for (size_t i = from; i < n; i++) compare(body, i, values[i]);
            if (n < count) p = after(body, n++);
        }
        read += count;
        text.clear();
        ends.clear();
    }

  private:
    const char *start(const std::string &body, size_t i) const
    {
        const char *p = body.data() + (i == 0 ? 0 : ends[i - 1] + 1);
        return p + (*p == ' ');
    }

    const char *after(const std::string &body, size_t i) const
    {
        return i + 1 < ends.size() ? start(body, i + 1) : body.data() + ends[i];
    }

    void compare(const std::string &body, size_t i, T value) const
    {
        const char *const p = start(body, i), *const end = body.data() + ends[i];
        T expected = 0;
        const auto result = std::from_chars(p, end, expected);
        if (result.ec != std::errc() || result.ptr != end || std::memcmp(&value, &expected, sizeof value) != 0)
            wrong("reading", std::string(p, end), std::to_string(expected));
    }

    std::string text;
    std::vector<size_t> ends;
};

/* --- printing ------------------------------------------------------------------------------------------------------- */

template <typename T>
std::string standard(T value)
{
    char text[64];
    if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(value)) return "NaN";
        if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    }
    std::string out(text, std::to_chars(text, text + sizeof text, value).ptr);
    if (std::is_floating_point_v<T> && out.find_first_of(".e") == std::string::npos) out += ".0";
    return out;
}

/* Prints lists of values, and reads what was printed. */
template <typename T>
class printer
{
  public:
    void add(T value)
    {
        values.push_back(value);
        if (values.size() == 1000) check();
    }

    void check()
    {
        std::vector<char> out(values.size() * KS_NUMBER_TEXT_MAX + 1);
        int non_finite = 0;
        const size_t length = ks_numbers_write(values.data(), values.size(), dtype_of<T>(), out.data(), &non_finite);
        const char *p = out.data();
        for (size_t i = 0; i < values.size(); i++) {
            const std::string expected = standard(values[i]);
            if (std::memcmp(p, expected.data(), expected.size()) != 0 ||
                (i + 1 < values.size() ? p[expected.size()] != ',' : p + expected.size() != out.data() + length))
                wrong("printing", std::string(p, 40), expected);
            p += expected.size() + 1;
            if constexpr (std::is_floating_point_v<T>)
                if (!std::isfinite(values[i])) continue;
            back.add(expected);
        }
        back.check();
        printed += values.size();
        values.clear();
    }

  private:
    std::vector<T> values;
    reader<T> back;
};

/* --- floats --------------------------------------------------------------------------------------------------------- */

template <typename T>
using bits_of = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <typename T>
T from_bits(uint64_t bits)
{
    return std::bit_cast<T>(static_cast<bits_of<T>>(bits));
}

template <typename T>
T any_finite()
{
    T value;
    do value = from_bits<T>(random_bits());
    while (!std::isfinite(value));
    return value;
}

/* A value and its neighbours, both signs. */
template <typename T>
void around(printer<T> &p, T value)
{
    if (!std::isfinite(value)) return;
    const auto bits = std::bit_cast<bits_of<T>>(value);
    for (int step = -3; step <= 3; step++)
        for (int sign = 0; sign < 2; sign++) {
            const T near = from_bits<T>(bits + static_cast<bits_of<T>>(step));
            p.add(sign ? -near : near);
        }
}

template <typename T>
void print_floats(uint64_t count)
{
    printer<T> p;
    using limits = std::numeric_limits<T>;
    for (int e = limits::min_exponent - limits::digits; e <= limits::max_exponent; e++) around(p, std::ldexp(T(1), e));
    for (int e = limits::min_exponent10 - limits::digits10; e <= limits::max_exponent10; e++)
        for (int digit = 1; digit <= 9; digit++) around(p, T(std::pow(10.0L, e) * digit));
    for (uint64_t i = 0; i < count; i++) {
        p.add(from_bits<T>(random_bits()));                                   /* anything, NaN too */
        p.add(T(std::uniform_real_distribution<double>(-1, 1)(random_bits))); /* as users have them */
        p.add(T(double(int64_t(random_bits()) >> random_bits() % 64)));       /* whole */
        p.add(T(double(int64_t(random_bits()) >> random_bits() % 64) / std::pow(10, random_bits() % 12))); /* short */
        p.add(from_bits<T>(random_bits() >> (64 - sizeof(T) * 8) >> (random_bits() % (sizeof(T) * 8))));   /* small */
    }
    p.check();
}

/* Digits with a point and an exponent anywhere. */
std::string random_text()
{
    std::string digits;
    const size_t count = 1 + random_bits() % 20;
    for (size_t i = 0; i < count; i++) digits += char('0' + random_bits() % 10);
    if (random_bits() % 8 == 0) digits += std::string(random_bits() % 6, '0');
    if (random_bits() % 8 == 0) digits = std::string(random_bits() % 6, '0') + digits;
    if (random_bits() % 4) digits.insert(random_bits() % digits.size(), ".");
    if (digits[0] == '.') digits = "0" + digits;
    const size_t wholes = std::min(digits.find('.'), digits.size());
    const size_t zeros = std::min(digits.find_first_not_of('0'), wholes - 1);
    digits.erase(0, zeros);
    if (random_bits() % 3 == 0)
        digits += (random_bits() % 2 ? "e" : "E") + std::string(random_bits() % 2 ? "" : "+") +
                  std::to_string(random_bits() % 30);
    else if (random_bits() % 3 == 0)
        digits += "e-" + std::to_string(random_bits() % 45);
    return (random_bits() % 2 ? "-" : "") + digits;
}

std::string general(long double value, int precision)
{
    char text[128];
    return std::string(text, std::to_chars(text, text + sizeof text, value, std::chars_format::general, precision).ptr);
}

/* The last digit one more or one less, carries left out. */
std::string nudged(std::string text)
{
    const size_t end = text.find('e');
    char &last = text[(end == std::string::npos ? text.size() : end) - 1];
    if (random_bits() % 2) {
        if (last < '9') last++;
    } else if (last > '0') {
        last--;
    }
    return text;
}

template <typename T>
void read_floats(uint64_t count)
{
    reader<T> r;
    const auto add = [&](const std::string &text) {
        T value;
        const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
        if (result.ec == std::errc() && std::isfinite(value)) r.add(text);
    };
    for (uint64_t i = 0; i < count; i++) {
        add(random_text());
        const T value =
            random_bits() % 2 ? any_finite<T>() : T(std::uniform_real_distribution<double>(-1, 1)(random_bits));
        add(general(value, 1 + int(random_bits() % 19)));
        /* 64 bits of significand hold the middle between two neighbours of either type. */
        const T next = std::nextafter(value, T(0));
        const long double middle = (static_cast<long double>(value) + next) / 2;
        const std::string half = general(middle, 15 + int(random_bits() % 12));
        add(half);
        add(nudged(half));
    }
    r.check();
}

/* --- whole numbers -------------------------------------------------------------------------------------------------- */

template <typename T>
void whole_numbers(uint64_t count)
{
    printer<T> p;
    reader<T> r;
    for (int shift = 0; shift < int(sizeof(T) * 8); shift++)
        for (int step = -2; step <= 2; step++) p.add(T((uint64_t(1) << shift) + uint64_t(step)));
    for (uint64_t i = 0, power = 1; i < 20; i++, power *= 10)
        for (int step = -2; step <= 2; step++) p.add(T(power + uint64_t(step)));
    for (uint64_t i = 0; i < count; i++) {
        p.add(T(random_bits() >> random_bits() % 64));
        p.add(T(0 - (random_bits() >> random_bits() % 64)));
    }
    p.check();
    /* What does not fit is not plain, and left. */
    const long double most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::min();
    for (const long double outside : {most + 1, least - 1, most * 10 + 9}) {
        const std::string body = general(outside, 25) + "," + std::string(64, ' ');
        const char *at = body.data();
        T ignored;
        if (ks_numbers_read(&at, body.data() + body.size(), dtype_of<T>(), 1, &ignored) != 0)
            wrong("range", body, "outside");
    }
}

/* --- all of them ---------------------------------------------------------------------------------------------------- */

void every_float()
{
    printer<float> p;
    for (uint64_t bits = 0; bits < (uint64_t(1) << 31); bits++) p.add(from_bits<float>(bits));
    p.check();
}

void mixture(uint64_t count)
{
    print_floats<float>(count / 16);
    print_floats<double>(count / 16);
    read_floats<float>(count / 16);
    read_floats<double>(count / 16);
    whole_numbers<int8_t>(count / 64);
    whole_numbers<uint8_t>(count / 64);
    whole_numbers<int16_t>(count / 64);
    whole_numbers<uint16_t>(count / 64);
    whole_numbers<int32_t>(count / 64);
    whole_numbers<uint32_t>(count / 64);
    whole_numbers<int64_t>(count / 64);
    whole_numbers<uint64_t>(count / 64);
}
} // namespace

int main(int count, char **words)
{
    const char *fixed = std::getenv("KS_SEED");
    const uint64_t seed = fixed ? std::strtoull(fixed, nullptr, 0) : uint64_t(std::time(nullptr));
    std::printf("KS_SEED=%llu\n", static_cast<unsigned long long>(seed));
    random_bits.seed(seed);
    if (count > 1 && std::strcmp(words[1], "--every-float") == 0)
        every_float();
    else
        mixture(count > 1 ? std::strtoull(words[1], nullptr, 0) : 2000000);
    std::printf("%llu printed, %llu read, %.2f %% of them the fast way: all as <charconv>\n",
                static_cast<unsigned long long>(printed), static_cast<unsigned long long>(read),
                100.0 * double(plain) / double(read));
    return plain > read / 2 ? 0 : 1;
}
