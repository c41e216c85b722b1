/* Whether each row of a batch goes its own way through a chain: what max_batch promises. A value is batched where its first dimension is
 * the batch, and each row of it follows from the same row of the inputs.
 *
 * Interface ks_definition_find_rows of definition.h
 * Limits    an op that does not say how its rows may be cut is taken to mix them. */
#include <string.h>

#include "models/definition.h"
#include "ops/chain/chain.h"
#include "ops/gather.h"
#include "ops/matmul.h"

extern const ks_op ks_op_gather, ks_op_map, ks_op_matmul;

typedef struct check {
    const ks_chain *chain;
    const ks_spec *whole;
    ks_tensor made[KS_CHAIN_MADE_MAX];
    bool *batched; /* the chain's */
} check;

/* Broadcasting sets shapes against each other from their ends. */
static bool map_keeps(const ks_spec *spec, unsigned batched)
{
    for (unsigned left = batched; left; left &= left - 1)
        if (spec->in[__builtin_ctz(left)].rank != spec->out[0].rank) return false;
    return true;
}

static bool matmul_keeps(const ks_spec *spec, unsigned batched)
{
    const int rank = spec->out[0].rank;
    const bool a = batched & 1, b = batched & 2, others = batched & ~(3u | 1u << KS_MATMUL_RESIDUAL);
    if (others || (!a && !b) || (a && spec->in[0].rank != rank) || (b && spec->in[1].rank != rank)) return false;
    return rank > 2 || (!b && !spec->params[KS_MATMUL_TRANSPOSE_A].i);
}

static bool rows_keep(const ks_spec *spec, unsigned batched)
{
    const ks_rows rows = spec->op->rows ? spec->op->rows(spec) : (ks_rows){0};
    const unsigned outputs = (1u << spec->outputs) - 1;
    return batched & 1 && rows.dims >= 1 && (batched & ~(unsigned)rows.cut & ~1u) == 0 &&
           (rows.out & outputs) == outputs;
}

/* Slices of one table by a batch of indices, which then stand in front. */
static bool looks_up(const ks_spec *spec, unsigned batched)
{
    return batched == 1u << KS_GATHER_INDICES && !ks_has_input(spec, KS_GATHER_OFFSETS) &&
           spec->params[KS_GATHER_KIND].i == KS_GATHER_SLICES && spec->params[KS_GATHER_AXIS].i == 0;
}

static bool keeps(const ks_spec *spec, unsigned batched)
{
    if (!batched) return true;
    if (spec->op == &ks_op_map) return map_keeps(spec, batched);
    if (spec->op == &ks_op_gather && looks_up(spec, batched)) return true;
    return spec->op == &ks_op_matmul ? matmul_keeps(spec, batched) : rows_keep(spec, batched);
}

static ks_status fail_node(const ks_chain_node *node, ks_error *error)
{
    return ks_fail(error, KS_DEFINITION,
                   "node '%s' (%s): it mixes rows of the batch, which 'max_batch' lets no node do", node->name,
                   node->op ? node->op->name : "reshape");
}

static ks_status check_reshape(check *c, const ks_chain_node *node, ks_error *error)
{
    const ks_tensor *in = ks_chain_value(c->chain, c->whole, c->made, node->in[0]);
    ks_tensor *out = &c->made[ks_chain_made(c->chain, node->out[0])];
    const ks_status status = ks_chain_reshape(node, in, out, error);
    if (status != KS_OK) return status;
    if (!c->batched[node->in[0]]) return KS_OK;
    c->batched[node->out[0]] = true;
    return out->rank > 0 && out->dims[0] == in->dims[0] ? KS_OK : fail_node(node, error);
}

static ks_status check_node(check *c, const ks_chain_node *node, ks_error *error)
{
    ks_spec spec;
    unsigned batched = 0;
    if (!node->op) return check_reshape(c, node, error);
    ks_chain_node_spec(c->chain, c->whole, node, c->made, &spec);
    const ks_status status = ks_chain_resolve_node(node, &spec, error);
    if (status != KS_OK) return status;
    for (int i = 0; i < node->op->inputs_count; i++)
        if (node->in[i] >= 0 && c->batched[node->in[i]]) batched |= 1u << i;
    if (!keeps(&spec, batched)) return fail_node(node, error);
    for (int i = 0; i < KS_OP_OUTPUTS_MAX; i++) {
        if (node->out[i] < 0) continue;
        c->made[ks_chain_made(c->chain, node->out[i])] = spec.out[i];
        c->batched[node->out[i]] = batched != 0;
    }
    return KS_OK;
}

ks_status ks_definition_find_rows(ks_definition *definition, const ks_spec *spec, ks_error *error)
{
    check c;
    ks_chain *chain = &definition->chain;
    c.chain = chain;
    c.whole = spec;
    c.batched = chain->batched;
    memset(chain->batched, 0, sizeof chain->batched);
    for (int i = 0; i < chain->op.inputs_count; i++)
        c.batched[i] = chain->in[i].rank > 0 && chain->in[i].dims[0] == KS_DIM_WORD;
    ks_status status = KS_OK;
    for (int i = 0; i < chain->nodes && status == KS_OK; i++) status = check_node(&c, &chain->node[i], error);
    for (int i = 0; i < chain->outputs && status == KS_OK; i++)
        if (!c.batched[chain->output[i]])
            status = ks_fail(error, KS_DEFINITION,
                             "'max_batch' needs outputs that follow from the batch, '%s' does not", chain->out[i].name);
    return status;
}
