/* The kernels of few rows: B goes from memory into registers, past shared memory, and is multiplied there.
 *
 * A CTA owns a strip of columns and a slice of K, and its warps share the slice: no warp waits for another before its sums
 * are complete. A thread has BLOCKS blocks of B under way, a block being some vectors of 16 bytes; it asks for a block's
 * successor as soon as it has used it. Where multiply-adds do it, A's few rows of the slice are copied to shared memory
 * while the first blocks come; fragments for the tensor cores come with B's blocks. At the end the warps reduce in shared
 * memory, and each CTA of a cluster sends its sums to the one that stores them.
 *
 * Where B's rows lie along K, a lane's neighbours have the next values of K, else the next columns. Tensor cores see K in
 * another order within a block, the same for A and B, so that a lane's values of a fragment are neighbours in memory. The
 * rows of B start on 16 bytes and are whole vectors; for the tensor cores those of A too, and they lie along K.
 *
 * How it begins and ends is its own: by mm_unit_at() and mm_reduce_and_store() FP32 1 x 4096 x 4096 took 19.5 us on an H200,
 * of which 1.9 were the end, and so 18.1. */
#ifndef KS_MATMUL_GEMV_CUH
#define KS_MATMUL_GEMV_CUH

#include "cuda/matmul/gemv_store.cuh"
#include "cuda/matmul/mma.cuh"
#include "cuda/matmul/table.cuh"

/* W elements. */
template <typename T, int W>
struct alignas(W * sizeof(T)) mm_vector {
    T value[W];
};

/* By fused multiply-adds: a block is four vectors, of four rows of K, or of four columns where B's rows lie along K. LANES
 * of a warp are side by side over the columns, the others over K. Vectors of one element do for rows of any start. */
template <typename T, int M_, int LANES_, int WARPS_, int BLOCKS_, int CTAS_, bool B_K_, int W_ = 16 / (int)sizeof(T)>
struct mm_skinny_fma {
    typedef T element;
    typedef mm_vector<T, W_> vector;
    static constexpr bool MMA = false, B_K = B_K_;
    static constexpr int M = M_, LANES = LANES_, BLOCKS = BLOCKS_, CTAS = CTAS_, PLANES = WARPS_, THREADS = 32 * PLANES;
    static constexpr int HALVES = 1, W = W_, VECTORS = 4, ALONG = 32 / LANES;
    static constexpr int COLUMNS = B_K ? VECTORS : W, VALUES = B_K ? W : VECTORS; /* of a block; of K */
    static constexpr int N = LANES * COLUMNS, SHARE = ALONG * VALUES, DEPTH = PLANES * SHARE;
    static constexpr int SUM_PITCH = N + 4, PLANE = M * SUM_PITCH, OUTPUTS = M * N, SUMS = PLANES * PLANE;
    typedef float sums[M][COLUMNS];
};

/* By mma.sync: lane 4 g + t has the g-th columns of a block and the t-th values of K. */
template <typename T, int M_, int WARPS_, int BLOCKS_, int CTAS_, bool B_K_>
struct mm_skinny_mma {
    typedef T element;
    typedef uint4 vector;
    static constexpr bool MMA = true, B_K = B_K_;
    static constexpr int M = M_, LANES = 8, BLOCKS = BLOCKS_, CTAS = CTAS_, PLANES = WARPS_, THREADS = 32 * PLANES;
    static constexpr int HALVES = M / 8, W = 16 / (int)sizeof(T), VECTORS = W, ALONG = 4, COLUMNS = W, VALUES = W;
    static constexpr int N = LANES * COLUMNS, SHARE = ALONG * VALUES, DEPTH = PLANES * SHARE;
    static constexpr int SUM_PITCH = N + 4, PLANE = M * SUM_PITCH, OUTPUTS = M * N, SUMS = PLANES * PLANE;
    typedef float sums[COLUMNS][4];
};

/* As mm_unit_at(), for one row of tiles and K shared within a cluster only. */
__device__ __forceinline__ mm_unit mm_skinny_unit(const mm_args &args)
{
    mm_unit unit = {};
    const unsigned slice = blockIdx.x & (args.cluster - 1);
    unit.column = blockIdx.x >> args.cluster_log2;
    unit.k_begin = min(args.k, slice * args.k_slice);
    unit.k_end = min(args.k, unit.k_begin + args.k_slice);
    if (args.batch_rank > 0) {
        unit.batch = unit.column / args.tiles_n;
        unit.column -= unit.batch * args.tiles_n;
        mm_operands_at(args, unit.batch, &unit.a, &unit.b);
    }
    return unit;
}

/* A's rows of the slice, as they are in memory. The caller waits, and synchronises the CTA. */
template <typename TILE, bool A_K>
__device__ __forceinline__ void mm_skinny_stage(const mm_args &args, const mm_unit &unit, const ks_job_sides &job,
                                                unsigned char *to, int pitch)
{
    typedef typename TILE::element T;
    const int slice = (int)(unit.k_end - unit.k_begin), padded = (slice + TILE::SHARE - 1) / TILE::SHARE * TILE::SHARE;
    const int rows = (int)min((mm_int)TILE::M, args.m);
    const T *a = (const T *)(job.in + args.a.at) + unit.a + unit.k_begin * (A_K ? 1 : args.a.pitch);
    constexpr int WHOLE = 16 / (int)sizeof(T);
    if (A_K && !args.a.shifted && slice % WHOLE == 0) {
        for (int row = 0; row < rows; row++, a += args.a.pitch)
            for (int k = threadIdx.x * WHOLE; k < padded; k += TILE::THREADS * WHOLE)
                mm_copy_async(mm_shared_address(to) + row * pitch + k * (int)sizeof(T), a + k, k < slice);
        mm_copy_commit();
        mm_copy_wait<0>();
        return;
    }
    for (int k = threadIdx.x; k < padded; k += TILE::THREADS)
        for (int row = 0; row < rows; row++)
            ((T *)(to + row * pitch))[k] = k < slice ? a[A_K ? row * args.a.pitch + k : k * args.a.pitch + row] : T();
}

/* What a thread has of a block: vectors of B and, for the tensor cores, of A's rows. */
template <typename TILE>
struct mm_skinny_block {
    typename TILE::vector b[TILE::VECTORS];
    uint4 a[TILE::HALVES];
};

/* A thread's blocks, one by one. */
template <typename TILE>
struct mm_skinny_feed {
    typedef typename TILE::element T;
    const T *at, *a;
    mm_int a_pitch;
    int rows; /* of A, from the lane's on */
    mm_int pitch, stride;
    int values, columns; /* that are left from there on */

    __device__ __forceinline__ mm_skinny_feed(const mm_args &args, const mm_unit &unit, const ks_job_sides &job, int k,
                                              int column)
    {
        const mm_int first = (mm_int)unit.column * TILE::N + column;
        pitch = args.b.pitch;
        stride = TILE::B_K ? TILE::DEPTH : TILE::DEPTH * pitch;
        at = (const T *)(job.in + args.b.at) + unit.b;
        at += TILE::B_K ? first * pitch + unit.k_begin + k : (unit.k_begin + k) * pitch + first;
        values = (int)(unit.k_end - unit.k_begin) - k;
        columns = (int)min((mm_int)TILE::COLUMNS, args.n - first);
        if (TILE::MMA) {
            const int row = threadIdx.x % 32 / 4;
            a_pitch = 8 * args.a.pitch;
            a = (const T *)(job.in + args.a.at) + unit.a + row * args.a.pitch + unit.k_begin + k;
            rows = (int)args.m - row;
        }
    }

    __device__ __forceinline__ void load_b(mm_skinny_block<TILE> &block)
    {
        const T *from = at = ks_one_address(at);
#pragma unroll
        for (int v = 0; v < TILE::VECTORS; v++) {
            block.b[v] = {};
            if (TILE::B_K ? values > 0 && v < columns : v < values && columns > 0)
                block.b[v] = mm_load_once<typename TILE::vector>(from);
            from += pitch;
        }
        at += stride;
        values -= TILE::DEPTH;
    }

    /* there: values that were left in front of the block. */
    __device__ __forceinline__ void load_a(mm_skinny_block<TILE> &block, int there)
    {
        if constexpr (TILE::MMA) {
#pragma unroll
            for (int h = 0; h < TILE::HALVES; h++) {
                block.a[h] = {};
                if (there > 0 && 8 * h < rows) block.a[h] = ks_load_made((const uint4 *)(a + h * a_pitch));
            }
            a += TILE::DEPTH;
        }
    }

    __device__ __forceinline__ void load(mm_skinny_block<TILE> &block)
    {
        const int there = values;
        load_b(block);
        load_a(block, there);
    }
};

/* Whether a launch in front writes A alone, so that B's first blocks come meanwhile; a launch that writes B is waited for here. */
__device__ __forceinline__ bool mm_skinny_ahead(const mm_args &args)
{
    if (args.packed == MM_PACKED) mm_await_packed();
    return args.packed == MM_PACKED_INPUT0;
}

/* x: A's first row at the block's first value of K. */
template <typename TILE>
__device__ __forceinline__ void mm_skinny_fma_multiply(typename TILE::sums &sum,
                                                       const typename TILE::vector (&y)[TILE::VECTORS],
                                                       const unsigned char *x, int x_pitch)
{
    typedef mm_vector<typename TILE::element, TILE::VALUES> values;
#pragma unroll
    for (int m = 0; m < TILE::M; m++) {
        const values a = *(const values *)(x + m * x_pitch);
#pragma unroll
        for (int k = 0; k < TILE::VALUES; k++)
#pragma unroll
            for (int c = 0; c < TILE::COLUMNS; c++) {
                const float b = mm_widen(TILE::B_K ? y[c].value[k] : y[k].value[c]);
                sum[m][c] = fmaf(mm_widen(a.value[k]), b, sum[m][c]);
            }
    }
}

__device__ __forceinline__ uint32_t mm_skinny_round(float, uint32_t x)
{
    return mm_round_tf32(__uint_as_float(x));
}
template <typename T>
__device__ __forceinline__ uint32_t mm_skinny_round(T, uint32_t x)
{
    return x;
}

/* Two fragments along K: of the first two words of A's vectors, and of the last two. low, high: rows g and g + 8. */
template <typename TILE>
__device__ __forceinline__ void mm_skinny_mma_multiply(typename TILE::sums &sum, const uint4 (&y)[TILE::VECTORS],
                                                       const uint4 &low, const uint4 &high)
{
    typedef typename TILE::element T;
    constexpr int W = TILE::W;
    const uint32_t *b = (const uint32_t *)y;
#pragma unroll
    for (int h = 0; h < 4; h += 2) {
        uint32_t a[4] = {(&low.x)[h], (&high.x)[h], (&low.x)[h + 1], (&high.x)[h + 1]};
#pragma unroll
        for (int i = 0; i < 4; i++) a[i] = mm_skinny_round(T(), a[i]);
#pragma unroll
        for (int j = 0; j < W; j++) {
            uint32_t b0, b1;
            if constexpr (TILE::B_K) {
                b0 = b[4 * j + h];
                b1 = b[4 * j + h + 1];
            } else if constexpr (sizeof(T) == 4) {
                b0 = b[4 * h + j];
                b1 = b[4 * h + 4 + j];
            } else { /* column j of two rows to a word */
                const unsigned half = j % 2 ? 0x7632 : 0x5410;
                b0 = __byte_perm(b[8 * h + j / 2], b[8 * h + 4 + j / 2], half);
                b1 = __byte_perm(b[8 * h + 8 + j / 2], b[8 * h + 12 + j / 2], half);
            }
            mm_mma(T(), sum[j], a, mm_skinny_round(T(), b0), mm_skinny_round(T(), b1));
        }
    }
}

/* Lanes of the same columns add their sums; the warp's plane then. */
template <typename TILE>
__device__ __forceinline__ void mm_skinny_fma_spill(typename TILE::sums &sum, float *plane, int along, int column)
{
    constexpr int NEXT = TILE::B_K ? 1 : TILE::LANES;
#pragma unroll
    for (int lanes = NEXT; lanes < NEXT * TILE::ALONG; lanes *= 2)
#pragma unroll
        for (int m = 0; m < TILE::M; m++)
#pragma unroll
            for (int c = 0; c < TILE::COLUMNS; c++) sum[m][c] += __shfl_xor_sync(~0u, sum[m][c], lanes);
    if (along > 0) return;
#pragma unroll
    for (int m = 0; m < TILE::M; m++) {
        float *to = plane + m * TILE::SUM_PITCH + column;
        if constexpr (TILE::COLUMNS == 1) {
            *to = sum[m][0];
        } else {
#pragma unroll
            for (int c = 0; c < TILE::COLUMNS; c += 4)
                *(float4 *)(to + c) = make_float4(sum[m][c], sum[m][c + 1], sum[m][c + 2], sum[m][c + 3]);
        }
    }
}

/* A fragment's columns are those of the lanes whose B it was. */
template <typename TILE>
__device__ __forceinline__ void mm_skinny_mma_spill(const typename TILE::sums &sum, float *plane)
{
    const int lane_id = threadIdx.x % 32, g = lane_id / 4, t = lane_id % 4;
#pragma unroll
    for (int e = 0; e < (TILE::M > 8 ? 4 : 2); e++)
#pragma unroll
        for (int j = 0; j < TILE::W; j += 4)
            *(float4 *)(plane + (g + e / 2 * 8) * TILE::SUM_PITCH + TILE::W * (2 * t + e % 2) + j) =
                make_float4(sum[j][e], sum[j + 1][e], sum[j + 2][e], sum[j + 3][e]);
}

template <typename TILE, bool A_K>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_skinny_kernel(ks_site site, const __grid_constant__ mm_args args)
{
    typedef typename TILE::element T;
    constexpr bool ALONG_FIRST = TILE::MMA || TILE::B_K;
    extern __shared__ __align__(16) unsigned char mm_shared[];
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const bool ahead = mm_skinny_ahead(args);
#ifdef KS_MATMUL_CLUSTERS
    if (args.cluster > 1) mm_cluster_arrive_relaxed();
#endif
    const mm_unit unit = mm_skinny_unit(args);
    const int warp = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const int along = ALONG_FIRST ? lane_id % TILE::ALONG : lane_id / TILE::LANES;
    const int column = (ALONG_FIRST ? lane_id / TILE::ALONG : lane_id % TILE::LANES) * TILE::COLUMNS;
    const int mine = warp * TILE::SHARE, slice = (int)(unit.k_end - unit.k_begin);
    float *slots = (float *)mm_shared, *planes = slots + TILE::OUTPUTS;
    const unsigned char *x = (const unsigned char *)planes + (mine + along * TILE::VALUES) * (int)sizeof(T);
    mm_skinny_feed<TILE> feed(args, unit, job, mine + along * TILE::VALUES, column);
    mm_skinny_block<TILE> block[TILE::BLOCKS];
#pragma unroll
    for (int u = 0; u < TILE::BLOCKS; u++) feed.load_b(block[u]);
    if (TILE::MMA && ahead) mm_await_packed();
#pragma unroll
    for (int u = 0; u < TILE::BLOCKS; u++) feed.load_a(block[u], feed.values + (TILE::BLOCKS - u) * TILE::DEPTH);
    mm_begin(site, args);
    ks_await(site);
    mm_skinny_residual<TILE> residual(args, unit, job);
    const int x_pitch = mm_held_pitch(slice * (int)sizeof(T));
    if constexpr (!TILE::MMA) {
        mm_skinny_stage<TILE, A_K>(args, unit, job, (unsigned char *)planes, x_pitch);
        __syncthreads();
    }
    typename TILE::sums sum = {};
#pragma unroll 1
    for (int k = mine; k < slice; k += TILE::BLOCKS * TILE::DEPTH) {
#pragma unroll
        for (int u = 0; u < TILE::BLOCKS; u++) {
            if constexpr (TILE::MMA)
                mm_skinny_mma_multiply<TILE>(sum, block[u].b, block[u].a[0],
                                             TILE::M > 8 ? block[u].a[TILE::HALVES - 1] : uint4());
            else if (k + u * TILE::DEPTH < slice)
                mm_skinny_fma_multiply<TILE>(sum, block[u].b, x, x_pitch);
            x += TILE::DEPTH * (int)sizeof(T);
            feed.load(block[u]);
        }
    }
    float *plane = planes + warp * TILE::PLANE;
    if constexpr (TILE::MMA) {
        mm_skinny_mma_spill<TILE>(sum, plane);
    } else {
        __syncthreads(); /* all warps have left A */
        mm_skinny_fma_spill<TILE>(sum, plane, along, column);
    }
    mm_skinny_reduce_and_store<TILE>(site, args, unit, job, {planes, slots}, residual);
    mm_leave(site);
}

template <typename TILE, bool A_K>
static constexpr mm_kernel mm_skinny_entry(const char *name, mm_cost cost)
{
    static_assert(TILE::SHARE * sizeof(typename TILE::element) <= MM_HELD_UNIT,
                  "a warp's share ends within a held row");
    return {.name = name,
            .entry = mm_skinny_kernel<TILE, A_K>,
            .m = TILE::M,
            .n = TILE::N,
            .depth = TILE::DEPTH,
            .threads = TILE::THREADS,
            .ctas = TILE::CTAS,
            .shared_bytes = (TILE::OUTPUTS + TILE::SUMS) * (int)sizeof(float),
            .cost = cost,
            .split_k = true,
            .skinny = TILE::MMA      ? MM_SKINNY_STRAIGHT
                      : TILE::W == 1 ? MM_SKINNY_ODD
                                     : MM_SKINNY_HELD};
}

/* Two tiles, for B's rows across K and along it. A single row of A lies along K. */
template <typename ACROSS, typename ALONG>
static constexpr mm_row mm_skinny(const char *name, mm_cost cost)
{
    constexpr bool ALWAYS_K = ACROSS::MMA || ACROSS::M == 1;
#define ENTRY(A_K, B_K) mm_skinny_entry<std::conditional_t<B_K, ALONG, ACROSS>, ALWAYS_K || A_K>(name, cost)
    return MM_LAYOUTS(ENTRY);
#undef ENTRY
}

/* For B's rows across K alone, not shared along K: small matrices take narrow strips so that there are enough of them. */
template <typename TILE>
static constexpr mm_row mm_skinny_narrow(const char *name, mm_cost cost)
{
    mm_kernel kernel = mm_skinny_entry<TILE, true>(name, cost);
    kernel.split_k = false;
    const mm_kernel none = mm_without_entry(kernel);
    return {{{kernel, none}, {kernel, none}}};
}

/* Vectors of one element, for rows that start anywhere: the same for all layouts. */
template <typename TILE>
static constexpr mm_row mm_skinny_singles(const char *name, mm_cost cost)
{
    const mm_kernel kernel = mm_skinny_entry<TILE, true>(name, cost);
    return {{{kernel, kernel}, {kernel, kernel}}};
}

/* --- rows of B that start anywhere ----------------------------------------------------------------------------------- */

/* One row of A. B's rows lie across K; a warp takes every WARPS-th one. These start alike, and the warp reads them in whole
 * vectors from the one on that has the strip's first column: its sums lie shifted. LANES as above. */
template <typename T, int LANES_, int WARPS_, int BLOCKS_, int CTAS_>
struct mm_skinny_odd_tile {
    typedef T element;
    static constexpr int M = 1, LANES = LANES_, BLOCKS = BLOCKS_, CTAS = CTAS_, PLANES = WARPS_, THREADS = 32 * PLANES;
    static constexpr int W = 16 / (int)sizeof(T), ALONG = 32 / LANES, N = (LANES - 1) * W;
    static constexpr int SHARE = 1, DEPTH = PLANES * ALONG;
    static constexpr int SUM_PITCH = N + 4, PLANE = SUM_PITCH, OUTPUTS = N, SUMS = PLANES * PLANE;
    static_assert(PLANES % W == 0, "a warp's rows start alike");
};

template <typename TILE>
__global__ void __launch_bounds__(TILE::THREADS, TILE::CTAS)
    mm_skinny_odd_kernel(ks_site site, const __grid_constant__ mm_args args)
{
    typedef typename TILE::element T;
    typedef mm_vector<T, TILE::W> vector;
    extern __shared__ __align__(16) unsigned char mm_shared[];
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    mm_skinny_ahead(args);
#ifdef KS_MATMUL_CLUSTERS
    if (args.cluster > 1) mm_cluster_arrive_relaxed();
#endif
    const mm_unit unit = mm_skinny_unit(args);
    const int warp = threadIdx.x / 32, lane_id = threadIdx.x % 32;
    const int mine = warp + lane_id / TILE::LANES * TILE::PLANES, slice = (int)(unit.k_end - unit.k_begin);
    const mm_int pitch = args.b.pitch, first = (mm_int)unit.column * TILE::N;
    float *slots = (float *)mm_shared, *planes = slots + TILE::OUTPUTS;
    const T *at = (const T *)(job.in + args.b.at) + unit.b + (unit.k_begin + mine) * pitch + first;
    const int shift = (int)((uintptr_t)at / sizeof(T) % TILE::W), column = lane_id % TILE::LANES * TILE::W - shift;
    const bool inside = column < args.n - first;
    at += column;
    int left = slice - mine;
    uint4 block[TILE::BLOCKS];
    auto load = [&](uint4 &to) {
        to = {};
        if (inside && left > 0) to = mm_load_once<uint4>(at);
        at += TILE::DEPTH * pitch;
        left -= TILE::DEPTH;
    };
#pragma unroll
    for (int u = 0; u < TILE::BLOCKS; u++) load(block[u]);
    mm_begin(site, args);
    ks_await(site);
    mm_skinny_residual<TILE> residual(args, unit, job);
    mm_skinny_stage<TILE, true>(args, unit, job, (unsigned char *)planes, 0);
    __syncthreads();
    const T *x = (const T *)planes + mine;
    float sum[TILE::W] = {};
#pragma unroll 1
    for (int k = mine; k < slice; k += TILE::BLOCKS * TILE::DEPTH) {
#pragma unroll
        for (int u = 0; u < TILE::BLOCKS; u++) {
            if (k + u * TILE::DEPTH < slice) {
                const float a = mm_widen(x[u * TILE::DEPTH]);
                const vector &y = (const vector &)block[u];
#pragma unroll
                for (int c = 0; c < TILE::W; c++) sum[c] = fmaf(a, mm_widen(y.value[c]), sum[c]);
            }
            load(block[u]);
        }
        x += TILE::BLOCKS * TILE::DEPTH;
    }
    __syncthreads(); /* all warps have left A */
#pragma unroll
    for (int lanes = TILE::LANES; lanes < 32; lanes *= 2)
#pragma unroll
        for (int c = 0; c < TILE::W; c++) sum[c] += __shfl_xor_sync(~0u, sum[c], lanes);
    if (lane_id < TILE::LANES) {
#pragma unroll
        for (int c = 0; c < TILE::W; c++)
            if (column + c >= 0 && column + c < TILE::N) planes[warp * TILE::PLANE + column + c] = sum[c];
    }
    mm_skinny_reduce_and_store<TILE>(site, args, unit, job, {planes, slots}, residual);
    mm_leave(site);
}

template <typename TILE>
static constexpr mm_row mm_skinny_odd(const char *name, mm_cost cost)
{
    const mm_kernel kernel = {.name = name,
                              .entry = mm_skinny_odd_kernel<TILE>,
                              .m = TILE::M,
                              .n = TILE::N,
                              .depth = TILE::DEPTH,
                              .threads = TILE::THREADS,
                              .ctas = TILE::CTAS,
                              .shared_bytes = (TILE::OUTPUTS + TILE::SUMS) * (int)sizeof(float),
                              .cost = cost,
                              .split_k = true,
                              .skinny = MM_SKINNY_ODD};
    return {{{kernel, kernel}, {kernel, kernel}}};
}

#endif
