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

typedef struct chain_values {
    ks_tensor tensor[KS_INPUTS_MAX + KS_CHAIN_CONSTANTS_MAX + KS_CHAIN_MADE_MAX];
    unsigned char *memory[KS_INPUTS_MAX + KS_CHAIN_CONSTANTS_MAX + KS_CHAIN_MADE_MAX];
} chain_values;

static void *chain_memory(size_t bytes)
{
    unsigned char *memory = aligned_alloc(KS_ALIGNMENT, ks_align(bytes + KS_PAD));
    memset(memory, 0xA5, ks_align(bytes + KS_PAD)); /* NaN of each float */
    return memory;
}

static void chain_run_node(const ks_chain *chain, const ks_chain_node *node, chain_values *values)
{
    const int first = chain->op.inputs_count + chain->constants;
    const void *in[KS_INPUTS_MAX] = {NULL};
    void *out[KS_OUTPUTS_MAX] = {NULL};
    ks_spec spec;
    ks_error error = {0};
    if (!node->op) { /* the bytes of its input, in another shape, which the caller knows */
        const ks_tensor *from = &values->tensor[node->in[0]];
        ks_tensor *to = &values->tensor[node->out[0]];
        values->memory[node->out[0]] = chain_memory(from->size_bytes);
        memcpy(values->memory[node->out[0]], values->memory[node->in[0]], from->size_bytes);
        *to = (ks_tensor){.dtype = from->dtype, .rank = node->rank, .size_bytes = from->size_bytes};
        int64_t known = 1;
        for (int i = 0; i < node->rank; i++) {
            to->dims[i] = node->dims[i] == 0 ? from->dims[i] : node->dims[i];
            if (to->dims[i] > 0) known *= to->dims[i];
        }
        for (int i = 0; i < node->rank; i++)
            if (to->dims[i] < 0) to->dims[i] = ks_tensor_count(from) / known;
        return;
    }
    ks_spec_init(&spec, node->op);
    spec.given = 0;
    ks_params_copy(node->op, spec.params, spec.lists, node->params, node->lists);
    for (int i = 0; i < node->op->inputs_count; i++) {
        if (node->in[i] < 0) continue;
        spec.in[i] = values->tensor[node->in[i]];
        spec.given |= (uint16_t)(1u << i);
        in[i] = values->memory[node->in[i]];
    }
    if (node->op->resolve(&spec, &error) != KS_OK) abort();
    void *scratch = chain_memory(ks_cpu_scratch_bytes(&spec));
    for (int i = 0; i < spec.outputs; i++) out[i] = chain_memory(spec.out[i].size_bytes);
    if (ks_spec_written_bytes(&spec) > 0 && !(ks_onednn_takes(&spec) && ks_onednn_run(&spec, in, out[0])))
        ks_cpu_reference(&spec, in, out, scratch);
    for (int i = 0; i < spec.outputs; i++) {
        const int value = i < KS_OP_OUTPUTS_MAX ? node->out[i] : -1;
        if (value < first) {
            free(out[i]);
            continue;
        }
        values->tensor[value] = spec.out[i];
        values->memory[value] = out[i];
    }
    free(scratch);
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

/* Runs the program of a resolved spec on filled inputs. false: an output differs from that of the nodes one by one; where steps round less
 * often than their nodes shapes are compared alone. */
static bool chain_run_program(const ks_spec *spec, void (*fill)(const ks_tensor *tensor, void *memory, int input))
{
    const ks_chain *chain = spec->op->chain;
    chain_values *values = calloc(1, sizeof *values);
    const void *in[KS_INPUTS_MAX] = {NULL};
    void *out[KS_OUTPUTS_MAX] = {NULL};
    ks_program *program = NULL;
    ks_error error = {0};
    if (ks_program_make(spec, &ks_cpu_chain_means, &program, &error) != KS_OK) abort();
    void *scratch = chain_memory(ks_cpu_chain_prepare(program));
    unsigned char *arena = chain_memory(ks_cpu_chain_arena_bytes(program));
    const int first = chain->op.inputs_count + chain->constants;
    for (int i = 0; i < first; i++) {
        const bool input = i < chain->op.inputs_count;
        values->tensor[i] = input ? spec->in[i] : chain->constant[i - chain->op.inputs_count];
        values->memory[i] = chain_memory(values->tensor[i].size_bytes);
        if (input)
            fill(&values->tensor[i], values->memory[i], i);
        else if (values->tensor[i].size_bytes)
            memcpy(values->memory[i], values->tensor[i].fixed, values->tensor[i].size_bytes);
        if (input) in[i] = values->memory[i];
    }
    for (int i = 0; i < spec->outputs; i++) out[i] = chain_memory(spec->out[i].size_bytes);
    for (int i = 0; i < chain->nodes; i++) chain_run_node(chain, &chain->node[i], values);
    ks_bad_value bad;
    if (!ks_cpu_chain_run(program, in, out, &(ks_cpu_chain_memory){.arena = arena, .scratch = scratch},
                          &(ks_cpu_chain_note){.bad = &bad}))
        abort();
    bool right = true;
    const bool exact = chain_is_exact(program);
    for (int i = 0; i < spec->outputs; i++) {
        const ks_tensor *wanted = &values->tensor[chain->output[i]];
        right = right && wanted->size_bytes == spec->out[i].size_bytes && wanted->rank == spec->out[i].rank &&
                memcmp(wanted->dims, spec->out[i].dims, (size_t)wanted->rank * sizeof wanted->dims[0]) == 0 &&
                (!exact || memcmp(values->memory[chain->output[i]], out[i], wanted->size_bytes) == 0);
    }
    for (int i = 0; i < first + chain->made; i++) free(values->memory[i]);
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
