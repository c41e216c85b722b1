/* A resolved layout as copies of boxes, or as padding: what kernels go through.
 *
 * Owns     nothing.
 * Threads  any. */
#include "ops/layout.h"

#include "ops/numbers/element.h"

static ks_layout_op op_of(const ks_spec *spec)
{
    return (ks_layout_op)spec->params[KS_LAYOUT_OP].i;
}

/* Elements from one index of the axis to the next. */
static int64_t stride_of(const ks_tensor *tensor, int axis)
{
    return ks_dims_product(tensor->dims, axis + 1, tensor->rank);
}

/* An axis inside those present, joined to the innermost of them where both sides go on from it as they do along it. */
static void push_axis(ks_layout_copy *copy, int64_t extent, int64_t from, int64_t to)
{
    if (extent == 1) return;
    const int last = copy->rank - 1;
    const bool joins = copy->rank > 0 && copy->from[last] == from * extent && copy->to[last] == to * extent;
    const int at = joins ? last : copy->rank++;
    copy->extent[at] = joins ? copy->extent[at] * extent : extent;
    copy->from[at] = from;
    copy->to[at] = to;
}

/* Along the output's axis i the input's axis, its first index and its step. */
static void push_view(ks_layout_copy *copy, const ks_spec *spec, int i)
{
    const ks_tensor *in = &spec->in[0], *out = &spec->out[0];
    const int64_t to = stride_of(out, i);
    int axis = i;
    if (op_of(spec) == KS_LAYOUT_TRANSPOSE) axis = (int)ks_list_of(spec, KS_LAYOUT_AXES)->value[i];
    if (op_of(spec) == KS_LAYOUT_EXPAND) axis = i - (out->rank - in->rank);
    const int64_t stride = axis < 0 ? 0 : stride_of(in, axis), extent = axis < 0 ? 1 : in->dims[axis];
    switch (op_of(spec)) {
    case KS_LAYOUT_SLICE:
        copy->from_start += ks_list_of(spec, KS_LAYOUT_STARTS)->value[i] * stride;
        push_axis(copy, out->dims[i], stride * ks_list_of(spec, KS_LAYOUT_STEPS)->value[i], to);
        break;
    case KS_LAYOUT_SPLIT:
        if (i == spec->params[KS_LAYOUT_AXIS].i)
            copy->from_start = spec->params[KS_LAYOUT_PART].i * out->dims[i] * stride;
        push_axis(copy, out->dims[i], stride, to);
        break;
    case KS_LAYOUT_TILE:
        push_axis(copy, ks_list_of(spec, KS_LAYOUT_REPEATS)->value[i], 0, extent * to);
        push_axis(copy, extent, stride, to);
        break;
    default: /* expand: the one index along the axis, again and again */
        push_axis(copy, out->dims[i], extent == 1 ? 0 : stride, to);
        break;
    }
}

ks_layout_copy ks_layout_copy_of(const ks_spec *spec, int input)
{
    const ks_tensor *in = &spec->in[input], *out = &spec->out[0];
    ks_layout_copy copy = {0};
    if (op_of(spec) == KS_LAYOUT_RESHAPE) {
        push_axis(&copy, ks_tensor_count(in), 1, 1);
    } else if (op_of(spec) == KS_LAYOUT_CONCAT) {
        const int axis = (int)spec->params[KS_LAYOUT_AXIS].i;
        const int64_t inner = stride_of(out, axis), run = in->dims[axis] * inner;
        for (int i = ks_next_input(spec, -1); i < input; i = ks_next_input(spec, i))
            copy.to_start += spec->in[i].dims[axis] * inner;
        push_axis(&copy, ks_dims_product(out->dims, 0, axis), run, out->dims[axis] * inner);
        push_axis(&copy, run, 1, 1);
    } else {
        for (int i = 0; i < out->rank; i++) push_view(&copy, spec, i);
    }
    if (copy.rank > 0) return copy;
    copy.rank = 1;
    copy.extent[0] = copy.from[0] = copy.to[0] = 1;
    return copy;
}

ks_layout_pad ks_layout_pad_of(const ks_spec *spec)
{
    const ks_tensor *in = &spec->in[0];
    ks_layout_pad pad = {.mode = (ks_layout_mode)spec->params[KS_LAYOUT_MODE].i,
                         .fill = ks_element_bits(in->dtype, spec->params[KS_LAYOUT_VALUE].d)};
    bool whole = false;
    for (int i = 0; i < in->rank; i++) {
        const int64_t before = ks_list_of(spec, KS_LAYOUT_BEFORE)->value[i];
        const int64_t after = ks_list_of(spec, KS_LAYOUT_AFTER)->value[i];
        const bool joins = whole && before == 0 && after == 0;
        const int at = joins ? pad.rank - 1 : pad.rank++;
        pad.extent[at] = joins ? pad.extent[at] * in->dims[i] : in->dims[i];
        pad.before[at] = before;
        pad.after[at] = after;
        whole = before == 0 && after == 0;
    }
    if (pad.rank > 0) return pad;
    pad.rank = 1;
    pad.extent[0] = 1;
    return pad;
}
