/* The identity of a content while its bytes come: its etag, and where it is asked for the SHA-256 of all bytes.
 *
 * Owns      the states of the hash functions. This file alone knows nettle.
 * Interface store.h: ks_hash_*
 * Threads   a hash belongs to one thread at a time
 * Limits    some 1.4 GB/s on one core; half of it with the digest of the body. */
#include <assert.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "resident/store.h"

static const size_t LEAF_BYTES = 1 << 20;
static_assert(SHA256_DIGEST_SIZE == KS_DIGEST_BYTES, "a digest is SHA-256's");

struct ks_hash {
    struct sha256_ctx leaf, leaves, body;
    size_t leaf_bytes; /* of the leaf that is under way */
    bool body_digest;
};

ks_hash *ks_hash_open(bool body_digest)
{
    ks_hash *hash = malloc(sizeof *hash);
    if (!hash) return NULL;
    hash->leaf_bytes = 0;
    hash->body_digest = body_digest;
    sha256_init(&hash->leaf);
    sha256_init(&hash->leaves);
    sha256_init(&hash->body);
    return hash;
}

void ks_hash_close(ks_hash **hash)
{
    free(*hash);
    *hash = NULL;
}

static void end_leaf(ks_hash *hash)
{
    unsigned char digest[SHA256_DIGEST_SIZE];
    sha256_digest(&hash->leaf, sizeof digest, digest); /* and begins anew */
    sha256_update(&hash->leaves, sizeof digest, digest);
    hash->leaf_bytes = 0;
}

void ks_hash_feed(ks_hash *hash, const void *bytes, size_t n)
{
    if (hash->body_digest) sha256_update(&hash->body, n, bytes);
    for (const unsigned char *at = bytes; n > 0;) {
        const size_t part = ks_least_size(n, LEAF_BYTES - hash->leaf_bytes);
        sha256_update(&hash->leaf, part, at);
        hash->leaf_bytes += part;
        at += part;
        n -= part;
        if (hash->leaf_bytes == LEAF_BYTES) end_leaf(hash);
    }
}

static void write_hex(const unsigned char *digest, char *out)
{
    for (size_t i = 0; i < SHA256_DIGEST_SIZE; i++) {
        *out++ = "0123456789abcdef"[digest[i] >> 4];
        *out++ = "0123456789abcdef"[digest[i] & 15];
    }
    *out = 0;
}

void ks_hash_end(ks_hash *hash, ks_content *content)
{
    char head[256], dims[192];
    unsigned char digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx whole;
    if (hash->leaf_bytes > 0) end_leaf(hash);
    sha256_digest(&hash->leaves, sizeof digest, digest);
    ks_dims_text(&content->tensor, dims, sizeof dims);
    const int n = snprintf(head, sizeof head, "kernserve1\n%s\n%s\n", ks_dtype_name(content->tensor.dtype), dims);
    sha256_init(&whole);
    sha256_update(&whole, (size_t)n, (const uint8_t *)head);
    sha256_update(&whole, sizeof digest, digest);
    sha256_digest(&whole, sizeof digest, digest);
    write_hex(digest, content->etag);
    content->has_body_digest = hash->body_digest;
    if (hash->body_digest) sha256_digest(&hash->body, KS_DIGEST_BYTES, content->body_digest);
}
