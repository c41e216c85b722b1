/* A chain with shapes: its steps, and where each finds its tensors.
 *
 * Arena    a value that is no output lives from the step that makes it to the last that reads it. The largest one is placed first, at the
 *          lowest offset that is free over its life.
 * Owner    the program is one allocation; what it is made with goes before ks_program_make returns. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ops/chain/chain.h"

enum {
    LIVES_MAX = KS_CHAIN_NODES_MAX * KS_OP_OUTPUTS_MAX,
    TO_THE_END =
        KS_CHAIN_NODES_MAX + KS_OUTPUTS_MAX /* of steps: values that decide are read when a launch has refused them */
};

/* Memory that a step writes. */
typedef struct life {
    size_t bytes, offset;
    int first, last; /* steps; last: that reads it */
    int output;      /* of the chain, whose memory it is; -1: the arena's */
} life;

typedef struct maker {
    const ks_chain *chain;
    const ks_spec *whole;
    ks_program *program;
    ks_tensor made[KS_CHAIN_MADE_MAX];
    bool known[KS_CHAIN_MADE_MAX];  /* made has it */
    bool fused[KS_CHAIN_NODES_MAX]; /* a step in front does that node */
    int base[KS_CHAIN_MADE_MAX]; /* the value whose memory it lies in: an input, a constant, or one that has a life */
    int life_of[KS_CHAIN_MADE_MAX]; /* of a value that is its own base */
    int lives;
    life life[LIVES_MAX];
    int placed; /* those of order[] that have an offset, by offset */
    int order[LIVES_MAX];
} maker;

/* --- steps ------------------------------------------------------------------------------------------------------------ */

static int base_of(const maker *m, int value)
{
    const int made = ks_chain_made(m->chain, value);
    return made < 0 ? value : m->base[made];
}

/* Where the value lies, for a step that reads it. In the arena: the number of its life, until that has an offset. */
static ks_step_place read_place(maker *m, int value, int step)
{
    const int base = base_of(m, value), constant = ks_chain_constant(m->chain, base);
    if (base < m->chain->op.inputs_count) return (ks_step_place){.kind = KS_PLACE_INPUT, .which = base};
    if (constant >= 0) return (ks_step_place){.kind = KS_PLACE_FIXED, .fixed = m->chain->constant[constant].fixed};
    const int number = m->life_of[ks_chain_made(m->chain, base)];
    if (m->life[number].last < step) m->life[number].last = step;
    return (ks_step_place){.kind = KS_PLACE_ARENA, .which = number};
}

static ks_step_place new_life(maker *m, size_t bytes, int step)
{
    assert(m->lives < LIVES_MAX);
    m->life[m->lives] = (life){.bytes = bytes, .first = step, .last = step, .output = -1};
    return (ks_step_place){.kind = KS_PLACE_ARENA, .which = m->lives++};
}

static void add_view(maker *m, const ks_chain_node *node)
{
    m->base[ks_chain_made(m->chain, node->out[0])] = base_of(m, node->in[0]);
}

static void set_made(maker *m, int value, const ks_tensor *tensor)
{
    const int made = ks_chain_made(m->chain, value);
    m->made[made] = *tensor;
    m->known[made] = true;
}

static void name_outputs(maker *m, const ks_chain_node *node, const ks_step *step)
{
    for (int i = 0; i < step->spec.outputs; i++) {
        if (node->out[i] < 0) continue;
        const int made = ks_chain_made(m->chain, node->out[i]);
        m->base[made] = node->out[i];
        m->life_of[made] = step->out[i].which;
        set_made(m, node->out[i], &step->spec.out[i]);
    }
}

/* Nodes behind it that the step does, too. */
static void fuse(maker *m, int index, ks_chain_node *node, ks_step *step)
{
    const ks_fusing fusing = {.chain = m->chain, .whole = m->whole, .made = m->made, .known = m->known};
    while (step->nodes < KS_STEP_NODES_MAX) {
        if (node->out[0] >= 0) set_made(m, node->out[0], &step->spec.out[0]);
        const int next = ks_chain_fuse(&fusing, index, node, &step->spec);
        if (next < 0) return;
        step->node[step->nodes++] = (int16_t)next;
        m->fused[next] = true;
        index = next;
    }
}

/* Each output of a step that has batched inputs has their rows: nodes mix none (models/rows.c). */
static void note_rows(const maker *m, const ks_chain_node *node, ks_step *step)
{
    for (int i = ks_next_input(&step->spec, -1); i >= 0; i = ks_next_input(&step->spec, i))
        step->rows_in |= (uint16_t)(m->chain->batched[node->in[i]] << i);
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
    if (node.op->moves_nothing && node.op->moves_nothing(&step->spec)) {
        if (node.out[0] < 0) return KS_OK;
        add_view(m, &node);
        set_made(m, node.out[0], &step->spec.out[0]);
        return KS_OK;
    }
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
    if (m->fused[index]) return KS_OK;
    if (node->op) return add_step(m, index, error);
    add_view(m, node);
    m->known[ks_chain_made(m->chain, node->out[0])] = true;
    return ks_chain_reshape(node, ks_chain_value(m->chain, m->whole, m->made, node->in[0]),
                            &m->made[ks_chain_made(m->chain, node->out[0])], error);
}

/* What an output is becomes its memory; a value that is another output's already, or that no step makes, is copied. */
static void add_output(maker *m, int output)
{
    const int base = base_of(m, m->chain->output[output]), made = ks_chain_made(m->chain, base);
    life *own = made < 0 ? NULL : &m->life[m->life_of[made]];
    const size_t bytes = m->whole->out[output].size_bytes;
    if (own && own->output < 0) {
        own->output = output;
        return;
    }
    if (bytes == 0) return;
    ks_step *step = &m->program->step[m->program->count];
    memset(step, 0, sizeof *step);
    step->spec.in[0].size_bytes = bytes;
    step->rows_in = step->rows_out = m->chain->batched[base];
    step->in[0] = read_place(m, base, m->program->count++);
    step->out[0] = (ks_step_place){.kind = KS_PLACE_OUTPUT, .which = output};
}

/* --- the arena -------------------------------------------------------------------------------------------------------- */

static bool meet(const life *a, const life *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Among those that are placed, by their offsets. */
static void place(maker *m, int number)
{
    life *own = &m->life[number];
    size_t at = 0;
    int where = 0;
    for (int i = 0; i < m->placed; i++) {
        const life *other = &m->life[m->order[i]];
        if (!meet(own, other)) continue;
        if (other->offset >= at && other->offset - at >= own->bytes) break;
        const size_t end = other->offset + ks_align(other->bytes);
        if (end > at) at = end;
    }
    own->offset = at;
    while (where < m->placed && m->life[m->order[where]].offset <= at) where++;
    memmove(&m->order[where + 1], &m->order[where], (size_t)(m->placed - where) * sizeof m->order[0]);
    m->order[where] = number;
    m->placed++;
    if (at + ks_align(own->bytes) > m->program->arena_bytes) m->program->arena_bytes = at + ks_align(own->bytes);
}

static void place_all(maker *m)
{
    bool done[LIVES_MAX] = {false};
    for (;;) {
        int largest = -1;
        for (int i = 0; i < m->lives; i++)
            if (!done[i] && m->life[i].output < 0 && m->life[i].bytes > 0 &&
                (largest < 0 || m->life[i].bytes > m->life[largest].bytes))
                largest = i;
        if (largest < 0) return;
        done[largest] = true;
        place(m, largest);
    }
}

static void settle(const maker *m, ks_step_place *at)
{
    if (at->kind != KS_PLACE_ARENA) return;
    const life *own = &m->life[at->which];
    *at = own->output >= 0 ? (ks_step_place){.kind = KS_PLACE_OUTPUT, .which = own->output}
                           : (ks_step_place){.kind = KS_PLACE_ARENA, .offset = own->offset};
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
    if (status != KS_OK) return status;
    place_all(m);
    settle_all(m);
    return KS_OK;
}

ks_status ks_program_make(const ks_spec *spec, ks_program **out, ks_error *error)
{
    const ks_chain *chain = spec->op->chain;
    const size_t steps =
        (size_t)chain->nodes + (size_t)chain->outputs + 1; /* one that is left out lies behind the others */
    maker *m = calloc(1, sizeof *m);
    ks_program *program = m ? malloc(sizeof *program + steps * sizeof(ks_step)) : NULL;
    if (!program) {
        free(m);
        return ks_fail(error, KS_MEMORY, "no memory for the %d nodes of '%s'", chain->nodes, chain->op.name);
    }
    program->count = 0;
    program->arena_bytes = 0;
    m->chain = chain;
    m->whole = spec;
    m->program = program;
    const ks_status status = make(m, error);
    free(m);
    if (status != KS_OK) {
        free(program);
        return status;
    }
    *out = program;
    return KS_OK;
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
