/* Joined rows of chains on each backend: a row has the bits that it has alone, in any company; a job whose values are refused is refused
 * alone; and chains that have nothing to join are not joined. On the CPU the bits are also those of a plan that is not joined. */
#include <math.h>
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
#include "ops/reduce.h"
#include "ops/op_values.h"

enum { FAMILY_ROWS = 32, JOB_ROWS = 4, JOBS = 24, TURNS = 60, WORDS = 50, TAKEN = 3, SIDE_BYTES = 1 << 16 };

/* Values: the inputs, constants, and what nodes make. */
enum { IDS, SHIFT, TABLE, W0, B0, G, W1, FOUND, X, LAYER, HIGH, BENT, MOVED, NORMED, LOGITS, FAR, OUT };
enum { INPUTS = TABLE, CONSTANTS = FOUND - TABLE, MADE = OUT - FOUND, NODES = 9, MOVES = 5, NORMS };

/* Of a chain: what its layer and its classes are, whether its second output is an input, and its first one the best class; whether the
 * shift is added to the layer as well, where that is no output. */
typedef struct chain_shape {
    int wide, hidden, classes; /* wide: of a word */
    ks_dtype dtype;
    bool copied, best, added;
} chain_shape;

typedef struct bed {
    const ks_backend *backend;
    chain_shape shape;
    ks_device *device;
    ks_lane *lane;
    ks_chain chain;
    ks_chain_node nodes[NODES];
    ks_tensor constant[CONSTANTS];
    ks_slot held[CONSTANTS];
    ks_slot slots[JOBS + 1]; /* the last one: of a row that goes alone; it is pinned by turns */
    ks_plan family, own[JOB_ROWS + 1];
    ks_batch batch;
    int launches;
} bed;

static const ks_backend *tested; /* of the test under way */

static bool is_cpu(const bed *b)
{
    return strcmp(b->backend->name, "cpu") == 0;
}

/* Uneven values in [-1, 1); of BF16 the upper half of them. */
static void fill(const bed *b, unsigned char *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(values_below(20001)) / 10000.0f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        const uint16_t half = (uint16_t)(bits >> 16);
        if (b->shape.dtype == KS_BF16)
            memcpy(to + i * sizeof half, &half, sizeof half);
        else
            memcpy(to + i * sizeof value, &value, sizeof value);
    }
}

static size_t element(const bed *b)
{
    return ks_dtype_size(b->shape.dtype);
}

static void set_constant(bed *b, int value, int rank, int64_t first, int64_t second)
{
    ks_error error = {0};
    ks_slot *held = &b->held[value - TABLE];
    ks_tensor tensor = {.dtype = b->shape.dtype, .rank = rank, .dims = {first, second}};
    assert_int_equal(ks_tensor_measure(&tensor, "constant", &error), KS_OK);
    assert_int_equal(b->backend->slot_init(b->device, tensor.size_bytes, 1, true, held, &error), KS_OK);
    fill(b, held->in, (size_t)ks_tensor_count(&tensor));
    tensor.fixed = held->in_device ? held->in_device : held->in;
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
    const int hidden = b->shape.hidden, row = TAKEN * b->shape.wide;
    set_constant(b, TABLE, 2, WORDS, b->shape.wide);
    set_constant(b, W0, 2, row, hidden);
    set_constant(b, B0, 1, hidden, 0);
    set_constant(b, G, 1, hidden, 0);
    set_constant(b, W1, 2, hidden, b->shape.classes);
    set_node(b, 0, "gather", TABLE, IDS, -1, FOUND);
    set_node(b, 1, "reshape", FOUND, -1, -1, X);
    b->nodes[1].rank = 2;
    b->nodes[1].dims[1] = row;
    set_node(b, 2, "matmul", X, W0, B0, LAYER);
    const bool added = b->shape.added && b->shape.copied;
    set_node(b, 3, "map", LAYER, added ? SHIFT : B0, -1,
             HIGH); /* two maps, which are one pass; or a residual and a map */
    b->nodes[3].params[KS_MAP_OP].i = added ? KS_MAP_ADD : KS_MAP_MAX;
    set_node(b, 4, "map", HIGH, -1, -1, BENT);
    b->nodes[4].params[KS_MAP_OP].i = KS_MAP_TANH;
    set_node(b, MOVES, "map", BENT, SHIFT, -1, MOVED);
    b->nodes[MOVES].params[KS_MAP_OP].i = KS_MAP_ADD;
    set_node(b, NORMS, "norm", MOVED, G, -1, NORMED);
    set_node(b, NORMS + 1, "matmul", NORMED, W1, -1, LOGITS);
    set_node(b, NORMS + 2, b->shape.best ? "reduce" : "softmax", LOGITS, -1, -1, FAR);
    if (b->shape.best) {
        b->nodes[NORMS + 2].params[OP].i = ARGMAX;
        b->nodes[NORMS + 2].params[AXIS].axes = (ks_axes){.count = 1, .axis = {1}};
    }
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
                               {.name = "shift", .dtype = b->shape.dtype, .rank = 2, .dims = {KS_DIM_WORD, hidden}}},
                        .out = {{.name = "far", .rank = -1}, {.name = "sum", .rank = -1}},
                        .outputs = 2,
                        .output = {FAR, b->shape.copied ? SHIFT : LAYER},
                        .max_batch = FAMILY_ROWS,
                        .words = 1,
                        .constant = b->constant,
                        .node = b->nodes};
    chain->op.inputs[0] = (ks_input){.name = "ids", .role = "ids", .dtypes = KS_DTYPE_BIT(KS_INT64)};
    chain->op.inputs[1] = (ks_input){.name = "shift", .role = "shift", .dtypes = KS_DTYPE_BIT(b->shape.dtype)};
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
    spec->in[1] = (ks_tensor){.dtype = b->shape.dtype, .rank = 2, .dims = {rows, b->shape.hidden}};
    if (ks_chain_resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
    plan->in_bytes = ks_spec_in_bytes(spec);
    plan->out_bytes = ks_spec_out_bytes(spec);
    plan->batch_max = 1;
    plan->join_rows = joined ? rows : 0;
    assert_int_equal(ks_program_make(spec, b->backend->chains, &plan->program, &error), KS_OK);
    assert_int_equal(b->backend->prepare(b->device, plan, &error), KS_OK);
}

static bed *open_bed(chain_shape shape)
{
    const ks_limits limits = {.device_index = -1,
                              .lanes = 1,
                              .lane_bytes = 4 << 20,
                              .large_bytes = 4 << 20,
                              .workspace_bytes = 64 << 20,
                              .model_bytes = 4 << 20,
                              .stream_bytes = 1,
                              .mapped_max = SIZE_MAX,
                              .pinned_must = true};
    ks_error error = {0};
    bed *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->backend = tested;
    b->shape = shape;
    if (!tested || tested->open(&limits, &b->device, &error) != KS_OK) {
        free(b);
        return NULL;
    }
    assert_int_equal(tested->lane_open(b->device, 0, -1, &b->lane, &error), KS_OK);
    make_chain(b);
    make_plan(b, FAMILY_ROWS, true, &b->family);
    for (int rows = 1; rows <= JOB_ROWS; rows++) make_plan(b, rows, false, &b->own[rows]);
    for (int i = 0; i <= JOBS; i++)
        assert_int_equal(
            tested->slot_init(b->device, SIDE_BYTES, SIDE_BYTES, i < JOBS || values_below(2), &b->slots[i], &error),
            KS_OK);
    return b;
}

static void end_plan(bed *b, ks_plan *plan)
{
    b->backend->forget(b->lane, plan);
    ks_program_free(&plan->program);
}

static void close_bed(bed *b)
{
    for (int i = 0; i <= JOBS; i++) b->backend->slot_fini(b->device, &b->slots[i]);
    for (int i = 0; i < CONSTANTS; i++) b->backend->slot_fini(b->device, &b->held[i]);
    end_plan(b, &b->family);
    for (int rows = 1; rows <= JOB_ROWS; rows++) end_plan(b, &b->own[rows]);
    b->backend->lane_close(&b->lane);
    b->backend->close(&b->device);
    free(b);
}

/* Captured or not, by turns. */
static void run(bed *b, ks_plan *plan)
{
    ks_error error = {0};
    ks_poll poll;
    b->batch.plan = plan;
    b->batch.refused = false;
    if (plan->graphs && b->launches++ % 2)
        assert_int_equal(b->backend->capture(b->lane, plan, ks_batch_bucket(&b->batch), &error), KS_OK);
    if (b->backend->launch(b->lane, &b->batch, &error) != KS_OK) fail_msg("%s", error.text);
    while ((poll = b->backend->poll(b->lane, &error)) == KS_RUNNING)
        nanosleep(&(struct timespec){.tv_nsec = 5000}, NULL);
    if (poll != KS_DONE) fail_msg("%s", error.text);
}

static void begin(bed *b, int jobs)
{
    memset(&b->batch, 0, sizeof b->batch);
    b->batch.count = jobs;
    for (int i = 0; i < jobs; i++) b->batch.slots[i] = &b->slots[i];
}

static unsigned char *shift_of(bed *b, int job, int rows)
{
    return b->slots[job].in + ks_plan_job_in_at(&b->family, 1, rows);
}

static void count_rows(bed *b, int at, int rows)
{
    b->batch.rows[at] = rows;
    b->batch.rows_sum += rows;
}

/* A job's rows: any words, and what stood where they answer is gone. */
static void add_rows(bed *b, int job, int rows)
{
    int64_t *ids = (int64_t *)(void *)b->slots[job].in;
    for (int i = 0; i < rows * TAKEN; i++) ids[i] = values_below(WORDS);
    fill(b, shift_of(b, job, rows), (size_t)(rows * b->shape.hidden));
    memset(b->slots[job].out, 0xA5, SIDE_BYTES);
    count_rows(b, job, rows);
}

static size_t row_bytes(const bed *b, int output)
{
    if (output == 0 && b->shape.best) return sizeof(int64_t);
    return (size_t)(output ? b->shape.hidden : b->shape.classes) * element(b);
}

static double value_at(const bed *b, const unsigned char *from, size_t i)
{
    uint16_t half;
    uint32_t bits;
    float value;
    if (b->shape.dtype == KS_BF16) {
        memcpy(&half, from + i * sizeof half, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
    } else {
        memcpy(&value, from + i * sizeof value, sizeof value);
    }
    return (double)value;
}

/* As it answers without joining: the same bits, or nearly the same values. */
static void check_own(bed *b, int job, int rows, const unsigned char *joined)
{
    unsigned char *out = b->slots[job].out;
    begin(b, 1);
    b->batch.slots[0] = &b->slots[job];
    memset(out, 0, SIDE_BYTES);
    run(b, &b->own[rows]);
    assert_false(b->batch.refused);
    for (int i = 0; i < 2; i++) {
        const size_t at = b->own[rows].spec.out[i].offset, bytes = row_bytes(b, i) * (size_t)rows;
        assert_int_equal(at, ks_plan_job_out_at(&b->family, i, rows));
        if (is_cpu(b)) {
            assert_memory_equal(joined + at, out + at, bytes);
            continue;
        }
        for (size_t e = 0; e < bytes / element(b) && (i > 0 || !b->shape.best); e++)
            if (!(fabs(value_at(b, joined + at, e) - value_at(b, out + at, e)) <=
                  (b->shape.dtype == KS_BF16 ? 6e-2 : 1e-4) * (1 + fabs(value_at(b, out + at, e)))))
                fail_msg("output %d, element %zu of %d rows: %g, alone %g", i, e, rows, value_at(b, joined + at, e),
                         value_at(b, out + at, e));
    }
}

/* Each row by itself, joined with nobody. */
static void check_rows(bed *b, int job, int rows, const unsigned char *joined)
{
    ks_slot *alone = &b->slots[JOBS];
    for (int r = 0; r < rows; r++) {
        memcpy(alone->in, b->slots[job].in + (size_t)r * TAKEN * sizeof(int64_t), TAKEN * sizeof(int64_t));
        memcpy(shift_of(b, JOBS, 1), shift_of(b, job, rows) + (size_t)r * row_bytes(b, 1), row_bytes(b, 1));
        begin(b, 1);
        b->batch.slots[0] = alone;
        count_rows(b, 0, 1);
        memset(alone->out, 0, SIDE_BYTES);
        run(b, &b->family);
        assert_false(b->batch.refused);
        for (int i = 0; i < 2; i++)
            if (memcmp(joined + ks_plan_job_out_at(&b->family, i, rows) + (size_t)r * row_bytes(b, i),
                       alone->out + ks_plan_job_out_at(&b->family, i, 1), row_bytes(b, i)) != 0)
                fail_msg("%d classes of %d, %s: output %d of row %d of %d has other bits alone", b->shape.classes,
                         b->shape.hidden, ks_dtype_name(b->shape.dtype), i, r, rows);
    }
}

static void check_job(bed *b, int job, int rows, const unsigned char *joined)
{
    for (size_t i = ks_plan_job_out(&b->family, rows); i < SIDE_BYTES; i++) assert_int_equal(joined[i], 0xA5);
    check_rows(b, job, rows, joined);
    check_own(b, job, rows, joined);
}

static int draw_company(bed *b)
{
    const int jobs = 1 + values_below(JOBS);
    int count = 0;
    begin(b, 0);
    for (int i = 0; i < jobs; i++) {
        const int rows = 1 + values_below(JOB_ROWS);
        if (b->batch.rows_sum + rows > FAMILY_ROWS) break;
        b->batch.slots[count] = &b->slots[count];
        add_rows(b, count++, rows);
    }
    b->batch.count = count;
    return count;
}

static unsigned char joined[JOBS][SIDE_BYTES];

static void run_companies(bed *b, int turns)
{
    assert_int_equal(b->family.join_rows, FAMILY_ROWS);
    assert_true(b->family.batch_max > 1);
    for (int turn = 0; turn < turns; turn++) {
        int rows[JOBS];
        const int jobs = draw_company(b);
        memcpy(rows, b->batch.rows, sizeof rows);
        run(b, &b->family);
        assert_false(b->batch.refused);
        for (int i = 0; i < jobs; i++) memcpy(joined[i], b->slots[i].out, SIDE_BYTES);
        for (int i = 0; i < jobs; i++) check_job(b, i, rows[i], joined[i]);
    }
}

static const chain_shape plain = {.wide = 16, .hidden = 70, .classes = 3, .dtype = KS_FP32};

static void a_row_has_the_bits_that_it_has_alone(void **state)
{
    (void)state;
    static const int hidden[] = {64, 70, 128, 96, 256}, classes[] = {10, 3, 32, 100, 41, 1};
    const int cases = values_cases(24);
    bed *b = open_bed(plain);
    if (!b) skip();
    const bool cpu = is_cpu(b), slow = strcmp(tested->name, "emulated") == 0;
    run_companies(b, cpu ? TURNS : 3);
    close_bed(b);
    for (int i = 0; !cpu && i < cases; i++) {
        b = open_bed((chain_shape){.wide = values_below(3) ? 16 : 256,
                                   .hidden = hidden[values_below(5)],
                                   .classes = classes[values_below(6)],
                                   .dtype = i % 2 ? KS_BF16 : KS_FP32,
                                   .copied = values_below(2),
                                   .best = values_below(3) == 0,
                                   .added = values_below(2)});
        run_companies(b, slow ? 1 : 4);
        close_bed(b);
    }
}

/* The place counts in the job's own rows. */
static void a_job_with_a_bad_value_is_refused_alone(void **state)
{
    (void)state;
    bed *b = open_bed(plain);
    if (!b) skip();
    for (int bad = 0; bad < 3; bad++) {
        begin(b, 3);
        for (int i = 0; i < 3; i++) add_rows(b, i, 1 + (i + bad) % 3);
        const int rows[] = {b->batch.rows[0], b->batch.rows[1], b->batch.rows[2]}, place = rows[bad] * TAKEN - 2;
        ((int64_t *)(void *)b->slots[bad].in)[place] = WORDS + bad;
        run(b, &b->family);
        assert_true(b->batch.refused);
        for (int i = 0; i < 3; i++) assert_int_equal(b->batch.bad[i].input, i == bad ? 1 : 0);
        assert_int_equal(b->batch.bad[bad].place, place);
        assert_int_equal(b->batch.bad[bad].value, WORDS + bad);
        assert_int_equal(b->batch.bad[bad].node, 0);
        for (int i = 0; i < 3; i++) memcpy(joined[i], b->slots[i].out, SIDE_BYTES);
        for (int i = 0; i < 3; i++)
            if (i != bad) check_job(b, i, rows[i], joined[i]);
        begin(b, 1);
        add_rows(b, 0, 1);
        ((int64_t *)(void *)b->slots[0].in)[1] = -WORDS - 1;
        run(b, &b->family);
        assert_true(b->batch.refused);
        assert_int_equal(b->batch.bad[0].value, -WORDS - 1);
        begin(b, 1);
        add_rows(b, 0, 1);
        run(b, &b->family); /* and nobody is, the next time */
        assert_false(b->batch.refused);
    }
    close_bed(b);
}

/* Steps are timed, as those of any job. */
static void steps_of_one_job_are_timed(void **state)
{
    (void)state;
    bed *b = open_bed(plain);
    if (!b) skip();
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
    bed *b = open_bed(plain);
    if (!b) skip();
    is_joined(b, true);
    const ks_chain_node norm = b->nodes[NORMS];
    set_node(b, NORMS, "reshape", MOVED, -1, -1,
             NORMED); /* a product of matrices: oneDNN's bits of a row follow from the others */
    b->nodes[NORMS].rank = 3;
    b->nodes[NORMS].dims[1] = 1;
    b->nodes[NORMS].dims[2] = plain.hidden;
    is_joined(b, false);
    b->nodes[NORMS] = norm;
    is_joined(b, true);
    b->chain.nodes = 2; /* nothing is read but rows */
    b->chain.output[0] = FOUND;
    b->chain.output[1] = X;
    is_joined(b, false);
    close_bed(b);
}

/* On a GPU a kernel may take such rows by vectors of memory, which lie in each of them elsewhere. */
static void rows_between_vectors_are_not_joined(void **state)
{
    (void)state;
    bed *b = open_bed((chain_shape){.wide = 16, .hidden = 64, .classes = 131, .dtype = KS_FP32});
    if (!b) skip();
    assert_int_equal(b->family.join_rows, is_cpu(b) ? FAMILY_ROWS : 0);
    close_bed(b);
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_row_has_the_bits_that_it_has_alone),
                                       cmocka_unit_test(a_job_with_a_bad_value_is_refused_alone),
                                       cmocka_unit_test(steps_of_one_job_are_timed),
                                       cmocka_unit_test(chains_without_products_of_rows_are_not_joined),
                                       cmocka_unit_test(rows_between_vectors_are_not_joined)};
    cmocka_set_test_filter(getenv("KS_ONLY"));
    tested = ks_backend_cpu;
    const int failed = cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
    tested = ks_backend_cuda;
    return failed + cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
