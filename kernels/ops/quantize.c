/* To 8 bits by scales, and back: descriptors and rules of quantize and dequantize.
 *
 *   quantize     OUTPUT0 = x * (1 / scale), rounded to nearest even, saturating; OUTPUT1 = the scales
 *   dequantize   OUTPUT0 = x * scale
 *
 * Shapes   x: any, of rank 1 to 8. Scales: [1] for the tensor; x's without its last axis, one for each row; the last axis, one for each
 *          column.
 * Values   in FP32: the reciprocal of the scale and each product are rounded once, before the output's rounding. A scale that is computed is the largest finite
 *          magnitude of what it is for, divided by the largest value of the datatype (127, 448, 57344), and 2^-126 at least; 1 where all of
 *          that is 0 or not finite. NaN is NaN in FP8 and 0 in INT8; infinity saturates. */
#include "ops/quantize/quantize.h"
#include "ops/spec/places.h"

#include <string.h>

enum {
    REALS = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16),
    NARROW = KS_DTYPE_BIT(KS_INT8) | KS_DTYPE_BIT(KS_FP8E4M3) | KS_DTYPE_BIT(KS_FP8E5M2)
};
extern const ks_op ks_op_quantize, ks_op_dequantize;

static const char *const narrow_names[] = {"INT8", "FP8E4M3", "FP8E5M2", NULL};
static const char *const real_names[] = {"FP32", "FP16", "BF16", NULL};
static const ks_dtype narrow_dtypes[] = {KS_INT8, KS_FP8E4M3, KS_FP8E5M2}, real_dtypes[] = {KS_FP32, KS_FP16, KS_BF16};
static const char *const pers[] = {"tensor", "row", "column", NULL}; /* as ks_scale_per */

/* --- rules ----------------------------------------------------------------------------------------------------------- */

static ks_status check_input(ks_spec *spec, int input, const char *words, ks_error *error)
{
    ks_tensor *in = &spec->in[input];
    const ks_input *row = &spec->op->inputs[input];
    if (!(row->dtypes & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "%s: %s (%s) has datatype %s, takes %s", spec->op->name, row->name,
                       row->role, ks_dtype_name(in->dtype), words);
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "%s: %s (%s) has rank %d, takes %d to %d", spec->op->name, row->name, row->role,
                       in->rank, row->rank_min, row->rank_max);
    return ks_tensor_measure(in, row->name, error);
}

/* The scales of a tensor of INPUT0's shape. */
static ks_tensor scales_of(const ks_spec *spec)
{
    const ks_tensor *x = &spec->in[KS_QUANTIZE_X];
    ks_tensor scales = {.dtype = KS_FP32, .rank = 1, .dims = {1}};
    switch ((ks_scale_per)spec->params[KS_QUANTIZE_SCALE_PER].i) {
    case KS_SCALE_ROW:
        scales.rank = x->rank - 1;
        scales.dims[0] = 0;
        for (int i = 0; i < scales.rank; i++) scales.dims[i] = x->dims[i];
        break;
    case KS_SCALE_COLUMN:
        scales.dims[0] = x->dims[x->rank - 1];
        break;
    default:
        break;
    }
    return scales;
}

static ks_status check_scales(ks_spec *spec, ks_error *error)
{
    if (!ks_has_input(spec, KS_QUANTIZE_SCALE)) return KS_OK;
    const ks_tensor *given = &spec->in[KS_QUANTIZE_SCALE], wanted = scales_of(spec);
    const ks_status status = check_input(spec, KS_QUANTIZE_SCALE, "FP32", error);
    if (status != KS_OK) return status;
    if (given->rank == wanted.rank && memcmp(given->dims, wanted.dims, (size_t)wanted.rank * sizeof *wanted.dims) == 0)
        return KS_OK;
    char texts[2][KS_RANK_MAX * 21];
    ks_dims_text(given, texts[0], sizeof texts[0]);
    ks_dims_text(&wanted, texts[1], sizeof texts[1]);
    return ks_fail(error, KS_SHAPE, "%s: INPUT1 (scale) has shape [%s], takes [%s] with scale_per %s", spec->op->name,
                   texts[0], texts[1], pers[spec->params[KS_QUANTIZE_SCALE_PER].i]);
}

static ks_status resolve_outputs(ks_spec *spec, ks_dtype to, int outputs, ks_error *error)
{
    const ks_tensor *x = &spec->in[KS_QUANTIZE_X];
    ks_status status = check_scales(spec, error);
    spec->outputs = (uint8_t)outputs;
    spec->out[0] = (ks_tensor){.dtype = to, .rank = x->rank};
    memcpy(spec->out[0].dims, x->dims, sizeof x->dims);
    if (outputs > 1) spec->out[1] = scales_of(spec);
    for (int i = 0; i < outputs && status == KS_OK; i++)
        status = ks_tensor_measure(&spec->out[i], ks_output_name(i), error);
    spec->flops = 3 * (double)ks_tensor_count(x);
    return status;
}

/* ks_resolve_fn */
static ks_status quantize_resolve(ks_spec *spec, ks_error *error)
{
    const ks_status status = check_input(spec, KS_QUANTIZE_X, "FP32, FP16 or BF16", error);
    if (status != KS_OK) return status;
    return resolve_outputs(spec, narrow_dtypes[spec->params[KS_QUANTIZE_OUT_DATATYPE].i], 2, error);
}

/* ks_resolve_fn */
static ks_status dequantize_resolve(ks_spec *spec, ks_error *error)
{
    const ks_status status = check_input(spec, KS_QUANTIZE_X, "INT8, FP8E4M3 or FP8E5M2", error);
    if (status != KS_OK) return status;
    return resolve_outputs(spec, real_dtypes[spec->params[KS_QUANTIZE_OUT_DATATYPE].i], 1, error);
}

/* ks_sample_fn */
static void quantize_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_quantize);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
    spec->params[KS_QUANTIZE_SCALE_PER].i = KS_SCALE_ROW;
}

/* ks_sample_fn */
static void dequantize_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_dequantize);
    spec->in[0] = (ks_tensor){.dtype = KS_INT8, .rank = 2, .dims = {3, 1000}};
    spec->in[1] = (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {3}};
    spec->params[KS_QUANTIZE_SCALE_PER].i = KS_SCALE_ROW;
}

/* --- as a matrix ----------------------------------------------------------------------------------------------------- */

ks_quantize_shape ks_quantize_shape_of(const ks_spec *spec)
{
    const ks_tensor *x = &spec->in[KS_QUANTIZE_X], scales = scales_of(spec);
    return (ks_quantize_shape){.rows = ks_dims_product(x->dims, 0, x->rank - 1),
                               .columns = x->dims[x->rank - 1],
                               .scales = ks_tensor_count(&scales),
                               .per = (ks_scale_per)spec->params[KS_QUANTIZE_SCALE_PER].i,
                               .given = ks_has_input(spec, KS_QUANTIZE_SCALE),
                               .from = x->dtype,
                               .to = spec->out[0].dtype};
}

/* Rows that have scales of their own. Of others OUTPUT1 is whole, so quantize is not cut. */
static ks_rows quantize_rows(const ks_spec *spec)
{
    const bool own = spec->params[KS_QUANTIZE_SCALE_PER].i == KS_SCALE_ROW;
    return (ks_rows){.dims = own ? spec->in[0].rank - 1 : 0, .cut = 3, .out = 3};
}

static ks_rows dequantize_rows(const ks_spec *spec)
{
    const bool own = spec->params[KS_QUANTIZE_SCALE_PER].i == KS_SCALE_ROW;
    return (ks_rows){.dims = spec->in[0].rank - 1, .cut = own ? 3 : 1, .out = 1};
}

/* --- values that decide ---------------------------------------------------------------------------------------------- */

/* ks_op.check */
static bool quantize_check(const ks_spec *spec, const void *const *in, ks_bad_value *bad)
{
    return ks_places_no_scale(spec, in, KS_QUANTIZE_SCALE, bad);
}

/* --- the descriptors ------------------------------------------------------------------------------------------------- */

static const ks_preset quantize_presets[] = {
    {.suffix = "int8", .param = KS_QUANTIZE_OUT_DATATYPE, .value = {.i = 0}, .narrow = true},
    {.suffix = "fp8", .param = KS_QUANTIZE_OUT_DATATYPE, .value = {.i = 1}, .narrow = true}};

const ks_op ks_op_quantize = {
    .name = "quantize",
    .inputs_count = KS_QUANTIZE_INPUTS,
    .inputs =
        {[KS_QUANTIZE_X] = {.name = "INPUT0", .role = "x", .dtypes = REALS, .rank_min = 1, .rank_max = KS_RANK_MAX},
         [KS_QUANTIZE_SCALE] = {.name = "INPUT1",
                                .role = "scale",
                                .dtypes = KS_DTYPE_BIT(KS_FP32),
                                .rank_min = 0,
                                .rank_max = KS_RANK_MAX - 1,
                                .rank = 1,
                                .optional = true,
                                .positive = true,
                                .small = true}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_QUANTIZE_PARAMS,
    .params = {[KS_QUANTIZE_OUT_DATATYPE] =
                   {.name = "out_datatype", .kind = KS_PARAM_CHOICE, .choices = narrow_names, .status = KS_PARAMETER},
               [KS_QUANTIZE_SCALE_PER] =
                   {.name = "scale_per", .kind = KS_PARAM_CHOICE, .choices = pers, .status = KS_PARAMETER}},
    .presets_count = sizeof quantize_presets / sizeof *quantize_presets,
    .presets = quantize_presets,
    .resolve = quantize_resolve,
    .rows = quantize_rows,
    .sample = quantize_sample,
    .decides = 1u << KS_QUANTIZE_SCALE,
    .check = quantize_check,
    .refuse = ks_places_refuse_scale,
};

const ks_op ks_op_dequantize = {
    .name = "dequantize",
    .inputs_count = KS_QUANTIZE_INPUTS,
    .inputs =
        {[KS_QUANTIZE_X] = {.name = "INPUT0", .role = "x", .dtypes = NARROW, .rank_min = 1, .rank_max = KS_RANK_MAX},
         [KS_QUANTIZE_SCALE] = {.name = "INPUT1",
                                .role = "scale",
                                .dtypes = KS_DTYPE_BIT(KS_FP32),
                                .rank_min = 0,
                                .rank_max = KS_RANK_MAX - 1,
                                .rank = 1,
                                .positive = true,
                                .small = true}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_QUANTIZE_PARAMS,
    .params = {[KS_QUANTIZE_OUT_DATATYPE] =
                   {.name = "out_datatype", .kind = KS_PARAM_CHOICE, .choices = real_names, .status = KS_PARAMETER},
               [KS_QUANTIZE_SCALE_PER] =
                   {.name = "scale_per", .kind = KS_PARAM_CHOICE, .choices = pers, .status = KS_PARAMETER}},
    .resolve = dequantize_resolve,
    .rows = dequantize_rows,
    .sample = dequantize_sample,
    .decides = 1u << KS_QUANTIZE_SCALE,
    .check = quantize_check,
    .refuse = ks_places_refuse_scale,
};
