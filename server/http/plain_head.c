#include "http/plain_head.h"

#include <string.h>
#include <strings.h>

static const char version[] = "HTTP/1.1";
enum { VERSION = sizeof version - 1 };

static ks_status bad_request_line(ks_error *error)
{
    return ks_fail(error, KS_REQUEST_LINE, "the request line is not METHOD TARGET HTTP/1.1");
}

static ks_status bad_byte(bool in_field, ks_error *error)
{
    if (in_field)
        return ks_fail(error, KS_HEADER, "a header field holds a control byte, or a line that does not end in CR LF");
    return ks_fail(error, KS_REQUEST_LINE, "the request line holds a control byte, or does not end in CR LF");
}

/* "HTTP/" DIGIT "." DIGIT. Any later HTTP/1 is read as 1.1. */
static ks_status check_version(const char *text, ks_error *error)
{
    if (memcmp(text, version, VERSION - 3) != 0 || text[VERSION - 3] < '0' || text[VERSION - 3] > '9' ||
        text[VERSION - 2] != '.' || text[VERSION - 1] < '0' || text[VERSION - 1] > '9')
        return bad_request_line(error);
    if (text[VERSION - 3] != '1') return ks_fail(error, KS_HTTP_VERSION, "HTTP/1.1 and HTTP/1.0 are spoken here");
    return KS_OK;
}

/* METHOD SP TARGET SP VERSION, up to end, where its CR stands. *space: the one behind the method; the version, which is not
 * looked at, is the last VERSION bytes. */
static ks_status check_words(const char *bytes, const char *end, const char **space, ks_error *error)
{
    const char *const first = memchr(bytes, ' ', (size_t)(end - bytes));
    if (first == NULL || end - first < VERSION + 3) return bad_request_line(error);
    const char *const last = end - VERSION - 1;
    if (*last != ' ' || !ks_is_token(bytes, (size_t)(first - bytes))) return bad_request_line(error);
    for (const char *at = first + 1; at < last; at++)
        if (*at == ' ' || *at == '\t') return bad_request_line(error);
    *space = first;
    return KS_OK;
}

static ks_status check_field(const char *line, const char *end, const char **colon, ks_error *error)
{
    if (*line == ' ' || *line == '\t') return ks_fail(error, KS_HEADER, "a header field is folded over two lines");
    *colon = memchr(line, ':', (size_t)(end - line));
    if (*colon == NULL) return ks_fail(error, KS_HEADER, "a header field has no colon");
    if (!ks_is_token(line, (size_t)(*colon - line)))
        return ks_fail(error, KS_HEADER, "a header field's name holds a byte that is not allowed there");
    return KS_OK;
}

/* What is wrong with a head whose end has not come yet: one line after the other, as with a whole one, so that a head with two
 * faults has the same one however it is cut. Of the line that is not complete, only its bytes are checked. */
static ks_status check_part(const char *bytes, const char *end, ks_error *error)
{
    ks_status status = KS_OK;
    const char *line = NULL, *word;
    for (const char *at = bytes; status == KS_OK && at < end; at = line + 2) {
        line = ks_head_text_end(at, end);
        if (line == end || (*line == '\r' && line + 1 == end)) return KS_OK;
        if (line[0] != '\r' || line[1] != '\n') return bad_byte(at != bytes, error);
        status = at == bytes ? check_words(at, line, &word, error) : check_field(at, line, &word, error);
        if (status == KS_OK && at == bytes) status = check_version(line - VERSION, error);
    }
    return status;
}

size_t ks_plain_head_length(const char *bytes, size_t n, ks_status *status, ks_error *error)
{
    const char *const end = bytes + n;
    *status = KS_OK;
    for (const char *at = bytes; (at = memchr(at, '\r', (size_t)(end - at))) != NULL; at++)
        if (end - at >= 4 && memcmp(at, "\r\n\r\n", 4) == 0) return (size_t)(at + 4 - bytes);
    *status = check_part(bytes, end, error);
    return 0;
}

size_t ks_plain_method(const char *bytes, size_t n)
{
    const char *const line = ks_head_text_end(bytes, bytes + n), *space = NULL;
    ks_error error;
    if (bytes + n - line < 2 || line[0] != '\r' || line[1] != '\n') return 0;
    return check_words(bytes, line, &space, &error) == KS_OK ? (size_t)(space - bytes) : 0;
}

static ks_status read_request_line(ks_head *head, char *bytes, char *end, ks_error *error)
{
    const char *space;
    const ks_status status = check_words(bytes, end, &space, error);
    if (status != KS_OK) return status;
    char *const target = bytes + (space - bytes), *const behind = end - VERSION - 1;
    *target = *behind = '\0';
    ks_head_init(head, target + 1, (size_t)(behind - target - 1), version);
    head->method = bytes;
    head->http10 = behind[VERSION] == '0';
    return check_version(behind + 1, error);
}

static ks_status read_field(ks_head *head, char *line, char *end, ks_error *error)
{
    const char *colon;
    const ks_status status = check_field(line, end, &colon, error);
    if (status != KS_OK) return status;
    char *value = line + (colon - line) + 1;
    while (value < end && (*value == ' ' || *value == '\t')) value++;
    const size_t length = ks_head_trim(value, (size_t)(end - value));
    head->spaced |= value != colon + 2 || colon[1] != ' ' || value + length != end;
    value[length] = '\0';
    ks_head_add(head, line, (size_t)(colon - line), value, length);
    return KS_OK;
}

ks_status ks_plain_head(char *bytes, size_t length, ks_head *head, ks_error *error)
{
    char *const end = bytes + length - 2; /* the empty line */
    ks_head_init(head, "", 0, version);
    head->method = "";
    char *line = (char *)(uintptr_t)ks_head_text_end(bytes, end);
    if (line == end || line[0] != '\r' || line[1] != '\n') return bad_byte(false, error);
    ks_status status = read_request_line(head, bytes, line, error);
    for (char *at = line + 2; status == KS_OK && at < end; at = line + 2) {
        line = (char *)(uintptr_t)ks_head_text_end(at, end);
        if (line == end || line[0] != '\r' || line[1] != '\n') return bad_byte(true, error);
        status = read_field(head, at, line, error);
    }
    return status;
}

bool ks_plain_absolute(const char *target, const char **authority, size_t *length, const char **path)
{
    static const char scheme[] = "http://";
    enum { SCHEME = sizeof scheme - 1 };
    if (strncasecmp(target, scheme, SCHEME) != 0) return false;
    *authority = target + SCHEME;
    *length = strcspn(*authority, "/?#");
    *path = *authority + *length;
    return true;
}
