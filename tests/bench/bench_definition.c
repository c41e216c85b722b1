/* What a model's definition costs as it grows: reading it, its shapes, a request's shapes, the program of a plan, and their memory.
 *
 *   build/tests/bench_definition [NODES...]        64 256 1024 by preset
 *
 * Kinds    line: maps one behind the other; wide: half of the nodes read the input, the others add up in pairs; layers: a transformer's, 18 nodes each;
 *          stack: each concat has the one in front of it and a map; random: fma of any three values in front.
 * Units    us, the least of several runs; KiB. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu/chain/chain.h"
#include "models/definition.h"

enum { TEXT_MAX = 1 << 20, RUNS = 7 };

typedef struct document {
    char text[TEXT_MAX];
    size_t length;
    int nodes;
} document;

static __attribute__((format(printf, 2, 3))) void put(document *d, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    d->length += (size_t)vsnprintf(d->text + d->length, TEXT_MAX - d->length, format, arguments);
    va_end(arguments);
}

/* A node that makes vI, I being its place. inputs: as JSON has them. */
static int node(document *d, const char *op, const char *parameters, const char *inputs)
{
    put(d,
        "%s{\"name\":\"node_%d\",\"op\":\"%s\",\"inputs\":[%s],\"outputs\":[\"v%d\"],"
        "\"parameters\":{%s}}",
        d->nodes ? "," : "", d->nodes, op, inputs, d->nodes, parameters);
    return d->nodes++;
}

static char *values(const char *format, ...)
{
    static char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

static void begin(document *d, const char *initializers)
{
    d->length = 0;
    d->nodes = 0;
    put(d,
        "{\"format\":1,\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,16,8]}],%s"
        "\"nodes\":[",
        initializers);
}

static void end(document *d)
{
    put(d, "],\"outputs\":[{\"name\":\"v%d\"}]}", d->nodes - 1);
}

static void write_line(document *d, int nodes)
{
    begin(d, "");
    node(d, "map", "\"op\":\"tanh\"", "\"x\"");
    while (d->nodes < nodes)
        node(d, "map", d->nodes % 2 ? "\"op\":\"neg\"" : "\"op\":\"tanh\"", values("\"v%d\"", d->nodes - 1));
    end(d);
}

static void write_wide(document *d, int nodes)
{
    begin(d, "");
    const int leaves = nodes / 2 + 1;
    while (d->nodes < leaves) node(d, "softmax", "", "\"x\"");
    for (int i = 0; d->nodes < nodes; i += 2) node(d, "map", "\"op\":\"add\"", values("\"v%d\",\"v%d\"", i, i + 1));
    end(d);
}

/* Heads of four elements, two of them. */
static void write_layer(document *d, int layer, int x)
{
    char from[16];
    snprintf(from, sizeof from, x < 0 ? "x" : "v%d", x);
    int h = node(d, "norm", "\"kind\":\"rms\"", values("\"%s\",\"g%d\"", from, layer)), head[3];
    for (int i = 0; i < 3; i++) {
        int v = node(d, "matmul", "", values("\"v%d\",\"%c%d\"", h, "qkw"[i], layer));
        v = node(d, "reshape", "\"shape\":[0,0,2,4]", values("\"v%d\"", v));
        head[i] = node(d, "transpose", "\"perm\":[0,2,1,3]", values("\"v%d\"", v));
    }
    h = node(d, "attention", "", values("\"v%d\",\"v%d\",\"v%d\"", head[0], head[1], head[2]));
    h = node(d, "transpose", "\"perm\":[0,2,1,3]", values("\"v%d\"", h));
    h = node(d, "reshape", "\"shape\":[0,0,8]", values("\"v%d\"", h));
    h = node(d, "matmul", "", values("\"v%d\",\"o%d\"", h, layer));
    h = x = node(d, "map", "\"op\":\"add\"", values("\"v%d\",\"%s\"", h, from));
    h = node(d, "matmul", "", values("\"v%d\",\"u%d\"", h, layer));
    h = node(d, "map", "\"op\":\"silu\"", values("\"v%d\"", h));
    node(d, "map", "\"op\":\"add\"", values("\"v%d\",\"v%d\"", h, x));
}

static void write_layers(document *d, int nodes)
{
    static char initializers[TEXT_MAX / 2];
    size_t n = (size_t)sprintf(initializers, "\"initializers\":[");
    for (int layer = 0; layer < nodes / 18; layer++)
        for (const char *name = "gqkwou"; *name; name++) {
            n += (size_t)sprintf(initializers + n,
                                 "%s{\"name\":\"%c%d\",\"datatype\":\"FP32\",\"shape\":[%s8],\"data\":[",
                                 layer || *name != 'g' ? "," : "", *name, layer, *name == 'g' ? "" : "8,");
            for (int i = 0; i < (*name == 'g' ? 8 : 64); i++)
                n += (size_t)sprintf(initializers + n, i ? ",%d" : "%d", (i * 7 + layer) % 3);
            n += (size_t)sprintf(initializers + n, "]}");
        }
    sprintf(initializers + n, "],");
    begin(d, initializers);
    for (int layer = 0; layer < nodes / 18; layer++) write_layer(d, layer, d->nodes - 1);
    end(d);
}

static void write_stack(document *d, int nodes)
{
    begin(d, "");
    int whole = node(d, "softmax", "", "\"x\"");
    while (d->nodes + 2 <= nodes) {
        const int part = node(d, "softmax", "", "\"x\"");
        whole = node(d, "concat", "\"axis\":0", values("\"v%d\",\"v%d\"", whole, part));
    }
    end(d);
}

static void write_random(document *d, int nodes)
{
    uint32_t seed = 7;
    begin(d, "");
    for (int i = 0; i < 3; i++) node(d, "softmax", "", "\"x\"");
    while (d->nodes < nodes) {
        int from[3];
        for (int i = 0; i < 3; i++) from[i] = (int)(((seed = seed * 1664525u + 1013904223u) >> 8) % (unsigned)d->nodes);
        node(d, "map", "\"op\":\"fma\"", values("\"v%d\",\"v%d\",\"v%d\"", from[0], from[1], from[2]));
    }
    end(d);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void check(ks_status status, const ks_error *error)
{
    if (status == KS_OK) return;
    fprintf(stderr, "%s\n", error->text);
    exit(1);
}

typedef struct times {
    int64_t read, infer, resolve, program;
    int steps;
    size_t program_bytes, arena_bytes;
} times;

static void least(int64_t *of, int64_t since)
{
    const int64_t ns = now_ns() - since;
    if (*of == 0 || ns < *of) *of = ns;
}

static void run(const document *d, times *t)
{
    ks_definition *definition = NULL;
    ks_program *program = NULL;
    ks_error error = {0};
    ks_spec spec;
    int64_t since = now_ns();
    check(ks_definition_read("measured", d->text, d->length, &definition, &error), &error);
    least(&t->read, since);
    for (int i = 0; i < definition->initializers; i++) {
        ks_tensor tensor = definition->initializer[i].tensor;
        tensor.fixed = definition->initializer[i].data;
        ks_definition_bind(definition, i, &tensor);
    }
    since = now_ns();
    check(ks_definition_infer(definition, &error), &error);
    least(&t->infer, since);
    check(ks_definition_sample(definition, 2, &spec, &error), &error);
    since = now_ns();
    check(spec.op->resolve(&spec, &error), &error);
    least(&t->resolve, since);
    since = now_ns();
    check(ks_program_make(&spec, &ks_cpu_chain_means, &program, &error), &error);
    least(&t->program, since);
    t->steps = program->count;
    t->program_bytes = ks_program_bytes(program);
    t->arena_bytes = program->arena_bytes;
    ks_program_free(&program);
    ks_definition_free(&definition);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*write)(document *, int);
    } kinds[] = {{"line", write_line},
                 {"wide", write_wide},
                 {"layers", write_layers},
                 {"stack", write_stack},
                 {"random", write_random}};
    static const char *const preset[] = {"64", "256", "1024"};
    static document d;
    const int counts = argc > 1 ? argc - 1 : 3;
    printf("%-8s %6s %6s %10s %10s %10s %10s %12s %12s\n", "kind", "nodes", "steps", "read us", "infer us",
           "resolve us", "program us", "program KiB", "arena KiB");
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int i = 0; i < counts; i++) {
            times t = {0};
            kinds[k].write(&d, atoi(argc > 1 ? argv[i + 1] : preset[i]));
            for (int r = 0; r < RUNS; r++) run(&d, &t);
            printf("%-8s %6d %6d %10.1f %10.1f %10.1f %10.1f %12.1f %12.1f\n", kinds[k].name, d.nodes, t.steps,
                   (double)t.read / 1e3, (double)t.infer / 1e3, (double)t.resolve / 1e3, (double)t.program / 1e3,
                   (double)t.program_bytes / 1024, (double)t.arena_bytes / 1024);
        }
    return 0;
}
