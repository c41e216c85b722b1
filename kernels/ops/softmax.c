/* Softmax over one axis, of all its elements or of selected ones: descriptor and rules.
 *
 *   y = exp(z - max z) / sum exp(z - max z), or its logarithm; z = scale * x + mask
 *
 * Shapes   the mask broadcasts from the last axis on: each of its extents is x's or 1. lengths have x's first extents, in front of the axis,
 *          or fewer of them, or none: rows that differ behind these share a length, 0 to the axis' extent.
 * Selected where a mask of BOOL is true, causal's column is not behind the row (top_left column <= row, bottom_right column <= row +
 *          columns - rows), and the place along the axis is below the row's length. What is not selected gives exactly 0 (its logarithm
 *          -inf), whatever stands there.
 * Values   a row with NaN, +inf (of z) or nothing but -inf gives NaN; -inf beside finite values gives exactly 0. masked_rows=zero:
 *          a row with nothing selected, or with nothing but -inf, is 0. */
#include "ops/softmax.h"
#include "ops/spec/places.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DTYPES = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP64) };
extern const ks_op ks_op_softmax;

static const char *const causals[] = {"none", "top_left", "bottom_right", NULL}; /* as ks_softmax_causal */
static const char *const masked_rows[] = {"nan", "zero", NULL};
static const char *const out_datatypes[] = {"input", "FP16", "BF16", "FP32", "FP64", NULL};
static const ks_dtype out_dtypes[] = {KS_BOOL /* x's */, KS_FP16, KS_BF16, KS_FP32, KS_FP64};

/* --- rules ----------------------------------------------------------------------------------------------------------- */

static ks_status check_input(ks_spec *spec, int input, uint32_t taken, const char *words, ks_error *error)
{
    ks_tensor *in = &spec->in[input];
    const ks_input *row = &spec->op->inputs[input];
    if (!(taken & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "softmax: %s has datatype %s, takes %s", row->name, ks_dtype_name(in->dtype),
                       words);
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "softmax: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                       row->rank_max);
    return ks_tensor_measure(in, row->name, error);
}

static ks_status check_mask(ks_spec *spec, ks_error *error)
{
    const ks_tensor *x = &spec->in[KS_SOFTMAX_X], *mask = &spec->in[KS_SOFTMAX_MASK];
    if (!ks_has_input(spec, KS_SOFTMAX_MASK)) return KS_OK;
    char words[48], texts[2][KS_RANK_MAX * 21];
    snprintf(words, sizeof words, "BOOL, FP32 or INPUT0's, %s", ks_dtype_name(x->dtype));
    const uint32_t taken = KS_DTYPE_BIT(KS_BOOL) | KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(x->dtype);
    const ks_status status = check_input(spec, KS_SOFTMAX_MASK, taken, words, error);
    if (status != KS_OK) return status;
    bool broadcasts = mask->rank <= x->rank;
    for (int i = 1; i <= mask->rank && broadcasts; i++) {
        const int64_t extent = mask->dims[mask->rank - i];
        broadcasts = extent == 1 || extent == x->dims[x->rank - i];
    }
    if (broadcasts) return KS_OK;
    ks_dims_text(mask, texts[0], sizeof texts[0]);
    ks_dims_text(x, texts[1], sizeof texts[1]);
    return ks_fail(error, KS_SHAPE, "softmax: INPUT1 (mask) has shape [%s], which does not broadcast to INPUT0's [%s]",
                   texts[0], texts[1]);
}

static ks_status check_lengths(ks_spec *spec, ks_error *error)
{
    const ks_tensor *x = &spec->in[KS_SOFTMAX_X], *lengths = &spec->in[KS_SOFTMAX_LENGTHS];
    const int axis = (int)spec->params[KS_SOFTMAX_AXIS].i;
    if (!ks_has_input(spec, KS_SOFTMAX_LENGTHS)) return KS_OK;
    const ks_status status = check_input(spec, KS_SOFTMAX_LENGTHS, KS_PLACES_DTYPES, "INT32 or INT64", error);
    if (status != KS_OK) return status;
    bool leading = lengths->rank <= axis;
    for (int i = 0; i < lengths->rank && leading; i++) leading = lengths->dims[i] == x->dims[i];
    if (leading) return KS_OK;
    char texts[2][KS_RANK_MAX * 21];
    ks_dims_text(lengths, texts[0], sizeof texts[0]);
    ks_dims_text(x, texts[1], sizeof texts[1]);
    return ks_fail(error, KS_SHAPE,
                   "softmax: INPUT2 (lengths) has shape [%s], takes first extents of INPUT0's [%s] in front of axis %d",
                   texts[0], texts[1], axis);
}

static ks_status resolve_params(ks_spec *spec, ks_error *error)
{
    const ks_tensor *in = &spec->in[KS_SOFTMAX_X];
    int64_t *axis = &spec->params[KS_SOFTMAX_AXIS].i;
    if (*axis < -in->rank || *axis >= in->rank)
        return ks_fail(error, KS_AXIS, "softmax: axis %" PRId64 " is outside [%d, %d) of INPUT0's rank", *axis,
                       -in->rank, in->rank);
    if (*axis < 0) *axis += in->rank;
    double *scale = &spec->params[KS_SOFTMAX_SCALE].d;
    if (!(fabs(*scale) <= 1e38))
        return ks_fail(error, KS_PARAMETER, "softmax: parameter 'scale' is %g, takes -1e38 to 1e38", *scale);
    if (*scale == 0) *scale = 0; /* -0 is the same work */
    if (spec->params[KS_SOFTMAX_CAUSAL].i != KS_CAUSAL_NONE && (in->rank < 2 || *axis != in->rank - 1))
        return ks_fail(error, KS_AXIS,
                       "softmax: causal takes the last axis of a rank of 2 or more, axis is %" PRId64 " of rank %d",
                       *axis, in->rank);
    int64_t *out = &spec->params[KS_SOFTMAX_OUT_DATATYPE].i;
    if (*out && out_dtypes[*out] == in->dtype) *out = 0; /* the same work */
    return KS_OK;
}

/* ks_resolve_fn */
static ks_status softmax_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[KS_SOFTMAX_X];
    ks_status status = check_input(spec, KS_SOFTMAX_X, DTYPES, "FP32, FP16, BF16 or FP64", error);
    if (status == KS_OK) status = resolve_params(spec, error);
    if (status == KS_OK) status = check_mask(spec, error);
    if (status == KS_OK) status = check_lengths(spec, error);
    if (status != KS_OK) return status;
    const int64_t wanted = spec->params[KS_SOFTMAX_OUT_DATATYPE].i;
    spec->out[0] = (ks_tensor){.dtype = wanted ? out_dtypes[wanted] : in->dtype, .rank = in->rank};
    memcpy(spec->out[0].dims, in->dims, sizeof in->dims);
    status = ks_tensor_measure(&spec->out[0], ks_output_name(0), error);
    if (status != KS_OK) return status;
    spec->outputs = 1;
    spec->flops = (ks_has_input(spec, KS_SOFTMAX_MASK) ? 11.0 : 10.0) * (double)ks_tensor_count(in);
    return KS_OK;
}

/* --- rows ------------------------------------------------------------------------------------------------------------ */

bool ks_softmax_selects(const ks_spec *spec)
{
    return ks_has_input(spec, KS_SOFTMAX_MASK) || ks_has_input(spec, KS_SOFTMAX_LENGTHS) ||
           spec->params[KS_SOFTMAX_CAUSAL].i != KS_CAUSAL_NONE || spec->params[KS_SOFTMAX_MASKED_ROWS].i != 0 ||
           spec->params[KS_SOFTMAX_OUT_DATATYPE].i != 0;
}

/* The extent of the mask along x's axis i: 1 where it has none. */
static int64_t mask_extent(const ks_spec *spec, int i)
{
    const ks_tensor *mask = &spec->in[KS_SOFTMAX_MASK];
    const int own = i - (spec->in[KS_SOFTMAX_X].rank - mask->rank);
    return ks_has_input(spec, KS_SOFTMAX_MASK) && own >= 0 ? mask->dims[own] : 1;
}

/* Neighbours that one stride goes through are one step. From the inside out, and then turned round. */
static void add_steps(const ks_spec *spec, ks_softmax_selection *s)
{
    const ks_tensor *x = &spec->in[KS_SOFTMAX_X];
    const int axis = (int)spec->params[KS_SOFTMAX_AXIS].i;
    int64_t stride = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        const int64_t extent = mask_extent(spec, i), own = extent == 1 ? 0 : stride;
        stride *= extent;
        ks_softmax_step *last = s->steps ? &s->step[s->steps - 1] : NULL;
        if (i == axis)
            s->along = own;
        else if (x->dims[i] == 1)
            continue;
        else if (last && own == last->stride * last->extent)
            last->extent *= x->dims[i];
        else
            s->step[s->steps++] = (ks_softmax_step){x->dims[i], own};
    }
    if (s->steps == 0) s->step[s->steps++] = (ks_softmax_step){1, 0};
    for (int i = 0; i < s->steps / 2; i++) {
        const ks_softmax_step kept = s->step[i];
        s->step[i] = s->step[s->steps - 1 - i];
        s->step[s->steps - 1 - i] = kept;
    }
}

ks_softmax_selection ks_softmax_selection_of(const ks_spec *spec)
{
    const ks_tensor *x = &spec->in[KS_SOFTMAX_X];
    const int64_t causal = spec->params[KS_SOFTMAX_CAUSAL].i;
    ks_softmax_selection s = {.zero = spec->params[KS_SOFTMAX_MASKED_ROWS].i != 0};
    add_steps(spec, &s);
    if (ks_has_input(spec, KS_SOFTMAX_LENGTHS)) {
        const int rank = spec->in[KS_SOFTMAX_LENGTHS].rank, axis = (int)spec->params[KS_SOFTMAX_AXIS].i;
        s.sharing = ks_dims_product(x->dims, rank, axis) * ks_dims_product(x->dims, axis + 1, x->rank);
        s.wide = spec->in[KS_SOFTMAX_LENGTHS].dtype == KS_INT64;
    }
    if (causal == KS_CAUSAL_NONE) return s;
    s.square = x->dims[x->rank - 2];
    s.corner = causal == KS_CAUSAL_TOP_LEFT ? 0 : x->dims[x->rank - 1] - s.square;
    return s;
}

/* Those in front of the axis; of a mask those that it has one index for, so that it stays whole; of causal's square whole ones; of
 * lengths those that they have, unless one is for all. */
static ks_rows softmax_rows(const ks_spec *spec)
{
    const int axis = (int)spec->params[KS_SOFTMAX_AXIS].i;
    const int causal = axis - (spec->params[KS_SOFTMAX_CAUSAL].i != KS_CAUSAL_NONE);
    const int rank = ks_has_input(spec, KS_SOFTMAX_LENGTHS) ? spec->in[KS_SOFTMAX_LENGTHS].rank : 0;
    const int most = rank && rank < causal ? rank : causal;
    int dims = 0;
    while (dims < most && mask_extent(spec, dims) == 1) dims++;
    return (ks_rows){.dims = dims, .cut = (uint16_t)(1u | (rank ? 1u << KS_SOFTMAX_LENGTHS : 0)), .out = 1};
}

/* ks_sample_fn */
static void softmax_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_softmax);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
}

/* --- values that decide ---------------------------------------------------------------------------------------------- */

/* ks_op.check */
static bool softmax_check(const ks_spec *spec, const void *const *in, ks_bad_value *bad)
{
    const ks_tensor *lengths = &spec->in[KS_SOFTMAX_LENGTHS];
    const int64_t most = spec->in[KS_SOFTMAX_X].dims[spec->params[KS_SOFTMAX_AXIS].i];
    int64_t place;
    if (!in[KS_SOFTMAX_LENGTHS] || !ks_places_outside(lengths, in[KS_SOFTMAX_LENGTHS], 0, most, &place)) return false;
    *bad = (ks_bad_value){.input = KS_SOFTMAX_LENGTHS,
                          .place = place,
                          .value = ks_places_value(lengths->dtype, in[KS_SOFTMAX_LENGTHS], place)};
    return true;
}

/* ks_op.refuse */
static ks_status softmax_refuse(const ks_spec *spec, const ks_bad_value *bad, ks_error *error)
{
    const int axis = (int)spec->params[KS_SOFTMAX_AXIS].i;
    char place[KS_PLACE_TEXT_MAX];
    ks_places_text(&spec->in[bad->input], bad->place, place);
    return ks_fail(error, KS_RANGE,
                   "softmax: INPUT2 (lengths) has %" PRId64 " at place %s: it is outside [0, %" PRId64
                   "] of INPUT0's axis %d",
                   bad->value, place, spec->in[KS_SOFTMAX_X].dims[axis], axis);
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_preset presets[] = {
    {.suffix = "vec", .param = -1, .in_rank = 1, .out_rank = 1},
    {.suffix = "causal", .param = KS_SOFTMAX_CAUSAL, .value = {.i = KS_CAUSAL_BOTTOM_RIGHT}, .narrow = true},
    {.suffix = "masked", .param = -1, .inputs = 1u << KS_SOFTMAX_MASK, .narrow = true},
    {.suffix = "lengths", .param = -1, .inputs = 1u << KS_SOFTMAX_LENGTHS, .narrow = true}};

const ks_op ks_op_softmax = {
    .name = "softmax",
    .inputs_count = KS_SOFTMAX_INPUTS,
    .inputs =
        {[KS_SOFTMAX_X] = {.name = "INPUT0", .role = "x", .dtypes = DTYPES, .rank_min = 1, .rank_max = KS_RANK_MAX},
         [KS_SOFTMAX_MASK] = {.name = "INPUT1",
                              .role = "mask",
                              .dtypes = DTYPES | KS_DTYPE_BIT(KS_BOOL),
                              .rank_min = 0,
                              .rank_max = KS_RANK_MAX,
                              .optional = true,
                              .small = true},
         [KS_SOFTMAX_LENGTHS] = {.name = "INPUT2",
                                 .role = "lengths",
                                 .dtypes = KS_PLACES_DTYPES,
                                 .rank_min = 0,
                                 .rank_max = KS_RANK_MAX - 1,
                                 .rank = 1,
                                 .optional = true,
                                 .small = true}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_SOFTMAX_PARAMS,
    .params =
        {[KS_SOFTMAX_AXIS] = {.name = "axis", .kind = KS_PARAM_INT, .preset = {.i = -1}, .status = KS_AXIS},
         [KS_SOFTMAX_LOG] = {.name = "log", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
         [KS_SOFTMAX_SCALE] = {.name = "scale", .kind = KS_PARAM_NUMBER, .preset = {.d = 1}, .status = KS_PARAMETER},
         [KS_SOFTMAX_CAUSAL] = {.name = "causal", .kind = KS_PARAM_CHOICE, .choices = causals, .status = KS_PARAMETER},
         [KS_SOFTMAX_MASKED_ROWS] =
             {.name = "masked_rows", .kind = KS_PARAM_CHOICE, .choices = masked_rows, .status = KS_PARAMETER},
         [KS_SOFTMAX_OUT_DATATYPE] =
             {.name = "out_datatype", .kind = KS_PARAM_CHOICE, .choices = out_datatypes, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = softmax_resolve,
    .rows = softmax_rows,
    .sample = softmax_sample,
    .decides = 1u << KS_SOFTMAX_LENGTHS,
    .check = softmax_check,
    .refuse = softmax_refuse,
};
