/* FP32 and FP64 by fused multiply-adds: exact products, one rounding per addition. The engine of a tile
 * (matmul_tile.cuh).
 *
 * Operands keep their layout in shared memory and are read in 16-byte vectors along it: W values of K for one row or
 * column, or W neighbours across K. */
#ifndef KS_MATMUL_FMA_CUH
#define KS_MATMUL_FMA_CUH

#include "matmul_stage.cuh"

/* A thread owns TM x TN outputs; the threads of one output tile are repeated WK times over a stage's K;
 * CTAS of them fit an SM. */
template <typename T, int M_, int N_, int TM_, int TN_, int WK_, int DEPTH_, int STAGES_, int CTAS_>
struct mm_fma_tile {
    typedef T element;
    static constexpr int M = M_, N = N_, TM = TM_, TN = TN_, PLANES = WK_, DEPTH = DEPTH_, STAGES = STAGES_,
                         CTAS = CTAS_;
    static constexpr int ROWS = M / TM, COLUMNS = N / TN, THREADS = ROWS * COLUMNS * PLANES, SUM_PITCH = N + 4;
    static constexpr int MMA = 0, W = 16 / (int)sizeof(T), SHARE = DEPTH / PLANES;
    static_assert(SHARE % W == 0, "a thread's part of K is whole vectors");
    typedef T sums[TM][TN];
};

template <typename TILE, int ACROSS, bool K_CONTIGUOUS>
struct mm_fma_operand {
    typedef mm_stage<typename TILE::element, K_CONTIGUOUS ? ACROSS : TILE::DEPTH, K_CONTIGUOUS ? TILE::DEPTH : ACROSS,
                     MM_SPARE>
        stage;
};

/* Where a thread's i-th row (column) lies in the tile: next to its neighbours' where rows are stored one by one, in groups
 * of a vector where the elements across K are neighbours. */
template <int COUNT, int THREADS, int W, bool K_CONTIGUOUS>
__device__ __forceinline__ int mm_fma_place(int thread, int i)
{
    constexpr int GROUP = K_CONTIGUOUS || COUNT < W ? 1 : W;
    return i / GROUP * (THREADS * GROUP) + thread * GROUP + i % GROUP;
}

template <typename T, int W>
__device__ __forceinline__ void mm_fma_read(T (&to)[W], const void *from)
{
    const float4 bits = *(const float4 *)from;
#pragma unroll
    for (int e = 0; e < W; e++) to[e] = ((const T *)&bits)[e];
}

/* The thread's COUNT rows (columns) at one value of K, of rows stored across it. */
template <typename STAGE, typename T, int COUNT, int THREADS, int W>
__device__ __forceinline__ void mm_fma_across(T (&to)[COUNT], const unsigned char *stage, int thread, int k)
{
    const T *row = (const T *)(stage + k * STAGE::PITCH);
    if constexpr (COUNT < W) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) to[i] = row[mm_fma_place<COUNT, THREADS, W, false>(thread, i)];
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i += W) {
            T line[W];
            mm_fma_read<T, W>(line, row + mm_fma_place<COUNT, THREADS, W, false>(thread, i));
#pragma unroll
            for (int e = 0; e < W; e++) to[i + e] = line[e];
        }
    }
}

/* W values of K. Where both operands are read along K, B's are held and A's pass by row after row: few registers. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_fma_step(typename TILE::sums &sum, const unsigned char *a, const unsigned char *b,
                                            int ty, int tx, int k)
{
    typedef typename TILE::element T;
    typedef typename mm_fma_operand<TILE, TILE::M, A_K>::stage A;
    typedef typename mm_fma_operand<TILE, TILE::N, B_K>::stage B;
    constexpr int W = TILE::W, TM = TILE::TM, TN = TILE::TN;
    T y[W][TN];
    if constexpr (B_K) {
#pragma unroll
        for (int j = 0; j < TN; j++) {
            T line[W];
            mm_fma_read<T, W>(line, b + (tx + j * TILE::COLUMNS) * B::PITCH + k * (int)sizeof(T));
#pragma unroll
            for (int e = 0; e < W; e++) y[e][j] = line[e];
        }
    } else {
#pragma unroll
        for (int e = 0; e < W; e++) mm_fma_across<B, T, TN, TILE::COLUMNS, W>(y[e], b, tx, k + e);
    }
    if constexpr (A_K) {
#pragma unroll
        for (int i = 0; i < TM; i++) {
            T x[W];
            mm_fma_read<T, W>(x, a + (ty + i * TILE::ROWS) * A::PITCH + k * (int)sizeof(T));
#pragma unroll
            for (int e = 0; e < W; e++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] = fma(x[e], y[e][j], sum[i][j]);
        }
    } else {
#pragma unroll
        for (int e = 0; e < W; e++) {
            T x[TM];
            mm_fma_across<A, T, TM, TILE::ROWS, W>(x, a, ty, k + e);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] = fma(x[i], y[e][j], sum[i][j]);
        }
    }
}

template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_fma_multiply(typename TILE::sums &sum, const unsigned char *a,
                                                const unsigned char *b)
{
    const int thread = threadIdx.x % (TILE::ROWS * TILE::COLUMNS), plane = threadIdx.x / (TILE::ROWS * TILE::COLUMNS);
    const int ty = thread / TILE::COLUMNS, tx = thread % TILE::COLUMNS;
#pragma unroll 1
    for (int l = 0; l < TILE::SHARE; l += TILE::W)
        mm_fma_step<TILE, A_K, B_K>(sum, a, b, ty, tx, plane * TILE::SHARE + l);
}

template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_fma_spill(const typename TILE::sums &sum, typename TILE::element *planes)
{
    const int thread = threadIdx.x % (TILE::ROWS * TILE::COLUMNS), plane = threadIdx.x / (TILE::ROWS * TILE::COLUMNS);
    const int ty = thread / TILE::COLUMNS, tx = thread % TILE::COLUMNS;
#pragma unroll
    for (int i = 0; i < TILE::TM; i++)
#pragma unroll
        for (int j = 0; j < TILE::TN; j++) {
            const int row = mm_fma_place<TILE::TM, TILE::ROWS, TILE::W, A_K>(ty, i),
                      column = mm_fma_place<TILE::TN, TILE::COLUMNS, TILE::W, B_K>(tx, j);
            planes[(plane * TILE::M + row) * TILE::SUM_PITCH + column] = sum[i][j];
        }
}

#endif
