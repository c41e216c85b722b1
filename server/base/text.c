#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void ks_text_init(ks_text *text, size_t limit)
{
    *text = (ks_text){.limit = limit};
}

void ks_text_fini(ks_text *text)
{
    free(text->bytes);
    *text = (ks_text){.limit = text->limit};
}

char *ks_text_room(ks_text *text, size_t n)
{
    if (text->broken) return NULL;
    size_t needed;
    if (__builtin_add_overflow(text->length, n, &needed) || needed > text->limit) {
        text->broken = true;
        return NULL;
    }
    /* One byte at least, so that a NULL always means broken. */
    if (text->bytes && needed <= text->cap) return text->bytes + text->length;
    size_t cap = text->cap < text->limit / 2 ? text->cap * 2 : text->limit;
    if (cap < needed) cap = needed;
    if (cap < 256) cap = 256;
    char *bytes = realloc(text->bytes, cap);
    if (!bytes) {
        text->broken = true;
        return NULL;
    }
    text->bytes = bytes;
    text->cap = cap;
    return text->bytes + text->length;
}

void ks_text_add(ks_text *text, const char *bytes, size_t n)
{
    char *room = ks_text_room(text, n);
    if (!room || n == 0) return;
    memcpy(room, bytes, n);
    text->length += n;
}

void ks_text_printf(ks_text *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int n = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (n < 0) text->broken = true;
    /* vsnprintf ends with a zero byte that is not part of the text: room for it, but no length. */
    char *room = n < 0 ? NULL : ks_text_room(text, (size_t)n + 1);
    if (room) {
        vsnprintf(room, (size_t)n + 1, format, again);
        text->length += (size_t)n;
    }
    va_end(again);
}

size_t ks_utf8_length(const char *text, size_t left)
{
    const unsigned char *s = (const unsigned char *)text;
    if (left == 0) return 0;
    if (s[0] < 0x80) return 1;
    const size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return n;
}

void ks_text_json(ks_text *text, const char *bytes, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    ks_text_add(text, "\"", 1);
    size_t from = 0; /* bytes[from..i) need no escape and are added in one go */
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
        ks_text_add(text, bytes + from, i - from);
        from = i + 1;
        const char *names = "\"\\\b\f\n\r\t", *marks = "\"\\bfnrt";
        const char *known = c ? strchr(names, c) : NULL;
        const char escape[6] = {'\\', known ? marks[known - names] : 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        ks_text_add(text, escape, known ? 2 : 6);
    }
    ks_text_add(text, bytes + from, n - from);
    ks_text_add(text, "\"", 1);
}

void ks_text_give_back(const char *memory, size_t used, size_t *given)
{
    enum { AT_LEAST = 1 << 20, PAGE = 4096 };
    if (used - *given < AT_LEAST) return;
    const uintptr_t from = ((uintptr_t)memory + *given + PAGE - 1) / PAGE * PAGE;
    const uintptr_t to = ((uintptr_t)memory + used) / PAGE * PAGE;
    madvise((void *)from, to - from, MADV_DONTNEED);
    *given = used;
}

char *ks_text_take(ks_text *text, size_t *length)
{
    char *bytes = ks_text_room(text, 1); /* an empty text is still a buffer */
    if (!bytes) {
        ks_text_fini(text);
        text->broken = true;
        *length = 0;
        return NULL;
    }
    bytes = text->bytes;
    *length = text->length;
    *text = (ks_text){.limit = text->limit};
    return bytes;
}

ks_quote ks_quoted(const char *bytes, size_t n)
{
    ks_quote quote;
    if (n > KS_QUOTE_MAX) n = KS_QUOTE_MAX;
    for (size_t i = 0; i < n; i++) quote.text[i] = bytes[i] >= 0x20 && bytes[i] < 0x7F ? bytes[i] : '?';
    quote.text[n] = 0;
    return quote;
}

int ks_name_distance(const char *a, size_t a_length, const char *b)
{
    const size_t b_length = strlen(b);
    if (a_length >= KS_NAME_FAR || b_length >= KS_NAME_FAR) return KS_NAME_FAR;
    int rows[3][KS_NAME_FAR]; /* of the last three letters of a */
    for (size_t j = 0; j <= b_length; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int *const row = rows[i % 3], *const above = rows[(i + 2) % 3], *const before = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int least = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < least) least = above[j] + 1;
            if (row[j - 1] + 1 < least) least = row[j - 1] + 1;
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < least) least = before[j - 2] + 1;
            row[j] = least;
        }
    }
    return rows[a_length % 3][b_length];
}

bool ks_name_is_near(size_t length, int distance)
{
    return distance <= (length < 3 ? 1 : (int)(length / 3));
}
