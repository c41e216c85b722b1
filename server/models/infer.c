/* A definition's shapes: the chain's own rules are asked with lengths that its inputs may have, and what they make of them is declared.
 *
 * Interface ks_definition_infer of definition.h
 * Limits   a rule is not proven for all lengths: a request with others may still be refused, by the same sentence.
 * Threads  one at a time. */
#include <stdio.h>
#include <string.h>

#include "models/definition.h"

/* Lengths of a trial: of the batch, and of all others, which are products of many. */
static const struct {
    int64_t batch, other;
} trials[] = {{1, 48}, {2, 96}, {7, 192}};
enum { TRIALS = sizeof trials / sizeof trials[0] };

static bool has_free_dims(const ks_chain *chain)
{
    for (int i = 0; i < chain->op.inputs_count; i++)
        for (int axis = 0; axis < chain->in[i].rank; axis++)
            if (chain->in[i].dims[axis] < 0) return true;
    return false;
}

static void set_inputs(const ks_chain *chain, ks_spec *spec)
{
    ks_spec_init(spec, &chain->op);
    for (int i = 0; i < chain->op.inputs_count; i++)
        spec->in[i] = (ks_tensor){.dtype = chain->in[i].dtype, .rank = chain->in[i].rank};
}

static void set_lengths(const ks_chain *chain, int64_t batch, int64_t other, ks_spec *spec)
{
    if (chain->max_batch && batch > chain->max_batch) batch = chain->max_batch;
    set_inputs(chain, spec);
    for (int i = 0; i < chain->op.inputs_count; i++)
        for (int axis = 0; axis < chain->in[i].rank; axis++) {
            const int64_t dim = chain->in[i].dims[axis];
            spec->in[i].dims[axis] = dim > 0 ? dim : dim == KS_DIM_WORD ? batch : other;
        }
}

/* What the trials agree in. */
static void declare(ks_definition *definition, const ks_spec *spec, bool first)
{
    ks_model *model = &definition->model;
    for (int i = 0; i < spec->outputs; i++) {
        const ks_tensor *out = &spec->out[i];
        model->out_rank[i] = out->rank;
        model->out_dtype[i] = out->dtype;
        for (int axis = 0; axis < out->rank; axis++) {
            int64_t *dim = &definition->out_dims[i][axis];
            *dim = first || *dim == out->dims[axis] ? out->dims[axis] : KS_DIM_ANY;
        }
    }
}

static ks_status check_batch(const ks_chain *chain, const ks_spec *spec, ks_error *error)
{
    for (int i = 0; i < spec->outputs && chain->max_batch; i++)
        if (spec->out[i].rank == 0 || spec->out[i].dims[0] != spec->in[0].dims[0])
            return ks_fail(error, KS_DEFINITION,
                           "'max_batch' needs outputs that begin with the batch, '%s' does not at a batch of %lld",
                           chain->out[i].name, (long long)spec->in[0].dims[0]);
    return KS_OK;
}

static ks_status try_lengths(ks_definition *definition, ks_error *error)
{
    const ks_chain *chain = &definition->chain;
    const int count = has_free_dims(chain) ? TRIALS : 1;
    ks_status status = KS_OK;
    ks_spec spec;
    for (int i = 0; i < count && status == KS_OK; i++) {
        set_lengths(chain, trials[i].batch, trials[i].other, &spec);
        status = ks_chain_resolve(&spec, error);
        if (status == KS_OK) status = check_batch(chain, &spec, error);
        if (status == KS_OK && chain->max_batch) status = ks_definition_find_rows(definition, &spec, error);
        if (status == KS_OK) declare(definition, &spec, i == 0);
    }
    return status;
}

/* An input that is a batch of numbers is as well a vector of any length. */
static bool has_batches(const ks_chain *chain)
{
    for (int i = 0; i < chain->op.inputs_count; i++)
        if (chain->in[i].rank < 2 || chain->in[i].dims[0] != KS_DIM_WORD) return false;
    return true;
}

static ks_status try_batches(ks_definition *definition, ks_error *error)
{
    ks_error ignored;
    if (definition->names_batch || !has_batches(&definition->chain)) return try_lengths(definition, error);
    ks_definition_lower_batch(definition, KS_DEFINITION_BATCH_PRESET);
    if (try_lengths(definition, &ignored) == KS_OK) return KS_OK;
    ks_definition_lower_batch(definition, 0);
    return try_lengths(definition, error);
}

/* Shapes that the document itself wants to be ready for. */
static ks_status try_warm(const ks_definition *definition, ks_error *error)
{
    ks_status status = KS_OK;
    ks_spec spec;
    for (int i = 0; i < definition->warm && status == KS_OK; i++)
        status = ks_definition_warm(definition, i, &spec, error);
    return status;
}

static void declare_inputs(ks_definition *definition)
{
    const ks_chain *chain = &definition->chain;
    ks_model *model = &definition->model;
    for (int i = 0; i < chain->op.inputs_count; i++) {
        model->in_rank[i] = chain->in[i].rank;
        for (int axis = 0; axis < chain->in[i].rank; axis++)
            definition->in_dims[i][axis] = chain->in[i].dims[axis] > 0 ? chain->in[i].dims[axis] : KS_DIM_ANY;
    }
}

ks_status ks_definition_infer(ks_definition *definition, ks_error *error)
{
    ks_chain *chain = &definition->chain;
    ks_model *model = &definition->model;
    ks_status status = try_batches(definition, error);
    if (status == KS_OK) status = try_warm(definition, error);
    if (status != KS_OK) return status;
    declare_inputs(definition);
    chain->op.out_rank = model->out_rank[0];
    model->op = &chain->op;
    model->dtype = chain->in[0].dtype;
    model->outputs = model->outputs_max = chain->outputs;
    model->declared = ks_op_required(&chain->op);
    model->in_dims = definition->in_dims;
    model->out_dims = definition->out_dims;
    model->definition = definition->text;
    model->definition_length = definition->text_length;
    return KS_OK;
}

ks_status ks_definition_warm(const ks_definition *definition, int index, ks_spec *out, ks_error *error)
{
    set_inputs(&definition->chain, out);
    for (int input = 0; input < definition->chain.op.inputs_count; input++)
        memcpy(out->in[input].dims, definition->warm_dims[index][input], sizeof out->in[input].dims);
    const ks_status status = ks_chain_resolve(out, error);
    if (status == KS_OK) ks_spec_layout(out);
    return status;
}

ks_status ks_definition_sample(const ks_definition *definition, int64_t batch, ks_spec *out, ks_error *error)
{
    set_lengths(&definition->chain, batch, trials[0].other, out);
    const ks_status status = ks_chain_resolve(out, error);
    if (status == KS_OK) ks_spec_layout(out);
    return status;
}
