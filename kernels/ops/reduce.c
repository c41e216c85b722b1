/* Reductions over one axis, a list of axes or all: descriptor and rules.
 *
 *   var    sum (x - mean)^2 / (n - ddof); std: its root            l1norm  sum |x|
 *   sumsq  sum x^2; l2norm: its root                               logsum  log sum x
 *   norm   (sum |x|^p)^(1/p); p = 0: how many are not zero; p = inf, -inf: the largest and the smallest |x|
 *   any, all, count_nonzero: of x != 0, which NaN is
 *
 * Segments offsets along the one reduced axis, which becomes as long as there are segments; places of argmax stay those along the axis.
 * Values   sums, sums of squares and products of integers wrap in INT64; what is no integer by itself (mean, norms, logarithms, var)
 *          is FP64 of integers. max and min give NaN where there is one; argmax and argmin the first NaN, else the first extremum. Of
 *          nothing: sums and norms 0, prod 1, logarithms -inf, any false, all true; the others KS_EMPTY. n <= ddof: NaN.
 * Numbers  everything is accumulated in double or in 64-bit integers and rounded once. */
#include "ops/reduce.h"
#include "ops/spec/places.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

extern const ks_op ks_op_reduce;

static const char *const op_names[] = {"sum",    "mean",      "max", "min",           "prod",  "argmax", "argmin",
                                       "l2norm", "logsumexp", "var", "std",           "sumsq", "l1norm", "logsum",
                                       "norm",   "any",       "all", "count_nonzero", NULL};

enum {
    BOOLEAN = KS_DTYPE_BIT(KS_BOOL),
    TAKE_BOOLEAN = 1 << SUM | 1 << ANY | 1 << ALL | 1 << COUNT_NONZERO,
    INTEGER_SUMS = 1 << SUM | 1 << PROD | 1 << SUMSQ,
    NEED_ELEMENTS = 1 << MEAN | 1 << MAX | 1 << MIN | 1 << ARGMAX | 1 << ARGMIN | 1 << VAR | 1 << STD
};

/* --- rules ----------------------------------------------------------------------------------------------------------- */

static ks_status check_input(const ks_input *row, ks_tensor *in, int op, ks_error *error)
{
    const bool takes_boolean = TAKE_BOOLEAN >> op & 1;
    if (!(row->dtypes & KS_DTYPE_BIT(in->dtype)) || (in->dtype == KS_BOOL && !takes_boolean))
        return ks_fail(error, KS_DATATYPE,
                       "reduce: %s has datatype %s, %s takes FP16 to FP64, BF16, INT8 to INT64, UINT8 to UINT64%s",
                       row->name, ks_dtype_name(in->dtype), op_names[op], takes_boolean ? " or BOOL" : "");
    if (in->rank < row->rank_min || in->rank > row->rank_max)
        return ks_fail(error, KS_SHAPE, "reduce: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                       row->rank_max);
    return ks_tensor_measure(in, row->name, error);
}

/* Sorted, from 0, each once, unused places 0. "All" is spelled out, but for arg, where it means the flat index. */
static ks_status resolve_axes(int rank, int op, ks_axes *axes, ks_error *error)
{
    const bool arg = op == ARGMAX || op == ARGMIN;
    unsigned set = 0;
    if (axes->count == -1) {
        set = (1u << rank) - 1;
    } else if (axes->count < 1 || axes->count > KS_RANK_MAX) {
        return ks_fail(error, KS_AXIS, "reduce: axis lists %d axes, takes 1 to %d", axes->count, KS_RANK_MAX);
    } else if (arg && axes->count > 1) {
        return ks_fail(error, KS_AXIS, "reduce: %s takes one axis or \"all\", axis lists %d", op_names[op],
                       axes->count);
    }
    for (int i = 0; i < axes->count; i++) {
        const int axis = axes->axis[i];
        if (axis < -rank || axis >= rank)
            return ks_fail(error, KS_AXIS, "reduce: axis %d is outside [%d, %d) of INPUT0's rank", axis, -rank, rank);
        const unsigned bit = 1u << (axis < 0 ? axis + rank : axis);
        if (set & bit) return ks_fail(error, KS_AXIS, "reduce: axis %d is listed twice", axis);
        set |= bit;
    }
    const bool flat = arg && axes->count == -1 && rank > 1;
    memset(axes, 0, sizeof *axes);
    for (int i = 0; i < rank && !flat; i++)
        if (set >> i & 1) axes->axis[axes->count++] = (int8_t)i;
    if (flat) axes->count = -1;
    return KS_OK;
}

static ks_dtype out_dtype(int op, ks_dtype in)
{
    if (op == ARGMAX || op == ARGMIN || op == COUNT_NONZERO) return KS_INT64;
    if (op == ANY || op == ALL) return KS_BOOL;
    if (op == MAX || op == MIN || FLOATS & KS_DTYPE_BIT(in)) return in;
    return INTEGER_SUMS >> op & 1 ? KS_INT64 : KS_FP64;
}

static ks_status resolve_ddof(int op, double *ddof, ks_error *error)
{
    if (!(*ddof >= 0)) return ks_fail(error, KS_PARAMETER, "reduce: parameter 'ddof' is %g, takes 0 or more", *ddof);
    if (*ddof == 0) *ddof = 0; /* -0 is the same work */
    if (*ddof != 0 && op != VAR && op != STD)
        return ks_fail(error, KS_PARAMETER, "reduce: parameter 'ddof' is %g, and %s has none: var and std take it",
                       *ddof, op_names[op]);
    return KS_OK;
}

/* A norm that has a name of its own is the same work as the op of that name. */
static ks_status resolve_norm(ks_value *op, double *p, ks_error *error)
{
    if (op->i != NORM) {
        if (isnan(*p)) return KS_OK; /* the preset */
        return ks_fail(error, KS_PARAMETER, "reduce: parameter 'p' is %g, and %s has none: norm takes it", *p,
                       op_names[op->i]);
    }
    if (isnan(*p)) *p = 2; /* likewise */
    if (!(*p >= 0 || isinf(*p)))
        return ks_fail(error, KS_PARAMETER, "reduce: parameter 'p' is %g, takes 0 or more, inf or -inf", *p);
    if (*p == 0) *p = 0;
    if (*p != 1 && *p != 2) return KS_OK;
    op->i = *p == 1 ? L1NORM : L2NORM;
    *p = (double)NAN;
    return KS_OK;
}

/* --- segments -------------------------------------------------------------------------------------------------------- */

static ks_status check_segments(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[KS_REDUCE_SEGMENTS];
    const ks_input *row = &spec->op->inputs[KS_REDUCE_SEGMENTS];
    const int axes = __builtin_popcount(ks_reduce_axes(spec));
    if (!ks_reduce_has_segments(spec)) return KS_OK;
    if (!(row->dtypes & KS_DTYPE_BIT(in->dtype)))
        return ks_fail(error, KS_DATATYPE, "reduce: INPUT1 (segments) has datatype %s, takes INT32 or INT64",
                       ks_dtype_name(in->dtype));
    if (in->rank != 1) return ks_fail(error, KS_SHAPE, "reduce: INPUT1 (segments) has rank %d, takes 1", in->rank);
    if (in->dims[0] < 1)
        return ks_fail(error, KS_SHAPE,
                       "reduce: INPUT1 (segments) has no elements, needs one more than there are segments");
    if (axes != 1) return ks_fail(error, KS_AXIS, "reduce: axis lists %d axes, segments take one", axes);
    return ks_tensor_measure(in, row->name, error);
}

ks_segments ks_reduce_segments_of(const ks_spec *spec)
{
    const ks_tensor *x = &spec->in[KS_REDUCE_X];
    const int axis = spec->params[AXIS].axes.axis[0];
    return (ks_segments){.outer = ks_dims_product(x->dims, 0, axis),
                         .extent = x->dims[axis],
                         .inner = ks_dims_product(x->dims, axis + 1, x->rank),
                         .count = spec->in[KS_REDUCE_SEGMENTS].dims[0] - 1};
}

bool ks_reduce_needs_elements(const ks_spec *spec)
{
    const int op = (int)spec->params[OP].i;
    return (op == NORM && isinf(spec->params[POWER].d)) || (NEED_ELEMENTS >> op & 1);
}

/* ks_op.check: offsets first, and then what they leave empty. */
static bool reduce_check(const ks_spec *spec, const void *const *in, ks_bad_value *bad)
{
    const ks_tensor *segments = &spec->in[KS_REDUCE_SEGMENTS];
    const void *offsets = in[KS_REDUCE_SEGMENTS];
    const ks_segments s = ks_reduce_segments_of(spec);
    int64_t place;
    if (!offsets) return false;
    if (ks_places_falling(segments, offsets, s.extent, &place)) {
        *bad = (ks_bad_value){
            .input = KS_REDUCE_SEGMENTS, .place = place, .value = ks_places_value(segments->dtype, offsets, place)};
        return true;
    }
    if (!ks_reduce_needs_elements(spec)) return false;
    for (int64_t i = 0; i < s.count; i++) {
        const int64_t begin = ks_places_value(segments->dtype, offsets, i);
        if (begin != ks_places_value(segments->dtype, offsets, i + 1)) continue;
        *bad = (ks_bad_value){.input = KS_REDUCE_SEGMENTS, .place = s.count + 1 + i, .value = begin};
        return true;
    }
    return false;
}

/* ks_op.refuse */
static ks_status reduce_refuse(const ks_spec *spec, const ks_bad_value *bad, ks_error *error)
{
    const ks_segments s = ks_reduce_segments_of(spec);
    if (bad->place > s.count)
        return ks_fail(error, KS_EMPTY,
                       "reduce: %s of nothing: segment %" PRId64 " of INPUT1 (segments) begins and ends at %" PRId64,
                       op_names[spec->params[OP].i], bad->place - s.count - 1, bad->value);
    return ks_places_refuse_offset(spec, bad, s.extent, "the extent of INPUT0's axis", error);
}

/* Rough operations for an element. */
static double operations(const ks_spec *spec)
{
    switch (spec->params[OP].i) {
    case LOGSUMEXP:
        return 10;
    case NORM:
        return isinf(spec->params[POWER].d) || spec->params[POWER].d == 0 ? 1 : 40;
    case VAR:
    case STD:
        return 4;
    case L2NORM:
    case SUMSQ:
        return 2;
    default:
        return 1;
    }
}

int ks_reduce_function(const ks_spec *spec)
{
    const int op = (int)spec->params[OP].i;
    const double p = spec->params[POWER].d;
    if (op == SUM && spec->in[0].dtype == KS_BOOL) return COUNT_NONZERO;
    if (op != NORM) return op;
    return p == 0 ? NORM_ZERO : !isinf(p) ? NORM : p > 0 ? NORM_MOST : NORM_LEAST;
}

/* ks_resolve_fn */
static ks_status reduce_resolve(ks_spec *spec, ks_error *error)
{
    ks_tensor *in = &spec->in[0];
    const int op = (int)spec->params[OP].i;
    if (op < 0 || op >= OPS) return ks_fail(error, KS_PARAMETER, "reduce: op %d is not one of %d", op, OPS);
    ks_status status = check_input(&spec->op->inputs[0], in, op, error);
    if (status == KS_OK) status = resolve_axes(in->rank, op, &spec->params[AXIS].axes, error);
    if (status == KS_OK) status = resolve_ddof(op, &spec->params[DDOF].d, error);
    if (status == KS_OK) status = resolve_norm(&spec->params[OP], &spec->params[POWER].d, error);
    if (status == KS_OK) status = check_segments(spec, error);
    if (status != KS_OK) return status;

    const unsigned set = ks_reduce_axes(spec);
    const bool keep = spec->params[KEEPDIMS].i != 0 || ks_reduce_has_segments(spec);
    const int64_t results = ks_reduce_has_segments(spec) ? spec->in[KS_REDUCE_SEGMENTS].dims[0] - 1 : 1;
    ks_tensor out = {.dtype = out_dtype(op, in->dtype)};
    int64_t extent = 1;
    for (int i = 0; i < in->rank; i++) {
        const bool reduced = set >> i & 1;
        if (reduced) extent *= in->dims[i];
        if (!reduced || keep) out.dims[out.rank++] = reduced ? results : in->dims[i];
    }
    if (extent == 0 && results > 0 && ks_reduce_needs_elements(spec))
        return ks_fail(error, KS_EMPTY, "reduce: %s of nothing: INPUT0 has 0 elements along axis", op_names[op]);
    status = ks_tensor_measure(&out, ks_output_name(0), error);
    if (status != KS_OK) return status;
    spec->out[0] = out;
    spec->outputs = 1;
    spec->flops = (double)ks_tensor_count(in) * operations(spec);
    return KS_OK;
}

/* Axes are sorted: the first one is the lowest. */
static ks_rows reduce_rows(const ks_spec *spec)
{
    return (ks_rows){.dims = spec->params[AXIS].axes.axis[0], .cut = 1, .out = 1};
}

/* ks_sample_fn */
static void reduce_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_reduce);
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 1000}};
}

#define OP_PRESET(text, value_)                                                                                        \
    {                                                                                                                  \
        .suffix = text, .param = OP, .value = {.i = value_ }                                                           \
    }
static const ks_preset presets[] = {
    OP_PRESET("sum", SUM),
    OP_PRESET("mean", MEAN),
    OP_PRESET("max", MAX),
    OP_PRESET("min", MIN),
    OP_PRESET("prod", PROD),
    OP_PRESET("argmax", ARGMAX),
    OP_PRESET("argmin", ARGMIN),
    OP_PRESET("l2norm", L2NORM),
    OP_PRESET("logsumexp", LOGSUMEXP),
    OP_PRESET("var", VAR),
    OP_PRESET("std", STD),
    OP_PRESET("any", ANY),
    OP_PRESET("all", ALL),
    {.suffix = "vec", .param = -1, .in_rank = 1, .out_rank = -1},
    {.suffix = "segments", .param = -1, .out_rank = 2, .inputs = 1u << KS_REDUCE_SEGMENTS},
};

const ks_op ks_op_reduce = {
    .name = "reduce",
    .inputs_count = KS_REDUCE_INPUTS,
    .inputs = {[KS_REDUCE_X] = {.name = "INPUT0",
                                .role = "x",
                                .dtypes = FLOATS | INTEGERS | BOOLEAN,
                                .rank_min = 1,
                                .rank_max = KS_RANK_MAX},
               [KS_REDUCE_SEGMENTS] = {.name = "INPUT1",
                                       .role = "segments",
                                       .dtypes = KS_PLACES_DTYPES,
                                       .rank_min = 1,
                                       .rank_max = 1,
                                       .optional = true,
                                       .small = true}},
    .in_rank = 2,
    .out_rank = 1,
    .params_count = KS_REDUCE_PARAMS,
    .params = {[OP] = {.name = "op",
                       .kind = KS_PARAM_CHOICE,
                       .preset = {.i = SUM},
                       .choices = op_names,
                       .status = KS_PARAMETER},
               [AXIS] = {.name = "axis",
                         .kind = KS_PARAM_AXES,
                         .preset = {.axes = {.count = 1, .axis = {-1}}},
                         .status = KS_AXIS},
               [KEEPDIMS] = {.name = "keepdims", .kind = KS_PARAM_BOOL, .status = KS_PARAMETER},
               [DDOF] = {.name = "ddof", .kind = KS_PARAM_NUMBER, .preset = {.d = 0}, .status = KS_PARAMETER},
               /* A p that is given is refused by other ops, so the preset is one that no request can send. */
               [POWER] = {.name = "p",
                          .kind = KS_PARAM_NUMBER,
                          .preset = {.d = (double)NAN},
                          .infinite = true,
                          .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = reduce_resolve,
    .rows = reduce_rows,
    .sample = reduce_sample,
    .decides = 1u << KS_REDUCE_SEGMENTS,
    .check = reduce_check,
    .refuse = reduce_refuse,
};
