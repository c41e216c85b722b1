/* gzip and deflate (zlib) request bodies, bounded while they are inflated. The only room that knows zlib.
 * One thread at a time; a ks_inflate holds some 40 KiB from begin to fini. */
#ifndef KS_INFLATE_H
#define KS_INFLATE_H
#include <stddef.h>
#include <stdint.h>

#include "kernserve/status.h"

typedef struct ks_inflate ks_inflate;

enum { KS_INFLATE_STEP = 2048 }; /* with reading the numbers in them, 16 KiB take as long as some thousand more */

/* Takes inflated bytes in order, *n of them or as many as it says there: it gets the rest again. A status other than KS_OK
 * stops. */
typedef ks_status ks_inflate_fn(void *context, const char *bytes, size_t *n, ks_error *error);

/* KS_MEMORY. max_bytes: the inflated body's limit. slice: what may still be inflated in this turn, in steps of
 * KS_INFLATE_STEP for each 16 KiB; NULL: any. */
ks_status ks_inflate_begin(uint64_t max_bytes, size_t *slice, ks_inflate **out, ks_error *error);
/* Sets *n to what was used of bytes: less where the slice ended before them, or `take` took less; what is left comes
 * first the next time. KS_ENCODED: corrupt, or bytes behind the stream's end. KS_BODY_SIZE: inflates past max_bytes.
 * Or what take returned. */
ks_status ks_inflate_feed(ks_inflate *inflate, const char *bytes, size_t *n, ks_inflate_fn *take, void *context,
                          ks_error *error);
/* KS_ENCODED: the stream is truncated. */
ks_status ks_inflate_end(ks_inflate *inflate, ks_error *error);
void ks_inflate_fini(ks_inflate **inflate);
#endif
