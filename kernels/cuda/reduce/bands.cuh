/* Bands: what is reduced is a list of axes, the innermost of them contiguous and whole vectors long.
 *
 * Its runs are short, but those of neighbouring results lie side by side. So a tile is shape.width results, and a step
 * along the rest of the list is a stretch of memory: shape.slots vectors of each result, one to a thread, which keeps it;
 * shape.rows such groups of threads take the steps in turn. An item is a tile, or a part of one: shape.share steps.
 *
 * Where a step lies takes divisions: the CTA works it out once for all of its threads, some steps ahead. */
#ifndef KS_REDUCE_BANDS_CUH
#define KS_REDUCE_BANDS_CUH

#include "cuda/reduce/columns.cuh"

template <class Op>
__global__ void __launch_bounds__(256, sizeof(typename Op::Source::W) > 4 ? 2
                                       : sizeof(typename Op::Acc) > 8     ? 3
                                                                          : 4)
    reduce_bands(ks_site site, const __grid_constant__ reduce_shape s, Op op)
{
    typedef typename Op::Source::T T;
    typedef typename Op::State State;
    constexpr int E = ks_vector<T>::length, U = reduce_loads<T>::count;
    State *shared = (State *)ks_dynamic;
    int64_t *const places = (int64_t *)(ks_dynamic + blockDim.x); /* behind a state of each thread */
    const int ahead = reduce_band_steps(s.rows);
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const int across = s.width * s.slots, down = threadIdx.x / across, at = threadIdx.x - down * across;
    const int result = at / s.slots, slot = at - result * s.slots;

    for (uint32_t item = blockIdx.x; item < s.items; item += gridDim.x) {
        const uint32_t tiles = s.items / s.parts, part = s.parts == 1 ? 0 : item / tiles, t = item - part * tiles;
        const uint32_t line = t / s.tiles, column = (t - line * s.tiles) * s.width;
        const int64_t begin = part * s.share;
        reduce_tile tile;
        tile.span = s.width;
        tile.first = line * s.inner + column;
        tile.results = (int)min((int64_t)tile.span, s.inner - column);
        const bool live = down < s.rows && result < tile.results;
        const int all = (int)max(min(s.share, s.steps - begin), (int64_t)0), count = live ? all : 0;
        const T *in =
            (const T *)(job.in + s.offset) + reduce_offset(s.kept, line) + ((int64_t)column * s.slots + at) * E;
        in = ks_one_address(in);
        typename Op::Acc acc[1] = {reduce_begin(op, live ? in - slot * E : (const T *)(job.in + s.offset))};
        const ks_vector<T> missing = reduce_missing(op, acc);
        for (int from = 0; from < all; from += ahead) {
            const int here = min(all - from, ahead), mine = min(count - from, here);
            if (from > 0) __syncthreads();
            for (int i = threadIdx.x; i < here; i += blockDim.x) places[i] = reduce_offset(s.reduced, begin + from + i);
            __syncthreads();
            for (int d = down; d < mine; d += U * s.rows) {
                ks_vector<T> v[U];
#pragma unroll
                for (int u = 0; u < U; u++) {
                    const int step = d + u * s.rows;
                    v[u] = missing;
                    if (step < mine) v[u] = reduce_load<T>((const uint4 *)(in + places[step]));
                }
                reduce_take<Op, U>(op, acc, v, 0);
            }
        }
        if (down < s.rows)
            shared[(down * s.slots + slot) * tile.span + result] =
                op.finish(acc[0], down < count, [](int) { return (int64_t)0; });
        const int left = reduce_fold(op, shared, s.rows * s.slots, tile.span);
        if (s.parts == 1)
            reduce_store<Op, 1>(op, tile, shared, left, job.out);
        else
            reduce_last<Op, 1>(
                op, tile, shared, [&](int j) { return reduce_down<Op, 1>(op, shared, left, tile.span, j); },
                reduce_meeting_of<State>(site, s, t, part, tile.span), job.out);
        __syncthreads();
    }
    ks_leave(site);
}

#endif
