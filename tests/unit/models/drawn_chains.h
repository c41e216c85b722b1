/* Definitions read, run and drawn at random: what the tests of views and of maps share. */
#ifndef KS_DRAWN_CHAINS_H
#define KS_DRAWN_CHAINS_H
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

static ks_program *program_of(const ks_definition *definition, int batch, const ks_chain_means *means, ks_spec *spec)
{
    ks_program *program = NULL;
    ks_error error = {0};
    assert_int_equal(ks_definition_sample(definition, batch, spec, &error), KS_OK);
    assert_int_equal(ks_program_make(spec, means, &program, &error), KS_OK);
    return program;
}

static uint32_t seed;

static int below(int bound)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 16) % (uint32_t)bound);
}

enum { DRAWN_INPUTS = 3, DRAWN_NODES = 24, DRAWN_VALUES = DRAWN_INPUTS + DRAWN_NODES };

/* A chain's text as it grows. Values are v0, v1 ...: inputs, then a node's each. What a test knows of a value stands in its own tables. */
typedef struct drawn {
    char text[64 << 10];
    size_t length;
    int values;
} drawn;

static void __attribute__((format(printf, 2, 3))) drawn_say(drawn *d, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    d->length += (size_t)vsnprintf(d->text + d->length, sizeof d->text - d->length, format, arguments);
    va_end(arguments);
    assert_true(d->length < sizeof d->text);
}

/* The next value. inputs: names of values in quotes; parameters: members. */
static void drawn_node(drawn *d, const char *op, const char *inputs, const char *parameters)
{
    drawn_say(d, "%s{\"name\":\"n%d\",\"op\":\"%s\",\"inputs\":[%s],\"outputs\":[\"v%d\"],\"parameters\":{%s}}",
              d->values > DRAWN_INPUTS ? "," : "", d->values, op, inputs, d->values, parameters);
    d->values++;
}

typedef struct drawn_test {
    uint32_t seed;
    int chains, batch;
    const char *shapes[DRAWN_INPUTS];
    void (*draw)(drawn *d);                  /* one node */
    int (*output)(const drawn *d, int i);    /* the value that is output i, -1: there are no more */
    int (*count)(const ks_program *program); /* of what the test is about */
} drawn_test;

/* Draws and runs chains, each of which has to be right; the sum of their counts. */
static int run_drawn(const drawn_test *test)
{
    static drawn d;
    int sum = 0;
    seed = test->seed;
    for (int c = 0; c < test->chains; c++) {
        d = (drawn){0};
        drawn_say(&d, "{\"format\":1,\"inputs\":[");
        for (; d.values < DRAWN_INPUTS; d.values++)
            drawn_say(&d, "%s{\"name\":\"v%d\",\"datatype\":\"FP32\",\"shape\":[%s]}", d.values ? "," : "", d.values,
                      test->shapes[d.values]);
        drawn_say(&d, "],\"nodes\":[");
        for (int i = 0; i < DRAWN_NODES; i++) test->draw(&d);
        drawn_say(&d, "],\"outputs\":[");
        for (int i = 0, v; (v = test->output(&d, i)) >= 0; i++) drawn_say(&d, "%s{\"name\":\"v%d\"}", i ? "," : "", v);
        drawn_say(&d, "]}");
        ks_definition *definition = infer_definition(d.text);
        ks_spec spec;
        ks_program *program = program_of(definition, test->batch, &ks_cpu_chain_means, &spec);
        sum += test->count(program);
        ks_program_free(&program);
        if (!chain_is_right(&spec, fill)) fail_msg("%s", d.text);
        ks_definition_free(&definition);
    }
    return sum;
}
#endif
