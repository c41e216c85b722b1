/* A chain with shapes: its steps, and where each finds its tensors.
 *
 * Views    a value that is bytes of another one lies in that one's memory, which lives as long. Values that a concat has one behind the
 *          other are made in their parts of its memory, where no other one has that claim. A view begins on the backend's alignment;
 *          where it would not, there is a step that copies.
 * Arena    a value that is no output lives from the step that makes it to the last that reads it: lives.c.
 * Cost     time and memory grow with the chain's nodes, the arena's time with their square.
 * Owner    the program is one allocation; what it is made with goes before ks_program_make returns. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ops/chain/chain.h"
#include "ops/chain/lives.h"
#include "ops/layout.h"

extern const ks_op ks_op_layout;

enum {
    TO_THE_END =
        KS_CHAIN_NODES_MAX + KS_OUTPUTS_MAX /* of steps: values that decide are read when a launch has refused them */
};

/* What is known of a value that a node makes. */
typedef struct made_value {
    int base;     /* the value whose memory it lies in: an input, a constant, or one that has a life */
    int life;     /* of a value that is its own base */
    size_t shift; /* from where on */
} made_value;

typedef struct maker {
    const ks_chain *chain;
    const ks_spec *whole;
    ks_chain_means means;
    ks_program *program;
    ks_chain_readers readers;
    ks_tensor *made;   /* by what nodes make */
    bool *known;       /* made has it */
    made_value *value; /* likewise */
    bool *fused;       /* by nodes: a step in front does it */
    int lives;
    ks_life *life; /* one for each output that a node can have */
} maker;

/* --- steps ------------------------------------------------------------------------------------------------------------ */

static int base_of(const maker *m, int value)
{
    const int made = ks_chain_made(m->chain, value);
    return made < 0 ? value : m->value[made].base;
}

static size_t shift_of(const maker *m, int value)
{
    const int made = ks_chain_made(m->chain, value);
    return made < 0 ? 0 : m->value[made].shift;
}

/* Where a constant lies, or a view of one; NULL: it is none. */
static const void *fixed_at(const maker *m, int value)
{
    const int constant = ks_chain_constant(m->chain, base_of(m, value));
    const unsigned char *at = constant < 0 ? NULL : m->chain->constant[constant].fixed;
    return at ? at + shift_of(m, value) : NULL;
}

/* Where the value lies, for a step that reads it. In the arena: the number of its life, until that has an offset. */
static ks_step_place read_place(maker *m, int value, int step)
{
    const int base = base_of(m, value);
    const size_t shift = shift_of(m, value);
    if (base < m->chain->op.inputs_count)
        return (ks_step_place){.kind = KS_PLACE_INPUT, .which = base, .offset = shift};
    if (ks_chain_constant(m->chain, base) >= 0)
        return (ks_step_place){.kind = KS_PLACE_FIXED, .fixed = fixed_at(m, value)};
    const int number = m->value[ks_chain_made(m->chain, base)].life;
    if (m->life[number].last < step) m->life[number].last = step;
    return (ks_step_place){.kind = KS_PLACE_ARENA, .which = number, .offset = shift};
}

static ks_step_place new_life(maker *m, size_t bytes, int step)
{
    assert(m->lives < m->chain->nodes * KS_OP_OUTPUTS_MAX);
    m->life[m->lives] = (ks_life){.bytes = bytes, .first = step, .last = step, .output = -1, .whole = -1};
    return (ks_step_place){.kind = KS_PLACE_ARENA, .which = m->lives++};
}

static void set_made(maker *m, int value, const ks_tensor *tensor)
{
    const int made = ks_chain_made(m->chain, value);
    m->made[made] = *tensor;
    m->known[made] = true;
}

/* --- views ------------------------------------------------------------------------------------------------------------- */

/* The value that the node at index makes is so many bytes behind where its input begins. */
static void add_view(maker *m, int index, const ks_tensor *tensor, size_t offset)
{
    const ks_chain_node *node = &m->chain->node[index];
    const int made = ks_chain_made(m->chain, node->out[0]);
    m->value[made].base = base_of(m, node->in[0]);
    m->value[made].shift = shift_of(m, node->in[0]) + offset;
    set_made(m, node->out[0], tensor);
    m->program->view[m->program->views++] = (int16_t)index;
}

static bool is_output(const ks_chain *chain, int value)
{
    for (int i = 0; i < chain->outputs; i++)
        if (chain->output[i] == value) return true;
    return false;
}

/* Where a view is a part alone an output would be copied as it is by a step. */
static bool is_view(const maker *m, const ks_chain_node *node, const ks_spec *spec, size_t *offset)
{
    if (!node->op->is_view || !node->op->is_view(spec, offset)) return false;
    const bool whole = *offset == 0 && spec->out[0].size_bytes == spec->in[0].size_bytes;
    if (whole) return true;
    const size_t at = shift_of(m, node->in[0]) + *offset;
    return at % m->means.alignment == 0 && !is_output(m->chain, node->out[0]);
}

/* The life that a value has all of, and that is no part of another one; -1: there is none. */
static int own_life(const maker *m, int value, size_t bytes)
{
    const int made = ks_chain_made(m->chain, base_of(m, value));
    if (made < 0 || shift_of(m, value) != 0) return -1;
    const int number = m->value[made].life;
    return m->life[number].whole < 0 && m->life[number].bytes == bytes ? number : -1;
}

/* part: the life of each input that has bytes, and of others -1. false: some input cannot be made where the concat has it. */
static bool find_parts(const maker *m, const ks_chain_node *node, const ks_spec *spec, int *part)
{
    size_t at = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; at += spec->in[i].size_bytes, i = ks_next_input(spec, i)) {
        part[i] = -1;
        if (spec->in[i].size_bytes == 0) continue;
        part[i] = own_life(m, node->in[i], spec->in[i].size_bytes);
        if (part[i] < 0 || at % m->means.alignment != 0) return false;
        for (int other = 0; other < i; other++)
            if (ks_has_input(spec, other) && part[other] == part[i]) return false; /* it would be there twice */
    }
    return at > 0;
}

/* Inputs one behind the other: each is made in its part of the output's memory, which lives as long as any. */
static bool add_stack(maker *m, int index, const ks_spec *spec)
{
    const ks_chain_node *node = &m->chain->node[index];
    int part[KS_OP_INPUTS_MAX];
    size_t at = 0;
    if (node->op != &ks_op_layout || node->out[0] < 0 || !ks_layout_is_stack(spec) || !find_parts(m, node, spec, part))
        return false;
    const int made = ks_chain_made(m->chain, node->out[0]), number = m->lives;
    new_life(m, spec->out[0].size_bytes, m->program->count);
    for (int i = ks_next_input(spec, -1); i >= 0; at += spec->in[i].size_bytes, i = ks_next_input(spec, i)) {
        if (part[i] < 0) continue;
        m->life[part[i]].whole = number;
        m->life[part[i]].offset = at;
        if (m->life[part[i]].first < m->life[number].first) m->life[number].first = m->life[part[i]].first;
    }
    m->value[made] = (made_value){.base = node->out[0], .life = number};
    set_made(m, node->out[0], &spec->out[0]);
    m->program->view[m->program->views++] = (int16_t)index;
    return true;
}

/* --- steps that run ------------------------------------------------------------------------------------------------------ */

static void name_outputs(maker *m, const ks_chain_node *node, const ks_step *step)
{
    for (int i = 0; i < step->spec.outputs; i++) {
        if (node->out[i] < 0) continue;
        const int made = ks_chain_made(m->chain, node->out[i]);
        m->value[made] = (made_value){.base = node->out[i], .life = step->out[i].which};
        set_made(m, node->out[i], &step->spec.out[i]);
    }
}

/* Nodes behind it that the step does, too. */
static void fuse(maker *m, int index, ks_chain_node *node, ks_step *step)
{
    const ks_fusing fusing = {.chain = m->chain,
                              .whole = m->whole,
                              .readers = &m->readers,
                              .made = m->made,
                              .known = m->known,
                              .residuals = m->means.residuals};
    while (step->nodes < KS_STEP_NODES_MAX) {
        if (node->out[0] >= 0) set_made(m, node->out[0], &step->spec.out[0]);
        const int next = ks_chain_fuse(&fusing, index, node, &step->spec);
        if (next < 0) break;
        step->node[step->nodes++] = (int16_t)next;
        m->fused[next] = true;
        index = next;
    }
    ks_chain_known own = {.made = m->made, .known = m->known};
    (void)ks_chain_maps(&fusing, &own, m->fused, m->means.maps, node, step);
}

/* Each output of a step that has batched inputs has their rows: nodes mix none (models/rows.c). */
static void note_rows(const maker *m, const ks_chain_node *node, ks_step *step)
{
    for (int i = 0; i < KS_OP_INPUTS_MAX; i++)
        if (ks_has_input(&step->spec, i)) step->rows_in |= (uint16_t)(m->chain->batched[node->in[i]] << i);
    if (step->rows_in) step->rows_out = (uint16_t)((1u << step->spec.outputs) - 1);
}

static ks_status add_step(maker *m, int index, ks_error *error)
{
    ks_chain_node node = m->chain->node[index];
    const int number = m->program->count;
    ks_step *step = &m->program->step[number];
    memset(step, 0, sizeof *step);
    step->node[step->nodes++] = (int16_t)index;
    ks_chain_node_spec(m->chain, m->whole, &node, m->made, &step->spec);
    const ks_status status = ks_chain_resolve_node(&node, &step->spec, error);
    if (status != KS_OK) return status;
    size_t offset;
    if (is_view(m, &node, &step->spec, &offset)) {
        if (node.out[0] >= 0) add_view(m, index, &step->spec.out[0], offset);
        return KS_OK;
    }
    if (add_stack(m, index, &step->spec)) return KS_OK;
    fuse(m, index, &node, step);
    note_rows(m, &node, step);
    for (int i = ks_next_input(&step->spec, -1); i >= 0; i = ks_next_input(&step->spec, i))
        step->in[i] = read_place(m, node.in[i], node.op->decides >> i & 1 ? TO_THE_END : number);
    for (int i = 0; i < step->spec.outputs; i++) step->out[i] = new_life(m, step->spec.out[i].size_bytes, number);
    name_outputs(m, &node, step);
    if (ks_spec_written_bytes(&step->spec) > 0) m->program->count++;
    return KS_OK;
}

/* The shape of a view, which takes no step; the chain has resolved already. */
static ks_status add_node(maker *m, int index, ks_error *error)
{
    const ks_chain_node *node = &m->chain->node[index];
    ks_tensor tensor;
    if (m->fused[index]) return KS_OK;
    if (node->op) return add_step(m, index, error);
    const ks_tensor *in = ks_chain_value(m->chain, m->whole, m->made, node->in[0]);
    const ks_status status = ks_chain_reshape(node, in, &tensor, error);
    if (status == KS_OK) add_view(m, index, &tensor, 0);
    return status;
}

/* What an output is becomes its memory; a value that is another output's already, a part of one, or that no step makes, is copied. */
static void add_output(maker *m, int output)
{
    const int value = m->chain->output[output];
    const size_t bytes = m->whole->out[output].size_bytes;
    const int own = own_life(m, value, bytes);
    if (own >= 0 && m->life[own].output < 0) {
        m->life[own].output = output;
        return;
    }
    if (bytes == 0) return;
    ks_step *step = &m->program->step[m->program->count];
    memset(step, 0, sizeof *step);
    step->spec.in[0].size_bytes = bytes;
    step->rows_in = step->rows_out = m->chain->batched[value];
    step->in[0] = read_place(m, value, m->program->count++);
    step->out[0] = (ks_step_place){.kind = KS_PLACE_OUTPUT, .which = output};
}

/* --- the arena -------------------------------------------------------------------------------------------------------- */

static void settle(const maker *m, ks_step_place *at)
{
    if (at->kind != KS_PLACE_ARENA) return;
    const ks_life *own = &m->life[at->which];
    for (; own->whole >= 0; own = &m->life[own->whole]) at->offset += own->offset;
    if (own->output >= 0)
        *at = (ks_step_place){.kind = KS_PLACE_OUTPUT, .which = own->output, .offset = at->offset};
    else
        *at = (ks_step_place){.kind = KS_PLACE_ARENA, .offset = at->offset + own->offset};
}

static void settle_all(maker *m)
{
    for (int s = 0; s < m->program->count; s++) {
        ks_step *step = &m->program->step[s];
        for (int i = 0; i < KS_OP_INPUTS_MAX; i++) settle(m, &step->in[i]);
        for (int i = 0; i < KS_OP_OUTPUTS_MAX; i++) settle(m, &step->out[i]);
    }
}

/* --- programs --------------------------------------------------------------------------------------------------------- */

static ks_status make(maker *m, ks_error *error)
{
    ks_status status = KS_OK;
    for (int i = 0; i < m->chain->nodes && status == KS_OK; i++) status = add_node(m, i, error);
    for (int i = 0; i < m->chain->outputs && status == KS_OK; i++) add_output(m, i);
    if (status == KS_OK) status = ks_lives_place(m->life, m->lives, &m->program->arena_bytes, error);
    if (status == KS_OK) settle_all(m);
    return status;
}

static bool take_memory(maker *m)
{
    const size_t nodes = (size_t)m->chain->nodes, made = (size_t)m->chain->made + 1;
    m->made = malloc(made * sizeof *m->made);
    m->known = calloc(made, sizeof *m->known);
    m->value = malloc(made * sizeof *m->value);
    m->fused = calloc(nodes, sizeof *m->fused);
    m->life = malloc(nodes * KS_OP_OUTPUTS_MAX * sizeof *m->life);
    return m->made && m->known && m->value && m->fused && m->life;
}

static void give_memory(maker *m)
{
    ks_chain_readers_fini(&m->readers);
    free(m->made);
    free(m->known);
    free(m->value);
    free(m->fused);
    free(m->life);
}

/* What it has no use for goes: nodes that are in other nodes' steps have none of their own. */
static ks_program *cut(ks_program *program)
{
    ks_program *smaller = realloc(program, ks_program_bytes(program));
    return smaller ? smaller : program;
}

ks_status ks_program_make(const ks_spec *spec, const ks_chain_means *means, ks_program **out, ks_error *error)
{
    const ks_chain *chain = spec->op->chain;
    const size_t steps =
        (size_t)chain->nodes + (size_t)chain->outputs + 1; /* one that is left out lies behind the others */
    maker m = {.chain = chain,
               .whole = spec,
               .means = means ? *means : (ks_chain_means){.alignment = KS_ALIGNMENT},
               .program = malloc(sizeof *m.program + steps * sizeof(ks_step))};
    ks_status status = KS_MEMORY;
    if (take_memory(&m) && m.program) {
        m.program->count = 0;
        m.program->arena_bytes = 0;
        m.program->views = 0;
        status = ks_chain_readers_init(chain, &m.readers, error);
        if (status == KS_OK) status = make(&m, error);
    } else {
        ks_fail(error, status, "no memory for the %d nodes of '%s'", chain->nodes, chain->op.name);
    }
    give_memory(&m);
    if (status == KS_OK)
        *out = cut(m.program);
    else
        free(m.program);
    return status;
}

void ks_program_free(ks_program **program)
{
    free(*program);
    *program = NULL;
}

const ks_step *ks_program_step(const ks_program *program, int node)
{
    for (int i = 0; i < program->count; i++)
        if (program->step[i].nodes > 0 && program->step[i].node[0] == node) return &program->step[i];
    return NULL;
}

const char *ks_step_name(const ks_chain *chain, const ks_step *step)
{
    return step->nodes > 0 ? chain->node[step->node[0]].name : "copy";
}

ks_status ks_program_copy(const ks_program *program, ks_program **out, ks_error *error)
{
    const size_t bytes = ks_program_bytes(program);
    ks_program *copy = malloc(bytes);
    if (!copy) return ks_fail(error, KS_MEMORY, "no memory for a copy of a chain's steps");
    memcpy(copy, program, bytes);
    *out = copy;
    return KS_OK;
}

size_t ks_program_bytes(const ks_program *program)
{
    return sizeof *program + (size_t)program->count * sizeof(ks_step);
}
