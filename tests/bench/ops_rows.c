/* Rows of ops_library.h, of the tables in ops_rows.h and of any texts, and the work that they stand for: the same whatever runs it.
 *
 * Threads  any: no memory but the caller's. */
#include "ops_library.h"
#include "ops/gather.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/quantize/quantize.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops_rows.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (int)(sizeof(table) / sizeof(table)[0])

/* --- rows -------------------------------------------------------------------------------------------------------- */

/* The op is `length` bytes of a list of them. */
static void fill_row(int at, int dtype, const char *op, int length, ops_row *out)
{
    const char *second = ops_table[at].second, *axis = ops_table[at].axis;
    snprintf(out->op, sizeof out->op, "%.*s", length, op);
    snprintf(out->dtype, sizeof out->dtype, "%s", ops_dtypes[dtype]);
    snprintf(out->first, sizeof out->first, "%s", ops_table[at].first);
    snprintf(out->second, sizeof out->second, "%s", second ? second : "");
    snprintf(out->axis, sizeof out->axis, "%s", axis ? axis : "");
    snprintf(out->label, sizeof out->label, "%s %s %s%s%s%s%s", out->op, out->dtype, out->first, second ? " * " : "",
             out->second, axis ? " axis " : "", out->axis);
}

static void fill_map_row(int at, ops_row *out)
{
    const char *second = ops_map_table[at].second, *third = ops_map_table[at].third, *to = ops_map_table[at].to;
    snprintf(out->op, sizeof out->op, "%s", ops_map_table[at].op);
    snprintf(out->dtype, sizeof out->dtype, "%s", ops_map_table[at].dtype);
    snprintf(out->first, sizeof out->first, "%s", ops_map_table[at].first);
    snprintf(out->second, sizeof out->second, "%s", second ? second : "");
    snprintf(out->third, sizeof out->third, "%s", third ? third : "");
    snprintf(out->to, sizeof out->to, "%s", to ? to : "");
    out->axis[0] = 0;
    snprintf(out->label, sizeof out->label, "%s %s %s%s%s%s%s%s%s", out->op, out->dtype, out->first, second ? ", " : "",
             out->second, third ? ", " : "", out->third, to ? " to " : "", out->to);
}

static void fill_search_row(int at, ops_row *out)
{
    snprintf(out->op, sizeof out->op, "%s", ops_search_table[at].op);
    snprintf(out->dtype, sizeof out->dtype, "%s", ops_search_table[at].dtype);
    snprintf(out->first, sizeof out->first, "%s", ops_search_table[at].queries);
    snprintf(out->second, sizeof out->second, "%s", ops_search_table[at].matrix);
    snprintf(out->label, sizeof out->label, "%s %s %s in %s", out->op, out->dtype, out->first, out->second);
}

static void fill_attention_row(int at, ops_row *out)
{
    snprintf(out->op, sizeof out->op, "%s", ops_attention_table[at].op);
    snprintf(out->dtype, sizeof out->dtype, "%s", ops_attention_table[at].dtype);
    snprintf(out->first, sizeof out->first, "%s", ops_attention_table[at].query);
    snprintf(out->second, sizeof out->second, "%s", ops_attention_table[at].key);
    snprintf(out->third, sizeof out->third, "%s", ops_attention_table[at].key);
    snprintf(out->label, sizeof out->label, "%s %s %s to %s", out->op, out->dtype, out->first, out->second);
}

static void fill_moved_row(int at, ops_row *out)
{
    const char *second = ops_moved_table[at].second;
    snprintf(out->op, sizeof out->op, "%s", ops_moved_table[at].op);
    snprintf(out->dtype, sizeof out->dtype, "%s", ops_moved_table[at].dtype);
    snprintf(out->first, sizeof out->first, "%s", ops_moved_table[at].first);
    snprintf(out->second, sizeof out->second, "%s", second ? second : "");
    snprintf(out->parameters, sizeof out->parameters, "%s", ops_moved_table[at].parameters);
    snprintf(out->label, sizeof out->label, "%s %s %s%s%s %s", out->op, out->dtype, out->first, second ? ", " : "",
             out->second, out->parameters);
}

/* false: the table has no row i, which is counted down by the rows it has. */
static bool fill_narrow_row(int *i, ops_row *out)
{
    for (int at = 0; at < COUNT(ops_narrow_table); at++)
        for (const char *op = ops_narrow_table[at].ops; *op; op += strspn(op, " ")) {
            const int length = (int)strcspn(op, " ");
            if ((*i)-- == 0) {
                snprintf(out->op, sizeof out->op, "%.*s", length, op);
                snprintf(out->dtype, sizeof out->dtype, "%s", ops_narrow_table[at].dtype);
                snprintf(out->first, sizeof out->first, "%s", ops_narrow_table[at].first);
                snprintf(out->second, sizeof out->second, "%s", ops_narrow_table[at].second);
                snprintf(out->label, sizeof out->label, "%s %s %s by %s", out->op, out->dtype, out->first, out->second);
                return true;
            }
            op += length;
        }
    return false;
}

static_assert(sizeof(ops_work) <= 65536, "compare_torch.py keeps room for so much (Work)");

/* Those of ops_table in each datatype, then the other tables'. */
bool ops_row_at(int i, ops_row *out)
{
    memset(out, 0, sizeof *out);
    for (int d = 0; d < COUNT(ops_dtypes); d++)
        for (int at = 0; at < COUNT(ops_table); at++)
            for (const char *op = ops_table[at].ops; *op; op += strspn(op, " ")) {
                const int length = (int)strcspn(op, " ");
                if (i-- == 0) {
                    fill_row(at, d, op, length, out);
                    return true;
                }
                op += length;
            }
    if (i < COUNT(ops_map_table)) {
        fill_map_row(i, out);
        return true;
    }
    i -= COUNT(ops_map_table);
    if (i < COUNT(ops_search_table)) {
        fill_search_row(i, out);
        return true;
    }
    i -= COUNT(ops_search_table);
    if (i < COUNT(ops_attention_table)) {
        fill_attention_row(i, out);
        return true;
    }
    i -= COUNT(ops_attention_table);
    if (i < COUNT(ops_moved_table)) {
        fill_moved_row(i, out);
        return true;
    }
    i -= COUNT(ops_moved_table);
    return fill_narrow_row(&i, out);
}

static void read_shape(const char *text, ks_tensor *out)
{
    char *end = (char *)text;
    for (out->rank = 0; *text && out->rank < KS_RANK_MAX; text = end + (*end == 'x'))
        out->dims[out->rank++] = strtoll(text, &end, 10);
}

static void read_axes(const char *text, ks_axes *out)
{
    char *end = (char *)text;
    for (out->count = 0; *text && out->count < KS_RANK_MAX; text = end + (*end == ','))
        out->axis[out->count++] = (int8_t)strtol(text, &end, 10);
}

static void read_list(const char *text, ks_integers *out)
{
    char *end = (char *)text;
    for (out->count = 0; *text && out->count < KS_RANK_MAX; text = end + (*end == ','))
        out->value[out->count++] = strtoll(text, &end, 10);
}

/* false: the op has no such parameter, or the parameter no such value. */
static bool set_param(ks_spec *spec, const char *name, const char *text)
{
    int i = 0;
    while (i < spec->op->params_count && strcmp(spec->op->params[i].name, name) != 0) i++;
    if (i == spec->op->params_count) return false;
    const ks_param *param = &spec->op->params[i];
    if (param->kind == KS_PARAM_LIST) {
        read_list(text, ks_spec_list(spec, i));
        return true;
    }
    ks_value *value = &spec->params[i];
    memset(value, 0, sizeof *value);
    if (param->kind == KS_PARAM_AXES) {
        read_axes(text, &value->axes);
    } else if (param->kind == KS_PARAM_CHOICE) {
        while (param->choices[value->i] && strcmp(param->choices[value->i], text) != 0) value->i++;
        return param->choices[value->i];
    } else if (param->kind == KS_PARAM_NUMBER) {
        value->d = atof(text);
    } else {
        value->i = atoi(text);
    }
    return true;
}

/* Work of an op under another name: its parameters, and its inputs beside INPUT0, as bits. */
typedef struct variant {
    const char *name, *op, *params[7]; /* name, value, name, value, ..., NULL */
    unsigned given;
} variant;

static const variant variants[] = {
    {"transpose", "layout", {"op", "transpose"}, 0},
    {"slice", "layout", {"op", "slice"}, 0},
    {"pad", "layout", {"op", "pad"}, 0},
    {"concat", "layout", {"op", "concat"}, 1u << 1},
    {"softmax_lengths", "softmax", {NULL}, 1u << KS_SOFTMAX_LENGTHS},
    {"sum_segments", "reduce", {"op", "sum"}, 1u << KS_REDUCE_SEGMENTS},
    {"layer_norm", "norm", {NULL}, 1u << KS_NORM_WEIGHT | 1u << KS_NORM_BIAS},
    {"rms_norm", "norm", {"kind", "rms"}, 1u << KS_NORM_WEIGHT},
    {"bias_layer_gelu",
     "norm",
     {"activation", "gelu"},
     1u << KS_NORM_WEIGHT | 1u << KS_NORM_BIAS | 1u << KS_NORM_PRE_BIAS},
    {"add_rms_norm", "norm", {"kind", "rms", "sum_out", "1"}, 1u << KS_NORM_WEIGHT | 1u << KS_NORM_RESIDUAL},
    {"softmax_causal", "softmax", {"causal", "bottom_right"}, 0},
    {"topk_10", "topk", {"k", "10"}, 0},
    {"topk_50", "topk", {"k", "50"}, 0},
    {"topk_256", "topk", {"k", "256"}, 0},
    {"topk_2048", "topk", {"k", "2048"}, 0},
    {"search_10", "search", {"k", "10"}, 0},
    {"search_128", "search", {"k", "128"}, 0},
    {"attn_causal", "attention", {"causal", "top_left"}, 0},
    {"cumsum", "scan", {"op", "sum"}, 0},
    {"cummax", "scan", {"op", "max"}, 0},
    {"logcumsumexp", "scan", {"op", "logsumexp"}, 0},
    {"histc_256", "histogram", {"bins", "256", "min", "-4", "max", "4"}, 0},
    {"histc_10000", "histogram", {"bins", "10000", "min", "-4", "max", "4"}, 0},
    {"quantize_tensor", "quantize", {NULL}, 0},
    {"quantize_row", "quantize", {"scale_per", "row"}, 0},
    {"quantize_column", "quantize", {"scale_per", "column"}, 0},
    {"deq_tensor", "dequantize", {NULL}, 0},
    {"deq_row", "dequantize", {"scale_per", "row"}, 0},
    {"deq_column", "dequantize", {"scale_per", "column"}, 0},
    {"matmul_tb", "matmul", {"transpose_b", "1"}, 0},
    {"int8_mm", "matmul", {NULL}, 0},
    {"int8_mm_tb", "matmul", {"transpose_b", "1"}, 0},
    {"fp8_mm", "matmul", {"out_datatype", "BF16"}, 3u << KS_MATMUL_SCALE_A},
    {"fp8_mm_tb", "matmul", {"out_datatype", "BF16", "transpose_b", "1"}, 3u << KS_MATMUL_SCALE_A},
    {"fp8_fast", "matmul", {"out_datatype", "BF16", "precision", "fast"}, 3u << KS_MATMUL_SCALE_A},
    {"fp8_fast_tb",
     "matmul",
     {"out_datatype", "BF16", "precision", "fast", "transpose_b", "1"},
     3u << KS_MATMUL_SCALE_A},
    {"embedding", "gather", {NULL}, 0},
    {"index_select", "gather", {NULL}, 0},
    {"take_along", "gather", {"kind", "elements"}, 0},
    {"embedding_bag", "gather", {NULL}, 1u << KS_GATHER_OFFSETS}};
enum { BAG_INDICES = 16 }; /* of a bag, on average */

static const variant *variant_of(const char *name)
{
    for (int i = 0; i < COUNT(variants); i++)
        if (strcmp(variants[i].name, name) == 0) return &variants[i];
    return NULL;
}

/* Indices are INT64, as PyTorch has them. */
static void add_places(const variant *v, ks_spec *spec)
{
    spec->given |= (uint16_t)v->given;
    spec->in[KS_GATHER_INDICES].dtype = KS_INT64;
    if (!ks_has_input(spec, KS_GATHER_OFFSETS)) return;
    ks_tensor offsets = {0};
    offsets.dtype = KS_INT64;
    offsets.rank = 1;
    offsets.dims[0] = spec->in[KS_GATHER_INDICES].dims[0] / BAG_INDICES + 1;
    spec->in[KS_GATHER_OFFSETS] = offsets;
}

/* A norm's inputs beside x: a residual as x is, the others as its rows. */
static void add_rows(const variant *v, ks_spec *spec)
{
    const ks_tensor x = spec->in[0];
    spec->given |= (uint16_t)v->given;
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i)) {
        ks_tensor row = {0};
        row.dtype = x.dtype;
        row.rank = 1;
        row.dims[0] = x.dims[x.rank - 1];
        spec->in[i] = i == KS_NORM_RESIDUAL ? x : row;
    }
}

/* Of a row with parameters the second input has a shape of its own; lengths and offsets are INT64, as PyTorch has them. */
static void add_second(const variant *v, const char *shape, ks_spec *spec)
{
    spec->given |= (uint16_t)v->given;
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i)) {
        spec->in[i].dtype = strcmp(v->op, "layout") == 0 ? spec->in[0].dtype : KS_INT64;
        read_shape(shape, &spec->in[i]);
    }
}

/* "NAME=VALUE NAME=VALUE" */
static bool set_params(ks_spec *spec, const char *text)
{
    char name[24], value[40];
    for (int length; sscanf(text, " %23[^=]=%39s%n", name, value, &length) == 2; text += length)
        if (!set_param(spec, name, value)) return false;
    return true;
}

/* One that reduces by that name, else map. */
static const ks_op *op_of(const ops_row *row)
{
    const ks_op *op = ks_op_find(row->op, strlen(row->op));
    ks_spec tried;
    if (op) return op;
    op = ks_op_find("reduce", 6);
    ks_spec_init(&tried, op);
    return set_param(&tried, "op", row->op) ? op : ks_op_find("map", 3);
}

static ks_status refuse(ks_error *error, const char *what, const char *why)
{
    return ks_fail(error, KS_CONFIG, "%s: %s", what, why);
}

ks_status ops_spec_of(const ops_row *row, ks_spec *spec, ks_error *error)
{
    const variant *v = variant_of(row->op);
    const ks_op *op = v ? ks_op_find(v->op, strlen(v->op)) : op_of(row);
    const bool named = v || strcmp(op->name, row->op) == 0, is_map = strcmp(op->name, "map") == 0;
    const char *shapes[KS_INPUTS_MAX] = {row->first, row->second, row->third, ""};
    ks_spec_init(spec, op);
    if (is_map) spec->given = (uint16_t)(1 | (*row->second != 0) << 1 | (*row->third != 0) << 2);
    const bool tf32 = strcmp(row->dtype, "TF32") == 0;
    const char *dtype = tf32 ? "FP32" : row->dtype;
    if (tf32 && !set_param(spec, "precision", "tf32")) return refuse(error, row->op, "has no precision");
    const bool scaled = v && strcmp(v->op, "matmul") == 0 && v->given;
    if (scaled) spec->given |= (uint16_t)v->given, shapes[KS_MATMUL_SCALE_A] = shapes[KS_MATMUL_SCALE_B] = "1";
    const bool scales = v && strcmp(v->op, "dequantize") == 0;
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        if (!ks_dtype_find(dtype, strlen(dtype), &spec->in[i].dtype))
            return refuse(error, row->dtype, "no such datatype");
        if ((scaled && i >= KS_MATMUL_SCALE_A) || (scales && i == KS_QUANTIZE_SCALE)) spec->in[i].dtype = KS_FP32;
        read_shape(shapes[i], &spec->in[i]);
        if (ks_tensor_measure(&spec->in[i], "INPUT", error)) return KS_SHAPE;
    }
    const bool whole = v && (strcmp(v->op, "search") == 0 || strcmp(v->op, "attention") == 0 ||
                             strcmp(v->op, "matmul") == 0 || scales);
    if (v && *row->parameters)
        add_second(v, row->second, spec);
    else if (v && !whole)
        (strcmp(v->op, "gather") == 0 ? add_places : add_rows)(v, spec);
    for (int i = 0; v && v->params[i]; i += 2)
        if (!set_param(spec, v->params[i], v->params[i + 1])) return refuse(error, row->op, "no such parameter");
    if (strcmp(row->op, "where") == 0) { /* the condition */
        spec->in[0].dtype = KS_BOOL;
        if (ks_tensor_measure(&spec->in[0], "INPUT0", error)) return KS_SHAPE;
    }
    ks_spec_layout(spec);
    if (*row->to && !set_param(spec, "out_datatype", row->to)) return refuse(error, row->to, "no such datatype");
    if (!named && !set_param(spec, "op", row->op)) return refuse(error, row->op, "no such operation");
    if (!set_params(spec, row->parameters)) return refuse(error, row->label, "no such parameter");
    if (*row->axis && !set_param(spec, "axis", row->axis)) return refuse(error, row->label, "no such axis");
    const ks_status status = op->resolve(spec, error);
    if (status != KS_OK) return status;
    ks_spec_layout(spec);
    return KS_OK;
}

long long ops_input_at(const ops_work *work, int input)
{
    return ks_has_input(&work->spec, input) ? (long long)work->spec.in[input].offset : -1;
}

long long ops_output_at(const ops_work *work, int output)
{
    return output < work->spec.outputs ? (long long)work->spec.out[output].offset : -1;
}

void ops_measure(ops_work *work)
{
    work->in_bytes = ks_align(ks_spec_in_bytes(&work->spec)) + KS_PAD;
    work->out_bytes = ks_align(ks_spec_out_bytes(&work->spec)) + KS_PAD;
    work->bytes = (double)(ks_spec_read_bytes(&work->spec) + ks_spec_written_bytes(&work->spec));
    work->flops = work->spec.flops;
}
