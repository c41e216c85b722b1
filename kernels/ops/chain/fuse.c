/* Nodes that one step does, where an op has the means: what stands behind a product or a norm goes to its epilogue, a sum to the norm
 * behind it, a sum behind a product of two tensors to fma.
 *
 *   matmul, mul by a scalar            alpha, where FP32 has the scalar: oneDNN's is a float
 *   matmul, add of a vector            bias (INPUT2)
 *   matmul, add of a tensor            residual (INPUT5), of the product's shape; where no norm takes the sum, which reads the tensor with
 *                                      what it reads anyway, and where the backend's products have that (ks_chain_means)
 *   matmul or norm, relu gelu silu     activation; of a norm gelu_tanh, too
 *   norm, mul or add of a tensor       weight, bias
 *   add, norm                          residual, or pre_bias; OUTPUT1 is the sum where it has other readers
 *   mul, add                           fma; of scalars linear
 *   map, norm or softmax, cast         its out_datatype
 *   maps                               maps.c
 *
 * Rules    what a fused step does not keep has one reader, and is no output; each other operand is known where the first node stands, which
 *          is where the step runs. A fused step makes the tensors that its nodes would, rounded less often. */
#include <math.h>
#include <string.h>

#include "ops/chain/chain.h"
#include "ops/map.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/softmax.h"

extern const ks_op ks_op_map, ks_op_matmul, ks_op_norm, ks_op_softmax;

/* --- readers ---------------------------------------------------------------------------------------------------------- */

static bool is_known(const ks_fusing *f, int value)
{
    const int made = ks_chain_made(f->chain, value);
    return value >= 0 && (made < 0 || f->known[made]);
}

bool ks_chain_are_known(const ks_fusing *f, const ks_chain_node *node)
{
    for (int i = 0; i < KS_OP_INPUTS_MAX; i++)
        if (node->in[i] >= 0 && !is_known(f, node->in[i])) return false;
    return true;
}

static const ks_tensor *tensor_of(const ks_fusing *f, int value)
{
    return ks_chain_value(f->chain, f->whole, f->made, value);
}

/* --- maps -------------------------------------------------------------------------------------------------------------- */

static bool is_map(const ks_chain_node *node, ks_map_function function)
{
    return node->op == &ks_op_map && node->params[KS_MAP_OP].i == function && node->params[KS_MAP_OUT].i == 0;
}

/* Of a function of two tensors, whose order does not matter: the one beside value; -1: there is none. */
static int operand_beside(const ks_chain_node *map, int value)
{
    if (map->in[1] < 0 || map->in[0] == map->in[1]) return -1;
    return map->in[0] == value ? map->in[1] : map->in[0];
}

/* As matmul and norm number them; 0: none of these. */
static int activation_of(const ks_chain_node *map, bool norm)
{
    static const struct {
        ks_map_function function;
        int matmul, norm;
    } rows[] = {{KS_MAP_RELU, KS_MATMUL_RELU, KS_ACTIVATION_RELU},
                {KS_MAP_GELU, KS_MATMUL_GELU, KS_ACTIVATION_GELU},
                {KS_MAP_GELU_TANH, KS_MATMUL_NONE, KS_ACTIVATION_GELU_TANH},
                {KS_MAP_SILU, KS_MATMUL_SILU, KS_ACTIVATION_SILU}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (is_map(map, rows[i].function)) return norm ? rows[i].norm : rows[i].matmul;
    return 0;
}

/* The scalar that such a map has beside its tensor. */
static double scalar_of(const ks_chain_node *map)
{
    const double a = map->params[KS_MAP_A].d;
    return isnan(a) ? 1 : a;
}

/* --- rules: each changes the node, or returns false --------------------------------------------------------------------- */

/* Not by 0: a product with NaN is NaN, and a library may skip it. */
static bool scales(double by, double *alpha)
{
    const double all = *alpha * by;
    if (all == 0 || !isfinite(all) || (double)(float)all != all) return false;
    *alpha = all;
    return true;
}

static bool takes_sum(const ks_chain_node *norm, int sum)
{
    return norm->op == &ks_op_norm && norm->in[KS_NORM_X] == sum && norm->in[KS_NORM_RESIDUAL] < 0 &&
           norm->in[KS_NORM_PRE_BIAS] < 0 && !norm->params[KS_NORM_SUM_OUT].i;
}

/* The sum with a tensor of the product's shape. */
static bool adds_residual(const ks_fusing *f, const ks_chain_node *next, int other)
{
    const int first = next->out[0] < 0 ? -1 : ks_chain_next_reader(f->readers, next->out[0], -1);
    return f->residuals && is_map(next, KS_MAP_ADD) && other >= 0 && tensor_of(f, other)->rank > 1 &&
           (first < 0 || !takes_sum(&f->chain->node[first], next->out[0]));
}

static bool behind_matmul(const ks_fusing *f, const ks_chain_node *next, int other, ks_chain_node *node)
{
    ks_value *activation = &node->params[KS_MATMUL_ACTIVATION];
    if (node->in[KS_MATMUL_RESIDUAL] >= 0) return false;
    if (adds_residual(f, next, other)) {
        node->in[KS_MATMUL_RESIDUAL] = (int16_t)other;
        return true;
    }
    if (activation->i) return false;
    if (is_map(next, KS_MAP_MUL) && next->in[1] < 0)
        return node->in[2] < 0 && scales(scalar_of(next), &node->params[KS_MATMUL_ALPHA].d);
    if (is_map(next, KS_MAP_ADD) && other >= 0 && node->in[2] < 0) {
        node->in[2] = (int16_t)other;
        return true;
    }
    activation->i = activation_of(next, false);
    return activation->i != 0;
}

static bool behind_norm(const ks_chain_node *next, int other, ks_chain_node *node)
{
    ks_value *activation = &node->params[KS_NORM_ACTIVATION];
    const bool rows = node->params[KS_NORM_KIND].i != KS_NORM_GROUP && other >= 0 && node->in[KS_NORM_BIAS] < 0;
    if (activation->i || node->params[KS_NORM_OUT_DATATYPE].i) return false;
    if (rows && is_map(next, KS_MAP_MUL) && node->in[KS_NORM_WEIGHT] < 0) {
        node->in[KS_NORM_WEIGHT] = (int16_t)other;
        return true;
    }
    if (rows && is_map(next, KS_MAP_ADD)) {
        node->in[KS_NORM_BIAS] = (int16_t)other;
        return true;
    }
    activation->i = activation_of(next, true);
    return activation->i != 0;
}

static bool behind_product(const ks_fusing *f, const ks_chain_node *next, int other, ks_chain_node *node)
{
    if (!is_map(next, KS_MAP_ADD) || other < 0 || node->in[1] < 0) return false;
    if (ks_dtype_kind(tensor_of(f, node->in[0])->dtype) != KS_KIND_FLOAT) return false;
    node->params[KS_MAP_OP].i = KS_MAP_FMA;
    node->in[2] = (int16_t)other;
    return true;
}

static bool behind_scaling(const ks_fusing *f, const ks_chain_node *next, ks_chain_node *node)
{
    if (!is_map(next, KS_MAP_ADD) || next->in[1] >= 0 || node->in[1] >= 0) return false;
    if (ks_dtype_kind(tensor_of(f, node->in[0])->dtype) != KS_KIND_FLOAT) return false;
    node->params[KS_MAP_OP].i = KS_MAP_LINEAR;
    node->params[KS_MAP_A].d = scalar_of(node);
    node->params[KS_MAP_B].d = scalar_of(next);
    return true;
}

static bool is_cast(const ks_chain_node *node)
{
    return node->op == &ks_op_map && node->params[KS_MAP_OP].i == KS_MAP_CAST && node->params[KS_MAP_OUT].i != 0;
}

/* As norm and softmax number it; 0: neither gives it. */
static int out_datatype_of(const ks_chain_node *cast)
{
    static const ks_dtype dtypes[] = {KS_BOOL, KS_FP16, KS_BF16, KS_FP32,
                                      KS_FP64}; /* the first one stands for the input's */
    for (int i = 1; i < (int)(sizeof dtypes / sizeof dtypes[0]); i++)
        if (cast->params[KS_MAP_OUT].i == (int64_t)dtypes[i] + 1) return i;
    return 0;
}

static bool cast_behind(const ks_chain_node *cast, ks_chain_node *node)
{
    if (node->op == &ks_op_map) {
        if (node->params[KS_MAP_OUT].i) return false;
        node->params[KS_MAP_OUT].i = cast->params[KS_MAP_OUT].i;
        return true;
    }
    if (node->op != &ks_op_norm && node->op != &ks_op_softmax) return false;
    ks_value *out = &node->params[node->op == &ks_op_norm ? KS_NORM_OUT_DATATYPE : KS_SOFTMAX_OUT_DATATYPE];
    if (out->i) return false;
    out->i = out_datatype_of(cast);
    return out->i != 0;
}

/* The sum of two tensors of x's shape, or of one and a vector, in front of a norm. */
static bool before_norm(const ks_fusing *f, const ks_chain_node *norm, bool sum_stays, ks_chain_node *node)
{
    const int sum = node->out[0];
    int x = node->in[0], other = node->in[1];
    if (other < 0 || !takes_sum(norm, sum)) return false;
    if (tensor_of(f, x)->rank < tensor_of(f, other)->rank) {
        x = node->in[1];
        other = node->in[0];
    }
    const bool vector = tensor_of(f, other)->rank < tensor_of(f, x)->rank;
    *node = *norm;
    node->in[KS_NORM_X] = (int16_t)x;
    node->in[vector ? KS_NORM_PRE_BIAS : KS_NORM_RESIDUAL] = (int16_t)other;
    if (sum_stays) {
        node->params[KS_NORM_SUM_OUT].i = 1;
        node->out[1] = (int16_t)sum;
        node->outputs = 2;
    }
    return true;
}

static bool apply(const ks_fusing *f, const ks_chain_node *next, ks_chain_node *node)
{
    const int value = node->out[0], readers = ks_chain_uses(f->readers, value);
    if (is_map(node, KS_MAP_ADD) && next->op == &ks_op_norm) return before_norm(f, next, readers > 1, node);
    if (readers != 1 || next->op != &ks_op_map) return false;
    const int other = operand_beside(next, value);
    const bool fused = is_cast(next)               ? cast_behind(next, node)
                       : node->op == &ks_op_matmul ? behind_matmul(f, next, other, node)
                       : node->op == &ks_op_norm   ? behind_norm(next, other, node)
                       : is_map(node, KS_MAP_MUL)
                           ? behind_product(f, next, other, node) || behind_scaling(f, next, node)
                           : false;
    if (fused) node->out[0] = next->out[0];
    return fused;
}

/* --- one more node --------------------------------------------------------------------------------------------------------- */

static bool same_tensor(const ks_tensor *a, const ks_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

/* What the fused node makes is what the other one would, and what the first one kept is as it was. */
static bool makes_the_same(const ks_fusing *f, const ks_chain_node *next, const ks_tensor *sum, const ks_spec *spec)
{
    ks_spec alone;
    ks_chain_node_spec(f->chain, f->whole, next, f->made, &alone);
    if (ks_chain_resolve_node(next, &alone, NULL) != KS_OK) return false;
    return alone.outputs == 1 && same_tensor(&alone.out[0], &spec->out[0]) &&
           (spec->outputs == 1 || same_tensor(sum, &spec->out[1]));
}

/* A norm whose weight is the sum that it norms, say: the step would read what it makes. */
static bool reads(const ks_chain_node *node, int value)
{
    for (int i = 0; i < KS_OP_INPUTS_MAX; i++)
        if (node->in[i] == value) return true;
    return false;
}

int ks_chain_fuse(const ks_fusing *f, int index, ks_chain_node *node, ks_spec *spec)
{
    const int value = node->out[0], at = value < 0 ? -1 : ks_chain_next_reader(f->readers, value, index);
    if (f->chain->unfused || at < 0 || spec->outputs != 1) return -1;
    const ks_chain_node *next = &f->chain->node[at];
    ks_chain_node fused = *node;
    ks_spec whole;
    if (!next->op || next->out[0] < 0 || next->outputs != 1 || !ks_chain_are_known(f, next) ||
        !apply(f, next, &fused) || reads(&fused, value))
        return -1;
    ks_chain_node_spec(f->chain, f->whole, &fused, f->made, &whole);
    if (ks_chain_resolve_node(&fused, &whole, NULL) != KS_OK || !makes_the_same(f, next, &spec->out[0], &whole))
        return -1;
    *node = fused;
    *spec = whole;
    return at;
}
