/* Heads of requests. An input is what a connection holds of one. Whether it is a head, where it ends, what its fields say and
 * whether the gate lets it through must be what a second reading says, which is written for nothing but to be plain; and a head
 * that is refused amid its bytes is refused when more of them have come. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "http/plain_head.h"

enum { FIELDS_MAX = 512 };

static const ks_check_rules rules = {.max_uri = 2048, .max_header = 16384, .max_fields = 64, .max_body = 1 << 20};

typedef struct text {
    const char *at;
    size_t length;
} text;

typedef struct field {
    text name, value;
} field;

/* The second reading: what RFC 9112 says, without the forms that it lets a server accept. */
typedef struct reading {
    text method, target;
    int minor; /* of HTTP/1 */
    int count;
    field fields[FIELDS_MAX];
} reading;

static bool is_tchar(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_text(char c)
{
    return c == '\t' || ((unsigned char)c >= ' ' && c != 0x7f);
}

/* The first word of a line that ends in a space, which is taken too; false: there is none. */
static bool take_word(text *line, text *word)
{
    const char *space = memchr(line->at, ' ', line->length);
    if (!space || space == line->at) return false;
    *word = (text){line->at, (size_t)(space - line->at)};
    line->at = space + 1;
    line->length -= word->length + 1;
    return true;
}

static bool read_line(text line, reading *r)
{
    for (size_t i = 0; i < line.length; i++)
        if ((unsigned char)line.at[i] < ' ' || line.at[i] == 0x7f) return false;
    if (!take_word(&line, &r->method) || !take_word(&line, &r->target)) return false;
    for (size_t i = 0; i < r->method.length; i++)
        if (!is_tchar(r->method.at[i])) return false;
    if (line.length != 8 || memcmp(line.at, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)line.at[7])) return false;
    r->minor = line.at[7] - '0';
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool read_field(text line, field *f)
{
    const char *colon = memchr(line.at, ':', line.length);
    if (!colon || colon == line.at) return false;
    f->name = (text){line.at, (size_t)(colon - line.at)};
    f->value = (text){colon + 1, line.length - f->name.length - 1};
    for (size_t i = 0; i < f->name.length; i++)
        if (!is_tchar(f->name.at[i])) return false;
    for (size_t i = 0; i < f->value.length; i++)
        if (!is_text(f->value.at[i])) return false;
    while (f->value.length && is_blank(*f->value.at)) f->value = (text){f->value.at + 1, f->value.length - 1};
    while (f->value.length && is_blank(f->value.at[f->value.length - 1])) f->value.length--;
    return true;
}

/* head: with its empty line. */
static bool read_head(const char *head, size_t length, reading *r)
{
    const char *at = head, *const end = head + length - 2;
    memset(r, 0, sizeof *r);
    for (bool first = true; at < end; first = false) {
        const char *stop = memmem(at, (size_t)(end - at) + 2, "\r\n", 2);
        const text line = {at, (size_t)(stop - at)};
        at = stop + 2;
        if (first ? !read_line(line, r) : !read_field(line, &r->fields[r->count])) return false;
        if (!first && ++r->count == FIELDS_MAX) return false;
    }
    return true;
}

static bool is_named(const field *f, const char *name)
{
    return f->name.length == strlen(name) && strncasecmp(f->name.at, name, f->name.length) == 0;
}

/* The only field of that name; NULL: none, or (*many) several. */
static const field *only(const reading *r, const char *name, bool *many)
{
    const field *found = NULL;
    for (int i = 0; i < r->count; i++) {
        if (!is_named(&r->fields[i], name)) continue;
        *many |= found != NULL;
        found = &r->fields[i];
    }
    return found;
}

/* Whether nobody can read its framing otherwise: one length in digits, or chunked alone, and a Host. */
/* A name, or an address in brackets; then, or not, a colon and digits. */
static bool is_host(text value)
{
    size_t at = 0;
    if (value.length > 0 && value.at[0] == '[') {
        for (at = 1; at < value.length && value.at[at] != ']'; at++)
            if (!isalnum((unsigned char)value.at[at]) && !strchr("!$%&'()*+-.;=_~:", value.at[at])) return false;
        if (at++ == value.length) return false;
    } else {
        while (at < value.length && value.at[at] != ':') {
            if (!isalnum((unsigned char)value.at[at]) && !strchr("!$%&'()*+-.;=_~", value.at[at])) return false;
            at++;
        }
    }
    if (at == 0 || at == value.length) return at > 0;
    if (value.at[at] != ':') return false;
    while (++at < value.length)
        if (!isdigit((unsigned char)value.at[at])) return false;
    return true;
}

static bool is_word(const text *value, const char *word)
{
    return value->length == strlen(word) && memcmp(value->at, word, value->length) == 0;
}

static bool is_target(const reading *r)
{
    const bool star = is_word(&r->target, "*") && (is_word(&r->method, "OPTIONS") || is_word(&r->method, "PRI"));
    if (r->target.length >= 7 && strncasecmp(r->target.at, "http://", 7) == 0) return true; /* is looked at later */
    for (size_t i = 0; i < r->target.length; i++)
        if ((unsigned char)r->target.at[i] > 0x7f || r->target.at[i] == '#') return false;
    if (r->target.at[0] == '/' || star || is_word(&r->method, "CONNECT")) return true;
    return memmem(r->target.at, r->target.length, "://", 3) != NULL;
}

static bool is_unambiguous(const reading *r, const field **length, const field **coding)
{
    static const char *const single[] = {"Content-Type", "Content-Encoding", "Authorization", "Expect",
                                         "Inference-Header-Content-Length"};
    bool many = false;
    *length = only(r, "Content-Length", &many);
    *coding = only(r, "Transfer-Encoding", &many);
    const field *host = only(r, "Host", &many);
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++) (void)only(r, single[i], &many);
    if (many || (*length && *coding) || (*coding && r->minor == 0) || (!host && r->minor > 0)) return false;
    for (size_t i = 0; *length && i < (*length)->value.length; i++)
        if (!isdigit((unsigned char)(*length)->value.at[i])) return false;
    if (*length && (*length)->value.length == 0) return false;
    if ((host && !is_host(host->value)) || !is_target(r)) return false;
    return !*coding || ((*coding)->value.length == 7 && strncasecmp((*coding)->value.at, "chunked", 7) == 0);
}

/* What the gate lets through is unambiguous, and the other way round, but for sizes and Expect. */
static void check_gate(ks_head *head, const reading *r)
{
    const field *length, *coding;
    ks_error error;
    const bool clear = is_unambiguous(r, &length, &coding);
    const ks_status status = ks_check_head(&rules, head, &error);
    if (status == KS_URI || status == KS_HEADERS || status == KS_BODY_SIZE || status == KS_EXPECT) return;
    assert(clear == (status == KS_OK));
    if (status != KS_OK) return;
    assert(head->chunked == (coding != NULL) && (head->content_length >= 0) == (length != NULL));
    assert(!length || head->content_length == strtoll(length->value.at, NULL, 10));
}

static bool another(const reading *r, int before, const char *name)
{
    for (int i = before + 1; i < r->count; i++)
        if (is_named(&r->fields[i], name)) return true;
    return false;
}

static void check_known(const ks_head *head, const reading *r)
{
#define X(name, text, single)                                                                                          \
    for (int i = 0; i < r->count; i++)                                                                                 \
        if (is_named(&r->fields[i], text)) {                                                                           \
            const char *value = head->known[KS_KNOWN_##name];                                                          \
            if (KS_KNOWN_##name == KS_KNOWN_FORWARDED_FOR && another(r, i, text)) continue; /* the last one counts */  \
            assert(value && head->known_length[KS_KNOWN_##name] == r->fields[i].value.length);                         \
            assert(memcmp(value, r->fields[i].value.at, r->fields[i].value.length) == 0);                              \
            assert(value[r->fields[i].value.length] == '\0');                                                          \
            break;                                                                                                     \
        }
    KS_KNOWN_TABLE(X)
#undef X
    assert(head->fields == r->count && head->http10 == (r->minor == 0));
    assert(head->target_length == r->target.length && memcmp(head->target, r->target.at, r->target.length) == 0);
}

enum { EACH_BYTE = 128 }; /* from there on beginnings are further apart: each is read from its start */

/* Beginning by beginning: nothing, then the same end for ever; what was refused stays refused, with the same code. */
static size_t length_of(const char *bytes, size_t size, ks_status *refused)
{
    ks_error error;
    size_t found = 0;
    *refused = KS_OK;
    for (size_t n = 0, step = 0; n <= size; n += step) {
        ks_status status;
        step = n < EACH_BYTE || n == size ? 1 : n / 16;
        if (step > size - n && n < size) step = size - n;
        const size_t length = ks_plain_head_length(bytes, n, &status, &error);
        assert(status == KS_OK || (length == 0 && error.status == status && error.text[0]));
        assert(length <= n && (found == 0 || length == found));
        assert(!found || status == KS_OK);
        assert(*refused == KS_OK || length > 0 || status == *refused);
        if (status != KS_OK) *refused = status;
        found = length;
    }
    const char *end = memmem(bytes, size, "\r\n\r\n", 4);
    assert(found == (end ? (size_t)(end + 4 - bytes) : 0));
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static reading second;
    ks_status refused;
    ks_head head;
    ks_error error;
    if (size > 4096) return 0;
    const size_t length = length_of((const char *)data, size, &refused);
    if (length == 0) return 0;
    char *copy = malloc(length);
    assert(copy);
    memcpy(copy, data, length);
    const bool right = read_head((const char *)data, length, &second);
    const ks_status status = ks_plain_head(copy, length, &head, &error);
    assert(status == KS_OK || (error.status == status && ks_status_http(status) >= 400 && ks_status_closes(status)));
    assert(right == (status == KS_OK));
    assert(refused == KS_OK || refused == status);
    if (right) {
        check_known(&head, &second);
        check_gate(&head, &second);
    }
    free(copy);
    return 0;
}
