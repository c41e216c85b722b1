/* Affine: y = scale * x + shift, with one rounding. Descriptor and rules of a toy op (tests/recipes/op.py).
 *
 * Values   NaN and infinities as fma() has them. */
#include "kernserve/op.h"

#include <math.h>

enum { SCALE, SHIFT, PARAMS };
extern const ks_op ks_op_affine;

/* ks_resolve_fn */
static ks_status affine_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    const ks_input *row = &spec->op->inputs[0];
    if (!(row->dtypes & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "affine: %s has datatype %s, takes FP32", row->name,
                       ks_dtype_name(in->dtype));
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "affine: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                       row->rank_max);
    for (int i = 0; i < PARAMS; i++)
        if (!(fabs(spec->params[i].d) <= 1e38))
            return ks_fail(error, KS_PARAMETER, "affine: parameter '%s' is %g, takes -1e38 to 1e38",
                           spec->op->params[i].name, spec->params[i].d);
    const ks_status status = ks_tensor_measure(in, row->name, error);
    if (status != KS_OK) return status;
    spec->out[0] = *in;
    spec->out[0].offset = 0;
    spec->outputs = 1;
    spec->flops = 2.0 * (double)ks_tensor_count(in);
    return KS_OK;
}

/* ks_sample_fn */
static void affine_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_affine);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
    spec->params[SCALE].d = 1.5;
    spec->params[SHIFT].d = -2;
}

const ks_op ks_op_affine = {
    .name = "affine",
    .inputs_count = 1,
    .inputs =
        {{.name = "INPUT0", .role = "x", .dtypes = KS_DTYPE_BIT(KS_FP32), .rank_min = 1, .rank_max = KS_RANK_MAX}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = PARAMS,
    .params = {[SCALE] = {.name = "scale", .kind = KS_PARAM_NUMBER, .preset = {.d = 1}, .status = KS_PARAMETER},
               [SHIFT] = {.name = "shift", .kind = KS_PARAM_NUMBER, .status = KS_PARAMETER}},
    .resolve = affine_resolve,
    .sample = affine_sample,
};
