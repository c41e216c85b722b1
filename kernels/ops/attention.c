/* Attention: softmax(scale * query key^T + mask) value, without the scores: descriptor and rules.
 *
 * Shapes   query [B, Hq, Sq, D], key [B, Hkv, Sk, D], value [B, Hkv, Sk, Dv]; leading axes may be left out, of all three. layout=bshd:
 *          [B, S, H, D]. Hq is a multiple of Hkv, and neighbouring query heads share a key head. mask: [B or 1, Hq or 1, Sq or 1, Sk], leading
 *          axes may be left out. lengths: [B], how many keys of a batch there are. OUTPUT0 [B, Hq, Sq, Dv] as the query lies, OUTPUT1 (lse) the
 *          logarithm of each row's sum, FP32 [B, Hq, Sq].
 * Selected key j of row i where a mask of BOOL is true, j is below the batch's length L, and not behind the row (top_left j <= i,
 *          bottom_right j <= i + L - Sq; L is Sk without lengths), and at most `window` keys in front of that. What is not selected has no
 *          influence, whatever stands there.
 * Values   z = scale * query key, then softcap * tanh(z / softcap), then the mask is added. A row that attends to nothing, or whose z are all
 *          -inf, is 0 and its lse -inf; masked_rows=nan: NaN. */
#include "ops/attention/attention.h"
#include "ops/spec/places.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DTYPES = KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) };
extern const ks_op ks_op_attention;

static const char *const causals[] = {"none", "top_left", "bottom_right", NULL}; /* as ks_attention_causal */
static const char *const layouts[] = {"bhsd", "bshd", NULL};
static const char *const masked_rows[] = {"zero", "nan", NULL};

/* --- rules ----------------------------------------------------------------------------------------------------------- */

static ks_status check_input(ks_spec *spec, int input, uint32_t taken, const char *words, ks_error *error)
{
    ks_tensor *in = &spec->in[input];
    const ks_input *row = &spec->op->inputs[input];
    if (!(taken & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "attention: %s has datatype %s, takes %s", row->name,
                       ks_dtype_name(in->dtype), words);
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "attention: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                       row->rank_max);
    return ks_tensor_measure(in, row->name, error);
}

static bool is_bshd(const ks_spec *spec)
{
    return spec->params[KS_ATTENTION_LAYOUT].i != 0;
}

/* Extents of a tensor of rank 2 to 4 as [B, H, S, D]. */
typedef struct extents {
    int64_t batches, heads, rows, depth;
} extents;

static extents extents_of(const ks_spec *spec, const ks_tensor *x)
{
    const int r = x->rank, heads = is_bshd(spec) ? r - 2 : r - 3, rows = is_bshd(spec) && r > 2 ? r - 3 : r - 2;
    return (extents){.batches = r > 3 ? x->dims[0] : 1,
                     .heads = r > 2 ? x->dims[heads] : 1,
                     .rows = x->dims[rows],
                     .depth = x->dims[r - 1]};
}

static ks_status apart(ks_error *error, int64_t mine, const char *what, int input, int64_t other)
{
    return ks_fail(error, KS_SHAPE, "attention: INPUT%d has %" PRId64 " %s, INPUT%d has %" PRId64, input - 1, mine,
                   what, input, other);
}

static ks_status check_heads(const extents *q, const extents *k, ks_error *error)
{
    if (k->heads == 0 ? q->heads == 0 : q->heads % k->heads == 0) return KS_OK;
    return ks_fail(error, KS_SHAPE,
                   "attention: INPUT0 has %" PRId64 " heads, which is no multiple of INPUT1's %" PRId64, q->heads,
                   k->heads);
}

static ks_status check_depth(const ks_spec *spec, int input, ks_error *error)
{
    const int64_t depth = spec->in[input].dims[spec->in[input].rank - 1];
    if (depth >= 1 && depth <= KS_ATTENTION_DEPTH_MOST) return KS_OK;
    return ks_fail(error, KS_SHAPE, "attention: INPUT%d has heads of %" PRId64 " elements, takes 1 to %d", input, depth,
                   KS_ATTENTION_DEPTH_MOST);
}

static ks_status check_extents(const ks_spec *spec, ks_error *error)
{
    const ks_tensor *in = spec->in;
    for (int i = KS_ATTENTION_KEY; i <= KS_ATTENTION_VALUE; i++) {
        if (in[i].dtype != in->dtype)
            return ks_fail(error, KS_DATATYPE, "attention: INPUT0 has datatype %s, INPUT%d %s; they must be equal",
                           ks_dtype_name(in->dtype), i, ks_dtype_name(in[i].dtype));
        if (in[i].rank != in->rank)
            return ks_fail(error, KS_SHAPE, "attention: INPUT0 has rank %d, INPUT%d %d; they must be equal", in->rank,
                           i, in[i].rank);
    }
    const extents q = extents_of(spec, in), k = extents_of(spec, in + 1), v = extents_of(spec, in + 2);
    if (q.batches != k.batches) return apart(error, q.batches, "batches", 1, k.batches);
    if (k.batches != v.batches) return apart(error, k.batches, "batches", 2, v.batches);
    if (q.depth != k.depth) return apart(error, q.depth, "elements in a head", 1, k.depth);
    if (k.rows != v.rows) return apart(error, k.rows, "keys", 2, v.rows);
    if (k.heads != v.heads) return apart(error, k.heads, "heads of keys", 2, v.heads);
    ks_status status = check_heads(&q, &k, error);
    if (status == KS_OK) status = check_depth(spec, KS_ATTENTION_QUERY, error);
    return status == KS_OK ? check_depth(spec, KS_ATTENTION_VALUE, error) : status;
}

/* The scores as the mask broadcasts to them. */
static ks_tensor scores_of(const ks_spec *spec)
{
    const extents q = extents_of(spec, spec->in), k = extents_of(spec, spec->in + 1);
    ks_tensor scores = {.rank = spec->in->rank};
    const int64_t dims[] = {q.batches, q.heads, q.rows, k.rows};
    memcpy(scores.dims, dims + 4 - scores.rank, (size_t)scores.rank * sizeof *dims);
    return scores;
}

static ks_status check_mask(ks_spec *spec, ks_error *error)
{
    const ks_tensor *mask = &spec->in[KS_ATTENTION_MASK], scores = scores_of(spec);
    const ks_dtype own = spec->in->dtype;
    if (!ks_has_input(spec, KS_ATTENTION_MASK)) return KS_OK;
    char words[48], texts[2][KS_RANK_MAX * 21];
    snprintf(words, sizeof words, "BOOL, FP32 or INPUT0's, %s", ks_dtype_name(own));
    const ks_status status = check_input(
        spec, KS_ATTENTION_MASK, KS_DTYPE_BIT(KS_BOOL) | KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(own), words, error);
    if (status != KS_OK) return status;
    bool broadcasts = mask->rank <= scores.rank && mask->dims[mask->rank - 1] == scores.dims[scores.rank - 1];
    for (int i = 2; i <= mask->rank && broadcasts; i++)
        broadcasts = mask->dims[mask->rank - i] == 1 || mask->dims[mask->rank - i] == scores.dims[scores.rank - i];
    if (broadcasts) return KS_OK;
    ks_dims_text(mask, texts[0], sizeof texts[0]);
    ks_dims_text(&scores, texts[1], sizeof texts[1]);
    return ks_fail(error, KS_SHAPE,
                   "attention: INPUT3 (mask) has shape [%s], which does not broadcast to the scores' [%s]", texts[0],
                   texts[1]);
}

static ks_status check_lengths(ks_spec *spec, ks_error *error)
{
    const ks_tensor *lengths = &spec->in[KS_ATTENTION_LENGTHS];
    if (!ks_has_input(spec, KS_ATTENTION_LENGTHS)) return KS_OK;
    const ks_status status = check_input(spec, KS_ATTENTION_LENGTHS, KS_PLACES_DTYPES, "INT32 or INT64", error);
    if (status != KS_OK) return status;
    const int64_t batches = extents_of(spec, spec->in).batches;
    if (lengths->dims[0] == batches) return KS_OK;
    return ks_fail(error, KS_SHAPE,
                   "attention: INPUT4 (lengths) has %" PRId64 " values, INPUT0 has %" PRId64 " batches",
                   lengths->dims[0], batches);
}

static ks_status resolve_params(ks_spec *spec, ks_error *error)
{
    ks_value *params = spec->params;
    double *scale = &params[KS_ATTENTION_SCALE].d, *softcap = &params[KS_ATTENTION_SOFTCAP].d;
    if (isnan(*scale)) *scale = 1 / sqrt((double)spec->in->dims[spec->in->rank - 1]);
    if (!(*scale >= -1e38 && *scale <= 1e38))
        return ks_fail(error, KS_PARAMETER, "attention: parameter 'scale' is %g, takes -1e38 to 1e38", *scale);
    if (!(*softcap == 0 || (*softcap >= 1e-30 && *softcap <= 1e38)))
        return ks_fail(error, KS_PARAMETER, "attention: parameter 'softcap' is %g, takes 0 or 1e-30 to 1e38", *softcap);
    if (*scale == 0) *scale = 0; /* -0 is the same work */
    if (*softcap == 0) *softcap = 0;
    const int64_t window = params[KS_ATTENTION_WINDOW].i;
    if (window < 0)
        return ks_fail(error, KS_PARAMETER, "attention: parameter 'window' is %" PRId64 ", takes 0 and above", window);
    if (window > 0 && params[KS_ATTENTION_CAUSAL].i == KS_ATTENTION_ALL)
        return ks_fail(error, KS_PARAMETER, "attention: parameter 'window' is %" PRId64 ", which takes a causal",
                       window);
    return KS_OK;
}

static ks_status set_outputs(ks_spec *spec, ks_error *error)
{
    const ks_tensor *query = &spec->in[KS_ATTENTION_QUERY], *value = &spec->in[KS_ATTENTION_VALUE];
    const ks_tensor scores = scores_of(spec);
    spec->outputs = (uint8_t)(1 + (spec->params[KS_ATTENTION_LSE].i != 0));
    spec->out[0] = (ks_tensor){.dtype = query->dtype, .rank = query->rank};
    memcpy(spec->out[0].dims, query->dims, sizeof query->dims);
    spec->out[0].dims[query->rank - 1] = value->dims[value->rank - 1];
    const ks_status status = ks_tensor_measure(&spec->out[0], ks_output_name(0), error);
    if (status != KS_OK || spec->outputs == 1) return status;
    spec->out[1] = (ks_tensor){.dtype = KS_FP32, .rank = scores.rank - 1};
    memcpy(spec->out[1].dims, scores.dims, (size_t)(scores.rank - 1) * sizeof *scores.dims);
    return ks_tensor_measure(&spec->out[1], ks_output_name(1), error);
}

/* ks_resolve_fn */
static ks_status attention_resolve(ks_spec *spec, ks_error *error)
{
    ks_status status = KS_OK;
    for (int i = KS_ATTENTION_QUERY; i <= KS_ATTENTION_VALUE && status == KS_OK; i++)
        status = check_input(spec, i, DTYPES, "FP32, FP16 or BF16", error);
    if (status == KS_OK) status = check_extents(spec, error);
    if (status == KS_OK) status = resolve_params(spec, error);
    if (status == KS_OK) status = check_mask(spec, error);
    if (status == KS_OK) status = check_lengths(spec, error);
    if (status == KS_OK) status = set_outputs(spec, error);
    if (status != KS_OK) return status;
    const extents q = extents_of(spec, spec->in), v = extents_of(spec, spec->in + 2);
    const bool half = spec->params[KS_ATTENTION_CAUSAL].i != KS_ATTENTION_ALL && q.rows > 1;
    spec->flops = (half ? 1.0 : 2.0) * (double)q.batches * (double)q.heads * (double)q.rows * (double)v.rows *
                  (double)(q.depth + v.depth);
    return KS_OK;
}

/* --- in numbers ------------------------------------------------------------------------------------------------------ */

static ks_attention_strides strides_of(const ks_spec *spec, const ks_tensor *x)
{
    const extents e = extents_of(spec, x);
    const bool bshd = is_bshd(spec);
    return (ks_attention_strides){.batch = e.heads * e.rows * e.depth,
                                  .head = bshd ? e.depth : e.rows * e.depth,
                                  .row = bshd ? e.heads * e.depth : e.depth};
}

static ks_attention_strides mask_strides(const ks_spec *spec)
{
    const ks_tensor *mask = &spec->in[KS_ATTENTION_MASK];
    int64_t strides[3] = {0}, stride = mask->dims[mask->rank - 1];
    for (int i = 2; i <= mask->rank; i++) {
        const int64_t extent = mask->dims[mask->rank - i];
        strides[i - 2] = extent == 1 ? 0 : stride;
        stride *= extent;
    }
    return (ks_attention_strides){.batch = strides[2], .head = strides[1], .row = strides[0]};
}

ks_attention_shape ks_attention_shape_of(const ks_spec *spec)
{
    const ks_tensor *in = spec->in;
    const ks_value *params = spec->params;
    const extents q = extents_of(spec, in), v = extents_of(spec, in + KS_ATTENTION_VALUE);
    ks_attention_shape s = {.batches = q.batches,
                            .heads = q.heads,
                            .kv_heads = v.heads,
                            .group = v.heads ? q.heads / v.heads : 1,
                            .queries = q.rows,
                            .keys = v.rows,
                            .depth = (int)q.depth,
                            .value_depth = (int)v.depth,
                            .query = strides_of(spec, in),
                            .key = strides_of(spec, in + KS_ATTENTION_KEY),
                            .value = strides_of(spec, in + KS_ATTENTION_VALUE),
                            .out = strides_of(spec, spec->out),
                            .window = params[KS_ATTENTION_WINDOW].i ? params[KS_ATTENTION_WINDOW].i : -1,
                            .scale = params[KS_ATTENTION_SCALE].d,
                            .softcap = params[KS_ATTENTION_SOFTCAP].d,
                            .causal = (ks_attention_causal)params[KS_ATTENTION_CAUSAL].i,
                            .dtype = in->dtype,
                            .masked = ks_has_input(spec, KS_ATTENTION_MASK),
                            .limited = ks_has_input(spec, KS_ATTENTION_LENGTHS),
                            .nan_rows = params[KS_ATTENTION_MASKED_ROWS].i != 0,
                            .lse = params[KS_ATTENTION_LSE].i != 0};
    if (s.masked) {
        s.mask = mask_strides(spec);
        s.mask_dtype = in[KS_ATTENTION_MASK].dtype;
    }
    if (s.limited) s.wide = in[KS_ATTENTION_LENGTHS].dtype == KS_INT64;
    return s;
}

/* Batches, where there is an axis of them. One batch alone has a mask of its own, if it has one: so a model's batch may be 1. */
static ks_rows attention_rows(const ks_spec *spec)
{
    const ks_tensor *mask = &spec->in[KS_ATTENTION_MASK];
    const bool own = ks_has_input(spec, KS_ATTENTION_MASK) && mask->rank == 4 && mask->dims[0] == spec->in->dims[0];
    if (spec->in->rank < 4) return (ks_rows){.dims = 0, .cut = 1, .out = 1};
    return (ks_rows){.dims = 1,
                     .cut = (uint16_t)(7u | (own ? 1u << KS_ATTENTION_MASK : 0) |
                                       (ks_has_input(spec, KS_ATTENTION_LENGTHS) ? 1u << KS_ATTENTION_LENGTHS : 0)),
                     .out = spec->outputs > 1 ? 3 : 1};
}

/* ks_sample_fn: two blocks of keys, in a slot of a pool of 1 MiB. */
static void attention_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_attention);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 4, .dims = {1, 4, 5, 40}};
    spec->in[1] = spec->in[2] = (ks_tensor){.dtype = KS_FP32, .rank = 4, .dims = {1, 2, 72, 40}};
    spec->params[KS_ATTENTION_CAUSAL].i = KS_ATTENTION_BOTTOM_RIGHT;
}

/* --- values that decide ---------------------------------------------------------------------------------------------- */

/* ks_op.check */
static bool attention_check(const ks_spec *spec, const void *const *in, ks_bad_value *bad)
{
    const ks_tensor *lengths = &spec->in[KS_ATTENTION_LENGTHS];
    const int64_t keys = extents_of(spec, &spec->in[KS_ATTENTION_KEY]).rows;
    int64_t place;
    if (!in[KS_ATTENTION_LENGTHS] || !ks_places_outside(lengths, in[KS_ATTENTION_LENGTHS], 0, keys, &place))
        return false;
    *bad = (ks_bad_value){.input = KS_ATTENTION_LENGTHS,
                          .place = place,
                          .value = ks_places_value(lengths->dtype, in[KS_ATTENTION_LENGTHS], place)};
    return true;
}

/* ks_op.refuse */
static ks_status attention_refuse(const ks_spec *spec, const ks_bad_value *bad, ks_error *error)
{
    return ks_fail(error, KS_RANGE,
                   "attention: INPUT4 (lengths) has %" PRId64 " at place %" PRId64 ": it is outside [0, %" PRId64
                   "], INPUT1's keys",
                   bad->value, bad->place, extents_of(spec, &spec->in[KS_ATTENTION_KEY]).rows);
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

static const ks_preset presets[] = {
    {.suffix = "causal", .param = KS_ATTENTION_CAUSAL, .value = {.i = KS_ATTENTION_BOTTOM_RIGHT}, .narrow = true},
    {.suffix = "lengths", .param = -1, .inputs = 1u << KS_ATTENTION_LENGTHS, .narrow = true}};

#define FLOATS(n, what)                                                                                                \
    {                                                                                                                  \
        .name = "INPUT" #n, .role = what, .dtypes = DTYPES, .rank_min = 2, .rank_max = 4                               \
    }

const ks_op ks_op_attention = {
    .name = "attention",
    .inputs_count = KS_ATTENTION_INPUTS,
    .inputs = {[KS_ATTENTION_QUERY] = FLOATS(0, "query"),
               [KS_ATTENTION_KEY] = FLOATS(1, "key"),
               [KS_ATTENTION_VALUE] = FLOATS(2, "value"),
               [KS_ATTENTION_MASK] = {.name = "INPUT3",
                                      .role = "mask",
                                      .dtypes = DTYPES | KS_DTYPE_BIT(KS_BOOL),
                                      .rank_min = 1,
                                      .rank_max = 4,
                                      .rank = 2,
                                      .optional = true,
                                      .small = true},
               [KS_ATTENTION_LENGTHS] = {.name = "INPUT4",
                                         .role = "lengths",
                                         .dtypes = KS_PLACES_DTYPES,
                                         .rank_min = 1,
                                         .rank_max = 1,
                                         .rank = 1,
                                         .optional = true,
                                         .small = true}},
    .in_rank = 4,
    .out_rank = 4,
    .outputs_max = 2,
    .params_count = KS_ATTENTION_PARAMS,
    .params =
        {/* Which number it is follows from the query, so the preset is one that no request can send. */
         [KS_ATTENTION_SCALE] =
             {.name = "scale", .kind = KS_PARAM_NUMBER, .preset = {.d = (double)NAN}, .status = KS_PARAMETER},
         [KS_ATTENTION_CAUSAL] =
             {.name = "causal", .kind = KS_PARAM_CHOICE, .choices = causals, .status = KS_PARAMETER},
         [KS_ATTENTION_WINDOW] = {.name = "window", .kind = KS_PARAM_INT, .status = KS_PARAMETER},
         [KS_ATTENTION_SOFTCAP] = {.name = "softcap", .kind = KS_PARAM_NUMBER, .status = KS_PARAMETER},
         [KS_ATTENTION_LAYOUT] =
             {.name = "layout", .kind = KS_PARAM_CHOICE, .choices = layouts, .status = KS_PARAMETER},
         [KS_ATTENTION_MASKED_ROWS] =
             {.name = "masked_rows", .kind = KS_PARAM_CHOICE, .choices = masked_rows, .status = KS_PARAMETER},
         [KS_ATTENTION_LSE] = {.name = "lse", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = attention_resolve,
    .rows = attention_rows,
    .sample = attention_sample,
    .decides = 1u << KS_ATTENTION_LENGTHS,
    .check = attention_check,
    .refuse = attention_refuse,
};
