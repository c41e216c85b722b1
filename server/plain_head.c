#include "plain_head.h"

#include <string.h>
#include <strings.h>

/* Where the line ends; NULL: it holds what no plain line does. */
static char *line_end(char *at, const char *end)
{
    while (at < end && (unsigned char)*at >= ' ' && *at != 0x7f) at++;
    return at < end && at[0] == '\r' && at[1] == '\n' ? at : NULL;
}

/* Of the fields that say how a connection goes on, only one that says it does. */
static bool read_field(ks_head *head, char *line, char *end)
{
    char *const colon = memchr(line, ':', (size_t)(end - line));
    if (colon == NULL || colon == line || end - colon < 3) return false;
    char *const value = colon + 2;
    if (colon[1] != ' ' || value[0] == ' ' || end[-1] == ' ') return false;
    *colon = *end = '\0';
    ks_head_add(head, line, (size_t)(colon - line), value, (size_t)(end - value));
    return strcasecmp(line, "Connection") != 0 || strcasecmp(value, "keep-alive") == 0;
}

bool ks_plain_head(char *bytes, size_t length, ks_head *head)
{
    static const char post[] = "POST ", version[] = " HTTP/1.1";
    enum { POST = sizeof post - 1, VERSION = sizeof version - 1 };
    const char *const end = bytes + length - 2; /* the empty line */
    char *line = line_end(bytes, end);
    if (line == NULL || line - bytes <= POST + VERSION || memcmp(bytes, post, POST) != 0 ||
        memcmp(line - VERSION, version, VERSION) != 0)
        return false;
    const char *const target = bytes + POST;
    const size_t target_length = (size_t)(line - VERSION - target);
    if (memchr(target, ' ', target_length)) return false;
    line[-VERSION] = '\0';
    ks_head_init(head, target, target_length, version + 1);
    for (char *at = line + 2; at < end; at = line + 2) {
        line = line_end(at, end);
        if (line == NULL || !read_field(head, at, line)) return false;
    }
    return true;
}
