/* The store of tensors: identity, conditions, replacement, what goes by itself and when, what readers keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "resident/hash.h"
#include "kernserve/backends.h"

static const int64_t SECOND = 1000000000;
static int64_t now;

static int64_t stepped(void)
{
    return now;
}

typedef struct fixture {
    ks_device *device;
    ks_store *store;
    ks_error error;
} fixture;

static const ks_tenant operators = {.name = "", .is_operator = true};
static const ks_tenant alice = {.name = "alice", .bytes = 4096, .tensors = 3};

static void open_store(fixture *f, uint64_t limit_bytes, uint64_t generation, int record_fd)
{
    const ks_limits limits = {.device_index = -1};
    now = 100 * SECOND;
    assert_int_equal(ks_backend_cpu->open(&limits, &f->device, &f->error), KS_OK);
    const ks_store_options options = {.backend = ks_backend_cpu,
                                      .device = f->device,
                                      .limit_bytes = limit_bytes,
                                      .ttl_s = 3600,
                                      .uploads_max = 2,
                                      .generation = generation,
                                      .record_fd = record_fd,
                                      .now_ns = stepped};
    assert_int_equal(ks_store_open(&options, &f->store, &f->error), KS_OK);
}

static void close_store(fixture *f)
{
    ks_store_close(&f->store);
    ks_backend_cpu->close(&f->device);
}

static ks_tensor bytes_tensor(size_t bytes)
{
    return (ks_tensor){.dtype = KS_UINT8, .rank = 1, .dims = {(int64_t)bytes}, .size_bytes = bytes};
}

static ks_put put_of(const ks_tenant *tenant, const char *name)
{
    return (ks_put){.tenant = tenant, .name = name, .ttl_s = -1};
}

/* A content of equal bytes, whole but not published. */
static ks_status reserve(fixture *f, const ks_tenant *tenant, size_t bytes, int value, ks_content **out)
{
    const ks_tensor tensor = bytes_tensor(bytes);
    const ks_status status = ks_store_reserve(f->store, tenant, "tensor 'W'", &tensor, out, &f->error);
    if (status != KS_OK) return status;
    memset((*out)->memory.in, value, bytes);
    ks_hash *hash = ks_hash_open(true);
    ks_hash_feed(hash, (*out)->memory.in, bytes);
    ks_hash_end(hash, *out);
    ks_hash_close(&hash);
    return KS_OK;
}

static ks_tensor_entry last_entry;
static ks_put_outcome last_outcome;

static ks_status put_as(fixture *f, const ks_put *put, size_t bytes, int value)
{
    ks_content *content = NULL;
    const ks_status status = reserve(f, put->tenant, bytes, value, &content);
    if (status != KS_OK) return status;
    return ks_store_publish_take(f->store, put, &content, 1, &last_outcome, &last_entry, &f->error);
}

static ks_status put(fixture *f, const char *name, size_t bytes, int value)
{
    const ks_put plain = put_of(&operators, name);
    return put_as(f, &plain, bytes, value);
}

static ks_status find(fixture *f, const ks_tenant *tenant, const char *name)
{
    ks_content *content = NULL;
    const ks_status status = ks_store_hold(f->store, tenant, name, false, &content, &last_entry, &f->error);
    ks_content_release(&content);
    return status;
}

static ks_store_stats stats_of(fixture *f)
{
    ks_store_stats stats;
    ks_store_read_stats(f->store, &stats);
    return stats;
}

/* --- identity ---------------------------------------------------------------------------------------------------------- */

static void an_etag_is_that_of_the_vector(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40};
    static const unsigned char digest[4] = {0xb9, 0xc8, 0x0b, 0x5a}; /* ucgLWt7K... in base64 */
    ks_content content = {.tensor = {.dtype = KS_FP32, .rank = 1, .dims = {2}, .size_bytes = 8}};
    ks_hash *hash = ks_hash_open(true);
    for (size_t i = 0; i < sizeof bytes; i++) ks_hash_feed(hash, &bytes[i], 1);
    ks_hash_end(hash, &content);
    ks_hash_close(&hash);
    assert_string_equal(content.etag, "db32fa6b2c39fd7f8d3d207fe13832e9468cceaaa52b4e59c6e425d7d5f15845");
    assert_true(content.has_body_digest);
    assert_memory_equal(content.body_digest, digest, sizeof digest);
}

/* --- names and contents -------------------------------------------------------------------------------------------------- */

static void a_name_is_made_replaced_and_deleted(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 16 << 20, 1, -1);
    assert_int_equal(put(&f, "W", 1000, 1), KS_OK);
    assert_int_equal(last_outcome, KS_PUT_CREATED);
    assert_string_equal(last_entry.name, "W");
    assert_int_equal(last_entry.ttl_s, 3600);
    assert_int_equal(last_entry.expires_in_s, 3600);
    assert_int_equal(put(&f, "W", 1000, 1), KS_OK);
    assert_int_equal(last_outcome, KS_PUT_UNCHANGED);
    ks_content *old = NULL;
    assert_int_equal(ks_store_hold(f.store, &operators, "W", true, &old, &last_entry, &f.error), KS_OK);
    assert_int_equal(last_entry.uses, 1);
    assert_int_equal(put(&f, "W", 1000, 2), KS_OK);
    assert_int_equal(last_outcome, KS_PUT_REPLACED);
    assert_int_equal(old->memory.in[999], 1); /* the holder keeps the old bytes */
    assert_int_equal(stats_of(&f).bytes, 2000);
    ks_content_release(&old);
    assert_int_equal(stats_of(&f).bytes, 1000);
    assert_int_equal(ks_store_delete(f.store, &operators, "W", NULL, &f.error), KS_OK);
    assert_int_equal(ks_store_delete(f.store, &operators, "W", NULL, &f.error), KS_TENSOR);
    assert_int_equal(find(&f, &operators, "W"), KS_TENSOR);
    const ks_store_stats stats = stats_of(&f);
    assert_int_equal(stats.tensors + stats.bytes, 0);
    assert_int_equal(stats.gone[0], 1);
    assert_int_equal(stats.gone[3], 1);
    close_store(&f);
}

static void equal_contents_of_a_tenant_are_one(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 16 << 20, 1, -1);
    assert_int_equal(put(&f, "a", 1000, 1), KS_OK);
    assert_int_equal(put(&f, "b", 1000, 1), KS_OK);
    assert_int_equal(last_outcome, KS_PUT_CREATED);
    assert_int_equal(stats_of(&f).bytes, 1000);
    const ks_put other = put_of(&alice, "a");
    ks_content *content = NULL;
    char etag[KS_ETAG_MAX + 1];
    memcpy(etag, last_entry.etag, sizeof etag);
    assert_int_equal(ks_store_link(f.store, &other, etag, &last_outcome, &last_entry, &f.error), KS_CONTENT);
    assert_int_equal(put_as(&f, &other, 1000, 1), KS_OK); /* its own copy: nothing tells of another's */
    assert_int_equal(stats_of(&f).bytes, 2000);
    const ks_put linked = put_of(&operators, "c");
    assert_int_equal(ks_store_link(f.store, &linked, etag, &last_outcome, &last_entry, &f.error), KS_OK);
    assert_int_equal(last_outcome, KS_PUT_CREATED);
    assert_int_equal(stats_of(&f).puts[3], 1);
    assert_int_equal(ks_store_hold(f.store, &operators, "c", true, &content, NULL, &f.error), KS_OK);
    ks_tensor shape = bytes_tensor(1000);
    const unsigned char *digest = content->body_digest;
    assert_true(ks_store_has_body(f.store, &operators, digest, &shape, etag));
    assert_false(ks_store_has_body(f.store, &(ks_tenant){.name = "bob"}, digest, &shape, etag));
    shape.dtype = KS_INT8;
    assert_false(ks_store_has_body(f.store, &operators, digest, &shape, etag));
    ks_content_release(&content);
    for (const char *const *name = (const char *const[]){"a", "b", "c", NULL}; *name; name++)
        assert_int_equal(ks_store_delete(f.store, &operators, *name, NULL, &f.error), KS_OK);
    assert_int_equal(ks_store_link(f.store, &linked, etag, &last_outcome, &last_entry, &f.error), KS_CONTENT);
    assert_int_equal(stats_of(&f).bytes, 1000);
    close_store(&f);
}

static void conditions_hold_before_and_at_the_publication(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 16 << 20, 1, -1);
    ks_put only_new = put_of(&operators, "W");
    only_new.only_new = true;
    assert_int_equal(ks_store_check(f.store, &only_new, &f.error), KS_OK);
    assert_int_equal(put_as(&f, &only_new, 10, 1), KS_OK);
    assert_int_equal(ks_store_check(f.store, &only_new, &f.error), KS_PRECONDITION);
    assert_int_equal(put_as(&f, &only_new, 10, 2), KS_PRECONDITION);
    ks_put match = put_of(&operators, "W");
    match.if_match = "abc";
    assert_int_equal(ks_store_check(f.store, &match, &f.error), KS_PRECONDITION);
    assert_non_null(strstr(f.error.text, last_entry.etag));
    match.if_match = last_entry.etag;
    assert_int_equal(ks_store_check(f.store, &match, &f.error), KS_OK);
    match.if_match = "*";
    assert_int_equal(ks_store_check(f.store, &match, &f.error), KS_OK);
    match.name = "V";
    assert_int_equal(ks_store_check(f.store, &match, &f.error), KS_PRECONDITION);
    assert_int_equal(ks_store_delete(f.store, &operators, "W", "abc", &f.error), KS_PRECONDITION);
    assert_int_equal(ks_store_delete(f.store, &operators, "W", last_entry.etag, &f.error), KS_OK);
    assert_int_equal(stats_of(&f).bytes, 0);
    close_store(&f);
}

static void several_are_published_all_or_none(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 16 << 20, 1, -1);
    ks_put puts[2] = {put_of(&operators, "a"), put_of(&operators, "b")};
    ks_content *contents[2];
    ks_put_outcome outcomes[2];
    ks_tensor_entry entries[2];
    puts[1].if_match = "*";
    for (int i = 0; i < 2; i++) assert_int_equal(reserve(&f, &operators, 10, i, &contents[i]), KS_OK);
    assert_int_equal(ks_store_publish_take(f.store, puts, contents, 2, outcomes, entries, &f.error), KS_PRECONDITION);
    assert_int_equal(stats_of(&f).tensors + stats_of(&f).bytes, 0);
    puts[1].if_match = NULL;
    for (int i = 0; i < 2; i++) assert_int_equal(reserve(&f, &operators, 10, i, &contents[i]), KS_OK);
    assert_int_equal(ks_store_publish_take(f.store, puts, contents, 2, outcomes, entries, &f.error), KS_OK);
    assert_string_equal(entries[1].name, "b");
    assert_int_equal(stats_of(&f).tensors, 2);
    close_store(&f);
}

static void names_are_listed_in_order_by_pages(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 16 << 20, 1, -1);
    static const char *const names[] = {"b.10", "b.2", "a", "b", "b.", "c", "b.1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) assert_int_equal(put(&f, names[i], i, 7), KS_OK);
    ks_put loaded = put_of(&operators, "b.11");
    loaded.read_only = true;
    assert_int_equal(put_as(&f, &loaded, 3, 3), KS_OK);
    ks_tensor_entry entries[8];
    bool more;
    assert_int_equal(ks_store_list(f.store, &operators, "b.", "", 3, entries, &more), 3);
    assert_true(more);
    assert_string_equal(entries[0].name, "b.");
    assert_string_equal(entries[2].name, "b.10");
    assert_int_equal(ks_store_list(f.store, &operators, "b.", "b.10", 3, entries, &more), 2);
    assert_false(more);
    assert_string_equal(entries[0].name, "b.11");
    assert_true(entries[0].read_only);
    assert_string_equal(entries[1].name, "b.2");
    assert_int_equal(ks_store_list(f.store, &operators, "", "", 8, entries, &more), 8);
    assert_int_equal(ks_store_list(f.store, &operators, "b", "a", 8, entries, &more), 6); /* after: before the prefix */
    assert_int_equal(ks_store_list(f.store, &operators, "b", "c", 8, entries, &more), 0);
    assert_int_equal(ks_store_list(f.store, &alice, "", "", 8, entries, &more), 1); /* what all may read */
    close_store(&f);
}

static void what_was_loaded_at_start_is_read_only(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 16 << 20, 1, -1);
    ks_put loaded = put_of(&operators, "W");
    loaded.read_only = true;
    assert_int_equal(put_as(&f, &loaded, 3, 3), KS_OK);
    assert_int_equal(last_entry.ttl_s, 0);
    assert_int_equal(find(&f, &alice, "W"), KS_OK);
    const ks_put own = put_of(&alice, "W");
    assert_int_equal(ks_store_check(f.store, &own, &f.error), KS_READ_ONLY);
    assert_int_equal(ks_store_delete(f.store, &operators, "W", NULL, &f.error), KS_READ_ONLY);
    close_store(&f);
}

/* --- limits ------------------------------------------------------------------------------------------------------------------ */

static void a_full_store_says_both_numbers(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 16 << 20, 1, -1);
    for (int i = 0; i < 16; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(put(&f, name, 1 << 20, i), KS_OK);
    }
    assert_int_equal(put(&f, "W", 1, 1), KS_RESIDENT_FULL);
    assert_string_equal(f.error.text, "tensor 'W' needs 1 bytes, 0 of 16777216 are free: delete one, put with "
                                      "evictable=1, or raise --resident-bytes");
    assert_int_equal(put(&f, "W", 0, 1), KS_OK);
    assert_int_equal(put(&f, "n0", 1 << 20, 77), KS_RESIDENT_FULL); /* a replacement needs room for both */
    close_store(&f);
}

static void quotas_bound_a_tenant(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 16 << 20, 1, -1);
    ks_put puts[4] = {put_of(&alice, "a"), put_of(&alice, "b"), put_of(&alice, "c"), put_of(&alice, "d")};
    for (int i = 0; i < 3; i++) assert_int_equal(put_as(&f, &puts[i], 1000, i), KS_OK);
    assert_int_equal(ks_store_check(f.store, &puts[3], &f.error), KS_QUOTA);
    assert_int_equal(put_as(&f, &puts[3], 10, 9), KS_QUOTA);
    assert_int_equal(put_as(&f, &puts[0], 2000, 9), KS_QUOTA);
    assert_string_equal(f.error.text, "tensor 'W' needs 2000 bytes, 1096 of the 4096 bytes of tenant 'alice' are free");
    assert_int_equal(put_as(&f, &puts[0], 1000, 9), KS_OK);
    close_store(&f);
}

static void uploads_are_bounded(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 16 << 20, 1, -1);
    assert_int_equal(ks_store_begin_upload(f.store, &f.error), KS_OK);
    assert_int_equal(ks_store_begin_upload(f.store, &f.error), KS_OK);
    assert_int_equal(ks_store_begin_upload(f.store, &f.error), KS_BUDGET);
    ks_store_end_upload(f.store);
    assert_int_equal(ks_store_begin_upload(f.store, &f.error), KS_OK);
    close_store(&f);
}

/* --- what goes by itself ------------------------------------------------------------------------------------------------------ */

static ks_status put_evictable(fixture *f, const char *name, size_t bytes, int value)
{
    ks_put evictable = put_of(&operators, name);
    evictable.evictable = true;
    now += SECOND;
    return put_as(f, &evictable, bytes, value);
}

static void the_least_recently_used_evictable_goes_first(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 4000, 1, -1);
    ks_reader *reader = ks_reader_open(f.store);
    ks_content *content = NULL;
    assert_int_equal(put_evictable(&f, "a", 1000, 1), KS_OK);
    assert_int_equal(put_evictable(&f, "b", 1000, 2), KS_OK);
    assert_int_equal(put_evictable(&f, "c", 1000, 3), KS_OK);
    assert_int_equal(put(&f, "firm", 1000, 4), KS_OK);
    now += SECOND; /* a use that the reader alone counts: a is looked up twice, the second time in its table */
    for (int i = 0; i < 2; i++, now += SECOND) {
        assert_int_equal(ks_reader_hold(reader, &operators, "a", 1, &content, &f.error), KS_OK);
        ks_reader_release(reader, &content);
    }
    assert_int_equal(put(&f, "d", 1000, 5), KS_OK);
    assert_int_equal(find(&f, &operators, "b"), KS_TENSOR);
    assert_int_equal(put(&f, "e", 1000, 6), KS_OK);
    assert_int_equal(find(&f, &operators, "c"), KS_TENSOR);
    assert_int_equal(find(&f, &operators, "a"), KS_OK);
    assert_int_equal(put(&f, "g", 1001, 7), KS_RESIDENT_FULL); /* it would not help: a stays */
    assert_int_equal(find(&f, &operators, "a"), KS_OK);
    assert_int_equal(put(&f, "g", 1000, 7), KS_OK); /* the reader's own hold is no use */
    assert_int_equal(find(&f, &operators, "a"), KS_TENSOR);
    assert_int_equal(stats_of(&f).gone[2], 3);
    ks_reader_close(&reader);
    close_store(&f);
}

static void a_tensor_without_uses_goes_after_its_ttl(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 4000, 1, -1);
    ks_reader *reader = ks_reader_open(f.store);
    ks_content *content = NULL;
    ks_put puts[2] = {put_of(&operators, "short"), put_of(&operators, "ever")};
    puts[0].ttl_s = 10;
    puts[1].ttl_s = 0;
    for (int i = 0; i < 2; i++) assert_int_equal(put_as(&f, &puts[i], 10, i), KS_OK);
    now += 9 * SECOND;
    ks_store_turn(f.store, now);
    assert_int_equal(ks_reader_hold(reader, &operators, "short", 5, &content, &f.error), KS_OK);
    ks_reader_release(reader, &content);
    now += 9 * SECOND;
    ks_store_turn(f.store, now);
    assert_int_equal(find(&f, &operators, "short"), KS_OK); /* a look without a use */
    assert_int_equal(last_entry.expires_in_s, 1);
    now += SECOND;
    ks_store_turn(f.store, now);
    assert_int_equal(find(&f, &operators, "short"), KS_TENSOR);
    now += 1000000 * SECOND;
    ks_store_turn(f.store, now);
    assert_int_equal(find(&f, &operators, "ever"), KS_OK);
    assert_int_equal(stats_of(&f).gone[1], 1);
    ks_reader_close(&reader);
    close_store(&f);
}

/* --- readers -------------------------------------------------------------------------------------------------------------------- */

static void a_reader_follows_the_name_and_keeps_what_it_uses(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 1 << 20, 1, -1);
    ks_reader *reader = ks_reader_open(f.store);
    ks_content *first = NULL, *second = NULL, *again = NULL;
    assert_int_equal(ks_reader_hold(reader, &operators, "W", 1, &first, &f.error), KS_TENSOR);
    assert_int_equal(put(&f, "W", 10, 1), KS_OK);
    assert_int_equal(ks_reader_hold(reader, &operators, "W", 1, &first, &f.error), KS_OK);
    assert_int_equal(ks_reader_hold(reader, &operators, "W", 1, &again, &f.error), KS_OK);
    assert_ptr_equal(first, again);
    assert_int_equal(find(&f, &operators, "W"), KS_OK);
    assert_int_equal(last_entry.held, 2);
    assert_int_equal(last_entry.uses, 2);
    ks_reader_release(reader, &again);
    assert_int_equal(put(&f, "W", 10, 2), KS_OK);
    assert_int_equal(ks_reader_hold(reader, &operators, "W", 1, &second, &f.error), KS_OK);
    assert_ptr_not_equal(first, second);
    assert_int_equal(first->memory.in[0] * 10 + second->memory.in[0], 12);
    assert_int_equal(stats_of(&f).bytes, 20);
    ks_reader_release(reader, &first); /* the last use of what has no name */
    assert_int_equal(stats_of(&f).bytes, 10);
    assert_int_equal(put(&f, "W", 10, 1), KS_OK);
    assert_int_equal(put(&f, "W", 10, 2), KS_OK);
    assert_int_equal(stats_of(&f).bytes, 10); /* it is in use: the same content got its name back */
    ks_reader_release(reader, &second);
    assert_int_equal(stats_of(&f).bytes, 10);
    assert_int_equal(ks_reader_hold(reader, &operators, "W", 1, &second, &f.error), KS_OK);
    ks_reader_release(reader, &second);
    assert_int_equal(ks_store_delete(f.store, &operators, "W", NULL, &f.error), KS_OK);
    assert_int_equal(stats_of(&f).bytes, 0); /* at once, though the reader had it in its table */
    assert_int_equal(ks_reader_hold(reader, &operators, "W", 1, &second, &f.error), KS_TENSOR);
    ks_reader_close(&reader);
    close_store(&f);
}

static void a_reader_tells_tenants_apart(void **state)
{
    (void)state;
    fixture f = {0};
    open_store(&f, 1 << 20, 1, -1);
    ks_reader *reader = ks_reader_open(f.store);
    ks_content *content = NULL;
    const ks_put own = put_of(&alice, "W");
    assert_int_equal(put(&f, "W", 10, 1), KS_OK);
    assert_int_equal(put_as(&f, &own, 10, 2), KS_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ks_reader_hold(reader, &alice, "Wx", 1, &content, &f.error), KS_OK);
        assert_int_equal(content->memory.in[0], 2);
        ks_reader_release(reader, &content);
        assert_int_equal(ks_reader_hold(reader, &operators, "W", 1, &content, &f.error), KS_OK);
        assert_int_equal(content->memory.in[0], 1);
        ks_reader_release(reader, &content);
        assert_int_equal(ks_reader_hold(reader, &(ks_tenant){.name = "bob"}, "W", 1, &content, &f.error), KS_TENSOR);
    }
    ks_reader_close(&reader);
    close_store(&f);
}

/* --- loss ------------------------------------------------------------------------------------------------------------------------ */

static void a_restart_says_what_is_lost(void **state)
{
    (void)state;
    fixture f = {0};
    const int fd = memfd_create("record", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, KS_RECORD_BYTES), 0);
    open_store(&f, 1 << 20, 3, fd);
    const ks_put own = put_of(&alice, "V");
    char etag[KS_ETAG_MAX + 1];
    assert_int_equal(put(&f, "gone", 10, 1), KS_OK);
    assert_int_equal(ks_store_delete(f.store, &operators, "gone", NULL, &f.error), KS_OK);
    assert_int_equal(put(&f, "W", 10, 1), KS_OK);
    memcpy(etag, last_entry.etag, sizeof etag);
    assert_int_equal(put_as(&f, &own, 10, 1), KS_OK);
    close_store(&f);
    open_store(&f, 1 << 20, 4, fd);
    assert_int_equal(find(&f, &operators, "W"), KS_LOST);
    assert_string_equal(f.error.text,
                        "tensor 'W' was lost when the worker was restarted (generation 3, now 4): put it again");
    assert_int_equal(find(&f, &operators, "gone"), KS_TENSOR);
    assert_int_equal(find(&f, &alice, "V"), KS_LOST);
    ks_tensor_entry entry;
    bool more;
    assert_int_equal(ks_store_list(f.store, &operators, "", "", 1, &entry, &more), 1);
    assert_true(entry.lost);
    assert_string_equal(entry.etag, etag);
    assert_int_equal(put(&f, "W", 10, 2), KS_OK);
    assert_int_equal(last_outcome, KS_PUT_CREATED);
    assert_int_equal(ks_store_delete(f.store, &alice, "V", NULL, &f.error), KS_OK);
    assert_int_equal(find(&f, &alice, "V"), KS_TENSOR);
    close_store(&f);
    open_store(&f, 1 << 20, 5, fd);
    assert_int_equal(find(&f, &operators, "W"), KS_LOST);
    assert_non_null(strstr(f.error.text, "(generation 4, now 5)"));
    assert_int_equal(find(&f, &alice, "V"), KS_TENSOR);
    close_store(&f);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_etag_is_that_of_the_vector),
                                       cmocka_unit_test(a_name_is_made_replaced_and_deleted),
                                       cmocka_unit_test(equal_contents_of_a_tenant_are_one),
                                       cmocka_unit_test(conditions_hold_before_and_at_the_publication),
                                       cmocka_unit_test(several_are_published_all_or_none),
                                       cmocka_unit_test(names_are_listed_in_order_by_pages),
                                       cmocka_unit_test(what_was_loaded_at_start_is_read_only),
                                       cmocka_unit_test(a_full_store_says_both_numbers),
                                       cmocka_unit_test(quotas_bound_a_tenant),
                                       cmocka_unit_test(uploads_are_bounded),
                                       cmocka_unit_test(the_least_recently_used_evictable_goes_first),
                                       cmocka_unit_test(a_tensor_without_uses_goes_after_its_ttl),
                                       cmocka_unit_test(a_reader_follows_the_name_and_keeps_what_it_uses),
                                       cmocka_unit_test(a_reader_tells_tenants_apart),
                                       cmocka_unit_test(a_restart_says_what_is_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
