/* Maps that one step does in one pass, whose values between them lie nowhere: ops/map/maps.h.
 *
 * Rules    A value that the step does not make is read by its functions alone, and is no output; each other operand is known where the
 *          first node stands, which is where the step runs. All results have one shape, so that nothing is computed more often than before.
 *          Functions are what fuse.c makes of nodes: x y + z is one, rounded once; else bits are those of the nodes.
 * Limits   MISFITS_MAX; KS_MAPS_MAX functions of KS_STEP_NODES_MAX nodes, KS_MAPS_INPUTS tensors; datatypes that the backend takes. */
#include <string.h>

#include "ops/chain/chain.h"
#include "ops/map/maps.h"

extern const ks_op ks_op_map;

/* Readers that do not fit, behind which no other one is tried: a value may have a thousand, at 2 us each, in each step that comes to it. */
enum { MISFITS_MAX = 32 };

/* One function of the step that grows. */
typedef struct element {
    ks_chain_node node; /* as fused */
    ks_tensor out;
    ks_map_work work;
    int unread; /* readers of its value that are not in the step */
    int nodes;  /* of the chain, up to this one's last */
    int inputs; /* of the step, up to this one's */
} element;

typedef struct growing {
    const ks_fusing *f;
    ks_chain_known *own; /* what f looks at */
    uint32_t dtypes;
    element element[KS_MAPS_MAX];
    int count;
    int16_t node[KS_STEP_NODES_MAX];
    int16_t input[KS_MAPS_INPUTS];
    int nodes, inputs;
} growing;

/* --- what a function is -------------------------------------------------------------------------------------------------- */

/* One result has the other one's elements, axis by axis. */
static bool is_shaped_alike(const ks_tensor *a, const ks_tensor *b)
{
    const int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 1; i <= rank; i++) {
        const int64_t x = i <= a->rank ? a->dims[a->rank - i] : 1, y = i <= b->rank ? b->dims[b->rank - i] : 1;
        if (x != y) return false;
    }
    return true;
}

static bool takes_dtypes(const growing *g, const ks_spec *spec)
{
    bool takes = g->dtypes >> spec->out[0].dtype & 1;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        takes = takes && g->dtypes >> spec->in[i].dtype & 1;
    return takes;
}

/* The element that makes the value; -1: none does. */
static int maker_of(const growing *g, int value)
{
    for (int i = 0; i < g->count; i++)
        if (g->element[i].node.out[0] == value) return i;
    return -1;
}

/* An input of the step's, which may be new; false: there are too many. */
static bool take_input(growing *g, int value)
{
    for (int i = 0; i < g->inputs; i++)
        if (g->input[i] == value) return true;
    if (g->inputs == KS_MAPS_INPUTS) return false;
    g->input[g->inputs++] = (int16_t)value;
    return true;
}

/* Values by number, as ks_maps_assign takes them. */
static int number_of(const growing *g, int inputs, int value)
{
    for (int i = 0; i < inputs; i++)
        if (g->input[i] == value) return i;
    return inputs + maker_of(g, value);
}

static void write_functions(const growing *g, int count, ks_maps_function *functions)
{
    const int inputs = g->element[count - 1].inputs;
    for (int i = 0; i < count; i++) {
        const element *e = &g->element[i];
        functions[i].work = e->work;
        for (int k = 0; k < KS_MAP_OPERANDS; k++) {
            const int input = k < e->work.operands ? e->work.input[k] : -1;
            functions[i].from[k] = input < 0 ? -1 : number_of(g, inputs, e->node.in[input]);
        }
    }
}

static bool has_registers(const growing *g)
{
    ks_maps_function functions[KS_MAPS_MAX];
    write_functions(g, g->count, functions);
    return ks_maps_assign(functions, g->count, g->inputs);
}

/* --- growing ------------------------------------------------------------------------------------------------------------- */

static void read_once(growing *g, const ks_chain_node *node)
{
    for (int k = 0; k < KS_MAP_OPERANDS; k++) {
        const int maker = node->in[k] < 0 ? -1 : maker_of(g, node->in[k]);
        if (maker >= 0) g->element[maker].unread--;
    }
}

/* Its value is known to functions behind it from now on. */
static void push(growing *g, const ks_chain_node *node, const ks_spec *spec)
{
    const int made = ks_chain_made(g->f->chain, node->out[0]);
    element *e = &g->element[g->count++];
    *e = (element){.node = *node,
                   .out = spec->out[0],
                   .work = ks_map_work_of(spec),
                   .unread = ks_chain_uses(g->f->readers, node->out[0]),
                   .nodes = g->nodes,
                   .inputs = g->inputs};
    g->own->made[made] = spec->out[0];
    g->own->known[made] = true;
}

/* false: it is none of the step's, which is as it was. */
static bool add(growing *g, const ks_chain_node *node, const ks_spec *spec)
{
    const growing before = {.inputs = g->inputs};
    bool fits = node->op == &ks_op_map && node->out[0] >= 0 && g->count < KS_MAPS_MAX && takes_dtypes(g, spec) &&
                spec->out[0].size_bytes > 0 && (g->count == 0 || is_shaped_alike(&spec->out[0], &g->element[0].out));
    for (int k = 0; k < KS_MAP_OPERANDS && fits; k++)
        if (node->in[k] >= 0 && maker_of(g, node->in[k]) < 0) fits = take_input(g, node->in[k]);
    if (fits) {
        push(g, node, spec);
        fits = has_registers(g);
        if (!fits) g->own->known[ks_chain_made(g->f->chain, g->element[--g->count].node.out[0])] = false;
    }
    if (fits)
        read_once(g, node);
    else
        g->inputs = before.inputs;
    return fits;
}

/* The next node that reads what the step makes; -1: none does. */
static int next_reader(const growing *g, int behind)
{
    int next = -1;
    for (int i = 0; i < g->count; i++) {
        const int n = ks_chain_next_reader(g->f->readers, g->element[i].node.out[0], behind);
        if (n >= 0 && (next < 0 || n < next)) next = n;
    }
    return next;
}

static bool has_node(const growing *g, int index)
{
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i] == index) return true;
    return false;
}

/* Its value's readers are all in the step, but for the last function's. */
static bool is_closed(const growing *g)
{
    for (int i = 0; i + 1 < g->count; i++)
        if (g->element[i].unread > 0) return false;
    return true;
}

static bool is_read_elsewhere(const growing *g)
{
    for (int i = 0; i < g->count; i++)
        if (g->element[i].unread > 0) return true;
    return false;
}

/* With what fuse.c finds behind it. */
static bool add_node(growing *g, int index)
{
    const int nodes = g->nodes;
    ks_chain_node node = g->f->chain->node[index];
    ks_spec spec;
    ks_chain_node_spec(g->f->chain, g->f->whole, &node, g->own->made, &spec);
    if (ks_chain_resolve_node(&node, &spec, NULL) != KS_OK) return false;
    for (int at = index; at >= 0 && g->nodes < KS_STEP_NODES_MAX;) {
        g->node[g->nodes++] = (int16_t)at;
        if (g->nodes == KS_STEP_NODES_MAX || node.out[0] < 0) break;
        const int made = ks_chain_made(g->f->chain, node.out[0]);
        g->own->made[made] = spec.out[0];
        g->own->known[made] = true;
        const int next = ks_chain_fuse(g->f, at, &node, &spec);
        g->own->known[made] = false;
        at = next;
    }
    if (add(g, &node, &spec)) return true;
    g->nodes = nodes;
    return false;
}

/* How many functions, from the first on, are a step; 1: there are no others. */
static int grow(growing *g, int index, const bool *done)
{
    const ks_chain *chain = g->f->chain;
    int best = 1, misfits = 0;
    for (int n = next_reader(g, index);
         n >= 0 && g->nodes < KS_STEP_NODES_MAX && misfits < MISFITS_MAX && is_read_elsewhere(g);
         n = next_reader(g, n)) {
        const ks_chain_node *node = &chain->node[n];
        if (done[n] || node->op != &ks_op_map || has_node(g, n) || !ks_chain_are_known(g->f, node)) continue;
        const bool fits = add_node(g, n);
        misfits += !fits;
        if (fits && is_closed(g)) best = g->count;
    }
    return best;
}

/* --- the step -------------------------------------------------------------------------------------------------------------- */

static bool make_step(const growing *g, int count, ks_chain_node *node, ks_spec *spec)
{
    ks_maps_function functions[KS_MAPS_MAX];
    const element *last = &g->element[count - 1];
    ks_chain_node maps = {.name = node->name, .op = &ks_op_maps, .inputs = last->inputs, .outputs = 1};
    memset(maps.in, -1, sizeof maps.in);
    memset(maps.out, -1, sizeof maps.out);
    memcpy(maps.in, g->input, (size_t)last->inputs * sizeof maps.in[0]);
    maps.out[0] = last->node.out[0];
    write_functions(g, count, functions);
    if (!ks_maps_assign(functions, count, last->inputs)) return false;
    ks_maps_write(functions, count, maps.params);
    ks_chain_node_spec(g->f->chain, g->f->whole, &maps, g->own->made, spec);
    if (ks_chain_resolve_node(&maps, spec, NULL) != KS_OK || spec->out[0].dtype != last->out.dtype ||
        spec->out[0].rank != last->out.rank || !is_shaped_alike(&spec->out[0], &last->out))
        return false;
    *node = maps;
    return true;
}

bool ks_chain_maps(const ks_fusing *f, ks_chain_known *own, bool *done, uint32_t dtypes, ks_chain_node *node,
                   ks_step *step)
{
    growing g = {.f = f, .own = own, .dtypes = dtypes, .nodes = step->nodes};
    if (node->op != &ks_op_map || f->chain->unfused || dtypes == 0) return false;
    memcpy(g.node, step->node, sizeof g.node);
    if (!add(&g, node, &step->spec)) return false;
    const int count = grow(&g, step->node[step->nodes - 1], done);
    for (int i = 0; i < g.count; i++) own->known[ks_chain_made(f->chain, g.element[i].node.out[0])] = false;
    if (count == 1) return false;
    ks_spec spec;
    if (!make_step(&g, count, node, &spec)) return false;
    ks_spec_copy(&step->spec, &spec);
    step->nodes = g.element[count - 1].nodes;
    memcpy(step->node, g.node, sizeof step->node);
    for (int i = 0; i < g.element[count - 1].nodes; i++) done[g.node[i]] = true;
    return true;
}
