/* Bags: slices by index, each times its weight, as their sum, mean or maximum.
 *
 * A team is `lanes` threads, a thread for each pack of columns. It looks up some indices of its bag side by side, then each thread asks for
 * its columns of all their slices before it adds the first of them. How many teams a bag has follows from its length:
 *
 *   up to GATHER_TEAM_MOST indices                   a team
 *   as many for each team of a warp                  a warp
 *   more                                             the CTA
 *
 * Each team takes as many indices, one behind the other, and teams are joined in a fixed order. So a bag's bits follow from its slices and
 * weights alone, and a long bag among short ones has all threads of a CTA.
 *
 * Numbers  FP32, FP16 and BF16 in FP32, FP64 in FP64; one rounding at the end. The maximum of values with a NaN is NaN. */
#ifndef KS_GATHER_BAGS_CUH
#define KS_GATHER_BAGS_CUH

#include "cuda/gather/common.cuh"

#include <type_traits>

enum {
    GATHER_LANES = 32,
    GATHER_LANES_LEAST = 4, /* threads of a team: fewer would look up indices one behind the other */
    GATHER_TEAM_MOST = 64,  /* indices of a bag that one team takes */
    GATHER_LOOKED = 16,     /* indices that a team looks up at once, */
    GATHER_LOOKS = 4,       /* and a thread side by side */
    GATHER_LEVELS = 3,      /* team, warp, CTA */
    GATHER_AHEAD = 32,      /* numbers of a thread that are under way at once, at most; */
    GATHER_BYTES_AHEAD = 128
};

/* Slices of which a thread asks for so many columns each at once. */
static constexpr int gather_flight(int columns, int element_bytes)
{
    const int most = GATHER_BYTES_AHEAD / (columns * element_bytes), numbers = GATHER_AHEAD / columns;
    const int flight = most < numbers ? most : numbers;
    return flight < GATHER_LOOKED ? flight : (int)GATHER_LOOKED;
}

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

/* Columns of a table that are loaded at once. */
template <class T, int E>
struct gather_columns {
    static constexpr int BYTES = E * (int)sizeof(T);
    typedef std::conditional_t<BYTES == 2, uint16_t, uint32_t> Narrow;
    typedef std::conditional_t<BYTES == 16, uint4, std::conditional_t<BYTES == 8, uint2, Narrow>> Word;
    union {
        Word raw;
        T element[E];
    };
    __device__ __forceinline__ gather_columns() : raw()
    {
    }
    __device__ __forceinline__ void load(const T *at)
    {
        raw = __ldg((const Word *)at);
    }
    __device__ __forceinline__ void store(T *at) const
    {
        *(Word *)at = raw;
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

/* A bag's tile of columns. bag -1: none. */
struct gather_item {
    int64_t bag, column; /* column: of this thread */
    gather_span span;
};

/* Of a team: threads, and what is looked up for them: where a slice begins in the table, elements, or -1; its weight. parts: of the CTA, room
 * for a warp's columns, of each warp. */
template <class M>
struct gather_team {
    int lanes, lane;
    int64_t *place;
    M *weight, *parts;
};

/* Indices of a team; steps: of GATHER_LOOKED, as many as any team of the warp takes. column: a pack's first one; -1: none. */
struct gather_share {
    gather_span span;
    int64_t steps, column;
};

/* GATHER_LOOKED indices from the span's beginning on, those before its end. */
template <class T, class M>
__device__ __forceinline__ void gather_look_up(const ks_site &site, const gather_args &a, const ks_job_sides &job,
                                               const gather_team<M> &team, const gather_span &span)
{
    for (int from = team.lane; from < GATHER_LOOKED; from += GATHER_LOOKS * team.lanes) {
        int64_t index[GATHER_LOOKS];
#pragma unroll
        for (int k = 0; k < GATHER_LOOKS; k++) {
            const int at = from + k * team.lanes;
            const bool there = at < GATHER_LOOKED && span.begin + at < span.end;
            index[k] = there ? gather_number(job.in + a.indices, a.wide_indices, span.begin + at) : 0;
        }
#pragma unroll
        for (int k = 0; k < GATHER_LOOKS; k++) {
            const int at = from + k * team.lanes;
            if (at >= GATHER_LOOKED) break;
            const bool there = span.begin + at < span.end;
            const int64_t slice = there ? gather_resolve(site, a, index[k], span.begin + at) : -1;
            team.place[at] = slice < 0 ? -1 : slice * a.inner;
            if (a.weighted) team.weight[at] = there ? gather_weight<T>(a, job, span.begin + at) : (M)0;
        }
    }
}

/* A team's share of a bag, in order. All threads of a warp come here. */
template <class T, int E, class M>
__device__ __forceinline__ void gather_add(const ks_site &site, const gather_args &a, const ks_job_sides &job,
                                           const gather_team<M> &team, gather_share share, M (&y)[E])
{
    constexpr int F = gather_flight(E, (int)sizeof(T));
    const T *const table = (const T *)(job.in + a.table) + share.column;
    for (int64_t step = 0; step < share.steps; step++, share.span.begin += GATHER_LOOKED) {
        const int left = (int)min(share.span.end - share.span.begin, (int64_t)GATHER_LOOKED);
        gather_look_up<T>(site, a, job, team, share.span);
        __syncwarp();
#pragma unroll 1
        for (int first = 0; first < left; first += F) {
            gather_columns<T, E> x[F]; /* zeros where nothing is loaded, which sums do not notice */
#pragma unroll
            for (int k = 0; k < F; k++) {
                const int64_t place = team.place[first + k];
                if (place >= 0 && share.column >= 0) x[k].load(table + place);
            }
#pragma unroll
            for (int k = 0; k < F; k++) {
                const M weight = a.weighted ? team.weight[first + k] : (M)1;
                if (a.op != KS_GATHER_MAX) {
#pragma unroll
                    for (int e = 0; e < E; e++) y[e] += weight * (M)ks_math(x[k].element[e]);
                } else if (first + k < left) {
#pragma unroll
                    for (int e = 0; e < E; e++)
                        y[e] = gather_join(KS_GATHER_MAX, y[e], weight * (M)ks_math(x[k].element[e]));
                }
            }
        }
        __syncwarp(); /* what is looked up may change */
    }
}

/* The first team of `width` threads gets what all of them have. */
template <int E, class M>
__device__ __forceinline__ void gather_join_teams(int op, int width, const gather_team<M> &team, M (&y)[E])
{
    const int warp = (int)threadIdx.x / KS_WARP;
    for (int distance = KS_WARP / 2; distance >= team.lanes && width > team.lanes; distance /= 2)
#pragma unroll
        for (int e = 0; e < E; e++) y[e] = gather_join(op, y[e], ks_shuffle(y[e], distance));
    if (width <= KS_WARP) return;
    if ((int)threadIdx.x % KS_WARP < team.lanes)
#pragma unroll
        for (int e = 0; e < E; e++) team.parts[(warp * team.lanes + team.lane) * E + e] = y[e];
    __syncthreads();
    if ((int)threadIdx.x < team.lanes)
        for (int w = 1; w < GATHER_THREADS / KS_WARP; w++)
#pragma unroll
            for (int e = 0; e < E; e++) y[e] = gather_join(op, y[e], team.parts[(w * team.lanes + team.lane) * E + e]);
    __syncthreads();
}

/* An item's columns by `width` threads of which this is one. */
template <class T, int E, class M>
__device__ __forceinline__ void gather_bag(const ks_site &site, const gather_args &a, const ks_job_sides &job,
                                           const gather_team<M> &team, const gather_item &item, int width)
{
    const int within = (int)threadIdx.x & (width - 1), teams = width / team.lanes;
    const int64_t length = item.span.end - item.span.begin, part = teams == 1 ? length : (length + teams - 1) / teams;
    const int64_t from = item.span.begin + within / team.lanes * part;
    gather_share share = {
        {from, min(from + part, item.span.end)}, (part + GATHER_LOOKED - 1) / GATHER_LOOKED, item.column};
    if (teams == 1) share.steps = ks_warp_max((uint32_t)share.steps); /* teams of a warp have bags of their own */
    M y[E];
#pragma unroll
    for (int e = 0; e < E; e++) y[e] = a.op == KS_GATHER_MAX && length > 0 ? -(M)INFINITY : (M)0;
    gather_add<T, E, M>(site, a, job, team, share, y);
    gather_join_teams<E, M>(a.op, width, team, y);
    if (within >= team.lanes || item.bag < 0 || item.column < 0) return;
    gather_columns<T, E> sum;
#pragma unroll
    for (int e = 0; e < E; e++)
        sum.element[e] = ks_round<T, M>(a.op == KS_GATHER_MEAN && length > 0 ? y[e] / (M)length : y[e]);
    sum.store((T *)(job.out + a.out) + item.bag * a.inner + item.column);
}

/* The team's. speaks: of a bag whose offsets are bad. */
template <int E>
__device__ __forceinline__ gather_item gather_item_of(const ks_site &site, const gather_args &a,
                                                      const ks_job_sides &job, int lanes, int64_t item, bool speaks)
{
    const int64_t bag = a.per.of(item), column = ((item - bag * a.pieces) * lanes + (int)threadIdx.x % lanes) * E;
    return {bag, column < a.inner ? column : -1, gather_bounds(site, a, job, bag, speaks)};
}

/* items: bags * pieces, a piece being `lanes` packs of columns. Dynamic shared memory: gather_bags_shared. */
template <class T, int E>
__global__ void __launch_bounds__(GATHER_THREADS, E * sizeof(T) > 4 ? 3 : 4)
    gather_bags(ks_site site, gather_args a, int lanes)
{
    typedef typename ks_element<T>::math M;
    constexpr int TEAMS_MOST = (int)GATHER_THREADS / (int)GATHER_LANES_LEAST;
    __shared__ int listed[GATHER_LEVELS][TEAMS_MOST], counts[GATHER_LEVELS]; /* of a level, the items of these teams */
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const int thread = (int)threadIdx.x, teams = GATHER_THREADS / lanes, team = thread / lanes;
    int64_t *const places = (int64_t *)ks_dynamic;
    M *const parts = (M *)(places + teams * GATHER_LOOKED), *const weights =
                                                                parts + GATHER_THREADS / KS_WARP * lanes * E;
    const gather_team<M> own = {lanes, thread % lanes, places + team * GATHER_LOOKED, weights + team * GATHER_LOOKED,
                                parts};
    for (int64_t base = (int64_t)blockIdx.x * teams; base < a.items; base += (int64_t)gridDim.x * teams) {
        if (thread < GATHER_LEVELS) counts[thread] = 0;
        __syncthreads();
        const gather_item none = {-1, -1, {0, 0}};
        gather_item item = none;
        if (base + team < a.items) item = gather_item_of<E>(site, a, job, lanes, base + team, own.lane == 0);
        const int64_t length = item.span.end - item.span.begin;
        if (length > GATHER_TEAM_MOST) {
            const int level = lanes == KS_WARP || length > GATHER_TEAM_MOST * (KS_WARP / lanes) ? 2 : 1;
            if (own.lane == 0) listed[level][atomicAdd(&counts[level], 1)] = team;
            item = none;
        }
        __syncthreads();
#pragma unroll 1
        for (int level = 0; level < GATHER_LEVELS; level++) { /* one body for all */
            const int width = level == 0 ? lanes : level == 1 ? (int)KS_WARP : (int)GATHER_THREADS;
            const int groups = GATHER_THREADS / width, count = level == 0 ? groups : counts[level];
#pragma unroll 1
            for (int next = 0; next < count; next += groups) {
                const int at = next + thread / width;
                if (level > 0 && at >= count) break; /* whole warps */
                if (level > 0) item = gather_item_of<E>(site, a, job, lanes, base + listed[level][at], false);
                gather_bag<T, E, M>(site, a, job, own, item, width);
            }
        }
        __syncthreads();
    }
    ks_leave<true>(site);
}

/* Bytes: what is looked up, the columns of each warp, and weights. */
static size_t gather_bags_shared(int lanes, int word, int element_bytes, bool weighted)
{
    const size_t teams = (size_t)(GATHER_THREADS / lanes), math_bytes = element_bytes == 8 ? 8 : 4;
    const size_t ahead = teams * (size_t)GATHER_LOOKED;
    const size_t columns = (size_t)((int)GATHER_THREADS / (int)KS_WARP * lanes * word);
    return ahead * sizeof(int64_t) + columns * math_bytes + (weighted ? ahead * math_bytes : 0);
}

#endif
