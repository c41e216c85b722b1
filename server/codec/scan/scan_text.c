/* What every part of the scanner needs: its errors, its text (a decoded string, or a token that a chunk's end has cut), and where a
 * value's end leads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "codec/scan/scan_parts.h"

const unsigned char ks_scan_token[256] = {
    ['0' ... '9'] = 1, ['a' ... 'z'] = 1, ['A' ... 'Z'] = 1, ['-'] = 1, ['+'] = 1, ['.'] = 1,
};

ks_status ks_scan_bad(const ks_scan *scan, const char *why, const char *at, ks_error *error)
{
    return ks_fail(error, KS_JSON, "failed to parse the request JSON buffer: %s at %" PRIu64, why,
                   scan->offset + (uint64_t)(at - scan->chunk));
}

bool ks_scan_append(char **buffer, size_t *length, size_t *cap, const char *bytes, size_t n)
{
    if (n > *cap - *length) {
        size_t wanted = *cap ? *cap : 1024;
        while (wanted - *length < n)
            if (__builtin_mul_overflow(wanted, (size_t)2, &wanted)) return false;
        char *const grown = realloc(*buffer, wanted);
        if (!grown) return false;
        *buffer = grown;
        *cap = wanted;
    }
    memcpy(*buffer + *length, bytes, n);
    *length += n;
    return true;
}

ks_status ks_scan_text_add(ks_scan *scan, const char *bytes, size_t n, ks_error *error)
{
    if (n > scan->limits.string_max - scan->text_length)
        return ks_fail(error, KS_JSON_LIMIT, "a %s is longer than %zu bytes",
                       scan->state == KS_SCAN_STRING ? "string" : "number", scan->limits.string_max);
    memcpy(scan->text + scan->text_length, bytes, n);
    scan->text_length += n;
    return KS_OK;
}

void ks_scan_value_over(ks_scan *scan)
{
    scan->state = scan->depth == 0 ? KS_SCAN_OVER : KS_SCAN_COMMA;
}
