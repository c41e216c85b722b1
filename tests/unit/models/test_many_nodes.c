/* Definitions of as many nodes as there can be: limits and their sentences, and programs whose values are read, stacked and kept in each
 * way that costs the most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "chain_run.h"
#include "models/definition.h"

enum { TEXT_MAX = 2 << 20 };

static struct {
    char text[TEXT_MAX];
    size_t length;
    int nodes;
} d;

static void fill(const ks_tensor *tensor, void *memory, int input)
{
    float *value = memory;
    for (int64_t i = 0; i < ks_tensor_count(tensor); i++) value[i] = (float)((i * 7 + input * 5) % 23) / 8 - 1.25f;
}

static __attribute__((format(printf, 1, 2))) void put(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    d.length += (size_t)vsnprintf(d.text + d.length, sizeof d.text - d.length, format, arguments);
    va_end(arguments);
}

/* x is a cache line of a float each row. */
static void begin(void)
{
    d.length = 0;
    d.nodes = 0;
    put("{\"format\":1,\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,64]}],\"nodes\":[");
}

/* Up to its inputs' bracket. */
static void open_node(const char *op)
{
    put("%s{\"name\":\"n%d\",\"op\":\"%s\",\"inputs\":[", d.nodes ? "," : "", d.nodes, op);
}

static int close_node(const char *parameters)
{
    put("],\"outputs\":[\"v%d\"],\"parameters\":{%s}}", d.nodes, parameters);
    return d.nodes++;
}

static void end(void)
{
    put("],\"outputs\":[{\"name\":\"v%d\"}]}", d.nodes - 1);
}

static int map_of_input(const char *function)
{
    open_node("map");
    put("\"x\"");
    put("],\"outputs\":[\"v%d\"],\"parameters\":{\"op\":\"%s\"}}", d.nodes, function);
    return d.nodes++;
}

static ks_definition *infer(void)
{
    ks_definition *definition = NULL;
    ks_error error = {0};
    if (ks_definition_read("tested", d.text, d.length, &definition, &error) != KS_OK ||
        ks_definition_infer(definition, &error) != KS_OK)
        fail_msg("%s", error.text);
    return definition;
}

static ks_program *program_of(const ks_definition *definition, ks_spec *spec)
{
    ks_program *program = NULL;
    ks_error error = {0};
    assert_int_equal(ks_definition_sample(definition, 1, spec, &error), KS_OK);
    assert_int_equal(ks_program_make(spec, &ks_cpu_chain_means, &program, &error), KS_OK);
    return program;
}

static void refuse(ks_status status, const char *sentence)
{
    ks_definition *definition = NULL;
    ks_error error = {0};
    assert_int_equal(ks_definition_read("tested", d.text, d.length, &definition, &error), status);
    if (!strstr(error.text, sentence)) fail_msg("%s", error.text);
}

static void limits_have_sentences(void **state)
{
    (void)state;
    char sentence[128];
    begin();
    for (int i = 0; i <= KS_CHAIN_NODES_MAX; i++) map_of_input("neg");
    end();
    snprintf(sentence, sizeof sentence, "'nodes' has more than %d", KS_CHAIN_NODES_MAX);
    refuse(KS_DEFINITION, sentence);
    begin(); /* three names a node */
    for (int i = 0; i < KS_CHAIN_NODES_MAX; i++)
        put("%s{\"name\":\"n%d\",\"op\":\"norm\",\"inputs\":[\"x\"],\"outputs\":[\"a%d\",\"b%d\",\"c%d\"]}",
            i ? "," : "", i, i, i, i);
    put("],\"outputs\":[{\"name\":\"a0\"}]}");
    snprintf(sentence, sizeof sentence, "node 'n%d': nodes make more than %d values", KS_CHAIN_MADE_MAX / 3,
             KS_CHAIN_MADE_MAX);
    refuse(KS_DEFINITION, sentence);
    begin(); /* the first fault is the answer */
    for (int i = 0; i <= KS_CHAIN_NODES_MAX; i++) map_of_input(i == 7 ? "nothing" : "neg");
    end();
    refuse(KS_PARAMETER, "node 'n7'");
}

/* As long as they may be, and alike but for their ends. */
static void long_names_are_apart(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < KS_CHAIN_NODES_MAX; i++) {
        put("%s{\"name\":\"%0128d\",\"op\":\"softmax\",\"inputs\":[", i ? "," : "", i);
        if (i)
            put("\"v%0127d\"", i - 1);
        else
            put("\"x\"");
        put("],\"outputs\":[\"v%0127d\"]}", i);
    }
    put("],\"outputs\":[{\"name\":\"v%0127d\"}]}", KS_CHAIN_NODES_MAX - 1);
    if (d.length > KS_DEFINITION_BYTES_MAX) fail_msg("%zu bytes", d.length);
    d.text[d.length] = 0;
    /* An output's name has 40 bytes at most. */
    refuse(KS_NAME, "a name has 1 to 40 bytes");
    char *const last = strstr(d.text, "],\"outputs\":[{\"name\"");
    d.length = (size_t)(last - d.text);
    put(",{\"name\":\"last\",\"op\":\"reshape\",\"inputs\":[\"v%0127d\"],\"outputs\":[\"y\"],\"parameters\":{\"shape\":"
        "[0,0]}}"
        "],\"outputs\":[{\"name\":\"y\"}]}",
        KS_CHAIN_NODES_MAX - 1);
    refuse(KS_DEFINITION, "'nodes' has more than");
    char *const first = strstr(d.text, "{\"name\":\"last\"") - 1;
    *first = 0;
    char *before = first; /* one fewer */
    while (strncmp(before, ",{\"name\":", 9) != 0) before--;
    d.length = (size_t)(before - d.text);
    put(",{\"name\":\"last\",\"op\":\"reshape\",\"inputs\":[\"v%0127d\"],\"outputs\":[\"y\"],\"parameters\":{\"shape\":"
        "[0,0]}}"
        "],\"outputs\":[{\"name\":\"y\"}]}",
        KS_CHAIN_NODES_MAX - 2);
    ks_definition *definition = infer();
    ks_spec spec;
    assert_int_equal(definition->chain.nodes, KS_CHAIN_NODES_MAX);
    ks_program *program = program_of(definition, &spec);
    assert_int_equal(program->count, KS_CHAIN_NODES_MAX - 1);
    ks_program_free(&program);
    ks_definition_free(&definition);
}

/* Each concat has the one in front of it: a whole in a whole, as deep as there are concats, and all of it the output's memory. */
static void stacks_lie_in_one_place(void **state)
{
    (void)state;
    begin();
    int whole = map_of_input("tanh");
    while (d.nodes + 2 <= KS_CHAIN_NODES_MAX) {
        const int part = map_of_input(d.nodes % 4 == 1 ? "neg" : "abs");
        open_node("concat");
        put("\"v%d\",\"v%d\"", whole, part);
        whole = close_node("\"axis\":0");
    }
    end();
    ks_definition *definition = infer();
    ks_spec spec;
    ks_program *program = program_of(definition, &spec);
    assert_int_equal(program->views, KS_CHAIN_NODES_MAX / 2 - 1);
    assert_int_equal(program->count, KS_CHAIN_NODES_MAX / 2);
    assert_int_equal(program->arena_bytes, 0);
    for (int i = 0; i < program->count; i++) {
        assert_int_equal(program->step[i].out[0].kind, KS_PLACE_OUTPUT);
        assert_int_equal(program->step[i].out[0].offset, (size_t)i * 64 * sizeof(float));
    }
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

/* Two of all values that are there, each time: some live from the first step to the last, and maps that read one may be anywhere. */
static void any_value_is_read_anywhere(void **state)
{
    (void)state;
    static const char *const functions[] = {"\"op\":\"mul\"", "\"op\":\"min\"", "\"op\":\"max\""};
    uint32_t seed = 7;
    begin();
    map_of_input("tanh");
    map_of_input("sign");
    while (d.nodes < KS_CHAIN_NODES_MAX) {
        int from[2];
        for (int i = 0; i < 2; i++) from[i] = (int)(((seed = seed * 1664525u + 1013904223u) >> 8) % (unsigned)d.nodes);
        const bool maps = seed >> 28 != 0;
        open_node(maps ? "map" : "softmax");
        put("\"v%d\"", from[0]);
        if (maps) put(",\"v%d\"", from[1]);
        close_node(maps ? functions[(seed >> 20) % 3] : "");
    }
    end();
    ks_definition *definition = infer();
    ks_spec spec;
    ks_program *program = program_of(definition, &spec);
    assert_true(program->count < KS_CHAIN_NODES_MAX);
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(limits_have_sentences), cmocka_unit_test(long_names_are_apart),
                                       cmocka_unit_test(stacks_lie_in_one_place),
                                       cmocka_unit_test(any_value_is_read_anywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
