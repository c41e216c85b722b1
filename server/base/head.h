/* Checks a request's head before any of its body is read. Pure functions over text; no sockets, no library.
 *
 * Interface  ks_head_init, ks_head_add for each field, then ks_check_head (framing, names, sizes: any listener, any
 * path) and, once the route is known, ks_check_access (host, origin, token) and ks_check_body (encoding, length). Threads
 * any. Strings belong to the caller and must outlive the head. */
#ifndef KS_HEAD_H
#define KS_HEAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernserve/status.h"
#include "base/tokens.h"

/* Fields that the daemon reads. X(NAME, "Field-Name", at most one) */
#define KS_KNOWN_TABLE(X)                                                                                              \
    X(HOST, "Host", 1)                                                                                                 \
    X(CONTENT_LENGTH, "Content-Length", 1)                                                                             \
    X(TRANSFER_ENCODING, "Transfer-Encoding", 1)                                                                       \
    X(CONTENT_TYPE, "Content-Type", 1)                                                                                 \
    X(CONTENT_ENCODING, "Content-Encoding", 1)                                                                         \
    X(AUTHORIZATION, "Authorization", 1)                                                                               \
    X(EXPECT, "Expect", 1)                                                                                             \
    X(HEADER_LENGTH, "Inference-Header-Content-Length", 1)                                                             \
    X(CONNECTION, "Connection", 0)                                                                                     \
    X(ORIGIN, "Origin", 0)                                                                                             \
    X(ACCEPT, "Accept", 0)                                                                                             \
    X(REQUEST_ID, "X-Request-Id", 0)                                                                                   \
    X(TRACEPARENT, "traceparent", 0)                                                                                   \
    X(ACCEPT_ENCODING, "Accept-Encoding", 0)                                                                           \
    X(FORWARDED_FOR, "X-Forwarded-For", 0)                                                                             \
    X(DEBUG, "Kernserve-Debug", 0)                                                                                     \
    X(IF_MATCH, "If-Match", 1)                                                                                         \
    X(IF_NONE_MATCH, "If-None-Match", 1)                                                                               \
    X(REPR_DIGEST, "Repr-Digest", 1)
typedef enum ks_known {
#define X(name, text, single) KS_KNOWN_##name,
    KS_KNOWN_TABLE(X)
#undef X
        KS_KNOWN_COUNT
} ks_known;

typedef enum ks_body_encoding { KS_BODY_PLAIN, KS_BODY_GZIP, KS_BODY_DEFLATE } ks_body_encoding;

typedef struct ks_head {
    const char *method; /* terminated; set by whatever reads the request line */
    const char *target; /* raw, as sent; of an absolute one the path, where absolute says so */
    size_t target_length;
    bool absolute;
    bool http10;
    bool closes; /* Connection: close */
    int fields;
    size_t bytes;                      /* names, values and their punctuation */
    const char *known[KS_KNOWN_COUNT]; /* first value, of X-Forwarded-For the last; terminated; NULL: absent */
    size_t known_length[KS_KNOWN_COUNT];
    ks_known doubled; /* the first single field that came again; KS_KNOWN_COUNT: none */
    bool bad_name, bad_value;
    bool folded; /* set by what reads the fields: one came in two lines */
    bool spaced; /* likewise: one is not "name: value" with that blank and no other white space around the value */
    /* set by ks_check_head: */
    int64_t content_length; /* -1: none */
    bool chunked, expects;
    /* set by ks_check_access: */
    unsigned rights;        /* of its token; all where none is needed */
    const ks_token *bearer; /* it, while the table is held; NULL: none was needed */
    /* set by ks_check_body: */
    ks_body_encoding encoding;
} ks_head;

/* Fixed after start. */
typedef struct ks_check_rules {
    size_t max_uri, max_header;
    int max_fields;
    uint64_t max_body;
    const char *const *hosts; /* accepted beside localhost, 127.0.0.1 and [::1] */
    int hosts_count;
    const ks_tokens *tokens; /* NULL: no authentication */
} ks_check_rules;

void ks_head_init(ks_head *head, const char *target, size_t target_length, const char *version);
/* value: trimmed, and terminated; NULL: empty. */
void ks_head_add(ks_head *head, const char *name, size_t name_length, const char *value, size_t value_length);

/* Whether it is what a field's name, or a method, may consist of (RFC 9110 token). */
bool ks_is_token(const char *text, size_t length);
/* A name or an address; then, or not, a colon and digits. text ends in a NUL. */
bool ks_is_host(const char *text, size_t length);
/* KS_REQUEST_LINE: a byte that may stand in a URI only percent-encoded, or the beginning of a fragment. */
ks_status ks_check_target(const char *text, size_t length, ks_error *error);
/* The first control byte, but for tabs, which no value holds; end: none. */
const char *ks_head_text_end(const char *at, const char *end);
/* How much of a value is left without the white space behind it, which is none of it (RFC 9110 5.5). */
size_t ks_head_trim(const char *value, size_t length);

/* KS_URI, KS_REQUEST_LINE, KS_HEADERS, KS_HEADER, KS_FRAMING, KS_NO_HOST, KS_EXPECT; KS_BODY_SIZE for a length above 2^63. */
ks_status ks_check_head(const ks_check_rules *rules, ks_head *head, ks_error *error);
/* open: health and metrics, which orchestrators call by address (no Host check); authorized: no token needed.
 * KS_HOST, KS_ORIGIN, KS_UNAUTHORIZED. */
ks_status ks_check_access(const ks_check_rules *rules, ks_head *head, bool loopback, bool open, bool authorized,
                          ks_error *error);
/* Behind ks_check_access: whether the token has the route's right (0: being one is enough). KS_FORBIDDEN. */
ks_status ks_check_right(const ks_head *head, unsigned right, ks_error *error);
/* max_body: of its route. KS_ENCODING, KS_BODY_SIZE. */
ks_status ks_check_body(uint64_t max_body, ks_head *head, ks_error *error);
#endif
