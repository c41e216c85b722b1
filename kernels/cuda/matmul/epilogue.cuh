/* The epilogue: the split-K reduce of sums in shared memory, then alpha, bias, activation, residual and the one rounding.
 *
 * Within a CTA the sums lie in PLANES planes (its warps' shares of K). Across a cluster each CTA reduces a part of the tile, by
 * reads of the others' shared memory. Across the clusters that share a tile that part goes through the workspace, and the last
 * cluster to arrive reduces all. Every sum is taken in the order of the slices, so the bits do not depend on which is last. */
#ifndef KS_MATMUL_EPILOGUE_CUH
#define KS_MATMUL_EPILOGUE_CUH

#include "cuda/common/unary.cuh"
#include "cuda/matmul/common.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define KS_MATMUL_CLUSTERS 1
#endif

/* Four neighbours of a row as they lie in memory. */
template <typename T>
struct alignas(sizeof(T) < 8 ? 4 * sizeof(T) : 16) mm_line {
    T value[4];
};

template <typename S>
struct alignas(4 * sizeof(S)) mm_four {
    S value[4];
};
template <>
struct alignas(16) mm_four<double> {
    double value[4];
};

__device__ __forceinline__ void mm_narrow(float x, __half *to)
{
    *to = __float2half_rn(x);
}
__device__ __forceinline__ void mm_narrow(float x, __nv_bfloat16 *to)
{
    *to = __float2bfloat16_rn(x);
}
__device__ __forceinline__ void mm_narrow(float x, float *to)
{
    *to = x;
}
__device__ __forceinline__ void mm_narrow(double x, double *to)
{
    *to = x;
}

__device__ __forceinline__ float mm_widen(__half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float mm_widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
__device__ __forceinline__ float mm_widen(float x)
{
    return x;
}
__device__ __forceinline__ double mm_widen(double x)
{
    return x;
}

/* The formulas are matmul.c's; FP32 is wide enough where the output is FP32 or narrower. */
template <typename S>
__device__ __forceinline__ S mm_activate(S x, int activation)
{
    switch (activation) {
    case KS_MATMUL_RELU:
        return ks_relu(x);
    case KS_MATMUL_GELU:
        return ks_gelu(x);
    case KS_MATMUL_SILU:
        return ks_silu(x);
    default:
        return x;
    }
}

/* A residual is added to what is rounded nowhere before, and never in one instruction with a product: each kernel gives the same bits. */
__device__ __forceinline__ float mm_add_residual(float x, float residual)
{
    return __fadd_rn(x, residual);
}
__device__ __forceinline__ double mm_add_residual(double x, double residual)
{
    return __dadd_rn(x, residual);
}

/* alpha in FP64: a factor beyond FP32's range stays right. */
template <typename S>
__device__ __forceinline__ S mm_epilogue(const mm_args &args, S sum, S bias, S residual)
{
    if (args.alpha != 1.0) sum = (S)(args.alpha * (double)sum);
    const S x = mm_activate(sum + bias, args.activation);
    return args.residual ? mm_add_residual(x, residual) : x;
}

/* N sums of a thread at once, whose biases and residuals have been read: each by itself would wait for its bias and for its activation. Results of 16
 * bits by the quick formulas of unary.cuh, whose error disappears in their rounding; FP64 one by one, whose erf and exp are long. */
template <typename T, int N, typename S>
__device__ __forceinline__ void mm_finish(const mm_args &args, const S (&bias)[N], const S (&residual)[N], S (&sum)[N])
{
    static_assert((int)KS_MATMUL_NONE == (int)KS_ACTIVATION_NONE && (int)KS_MATMUL_RELU == (int)KS_ACTIVATION_RELU &&
                      (int)KS_MATMUL_GELU == (int)KS_ACTIVATION_GELU,
                  "all but silu have one number");
    if (args.alpha != 1.0) {
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] = (S)(args.alpha * (double)sum[e]);
    }
#pragma unroll
    for (int e = 0; e < N; e++) sum[e] += bias[e];
    if constexpr (sizeof(S) == 8) {
#pragma unroll 1
        for (int e = 0; e < N; e++) {
            const S x = mm_activate(sum[0], args.activation);
#pragma unroll
            for (int i = 1; i < N; i++) sum[i - 1] = sum[i];
            sum[N - 1] = x;
        }
    } else {
        ks_activate<T>(sum, args.activation == KS_MATMUL_SILU ? KS_ACTIVATION_SILU : args.activation);
    }
    if (args.residual) {
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] = mm_add_residual(sum[e], residual[e]);
    }
}

/* A tile's place in the output. */
template <typename T>
struct mm_out {
    T *c;              /* of the tile's first element */
    const T *bias;     /* of its first column (with swap_ab: row) */
    const T *residual; /* as c; if there is one */
    int rows, columns; /* that are inside */
    bool whole;        /* four neighbours of a row are one aligned vector */
};

template <typename T, typename TILE>
__device__ __forceinline__ mm_out<T> mm_out_at(const mm_args &args, const mm_unit &unit, const ks_job_sides &job)
{
    const mm_int row = (mm_int)unit.row * TILE::M, column = (mm_int)unit.column * TILE::N;
    mm_out<T> out;
    const mm_int first =
        unit.batch * (args.m * args.n) + (args.swap_ab ? column * args.m + row : row * args.n + column);
    out.c = (T *)(job.out + args.c_at) + first;
    out.residual = (const T *)(job.in + args.residual_at) + first;
    out.bias = (const T *)(job.in + args.bias_at) + (args.swap_ab ? row : column);
    out.rows = (int)min((mm_int)TILE::M, args.m - row);
    out.columns = (int)min((mm_int)TILE::N, args.n - column);
    out.whole = !args.swap_ab && ((unsigned)args.n & 3) == 0;
    return out;
}

/* What is added to four neighbours of a tile's row: read ahead, and widened where it is added. */
template <typename T>
__device__ __forceinline__ mm_line<T> mm_read_residual(const mm_args &args, const mm_out<T> &out, int row, int column)
{
    mm_line<T> line = {};
    if (!args.residual || row >= out.rows || column >= out.columns) return line;
    if (out.whole) return *(const mm_line<T> *)(out.residual + row * args.n + column);
    const mm_int step = args.swap_ab ? args.m : 1;
    const T *from = out.residual + (args.swap_ab ? column * args.m + row : row * args.n + column);
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (column + e < out.columns) line.value[e] = from[e * step];
    return line;
}

/* Four neighbours of a tile's row. PLAIN: it is known that args.plain. */
template <bool PLAIN, typename T, typename S>
__device__ __forceinline__ void mm_store_four(const mm_args &args, const mm_out<T> &out, int row, int column,
                                              mm_four<S> sum, const mm_line<T> &added)
{
    if (row >= out.rows || column >= out.columns) return;
    if (!PLAIN && !args.plain) {
        S bias[4], residual[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            bias[e] =
                args.biased && column + e < out.columns ? mm_widen(out.bias[args.swap_ab ? row : column + e]) : (S)0;
            residual[e] = mm_widen(added.value[e]);
        }
        mm_finish<T>(args, bias, residual, sum.value);
    }
    mm_line<T> line;
#pragma unroll
    for (int e = 0; e < 4; e++) mm_narrow(sum.value[e], &line.value[e]);
    if (out.whole) {
        *(mm_line<T> *)(out.c + row * args.n + column) = line;
        return;
    }
    const mm_int step = args.swap_ab ? args.m : 1;
    T *to = out.c + (args.swap_ab ? column * args.m + row : row * args.n + column);
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (column + e < out.columns) to[e * step] = line.value[e];
}

template <typename S>
__device__ __forceinline__ void mm_add(mm_four<S> &to, const mm_four<S> &x)
{
#pragma unroll
    for (int e = 0; e < 4; e++) to.value[e] += x.value[e];
}

/* Past the L1 cache: other CTAs have written it. */
template <typename S>
__device__ __forceinline__ mm_four<S> mm_read_fresh(const mm_four<S> *at)
{
    mm_four<S> x;
#pragma unroll
    for (size_t i = 0; i < sizeof x / 16; i++) ((float4 *)&x)[i] = __ldcg((const float4 *)at + i);
    return x;
}

/* The sums of all splits' parts, `step` fours apart, in the splits' order: of `count` fours up to COUNT, `apart` from each
 * other. FEW of each are under way before the first is added. */
template <int FEW, int COUNT, typename S>
__device__ __forceinline__ void mm_workspace_reduce(mm_four<S> (&sum)[COUNT], int count, size_t apart,
                                                    const mm_four<S> *at, size_t step, unsigned splits)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) sum[i] = {};
#pragma unroll 1
    for (unsigned first = 0; first < splits; first += FEW) {
        mm_four<S> part[COUNT][FEW];
#pragma unroll
        for (int i = 0; i < COUNT; i++)
#pragma unroll
            for (unsigned g = 0; g < FEW; g++)
                if (i < count && first + g < splits) part[i][g] = mm_read_fresh(at + (first + g) * step + i * apart);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
#pragma unroll
            for (unsigned g = 0; g < FEW; g++)
                if (first + g < splits) mm_add(sum[i], part[i][g]);
    }
}

#ifdef KS_MATMUL_CLUSTERS
__device__ __forceinline__ void mm_cluster_sync()
{
    mm_cluster_arrive();
    mm_cluster_wait();
}

/* No CTA ends while another reads its memory. Orders no memory: it would wait for the output's stores. */
__device__ __forceinline__ void mm_cluster_leave()
{
    mm_cluster_arrive_relaxed();
    mm_cluster_wait();
}

/* The same place in the shared memory of CTA `rank` of the cluster. */
template <typename S>
__device__ __forceinline__ mm_four<S> mm_peer_read(const S *at, unsigned rank)
{
    mm_four<S> x;
    mm_peer_load(x.value, mm_peer_address(mm_shared_address(at), rank));
    return x;
}
#endif

/* Where mm_fma_spill leaves a sum in its plane: fours of a row are rotated by the row's number, so that a warp, whose threads
 * own fours of columns and of rows, stores to 32 banks instead of 8. */
static __host__ __device__ constexpr int mm_rotated_at(int row, int column)
{
    return column / 4 * 4 + (column + row / 4) % 4;
}

/* Back from there. */
template <typename S>
__device__ __forceinline__ mm_four<S> mm_rotate_back(const mm_four<S> &x, int row)
{
    mm_four<S> half, whole;
#pragma unroll
    for (int e = 0; e < 4; e++) half.value[e] = row & 4 ? x.value[(e + 1) % 4] : x.value[e];
#pragma unroll
    for (int e = 0; e < 4; e++) whole.value[e] = row & 8 ? half.value[(e + 2) % 4] : half.value[e];
    return whole;
}

/* A CTA's sums in shared memory, [PLANES][M][PITCH], by fours. Neighbouring ones, and threads, walk the output's contiguous
 * dimension. */
template <typename TILE>
struct mm_planes {
    typedef typename mm_sum<typename TILE::element>::type S;
    S *sums;
    bool swap_ab;

    __device__ __forceinline__ int row(int four) const
    {
        return swap_ab ? four % TILE::M : four / (TILE::N / 4);
    }
    __device__ __forceinline__ int column(int four) const
    {
        return (swap_ab ? four / TILE::M : four % (TILE::N / 4)) * 4;
    }
    /* In the first plane. */
    __device__ __forceinline__ S *at(int four) const
    {
        return sums + row(four) * TILE::SUM_PITCH + column(four);
    }
    __device__ __forceinline__ mm_four<S> read(int four) const
    {
        return *(const mm_four<S> *)at(four);
    }
    __device__ __forceinline__ void write(int four, const mm_four<S> &sum) const
    {
        *(mm_four<S> *)at(four) = sum;
    }
    /* Of all planes. */
    __device__ __forceinline__ mm_four<S> sum(int four) const
    {
        mm_four<S> sum = read(four);
#pragma unroll
        for (int p = 1; p < TILE::PLANES; p++)
            mm_add(sum, *(const mm_four<S> *)(at(four) + p * TILE::M * TILE::SUM_PITCH));
        return sum;
    }
};

#ifdef KS_MATMUL_CLUSTERS
/* This CTA's share of a tile, from its own planes and its peers' first ones to its own first one; a cluster of up to MOST.
 * AT_ONCE of a thread's fours are asked for before the first is added. */
template <int MOST, int AT_ONCE, typename TILE>
__device__ __forceinline__ void mm_cluster_reduce(const mm_planes<TILE> &planes, int begin, int end, unsigned rank,
                                                  unsigned cluster)
{
    typedef typename mm_planes<TILE>::S S;
#pragma unroll 1
    for (int first = begin + threadIdx.x; first < end; first += AT_ONCE * TILE::THREADS) {
        mm_four<S> part[AT_ONCE][MOST];
#pragma unroll
        for (int e = 0; e < AT_ONCE; e++) {
            const S *at = planes.at(min(first + e * TILE::THREADS, end - 1));
#pragma unroll
            for (unsigned r = 0; r < MOST; r++)
                if (r < cluster && r != rank) part[e][r] = mm_peer_read(at, r);
        }
#pragma unroll
        for (int e = 0; e < AT_ONCE; e++) {
            const int four = first + e * TILE::THREADS;
            if (four >= end) break;
            const mm_four<S> mine = planes.sum(four);
#pragma unroll
            for (unsigned r = 0; r < MOST; r++)
                if (r == rank) part[e][r] = mine;
            mm_four<S> sum = part[e][0];
#pragma unroll
            for (unsigned r = 1; r < MOST; r++)
                if (r < cluster) mm_add(sum, part[e][r]);
            planes.write(four, sum);
        }
    }
}
#endif

/* What this CTA, the rank-th of its cluster, stores of a tile, from its own first plane or, without a cluster, from all planes. A plain product's
 * code is its own: small ones took 0.2 us more where they passed by what is done with a residual. */
template <bool PLAIN, typename T, typename TILE>
__device__ __forceinline__ void mm_store_share(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                               const mm_out<T> &out, const mm_planes<TILE> &planes, unsigned rank)
{
    typedef typename mm_sum<T>::type S;
    enum { THREADS = TILE::THREADS, FOURS = TILE::M * TILE::N / 4 };
    __shared__ int last;
    const int share = FOURS >> args.cluster_log2, begin = (int)rank * share, end = begin + share;
    mm_four<S> *partial = (mm_four<S> *)ks_workspace(site) + (size_t)unit.tile * args.splits * FOURS;
    auto residual = [&](int four) {
        return PLAIN ? mm_line<T>() : mm_read_residual(args, out, planes.row(four), planes.column(four));
    };
    auto store = [&](int four, const mm_four<S> &sum, const mm_line<T> &added) {
        mm_store_four<PLAIN>(args, out, planes.row(four), planes.column(four),
                             TILE::MMA ? sum : mm_rotate_back(sum, planes.row(four)), added);
    };
    mm_line<T> next = residual(begin + threadIdx.x); /* one ahead */
#pragma unroll 1
    for (int four = begin + threadIdx.x; four < end; four += THREADS) {
        mm_four<S> sum = planes.read(four);
        if (args.cluster == 1) sum = planes.sum(four);
        if (args.splits > 1) {
            partial[(size_t)unit.split * FOURS + four] = sum;
        } else {
            const mm_line<T> added = next;
            next = residual(four + THREADS);
            store(four, sum, added);
        }
    }
    if (args.splits > 1) {
        uint32_t *counter = ks_counters(site) + ((size_t)unit.tile << args.cluster_log2) + rank;
        __syncthreads();
        if (threadIdx.x == 0) {
            last = mm_draw(counter) == args.splits - 1;
            if (last) *counter = 0;
        }
        __syncthreads();
        if (last) {
#pragma unroll 1
            for (int four = begin + threadIdx.x; four < end; four += THREADS) {
                mm_four<S> sum[1];
                const mm_line<T> added = next;
                next = residual(four + THREADS);
                mm_workspace_reduce<32 / sizeof(S)>(sum, 1, 0, partial + four, FOURS, args.splits);
                store(four, sum[0], added);
            }
        }
    }
}

/* All CTA's threads have stored their sums. */
template <typename T, typename TILE>
__device__ __forceinline__ void mm_reduce_and_store(const ks_site &site, const mm_args &args, const mm_unit &unit,
                                                    const ks_job_sides &job, typename mm_sum<T>::type *sums)
{
    typedef typename mm_sum<T>::type S;
    enum { M = TILE::M, N = TILE::N, THREADS = TILE::THREADS, FOURS = M * N / 4 };
    const mm_out<T> out = mm_out_at<T, TILE>(args, unit, job);
    const int share = FOURS >> args.cluster_log2;
    unsigned rank = 0;
    const mm_planes<TILE> planes = {sums, (bool)args.swap_ab};

    __syncthreads();
#ifdef KS_MATMUL_CLUSTERS
    if (args.cluster > 1) {
        rank = mm_cluster_rank();
        if (TILE::PLANES > 1) { /* its own share it reads from all planes */
#pragma unroll 2
            for (int i = threadIdx.x; i < FOURS - share; i += THREADS) {
                const int four = i < (int)rank * share ? i : i + share;
                planes.write(four, planes.sum(four));
            }
        }
        mm_cluster_sync();
    }
#endif
    const int begin = (int)rank * share, end = begin + share;
#ifdef KS_MATMUL_CLUSTERS
    constexpr int HALF = FOURS / 2 / THREADS; /* a thread's fours of half a tile */
    if (args.cluster == 2)
        mm_cluster_reduce<2, (HALF < 1 ? 1 : HALF < 4 ? HALF : 4)>(planes, begin, end, rank, args.cluster);
    else if (args.cluster > 2)
        mm_cluster_reduce<KS_MATMUL_CLUSTER_MAX, 1>(planes, begin, end, rank, args.cluster);
#endif
    if (args.plain)
        mm_store_share<true>(site, args, unit, out, planes, rank);
    else
        mm_store_share<false>(site, args, unit, out, planes, rank);
#ifdef KS_MATMUL_CLUSTERS
    if (args.cluster > 1) mm_cluster_leave();
#endif
}

#endif
