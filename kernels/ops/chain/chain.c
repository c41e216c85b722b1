/* A chain's shapes: what its inputs must be, and what each node makes of them. */
#include "ops/chain/chain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- inputs ---------------------------------------------------------------------------------------------------------- */

static ks_status check_rank(const ks_chain_tensor *declared, const ks_tensor *in, ks_error *error)
{
    if (in->dtype != declared->dtype)
        return ks_fail(error, KS_DATATYPE, "input '%s' has datatype %s, takes %s", declared->name,
                       ks_dtype_name(in->dtype), ks_dtype_name(declared->dtype));
    if (in->rank != declared->rank)
        return ks_fail(error, KS_SHAPE, "input '%s' has rank %d, takes %d", declared->name, in->rank, declared->rank);
    return KS_OK;
}

/* The lengths of words that inputs in front have given; 0: none has. */
typedef struct words {
    int64_t length[KS_CHAIN_WORDS_MAX];
    const char *of[KS_CHAIN_WORDS_MAX];
} words;

static ks_status check_word(const ks_chain *chain, words *seen, const ks_chain_tensor *declared, int axis, int64_t dim,
                            ks_error *error)
{
    const int word = (int)(KS_DIM_WORD - declared->dims[axis]);
    const bool batch = word == 0;
    if (batch && chain->max_batch && dim > chain->max_batch)
        return ks_fail(error, KS_SHAPE,
                       "inference request batch-size must be <= %" PRId64 " for '%s': input '%s' has %" PRId64,
                       chain->max_batch, chain->op.name, declared->name, dim);
    if (!seen->of[word]) {
        seen->length[word] = dim;
        seen->of[word] = declared->name;
    }
    if (seen->length[word] == dim) return KS_OK;
    if (batch)
        return ks_fail(error, KS_SHAPE,
                       "input '%s' batch size does not match other inputs for '%s': %" PRId64 ", and %" PRId64
                       " of '%s'",
                       declared->name, chain->op.name, dim, seen->length[word], seen->of[word]);
    return ks_fail(error, KS_SHAPE,
                   "input '%s' has %" PRId64 " in dimension %d, which is '%s', and '%s' has %" PRId64 " there",
                   declared->name, dim, axis, chain->word[word], seen->of[word], seen->length[word]);
}

static ks_status check_dims(const ks_chain *chain, words *seen, int input, const ks_tensor *in, ks_error *error)
{
    const ks_chain_tensor *declared = &chain->in[input];
    ks_status status = KS_OK;
    for (int axis = 0; axis < in->rank && status == KS_OK; axis++) {
        const int64_t want = declared->dims[axis], dim = in->dims[axis];
        if (want <= KS_DIM_WORD)
            status = check_word(chain, seen, declared, axis, dim, error);
        else if (want != KS_DIM_ANY && want != dim)
            status = ks_fail(error, KS_SHAPE, "input '%s' has %" PRId64 " in dimension %d, takes %" PRId64,
                             declared->name, dim, axis, want);
    }
    return status;
}

static ks_status check_inputs(const ks_chain *chain, ks_spec *spec, ks_error *error)
{
    words seen = {.length = {0}};
    ks_status status = KS_OK;
    for (int i = 0; i < chain->op.inputs_count && status == KS_OK; i++) {
        status = check_rank(&chain->in[i], &spec->in[i], error);
        if (status == KS_OK) status = ks_tensor_measure(&spec->in[i], chain->in[i].name, error);
        if (status == KS_OK) status = check_dims(chain, &seen, i, &spec->in[i], error);
    }
    return status;
}

/* --- nodes ----------------------------------------------------------------------------------------------------------- */

const ks_tensor *ks_chain_value(const ks_chain *chain, const ks_spec *spec, const ks_tensor *made, int value)
{
    const int constant = ks_chain_constant(chain, value);
    if (value < chain->op.inputs_count) return &spec->in[value];
    return constant >= 0 ? &chain->constant[constant] : &made[ks_chain_made(chain, value)];
}

/* The op's sentence behind the node's name: its own name in front says nothing more. */
static ks_status fail_node(const ks_chain_node *node, ks_status status, const char *text, ks_error *error)
{
    const size_t length = strlen(node->op->name);
    if (strncmp(text, node->op->name, length) == 0 && strncmp(text + length, ": ", 2) == 0) text += length + 2;
    return ks_fail(error, status, "node '%s' (%s): %s", node->name, node->op->name, text);
}

static ks_status fail_reshape(const ks_chain_node *node, const ks_tensor *in, const char *why, ks_error *error)
{
    char from[KS_RANK_MAX * 21], to[KS_RANK_MAX * 21];
    size_t n = 0;
    ks_dims_text(in, from, sizeof from);
    to[0] = 0;
    for (int i = 0; i < node->rank; i++)
        n += (size_t)snprintf(to + n, sizeof to - n, "%s%" PRId64, i ? "," : "", node->dims[i]);
    return ks_fail(error, KS_SHAPE, "node '%s' (reshape): [%s] to [%s]: %s", node->name, from, to, why);
}

ks_status ks_chain_reshape(const ks_chain_node *node, const ks_tensor *in, ks_tensor *out, ks_error *error)
{
    const int64_t count = ks_tensor_count(in);
    int64_t known = 1;
    int rest = -1;
    *out = (ks_tensor){.dtype = in->dtype, .rank = node->rank, .size_bytes = in->size_bytes};
    for (int i = 0; i < node->rank; i++) {
        int64_t dim = node->dims[i];
        const int kept = dim == 0 ? i : (int)(-2 - dim); /* dimension of the input's */
        if (kept >= in->rank && dim <= 0)
            return fail_reshape(node, in, "it keeps a dimension that is not there", error);
        if (dim == 0 || dim < -1) dim = in->dims[kept];
        if (dim < 0)
            rest = i;
        else if (__builtin_mul_overflow(known, dim, &known))
            return fail_reshape(node, in, "too many elements", error);
        out->dims[i] = dim;
    }
    if (rest >= 0) {
        if (known == 0 || count % known != 0) return fail_reshape(node, in, "the rest is no whole number", error);
        out->dims[rest] = count / known;
        known *= out->dims[rest];
    }
    return known == count ? KS_OK : fail_reshape(node, in, "the number of elements differs", error);
}

ks_status ks_chain_resolve_node(const ks_chain_node *node, ks_spec *spec, ks_error *error)
{
    ks_error why = {.status = KS_OK};
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) spec->in[i].offset = 0;
    const ks_status status = node->op->resolve(spec, &why);
    if (status != KS_OK) return fail_node(node, status, why.text, error);
    if (node->outputs <= spec->outputs) return KS_OK;
    char text[64];
    snprintf(text, sizeof text, "it makes %d outputs, %d are named", spec->outputs, node->outputs);
    return fail_node(node, KS_COUNT, text, error);
}

/* The node's spec, and what it makes. */
static ks_status make_node(const ks_chain *chain, const ks_spec *whole, const ks_chain_node *node, ks_tensor *made,
                           ks_spec *spec, ks_error *error)
{
    if (!node->op) {
        const ks_tensor *in = ks_chain_value(chain, whole, made, node->in[0]);
        return ks_chain_reshape(node, in, &made[ks_chain_made(chain, node->out[0])], error);
    }
    ks_chain_node_spec(chain, whole, node, made, spec);
    const ks_status status = ks_chain_resolve_node(node, spec, error);
    for (int i = 0; i < KS_OP_OUTPUTS_MAX && status == KS_OK; i++)
        if (node->out[i] >= 0) {
            ks_tensor *out = &made[ks_chain_made(chain, node->out[i])];
            *out = spec->out[i];
            out->fixed = NULL;
            out->pitch = 0;
        }
    return status;
}

void ks_chain_node_spec(const ks_chain *chain, const ks_spec *whole, const ks_chain_node *node, const ks_tensor *made,
                        ks_spec *spec)
{
    ks_spec_init(spec, node->op);
    spec->given = 0;
    ks_params_copy(node->op, spec->params, spec->lists, node->params, node->lists);
    for (int i = 0; i < node->op->inputs_count; i++) {
        if (node->in[i] < 0) continue;
        spec->in[i] = *ks_chain_value(chain, whole, made, node->in[i]);
        spec->given |= (uint16_t)(1u << i);
    }
}

/* --- values that decide ----------------------------------------------------------------------------------------------- */

_Static_assert(KS_CHAIN_NODES_MAX <= KS_BAD_NODE_LAST + 1, "a status word names each node");
_Static_assert(KS_INPUTS_MAX <= KS_BAD_INPUT_LAST + 1, "a status word names each input");

bool ks_chain_decides(const ks_chain *chain)
{
    for (int i = 0; i < chain->nodes; i++)
        for (int input = 0; input < KS_OP_INPUTS_MAX; input++)
            if (chain->node[i].op && chain->node[i].op->decides >> input & 1 && chain->node[i].in[input] >= 0)
                return true;
    return false;
}

/* The node's shapes once more: it is rare. */
ks_status ks_chain_refuse(const ks_spec *spec, const ks_bad_value *bad, ks_error *error)
{
    const ks_chain *chain = spec->op->chain;
    const ks_chain_node *at = &chain->node[bad->node];
    __attribute__((uninitialized)) ks_tensor made[KS_CHAIN_MADE_MAX]; /* each is made before it is read */
    ks_spec node = {.op = NULL};
    ks_error why = {.status = KS_OK};
    ks_status status = KS_OK;
    for (int i = 0; i <= bad->node && status == KS_OK; i++)
        status = make_node(chain, spec, &chain->node[i], made, &node, error);
    if (status != KS_OK) return status;
    status = at->op->refuse(&node, bad, &why);
    return fail_node(at, status, why.text, error);
}

/* --- outputs ---------------------------------------------------------------------------------------------------------- */

/* What a definition says of an output, it is. */
static ks_status check_output(const ks_chain *chain, int output, const ks_tensor *out, ks_error *error)
{
    const ks_chain_tensor *declared = &chain->out[output];
    char dims[KS_RANK_MAX * 21];
    if (declared->rank < 0) return KS_OK;
    bool same = declared->dtype == out->dtype && declared->rank == out->rank;
    for (int i = 0; i < out->rank && same; i++) same = declared->dims[i] < 0 || declared->dims[i] == out->dims[i];
    if (same) return KS_OK;
    ks_dims_text(out, dims, sizeof dims);
    return ks_fail(error, declared->dtype == out->dtype ? KS_SHAPE : KS_DATATYPE,
                   "output '%s' is %s [%s], and not as the definition declares it", declared->name,
                   ks_dtype_name(out->dtype), dims);
}

/* ks_resolve_fn */
ks_status ks_chain_resolve(ks_spec *spec, ks_error *error)
{
    const ks_chain *chain = spec->op->chain;
    __attribute__((uninitialized)) ks_tensor made[KS_CHAIN_MADE_MAX]; /* each is made before it is read */
    ks_spec node;
    ks_status status = check_inputs(chain, spec, error);
    spec->flops = 0;
    for (int i = 0; i < chain->nodes && status == KS_OK; i++) {
        node.flops = 0;
        status = make_node(chain, spec, &chain->node[i], made, &node, error);
        spec->flops += node.flops;
    }
    for (int i = 0; i < chain->outputs && status == KS_OK; i++) {
        spec->out[i] = *ks_chain_value(chain, spec, made, chain->output[i]);
        spec->out[i].offset = 0;
        spec->out[i].fixed = NULL;
        spec->out[i].pitch = 0;
        status = check_output(chain, i, &spec->out[i], error);
    }
    spec->outputs = (uint8_t)chain->outputs;
    return status;
}

bool ks_chain_joins(const ks_spec *spec)
{
    const ks_chain *chain = spec->op->chain;
    bool joins = chain->max_batch > 1;
    for (int i = 0; i < chain->op.inputs_count; i++) {
        joins = joins && chain->batched[i];
        for (int axis = 1; axis < chain->in[i].rank; axis++) joins = joins && chain->in[i].dims[axis] > 0;
    }
    return joins;
}

size_t ks_chain_read_bytes(const ks_spec *spec)
{
    const ks_chain *chain = spec->op->chain;
    size_t bytes = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) bytes += spec->in[i].size_bytes;
    for (int i = 0; i < chain->constants; i++) bytes += chain->constant[i].size_bytes;
    return bytes;
}
