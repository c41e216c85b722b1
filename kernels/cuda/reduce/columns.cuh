/* Columns: results lie side by side, and the axis goes across them.
 *
 * A tile is a stretch of results; shape.width threads stand side by side in it with a piece of E results each (a 16-byte
 * vector's, or a single one), and shape.rows such groups go along the axis, each thread with several loads in flight. An
 * item is a tile, or a part of one: shape.share steps along the axis.
 *
 * Where lines do not start on vectors (shape.tiles > 0), vectors are still read: `rows` is such that all lines of a thread
 * are shifted against the vectors by the same number of elements. So only the results that its elements belong to are
 * shifted, by a number of its own; a tile has one thread more than pieces.
 *
 * LIST: the axis is a list of axes. The CTA that comes last in a tile joins its parts, in their order. */
#ifndef KS_REDUCE_COLUMNS_CUH
#define KS_REDUCE_COLUMNS_CUH

#include "cuda/reduce/take.cuh"

/* --- elements -------------------------------------------------------------------------------------------------------- */

/* Pieces of E elements of a thread, `step` steps along the axis and `gap` elements apart; those at or beyond count are
 * absent. */
template <class Op, int E>
struct reduce_pieces {
    typedef typename Op::Source Source;
    typedef typename Source::T T;
    static constexpr int C = E < 4 ? E : 4;                       /* results of E that are taken at once */
    static constexpr int U = E == 8 ? 4 : reduce_loads<T>::count; /* that many accumulators leave no registers for 8 */
    ks_vector<T> v[U];

    template <class Offset>
    __device__ __forceinline__ reduce_pieces(const Op &op, const typename Op::Acc (&acc)[E / C][C], const T *in,
                                             int step, int count, Offset offset)
    {
        const ks_vector<T> missing = reduce_missing(op, acc);
#pragma unroll
        for (int u = 0; u < U; u++) {
            v[u] = missing;
            if (u * step < count) v[u] = reduce_load<T>((const uint4 *)(in + offset(u)));
        }
#pragma unroll
        for (int u = 0; u < U; u++) reduce_order_words(op, &v[u].raw);
    }
    __device__ __forceinline__ typename Source::W get(const Op &op, int u, int e) const
    {
        return Source::get(v[u].element[e], op.rule);
    }
};

template <class Op>
struct reduce_pieces<Op, 1> {
    typedef typename Op::Source Source;
    typedef typename Source::T T;
    static constexpr int U = 8, C = 1;
    T v[U];
    const int step, count;
    const typename Source::W absent;

    template <class Offset>
    __device__ __forceinline__ reduce_pieces(const Op &op, const typename Op::Acc (&acc)[1][1], const T *in, int step_,
                                             int count_, Offset offset)
        : step(step_), count(count_), absent(reduce_absent(op, acc[0][0]))
    {
#pragma unroll
        for (int u = 0; u < U; u++)
            if (u * step < count) v[u] = in[offset(u)];
    }
    __device__ __forceinline__ typename Source::W get(const Op &op, int u, int) const
    {
        return u * step < count ? reduce_get(op, v[u]) : absent;
    }
};

/* --- tiles ----------------------------------------------------------------------------------------------------------- */

struct reduce_tile {
    int64_t first; /* result */
    int results;   /* fewer at an end */
    int span;      /* results of a whole tile */
};

/* Where a column's state lies in a row of shared memory: the E of a thread apart, those of threads side by side together,
 * so that no two of these go to one bank. */
template <int E>
__device__ __forceinline__ int reduce_seat(int column, int span)
{
    return column % E * (span / E) + column / E;
}

/* States in shared memory, `rows` rows of `span`: joined down the columns, eight at a time, until eight are left or
 * fewer. Begins and ends with a barrier. */
template <class Op>
__device__ __forceinline__ int reduce_fold(const Op &op, typename Op::State *shared, int rows, int span)
{
    __syncthreads();
    while (rows > 8) {
        const int left = (rows + 7) / 8;
        for (int k = threadIdx.x; k < left * span; k += blockDim.x) {
            typename Op::State state = shared[k];
            for (int r = k + left * span; r < rows * span; r += left * span) state = op.join(state, shared[r]);
            shared[k] = state;
        }
        rows = left;
        __syncthreads();
    }
    return rows;
}

template <class Op, int E>
__device__ __forceinline__ typename Op::State reduce_down(const Op &op, const typename Op::State *shared, int rows,
                                                          int span, int column)
{
    const int seat = reduce_seat<E>(column, span);
    typename Op::State state = shared[seat];
    for (int r = 1; r < rows; r++) state = op.join(state, shared[r * span + seat]);
    return state;
}

/* column(j): the state of the tile's result j. */
template <class Op, class Column>
__device__ __forceinline__ void reduce_store_states(const Op &op, const reduce_tile &tile, Column column, void *out)
{
    for (int j = threadIdx.x; j < tile.results; j += blockDim.x)
        ((typename Op::Out *)out)[tile.first + j] = op.result(column(j));
}

template <class Op, int E>
__device__ __forceinline__ void reduce_store(const Op &op, const reduce_tile &tile, const typename Op::State *shared,
                                             int rows, void *out)
{
    reduce_store_states(
        op, tile, [&](int j) { return reduce_down<Op, E>(op, shared, rows, tile.span, j); }, out);
}

/* Where the parts of a tile meet, one behind the other; `own` is the CTA's. */
template <class State>
struct reduce_meeting {
    State *partial;
    uint32_t *counters; /* reduce_join_counters() of them */
    int own, parts;
};

/* Of tile t. */
template <class State>
__device__ __forceinline__ reduce_meeting<State> reduce_meeting_of(const ks_site &site, const reduce_shape &s,
                                                                   uint32_t t, uint32_t part, int span)
{
    return {(State *)ks_workspace(site) + (int64_t)t * s.parts * span,
            ks_counters(site) + (int64_t)t * reduce_join_counters(s.parts), (int)part, (int)s.parts};
}

/* True in the CTA that comes last of so many: what the others wrote before is there. The counter is zero again. */
__device__ __forceinline__ bool reduce_comes_last(uint32_t *counter, int ctas)
{
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(counter, 1u) == (uint32_t)ctas - 1;
        if (last) *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* Groups of threads that join parts of so many columns side by side. */
__device__ __forceinline__ int reduce_join_groups(int span)
{
    return max((int)blockDim.x / span, 1);
}

/* Joins parts that lie `step` apart: groups of threads take every so-many-th part each, then as within a CTA. Returns the rows
 * of states that are left in shared memory. */
template <class Op, int E>
__device__ __forceinline__ int reduce_join_parts(const Op &op, const reduce_tile &tile, typename Op::State *shared,
                                                 const typename Op::State *partial, int step, int parts)
{
    constexpr int U = sizeof(typename Op::State) == 16 ? 4 : 8; /* more spill */
    const int groups = reduce_join_groups(tile.span);
    for (int k = threadIdx.x; k < groups * tile.span; k += blockDim.x) {
        const int group = k / tile.span, j = k - group * tile.span;
        const typename Op::State *at = partial + group * step * tile.span + j;
        typename Op::State state = op.none();
#pragma unroll U
        for (int p = j < tile.results ? group : parts; p < parts; p += groups, at += groups * step * tile.span)
            state = op.join(state, reduce_read(at));
        shared[group * tile.span + reduce_seat<E>(j, tile.span)] = state;
    }
    return reduce_fold(op, shared, groups, tile.span);
}

/* Writes the CTA's part. The CTA that comes last joins them all in their order; where its groups of threads would have many to
 * read one behind the other, the one that comes last of each REDUCE_JOIN parts joins these first, into the place of the first
 * one. On an H200 one meeting was faster with 17 reads of a group, two with 44. */
template <class Op, int E, class Column>
__device__ __forceinline__ void reduce_last(const Op &op, const reduce_tile &tile, typename Op::State *shared,
                                            Column column, const reduce_meeting<typename Op::State> &all, void *out)
{
    const bool many = all.parts > REDUCE_JOIN_MOST * reduce_join_groups(tile.span);
    const int group = many ? all.own / REDUCE_JOIN : 0;
    int first = group * REDUCE_JOIN * tile.span, step = 1; /* 32 bits: the workspace has no more states */
    int parts = many ? min(all.parts - group * REDUCE_JOIN, (int)REDUCE_JOIN) : all.parts;
    uint32_t *counter = all.counters + (many ? 1 + group : 0);
    for (int j = threadIdx.x; j < tile.results; j += blockDim.x)
        all.partial[(int64_t)all.own * tile.span + j] = column(j);
#pragma unroll 1
    while (reduce_comes_last(counter, parts)) {
        const int left = reduce_join_parts<Op, E>(op, tile, shared, all.partial + first, step, parts);
        if (counter == all.counters) {
            reduce_store<Op, E>(op, tile, shared, left, out);
            return;
        }
        for (int j = threadIdx.x; j < tile.results; j += blockDim.x)
            all.partial[first + j] = reduce_down<Op, E>(op, shared, left, tile.span, j);
        counter = all.counters;
        parts = (all.parts + REDUCE_JOIN - 1) / REDUCE_JOIN;
        step = REDUCE_JOIN;
        first = 0;
    }
}

/* A thread's own results, which no other thread shares: side by side, so that they are stored as vectors. */
template <class Op, int E, int C>
__device__ __forceinline__ void reduce_store_own(const Op &op, const typename Op::Acc (&acc)[E / C][C], bool any,
                                                 void *out)
{
    if constexpr (E > 1 && sizeof(typename Op::Out) * E < 16) {
        reduce_pack<typename Op::Out, E> pack;
#pragma unroll
        for (int e = 0; e < E; e++)
            pack.one[e] = op.result(op.finish(acc[e / C][e % C], any, [](int n) { return (int64_t)n; }));
        pack.store((typename Op::Out *)out, E);
    } else {
        union {
            typename Op::Out one[E];
            uint4 raw[sizeof(typename Op::Out) * E / 16 > 0 ? sizeof(typename Op::Out) * E / 16 : 1];
        } u;
#pragma unroll
        for (int e = 0; e < E; e++)
            u.one[e] = op.result(op.finish(acc[e / C][e % C], any, [](int n) { return (int64_t)n; }));
        if constexpr (E == 1)
            *(typename Op::Out *)out = u.one[0];
        else
#pragma unroll
            for (int i = 0; i < (int)(sizeof u / sizeof u.raw[0]); i++) ((uint4 *)out)[i] = u.raw[i];
    }
}

/* CTAs that an SM's registers have to hold: fewer where accumulators, or addresses of single elements, take many. */
template <class Op, int E, bool LIST>
constexpr bool reduce_columns_large = E == 1 || E > 8 || sizeof(typename Op::Acc) * E > 96 ||
                                      (LIST && sizeof(typename Op::Acc) > 8);
template <class Op, int E, bool LIST>
constexpr int reduce_columns_ctas = reduce_shifts<Op>                                        ? (E == 8 ? 3 : 2)
                                    : sizeof(typename Op::Source::W) > 4 || reduce_heavy<Op> ? 2
                                    : reduce_columns_large<Op, E, LIST>                      ? 3
                                                                                             : 4;
/* The most threads of a CTA, which those registers are divided among. */
template <class Op, int E>
constexpr int reduce_columns_threads = reduce_shifts<Op> &&E == 8 ? 128 : 256;

template <class Op, int E, bool LIST>
__global__ void __launch_bounds__(reduce_columns_threads<Op, E>, reduce_columns_ctas<Op, E, LIST>)
    reduce_columns(ks_site site, const __grid_constant__ reduce_shape s, Op op)
{
    typedef typename Op::Source::T T;
    typedef typename Op::State State;
    typedef reduce_pieces<Op, E> Pieces;
    constexpr int U = Pieces::U, G = 4, C = Pieces::C; /* G steps of C results are taken at once */
    State *shared = (State *)ks_dynamic;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const int width = s.width, rows = s.rows, down = threadIdx.x / width, across = threadIdx.x - down * width;
    const int64_t gap = LIST ? 0 : rows * s.reduced.at[0].stride;

    for (uint32_t item = blockIdx.x; item < s.items; item += gridDim.x) {
        const uint32_t tiles = s.items / s.parts, part = s.parts == 1 ? 0 : item / tiles, t = item - part * tiles;
        const int64_t begin = part * s.share;
        const T *in = (const T *)(job.in + s.offset);
        int64_t offset = LIST ? 0 : (begin + down) * s.reduced.at[0].stride;
        int64_t first = 0; /* the thread's first result, at the beginning of the axis */
        int shift = 0;
        bool live = down < rows;
        reduce_tile tile;
        if (s.tiles == 0) {
            const int64_t piece = (int64_t)t * width + across;
            tile.span = width * E;
            tile.results = (int)min((int64_t)tile.span, s.results - (int64_t)t * tile.span);
            live = live && piece * E < s.results;
            if (live) offset += first = reduce_offset(s.kept, piece);
        } else {
            const uint32_t line = t / s.tiles;
            tile.span = (width - 1) * E;
            const int64_t column = (int64_t)(t - line * s.tiles) * tile.span;
            first = reduce_offset(s.kept, line);
            offset += first;
            shift = (int)(offset % E);
            first += column;
            offset += column + across * E - shift;
            tile.results = (int)min((int64_t)tile.span, s.inner - column);
            live = live && across * E - shift < tile.results;
        }
        const int count = live ? (int)max(min(s.share, s.depth - begin), (int64_t)0) : 0;
        typename Op::Acc acc[E / C][C];
#pragma unroll
        for (int e = 0; e < E; e++) /* those in front of a line or behind it are no results: any element will do */
            acc[e / C][e % C] = reduce_begin(
                op, in + first + (s.tiles == 0 ? e : min(max(across * E + e - shift, 0), tile.results - 1)));
        in = ks_one_address(in + offset);
        for (int d = down, n = 0; d < count; d += U * rows, n += U) {
            const Pieces pieces(op, acc, in, rows, count - d,
                                [&](int u) { return LIST ? reduce_offset(s.reduced, begin + d + u * rows) : u * gap; });
            in += U * gap;
#pragma unroll
            for (int u = 0; u < U; u += G) {
                if (d + u * rows >= count) break;
#pragma unroll
                for (int e = 0; e < E; e += C) {
                    typename Op::Source::W x[C][G];
#pragma unroll
                    for (int i = 0; i < C * G; i++) x[i / G][i % G] = pieces.get(op, u + i % G, e + i / G);
                    op.take(acc[e / C], x, n + u);
                }
            }
        }
        /* Here, as logsumexp has no registers to keep it during the loop. */
        tile.first = s.tiles == 0 ? (int64_t)t * tile.span
                                  : t / s.tiles * s.inner + (int64_t)(t - t / s.tiles * s.tiles) * tile.span;
        if (rows == 1 && s.parts == 1) {
            if (live)
                reduce_store_own<Op, E, C>(op, acc, count > 0, (typename Op::Out *)job.out + tile.first + across * E);
            continue;
        }
#pragma unroll
        for (int e = 0; e < E; e++) {
            const int column = across * E + e - shift;
            if (down < rows && column >= 0 && column < tile.span)
                shared[down * tile.span + reduce_seat<E>(column, tile.span)] =
                    op.finish(acc[e / C][e % C], down < count, [&](int n) { return begin + down + (int64_t)n * rows; });
        }
        const int left = reduce_fold(op, shared, rows, tile.span);
        if (s.parts == 1)
            reduce_store<Op, E>(op, tile, shared, left, job.out);
        else
            reduce_last<Op, E>(
                op, tile, shared, [&](int j) { return reduce_down<Op, E>(op, shared, left, tile.span, j); },
                reduce_meeting_of<State>(site, s, t, part, tile.span), job.out);
        __syncthreads();
    }
    ks_leave(site);
}

#endif
