/* The op of several of map's functions: how they lie among a spec's parameters, two for each, and its rules. */
#include "ops/map/maps.h"

#include <assert.h>
#include <string.h>

enum { PARAMS_EACH = KS_PARAMS_MAX / KS_MAPS_MAX, NONE = 0xFF };

/* As the bits of parameters have it: the first one's are this and a, the second one's b and the registers. */
typedef struct packed {
    uint8_t function, math, operands, truth, dtype, out, to, used;
} packed;
_Static_assert(sizeof(packed) == sizeof(uint64_t), "a function's marks are one word");
_Static_assert(PARAMS_EACH == 2, "a function has four words");

void ks_maps_write(const ks_maps_function *functions, int count, ks_value params[KS_PARAMS_MAX])
{
    assert(count >= 1 && count <= KS_MAPS_MAX);
    memset(params, 0, KS_PARAMS_MAX * sizeof params[0]);
    for (int i = 0; i < count; i++) {
        const ks_maps_function *f = &functions[i];
        const ks_map_work *w = &f->work;
        const packed marks = {.function = (uint8_t)w->function,
                              .math = (uint8_t)w->math,
                              .operands = (uint8_t)w->operands,
                              .truth = w->truth,
                              .dtype = (uint8_t)w->dtype,
                              .out = (uint8_t)w->out,
                              .to = (uint8_t)f->to,
                              .used = 1};
        uint64_t *first = params[2 * i].bits, *second = params[2 * i + 1].bits;
        memcpy(&first[0], &marks, sizeof marks);
        memcpy(&first[1], &w->a, sizeof w->a);
        memcpy(&second[0], &w->b, sizeof w->b);
        for (int k = 0; k < KS_MAP_OPERANDS; k++) second[1] |= (uint64_t)(uint8_t)f->from[k] << 8 * k;
    }
}

static packed marks_of(const ks_spec *spec, int index)
{
    packed marks;
    memcpy(&marks, &spec->params[2 * index].bits[0], sizeof marks);
    return marks;
}

int ks_maps_count(const ks_spec *spec)
{
    int count = 0;
    while (count < KS_MAPS_MAX && marks_of(spec, count).used) count++;
    return count;
}

ks_maps_function ks_maps_read(const ks_spec *spec, int index)
{
    const packed marks = marks_of(spec, index);
    const uint64_t *first = spec->params[2 * index].bits, *second = spec->params[2 * index + 1].bits;
    ks_maps_function f = {.work = {.function = (ks_map_function)marks.function,
                                   .math = (ks_map_math)marks.math,
                                   .operands = marks.operands,
                                   .dtype = (ks_dtype)marks.dtype,
                                   .out = (ks_dtype)marks.out,
                                   .truth = marks.truth != 0},
                          .to = marks.to};
    memcpy(&f.work.a, &first[1], sizeof f.work.a);
    memcpy(&f.work.b, &second[0], sizeof f.work.b);
    for (int k = 0; k < KS_MAP_OPERANDS; k++) {
        const int from = (int)(second[1] >> 8 * k & NONE);
        f.from[k] = from == NONE ? -1 : from;
        f.work.input[k] = f.from[k];
    }
    return f;
}

/* --- registers -------------------------------------------------------------------------------------------------------- */

static bool is_read_from(const ks_maps_function *functions, int count, int first, int value)
{
    for (int i = first; i < count; i++)
        for (int k = 0; k < KS_MAP_OPERANDS; k++)
            if (functions[i].from[k] == value) return true;
    return false;
}

bool ks_maps_assign(ks_maps_function *functions, int count, int inputs)
{
    int reg[KS_MAPS_INPUTS + KS_MAPS_MAX], holds[KS_MAPS_REGISTERS]; /* values; -1: it is free */
    ks_maps_function was[KS_MAPS_MAX];
    memcpy(was, functions, (size_t)count * sizeof *functions);
    for (int r = 0; r < KS_MAPS_REGISTERS; r++) holds[r] = r < inputs ? r : -1;
    for (int i = 0; i < inputs; i++) reg[i] = i;
    for (int i = 0; i < count; i++) {
        int to = 0;
        while (to < KS_MAPS_REGISTERS && holds[to] >= 0 && is_read_from(was, count, i, holds[to])) to++;
        if (to == KS_MAPS_REGISTERS) return false;
        for (int k = 0; k < KS_MAP_OPERANDS; k++) functions[i].from[k] = was[i].from[k] < 0 ? -1 : reg[was[i].from[k]];
        functions[i].to = reg[inputs + i] = to;
        holds[to] = inputs + i;
    }
    return true;
}

/* --- the rules ---------------------------------------------------------------------------------------------------------- */

/* ks_resolve_fn */
static ks_status maps_resolve(ks_spec *spec, ks_error *error)
{
    const int count = ks_maps_count(spec);
    ks_tensor out = {.dtype = ks_maps_read(spec, count - 1).work.out};
    double flops = 0;
    ks_status status = ks_map_broadcast(spec, &out, error);
    if (status == KS_OK) status = ks_tensor_measure(&out, ks_output_name(0), error);
    if (status != KS_OK) return status;
    for (int i = 0; i < count; i++) flops += ks_map_flops(ks_maps_read(spec, i).work.function);
    spec->out[0] = out;
    spec->outputs = 1;
    spec->flops = (double)ks_tensor_count(&out) * flops;
    return KS_OK;
}

ks_map_shape ks_maps_shape_of(const ks_spec *spec)
{
    const ks_tensor *in[KS_MAP_SHAPE_OPERANDS] = {NULL};
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) in[i] = &spec->in[i];
    return ks_map_shape_for(&spec->out[0], in);
}

enum { ALL = KS_DTYPE_BIT(KS_BYTES) - 1 };
#define INPUT(number)                                                                                                  \
    {                                                                                                                  \
        .name = "INPUT" #number, .role = "operand", .dtypes = ALL, .rank_max = KS_RANK_MAX, .optional = number > 0     \
    }

const ks_op ks_op_maps = {
    .name = "maps",
    .inputs_count = KS_MAPS_INPUTS,
    .inputs = {INPUT(0), INPUT(1), INPUT(2), INPUT(3)},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_PARAMS_MAX,
    .resolve = maps_resolve,
};
