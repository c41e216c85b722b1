/* The framing of a chunked body (RFC 9112 7.1), read strictly as it comes: a size of 1 to 16 hexadecimal digits below 2^63, extensions
 * that are well formed, lines that end in CR LF and are KS_CHUNKED_LINE bytes long at most, a trailer that is a few header
 * fields, read and dropped. Knows no sockets; any thread.
 *
 * Interface  ks_chunked_init; then in turns ks_chunked_read over framing and, where ks_chunked_data says so, ks_chunked_took for data. */
#ifndef KS_CHUNKED_H
#define KS_CHUNKED_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernserve/status.h"

enum { KS_CHUNKED_LINE = 1024, KS_CHUNKED_DIGITS = 16 };

typedef enum ks_chunked_state {
    KS_CHUNKED_SIZE,       /* at a digit of the size */
    KS_CHUNKED_SPACE,      /* behind the size, a name or a value, in white space: a semicolon must follow */
    KS_CHUNKED_BEHIND,     /* behind a name, in white space: an equals sign or a semicolon must follow */
    KS_CHUNKED_NAME_FIRST, /* behind a semicolon */
    KS_CHUNKED_NAME,
    KS_CHUNKED_VALUE_FIRST, /* behind an equals sign */
    KS_CHUNKED_VALUE,
    KS_CHUNKED_QUOTED,  /* in a quoted value */
    KS_CHUNKED_ESCAPED, /* behind a backslash in it */
    KS_CHUNKED_CLOSED,  /* behind its closing quote */
    KS_CHUNKED_LF,      /* of the line with the size */
    KS_CHUNKED_DATA,    /* left > 0: data; 0: the CR behind it */
    KS_CHUNKED_DATA_LF,
    KS_CHUNKED_FIELD,      /* where a field of the trailer begins, or the trailer ends */
    KS_CHUNKED_FIELD_NAME, /* in its name */
    KS_CHUNKED_FIELD_VALUE,
    KS_CHUNKED_FIELD_LF,
    KS_CHUNKED_LAST_LF,
    KS_CHUNKED_OVER
} ks_chunked_state;

typedef struct ks_chunked {
    ks_chunked_state state;
    uint64_t left;  /* bytes of data that come next */
    uint64_t count; /* chunks with data so far */
    size_t line;    /* bytes of this line */
    int digits;
    size_t trailer, trailer_max; /* bytes */
    int fields, fields_max;
} ks_chunked;

void ks_chunked_init(ks_chunked *chunks, size_t trailer_max, int fields_max);
/* Reads framing until data comes next, the body is over, or bytes end; sets *used. KS_CHUNKS: malformed, or a line that is
 * too long; KS_HEADER: a malformed trailer; KS_HEADERS: a trailer beyond its limits. Then it is of no more use. */
ks_status ks_chunked_read(ks_chunked *chunks, const char *bytes, size_t n, size_t *used, ks_error *error);
/* So many of the bytes that were left have been taken. */
void ks_chunked_took(ks_chunked *chunks, size_t n);
/* How much data comes next. */
static inline uint64_t ks_chunked_data(const ks_chunked *chunks)
{
    return chunks->state == KS_CHUNKED_DATA ? chunks->left : 0;
}
static inline bool ks_chunked_over(const ks_chunked *chunks)
{
    return chunks->state == KS_CHUNKED_OVER;
}
#endif
