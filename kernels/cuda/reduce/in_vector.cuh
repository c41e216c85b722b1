/* Rows of 2, 4, 8 or 16 elements, of which a vector holds one or several: nothing goes between threads.
 *
 * An item is REDUCE_IN_VECTOR_LOADS vectors of each thread of a CTA, all of them in flight at once. The results of a vector lie
 * side by side and are stored together, so that a warp reads and writes whole lines of memory. */
#ifndef KS_REDUCE_IN_VECTOR_CUH
#define KS_REDUCE_IN_VECTOR_CUH

#include "cuda/reduce/take.cuh"

/* DEPTH: elements of a row. */
template <class Op, int DEPTH>
__global__ void __launch_bounds__(256) reduce_in_vector(ks_site site, const __grid_constant__ reduce_shape s, Op op)
{
    typedef typename Op::Source Source;
    typedef typename Source::T T;
    constexpr int E = ks_vector<T>::length, V = REDUCE_IN_VECTOR_LOADS, ROWS = E / DEPTH;
    ks_job_sides job;
    if (!ks_enter(site, &job)) return;
    const uint4 *const in = ks_one_address((const uint4 *)(job.in + s.offset));
    typename Op::Out *const out = (typename Op::Out *)job.out;

    for (uint32_t item = blockIdx.x; item < s.items; item += gridDim.x) {
        const int64_t first = (int64_t)item * (V * blockDim.x) + threadIdx.x;
        ks_vector<T> v[V];
#pragma unroll
        for (int i = 0; i < V; i++) {
            if constexpr (reduce_shifts<Op>)
                v[i].raw = make_uint4(0, 0, 0, 0); /* of no row: nothing is stored */
            else
                v[i] = reduce_missing(op);
            if ((first + i * blockDim.x) * ROWS < s.results) v[i] = reduce_load<T>(in + first + i * blockDim.x);
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            reduce_order_words(op, &v[i].raw);
            reduce_pack<typename Op::Out, ROWS> pack;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                typename Source::W x[1][DEPTH];
#pragma unroll
                for (int e = 0; e < DEPTH; e++) x[0][e] = Source::get(v[i].element[r * DEPTH + e], op.rule);
                typename Op::Acc acc[1];
                if constexpr (reduce_shifts<Op>)
                    acc[0] = op.start_at(x[0][0]);
                else
                    acc[0] = op.start();
                op.take(acc, x, 0);
                pack.one[r] = op.result(op.finish(acc[0], true, [](int n) { return (int64_t)n; }));
            }
            const int64_t row = (first + i * blockDim.x) * ROWS;
            if (row < s.results) pack.store(out + row, s.results - row);
        }
    }
    ks_leave(site);
}

#endif
