/* Softmax along a contiguous axis.
 *
 *   held   a row fits the registers of a few threads, a warp or a CTA: one reading, one writing
 *   split  longer rows, or few of them: statistics of parts of rows, then the values; two kernels
 *
 * Rows are read in 16-byte vectors of their aligned superset. */
#ifndef KS_SOFTMAX_ROWS_CUH
#define KS_SOFTMAX_ROWS_CUH

#include "softmax_common.cuh"

/* --- held ------------------------------------------------------------------------------------------------------------ */

struct ks_maxes {
    template <class M>
    __device__ __forceinline__ M operator()(M a, M b) const
    {
        return ks_max(a, b);
    }
};

/* `width` threads (a power of two up to 32, or the CTA) keep a row as V vectors each. */
template <class T, int V>
__global__ void __launch_bounds__(V > WIDE_VECTORS ? THREADS : 1024)
    softmax_held(ks_site site, softmax_shape s, int width)
{
    typedef typename ks_element<T>::math M;
    constexpr int E = ks_vector<T>::length;
    __shared__ double shared[KS_WARPS_MAX];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const void *in = job.in + s.offset;
    const int lane = threadIdx.x % width, together = blockDim.x / width;
    const M half = (M)s.half, factor = (M)s.factor;

    for (int64_t first = (int64_t)blockIdx.x * together; first < s.rows; first += (int64_t)gridDim.x * together) {
        const int64_t row = first + threadIdx.x / width;
        ks_row r = ks_row_at<T>(row, s.length);
        if (row >= s.rows) r.vectors = 0; /* such threads still take part in shuffles and barriers */
        ks_vector<T> x[V];
#pragma unroll
        for (int v = 0; v < V; v++)
            if (lane + v * width < r.vectors) x[v] = ks_load_vector<T>(in, r.first + lane + v * width);

        M h = -(M)INFINITY;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int at = (lane + v * width) * E - r.skip;
#pragma unroll
            for (int e = 0; e < E; e++)
                if (at + e >= 0 && at + e < s.length && r.vectors) h = ks_max(h, ks_math(x[v].element[e]) * half);
        }
        h = ks_width_reduce(h, width, (M *)shared, ks_maxes());

        const M reference = ks_reference(h);
        M sum = 0;
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int at = (lane + v * width) * E - r.skip;
            M leaf = 0;
#pragma unroll
            for (int e = 0; e < E; e++)
                if (at + e >= 0 && at + e < s.length && r.vectors)
                    leaf += ks_exp2((ks_math(x[v].element[e]) * half - reference) * factor);
            sum += leaf;
        }
        const softmax_finish<M> finish(s, h, ks_width_reduce((double)sum, width, shared, ks_adds()));
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (lane + v * width >= r.vectors) continue;
#pragma unroll
            for (int e = 0; e < E; e++) x[v].element[e] = ks_round<T, M>(finish(ks_math(x[v].element[e]) * half));
            ks_store_vector<T>(job.out, r.first + lane + v * width, x[v], (int64_t)(lane + v * width) * E - r.skip,
                               s.length);
        }
    }
    ks_leave(site);
}

/* --- split ----------------------------------------------------------------------------------------------------------- */

/* Part p of a row: vectors [begin, end) of it. */
template <class T>
__device__ __forceinline__ void softmax_part(const softmax_shape &s, int parts, int part, const ks_row &r,
                                             int64_t *begin, int64_t *end)
{
    const int64_t share = (r.vectors + parts - 1) / parts;
    *begin = min((int64_t)part * share, r.vectors);
    *end = min(*begin + share, r.vectors);
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) softmax_split_statistics(ks_site site, softmax_shape s, int parts)
{
    typedef typename ks_element<T>::math M;
    constexpr int E = ks_vector<T>::length;
    __shared__ ks_normaliser<M> shared[KS_WARPS_MAX];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const void *in = job.in + s.offset;
    ks_normaliser<M> *partial = (ks_normaliser<M> *)ks_workspace(site);
    const M half = (M)s.half, factor = (M)s.factor;

    for (int64_t item = blockIdx.x; item < s.rows * parts; item += gridDim.x) {
        const ks_row r = ks_row_at<T>(item / parts, s.length);
        int64_t begin, end;
        softmax_part<T>(s, parts, (int)(item % parts), r, &begin, &end);
        ks_normaliser<M> n = ks_nothing<M>();
#pragma unroll 4
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
            const ks_vector<T> x = ks_load_vector<T>(in, r.first + i);
            M h[E];
#pragma unroll
            for (int e = 0; e < E; e++) h[e] = ks_math(x.element[e]) * half;
            ks_normaliser_take<E>(n, h, ks_vector_mask<E>(i * E - r.skip, s.length), factor);
        }
        ks_joins<M> joins = {factor};
        n = ks_block_reduce(n, shared, joins);
        if (threadIdx.x == 0) partial[item] = n;
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) softmax_split_values(ks_site site, softmax_shape s, int parts)
{
    typedef typename ks_element<T>::math M;
    constexpr int E = ks_vector<T>::length;
    __shared__ ks_normaliser<M> shared[KS_WARPS_MAX];
    ks_entry job;
    if (!ks_enter_again(site, &job)) return;
    const ks_normaliser<M> *partial = (const ks_normaliser<M> *)ks_workspace(site);
    const M half = (M)s.half;

    for (int64_t item = blockIdx.x; item < s.rows * parts; item += gridDim.x) {
        const int64_t row = item / parts;
        const ks_row r = ks_row_at<T>(row, s.length);
        int64_t begin, end;
        softmax_part<T>(s, parts, (int)(item % parts), r, &begin, &end);
        const ks_joins<M> joins = {(M)s.factor};
        ks_normaliser<M> n = (int)threadIdx.x < parts ? partial[row * parts + threadIdx.x] : ks_nothing<M>();
        n = ks_block_reduce(n, shared, joins);
        const softmax_finish<M> finish(s, n.h, n.sum);
#pragma unroll 4
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
            ks_vector<T> x = ks_load_vector<T>(job.in + s.offset, r.first + i);
#pragma unroll
            for (int e = 0; e < E; e++) x.element[e] = ks_round<T, M>(finish(ks_math(x.element[e]) * half));
            ks_store_vector<T>(job.out, r.first + i, x, i * E - r.skip, s.length);
        }
    }
    ks_leave(site);
}

#endif
