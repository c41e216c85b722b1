/* The largest of the lower bounds that are known is the roofline, and what is not known bounds nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "observe/roofline/roofline.h"

/* An H200's, about: 4000 GB/s, a link of 50 GB/s, 800 TFLOP/s, 5 us a launch. */
static const ks_ceilings gpu = {
    .copy_gbs = {4000, "a"}, .h2d_gbs = {50, "b"}, .d2h_gbs = {25, "c"}, .launch_us = {5, "d"}, .tflops = {800, "e"}};
/* A core: 20 GB/s of copies, 40 of reads, 32 MB of cache, 0.1 TFLOP/s. */
static const ks_ceilings cpu = {
    .copy_gbs = {20, "a"}, .read_gbs = {40, "b"}, .tflops = {0.1, "c"}, .cache_bytes = 32e6};

static void check(const ks_work *work, const ks_ceilings *ceilings, double us, const char *bound)
{
    const ks_roofline roofline = ks_roofline_of(work, ceilings);
    assert_true(fabs(roofline.us - us) <= 1e-9 * us);
    const char *name = ks_bound_name(roofline.bound);
    if (bound)
        assert_string_equal(name, bound);
    else
        assert_null(name);
}

static void the_largest_lower_bound_counts(void **state)
{
    (void)state;
    /* 400 MB at 4000 GB/s */
    check(&(ks_work){.in_bytes = 2e8, .out_bytes = 2e8, .flops = 1e9}, &gpu, 100, "memory");
    /* 8192^3 products: 1.1e12 operations at 800e12 a second */
    check(&(ks_work){.in_bytes = 2.7e8, .out_bytes = 1.3e8, .flops = 1.1e12}, &gpu, 1375, "compute");
    /* 1 MB in at 50 GB/s takes 20 us, 1 MB out at 25 takes 40: at once */
    check(&(ks_work){.in_bytes = 1e6, .out_bytes = 1e6, .flops = 1e7, .link = true}, &gpu, 40, "link");
    check(&(ks_work){.in_bytes = 4e6, .out_bytes = 1e6, .flops = 1e7, .link = true}, &gpu, 80, "link");
    /* 4 us of memory: a launch takes longer, and is no lower bound of the kernel's time */
    check(&(ks_work){.in_bytes = 8e6, .out_bytes = 8e6, .flops = 1e7}, &gpu, 4, "launch");
}

static void caches_hold_what_they_can(void **state)
{
    (void)state;
    /* all of it: arithmetic alone is known to take time, 1e6 at 1e11 a second */
    check(&(ks_work){.in_bytes = 16e6, .out_bytes = 16e6, .flops = 1e6}, &cpu, 10, "compute");
    /* 68 MB are read at 40 GB/s */
    check(&(ks_work){.in_bytes = 100e6, .out_bytes = 0, .flops = 25e6}, &cpu, 1700, "memory");
    /* a copy of 64 MB each way is 6400 us; 32 MB of the reads, 800 us, do not count */
    check(&(ks_work){.in_bytes = 64e6, .out_bytes = 64e6, .flops = 1e6}, &cpu, 5600, "memory");
    /* 22 MB of cache are left for the output: 10 MB at 1 / (2 / 20 - 1 / 40) GB/s */
    check(&(ks_work){.in_bytes = 10e6, .out_bytes = 32e6, .flops = 1e6}, &cpu, 750, "memory");
}

static void what_is_unknown_bounds_nothing(void **state)
{
    (void)state;
    const ks_ceilings none = {0};
    check(&(ks_work){.in_bytes = 1e9, .out_bytes = 1e9, .flops = 1e12, .link = true}, &none, 0, NULL);
    ks_ceilings some = {.copy_gbs = {20, "a"}};
    check(&(ks_work){.in_bytes = 1e6, .out_bytes = 1e6, .flops = 1e12, .link = true}, &some, 100, "memory");
    some.read_gbs.value = 10; /* found while others used the memory: a copy has shown that it can do more */
    check(&(ks_work){.in_bytes = 1e6, .out_bytes = 1e6, .flops = 1e12}, &some, 100, "memory");
    check(&(ks_work){.flops = 0}, &gpu, 0, "launch");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_lower_bound_counts),
        cmocka_unit_test(caches_hold_what_they_can),
        cmocka_unit_test(what_is_unknown_bounds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
