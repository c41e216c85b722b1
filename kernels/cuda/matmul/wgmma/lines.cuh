/* 16 bits, where lines of the output are whole vectors of 16 bytes, as its bias and lines of its residual then are: a tile's sums pass through
 * shared memory from wgmma's order to the output's, and a thread then stores 8 neighbours of a line at a time. */
#ifndef KS_MATMUL_WGMMA_LINES_CUH
#define KS_MATMUL_WGMMA_LINES_CUH

#include "cuda/matmul/epilogue.cuh"
#include "cuda/matmul/wgmma/pipeline.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* Whether a tile's sums, whole when its products end, are stored in lines. */
template <typename TILE>
__device__ __forceinline__ bool mm_is_lines(const mm_args &args)
{
    return !TILE::WIDE && args.cluster * args.splits == 1 && (args.swap_ab ? args.m : args.n) % 8 == 0;
}

/* Of a tile's blocks of columns. */
template <typename TILE>
constexpr int mm_blocks_at_once = TILE::BLOCKS % 8 == 0   ? 8
                                  : TILE::BLOCKS % 4 == 0 ? 4
                                                          : TILE::BLOCKS;

/* Up to 64 columns of a warp at a time, in lines of 16 bytes; `scratch` is the warp's own. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_store_lines(const mm_args &args, const mm_out<typename TILE::element> &out,
                                                     const float (&sum)[TILE::SUMS], unsigned char *scratch)
{
    typedef typename TILE::element T;
    constexpr int SOME = mm_blocks_at_once<TILE>;
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

/* A warp's chunk of sums: BLOCKS of 8 columns by 16 rows, of which a thread has COUNT vectors of lines. Where its first vector of a
 * chunk is, in elements from the tile's first one, and how far it is from there to the ends of what is inside. */
template <typename TILE>
struct mm_chunk {
    static constexpr int BLOCKS = TILE::BLOCKS < 4 ? TILE::BLOCKS : 4, CHUNKS = TILE::BLOCKS / BLOCKS,
                         COUNT = BLOCKS / 2;
    static_assert(TILE::WIDE || (TILE::BLOCKS % BLOCKS == 0 && BLOCKS % 2 == 0), "chunks are whole");
    /* Registers beside the sums. Where they are few: one vector at a time, and residuals of fewer chunks ahead, or none. */
    static constexpr int FREE = 65536 / (TILE::THREADS * TILE::CTAS) - TILE::SUMS;
    static constexpr bool TIGHT = FREE < 74;
    mm_int at;
    int lines, along;

    __device__ __forceinline__ mm_chunk(const mm_args &args, const mm_out<typename TILE::element> &out)
    {
        const int lane_id = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
        const int line = args.swap_ab ? lane_id / 2 : row + lane_id / BLOCKS,
                  first = args.swap_ab ? row + lane_id % 2 * 8 : lane_id % BLOCKS * 8;
        at = line * (args.swap_ab ? args.m : args.n) + first;
        lines = (args.swap_ab ? out.columns : out.rows) - line, along = (args.swap_ab ? out.rows : out.columns) - first;
    }
    /* From a vector of the chunk to the next one, in lines. */
    static __device__ __forceinline__ int apart(const mm_args &args)
    {
        return args.swap_ab ? 16 : 32 / BLOCKS;
    }
    __device__ __forceinline__ bool is_inside(const mm_args &args, int i) const
    {
        return lines > i * apart(args) && along > 0;
    }
    __device__ __forceinline__ mm_int vector(const mm_args &args, int i) const
    {
        return at + i * apart(args) * (args.swap_ab ? args.m : args.n);
    }
    __device__ __forceinline__ void step(const mm_args &args)
    {
        at += BLOCKS * 8 * (args.swap_ab ? args.m : 1);
        lines -= args.swap_ab ? BLOCKS * 8 : 0;
        along -= args.swap_ab ? 0 : BLOCKS * 8;
    }
};

template <typename T>
__device__ __forceinline__ void mm_widen_eight(const uint4 &eight, float *to)
{
    const uint32_t word[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 8; i++) to[i] = mm_widen(((const T *)&word[i / 2])[i % 2]);
}

/* What is added to a thread's vectors of a tile; those of AHEAD chunks are under way, from before the products on. */
template <typename TILE>
struct mm_line_residuals {
    typedef mm_chunk<TILE> chunk;
    static constexpr int AHEAD = chunk::FREE < 40 ? 0 : chunk::CHUNKS < 2 || chunk::TIGHT ? 1 : 2;
    uint4 eight[AHEAD + 1][TILE::WIDE ? 1 : chunk::COUNT];

    __device__ __forceinline__ void read(const mm_args &args, const mm_out<typename TILE::element> &out,
                                         const chunk &from, int i, int to)
    {
        eight[to][i] =
            from.is_inside(args, i) ? *(const uint4 *)(out.residual + from.vector(args, i)) : make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void begin(const mm_args &args, const mm_out<typename TILE::element> &out)
    {
        if constexpr (!TILE::WIDE) {
            chunk from(args, out);
#pragma unroll
            for (int a = 0; a < AHEAD; a++, from.step(args))
#pragma unroll
                for (int i = 0; i < chunk::COUNT; i++) read(args, out, from, i, a);
        }
    }
    /* Vector i of the next chunk; the one AHEAD chunks further, of `from`, is asked for. */
    __device__ __forceinline__ void take(const mm_args &args, const mm_out<typename TILE::element> &out,
                                         const chunk &from, int i, float *to)
    {
        read(args, out, from, i, AHEAD); /* behind the tile: outside, so none is read */
        mm_widen_eight<typename TILE::element>(eight[0][i], to);
#pragma unroll
        for (int a = 0; a < AHEAD; a++) eight[a][i] = eight[a + 1][i];
    }
};

/* Where four neighbours of a chunk's line stand in shared memory, in fours: the lines follow each other, swizzled for the banks. */
__device__ __forceinline__ int mm_staged_at(int four)
{
    return four ^ ((four >> 3 & 3) * 2 | (four >> 3 & 1));
}

/* A chunk's sums to `staged`. */
template <typename TILE>
__device__ __forceinline__ void mm_stage_chunk(const mm_args &args, const float *sum, float *staged)
{
    constexpr int BLOCKS = mm_chunk<TILE>::BLOCKS;
    const int lane_id = threadIdx.x % 32;
    if (args.swap_ab) {
        const int first = mm_staged_at(lane_id % 4 * 8 + lane_id / 16);
#pragma unroll
        for (int i = 0; i < BLOCKS * 4; i++) /* of the thread's four of a block: two columns, each of two rows */
            staged[(i / 4 * 32 + (first ^ (i % 2 * 4 + i / 2 % 2 * 2))) * 4 + lane_id / 4 % 4] = sum[i];
    } else {
        const int first = mm_staged_at(lane_id / 4 * BLOCKS * 2 + lane_id % 4 / 2);
#pragma unroll
        for (int i = 0; i < BLOCKS * 2; i++)
            *(float2 *)(staged + ((first ^ i / 2 * 2) + i % 2 * BLOCKS * 16) * 4 + lane_id % 2 * 2) =
                make_float2(sum[i * 2], sum[i * 2 + 1]);
    }
}

/* Alpha, bias, activation, residual and the rounding of a tile's sums, and its store. `staged` is the warp's own. The code of a chunk is
 * there once, but for the way of its sums to shared memory: a register has no address. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_finish_lines(const mm_args &args, const mm_out<typename TILE::element> &out,
                                                      const float (&sum)[TILE::SUMS], float *staged,
                                                      mm_line_residuals<TILE> &residuals)
{
    typedef typename TILE::element T;
    typedef mm_chunk<TILE> chunk;
    const int lane_id = threadIdx.x % 32, four = mm_staged_at(lane_id * 2);
    constexpr int SOME = chunk::TIGHT ? 1 : chunk::COUNT; /* vectors at a time */
    chunk to(args, out), from = to;
#pragma unroll
    for (int i = 0; i < mm_line_residuals<TILE>::AHEAD; i++) from.step(args);
    const T *bias = out.bias + (args.swap_ab ? threadIdx.x / 32 * 16 + lane_id % 2 * 8 : lane_id % chunk::BLOCKS * 8);
    uint4 biases = {};
    if (args.biased && to.along > 0) biases = *(const uint4 *)bias;
#pragma unroll 1
    for (int c = 0; c < chunk::CHUNKS; c++, to.step(args), from.step(args)) {
        float bias_of[SOME * 8];
#pragma unroll
        for (int i = 0; i < SOME; i++) mm_widen_eight<T>(biases, bias_of + i * 8);
        if (args.biased && !args.swap_ab && to.along > chunk::BLOCKS * 8)
            biases = *(const uint4 *)(bias += chunk::BLOCKS * 8);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < chunk::CHUNKS; i++)
            if (i == c) mm_stage_chunk<TILE>(args, sum + i * chunk::BLOCKS * 4, staged);
        __syncwarp();
#pragma unroll
        for (int first = 0; first < chunk::COUNT; first += SOME) {
            float x[SOME * 8], residual[SOME * 8] = {};
#pragma unroll
            for (int i = 0; i < SOME * 2; i++) {
                const float4 sums = *(const float4 *)(staged + ((four ^ i % 2) + (first + i / 2) * 64) * 4);
                x[i * 4] = sums.x, x[i * 4 + 1] = sums.y, x[i * 4 + 2] = sums.z, x[i * 4 + 3] = sums.w;
            }
#pragma unroll
            for (int i = 0; i < SOME && args.residual; i++)
                residuals.take(args, out, from, first + i, residual + i * 8);
            mm_finish<T>(args, bias_of, residual, x);
#pragma unroll
            for (int i = 0; i < SOME; i++) {
                const float *eight = x + i * 8;
                if (to.is_inside(args, first + i))
                    *(uint4 *)(out.c + to.vector(args, first + i)) =
                        make_uint4(ks_round_two<T>(eight[0], eight[1]), ks_round_two<T>(eight[2], eight[3]),
                                   ks_round_two<T>(eight[4], eight[5]), ks_round_two<T>(eight[6], eight[7]));
            }
        }
    }
}
#endif
#endif
