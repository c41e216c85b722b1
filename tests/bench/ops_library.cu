#include "ops_library.h"
#include "cuda/op.h"

#include <string.h>

static const size_t WORKSPACE_BYTES = 64 << 20, COPY_BYTES = (size_t)2 << 30;
enum { COPIES = 20 };

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
    return ops_spec_of(row, &spec, &library.error) ? library.error.text : ops_plan_spec(&spec, out);
}

const char *ops_plan_spec(const ks_spec *spec, ops_work *out)
{
    memset(out, 0, sizeof *out);
    ks_spec_copy(&out->spec, spec);
    const ks_cuda_op *op = ks_cuda_op_of(out->spec.op);
    ks_cuda_plan plan;
    memset(&plan, 0, sizeof plan);
    if (op->plan(&library.chip, &out->spec, &plan, &library.error)) return library.error.text;
    ops_measure(out);
    use_plan(&plan, out);
    return NULL;
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
                          .steps = 0,
                          .node = 0,
                          .ticket = (uint32_t *)(void *)(at + KS_ALIGNMENT),
                          .words = NULL, /* of mapped slots */
                          .shown = NULL,
                          .counters = (uint32_t *)(void *)(at + 2 * KS_ALIGNMENT),
                          .workspace = at + CONTROL_BYTES,
                          .workspace_stride = work->workspace_bytes,
                          .counters_stride = work->counters,
                          .behind = false};
    return ks_cuda_op_of(work->spec.op)
                   ->launch(&library.chip, &work->spec, work->algorithm, site, 1, (cudaStream_t)stream, &library.error)
               ? library.error.text
               : NULL;
}
