/* A chain of more nodes than a byte can number, on each backend: what it makes is right, and a value that decides is refused by the name of its
 * node, however far behind that one stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernserve/backends.h"
#include "kernserve/chain.h"

/* early[i] = -table[at[i]], late[i] = -table[at[i] + 1]: by maps that negate, each of what the one in front of it makes, a gather at node 300, a
 * map that adds 1 at node 301, and a gather at node 700. Signs change an even number of times in front of each gather; behind it once, or 199
 * times. */
enum { NODES = 900, EARLY = 300, SHIFT = EARLY + 1, LATE = 700, ARENA_BYTES = 8 << 20 };
enum { TABLE, AT, FIRST }; /* values; node i makes FIRST + i */

#include "ops/op_backends.h"

static ks_chain_node nodes[NODES];
static char names[NODES][16];
static ks_chain chain = {.op = {.name = "long",
                                .inputs_count = FIRST,
                                .resolve = ks_chain_resolve,
                                .chain = &chain,
                                .refuse = ks_chain_refuse,
                                .nodes_decide = true},
                         .nodes = NODES,
                         .made = NODES,
                         .outputs = 2,
                         .output = {FIRST + SHIFT + 1, FIRST + NODES - 1},
                         .words = 1,
                         .node = nodes};

static void set_node(int index, const char *op, int a, int b)
{
    ks_chain_node *node = &nodes[index];
    snprintf(names[index], sizeof names[index], "node%d", index);
    *node = (ks_chain_node){.name = names[index], .op = ks_op_find(op, strlen(op)), .outputs = 1};
    memset(node->in, -1, sizeof node->in);
    memset(node->out, -1, sizeof node->out);
    node->in[0] = (int16_t)a;
    node->in[1] = (int16_t)b;
    node->out[0] = (int16_t)(FIRST + index);
    ks_params_init(node->op, node->params, node->lists);
}

static void set_map(int index, const char *function, int of)
{
    set_node(index, "map", of, -1);
    const ks_param *param = nodes[index].op->params;
    for (int c = 0; param->choices[c]; c++)
        if (strcmp(param->choices[c], function) == 0) nodes[index].params[0].i = c;
    for (int i = 0; i < nodes[index].op->params_count; i++)
        if (strcmp(nodes[index].op->params[i].name, "a") == 0 && strcmp(function, "add") == 0)
            nodes[index].params[i].d = 1;
}

static int open_all(void **state)
{
    static const char *const out_names[] = {"early", "late"};
    for (int i = 0; i < NODES; i++) set_map(i, "neg", i == 0 ? AT : FIRST + i - 1);
    set_node(EARLY, "gather", TABLE, FIRST + EARLY - 1);
    set_map(SHIFT, "add", FIRST + EARLY - 1);
    set_map(SHIFT + 1, "neg", FIRST + EARLY); /* the early output, beside the line */
    set_map(SHIFT + 2, "abs", FIRST + SHIFT);
    set_node(LATE, "gather", TABLE, FIRST + LATE - 1);
    chain.in[TABLE] = (ks_chain_tensor){.name = "table", .dtype = KS_FP32, .rank = 2, .dims = {-1, -1}};
    chain.in[AT] = (ks_chain_tensor){.name = "at", .dtype = KS_INT32, .rank = 1, .dims = {-1}};
    for (int i = 0; i < FIRST; i++)
        chain.op.inputs[i] =
            (ks_input){.name = chain.in[i].name, .role = chain.in[i].name, .dtypes = KS_DTYPE_BIT(chain.in[i].dtype)};
    for (int i = 0; i < 2; i++) chain.out[i] = (ks_chain_tensor){.name = out_names[i], .rank = -1};
    chain.op.outputs = out_names;
    return open_harnesses(state);
}

/* refused: what the sentence has; NULL: the values are taken. */
static void try_lookups(int b, int rows, int depth, const int32_t *at, int count, const char *refused)
{
    ks_spec spec;
    ks_error error = {0};
    float *table = malloc((size_t)(rows * depth) * sizeof *table);
    const void *in[] = {table, at};
    assert_non_null(table);
    for (int i = 0; i < rows * depth; i++) table[i] = (float)(i + 1);
    ks_spec_init(&spec, &chain.op);
    spec.in[TABLE] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {rows, depth}};
    spec.in[AT] = (ks_tensor){.dtype = KS_INT32, .rank = 1, .dims = {count}};
    assert_int_equal(ks_chain_resolve(&spec, &error), KS_OK);
    ks_spec_layout(&spec);
    unsigned char *got = malloc(ks_spec_out_bytes(&spec));
    assert_non_null(got);
    const ks_status status = op_harness_run(harnesses[b], &spec, in, got, (op_path)values_below(3), 1 + values_below(2),
                                            values_below(2), &error);
    if (refused && (status != KS_RANGE || !strstr(error.text, refused)))
        fail_msg("backend %d: %s \"%s\", expected range with \"%s\"", b, ks_status_name(status), error.text, refused);
    if (!refused && status != KS_OK) fail_msg("backend %d: %s", b, error.text);
    for (int o = 0; o < 2 && !refused; o++)
        for (int i = 0; i < count * depth; i++) {
            const float is = ((const float *)(const void *)(got + spec.out[o].offset))[i];
            if (is != -table[(at[i / depth] + o) * depth + i % depth])
                fail_msg("backend %d: element %d of output %d is %g", b, i, o, (double)is);
        }
    free(got);
    free(table);
}

static void late_nodes_are_named(void **state)
{
    (void)state;
    enum { MOST = 40, ROUNDS = 6 };
    int32_t at[MOST];
    char text[128];
    for (int round = 0; round < ROUNDS; round++) {
        const int b = round % 2, count = 3 + values_below(MOST - 3), bad = values_below(count);
        const int rows = 3 + values_below(90), depth = 1 + values_below(9);
        if (!harnesses[b]) continue;
        for (int i = 0; i < count; i++) at[i] = values_below(rows - 1);
        try_lookups(b, rows, depth, at, count, NULL);
        at[bad] = rows - 1;
        snprintf(text, sizeof text, "node 'node%d' (gather): INPUT1 (indices) has %d at place %d: it is outside", LATE,
                 rows, bad);
        try_lookups(b, rows, depth, at, count, text);
        at[bad] = rows + 7;
        snprintf(text, sizeof text, "node 'node%d' (gather): INPUT1 (indices) has %d at place %d: it is outside", EARLY,
                 rows + 7, bad);
        try_lookups(b, rows, depth, at, count, text);
    }
}

/* A word says what went into it, at the ends of its range, and an earlier node's is the greater one. */
static void words_name_each_node(void **state)
{
    (void)state;
    static const int numbers[] = {0, 1, 255, 256, 700, KS_CHAIN_NODES_MAX - 1, KS_BAD_NODE_LAST};
    static const int64_t places[] = {0, 1, 1 << 20, (int64_t)KS_BAD_PLACES};
    uint64_t before = 0;
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        for (int input = 1; input <= KS_BAD_INPUT_LAST; input++)
            for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
                const uint64_t word = KS_BAD_WORD(numbers[n], input, places[p]);
                const ks_bad_value bad = ks_bad_of_word(word);
                assert_int_equal(bad.node, numbers[n]);
                assert_int_equal(bad.input, input);
                assert_int_equal(bad.place, places[p]);
                assert_true(word != 0 && (n == 0 || word < before));
            }
        before = KS_BAD_WORD(numbers[n], 1, KS_BAD_PLACES);
    }
}

int main(void)
{
    values_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(late_nodes_are_named), cmocka_unit_test(words_name_each_node)};
    return cmocka_run_group_tests(tests, open_all, close_harnesses);
}
