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

#include "cuda/matmul/wgmma/store.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
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
        pipeline.row = rank % TILE::BY_M, pipeline.column = rank / TILE::BY_M, pipeline.alone = 1;
    }
    if (warpgroup == TILE::WARPGROUPS) {
        if constexpr (TILE::GIVES) mm_registers_give<TILE::PRODUCER_REGISTERS>();
        mm_wgmma_fills<TILE, A_K, B_K>(site, args, maps, pipeline, reduced);
    } else {
        if (TILE::PEERS > 1 || args.cluster > 1) mm_cluster_arrive_relaxed();
        if constexpr (TILE::GIVES) mm_registers_take<TILE::CONSUMER_REGISTERS>();
        if (!args.packed) ks_start(site);
        mm_barriers_wait<TILE>();
        ks_await(site);
        /* The peers' barriers are ready, while the first stage is on its way. Not later, at the first release: racecheck
         * lets no warp pass this barrier until all of the CTA have come to it, the producer's too. */
        if constexpr (TILE::PEERS > 1) mm_cluster_wait();
        const ks_job_sides job = site.only;
        mm_four<float> *held = (mm_four<float> *)(mm_wgmma_shared + (start - at) + TILE::STAGES * TILE::STAGE);
        const unsigned units = mm_wgmma_units(args), first = blockIdx.x / TILE::PEERS, step = gridDim.x / TILE::PEERS;
        const bool alone = args.cluster * args.splits == 1;
        float sum[TILE::SUMS];
        for (unsigned index = first; index < units; index += step) {
            mm_unit unit = mm_unit_at(args, index);
            unit.row = unit.row * TILE::BY_M + pipeline.row, unit.column = unit.column * TILE::BY_N + pipeline.column;
            const int steps = (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH);
            mm_wgmma_out<TILE, A_K> out;
            out.begin(args, unit, job);
            mm_ask_biases<TILE>(args, unit, job);
            mm_wgmma_unit<TILE, A_K, B_K>(sum, pipeline, warpgroup, steps);
            (mm_out<typename TILE::element> &)out = mm_out_at<typename TILE::element, TILE>(args, unit, job);
            if constexpr (TILE::SPLIT_K)
                if (!alone) {
                    if constexpr (TILE::PEERS > 1)
                        mm_wgmma_reduce_peers<TILE, A_K>(site, args, unit, out, sum, pipeline);
                    else
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
            .by_n = TILE::BY_N,
            .order = mm_order_of(MM_BY_WGMMA, 1, TILE::DEPTH)};
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
