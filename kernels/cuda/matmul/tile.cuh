/* The kernel of a tile: a ring of stages that asynchronous copies fill ahead of the engine that multiplies them. One CTA is
 * one unit; the engine (matmul_mma.cuh, matmul_fma.cuh) and its tile are the template's. */
#ifndef KS_MATMUL_TILE_CUH
#define KS_MATMUL_TILE_CUH

#include "cuda/matmul/epilogue.cuh"
#include "cuda/matmul/simt.cuh"
#include "cuda/matmul/mma.cuh"
#include "cuda/matmul/gemv.cuh"
#include "cuda/matmul/strip.cuh"
#include "cuda/matmul/table.cuh"
#include "cuda/matmul/wgmma_odd.cuh"

template <typename TILE, bool A_K, bool B_K>
struct mm_ring {
    typedef typename TILE::element T;
    typedef std::conditional_t<TILE::MMA, mm_mma_operand<TILE, TILE::M, A_K>, mm_fma_operand<TILE, TILE::M, A_K>> OA;
    typedef std::conditional_t<TILE::MMA, mm_mma_operand<TILE, TILE::N, B_K>, mm_fma_operand<TILE, TILE::N, B_K>> OB;
    typedef typename OA::stage A;
    typedef typename OB::stage B;
    static constexpr int STAGE = A::BYTES + B::BYTES, RING = TILE::STAGES * STAGE;
    static constexpr int SUMS = TILE::PLANES * TILE::M * TILE::SUM_PITCH * (int)sizeof(typename mm_sum<T>::type);
    static constexpr int SHARED = RING > SUMS ? RING : SUMS;
};

template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_accumulate(const mm_args &args, const mm_unit &unit, const ks_entry &job,
                                              unsigned char *shared, typename TILE::sums &sum)
{
    typedef mm_ring<TILE, A_K, B_K> RING;
    typedef typename TILE::element T;
    const T *a = (const T *)(job.in + args.a.at) + unit.a, *b = (const T *)(job.in + args.b.at) + unit.b;
    const mm_int row0 = (mm_int)unit.row * TILE::M, column0 = (mm_int)unit.column * TILE::N;
    const int steps = (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH);
    mm_feed<typename RING::A, TILE::THREADS, A_K, T> af(a, args.a, row0, args.m, unit.k_begin, unit.k_end);
    mm_feed<typename RING::B, TILE::THREADS, B_K, T> bf(b, args.b, column0, args.n, unit.k_begin, unit.k_end);
    const bool shifted = args.a.shifted | args.b.shifted;
    unsigned a_first = (unsigned)(uintptr_t)af.corner,
             b_first = (unsigned)(uintptr_t)bf.corner; /* of the step's stage */
    auto load = [&](int step, int stage) {
        if (step < steps) {
            const unsigned to = mm_shared_address(shared) + stage * RING::STAGE;
            af.load(to);
            bf.load(to + RING::A::BYTES);
            af.move();
            bf.move();
        }
        mm_copy_commit(); /* an empty group too, so that the count of groups stays that of steps */
    };

#pragma unroll 1
    for (int step = 0; step < TILE::STAGES - 1; step++) load(step, step);
    int stage = 0;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        mm_copy_wait<TILE::STAGES - 2>();
        __syncthreads();
        /* Into the stage that all warps left before this barrier. */
        load(step + TILE::STAGES - 1, stage == 0 ? TILE::STAGES - 1 : stage - 1);
        unsigned char *as = shared + stage * RING::STAGE, *bs = as + RING::A::BYTES;
        if (shifted) {
            const int left = (int)min((mm_int)TILE::DEPTH, unit.k_end - unit.k_begin - (mm_int)step * TILE::DEPTH);
            const unsigned size = sizeof(T), depth = TILE::DEPTH;
            const unsigned a_pitch = (unsigned)af.pitch, b_pitch = (unsigned)bf.pitch;
            if (args.a.shifted)
                mm_realign<T, typename RING::A, TILE::THREADS>(as, a_first, a_pitch, A_K ? left * (int)size : INT_MAX);
            if (args.b.shifted)
                mm_realign<T, typename RING::B, TILE::THREADS>(bs, b_first, b_pitch, B_K ? left * (int)size : INT_MAX);
            a_first += depth * (A_K ? size : a_pitch);
            b_first += depth * (B_K ? size : b_pitch);
            __syncthreads();
        }
        if constexpr (TILE::MMA)
            mm_mma_multiply<TILE, A_K, B_K>(sum, as, bs);
        else
            mm_fma_multiply<TILE, A_K, B_K>(sum, as, bs);
        stage = stage + 1 == TILE::STAGES ? 0 : stage + 1;
    }
    mm_copy_wait<0>();
    __syncthreads();
}

/* Of the tiles of fused multiply-adds that read both operands across K. */
template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_accumulate_across(const mm_args &args, const mm_unit &unit, const ks_entry &job,
                                                     unsigned char *shared, typename TILE::sums &sum)
{
    typedef mm_ring<TILE, A_K, B_K> RING;
    typedef typename TILE::element T;
    const T *a = (const T *)(job.in + args.a.at) + unit.a, *b = (const T *)(job.in + args.b.at) + unit.b;
    const mm_int row0 = (mm_int)unit.row * TILE::M, column0 = (mm_int)unit.column * TILE::N;
    int left = (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH), stage = 0; /* steps */
    constexpr int LANES = TILE::TURN_LANES, PIECES = TILE::PIECES;
    mm_feed_across<typename RING::A, TILE::THREADS, A_K, LANES, T> af(a, args.a, row0, args.m, unit.k_begin,
                                                                      unit.k_end);
    mm_feed_across<typename RING::B, TILE::THREADS, B_K, LANES, T> bf(b, args.b, column0, args.n, unit.k_begin,
                                                                      unit.k_end);
    const unsigned ring = mm_shared_address(shared);
    auto load = [&](unsigned to) {
        af.load(to);
        bf.load(to + RING::A::BYTES);
        mm_copy_commit();
    };

#pragma unroll 1
    for (int stage = 0; stage < TILE::STAGES - 1; stage++) load(ring + stage * RING::STAGE);
    unsigned a_start, b_start;
    mm_fma_start<TILE>(&a_start, &b_start);
    /* The next stage is there; the one that is loaded meanwhile, all warps have left. */
    auto await = [&] {
        mm_copy_wait<TILE::STAGES - 2>();
        __syncthreads();
        return ring + (stage == 0 ? TILE::STAGES - 1 : stage - 1) * RING::STAGE;
    };
    auto multiply = [&](auto between) {
        const unsigned char *as = shared + stage * RING::STAGE;
        mm_fma_multiply_across<TILE, A_K, B_K>(sum, as + a_start, as + RING::A::BYTES + b_start, between);
        stage = stage + 1 == TILE::STAGES ? 0 : stage + 1;
    };
    if constexpr (PIECES > 0) {
        auto among = [&](auto shifted) {
            constexpr mm_pass ACROSS = decltype(shifted)::value ? MM_PASS_SINGLES : MM_PASS_VECTORS;
#pragma unroll 1
            for (; af.deep >= TILE::DEPTH; left--) {
                bf.deep = af.deep; /* they are the same: a register less */
                const unsigned to = await();
                multiply([&](int l) {
                    constexpr int EVERY = TILE::SHARE / PIECES;
                    if (l % EVERY) return;
                    af.template piece<A_K ? MM_PASS_TURNS : ACROSS, true, PIECES>(to, l / EVERY);
                    bf.template piece<B_K ? MM_PASS_TURNS : ACROSS, true, PIECES>(to + RING::A::BYTES, l / EVERY);
                });
                mm_copy_commit();
            }
        };
        const bool a_shifted = !A_K && af.shifted, b_shifted = !B_K && bf.shifted;
        if (!a_shifted && !b_shifted)
            among(std::false_type());
        else if ((A_K || a_shifted) && (B_K || b_shifted))
            among(std::true_type());
    }
    /* What stages are left, and those of one operand that is shifted and one that is not. */
#pragma unroll 1
    for (; left > 0; left--) {
        load(await());
        multiply([](int) {});
    }
    mm_copy_wait<0>();
    __syncthreads();
}

template <typename TILE, bool A_K, bool B_K>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_tile_kernel(ks_site site, const __grid_constant__ mm_args args)
{
    typedef typename TILE::element T;
    typedef typename mm_sum<T>::type S;
    extern __shared__ __align__(16) unsigned char mm_shared[];
    ks_entry job;
    if (!ks_enter_again(site, &job)) return;
    mm_begin(site, args);
    const mm_unit unit = mm_unit_at(args, blockIdx.x);
    typename TILE::sums sum = {};
    if constexpr (TILE::TURNS)
        mm_accumulate_across<TILE, A_K, B_K>(args, unit, job, mm_shared, sum);
    else
        mm_accumulate<TILE, A_K, B_K>(args, unit, job, mm_shared, sum);
    S *planes = (S *)mm_shared;
    if constexpr (TILE::MMA)
        mm_mma_spill<TILE>(sum, planes);
    else
        mm_fma_spill<TILE, A_K, B_K>(sum, planes);
    mm_finish<T, TILE>(site, args, unit, job, planes);
    ks_leave(site);
}

template <typename TILE, bool A_K, bool B_K>
static mm_kernel mm_tile_entry(const char *name, mm_pace pace)
{
    return {name,        (const void *)mm_tile_kernel<TILE, A_K, B_K>,
            TILE::M,     TILE::N,
            TILE::DEPTH, TILE::THREADS,
            TILE::CTAS,  mm_ring<TILE, A_K, B_K>::SHARED,
            pace,        false,
            true};
}

/* The four layouts of a tile. A tile of one row has only those in which A's row is contiguous. */
template <typename TILE>
static mm_kernel mm_tile(const char *name, mm_pace pace, bool a_k, bool b_k)
{
    if constexpr (TILE::M == 1)
        return b_k ? mm_tile_entry<TILE, true, true>(name, pace) : mm_tile_entry<TILE, true, false>(name, pace);
    else
        return a_k   ? b_k ? mm_tile_entry<TILE, true, true>(name, pace) : mm_tile_entry<TILE, true, false>(name, pace)
                 : b_k ? mm_tile_entry<TILE, false, true>(name, pace)
                     : mm_tile_entry<TILE, false, false>(name, pace);
}

/* The tiles of the tensor cores. The low ones stream a wide operand past few rows; 32 x 32 is for latency, one warp for
 * batches of small matrices. */
template <typename T>
static mm_kernel mm_mma_table(int index, bool a_k, bool b_k)
{
    constexpr bool WIDE = sizeof(T) == 4;
    switch (index) {
    case 0:
        return mm_tile<mm_mma_tile<T, 16, 128, 1, 2, 4, 5, 2>>("16x128", {WIDE ? 1.9f : 1.6f, WIDE ? 0.18f : 0.21f},
                                                               a_k, b_k);
    case 1:
        return mm_tile<mm_mma_tile<T, 32, 32, 1, 1, 4, 4, 3>>("32x32", {WIDE ? 0.5f : 1.6f, WIDE ? 0.23f : 0.19f}, a_k,
                                                              b_k);
    case 2:
        return mm_tile<mm_mma_tile<T, 64, 64, 2, 2, 1, 5, 2>>("64x64", {WIDE ? 2.7f : 2.5f, WIDE ? 0.27f : 0.19f}, a_k,
                                                              b_k);
    case 3:
        return mm_tile<mm_mma_tile<T, 64, 128, 2, 4, 1, 4, 2>>("64x128", {WIDE ? 4.2f : 5.9f, WIDE ? 0.36f : 0.19f},
                                                               a_k, b_k);
    case 4:
        return mm_tile<mm_mma_tile<T, 128, 128, 2, 4, 1, 3, 2>>("128x128", {WIDE ? 4.5f : 6.5f, WIDE ? 0.63f : 0.28f},
                                                                a_k, b_k);
    case 5:
        return mm_tile<mm_mma_tile<T, 32, 32, 1, 1, 1, 2, 12>>("32x32 warp", {WIDE ? 1.9f : 2.8f, WIDE ? 0.20f : 0.25f},
                                                               a_k, b_k);
    default:
        return {};
    }
}

/* 16-bit types have wgmma's tiles and the skinny ones too. Narrow ones give the whole chip work where there is little;
 * those of two CTAs halve what is read of one operand; 192 x 192 is for outputs that are just one wave of it. 2x: a tile
 * of two CTAs; x2: two CTAs to an SM; odd: A's rows start anywhere. */
template <typename T>
static mm_kernel mm_half_table(int index, bool a_k, bool b_k)
{
    switch (index) {
    case 6:
        return mm_wgmma<mm_wgmma_tile<T, 2, 256, 4, 1>>("wgmma 128x256", {1.05f, 0.446f}, a_k, b_k);
    case 7:
        return mm_wgmma<mm_wgmma_tile<T, 2, 256, 4, 1, 2, 1>>("wgmma 2x 128x256", {1.3f, 0.56f}, a_k, b_k);
    case 8:
        return mm_wgmma<mm_wgmma_tile<T, 1, 256, 4, 1, 1, 2>>("wgmma 2x 64x256", {0.65f, 0.39f}, a_k, b_k);
    case 9:
        return mm_wgmma<mm_wgmma_tile<T, 2, 128, 5, 1>>("wgmma 128x128", {2.95f, 0.016f}, a_k, b_k);
    case 10:
        return mm_wgmma<mm_wgmma_tile<T, 2, 64, 8, 1>>("wgmma 128x64", {1.6f, 0.02f}, a_k, b_k);
    case 11:
        return mm_wgmma<mm_wgmma_tile<T, 1, 128, 8, 1>>("wgmma 64x128", {1.4f, 0.018f}, a_k, b_k);
    case 12:
        return mm_wgmma<mm_wgmma_tile<T, 1, 64, 10, 1>>("wgmma 64x64", {0.9f, 0.02f}, a_k, b_k);
    case 13:
        return mm_wgmma<mm_wgmma_tile<T, 1, 64, 5, 2>>("wgmma 64x64 x2", {0.85f, 0.062f}, a_k, b_k);
    case 14:
        return mm_wgmma<mm_wgmma_tile<T, 1, 32, 14, 1>>("wgmma 64x32", {0.4f, 0.113f}, a_k, b_k);
    case 15:
        return mm_wgmma<mm_wgmma_tile<T, 1, 16, 14, 1>>("wgmma 64x16", {0.2f, 0.125f}, a_k, b_k);
    case 16:
        return mm_wgmma<mm_wgmma_tile<T, 1, 16, 6, 3>>("wgmma 64x16 x3", {0.4f, 0.143f}, a_k, b_k);
    case 17:
        return mm_skinny<mm_skinny_mma<T, 8, 16, 1, 1, false>, mm_skinny_mma<T, 8, 16, 1, 1, true>>(
            "skinny 8x64", {4.1f, 0.25f}, a_k, b_k);
    case 18:
        return mm_skinny<mm_skinny_fma<T, 1, 8, 16, 1, 2, false>, mm_skinny_fma<T, 1, 4, 16, 1, 2, true>>(
            "skinny 1x64", {3.6f, 0.60f}, a_k, b_k);
    case 19:
        return mm_skinny<mm_skinny_fma<T, 1, 4, 8, 1, 2, false>, mm_skinny_fma<T, 1, 4, 8, 1, 2, true>>(
            "skinny 1x32", {2.8f, 0.60f}, a_k, b_k);
    case 20:
        return mm_skinny_entry<mm_skinny_fma<T, 1, 32, 8, 8, 4, false, 1>, true>("skinny 1x32 odd", {3.6f, 0.09f});
    case 21:
        return mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 64, 12, 1>>("wgmma 64x64 odd", {1.0f, 0.355f}, a_k, b_k);
    case 22:
        return mm_wgmma_odd<mm_wgmma_odd_tile<T, 1, 32, 6, 2>>("wgmma 64x32 odd x2", {0.6f, 0.26f}, a_k, b_k);
    case 23:
        return mm_strip<mm_strip_tile<T, true, 8, 2, 8, 2>>("strip 8x32", {2.8f, 0.03f}, a_k, b_k);
    case 24:
        return mm_strip<mm_strip_tile<T, true, 8, 2, 4, 4>>("strip 8x32 low", {2.7f, 0.066f}, a_k, b_k);
    case 25:
        return mm_strip<mm_strip_tile<T, true, 16, 2, 8, 2>>("strip 16x32", {3.1f, 0.04f}, a_k, b_k);
    case 26:
        return mm_strip<mm_strip_tile<T, true, 16, 3, 8, 1>>("strip 16x32 deep", {3.0f, 0.035f}, a_k, b_k);
    case 27:
        return mm_skinny_odd<mm_skinny_odd_tile<T, 32, 8, 8, 2>>("skinny 1x248 odd", {3.0f, 0.06f});
    case 28:
        return mm_wgmma<mm_wgmma_tile<T, 3, 192, 4, 1>>("wgmma 192x192", {1.0f, 0.7f}, a_k, b_k);
    case 29:
        return mm_wgmma<mm_wgmma_tile<T, 1, 128, 2, 3, 1, 1, true>>("wgmma 64x128 x3", {1.4f, 0.3f}, a_k, b_k);
    default:
        return mm_mma_table<T>(index, a_k, b_k);
    }
}

#endif
