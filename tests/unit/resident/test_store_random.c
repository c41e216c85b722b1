/* Random operations against a model of the store: what has a name, which bytes it has, what is used of the limit; from several threads with
 * readers, where each thread's names are its own and some are everybody's; and with an allocation failing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "resident/hash.h"
#include "kernserve/backends.h"

enum { NAMES = 40, SIZE_MOST = 9000, THREADS = 4 };
static const ks_tenant operators = {.name = "", .is_operator = true};

static int operations(void)
{
    const char *text = getenv("KS_CASES");
    return text ? 100 * atoi(text) : 100000;
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

typedef struct fixture {
    ks_device *device;
    ks_store *store;
} fixture;

static void open_store(fixture *f, uint64_t limit_bytes)
{
    ks_error error;
    const ks_limits limits = {.device_index = -1};
    assert_int_equal(ks_backend_cpu->open(&limits, &f->device, &error), KS_OK);
    const ks_store_options options = {.backend = ks_backend_cpu,
                                      .device = f->device,
                                      .limit_bytes = limit_bytes,
                                      .ttl_s = 3600,
                                      .uploads_max = 1,
                                      .generation = 1,
                                      .record_fd = -1};
    assert_int_equal(ks_store_open(&options, &f->store, &error), KS_OK);
}

static void close_store(fixture *f)
{
    ks_store_close(&f->store);
    ks_backend_cpu->resident->trim(f->device);
    ks_backend_cpu->close(&f->device);
}

/* Bytes that tell their size and value in each place. */
static void write_bytes(unsigned char *at, size_t bytes, unsigned value)
{
    for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(value + i * 7);
}

static bool has_bytes(const ks_content *content, unsigned value)
{
    const unsigned char *at = content->memory.in;
    for (size_t i = 0; i < content->tensor.size_bytes; i++)
        if (at[i] != (unsigned char)(value + i * 7)) return false;
    return true;
}

static ks_status put(ks_store *store, const char *name, size_t bytes, unsigned value, bool evictable, ks_error *error)
{
    ks_content *content = NULL;
    ks_put_outcome outcome;
    ks_tensor_entry entry;
    const ks_tensor tensor = {.dtype = KS_UINT8, .rank = 1, .dims = {(int64_t)bytes}, .size_bytes = bytes};
    ks_status status = ks_store_reserve(store, &operators, "tensor 'x'", &tensor, &content, error);
    if (status != KS_OK) return status;
    write_bytes(content->memory.in, bytes, value);
    ks_hash *hash = ks_hash_open(false);
    if (!hash) {
        ks_content_release(&content);
        return KS_MEMORY;
    }
    ks_hash_feed(hash, content->memory.in, bytes);
    ks_hash_end(hash, content);
    ks_hash_close(&hash);
    const ks_put put = {.tenant = &operators, .name = name, .ttl_s = -1, .evictable = evictable};
    return ks_store_publish_take(store, &put, &content, 1, &outcome, &entry, error);
}

static uint64_t used(fixture *f)
{
    ks_store_stats stats;
    ks_store_read_stats(f->store, &stats);
    return stats.bytes;
}

/* --- one thread, every answer known ------------------------------------------------------------------------------------------- */

typedef struct model {
    bool there[NAMES];
    size_t bytes[NAMES];
    unsigned value[NAMES];
} model;

/* Equal contents count once. */
static uint64_t model_used(const model *m)
{
    uint64_t sum = 0;
    for (int i = 0; i < NAMES; i++) {
        bool first = m->there[i];
        for (int j = 0; j < i && first; j++)
            first = !(m->there[j] && m->bytes[j] == m->bytes[i] && (m->bytes[i] == 0 || m->value[j] == m->value[i]));
        if (first) sum += m->bytes[i];
    }
    return sum;
}

static void check_name(fixture *f, ks_reader *reader, const model *m, int i, const char *name)
{
    ks_error error;
    ks_content *content = NULL;
    const ks_status status = ks_reader_hold(reader, &operators, name, strlen(name), &content, &error);
    assert_int_equal(status, m->there[i] ? KS_OK : KS_TENSOR);
    if (status != KS_OK) return;
    assert_int_equal(content->tensor.size_bytes, m->bytes[i]);
    assert_true(has_bytes(content, m->value[i]));
    assert_int_equal(used(f), model_used(m));
    ks_reader_release(reader, &content);
}

static void answers_are_those_of_the_model(void **state)
{
    (void)state;
    fixture f = {0};
    model m = {0};
    ks_error error;
    uint64_t random = 20261124;
    open_store(&f, 100000);
    ks_reader *reader = ks_reader_open(f.store);
    for (int n = operations(); n > 0; n--) {
        const int i = (int)(draw(&random) % NAMES);
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        switch (draw(&random) % 4) {
        case 0: {
            const size_t bytes = draw(&random) % SIZE_MOST;
            const unsigned value = (unsigned)(draw(&random) % 3);
            const ks_status status = put(f.store, name, bytes, value, false, &error);
            assert_int_equal(status, model_used(&m) + bytes <= 100000 ? KS_OK : KS_RESIDENT_FULL);
            if (status != KS_OK) break;
            m.there[i] = true;
            m.bytes[i] = bytes;
            m.value[i] = value;
            break;
        }
        case 1:
            assert_int_equal(ks_store_delete(f.store, &operators, name, NULL, &error), m.there[i] ? KS_OK : KS_TENSOR);
            m.there[i] = false;
            break;
        default:
            check_name(&f, reader, &m, i, name);
        }
    }
    assert_int_equal(used(&f), model_used(&m));
    ks_reader_close(&reader);
    close_store(&f);
}

/* --- several threads ---------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    fixture *f;
    pthread_t thread;
    uint64_t random;
    int operations;
    bool wrong;
} worker;

/* The first byte of what was written is its value: any version will do, but whole. */
static bool is_whole(const ks_content *content)
{
    return content->tensor.size_bytes == 0 || has_bytes(content, content->memory.in[0]);
}

static void *work(void *context)
{
    worker *w = context;
    ks_reader *reader = ks_reader_open(w->f->store);
    ks_content *held[3] = {NULL};
    ks_error error;
    for (int n = 0; n < w->operations; n++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", (int)(draw(&w->random) % NAMES));
        const uint64_t what = draw(&w->random) % 16;
        ks_content **place = &held[draw(&w->random) % 3];
        if (what == 0) {
            put(w->f->store, name, draw(&w->random) % SIZE_MOST, (unsigned)(draw(&w->random) % 5), draw(&w->random) % 2,
                &error);
        } else if (what == 1) {
            ks_store_delete(w->f->store, &operators, name, NULL, &error);
        } else if (*place) {
            w->wrong = w->wrong || !is_whole(*place);
            ks_reader_release(reader, place);
        } else {
            ks_reader_hold(reader, &operators, name, strlen(name), place, &error);
        }
    }
    for (int i = 0; i < 3; i++)
        if (held[i]) ks_reader_release(reader, &held[i]);
    ks_reader_close(&reader);
    return NULL;
}

static void threads_see_whole_contents(void **state)
{
    (void)state;
    fixture f = {0};
    worker workers[THREADS];
    ks_error error;
    open_store(&f, 150000);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.f = &f, .random = (uint64_t)i + 1, .operations = operations() / THREADS};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_false(workers[i].wrong);
    }
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        ks_store_delete(f.store, &operators, name, NULL, &error);
    }
    ks_store_stats stats;
    ks_store_read_stats(f.store, &stats);
    assert_int_equal(stats.bytes + stats.tensors, 0); /* no hold is left */
    close_store(&f);
}

/* --- allocations that fail ---------------------------------------------------------------------------------------------------- */

void *__real_calloc(size_t count, size_t bytes);
void *__real_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
static int until_failure = -1; /* allocations; below 0: none fails */

void *__wrap_calloc(size_t count, size_t bytes)
{
    return until_failure >= 0 && until_failure-- == 0 ? NULL : __real_calloc(count, bytes);
}

void *__wrap_malloc(size_t bytes)
{
    return until_failure >= 0 && until_failure-- == 0 ? NULL : __real_malloc(bytes);
}

/* One of each; the first fault ends it. */
static ks_status try_all(fixture *f, ks_reader *reader)
{
    ks_error error;
    ks_content *content = NULL;
    ks_status status = put(f->store, "new", 5000, 1, false, &error);
    if (status == KS_OK) status = ks_reader_hold(reader, &operators, "new", 3, &content, &error);
    if (status != KS_OK) return status;
    ks_reader_release(reader, &content);
    return put(f->store, "new", 5000, 2, false, &error);
}

static void a_failed_allocation_leaves_things_as_they_were(void **state)
{
    (void)state;
    int failures = 0;
    for (int n = 0;; n++) {
        fixture f = {0};
        ks_error error;
        ks_content *content = NULL;
        open_store(&f, 100000);
        ks_reader *reader = ks_reader_open(f.store);
        assert_int_equal(put(f.store, "old", 3000, 7, false, &error), KS_OK);
        until_failure = n;
        const ks_status status = try_all(&f, reader);
        const bool failed = until_failure < 0;
        until_failure = -1;
        assert_int_equal(status, failed && status != KS_OK ? KS_MEMORY : KS_OK);
        failures += status != KS_OK;
        assert_int_equal(ks_reader_hold(reader, &operators, "old", 3, &content, &error), KS_OK);
        assert_true(has_bytes(content, 7));
        ks_reader_release(reader, &content);
        ks_store_delete(f.store, &operators, "new", NULL, &error);
        assert_int_equal(used(&f), 3000);
        ks_reader_close(&reader);
        close_store(&f);
        if (!failed) break;
    }
    assert_true(failures >= 5);
}

/* --- many ------------------------------------------------------------------------------------------------------------------------ */

static void a_million_leave_nothing(void **state)
{
    (void)state;
    fixture f = {0};
    ks_error error;
    open_store(&f, 64 << 20);
    const int count = 10 * operations();
    const int64_t begun_ns = ks_now_ns();
    for (int i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(put(f.store, name, (size_t)i % 300, (unsigned)i, false, &error), KS_OK);
        if (i < 10000) continue;
        snprintf(name, sizeof name, "t%d", i - 10000);
        assert_int_equal(ks_store_delete(f.store, &operators, name, NULL, &error), KS_OK);
    }
    print_message("%d PUT and DELETE, 10,000 tensors there: %.2f us each\n", count,
                  (double)(ks_now_ns() - begun_ns) / 1e3 / count);
    ks_store_stats stats;
    ks_store_read_stats(f.store, &stats);
    assert_int_equal(stats.tensors, 10000);
    assert_true(stats.held_bytes <= 8 << 20);
    close_store(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_the_model), cmocka_unit_test(threads_see_whole_contents),
        cmocka_unit_test(a_failed_allocation_leaves_things_as_they_were), cmocka_unit_test(a_million_leave_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
