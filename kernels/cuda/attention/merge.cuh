/* The parts of each row, merged in the order of the splits: a warp has a row, whose loads wait for nothing but its pairs. Where warps are
 * apart the last CTA of a unit does it, else a launch of its own.
 *
 * Memory   the workspace, as attention_part() has it; a part of which no key is taken has the sum 0 at -inf, and its values count for nothing. */
#ifndef KS_ATTENTION_MERGE_CUH
#define KS_ATTENTION_MERGE_CUH

#include "cuda/attention/common.cuh"
#include "cuda/common/ptx_mma.cuh"

enum { ATTENTION_MERGE_THREADS = 128 };

/* Lane i of each warp has split i: its pair, and what its sums count for. */
struct attention_joined {
    float most, sum, weight;
    bool nothing; /* the part's values count for nothing */

    __device__ __forceinline__ attention_joined(float own, float total)
    {
        most = own;
#pragma unroll
        for (int distance = KS_WARP / 2; distance > 0; distance /= 2) most = fmaxf(most, ks_shuffle(most, distance));
        nothing = attention_is_nothing(own, total);
        weight = nothing ? 0 : attention_weight(own, most);
        sum = total * weight;
#pragma unroll
        for (int distance = KS_WARP / 2; distance > 0; distance /= 2) sum += ks_shuffle(sum, distance);
    }
};

/* By a warp. weights: room for one of each lane. */
template <class T>
__device__ __forceinline__ void attention_merge_row(const ks_site &site, const attention_shape &a,
                                                    const ks_job_sides &job, int64_t unit, int64_t row, float *weights)
{
    enum { SOME = 16, EACH = 4 }; /* splits and columns whose loads are under way */
    const int lane_id = threadIdx.x % KS_WARP, depth = a.s.value_depth;
    const float *const part = attention_part(a, site, unit, row), *const values = part + 2 * a.splits;
    const float pair[2] = {lane_id < a.splits ? part[2 * lane_id] : -INFINITY,
                           lane_id < a.splits ? part[2 * lane_id + 1] : 0};
    const int64_t batch = unit / a.s.kv_heads;
    const attention_row r = attention_row_of<uint32_t>(a, batch, unit - batch * a.s.kv_heads, row, a.s.keys);
    T *const out = attention_out<T>(a, job, batch, r);
    float most = 0, sum = 0;
#pragma unroll 1
    for (int first = lane_id; first - lane_id < depth; first += EACH * KS_WARP) {
        float value[EACH] = {};
#pragma unroll 1
        for (int i = 0; i < a.splits; i += SOME) {
            float own[SOME][EACH]; /* what counts for nothing may be anything */
#pragma unroll
            for (int e = 0; e < SOME; e++)
#pragma unroll
                for (int c = 0; c < EACH; c++)
                    own[e][c] = values[min(i + e, a.splits - 1) * depth + min(first + c * KS_WARP, depth - 1)];
            if (first == lane_id && i == 0) { /* behind the first loads, which wait for no pair */
                const attention_joined joined(pair[0], pair[1]);
                most = joined.most;
                sum = joined.sum;
                __syncwarp(); /* the row before has been read */
                weights[lane_id] = joined.nothing ? -1 : joined.weight;
                __syncwarp();
            }
#pragma unroll
            for (int e = 0; e < SOME; e++)
#pragma unroll
                for (int c = 0; c < EACH; c++)
                    if (weights[i + e] >= 0) value[c] = fmaf(own[e][c], weights[i + e], value[c]);
        }
#pragma unroll
        for (int c = 0; c < EACH; c++)
            if (first + c * KS_WARP < depth)
                out[first + c * KS_WARP] = ks_round<T>(attention_value(a, most, sum, value[c]));
    }
    if (lane_id == 0) attention_put_lse(a, job, batch, r, most, sum);
}

/* The CTA has put parts of a unit, which `sharers` CTAs do: the last of them merges its rows. */
template <class T>
__device__ __forceinline__ void attention_merge_last(const ks_site &site, const attention_shape &a,
                                                     const ks_job_sides &job, int64_t unit, uint32_t sharers)
{
    __shared__ float weights[ATTENTION_MERGE_THREADS];
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *const counter = ks_counters(site) + (unit - a.unit);
        last = sharers == 1 || mm_draw(counter) + 1 == sharers;
        if (last && sharers > 1) *counter = 0;
    }
    __syncthreads();
    if (!last) return;
    const int warp = threadIdx.x / KS_WARP, warps = (int)ATTENTION_MERGE_THREADS / (int)KS_WARP;
#pragma unroll 1
    for (int64_t row = warp; row < a.rows; row += warps)
        attention_merge_row<T>(site, a, job, unit, row, weights + warp * KS_WARP);
}

template <class T>
__global__ void __launch_bounds__(ATTENTION_MERGE_THREADS)
    attention_merge(ks_site site, const __grid_constant__ attention_shape a)
{
    __shared__ float weights[ATTENTION_MERGE_THREADS];
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const int warp = threadIdx.x / KS_WARP, warps = (int)ATTENTION_MERGE_THREADS / (int)KS_WARP;
#pragma unroll 1
    for (int64_t at = (int64_t)blockIdx.x * warps + warp; at < a.units * a.rows; at += (int64_t)gridDim.x * warps)
        attention_merge_row<T>(site, a, job, a.unit + at / a.rows, at % a.rows, weights + warp * KS_WARP);
    if (a.ends) ks_leave<true>(site);
}

#endif
