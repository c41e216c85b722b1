/* Nodes whose values are views: what takes no step, where values lie then, and that no bit follows from it. */
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

static ks_definition *infer_definition(const char *text)
{
    ks_definition *definition = NULL;
    ks_error error = {0};
    if (ks_definition_read("tested", text, strlen(text), &definition, &error) != KS_OK) fail_msg("%s", error.text);
    for (int i = 0; i < definition->initializers; i++) {
        ks_tensor tensor = definition->initializer[i].tensor;
        tensor.fixed = definition->initializer[i].data;
        ks_definition_bind(definition, i, &tensor);
    }
    if (ks_definition_infer(definition, &error) != KS_OK) fail_msg("%s\n%s", error.text, text);
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

static const char *view_name(const ks_definition *definition, const ks_program *program, int i)
{
    return definition->chain.node[program->view[i]].name;
}

/* x is 8 rows of 16 floats, a cache line each. */
#define HEAD                                                                                                           \
    "{\"format\":1,\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[8,16]}],\"initializers\":["            \
    "{\"name\":\"w\",\"datatype\":\"FP32\",\"shape\":[2,16],\"data\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,"         \
    "1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0]}],\"nodes\":["
#define NODE(name, op, in, out, parameters)                                                                            \
    "{\"name\":\"" name "\",\"op\":\"" op "\",\"inputs\":[" in "],\"outputs\":[\"" out                                 \
    "\"],\"parameters\":{" parameters "}}"
#define MAP(name, op, in, out) NODE(name, "map", in, out, "\"op\":\"" op "\"")

/* A part of an input, of a constant and of what a node makes, each read where it lies; the last one under another shape. */
static void parts_are_read_where_they_lie(void **state)
{
    (void)state;
    ks_definition *definition = infer_definition(
        HEAD NODE("rows", "slice", "\"x\"", "r", "\"axis\":0,\"start\":2,\"end\":4") "," NODE("second", "slice", "\"w\"", "s", "\"axis\":0,\"start\":1,\"end\":2") "," MAP(
            "sum", "add", "\"r\",\"s\"",
            "t") "," NODE("last", "split", "\"t\"", "u",
                          "\"axis\":0,\"parts\":2,\"part\":1") "," NODE("same", "map", "\"u\"", "c",
                                                                        "\"op\":\"cast\"") "," NODE("turned",
                                                                                                    "transpose",
                                                                                                    "\"c\"",
                                                                                                    "v",
                                                                                                    "\"perm\":[1,"
                                                                                                    "0]") "," NODE("pad"
                                                                                                                   "de"
                                                                                                                   "d",
                                                                                                                   "pa"
                                                                                                                   "d",
                                                                                                                   "\"v"
                                                                                                                   "\"",
                                                                                                                   "p",
                                                                                                                   "\"a"
                                                                                                                   "xis"
                                                                                                                   "\":"
                                                                                                                   "0,"
                                                                                                                   "\"b"
                                                                                                                   "efo"
                                                                                                                   "re"
                                                                                                                   "\":"
                                                                                                                   "0,"
                                                                                                                   "\"a"
                                                                                                                   "fte"
                                                                                                                   "r\""
                                                                                                                   ":0") "," MAP("root",
                                                                                                                                 "sqrt",
                                                                                                                                 "\"p\"",
                                                                                                                                 "y") "],\"outputs\":[{\"name\":\"y\"}]}");
    ks_spec spec;
    ks_program *program = program_of(definition, &spec);
    static const char *const views[] = {"rows", "second", "last", "same", "turned", "padded"};
    assert_int_equal(program->count, 2);
    assert_int_equal(program->views, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(view_name(definition, program, i), views[i]);
    assert_int_equal(program->step[0].in[0].kind, KS_PLACE_INPUT);
    assert_int_equal(program->step[0].in[0].offset, 2 * 64);
    assert_int_equal(program->step[0].in[1].kind, KS_PLACE_FIXED);
    assert_ptr_equal(program->step[0].in[1].fixed, (const char *)definition->chain.constant[0].fixed + 64);
    assert_int_equal(program->step[1].in[0].kind, KS_PLACE_ARENA);
    assert_int_equal(program->step[1].in[0].offset, 64);
    assert_int_equal(program->arena_bytes, KS_ALIGNMENT);
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

/* What begins off the alignment is copied, and what is an output itself is made there; an output that is a view of a part is copied. */
static void other_parts_are_copied(void **state)
{
    (void)state;
    ks_definition *definition = infer_definition(
        HEAD MAP("n", "neg", "\"x\"", "a") "," NODE("odd", "reshape", "\"a\"", "b", "\"shape\":[128]") "," NODE(
            "off", "slice", "\"b\"", "c",
            "\"axis\":0,\"start\":3,\"end\":35") "," MAP("m", "abs", "\"c\"",
                                                         "d") "," NODE("out", "slice", "\"a\"", "e",
                                                                       "\"axis\":0,\"start\":4,\"end\":"
                                                                       "8") "," NODE("row", "slice", "\"a\"", "f",
                                                                                     "\"axis\":0,"
                                                                                     "\"start\":1,"
                                                                                     "\"end\":2") "," NODE("flat",
                                                                                                           "reshape",
                                                                                                           "\"f\"", "g",
                                                                                                           "\"shape\":["
                                                                                                           "16]") "],"
                                                                                                                  "\"ou"
                                                                                                                  "tput"
                                                                                                                  "s\":"
                                                                                                                  "[{"
                                                                                                                  "\"na"
                                                                                                                  "me\""
                                                                                                                  ":\"d"
                                                                                                                  "\"},"
                                                                                                                  "{\"n"
                                                                                                                  "ame"
                                                                                                                  "\":"
                                                                                                                  "\"e"
                                                                                                                  "\"},"
                                                                                                                  "{\"n"
                                                                                                                  "ame"
                                                                                                                  "\":"
                                                                                                                  "\"g"
                                                                                                                  "\"}]"
                                                                                                                  "}");
    ks_spec spec;
    ks_program *program = program_of(definition, &spec);
    assert_int_equal(program->count, 5); /* neg, off, abs, out, and a copy */
    assert_int_equal(program->views, 3); /* odd, row, flat */
    assert_null(program->step[4].spec.op);
    assert_int_equal(program->step[4].in[0].kind, KS_PLACE_ARENA);
    assert_int_equal(program->step[4].in[0].offset - program->step[0].out[0].offset, 64);
    assert_int_equal(program->step[3].out[0].kind, KS_PLACE_OUTPUT);
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

/* Two concats, one in the other, of what nodes make; the outer one is an output. */
static void producers_write_into_the_whole(void **state)
{
    (void)state;
    ks_definition *definition =
        infer_definition(HEAD MAP("n", "neg", "\"x\"", "a") "," MAP("m", "abs", "\"x\"", "b") "," NODE(
            "inner", "concat", "\"a\",\"b\"", "c",
            "\"axis\":0") "," MAP("k", "square", "\"x\"",
                                  "d") "," NODE("outer", "concat", "\"d\",\"c\"", "e",
                                                "\"axis\":0") "," NODE("back", "slice", "\"e\"", "f",
                                                                       "\"axis\":0,\"start\":8,\"end\":"
                                                                       "16") "," MAP("s", "add", "\"f\",\"b\"",
                                                                                     "g") "],\"outputs\":"
                                                                                          "[{\"name\":"
                                                                                          "\"e\"},{"
                                                                                          "\"name\":"
                                                                                          "\"g\"}]}");
    ks_spec spec;
    ks_program *program = program_of(definition, &spec);
    assert_int_equal(program->count, 4); /* neg, abs, square, add */
    assert_int_equal(program->views, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(program->step[i].out[0].kind, KS_PLACE_OUTPUT);
    assert_int_equal(program->step[0].out[0].offset, 8 * 64);
    assert_int_equal(program->step[1].out[0].offset, 16 * 64);
    assert_int_equal(program->step[2].out[0].offset, 0);
    assert_int_equal(program->step[3].in[0].kind, KS_PLACE_OUTPUT);
    assert_int_equal(program->step[3].in[0].offset, 8 * 64);
    assert_int_equal(program->arena_bytes, 0);
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

/* A value twice, an input, a value that another concat has already, and parts side by side along the last axis. */
static void other_concats_are_copied(void **state)
{
    (void)state;
    ks_definition *definition = infer_definition(
        HEAD MAP("n", "neg", "\"x\"", "a") "," MAP("m", "abs", "\"x\"", "b") "," NODE("twice", "concat", "\"a\",\"a\"", "c", "\"axis\":0") "," NODE(
            "given", "concat",
            "\"b\",\"x\"", "d",
            "\"axis\":0") "," NODE("first", "concat", "\"a\",\"b\"", "e",
                                   "\"axis\":0") "," NODE("second", "concat", "\"b\",\"a\"", "f",
                                                          "\"axis\":0") "," MAP("k", "square", "\"x\"",
                                                                                "g") "," MAP("l", "exp", "\"x\"",
                                                                                             "h") "," NODE("side",
                                                                                                           "concat",
                                                                                                           "\"g\","
                                                                                                           "\"h\"",
                                                                                                           "i",
                                                                                                           "\"axis"
                                                                                                           "\":1") "," MAP("all",
                                                                                                                           "add",
                                                                                                                           "\"c\",\"d\"",
                                                                                                                           "j") "," MAP("more",
                                                                                                                                        "add",
                                                                                                                                        "\"e\",\"f\"",
                                                                                                                                        "p") "," MAP("sum",
                                                                                                                                                     "add",
                                                                                                                                                     "\"j\",\"p\"",
                                                                                                                                                     "q") "],\"outputs\":[{\"name\":\"q\"},{\"name\":\"i\"},{\"name\":\"a\"}]}");
    ks_spec spec;
    ks_program *program = program_of(definition, &spec);
    assert_int_equal(program->views, 1);
    assert_string_equal(view_name(definition, program, 0), "first");
    assert_null(program->step[program->count - 1].spec.op); /* a lies in its part, so the output that it is is copied */
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

/* --- at random ---------------------------------------------------------------------------------------------------------- */

typedef struct drawn {
    char text[64 << 10];
    size_t length;
    int values, rows[64]; /* each value is rows of 16 */
} drawn;

static uint32_t seed;

static int below(int bound)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 16) % (uint32_t)bound);
}

static void draw_node(drawn *d)
{
    const int v = d->values, a = below(v), b = below(v), rows = d->rows[a];
    char *const to = d->text + d->length;
    const size_t room = sizeof d->text - d->length;
    int n;
    switch (below(6)) {
    case 0:
        if (rows + d->rows[b] < 64) {
            n = snprintf(to, room,
                         "{\"name\":\"n%d\",\"op\":\"concat\",\"inputs\":[\"v%d\",\"v%d\"],\"outputs\":[\"v%d\"],"
                         "\"parameters\":{\"axis\":0}}",
                         v, a, b, v);
            d->rows[v] = rows + d->rows[b];
            break;
        }
        /* fall through */
    case 1: {
        const int start = below(rows), end = start + 1 + below(rows - start);
        n = snprintf(to, room,
                     "{\"name\":\"n%d\",\"op\":\"slice\",\"inputs\":[\"v%d\"],\"outputs\":[\"v%d\"],"
                     "\"parameters\":{\"axis\":0,\"start\":%d,\"end\":%d}}",
                     v, a, v, start, end);
        d->rows[v] = end - start;
        break;
    }
    case 2:
        n = snprintf(to, room,
                     "{\"name\":\"n%d\",\"op\":\"reshape\",\"inputs\":[\"v%d\"],\"outputs\":[\"v%d\"],"
                     "\"parameters\":{\"shape\":[-1,16]}}",
                     v, a, v);
        d->rows[v] = rows;
        break;
    case 3:
        if (rows == d->rows[b]) {
            n = snprintf(to, room,
                         "{\"name\":\"n%d\",\"op\":\"map\",\"inputs\":[\"v%d\",\"v%d\"],\"outputs\":[\"v%d\"],"
                         "\"parameters\":{\"op\":\"sub\"}}",
                         v, a, b, v);
            d->rows[v] = rows;
            break;
        }
        /* fall through */
    default:
        n = snprintf(to, room,
                     "{\"name\":\"n%d\",\"op\":\"map\",\"inputs\":[\"v%d\"],\"outputs\":[\"v%d\"],"
                     "\"parameters\":{\"op\":\"%s\"}}",
                     v, a, v, below(3) ? below(2) ? "neg" : "tanh" : "cast");
        d->rows[v] = rows;
        break;
    }
    d->length += (size_t)n;
    d->values++;
}

static void views_change_no_bit(void **state)
{
    (void)state;
    enum { CHAINS = 400, NODES = 24 };
    static drawn d;
    int views = 0;
    seed = 4711;
    for (int c = 0; c < CHAINS; c++) {
        d = (drawn){.values = 3, .rows = {1, 4, 7}};
        d.length =
            (size_t)snprintf(d.text, sizeof d.text,
                             "{\"format\":1,\"inputs\":[{\"name\":\"v0\",\"datatype\":\"FP32\",\"shape\":[1,16]},"
                             "{\"name\":\"v1\",\"datatype\":\"FP32\",\"shape\":[4,16]},"
                             "{\"name\":\"v2\",\"datatype\":\"FP32\",\"shape\":[7,16]}],\"nodes\":[");
        for (int i = 0; i < NODES; i++) {
            if (i > 0) d.text[d.length++] = ',';
            draw_node(&d);
        }
        snprintf(d.text + d.length, sizeof d.text - d.length,
                 "],\"outputs\":[{\"name\":\"v%d\"},{\"name\":\"v%d\"},{\"name\":\"v%d\"}]}", d.values - 1,
                 d.values - 2 - below(4), d.values - 7 - below(4));
        ks_definition *definition = infer_definition(d.text);
        ks_spec spec;
        ks_program *program = program_of(definition, &spec);
        views += program->views;
        ks_program_free(&program);
        if (!chain_is_right(&spec, fill)) fail_msg("%s", d.text);
        ks_definition_free(&definition);
    }
    assert_true(views > CHAINS * 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_read_where_they_lie), cmocka_unit_test(other_parts_are_copied),
        cmocka_unit_test(producers_write_into_the_whole), cmocka_unit_test(other_concats_are_copied),
        cmocka_unit_test(views_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
