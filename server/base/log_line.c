#include "base/log_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

typedef struct text_line {
    char *bytes;
    size_t length, cap; /* cap leaves room for the end of the line */
    bool full;
    bool json;
} text_line;

static void put(text_line *line, const char *bytes, size_t n)
{
    if (line->full || n > line->cap - line->length) {
        line->full = true;
        return;
    }
    memcpy(line->bytes + line->length, bytes, n);
    line->length += n;
}

static void puts_(text_line *line, const char *string)
{
    put(line, string, strlen(string));
}

/* Bytes of the UTF-8 sequence at s that may be printed as it stands; 0: none (a control character, or not UTF-8). The
 * zero behind a string is no part of a sequence. */
static size_t printable(const unsigned char *s)
{
    const size_t n = ks_utf8_length((const char *)s, 4);
    if (n == 1) return s[0] >= 0x20 && s[0] != 0x7f;
    return s[0] == 0xc2 && s[1] < 0xa0 ? 0 : n; /* the C1 controls act on some terminals */
}

static void put_quoted(text_line *line, const char *text)
{
    puts_(line, "\"");
    for (const unsigned char *s = (const unsigned char *)text; *s && !line->full;) {
        const size_t n = printable(s);
        char escape[8] = {'\\', (char)*s, 0};
        if (n && *s != '"' && *s != '\\') {
            put(line, (const char *)s, n);
            s += n;
            continue;
        }
        if (!n) {
            const char *names = "\n\r\t", *marks = "nrt";
            const char *known = strchr(names, *s);
            if (known)
                escape[1] = marks[known - names];
            else if (line->json)
                snprintf(escape, sizeof escape, "\\u%04x", *s < 0x80 ? *s : 0xfffd);
            else
                snprintf(escape, sizeof escape, "\\x%02x", *s);
        }
        puts_(line, escape);
        s++;
    }
    puts_(line, "\"");
}

/* logfmt leaves the quotes away where nothing needs them. */
static bool is_plain(const char *text)
{
    if (!*text) return false;
    for (const unsigned char *s = (const unsigned char *)text; *s; s++)
        if (*s <= 0x20 || *s >= 0x7f || *s == '"' || *s == '=' || *s == '\\') return false;
    return true;
}

static void put_number(text_line *line, double value)
{
    char digits[40];
    snprintf(digits, sizeof digits, "%.9g", value);
    if (line->json && !isfinite(value))
        puts_(line, "null");
    else
        puts_(line, digits);
}

static void put_field(text_line *line, const ks_field *field)
{
    const size_t before = line->length;
    puts_(line, line->json ? ",\"" : " ");
    puts_(line, field->name);
    puts_(line, line->json ? "\":" : "=");
    if (field->kind == KS_FIELD_INT) {
        char digits[24];
        snprintf(digits, sizeof digits, "%" PRId64, field->integer);
        puts_(line, digits);
    } else if (field->kind == KS_FIELD_NUMBER) {
        put_number(line, field->number);
    } else {
        const char *text = field->text ? field->text : "";
        if (!line->json && is_plain(text))
            puts_(line, text);
        else
            put_quoted(line, text);
    }
    if (line->full) line->length = before;
}

static void put_time(text_line *line, int64_t wall_ns)
{
    const time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm parts;
    char text[48];
    gmtime_r(&seconds, &parts);
    const size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + n, sizeof text - n, ".%06dZ", (int)(wall_ns % 1000000000 / 1000));
    puts_(line, text);
}

const char *ks_level_name(ks_level level)
{
#define X(constant, word) word,
    static const char *const names[KS_LEVELS] = {KS_LEVEL_TABLE(X)};
#undef X
    return names[level];
}

size_t ks_line_write(char out[KS_LINE_MAX], ks_line_style style, const ks_line *says)
{
    static const char *const prefixes[KS_LEVELS] = {"<3>", "<4>", "<6>", "<7>"};
    static const char json_cut[] = ",\"cut\":true", text_cut[] = " cut=true";
    text_line line = {.bytes = out, .json = style.format == KS_LOG_JSON, .cap = KS_LINE_MAX - sizeof json_cut - 2};
    if (style.journal) puts_(&line, prefixes[says->level]);
    puts_(&line, line.json ? "{\"ts\":\"" : "ts=");
    put_time(&line, says->wall_ns);
    puts_(&line, line.json ? "\",\"level\":\"" : " level=");
    puts_(&line, ks_level_name(says->level));
    puts_(&line, line.json ? "\"" : "");
    bool cut = false;
    put_field(&line, &KS_TEXT("msg", says->msg));
    if (style.of_worker) put_field(&line, &KS_INT("worker", style.worker));
    for (int i = 0; i < says->count; i++) {
        cut = cut || line.full;
        line.full = false;
        put_field(&line, &says->fields[i]);
    }
    cut = cut || line.full;
    line.full = false;
    line.cap = KS_LINE_MAX;
    if (cut) puts_(&line, line.json ? json_cut : text_cut);
    puts_(&line, line.json ? "}\n" : "\n");
    return line.length;
}
