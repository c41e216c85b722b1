/* Clients' regions without a GPU: handles of device memory, of which a fake backend takes note, windows to their last byte,
 * and a region that is taken down while it is in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/regions.h"

enum { BYTES = 4096 };
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static struct {
    unsigned char memory[BYTES], handle[KS_HANDLE_BYTES];
    int imports, leaves, device_index;
    bool lost;
} fake;

static ks_status fake_import(ks_device *device, const unsigned char *handle, int device_index, size_t bytes, void **out,
                             ks_error *error)
{
    (void)device, (void)bytes, (void)error;
    memcpy(fake.handle, handle, sizeof fake.handle);
    fake.device_index = device_index;
    fake.imports++;
    *out = fake.memory;
    return KS_OK;
}

static void fake_leave(ks_device *device, void *memory)
{
    (void)device;
    assert_ptr_equal(memory, fake.memory);
    fake.leaves++;
}

static ks_status fake_copy(ks_device *device, void *to, const void *from, size_t bytes, ks_error *error)
{
    (void)device, (void)error;
    memcpy(to, from, bytes);
    return KS_OK;
}

static bool fake_failed(const ks_device *device)
{
    (void)device;
    return fake.lost;
}

static const ks_client_memory client_memory = {.import = fake_import, .leave = fake_leave, .copy = fake_copy};
static const ks_backend backend = {.name = "fake", .failed = fake_failed, .client_memory = &client_memory};

/* 64 bytes in base64: 0, 1, 2 ... 63. */
#define HANDLE "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw"
#define HALF "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

static ks_regions *open_regions(void)
{
    ks_regions *regions;
    ks_error error;
    memset(&fake, 0, sizeof fake);
    assert_int_equal(ks_regions_open(&backend, NULL, &regions, &error), KS_OK);
    return regions;
}

static void handles(void **state)
{
    static const struct {
        const char *text;
        ks_status status;
    } rows[] = {{HANDLE "==", KS_OK},
                {HALF "\ngISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==\n", KS_OK},
                {"\r\n" HANDLE "=\n=", KS_OK},
                {HANDLE, KS_WINDOW},
                {HANDLE "=", KS_WINDOW},
                {HANDLE "===", KS_WINDOW},
                {HANDLE "A=", KS_WINDOW},
                {HANDLE "==A", KS_WINDOW},
                {HANDLE "== ", KS_WINDOW},
                {HALF, KS_WINDOW},
                {HALF "==", KS_WINDOW},
                {"=" HANDLE "=", KS_WINDOW},
                {HALF "-ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==", KS_WINDOW},
                {HALF "\xc3\xa4SIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==", KS_WINDOW},
                {"", KS_WINDOW}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        ks_regions *regions = open_regions();
        ks_error error = {0};
        const ks_status status = ks_regions_add_cuda(regions, "r", rows[i].text, 3, BYTES, &error);
        if (status != rows[i].status) fail_msg("row %zu: %s (%s)", i, ks_status_name(status), error.text);
        assert_int_equal(fake.imports, status == KS_OK);
        for (int b = 0; b < KS_HANDLE_BYTES && status == KS_OK; b++) assert_int_equal(fake.handle[b], b);
        if (status == KS_OK) assert_int_equal(fake.device_index, 3);
        ks_regions_close(&regions);
        assert_int_equal(fake.leaves, fake.imports);
    }
    static const struct {
        uint64_t device, bytes;
        ks_status status;
    } sizes[] = {{0, 0, KS_WINDOW},
                 {0, 1, KS_OK},
                 {INT32_MAX, 1, KS_OK},
                 {(uint64_t)INT32_MAX + 1, 1, KS_WINDOW},
                 {0, UINT64_MAX, KS_WINDOW}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        ks_regions *regions = open_regions();
        ks_error error = {0};
        assert_int_equal(ks_regions_add_cuda(regions, "r", HANDLE "==", sizes[i].device, sizes[i].bytes, &error),
                         sizes[i].status);
        /* A name that was refused is free again. */
        assert_int_equal(ks_regions_add_cuda(regions, "r", HANDLE "==", 0, 1, &error),
                         sizes[i].status == KS_OK ? KS_WINDOW : KS_OK);
        ks_regions_close(&regions);
    }
}

static void windows_to_the_last_byte(void **state)
{
    static const struct {
        uint64_t offset, bytes;
        ks_status status;
    } rows[] = {{0, BYTES, KS_OK},
                {0, 0, KS_OK},
                {BYTES - 1, 1, KS_OK},
                {BYTES - 1, 0, KS_OK},
                {0, BYTES + 1, KS_WINDOW},
                {1, BYTES, KS_WINDOW},
                {BYTES - 1, 2, KS_WINDOW},
                {BYTES, 0, KS_WINDOW},
                {BYTES, 1, KS_WINDOW},
                {1, UINT64_MAX, KS_WINDOW},
                {8, UINT64_MAX - 4, KS_WINDOW},
                {UINT64_MAX, 1, KS_WINDOW},
                {0, UINT64_MAX, KS_WINDOW}};
    (void)state;
    ks_regions *regions = open_regions();
    ks_error error = {0};
    assert_int_equal(ks_regions_add_cuda(regions, "r", HANDLE "==", 0, BYTES, &error), KS_OK);
    for (size_t i = 0; i < COUNT(rows); i++) {
        ks_window window = {0};
        const ks_status status = ks_window_hold(regions, "r", rows[i].offset, rows[i].bytes, &window, &error);
        if (status != rows[i].status) fail_msg("row %zu: %s (%s)", i, ks_status_name(status), error.text);
        if (status != KS_OK) continue;
        assert_ptr_equal(ks_window_device(&window), fake.memory + rows[i].offset);
        ks_window_release(regions, &window);
        assert_null(window.region);
        ks_window_release(regions, &window); /* none: nothing happens */
    }
    ks_window window = {0};
    assert_int_equal(ks_window_hold(regions, "other", 0, 1, &window, &error), KS_REGION);
    ks_regions_close(&regions);
}

/* Hidden at once, ended by the last who uses it. */
static void a_region_outlives_its_uses(void **state)
{
    unsigned char bytes[4] = {1, 2, 3, 4}, back[4];
    ks_error error = {0};
    ks_window first = {0}, second = {0}, none = {0};
    (void)state;
    ks_regions *regions = open_regions();
    assert_int_equal(ks_regions_add_cuda(regions, "r", HANDLE "==", 0, BYTES, &error), KS_OK);
    assert_int_equal(ks_window_hold(regions, "r", 8, 4, &first, &error), KS_OK);
    assert_int_equal(ks_window_hold(regions, "r", 8, 4, &second, &error), KS_OK);
    ks_regions_remove(regions, KS_REGION_SYSTEM, "r"); /* of the other kind: nothing happens */
    ks_regions_remove(regions, KS_REGION_CUDA, "r");
    assert_int_equal(fake.leaves, 0);
    assert_int_equal(ks_window_hold(regions, "r", 8, 4, &none, &error), KS_REGION);
    assert_int_equal(ks_window_write(&first, bytes, 4, &error), KS_OK);
    ks_window_release(regions, &first);
    assert_int_equal(fake.leaves, 0);
    assert_int_equal(ks_window_read(&second, back, 4, &error), KS_OK);
    assert_memory_equal(back, bytes, 4);
    ks_window_release(regions, &second);
    assert_int_equal(fake.leaves, 1);
    assert_int_equal(ks_regions_add_cuda(regions, "r", HANDLE "==", 0, BYTES, &error), KS_OK);
    fake.lost = true; /* its calls may block for ever */
    ks_regions_close(&regions);
    assert_int_equal(fake.leaves, 1);
}

/* The table is full, and has room again. */
static void as_many_as_there_is_room_for(void **state)
{
    char name[16];
    ks_error error = {0};
    (void)state;
    ks_regions *regions = open_regions();
    for (int i = 0; i <= KS_REGIONS_MAX; i++) {
        snprintf(name, sizeof name, "r%d", i);
        assert_int_equal(ks_regions_add_cuda(regions, name, HANDLE "==", 0, 1, &error),
                         i < KS_REGIONS_MAX ? KS_OK : KS_BUDGET);
    }
    ks_regions_remove(regions, KS_REGION_CUDA, "r7");
    assert_int_equal(ks_regions_add_cuda(regions, name, HANDLE "==", 0, 1, &error), KS_OK);
    ks_regions_remove(regions, KS_REGION_CUDA, NULL);
    assert_int_equal(fake.leaves, KS_REGIONS_MAX + 1);
    ks_regions_close(&regions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles),
        cmocka_unit_test(windows_to_the_last_byte),
        cmocka_unit_test(a_region_outlives_its_uses),
        cmocka_unit_test(as_many_as_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
