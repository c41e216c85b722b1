/* Softmax along an axis that is not contiguous and longer than a CTA's registers: a cluster holds a tile of columns in its shared
 * memory, so that each byte is read and written once, and the pairs of the columns go from CTA to CTA without global memory.
 *
 * Two CTAs of different clusters share an SM: while one waits for its pairs, the other reads and writes. A CTA stays for several
 * tiles; what is written of one makes room for the next one. Each thread copies and reads its own packs only.
 *
 * Pairs. A CTA leaves its pairs of tile r at own[r % 2]; behind the cluster's barrier of the tile all CTAs read them. They are
 * written again for tile r + 2, behind the barrier of tile r + 1, at which every CTA arrives after its reads of tile r. A CTA
 * ends behind a barrier of its own, when no CTA reads its memory any more. Lines of columns are whole vectors. */
#ifndef KS_SOFTMAX_COLUMN_CLUSTER_CUH
#define KS_SOFTMAX_COLUMN_CLUSTER_CUH

#include "cuda/common/ptx_mma.cuh"
#include "cuda/softmax/columns.cuh"

enum {
    CLUSTER_CTAS_MAX = 16,
    CLUSTER_COLUMNS_MAX = 128, /* of a tile: CLUSTER_READERS threads for each of them */
    CLUSTER_READERS = 4
};

/* Bytes behind the pairs of a tile: those that go to other CTAs. */
__host__ __device__ constexpr size_t softmax_cluster_bytes(int lanes, int E)
{
    return 2 * (size_t)lanes * E * sizeof(softmax_pair<float>);
}

/* Where a thread's packs of a tile are. */
struct softmax_cluster_place {
    uint32_t base; /* pack of the tensor */
    int count;     /* packs */
};

/* A CTA's rows of a tile, by rows of `lanes` threads. */
template <int E>
struct softmax_cluster_strip {
    int64_t
        share; /* of the axis; with what else a kernel is given, it is read where it is needed, and takes no register */
    int lanes, rank;

    /* Rows that a CTA takes side by side, and those that it has in all. */
    __device__ __forceinline__ int step() const
    {
        return GROUP_CTA_THREADS / lanes;
    }
    __device__ __forceinline__ int rows(const softmax_shape &s) const
    {
        return (int)max(min(share, s.length - rank * share), (int64_t)0);
    }
    __device__ __forceinline__ int64_t tiles(const softmax_shape &s) const
    {
        return (s.outer * (s.inner / E) + lanes - 1) / lanes;
    }
    __device__ __forceinline__ softmax_cluster_place place(const softmax_shape &s, int64_t tile) const
    {
        const int across = threadIdx.x % lanes, down = threadIdx.x / lanes, here = rows(s);
        const int64_t packs = s.inner / E, column = tile * lanes + across, outer = column / packs;
        softmax_cluster_place at;
        at.base = (uint32_t)((outer * s.length + rank * share + down) * packs + (column - outer * packs));
        at.count = column < s.outer * packs && down < here ? (here - down - 1) / step() + 1 : 0;
        return at;
    }
};

/* The pairs of all CTAs of the cluster, in their order. The CTA calls it whole. */
__device__ __forceinline__ void softmax_join_cluster(const softmax_tile<float> &tile, const softmax_pair<float> *own,
                                                     int parts, const softmax_rule<float> &rule)
{
    constexpr int EACH = CLUSTER_CTAS_MAX / CLUSTER_READERS;
    const int columns = tile.columns, column = threadIdx.x / CLUSTER_READERS, first = threadIdx.x % CLUSTER_READERS;
    if (threadIdx.x / KS_WARP * KS_WARP >= columns * CLUSTER_READERS) return; /* whole warps only: they shuffle */
    const unsigned at = mm_shared_address(own + column);
    softmax_pair<float> mine[EACH], whole = softmax_none<float>();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int rank = first * EACH + i;
        mine[i] = softmax_none<float>();
        if (rank < parts && column < columns) mm_peer_load(mine[i].h, mine[i].sum, mm_peer_address(at, (unsigned)rank));
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) whole = softmax_both(whole, mine[i], rule);
    whole = softmax_join(whole, CLUSTER_READERS, rule);
    if (first == 0 && column < columns) tile.whole[column] = softmax_settle(whole, rule);
}

/* The greatest element of each of a thread's columns, over the threads that join by shuffles. */
template <class T, int E, class Part>
__device__ __forceinline__ softmax_pack<T, E> softmax_cluster_most(const Part &part, int held,
                                                                   const softmax_tile<float> &tile)
{
    softmax_pack<T, E> x[Part::PACKS], most;
    softmax_blank(most, 0);
#pragma unroll 1
    for (int c = 0; c < held; c += Part::PACKS) {
        part.load_first(x, c);
#pragma unroll
        for (int v = 0; v < Part::PACKS; v++) most = softmax_greater(most, x[v]);
    }
    tile.over_lanes(most);
    return most;
}

/* The sums of their terms, likewise. */
template <class T, int E, class Part>
__device__ __forceinline__ void softmax_cluster_sums(const Part &part, int held, const softmax_tile<float> &tile,
                                                     const softmax_rule<float> &rule, const softmax_pack<T, E> &most,
                                                     float (&sum)[E])
{
    softmax_pack<T, E> x[Part::PACKS];
#pragma unroll
    for (int e = 0; e < E; e++) sum[e] = 0;
#pragma unroll 1
    for (int c = 0; c < held; c += Part::PACKS) {
        part.load_kept(x, c);
#pragma unroll
        for (int e = 0; e < E; e++) {
            float term[Part::PACKS];
#pragma unroll
            for (int v = 0; v < Part::PACKS; v++)
                term[v] = rule.term(rule.distance(x[v].get(e), ks_reference(most.get(e) * 0.5f)));
            sum[e] += ks_tree(term);
        }
    }
    __syncwarp();
    tile.over_lanes(sum);
}

/* A tile for each cluster of `parts` CTAs at a time, `share` of the axis each; kept: the most packs of a thread. The
 * tensor has fewer than 2^32 packs. */
template <class T>
__global__ void __launch_bounds__(GROUP_CTA_THREADS, 2)
    softmax_column_cluster(ks_site site, softmax_shape s, int lanes, int parts, int64_t share, int kept)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int E = ks_vector<T>::length, V = COLUMN_CLUSTER_PACKS;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    if (parts > 1) mm_cluster_arrive_relaxed();
    const softmax_rule<float> rule(s);
    const int cluster = blockIdx.x / parts, rank = blockIdx.x - cluster * parts, clusters = gridDim.x / parts;
    softmax_tile<float> tile(ks_dynamic + kept * GROUP_CTA_THREADS, lanes, E);
    softmax_pair<float> *const whole = tile.whole, *const own = whole + tile.columns; /* [2][columns] */
    const softmax_cluster_strip<E> strip = {share, lanes, rank};
    const int held = min((strip.rows(s) + strip.step() - 1) / strip.step(), kept), columns = tile.columns;
    const int rounds = (int)((strip.tiles(s) - cluster + clusters - 1) / clusters);
    uint4 *const out = (uint4 *)job.out;
    softmax_column_part<T, E, V, uint32_t> part = {};
    const auto turn_to = [&](const softmax_cluster_place &at) {
        part.base = at.base;
        part.count = at.count;
    };
    part.in = (const uint4 *)(job.in + s.offset);
    part.keep = ks_dynamic + threadIdx.x;
    part.stride = (uint32_t)(strip.step() * s.inner / E);
    part.threads = GROUP_CTA_THREADS;
    part.sign = s.sign;
    softmax_cluster_place here = strip.place(s, cluster);
    turn_to(here);
#pragma unroll 1
    for (int c = 0; c < held; c += V) part.fetch(part.base, part.count, c);
    __syncwarp();
    if (parts > 1) mm_cluster_wait(); /* all CTAs have begun */
#pragma unroll 1
    for (int r = 0; r < rounds; r++) {
        float sum[E];
        ks_copy_wait();
        const softmax_pack<T, E> most = softmax_cluster_most<T, E>(part, held, tile);
        softmax_cluster_sums(part, held, tile, rule, most, sum);
#pragma unroll
        for (int e = 0; e < E; e++) tile.publish(e, {most.get(e) * 0.5f, sum[e]});
        __syncthreads();
        softmax_pair<float> *const mine = own + (r & 1) * columns;
        tile.whole = whole;
        softmax_join_columns(
            tile.groups, columns, rule, [&](int g, int column) { return tile.group[g * tile.pitch + column]; },
            [&](int column, softmax_pair<float> n) {
                if (parts > 1)
                    mine[column] = n;
                else
                    whole[column] = softmax_settle(n, rule);
            });
        if (parts > 1) {
            __syncwarp();
            mm_cluster_arrive();
            mm_cluster_wait();
            softmax_join_cluster(tile, mine, parts, rule);
        }
        __syncthreads();
        const bool more = r + 1 < rounds;
        const softmax_cluster_place next = strip.place(s, cluster + (int64_t)(r + more) * clusters);
        softmax_pack<T, E> x[V];
#pragma unroll 1
        for (int c = 0; c < held; c += V) {
            part.load_kept(x, c);
            softmax_column_values<false>(x, tile, rule);
            if (more) part.fetch(next.base, next.count, c); /* what lay there is in registers */
            part.store(x, out, c);
        }
        here = next;
        turn_to(here);
    }
    if (parts > 1) {
        __syncwarp();
        mm_cluster_arrive_relaxed();
        mm_cluster_wait();
    }
    ks_leave(site);
#endif
}

#endif
