/* Segments: the reduced axis is cut at offsets, which are data.
 *
 *   reduce_segment_rows     elements of a segment are contiguous: by a thread, eight, a warp or a CTA
 *   reduce_segment_columns  lines of several results: a team of a thread for each column, a warp's teams or a CTA's
 *   reduce_segment_join     pieces of segments that have several
 *
 * CTAs go through rounds: of a slot for each of some warps, or of `together` first pieces. Very short ones are taken at once, several by each
 * thread, whose loads are all under way before the first element is looked at; others are listed by their lengths. */
#ifndef KS_REDUCE_SEGMENTS_CUH
#define KS_REDUCE_SEGMENTS_CUH

#include "cuda/reduce/segments/pieces.cuh"

enum {
    REDUCE_SEGMENT_FEW = 4,           /* elements or lines of a piece that is very short */
    REDUCE_SEGMENT_LANES = 8,         /* of a part of a warp */
    REDUCE_SEGMENT_ALONE_BYTES = 128, /* of elements that one thread takes, at most; */
    REDUCE_SEGMENT_PART = 512,        /* elements of a part of a warp; */
    REDUCE_SEGMENT_WARP = 2048,       /* of a warp */
    REDUCE_SEGMENT_ALONE_LINES = 32,  /* of a team; */
    REDUCE_SEGMENT_TEAM_LINES = 64,   /* of each team of a warp */
    REDUCE_SEGMENT_LINES = 8          /* of a thread of columns, in flight at once */
};

/* Elements take two registers each, or their arithmetic does. */
template <class Op>
constexpr bool reduce_segment_is_wide = sizeof(typename Op::Source::W) > 4 || reduce_heavy<Op>;

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

/* Of a segment of `whole` elements. */
template <class Op>
__device__ __forceinline__ void reduce_finish_segment(const Op &op, int64_t whole, const typename Op::State &state,
                                                      void *out, int64_t at)
{
    Op own = op; /* whose rule is of one element */
    own.rule.count = (double)whole;
    own.rule.excess = op.rule.excess * (uint64_t)whole;
    ((typename Op::Out *)out)[at] = own.result(state);
}

/* --- very short segments --------------------------------------------------------------------------------------------- */

/* The state of a very short segment, whose elements are x. */
template <class Op>
__device__ __forceinline__ typename Op::State reduce_take_few(const Op &op, int64_t begin, int length,
                                                              const typename Op::Source::T (&x)[REDUCE_SEGMENT_FEW])
{
    typename Op::Acc acc[1] = {reduce_begin_segment(op, x, length > 0)};
    const typename Op::Source::W absent = reduce_absent(op, acc[0]);
    typename Op::Source::W w[1][REDUCE_SEGMENT_FEW];
#pragma unroll
    for (int i = 0; i < REDUCE_SEGMENT_FEW; i++) w[0][i] = i < length ? reduce_get(op, x[i]) : absent;
    op.take(acc, w, 0);
    return op.finish(acc[0], length > 0, [&](int n) { return begin + n; });
}

/* K first pieces of each team: very short ones are taken, others listed, and all offsets looked at. */
template <int K, class Op>
__device__ __forceinline__ void reduce_take_first(const ks_site &site, const ks_job_sides &job,
                                                  const reduce_segments &s, const Op &op, const reduce_round &round,
                                                  reduce_lists &lists)
{
    typedef typename Op::Source::T T;
    constexpr int FEW = REDUCE_SEGMENT_FEW;
    const int team = (int)threadIdx.x / s.width, teams = REDUCE_SEGMENT_THREADS / s.width;
    const int lane_id = (int)threadIdx.x & (s.width - 1);
    reduce_place place[K];
    int length[K]; /* of the first piece; -1: there is none */
    T x[K][FEW];
#pragma unroll
    for (int k = 0; k < K; k++) /* all offsets at once: of a team that has none those of the round's first item */
        place[k] = reduce_place_of(s, job.in + s.offsets, round, k * teams + team);
#pragma unroll
    for (int k = 0; k < K; k++) {
        const reduce_place &p = place[k];
        const int64_t column = p.tile * s.width + lane_id;
        const T *const in = (const T *)(job.in + s.offset) + (p.part * s.extent + p.begin) * s.inner + column;
        length[k] = -1;
        if (p.there && column < s.inner) length[k] = reduce_segment_of(s, p.number, p.part, p.begin, p.end).length;
#pragma unroll
        for (int i = 0; i < FEW; i++) {
            x[k][i] = T(); /* else the registers would be those of the round before, and kept for it */
            if (i < length[k] && length[k] <= FEW) x[k][i] = __ldg(in + i * s.inner);
        }
    }
#pragma unroll
    for (int k = 0; k < K; k++) { /* behind the loads */
        const reduce_place &p = place[k];
        if (!p.there || lane_id > 0) continue;
        if (p.tile == 0 && p.part == 0) reduce_check_segment(site, s, p.number, p.begin, p.end);
        if (length[k] > FEW) reduce_list_piece(round, lists, length[k], k * teams + team);
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (length[k] < 0 || length[k] > FEW) continue;
        const typename Op::State state = reduce_take_few(op, place[k].begin, length[k], x[k]);
        const int64_t column = place[k].tile * s.width + lane_id;
        reduce_finish_segment(op, length[k], state, job.out, place[k].number * s.inner + column);
    }
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

/* Pieces that are listed: a thread's, then those of parts of a warp, of warps, and at last the CTA's. */
template <class Op>
__global__ void __launch_bounds__(REDUCE_SEGMENT_THREADS, reduce_segment_is_wide<Op> ? 1 : 3)
    reduce_segment_rows(ks_site site, const __grid_constant__ reduce_segments given, Op op)
{
    __shared__ typename Op::State shared[KS_WARPS_MAX];
    __shared__ reduce_lists lists;
    constexpr int ALONE = REDUCE_SEGMENT_ALONE_BYTES / (int)sizeof(typename Op::Source::T);
    reduce_round round = {0, false, {ALONE, REDUCE_SEGMENT_PART, REDUCE_SEGMENT_WARP}};
    reduce_segments s = given;
    s.inner = s.tiles = s.width = 1; /* as they are: constants take no registers */
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const unsigned char *const offsets = job.in + s.offsets;
    const void *const in = job.in + s.offset;
    typename Op::State *const states = (typename Op::State *)(void *)ks_workspace(site);
    const int thread = (int)threadIdx.x;
    for (int64_t i = blockIdx.x; i < s.rounds; i += gridDim.x) {
        reduce_begin_round(s, i, round, lists);
        if (round.later)
            reduce_list_later(s, offsets, round, lists);
        else
            reduce_take_first<REDUCE_SEGMENT_OWN>(site, job, s, op, round, lists);
        __syncthreads();
#pragma unroll 1
        for (int level = 0; level < REDUCE_SEGMENT_LEVELS; level++) { /* one body for all */
            const int width = level == 0   ? 1
                              : level == 1 ? (int)REDUCE_SEGMENT_LANES
                              : level == 2 ? (int)KS_WARP
                                           : (int)REDUCE_SEGMENT_THREADS;
            const int groups = REDUCE_SEGMENT_THREADS / width, lane_id = thread & (width - 1);
            const int count = lists.counts[level];
#pragma unroll 1
            for (int next = 0; next < count; next += groups) {
                const int place = next + thread / width; /* groups without one still take part in shuffles */
                reduce_piece own = reduce_no_piece();
                if (place < count) own = reduce_listed_piece(s, offsets, round, lists, lists.at[level][place]);
                typename Op::State state = reduce_segment_piece(op, in, s, own, width, lane_id);
                state = reduce_across(op, state, width, shared);
                if (lane_id == 0 && own.length >= 0) {
                    if (own.state < 0)
                        reduce_finish_segment(op, own.whole, state, job.out, own.result);
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

/* A thread's lines of a piece: one in every `teams`, from number `team` on, of the column where `in` has the segment's first one. */
template <class Op>
__device__ __forceinline__ typename Op::State
reduce_segment_lines(const Op &op, const reduce_segments &s, const reduce_piece &p, const typename Op::Source::T *in,
                     int team, int teams)
{
    typedef typename Op::Source Source;
    constexpr int N = REDUCE_SEGMENT_LINES;
    typename Op::Acc acc[1] = {reduce_begin_segment(op, in, p.length > 0)};
    const typename Source::W absent = reduce_absent(op, acc[0]);
    const int64_t step = teams * s.inner;
    in += (p.from + team) * s.inner;
    for (int line = team, n = 0; line < p.length; line += N * teams, n += N, in += N * step) {
        typename Source::W x[1][N];
#pragma unroll
        for (int i = 0; i < N; i++)
            x[0][i] = line + i * teams < p.length ? reduce_get(op, __ldg(in + i * step)) : absent;
        op.take(acc, x, n);
    }
    return op.finish(acc[0], team < p.length, [&](int n) { return p.begin + p.from + team + (int64_t)n * teams; });
}

/* Of teams of `width` threads that are `threads` together: the first one gets what all have. shared: room for a team of each warp. */
template <class Op>
__device__ __forceinline__ typename Op::State reduce_across_teams(const Op &op, typename Op::State state, int width,
                                                                  int threads, typename Op::State *shared)
{
    const int warp = (int)threadIdx.x / KS_WARP, lane_id = (int)threadIdx.x % KS_WARP;
    if (threads == width) return state;
    for (int distance = KS_WARP / 2; distance >= width; distance /= 2)
        state = op.join(state, ks_shuffle(state, distance));
    if (threads == KS_WARP) return state;
    if (lane_id < width) shared[warp * width + lane_id] = state;
    __syncthreads();
    for (int w = 1; w < REDUCE_SEGMENT_WARPS && (int)threadIdx.x < width; w++)
        state = op.join(state, shared[w * width + lane_id]);
    __syncthreads();
    return state;
}

/* That registers are for, of an SM. */
template <class Op>
constexpr int reduce_column_ctas = !reduce_segment_is_wide<Op>    ? 3
                                   : sizeof(typename Op::Acc) > 8 ? 1
                                                                  : 2;

/* Pieces that are listed: of teams, of the teams of a warp, and at last of all teams of the CTA. */
template <class Op>
__global__ void __launch_bounds__(REDUCE_SEGMENT_THREADS, reduce_column_ctas<Op>)
    reduce_segment_columns(ks_site site, const __grid_constant__ reduce_segments s, Op op)
{
    typedef typename Op::Source::T T;
    __shared__ typename Op::State shared[REDUCE_SEGMENT_THREADS];
    __shared__ reduce_lists lists;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const unsigned char *const offsets = job.in + s.offsets;
    typename Op::State *const states = (typename Op::State *)(void *)ks_workspace(site);
    const int thread = (int)threadIdx.x, lane_id = thread & (s.width - 1), in_warp = KS_WARP / s.width;
    reduce_round round = {0, false, {REDUCE_SEGMENT_ALONE_LINES, REDUCE_SEGMENT_TEAM_LINES * in_warp, INT32_MAX}};
    for (int64_t i = blockIdx.x; i < s.rounds; i += gridDim.x) {
        reduce_begin_round(s, i, round, lists);
        if (round.later)
            reduce_list_later(s, offsets, round, lists);
        else
            reduce_take_first<REDUCE_SEGMENT_OWN_LINES>(site, job, s, op, round, lists);
        __syncthreads();
#pragma unroll 1
        for (int level = 0; level < REDUCE_SEGMENT_LEVELS - 1; level++) { /* one body for all */
            const int teams = level == 0 ? 1 : level == 1 ? in_warp : in_warp * (int)REDUCE_SEGMENT_WARPS;
            const int threads = teams * s.width, groups = REDUCE_SEGMENT_THREADS / threads;
            const int count = lists.counts[level];
#pragma unroll 1
            for (int next = 0; next < count; next += groups) {
                const int place = next + thread / threads, at = place < count ? lists.at[level][place] : 0;
                const int64_t item = round.first + at, tile = item - reduce_item_number(s, item) * s.tiles;
                const int64_t column = tile * s.width + lane_id;
                reduce_piece own = reduce_no_piece(); /* teams without one still take part in shuffles */
                if (place < count && column < s.inner) own = reduce_listed_piece(s, offsets, round, lists, at);
                const T *const in = (const T *)(job.in + s.offset) + (own.part * s.extent + own.begin) * s.inner;
                const int team = (thread & (threads - 1)) / s.width;
                typename Op::State state = reduce_segment_lines(op, s, own, in + column, team, teams);
                state = reduce_across_teams(op, state, s.width, threads, shared);
                if (team > 0 || own.length < 0) continue;
                if (own.state < 0)
                    reduce_finish_segment(op, own.whole, state, job.out, own.result * s.inner + column);
                else
                    states[own.state * s.inner + column] = state;
            }
        }
        __syncthreads();
    }
    if (!s.joins) ks_leave<true>(site);
}

/* --- joining --------------------------------------------------------------------------------------------------------- */

/* The segment with several pieces that begins in block `number` of all parts, the last one that does; for a warp whose threads want the same.
 * whole -1: there is none. */
__device__ __forceinline__ reduce_piece reduce_pieces_of(const reduce_segments &s, const unsigned char *offsets,
                                                         int64_t number)
{
    const int64_t part = s.outer == 1 ? 0 : number / s.blocks, block = number - part * s.blocks;
    reduce_piece p = reduce_first_piece(s, offsets, part * s.count + reduce_find_segment(s, offsets, block));
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
    __shared__ reduce_piece found[REDUCE_SEGMENT_WARPS];
    __shared__ int64_t tile[REDUCE_SEGMENT_WARPS];
    __shared__ int count;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const State *const states = (const State *)(const void *)ks_workspace(site);
    const int thread = (int)threadIdx.x, lane_id = thread & (s.width - 1), group = thread / s.width;
    const int groups = REDUCE_SEGMENT_THREADS / s.width;
    for (int64_t first = (int64_t)blockIdx.x * s.together; first < s.items; first += (int64_t)gridDim.x * s.together) {
        if (thread == 0) count = 0;
        __syncthreads();
        const int64_t item = first + thread / KS_WARP;
        if (thread / KS_WARP < s.together && item < s.items) {
            const int64_t number = reduce_item_number(s, item);
            const reduce_piece p = reduce_pieces_of(s, job.in + s.offsets, number);
            if (p.whole >= 0 && thread % KS_WARP == 0) {
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
            if (group == 0 && column < s.inner)
                reduce_finish_segment(op, p.whole, shared[thread], job.out, p.result * s.inner + column);
        }
        __syncthreads();
    }
    ks_leave<true>(site);
}

#endif
