/* Softmax along an axis that is not contiguous and longer than a CTA's registers: a cluster holds a tile of columns in its shared
 * memory, so that each byte is read and written once, and the pairs of the columns go from CTA to CTA without global memory.
 *
 * Two CTAs of different clusters share an SM: while one waits for its pairs, the other reads and writes. A CTA stays for several
 * tiles; what is written of one makes room for the next one. Each thread copies and reads its own packs only.
 *
 * Pairs. A CTA leaves its pairs of tile r at own[r % 2]; behind the cluster's barrier of the tile all CTAs read them. They are
 * written again for tile r + 2, behind the barrier of tile r + 1, at which every CTA arrives after its reads of tile r. A CTA
 * ends behind a barrier of its own, when no CTA reads its memory any more.
 *
 * Lines that are not whole vectors (WHOLE false) are read in the vectors of their aligned superset all the same, a vector more
 * than a tile has. Rows of a thread, and of the threads that join by shuffles, are a multiple of 8 apart, so their columns are
 * shifted against the vectors by the same number of elements, the skew. The pairs of a warp are unshifted where the warps are
 * joined, and the whole pairs lie there once for each skew. */
#ifndef KS_SOFTMAX_COLUMN_CLUSTER_CUH
#define KS_SOFTMAX_COLUMN_CLUSTER_CUH

#include "cuda/common/ptx_mma.cuh"
#include "cuda/softmax/columns.cuh"

/* Of 16-bit elements, results are exp2(x * factor / 2 - shift), shift = level + log2 of the sum, where the level is so small that
 * its rounding is a small part of theirs: half as many instructions, of which these kernels have too many. */
static constexpr int CLUSTER_LEVEL = 32;

enum {
    CLUSTER_CTAS_MAX = 16,
    CLUSTER_COLUMNS_MAX = 128, /* of a tile: CLUSTER_READERS threads for each of them */
    CLUSTER_READERS = 4
};

/* Columns of a tile of so many lanes, and copies of its whole pairs. */
__host__ __device__ constexpr int softmax_cluster_columns(bool whole, int lanes, int E)
{
    return (whole ? lanes : lanes - 1) * E;
}
__host__ __device__ constexpr int softmax_cluster_copies(bool whole, int E)
{
    return whole ? 1 : E;
}

/* Bytes behind the pairs of a tile: those of the whole columns again, those that go to other CTAs, shifts. */
__host__ __device__ constexpr size_t softmax_cluster_bytes(bool whole, int lanes, int E)
{
    return (size_t)(softmax_cluster_copies(whole, E) - 1) * lanes * E * sizeof(softmax_pair<float>) +
           2 * (size_t)softmax_cluster_columns(whole, lanes, E) * sizeof(softmax_pair<float>) +
           (size_t)softmax_cluster_copies(whole, E) * lanes * E * sizeof(float);
}

/* Where a thread's packs of a tile are. */
struct softmax_cluster_place {
    uint32_t base; /* pack of the tensor */
    int count;     /* packs */
    unsigned mask; /* elements of a pack that are the tile's */
    int first;     /* the skew of the CTA's first row */
    int skew;      /* of the thread's rows */
};

/* Packs of a thread of which only some elements may be the tile's. */
template <class T, int E, int V>
struct softmax_masked_part : softmax_column_part<T, E, V, uint32_t> {
    unsigned mask;
    __device__ __forceinline__ void load_kept(softmax_pack<T, E> (&x)[V], int c) const
    {
        softmax_column_part<T, E, V, uint32_t>::load_kept(x, c);
        if (mask == (1u << E) - 1) return;
#pragma unroll
        for (int v = 0; v < V; v++) softmax_blank(x[v], mask);
    }
    __device__ __forceinline__ void load_first(softmax_pack<T, E> (&x)[V], int c) const
    {
        load_kept(x, c);
    }
    __device__ __forceinline__ void store(const softmax_pack<T, E> (&x)[V], uint4 *out, int c) const
    {
        const uint32_t to = this->base + c * this->stride;
#pragma unroll
        for (int v = 0; v < V; v++)
            if (c + v < this->count) softmax_store(out, to + v * this->stride, x[v], mask);
    }
};

/* A CTA's rows of a tile, by rows of `lanes` threads. */
template <int E, bool WHOLE>
struct softmax_cluster_strip {
    static constexpr int ALL = (1 << E) - 1, WARPS = GROUP_CTA_THREADS / (int)KS_WARP;
    int64_t
        share; /* of the axis; with what else a kernel is given, it is read where it is needed, and takes no register */
    int lanes, rank, columns;

    __device__ __forceinline__ softmax_cluster_strip(int64_t rows, int width, int cta)
        : share(rows), lanes(width), rank(cta), columns(softmax_cluster_columns(WHOLE, width, E))
    {
    }
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
        return WHOLE ? (s.outer * (s.inner / E) + lanes - 1) / lanes : s.outer * ((s.inner + columns - 1) / columns);
    }
    __device__ __forceinline__ softmax_cluster_place place(const softmax_shape &s, int64_t tile) const
    {
        const int across = threadIdx.x % lanes, here = rows(s);
        const int64_t begin = rank * share;
        softmax_cluster_place at = {0, 0, ALL, 0, 0};
        if constexpr (WHOLE) {
            const int64_t packs = s.inner / E, column = tile * lanes + across, outer = column / packs;
            const int down = threadIdx.x / lanes;
            at.base = (uint32_t)((outer * s.length + begin + down) * packs + (column - outer * packs));
            at.count = column < s.outer * packs && down < here ? (here - down - 1) / step() + 1 : 0;
        } else {
            const int64_t across_all = (s.inner + columns - 1) / columns, outer = tile / across_all,
                          column = (tile - outer * across_all) * columns;
            const int valid = (int)min((int64_t)columns, s.inner - column),
                      down = threadIdx.x / KS_WARP + threadIdx.x % KS_WARP / lanes * WARPS;
            const int64_t start = (outer * s.length + begin) * s.inner + column, mine = start + down * s.inner;
            at.first = (int)(start % E);
            at.skew = (int)(mine % E);
            at.base = (uint32_t)(mine / E + across);
            const int low = across * E - at.skew; /* the column of the pack's first element */
            at.mask = low >= valid ? 0 : ALL << max(-low, 0) & ALL >> max(low + E - valid, 0);
            at.count = at.mask && down < here ? (here - down - 1) / step() + 1 : 0;
        }
        return at;
    }
};

/* Where the pair of a tile's column lies among those of a warp, or of whole pairs, of such a skew. */
template <int E, bool WHOLE>
__device__ __forceinline__ int softmax_cluster_seat(int column, int skew, int lanes)
{
    if constexpr (WHOLE) return column;
    const int at = column + skew;
    return at % E * lanes + at / E;
}

/* The settled pair of a column, and its shift: infinity where results are made another way. */
template <int E, bool WHOLE>
__device__ __forceinline__ void softmax_cluster_settle(const softmax_tile<float> &tile, float *shifts, int column,
                                                       softmax_pair<float> n, const softmax_rule<float> &rule)
{
    const softmax_pair<float> settled = softmax_settle(n, rule);
    const float level = settled.h * rule.factor;
    const bool quick = !rule.log && fabsf(level) < CLUSTER_LEVEL;
    const float shift = !quick ? INFINITY : isinf(n.h) ? NAN : level + log2f(n.sum);
#pragma unroll
    for (int skew = 0; skew < softmax_cluster_copies(WHOLE, E); skew++) {
        const int at = skew * tile.columns + softmax_cluster_seat<E, WHOLE>(column, skew, tile.lanes);
        tile.whole[at] = settled;
        shifts[at] = shift;
    }
}

/* The pairs of all CTAs of the cluster, in their order. The CTA calls it whole. */
template <int E, bool WHOLE>
__device__ __forceinline__ void softmax_join_cluster(const softmax_tile<float> &tile, int columns,
                                                     const softmax_pair<float> *own, int parts, float *shifts,
                                                     const softmax_rule<float> &rule)
{
    constexpr int EACH = CLUSTER_CTAS_MAX / CLUSTER_READERS;
    const int column = threadIdx.x / CLUSTER_READERS, first = threadIdx.x % CLUSTER_READERS;
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
    if (first == 0 && column < columns) softmax_cluster_settle<E, WHOLE>(tile, shifts, column, whole, rule);
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

/* The sums of their terms, likewise: quickly where all levels are small. */
template <class T, int E, class Part>
__device__ __forceinline__ void softmax_cluster_sums(const Part &part, int held, const softmax_tile<float> &tile,
                                                     const softmax_rule<float> &rule, const softmax_pack<T, E> &most,
                                                     float (&sum)[E])
{
    softmax_pack<T, E> x[Part::PACKS];
    float level[E];
    bool quick = sizeof(T) == 2 && !rule.log;
#pragma unroll
    for (int e = 0; e < E; e++) {
        level[e] = ks_reference(most.get(e) * 0.5f) * rule.factor;
        quick = quick && fabsf(level[e]) < CLUSTER_LEVEL;
        sum[e] = 0;
    }
    const auto add = [&](auto term_of) {
#pragma unroll 1
        for (int c = 0; c < held; c += Part::PACKS) {
            part.load_kept(x, c);
#pragma unroll
            for (int e = 0; e < E; e++) {
                float term[Part::PACKS];
#pragma unroll
                for (int v = 0; v < Part::PACKS; v++) term[v] = term_of(x[v].get(e), e);
                sum[e] += ks_tree(term);
            }
        }
    };
    if (quick)
        add([&](float value, int e) { return rule.term_at(value, level[e]); });
    else
        add([&](float value, int e) { return rule.term(rule.distance(value, ks_reference(most.get(e) * 0.5f))); });
    __syncwarp();
    tile.over_lanes(sum);
}

/* The shifts of a thread's columns. false: not all of them have one. */
template <class T, int E>
__device__ __forceinline__ bool softmax_cluster_shifts(const float *shifts, int lanes, float (&shift)[E])
{
    if constexpr (sizeof(T) != 2) return false;
    bool quick = true;
#pragma unroll
    for (int e = 0; e < E; e++) {
        shift[e] = shifts[e * lanes + threadIdx.x % lanes];
        quick = quick && shift[e] != INFINITY;
    }
    return quick;
}

/* The results of a thread's packs, by the shifts of their columns. */
template <class T, int E, int V>
__device__ __forceinline__ void softmax_shifted_values(softmax_pack<T, E> (&x)[V], const float (&shift)[E],
                                                       const softmax_rule<float> &rule)
{
    constexpr int STEP = softmax_pack<T, E>::STEP;
#pragma unroll
    for (int v = 0; v < V; v++)
#pragma unroll
        for (int e = 0; e < E; e += STEP) {
            float y[STEP];
#pragma unroll
            for (int i = 0; i < STEP; i++) y[i] = rule.term_at(x[v].get(e + i), shift[e + i]);
            x[v].put(e, y);
        }
}

/* A tile for each cluster of `parts` CTAs at a time, `share` of the axis each; kept: the most packs of a thread. The
 * tensor has fewer than 2^32 packs. */
template <class T, bool WHOLE>
__global__ void __launch_bounds__(GROUP_CTA_THREADS, 2)
    softmax_column_cluster(ks_site site, softmax_shape s, int lanes, int parts, int64_t share, int kept)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int E = ks_vector<T>::length, V = COLUMN_CLUSTER_PACKS;
    typedef std::conditional_t<WHOLE, softmax_column_part<T, E, V, uint32_t>, softmax_masked_part<T, E, V>> Part;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    if (parts > 1) mm_cluster_arrive_relaxed();
    const softmax_rule<float> rule(s);
    const int cluster = blockIdx.x / parts, rank = blockIdx.x - cluster * parts, clusters = gridDim.x / parts;
    softmax_tile<float> tile(ks_dynamic + kept * GROUP_CTA_THREADS, lanes, E);
    softmax_pair<float> *const whole = tile.whole, *const own = whole + softmax_cluster_copies(WHOLE, E) *
                                                                            tile.columns; /* [2][columns] */
    float *const shifts = (float *)(own + 2 * softmax_cluster_columns(WHOLE, lanes, E));  /* as the whole pairs */
    const softmax_cluster_strip<E, WHOLE> strip(share, lanes, rank);
    const int held = min((strip.rows(s) + strip.step() - 1) / strip.step(), kept), columns = strip.columns;
    const int rounds = (int)((strip.tiles(s) - cluster + clusters - 1) / clusters);
    uint4 *const out = (uint4 *)job.out;
    Part part = {};
    const auto turn_to = [&](const softmax_cluster_place &at) {
        part.base = at.base;
        part.count = at.count;
        if constexpr (!WHOLE) part.mask = at.mask;
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
        float sum[E], shift[E];
        ks_copy_wait();
        const softmax_pack<T, E> most = softmax_cluster_most<T, E>(part, held, tile);
        softmax_cluster_sums(part, held, tile, rule, most, sum);
#pragma unroll
        for (int e = 0; e < E; e++) tile.publish(e, {most.get(e) * 0.5f, sum[e]});
        __syncthreads();
        softmax_pair<float> *const mine = own + (r & 1) * columns;
        tile.whole = whole;
        softmax_join_columns(
            tile.groups, columns, rule,
            [&](int g, int column) {
                const int skew = WHOLE ? 0 : (int)((here.first + g * (s.inner % E)) % E);
                return tile.group[g * tile.pitch + softmax_cluster_seat<E, WHOLE>(column, skew, lanes)];
            },
            [&](int column, softmax_pair<float> n) {
                if (parts > 1)
                    mine[column] = n;
                else
                    softmax_cluster_settle<E, WHOLE>(tile, shifts, column, n, rule);
            });
        if (parts > 1) {
            __syncwarp();
            mm_cluster_arrive();
            mm_cluster_wait();
            softmax_join_cluster<E, WHOLE>(tile, columns, mine, parts, shifts, rule);
        }
        __syncthreads();
        tile.whole = whole + (WHOLE ? 0 : here.skew * tile.columns);
        const bool quick = softmax_cluster_shifts<T>(shifts + (tile.whole - whole), lanes, shift);
        const bool more = r + 1 < rounds;
        const softmax_cluster_place next = strip.place(s, cluster + (int64_t)(r + more) * clusters);
        softmax_pack<T, E> x[V];
#pragma unroll 1
        for (int c = 0; c < held; c += V) {
            part.load_kept(x, c);
            if (quick)
                softmax_shifted_values(x, shift, rule);
            else
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
