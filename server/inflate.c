/* Inflates a request body a buffer at a time, so that a bomb costs what the limit allows and no more. gzip or zlib is
 * told from the stream's first bytes, whatever the header said, as Triton does. */
#include "inflate.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

enum { BUFFER_BYTES = 16384, WINDOW_AND_DETECT = 15 + 32 };

struct ks_inflate {
    z_stream stream;
    uint64_t max_bytes, bytes;
    bool over; /* the stream's end was seen */
    unsigned char buffer[BUFFER_BYTES];
};

ks_status ks_inflate_begin(uint64_t max_bytes, ks_inflate **out, ks_error *error)
{
    ks_inflate *it = calloc(1, sizeof *it);
    *out = NULL;
    if (!it || inflateInit2(&it->stream, WINDOW_AND_DETECT) != Z_OK) {
        free(it);
        return ks_fail(error, KS_MEMORY, "no memory to decompress the request");
    }
    it->max_bytes = max_bytes;
    *out = it;
    return KS_OK;
}

/* What lies in the buffer goes to the taker. */
static ks_status give(ks_inflate *it, ks_inflate_fn *take, void *context, ks_error *error)
{
    const size_t n = BUFFER_BYTES - it->stream.avail_out;
    if (n > it->max_bytes - it->bytes)
        return ks_fail(error, KS_BODY_SIZE,
                       "Decompressed data size exceeds the maximum allowed value of %" PRIu64
                       " bytes. Use --max-body to increase the limit.",
                       it->max_bytes);
    it->bytes += n;
    return n > 0 ? take(context, (const char *)it->buffer, n, error) : KS_OK;
}

/* At most UINT_MAX bytes, which is what zlib counts in. */
static ks_status feed_part(ks_inflate *it, const char *bytes, unsigned n, ks_inflate_fn *take, void *context,
                           ks_error *error)
{
    z_stream *stream = &it->stream;
    stream->next_in = (z_const Bytef *)bytes;
    stream->avail_in = n;
    do {
        if (it->over) {
            if (stream->avail_in == 0) return KS_OK;
            return ks_fail(error, KS_ENCODED, "the compressed body has bytes behind the end of its stream");
        }
        stream->next_out = it->buffer;
        stream->avail_out = BUFFER_BYTES;
        const int result = inflate(stream, Z_NO_FLUSH);
        if (result == Z_MEM_ERROR) return ks_fail(error, KS_MEMORY, "no memory to decompress the request");
        if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
            return ks_fail(error, KS_ENCODED, "the compressed body is corrupt");
        it->over = result == Z_STREAM_END;
        const ks_status status = give(it, take, context, error);
        if (status != KS_OK) return status;
    } while (stream->avail_in > 0 || stream->avail_out == 0);
    return KS_OK;
}

ks_status ks_inflate_feed(ks_inflate *it, const char *bytes, size_t n, ks_inflate_fn *take, void *context,
                          ks_error *error)
{
    while (n > 0) {
        const unsigned part = n < UINT_MAX ? (unsigned)n : UINT_MAX;
        const ks_status status = feed_part(it, bytes, part, take, context, error);
        if (status != KS_OK) return status;
        bytes += part;
        n -= part;
    }
    return KS_OK;
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
