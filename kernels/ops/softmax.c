/* Softmax over one axis: descriptor and rules.
 *
 *   y = exp(z - max z) / sum exp(z - max z), or its logarithm; z = scale * x
 *
 * Values   a row with NaN, +inf (of z) or nothing but -inf gives NaN; -inf beside finite values gives exactly 0. */
#include "ops/softmax.h"

#include <inttypes.h>
#include <math.h>

enum { DTYPES = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64) };
extern const ks_op ks_op_softmax;

/* ks_resolve_fn */
static ks_status softmax_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    const ks_input *row = &spec->op->inputs[0];
    if (!(row->dtypes & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "softmax: %s has datatype %s, takes FP32, FP16, BF16 or FP64", row->name,
                       ks_dtype_name(in->dtype));
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "softmax: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                       row->rank_max);
    const ks_status status = ks_tensor_measure(in, row->name, error);
    if (status != KS_OK) return status;
    int64_t *axis = &spec->params[KS_SOFTMAX_AXIS].i;
    if (*axis < -in->rank || *axis >= in->rank)
        return ks_fail(error, KS_AXIS, "softmax: axis %" PRId64 " is outside [%d, %d) of %s's rank", *axis, -in->rank,
                       in->rank, row->name);
    if (*axis < 0) *axis += in->rank;
    double *scale = &spec->params[KS_SOFTMAX_SCALE].d;
    if (!(fabs(*scale) <= 1e38))
        return ks_fail(error, KS_PARAMETER, "softmax: parameter 'scale' is %g, takes -1e38 to 1e38", *scale);
    if (*scale == 0) *scale = 0; /* -0 is the same work */
    spec->out[0] = *in;
    spec->out[0].offset = 0;
    spec->outputs = 1;
    spec->flops = 10.0 * (double)ks_tensor_count(in);
    return KS_OK;
}

static ks_rows softmax_rows(const ks_spec *spec)
{
    return (ks_rows){.dims = (int)spec->params[KS_SOFTMAX_AXIS].i, .cut = 1, .out = 1};
}

/* ks_sample_fn */
static void softmax_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_softmax);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
}

static const ks_preset presets[] = {{.suffix = "vec", .param = -1, .in_rank = 1, .out_rank = 1}};

const ks_op ks_op_softmax = {
    .name = "softmax",
    .inputs_count = 1,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = DTYPES, .rank_min = 1, .rank_max = KS_RANK_MAX}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = 3,
    .params =
        {[KS_SOFTMAX_AXIS] = {.name = "axis", .kind = KS_PARAM_INT, .preset = {.i = -1}, .status = KS_AXIS},
         [KS_SOFTMAX_LOG] = {.name = "log", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
         [KS_SOFTMAX_SCALE] = {.name = "scale", .kind = KS_PARAM_NUMBER, .preset = {.d = 1}, .status = KS_PARAMETER}},
    .presets_count = 1,
    .presets = presets,
    .resolve = softmax_resolve,
    .rows = softmax_rows,
    .sample = softmax_sample,
};
