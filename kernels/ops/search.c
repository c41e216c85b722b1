/* The k rows of a matrix that are nearest to each query, by a product, a cosine or a distance: descriptor and rules.
 *
 * Shapes   INPUT0: [Q, D] queries, INPUT1: [N, D] matrix; INPUT2, optional: [N], added to each row's score; INPUT3, optional: [N], where it
 *          is false the row takes no part. OUTPUT0: [Q, k] scores, OUTPUT1: [Q, k] rows, the nearest first.
 * Values   dot: q r. l2: sum (q - r)^2, the smallest first. cosine: q r / (|q| |r|), 0 where a norm is 0. Scores are FP32, a -0 is +0.
 *          The order is total: NaN behind all others, of equal scores the lower row first. Where fewer than k rows take part: row -1,
 *          score -inf (l2: inf).
 * Limits   k up to KS_SEARCH_MOST and up to N. */
#include "ops/search/search.h"
#include "ops/matmul.h"

#include <inttypes.h>

enum { DTYPES = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) };
extern const ks_op ks_op_search;

static const char *const metrics[] = {"dot", "l2", "cosine", NULL}; /* as ks_search_metric */

/* --- rules ----------------------------------------------------------------------------------------------------------- */

static ks_status check_input(ks_spec *spec, int i, ks_error *error)
{
    const ks_input *row = &spec->op->inputs[i];
    ks_tensor *in = &spec->in[i];
    if (!(ks_op_dtypes(spec->op, i) & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "search: %s has datatype %s, takes %s", row->name, ks_dtype_name(in->dtype),
                       i == KS_SEARCH_BIAS   ? "FP32"
                       : i == KS_SEARCH_MASK ? "BOOL"
                                             : "FP32, FP16 or BF16");
    if (in->rank != row->rank_max)
        return ks_fail(error, KS_SHAPE, "search: %s has rank %d, needs %d", row->name, in->rank, row->rank_max);
    return ks_tensor_measure(in, row->name, error);
}

static ks_status check_extents(const ks_spec *spec, ks_error *error)
{
    const ks_tensor *queries = &spec->in[0], *matrix = &spec->in[1];
    if (queries->dtype != matrix->dtype)
        return ks_fail(error, KS_DATATYPE, "search: INPUT0 has datatype %s, INPUT1 %s; they must be equal",
                       ks_dtype_name(queries->dtype), ks_dtype_name(matrix->dtype));
    if (queries->dims[1] != matrix->dims[1])
        return ks_fail(error, KS_SHAPE, "search: INPUT0 has %" PRId64 " columns, INPUT1 has %" PRId64, queries->dims[1],
                       matrix->dims[1]);
    for (int i = KS_SEARCH_BIAS; i <= KS_SEARCH_MASK; i++)
        if (ks_has_input(spec, i) && spec->in[i].dims[0] != matrix->dims[0])
            return ks_fail(error, KS_SHAPE, "search: %s has %" PRId64 " values, INPUT1 has %" PRId64 " rows",
                           spec->op->inputs[i].name, spec->in[i].dims[0], matrix->dims[0]);
    if (matrix->dims[0] == 0 || matrix->dims[1] == 0)
        return ks_fail(error, KS_EMPTY, "search: among nothing: INPUT1 has %" PRId64 " rows of %" PRId64,
                       matrix->dims[0], matrix->dims[1]);
    return KS_OK;
}

static ks_status check_k(const ks_spec *spec, ks_error *error)
{
    const int64_t k = spec->params[KS_SEARCH_K].i, rows = spec->in[1].dims[0];
    if (k < 1 || k > KS_SEARCH_MOST)
        return ks_fail(error, KS_PARAMETER, "search: parameter 'k' is %" PRId64 ", takes 1 to %d", k, KS_SEARCH_MOST);
    if (k > rows)
        return ks_fail(error, KS_PARAMETER, "search: parameter 'k' is %" PRId64 ", INPUT1 has %" PRId64 " rows", k,
                       rows);
    return KS_OK;
}

/* ks_resolve_fn */
static ks_status search_resolve(ks_spec *spec, ks_error *error)
{
    ks_status status = KS_OK;
    for (int i = ks_next_input(spec, -1); i >= 0 && status == KS_OK; i = ks_next_input(spec, i))
        status = check_input(spec, i, error);
    if (status == KS_OK) status = check_extents(spec, error);
    if (status == KS_OK) status = check_k(spec, error);
    spec->outputs = 2;
    for (int i = 0; i < spec->outputs && status == KS_OK; i++) {
        spec->out[i] = (ks_tensor){.dtype = i ? KS_INT64 : KS_FP32, .rank = 2};
        spec->out[i].dims[0] = spec->in[0].dims[0];
        spec->out[i].dims[1] = spec->params[KS_SEARCH_K].i;
        status = ks_tensor_measure(&spec->out[i], ks_output_name(i), error);
    }
    spec->flops = 2 * (double)ks_tensor_count(&spec->in[0]) * (double)spec->in[1].dims[0];
    return status;
}

/* ks_sample_fn: sums of the sample's values are exact, so ties are the same everywhere. */
static void search_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_search);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 40}};
    spec->in[1] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {300, 40}};
    spec->params[KS_SEARCH_K].i = 10;
}

/* --- in numbers ------------------------------------------------------------------------------------------------------ */

ks_search_shape ks_search_shape_of(const ks_spec *spec)
{
    const ks_tensor *queries = &spec->in[0], *matrix = &spec->in[1];
    return (ks_search_shape){.queries = queries->dims[0],
                             .rows = matrix->dims[0],
                             .depth = matrix->dims[1],
                             .query_pitch = queries->pitch ? queries->pitch : queries->dims[1],
                             .pitch = matrix->pitch ? matrix->pitch : matrix->dims[1],
                             .k = (int)spec->params[KS_SEARCH_K].i,
                             .metric = (ks_search_metric)spec->params[KS_SEARCH_METRIC].i,
                             .dtype = matrix->dtype,
                             .biased = ks_has_input(spec, KS_SEARCH_BIAS),
                             .masked = ks_has_input(spec, KS_SEARCH_MASK)};
}

static ks_rows search_rows(const ks_spec *spec)
{
    (void)spec;
    return (ks_rows){.dims = 1, .cut = 1, .out = 3};
}

static bool search_joins(const ks_spec *spec)
{
    (void)spec;
    return true;
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_preset presets[] = {{.suffix = "10", .param = KS_SEARCH_K, .value = {.i = 10}}};

const ks_op ks_op_search = {
    .name = "search",
    .inputs_count = 4,
    .inputs = {{.name = "INPUT0", .role = "queries", .dtypes = DTYPES, .rank_min = 2, .rank_max = 2},
               {.name = "INPUT1", .role = "matrix", .dtypes = DTYPES, .rank_min = 2, .rank_max = 2},
               {.name = "INPUT2",
                .role = "bias",
                .dtypes = KS_DTYPE_BIT(KS_FP32),
                .rank_min = 1,
                .rank_max = 1,
                .rank = 1,
                .optional = true},
               {.name = "INPUT3",
                .role = "mask",
                .dtypes = KS_DTYPE_BIT(KS_BOOL),
                .rank_min = 1,
                .rank_max = 1,
                .rank = 1,
                .optional = true}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_SEARCH_PARAMS,
    .params =
        {[KS_SEARCH_K] = {.name = "k", .kind = KS_PARAM_INT, .preset = {.i = 1}, .status = KS_PARAMETER},
         [KS_SEARCH_METRIC] = {.name = "metric", .kind = KS_PARAM_CHOICE, .choices = metrics, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = search_resolve,
    .rows = search_rows,
    .joins = search_joins,
    .pitch = ks_matmul_pitch,
    .sample = search_sample,
};
