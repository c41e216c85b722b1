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
    double sum[4] = {}; /* four chains: an addition waits for the one before it */
    for (int w = 0; w < warps; w += 4)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] += w + i < warps ? cell[w + i] : 0;
    return ks_tree(sum);
}

/* What the CTAs of a cluster send each other: mean and squares of their parts of a row; likewise in turn in one of two places. */
struct norm_messages {
    double mean[2][NORM_CLUSTER_MAX], squares[2][NORM_CLUSTER_MAX];
};

/* A CTA's part of a row. */
struct norm_part {
    int cluster, rank, count; /* CTAs of a row; of this one: rank, packs */
    int share;                /* packs of each CTA but the last */
    int length;               /* elements of a row */
    int elements;             /* of a whole part */

    __device__ __forceinline__ norm_part(int64_t row_length, int pack, int ctas, int each, int mine)
        : cluster(ctas), rank(mine), count(min(each, (int)((row_length + pack - 1) / pack) - mine * each)), share(each),
          length((int)row_length), elements(each * pack)
    {
    }
    /* Elements of a rank's part. */
    __device__ __forceinline__ double count_of(int of) const
    {
        return (double)min(elements, length - of * elements);
    }
};

/* Packs of a CTA's parts of rows: pack v of a thread is number place(v) of a part. */
template <class T, int V>
struct norm_rows {
    static constexpr int E = norm_vector<T>;
    typedef typename ks_element<T>::math M;
    const norm_shape &s;
    const ks_job_sides &job;
    const norm_part &part;

    __device__ __forceinline__ int place(int v) const
    {
        return v * blockDim.x + threadIdx.x;
    }
    __device__ __forceinline__ int64_t origin(int64_t row) const
    {
        return row * (part.length / E) + (int64_t)part.rank * part.share;
    }
    __device__ __forceinline__ uint4 *stage(int n, int input, int v) const
    {
        return ks_dynamic + ((n % NORM_STAGES * (1 + s.residual) + input) * V + v) * blockDim.x + threadIdx.x;
    }
    /* Row number n of the CTA comes into shared memory. */
    __device__ __forceinline__ void fetch(int n, int64_t row) const
    {
        if (row < s.rows) {
#pragma unroll
            for (int v = 0; v < V; v++) {
                if (place(v) >= part.count) break;
                const int64_t at = origin(row) + place(v);
                ks_copy_async(stage(n, 0, v), (const uint4 *)(job.in + s.in[0]) + at);
                if (s.residual) ks_copy_async(stage(n, 1, v), (const uint4 *)(job.in + s.in[3]) + at);
            }
        }
        ks_copy_group();
    }
    /* x (input 0) or the residual (3): zeros beyond the row. */
    __device__ __forceinline__ void load(norm_pack<T, E> (&x)[V], int input, int n, int64_t row, bool staged) const
    {
#pragma unroll
        for (int v = 0; v < V; v++) {
            x[v].fill(0);
            if (place(v) >= part.count) continue;
            if (staged)
                x[v].four(*stage(n, input != 0, v), 0);
            else
                x[v].take(job.in + s.in[input], origin(row) + place(v));
        }
    }
    /* s of a row; OUTPUT1 is stored. */
    template <class W>
    __device__ __forceinline__ void take(M (&sum)[V][E], int n, int64_t row, bool staged) const
    {
        norm_pack<T, E> x[V], more[V];
        load(x, 0, n, row, staged);
        if (s.residual) load(more, 3, n, row, staged);
#pragma unroll
        for (int v = 0; v < V; v++) {
            norm_widen(sum[v], x[v]);
            if (s.pre_bias && place(v) < part.count) {
                norm_pack<W, E> add;
                add.load(job.in + s.in[4], (int64_t)part.rank * part.share + place(v));
                norm_add(sum[v], add);
            }
            if (s.residual) norm_add(sum[v], more[v]);
            if (s.keeps_sum && place(v) < part.count) {
                x[v].put(sum[v]);
                x[v].store(job.out + s.sum, origin(row) + place(v));
            }
        }
    }
};

/* How a CTA's sums meet: what it shares with its warps and with the cluster, and how often each place was used. */
struct norm_meeting {
    norm_cells &cells;
    norm_messages &messages;
    int turn, cluster_turn;
};

/* The squares of the whole row about its mean, from those of all parts about theirs; the parts are joined by the exact formula, as a tree
 * over their ranks. mean: of the part, then of the row. Source: T. Chan, G. Golub, R. LeVeque 1979, "Updating formulae and a pairwise
 * algorithm for computing sample variances". */
__device__ __forceinline__ double norm_over_cluster(const norm_shape &s, const norm_part &part, double squares,
                                                    double scale, double &mean, norm_meeting &meeting)
{
#ifdef KS_NORM_CLUSTERS
    norm_messages &messages = meeting.messages;
    const int place = meeting.cluster_turn++ & 1;
    if (threadIdx.x < part.cluster) {
        const unsigned to = threadIdx.x;
        mm_peer_store(mm_peer_address(mm_shared_address(&messages.mean[place][part.rank]), to), mean);
        mm_peer_store(mm_peer_address(mm_shared_address(&messages.squares[place][part.rank]), to), squares);
    }
    mm_cluster_arrive();
    mm_cluster_wait();
    /* A lane for each part: in a loop over the parts each addition would wait for the one before it. */
    const int i = threadIdx.x % NORM_CLUSTER_MAX;
    const bool there = i < part.cluster;
    const double count = there ? part.count_of(i) : 0, part_mean = there ? messages.mean[place][i] : 0;
    double whole = 0, joined = there ? messages.squares[place][i] : 0;
    if (s.centred) {
        whole = norm_mean(s, ks_subwarp_reduce(part_mean * count, NORM_CLUSTER_MAX, ks_adds()));
        const double away = (part_mean - whole) * scale;
        joined += count * away * away;
    }
    joined = ks_subwarp_reduce(joined, NORM_CLUSTER_MAX, ks_adds());
    mean = whole;
    return joined;
#else
    return squares;
#endif
}

/* The mean of a CTA's part. */
template <class T, int V, int E, class M>
__device__ __forceinline__ double norm_part_mean(const norm_shape &s, const norm_part &part, const M (&sum)[V][E],
                                                 norm_meeting &meeting)
{
    double whole = 0;
#pragma unroll
    for (int v = 0; v < V; v++) whole += norm_sum<T>(sum[v]); /* zeros beyond the row */
    whole = norm_over_cta(whole, meeting.cells, meeting.turn);
    if (sizeof(T) == 2 && !(fabs(whole) < (double)INFINITY)) {
        whole = 0;
#pragma unroll
        for (int v = 0; v < V; v++) whole += norm_wide_sum(sum[v]);
        whole = norm_over_cta(whole, meeting.cells, meeting.turn);
    }
    return part.cluster > 1 ? whole / part.count_of(part.rank) : norm_mean(s, whole);
}

/* counts: elements of each pack of this thread, as rows of whole vectors or any others have them. */
template <class T, bool CLUSTER, int V, int E, class M>
__device__ __forceinline__ norm_rule<M> norm_settle(const norm_shape &s, const norm_part &part, const M (&sum)[V][E],
                                                    const int (&counts)[V], norm_meeting &meeting)
{
    const double mean = s.centred ? norm_part_mean<T>(s, part, sum, meeting) : 0;
    norm_rule<M> rule;
    M scale = 1, next;
#pragma unroll 1
    do { /* once, but for rows of very large or very small numbers */
        double squares = 0, mean_of_row = mean;
        rule = norm_rule<M>(mean, scale);
#pragma unroll
        for (int v = 0; v < V; v++)
            if (counts[v]) squares += norm_squares<T>(sum[v], rule, counts[v]);
        squares = norm_over_cta(squares, meeting.cells, meeting.turn);
        if constexpr (CLUSTER) {
            squares = norm_over_cluster(s, part, squares, (double)scale, mean_of_row, meeting);
            rule = norm_rule<M>(mean_of_row, scale);
        }
        const double squared = norm_divisor_squared(s, squares, (double)scale);
        rule.factor = norm_factor(squared, (M)0);
        next = norm_next_scale<T>(squared, (M)mean_of_row, scale);
        if (next != 0) scale = next;
    } while (next != 0);
    return rule;
}

template <bool CLUSTER, int E>
__device__ __forceinline__ norm_part norm_part_of(int64_t length, int cluster, int share)
{
#ifdef KS_NORM_CLUSTERS
    if constexpr (CLUSTER) {
        mm_cluster_arrive_relaxed();
        return norm_part(length, E, cluster, share, (int)mm_cluster_rank());
    }
#endif
    return norm_part(length, E, 1, share, 0);
}

template <class T, class W, int V, bool CLUSTER>
__global__ void __launch_bounds__(NORM_BLOCK_THREADS, 1)
    norm_row_block(ks_site site, const __grid_constant__ norm_shape s, int cluster, int share, int stages)
{
    constexpr int E = norm_vector<T>;
    __shared__ norm_cells cells;
    __shared__ norm_messages messages;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const norm_part part = norm_part_of<CLUSTER, E>(s.length, cluster, share);
    const norm_rows<T, V> rows = {s, job, part};
    const int group = blockIdx.x / part.cluster, groups = gridDim.x / part.cluster;
    const bool affine = s.weight || s.bias;
    norm_meeting meeting = {cells, messages, 0, 0};
    if (stages) {
        ks_await(site);
#pragma unroll 1
        for (int n = 0; n < NORM_STAGES; n++) rows.fetch(n, group + (int64_t)n * groups);
    }
    const norm_affine<W, E, V> kept(s, job.in, rows.origin(0), threadIdx.x, blockDim.x, part.count);
    if (!stages) ks_await(site); /* behind the loads of weight and bias, which are constants */
#ifdef KS_NORM_CLUSTERS
    if constexpr (CLUSTER) mm_cluster_wait(); /* the peers are there */
#endif

    int n = 0;
#pragma unroll 1
    for (int64_t row = group; row < s.rows; row += groups, n++) {
        typename ks_element<T>::math sum[V][E];
        if (stages) ks_copy_wait_but<NORM_STAGES - 1>();
        rows.template take<W>(sum, n, row, stages != 0);
        int counts[V];
#pragma unroll
        for (int v = 0; v < V; v++) counts[v] = rows.place(v) < part.count ? E : 0;
        const auto rule = norm_settle<T, CLUSTER>(s, part, sum, counts, meeting);
        if (stages) rows.fetch(n, row + (int64_t)NORM_STAGES * groups); /* what lay there has been used */
#pragma unroll
        for (int v = 0; v < V; v++) {
            norm_pack<T, E> y;
            norm_values<T>(s, sum[v], rule, affine, kept.weight[v], kept.bias[v]);
            y.put(sum[v]);
            if (rows.place(v) < part.count) y.store(job.out + s.out, rows.origin(row) + rows.place(v));
        }
    }
    ks_leave(site);
}

#endif
