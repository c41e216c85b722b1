/* Softmax of short rows, many of them in a CTA.
 *
 *   row_elements        few rows of up to a warp's threads, an element to a thread
 *   row_subwarp         rows of whole vectors, each in the registers of a subwarp: loads of several rows before the first use
 *   row_in_vector       rows of which a vector holds several: a thread's vectors hold all of its rows
 *   row_warp_unaligned  rows of any length: their whole vectors, and the few elements beside those one to a thread
 *   rows_smem           rows of any length, and the lines of an axis that is not contiguous where length * inner is small:
 *                       blocks of the outer dimensions that follow each other are one aligned run of memory, which goes
 *                       through shared memory in whole vectors; a thread takes up to 16 elements of a row into registers */
#ifndef KS_SOFTMAX_SHORT_CUH
#define KS_SOFTMAX_SHORT_CUH

#include "cuda/softmax/row_block_registers.cuh"

/* Threads of a CTA, at most; of row_subwarp and row_warp_unaligned at large: small CTAs follow each other without gaps. */
static constexpr int SHORT_THREADS = 256, SUBWARP_THREADS = 64;

/* The sum of a pack's terms, and beside it what its values need again: the terms, for the logarithm the distances. */
template <class T, int E, class M>
__device__ __forceinline__ M softmax_sum_beside(M (&kept)[E], const softmax_pack<T, E> &x, M reference,
                                                const softmax_rule<M> &rule)
{
    M term[E];
#pragma unroll
    for (int e = 0; e < E; e++) {
        const M d = rule.distance(x.get(e), reference);
        term[e] = rule.term(d);
        kept[e] = rule.log ? d : term[e];
    }
    return ks_tree(term);
}

/* Likewise, by the row's level. */
template <class T, int E, class M>
__device__ __forceinline__ M softmax_sum_at(M (&kept)[E], const softmax_pack<T, E> &x, M level,
                                            const softmax_rule<M> &rule)
{
#pragma unroll
    for (int e = 0; e < E; e++) kept[e] = rule.term_at(x.get(e), level);
    return ks_tree(kept);
}

template <class T, int E, class M>
__device__ __forceinline__ void softmax_values_of(softmax_pack<T, E> &x, const M (&kept)[E],
                                                  const softmax_epilogue<M> &epilogue)
{
    constexpr int STEP = softmax_pack<T, E>::STEP;
#pragma unroll
    for (int e = 0; e < E; e += STEP) {
        M y[STEP];
#pragma unroll
        for (int i = 0; i < STEP; i++) y[i] = fma(kept[e + i], epilogue.a, epilogue.b);
        x.put(e, y);
    }
}

/* Rows in subwarps of 1 << shift, V packs of each of them, with their sign, in a thread, and EDGES (1 or none) of its elements by
 * themselves: the results take their place. KEEP: 16-bit elements are not computed twice either, at twice the registers. */
template <bool KEEP, int EDGES, class T, int E, int V, int ROWS, class M>
__device__ __forceinline__ void softmax_of_subwarps(softmax_pack<T, E> (&x)[ROWS][V], softmax_pack<T, 1> (&edge)[ROWS],
                                                    int shift, const softmax_rule<M> &rule)
{
    constexpr bool BESIDE = KEEP || softmax_keeps<T>;
    M h[ROWS], sum[ROWS], kept[ROWS][V][E], kept_edge[ROWS][1];
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        softmax_pack<T, E> most = x[k][0];
#pragma unroll
        for (int v = 1; v < V; v++) most = softmax_greater(most, x[k][v]);
        h[k] = softmax_half(most);
        if (EDGES) h[k] = ks_max(h[k], softmax_half(edge[k]));
    }
    for (int distance = 1 << shift >> 1; distance > 0; distance >>= 1)
#pragma unroll
        for (int k = 0; k < ROWS; k++) h[k] = ks_max(h[k], ks_shuffle(h[k], distance));
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const M reference = ks_reference(h[k]), level = reference * rule.factor;
        if (BESIDE && EDGES && rule.level_will_do(level)) {
            sum[k] = softmax_sum_at(kept_edge[k], edge[k], level, rule);
#pragma unroll
            for (int v = 0; v < V; v++) sum[k] += softmax_sum_at(kept[k][v], x[k][v], level, rule);
            continue;
        }
        sum[k] = 0;
        if (EDGES) sum[k] = softmax_sum_beside(kept_edge[k], edge[k], reference, rule);
#pragma unroll
        for (int v = 0; v < V; v++) {
            if constexpr (BESIDE)
                sum[k] += softmax_sum_beside(kept[k][v], x[k][v], reference, rule);
            else
                sum[k] += softmax_sum<false>(x[k][v], reference, rule);
        }
    }
    for (int distance = 1 << shift >> 1; distance > 0; distance >>= 1)
#pragma unroll
        for (int k = 0; k < ROWS; k++) sum[k] += ks_shuffle(sum[k], distance);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const softmax_epilogue<M> epilogue(softmax_settle({h[k], sum[k]}, rule), rule);
        if (EDGES) softmax_values_of(edge[k], kept_edge[k], epilogue);
#pragma unroll
        for (int v = 0; v < V; v++) {
            if constexpr (BESIDE) {
                softmax_values_of(x[k][v], kept[k][v], epilogue);
            } else {
                for (uint32_t &part : x[k][v].part) ks_anew(part);
                softmax_values<false>(x[k][v], epilogue, rule);
            }
        }
    }
}

/* As little code as can be, and no loops: a launch of a few rows takes about as long as the fetching of its instructions. */
template <class T, int SHIFT>
__global__ void __launch_bounds__(SHORT_THREADS) softmax_row_elements(ks_site site, softmax_shape s)
{
    typedef typename softmax_pack<T, 1>::Word Word;
    ks_job_sides job;
    if (!ks_enter_again(site, &job)) return;
    const int lane_id = threadIdx.x & ((1 << SHIFT) - 1), length = (int)s.length;
    const int row = blockIdx.x * (blockDim.x >> SHIFT) + (threadIdx.x >> SHIFT), at = row * length + lane_id;
    const bool live = row < s.outer && lane_id < length;
    softmax_pack<T, 1> x[1][1], none[1];
    softmax_blank(x[0][0], 0);
    if (live) softmax_load(x[0][0], job.in + s.offset, at);
    ks_start(site);
    const softmax_rule<typename ks_element<T>::math> rule(s);
    softmax_apply_sign(x[0], s.sign, [&](int) { return live; });
    softmax_of_subwarps<true, 0>(x, none, SHIFT, rule);
    if (live) ((Word *)job.out)[at] = x[0][0].word;
    ks_leave(site);
}

template <class T, int V, int ROWS>
__global__ void __launch_bounds__(SHORT_THREADS) softmax_row_subwarp(ks_site site, softmax_shape s, int shift)
{
    constexpr int E = ks_vector<T>::length;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<typename ks_element<T>::math> rule(s);
    const int lane_id = threadIdx.x & ((1 << shift) - 1), subwarp = threadIdx.x >> shift,
              together = blockDim.x >> shift;
    const int vectors = (int)s.length / E;
    const int64_t first = (int64_t)blockIdx.x * (ROWS * together); /* row */
    const int rows = (int)min(s.outer - first, (int64_t)ROWS * together);
    const uint4 *const in = (const uint4 *)(job.in + s.offset) + first * vectors;
    uint4 *const out = (uint4 *)job.out + first * vectors;

    softmax_pack<T, E> x[ROWS][V];
#pragma unroll
    for (int k = 0; k < ROWS; k++)
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int row = subwarp + k * together, i = lane_id + (v << shift);
            if (row < rows && i < vectors)
                softmax_load(x[k][v], in, row * vectors + i);
            else
                softmax_blank(x[k][v], 0);
        }
#pragma unroll
    for (int k = 0; k < ROWS; k++)
        softmax_apply_sign(x[k], s.sign,
                           [&](int v) { return subwarp + k * together < rows && lane_id + (v << shift) < vectors; });
    softmax_pack<T, 1> none[ROWS];
    softmax_of_subwarps<true, 0>(x, none, shift, rule);
#pragma unroll
    for (int k = 0; k < ROWS; k++)
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int row = subwarp + k * together, i = lane_id + (v << shift);
            if (row < rows && i < vectors) out[row * vectors + i] = x[k][v].word;
        }
    ks_leave(site);
}

/* V vectors in a thread, rows of L elements in each. Elements behind the last row are rows like others, until the store. */
template <class T, int L, int V>
__global__ void __launch_bounds__(SHORT_THREADS) softmax_row_in_vector(ks_site site, softmax_shape s)
{
    constexpr int E = ks_vector<T>::length, ROWS = E / L;
    union vector {
        uint4 word;
        typename softmax_pack<T, L>::Word row[ROWS];
    };
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<typename ks_element<T>::math> rule(s);
    const int64_t first = (int64_t)blockIdx.x * (V * blockDim.x) + threadIdx.x, elements = s.outer * L;
    const uint4 *const in = (const uint4 *)(job.in + s.offset);

    softmax_pack<T, L> x[V * ROWS][1];
#pragma unroll
    for (int v = 0; v < V; v++) {
        const int64_t i = first + v * (int64_t)blockDim.x;
        vector read;
        read.word = i * E < elements ? __ldg(in + i) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int r = 0; r < ROWS; r++) x[v * ROWS + r][0].word = read.row[r];
    }
#pragma unroll
    for (int k = 0; k < V * ROWS; k++) softmax_apply_sign(x[k], s.sign);
    softmax_pack<T, 1> none[V * ROWS];
    softmax_of_subwarps<false, 0>(x, none, 0, rule);
#pragma unroll
    for (int v = 0; v < V; v++) {
        const int64_t i = first + v * (int64_t)blockDim.x, left = elements - i * E;
        vector write;
#pragma unroll
        for (int r = 0; r < ROWS; r++) write.row[r] = x[v * ROWS + r][0].word;
        softmax_pack<T, E> y;
        y.word = write.word;
        if (left > 0) softmax_store(job.out, i, y, left < E ? (1u << left) - 1 : (1u << E) - 1);
    }
    ks_leave(site);
}

/* Rows that start anywhere: those of their vectors that are whole, V of each row in a thread, and of the elements before and
 * behind those a thread has one. Subwarps beyond the last row do it once more. */
template <class T, int V, int ROWS>
__global__ void __launch_bounds__(SUBWARP_THREADS, 1024 / SUBWARP_THREADS)
    softmax_row_warp_unaligned(ks_site site, softmax_shape s, int shift)
{
    constexpr int E = ks_vector<T>::length;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<typename ks_element<T>::math> rule(s);
    const int lane_id = threadIdx.x & ((1 << shift) - 1), subwarp = threadIdx.x >> shift,
              together = blockDim.x >> shift;
    const int length = (int)s.length, rows = ROWS * together;
    const int64_t first = (int64_t)blockIdx.x * rows, begin = first * length; /* of the CTA: row, element */
    const int skew = (int)(begin & (E - 1)), last = (int)min(s.outer - 1 - first, (int64_t)rows);
    const unsigned char *const in = job.in + s.offset + (begin - skew) * (int64_t)sizeof(T);
    unsigned char *const out = job.out + (begin - skew) * (int64_t)sizeof(T);
    softmax_pack<T, E> x[ROWS][V];
    softmax_pack<T, 1> edge[ROWS];
    int at[ROWS], count[ROWS], place[ROWS]; /* vectors: the first one, those that are whole; the element */
    bool has[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const int start = skew + min(subwarp + k * together, last) * length, head = -start & (E - 1);
        count[k] = (length - head) / E;
        at[k] = (start + head) / E + lane_id;
        place[k] = start + lane_id + (lane_id < head ? 0 : count[k] * E);
        has[k] = place[k] < start + length;
        softmax_blank(edge[k], 0);
        if (has[k]) softmax_load(edge[k], in, place[k]);
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (lane_id + (v << shift) < count[k])
                softmax_load(x[k][v], in, at[k] + (v << shift));
            else
                softmax_blank(x[k][v], 0);
        }
    }
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        softmax_apply_sign(x[k], s.sign, [&](int v) { return lane_id + (v << shift) < count[k]; });
        softmax_pack<T, 1> one[1] = {edge[k]};
        softmax_apply_sign(one, s.sign, [&](int) { return has[k]; });
        edge[k] = one[0];
    }
    softmax_of_subwarps<true, 1>(x, edge, shift, rule);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
#pragma unroll
        for (int v = 0; v < V; v++)
            if (lane_id + (v << shift) < count[k]) ((uint4 *)out)[at[k] + (v << shift)] = x[k][v].word;
        if (has[k]) ((typename softmax_pack<T, 1>::Word *)out)[place[k]] = edge[k].word;
    }
    ks_leave(site);
}

/* The most elements of a thread. */
static constexpr int SMEM_ELEMENTS = 16;

/* `blocks` of the outer dimensions at a time, so many that their bytes are whole vectors. Subwarps of 1 << shift take a
 * row each, a thread `each` of its elements that follow each other: an odd number of them where threads share a row, so
 * that few of their reads go to one bank. LINES: elements of a row are s.inner apart. */
template <class T, bool LINES>
__global__ void __launch_bounds__(SHORT_THREADS)
    softmax_rows_smem(ks_site site, softmax_shape s, int blocks, int shift, int each)
{
    typedef typename ks_element<T>::math M;
    constexpr int VECTOR = ks_vector<T>::length, STEP = 2, SUMS = 4;
    uint4 *const slab = ks_dynamic;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const M half = (M)s.sign * (M)0.5;
    const int length = (int)s.length, inner = LINES ? (int)s.inner : 1, block = length * inner;
    const int64_t first = (int64_t)blockIdx.x * blocks;
    const int here = (int)min((int64_t)blocks, s.outer - first), elements = here * block, rows = here * inner;
    const uint4 *const in = (const uint4 *)(job.in + s.offset) + first * block / VECTOR;
    uint4 *const out = (uint4 *)job.out + first * block / VECTOR;
    for (int i = threadIdx.x; i * VECTOR < elements; i += blockDim.x) ks_copy_async(&slab[i], &in[i]);
    ks_copy_wait();
    __syncthreads();

    const int lane_id = threadIdx.x & ((1 << shift) - 1), subwarp = threadIdx.x >> shift,
              together = blockDim.x >> shift;
    const int begin = (threadIdx.x & ~(KS_WARP - 1)) >> shift; /* of the warp's first group */
#pragma unroll 1
    for (int round = 0; round + begin < rows; round += together) {
        const int row = round + subwarp;
        T *const element =
            (T *)slab + (LINES ? row / inner * block + row % inner : row * length) + lane_id * each * inner;
        const int count =
            row < rows ? length - lane_id * each : 0; /* without a row, they still take part in shuffles */
        M x[SMEM_ELEMENTS], h = -(M)INFINITY, sums[SUMS] = {};
#pragma unroll
        for (int i = 0; i < SMEM_ELEMENTS; i++) {
            if (i % STEP == 0 && i >= each) break;
            x[i] = i < min(each, count) ? ks_math(element[i * inner]) * half : -(M)INFINITY;
            h = ks_max(h, x[i]);
        }
        h = ks_subwarp_reduce(h, 1 << shift, softmax_maxes());
#pragma unroll
        for (int i = 0; i < SMEM_ELEMENTS; i++) {
            if (i % STEP == 0 && i >= each) break;
            x[i] -= ks_reference(h);
            const M term = rule.term(x[i]);
            if (!rule.log) x[i] = term;
            sums[i % SUMS] += term;
        }
        const M sum = ks_subwarp_reduce(ks_tree(sums), 1 << shift, ks_adds());
        const softmax_epilogue<M> epilogue(softmax_settle({h, sum}, rule), rule);
#pragma unroll
        for (int i = 0; i < SMEM_ELEMENTS; i++) {
            if (i % STEP == 0 && i >= each) break;
            if (i < min(each, count)) element[i * inner] = ks_round<T, M>(fma(x[i], epilogue.a, epilogue.b));
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i * VECTOR < elements; i += blockDim.x) {
        softmax_pack<T, VECTOR> y;
        y.word = slab[i];
        const int left = elements - i * VECTOR;
        softmax_store(out, i, y, left < VECTOR ? (1u << left) - 1 : (1u << VECTOR) - 1);
    }
    ks_leave(site);
}

#endif
