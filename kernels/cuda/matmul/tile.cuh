/* The kernel of a tile: a pipeline of stages that asynchronous copies fill ahead of the products. One CTA is one unit; how it
 * multiplies (mma.cuh, simt.cuh) and its tile are the template's. */
#ifndef KS_MATMUL_TILE_CUH
#define KS_MATMUL_TILE_CUH

#include "cuda/matmul/epilogue.cuh"
#include "cuda/matmul/simt.cuh"
#include "cuda/matmul/mma.cuh"
#include "cuda/matmul/gemv.cuh"
#include "cuda/matmul/strip.cuh"
#include "cuda/matmul/table.cuh"
#include "cuda/matmul/wgmma/odd.cuh"

template <typename TILE, bool A_K, bool B_K>
struct mm_pipeline {
    typedef typename TILE::element T;
    typedef std::conditional_t<TILE::MMA, mm_mma_operand<TILE, TILE::M, A_K>, mm_fma_operand<TILE, TILE::M, A_K>> OA;
    typedef std::conditional_t<TILE::MMA, mm_mma_operand<TILE, TILE::N, B_K>, mm_fma_operand<TILE, TILE::N, B_K>> OB;
    typedef typename OA::stage A;
    typedef typename OB::stage B;
    static constexpr int STAGE = A::BYTES + B::BYTES, PIPELINE = TILE::STAGES * STAGE;
    static constexpr int SUMS = TILE::PLANES * TILE::M * TILE::SUM_PITCH * (int)sizeof(typename mm_sum<T>::type);
    static constexpr int SHARED = PIPELINE > SUMS ? PIPELINE : SUMS;
};

template <typename TILE, bool A_K, bool B_K>
__device__ __forceinline__ void mm_accumulate(const mm_args &args, const mm_unit &unit, const ks_job_sides &job,
                                              unsigned char *shared, typename TILE::sums &sum)
{
    typedef mm_pipeline<TILE, A_K, B_K> PIPELINE;
    typedef typename TILE::element T;
    const T *a = (const T *)(job.in + args.a.at) + unit.a, *b = (const T *)(job.in + args.b.at) + unit.b;
    const mm_int row0 = (mm_int)unit.row * TILE::M, column0 = (mm_int)unit.column * TILE::N;
    const int steps = (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH);
    mm_feed<typename PIPELINE::A, TILE::THREADS, A_K, T> af(a, args.a, row0, args.m, unit.k_begin, unit.k_end);
    mm_feed<typename PIPELINE::B, TILE::THREADS, B_K, T> bf(b, args.b, column0, args.n, unit.k_begin, unit.k_end);
    const bool shifted = args.a.shifted | args.b.shifted;
    unsigned a_first = (unsigned)(uintptr_t)af.corner,
             b_first = (unsigned)(uintptr_t)bf.corner; /* of the step's stage */
    auto load = [&](int step, int stage) {
        if (step < steps) {
            const unsigned to = mm_shared_address(shared) + stage * PIPELINE::STAGE;
            af.load(to);
            bf.load(to + PIPELINE::A::BYTES);
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
        unsigned char *as = shared + stage * PIPELINE::STAGE, *bs = as + PIPELINE::A::BYTES;
        if (shifted) {
            const int left = (int)min((mm_int)TILE::DEPTH, unit.k_end - unit.k_begin - (mm_int)step * TILE::DEPTH);
            const unsigned size = sizeof(T), depth = TILE::DEPTH;
            const unsigned a_pitch = (unsigned)af.pitch, b_pitch = (unsigned)bf.pitch;
            if (args.a.shifted)
                mm_realign<T, typename PIPELINE::A, TILE::THREADS>(as, a_first, a_pitch,
                                                                   A_K ? left * (int)size : INT_MAX);
            if (args.b.shifted)
                mm_realign<T, typename PIPELINE::B, TILE::THREADS>(bs, b_first, b_pitch,
                                                                   B_K ? left * (int)size : INT_MAX);
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
__device__ __forceinline__ void mm_accumulate_across(const mm_args &args, const mm_unit &unit, const ks_job_sides &job,
                                                     unsigned char *shared, typename TILE::sums &sum)
{
    typedef mm_pipeline<TILE, A_K, B_K> PIPELINE;
    typedef typename TILE::element T;
    const T *a = (const T *)(job.in + args.a.at) + unit.a, *b = (const T *)(job.in + args.b.at) + unit.b;
    const mm_int row0 = (mm_int)unit.row * TILE::M, column0 = (mm_int)unit.column * TILE::N;
    int left = (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH), stage = 0; /* steps */
    constexpr int LANES = TILE::TRANSPOSE_LANES, PARTS = TILE::PARTS;
    mm_feed_across<typename PIPELINE::A, TILE::THREADS, A_K, LANES, T> af(a, args.a, row0, args.m, unit.k_begin,
                                                                          unit.k_end);
    mm_feed_across<typename PIPELINE::B, TILE::THREADS, B_K, LANES, T> bf(b, args.b, column0, args.n, unit.k_begin,
                                                                          unit.k_end);
    const unsigned pipeline = mm_shared_address(shared);
    auto load = [&](unsigned to) {
        af.load(to);
        bf.load(to + PIPELINE::A::BYTES);
        mm_copy_commit();
    };

#pragma unroll 1
    for (int stage = 0; stage < TILE::STAGES - 1; stage++) load(pipeline + stage * PIPELINE::STAGE);
    unsigned a_start, b_start;
    mm_fma_start<TILE>(&a_start, &b_start);
    /* The next stage is there; the one that is loaded meanwhile, all warps have left. */
    auto await = [&] {
        mm_copy_wait<TILE::STAGES - 2>();
        __syncthreads();
        return pipeline + (stage == 0 ? TILE::STAGES - 1 : stage - 1) * PIPELINE::STAGE;
    };
    auto multiply = [&](auto between) {
        const unsigned char *as = shared + stage * PIPELINE::STAGE;
        mm_fma_multiply_across<TILE, A_K, B_K>(sum, as + a_start, as + PIPELINE::A::BYTES + b_start, between);
        stage = stage + 1 == TILE::STAGES ? 0 : stage + 1;
    };
    if constexpr (PARTS > 0) {
        auto among = [&](auto shifted) {
            constexpr mm_pass ACROSS = decltype(shifted)::value ? MM_PASS_SINGLES : MM_PASS_VECTORS;
#pragma unroll 1
            for (; af.deep >= TILE::DEPTH; left--) {
                bf.deep = af.deep; /* they are the same: a register less */
                const unsigned to = await();
                multiply([&](int l) {
                    constexpr int EVERY = TILE::SHARE / PARTS;
                    if (l % EVERY) return;
                    af.template part<A_K ? MM_PASS_TRANSPOSE : ACROSS, true, PARTS>(to, l / EVERY);
                    bf.template part<B_K ? MM_PASS_TRANSPOSE : ACROSS, true, PARTS>(to + PIPELINE::A::BYTES, l / EVERY);
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
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    mm_begin(site, args);
    ks_await(site);
    const mm_unit unit = mm_unit_at(args, blockIdx.x);
    typename TILE::sums sum = {};
    if constexpr (TILE::TRANSPOSES)
        mm_accumulate_across<TILE, A_K, B_K>(args, unit, job, mm_shared, sum);
    else
        mm_accumulate<TILE, A_K, B_K>(args, unit, job, mm_shared, sum);
    S *planes = (S *)mm_shared;
    if constexpr (TILE::MMA)
        mm_mma_spill<TILE>(sum, planes);
    else
        mm_fma_spill<TILE, A_K, B_K>(sum, planes);
    mm_reduce_and_store<T, TILE>(site, args, unit, job, planes);
    ks_leave(site);
}

template <typename TILE, bool A_K, bool B_K>
static constexpr mm_kernel mm_tile_entry(const char *name, mm_cost cost)
{
    return {.name = name,
            .entry = mm_tile_kernel<TILE, A_K, B_K>,
            .m = TILE::M,
            .n = TILE::N,
            .depth = TILE::DEPTH,
            .threads = TILE::THREADS,
            .ctas = TILE::CTAS,
            .shared_bytes = mm_pipeline<TILE, A_K, B_K>::SHARED,
            .cost = cost,
            .split_k = true,
            .order = mm_order_of(TILE::MMA ? MM_BY_MMA : MM_BY_FMA, TILE::PLANES, TILE::DEPTH)};
}

/* A tile of one row has only the layouts in which A's row is contiguous. */
template <typename TILE>
static constexpr mm_row mm_tile(const char *name, mm_cost cost)
{
#define ENTRY(A_K, B_K) mm_tile_entry<TILE, TILE::M == 1 || A_K, B_K>(name, cost)
    return MM_LAYOUTS(ENTRY);
#undef ENTRY
}

#endif
