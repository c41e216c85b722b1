#include "ops_library.h"
#include "cuda/op.h"
#include "ops/gather.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t WORKSPACE_BYTES = 64 << 20, COPY_BYTES = (size_t)2 << 30;
enum { COPIES = 20 };
#define COUNT(table) (int)(sizeof(table) / sizeof(table)[0])

static struct {
    ks_chip chip;
    double copy_gbs;
    unsigned char *memory; /* completion | ticket | counters | workspace, KS_PAD */
    ks_error error;
} library;
static const size_t CONTROL_BYTES = 2 * KS_ALIGNMENT + KS_COUNTERS_MAX * sizeof(uint32_t);

static const char *refuse(const char *what, const char *why)
{
    ks_fail(&library.error, KS_DEVICE, "%s: %s", what, why);
    return library.error.text;
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const cudaError_t code_ = (call);                                                                              \
        if (code_ != cudaSuccess) return refuse(#call, cudaGetErrorString(code_));                                     \
    } while (0)

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
    ks_tensor offsets = {};
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
        ks_tensor row = {};
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

static const char *make_spec(const ops_row *row, ks_spec *spec)
{
    const variant *v = variant_of(row->op);
    const ks_op *op = v ? ks_op_find(v->op, strlen(v->op)) : op_of(row);
    const bool named = v || strcmp(op->name, row->op) == 0, is_map = strcmp(op->name, "map") == 0;
    const char *shapes[KS_INPUTS_MAX] = {row->first, row->second, row->third, ""};
    ks_error error;
    ks_spec_init(spec, op);
    if (is_map) spec->given = (uint16_t)(1 | (*row->second != 0) << 1 | (*row->third != 0) << 2);
    const bool tf32 = strcmp(row->dtype, "TF32") == 0;
    const char *dtype = tf32 ? "FP32" : row->dtype;
    if (tf32 && !set_param(spec, "precision", "tf32")) return refuse(row->op, "has no precision");
    const bool scaled = v && strcmp(v->op, "matmul") == 0 && v->given;
    if (scaled) spec->given |= (uint16_t)v->given, shapes[KS_MATMUL_SCALE_A] = shapes[KS_MATMUL_SCALE_B] = "1";
    for (int i = ks_next_input(spec, -1); i >= 0; i = ks_next_input(spec, i)) {
        if (!ks_dtype_find(dtype, strlen(dtype), &spec->in[i].dtype)) return refuse(row->dtype, "no such datatype");
        if (scaled && i >= KS_MATMUL_SCALE_A) spec->in[i].dtype = KS_FP32;
        read_shape(shapes[i], &spec->in[i]);
        if (ks_tensor_measure(&spec->in[i], "INPUT", &error)) return refuse(row->label, error.text);
    }
    const bool whole =
        v && (strcmp(v->op, "search") == 0 || strcmp(v->op, "attention") == 0 || strcmp(v->op, "matmul") == 0);
    if (v && *row->parameters)
        add_second(v, row->second, spec);
    else if (v && !whole)
        (strcmp(v->op, "gather") == 0 ? add_places : add_rows)(v, spec);
    for (int i = 0; v && v->params[i]; i += 2)
        if (!set_param(spec, v->params[i], v->params[i + 1])) return refuse(row->op, "no such parameter");
    if (strcmp(row->op, "where") == 0) { /* the condition */
        spec->in[0].dtype = KS_BOOL;
        if (ks_tensor_measure(&spec->in[0], "INPUT0", &error)) return refuse(row->label, error.text);
    }
    ks_spec_layout(spec);
    if (*row->to && !set_param(spec, "out_datatype", row->to)) return refuse(row->to, "no such datatype");
    if (!named && !set_param(spec, "op", row->op)) return refuse(row->op, "no such operation");
    if (!set_params(spec, row->parameters)) return refuse(row->label, "no such parameter");
    if (*row->axis && !set_param(spec, "axis", row->axis)) return refuse(row->label, "no such axis");
    if (op->resolve(spec, &error)) return refuse(row->label, error.text);
    ks_spec_layout(spec);
    return NULL;
}

/* --- the device -------------------------------------------------------------------------------------------------- */

__global__ void ops_copy16(const uint4 *in, uint4 *out, size_t count)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = in[i];
}

/* Own kernel and the driver's copy: the best of all runs. */
static const char *measure_copy()
{
    unsigned char *memory = NULL;
    cudaEvent_t begin, end;
    TRY(cudaEventCreate(&begin));
    TRY(cudaEventCreate(&end));
    TRY(cudaMalloc(&memory, 2 * COPY_BYTES));
    TRY(cudaMemset(memory, 1, 2 * COPY_BYTES));
    for (int i = 0; i < COPIES; i++) {
        float ms = 0;
        TRY(cudaEventRecord(begin));
        if (i % 2)
            TRY(cudaMemcpyAsync(memory + COPY_BYTES, memory, COPY_BYTES, cudaMemcpyDeviceToDevice));
        else
            ops_copy16<<<library.chip.sms * 8, 512>>>((const uint4 *)memory, (uint4 *)(memory + COPY_BYTES),
                                                      COPY_BYTES / 16);
        TRY(cudaGetLastError());
        TRY(cudaEventRecord(end));
        TRY(cudaEventSynchronize(end));
        TRY(cudaEventElapsedTime(&ms, begin, end));
        const double gbs = 2.0 * (double)COPY_BYTES / ms / 1e6;
        if (gbs > library.copy_gbs) library.copy_gbs = gbs;
    }
    TRY(cudaFree(memory));
    TRY(cudaEventDestroy(begin));
    TRY(cudaEventDestroy(end));
    return NULL;
}

const char *ops_open(void)
{
    struct cudaDeviceProp has;
    TRY(cudaGetDeviceProperties(&has, 0));
    library.chip = (ks_chip){.capability = has.major * 10 + has.minor,
                             .sms = has.multiProcessorCount,
                             .threads_sm = has.maxThreadsPerMultiProcessor,
                             .registers_sm = has.regsPerMultiprocessor,
                             .ctas_sm = has.maxBlocksPerMultiProcessor,
                             .shared_sm = has.sharedMemPerMultiprocessor,
                             .shared_reserved = has.reservedSharedMemPerBlock,
                             .shared_optin = has.sharedMemPerBlockOptin,
                             .l2_bytes = (size_t)has.l2CacheSize,
                             .workspace_bytes = WORKSPACE_BYTES,
                             .clusters = {},
                             .launches_early = false,
                             .encode_tiled = NULL};
    TRY(cudaMalloc(&library.memory, CONTROL_BYTES + WORKSPACE_BYTES + KS_PAD));
    TRY(cudaMemset(library.memory, 0, CONTROL_BYTES + WORKSPACE_BYTES + KS_PAD));
    for (int i = 0; ks_cuda_ops[i]; i++)
        if (ks_cuda_ops[i]->setup(&library.chip, &library.error)) return library.error.text;
    return measure_copy();
}

double ops_copy_gbs(void)
{
    return library.copy_gbs;
}

/* --- one piece of work ------------------------------------------------------------------------------------------- */

static void use_plan(const ks_cuda_plan *plan, ops_work *out)
{
    out->kernel_info = plan->kernel_info;
    out->workspace_bytes = ks_align(plan->workspace_bytes);
    out->counters = plan->counters;
    memcpy(out->algorithm, plan->algorithm, sizeof out->algorithm);
}

const ks_chip *ops_chip(void)
{
    return &library.chip;
}

const char *ops_plan(const ops_row *row, ops_work *out)
{
    ks_spec spec;
    memset(out, 0, sizeof *out);
    const char *why = make_spec(row, &spec);
    return why ? why : ops_plan_spec(&spec, out);
}

const char *ops_plan_spec(const ks_spec *spec, ops_work *out)
{
    memset(out, 0, sizeof *out);
    ks_spec_copy(&out->spec, spec);
    const ks_cuda_op *op = ks_cuda_op_of(out->spec.op);
    ks_cuda_plan plan;
    memset(&plan, 0, sizeof plan);
    if (op->plan(&library.chip, &out->spec, &plan, &library.error)) return library.error.text;
    out->in_bytes = ks_align(ks_spec_in_bytes(&out->spec)) + KS_PAD;
    out->out_bytes = ks_align(ks_spec_out_bytes(&out->spec)) + KS_PAD;
    out->bytes = (double)(ks_spec_read_bytes(&out->spec) + ks_spec_written_bytes(&out->spec));
    out->flops = out->spec.flops;
    use_plan(&plan, out);
    return NULL;
}

long long ops_input_at(const ops_work *work, int input)
{
    return ks_has_input(&work->spec, input) ? (long long)work->spec.in[input].offset : -1;
}

long long ops_output_at(const ops_work *work, int output)
{
    return output < work->spec.outputs ? (long long)work->spec.out[output].offset : -1;
}

int ops_candidates(const ops_work *work, ks_algorithm *out, int most)
{
    const ks_cuda_op *op = ks_cuda_op_of(work->spec.op);
    return op->candidates ? op->candidates(&library.chip, &work->spec, out, most) : 0;
}

const char *ops_choose(ops_work *work, const ks_algorithm *algorithm)
{
    ks_cuda_plan plan;
    if (ks_cuda_op_of(work->spec.op)->adopt(&library.chip, &work->spec, algorithm, &plan, &library.error))
        return library.error.text;
    use_plan(&plan, work);
    return NULL;
}

const char *ops_launch(const ops_work *work, const void *in, void *out, void *stream)
{
    unsigned char *at = library.memory;
    const ks_site site = {.job_table = NULL,
                          .only = {.in = (const unsigned char *)in, .out = (unsigned char *)out},
                          .completion = (ks_completion *)(void *)at,
                          .ticket = (uint32_t *)(void *)(at + KS_ALIGNMENT),
                          .words = NULL, /* of mapped slots */
                          .shown = NULL,
                          .counters = (uint32_t *)(void *)(at + 2 * KS_ALIGNMENT),
                          .workspace = at + CONTROL_BYTES,
                          .workspace_stride = work->workspace_bytes,
                          .counters_stride = work->counters,
                          .node = 0,
                          .behind = false};
    return ks_cuda_op_of(work->spec.op)
                   ->launch(&library.chip, &work->spec, work->algorithm, site, 1, (cudaStream_t)stream, &library.error)
               ? library.error.text
               : NULL;
}
