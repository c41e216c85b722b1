/* Softmax of rows that the registers of a CTA hold: one reading, one writing. Rows are read in the vectors of their
 * aligned superset. */
#ifndef KS_SOFTMAX_ROW_BLOCK_REGISTERS_CUH
#define KS_SOFTMAX_ROW_BLOCK_REGISTERS_CUH

#include "cuda/softmax/common.cuh"

/* A row, or a part of `share` of its vectors. Vector i of it is in[i]; a first and a last one may belong to the rows
 * beside this one, too. */
template <class T>
struct softmax_span {
    static constexpr int E = ks_vector<T>::length;
    static constexpr unsigned ALL = (1u << E) - 1;
    const uint4 *in;
    uint4 *out;
    int count, low, high; /* vectors; the row's elements among theirs: [low, high) */
    int edge, inner;      /* vectors that are the row's alone: inner of them from edge on */

    softmax_span() = default;
    /* share 0: the whole row */
    __device__ __forceinline__ softmax_span(const softmax_shape &s, const ks_job_sides &job, int64_t row,
                                            int64_t share = 0, int piece = 0)
    {
        const int64_t start = row * s.length;
        const int skip = (int)(start & (E - 1));
        int64_t first = start / E, begin = 0, end = (skip + s.length + E - 1) / E;
        if (share) {
            begin = min(piece * share, end);
            end = min(begin + share, end);
            first += begin;
        }
        in = (const uint4 *)(job.in + s.offset) + first;
        out = (uint4 *)job.out + first;
        count = (int)(end - begin);
        low = begin == 0 ? skip : 0;
        high = (int)min(skip + s.length - begin * E, (int64_t)count * E);
        edge = low > 0;
        inner = max(count - edge - (high < count * E), 0);
    }
    __device__ __forceinline__ bool whole(int i) const
    {
        return (unsigned)(i - edge) < (unsigned)inner;
    }
    /* Bit e: element e of vector i is the row's. */
    __device__ __forceinline__ unsigned mask(int i) const
    {
        const int at = i * E;
        if (i >= count) return 0;
        unsigned bits = ALL;
        if (at < low) bits &= ALL << (low - at);
        if (at + E > high) bits &= ALL >> (at + E - high);
        return bits;
    }
    __device__ __forceinline__ void load(softmax_pack<T, E> &x, int i) const
    {
        if (i < count) x.word = __ldg(in + i);
    }
    /* Packs at i, i + step ... as the row's values: with the scale's sign, and blank where they are not the row's. */
    template <int V>
    __device__ __forceinline__ void clean(softmax_pack<T, E> (&x)[V], int i, int step, float sign) const
    {
        softmax_apply_sign(x, sign);
#pragma unroll
        for (int v = 0; v < V; v++)
            if (!whole(i + v * step)) softmax_blank(x[v], mask(i + v * step));
    }
    __device__ __forceinline__ void store(const softmax_pack<T, E> &x, int i) const
    {
        if (whole(i))
            out[i] = x.word;
        else
            softmax_store(out, i, x, mask(i));
    }
};

/* A value of each warp, for all warps of the CTA. */
template <class M>
struct softmax_cells {
    M h[KS_WARPS_MAX], sum[KS_WARPS_MAX];
};

/* join over a CTA of at most `MOST` warps: each warp's threads hold its value, each thread gets the whole. cells: one of each
 * warp. Of a few warps each thread joins all: steps of a shuffle wait for each other, reads do not. */
template <int MOST, class M, class Join>
__device__ __forceinline__ M softmax_over_warps(M mine, M none, M *cells, Join join)
{
    const int warps = blockDim.x / KS_WARP, lane_id = threadIdx.x % KS_WARP;
    if (warps == 1) return mine;
    if (lane_id == 0) cells[threadIdx.x / KS_WARP] = mine;
    __syncthreads();
    if constexpr (MOST == 8) {
        M all[MOST];
#pragma unroll
        for (int w = 0; w < MOST; w++) all[w] = w < warps ? cells[w] : none;
        return join(join(join(all[0], all[4]), join(all[2], all[6])), join(join(all[1], all[5]), join(all[3], all[7])));
    }
    mine = lane_id < warps ? cells[lane_id] : none;
    return ks_subwarp_reduce(mine, KS_WARP, join);
}

struct softmax_maxes {
    template <class M>
    __device__ __forceinline__ M operator()(M a, M b) const
    {
        return ks_max(a, b);
    }
};

/* The pair of a CTA's packs, in each thread; the packs keep what they can. */
template <int MOST = KS_WARPS_MAX, class T, int E, int V, class M>
__device__ __forceinline__ softmax_pair<M> softmax_cta_pair(softmax_pack<T, E> (&x)[V], int used,
                                                            softmax_cells<M> &cells, const softmax_rule<M> &rule)
{
    softmax_pack<T, E> most = x[0];
#pragma unroll
    for (int v = 1; v < V; v++)
        if (v < used) most = softmax_greater(most, x[v]);
    M h = ks_subwarp_reduce(softmax_half(most), KS_WARP, softmax_maxes());
    h = softmax_over_warps<MOST>(h, -(M)INFINITY, cells.h, softmax_maxes());
    M sum = 0;
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (v >= used) break;
        sum += softmax_sum<softmax_keeps<T>>(x[v], ks_reference(h), rule);
    }
    sum = ks_subwarp_reduce(sum, KS_WARP, ks_adds());
    sum = softmax_over_warps<MOST>(sum, (M)0, cells.sum, ks_adds());
    return {h, sum};
}

/* The most threads of a CTA. */
template <class T, int V>
constexpr int row_block_threads = V < 4                      ? 256
                                  : V == 4 || sizeof(T) == 8 ? 512
                                                             : 1024;

/* A row for each CTA, V packs of it in each thread. */
template <class T, int V>
__global__ void __launch_bounds__(row_block_threads<T, V>, V == 4 && sizeof(T) < 8 ? 3 : 1)
    softmax_row_block_registers(ks_site site, softmax_shape s)
{
    typedef typename ks_element<T>::math M;
    typedef softmax_span<T> Span;
    __shared__ softmax_cells<M> cells;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const Span span(s, job, blockIdx.x);
    softmax_pack<T, Span::E> x[V];
#pragma unroll
    for (int v = 0; v < V; v++) span.load(x[v], v * blockDim.x + threadIdx.x);
    ks_start(site);
    const softmax_rule<M> rule(s);
    /* Few packs are all used: to find out costs as much, and what runs once has to be fetched. */
    const int used = V < 4 ? V : (span.count + blockDim.x - 1) / blockDim.x;
    span.clean(x, threadIdx.x, blockDim.x, s.sign);
    const softmax_pair<M> whole =
        softmax_settle(softmax_cta_pair<row_block_threads<T, V> / KS_WARP>(x, used, cells, rule), rule);
    const softmax_epilogue<M> epilogue(whole, rule);
#pragma unroll
    for (int v = 0; v < V; v++) {
        if (v >= used) break;
        softmax_values<softmax_keeps<T>>(x[v], epilogue, rule);
        span.store(x[v], v * blockDim.x + threadIdx.x);
    }
    ks_leave(site);
}

#endif
