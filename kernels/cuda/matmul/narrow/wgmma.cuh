/* Products of 8 bits by wgmma on sm_90a: the producer warp, its copies and the walk over tiles are those of wgmma/ (pipeline.cuh), with
 * stages of 128 bytes of K; what differs is what multiplies, and what becomes of the sums.
 *
 * INT8     its own instruction, sums exact in INT32.
 * FP8      widened to FP16, whose products are exact and whose sums are FP32's: as exact as tile.cuh. With precision=fast FP8's own
 *          instruction, whose sums keep some 14 bits: each stage's, of 128 values of K, are added to sums in FP32.
 * Order    of a sum: that of K, stage by stage; slices of K are added by narrow_add in their order. */
#ifndef KS_MATMUL_NARROW_WGMMA_CUH
#define KS_MATMUL_NARROW_WGMMA_CUH

#include "cuda/matmul/narrow/tile.cuh"
#include "cuda/matmul/wgmma/pipeline.cuh"

/* What a stage's bytes are. */
template <bool A_E5M2_, bool B_E5M2_>
struct narrow_fp8 {
    static constexpr bool A_E5M2 = A_E5M2_, B_E5M2 = B_E5M2_;
    unsigned char byte;
};

template <typename E>
struct narrow_kind {
    typedef float sum;
    static constexpr bool PROMOTES = true;
};
template <>
struct narrow_kind<int8_t> {
    typedef int32_t sum;
    static constexpr bool PROMOTES = false;
};
template <>
struct narrow_kind<__half> {
    typedef float sum;
    static constexpr bool PROMOTES = false;
};

/* K is not shared within a cluster, so all of HELD is for sums on their way to the output. */
template <typename E, int WARPGROUPS, int N, int STAGES, int BY_M>
struct narrow_wgmma_tile : mm_wgmma_tile<E, WARPGROUPS, N, STAGES, 1, BY_M, 1, true> {
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* --- products -------------------------------------------------------------------------------------------------------- */

template <typename E, bool FIRST, int N, typename S>
__device__ __forceinline__ void narrow_wgmma_multiply(S (&sum)[N / 2], uint64_t a, uint64_t b)
{
    if constexpr (std::is_same_v<E, int8_t>)
        mm_wgmma_int8<N>(sum, a, b);
    else if constexpr (std::is_same_v<E, __half>)
        mm_wgmma<__half, N, true, true>(sum, a, b);
    else
        mm_wgmma_fp8<E::A_E5M2, E::B_E5M2, FIRST, N>(sum, a, b);
}

/* One warpgroup's products of a stage, of the COLUMNS from `column` on: 32 bytes of K at a time. */
template <typename TILE, int COLUMNS, typename S>
__device__ __forceinline__ void narrow_wgmma_stage(S (&sum)[COLUMNS / 2], const mm_wgmma_pipeline &pipeline,
                                                   int warpgroup, int column)
{
    typedef typename TILE::element E;
    const unsigned a = pipeline.at + pipeline.stage * TILE::STAGE + warpgroup * TILE::A_GROUP,
                   b = pipeline.at + pipeline.stage * TILE::STAGE + TILE::A_BYTES + column * 128;
    mm_wgmma_fence();
    narrow_wgmma_multiply<E, true, COLUMNS>(sum, mm_descriptor<64, true>(a), mm_descriptor<COLUMNS, true>(b));
#pragma unroll
    for (int k = 32; k < 128; k += 32)
        narrow_wgmma_multiply<E, false, COLUMNS>(sum, mm_descriptor<64, true>(a + k),
                                                 mm_descriptor<COLUMNS, true>(b + k));
    mm_wgmma_commit();
}

/* One warpgroup's 64 rows of a unit: `total` is complete when it returns. */
template <typename TILE, typename S>
__device__ __forceinline__ void narrow_wgmma_unit(S (&total)[TILE::SUMS], mm_wgmma_pipeline &pipeline, int warpgroup,
                                                  int steps)
{
#pragma unroll
    for (int i = 0; i < TILE::SUMS; i++) total[i] = 0;
    if constexpr (narrow_kind<typename TILE::element>::PROMOTES) {
        /* Up to 128 columns at a time: there are registers for no more. The other warpgroup multiplies meanwhile. */
        constexpr int COLUMNS = TILE::N < 128 ? TILE::N : 128;
        float sum[COLUMNS / 2];
        for (int step = 0; step < steps; step++) {
            mm_mbarrier_wait(pipeline.full + pipeline.stage * 8, pipeline.parity);
#pragma unroll
            for (int column = 0; column < TILE::N; column += COLUMNS) {
                mm_wgmma_settle(sum);
                narrow_wgmma_stage<TILE, COLUMNS>(sum, pipeline, warpgroup, column);
                mm_wgmma_wait<0>();
                mm_wgmma_settle(sum);
                if (column + COLUMNS == TILE::N) mm_wgmma_release<TILE>(pipeline, pipeline.stage);
#pragma unroll
                for (int i = 0; i < COLUMNS / 2; i++) total[column / 2 + i] += sum[i];
            }
            mm_wgmma_step<TILE>(pipeline);
        }
    } else {
        unsigned before = 0;
        for (int step = 0; step < steps; step++) {
            mm_mbarrier_wait(pipeline.full + pipeline.stage * 8, pipeline.parity);
            narrow_wgmma_stage<TILE, TILE::N>(total, pipeline, warpgroup, 0);
            mm_wgmma_wait<1>();
            if (step > 0) mm_wgmma_release<TILE>(pipeline, before);
            before = pipeline.stage;
            mm_wgmma_step<TILE>(pipeline);
        }
        mm_wgmma_wait<0>();
        if (steps > 0) mm_wgmma_release<TILE>(pipeline, before);
        mm_wgmma_settle(total);
    }
}

/* --- the end of a sum ------------------------------------------------------------------------------------------------ */

/* Where a warp's sums go. */
struct narrow_wgmma_place {
    unsigned char *c; /* element (0, 0) of the matrix */
    int64_t row;      /* of this thread's two: the first; the second is 8 further */
    int64_t column;   /* of its first four */
};

/* The lanes of a pair change their two sums of a block of 8 columns for the other's of the next one: then the even lane has four neighbours
 * of the first block, the odd one of the second. Of a thread's two rows in turn. */
template <typename S>
__device__ __forceinline__ void narrow_wgmma_pair(const S *first, const S *second, int row, S (&out)[4])
{
    const bool odd = threadIdx.x & 1;
    const S give0 = odd ? first[row * 2] : second[row * 2], give1 = odd ? first[row * 2 + 1] : second[row * 2 + 1];
    const S take0 = __shfl_xor_sync(~0u, give0, 1), take1 = __shfl_xor_sync(~0u, give1, 1);
    out[0] = odd ? take0 : first[row * 2], out[1] = odd ? take1 : first[row * 2 + 1];
    out[2] = odd ? second[row * 2] : take0, out[3] = odd ? second[row * 2 + 1] : take1;
}

/* Sums as they are: INT32, or a slice's. */
template <typename TILE, typename S>
__device__ __forceinline__ void narrow_wgmma_sums(const narrow_args &args, const narrow_wgmma_place &place,
                                                  const S (&sum)[TILE::SUMS])
{
#pragma unroll
    for (int block = 0; block < TILE::BLOCKS; block += 2)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = place.row + half * 8, column = place.column + block * 8;
            S four[4];
            narrow_wgmma_pair(sum + block * 4, sum + block * 4 + 4, half, four);
            if (row < args.a.rows && column < args.b.rows)
                narrow_store_four(args, (S *)(void *)place.c + row * args.line, column, four);
        }
}

/* Two blocks of 8 columns of both rows. */
template <typename T, typename S>
__device__ __forceinline__ void narrow_wgmma_outputs(const narrow_args &args, const narrow_wgmma_place &place,
                                                     const narrow_scales &scales, int64_t column,
                                                     const mm_four<S> &first, const mm_four<S> &second)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t row = place.row + half * 8;
        S four[4];
        narrow_wgmma_pair(first.value, second.value, half, four);
        if (row < args.a.rows && column < args.b.rows) narrow_outputs<T>(args, scales, place.c, row, column, four);
    }
}

/* All of a thread's, through memory of its own, so that the code of two blocks is there once. */
template <typename TILE, typename S>
__device__ __forceinline__ void narrow_wgmma_finish(const narrow_args &args, const narrow_wgmma_place &place,
                                                    const narrow_scales &scales, const S (&sum)[TILE::SUMS],
                                                    mm_four<S> *held)
{
    held += threadIdx.x;
#pragma unroll
    for (int first = 0; first < TILE::BLOCKS; first += TILE::HELD) {
#pragma unroll
        for (int i = 0; i < TILE::HELD; i++) {
            const S *const four = sum + (first + i) * 4;
            held[i * TILE::CONSUMERS] = {four[0], four[1], four[2], four[3]};
        }
#pragma unroll 1
        for (int i = 0; i < TILE::HELD; i += 2) {
            const mm_four<S> &one = held[i * TILE::CONSUMERS], &next = held[(i + 1) * TILE::CONSUMERS];
            const int64_t column = place.column + (first + i) * 8;
            if (args.out == KS_FP32)
                narrow_wgmma_outputs<float>(args, place, scales, column, one, next);
            else if (args.out == KS_FP16)
                narrow_wgmma_outputs<__half>(args, place, scales, column, one, next);
            else
                narrow_wgmma_outputs<__nv_bfloat16>(args, place, scales, column, one, next);
        }
    }
}
#endif

/* --- the kernel ------------------------------------------------------------------------------------------------------ */

/* Device memory only: the maps hold addresses. Empty where the code is not made for sm_90a. */
template <typename TILE>
__global__ void __launch_bounds__(TILE::THREADS, 1)
    narrow_wgmma(ks_site site, const __grid_constant__ mm_args walk, const __grid_constant__ mm_maps maps,
                 const __grid_constant__ narrow_args args)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef typename narrow_kind<typename TILE::element>::sum S;
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
        mm_wgmma_fills<TILE, true, true>(site, walk, maps, pipeline, reduced);
    } else {
        if constexpr (TILE::PEERS > 1) mm_cluster_arrive_relaxed();
        if constexpr (TILE::GIVES) mm_registers_take<TILE::CONSUMER_REGISTERS>();
        if (!walk.packed) ks_start(site);
        mm_barriers_wait<TILE>();
        if constexpr (TILE::PEERS > 1) mm_cluster_wait();
        const ks_job_sides job = site.only;
        if (args.splits == 1)
            narrow_check(site, args, job, (int64_t)blockIdx.x * TILE::CONSUMERS + threadIdx.x,
                         (int64_t)gridDim.x * TILE::CONSUMERS);
        mm_four<S> *const held = (mm_four<S> *)(void *)(mm_wgmma_shared + (start - at) + TILE::STAGES * TILE::STAGE);
        const unsigned units = mm_wgmma_units(walk), step = gridDim.x / TILE::PEERS;
        const int row = warpgroup * 64 + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4,
                  column = threadIdx.x % 2 * 8 + threadIdx.x % 4 / 2 * 4;
        S sum[TILE::SUMS];
        for (unsigned index = blockIdx.x / TILE::PEERS; index < units; index += step) {
            mm_unit unit = mm_unit_at(walk, index);
            unit.row = unit.row * TILE::BY_M + pipeline.row, unit.column = unit.column * TILE::BY_N + pipeline.column;
            narrow_wgmma_unit<TILE>(sum, pipeline, warpgroup,
                                    (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH));
            if (index + step >= units) mm_consumers_end<TILE>();
            const int64_t matrix = args.a.rows * args.line;
            narrow_wgmma_place place = {job.out + args.c, (int64_t)unit.row * TILE::M + row,
                                        (int64_t)unit.column * TILE::N + column};
            if (args.splits > 1) {
                place.c = ks_workspace(site) + ((int64_t)unit.split * args.batch + unit.batch) * matrix * sizeof(S);
                narrow_wgmma_sums<TILE>(args, place, sum);
            } else if (args.out == KS_INT32) {
                place.c += unit.batch * matrix * sizeof(S);
                narrow_wgmma_sums<TILE>(args, place, sum);
            } else {
                place.c += unit.batch * matrix * (args.out == KS_FP32 ? 4 : 2);
                narrow_wgmma_finish<TILE>(args, place, narrow_scales_of(args, job, narrow_place_of(args, unit.batch)),
                                          sum, held);
            }
        }
    }
    if constexpr (TILE::PEERS > 1) mm_cluster_leave();
#endif
}

#endif
