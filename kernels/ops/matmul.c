/* OUTPUT0 = activation(alpha * op(INPUT0) op(INPUT1) + INPUT2) + INPUT5 over the last two dimensions: the descriptor and
 * the shape.
 *
 * Of INT8 and FP8 the sum is multiplied by INPUT3, a scale for all of A or one for each of its rows, and by INPUT4, for all of B or for each
 * of its columns; an output of INT32 is the sum alone.
 *
 * Shapes   INPUT0: [..., M, K], INPUT1: [..., K, N], each [.., columns, rows] where its transpose parameter is set; the
 * leading dimensions broadcast as NumPy's. INPUT2, optional: [N]. OUTPUT0: [..., M, N], and so INPUT5, the residual, which is optional, too.
 * Values   FP16 and BF16 are computed as FP32 and rounded once. Nothing is skipped: NaN and infinity meet zeros as IEEE 754 says. K = 0 gives activation(INPUT2) + INPUT5. relu, gelu (with erf) and silu are the plain formulas: NaN stays NaN,
 * and gelu and silu of -inf are NaN, as in PyTorch. precision allows TF32 products. */
#include "ops/matmul.h"
#include "ops/spec/places.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

enum {
    FLOATS = KS_DTYPE_BIT(KS_FP16) | KS_DTYPE_BIT(KS_BF16) | KS_DTYPE_BIT(KS_FP32) | KS_DTYPE_BIT(KS_FP64),
    FP8 = KS_DTYPE_BIT(KS_FP8E4M3) | KS_DTYPE_BIT(KS_FP8E5M2),
    NARROW = FP8 | KS_DTYPE_BIT(KS_INT8),
    DTYPES = FLOATS | NARROW
};
enum { EXACT, TF32, FAST }; /* precisions */
static const char *const out_datatypes[] = {"auto", "INT32", "FP32", "FP16", "BF16", NULL};
static const ks_dtype out_dtypes[] = {KS_BOOL /* the inputs' */, KS_INT32, KS_FP32, KS_FP16, KS_BF16};

/* --- what is accepted ------------------------------------------------------------------------------------------------ */

static bool is_narrow(const ks_spec *spec)
{
    return (NARROW & KS_DTYPE_BIT(spec->in[0].dtype)) != 0;
}

/* What stands beside operands of 8 bits, and which of these go together. */
static ks_status check_narrow(const ks_spec *spec, ks_error *error)
{
    const ks_dtype a = spec->in[0].dtype, b = spec->in[1].dtype;
    const bool both = a == b || (FP8 & KS_DTYPE_BIT(a) && FP8 & KS_DTYPE_BIT(b));
    if (!both || (a == KS_FP8E5M2 && b == KS_FP8E5M2))
        return ks_fail(
            error, KS_DATATYPE,
            "matmul: INPUT0 has datatype %s, INPUT1 %s; takes INT8 by INT8, and FP8 by FP8 but for two of E5M2",
            ks_dtype_name(a), ks_dtype_name(b));
    for (int i = ks_next_input(spec, 1); i >= 0; i = ks_next_input(spec, i)) {
        if (i == KS_MATMUL_RESIDUAL)
            return ks_fail(error, KS_DATATYPE,
                           "matmul: %s (%s) goes with operands of 16 bits and more, INPUT0 has datatype %s",
                           spec->op->inputs[i].name, spec->op->inputs[i].role, ks_dtype_name(a));
        if (spec->in[i].dtype != KS_FP32)
            return ks_fail(error, KS_DATATYPE, "matmul: %s has datatype %s, takes FP32 beside operands of 8 bits",
                           spec->op->inputs[i].name, ks_dtype_name(spec->in[i].dtype));
    }
    return KS_OK;
}

static ks_status check_equal(const ks_spec *spec, ks_error *error)
{
    const ks_input *row = spec->op->inputs;
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i)) {
        if (i == KS_MATMUL_SCALE_A || i == KS_MATMUL_SCALE_B)
            return ks_fail(error, KS_DATATYPE, "matmul: %s (%s) goes with operands of 8 bits, INPUT0 has datatype %s",
                           row[i].name, row[i].role, ks_dtype_name(spec->in[0].dtype));
        if (spec->in[0].dtype != spec->in[i].dtype)
            return ks_fail(error, KS_DATATYPE, "matmul: %s has datatype %s, %s %s; they must be equal", row[0].name,
                           ks_dtype_name(spec->in[0].dtype), row[i].name, ks_dtype_name(spec->in[i].dtype));
    }
    return KS_OK;
}

static ks_status check_inputs(ks_spec *spec, ks_error *error)
{
    const ks_input *row = spec->op->inputs;
    assert((spec->given & 3) == 3);
    for (int i = 0; i < 2; i++) {
        const ks_tensor *in = &spec->in[i];
        if ((DTYPES & KS_DTYPE_BIT(in->dtype)) == 0)
            return ks_fail(error, KS_DATATYPE, "matmul: %s has datatype %s, takes FP16, BF16, FP32, FP64, INT8 or FP8",
                           row[i].name, ks_dtype_name(in->dtype));
    }
    const ks_status fit = is_narrow(spec) ? check_narrow(spec, error) : check_equal(spec, error);
    if (fit != KS_OK) return fit;
    for (int i = 0; i < 2; i++) {
        const ks_tensor *in = &spec->in[i];
        if (in->rank < row[i].rank_min || in->rank > row[i].rank_max)
            return ks_fail(error, KS_SHAPE, "matmul: %s has rank %d, takes %d to %d (%s %d, %s %d)", row[i].name,
                           in->rank, row[i].rank_min, row[i].rank_max, row[0].name, spec->in[0].rank, row[1].name,
                           spec->in[1].rank);
    }
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        const ks_status status = ks_tensor_measure(&spec->in[i], row[i].name, error);
        if (status != KS_OK) return status;
    }
    return KS_OK;
}

static ks_status check_params(const ks_spec *spec, ks_error *error)
{
    if (!isfinite(spec->params[KS_MATMUL_ALPHA].d))
        return ks_fail(error, KS_PARAMETER, "matmul: parameter 'alpha' is %g, must be finite",
                       spec->params[KS_MATMUL_ALPHA].d);
    const int64_t precision = spec->params[KS_MATMUL_PRECISION].i;
    const ks_dtype a = spec->in[0].dtype;
    if (precision == TF32 && a != KS_FP32)
        return ks_fail(error, KS_PARAMETER, "matmul: parameter 'precision' is tf32, INPUT0 has datatype %s, needs FP32",
                       ks_dtype_name(a));
    if (precision == FAST && (FP8 & KS_DTYPE_BIT(a)) == 0)
        return ks_fail(error, KS_PARAMETER, "matmul: parameter 'precision' is fast, INPUT0 has datatype %s, needs FP8",
                       ks_dtype_name(a));
    return KS_OK;
}

/* Spelt out, so that equal work has equal keys. */
static ks_status resolve_out_datatype(ks_spec *spec, ks_error *error)
{
    int64_t *given = &spec->params[KS_MATMUL_OUT_DATATYPE].i;
    const ks_dtype a = spec->in[0].dtype, asked = out_dtypes[*given];
    const bool scaled = (spec->given >> KS_MATMUL_BIAS) != 0;
    if (!is_narrow(spec)) {
        if (*given && asked != a)
            return ks_fail(error, KS_PARAMETER,
                           "matmul: parameter 'out_datatype' is %s, INPUT0 has datatype %s, which gives %s",
                           out_datatypes[*given], ks_dtype_name(a), ks_dtype_name(a));
        *given = 0;
        return KS_OK;
    }
    if (*given == 0) *given = a == KS_INT8 && !scaled ? 1 : 2;
    if (out_dtypes[*given] != KS_INT32) return KS_OK;
    if (a != KS_INT8)
        return ks_fail(error, KS_PARAMETER, "matmul: parameter 'out_datatype' is INT32, INPUT0 has datatype %s",
                       ks_dtype_name(a));
    if (scaled || spec->params[KS_MATMUL_ALPHA].d != 1.0 || spec->params[KS_MATMUL_ACTIVATION].i)
        return ks_fail(error, KS_PARAMETER, "matmul: an output of INT32 takes no bias, scales, alpha or activation");
    return KS_OK;
}

/* One, or one for each row of A or column of B. */
static ks_status check_scales(const ks_spec *spec, int input, int operand, bool first, ks_error *error)
{
    if (!ks_has_input(spec, input)) return KS_OK;
    const ks_tensor *scales = &spec->in[input], *of = &spec->in[operand];
    ks_tensor each = {.dtype = KS_FP32, .rank = of->rank - 1};
    for (int i = 0; i < of->rank - 2; i++) each.dims[i] = of->dims[i];
    each.dims[of->rank - 2] = of->dims[of->rank - (first ? 2 : 1)];
    bool fits = scales->rank == 1 && scales->dims[0] == 1;
    if (!fits && scales->rank == each.rank) {
        fits = true;
        for (int i = 0; i < each.rank; i++) fits = fits && scales->dims[i] == each.dims[i];
    }
    if (fits) return KS_OK;
    char texts[2][KS_RANK_MAX * 21];
    ks_dims_text(scales, texts[0], sizeof texts[0]);
    ks_dims_text(&each, texts[1], sizeof texts[1]);
    return ks_fail(error, KS_SHAPE, "matmul: %s (%s) has shape [%s], takes [1] or [%s]", spec->op->inputs[input].name,
                   spec->op->inputs[input].role, texts[0], texts[1]);
}

/* What operands of 8 bits have beside the others. */
static ks_status resolve_narrow(ks_spec *spec, int64_t k, ks_error *error)
{
    if (spec->in[0].dtype == KS_INT8 && k > KS_MATMUL_INT8_DEPTH)
        return ks_fail(error, KS_SHAPE,
                       "matmul: INPUT0 has %" PRId64 " values to a sum, of INT8 takes %d at most: INT32 could overflow",
                       k, KS_MATMUL_INT8_DEPTH);
    const ks_status status = check_scales(spec, KS_MATMUL_SCALE_A, 0, !spec->params[KS_MATMUL_TRANSPOSE_A].i, error);
    if (status != KS_OK) return status;
    return check_scales(spec, KS_MATMUL_SCALE_B, 1, spec->params[KS_MATMUL_TRANSPOSE_B].i != 0, error);
}

static ks_status check_bias(const ks_spec *spec, int64_t n, ks_error *error)
{
    if (!ks_has_input(spec, 2)) return KS_OK;
    const ks_tensor *bias = &spec->in[2];
    const char *const name = spec->op->inputs[2].name;
    if (bias->rank != 1) return ks_fail(error, KS_SHAPE, "matmul: %s has rank %d, needs 1", name, bias->rank);
    if (bias->dims[0] != n)
        return ks_fail(error, KS_SHAPE, "matmul: %s has %" PRId64 " values, OUTPUT0 has %" PRId64 " columns", name,
                       bias->dims[0], n);
    return KS_OK;
}

/* An element for each of the output's, which is known. */
static ks_status check_residual(const ks_spec *spec, ks_error *error)
{
    const ks_tensor *residual = &spec->in[KS_MATMUL_RESIDUAL], *out = &spec->out[0];
    char texts[2][KS_RANK_MAX * 21];
    if (!ks_has_input(spec, KS_MATMUL_RESIDUAL)) return KS_OK;
    bool same = residual->rank == out->rank;
    for (int i = 0; i < out->rank && same; i++) same = residual->dims[i] == out->dims[i];
    if (same) return KS_OK;
    ks_dims_text(residual, texts[0], sizeof texts[0]);
    ks_dims_text(out, texts[1], sizeof texts[1]);
    return ks_fail(error, KS_SHAPE, "matmul: %s (%s) has shape [%s], OUTPUT0 [%s]; they must be equal",
                   spec->op->inputs[KS_MATMUL_RESIDUAL].name, spec->op->inputs[KS_MATMUL_RESIDUAL].role, texts[0],
                   texts[1]);
}

/* Dimension d of the batch, counted from the innermost; 1 where the tensor has none. */
static int64_t batch_dim(const ks_tensor *in, int d)
{
    return d < in->rank - 2 ? in->dims[in->rank - 3 - d] : 1;
}

static ks_status broadcast_batch(ks_spec *spec, ks_error *error)
{
    const int rank = spec->out[0].rank;
    for (int d = 0; d < rank - 2; d++) {
        const int64_t a = batch_dim(&spec->in[0], d), b = batch_dim(&spec->in[1], d);
        if (a != b && a != 1 && b != 1)
            return ks_fail(error, KS_SHAPE,
                           "matmul: INPUT0 has %" PRId64 " and INPUT1 %" PRId64
                           " in batch dimension %d of %d; they must be equal or 1",
                           a, b, rank - 3 - d, rank - 2);
        spec->out[0].dims[rank - 3 - d] = a == 1 ? b : a;
    }
    return KS_OK;
}

/* ks_resolve_fn */
static ks_status matmul_resolve(ks_spec *spec, ks_error *error)
{
    ks_status status = check_inputs(spec, error);
    if (status == KS_OK) status = check_params(spec, error);
    if (status == KS_OK) status = resolve_out_datatype(spec, error);
    if (status != KS_OK) return status;

    const ks_tensor *a = &spec->in[0], *b = &spec->in[1];
    const int ta = spec->params[KS_MATMUL_TRANSPOSE_A].i != 0, tb = spec->params[KS_MATMUL_TRANSPOSE_B].i != 0;
    const int64_t m = a->dims[a->rank - 2 + ta], k = a->dims[a->rank - 1 - ta];
    const int64_t inner = b->dims[b->rank - 2 + tb], n = b->dims[b->rank - 1 - tb];
    if (k != inner)
        return ks_fail(error, KS_SHAPE,
                       "matmul: inner sizes differ: INPUT0%s has %" PRId64 " columns, INPUT1%s has %" PRId64 " rows",
                       ta ? " (transposed)" : "", k, tb ? " (transposed)" : "", inner);
    status = check_bias(spec, n, error);
    if (status == KS_OK && is_narrow(spec)) status = resolve_narrow(spec, k, error);
    if (status != KS_OK) return status;

    const int64_t out = spec->params[KS_MATMUL_OUT_DATATYPE].i;
    spec->out[0] =
        (ks_tensor){.dtype = out ? out_dtypes[out] : a->dtype, .rank = a->rank > b->rank ? a->rank : b->rank};
    status = broadcast_batch(spec, error);
    if (status != KS_OK) return status;
    spec->out[0].dims[spec->out[0].rank - 2] = m;
    spec->out[0].dims[spec->out[0].rank - 1] = n;
    spec->outputs = 1;
    status = ks_tensor_measure(&spec->out[0], ks_output_name(0), error);
    if (status == KS_OK) status = check_residual(spec, error);
    if (status != KS_OK) return status;
    spec->flops = 2.0 * (double)ks_tensor_count(&spec->out[0]) * (double)k;
    return KS_OK;
}

/* ks_sample_fn: ragged in every size, so that edges are met too. */
static void matmul_sample(ks_spec *spec)
{
    for (int i = 0; i < 2; i++) {
        spec->in[i].dtype = KS_FP32;
        spec->in[i].rank = 2;
    }
    spec->in[0].dims[0] = 33;
    spec->in[0].dims[1] = spec->in[1].dims[0] = 70;
    spec->in[1].dims[1] = 41;
    for (int i = 0; i < 2; i++) (void)ks_tensor_measure(&spec->in[i], "sample", NULL);
}

/* --- sizes and strides ----------------------------------------------------------------------------------------------- */

/* Appends one batch dimension outside those present, or merges it into the outermost where that one continues it. */
static void batch_push(ks_matmul_shape *s, int64_t dim, int64_t a_step, int64_t b_step)
{
    if (dim == 1) return;
    const int last = s->batch_rank - 1;
    if (last >= 0 && a_step == s->a_step[last] * s->batch_dims[last] &&
        b_step == s->b_step[last] * s->batch_dims[last]) {
        s->batch_dims[last] *= dim;
        return;
    }
    s->batch_dims[s->batch_rank] = dim;
    s->a_step[s->batch_rank] = a_step;
    s->b_step[s->batch_rank] = b_step;
    s->batch_rank++;
}

static void swap(int64_t *x, int64_t *y)
{
    const int64_t old = *x;
    *x = *y;
    *y = old;
}

static void batch_reverse(ks_matmul_shape *s)
{
    for (int i = 0, j = s->batch_rank - 1; i < j; i++, j--) {
        swap(&s->batch_dims[i], &s->batch_dims[j]);
        swap(&s->a_step[i], &s->a_step[j]);
        swap(&s->b_step[i], &s->b_step[j]);
    }
}

/* Elements from row to row, as the operand lies. */
static int64_t pitch_of(const ks_tensor *in)
{
    return in->pitch ? in->pitch : in->dims[in->rank - 1];
}

void ks_matmul_shape_of(const ks_spec *spec, ks_matmul_shape *out)
{
    const ks_tensor *a = &spec->in[0], *b = &spec->in[1];
    const int ta = spec->params[KS_MATMUL_TRANSPOSE_A].i != 0, tb = spec->params[KS_MATMUL_TRANSPOSE_B].i != 0;
    ks_matmul_shape s = {
        .m = a->dims[a->rank - 2 + ta], .n = b->dims[b->rank - 1 - tb], .k = a->dims[a->rank - 1 - ta]};
    s.transpose_a = ta;
    s.transpose_b = tb;
    s.alpha = s.k == 0 ? 1.0 : spec->params[KS_MATMUL_ALPHA].d; /* a sum of nothing is +0, whatever alpha's sign */
    s.biased = ks_has_input(spec, KS_MATMUL_BIAS);
    s.residual = ks_has_input(spec, KS_MATMUL_RESIDUAL);
    s.activation = (ks_matmul_activation)spec->params[KS_MATMUL_ACTIVATION].i;
    s.tf32 = spec->params[KS_MATMUL_PRECISION].i == TF32;
    s.narrow = is_narrow(spec);
    s.fast = spec->params[KS_MATMUL_PRECISION].i == FAST;
    s.a_dtype = a->dtype;
    s.b_dtype = b->dtype;
    s.a_matrix = a->dims[a->rank - 2] * pitch_of(a);
    s.b_matrix = b->dims[b->rank - 2] * pitch_of(b);
    s.a_scales = ks_has_input(spec, KS_MATMUL_SCALE_A) && ks_tensor_count(&spec->in[KS_MATMUL_SCALE_A]) != 1;
    s.b_scales = ks_has_input(spec, KS_MATMUL_SCALE_B) && ks_tensor_count(&spec->in[KS_MATMUL_SCALE_B]) != 1;
    s.a_row = ta ? 1 : pitch_of(a);
    s.a_col = ta ? pitch_of(a) : 1;
    s.b_row = tb ? 1 : pitch_of(b);
    s.b_col = tb ? pitch_of(b) : 1;
    s.batch = ks_dims_product(spec->out[0].dims, 0, spec->out[0].rank - 2);
    int64_t a_step = a->dims[a->rank - 2] * pitch_of(a), b_step = b->dims[b->rank - 2] * pitch_of(b);
    for (int d = 0; d < spec->out[0].rank - 2 && s.batch > 0; d++) {
        const int64_t a_dim = batch_dim(a, d), b_dim = batch_dim(b, d);
        batch_push(&s, a_dim > b_dim ? a_dim : b_dim, a_dim == 1 ? 0 : a_step, b_dim == 1 ? 0 : b_step);
        a_step *= a_dim;
        b_step *= b_dim;
    }
    batch_reverse(&s);
    const bool tells =
        s.k > 0 || !s.narrow; /* where steps are 0 they do not tell which operand has a batch, and with it scales */
    if (tells && s.batch_rank == 1 && !ta && s.b_step[0] == 0 && s.a_step[0] == s.m * s.a_row) {
        s.m *= s.batch;
        s.batch = 1;
        s.batch_rank = 0;
    }
    *out = s;
}

void ks_matmul_offsets(const ks_matmul_shape *shape, int64_t index, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int d = shape->batch_rank - 1; d >= 0; d--) {
        const int64_t at = index % shape->batch_dims[d];
        index /= shape->batch_dims[d];
        *a += at * shape->a_step[d];
        *b += at * shape->b_step[d];
    }
}

/* Kernels read rows in vectors of 16 bytes, and what does not start there is packed in each launch. Short rows would take several times
 * their memory. */
int64_t ks_matmul_pitch(const ks_tensor *tensor)
{
    enum { VECTOR = 16, START = 128 };
    const int64_t size = (int64_t)ks_dtype_size(tensor->dtype);
    const int64_t row = tensor->rank < 2 ? 0 : tensor->dims[tensor->rank - 1], bytes = row * size;
    const bool floating = ks_dtype_kind(tensor->dtype) == KS_KIND_FLOAT;
    if (!floating || bytes < START || bytes % VECTOR == 0 || ks_tensor_count(tensor) <= row) return 0;
    return (bytes + START - 1) / START * (START / size);
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

double ks_matmul_activate(ks_matmul_activation activation, double x)
{
    switch (activation) {
    case KS_MATMUL_RELU:
        return x < 0 ? 0 : x;
    case KS_MATMUL_GELU:
        return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case KS_MATMUL_SILU:
        return x / (1 + exp(-x));
    default:
        return x;
    }
}

static const char *const activations[] = {"none", "relu", "gelu", "silu", NULL}; /* as ks_matmul_activation */
static const char *const precisions[] = {"exact", "tf32", "fast", NULL};
static const ks_preset presets[] = {{.suffix = "tb", .param = KS_MATMUL_TRANSPOSE_B, .value = {.i = 1}}};

/* Rows of 8 bits may have scales of their own. */
static bool matmul_joins(const ks_spec *spec)
{
    return !is_narrow(spec) && !spec->params[KS_MATMUL_TRANSPOSE_A].i && spec->in[1].rank == 2;
}

/* ks_op.check: of both scales the last one that has one that is none. */
static bool matmul_check(const ks_spec *spec, const void *const *in, ks_bad_value *bad)
{
    return ks_places_no_scale(spec, in, KS_MATMUL_SCALE_B, bad) || ks_places_no_scale(spec, in, KS_MATMUL_SCALE_A, bad);
}

#define SCALES(of)                                                                                                     \
    {                                                                                                                  \
        .name = of ? "INPUT4" : "INPUT3", .role = of ? "scale_b" : "scale_a", .dtypes = KS_DTYPE_BIT(KS_FP32),         \
        .rank_min = 1, .rank_max = KS_RANK_MAX - 1, .rank = 1, .optional = true, .positive = true, .small = true       \
    }

const ks_op ks_op_matmul = {
    .name = "matmul",
    .inputs_count = KS_MATMUL_INPUTS,
    .inputs = {{.name = "INPUT0", .role = "a", .dtypes = DTYPES, .rank_min = 2, .rank_max = KS_RANK_MAX},
               {.name = "INPUT1", .role = "b", .rank_min = 2, .rank_max = KS_RANK_MAX},
               {.name = "INPUT2", .role = "bias", .dtypes = FLOATS, .rank_min = 1, .rank_max = 1, .optional = true},
               SCALES(0),
               SCALES(1),
               {.name = "INPUT5",
                .role = "residual",
                .dtypes = FLOATS,
                .rank_min = 2,
                .rank_max = KS_RANK_MAX,
                .optional = true,
                .as_it_is = true}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_MATMUL_PARAMS,
    .params =
        {[KS_MATMUL_TRANSPOSE_A] = {.name = "transpose_a", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
         [KS_MATMUL_TRANSPOSE_B] = {.name = "transpose_b", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
         [KS_MATMUL_ALPHA] = {.name = "alpha", .kind = KS_PARAM_NUMBER, .preset = {.d = 1.0}, .status = KS_PARAMETER},
         [KS_MATMUL_ACTIVATION] =
             {.name = "activation", .kind = KS_PARAM_CHOICE, .choices = activations, .status = KS_PARAMETER},
         [KS_MATMUL_PRECISION] =
             {.name = "precision", .kind = KS_PARAM_CHOICE, .choices = precisions, .status = KS_PARAMETER},
         [KS_MATMUL_OUT_DATATYPE] =
             {.name = "out_datatype", .kind = KS_PARAM_CHOICE, .choices = out_datatypes, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = matmul_resolve,
    .joins = matmul_joins,
    .joins_with = 1u << KS_MATMUL_RESIDUAL,
    .pitch = ks_matmul_pitch,
    .sample = matmul_sample,
    .decides = 1u << KS_MATMUL_SCALE_A | 1u << KS_MATMUL_SCALE_B,
    .check = matmul_check,
    .refuse = ks_places_refuse_scale,
};
