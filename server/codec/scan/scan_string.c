/* A JSON string, decoded byte by byte into scan->text: escapes, surrogate pairs, UTF-8 as RFC 3629 has it. */
#include "codec/scan/scan_parts.h"
#include "base/util.h"

/* Bytes that stand for themselves, without anything before or behind them. */
static const bool as_it_is[256] = {[0x20 ... 0x21] = 1, [0x23 ... 0x5B] = 1, [0x5D ... 0x7F] = 1};

void ks_scan_string_begin(ks_scan *scan, bool is_key)
{
    scan->string = (ks_scan_string){.state = KS_STRING_PLAIN, .is_key = is_key};
    scan->text_length = 0;
    scan->state = KS_SCAN_STRING;
}

static ks_status add_code_point(ks_scan *scan, uint32_t c, ks_error *error)
{
    char utf8[4];
    size_t n = 0;
    if (c < 0x80) {
        utf8[n++] = (char)c;
    } else if (c < 0x800) {
        utf8[n++] = (char)(0xC0 | c >> 6);
        utf8[n++] = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        utf8[n++] = (char)(0xE0 | c >> 12);
        utf8[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        utf8[n++] = (char)(0x80 | (c & 0x3F));
    } else {
        utf8[n++] = (char)(0xF0 | c >> 18);
        utf8[n++] = (char)(0x80 | (c >> 12 & 0x3F));
        utf8[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        utf8[n++] = (char)(0x80 | (c & 0x3F));
    }
    return ks_scan_text_add(scan, utf8, n, error);
}

/* The first byte of a sequence fixes how many follow and, against overlong forms, surrogates and values above U+10FFFF,
 * the range of the next one. */
static bool utf8_lead(ks_scan_string *string, unsigned char c)
{
    string->low = 0x80;
    string->high = 0xBF;
    if (c >= 0xC2 && c <= 0xDF) {
        string->due = 1;
    } else if (c >= 0xE0 && c <= 0xEF) {
        string->due = 2;
        if (c == 0xE0) string->low = 0xA0;
        if (c == 0xED) string->high = 0x9F;
    } else if (c >= 0xF0 && c <= 0xF4) {
        string->due = 3;
        if (c == 0xF0) string->low = 0x90;
        if (c == 0xF4) string->high = 0x8F;
    } else {
        return false;
    }
    string->state = KS_STRING_UTF8;
    return true;
}

static ks_status plain(ks_scan *scan, const char *at, ks_error *error)
{
    const unsigned char c = (unsigned char)*at;
    if (c == '\\') {
        scan->string.state = KS_STRING_ESCAPE;
        return KS_OK;
    }
    if (c < 0x20) return ks_scan_bad(scan, "control byte in a string", at, error);
    if (c >= 0x80 && !utf8_lead(&scan->string, c)) return ks_scan_bad(scan, "invalid UTF-8", at, error);
    return ks_scan_text_add(scan, at, 1, error);
}

static ks_status continuation(ks_scan *scan, const char *at, ks_error *error)
{
    ks_scan_string *string = &scan->string;
    const unsigned char c = (unsigned char)*at;
    if (c < string->low || c > string->high) return ks_scan_bad(scan, "invalid UTF-8", at, error);
    string->low = 0x80;
    string->high = 0xBF;
    if (--string->due == 0) string->state = KS_STRING_PLAIN;
    return ks_scan_text_add(scan, at, 1, error);
}

static ks_status escape(ks_scan *scan, const char *at, ks_error *error)
{
    char c;
    scan->string.state = KS_STRING_PLAIN;
    switch (*at) {
    case '"':
    case '\\':
    case '/':
        c = *at;
        break;
    case 'b':
        c = '\b';
        break;
    case 'f':
        c = '\f';
        break;
    case 'n':
        c = '\n';
        break;
    case 'r':
        c = '\r';
        break;
    case 't':
        c = '\t';
        break;
    case 'u':
        scan->string.state = KS_STRING_HEX;
        scan->string.due = 4;
        scan->string.unit = 0;
        return KS_OK;
    default:
        return ks_scan_bad(scan, "unknown escape in a string", at, error);
    }
    return ks_scan_text_add(scan, &c, 1, error);
}

static ks_status hex(ks_scan *scan, const char *at, ks_error *error)
{
    ks_scan_string *string = &scan->string;
    const int digit = ks_hex_digit(*at);
    if (digit < 0) return ks_scan_bad(scan, "\\u without four hexadecimal digits", at, error);
    string->unit = string->unit << 4 | (uint32_t)digit;
    if (--string->due > 0) return KS_OK;
    const bool low = string->unit >= 0xDC00 && string->unit <= 0xDFFF;
    const bool high = string->unit >= 0xD800 && string->unit <= 0xDBFF;
    if (low != (string->surrogate != 0)) return ks_scan_bad(scan, "lone surrogate", at, error);
    if (high) {
        string->surrogate = string->unit;
        string->state = KS_STRING_LOW_BACKSLASH;
        return KS_OK;
    }
    const uint32_t c = low ? 0x10000 + ((string->surrogate - 0xD800) << 10) + (string->unit - 0xDC00) : string->unit;
    string->surrogate = 0;
    string->state = KS_STRING_PLAIN;
    return add_code_point(scan, c, error);
}

ks_status ks_scan_string_step(ks_scan *scan, const char **at, const char *end, bool *over, ks_error *error)
{
    const char *p = *at;
    ks_status status = KS_OK;
    *over = false;
    while (p < end && status == KS_OK && !*over) {
        const char *const run = p;
        while (scan->string.state == KS_STRING_PLAIN && p < end && as_it_is[(unsigned char)*p]) p++;
        if (p > run) {
            status = ks_scan_text_add(scan, run, (size_t)(p - run), error);
            continue;
        }
        switch (scan->string.state) {
        case KS_STRING_PLAIN:
            if (*p == '"')
                *over = true;
            else
                status = plain(scan, p, error);
            break;
        case KS_STRING_UTF8:
            status = continuation(scan, p, error);
            break;
        case KS_STRING_ESCAPE:
            status = escape(scan, p, error);
            break;
        case KS_STRING_HEX:
            status = hex(scan, p, error);
            break;
        case KS_STRING_LOW_BACKSLASH:
            if (*p != '\\') return ks_scan_bad(scan, "lone surrogate", p, error);
            scan->string.state = KS_STRING_LOW_U;
            break;
        case KS_STRING_LOW_U:
            if (*p != 'u') return ks_scan_bad(scan, "lone surrogate", p, error);
            scan->string.state = KS_STRING_HEX;
            scan->string.due = 4;
            scan->string.unit = 0;
            break;
        }
        p++;
    }
    *at = p;
    return status;
}
