/* Joined rows of chains on the CPU: a row has the bits that it has alone, in any company, joined or not; a job whose values are refused is
 * refused alone; and chains that have nothing to join are not joined. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "kernserve/backends.h"
#include "kernserve/chain.h"
#include "ops/map.h"

enum { FAMILY_ROWS = 32, JOB_ROWS = 4, JOBS = 24, TURNS = 60, WORDS = 50, TAKEN = 3, WIDE = 16 };
enum { ROW = TAKEN * WIDE, HIDDEN = 70, CLASSES = 3 };

/* Values: the inputs, constants, and what nodes make. */
enum { IDS, SHIFT, TABLE, W0, B0, G, W1, FOUND, X, SUM, MOVED, NORMED, LOGITS, FAR, OUT };
enum { INPUTS = TABLE, CONSTANTS = FOUND - TABLE, MADE = OUT - FOUND, NODES = 7, MOVES = 3, NORMS };

typedef struct bed {
    ks_device *device;
    ks_lane *lane;
    ks_chain chain;
    ks_chain_node nodes[NODES];
    ks_tensor constant[CONSTANTS];
    float table[WORDS * WIDE], w0[ROW * HIDDEN], b0[HIDDEN], g[HIDDEN], w1[HIDDEN * CLASSES];
    ks_slot slots[JOBS];
    ks_plan family, own[JOB_ROWS + 1];
    ks_batch batch;
} bed;

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(drawn >> 33) % below;
}

static void fill(float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] = (float)draw(20001) / 10000.0f - 1.0f;
}

static void set_constant(bed *b, int value, int rank, int64_t first, int64_t second, const float *data)
{
    ks_error error = {0};
    ks_tensor tensor = {.dtype = KS_FP32, .rank = rank, .dims = {first, second}, .fixed = data};
    assert_int_equal(ks_tensor_measure(&tensor, "constant", &error), KS_OK);
    b->constant[value - TABLE] = tensor;
}

static void set_node(bed *b, int index, const char *op, int first, int second, int third, int out)
{
    ks_chain_node *node = &b->nodes[index];
    *node = (ks_chain_node){.name = op, .op = ks_op_find(op, strlen(op)), .outputs = 1};
    memset(node->in, -1, sizeof node->in);
    memset(node->out, -1, sizeof node->out);
    node->in[0] = (int16_t)first;
    node->in[1] = (int16_t)second;
    node->in[2] = (int16_t)third;
    node->out[0] = (int16_t)out;
    if (node->op) ks_params_init(node->op, node->params, node->lists);
}

/* Three words of each row are looked up, and what they are together is classified, moved by the row's own shift. */
static void make_chain(bed *b)
{
    ks_chain *chain = &b->chain;
    set_constant(b, TABLE, 2, WORDS, WIDE, b->table);
    set_constant(b, W0, 2, ROW, HIDDEN, b->w0);
    set_constant(b, B0, 1, HIDDEN, 0, b->b0);
    set_constant(b, G, 1, HIDDEN, 0, b->g);
    set_constant(b, W1, 2, HIDDEN, CLASSES, b->w1);
    set_node(b, 0, "gather", TABLE, IDS, -1, FOUND);
    set_node(b, 1, "reshape", FOUND, -1, -1, X);
    b->nodes[1].rank = 2;
    b->nodes[1].dims[1] = ROW;
    set_node(b, 2, "matmul", X, W0, B0, SUM);
    set_node(b, 3, "norm", MOVED, G, -1, NORMED);
    set_node(b, 4, "matmul", NORMED, W1, -1, LOGITS);
    set_node(b, 5, "softmax", LOGITS, -1, -1, FAR);
    set_node(b, 6, "map", SUM, SHIFT, -1, MOVED);
    const ks_chain_node moved = b->nodes[6];
    memmove(&b->nodes[4], &b->nodes[3], 3 * sizeof *b->nodes);
    b->nodes[MOVES] = moved;
    b->nodes[MOVES].params[KS_MAP_OP].i = KS_MAP_ADD;
    *chain = (ks_chain){.op = {.name = "words",
                               .inputs_count = INPUTS,
                               .resolve = ks_chain_resolve,
                               .joins = ks_chain_joins,
                               .refuse = ks_chain_refuse,
                               .nodes_decide = true,
                               .chain = chain},
                        .constants = CONSTANTS,
                        .nodes = NODES,
                        .made = MADE,
                        .in = {{.name = "ids", .dtype = KS_INT64, .rank = 2, .dims = {KS_DIM_WORD, TAKEN}},
                               {.name = "shift", .dtype = KS_FP32, .rank = 2, .dims = {KS_DIM_WORD, HIDDEN}}},
                        .out = {{.name = "far", .rank = -1}, {.name = "sum", .rank = -1}},
                        .outputs = 2,
                        .output = {FAR, SUM},
                        .max_batch = FAMILY_ROWS,
                        .words = 1,
                        .constant = b->constant,
                        .node = b->nodes};
    chain->op.inputs[0] = (ks_input){.name = "ids", .role = "ids", .dtypes = KS_DTYPE_BIT(KS_INT64)};
    chain->op.inputs[1] = (ks_input){.name = "shift", .role = "shift", .dtypes = KS_DTYPE_BIT(KS_FP32)};
    chain->batched[IDS] = chain->batched[SHIFT] = true;
    for (int value = FOUND; value < OUT; value++) chain->batched[value] = true;
}

static void make_plan(bed *b, int rows, bool joined, ks_plan *plan)
{
    ks_error error = {0};
    ks_spec *spec = &plan->spec;
    memset(plan, 0, sizeof *plan);
    ks_spec_init(spec, &b->chain.op);
    spec->in[0] = (ks_tensor){.dtype = KS_INT64, .rank = 2, .dims = {rows, TAKEN}};
    spec->in[1] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {rows, HIDDEN}};
    if (ks_chain_resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
    plan->in_bytes = ks_spec_in_bytes(spec);
    plan->out_bytes = ks_spec_out_bytes(spec);
    plan->batch_max = 1;
    plan->join_rows = joined ? rows : 0;
    assert_int_equal(ks_program_make(spec, &plan->program, &error), KS_OK);
    assert_int_equal(ks_backend_cpu->prepare(b->device, plan, &error), KS_OK);
}

static bed *open_bed(void)
{
    const ks_limits limits = {.device_index = -1, .lanes = 1, .model_bytes = 1 << 20};
    ks_error error = {0};
    bed *b = calloc(1, sizeof *b);
    assert_non_null(b);
    drawn = 7;
    fill(b->table, WORDS * WIDE);
    fill(b->w0, ROW * HIDDEN);
    fill(b->b0, HIDDEN);
    fill(b->g, HIDDEN);
    fill(b->w1, HIDDEN * CLASSES);
    assert_int_equal(ks_backend_cpu->open(&limits, &b->device, &error), KS_OK);
    assert_int_equal(ks_backend_cpu->lane_open(b->device, 0, -1, &b->lane, &error), KS_OK);
    make_chain(b);
    make_plan(b, FAMILY_ROWS, true, &b->family);
    for (int rows = 1; rows <= JOB_ROWS; rows++) make_plan(b, rows, false, &b->own[rows]);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(ks_backend_cpu->slot_init(b->device, 4096, 4096, true, &b->slots[i], &error), KS_OK);
    return b;
}

static void close_bed(bed *b)
{
    for (int i = 0; i < JOBS; i++) ks_backend_cpu->slot_fini(b->device, &b->slots[i]);
    ks_program_free(&b->family.program);
    for (int rows = 1; rows <= JOB_ROWS; rows++) ks_program_free(&b->own[rows].program);
    ks_backend_cpu->lane_close(&b->lane);
    ks_backend_cpu->close(&b->device);
    free(b);
}

static void run(bed *b, ks_plan *plan)
{
    ks_error error = {0};
    ks_poll poll;
    b->batch.plan = plan;
    b->batch.refused = false;
    assert_int_equal(ks_backend_cpu->launch(b->lane, &b->batch, &error), KS_OK);
    while ((poll = ks_backend_cpu->poll(b->lane, &error)) == KS_RUNNING)
        nanosleep(&(struct timespec){.tv_nsec = 5000}, NULL);
    assert_int_equal(poll, KS_DONE);
}

static void begin(bed *b, int jobs)
{
    memset(&b->batch, 0, sizeof b->batch);
    b->batch.count = jobs;
    for (int i = 0; i < jobs; i++) b->batch.slots[i] = &b->slots[i];
}

/* A job's rows: any words, and what stood where they answer is gone. */
static void add_rows(bed *b, int job, int rows)
{
    int64_t *ids = (int64_t *)(void *)b->slots[job].in;
    for (int i = 0; i < rows * TAKEN; i++) ids[i] = draw(WORDS);
    fill((float *)(void *)(b->slots[job].in + ks_plan_job_in_at(&b->family, 1, rows)), (size_t)(rows * HIDDEN));
    memset(b->slots[job].out, 0xA5, 4096);
    b->batch.rows[job] = rows;
    b->batch.rows_sum += rows;
}

static size_t out_bytes(const bed *b, int rows)
{
    return ks_plan_job_out(&b->family, rows);
}

/* As it answers without joining. */
static void check_job(bed *b, int job, int rows, const unsigned char *joined)
{
    unsigned char *out = b->slots[job].out;
    begin(b, 1);
    b->batch.slots[0] = &b->slots[job];
    memset(out, 0, 4096);
    run(b, &b->own[rows]);
    assert_false(b->batch.refused);
    for (int i = 0; i < 2; i++) {
        const size_t at = ks_plan_job_out_at(&b->family, i, rows), row = (size_t)(i ? HIDDEN : CLASSES) * sizeof(float);
        assert_memory_equal(joined + at, out + at, row * (size_t)rows);
    }
    const size_t end = out_bytes(b, rows);
    for (size_t i = end; i < 4096; i++) assert_int_equal(joined[i], 0xA5);
}

static int draw_company(bed *b)
{
    const int jobs = 1 + (int)draw(JOBS);
    int count = 0;
    begin(b, 0);
    for (int i = 0; i < jobs; i++) {
        const int rows = 1 + (int)draw(JOB_ROWS);
        if (b->batch.rows_sum + rows > FAMILY_ROWS) break;
        b->batch.slots[count] = &b->slots[count];
        add_rows(b, count++, rows);
    }
    b->batch.count = count;
    return count;
}

static void a_row_has_the_bits_that_it_has_alone(void **state)
{
    (void)state;
    static unsigned char joined[JOBS][4096];
    bed *b = open_bed();
    assert_int_equal(b->family.join_rows, FAMILY_ROWS);
    assert_true(b->family.batch_max > 1);
    for (int turn = 0; turn < TURNS; turn++) {
        int rows[JOBS];
        const int jobs = draw_company(b);
        memcpy(rows, b->batch.rows, sizeof rows);
        run(b, &b->family);
        assert_false(b->batch.refused);
        for (int i = 0; i < jobs; i++) memcpy(joined[i], b->slots[i].out, 4096);
        for (int i = 0; i < jobs; i++) check_job(b, i, rows[i], joined[i]);
    }
    close_bed(b);
}

/* The place counts in the job's own rows. */
static void a_job_with_a_bad_value_is_refused_alone(void **state)
{
    (void)state;
    static unsigned char joined[3][4096];
    bed *b = open_bed();
    begin(b, 3);
    for (int i = 0; i < 3; i++) add_rows(b, i, 2);
    ((int64_t *)(void *)b->slots[1].in)[4] = WORDS;
    run(b, &b->family);
    assert_true(b->batch.refused);
    for (int i = 0; i < 3; i++) assert_int_equal(b->batch.bad[i].input, i == 1 ? 1 : 0);
    assert_int_equal(b->batch.bad[1].place, 4);
    assert_int_equal(b->batch.bad[1].value, WORDS);
    assert_int_equal(b->batch.bad[1].node, 0);
    for (int i = 0; i < 3; i++) memcpy(joined[i], b->slots[i].out, 4096);
    check_job(b, 0, 2, joined[0]);
    check_job(b, 2, 2, joined[2]);
    begin(b, 1);
    add_rows(b, 0, 1);
    run(b, &b->family); /* and nobody is, the next time */
    assert_false(b->batch.refused);
    close_bed(b);
}

/* Steps are timed, as those of any job. */
static void steps_of_one_job_are_timed(void **state)
{
    (void)state;
    bed *b = open_bed();
    int64_t step_ns[KS_CHAIN_STEPS_MAX] = {0};
    begin(b, 1);
    add_rows(b, 0, 3);
    b->batch.step_ns = step_ns;
    run(b, &b->family);
    for (int i = 0; i < b->family.program->count; i++) assert_true(step_ns[i] > 0);
    close_bed(b);
}

static void is_joined(bed *b, bool wanted)
{
    ks_plan plan;
    make_plan(b, FAMILY_ROWS, true, &plan);
    assert_int_equal(plan.join_rows, wanted ? FAMILY_ROWS : 0);
    ks_program_free(&plan.program);
}

static void chains_without_products_of_rows_are_not_joined(void **state)
{
    (void)state;
    bed *b = open_bed();
    is_joined(b, true);
    const ks_chain_node norm = b->nodes[NORMS];
    set_node(b, NORMS, "reshape", MOVED, -1, -1,
             NORMED); /* a product of matrices: oneDNN's bits of a row follow from the others */
    b->nodes[NORMS].rank = 3;
    b->nodes[NORMS].dims[1] = 1;
    b->nodes[NORMS].dims[2] = HIDDEN;
    is_joined(b, false);
    b->nodes[NORMS] = norm;
    is_joined(b, true);
    b->chain.nodes = 2; /* nothing is read but rows */
    b->chain.output[0] = FOUND;
    b->chain.output[1] = X;
    is_joined(b, false);
    close_bed(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_row_has_the_bits_that_it_has_alone),
                                       cmocka_unit_test(a_job_with_a_bad_value_is_refused_alone),
                                       cmocka_unit_test(steps_of_one_job_are_timed),
                                       cmocka_unit_test(chains_without_products_of_rows_are_not_joined)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
