/* Whole connections through HTTP, with the CPU backend behind it. An input is what a client sends on one connection. What comes
 * back must be answers, whole and one after the other, refusals among them in JSON and UTF-8; the same ones however the input is
 * cut; and the first one that of libmicrohttpd, unless it refuses and ends the connection. No request stays in
 * flight behind its connection. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "http_bed.h"

enum { INPUT_MAX = 65536, OUTPUT_MAX = 1 << 20, LINES_MAX = 64, PIECES = 48 };

/* One answer. head: without its empty line. */
typedef struct response {
    const char *head, *body;
    size_t head_length, body_length;
    int status;
} response;

typedef struct talk {
    char bytes[OUTPUT_MAX];
    size_t length;
} talk;

static void wrong(const char *what, const talk *t)
{
    fprintf(stderr, "%.*s\nfuzz_http: %s, of %zu bytes\n", (int)(t->length < 2000 ? t->length : 2000), t->bytes, what,
            t->length);
    abort();
}

/* A field's value, or NULL; name: in small letters, with its colon. */
static const char *field(const response *a, const char *name, size_t *length)
{
    const char *end = a->head + a->head_length;
    for (const char *line = a->head; line < end;) {
        const char *stop = memmem(line, (size_t)(end - line), "\r\n", 2);
        if (!stop) stop = end;
        if ((size_t)(stop - line) >= strlen(name) && strncasecmp(line, name, strlen(name)) == 0) {
            const char *value = line + strlen(name);
            while (value < stop && *value == ' ') value++;
            *length = (size_t)(stop - value);
            return value;
        }
        line = stop + 2;
    }
    return NULL;
}

static bool field_is(const response *a, const char *name, const char *wanted)
{
    size_t length = 0;
    const char *value = field(a, name, &length);
    return value && length == strlen(wanted) && strncasecmp(value, wanted, length) == 0;
}

static bool is_utf8(const unsigned char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int more = s[i] < 0x80 ? 0 : s[i] >= 0xc2 && s[i] < 0xe0 ? 1 : s[i] >= 0xe0 && s[i] < 0xf0 ? 2 : 3;
        if (s[i] >= 0xf5 || (s[i] >= 0x80 && s[i] < 0xc2) || n - i <= (size_t)more) return false;
        for (int k = 1; k <= more; k++)
            if ((s[i + (size_t)k] & 0xc0) != 0x80) return false;
        i += (size_t)more;
    }
    return true;
}

/* The next answer at *at; false: there is none. body: whether one of its length follows (not behind HEAD). */
static bool next_response(const talk *t, size_t *at, bool body, response *a)
{
    const size_t left = t->length - *at;
    if (left == 0) return false;
    a->head = t->bytes + *at;
    const char *end = memmem(a->head, left, "\r\n\r\n", 4);
    size_t digits = 0;
    if (!end || left < 12 || memcmp(a->head, "HTTP/1.1 ", 9) != 0) wrong("no head of an answer", t);
    a->head_length = (size_t)(end - a->head);
    a->status = atoi(a->head + 9);
    a->body = end + 4;
    a->body_length = 0;
    const char *length = field(a, "content-length:", &digits);
    if (!length && a->status >= 200 && a->status != 204) wrong("an answer without a length", t);
    if (length && body) a->body_length = strtoul(length, NULL, 10);
    if (a->body_length > left - (size_t)(a->body - a->head)) wrong("an answer's body is cut", t);
    *at = (size_t)(a->body + a->body_length - t->bytes);
    return true;
}

/* An answer to HEAD tells a length and has no body: what follows is the next answer, or the end. */
static bool body_follows(const talk *t, size_t at)
{
    response a;
    size_t behind = at;
    const char *end = memmem(t->bytes + at, t->length - at, "\r\n\r\n", 4);
    if (!end) return true;
    if (end + 4 == t->bytes + t->length || memcmp(end + 4, "HTTP/1.1 ", 9) == 0) {
        (void)next_response(t, &behind, false, &a);
        return field_is(&a, "content-length:", "0");
    }
    return true;
}

static void check_refusal(const response *a, const talk *t)
{
    size_t length = 0;
    if (a->status < 400 || a->body_length == 0) return;
    if (!field_is(a, "content-type:", "application/json")) wrong("a refusal that is not JSON", t);
    if (!field(a, "kernserve-error:", &length) && a->status != 503) wrong("a refusal without a code", t);
    if (!is_utf8((const unsigned char *)a->body, a->body_length)) wrong("a refusal that is not UTF-8", t);
}

/* Refused before its body was read to the end, whose framing the library may see otherwise. */
static bool ends_early(const response *a)
{
    return a->status >= 400 && field_is(a, "connection:", "close");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool begins(const char *line, const char *name)
{
    return strncasecmp(line, name, strlen(name)) == 0;
}

/* What must be alike of an answer: the head's lines in order of the alphabet, but for those of each answer's own; a body's
 * numbers where they tell of the process. Appends to out. */
static size_t put_alike(const response *a, char *out)
{
    static char head[65536];
    char *lines[LINES_MAX], *rest = head, *at = out;
    int count = 0;
    const bool tells = a->status == 504 || (a->body_length > 14 && memcmp(a->body, "{\"model_stats\"", 14) == 0) ||
                       field_is(a, "content-type:", "text/plain; version=0.0.4; charset=utf-8") ||
                       memmem(a->body, a->body_length, "\"measured\":", 11) != NULL ||
                       memmem(a->body, a->body_length, "# EOF", 5) != NULL;
    if (a->status == 100) return 0; /* one for a request whose body is there already is a matter of time */
    memcpy(head, a->head, a->head_length);
    head[a->head_length] = '\0';
    for (char *line; count < LINES_MAX && (line = strsep(&rest, "\n")) != NULL;)
        if (!begins(line, "date:") && !begins(line, "server-timing:") && !begins(line, "x-request-id:") &&
            !begins(line, "connection:") && !(tells && begins(line, "content-length:")))
            lines[count++] = line;
    qsort(lines, (size_t)count, sizeof *lines, by_text);
    for (int i = 0; i < count; i++) at += sprintf(at, "%.*s\n", (int)strcspn(lines[i], "\r"), lines[i]);
    if (!tells) {
        memcpy(at, a->body, a->body_length);
        at += a->body_length;
    }
    return (size_t)(at - out);
}

/* All answers of a talk; *first: how much of it is the first one's, 0 where that refuses and ends the connection. */
static size_t alike(const talk *t, char *out, size_t *first)
{
    response a;
    size_t length = 0;
    *first = 0;
    for (size_t at = 0; next_response(t, &at, body_follows(t, at), &a);) {
        const size_t before = length;
        check_refusal(&a, t);
        length += put_alike(&a, out + length);
        if (before == 0 && !ends_early(&a)) *first = length;
    }
    return length;
}

static void differ(const char *what, const char *mine, size_t n, const char *other, size_t m)
{
    fprintf(stderr, "fuzz_http: %s\n--- plain, whole\n", what);
    fwrite(mine, 1, n, stderr);
    fputs("\n--- the other\n", stderr);
    fwrite(other, 1, m, stderr);
    abort();
}

/* By this program: more than it keeps, as several answers to GET /metrics are. */
static bool is_cut(const talk *t)
{
    return t->length == OUTPUT_MAX;
}

/* In whatever letters. */
static bool says_expect(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 6 <= size; i++)
        if (strncasecmp((const char *)data + i, "expect", 6) == 0) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static http_bed *plain, *library;
    static talk whole, other;
    static char mine[2 * OUTPUT_MAX], others[2 * OUTPUT_MAX];
    size_t first = 0, ignored = 0;
    if (size > INPUT_MAX) return 0;
    if (!plain) {
        plain = http_bed_open(true);
        library = http_bed_open(false);
    }
    whole.length = http_bed_exchange(plain, data, size, size + 1, whole.bytes, OUTPUT_MAX);
    if (is_cut(&whole)) return 0;
    const size_t n = alike(&whole, mine, &first);
    other.length = http_bed_exchange(plain, data, size, size / PIECES + 1, other.bytes, OUTPUT_MAX);
    if (is_cut(&other)) return 0;
    size_t m = alike(&other, others, &ignored);
    const bool expects = says_expect(data, size);
    /* Whether a body that waits for leave has come when its head is refused says whether the connection can go on. */
    const bool ended = expects && m > 0 && m < n;
    if ((n != m && !ended) || memcmp(mine, others, m) != 0)
        differ("cut otherwise, answered otherwise", mine, n, others, m);
    /* libmicrohttpd 0.9.75 sends 100 where no body follows, too, and then drops the answer if bytes lie behind the head. */
    if (first == 0 || expects) return 0;
    other.length = http_bed_exchange(library, data, size, size + 1, other.bytes, OUTPUT_MAX);
    if (is_cut(&other)) return 0;
    m = alike(&other, others, &ignored);
    if (m != first || memcmp(mine, others, first) != 0) differ("the library answers otherwise", mine, first, others, m);
    return 0;
}
