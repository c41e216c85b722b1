/* Norm of rows of whole vectors that the registers of a CTA hold, or those of a cluster of CTAs: one reading, one writing.
 *
 * CTAs stay, a row after the other, and keep weight and bias in their registers: to read them for each row costs as much of the first
 * cache as the row itself. The next rows come through a pipeline in shared memory meanwhile. Each thread copies and reads its own packs
 * only, so that nothing but a row's sums needs a barrier. Where a CTA has few rows, they go straight to the registers. */
#ifndef KS_NORM_ROW_BLOCK_CUH
#define KS_NORM_ROW_BLOCK_CUH

#include "cuda/common/ptx_mma.cuh"
#include "cuda/norm/common.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define KS_NORM_CLUSTERS 1
#endif

static constexpr int NORM_BLOCK_THREADS = 512; /* of a CTA, at most */
static constexpr int NORM_STAGES = 3;          /* rows that are under way, or worked on */
static constexpr int NORM_CLUSTER_MAX = 8;     /* CTAs of a row */

/* A value of each warp, in turn in one of two places: a place is written again when all threads have passed the barrier of the other. */
struct norm_cells {
    double cell[2][NORM_BLOCK_THREADS / KS_WARP];
};

/* The sum over a CTA, in each thread. */
__device__ __forceinline__ double norm_over_cta(double mine, norm_cells &cells, int &turn)
{
    const int warps = blockDim.x / KS_WARP;
    mine = ks_subwarp_reduce(mine, KS_WARP, ks_adds());
    if (warps == 1) return mine;
    double *cell = cells.cell[turn & 1];
    turn++;
    if (threadIdx.x % KS_WARP == 0) cell[threadIdx.x / KS_WARP] = mine;
    __syncthreads();
    double sum = cell[0];
    for (int w = 1; w < warps; w++) sum += cell[w];
    return sum;
}

/* What the CTAs of a cluster send each other: mean and squares of their parts of a row; likewise in turn in one of two places. */
struct norm_messages {
    double mean[2][NORM_CLUSTER_MAX], squares[2][NORM_CLUSTER_MAX];
};

/* A CTA's part of a row. */
struct norm_part {
    int cluster, rank, count; /* CTAs of a row; of this one: rank, vectors */
    int share;                /* vectors of each CTA but the last */
    int vectors;              /* of a row */
};

/* The squares of the whole row about its mean, from those of all parts about theirs; the parts are joined by the exact formula, in the
 * order of their ranks. Source: T. Chan, G. Golub, R. LeVeque 1979, "Updating formulae and a pairwise algorithm". */
template <int E>
__device__ __forceinline__ double norm_over_cluster(const norm_shape &s, const norm_part &part, double squares,
                                                    double scale, double &mean, norm_messages &messages, int &turn)
{
#ifdef KS_NORM_CLUSTERS
    const int place = turn & 1;
    turn++;
    if (threadIdx.x < part.cluster) {
        const unsigned to = threadIdx.x;
        mm_peer_store(mm_peer_address(mm_shared_address(&messages.mean[place][part.rank]), to), mean);
        mm_peer_store(mm_peer_address(mm_shared_address(&messages.squares[place][part.rank]), to), squares);
    }
    mm_cluster_arrive();
    mm_cluster_wait();
    double whole = 0, joined = 0;
    if (s.centred) {
        for (int i = 0; i < part.cluster; i++)
            whole += messages.mean[place][i] * (double)(min(part.share, part.vectors - i * part.share) * E);
        whole = norm_mean(s, whole);
    }
    for (int i = 0; i < part.cluster; i++) {
        const double away = (messages.mean[place][i] - whole) * scale,
                     count = (double)(min(part.share, part.vectors - i * part.share) * E);
        joined += messages.squares[place][i] + (s.centred ? count * away * away : 0);
    }
    mean = whole;
    return joined;
#else
    return squares;
#endif
}

template <class T, class W, int V, bool CLUSTER>
__global__ void __launch_bounds__(NORM_BLOCK_THREADS, 1)
    norm_row_block(ks_site site, const __grid_constant__ norm_shape s, int cluster, int share, int stages)
{
    constexpr int E = norm_vector<T>;
    typedef typename ks_element<T>::math M;
    __shared__ norm_cells cells;
    __shared__ norm_messages messages;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
#ifdef KS_NORM_CLUSTERS
    if constexpr (CLUSTER) mm_cluster_arrive_relaxed();
#endif
    norm_part part = {1, 0, 0, share, (int)(s.length / E)};
#ifdef KS_NORM_CLUSTERS
    if constexpr (CLUSTER) part.cluster = cluster, part.rank = (int)mm_cluster_rank();
#endif
    part.count = min(share, part.vectors - part.rank * share);
    const int threads = blockDim.x, group = blockIdx.x / part.cluster, groups = gridDim.x / part.cluster;
    const int64_t begin = (int64_t)part.rank * share; /* vectors */
    const int inputs = 1 + s.residual;
    const bool affine = s.weight || s.bias;
    int turn = 0, turn_of_cluster = 0;

    const auto stage = [&](int n, int input, int v) {
        return ks_dynamic + ((n % NORM_STAGES * inputs + input) * V + v) * threads + threadIdx.x;
    };
    const auto fetch = [&](int n, int64_t row) {
        if (row < s.rows) {
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int i = v * threads + threadIdx.x;
                if (i >= part.count) break;
                const int64_t at = row * part.vectors + begin + i;
                ks_copy_async(stage(n, 0, v), (const uint4 *)(job.in + s.in[0]) + at);
                if (s.residual) ks_copy_async(stage(n, 1, v), (const uint4 *)(job.in + s.in[3]) + at);
            }
        }
        ks_copy_group();
    };
    if (stages) {
#pragma unroll 1
        for (int n = 0; n < NORM_STAGES; n++) fetch(n, group + (int64_t)n * groups);
    }
    const norm_affine<W, E, V> kept(s, job.in, begin, threadIdx.x, threads, part.count);
#ifdef KS_NORM_CLUSTERS
    if constexpr (CLUSTER) mm_cluster_wait(); /* the peers are there */
#endif

    int n = 0;
#pragma unroll 1
    for (int64_t row = group; row < s.rows; row += groups, n++) {
        const int64_t origin = row * part.vectors + begin;
        M sum[V][E];
        norm_pack<T, E> x[V], more[V];
        if (stages) ks_copy_wait_but<NORM_STAGES - 1>();
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int i = v * threads + threadIdx.x;
            x[v].fill(0);
            if (i < part.count) {
                if (stages)
                    x[v].four(*stage(n, 0, v), 0);
                else
                    x[v].load(job.in + s.in[0], origin + i);
            }
        }
        if (s.residual) {
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int i = v * threads + threadIdx.x;
                more[v].fill(0);
                if (i < part.count) {
                    if (stages)
                        more[v].four(*stage(n, 1, v), 0);
                    else
                        more[v].load(job.in + s.in[3], origin + i);
                }
            }
        }
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int i = v * threads + threadIdx.x;
            norm_widen(sum[v], x[v]);
            if (s.pre_bias && i < part.count) {
                norm_pack<W, E> add;
                add.load(job.in + s.in[4], begin + i);
                norm_add(sum[v], add);
            }
            if (s.residual) norm_add(sum[v], more[v]);
            if (s.keeps_sum && i < part.count) {
                x[v].put(sum[v]);
                x[v].store(job.out + s.sum, origin + i);
            }
        }

        double mean = 0;
        if (s.centred) {
            double whole = 0;
#pragma unroll
            for (int v = 0; v < V; v++) whole += norm_sum<T>(sum[v]); /* zeros beyond the row */
            whole = norm_over_cta(whole, cells, turn);
            if (sizeof(T) == 2 && !(fabs(whole) < (double)INFINITY)) {
                whole = 0;
#pragma unroll
                for (int v = 0; v < V; v++) whole += norm_wide_sum(sum[v]);
                whole = norm_over_cta(whole, cells, turn);
            }
            if constexpr (CLUSTER)
                mean = whole / (double)(part.count * E);
            else
                mean = norm_mean(s, whole);
        }
        norm_rule<M> rule;
        M scale = 1, next;
#pragma unroll 1
        do { /* once, but for rows of very large or very small numbers */
            double squares = 0, mean_of_row = mean;
            rule = norm_rule<M>(norm_centre<M>(mean), scale);
#pragma unroll
            for (int v = 0; v < V; v++)
                if (v * threads + (int)threadIdx.x < part.count) squares += norm_squares<T>(sum[v], rule);
            squares = norm_over_cta(squares, cells, turn);
            if constexpr (CLUSTER) {
                squares = norm_over_cluster<E>(s, part, squares, (double)scale, mean_of_row, messages, turn_of_cluster);
                rule = norm_rule<M>(norm_centre<M>(mean_of_row), scale);
            }
            const double squared = norm_divisor_squared(s, squares, (double)scale);
            rule.factor = norm_factor(squared, (M)0);
            next = norm_next_scale<T>(squared, scale);
            if (next != 0) scale = next;
        } while (next != 0);
        if (stages) fetch(n, row + (int64_t)NORM_STAGES * groups); /* what lay there has been used */
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int i = v * threads + threadIdx.x;
            norm_values<T>(s, sum[v], rule, affine, kept.weight[v], kept.bias[v]);
            x[v].put(sum[v]);
            if (i < part.count) x[v].store(job.out + s.out, origin + i);
        }
    }
    ks_leave(site);
}

#endif
