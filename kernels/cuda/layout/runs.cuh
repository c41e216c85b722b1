/* Lines that are lines on both sides, but begin anywhere: a thread writes 16 bytes that begin on 16 bytes of the output, and reads the two
 * vectors in which theirs lie. A line may be made of several inputs' (concat), and have a border (pad). */
#ifndef KS_LAYOUT_RUNS_CUH
#define KS_LAYOUT_RUNS_CUH

#include "cuda/layout/common.cuh"

/* One input's part of each line, in elements. */
template <class D>
struct layout_part {
    size_t in;                              /* bytes from the side's begin */
    int64_t from_start, to_start, row_from; /* row_from: elements of one step of the axes' `from` */
    typename D::index before, inside, length, first_chunk;
};

template <class D>
struct layout_lines {
    int rank; /* axes in front of the last one */
    layout_axis<D> axis[KS_LAYOUT_AXES_MAX];
    int parts;
    layout_part<D> part[KS_INPUTS_MAX];
    D chunks;                /* of a line, at most */
    typename D::index items; /* lines * chunks */
    size_t out;
    int mode;
    uint4 fill;
    bool first, last;
};

/* Where a chunk lies. element: the first one's index in its part, below 0 where the chunk begins in front of it. */
template <class W>
struct layout_chunk {
    W *to;         /* on 16 bytes */
    const W *from; /* of the part's element `before` */
    int64_t element;
    int part;
    bool fill; /* the line is the value's */
};

template <class W, class D>
__device__ __forceinline__ layout_chunk<W> layout_find_chunk(const layout_lines<D> &a, const ks_job_sides &job,
                                                             typename D::index item)
{
    typedef typename D::index index;
    layout_chunk<W> c = {};
    index line = a.chunks.of(item), at = item - line * a.chunks.by;
    int64_t from = 0, to = 0;
    while (c.part + 1 < a.parts && at >= a.part[c.part + 1].first_chunk) c.part++;
    const layout_part<D> &part = a.part[c.part];
    for (int d = a.rank - 1; d >= 0; d--) {
        const layout_axis<D> &axis = a.axis[d];
        const index left = d > 0 ? axis.per.of(line) : 0, i = line - left * axis.per.by;
        const index inside = layout_inside(axis.before, axis.extent, a.mode, i);
        line = left;
        c.fill = c.fill || inside < 0;
        from += (int64_t)inside * axis.from;
        to += (int64_t)i * axis.to;
    }
    W *const begin = (W *)(void *)(job.out + a.out) + part.to_start + to;
    const uintptr_t whole = (uintptr_t)begin & ~(uintptr_t)15;
    c.to = (W *)(whole + (size_t)(at - part.first_chunk) * 16);
    c.element = ((int64_t)((uintptr_t)c.to - (uintptr_t)begin)) / (int64_t)sizeof(W);
    c.from = (const W *)(const void *)(job.in + part.in) + part.from_start + from * part.row_from;
    return c;
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

/* A chunk that is not all of the input's: element by element. */
template <class W, class D>
__device__ void layout_mixed_chunk(const layout_lines<D> &a, const layout_chunk<W> &c)
{
    constexpr int LENGTH = 16 / (int)sizeof(W);
    const layout_part<D> &part = a.part[c.part];
#pragma unroll 4
    for (int i = 0; i < LENGTH; i++) {
        const int64_t element = c.element + i;
        if (element < 0 || element >= part.length) continue;
        const int64_t inside = layout_inside<int64_t>(part.before, part.inside, a.mode, element);
        c.to[i] = c.fill || inside < 0 ? *(const W *)(const void *)&a.fill : __ldg(c.from + inside);
    }
}

template <class W, class D>
__global__ void __launch_bounds__(LAYOUT_THREADS, 4)
    layout_runs(ks_site site, const __grid_constant__ layout_lines<D> a)
{
    typedef typename D::index index;
    constexpr int FLIGHT = 2, LENGTH = 16 / (int)sizeof(W);
    ks_job_sides job;
    if (!layout_enter(site, a, &job)) return;
    const int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; first < a.items; first += FLIGHT * threads) {
        uint4 low[FLIGHT], high[FLIGHT], *to[FLIGHT]; /* to: NULL: by elements */
        unsigned by[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            to[k] = NULL;
            low[k] = high[k] = make_uint4(0, 0, 0, 0);
            if (first + k * threads >= a.items) continue;
            const layout_chunk<W> c = layout_find_chunk<W>(a, job, (index)(first + k * threads));
            const layout_part<D> &part = a.part[c.part];
            if (c.fill || c.element < part.before || c.element + LENGTH > (int64_t)part.before + part.inside) continue;
            const uintptr_t begin = (uintptr_t)(c.from + (c.element - part.before));
            to[k] = (uint4 *)(void *)c.to;
            by[k] = (unsigned)(begin % 16);
            low[k] = __ldg((const uint4 *)(begin - by[k]));
            if (by[k]) high[k] = __ldg((const uint4 *)(begin - by[k]) + 1);
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (first + k * threads >= a.items) continue;
            if (to[k])
                *to[k] = layout_shifted(low[k], high[k], by[k]);
            else
                layout_mixed_chunk(a, layout_find_chunk<W>(a, job, (index)(first + k * threads)));
        }
    }
    if (a.last) ks_leave(site);
}

#endif
