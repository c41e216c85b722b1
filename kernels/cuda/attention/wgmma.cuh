/* Attention of FP16 and BF16 by wgmma on sm_90a, warp-specialised: a producer thread fills a ring of blocks of keys and of values by TMA
 * copies, two consumer warpgroups of 64 rows each go past them.
 *
 *   scores   a block's, in registers, of the query and the keys in shared memory
 *   values   weights go from registers: a block's products run while the next block's scores are made, and one warpgroup's products
 *            while the other one weighs
 *
 * Threads  384: the consumers, then the producer's warpgroup, which gives its registers away.
 * Memory   dynamic: each warpgroup's query (up to 128 columns the next one's, too), then the stages, each a block of keys and of values; rows
 *          of 128 bytes, swizzled.
 * Numbers  products and sums FP32; weights are rounded to the values' datatype, their sum is of the weights before. Where a score is a
 *          product times a scale, that and the step to powers of two are one rounding.
 * Source   Shah and others, "FlashAttention-3", 2024, arXiv:2407.08608. */
#ifndef KS_ATTENTION_WGMMA_CUH
#define KS_ATTENTION_WGMMA_CUH

#include "cuda/attention/broken.cuh"
#include "cuda/attention/common.cuh"
#include "cuda/attention/wgmma_tiles.cuh"
#include "cuda/common/ptx_sm90.cuh"

enum { ATTENTION_WGMMA_THREADS = 384 };

/* COLUMNS of the keys and of the values; those that a head has not are 0. */
template <int COLUMNS>
struct attention_tile {
    static constexpr int KEYS = COLUMNS == 256 ? 64 : 128, /* by a thread's registers */
        WARPGROUPS = 2, CONSUMERS = 128 * WARPGROUPS;
    static constexpr int BOXES = COLUMNS / 64, BOX = KEYS * 128, OPERAND = BOXES * BOX; /* a box: 64 columns */
    static constexpr int STAGES = COLUMNS == 64 ? 4 : 2;
    static constexpr int QUERIES = COLUMNS == 256 ? 1 : 2; /* places of a query: the next tile's comes meanwhile */
    static constexpr int QUERY_BOX = 64 * 128, QUERY_GROUP = BOXES * QUERY_BOX, QUERY = WARPGROUPS * QUERY_GROUP;
    static constexpr int SHARED = 1024 + QUERIES * QUERY + STAGES * 2 * OPERAND;
};

/* Of a tile by its columns. */
static inline int attention_wgmma_bytes(int columns)
{
    return columns == 64    ? attention_tile<64>::SHARED
           : columns == 128 ? attention_tile<128>::SHARED
                            : attention_tile<256>::SHARED;
}
static inline int attention_wgmma_keys(int columns)
{
    return columns == 256 ? attention_tile<256>::KEYS : attention_tile<64>::KEYS;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

enum {
    ATTENTION_BARRIER_ALL = 1,
    ATTENTION_BARRIER_GROUP = 2,
    ATTENTION_BARRIER_TURN = 4
}; /* the latter two: and the next one */

/* Rows of 128 bytes whose chunks of 16 are swizzled; APART: from the first 64 columns to the next, of what is stored across K. */
template <int APART>
__device__ __forceinline__ uint64_t attention_descriptor(unsigned at)
{
    return (uint64_t)((at & 0x3FFFF) >> 4) | (uint64_t)(APART >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

/* --- the ring -------------------------------------------------------------------------------------------------------- */

/* A stage's barriers: keys are there, values are there, keys have been read, values have been read. */
template <int COLUMNS>
struct attention_stages {
    using TILE = attention_tile<COLUMNS>;
    unsigned memory, barriers;
    unsigned stage, parity;

    __device__ __forceinline__ attention_stages(unsigned at, unsigned mbarriers)
        : memory(at), barriers(mbarriers), stage(0), parity(0)
    {
    }
    __device__ __forceinline__ void make() const
    {
        for (int i = 0; i < TILE::STAGES; i++)
            for (int kind = 0; kind < 4; kind++)
                mm_mbarrier_init(barriers + (i * 4 + kind) * 8, kind < 2 ? 1 : TILE::CONSUMERS / KS_WARP);
        mm_mbarrier_publish();
    }
    __device__ __forceinline__ unsigned barrier(int kind) const
    {
        return barriers + (stage * 4 + kind) * 8;
    }
    __device__ __forceinline__ unsigned keys() const
    {
        return memory + stage * 2 * TILE::OPERAND;
    }
    __device__ __forceinline__ unsigned values() const
    {
        return keys() + TILE::OPERAND;
    }
    __device__ __forceinline__ void wait_keys() const
    {
        mm_mbarrier_wait(barrier(0), parity);
    }
    __device__ __forceinline__ void wait_values() const
    {
        mm_mbarrier_wait(barrier(1), parity);
    }
    /* By whole warps. */
    __device__ __forceinline__ void give_keys() const
    {
        give(2);
    }
    __device__ __forceinline__ void give_values() const
    {
        give(3);
    }
    __device__ __forceinline__ void give(int kind) const
    {
        __syncwarp();
        if (threadIdx.x % KS_WARP == 0) mm_mbarrier_arrive(barrier(kind));
    }
    /* 64 columns at a time, of TILE::KEYS rows from `row` on; what is behind the tensor's end is 0. */
    __device__ __forceinline__ void fill(int operand, const CUtensorMap *map, int row, int head, int batch) const
    {
        const unsigned full = barrier(operand), to = operand == 0 ? keys() : values();
        mm_mbarrier_wait(barrier(2 + operand), parity ^ 1);
        mm_mbarrier_expect(full, TILE::OPERAND);
#pragma unroll
        for (int i = 0; i < TILE::BOXES; i++) mm_tma_load_4(to + i * TILE::BOX, map, full, {i * 64, row, head, batch});
    }
    __device__ __forceinline__ void next()
    {
        if (++stage == TILE::STAGES) stage = 0, parity ^= 1;
    }
};

/* --- a warpgroup's rows ---------------------------------------------------------------------------------------------- */

/* A score is a product times a scale above 0, so that products have the scores' order. */
__device__ __forceinline__ bool attention_is_plain(const ks_attention_shape &s)
{
    return s.softcap == 0 && !(s.masked && s.mask_dtype != KS_BOOL) && s.scale >= 1e-30 && s.scale <= 1e30;
}

template <class T, int COLUMNS>
struct attention_group {
    using TILE = attention_tile<COLUMNS>;
    static constexpr int TILES = TILE::KEYS / 8, STEPS = TILE::KEYS / 16, FOURS = COLUMNS / 8;
    float sum[COLUMNS / 2];      /* four of 8 columns: two neighbours of each row */
    float score[TILE::KEYS / 2]; /* likewise */
    uint32_t weights[STEPS][4];
    float most[2], total[2], shrink[2]; /* of rows lane / 4 and lane / 4 + 8 of the warp's 16 */
    uint64_t taken;                     /* of the scores, a bit each */

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sum[i] = 0;
        most[0] = most[1] = -INFINITY;
        total[0] = total[1] = 0;
    }
    __device__ __forceinline__ void multiply(unsigned query, unsigned keys)
    {
#pragma unroll
        for (int k = 0; k < COLUMNS / 16; k++) {
            const uint64_t a = attention_descriptor<16>(query + k / 4 * TILE::QUERY_BOX + k % 4 * 32),
                           b = attention_descriptor<16>(keys + k / 4 * TILE::BOX + k % 4 * 32);
            if (k == 0)
                mm_wgmma_first<T, TILE::KEYS>(score, a, b);
            else
                mm_wgmma<T, TILE::KEYS, true, true>(score, a, b);
        }
        mm_wgmma_commit();
    }
    __device__ __forceinline__ void add_values(unsigned values)
    {
#pragma unroll
        for (int k = 0; k < STEPS; k++)
            mm_wgmma_fed_across<T, COLUMNS>(sum, weights[k], attention_descriptor<TILE::BOX>(values + k * 2048));
        mm_wgmma_commit();
    }
    /* Products that a row does not take become -inf; where they are not plain, the others scores. first: the first key's number. */
    __device__ __forceinline__ void select(const attention_shape &a, const ks_job_sides &job,
                                           const attention_wgmma_takes (&r)[2], int first, bool plain)
    {
        const int pair = threadIdx.x % 4 * 2;
        taken = 0;
        if (plain && !a.s.masked) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int from = r[h].range.first - first - pair, to = r[h].range.end - first - pair;
#pragma unroll
                for (int i = 0; i < TILES * 2; i++) {
                    const int at = i / 2 * 8 + i % 2;
                    const bool takes = at >= from && at < to;
                    if (!takes) score[i / 2 * 4 + 2 * h + i % 2] = -INFINITY;
                    taken |= (uint64_t)takes << (i / 2 * 4 + 2 * h + i % 2);
                }
            }
            return;
        }
#pragma unroll
        for (int i = 0; i < TILES * 4; i++) {
            const int h = i / 2 % 2;
            const int key = first + i / 4 * 8 + pair + i % 2;
            bool takes;
            if (plain) {
                takes = key >= r[h].range.first && key < r[h].range.end && (job.in + a.mask)[r[h].mask + key] != 0;
                if (!takes) score[i] = -INFINITY;
            } else {
                score[i] = attention_score<T>(a, job, r[h], key, score[i], &takes);
            }
            taken |= (uint64_t)takes << i;
        }
    }
    /* factor: of a score's power of two. */
    __device__ __forceinline__ void weigh(float factor)
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float here = most[h], added = 0;
#pragma unroll
            for (int t = 0; t < TILES; t++) here = fmaxf(here, fmaxf(score[t * 4 + 2 * h], score[t * 4 + 2 * h + 1]));
#pragma unroll
            for (int distance = 1; distance < 4; distance *= 2) here = fmaxf(here, ks_shuffle(here, distance));
            const float reference = attention_reference(here) * factor;
            shrink[h] = most[h] == here ? 1 : ks_exp2_quick((most[h] - here) * factor);
#pragma unroll
            for (int t = 0; t < TILES; t++)
#pragma unroll
                for (int e = t * 4 + 2 * h; e < t * 4 + 2 * h + 2; e++) {
                    score[e] = ks_exp2_quick(fmaf(score[e], factor, -reference));
                    added += score[e];
                }
            total[h] = fmaf(total[h], shrink[h], added); /* of this thread's keys */
            most[h] = here;
            /* A total is never below 0: sums wait for weights, else the wait for their products moves in front of the weights. */
            shrink[h] = __uint_as_float(__float_as_uint(shrink[h]) | __float_as_uint(total[h]) >> 31);
        }
    }
    __device__ __forceinline__ void round_weights()
    {
#pragma unroll
        for (int k = 0; k < STEPS; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) weights[k][i] = ks_round_two<T>(score[k * 8 + 2 * i], score[k * 8 + 2 * i + 1]);
    }
    __device__ __forceinline__ void shrink_sums()
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sum[i] *= shrink[i / 2 % 2];
    }
    /* What values that are not finite add to the rows that take them: as attention_warp's taint(). */
    __device__ __forceinline__ void taint(unsigned values)
    {
        const int lane_id = threadIdx.x % KS_WARP;
#pragma unroll 1
        for (int k = 0; k < STEPS; k++) {
            const uint32_t bits = (uint32_t)(taken >> k * 8);
            uint32_t takes[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                takes[i] = ks_round_two<T>(bits >> 2 * i & 1 ? 1.0f : 0.0f, bits >> (2 * i + 1) & 1 ? 1.0f : 0.0f);
#pragma unroll
            for (int f = 0; f < FOURS; f += 2) {
                const int key = k * 16 + lane_id % 16, chunk = f % 8 + lane_id / 16;
                uint32_t b[4];
                mm_ldmatrix<true>(b, values + f / 8 * TILE::BOX + key * 128 + (chunk ^ key % 8) * 16);
#pragma unroll 1
                for (int kind = 0; kind < 3; kind++) attention_taint<T>(takes, b, sum + f * 4, kind);
            }
        }
    }
    __device__ __forceinline__ void end()
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int distance = 1; distance < 4; distance *= 2) total[h] += ks_shuffle(total[h], distance);
    }
};

/* Keys that a row leaves out have no influence, whatever their values: those that are not finite become 0 in shared memory, behind what
 * they add to the rows that take them. By all consumers. */
template <class T, int COLUMNS>
__device__ __forceinline__ void attention_clean(attention_group<T, COLUMNS> &mine, unsigned values,
                                                unsigned char *memory)
{
    using TILE = attention_tile<COLUMNS>;
    uint4 *const vectors = (uint4 *)memory + threadIdx.x;
    uint32_t found = 0;
#pragma unroll 4
    for (int i = 0; i < TILE::OPERAND / 16; i += TILE::CONSUMERS) {
        const uint4 eight = vectors[i];
        found |= attention_broken<T>(eight.x) | attention_broken<T>(eight.y) | attention_broken<T>(eight.z) |
                 attention_broken<T>(eight.w);
    }
    if (!mm_barrier_any<ATTENTION_BARRIER_ALL, TILE::CONSUMERS>(found != 0)) return;
    mine.taint(values);
    mm_barrier_sync<ATTENTION_BARRIER_ALL, TILE::CONSUMERS>();
#pragma unroll 1
    for (int i = 0; i < TILE::OPERAND / 16; i += TILE::CONSUMERS) {
        uint4 eight = vectors[i];
        eight.x &= ~attention_broken<T>(eight.x), eight.y &= ~attention_broken<T>(eight.y);
        eight.z &= ~attention_broken<T>(eight.z), eight.w &= ~attention_broken<T>(eight.w);
        vectors[i] = eight;
    }
    mm_shared_publish();
    mm_barrier_sync<ATTENTION_BARRIER_ALL, TILE::CONSUMERS>();
}

/* A thread has half a row of the query. */
template <class T, int COLUMNS>
__device__ __forceinline__ void attention_load_query(const attention_shape &a, const ks_job_sides &job,
                                                     const attention_wgmma_tile &t, int warpgroup, unsigned to)
{
    using TILE = attention_tile<COLUMNS>;
    const int row = threadIdx.x % 128 / 2;
    const attention_row r = attention_wgmma_row(a, t, t.row + warpgroup * 64 + row);
    const T *const from =
        (const T *)(job.in + a.query) + t.batch * a.s.query.batch + r.head * a.s.query.head + r.query * a.s.query.row;
#pragma unroll
    for (int i = 0; i < COLUMNS / 16; i++) {
        const int vector = i * 2 + threadIdx.x % 2;
        const bool there = r.there && vector * 8 < a.s.depth;
        mm_copy_async(to + vector / 8 * TILE::QUERY_BOX + row * 128 + (vector % 8 ^ row % 8) * 16,
                      there ? from + vector * 8 : from, there);
    }
    mm_copy_commit();
}

/* All of the warpgroup's, for its products. */
__device__ __forceinline__ void attention_await_query(int warpgroup)
{
    mm_copy_wait<0>();
    mm_shared_publish();
    mm_barrier_sync_at((int)ATTENTION_BARRIER_GROUP + warpgroup, 128);
}

template <class T, int COLUMNS>
__device__ __forceinline__ void attention_put_group(const attention_shape &a, const ks_job_sides &job,
                                                    const attention_wgmma_tile &t, int row, float unit,
                                                    const attention_group<T, COLUMNS> &of)
{
    const int pair = threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const attention_row r = attention_wgmma_row(a, t, row + 8 * h);
        if (!r.there) continue;
        const bool nothing = attention_is_nothing(of.most[h], of.total[h]);
        const float each = 1 / of.total[h], none = a.s.nan_rows ? NAN : 0;
        T *const out = attention_out<T>(a, job, t.batch, r) + pair;
        if (pair == 0) attention_put_lse(a, job, t.batch, r, of.most[h] * unit, of.total[h]);
#pragma unroll
        for (int f = 0; f < COLUMNS / 8; f++) {
            if (f * 8 >= a.s.value_depth) break;
            const float *const two = of.sum + f * 4 + 2 * h;
            *(uint32_t *)(out + f * 8) =
                ks_round_two<T>(nothing ? none : fmaf(two[0], each, 0.0f), nothing ? none : fmaf(two[1], each, 0.0f));
        }
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------------------ */

template <int COLUMNS>
__device__ __forceinline__ void attention_fill_all(const ks_site &site, const attention_shape &a,
                                                   const attention_maps &maps, const ks_job_sides &job,
                                                   attention_stages<COLUMNS> ring)
{
    const uint32_t tiles = (uint32_t)(a.units * a.tiles);
#pragma unroll 1
    for (uint32_t round = 0, at; (at = attention_wgmma_at(round)) < tiles; round++) {
        const attention_wgmma_tile t = attention_wgmma_tile_of<attention_tile<COLUMNS>::KEYS>(site, a, job, at);
#pragma unroll 1
        for (int first = t.first; first < t.end; first += attention_tile<COLUMNS>::KEYS) {
            ring.fill(0, &maps.key, first, t.kv_head, t.batch);
            ring.fill(1, &maps.value, first, t.kv_head, t.batch);
            ring.next();
        }
    }
}

/* A tile, from its first block's products on, which are there, to the last ones of its values, which then are under way. */
template <class T, int COLUMNS>
__device__ __forceinline__ void attention_take_tile(const attention_shape &a, const ks_job_sides &job,
                                                    const attention_work<attention_tile<COLUMNS>::KEYS> &w,
                                                    attention_stages<COLUMNS> &ring, attention_group<T, COLUMNS> &mine,
                                                    unsigned char *generic)
{
    using TILE = attention_tile<COLUMNS>;
    const int warpgroup = threadIdx.x / 128, turn = (int)ATTENTION_BARRIER_TURN + warpgroup,
              other = (int)ATTENTION_BARRIER_TURN + (warpgroup ^ 1);
    const bool plain = attention_is_plain(a.s);
    const float factor = (plain ? (float)a.s.scale : 1.0f) * ATTENTION_LOG2_E;
    if (!plain || !w.is_whole(a, w.tile.first)) mine.select(a, job, w.r, w.tile.first, plain);
    mine.weigh(factor);
    mine.round_weights();
    int first = w.tile.first + TILE::KEYS;
#pragma unroll 1
    for (; first < w.tile.end; first += TILE::KEYS) {
        attention_stages<COLUMNS> before = ring;
        ring.next();
        before.wait_values();
        if (w.leaves(a, first - TILE::KEYS))
            attention_clean<T, COLUMNS>(mine, before.values(), generic + (before.values() - ring.memory));
        ring.wait_keys();
        mm_barrier_sync_at(turn, TILE::CONSUMERS);
        mm_wgmma_settle(mine.sum);
        mm_wgmma_fence();
        mine.multiply(w.query, ring.keys());
        mine.add_values(before.values());
        mm_barrier_join_at(other, TILE::CONSUMERS);
        mm_wgmma_wait<1>();
        mm_wgmma_settle(mine.score);
        ring.give_keys();
        if (plain && w.is_whole(a, first)) {
            mine.weigh(factor);
            mm_wgmma_settle(mine.score); /* else the compiler weighs behind the wait */
            mm_wgmma_wait<0>();
            mm_wgmma_settle(mine.sum);
        } else { /* behind the products, whose registers are needed */
            mm_wgmma_wait<0>();
            mm_wgmma_settle(mine.sum);
            mine.select(a, job, w.r, first, plain);
            mine.weigh(factor);
        }
        before.give_values();
        mine.shrink_sums();
        mine.round_weights();
    }
    ring.wait_values();
    if (w.leaves(a, first - TILE::KEYS))
        attention_clean<T, COLUMNS>(mine, ring.values(), generic + (ring.values() - ring.memory));
    mm_wgmma_settle(mine.sum);
    mm_wgmma_fence();
    mine.add_values(ring.values());
}

/* While a tile's keys are gone over the next one's query comes, whose first products run while the tile is written. */
template <class T, int COLUMNS>
__device__ __forceinline__ void attention_take_all(const ks_site &site, const attention_shape &a,
                                                   const ks_job_sides &job, unsigned queries,
                                                   attention_stages<COLUMNS> ring, unsigned char *generic)
{
    using TILE = attention_tile<COLUMNS>;
    using WORK = attention_work<TILE::KEYS>;
    const int warpgroup = threadIdx.x / 128, turn = (int)ATTENTION_BARRIER_TURN + warpgroup,
              other = (int)ATTENTION_BARRIER_TURN + (warpgroup ^ 1);
    const float unit = attention_is_plain(a.s) ? (float)a.s.scale : 1.0f;
    const uint32_t tiles = (uint32_t)(a.units * a.tiles);
    attention_group<T, COLUMNS> mine;
    unsigned query = queries + warpgroup * TILE::QUERY_GROUP;
    const auto have = [&]() {
        mm_wgmma_wait<0>();
        mm_wgmma_settle(mine.score);
        ring.give_keys();
    };
    const auto begin = [&]() {
        attention_await_query(warpgroup); /* behind it all have read the one before */
        ring.wait_keys();
        mm_wgmma_fence();
        mine.multiply(query, ring.keys());
    };
    if (warpgroup == 1) mm_barrier_join_at(other, TILE::CONSUMERS);
    uint32_t round = 0, at = attention_wgmma_at(0);
    attention_wgmma_tile tile = {};
    bool more = at < tiles;
    if (more) {
        tile = attention_wgmma_tile_of<TILE::KEYS>(site, a, job, at);
        attention_load_query<T, COLUMNS>(a, job, tile, warpgroup, query);
        begin();
        have();
    }
#pragma unroll 1
    while (more) {
        const WORK w(a, tile, query);
        at = attention_wgmma_at(++round);
        more = at < tiles;
        if constexpr (TILE::QUERIES == 2) {
            query = queries + (round & 1) * TILE::QUERY + warpgroup * TILE::QUERY_GROUP;
            if (more) {
                tile = attention_wgmma_tile_of<TILE::KEYS>(site, a, job, at);
                attention_load_query<T, COLUMNS>(a, job, tile, warpgroup, query);
            }
        }
        mine.clear();
        attention_take_tile<T, COLUMNS>(a, job, w, ring, mine, generic);
        const attention_stages<COLUMNS> before = ring;
        ring.next();
        if constexpr (TILE::QUERIES == 1) {
            mm_barrier_sync_at((int)ATTENTION_BARRIER_GROUP + warpgroup, 128); /* all have read the query */
            if (more) {
                tile = attention_wgmma_tile_of<TILE::KEYS>(site, a, job, at);
                attention_load_query<T, COLUMNS>(a, job, tile, warpgroup, query);
            }
        }
        mm_wgmma_wait<0>();
        mm_wgmma_settle(mine.sum);
        before.give_values();
        mine.end();
        if (more) { /* the compiler lets products wait for each other that are under way where branches meet (C7515) */
            begin();
            attention_put_group<T, COLUMNS>(a, job, w.tile, w.row, unit, mine);
            have();
        } else {
            attention_put_group<T, COLUMNS>(a, job, w.tile, w.row, unit, mine);
        }
    }
    if (warpgroup == 0) mm_barrier_sync_at(turn, TILE::CONSUMERS);
}
#endif

/* Device memory only: the maps hold addresses. Empty where the code is not made for sm_90a. */
template <class T, int COLUMNS>
__global__ void __launch_bounds__(ATTENTION_WGMMA_THREADS, 1)
    attention_wgmma(ks_site site, const __grid_constant__ attention_shape a,
                    const __grid_constant__ attention_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using TILE = attention_tile<COLUMNS>;
    __shared__ uint64_t barriers[TILE::STAGES * 4];
    const ks_job_sides job = site.only;
    unsigned char *const dynamic = (unsigned char *)ks_dynamic;
    const unsigned at = mm_shared_address(dynamic), queries = (at + 1023) & ~1023u,
                   stages = queries + TILE::QUERIES * TILE::QUERY;
    const attention_stages<COLUMNS> ring(stages, mm_shared_address(barriers));
    if (a.starts) ks_start(site);
    if (threadIdx.x == 0) ring.make();
    __syncthreads();
    ks_await(site);
    if (threadIdx.x >= TILE::CONSUMERS) {
        mm_registers_give<24>();
        if (threadIdx.x == TILE::CONSUMERS) attention_fill_all<COLUMNS>(site, a, maps, job, ring);
    } else {
        mm_registers_take<240>();
        attention_take_all<T, COLUMNS>(site, a, job, queries, ring, dynamic + (stages - at));
        if (a.ends) ks_leave<true>(site);
    }
#endif
}

#endif
