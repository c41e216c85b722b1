/* Sliding windows, unfolded: descriptor and rules. Bits are moved.
 *
 *   y[n, w, t * C + c] = x[n, w * stride + t * dilation - before, c]: window w, tap t, channel c; outside x it is a value
 *
 * Shapes   x: [.., spatial.., C] (nhwc) or [.., C, spatial..] (nchw), one or two spatial axes, as many as `size` has numbers; y: [.., windows..,
 *          taps * C], of either. Of two spatial axes the taps of one row of the window are neighbours.
 * Use      a product of y with a weight [taps * C, O] is a convolution.
 * Source   NumPy's sliding_window_view and PyTorch's unfold; padding is ONNX's Conv: pads, auto_pad. */
#include "ops/window/window.h"

#include <inttypes.h>
#include <string.h>

#include "ops/numbers/element.h"

enum {
    ANY = KS_DTYPE_BIT(KS_BYTES) - 1,
    SEGMENT_BYTES = 64 /* that memory moves at least: two sectors */
};
extern const ks_op ks_op_window;

static const char *const layouts[] = {"nhwc", "nchw", NULL};                       /* as ks_windows_layout */
static const char *const auto_pads[] = {"none", "same_upper", "same_lower", NULL}; /* as ks_windows_auto_pad */

static int64_t number_of(const ks_spec *spec, int param, int i)
{
    return ks_list_of(spec, param)->value[i];
}

static int spatial_of(const ks_spec *spec)
{
    return (int)ks_list_of(spec, KS_WINDOWS_SIZE)->count;
}

/* INPUT0's first spatial axis, and its axis of channels. */
static int first_spatial(const ks_spec *spec)
{
    return spec->in[0].rank - spatial_of(spec) - (spec->params[KS_WINDOWS_LAYOUT].i == KS_WINDOWS_NHWC);
}

static int channels_axis(const ks_spec *spec)
{
    return spec->params[KS_WINDOWS_LAYOUT].i == KS_WINDOWS_NHWC ? spec->in[0].rank - 1 : first_spatial(spec) - 1;
}

/* --- what is accepted ------------------------------------------------------------------------------------------------ */

static ks_status check_input(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    const int64_t spatial = ks_spec_list(spec, KS_WINDOWS_SIZE)->count;
    if (!(ANY & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "window: INPUT0 has datatype %s, whose elements have no size of their own",
                       ks_dtype_name(in->dtype));
    if (spatial < 0) return ks_fail(error, KS_PARAMETER, "window: parameter 'size' is needed");
    if (spatial < 1 || spatial > KS_WINDOWS_SPATIAL_MAX)
        return ks_fail(error, KS_PARAMETER, "window: 'size' has %" PRId64 " numbers, takes 1 or %d", spatial,
                       KS_WINDOWS_SPATIAL_MAX);
    if (in->rank < spatial + 1 || in->rank > KS_RANK_MAX)
        return ks_fail(error, KS_SHAPE, "window: INPUT0 has rank %d, windows of %d axes take %d to %d", in->rank,
                       (int)spatial, (int)spatial + 1, KS_RANK_MAX);
    return ks_tensor_measure(in, "INPUT0", error);
}

/* A number for each spatial axis: one is for all of them, none is 1. */
static ks_status resolve_numbers(ks_spec *spec, int param, ks_error *error)
{
    ks_integers *list = ks_spec_list(spec, param);
    const int spatial = spatial_of(spec);
    const char *const name = spec->op->params[param].name;
    if (list->count >= 0 && list->count != 1 && list->count != spatial)
        return ks_fail(error, KS_PARAMETER, "window: '%s' has %" PRId64 " numbers, 'size' has %d", name, list->count,
                       spatial);
    for (int i = 0; i < spatial; i++)
        if (list->count < spatial) list->value[i] = list->count == 1 ? list->value[0] : 1;
    list->count = spatial;
    for (int i = 0; i < spatial; i++)
        if (list->value[i] < 1)
            return ks_fail(error, KS_PARAMETER, "window: '%s' has %" PRId64 " for spatial axis %d: it takes 1 and more",
                           name, list->value[i], i);
    return KS_OK;
}

/* From the first element under a window to behind its last one. */
static ks_status span_of(const ks_spec *spec, int i, int64_t *span, ks_error *error)
{
    const int64_t size = number_of(spec, KS_WINDOWS_SIZE, i), dilation = number_of(spec, KS_WINDOWS_DILATION, i);
    if (!__builtin_mul_overflow(size - 1, dilation, span) && !__builtin_add_overflow(*span, 1, span)) return KS_OK;
    return ks_fail(error, KS_SHAPE, "window: %" PRId64 " taps by %" PRId64 " reach further than any axis", size,
                   dilation);
}

/* As many windows as strides fit the extent; of an odd number of elements to add one more stands at the end, or in front. */
static ks_status pad_alike(const ks_spec *spec, int i, ks_integers *pad, ks_error *error)
{
    const int64_t in = spec->in[0].dims[first_spatial(spec) + i], stride = number_of(spec, KS_WINDOWS_STRIDE, i);
    const bool lower = spec->params[KS_WINDOWS_AUTO_PAD].i == KS_WINDOWS_SAME_LOWER;
    int64_t span, total = 0;
    const ks_status status = span_of(spec, i, &span, error);
    if (status != KS_OK) return status;
    const int64_t last = in > 0 ? (in - 1) / stride * stride : 0; /* where the last window begins, without padding */
    if (in > 0 && span > in - last) total = span - (in - last);
    pad->value[i] = total / 2 + (lower && total % 2);
    pad->value[i + spatial_of(spec)] = total - pad->value[i];
    return KS_OK;
}

/* Two numbers for each spatial axis: those in front of all of them, then those behind. */
static ks_status resolve_pad(ks_spec *spec, ks_error *error)
{
    ks_integers *pad = ks_spec_list(spec, KS_WINDOWS_PAD);
    ks_value *alike = &spec->params[KS_WINDOWS_AUTO_PAD];
    const int spatial = spatial_of(spec);
    ks_status status = KS_OK;
    if (pad->count >= 0 && alike->i != KS_WINDOWS_GIVEN)
        return ks_fail(error, KS_PARAMETER, "window: 'pad' and 'auto_pad' are given, it takes one of them");
    if (pad->count >= 0 && pad->count != spatial && pad->count != 2 * spatial)
        return ks_fail(error, KS_PARAMETER, "window: 'pad' has %" PRId64 " numbers, takes %d or %d", pad->count,
                       spatial, 2 * spatial);
    for (int i = 0; i < spatial; i++) {
        if (pad->count < 0) pad->value[i] = pad->value[i + spatial] = 0;
        if (pad->count == spatial) pad->value[i + spatial] = pad->value[i];
    }
    for (int i = 0; i < spatial && alike->i != KS_WINDOWS_GIVEN && status == KS_OK; i++)
        status = pad_alike(spec, i, pad, error);
    if (status != KS_OK) return status;
    pad->count = 2 * spatial;
    alike->i = KS_WINDOWS_GIVEN;
    for (int i = 0; i < pad->count; i++)
        if (pad->value[i] < 0)
            return ks_fail(error, KS_PARAMETER, "window: 'pad' has %" PRId64 ": it takes 0 and more", pad->value[i]);
    return KS_OK;
}

/* Windows along a spatial axis. */
static ks_status count_windows(const ks_spec *spec, int i, int64_t *count, ks_error *error)
{
    const int64_t in = spec->in[0].dims[first_spatial(spec) + i];
    int64_t span, padded;
    const ks_status status = span_of(spec, i, &span, error);
    if (status != KS_OK) return status;
    if (__builtin_add_overflow(in, number_of(spec, KS_WINDOWS_PAD, i), &padded) ||
        __builtin_add_overflow(padded, number_of(spec, KS_WINDOWS_PAD, i + spatial_of(spec)), &padded))
        return ks_fail(error, KS_SHAPE, "window: spatial axis %d becomes longer than %" PRId64, i, INT64_MAX);
    if (in == 0 || span > padded)
        return ks_fail(error, KS_SHAPE,
                       "window: a window takes %" PRId64 " elements of spatial axis %d, which has %" PRId64
                       ", with padding %" PRId64,
                       span, i, in, padded);
    *count = (padded - span) / number_of(spec, KS_WINDOWS_STRIDE, i) + 1;
    return KS_OK;
}

static ks_status make_output(ks_spec *spec, ks_error *error)
{
    const ks_tensor *in = &spec->in[0];
    const int spatial = spatial_of(spec), lead = in->rank - spatial - 1;
    ks_tensor *out = &spec->out[0];
    int64_t row = in->dims[channels_axis(spec)];
    *out = (ks_tensor){.dtype = in->dtype, .rank = in->rank};
    memcpy(out->dims, in->dims, (size_t)lead * sizeof *out->dims);
    for (int i = 0; i < spatial; i++) {
        const ks_status status = count_windows(spec, i, &out->dims[lead + i], error);
        if (status != KS_OK) return status;
        if (__builtin_mul_overflow(row, number_of(spec, KS_WINDOWS_SIZE, i), &row))
            return ks_fail(error, KS_SHAPE, "window: a window has more than %" PRId64 " elements", INT64_MAX);
    }
    out->dims[lead + spatial] = row;
    return ks_tensor_measure(out, ks_output_name(0), error);
}

/* Of windows that do not leave the input it is no part of the work. */
static ks_status resolve_value(ks_spec *spec, ks_error *error)
{
    double *value = &spec->params[KS_WINDOWS_VALUE].d;
    bool padded = false;
    if (!ks_element_holds(spec->in[0].dtype, *value))
        return ks_fail(error, KS_PARAMETER, "window: 'value' is %.17g, which %s does not hold", *value,
                       ks_dtype_name(spec->in[0].dtype));
    for (int i = 0; i < ks_spec_list(spec, KS_WINDOWS_PAD)->count; i++)
        padded = padded || number_of(spec, KS_WINDOWS_PAD, i) > 0;
    if (!padded) *value = 0;
    return KS_OK;
}

/* ks_resolve_fn */
static ks_status window_resolve(ks_spec *spec, ks_error *error)
{
    ks_status status = check_input(spec, error);
    if (status == KS_OK) status = resolve_numbers(spec, KS_WINDOWS_SIZE, error);
    if (status == KS_OK) status = resolve_numbers(spec, KS_WINDOWS_STRIDE, error);
    if (status == KS_OK) status = resolve_numbers(spec, KS_WINDOWS_DILATION, error);
    if (status == KS_OK) status = resolve_pad(spec, error);
    if (status == KS_OK) status = resolve_value(spec, error);
    if (status != KS_OK) return status;
    spec->outputs = 1;
    spec->flops = 0;
    return make_output(spec, error);
}

/* Axes in front of the spatial ones and the channels stay. */
static ks_rows window_rows(const ks_spec *spec)
{
    return (ks_rows){.dims = spec->in[0].rank - spatial_of(spec) - 1, .cut = 1, .out = 1};
}

/* ks_sample_fn: padded, by strides. */
static void window_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_window);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 4, .dims = {1, 7, 9, 12}};
    *ks_spec_list(spec, KS_WINDOWS_SIZE) = (ks_integers){.count = 2, .value = {3, 3}};
    *ks_spec_list(spec, KS_WINDOWS_STRIDE) = (ks_integers){.count = 2, .value = {1, 2}};
    spec->params[KS_WINDOWS_AUTO_PAD].i = KS_WINDOWS_SAME_UPPER;
}

/* --- in numbers ------------------------------------------------------------------------------------------------------ */

static ks_windows_axis axis_of(const ks_spec *spec, int i)
{
    const int lead = spec->in[0].rank - spatial_of(spec) - 1;
    return (ks_windows_axis){.in = spec->in[0].dims[first_spatial(spec) + i],
                             .out = spec->out[0].dims[lead + i],
                             .size = number_of(spec, KS_WINDOWS_SIZE, i),
                             .stride = number_of(spec, KS_WINDOWS_STRIDE, i),
                             .dilation = number_of(spec, KS_WINDOWS_DILATION, i),
                             .before = number_of(spec, KS_WINDOWS_PAD, i)};
}

static bool leaves(const ks_windows_axis *a)
{
    return a->before > 0 || (a->out - 1) * a->stride + (a->size - 1) * a->dilation - a->before >= a->in;
}

ks_windows ks_windows_of(const ks_spec *spec)
{
    const int spatial = spatial_of(spec);
    ks_windows w = {.lead = ks_dims_product(spec->in[0].dims, 0, spec->in[0].rank - spatial - 1),
                    .channels = spec->in[0].dims[channels_axis(spec)],
                    .y = {1, 1, 1, 1, 1, 0},
                    .x = axis_of(spec, spatial - 1),
                    .fill = ks_element_bits(spec->in[0].dtype, spec->params[KS_WINDOWS_VALUE].d)};
    if (spatial == 2) w.y = axis_of(spec, 0);
    w.padded = leaves(&w.y) || leaves(&w.x);
    w.channels_first =
        spec->params[KS_WINDOWS_LAYOUT].i == KS_WINDOWS_NCHW && w.channels > 1 && (w.y.in > 1 || w.x.in > 1);
    return w;
}

/* Each element once, one behind the other. */
static bool parts(const ks_windows_axis *a)
{
    return a->in == a->out * a->size && (a->size == 1 || a->dilation == 1) && (a->out == 1 || a->stride == a->size);
}

/* ks_op.is_view: windows that follow one another are a reshape, unless rows of several stand between the taps of one. */
static bool window_is_view(const ks_spec *spec, size_t *offset)
{
    *offset = 0;
    if (spec->out[0].size_bytes == 0) return spec->in[0].size_bytes == 0;
    const ks_windows w = ks_windows_of(spec);
    return !w.padded && !w.channels_first && parts(&w.y) && parts(&w.x) && (w.x.out == 1 || w.y.size == 1);
}

/* Elements of an axis that some tap may lie on, at most. */
static int64_t touched(const ks_windows_axis *a)
{
    return a->size > a->in / a->out ? a->in : a->out * a->size;
}

/* No more than the elements under windows, in whole segments of memory; each once. */
static size_t window_read_bytes(const ks_spec *spec)
{
    const size_t whole = spec->in[0].size_bytes, size = ks_dtype_size(spec->in[0].dtype);
    if (spec->out[0].size_bytes == 0) return 0;
    const ks_windows w = ks_windows_of(spec);
    const int64_t run = w.channels_first ? w.x.dilation == 1 ? w.x.size : 1 : w.channels;
    const int64_t count = w.lead * touched(&w.y) * touched(&w.x) * w.channels; /* no more than the input has */
    const size_t run_bytes = (size_t)run * size, runs = (size_t)((count + run - 1) / run);
    const size_t segments = (run_bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES * SEGMENT_BYTES;
    size_t moved;
    return !__builtin_mul_overflow(runs, segments, &moved) && moved < whole ? moved : whole;
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_integers three = {.count = 1, .value = {3}}, three_by_three = {.count = 2, .value = {3, 3}};
static const ks_preset presets[] = {
    {.suffix = "3", .param = KS_WINDOWS_SIZE, .list = &three, .in_rank = 3, .out_rank = 3},
    {.suffix = "3x3", .param = KS_WINDOWS_SIZE, .list = &three_by_three, .in_rank = 4, .out_rank = 4}};

#define LIST(number, text)                                                                                             \
    {                                                                                                                  \
        .name = text, .kind = KS_PARAM_LIST, .preset = {.list = number}, .status = KS_PARAMETER                        \
    }
#define CHOICE(text, list)                                                                                             \
    {                                                                                                                  \
        .name = text, .kind = KS_PARAM_CHOICE, .choices = list, .status = KS_PARAMETER                                 \
    }

const ks_op ks_op_window = {
    .name = "window",
    .inputs_count = 1,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = ANY, .rank_min = 2, .rank_max = KS_RANK_MAX}},
    .in_rank = 3,
    .out_rank = 3,
    .params_count = KS_WINDOWS_PARAMS,
    .params =
        {[KS_WINDOWS_SIZE] = LIST(0, "size"),
         [KS_WINDOWS_STRIDE] = LIST(1, "stride"),
         [KS_WINDOWS_DILATION] = LIST(2, "dilation"),
         [KS_WINDOWS_PAD] = LIST(3, "pad"),
         [KS_WINDOWS_AUTO_PAD] = CHOICE("auto_pad", auto_pads),
         [KS_WINDOWS_LAYOUT] = CHOICE("layout", layouts),
         [KS_WINDOWS_VALUE] = {.name = "value", .kind = KS_PARAM_NUMBER, .status = KS_PARAMETER, .infinite = true}},
    .lists_count = 4,
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = window_resolve,
    .rows = window_rows,
    .sample = window_sample,
    .is_view = window_is_view,
    .read_bytes = window_read_bytes,
};
