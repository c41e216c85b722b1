/* Number text, one thread: ns a number for reading and printing, <charconv> beside it in the same run.
 *
 *   bench_number [WORD...]      only the rows whose name holds one of the words
 *
 * Each row is a list of numbers as clients send them, read and printed in lists as the daemon does it. The best of many
 * passes counts, ours and <charconv>'s in turn, because a shared machine has slow moments. <charconv> is called alone,
 * without the check of JSON's grammar that it would need. plain: the share of numbers that need no second way. */
#include "base/number/number.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

namespace
{
constexpr size_t numbers = 20000; /* about one piece of a body, so that text and elements stay in the cache */
constexpr int passes = 400;

int64_t now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}

template <typename T>
struct row {
    const char *name;
    ks_dtype dtype;
    std::string (*make)(std::mt19937_64 &); /* one number */
};

std::string general(double value, int precision)
{
    char text[64];
    return std::string(text, std::to_chars(text, text + 64, value, std::chars_format::general, precision).ptr);
}

std::string fixed(double value, int places)
{
    char text[64];
    return std::string(text, std::to_chars(text, text + 64, value, std::chars_format::fixed, places).ptr);
}

double even(std::mt19937_64 &random, double from, double to)
{
    return std::uniform_real_distribution<double>(from, to)(random);
}

/* Reads all by <charconv>; the text is known to be good. */
template <typename T>
void read_standard(const std::string &text, std::vector<T> &out)
{
    const char *p = text.data();
    for (T &value : out) p = std::from_chars(p, text.data() + text.size(), value).ptr + 1;
}

/* As the scanner does it: what is not plain goes the other way. Returns how many did. */
template <typename T>
size_t read_ours(const std::string &text, ks_dtype dtype, std::vector<T> &out)
{
    const char *p = text.data(), *const end = p + text.size();
    size_t n = 0, others = 0;
    while (n < out.size()) {
        n += ks_numbers_read(&p, end, dtype, out.size() - n, &out[n]);
        p += n > 0 && n < out.size() && *p == ',';
        if (n == out.size()) break;
        const char *behind = p;
        while (*behind != ',' && *behind != ']') behind++;
        if (ks_number_read(p, size_t(behind - p), dtype, &out[n]) != KS_NUMBER_OK) std::abort();
        p = behind;
        p += *p == ',';
        n++;
        others++;
    }
    return others;
}

template <typename T>
size_t print_standard(const std::vector<T> &values, char *out)
{
    char *p = out;
    for (const T value : values) {
        p = std::to_chars(p, p + 32, value).ptr;
        *p++ = ',';
    }
    return size_t(p - out);
}

template <typename Action>
void keep_best(double &best, Action action)
{
    const int64_t start = now_ns();
    action();
    const double ns = double(now_ns() - start) / numbers;
    if (ns < best) best = ns;
}

template <typename T>
void measure(const row<T> &r)
{
    std::mt19937_64 random(1);
    std::string text;
    for (size_t i = 0; i < numbers; i++) text += r.make(random) + ",";
    text.back() = ']';
    const double length = double(text.size()) / numbers;
    text += std::string(64, ' ');
    std::vector<T> ours(numbers), standard(numbers);
    std::vector<char> out(numbers * KS_NUMBER_TEXT_MAX);
    double read[2] = {1e9, 1e9}, print[2] = {1e9, 1e9};
    size_t others = 0, bytes = 0;
    int ignored = 0;
    for (int pass = 0; pass < passes; pass++) {
        keep_best(read[0], [&] { others = read_ours(text, r.dtype, ours); });
        keep_best(read[1], [&] { read_standard(text, standard); });
        keep_best(print[0], [&] { bytes = ks_numbers_write(ours.data(), numbers, r.dtype, out.data(), &ignored); });
        keep_best(print[1], [&] { print_standard(standard, out.data()); });
    }
    if (std::memcmp(ours.data(), standard.data(), numbers * sizeof(T)) != 0) std::abort();
    std::printf("%-34s %5.1f %6.2f%%  %6.1f %8.1f %6.2f   %5.1f  %6.1f %8.1f %6.2f\n", r.name, length,
                100 - 100 * double(others) / numbers, read[0], read[1], read[0] / read[1], double(bytes) / numbers,
                print[0], print[1], print[0] / print[1]);
}

const row<float> floats[] = {
    {"FP32 [-1,1) 9 digits", KS_FP32, [](auto &r) { return general(double(float(even(r, -1, 1))), 9); }},
    {"FP32 [-1,1) shortest", KS_FP32,
     [](auto &r) {
         char text[32];
         return std::string(text, std::to_chars(text, text + 32, float(even(r, -1, 1))).ptr);
     }},
    {"FP32 [-1,1) 17 digits, as Python", KS_FP32, [](auto &r) { return general(double(float(even(r, -1, 1))), 17); }},
    {"FP32 short decimals", KS_FP32, [](auto &r) { return fixed(even(r, -100, 100), 2); }},
    {"FP32 whole numbers .0", KS_FP32, [](auto &r) { return fixed(std::floor(even(r, -1000, 1000)), 1); }},
    {"FP32 any exponent", KS_FP32, [](auto &r) { return general(std::exp(even(r, -80, 80)), 9); }},
};
const row<double> doubles[] = {
    {"FP64 [-1,1) 17 digits", KS_FP64, [](auto &r) { return general(even(r, -1, 1), 17); }},
    {"FP64 short decimals", KS_FP64, [](auto &r) { return fixed(even(r, -100, 100), 2); }},
    {"FP64 any exponent", KS_FP64, [](auto &r) { return general(std::exp(even(r, -700, 700)), 17); }},
};
const row<int32_t> integers[] = {
    {"INT32 of 1 to 3 digits", KS_INT32, [](auto &r) { return fixed(even(r, -1000, 1000), 0); }},
    {"INT32 any", KS_INT32, [](auto &r) { return fixed(even(r, -2147483647, 2147483647), 0); }},
};
const row<int64_t> longs[] = {
    {"INT64 any", KS_INT64, [](auto &r) { return std::to_string(int64_t(r())); }},
};

bool wanted(const char *name, int count, char **words)
{
    for (int i = 1; i < count; i++)
        if (std::strstr(name, words[i])) return true;
    return count < 2;
}
} // namespace

int main(int count, char **words)
{
    std::printf("%-34s %5s %7s  %6s %8s %6s   %5s  %6s %8s %6s\n", "ns a number", "bytes", "plain", "read", "charconv",
                "ratio", "bytes", "print", "charconv", "ratio");
    const auto all = [&](const auto &rows) {
        for (const auto &r : rows)
            if (wanted(r.name, count, words)) measure(r);
    };
    all(floats);
    all(doubles);
    all(integers);
    all(longs);
    return 0;
}
