/* Softmax along an axis that is not contiguous: threads along what is.
 *
 *   columns  one kernel, two readings
 *   slices   the same with the axis cut into parts, where columns alone would leave the chip idle; two kernels */
#ifndef KS_SOFTMAX_COLUMNS_CUH
#define KS_SOFTMAX_COLUMNS_CUH

#include "softmax_common.cuh"

/* A CTA's place: `width` threads along the columns, the others along the axis. */
struct softmax_place {
    int64_t base; /* element of this thread's column at the axis' start */
    int64_t begin, end;
    int down, step; /* this thread's row among the CTA's, and how many there are */
    bool live;      /* there is such a column */
};

__device__ __forceinline__ int64_t softmax_tiles(const softmax_shape &s, int width)
{
    return s.rows * ((s.inner + width - 1) / width);
}

__device__ __forceinline__ softmax_place softmax_at(const softmax_shape &s, int width, int64_t tile, int parts,
                                                    int part)
{
    const int64_t across = (s.inner + width - 1) / width, share = (s.length + parts - 1) / parts;
    const int64_t column = tile % across * width + threadIdx.x % width;
    softmax_place p;
    p.live = column < s.inner;
    p.base = tile / across * s.length * s.inner + column;
    p.begin = min(part * share, s.length);
    p.end = min(p.begin + share, s.length);
    p.down = threadIdx.x / width;
    p.step = blockDim.x / width;
    return p;
}

template <class T, class M = typename ks_element<T>::math>
__device__ __forceinline__ ks_normaliser<M> softmax_column_statistics(const softmax_shape &s, const T *in,
                                                                      const softmax_place &p)
{
    ks_normaliser<M> n = ks_nothing<M>();
    const M half = (M)s.half;
    for (int64_t d = p.begin + p.down; d < p.end && p.live; d += (int64_t)COLUMN_LOADS * p.step) {
        M h[COLUMN_LOADS];
        unsigned mask = 0;
#pragma unroll
        for (int i = 0; i < COLUMN_LOADS; i++) {
            const int64_t at = d + (int64_t)i * p.step;
            h[i] = 0;
            if (at >= p.end) continue;
            h[i] = ks_math(in[p.base + at * s.inner]) * half;
            mask |= 1u << i;
        }
        ks_normaliser_take<COLUMN_LOADS>(n, h, mask, (M)s.factor);
    }
    return n;
}

/* Over the threads of one column: a tree in shared memory, which each thread reads the root of. */
template <class M>
__device__ __forceinline__ ks_normaliser<M> softmax_column_join(ks_normaliser<M> n, int width, M factor,
                                                                ks_normaliser<M> *shared)
{
    const ks_joins<M> joins = {factor};
    shared[threadIdx.x] = n;
    __syncthreads();
    for (int half = blockDim.x / 2; half >= width; half /= 2) {
        if ((int)threadIdx.x < half) shared[threadIdx.x] = joins(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    n = shared[threadIdx.x % width];
    __syncthreads();
    return n;
}

template <class T, class M = typename ks_element<T>::math>
__device__ __forceinline__ void softmax_column_values(const softmax_shape &s, const T *in, T *out,
                                                      const softmax_place &p, ks_normaliser<M> n)
{
    if (!p.live) return;
    const softmax_finish<M> finish(s, n.h, n.sum);
#pragma unroll 4
    for (int64_t d = p.begin + p.down; d < p.end; d += p.step) {
        const int64_t at = p.base + d * s.inner;
        out[at] = ks_round<T, M>(finish(ks_math(in[at]) * (M)s.half));
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) softmax_columns(ks_site site, softmax_shape s, int width)
{
    typedef typename ks_element<T>::math M;
    __shared__ ks_normaliser<M> shared[THREADS];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const T *in = (const T *)(job.in + s.offset);
    for (int64_t tile = blockIdx.x; tile < softmax_tiles(s, width); tile += gridDim.x) {
        const softmax_place p = softmax_at(s, width, tile, 1, 0);
        const ks_normaliser<M> n = softmax_column_join(softmax_column_statistics(s, in, p), width, (M)s.factor, shared);
        softmax_column_values(s, in, (T *)job.out, p, n);
    }
    ks_leave(site);
}

/* Partial results: [tile][part][column of the tile]. */
template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    softmax_slice_statistics(ks_site site, softmax_shape s, int width, int parts)
{
    typedef typename ks_element<T>::math M;
    __shared__ ks_normaliser<M> shared[THREADS];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const T *in = (const T *)(job.in + s.offset);
    ks_normaliser<M> *partial = (ks_normaliser<M> *)ks_workspace(site);
    for (int64_t item = blockIdx.x; item < softmax_tiles(s, width) * parts; item += gridDim.x) {
        const softmax_place p = softmax_at(s, width, item / parts, parts, (int)(item % parts));
        const ks_normaliser<M> n = softmax_column_join(softmax_column_statistics(s, in, p), width, (M)s.factor, shared);
        if ((int)threadIdx.x < width) partial[item * width + threadIdx.x] = n;
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) softmax_slice_values(ks_site site, softmax_shape s, int width, int parts)
{
    typedef typename ks_element<T>::math M;
    __shared__ ks_normaliser<M> shared[THREADS];
    ks_entry job;
    if (!ks_enter_again(site, &job)) return;
    const ks_normaliser<M> *partial = (const ks_normaliser<M> *)ks_workspace(site);
    const ks_joins<M> joins = {(M)s.factor};
    for (int64_t item = blockIdx.x; item < softmax_tiles(s, width) * parts; item += gridDim.x) {
        const int64_t tile = item / parts;
        const softmax_place p = softmax_at(s, width, tile, parts, (int)(item % parts));
        ks_normaliser<M> n = ks_nothing<M>();
        for (int part = p.down; part < parts; part += p.step)
            n = joins(n, partial[(tile * parts + part) * width + threadIdx.x % width]);
        n = softmax_column_join(n, width, (M)s.factor, shared);
        softmax_column_values(s, (const T *)(job.in + s.offset), (T *)job.out, p, n);
    }
    ks_leave(site);
}

#endif
