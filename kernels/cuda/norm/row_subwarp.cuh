/* Norm of short rows of whole vectors: each in the registers of a part of a warp, several rows in a thread, the loads of all of them
 * before the first use. Weight and bias stay in the registers for all rows of a thread. */
#ifndef KS_NORM_ROW_SUBWARP_CUH
#define KS_NORM_ROW_SUBWARP_CUH

#include "cuda/norm/common.cuh"

static constexpr int NORM_SUBWARP_THREADS = 128;

/* Sums of ROWS rows over subwarps of 1 << shift; each thread gets those of its own rows. */
template <int ROWS>
__device__ __forceinline__ void norm_over_subwarp(double (&sum)[ROWS], int shift)
{
    for (int distance = 1 << shift >> 1; distance > 0; distance >>= 1)
#pragma unroll
        for (int k = 0; k < ROWS; k++) sum[k] += ks_shuffle(sum[k], distance);
}

/* The rules of a thread's rows. live: packs that are the row's. All threads of a warp come here and leave together, whichever of their
 * rows is taken again. */
template <class T, int ROWS, int V, int E, class M>
__device__ __forceinline__ void norm_settle_rows(const norm_shape &s, const M (&x)[ROWS][V][E], const bool (&live)[V],
                                                 int shift, norm_rule<M> (&rule)[ROWS])
{
    double sum[ROWS];
    typename norm_kept_mean<T>::type mean[ROWS];
    M scale[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; k++) mean[k] = 0, scale[k] = 1;
    if (s.centred) {
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            sum[k] = 0;
#pragma unroll
            for (int v = 0; v < V; v++) sum[k] += norm_sum<T>(x[k][v]); /* zeros beyond the row */
        }
        norm_over_subwarp(sum, shift);
        if constexpr (sizeof(T) == 2) {
            bool lost = false;
#pragma unroll
            for (int k = 0; k < ROWS; k++) lost |= !(fabs(sum[k]) < (double)INFINITY);
            if (__any_sync(0xFFFFFFFFu, lost)) {
                double again[ROWS];
#pragma unroll
                for (int k = 0; k < ROWS; k++) {
                    again[k] = 0;
#pragma unroll
                    for (int v = 0; v < V; v++) again[k] += norm_wide_sum(x[k][v]);
                }
                norm_over_subwarp(again, shift);
#pragma unroll
                for (int k = 0; k < ROWS; k++)
                    if (!(fabs(sum[k]) < (double)INFINITY)) sum[k] = again[k];
            }
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) mean[k] = norm_mean(s, sum[k]);
    }
    bool again;
#pragma unroll 1
    do {
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            rule[k] = norm_rule<M>((double)mean[k], scale[k]);
            sum[k] = 0;
#pragma unroll
            for (int v = 0; v < V; v++)
                if (live[v]) sum[k] += norm_squares<T>(x[k][v], rule[k]);
        }
        norm_over_subwarp(sum, shift);
        again = false;
#pragma unroll
        for (int k = 0; k < ROWS; k++) { /* a row that stands comes to the same once more */
            const double squared = norm_divisor_squared(s, sum[k], (double)scale[k]);
            const M next = norm_next_scale<T>(squared, (M)mean[k], scale[k]);
            rule[k].factor = norm_factor(squared, (M)0);
            if (next != 0) scale[k] = next;
            again |= next != 0;
        }
    } while (__any_sync(0xFFFFFFFFu, again));
}

template <class T, class W, int V, int ROWS>
__global__ void __launch_bounds__(NORM_SUBWARP_THREADS, V == 4 || sizeof(W) != sizeof(T) || sizeof(T) == 8 ? 4 : 5)
    norm_row_subwarp(ks_site site, const __grid_constant__ norm_shape s, int shift)
{
    constexpr int E = norm_vector<T>;
    typedef typename ks_element<T>::math M;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const int lane_id = threadIdx.x & ((1 << shift) - 1), subwarp = threadIdx.x >> shift,
              together = blockDim.x >> shift, step = 1 << shift, count = (int)s.length / E;
    const bool affine = s.weight || s.bias;
    const norm_affine<W, E, V> kept(s, job.in, 0, lane_id, step, count);
    bool live[V];
#pragma unroll
    for (int v = 0; v < V; v++) live[v] = lane_id + v * step < count;
    ks_await(site); /* behind the loads of weight and bias, which are constants */

#pragma unroll 1
    for (int64_t first = (int64_t)blockIdx.x * (ROWS * together); first < s.rows;
         first += (int64_t)gridDim.x * (ROWS * together)) {
        const int rows = (int)min(s.rows - first, (int64_t)ROWS * together);
        const int64_t begin = first * count;
        norm_pack<T, E> x[ROWS][V], more[ROWS][V];
#pragma unroll
        for (int k = 0; k < ROWS; k++)
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int row = subwarp + k * together;
                x[k][v].fill(0);
                if (row < rows && live[v]) x[k][v].take(job.in + s.in[0], begin + row * count + lane_id + v * step);
            }
        if (s.residual) {
#pragma unroll
            for (int k = 0; k < ROWS; k++)
#pragma unroll
                for (int v = 0; v < V; v++) {
                    const int row = subwarp + k * together;
                    more[k][v].fill(0);
                    if (row < rows && live[v])
                        more[k][v].take(job.in + s.in[3], begin + row * count + lane_id + v * step);
                }
        }
        M sum[ROWS][V][E];
#pragma unroll
        for (int k = 0; k < ROWS; k++)
#pragma unroll
            for (int v = 0; v < V; v++) norm_widen(sum[k][v], x[k][v]);
        if (s.pre_bias) {
#pragma unroll
            for (int v = 0; v < V; v++) {
                norm_pack<W, E> add;
                if (!live[v]) continue;
                add.load(job.in + s.in[4], lane_id + v * step);
#pragma unroll
                for (int k = 0; k < ROWS; k++) norm_add(sum[k][v], add);
            }
        }
        if (s.residual) {
#pragma unroll
            for (int k = 0; k < ROWS; k++)
#pragma unroll
                for (int v = 0; v < V; v++) norm_add(sum[k][v], more[k][v]);
        }
        if (s.keeps_sum) {
#pragma unroll
            for (int k = 0; k < ROWS; k++)
#pragma unroll
                for (int v = 0; v < V; v++) {
                    const int row = subwarp + k * together;
                    x[k][v].put(sum[k][v]);
                    if (row < rows && live[v]) x[k][v].store(job.out + s.sum, begin + row * count + lane_id + v * step);
                }
        }
        norm_rule<M> rule[ROWS];
        norm_settle_rows<T>(s, sum, live, shift, rule);
#pragma unroll
        for (int k = 0; k < ROWS; k++)
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int row = subwarp + k * together;
                norm_values<T>(s, sum[k][v], rule[k], affine, kept.weight[v], kept.bias[v]);
                x[k][v].put(sum[k][v]);
                if (row < rows && live[v]) x[k][v].store(job.out + s.out, begin + row * count + lane_id + v * step);
            }
    }
    ks_leave(site);
}

#endif
