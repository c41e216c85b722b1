/* Norm of rows that are no whole vectors, so that each begins elsewhere within one; held as in row_block.cuh: one reading, one writing.
 *
 * A thread's packs count from the row's first element on, so that a row's sums are added in one order wherever it begins. Memory is read
 * and written by whole vectors none the less: those that a row touches come into shared memory, where a lane puts a pack together from
 * two of them; of results a lane gets the pack of the lane before it and stores the vector that both share. Single elements are stored
 * where a warp's packs, or the row, begin and end. */
#ifndef KS_NORM_ROW_SHIFTED_CUH
#define KS_NORM_ROW_SHIFTED_CUH

#include "cuda/common/cut.cuh"
#include "cuda/norm/row_block.cuh"

static constexpr int NORM_SHIFTED_SLOTS = KS_WARP + 1; /* vectors of a warp's packs */

/* A pack whose first `count` elements are there, in memory that no CTA writes; the others are `otherwise`. */
template <class W, int E>
__device__ __forceinline__ norm_pack<W, E> norm_pack_of(const unsigned char *data, int64_t first, int count,
                                                        float otherwise)
{
    typename ks_element<W>::math y[E];
#pragma unroll
    for (int e = 0; e < E; e++) y[e] = e < count ? ks_math(((const W *)data)[first + e]) : otherwise;
    norm_pack<W, E> pack;
    pack.put(y);
    return pack;
}

/* Packs of a CTA's parts of rows, as norm_rows has them. */
template <class T, int V>
struct norm_shifted_rows {
    static constexpr int E = norm_vector<T>;
    typedef typename ks_element<T>::math M;
    const norm_shape &s;
    const ks_job_sides &job;
    const norm_part &part;

    __device__ __forceinline__ int place(int v) const
    {
        return v * blockDim.x + threadIdx.x;
    }
    /* Elements of the part's pack at that place. */
    __device__ __forceinline__ int elements_at(int place) const
    {
        return place < part.count ? min(E, part.length - (part.rank * part.share + place) * E) : 0;
    }
    __device__ __forceinline__ int valid(int v) const
    {
        return elements_at(place(v));
    }
    /* Where a row's part begins in a tensor. */
    __device__ __forceinline__ const unsigned char *begin(const unsigned char *tensor, int64_t row) const
    {
        return tensor + (row * s.length + (int64_t)part.rank * part.share * E) * (int64_t)sizeof(T);
    }
    __device__ __forceinline__ uint4 *slot(int n, int input, int v) const
    {
        const int warp = threadIdx.x / KS_WARP, warps = blockDim.x / KS_WARP;
        return ks_dynamic +
               (((n % NORM_STAGES * (1 + s.residual) + input) * V + v) * warps + warp) * NORM_SHIFTED_SLOTS +
               threadIdx.x % KS_WARP;
    }
    /* The vectors of a row's packs, from the one on in which the part begins. */
    __device__ __forceinline__ void fetch_input(int n, int64_t row, int input, const unsigned char *tensor) const
    {
        const unsigned char *const first = begin(tensor, row), *const end = tensor + s.rows * s.length * sizeof(T);
        const unsigned char *const vectors = first - ((uintptr_t)first & 15);
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (place(v) >= part.count) break;
            const bool last = threadIdx.x % KS_WARP == KS_WARP - 1 || place(v) == part.count - 1;
            for (int more = 0; more <= last; more++) {
                const unsigned char *const at = vectors + (int64_t)(place(v) + more) * 16;
                uint4 *const to = slot(n, input, v) + more;
                if (end - at >= 16)
                    ks_copy_async(to, (const uint4 *)at);
                else /* the tensor's end */
                    for (int e = 0; e < (end - at) / (int64_t)sizeof(T); e++) ((T *)to)[e] = ((const T *)at)[e];
            }
        }
    }
    /* Row number n of the CTA comes into shared memory. */
    __device__ __forceinline__ void fetch(int n, int64_t row) const
    {
        if (row < s.rows) {
            fetch_input(n, row, 0, job.in + s.in[0]);
            if (s.residual) fetch_input(n, row, 1, job.in + s.in[3]);
        }
        ks_copy_group();
    }
    /* Pack v of what was fetched of a tensor: zeros beyond the row. */
    __device__ __forceinline__ norm_pack<T, E> load(int n, int64_t row, int input, int v) const
    {
        norm_pack<T, E> x;
        x.fill(0);
        const int count = valid(v);
        if (count == 0) return x;
        const uint4 *const two = slot(n, input, v);
        const unsigned shift = (unsigned)((uintptr_t)begin(job.in + s.in[input ? 3 : 0], row) & 15);
        x.four(ks_cut<(int)sizeof(T)>(two[0], two[1], shift), 0);
        if (count < E) {
            M y[E];
#pragma unroll
            for (int e = 0; e < E; e++) y[e] = e < count ? (M)x.get(e) : 0;
            x.put(y);
        }
        return x;
    }
    /* All lanes of a warp together: pack v of a row goes to a tensor. */
    __device__ __forceinline__ void store(norm_pack<T, E> y, unsigned char *tensor, int64_t row, int v) const
    {
        unsigned char *const first = (unsigned char *)begin(tensor, row);
        const int lane = threadIdx.x % KS_WARP, shift = (int)((uintptr_t)first & 15), count = valid(v);
        unsigned char *const vector = first - shift + (int64_t)place(v) * 16;
        /* Whether this lane, and whether the next one, stores a whole vector. */
        const int least = (16 - shift) / (int)sizeof(T);
        const bool whole = (lane > 0 || shift == 0) && count >= least;
        const bool next = lane < KS_WARP - 1 && elements_at(place(v) + 1) >= least;
        norm_pack<T, E> before, out = y;
#pragma unroll
        for (int w = 0; w < 4; w++) before.word[w] = __shfl_up_sync(0xFFFFFFFFu, y.word[w], 1);
        if (shift) out.four(ks_cut<(int)sizeof(T)>(before.vector(), y.vector(), 16 - (unsigned)shift), 0);
        if (whole) out.store(vector, 0);
        if (whole && next) return;
#pragma unroll
        for (int e = 0; e < E; e++) {
            const int at = shift + e * (int)sizeof(T);
            if (e >= count || (at < 16 ? whole : next)) continue;
            if constexpr (sizeof(T) == 2)
                *(uint16_t *)(vector + at) = (uint16_t)(y.word[e / 2] >> e % 2 * 16);
            else
                *(uint32_t *)(vector + at) = y.word[e];
        }
    }
    /* s of a row; OUTPUT1 is stored. */
    template <class W>
    __device__ __forceinline__ void take(M (&sum)[V][E], int n, int64_t row) const
    {
#pragma unroll
        for (int v = 0; v < V; v++) {
            norm_widen(sum[v], load(n, row, 0, v));
            const int count = valid(v);
            if (s.pre_bias && count) {
                const int64_t pack = (int64_t)part.rank * part.share + place(v);
                norm_pack<W, E> add;
                if (count == E)
                    add.load(job.in + s.in[4], pack);
                else
                    add = norm_pack_of<W, E>(job.in + s.in[4], pack * E, count, 0);
                norm_add(sum[v], add);
            }
            if (s.residual) norm_add(sum[v], load(n, row, 1, v));
            if (s.keeps_sum) {
                norm_pack<T, E> kept;
                kept.put(sum[v]);
                store(kept, job.out + s.sum, row, v);
            }
        }
    }
};

template <class T, class W, int V, bool CLUSTER>
__global__ void __launch_bounds__(NORM_BLOCK_THREADS, 1)
    norm_row_shifted(ks_site site, const __grid_constant__ norm_shape s, int cluster, int share)
{
    constexpr int E = norm_vector<T>;
    __shared__ norm_cells cells;
    __shared__ norm_messages messages;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const norm_part part = norm_part_of<CLUSTER, E>(s.length, cluster, share);
    const norm_shifted_rows<T, V> rows = {s, job, part};
    const int group = blockIdx.x / part.cluster, groups = gridDim.x / part.cluster;
    const bool affine = s.weight || s.bias;
    norm_meeting meeting = {cells, messages, 0, 0};
    const int64_t origin = (int64_t)part.rank * part.share;
    norm_affine<W, E, V> kept(s, job.in, origin, threadIdx.x, blockDim.x,
                              min(part.count, (int)(s.length / E - origin)));
#pragma unroll
    for (int v = 0; v < V; v++) {
        const int count = rows.valid(v);
        if (count == 0 || count == E) continue;
        const int64_t first = (origin + rows.place(v)) * E;
        if (s.weight) kept.weight[v] = norm_pack_of<W, E>(job.in + s.in[1], first, count, 1);
        if (s.bias) kept.bias[v] = norm_pack_of<W, E>(job.in + s.in[2], first, count, 0);
    }
    ks_await(site); /* behind the loads of weight and bias, which are constants */
#pragma unroll 1
    for (int n = 0; n < NORM_STAGES; n++) rows.fetch(n, group + (int64_t)n * groups);
#ifdef KS_NORM_CLUSTERS
    if constexpr (CLUSTER) mm_cluster_wait(); /* the peers are there */
#endif

    int n = 0;
#pragma unroll 1
    for (int64_t row = group; row < s.rows; row += groups, n++) {
        typename ks_element<T>::math sum[V][E];
        ks_copy_wait_but<NORM_STAGES - 1>();
        __syncwarp(); /* a lane's packs lie in vectors of the next one's, too */
        rows.template take<W>(sum, n, row);
        int counts[V];
#pragma unroll
        for (int v = 0; v < V; v++) counts[v] = rows.valid(v);
        const auto rule = norm_settle<T, CLUSTER>(s, part, sum, counts, meeting);
        __syncwarp();
        rows.fetch(n, row + (int64_t)NORM_STAGES * groups); /* what lay there has been used */
#pragma unroll
        for (int v = 0; v < V; v++) {
            norm_pack<T, E> y;
            norm_values<T>(s, sum[v], rule, affine, kept.weight[v], kept.bias[v]);
            y.put(sum[v]);
            rows.store(y, job.out + s.out, row, v);
        }
    }
    ks_leave(site);
}

#endif
