/* Compressed answers: what a client accepts, and one answer packed for it. Any thread. */
#ifndef KS_DEFLATE_H
#define KS_DEFLATE_H
#include <stddef.h>

#include "kernserve/status.h"

typedef enum ks_packing { KS_PACKING_NONE, KS_PACKING_GZIP, KS_PACKING_DEFLATE } ks_packing;

/* The value of Accept-Encoding, or NULL. The highest weight wins, the first one on a tie; what is not known is skipped. */
ks_packing ks_packing_accepted(const char *accept_encoding);
const char *ks_packing_name(ks_packing packing); /* for Content-Encoding */
size_t ks_packing_bound(size_t n);               /* bytes that packing n bytes may take */
/* out: ks_packing_bound(n) bytes. The bytes written; 0: no memory, or not smaller than before. */
size_t ks_pack(ks_packing packing, const char *bytes, size_t n, char *out);
#endif
