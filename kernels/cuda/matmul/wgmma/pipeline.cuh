/* The pipeline of the products by wgmma: a tile's numbers, its mbarriers, the copies of the producer warp, and the release of a
 * stage by its consumers. */
#ifndef KS_MATMUL_WGMMA_PIPELINE_CUH
#define KS_MATMUL_WGMMA_PIPELINE_CUH

#include "cuda/matmul/table.cuh"
#include "cuda/matmul/wgmma/step.cuh"

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
    static constexpr bool SPLIT_K = !GIVES && !WHOLE;
    /* Of a stage: bytes that the TMA copies bring, arrivals that make it full, arrivals that make it empty. */
    static constexpr int COPIED = STAGE, FILLERS = 1, READERS = WARPGROUPS * 4 * (BY_M + BY_N - 1);
    static constexpr int SUMS = N / 2, SUMS_BYTES = M * N * 4; /* of a thread; of all */
    /* Of 8 columns: four sums of a thread. */
    static constexpr int BLOCKS = N / 8, BLOCKS_LOG2 = N < 16 ? 0 : N < 32 ? 1 : N < 64 ? 2 : N < 128 ? 3 : 4;
    /* Blocks of sums in shared memory: of all slices of a cluster, what this CTA finishes; or a few on their way to the output. */
    static constexpr int HELD = SPLIT_K && PEERS == 1 && BLOCKS > 4 ? BLOCKS : 4, HELD_BYTES = HELD * CONSUMERS * 16;
    static constexpr int SHARED = 1024 + STAGES * STAGE + HELD_BYTES;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Where in an operand a stage's copy begins. */
typedef struct mm_wgmma_box {
    int across, k, matrix;
} mm_wgmma_box;

/* Part `part` of a stage of ACROSS rows (columns): a box, or boxes of up to 128 bytes across where rows lie across K. */
template <typename T, int ACROSS, bool K_CONTIGUOUS, int PARTS>
__device__ __forceinline__ void mm_wgmma_load(unsigned to, const CUtensorMap *map, unsigned barrier, mm_wgmma_box box,
                                              int part, unsigned peers)
{
    constexpr int LINE = 128 / (int)sizeof(T), WIDTH = mm_box_columns(ACROSS, (int)sizeof(T)),
                  ROWS = (K_CONTIGUOUS ? ACROSS : LINE) / PARTS;
    if constexpr (K_CONTIGUOUS) {
        mm_tma_load(to + part * ROWS * 128, map, barrier, box.k, box.across + part * ROWS, box.matrix, peers);
    } else {
#pragma unroll
        for (int i = 0; i < ACROSS; i += WIDTH)
            mm_tma_load(to + i * 128 + part * ROWS * WIDTH * (int)sizeof(T), map, barrier, box.across + i,
                        box.k + part * ROWS, box.matrix, peers);
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
    unsigned alone;    /* the producer's: whether the peers' barriers may not be ready */
    unsigned shift[2]; /* of this thread's rows of A, where they start anywhere (odd.cuh) */
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
__device__ __forceinline__ void mm_wgmma_copy(unsigned to, const CUtensorMap *map, unsigned barrier, mm_wgmma_box box,
                                              int part, unsigned peers, bool alone)
{
    if (PARTS > 1 && !alone) {
        mm_wgmma_load<T, ACROSS, K_CONTIGUOUS, PARTS>(to, map, barrier, box, part, peers);
        return;
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++) mm_wgmma_load<T, ACROSS, K_CONTIGUOUS, PARTS>(to, map, barrier, box, i, 0);
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

/* The producer thread: A's and B's part of the next stage. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_wgmma_fill_a(const mm_maps &maps, const mm_wgmma_source &from,
                                                const mm_wgmma_pipeline &pipeline)
{
    mm_wgmma_copy<typename TILE::element, TILE::M, A_K, TILE::BY_N>(
        pipeline.at + pipeline.stage * TILE::STAGE, &maps.a, pipeline.full + pipeline.stage * 8,
        {from.row, (int)from.k, from.a_matrix}, (int)pipeline.column, mm_wgmma_a_peers<TILE>(pipeline),
        pipeline.alone > 0);
}
template <typename TILE, bool B_K>
__device__ __forceinline__ void mm_wgmma_fill_b(const mm_maps &maps, const mm_wgmma_source &from,
                                                const mm_wgmma_pipeline &pipeline)
{
    mm_wgmma_copy<typename TILE::element, TILE::N, B_K, TILE::BY_M>(
        pipeline.at + pipeline.stage * TILE::STAGE + TILE::A_BYTES, &maps.b, pipeline.full + pipeline.stage * 8,
        {from.column, (int)from.k, from.b_matrix}, (int)pipeline.row, mm_wgmma_b_peers<TILE>(pipeline),
        pipeline.alone > 0);
}

template <typename TILE>
__device__ __forceinline__ void mm_wgmma_move(mm_wgmma_source &from, mm_wgmma_pipeline &pipeline)
{
    from.k += TILE::DEPTH;
    mm_wgmma_step<TILE>(pipeline);
}

/* Fills the next stage, which is empty: when the peers have read theirs as well. A peer that may not have begun is not written
 * to: then each CTA copies all parts for itself. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_wgmma_fill(const mm_maps &maps, mm_wgmma_source &from, mm_wgmma_pipeline &pipeline)
{
    mm_mbarrier_expect(pipeline.full + pipeline.stage * 8, TILE::COPIED);
    if constexpr (!TILE::ODD) mm_wgmma_fill_a<TILE, A_K>(maps, from, pipeline);
    mm_wgmma_fill_b<TILE, B_K>(maps, from, pipeline);
    mm_wgmma_move<TILE>(from, pipeline);
}

/* The first stages, all of which are empty, behind a launch that writes INPUT0: INPUT1's part meanwhile, INPUT0's then. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_wgmma_fill_behind(const mm_args &args, const mm_maps &maps, mm_wgmma_source &from,
                                                     mm_wgmma_pipeline &pipeline)
{
    mm_wgmma_source ahead = from;
    mm_wgmma_pipeline there = pipeline;
    int stages = 0;
#pragma unroll 1
    for (; stages < TILE::STAGES && ahead.k < ahead.k_end; stages++) {
        mm_mbarrier_expect(there.full + there.stage * 8, TILE::COPIED);
        if (args.swap_ab)
            mm_wgmma_fill_a<TILE, A_K>(maps, ahead, there);
        else
            mm_wgmma_fill_b<TILE, B_K>(maps, ahead, there);
        mm_wgmma_move<TILE>(ahead, there);
    }
    mm_await_packed();
#pragma unroll 1
    for (; stages > 0; stages--) {
        if (args.swap_ab)
            mm_wgmma_fill_b<TILE, B_K>(maps, from, pipeline);
        else
            mm_wgmma_fill_a<TILE, A_K>(maps, from, pipeline);
        mm_wgmma_move<TILE>(from, pipeline);
    }
}

/* The producer warp, to its end. Its first copy waits for no other thread, and the code in front of it is short and straight:
 * lines of code and of arguments come from far away. So this warp makes the mbarriers itself, and releases the consumers behind
 * that copy. Bands take divisions, and operands of the launch in front are waited for: there the consumers are released first.
 * Behind the first copy peers wait for each other, and copy for each other from then on. */
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
    if constexpr (TILE::PEERS > 1) mm_cluster_wait(), pipeline.alone = 0;
    if (threadIdx.x == TILE::PRODUCER) {
        const unsigned units = mm_wgmma_units(args);
        if (TILE::ODD || args.packed != MM_PACKED_INPUT0) {
            if (args.packed) mm_await_packed();
        } else if constexpr (!TILE::ODD) {
            if (args.tiles_m > MM_BAND) index += step, from = mm_wgmma_source_at<TILE, true>(args, index, pipeline);
            mm_wgmma_fill_behind<TILE, A_K, B_K>(args, maps, from, pipeline);
        }
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
    if (TILE::PEERS == 1 && cluster) mm_cluster_wait();
    if (threadIdx.x < TILE::PRODUCER + 32) mm_wgmma_stamp<TILE>(site);
}

/* A warp has read a stage: arrival at the mbarriers of all CTAs that write there. By each lane where the producers are threads:
 * racecheck does not follow a warp's hand-over through one of its lanes. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_release(const mm_wgmma_pipeline &pipeline, unsigned stage)
{
    const unsigned lane_id = threadIdx.x % 32, barrier = pipeline.empty + stage * 8;
    if constexpr (TILE::PEERS == 1) {
        if (TILE::ODD || lane_id == 0) mm_mbarrier_arrive(barrier);
    } else {
        if (lane_id < TILE::PEERS &&
            (mm_wgmma_a_peers<TILE>(pipeline) | mm_wgmma_b_peers<TILE>(pipeline)) >> lane_id & 1)
            mm_mbarrier_arrive_at(barrier, lane_id);
    }
}
#endif
#endif
