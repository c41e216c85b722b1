/* Affine on the GPU: a thread takes an element, then the one a grid further on. */
#include "cuda/op.h"

#include <stdio.h>

enum { THREADS = 256 };

typedef struct affine_algorithm {
    int grid;
} affine_algorithm;

__global__ void __launch_bounds__(THREADS) affine(ks_site site, size_t offset, int64_t count, float scale, float shift)
{
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const float *in = (const float *)(job.in + offset);
    float *out = (float *)job.out;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS)
        out[i] = fmaf(scale, in[i], shift);
    ks_leave(site);
}

/* ks_cuda_plan_fn */
static ks_status affine_plan(const ks_chip *, const ks_spec *spec, ks_cuda_plan *out, ks_error *)
{
    const int64_t grid = (ks_tensor_count(&spec->in[0]) + THREADS - 1) / THREADS;
    const affine_algorithm c = {.grid = (int)(grid < 1 ? 1 : grid < KS_GRID_MAX ? grid : (int64_t)KS_GRID_MAX)};
    out->once = true;
    out->batch_max = (int)KS_BATCH_MAX;
    out->workspace_bytes = 0;
    out->counters = 0;
    snprintf(out->kernel_info.kernel, sizeof out->kernel_info.kernel, "affine");
    out->kernel_info.grid = c.grid;
    out->kernel_info.threads = THREADS;
    memcpy(out->algorithm, &c, sizeof c);
    return KS_OK;
}

/* ks_cuda_launch_fn */
static ks_status affine_launch(const ks_chip *, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                               cudaStream_t stream, ks_error *error)
{
    affine_algorithm c;
    memcpy(&c, algorithm, sizeof c);
    const ks_tensor *in = &spec->in[0];
    const cudaError_t status =
        ks_launch(affine, dim3((unsigned)c.grid, (unsigned)bucket), THREADS, 0, false, stream, site, in->offset,
                  (int64_t)ks_tensor_count(in), (float)spec->params[0].d, (float)spec->params[1].d);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError();
    return ks_fail(error, KS_DEVICE, "affine: launch failed: %s", cudaGetErrorString(status));
}

/* ks_cuda_setup_fn */
static ks_status affine_setup(ks_chip *, ks_error *)
{
    return KS_OK;
}

extern const ks_cuda_op ks_affine_cuda;
const ks_cuda_op ks_affine_cuda = {.setup = affine_setup,
                                   .plan = affine_plan,
                                   .launch = affine_launch,
                                   .candidates = NULL,
                                   .adopt = NULL,
                                   .revision = NULL,
                                   .starts_anywhere = NULL};
