#include "codec/deflate.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

/* The fastest: a response is packed once and read once. */
enum { LEVEL = 1, MEMORY = 8, GZIP_WINDOW = 15 + 16, ZLIB_WINDOW = 15, FRAME = 32 };

static const struct {
    const char *name;
    ks_compression compression;
} known[] = {{"gzip", KS_COMPRESSION_GZIP}, {"deflate", KS_COMPRESSION_DEFLATE}, {"identity", KS_COMPRESSION_NONE}};
enum { KNOWN = sizeof known / sizeof known[0] };

/* Of "NAME;q=0.5", in thousandths; 1 where none is given, 0 where it is no number. */
static int weight_of(const char *text, const char *end)
{
    const char *q = memchr(text, ';', (size_t)(end - text));
    if (!q) return 1000;
    for (q++; q < end && (*q == ' ' || *q == '\t'); q++) continue;
    if (end - q < 3 || (q[0] != 'q' && q[0] != 'Q') || q[1] != '=') return 0;
    int weight = 0, unit = 1000;
    for (q += 2; q < end && ((*q >= '0' && *q <= '9') || *q == '.'); q++) {
        if (*q == '.') continue;
        weight += (*q - '0') * unit;
        unit /= 10;
        if (weight > 1000) return 1000;
    }
    return weight;
}

ks_compression ks_compression_accepted(const char *accept_encoding)
{
    ks_compression best = KS_COMPRESSION_NONE;
    int best_weight = 0;
    const char *at = accept_encoding ? accept_encoding : "";
    while (*at) {
        at += strspn(at, " \t,");
        const char *const end = at + strcspn(at, ",");
        const size_t length = strcspn(at, " \t;,");
        for (int i = 0; i < KNOWN; i++) {
            if (strlen(known[i].name) != length || strncasecmp(at, known[i].name, length) != 0) continue;
            const int weight = weight_of(at, end);
            if (weight > best_weight) best = known[i].compression;
            if (weight > best_weight) best_weight = weight;
        }
        at = end;
    }
    return best;
}

const char *ks_compression_name(ks_compression compression)
{
    return compression == KS_COMPRESSION_GZIP ? "gzip" : compression == KS_COMPRESSION_DEFLATE ? "deflate" : "identity";
}

size_t ks_compression_bound(size_t n)
{
    return compressBound(n) + FRAME;
}

size_t ks_compress(ks_compression compression, const char *bytes, size_t n, char *out)
{
    z_stream stream = {0};
    const int window = compression == KS_COMPRESSION_GZIP ? GZIP_WINDOW : ZLIB_WINDOW;
    if (n > UINT_MAX / 2 || deflateInit2(&stream, LEVEL, Z_DEFLATED, window, MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
        return 0;
    stream.next_in = (z_const Bytef *)bytes;
    stream.avail_in = (unsigned)n;
    stream.next_out = (Bytef *)out;
    stream.avail_out = (unsigned)ks_compression_bound(n);
    const int result = deflate(&stream, Z_FINISH);
    const size_t packed = stream.total_out;
    deflateEnd(&stream);
    return result == Z_STREAM_END && packed < n ? packed : 0;
}
