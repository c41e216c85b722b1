#include "base/head.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *text;
    size_t length;
    bool single;
} known_fields[KS_KNOWN_COUNT] = {
#define X(name, text, single) {text, sizeof(text) - 1, single},
    KS_KNOWN_TABLE(X)
#undef X
};

/* RFC 9110 tchar: what a field name may consist of. */
static const bool token_byte[256] = {
    ['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1,         ['&'] = 1,         ['\''] = 1,
    ['*'] = 1, ['+'] = 1, ['-'] = 1, ['.'] = 1,         ['^'] = 1,         ['_'] = 1,
    ['`'] = 1, ['|'] = 1, ['~'] = 1, ['0' ... '9'] = 1, ['A' ... 'Z'] = 1, ['a' ... 'z'] = 1,
};

bool ks_is_token(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!token_byte[(unsigned char)text[i]]) return false;
    return length > 0;
}

/* Whether one of eight bytes is below a space, or is DEL. */
static bool any_control(const char *at)
{
    static const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t word;
    memcpy(&word, at, sizeof word);
    const uint64_t below = (word - ones * ' ') & ~word, other = word ^ ones * 0x7f;
    return (below | ((other - ones) & ~other)) & highs;
}

/* Control bytes end lines for some parsers and not for others; a tab is the one that a value may hold. */
const char *ks_head_text_end(const char *at, const char *end)
{
    for (;; at++) {
        while (end - at >= 8 && !any_control(at)) at += 8;
        if (at == end) return end;
        const unsigned char c = (unsigned char)*at;
        if ((c < ' ' && c != '\t') || c == 0x7f) return at;
    }
}

static bool is_value(const char *text, size_t length)
{
    return ks_head_text_end(text, text + length) == text + length;
}

static ks_known find_known(const char *name, size_t length)
{
    for (int i = 0; i < KS_KNOWN_COUNT; i++)
        if (known_fields[i].length == length && strncasecmp(known_fields[i].text, name, length) == 0)
            return (ks_known)i;
    return KS_KNOWN_COUNT;
}

void ks_head_init(ks_head *head, const char *target, size_t target_length, const char *version)
{
    memset(head, 0, sizeof *head);
    head->target = target;
    head->target_length = target_length;
    head->http10 = strcmp(version, "HTTP/1.0") == 0;
    head->content_length = -1;
    head->doubled = KS_KNOWN_COUNT;
}

size_t ks_head_trim(const char *value, size_t length)
{
    while (length > 0 && (value[length - 1] == ' ' || value[length - 1] == '\t')) length--;
    return length;
}

/* Whether a list of words, parted by commas, holds one. */
static bool list_holds(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (;;) {
        list += strspn(list, ", \t");
        const size_t n = strcspn(list, ", \t");
        if (n == 0) return false;
        if (n == length && strncasecmp(list, word, n) == 0) return true;
        list += n;
    }
}

void ks_head_add(ks_head *head, const char *name, size_t name_length, const char *value, size_t value_length)
{
    if (value == NULL) {
        value = "";
        value_length = 0;
    }
    head->fields++;
    head->bytes += name_length + value_length + 4;
    head->bad_name |= !ks_is_token(name, name_length);
    head->bad_value |= !is_value(value, value_length);
    ks_known known = find_known(name, name_length);
    if (known == KS_KNOWN_COUNT) return;
    if (known == KS_KNOWN_CONNECTION) head->closes |= list_holds(value, "close");
    if (head->known[known] != NULL && known != KS_KNOWN_FORWARDED_FOR) {
        if (known_fields[known].single && head->doubled == KS_KNOWN_COUNT) head->doubled = known;
        return;
    }
    head->known[known] = value;
    head->known_length[known] = value_length;
}

static ks_status check_sizes(const ks_check_rules *rules, const ks_head *head, ks_error *error)
{
    if (head->target_length > rules->max_uri)
        return ks_fail(error, KS_URI, "request target is longer than %zu bytes", rules->max_uri);
    if (head->bytes > rules->max_header)
        return ks_fail(error, KS_HEADERS, "header fields have %zu bytes, at most %zu are accepted", head->bytes,
                       rules->max_header);
    if (head->fields > rules->max_fields)
        return ks_fail(error, KS_HEADERS, "request has %d header fields, at most %d are accepted", head->fields,
                       rules->max_fields);
    return KS_OK;
}

/* Whether a byte may stand in a URI only percent-encoded, or begins a fragment, which is no part of a target. */
static bool any_unencoded(const char *at, size_t length)
{
    const char *const end = at + length;
    uint64_t seen = 0, word = 0;
    if (memchr(at, '#', length)) return true;
    for (; end - at > (ptrdiff_t)sizeof word; at += sizeof word) {
        memcpy(&word, at, sizeof word);
        seen |= word;
    }
    if (length >= sizeof word) { /* the last bytes, some of them once more */
        memcpy(&word, end - sizeof word, sizeof word);
        return (seen | word) & 0x8080808080808080u;
    }
    for (; at < end; at++) seen |= (unsigned char)*at;
    return seen & 0x80;
}

ks_status ks_check_target(const char *text, size_t length, ks_error *error)
{
    if (!any_unencoded(text, length)) return KS_OK;
    return ks_fail(error, KS_REQUEST_LINE, "the request target holds a byte that is sent percent-encoded");
}

/* RFC 9112 3.2: a path, an absolute URI, "*" of OPTIONS, an authority of CONNECT. PRI: how HTTP/2 begins, whose version is rejected. */
static bool is_target_form(const ks_head *head)
{
    const char *const method = head->method ? head->method : "";
    if (head->target[0] == '/' || strcmp(method, "CONNECT") == 0) return true;
    if (strcmp(head->target, "*") == 0) return strcmp(method, "OPTIONS") == 0 || strcmp(method, "PRI") == 0;
    return strstr(head->target, "://") != NULL;
}

/* Plain digits only. KS_FRAMING: something else. KS_BODY_SIZE: above 2^63-1. */
static ks_status read_length(const char *text, size_t length, int64_t *out, ks_error *error)
{
    int64_t value = 0;
    if (length == 0) return ks_fail(error, KS_FRAMING, "Content-Length is empty");
    for (size_t i = 0; i < length; i++)
        if (text[i] < '0' || text[i] > '9') return ks_fail(error, KS_FRAMING, "Content-Length is not a plain number");
    for (size_t i = 0; i < length; i++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, text[i] - '0', &value)) {
            *out = INT64_MAX;
            return ks_fail(error, KS_BODY_SIZE, "Content-Length exceeds the maximum allowed value of %lld bytes",
                           (long long)INT64_MAX);
        }
    *out = value;
    return KS_OK;
}

static ks_status check_framing(ks_head *head, ks_error *error)
{
    const char *length = head->known[KS_KNOWN_CONTENT_LENGTH];
    const char *transfer = head->known[KS_KNOWN_TRANSFER_ENCODING];
    if (head->doubled != KS_KNOWN_COUNT)
        return ks_fail(error, KS_FRAMING, "header field %s came more than once", known_fields[head->doubled].text);
    if (length && transfer) return ks_fail(error, KS_FRAMING, "Content-Length together with Transfer-Encoding");
    if (transfer) {
        if (strcasecmp(transfer, "chunked") != 0)
            return ks_fail(error, KS_FRAMING, "Transfer-Encoding other than chunked");
        if (head->http10) return ks_fail(error, KS_FRAMING, "Transfer-Encoding in an HTTP/1.0 request");
        head->chunked = true;
    }
    if (length) return read_length(length, head->known_length[KS_KNOWN_CONTENT_LENGTH], &head->content_length, error);
    return KS_OK;
}

/* RFC 3986 3.2.2, but for the comma, which no server's name has: it parts two fields Host that a proxy has joined. */
static const bool host_byte[256] = {
    ['!'] = 1, ['$'] = 1, ['%'] = 1, ['&'] = 1,         ['\''] = 1,        ['('] = 1,
    [')'] = 1, ['*'] = 1, ['+'] = 1, ['-'] = 1,         ['.'] = 1,         [';'] = 1,
    ['='] = 1, ['_'] = 1, ['~'] = 1, ['0' ... '9'] = 1, ['A' ... 'Z'] = 1, ['a' ... 'z'] = 1,
};

bool ks_is_host(const char *text, size_t length)
{
    const char *at = text;
    if (*at == '[') {
        at++;
        while (host_byte[(unsigned char)*at] || *at == ':') at++;
        if (*at++ != ']') return false;
    } else {
        while (host_byte[(unsigned char)*at]) at++;
    }
    if (at == text) return false;
    if (*at == ':') /* else nothing may follow */
        for (at++; *at >= '0' && *at <= '9';) at++;
    return at == text + length;
}

ks_status ks_check_head(const ks_check_rules *rules, ks_head *head, ks_error *error)
{
    ks_status status = check_sizes(rules, head, error);
    if (status != KS_OK) return status;
    /* The parts of an absolute one are looked at when they have been parted: request.c. */
    const bool absolute = head->absolute || (head->target[0] != '/' && strncasecmp(head->target, "http://", 7) == 0);
    if (!absolute) status = ks_check_target(head->target, head->target_length, error);
    if (status != KS_OK) return status;
    if (!is_target_form(head))
        return ks_fail(error, KS_REQUEST_LINE, "the request target is neither a path nor an absolute URI");
    if (head->bad_name)
        return ks_fail(error, KS_HEADER, "a header field's name holds a byte that is not allowed there");
    if (head->folded) return ks_fail(error, KS_HEADER, "a header field is folded over two lines");
    if (head->bad_value) return ks_fail(error, KS_HEADER, "a header field's value holds a control byte");
    status = check_framing(head, error);
    if (status != KS_OK) return status;
    const char *host = head->known[KS_KNOWN_HOST];
    if (!head->http10 && host == NULL) return ks_fail(error, KS_NO_HOST, "Host is missing");
    if (host && !ks_is_host(host, head->known_length[KS_KNOWN_HOST]))
        return ks_fail(error, KS_NO_HOST, "Host is not a name or an address, with or without a port");
    const char *expect = head->known[KS_KNOWN_EXPECT];
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return ks_fail(error, KS_EXPECT, "Expect other than 100-continue");
    head->expects = expect && !head->http10; /* whose clients know no status 100 */
    return KS_OK;
}

/* The name in "name:port", "[v6]:port" or either without a port; false where what follows the name is no port. */
static bool host_name(const char *text, size_t length, size_t *name_length)
{
    const char *end = text + length;
    const char *stop = NULL;
    if (length > 0 && text[0] == '[') {
        stop = memchr(text, ']', length);
        if (stop == NULL) return false;
        stop++;
    } else {
        stop = memchr(text, ':', length);
        if (stop == NULL) stop = end;
    }
    *name_length = (size_t)(stop - text);
    if (stop == end) return true;
    if (*stop != ':') return false;
    for (const char *p = stop + 1; p < end; p++)
        if (*p < '0' || *p > '9') return false;
    return true;
}

static bool same_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && strncasecmp(name, text, length) == 0;
}

static bool host_allowed(const ks_check_rules *rules, const char *text, size_t length)
{
    size_t name = 0;
    if (!host_name(text, length, &name) || name == 0) return false;
    if (same_name("localhost", text, name) || same_name("127.0.0.1", text, name) || same_name("[::1]", text, name))
        return true;
    for (int i = 0; i < rules->hosts_count; i++)
        if (same_name(rules->hosts[i], text, name)) return true;
    return false;
}

/* scheme://host[:port]; "null" and anything else is foreign. */
static bool origin_allowed(const ks_check_rules *rules, const char *text, size_t length)
{
    const char *sign = memmem(text, length, "://", 3);
    if (sign == NULL) return false;
    const char *host = sign + 3;
    return host_allowed(rules, host, length - (size_t)(host - text));
}

/* Looks at every byte whatever it finds, so that the time depends on nothing of the token but its length. */
static bool same_secret(const ks_token *token, const char *given, size_t length)
{
    unsigned difference = token->length != length;
    for (size_t i = 0; i < length; i++)
        difference |= (unsigned char)given[i] ^ (unsigned char)token->text[token->length ? i % token->length : 0];
    return difference == 0;
}

/* The token that the request brings; of one that stands there twice, the first. */
static const ks_token *find_token(const ks_check_rules *rules, const ks_head *head)
{
    static const char scheme[] = "Bearer ";
    const size_t skip = sizeof scheme - 1;
    const char *value = head->known[KS_KNOWN_AUTHORIZATION];
    size_t length = head->known_length[KS_KNOWN_AUTHORIZATION];
    if (value == NULL || length <= skip || strncasecmp(value, scheme, skip) != 0) return NULL;
    const ks_token *found = NULL;
    for (int i = 0; i < rules->tokens->count; i++) {
        const bool same = same_secret(&rules->tokens->item[i], value + skip, length - skip);
        if (same && !found) found = &rules->tokens->item[i];
    }
    return found;
}

ks_status ks_check_access(const ks_check_rules *rules, ks_head *head, bool loopback, bool open, bool authorized,
                          ks_error *error)
{
    const char *host = head->known[KS_KNOWN_HOST];
    const bool needed = rules->tokens && !authorized;
    head->bearer = NULL;
    head->rights = needed ? 0 : KS_RIGHTS_ALL;
    if (loopback && !open && host && !host_allowed(rules, host, head->known_length[KS_KNOWN_HOST]))
        return ks_fail(error, KS_HOST, "Host is not one of this server's names (--accept-host adds one)");
    const char *origin = head->known[KS_KNOWN_ORIGIN];
    if (origin && !origin_allowed(rules, origin, head->known_length[KS_KNOWN_ORIGIN]))
        return ks_fail(error, KS_ORIGIN, "requests from web pages of another origin are not accepted");
    if (!needed) return KS_OK;
    head->bearer = find_token(rules, head);
    if (head->bearer == NULL) return ks_fail(error, KS_UNAUTHORIZED, "a bearer token is needed");
    head->rights = head->bearer->rights;
    return KS_OK;
}

ks_status ks_check_right(const ks_head *head, unsigned right, ks_error *error)
{
    /* Models that all see have always been the operators' to load. */
    if (right == KS_RIGHT_MODELS && head->rights & KS_RIGHT_OPERATOR) return KS_OK;
    if ((right & ~head->rights) == 0) return KS_OK;
    return ks_fail(error, KS_FORBIDDEN, "this token has no right '%s' (the token file's rights=)",
                   ks_right_name(right));
}

ks_status ks_check_body(uint64_t max_body, ks_head *head, ks_error *error)
{
    const char *encoding = head->known[KS_KNOWN_CONTENT_ENCODING];
    if (encoding == NULL || strcasecmp(encoding, "identity") == 0)
        head->encoding = KS_BODY_PLAIN;
    else if (strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "x-gzip") == 0)
        head->encoding = KS_BODY_GZIP;
    else if (strcasecmp(encoding, "deflate") == 0)
        head->encoding = KS_BODY_DEFLATE;
    else
        return ks_fail(error, KS_ENCODING, "Unsupported compression type");
    if (head->content_length >= 0 && (uint64_t)head->content_length > max_body)
        return ks_fail(error, KS_BODY_SIZE,
                       "request body of %lld bytes exceeds the maximum allowed input size of %llu bytes. Use "
                       "--max-body to increase the limit.",
                       (long long)head->content_length, (unsigned long long)max_body);
    return KS_OK;
}
