/* Counts of values by bins: descriptor and rules.
 *
 * Values   bin b of `bins` begins at edge(b) = min + b * width, with width = (max - min) / bins, in FP64, the product and the sum rounded each.
 *          A value belongs to the last bin whose edge does not exceed it; the last bin has max as well. Values outside, and NaN, are not
 *          counted. Integers without min and max are bins by themselves: 0 to bins - 1.
 * Limits   bins from 1 to KS_HISTOGRAM_BINS_MOST. */
#include "ops/histogram/histogram.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    FLOATS = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64),
    INTEGERS = KS_DTYPE_BIT(KS_INT8) | KS_DTYPE_BIT(KS_INT16) | KS_DTYPE_BIT(KS_INT32) | KS_DTYPE_BIT(KS_INT64) |
               KS_DTYPE_BIT(KS_UINT8) | KS_DTYPE_BIT(KS_UINT16) | KS_DTYPE_BIT(KS_UINT32) | KS_DTYPE_BIT(KS_UINT64)
};
extern const ks_op ks_op_histogram;

/* --- rules ----------------------------------------------------------------------------------------------------------- */

static ks_status check_input(const ks_input *row, ks_tensor *in, ks_error *error)
{
    if (!(row->dtypes & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE,
                       "histogram: %s has datatype %s, takes FP16 to FP64, BF16, INT8 to INT64 or UINT8 to UINT64",
                       row->name, ks_dtype_name(in->dtype));
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "histogram: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                       row->rank_max);
    return ks_tensor_measure(in, row->name, error);
}

/* Sorted, from 0, each once, unused places 0; "all" is spelled out. They are the last ones of the tensor. */
static ks_status resolve_axes(int rank, ks_axes *axes, ks_error *error)
{
    unsigned set = 0;
    if (axes->count == -1) {
        set = (1u << rank) - 1;
    } else if (axes->count < 1 || axes->count > KS_RANK_MAX) {
        return ks_fail(error, KS_AXIS, "histogram: axis lists %d axes, takes 1 to %d", axes->count, KS_RANK_MAX);
    }
    for (int i = 0; i < axes->count; i++) {
        const int axis = axes->axis[i];
        if (axis < -rank || axis >= rank)
            return ks_fail(error, KS_AXIS, "histogram: axis %d is outside [%d, %d) of INPUT0's rank", axis, -rank,
                           rank);
        const unsigned bit = 1u << (axis < 0 ? axis + rank : axis);
        if (set & bit) return ks_fail(error, KS_AXIS, "histogram: axis %d is listed twice", axis);
        set |= bit;
    }
    const int first = __builtin_ctz(set);
    if (set != ((1u << rank) - 1) >> first << first)
        return ks_fail(error, KS_AXIS, "histogram: axis does not list the last axes of INPUT0, whose rank is %d", rank);
    memset(axes, 0, sizeof *axes);
    for (int i = first; i < rank; i++) axes->axis[axes->count++] = (int8_t)i;
    return KS_OK;
}

static ks_status check_range(const ks_spec *spec, ks_error *error)
{
    const double min = spec->params[KS_HISTOGRAM_MIN].d, max = spec->params[KS_HISTOGRAM_MAX].d;
    if (isnan(min) && isnan(max)) {
        if (!(FLOATS & KS_DTYPE_BIT(spec->in[0].dtype))) return KS_OK;
        return ks_fail(error, KS_PARAMETER, "histogram: INPUT0 has datatype %s, which needs parameters 'min' and 'max'",
                       ks_dtype_name(spec->in[0].dtype));
    }
    if (isnan(min) || isnan(max))
        return ks_fail(error, KS_PARAMETER, "histogram: parameter '%s' is given without '%s'",
                       isnan(min) ? "max" : "min", isnan(min) ? "min" : "max");
    if (!(min < max))
        return ks_fail(error, KS_PARAMETER, "histogram: parameter 'min' is %g, not below 'max', which is %g", min, max);
    if (!isfinite(max - min))
        return ks_fail(error, KS_PARAMETER, "histogram: from 'min', %g, to 'max', %g, is more than FP64 holds", min,
                       max);
    if (!isfinite((double)spec->params[KS_HISTOGRAM_BINS].i / (max - min)))
        return ks_fail(error, KS_PARAMETER, "histogram: from 'min', %g, to 'max', %g, is too little for its bins", min,
                       max);
    return KS_OK;
}

/* ks_resolve_fn */
static ks_status histogram_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    ks_axes *axes = &spec->params[KS_HISTOGRAM_AXIS].axes;
    const int64_t bins = spec->params[KS_HISTOGRAM_BINS].i;
    ks_status status = check_input(&spec->op->inputs[0], in, error);
    if (status == KS_OK) status = resolve_axes(in->rank, axes, error);
    if (status != KS_OK) return status;
    if (bins < 1 || bins > KS_HISTOGRAM_BINS_MOST)
        return ks_fail(error, KS_PARAMETER, "histogram: parameter 'bins' is %" PRId64 ", takes 1 to %d", bins,
                       KS_HISTOGRAM_BINS_MOST);
    status = check_range(spec, error);
    if (status != KS_OK) return status;
    ks_tensor counts = {.dtype = KS_INT64};
    while (counts.rank < axes->axis[0]) {
        counts.dims[counts.rank] = in->dims[counts.rank];
        counts.rank++;
    }
    counts.dims[counts.rank++] = bins;
    spec->outputs = spec->params[KS_HISTOGRAM_EDGES].i ? 2 : 1;
    spec->out[0] = counts;
    if (spec->outputs == 2) spec->out[1] = (ks_tensor){.dtype = KS_FP64, .rank = 1, .dims = {bins + 1}};
    spec->flops = (double)ks_tensor_count(in) * 4;
    for (int i = 0; i < spec->outputs && status == KS_OK; i++)
        status = ks_tensor_measure(&spec->out[i], ks_output_name(i), error);
    return status;
}

/* ks_sample_fn */
static void histogram_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_histogram);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
    spec->params[KS_HISTOGRAM_BINS].i = 100;
    spec->params[KS_HISTOGRAM_MIN].d = -1;
    spec->params[KS_HISTOGRAM_MAX].d = 1;
    spec->params[KS_HISTOGRAM_AXIS].axes = (ks_axes){.count = 1, .axis = {-1}};
}

/* --- as rows --------------------------------------------------------------------------------------------------------- */

ks_histogram_shape ks_histogram_shape_of(const ks_spec *spec)
{
    const ks_tensor *in = &spec->in[0];
    const int first = spec->params[KS_HISTOGRAM_AXIS].axes.axis[0];
    return (ks_histogram_shape){.rows = ks_dims_product(in->dims, 0, first),
                                .length = ks_dims_product(in->dims, first, in->rank),
                                .bins = (int)spec->params[KS_HISTOGRAM_BINS].i,
                                .ranged = !isnan(spec->params[KS_HISTOGRAM_MIN].d),
                                .min = spec->params[KS_HISTOGRAM_MIN].d,
                                .max = spec->params[KS_HISTOGRAM_MAX].d,
                                .edges = spec->params[KS_HISTOGRAM_EDGES].i != 0,
                                .dtype = in->dtype};
}

double ks_histogram_width(const ks_histogram_shape *shape)
{
    return shape->ranged ? (shape->max - shape->min) / shape->bins : 1;
}

/* Edges are whole, so work with them is not cut. */
static ks_rows histogram_rows(const ks_spec *spec)
{
    const bool edges = spec->params[KS_HISTOGRAM_EDGES].i != 0;
    return (ks_rows){.dims = edges ? 0 : spec->params[KS_HISTOGRAM_AXIS].axes.axis[0], .cut = 1, .out = 1};
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_preset presets[] = {
    {.suffix = "256", .param = KS_HISTOGRAM_BINS, .value = {.i = 256}, .out_rank = 1, .first = KS_DTYPE_BIT(KS_UINT8)}};

const ks_op ks_op_histogram = {
    .name = "histogram",
    .inputs_count = 1,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = FLOATS | INTEGERS, .rank_min = 1, .rank_max = KS_RANK_MAX}},
    .in_rank = 2,
    .out_rank = 1,
    .outputs_max = 2,
    .params_count = KS_HISTOGRAM_PARAMS,
    .params =
        {[KS_HISTOGRAM_BINS] = {.name = "bins", .kind = KS_PARAM_INT, .preset = {.i = 256}, .status = KS_PARAMETER},
         [KS_HISTOGRAM_MIN] =
             {.name = "min", .kind = KS_PARAM_NUMBER, .preset = {.d = (double)NAN}, .status = KS_PARAMETER},
         [KS_HISTOGRAM_MAX] =
             {.name = "max", .kind = KS_PARAM_NUMBER, .preset = {.d = (double)NAN}, .status = KS_PARAMETER},
         [KS_HISTOGRAM_AXIS] =
             {.name = "axis", .kind = KS_PARAM_AXES, .preset = {.axes = {.count = -1}}, .status = KS_AXIS},
         [KS_HISTOGRAM_EDGES] = {.name = "edges", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = histogram_resolve,
    .rows = histogram_rows,
    .sample = histogram_sample,
};
