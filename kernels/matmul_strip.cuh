/* The kernels of few rows, B across K by bulk tensor copies.
 *
 * A CTA owns a strip of columns, and each of its warps some stages: the warp fills them, multiplies what has come and fills
 * them again, and waits for no other before its sums are complete; the warps meet in shared memory. K is not shared by CTAs:
 * they walk along it side by side, so that what is read at a time lies together. On an H200 BF16 1 x 4096 x 4096 takes
 * 10.3 us in 128 strips, 13.7 where two CTAs share a strip's K, and 11.4 in 64 strips of twice the columns that two share.
 * Nor is all of B asked for at once: stages that are under way together come together, late, and their products have nothing
 * to hide behind. */
#ifndef KS_MATMUL_STRIP_CUH
#define KS_MATMUL_STRIP_CUH

#include "matmul_skinny.cuh"
#include "matmul_wgmma.cuh"

/* 16-bit types. M rows of A, or fewer; a stage is 128 bytes of K, and OWN of them are a warp's. */
template <typename T, int M_, int OWN_, int WARPS_, int CTAS_>
struct mm_strip_tile {
    typedef T element;
    static constexpr int M = M_, N = 32, OWN = OWN_, WARPS = WARPS_, CTAS = CTAS_, THREADS = 32 * WARPS;
    static constexpr int DEPTH = 64, HALVES = M / 8;
    static constexpr int A_BYTES = M * 128, B_BYTES = DEPTH * N * 2, STAGES = OWN * WARPS;
    static constexpr int SUM_PITCH = N + 4; /* of a warp's plane, which takes the place of its stages */
    static constexpr int BARRIERS = STAGES * (A_BYTES + B_BYTES), SHARED = BARRIERS + STAGES * 8;
    typedef float sums[N / 16][HALVES][4];
    static_assert(sizeof(T) == 2 && M % 8 == 0, "fragments are 8 rows of 16 values");
    static_assert(M * SUM_PITCH * 4 <= OWN * B_BYTES, "a warp's plane fits its stages");
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A stage: 16 columns of B are a fragment's rows, 8 rows of A its columns. A lies in rows of 128 bytes, B in those of 64;
 * their 16-byte chunks are swizzled. */
template <typename TILE>
__device__ __forceinline__ void mm_strip_multiply(typename TILE::sums &sum, unsigned a, unsigned b)
{
    typedef typename TILE::element T;
    const int lane = threadIdx.x % 32, line = lane % 8, matrix = lane / 8;
#pragma unroll
    for (int k = 0; k < TILE::DEPTH; k += 32) {
        uint32_t x[TILE::HALVES][4];
#pragma unroll
        for (int h = 0; h < TILE::HALVES; h++)
            mm_ldmatrix<false>(x[h], a + h * 1024 + line * 128 + (((k / 8 + matrix) ^ line) * 16));
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int i = 0; i < TILE::N / 16; i++) {
                const int along = k / 8 + half * 2 + matrix / 2, across = i * 2 + matrix % 2; /* in eights */
                uint32_t y[4];
                mm_ldmatrix<true>(y, b + (along * 8 + line) * 64 + ((across ^ line / 2) * 16));
#pragma unroll
                for (int h = 0; h < TILE::HALVES; h++) mm_mma(T(), sum[i][h], y, x[h][half * 2], x[h][half * 2 + 1]);
            }
    }
}

/* To the warp's plane: the rows that are there. */
template <typename TILE>
__device__ __forceinline__ void mm_strip_spill(const typename TILE::sums &sum, float *plane, int rows)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int h = 0; h < TILE::HALVES; h++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = h * 8 + 2 * t + e % 2;
            if (row >= rows) continue;
#pragma unroll
            for (int i = 0; i < TILE::N / 16; i++) plane[row * TILE::SUM_PITCH + i * 16 + e / 2 * 8 + g] = sum[i][h][e];
        }
}

/* The warps' planes are complete. */
template <typename TILE>
__device__ __forceinline__ void mm_strip_finish(const mm_args &args, const mm_unit &unit, const ks_entry &job,
                                                const float *planes)
{
    const int rows = (int)args.m;
#pragma unroll 1
    for (int out = threadIdx.x; out < rows * TILE::N; out += TILE::THREADS) {
        /* Neighbouring threads walk the output's contiguous dimension. */
        const int row = args.turned ? out % rows : out / TILE::N, column = args.turned ? out / rows : out % TILE::N;
        const float *at = planes + row * TILE::SUM_PITCH + column;
        float sum = at[0];
#pragma unroll
        for (int warp = 1; warp < TILE::WARPS; warp++) sum += at[warp * (TILE::OWN * TILE::B_BYTES / 4)];
        mm_skinny_store<TILE>(args, unit, job, row, column, sum);
    }
}
#endif

/* Device memory only: the maps hold addresses. Empty where the code is not made for sm_90a (find_bulk). */
template <typename TILE>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_strip_kernel(ks_site site, const __grid_constant__ mm_args args, const __grid_constant__ mm_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char mm_strip_shared[];
    ks_entry job;
    if (!ks_enter_again(site, &job)) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned start = mm_shared_address(mm_strip_shared), b = start + warp * TILE::OWN * TILE::B_BYTES,
                   a = start + TILE::STAGES * TILE::B_BYTES + warp * TILE::OWN * TILE::A_BYTES,
                   full = start + TILE::BARRIERS + warp * TILE::OWN * 8;
    const mm_unit unit = mm_skinny_unit(args);
    const int column = (int)unit.column * TILE::N, begin = (int)unit.k_begin + warp * TILE::DEPTH;
    constexpr int STEP = TILE::WARPS * TILE::DEPTH;
    const int stages = ((int)unit.k_end - begin + STEP - 1) / STEP;
    const int a_matrix = unit.batch > 0 && args.a.step[0] ? (int)unit.batch : 0,
              b_matrix = unit.batch > 0 && args.b.step[0] ? (int)unit.batch : 0;
    auto fill = [&](int stage, int k) {
        mm_barrier_expect(full + stage * 8, TILE::A_BYTES + TILE::B_BYTES);
        mm_bulk_load(b + stage * TILE::B_BYTES, &maps.b, full + stage * 8, column, k, b_matrix, 0);
        mm_bulk_load(a + stage * TILE::A_BYTES, &maps.a, full + stage * 8, k, 0, a_matrix, 0);
    };
    if (lane == 0) {
        for (int i = 0; i < TILE::OWN; i++) mm_barrier_init(full + i * 8, 1);
        mm_barrier_publish();
#pragma unroll
        for (int i = 0; i < TILE::OWN; i++)
            if (i < stages) fill(i, begin + i * STEP);
    }
    ks_start(site);
    __syncwarp();
    typename TILE::sums sum = {};
    int stage = 0, parity = 0;
#pragma unroll 1
    for (int i = 0; i < stages; i++) {
        mm_barrier_wait(full + stage * 8, parity);
        mm_strip_multiply<TILE>(sum, a + stage * TILE::A_BYTES, b + stage * TILE::B_BYTES);
        if (i + TILE::OWN < stages) {
            __syncwarp(); /* all have read */
            if (lane == 0) fill(stage, begin + (i + TILE::OWN) * STEP);
        }
        if (++stage == TILE::OWN) stage = 0, parity ^= 1;
    }
    __syncwarp();
    mm_strip_spill<TILE>(sum, (float *)(mm_strip_shared + warp * TILE::OWN * TILE::B_BYTES), (int)args.m);
    __syncthreads();
    if (threadIdx.x == TILE::THREADS - 1) mm_stamp(site);
    mm_strip_finish<TILE>(args, unit, job, (const float *)mm_strip_shared);
#endif
}

/* A's rows lie along K, B's across it. */
template <typename TILE>
static mm_kernel mm_strip(const char *name, mm_pace pace, bool a_k, bool b_k)
{
    return {name,        a_k && !b_k ? (const void *)mm_strip_kernel<TILE> : NULL,
            TILE::M,     TILE::N,
            TILE::DEPTH, TILE::THREADS,
            TILE::CTAS,  TILE::SHARED,
            pace,        true,
            false,       1,
            1,           MM_SKINNY_BULK};
}

#endif
