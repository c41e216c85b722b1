/* FP16, BF16 and TF32 by wgmma where A is stored across K in rows that start anywhere: its stages are filled by asynchronous
 * copies, B's by TMA copies.
 *
 * A row of a stage is copied with the bytes in front of it, in whole vectors, and stays as far behind 16 bytes as it is in
 * memory. That is the same for every fourth row of TF32 and every eighth of the others, and a thread's part of A, which
 * goes through registers, is of one such set of rows, or of two: it reads at addresses of its own, and nothing is
 * shifted. */
#ifndef KS_MATMUL_WGMMA_ODD_CUH
#define KS_MATMUL_WGMMA_ODD_CUH

#include "cuda/matmul/wgmma/wgmma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A stage of 64 columns at `a` for the four instructions that multiply them. */
template <int PITCH>
__device__ __forceinline__ void mm_wgmma_feed_odd(float, uint32_t (&to)[4][4], unsigned a, const unsigned (&shift)[2])
{
    const unsigned first = a + threadIdx.x % 4 * PITCH + shift[0] + mm_wgmma_row<true>() * 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            to[i][e] = mm_round_tf32(__uint_as_float(mm_shared_read(first + (i * 8 + e / 2 * 4) * PITCH + e % 2 * 4)));
}

/* Of 16 bits: two neighbours along K. */
template <int PITCH, typename T>
__device__ __forceinline__ void mm_wgmma_feed_odd(T, uint32_t (&to)[4][4], unsigned a, const unsigned (&shift)[2])
{
    const unsigned first = a + threadIdx.x % 4 * 2 * PITCH + mm_wgmma_row<false>() * 2;
    const unsigned even = first + shift[0], odd = first + PITCH + shift[1];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const unsigned at = (i * 16 + e / 2 * 8) * PITCH + e % 2 * 16;
            const uint16_t low = mm_shared_read_16(even + at), high = mm_shared_read_16(odd + at);
            to[i][e] = (uint32_t)high << 16 | low;
        }
}
#endif

/* As mm_wgmma_tile; a row of A has bytes to spare, which also put it into other banks. */
template <typename T, int WARPGROUPS_, int N_, int STAGES_, int CTAS_>
struct mm_wgmma_odd_tile : mm_wgmma_tile<T, WARPGROUPS_, N_, STAGES_, CTAS_> {
    typedef mm_wgmma_tile<T, WARPGROUPS_, N_, STAGES_, CTAS_> base;
    template <bool A_K>
    static constexpr bool feeds = true;
    static constexpr bool ODD = true;
    static constexpr int SIZE = (int)sizeof(T), A_PRODUCERS = CTAS_ > 1 ? 64 : 128,
                         THREADS = base::CONSUMERS + A_PRODUCERS + 32, PRODUCER = base::CONSUMERS + A_PRODUCERS;
    static constexpr int A_PITCH = base::M * SIZE + 8 * SIZE, A_BYTES = base::DEPTH * A_PITCH, A_GROUP = 64 * SIZE;
    static constexpr int COPIED = base::B_BYTES, FILLERS = 1 + A_PRODUCERS, READERS = base::CONSUMERS;
    static constexpr int STAGE = A_BYTES + base::B_BYTES, SHARED = 1024 + STAGES_ * STAGE + base::HELD_BYTES;
    static_assert(base::SPLIT_K && A_BYTES % 1024 == 0, "B's stages are swizzled");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    static __device__ __forceinline__ void feed(uint32_t (&to)[4][4], unsigned a, const unsigned (&shift)[2])
    {
        mm_wgmma_feed_odd<A_PITCH>(T(), to, a, shift);
    }
#endif
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Bytes that are copied of a row: whole vectors. */
template <typename TILE>
__device__ __forceinline__ int mm_wgmma_odd_bytes(const mm_args &args, const unsigned char *from, mm_int across)
{
    const int shift = (int)((uintptr_t)from & 15);
    return (shift + (int)min((mm_int)TILE::M, args.m - across) * TILE::SIZE + 15) & ~15;
}

/* The A producers: they fill A's part of a unit's stages; of the first unit, once the barriers are made. */
template <typename TILE>
__device__ __forceinline__ void mm_wgmma_odd_copy(const mm_args &args, const mm_unit &unit, const unsigned char *in,
                                                  mm_wgmma_pipeline &pipeline, bool first)
{
    constexpr int CHUNKS = TILE::M * TILE::SIZE / 16 + 1, ALL = CHUNKS * TILE::DEPTH,
                  EACH = (ALL + TILE::A_PRODUCERS - 1) / TILE::A_PRODUCERS;
    const int producer = threadIdx.x - TILE::CONSUMERS;
    const mm_int pitch = args.a.pitch * TILE::SIZE, across = (mm_int)unit.row * TILE::M;
    const unsigned char *corner = in + args.a.at + (unit.a + across) * TILE::SIZE + unit.k_begin * pitch;
    const unsigned char *from[EACH];
    int line[EACH];      /* of the stage; beyond it where there is nothing to read, only zeros to write */
    unsigned mine[EACH]; /* its place in a stage; 0: none */
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int index = producer + i * TILE::A_PRODUCERS, at = index % CHUNKS * 16;
        line[i] = index / CHUNKS;
        from[i] = corner + line[i] * pitch;
        const int bytes = mm_wgmma_odd_bytes<TILE>(args, from[i], across);
        from[i] = (const unsigned char *)((uintptr_t)from[i] & ~(uintptr_t)15) + at;
        mine[i] = pipeline.at + line[i] * TILE::A_PITCH + at;
        if (at >= bytes) line[i] = TILE::DEPTH;
        if (index >= ALL) mine[i] = 0;
    }
    if (first) mm_barrier_sync<4, TILE::A_PRODUCERS + 32>();
    for (mm_int k = unit.k_begin; k < unit.k_end; k += TILE::DEPTH) {
        const int left = (int)min((mm_int)TILE::DEPTH, unit.k_end - k);
        mm_mbarrier_wait(pipeline.empty + pipeline.stage * 8, pipeline.parity ^ 1);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (i < EACH - 1 || mine[i]) mm_copy_async(mine[i] + pipeline.stage * TILE::STAGE, from[i], line[i] < left);
            from[i] += TILE::DEPTH * pitch;
        }
        mm_mbarrier_arrive_copied(pipeline.full + pipeline.stage * 8);
        mm_wgmma_step<TILE>(pipeline);
    }
}
#endif

/* maps.a is empty. */
template <typename TILE>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_wgmma_odd_kernel(ks_site site, const __grid_constant__ mm_args args, const __grid_constant__ mm_maps maps)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef typename TILE::element T;
    extern __shared__ unsigned char mm_wgmma_shared[];
    __shared__ uint64_t barriers[2 * TILE::STAGES + 1];
    const unsigned at = mm_shared_address(mm_wgmma_shared), start = (at + 1023) & ~1023u;
    mm_wgmma_pipeline pipeline = {};
    pipeline.at = start, pipeline.full = mm_shared_address(barriers), pipeline.empty = pipeline.full + TILE::STAGES * 8;
    const unsigned reduced = pipeline.empty + TILE::STAGES * 8;
    if (threadIdx.x >= TILE::PRODUCER) {
        mm_wgmma_fills<TILE, true, true>(site, args, maps, pipeline, reduced);
        return;
    }
    if (args.cluster > 1) mm_cluster_arrive_relaxed();
    if (!args.packed) ks_start(site);
    ks_await(site);
    const ks_job_sides job = site.only;
    const unsigned units = mm_wgmma_units(args);
    if (threadIdx.x >= TILE::CONSUMERS) {
        for (unsigned index = blockIdx.x; index < units; index += gridDim.x)
            mm_wgmma_odd_copy<TILE>(args, mm_unit_at(args, index), job.in, pipeline, index == blockIdx.x);
        __syncwarp();
        if (args.cluster > 1) mm_cluster_wait();
        return;
    }
    mm_barriers_wait<TILE>();
    mm_four<float> *held = (mm_four<float> *)(mm_wgmma_shared + (start - at) + TILE::STAGES * TILE::STAGE);
    const bool alone = args.cluster * args.splits == 1;
    float sum[TILE::SUMS];
    for (unsigned index = blockIdx.x; index < units; index += gridDim.x) {
        const mm_unit unit = mm_unit_at(args, index);
        const int steps = (int)((unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH);
        const unsigned first = (unsigned)(uintptr_t)(job.in + args.a.at) + (unsigned)unit.a * TILE::SIZE;
        const unsigned pitch = (unsigned)args.a.pitch * TILE::SIZE, row = threadIdx.x % 4 * (4 / TILE::SIZE);
        pipeline.shift[0] = (first + row * pitch) & 15;
        pipeline.shift[1] = (pipeline.shift[0] + pitch) & 15;
        mm_wgmma_out<TILE, false> out;
        out.begin(args, unit, job);
        mm_ask_biases<TILE>(args, unit, job);
        mm_wgmma_unit<TILE, false, true>(sum, pipeline, threadIdx.x / 128, steps);
        (mm_out<T> &)out = mm_out_at<T, TILE>(args, unit, job);
        if (!alone) {
            mm_wgmma_reduce<TILE, false>(site, args, unit, out, sum, held, reduced);
            break;
        }
        if (index + gridDim.x >= units) mm_consumers_end<TILE>();
        mm_wgmma_store<TILE, false>(args, out, sum, held);
    }
#endif
}

/* A across K, B along it. */
template <typename TILE>
static constexpr mm_row mm_wgmma_odd(const char *name, mm_cost cost)
{
    mm_kernel kernel = {.name = name,
                        .tma_entry = mm_wgmma_odd_kernel<TILE>,
                        .m = TILE::M,
                        .n = TILE::N,
                        .depth = TILE::DEPTH,
                        .threads = TILE::THREADS,
                        .ctas = TILE::CTAS,
                        .shared_bytes = TILE::SHARED,
                        .cost = cost,
                        .tma = true,
                        .split_k = true,
                        .odd = true,
                        .by_m = 1,
                        .by_n = 1,
                        .order = mm_order_of(MM_BY_WGMMA_ODD, 1, TILE::DEPTH)};
    kernel.cost.shifted_times = 1; /* the stage's time is already that of such rows */
    const mm_kernel none = mm_without_entry(kernel);
    return {{{none, kernel}, {none, none}}};
}

#endif
