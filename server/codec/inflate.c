/* Inflates a request body a buffer at a time, so that a bomb costs what the limit allows and no more. gzip or zlib is
 * known from the stream's first bytes, whatever the header said, as Triton does. */
#include "codec/inflate.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

enum { BUFFER_BYTES = 16384, WINDOW_AND_DETECT = 15 + 32, WINDOW_AND_GZIP = 15 + 16, GZIP_FIRST = 0x1f };

struct ks_inflate {
    z_stream stream;
    uint64_t max_bytes, bytes;
    size_t *slice;
    bool over;          /* the stream's end was seen, or a member's */
    bool gzip;          /* which may have several members, one behind the other (RFC 1952 2.2) */
    bool begun;         /* a byte has come */
    bool corrupt;       /* what lies in the buffer is the last that could be read */
    bool ahead;         /* the first byte that comes next has been used already */
    size_t made, given; /* of buffer */
    unsigned char buffer[BUFFER_BYTES];
};

ks_status ks_inflate_begin(uint64_t max_bytes, size_t *slice, ks_inflate **out, ks_error *error)
{
    ks_inflate *it = calloc(1, sizeof *it);
    *out = NULL;
    if (!it || inflateInit2(&it->stream, WINDOW_AND_DETECT) != Z_OK) {
        free(it);
        return ks_fail(error, KS_MEMORY, "no memory to decompress the request");
    }
    it->max_bytes = max_bytes;
    it->slice = slice;
    *out = it;
    return KS_OK;
}

/* What lies in the buffer goes to the taker. */
static ks_status give(ks_inflate *it, ks_inflate_fn *take, void *context, ks_error *error)
{
    size_t n = it->made - it->given;
    if (n == 0) return KS_OK;
    const ks_status status = take(context, (const char *)it->buffer + it->given, &n, error);
    it->given += n;
    return status;
}

/* The next bytes into the empty buffer. */
static ks_status make(ks_inflate *it, ks_error *error)
{
    z_stream *stream = &it->stream;
    if (it->corrupt) return ks_fail(error, KS_ENCODED, "the compressed body is corrupt");
    if (it->over && !(it->gzip && inflateReset2(stream, WINDOW_AND_GZIP) == Z_OK))
        return ks_fail(error, KS_ENCODED, "the compressed body has bytes behind the end of its stream");
    stream->next_out = it->buffer;
    stream->avail_out = BUFFER_BYTES;
    const int result = inflate(stream, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) return ks_fail(error, KS_MEMORY, "no memory to decompress the request");
    /* Reported when what came before it has been given: which of two faults comes first must not depend on how the bytes came. */
    it->corrupt = result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR;
    it->over = result == Z_STREAM_END;
    it->made = BUFFER_BYTES - stream->avail_out;
    it->given = 0;
    if (it->made > it->max_bytes - it->bytes)
        return ks_fail(error, KS_BODY_SIZE,
                       "Decompressed data size exceeds the maximum allowed value of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       it->max_bytes);
    it->bytes += it->made;
    if (it->slice) *it->slice -= *it->slice < KS_INFLATE_STEP ? *it->slice : KS_INFLATE_STEP;
    return KS_OK;
}

/* More may come of what zlib has been given: bytes that it has not used, or a buffer that it has filled. */
static bool has_more(const ks_inflate *it)
{
    return it->corrupt || it->stream.avail_in > 0 || (it->made == BUFFER_BYTES && !it->over);
}

ks_status ks_inflate_feed(ks_inflate *it, const char *bytes, size_t *n, ks_inflate_fn *take, void *context,
                          ks_error *error)
{
    z_stream *stream = &it->stream;
    const size_t fed = *n < UINT_MAX ? *n : UINT_MAX; /* zlib counts in unsigned */
    stream->next_in = (z_const Bytef *)bytes + it->ahead;
    stream->avail_in = (unsigned)(fed - it->ahead);
    if (!it->begun && fed > 0) it->gzip = (unsigned char)bytes[0] == GZIP_FIRST;
    it->begun |= fed > 0;
    it->ahead = false;
    ks_status status = give(it, take, context, error);
    while (status == KS_OK && it->given == it->made && has_more(it) && !(it->slice && *it->slice == 0)) {
        status = make(it, error);
        if (status == KS_OK) status = give(it, take, context, error);
    }
    *n = fed - stream->avail_in;
    if (status == KS_OK && stream->avail_in == 0 && (it->given < it->made || has_more(it))) {
        /* All is used and not all is given: the last byte is asked for once more, so that there is a next time. */
        it->ahead = true;
        *n -= 1;
    }
    return status;
}

ks_status ks_inflate_end(ks_inflate *it, ks_error *error)
{
    if (!it->over) return ks_fail(error, KS_ENCODED, "the compressed body is truncated");
    return KS_OK;
}

void ks_inflate_fini(ks_inflate **inflate)
{
    if (!*inflate) return;
    inflateEnd(&(*inflate)->stream);
    free(*inflate);
    *inflate = NULL;
}
