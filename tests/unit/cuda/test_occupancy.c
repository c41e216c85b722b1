/* CTAs on an SM by each limit, as NVIDIA's tables of occupancy have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cuda/occupancy.h"

/* Compute capability 9.0. */
static const ks_sm_limits hopper = {
    .registers = 65536, .threads = 2048, .ctas = 32, .shared_bytes = 228 << 10, .shared_reserved = 1 << 10};

static void check(int threads, int registers, size_t static_bytes, size_t dynamic_bytes, const int expected[3])
{
    ks_occupancy occupancy = {.registers = registers, .static_shared_bytes = static_bytes};
    ks_occupancy_limit(&hopper, threads, dynamic_bytes, &occupancy);
    assert_int_equal(occupancy.by_threads, expected[0]);
    assert_int_equal(occupancy.by_registers, expected[1]);
    assert_int_equal(occupancy.by_shared, expected[2]);
    assert_int_equal(occupancy.by_ctas, 32);
    assert_int_equal(occupancy.warps_max, 64);
}

static void limits_are_known_numbers(void **state)
{
    (void)state;
    check(256, 32, 0, 0, (const int[]){8, 8, 228});
    check(256, 64, 0, 0, (const int[]){8, 4, 228});
    check(96, 33, 0, 0, (const int[]){21, 16, 228});  /* 33 take as much as 40: 51 warps, 48 in four equal parts */
    check(128, 255, 0, 0, (const int[]){16, 2, 228}); /* 8 warps of 8192 registers */
    check(1024, 65, 0, 0, (const int[]){2, 0, 228});  /* such a launch fails: 0 CTAs */
    check(384, 168, 1024, 196608, (const int[]){5, 1, 1});
    check(128, 32, 16, 48 << 10, (const int[]){16, 16, 4});
    check(33, 16, 0, 227 << 10, (const int[]){32, 64, 1}); /* two warps */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(limits_are_known_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
