/* FP32 and FP64 by fused multiply-adds: exact products, one rounding per addition. The engine of a tile
 * (tile.cuh).
 *
 * Operands are read from shared memory in 16-byte vectors: W neighbours across K, or, in low tiles, where an operand keeps its
 * layout, W values of K for one row or column.
 *
 * FFMAs are held up by the reading of their registers, from two banks, of even and of odd ones. The order of the products
 * (mm_fma_outer) lets each share an operand with the one before, and the sums are stored one by one (mm_fma_spill), because
 * vectors would bind them to their columns' banks. Cycles of an FFMA of 8 x 16 sums a thread, H200: 1.04 without the reads of
 * shared memory, 1.21 with them, 1.40 with neither order nor single stores. Other instructions add theirs. */
#ifndef KS_MATMUL_SIMT_CUH
#define KS_MATMUL_SIMT_CUH

#include "cuda/matmul/epilogue.cuh"
#include "cuda/matmul/stage.cuh"

/* A thread owns TM x TN outputs; the threads of one output tile are repeated WK times over a stage's K;
 * CTAS of them fit an SM. */
template <typename T, int M_, int N_, int TM_, int TN_, int WK_, int DEPTH_, int STAGES_, int CTAS_>
struct mm_fma_tile {
    typedef T element;
    static constexpr int M = M_, N = N_, TM = TM_, TN = TN_, PLANES = WK_, DEPTH = DEPTH_, STAGES = STAGES_,
                         CTAS = CTAS_;
    static constexpr int ROWS = M / TM, COLUMNS = N / TN, THREADS = ROWS * COLUMNS * PLANES, SUM_PITCH = N + 4;
    static constexpr int MMA = 0, W = 16 / (int)sizeof(T), SHARE = DEPTH / PLANES;
    static constexpr bool TRANSPOSES =
        M >= 16; /* both operands lie across K; low tiles have too many copies for that */
    /* A warp's lanes along a row of threads: 8 vectors are all banks. */
    static constexpr int LANES = ROWS < 4 ? 32 / ROWS : 8;
    static_assert(SHARE % W == 0 && COLUMNS % LANES == 0, "a thread's part of K is whole vectors, a row whole warps");
    /* So many lanes copy neighbours of an operand's row along K: the more, the cheaper a copy. Half did better where a thread
     * reads more than 8 values of K of a stage. */
    static constexpr int TRANSPOSE_LANES = THREADS < 16 * W ? THREADS / W : SHARE <= 8 ? 8 * W : 4 * W;
    /* A stage's copies are spread in so many parts among the products of the stage before last; all at once hold up the
     * products behind them. Not where a thread has few products a piece, nor where they are a loop. */
    static constexpr int PARTS = TM * TN < 64 || SHARE > 16 ? 0 : SHARE < 8 ? SHARE / 2 : 4;
    static_assert(!TRANSPOSES || (TM % W == 0 && TN % W == 0), "a thread's part of a stage's row is whole vectors");
    typedef T sums[TM][TN];
};

template <typename TILE, int ACROSS, bool K_CONTIGUOUS>
struct mm_fma_operand {
    static constexpr bool ALONG = K_CONTIGUOUS && !TILE::TRANSPOSES;
    typedef mm_stage<typename TILE::element, ALONG ? ACROSS : TILE::DEPTH, ALONG ? TILE::DEPTH : ACROSS, MM_SPARE>
        stage;
};

/* Which of the threads of its plane this is. */
template <typename TILE>
__device__ __forceinline__ void mm_fma_thread(int *ty, int *tx, int *plane)
{
    constexpr int ACROSS = TILE::COLUMNS / TILE::LANES, DOWN = 32 / TILE::LANES;
    const int thread = threadIdx.x % (TILE::ROWS * TILE::COLUMNS), warp = thread / 32, lane_id = thread % 32;
    *ty = warp / ACROSS * DOWN + lane_id / TILE::LANES;
    *tx = warp % ACROSS * TILE::LANES + lane_id % TILE::LANES;
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

/* A thread's vectors of row l of its plane: rotated back. The plane's own rotation stays, for mm_fma_spill. */
template <typename TILE, int COUNT>
__device__ __forceinline__ void mm_fma_unrotate(typename TILE::element (&x)[COUNT], int l)
{
    constexpr int W = TILE::W;
    typename TILE::element was[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) was[i] = x[i];
#pragma unroll
    for (int i = 0; i < COUNT; i++) x[i] = was[i / W * W + (i + mm_rotation(l, W, TILE::TRANSPOSE_LANES)) % W];
}

/* One value of K, both operands across it. Column by column, down and up: each product shares an operand with the one before
 * it. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_fma_outer(typename TILE::sums &sum, const unsigned char *a, const unsigned char *b,
                                             int l)
{
    typedef typename TILE::element T;
    constexpr int TM = TILE::TM, TN = TILE::TN;
    T x[TM], y[TN];
    mm_fma_across<typename mm_fma_operand<TILE, TILE::M, false>::stage, T, TM, TILE::ROWS, TILE::W>(x, a, 0, l);
    mm_fma_across<typename mm_fma_operand<TILE, TILE::N, false>::stage, T, TN, TILE::COLUMNS, TILE::W>(y, b, 0, l);
    if constexpr (A_K) mm_fma_unrotate<TILE, TM>(x, l);
    if constexpr (B_K) mm_fma_unrotate<TILE, TN>(y, l);
#pragma unroll
    for (int j = 0; j < TN; j++)
#pragma unroll
        for (int e = 0; e < TM; e++) {
            const int i = j % 2 ? TM - 1 - e : e;
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

/* The other tiles, from there on. between(l) comes behind row l, of a plane's first rows AT_ONCE. */
template <typename TILE, bool A_K, bool B_K, typename BETWEEN>
__device__ __forceinline__ void mm_fma_multiply_across(typename TILE::sums &sum, const unsigned char *a,
                                                       const unsigned char *b, BETWEEN between)
{
    constexpr int AT_ONCE = TILE::SHARE < 16 ? TILE::SHARE : 16;
    static_assert(AT_ONCE == TILE::SHARE || mm_rotation(AT_ONCE, TILE::W, TILE::TRANSPOSE_LANES) == 0,
                  "all rounds rotate alike");
#pragma unroll 1
    for (int first = 0; first < TILE::SHARE; first += AT_ONCE) {
#pragma unroll
        for (int l = 0; l < AT_ONCE; l++) {
            mm_fma_outer<TILE, A_K, B_K>(sum, a, b, l);
            between(l);
        }
        a += AT_ONCE * mm_fma_operand<TILE, TILE::M, false>::stage::PITCH;
        b += AT_ONCE * mm_fma_operand<TILE, TILE::N, false>::stage::PITCH;
    }
}

/* Where a thread's i-th row (column) lies, whose vectors are rotated by `rotation`. */
template <int COUNT, int THREADS, int W, bool ALONG>
__device__ __forceinline__ int mm_fma_rotated_place(int thread, int i, int rotation)
{
    if constexpr (ALONG || COUNT < W)
        return mm_fma_place<COUNT, THREADS, W, ALONG>(thread, i);
    else
        return mm_fma_place<COUNT, THREADS, W, ALONG>(thread, i / W * W) + ((i + W - rotation) & (W - 1));
}

template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_fma_spill(const typename TILE::sums &sum, typename TILE::element *planes)
{
    constexpr bool A_ALONG = mm_fma_operand<TILE, TILE::M, A_K>::ALONG,
                   B_ALONG = mm_fma_operand<TILE, TILE::N, B_K>::ALONG;
    int ty, tx, plane;
    mm_fma_thread<TILE>(&ty, &tx, &plane);
    const int rotation = TILE::TRANSPOSES ? mm_rotation(plane * TILE::SHARE, TILE::W, TILE::TRANSPOSE_LANES) : 0;
    volatile typename TILE::element *to = planes + plane * (TILE::M * TILE::SUM_PITCH);
#pragma unroll
    for (int i = 0; i < TILE::TM; i++)
#pragma unroll
        for (int j = 0; j < TILE::TN; j++) {
            const int row = mm_fma_rotated_place<TILE::TM, TILE::ROWS, TILE::W, A_ALONG>(ty, i, A_K ? rotation : 0),
                      column =
                          mm_fma_rotated_place<TILE::TN, TILE::COLUMNS, TILE::W, B_ALONG>(tx, j, B_K ? rotation : 0);
            to[row * TILE::SUM_PITCH + mm_rotated_at(row, column)] = sum[i][j];
        }
}

#endif
