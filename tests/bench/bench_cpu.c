/* The references on the CPU, one thread, measured against that thread's memory traffic.
 *
 *   bench_cpu [WORD...]      only the rows whose name holds one of the words
 *
 * A row reads its input once and writes its output once: GB/s counts both, as memcpy's does. `ratio` is the time over
 * twice the time that memcpy takes for as many bytes: the bound is 1. memcpy is measured again before every row and the
 * best of all is taken, because a shared machine has slow moments.
 *
 * Above 1 stay: exponentials for elements of two bytes, or two for every element (an axis whose columns do not fit the
 * cache is read twice, and its exponentials are made twice rather than kept); FP16 and BF16 elsewhere, which are
 * converted in a pass of their own; FP64, read three times; rows of a few elements, whose maximum and logarithm cost
 * more than their elements; and single bytes, which are widened to 64 bits before they are added. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernserve/op.h"
#include "cpu/reference.h"
#include "ops/gather.h"
#include "ops/histogram/histogram.h"
#include "ops/map.h"
#include "ops/norm.h"
#include "ops/scan.h"
#include "ops/topk/topk.h"

enum { SOFTMAX_AXIS, SOFTMAX_LOG };
enum { REDUCE_OP, REDUCE_AXIS };
enum { SUM, MEAN, MAX, MIN, PROD, ARGMAX, ARGMIN, L2NORM, LOGSUMEXP, VAR, STD, SUMSQ, L1NORM, LOGSUM, NORM, ANY };
enum { MAP = 1000 };
enum { REPEATS_LEAST = 3, REPEATS_MOST = 200 };
static const int64_t ENOUGH_NS = 150000000;
static const size_t COPY_BYTES = (size_t)64 << 20;

typedef struct row {
    const char *name;
    /* of reduce; -1: softmax, -2: log-softmax; NORM_...: one of norms[]; MAP and a function of map; TOPK(k); SCAN and its op; HISTOGRAM(bins);
     * GATHER_...: dims are rows, columns, indices */
    int op;
    ks_dtype dtype;
    int axis;
    int64_t dims[3]; /* 0: no such dimension */
} row;

enum { GATHER_SLICES = -30, GATHER_BAGS, GATHERS_END };
enum { BAG_INDICES = 16 };

/* Norms over the last axis: inputs beside x, as bits. */
enum { NORM_LAYER = -10, NORM_RMS, NORM_BIAS_GELU, NORM_ADD_RMS, NORMS_END };
static const struct {
    ks_norm_kind kind;
    ks_activation activation;
    unsigned given;
    bool sum_out;
} norms[] = {
    {KS_NORM_LAYER, KS_ACTIVATION_NONE, 1u << KS_NORM_WEIGHT | 1u << KS_NORM_BIAS, false},
    {KS_NORM_RMS, KS_ACTIVATION_NONE, 1u << KS_NORM_WEIGHT, false},
    {KS_NORM_LAYER, KS_ACTIVATION_GELU, 1u << KS_NORM_WEIGHT | 1u << KS_NORM_BIAS | 1u << KS_NORM_PRE_BIAS, false},
    {KS_NORM_RMS, KS_ACTIVATION_NONE, 1u << KS_NORM_WEIGHT | 1u << KS_NORM_RESIDUAL, true}};

#define TOPK(k) (-1000 - (k))
enum { SCAN = -100, SCANS_END = SCAN + KS_SCAN_OPS };
#define HISTOGRAM(bins) (-100000 - (bins))

static const row rows[] = {
    {"softmax fp32 rows of 4096", -1, KS_FP32, 1, {4096, 4096, 0}},
    {"softmax fp32 rows of 1024", -1, KS_FP32, 1, {16384, 1024, 0}},
    {"softmax fp32 rows of 64", -1, KS_FP32, 1, {262144, 64, 0}},
    {"softmax fp32 rows of 10", -1, KS_FP32, 1, {1600000, 10, 0}},
    {"softmax fp32 one row", -1, KS_FP32, 0, {1 << 24, 0, 0}},
    {"softmax fp32 axis 0", -1, KS_FP32, 0, {4096, 4096, 0}},
    {"softmax fp32 middle axis", -1, KS_FP32, 1, {64, 64, 4096}},
    {"softmax fp32 inner 4", -1, KS_FP32, 1, {4096, 1024, 4}},
    {"log-softmax fp32 rows of 1024", -2, KS_FP32, 1, {16384, 1024, 0}},
    {"softmax fp16 rows of 1024", -1, KS_FP16, 1, {16384, 1024, 0}},
    {"softmax fp16 axis 0", -1, KS_FP16, 0, {4096, 4096, 0}},
    {"softmax bf16 rows of 1024", -1, KS_BF16, 1, {16384, 1024, 0}},
    {"softmax fp64 rows of 1024", -1, KS_FP64, 1, {8192, 1024, 0}},
    {"softmax fp64 axis 0", -1, KS_FP64, 0, {1024, 8192, 0}},
    {"sum fp32 rows of 4096", SUM, KS_FP32, 1, {4096, 4096, 0}},
    {"sum fp32 rows of 64", SUM, KS_FP32, 1, {262144, 64, 0}},
    {"sum fp32 rows of 10", SUM, KS_FP32, 1, {1600000, 10, 0}},
    {"sum fp32 axis 0", SUM, KS_FP32, 0, {4096, 4096, 0}},
    {"sum fp32 all", SUM, KS_FP32, 0, {1 << 24, 0, 0}},
    {"mean fp32 axis 0 of 8", MEAN, KS_FP32, 0, {1 << 21, 8, 0}},
    {"l2norm fp32 rows of 1024", L2NORM, KS_FP32, 1, {16384, 1024, 0}},
    {"prod fp32 rows of 1024", PROD, KS_FP32, 1, {16384, 1024, 0}},
    {"max fp32 rows of 4096", MAX, KS_FP32, 1, {4096, 4096, 0}},
    {"max fp32 rows of 64", MAX, KS_FP32, 1, {262144, 64, 0}},
    {"max fp32 axis 0", MAX, KS_FP32, 0, {4096, 4096, 0}},
    {"argmax fp32 rows of 4096", ARGMAX, KS_FP32, 1, {4096, 4096, 0}},
    {"argmax fp32 rows of 64", ARGMAX, KS_FP32, 1, {262144, 64, 0}},
    {"argmax fp32 axis 0", ARGMAX, KS_FP32, 0, {4096, 4096, 0}},
    {"logsumexp fp32 rows of 4096", LOGSUMEXP, KS_FP32, 1, {4096, 4096, 0}},
    {"logsumexp fp32 rows of 64", LOGSUMEXP, KS_FP32, 1, {262144, 64, 0}},
    {"logsumexp fp32 axis 0", LOGSUMEXP, KS_FP32, 0, {4096, 4096, 0}},
    {"sum fp16 rows of 4096", SUM, KS_FP16, 1, {4096, 4096, 0}},
    {"sum fp16 axis 0", SUM, KS_FP16, 0, {4096, 4096, 0}},
    {"max bf16 rows of 4096", MAX, KS_BF16, 1, {4096, 4096, 0}},
    {"argmax fp16 rows of 4096", ARGMAX, KS_FP16, 1, {4096, 4096, 0}},
    {"logsumexp fp16 rows of 4096", LOGSUMEXP, KS_FP16, 1, {4096, 4096, 0}},
    {"sum fp64 rows of 4096", SUM, KS_FP64, 1, {2048, 4096, 0}},
    {"logsumexp fp64 rows of 4096", LOGSUMEXP, KS_FP64, 1, {2048, 4096, 0}},
    {"sum int32 rows of 4096", SUM, KS_INT32, 1, {4096, 4096, 0}},
    {"sum int8 rows of 4096", SUM, KS_INT8, 1, {8192, 4096, 0}},
    {"argmax int64 rows of 4096", ARGMAX, KS_INT64, 1, {2048, 4096, 0}},
    {"var fp32 rows of 4096", VAR, KS_FP32, 1, {4096, 4096, 0}},
    {"var fp32 axis 0", VAR, KS_FP32, 0, {4096, 4096, 0}},
    {"var fp32 all", VAR, KS_FP32, 0, {1 << 24, 0, 0}},
    {"var fp64 rows of 4096", VAR, KS_FP64, 1, {2048, 4096, 0}},
    {"l1norm fp32 rows of 4096", L1NORM, KS_FP32, 1, {4096, 4096, 0}},
    {"any fp32 rows of 4096", ANY, KS_FP32, 1, {4096, 4096, 0}},
    {"any fp32 axis 0", ANY, KS_FP32, 0, {4096, 4096, 0}},
    {"any int8 rows of 4096", ANY, KS_INT8, 1, {8192, 4096, 0}},
    {"layer norm fp32 rows of 4096", NORM_LAYER, KS_FP32, 1, {4096, 4096, 0}},
    {"layer norm fp32 rows of 128", NORM_LAYER, KS_FP32, 1, {131072, 128, 0}},
    {"layer norm bf16 rows of 4096", NORM_LAYER, KS_BF16, 1, {4096, 4096, 0}},
    {"layer norm fp16 rows of 1000", NORM_LAYER, KS_FP16, 1, {16384, 1000, 0}},
    {"layer norm fp64 rows of 1024", NORM_LAYER, KS_FP64, 1, {8192, 1024, 0}},
    {"rms norm fp32 rows of 4096", NORM_RMS, KS_FP32, 1, {4096, 4096, 0}},
    {"rms norm bf16 rows of 128", NORM_RMS, KS_BF16, 1, {131072, 128, 0}},
    {"bias, layer norm, gelu fp32", NORM_BIAS_GELU, KS_FP32, 1, {4096, 4096, 0}},
    {"bias, layer norm, gelu bf16", NORM_BIAS_GELU, KS_BF16, 1, {4096, 4096, 0}},
    {"residual, rms norm fp32", NORM_ADD_RMS, KS_FP32, 1, {4096, 4096, 0}},
    {"residual, rms norm bf16", NORM_ADD_RMS, KS_BF16, 1, {4096, 4096, 0}},
    {"map fp32 add", MAP + KS_MAP_ADD, KS_FP32, 0, {1 << 24, 0, 0}},
    {"map fp32 relu", MAP + KS_MAP_RELU, KS_FP32, 0, {1 << 24, 0, 0}},
    {"map fp32 exp", MAP + KS_MAP_EXP, KS_FP32, 0, {1 << 24, 0, 0}},
    {"map fp32 log", MAP + KS_MAP_LOG, KS_FP32, 0, {1 << 24, 0, 0}},
    {"map fp32 gelu", MAP + KS_MAP_GELU, KS_FP32, 0, {1 << 24, 0, 0}},
    {"map fp32 fma", MAP + KS_MAP_FMA, KS_FP32, 0, {1 << 24, 0, 0}},
    {"map fp32 lt", MAP + KS_MAP_LT, KS_FP32, 0, {1 << 24, 0, 0}},
    {"map bf16 add", MAP + KS_MAP_ADD, KS_BF16, 0, {1 << 24, 0, 0}},
    {"map bf16 gelu", MAP + KS_MAP_GELU, KS_BF16, 0, {1 << 24, 0, 0}},
    {"map fp16 silu", MAP + KS_MAP_SILU, KS_FP16, 0, {1 << 24, 0, 0}},
    {"map fp64 add", MAP + KS_MAP_ADD, KS_FP64, 0, {1 << 23, 0, 0}},
    {"map int8 add", MAP + KS_MAP_ADD, KS_INT8, 0, {1 << 26, 0, 0}},
    {"map int32 mul", MAP + KS_MAP_MUL, KS_INT32, 0, {1 << 24, 0, 0}},
    {"map fp32 cast to bf16", MAP + KS_MAP_CAST, KS_FP32, 0, {1 << 24, 0, 0}},
    {"topk 50 fp32 rows of 128256", TOPK(50), KS_FP32, 1, {64, 128256, 0}},
    {"topk 50 bf16 rows of 128256", TOPK(50), KS_BF16, 1, {64, 128256, 0}},
    {"topk 10 fp32 one row", TOPK(10), KS_FP32, 0, {1 << 24, 0, 0}},
    {"topk 10 fp32 rows of 1000", TOPK(10), KS_FP32, 1, {16384, 1000, 0}},
    {"topk 2048 fp32 rows of 131072", TOPK(2048), KS_FP32, 1, {64, 131072, 0}},
    {"topk 10 fp64 rows of 4096", TOPK(10), KS_FP64, 1, {2048, 4096, 0}},
    {"topk 10 int8 rows of 4096", TOPK(10), KS_INT8, 1, {8192, 4096, 0}},
    {"topk 10 fp32 axis 0", TOPK(10), KS_FP32, 0, {4096, 4096, 0}},
    {"scan sum fp32 rows of 4096", SCAN + KS_SCAN_SUM, KS_FP32, 1, {4096, 4096, 0}},
    {"scan sum fp32 one row", SCAN + KS_SCAN_SUM, KS_FP32, 0, {1 << 24, 0, 0}},
    {"scan sum fp32 axis 0", SCAN + KS_SCAN_SUM, KS_FP32, 0, {4096, 4096, 0}},
    {"scan sum fp32 axis 0 of 2", SCAN + KS_SCAN_SUM, KS_FP32, 0, {1 << 23, 2, 0}},
    {"scan sum fp32 rows of 64", SCAN + KS_SCAN_SUM, KS_FP32, 1, {262144, 64, 0}},
    {"scan sum bf16 rows of 4096", SCAN + KS_SCAN_SUM, KS_BF16, 1, {4096, 4096, 0}},
    {"scan sum fp64 rows of 4096", SCAN + KS_SCAN_SUM, KS_FP64, 1, {2048, 4096, 0}},
    {"scan sum int32 rows of 4096", SCAN + KS_SCAN_SUM, KS_INT32, 1, {4096, 4096, 0}},
    {"scan max fp32 rows of 4096", SCAN + KS_SCAN_MAX, KS_FP32, 1, {4096, 4096, 0}},
    {"scan logsumexp fp32 rows of 4096", SCAN + KS_SCAN_LOGSUMEXP, KS_FP32, 1, {1024, 4096, 0}},
    {"histogram 256 fp32", HISTOGRAM(256), KS_FP32, 0, {1 << 24, 0, 0}},
    {"histogram 10000 fp32", HISTOGRAM(10000), KS_FP32, 0, {1 << 24, 0, 0}},
    {"histogram 256 fp32 rows of 4096", HISTOGRAM(256), KS_FP32, 1, {4096, 4096, 0}},
    {"histogram 256 bf16", HISTOGRAM(256), KS_BF16, 0, {1 << 24, 0, 0}},
    {"histogram 256 uint8", HISTOGRAM(256), KS_UINT8, 0, {1 << 24, 0, 0}},
    {"gather slices of 4 KiB", GATHER_SLICES, KS_FP32, 0, {16384, 1024, 16384}},
    {"gather slices of 512 bytes", GATHER_SLICES, KS_FP32, 0, {131072, 128, 131072}},
    {"gather slices of 66 bytes", GATHER_SLICES, KS_BF16, 0, {200000, 33, 400000}},
    {"gather single fp32", GATHER_SLICES, KS_FP32, 0, {4194304, 1, 4194304}},
    {"gather bags fp32 of 128", GATHER_BAGS, KS_FP32, 0, {131072, 128, 131072}},
    {"gather bags bf16 of 128", GATHER_BAGS, KS_BF16, 0, {131072, 128, 131072}},
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *must(void *memory)
{
    if (memory) return memory;
    fprintf(stderr, "bench_cpu: no memory\n");
    exit(1);
}

/* The inputs beside x, whose dimensions are known, and the parameters. */
static void set_norm(const row *r, ks_spec *spec)
{
    const ks_tensor *x = &spec->in[0];
    const int n = r->op - NORM_LAYER;
    spec->given |= (uint16_t)norms[n].given;
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i))
        spec->in[i] =
            i == KS_NORM_RESIDUAL ? *x : (ks_tensor){.dtype = r->dtype, .rank = 1, .dims = {x->dims[x->rank - 1]}};
    spec->params[KS_NORM_KIND].i = norms[n].kind;
    spec->params[KS_NORM_ACTIVATION].i = norms[n].activation;
    spec->params[KS_NORM_SUM_OUT].i = norms[n].sum_out;
}

static void set_gather(const row *r, ks_spec *spec)
{
    spec->in[KS_GATHER_TABLE].rank = 2;
    spec->in[KS_GATHER_TABLE].dims[2] = 0;
    spec->in[KS_GATHER_INDICES] = (ks_tensor){.dtype = KS_INT64, .rank = 1, .dims = {r->dims[2]}};
    if (r->op != GATHER_BAGS) return;
    spec->in[KS_GATHER_OFFSETS] = (ks_tensor){.dtype = KS_INT64, .rank = 1, .dims = {r->dims[2] / BAG_INDICES + 1}};
    spec->given |= 1u << KS_GATHER_OFFSETS;
}

/* Indices are random, and bags of equal length. */
static void fill_places(const ks_spec *spec, int input, int64_t *out)
{
    const int64_t count = ks_tensor_count(&spec->in[input]), extent = spec->in[KS_GATHER_TABLE].dims[0];
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out[i] = input == KS_GATHER_OFFSETS ? i * BAG_INDICES : (int64_t)((state >> 20) % (uint64_t)extent);
    }
}

/* As many inputs as the function takes, all like the first. */
static void set_map(const row *r, ks_spec *spec)
{
    static const int operands[] = {
#define X(name, text, count, kind, flops) count,
        KS_MAP_TABLE(X)
#undef X
    };
    const int function = r->op - MAP;
    spec->params[KS_MAP_OP].i = function;
    if (function == KS_MAP_CAST) spec->params[KS_MAP_OUT].i = KS_BF16 + 1;
    spec->given = (uint16_t)((1u << operands[function]) - 1);
    for (int i = ks_next_input(spec, 0); i >= 0; i = ks_next_input(spec, i)) spec->in[i] = spec->in[0];
}

static ks_spec spec_of(const row *r)
{
    const bool histogram = r->op < HISTOGRAM(0), topk = !histogram && r->op < TOPK(0),
               scan = !histogram && !topk && r->op < SCANS_END,
               gather = !histogram && !topk && !scan && r->op < GATHERS_END;
    const bool norm = !histogram && !topk && !scan && !gather && r->op < NORMS_END, map = r->op >= MAP;
    const bool softmax = !histogram && !topk && !scan && !gather && !norm && r->op < 0;
    const char *name = histogram ? "histogram"
                       : topk    ? "topk"
                       : scan    ? "scan"
                       : gather  ? "gather"
                       : norm    ? "norm"
                       : map     ? "map"
                       : softmax ? "softmax"
                                 : "reduce";
    const ks_op *op = ks_op_find(name, strlen(name));
    ks_spec spec;
    ks_error error;
    ks_spec_init(&spec, op);
    if (topk) {
        spec.params[KS_TOPK_K].i = TOPK(0) - r->op;
        spec.params[KS_TOPK_AXIS].i = r->axis;
    } else if (histogram) {
        spec.params[KS_HISTOGRAM_BINS].i = HISTOGRAM(0) - r->op;
        spec.params[KS_HISTOGRAM_AXIS].axes = (ks_axes){.count = 1, .axis = {-1}};
        if (ks_dtype_kind(r->dtype) == KS_KIND_FLOAT) {
            spec.params[KS_HISTOGRAM_MIN].d = -4;
            spec.params[KS_HISTOGRAM_MAX].d = 4;
        }
    } else if (scan) {
        spec.params[KS_SCAN_OP].i = r->op - SCAN;
        spec.params[KS_SCAN_AXIS].i = r->axis;
    } else if (softmax) {
        spec.params[SOFTMAX_AXIS].i = r->axis;
        spec.params[SOFTMAX_LOG].i = r->op == -2;
    } else if (!gather && !norm && !map) {
        spec.params[REDUCE_OP].i = r->op;
        spec.params[REDUCE_AXIS].axes = (ks_axes){.count = 1, .axis = {(int8_t)r->axis}};
    }
    spec.in[0].dtype = r->dtype;
    while (spec.in[0].rank < 3 && r->dims[spec.in[0].rank]) {
        spec.in[0].dims[spec.in[0].rank] = r->dims[spec.in[0].rank];
        spec.in[0].rank++;
    }
    if (norm) set_norm(r, &spec);
    if (map) set_map(r, &spec);
    if (gather) set_gather(r, &spec);
    if (op->resolve(&spec, &error) != KS_OK) {
        fprintf(stderr, "bench_cpu: %s: %s\n", r->name, error.text);
        exit(1);
    }
    ks_spec_layout(&spec);
    return spec;
}

/* Values from -4 to 4, roughly normal, in the bits of each float; integers get the state's bytes. */
static void fill(ks_dtype dtype, void *data, int64_t count)
{
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const double x = (double)((state & 0xFFFF) + (state >> 16 & 0xFFFF) + (state >> 32 & 0xFFFF)) / 24576 - 4;
        const float single = (float)x;
        uint32_t bits;
        memcpy(&bits, &single, sizeof bits);
        if (dtype == KS_FP32)
            ((float *)data)[i] = single;
        else if (dtype == KS_FP64)
            ((double *)data)[i] = x;
        else if (dtype == KS_BF16)
            ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        else if (dtype == KS_FP16)
            ((uint16_t *)data)[i] =
                (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 13 & 0x3FFFF) - (112u << 10)) & 0x7FFF));
        else
            memcpy((char *)data + (size_t)i * ks_dtype_size(dtype), &state, ks_dtype_size(dtype));
    }
}

static double copy_seconds_per_byte(void)
{
    static char *from, *to;
    if (!from) {
        from = must(malloc(COPY_BYTES));
        to = must(malloc(COPY_BYTES));
        memset(from, 1, COPY_BYTES);
        memset(to, 2, COPY_BYTES);
    }
    int64_t best = INT64_MAX;
    for (int i = 0; i < 4; i++) {
        const int64_t begin = now_ns();
        memcpy(to, from, COPY_BYTES);
        __asm__ volatile("" : : "r"(to) : "memory");
        const int64_t took = now_ns() - begin;
        if (took < best) best = took;
    }
    return (double)best * 1e-9 / (2 * (double)COPY_BYTES);
}

static double best_seconds(const ks_spec *spec, const void *const *in, void *const *out, void *scratch)
{
    int64_t best = INT64_MAX, spent = 0;
    for (int i = 0; i < REPEATS_MOST && (i < REPEATS_LEAST || spent < ENOUGH_NS); i++) {
        const int64_t begin = now_ns();
        ks_cpu_reference(spec, in, out, scratch);
        const int64_t took = now_ns() - begin;
        spent += took;
        if (took < best) best = took;
    }
    return (double)best * 1e-9;
}

static bool wanted(const char *name, int words, char **word)
{
    for (int i = 0; i < words; i++)
        if (strstr(name, word[i])) return true;
    return words == 0;
}

int main(int argc, char **argv)
{
    enum { COUNT = sizeof rows / sizeof *rows };
    double seconds[COUNT] = {0}, bytes[COUNT] = {0}, copy = INFINITY;
    for (int i = 0; i < COUNT; i++) {
        if (!wanted(rows[i].name, argc - 1, argv + 1)) continue;
        copy = fmin(copy, copy_seconds_per_byte());
        const ks_spec spec = spec_of(&rows[i]);
        void *in[KS_INPUTS_MAX] = {NULL}, *out[KS_OUTPUTS_MAX] = {NULL};
        void *scratch = must(malloc(ks_cpu_scratch_bytes(&spec)));
        for (int n = ks_next_input(&spec, -1); n >= 0; n = ks_next_input(&spec, n)) {
            in[n] = must(malloc(spec.in[n].size_bytes));
            if (spec.op->decides >> n & 1)
                fill_places(&spec, n, in[n]);
            else
                fill(rows[i].dtype, in[n], ks_tensor_count(&spec.in[n]));
        }
        for (int n = 0; n < spec.outputs; n++) {
            out[n] = must(malloc(spec.out[n].size_bytes));
            memset(out[n], 0xFF, spec.out[n].size_bytes);
        }
        seconds[i] = best_seconds(&spec, (const void *const *)in, out, scratch);
        bytes[i] = (double)(ks_spec_read_bytes(&spec) + ks_spec_written_bytes(&spec));
        free(scratch);
        for (int n = 0; n < KS_OUTPUTS_MAX; n++) free(out[n]);
        for (int n = 0; n < KS_INPUTS_MAX; n++) free(in[n]);
    }
    printf("memcpy of %zu MiB: %.1f GB/s, read and written, one thread\n", COPY_BYTES >> 20, 1e-9 / copy);
    printf("%-32s %9s %7s\n", "one thread", "GB/s", "ratio");
    for (int i = 0; i < COUNT; i++)
        if (seconds[i] > 0)
            printf("%-32s %9.1f %7.2f\n", rows[i].name, bytes[i] * 1e-9 / seconds[i],
                   seconds[i] / (2 * bytes[i] * copy));
    return 0;
}
