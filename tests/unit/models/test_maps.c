/* Maps that one step does: which are one, and that no bit follows from it. */
#include "drawn_chains.h"

#define HEAD                                                                                                           \
    "{\"format\":1,\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,6]},"                               \
    "{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,6]},{\"name\":\"v\",\"datatype\":\"FP32\",\"shape\":[6]}],"   \
    "\"nodes\":["
#define NODE(op, in, out, parameters)                                                                                  \
    "{\"name\":\"" out "\",\"op\":\"" op "\",\"inputs\":[" in "],\"outputs\":[\"" out                                  \
    "\"],\"parameters\":{" parameters "}}"
#define MAP(op, in, out) NODE("map", in, out, "\"op\":\"" op "\"")
#define X "\"x\""
#define A "\"a\""
#define B "\"b\""
#define C "\"c\""
#define D "\"d\""
#define E "\"e\""
#define AND(first, second) first "," second

/* The nodes of each step, a word each; steps apart by spaces. */
static void check_steps(const char *text, const char *wanted)
{
    ks_definition *definition = infer_definition(text);
    ks_spec spec;
    ks_program *program = program_of(definition, 2, &ks_cpu_chain_means, &spec);
    char got[512] = "";
    size_t n = 0;
    for (int i = 0; i < program->count; i++) {
        if (i > 0) got[n++] = ' ';
        for (int k = 0; k < program->step[i].nodes; k++)
            n += (size_t)snprintf(got + n, sizeof got - n, "%s%s", k ? "," : "",
                                  definition->chain.node[program->step[i].node[k]].name);
    }
    got[n] = '\0';
    assert_string_equal(got, wanted);
    ks_program_free(&program);
    assert_true(chain_is_right(&spec, fill));
    ks_definition_free(&definition);
}

static void what_is_one_step(void **state)
{
    (void)state;
    check_steps(HEAD MAP("exp", X, "a") "," MAP("add", AND(A, "\"v\""), "b") "," MAP("tanh", B, "c") "," MAP(
                    "mul", AND("\"y\"", C),
                    "d") "," NODE("map", D, "e",
                                  "\"op\":\"cast\",\"out_datatype\":\"FP16\"") "],\"outputs\":[{\"name\":\"e\"}]}",
                "a,b,c,d,e");
    /* x sigmoid(x): all readers of a are in the step. */
    check_steps(HEAD MAP("sub", AND(X, "\"v\""), "a") "," MAP("sigmoid", A, "b") "," MAP(
                    "mul", AND(A, B), "c") "],\"outputs\":[{\"name\":\"c\"}]}",
                "a,b,c");
    /* Nodes of others between them, and a choice by a comparison. */
    check_steps(
        HEAD MAP("exp", X, "a") "," NODE("softmax", "\"y\"", "s", "") "," MAP("lt", AND(A, "\"y\""), "b") "," MAP(
            "where", AND(B, AND(A, X)), "c") "],\"outputs\":[{\"name\":\"c\"},{\"name\":\"s\"}]}",
        "a,b,c s");
    /* A product with a sum behind it is one function, as without other maps, and counts as two nodes. */
    check_steps(HEAD MAP("exp", X, "a") "," MAP("mul", AND(A, "\"y\""), "b") "," MAP(
                    "add", AND(B, "\"v\""), "c") "," MAP("tanh", C, "d") "],\"outputs\":[{\"name\":\"d\"}]}",
                "a,b,c,d");
}

static void what_is_not(void **state)
{
    (void)state;
    /* a is an output; b is read by a softmax, too. */
    check_steps(HEAD MAP("exp", X, "a") "," MAP("tanh", A, "b") "," MAP("neg", B, "c") "," NODE(
                    "softmax", B, "s", "") "],\"outputs\":[{\"name\":\"c\"},{\"name\":\"a\"},{\"name\":\"s\"}]}",
                "a b c s");
    /* Results that are broadcast would be computed for each row. */
    check_steps(HEAD MAP("exp", "\"v\"", "a") "," MAP("add", AND(A, X),
                                                      "b") "," MAP("neg", B, "c") "],\"outputs\":[{\"name\":\"c\"}]}",
                "a b,c");
    /* The softmax is not there where a stands. */
    check_steps(HEAD MAP("exp", X, "a") "," NODE("softmax", "\"y\"", "s", "") "," MAP(
                    "sub", AND(A, "\"s\""), "b") "," MAP("abs", B, "c") "],\"outputs\":[{\"name\":\"c\"}]}",
                "a s b,c");
    /* A sum goes to the norm behind it. */
    check_steps(HEAD MAP("tanh", X, "a") "," MAP("add", AND(A, "\"y\""),
                                                 "b") "," NODE("norm", B, "c", "") "],\"outputs\":[{\"name\":\"c\"}]}",
                "a b,c");
    /* What is read on the way and behind it, too, ends the step. */
    check_steps(HEAD MAP("exp", X, "a") "," MAP("tanh", A, "b") "," MAP("sub", AND(A, B), "c") "," MAP(
                    "neg", C, "d") "," NODE("softmax", A, "s", "") "],\"outputs\":[{\"name\":\"d\"},{\"name\":\"s\"}]}",
                "a b,c,d s");
}

/* As many nodes, inputs and registers as a step has at most. */
static void limits(void **state)
{
    (void)state;
    char text[4096];
    size_t n = (size_t)snprintf(text, sizeof text, HEAD);
    for (int i = 0; i < 11; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "%s{\"name\":\"n%d\",\"op\":\"map\",\"inputs\":[\"%s%d\"],\"outputs\":[\"n%d\"],"
                              "\"parameters\":{\"op\":\"%s\"}}",
                              i ? "," : "", i, i ? "n" : "x\",\"y", i ? i - 1 : 0, i, i ? "neg" : "sub");
    char *const first = strstr(text, "y0"); /* the first node's second input */
    memmove(first + 1, first + 2, strlen(first + 2) + 1);
    snprintf(text + strlen(text), sizeof text - strlen(text), "],\"outputs\":[{\"name\":\"n10\"}]}");
    check_steps(text, "n0,n1,n2,n3,n4,n5,n6,n7 n8,n9,n10");
    n = (size_t)snprintf(text, sizeof text, "{\"format\":1,\"inputs\":[");
    for (int i = 0; i < 6; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s{\"name\":\"i%d\",\"datatype\":\"FP32\",\"shape\":[-1,6]}",
                              i ? "," : "", i);
    n += (size_t)snprintf(text + n, sizeof text - n, "],\"nodes\":[");
    for (int i = 1; i < 6; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "%s{\"name\":\"s%d\",\"op\":\"map\",\"inputs\":[\"%s%d\",\"i%d\"],\"outputs\":[\"s%d\"],"
                              "\"parameters\":{\"op\":\"sub\"}}",
                              i > 1 ? "," : "", i, i > 1 ? "s" : "i", i - 1, i, i);
    snprintf(text + n, sizeof text - n, "],\"outputs\":[{\"name\":\"s5\"}]}");
    check_steps(text, "s1,s2,s3 s4,s5");
}

/* Which datatypes a pass takes is the backend's. */
static void datatypes_are_the_backends(void **state)
{
    (void)state;
    static const ks_chain_means none = {.alignment = KS_ALIGNMENT},
                                floats = {.alignment = KS_ALIGNMENT, .maps = KS_DTYPE_BIT(KS_FP32)};
    ks_definition *definition =
        infer_definition(HEAD MAP("exp", X, "a") "," MAP("neg", A, "b") "," MAP("lt", AND(B, X), "c") "," NODE(
            "map", AND(C, AND(B, X)), "d", "\"op\":\"where\"") "],\"outputs\":[{\"name\":\"d\"}]}");
    static const ks_chain_means *const means[] = {&none, NULL, &floats, &ks_cpu_chain_means};
    static const int steps[] = {4, 4, 3, 1};
    for (int i = 0; i < 4; i++) {
        ks_spec spec;
        ks_program *program = program_of(definition, 2, means[i], &spec);
        assert_int_equal(program->count, steps[i]);
        ks_program_free(&program);
    }
    ks_definition_free(&definition);
}

/* --- at random ---------------------------------------------------------------------------------------------------------- */

static int columns[DRAWN_VALUES];
static bool half[DRAWN_VALUES];

/* One of the last values, mostly. */
static int draw_value(const drawn *d)
{
    const int back = below(4) ? below(4) : below(d->values);
    return back < d->values ? d->values - 1 - back : 0;
}

static void draw_node(drawn *d)
{
    static const char *const one[] = {"exp", "tanh", "neg", "sigmoid", "relu", "square", "abs", "gelu"};
    static const char *const two[] = {"sub", "min", "max", "sub"};
    const int v = d->values, a = draw_value(d), b = draw_value(d);
    const bool same = half[a] == half[b] && (columns[a] == columns[b] || columns[a] == 1 || columns[b] == 1);
    const int kind = below(8);
    char inputs[32], parameters[64];
    const char *op = "map";
    columns[v] = columns[a];
    half[v] = half[a];
    snprintf(inputs, sizeof inputs, "\"v%d\"", a);
    if (kind < 3 && same) {
        snprintf(inputs, sizeof inputs, "\"v%d\",\"v%d\"", a, b);
        snprintf(parameters, sizeof parameters, "\"op\":\"%s\"", two[below(4)]);
        if (columns[b] > columns[a]) columns[v] = columns[b];
    } else if (kind == 3) {
        half[v] = !half[a];
        snprintf(parameters, sizeof parameters, "\"op\":\"neg\",\"out_datatype\":\"%s\"", half[v] ? "FP16" : "FP32");
    } else if (kind == 4 && below(3) == 0) {
        op = "reduce";
        columns[v] = 1;
        snprintf(parameters, sizeof parameters, "\"op\":\"max\",\"axis\":-1,\"keepdims\":true");
    } else if (kind == 5) {
        snprintf(parameters, sizeof parameters, "\"op\":\"clamp\",\"a\":-%d,\"b\":%d", 1 + below(2), 1 + below(3));
    } else {
        snprintf(parameters, sizeof parameters, "\"op\":\"%s\"", one[below(8)]);
    }
    drawn_node(d, op, inputs, parameters);
}

static int output(const drawn *d, int i)
{
    return i == 0 ? d->values - 1 : i == 1 ? d->values - 2 - below(6) : -1;
}

static int steps_saved(const ks_program *program)
{
    assert_true(chain_is_exact(program)); /* neither sums behind products nor casts are drawn, which fuse.c has */
    return DRAWN_NODES - program->count;
}

static void passes_change_no_bit(void **state)
{
    (void)state;
    const drawn_test test = {
        .seed = 815, .chains = 600, .batch = 2, .shapes = {"-1,1", "-1,7", "-1,1500"}, draw_node, output, steps_saved};
    memcpy(columns, (const int[]){1, 7, 1500}, DRAWN_INPUTS * sizeof *columns);
    assert_true(run_drawn(&test) > test.chains * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_one_step), cmocka_unit_test(what_is_not),
                                       cmocka_unit_test(limits), cmocka_unit_test(datatypes_are_the_backends),
                                       cmocka_unit_test(passes_change_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
