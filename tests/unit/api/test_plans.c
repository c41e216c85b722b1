/* Plans of all shards: merged where they are the same work, in the order that was asked for, and gone with their plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/plan_text.h"
#include "api/plans.h"

static ks_backend backend = {.name = "none"};
static ks_device_info device = {.backend = "cpu"};

static ks_plan *make(const char *op, int64_t rows, size_t offset)
{
    ks_plan *plan = calloc(1, sizeof *plan);
    ks_error error;
    ks_spec_init(&plan->spec, ks_op_find(op, strlen(op)));
    plan->spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {rows, 256}};
    plan->spec.given = 1;
    assert_int_equal(ks_tensor_measure(&plan->spec.in[0], "INPUT0", &error), KS_OK);
    assert_int_equal(plan->spec.op->resolve(&plan->spec, &error), KS_OK);
    plan->spec.in[0].offset = offset;
    plan->batch_max = 4;
    strcpy(plan->kernel_info.kernel, "kernel");
    return plan;
}

static void run(const ks_plan *plan, int count, int64_t kernel_ns, int times)
{
    const ks_batch batch = {.plan = (ks_plan *)(uintptr_t)plan, .count = count, .kernel_ns = kernel_ns};
    for (int i = 0; i < times; i++) ks_catalog_count(plan, &batch);
}

static ks_api_view open_view(int shards)
{
    return (ks_api_view){.catalogs = ks_catalogs_open(shards),
                         .ceilings = ks_ceilings_open(&backend, NULL, 0),
                         .device_info = &device,
                         .shards = shards};
}

static void close_view(ks_api_view *view)
{
    ks_plan_catalogs *catalogs = (ks_plan_catalogs *)(uintptr_t)view->catalogs;
    ks_catalogs_close(&catalogs);
    ks_ceilings_close(&view->ceilings);
}

static ks_plan_catalog *catalog(const ks_api_view *view, int shard)
{
    return ks_catalogs_writer((ks_plan_catalogs *)(uintptr_t)view->catalogs, shard);
}

static void equal_work_of_shards_is_one_row(void **state)
{
    (void)state;
    ks_api_view view = open_view(3);
    ks_plan *same[] = {make("softmax", 4, 0), make("softmax", 4, 256), make("softmax", 5, 0), make("reduce", 4, 0)};
    strcpy(same[1]->kernel_info.kernel, "of most jobs");
    for (int i = 0; i < 4; i++) ks_catalog_put(catalog(&view, i % 3), same[i], "mapped");
    run(same[0], 2, 3000, 5);
    run(same[1], 3, 4000, 10);
    run(same[1], 1, -1, 1); /* launched, not timed */
    run(same[2], 1, 100, 1);
    ks_plan_list list;
    ks_error error;
    assert_int_equal(ks_plans_collect(&view, &list, &error), KS_OK);
    assert_int_equal(list.count, 2); /* reduce has not run */
    ks_plans_sort(&view, &list, KS_PLANS_BY_TIME);
    const ks_plan_counts *counts = &list.row[0].counts;
    assert_int_equal(counts->launches, 16);
    assert_int_equal(counts->jobs, 41);
    assert_int_equal(counts->timed_jobs, 40);
    assert_int_equal(counts->timed_ns, 55000);
    assert_string_equal(list.row[0].facts.kernel_info.kernel, "of most jobs");
    assert_int_equal(list.row[1].facts.spec.in[0].dims[0], 5);
    ks_plans_free(&list);
    for (int i = 0; i < 4; i++) free(same[i]);
    close_view(&view);
}

static void a_place_goes_with_its_plan(void **state)
{
    (void)state;
    ks_api_view view = open_view(1);
    ks_plan *first = make("softmax", 4, 0), *second = make("softmax", 9, 0);
    ks_plan_row row;
    ks_catalog_put(catalog(&view, 0), first, "mapped");
    run(first, 1, 10, 7);
    ks_catalog_put(catalog(&view, 0), first, "copies"); /* tuned: what has run stays, but for its times */
    assert_true(ks_catalog_read(view.catalogs, 0, 0, &row));
    assert_int_equal(row.counts.jobs, 7);
    assert_int_equal(row.counts.timed_jobs, 0);
    assert_string_equal(row.facts.path, "copies");
    ks_catalog_take(catalog(&view, 0), first);
    assert_false(ks_catalog_read(view.catalogs, 0, 0, &row));
    ks_catalog_put(catalog(&view, 0), second, "mapped");
    assert_int_equal(ks_catalog_used(view.catalogs, 0), 1);
    assert_true(ks_catalog_read(view.catalogs, 0, 0, &row));
    assert_int_equal(row.counts.jobs, 0);
    assert_int_equal(row.facts.spec.in[0].dims[0], 9);
    free(first);
    free(second);
    close_view(&view);
}

static void a_full_board_takes_no_more(void **state)
{
    (void)state;
    ks_api_view view = open_view(1);
    static ks_plan plans[KS_CATALOG_PLACES + 1];
    ks_plan *plan = make("softmax", 1, 0);
    for (int i = 0; i <= KS_CATALOG_PLACES; i++) {
        plans[i] = *plan;
        ks_catalog_put(catalog(&view, 0), &plans[i], "mapped");
    }
    assert_non_null(plans[KS_CATALOG_PLACES - 1].place);
    assert_null(plans[KS_CATALOG_PLACES].place);
    run(&plans[KS_CATALOG_PLACES], 1, 1, 1);
    free(plan);
    close_view(&view);
}

static void csv(const ks_api_view *view, const char *query, const char *expected)
{
    ks_text text;
    ks_error error;
    ks_text_init(&text, 1 << 20);
    assert_int_equal(ks_plans_write(view, query, true, false, &text, &error), KS_OK);
    ks_text_add(&text, "", 1);
    assert_false(text.broken);
    assert_memory_equal(text.bytes, ks_plan_csv_head, strlen(ks_plan_csv_head));
    assert_string_equal(text.bytes + strlen(ks_plan_csv_head), expected);
    ks_text_fini(&text);
}

static void queries_sort_and_cut(void **state)
{
    (void)state;
    ks_api_view view = open_view(1);
    ks_plan *slow = make("softmax", 4, 0), *often = make("reduce", 4, 0);
    ks_catalog_put(catalog(&view, 0), slow, "mapped");
    ks_catalog_put(catalog(&view, 0), often, "mapped");
    run(slow, 1, 8000, 2);
    run(often, 1, 1000, 5);
    const char slow_line[] = "softmax,FP32,4x256,\"axis=1 log=false scale=1 causal=none masked_rows=nan "
                             "out_datatype=input\",\"kernel\",mapped,2,2,0,16.000,8,8192,"
                             "10240,1.024,0.00128,,,\r\n";
    csv(&view, "top=1", slow_line);
    csv(&view, "top=1&sort=time", slow_line);
    csv(&view, "sort=launches&top=1",
        "reduce,FP32,4x256,\"op=sum axis=1 keepdims=false ddof=0 p=null\",\"kernel\",mapped,5,5,0,"
        "5.000,1,4112,1024,4.112,0.001024,,,\r\n");
    static const char *const wrong[] = {"top=0", "top=4097", "top=",       "top=1x", "top=99999999999999999999",
                                        "sort=", "sort=x",   "sort=times", "tops=1", "x",
                                        "top",   "top=1&&",  "&top=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ks_text text;
        ks_error error;
        ks_text_init(&text, 1 << 20);
        assert_int_equal(ks_plans_write(&view, wrong[i], false, false, &text, &error), KS_PARAMETER);
        ks_text_fini(&text);
    }
    free(slow);
    free(often);
    close_view(&view);
}

/* 2 MB each way in 20 us, of a kernel of 200 CTAs on 10 SMs with 8 each at a time: 3 waves, the last one half full. */
static void figures_are_known_numbers(void **state)
{
    (void)state;
    ks_plan *plan = make("softmax", 1000, 0);
    ks_plan_row row;
    plan->timed_jobs = 10;
    plan->timed_ns = 200000;
    plan->kernel_info.grid = 200;
    plan->kernel_info.occupancy = (ks_occupancy){.ctas = 8, .sms = 10};
    const ks_ceilings ceilings = {.copy_gbs = {409.6, "a"}, .tflops = {1.28, "b"}};
    ks_plan_row_of(plan, "copies", &row);
    const ks_plan_figures figures = ks_plan_figures_of(&row, &device, &ceilings);
    assert_true(fabs(figures.bytes - 2048000) <= 1e-9);
    assert_true(fabs(figures.us - 20) <= 1e-9);
    assert_true(fabs(figures.gbs - 102.4) <= 1e-9);
    assert_true(fabs(figures.tflops - 0.128) <= 1e-9);
    assert_true(fabs(figures.roofline.us - 5) <= 1e-9);
    assert_true(fabs(figures.share - 0.25) <= 1e-9);
    assert_true(fabs(figures.waves - 3) <= 1e-9);
    assert_true(fabs(figures.last_wave - 0.5) <= 1e-9);
    free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_work_of_shards_is_one_row), cmocka_unit_test(a_place_goes_with_its_plan),
        cmocka_unit_test(a_full_board_takes_no_more),      cmocka_unit_test(queries_sort_and_cut),
        cmocka_unit_test(figures_are_known_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
