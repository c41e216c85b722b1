/* Number text, exact both ways: read.c and write.c for what is usual, libstdc++'s <charconv> (number.cc)
 * for the rest, with which both agree byte for byte. No locale, no allocation. Any thread. */
#ifndef KS_NUMBER_H
#define KS_NUMBER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernserve/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KS_NUMBER_TEXT_MAX = 40 }; /* room for one element of any datatype with a comma: text is stored in whole words */

typedef enum ks_number_result {
    KS_NUMBER_OK,
    KS_NUMBER_SYNTAX, /* not a JSON number */
    KS_NUMBER_RANGE,  /* outside the datatype: 3e9 as INT32, -1 as UINT8, 1.5 as INT64, 1e39 as FP32, 449 as FP8E4M3 */
    KS_NUMBER_KIND    /* FP16, BF16, BYTES: not readable from JSON */
} ks_number_result;

/* Reads one token [text, text+length), which must be a whole JSON number (RFC 8259), true/false for BOOL (0 and 1 as
 * well), or NaN, Infinity, -Infinity, Inf, -Inf for FP8, FP32 and FP64 (FP8E4M3 has no infinity), and writes the element (unaligned) to out. */
ks_number_result ks_number_read(const char *text, size_t length, ks_dtype dtype, void *out);

/* Reads a whole number of 1 to 18 digits without sign or leading zero, as most dimensions and parameters are. False: it is
 * none, or not a number; *value is as it was. */
bool ks_digits_read(const char *text, size_t length, int64_t *value);

/* Reads elements of a list, from *text on: plain numbers with a comma and spaces between them, `most` of them
 * at most, to out (unaligned). Leaves *text behind the last one read and returns how many; what stands there (a bracket,
 * a word, a fault, a number that is not plain, or less than 64 bytes before end) is left: ks_number_read reads or
 * refuses it. */
size_t ks_numbers_read(const char **text, const char *end, ks_dtype dtype, size_t most, void *out);

/* Appends the shortest text that reads back exactly ("2.0", "1e-05", NaN, Infinity; of FP8 that of the same FP32) to out, at least KS_NUMBER_TEXT_MAX
 * bytes of room; element may be unaligned. Returns the bytes written. */
size_t ks_number_write(const void *element, ks_dtype dtype, char *out);

/* Prints n elements separated by commas; cap >= n * KS_NUMBER_TEXT_MAX. Sets *non_finite if one was NaN or infinite. */
size_t ks_numbers_write(const void *elements, size_t n, ks_dtype dtype, char *out, int *non_finite);

/* A double in shortest round-trip form, for metrics and parameters. Returns the bytes written (< KS_NUMBER_TEXT_MAX).
 */
size_t ks_double_write(double value, char *out);

#ifdef __cplusplus
}
#endif
#endif
