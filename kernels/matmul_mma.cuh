/* FP16 and BF16 on tensor cores: mma.sync m16n8k16 with FP32 sums, on sm_80 and later.
 *
 * Operands keep their layout in shared memory (rows of contiguous elements, 8 elements of padding against bank
 * conflicts); ldmatrix, transposing where K is not the contiguous dimension, serves all four transpose combinations. A
 * ring of MM_STAGES stages is filled by asynchronous copies where rows start on 4 or 16 bytes, by element loads where
 * they do not. */
#ifndef KS_MATMUL_MMA_CUH
#define KS_MATMUL_MMA_CUH

#include "matmul_common.cuh"

enum { MM_STAGES = 4, MM_DEPTH = 32, MM_PADDING = 8 };

template <int WIDE_M, int WIDE_N, int WARPS_M, int WARPS_N>
struct mm_mma_tile {
    enum { M = WIDE_M, N = WIDE_N, ROWS = WARPS_M, COLUMNS = WARPS_N, THREADS = 32 * WARPS_M * WARPS_N };
    enum { WARP_M = M / ROWS, WARP_N = N / COLUMNS };
};
typedef mm_mma_tile<64, 64, 2, 2> mm_mma_small;
typedef mm_mma_tile<128, 128, 2, 4> mm_mma_large;

/* Elements of one operand's stage: `across` (M or N) by MM_DEPTH, rows along K or across it. */
__host__ __device__ constexpr int mm_stage_elements(int across, bool k_contiguous)
{
    return k_contiguous ? across * (MM_DEPTH + MM_PADDING) : MM_DEPTH * (across + MM_PADDING);
}

__host__ __device__ constexpr int mm_mma_sum_pitch(int n)
{
    return n + 8; /* so that a half-warp's pairs meet 16 different pairs of banks */
}

template <typename TILE, bool TA, bool TB>
__host__ __device__ constexpr int mm_mma_shared_bytes()
{
    const int ring = MM_STAGES * 2 * (mm_stage_elements(TILE::M, !TA) + mm_stage_elements(TILE::N, TB));
    const int sums = 4 * TILE::M * mm_mma_sum_pitch(TILE::N);
    return ring > sums ? ring : sums;
}

/* ROWS x COLUMNS elements from (row, column) of a matrix with `pitch` elements per row; zeros beyond row_end and
 * column_end. */
template <typename T, int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void mm_load_stage(T *to, const T *from, mm_int pitch, mm_int row, mm_int column,
                                              mm_int row_end, mm_int column_end, int vector)
{
    constexpr int TO_PITCH = COLUMNS + MM_PADDING;
    from += row * pitch + column;
    /* In-tile limits fit 32 bits. */
    const int rows = (int)min((mm_int)ROWS, row_end - row), columns = (int)min((mm_int)COLUMNS, column_end - column);
    if (vector == 16) {
        constexpr int PER_ROW = COLUMNS / 8;
#pragma unroll
        for (int i = 0; i < ROWS * PER_ROW / THREADS; i++) {
            const int at = threadIdx.x + i * THREADS, r = at / PER_ROW, c = at % PER_ROW * 8;
            const int valid = r < rows ? max(0, min(8, columns - c)) * 2 : 0;
            mm_copy_async<16>(to + r * TO_PITCH + c, valid ? from + r * pitch + c : from, valid);
        }
    } else if (vector == 4) {
        constexpr int PER_ROW = COLUMNS / 2;
#pragma unroll 4
        for (int i = 0; i < ROWS * PER_ROW / THREADS; i++) {
            const int at = threadIdx.x + i * THREADS, r = at / PER_ROW, c = at % PER_ROW * 2;
            const int valid = r < rows ? max(0, min(2, columns - c)) * 2 : 0;
            mm_copy_async<4>(to + r * TO_PITCH + c, valid ? from + r * pitch + c : from, valid);
        }
    } else {
#pragma unroll 8
        for (int i = 0; i < ROWS * COLUMNS / THREADS; i++) {
            const int at = threadIdx.x + i * THREADS, r = at / COLUMNS, c = at % COLUMNS;
            to[r * TO_PITCH + c] = r < rows && c < columns ? from[r * pitch + c] : (T)0.0f;
        }
    }
}

template <bool TRANSPOSE>
__device__ __forceinline__ void mm_ldmatrix(uint32_t (&to)[4], const void *row)
{
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if constexpr (TRANSPOSE)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at)
                     : "memory");
}

template <typename T>
__device__ __forceinline__ void mm_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void mm_mma<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mm_mma<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 16 x 16 of A from (m, k): registers 0, 1 are rows 0-7, 8-15 of k 0-7; 2, 3 the same of k 8-15. Lane l gives the
 * address of stored row l % 8 of matrix l / 8. */
template <typename T, int TILE_M, bool TA>
__device__ __forceinline__ void mm_fragment_a(uint32_t (&to)[4], const T *a, int m, int k)
{
    const int lane = threadIdx.x % 32, inner = lane % 8, matrix = lane / 8;
    if constexpr (TA)
        mm_ldmatrix<true>(to, a + (k + inner + matrix / 2 * 8) * (TILE_M + MM_PADDING) + m + matrix % 2 * 8);
    else
        mm_ldmatrix<false>(to, a + (m + inner + matrix % 2 * 8) * (MM_DEPTH + MM_PADDING) + k + matrix / 2 * 8);
}

/* 16 x 16 of B from (k, n): registers 0, 1 are k 0-7, 8-15 of columns 0-7; 2, 3 the same of columns 8-15. */
template <typename T, int TILE_N, bool TB>
__device__ __forceinline__ void mm_fragment_b(uint32_t (&to)[4], const T *b, int k, int n)
{
    const int lane = threadIdx.x % 32, inner = lane % 8, matrix = lane / 8;
    if constexpr (TB)
        mm_ldmatrix<false>(to, b + (n + inner + matrix / 2 * 8) * (MM_DEPTH + MM_PADDING) + k + matrix % 2 * 8);
    else
        mm_ldmatrix<true>(to, b + (k + inner + matrix % 2 * 8) * (TILE_N + MM_PADDING) + n + matrix / 2 * 8);
}

template <typename T, typename TILE, bool TA, bool TB>
__device__ __forceinline__ void mm_mma_stage(float (&sum)[TILE::WARP_M / 16][TILE::WARP_N / 8][4], const T *a,
                                             const T *b)
{
    const int warp = threadIdx.x / 32, m = warp / TILE::COLUMNS * TILE::WARP_M, n = warp % TILE::COLUMNS * TILE::WARP_N;
#pragma unroll
    for (int k = 0; k < MM_DEPTH; k += 16) {
        uint32_t fa[TILE::WARP_M / 16][4], fb[TILE::WARP_N / 16][4];
#pragma unroll
        for (int i = 0; i < TILE::WARP_M / 16; i++) mm_fragment_a<T, TILE::M, TA>(fa[i], a, m + 16 * i, k);
#pragma unroll
        for (int j = 0; j < TILE::WARP_N / 16; j++) mm_fragment_b<T, TILE::N, TB>(fb[j], b, k, n + 16 * j);
#pragma unroll
        for (int i = 0; i < TILE::WARP_M / 16; i++)
#pragma unroll
            for (int j = 0; j < TILE::WARP_N / 8; j++)
                mm_mma<T>(sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
}

/* Sums go through shared memory, so that a warp stores whole rows. */
template <typename T, typename TILE>
__device__ __forceinline__ void mm_mma_store(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                             unsigned char *out, const float *sums)
{
    const mm_int row0 = unit.row * TILE::M, column0 = unit.column * TILE::N;
    const int rows = (int)min((mm_int)TILE::M, args.m - row0), columns = (int)min((mm_int)TILE::N, args.n - column0);
    const bool even = args.n % 2 == 0; /* then pairs start on whole words everywhere */
    const mm_int corner = row0 * args.n + column0;
    T *c = (T *)(out + args.c_at) + unit.batch * args.m * args.n + corner;
    float *partial = args.slices > 1 ? mm_plane<float>(site, args, unit) + corner : NULL;
    for (int at = threadIdx.x; at < TILE::M * TILE::N / 2; at += TILE::THREADS) {
        const int i = at / (TILE::N / 2), j = at % (TILE::N / 2) * 2;
        if (i >= rows || j >= columns) continue;
        const float2 pair = *(const float2 *)(sums + i * mm_mma_sum_pitch(TILE::N) + j);
        const mm_int place = i * args.n + j;
        const bool two = j + 1 < columns;
        if (partial) {
            if (even) {
                *(float2 *)(partial + place) = pair;
            } else {
                partial[place] = pair.x;
                if (two) partial[place + 1] = pair.y;
            }
            continue;
        }
        struct alignas(4) {
            T x, y;
        } narrow = {mm_finish<T>(pair.x, args.alpha), mm_finish<T>(pair.y, args.alpha)};
        if (even) {
            *(decltype(narrow) *)(c + place) = narrow;
        } else {
            c[place] = narrow.x;
            if (two) c[place + 1] = narrow.y;
        }
    }
}

template <typename T, typename TILE, bool TA, bool TB>
__device__ __forceinline__ void mm_mma_unit(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                            const ks_entry &job, unsigned char *shared)
{
    constexpr int A_STAGE = mm_stage_elements(TILE::M, !TA), B_STAGE = mm_stage_elements(TILE::N, TB);
    T *a_ring = (T *)shared, *b_ring = a_ring + MM_STAGES * A_STAGE;
    const T *a = (const T *)(job.in + args.a_at) + unit.a, *b = (const T *)(job.in + args.b_at) + unit.b;
    const mm_int row0 = unit.row * TILE::M, column0 = unit.column * TILE::N;
    const mm_int steps = (unit.k_end - unit.k_begin + MM_DEPTH - 1) / MM_DEPTH;

    auto load = [&](mm_int step) {
        if (step < steps) {
            const int stage = (int)(step % MM_STAGES);
            const mm_int k = unit.k_begin + step * MM_DEPTH;
            if constexpr (TA)
                mm_load_stage<T, MM_DEPTH, TILE::M, TILE::THREADS>(a_ring + stage * A_STAGE, a, args.a_col, k, row0,
                                                                   unit.k_end, args.m, args.a_vector);
            else
                mm_load_stage<T, TILE::M, MM_DEPTH, TILE::THREADS>(a_ring + stage * A_STAGE, a, args.a_row, row0, k,
                                                                   args.m, unit.k_end, args.a_vector);
            if constexpr (TB)
                mm_load_stage<T, TILE::N, MM_DEPTH, TILE::THREADS>(b_ring + stage * B_STAGE, b, args.b_col, column0, k,
                                                                   args.n, unit.k_end, args.b_vector);
            else
                mm_load_stage<T, MM_DEPTH, TILE::N, TILE::THREADS>(b_ring + stage * B_STAGE, b, args.b_row, k, column0,
                                                                   unit.k_end, args.n, args.b_vector);
        }
        mm_copy_commit(); /* an empty group too, so that the count of groups stays that of steps */
    };

    float sum[TILE::WARP_M / 16][TILE::WARP_N / 8][4] = {};
#pragma unroll 1
    for (int step = 0; step < MM_STAGES - 1; step++) load(step);
    for (mm_int step = 0; step < steps; step++) {
        mm_copy_wait<MM_STAGES - 2>();
        __syncthreads();
        load(step + MM_STAGES - 1); /* into the stage that all warps left before this barrier */
        const int stage = (int)(step % MM_STAGES);
        mm_mma_stage<T, TILE, TA, TB>(sum, a_ring + stage * A_STAGE, b_ring + stage * B_STAGE);
    }
    mm_copy_wait<0>();
    __syncthreads();

    float *sums = (float *)shared;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int m = warp / TILE::COLUMNS * TILE::WARP_M + lane / 4,
              n = warp % TILE::COLUMNS * TILE::WARP_N + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILE::WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < TILE::WARP_N / 8; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(float2 *)(sums + (m + 16 * i + 8 * half) * mm_mma_sum_pitch(TILE::N) + n + 8 * j) =
                    make_float2(sum[i][j][2 * half], sum[i][j][2 * half + 1]);
    __syncthreads();
    mm_mma_store<T, TILE>(site, args, unit, job.out, sums);
    __syncthreads(); /* before the next unit's stages overwrite the sums */
}

template <typename T, typename TILE, bool TA, bool TB>
__global__ void __launch_bounds__(TILE::THREADS) mm_mma_kernel(ks_site site, const __grid_constant__ mm_args args)
{
    extern __shared__ __align__(16) unsigned char mm_shared[];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    for (mm_int index = blockIdx.x; index < args.units; index += gridDim.x)
        mm_mma_unit<T, TILE, TA, TB>(site, args, mm_unit_at(args, index), job, mm_shared);
    if (args.slices == 1) ks_leave(site);
}

#endif
