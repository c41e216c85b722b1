/* Planes: results lie side by side, and the rows along the innermost reduced axis follow each other without a gap, so that all of
 * them are one stretch of memory, a plane. A list of reduced axes has many planes for each line of results.
 *
 * A period is the fewest vectors that are whole rows together: shape.width threads stand side by side in one, and shape.rows
 * such groups take the periods of a plane in turn. So a thread's vectors hold the same columns in each period, whatever the
 * length of a row, and every access is a stretch of whole lines of memory.
 *
 * Planes that do not start on vectors shift the columns of a thread, each by a number of its own. Where the plane after it is
 * shifted otherwise, shape.classes planes further on the shift is the same again: a CTA takes the planes class by class, and
 * hands the states over to their columns behind each class.
 *
 * An item is a line, or a part of one: shape.share planes of a list, or shape.share periods of the only plane. */
#ifndef KS_REDUCE_PLANES_CUH
#define KS_REDUCE_PLANES_CUH

#include "cuda/reduce/columns.cuh"

/* What an item is: planes of one size, or a stretch of the only one. */
struct reduce_plane_item {
    int64_t line, first; /* first: plane, or period */
    int planes;
    int64_t elements, origin; /* of a plane; the first element of plane 0, or of the stretch */
};

__device__ __forceinline__ reduce_plane_item reduce_plane_item_of(const reduce_shape &s, uint32_t item, int period)
{
    const uint32_t line = s.parts == 1 ? item : item / s.parts, part = item - line * s.parts;
    reduce_plane_item a = {line, part * s.share, 1, s.plane, reduce_offset(s.kept, line)};
    if (s.steps > 1) {
        a.planes = (int)max(min(s.share, s.steps - a.first), (int64_t)0);
    } else {
        a.origin += a.first * period;
        a.elements = max(min(s.share * period, s.plane - a.first * period), (int64_t)0);
    }
    return a;
}

/* A thread's vectors of planes that are shifted alike: count of them in each, `step` apart from `first` on. */
struct reduce_plane_strip {
    int64_t elements;      /* of a plane */
    int first, step, last; /* last: vector of a plane */
    int shift, tail;       /* elements that the first vector has too many; that the last one has, 0: all */
    int count;

    __device__ __forceinline__ reduce_plane_strip(int64_t start, int64_t all, int length, int at, int together)
        : elements(all), first(at), step(together)
    {
        shift = (int)(start % length);
        tail = (int)((shift + elements) % length);
        last = (int)((shift + elements + length - 1) / length) - 1;
        count = at >= 0 && at <= last && elements > 0 ? (last - at) / together + 1 : 0;
    }
};

/* What a thread's columns are: those of vector `across` of a period. row: of the plane's first element, along the axis. */
struct reduce_plane_columns {
    int across, period, inner;
    int64_t row;
};

/* Takes `planes` planes, of which places[] says the vector that the first element lies in. n: vectors taken before. */
template <class Op, int E, int C>
__device__ __forceinline__ void reduce_plane_take(const Op &op, typename Op::Acc (&acc)[E / C][C], const uint4 *in,
                                                  const int64_t *places, int planes, const reduce_plane_strip &strip)
{
    typedef typename Op::Source Source;
    typedef typename Source::T T;
    constexpr int U = E == 8 ? 4 : reduce_loads<T>::count, G = 4;
    const ks_vector<T> missing = reduce_missing(op, acc);
    const int all = planes * strip.count;
    int plane = 0, at = strip.first;
    for (int n = 0; n < all; n += U) {
        ks_vector<T> v[U];
        int place[U];
#pragma unroll
        for (int u = 0; u < U; u++) {
            v[u] = missing;
            place[u] = at;
            if (n + u < all) v[u] = reduce_load<T>(in + places[plane] + at);
            at += strip.step;
            if (at > strip.last) at = strip.first, plane++;
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            const bool head = place[u] == 0 && strip.shift > 0, tail = place[u] == strip.last && strip.tail > 0;
            if (head || tail) reduce_trim(v[u], head ? strip.shift : 0, tail ? strip.tail : E, missing);
            reduce_order_words(op, &v[u].raw);
        }
#pragma unroll
        for (int u = 0; u < U; u += G) {
            if (n + u >= all) break;
#pragma unroll
            for (int e = 0; e < E; e += C) {
                typename Source::W x[C][G];
#pragma unroll
                for (int i = 0; i < C * G; i++) x[i / G][i % G] = Source::get(v[u + i % G].element[e + i / G], op.rule);
                op.take(acc[e / C], x, n + u);
            }
        }
    }
}

/* The states of a thread to their places in its group's period. */
template <class Op, int E, int C>
__device__ __forceinline__ void reduce_plane_hand_over(const Op &op, const typename Op::Acc (&acc)[E / C][C],
                                                       typename Op::State *group, const reduce_plane_strip &strip,
                                                       const reduce_plane_columns &own)
{
#pragma unroll
    for (int e = 0; e < E; e++) {
        const int64_t flat = (int64_t)strip.first * E + e - strip.shift; /* of the first vector's element */
        const int least = flat < 0;                                      /* which is the plane's from there on */
        const bool any = strip.count > least && flat + (int64_t)least * strip.step * E < strip.elements;
        const typename Op::State state = op.finish(acc[e / C][e % C], any, [&](int n) {
            return own.row + (flat + (int64_t)max(n, least) * strip.step * E) / own.inner;
        });
        int column = own.across * E + e - strip.shift;
        if (column < 0) column += own.period;
        const int seat = reduce_seat<E>(column, own.period);
        group[seat] = op.join(group[seat], state);
    }
}

/* The state of a column, which stands several times in a period. */
template <class Op, int E>
__device__ __forceinline__ typename Op::State reduce_plane_column(const Op &op, const typename Op::State *shared,
                                                                  int groups, int period, int inner, int column)
{
    typename Op::State state = op.none();
    for (int at = column; at < period; at += inner)
        state = op.join(state, reduce_down<Op, E>(op, shared, groups, period, at));
    return state;
}

/* CTAs that an SM's registers have to hold. */
template <class Op>
constexpr int reduce_planes_ctas = Op::PLACES && sizeof(typename Op::Source::W) == 4
                                       ? 3
                                       : reduce_columns_ctas<Op, ks_vector<typename Op::Source::T>::length, true>;

template <class Op>
__global__ void __launch_bounds__(reduce_columns_threads<Op, ks_vector<typename Op::Source::T>::length>,
                                  reduce_planes_ctas<Op>)
    reduce_planes(ks_site site, const __grid_constant__ reduce_shape s, Op op)
{
    typedef typename Op::Source::T T;
    typedef typename Op::State State;
    constexpr int E = ks_vector<T>::length, C = E < 4 ? E : 4;
    State *const shared = (State *)ks_dynamic;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const int width = s.width, groups = s.rows, period = width * E, inner = (int)s.inner;
    const int down = threadIdx.x / width, across = threadIdx.x - down * width;
    int64_t *const places = (int64_t *)((unsigned char *)ks_dynamic + (size_t)groups * period * sizeof(State));
    const uint4 *const in = ks_one_address((const uint4 *)(job.in + s.offset));

    for (uint32_t item = blockIdx.x; item < s.items; item += gridDim.x) {
        const reduce_plane_item a = reduce_plane_item_of(s, item, period);
        for (int k = threadIdx.x; k < groups * period; k += blockDim.x) shared[k] = op.none();
        for (int c = 0; c < s.classes && c < a.planes; c++) {
            const int planes = (a.planes - c + s.classes - 1) / s.classes;
            const auto start = [&](int i) {
                return a.origin + (s.steps > 1 ? reduce_offset(s.reduced, a.first + c + (int64_t)i * s.classes) : 0);
            };
            const reduce_plane_strip strip(start(0), a.elements, E, down < groups ? (int)threadIdx.x : -1,
                                           groups * width);
            typename Op::Acc acc[E / C][C];
#pragma unroll
            for (int e = 0; e < E; e++) {
                const int column = across * E + e - strip.shift;
                acc[e / C][e % C] = reduce_begin(op, (const T *)in + reduce_offset(s.kept, a.line) +
                                                         (column < 0 ? column + period : column) % inner);
            }
            for (int from = 0; from < planes; from += REDUCE_PLANES_AHEAD) {
                const int here = min(planes - from, (int)REDUCE_PLANES_AHEAD);
                __syncthreads(); /* the places before are used, and the states are there */
                for (int i = threadIdx.x; i < here; i += blockDim.x) places[i] = start(from + i) / E;
                __syncthreads();
                reduce_plane_take<Op, E, C>(op, acc, in, places, here, strip);
            }
            const reduce_plane_columns own = {across, period, inner, s.steps > 1 ? 0 : a.first * (period / inner)};
            if (down < groups) reduce_plane_hand_over<Op, E, C>(op, acc, shared + down * period, strip, own);
        }
        const int left = reduce_fold(op, shared, groups, period);
        reduce_tile tile;
        tile.first = a.line * inner;
        tile.results = tile.span = inner;
        const auto column = [&](int j) { return reduce_plane_column<Op, E>(op, shared, left, period, inner, j); };
        if (s.parts == 1)
            reduce_store_states(op, tile, column, job.out);
        else
            reduce_last<Op, 1>(op, tile, shared, column,
                               reduce_meeting_of<State>(site, s, item / s.parts, item % s.parts, inner), job.out);
        __syncthreads();
    }
    ks_leave(site);
}

#endif
