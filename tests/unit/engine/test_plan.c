/* The plan cache: finds what it made, forgets the least recently used past its budget, never one in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ops/op_tiny.h"
#include "engine/plan.h"

static ks_plan *forgotten[64];
static int forgotten_count;

static void forget(void *context, ks_plan *plan)
{
    assert_ptr_equal(context, forgotten);
    assert_true(forgotten_count < 64);
    forgotten[forgotten_count++] = plan;
}

static ks_plans *open_plans_of(size_t max_bytes, size_t max_count)
{
    ks_plans *plans;
    ks_error error;
    forgotten_count = 0;
    assert_int_equal(ks_plans_open(max_bytes, max_count, forget, forgotten, &plans, &error), KS_OK);
    return plans;
}

static ks_plans *open_plans(size_t max_bytes)
{
    return open_plans_of(max_bytes, 0);
}

static ks_plan *make(ks_plans *plans, int64_t count)
{
    const ks_spec spec = tiny_spec(count, 0, 0);
    assert_null(ks_plans_find(plans, &spec));
    ks_plan *plan;
    ks_error error;
    assert_int_equal(ks_plans_make(plans, &spec, &plan, &error), KS_OK);
    return plan;
}

static ks_plan *find(ks_plans *plans, int64_t count)
{
    const ks_spec spec = tiny_spec(count, 0, 0);
    return ks_plans_find(plans, &spec);
}

/* Bytes of one plan, as the cache counts them. */
static uint64_t plan_bytes(void)
{
    ks_plans *plans = open_plans(1 << 20);
    make(plans, 1);
    const uint64_t bytes = ks_plans_bytes(plans);
    ks_plans_close(&plans);
    return bytes;
}

static void equal_specs_share_a_plan_and_others_do_not(void **state)
{
    (void)state;
    ks_plans *plans = open_plans(1 << 20);
    ks_plan *a = make(plans, 1), *b = make(plans, 2);
    assert_true(a->id != 0 && b->id != 0 && a->id != b->id);
    assert_ptr_equal(find(plans, 1), a);
    assert_ptr_equal(find(plans, 2), b);
    const ks_spec other_parameter = tiny_spec(1, 7, 0);
    assert_null(ks_plans_find(plans, &other_parameter));
    ks_spec other_datatype = tiny_spec(1, 0, 0);
    other_datatype.in[0].dtype = KS_INT32;
    assert_null(ks_plans_find(plans, &other_datatype));
    ks_plans_close(&plans);
    assert_null(plans);
    assert_int_equal(forgotten_count, 2);
}

static void many_plans_are_all_found_again(void **state)
{
    (void)state;
    ks_plans *plans = open_plans(64 << 20);
    for (int64_t i = 0; i < 5000; i++) make(plans, i)->users = (int)i;
    assert_int_equal(ks_plans_count(plans), 5000);
    for (int64_t i = 0; i < 5000; i++) assert_int_equal(find(plans, i)->users, i);
    for (int64_t i = 0; i < 5000; i++) find(plans, i)->users = 0;
    forgotten_count = -5000; /* not recorded one by one */
    ks_plans_drop(plans, &(ks_plan *){find(plans, 17)});
    assert_null(find(plans, 17));
    assert_int_equal(ks_plans_count(plans), 4999);
    while (ks_plans_count(plans)) ks_plans_drop(plans, &(ks_plan *){ks_plans_newest(plans)});
    assert_int_equal(ks_plans_bytes(plans), 0);
    ks_plans_close(&plans);
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    ks_plans *plans = open_plans(3 * plan_bytes());
    ks_plan *a = make(plans, 1), *b = make(plans, 2), *c = make(plans, 3);
    assert_ptr_equal(ks_plans_newest(plans), c);
    assert_ptr_equal(find(plans, 1), a); /* used: b is the oldest now */
    assert_ptr_equal(ks_plans_newest(plans), a);
    assert_int_equal(forgotten_count, 0);
    make(plans, 4);
    assert_int_equal(forgotten_count, 1);
    assert_ptr_equal(forgotten[0], b);
    assert_int_equal(ks_plans_evictions(plans), 1);
    assert_null(find(plans, 2));
    assert_non_null(find(plans, 1));
    assert_non_null(find(plans, 3));
    assert_int_equal(ks_plans_count(plans), 3);
    ks_plans_close(&plans);
}

static void their_number_is_limited_too(void **state)
{
    (void)state;
    ks_plans *plans = open_plans_of(1 << 20, 3);
    ks_plan *a = make(plans, 1), *b = make(plans, 2);
    make(plans, 3);
    assert_int_equal(forgotten_count, 0);
    a->users = 1;
    make(plans, 4); /* a is the oldest, and in use */
    assert_int_equal(forgotten_count, 1);
    assert_ptr_equal(forgotten[0], b);
    assert_int_equal(ks_plans_count(plans), 3);
    assert_ptr_equal(find(plans, 1), a);
    ks_plans_close(&plans);
}

static void peeking_does_not_make_a_plan_newer(void **state)
{
    (void)state;
    ks_plans *plans = open_plans_of(1 << 20, 2);
    ks_plan *a = make(plans, 1), *b = make(plans, 2);
    const ks_spec spec = tiny_spec(1, 0, 0), other = tiny_spec(9, 0, 0);
    assert_ptr_equal(ks_plans_peek(plans, &spec), a);
    assert_null(ks_plans_peek(plans, &other));
    assert_ptr_equal(ks_plans_newest(plans), b);
    make(plans, 3);
    assert_ptr_equal(forgotten[0], a);
    ks_plans_close(&plans);
}

static void a_plan_in_use_stays_past_the_budget(void **state)
{
    (void)state;
    const uint64_t one = plan_bytes();
    ks_plans *plans = open_plans(2 * one);
    ks_plan *a = make(plans, 1), *b = make(plans, 2);
    a->users = b->users = 1;
    ks_plan *c = make(plans, 3);
    c->users = 1;
    assert_int_equal(forgotten_count, 0);
    assert_int_equal(ks_plans_bytes(plans), 3 * one);
    b->users = 0;
    make(plans, 4);
    assert_int_equal(forgotten_count, 1);
    assert_ptr_equal(forgotten[0], b);
    a->users = c->users = 0;
    make(plans, 5); /* comes back under the budget: a and c go, the new one never does */
    assert_int_equal(ks_plans_bytes(plans), 2 * one);
    assert_non_null(find(plans, 5));
    assert_null(find(plans, 1));
    assert_null(find(plans, 3));
    ks_plans_close(&plans);
}

static void graphs_count_as_bytes_of_their_plan(void **state)
{
    (void)state;
    const uint64_t one = plan_bytes();
    ks_plans *plans = open_plans(2 * one + 1000);
    ks_plan *a = make(plans, 1), *b = make(plans, 2);
    ks_plans_charge(plans, a, 900);
    assert_int_equal(ks_plans_bytes(plans), 2 * one + 900);
    ks_plans_charge(plans, b, 200); /* 100 too many: a goes, with its 900 */
    assert_int_equal(forgotten_count, 1);
    assert_ptr_equal(forgotten[0], a);
    assert_int_equal(ks_plans_bytes(plans), one + 200);
    ks_plans_charge(plans, b, -200);
    assert_int_equal(ks_plans_bytes(plans), one);
    ks_plans_charge(plans, b, 100000); /* alone past the budget: the plan just charged stays */
    assert_int_equal(ks_plans_count(plans), 1);
    ks_plans_close(&plans);
}

static void a_dropped_plan_is_not_forgotten_by_lanes(void **state)
{
    (void)state;
    ks_plans *plans = open_plans(1 << 20);
    ks_plan *a = make(plans, 1);
    ks_plans_drop(plans, &a);
    assert_null(a);
    assert_null(find(plans, 1));
    assert_null(ks_plans_newest(plans));
    assert_int_equal(ks_plans_bytes(plans), 0);
    ks_plans_close(&plans);
    assert_int_equal(forgotten_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_specs_share_a_plan_and_others_do_not),
        cmocka_unit_test(many_plans_are_all_found_again),
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(their_number_is_limited_too),
        cmocka_unit_test(peeking_does_not_make_a_plan_newer),
        cmocka_unit_test(a_plan_in_use_stays_past_the_budget),
        cmocka_unit_test(graphs_count_as_bytes_of_their_plan),
        cmocka_unit_test(a_dropped_plan_is_not_forgotten_by_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
