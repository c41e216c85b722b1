/* A chain whose steps overlap on the emulated GPU has the bits that it has with whole edges between them: a block of a transformer, of which all
 * steps begin early, and a chain among whose steps some do not. There a launch sees, until it waits, what the one in front of it has found, so
 * that what it reads or writes before is wrong; and a step that begins early and does not wait ends the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/convert.h"
#include "kernserve/backends.h"
#include "kernserve/chain.h"
#include "ops/attention/attention.h"
#include "ops/layout.h"
#include "ops/op_harness.h"
#include "ops/op_values.h"

enum { ARENA_BYTES = 64 << 20, CONSTANTS = 10, NODES_MOST = 24, VALUES_MOST = 40, HEADS = 2 };
extern unsigned emulate_early_launches;

static op_harness *harness;

/* One input, x; constants; nodes, each of which makes one value. */
typedef struct block {
    ks_chain chain;
    ks_chain_node node[NODES_MOST];
    ks_tensor constant[CONSTANTS];
    void *memory[CONSTANTS];
} block;

static int16_t add_constant(block *b, int rank, int64_t d0, int64_t d1, int64_t d2, double scale)
{
    const int at = b->chain.constants++;
    ks_error error = {0};
    ks_tensor *tensor = &b->constant[at];
    *tensor = (ks_tensor){.dtype = KS_BF16, .rank = rank, .dims = {d0, d1, d2}};
    assert_int_equal(ks_tensor_measure(tensor, "tested", &error), KS_OK);
    b->memory[at] = aligned_alloc(KS_ALIGNMENT, ks_align(tensor->size_bytes + KS_PAD));
    assert_non_null(b->memory[at]);
    uint16_t *values = b->memory[at];
    for (int64_t i = 0; i < ks_tensor_count(tensor); i++) values[i] = ks_double_to_bf16(values_normal() * scale);
    tensor->fixed = values;
    return (int16_t)(1 + at);
}

static void set_param(ks_chain_node *node, const char *name, const char *choice)
{
    for (int i = 0; i < node->op->params_count; i++)
        for (int c = 0; strcmp(node->op->params[i].name, name) == 0 && node->op->params[i].choices[c]; c++)
            if (strcmp(node->op->params[i].choices[c], choice) == 0) node->params[i].i = c;
}

/* Behind the last one; returns the value that it makes. Values are numbered when all constants are there. */
static int16_t add_node(block *b, const char *op, int a, int second, int third)
{
    ks_chain_node *node = &b->node[b->chain.nodes++];
    *node = (ks_chain_node){.name = op, .op = ks_op_find(op, strlen(op)), .outputs = 1};
    memset(node->in, -1, sizeof node->in);
    memset(node->out, -1, sizeof node->out);
    node->in[0] = (int16_t)a, node->in[1] = (int16_t)second, node->in[2] = (int16_t)third;
    node->out[0] = (int16_t)(1 + b->chain.constants + b->chain.made++);
    if (node->op) ks_params_init(node->op, node->params, node->lists);
    return node->out[0];
}

static ks_chain_node *last(block *b)
{
    return &b->node[b->chain.nodes - 1];
}

static int16_t add_map(block *b, const char *function, int a, int second)
{
    const int16_t made = add_node(b, "map", a, second, -1);
    set_param(last(b), "op", function);
    return made;
}

static int16_t add_turned(block *b, int a)
{
    const int16_t made = add_node(b, "layout", a, -1, -1);
    last(b)->lists[last(b)->params[KS_LAYOUT_AXES].list] = (ks_integers){.count = 2, .value = {1, 0}};
    return made;
}

static int16_t add_view(block *b, int a, int rank, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    const int16_t made = add_node(b, "reshape", a, -1, -1);
    const int64_t dims[] = {d0, d1, d2, d3};
    last(b)->rank = rank;
    memcpy(last(b)->dims, dims, sizeof dims);
    return made;
}

static void begin(block *b)
{
    static const char *const out_names[] = {"y"};
    memset(b, 0, sizeof *b);
    b->chain = (ks_chain){.op = {.name = "block", .inputs_count = 1, .resolve = ks_chain_resolve, .outputs = out_names},
                          .outputs = 1,
                          .words = 1,
                          .constant = b->constant,
                          .node = b->node};
    b->chain.op.chain = &b->chain;
    b->chain.in[0] = (ks_chain_tensor){.name = "x", .dtype = KS_BF16, .rank = 2, .dims = {-1, -1}};
    b->chain.op.inputs[0] = (ks_input){.name = "x", .role = "x", .dtypes = KS_DTYPE_BIT(KS_BF16)};
    b->chain.out[0] = (ks_chain_tensor){.name = "y", .rank = -1};
}

static void end(block *b)
{
    for (int i = 0; i < b->chain.constants; i++) free(b->memory[i]);
}

/* x + attention(norm(x)), and that + MLP(norm(that)); then a map that no product takes. */
static void make_encoder(block *b, int64_t rows, int64_t width)
{
    const int64_t wide = 2 * width, depth = width / HEADS;
    int16_t third[3];
    begin(b);
    const int16_t g1 = add_constant(b, 1, width, 0, 0, 1), b1 = add_constant(b, 1, width, 0, 0, 1),
                  in = add_constant(b, 3, 3, width, width, 0.1), out = add_constant(b, 2, width, width, 0, 0.1),
                  g2 = add_constant(b, 1, width, 0, 0, 1), b2 = add_constant(b, 1, width, 0, 0, 1),
                  up = add_constant(b, 2, width, wide, 0, 0.1), up_bias = add_constant(b, 1, wide, 0, 0, 1),
                  down = add_constant(b, 2, wide, width, 0, 0.1), down_bias = add_constant(b, 1, width, 0, 0, 1);
    const int16_t given = add_node(b, "norm", 0, g1, b1), thirds = add_node(b, "matmul", given, in, -1);
    for (int i = 0; i < 3; i++) {
        const int16_t part = add_node(b, "layout", thirds, -1, -1);
        set_param(last(b), "op", "slice");
        last(b)->lists[last(b)->params[KS_LAYOUT_STARTS].list] = (ks_integers){.count = 3, .value = {i, 0, 0}};
        last(b)->lists[last(b)->params[KS_LAYOUT_SIZES].list] = (ks_integers){.count = 3, .value = {1, rows, width}};
        third[i] = add_view(b, part, 4, 1, rows, HEADS, depth);
    }
    const int16_t heads = add_node(b, "attention", third[0], third[1], third[2]);
    set_param(last(b), "layout", "bshd");
    const int16_t mixed = add_view(b, heads, 2, rows, width, 0, 0), product = add_node(b, "matmul", mixed, out, -1),
                  attended = add_map(b, "add", 0, product), again = add_node(b, "norm", attended, g2, b2),
                  hidden = add_node(b, "matmul", again, up, up_bias);
    set_param(last(b), "activation", "gelu");
    const int16_t sum = add_map(b, "add", attended, add_node(b, "matmul", hidden, down, down_bias));
    b->chain.output[0] = add_map(b, "tanh", sum, -1);
}

/* norm, transposes, which do not wait, norm with a weight that a step makes, map, product. */
static void make_mixed(block *b, int64_t rows, int64_t width)
{
    (void)rows;
    begin(b);
    const int16_t g = add_constant(b, 1, width, 0, 0, 1), w = add_constant(b, 2, width, width, 0, 0.1),
                  first = add_node(b, "norm", 0, g, -1), turned = add_turned(b, add_turned(b, first)),
                  weight = add_map(b, "exp", g, -1), second = add_node(b, "norm", turned, weight, -1),
                  sum = add_map(b, "sub", second, first);
    b->chain.output[0] = add_node(b, "matmul", sum, w, -1);
}

static void resolve(const block *b, int64_t rows, int64_t width, ks_spec *spec)
{
    ks_error error = {0};
    ks_spec_init(spec, &b->chain.op);
    spec->in[0] = (ks_tensor){.dtype = KS_BF16, .rank = 2, .dims = {rows, width}};
    if (ks_chain_resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
}

static int count_steps(const ks_spec *spec)
{
    ks_error error = {0};
    ks_program *program = NULL;
    if (ks_program_make(spec, ks_backend_cuda->chains, &program, &error) != KS_OK) fail_msg("%s", error.text);
    const int steps = program->count;
    ks_program_free(&program);
    return steps;
}

/* captured: by a graph, whose steps overlap; else each step is timed, and the edges are whole. Returns how many launches began early. */
static int run(const ks_spec *spec, const uint16_t *x, bool captured, unsigned char *out)
{
    ks_error error = {0};
    const void *in[] = {x};
    const unsigned before = emulate_early_launches;
    if (op_harness_run(harness, spec, in, out, OP_PATH_COPIES, 1, captured, &error) != KS_OK)
        fail_msg("%s", error.text);
    return (int)(emulate_early_launches - before);
}

/* whole: edges that are. */
static void check(void (*make)(block *b, int64_t rows, int64_t width), int64_t rows, int64_t width, int whole)
{
    block b;
    ks_spec spec;
    uint16_t *x = malloc((size_t)(rows * width) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < rows * width; i++) x[i] = ks_double_to_bf16(values_normal());
    make(&b, rows, width);
    resolve(&b, rows, width, &spec);
    const size_t bytes = ks_spec_out_bytes(&spec);
    unsigned char *wanted = calloc(2, bytes), *got = wanted + bytes;
    assert_non_null(wanted);
    assert_int_equal(run(&spec, x, false, wanted), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run(&spec, x, true, got), count_steps(&spec) - 1 - whole);
        if (memcmp(wanted, got, bytes) != 0)
            fail_msg("%lldx%lld: other bits where steps overlap", (long long)rows, (long long)width);
    }
    free(wanted);
    free(x);
    end(&b);
}

/* Few rows, and more than a tile has: other products. Attention of few rows is a kernel that does not wait. */
static void a_block_overlaps(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{8, 64, 2}, {24, 64, 2}, {72, 128, 0}, {136, 64, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check(make_encoder, shapes[i][0], shapes[i][1], (int)shapes[i][2]);
}

static void whole_edges_around_others(void **state)
{
    (void)state;
    check(make_mixed, 24, 64, 5);
}

static int open_harness(void **state)
{
    (void)state;
    harness = op_harness_open(ks_backend_cuda, ARENA_BYTES);
    return harness ? 0 : -1;
}

static int close_harness(void **state)
{
    (void)state;
    op_harness_close(&harness);
    return 0;
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_block_overlaps), cmocka_unit_test(whole_edges_around_others)};
    return cmocka_run_group_tests(tests, open_harness, close_harness);
}
