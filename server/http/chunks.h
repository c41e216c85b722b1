/* The framing of a chunked body (RFC 9112 7.1), read strictly as it comes: a size of 1 to 16 hexadecimal digits below 2^63, extensions
 * that are well formed, lines that end in CR LF and are KS_CHUNK_LINE bytes long at most, a trailer that is a few header
 * fields, read and dropped. Knows no sockets; any thread.
 *
 * Interface  ks_chunks_init; then in turns ks_chunks_read over framing and, where ks_chunks_data says so, ks_chunks_took for data. */
#ifndef KS_CHUNKS_H
#define KS_CHUNKS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernserve/status.h"

enum { KS_CHUNK_LINE = 1024, KS_CHUNK_DIGITS = 16 };

typedef enum ks_chunk_state {
    KS_CHUNK_SIZE,       /* at a digit of the size */
    KS_CHUNK_SPACE,      /* behind the size, a name or a value, in white space: a semicolon must follow */
    KS_CHUNK_BEHIND,     /* behind a name, in white space: an equals sign or a semicolon must follow */
    KS_CHUNK_NAME_FIRST, /* behind a semicolon */
    KS_CHUNK_NAME,
    KS_CHUNK_VALUE_FIRST, /* behind an equals sign */
    KS_CHUNK_VALUE,
    KS_CHUNK_QUOTED,  /* in a quoted value */
    KS_CHUNK_ESCAPED, /* behind a backslash in it */
    KS_CHUNK_CLOSED,  /* behind its closing quote */
    KS_CHUNK_LF,      /* of the line with the size */
    KS_CHUNK_DATA,    /* left > 0: data; 0: the CR behind it */
    KS_CHUNK_DATA_LF,
    KS_CHUNK_FIELD,      /* where a field of the trailer begins, or the trailer ends */
    KS_CHUNK_FIELD_NAME, /* in its name */
    KS_CHUNK_FIELD_VALUE,
    KS_CHUNK_FIELD_LF,
    KS_CHUNK_LAST_LF,
    KS_CHUNK_OVER
} ks_chunk_state;

typedef struct ks_chunks {
    ks_chunk_state state;
    uint64_t left;  /* bytes of data that come next */
    uint64_t count; /* chunks with data so far */
    size_t line;    /* bytes of this line */
    int digits;
    size_t trailer, trailer_max; /* bytes */
    int fields, fields_max;
} ks_chunks;

void ks_chunks_init(ks_chunks *chunks, size_t trailer_max, int fields_max);
/* Reads framing until data comes next, the body is over, or bytes end; sets *used. KS_CHUNKS: malformed, or a line that is
 * too long; KS_HEADER: a malformed trailer; KS_HEADERS: a trailer beyond its limits. Then it is of no more use. */
ks_status ks_chunks_read(ks_chunks *chunks, const char *bytes, size_t n, size_t *used, ks_error *error);
/* So many of the bytes that were left have been taken. */
void ks_chunks_took(ks_chunks *chunks, size_t n);
/* How much data comes next. */
static inline uint64_t ks_chunks_data(const ks_chunks *chunks)
{
    return chunks->state == KS_CHUNK_DATA ? chunks->left : 0;
}
static inline bool ks_chunks_over(const ks_chunks *chunks)
{
    return chunks->state == KS_CHUNK_OVER;
}
#endif
