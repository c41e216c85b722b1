/* Rows: what is reduced is contiguous.
 *
 * An item is a row, or a part of one: shape.share vectors of it. `width` threads, a power of 2, go along it, each with
 * several loads in flight. Rows that do not start or end on vectors have an edge there: the first two threads take those.
 * RUNS: a row is a list of runs, each in shape.slots vectors at the most; an item's share is counted in those slots.
 * The CTA that comes last in a row joins its parts, in their order. */
#ifndef KS_REDUCE_ROWS_CUH
#define KS_REDUCE_ROWS_CUH

#include "cuda/reduce/take.cuh"

/* Sends the CTA's part. True in the first thread of the last CTA, which has the row's state. */
template <class Op>
__device__ __forceinline__ bool reduce_last(const Op &op, typename Op::State &state, uint32_t *counters, uint32_t part,
                                            uint32_t parts, typename Op::State *shared)
{
    typedef typename Op::State State;
    __shared__ bool last;
    ks_message *messages = (ks_message *)counters + 1;
    if (threadIdx.x == 0) {
        reduce_message<State>(state).send(messages + part);
        last = atomicAdd(counters, 1u) == parts - 1;
    }
    __syncthreads();
    if (!last) return false;
    state = op.none();
    for (uint32_t p = threadIdx.x; p < parts; p += blockDim.x)
        state = op.join(state, reduce_message<State>::receive(messages + p));
    __syncthreads(); /* those that have waited for different times go on together */
    state = reduce_across(op, state, blockDim.x, shared);
    if (threadIdx.x == 0) *counters = 0;
    return threadIdx.x == 0;
}

/* A part of a row: its vectors, and what its edges are. */
struct reduce_stretch {
    const uint4 *in;
    int count, head, tail; /* head: elements that the first vector has too many; tail: those of the last one, 0: all */
    int64_t place;         /* of the first vector's first element along the row; negative in front of it */
};

template <class T>
__device__ __forceinline__ reduce_stretch reduce_stretch_of(const reduce_shape &s, const void *in, uint32_t row,
                                                            uint32_t part)
{
    constexpr int E = ks_vector<T>::length;
    const int64_t begin = part * s.share;
    reduce_stretch r = {(const uint4 *)in + begin, 0, 0, 0, begin * E};
    if (s.vectors > 0) {
        r.in += row * s.vectors;
        r.count = (int)min(s.share, s.vectors - begin);
        return r;
    }
    const int64_t start = row * s.depth;
    const int skip = (int)(start % E);
    const int64_t all = (skip + s.depth + E - 1) / E;
    r.in += start / E;
    r.count = (int)max(min(s.share, all - begin), (int64_t)0); /* rows differ by a vector */
    r.place -= skip;
    if (part == 0) r.head = skip;
    if (begin + r.count == all) r.tail = (int)((skip + s.depth) % E);
    return r;
}

/* Vectors that are whole. begun: the accumulator. */
template <class Op>
__device__ __forceinline__ typename Op::State reduce_body(const Op &op, const typename Op::Acc &begun,
                                                          const reduce_stretch &whole, int width, int lane_id)
{
    typedef typename Op::Source::T T;
    constexpr int E = ks_vector<T>::length, U = reduce_loads<T>::count;
    const int count = whole.count;
    const int64_t place = whole.place;
    typename Op::Acc acc[1] = {begun};
    const ks_vector<T> missing = reduce_missing(op, acc);
    const uint4 *const in = ks_one_address(whole.in);
    for (int i = lane_id, n = 0; i < count; i += U * width, n += U * E) {
        ks_vector<T> v[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int at = i + u * width;
            v[u] = missing;
            if (at < count) v[u] = reduce_load<T>(in + at);
        }
        reduce_take<Op, U>(op, acc, v, n);
    }
    return op.finish(acc[0], lane_id < count,
                     [&](int n) { return place + lane_id * E + (int64_t)(n / E) * width * E + n % E; });
}

template <class Op>
__device__ __forceinline__ typename Op::State reduce_row(const Op &op, const reduce_shape &s, const void *in,
                                                         uint32_t row, uint32_t part, int lane_id)
{
    typedef typename Op::Source::T T;
    constexpr int E = ks_vector<T>::length;
    const reduce_stretch r = reduce_stretch_of<T>(s, in, row, part);
    const int head = r.head > 0, tail = r.tail > 0 && r.count > head, at = lane_id == 0 && head ? 0 : r.count - 1;
    const bool edge = lane_id == 0 ? head : lane_id == 1 && tail;
    ks_vector<T> v[1]; /* under way while the others are taken */
    if (edge) v[0] = reduce_load<T>(r.in + at);
    typename Op::Acc acc[1] = {reduce_begin(op, (const T *)in + row * s.depth)};
    const reduce_stretch whole = {r.in + head, r.count - head - tail, 0, 0, r.place + head * E};
    const typename Op::State state = reduce_body(op, acc[0], whole, s.width, lane_id);
    if (!edge) return state;
    reduce_trim(v[0], at == 0 ? r.head : 0, at == r.count - 1 && r.tail > 0 ? r.tail : E, reduce_missing(op, acc));
    reduce_take<Op, 1>(op, acc, v, 0);
    /* What is absent in front of the row comes before its first element: where all are the lowest, that has to win. */
    const int64_t place = r.place + (int64_t)at * E;
    return op.join(state, op.finish(acc[0], true, [&](int n) { return max(place + n, (int64_t)0); }));
}

template <class Op>
__device__ __forceinline__ typename Op::State reduce_runs(const Op &op, const reduce_shape &s, const void *in,
                                                          uint32_t row, uint32_t part, int lane_id)
{
    typedef typename Op::Source::T T;
    constexpr int E = ks_vector<T>::length, U = 4;
    const int length = (int)s.inner, all = (int)(s.depth / s.inner * s.slots);
    const int begin = (int)(part * s.share), end = min(begin + (int)s.share, all);
    const int64_t origin = reduce_offset(s.kept, row);
    typename Op::Acc acc[1] = {reduce_begin(op, (const T *)in + origin)};
    const ks_vector<T> missing = reduce_missing(op, acc);
    for (int i = begin + lane_id; i < end; i += U * s.width) {
        ks_vector<T> v[U];
        int from[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            const uint32_t at = i + u * s.width, run = at / s.slots;
            const int64_t start = origin + reduce_offset(s.reduced, run);
            const int slot = at - run * s.slots, skip = (int)(start % E);
            from[u] = skip - slot * E; /* where the run begins, from this vector's first element */
            v[u] = missing;
            if ((int)at < end && from[u] + length > 0) v[u] = reduce_load<T>((const uint4 *)in + start / E + slot);
        }
#pragma unroll
        for (int u = 0; u < U; u++)
            if (from[u] > 0 || from[u] + length < E) reduce_trim(v[u], from[u], from[u] + length, missing);
        reduce_take<Op, U>(op, acc, v, 0);
    }
    return op.finish(acc[0], true, [](int) { return (int64_t)0; });
}

template <class Op, bool RUNS>
__global__ void __launch_bounds__(512, sizeof(typename Op::Source::W) > 4 || (RUNS && reduce_shifts<Op>) ? 1 : 2)
    reduce_rows(ks_site site, const __grid_constant__ reduce_shape s, Op op)
{
    __shared__ typename Op::State shared[KS_WARPS_MAX];
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const void *in = job.in + s.offset;
    const int width = s.width, shift = __ffs(width) - 1, lane_id = threadIdx.x & (width - 1);
    const uint32_t together = blockDim.x >> shift;

    for (uint32_t first = blockIdx.x * together; first < s.items; first += gridDim.x * together) {
        const uint32_t item = first + (threadIdx.x >> shift);
        const bool live = item < s.items; /* the others still take part in shuffles and barriers */
        /* One part each, or one row: no division. */
        const uint32_t row = s.parts == 1 ? item : s.results == 1 ? 0 : item / s.parts, part = item - row * s.parts;
        typename Op::State state = op.none();
        if (live) {
            if constexpr (RUNS)
                state = reduce_runs(op, s, in, row, part, lane_id);
            else
                state = reduce_row(op, s, in, row, part, lane_id);
        }
        state = reduce_across(op, state, width, shared);
        bool done = live && lane_id == 0;
        if (s.parts > 1) {
            uint32_t *counters = ks_counters(site) + (int64_t)row * (REDUCE_MESSAGE * (s.parts + 1));
            done = reduce_last(op, state, counters, part, s.parts, shared);
        }
        if (done) ((typename Op::Out *)job.out)[row] = op.result(state);
        if (width > KS_WARP) __syncthreads();
    }
    ks_leave(site);
}

#endif
