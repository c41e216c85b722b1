/* Small functions that several layers need. Pure; any thread. */
#ifndef KS_UTIL_H
#define KS_UTIL_H
#include <stddef.h>
#include <stdint.h>

/* 0 to 15; -1: no hexadecimal digit. */
static inline int ks_hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of the escape "%41" whose digits stand at p; -1: fewer than two hexadecimal digits before end. */
static inline int ks_percent_byte(const char *p, const char *end)
{
    if (end - p < 2 || ks_hex_digit(p[0]) < 0 || ks_hex_digit(p[1]) < 0) return -1;
    return ks_hex_digit(p[0]) << 4 | ks_hex_digit(p[1]);
}

static inline int64_t ks_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline size_t ks_least_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Writes value in decimal digits, the last one in front of end. Returns where they begin. */
static inline char *ks_digits(char *end, uint64_t value)
{
    do {
        *--end = (char)('0' + value % 10);
    } while (value /= 10);
    return end;
}
#endif
