/* FP32 and FP64 by fused multiply-adds: exact products, one rounding per addition. Each thread owns TM x TN outputs;
 * both operands lie in shared memory with K outermost, filled element by element with asynchronous copies (which
 * transpose on the way and fill edges with zeros), so alignment does not matter. */
#ifndef KS_MATMUL_SIMT_CUH
#define KS_MATMUL_SIMT_CUH

#include "matmul_common.cuh"

template <typename T, int WIDE_M, int WIDE_N, int DEEP, int PER_M, int PER_N>
struct mm_simt_tile {
    typedef T element;
    enum { M = WIDE_M, N = WIDE_N, DEPTH = DEEP, TM = PER_M, TN = PER_N, STAGES = 3 };
    enum { COLUMNS = N / TN, THREADS = M / TM * COLUMNS };
    enum { W = 16 / sizeof(T) };     /* elements of one shared-memory access */
    enum { AM = M + W, BN = N + W }; /* pitches */
    enum { SHARED = STAGES * DEPTH * (AM + BN) * sizeof(T) };
};
typedef mm_simt_tile<float, 64, 64, 16, 4, 4> mm_float_small;
typedef mm_simt_tile<float, 128, 128, 16, 8, 8> mm_float_large;
typedef mm_simt_tile<double, 64, 64, 8, 4, 4> mm_double_tile;

/* Shared [DEPTH][ACROSS] from X(w, l), w across, l along K. K_CONTIGUOUS says which one neighbouring threads walk. */
template <typename TILE, int ACROSS, int PITCH, bool K_CONTIGUOUS>
__device__ __forceinline__ void mm_simt_load(typename TILE::element *to, const typename TILE::element *from,
                                             mm_int pitch, mm_int across, mm_int across_end, mm_int k, mm_int k_end)
{
    typedef typename TILE::element T;
    from += K_CONTIGUOUS ? across * pitch + k : k * pitch + across;
    const int wide = (int)min((mm_int)ACROSS, across_end - across), deep = (int)min((mm_int)TILE::DEPTH, k_end - k);
    constexpr int RUN = K_CONTIGUOUS ? (int)TILE::DEPTH : ACROSS, STEP = TILE::THREADS / RUN;
    static_assert(TILE::THREADS % RUN == 0 && ACROSS * TILE::DEPTH % TILE::THREADS == 0,
                  "every thread copies equally many");
    const int along = threadIdx.x % RUN, row = threadIdx.x / RUN;
    const bool near = along < (K_CONTIGUOUS ? deep : wide);
    const int rows = near ? (K_CONTIGUOUS ? wide : deep) : 0;
    /* One address that walks, not one per copy: registers are for the sums. */
    const T *source = from + row * pitch + along;
    T *target = to + (K_CONTIGUOUS ? along * PITCH + row : row * PITCH + along);
#pragma unroll
    for (int i = 0; i < ACROSS * TILE::DEPTH / TILE::THREADS; i++) {
        const bool inside = row + i * STEP < rows;
        mm_copy_async<sizeof(T)>(target + i * STEP * (K_CONTIGUOUS ? 1 : PITCH), inside ? source : from,
                                 inside ? (int)sizeof(T) : 0);
        source += STEP * pitch;
    }
}

/* COUNT values of a thread from one K: groups of W, the groups spread evenly over the tile so that threads read
 * neighbours. */
template <typename T, int COUNT, int W, int SPREAD>
__device__ __forceinline__ void mm_simt_line(T (&to)[COUNT], const T *from)
{
#pragma unroll
    for (int g = 0; g < COUNT / W; g++) {
        const float4 bits = *(const float4 *)(from + g * SPREAD);
        const T *values = (const T *)&bits;
#pragma unroll
        for (int e = 0; e < W; e++) to[g * W + e] = values[e];
    }
}

template <typename TILE>
__device__ __forceinline__ void mm_simt_store(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                              unsigned char *out,
                                              const typename TILE::element (&sum)[TILE::TM][TILE::TN], int tx, int ty)
{
    typedef typename TILE::element T;
    constexpr int W = TILE::W;
    const mm_int row0 = unit.row * TILE::M, column0 = unit.column * TILE::N;
    const bool whole = args.n % W == 0;
    const bool split = args.slices > 1;
    T *c = split ? mm_plane<T>(site, args, unit) : (T *)(out + args.c_at) + unit.batch * args.m * args.n;
    const double alpha = split ? 1.0 : args.alpha;
#pragma unroll
    for (int i = 0; i < TILE::TM; i++) {
        const mm_int row = row0 + i / W * (TILE::M / (TILE::TM / W)) + ty * W + i % W;
        if (row >= args.m) continue;
#pragma unroll
        for (int g = 0; g < TILE::TN / W; g++) {
            const mm_int column = column0 + g * (TILE::N / (TILE::TN / W)) + tx * W;
            struct alignas(16) {
                T value[W];
            } line;
#pragma unroll
            for (int e = 0; e < W; e++) line.value[e] = mm_finish<T>(sum[i][g * W + e], alpha);
            T *to = c + row * args.n + column;
            if (whole) {
                if (column < args.n) *(decltype(line) *)to = line;
                continue;
            }
#pragma unroll
            for (int e = 0; e < W; e++)
                if (column + e < args.n) to[e] = line.value[e];
        }
    }
}

template <typename TILE, bool TA, bool TB>
__device__ __forceinline__ void mm_simt_unit(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                             const ks_entry &job, unsigned char *shared)
{
    typedef typename TILE::element T;
    constexpr int A_STAGE = TILE::DEPTH * TILE::AM, B_STAGE = TILE::DEPTH * TILE::BN, W = TILE::W;
    T *a_ring = (T *)shared, *b_ring = a_ring + TILE::STAGES * A_STAGE;
    const T *a = (const T *)(job.in + args.a_at) + unit.a, *b = (const T *)(job.in + args.b_at) + unit.b;
    const mm_int row0 = unit.row * TILE::M, column0 = unit.column * TILE::N;
    const mm_int steps = (unit.k_end - unit.k_begin + TILE::DEPTH - 1) / TILE::DEPTH;
    const int tx = threadIdx.x % TILE::COLUMNS, ty = threadIdx.x / TILE::COLUMNS;

    auto load = [&](mm_int step, int stage) {
        if (step < steps) {
            const mm_int k = unit.k_begin + step * TILE::DEPTH;
            mm_simt_load<TILE, TILE::M, TILE::AM, !TA>(a_ring + stage * A_STAGE, a, TA ? args.a_col : args.a_row, row0,
                                                       args.m, k, unit.k_end);
            mm_simt_load<TILE, TILE::N, TILE::BN, TB>(b_ring + stage * B_STAGE, b, TB ? args.b_col : args.b_row,
                                                      column0, args.n, k, unit.k_end);
        }
        mm_copy_commit();
    };

    T sum[TILE::TM][TILE::TN] = {};
#pragma unroll 1
    for (int step = 0; step < TILE::STAGES - 1; step++) load(step, step);
    int stage = 0;
    for (mm_int step = 0; step < steps; step++) {
        mm_copy_wait<TILE::STAGES - 2>();
        __syncthreads();
        load(step + TILE::STAGES - 1, stage == 0 ? TILE::STAGES - 1 : stage - 1); /* that stage, all warps have left */
        const T *as = a_ring + stage * A_STAGE + ty * W, *bs = b_ring + stage * B_STAGE + tx * W;
#pragma unroll 2
        for (int l = 0; l < TILE::DEPTH; l++) {
            T x[TILE::TM], y[TILE::TN];
            mm_simt_line<T, TILE::TM, W, TILE::M / (TILE::TM / W)>(x, as + l * TILE::AM);
            mm_simt_line<T, TILE::TN, W, TILE::N / (TILE::TN / W)>(y, bs + l * TILE::BN);
#pragma unroll
            for (int i = 0; i < TILE::TM; i++)
#pragma unroll
                for (int j = 0; j < TILE::TN; j++) sum[i][j] = fma(x[i], y[j], sum[i][j]);
        }
        stage = stage + 1 == TILE::STAGES ? 0 : stage + 1;
    }
    mm_copy_wait<0>();
    __syncthreads(); /* before the next unit's stages */
    mm_simt_store<TILE>(site, args, unit, job.out, sum, tx, ty);
}

template <typename TILE, bool TA, bool TB>
__global__ void __launch_bounds__(TILE::THREADS, 2) mm_simt_kernel(ks_site site, const __grid_constant__ mm_args args)
{
    extern __shared__ __align__(16) unsigned char mm_shared[];
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    for (mm_int index = blockIdx.x; index < args.units; index += gridDim.x)
        mm_simt_unit<TILE, TA, TB>(site, args, mm_unit_at(args, index), job, mm_shared);
    if (args.slices == 1) ks_leave(site);
}

#endif
