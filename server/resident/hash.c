/* Owns      the states of the hash functions. This file alone knows nettle.
 * Interface hash.h
 * Threads   the caller's; the states of a shared hash are a hasher's while it has a run of them, the rest is under the hashers' lock.
 * Limits    some 1.4 GB/s on one core; half of it with the digest of the body. Of a shared hash LEAVES_MAX leaves are open. */
#include "resident/hash.h"

#include <assert.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static const size_t LEAF_BYTES = 1 << 20;
static_assert(SHA256_DIGEST_SIZE == KS_DIGEST_BYTES, "a digest is SHA-256's");
/* A leaf that is open has a step that waits, or some bytes in a buffer, or is the one that is being given. */
enum {
    LEAVES_MAX = KS_HASH_WINDOW / KS_HASH_STEP + 1 + KS_HASH_BUFFERS_MAX,
    LEAF_RUNS = (1 << 20) / KS_HASH_STEP + KS_HASH_BUFFERS_MAX /* of a leaf, or of the body beside one */
};

/* A leaf of a shared hash, or its body. */
typedef struct stem {
    ks_run_queue queue; /* first: its address is the stem's */
    struct sha256_ctx state;
    ks_hash *hash;
    size_t index;  /* of the leaf */
    bool complete; /* its last run has been given */
    struct stem *next_free;
} stem;

/* What a hash by hashers has beside. */
typedef struct shared {
    ks_hashers *hashers;
    /* under the hashers' lock: */
    stem *free, *filling; /* leaves; the one that is being given */
    ks_run *free_runs;
    size_t leaves, filled; /* leaves begun; bytes of the one that is being given */
    size_t waiting;        /* bytes of leaves and body that are not hashed */
    stem body;
    unsigned char *digests; /* of all leaves */
    stem *stems;
    ks_run *runs;
} shared;

struct ks_hash {
    struct sha256_ctx leaf, leaves, body;
    size_t leaf_bytes; /* of the leaf that is under way */
    bool body_digest;
    shared *shared; /* NULL: the caller hashes */
};

/* --- by the caller ------------------------------------------------------------------------------------------------ */

ks_hash *ks_hash_open(bool body_digest)
{
    ks_hash *hash = malloc(sizeof *hash);
    if (!hash) return NULL;
    hash->leaf_bytes = 0;
    hash->body_digest = body_digest;
    hash->shared = NULL;
    sha256_init(&hash->leaf);
    sha256_init(&hash->leaves);
    sha256_init(&hash->body);
    return hash;
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

/* --- by hashers --------------------------------------------------------------------------------------------------- */

/* ks_run_queue.hash */
static void hash_run(ks_run_queue *queue, const unsigned char *bytes, size_t n)
{
    sha256_update(&((stem *)queue)->state, n, bytes);
}

static void end_stem(shared *all, stem *leaf)
{
    sha256_digest(&leaf->state, SHA256_DIGEST_SIZE, all->digests + leaf->index * SHA256_DIGEST_SIZE);
    leaf->next_free = all->free;
    all->free = leaf;
}

/* ks_run_queue.done */
static void run_done(ks_run_queue *queue, ks_run *run)
{
    stem *of = (stem *)queue;
    shared *all = of->hash->shared;
    all->waiting -= run->n;
    run->next = all->free_runs;
    all->free_runs = run;
    if (of->complete && !queue->busy) end_stem(all, of);
}

static void init_stem(ks_hash *hash, stem *of, ks_hash_waiter *waiter)
{
    memset(of, 0, sizeof *of);
    of->hash = hash;
    of->queue.hash = hash_run;
    of->queue.done = run_done;
    of->queue.waiter = waiter;
    sha256_init(&of->state);
}

static void close_shared(shared *all)
{
    free(all->digests);
    free(all->stems);
    free(all->runs);
    free(all);
}

/* NULL: no memory. */
static shared *open_shared(ks_hash *hash, ks_hash_waiter *waiter, size_t bytes)
{
    const size_t leaves = bytes / LEAF_BYTES + 1, stems = ks_least_size(leaves, LEAVES_MAX);
    const size_t runs = stems * LEAF_RUNS * (hash->body_digest ? 2 : 1);
    shared *all = calloc(1, sizeof *all);
    if (!all) return NULL;
    all->digests = malloc(leaves * SHA256_DIGEST_SIZE);
    all->stems = calloc(stems, sizeof *all->stems);
    all->runs = calloc(runs, sizeof *all->runs);
    if (!all->digests || !all->stems || !all->runs) {
        close_shared(all);
        return NULL;
    }
    for (size_t i = 0; i < stems; i++) {
        init_stem(hash, &all->stems[i], waiter);
        all->stems[i].next_free = all->free;
        all->free = &all->stems[i];
    }
    for (size_t i = 0; i < runs; i++) {
        all->runs[i].next = all->free_runs;
        all->free_runs = &all->runs[i];
    }
    init_stem(hash, &all->body, waiter);
    return all;
}

ks_hash *ks_hash_open_shared(ks_hashers *hashers, ks_hash_waiter *waiter, size_t bytes, bool body_digest)
{
    ks_hash *hash = ks_hash_open(body_digest);
    if (!hash) return NULL;
    hash->shared = open_shared(hash, waiter, bytes);
    if (hash->shared)
        hash->shared->hashers = hashers;
    else
        ks_hash_close(&hash);
    return hash;
}

static void give_run(shared *all, stem *to, const unsigned char *bytes, size_t n, _Atomic int *readers)
{
    ks_run *run = all->free_runs;
    assert(run); /* as many as can wait */
    all->free_runs = run->next;
    run->bytes = bytes;
    run->n = n;
    run->readers = readers;
    all->waiting += n;
    ks_run_queue_add(all->hashers, &to->queue, run);
}

/* The leaf that the next bytes are of. */
static stem *filling(shared *all)
{
    if (all->filling) return all->filling;
    stem *leaf = all->free;
    assert(leaf); /* as many as can be open */
    all->free = leaf->next_free;
    leaf->index = all->leaves++;
    leaf->complete = false;
    all->filled = 0;
    all->filling = leaf;
    return leaf;
}

static void give_leaves(shared *all, const unsigned char *bytes, size_t n, _Atomic int *readers)
{
    while (n > 0) {
        stem *leaf = filling(all);
        const size_t part = ks_least_size(n, LEAF_BYTES - all->filled);
        all->filled += part;
        leaf->complete = all->filled == LEAF_BYTES;
        if (leaf->complete) all->filling = NULL;
        give_run(all, leaf, bytes, part, readers);
        bytes += part;
        n -= part;
    }
}

void ks_hash_give(ks_hash *hash, const void *bytes, size_t n, _Atomic int *readers)
{
    shared *all = hash->shared;
    if (n == 0) return;
    ks_hashers_lock(all->hashers);
    give_leaves(all, bytes, n, readers);
    if (hash->body_digest) give_run(all, &all->body, bytes, n, readers);
    ks_hashers_unlock(all->hashers);
}

size_t ks_hash_waiting(const ks_hash *hash)
{
    if (!hash->shared) return 0;
    ks_hashers_lock(hash->shared->hashers);
    const size_t waiting = hash->shared->waiting;
    ks_hashers_unlock(hash->shared->hashers);
    return waiting;
}

void ks_hash_wait(const ks_hash *hash, const _Atomic int *readers)
{
    if (!hash->shared) return;
    ks_hashers_lock(hash->shared->hashers);
    while (atomic_load(readers) > 0) ks_hashers_wait(hash->shared->hashers);
    ks_hashers_unlock(hash->shared->hashers);
}

/* The leaves' digests become what the caller's own would be. */
static void take_shared(ks_hash *hash)
{
    shared *all = hash->shared;
    ks_hashers_lock(all->hashers);
    assert(all->waiting == 0);
    if (all->filling) end_stem(all, all->filling);
    all->filling = NULL;
    ks_hashers_unlock(all->hashers);
    sha256_update(&hash->leaves, all->leaves * SHA256_DIGEST_SIZE, all->digests);
    hash->body = all->body.state;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

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
    if (hash->shared) take_shared(hash);
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

void ks_hash_close(ks_hash **closed)
{
    ks_hash *hash = *closed;
    *closed = NULL;
    if (!hash) return;
    shared *all = hash->shared;
    if (all && all->hashers) {
        ks_hashers_lock(all->hashers);
        while (all->waiting > 0) ks_hashers_wait(all->hashers);
        ks_hashers_unlock(all->hashers);
    }
    if (all) close_shared(all);
    free(hash);
}
