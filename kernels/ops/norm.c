/* Normalisation of rows, with what stands around it: descriptor and rules.
 *
 *   s       = x + pre_bias + residual
 *   layer   n = (s - mean s) / sqrt(var s + eps), over the last axes; var without Bessel's correction
 *   rms     n = s / sqrt(mean s^2 + eps), likewise
 *   l2      n = s / max(|s|, eps), likewise
 *   group   as layer, over C / groups channels and all axes behind them; x is [N, C, ...]
 *   OUTPUT0 = activation(n * weight + bias), OUTPUT1 = s
 *
 * Shapes   weight and bias have the extents of the normalised axes, of group [C]; residual has x's; pre_bias [last extent of x].
 * Values   NaN and infinity: what the formula gives, in their row alone. A constant row gives the bias; with eps 0 NaN. */
#include "ops/norm.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DTYPES = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64) };
extern const ks_op ks_op_norm;

static const char *const kinds[] = {"layer", "rms", "l2", "group", NULL}; /* as ks_norm_kind */
static const char *const activations[] = {KS_ACTIVATION_TABLE(KS_ACTIVATION_TEXT) NULL};
static const char *const out_datatypes[] = {"input", "FP16", "BF16", "FP32", "FP64", NULL};
static const ks_dtype out_dtypes[] = {KS_BOOL /* x's */, KS_FP16, KS_BF16, KS_FP32, KS_FP64};

static ks_norm_kind kind_of(const ks_spec *spec)
{
    return (ks_norm_kind)spec->params[KS_NORM_KIND].i;
}

/* --- what is accepted ------------------------------------------------------------------------------------------------ */

static ks_status check_datatypes(const ks_spec *spec, ks_error *error)
{
    const ks_input *row = spec->op->inputs;
    const ks_dtype x = spec->in[KS_NORM_X].dtype;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        const ks_dtype dtype = spec->in[i].dtype;
        if (!(DTYPES & KS_DTYPE_BIT(dtype)))
            return ks_fail(error, KS_DATATYPE, "norm: %s has datatype %s, takes FP32, FP16, BF16 or FP64", row[i].name,
                           ks_dtype_name(dtype));
        if (dtype != x && (i == KS_NORM_RESIDUAL || dtype != KS_FP32))
            return ks_fail(error, KS_DATATYPE, "norm: %s (%s) has datatype %s, INPUT0 %s; it must be equal%s",
                           row[i].name, row[i].role, ks_dtype_name(dtype), ks_dtype_name(x),
                           i == KS_NORM_RESIDUAL ? "" : " or FP32");
    }
    return KS_OK;
}

static ks_status check_ranks(ks_spec *spec, ks_error *error)
{
    const ks_input *row = spec->op->inputs;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        ks_tensor *in = &spec->in[i];
        if (in->rank < row[i].rank_min || in->rank > row[i].rank_max)
            return ks_fail(error, KS_SHAPE, "norm: %s has rank %d, takes %d to %d", row[i].name, in->rank,
                           row[i].rank_min, row[i].rank_max);
        const ks_status status = ks_tensor_measure(in, row[i].name, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

/* The first normalised axis. The list becomes the sorted one of all axes from there on. */
static ks_status resolve_axes(int rank, ks_axes *axes, ks_error *error)
{
    unsigned set = axes->count == -1 ? (1u << rank) - 1 : 0;
    if (axes->count != -1 && (axes->count < 1 || axes->count > KS_RANK_MAX))
        return ks_fail(error, KS_AXIS, "norm: axis lists %d axes, takes 1 to %d", axes->count, KS_RANK_MAX);
    for (int i = 0; i < axes->count; i++) {
        const int axis = axes->axis[i];
        if (axis < -rank || axis >= rank)
            return ks_fail(error, KS_AXIS, "norm: axis %d is outside [%d, %d) of INPUT0's rank", axis, -rank, rank);
        const unsigned bit = 1u << (axis < 0 ? axis + rank : axis);
        if (set & bit) return ks_fail(error, KS_AXIS, "norm: axis %d is listed twice", axis);
        set |= bit;
    }
    const int first = __builtin_ctz(set), count = __builtin_popcount(set);
    if (first + count != rank)
        return ks_fail(error, KS_AXIS, "norm: axis lists %d axes from %d on, needs the last ones of INPUT0's rank %d",
                       count, first, rank);
    memset(axes, 0, sizeof *axes);
    for (int i = first; i < rank; i++) axes->axis[axes->count++] = (int8_t)i;
    return KS_OK;
}

/* A group's axes follow from its kind: -1 stands for them. */
static ks_status resolve_group(ks_spec *spec, ks_error *error)
{
    const ks_tensor *x = &spec->in[KS_NORM_X];
    const ks_axes *axes = &spec->params[KS_NORM_AXIS].axes;
    const int64_t groups = spec->params[KS_NORM_GROUPS].i;
    if (axes->count != 1 || axes->axis[0] != -1)
        return ks_fail(error, KS_AXIS, "norm: group takes no axis: it normalises channels, axis 1, and all behind it");
    if (x->rank < 2) return ks_fail(error, KS_SHAPE, "norm: INPUT0 has rank %d, group needs 2 to 8", x->rank);
    if (groups < 1 || x->dims[1] % groups != 0)
        return ks_fail(error, KS_PARAMETER,
                       "norm: groups is %" PRId64 ", which does not divide the %" PRId64 " channels", groups,
                       x->dims[1]);
    return KS_OK;
}

static ks_status resolve_params(ks_spec *spec, ks_error *error)
{
    double *eps = &spec->params[KS_NORM_EPS].d;
    const int64_t groups = spec->params[KS_NORM_GROUPS].i;
    if (isnan(*eps)) *eps = kind_of(spec) == KS_NORM_L2 ? 1e-12 : 1e-5; /* the preset */
    if (!(*eps >= 0 && *eps <= 1e300))
        return ks_fail(error, KS_PARAMETER, "norm: parameter 'eps' is %g, takes 0 to 1e300", *eps);
    if (*eps == 0) *eps = 0; /* -0 is the same work */
    if (kind_of(spec) == KS_NORM_GROUP) return resolve_group(spec, error);
    if (groups != 1)
        return ks_fail(error, KS_PARAMETER, "norm: groups is %" PRId64 ", and kind '%s' has 1: only group takes it",
                       groups, kinds[kind_of(spec)]);
    return resolve_axes(spec->in[KS_NORM_X].rank, &spec->params[KS_NORM_AXIS].axes, error);
}

static ks_status unlike(const ks_spec *spec, int input, const int64_t *dims, int rank, ks_error *error)
{
    char has[KS_RANK_MAX * 21], needs[KS_RANK_MAX * 21];
    ks_tensor wanted = {.rank = rank};
    memcpy(wanted.dims, dims, (size_t)rank * sizeof *dims);
    ks_dims_text(&spec->in[input], has, sizeof has);
    ks_dims_text(&wanted, needs, sizeof needs);
    return ks_fail(error, KS_SHAPE, "norm: %s (%s) has shape [%s], needs [%s]", spec->op->inputs[input].name,
                   spec->op->inputs[input].role, has, needs);
}

static ks_status check_shapes(const ks_spec *spec, ks_error *error)
{
    const ks_tensor *x = &spec->in[KS_NORM_X];
    const bool group = kind_of(spec) == KS_NORM_GROUP;
    const int first = group ? 1 : spec->params[KS_NORM_AXIS].axes.axis[0];
    const struct {
        int first, count;
    } needs[] = {[KS_NORM_X] = {0, x->rank},
                 [KS_NORM_WEIGHT] = {first, group ? 1 : x->rank - first},
                 [KS_NORM_BIAS] = {first, group ? 1 : x->rank - first},
                 [KS_NORM_RESIDUAL] = {0, x->rank},
                 [KS_NORM_PRE_BIAS] = {x->rank - 1, 1}};
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i)) {
        const int64_t *dims = x->dims + needs[i].first;
        if (spec->in[i].rank != needs[i].count ||
            memcmp(spec->in[i].dims, dims, (size_t)needs[i].count * sizeof *dims) != 0)
            return unlike(spec, i, dims, needs[i].count, error);
    }
    return KS_OK;
}

/* ks_resolve_fn */
static ks_status norm_resolve(ks_spec *spec, ks_error *error)
{
    ks_status status = check_datatypes(spec, error);
    if (status == KS_OK) status = check_ranks(spec, error);
    if (status == KS_OK) status = resolve_params(spec, error);
    if (status == KS_OK) status = check_shapes(spec, error);
    if (status != KS_OK) return status;
    const ks_tensor *x = &spec->in[KS_NORM_X];
    const ks_norm_shape shape = ks_norm_shape_of(spec);
    if (shape.length == 0)
        return ks_fail(error, KS_EMPTY, "norm: %s of nothing: INPUT0 has 0 elements along the normalised axes",
                       kinds[kind_of(spec)]);
    const int64_t wanted = spec->params[KS_NORM_OUT_DATATYPE].i;
    spec->outputs = spec->params[KS_NORM_SUM_OUT].i ? 2 : 1;
    for (int i = 0; i < spec->outputs; i++) {
        spec->out[i] = (ks_tensor){.dtype = i == 0 && wanted ? out_dtypes[wanted] : x->dtype, .rank = x->rank};
        memcpy(spec->out[i].dims, x->dims, sizeof x->dims);
        status = ks_tensor_measure(&spec->out[i], ks_output_name(i), error);
        if (status != KS_OK) return status;
    }
    spec->flops = (shape.activation > KS_ACTIVATION_RELU ? 20.0 : 10.0) * (double)ks_tensor_count(x);
    return KS_OK;
}

/* ks_sample_fn: all inputs, and both outputs. */
static void norm_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_norm);
    spec->in[KS_NORM_X] = spec->in[KS_NORM_RESIDUAL] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
    spec->in[KS_NORM_WEIGHT] = spec->in[KS_NORM_BIAS] = spec->in[KS_NORM_PRE_BIAS] =
        (ks_tensor){.dtype = KS_FP32, .rank = 1, .dims = {1000}};
    spec->given = (1u << KS_NORM_INPUTS) - 1;
    spec->params[KS_NORM_SUM_OUT].i = 1;
    spec->params[KS_NORM_ACTIVATION].i = KS_ACTIVATION_GELU;
}

/* --- as rows --------------------------------------------------------------------------------------------------------- */

static int first_axis(const ks_spec *spec)
{
    return kind_of(spec) == KS_NORM_GROUP ? 1 : spec->params[KS_NORM_AXIS].axes.axis[0];
}

ks_norm_shape ks_norm_shape_of(const ks_spec *spec)
{
    const ks_tensor *x = &spec->in[KS_NORM_X];
    const ks_norm_kind kind = kind_of(spec);
    const int first = first_axis(spec);
    ks_norm_shape s = {.rows = ks_dims_product(x->dims, 0, first),
                       .length = ks_dims_product(x->dims, first, x->rank),
                       .groups = 1,
                       .inner = 1,
                       .last = x->dims[x->rank - 1],
                       .centred = kind == KS_NORM_LAYER || kind == KS_NORM_GROUP,
                       .averaged = kind != KS_NORM_L2,
                       .eps = spec->params[KS_NORM_EPS].d,
                       .activation = (ks_activation)spec->params[KS_NORM_ACTIVATION].i};
    if (kind == KS_NORM_GROUP) {
        s.groups = spec->params[KS_NORM_GROUPS].i;
        s.inner = ks_dims_product(x->dims, 2, x->rank);
        s.rows *= s.groups;
        s.length /= s.groups;
    }
    s.channels = s.inner ? s.length / s.inner : 0;
    return s;
}

/* Rows that follow each other in memory: the first dimension of a group, and what is in front of the normalised axes. */
static ks_rows norm_rows(const ks_spec *spec)
{
    return (ks_rows){.dims = first_axis(spec),
                     .cut = (uint16_t)(spec->given & (1u << KS_NORM_X | 1u << KS_NORM_RESIDUAL)),
                     .out = (uint8_t)((1u << spec->outputs) - 1)};
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_fixed keeps_sum[] = {{.param = KS_NORM_SUM_OUT, .value = {.i = 1}}};
static const ks_preset presets[] = {
    {.suffix = "layer", .param = KS_NORM_KIND, .value = {.i = KS_NORM_LAYER}, .narrow = true},
    {.suffix = "layer_wb",
     .param = KS_NORM_KIND,
     .value = {.i = KS_NORM_LAYER},
     .inputs = 1u << KS_NORM_WEIGHT | 1u << KS_NORM_BIAS,
     .narrow = true},
    {.suffix = "rms_w",
     .param = KS_NORM_KIND,
     .value = {.i = KS_NORM_RMS},
     .inputs = 1u << KS_NORM_WEIGHT,
     .narrow = true},
    {.suffix = "add_rms",
     .param = KS_NORM_KIND,
     .value = {.i = KS_NORM_RMS},
     .more = keeps_sum,
     .more_count = 1,
     .inputs = 1u << KS_NORM_WEIGHT | 1u << KS_NORM_RESIDUAL,
     .narrow = true},
    {.suffix = "l2", .param = KS_NORM_KIND, .value = {.i = KS_NORM_L2}, .narrow = true}};

const ks_op ks_op_norm = {
    .name = "norm",
    .inputs_count = KS_NORM_INPUTS,
    .inputs = {[KS_NORM_X] = {.name = "INPUT0", .role = "x", .dtypes = DTYPES, .rank_min = 1, .rank_max = KS_RANK_MAX},
               [KS_NORM_WEIGHT] = {.name = "INPUT1",
                                   .role = "weight",
                                   .rank_min = 1,
                                   .rank_max = KS_RANK_MAX,
                                   .rank = 1,
                                   .optional = true,
                                   .small = true},
               [KS_NORM_BIAS] = {.name = "INPUT2",
                                 .role = "bias",
                                 .rank_min = 1,
                                 .rank_max = KS_RANK_MAX,
                                 .rank = 1,
                                 .optional = true,
                                 .small = true},
               [KS_NORM_RESIDUAL] =
                   {.name = "INPUT3", .role = "residual", .rank_min = 1, .rank_max = KS_RANK_MAX, .optional = true},
               [KS_NORM_PRE_BIAS] = {.name = "INPUT4",
                                     .role = "pre_bias",
                                     .rank_min = 1,
                                     .rank_max = 1,
                                     .optional = true,
                                     .small = true}},
    .in_rank = 2,
    .out_rank = 2,
    .outputs_max = 2,
    .params_count = KS_NORM_PARAMS,
    .params =
        {[KS_NORM_KIND] = {.name = "kind", .kind = KS_PARAM_CHOICE, .choices = kinds, .status = KS_PARAMETER},
         [KS_NORM_AXIS] =
             {.name = "axis", .kind = KS_PARAM_AXES, .preset = {.axes = {.count = 1, .axis = {-1}}}, .status = KS_AXIS},
         [KS_NORM_GROUPS] = {.name = "groups", .kind = KS_PARAM_INT, .preset = {.i = 1}, .status = KS_PARAMETER},
         /* Which number it is follows from the kind, so the preset is one that no request can send. */
         [KS_NORM_EPS] = {.name = "eps", .kind = KS_PARAM_NUMBER, .preset = {.d = (double)NAN}, .status = KS_PARAMETER},
         [KS_NORM_ACTIVATION] =
             {.name = "activation", .kind = KS_PARAM_CHOICE, .choices = activations, .status = KS_PARAMETER},
         [KS_NORM_SUM_OUT] = {.name = "sum_out", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
         [KS_NORM_OUT_DATATYPE] =
             {.name = "out_datatype", .kind = KS_PARAM_CHOICE, .choices = out_datatypes, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = norm_resolve,
    .rows = norm_rows,
    .sample = norm_sample,
};
