/* Prefixes along an axis: descriptor and rules.
 *
 * Values   OUTPUT0[i] joins INPUT0[0..i], with `exclusive` INPUT0[0..i-1] and the identity first; with `reverse` from the axis's end. Sums and
 *          products of integers wrap in INT64, their logsumexp is FP64; all else keeps the datatype. NaN stays from its place on. The identity
 *          of max and min is the least and the greatest value of the datatype, for floats an infinity.
 * Numbers  floats are added in leaves of FP32 (FP64: of FP64), what came before a leaf is FP64; one rounding. */
#include "ops/scan.h"

#include <inttypes.h>

enum {
    FLOATS = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64),
    INTEGERS = KS_DTYPE_BIT(KS_INT8) | KS_DTYPE_BIT(KS_INT16) | KS_DTYPE_BIT(KS_INT32) | KS_DTYPE_BIT(KS_INT64) |
               KS_DTYPE_BIT(KS_UINT8) | KS_DTYPE_BIT(KS_UINT16) | KS_DTYPE_BIT(KS_UINT32) | KS_DTYPE_BIT(KS_UINT64)
};
extern const ks_op ks_op_scan;

static const char *const op_names[] = {"sum", "prod", "max", "min", "logsumexp", NULL};

/* --- rules ----------------------------------------------------------------------------------------------------------- */

static ks_status check_input(const ks_input *row, ks_tensor *in, ks_error *error)
{
    if (!(row->dtypes & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE,
                       "scan: %s has datatype %s, takes FP16 to FP64, BF16, INT8 to INT64 or UINT8 to UINT64",
                       row->name, ks_dtype_name(in->dtype));
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "scan: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                       row->rank_max);
    return ks_tensor_measure(in, row->name, error);
}

static ks_status resolve_params(ks_spec *spec, ks_error *error)
{
    const ks_tensor *in = &spec->in[0];
    const int64_t op = spec->params[KS_SCAN_OP].i;
    int64_t *axis = &spec->params[KS_SCAN_AXIS].i;
    if (op < 0 || op >= KS_SCAN_OPS)
        return ks_fail(error, KS_PARAMETER, "scan: op %" PRId64 " is not one of %d", op, KS_SCAN_OPS);
    if (*axis < -in->rank || *axis >= in->rank)
        return ks_fail(error, KS_AXIS, "scan: axis %" PRId64 " is outside [%d, %d) of INPUT0's rank", *axis, -in->rank,
                       in->rank);
    if (*axis < 0) *axis += in->rank;
    return KS_OK;
}

static ks_dtype out_dtype(ks_scan_op op, ks_dtype in)
{
    if (FLOATS & KS_DTYPE_BIT(in) || op == KS_SCAN_MAX || op == KS_SCAN_MIN) return in;
    return op == KS_SCAN_LOGSUMEXP ? KS_FP64 : KS_INT64;
}

/* ks_resolve_fn */
static ks_status scan_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    ks_status status = check_input(&spec->op->inputs[0], in, error);
    if (status == KS_OK) status = resolve_params(spec, error);
    if (status != KS_OK) return status;
    const ks_scan_op op = (ks_scan_op)spec->params[KS_SCAN_OP].i;
    spec->outputs = 1;
    spec->out[0] = (ks_tensor){.dtype = out_dtype(op, in->dtype), .rank = in->rank};
    for (int d = 0; d < in->rank; d++) spec->out[0].dims[d] = in->dims[d];
    spec->flops = (double)ks_tensor_count(in) * (op == KS_SCAN_LOGSUMEXP ? 20 : 2);
    return ks_tensor_measure(&spec->out[0], ks_output_name(0), error);
}

/* ks_sample_fn */
static void scan_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_scan);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
}

/* --- as chains ------------------------------------------------------------------------------------------------------- */

ks_scan_shape ks_scan_shape_of(const ks_spec *spec)
{
    const ks_tensor *in = &spec->in[0];
    const int axis = (int)spec->params[KS_SCAN_AXIS].i;
    return (ks_scan_shape){.outer = ks_dims_product(in->dims, 0, axis),
                           .length = in->dims[axis],
                           .inner = ks_dims_product(in->dims, axis + 1, in->rank),
                           .op = (ks_scan_op)spec->params[KS_SCAN_OP].i,
                           .exclusive = spec->params[KS_SCAN_EXCLUSIVE].i != 0,
                           .reverse = spec->params[KS_SCAN_REVERSE].i != 0,
                           .dtype = in->dtype,
                           .out_dtype = spec->out[0].dtype};
}

static ks_rows scan_rows(const ks_spec *spec)
{
    return (ks_rows){.dims = (int)spec->params[KS_SCAN_AXIS].i, .cut = 1, .out = 1};
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_preset presets[] = {{.suffix = "sum", .param = KS_SCAN_OP, .value = {.i = KS_SCAN_SUM}}};

const ks_op ks_op_scan = {
    .name = "scan",
    .inputs_count = 1,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = FLOATS | INTEGERS, .rank_min = 1, .rank_max = KS_RANK_MAX}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_SCAN_PARAMS,
    .params = {[KS_SCAN_OP] = {.name = "op",
                               .kind = KS_PARAM_CHOICE,
                               .preset = {.i = KS_SCAN_SUM},
                               .choices = op_names,
                               .status = KS_PARAMETER},
               [KS_SCAN_AXIS] = {.name = "axis", .kind = KS_PARAM_INT, .preset = {.i = -1}, .status = KS_AXIS},
               [KS_SCAN_EXCLUSIVE] = {.name = "exclusive", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
               [KS_SCAN_REVERSE] = {.name = "reverse", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = scan_resolve,
    .rows = scan_rows,
    .sample = scan_sample,
};
