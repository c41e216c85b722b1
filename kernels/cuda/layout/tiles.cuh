/* Where the lines of the output are not those of the input: tiles of both go through shared memory, so that each side is read and written
 * along its own lines. */
#ifndef KS_LAYOUT_TILES_CUH
#define KS_LAYOUT_TILES_CUH

#include "cuda/layout/common.cuh"

enum { LAYOUT_TILE = 64 };

/* Of the box's axes the last two: one along which the input's elements are neighbours, and the output's last one. */
struct layout_tiles {
    int64_t rows, columns;       /* their extents */
    int64_t row_to, column_from; /* elements to the next index, on the side where they are none's neighbours */
    ks_divider down, across;     /* tiles along the rows, and along the columns */
    int64_t tiles;
};

/* Elements from one line of a tile to the next: in shared memory it begins a bank further on. */
__host__ __device__ constexpr int layout_tile_pitch(int size)
{
    return LAYOUT_TILE + (size < 4 ? 4 / size : 1);
}

template <class W>
__global__ void __launch_bounds__(LAYOUT_THREADS) layout_tile(ks_site site, layout_args a, layout_tiles t)
{
    constexpr int PITCH = layout_tile_pitch((int)sizeof(W)), LINES = LAYOUT_THREADS / LAYOUT_TILE;
    W *tile = (W *)ks_dynamic; /* [column][row] */
    ks_job_sides job;
    if (!layout_enter(site, a, &job)) return;
    const W *in = (const W *)(job.in + a.in);
    W *out = (W *)(job.out + a.out);
    const int lane = (int)threadIdx.x % LAYOUT_TILE, line = (int)threadIdx.x / LAYOUT_TILE;
    for (int64_t at = blockIdx.x; at < t.tiles; at += gridDim.x) {
        int64_t item = t.across.of(at);
        const int64_t column = (at - item * t.across.by) * LAYOUT_TILE, above = t.down.of(item);
        const int64_t row = (item - above * t.down.by) * LAYOUT_TILE;
        int64_t from = a.from_start + row + column * t.column_from, to = a.to_start + row * t.row_to + column;
        item = above;
        for (int d = a.rank - 3; d >= 0; d--) {
            const layout_axis &axis = a.axis[d];
            const int64_t left = axis.per.of(item), i = item - left * axis.per.by;
            item = left;
            from += i * axis.from;
            to += i * axis.to;
        }
#pragma unroll
        for (int c = line; c < LAYOUT_TILE; c += LINES)
            if (row + lane < t.rows && column + c < t.columns)
                tile[c * PITCH + lane] = __ldg(in + from + c * t.column_from + lane);
        __syncthreads();
#pragma unroll
        for (int r = line; r < LAYOUT_TILE; r += LINES)
            if (row + r < t.rows && column + lane < t.columns) out[to + r * t.row_to + lane] = tile[lane * PITCH + r];
        __syncthreads();
    }
    if (a.last) ks_leave(site);
}

#endif
