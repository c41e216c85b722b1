/* FP16, BF16 and TF32 by mma.sync with FP32 sums, on sm_80 and later: the engine of a tile (tile.cuh).
 *
 * Operands keep their layout in shared memory; ldmatrix, transposing where K is not the contiguous dimension, serves all
 * transposes of 16-bit types. TF32 elements are FP32 in memory, are rounded to nearest on the way into registers, and are
 * read one by one where K is not contiguous, because ldmatrix transposes 16-bit elements only. */
#ifndef KS_MATMUL_MMA_CUH
#define KS_MATMUL_MMA_CUH

#include "cuda/matmul/stage.cuh"

/* The warps are WM x WN over the tile and WK over a stage's K; CTAS of them fit an SM. */
template <typename T, int M_, int N_, int WM_, int WN_, int WK_, int STAGES_, int CTAS_>
struct mm_mma_tile {
    typedef T element;
    static constexpr int M = M_, N = N_, WM = WM_, WN = WN_, PLANES = WK_, STAGES = STAGES_, CTAS = CTAS_;
    static constexpr bool TRANSPOSES = false;
    static constexpr int THREADS = 32 * WM * WN * WK_, MMA = 1, WARP_M = M / WM, WARP_N = N / WN, SUM_PITCH = N + 8;
    static constexpr int DEPTH = 128 / (int)sizeof(T), WARP_K = DEPTH / PLANES, CHUNK = 16 / (int)sizeof(T),
                         STEP = 2 * CHUNK;
    static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0 && WARP_K % STEP == 0, "a warp's part is whole fragments");
    typedef float sums[WARP_M / 16][WARP_N / 8][4];
};

/* TF32 rows across K: 8 words of spare put the 4 x 8 elements of a fragment into 32 banks. */
template <typename TILE, int ACROSS, bool K_CONTIGUOUS>
struct mm_mma_operand {
    typedef typename TILE::element T;
    typedef mm_stage<T, K_CONTIGUOUS ? ACROSS : TILE::DEPTH, K_CONTIGUOUS ? TILE::DEPTH : ACROSS,
                     !K_CONTIGUOUS && sizeof(T) == 4 ? 32 : (int)MM_SPARE>
        stage;
};

/* 16 (across) x 16 or, TF32, 8 (along K) elements. Registers 0, 1: the first and second 8 of FIRST's dimension, 2, 3 the
 * same further along the other one; FIRST is across for A and K for B, as mma.sync wants them. */
template <typename T, typename STAGE, bool K_CONTIGUOUS, bool ACROSS_FIRST>
__device__ __forceinline__ void mm_fragment(uint32_t (&to)[4], unsigned stage, int across, int k)
{
    constexpr int CHUNK = 16 / (int)sizeof(T);
    const int lane_id = threadIdx.x % 32;
    if constexpr (K_CONTIGUOUS || sizeof(T) == 2) {
        const int matrix = lane_id / 8, second = ACROSS_FIRST ? matrix % 2 : matrix / 2;
        const int further = ACROSS_FIRST ? matrix / 2 : matrix % 2;
        const int w = across + second * 8, l = k + further * CHUNK, inner = lane_id % 8;
        const int row = K_CONTIGUOUS ? w + inner : l + inner, column = K_CONTIGUOUS ? l : w;
        mm_ldmatrix<!K_CONTIGUOUS>(to, stage + row * STAGE::PITCH + column * (int)sizeof(T));
    } else {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int second = ACROSS_FIRST ? r % 2 : r / 2, further = ACROSS_FIRST ? r / 2 : r % 2;
            const int w = across + second * 8 + lane_id / 4, l = k + further * CHUNK + lane_id % 4;
            to[r] = mm_shared_read(stage + l * STAGE::PITCH + w * 4);
        }
    }
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int r = 0; r < 4; r++) to[r] = mm_round_tf32(__uint_as_float(to[r]));
    }
}

template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_mma_multiply(typename TILE::sums &sum, const unsigned char *a,
                                                const unsigned char *b)
{
    typedef typename TILE::element T;
    typedef typename mm_mma_operand<TILE, TILE::M, A_K>::stage A;
    typedef typename mm_mma_operand<TILE, TILE::N, B_K>::stage B;
    const int warp = threadIdx.x / 32, plane = warp / (TILE::WM * TILE::WN);
    const int m = warp / TILE::WN % TILE::WM * TILE::WARP_M, n = warp % TILE::WN * TILE::WARP_N;
    const unsigned a_at = mm_shared_address(a), b_at = mm_shared_address(b);
#pragma unroll
    for (int l = 0; l < TILE::WARP_K; l += TILE::STEP) {
        const int k = plane * TILE::WARP_K + l;
        uint32_t fa[TILE::WARP_M / 16][4], fb[TILE::WARP_N / 16][4];
#pragma unroll
        for (int i = 0; i < TILE::WARP_M / 16; i++) mm_fragment<T, A, A_K, true>(fa[i], a_at, m + 16 * i, k);
#pragma unroll
        for (int j = 0; j < TILE::WARP_N / 16; j++) mm_fragment<T, B, B_K, false>(fb[j], b_at, n + 16 * j, k);
#pragma unroll
        for (int i = 0; i < TILE::WARP_M / 16; i++)
#pragma unroll
            for (int j = 0; j < TILE::WARP_N / 8; j++)
                mm_mma(T(), sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
}

/* To the CTA's planes. */
template <typename TILE>
__device__ __forceinline__ void mm_mma_spill(const typename TILE::sums &sum, float *planes)
{
    const int warp = threadIdx.x / 32, lane_id = threadIdx.x % 32, plane = warp / (TILE::WM * TILE::WN);
    const int m = warp / TILE::WN % TILE::WM * TILE::WARP_M + lane_id / 4,
              n = warp % TILE::WN * TILE::WARP_N + lane_id % 4 * 2;
    float *to = planes + (plane * TILE::M + m) * TILE::SUM_PITCH + n;
#pragma unroll
    for (int i = 0; i < TILE::WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < TILE::WARP_N / 8; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(float2 *)(to + (16 * i + 8 * half) * TILE::SUM_PITCH + 8 * j) =
                    make_float2(sum[i][j][2 * half], sum[i][j][2 * half + 1]);
}

#endif
