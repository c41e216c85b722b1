/* Softmax of short rows, many of them in a CTA.
 *
 *   lanes  rows of whole vectors, each in the registers of a lane group: loads of several rows before the first use
 *   slab   rows of any length, and the lines of an axis that is not contiguous where length * inner is small: pieces of
 *          the outer dimensions that follow each other are one aligned piece of memory, which goes through shared memory
 *          in whole vectors; lanes take packs of one or two elements */
#ifndef KS_SOFTMAX_SHORT_CUH
#define KS_SOFTMAX_SHORT_CUH

#include "softmax_common.cuh"

static constexpr int SHORT_THREADS = 256;

/* Lane groups of 1 << shift; V packs of each of ROWS rows in a lane. */
template <class T, int V, int ROWS>
__global__ void __launch_bounds__(SHORT_THREADS) softmax_lanes(ks_site site, softmax_shape s, int shift)
{
    typedef typename ks_element<T>::math M;
    constexpr int E = ks_vector<T>::length;
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const int lane = threadIdx.x & ((1 << shift) - 1), group = threadIdx.x >> shift, together = blockDim.x >> shift;
    const int vectors = (int)s.length / E;
    const int64_t first = (int64_t)blockIdx.x * (ROWS * together); /* row */
    const int rows = (int)min(s.outer - first, (int64_t)ROWS * together);
    const uint4 *const in = (const uint4 *)(job.in + s.offset) + first * vectors;
    uint4 *const out = (uint4 *)job.out + first * vectors;

    softmax_pack<T, E> x[ROWS][V];
    M h[ROWS], sum[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; k++)
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int row = group + k * together, i = lane + (v << shift);
            if (row < rows && i < vectors)
                softmax_load(x[k][v], in, row * vectors + i);
            else
                softmax_blank(x[k][v], 0);
        }
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        softmax_turn(x[k], s.sign, [&](int v) { return group + k * together < rows && lane + (v << shift) < vectors; });
        softmax_pack<T, E> most = x[k][0];
#pragma unroll
        for (int v = 1; v < V; v++) most = softmax_greater(most, x[k][v]);
        h[k] = softmax_half(most);
    }
    for (int distance = 1 << shift >> 1; distance > 0; distance /= 2)
#pragma unroll
        for (int k = 0; k < ROWS; k++) h[k] = ks_max(h[k], ks_shuffle(h[k], distance));
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        sum[k] = 0;
#pragma unroll
        for (int v = 0; v < V; v++) sum[k] += softmax_sum<softmax_keeps<T>>(x[k][v], ks_reference(h[k]), rule);
    }
    for (int distance = 1 << shift >> 1; distance > 0; distance /= 2)
#pragma unroll
        for (int k = 0; k < ROWS; k++) sum[k] += ks_shuffle(sum[k], distance);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        const softmax_finish<M> finish(softmax_settle({h[k], sum[k]}, rule), rule);
#pragma unroll
        for (int v = 0; v < V; v++) {
            const int row = group + k * together, i = lane + (v << shift);
            softmax_values<softmax_keeps<T>>(x[k][v], finish, rule);
            if (row < rows && i < vectors) out[row * vectors + i] = x[k][v].word;
        }
    }
    ks_leave(site);
}

/* `pieces` of the outer dimensions at a time, so many that their bytes are whole vectors. Packs of one element, or of two
 * where those of a row follow each other: what lies at a row's ends beside its packs is lane 0's. */
template <class T, int E>
__global__ void __launch_bounds__(SHORT_THREADS) softmax_slab(ks_site site, softmax_shape s, int pieces, int shift)
{
    typedef typename ks_element<T>::math M;
    constexpr int VECTOR = ks_vector<T>::length, V = 4;
    uint4 *const slab = ks_dynamic;
    ks_entry job;
    if (!ks_enter(site, &job)) return;
    const softmax_rule<M> rule(s);
    const int length = (int)s.length, inner = E > 1 ? 1 : (int)s.inner, piece = length * inner;
    const int64_t first = (int64_t)blockIdx.x * pieces;
    const int elements = (int)min((int64_t)pieces, s.outer - first) * piece;
    const uint4 *const in = (const uint4 *)(job.in + s.offset) + first * piece / VECTOR;
    uint4 *const out = (uint4 *)job.out + first * piece / VECTOR;
    for (int i = threadIdx.x; i * VECTOR < elements; i += blockDim.x) ks_copy_async(&slab[i], &in[i]);
    ks_copy_wait();
    __syncthreads();

    const int width = 1 << shift, lane = threadIdx.x & (width - 1), together = blockDim.x >> shift;
    const int rows = elements / length, begin = (threadIdx.x & ~(KS_WARP - 1)) >> shift; /* of the warp's first group */
#pragma unroll 1
    for (int round = begin; round < rows; round += together) {
        const int row = round + ((threadIdx.x & (KS_WARP - 1)) >> shift);
        const int start = inner == 1 ? row * length : row / inner * piece + row % inner;
        const int ahead = start % E,
                  count = row < rows ? length : 0; /* without one, they still take part in shuffles */
        softmax_pack<T, 1> *const element = (softmax_pack<T, 1> *)slab + start;
        softmax_pack<T, E> *const pack = (softmax_pack<T, E> *)slab + (start + ahead) / E;
        const int packs = (count - ahead) / E;
        /* step(packs): V of the row's packs, turned, blank where there are none, and stored where that is asked for. */
        const auto visit = [&](bool store, auto step) {
#pragma unroll 1
            for (int first = lane; first < packs; first += V * width) {
                softmax_pack<T, E> x[V];
#pragma unroll
                for (int v = 0; v < V; v++) {
                    softmax_blank(x[v], 0);
                    if (first + v * width < packs) x[v] = pack[(first + v * width) * inner];
                }
                softmax_turn(x, s.sign, [&](int v) { return first + v * width < packs; });
                step(x);
#pragma unroll
                for (int v = 0; v < V; v++)
                    if (store && first + v * width < packs) pack[(first + v * width) * inner] = x[v];
            }
            if constexpr (E > 1) { /* the row's first and last element where they are no pack's */
#pragma unroll 1
                for (int end = 0; end < 2 && lane == 0 && count > 0; end++) {
                    if (end ? (count - ahead) % E == 0 : ahead == 0) continue;
                    softmax_pack<T, 1> x[1] = {element[end ? count - 1 : 0]};
                    softmax_turn(x, s.sign);
                    step(x);
                    if (store) element[end ? count - 1 : 0] = x[0];
                }
            }
        };
        M h = -(M)INFINITY, sum = 0;
        visit(false, [&](auto &x) {
            auto most = x[0];
#pragma unroll
            for (int v = 1; v < (int)(sizeof x / sizeof x[0]); v++) most = softmax_greater(most, x[v]);
            h = ks_max(h, softmax_half(most));
        });
        for (int distance = width / 2; distance > 0; distance /= 2) h = ks_max(h, ks_shuffle(h, distance));
        visit(false, [&](auto &x) {
            M leaf[sizeof x / sizeof x[0]];
#pragma unroll
            for (int v = 0; v < (int)(sizeof x / sizeof x[0]); v++)
                leaf[v] = softmax_sum<false>(x[v], ks_reference(h), rule);
            sum += ks_tree(leaf);
        });
        for (int distance = width / 2; distance > 0; distance /= 2) sum += ks_shuffle(sum, distance);
        const softmax_finish<M> finish(softmax_settle({h, sum}, rule), rule);
        visit(true, [&](auto &x) {
#pragma unroll
            for (int v = 0; v < (int)(sizeof x / sizeof x[0]); v++) softmax_values<false>(x[v], finish, rule);
        });
    }
    __syncthreads();
    for (int i = threadIdx.x; i * VECTOR < elements; i += blockDim.x) {
        softmax_pack<T, VECTOR> y;
        y.word = slab[i];
        softmax_store(out, i, y, ks_vector_mask<VECTOR>((int64_t)i * VECTOR, elements));
    }
    ks_leave(site);
}

#endif
