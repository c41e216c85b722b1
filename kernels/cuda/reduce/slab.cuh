/* Slabs: results of a few elements each, which lie close together.
 *
 * An item is shape.width blocks of depth x inner elements, one after the other in memory: the CTA loads them as what
 * they are, contiguous vectors, and a thread makes each result from shared memory. Items start on vectors, because width
 * is a multiple of 16. Rows of whole vectors are read as vectors, an odd number of them apart: no bank conflicts. */
#ifndef KS_REDUCE_SLAB_CUH
#define KS_REDUCE_SLAB_CUH

#include "cuda/reduce/take.cuh"

/* A row of `length` whole vectors. */
template <class Op>
__device__ __forceinline__ void reduce_slab_row(const Op &op, typename Op::Acc (&acc)[1], const uint4 *row, int length)
{
    typedef typename Op::Source::T T;
    constexpr int E = ks_vector<T>::length, G = reduce_loads<T>::leaf;
    int i = 0;
    acc[0] = reduce_begin(op, (const T *)row);
    for (; i + G <= length; i += G) {
        ks_vector<T> v[G];
#pragma unroll
        for (int u = 0; u < G; u++) v[u].raw = row[i + u];
        reduce_take<Op, G>(op, acc, v, i * E);
    }
    for (; i < length; i++) {
        ks_vector<T> v[1];
        v[0].raw = row[i];
        reduce_take<Op, 1>(op, acc, v, i * E);
    }
}

/* depth elements, `step` apart. */
template <class Op>
__device__ __forceinline__ void reduce_slab_line(const Op &op, typename Op::Acc (&acc)[1],
                                                 const typename Op::Source::T *line, int step, int depth)
{
    constexpr int N = 8;
    typename Op::Source::W x[1][N];
    int d = 0;
    acc[0] = reduce_begin(op, line);
    for (; d + N <= depth; d += N, line += N * step) {
#pragma unroll
        for (int i = 0; i < N; i++) x[0][i] = reduce_get(op, line[i * step]);
        op.take(acc, x, d);
    }
    if (d == depth) return;
#pragma unroll
    for (int i = 0; i < N; i++) x[0][i] = d + i < depth ? reduce_get(op, line[i * step]) : reduce_absent(op, acc[0]);
    op.take(acc, x, d);
}

template <class Op>
__global__ void __launch_bounds__(128, sizeof(typename Op::Source::W) > 4 || reduce_heavy<Op> ? 3 : 6)
    reduce_slab(ks_site site, const __grid_constant__ reduce_shape s, Op op)
{
    typedef typename Op::Source::T T;
    constexpr int E = ks_vector<T>::length, LOADS = 8;
    uint4 *const slab = ks_dynamic;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const uint4 *in = (const uint4 *)(job.in + s.offset);
    const int depth = (int)s.depth, inner = (int)s.inner, block = depth * inner, vectors = s.width * block / E;
    const bool whole = Op::Source::VECTORS && inner == 1 && depth % E == 0;
    const int length = whole ? depth / E : 1, pitch = length | 1;
    const uint32_t reciprocal = ((1u << 20) + length - 1) / length; /* exact for up to 4096 vectors, 128 of a row */
    const int64_t all = (s.results * depth + E - 1) / E;

    for (uint32_t item = blockIdx.x; item < s.items; item += gridDim.x) {
        const int64_t result = (int64_t)item * s.width * inner;
        const int count = (int)min((int64_t)vectors, all - (int64_t)item * vectors);
        const int results = (int)min((int64_t)s.width * inner, s.results - result);
        const uint4 *from = ks_one_address(in + (int64_t)item * vectors);
        for (int i = threadIdx.x; i < count; i += LOADS * blockDim.x) {
            uint4 v[LOADS];
#pragma unroll
            for (int u = 0; u < LOADS; u++)
                if (i + u * (int)blockDim.x < count) v[u] = __ldg(from + i + u * blockDim.x);
#pragma unroll
            for (int u = 0; u < LOADS; u++) {
                const int at = i + u * blockDim.x, row = (int)((at * reciprocal) >> 20);
                if (at < count) slab[row * (pitch - length) + at] = v[u];
            }
        }
        __syncthreads();
        for (int k = threadIdx.x; k < results; k += blockDim.x) {
            typename Op::Acc acc[1];
            if (whole) {
                if constexpr (Op::Source::VECTORS) reduce_slab_row(op, acc, slab + k * pitch, length);
            } else if (inner == 1)
                reduce_slab_line(op, acc, (const T *)slab + k * depth, 1, depth);
            else
                reduce_slab_line(op, acc, (const T *)slab + k / inner * (block - inner) + k, inner, depth);
            const typename Op::State state = op.finish(acc[0], true, [](int n) { return (int64_t)n; });
            ((typename Op::Out *)job.out)[result + k] = op.result(state);
        }
        __syncthreads();
    }
    ks_leave(site);
}

#endif
