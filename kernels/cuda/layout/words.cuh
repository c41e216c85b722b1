/* Any box, word by word, as the output has them: a thread finds where its words come from by divisions. Neighbouring threads write side by
 * side; where words are smaller than 16 bytes a thread collects as many as make a pack. */
#ifndef KS_LAYOUT_WORDS_CUH
#define KS_LAYOUT_WORDS_CUH

#include "cuda/common/pack.cuh"
#include "cuda/layout/common.cuh"

/* Where a word comes from and goes to. */
struct layout_place {
    int64_t from, to;
};

template <class D>
__device__ __forceinline__ layout_place layout_find(const layout_args<D> &a, typename D::index item)
{
    typedef typename D::index index;
    layout_place place = {a.from_start, a.to_start};
    for (int d = a.rank - 1; d >= 0; d--) {
        const layout_axis<D> &axis = a.axis[d];
        const index left = d > 0 ? axis.per.of(item) : 0, i = item - left * axis.per.by;
        item = left;
        place.from += (int64_t)i * axis.from;
        place.to += (int64_t)i * axis.to;
    }
    return place;
}

/* Words that may lie apart in the output as well. */
template <class W, class D>
__global__ void __launch_bounds__(LAYOUT_THREADS) layout_words(ks_site site, const __grid_constant__ layout_args<D> a)
{
    typedef typename D::index index;
    constexpr int FLIGHT = 4;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    if (a.items == 0) layout_begin(site, a, 0);
    const W *in = (const W *)(job.in + a.in);
    W *out = (W *)(job.out + a.out);
    const int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; first < a.items; first += FLIGHT * threads) {
        W moved[FLIGHT];
        int64_t to[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (first + k * threads >= a.items) continue;
            const layout_place place = layout_find(a, (index)(first + k * threads));
            to[k] = place.to;
            moved[k] = __ldg(in + place.from);
        }
        layout_begin(site, a, first);
#pragma unroll
        for (int k = 0; k < FLIGHT; k++)
            if (first + k * threads < a.items) out[to[k]] = moved[k];
    }
    if (a.last) ks_leave(site);
}

/* What packs are made of: a box; what is padded by a value; what is padded by more of itself. */
enum { LAYOUT_BOX, LAYOUT_FILLED, LAYOUT_CONTINUED };

/* A row of the last axis: where the input has it, counted from the box's first word, and how many words; 0: the row is the value's, or none of the
 * output. */
template <class I>
struct layout_row {
    I from, words;
};

/* N rows at once, whose divisions do not wait for each other. Of a row that is the value's, or lies behind the last one, any `from`. */
template <int KIND, int N, class D>
__device__ __forceinline__ void layout_find_rows(const layout_args<D> &a, typename D::index (&line)[N],
                                                 layout_row<typename D::index> (&row)[N])
{
    typedef typename D::index index;
    index outside[N] = {}; /* below 0: along some axis */
#pragma unroll
    for (int n = 0; n < N; n++) row[n].from = 0;
#pragma unroll 1
    for (int d = a.rank - 2; d >= 0; d--) {
        const layout_axis<D> &axis = a.axis[d];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const index left = axis.per.of(line[n]);
            index i = line[n] - left * axis.per.by;
            line[n] = left;
            if (KIND == LAYOUT_CONTINUED) i = layout_inside(axis.before, axis.extent, a.mode, i);
            if (KIND == LAYOUT_FILLED) {
                i -= axis.before;
                outside[n] |= i | (axis.extent - 1 - i);
            }
            row[n].from = (index)((uint64_t)row[n].from + (uint64_t)i * (uint64_t)axis.from);
        }
    }
    const layout_axis<D> &last = a.axis[a.rank - 1];
#pragma unroll
    for (int n = 0; n < N; n++) row[n].words = outside[n] < 0 ? 0 : KIND == LAYOUT_BOX ? last.per.by : last.extent;
}

/* Index i of a row, or the value. */
template <int KIND, class W, class D>
__device__ __forceinline__ W layout_read(const layout_args<D> &a, const W *in, const layout_row<typename D::index> &row,
                                         typename D::index i)
{
    typedef typename D::index index;
    const layout_axis<D> &last = a.axis[a.rank - 1];
    W word = *(const W *)(const void *)&a.fill;
    if (KIND == LAYOUT_FILLED) {
        i -= last.before;
        if ((uint64_t)i < (uint64_t)row.words) word = __ldg(in + (index)(row.from + i));
        return word;
    }
    i = KIND == LAYOUT_BOX ? i * last.from : layout_inside(last.before, last.extent, a.mode, i);
    if (row.words > 0) word = __ldg(in + (index)(row.from + i));
    return word;
}

/* A pack from `item` on, of one row or two. Loads stand side by side, without a branch between, so that all are under way before the first word is
 * put into its place. */
template <int KIND, class W, class D>
__device__ __forceinline__ ks_word_pack<W> layout_collect(const layout_args<D> &a, const W *in, typename D::index item)
{
    typedef typename D::index index;
    constexpr int P = ks_word_pack<W>::LENGTH;
    const layout_axis<D> &last = a.axis[a.rank - 1];
    const index extent = last.per.by;
    index line[2] = {last.per.of(item), 0};
    const index first = item - line[0] * extent;
    layout_row<index> row[2];
    ks_word_pack<W> pack;
    W word[P];
    line[1] = line[0] + 1;
    layout_find_rows<KIND>(a, line, row);
    if (item + (extent - first) >= a.items) row[1].words = 0;
#pragma unroll
    for (int i = 0; i < P; i++) {
        const bool next = first + i >= extent;
        const layout_row<index> mine = {next ? row[1].from : row[0].from, next ? row[1].words : row[0].words};
        word[i] = layout_read<KIND>(a, in, mine, first + i - (next ? extent : 0));
    }
#pragma unroll
    for (int i = 0; i < P; i++) pack.word[i] = word[i];
    return pack;
}

/* Of any number of rows: each word finds its own. */
template <int KIND, class W, class D>
__device__ __forceinline__ ks_word_pack<W> layout_collect_short(const layout_args<D> &a, const W *in,
                                                                typename D::index item)
{
    typedef typename D::index index;
    constexpr int P = ks_word_pack<W>::LENGTH, N = P < 4 ? P : 4;
    const layout_axis<D> &last = a.axis[a.rank - 1];
    ks_word_pack<W> pack;
#pragma unroll
    for (int from = 0; from < P; from += N) {
        index line[N], i[N];
        layout_row<index> row[N];
        W word[N];
#pragma unroll
        for (int n = 0; n < N; n++) {
            line[n] = last.per.of(item + from + n);
            i[n] = item + from + n - line[n] * last.per.by;
        }
        layout_find_rows<KIND>(a, line, row);
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (item + from + n >= a.items) row[n].words = 0;
            word[n] = layout_read<KIND>(a, in, row[n], i[n]);
        }
#pragma unroll
        for (int n = 0; n < N; n++) pack.word[from + n] = word[n];
    }
    return pack;
}

/* The output is the items, one behind the other: packs of 16 bytes, but for the last one. */
template <class W, class D, int KIND>
__global__ void __launch_bounds__(LAYOUT_THREADS) layout_packs(ks_site site, const __grid_constant__ layout_args<D> a)
{
    typedef typename D::index index;
    constexpr int P = ks_word_pack<W>::LENGTH;
    ks_job_sides job;
    if (!layout_enter(site, a, &job)) return;
    const W *in = (const W *)(job.in + a.in) + a.from_start;
    const int64_t packs = ((int64_t)a.items + P - 1) / P, threads = (int64_t)gridDim.x * blockDim.x;
    const bool is_short = a.axis[a.rank - 1].per.by < P;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < packs; at += threads) {
        const index item = (index)(at * P);
        const ks_word_pack<W> pack =
            is_short ? layout_collect_short<KIND>(a, in, item) : layout_collect<KIND>(a, in, item);
        pack.store(job.out + a.out, at, a.items);
    }
    if (a.last) ks_leave(site);
}

#endif
