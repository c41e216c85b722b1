/* Segments: the reduced axis is cut at offsets, which are data.
 *
 *   reduce_segment_rows     elements of a segment are contiguous: by a thread, a warp or a CTA
 *   reduce_segment_columns  lines of several results: a thread each
 *   reduce_segment_join     pieces of segments that have several
 *
 * A segment is cut into pieces of 2^shift elements (columns: lines) from its own start, and how many threads take a piece follows from its
 * length: so its bits do not depend on its neighbours, nor on where it begins. Pieces are joined in a fixed order.
 *
 * Work is found without a pass over the lengths. Piece j of segment s, which begins at b, is number s + (b >> shift) + j of its part: no two
 * have the same, since a segment of n elements moves b >> shift on by n >> shift at least, and an s of its own makes up for what is left.
 * A binary search in the offsets finds the segment of a number; numbers that are left out have no work. Of segments with several pieces
 * 2 * (b >> shift) + j is the place of a state in the workspace, and at most one of them begins in a block of 2^shift elements.
 *
 * Offsets that are out of bounds are found by all threads together, lead to no address, and leave a status word. */
#ifndef KS_REDUCE_SEGMENTS_CUH
#define KS_REDUCE_SEGMENTS_CUH

#include "cuda/reduce/take.cuh"

enum {
    REDUCE_SEGMENT_THREADS = 256,
    REDUCE_SEGMENT_LANES = 8,   /* of a part of a warp */
    REDUCE_SEGMENT_ALONE = 16,  /* elements that one thread takes, at most; */
    REDUCE_SEGMENT_PART = 512,  /* a part of a warp; */
    REDUCE_SEGMENT_WARP = 2048, /* a warp */
    REDUCE_SEGMENT_LINES = 8    /* of a thread of columns, in flight at once */
};

/* Elements take two registers each, or their arithmetic does. */
template <class Op>
constexpr bool reduce_segment_is_wide = sizeof(typename Op::Source::W) > 4 || reduce_heavy<Op>;

/* A piece of a segment. All along the axis but for result and state. */
struct reduce_piece {
    int64_t begin, whole; /* of the segment: first element, and how many */
    int64_t from;         /* of the piece, from there */
    int64_t result;       /* the segment's number among all of them */
    int64_t state;        /* of a segment with several: the piece's place in the workspace, lines of states; else -1 */
    int64_t part;
    int length; /* -1: there is none */
};

__device__ __forceinline__ int64_t reduce_segment_offset(const reduce_segments &s, const unsigned char *offsets,
                                                         int64_t i)
{
    return s.wide ? __ldg((const long long *)offsets + i) : (int64_t)__ldg((const int *)offsets + i);
}

/* Each offset against the one before it; of one that an op of nothing cannot take its segment. */
__device__ __forceinline__ void reduce_check_segments(const ks_site &site, const reduce_segments &s,
                                                      const unsigned char *offsets)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i <= s.count;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t at = reduce_segment_offset(s, offsets, i);
        const int64_t before = i > 0 ? reduce_segment_offset(s, offsets, i - 1) : 0;
        if (at < before || at > s.extent || (i == 0 && at != 0) || (i == s.count && at != s.extent))
            ks_refuse(site, KS_REDUCE_SEGMENTS, i);
        else if (s.needs && i > 0 && at == before)
            ks_refuse(site, KS_REDUCE_SEGMENTS, s.count + i);
    }
}

/* The last of the segments from low to high for which number(its offset, it) is at most `wanted`, as far as offsets rise. */
template <class Number>
__device__ __forceinline__ int64_t reduce_find_segment(const reduce_segments &s, const unsigned char *offsets,
                                                       int64_t wanted, int64_t low, int64_t high, Number number)
{
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        const int64_t at = min(max(reduce_segment_offset(s, offsets, middle), (int64_t)0), s.extent);
        if (number(at, middle) <= wanted)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Among all of them, by a warp whose threads want the same: 32 places at a time. */
template <class Number>
__device__ __forceinline__ int64_t reduce_find_together(const reduce_segments &s, const unsigned char *offsets,
                                                        int64_t wanted, Number number)
{
    const int lane_id = (int)threadIdx.x % KS_WARP;
    int64_t low = 0, high = s.count - 1;
    while (low < high) {
        const int64_t step = (high - low + KS_WARP - 1) / KS_WARP, middle = low + (lane_id + 1) * step;
        bool reached = false;
        if (middle <= high) {
            const int64_t at = min(max(reduce_segment_offset(s, offsets, middle), (int64_t)0), s.extent);
            reached = number(at, middle) <= wanted;
        }
        low += __popc(__ballot_sync(0xFFFFFFFFu, reached)) * step;
        high = min(high, low + step - 1);
    }
    return low;
}

/* Of the segment, with all of its elements. */
__device__ __forceinline__ reduce_piece reduce_segment_of(const reduce_segments &s, const unsigned char *offsets,
                                                          int64_t part, int64_t segment)
{
    const int64_t begin = reduce_segment_offset(s, offsets, segment);
    const int64_t end = reduce_segment_offset(s, offsets, segment + 1);
    const bool good = begin >= 0 && begin <= end && end <= s.extent;
    reduce_piece p = {begin, good ? end - begin : -1, 0, part * s.count + segment, -1, part, -1};
    if (p.whole > (int64_t)1 << s.shift) p.state = part * s.states + 2 * (begin >> s.shift);
    return p;
}

/* Which segment the piece of that number is of. */
struct reduce_segment_number {
    int shift;
    __device__ __forceinline__ int64_t operator()(int64_t at, int64_t i) const
    {
        return i + (at >> shift);
    }
};

/* The piece of that number, whose segment is one from low to high. */
__device__ __forceinline__ reduce_piece reduce_piece_of(const reduce_segments &s, const unsigned char *offsets,
                                                        int64_t part, int64_t slot, int64_t low, int64_t high)
{
    const int64_t segment = reduce_find_segment(s, offsets, slot, low, high, reduce_segment_number{s.shift});
    reduce_piece p = reduce_segment_of(s, offsets, part, segment);
    if (p.whole < 0) return p;
    const int64_t piece = slot - segment - (p.begin >> s.shift), most = (int64_t)1 << s.shift;
    p.from = piece << s.shift;
    if (piece < 0 || (piece > 0 && p.from >= p.whole)) return p;
    p.length = (int)min(p.whole - p.from, most);
    if (p.state >= 0) p.state += piece;
    return p;
}

/* Of any segment. */
__device__ __forceinline__ reduce_piece reduce_piece_of(const reduce_segments &s, const unsigned char *offsets,
                                                        int64_t number)
{
    const int64_t part = s.outer == 1 ? 0 : number / s.slots;
    return reduce_piece_of(s, offsets, part, number - part * s.slots, 0, s.count - 1);
}

/* Of a CTA's threads each its own, from number `first` on: numbers rise by one from a segment to the next at least, so those of one part
 * are of the first one's segment, or of one of as many behind it as numbers lie between. */
__device__ __forceinline__ reduce_piece reduce_piece_near(const reduce_segments &s, const unsigned char *offsets,
                                                          int64_t first, bool wanted)
{
    const int64_t number = first + (int)threadIdx.x, part = s.outer == 1 ? 0 : first / s.slots;
    const int64_t slot = first - part * s.slots;
    const int64_t low = reduce_find_together(s, offsets, slot, reduce_segment_number{s.shift});
    if (!wanted) return {0, 0, 0, 0, -1, 0, -1};
    if (slot + (int)threadIdx.x >= s.slots) return reduce_piece_of(s, offsets, number); /* of a later part */
    return reduce_piece_of(s, offsets, part, slot + (int)threadIdx.x, low, min(low + (int)threadIdx.x, s.count - 1));
}

/* first: of the segment; any: it has one. */
template <class Op>
__device__ __forceinline__ typename Op::Acc reduce_begin_segment(const Op &op, const typename Op::Source::T *first,
                                                                 bool any)
{
    if constexpr (reduce_shifts<Op>)
        return op.start_at(any ? reduce_get(op, *first) : typename Op::Source::W());
    else
        return op.start();
}

template <class Op>
__device__ __forceinline__ void reduce_finish_segment(const Op &op, const reduce_segments &s, const reduce_piece &p,
                                                      const typename Op::State &state, unsigned char *out,
                                                      int64_t column)
{
    Op own = op; /* whose rule is of one element */
    own.rule.count = (double)p.whole;
    own.rule.excess = op.rule.excess * (uint64_t)p.whole;
    ((typename Op::Out *)out)[p.result * s.inner + column] = own.result(state);
}

/* --- contiguous segments --------------------------------------------------------------------------------------------- */

/* A vector of elements from number `at` on, wherever that is; `left`: how many are wanted. */
template <class T>
__device__ __forceinline__ ks_vector<T> reduce_load_across(const uint4 *in, int64_t at, int left)
{
    constexpr int E = ks_vector<T>::length;
    const int skip = (int)(at & (E - 1)), bytes = skip * (int)sizeof(T);
    ks_vector<T> v;
    v.raw = __ldg(in + at / E);
    if (skip == 0) return v;
    const uint4 next = left > E - skip ? __ldg(in + at / E + 1) : make_uint4(0, 0, 0, 0);
    uint32_t word[8] = {v.raw.x, v.raw.y, v.raw.z, v.raw.w, next.x, next.y, next.z, next.w};
    if (bytes & 8) {
#pragma unroll
        for (int i = 0; i < 6; i++) word[i] = word[i + 2];
    }
    if (bytes & 4) {
#pragma unroll
        for (int i = 0; i < 5; i++) word[i] = word[i + 1];
    }
    if (sizeof(T) < 4) {
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = __funnelshift_r(word[i], word[i + 1], (uint32_t)(bytes & 3) * 8);
    }
    v.raw = make_uint4(word[0], word[1], word[2], word[3]);
    return v;
}

/* A thread's elements of a piece: a vector in every `width`, from the piece's start. */
template <class Op>
__device__ __forceinline__ typename Op::State reduce_segment_piece(const Op &op, const void *in,
                                                                   const reduce_segments &s, const reduce_piece &p,
                                                                   int width, int lane_id)
{
    typedef typename Op::Source Source;
    typedef typename Source::T T;
    constexpr int E = ks_vector<T>::length, U = 4, LEAF = reduce_segment_is_wide<Op> ? 8 : 16;
    constexpr int G = E * U <= LEAF ? U : E < LEAF ? LEAF / E : 1; /* vectors of a leaf */
    const int64_t start = p.part * s.extent + p.begin;
    typename Op::Acc acc[1] = {reduce_begin_segment(op, (const T *)in + start, p.length > 0)};
    const typename Source::W absent = reduce_absent(op, acc[0]);
    for (int first = lane_id * E, n = 0; first < p.length; first += U * width * E, n += U * E) {
        ks_vector<T> v[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            const int at = first + u * width * E;
            v[u].raw = make_uint4(0, 0, 0, 0);
            if (at < p.length) v[u] = reduce_load_across<T>((const uint4 *)in, start + p.from + at, p.length - at);
            reduce_order_words(op, &v[u].raw);
        }
#pragma unroll
        for (int u = 0; u < U; u += G) {
            typename Source::W x[1][G * E];
#pragma unroll
            for (int i = 0; i < G * E; i++) {
                const int at = first + (u + i / E) * width * E + i % E;
                x[0][i] = at < p.length ? Source::get(v[u + i / E].element[i % E], op.rule) : absent;
            }
            op.take(acc, x, n + u * E);
        }
    }
    return op.finish(acc[0], lane_id * E < p.length,
                     [&](int n) { return p.begin + p.from + lane_id * E + (int64_t)(n / E) * width * E + n % E; });
}

/* Each of the first `together` threads looks for a piece of its own, and takes it where it is short. Then all warps take those of some
 * length, four at a time each, then the longer ones one at a time, and at last the CTA the longest. */
template <class Op>
__global__ void __launch_bounds__(REDUCE_SEGMENT_THREADS, reduce_segment_is_wide<Op> ? 1 : 3)
    reduce_segment_rows(ks_site site, const __grid_constant__ reduce_segments s, Op op)
{
    __shared__ typename Op::State shared[KS_WARPS_MAX];
    __shared__ reduce_piece pieces[REDUCE_SEGMENT_THREADS];
    __shared__ int listed[3][REDUCE_SEGMENT_THREADS], counts[3]; /* of parts of a warp, of warps, of the CTA */
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const unsigned char *const offsets = job.in + s.offsets;
    const void *const in = job.in + s.offset;
    typename Op::State *const states = (typename Op::State *)(void *)ks_workspace(site);
    const int thread = (int)threadIdx.x;
    reduce_check_segments(site, s, offsets);
    for (int64_t first = (int64_t)blockIdx.x * s.together; first < s.items; first += (int64_t)gridDim.x * s.together) {
        if (thread < 3) counts[thread] = 0;
        __syncthreads();
        reduce_piece own = reduce_piece_near(s, offsets, first, thread < s.together && first + thread < s.items);
        if (own.length > REDUCE_SEGMENT_ALONE) {
            const int level = (own.length > REDUCE_SEGMENT_PART) + (own.length > REDUCE_SEGMENT_WARP);
            pieces[thread] = own;
            listed[level][atomicAdd(&counts[level], 1)] = thread;
            own.length = -1;
        }
        __syncthreads();
#pragma unroll 1
        for (int level = -1; level < 3; level++) { /* one body for all */
            const int width = level < 0    ? 1
                              : level == 0 ? (int)REDUCE_SEGMENT_LANES
                              : level == 1 ? (int)KS_WARP
                                           : (int)REDUCE_SEGMENT_THREADS;
            const int groups = REDUCE_SEGMENT_THREADS / width, lane_id = thread & (width - 1);
            const int count = level < 0 ? groups : counts[level];
#pragma unroll 1
            for (int next = 0; next < count; next += groups) {
                const int place = next + thread / width; /* groups without one still take part in shuffles */
                if (level >= 0 && place < count) own = pieces[listed[level][place]];
                if (place >= count) own.length = -1;
                typename Op::State state = reduce_segment_piece(op, in, s, own, width, lane_id);
                state = reduce_across(op, state, width, shared);
                if (lane_id == 0 && own.length >= 0) {
                    if (own.state < 0)
                        reduce_finish_segment(op, s, own, state, job.out, 0);
                    else
                        states[own.state] = state;
                }
                if (width > KS_WARP) __syncthreads(); /* `shared` is free */
            }
        }
        __syncthreads();
    }
    if (!s.joins) ks_leave<true>(site);
}

/* --- lines ----------------------------------------------------------------------------------------------------------- */

template <class Op>
__global__ void __launch_bounds__(REDUCE_SEGMENT_THREADS, 2)
    reduce_segment_columns(ks_site site, const __grid_constant__ reduce_segments s, Op op)
{
    typedef typename Op::Source Source;
    typedef typename Source::T T;
    constexpr int N = REDUCE_SEGMENT_LINES;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const unsigned char *const offsets = job.in + s.offsets;
    typename Op::State *const states = (typename Op::State *)(void *)ks_workspace(site);
    const int lane_id = (int)threadIdx.x & (s.width - 1);
    reduce_check_segments(site, s, offsets);
    for (int64_t first = (int64_t)blockIdx.x * s.together; first < s.items; first += (int64_t)gridDim.x * s.together) {
        const int64_t item = first + (int)threadIdx.x / s.width, number = s.tiles == 1 ? item : item / s.tiles;
        const int64_t column = (item - number * s.tiles) * s.width + lane_id;
        if (item >= s.items || column >= s.inner) continue;
        const reduce_piece p = reduce_piece_of(s, offsets, number);
        if (p.length < 0) continue;
        const T *const in = (const T *)(job.in + s.offset) + (p.part * s.extent + p.begin) * s.inner + column;
        typename Op::Acc acc[1] = {reduce_begin_segment(op, in, p.length > 0)};
        const typename Source::W absent = reduce_absent(op, acc[0]);
        for (int n = 0; n < p.length; n += N) {
            typename Source::W x[1][N];
#pragma unroll
            for (int i = 0; i < N; i++)
                x[0][i] = n + i < p.length ? reduce_get(op, in[(p.from + n + i) * s.inner]) : absent;
            op.take(acc, x, n);
        }
        const typename Op::State state = op.finish(acc[0], p.length > 0, [&](int n) { return p.begin + p.from + n; });
        if (p.state < 0)
            reduce_finish_segment(op, s, p, state, job.out, column);
        else
            states[p.state * s.inner + column] = state;
    }
    if (!s.joins) ks_leave<true>(site);
}

/* --- joining --------------------------------------------------------------------------------------------------------- */

/* The segment with several pieces that begins in block `block` of a part, the last one that does. whole -1: there is none. */
__device__ __forceinline__ reduce_piece reduce_pieces_of(const reduce_segments &s, const unsigned char *offsets,
                                                         int64_t number)
{
    const int64_t part = s.outer == 1 ? 0 : number / s.blocks, block = number - part * s.blocks;
    const int64_t segment =
        reduce_find_segment(s, offsets, block, 0, s.count - 1, [&](int64_t at, int64_t) { return at >> s.shift; });
    reduce_piece p = reduce_segment_of(s, offsets, part, segment);
    if (p.state < 0 || p.begin >> s.shift != block) p.whole = -1;
    return p;
}

/* Of each column `width` threads side by side have one, and the others every so many of its pieces. */
template <class Op>
__global__ void __launch_bounds__(REDUCE_SEGMENT_THREADS, 2)
    reduce_segment_join(ks_site site, const __grid_constant__ reduce_segments s, Op op)
{
    typedef typename Op::State State;
    __shared__ State shared[REDUCE_SEGMENT_THREADS];
    __shared__ reduce_piece found[REDUCE_SEGMENT_THREADS];
    __shared__ int64_t tile[REDUCE_SEGMENT_THREADS];
    __shared__ int count;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const State *const states = (const State *)(const void *)ks_workspace(site);
    const int thread = (int)threadIdx.x, lane_id = thread & (s.width - 1), group = thread / s.width;
    const int groups = REDUCE_SEGMENT_THREADS / s.width;
    for (int64_t first = (int64_t)blockIdx.x * s.together; first < s.items; first += (int64_t)gridDim.x * s.together) {
        if (thread == 0) count = 0;
        __syncthreads();
        const int64_t item = first + thread;
        if (thread < s.together && item < s.items) {
            const int64_t number = s.tiles == 1 ? item : item / s.tiles;
            const reduce_piece p = reduce_pieces_of(s, job.in + s.offsets, number);
            if (p.whole >= 0) {
                const int place = atomicAdd(&count, 1);
                found[place] = p;
                tile[place] = item - number * s.tiles;
            }
        }
        __syncthreads();
        for (int i = 0; i < count; i++) {
            const reduce_piece p = found[i];
            const int64_t column = tile[i] * s.width + lane_id, pieces = ((p.whole - 1) >> s.shift) + 1;
            State state = op.none();
            for (int64_t at = group; at < pieces && column < s.inner; at += groups)
                state = op.join(state, reduce_read(states + (p.state + at) * s.inner + column));
            shared[thread] = state;
            __syncthreads();
            for (int half = groups / 2; half > 0; half /= 2) {
                if (group < half) shared[thread] = op.join(shared[thread], shared[thread + half * s.width]);
                __syncthreads();
            }
            if (group == 0 && column < s.inner) reduce_finish_segment(op, s, p, shared[thread], job.out, column);
        }
        __syncthreads();
    }
    ks_leave<true>(site);
}

#endif
