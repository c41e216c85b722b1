/* The kernels of histogram.
 *
 *   histogram_shared   counters in shared memory, copies for warps where bins are few; a row by one CTA, whose counters are the answer, by a
 *                      cluster, which adds its own, or by more CTAs, whose counters histogram_sum adds
 *   histogram_global   counters in the output, which histogram_clear has made zero: more bins than shared memory holds
 *
 * A thread joins equal neighbours among its elements before it counts them, so equal elements take few atomics. Counts are integers: no answer
 * follows from the order.
 *
 * Shapes   any. Elements are read once. */
#ifndef KS_HISTOGRAM_COUNT_CUH
#define KS_HISTOGRAM_COUNT_CUH

#include "cuda/common/ptx_mma.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/histogram/shape.cuh"

#include <type_traits>

/* --- bins ------------------------------------------------------------------------------------------------------------ */

/* As the reference rounds it: the product, and the sum. */
__device__ __forceinline__ double histogram_edge(const histogram_shape &s, int bin)
{
    return __dadd_rn(s.min, __dmul_rn((double)bin, s.width));
}

/* The last bin whose edge does not exceed x; -1: x is outside, or NaN. */
__device__ __forceinline__ int histogram_find(const histogram_shape &s, double x)
{
    if (!(x >= s.min && x <= s.max)) return -1;
    int bin = min((int)((x - s.min) * s.scale), s.bins - 1);
    while (bin > 0 && x < histogram_edge(s, bin)) bin--;
    while (bin + 1 < s.bins && x >= histogram_edge(s, bin + 1)) bin++;
    return bin;
}

/* Likewise, as code that is there once: of each element it would be so much that instructions came from memory meanwhile. */
static __device__ __attribute__((noinline)) int histogram_find_far(const histogram_shape &s, double x)
{
    return histogram_find(s, x);
}

/* Likewise, where FP32 cannot decide: at `edge`, the place of one, which decides; there is no other near it. NaN is near none. */
static __device__ __attribute__((noinline)) int histogram_find_near(const histogram_shape &s, float x, float edge)
{
    if (s.margin >= HISTOGRAM_MARGIN) return histogram_find(s, (double)x);
    if (!(edge >= 0 && edge <= (float)s.bins)) return -1;
    const int bin = (int)edge;
    const bool beyond =
        bin < s.bins ? (double)x >= histogram_edge(s, bin) : (double)x > s.max; /* max is in the last bin */
    return !beyond ? bin - 1 : bin < s.bins ? bin : -1;
}

/* Likewise, where edges are exact in FP32 (histogram_shape): the rounding error of the subtraction decides, if nothing else does. */
__device__ __forceinline__ int histogram_find_exact(const histogram_shape &s, float x, float edge, float beyond)
{
    if (!(edge >= 0 && edge <= (float)s.bins)) return -1;
    const float distance = x - s.near_min, taken = x - distance;
    const float lost = __fadd_rn(x - __fadd_rn(distance, taken), taken - s.near_min);
    const float above = beyond != 0 ? beyond : lost != 0 ? lost : edge == 0 ? distance : 0; /* so small a place is 0 */
    const int bin = (int)edge - (above < 0);
    if (bin < s.bins) return bin;
    return above > 0 ? -1 : s.bins - 1; /* max is in the last bin */
}

/* Likewise: FP32 decides where its errors cannot reach an edge. */
__device__ __forceinline__ int histogram_find(const histogram_shape &s, float x)
{
    const float place = (x - s.near_min) * s.near_scale, edge = rintf(place), beyond = place - edge;
    if (!(fabsf(beyond) > s.margin))
        return s.exact ? histogram_find_exact(s, x, edge, beyond) : histogram_find_near(s, x, edge);
    const float bin = edge - (beyond < 0 ? 1.0f : 0.0f);
    return bin >= 0 && bin < (float)s.bins ? (int)bin : -1;
}

template <class T>
__device__ __forceinline__ int histogram_bin(const histogram_shape &s, T x)
{
    if constexpr (!std::is_integral_v<T>) {
        return histogram_find(s, ks_math(x));
    } else {
        const uint64_t wide = ((uint64_t)x ^ s.sign) - s.sign;
        if (!s.ranged) return wide < (uint64_t)s.bins ? (int)wide : -1;
        return histogram_find_far(s, s.sign ? (double)(int64_t)wide : (double)wide);
    }
}

/* --- counting -------------------------------------------------------------------------------------------------------- */

/* Equal bins one behind the other, counted together. */
template <class Counter>
struct histogram_tally {
    Counter *counters;
    int bin;
    Counter count;
    __device__ __forceinline__ histogram_tally(Counter *counters_) : counters(counters_), bin(-1), count(0)
    {
    }
    __device__ __forceinline__ void flush()
    {
        if (bin >= 0) atomicAdd(counters + bin, count);
    }
    __device__ __forceinline__ void take(int next)
    {
        if (next != bin) {
            flush();
            bin = next;
            count = 0;
        }
        count++;
    }
};

/* Those elements of a vector that are the row's, from one on and in front of another. */
template <class T, class Counter>
__device__ __forceinline__ void histogram_vector(const histogram_shape &s, ks_vector<T> x, int from, int to,
                                                 histogram_tally<Counter> &tally)
{
    constexpr int E = ks_vector<T>::length, STEP = E > 8 ? 4 : E;
#pragma unroll 1
    for (int first = 0; first < E; first += STEP) {
#pragma unroll
        for (int e = 0; e < STEP; e++)
            if (first + e >= from && first + e < to) tally.take(histogram_bin(s, x.element[e]));
        if (STEP < E) x.raw = {x.raw.y, x.raw.z, x.raw.w, 0};
    }
}

/* The elements of a part of a row. The code of a vector is there once: of all vectors in flight it was 32 to 100 KB, and instructions of a
 * launch that has few elements come from far away. */
template <class T, class Counter>
__device__ __forceinline__ void histogram_part(const histogram_shape &s, const unsigned char *in, int64_t row,
                                               int64_t part, Counter *counters)
{
    constexpr int E = ks_vector<T>::length;
    const ks_row at = ks_row_at<T>(row, s.length);
    const int64_t end = min((part + 1) * s.part, at.vectors), last = at.vectors - 1;
    const int tail = (int)(s.length + at.skip - last * E); /* the end of the last vector */
    histogram_tally<Counter> tally(counters);
#pragma unroll 1
    for (int64_t v = part * s.part + threadIdx.x; v < end; v += HISTOGRAM_LOADS * blockDim.x) {
        ks_vector<T> x[HISTOGRAM_LOADS];
#pragma unroll
        for (int i = 0; i < HISTOGRAM_LOADS; i++)
            if (v + i * (int64_t)blockDim.x < end) x[i] = ks_load_vector<T>(in, at.first + v + i * (int64_t)blockDim.x);
#pragma unroll 1
        for (int64_t vector = v; vector < min(end, v + HISTOGRAM_LOADS * (int64_t)blockDim.x); vector += blockDim.x) {
            histogram_vector<T>(s, x[0], vector ? 0 : at.skip, vector < last ? E : tail, tally);
#pragma unroll
            for (int i = 1; i < HISTOGRAM_LOADS; i++) x[i - 1].raw = x[i].raw;
        }
    }
    tally.flush();
}

/* --- kernels --------------------------------------------------------------------------------------------------------- */

__device__ __forceinline__ void histogram_write_edges(const histogram_shape &s, const ks_job_sides &job)
{
    double *const edges = (double *)(void *)(job.out + s.edges_at);
    for (int64_t b = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; b <= s.bins; b += (int64_t)gridDim.x * blockDim.x)
        edges[b] = b == s.bins ? s.max : histogram_edge(s, (int)b);
}

/* The counters of the CTA's warps become the first copy. */
__device__ __forceinline__ void histogram_join_copies(const histogram_shape &s, uint32_t *counters)
{
    for (int b = threadIdx.x; b < s.bins; b += blockDim.x) {
        uint32_t count = counters[b];
#pragma unroll 4
        for (int c = 1; c < s.copies; c++) count += counters[c * s.bins + b];
        counters[b] = count;
    }
}

/* The parts of a row are a cluster: each of its CTAs adds the counters of every so manieth pair of bins. All of them stay until all are done. */
__device__ __forceinline__ void histogram_meet(const histogram_shape &s, const uint32_t *counters, int64_t *counts)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    const unsigned at = mm_shared_address(counters);
    mm_cluster_arrive();
    mm_cluster_wait();
    for (int b = 2 * (threadIdx.x * s.parts + (int)mm_cluster_rank()); b < s.bins; b += 2 * blockDim.x * s.parts) {
        float first[HISTOGRAM_CLUSTER], second[HISTOGRAM_CLUSTER]; /* bits of counters */
        uint64_t sum = 0, next = 0;
#pragma unroll
        for (int p = 0; p < HISTOGRAM_CLUSTER; p++)
            if (p < s.parts) mm_peer_load(first[p], second[p], mm_peer_address(at + 4 * (unsigned)b, (unsigned)p));
#pragma unroll
        for (int p = 0; p < HISTOGRAM_CLUSTER; p++) {
            sum += p < s.parts ? __float_as_uint(first[p]) : 0;
            next += p < s.parts ? __float_as_uint(second[p]) : 0;
        }
        counts[b] = (int64_t)sum;
        if (b + 1 < s.bins) counts[b + 1] = (int64_t)next;
    }
    mm_cluster_arrive_relaxed();
    mm_cluster_wait();
#endif
}

template <class T>
__global__ void __launch_bounds__(1024) histogram_shared(ks_site site, const __grid_constant__ histogram_shape s)
{
    uint32_t *const counters = (uint32_t *)ks_dynamic;
    const int mine = threadIdx.x / KS_WARP & (s.copies - 1);
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
#pragma unroll 1
    for (int64_t item = blockIdx.x; item < s.rows * s.parts; item += gridDim.x) {
        for (int b = threadIdx.x; b < s.copies * s.bins; b += blockDim.x) counters[b] = 0;
        __syncthreads();
        const int64_t row = item / s.parts;
        histogram_part<T>(s, job.in + s.in, row, item - row * s.parts, counters + mine * s.bins);
        __syncthreads();
        histogram_join_copies(s, counters);
        int64_t *const counts = (int64_t *)(void *)(job.out + s.counts) + row * s.bins;
        if (s.meets) {
            histogram_meet(s, counters, counts);
            break; /* a cluster has one row */
        }
        for (int b = threadIdx.x; b < s.bins; b += blockDim.x) {
            if (s.parts > 1)
                ((uint32_t *)(void *)ks_workspace(site))[item * s.bins + b] = counters[b];
            else
                counts[b] = counters[b];
        }
        __syncthreads();
    }
    if (s.parts > 1 && !s.meets) return; /* histogram_sum is the last one */
    if (s.edges) histogram_write_edges(s, job);
    ks_leave(site);
}

/* A warp's lanes have neighbouring counts, and each warp of the CTA a share of the parts: one thread alone would wait for memory as often as
 * there are parts for its loads in flight. */
__global__ void __launch_bounds__(HISTOGRAM_SUM_THREADS)
    histogram_sum(ks_site site, const __grid_constant__ histogram_shape s)
{
    constexpr int WARPS = HISTOGRAM_SUM_THREADS / KS_WARP;
    __shared__ int64_t sums[WARPS][KS_WARP];
    const uint32_t *const counts = (const uint32_t *)(const void *)ks_workspace(site);
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    for (int64_t first = (int64_t)blockIdx.x * KS_WARP; first < s.rows * s.bins;
         first += (int64_t)gridDim.x * KS_WARP) {
        const int64_t at = first + lane_id, row = at / s.bins, bin = at - row * s.bins;
        int64_t sum = 0;
        if (at < s.rows * s.bins)
#pragma unroll 8
            for (int p = warp; p < s.parts; p += WARPS) sum += counts[(row * s.parts + p) * s.bins + bin];
        sums[warp][lane_id] = sum;
        __syncthreads();
        if (warp == 0 && at < s.rows * s.bins) {
#pragma unroll
            for (int w = 1; w < WARPS; w++) sum += sums[w][lane_id];
            ((int64_t *)(void *)(job.out + s.counts))[at] = sum;
        }
        __syncthreads();
    }
    if (s.edges) histogram_write_edges(s, job);
    ks_leave(site);
}

__global__ void __launch_bounds__(HISTOGRAM_SUM_THREADS)
    histogram_clear(ks_site site, const __grid_constant__ histogram_shape s)
{
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < s.rows * s.bins;
         at += (int64_t)gridDim.x * blockDim.x)
        ((int64_t *)(void *)(job.out + s.counts))[at] = 0;
    if (s.edges) histogram_write_edges(s, job);
}

template <class T>
__global__ void __launch_bounds__(1024) histogram_global(ks_site site, const __grid_constant__ histogram_shape s)
{
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    unsigned long long *const counts = (unsigned long long *)(void *)(job.out + s.counts);
#pragma unroll 1
    for (int64_t item = blockIdx.x; item < s.rows * s.parts; item += gridDim.x) {
        const int64_t row = item / s.parts;
        histogram_part<T>(s, job.in + s.in, row, item - row * s.parts, counts + row * s.bins);
    }
    ks_leave(site);
}

#endif
