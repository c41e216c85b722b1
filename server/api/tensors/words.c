/* Query and fields of a request of /v2/tensors.
 *
 * Owns       nothing. Interface words.h. Threads any.
 * Limits     a member of the query has at most 255 bytes; a ttl is at most ten years. */
#include "api/tensors/words.h"

#include <string.h>

#include "base/number/number.h"
#include "base/util.h"
#include "codec/decode.h"

static const int64_t ttl_max_s = 3650 * 86400ll;

/* --- the query ---------------------------------------------------------------------------------------------------- */

enum {
    AT_PUT = 1,
    AT_PUT_ALL = 2,
    AT_ONE = 4,
    AT_LIST = 8,
    AT_PEER = 16
}; /* GET, HEAD and DELETE of one; of all; a worker's */

static int place_of(const ks_tensor_ask *ask)
{
    const bool all = ask->route->id == KS_ROUTE_TENSORS;
    const int peer = ask->is_peer ? AT_PEER : 0;
    if (ask->method == KS_METHOD_PUT) return (all ? AT_PUT_ALL : AT_PUT) | peer;
    return (all ? AT_LIST : AT_ONE) | peer;
}

static ks_status wrong(const ks_query_pair *pair, const char *what, ks_error *error)
{
    return ks_fail(error, KS_PARAMETER, "%s=%s: %s", pair->name, ks_quoted(pair->value, strlen(pair->value)).text,
                   what);
}

static ks_status read_shape(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    words->has_shape = true;
    return ks_query_dims(pair->value, (size_t)pair->value_length, &words->tensor, error);
}

static ks_status read_datatype(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    const size_t length = (size_t)pair->value_length;
    words->has_datatype = true;
    if (ks_dtype_find(pair->value, length, &words->tensor.dtype)) return KS_OK;
    return ks_fail(error, KS_DATATYPE, "data-type '%s' is unknown", ks_quoted(pair->value, length).text);
}

static ks_status read_ttl(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    if (ks_digits_read(pair->value, (size_t)pair->value_length, &words->ttl_s) && words->ttl_s >= 0 &&
        words->ttl_s <= ttl_max_s)
        return KS_OK;
    return wrong(pair, "a number of seconds up to ten years; 0: for ever", error);
}

static ks_status read_evictable(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    words->evictable = pair->value[0] == '1';
    if ((pair->value[0] == '0' || pair->value[0] == '1') && pair->value_length == 1) return KS_OK;
    return wrong(pair, "0 or 1", error);
}

/* 64 digits, or that of a stored output: "g3-1f". */
static bool is_tag(const char *text, size_t length)
{
    const bool label = text[0] == 'g' && memchr(text, '-', length) != NULL && length < KS_ETAG_MAX;
    const size_t from = label ? 1 : 0;
    if (!label && length != KS_ETAG_MAX) return false;
    for (size_t i = from; i < length; i++)
        if (ks_hex_digit(text[i]) < 0 && !(label && text[i] == '-')) return false;
    return true;
}

static ks_status read_etag(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    words->has_etag = true;
    if (!is_tag(pair->value, (size_t)pair->value_length))
        return wrong(pair, "an ETag has 64 hexadecimal digits", error);
    for (int i = 0; i <= pair->value_length; i++) {
        const char c = pair->value[i];
        words->etag[i] = c >= 'A' && c <= 'F' ? (char)(c + 'a' - 'A') : c;
    }
    return KS_OK;
}

static ks_status keep(char *out, size_t cap, const ks_query_pair *pair, ks_error *error)
{
    if ((size_t)pair->value_length >= cap)
        return ks_fail(error, KS_NAME, "'%s' has more than %zu bytes", pair->name, cap - 1);
    memcpy(out, pair->value, (size_t)pair->value_length + 1);
    return KS_OK;
}

static ks_status read_key(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    return keep(words->key, sizeof words->key, pair, error);
}

static ks_status read_prefix(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    return keep(words->prefix, sizeof words->prefix, pair, error);
}

static ks_status read_after(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    return keep(words->after, sizeof words->after, pair, error);
}

static ks_status read_tenant(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    return keep(words->tenant, sizeof words->tenant, pair, error);
}

static ks_status read_for(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    words->form_op = ks_op_find(pair->value, (size_t)pair->value_length);
    if (words->form_op && words->form_op->pitch) return KS_OK;
    return wrong(pair, "an operation that has forms of tensors, as matmul", error);
}

static ks_status read_limit(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    if (ks_digits_read(pair->value, (size_t)pair->value_length, &words->limit) && words->limit >= 1 &&
        words->limit <= KS_TENSOR_LIST_MAX)
        return KS_OK;
    return wrong(pair, "1 to 10000", error);
}

static ks_status read_device(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error)
{
    enum { DEVICE_MAX = 999 };
    if (ks_digits_read(pair->value, (size_t)pair->value_length, &words->device) && words->device <= DEVICE_MAX)
        return KS_OK;
    return wrong(pair, "a device's index", error);
}

static const struct {
    const char *name;
    int places;
    ks_status (*read)(ks_tensor_words *words, const ks_query_pair *pair, ks_error *error);
} members[] = {
    {"shape", AT_PUT, read_shape},
    {"datatype", AT_PUT, read_datatype},
    {"ttl", AT_PUT | AT_PUT_ALL, read_ttl},
    {"evictable", AT_PUT | AT_PUT_ALL, read_evictable},
    {"etag", AT_PUT, read_etag},
    {"key", AT_PUT, read_key},
    {"for", AT_PUT | AT_PUT_ALL, read_for},
    {"prefix", AT_PUT_ALL | AT_LIST, read_prefix},
    {"limit", AT_LIST, read_limit},
    {"after", AT_LIST, read_after},
    {"device", AT_PUT | AT_PUT_ALL, read_device},
    {"tenant", AT_ONE | AT_LIST | AT_PEER, read_tenant},
};
enum { MEMBERS = sizeof members / sizeof members[0] };

static ks_status read_member(int place, const ks_query_pair *pair, ks_tensor_words *out, unsigned *seen,
                             ks_error *error)
{
    const char *const name = pair->name;
    int i = 0;
    while (i < MEMBERS && (strcmp(members[i].name, name) != 0 || !(members[i].places & place))) i++;
    if (i == MEMBERS)
        return ks_fail(error, KS_PARAMETER, "the query names '%s', which this request does not have",
                       ks_quoted(name, strlen(name)).text);
    if (*seen >> i & 1) return ks_fail(error, KS_PARAMETER, "the query names '%s' twice", members[i].name);
    *seen |= 1u << i;
    if (pair->value_length < 0)
        return ks_fail(error, KS_PARAMETER, "the query's '%s' is too long or badly encoded", members[i].name);
    return members[i].read(out, pair, error);
}

/* --- fields ------------------------------------------------------------------------------------------------------- */

/* The next entity tag of a list, without quotes and W/; false: there is none. */
static bool next_tag(const char **list, const char **tag, size_t *length)
{
    const char *p = *list + strspn(*list, " \t,");
    if (strncmp(p, "W/", 2) == 0) p += 2;
    const bool quoted = *p == '"';
    p += quoted;
    *tag = p;
    *length = quoted ? strcspn(p, "\"") : strcspn(p, " \t,");
    *list = p + *length + (quoted && p[*length] == '"');
    return quoted || *length > 0;
}

bool ks_tensor_tag_is_in(const char *list, const char *etag)
{
    const char *tag;
    size_t length;
    while (next_tag(&list, &tag, &length))
        if ((length == 1 && *tag == '*') || (length == strlen(etag) && memcmp(tag, etag, length) == 0)) return true;
    return false;
}

/* Of a PUT or a DELETE: one tag, or "*". */
ks_status ks_conditions_read(const ks_head *head, ks_tensor_words *out, ks_error *error)
{
    const char *none = head->known[KS_KNOWN_IF_NONE_MATCH], *match = head->known[KS_KNOWN_IF_MATCH], *tag;
    size_t length;
    if (none && strcmp(none, "*") != 0)
        return ks_fail(error, KS_FIELD, "If-None-Match of a change is *: create, never replace");
    out->only_new = none != NULL;
    if (!match) return KS_OK;
    out->has_if_match = true;
    if (!next_tag(&match, &tag, &length) || length > KS_ETAG_MAX || match[strspn(match, " \t,")] != '\0')
        return ks_fail(error, KS_FIELD, "If-Match of a change is one ETag, or *");
    memcpy(out->if_match, tag, length);
    return KS_OK;
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* The 44 digits of 32 bytes. */
static bool read_base64(const char *text, unsigned char out[KS_DIGEST_BYTES])
{
    uint32_t bits = 0;
    int have = 0, n = 0;
    for (int i = 0; i < 43; i++) {
        const int digit = base64_digit(text[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        out[n++] = (unsigned char)(bits >> have & 255);
    }
    return text[43] == '=' && n == KS_DIGEST_BYTES;
}

/* Of the members of a Repr-Digest (RFC 9530) the one of SHA-256; others are ignored. */
static ks_status read_digest(const char *value, ks_tensor_words *out, ks_error *error)
{
    static const char name[] = "sha-256=";
    enum { DIGITS = 44 };
    for (const char *p = value; p && *p; p = strchr(p, ',')) {
        p += strspn(p, " \t,");
        if (strncmp(p, name, sizeof name - 1) != 0) continue;
        p += sizeof name - 1;
        const size_t length = strcspn(p, ",");
        out->has_digest =
            length >= DIGITS + 2 && p[0] == ':' && p[DIGITS + 1] == ':' && read_base64(p + 1, out->digest);
        if (!out->has_digest)
            return ks_fail(error, KS_DIGEST, "Repr-Digest: sha-256 is not 32 bytes in base64 between colons");
    }
    return KS_OK;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

ks_status ks_tensor_words_read(const ks_tensor_ask *ask, ks_tensor_words *out, ks_error *error)
{
    const char *query = ask->route->query;
    const int place = place_of(ask);
    const bool changes = ask->method == KS_METHOD_PUT || ask->method == KS_METHOD_DELETE;
    unsigned seen = 0;
    ks_query_pair pair;
    *out = (ks_tensor_words){.ttl_s = -1, .device = -1, .limit = KS_TENSOR_LIST_PRESET};
    while (ks_query_next(&query, &pair)) {
        if (pair.name[0] == '\0') continue;
        const ks_status status = read_member(place, &pair, out, &seen, error);
        if (status != KS_OK) return status;
    }
    ks_status status = changes ? ks_conditions_read(ask->head, out, error) : KS_OK;
    if (status == KS_OK && ask->method == KS_METHOD_PUT)
        status = read_digest(ask->head->known[KS_KNOWN_REPR_DIGEST], out, error);
    return status;
}
