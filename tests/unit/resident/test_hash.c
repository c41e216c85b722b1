/* Hashes by hashers beside hashes by the caller: equal etags and digests, whatever the sizes and the pieces; bytes are left alone once
 * their count of readers has fallen; who sleeps is woken. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "resident/hash.h"

enum { MIB = 1 << 20, BUFFERS = 6, BUFFER = 2 << 20 };
static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state;
}

static size_t random_below(size_t n)
{
    return n ? (size_t)(random_next() % n) : 0;
}

static unsigned char *random_bytes(size_t n)
{
    unsigned char *bytes = malloc(n + 8);
    assert_non_null(bytes);
    for (size_t at = 0; at < n; at += 8) {
        const uint64_t word = random_next();
        memcpy(bytes + at, &word, 8);
    }
    return bytes;
}

static ks_content content_of(size_t bytes)
{
    return (ks_content){.tensor = {.dtype = KS_UINT8, .rank = 1, .dims = {(int64_t)bytes}, .size_bytes = bytes}};
}

static void fed(const unsigned char *bytes, size_t n, bool body_digest, ks_content *out)
{
    ks_hash *hash = ks_hash_open(body_digest);
    *out = content_of(n);
    for (size_t at = 0, part; at < n; at += part) {
        part = 1 + random_below(n - at);
        ks_hash_feed(hash, bytes + at, part);
    }
    ks_hash_end(hash, out);
    ks_hash_close(&hash);
}

static void assert_same(const ks_content *left, const ks_content *right)
{
    assert_string_equal(left->etag, right->etag);
    assert_int_equal(left->has_body_digest, right->has_body_digest);
    if (left->has_body_digest) assert_memory_equal(left->body_digest, right->body_digest, KS_DIGEST_BYTES);
}

static size_t near_a_mib(void)
{
    static const size_t sizes[] = {0, 1, 4096, KS_HASH_STEP, MIB, 2 * MIB, 3 * MIB, 9 * MIB};
    const size_t size = sizes[random_below(sizeof sizes / sizeof sizes[0])], off = random_below(141);
    return size + off > 70 ? size + off - 70 : 0;
}

static void rest_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = 50000};
    nanosleep(&moment, NULL);
}

/* From where they stay, as in a content's memory: whole steps, no more than the window. */
static void given_from_memory(ks_hashers *hashers, const unsigned char *bytes, size_t n, bool body_digest,
                              ks_content *out)
{
    _Atomic int readers = 0;
    ks_hash *hash = ks_hash_open_shared(hashers, NULL, n, body_digest);
    *out = content_of(n);
    for (size_t at = 0, part; at < n; at += part) {
        part = KS_HASH_STEP * (1 + random_below(2));
        if (part > n - at) part = n - at;
        while (ks_hash_waiting(hash) + part > KS_HASH_WINDOW) rest_a_moment();
        ks_hash_give(hash, bytes + at, part, &readers);
    }
    ks_hash_wait(hash, &readers);
    assert_int_equal(ks_hash_waiting(hash), 0);
    ks_hash_end(hash, out);
    ks_hash_close(&hash);
}

/* A ring's buffers: filled by pieces of any size, given by whole steps and at the end, overwritten when nobody reads them. */
static void given_from_a_ring(ks_hashers *hashers, const unsigned char *bytes, size_t n, bool body_digest,
                              ks_content *out)
{
    static unsigned char ring[BUFFERS][BUFFER];
    static _Atomic int readers[BUFFERS];
    ks_hash *hash = ks_hash_open_shared(hashers, NULL, n, body_digest);
    *out = content_of(n);
    int buffer = 0;
    for (size_t at = 0; at < n; buffer = (buffer + 1) % BUFFERS) {
        const size_t start = at, full = random_below(4) ? BUFFER : 1 + random_below(BUFFER);
        const size_t end = full < n - at ? at + full : n;
        size_t told = at;
        ks_hash_wait(hash, &readers[buffer]);
        memset(ring[buffer], 0xee, BUFFER);
        while (at < end) {
            size_t part = 1 + random_below(2 * KS_HASH_STEP);
            if (part > end - at) part = end - at;
            memcpy(ring[buffer] + (at - start), bytes + at, part);
            at += part;
            const size_t step = at == end ? at : at - at % KS_HASH_STEP;
            if (step > told) ks_hash_give(hash, ring[buffer] + (told - start), step - told, &readers[buffer]);
            if (step > told) told = step;
        }
    }
    for (int i = 0; i < BUFFERS; i++) ks_hash_wait(hash, &readers[i]);
    ks_hash_end(hash, out);
    ks_hash_close(&hash);
}

static void hashers_find_what_the_caller_finds(void **state)
{
    (void)state;
    const char *cases = getenv("KS_CASES");
    ks_error error;
    for (int i = 0; i < (cases ? atoi(cases) : 60); i++) {
        ks_hashers *hashers = NULL;
        ks_content want, memory, ring;
        const size_t n = near_a_mib();
        const bool body_digest = random_below(2) != 0;
        unsigned char *bytes = random_bytes(n);
        assert_int_equal(ks_hashers_open(1 + (int)random_below(4), &hashers, &error), KS_OK);
        fed(bytes, n, body_digest, &want);
        given_from_memory(hashers, bytes, n, body_digest, &memory);
        assert_same(&want, &memory);
        given_from_a_ring(hashers, bytes, n, body_digest, &ring);
        assert_same(&want, &ring);
        ks_hashers_close(&hashers);
        free(bytes);
    }
}

/* Several at a time, of which none waits for another one's queue. */
static void hashes_share_the_hashers(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    ks_error error;
    ks_hashers *hashers = NULL;
    ks_hash *hash[COUNT];
    unsigned char *bytes[COUNT];
    size_t size[COUNT];
    _Atomic int readers[COUNT] = {0};
    assert_int_equal(ks_hashers_open(3, &hashers, &error), KS_OK);
    for (int i = 0; i < COUNT; i++) {
        size[i] = KS_HASH_STEP + random_below(3 * MIB);
        bytes[i] = random_bytes(size[i]);
        hash[i] = ks_hash_open_shared(hashers, NULL, size[i], i % 2);
    }
    for (size_t at = 0; at < 4 * MIB; at += KS_HASH_STEP)
        for (int i = 0; i < COUNT; i++)
            if (at < size[i])
                ks_hash_give(hash[i], bytes[i] + at, size[i] - at < KS_HASH_STEP ? size[i] - at : KS_HASH_STEP,
                             &readers[i]);
    for (int i = 0; i < COUNT; i++) {
        ks_content want, got = content_of(size[i]);
        fed(bytes[i], size[i], i % 2, &want);
        ks_hash_wait(hash[i], &readers[i]);
        ks_hash_end(hash[i], &got);
        ks_hash_close(&hash[i]);
        assert_same(&want, &got);
        free(bytes[i]);
    }
    ks_hashers_close(&hashers);
}

static void a_sleeper_that_asked_is_woken_once(void **state)
{
    (void)state;
    ks_error error;
    ks_hashers *hashers = NULL;
    ks_hash_waiter waiter = {.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    _Atomic int readers = 0;
    unsigned char *bytes = random_bytes(4 * KS_HASH_STEP);
    uint64_t count = 0;
    assert_int_equal(ks_hashers_open(1, &hashers, &error), KS_OK);
    ks_hash *hash = ks_hash_open_shared(hashers, &waiter, 4 * KS_HASH_STEP, false);
    ks_hash_give(hash, bytes, KS_HASH_STEP, &readers);
    ks_hash_wait(hash, &readers);
    assert_int_equal(read(waiter.wake_fd, &count, sizeof count), -1); /* it has not asked */
    atomic_store(&waiter.asked, true);
    ks_hash_give(hash, bytes + KS_HASH_STEP, 3 * KS_HASH_STEP, &readers);
    struct pollfd wait = {.fd = waiter.wake_fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 20000), 1);
    assert_false(atomic_load(&waiter.asked));
    ks_hash_wait(hash, &readers);
    assert_int_equal(read(waiter.wake_fd, &count, sizeof count), sizeof count);
    assert_int_equal(count, 1);
    ks_hash_close(&hash);
    ks_hashers_close(&hashers);
    close(waiter.wake_fd);
    free(bytes);
}

/* What is given up is hashed to its end, and nothing is read behind that. */
static void closing_waits_for_the_readers(void **state)
{
    (void)state;
    ks_error error;
    ks_hashers *hashers = NULL;
    _Atomic int readers = 0;
    assert_int_equal(ks_hashers_open(2, &hashers, &error), KS_OK);
    unsigned char *bytes = random_bytes(4 * MIB);
    ks_hash *hash = ks_hash_open_shared(hashers, NULL, 9 * MIB, true);
    ks_hash_give(hash, bytes, 3 * MIB + 5, &readers);
    ks_hash_close(&hash);
    assert_int_equal(atomic_load(&readers), 0);
    free(bytes);
    ks_hashers_close(&hashers);
}

int main(void)
{
    const char *seed = getenv("KS_SEED");
    const uint64_t chosen = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    random_state = chosen * 0x9E3779B97F4A7C15u | 1;
    printf("KS_SEED=%llu\n", (unsigned long long)chosen);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashers_find_what_the_caller_finds), cmocka_unit_test(hashes_share_the_hashers),
        cmocka_unit_test(a_sleeper_that_asked_is_woken_once), cmocka_unit_test(closing_waits_for_the_readers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
