/* Softmax of rows too long for a CTA: CTA groups that stay, a row after the other.
 *
 *   row_multiblock_registers  the registers of a CTA group hold the row; while it is worked on, the next one comes into shared
 *                             memory
 *   row_grid                  one row over the whole grid: a CTA keeps of its part what fits into shared memory and reads the
 *                             rest twice, the last bytes first, which still lie in the L2 cache
 *
 * Each thread copies and reads its own packs only, so that nothing but a row's pair needs a barrier. */
#ifndef KS_SOFTMAX_ROW_MULTIBLOCK_REGISTERS_CUH
#define KS_SOFTMAX_ROW_MULTIBLOCK_REGISTERS_CUH

#include "cuda/softmax/row_block_registers.cuh"
#include "cuda/softmax/cta_group.cuh"

static constexpr int GROUP_CTA_THREADS = 512, ROW_REGISTER_PACKS = 8, ROW_GRID_PACKS = 8;

/* The row's pair from those of the CTA group's CTAs, in their order; the CTA calls it whole. warps: a pair of each. */
template <class M>
__device__ __forceinline__ softmax_pair<M> softmax_cta_group_pair(softmax_pair<M> mine, softmax_pair<M> *warps,
                                                                  const softmax_cta_group &cta_group, uint32_t round,
                                                                  const softmax_rule<M> &rule)
{
    const int lane_id = threadIdx.x % KS_WARP, first = threadIdx.x - lane_id,
              groups = (cta_group.size + KS_WARP - 1) / KS_WARP;
    if (threadIdx.x == 0) cta_group.publish(round, cta_group.rank, mine.h, mine.sum);
    if (first < cta_group.size) {
        mine = softmax_none<M>();
        if ((int)threadIdx.x < cta_group.size) mine = cta_group.consume<M>(round, threadIdx.x);
        mine = softmax_join(mine, KS_WARP, rule);
        if (lane_id == 0) warps[first / KS_WARP] = mine;
    }
    __syncthreads();
    if (groups == 1) return warps[0];
    return softmax_join(lane_id < groups ? warps[lane_id] : softmax_none<M>(), KS_WARP, rule);
}

/* A row for each CTA group of `parts` CTAs at a time, `share` vectors each. */
template <class T>
__global__ void __launch_bounds__(GROUP_CTA_THREADS, sizeof(T) == 8 ? 1 : 2)
    softmax_row_multiblock_registers(ks_site site, softmax_shape s, int parts, int64_t share)
{
    typedef typename ks_element<T>::math M;
    typedef softmax_span<T> Span;
    constexpr int V = ROW_REGISTER_PACKS;
    uint4 *const stage = ks_dynamic;
    __shared__ softmax_cells<M> cells;
    __shared__ softmax_pair<M> warps[KS_WARPS_MAX];
    __shared__ softmax_cta_group cta_group;
    __shared__ Span spans[4];
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const int threads = blockDim.x;
    if (threadIdx.x == 0) cta_group.open(site, parts, 1);
    __syncthreads();
    const auto prepare = [&](int r) { /* by one thread, for all */
                                      if (threadIdx.x == 0)
                                          spans[r % 4] = Span(s, job, cta_group.index + (int64_t)r * cta_group.groups,
                                                              share, cta_group.rank);
    };
    const auto fetch = [&](int r) {
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int i = v * threads + threadIdx.x;
            if (i < spans[r % 4].count) ks_copy_async(&stage[i], &spans[r % 4].in[i]);
        }
    };
    const int rows = (int)((s.outer - cta_group.index + cta_group.groups - 1) / cta_group.groups);
    uint32_t drawn = 0;
    prepare(0);
    __syncthreads();
    fetch(0);
#pragma unroll 1
    for (int r = 0; r < rows; r++) {
        const Span &span = spans[r % 4];
        const int used = (span.count + threads - 1) / threads;
        const bool more = r + 1 < rows;
        softmax_pack<T, Span::E> x[V];
        if (more) prepare(r + 1);
        ks_copy_wait();
#pragma unroll
        for (int v = 0; v < V; v++) x[v].word = stage[v * threads + threadIdx.x];
        span.clean(x, threadIdx.x, threads, s.sign);
        const softmax_pair<M> mine = softmax_cta_pair(x, used, cells, rule);
        if (more) fetch(r + 1); /* what lay in the slot is in registers */
        const softmax_pair<M> whole =
            softmax_settle(softmax_cta_group_pair(mine, warps, cta_group, (uint32_t)r, rule), rule);
        if (!more) drawn = cta_group.draw();
        const softmax_epilogue<M> epilogue =
            softmax_keeps<T> ? softmax_epilogue<M>(whole, mine.h, rule) : softmax_epilogue<M>(whole, rule);
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (v >= used) break;
            softmax_values<softmax_keeps<T>>(x[v], epilogue, rule);
            span.store(x[v], v * threads + threadIdx.x);
        }
    }
    cta_group.leave(drawn);
    ks_leave(site);
}

/* A row for the whole grid at a time. kept: packs of each thread in shared memory, a multiple of ROW_GRID_PACKS. */
template <class T>
__global__ void __launch_bounds__(GROUP_CTA_THREADS, 1)
    softmax_row_grid(ks_site site, softmax_shape s, int64_t share, int kept)
{
    typedef typename ks_element<T>::math M;
    typedef softmax_span<T> Span;
    constexpr int V = sizeof(T) == 8 ? ROW_GRID_PACKS / 2 : ROW_GRID_PACKS;
    uint4 *const keep = ks_dynamic;
    __shared__ softmax_pair<M> warps[KS_WARPS_MAX];
    __shared__ softmax_cta_group cta_group;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    if (threadIdx.x == 0) cta_group.open(site, gridDim.x, 1);
    __syncthreads();
    const int threads = blockDim.x, step = V * threads, held = kept * threads;
    softmax_pack<T, Span::E> x[V];
    uint32_t drawn = 0;
#pragma unroll 1
    for (int64_t row = 0; row < s.outer; row++) {
        const Span span(s, job, row, share, cta_group.rank);
        for (int i = threadIdx.x; i < min(span.count, held); i += threads) ks_copy_async(&keep[i], &span.in[i]);
        M h = -(M)INFINITY;
        double sum = 0;
        const auto take = [&](int i) {
            span.clean(x, i, threads, s.sign);
            softmax_pack<T, Span::E> most = x[0];
#pragma unroll
            for (int v = 1; v < V; v++) most = softmax_greater(most, x[v]);
            const M whole = ks_max(h, softmax_half(most));
            M leaf = 0;
#pragma unroll
            for (int v = 0; v < V; v++) leaf += softmax_sum<false>(x[v], ks_reference(whole), rule);
            sum = sum * (double)softmax_weight(h, whole, rule) + (double)leaf;
            h = whole;
        };
#pragma unroll 1
        for (int i = held + threadIdx.x; i < span.count; i += step) {
#pragma unroll
            for (int v = 0; v < V; v++) span.load(x[v], i + v * threads);
            take(i);
        }
        ks_copy_wait();
#pragma unroll 1
        for (int i = threadIdx.x; i < min(span.count, held); i += step) {
#pragma unroll
            for (int v = 0; v < V; v++) x[v].word = keep[i + v * threads];
            take(i);
        }
        softmax_pair<M> whole = softmax_join({h, (M)sum}, KS_WARP, rule);
        if (threadIdx.x % KS_WARP == 0) warps[threadIdx.x / KS_WARP] = whole;
        __syncthreads();
        const int lane_id = threadIdx.x % KS_WARP;
        whole = softmax_join(lane_id < threads / KS_WARP ? warps[lane_id] : softmax_none<M>(), KS_WARP, rule);
        __syncthreads();
        whole = softmax_settle(softmax_cta_group_pair(whole, warps, cta_group, (uint32_t)row, rule), rule);
        if (row + 1 == s.outer) drawn = cta_group.draw();
        const softmax_epilogue<M> epilogue(whole, rule);
        const auto give = [&](int i) {
            softmax_apply_sign(x, s.sign);
#pragma unroll
            for (int v = 0; v < V; v++) {
                softmax_values<false>(x[v], epilogue, rule);
                span.store(x[v], i + v * threads);
            }
        };
        const int beyond = (max(span.count - held, 0) + step - 1) / step;
#pragma unroll 1
        for (int i = held + (beyond - 1) * step + threadIdx.x; i >= held; i -= step) {
#pragma unroll
            for (int v = 0; v < V; v++) span.load(x[v], i + v * threads);
            give(i);
        }
#pragma unroll 1
        for (int i = threadIdx.x; i < min(span.count, held); i += step) {
#pragma unroll
            for (int v = 0; v < V; v++) x[v].word = keep[i + v * threads];
            give(i);
        }
    }
    cta_group.leave(drawn);
    ks_leave(site);
}

#endif
