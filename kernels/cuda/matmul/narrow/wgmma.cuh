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

/* Sums as they are, INT32 or a slice's, of lines that start on four. */
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

/* HELD blocks' sums of a warp's 16 rows, in shared memory. */
template <typename S>
struct narrow_wgmma_chunk {
    const mm_four<S> *sums; /* the first lane's of the first block */
    unsigned char *c;
    int64_t line, column; /* elements from c to its first row; the first column */
    int rows, columns;    /* that are there; 0 or less: none */
    float scale_a;        /* of row lane % 16 */
};

/* Stored as vectors: a lane has four neighbours of four rows, so that what its columns have in common is read once. A sum's slot has two columns
 * of two rows; which of its two slots a lane reads first is its block's, for the banks. */
template <typename TILE, typename S>
__device__ __forceinline__ void narrow_wgmma_vectors(const narrow_args &args, const narrow_wgmma_chunk<S> &chunk,
                                                     const narrow_scales &scales)
{
    const int lane = threadIdx.x % KS_WARP, block = lane / 4 % 4, turn = block % 2, four = block * 8 + lane % 2 * 4;
    narrow_columns columns = {};
    if (four < chunk.columns) columns = narrow_columns_of(args, scales, chunk.column + four);
#pragma unroll 1
    for (int row = lane / 2 % 2 + lane / 16 * 2; row < 8; row += 4) {
        const mm_four<S> *const at = chunk.sums + block * TILE::CONSUMERS + row * 4 + lane % 2 * 2;
        const mm_four<S> one = at[turn], two = at[turn ^ 1];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float scale_a = __shfl_sync(~0u, chunk.scale_a, row + half * 8);
            S sum[4];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const S x = one.value[half * 2 + e], y = two.value[half * 2 + e];
                sum[e] = turn ? y : x, sum[2 + e] = turn ? x : y;
            }
            if (row + half * 8 < chunk.rows && four < chunk.columns)
                narrow_outputs(args, columns, scale_a, chunk.c,
                               {chunk.line + (row + half * 8) * args.line, chunk.column + four}, sum);
        }
    }
}

/* Of lines that start anywhere: a lane has a column, so that stores are whole sectors all the same. raw: sums as they are. */
template <typename TILE, typename S>
__device__ __forceinline__ void narrow_wgmma_lines(const narrow_args &args, const narrow_wgmma_chunk<S> &chunk,
                                                   const narrow_scales &scales, bool raw)
{
    constexpr int ROWS = 4; /* at a time */
    static_assert(TILE::HELD * 8 == KS_WARP, "a lane has one column of all that are held");
    const int lane = threadIdx.x % KS_WARP;
    const bool there = lane < chunk.columns;
    const int64_t column = chunk.column + lane;
    const S *const from = (const S *)(const void *)(chunk.sums + lane / 8 * TILE::CONSUMERS + lane % 8 / 2) + lane % 2;
    const float scale_b = !raw && there && scales.b ? __ldg(scales.b + column * scales.b_step) : 1;
    const float bias = !raw && there && args.biased ? __ldg(scales.bias + column) : 0;
#pragma unroll 1
    for (int row = 0; row < 16; row += ROWS) {
        S sum[ROWS];
        float x[ROWS];
#pragma unroll
        for (int e = 0; e < ROWS; e++) {
            sum[e] = from[(row % 8 + e) * 16 + row / 8 * 2];
            const float scale_a = __shfl_sync(~0u, chunk.scale_a, row + e);
            x[e] = narrow_scaled(args, (float)sum[e], scale_a, scale_b, bias);
        }
        if (!raw) narrow_activate(x, args.activation);
#pragma unroll
        for (int e = 0; e < ROWS; e++) {
            const int64_t at = chunk.line + (row + e) * args.line + column;
            if (!there || row + e >= chunk.rows) continue;
            if (raw)
                ((S *)(void *)chunk.c)[at] = sum[e];
            else
                narrow_store_one(args, chunk.c, at, x[e]);
        }
    }
}

/* All of a warp's, a few blocks after the other through shared memory, so that the code behind it is there once. raw: sums as they are, INT32
 * or a slice's, of lines that start anywhere. */
template <typename TILE, typename S>
__device__ __forceinline__ void narrow_wgmma_finish(const narrow_args &args, const narrow_wgmma_place &place,
                                                    const narrow_scales &scales, bool raw, const S (&sum)[TILE::SUMS],
                                                    mm_four<S> *held)
{
    const int lane = threadIdx.x % KS_WARP;
    const int64_t row = place.row - lane / 4; /* the warp's first */
    narrow_wgmma_chunk<S> chunk = {held + (threadIdx.x - lane), place.c, row * args.line};
    chunk.column = place.column - (lane % 2 * 8 + lane % 4 / 2 * 4);
    chunk.rows = (int)min(args.a.rows - row, (int64_t)16);
    chunk.scale_a =
        !raw && scales.a && lane % 16 < chunk.rows ? __ldg(scales.a + (row + lane % 16) * scales.a_step) : 1;
#pragma unroll 1
    for (int first = 0; first < TILE::BLOCKS; first += TILE::HELD) {
#pragma unroll
        for (int block = 0; block < TILE::BLOCKS; block++)
            if (block / TILE::HELD * TILE::HELD == first) {
                const S *const four = sum + block * 4;
                held[block % TILE::HELD * TILE::CONSUMERS + threadIdx.x] = {four[0], four[1], four[2], four[3]};
            }
        __syncwarp();
        chunk.columns = (int)min(args.b.rows - chunk.column, (int64_t)KS_WARP);
        if (args.line % 4 == 0)
            narrow_wgmma_vectors<TILE>(args, chunk, scales);
        else
            narrow_wgmma_lines<TILE>(args, chunk, scales, raw);
        chunk.column += KS_WARP;
        __syncwarp();
    }
}

/* Scales and biases of a unit, which are wanted behind its last product. */
template <typename TILE>
__device__ __forceinline__ void narrow_wgmma_prefetch(const narrow_args &args, const narrow_wgmma_place &place,
                                                      const narrow_scales &scales)
{
    if (scales.a)
#pragma unroll
        for (int half = 0; half < 2; half++)
            ks_prefetch(scales.a + min(place.row + half * 8, args.a.rows - 1) * scales.a_step);
    const int64_t column = min(place.column / TILE::N * TILE::N + threadIdx.x % TILE::N, args.b.rows - 1);
    if (scales.b) ks_prefetch(scales.b + column * scales.b_step);
    if (args.biased) ks_prefetch(scales.bias + column);
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
            narrow_wgmma_place place = {job.out + args.c, (int64_t)unit.row * TILE::M + row,
                                        (int64_t)unit.column * TILE::N + column};
            if (args.splits == 1 && args.out != KS_INT32)
                narrow_wgmma_prefetch<TILE>(args, place,
                                            narrow_scales_of(args, job, narrow_place_of(args, unit.batch)));
            narrow_wgmma_unit<TILE>(sum, pipeline, warpgroup,
                                    (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH));
            if (index + step >= units) mm_consumers_end<TILE>();
            const int64_t matrix = args.a.rows * args.line;
            const bool raw = args.splits > 1 || args.out == KS_INT32;
            if (args.splits > 1)
                place.c = ks_workspace(site) + ((int64_t)unit.split * args.batch + unit.batch) * matrix * sizeof(S);
            else
                place.c += unit.batch * matrix * (args.out == KS_FP32 || args.out == KS_INT32 ? 4 : 2);
            const narrow_scales scales = narrow_scales_of(args, job, narrow_place_of(args, unit.batch));
            if (raw && args.line % 4 == 0)
                narrow_wgmma_sums<TILE>(args, place, sum);
            else
                narrow_wgmma_finish<TILE>(args, place, scales, raw, sum, held);
        }
    }
    if constexpr (TILE::PEERS > 1) mm_cluster_leave();
#endif
}

#endif
