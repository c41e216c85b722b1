#include "http/chunked.h"

#include <string.h>

#include "base/head.h"
#include "base/util.h"

void ks_chunked_init(ks_chunked *chunks, size_t trailer_max, int fields_max)
{
    memset(chunks, 0, sizeof *chunks);
    chunks->trailer_max = trailer_max;
    chunks->fields_max = fields_max;
}

void ks_chunked_took(ks_chunked *chunks, size_t n)
{
    chunks->left -= n;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* What may stand in a quoted value, and in a field's value. */
static bool is_text(char c)
{
    return ((unsigned char)c >= ' ' && c != 0x7f) || c == '\t';
}

/* One byte of the size. false: it does not belong there. */
static bool read_size(ks_chunked *chunks, char c)
{
    const int digit = ks_hex_digit(c);
    if (digit >= 0) {
        chunks->left = chunks->left << 4 | (uint64_t)digit;
        return ++chunks->digits <= KS_CHUNKED_DIGITS && chunks->left <= INT64_MAX;
    }
    if (chunks->digits == 0) return false;
    if (c == ';')
        chunks->state = KS_CHUNKED_NAME_FIRST;
    else if (c == '\r')
        chunks->state = KS_CHUNKED_LF;
    else if (is_space(c))
        chunks->state = KS_CHUNKED_SPACE;
    else
        return false;
    return true;
}

/* Behind a name or a value that is complete: the line's end, another extension, or, behind a name, its value. */
static bool end_word(ks_chunked *chunks, char c, bool name)
{
    if (c == '\r')
        chunks->state = KS_CHUNKED_LF;
    else if (c == ';')
        chunks->state = KS_CHUNKED_NAME_FIRST;
    else if (c == '=' && name)
        chunks->state = KS_CHUNKED_VALUE_FIRST;
    else if (is_space(c))
        chunks->state = name ? KS_CHUNKED_BEHIND : KS_CHUNKED_SPACE;
    else
        return false;
    return true;
}

/* One byte of the extensions: *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted ) ] ). */
static bool read_extension(ks_chunked *chunks, char c)
{
    switch (chunks->state) {
    case KS_CHUNKED_SPACE:
        if (c == ';') chunks->state = KS_CHUNKED_NAME_FIRST;
        return c == ';' || is_space(c);
    case KS_CHUNKED_BEHIND:
        if (c == ';' || c == '=') chunks->state = c == ';' ? KS_CHUNKED_NAME_FIRST : KS_CHUNKED_VALUE_FIRST;
        return c == ';' || c == '=' || is_space(c);
    case KS_CHUNKED_NAME_FIRST:
        if (is_space(c)) return true;
        chunks->state = KS_CHUNKED_NAME;
        return ks_is_token(&c, 1);
    case KS_CHUNKED_NAME:
        return ks_is_token(&c, 1) || end_word(chunks, c, true);
    case KS_CHUNKED_VALUE_FIRST:
        if (is_space(c)) return true;
        chunks->state = c == '"' ? KS_CHUNKED_QUOTED : KS_CHUNKED_VALUE;
        return c == '"' || ks_is_token(&c, 1);
    case KS_CHUNKED_VALUE:
        return ks_is_token(&c, 1) || end_word(chunks, c, false);
    case KS_CHUNKED_QUOTED:
        if (c == '"' || c == '\\') chunks->state = c == '"' ? KS_CHUNKED_CLOSED : KS_CHUNKED_ESCAPED;
        return is_text(c);
    case KS_CHUNKED_ESCAPED:
        chunks->state = KS_CHUNKED_QUOTED;
        return is_text(c);
    default:
        return end_word(chunks, c, false);
    }
}

/* The line with the size is complete. */
static bool end_size(ks_chunked *chunks, char c)
{
    chunks->state = chunks->left > 0 ? KS_CHUNKED_DATA : KS_CHUNKED_FIELD;
    chunks->count += chunks->left > 0;
    return c == '\n';
}

static bool end_data(ks_chunked *chunks, char c)
{
    const bool cr = chunks->state == KS_CHUNKED_DATA;
    chunks->state = cr ? KS_CHUNKED_DATA_LF : KS_CHUNKED_SIZE;
    chunks->line = 0;
    chunks->digits = 0;
    return c == (cr ? '\r' : '\n');
}

/* One byte of the trailer. */
static bool read_trailer(ks_chunked *chunks, char c)
{
    switch (chunks->state) {
    case KS_CHUNKED_FIELD:
        chunks->state = c == '\r' ? KS_CHUNKED_LAST_LF : KS_CHUNKED_FIELD_NAME;
        chunks->fields += c != '\r';
        return c == '\r' || ks_is_token(&c, 1);
    case KS_CHUNKED_FIELD_NAME:
        if (c == ':') chunks->state = KS_CHUNKED_FIELD_VALUE;
        return c == ':' || ks_is_token(&c, 1);
    case KS_CHUNKED_FIELD_VALUE:
        if (c == '\r') chunks->state = KS_CHUNKED_FIELD_LF;
        return c == '\r' || is_text(c);
    default:
        chunks->state = chunks->state == KS_CHUNKED_LAST_LF ? KS_CHUNKED_OVER : KS_CHUNKED_FIELD;
        return c == '\n';
    }
}

static ks_status read_byte(ks_chunked *chunks, char c, ks_error *error)
{
    if (chunks->state >= KS_CHUNKED_FIELD) {
        if (!read_trailer(chunks, c)) return ks_fail(error, KS_HEADER, "the trailer of the chunked body is malformed");
        if (++chunks->trailer <= chunks->trailer_max && chunks->fields <= chunks->fields_max) return KS_OK;
        return ks_fail(error, KS_HEADERS, "the trailer of the chunked body has more than %d fields or %zu bytes",
                       chunks->fields_max, chunks->trailer_max);
    }
    const bool data = chunks->state == KS_CHUNKED_DATA || chunks->state == KS_CHUNKED_DATA_LF;
    if (data && !end_data(chunks, c)) return ks_fail(error, KS_CHUNKS, "a chunk does not end where its size says");
    if (data) return KS_OK;
    if (c != '\r' && c != '\n' && ++chunks->line > KS_CHUNKED_LINE)
        return ks_fail(error, KS_CHUNKS, "the line with a chunk's size is longer than %d bytes", KS_CHUNKED_LINE);
    const bool good = chunks->state == KS_CHUNKED_SIZE ? read_size(chunks, c)
                      : chunks->state == KS_CHUNKED_LF ? end_size(chunks, c)
                                                       : read_extension(chunks, c);
    return good ? KS_OK : ks_fail(error, KS_CHUNKS, "the line with a chunk's size is malformed");
}

ks_status ks_chunked_read(ks_chunked *chunks, const char *bytes, size_t n, size_t *used, ks_error *error)
{
    ks_status status = KS_OK;
    size_t i = 0;
    while (i < n && status == KS_OK && !ks_chunked_over(chunks) &&
           !(chunks->state == KS_CHUNKED_DATA && chunks->left > 0))
        status = read_byte(chunks, bytes[i++], error);
    *used = i;
    return status;
}
