/* Reductions over one axis, a list of axes or all: descriptor and rules.
 *
 * Values   sums and products of integers wrap in INT64; means of integers, and their l2norm and logsumexp, are FP64.
 *          max and min give NaN where there is one; argmax and argmin the first NaN, else the first extremum. Of
 *          nothing: sum 0, prod 1, l2norm 0, logsumexp -inf, the others KS_EMPTY.
 * Numbers  everything is accumulated in double or in 64-bit integers and rounded once. */
#include "ops/reduce.h"

#include <inttypes.h>
#include <string.h>

extern const ks_op ks_op_reduce;

static const char *const op_names[] = {"sum",    "mean",   "max",    "min",       "prod",
                                       "argmax", "argmin", "l2norm", "logsumexp", NULL};

/* --- rules ----------------------------------------------------------------------------------------------------------- */

static ks_status check_input(const ks_input *row, ks_tensor *in, ks_error *error)
{
    if (!(row->dtypes & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE,
                       "reduce: %s has datatype %s, takes FP16 to FP64, BF16, INT8 to INT64 or UINT8 to UINT64",
                       row->name, ks_dtype_name(in->dtype));
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "reduce: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                       row->rank_max);
    return ks_tensor_measure(in, row->name, error);
}

/* Sorted, from 0, each once, unused places 0. "All" is spelled out, but for arg, where it means the flat index. */
static ks_status resolve_axes(int rank, int op, ks_axes *axes, ks_error *error)
{
    const bool arg = op == ARGMAX || op == ARGMIN;
    unsigned set = 0;
    if (axes->count == -1) {
        set = (1u << rank) - 1;
    } else if (axes->count < 1 || axes->count > KS_RANK_MAX) {
        return ks_fail(error, KS_AXIS, "reduce: axis lists %d axes, takes 1 to %d", axes->count, KS_RANK_MAX);
    } else if (arg && axes->count > 1) {
        return ks_fail(error, KS_AXIS, "reduce: %s takes one axis or \"all\", axis lists %d", op_names[op],
                       axes->count);
    }
    for (int i = 0; i < axes->count; i++) {
        const int axis = axes->axis[i];
        if (axis < -rank || axis >= rank)
            return ks_fail(error, KS_AXIS, "reduce: axis %d is outside [%d, %d) of INPUT0's rank", axis, -rank, rank);
        const unsigned bit = 1u << (axis < 0 ? axis + rank : axis);
        if (set & bit) return ks_fail(error, KS_AXIS, "reduce: axis %d is listed twice", axis);
        set |= bit;
    }
    const bool flat = arg && axes->count == -1 && rank > 1;
    memset(axes, 0, sizeof *axes);
    for (int i = 0; i < rank && !flat; i++)
        if (set >> i & 1) axes->axis[axes->count++] = (int8_t)i;
    if (flat) axes->count = -1;
    return KS_OK;
}

static ks_dtype out_dtype(int op, ks_dtype in)
{
    if (op == ARGMAX || op == ARGMIN) return KS_INT64;
    if (op == MAX || op == MIN || FLOATS & KS_DTYPE_BIT(in)) return in;
    return op == SUM || op == PROD ? KS_INT64 : KS_FP64;
}

/* ks_resolve_fn */
static ks_status reduce_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    ks_status status = check_input(&spec->op->inputs[0], in, error);
    if (status != KS_OK) return status;
    const int op = (int)spec->params[OP].i;
    if (op < 0 || op >= OPS) return ks_fail(error, KS_PARAMETER, "reduce: op %d is not one of %d", op, OPS);
    status = resolve_axes(in->rank, op, &spec->params[AXIS].axes, error);
    if (status != KS_OK) return status;

    const unsigned set = ks_reduce_axes(spec);
    const bool keep = spec->params[KEEPDIMS].i != 0;
    ks_tensor out = {.dtype = out_dtype(op, in->dtype)};
    int64_t extent = 1;
    for (int i = 0; i < in->rank; i++) {
        const bool reduced = set >> i & 1;
        if (reduced) extent *= in->dims[i];
        if (!reduced || keep) out.dims[out.rank++] = reduced ? 1 : in->dims[i];
    }
    if (extent == 0 && op != SUM && op != PROD && op != L2NORM && op != LOGSUMEXP)
        return ks_fail(error, KS_EMPTY, "reduce: %s of nothing: INPUT0 has 0 elements along axis", op_names[op]);
    status = ks_tensor_measure(&out, ks_output_name(0), error);
    if (status != KS_OK) return status;
    spec->out[0] = out;
    spec->outputs = 1;
    spec->flops = (double)ks_tensor_count(in) * (op == LOGSUMEXP ? 10 : op == L2NORM ? 2 : 1);
    return KS_OK;
}

/* Axes are sorted: the first one is the lowest. */
static ks_rows reduce_rows(const ks_spec *spec)
{
    return (ks_rows){.dims = spec->params[AXIS].axes.axis[0], .cut = 1, .out = 1};
}

/* ks_sample_fn */
static void reduce_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_reduce);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
}

#define OP_PRESET(text, value_)                                                                                        \
    {                                                                                                                  \
        .suffix = text, .param = OP, .value = {.i = value_ }                                                           \
    }
static const ks_preset presets[] = {
    OP_PRESET("sum", SUM),
    OP_PRESET("mean", MEAN),
    OP_PRESET("max", MAX),
    OP_PRESET("min", MIN),
    OP_PRESET("prod", PROD),
    OP_PRESET("argmax", ARGMAX),
    OP_PRESET("argmin", ARGMIN),
    OP_PRESET("l2norm", L2NORM),
    OP_PRESET("logsumexp", LOGSUMEXP),
    {.suffix = "vec", .param = -1, .in_rank = 1, .out_rank = -1},
};

const ks_op ks_op_reduce = {
    .name = "reduce",
    .inputs_count = 1,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = FLOATS | INTEGERS, .rank_min = 1, .rank_max = KS_RANK_MAX}},
    .in_rank = 2,
    .out_rank = 1,
    .params_count = 3,
    .params = {[OP] = {.name = "op",
                       .kind = KS_PARAM_CHOICE,
                       .preset = {.i = SUM},
                       .choices = op_names,
                       .status = KS_PARAMETER},
               [AXIS] = {.name = "axis",
                         .kind = KS_PARAM_AXES,
                         .preset = {.axes = {.count = 1, .axis = {-1}}},
                         .status = KS_AXIS},
               [KEEPDIMS] = {.name = "keepdims", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = reduce_resolve,
    .rows = reduce_rows,
    .sample = reduce_sample,
};
