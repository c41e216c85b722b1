/* Tensors in another order, in part, padded, joined, or under another shape: descriptor and rules. Bits are moved.
 *
 *   transpose  y's axis i is x's axis axes[i]; without axes their order is reversed
 *   slice      y[i, ..] = x[starts[0] + i * steps[0], ..], sizes[0] of them, or up to ends[0]; -1 of sizes, as without both: all that are left
 *   pad        before and after elements more along each axis: a value, the edge's element, or those behind the edge, reflected
 *   concat     INPUT0, INPUT1, .. one behind the other along an axis
 *   split      the part-th of `parts` equal parts along an axis
 *   expand     x broadcast to new_shape, whose 0 keeps a dimension
 *   tile       x repeated along each axis
 *   reshape    the same elements as new_shape has them: 0 keeps the dimension at its place, one -1 takes the rest
 *
 * Source   NumPy's transpose, basic slicing, pad and concatenate; WebNN's transpose, slice, pad, concat and reshape, whose newShape this is,
 *          because the query of a raw request means the input by `shape`. */
#include "ops/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/numbers/element.h"

enum {
    ANY = KS_DTYPE_BIT(KS_BYTES) - 1,
    SEGMENT_BYTES = 64 /* that memory moves at least: two sectors */
};
static const int64_t NO_END = INT64_MIN; /* of starts and ends: what the request does not say */
extern const ks_op ks_op_layout;

static const char *const op_names[] = {"transpose", "slice",  "pad",  "concat", "reshape",
                                       "split",     "expand", "tile", NULL}; /* as ks_layout_op */
static const char *const modes[] = {"constant", "edge", "reflect", NULL};    /* as ks_layout_mode */

#define TAKES(param) (1u << (param))
static const uint32_t params_of[KS_LAYOUT_OPS] = {
    [KS_LAYOUT_TRANSPOSE] = TAKES(KS_LAYOUT_AXES),
    [KS_LAYOUT_SLICE] = TAKES(KS_LAYOUT_STARTS) | TAKES(KS_LAYOUT_SIZES) | TAKES(KS_LAYOUT_ENDS) |
                        TAKES(KS_LAYOUT_STEPS) | TAKES(KS_LAYOUT_AXIS),
    [KS_LAYOUT_PAD] = TAKES(KS_LAYOUT_AXIS) | TAKES(KS_LAYOUT_BEFORE) | TAKES(KS_LAYOUT_AFTER) | TAKES(KS_LAYOUT_MODE) |
                      TAKES(KS_LAYOUT_VALUE),
    [KS_LAYOUT_CONCAT] = TAKES(KS_LAYOUT_AXIS),
    [KS_LAYOUT_RESHAPE] = TAKES(KS_LAYOUT_NEW_SHAPE),
    [KS_LAYOUT_SPLIT] = TAKES(KS_LAYOUT_AXIS) | TAKES(KS_LAYOUT_COUNT) | TAKES(KS_LAYOUT_PART),
    [KS_LAYOUT_EXPAND] = TAKES(KS_LAYOUT_NEW_SHAPE),
    [KS_LAYOUT_TILE] = TAKES(KS_LAYOUT_AXIS) | TAKES(KS_LAYOUT_REPEATS)};

static ks_layout_op op_of(const ks_spec *spec)
{
    return (ks_layout_op)spec->params[KS_LAYOUT_OP].i;
}

/* --- what is accepted ------------------------------------------------------------------------------------------------ */

static ks_status check_inputs(ks_spec *spec, ks_error *error)
{
    const bool concat = op_of(spec) == KS_LAYOUT_CONCAT;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        const ks_input *row = &spec->op->inputs[i];
        ks_tensor *in = &spec->in[i];
        if (i > 0 && !concat)
            return ks_fail(error, KS_NAME, "layout: op '%s' takes INPUT0 alone, %s is for 'concat'",
                           op_names[op_of(spec)], row->name);
        if (!(ANY & KS_DTYPE_BIT(in->dtype)))
            return ks_fail(error, KS_DATATYPE, "layout: %s has datatype %s, whose elements have no size of their own",
                           row->name, ks_dtype_name(in->dtype));
        if (in->rank < concat || in->rank > KS_RANK_MAX)
            return ks_fail(error, KS_SHAPE, "layout: %s has rank %d, op '%s' takes %d to %d", row->name, in->rank,
                           op_names[op_of(spec)], concat, KS_RANK_MAX);
        const ks_status status = ks_tensor_measure(in, row->name, error);
        if (status != KS_OK) return status;
    }
    if (concat && spec->given == 1)
        return ks_fail(error, KS_NAME, "layout: op 'concat' takes 2 to %d inputs, has INPUT0 alone", KS_OP_INPUTS_MAX);
    return KS_OK;
}

static bool is_preset(const ks_spec *spec, int param)
{
    const ks_param *row = &spec->op->params[param];
    if (row->kind == KS_PARAM_LIST) return ks_list_of(spec, param)->count < 0;
    return memcmp(&spec->params[param], &row->preset, sizeof row->preset.bits[0]) == 0;
}

static ks_status check_params(const ks_spec *spec, ks_error *error)
{
    for (int i = KS_LAYOUT_OP + 1; i < KS_LAYOUT_PARAMS; i++)
        if (!(params_of[op_of(spec)] & TAKES(i)) && !is_preset(spec, i))
            return ks_fail(error, KS_PARAMETER, "layout: op '%s' does not take parameter '%s'", op_names[op_of(spec)],
                           spec->op->params[i].name);
    return KS_OK;
}

static ks_status resolve_axis(ks_spec *spec, ks_error *error)
{
    int64_t *axis = &spec->params[KS_LAYOUT_AXIS].i;
    const int rank = spec->in[0].rank;
    if (*axis < -rank || *axis >= rank)
        return ks_fail(error, KS_AXIS, "layout: axis %" PRId64 " is outside [%d, %d) of INPUT0's rank", *axis, -rank,
                       rank);
    if (*axis < 0) *axis += rank;
    return KS_OK;
}

/* A list of the rank of INPUT0. One number is that of `axis`; what the request does not say is `other`. */
static ks_status resolve_list(ks_spec *spec, int param, int64_t other, ks_error *error)
{
    ks_integers *list = ks_spec_list(spec, param);
    const ks_integers given = *list;
    const int rank = spec->in[0].rank;
    if (given.count == rank) return KS_OK;
    if (given.count >= 0 && given.count != 1)
        return ks_fail(error, KS_PARAMETER, "layout: '%s' has %" PRId64 " numbers, INPUT0 has rank %d",
                       spec->op->params[param].name, given.count, rank);
    list->count = rank;
    for (int i = 0; i < rank; i++)
        list->value[i] = given.count == 1 && i == spec->params[KS_LAYOUT_AXIS].i ? given.value[0] : other;
    return KS_OK;
}

/* Lists name each axis from here on. */
static ks_status resolve_lists(ks_spec *spec, const int *params, const int64_t *others, int count, ks_error *error)
{
    bool single = spec->params[KS_LAYOUT_AXIS].i != 0;
    for (int i = 0; i < count; i++) single = single || ks_spec_list(spec, params[i])->count == 1;
    ks_status status = single ? resolve_axis(spec, error) : KS_OK;
    for (int i = 0; i < count && status == KS_OK; i++) status = resolve_list(spec, params[i], others[i], error);
    spec->params[KS_LAYOUT_AXIS].i = 0;
    return status;
}

/* --- transpose ------------------------------------------------------------------------------------------------------- */

static ks_status resolve_transpose(ks_spec *spec, ks_error *error)
{
    ks_integers *axes = ks_spec_list(spec, KS_LAYOUT_AXES);
    const int rank = spec->in[0].rank;
    const bool given = axes->count >= 0;
    unsigned seen = 0;
    if (given && axes->count != rank)
        return ks_fail(error, KS_AXIS, "layout: 'axes' has %" PRId64 " numbers, INPUT0 has rank %d", axes->count, rank);
    axes->count = rank;
    for (int i = 0; i < rank; i++) {
        int64_t *axis = &axes->value[i];
        if (!given) *axis = rank - 1 - i;
        if (*axis < -rank || *axis >= rank)
            return ks_fail(error, KS_AXIS,
                           "layout: 'axes' holds %" PRId64 ", which is outside [%d, %d) of INPUT0's rank", *axis, -rank,
                           rank);
        if (*axis < 0) *axis += rank;
        if (seen >> *axis & 1) return ks_fail(error, KS_AXIS, "layout: 'axes' names axis %" PRId64 " twice", *axis);
        seen |= 1u << *axis;
        spec->out[0].dims[i] = spec->in[0].dims[*axis];
    }
    return KS_OK;
}

/* --- slice ----------------------------------------------------------------------------------------------------------- */

/* Elements from start to the end of the axis, in the step's direction. */
static int64_t rest_of(int64_t extent, int64_t start, int64_t step)
{
    if (step > 0) return start < extent ? (extent - start - 1) / step + 1 : 0;
    return start < extent ? (int64_t)((uint64_t)start / (0 - (uint64_t)step)) + 1 : 0;
}

/* false: an element of so many from start on is outside. */
static bool lies_within(int64_t extent, int64_t start, int64_t size, int64_t step)
{
    int64_t last;
    if (size == 0) return true;
    return start < extent && !__builtin_mul_overflow(size - 1, step, &last) &&
           !__builtin_add_overflow(start, last, &last) && last >= 0 && last < extent;
}

/* A whole axis stays [0, -1, 1], so that it is one whatever its extent becomes. */
static ks_status slice_axis(ks_spec *spec, int axis, ks_error *error)
{
    int64_t *start = &ks_spec_list(spec, KS_LAYOUT_STARTS)->value[axis],
            *size = &ks_spec_list(spec, KS_LAYOUT_SIZES)->value[axis];
    const int64_t step = ks_spec_list(spec, KS_LAYOUT_STEPS)->value[axis], extent = spec->in[0].dims[axis],
                  asked = *start;
    if (step == 0) return ks_fail(error, KS_PARAMETER, "layout: 'steps' has 0 for axis %d", axis);
    if (*size < -1)
        return ks_fail(error, KS_PARAMETER, "layout: 'sizes' has %" PRId64 " for axis %d: -1 takes the rest", *size,
                       axis);
    if (*start < -extent || *start > extent)
        return ks_fail(error, KS_RANGE,
                       "layout: 'starts' has %" PRId64 " for axis %d: it is outside [%" PRId64 ", %" PRId64 "]", asked,
                       axis, -extent, extent);
    if (*start < 0) *start += extent;
    const int64_t rest = rest_of(extent, *start, step), wanted = *size < 0 ? rest : *size;
    if (!lies_within(extent, *start, wanted, step))
        return ks_fail(error, KS_RANGE,
                       "layout: %" PRId64 " elements from %" PRId64 " by steps of %" PRId64
                       " leave axis %d, which has %" PRId64,
                       wanted, *start, step, axis, extent);
    if (wanted == rest) *size = -1;
    spec->out[0].dims[axis] = wanted;
    return KS_OK;
}

/* Of an end the size: none where the start is past it. */
static ks_status size_to_end(ks_spec *spec, int axis, ks_error *error)
{
    const int64_t extent = spec->in[0].dims[axis], end = ks_spec_list(spec, KS_LAYOUT_ENDS)->value[axis];
    const int64_t start = ks_spec_list(spec, KS_LAYOUT_STARTS)->value[axis],
                  step = ks_spec_list(spec, KS_LAYOUT_STEPS)->value[axis];
    if (end == NO_END) return KS_OK;
    const int64_t least = step < 0 ? -extent - 1 : -extent; /* in front of the first one */
    if (end < least || end > extent)
        return ks_fail(error, KS_RANGE,
                       "layout: 'ends' has %" PRId64 " for axis %d: it is outside [%" PRId64 ", %" PRId64 "]", end,
                       axis, least, extent);
    if (start < -extent || start > extent || step == 0) return KS_OK; /* slice_axis says so */
    const int64_t first = start < 0 ? start + extent : start, stop = end < 0 ? end + extent : end;
    const uint64_t width = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    const int64_t walk = step > 0 ? stop - first : first - stop;
    ks_spec_list(spec, KS_LAYOUT_SIZES)->value[axis] = walk > 0 ? (int64_t)((uint64_t)(walk - 1) / width) + 1 : 0;
    return KS_OK;
}

/* NO_END of a request would be none. */
static ks_status check_bounds(const ks_spec *spec, ks_error *error)
{
    static const int params[] = {KS_LAYOUT_STARTS, KS_LAYOUT_ENDS};
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < ks_list_of(spec, params[p])->count; i++)
            if (ks_list_of(spec, params[p])->value[i] == NO_END)
                return ks_fail(error, KS_RANGE, "layout: '%s' has %" PRId64 ": no axis is so long",
                               spec->op->params[params[p]].name, NO_END);
    return KS_OK;
}

static ks_status resolve_slice(ks_spec *spec, ks_error *error)
{
    static const int params[] = {KS_LAYOUT_STARTS, KS_LAYOUT_SIZES, KS_LAYOUT_STEPS, KS_LAYOUT_ENDS};
    static const int64_t others[] = {NO_END, -1, 1, NO_END};
    const ks_integers *ends = ks_spec_list(spec, KS_LAYOUT_ENDS);
    if (ends->count >= 0 && ks_spec_list(spec, KS_LAYOUT_SIZES)->count >= 0)
        return ks_fail(error, KS_PARAMETER, "layout: op 'slice' takes 'sizes' or 'ends', and not both");
    ks_status status = check_bounds(spec, error);
    if (status == KS_OK) status = resolve_lists(spec, params, others, 4, error);
    for (int axis = 0; axis < spec->in[0].rank && status == KS_OK; axis++) {
        int64_t *start = &ks_spec_list(spec, KS_LAYOUT_STARTS)->value[axis];
        const int64_t extent = spec->in[0].dims[axis];
        const bool last = ks_spec_list(spec, KS_LAYOUT_STEPS)->value[axis] < 0 && extent > 0;
        if (*start == NO_END) *start = last ? extent - 1 : 0;
        status = size_to_end(spec, axis, error);
        if (status == KS_OK) status = slice_axis(spec, axis, error);
    }
    *ks_spec_list(spec, KS_LAYOUT_ENDS) = (ks_integers){.count = -1};
    return status;
}

/* --- pad ------------------------------------------------------------------------------------------------------------- */

static ks_status pad_axis(ks_spec *spec, int axis, ks_error *error)
{
    const int64_t mode = spec->params[KS_LAYOUT_MODE].i, extent = spec->in[0].dims[axis];
    int64_t out = extent;
    for (int param = KS_LAYOUT_BEFORE; param <= KS_LAYOUT_AFTER; param++) {
        const int64_t more = ks_spec_list(spec, param)->value[axis];
        const char *const name = spec->op->params[param].name;
        if (more < 0)
            return ks_fail(error, KS_PARAMETER, "layout: '%s' has %" PRId64 " for axis %d: it takes 0 and more", name,
                           more, axis);
        if (more > 0 && extent == 0 && mode != KS_LAYOUT_CONSTANT)
            return ks_fail(error, KS_EMPTY, "layout: axis %d has no element to pad with by '%s'", axis, modes[mode]);
        if (mode == KS_LAYOUT_REFLECT && more >= extent && more > 0)
            return ks_fail(error, KS_SHAPE,
                           "layout: '%s' has %" PRId64 " for axis %d, whose %" PRId64 " elements reflect %" PRId64
                           " at most",
                           name, more, axis, extent, extent - 1);
        if (__builtin_add_overflow(out, more, &out))
            return ks_fail(error, KS_SHAPE, "layout: axis %d becomes longer than %" PRId64, axis, INT64_MAX);
    }
    spec->out[0].dims[axis] = out;
    return KS_OK;
}

static ks_status resolve_pad(ks_spec *spec, ks_error *error)
{
    const ks_dtype dtype = spec->in[0].dtype;
    const double value = spec->params[KS_LAYOUT_VALUE].d;
    static const int params[] = {KS_LAYOUT_BEFORE, KS_LAYOUT_AFTER};
    static const int64_t others[] = {0, 0};
    ks_status status = resolve_lists(spec, params, others, 2, error);
    for (int axis = 0; axis < spec->in[0].rank && status == KS_OK; axis++) status = pad_axis(spec, axis, error);
    if (status != KS_OK) return status;
    if (spec->params[KS_LAYOUT_MODE].i != KS_LAYOUT_CONSTANT) {
        if (value != 0)
            return ks_fail(error, KS_PARAMETER, "layout: 'value' is %.17g, mode '%s' does not take it", value,
                           modes[spec->params[KS_LAYOUT_MODE].i]);
    } else if (!ks_element_holds(dtype, value)) {
        return ks_fail(error, KS_PARAMETER, "layout: 'value' is %.17g, which %s does not hold", value,
                       ks_dtype_name(dtype));
    }
    return KS_OK;
}

/* --- concat ---------------------------------------------------------------------------------------------------------- */

static ks_status check_like(const ks_spec *spec, int input, int axis, ks_error *error)
{
    const ks_tensor *first = &spec->in[0], *in = &spec->in[input];
    const char *const name = spec->op->inputs[input].name;
    char has[KS_RANK_MAX * 21], needs[KS_RANK_MAX * 21];
    if (in->dtype != first->dtype)
        return ks_fail(error, KS_DATATYPE, "layout: %s has datatype %s, INPUT0 %s; they must be equal", name,
                       ks_dtype_name(in->dtype), ks_dtype_name(first->dtype));
    bool same = in->rank == first->rank;
    for (int i = 0; same && i < in->rank; i++) same = i == axis || in->dims[i] == first->dims[i];
    if (same) return KS_OK;
    ks_dims_text(in, has, sizeof has);
    ks_dims_text(first, needs, sizeof needs);
    return ks_fail(error, KS_SHAPE, "layout: %s has shape [%s], INPUT0 [%s]: they must be equal but along axis %d",
                   name, has, needs, axis);
}

static ks_status resolve_concat(ks_spec *spec, ks_error *error)
{
    const int64_t *axis = &spec->params[KS_LAYOUT_AXIS].i;
    const ks_tensor *in = &spec->in[0];
    const ks_status outside = resolve_axis(spec, error);
    if (outside != KS_OK) return outside;
    memcpy(spec->out[0].dims, in->dims, sizeof in->dims);
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i)) {
        const ks_status status = check_like(spec, i, (int)*axis, error);
        if (status != KS_OK) return status;
        if (__builtin_add_overflow(spec->out[0].dims[*axis], spec->in[i].dims[*axis], &spec->out[0].dims[*axis]))
            return ks_fail(error, KS_SHAPE, "layout: axis %" PRId64 " becomes longer than %" PRId64, *axis, INT64_MAX);
    }
    return KS_OK;
}

/* --- reshape --------------------------------------------------------------------------------------------------------- */

static ks_status fail_reshape(const ks_spec *spec, const char *why, ks_error *error)
{
    const ks_integers *list = ks_list_of(spec, KS_LAYOUT_NEW_SHAPE);
    char from[KS_RANK_MAX * 21], to[KS_RANK_MAX * 21] = "";
    size_t n = 0;
    ks_dims_text(&spec->in[0], from, sizeof from);
    for (int i = 0; i < list->count; i++)
        n += (size_t)snprintf(to + n, sizeof to - n, "%s%" PRId64, i ? "," : "", list->value[i]);
    return ks_fail(error, KS_SHAPE, "layout: INPUT0 has shape [%s], 'new_shape' is [%s]: %s", from, to, why);
}

/* Dimensions that are kept stay 0, so that they are whatever they become. */
static ks_status resolve_reshape(ks_spec *spec, ks_error *error)
{
    ks_integers *list = ks_spec_list(spec, KS_LAYOUT_NEW_SHAPE);
    const ks_tensor *in = &spec->in[0];
    ks_tensor *out = &spec->out[0];
    const int64_t count = ks_tensor_count(in);
    int64_t known = 1;
    int rest = -1;
    if (list->count < 0) return ks_fail(error, KS_PARAMETER, "layout: op 'reshape' needs parameter 'new_shape'");
    out->rank = (int)list->count;
    for (int i = 0; i < out->rank; i++) {
        int64_t dim = list->value[i];
        if (dim < -1) return fail_reshape(spec, "a dimension is negative", error);
        if (dim == -1 && rest >= 0) return fail_reshape(spec, "one dimension alone can take the rest", error);
        if (dim == 0 && i >= in->rank) return fail_reshape(spec, "0 keeps a dimension that is not there", error);
        if (dim == 0) dim = in->dims[i];
        out->dims[i] = dim;
        if (dim < 0)
            rest = i;
        else if (__builtin_mul_overflow(known, dim, &known))
            return fail_reshape(spec, "too many elements", error);
    }
    if (rest >= 0) {
        if (known == 0 || count % known != 0) return fail_reshape(spec, "the rest is no whole number", error);
        out->dims[rest] = count / known;
        known = count;
    }
    if (known != count) return fail_reshape(spec, "the number of elements differs", error);
    for (int i = 0; i < out->rank && i < in->rank && in->dims[i] == out->dims[i]; i++) list->value[i] = 0;
    return KS_OK;
}

/* --- split, expand, tile ---------------------------------------------------------------------------------------------- */

static ks_status resolve_split(ks_spec *spec, ks_error *error)
{
    const int64_t parts = spec->params[KS_LAYOUT_COUNT].i, *axis = &spec->params[KS_LAYOUT_AXIS].i;
    int64_t *part = &spec->params[KS_LAYOUT_PART].i;
    const ks_status status = resolve_axis(spec, error);
    if (status != KS_OK) return status;
    if (parts < 1) return ks_fail(error, KS_PARAMETER, "layout: 'parts' is %" PRId64 ": it takes 1 and more", parts);
    if (*part < -parts || *part >= parts)
        return ks_fail(error, KS_RANGE, "layout: 'part' is %" PRId64 ": it is outside [%" PRId64 ", %" PRId64 ")",
                       *part, -parts, parts);
    if (*part < 0) *part += parts;
    const int64_t extent = spec->in[0].dims[*axis];
    if (extent % parts != 0)
        return ks_fail(error, KS_SHAPE,
                       "layout: axis %" PRId64 " has %" PRId64 " elements, which are no %" PRId64 " equal parts", *axis,
                       extent, parts);
    memcpy(spec->out[0].dims, spec->in[0].dims, sizeof spec->out[0].dims);
    spec->out[0].dims[*axis] = extent / parts;
    return KS_OK;
}

/* Axes are those of NumPy's broadcast: the last ones go together. */
static ks_status resolve_expand(ks_spec *spec, ks_error *error)
{
    ks_integers *list = ks_spec_list(spec, KS_LAYOUT_NEW_SHAPE);
    const ks_tensor *in = &spec->in[0];
    const int more = (int)list->count - in->rank;
    if (list->count < 0) return ks_fail(error, KS_PARAMETER, "layout: op 'expand' needs parameter 'new_shape'");
    if (more < 0) return fail_reshape(spec, "there are fewer dimensions", error);
    spec->out[0].rank = (int)list->count;
    for (int i = 0; i < list->count; i++) {
        int64_t *dim = &list->value[i];
        const int64_t extent = i < more ? 1 : in->dims[i - more];
        if (*dim < 0) return fail_reshape(spec, "a dimension is negative", error);
        if (*dim == 0 && i < more) return fail_reshape(spec, "0 keeps a dimension that is not there", error);
        if (*dim != 0 && *dim != extent && extent != 1) return fail_reshape(spec, "it does not broadcast", error);
        spec->out[0].dims[i] = *dim ? *dim : extent;
        if (*dim == extent && i >= more) *dim = 0;
    }
    return KS_OK;
}

static ks_status resolve_tile(ks_spec *spec, ks_error *error)
{
    static const int params[] = {KS_LAYOUT_REPEATS};
    static const int64_t others[] = {1};
    const ks_status status = resolve_lists(spec, params, others, 1, error);
    if (status != KS_OK) return status;
    for (int axis = 0; axis < spec->in[0].rank; axis++) {
        const int64_t times = ks_spec_list(spec, KS_LAYOUT_REPEATS)->value[axis];
        if (times < 0)
            return ks_fail(error, KS_PARAMETER, "layout: 'repeats' has %" PRId64 " for axis %d: it takes 0 and more",
                           times, axis);
        if (__builtin_mul_overflow(spec->in[0].dims[axis], times, &spec->out[0].dims[axis]))
            return ks_fail(error, KS_SHAPE, "layout: axis %d becomes longer than %" PRId64, axis, INT64_MAX);
    }
    return KS_OK;
}

/* --- the rules ------------------------------------------------------------------------------------------------------- */

/* ks_resolve_fn */
static ks_status layout_resolve(ks_spec *spec, ks_error *error)
{
    static ks_resolve_fn *const resolve[KS_LAYOUT_OPS] = {[KS_LAYOUT_TRANSPOSE] = resolve_transpose,
                                                          [KS_LAYOUT_SLICE] = resolve_slice,
                                                          [KS_LAYOUT_PAD] = resolve_pad,
                                                          [KS_LAYOUT_CONCAT] = resolve_concat,
                                                          [KS_LAYOUT_RESHAPE] = resolve_reshape,
                                                          [KS_LAYOUT_SPLIT] = resolve_split,
                                                          [KS_LAYOUT_EXPAND] = resolve_expand,
                                                          [KS_LAYOUT_TILE] = resolve_tile};
    const int64_t op = spec->params[KS_LAYOUT_OP].i;
    if (op < 0 || op >= KS_LAYOUT_OPS)
        return ks_fail(error, KS_PARAMETER, "layout: op %" PRId64 " is not one of %d", op, KS_LAYOUT_OPS);
    ks_status status = check_inputs(spec, error);
    if (status == KS_OK) status = check_params(spec, error);
    if (status != KS_OK) return status;
    spec->outputs = 1;
    spec->flops = 0;
    spec->out[0] = (ks_tensor){.dtype = spec->in[0].dtype, .rank = spec->in[0].rank};
    status = resolve[op](spec, error);
    return status == KS_OK ? ks_tensor_measure(&spec->out[0], ks_output_name(0), error) : status;
}

/* Leading axes that are as they were. */
static bool keeps_axis(const ks_spec *spec, int axis)
{
    switch (op_of(spec)) {
    case KS_LAYOUT_TRANSPOSE:
        return ks_list_of(spec, KS_LAYOUT_AXES)->value[axis] == axis;
    case KS_LAYOUT_SLICE:
        return ks_list_of(spec, KS_LAYOUT_STARTS)->value[axis] == 0 &&
               ks_list_of(spec, KS_LAYOUT_SIZES)->value[axis] == -1 &&
               ks_list_of(spec, KS_LAYOUT_STEPS)->value[axis] == 1;
    case KS_LAYOUT_PAD:
        return ks_list_of(spec, KS_LAYOUT_BEFORE)->value[axis] == 0 &&
               ks_list_of(spec, KS_LAYOUT_AFTER)->value[axis] == 0;
    case KS_LAYOUT_CONCAT:
    case KS_LAYOUT_SPLIT:
        return axis < spec->params[KS_LAYOUT_AXIS].i;
    case KS_LAYOUT_TILE:
        return ks_list_of(spec, KS_LAYOUT_REPEATS)->value[axis] == 1;
    case KS_LAYOUT_EXPAND:
        return spec->out[0].rank == spec->in[0].rank && ks_list_of(spec, KS_LAYOUT_NEW_SHAPE)->value[axis] == 0;
    default:
        return axis < spec->out[0].rank && ks_list_of(spec, KS_LAYOUT_NEW_SHAPE)->value[axis] == 0;
    }
}

static ks_rows layout_rows(const ks_spec *spec)
{
    ks_rows rows = {.cut = spec->given, .out = 1};
    while (rows.dims < spec->in[0].rank && keeps_axis(spec, rows.dims)) rows.dims++;
    return rows;
}

/* ks_sample_fn */
static void layout_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_layout);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 3, .dims = {3, 70, 37}};
}

/* --- what is moved -------------------------------------------------------------------------------------------------- */

/* Of a slice no more than its runs, in whole segments of memory. */
static size_t layout_read_bytes(const ks_spec *spec)
{
    size_t bytes = 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) bytes += spec->in[i].size_bytes;
    if (op_of(spec) != KS_LAYOUT_SLICE || spec->out[0].size_bytes == 0) return bytes;
    const ks_layout_copy copy = ks_layout_copy_of(spec, 0);
    const int last = copy.rank - 1;
    const size_t size = ks_dtype_size(spec->in[0].dtype);
    const size_t run = copy.from[last] == 1 ? (size_t)copy.extent[last] * size : size;
    const size_t runs = spec->out[0].size_bytes / run;
    const size_t segments = (run + SEGMENT_BYTES - 1) / SEGMENT_BYTES * SEGMENT_BYTES;
    size_t moved;
    return !__builtin_mul_overflow(runs, segments, &moved) && moved < bytes ? moved : bytes;
}

/* ks_op.is_view: elements lie in the output as they do in INPUT0, or in a part of it. */
static bool layout_is_view(const ks_spec *spec, size_t *offset)
{
    const bool same = spec->out[0].size_bytes == spec->in[0].size_bytes;
    *offset = 0;
    if (op_of(spec) == KS_LAYOUT_CONCAT) return false;
    if (op_of(spec) == KS_LAYOUT_PAD || spec->out[0].size_bytes == 0) return same;
    const ks_layout_copy copy = ks_layout_copy_of(spec, 0);
    if (copy.rank != 1 || (copy.extent[0] > 1 && copy.from[0] != 1)) return false;
    *offset = (size_t)copy.from_start * ks_dtype_size(spec->in[0].dtype);
    return *offset + spec->out[0].size_bytes <= spec->in[0].size_bytes;
}

bool ks_layout_is_stack(const ks_spec *spec)
{
    return op_of(spec) == KS_LAYOUT_CONCAT &&
           ks_dims_product(spec->out[0].dims, 0, (int)spec->params[KS_LAYOUT_AXIS].i) == 1;
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_preset presets[] = {
    {.suffix = "transpose", .param = KS_LAYOUT_OP, .value = {.i = KS_LAYOUT_TRANSPOSE}},
    {.suffix = "concat", .param = KS_LAYOUT_OP, .value = {.i = KS_LAYOUT_CONCAT}, .inputs = 1u << 1}};

#define LATER(number)                                                                                                  \
    {                                                                                                                  \
        .name = "INPUT" #number, .role = "part", .rank_min = 1, .rank_max = KS_RANK_MAX, .optional = true              \
    }
#define LIST(number, text, code)                                                                                       \
    {                                                                                                                  \
        .name = text, .kind = KS_PARAM_LIST, .preset = {.list = number}, .status = code                                \
    }

const ks_op ks_op_layout = {
    .name = "layout",
    .inputs_count = KS_OP_INPUTS_MAX,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = ANY, .rank_min = 0, .rank_max = KS_RANK_MAX},
               LATER(1),
               LATER(2),
               LATER(3),
               LATER(4),
               LATER(5),
               LATER(6),
               LATER(7)},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_LAYOUT_PARAMS,
    .params = {[KS_LAYOUT_OP] = {.name = "op", .kind = KS_PARAM_CHOICE, .choices = op_names, .status = KS_PARAMETER},
               [KS_LAYOUT_AXES] = LIST(0, "axes", KS_AXIS),
               [KS_LAYOUT_STARTS] = LIST(1, "starts", KS_PARAMETER),
               [KS_LAYOUT_SIZES] = LIST(2, "sizes", KS_PARAMETER),
               [KS_LAYOUT_ENDS] = LIST(3, "ends", KS_PARAMETER),
               [KS_LAYOUT_STEPS] = LIST(4, "steps", KS_PARAMETER),
               [KS_LAYOUT_BEFORE] = LIST(5, "before", KS_PARAMETER),
               [KS_LAYOUT_AFTER] = LIST(6, "after", KS_PARAMETER),
               [KS_LAYOUT_MODE] = {.name = "mode", .kind = KS_PARAM_CHOICE, .choices = modes, .status = KS_PARAMETER},
               [KS_LAYOUT_VALUE] = {.name = "value", .kind = KS_PARAM_NUMBER, .status = KS_PARAMETER, .infinite = true},
               [KS_LAYOUT_AXIS] = {.name = "axis", .kind = KS_PARAM_INT, .status = KS_AXIS},
               [KS_LAYOUT_NEW_SHAPE] = LIST(7, "new_shape", KS_SHAPE),
               [KS_LAYOUT_REPEATS] = LIST(8, "repeats", KS_PARAMETER),
               [KS_LAYOUT_COUNT] = {.name = "parts", .kind = KS_PARAM_INT, .preset = {.i = 2}, .status = KS_PARAMETER},
               [KS_LAYOUT_PART] = {.name = "part", .kind = KS_PARAM_INT, .status = KS_PARAMETER}},
    .lists_count = 9,
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = layout_resolve,
    .rows = layout_rows,
    .sample = layout_sample,
    .is_view = layout_is_view,
    .read_bytes = layout_read_bytes,
};
