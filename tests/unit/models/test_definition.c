/* A definition, the chain that it comes to, and its program: what is declared, where values lie, and that the arena changes no bit. */
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

static void fill(const ks_tensor *tensor, void *memory, int input)
{
    float *value = memory;
    for (int64_t i = 0; i < ks_tensor_count(tensor); i++) value[i] = (float)((i * 7 + input * 5) % 23) / 8 - 1.25f;
}

static ks_definition *read_definition(const char *text)
{
    ks_definition *definition = NULL;
    ks_error error = {0};
    const ks_status status = ks_definition_read("tested", text, strlen(text), &definition, &error);
    if (status != KS_OK) print_message("%s\n", error.text);
    assert_int_equal(status, KS_OK);
    for (int i = 0; i < definition->initializers; i++) {
        ks_tensor tensor = definition->initializer[i].tensor;
        assert_null(definition->initializer[i].resident);
        tensor.fixed = definition->initializer[i].data;
        ks_definition_bind(definition, i, &tensor);
    }
    return definition;
}

static ks_definition *infer_definition(const char *text)
{
    ks_definition *definition = read_definition(text);
    ks_error error = {0};
    const ks_status status = ks_definition_infer(definition, &error);
    if (status != KS_OK) print_message("%s\n", error.text);
    assert_int_equal(status, KS_OK);
    return definition;
}

static ks_program *program_of(const ks_definition *definition, int64_t batch, ks_spec *spec)
{
    ks_program *program = NULL;
    ks_error error = {0};
    assert_int_equal(ks_definition_sample(definition, batch, spec, &error), KS_OK);
    assert_int_equal(ks_program_make(spec, NULL, &program, &error), KS_OK);
    return program;
}

#define HEAD "{\"format\":1,\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,6]}],"
#define MAP(name, op, in, out)                                                                                         \
    "{\"name\":\"" name "\",\"op\":\"map\",\"inputs\":[\"" in "\"],\"outputs\":[\"" out                                \
    "\"],\"parameters\":{\"op\":\"" op "\"}}"

/* Where each initializer is to come from. */
static void initializers_have_sources(void **state)
{
    (void)state;
    ks_definition *definition = NULL;
    ks_error error = {0};
    const char *const text =
        HEAD "\"initializers\":[\"a/b\",{\"name\":\"c\",\"file\":\"x.safetensors\",\"key\":\"d:e\"},{\"name\":\"f\","
             "\"tensor\":\"G\"},{\"name\":\"h\",\"datatype\":\"FP32\",\"shape\":[],\"data\":[1]}],\"nodes\":[" MAP(
                 "n", "relu", "x", "y") "],\"outputs\":[{\"name\":\"y\"}]}";
    assert_int_equal(ks_definition_read("tested", text, strlen(text), &definition, &error), KS_OK);
    const ks_initializer *from = definition->initializer;
    assert_int_equal(definition->initializers, 4);
    assert_string_equal(from[0].name, "a/b");
    assert_string_equal(from[0].key, "a/b");
    assert_string_equal(from[0].file, "weights.safetensors");
    assert_string_equal(from[1].key, "d:e");
    assert_string_equal(from[1].file, "x.safetensors");
    assert_null(from[0].resident);
    assert_string_equal(from[2].resident, "G");
    assert_null(from[2].file);
    assert_true(!from[3].file && !from[3].resident && from[3].data);
    ks_definition_free(&definition);
}

/* A value of each kind of place, and two that share one. */
static const char five[] = HEAD
    "\"initializers\":[{\"name\":\"w\",\"datatype\":\"FP32\",\"shape\":[6,6],\"data\":["
    "1,2,3,4,5,6,-1,-2,-3,-4,-5,-6,0.5,0.25,0,1,2,3,1,1,1,1,1,1,2,2,2,2,2,2,-1,1,-1,1,-1,1]}],"
    "\"nodes\":[" MAP("a", "tanh", "x", "va") "," MAP("b", "neg", "va", "vb") "," MAP(
        "c", "abs", "vb", "vc") ",{\"name\":\"d\",\"op\":\"matmul\",\"inputs\":[\"vc\",\"w\"],\"outputs\":[\"vd\"]},"
                                "{\"name\":\"r\",\"op\":\"reshape\",\"inputs\":[\"vd\"],\"outputs\":[\"vr\"],"
                                "\"parameters\":{\"shape\":[0,2,3]}}],"
                                "\"outputs\":[{\"name\":\"vr\"},{\"name\":\"vd\"},{\"name\":\"x\"},{\"name\":\"w\"}]}";

static void places_follow_lives(void **state)
{
    (void)state;
    ks_definition *definition = infer_definition(five);
    ks_spec spec;
    ks_program *program = program_of(definition, 4, &spec);
    /* tanh, neg, abs, matmul; then three copies: of what is an output already, of an input, of a constant. */
    assert_int_equal(program->count, 7);
    assert_int_equal(program->step[0].in[0].kind, KS_PLACE_INPUT);
    assert_int_equal(program->step[0].out[0].kind, KS_PLACE_ARENA);
    assert_int_equal(program->step[3].in[1].kind, KS_PLACE_FIXED);
    assert_int_equal(program->step[3].out[0].kind, KS_PLACE_OUTPUT);
    assert_int_equal(program->step[4].in[0].kind, KS_PLACE_OUTPUT);
    assert_null(program->step[4].spec.op);
    assert_int_equal(program->step[5].in[0].kind, KS_PLACE_INPUT);
    assert_int_equal(program->step[6].in[0].kind, KS_PLACE_FIXED);
    /* Three values of 96 bytes: the third lies where the first one was. */
    assert_int_equal(program->arena_bytes, 2 * KS_ALIGNMENT);
    assert_int_equal(program->step[2].out[0].offset, program->step[0].out[0].offset);
    assert_int_not_equal(program->step[1].out[0].offset, program->step[0].out[0].offset);
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

/* Words of nodes with their shorter parameters; what moves nothing takes no step, an output that it is, too. */
static void elements_are_moved(void **state)
{
    (void)state;
    ks_definition *definition = infer_definition(HEAD "\"nodes\":[" MAP(
        "a", "tanh", "x", "va") ","
                                "{\"name\":\"t\",\"op\":\"transpose\",\"inputs\":[\"va\"],\"outputs\":[\"vt\"],"
                                "\"parameters\":{\"perm\":[1,0]}},"
                                "{\"name\":\"s\",\"op\":\"slice\",\"inputs\":[\"va\"],\"outputs\":[\"vs\"],"
                                "\"parameters\":{\"axis\":1,\"start\":-2,\"end\":-1}},"
                                "{\"name\":\"c\",\"op\":\"concat\",\"inputs\":[\"va\",\"vs\"],\"outputs\":[\"vc\"],"
                                "\"parameters\":{\"axis\":1}},"
                                "{\"name\":\"same\",\"op\":\"transpose\",\"inputs\":[\"vc\"],\"outputs\":[\"vd\"],"
                                "\"parameters\":{\"perm\":[0,1]}},"
                                "{\"name\":\"r\",\"op\":\"layout\",\"inputs\":[\"vd\"],\"outputs\":[\"vr\"],"
                                "\"parameters\":{\"op\":\"reshape\",\"new_shape\":[0,1,-1]}}],"
                                "\"outputs\":[{\"name\":\"vt\"},{\"name\":\"vs\"},{\"name\":\"vr\"}]}");
    ks_spec spec;
    ks_program *program = program_of(definition, 4, &spec);
    assert_int_equal(program->count, 4); /* tanh, transpose, slice, concat, which is the output by its other names */
    assert_int_equal(program->step[3].out[0].kind, KS_PLACE_OUTPUT);
    assert_int_equal(spec.out[0].dims[0], 6);
    assert_int_equal(spec.out[1].dims[1], 1);
    assert_int_equal(spec.out[2].rank, 3);
    assert_int_equal(spec.out[2].dims[2], 7);
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

static void dimensions_are_declared(void **state)
{
    (void)state;
    ks_definition *definition = infer_definition(five);
    const ks_model *model = &definition->model;
    assert_int_equal(model->outputs, 4);
    assert_int_equal(model->out_rank[0], 3);
    assert_int_equal(model->out_dims[0][0], -1);
    assert_int_equal(model->out_dims[0][1], 2);
    assert_int_equal(model->out_dims[3][0], 6);
    assert_int_equal(model->in_dims[0][0], -1);
    assert_int_equal(model->in_dims[0][1], 6);
    assert_int_equal(model->in_rank[0], 2);
    assert_string_equal(ks_op_output(model->op, 0), "vr");
    assert_string_equal(model->op->inputs[0].name, "x");
    ks_definition_free(&definition);
}

/* A word is one length wherever it stands; -1 in front is the batch of all. */
static void lengths_agree(void **state)
{
    (void)state;
    ks_definition *definition = infer_definition(
        "{\"format\":1,\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,\"s\"]},"
        "{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,\"s\"]}],\"nodes\":[{\"name\":\"sum\",\"op\":\"map\","
        "\"inputs\":[\"x\",\"y\"],\"outputs\":[\"z\"],\"parameters\":{\"op\":\"add\"}}],\"outputs\":[{\"name\":\"z\"}]"
        "}");
    ks_spec spec;
    ks_error error = {0};
    ks_spec_init(&spec, &definition->chain.op);
    for (int i = 0; i < 2; i++) spec.in[i] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 5}};
    assert_int_equal(spec.op->resolve(&spec, &error), KS_OK);
    assert_int_equal(spec.out[0].dims[1], 5);
    spec.in[1].dims[1] = 1; /* which NumPy's rules would take */
    assert_int_equal(spec.op->resolve(&spec, &error), KS_SHAPE);
    assert_non_null(strstr(error.text, "'s'"));
    spec.in[1].dims[1] = 5;
    spec.in[1].dims[0] = 1;
    assert_int_equal(spec.op->resolve(&spec, &error), KS_SHAPE);
    assert_non_null(strstr(error.text, "batch"));
    spec.in[1].dims[0] = 3;
    spec.in[0].dtype = KS_FP16;
    assert_int_equal(spec.op->resolve(&spec, &error), KS_DATATYPE);
    ks_definition_free(&definition);
}

static void empty_values_take_no_step(void **state)
{
    (void)state;
    ks_definition *definition = infer_definition(five);
    ks_spec spec;
    ks_error error = {0};
    ks_program *program = NULL;
    ks_spec_init(&spec, &definition->chain.op);
    spec.in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {0, 6}};
    assert_int_equal(spec.op->resolve(&spec, &error), KS_OK);
    assert_int_equal(ks_program_make(&spec, &ks_cpu_chain_means, &program, &error), KS_OK);
    assert_int_equal(program->count, 1); /* the constant that is an output */
    assert_int_equal(program->arena_bytes, 0);
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

static void sentences_name_the_node(void **state)
{
    (void)state;
    ks_definition *definition =
        read_definition(HEAD "\"initializers\":[{\"name\":\"w\",\"datatype\":\"FP32\",\"shape\":[5,1],"
                             "\"data\":[1,2,3,4,5]}],\"nodes\":[{\"name\":\"up\",\"op\":\"matmul\","
                             "\"inputs\":[\"x\",\"w\"],\"outputs\":[\"y\"]}],"
                             "\"outputs\":[{\"name\":\"y\"}]}");
    ks_error error = {0};
    assert_int_equal(ks_definition_infer(definition, &error), KS_SHAPE);
    assert_string_equal(error.text, "node 'up' (matmul): inner sizes differ: INPUT0 has 6 columns, INPUT1 has 5 rows");
    ks_definition_free(&definition);
}

/* As many nodes as there can be, each of which the next one reads. */
static void a_long_chain_has_two_places(void **state)
{
    (void)state;
    char *text = malloc(KS_CHAIN_NODES_MAX * 256);
    size_t n = (size_t)sprintf(text, HEAD "\"nodes\":[");
    for (int i = 0; i < KS_CHAIN_NODES_MAX; i++) {
        char from[16];
        snprintf(from, sizeof from, i ? "v%d" : "x", i - 1);
        n += (size_t)sprintf(text + n,
                             "%s{\"name\":\"n%d\",\"op\":\"map\",\"inputs\":[\"%s\"],\"outputs\":[\"v%d\"],"
                             "\"parameters\":{\"op\":\"%s\"}}",
                             i ? "," : "", i, from, i, i % 2 ? "tanh" : "neg");
    }
    sprintf(text + n, "],\"outputs\":[{\"name\":\"v%d\"}]}", KS_CHAIN_NODES_MAX - 1);
    ks_definition *definition = infer_definition(text);
    ks_spec spec;
    ks_program *program = program_of(definition, 3, &spec);
    assert_int_equal(program->count, KS_CHAIN_NODES_MAX);
    assert_int_equal(program->arena_bytes, 2 * KS_ALIGNMENT);
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
    free(text);
}

/* Values of different sizes that live across each other: each step reads two that were made any time before. */
static void arenas_change_no_bit(void **state)
{
    (void)state;
    enum { CHAINS = 200, INPUTS = 4, NODES = 30 };
    uint32_t seed = 12345;
    char *text = malloc(64 << 10);
    for (int c = 0; c < CHAINS; c++) {
        size_t n = (size_t)sprintf(text, "{\"format\":1,\"inputs\":[");
        int columns[NODES + 1] = {1, 7, 64, 300};
        for (int i = 0; i < INPUTS; i++)
            n += (size_t)sprintf(text + n, "%s{\"name\":\"v%d\",\"datatype\":\"FP32\",\"shape\":[-1,%d]}", i ? "," : "",
                                 i, columns[i]);
        n += (size_t)sprintf(text + n, "],\"nodes\":[");
        for (int i = INPUTS; i <= NODES; i++) {
            const int a = (int)((seed = seed * 1664525u + 1013904223u) >> 16) % i;
            const int b = (int)((seed = seed * 1664525u + 1013904223u) >> 16) % i;
            const bool joins = columns[a] == columns[b] || columns[a] == 1 || columns[b] == 1;
            const bool wide = (seed >> 8) % 3 == 0 && columns[a] < 500;
            columns[i] = wide ? columns[a] : joins ? (columns[a] > columns[b] ? columns[a] : columns[b]) : 1;
            n += (size_t)sprintf(text + n, "%s{\"name\":\"n%d\",\"op\":\"%s\",\"inputs\":[\"v%d\"%s",
                                 i > INPUTS ? "," : "", i, !wide && !joins ? "reduce" : "map", a,
                                 !wide && joins ? "," : "");
            if (!wide && joins) n += (size_t)sprintf(text + n, "\"v%d\"", b);
            n += (size_t)sprintf(text + n, "],\"outputs\":[\"v%d\"],\"parameters\":{%s}}", i,
                                 wide    ? "\"op\":\"tanh\""
                                 : joins ? "\"op\":\"sub\""
                                         : "\"op\":\"sum\",\"axis\":-1,\"keepdims\":true");
        }
        sprintf(text + n, "],\"outputs\":[{\"name\":\"v%d\"},{\"name\":\"v%d\"}]}", NODES,
                INPUTS + c % (NODES - INPUTS));
        ks_definition *definition = infer_definition(text);
        ks_spec spec;
        ks_error error = {0};
        assert_int_equal(ks_definition_sample(definition, 1 + c % 5, &spec, &error), KS_OK);
        assert_true(chain_is_right(&spec, fill));
        ks_definition_free(&definition);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(initializers_have_sources),
                                       cmocka_unit_test(places_follow_lives),
                                       cmocka_unit_test(dimensions_are_declared),
                                       cmocka_unit_test(elements_are_moved),
                                       cmocka_unit_test(lengths_agree),
                                       cmocka_unit_test(empty_values_take_no_step),
                                       cmocka_unit_test(sentences_name_the_node),
                                       cmocka_unit_test(a_long_chain_has_two_places),
                                       cmocka_unit_test(arenas_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
