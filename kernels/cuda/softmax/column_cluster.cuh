/* Softmax along an axis that is not contiguous and longer than a CTA's registers: a cluster holds a tile of columns in its shared
 * memory, so that each byte is read and written once, and the pairs of the columns go from CTA to CTA without global memory.
 *
 * Two CTAs of different clusters share an SM: while one waits for its pairs, the other reads and writes. A CTA stays for several
 * tiles; what is written of one makes room for the next one. Each thread copies and reads its own packs only.
 *
 * Pairs. A CTA leaves its pairs of tile r at own[r % 2]; behind the cluster's barrier of the tile all CTAs read them. They are
 * written again for tile r + 2, behind the barrier of tile r + 1, at which every CTA arrives after its reads of tile r. A CTA
 * ends behind a barrier of its own, when nobody reads its memory any more. */
#ifndef KS_SOFTMAX_COLUMN_CLUSTER_CUH
#define KS_SOFTMAX_COLUMN_CLUSTER_CUH

#include "cuda/common/ptx_mma.cuh"
#include "cuda/softmax/columns.cuh"

enum {
    CLUSTER_CTAS_MAX = 16,
    CLUSTER_COLUMNS_MAX = 128, /* of a tile: CLUSTER_READERS threads for each of them */
    CLUSTER_READERS = 4
};

/* Of all CTAs of the cluster, in their order: the pair of each column to tile.whole. The CTA calls it whole. */
__device__ __forceinline__ void softmax_join_cluster(const softmax_tile<float> &tile, const softmax_pair<float> *own,
                                                     int parts, const softmax_rule<float> &rule)
{
    constexpr int EACH = CLUSTER_CTAS_MAX / CLUSTER_READERS;
    const int column = threadIdx.x / CLUSTER_READERS, first = threadIdx.x % CLUSTER_READERS;
    if (column >= tile.columns) return; /* whole warps: columns are a multiple of 8 */
    const unsigned at = mm_shared_address(own + column);
    softmax_pair<float> mine[EACH], whole = softmax_none<float>();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int rank = first * EACH + i;
        mine[i] = softmax_none<float>();
        if (rank < parts) mm_peer_load(mine[i].h, mine[i].sum, mm_peer_address(at, (unsigned)rank));
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) whole = softmax_both(whole, mine[i], rule);
    whole = softmax_join(whole, CLUSTER_READERS, rule);
    if (first == 0) tile.whole[column] = softmax_settle(whole, rule);
}

/* A tile for each cluster of `parts` CTAs at a time, `share` of the axis each; kept: the most packs of a thread. */
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
    const int threads = blockDim.x, cluster = blockIdx.x / parts, rank = blockIdx.x - cluster * parts,
              clusters = gridDim.x / parts;
    const softmax_tile<float> tile(ks_dynamic + kept * threads, lanes, E);
    softmax_pair<float> *const own = tile.whole + tile.columns; /* [2][columns] */
    const int64_t begin = rank * share, end = min(begin + share, s.length);
    const int64_t tiles = (s.outer * (s.inner / E) + lanes - 1) / lanes;
    const int rounds = (int)((tiles - cluster + clusters - 1) / clusters);
    const softmax_strip<int64_t> strip(s.inner / E, lanes, begin, end);
    const int held = min(strip.used, kept);
    uint4 *const out = (uint4 *)job.out;
    softmax_column_part<T, E, V> part = {(const uint4 *)(job.in + s.offset), ks_dynamic + threadIdx.x, strip.stride,
                                         threads, s.sign};
    strip.place(s, cluster, &part.base, &part.count);
#pragma unroll 1
    for (int c = 0; c < held; c += V) part.fetch(part.base, part.count, c);
    __syncwarp();
    if (parts > 1) mm_cluster_wait(); /* all CTAs have begun */
#pragma unroll 1
    for (int r = 0; r < rounds; r++) {
        float h[E], sum[E];
        ks_copy_wait();
        softmax_column_held(part, held, tile, rule, h, sum);
#pragma unroll
        for (int e = 0; e < E; e++) tile.publish(e, {h[e], sum[e]});
        __syncthreads();
        softmax_pair<float> *const mine = own + (r & 1) * tile.columns;
        softmax_join_columns(
            tile.groups, tile.columns, rule, [&](int g, int column) { return tile.group[g * tile.pitch + column]; },
            [&](int column, softmax_pair<float> n) {
                (parts > 1 ? mine : tile.whole)[column] = parts > 1 ? n : softmax_settle(n, rule);
            });
        if (parts > 1) {
            __syncwarp();
            mm_cluster_arrive();
            mm_cluster_wait();
            softmax_join_cluster(tile, mine, parts, rule);
        }
        __syncthreads();
        const bool more = r + 1 < rounds;
        int64_t next;
        int next_count;
        strip.place(s, cluster + (int64_t)(r + more) * clusters, &next, &next_count);
        softmax_pack<T, E> x[V];
#pragma unroll 1
        for (int c = 0; c < held; c += V) {
            part.load_kept(x, c);
            softmax_column_values<false>(x, tile, rule);
            if (more) part.fetch(next, next_count, c); /* what lay there is in registers */
            part.store(x, out, c);
        }
        part.base = next;
        part.count = next_count;
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
