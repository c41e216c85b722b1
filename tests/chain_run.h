/* A chain run node by node, each value in memory of its own: what a program must give, whatever its arena. For tests. */
#ifndef KS_CHAIN_RUN_H
#define KS_CHAIN_RUN_H
#include <stdlib.h>
#include <string.h>

#include "cpu/chain/chain.h"
#include "cpu/onednn.h"
#include "cpu/reference.h"
#include "kernserve/chain.h"
#include "ops/map/maps.h"

typedef struct chain_value {
    ks_tensor tensor; /* of a value of the chain */
    unsigned char *memory;
} chain_value;

static void *chain_memory(size_t bytes)
{
    unsigned char *memory = aligned_alloc(KS_ALIGNMENT, ks_align(bytes + KS_PAD));
    memset(memory, 0xA5, ks_align(bytes + KS_PAD)); /* NaN of each float */
    return memory;
}

/* false: values that decide are out of their bounds, and it has not run. */
static bool chain_run_node(const ks_chain *chain, const ks_chain_node *node, chain_value *values)
{
    const int first = chain->op.inputs_count + chain->constants;
    const void *in[KS_INPUTS_MAX] = {NULL};
    void *out[KS_OUTPUTS_MAX] = {NULL};
    ks_spec spec;
    ks_error error = {0};
    if (!node->op) { /* the bytes of its input, in another shape, which the caller knows */
        const ks_tensor *from = &values[node->in[0]].tensor;
        ks_tensor *to = &values[node->out[0]].tensor;
        values[node->out[0]].memory = chain_memory(from->size_bytes);
        memcpy(values[node->out[0]].memory, values[node->in[0]].memory, from->size_bytes);
        *to = (ks_tensor){.dtype = from->dtype, .rank = node->rank, .size_bytes = from->size_bytes};
        int64_t known = 1;
        for (int i = 0; i < node->rank; i++) {
            to->dims[i] = node->dims[i] == 0 ? from->dims[i] : node->dims[i];
            if (to->dims[i] > 0) known *= to->dims[i];
        }
        for (int i = 0; i < node->rank; i++)
            if (to->dims[i] < 0) to->dims[i] = ks_tensor_count(from) / known;
        return true;
    }
    ks_spec_init(&spec, node->op);
    spec.given = 0;
    ks_params_copy(node->op, spec.params, spec.lists, node->params, node->lists);
    for (int i = 0; i < node->op->inputs_count; i++) {
        if (node->in[i] < 0) continue;
        spec.in[i] = values[node->in[i]].tensor;
        spec.given |= (uint16_t)(1u << i);
        in[i] = values[node->in[i]].memory;
    }
    if (node->op->resolve(&spec, &error) != KS_OK) abort();
    ks_bad_value bad;
    const bool makes_some = ks_spec_written_bytes(&spec) > 0; /* what makes nothing takes no step */
    if (makes_some && ks_decides(&spec) && spec.op->check(&spec, in, &bad)) return false;
    void *scratch = chain_memory(ks_cpu_scratch_bytes(&spec));
    for (int i = 0; i < spec.outputs; i++) out[i] = chain_memory(spec.out[i].size_bytes);
    if (makes_some && !(ks_onednn_takes(&spec) && ks_onednn_run(&spec, in, out[0])))
        ks_cpu_reference(&spec, in, out, scratch);
    for (int i = 0; i < spec.outputs; i++) {
        const int value = i < KS_OP_OUTPUTS_MAX ? node->out[i] : -1;
        if (value < first) {
            free(out[i]);
            continue;
        }
        values[value].tensor = spec.out[i];
        values[value].memory = out[i];
    }
    free(scratch);
    return true;
}

/* Whether each step has the bits of its nodes: it does one, or maps without any that fuse.c makes one function of. */
static bool chain_is_exact(const ks_program *program)
{
    for (int i = 0; i < program->count; i++) {
        const ks_step *step = &program->step[i];
        if (step->nodes > 1 && (step->spec.op != &ks_op_maps || ks_maps_count(&step->spec) != step->nodes))
            return false;
    }
    return true;
}

/* Runs the program of a resolved spec on filled inputs. false: an output differs from that of the nodes one by one, or another node refuses
 * its values; where steps round less often than their nodes shapes are compared alone. */
static bool chain_run_program(const ks_spec *spec, void (*fill)(const ks_tensor *tensor, void *memory, int input))
{
    const ks_chain *chain = spec->op->chain;
    const void *in[KS_INPUTS_MAX] = {NULL};
    void *out[KS_OUTPUTS_MAX] = {NULL};
    ks_program *program = NULL;
    ks_error error = {0};
    if (ks_program_make(spec, &ks_cpu_chain_means, &program, &error) != KS_OK) abort();
    void *scratch = chain_memory(ks_cpu_chain_prepare(program));
    unsigned char *arena = chain_memory(ks_cpu_chain_arena_bytes(program));
    const int first = chain->op.inputs_count + chain->constants;
    chain_value *values = calloc((size_t)(first + chain->made), sizeof *values);
    for (int i = 0; i < first; i++) {
        const bool input = i < chain->op.inputs_count;
        values[i].tensor = input ? spec->in[i] : chain->constant[i - chain->op.inputs_count];
        values[i].memory = chain_memory(values[i].tensor.size_bytes);
        if (input)
            fill(&values[i].tensor, values[i].memory, i);
        else if (values[i].tensor.size_bytes)
            memcpy(values[i].memory, values[i].tensor.fixed, values[i].tensor.size_bytes);
        if (input) in[i] = values[i].memory;
    }
    for (int i = 0; i < spec->outputs; i++) out[i] = chain_memory(spec->out[i].size_bytes);
    int ran = 0;
    while (ran < chain->nodes && chain_run_node(chain, &chain->node[ran], values)) ran++;
    ks_bad_value bad = {.node = chain->nodes};
    const bool done = ks_cpu_chain_run(program, in, out, &(ks_cpu_chain_memory){.arena = arena, .scratch = scratch},
                                       &(ks_cpu_chain_note){.bad = &bad});
    bool right = done == (ran == chain->nodes) && bad.node == ran;
    const bool exact = chain_is_exact(program);
    for (int i = 0; i < spec->outputs && done; i++) {
        const ks_tensor *wanted = &values[chain->output[i]].tensor;
        right = right && wanted->size_bytes == spec->out[i].size_bytes && wanted->rank == spec->out[i].rank &&
                memcmp(wanted->dims, spec->out[i].dims, (size_t)wanted->rank * sizeof wanted->dims[0]) == 0 &&
                (!exact || memcmp(values[chain->output[i]].memory, out[i], wanted->size_bytes) == 0);
    }
    for (int i = 0; i < first + chain->made; i++) free(values[i].memory);
    for (int i = 0; i < spec->outputs; i++) free(out[i]);
    free(arena);
    free(scratch);
    free(values);
    ks_program_free(&program);
    return right;
}

/* Both ways. */
static bool chain_is_right(const ks_spec *spec, void (*fill)(const ks_tensor *tensor, void *memory, int input))
{
    ks_chain *chain = (ks_chain *)(uintptr_t)spec->op->chain;
    const bool unfused = chain->unfused;
    bool right = true;
    for (int i = 0; i < 2 && right; i++) {
        chain->unfused = i == 0;
        right = chain_run_program(spec, fill);
    }
    chain->unfused = unfused;
    return right;
}
#endif
