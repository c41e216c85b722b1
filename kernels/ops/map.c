/* One function over one to three tensors, element by element: descriptor and rules.
 *
 * Shapes   all inputs broadcast as NumPy's, from the last axis on; rank 0 is a scalar. A function of two operands without INPUT1 takes
 *          the scalar a in its place.
 * Values   computed in the datatype of the operands, FP8, FP16 and BF16 in FP32, and then cast to out_datatype. Integers wrap. Functions
 *          of real numbers, and div, take integers as FP64. min, max, relu, sign and clamp hand NaN on. pow of integers with a negative
 *          exponent is the power toward zero: 0, 1 or -1.
 * Casts    to integers: of floats toward zero, saturating, NaN 0; of integers the low bits. To BOOL: not zero. To FP8: saturating,
 *          infinity too; NaN stays. Others round once, to nearest even. */
#include "ops/map.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

extern const ks_op ks_op_map;

enum {
    WHOLE_BITS = 53, /* integers up to 2^53 are doubles */
    ALL = KS_DTYPE_BIT(KS_BYTES) - 1
};

static const char *const names[] = {
#define X(name, text, operands, kind, flops) text,
    KS_MAP_TABLE(X)
#undef X
        NULL};

/* INPUT0's, then each datatype, in the order of ks_dtype. */
static const char *const out_names[] = {"input", "BOOL",  "UINT8", "UINT16", "UINT32",  "UINT64",
                                        "INT8",  "INT16", "INT32", "INT64",  "FP8E4M3", "FP8E5M2",
                                        "FP16",  "BF16",  "FP32",  "FP64",   NULL};

typedef struct function_row {
    int operands;
    ks_map_kind kind;
    int flops;
} function_row;

static const function_row rows_of_functions[] = {
#define X(name, text, operands, kind, flops) {operands, KS_MAP_##kind, flops},
    KS_MAP_TABLE(X)
#undef X
};

static bool is_integer(ks_dtype dtype)
{
    return ks_dtype_kind(dtype) == KS_KIND_INT || ks_dtype_kind(dtype) == KS_KIND_UINT;
}

/* --- inputs ---------------------------------------------------------------------------------------------------------- */

/* axpy has its scalar and a tensor beside it. */
static bool takes_scalar(const ks_spec *spec)
{
    const ks_map_function function = (ks_map_function)spec->params[KS_MAP_OP].i;
    return rows_of_functions[function].operands == 2 && function != KS_MAP_AXPY && !ks_has_input(spec, 1);
}

static ks_status check_given(const ks_spec *spec, ks_error *error)
{
    const int64_t function = spec->params[KS_MAP_OP].i;
    const int operands = rows_of_functions[function].operands;
    for (int i = 0; i < operands; i++)
        if (!ks_has_input(spec, i) && !(i == 1 && takes_scalar(spec)))
            return ks_fail(error, KS_NAME, "map: %s takes %d inputs, %s is missing", names[function], operands,
                           spec->op->inputs[i].name);
    const int more = ks_next_input(spec, operands - 1);
    if (more < 0) return KS_OK;
    return ks_fail(error, KS_NAME, "map: %s takes %d input%s, and %s is given", names[function], operands,
                   operands == 1 ? "" : "s", spec->op->inputs[more].name);
}

/* The input that the datatype of the operands is of. */
static int first_operand(const ks_spec *spec)
{
    return spec->params[KS_MAP_OP].i == KS_MAP_WHERE;
}

static ks_status check_dtypes(const ks_spec *spec, ks_error *error)
{
    const int64_t function = spec->params[KS_MAP_OP].i;
    const int first = first_operand(spec);
    const ks_map_kind kind = rows_of_functions[function].kind;
    const ks_dtype dtype = spec->in[first].dtype;
    const ks_input *row = spec->op->inputs;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i))
        if (!(ks_op_dtypes(spec->op, i) & KS_DTYPE_BIT(spec->in[i].dtype)))
            return ks_fail(error, KS_DATATYPE, "map: %s has datatype %s, takes numbers or BOOL", row[i].name,
                           ks_dtype_name(spec->in[i].dtype));
    if (first && spec->in[0].dtype != KS_BOOL)
        return ks_fail(error, KS_DATATYPE, "map: %s has datatype %s, where takes BOOL", row[0].name,
                       ks_dtype_name(spec->in[0].dtype));
    if (kind == KS_MAP_BITS && dtype != KS_BOOL && !is_integer(dtype))
        return ks_fail(error, KS_DATATYPE, "map: %s has datatype %s, %s takes integers or BOOL", row[0].name,
                       ks_dtype_name(dtype), names[function]);
    if ((kind == KS_MAP_NUMBERS || kind == KS_MAP_REAL) && dtype == KS_BOOL)
        return ks_fail(error, KS_DATATYPE, "map: %s has datatype BOOL, %s takes numbers", row[0].name, names[function]);
    for (int i = ks_next_input(spec, first); i >= 0; i = ks_next_input(spec, i))
        if (spec->in[i].dtype != dtype)
            return ks_fail(error, KS_DATATYPE, "map: %s has datatype %s, %s %s; they must be equal", row[first].name,
                           ks_dtype_name(dtype), row[i].name, ks_dtype_name(spec->in[i].dtype));
    return KS_OK;
}

/* Axis `axis` of a tensor of that rank, as the input has it. */
static int64_t extent_of(const ks_tensor *in, int axis, int rank)
{
    const int own = axis - (rank - in->rank);
    return own < 0 ? 1 : in->dims[own];
}

static ks_status refuse_shapes(const ks_spec *spec, int one, int other, ks_error *error)
{
    char text[2][KS_RANK_MAX * 21];
    ks_dims_text(&spec->in[one], text[0], sizeof text[0]);
    ks_dims_text(&spec->in[other], text[1], sizeof text[1]);
    return ks_fail(error, KS_SHAPE, "map: %s has shape [%s] and %s [%s], which do not broadcast",
                   spec->op->inputs[one].name, text[0], spec->op->inputs[other].name, text[1]);
}

ks_status ks_map_broadcast(ks_spec *spec, ks_tensor *out, ks_error *error)
{
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        ks_tensor *in = &spec->in[i];
        const ks_input *row = &spec->op->inputs[i];
        if (in->rank < row->rank_min || in->rank > row->rank_max)
            return ks_fail(error, KS_SHAPE, "map: %s has rank %d, takes %d to %d", row->name, in->rank, row->rank_min,
                           row->rank_max);
        const ks_status status = ks_tensor_measure(in, row->name, error);
        if (status != KS_OK) return status;
        if (in->rank > out->rank) out->rank = in->rank;
    }
    for (int axis = 0; axis < out->rank; axis++) {
        int from = -1;
        for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
            const int64_t extent = extent_of(&spec->in[i], axis, out->rank);
            if (from >= 0 && extent != 1 && extent != out->dims[axis]) return refuse_shapes(spec, from, i, error);
            if (from < 0 && extent != 1) from = i;
            if (from == i || from < 0) out->dims[axis] = extent;
        }
    }
    return KS_OK;
}

/* --- parameters ------------------------------------------------------------------------------------------------------ */

static ks_map_math math_of(const ks_spec *spec)
{
    const ks_dtype dtype = spec->in[first_operand(spec)].dtype;
    if (dtype == KS_FP64) return KS_MAP_DOUBLE;
    if (ks_dtype_kind(dtype) == KS_KIND_FLOAT) return KS_MAP_FLOAT;
    return rows_of_functions[spec->params[KS_MAP_OP].i].kind == KS_MAP_REAL ? KS_MAP_DOUBLE : KS_MAP_INTEGER;
}

/* Of the function, whatever it is cast to. */
static ks_dtype result_of(const ks_spec *spec)
{
    const ks_dtype dtype = spec->in[first_operand(spec)].dtype;
    const ks_map_kind kind = rows_of_functions[spec->params[KS_MAP_OP].i].kind;
    if (kind == KS_MAP_TRUTH) return KS_BOOL;
    return kind == KS_MAP_REAL && is_integer(dtype) ? KS_FP64 : dtype;
}

/* What the function takes for a and b where the request does not say; NaN: it does not take them. */
static double preset_of(const ks_spec *spec, int param)
{
    switch (spec->params[KS_MAP_OP].i) {
    case KS_MAP_CLAMP:
        return param == KS_MAP_A ? -(double)INFINITY : (double)INFINITY;
    case KS_MAP_LINEAR:
        return param == KS_MAP_A;
    case KS_MAP_LEAKY_RELU:
        return param == KS_MAP_A ? 0.01 : (double)NAN;
    case KS_MAP_ELU:
    case KS_MAP_AXPY:
        return param == KS_MAP_A ? 1 : (double)NAN;
    default:
        return param == KS_MAP_A && takes_scalar(spec) ? 1 : (double)NAN;
    }
}

/* The least and the largest integer that the datatype has and a double holds. */
static void integers_of(ks_dtype dtype, double *least, double *most)
{
    const int bits = dtype == KS_BOOL ? 1 : 8 * (int)ks_dtype_size(dtype);
    const bool has_sign = ks_dtype_kind(dtype) == KS_KIND_INT;
    const int value_bits = bits - has_sign;
    *most = ldexp(1, value_bits > WHOLE_BITS ? WHOLE_BITS : value_bits) - (value_bits <= WHOLE_BITS);
    *least = !has_sign ? 0 : value_bits > WHOLE_BITS ? -*most : -*most - 1;
}

static ks_status check_number(const ks_spec *spec, int param, ks_error *error)
{
    const double value = spec->params[param].d;
    const char *const name = spec->op->params[param].name;
    const ks_dtype dtype = spec->in[first_operand(spec)].dtype;
    if (isinf(value) && spec->params[KS_MAP_OP].i == KS_MAP_CLAMP) return KS_OK; /* that side is open */
    double least = -DBL_MAX, most = DBL_MAX;
    const ks_map_math math = math_of(spec);
    if (math == KS_MAP_FLOAT) {
        most = (double)FLT_MAX;
        least = -most;
    } else if (math == KS_MAP_INTEGER) {
        integers_of(dtype, &least, &most);
        if (value != floor(value))
            return ks_fail(error, KS_PARAMETER, "map: parameter '%s' is %.17g, INPUT0 has datatype %s: a whole number",
                           name, value, ks_dtype_name(dtype));
    }
    if (value >= least && value <= most) return KS_OK;
    return ks_fail(error, KS_PARAMETER, "map: parameter '%s' is %.17g, with %s it takes %.17g to %.17g", name, value,
                   ks_dtype_name(dtype), least, most);
}

/* NaN, which no request can send, stands for what it does not say. */
static ks_status resolve_numbers(ks_spec *spec, ks_error *error)
{
    const char *const function = names[spec->params[KS_MAP_OP].i];
    for (int param = KS_MAP_A; param <= KS_MAP_B; param++) {
        double *value = &spec->params[param].d;
        const double preset = preset_of(spec, param);
        if (isnan(preset) && !isnan(*value))
            return ks_fail(error, KS_PARAMETER, "map: parameter '%s' is %.17g, %s%s does not take it",
                           spec->op->params[param].name, *value, function,
                           param == KS_MAP_A && ks_has_input(spec, 1) ? " with INPUT1" : "");
        if (isnan(*value)) *value = preset;
        if (isnan(preset)) continue;
        const ks_status status = check_number(spec, param, error);
        if (status != KS_OK) return status;
    }
    const double a = spec->params[KS_MAP_A].d, b = spec->params[KS_MAP_B].d;
    if (spec->params[KS_MAP_OP].i == KS_MAP_CLAMP && a > b)
        return ks_fail(error, KS_PARAMETER, "map: clamp from a = %.17g to b = %.17g: a must not be above b", a, b);
    return KS_OK;
}

/* --- the rules ------------------------------------------------------------------------------------------------------- */

/* ks_resolve_fn */
static ks_status map_resolve(ks_spec *spec, ks_error *error)
{
    const int64_t function = spec->params[KS_MAP_OP].i, wanted = spec->params[KS_MAP_OUT].i;
    if (function < 0 || function >= KS_MAP_FUNCTIONS)
        return ks_fail(error, KS_PARAMETER, "map: op %" PRId64 " is not one of %d", function, KS_MAP_FUNCTIONS);
    if (wanted < 0 || wanted > KS_BYTES)
        return ks_fail(error, KS_PARAMETER, "map: out_datatype %" PRId64 " is not one of %d", wanted, KS_BYTES + 1);
    ks_status status = check_given(spec, error);
    if (status == KS_OK) status = check_dtypes(spec, error);
    if (status == KS_OK) status = resolve_numbers(spec, error);
    if (status != KS_OK) return status;
    ks_tensor out = {.dtype = wanted ? (ks_dtype)(wanted - 1) : result_of(spec)};
    status = ks_map_broadcast(spec, &out, error);
    if (status == KS_OK) status = ks_tensor_measure(&out, ks_output_name(0), error);
    if (status != KS_OK) return status;
    spec->params[KS_MAP_OUT].i = (int64_t)out.dtype + 1;
    spec->out[0] = out;
    spec->outputs = 1;
    spec->flops = (double)ks_tensor_count(&out) * rows_of_functions[function].flops;
    return KS_OK;
}

/* Leading axes that INPUT0 has whole, and each other input has whole as well or not at all. */
static ks_rows map_rows(const ks_spec *spec)
{
    const ks_tensor *out = &spec->out[0];
    uint16_t cut = 1, whole = 0;
    int dims = 0;
    if (spec->in[0].rank != out->rank) return (ks_rows){0};
    for (; dims < out->rank && spec->in[0].dims[dims] == out->dims[dims]; dims++) {
        if (out->dims[dims] == 1) continue;
        uint16_t has = 1;
        for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i))
            if (extent_of(&spec->in[i], dims, out->rank) != 1) has = (uint16_t)(has | 1u << i);
        const uint16_t lacks = (uint16_t)(spec->given & ~has);
        if ((cut & lacks) || (whole & has)) break;
        cut |= has;
        whole |= lacks;
    }
    return (ks_rows){.dims = dims, .cut = cut, .out = 1};
}

/* ks_op.is_view: a copy of what is as it is; BOOL becomes 0 and 1. */
static bool map_is_view(const ks_spec *spec, size_t *offset)
{
    *offset = 0;
    return spec->params[KS_MAP_OP].i == KS_MAP_CAST && spec->out[0].dtype == spec->in[0].dtype &&
           spec->out[0].dtype != KS_BOOL;
}

/* ks_sample_fn: known values of more than a vector, and an end off the vectors. */
static void map_sample(ks_spec *spec)
{
    ks_spec_init(spec, &ks_op_map);
    spec->params[KS_MAP_OP].i = KS_MAP_GELU;
    spec->in[0] = (ks_tensor){.dtype = KS_FP32, .rank = 2, .dims = {3, 333}};
}

/* --- how it is computed ---------------------------------------------------------------------------------------------- */

static ks_map_function computed_as(ks_map_function function, ks_dtype dtype)
{
    const bool whole = function == KS_MAP_FLOOR || function == KS_MAP_CEIL || function == KS_MAP_ROUND;
    if (whole && is_integer(dtype)) return KS_MAP_CAST;
    if (function == KS_MAP_ISNAN) return KS_MAP_NE;
    return function == KS_MAP_NOT && dtype == KS_BOOL ? KS_MAP_XOR : function;
}

ks_map_work ks_map_work_of(const ks_spec *spec)
{
    const ks_map_function asked = (ks_map_function)spec->params[KS_MAP_OP].i;
    ks_map_work w = {.math = math_of(spec),
                     .dtype = spec->in[first_operand(spec)].dtype,
                     .out = spec->out[0].dtype,
                     .truth = rows_of_functions[asked].kind == KS_MAP_TRUTH,
                     .a = spec->params[KS_MAP_A].d,
                     .b = spec->params[KS_MAP_B].d};
    w.function = computed_as(asked, w.dtype);
    w.operands = rows_of_functions[w.function].operands;
    for (int i = 0; i < KS_MAP_OPERANDS; i++) w.input[i] = ks_has_input(spec, i) ? i : -1;
    if (asked == KS_MAP_ISNAN) w.input[1] = 0;
    if (asked == KS_MAP_NOT && w.function == KS_MAP_XOR) w.a = 1;
    if (isnan(w.a)) w.a = 0;
    if (isnan(w.b)) w.b = 0;
    return w;
}

/* An axis inside those present: joined to the innermost of them where all operands go on from it as they do along it. */
static void push_axis(ks_map_shape *s, int64_t extent, const int64_t *stride)
{
    if (extent == 1) return;
    bool joins = s->rank > 0;
    for (int k = 0; k < KS_MAP_SHAPE_OPERANDS && joins; k++) joins = s->stride[k][s->rank - 1] == stride[k] * extent;
    const int at = joins ? s->rank - 1 : s->rank++;
    s->dims[at] = joins ? s->dims[at] * extent : extent;
    for (int k = 0; k < KS_MAP_SHAPE_OPERANDS; k++) s->stride[k][at] = stride[k];
}

/* Elements of the operand from one index of an axis to the next; 0 where it repeats. */
static int64_t stride_of(const ks_tensor *in, int axis, int rank)
{
    const int own = axis - (rank - in->rank);
    return own < 0 || in->dims[own] == 1 ? 0 : ks_dims_product(in->dims, own + 1, in->rank);
}

ks_map_shape ks_map_shape_for(const ks_tensor *out, const ks_tensor *const in[KS_MAP_SHAPE_OPERANDS])
{
    ks_map_shape s = {.count = ks_tensor_count(out)};
    for (int axis = 0; axis < out->rank; axis++) {
        int64_t stride[KS_MAP_SHAPE_OPERANDS] = {0};
        for (int k = 0; k < KS_MAP_SHAPE_OPERANDS; k++)
            if (in[k]) stride[k] = stride_of(in[k], axis, out->rank);
        push_axis(&s, out->dims[axis], stride);
    }
    if (s.rank == 0) s.dims[s.rank++] = 1;
    for (int k = 0; k < KS_MAP_SHAPE_OPERANDS; k++) s.flat[k] = in[k] && ks_tensor_count(in[k]) == s.count;
    return s;
}

ks_map_shape ks_map_shape_of(const ks_spec *spec, const ks_map_work *work)
{
    const ks_tensor *in[KS_MAP_SHAPE_OPERANDS] = {NULL};
    for (int k = 0; k < work->operands; k++)
        if (work->input[k] >= 0) in[k] = &spec->in[work->input[k]];
    return ks_map_shape_for(&spec->out[0], in);
}

int ks_map_flops(ks_map_function function)
{
    return rows_of_functions[function].flops;
}

/* --- the descriptor -------------------------------------------------------------------------------------------------- */

#define PRESET(text, function, ...)                                                                                    \
    {                                                                                                                  \
        .suffix = text, .param = KS_MAP_OP, .value = {.i = function}, __VA_ARGS__                                      \
    }
enum { Y = 1 << 1, Z = 1 << 2 };
static const ks_preset presets[] = {
    PRESET("add", KS_MAP_ADD, .inputs = Y),
    PRESET("mul", KS_MAP_MUL, .inputs = Y),
    PRESET("exp", KS_MAP_EXP, .inputs = 0),
    PRESET("relu", KS_MAP_RELU, .inputs = 0),
    PRESET("gelu", KS_MAP_GELU, .inputs = 0),
    PRESET("silu", KS_MAP_SILU, .inputs = 0),
    PRESET("sigmoid", KS_MAP_SIGMOID, .inputs = 0),
    PRESET("axpy", KS_MAP_AXPY, .inputs = Y),
    PRESET("where", KS_MAP_WHERE, .inputs = Y | Z, .first = KS_DTYPE_BIT(KS_BOOL)),
};

const ks_op ks_op_map = {
    .name = "map",
    .inputs_count = KS_MAP_OPERANDS,
    .inputs = {{.name = "INPUT0", .role = "x", .dtypes = ALL, .rank_max = KS_RANK_MAX},
               {.name = "INPUT1", .role = "y", .dtypes = ALL, .rank_max = KS_RANK_MAX, .optional = true},
               {.name = "INPUT2", .role = "z", .dtypes = ALL, .rank_max = KS_RANK_MAX, .optional = true}},
    .in_rank = 2,
    .out_rank = 2,
    .params_count = KS_MAP_PARAMS,
    .params =
        {[KS_MAP_OP] = {.name = "op",
                        .kind = KS_PARAM_CHOICE,
                        .preset = {.i = KS_MAP_CAST},
                        .choices = names,
                        .status = KS_PARAMETER},
         [KS_MAP_A] = {.name = "a", .kind = KS_PARAM_NUMBER, .preset = {.d = (double)NAN}, .status = KS_PARAMETER},
         [KS_MAP_B] = {.name = "b", .kind = KS_PARAM_NUMBER, .preset = {.d = (double)NAN}, .status = KS_PARAMETER},
         [KS_MAP_OUT] =
             {.name = "out_datatype", .kind = KS_PARAM_CHOICE, .choices = out_names, .status = KS_PARAMETER}},
    .presets_count = sizeof presets / sizeof *presets,
    .presets = presets,
    .resolve = map_resolve,
    .rows = map_rows,
    .sample = map_sample,
    .is_view = map_is_view,
};
