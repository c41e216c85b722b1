/* Chunked bodies. An input is what follows a head. However it is cut, its data, its end and whether it is refused are those of a
 * second reading, which has all of it at once and follows the grammar of RFC 9112 7.1 rule by rule. */
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "http/chunked.h"
#include "fuzz.h"

enum { INPUT_MAX = 8192, TRAILER_MAX = 1024, FIELDS_MAX = 4 };

typedef struct outcome {
    bool over;
    size_t used, length; /* of the input; of the data */
    unsigned char data[INPUT_MAX];
} outcome;

/* --- the second reading: each function takes what its rule says from *at and tells whether it was there ------------------ */

typedef struct input {
    const char *at, *end;
} input;

static bool is_tchar(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_text(char c)
{
    return c == '\t' || ((unsigned char)c >= ' ' && c != 0x7f);
}

static bool take(input *in, char c)
{
    if (in->at == in->end || *in->at != c) return false;
    in->at++;
    return true;
}

static bool take_end(input *in)
{
    const input begun = *in;
    if (take(in, '\r') && take(in, '\n')) return true;
    *in = begun;
    return false;
}

static void take_blanks(input *in)
{
    while (take(in, ' ') || take(in, '\t')) continue;
}

static bool take_token(input *in)
{
    const char *from = in->at;
    while (in->at < in->end && is_tchar(*in->at)) in->at++;
    return in->at > from;
}

static bool take_quoted(input *in)
{
    if (!take(in, '"')) return false;
    while (in->at < in->end && is_text(*in->at)) {
        if (take(in, '"')) return true;
        if (take(in, '\\') && (in->at == in->end || !is_text(*in->at))) return false;
        in->at++;
    }
    return false;
}

/* Of the form [BWS] ";" ...; where no semicolon follows, nothing is taken. false: malformed. */
static bool take_extension(input *in, bool *any)
{
    const input begun = *in;
    take_blanks(in);
    *any = take(in, ';');
    if (!*any) *in = begun;
    if (!*any) return true;
    take_blanks(in);
    if (!take_token(in)) return false;
    const input named = *in;
    take_blanks(in);
    if (!take(in, '=')) {
        *in = named;
        return true;
    }
    take_blanks(in);
    return take_quoted(in) || take_token(in);
}

static bool take_size(input *in, uint64_t *size)
{
    const char *const from = in->at;
    char digits[32] = "";
    while (in->at < in->end && isxdigit((unsigned char)*in->at)) in->at++;
    const size_t n = (size_t)(in->at - from);
    if (n == 0 || n > KS_CHUNKED_DIGITS) return false;
    memcpy(digits, from, n);
    *size = strtoull(digits, NULL, 16);
    bool any = true;
    while (any)
        if (!take_extension(in, &any)) return false;
    return (uint64_t)(in->at - from) <= KS_CHUNKED_LINE && *size <= INT64_MAX && take_end(in);
}

static bool take_trailer(input *in)
{
    const char *const from = in->at;
    int fields = 0;
    while (!take_end(in)) {
        if (++fields > FIELDS_MAX || !take_token(in) || !take(in, ':')) return false;
        while (in->at < in->end && is_text(*in->at)) in->at++;
        if (!take_end(in)) return false;
    }
    return in->at - from <= TRAILER_MAX;
}

static void read_second(const char *bytes, size_t size, outcome *out)
{
    input in = {bytes, bytes + size};
    uint64_t left = 1;
    memset(out, 0, sizeof *out);
    while (take_size(&in, &left)) {
        if (left == 0) {
            out->over = take_trailer(&in);
            out->used = (size_t)(in.at - bytes);
            return;
        }
        const size_t there = left < (uint64_t)(in.end - in.at) ? (size_t)left : (size_t)(in.end - in.at);
        memcpy(out->data + out->length, in.at, there);
        out->length += there;
        in.at += there;
        if (!take_end(&in)) return;
    }
}

/* --- ours ------------------------------------------------------------------------------------------------------------------ */

static ks_status read_ours(const char *bytes, size_t size, size_t step, outcome *out)
{
    ks_chunked chunks;
    ks_error error;
    ks_status status = KS_OK;
    size_t at = 0;
    memset(out, 0, sizeof *out);
    ks_chunked_init(&chunks, TRAILER_MAX, FIELDS_MAX);
    while (at < size && status == KS_OK && !ks_chunked_over(&chunks)) {
        size_t used = 0, n = step < size - at ? step : size - at;
        char *const piece = malloc(n); /* a copy of its own, so that a sanitizer sees reads beyond its end */
        assert(piece);
        memcpy(piece, bytes + at, n);
        status = ks_chunked_read(&chunks, piece, n, &used, &error);
        assert(used <= n && (status == KS_OK || (error.status == status && error.text[0])));
        uint64_t there = status == KS_OK ? ks_chunked_data(&chunks) : 0;
        if (there > n - used) there = n - used;
        memcpy(out->data + out->length, piece + used, there);
        out->length += there;
        ks_chunked_took(&chunks, there);
        assert(status != KS_OK || used + there > 0);
        at += used + there;
        free(piece);
    }
    out->over = status == KS_OK && ks_chunked_over(&chunks);
    out->used = at;
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static outcome whole, bytes, second;
    if (size > INPUT_MAX) return 0;
    const ks_status status = read_ours((const char *)data, size, size + 1, &whole);
    assert(status == read_ours((const char *)data, size, 1, &bytes));
    read_second((const char *)data, size, &second);
    assert(whole.over == bytes.over && whole.over == second.over);
    assert(whole.length == bytes.length && memcmp(whole.data, bytes.data, whole.length) == 0);
    assert(!whole.over || (whole.used == bytes.used && whole.used == second.used));
    assert(!whole.over || (whole.length == second.length && memcmp(whole.data, second.data, second.length) == 0));
    return 0;
}
