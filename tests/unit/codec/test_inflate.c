/* Compressed bodies: both wrappers, any cut, bombs, truncation, corruption, bytes behind the end. */
#include "unit/codec/words_test.h"

#include <zlib.h>

#include "codec/deflate.h"
#include "codec/inflate.h"

typedef struct sink {
    char *bytes;
    size_t length, cap;
    size_t refuse_after; /* 0: never */
    int bites;           /* it takes a part of what comes */
} sink;

/* ks_inflate_fn */
static ks_status take(void *context, const char *bytes, size_t *n, ks_error *error)
{
    sink *s = context;
    assert_true(*n > 0);
    if (s->refuse_after && s->length + *n > s->refuse_after) return ks_fail(error, KS_COUNT, "enough");
    if (s->bites) *n = words_below(*n + 1);
    assert_true(s->length + *n <= s->cap);
    memcpy(s->bytes + s->length, bytes, *n);
    s->length += *n;
    return KS_OK;
}

static size_t compress_as(int window_bits, const char *bytes, size_t n, char *out, size_t cap)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)bytes;
    stream.avail_in = (uInt)n;
    stream.next_out = (Bytef *)out;
    stream.avail_out = (uInt)cap;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    const size_t length = stream.total_out;
    deflateEnd(&stream);
    return length;
}

static ks_status inflate_all(const char *bytes, size_t n, size_t most, uint64_t max_bytes, sink *s, ks_error *error)
{
    ks_inflate *it = NULL;
    size_t slice;
    assert_int_equal(ks_inflate_begin(max_bytes, &slice, &it, error), KS_OK);
    ks_status status = KS_OK;
    for (size_t at = 0, taken; at < n && status == KS_OK; at += taken) {
        const size_t fed = 1 + words_below(most), before = s->length;
        taken = fed < n - at ? fed : n - at;
        slice = 1 + words_below(3 * KS_INFLATE_STEP);
        status = ks_inflate_feed(it, bytes + at, &taken, take, s, error);
        assert_true(taken <= fed && s->length - before <= 4 * 16384); /* what lay there, and three steps */
    }
    if (status == KS_OK) status = ks_inflate_end(it, error);
    ks_inflate_fini(&it);
    assert_null(it);
    return status;
}

enum { PLAIN = 100000, GZIP = 15 + 16, ZLIB = 15, RAW = -15 };
static char plain[PLAIN], packed[PLAIN + 1000], back[PLAIN];

static void fill_plain(void)
{
    for (size_t i = 0; i < PLAIN; i++) plain[i] = (char)(words_below(4) ? 'a' : words_random());
}

static void gzip_and_zlib_come_back_whatever_the_cuts(void **state)
{
    (void)state;
    static const int windows[] = {GZIP, ZLIB};
    for (int round = 0; round < 20; round++) {
        fill_plain();
        const size_t n = round == 0 ? 0 : 1 + words_below(PLAIN),
                     length = compress_as(windows[round % 2], plain, n, packed, sizeof packed);
        sink s = {.bytes = back, .cap = PLAIN, .bites = round % 3 == 0};
        ks_error error = {0};
        assert_int_equal(inflate_all(packed, length, 1 + words_below(5000), n, &s, &error), KS_OK);
        assert_int_equal(s.length, n);
        assert_memory_equal(back, plain, n);
    }
}

/* Members of n bytes in all, some of them empty, one behind the other; returns their length, and the last one's. */
static size_t compress_members(size_t n, size_t *last)
{
    size_t length = 0;
    for (size_t at = 0, part; at < n || length == 0; at += part) {
        part = words_below(3) ? words_below(n - at + 1) : 0;
        *last = compress_as(GZIP, plain + at, part, packed + length, sizeof packed - length);
        length += *last;
    }
    return length;
}

static void members_of_gzip_are_one_body(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        fill_plain();
        const size_t n = 1 + words_below(PLAIN / 2), most = 1 + words_below(round % 2 ? 5000 : 5);
        size_t last = 0;
        const size_t length = compress_members(n, &last);
        sink s = {.bytes = back, .cap = PLAIN, .bites = round % 3 == 0};
        ks_error error = {0};
        assert_int_equal(inflate_all(packed, length, most, n, &s, &error), KS_OK);
        assert_int_equal(s.length, n);
        assert_memory_equal(back, plain, n);
        s.length = 0; /* a limit for all of them together */
        assert_int_equal(inflate_all(packed, length, most, n - 1, &s, &error), KS_BODY_SIZE);
        s.length = 0; /* the last one is cut */
        assert_int_equal(inflate_all(packed, length - 1 - words_below(last - 1), most, n, &s, &error), KS_ENCODED);
        s.length = 0; /* what follows is none */
        packed[length] = (char)words_random();
        packed[length + 1] = (char)~0x8b;
        assert_int_equal(inflate_all(packed, length + 2, most, n, &s, &error), KS_ENCODED);
    }
    const size_t length = compress_as(ZLIB, plain, 10, packed, sizeof packed);
    sink s = {.bytes = back, .cap = PLAIN};
    ks_error error = {0};
    memcpy(packed + length, packed, length);
    assert_int_equal(inflate_all(packed, 2 * length, 5000, PLAIN, &s, &error), KS_ENCODED);
}

static void one_byte_past_the_limit_is_413(void **state)
{
    (void)state;
    fill_plain();
    const size_t length = compress_as(GZIP, plain, PLAIN, packed, sizeof packed);
    sink s = {.bytes = back, .cap = PLAIN};
    ks_error error = {0};
    assert_int_equal(inflate_all(packed, length, 5000, PLAIN - 1, &s, &error), KS_BODY_SIZE);
    assert_non_null(strstr(error.text, "Decompressed data size exceeds the maximum allowed value of 99999 bytes."));
}

static void a_bomb_costs_no_more_than_the_limit(void **state)
{
    (void)state;
    enum { BOMB = 64 << 20 };
    char *const zeros = calloc(1, BOMB);
    const size_t length = compress_as(GZIP, zeros, BOMB, packed, sizeof packed);
    free(zeros);
    sink s = {.bytes = back, .cap = PLAIN};
    ks_error error = {0};
    assert_int_equal(inflate_all(packed, length, sizeof packed, PLAIN, &s, &error), KS_BODY_SIZE);
    assert_true(s.length <= PLAIN);
}

static void damage_is_400(void **state)
{
    (void)state;
    fill_plain();
    const size_t length = compress_as(GZIP, plain, 5000, packed, sizeof packed);
    sink s = {.bytes = back, .cap = PLAIN};
    ks_error error = {0};
    for (size_t cut = 0; cut < length; cut += 1 + words_below(7)) {
        s.length = 0;
        assert_int_equal(inflate_all(packed, cut, 300, PLAIN, &s, &error), KS_ENCODED);
    }
    packed[length] = 'x';
    s.length = 0;
    assert_int_equal(inflate_all(packed, length + 1, 300, PLAIN, &s, &error), KS_ENCODED);
    packed[length - 5] ^= 1; /* the checksum */
    s.length = 0;
    assert_int_equal(inflate_all(packed, length, 300, PLAIN, &s, &error), KS_ENCODED);
    s.length = 0;
    assert_int_equal(inflate_all("{\"inputs\":[]}", 13, 300, PLAIN, &s, &error), KS_ENCODED);
    const size_t raw = compress_as(RAW, plain, 5000, packed, sizeof packed);
    s.length = 0;
    assert_int_equal(inflate_all(packed, raw, 300, PLAIN, &s, &error), KS_ENCODED);
}

static void the_takers_refusal_is_passed_on(void **state)
{
    (void)state;
    fill_plain();
    const size_t length = compress_as(ZLIB, plain, PLAIN, packed, sizeof packed);
    sink s = {.bytes = back, .cap = PLAIN, .refuse_after = 20000};
    ks_error error = {0};
    assert_int_equal(inflate_all(packed, length, 5000, PLAIN, &s, &error), KS_COUNT);
    assert_string_equal(error.text, "enough");
}

static const struct {
    const char *accept;
    ks_compression packing;
} accept_rows[] = {
    {NULL, KS_COMPRESSION_NONE},
    {"", KS_COMPRESSION_NONE},
    {"gzip", KS_COMPRESSION_GZIP},
    {"deflate", KS_COMPRESSION_DEFLATE},
    {"GZIP", KS_COMPRESSION_GZIP},
    {"gzip, deflate, br", KS_COMPRESSION_GZIP},
    {"deflate, gzip", KS_COMPRESSION_DEFLATE},
    {"deflate;q=0.5, gzip;q=0.9", KS_COMPRESSION_GZIP},
    {"deflate;q=0.5,gzip;q=0.05", KS_COMPRESSION_DEFLATE},
    {"identity, gzip", KS_COMPRESSION_NONE},
    {"identity;q=0.5, gzip", KS_COMPRESSION_GZIP},
    {"gzip;q=0", KS_COMPRESSION_NONE},
    {"gzip;q=0.000", KS_COMPRESSION_NONE},
    {"gzip;q=nonsense", KS_COMPRESSION_NONE},
    {"gzip;", KS_COMPRESSION_NONE},
    {"br, zstd, *", KS_COMPRESSION_NONE},
    {"xgzip, gzipx", KS_COMPRESSION_NONE},
    {" , ,\tdeflate ; q=1.0", KS_COMPRESSION_DEFLATE},
    {"gzip;q=99999999999999999999", KS_COMPRESSION_GZIP},
};

static void accepted_encodings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accept_rows / sizeof accept_rows[0]; i++)
        if (ks_compression_accepted(accept_rows[i].accept) != accept_rows[i].packing)
            fail_msg("%s", accept_rows[i].accept);
}

static void what_is_packed_comes_back(void **state)
{
    (void)state;
    static const ks_compression packings[] = {KS_COMPRESSION_GZIP, KS_COMPRESSION_DEFLATE};
    for (int i = 0; i < 2; i++) {
        fill_plain();
        char *const out = malloc(ks_compression_bound(PLAIN));
        const size_t length = ks_compress(packings[i], plain, PLAIN, out);
        assert_in_range(length, 1, PLAIN - 1);
        assert_int_equal((unsigned char)out[0] == 0x1f, packings[i] == KS_COMPRESSION_GZIP);
        sink s = {.bytes = back, .cap = PLAIN};
        ks_error error = {0};
        assert_int_equal(inflate_all(out, length, 5000, PLAIN, &s, &error), KS_OK);
        assert_int_equal(s.length, PLAIN);
        assert_memory_equal(back, plain, PLAIN);
        /* What was packed once does not become smaller. */
        char *const again = malloc(ks_compression_bound(length));
        const size_t twice = ks_compress(packings[i], out, length, again);
        assert_true(twice == 0 || twice < length);
        free(again);
        free(out);
    }
    char noise[2048], out[4096];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (char)words_below(256);
    assert_int_equal(ks_compress(KS_COMPRESSION_GZIP, noise, sizeof noise, out), 0);
}

int main(void)
{
    words_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip_and_zlib_come_back_whatever_the_cuts),
        cmocka_unit_test(members_of_gzip_are_one_body),
        cmocka_unit_test(one_byte_past_the_limit_is_413),
        cmocka_unit_test(a_bomb_costs_no_more_than_the_limit),
        cmocka_unit_test(damage_is_400),
        cmocka_unit_test(the_takers_refusal_is_passed_on),
        cmocka_unit_test(accepted_encodings),
        cmocka_unit_test(what_is_packed_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
