/* Softmax of selected elements: a mask, causal, lengths, results of another datatype.
 *
 *   softmax_masked_rows  rows of whole vectors, in the registers of a part of a warp or of a CTA
 *   softmax_masked_any   any other: rows of any length, columns; read twice
 *
 * z = scale * x + mask, in FP32 or FP64, is -inf where an element is not selected, and its value is written as such: NaN and infinity there
 * change nothing. What causal and lengths leave out is not read. Everything follows from a row's own elements. */
#ifndef KS_SOFTMAX_MASKED_CUH
#define KS_SOFTMAX_MASKED_CUH

#include "cuda/common/divide.cuh"
#include "cuda/softmax/common.cuh"
#include "cuda/softmax/plan.h"
#include "cuda/softmax/row_block_registers.cuh"
#include "ops/softmax.h"

enum { SOFTMAX_MASKED_THREADS = 256, SOFTMAX_MASKED_CTA = 512 };

enum softmax_mask { SOFTMAX_NO_MASK, SOFTMAX_MASK_BOOL, SOFTMAX_MASK_SAME, SOFTMAX_MASK_FLOAT };

/* How many rows of a subwarp, of so many packs in a thread, are loaded before the first is used: a mask leaves no registers for it. */
constexpr int softmax_masked_flight(int packs, bool masked)
{
    return masked || packs > 2 ? 1 : 2;
}

/* By value beside the shape, whose factor is log2 e. */
struct softmax_masked {
    ks_softmax_selection selection;
    size_t mask_offset, lengths_offset; /* in the side, bytes */
    double scale;
    softmax_mask mask;
    ks_dtype out;
    ks_divider sharing, square, extent[KS_RANK_MAX]; /* of the selection's */
};

#ifdef __CUDACC__

/* How many elements of a row, from the first one on, its length and causal leave. lengths: of the job. */
__device__ __forceinline__ int64_t softmax_masked_limit(const ks_site &site, const softmax_masked &q,
                                                        const unsigned char *lengths, int64_t row, int64_t length)
{
    const ks_softmax_selection &s = q.selection;
    int64_t limit = length;
    if (s.sharing) {
        const int64_t place = q.sharing.of(row);
        const int64_t own =
            s.wide ? __ldg((const long long *)lengths + place) : (int64_t)__ldg((const int *)lengths + place);
        if (own < 0 || own > length) {
            ks_refuse(site, KS_SOFTMAX_LENGTHS, place);
            return 0;
        }
        limit = own;
    }
    if (s.square) limit = min(limit, max(row - q.square.of(row) * s.square + 1 + s.corner, (int64_t)0));
    return limit;
}

/* Of a row's mask, elements. */
__device__ __forceinline__ int64_t softmax_masked_place(const softmax_masked &q, int64_t row)
{
    const ks_softmax_selection &s = q.selection;
    int64_t offset = 0;
    for (int i = s.steps - 1; i > 0; i--) {
        const int64_t rest = q.extent[i].of(row);
        offset += (row - rest * s.step[i].extent) * s.step[i].stride;
        row = rest;
    }
    return offset + row * s.step[0].stride;
}

template <class M>
__device__ __forceinline__ M softmax_value_of_none(const softmax_rule<M> &rule)
{
    return rule.log ? -(M)INFINITY : (M)0;
}

/* Of each element of a row that has none. */
template <class M>
__device__ __forceinline__ M softmax_value_of_nothing(const softmax_rule<M> &rule, bool zero)
{
    return zero ? softmax_value_of_none(rule) : (M)NAN;
}

/* A NaN leaves its trace in the sum. */
template <class M, class SUM>
__device__ __forceinline__ bool softmax_is_nothing(M most, SUM sum)
{
    return most == -(M)INFINITY && sum == 0;
}

/* --- rows of whole vectors ------------------------------------------------------------------------------------------- */

/* What a mask has for E elements: bytes, elements as x's, or floats, in words that registers hold. */
template <class T, int E>
struct softmax_mask_pack {
    softmax_pack<T, E> same;
    uint32_t word[E]; /* of bytes the first ones */

    __device__ __forceinline__ bool truth(int e) const
    {
        return (word[e / 4] >> e % 4 * 8 & 0xFF) != 0;
    }
    __device__ __forceinline__ float real(int e) const
    {
        return __uint_as_float(word[e]);
    }
    __device__ __forceinline__ void load(softmax_mask kind, const unsigned char *mask, int64_t place)
    {
        if (kind == SOFTMAX_MASK_BOOL)
            load_truths(mask + place);
        else if (kind == SOFTMAX_MASK_SAME)
            same.word = __ldg((const uint4 *)(mask + place * (int64_t)sizeof(T)));
        else if (kind == SOFTMAX_MASK_FLOAT)
            load_floats((const float *)mask + place);
    }
    __device__ __forceinline__ void load_truths(const unsigned char *at)
    {
        if constexpr (E == 2) {
            word[0] = __ldg((const uint16_t *)at);
        } else if constexpr (E == 4) {
            word[0] = __ldg((const uint32_t *)at);
        } else {
            const uint2 bytes = __ldg((const uint2 *)at);
            word[0] = bytes.x;
            word[1] = bytes.y;
        }
    }
    __device__ __forceinline__ void load_floats(const float *at)
    {
        if constexpr (E == 2) {
            word[0] = __float_as_uint(__ldg(at));
            word[1] = __float_as_uint(__ldg(at + 1));
        } else {
#pragma unroll
            for (int i = 0; i < E / 4; i++) {
                const uint4 four = __ldg((const uint4 *)at + i);
                word[4 * i] = four.x;
                word[4 * i + 1] = four.y;
                word[4 * i + 2] = four.z;
                word[4 * i + 3] = four.w;
            }
        }
    }
    /* One index of the axis for all. */
    __device__ __forceinline__ void spread(softmax_mask kind, const unsigned char *mask, int64_t place)
    {
        const uint32_t bits = kind == SOFTMAX_MASK_BOOL    ? mask[place] * 0x01010101u
                              : kind == SOFTMAX_MASK_FLOAT ? __float_as_uint(((const float *)mask)[place])
                                                           : 0;
#pragma unroll
        for (int e = 0; e < E; e++) word[e] = bits;
        if (kind != SOFTMAX_MASK_SAME) return;
        const T one = ((const T *)mask)[place];
#pragma unroll
        for (int e = 0; e < E; e++) same.element[e] = one;
    }
};

/* Over a CTA of at most WARPS warps, or, without any, over subwarps: the steps of several rows are under way together. */
template <int WARPS, int ROWS, class M, class Join>
__device__ __forceinline__ void softmax_masked_across(M (&value)[ROWS], int width, M none, M *cells, Join join)
{
    if constexpr (WARPS > 0) {
        value[0] = softmax_over_warps<WARPS>(ks_subwarp_reduce(value[0], KS_WARP, join), none, cells, join);
    } else {
        for (int distance = width / 2; distance > 0; distance /= 2)
#pragma unroll
            for (int k = 0; k < ROWS; k++) value[k] = join(value[k], ks_shuffle(value[k], distance));
    }
}

/* CTAs of an SM at least: 64 registers of a thread (FP64 128) where no mask's words need more. */
template <class T, bool CTA, bool MASKED>
constexpr int softmax_masked_ctas = MASKED ? 1
                                           : (sizeof(T) == 8 ? 512 : 1024) /
                                                 (CTA ? SOFTMAX_MASKED_CTA : SOFTMAX_MASKED_THREADS);

/* z of a pack's elements, and the greatest: -inf where an element, or its mask, does not take part. left: how many of them the row's length
 * and causal leave; where they leave none, and there is no mask, z is not set. taken: a bit for each element that takes part, of masks alone,
 * for what they leave out may stand anywhere. */
template <bool MASKED, class T, int E, class M>
__device__ __forceinline__ M softmax_masked_levels(M (&z)[E], unsigned &taken, const softmax_pack<T, E> &x,
                                                   const softmax_mask_pack<T, E> &mask, const softmax_masked &q,
                                                   int left)
{
    if constexpr (!MASKED) {
        const M scale = (M)q.scale;
        if (left <= 0) return -(M)INFINITY;
#pragma unroll
        for (int e = 0; e < E; e++) z[e] = fma(x.get(e), scale, (M)0);
        if (left < E) {
#pragma unroll
            for (int e = 1; e < E; e++)
                if (e >= left) z[e] = -(M)INFINITY;
        }
    } else {
        taken = 0;
#pragma unroll
        for (int e = 0; e < E; e++) {
            const bool here = e < left && (q.mask != SOFTMAX_MASK_BOOL || mask.truth(e));
            z[e] = -(M)INFINITY;
            if (here) {
                const M added = q.mask == SOFTMAX_MASK_SAME    ? mask.same.get(e)
                                : q.mask == SOFTMAX_MASK_FLOAT ? (M)mask.real(e)
                                                               : (M)0;
                z[e] = fma(x.get(e), (M)q.scale, added);
                taken |= 1u << e;
            }
        }
    }
    M most = z[0];
#pragma unroll
    for (int e = 1; e < E; e++) most = ks_max(most, z[e]);
    return most;
}

/* A pack's results take its place. z: the terms, for the logarithm the distances. left: none of a row of nothing. */
template <bool MASKED, class T, int E, class M>
__device__ __forceinline__ void softmax_masked_values(softmax_pack<T, E> &x, const M (&z)[E], unsigned taken, int left,
                                                      const softmax_epilogue<M> &epilogue, M none)
{
    constexpr int STEP = softmax_pack<T, E>::STEP;
    if (!MASKED && left <= 0) {
#pragma unroll
        for (int e = 0; e < E; e++) x.element[e] = ks_round<T, M>(none);
        return;
    }
#pragma unroll
    for (int e = 0; e < E; e += STEP) {
        M y[STEP];
#pragma unroll
        for (int k = 0; k < STEP; k++) {
            const bool here = MASKED ? (taken >> (e + k) & 1) && left > 0 : true;
            y[k] = here ? fma(z[e + k], epilogue.a, epilogue.b) : none;
        }
        x.put(e, y);
    }
    if constexpr (!MASKED) {
        if (left >= E) return;
#pragma unroll
        for (int e = 1; e < E; e++)
            if (e >= left) x.element[e] = ks_round<T, M>(none);
    }
}

/* MASKED: there is a mask. Else what takes part is the row's begin, and only the pack where it ends is worked on by elements. The order of
 * a row's arithmetic is one, masked or not. */
template <class T, int V, bool CTA, bool MASKED>
__global__ void __launch_bounds__(CTA ? SOFTMAX_MASKED_CTA : SOFTMAX_MASKED_THREADS,
                                  softmax_masked_ctas<T, CTA, MASKED>)
    softmax_masked_rows(ks_site site, const __grid_constant__ softmax_shape s, const __grid_constant__ softmax_masked q,
                        int shift)
{
    typedef typename ks_element<T>::math M;
    constexpr int E = ks_vector<T>::length, ROWS = CTA ? 1 : softmax_masked_flight(V, MASKED);
    constexpr int WARPS = CTA ? SOFTMAX_MASKED_CTA / KS_WARP : 0;
    __shared__ softmax_cells<M> cells;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const int width = CTA ? (int)blockDim.x : 1 << shift, together = CTA ? 1 : (int)blockDim.x >> shift;
    const int lane_id = CTA ? (int)threadIdx.x : (int)threadIdx.x & (width - 1);
    const int subwarp = CTA ? 0 : (int)threadIdx.x >> shift, length = (int)s.length;
    const unsigned char *const in = job.in + s.offset, *const mask = job.in + q.mask_offset;
    const unsigned char *const lengths = job.in + q.lengths_offset;

    for (int64_t first = (int64_t)blockIdx.x * (ROWS * together); first < s.outer;
         first += (int64_t)gridDim.x * (ROWS * together)) {
        const int rows = (int)min(s.outer - first, (int64_t)(ROWS * together)); /* the others take part in shuffles */
        const int64_t base = first * (length / E);
        int limit[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const int row = subwarp + k * together;
            limit[k] = row < rows ? (int)softmax_masked_limit(site, q, lengths, first + row, length) : 0;
        }
        softmax_pack<T, E> x[ROWS][V];
        softmax_mask_pack<T, E> masks[V];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const int row = subwarp + k * together;
            const int64_t place = MASKED && row < rows ? softmax_masked_place(q, first + row) : 0;
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int i = lane_id + v * width;
                if (i * E >= limit[k]) continue;
                softmax_load(x[k][v], in, base + row * (length / E) + i);
                if (MASKED && q.selection.along)
                    masks[v].load(q.mask, mask, place + i * E);
                else if (MASKED)
                    masks[v].spread(q.mask, mask, place);
            }
        }
        M z[ROWS][V][E], most[ROWS], sum[ROWS];
        unsigned taken[V];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            most[k] = -(M)INFINITY;
#pragma unroll
            for (int v = 0; v < V; v++) {
                most[k] = ks_max(most[k], softmax_masked_levels<MASKED>(z[k][v], taken[v], x[k][v], masks[v], q,
                                                                        limit[k] - (lane_id + v * width) * E));
            }
        }
        softmax_masked_across<WARPS>(most, width, -(M)INFINITY, cells.h, softmax_maxes());
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const M reference = ks_reference(most[k]);
            M sums[V];
#pragma unroll
            for (int v = 0; v < V; v++) {
                M term[E];
                sums[v] = 0;
                if (!MASKED && limit[k] <= (lane_id + v * width) * E) continue;
#pragma unroll
                for (int e = 0; e < E; e++) {
                    const M d = z[k][v][e] - reference;
                    term[e] = rule.term(d);
                    z[k][v][e] = rule.log ? d : term[e];
                }
                sums[v] = ks_tree(term);
            }
            sum[k] = ks_tree(sums);
        }
        softmax_masked_across<WARPS>(sum, width, (M)0, cells.sum, ks_adds());
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const int row = subwarp + k * together;
            const bool nothing = softmax_is_nothing(most[k], sum[k]);
            const softmax_epilogue<M> epilogue(softmax_settle<M>({most[k], sum[k]}, rule), rule);
            const M none = nothing ? softmax_value_of_nothing(rule, q.selection.zero) : softmax_value_of_none(rule);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int i = lane_id + v * width;
                softmax_masked_values<MASKED>(x[k][v], z[k][v], taken[v], nothing ? 0 : limit[k] - i * E, epilogue,
                                              none);
                if (row < rows && i * E < length) ((uint4 *)job.out)[base + row * (length / E) + i] = x[k][v].word;
            }
        }
    }
    ks_leave<true>(site);
}

/* --- any ------------------------------------------------------------------------------------------------------------- */

/* An element's z; *taken: it is selected. */
template <class T, class M>
__device__ __forceinline__ M softmax_masked_level(const softmax_masked &q, const unsigned char *mask, int64_t place,
                                                  T x, bool *taken)
{
    const M level = ks_math(x);
    *taken = q.mask != SOFTMAX_MASK_BOOL || mask[place];
    if (!*taken) return -(M)INFINITY;
    if (q.mask == SOFTMAX_MASK_SAME) return fma(level, (M)q.scale, ks_math(((const T *)mask)[place]));
    if (q.mask == SOFTMAX_MASK_FLOAT) return fma(level, (M)q.scale, (M)((const float *)mask)[place]);
    return level * (M)q.scale;
}

template <class M>
__device__ __forceinline__ void softmax_masked_put(ks_dtype dtype, void *out, int64_t at, M y)
{
    switch (dtype) {
    case KS_FP16:
        ((__half *)out)[at] = ks_round<__half, M>(y);
        break;
    case KS_BF16:
        ((__nv_bfloat16 *)out)[at] = ks_round<__nv_bfloat16, M>(y);
        break;
    case KS_FP32:
        ((float *)out)[at] = (float)y;
        break;
    default:
        ((double *)out)[at] = (double)y;
        break;
    }
}

/* The greatest z so far and the sum of terms, in FP64 and beside what its roundings have lost (Kahan): a thread may have many terms,
 * and equal ones lose the same each time. */
template <class M>
struct softmax_running {
    M most;
    double sum, lost;

    /* What has no terms changes nothing, not even how sum and lost share a value: masked elements behind a row are as if not there. */
    __device__ __forceinline__ void join(const softmax_running &other, const softmax_rule<M> &rule)
    {
        if (other.sum == 0) return;
        const M whole = ks_max(most, other.most);
        const double weight = (double)softmax_weight(most, whole, rule);
        const double term = (other.sum - other.lost) * (double)softmax_weight(other.most, whole, rule) - lost * weight;
        const double before = sum * weight;
        sum = before + term;
        lost = (sum - before) - term;
        most = whole;
    }
};

/* A CTA takes `across` rows, a power of 2: threads side by side go along a row that is contiguous, and across rows otherwise. */
template <class T>
__global__ void __launch_bounds__(SOFTMAX_MASKED_THREADS, 2)
    softmax_masked_any(ks_site site, const __grid_constant__ softmax_shape s, const __grid_constant__ softmax_masked q,
                       int across)
{
    typedef typename ks_element<T>::math M;
    constexpr int U = sizeof(T) == 8 ? 2 : 4;
    __shared__ softmax_running<M> shared[SOFTMAX_MASKED_THREADS];
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const int width = SOFTMAX_MASKED_THREADS / across, thread = (int)threadIdx.x;
    const int own = s.inner == 1 ? thread / width : thread % across,
              k = s.inner == 1 ? thread % width : thread / across;
    const unsigned char *const mask = job.in + q.mask_offset, *const lengths = job.in + q.lengths_offset;
    const int64_t rows = s.outer * s.inner, step = q.selection.along;

    for (int64_t first = (int64_t)blockIdx.x * across; first < rows; first += (int64_t)gridDim.x * across) {
        const int64_t row = first + own;
        const bool live = row < rows; /* the others still take part in barriers */
        const int64_t place = live ? softmax_masked_place(q, row) : 0, line = row / s.inner;
        const int64_t limit = live ? softmax_masked_limit(site, q, lengths, row, s.length) : 0;
        const int64_t base = line * s.length * s.inner + (row - line * s.inner);
        const T *const x = (const T *)(job.in + s.offset) + base;
        softmax_running<M> mine = {-(M)INFINITY, 0, 0};
        for (int64_t d = k; d < limit; d += U * width) {
            M z[U], most = -(M)INFINITY;
            bool taken;
#pragma unroll
            for (int u = 0; u < U; u++) {
                const int64_t at = d + u * width;
                z[u] = -(M)INFINITY;
                if (at < limit) z[u] = softmax_masked_level<T, M>(q, mask, place + at * step, x[at * s.inner], &taken);
                most = ks_max(most, z[u]);
            }
            M terms[U];
#pragma unroll
            for (int u = 0; u < U; u++) terms[u] = rule.term(z[u] - ks_reference(most));
            mine.join({most, (double)ks_tree(terms), 0}, rule);
        }
        shared[own * width + k] = mine;
        __syncthreads();
        for (int half = width / 2; half > 0; half /= 2) {
            if (k < half) shared[own * width + k].join(shared[own * width + k + half], rule);
            __syncthreads();
        }
        const softmax_running<M> whole = shared[own * width];
        const bool nothing = softmax_is_nothing(whole.most, whole.sum);
        const softmax_epilogue<M> epilogue(softmax_settle<M>({whole.most, (M)whole.sum}, rule), rule);
        const M none = nothing ? softmax_value_of_nothing(rule, q.selection.zero) : softmax_value_of_none(rule);
        for (int64_t d = k; d < s.length && live; d += width) {
            bool taken = false;
            M y = none;
            if (d < limit && !nothing) {
                const M z = softmax_masked_level<T, M>(q, mask, place + d * step, x[d * s.inner], &taken);
                if (taken) y = epilogue(z - epilogue.reference, rule);
            }
            softmax_masked_put(q.out, job.out, base + d * s.inner, y);
        }
        __syncthreads();
    }
    ks_leave<true>(site);
}

#endif

/* Of a spec that selects, or whose result has another datatype: ks_cuda_plan_fn, and the launch. */
ks_status softmax_masked_plan(const ks_chip *chip, const ks_spec *spec, ks_cuda_plan *out, ks_error *error);
cudaError_t softmax_masked_launch(const ks_spec *spec, const void *algorithm, ks_site site, int bucket,
                                  cudaStream_t stream);

#endif
