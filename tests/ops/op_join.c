/* Joined rows have the bits that they have alone: of each backend, datatype and layout, in random companies, some rows with NaN and
 * infinity. Rows come from a pool; what a row gives in a job of its own is what it has to give in every launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernserve/backends.h"
#include "ops/matmul.h"
#include "ops/search/search.h"
#include "ops/op_values.h"

extern const ks_op ks_op_matmul, ks_op_search;

enum { POOL = 64, SLOW_POOL = 11, SLOW_WEIGHT = 8192, ROWS_MOST = 256, COMPANIES = 12 };

static const int64_t shapes[][2] = {{64, 10}, {100, 37},  {1, 64},  {17, 33},
                                    {513, 3}, {256, 128}, {192, 1}, {1024, 1000}};
static const int sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11,  12,  13,  14,
                            15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256};
static const struct {
    ks_dtype dtype;
    bool tf32, search;
} kinds[] = {{KS_FP32, false, false}, {KS_BF16, false, false}, {KS_FP16, false, false}, {KS_FP64, false, false},
             {KS_FP32, true, false},  {KS_FP32, false, true},  {KS_BF16, false, true}};
enum {
    SHAPES = sizeof shapes / sizeof *shapes,
    SIZES = sizeof sizes / sizeof *sizes,
    KINDS = sizeof kinds / sizeof *kinds
};

/* One weight, a family's plan for it, and what each row of the pool gives. */
typedef struct bench {
    const ks_backend *backend;
    ks_device *device;
    ks_lane *lane;
    ks_plan plan;
    ks_slot weight, bias;
    ks_slot slots[KS_BATCH_MAX]; /* the i-th holds ROWS_MOST / (i + 1) rows: as many as the i-th largest job may have */
    size_t in_row, out_row[KS_JOIN_OUTPUTS];
    unsigned char *pool, *alone[KS_JOIN_OUTPUTS];
    uint64_t differ;
    bool slow; /* the emulated GPU: a few rows of small weights */
} bench;

static bool captured_turn;

/* --- one launch ------------------------------------------------------------------------------------------------------- */

static void run(bench *b, ks_batch *batch)
{
    ks_error error = {.status = KS_OK};
    batch->plan = &b->plan;
    captured_turn = !captured_turn;
    if (captured_turn && b->plan.graphs)
        assert_int_equal(b->backend->capture(b->lane, &b->plan, ks_batch_bucket(batch), &error), KS_OK);
    if (b->backend->launch(b->lane, batch, &error) != KS_OK) fail_msg("launch: %s", error.text);
    ks_poll poll;
    while ((poll = b->backend->poll(b->lane, &error)) == KS_RUNNING)
        nanosleep(&(struct timespec){.tv_nsec = 5000}, NULL);
    if (poll != KS_DONE) fail_msg("poll: %s", error.text);
}

/* Puts random rows of the pool into a slot. */
static void fill(const bench *b, ks_slot *slot, int rows, int *from)
{
    for (int r = 0; r < rows; r++) {
        from[r] = values_below(b->slow ? SLOW_POOL : POOL);
        memcpy(slot->in + (size_t)r * b->in_row, b->pool + (size_t)from[r] * b->in_row, b->in_row);
    }
    memset(slot->out, 0xA5, ks_plan_job_out(&b->plan, rows) + 64);
}

static void compare(bench *b, const ks_slot *slot, int rows, const int *from)
{
    for (int o = 0; o < b->plan.spec.outputs; o++) {
        const unsigned char *out = slot->out + ks_plan_job_out_at(&b->plan, o, rows);
        const size_t bytes = b->out_row[o];
        for (int r = 0; r < rows; r++)
            b->differ += memcmp(out + (size_t)r * bytes, b->alone[o] + (size_t)from[r] * bytes, bytes) != 0;
    }
    const unsigned char *end = slot->out + ks_plan_job_out(&b->plan, rows);
    for (size_t i = 0; i < 64; i++) assert_int_equal(end[i], 0xA5);
}

static void run_company(bench *b, const int *rows, int count)
{
    static int from[KS_BATCH_MAX][ROWS_MOST];
    ks_batch *batch = calloc(1, sizeof *batch);
    const int turn = values_below(count); /* the order in the launch is not that of their sizes */
    for (int i = 0; i < count; i++) {
        const int at = (i + turn) % count;
        fill(b, &b->slots[at], rows[at], from[at]);
        batch->slots[i] = &b->slots[at];
        batch->rows[i] = rows[at];
        batch->rows_sum += rows[at];
    }
    batch->count = count;
    run(b, batch);
    for (int i = 0; i < count; i++) compare(b, &b->slots[i], rows[i], from[i]);
    free(batch);
}

static int descending(const void *a, const void *b)
{
    return *(const int *)b - *(const int *)a;
}

static void run_random_company(bench *b)
{
    int rows[KS_BATCH_MAX], count = 0, sum = 0;
    const int most = values_below(3) ? 1 + values_below(KS_BATCH_MAX) : KS_BATCH_MAX;
    const int tall = values_below(2) ? SIZES : 4;
    for (int tries = 0; tries < 200 && count < most; tries++) {
        const int more = sizes[values_below(tall)];
        if (sum + more > b->plan.join_rows) continue;
        rows[count++] = more;
        sum += more;
    }
    qsort(rows, (size_t)count, sizeof *rows, descending);
    run_company(b, rows, count);
}

/* --- the bench -------------------------------------------------------------------------------------------------------- */

static void fill_values(void *to, ks_dtype dtype, size_t count, int odd)
{
    for (size_t i = 0; i < count; i++) {
        const double value = values_unit();
        const int special = odd && values_below(odd) == 0 ? 1 + values_below(3) : 0;
        if (dtype == KS_FP64) {
            ((double *)to)[i] = special == 1 ? (double)NAN
                                : special    ? (special == 2 ? 1 : -1) * (double)INFINITY
                                             : value;
        } else if (dtype == KS_FP32) {
            ((float *)to)[i] = special == 1 ? NAN : special == 2 ? INFINITY : special == 3 ? -INFINITY : (float)value;
        } else {
            const uint16_t one = dtype == KS_FP16 ? 0x3C00 : 0x3F80, inf = dtype == KS_FP16 ? 0x7C00 : 0x7F80;
            const uint16_t fraction = (uint16_t)(values_next() & (dtype == KS_FP16 ? 0x3FF : 0x7F));
            const uint16_t sign = (uint16_t)((values_next() & 1) << 15);
            ((uint16_t *)to)[i] = (uint16_t)(sign | (special == 1 ? inf | 1 : special ? inf : one | fraction));
        }
    }
}

static void take_slot(const bench *b, size_t in_bytes, size_t out_bytes, ks_slot *slot)
{
    ks_error error;
    assert_int_equal(b->backend->slot_init(b->device, in_bytes, out_bytes, true, slot, &error), KS_OK);
}

static const void *seen(const ks_slot *slot)
{
    return slot->in_device ? slot->in_device : slot->in;
}

static void set_params(int kind, int64_t n, bool transposed, ks_spec *spec)
{
    if (kinds[kind].search) {
        spec->params[KS_SEARCH_K].i = 1 + values_below(n < 9 ? (int)n : 9);
        spec->params[KS_SEARCH_METRIC].i = values_below(3);
        return;
    }
    spec->params[1].i = transposed;
    spec->params[2].d = values_below(2) ? 1.0 : 0.5;
    spec->params[3].i = values_below(4);
    spec->params[4].i = kinds[kind].tf32;
}

/* A matrix to be searched has rows of K, and a bias of FP32. */
static void make_spec(bench *b, int kind, int64_t k, int64_t n, bool transposed, ks_spec *spec)
{
    ks_error error;
    const ks_dtype dtype = kinds[kind].dtype;
    const bool rows = transposed || kinds[kind].search;
    memset(spec, 0, sizeof *spec);
    ks_spec_init(spec, kinds[kind].search ? &ks_op_search : &ks_op_matmul);
    spec->in[0] = (ks_tensor){.dtype = dtype, .rank = 2, .dims = {ROWS_MOST, k}};
    spec->in[1] = (ks_tensor){.dtype = dtype, .rank = 2, .dims = {rows ? n : k, rows ? k : n}};
    spec->in[2] = (ks_tensor){.dtype = kinds[kind].search ? KS_FP32 : dtype, .rank = 1, .dims = {n}};
    spec->given = values_below(2) ? 7 : 3;
    set_params(kind, n, transposed, spec);
    assert_int_equal(spec->op->resolve(spec, &error), KS_OK);
    take_slot(b, spec->in[1].size_bytes, 1, &b->weight);
    take_slot(b, (size_t)n * sizeof(double), 1, &b->bias);
    fill_values(b->weight.in, dtype, (size_t)(k * n), 0);
    fill_values(b->bias.in, spec->in[2].dtype, (size_t)n, 0);
    spec->in[1].fixed = seen(&b->weight);
    spec->in[2].fixed = spec->given == 7 ? seen(&b->bias) : NULL;
    ks_spec_layout(spec);
}

static void begin(bench *b, int kind, int64_t k, int64_t n, bool transposed)
{
    ks_error error;
    make_spec(b, kind, k, n, transposed, &b->plan.spec);
    b->plan.id = 1;
    b->plan.in_bytes = ks_spec_in_bytes(&b->plan.spec);
    b->plan.out_bytes = ks_spec_out_bytes(&b->plan.spec);
    b->plan.join_rows = ROWS_MOST;
    assert_int_equal(b->backend->prepare(b->device, &b->plan, &error), KS_OK);
    assert_int_equal(b->plan.join_rows, ROWS_MOST);
    b->in_row = ks_plan_job_in(&b->plan, 1);
    for (int i = 0; i < KS_BATCH_MAX; i++) {
        const size_t rows = ROWS_MOST / (size_t)(i + 1);
        take_slot(b, rows * b->in_row, ks_plan_job_out(&b->plan, (int)rows) + 64, &b->slots[i]);
    }
    b->pool = malloc(POOL * b->in_row);
    for (int o = 0; o < b->plan.spec.outputs; o++) {
        b->out_row[o] = b->plan.spec.out[o].size_bytes / ROWS_MOST;
        b->alone[o] = malloc(POOL * b->out_row[o]);
    }
    fill_values(b->pool, kinds[kind].dtype, POOL * (size_t)k, 0);
    for (int r = 0; r < POOL; r += 5) /* some with a value that spreads */
        fill_values(b->pool + (size_t)r * b->in_row, kinds[kind].dtype, (size_t)k, (int)k + 1);
}

static void end(bench *b)
{
    b->backend->forget(b->lane, &b->plan);
    for (int i = 0; i < KS_BATCH_MAX; i++) b->backend->slot_fini(b->device, &b->slots[i]);
    b->backend->slot_fini(b->device, &b->weight);
    b->backend->slot_fini(b->device, &b->bias);
    free(b->pool);
    for (int o = 0; o < b->plan.spec.outputs; o++) free(b->alone[o]);
    memset(&b->plan, 0, sizeof b->plan);
}

static void learn_alone(bench *b)
{
    ks_batch *batch = calloc(1, sizeof *batch);
    for (int r = 0; r < (b->slow ? SLOW_POOL : POOL); r++) {
        memcpy(b->slots[0].in, b->pool + (size_t)r * b->in_row, b->in_row);
        batch->slots[0] = &b->slots[0];
        batch->rows[0] = batch->rows_sum = batch->count = 1;
        run(b, batch);
        for (int o = 0; o < b->plan.spec.outputs; o++)
            memcpy(b->alone[o] + (size_t)r * b->out_row[o], b->slots[0].out + ks_plan_job_out_at(&b->plan, o, 1),
                   b->out_row[o]);
    }
    free(batch);
}

/* --- cases ------------------------------------------------------------------------------------------------------------ */

static void run_case(bench *b, int index)
{
    const int shape = index % SHAPES, kind = index / SHAPES % KINDS;
    const bool transposed = index / SHAPES / KINDS;
    const uint64_t before = b->differ;
    if (b->slow && shapes[shape][0] * shapes[shape][1] > SLOW_WEIGHT) return;
    begin(b, kind, shapes[shape][0], shapes[shape][1], transposed);
    learn_alone(b);
    for (int i = 0; i < SIZES; i += b->slow ? 5 : 1) run_company(b, &sizes[i], 1);
    for (int i = 0; i < (b->slow ? 2 : COMPANIES); i++) run_random_company(b);
    if (b->differ > before)
        print_message("%s %s%s%s K %lld N %lld %s by %s: %llu rows differ\n", b->backend->name,
                      ks_dtype_name(kinds[kind].dtype), kinds[kind].tf32 ? " tf32" : "",
                      kinds[kind].search ? " search" : "", (long long)shapes[shape][0], (long long)shapes[shape][1],
                      transposed ? "transposed" : "", b->plan.kernel_info.kernel,
                      (unsigned long long)(b->differ - before));
    end(b);
}

/* false: there is no such device. */
static bool run_backend(const ks_backend *backend)
{
    bench *b = calloc(1, sizeof *b);
    ks_error error;
    const ks_limits limits = {.device_index = -1,
                              .lanes = 1,
                              .lane_bytes = 16 << 20,
                              .large_bytes = 16 << 20,
                              .workspace_bytes = 64 << 20,
                              .stream_bytes = 1,
                              .mapped_max = SIZE_MAX,
                              .pinned_must = true};
    const int all = SHAPES * KINDS * 2, cases = values_cases(all);
    b->backend = backend;
    b->slow = backend && strcmp(backend->name, "emulated") == 0;
    const bool there = backend && backend->open(&limits, &b->device, &error) == KS_OK;
    if (there) {
        assert_int_equal(backend->lane_open(b->device, 0, -1, &b->lane, &error), KS_OK);
        const int first = values_below(all);
        for (int i = 0; i < cases; i++) run_case(b, (first + i * 9) % all); /* 9: prime to their number */
        assert_int_equal(b->differ, 0);
        backend->lane_close(&b->lane);
        backend->close(&b->device);
    }
    free(b);
    return there;
}

static void rows_of_the_cpu_do_not_know_their_company(void **state)
{
    (void)state;
    assert_true(run_backend(ks_backend_cpu));
}

static void rows_of_the_gpu_do_not_know_their_company(void **state)
{
    (void)state;
    if (!run_backend(ks_backend_cuda)) skip();
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_the_cpu_do_not_know_their_company),
                                       cmocka_unit_test(rows_of_the_gpu_do_not_know_their_company)};
    cmocka_set_test_filter(getenv("KS_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
