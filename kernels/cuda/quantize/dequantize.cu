/* dequantize on the GPU: its kernel, which multiplies by scales that are given, and its launches. */
#include "cuda/quantize/elements.cuh"

template <class T, int INDEX>
__device__ __forceinline__ void dequantize_vector(const quantize_shape &s, const float *scales,
                                                  const uint32_t (&words)[ks_vector<T>::length / 4], int64_t v,
                                                  unsigned char *out)
{
    constexpr int E = ks_vector<T>::length;
    float x[E], of[E];
    ks_vector<T> y;
    quantize_decode(words, s.from, x);
    if constexpr (INDEX == QUANTIZE_BY_TENSOR || INDEX == QUANTIZE_BY_ROW) {
        const float one = quantize_scale_of<INDEX>(s, scales, v * E);
#pragma unroll
        for (int e = 0; e < E; e++) of[e] = one;
    } else {
        quantize_scales_of<INDEX>(s, scales, v * E, of);
    }
#pragma unroll
    for (int e = 0; e < E; e++) y.element[e] = ks_round<T>(x[e] * of[e]);
    ks_store_vector(out, v, y, v * E, s.count);
}

template <class T, int INDEX>
__global__ void __launch_bounds__(QUANTIZE_THREADS)
    dequantize_apply(ks_site site, const __grid_constant__ quantize_shape s)
{
    constexpr int E = ks_vector<T>::length;
    const int64_t vectors = (s.count + E - 1) / E, step = (int64_t)gridDim.x * blockDim.x;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const float *const scales = (const float *)(const void *)(job.in + s.given_at);
    const uint32_t *const in = (const uint32_t *)(const void *)(job.in + s.in);
    quantize_take_scales(site, s, scales, NULL);
#pragma unroll 1
    for (int64_t v = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; v < vectors; v += QUANTIZE_FLIGHT * step) {
        uint32_t words[QUANTIZE_FLIGHT][E / 4];
#pragma unroll
        for (int u = 0; u < QUANTIZE_FLIGHT; u++)
            if (v + u * step < vectors) {
                words[u][0] = in[(v + u * step) * (E / 4)];
                if constexpr (E == 8) words[u][1] = in[(v + u * step) * 2 + 1];
            }
#pragma unroll
        for (int u = 0; u < QUANTIZE_FLIGHT; u++)
            if (v + u * step < vectors) dequantize_vector<T, INDEX>(s, scales, words[u], v + u * step, job.out + s.out);
    }
    ks_leave<true>(site);
}

template <class T>
static cudaError_t apply_as(const quantize_launch &go)
{
    switch (go.c.index) {
    case QUANTIZE_BY_TENSOR:
        return quantize_start(go, dequantize_apply<T, QUANTIZE_BY_TENSOR>, go.c.grid, go.c.threads);
    case QUANTIZE_BY_ROW:
        return quantize_start(go, dequantize_apply<T, QUANTIZE_BY_ROW>, go.c.grid, go.c.threads);
    case QUANTIZE_BY_COLUMN:
        return quantize_start(go, dequantize_apply<T, QUANTIZE_BY_COLUMN>, go.c.grid, go.c.threads);
    case QUANTIZE_BY_ANY_ROW:
        return quantize_start(go, dequantize_apply<T, QUANTIZE_BY_ANY_ROW>, go.c.grid, go.c.threads);
    default:
        return quantize_start(go, dequantize_apply<T, QUANTIZE_BY_ANY_COLUMN>, go.c.grid, go.c.threads);
    }
}

/* ks_cuda_launch_fn */
static ks_status cuda_launch(const ks_chip *chip, const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                             cudaStream_t stream, ks_error *error)
{
    (void)chip;
    const quantize_launch go = quantize_launch_of(spec, algorithm, site, bucket, stream);
    const cudaError_t status = go.s.to == KS_FP32   ? apply_as<float>(go)
                               : go.s.to == KS_FP16 ? apply_as<__half>(go)
                                                    : apply_as<__nv_bfloat16>(go);
    return quantize_launched(spec, status, error);
}

extern const ks_cuda_op ks_dequantize_cuda;
const ks_cuda_op ks_dequantize_cuda = {.setup = quantize_setup,
                                       .plan = quantize_plan,
                                       .launch = cuda_launch,
                                       .join = NULL,
                                       .candidates = NULL,
                                       .adopt = NULL,
                                       .revision = NULL,
                                       .starts_anywhere = NULL};
