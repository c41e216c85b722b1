/* Lines that are lines on both sides, but begin anywhere: a thread writes chunks of 16 bytes that begin on 16 bytes of the output, and reads the
 * two vectors in which theirs lie. A line may be made of several inputs' (concat), and have a border (pad).
 *
 * Threads  lanes of a warp take a piece of a line: 2^lanes_log2 of them, LAYOUT_CHUNKS chunks each. */
#ifndef KS_LAYOUT_RUNS_CUH
#define KS_LAYOUT_RUNS_CUH

#include "cuda/common/pack.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/layout/common.cuh"

enum { LAYOUT_CHUNKS = 4 };

/* One input's part of each line, in elements. */
template <class D>
struct layout_part {
    size_t in;                              /* bytes from the side's begin */
    int64_t from_start, to_start, row_from; /* row_from: elements of one step of the axes' `from` */
    typename D::index before, inside, length, first_piece;
};

template <class D>
struct layout_lines {
    size_t out;
    int rank; /* axes in front of the last one */
    int parts, lanes_log2, mode;
    D pieces;                /* of a line */
    typename D::index items; /* lines * pieces */
    bool first, last;
    layout_part<D> part[KS_INPUTS_MAX];
    layout_axis<D> axis[KS_LAYOUT_AXES_MAX];
    uint4 fill;
};

/* A part of a line, and the lane's first chunk in it. */
template <class W, class I>
struct layout_piece {
    W *to;         /* the chunk, on 16 bytes */
    const W *from; /* the input's element that the part's element `before` is */
    I at;          /* the chunk's first element in the part: below 0 where it begins in front of it */
    int part;
    bool fill; /* the line is the value's */
};

template <class W, class D>
__device__ __forceinline__ layout_piece<W, typename D::index>
layout_find_piece(const layout_lines<D> &a, const ks_job_sides &job, typename D::index item, int lane)
{
    typedef typename D::index index;
    layout_piece<W, index> p = {};
    index line = a.pieces.of(item);
    const index piece = item - line * a.pieces.by;
    int64_t from = 0, to = 0;
    while (p.part + 1 < a.parts && piece >= a.part[p.part + 1].first_piece) p.part++;
    const layout_part<D> &part = a.part[p.part];
    for (int d = a.rank - 1; d >= 0; d--) {
        const layout_axis<D> &axis = a.axis[d];
        const index left = d > 0 ? axis.per.of(line) : 0, i = line - left * axis.per.by;
        const index inside = layout_inside(axis.before, axis.extent, a.mode, i);
        line = left;
        p.fill = p.fill || inside < 0;
        from += (int64_t)inside * axis.from;
        to += (int64_t)i * axis.to;
    }
    W *const begin = (W *)(void *)(job.out + a.out) + part.to_start + to;
    const int over = (int)((uintptr_t)begin % 16) / (int)sizeof(W);
    const index chunk = ((piece - part.first_piece) * LAYOUT_CHUNKS << a.lanes_log2) + lane;
    p.at = chunk * (16 / (int)sizeof(W)) - over;
    p.to = begin + p.at;
    p.from = (const W *)(const void *)(job.in + part.in) + part.from_start + from * part.row_from;
    return p;
}

/* 16 bytes from `by` bytes on of two vectors. */
__device__ __forceinline__ uint4 layout_shifted(const uint4 &low, const uint4 &high, unsigned by)
{
    const uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    uint32_t t[6], u[5];
#pragma unroll
    for (int i = 0; i < 6; i++) t[i] = by & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++) u[i] = by & 4 ? t[i + 1] : t[i];
    const unsigned bits = 8 * (by & 3);
    return make_uint4(__funnelshift_r(u[0], u[1], bits), __funnelshift_r(u[1], u[2], bits),
                      __funnelshift_r(u[2], u[3], bits), __funnelshift_r(u[3], u[4], bits));
}

/* Of a chunk's elements those that are the input's: from `first` on, up to `end`. */
struct layout_span {
    int first, end;
};

template <int LENGTH, class I>
__device__ __forceinline__ int layout_within(I place)
{
    return (int)(place < 0 ? 0 : place > LENGTH ? LENGTH : place);
}
template <int LENGTH, class I>
__device__ __forceinline__ layout_span layout_span_of(I at, I begin, I end)
{
    return layout_span{layout_within<LENGTH>(begin - at), layout_within<LENGTH>(end - at)};
}

/* The first `bytes` of a word. */
__device__ __forceinline__ uint32_t layout_first_bytes(int bytes)
{
    return bytes <= 0 ? 0 : bytes >= 4 ? ~(uint32_t)0 : ((uint32_t)1 << 8 * bytes) - 1;
}

/* Bytes from `first` on, up to `end`, of v, and the value's beside them. */
__device__ __forceinline__ uint4 layout_bordered(const uint4 &v, const uint4 &fill, int first, int end)
{
    const uint32_t from[4] = {v.x, v.y, v.z, v.w}, other[4] = {fill.x, fill.y, fill.z, fill.w};
    uint32_t w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t mine = layout_first_bytes(end - 4 * i) & ~layout_first_bytes(first - 4 * i);
        w[i] = (from[i] & mine) | (other[i] & ~mine);
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* A chunk at the edge of the input, where that is continued: all is asked for before the first of it is looked at. */
template <class W, class D>
__device__ __forceinline__ uint4 layout_continued(const layout_part<D> &part, int mode, const W *from,
                                                  typename D::index at)
{
    typedef typename D::index index;
    ks_word_pack<W> chunk;
#pragma unroll
    for (int i = 0; i < ks_word_pack<W>::LENGTH; i++) {
        const index element = at + i;
        if (element >= 0 && element < part.length)
            chunk.word[i] = __ldg(from + layout_inside(part.before, part.inside, mode, element));
    }
    return chunk.raw;
}

/* A chunk's elements that are the line's. */
template <class W, class I>
__device__ __forceinline__ void layout_store(W *to, I at, I length, const uint4 &v)
{
    constexpr int LENGTH = 16 / (int)sizeof(W);
    if (at >= 0 && at + LENGTH <= length) {
        *(uint4 *)(void *)to = v;
        return;
    }
    ks_word_pack<W> chunk;
    chunk.raw = v;
#pragma unroll
    for (int i = 0; i < LENGTH; i++)
        if (at + i >= 0 && at + i < length) to[i] = chunk.word[i];
}

template <class W, class D>
__global__ void __launch_bounds__(LAYOUT_THREADS, 3)
    layout_runs(ks_site site, const __grid_constant__ layout_lines<D> a)
{
    typedef typename D::index index;
    constexpr int SIZE = (int)sizeof(W), LENGTH = 16 / SIZE;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    if (a.items == 0) layout_begin(site, a, 0);
    const int lanes = 1 << a.lanes_log2, step = LENGTH << a.lanes_log2;
    const int64_t threads = (int64_t)gridDim.x * blockDim.x, first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t item = first >> a.lanes_log2; item < a.items; item += threads >> a.lanes_log2) {
        const layout_piece<W, index> p = layout_find_piece<W>(a, job, (index)item, (int)threadIdx.x & (lanes - 1));
        const layout_part<D> &part = a.part[p.part];
        const uintptr_t begin = (uintptr_t)(p.from + (p.at - part.before));
        const int by = (int)(begin % 16); /* of each chunk */
        const uint4 *const from = (const uint4 *)(begin - (unsigned)by);
        const index end = part.before + (p.fill ? 0 : part.inside);
        const bool bordered = p.fill || part.inside < part.length;
        uint4 low[LAYOUT_CHUNKS], high[LAYOUT_CHUNKS];
#pragma unroll
        for (int k = 0; k < LAYOUT_CHUNKS; k++) {
            const layout_span mine = layout_span_of<LENGTH>(p.at + k * step, part.before, end);
            low[k] = high[k] = make_uint4(0, 0, 0, 0);
            if (mine.first >= mine.end) continue;
            if (mine.first * SIZE + by < 16) low[k] = __ldg(from + k * lanes);
            if (mine.end * SIZE + by > 16) high[k] = __ldg(from + k * lanes + 1);
        }
        layout_begin(site, a, item);
#pragma unroll
        for (int k = 0; k < LAYOUT_CHUNKS; k++) {
            const index at = p.at + k * step;
            const layout_span mine = layout_span_of<LENGTH>(at, part.before, end);
            const bool border = bordered && (mine.first > 0 || mine.end < LENGTH);
            if (at >= part.length || (border && a.mode != KS_LAYOUT_CONSTANT)) continue;
            uint4 v = by ? layout_shifted(low[k], high[k], (unsigned)by) : low[k];
            if (border) v = layout_bordered(v, a.fill, mine.first * SIZE, mine.end * SIZE);
            layout_store(p.to + k * step, at, part.length, v);
        }
        if (!bordered || a.mode == KS_LAYOUT_CONSTANT) continue;
#pragma unroll 1
        for (int k = 0; k < LAYOUT_CHUNKS; k++) {
            const index at = p.at + k * step;
            const layout_span mine = layout_span_of<LENGTH>(at, part.before, end);
            if (at >= part.length || (mine.first == 0 && mine.end == LENGTH)) continue;
            layout_store(p.to + k * step, at, part.length, layout_continued<W>(part, a.mode, p.from, at));
        }
    }
    if (a.last) ks_leave(site);
}

#endif
