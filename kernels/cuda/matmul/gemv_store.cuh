/* What becomes of the sums of few rows, in strips: the warps' are added up, and those of a cluster; the epilogue, and the store, an output a
 * thread at a time. */
#ifndef KS_MATMUL_GEMV_STORE_CUH
#define KS_MATMUL_GEMV_STORE_CUH

#include "cuda/matmul/epilogue.cuh"

/* Threads that share a sum over the planes: of whole warps, or each for itself. */
template <typename TILE>
static __host__ __device__ constexpr int mm_skinny_parts()
{
    int parts = 1;
    while (parts < 8 && 2 * parts <= TILE::PLANES && 2 * parts * TILE::OUTPUTS <= TILE::THREADS &&
           2 * parts * TILE::OUTPUTS % 32 == 0)
        parts *= 2;
    return parts;
}

/* The output's row and column in the tile. Neighbouring threads walk the output's contiguous dimension. */
template <typename TILE>
__device__ __forceinline__ int mm_skinny_row(const mm_args &args, int out)
{
    return args.swap_ab ? out % TILE::M : out / TILE::N;
}
template <typename TILE>
__device__ __forceinline__ int mm_skinny_column(const mm_args &args, int out)
{
    return args.swap_ab ? out / TILE::M : out % TILE::N;
}

/* Its place in memory; -1: outside. */
template <typename TILE>
__device__ __forceinline__ mm_int mm_skinny_place(const mm_args &args, const mm_unit &unit, int out)
{
    const int row = mm_skinny_row<TILE>(args, out);
    const mm_int j = (mm_int)unit.column * TILE::N + mm_skinny_column<TILE>(args, out);
    if (row >= args.m || j >= args.n) return -1;
    return unit.batch * (args.m * args.n) + (args.swap_ab ? j * args.m + row : row * args.n + j);
}

/* Which of the tile's outputs a thread stores, as it does for `place`-th of them; at TILE::OUTPUTS and beyond: none. */
template <typename TILE>
__device__ __forceinline__ int mm_skinny_output(const mm_args &args, int place)
{
    constexpr int PARTS = mm_skinny_parts<TILE>();
    if (args.cluster == 1) {
        const int out = threadIdx.x / PARTS + place * (TILE::THREADS / PARTS);
        return threadIdx.x % PARTS ? TILE::OUTPUTS : out;
    }
    const int share = TILE::OUTPUTS >> args.cluster_log2, at = threadIdx.x + place * TILE::THREADS;
    return at < share ? (int)(blockIdx.x & (args.cluster - 1)) * share + at : TILE::OUTPUTS;
}

/* What is added to a thread's first outputs: under way while the products are. */
template <typename TILE>
struct mm_skinny_residual {
    typedef typename TILE::element T;
    static constexpr int ALL = (TILE::OUTPUTS * mm_skinny_parts<TILE>() + TILE::THREADS - 1) / TILE::THREADS,
                         COUNT = ALL < 4 ? ALL : 4;
    T value[COUNT];

    static __device__ __forceinline__ T read(const mm_args &args, const mm_unit &unit, const ks_job_sides &job,
                                             int place)
    {
        const int out = mm_skinny_output<TILE>(args, place);
        if (out >= TILE::OUTPUTS) return T();
        const mm_int at = mm_skinny_place<TILE>(args, unit, out);
        return at < 0 ? T() : ((const T *)(job.in + args.residual_at))[at];
    }

    /* They may have been written by the launch in front. */
    __device__ __forceinline__ mm_skinny_residual(const mm_args &args, const mm_unit &unit, const ks_job_sides &job)
    {
        if (!args.residual) return;
        mm_await_packed();
#pragma unroll
        for (int i = 0; i < COUNT; i++) value[i] = read(args, unit, job, i);
    }

    /* Of the place-th output: they are taken one behind the other. */
    __device__ __forceinline__ float take(const mm_args &args, const mm_unit &unit, const ks_job_sides &job, int place)
    {
        if (!args.residual) return 0;
        const float first = mm_widen(value[0]);
#pragma unroll
        for (int i = 1; i < COUNT; i++) value[i - 1] = value[i];
        if (ALL > COUNT) value[COUNT - 1] = read(args, unit, job, place + COUNT);
        return first;
    }
};

template <typename TILE>
__device__ __forceinline__ void mm_skinny_store(const mm_args &args, const mm_unit &unit, const ks_job_sides &job,
                                                int out, float sum, float residual)
{
    typedef typename TILE::element T;
    const mm_int at = mm_skinny_place<TILE>(args, unit, out);
    if (at < 0) return;
    if (!args.plain) {
        const T *bias = (const T *)(job.in + args.bias_at);
        const mm_int along = args.swap_ab ? mm_skinny_row<TILE>(args, out)
                                          : (mm_int)unit.column * TILE::N + mm_skinny_column<TILE>(args, out);
        sum = mm_epilogue(args, sum, args.biased ? mm_widen(bias[along]) : 0.0f, residual);
    }
    mm_narrow(sum, (T *)(job.out + args.c_at) + at);
}

/* Slots in the shared memory of another CTA of the cluster. */
__device__ __forceinline__ void mm_peer_write(float *at, unsigned rank, float x)
{
#ifdef KS_MATMUL_CLUSTERS
    mm_peer_store(mm_peer_address(mm_shared_address(at), rank), x);
#endif
}

/* The sums of a CTA's warps, a PLANE apart; [cluster][its share of the outputs]. */
typedef struct mm_skinny_shared {
    const float *planes;
    float *slots;
} mm_skinny_shared;

/* The CTA's threads have stored their sums. */
template <typename TILE>
__device__ __forceinline__ void mm_skinny_reduce_and_store(const ks_site &site, const mm_args &args,
                                                           const mm_unit &unit, const ks_job_sides &job,
                                                           mm_skinny_shared shared, mm_skinny_residual<TILE> &residual)
{
    constexpr int PARTS = mm_skinny_parts<TILE>();
    const int part = threadIdx.x % PARTS, share = TILE::OUTPUTS >> args.cluster_log2;
    const int rank = blockIdx.x & (args.cluster - 1);
    __syncthreads();
    if (threadIdx.x == TILE::THREADS - 1) mm_stamp(site);
#ifdef KS_MATMUL_CLUSTERS
    if (args.cluster > 1) mm_cluster_wait(); /* the others have begun */
#endif
    int place = 0;
#pragma unroll 1
    for (int out = threadIdx.x / PARTS; out < TILE::OUTPUTS; out += TILE::THREADS / PARTS) {
        const float *at = shared.planes + part * TILE::PLANE + mm_skinny_row<TILE>(args, out) * TILE::SUM_PITCH +
                          mm_skinny_column<TILE>(args, out);
        float sum = at[0];
#pragma unroll
        for (int p = PARTS; p < TILE::PLANES; p += PARTS) sum += at[p * TILE::PLANE];
#pragma unroll
        for (int lanes = 1; lanes < PARTS; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
        if (part > 0) continue;
        if (args.cluster == 1) {
            mm_skinny_store<TILE>(args, unit, job, out, sum, residual.take(args, unit, job, place++));
        } else {
            const int owner = out / share;
            mm_peer_write(shared.slots + rank * share + out - owner * share, owner, sum);
        }
    }
#ifdef KS_MATMUL_CLUSTERS
    if (args.cluster == 1) return;
    mm_cluster_sync();
#pragma unroll 1
    for (int at = threadIdx.x; at < share; at += TILE::THREADS) {
        float sum = shared.slots[at];
        for (unsigned r = 1; r < args.cluster; r++) sum += shared.slots[r * share + at];
        const int out = rank * share + at;
        mm_skinny_store<TILE>(args, unit, job, out, sum, residual.take(args, unit, job, place++));
    }
#endif
}

#endif
