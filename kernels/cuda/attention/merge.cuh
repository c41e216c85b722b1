/* The parts of each row, merged in the order of the splits: a warp has a row.
 *
 * Memory   the workspace, as attention_part() has it; a part of which no key is taken has the sum 0 at -inf, and its values are not read. */
#ifndef KS_ATTENTION_MERGE_CUH
#define KS_ATTENTION_MERGE_CUH

#include "cuda/attention/common.cuh"

enum { ATTENTION_MERGE_THREADS = 128 };

template <class T>
__global__ void __launch_bounds__(ATTENTION_MERGE_THREADS)
    attention_merge(ks_site site, const __grid_constant__ attention_shape a)
{
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const int lane_id = threadIdx.x % KS_WARP, warps = (int)ATTENTION_MERGE_THREADS / (int)KS_WARP;
#pragma unroll 1
    for (int64_t at = (int64_t)blockIdx.x * warps + threadIdx.x / KS_WARP; at < a.units * a.rows;
         at += (int64_t)gridDim.x * warps) {
        const int64_t unit = a.unit + at / a.rows, row = at % a.rows, batch = unit / a.s.kv_heads;
        const attention_row r = attention_row_of(a, batch, unit - batch * a.s.kv_heads, row, a.s.keys);
        const float *const part = attention_part(a, site, unit, row), *const values = part + 2 * a.splits;
        float most = -INFINITY, sum = 0;
        for (int i = 0; i < a.splits; i++) most = fmaxf(most, part[2 * i]);
        for (int i = 0; i < a.splits; i++) sum = fmaf(part[2 * i + 1], attention_weight(part[2 * i], most), sum);
        T *const out = attention_out<T>(a, job, batch, r);
        for (int column = lane_id; column < a.s.value_depth; column += KS_WARP) {
            float value = 0;
            for (int i = 0; i < a.splits; i++)
                if (!attention_is_nothing(part[2 * i], part[2 * i + 1]))
                    value =
                        fmaf(values[(int64_t)i * a.s.value_depth + column], attention_weight(part[2 * i], most), value);
            out[column] = ks_round<T>(attention_value(a, most, sum, value));
        }
        if (lane_id == 0) attention_put_lse(a, job, batch, r, most, sum);
    }
    if (a.ends) ks_leave<true>(site);
}

#endif
