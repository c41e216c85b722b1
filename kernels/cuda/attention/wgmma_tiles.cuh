/* The tiles of attention_wgmma (wgmma.cuh): which one a CTA has in which round, its rows, and the keys that they take.
 *
 * Threads  any. Numbers of tiles, rows and keys are of 32 bits: registers are few, and the planner (plan.cu) sees to it that they suffice. */
#ifndef KS_ATTENTION_WGMMA_TILES_CUH
#define KS_ATTENTION_WGMMA_TILES_CUH

#include "cuda/attention/common.cuh"

enum { ATTENTION_WGMMA_ROWS = 128 };

/* Rows [row, stop) of a key head, the keys [first, end) that some of them take, and those that each takes. */
struct attention_wgmma_tile {
    int batch, kv_head, row, stop, keys, first, end, common_first, common_end;
};

/* A CTA's tile of a round, of which every other one goes the other way: what is longer comes first, so that this evens out. */
__device__ __forceinline__ uint32_t attention_wgmma_at(uint32_t round)
{
    return round * gridDim.x + (round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

/* The longest tiles of all heads of a.together units come first, and units that share keys follow each other. */
template <int KEYS>
__device__ __forceinline__ attention_wgmma_tile attention_wgmma_tile_of(const ks_site &site, const attention_shape &a,
                                                                        const ks_job_sides &job, uint32_t at)
{
    constexpr int ROWS = ATTENTION_WGMMA_ROWS;
    const uint32_t all = (uint32_t)a.together * (uint32_t)a.tiles, heads = (uint32_t)a.heads, place = at / all;
    const uint32_t units = min((uint32_t)a.together, (uint32_t)a.units - place * (uint32_t)a.together);
    const uint32_t within = at - place * all, depth = within / (units * heads), rest = within - depth * units * heads;
    const uint32_t unit = rest / heads, head = rest - unit * heads;
    const uint32_t number = (uint32_t)a.unit + place * (uint32_t)a.together + unit;
    attention_wgmma_tile t;
    t.batch = (int)(number / (uint32_t)a.s.kv_heads);
    t.kv_head = (int)(number - (uint32_t)t.batch * (uint32_t)a.s.kv_heads);
    t.keys = (int)attention_keys(site, a, job, t.batch);
    t.row = (int)head * (int)a.head_rows + ((int)((a.head_rows - 1) / ROWS) - (int)depth) * ROWS;
    t.stop = min(t.row + ROWS, ((int)head + 1) * (int)a.head_rows);
    const ks_attention_range span = attention_span<uint32_t>(a.s, t.row, t.stop - t.row, t.keys),
                             common = attention_common<uint32_t>(a.s, t.row, t.stop - t.row, t.keys);
    t.first = (int)span.first / KEYS * KEYS;
    t.end = max((int)span.end, t.first + 1); /* a tile without keys goes over a block that no row takes */
    t.common_first = (int)common.first;
    t.common_end = (int)common.end;
    return t;
}

__device__ __forceinline__ attention_row attention_wgmma_row(const attention_shape &a, const attention_wgmma_tile &t,
                                                             int row)
{
    attention_row r = attention_row_of<uint32_t>(a, t.batch, t.kv_head, min(row, t.stop - 1), t.keys);
    r.there = row < t.stop;
    if (!r.there) r.range.end = r.range.first;
    return r;
}

/* Which keys a row takes. */
struct attention_wgmma_takes {
    struct {
        int first, end;
    } range;
    int64_t mask;

    __device__ __forceinline__ void set(const attention_row &r)
    {
        range = {(int)r.range.first, (int)r.range.end};
        mask = r.mask;
    }
};

/* What a consumer knows of its tile. */
template <int KEYS>
struct attention_work {
    attention_wgmma_tile tile;
    int row;        /* of this thread, the first one */
    unsigned query; /* its warpgroup's, in shared memory */
    attention_wgmma_takes r[2];

    __device__ __forceinline__ attention_work(const attention_shape &a, const attention_wgmma_tile &t, unsigned at)
        : tile(t), query(at)
    {
        const int lane_id = threadIdx.x % KS_WARP;
        row = tile.row + (int)threadIdx.x / KS_WARP * 16 + lane_id / 4;
        for (int h = 0; h < 2; h++) r[h].set(attention_wgmma_row(a, tile, row + 8 * h));
    }
    /* Each row takes all keys of the block. */
    __device__ __forceinline__ bool is_whole(const attention_shape &a, int first) const
    {
        return !a.s.masked && tile.common_first <= first && tile.common_end >= first + KEYS;
    }
    /* A key that is there is not taken by some row. */
    __device__ __forceinline__ bool leaves(const attention_shape &a, int first) const
    {
        return a.s.masked || tile.common_first > first || tile.common_end < min(first + KEYS, (int)a.s.keys);
    }
};

#endif
