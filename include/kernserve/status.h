/* What can go wrong, in one table, and the sentence that says so.
 * A row is one response of the daemon: HTTP status, the code for the header Kernserve-Error, and whether the connection
 * closes afterwards. Finer than six classes because clients and metrics branch on the code. */
#ifndef KERNSERVE_STATUS_H
#define KERNSERVE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(NAME, HTTP status, "code", closes the connection) */
#define KS_STATUS_TABLE(X)                                                                                             \
    X(OK, 200, "", 0)                                                                                                  \
    /* the wire */                                                                                                     \
    X(REQUEST_LINE, 400, "request_line", 1)                                                                            \
    X(HTTP_VERSION, 505, "version", 1)                                                                                 \
    X(FRAMING, 400, "framing", 1)                                                                                      \
    X(HEADER, 400, "header", 1)                                                                                        \
    X(CHUNKS, 400, "chunks", 1)                                                                                        \
    X(NO_HOST, 400, "host", 1)                                                                                         \
    X(HOST, 421, "host", 0)                                                                                            \
    X(ORIGIN, 403, "origin", 0)                                                                                        \
    X(EXPECT, 417, "expect", 1)                                                                                        \
    X(URI, 414, "uri", 1)                                                                                              \
    X(HEADERS, 431, "headers", 1)                                                                                      \
    X(PATH, 404, "path", 0)                                                                                            \
    X(METHOD, 405, "method", 0)                                                                                        \
    X(ENCODING, 415, "encoding", 0)                                                                                    \
    X(ENCODED, 400, "encoding", 0)                                                                                     \
    X(UNAUTHORIZED, 401, "auth", 0)                                                                                    \
    X(FORBIDDEN, 403, "auth", 0)                                                                                       \
    X(BODY_SIZE, 413, "body_size", 0)                                                                                  \
    X(SLOW, 408, "slow", 1)                                                                                            \
    X(DEADLINE, 504, "deadline", 0)                                                                                    \
    /* bounds of this host */                                                                                          \
    X(BUDGET, 503, "budget", 0)                                                                                        \
    X(QUEUE_FULL, 503, "queue_full", 0)                                                                                \
    X(DRAINING, 503, "draining", 1)                                                                                    \
    X(DEVICE, 503, "device", 0)                                                                                        \
    X(MEMORY, 503, "memory", 0)                                                                                        \
    /* what this server does not do */                                                                                 \
    X(UNSUPPORTED, 501, "unsupported", 0)                                                                              \
    X(UNAVAILABLE, 503, "unavailable", 0)                                                                              \
    /* resident tensors */                                                                                             \
    X(TENSOR, 404, "tensor", 0)                                                                                        \
    X(CONTENT, 404, "content", 0)                                                                                      \
    X(LOST, 410, "lost", 0)                                                                                            \
    X(PLACED, 409, "placed", 0)                                                                                        \
    X(PRECONDITION, 412, "precondition", 0)                                                                            \
    X(RESIDENT_FULL, 507, "resident_full", 0)                                                                          \
    X(QUOTA, 507, "quota", 0)                                                                                          \
    X(READ_ONLY, 403, "read_only", 0)                                                                                  \
    X(DIGEST, 400, "digest", 0)                                                                                        \
    /* models that clients load */                                                                                     \
    X(LOADING, 503, "loading", 0)                                                                                      \
    X(RESERVED, 409, "reserved", 0)                                                                                    \
    X(DEFINITION, 400, "definition", 0)                                                                                \
    /* what the request says */                                                                                        \
    X(JSON, 400, "json", 0)                                                                                            \
    X(JSON_LIMIT, 400, "json_limit", 0)                                                                                \
    X(FIELD, 400, "field", 0)                                                                                          \
    X(MODEL, 404, "model", 0)                                                                                          \
    X(NAME, 400, "name", 0)                                                                                            \
    X(PARAMETER, 400, "parameter", 0)                                                                                  \
    X(SHAPE, 400, "shape", 0)                                                                                          \
    X(EMPTY, 400, "empty", 0)                                                                                          \
    X(DATATYPE, 400, "datatype", 0)                                                                                    \
    X(AXIS, 400, "axis", 0)                                                                                            \
    X(COUNT, 400, "count", 0)                                                                                          \
    X(RANGE, 400, "range", 0)                                                                                          \
    X(HEADER_LENGTH, 400, "header_length", 0)                                                                          \
    X(BINARY_SIZE, 400, "binary_size", 0)                                                                              \
    X(REGION, 404, "shared_memory", 0)                                                                                 \
    X(WINDOW, 400, "shared_memory", 0)                                                                                 \
    X(WORK, 413, "work", 0)                                                                                            \
    X(NON_FINITE, 422, "non_finite", 0)                                                                                \
    /* never sent: the client has gone; the operator's side (start-up) */                                              \
    X(CANCELLED, 499, "cancelled", 1)                                                                                  \
    X(CONFIG, 500, "config", 1)                                                                                        \
    X(SYSTEM, 500, "system", 1)

typedef enum ks_status {
#define X(name, http, code, close) KS_##name,
    KS_STATUS_TABLE(X)
#undef X
        KS_STATUS_COUNT
} ks_status;

enum { KS_ERROR_TEXT = 320 };

/* The caller's memory; filled where the fault is found, passed on untouched above. */
typedef struct ks_error {
    ks_status status;
    char text[KS_ERROR_TEXT];
} ks_error;

/* Fills *error (which may be NULL) and returns status, so that a fault is `return ks_fail(...)`. The text is cut to fit
 * and made printable. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4), cold))
#endif
ks_status
ks_fail(ks_error *error, ks_status status, const char *format, ...);

int ks_status_http(ks_status status);         /* 200, 400, ... */
const char *ks_status_code(ks_status status); /* "shape", for Kernserve-Error and metrics */
const char *ks_status_name(ks_status status); /* "SHAPE" */
int ks_status_closes(ks_status status);       /* 1: Connection: close */
int ks_status_retries(ks_status status);      /* 1: a 503, to be sent with Retry-After */

#ifdef __cplusplus
}
#endif
#endif
