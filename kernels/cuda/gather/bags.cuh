/* Bags: slices by index, each times its weight, as their sum, mean or maximum.
 *
 * A team is GATHER_GROUPS groups of `lanes` threads, a thread for each pack of columns. Group g takes indices g, g + GATHER_GROUPS ... of
 * the bag, from its own start, in order; the groups are joined in order. So a bag's bits follow from its slices and weights alone.
 *
 * Numbers  FP32, FP16 and BF16 in FP32, FP64 in FP64; one rounding at the end. The maximum of values with a NaN is NaN. */
#ifndef KS_GATHER_BAGS_CUH
#define KS_GATHER_BAGS_CUH

#include "cuda/gather/common.cuh"

enum { GATHER_GROUPS = 8, GATHER_LANES = 32 }; /* of a team; threads of a group, at most */

template <class M>
__device__ __forceinline__ M gather_join(int op, M y, M value)
{
    if (op != KS_GATHER_MAX) return y + value;
    return value > y || value != value ? value : y;
}

template <class T>
__device__ __forceinline__ typename ks_element<T>::math gather_weight(const gather_args &a, const ks_job_sides &job,
                                                                      int64_t i)
{
    typedef typename ks_element<T>::math M;
    if (!a.weighted) return 1;
    if (a.narrow_weights) return (M)ks_math(((const T *)(job.in + a.weights))[i]);
    return (M)__ldg((const float *)(job.in + a.weights) + i);
}

/* Columns of a table: a vector, or one. */
template <class T, int E>
struct gather_columns {
    union {
        uint4 raw;
        T element[E];
    };
    __device__ __forceinline__ gather_columns()
    {
    }
    __device__ __forceinline__ void load(const T *at)
    {
        if constexpr (E > 1)
            raw = __ldg((const uint4 *)at);
        else
            element[0] = *at;
    }
    __device__ __forceinline__ void store(T *at) const
    {
        if constexpr (E > 1)
            *(uint4 *)at = raw;
        else
            *at = element[0];
    }
};

/* Indices begin .. end - 1. */
struct gather_span {
    int64_t begin, end;
};

/* A bag's; one whose offsets are bad is empty, and the status word says so. speaks: one thread of a team. */
__device__ __forceinline__ gather_span gather_bounds(const ks_site &site, const gather_args &a, const ks_job_sides &job,
                                                     int64_t bag, bool speaks)
{
    const int64_t begin = gather_number(job.in + a.offsets, a.wide_offsets, bag);
    const int64_t end = gather_number(job.in + a.offsets, a.wide_offsets, bag + 1);
    const bool bad = end < begin || end > a.count || (bag + 1 == a.bags && end != a.count);
    if (speaks && bad) ks_refuse(site, KS_GATHER_OFFSETS, bag + 1);
    if (speaks && bag == 0 && begin != 0) ks_refuse(site, KS_GATHER_OFFSETS, 0);
    if (begin < 0 || end < begin || end > a.count) return {0, 0};
    return {begin, end};
}

/* A group's part of a bag: the span's first index, and every GATHER_GROUPS-th from there, of one pack of columns. */
template <class T, int E, class M>
__device__ __forceinline__ void gather_add(const ks_site &site, const gather_args &a, const ks_job_sides &job,
                                           const gather_span &span, int64_t column, M (&y)[E])
{
    const T *table = (const T *)(job.in + a.table);
    for (int64_t first = span.begin; first < span.end; first += GATHER_FLIGHT * GATHER_GROUPS) {
        gather_columns<T, E> x[GATHER_FLIGHT];
        M weight[GATHER_FLIGHT];
        int64_t source[GATHER_FLIGHT];
#pragma unroll
        for (int k = 0; k < GATHER_FLIGHT; k++) {
            const int64_t i = first + k * GATHER_GROUPS;
            source[k] = -1;
            if (i >= span.end) continue;
            source[k] = gather_resolve(site, a, gather_number(job.in + a.indices, a.wide_indices, i), i);
            weight[k] = gather_weight<T>(a, job, i);
            if (source[k] >= 0) x[k].load(table + source[k] * a.inner + column);
        }
#pragma unroll
        for (int k = 0; k < GATHER_FLIGHT; k++) {
            if (source[k] < 0) continue;
#pragma unroll
            for (int e = 0; e < E; e++) y[e] = gather_join(a.op, y[e], weight[k] * (M)ks_math(x[k].element[e]));
        }
    }
}

/* items: bags * pieces, a piece being `lanes` packs of columns. Dynamic shared memory: E values of each thread. Packs of FP64 take more
 * registers than three CTAs leave. */
template <class T, int E>
__global__ void __launch_bounds__(GATHER_THREADS, sizeof(T) == 8 && E > 1 ? 2 : 3)
    gather_bags(ks_site site, gather_args a, int lanes)
{
    typedef typename ks_element<T>::math M;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    M *parts = (M *)ks_dynamic;
    const int team_threads = lanes * GATHER_GROUPS, teams = (int)blockDim.x / team_threads;
    const int team = (int)threadIdx.x / team_threads, within = (int)threadIdx.x % team_threads;
    const int group = within / lanes, lane = within % lanes;
    for (int64_t base = (int64_t)blockIdx.x * teams; base < a.items; base += (int64_t)gridDim.x * teams) {
        const int64_t item = base + team, bag = item < a.items ? a.per.of(item) : 0;
        const int64_t column = ((item - bag * a.pieces) * lanes + lane) * E;
        const bool live = item < a.items && column < a.inner;
        gather_span span = {0, 0};
        M y[E];
        if (item < a.items) span = gather_bounds(site, a, job, bag, within == 0);
        const int64_t length = span.end - span.begin;
#pragma unroll
        for (int e = 0; e < E; e++) y[e] = a.op == KS_GATHER_MAX && length > 0 ? -(M)INFINITY : (M)0;
        if (live) gather_add<T, E, M>(site, a, job, {span.begin + group, span.end}, column, y);
#pragma unroll
        for (int e = 0; e < E; e++) parts[threadIdx.x * E + e] = y[e];
        __syncthreads();
        if (live && group == 0) {
            gather_columns<T, E> sum;
            for (int g = 1; g < GATHER_GROUPS; g++)
#pragma unroll
                for (int e = 0; e < E; e++) y[e] = gather_join(a.op, y[e], parts[(threadIdx.x + g * lanes) * E + e]);
#pragma unroll
            for (int e = 0; e < E; e++)
                sum.element[e] = ks_round<T, M>(a.op == KS_GATHER_MEAN && length > 0 ? y[e] / (M)length : y[e]);
            sum.store((T *)(job.out + a.out) + bag * a.inner + column);
        }
        __syncthreads();
    }
    ks_leave<true>(site);
}

#endif
