/* The kernel of a tile of few rows: B streams past A at the pace of memory.
 *
 * A warp has a ring of stages and a share of K of its own, and waits for no other warp before its sums are complete. A
 * stage is 64 bytes of K by 64 columns, 4 KB of B, and the same 64 bytes of K of A's rows. Lane 4 g + t multiplies the
 * t-th 16 bytes of K for the columns that are g's, and has copied its part of B itself to where it reads it, without bank
 * conflicts. Tensor cores see K in another order within a stage, the same for A and B: a lane's values of a fragment are
 * neighbours in memory.
 *
 * A's rows lie along K, and the rows of both operands start on 16 bytes: so K is whole vectors, and so are the columns
 * where B's rows lie across K. */
#ifndef KS_MATMUL_STREAM_CUH
#define KS_MATMUL_STREAM_CUH

#include "matmul_finish.cuh"
#include "matmul_fma.cuh"
#include "matmul_mma.cuh"
#include "matmul_table.cuh"

/* M is 16 for tensor cores, else a multiple of 4. Four stages under way are 64 KB of a CTA. */
template <typename T, int M_>
struct mm_stream_tile {
    typedef T element;
    static constexpr int M = M_, N = 64, STAGES = 5, PLANES = 4, THREADS = 32 * PLANES, CTAS = 2, SUM_PITCH = N + 4;
    static constexpr int W = 16 / (int)sizeof(T), VECTORS = 8, BLOCKS = VECTORS / W; /* of 128 bytes across */
    static constexpr int SHARE = 4 * W, DEPTH = PLANES * SHARE;
    static constexpr int A_BYTES = M * 64, STAGE = A_BYTES + VECTORS * 512, RING = PLANES * STAGES * STAGE;
    static constexpr int SUMS = PLANES * M * SUM_PITCH * (int)sizeof(typename mm_sum<T>::type);
    static constexpr int SHARED = RING > SUMS ? RING : SUMS;
    static constexpr bool MMA = sizeof(T) == 2;
    static_assert(MMA ? M == 16 : M % 4 == 0, "rows are a fragment's, or four lanes share them");
    typedef std::conditional_t<MMA, float[VECTORS][4], T[M][VECTORS]> sums;
};

/* Two fragments along K: of the first two words of each lane's 16 bytes, and of the last two. */
template <typename TILE, bool B_K>
__device__ __forceinline__ void mm_stream_mma(typename TILE::sums &sum, const unsigned char *stage)
{
    const uint4 *at = (const uint4 *)stage + threadIdx.x % 32;
    alignas(16) uint32_t x[2][4], y[TILE::VECTORS][4];
#pragma unroll
    for (int i = 0; i < 2; i++) *(uint4 *)x[i] = at[32 * i];
#pragma unroll
    for (int v = 0; v < TILE::VECTORS; v++) *(uint4 *)y[v] = at[TILE::A_BYTES / 16 + 32 * v];
#pragma unroll
    for (int h = 0; h < 4; h += 2) {
        const uint32_t a[4] = {x[0][h], x[1][h], x[0][h + 1], x[1][h + 1]};
#pragma unroll
        for (int j = 0; j < TILE::VECTORS; j++) {
            /* Across K, column j of each of the lane's rows of K; two rows to a word. */
            const unsigned half = j % 2 ? 0x7632 : 0x5410;
            const uint32_t b0 = B_K ? y[j][h] : __byte_perm(y[2 * h][j / 2], y[2 * h + 1][j / 2], half);
            const uint32_t b1 = B_K ? y[j][h + 1] : __byte_perm(y[2 * h + 2][j / 2], y[2 * h + 3][j / 2], half);
            mm_mma(typename TILE::element(), sum[j], a, b0, b1);
        }
    }
}

template <typename TILE, bool B_K>
__device__ __forceinline__ void mm_stream_fma(typename TILE::sums &sum, const unsigned char *stage)
{
    typedef typename TILE::element T;
    constexpr int W = TILE::W, BLOCKS = TILE::BLOCKS;
    const int lane = threadIdx.x % 32;
    T y[TILE::VECTORS][W];
#pragma unroll
    for (int v = 0; v < TILE::VECTORS; v++) mm_fma_read<T, W>(y[v], stage + TILE::A_BYTES + v * 512 + lane * 16);
#pragma unroll
    for (int i = 0; i < TILE::M; i++) {
        T x[W];
        mm_fma_read<T, W>(x, stage + i * 64 + lane % 4 * 16);
#pragma unroll
        for (int k = 0; k < W; k++)
#pragma unroll
            for (int v = 0; v < TILE::VECTORS; v++)
                sum[i][v] = fma(x[k], B_K ? y[v][k] : y[k * BLOCKS + v / W][v % W], sum[i][v]);
    }
}

template <typename TILE, bool B_K>
__device__ __forceinline__ void mm_stream_accumulate(const mm_args &args, const mm_unit &unit, const ks_entry &job,
                                                     const unsigned char *ring, typename TILE::sums &sum)
{
    typedef typename TILE::element T;
    constexpr int W = TILE::W, BLOCKS = TILE::BLOCKS;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const mm_int k = unit.k_begin + threadIdx.x / 32 * TILE::SHARE + t * W, column = (mm_int)unit.column * TILE::N;
    const mm_int a_pitch = args.a.pitch, b_pitch = args.b.pitch;
    /* The lane's first elements, and what is left of the matrices from there on. */
    const T *a = (const T *)(job.in + args.a.at) + unit.a + g * a_pitch + k;
    const T *b =
        (const T *)(job.in + args.b.at) + unit.b + (B_K ? (column + g) * b_pitch + k : k * b_pitch + column + g * W);
    const int rows = (int)args.m - g, columns = (int)min((mm_int)TILE::N, args.n - column) - g * (B_K ? 1 : W);
    int deep = (int)(unit.k_end - k);
    const int steps = (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH);
    auto load = [&](int step, int stage) {
        if (step < steps) {
            const unsigned to = mm_shared_address(ring) + stage * TILE::STAGE + lane * 16;
#pragma unroll
            for (int i = 0; i < TILE::M; i += 8)
                if (g < TILE::M) mm_copy_async(to + i * 64, a + i * a_pitch, deep > 0 && i < rows);
            const T *from = b;
#pragma unroll
            for (int v = 0; v < TILE::VECTORS; v++) {
                const int across = B_K ? 8 * v : v % BLOCKS * 8 * W;
                mm_copy_async(to + TILE::A_BYTES + v * 512, B_K ? from : from + across, deep > 0 && across < columns);
                if (B_K || v % BLOCKS == BLOCKS - 1) from += B_K ? 8 * b_pitch : b_pitch;
            }
            a += TILE::DEPTH;
            b += TILE::DEPTH * (B_K ? 1 : b_pitch);
            deep -= TILE::DEPTH;
        }
        mm_copy_commit(); /* an empty group too, so that the count of groups stays that of steps */
    };

#pragma unroll 1
    for (int step = 0; step < TILE::STAGES - 1; step++) load(step, step);
    int stage = 0;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        mm_copy_wait<TILE::STAGES - 2>();
        __syncwarp();
        /* Into the stage that all lanes left before they met here. */
        load(step + TILE::STAGES - 1, stage == 0 ? TILE::STAGES - 1 : stage - 1);
        if constexpr (TILE::MMA)
            mm_stream_mma<TILE, B_K>(sum, ring + stage * TILE::STAGE);
        else
            mm_stream_fma<TILE, B_K>(sum, ring + stage * TILE::STAGE);
        stage = stage + 1 == TILE::STAGES ? 0 : stage + 1;
    }
    mm_copy_wait<0>();
}

/* To the warp's plane. A fragment's columns are those of the lanes whose B it was. */
template <typename TILE, bool B_K>
__device__ __forceinline__ void mm_stream_spill(const float (&sum)[TILE::VECTORS][4], float *plane)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < TILE::VECTORS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = 2 * t + e % 2;
            plane[(g + e / 2 * 8) * TILE::SUM_PITCH + (B_K ? 8 * j + column : 8 * column + j)] = sum[j][e];
        }
}

/* Of FROM rows half stay, those of this lane; its neighbour adds the others. */
template <int FROM, typename T, int M, int COUNT>
__device__ __forceinline__ void mm_stream_halve(T (&sum)[M][COUNT], int neighbour)
{
    const bool upper = threadIdx.x & neighbour;
#pragma unroll
    for (int i = 0; i < FROM / 2; i++)
#pragma unroll
        for (int v = 0; v < COUNT; v++) {
            const T low = sum[i][v], high = sum[i + FROM / 2][v];
            sum[i][v] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, neighbour);
        }
}

/* The four lanes of the same columns add their sums: each has a quarter of the rows then. */
template <typename TILE, bool B_K>
__device__ __forceinline__ void mm_stream_spill(typename TILE::element (&sum)[TILE::M][TILE::VECTORS],
                                                typename TILE::element *plane)
{
    constexpr int M = TILE::M, W = TILE::W;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    mm_stream_halve<M>(sum, 2);
    mm_stream_halve<M / 2>(sum, 1);
#pragma unroll
    for (int i = 0; i < M / 4; i++)
#pragma unroll
        for (int v = 0; v < TILE::VECTORS; v++)
            plane[(t * (M / 4) + i) * TILE::SUM_PITCH + (B_K ? 8 * v + g : v / W * 8 * W + g * W + v % W)] = sum[i][v];
}

template <typename TILE, bool B_K>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_stream_kernel(ks_site site, const __grid_constant__ mm_args args)
{
    typedef typename mm_sum<typename TILE::element>::type S;
    extern __shared__ __align__(16) unsigned char mm_shared[];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const mm_unit unit = mm_unit_at(args, blockIdx.x);
    const int warp = threadIdx.x / 32;
    typename TILE::sums sum = {};
    mm_stream_accumulate<TILE, B_K>(args, unit, job, mm_shared + warp * (TILE::STAGES * TILE::STAGE), sum);
    S *planes = (S *)mm_shared;
    __syncthreads(); /* all warps have left their rings */
    mm_stream_spill<TILE, B_K>(sum, planes + warp * (TILE::M * TILE::SUM_PITCH));
    mm_finish<typename TILE::element, TILE>(site, args, unit, job, planes);
    ks_leave(site);
}

template <typename TILE, bool B_K>
static mm_kernel mm_stream_entry(const char *name, mm_pace pace)
{
    return {name,        (const void *)mm_stream_kernel<TILE, B_K>,
            TILE::M,     TILE::N,
            TILE::DEPTH, TILE::THREADS,
            TILE::CTAS,  TILE::SHARED,
            pace,        false,
            true,        true};
}

template <typename TILE>
static mm_kernel mm_stream(const char *name, mm_pace pace, bool b_k)
{
    return b_k ? mm_stream_entry<TILE, true>(name, pace) : mm_stream_entry<TILE, false>(name, pace);
}

#endif
