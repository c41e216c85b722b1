/* Any box, word by word, as the output has them: a thread finds where its words come from by divisions. Neighbouring threads write side by
 * side; where words are smaller than 16 bytes a thread collects as many as make a pack. */
#ifndef KS_LAYOUT_WORDS_CUH
#define KS_LAYOUT_WORDS_CUH

#include "cuda/common/pack.cuh"
#include "cuda/layout/common.cuh"

/* Where a word comes from and goes to; inner: its index along the last axis; row: the place of index 0 of that axis. */
struct layout_place {
    int64_t row, to, inner;
    bool fill; /* the row is the value's */
};

template <bool PADDED, class D>
__device__ __forceinline__ layout_place layout_find(const layout_args<D> &a, typename D::index item)
{
    typedef typename D::index index;
    layout_place place = {a.from_start, a.to_start, 0, false};
    for (int d = a.rank - 1; d >= 0; d--) {
        const layout_axis<D> &axis = a.axis[d];
        const index left = d > 0 ? axis.per.of(item) : 0, i = item - left * axis.per.by;
        item = left;
        place.to += (int64_t)i * axis.to;
        if (d == a.rank - 1) {
            place.inner = i;
        } else if (PADDED) {
            const index inside = layout_inside(axis.before, axis.extent, a.mode, i);
            place.fill = place.fill || inside < 0;
            place.row += (int64_t)inside * axis.from;
        } else {
            place.row += (int64_t)i * axis.from;
        }
    }
    return place;
}

template <bool PADDED, class W, class D>
__device__ __forceinline__ W layout_read(const layout_args<D> &a, const W *in, const layout_place &place)
{
    const layout_axis<D> &axis = a.axis[a.rank - 1];
    if (!PADDED) return __ldg(in + place.row + place.inner * axis.from);
    const int64_t inside = layout_inside<int64_t>(axis.before, axis.extent, a.mode, place.inner);
    if (place.fill || inside < 0) return *(const W *)&a.fill;
    return __ldg(in + place.row + inside * axis.from);
}

/* Words that may lie apart in the output as well. */
template <class W, class D>
__global__ void __launch_bounds__(LAYOUT_THREADS) layout_words(ks_site site, layout_args<D> a)
{
    typedef typename D::index index;
    constexpr int FLIGHT = 4;
    ks_job_sides job;
    if (!layout_enter(site, a, &job)) return;
    const W *in = (const W *)(job.in + a.in);
    W *out = (W *)(job.out + a.out);
    const int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; first < a.items; first += FLIGHT * threads) {
        W moved[FLIGHT];
        int64_t to[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (first + k * threads >= a.items) continue;
            const layout_place place = layout_find<false>(a, (index)(first + k * threads));
            to[k] = place.to;
            moved[k] = layout_read<false>(a, in, place);
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++)
            if (first + k * threads < a.items) out[to[k]] = moved[k];
    }
    if (a.last) ks_leave(site);
}

/* The output is the items, one behind the other: packs of 16 bytes, but for the last one. */
template <class W, class D, bool PADDED>
__global__ void __launch_bounds__(LAYOUT_THREADS) layout_packs(ks_site site, layout_args<D> a)
{
    typedef typename D::index index;
    constexpr int P = ks_word_pack<W>::LENGTH;
    ks_job_sides job;
    if (!layout_enter(site, a, &job)) return;
    const W *in = (const W *)(job.in + a.in);
    const int64_t packs = ((int64_t)a.items + P - 1) / P, threads = (int64_t)gridDim.x * blockDim.x;
    const int64_t extent = a.axis[a.rank - 1].per.by;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < packs; at += threads) {
        ks_word_pack<W> pack;
        layout_place place = layout_find<PADDED>(a, (index)(at * P));
#pragma unroll
        for (int i = 0; i < P; i++) {
            if (at * P + i < a.items) pack.word[i] = layout_read<PADDED>(a, in, place);
            if (++place.inner == extent && i + 1 < P && at * P + i + 1 < a.items)
                place = layout_find<PADDED>(a, (index)(at * P + i + 1));
        }
        pack.store(job.out + a.out, at, a.items);
    }
    if (a.last) ks_leave(site);
}

#endif
