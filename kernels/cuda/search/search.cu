/* search on the GPU: the launches that plan.cu has chosen, and what is set once for a device. */
#include "cuda/search/merge.cuh"
#include "cuda/search/plan.h"

static cudaError_t go_by_datatype(const search_launch &go)
{
    switch (go.dtype) {
    case KS_FP16:
        return search_go_fp16(go);
    case KS_BF16:
        return search_go_bf16(go);
    default:
        return search_go_fp32(go);
    }
}

/* What parts have left: a query each CTA. */
static cudaError_t go_over_left(void (*kernel)(ks_site, search_shape, topk_shape), const search_launch &go)
{
    const int64_t ctas = go.s.queries < KS_GRID_MAX ? go.s.queries : (int64_t)KS_GRID_MAX;
    const dim3 grid((unsigned)(ctas ? ctas : 1), (unsigned)go.bucket);
    topk_shape best = {};
    best.k = go.s.k;
    best.slack = (uint32_t)search_merge_slack(go.s.k);
    return ks_launch(kernel, grid, SEARCH_MERGE_THREADS, (size_t)go.c.merge_shared_bytes, false, go.stream, go.site,
                     go.s, best);
}

/* The first rows by themselves, if there are any, and those behind them. */
static cudaError_t go_all(search_launch &go)
{
    if (go.s.first) {
        go.s.leaves_all = true;
        const cudaError_t status = go_by_datatype(go);
        if (status != cudaSuccess || go.s.first == go.s.part) return status;
        go.s.leaves_all = false;
        go.s.bounded = true;
        const cudaError_t bound = ks_noting ? cudaSuccess : go_over_left(search_bound, go);
        if (bound != cudaSuccess) return bound;
    }
    return go_by_datatype(go);
}

/* ks_cuda_launch_fn. Of all kernels the last stream does the work. */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    (void)algorithm; /* a family's is of its most queries */
    search_launch go = search_launch_of(spec, search_algorithm_of(chip, spec));
    go.site = site;
    go.bucket = bucket;
    go.stream = stream;
    cudaError_t status = go_all(go);
    if (status == cudaSuccess && !ks_noting) status = go_over_left(search_merge, go);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError(); /* taken: reported here */
    return ks_fail(error, KS_DEVICE, "search: launch failed: %s", cudaGetErrorString(status));
}

/* ks_cuda_setup_fn */
static ks_status cuda_setup(ks_chip *chip, ks_error *error)
{
    const int bytes = (int)chip->shared_optin - SEARCH_STATIC_BYTES;
    cudaError_t status = search_allow_fp32(bytes);
    if (status == cudaSuccess) status = search_allow_fp16(bytes);
    if (status == cudaSuccess) status = search_allow_bf16(bytes);
    if (status == cudaSuccess) return KS_OK;
    cudaGetLastError();
    return ks_fail(error, KS_DEVICE, "search: cannot set its kernels' shared memory: %s", cudaGetErrorString(status));
}

extern const ks_cuda_op ks_search_cuda;
const ks_cuda_op ks_search_cuda = {.setup = cuda_setup,
                                   .plan = search_plan,
                                   .launch = cuda_launch,
                                   .join = search_join,
                                   .candidates = NULL,
                                   .adopt = NULL,
                                   .revision = NULL,
                                   .starts_anywhere = NULL};
