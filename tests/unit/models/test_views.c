/* Nodes whose values are views: what takes no step, where values lie then, and that no bit follows from it. */
#include "drawn_chains.h"

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
    ks_program *program = program_of(definition, 1, &ks_cpu_chain_means, &spec);
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
    ks_program *program = program_of(definition, 1, &ks_cpu_chain_means, &spec);
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
    ks_program *program = program_of(definition, 1, &ks_cpu_chain_means, &spec);
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
    ks_program *program = program_of(definition, 1, &ks_cpu_chain_means, &spec);
    assert_int_equal(program->views, 1);
    assert_string_equal(view_name(definition, program, 0), "first");
    assert_null(program->step[program->count - 1].spec.op); /* a lies in its part, so the output that it is is copied */
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

/* --- at random ---------------------------------------------------------------------------------------------------------- */

static int rows[DRAWN_VALUES]; /* each value is rows of 16 */

static void draw_node(drawn *d)
{
    const int v = d->values, a = below(v), b = below(v), kind = below(6);
    char inputs[32], parameters[64];
    const char *op = "map";
    rows[v] = rows[a];
    snprintf(inputs, sizeof inputs, "\"v%d\"", a);
    if (kind == 0 && rows[a] + rows[b] < 64) {
        op = "concat";
        rows[v] = rows[a] + rows[b];
        snprintf(inputs, sizeof inputs, "\"v%d\",\"v%d\"", a, b);
        snprintf(parameters, sizeof parameters, "\"axis\":0");
    } else if (kind < 2) {
        const int start = below(rows[a]), end = start + 1 + below(rows[a] - start);
        op = "slice";
        rows[v] = end - start;
        snprintf(parameters, sizeof parameters, "\"axis\":0,\"start\":%d,\"end\":%d", start, end);
    } else if (kind == 2) {
        op = "reshape";
        snprintf(parameters, sizeof parameters, "\"shape\":[-1,16]");
    } else if (kind == 3 && rows[a] == rows[b]) {
        snprintf(inputs, sizeof inputs, "\"v%d\",\"v%d\"", a, b);
        snprintf(parameters, sizeof parameters, "\"op\":\"sub\"");
    } else {
        snprintf(parameters, sizeof parameters, "\"op\":\"%s\"", below(3) ? below(2) ? "neg" : "tanh" : "cast");
    }
    drawn_node(d, op, inputs, parameters);
}

static int output(const drawn *d, int i)
{
    return i == 0 ? d->values - 1 : i == 1 ? d->values - 2 - below(4) : i == 2 ? d->values - 7 - below(4) : -1;
}

static int views_of(const ks_program *program)
{
    return program->views;
}

static void views_change_no_bit(void **state)
{
    (void)state;
    const drawn_test test = {
        .seed = 4711, .chains = 400, .batch = 1, .shapes = {"1,16", "4,16", "7,16"}, draw_node, output, views_of};
    memcpy(rows, (const int[]){1, 4, 7}, DRAWN_INPUTS * sizeof *rows);
    assert_true(run_drawn(&test) > test.chains * 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_read_where_they_lie), cmocka_unit_test(other_parts_are_copied),
        cmocka_unit_test(producers_write_into_the_whole), cmocka_unit_test(other_concats_are_copied),
        cmocka_unit_test(views_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
