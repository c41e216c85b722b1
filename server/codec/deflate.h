/* Compressed responses: what a client accepts, and one response packed for it. Any thread. */
#ifndef KS_DEFLATE_H
#define KS_DEFLATE_H
#include <stddef.h>

#include "kernserve/status.h"

typedef enum ks_compression { KS_COMPRESSION_NONE, KS_COMPRESSION_GZIP, KS_COMPRESSION_DEFLATE } ks_compression;

/* The value of Accept-Encoding, or NULL. The highest weight wins, the first one on a tie; what is not known is skipped. */
ks_compression ks_compression_accepted(const char *accept_encoding);
const char *ks_compression_name(ks_compression compression); /* for Content-Encoding */
size_t ks_compression_bound(size_t n);                       /* bytes that packing n bytes may take */
/* out: ks_compression_bound(n) bytes. The bytes written; 0: no memory, or not smaller than before. */
size_t ks_compress(ks_compression compression, const char *bytes, size_t n, char *out);
#endif
