/* Slices or elements of a table by index, and bags of slices as one: descriptor and rules.
 *
 *   slices    y = table[..., indices[...], ...]: the indices' shape in place of the axis; bits are moved
 *   elements  y[.., i, ..] = table[.., indices[.., i, ..], ..]: indices have the table's extents but along the axis
 *   bags      y[b] = sum, mean or max of weights[i] * table[indices[i]] over offsets[b] <= i < offsets[b + 1]
 *
 * Values   an index is in [-V, V), V the axis' extent; a negative one counts from the end. wrap: it is taken modulo V; clip: into
 *          [0, V - 1], a negative one to 0. offsets begin at 0, do not fall, and end at the number of indices. A bag of nothing is 0.
 * Source   NumPy's take and take_along_axis, whose modes these are; PyTorch's embedding_bag. */
#include "ops/gather.h"
#include "ops/spec/places.h"

#include <inttypes.h>
#include <string.h>

enum {
    ANY = KS_DTYPE_BIT(KS_BYTES) - 1,
    FLOATS = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64),
    SEGMENT_BYTES = 64 /* that memory moves at least: two sectors */
};
extern const ks_op ks_op_gather;

static const char *const kinds[] = {"slices", "elements", NULL};    /* as ks_gather_kind */
static const char *const modes[] = {"error", "wrap", "clip", NULL}; /* as ks_gather_mode */
static const char *const bag_ops[] = {"sum", "mean", "max", NULL};  /* as ks_gather_op */

static bool has_bags(const ks_spec *spec)
{
    return ks_has_input(spec, KS_GATHER_OFFSETS);
}

static bool takes_elements(const ks_spec *spec)
{
    return spec->params[KS_GATHER_KIND].i == KS_GATHER_ELEMENTS;
}

/* --- what is accepted ------------------------------------------------------------------------------------------------ */

static ks_status check_datatypes(const ks_spec *spec, ks_error *error)
{
    const ks_input *row = spec->op->inputs;
    const ks_dtype table = spec->in[KS_GATHER_TABLE].dtype;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        const ks_dtype dtype = spec->in[i].dtype;
        if (i == KS_GATHER_TABLE && !(ANY & KS_DTYPE_BIT(dtype)))
            return ks_fail(error, KS_DATATYPE,
                           "gather: INPUT0 has datatype %s, whose elements have no size of their own",
                           ks_dtype_name(dtype));
        if ((i == KS_GATHER_INDICES || i == KS_GATHER_OFFSETS) && !(KS_PLACES_DTYPES & KS_DTYPE_BIT(dtype)))
            return ks_fail(error, KS_DATATYPE, "gather: %s (%s) has datatype %s, takes INT32 or INT64", row[i].name,
                           row[i].role, ks_dtype_name(dtype));
        if (i == KS_GATHER_WEIGHTS && dtype != table && dtype != KS_FP32)
            return ks_fail(error, KS_DATATYPE,
                           "gather: INPUT3 (weights) has datatype %s, INPUT0 %s; it must be equal or FP32",
                           ks_dtype_name(dtype), ks_dtype_name(table));
    }
    if (has_bags(spec) && !(FLOATS & KS_DTYPE_BIT(table)))
        return ks_fail(error, KS_DATATYPE, "gather: INPUT0 has datatype %s, bags take FP32, FP16, BF16 or FP64",
                       ks_dtype_name(table));
    return KS_OK;
}

static ks_status check_ranks(ks_spec *spec, ks_error *error)
{
    const ks_input *row = spec->op->inputs;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        ks_tensor *in = &spec->in[i];
        if (in->rank < row[i].rank_min || in->rank > row[i].rank_max)
            return ks_fail(error, KS_SHAPE, "gather: %s (%s) has rank %d, takes %d to %d", row[i].name, row[i].role,
                           in->rank, row[i].rank_min, row[i].rank_max);
        const ks_status status = ks_tensor_measure(in, row[i].name, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

static ks_status resolve_axis(ks_spec *spec, ks_error *error)
{
    int64_t *axis = &spec->params[KS_GATHER_AXIS].i;
    const int rank = spec->in[KS_GATHER_TABLE].rank;
    if (*axis < -rank || *axis >= rank)
        return ks_fail(error, KS_AXIS, "gather: axis %" PRId64 " is outside [%d, %d) of INPUT0's rank", *axis, -rank,
                       rank);
    if (*axis < 0) *axis += rank;
    return KS_OK;
}

/* What bags ask for, and what asks for bags. */
static ks_status check_bags(ks_spec *spec, ks_error *error)
{
    ks_value *op = &spec->params[KS_GATHER_OP];
    const ks_tensor *indices = &spec->in[KS_GATHER_INDICES], *offsets = &spec->in[KS_GATHER_OFFSETS];
    if (!has_bags(spec)) {
        if (ks_has_input(spec, KS_GATHER_WEIGHTS))
            return ks_fail(error, KS_NAME,
                           "gather: INPUT3 (weights) without INPUT2: weights are for bags, whose offsets it is");
        if (op->i != KS_GATHER_SUM)
            return ks_fail(error, KS_NAME, "gather: op '%s' without INPUT2: it is for bags, whose offsets it is",
                           bag_ops[op->i]);
        return KS_OK;
    }
    if (takes_elements(spec))
        return ks_fail(error, KS_PARAMETER, "gather: kind 'elements' takes no INPUT2: bags are of slices");
    if (spec->params[KS_GATHER_AXIS].i != 0)
        return ks_fail(error, KS_AXIS, "gather: axis is %" PRId64 ", bags take axis 0", spec->params[KS_GATHER_AXIS].i);
    if (indices->rank != 1)
        return ks_fail(error, KS_SHAPE, "gather: INPUT1 (indices) has rank %d, bags take 1", indices->rank);
    if (offsets->dims[0] < 1)
        return ks_fail(error, KS_SHAPE, "gather: INPUT2 (offsets) has no elements, needs one more than there are bags");
    if (ks_has_input(spec, KS_GATHER_WEIGHTS) && spec->in[KS_GATHER_WEIGHTS].dims[0] != indices->dims[0])
        return ks_fail(error, KS_SHAPE,
                       "gather: INPUT3 (weights) has %" PRId64 " elements, INPUT1 has %" PRId64 " indices",
                       spec->in[KS_GATHER_WEIGHTS].dims[0], indices->dims[0]);
    return KS_OK;
}

static ks_status check_elements(const ks_spec *spec, ks_error *error)
{
    const ks_tensor *table = &spec->in[KS_GATHER_TABLE], *indices = &spec->in[KS_GATHER_INDICES];
    if (!takes_elements(spec)) return KS_OK;
    bool same = table->rank == indices->rank;
    for (int i = 0; same && i < table->rank; i++)
        same = i == spec->params[KS_GATHER_AXIS].i || table->dims[i] == indices->dims[i];
    if (same) return KS_OK;
    char has[KS_RANK_MAX * 21], needs[KS_RANK_MAX * 21];
    ks_dims_text(indices, has, sizeof has);
    ks_dims_text(table, needs, sizeof needs);
    return ks_fail(error, KS_SHAPE,
                   "gather: INPUT1 (indices) has shape [%s], INPUT0 [%s]: elements take equal ones but along axis %d",
                   has, needs, (int)spec->params[KS_GATHER_AXIS].i);
}

/* Extents in front of the axis, those that take its place, those behind it. */
static ks_status make_output(ks_spec *spec, ks_error *error)
{
    const ks_tensor *table = &spec->in[KS_GATHER_TABLE], *indices = &spec->in[KS_GATHER_INDICES];
    const int axis = (int)spec->params[KS_GATHER_AXIS].i;
    ks_tensor out = {.dtype = table->dtype};
    if (takes_elements(spec)) {
        out.rank = indices->rank;
        memcpy(out.dims, indices->dims, sizeof out.dims);
    } else {
        const int64_t bags = has_bags(spec) ? spec->in[KS_GATHER_OFFSETS].dims[0] - 1 : 0;
        const int rank = table->rank - 1 + indices->rank;
        if (rank > KS_RANK_MAX)
            return ks_fail(error, KS_SHAPE, "gather: INPUT0 of rank %d and INPUT1 of rank %d give rank %d, at most %d",
                           table->rank, indices->rank, rank, KS_RANK_MAX);
        for (int i = 0; i < axis; i++) out.dims[out.rank++] = table->dims[i];
        for (int i = 0; i < indices->rank; i++) out.dims[out.rank++] = has_bags(spec) ? bags : indices->dims[i];
        for (int i = axis + 1; i < table->rank; i++) out.dims[out.rank++] = table->dims[i];
    }
    spec->outputs = 1;
    spec->out[0] = out;
    return ks_tensor_measure(&spec->out[0], ks_output_name(0), error);
}

/* ks_resolve_fn */
static ks_status gather_resolve(ks_spec *spec, ks_error *error)
{
    ks_status status = check_datatypes(spec, error);
    if (status == KS_OK) status = check_ranks(spec, error);
    if (status == KS_OK) status = resolve_axis(spec, error);
    if (status == KS_OK) status = check_bags(spec, error);
    if (status == KS_OK) status = check_elements(spec, error);
    if (status == KS_OK) status = make_output(spec, error);
    if (status != KS_OK) return status;
    const ks_gather_shape s = ks_gather_shape_of(spec);
    spec->flops = s.bags < 0 ? 0 : 2.0 * (double)s.count * (double)s.inner;
    return KS_OK;
}

/* ks_sample_fn: indices beyond both ends. */
static void gather_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_gather);
    spec->in[KS_GATHER_TABLE] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {40, 260}};
    spec->in[KS_GATHER_INDICES] = (ks_tensor){.dtype = KS_INT32, .rank = 2, .dims = {3, 17}};
    spec->params[KS_GATHER_MODE].i = KS_GATHER_WRAP;
}

/* --- values that decide ---------------------------------------------------------------------------------------------- */

static bool found(int input, int64_t place, int64_t value, ks_bad_value *bad)
{
    *bad = (ks_bad_value){.input = input, .place = place, .value = value};
    return true;
}

/* wrap and clip find a slice for every index, unless there is none at all. */
static bool check_indices(const ks_spec *spec, const void *indices, ks_bad_value *bad)
{
    const ks_tensor *in = &spec->in[KS_GATHER_INDICES];
    const int64_t extent = ks_gather_shape_of(spec).extent;
    int64_t place = 0;
    if (extent == 0 ? ks_tensor_count(in) == 0
                    : spec->params[KS_GATHER_MODE].i != KS_GATHER_ERROR ||
                          !ks_places_outside(in, indices, -extent, extent - 1, &place))
        return false;
    return found(KS_GATHER_INDICES, place, ks_places_value(in->dtype, indices, place), bad);
}

static bool check_offsets(const ks_spec *spec, const void *offsets, ks_bad_value *bad)
{
    const ks_tensor *in = &spec->in[KS_GATHER_OFFSETS];
    int64_t place;
    return ks_places_falling(in, offsets, spec->in[KS_GATHER_INDICES].dims[0], &place) &&
           found(KS_GATHER_OFFSETS, place, ks_places_value(in->dtype, offsets, place), bad);
}

/* ks_op.check */
static bool gather_check(const ks_spec *spec, const void *const *in, ks_bad_value *bad)
{
    if (has_bags(spec) && in[KS_GATHER_OFFSETS] && check_offsets(spec, in[KS_GATHER_OFFSETS], bad)) return true;
    return in[KS_GATHER_INDICES] && check_indices(spec, in[KS_GATHER_INDICES], bad);
}

/* ks_op.refuse */
static ks_status gather_refuse(const ks_spec *spec, const ks_bad_value *bad, ks_error *error)
{
    const ks_tensor *in = &spec->in[bad->input];
    const int64_t extent = ks_gather_shape_of(spec).extent;
    char place[KS_PLACE_TEXT_MAX];
    if (bad->input == KS_GATHER_OFFSETS)
        return ks_places_refuse_offset(spec, bad, spec->in[KS_GATHER_INDICES].dims[0], "the number of indices", error);
    ks_places_text(in, bad->place, place);
    return ks_fail(error, KS_RANGE,
                   "gather: INPUT1 (indices) has %" PRId64 " at place %s: it is outside [%" PRId64 ", %" PRId64
                   ") of INPUT0's axis %d",
                   bad->value, place, -extent, extent, (int)spec->params[KS_GATHER_AXIS].i);
}

/* --- as slices ------------------------------------------------------------------------------------------------------- */

ks_gather_shape ks_gather_shape_of(const ks_spec *spec)
{
    const ks_tensor *table = &spec->in[KS_GATHER_TABLE], *indices = &spec->in[KS_GATHER_INDICES];
    const int axis = (int)spec->params[KS_GATHER_AXIS].i;
    ks_gather_shape s = {.outer = ks_dims_product(table->dims, 0, axis),
                         .extent = table->dims[axis],
                         .inner = ks_dims_product(table->dims, axis + 1, table->rank),
                         .count = takes_elements(spec) ? indices->dims[axis] : ks_tensor_count(indices),
                         .bags = has_bags(spec) ? spec->in[KS_GATHER_OFFSETS].dims[0] - 1 : -1,
                         .kind = (ks_gather_kind)spec->params[KS_GATHER_KIND].i,
                         .mode = (ks_gather_mode)spec->params[KS_GATHER_MODE].i,
                         .op = (ks_gather_op)spec->params[KS_GATHER_OP].i};
    s.slice_bytes = (size_t)s.inner * ks_dtype_size(table->dtype);
    return s;
}

/* What lies in front of the axis: each part of the table with its part of the output, and all indices. */
static ks_rows gather_rows(const ks_spec *spec)
{
    const unsigned cut = 1u << KS_GATHER_TABLE | (takes_elements(spec) ? 1u << KS_GATHER_INDICES : 0);
    return (ks_rows){.dims = (int)spec->params[KS_GATHER_AXIS].i, .cut = (uint16_t)cut, .out = 1};
}

/* Each slice once for each use, in whole segments of memory, but no more than the table has. */
static size_t gather_read_bytes(const ks_spec *spec)
{
    const ks_gather_shape s = ks_gather_shape_of(spec);
    const bool elements = s.kind == KS_GATHER_ELEMENTS;
    const size_t table = spec->in[KS_GATHER_TABLE].size_bytes;
    const size_t slice = elements ? ks_dtype_size(spec->in[KS_GATHER_TABLE].dtype) : s.slice_bytes;
    const size_t segments = (slice + SEGMENT_BYTES - 1) / SEGMENT_BYTES * SEGMENT_BYTES;
    const double moved = (double)s.outer * (double)s.count * (elements ? (double)s.inner : 1) * (double)segments;
    size_t bytes = moved < (double)table ? (size_t)moved : table;
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i)) bytes += spec->in[i].size_bytes;
    return bytes;
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_preset presets[] = {
    {.suffix = "wrap", .param = KS_GATHER_MODE, .value = {.i = KS_GATHER_WRAP}},
    {.suffix = "bag", .param = KS_GATHER_KIND, .value = {.i = KS_GATHER_SLICES}, .inputs = 1u << KS_GATHER_OFFSETS}};

const ks_op ks_op_gather = {
    .name = "gather",
    .inputs_count = KS_GATHER_INPUTS,
    .inputs =
        {[KS_GATHER_TABLE] = {.name = "INPUT0", .role = "table", .dtypes = ANY, .rank_min = 1, .rank_max = KS_RANK_MAX},
         [KS_GATHER_INDICES] = {.name = "INPUT1",
                                .role = "indices",
                                .dtypes = KS_PLACES_DTYPES,
                                .rank_min = 0,
                                .rank_max = KS_RANK_MAX,
                                .rank = 1,
                                .small = true},
         [KS_GATHER_OFFSETS] = {.name = "INPUT2",
                                .role = "offsets",
                                .dtypes = KS_PLACES_DTYPES,
                                .rank_min = 1,
                                .rank_max = 1,
                                .optional = true,
                                .small = true},
         [KS_GATHER_WEIGHTS] =
             {.name = "INPUT3", .role = "weights", .rank_min = 1, .rank_max = 1, .optional = true, .small = true}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_GATHER_PARAMS,
    .params = {[KS_GATHER_AXIS] = {.name = "axis", .kind = KS_PARAM_INT, .status = KS_AXIS},
               [KS_GATHER_KIND] = {.name = "kind", .kind = KS_PARAM_CHOICE, .choices = kinds, .status = KS_PARAMETER},
               [KS_GATHER_MODE] = {.name = "mode", .kind = KS_PARAM_CHOICE, .choices = modes, .status = KS_PARAMETER},
               [KS_GATHER_OP] = {.name = "op", .kind = KS_PARAM_CHOICE, .choices = bag_ops, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = gather_resolve,
    .rows = gather_rows,
    .sample = gather_sample,
    .decides = 1u << KS_GATHER_INDICES | 1u << KS_GATHER_OFFSETS,
    .check = gather_check,
    .refuse = gather_refuse,
    .read_bytes = gather_read_bytes,
};
