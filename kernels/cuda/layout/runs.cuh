/* Lines that are lines on both sides, but begin anywhere: a thread writes chunks of 16 bytes that begin on 16 bytes of the output, and reads the
 * two vectors in which theirs lie. A line may be made of several inputs' (concat), and have a border (pad).
 *
 * Threads  lanes of a warp take a piece of a line: 2^lanes_log2 of them, LAYOUT_CHUNKS chunks each. */
#ifndef KS_LAYOUT_RUNS_CUH
#define KS_LAYOUT_RUNS_CUH

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
    int rank; /* axes in front of the last one */
    layout_axis<D> axis[KS_LAYOUT_AXES_MAX];
    int parts;
    layout_part<D> part[KS_INPUTS_MAX];
    int lanes_log2;
    D pieces;                /* of a line */
    typename D::index items; /* lines * pieces */
    size_t out;
    int mode;
    uint4 fill;
    bool first, last;
};

/* A part of a line, and the lane's first chunk in it. */
template <class W>
struct layout_piece {
    W *to;         /* the chunk, on 16 bytes */
    const W *from; /* the input's element that the part's element `before` is */
    int64_t at;    /* the chunk's first element in the part: below 0 where it begins in front of it */
    int part;
    bool fill; /* the line is the value's */
};

template <class W, class D>
__device__ __forceinline__ layout_piece<W> layout_find_piece(const layout_lines<D> &a, const ks_job_sides &job,
                                                             typename D::index item, int lane)
{
    typedef typename D::index index;
    layout_piece<W> p = {};
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
    const int64_t chunk = ((int64_t)(piece - part.first_piece) * LAYOUT_CHUNKS << a.lanes_log2) + lane;
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

/* A chunk that is not all of the input's: element by element. to, at: its own. */
template <class W, class D>
__device__ __forceinline__ void layout_mix(const layout_lines<D> &a, const layout_piece<W> &p, W *to, int64_t at)
{
    typedef typename D::index index;
    constexpr int LENGTH = 16 / (int)sizeof(W);
    const layout_part<D> &part = a.part[p.part];
    const W fill = *(const W *)(const void *)&a.fill;
#pragma unroll
    for (int i = 0; i < LENGTH; i++) {
        const index element = (index)at + i;
        if (element < 0 || element >= part.length) continue;
        const index inside = p.fill ? -1 : layout_inside(part.before, part.inside, a.mode, element);
        to[i] = inside < 0 ? fill : __ldg(p.from + inside);
    }
}

template <class W, class D>
__global__ void __launch_bounds__(LAYOUT_THREADS, 3)
    layout_runs(ks_site site, const __grid_constant__ layout_lines<D> a)
{
    typedef typename D::index index;
    constexpr int LENGTH = 16 / (int)sizeof(W);
    ks_job_sides job;
    if (!layout_enter(site, a, &job)) return;
    const int lanes = 1 << a.lanes_log2, step = LENGTH << a.lanes_log2;
    const int64_t threads = (int64_t)gridDim.x * blockDim.x, first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t item = first >> a.lanes_log2; item < a.items; item += threads >> a.lanes_log2) {
        const layout_piece<W> p = layout_find_piece<W>(a, job, (index)item, (int)threadIdx.x & (lanes - 1));
        const layout_part<D> &part = a.part[p.part];
        const uintptr_t begin = (uintptr_t)(p.from + (p.at - part.before));
        const unsigned by = (unsigned)(begin % 16); /* of each chunk */
        const uint4 *const from = (const uint4 *)(begin - by);
        const int64_t last = p.fill ? -1 : (int64_t)part.before + part.inside - LENGTH;
        uint4 low[LAYOUT_CHUNKS], high[LAYOUT_CHUNKS];
#pragma unroll
        for (int k = 0; k < LAYOUT_CHUNKS; k++) {
            const int64_t at = p.at + k * step;
            low[k] = high[k] = make_uint4(0, 0, 0, 0);
            if (at < part.before || at > last) continue;
            low[k] = __ldg(from + k * lanes);
            if (by) high[k] = __ldg(from + k * lanes + 1);
        }
#pragma unroll
        for (int k = 0; k < LAYOUT_CHUNKS; k++) {
            const int64_t at = p.at + k * step;
            if (at >= part.before && at <= last)
                *(uint4 *)(void *)(p.to + k * step) = by ? layout_shifted(low[k], high[k], by) : low[k];
            else if (at < part.length)
                layout_mix(a, p, p.to + k * step, at);
        }
    }
    if (a.last) ks_leave(site);
}

#endif
