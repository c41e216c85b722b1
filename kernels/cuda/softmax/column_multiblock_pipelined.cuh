/* Softmax along an axis that is not contiguous and longer than a CTA's registers, by a ring as in softmax_ring.cuh: parts of
 * tiles come in while others wait for the pairs of their columns.
 *
 * The pairs go two ways. A member of the team gathers what all of them know of its own columns, and tells everyone what
 * that comes to: two messages behind each other, of which nobody waits for but the warps that pass them on.
 *
 * In a CTA a tile's cell goes round: the workers sum a tile, one warp reads the sums, another writes the whole, the
 * workers read it. Two gates of the cell hand it on, at which each thread arrives for itself, since racecheck takes an
 * arrival for that of one thread alone:
 *
 *   summed  by all workers: the tile's pairs are written, and the whole of FLOW_CELLS tiles ago is read
 *   told    by both warps: the pairs are read, the whole is written
 *
 * No gate gets a phase ahead of one that waits for it: a worker is FLOW_BEHIND < FLOW_CELLS tiles ahead of what it
 * writes, so it arrives at a cell's `summed` when it has waited for the cell's `told` of the tile before; and at `told`
 * both warps arrive when they have waited for `summed`. Nor is a note written over that somebody has yet to read: a CTA
 * posts its pairs of a tile when it was told of each column FLOW_CELLS < FLOW_TURNS tiles ago, so when all had gathered
 * that; and who tells a CTA of a tile has that CTA's pairs of it, which come when it has heard all of FLOW_CELLS tiles
 * ago. */
#ifndef KS_SOFTMAX_FLOW_CUH
#define KS_SOFTMAX_FLOW_CUH

#include "cuda/softmax/columns.cuh"
#include "cuda/softmax/cta_group.cuh"

enum {
    FLOW_THREADS = 512, /* workers; three more warps pass pairs on */
    FLOW_PACKS = 4,     /* of a worker in a part of a tile */
    FLOW_SLOTS = 6,
    FLOW_BEHIND = 3, /* tiles later the results of one are written */
    FLOW_CELLS = 4,  /* tiles that a CTA may be at: who sums one has the pairs of FLOW_CELLS tiles ago */
    FLOW_TURNS = 5   /* places of a note */
};

/* Pairs that some write and one reads, as records are: softmax_team.cuh. Half as long, of which more fit. */
struct softmax_notes {
    uint64_t *places; /* [FLOW_TURNS][count] */
    int count;

    __device__ __forceinline__ void post(uint32_t round, int i, softmax_pair<float> n) const
    {
        const uint32_t sum = (__float_as_uint(n.sum) & INT32_MAX) | (round / FLOW_TURNS & 1) << 31;
        ks_write_relaxed(&places[round % FLOW_TURNS * count + i], (uint64_t)sum << 32 | __float_as_uint(n.h));
    }
    __device__ __forceinline__ softmax_pair<float> wait(uint32_t round, int i) const
    {
        uint64_t word;
        do word = ks_read_relaxed(&places[round % FLOW_TURNS * count + i]);
        while (word == 0 || word >> 63 != (round / FLOW_TURNS & 1));
        return {__uint_as_float((uint32_t)word), __uint_as_float((uint32_t)(word >> 32) & INT32_MAX)};
    }
    __device__ __forceinline__ void clear() const /* by a warp */
    {
        for (int i = threadIdx.x % KS_WARP; i < FLOW_TURNS * count; i += KS_WARP) places[i] = 0;
    }
};

/* Notes of a member: on its own columns from all, and on all columns from their members. */
__host__ __device__ inline int softmax_flow_own(int columns, int parts)
{
    return (columns + parts - 1) / parts * parts;
}

inline size_t softmax_flow_counters(int grid, int columns, int parts)
{
    return (size_t)grid * FLOW_TURNS * 2 * (size_t)(softmax_flow_own(columns, parts) + columns); /* words */
}

/* Bytes of what a CTA knows of a tile: a pair of each warp's, and the whole. */
__host__ __device__ constexpr size_t softmax_flow_cells(int columns)
{
    return ((size_t)FLOW_THREADS / KS_WARP + 1) * columns * sizeof(softmax_pair<float>);
}

/* A tile for each team of `parts` CTAs at a time, `share` of the axis each: not more than the packs of a worker. lanes: fewer
 * than a warp's, a power of two. */
template <class T>
__global__ void __launch_bounds__(FLOW_THREADS + 3 * KS_WARP, 1)
    softmax_flow(ks_site site, softmax_shape s, int lanes, int parts, int64_t share)
{
    typedef uint32_t Index;
    constexpr int E = ks_vector<T>::length, V = FLOW_PACKS, SLOTS = FLOW_SLOTS, BEHIND = FLOW_BEHIND,
                  CELLS = FLOW_CELLS;
    constexpr int AHEAD = SLOTS - BEHIND, WARPS = FLOW_THREADS / (int)KS_WARP;
    static_assert(BEHIND < CELLS && CELLS < FLOW_TURNS, "nothing is lost before its use");
    __shared__ uint64_t summed[CELLS], told[CELLS];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<float> rule(s);
    const int lane = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP, columns = lanes * E;
    const int teams = gridDim.x / parts, team = blockIdx.x / parts, me = blockIdx.x - team * parts;
    const int own = softmax_flow_own(columns, parts);
    /* A member's notes: [its column][who tells of it], and [column]. */
    const auto gathers = [&](int member) {
        uint64_t *const notes = (uint64_t *)ks_counters(site);
        return softmax_notes{notes + (size_t)FLOW_TURNS * (own + columns) * (team * parts + member), own};
    };
    const auto hears = [&](int member) { return softmax_notes{gathers(member).places + FLOW_TURNS * own, columns}; };
    /* Pairs: [warp][column], and [column]. */
    const auto tile = [&](int r) {
        unsigned char *const cells = (unsigned char *)(ks_dynamic + SLOTS * V * FLOW_THREADS);
        softmax_tile<float> t(cells + r % CELLS * softmax_flow_cells(columns), lanes, E, FLOW_THREADS);
        t.pitch = columns;
        t.whole = t.group + WARPS * columns;
        return t;
    };
    if (threadIdx.x < CELLS) {
        ks_gate_open(&summed[threadIdx.x], FLOW_THREADS);
        ks_gate_open(&told[threadIdx.x], 2 * KS_WARP);
    }
    __syncthreads();
    const Index tiles = (Index)((s.outer * (s.inner / E) + lanes - 1) / lanes);
    const int rounds = (int)((tiles - team + teams - 1) / teams);
    if (warp == WARPS) { /* what the CTA knows */
#pragma unroll 1
        for (int r = 0; r < rounds; r++) {
            ks_gate_wait(&summed[r % CELLS], r / CELLS & 1);
            const softmax_tile<float> t = tile(r);
#pragma unroll 1
            for (int c = lane; c < columns; c += KS_WARP) {
                softmax_pair<float> mine[WARPS], whole = {-INFINITY, 0};
#pragma unroll
                for (int g = 0; g < WARPS; g++) mine[g] = t.group[g * t.pitch + c];
#pragma unroll
                for (int g = 0; g < WARPS; g++) whole.h = ks_max(whole.h, mine[g].h);
#pragma unroll
                for (int g = 0; g < WARPS; g++) whole.sum += mine[g].sum * softmax_weight(mine[g].h, whole.h, rule);
                gathers(c % parts).post((uint32_t)r, c / parts * parts + me, whole);
            }
            ks_gate_arrive(&told[r % CELLS]);
        }
    } else if (warp == WARPS + 1) { /* of each of its columns */
#pragma unroll 1
        for (int r = 0; r < rounds; r++)
#pragma unroll 1
            for (int c = me, first = 0; c < columns; c += parts, first += parts) {
                softmax_pair<float> whole = softmax_none<float>();
#pragma unroll 1
                for (int i = lane; i < parts; i += KS_WARP)
                    whole = softmax_both(whole, gathers(me).wait((uint32_t)r, first + i), rule);
                whole = softmax_join(whole, KS_WARP, rule);
#pragma unroll 1
                for (int i = lane; i < parts; i += KS_WARP) hears(i).post((uint32_t)r, c, whole);
            }
        gathers(me).clear();
    } else if (warp > WARPS) {
#pragma unroll 1
        for (int r = 0; r < rounds; r++) {
            const softmax_tile<float> t = tile(r);
            ks_gate_wait(&summed[r % CELLS], r / CELLS & 1);
#pragma unroll 1
            for (int c = lane; c < columns; c += KS_WARP)
                t.whole[c] = softmax_settle(hears(me).wait((uint32_t)r, c), rule);
            ks_gate_arrive(&told[r % CELLS]);
        }
        __syncwarp(); /* all of it is read */
        hears(me).clear();
    } else {
        const int64_t begin = me * share, end = min(begin + share, s.length);
        const softmax_strip<Index> strip((Index)(s.inner / E), lanes, begin, end, FLOW_THREADS);
        const auto slot = [&](int r) { return ks_dynamic + r % SLOTS * V * FLOW_THREADS + threadIdx.x; };
        const auto place = [&](int r, Index *base, int *count) {
            strip.place(s, (Index)(team + r * teams), base, count);
        };
        const auto fetch = [&](int r) {
            if (r < rounds) {
                Index base;
                int count;
                place(r, &base, &count);
                const uint4 *const in = (const uint4 *)(job.in + s.offset);
#pragma unroll
                for (int v = 0; v < V; v++)
                    if (v < count) ks_copy_async(slot(r) + v * FLOW_THREADS, in + (base + v * strip.stride));
            }
            ks_copy_group();
        };
#pragma unroll 1
        for (int r = 0; r < AHEAD; r++) fetch(r);
#pragma unroll 1
        for (int r = 0; r < rounds + BEHIND; r++) {
            const int q = r - BEHIND;
            softmax_pack<T, E> x[V];
            Index base;
            int count;
            if (r < rounds) {
                place(r, &base, &count);
                ks_copy_wait_but<AHEAD - 1>();
#pragma unroll
                for (int v = 0; v < V; v++) {
                    x[v].word = slot(r)[v * FLOW_THREADS];
                    if (v >= count) softmax_blank(x[v], 0);
                }
                softmax_turn(x, s.sign, [&](int v) { return v < count; });
                softmax_columns_tell<false>(x, tile(r), rule);
                ks_gate_arrive(&summed[r % CELLS]);
            }
            if (q >= 0) {
                ks_gate_wait(&told[q % CELLS], q / CELLS & 1);
                place(q, &base, &count);
#pragma unroll
                for (int v = 0; v < V; v++) x[v].word = slot(q)[v * FLOW_THREADS];
                softmax_turn(x, s.sign);
                softmax_columns_values<false>(x, tile(q), rule);
                uint4 *const out = (uint4 *)job.out;
#pragma unroll
                for (int v = 0; v < V; v++)
                    if (v < count) out[base + v * strip.stride] = x[v].word;
            }
            fetch(r + AHEAD);
        }
    }
    ks_leave(site);
}

#endif
