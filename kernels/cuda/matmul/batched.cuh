/* Batches of small matrices: a group of threads, a warp or the CTA, computes one. The kernel, and how fused multiply-adds
 * and mma.sync are set to it.
 *
 * A matrix is one tile: nothing is shared or split, and no group waits for another. All stages of a group's pipeline are on
 * their way before the first is waited for, so that an SM's CTAs together have more in flight than the memory needs. The
 * sums go straight from registers to the output. Operands' rows start on 16 bytes. */
#ifndef KS_MATMUL_BATCHED_CUH
#define KS_MATMUL_BATCHED_CUH

#include "cuda/matmul/epilogue.cuh"
#include "cuda/matmul/simt.cuh"
#include "cuda/matmul/mma.cuh"
#include "cuda/matmul/table.cuh"

/* A thread owns TM x TN outputs; a warp's lanes are LANES along a row of threads. GROUPS groups are a CTA, CTAS of them fit
 * an SM. */
template <typename T, int M_, int N_, int DEPTH_, int TM_, int TN_, int LANES_, int GROUPS_, int STAGES_, int CTAS_>
struct mm_batch_fma {
    typedef T element;
    static constexpr int M = M_, N = N_, DEPTH = DEPTH_, TM = TM_, TN = TN_, LANES = LANES_, GROUPS = GROUPS_,
                         STAGES = STAGES_, CTAS = CTAS_;
    static constexpr int MMA = 0, W = 16 / (int)sizeof(T), ROWS = M / TM, COLUMNS = N / TN, GROUP = ROWS * COLUMNS,
                         THREADS = GROUP * GROUPS, SUM_PITCH = N + 4;
    static constexpr int UNROLL = TM * TN > 32 ? 2 : 4; /* values of K: as registers allow */
    static_assert(COLUMNS % LANES == 0 && DEPTH % UNROLL == 0, "a row of threads is whole warps");
    typedef T sums[TM][TN];
};

/* The warps of a group are WM x WN over the matrix. */
template <typename T, int M_, int N_, int DEPTH_, int WM_, int WN_, int GROUPS_, int STAGES_, int CTAS_>
struct mm_batch_mma {
    typedef T element;
    static constexpr int M = M_, N = N_, DEPTH = DEPTH_, WM = WM_, WN = WN_, GROUPS = GROUPS_, STAGES = STAGES_,
                         CTAS = CTAS_;
    static constexpr int MMA = 1, STEP = 32 / (int)sizeof(T), WARP_M = M / WM, WARP_N = N / WN, GROUP = 32 * WM * WN,
                         THREADS = GROUP * GROUPS, SUM_PITCH = N + 8;
    static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0 && DEPTH % STEP == 0, "a warp's part is whole fragments");
    typedef float sums[WARP_M / 16][WARP_N / 8][4];
};

/* Fused multiply-adds read both operands across K: rows that lie along it are transposed on their way. */
template <typename TILE, int ACROSS, bool K_CONTIGUOUS>
struct mm_batch_operand {
    static constexpr bool TRANSPOSES = !TILE::MMA && K_CONTIGUOUS;
    typedef mm_stage<typename TILE::element, TILE::DEPTH, ACROSS, MM_SPARE> across;
    typedef std::conditional_t<TILE::MMA, typename mm_mma_operand<TILE, ACROSS, K_CONTIGUOUS>::stage, across> stage;
};

template <typename TILE, bool A_K, bool B_K>
struct mm_batch_pipeline {
    typedef mm_batch_operand<TILE, TILE::M, A_K> OA;
    typedef mm_batch_operand<TILE, TILE::N, B_K> OB;
    typedef typename OA::stage A;
    typedef typename OB::stage B;
    static constexpr int STAGE = A::BYTES + B::BYTES, FILLED = TILE::STAGES * STAGE;
    static constexpr int SUMS = TILE::M * TILE::SUM_PITCH * (int)sizeof(float), BYTES = FILLED > SUMS ? FILLED : SUMS;
};

/* All of a group are here. */
template <typename TILE>
__device__ __forceinline__ void mm_batch_sync()
{
    static_assert(TILE::GROUP == 32 || TILE::GROUPS == 1, "a group is a warp, or the CTA");
    if constexpr (TILE::GROUP == 32)
        __syncwarp();
    else
        __syncthreads();
}

/* A group's copies of one operand's stage: `rows` rows of `bytes` bytes are there, the rest becomes zeros. */
template <typename STAGE, int THREADS>
__device__ __forceinline__ void mm_batch_copy(unsigned to, const unsigned char *from, mm_int pitch, int rows, int bytes,
                                              int thread)
{
    constexpr int STEP = THREADS < STAGE::CHUNKS ? 1 : THREADS / STAGE::CHUNKS,
                  BESIDE = THREADS < STAGE::CHUNKS ? STAGE::CHUNKS / THREADS : 1;
    static_assert(STAGE::ROWS % STEP == 0 && (THREADS % STAGE::CHUNKS == 0 || STAGE::CHUNKS % THREADS == 0),
                  "a thread stays in its columns of chunks");
    const int row = BESIDE > 1 ? 0 : thread / STAGE::CHUNKS, at = thread % STAGE::CHUNKS * 16;
    to += row * STAGE::PITCH + at;
    from += row * pitch + at;
#pragma unroll
    for (int i = 0; i < STAGE::ROWS; i += STEP) {
#pragma unroll
        for (int e = 0; e < BESIDE * THREADS * 16; e += THREADS * 16)
            mm_copy_async(to + i * STAGE::PITCH + e, from + e, row + i < rows && at + e < bytes);
        from += STEP * pitch;
    }
}

/* The same of `rows` rows of `words` words along K, transposed: a warp takes 8 words of 4 rows, one of each bank. */
template <typename STAGE, int THREADS>
__device__ __forceinline__ void mm_batch_copy_transposed(unsigned to, const unsigned char *from, mm_int pitch, int rows,
                                                         int words, int thread)
{
    constexpr int STEP = THREADS / 8;
    static_assert(STAGE::ROWS % 8 == 0 && STAGE::COLUMNS % STEP == 0, "a thread stays in its words");
    const int row = thread / 8, word = thread % 8;
    to += word * STAGE::PITCH + row * 4;
    from += row * pitch + word * 4;
#pragma unroll
    for (int i = 0; i < STAGE::COLUMNS; i += STEP) {
#pragma unroll
        for (int l = 0; l < STAGE::ROWS; l += 8)
            mm_copy_element<4>(to + l * STAGE::PITCH + i * 4, from + l * 4, row + i < rows && word + l < words);
        from += STEP * pitch;
    }
}

/* across: the operand's extent across K; left: values of K from here on. */
template <typename OPERAND, int THREADS, bool K_CONTIGUOUS, typename T>
__device__ __forceinline__ void mm_batch_feed(unsigned to, const T *from, mm_int pitch, int across, int left,
                                              int thread)
{
    typedef typename OPERAND::stage STAGE;
    const unsigned char *at = (const unsigned char *)from;
    const int size = sizeof(T);
    if constexpr (OPERAND::TRANSPOSES)
        mm_batch_copy_transposed<STAGE, THREADS>(to, at, pitch * size, across, left, thread);
    else
        mm_batch_copy<STAGE, THREADS>(to, at, pitch * size, K_CONTIGUOUS ? across : left,
                                      (K_CONTIGUOUS ? left : across) * size, thread);
}

/* --- products -------------------------------------------------------------------------------------------------------- */

/* Which thread of its group this is, of ROWS x COLUMNS. */
template <typename TILE>
__device__ __forceinline__ void mm_batch_thread(int thread, int *ty, int *tx)
{
    constexpr int ACROSS = TILE::COLUMNS / TILE::LANES;
    const int warp = thread / 32, lane_id = thread % 32;
    *ty = warp / ACROSS * (32 / TILE::LANES) + lane_id / TILE::LANES;
    *tx = warp % ACROSS * TILE::LANES + lane_id % TILE::LANES;
}

/* One value of K. Row by row, there and back: each product shares an operand with the one before it, as the register file
 * wants it. */
template <typename TILE, typename A, typename B>
__device__ __forceinline__ void mm_batch_outer(typename TILE::sums &sum, const unsigned char *a, const unsigned char *b,
                                               int ty, int tx, int k)
{
    typedef typename TILE::element T;
    T x[TILE::TM], y[TILE::TN];
    mm_fma_across<A, T, TILE::TM, TILE::ROWS, TILE::W>(x, a, ty, k);
    mm_fma_across<B, T, TILE::TN, TILE::COLUMNS, TILE::W>(y, b, tx, k);
#pragma unroll
    for (int i = 0; i < TILE::TM; i++)
#pragma unroll
        for (int l = 0; l < TILE::TN; l++) {
            const int j = i % 2 ? TILE::TN - 1 - l : l;
            sum[i][j] = fma(x[i], y[j], sum[i][j]);
        }
}

template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_batch_multiply(typename TILE::sums &sum, const unsigned char *a,
                                                  const unsigned char *b, int thread)
{
    typedef mm_batch_pipeline<TILE, A_K, B_K> PIPELINE;
    if constexpr (TILE::MMA) {
        typedef typename TILE::element T;
        const int warp = thread / 32, m = warp / TILE::WN * TILE::WARP_M, n = warp % TILE::WN * TILE::WARP_N;
        const unsigned a_at = mm_shared_address(a), b_at = mm_shared_address(b);
#pragma unroll
        for (int k = 0; k < TILE::DEPTH; k += TILE::STEP) {
            uint32_t fa[TILE::WARP_M / 16][4], fb[TILE::WARP_N / 16][4];
#pragma unroll
            for (int i = 0; i < TILE::WARP_M / 16; i++)
                mm_fragment<T, typename PIPELINE::A, A_K, true>(fa[i], a_at, m + 16 * i, k);
#pragma unroll
            for (int j = 0; j < TILE::WARP_N / 16; j++)
                mm_fragment<T, typename PIPELINE::B, B_K, false>(fb[j], b_at, n + 16 * j, k);
#pragma unroll
            for (int i = 0; i < TILE::WARP_M / 16; i++)
#pragma unroll
                for (int j = 0; j < TILE::WARP_N / 8; j++)
                    mm_mma(T(), sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
        }
    } else {
        int ty, tx;
        mm_batch_thread<TILE>(thread, &ty, &tx);
#pragma unroll(TILE::UNROLL)
        for (int k = 0; k < TILE::DEPTH; k++)
            mm_batch_outer<TILE, typename PIPELINE::A, typename PIPELINE::B>(sum, a, b, ty, tx, k);
    }
}

/* --- sums ------------------------------------------------------------------------------------------------------------ */

/* To the group's plane of M rows, SUM_PITCH floats apart. */
template <typename TILE>
__device__ __forceinline__ void mm_batch_spill(const typename TILE::sums &sum, float *plane, int thread)
{
    if constexpr (TILE::MMA) {
        const int warp = thread / 32, lane_id = thread % 32;
        float *to = plane + (warp / TILE::WN * TILE::WARP_M + lane_id / 4) * TILE::SUM_PITCH +
                    warp % TILE::WN * TILE::WARP_N + lane_id % 4 * 2;
#pragma unroll
        for (int i = 0; i < TILE::WARP_M / 8; i++)
#pragma unroll
            for (int j = 0; j < TILE::WARP_N / 8; j++)
                *(float2 *)(to + 8 * i * TILE::SUM_PITCH + 8 * j) =
                    make_float2(sum[i / 2][j][i % 2 * 2], sum[i / 2][j][i % 2 * 2 + 1]);
    } else {
        int ty, tx;
        mm_batch_thread<TILE>(thread, &ty, &tx);
        volatile float *to = plane; /* one by one: vectors would tie the sums to neighbouring registers */
#pragma unroll
        for (int i = 0; i < TILE::TM; i++)
#pragma unroll
            for (int j = 0; j < TILE::TN; j++)
                to[mm_fma_place<TILE::TM, TILE::ROWS, TILE::W, false>(ty, i) * TILE::SUM_PITCH +
                   mm_fma_place<TILE::TN, TILE::COLUMNS, TILE::W, false>(tx, j)] = sum[i][j];
    }
}

template <typename T>
struct alignas(4 * sizeof(T)) mm_batch_line {
    T value[4];
};

/* 4, 8 or 16 bytes. They are not read again soon: they leave the cache first. */
template <typename LINE>
__device__ __forceinline__ void mm_batch_stream(void *to, const LINE &line)
{
    if constexpr (sizeof line == 16)
        __stcs((uint4 *)to, *(const uint4 *)&line);
    else if constexpr (sizeof line == 8)
        __stcs((uint2 *)to, *(const uint2 *)&line);
    else
        __stcs((uint32_t *)to, *(const uint32_t *)&line);
}

/* Straight from registers, where nothing is left to do but to round. FP32 sums are multiplied by alpha, which is 1 here:
 * stored themselves as vectors, they would have to be neighbouring registers in all products. */
template <typename TILE>
__device__ __forceinline__ void mm_batch_store_plain(const typename TILE::sums &sum,
                                                     const mm_out<typename TILE::element> &out, int n, float alpha,
                                                     int thread)
{
    typedef typename TILE::element T;
    mm_batch_line<T> line;
    if constexpr (TILE::MMA) {
        /* Two fragments side by side: lanes trade halves until each has four neighbours. */
        const int warp = thread / 32, lane_id = thread % 32, odd = lane_id % 2;
        const int row0 = warp / TILE::WN * TILE::WARP_M + lane_id / 4,
                  column0 = warp % TILE::WN * TILE::WARP_N + odd * 8 + lane_id % 4 / 2 * 4;
#pragma unroll
        for (int i = 0; i < TILE::WARP_M / 8; i++)
#pragma unroll
            for (int j = 0; j < TILE::WARP_N / 8; j += 2) {
                const float left0 = sum[i / 2][j][i % 2 * 2], left1 = sum[i / 2][j][i % 2 * 2 + 1],
                            right0 = sum[i / 2][j + 1][i % 2 * 2], right1 = sum[i / 2][j + 1][i % 2 * 2 + 1];
                const float first = __shfl_xor_sync(~0u, odd ? left0 : right0, 1),
                            second = __shfl_xor_sync(~0u, odd ? left1 : right1, 1);
                const int row = row0 + 8 * i, column = column0 + 8 * j;
                mm_narrow(odd ? first : left0, &line.value[0]);
                mm_narrow(odd ? second : left1, &line.value[1]);
                mm_narrow(odd ? right0 : first, &line.value[2]);
                mm_narrow(odd ? right1 : second, &line.value[3]);
                if (row < out.rows && column < out.columns) mm_batch_stream(out.c + row * n + column, line);
            }
    } else {
        int ty, tx;
        mm_batch_thread<TILE>(thread, &ty, &tx);
#pragma unroll
        for (int i = 0; i < TILE::TM; i++)
#pragma unroll
            for (int j = 0; j < TILE::TN; j += 4) {
                const int row = mm_fma_place<TILE::TM, TILE::ROWS, TILE::W, false>(ty, i),
                          column = mm_fma_place<TILE::TN, TILE::COLUMNS, TILE::W, false>(tx, j);
#pragma unroll
                for (int e = 0; e < 4; e++) line.value[e] = sum[i][j + e] * alpha;
                if (row < out.rows && column < out.columns) mm_batch_stream(out.c + row * n + column, line);
            }
    }
}

/* All others. */
template <typename TILE>
__device__ __forceinline__ void mm_batch_store(const mm_args &args, const mm_out<typename TILE::element> &out,
                                               const float *plane, int thread)
{
    mm_line<typename TILE::element> next =
        mm_read_residual(args, out, thread / (TILE::N / 4), thread % (TILE::N / 4) * 4);
#pragma unroll 1
    for (int four = thread; four < TILE::M * TILE::N / 4; four += TILE::GROUP) {
        const int row = four / (TILE::N / 4), column = four % (TILE::N / 4) * 4;
        const mm_line<typename TILE::element> added = next;
        const int then = four + TILE::GROUP;
        next = mm_read_residual(args, out, then / (TILE::N / 4), then % (TILE::N / 4) * 4);
        mm_store_four<false>(args, out, row, column, *(const mm_four<float> *)(plane + row * TILE::SUM_PITCH + column),
                             added);
    }
}

/* --- the kernel ------------------------------------------------------------------------------------------------------ */

template <typename TILE, bool A_K, bool B_K>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_batch_kernel(ks_site site, const __grid_constant__ mm_args args)
{
    typedef typename TILE::element T;
    typedef mm_batch_pipeline<TILE, A_K, B_K> PIPELINE;
    extern __shared__ __align__(128) unsigned char mm_batch_shared[];
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const int group = threadIdx.x / TILE::GROUP, thread = threadIdx.x % TILE::GROUP;
    const unsigned matrix = blockIdx.x * TILE::GROUPS + group;
    const bool live = matrix < args.matrices;
    const int k = (int)args.k, m = live ? (int)args.m : 0, n = live ? (int)args.n : 0;
    mm_int a = 0, b = 0;
    if (live) mm_operands_at(args, matrix, &a, &b);
    const T *const a_from = (const T *)(job.in + args.a.at) + a, *const b_from = (const T *)(job.in + args.b.at) + b;
    unsigned char *const pipeline = mm_batch_shared + group * PIPELINE::BYTES;
    const auto copy = [&](int stage, int l) {
        const unsigned to = mm_shared_address(pipeline + stage * PIPELINE::STAGE);
        mm_batch_feed<typename PIPELINE::OA, TILE::GROUP, A_K>(to, a_from + (A_K ? l : l * args.a.pitch), args.a.pitch,
                                                               m, m ? k - l : 0, thread);
        mm_batch_feed<typename PIPELINE::OB, TILE::GROUP, B_K>(
            to + PIPELINE::A::BYTES, b_from + (B_K ? l : l * args.b.pitch), args.b.pitch, n, n ? k - l : 0, thread);
    };

#pragma unroll
    for (int stage = 0; stage < TILE::STAGES; stage++) {
        if (stage * TILE::DEPTH < k) copy(stage, stage * TILE::DEPTH);
        mm_copy_commit(); /* an empty group too, so that the count of groups stays that of stages */
    }
    ks_start(site);
    typename TILE::sums sum = {};
    int stage = 0;
#pragma unroll 1
    for (int l = 0; l < k; l += TILE::DEPTH) {
        mm_copy_wait<TILE::STAGES - 1>();
        mm_batch_sync<TILE>();
        const unsigned char *from = pipeline + stage * PIPELINE::STAGE;
        mm_batch_multiply<TILE, A_K, B_K>(sum, from, from + PIPELINE::A::BYTES, thread);
        if (l + TILE::STAGES * TILE::DEPTH < k) {
            mm_batch_sync<TILE>(); /* all have left the stage */
            copy(stage, l + TILE::STAGES * TILE::DEPTH);
        }
        mm_copy_commit();
        stage = stage + 1 == TILE::STAGES ? 0 : stage + 1;
    }
    const mm_out<T> out = {(T *)(job.out + args.c_at) + matrix * (args.m * args.n),
                           (const T *)(job.in + args.bias_at),
                           (const T *)(job.in + args.residual_at) + matrix * (args.m * args.n),
                           m,
                           n,
                           ((unsigned)args.n & 3) == 0};
    if (threadIdx.x == TILE::THREADS - 1) mm_stamp(site);
    if (args.plain && out.whole) {
        mm_batch_store_plain<TILE>(sum, out, n, (float)args.alpha, thread);
    } else {
        mm_batch_sync<TILE>(); /* all have left the pipeline */
        mm_batch_spill<TILE>(sum, (float *)pipeline, thread);
        mm_batch_sync<TILE>();
        mm_batch_store<TILE>(args, out, (const float *)pipeline, thread);
    }
    mm_leave(site);
}

template <typename TILE, bool A_K, bool B_K>
static constexpr mm_kernel mm_batch_entry(const char *name, mm_cost cost)
{
    return {.name = name,
            .entry = mm_batch_kernel<TILE, A_K, B_K>,
            .m = TILE::M,
            .n = TILE::N,
            .depth = TILE::DEPTH,
            .threads = TILE::THREADS,
            .ctas = TILE::CTAS,
            .shared_bytes = TILE::GROUPS * mm_batch_pipeline<TILE, A_K, B_K>::BYTES,
            .cost = cost,
            .matrices = TILE::GROUPS};
}

template <typename TILE>
static constexpr mm_row mm_batch(const char *name, mm_cost cost)
{
#define ENTRY(A_K, B_K) mm_batch_entry<TILE, A_K, B_K>(name, cost)
    return MM_LAYOUTS(ENTRY);
#undef ENTRY
}

#endif
