/* The kernels of few rows, B across K by TMA copies.
 *
 * A CTA owns a strip of columns, and each of its warps some stages: the warp fills them, multiplies what has come and fills
 * them again, and waits for no other before its sums are complete; the warps reduce in shared memory. CTAs of 16-bit types do
 * not share K: they walk along it side by side, so that what is read at a time lies together. On an H200 BF16
 * 1 x 4096 x 4096 takes 10.3 us in 128 strips, 13.7 where two CTAs share a strip's K, and 11.4 in 64 strips of twice the
 * columns that two share; but FP32 12 x 8192 x 2048, of twice the bytes and more work, 27.1 us in 64 strips and 21.5 where
 * two share each. Nor is all of B asked for at once: stages that are under way together come together, late, and their
 * products have nothing to hide behind. */
#ifndef KS_MATMUL_STRIP_CUH
#define KS_MATMUL_STRIP_CUH

#include "cuda/matmul/gemv.cuh"
#include "cuda/matmul/wgmma/wgmma.cuh"

/* M rows of A, or fewer; a stage is 128 bytes of K, and OWN of them are a warp's. TENSOR: by mma.sync, of TF32 where T is
 * float; else FP32 by fused multiply-adds. */
template <typename T, bool TENSOR_, int M_, int OWN_, int WARPS_, int CTAS_>
struct mm_strip_tile {
    typedef T element;
    static constexpr bool TENSOR = TENSOR_;
    static constexpr int M = M_, N = 32, OWN = OWN_, PLANES = WARPS_, CTAS = CTAS_, THREADS = 32 * PLANES;
    static constexpr int DEPTH = 128 / (int)sizeof(T), HALVES = (M + 7) / 8;
    static constexpr int A_BYTES = M * 128, B_BYTES = DEPTH * N * (int)sizeof(T), STAGES = OWN * PLANES;
    static constexpr int A_PITCH = HALVES * 1024; /* of a stage: the swizzle goes by the address */
    /* A warp's sums take the place of its stages of B. */
    static constexpr int SUM_PITCH = N + 4, PLANE = OWN * B_BYTES / (int)sizeof(float), OUTPUTS = M * N;
    static constexpr int SLOTS = STAGES * (A_PITCH + B_BYTES), BARRIERS = SLOTS + OUTPUTS * (int)sizeof(float);
    static constexpr int SHARED = BARRIERS + STAGES * 8;
    typedef std::conditional_t<TENSOR, float[N / 16][HALVES][4], float[M][8]> sums;
    static_assert(!TENSOR || M % 8 == 0, "fragments have 8 rows of A");
    static_assert(M * SUM_PITCH <= PLANE, "a warp's sums fit its stages");
    static_assert(TENSOR || sizeof(T) == 4, "16-bit types have tensor cores");
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A stage of a 16-bit type: 16 columns of B are a fragment's rows, 8 rows of A its columns. A lies in rows of 128 bytes, B
 * in those of 64; their 16-byte chunks are swizzled. */
template <typename TILE>
__device__ __forceinline__ void mm_strip_multiply_half(typename TILE::sums &sum, unsigned a, unsigned b)
{
    typedef typename TILE::element T;
    const int lane_id = threadIdx.x % 32, line = lane_id % 8, matrix = lane_id / 8;
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

/* Of TF32: both lie in rows of 128 bytes. A lane has four neighbouring columns, two for each product; values 2 t and
 * 2 t + 1 of K are a fragment's t and t + 4, so that eight lanes read all banks. */
template <typename TILE>
__device__ __forceinline__ void mm_strip_multiply_tf32(typename TILE::sums &sum, const unsigned char *a,
                                                       const unsigned char *b)
{
    const int lane_id = threadIdx.x % 32, g = lane_id / 4, t = lane_id % 4;
#pragma unroll
    for (int step = 0; step < TILE::DEPTH / 8; step++) {
        const uint4 y0 = *(const uint4 *)(b + (step * 8 + 2 * t) * 128 + ((g ^ (2 * t)) * 16));
        const uint4 y1 = *(const uint4 *)(b + (step * 8 + 2 * t + 1) * 128 + ((g ^ (2 * t + 1)) * 16));
        const uint32_t first[4] = {y0.x, y0.y, y1.x, y1.y}, second[4] = {y0.z, y0.w, y1.z, y1.w};
#pragma unroll
        for (int h = 0; h < TILE::HALVES; h++) {
            const uint2 x = *(const uint2 *)(a + (h * 8 + g) * 128 + (((step * 2 + t / 2) ^ g) * 16) + t % 2 * 8);
            mm_mma(float(), sum[0][h], first, x.x, x.y);
            mm_mma(float(), sum[1][h], second, x.x, x.y);
        }
    }
}

/* Of FP32: lane 4 g + t has the columns of chunks t and t + 4 and the g-th four values of K. */
template <typename TILE>
__device__ __forceinline__ void mm_strip_multiply_fma(typename TILE::sums &sum, const unsigned char *a,
                                                      const unsigned char *b)
{
    const int lane_id = threadIdx.x % 32, g = lane_id / 4, t = lane_id % 4;
    mm_vector<float, 4> y[4][2];
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int c = 0; c < 2; c++)
            y[k][c] = *(const mm_vector<float, 4> *)(b + (4 * g + k) * 128 + (((t + 4 * c) ^ (4 * (g % 2) + k)) * 16));
#pragma unroll
    for (int m = 0; m < TILE::M; m++) {
        const mm_vector<float, 4> x = *(const mm_vector<float, 4> *)(a + m * 128 + ((g ^ m % 8) * 16));
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int c = 0; c < 8; c++) sum[m][c] = fmaf(x.value[k], y[k][c / 4].value[c % 4], sum[m][c]);
    }
}

/* To the warp's plane: the rows that are there. */
template <typename TILE>
__device__ __forceinline__ void mm_strip_spill(typename TILE::sums &sum, float *plane, int rows)
{
    const int lane_id = threadIdx.x % 32, g = lane_id / 4, t = lane_id % 4;
    if constexpr (TILE::TENSOR) {
#pragma unroll
        for (int h = 0; h < TILE::HALVES; h++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = h * 8 + 2 * t + e % 2;
                if (row >= rows) continue;
#pragma unroll
                for (int i = 0; i < TILE::N / 16; i++) {
                    const int column =
                        sizeof(typename TILE::element) == 2 ? i * 16 + e / 2 * 8 + g : 4 * g + 2 * i + e / 2;
                    plane[row * TILE::SUM_PITCH + column] = sum[i][h][e];
                }
            }
    } else {
        /* Lanes of the same columns add their sums, and each keeps one column of eight. */
#pragma unroll
        for (int step = 4; step > 0; step /= 2) {
            const bool upper = lane_id & 4 * step;
#pragma unroll
            for (int m = 0; m < TILE::M; m++)
#pragma unroll
                for (int c = 0; c < step; c++) {
                    const float sent = upper ? sum[m][c] : sum[m][c + step],
                                kept = upper ? sum[m][c + step] : sum[m][c];
                    sum[m][c] = kept + __shfl_xor_sync(~0u, sent, 4 * step);
                }
        }
        const int column = 16 * (lane_id / 16) + 4 * t + lane_id / 8 % 2 * 2 + lane_id / 4 % 2;
#pragma unroll
        for (int m = 0; m < TILE::M; m++)
            if (m < rows) plane[m * TILE::SUM_PITCH + column] = sum[m][0];
    }
}
#endif

/* Device memory only: the maps hold addresses. Empty where the code is not made for sm_90a (find_tma). */
template <typename TILE>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_strip_kernel(ks_site site, const __grid_constant__ mm_args args, const __grid_constant__ mm_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char mm_strip_shared[];
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
#ifdef KS_MATMUL_CLUSTERS
    if (args.cluster > 1) mm_cluster_arrive_relaxed();
#endif
    const int warp = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const int b = warp * TILE::OWN * TILE::B_BYTES, a = TILE::STAGES * TILE::B_BYTES + warp * TILE::OWN * TILE::A_PITCH;
    const unsigned start = mm_shared_address(mm_strip_shared), full = start + TILE::BARRIERS + warp * TILE::OWN * 8;
    const mm_unit unit = mm_skinny_unit(args);
    const int column = (int)unit.column * TILE::N, begin = (int)unit.k_begin + warp * TILE::DEPTH;
    constexpr int STEP = TILE::PLANES * TILE::DEPTH;
    const int stages = ((int)unit.k_end - begin + STEP - 1) / STEP;
    const int a_matrix = unit.batch > 0 && args.a.step[0] ? (int)unit.batch : 0,
              b_matrix = unit.batch > 0 && args.b.step[0] ? (int)unit.batch : 0;
    auto fill_a = [&](int stage, int k) {
        mm_tma_load(start + a + stage * TILE::A_PITCH, &maps.a, full + stage * 8, k, 0, a_matrix, 0);
    };
    auto fill_b = [&](int stage, int k) {
        mm_tma_load(start + b + stage * TILE::B_BYTES, &maps.b, full + stage * 8, column, k, b_matrix, 0);
    };
    auto expect = [&](int stage) { mm_mbarrier_expect(full + stage * 8, TILE::A_BYTES + TILE::B_BYTES); };
    auto fill = [&](int stage, int k) { expect(stage), fill_b(stage, k), fill_a(stage, k); };
    if (lane_id == 0) {
        for (int i = 0; i < TILE::OWN; i++) mm_mbarrier_init(full + i * 8, 1);
        mm_mbarrier_publish();
        if (args.packed == MM_PACKED_INPUT0) { /* INPUT1 meanwhile */
#pragma unroll 1
            for (int i = 0; i < (int)TILE::OWN && i < stages; i++) {
                expect(i);
                args.swap_ab ? fill_a(i, begin + i * STEP) : fill_b(i, begin + i * STEP);
            }
            mm_await_packed();
#pragma unroll 1
            for (int i = 0; i < (int)TILE::OWN && i < stages; i++)
                args.swap_ab ? fill_b(i, begin + i * STEP) : fill_a(i, begin + i * STEP);
        } else {
            if (args.packed) mm_await_packed();
#pragma unroll
            for (int i = 0; i < TILE::OWN; i++)
                if (i < stages) fill(i, begin + i * STEP);
        }
    }
    mm_begin(site, args);
    ks_await(site);
    __syncwarp();
    mm_skinny_residual<TILE> residual(args, unit, job);
    typename TILE::sums sum = {};
    int stage = 0, parity = 0;
#pragma unroll 1
    for (int i = 0; i < stages; i++) {
        mm_mbarrier_wait(full + stage * 8, parity);
        const int b_at = b + stage * TILE::B_BYTES, a_at = a + stage * TILE::A_PITCH;
        if constexpr (sizeof(typename TILE::element) == 2)
            mm_strip_multiply_half<TILE>(sum, start + a_at, start + b_at);
        else if constexpr (TILE::TENSOR)
            mm_strip_multiply_tf32<TILE>(sum, mm_strip_shared + a_at, mm_strip_shared + b_at);
        else
            mm_strip_multiply_fma<TILE>(sum, mm_strip_shared + a_at, mm_strip_shared + b_at);
        if (i + TILE::OWN < stages) {
            __syncwarp(); /* all have read */
            if (lane_id == 0) fill(stage, begin + (i + TILE::OWN) * STEP);
        }
        if (++stage == TILE::OWN) stage = 0, parity ^= 1;
    }
    float *planes = (float *)mm_strip_shared;
    __syncwarp();
    mm_strip_spill<TILE>(sum, planes + warp * TILE::PLANE, (int)args.m);
    mm_skinny_reduce_and_store<TILE>(site, args, unit, job, {planes, (float *)(mm_strip_shared + TILE::SLOTS)},
                                     residual);
#endif
}

/* A's rows lie along K, B's across it. */
template <typename TILE>
static constexpr mm_row mm_strip(const char *name, mm_cost cost)
{
    const mm_kernel kernel = {.name = name,
                              .tma_entry = mm_strip_kernel<TILE>,
                              .m = TILE::M,
                              .n = TILE::N,
                              .depth = TILE::DEPTH,
                              .threads = TILE::THREADS,
                              .ctas = TILE::CTAS,
                              .shared_bytes = TILE::SHARED,
                              .cost = cost,
                              .tma = true,
                              .split_k = sizeof(typename TILE::element) == 4,
                              .by_m = 1,
                              .by_n = 1,
                              .skinny = MM_SKINNY_TMA};
    const mm_kernel none = mm_without_entry(kernel);
    return {{{none, none}, {kernel, none}}};
}

#endif
