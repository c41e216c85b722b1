/* The k first elements along an axis, with their indices: descriptor and rules.
 *
 * Values   the order is total: the larger value first, NaN above infinity, -0 equal to +0, of equal ones the lower index first; with
 *          largest false the smaller value first, NaN last, and the lower index first again. So the answer is unique. Values keep
 *          their bits.
 * Limits   k up to KS_TOPK_MOST and up to the extent of the axis. */
#include "ops/topk/topk.h"

#include <inttypes.h>

enum {
    FLOATS = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64),
    INTEGERS = KS_DTYPE_BIT(KS_INT8) | KS_DTYPE_BIT(KS_INT16) | KS_DTYPE_BIT(KS_INT32) | KS_DTYPE_BIT(KS_INT64) |
               KS_DTYPE_BIT(KS_UINT8) | KS_DTYPE_BIT(KS_UINT16) | KS_DTYPE_BIT(KS_UINT32) | KS_DTYPE_BIT(KS_UINT64)
};
extern const ks_op ks_op_topk;

static const char *const index_datatypes[] = {"INT64", "INT32", NULL};
static const ks_dtype index_dtypes[] = {KS_INT64, KS_INT32};

/* --- rules ----------------------------------------------------------------------------------------------------------- */

static ks_status check_input(const ks_input *row, ks_tensor *in, ks_error *error)
{
    if (!(row->dtypes & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE,
                       "topk: %s has datatype %s, takes FP16 to FP64, BF16, INT8 to INT64 or UINT8 to UINT64",
                       row->name, ks_dtype_name(in->dtype));
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "topk: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                       row->rank_max);
    return ks_tensor_measure(in, row->name, error);
}

static ks_status resolve_params(ks_spec *spec, ks_error *error)
{
    const ks_tensor *in = &spec->in[0];
    int64_t *axis = &spec->params[KS_TOPK_AXIS].i;
    const int64_t k = spec->params[KS_TOPK_K].i, given = *axis;
    if (given < -in->rank || given >= in->rank)
        return ks_fail(error, KS_AXIS, "topk: axis %" PRId64 " is outside [%d, %d) of INPUT0's rank", given, -in->rank,
                       in->rank);
    if (given < 0) *axis += in->rank;
    const int64_t extent = in->dims[*axis];
    if (extent == 0)
        return ks_fail(error, KS_EMPTY, "topk: the first of nothing: INPUT0 has 0 elements along axis %" PRId64, given);
    if (k < 1 || k > KS_TOPK_MOST)
        return ks_fail(error, KS_PARAMETER, "topk: parameter 'k' is %" PRId64 ", takes 1 to %d", k, KS_TOPK_MOST);
    if (k > extent)
        return ks_fail(error, KS_PARAMETER,
                       "topk: parameter 'k' is %" PRId64 ", INPUT0 has %" PRId64 " elements along axis %" PRId64, k,
                       extent, given);
    if (index_dtypes[spec->params[KS_TOPK_INDEX_DATATYPE].i] == KS_INT32 && extent - 1 > INT32_MAX)
        return ks_fail(error, KS_PARAMETER,
                       "topk: parameter 'index_datatype' is INT32, INPUT0 has %" PRId64 " elements along axis %" PRId64,
                       extent, given);
    spec->params[KS_TOPK_SORTED].i = 1; /* the order that is promised is also as good as any where none is */
    return KS_OK;
}

/* ks_resolve_fn */
static ks_status topk_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    ks_status status = check_input(&spec->op->inputs[0], in, error);
    if (status == KS_OK) status = resolve_params(spec, error);
    spec->outputs = 2;
    for (int i = 0; i < spec->outputs && status == KS_OK; i++) {
        spec->out[i] = (ks_tensor){.rank = in->rank};
        spec->out[i].dtype = i ? index_dtypes[spec->params[KS_TOPK_INDEX_DATATYPE].i] : in->dtype;
        for (int d = 0; d < in->rank; d++) spec->out[i].dims[d] = in->dims[d];
        spec->out[i].dims[spec->params[KS_TOPK_AXIS].i] = spec->params[KS_TOPK_K].i;
        status = ks_tensor_measure(&spec->out[i], ks_output_name(i), error);
    }
    spec->flops = 2 * (double)ks_tensor_count(in);
    return status;
}

/* ks_sample_fn */
static void topk_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_topk);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
    spec->params[KS_TOPK_K].i = 10;
}

/* --- as rows --------------------------------------------------------------------------------------------------------- */

ks_topk_shape ks_topk_shape_of(const ks_spec *spec)
{
    const ks_tensor *in = &spec->in[0];
    const int axis = (int)spec->params[KS_TOPK_AXIS].i;
    const int64_t inner = ks_dims_product(in->dims, axis + 1, in->rank);
    return (ks_topk_shape){.rows = ks_dims_product(in->dims, 0, axis) * inner,
                           .length = in->dims[axis],
                           .inner = inner,
                           .k = (int)spec->params[KS_TOPK_K].i,
                           .largest = spec->params[KS_TOPK_LARGEST].i != 0,
                           .dtype = in->dtype,
                           .index_dtype = spec->out[1].dtype};
}

static ks_rows topk_rows(const ks_spec *spec)
{
    return (ks_rows){.dims = (int)spec->params[KS_TOPK_AXIS].i, .cut = 1, .out = 3};
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_preset presets[] = {{.suffix = "10", .param = KS_TOPK_K, .value = {.i = 10}},
                                    {.suffix = "50", .param = KS_TOPK_K, .value = {.i = 50}}};

const ks_op ks_op_topk = {
    .name = "topk",
    .inputs_count = 1,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = FLOATS | INTEGERS, .rank_min = 1, .rank_max = KS_RANK_MAX}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_TOPK_PARAMS,
    .params =
        {[KS_TOPK_K] = {.name = "k", .kind = KS_PARAM_INT, .preset = {.i = 1}, .status = KS_PARAMETER},
         [KS_TOPK_AXIS] = {.name = "axis", .kind = KS_PARAM_INT, .preset = {.i = -1}, .status = KS_AXIS},
         [KS_TOPK_LARGEST] = {.name = "largest", .kind = KS_PARAM_BOOL, .preset = {.i = 1}, .status = KS_PARAMETER},
         [KS_TOPK_SORTED] = {.name = "sorted", .kind = KS_PARAM_BOOL, .preset = {.i = 1}, .status = KS_PARAMETER},
         [KS_TOPK_INDEX_DATATYPE] =
             {.name = "index_datatype", .kind = KS_PARAM_CHOICE, .choices = index_datatypes, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = topk_resolve,
    .rows = topk_rows,
    .sample = topk_sample,
};
