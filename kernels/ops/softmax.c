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
    if (!(DTYPES & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "softmax: INPUT0 has datatype %s, takes FP32, FP16, BF16 or FP64",
                       ks_dtype_name(in->dtype));
    if (in->rank < 1 || in->rank > KS_RANK_MAX)
        return ks_fail(error, KS_SHAPE, "softmax: INPUT0 has rank %d, takes 1 to %d", in->rank, KS_RANK_MAX);
    const ks_status status = ks_tensor_measure(in, "INPUT0", error);
    if (status != KS_OK) return status;
    int64_t *axis = &spec->params[KS_SOFTMAX_AXIS].i;
    if (*axis < -in->rank || *axis >= in->rank)
        return ks_fail(error, KS_AXIS, "softmax: axis %" PRId64 " is outside [%d, %d) of INPUT0's rank", *axis,
                       -in->rank, in->rank);
    if (*axis < 0) *axis += in->rank;
    double *scale = &spec->params[KS_SOFTMAX_SCALE].d;
    if (!(fabs(*scale) <= 1e38))
        return ks_fail(error, KS_PARAMETER, "softmax: parameter 'scale' is %g, takes -1e38 to 1e38", *scale);
    if (*scale == 0) *scale = 0; /* -0 is the same work */
    spec->out = *in;
    spec->out.offset = 0;
    spec->flops = 10.0 * (double)ks_tensor_count(in);
    return KS_OK;
}

static int softmax_free_dims(const ks_spec *spec)
{
    return (int)spec->params[KS_SOFTMAX_AXIS].i;
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
    .inputs = 1,
    .inputs_least = 1,
    .in_rank = 2,
    .out_rank = 2,
    .rank_min = 1,
    .rank_max = KS_RANK_MAX,
    .dtypes = DTYPES,
    .params_count = 3,
    .params = {[KS_SOFTMAX_AXIS] = {.name = "axis", .kind = KS_PARAM_INT, .preset = {.i = -1}, .status = KS_AXIS},
               [KS_SOFTMAX_LOG] = {.name = "log", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
               [KS_SOFTMAX_SCALE] = {.name = "scale", .kind = KS_PARAM_NUMBER, .preset = {.d = 1}, .status = KS_PARAMETER}},
    .presets_count = 1,
    .presets = presets,
    .resolve = softmax_resolve,
    .free_dims = softmax_free_dims,
    .sample = softmax_sample,
};
