/* FP32 and FP64 by fused multiply-adds: exact products, one rounding per addition. The engine of a tile
 * (matmul_tile.cuh).
 *
 * Operands are read from shared memory in 16-byte vectors: W neighbours across K, or, in low tiles, where an operand keeps its
 * layout, W values of K for one row or column.
 *
 * FFMAs are held up by the reading of their registers, from two banks, of even and of odd ones. The order of the products
 * (mm_fma_outer) lets each share an operand with the one before, and the sums are stored one by one (mm_fma_spill), because
 * vectors would bind them to their columns' banks. Cycles of an FFMA of 8 x 16 sums a thread, H200: 1.04 without the reads of
 * shared memory, 1.21 with them, 1.40 with neither order nor single stores. Other instructions add theirs. */
#ifndef KS_MATMUL_FMA_CUH
#define KS_MATMUL_FMA_CUH

#include "matmul_finish.cuh"
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
    static constexpr bool TURNS = M >= 16; /* both operands lie across K; low tiles have too many copies for that */
    /* A warp's lanes along a row of threads: 8 vectors are all banks. */
    static constexpr int LANES = ROWS < 4 ? 32 / ROWS : 8;
    static_assert(SHARE % W == 0 && COLUMNS % LANES == 0, "a thread's part of K is whole vectors, a row whole warps");
    typedef T sums[TM][TN];
};

template <typename TILE, int ACROSS, bool K_CONTIGUOUS>
struct mm_fma_operand {
    static constexpr bool ALONG = K_CONTIGUOUS && !TILE::TURNS;
    typedef mm_stage<typename TILE::element, ALONG ? ACROSS : TILE::DEPTH, ALONG ? TILE::DEPTH : ACROSS, MM_SPARE>
        stage;
};

/* Which of the threads of its plane this is. */
template <typename TILE>
__device__ __forceinline__ void mm_fma_thread(int *ty, int *tx, int *plane)
{
    constexpr int ACROSS = TILE::COLUMNS / TILE::LANES, DOWN = 32 / TILE::LANES;
    const int thread = threadIdx.x % (TILE::ROWS * TILE::COLUMNS), warp = thread / 32, lane = thread % 32;
    *ty = warp / ACROSS * DOWN + lane / TILE::LANES;
    *tx = warp % ACROSS * TILE::LANES + lane % TILE::LANES;
    *plane = threadIdx.x / (TILE::ROWS * TILE::COLUMNS);
}

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

/* One value of K, both operands across it. Column by column, down and up: each product shares an operand with the one before
 * it. */
template <typename TILE>
__device__ __forceinline__ void mm_fma_outer(typename TILE::sums &sum, const unsigned char *a, const unsigned char *b,
                                             int k)
{
    typedef typename TILE::element T;
    constexpr int TM = TILE::TM, TN = TILE::TN;
    T x[TM], y[TN];
    mm_fma_across<typename mm_fma_operand<TILE, TILE::M, false>::stage, T, TM, TILE::ROWS, TILE::W>(x, a, 0, k);
    mm_fma_across<typename mm_fma_operand<TILE, TILE::N, false>::stage, T, TN, TILE::COLUMNS, TILE::W>(y, b, 0, k);
#pragma unroll
    for (int j = 0; j < TN; j++)
#pragma unroll
        for (int l = 0; l < TM; l++) {
            const int i = j % 2 ? TM - 1 - l : l;
            sum[i][j] = fma(x[i], y[j], sum[i][j]);
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

/* Low tiles. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_fma_multiply(typename TILE::sums &sum, const unsigned char *a,
                                                const unsigned char *b)
{
    int ty, tx, plane;
    mm_fma_thread<TILE>(&ty, &tx, &plane);
#pragma unroll 1
    for (int l = 0; l < TILE::SHARE; l += TILE::W)
        mm_fma_step<TILE, A_K, B_K>(sum, a, b, ty, tx, plane * TILE::SHARE + l);
}

/* Where the thread's rows and columns start in a stage. */
template <typename TILE>
__device__ __forceinline__ void mm_fma_start(unsigned *a, unsigned *b)
{
    int ty, tx, plane;
    mm_fma_thread<TILE>(&ty, &tx, &plane);
    *a = plane * TILE::SHARE * mm_fma_operand<TILE, TILE::M, false>::stage::PITCH + ty * 16;
    *b = plane * TILE::SHARE * mm_fma_operand<TILE, TILE::N, false>::stage::PITCH + tx * 16;
    mm_keep(*a);
    mm_keep(*b);
}

/* The other tiles, from there on. */
template <typename TILE>
__device__ __forceinline__ void mm_fma_multiply_across(typename TILE::sums &sum, const unsigned char *a,
                                                       const unsigned char *b)
{
#pragma unroll 16
    for (int l = 0; l < TILE::SHARE; l++) mm_fma_outer<TILE>(sum, a, b, l);
}

template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_fma_spill(const typename TILE::sums &sum, typename TILE::element *planes)
{
    constexpr bool A_ALONG = mm_fma_operand<TILE, TILE::M, A_K>::ALONG,
                   B_ALONG = mm_fma_operand<TILE, TILE::N, B_K>::ALONG;
    int ty, tx, plane;
    mm_fma_thread<TILE>(&ty, &tx, &plane);
    volatile typename TILE::element *to = planes + plane * (TILE::M * TILE::SUM_PITCH);
#pragma unroll
    for (int i = 0; i < TILE::TM; i++)
#pragma unroll
        for (int j = 0; j < TILE::TN; j++) {
            const int row = mm_fma_place<TILE::TM, TILE::ROWS, TILE::W, A_ALONG>(ty, i),
                      column = mm_fma_place<TILE::TN, TILE::COLUMNS, TILE::W, B_ALONG>(tx, j);
            to[row * TILE::SUM_PITCH + mm_turned_at(row, column)] = sum[i][j];
        }
}

#endif
