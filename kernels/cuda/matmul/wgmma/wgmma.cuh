/* FP16, BF16 and TF32 by wgmma on sm_90a, warp-specialised: a producer warp, one thread of it, fills a pipeline by TMA copies;
 * consumer warpgroups of 64 rows each multiply.
 *
 * Both operands lie in shared memory as the copies leave them, in rows of 128 bytes (fewer where fewer columns lie across
 * K) whose 16-byte chunks are swizzled; either may be stored along K or across it, but for TF32's B. A CTA walks over
 * units, and its copies run ahead into the next unit while the sums of the last one are stored. The slices of a tile that a
 * cluster shares are reduced in shared memory: each CTA sends the others the sums that they finish, straight from registers,
 * and finishes its own columns.
 *
 * Source   the pipeline follows pranjalssh/fast.cu, "Outperforming cuBLAS on H100", 2024. */
#ifndef KS_MATMUL_WGMMA_CUH
#define KS_MATMUL_WGMMA_CUH

#include "cuda/matmul/epilogue.cuh"
#include "cuda/matmul/table.cuh"
#include "cuda/matmul/wgmma_step.cuh"

/* WARPGROUPS x 64 rows; STAGES of 128 bytes of K. The tiles of BY_M x BY_N CTAs, a cluster, are one: those above each
 * other get the same columns of B, those beside each other the same rows of A, and each copies its part to all. WHOLE: K is
 * not shared, which leaves more of shared memory. */
template <typename T, int WARPGROUPS_, int N_, int STAGES_, int CTAS_, int BY_M_ = 1, int BY_N_ = 1, bool WHOLE = false>
struct mm_wgmma_tile {
    typedef T element;
    static constexpr int WARPGROUPS = WARPGROUPS_, M = 64 * WARPGROUPS, N = N_, STAGES = STAGES_, CTAS = CTAS_;
    static constexpr int BY_M = BY_M_, BY_N = BY_N_, PEERS = BY_M * BY_N;
    static constexpr int DEPTH = 128 / (int)sizeof(T); /* values of K of a stage */
    /* Only a warpgroup can give registers to the others: what a thread is left with, of 65,536 in all. */
    static constexpr bool GIVES = N > 128;
    static constexpr int PRODUCER_REGISTERS = WARPGROUPS == 3 ? 32 : 56,
                         CONSUMER_REGISTERS = WARPGROUPS == 3 ? 160 : 224;
    /* PRODUCER: the thread that fills the pipeline. */
    static constexpr int CONSUMERS = 128 * WARPGROUPS, THREADS = CONSUMERS + (GIVES ? 128 : 32), PRODUCER = CONSUMERS;
    /* TF32: A that is stored across K comes from registers, B is stored along K. */
    static constexpr bool WIDE = sizeof(T) == 4, ODD = false;
    template <bool A_K>
    static constexpr bool feeds = WIDE && !A_K;
    static constexpr int A_BYTES = M * 128, B_BYTES = N * 128, STAGE = A_BYTES + B_BYTES, A_GROUP = 8192;
    static constexpr bool SPLIT_K = PEERS == 1 && !GIVES && !WHOLE;
    /* Of a stage: bytes that the TMA copies bring, arrivals that make it full, arrivals that make it empty. */
    static constexpr int COPIED = STAGE, FILLERS = 1, READERS = WARPGROUPS * 4 * (BY_M + BY_N - 1);
    static constexpr int SUMS = N / 2, SUMS_BYTES = M * N * 4; /* of a thread; of all */
    /* Of 8 columns: four sums of a thread. */
    static constexpr int BLOCKS = N / 8, BLOCKS_LOG2 = N < 16 ? 0 : N < 32 ? 1 : N < 64 ? 2 : N < 128 ? 3 : 4;
    /* Blocks of sums in shared memory: of all slices, what this CTA finishes; or a few on their way to the output. */
    static constexpr int HELD = SPLIT_K && BLOCKS > 4 ? BLOCKS : 4, HELD_BYTES = HELD * CONSUMERS * 16;
    static constexpr int SHARED = 1024 + STAGES * STAGE + HELD_BYTES;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Part `part` of a stage of ACROSS rows (columns): a box, or boxes of up to 128 bytes across where rows lie across K. */
template <typename T, int ACROSS, bool K_CONTIGUOUS, int PARTS>
__device__ __forceinline__ void mm_wgmma_load(unsigned to, const CUtensorMap *map, unsigned barrier, int across, int k,
                                              int matrix, int part, unsigned peers)
{
    constexpr int LINE = 128 / (int)sizeof(T), WIDTH = ACROSS < LINE ? ACROSS : LINE,
                  ROWS = (K_CONTIGUOUS ? ACROSS : LINE) / PARTS;
    if constexpr (K_CONTIGUOUS) {
        mm_tma_load(to + part * ROWS * 128, map, barrier, k, across + part * ROWS, matrix, peers);
    } else {
#pragma unroll
        for (int i = 0; i < ACROSS; i += WIDTH)
            mm_tma_load(to + i * 128 + part * ROWS * WIDTH * (int)sizeof(T), map, barrier, across + i, k + part * ROWS,
                        matrix, peers);
    }
}

/* The consumer warps. */
template <typename TILE>
__device__ __forceinline__ void mm_consumers_sync()
{
    mm_barrier_sync<1, TILE::CONSUMERS>();
}

/* The producer warp, which has made the mbarriers, goes on; the consumer warps wait for it, and so do an odd tile's A producers,
 * each at a named barrier of their own: they need nothing of each other, and synccheck takes all of a CTA's threads to wait in
 * one place. */
template <typename TILE>
__device__ __forceinline__ void mm_barriers_made()
{
    mm_barrier_join<3, TILE::CONSUMERS + 32>();
    if constexpr (TILE::ODD) mm_barrier_join<4, TILE::A_PRODUCERS + 32>();
}
template <typename TILE>
__device__ __forceinline__ void mm_barriers_wait()
{
    mm_barrier_sync<3, TILE::CONSUMERS + 32>();
}

/* The consumer warps are about to store the CTA's last sums: the producer warp, which has nothing left to do, stamps. */
template <typename TILE>
__device__ __forceinline__ void mm_consumers_end()
{
    mm_barrier_join<2, TILE::CONSUMERS + 32>();
}
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_stamp(const ks_site &site)
{
    mm_barrier_sync<2, TILE::CONSUMERS + 32>();
    if (threadIdx.x == TILE::PRODUCER) mm_stamp(site);
}

/* Of the launch, or of clusters of PEERS. */
__device__ __forceinline__ unsigned mm_wgmma_units(const mm_args &args)
{
    return args.tiles * args.matrices * args.cluster * args.splits;
}

/* A CTA's pipeline, its barriers, and where it stands in them: stages are counted over all units. */
typedef struct mm_wgmma_pipeline {
    unsigned at, full, empty; /* in shared memory */
    unsigned row, column;     /* of this CTA's tile, among the cluster's */
    unsigned stage, parity;
    unsigned alone;    /* stages still to be filled without the peers */
    unsigned shift[2]; /* of this thread's rows of A, where they start anywhere (wgmma_odd.cuh) */
} mm_wgmma_pipeline;

template <typename TILE>
__device__ __forceinline__ void mm_wgmma_step(mm_wgmma_pipeline &pipeline)
{
    if (++pipeline.stage == TILE::STAGES) pipeline.stage = 0, pipeline.parity ^= 1;
}

/* CTAs that get the same rows of A, the same columns of B. */
template <typename TILE>
__device__ __forceinline__ unsigned mm_wgmma_a_peers(const mm_wgmma_pipeline &pipeline)
{
    unsigned peers = 0;
#pragma unroll
    for (int i = 0; i < TILE::BY_N; i++) peers |= 1u << (pipeline.row + i * TILE::BY_M);
    return peers;
}
template <typename TILE>
__device__ __forceinline__ unsigned mm_wgmma_b_peers(const mm_wgmma_pipeline &pipeline)
{
    return ((1u << TILE::BY_M) - 1) << (pipeline.column * TILE::BY_M);
}

/* A CTA's part of a copy, for all CTAs that get the same; or all parts, for itself alone. */
template <typename T, int ACROSS, bool K_CONTIGUOUS, int PARTS>
__device__ __forceinline__ void mm_wgmma_copy(unsigned to, const CUtensorMap *map, unsigned barrier, int across, int k,
                                              int matrix, int part, unsigned peers, bool alone)
{
    if (PARTS > 1 && !alone) {
        mm_wgmma_load<T, ACROSS, K_CONTIGUOUS, PARTS>(to, map, barrier, across, k, matrix, part, peers);
        return;
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        mm_wgmma_load<T, ACROSS, K_CONTIGUOUS, PARTS>(to, map, barrier, across, k, matrix, i, 0);
}

/* Where the producer thread is: in a unit, whose next stage starts at k. */
typedef struct mm_wgmma_source {
    int row, column; /* of A, of B */
    int a_matrix, b_matrix;
    unsigned k, k_end;
} mm_wgmma_source;

template <typename TILE, bool BANDS>
__device__ __forceinline__ mm_wgmma_source mm_wgmma_source_at(const mm_args &args, unsigned index,
                                                              const mm_wgmma_pipeline &pipeline)
{
    const mm_unit unit = mm_unit_at<BANDS>(args, index);
    mm_wgmma_source from;
    from.row = ((int)unit.row * TILE::BY_M + (int)pipeline.row) * TILE::M;
    from.column = ((int)unit.column * TILE::BY_N + (int)pipeline.column) * TILE::N;
    from.a_matrix = args.many & 1 ? (int)unit.batch : 0;
    from.b_matrix = args.many & 2 ? (int)unit.batch : 0;
    from.k = (unsigned)unit.k_begin, from.k_end = (unsigned)unit.k_end;
    return from;
}

/* The producer thread: fills the next stage, which is empty. The first time around no CTA writes to a peer, which may not have
 * begun; from then on a stage is empty when the peers have read theirs as well. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_wgmma_fill(const mm_maps &maps, mm_wgmma_source &from, mm_wgmma_pipeline &pipeline)
{
    typedef typename TILE::element T;
    const unsigned full = pipeline.full + pipeline.stage * 8, to = pipeline.at + pipeline.stage * TILE::STAGE;
    mm_mbarrier_expect(full, TILE::COPIED);
    if constexpr (!TILE::ODD)
        mm_wgmma_copy<T, TILE::M, A_K, TILE::BY_N>(to, &maps.a, full, from.row, (int)from.k, from.a_matrix,
                                                   (int)pipeline.column, mm_wgmma_a_peers<TILE>(pipeline),
                                                   pipeline.alone > 0);
    mm_wgmma_copy<T, TILE::N, B_K, TILE::BY_M>(to + TILE::A_BYTES, &maps.b, full, from.column, (int)from.k,
                                               from.b_matrix, (int)pipeline.row, mm_wgmma_b_peers<TILE>(pipeline),
                                               pipeline.alone > 0);
    from.k += TILE::DEPTH;
    if (pipeline.alone > 0) pipeline.alone--;
    mm_wgmma_step<TILE>(pipeline);
}

/* The producer warp, to its end. Its first copy waits for no other thread, and the code in front of it is short and straight:
 * lines of code and of arguments come from far away. So this warp makes the mbarriers itself, and releases the consumers behind
 * that copy. Bands take divisions, and packed operands are waited for: there the consumers are released first. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_wgmma_fills(const ks_site &site, const mm_args &args, const mm_maps &maps,
                                               mm_wgmma_pipeline &pipeline, unsigned reduced)
{
    const unsigned step = gridDim.x / TILE::PEERS;
    unsigned index = blockIdx.x / TILE::PEERS;
    mm_wgmma_source from = {};
    if (threadIdx.x == TILE::PRODUCER) { /* before an argument is asked for: they come from as far */
        if constexpr (!TILE::ODD) mm_map_prefetch(&maps.a);
        mm_map_prefetch(&maps.b);
    }
    __syncwarp();
    if (threadIdx.x == TILE::PRODUCER) {
        if (args.tiles_m <= MM_BAND)
            from = mm_wgmma_source_at<TILE, false>(args, index, pipeline);
        else
            index -= step;
        for (int i = 0; i < TILE::STAGES; i++) {
            mm_mbarrier_init(pipeline.full + i * 8, TILE::FILLERS);
            mm_mbarrier_init(pipeline.empty + i * 8, TILE::READERS);
        }
        mm_mbarrier_init(reduced, 1);
        mm_mbarrier_publish();
        if (!args.packed && from.k < from.k_end) mm_wgmma_fill<TILE, A_K, B_K>(maps, from, pipeline);
        mm_mbarrier_expect(reduced, TILE::SUMS_BYTES);
    }
    __syncwarp();
    const bool cluster = TILE::PEERS > 1 || args.cluster > 1;
    if (cluster) mm_cluster_arrive_relaxed();
    if (threadIdx.x < TILE::PRODUCER + 32) mm_barriers_made<TILE>();
    if (threadIdx.x == TILE::PRODUCER) {
        const unsigned units = mm_wgmma_units(args);
        if (args.packed) mm_await_packed();
        for (;;) {
#pragma unroll 1
            while (from.k < from.k_end) {
                mm_mbarrier_wait(pipeline.empty + pipeline.stage * 8, pipeline.parity ^ 1);
                mm_wgmma_fill<TILE, A_K, B_K>(maps, from, pipeline);
            }
            index += step;
            if (index >= units) break;
            from = mm_wgmma_source_at<TILE, true>(args, index, pipeline);
        }
    }
    __syncwarp();
    if (cluster) mm_cluster_wait();
    if (threadIdx.x < TILE::PRODUCER + 32) mm_wgmma_stamp<TILE>(site);
}

/* A warp has read a stage: arrival at the mbarriers of all CTAs that write there. By each lane where the producers are threads:
 * racecheck does not follow a warp's hand-over through one of its lanes. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_release(mm_wgmma_pipeline &pipeline, unsigned stage)
{
    const unsigned lane_id = threadIdx.x % 32, barrier = pipeline.empty + stage * 8;
    if constexpr (TILE::PEERS == 1) {
        if (TILE::ODD || lane_id == 0) mm_mbarrier_arrive(barrier);
    } else {
        if (pipeline.alone > 0) mm_cluster_wait(), pipeline.alone = 0; /* the peers' barriers are ready */
        if (lane_id < TILE::PEERS &&
            (mm_wgmma_a_peers<TILE>(pipeline) | mm_wgmma_b_peers<TILE>(pipeline)) >> lane_id & 1)
            mm_mbarrier_arrive_at(barrier, lane_id);
    }
}

/* A stage's products are under way: the stage before, whose are done now, is free. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_next(mm_wgmma_pipeline &pipeline, unsigned &before, bool first)
{
    mm_wgmma_wait<1>();
    if (!first) mm_wgmma_release<TILE>(pipeline, before);
    before = pipeline.stage;
    mm_wgmma_step<TILE>(pipeline);
}

/* One warpgroup's products of a stage; `fed` are A's values where they come from registers. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_wgmma_stage(float (&sum)[TILE::SUMS], const mm_wgmma_pipeline &pipeline,
                                               int warpgroup, uint32_t (&fed)[4][4])
{
    mm_mbarrier_wait(pipeline.full + pipeline.stage * 8, pipeline.parity);
    const unsigned a = pipeline.at + pipeline.stage * TILE::STAGE + warpgroup * TILE::A_GROUP,
                   b = pipeline.at + pipeline.stage * TILE::STAGE + TILE::A_BYTES;
    if constexpr (TILE::ODD)
        TILE::feed(fed, a, pipeline.shift);
    else if constexpr (TILE::template feeds<A_K>)
        mm_wgmma_feed(fed, a);
    mm_wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const unsigned a_at = a + k * mm_descriptor_step<64, A_K>, b_at = b + k * mm_descriptor_step<TILE::N, B_K>;
        if constexpr (TILE::template feeds<A_K>)
            mm_wgmma_fed<typename TILE::element, TILE::N>(sum, fed[k], mm_descriptor<TILE::N, B_K>(b_at));
        else if constexpr (TILE::WIDE)
            mm_wgmma_tf32<TILE::N>(sum, mm_descriptor<64, A_K>(a_at), mm_descriptor<TILE::N, B_K>(b_at));
        else
            mm_wgmma<typename TILE::element, TILE::N, A_K, B_K>(sum, mm_descriptor<64, A_K>(a_at),
                                                                mm_descriptor<TILE::N, B_K>(b_at));
    }
    mm_wgmma_commit();
}

/* One warpgroup's 64 rows of a unit: sum is complete when it returns. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_wgmma_unit(float (&sum)[TILE::SUMS], mm_wgmma_pipeline &pipeline, int warpgroup,
                                              int steps)
{
#pragma unroll
    for (int i = 0; i < TILE::SUMS; i++) sum[i] = 0;
    unsigned before = 0;
    if constexpr (TILE::template feeds<A_K>) {
        /* While one stage's values multiply, the next one's are read. The compiler does not make the products wait only
         * where the first stage stands before the loop and two sets of registers take turns without a branch. */
        uint32_t even[4][4], odd[4][4];
        if (steps == 0) return;
        mm_wgmma_stage<TILE, A_K, B_K>(sum, pipeline, warpgroup, even);
        mm_wgmma_next<TILE>(pipeline, before, true);
        for (int step = 1; step + 1 < steps; step += 2) {
            mm_wgmma_stage<TILE, A_K, B_K>(sum, pipeline, warpgroup, odd);
            mm_wgmma_next<TILE>(pipeline, before, false);
            mm_wgmma_stage<TILE, A_K, B_K>(sum, pipeline, warpgroup, even);
            mm_wgmma_next<TILE>(pipeline, before, false);
        }
        if (steps % 2 == 0) {
            mm_wgmma_wait<0>();
            mm_wgmma_stage<TILE, A_K, B_K>(sum, pipeline, warpgroup, odd);
            mm_wgmma_next<TILE>(pipeline, before, false);
        }
    } else {
        uint32_t none[4][4];
        for (int step = 0; step < steps; step++) {
            mm_wgmma_stage<TILE, A_K, B_K>(sum, pipeline, warpgroup, none);
            mm_wgmma_next<TILE>(pipeline, before, step == 0);
        }
    }
    mm_wgmma_wait<0>();
    if (steps > 0) mm_wgmma_release<TILE>(pipeline, before);
}

/* 8 columns of a warp's 16 rows, of which a thread has two neighbours of row lane / 4, then two of that + 8. */
template <typename T>
__device__ __forceinline__ void mm_store_block(const mm_args &args, const mm_out<T> &out, int row, int column,
                                               mm_four<float> sum)
{
    const int lane_id = threadIdx.x % 32;
    if (!args.plain) {
#pragma unroll 1
        for (int e = 0; e < 4; e++) {
            const int at = args.swap_ab ? row + lane_id / 4 + e / 2 * 8 : column + lane_id % 4 * 2 + e % 2;
            const float bias =
                args.biased && at < (args.swap_ab ? out.rows : out.columns) ? mm_widen(out.bias[at]) : 0.0f;
            const float x = mm_epilogue(args, sum.value[0], bias);
            sum.value[0] = sum.value[1], sum.value[1] = sum.value[2], sum.value[2] = sum.value[3], sum.value[3] = x;
        }
    }
    uint32_t two[2] = {ks_round_two<T>(sum.value[0], sum.value[1]), ks_round_two<T>(sum.value[2], sum.value[3])};
    if (args.swap_ab) two[0] = mm_transpose_block(two[0]), two[1] = mm_transpose_block(two[1]);
    const mm_int pitch = args.swap_ab ? args.m : args.n;
    const int along_end = args.swap_ab ? out.rows : out.columns, lines_end = args.swap_ab ? out.columns : out.rows;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int along = (args.swap_ab ? row + half * 8 : column) + lane_id % 4 * 2,
                  line = (args.swap_ab ? column : row + half * 8) + lane_id / 4;
        if (line >= lines_end || along >= along_end) continue;
        T *to = out.c + line * pitch + along;
        if (pitch % 2 == 0)
            *(uint32_t *)to = two[half];
        else
            for (int e = 0; e < 2 && along + e < along_end; e++)
                *(uint16_t *)(to + e) = (uint16_t)(two[half] >> e * 16);
    }
}

/* FP32: of the thread's two rows, the second the next one or 8 further, two neighbours each. */
template <bool FED>
__device__ __forceinline__ void mm_store_wide(const mm_args &args, const mm_out<float> &out, int row, int column,
                                              mm_four<float> sum)
{
    constexpr int SECOND = FED ? 1 : 8;
    if (!args.plain) {
#pragma unroll 1
        for (int e = 0; e < 4; e++) {
            const int at = args.swap_ab ? row + e / 2 * SECOND : column + e % 2;
            const float bias = args.biased && at < (args.swap_ab ? out.rows : out.columns) ? out.bias[at] : 0.0f;
            const float x = mm_epilogue(args, sum.value[0], bias);
            sum.value[0] = sum.value[1], sum.value[1] = sum.value[2], sum.value[2] = sum.value[3], sum.value[3] = x;
        }
    }
    const mm_int pitch = args.swap_ab ? args.m : args.n;
    const int along = args.swap_ab ? row : column, line = args.swap_ab ? column : row,
              along_end = args.swap_ab ? out.rows : out.columns, lines_end = args.swap_ab ? out.columns : out.rows;
    /* [line][along] of the four, and how far apart they are. */
    const float four[2][2] = {{sum.value[0], args.swap_ab ? sum.value[2] : sum.value[1]},
                              {args.swap_ab ? sum.value[1] : sum.value[2], sum.value[3]}};
    const int lines_step = args.swap_ab ? 1 : SECOND, along_step = args.swap_ab ? SECOND : 1;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (line + i * lines_step >= lines_end || along >= along_end) continue;
        float *to = out.c + (line + i * lines_step) * pitch + along;
        if (along_step == 1 && pitch % 2 == 0) {
            *(float2 *)to = make_float2(four[i][0], four[i][1]);
        } else {
            to[0] = four[i][0];
            if (along + along_step < along_end) to[along_step] = four[i][1];
        }
    }
}

/* Columns 8 * block and up: four sums of a thread. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_wgmma_store_block(const mm_args &args, const mm_out<typename TILE::element> &out,
                                                     int block, mm_four<float> sum)
{
    if constexpr (TILE::WIDE)
        mm_store_wide<!A_K>(args, out, threadIdx.x / 128 * 64 + mm_wgmma_row<!A_K>(), block * 8 + threadIdx.x % 4 * 2,
                            sum);
    else
        mm_store_block(args, out, threadIdx.x / 32 * 16, block * 8, sum);
}

/* FP32: a tile that is inside whole, two neighbours at a time: with swap_ab, of two rows, else of two columns. */
template <typename TILE, bool FED, bool SWAP_AB>
__device__ __forceinline__ void mm_wgmma_store_pairs(const mm_args &args, const mm_out<float> &out,
                                                     const float (&sum)[TILE::SUMS])
{
    const int row = threadIdx.x / 128 * 64 + mm_wgmma_row<FED>(), column = threadIdx.x % 4 * 2;
    const mm_int pitch = SWAP_AB ? args.m : args.n, second = SWAP_AB || FED ? pitch : pitch * 8;
    float *to = out.c + (SWAP_AB ? column * pitch + row : row * pitch + column);
#pragma unroll
    for (int i = 0; i < TILE::SUMS; i += 4, to += SWAP_AB ? pitch * 8 : 8) {
        *(float2 *)to = make_float2(sum[i], sum[i + (SWAP_AB ? 2 : 1)]);
        *(float2 *)(to + second) = make_float2(sum[i + (SWAP_AB ? 1 : 2)], sum[i + 3]);
    }
}

/* Up to 64 columns of a warp at a time, in lines of 16 bytes; `scratch` is the warp's own. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_store_lines(const mm_args &args, const mm_out<typename TILE::element> &out,
                                                     const float (&sum)[TILE::SUMS], unsigned char *scratch)
{
    typedef typename TILE::element T;
    constexpr int SOME = TILE::BLOCKS < 8 ? TILE::BLOCKS : 8;
    const int lane_id = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    const mm_int pitch = args.swap_ab ? args.m : args.n;
    const int along_end = args.swap_ab ? out.rows : out.columns, lines_end = args.swap_ab ? out.columns : out.rows;
    /* Of the output's line, the 16 bytes `at`; swizzled, for the banks. */
    auto place = [&](int line, int at) {
        return (args.swap_ab ? line * 2 + ((at ^ line >> 2) & 1) : line * SOME + ((at ^ line) & (SOME - 1))) * 16;
    };
#pragma unroll
    for (int first = 0; first < TILE::BLOCKS; first += SOME) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < SOME; i++) {
            const float *four = sum + (first + i) * 4;
            const uint32_t high = ks_round_two<T>(four[0], four[1]), low = ks_round_two<T>(four[2], four[3]);
            const unsigned to = mm_shared_address(scratch) +
                                (args.swap_ab ? place(i * 8 + lane_id % 8, lane_id / 8 % 2) : place(lane_id % 16, i));
            if (args.swap_ab)
                mm_stmatrix<true>(to, high, low);
            else
                mm_stmatrix<false>(to, high, low);
        }
        __syncwarp();
#pragma unroll
        for (int i = lane_id; i < SOME * 16; i += 32) {
            const int line = args.swap_ab ? i / 2 : i / SOME, at = args.swap_ab ? i % 2 : i % SOME;
            const int line_at = (args.swap_ab ? first * 8 : row) + line,
                      along = (args.swap_ab ? row : first * 8) + at * 8;
            if (line_at < lines_end && along < along_end)
                *(uint4 *)(out.c + line_at * pitch + along) = *(const uint4 *)(scratch + place(line, at));
        }
    }
}

/* Up to 64 columns of a warpgroup at a time where lines of the output start anywhere: in words, with one element in front of
 * them or behind; `scratch` is the warpgroup's own. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_store_words(const mm_args &args, const mm_out<typename TILE::element> &out,
                                                     const float (&sum)[TILE::SUMS], unsigned char *scratch)
{
    typedef typename TILE::element T;
    constexpr int SOME = TILE::BLOCKS < 8 ? TILE::BLOCKS : 8;
    const int lane_id = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row = threadIdx.x / 128 * 64;
    const mm_int pitch = args.swap_ab ? args.m : args.n;
    const int along_end = args.swap_ab ? out.rows : out.columns, lines_end = args.swap_ab ? out.columns : out.rows;
    const int chunks = args.swap_ab ? 8 : SOME, lines = args.swap_ab ? SOME * 8 : 64, words = chunks * 4;
    /* Of a line, the 16 bytes `at`; swizzled, for the banks. */
    auto place = [&](int line, int at) { return (line * chunks + ((at ^ line) & (chunks - 1))) * 16; };
#pragma unroll
    for (int first = 0; first < TILE::BLOCKS; first += SOME) {
        mm_consumers_sync<TILE>();
#pragma unroll
        for (int i = 0; i < SOME; i++) {
            const float *four = sum + (first + i) * 4;
            const uint32_t high = ks_round_two<T>(four[0], four[1]), low = ks_round_two<T>(four[2], four[3]);
            const unsigned to =
                mm_shared_address(scratch) + (args.swap_ab ? place(i * 8 + lane_id % 8, warp * 2 + lane_id / 8 % 2)
                                                           : place(warp * 16 + lane_id % 16, i));
            if (args.swap_ab)
                mm_stmatrix<true>(to, high, low);
            else
                mm_stmatrix<false>(to, high, low);
        }
        mm_consumers_sync<TILE>();
        const int line_first = args.swap_ab ? first * 8 : row,
                  along = (args.swap_ab ? row : first * 8) + lane_id % words * 2;
#pragma unroll 4
        for (int line = (warp * 32 + lane_id) / words; line < lines; line += 128 / words) {
            if (line_first + line >= lines_end) break;
            T *to = out.c + (line_first + line) * pitch + along;
            const int at = lane_id % words, odd = (int)((uintptr_t)to >> 1 & 1);
            uint32_t word = *(const uint32_t *)(scratch + place(line, at / 4) + at % 4 * 4);
            if (odd) {
                if (at == 0 && along < along_end) *(uint16_t *)to = (uint16_t)word;
                const int next = at + 1 < words ? at + 1 : at;
                word = word >> 16 | *(const uint32_t *)(scratch + place(line, next / 4) + next % 4 * 4) << 16;
            }
            if (along + odd + 1 < along_end && at + odd < words)
                *(uint32_t *)(to + odd) = word;
            else if (along + odd < along_end)
                *(uint16_t *)(to + odd) = (uint16_t)word;
        }
    }
}

/* A whole tile's. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_wgmma_store(const mm_args &args, const mm_out<typename TILE::element> &out,
                                               const float (&sum)[TILE::SUMS], mm_four<float> *held)
{
    if constexpr (TILE::WIDE) {
        if (args.plain && (args.swap_ab ? args.m : args.n) % 2 == 0 && out.rows == TILE::M && out.columns == TILE::N &&
            !(A_K && args.swap_ab)) {
            if (args.swap_ab)
                mm_wgmma_store_pairs<TILE, !A_K, true>(args, out, sum);
            else
                mm_wgmma_store_pairs<TILE, !A_K, false>(args, out, sum);
            return;
        }
    } else if (args.plain) {
        if ((args.swap_ab ? args.m : args.n) % 8 == 0)
            mm_wgmma_store_lines<TILE>(args, out, sum, (unsigned char *)(held + threadIdx.x / 32 * 32 * TILE::HELD));
        else
            mm_wgmma_store_words<TILE>(args, out, sum, (unsigned char *)(held + threadIdx.x / 128 * 128 * TILE::HELD));
        return;
    }
    constexpr int SOME = TILE::BLOCKS < TILE::HELD ? TILE::BLOCKS : TILE::HELD;
    held += threadIdx.x;
#pragma unroll
    for (int first = 0; first < TILE::BLOCKS; first += SOME) {
        /* Through memory that is a thread's own, so that the code of a block is there once. */
#pragma unroll
        for (int i = 0; i < SOME; i++) {
            const float *four = sum + (first + i) * 4;
            held[i * TILE::CONSUMERS] = {four[0], four[1], four[2], four[3]};
        }
#pragma unroll 1
        for (int i = 0; i < SOME; i++) mm_wgmma_store_block<TILE, A_K>(args, out, first + i, held[i * TILE::CONSUMERS]);
    }
}

/* A unit of several that share a tile: the cluster's sums of what this CTA finishes come to `held`, and the mbarrier `reduced`
 * counts their bytes. A warp's part of them goes through the workspace, and the last of the splits' warps that have the same
 * part reduces it. Every sum is taken in the order of the slices. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_wgmma_reduce(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                                const mm_out<typename TILE::element> &out,
                                                const float (&sum)[TILE::SUMS], mm_four<float> *held, unsigned reduced)
{
    enum { FEW = 8, SOME = 2, WARPS = TILE::CONSUMERS / 32 }; /* under way at a time: parts, of so many blocks */
    const int share = TILE::BLOCKS >> args.cluster_log2;
    unsigned rank = 0;
    if (args.cluster > 1) {
        rank = mm_cluster_rank();
        mm_cluster_wait(); /* all barriers are ready */
    }
    held += threadIdx.x;
    const unsigned at = mm_shared_address(held + rank * share * TILE::CONSUMERS);
#pragma unroll
    for (int i = 0; i < TILE::BLOCKS; i++) {
        const unsigned to = (unsigned)i >> (TILE::BLOCKS_LOG2 - args.cluster_log2);
        mm_send(mm_peer_address(at + (i - to * share) * TILE::CONSUMERS * 16, to), mm_peer_address(reduced, to),
                sum + i * 4);
    }
    mm_mbarrier_wait_peers(reduced, 0);
    auto reduced_of = [&](int i) {
        mm_four<float> part[FEW];
        static_assert((int)FEW >= (int)KS_MATMUL_CLUSTER_MAX, "a cluster's parts are read at once");
#pragma unroll
        for (unsigned r = 0; r < FEW; r++)
            if (r < args.cluster) part[r] = held[(r * share + i) * TILE::CONSUMERS];
#pragma unroll
        for (unsigned r = 1; r < FEW; r++)
            if (r < args.cluster) mm_add(part[0], part[r]);
        return part[0];
    };
    if (args.splits == 1) {
        mm_consumers_end<TILE>();
#pragma unroll 1
        for (int i = 0; i < share; i++)
            mm_wgmma_store_block<TILE, A_K>(args, out, (int)rank * share + i, reduced_of(i));
        return;
    }
    const size_t split_fours = (size_t)TILE::BLOCKS * TILE::CONSUMERS;
    const unsigned warp = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    mm_four<float> *partial = (mm_four<float> *)ks_workspace(site) + unit.tile * args.splits * split_fours +
                              rank * share * TILE::CONSUMERS + threadIdx.x;
    uint32_t *counter = ks_counters(site) + (((size_t)unit.tile << args.cluster_log2) + rank) * WARPS + warp;
#pragma unroll 2
    for (int i = 0; i < share; i++) partial[unit.split * split_fours + i * TILE::CONSUMERS] = reduced_of(i);
    __syncwarp();
    const int last = __any_sync(~0u, lane_id == 0 && mm_draw(counter) + 1 == args.splits);
    __syncwarp();
    mm_consumers_end<TILE>();
    if (!last) return;
    if (lane_id == 0) *counter = 0;
#pragma unroll 1
    for (int i = 0; i < share; i += SOME) {
        mm_four<float> sums[SOME];
        const int some = min((int)SOME, share - i);
        mm_workspace_reduce<FEW>(sums, some, TILE::CONSUMERS, partial + i * TILE::CONSUMERS, split_fours, args.splits);
#pragma unroll 1
        for (int at = 0; at < some; at++) {
            mm_wgmma_store_block<TILE, A_K>(args, out, (int)rank * share + i + at, sums[0]);
            sums[0] = sums[1];
        }
    }
}
#endif

/* Device memory only: the maps hold addresses. Empty where the code is not made for sm_90a (find_tma). */
template <typename TILE, bool A_K, bool B_K>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_wgmma_kernel(ks_site site, const __grid_constant__ mm_args args, const __grid_constant__ mm_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char mm_wgmma_shared[];
    __shared__ uint64_t barriers[2 * TILE::STAGES + 1];
    const int warpgroup = threadIdx.x / 128;
    const unsigned at = mm_shared_address(mm_wgmma_shared), start = (at + 1023) & ~1023u;
    mm_wgmma_pipeline pipeline = {};
    pipeline.at = start, pipeline.full = mm_shared_address(barriers), pipeline.empty = pipeline.full + TILE::STAGES * 8;
    const unsigned reduced = pipeline.empty + TILE::STAGES * 8;
    if constexpr (TILE::PEERS > 1) {
        const unsigned rank = mm_cluster_rank();
        pipeline.row = rank % TILE::BY_M, pipeline.column = rank / TILE::BY_M, pipeline.alone = TILE::STAGES;
    }
    if (warpgroup == TILE::WARPGROUPS) {
        if constexpr (TILE::GIVES) mm_registers_give<TILE::PRODUCER_REGISTERS>();
        mm_wgmma_fills<TILE, A_K, B_K>(site, args, maps, pipeline, reduced);
    } else {
        if (TILE::PEERS > 1 || args.cluster > 1) mm_cluster_arrive_relaxed();
        if constexpr (TILE::GIVES) mm_registers_take<TILE::CONSUMER_REGISTERS>();
        if (!args.packed) ks_start(site);
        mm_barriers_wait<TILE>();
        const ks_job_sides job = site.only;
        mm_four<float> *held = (mm_four<float> *)(mm_wgmma_shared + (start - at) + TILE::STAGES * TILE::STAGE);
        const unsigned units = mm_wgmma_units(args), first = blockIdx.x / TILE::PEERS, step = gridDim.x / TILE::PEERS;
        const bool alone = args.cluster * args.splits == 1;
        float sum[TILE::SUMS];
        for (unsigned index = first; index < units; index += step) {
            mm_unit unit = mm_unit_at(args, index);
            unit.row = unit.row * TILE::BY_M + pipeline.row, unit.column = unit.column * TILE::BY_N + pipeline.column;
            const int steps = (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH);
            mm_wgmma_unit<TILE, A_K, B_K>(sum, pipeline, warpgroup, steps);
            const mm_out<typename TILE::element> out = mm_out_at<typename TILE::element, TILE>(args, unit, job);
            if constexpr (TILE::SPLIT_K)
                if (!alone) {
                    mm_wgmma_reduce<TILE, A_K>(site, args, unit, out, sum, held, reduced);
                    break;
                }
            if (index + step >= units) mm_consumers_end<TILE>();
            mm_wgmma_store<TILE, A_K>(args, out, sum, held);
        }
    }
    if constexpr (TILE::PEERS > 1) mm_cluster_leave();
#endif
}

template <typename TILE, bool A_K, bool B_K>
static constexpr mm_kernel mm_wgmma_entry(const char *name, mm_cost cost)
{
    return {.name = name,
            .tma_entry = mm_wgmma_kernel<TILE, A_K, B_K>,
            .m = TILE::M * TILE::BY_M,
            .n = TILE::N * TILE::BY_N,
            .depth = TILE::DEPTH,
            .threads = TILE::THREADS,
            .ctas = TILE::CTAS,
            .shared_bytes = TILE::SHARED,
            .cost = cost,
            .tma = true,
            .split_k = TILE::SPLIT_K,
            .by_m = TILE::BY_M,
            .by_n = TILE::BY_N};
}

template <typename TILE>
static constexpr mm_row mm_wgmma(const char *name, mm_cost cost)
{
    if constexpr (TILE::WIDE) {
        const mm_kernel across = mm_wgmma_entry<TILE, false, true>(name, cost),
                        along = mm_wgmma_entry<TILE, true, true>(name, cost);
        return {{{mm_without_entry(across), across}, {mm_without_entry(along), along}}};
    } else {
#define ENTRY(A_K, B_K) mm_wgmma_entry<TILE, A_K, B_K>(name, cost)
        return MM_LAYOUTS(ENTRY);
#undef ENTRY
    }
}

#endif
