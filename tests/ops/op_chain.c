/* A chain on each backend: its outputs have the bits of its operations one by one on the same backend, whatever is fixed, on each path, plainly
 * launched and captured; and they are near those of the CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernserve/backends.h"
#include "kernserve/chain.h"
#include "ops/layout.h"
#include "ops/op_harness.h"
#include "ops/op_values.h"

enum { INPUTS = 5, NODES = 11, OUTPUTS = 4, ARENA_BYTES = 64 << 20 };

static op_harness *harnesses[2]; /* cpu, cuda; NULL: no device */

/* Values: the inputs, then those of the nodes. */
enum { X, W0, B0, W1, G, HIDDEN, VIEW, LOGITS, NORMED, TURNED, BACK, SUM, FLAT, CLASSES, BEST, WHICH, TOTAL };

static ks_chain_node nodes[NODES];
static ks_chain chain = {.op = {.name = "tested", .inputs_count = INPUTS, .resolve = ks_chain_resolve, .chain = &chain},
                         .nodes = NODES,
                         .made = TOTAL - G,
                         .outputs = OUTPUTS,
                         .output = {CLASSES, WHICH, TOTAL, X},
                         .words = 1,
                         .node = nodes};

static ks_chain_node node_of(const char *name, int a, int b, int c, int out)
{
    ks_chain_node node = {.name = name, .op = ks_op_find(name, strlen(name)), .outputs = 1};
    memset(node.in, -1, sizeof node.in);
    memset(node.out, -1, sizeof node.out);
    node.in[0] = (int16_t)a;
    node.in[1] = (int16_t)b;
    node.in[2] = (int16_t)c;
    node.out[0] = (int16_t)out;
    if (node.op) ks_params_init(node.op, node.params, node.lists);
    return node;
}

static void set_param(ks_chain_node *node, const char *name, const char *choice, int64_t value)
{
    for (int i = 0; i < node->op->params_count; i++) {
        if (strcmp(node->op->params[i].name, name) != 0) continue;
        node->params[i] = (ks_value){.i = value};
        for (int c = 0; choice && node->op->params[i].choices[c]; c++)
            if (strcmp(node->op->params[i].choices[c], choice) == 0) node->params[i].i = c;
        return;
    }
    fail_msg("%s has no parameter %s", node->op->name, name);
}

static ks_chain_node turned(int from, int to, ks_integers axes)
{
    ks_chain_node node = node_of("layout", from, -1, -1, to);
    node.lists[node.params[KS_LAYOUT_AXES].list] = axes;
    return node;
}

static void make_chain(void)
{
    static const int ranks[INPUTS] = {2, 2, 1, 2, 1};
    static const char *const names[INPUTS] = {"x", "w0", "b0", "w1", "g"};
    static const char *const out_names[OUTPUTS] = {"classes", "which", "total", "same"};
    for (int i = 0; i < INPUTS; i++) {
        chain.in[i] = (ks_chain_tensor){.name = names[i], .dtype = KS_FP32, .rank = ranks[i], .dims = {-1, -1}};
        chain.op.inputs[i] = (ks_input){.name = names[i], .role = names[i], .dtypes = KS_DTYPE_BIT(KS_FP32)};
    }
    for (int i = 0; i < OUTPUTS; i++) chain.out[i] = (ks_chain_tensor){.name = out_names[i], .rank = -1};
    chain.op.outputs = out_names;
    nodes[0] = node_of("matmul", X, W0, B0, HIDDEN);
    set_param(&nodes[0], "activation", "relu", 0);
    nodes[1] = node_of("reshape", HIDDEN, -1, -1, VIEW);
    nodes[1].rank = 3;
    nodes[1].dims[0] = 1;
    nodes[1].dims[1] = -1;
    nodes[2] = node_of("matmul", VIEW, W1, -1, LOGITS);
    nodes[3] = node_of("norm", LOGITS, G, -1, NORMED);
    nodes[4] = turned(LOGITS, TURNED, (ks_integers){.count = 3, .value = {0, 2, 1}});
    nodes[5] = turned(TURNED, BACK, (ks_integers){.count = 3, .value = {0, -1, 1}});
    nodes[6] = node_of("map", NORMED, BACK, -1, SUM);
    set_param(&nodes[6], "op", "add", 0);
    nodes[7] = turned(SUM, FLAT, (ks_integers){.count = 3, .value = {1, 0, 2}}); /* which moves nothing */
    nodes[8] = node_of("softmax", FLAT, -1, -1, CLASSES);
    nodes[9] = node_of("topk", CLASSES, -1, -1, BEST);
    nodes[9].out[1] = WHICH;
    nodes[9].outputs = 2;
    set_param(&nodes[9], "k", NULL, 3);
    nodes[10] = node_of("reduce", CLASSES, -1, -1, TOTAL);
}

/* What each value is, and holds. */
typedef struct values {
    ks_tensor tensor[TOTAL + 1];
    unsigned char *memory[TOTAL + 1];
} values;

static void take(values *v, int value, const ks_tensor *tensor)
{
    v->tensor[value] = *tensor;
    v->tensor[value].offset = 0;
    v->memory[value] = calloc(1, tensor->size_bytes + 1);
    assert_non_null(v->memory[value]);
}

static void drop(values *v)
{
    for (int i = 0; i <= TOTAL; i++) free(v->memory[i]);
    memset(v, 0, sizeof *v);
}

static void fill_inputs(values *v, int64_t m, int64_t k, int64_t n, int64_t p)
{
    const int64_t dims[INPUTS][2] = {{m, k}, {k, n}, {n, 0}, {n, p}, {p, 0}};
    ks_error error = {0};
    for (int i = 0; i < INPUTS; i++) {
        ks_tensor tensor = {.dtype = KS_FP32, .rank = chain.in[i].rank, .dims = {dims[i][0], dims[i][1]}};
        assert_int_equal(ks_tensor_measure(&tensor, "tested", &error), KS_OK);
        take(v, i, &tensor);
        float *at = (float *)(void *)v->memory[i];
        for (int64_t e = 0; e < ks_tensor_count(&tensor); e++)
            at[e] = (float)((double)(values_next() >> 40) / (1 << 23) - 1);
    }
}

/* One by one, through the same backend. */
static void run_node(op_harness *harness, const ks_chain_node *node, values *v)
{
    ks_spec spec;
    ks_error error = {0};
    const void *in[KS_INPUTS_MAX] = {NULL};
    if (!node->op) {
        ks_tensor view = v->tensor[node->in[0]];
        view.rank = 3;
        view.dims[0] = 1;
        view.dims[1] = v->tensor[node->in[0]].dims[0];
        view.dims[2] = v->tensor[node->in[0]].dims[1];
        take(v, node->out[0], &view);
        memcpy(v->memory[node->out[0]], v->memory[node->in[0]], view.size_bytes);
        return;
    }
    ks_spec_init(&spec, node->op);
    spec.given = 0;
    ks_params_copy(node->op, spec.params, spec.lists, node->params, node->lists);
    for (int i = 0; i < node->op->inputs_count; i++) {
        if (node->in[i] < 0) continue;
        spec.given |= (uint16_t)(1u << i);
        spec.in[i] = v->tensor[node->in[i]];
        in[i] = v->memory[node->in[i]];
    }
    if (node->op->resolve(&spec, &error) != KS_OK) fail_msg("%s: %s", node->name, error.text);
    ks_spec_layout(&spec);
    unsigned char *side = calloc(1, ks_spec_out_bytes(&spec) + 1);
    assert_non_null(side);
    if (op_harness_run(harness, &spec, in, side, OP_PATH_COPIES, 1, false, &error) != KS_OK)
        fail_msg("%s: %s", node->name, error.text);
    for (int i = 0; i < spec.outputs; i++)
        if (node->out[i] >= 0) {
            take(v, node->out[i], &spec.out[i]);
            memcpy(v->memory[node->out[i]], side + spec.out[i].offset, spec.out[i].size_bytes);
        }
    free(side);
}

static void resolve(const values *v, ks_spec *spec)
{
    ks_error error = {0};
    ks_spec_init(spec, &chain.op);
    for (int i = 0; i < INPUTS; i++) spec->in[i] = v->tensor[i];
    if (ks_chain_resolve(spec, &error) != KS_OK) fail_msg("%s", error.text);
    ks_spec_layout(spec);
}

static void check_near(const void *got, const void *wanted, int64_t count)
{
    const float *a = got, *b = wanted;
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-4f))
            fail_msg("element %lld: %g, not %g", (long long)i, (double)a[i], (double)b[i]);
}

/* A GPU has another kernel for a product whose operand is fixed. */
static void check_run(int b, const values *v, unsigned fixed)
{
    const bool same_bits = b == 0 || fixed == 0;
    ks_spec spec;
    ks_error error = {0};
    const void *in[INPUTS];
    resolve(v, &spec);
    unsigned char *side = calloc(1, ks_spec_out_bytes(&spec) + 1);
    assert_non_null(side);
    for (int i = 0; i < INPUTS; i++) in[i] = v->memory[i];
    op_harness_fix(harnesses[b], fixed);
    const ks_status status = op_harness_run(harnesses[b], &spec, in, side, (op_path)values_below(3),
                                            1 + values_below(3), values_below(2), &error);
    op_harness_fix(harnesses[b], 0);
    if (status != KS_OK) fail_msg("backend %d: %s", b, error.text);
    for (int i = 0; i < OUTPUTS; i++) {
        const ks_tensor *wanted = &v->tensor[chain.output[i]];
        assert_int_equal(spec.out[i].size_bytes, wanted->size_bytes);
        if (!same_bits && wanted->dtype == KS_FP32)
            check_near(side + spec.out[i].offset, v->memory[chain.output[i]], ks_tensor_count(wanted));
        else if (same_bits && memcmp(side + spec.out[i].offset, v->memory[chain.output[i]], wanted->size_bytes) != 0)
            fail_msg("backend %d: output %d differs from the operations one by one", b, i);
    }
    free(side);
}

static void has_the_bits_of_its_operations(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{3, 5, 7, 11}, {64, 64, 64, 10}, {33, 128, 65, 100}, {1, 16, 300, 3}};
    values v[2] = {{{{0}}, {NULL}}, {{{0}}, {NULL}}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        nodes[1].dims[2] = shapes[s][2];
        for (int b = 0; b < 2; b++) {
            if (!harnesses[b]) continue;
            if (b == 0) fill_inputs(&v[b], shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3]);
            for (int i = 0; b == 1 && i < INPUTS; i++) {
                take(&v[b], i, &v[0].tensor[i]);
                memcpy(v[b].memory[i], v[0].memory[i], v[0].tensor[i].size_bytes);
            }
            for (int i = 0; i < NODES; i++) run_node(harnesses[b], &nodes[i], &v[b]);
            check_run(b, &v[b], 0);
            check_run(b, &v[b], 1u << W0 | 1u << W1);
            check_run(b, &v[b], 1u << X | 1u << B0 | 1u << G);
        }
        if (harnesses[1])
            check_near(v[1].memory[CLASSES], v[0].memory[CLASSES], ks_tensor_count(&v[0].tensor[CLASSES]));
        drop(&v[0]);
        drop(&v[1]);
    }
}

/* --- values that decide, made by nodes ---------------------------------------------------------------------------------- */

/* y[i] = -again[i], again[i] = rows[at[i]], rows[i] = table[at[i] + 1]; again might lie where what the shift makes does, but for the sentence. */
enum { TABLE, AT, SHIFTED, PICKED, AGAIN, NEGATED, PICKS = 4 };
static ks_chain_node picks[PICKS];
static ks_chain picking = {.op = {.name = "picking",
                                  .inputs_count = 2,
                                  .resolve = ks_chain_resolve,
                                  .chain = &picking,
                                  .refuse = ks_chain_refuse},
                           .nodes = PICKS,
                           .made = NEGATED - AT,
                           .outputs = 1,
                           .output = {NEGATED},
                           .words = 1,
                           .node = picks};

static void make_picking(void)
{
    static const char *const out_names[] = {"y"};
    picking.in[0] = (ks_chain_tensor){.name = "table", .dtype = KS_FP32, .rank = 2, .dims = {-1, -1}};
    picking.in[1] = (ks_chain_tensor){.name = "at", .dtype = KS_INT32, .rank = 1, .dims = {-1}};
    picking.op.inputs[0] = (ks_input){.name = "table", .role = "table", .dtypes = KS_DTYPE_BIT(KS_FP32)};
    picking.op.inputs[1] = (ks_input){.name = "at", .role = "at", .dtypes = KS_DTYPE_BIT(KS_INT32)};
    picking.out[0] = (ks_chain_tensor){.name = "y", .rank = -1};
    picking.op.outputs = out_names;
    picks[0] = node_of("map", AT, -1, -1, SHIFTED);
    picks[0].name = "shift";
    set_param(&picks[0], "op", "add", 0);
    for (int i = 0; i < picks[0].op->params_count; i++)
        if (strcmp(picks[0].op->params[i].name, "a") == 0) picks[0].params[i].d = 1;
    picks[1] = node_of("gather", TABLE, SHIFTED, -1, PICKED);
    picks[1].name = "rows";
    picks[2] = node_of("gather", PICKED, AT, -1, AGAIN);
    picks[2].name = "again";
    picks[3] = node_of("map", AGAIN, -1, -1, NEGATED);
    set_param(&picks[3], "op", "neg", 0);
    assert_true(ks_chain_decides(&picking));
    assert_false(ks_chain_decides(&chain));
    picking.op.nodes_decide = true;
}

/* refused: what the sentence has; NULL: the values are taken. */
static void try_picks(int b, int64_t rows, int64_t depth, const int32_t *at, int64_t count, const char *refused)
{
    ks_spec spec;
    ks_error error = {0};
    float *table = malloc((size_t)(rows * depth) * sizeof *table), *got = malloc((size_t)(count * depth) * sizeof *got);
    const void *in[] = {table, at};
    assert_true(table && got);
    for (int64_t i = 0; i < rows * depth; i++) table[i] = (float)i;
    ks_spec_init(&spec, &picking.op);
    spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {rows, depth}};
    spec.in[1] = (ks_tensor){.dtype = KS_INT32, .rank = 1, .dims = {count}};
    assert_int_equal(ks_chain_resolve(&spec, &error), KS_OK);
    ks_spec_layout(&spec);
    op_harness_fix(harnesses[b], values_below(2) ? 1u << TABLE : 0);
    const ks_status status = op_harness_run(harnesses[b], &spec, in, got, (op_path)values_below(3), 1 + values_below(3),
                                            values_below(2), &error);
    op_harness_fix(harnesses[b], 0);
    if (refused && (status != KS_RANGE || !strstr(error.text, refused)))
        fail_msg("backend %d: %s \"%s\", expected range with \"%s\"", b, ks_status_name(status), error.text, refused);
    if (!refused && status != KS_OK) fail_msg("backend %d: %s", b, error.text);
    for (int64_t i = 0; !refused && i < count * depth; i++) {
        const int64_t place = at[i / depth] < 0 ? at[i / depth] + count : at[i / depth];
        const int64_t row = at[place] + 1 < 0 ? at[place] + 1 + rows : at[place] + 1;
        if (got[i] != -(float)(row * depth + i % depth)) fail_msg("backend %d: element %lld", b, (long long)i);
    }
    free(table);
    free(got);
}

/* The first node that has bad values is named, with the value that it saw; work goes on behind it. */
static void indices_that_nodes_make(void **state)
{
    (void)state;
    enum { MOST = 300 };
    int32_t at[MOST];
    char text[128];
    for (int round = 0; round < 40; round++) {
        const int b = round % 2;
        const int count = 3 + values_below(MOST - 3), depth = values_below(2) ? 1 : 1 + values_below(40),
                  bad = values_below(count);
        if (!harnesses[b]) continue;
        for (int i = 0; i < count; i++) at[i] = values_below(2 * count) - count;
        try_picks(b, count + 5, depth, at, count, NULL);
        const int32_t kept = at[bad];
        at[bad] = count + 4;
        snprintf(text, sizeof text, "node 'rows' (gather): INPUT1 (indices) has %d at place %d: it is outside [%d, %d)",
                 count + 5, bad, -count - 5, count + 5);
        try_picks(b, count + 5, depth, at, count, text);
        at[bad] = count + 1;
        snprintf(text, sizeof text,
                 "node 'again' (gather): INPUT1 (indices) has %d at place %d: it is outside [%d, %d)", count + 1, bad,
                 -count, count);
        try_picks(b, count + 5, depth, at, count, text);
        at[bad] = kept;
        try_picks(b, count + 5, depth, at, count, NULL);
    }
}

/* Values between steps have memory of their own, of a limit of its own; its sentence has both numbers. */
static void arenas_have_a_limit(void **state)
{
    (void)state;
    enum { COUNT = 64, DEPTH = 100, LITTLE = 4096, LIVES = 2 * COUNT * DEPTH * 4 + COUNT * 4 };
    static const int32_t at[COUNT];
    static float table[COUNT * DEPTH], got[COUNT * DEPTH];
    const void *in[] = {table, at};
    for (int b = 0; b < 2; b++) {
        ks_spec spec;
        ks_error error = {0};
        char text[64];
        if (!harnesses[b]) continue;
        ks_spec_init(&spec, &picking.op);
        spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {COUNT, DEPTH}};
        spec.in[1] = (ks_tensor){.dtype = KS_INT32, .rank = 1, .dims = {COUNT}};
        assert_int_equal(ks_chain_resolve(&spec, &error), KS_OK);
        ks_spec_layout(&spec);
        assert_true(op_harness_once(b ? ks_backend_cuda : ks_backend_cpu, LITTLE, &spec, in, got, &error));
        assert_int_equal(error.status, KS_WORK);
        snprintf(text, sizeof text, "take %d bytes, a lane has %d for them", LIVES + KS_PAD, LITTLE);
        if (!strstr(error.text, text)) fail_msg("backend %d: \"%s\", not \"%s\"", b, error.text, text);
        assert_int_equal(op_harness_run(harnesses[b], &spec, in, got, OP_PATH_PLANNED, 1, false, &error), KS_OK);
    }
}

/* --- fused -------------------------------------------------------------------------------------------------------------- */

enum { FUSED_INPUTS = 5, FUSED_NODES = 11, FUSED_OUTPUTS = 2, FUSED_STEPS = 5, ROWS = 5, COLUMNS = 48 };

/* matmul, bias, gelu; a sum that stays, norm; mul, add; norm, weight; matmul, residual. */
static void make_fused(ks_chain *fused, ks_chain_node *list)
{
    enum { IN, RESIDUAL, WEIGHT, BIAS, GAIN, PRODUCT, BIASED, ACTIVE, KEPT, N, TIMES, Y, M, Z, P, Q };
    static const char *const names[] = {"x", "r", "w", "b", "g"};
    static const char *const out_names[FUSED_OUTPUTS] = {"z", "s"};
    static const struct {
        const char *op, *function;
        int a, b, out;
    } rows[FUSED_NODES] = {{"matmul", NULL, IN, WEIGHT, PRODUCT},
                           {"map", "add", BIAS, PRODUCT, BIASED},
                           {"map", "gelu", BIASED, -1, ACTIVE},
                           {"map", "add", ACTIVE, RESIDUAL, KEPT},
                           {"norm", NULL, KEPT, GAIN, N},
                           {"map", "mul", N, KEPT, TIMES},
                           {"map", "add", TIMES, IN, Y},
                           {"norm", NULL, Y, -1, M},
                           {"map", "mul", GAIN, M, Z},
                           {"matmul", NULL, Z, WEIGHT, P},
                           {"map", "add", KEPT, P, Q}};
    *fused = (ks_chain){
        .op = {.name = "fused", .inputs_count = FUSED_INPUTS, .resolve = ks_chain_resolve, .outputs = out_names},
        .nodes = FUSED_NODES,
        .made = Q + 1 - FUSED_INPUTS,
        .outputs = FUSED_OUTPUTS,
        .output = {Q, KEPT},
        .words = 1,
        .node = list};
    fused->op.chain = fused;
    for (int i = 0; i < FUSED_INPUTS; i++) {
        fused->in[i] =
            (ks_chain_tensor){.name = names[i], .dtype = KS_FP32, .rank = i < BIAS ? 2 : 1, .dims = {-1, -1}};
        fused->op.inputs[i] = (ks_input){.name = names[i], .role = names[i], .dtypes = KS_DTYPE_BIT(KS_FP32)};
    }
    for (int i = 0; i < FUSED_OUTPUTS; i++) fused->out[i] = (ks_chain_tensor){.name = out_names[i], .rank = -1};
    for (int i = 0; i < FUSED_NODES; i++) {
        list[i] = node_of(rows[i].op, rows[i].a, rows[i].b, -1, rows[i].out);
        if (rows[i].function) set_param(&list[i], "op", rows[i].function, 0);
    }
}

static unsigned char *run_fused(op_harness *harness, const ks_chain *fused, const void *const *in, ks_spec *spec)
{
    static const int64_t dims[FUSED_INPUTS][2] = {
        {ROWS, COLUMNS}, {ROWS, COLUMNS}, {COLUMNS, COLUMNS}, {COLUMNS}, {COLUMNS}};
    static const ks_chain_means means = {.alignment = KS_ALIGNMENT, .residuals = true};
    ks_error error = {0};
    ks_program *program = NULL;
    ks_spec_init(spec, &fused->op);
    for (int i = 0; i < FUSED_INPUTS; i++)
        spec->in[i] = (ks_tensor){.dtype = KS_FP32, .rank = fused->in[i].rank, .dims = {dims[i][0], dims[i][1]}};
    if (ks_chain_resolve(spec, &error) != KS_OK || ks_program_make(spec, &means, &program, &error) != KS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(program->count, fused->unfused ? FUSED_NODES : FUSED_STEPS);
    assert_int_equal(program->step[1].nodes, fused->unfused ? 1 : 2); /* the norm has the sum, not the product */
    ks_program_free(&program);
    ks_spec_layout(spec);
    unsigned char *side = calloc(1, ks_spec_out_bytes(spec) + 1);
    assert_non_null(side);
    if (op_harness_run(harness, spec, in, side, (op_path)values_below(3), 1 + values_below(3), values_below(2),
                       &error) != KS_OK)
        fail_msg("%s", error.text);
    return side;
}

static void fused_steps_are_near_their_nodes(void **state)
{
    (void)state;
    static ks_chain_node list[FUSED_NODES];
    static ks_chain fused;
    static float memory[FUSED_INPUTS][COLUMNS * COLUMNS];
    const void *in[FUSED_INPUTS];
    make_fused(&fused, list);
    for (int i = 0; i < FUSED_INPUTS; i++) {
        for (int e = 0; e < COLUMNS * COLUMNS; e++)
            memory[i][e] = (float)((double)(values_next() >> 40) / (1 << 23) - 1) / (i == 2 ? 4 : 1);
        in[i] = memory[i];
    }
    for (int b = 0; b < 2; b++) {
        if (!harnesses[b]) continue;
        ks_spec spec;
        fused.unfused = true;
        unsigned char *wanted = run_fused(harnesses[b], &fused, in, &spec);
        fused.unfused = false;
        unsigned char *got = run_fused(harnesses[b], &fused, in, &spec);
        for (int o = 0; o < FUSED_OUTPUTS; o++)
            check_near(got + spec.out[o].offset, wanted + spec.out[o].offset, ROWS * COLUMNS);
        free(wanted);
        free(got);
    }
}

/* --- views, and maps in one pass ---------------------------------------------------------------------------------------- */

enum { MIXED_NODES = 12, MIXED_OUTPUTS = 2, MIXED_ROWS = 6, MIXED_COLUMNS = 64 }; /* a row is KS_ALIGNMENT */

/* Rows of a concat of what nodes make, read back by a slice; maps in front, behind and between; a part of an input, and an output that is
 * the concat. */
static void make_mixed(ks_chain *mixed, ks_chain_node *list)
{
    enum { IN, V, EXP, LESS, ACTIVE, OTHER, BOTH, SOME, HEAD, MOST, GATE, GATED, HALF, Y };
    static const char *const names[] = {"x", "v"};
    static const char *const out_names[MIXED_OUTPUTS] = {"y", "both"};
    static const struct {
        const char *op, *function;
        int a, b, out;
    } rows[MIXED_NODES] = {{"map", "exp", IN, -1, EXP},
                           {"map", "sub", EXP, V, LESS},
                           {"map", "tanh", LESS, -1, ACTIVE},
                           {"map", "gelu", IN, -1, OTHER},
                           {"layout", "concat", ACTIVE, OTHER, BOTH},
                           {"layout", "slice", BOTH, -1, SOME},
                           {"layout", "slice", IN, -1, HEAD},
                           {"map", "max", SOME, HEAD, MOST},
                           {"map", "sigmoid", MOST, -1, GATE},
                           {"map", "mul", MOST, GATE, GATED},
                           {"map", "cast", GATED, -1, HALF},
                           {"map", "silu", HALF, -1, Y}};
    *mixed = (ks_chain){.op = {.name = "mixed", .inputs_count = 2, .resolve = ks_chain_resolve, .outputs = out_names},
                        .nodes = MIXED_NODES,
                        .made = Y + 1 - 2,
                        .outputs = MIXED_OUTPUTS,
                        .output = {Y, BOTH},
                        .words = 1,
                        .node = list};
    mixed->op.chain = mixed;
    for (int i = 0; i < 2; i++) {
        mixed->in[i] = (ks_chain_tensor){.name = names[i], .dtype = KS_FP32, .rank = 2 - i, .dims = {-1, -1}};
        mixed->op.inputs[i] = (ks_input){.name = names[i], .role = names[i], .dtypes = KS_DTYPE_BIT(KS_FP32)};
    }
    for (int i = 0; i < MIXED_OUTPUTS; i++) mixed->out[i] = (ks_chain_tensor){.name = out_names[i], .rank = -1};
    for (int i = 0; i < MIXED_NODES; i++) {
        list[i] = node_of(rows[i].op, rows[i].a, rows[i].b, -1, rows[i].out);
        set_param(&list[i], "op", rows[i].function, 0);
    }
    list[5].lists[list[5].params[KS_LAYOUT_STARTS].list] = (ks_integers){.count = 2, .value = {4, 0}};
    list[5].lists[list[5].params[KS_LAYOUT_SIZES].list] = (ks_integers){.count = 2, .value = {5, MIXED_COLUMNS}};
    list[6].lists[list[6].params[KS_LAYOUT_STARTS].list] = (ks_integers){.count = 2, .value = {1, 0}};
    set_param(&list[10], "out_datatype", "FP16", 0);
}

static void check_mixed(int b, const ks_chain *mixed, const void *const *in)
{
    unsigned char *side[2];
    ks_spec spec;
    for (int fused = 0; fused < 2; fused++) {
        ks_error error = {0};
        ((ks_chain *)(uintptr_t)mixed)->unfused = !fused;
        ks_spec_init(&spec, &mixed->op);
        spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {MIXED_ROWS, MIXED_COLUMNS}};
        spec.in[1] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {MIXED_COLUMNS}};
        assert_int_equal(ks_chain_resolve(&spec, &error), KS_OK);
        ks_spec_layout(&spec);
        side[fused] = calloc(1, ks_spec_out_bytes(&spec) + 1);
        assert_non_null(side[fused]);
        op_harness_fix(harnesses[b], values_below(4) ? 0 : 1u << values_below(2));
        if (op_harness_run(harnesses[b], &spec, in, side[fused], (op_path)values_below(3), 1 + values_below(3),
                           values_below(2), &error) != KS_OK)
            fail_msg("%s", error.text);
        op_harness_fix(harnesses[b], 0);
    }
    /* A cast goes with the function in front, whose result FP32 holds: nothing is rounded otherwise. */
    for (int o = 0; o < MIXED_OUTPUTS; o++)
        assert_memory_equal(side[0] + spec.out[o].offset, side[1] + spec.out[o].offset, spec.out[o].size_bytes);
    free(side[0]);
    free(side[1]);
}

static void views_and_passes_change_no_bit(void **state)
{
    (void)state;
    static const ks_chain_means means = {.alignment = KS_ALIGNMENT,
                                         .maps = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16)};
    static ks_chain_node list[MIXED_NODES];
    static ks_chain mixed;
    static float x[MIXED_ROWS * MIXED_COLUMNS], v[MIXED_COLUMNS];
    const void *in[] = {x, v};
    ks_spec spec;
    ks_error error = {0};
    ks_program *program = NULL;
    make_mixed(&mixed, list);
    ks_spec_init(&spec, &mixed.op);
    spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {MIXED_ROWS, MIXED_COLUMNS}};
    spec.in[1] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {MIXED_COLUMNS}};
    if (ks_chain_resolve(&spec, &error) != KS_OK || ks_program_make(&spec, &means, &program, &error) != KS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(program->views, 3);
    assert_int_equal(program->count, 3); /* exp sub tanh; gelu; max sigmoid mul cast silu */
    assert_int_equal(program->step[1].out[0].kind, KS_PLACE_OUTPUT);
    assert_int_equal(program->step[1].out[0].offset, MIXED_ROWS * MIXED_COLUMNS * 4);
    assert_int_equal(program->step[2].in[0].offset, 4 * MIXED_COLUMNS * 4);
    ks_program_free(&program);
    for (int round = 0; round < 12; round++)
        for (int b = 0; b < 2; b++) {
            for (int i = 0; i < MIXED_ROWS * MIXED_COLUMNS; i++) x[i] = (float)values_normal();
            for (int i = 0; i < MIXED_COLUMNS; i++) v[i] = (float)values_normal();
            if (harnesses[b]) check_mixed(b, &mixed, in);
        }
}

static int open_harnesses(void **state)
{
    (void)state;
    make_chain();
    make_picking();
    harnesses[0] = op_harness_open(ks_backend_cpu, ARENA_BYTES);
    harnesses[1] = ks_backend_cuda ? op_harness_open(ks_backend_cuda, ARENA_BYTES) : NULL;
    if (!harnesses[1]) printf("skip: no CUDA device, the CUDA kernels are not run\n");
    return harnesses[0] ? 0 : -1;
}

static int close_harnesses(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++)
        if (harnesses[b]) op_harness_close(&harnesses[b]);
    return 0;
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(has_the_bits_of_its_operations),
                                       cmocka_unit_test(indices_that_nodes_make), cmocka_unit_test(arenas_have_a_limit),
                                       cmocka_unit_test(fused_steps_are_near_their_nodes),
                                       cmocka_unit_test(views_and_passes_change_no_bit)};
    return cmocka_run_group_tests(tests, open_harnesses, close_harnesses);
}
