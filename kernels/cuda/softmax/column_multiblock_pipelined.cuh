/* Softmax along an axis that is not contiguous and longer than a CTA's registers, through a pipeline as in
 * row_multiblock_pipelined.cuh: parts of tiles come in while others wait for the pairs of their columns.
 *
 * The pairs take two messages. Each CTA of the CTA group owns some columns: it combines the pairs that all CTAs publish of
 * them, and publishes the results to all. Only the warps that pass messages on wait for them.
 *
 * Within a CTA a tile's cell is used in rotation: the consumer warps write the tile's pairs, one warp reads these, another
 * writes the combined pairs, the consumer warps read them. Two mbarriers of a cell order this; each thread arrives for itself,
 * since racecheck takes an arrival for that of one thread alone:
 *
 *   summed    arrival of all consumers: the tile's pairs are written, and the combined ones of CELLS tiles ago are read
 *   combined  arrival of both warps: the pairs are read, the combined ones are written
 *
 * Phases. No mbarrier is a phase ahead of a thread that waits for it: a consumer is BEHIND < CELLS tiles ahead of what it
 * writes, so it arrives at a cell's `summed` after it has waited for the cell's `combined` of the tile before; both warps
 * arrive at `combined` after they have waited for `summed`.
 * Slots. No message is overwritten before it is consumed: a CTA publishes its pairs of a tile after it has the results of
 * all columns of CELLS < SLOTS tiles ago, so after all CTAs have consumed the pairs of that tile; and a CTA that publishes
 * results of a tile has every CTA's pairs of it, which each publishes after it has consumed the results of CELLS tiles ago. */
#ifndef KS_SOFTMAX_COLUMN_MULTIBLOCK_PIPELINED_CUH
#define KS_SOFTMAX_COLUMN_MULTIBLOCK_PIPELINED_CUH

#include "cuda/softmax/columns.cuh"
#include "cuda/softmax/cta_group.cuh"

enum {
    COLUMN_PIPELINE_CONSUMERS = 512, /* threads; three more warps exchange pairs */
    COLUMN_PIPELINE_PACKS = 4,       /* of a consumer thread in a part of a tile */
    COLUMN_PIPELINE_STAGES = 6,
    COLUMN_PIPELINE_BEHIND = 3, /* tiles later the results of one are written */
    COLUMN_PIPELINE_CELLS = 4,  /* of tiles: a CTA that sums one has the pairs of so many tiles ago */
    COLUMN_PIPELINE_SLOTS = 5   /* of a message */
};

/* Messages as in cta_group.cuh, half as long, of which more fit. */
struct softmax_messages {
    uint64_t *slots; /* [COLUMN_PIPELINE_SLOTS][count] */
    int count;

    __device__ __forceinline__ void publish(uint32_t round, int i, softmax_pair<float> n) const
    {
        const uint32_t sum = (__float_as_uint(n.sum) & INT32_MAX) | (round / COLUMN_PIPELINE_SLOTS & 1) << 31;
        ks_write_relaxed(&slots[round % COLUMN_PIPELINE_SLOTS * count + i], (uint64_t)sum << 32 | __float_as_uint(n.h));
    }
    __device__ __forceinline__ softmax_pair<float> consume(uint32_t round, int i) const
    {
        uint64_t word;
        do word = ks_read_relaxed(&slots[round % COLUMN_PIPELINE_SLOTS * count + i]);
        while (word == 0 || word >> 63 != (round / COLUMN_PIPELINE_SLOTS & 1));
        return {__uint_as_float((uint32_t)word), __uint_as_float((uint32_t)(word >> 32) & INT32_MAX)};
    }
    __device__ __forceinline__ void clear() const /* by a warp */
    {
        for (int i = threadIdx.x % KS_WARP; i < COLUMN_PIPELINE_SLOTS * count; i += KS_WARP) slots[i] = 0;
    }
};

/* Messages to a CTA: of its own columns from all CTAs, and of all columns from their owners. */
__host__ __device__ inline int softmax_column_own(int columns, int parts)
{
    return (columns + parts - 1) / parts * parts;
}

inline size_t softmax_column_counters(int grid, int columns, int parts)
{
    return (size_t)grid * COLUMN_PIPELINE_SLOTS * 2 *
           (size_t)(softmax_column_own(columns, parts) + columns); /* words */
}

/* Bytes of what a CTA knows of a tile: a pair of each warp's, and the whole. */
__host__ __device__ constexpr size_t softmax_column_cells(int columns)
{
    return ((size_t)COLUMN_PIPELINE_CONSUMERS / KS_WARP + 1) * columns * sizeof(softmax_pair<float>);
}

/* The pair of a column of a tile, from the pairs of the consumer warps. */
__device__ __forceinline__ softmax_pair<float> softmax_join_warps(const softmax_tile<float> &t, int c,
                                                                  const softmax_rule<float> &rule)
{
    constexpr int WARPS = COLUMN_PIPELINE_CONSUMERS / (int)KS_WARP;
    softmax_pair<float> mine[WARPS], whole = {-INFINITY, 0};
#pragma unroll
    for (int g = 0; g < WARPS; g++) mine[g] = t.group[g * t.pitch + c];
#pragma unroll
    for (int g = 0; g < WARPS; g++) whole.h = ks_max(whole.h, mine[g].h);
#pragma unroll
    for (int g = 0; g < WARPS; g++) whole.sum += mine[g].sum * softmax_weight(mine[g].h, whole.h, rule);
    return whole;
}

/* The pair of a column of a round, joined by a warp from the messages i = first ... of all CTAs. */
__device__ __forceinline__ softmax_pair<float> softmax_join_sums(const softmax_messages &sums, uint32_t r, int first,
                                                                 int parts, const softmax_rule<float> &rule)
{
    softmax_pair<float> whole = softmax_none<float>();
#pragma unroll 1
    for (int i = threadIdx.x % KS_WARP; i < parts; i += KS_WARP)
        whole = softmax_both(whole, sums.consume(r, first + i), rule);
    return softmax_join(whole, KS_WARP, rule);
}

/* A tile for each CTA group of `parts` CTAs at a time, `share` of the axis each: not more than the packs of a consumer thread.
 * lanes: fewer than a warp has threads, a power of two. */
template <class T>
__global__ void __launch_bounds__(COLUMN_PIPELINE_CONSUMERS + 3 * KS_WARP, 1)
    softmax_column_multiblock_pipelined(ks_site site, softmax_shape s, int lanes, int parts, int64_t share)
{
    typedef uint32_t Index;
    constexpr int E = ks_vector<T>::length, V = COLUMN_PIPELINE_PACKS, STAGES = COLUMN_PIPELINE_STAGES,
                  BEHIND = COLUMN_PIPELINE_BEHIND, CELLS = COLUMN_PIPELINE_CELLS, CONSUMERS = COLUMN_PIPELINE_CONSUMERS;
    constexpr int AHEAD = STAGES - BEHIND, WARPS = CONSUMERS / (int)KS_WARP;
    static_assert(BEHIND < CELLS && CELLS < COLUMN_PIPELINE_SLOTS, "nothing is lost before its use");
    __shared__ uint64_t summed[CELLS], combined[CELLS];
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<float> rule(s);
    const int lane_id = threadIdx.x % KS_WARP, warp = threadIdx.x / KS_WARP, columns = lanes * E;
    const int cta_groups = gridDim.x / parts, cta_group = blockIdx.x / parts, rank = blockIdx.x - cta_group * parts;
    const int own = softmax_column_own(columns, parts);
    /* Messages to a CTA: [its column][the publishing CTA], and [column]. */
    const auto sums_of = [&](int rank) {
        uint64_t *const messages = (uint64_t *)ks_counters(site);
        return softmax_messages{messages + (size_t)COLUMN_PIPELINE_SLOTS * (own + columns) * (cta_group * parts + rank),
                                own};
    };
    const auto results = [&](int rank) {
        return softmax_messages{sums_of(rank).slots + COLUMN_PIPELINE_SLOTS * own, columns};
    };
    /* Pairs: [warp][column], and [column]. */
    const auto tile = [&](int r) {
        unsigned char *const cells = (unsigned char *)(ks_dynamic + STAGES * V * CONSUMERS);
        softmax_tile<float> t(cells + r % CELLS * softmax_column_cells(columns), lanes, E, CONSUMERS);
        t.pitch = columns;
        t.whole = t.group + WARPS * columns;
        return t;
    };
    if (threadIdx.x < CELLS) {
        ks_mbarrier_init(&summed[threadIdx.x], CONSUMERS);
        ks_mbarrier_init(&combined[threadIdx.x], 2 * KS_WARP);
    }
    __syncthreads();
    const Index tiles = (Index)((s.outer * (s.inner / E) + lanes - 1) / lanes);
    const int rounds = (int)((tiles - cta_group + cta_groups - 1) / cta_groups);
    if (warp == WARPS) { /* what the CTA knows */
#pragma unroll 1
        for (int r = 0; r < rounds; r++) {
            ks_mbarrier_wait(&summed[r % CELLS], r / CELLS & 1);
            const softmax_tile<float> t = tile(r);
#pragma unroll 1
            for (int c = lane_id; c < columns; c += KS_WARP)
                sums_of(c % parts).publish((uint32_t)r, c / parts * parts + rank, softmax_join_warps(t, c, rule));
            ks_mbarrier_arrive(&combined[r % CELLS]);
        }
    } else if (warp == WARPS + 1) { /* of each of its columns */
#pragma unroll 1
        for (int r = 0; r < rounds; r++)
#pragma unroll 1
            for (int c = rank, first = 0; c < columns; c += parts, first += parts) {
                const softmax_pair<float> whole = softmax_join_sums(sums_of(rank), (uint32_t)r, first, parts, rule);
#pragma unroll 1
                for (int i = lane_id; i < parts; i += KS_WARP) results(i).publish((uint32_t)r, c, whole);
            }
        sums_of(rank).clear();
    } else if (warp > WARPS) {
#pragma unroll 1
        for (int r = 0; r < rounds; r++) {
            const softmax_tile<float> t = tile(r);
            ks_mbarrier_wait(&summed[r % CELLS], r / CELLS & 1);
#pragma unroll 1
            for (int c = lane_id; c < columns; c += KS_WARP)
                t.whole[c] = softmax_settle(results(rank).consume((uint32_t)r, c), rule);
            ks_mbarrier_arrive(&combined[r % CELLS]);
        }
        __syncwarp(); /* all of it is read */
        results(rank).clear();
    } else {
        const int64_t begin = rank * share, end = min(begin + share, s.length);
        const softmax_strip<Index> strip((Index)(s.inner / E), lanes, begin, end, CONSUMERS);
        const auto stage = [&](int r) { return ks_dynamic + r % STAGES * V * CONSUMERS + threadIdx.x; };
        const auto fetch = [&](int r) {
            if (r < rounds) {
                Index base;
                int count;
                strip.place(s, (Index)(cta_group + r * cta_groups), &base, &count);
                const uint4 *const in = (const uint4 *)(job.in + s.offset);
#pragma unroll
                for (int v = 0; v < V; v++)
                    if (v < count) ks_copy_async(stage(r) + v * CONSUMERS, in + (base + v * strip.stride));
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
                strip.place(s, (Index)(cta_group + r * cta_groups), &base, &count);
                ks_copy_wait_but<AHEAD - 1>();
#pragma unroll
                for (int v = 0; v < V; v++) {
                    x[v].word = stage(r)[v * CONSUMERS];
                    if (v >= count) softmax_blank(x[v], 0);
                }
                softmax_apply_sign(x, s.sign, [&](int v) { return v < count; });
                softmax_column_publish<false>(x, tile(r), rule);
                ks_mbarrier_arrive(&summed[r % CELLS]);
            }
            if (q >= 0) {
                ks_mbarrier_wait(&combined[q % CELLS], q / CELLS & 1);
                strip.place(s, (Index)(cta_group + q * cta_groups), &base, &count);
#pragma unroll
                for (int v = 0; v < V; v++) x[v].word = stage(q)[v * CONSUMERS];
                softmax_apply_sign(x, s.sign);
                softmax_column_values<false>(x, tile(q), rule);
                softmax_column_store(x, (uint4 *)job.out, base, strip.stride, count);
            }
            fetch(r + AHEAD);
        }
    }
    ks_leave(site);
}

#endif
