/* The arena of a lane of the CPU: it grows with the largest chain, and what none of late has needed is given back, but never under a launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/arena.h"
#include "memory/range.h"

enum { SMALL = 4096, LARGE = 4 << 20 };

typedef struct bed {
    ks_cpu_arenas arenas;
    ks_cpu_arena lane[2];
} bed;

static void open_bed(bed *b)
{
    memset(b, 0, sizeof *b);
    pthread_mutex_init(&b->arenas.lock, NULL);
    for (int i = 0; i < 2; i++) ks_cpu_arena_open(&b->arenas, &b->lane[i]);
}

static void close_bed(bed *b)
{
    for (int i = 0; i < 2; i++) ks_cpu_arena_close(&b->arenas, &b->lane[i]);
    assert_null(b->arenas.first);
    pthread_mutex_destroy(&b->arenas.lock);
}

static void use(ks_cpu_arena *arena, size_t bytes)
{
    ks_error error = {0};
    assert_int_equal(ks_cpu_arena_take(arena, bytes, &error), KS_OK);
    assert_true(arena->bytes >= bytes);
    assert_ptr_equal(ks_cpu_arena_memory(arena), arena->memory);
    memset(arena->memory, 1, bytes);
    ks_cpu_arena_give(arena);
    assert_null(ks_cpu_arena_memory(arena));
}

static void turns(bed *b, int count)
{
    for (int i = 0; i < count; i++) ks_cpu_arenas_rest(&b->arenas);
}

static void an_idle_arena_is_given_back(void **state)
{
    (void)state;
    bed b;
    open_bed(&b);
    use(&b.lane[0], LARGE);
    const unsigned char *memory = b.lane[0].memory;
    use(&b.lane[0], SMALL);
    assert_ptr_equal(b.lane[0].memory, memory);
    turns(&b, KS_RANGE_QUIET_TURNS - 1);
    assert_int_equal(b.lane[0].bytes, LARGE);
    turns(&b, KS_RANGE_QUIET_TURNS + 1);
    assert_null(b.lane[0].memory);
    use(&b.lane[0], SMALL);
    close_bed(&b);
}

/* A smaller model goes on where a larger one has been unloaded. */
static void what_small_models_leave_unused_is_given_back(void **state)
{
    (void)state;
    bed b;
    open_bed(&b);
    use(&b.lane[1], LARGE);
    for (int i = 0; i < 2 * KS_RANGE_QUIET_TURNS; i++) {
        use(&b.lane[1], SMALL);
        turns(&b, 1);
    }
    use(&b.lane[1], SMALL);
    assert_int_equal(b.lane[1].bytes, SMALL);
    for (int i = 0; i < 2 * KS_RANGE_QUIET_TURNS; i++) {
        use(&b.lane[1], SMALL);
        turns(&b, 1);
    }
    assert_int_equal(b.lane[1].bytes, SMALL);
    close_bed(&b);
}

static void a_launch_keeps_its_memory(void **state)
{
    (void)state;
    bed b;
    ks_error error = {0};
    open_bed(&b);
    assert_int_equal(ks_cpu_arena_take(&b.lane[0], LARGE, &error), KS_OK);
    turns(&b, 3 * KS_RANGE_QUIET_TURNS);
    assert_int_equal(b.lane[0].bytes, LARGE);
    memset(b.lane[0].memory, 2, LARGE);
    ks_cpu_arena_give(&b.lane[0]);
    ks_cpu_arena_give(&b.lane[0]);
    close_bed(&b);
}

static void too_much_is_refused(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* whose allocators end the program */
    skip();
#endif
    bed b;
    ks_error error = {0};
    open_bed(&b);
    assert_int_equal(ks_cpu_arena_take(&b.lane[0], (size_t)1 << 62, &error), KS_MEMORY);
    use(&b.lane[0], SMALL);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_arena_is_given_back), cmocka_unit_test(what_small_models_leave_unused_is_given_back),
        cmocka_unit_test(a_launch_keeps_its_memory), cmocka_unit_test(too_much_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
