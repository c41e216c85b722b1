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

/* What is wrong with a head whose end has not come yet. */
static ks_status check_part(const char *bytes, const char *end, ks_error *error)
{
    for (const char *at = bytes; (at = ks_head_text_end(at, end)) < end; at += 2) {
        if (*at == '\r' && at + 1 == end) break;
        if (*at != '\r' || at[1] != '\n') return bad_byte(memchr(bytes, '\n', (size_t)(at - bytes)) != NULL, error);
    }
    return KS_OK;
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

/* "HTTP/" DIGIT "." DIGIT. Any later HTTP/1 is read as 1.1. */
static ks_status read_version(ks_head *head, const char *text, ks_error *error)
{
    if (memcmp(text, version, VERSION - 3) != 0 || text[VERSION - 3] < '0' || text[VERSION - 3] > '9' ||
        text[VERSION - 2] != '.' || text[VERSION - 1] < '0' || text[VERSION - 1] > '9')
        return bad_request_line(error);
    if (text[VERSION - 3] != '1') return ks_fail(error, KS_HTTP_VERSION, "HTTP/1.1 and HTTP/1.0 are spoken here");
    head->http10 = text[VERSION - 1] == '0';
    return KS_OK;
}

/* METHOD SP TARGET SP VERSION, up to end, where its CR stands. */
static ks_status read_request_line(ks_head *head, char *bytes, char *end, ks_error *error)
{
    char *const target = memchr(bytes, ' ', (size_t)(end - bytes));
    if (target == NULL || end - target < VERSION + 3) return bad_request_line(error);
    char *const behind = end - VERSION - 1;
    if (*behind != ' ' || !ks_is_token(bytes, (size_t)(target - bytes))) return bad_request_line(error);
    for (const char *at = target + 1; at < behind; at++)
        if (*at == ' ' || *at == '\t') return bad_request_line(error);
    *target = *behind = '\0';
    ks_head_init(head, target + 1, (size_t)(behind - target - 1), version);
    head->method = bytes;
    return read_version(head, behind + 1, error);
}

static ks_status read_field(ks_head *head, char *line, char *end, ks_error *error)
{
    if (*line == ' ' || *line == '\t') return ks_fail(error, KS_HEADER, "a header field is folded over two lines");
    char *const colon = memchr(line, ':', (size_t)(end - line));
    if (colon == NULL) return ks_fail(error, KS_HEADER, "a header field has no colon");
    if (!ks_is_token(line, (size_t)(colon - line)))
        return ks_fail(error, KS_HEADER, "a header field's name holds a byte that is not allowed there");
    char *value = colon + 1;
    while (value < end && (*value == ' ' || *value == '\t')) value++;
    const size_t length = ks_head_trim(value, (size_t)(end - value));
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
