/* Kernels alone, on device memory: time, GB/s or TFLOP/s, and the share of a device copy measured in the same run.
 *
 *   bench_ops [TEXT...]     only rows whose line contains every TEXT, such as: bench_ops softmax BF16
 *
 * Cold: a graph of many launches, each on another set of buffers, all sets together beyond three times the L2 cache.
 * Warm: the same launches on one set. A launch is what a lane launches for a copied request: the op's own planner, its
 * kernels with their stamps, so those are in the figures. GB/s
 * counts each input byte and each output byte once, whatever the kernel moves; TFLOP/s is 2MNK. Medians of the replays,
 * by events. Data: uniform in [-1, 1). Results are checked by the op tests, not here. */
#include "launch.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const cudaError_t code_ = (call);                                                                              \
        if (code_ != cudaSuccess) die(#call, cudaGetErrorString(code_));                                               \
    } while (0)

static const size_t SETS_BYTES = 300 << 20, WORKSPACE_BYTES = 32 << 20, COPY_BYTES = (size_t)2 << 30;
enum { SETS_MOST = 64, LAUNCHES_MOST = 48, REPLAYS_MOST = 15, REPLAYS_LEAST = 5 };

typedef struct row {
    const char *op, *dtype, *first, *second, *param, *value; /* shapes as "8x4096" */
} row;

typedef struct bench_op {
    const char *name;
    ks_cuda_setup_fn *setup;
    ks_cuda_plan_fn *plan;
    ks_cuda_launch_fn *launch;
} bench_op;

static const bench_op bench_ops[] = {
#define OP(name) {#name, ks_##name##_cuda_setup, ks_##name##_cuda_plan, ks_##name##_cuda_launch},
#include "ops.def"
#undef OP
};
enum { OPS = sizeof bench_ops / sizeof bench_ops[0] };

/* The measuring things of the run: opened once. */
typedef struct bench {
    ks_chip chip;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    ks_line *line;
    uint32_t *ticket, *counters;
    unsigned char *workspace;
    double copy_gbs;
} bench;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_ops: %s: %s\n", what, why);
    exit(1);
}

/* Uniform in [-1, 1) from a hash of the index, in the datatype's own bits; integers 0 .. 255. */
__global__ void fill(unsigned char *out, size_t count, int dtype, uint32_t seed)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u + seed;
        h = (h ^ h >> 16) * 0x85ebca6bu;
        h = (h ^ h >> 13) * 0xc2b2ae35u;
        const float value = (float)(h >> 8) * (2.0f / 16777216.0f) - 1.0f;
        const uint32_t bits = __float_as_uint(value);
        if (dtype == KS_FP32)
            ((float *)out)[i] = value;
        else if (dtype == KS_FP64)
            ((double *)out)[i] = value;
        else if (dtype == KS_BF16)
            ((uint16_t *)out)[i] = (uint16_t)(bits >> 16);
        else if (dtype == KS_FP16) /* truncated; magnitudes below 2^-14 become zero */
            ((uint16_t *)out)[i] =
                (uint16_t)(bits >> 16 & 0x8000) |
                ((bits & 0x7fffffff) < 0x38800000 ? 0 : (uint16_t)(((bits & 0x7fffffff) - 0x38000000) >> 13));
        else
            out[i] = (unsigned char)h;
    }
}

__global__ void copy16(const uint4 *in, uint4 *out, size_t count)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        out[i] = in[i];
}

static int compare(const void *left, const void *right)
{
    const float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static float elapsed_us(const bench *b)
{
    float ms = 0;
    CHECK(cudaEventSynchronize(b->end));
    CHECK(cudaEventElapsedTime(&ms, b->begin, b->end));
    return ms * 1000;
}

/* Own kernel and the driver's copy, the better of both: read + write bytes. */
static double measure_copy(bench *b)
{
    unsigned char *from = NULL, *to = NULL;
    float best = 1e30f;
    CHECK(cudaMalloc(&from, COPY_BYTES));
    CHECK(cudaMalloc(&to, COPY_BYTES));
    CHECK(cudaMemsetAsync(from, 1, COPY_BYTES, b->stream));
    for (int way = 0; way < 2; way++) {
        float times[REPLAYS_MOST];
        for (int i = 0; i < REPLAYS_MOST; i++) {
            CHECK(cudaEventRecord(b->begin, b->stream));
            if (way == 0)
                CHECK(cudaMemcpyAsync(to, from, COPY_BYTES, cudaMemcpyDeviceToDevice, b->stream));
            else
                copy16<<<b->chip.sms * 8, 512, 0, b->stream>>>((const uint4 *)from, (uint4 *)to, COPY_BYTES / 16);
            CHECK(cudaGetLastError());
            CHECK(cudaEventRecord(b->end, b->stream));
            times[i] = elapsed_us(b);
        }
        qsort(times, REPLAYS_MOST, sizeof times[0], compare);
        if (times[REPLAYS_MOST / 2] < best) best = times[REPLAYS_MOST / 2];
    }
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    return 2.0 * (double)COPY_BYTES / best / 1e3;
}

static void open_bench(bench *b)
{
    struct cudaDeviceProp has;
    CHECK(cudaGetDeviceProperties(&has, 0));
    b->chip = (ks_chip){.capability = has.major * 10 + has.minor,
                        .sms = has.multiProcessorCount,
                        .threads_sm = has.maxThreadsPerMultiProcessor,
                        .shared_sm = has.sharedMemPerMultiprocessor,
                        .shared_optin = has.sharedMemPerBlockOptin,
                        .l2_bytes = (size_t)has.l2CacheSize,
                        .workspace_bytes = WORKSPACE_BYTES};
    CHECK(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&b->begin));
    CHECK(cudaEventCreate(&b->end));
    CHECK(cudaMalloc(&b->line, sizeof(ks_line)));
    CHECK(cudaMemset(b->line, 0, sizeof(ks_line)));
    CHECK(cudaMalloc(&b->counters, KS_COUNTERS_MAX * sizeof(uint32_t)));
    CHECK(cudaMemset(b->counters, 0, KS_COUNTERS_MAX * sizeof(uint32_t)));
    CHECK(cudaMalloc(&b->ticket, KS_ALIGNMENT));
    CHECK(cudaMemset(b->ticket, 0, KS_ALIGNMENT));
    CHECK(cudaMalloc(&b->workspace, WORKSPACE_BYTES + KS_PAD));
    CHECK(cudaMemset(b->workspace, 0, WORKSPACE_BYTES + KS_PAD));
    ks_error error;
    for (int i = 0; i < OPS; i++)
        if (bench_ops[i].setup(&b->chip, &error)) die(bench_ops[i].name, error.text);
    b->copy_gbs = measure_copy(b);
    printf("%s, %d SMs, L2 %d MB; device copy %.0f GB/s (read + write)\n", has.name, has.multiProcessorCount,
           has.l2CacheSize >> 20, b->copy_gbs);
}

/* --- one row ---------------------------------------------------------------------------------------------------------
 */

static void parse_shape(const char *text, ks_tensor *out)
{
    out->rank = 0;
    for (const char *at = text; at && *at; at = strchr(at, 'x') ? strchr(at, 'x') + 1 : NULL)
        out->dims[out->rank++] = strtoll(at, NULL, 10);
}

static void set_param(ks_spec *spec, const char *name, const char *text)
{
    for (int i = 0; i < spec->op->params_count; i++) {
        const ks_param *param = &spec->op->params[i];
        if (strcmp(param->name, name) != 0) continue;
        memset(&spec->params[i], 0, sizeof spec->params[i]);
        if (param->kind == KS_PARAM_CHOICE) {
            while (param->choices[spec->params[i].i] && strcmp(param->choices[spec->params[i].i], text) != 0)
                spec->params[i].i++;
            if (!param->choices[spec->params[i].i]) die(text, "no such choice");
        } else if (param->kind == KS_PARAM_AXES) {
            spec->params[i].axes.count = 1;
            spec->params[i].axes.axis[0] = (int8_t)atoi(text);
        } else {
            spec->params[i].i = atoi(text);
        }
        return;
    }
    die(name, "no such parameter");
}

static void make_spec(const row *r, ks_spec *spec)
{
    ks_error error;
    ks_spec_init(spec, ks_op_find(r->op, strlen(r->op)));
    const char *shapes[KS_INPUTS_MAX] = {r->first, r->second, NULL};
    for (int i = 0; i < spec->inputs; i++) {
        if (!ks_dtype_find(r->dtype, strlen(r->dtype), &spec->in[i].dtype)) die(r->dtype, "no such datatype");
        parse_shape(shapes[i], &spec->in[i]);
        if (ks_tensor_measure(&spec->in[i], "INPUT", &error)) die(r->op, error.text);
    }
    ks_spec_layout(spec);
    if (r->param) set_param(spec, "op", r->param);
    if (r->value) set_param(spec, "axis", r->value);
    if (spec->op->resolve(spec, &error)) die(r->op, error.text);
}

typedef struct work {
    const bench_op *op;
    ks_spec spec;
    ks_cuda_plan plan;
    size_t in_bytes, set_bytes;
    int sets;
    unsigned char *memory;
} work;

/* false: the planner refuses. Takes the sets' memory, fills the inputs. */
static bool open_work(bench *b, const row *r, work *w)
{
    ks_error error;
    memset(w, 0, sizeof *w);
    for (int i = 0; i < OPS; i++)
        if (strcmp(bench_ops[i].name, r->op) == 0) w->op = &bench_ops[i];
    make_spec(r, &w->spec);
    if (w->op->plan(&b->chip, &w->spec, &w->plan, &error)) {
        printf("refused: %s\n", error.text);
        return false;
    }
    const ks_tensor *last = &w->spec.in[w->spec.inputs - 1];
    w->in_bytes = last->offset + ks_align(last->size_bytes) + KS_PAD;
    w->set_bytes = w->in_bytes + ks_align(w->spec.out.size_bytes) + KS_PAD;
    const size_t wanted = SETS_BYTES / w->set_bytes + 1;
    w->sets = wanted < 4 ? 4 : wanted > SETS_MOST ? (int)SETS_MOST : (int)wanted;
    CHECK(cudaMalloc(&w->memory, w->set_bytes * (size_t)w->sets));
    CHECK(cudaMemsetAsync(w->memory, 0, w->set_bytes * (size_t)w->sets, b->stream));
    for (int s = 0; s < w->sets; s++) {
        unsigned char *in = w->memory + w->set_bytes * (size_t)s;
        for (int i = 0; i < w->spec.inputs; i++) {
            const ks_tensor *t = &w->spec.in[i];
            fill<<<b->chip.sms * 4, 512, 0, b->stream>>>(in + t->offset, (size_t)ks_tensor_count(t), t->dtype,
                                                         (uint32_t)(s * 7919 + i * 104729));
            CHECK(cudaGetLastError());
        }
        CHECK(cudaStreamSynchronize(b->stream));
    }
    return true;
}

static void launch_set(bench *b, work *w, int set)
{
    ks_error error;
    unsigned char *in = w->memory + w->set_bytes * (size_t)set;
    const ks_site site = {.block = NULL,
                          .only = {.in = in, .out = in + w->in_bytes},
                          .line = b->line,
                          .ticket = b->ticket,
                          .counters = b->counters,
                          .workspace = b->workspace,
                          .workspace_stride = ks_align(w->plan.workspace_bytes),
                          .counters_stride = w->plan.counters};
    if (w->op->launch(&w->spec, w->plan.choice, site, 1, b->stream, &error)) die(w->op->name, error.text);
}

/* The median time of one launch within a graph of many. */
static double measure(bench *b, work *w, int sets)
{
    CHECK(cudaEventRecord(b->begin, b->stream));
    launch_set(b, w, 0);
    CHECK(cudaEventRecord(b->end, b->stream));
    elapsed_us(b); /* the first launch warms */
    CHECK(cudaEventRecord(b->begin, b->stream));
    for (int s = 0; s < w->sets; s++) launch_set(b, w, s);
    CHECK(cudaEventRecord(b->end, b->stream));
    const float guess = elapsed_us(b) / (float)w->sets;
    const int launches = guess > 5000 ? 4 : guess > 1000 ? 12 : LAUNCHES_MOST;
    const int replays = guess > 1000 ? REPLAYS_LEAST : REPLAYS_MOST;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++) launch_set(b, w, i % sets);
    CHECK(cudaStreamEndCapture(b->stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, b->stream));
    float times[REPLAYS_MOST];
    CHECK(cudaGraphLaunch(exec, b->stream));
    for (int i = 0; i < replays; i++) {
        CHECK(cudaEventRecord(b->begin, b->stream));
        CHECK(cudaGraphLaunch(exec, b->stream));
        CHECK(cudaEventRecord(b->end, b->stream));
        times[i] = elapsed_us(b) / (float)launches;
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    qsort(times, (size_t)replays, sizeof times[0], compare);
    return times[replays / 2];
}

static void run_row(bench *b, const row *r, const char *label)
{
    work w;
    printf("%-52s ", label);
    if (!open_work(b, r, &w)) return;
    const double cold = measure(b, &w, w.sets), warm = measure(b, &w, 1);
    double bytes = (double)w.spec.out.size_bytes;
    for (int i = 0; i < w.spec.inputs; i++) bytes += (double)w.spec.in[i].size_bytes;
    const double gbs = bytes / cold / 1e3;
    printf("%10.2f %10.2f %9.0f %6.1f%%", cold, warm, gbs, 100 * gbs / b->copy_gbs);
    if (r->second) printf(" %9.2f", w.spec.flops / cold / 1e6);
    printf("\n");
    fflush(stdout);
    CHECK(cudaStreamSynchronize(b->stream));
    CHECK(cudaFree(w.memory));
}

/* --- the table -------------------------------------------------------------------------------------------------------
 */

static const char *const dtypes[] = {"FP32", "BF16"};
static const char *const softmax_shapes[] = {"1x1024",     "64x1024",    "1024x1024",  "8192x1024", "8192x4096",
                                             "4096x32768", "256x131072", "16x1048576", "65536x128", "1048576x32"};
static const char *const reduce_ops[] = {"sum", "max", "argmax", "logsumexp"};
static const char *const reduce_shapes[][2] = {{"1x1024", "-1"},    {"1x1048576", "-1"},  {"1x268435456", "-1"},
                                               {"8192x4096", "-1"}, {"4096x32768", "-1"}, {"1048576x32", "-1"},
                                               {"8192x8192", "0"},  {"32x1048576", "0"}};
static const char *const matmul_shapes[][2] = {
    {"1x4096", "4096x4096"},    {"8x4096", "4096x4096"},    {"16x4096", "4096x4096"},   {"64x4096", "4096x4096"},
    {"128x128", "128x128"},     {"256x256", "256x256"},     {"512x512", "512x512"},     {"1024x1024", "1024x1024"},
    {"2048x2048", "2048x2048"}, {"4096x4096", "4096x4096"}, {"8192x8192", "8192x8192"}, {"64x65536", "65536x64"},
    {"1000x1000", "1000x1000"}, {"127x1023", "1023x4095"}};
#define COUNT(table) (int)(sizeof(table) / sizeof(table)[0])

static void consider(bench *b, const row *r, int count, char **wanted)
{
    char label[128];
    snprintf(label, sizeof label, "%s %s %s%s%s%s%s%s%s", r->op, r->dtype, r->first, r->second ? " * " : "",
             r->second ? r->second : "", r->param ? " " : "", r->param ? r->param : "", r->value ? " axis " : "",
             r->value ? r->value : "");
    for (int i = 0; i < count; i++)
        if (!strstr(label, wanted[i])) return;
    run_row(b, r, label);
}

int main(int argc, char **argv)
{
    static bench b;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        fprintf(stderr, "bench_ops: no CUDA device: skipped\n");
        return 77;
    }
    open_bench(&b);
    printf("%-52s %10s %10s %9s %7s %9s\n", "", "cold us", "warm us", "GB/s", "of copy", "TFLOP/s");
    for (int d = 0; d < COUNT(dtypes); d++)
        for (int s = 0; s < COUNT(softmax_shapes); s++) {
            const row r = {.op = "softmax",
                           .dtype = dtypes[d],
                           .first = softmax_shapes[s],
                           .second = NULL,
                           .param = NULL,
                           .value = NULL};
            consider(&b, &r, argc - 1, argv + 1);
        }
    for (int d = 0; d < COUNT(dtypes); d++)
        for (int o = 0; o < COUNT(reduce_ops); o++)
            for (int s = 0; s < COUNT(reduce_shapes); s++) {
                const row r = {.op = "reduce",
                               .dtype = dtypes[d],
                               .first = reduce_shapes[s][0],
                               .second = NULL,
                               .param = reduce_ops[o],
                               .value = reduce_shapes[s][1]};
                consider(&b, &r, argc - 1, argv + 1);
            }
    for (int d = 0; d < COUNT(dtypes); d++)
        for (int s = 0; s < COUNT(matmul_shapes); s++) {
            const row r = {.op = "matmul",
                           .dtype = dtypes[d],
                           .first = matmul_shapes[s][0],
                           .second = matmul_shapes[s][1],
                           .param = NULL,
                           .value = NULL};
            consider(&b, &r, argc - 1, argv + 1);
        }
    return 0;
}
