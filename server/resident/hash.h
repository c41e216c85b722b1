/* The identity of a content while its bytes come, in order: its etag, and where it is asked for the SHA-256 of all bytes.
 *
 * Tree      a leaf is the SHA-256 of a MiB of the bytes; the etag follows from the leaves. So leaves are hashed beside each other.
 * By whom   ks_hash_open: the caller, in ks_hash_feed. ks_hash_open_shared: hashers, which read the bytes where they lie.
 * Threads   a hash belongs to one thread at a time. */
#ifndef KS_HASH_H
#define KS_HASH_H
#include "resident/hashers.h"
#include "resident/store.h"

enum {
    KS_HASH_STEP = 256 << 10, /* bytes that hashers are given at a time, and are not worth it below */
    KS_HASH_WINDOW = 8 << 20, /* of a transfer, that wait for hashers */
    KS_HASH_BUFFERS_MAX = 16  /* places of bytes given from which others than whole steps may come */
};

typedef struct ks_hash ks_hash;

/* body_digest: of all bytes, too, which doubles the work. NULL: no memory. */
ks_hash *ks_hash_open(bool body_digest);
void ks_hash_feed(ks_hash *hash, const void *bytes, size_t n);

/* Of so many bytes in all. waiter: woken when some are hashed. NULL: no memory. */
ks_hash *ks_hash_open_shared(ks_hashers *hashers, ks_hash_waiter *waiter, size_t bytes, bool body_digest);
/* Bytes of such a hash, which stay until *readers, which counts them from now on, has fallen again. In whole steps, but for what a
 * buffer that leaves early and the end leave over; at most KS_HASH_WINDOW of bytes, or KS_HASH_BUFFERS_MAX buffers, wait at a time. */
void ks_hash_give(ks_hash *hash, const void *bytes, size_t n, _Atomic int *readers);
size_t ks_hash_waiting(const ks_hash *hash); /* bytes given and not hashed; 0 of a hash that is fed */
void ks_hash_wait(const ks_hash *hash, const _Atomic int *readers); /* until *readers is 0; it is this hash's alone */

/* Fills etag, body_digest of a content whose tensor is set; no bytes wait, and no more may come. */
void ks_hash_end(ks_hash *hash, ks_content *content);
void ks_hash_close(ks_hash **hash); /* waits for hashers */
#endif
