/* The kernels that find scales, and those that use them. Maxima do not depend on an order, so no answer follows from how work is cut.
 *
 *   quantize_rows           a row by a part of a warp or by a CTA: its magnitude, its scale, its codes; up to QUANTIZE_HELD vectors a thread
 *                           stay in registers, what is longer is read again
 *   quantize_amax           the largest magnitude of each CTA's elements; quantize_apply joins them
 *   quantize_amax_rows      of a part of a row, where rows are few and long; quantize_fold joins them
 *   quantize_amax_columns   of each column, over a part of the rows; quantize_fold joins them and makes the scales
 *   quantize_apply          quotients, by scales that are there */
#ifndef KS_QUANTIZE_SCALE_CUH
#define KS_QUANTIZE_SCALE_CUH

#include "cuda/quantize/elements.cuh"

/* --- rows ------------------------------------------------------------------------------------------------------------ */

template <class T>
__device__ __forceinline__ void quantize_put(unsigned char *out, const ks_vector<T> &x, const quantize_shape &s,
                                             float inverse, const ks_row &at, int64_t v)
{
    constexpr int E = ks_vector<T>::length;
    float q[E];
    uint32_t words[E / 4];
#pragma unroll
    for (int e = 0; e < E; e++) q[e] = ks_math(x.element[e]) * inverse;
    quantize_encode(q, s.to, words);
    quantize_store<E>(out + (at.first + v) * E, words, v * E - at.skip, s.columns);
}

template <class T>
__global__ void __launch_bounds__(QUANTIZE_ROW_THREADS)
    quantize_rows(ks_site site, const __grid_constant__ quantize_shape s)
{
    constexpr int E = ks_vector<T>::length;
    __shared__ float shared[KS_WARPS_MAX];
    const int groups = blockDim.x / s.width, thread = threadIdx.x % s.width;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const unsigned char *in = job.in + s.in;
    unsigned char *const out = job.out + s.out;
#pragma unroll 1
    for (int64_t first = (int64_t)blockIdx.x * groups; first < s.rows; first += (int64_t)gridDim.x * groups) {
        const int64_t row = first + threadIdx.x / s.width;
        const ks_row at = ks_row_at<T>(row < s.rows ? row : 0, s.columns);
        const int64_t vectors = row < s.rows && s.columns ? at.vectors : 0;
        ks_vector<T> x[QUANTIZE_HELD];
        float most = 0;
#pragma unroll
        for (int u = 0; u < QUANTIZE_HELD; u++) {
            const int64_t v = thread + u * (int64_t)s.width;
            if (v < vectors) x[u] = ks_load_vector<T>(in, at.first + v);
        }
#pragma unroll
        for (int u = 0; u < QUANTIZE_HELD; u++) {
            const int64_t v = thread + u * (int64_t)s.width, begin = at.skip - v * E;
            if (v < vectors) most = quantize_largest(x[u], begin, begin + s.columns, most);
        }
#pragma unroll 4
        for (int64_t v = thread + (int64_t)QUANTIZE_HELD * s.width; v < vectors; v += s.width) {
            const int64_t begin = at.skip - v * E;
            most = quantize_largest(ks_load_vector<T>(in, at.first + v), begin, begin + s.columns, most);
        }
        most = ks_width_reduce(most, s.width, shared, quantize_maximum());
        const float scale = quantize_scale(most, s.most);
        const float inverse = 1.0f / scale;
        if (thread == 0 && row < s.rows) ((float *)(void *)(job.out + s.scales_at))[row] = scale;
#pragma unroll
        for (int u = 0; u < QUANTIZE_HELD; u++) {
            const int64_t v = thread + u * (int64_t)s.width;
            if (v < vectors) quantize_put(out, x[u], s, inverse, at, v);
        }
#pragma unroll 2
        for (int64_t v = thread + (int64_t)QUANTIZE_HELD * s.width; v < vectors; v += s.width)
            quantize_put(out, ks_load_vector<T>(in, at.first + v), s, inverse, at, v);
    }
    ks_leave<true>(site);
}

/* --- magnitudes of parts --------------------------------------------------------------------------------------------- */

template <class T>
__global__ void __launch_bounds__(QUANTIZE_THREADS)
    quantize_amax(ks_site site, const __grid_constant__ quantize_shape s)
{
    constexpr int E = ks_vector<T>::length;
    __shared__ float shared[KS_WARPS_MAX];
    const int64_t vectors = (s.count + E - 1) / E, step = (int64_t)gridDim.x * blockDim.x;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    float most = 0;
#pragma unroll 1
    for (int64_t v = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; v < vectors; v += QUANTIZE_FLIGHT * step) {
        ks_vector<T> x[QUANTIZE_FLIGHT];
#pragma unroll
        for (int u = 0; u < QUANTIZE_FLIGHT; u++)
            if (v + u * step < vectors) x[u] = ks_load_vector<T>(job.in + s.in, v + u * step);
#pragma unroll
        for (int u = 0; u < QUANTIZE_FLIGHT; u++)
            if (v + u * step < vectors) most = quantize_largest(x[u], 0, s.count - (v + u * step) * E, most);
    }
    most = ks_block_reduce(most, shared, quantize_maximum());
    if (threadIdx.x == 0) ((float *)(void *)ks_workspace(site))[blockIdx.x] = most;
}

/* Where the magnitudes of parts lie: of one part in the place of the scales. */
__device__ __forceinline__ float *quantize_parts(const ks_site &site, const quantize_shape &s, const ks_job_sides &job)
{
    return (float *)(void *)(s.parts > 1 ? ks_workspace(site) : job.out + s.scales_at);
}

template <class T>
__global__ void __launch_bounds__(QUANTIZE_THREADS)
    quantize_amax_rows(ks_site site, const __grid_constant__ quantize_shape s)
{
    constexpr int E = ks_vector<T>::length;
    __shared__ float shared[KS_WARPS_MAX];
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
#pragma unroll 1
    for (int64_t item = blockIdx.x; item < s.rows * s.parts; item += gridDim.x) {
        const int64_t part = item / s.rows, row = item - part * s.rows;
        const ks_row at = ks_row_at<T>(row, s.columns);
        const int64_t end = min((part + 1) * s.part, at.vectors);
        float most = 0;
#pragma unroll 4
        for (int64_t v = part * s.part + threadIdx.x; v < end; v += QUANTIZE_THREADS) {
            const int64_t begin = at.skip - v * E;
            most = quantize_largest(ks_load_vector<T>(job.in + s.in, at.first + v), begin, begin + s.columns, most);
        }
        most = ks_block_reduce(most, shared, quantize_maximum());
        if (threadIdx.x == 0) quantize_parts(site, s, job)[item] = most;
    }
}

/* A warp has 32 vectors of a row, or 32 elements where rows do not begin on 16 bytes; the warps of a CTA take rows in turn. */
template <class T, int E>
__global__ void __launch_bounds__(QUANTIZE_THREADS)
    quantize_amax_columns(ks_site site, const __grid_constant__ quantize_shape s)
{
    constexpr int WARPS = QUANTIZE_THREADS / KS_WARP;
    __shared__ float shared[WARPS][KS_WARP * E];
    const int warp = threadIdx.x / KS_WARP, thread = threadIdx.x % KS_WARP;
    const int64_t tiles = (s.columns + KS_WARP * E - 1) / (KS_WARP * E);
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const T *const in = (const T *)(const void *)(job.in + s.in);
#pragma unroll 1
    for (int64_t item = blockIdx.x; item < tiles * s.parts; item += gridDim.x) {
        const int64_t part = item / tiles, tile = item - part * tiles;
        const int64_t column = tile * (KS_WARP * E) + thread * E, end = min((part + 1) * s.part, s.rows);
        float most[E] = {};
        if (column < s.columns) {
#pragma unroll 4
            for (int64_t row = part * s.part + warp; row < end; row += WARPS) {
                if constexpr (E == 1) {
                    most[0] = fmaxf(most[0], quantize_magnitude(ks_math(in[row * s.columns + column])));
                } else {
                    const ks_vector<T> x = ks_load_vector<T>(in, (row * s.columns + column) / E);
#pragma unroll
                    for (int e = 0; e < E; e++) most[e] = fmaxf(most[e], quantize_magnitude(ks_math(x.element[e])));
                }
            }
        }
#pragma unroll
        for (int e = 0; e < E; e++) shared[warp][thread * E + e] = most[e];
        __syncthreads();
        for (int c = threadIdx.x; c < KS_WARP * E; c += QUANTIZE_THREADS) {
            float all = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) all = fmaxf(all, shared[w][c]);
            const int64_t at = tile * (KS_WARP * E) + c;
            if (at < s.columns) quantize_parts(site, s, job)[part * s.columns + at] = all;
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(QUANTIZE_THREADS)
    quantize_fold(ks_site site, const __grid_constant__ quantize_shape s)
{
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const float *const parts = quantize_parts(site, s, job);
    for (int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; c < s.scales;
         c += (int64_t)gridDim.x * blockDim.x) {
        float most = 0;
#pragma unroll 8
        for (int p = 0; p < s.parts; p++) most = fmaxf(most, parts[p * s.scales + c]);
        ((float *)(void *)(job.out + s.scales_at))[c] = quantize_scale(most, s.most);
    }
}

/* --- by scales ------------------------------------------------------------------------------------------------------- */

/* The tensor's scale, of the parts' magnitudes; the first CTA writes it. */
__device__ __forceinline__ float quantize_join(const ks_site &site, const quantize_shape &s, const ks_job_sides &job)
{
    __shared__ float shared[KS_WARPS_MAX];
    const float *const parts = (const float *)(const void *)ks_workspace(site);
    float most = 0;
    for (int p = threadIdx.x; p < s.parts; p += blockDim.x) most = fmaxf(most, parts[p]);
    const float scale = quantize_scale(ks_block_reduce(most, shared, quantize_maximum()), s.most);
    if (blockIdx.x == 0 && threadIdx.x == 0) *(float *)(void *)(job.out + s.scales_at) = scale;
    return scale;
}

template <class T, int INDEX>
__device__ __forceinline__ void quantize_vector(const quantize_shape &s, const float *scales, float one,
                                                const ks_vector<T> &x, int64_t v, unsigned char *out)
{
    constexpr int E = ks_vector<T>::length;
    float q[E];
    uint32_t words[E / 4];
    if constexpr (INDEX == QUANTIZE_BY_TENSOR || INDEX == QUANTIZE_BY_ROW) {
        const float inverse = INDEX == QUANTIZE_BY_ROW ? 1.0f / quantize_scale_of<INDEX>(s, scales, v * E) : one;
#pragma unroll
        for (int e = 0; e < E; e++) q[e] = ks_math(x.element[e]) * inverse;
    } else {
        quantize_scales_of<INDEX>(s, scales, v * E, q);
#pragma unroll
        for (int e = 0; e < E; e++) q[e] = ks_math(x.element[e]) * (1.0f / q[e]);
    }
    quantize_encode(q, s.to, words);
    quantize_store<E>(out + v * E, words, v * E, s.count);
}

template <class T, int INDEX>
__global__ void __launch_bounds__(QUANTIZE_THREADS)
    quantize_apply(ks_site site, const __grid_constant__ quantize_shape s)
{
    constexpr int E = ks_vector<T>::length;
    const int64_t vectors = (s.count + E - 1) / E, step = (int64_t)gridDim.x * blockDim.x;
    ks_job_sides job;
    if (!(s.given ? ks_enter(site, &job) : ks_enter_again(site, &job))) return;
    float *const made = (float *)(void *)(job.out + s.scales_at);
    const float *const scales = s.given ? (const float *)(const void *)(job.in + s.given_at) : made;
    float one = 1;
    if (s.given) quantize_take_scales(site, s, scales, made);
    if constexpr (INDEX == QUANTIZE_BY_TENSOR) one = 1.0f / (s.given ? scales[0] : quantize_join(site, s, job));
#pragma unroll 1
    for (int64_t v = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; v < vectors; v += QUANTIZE_FLIGHT * step) {
        ks_vector<T> x[QUANTIZE_FLIGHT];
#pragma unroll
        for (int u = 0; u < QUANTIZE_FLIGHT; u++)
            if (v + u * step < vectors) x[u] = ks_load_vector<T>(job.in + s.in, v + u * step);
#pragma unroll
        for (int u = 0; u < QUANTIZE_FLIGHT; u++)
            if (v + u * step < vectors) quantize_vector<T, INDEX>(s, scales, one, x[u], v + u * step, job.out + s.out);
    }
    ks_leave<true>(site);
}

#endif
